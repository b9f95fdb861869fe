/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * One list of locks and one of waiters for each file, in a hash; all waiters in one more list, for the search of circles.
 * An owner's fcntl locks of a file never overlap, and those of one type never touch. A waiter is granted as soon as
 * nothing stops it: every change that gives something up looks through the file's waiters, first come first.
 */
#include "fs/job/lock_table.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/queue.h>

#define BUCKETS_FIRST 64u

struct held {
	TAILQ_ENTRY(held) in_file;
	struct lock lock;
};
TAILQ_HEAD(held_list, held);

struct waiter {
	TAILQ_ENTRY(waiter) in_file, in_table;
	struct waiter *next_search;
	uint64_t searched; /* number of the last search that saw it */
	uint64_t id;
	int64_t since_usec;
	struct lock want;
	struct file *file;
};
TAILQ_HEAD(waiter_list, waiter);

struct file { /* there as long as one of its lists has something */
	struct file *next;
	uint64_t ino;
	struct held_list locks;
	struct waiter_list waiters;
};

struct lock_table {
	lock_table_granted granted;
	void *arg;
	struct file **buckets;
	uint64_t num_buckets, num_files, num_locks, num_waiters;
	struct waiter_list waiters;
	uint64_t searches;
	int64_t due_usec; /* some waiter is stopped by another one alone, until then */
};

/* ---- files */

static struct file **bucket(struct file **buckets, uint64_t num, uint64_t ino)
{
	return &buckets[ino * UINT64_C(0x9E3779B97F4A7C15) >> 32 & (num - 1)];
}

static struct file *find_file(const struct lock_table *t, uint64_t ino)
{
	struct file *f = *bucket(t->buckets, t->num_buckets, ino);

	while (f && f->ino != ino)
		f = f->next;
	return f;
}

/* Without memory the old ones do, only slower. */
static void grow(struct lock_table *t)
{
	uint64_t num = t->num_buckets * 2;
	struct file **buckets = calloc(num, sizeof(struct file *));

	if (!buckets)
		return;
	for (uint64_t i = 0; i < t->num_buckets; i++)
		for (struct file *f = t->buckets[i], *next; f; f = next) {
			struct file **b = bucket(buckets, num, f->ino);

			next = f->next;
			f->next = *b;
			*b = f;
		}
	free(t->buckets);
	t->buckets = buckets;
	t->num_buckets = num;
}

static struct file *get_file(struct lock_table *t, uint64_t ino)
{
	struct file *f = find_file(t, ino);

	if (f)
		return f;
	f = calloc(1, sizeof(*f));
	if (!f)
		return NULL;
	if (t->num_files >= 2 * t->num_buckets)
		grow(t);
	f->ino = ino;
	TAILQ_INIT(&f->locks);
	TAILQ_INIT(&f->waiters);
	f->next = *bucket(t->buckets, t->num_buckets, ino);
	*bucket(t->buckets, t->num_buckets, ino) = f;
	t->num_files++;
	return f;
}

static void put_file(struct lock_table *t, struct file *f)
{
	struct file **at = bucket(t->buckets, t->num_buckets, f->ino);

	if (!TAILQ_EMPTY(&f->locks) || !TAILQ_EMPTY(&f->waiters))
		return;
	while (*at != f)
		at = &(*at)->next;
	*at = f->next;
	t->num_files--;
	free(f);
}

/* ---- what stops whom */

static bool same_owner(const struct lock *a, const struct lock *b)
{
	return a->owner == b->owner && a->node == b->node && a->flock == b->flock;
}

static bool conflicts(const struct lock *a, const struct lock *b)
{
	return a->flock == b->flock && (a->type == LOCK_TYPE_WRITE || b->type == LOCK_TYPE_WRITE) &&
	       a->start <= b->end && b->start <= a->end && !same_owner(a, b);
}

static const struct held *obstacle(const struct file *f, const struct lock *want)
{
	const struct held *h, *first = NULL;

	TAILQ_FOREACH(h, &f->locks, in_file)
	if (conflicts(&h->lock, want) && (!first || h->lock.start < first->lock.start))
		first = h;
	return first;
}

/* Does the owner of by hold what want needs? Then want's owner cannot go first. */
static bool is_stopped_by(const struct file *f, const struct lock *want, const struct lock *by)
{
	const struct held *h;

	TAILQ_FOREACH(h, &f->locks, in_file)
	if (same_owner(&h->lock, by) && conflicts(&h->lock, want))
		return true;
	return false;
}

