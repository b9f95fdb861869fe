/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * A mapping lives until its file is deleted (inotify tells) or has outgrown it, or until others need its room: a segment stands for a file where
 * files are private, so there may be any number. Then it is retired: all who know it are told, and when each has answered that it does
 * not read there any more, it is unmapped. A reader that asks meanwhile gets a new mapping, or -ENOENT.
 *
 * Beyond what is wanted, the one that was asked for longest ago goes for each that comes, and nobody waits. Only where nothing more can be
 * mapped (a reader that hangs keeps all that it knows) who asks waits for what has been retired, and what goes then is what no reader knows
 * who has not given back something else.
 */
#include "mpi-agent/window/holder.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/queue.h>
#include <unistd.h>

#include "mpi-agent/window/files.h"

#define MAPPINGS_WANTED \
	20000u /* half as many more at most: the kernel allows 65530 of all kinds, and holes between them are such */
#define BUCKETS        4096u
#define SOON_BYTES_MAX (16ull << 20)

struct mapping {
	TAILQ_ENTRY(mapping) in_order;
	LIST_ENTRY(mapping) with_number, with_segment;
	uint64_t number;
	uint32_t segment;
	bool retired;
	uint64_t at, room; /* bytes that are mapped */
	uint32_t num_readers;
	uint8_t readers[]; /* a bit per rank that knows it */
};
TAILQ_HEAD(order, mapping);
LIST_HEAD(bucket, mapping);

struct asker { /* waits until something is unmapped */
	STAILQ_ENTRY(asker) in_line;
	uint32_t rank, segment;
};

struct holder {
	struct arena *arena; /* borrowed */
	uint32_t num_ranks;
	struct control_sender sender;
	int dirfd, inotify;
	uint64_t last_number;
	uint32_t num, num_max, num_wanted; /* of all mappings; of live ones */
	struct order live, retired;        /* live: who was asked for last stands last */
	uint32_t num_live;
	uint64_t live_bytes;
	struct bucket by_number[BUCKETS], by_segment[BUCKETS]; /* by_segment: live ones */
	STAILQ_HEAD(, asker) line;
	uint32_t *owed; /* owned; per rank: retired ones that it knows */
	uint8_t *owing; /* owned; a bit per rank that owes something */
};

/* Tests do with few. */
static void set_limits(struct holder *h)
{
	const char *wanted = getenv("CISTERN_AGENT_MAPPINGS");

	h->num_wanted = wanted && atoi(wanted) > 0 ? (uint32_t)atoi(wanted) : MAPPINGS_WANTED;
	h->num_max = h->num_wanted + h->num_wanted / 2;
}

static size_t rank_bytes(const struct holder *h)
{
	return (h->num_ranks + 7) / 8;
}

int holder_create(const char *store, struct arena *arena, uint32_t num_ranks, const struct control_sender *sender,
	struct holder **ret, struct cistern_error *err)
{
	struct holder *h = calloc(1, sizeof(*h));
	char path[64];
	int r = 0;

	if (!h)
		return cistern_error_set(err, -ENOMEM, "out of memory");
	*h = (struct holder){ .arena = arena, .num_ranks = num_ranks, .sender = *sender, .inotify = -1 };
	TAILQ_INIT(&h->live);
	TAILQ_INIT(&h->retired);
	STAILQ_INIT(&h->line);
	set_limits(h);
	h->owed = calloc(num_ranks, sizeof(*h->owed));
	h->owing = calloc(rank_bytes(h), 1);
	h->dirfd = files_open_store(store);
	if (h->dirfd < 0)
		r = h->dirfd;
	else if (!h->owed || !h->owing)
		r = -ENOMEM;
	if (r == 0) {
		h->inotify = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
		snprintf(path, sizeof(path), "/proc/self/fd/%d", h->dirfd);
		if (h->inotify < 0 || inotify_add_watch(h->inotify, path, IN_DELETE | IN_MOVED_FROM) < 0)
			r = -errno;
	}
	if (r < 0) {
		holder_destroy(h);
		return cistern_error_set(err, r, "the segments of %s: %s", store, strerror(-r));
	}
	*ret = h;
	return 0;
}

static void free_all(struct order *order)
{
	struct mapping *m;

	while ((m = TAILQ_FIRST(order))) {
		TAILQ_REMOVE(order, m, in_order);
		free(m);
	}
}

void holder_destroy(struct holder *h)
{
	struct asker *asker;

	if (!h)
		return;
	free_all(&h->live);
	free_all(&h->retired);
	while ((asker = STAILQ_FIRST(&h->line))) {
		STAILQ_REMOVE_HEAD(&h->line, in_line);
		free(asker);
	}
	free(h->owed);
	free(h->owing);
	if (h->dirfd >= 0)
		close(h->dirfd);
	if (h->inotify >= 0)
		close(h->inotify);
	free(h);
}

