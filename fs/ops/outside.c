/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Others may change files of the backing directory. A new size over old pages shows zeros that no file ever had, and a change that leaves the
 * size shows nothing. So of each open file this remembers the stamp that all of the kernel's pages are at least as new as (base). Before any
 * answer that brings another stamp the pages are dropped; one at a time does that for a file, and whoever comes meanwhile waits.
 *
 * Dropping has a price: the kernel throws away the attributes of answers to requests from before it. So a file that has grown is given its
 * new size together with its last byte, or a program that reads at the old end would see the end once more.
 *
 * Neither a mapping nor a read within the size asks for attributes. So a thread asks for those of files that have pages, each backing_timeout.
 *
 * To drop pages the kernel waits for READs that fill them. So these need workers of their own (session_will_block), and there is a limit to
 * how many wait. docs/design/one-node.md, 8.
 */
#include "fs/ops/outside.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>

#include "format/base/clock.h"
#include "fs/ops/tail.h"

#define BUCKETS      1024u
#define DROPS_MAX    16u      /* at once: far fewer than there may be workers */
#define WAIT_USEC    1000000u /* for another's drop */
#define ROUND_FILES  1024u    /* looked at in one round */
#define PERIOD_MIN   100000u  /* usec between two rounds */
#define BASE_UNKNOWN 1u       /* which no stamp is */

struct outside {
	struct outside *next; /* table's lock */
	uint64_t ino;
	uint64_t refs;        /* table's lock: opens, and who looks just now */
	uint64_t round;       /* table's lock: when the thread looked last */
	pthread_mutex_t look; /* below: under it; held while pages are dropped */
	bool told;            /* the kernel was told attr, as of base */
	struct stat attr;
	/* changed under look */
	_Atomic(uint64_t) base; /* the pages are at least as new as this; 0: the store's, which we keep right */
	_Atomic(uint64_t) size; /* attr's; 0: not told */
	/* changed by anybody */
	_Atomic(uint64_t) dropping_usec; /* since when; 0: nobody does */
	_Atomic(bool) pages;             /* some may have been filled since they were dropped */
	_Atomic(bool) doubt;             /* one of them is shorter than the size that was told */
	struct tail tail;
};

struct outside_table {
	struct job *job;         /* borrowed */
	struct session *session; /* borrowed; lock */
	pthread_mutex_t lock;
	pthread_cond_t changed; /* CLOCK_MONOTONIC */
	struct outside *buckets[BUCKETS];
	pthread_t thread;
	bool started, stop; /* lock */
	uint64_t round;     /* lock */
	_Atomic(size_t) num;
	_Atomic(unsigned int) drops;
};

/* ---- the table */

static struct outside **bucket_of(struct outside_table *t, uint64_t ino)
{
	return &t->buckets[ino * 0x9E3779B97F4A7C15ull >> 54 & (BUCKETS - 1)];
}

/* lock is held. */
static struct outside *find(struct outside_table *t, uint64_t ino)
{
	struct outside *p = *bucket_of(t, ino);

	while (p && p->ino != ino)
		p = p->next;
	return p;
}

/* NULL: it is not open. */
static struct outside *take(struct outside_table *t, uint64_t ino)
{
	if (atomic_load(&t->num) == 0)
		return NULL;
	pthread_mutex_lock(&t->lock);
	struct outside *p = find(t, ino);
	if (p)
		p->refs++;
	pthread_mutex_unlock(&t->lock);
	return p;
}

/* lock is held. NULL: no memory. */
static struct outside *add(struct outside_table *t, uint64_t ino)
{
	struct outside *p = calloc(1, sizeof(*p));

	if (!p)
		return NULL;
	p->ino = ino;
	p->base = BASE_UNKNOWN;
	pthread_mutex_init(&p->look, NULL);
	p->next = *bucket_of(t, ino);
	*bucket_of(t, ino) = p;
	atomic_fetch_add(&t->num, 1);
	return p;
}

/* lock is held. */
static void unlink_from(struct outside_table *t, struct outside *p)
{
	struct outside **at = bucket_of(t, p->ino);

	while (*at != p)
		at = &(*at)->next;
	*at = p->next;
	atomic_fetch_sub(&t->num, 1);
}

