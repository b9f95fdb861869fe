/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * The file holds entries {u32 length, u32 CRC32C, record, from, to, is_dir, beside, u64 size, u64 mtime in ns}, appended by one write each, and is emptied
 * when all have been reported. It needs no sync: it has to outlive us, not the machine; after a loss of power a rename
 * that is not durable is not reported either. An entry that is not whole was never acted upon.
 */
#include "mpi-agent/replay/intent.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "format/base/clock.h"
#include "format/base/crc32c.h"
#include "format/base/cursor.h"
#include "format/index/state.h"
#include "mpi-agent/plan/names.h"
#include "mpi-agent/replay/session.h"

#define HEADER_BYTES 8
#define FILE_MAX     (64u << 20)
#define PATH_MAX_LEN 16384
#define TEMP_PREFIX  ".cistern-tmp-"
#define LOCK_NSEC    50000000
#define LOCK_TRIES   500 /* 25 s; daemons wait 30 s for all that is done here */

struct intent {
	int fd; /* owned */
	bool dirty;
	struct buf out;
};

struct entry {
	struct record rec;
	char from[PATH_MAX_LEN], to[PATH_MAX_LEN], beside[PATH_MAX_LEN];
	bool is_dir;
	bool has_made; /* the next two are those of something new */
	uint64_t size;
	int64_t mtime_ns;
};

static int lock(int fd)
{
	const struct timespec wait = { 0, LOCK_NSEC };

	for (int i = 0; flock(fd, LOCK_EX | LOCK_NB); i++) {
		if (errno != EWOULDBLOCK && errno != EINTR)
			return -errno;
		if (i == LOCK_TRIES)
			return -EBUSY;
		nanosleep(&wait, NULL);
	}
	return 0;
}