/* Is somebody before want in the line, whom it has to let go first? end: want's own place; NULL: behind all. */
static bool has_to_line_up(const struct file *f, const struct lock *want, const struct waiter *end)
{
	const struct waiter *w;

	for (w = TAILQ_FIRST(&f->waiters); w && w != end; w = TAILQ_NEXT(w, in_file))
		if (conflicts(&w->want, want) && !is_stopped_by(f, &w->want, want))
			return true;
	return false;
}

/* ---- circles: who waits for whom. Only locks that are held count; for places in the line nobody waits for ever */

static void push_owner(struct lock_table *t, const struct lock *owner, struct waiter **stack)
{
	struct waiter *w;

	TAILQ_FOREACH(w, &t->waiters, in_table)
	if (w->searched != t->searches && same_owner(&w->want, owner)) {
		w->searched = t->searches;
		w->next_search = *stack;
		*stack = w;
	}
}

/* True: one of those who stop want is target. The others' own requests are to be searched, too. */
static bool push_obstacles(struct lock_table *t, const struct file *f, const struct lock *want,
	const struct lock *target, struct waiter **stack)
{
	const struct held *h;

	TAILQ_FOREACH(h, &f->locks, in_file)
	{
		if (!conflicts(&h->lock, want))
			continue;
		if (same_owner(&h->lock, target))
			return true;
		push_owner(t, &h->lock, stack);
	}
	return false;
}

static bool closes_circle(struct lock_table *t, const struct file *f, const struct lock *want)
{
	struct waiter *stack = NULL;
	bool found;

	t->searches++;
	found = push_obstacles(t, f, want, want, &stack);
	while (!found && stack) {
		const struct waiter *w = stack;

		stack = w->next_search;
		found = push_obstacles(t, w->file, &w->want, want, &stack);
	}
	return found;
}

/* ---- locks */

static struct held *new_held(struct lock_table *t)
{
	struct held *h = t->num_locks < LOCK_TABLE_MAX ? malloc(sizeof(*h)) : NULL;

	if (h)
		t->num_locks++;
	return h;
}

static void free_held(struct lock_table *t, struct held *h)
{
	t->num_locks--;
	free(h);
}

static void remove_held(struct lock_table *t, struct file *f, struct held *h)
{
	TAILQ_REMOVE(&f->locks, h, in_file);
	free_held(t, h);
}

/* What an owner has in [start, end] goes. rest: memory for when one is cut in two. */
static void cut(struct lock_table *t, struct file *f, const struct lock *want, struct held *rest)
{
	struct held *h, *next;

	for (h = TAILQ_FIRST(&f->locks); h; h = next) {
		struct lock *l = &h->lock;

		next = TAILQ_NEXT(h, in_file);
		if (!same_owner(l, want) || l->start > want->end || l->end < want->start)
			continue;
		if (l->start < want->start && l->end > want->end) {
			rest->lock = *l;
			rest->lock.start = want->end + 1;
			l->end = want->start - 1;
			TAILQ_INSERT_AFTER(&f->locks, h, rest, in_file);
			return;
		}
		if (l->start < want->start)
			l->end = want->start - 1;
		else if (l->end > want->end)
			l->start = want->end + 1;
		else
			remove_held(t, f, h);
	}
}

static void add(struct lock_table *t, struct file *f, const struct lock *want, struct held *place)
{
	struct held *h, *next;

	place->lock = *want;
	for (h = TAILQ_FIRST(&f->locks); h; h = next) {
		struct lock *l = &place->lock;

		next = TAILQ_NEXT(h, in_file);
		if (!same_owner(&h->lock, want) || h->lock.type != want->type)
			continue;
		if (h->lock.start > 0 && h->lock.start - 1 == l->end)
			l->end = h->lock.end;
		else if (l->start > 0 && l->start - 1 == h->lock.end)
			l->start = h->lock.start;
		else
			continue;
		remove_held(t, f, h);
	}
	TAILQ_INSERT_TAIL(&f->locks, place, in_file);
}

static bool cuts_in_two(const struct file *f, const struct lock *want)
{
	const struct held *h;

	TAILQ_FOREACH(h, &f->locks, in_file)
	if (same_owner(&h->lock, want) && h->lock.start < want->start && h->lock.end > want->end)
		return true;
	return false;
}

static int apply(struct lock_table *t, struct file *f, const struct lock *want)
{
	bool two = cuts_in_two(f, want);
	struct held *place = want->type != LOCK_TYPE_NONE ? new_held(t) : NULL;
	struct held *rest = two ? new_held(t) : NULL;

	if ((want->type != LOCK_TYPE_NONE && !place) || (two && !rest)) {
		if (place)
			free_held(t, place);
		if (rest)
			free_held(t, rest);
		return -ENOLCK;
	}
	cut(t, f, want, rest);
	if (place)
		add(t, f, want, place);
	return 0;
}