static void put(struct outside_table *t, struct outside *p)
{
	pthread_mutex_lock(&t->lock);
	bool last = --p->refs == 0;
	if (last)
		unlink_from(t, p);
	pthread_mutex_unlock(&t->lock);
	if (!last)
		return;
	pthread_mutex_destroy(&p->look);
	free(p);
}

/* ---- dropping pages */

/* A worker that waits is missed; the thread is not. */
static void waits(struct outside_table *t, bool begins)
{
	if (!session_request(t->session))
		return;
	if (begins)
		session_will_block(t->session);
	else
		session_has_blocked(t->session);
}

static bool is_stuck(struct outside *p)
{
	uint64_t since = atomic_load(&p->dropping_usec);

	return since && clock_usec() - since > WAIT_USEC;
}

/* False: who drops its pages takes too long. */
static bool lock_look(struct outside_table *t, struct outside *p)
{
	struct timespec until;

	if (pthread_mutex_trylock(&p->look) == 0)
		return true;
	if (is_stuck(p))
		return false;
	clock_gettime(CLOCK_MONOTONIC, &until);
	until.tv_sec += WAIT_USEC / 1000000u;
	waits(t, true);
	int rc = pthread_mutex_clocklock(&p->look, CLOCK_MONOTONIC, &until);
	waits(t, false);
	return rc == 0;
}

/* False: too many wait already. */
static bool may_drop(struct outside_table *t)
{
	bool may = atomic_fetch_add(&t->drops, 1) < DROPS_MAX;

	if (!may)
		atomic_fetch_sub(&t->drops, 1);
	return may;
}

/* may_drop() has said yes. len 0: all from off on. */
static void drop_range(struct outside_table *t, struct outside *p, uint64_t off, uint64_t len)
{
	waits(t, true);
	session_drop_pages(t->session, p->ino, off, len);
	waits(t, false);
	atomic_fetch_sub(&t->drops, 1);
}

/* look is held. False: too many wait already. Pages that are filled from now on are new ones. */
static bool drop(struct outside_table *t, struct outside *p)
{
	if (!may_drop(t))
		return false;
	atomic_store(&p->pages, false);
	atomic_store(&p->doubt, false);
	atomic_store(&p->dropping_usec, clock_usec());
	drop_range(t, p, 0, 0);
	atomic_store(&p->dropping_usec, 0);
	return true;
}

/* look is held, and the kernel has dropped the pages: so it will not believe e's size. It does believe where a byte of the file is. */
static void grow(struct outside_table *t, struct outside *p, const struct core_entry *e)
{
	uint64_t size = (uint64_t)e->attr.st_size;
	uint8_t last;

	if (e->stamp == 0 || size == 0 || (p->told && size <= (uint64_t)p->attr.st_size) ||
		job_peek(t->job, p->ino, size - 1, &last) < 0)
		return;
	atomic_store(&p->pages, true); /* a page's first byte makes a page of it */
	session_put_byte(t->session, p->ino, size - 1, last);
}

/* look is held. All pages are at least as new as stamp afterwards; false: they could not be dropped. */
static bool renew(struct outside_table *t, struct outside *p, uint64_t stamp, bool *ret_dropped)
{
	bool old = p->base != stamp || atomic_load(&p->doubt);

	*ret_dropped = false;
	if (old && atomic_load(&p->pages)) {
		if (!drop(t, p))
			return false;
		*ret_dropped = true;
	}
	p->base = stamp;
	return true;
}

static void tell(struct outside *p, const struct stat *attr)
{
	p->attr = *attr;
	p->told = true;
	atomic_store(&p->size, (uint64_t)attr->st_size);
}

/* look is held. */
static void look(struct outside_table *t, struct outside *p, const struct core_entry *e)
{
	bool dropped;

	if (!renew(t, p, e->stamp, &dropped))
		return;
	if (dropped)
		grow(t, p, e);
	tell(p, &e->attr);
}