int holder_fd(const struct holder *h)
{
	return h->inotify;
}

/* ---- who reads a mapping */

static bool has_bit(const uint8_t *bits, uint32_t rank)
{
	return bits[rank / 8] >> rank % 8 & 1;
}

static void set_bit(uint8_t *bits, uint32_t rank, bool value)
{
	if (has_bit(bits, rank) != value)
		bits[rank / 8] ^= (uint8_t)(1u << rank % 8);
}

static bool knows(const struct mapping *m, uint32_t rank)
{
	return has_bit(m->readers, rank);
}

static void set_knows(struct mapping *m, uint32_t rank, bool value)
{
	if (knows(m, rank) == value)
		return;
	set_bit(m->readers, rank, value);
	m->num_readers += value ? 1 : UINT32_MAX;
}

static void add_owed(struct holder *h, uint32_t rank, int num)
{
	h->owed[rank] += (uint32_t)num;
	set_bit(h->owing, rank, h->owed[rank] > 0);
}

static void remove_mapping(struct holder *h, struct mapping *m)
{
	TAILQ_REMOVE(&h->retired, m, in_order);
	LIST_REMOVE(m, with_number);
	arena_unmap(h->arena, m->at);
	free(m);
	h->num--;
}

static int retire(struct holder *h, struct mapping *m)
{
	struct control c = { .kind = CONTROL_RETIRE, .segment = m->segment, .mapping = m->number };
	int r = 0;

	m->retired = true;
	TAILQ_REMOVE(&h->live, m, in_order);
	TAILQ_INSERT_TAIL(&h->retired, m, in_order);
	LIST_REMOVE(m, with_segment);
	h->num_live--;
	h->live_bytes -= m->room;
	for (uint32_t rank = 0; rank < h->num_ranks && r == 0; rank++)
		if (knows(m, rank)) {
			add_owed(h, rank, 1);
			r = h->sender.send(rank, &c, h->sender.arg);
		}
	if (r == 0 && m->num_readers == 0)
		remove_mapping(h, m);
	return r;
}

static struct mapping *by_number(struct holder *h, uint64_t number)
{
	struct mapping *m;

	LIST_FOREACH(m, &h->by_number[number % BUCKETS], with_number)
	if (m->number == number)
		break;
	return m;
}

static struct mapping *by_segment(struct holder *h, uint32_t segment)
{
	struct mapping *m;

	LIST_FOREACH(m, &h->by_segment[segment % BUCKETS], with_segment)
	if (m->segment == segment)
		break;
	return m;
}

/* ---- files */

/* So much more is to be mapped: what was asked for longest ago goes. */
static int make_room(struct holder *h, uint64_t room)
{
	struct mapping *oldest;
	int r = 0;

	while (r == 0 && (oldest = TAILQ_FIRST(&h->live)) &&
		(h->num_live >= h->num_wanted || h->live_bytes + room > arena_bytes(h->arena) / 2))
		r = retire(h, oldest);
	return r;
}

static int make_mapping(struct holder *h, uint32_t segment, int fd, uint64_t room, struct mapping **ret)
{
	int r = make_room(h, room);
	struct mapping *m;

	if (r < 0)
		return r;
	if (h->num >= h->num_max)
		return -ENOMEM;
	m = calloc(1, sizeof(*m) + rank_bytes(h));
	if (!m)
		return -ENOMEM;
	r = arena_map(h->arena, fd, room, &m->at);
	if (r < 0) {
		free(m);
		return r;
	}
	m->number = ++h->last_number;
	m->segment = segment;
	m->room = room;
	TAILQ_INSERT_TAIL(&h->live, m, in_order);
	LIST_INSERT_HEAD(&h->by_number[m->number % BUCKETS], m, with_number);
	LIST_INSERT_HEAD(&h->by_segment[segment % BUCKETS], m, with_segment);
	h->num++;
	h->num_live++;
	h->live_bytes += room;
	*ret = m;
	return 0;
}

static void was_asked_for(struct holder *h, struct mapping *m)
{
	TAILQ_REMOVE(&h->live, m, in_order);
	TAILQ_INSERT_TAIL(&h->live, m, in_order);
}

/* The mapping of a segment as large as it is now. *ret_len: so many bytes of it are there. */
static int find_mapping(struct holder *h, uint32_t segment, struct mapping **ret, uint64_t *ret_len)
{
	struct mapping *m = by_segment(h, segment);
	bool is_private = false;
	struct stat st;
	int fd = files_open(h->dirfd, segment, &st, &is_private), r = 0;

	if (fd < 0)
		return fd;
	*ret_len = (uint64_t)st.st_size;
	if (m && m->room < *ret_len) {
		r = retire(h, m);
		m = NULL;
	}
	if (m)
		was_asked_for(h, m);
	else if (r == 0)
		r = make_mapping(h, segment, fd, *ret_len, &m);
	close(fd);
	*ret = m;
	return r;
}