/* ---- waiters */

static void remove_waiter(struct lock_table *t, struct waiter *w)
{
	TAILQ_REMOVE(&w->file->waiters, w, in_file);
	TAILQ_REMOVE(&t->waiters, w, in_table);
	t->num_waiters--;
}

static int add_waiter(struct lock_table *t, struct file *f, const struct lock *want, uint64_t id, int64_t now_usec)
{
	struct waiter *w = t->num_waiters < LOCK_TABLE_MAX ? calloc(1, sizeof(*w)) : NULL;

	if (!w)
		return -ENOLCK;
	w->id = id;
	w->since_usec = now_usec;
	w->want = *want;
	w->file = f;
	TAILQ_INSERT_TAIL(&f->waiters, w, in_file);
	TAILQ_INSERT_TAIL(&t->waiters, w, in_table);
	t->num_waiters++;
	return LOCK_WAITS;
}

static bool may_go(struct lock_table *t, struct waiter *w, int64_t now_usec)
{
	if (obstacle(w->file, &w->want)) {
		w->since_usec = now_usec; /* not yet for the others in the line */
		return false;
	}
	if (now_usec >= w->since_usec + LOCK_PATIENCE_USEC || !has_to_line_up(w->file, &w->want, w))
		return true;
	if (t->due_usec > w->since_usec + LOCK_PATIENCE_USEC)
		t->due_usec = w->since_usec + LOCK_PATIENCE_USEC;
	return false;
}

/* Will some of its bytes be open to readers when the owner has got this? */
static bool is_downgrade(const struct file *f, const struct lock *want)
{
	const struct held *h;

	TAILQ_FOREACH(h, &f->locks, in_file)
	if (same_owner(&h->lock, want) && h->lock.type > want->type)
		return true;
	return false;
}

/* Something of the file was given up, or time has passed. */
static void look(struct lock_table *t, struct file *f, int64_t now_usec)
{
	struct waiter *w = TAILQ_FIRST(&f->waiters), *next;

	for (; w; w = next) {
		next = TAILQ_NEXT(w, in_file);
		if (!may_go(t, w, now_usec))
			continue;
		bool again = is_downgrade(f, &w->want);
		int status = apply(t, f, &w->want);
		remove_waiter(t, w);
		t->granted(&w->want, w->id, status, t->arg);
		free(w);
		if (again)
			next = TAILQ_FIRST(&f->waiters);
	}
}

static void look_and_put(struct lock_table *t, struct file *f, int64_t now_usec)
{
	look(t, f, now_usec);
	put_file(t, f);
}

/* ---- calls */

int lock_table_create(lock_table_granted granted, void *arg, struct lock_table **ret)
{
	struct lock_table *t = calloc(1, sizeof(*t));

	if (!t)
		return -ENOMEM;
	t->granted = granted;
	t->arg = arg;
	t->num_buckets = BUCKETS_FIRST;
	t->due_usec = INT64_MAX;
	TAILQ_INIT(&t->waiters);
	t->buckets = calloc(t->num_buckets, sizeof(struct file *));
	if (!t->buckets) {
		free(t);
		return -ENOMEM;
	}
	*ret = t;
	return 0;
}

static void free_file(struct file *f)
{
	struct held *h;
	struct waiter *w;

	while ((h = TAILQ_FIRST(&f->locks))) {
		TAILQ_REMOVE(&f->locks, h, in_file);
		free(h);
	}
	while ((w = TAILQ_FIRST(&f->waiters))) {
		TAILQ_REMOVE(&f->waiters, w, in_file);
		free(w);
	}
	free(f);
}

void lock_table_destroy(struct lock_table *t)
{
	if (!t)
		return;
	for (uint64_t i = 0; i < t->num_buckets; i++)
		for (struct file *f = t->buckets[i], *next; f; f = next) {
			next = f->next;
			free_file(f);
		}
	free(t->buckets);
	free(t);
}

static int set(struct lock_table *t, struct file *f, const struct lock *want, bool wait, uint64_t id, int64_t now_usec)
{
	if (want->type == LOCK_TYPE_NONE)
		return apply(t, f, want);
	bool stopped = obstacle(f, want);
	if (stopped && want->flock) { /* two who both want more than they share must not wait for each other */
		cut(t, f, want, NULL);
		look(t, f, now_usec);
	}
	if (!stopped && !(wait && has_to_line_up(f, want, NULL)))
		return apply(t, f, want);
	if (!wait)
		return -EAGAIN;
	if (stopped && !want->flock && closes_circle(t, f, want))
		return -EDEADLK;
	if (!stopped && t->due_usec > now_usec + LOCK_PATIENCE_USEC)
		t->due_usec = now_usec + LOCK_PATIENCE_USEC;
	return add_waiter(t, f, want, id, now_usec);
}