/* What the kernel was told before is old, but goes with its pages. */
static void tell_old(const struct outside *p, struct core_entry *e)
{
	e->attr_timeout_sec = 0;
	if (!p->told)
		return;
	e->attr.st_size = p->attr.st_size;
	e->attr.st_blocks = p->attr.st_blocks;
	e->attr.st_mtim = p->attr.st_mtim;
	e->attr.st_ctim = p->attr.st_ctim;
}

void outside_look(struct outside_table *t, struct core_entry *e)
{
	struct outside *p = S_ISREG(e->attr.st_mode) ? take(t, e->ino) : NULL;

	if (!p)
		return;
	if (lock_look(t, p)) {
		look(t, p, e);
		if (p->base != e->stamp)
			tell_old(p, e);
		pthread_mutex_unlock(&p->look);
	} else {
		tell_old(p, e);
	}
	put(t, p);
}

/* ---- the thread */

/* lock is held. The one that was looked at longest ago, before this round. */
static struct outside *next_in(struct outside_table *t, size_t *bucket)
{
	for (; *bucket < BUCKETS; ++*bucket)
		for (struct outside *p = t->buckets[*bucket]; p; p = p->next)
			if (p->round < t->round && atomic_load(&p->pages)) {
				p->round = t->round;
				p->refs++;
				return p;
			}
	return NULL;
}

static void look_at(struct outside_table *t, struct outside *p)
{
	struct core_entry e = { 0 };

	if (p->base && job_getattr(t->job, p->ino, NULL, &e) == 0)
		outside_look(t, &e);
	put(t, p);
}

/* lock is held, but not all the time. Whom one round leaves out the next one begins with. */
static void go_round(struct outside_table *t, size_t *bucket)
{
	struct outside *p;

	if (*bucket == BUCKETS) {
		*bucket = 0;
		t->round++;
	}
	for (size_t i = 0; i < ROUND_FILES && !t->stop && (p = next_in(t, bucket)); i++) {
		pthread_mutex_unlock(&t->lock);
		look_at(t, p);
		pthread_mutex_lock(&t->lock);
	}
}

static void *outside_thread(void *arg)
{
	struct outside_table *t = arg;
	uint64_t period = job_backing_timeout_usec(t->job);
	size_t bucket = BUCKETS;
	struct timespec until;

	period = period < PERIOD_MIN ? PERIOD_MIN : period;
	pthread_mutex_lock(&t->lock);
	while (!t->stop) {
		clock_gettime(CLOCK_MONOTONIC, &until);
		uint64_t nsec = (uint64_t)until.tv_nsec + period % 1000000u * 1000u;
		until.tv_sec += (time_t)(period / 1000000u + nsec / 1000000000u);
		until.tv_nsec = (long)(nsec % 1000000000u);
		if (atomic_load(&t->num) == 0)
			pthread_cond_wait(&t->changed, &t->lock);
		else if (pthread_cond_timedwait(&t->changed, &t->lock, &until) == ETIMEDOUT)
			go_round(t, &bucket);
	}
	pthread_mutex_unlock(&t->lock);
	return NULL;
}

/* lock is held. Without the thread mappings see changes late. */
static void start(struct outside_table *t, struct session *s)
{
	t->session = s;
	if (!t->started && !t->stop)
		t->started = pthread_create(&t->thread, NULL, outside_thread, t) == 0;
}

/* ---- open, read, close */

static struct outside *take_or_add(struct outside_table *t, struct session *s, uint64_t ino, bool *ret_fresh)
{
	pthread_mutex_lock(&t->lock);
	struct outside *p = find(t, ino);
	*ret_fresh = !p;
	if (!p && (p = add(t, ino))) {
		start(t, s);
		if (atomic_load(&t->num) == 1)
			pthread_cond_signal(&t->changed);
	}
	if (p)
		p->refs++;
	pthread_mutex_unlock(&t->lock);
	return p;
}

/*
 * look is held. Of a file that was closed meanwhile core knows whether it has changed. What was and is the store's the kernel drops by
 * itself, without KEEP_CACHE.
 */