int intent_open(const char *path, struct intent **ret)
{
	struct intent *in = calloc(1, sizeof(*in));
	int r;

	if (!in)
		return -ENOMEM;
	in->fd = open(path, O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
	r = in->fd < 0 ? -errno : lock(in->fd);
	if (r < 0) {
		if (in->fd >= 0)
			close(in->fd);
		free(in);
		return r;
	}
	*ret = in;
	return 0;
}

bool intent_is_empty(const struct intent *in)
{
	struct stat st;

	return fstat(in->fd, &st) == 0 && st.st_size == 0;
}

void intent_close(struct intent *in)
{
	if (!in)
		return;
	close(in->fd);
	buf_free(&in->out);
	free(in);
}

/* All of it or nothing: what comes behind a torn entry would not be found. */
static int append(int fd, const struct buf *entry)
{
	off_t before = lseek(fd, 0, SEEK_END);
	ssize_t n = before < 0 ? -1 : write(fd, entry->data, entry->len);
	int r = n < 0 ? -errno : -ENOSPC;

	if (n == (ssize_t)entry->len)
		return 0;
	return n > 0 && ftruncate(fd, before) ? -EIO : r;
}

int intent_add(struct intent *in, const struct record *rec, const char *from, const char *to, const char *beside,
	bool is_dir, const struct stat *made)
{
	int r;

	buf_reset(&in->out);
	buf_zeros(&in->out, HEADER_BYTES);
	r = record_encode(rec, &in->out);
	if (r < 0)
		return r;
	buf_str(&in->out, from);
	buf_str(&in->out, to);
	buf_u8(&in->out, is_dir);
	buf_str(&in->out, beside);
	if (made) {
		buf_u64(&in->out, (uint64_t)made->st_size);
		buf_u64(&in->out, (uint64_t)clock_ns_of(made->st_mtim));
	}
	if (!buf_ok(&in->out))
		return -ENOMEM;
	buf_poke_u32(&in->out, 0, (uint32_t)(in->out.len - HEADER_BYTES));
	buf_poke_u32(&in->out, 4, crc32c(0, in->out.data + HEADER_BYTES, in->out.len - HEADER_BYTES));
	in->dirty = true;
	return append(in->fd, &in->out);
}

int intent_clear(struct intent *in)
{
	if (in->dirty && ftruncate(in->fd, 0))
		return -errno;
	in->dirty = false;
	return 0;
}

/* The entry at the start of c. False: no whole one is there. */
static bool take(struct cursor *c, struct entry *e)
{
	struct record_scratch scratch = { 0 };
	uint32_t len = cursor_u32(c), crc = cursor_u32(c);
	const uint8_t *body = cursor_bytes(c, len);
	struct cursor rest;
	size_t used;
	int r;

	if (!body || crc32c(0, body, len) != crc)
		return false;
	r = record_decode(body, len, &scratch, &e->rec, &used);
	record_scratch_free(&scratch);
	if (r < 0 || (e->rec.type != RECORD_PLACED && e->rec.type != RECORD_REMOVED))
		return false;
	rest = cursor_make(body + used, len - used);
	cursor_str(&rest, e->from, sizeof(e->from));
	cursor_str(&rest, e->to, sizeof(e->to));
	e->is_dir = cursor_u8(&rest);
	e->beside[0] = '\0';
	if (cursor_left(&rest) > 0) /* an agent of before did not know of it */
		cursor_str(&rest, e->beside, sizeof(e->beside));
	e->has_made = cursor_left(&rest) > 0;
	e->size = e->has_made ? cursor_u64(&rest) : 0;
	e->mtime_ns = e->has_made ? (int64_t)cursor_u64(&rest) : 0;
	return cursor_ok(&rest);
}

struct emptying {
	struct sink *sink;
	const char *dir;
};

/* Temporary files of the killed session; an entry at a time, since a directory is listed while it changes. */
static int remove_temp(const char *name, void *arg)
{
	struct emptying *e = arg;
	char path[PATH_MAX_LEN];
	int r;

	if (strncmp(name, TEMP_PREFIX, strlen(TEMP_PREFIX)) != 0 ||
		snprintf(path, sizeof(path), "%s/%s", e->dir, name) >= (int)sizeof(path))
		return 0;
	r = e->sink->ops->remove(e->sink, path, false);
	if (r == -EISDIR || r == -EPERM)
		r = e->sink->ops->remove(e->sink, path, true);
	return r < 0 ? r : 1;
}

/* What several nodes have written goes on: the agent that is started for the same part finds it where it was. */
static bool is_of_several(const struct entry *e)
{
	const char *slash = strrchr(e->beside, '/');

	return strncmp(slash ? slash + 1 : e->beside, SESSION_SHARED_PREFIX, strlen(SESSION_SHARED_PREFIX)) == 0;
}

/* there: what has the name, by its number the one that we gave it to. Undone before, that may be another file. */
static int undo_new(const struct entry *e, struct sink *sink, const struct stat *there)
{
	struct emptying emptying = { sink, e->to };
	int r = -EOPNOTSUPP, listed = 1;

	if (e->has_made && (e->size != (uint64_t)there->st_size || e->mtime_ns != clock_ns_of(there->st_mtim)))
		return 0;
	if (is_of_several(e))
		r = sink->ops->rename_new(sink, e->to, e->beside);
	if (r == -EOPNOTSUPP || r == -EEXIST)
		r = sink->ops->remove(sink, e->to, e->is_dir);
	while ((r == -ENOTEMPTY || r == -EEXIST) && listed == 1) {
		listed = sink->ops->list(sink, e->to, remove_temp, &emptying);
		if (listed < 0)
			return listed;
		r = sink->ops->remove(sink, e->to, true);
	}
	return r == -ENOTEMPTY || r == -EEXIST ? 0 : r; /* others have put something into it: it stays */
}

/* One that was replaced in its place: the old one comes back from its second name, or only loses that. */
static int undo_replaced(const struct entry *e, struct state *st, struct sink *sink)
{
	struct stat there, old;
	struct inode in;
	int r = sink->ops->stat(sink, e->from, &old);

	if (r < 0 || state_inode(st, e->rec.ino, &in) < 0)
		return r == -ENOENT || r == -ENOTDIR ? 0 : r;
	r = sink->ops->stat(sink, e->to, &there);
	if (r < 0)
		return r == -ENOENT || r == -ENOTDIR ? 0 : r;
	if (there.st_ino != e->rec.backing_ino || in.backing_ino == e->rec.backing_ino)
		return sink->ops->remove(sink, e->from, false); /* was not done, or was reported */
	return sink->ops->rename(sink, e->from, e->to, false);
}

/*
 * It has changed places with what was there, which is still beside it, and whose it is nobody may have looked yet: that has its name again,
 * and what was to be published is as it was before.
 */
static int undo_exchange(const struct entry *e, struct sink *sink)
{
	struct stat there, beside;

	if (!e->beside[0] || sink->ops->stat(sink, e->to, &there) < 0 || there.st_ino != e->rec.backing_ino ||
		sink->ops->stat(sink, e->beside, &beside) < 0 || beside.st_ino == e->rec.backing_ino)
		return 0;
	return sink->ops->exchange(sink, e->beside, e->to);
}

/* Its old name is another file's by now: beside that the next drain looks for it (locate.c), under whatever name the mount has it. */
static int undo_parked(const struct entry *e, struct sink *sink)
{
	const char *slash = strrchr(e->from, '/');
	char name[RECORD_NAME_MAX + 1], park[PATH_MAX_LEN];
	struct stat st;
	int r;

	names_park_name(e->rec.ino, name);
	if (snprintf(park, sizeof(park), "%.*s%s", slash ? (int)(slash + 1 - e->from) : 0, e->from, name) >=
		(int)sizeof(park))
		return -ENAMETOOLONG;
	r = sink->ops->stat(sink, park, &st);
	if (r != -ENOENT)
		return r; /* it is there already, or something that must not be replaced is */
	return sink->ops->rename(sink, e->to, park, e->is_dir);
}

struct relinking {
	const struct entry *e;
	const struct inode *in;
	struct state *st;
	struct sink *sink;
};

static int relink_from(uint64_t parent, const char *name, uint64_t ino, void *arg)
{
	struct relinking *l = arg;
	char path[PATH_MAX_LEN];
	struct stat there;

	if (ino != l->in->ino || state_backing_child_path(l->st, parent, name, path, sizeof(path)) < 0 ||
		l->sink->ops->stat(l->sink, path, &there) < 0 || !session_is_same(l->in, &there))
		return 0;
	int r = l->sink->ops->link(l->sink, path, l->e->to);
	return r < 0 ? r : 1;
}

/* The next drain finds out that the name has gone; what needs room or a directory must not keep it from that. */
static bool is_for_good(int r)
{
	return r == -ENOENT || r == -ENOTDIR || r == -EEXIST || r == -ENOSPC || r == -EDQUOT || r == -EMLINK ||
	       r == -EPERM;
}

/* The name by which the state knows a file of several: it has it again, from another one. */
static int undo_removed(const struct entry *e, struct state *st, struct sink *sink)
{
	struct relinking l = { .e = e, .st = st, .sink = sink };
	struct stat there;
	struct inode in;
	uint64_t owner;

	if (state_backing_owner(st, e->rec.parent, e->rec.name, &owner) < 0 || owner != e->rec.ino ||
		state_inode(st, e->rec.ino, &in) < 0 || sink->ops->stat(sink, e->to, &there) != -ENOENT)
		return 0;
	l.in = &in;
	int r = state_each_backing_name(st, relink_from, &l);
	return r < 0 && !is_for_good(r) ? r : 0;
}

static int undo_one(const struct entry *e, struct state *st, struct sink *sink)
{
	struct stat there, back;
	uint64_t owner;
	int r;

	if (e->rec.type == RECORD_REMOVED)
		return undo_removed(e, st, sink);
	if (e->rec.flags & RECORD_F_MOVED && e->rec.from_parent == e->rec.parent &&
		strcmp(e->rec.from_name, e->rec.name) == 0)
		return undo_replaced(e, st, sink);
	if (state_backing_owner(st, e->rec.parent, e->rec.name, &owner) == 0 && owner == e->rec.ino)
		return 0; /* was reported */
	r = undo_exchange(e, sink);
	if (r < 0)
		return r;
	r = sink->ops->stat(sink, e->to, &there);
	if (r == -ENOENT || r == -ENOTDIR || (r == 0 && there.st_ino != e->rec.backing_ino))
		return 0; /* was not done */
	if (r == 0 && !(e->rec.flags & RECORD_F_MOVED))
		return undo_new(e, sink, &there);
	if (r == 0)
		r = sink->ops->stat(sink, e->from, &back);
	if (r == -ENOENT)
		r = sink->ops->rename(sink, e->to, e->from, e->is_dir);
	else if (r == 0 && back.st_ino == there.st_ino && !e->is_dir)
		r = sink->ops->remove(sink, e->to, false); /* it had got its name, and not yet lost the old one */
	else if (r == 0 && back.st_ino != there.st_ino)
		r = undo_parked(e, sink);
	/* The directory that it was in has gone since: it stays, and the next drain will find it here. */
	return r == -ENOENT || r == -ENOTDIR ? 0 : r;
}

static int undo_all(const uint8_t *data, size_t len, struct state *st, struct sink *sink)
{
	struct entry *e = malloc(sizeof(*e));
	size_t *offsets = NULL, num = 0, cap = 0;
	struct cursor c = cursor_make(data, len);
	int r = e ? 0 : -ENOMEM;

	while (r == 0) {
		size_t at = len - cursor_left(&c);

		if (!take(&c, e))
			break;
		if (num == cap) {
			size_t *grown = reallocarray(offsets, cap = cap ? 2 * cap : 64, sizeof(*grown));

			if (!grown)
				r = -ENOMEM;
			else
				offsets = grown;
		}
		if (r == 0)
			offsets[num++] = at;
	}
	for (size_t i = r == 0 ? num : 0; i-- > 0;) {
		int one;

		c = cursor_make(data + offsets[i], len - offsets[i]);
		one = take(&c, e) ? undo_one(e, st, sink) : 0;
		r = r ? r : one; /* the others are taken back all the same */
	}
	free(offsets);
	free(e);
	return r;
}

int intent_undo(struct intent *in, struct state *st, struct sink *sink)
{
	struct stat s;
	uint8_t *data;
	ssize_t got;
	int r;

	if (fstat(in->fd, &s))
		return -errno;
	if (s.st_size == 0)
		return 0;
	if (s.st_size > FILE_MAX)
		return -EFBIG;
	data = malloc((size_t)s.st_size);
	if (!data)
		return -ENOMEM;
	got = pread(in->fd, data, (size_t)s.st_size, 0);
	r = got < 0 ? -errno : undo_all(data, (size_t)got, st, sink);
	free(data);
	if (r == 0)
		r = sink->ops->sync_names(sink);
	in->dirty = true;
	return r < 0 ? r : intent_clear(in);
}