int lock_table_set(struct lock_table *t, const struct lock *want, bool wait, uint64_t id, int64_t now_usec)
{
	struct file *f = want->type == LOCK_TYPE_NONE ? find_file(t, want->ino) : get_file(t, want->ino);
	int rc;

	if (!f)
		return want->type == LOCK_TYPE_NONE ? 0 : -ENOLCK;
	rc = set(t, f, want, wait, id, now_usec);
	look_and_put(t, f, now_usec);
	return rc;
}

int lock_table_force(struct lock_table *t, const struct lock *want)
{
	struct file *f = get_file(t, want->ino);
	int rc = f ? apply(t, f, want) : -ENOLCK;

	if (f)
		put_file(t, f);
	return rc;
}

void lock_table_fix(struct lock_table *t, const struct lock *range, const struct lock *list, size_t num,
	int64_t now_usec, void (*lost)(const struct lock *lock, void *arg), void *arg)
{
	struct file *f = get_file(t, range->ino);
	struct lock none = *range;

	none.type = LOCK_TYPE_NONE;
	if (f)
		(void)apply(t, f, &none);
	for (size_t i = 0; i < num; i++)
		if (!f || obstacle(f, &list[i]) || apply(t, f, &list[i]) < 0)
			lost(&list[i], arg);
	if (f)
		look_and_put(t, f, now_usec);
}

bool lock_table_test(const struct lock_table *t, const struct lock *want, struct lock *ret)
{
	const struct file *f = find_file(t, want->ino);
	const struct held *h = f ? obstacle(f, want) : NULL;

	if (h)
		*ret = h->lock;
	return h;
}

bool lock_table_cancel(struct lock_table *t, uint32_t node, uint64_t id, int64_t now_usec)
{
	struct waiter *w;

	TAILQ_FOREACH(w, &t->waiters, in_table)
	if (w->want.node == node && w->id == id) {
		remove_waiter(t, w);
		look_and_put(t, w->file, now_usec);
		free(w);
		return true;
	}
	return false;
}

bool lock_table_drop_owner(
	struct lock_table *t, uint64_t ino, bool flock, uint32_t node, uint64_t owner, int64_t now_usec)
{
	const struct lock all = { .ino = ino, .owner = owner, .end = UINT64_MAX, .node = node, .flock = flock };
	struct file *f = find_file(t, ino);
	uint64_t before = t->num_locks;

	if (!f)
		return false;
	cut(t, f, &all, NULL);
	before -= t->num_locks;
	look_and_put(t, f, now_usec);
	return before > 0;
}

static void drop_node_file(struct lock_table *t, struct file *f, uint32_t node, int64_t now_usec)
{
	struct held *h, *next;
	struct waiter *w, *next_waiter;

	for (w = TAILQ_FIRST(&f->waiters); w; w = next_waiter) {
		next_waiter = TAILQ_NEXT(w, in_file);
		if (w->want.node == node) {
			remove_waiter(t, w);
			free(w);
		}
	}
	for (h = TAILQ_FIRST(&f->locks); h; h = next) {
		next = TAILQ_NEXT(h, in_file);
		if (h->lock.node == node)
			remove_held(t, f, h);
	}
	look_and_put(t, f, now_usec);
}

void lock_table_drop_node(struct lock_table *t, uint32_t node, int64_t now_usec)
{
	for (uint64_t i = 0; i < t->num_buckets; i++)
		for (struct file *f = t->buckets[i], *next; f; f = next) {
			next = f->next;
			drop_node_file(t, f, node, now_usec);
		}
}

int lock_table_each(const struct lock_table *t, int (*each)(const struct lock *held, void *arg), void *arg)
{
	const struct held *h;
	int rc = 0;

	for (uint64_t i = 0; rc == 0 && i < t->num_buckets; i++)
		for (const struct file *f = t->buckets[i]; f; f = f->next)
			TAILQ_FOREACH(h, &f->locks, in_file)
	if ((rc = each(&h->lock, arg)))
		return rc;
	return rc;
}

uint64_t lock_table_count(const struct lock_table *t)
{
	return t->num_locks;
}

int64_t lock_table_due(const struct lock_table *t)
{
	return t->due_usec;
}

void lock_table_tick(struct lock_table *t, int64_t now_usec)
{
	if (t->due_usec > now_usec)
		return;
	t->due_usec = INT64_MAX;
	for (uint64_t i = 0; i < t->num_buckets; i++)
		for (struct file *f = t->buckets[i], *next; f; f = next) {
			next = f->next;
			look_and_put(t, f, now_usec);
		}
}