static bool renew_opened(struct outside_table *t, struct outside *p, const struct core_open_reply *open, bool fresh)
{
	bool ours = open->stamp == 0 && (fresh || p->base == 0), dropped;

	if (fresh)
		atomic_store(&p->pages, open->had_pages);
	if (fresh || !open->keep_cache)
		p->base = ours || open->keep_cache ? open->stamp : BASE_UNKNOWN;
	return (ours && !open->keep_cache) ? false : renew(t, p, open->stamp, &dropped);
}

struct outside *outside_open(struct outside_table *t, struct session *s, uint64_t ino, struct core_open_reply *open)
{
	bool fresh;
	struct outside *p = open->backing_id > 0 ? NULL : take_or_add(t, s, ino, &fresh);

	if (!p) {
		open->keep_cache = false;
		return NULL;
	}
	bool locked = lock_look(t, p);
	open->keep_cache = locked && renew_opened(t, p, open, fresh);
	if (locked)
		pthread_mutex_unlock(&p->look);
	else
		atomic_store(&p->doubt, true);
	return p;
}

void outside_grows(struct outside_table *t, struct outside *p, uint64_t off, uint64_t end)
{
	uint64_t page;

	if (p && tail_leaves(&p->tail, off, end, &page) && may_drop(t))
		drop_range(t, p, page, 1);
}

void outside_wrote(struct outside *p, uint64_t off, uint64_t end)
{
	if (p)
		tail_written(&p->tail, off, end);
}

void outside_sized(struct outside_table *t, const struct core_entry *e)
{
	struct outside *p = take(t, e->ino);

	if (!p)
		return;
	tail_sized(&p->tail, (uint64_t)e->attr.st_size);
	if (pthread_mutex_trylock(&p->look) == 0) { /* whoever drops its pages waits for our answer */
		tell(p, &e->attr);
		pthread_mutex_unlock(&p->look);
	}
	put(t, p);
}

size_t outside_page_cut(struct outside *p, size_t len, uint64_t off, size_t *ret_after)
{
	*ret_after = len;
	return p ? tail_cut(&p->tail, len, off, ret_after) : len;
}

void outside_write_back(struct outside_table *t, uint64_t ino)
{
	struct outside *p = take(t, ino);

	if (!p)
		return;
	if (atomic_load(&p->pages) && lock_look(t, p)) {
		(void)drop(t, p);
		pthread_mutex_unlock(&p->look);
	}
	put(t, p);
}

void outside_written(struct outside_table *t, struct outside *p, bool direct)
{
	struct core_entry e = { 0 };

	if (!p || p->base == 0)
		return;
	if (!direct)
		atomic_store(&p->doubt, true);
	else if (job_getattr(t->job, p->ino, NULL, &e) == 0)
		outside_look(t, &e);
}

void outside_close(struct outside_table *t, struct outside *p)
{
	if (p)
		put(t, p);
}

void outside_read_begins(struct outside *p)
{
	if (p && !atomic_load(&p->pages))
		atomic_store(&p->pages, true);
}

void outside_read_ended(struct outside *p, ssize_t got, size_t len, uint64_t off)
{
	if (p)
		tail_read(&p->tail, got, len, off);
	if (p && got >= 0 && (size_t)got < len && off + (size_t)got < atomic_load(&p->size))
		atomic_store(&p->doubt, true);
}

/* ---- life */

int outside_create(struct job *job, struct outside_table **ret)
{
	struct outside_table *t = calloc(1, sizeof(*t));
	pthread_condattr_t attr;

	if (!t)
		return -ENOMEM;
	t->job = job;
	pthread_mutex_init(&t->lock, NULL);
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&t->changed, &attr);
	pthread_condattr_destroy(&attr);
	*ret = t;
	return 0;
}

void outside_stop(struct outside_table *t)
{
	pthread_mutex_lock(&t->lock);
	bool join = t->started;
	t->stop = true;
	t->started = false;
	pthread_cond_broadcast(&t->changed);
	pthread_mutex_unlock(&t->lock);
	if (join)
		pthread_join(t->thread, NULL);
}

void outside_destroy(struct outside_table *t)
{
	if (!t)
		return;
	outside_stop(t);
	pthread_cond_destroy(&t->changed);
	pthread_mutex_destroy(&t->lock);
	free(t);
}
