/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * A mapping lives until its file is deleted (inotify tells) or has outgrown it; then it is retired: all who know it are told, and when each has
 * answered that it does not read there any more, it is unmapped. A reader that asks meanwhile gets a new mapping, or -ENOENT.
 */
#include "mpi-agent/window/holder.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <unistd.h>

#include "mpi-agent/window/files.h"

#define GROWTH_ROOM    (64ull << 20) /* a private file is mapped with room to grow */
#define MAPPINGS_MAX   30000u        /* the kernel allows 65530 of all kinds */
#define SOON_BYTES_MAX (16ull << 20)

struct mapping {
	struct mapping *next;
	uint64_t number;
	uint32_t segment;
	bool retired;
	uint64_t at, room; /* bytes that are mapped */
	uint32_t num_readers;
	uint8_t readers[]; /* a bit per rank that knows it */
};

struct holder {
	struct arena *arena; /* borrowed */
	uint32_t num_ranks;
	struct control_sender sender;
	int dirfd, inotify;
	uint64_t last_number;
	uint32_t num;
	struct mapping *mappings;
};

int holder_create(const char *store, struct arena *arena, uint32_t num_ranks, const struct control_sender *sender,
	struct holder **ret, struct cistern_error *err)
{
	struct holder *h = calloc(1, sizeof(*h));
	char path[64];
	int r = 0;

	if (!h)
		return cistern_error_set(err, -ENOMEM, "out of memory");
	*h = (struct holder){ .arena = arena, .num_ranks = num_ranks, .sender = *sender, .inotify = -1 };
	h->dirfd = files_open_store(store);
	if (h->dirfd < 0)
		r = h->dirfd;
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

void holder_destroy(struct holder *h)
{
	if (!h)
		return;
	while (h->mappings) {
		struct mapping *m = h->mappings;

		h->mappings = m->next;
		free(m);
	}
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

static bool knows(const struct mapping *m, uint32_t rank)
{
	return m->readers[rank / 8] >> rank % 8 & 1;
}

static void set_knows(struct mapping *m, uint32_t rank, bool value)
{
	if (knows(m, rank) == value)
		return;
	m->readers[rank / 8] ^= (uint8_t)(1u << rank % 8);
	m->num_readers += value ? 1 : UINT32_MAX;
}

static void remove_mapping(struct holder *h, struct mapping *m)
{
	struct mapping **at = &h->mappings;

	while (*at != m)
		at = &(*at)->next;
	*at = m->next;
	arena_unmap(h->arena, m->at);
	free(m);
	h->num--;
}

static int retire(struct holder *h, struct mapping *m)
{
	struct control c = { .kind = CONTROL_RETIRE, .segment = m->segment, .mapping = m->number };
	int r = 0;

	m->retired = true;
	for (uint32_t rank = 0; rank < h->num_ranks && r == 0; rank++)
		if (knows(m, rank))
			r = h->sender.send(rank, &c, h->sender.arg);
	if (r == 0 && m->num_readers == 0)
		remove_mapping(h, m);
	return r;
}

static struct mapping *by_number(struct holder *h, uint64_t number)
{
	struct mapping *m = h->mappings;

	while (m && m->number != number)
		m = m->next;
	return m;
}

static struct mapping *by_segment(struct holder *h, uint32_t segment)
{
	struct mapping *m = h->mappings;

	while (m && (m->segment != segment || m->retired))
		m = m->next;
	return m;
}

/* ---- files */

static int make_mapping(struct holder *h, uint32_t segment, int fd, uint64_t room, struct mapping **ret)
{
	struct mapping *m;
	int r;

	if (h->num >= MAPPINGS_MAX)
		return -ENOMEM;
	m = calloc(1, sizeof(*m) + (h->num_ranks + 7) / 8);
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
	m->next = h->mappings;
	h->mappings = m;
	h->num++;
	*ret = m;
	return 0;
}

/* The mapping of a segment as large as it is now. *ret_len: so many bytes of it are there. */
static int find_mapping(struct holder *h, uint32_t segment, struct mapping **ret, uint64_t *ret_len)
{
	struct mapping *m = by_segment(h, segment);
	bool is_private = false;
	struct stat st;
	int fd = files_open(h->dirfd, segment, &st, &is_private), r = 0;
	uint64_t size;

	if (fd < 0)
		return fd;
	size = (uint64_t)st.st_size;
	if (m && m->room < size) {
		r = retire(h, m);
		m = NULL;
	}
	if (r == 0 && !m)
		r = make_mapping(h, segment, fd, is_private ? 2 * size + GROWTH_ROOM : size, &m);
	close(fd);
	*ret = m;
	*ret_len = size;
	return r;
}

/* ---- what others want */

static int answer(struct holder *h, uint32_t rank, uint32_t segment)
{
	struct control c = { .kind = CONTROL_ANSWER, .segment = segment };
	struct mapping *m = NULL;

	c.status = find_mapping(h, segment, &m, &c.len);
	if (c.status == 0) {
		c.at = m->at;
		c.mapping = m->number;
		set_knows(m, rank, true);
	}
	return h->sender.send(rank, &c, h->sender.arg);
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
	if (c->kind == CONTROL_RETIRED) {
		set_knows(m, rank, false);
		if (m->retired && m->num_readers == 0)
			remove_mapping(h, m);
	}
	return 0;
}

/* ---- what was deleted */

static int retire_if_deleted(struct holder *h, struct mapping *m, int *num)
{
	if (!m || m->retired || !files_is_deleted(h->dirfd, m->segment))
		return 0;
	(*num)++;
	return retire(h, m);
}

static int look_at_all(struct holder *h, int *num)
{
	struct mapping *m, *next;
	int r = 0;

	for (m = h->mappings; m && r == 0; m = next) {
		next = m->next;
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
	return r < 0 ? r : num;
}