/* ---- what others want */

static bool is_full(int status)
{
	return status == -ENOMEM || status == -ENOSPC;
}

static bool has_owing_reader(const struct holder *h, const struct mapping *m)
{
	for (size_t i = 0; i < rank_bytes(h); i++)
		if (m->readers[i] & h->owing[i])
			return true;
	return false;
}

/* What is given back soon, if anything is. */
static struct mapping *next_to_go(const struct holder *h)
{
	struct mapping *m = TAILQ_FIRST(&h->live);

	while (m && has_owing_reader(h, m))
		m = TAILQ_NEXT(m, in_order);
	return m;
}

/* 0, or an error; is_full(): not before something that has been retired is unmapped, if there is such. */
static int find_with_room(struct holder *h, uint32_t segment, struct mapping **ret, uint64_t *ret_len)
{
	int r = find_mapping(h, segment, ret, ret_len), e = 0;
	struct mapping *m;

	while (e == 0 && is_full(r) && (m = next_to_go(h))) {
		e = retire(h, m);
		r = e ? e : find_mapping(h, segment, ret, ret_len);
	}
	return r;
}

/* 0: it has its answer; 1: it must wait; or -errno of sending. */
static int try_to_answer(struct holder *h, uint32_t rank, uint32_t segment)
{
	struct control c = { .kind = CONTROL_ANSWER, .segment = segment };
	struct mapping *m = NULL;

	c.status = find_with_room(h, segment, &m, &c.len);
	if (is_full(c.status) && !TAILQ_EMPTY(&h->retired))
		return 1;
	if (c.status == 0) {
		c.at = m->at;
		c.mapping = m->number;
		set_knows(m, rank, true);
	}
	return h->sender.send(rank, &c, h->sender.arg);
}

static int answer(struct holder *h, uint32_t rank, uint32_t segment)
{
	int r = try_to_answer(h, rank, segment);
	struct asker *asker;

	if (r <= 0)
		return r;
	asker = calloc(1, sizeof(*asker));
	if (!asker)
		return -ENOMEM;
	asker->rank = rank;
	asker->segment = segment;
	STAILQ_INSERT_TAIL(&h->line, asker, in_line);
	return 0;
}

/* Something was unmapped. */
static int answer_waiting(struct holder *h)
{
	struct asker *asker;
	int r = 0;

	while (r == 0 && (asker = STAILQ_FIRST(&h->line))) {
		r = try_to_answer(h, asker->rank, asker->segment);
		if (r > 0)
			break;
		STAILQ_REMOVE_HEAD(&h->line, in_line);
		free(asker);
	}
	return r < 0 ? r : 0;
}

int holder_on_control(struct holder *h, uint32_t rank, const struct control *c)
{
	struct mapping *m;

	if (c->kind == CONTROL_ASK)
		return answer(h, rank, c->segment);
	m = by_number(h, c->mapping);
	if (!m)
		return 0;
	if (c->kind == CONTROL_SOON && c->at < m->room)
		arena_will_need(h->arena, m->at, c->at, c->len < SOON_BYTES_MAX ? c->len : SOON_BYTES_MAX);
	if (c->kind == CONTROL_RETIRED && knows(m, rank)) {
		set_knows(m, rank, false);
		if (m->retired)
			add_owed(h, rank, -1);
		if (m->retired && m->num_readers == 0) {
			remove_mapping(h, m);
			return answer_waiting(h);
		}
	}
	return 0;
}

/* ---- what was deleted */

static int retire_if_deleted(struct holder *h, struct mapping *m, int *num)
{
	if (!m || !files_is_deleted(h->dirfd, m->segment))
		return 0;
	(*num)++;
	return retire(h, m);
}

static int look_at_all(struct holder *h, int *num)
{
	struct mapping *m, *next;
	int r = 0;

	for (m = TAILQ_FIRST(&h->live); m && r == 0; m = next) {
		next = TAILQ_NEXT(m, in_order);
		r = retire_if_deleted(h, m, num);
	}
	return r;
}

int holder_look(struct holder *h)
{
	union {
		struct inotify_event align;
		char bytes[4096];
	} events;
	ssize_t len;
	int num = 0, r = 0;

	while (r == 0 && (len = read(h->inotify, &events, sizeof(events))) > 0) {
		for (const char *p = events.bytes; r == 0 && p < events.bytes + len;) {
			struct inotify_event e;

			memcpy(&e, p, sizeof(e));
			if (e.mask & IN_Q_OVERFLOW)
				r = look_at_all(h, &num);
			else if (e.len)
				r = retire_if_deleted(
					h, by_segment(h, (uint32_t)strtoul(p + sizeof(e), NULL, 10)), &num);
			p += sizeof(e) + e.len;
		}
	}
	if (r == 0 && num)
		r = answer_waiting(h);
	return r < 0 ? r : num;
}
