/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Reading a file that other nodes have, or write: places first (locate.c), then bytes, from our own segments, from those of
 * others through the agents, and from the backing file. What comes too late, or is not what was promised, is asked for again:
 * its place may have been given up in between.
 */
#include "fs/job/share.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "format/base/clock.h"
#include "format/base/crc32c.h"
#include "format/base/fdio.h"
#include "fs/job/ahead.h"
#include "fs/job/carry.h"

#define MISMATCHES_MAX 3
#define GETS_MAX       1024

/* ---- the backing file */

/* An untouched file, of which the home knows no more than we: where we have found it. It may have been removed since, too. */
static int open_hint(struct job *j, uint64_t ino)
{
	struct hint hint;
	char path[HINT_BYTES];

	remote_hint(j, ino, &hint);
	if (!hint.dir)
		return -ESTALE;
	int rc = state_backing_path(j->state, hint.dir, path, sizeof(path));
	size_t len = strlen(path);
	if (rc < 0)
		return rc == -ENOENT ? -ESTALE : rc;
	if (len + strlen(hint.path) + 2 > sizeof(path))
		return -ENAMETOOLONG;
	snprintf(path + len, sizeof(path) - len, "/%s", hint.path);
	return core_open_found(j->core, path, ino);
}

/* Where the home has said that it is. It may have been moved since, and something else be there: -ESTALE. */
static int open_told(struct job *j, const char *path, uint64_t backing_ino)
{
	struct stat st;
	int fd = core_open_backing(j->core, path);

	if (fd < 0)
		return fd == -ENOENT || fd == -ENOTDIR || fd == -ELOOP ? -ESTALE : fd;
	if (!backing_ino || (fstat(fd, &st) == 0 && st.st_ino == backing_ino))
		return fd;
	close(fd);
	return -ESTALE;
}

int read_backing_fd(struct job *j, struct shared *s)
{
	char path[4096] = "";

	pthread_mutex_lock(&s->mutex);
	int fd = s->backing_fd >= 0 ? fcntl(s->backing_fd, F_DUPFD_CLOEXEC, 0) : -1;
	if (fd < 0 && s->path)
		memcpy(path, s->path, strlen(s->path) + 1);
	uint64_t backing_ino = s->backing_ino;
	pthread_mutex_unlock(&s->mutex);
	if (fd >= 0)
		return fd;
	if (s->at_home)
		return core_open_origin(j->core, s->ino);
	return path[0] ? open_told(j, path, backing_ino) : open_hint(j, s->ino);
}

static void backing_keep(struct shared *s, int fd)
{
	pthread_mutex_lock(&s->mutex);
	if (s->backing_fd < 0)
		s->backing_fd = fcntl(fd, F_DUPFD_CLOEXEC, 0);
	pthread_mutex_unlock(&s->mutex);
}

/* ---- one attempt */

struct reading {
	struct job *j;
	struct shared *s;
	uint8_t *buf;
	uint64_t off;
	unsigned int mismatches; /* over all attempts */
	bool refreshed;          /* what we know of the file is from after something was out of date */
	bool may_lend;           /* who reads takes the bytes from where they are */
	bool may_write;          /* who reads may write it back */
	struct chunk *lent;      /* counted reference: so they are at */
	const uint8_t *bytes;
};

/* What is there; the rest is zeros. A file that was removed while it is open has no path: its home has kept the backing file. */
static ssize_t backing_read(struct reading *rd, uint8_t *buf, size_t len, uint64_t off)
{
	int fd = read_backing_fd(rd->j, rd->s);

	if (fd == -ESTALE && rd->refreshed && !rd->s->at_home)
		return carry_read_backing(rd->j, rd->s, buf, len, off);
	if (fd < 0)
		return fd;
	ssize_t got = fdio_read(fd, buf, len, off);
	backing_keep(rd->s, fd);
	close(fd);
	return got;
}

static int check(struct reading *rd, const struct piece *p, const uint8_t *bytes)
{
	char name[128];

	if (!p->whole || crc32c(0, bytes, p->len) == p->crc)
		return 0;
	if (rd->mismatches++ < MISMATCHES_MAX)
		return -EAGAIN;
	job_log(rd->j, true, "payload-damaged",
		"ino=%llu offset=%llu node=\"%s\" segment=%u segment_offset=%llu bytes=%u",
		(unsigned long long)rd->s->ino, (unsigned long long)p->off,
		peers_name(rd->j->peers, p->node, name, sizeof(name)), p->segment, (unsigned long long)p->segment_off,
		p->len);
	return -EIO;
}

/*
 * The home has taken so long to say what others have that our own payload may have been given back since we looked. Where it is
 * still in our layer it has not: that needs no other question, which might take as long.
 */
static bool may_be_gone(struct reading *rd, const struct piece *p, uint64_t listed_usec)
{
	return clock_usec() - listed_usec >= SHARE_FRESH_USEC && !share_has_still(rd->j, rd->s, p);
}

static int read_own(struct reading *rd, const struct piece *p, uint64_t listed_usec, uint8_t *to)
{
	int rc = segment_read(store_segments(rd->j->opt.store), p->segment, p->segment_off, to, p->len);

	if (rc == -ENOENT || rc == -ENODATA || (rc == 0 && may_be_gone(rd, p, listed_usec)))
		return -EAGAIN;
	return rc < 0 ? rc : check(rd, p, to);
}

static int read_backing(struct reading *rd, const struct piece *p, uint8_t *to)
{
	ssize_t got = backing_read(rd, to, p->len, p->off);

	if (got >= 0)
		memset(to + got, 0, p->len - (size_t)got);
	return got < 0 ? (int)got : 0;
}

static int read_here(struct reading *rd, const struct piece *p, uint64_t listed_usec)
{
	uint8_t *to = rd->buf + (p->off - rd->off);

	if (p->kind == PIECE_LOG)
		return read_own(rd, p, listed_usec, to);
	if (p->kind == PIECE_BACKING)
		return read_backing(rd, p, to);
	memset(to, 0, p->len);
	return 0;
}

static bool is_remote(const struct reading *rd, const struct piece *p)
{
	return p->kind == PIECE_LOG && p->node != peers_self(rd->j->peers);
}

static int take(struct reading *rd, const struct peers_buffer *b, const struct piece *const *from, size_t num)
{
	uint32_t at = 0;
	int rc = 0;

	for (size_t i = 0; rc == 0 && i < num; i++) {
		memcpy(rd->buf + (from[i]->off - rd->off), b->bytes + at, from[i]->len);
		rc = check(rd, from[i], b->bytes + at);
		at += from[i]->len;
	}
	return rc;
}

struct batch { /* pieces of other nodes, fetched at once */
	const struct piece *from[GETS_MAX];
	struct peers_get gets[GETS_MAX];
	size_t num, next; /* next: the first piece that is not taken */
	struct peers_buffer buffer;
};

/* one_node: of the first one's node alone. */
static void list_batch(const struct reading *rd, const struct pieces *p, size_t first, bool one_node, struct batch *b)
{
	uint32_t bytes = 0;
	size_t i = first;

	b->num = 0;
	for (; i < p->num && b->num < GETS_MAX; i++) {
		const struct piece *q = &p->at[i];

		if (!is_remote(rd, q))
			continue;
		if (bytes + q->len > PEERS_BUFFER_BYTES || (one_node && b->num > 0 && q->node != b->gets[0].node))
			break;
		b->from[b->num] = q;
		b->gets[b->num++] = (struct peers_get){
			.node = q->node, .segment = q->segment, .off = q->segment_off, .len = q->len, .to = bytes
		};
		bytes += q->len;
	}
	b->next = i;
}

/* Node by node where one of several does not give what it is asked for. Nothing is there to be fetched: no buffer. */
static int begin_batch(struct reading *rd, const struct pieces *p, size_t first, struct batch *b)
{
	struct peers *peers = rd->j->peers;

	list_batch(rd, p, first, false, b);
	if (b->num == 0)
		return 0;
	int rc = peers_buffer_get(peers, b->gets, b->num, &b->buffer);
	if (rc != -EBUSY)
		return rc;
	list_batch(rd, p, first, true, b);
	return peers_buffer_get(peers, b->gets, b->num, &b->buffer);
}

static int fetch_batch(struct reading *rd, const struct pieces *p, const struct batch *b)
{
	int rc = peers_get(rd->j->peers, &b->buffer, b->gets, b->num);

	if (rc == -ENOENT || rc == -ECONNRESET)
		return -EAGAIN;
	if (rc == 0 && clock_usec() - p->asked_usec >= SHARE_FRESH_USEC)
		return -EAGAIN;
	return rc < 0 ? rc : take(rd, &b->buffer, b->from, b->num);
}

static int fetch_remote(struct reading *rd, const struct pieces *p)
{
	struct batch b;
	size_t i = 0;
	int rc = 0;

	for (; rc == 0 && i < p->num; i = b.next) {
		rc = begin_batch(rd, p, i, &b);
		if (rc < 0 || b.num == 0)
			break;
		rc = fetch_batch(rd, p, &b);
		peers_buffer_put(rd->j->peers, &b.buffer);
	}
	return rc;
}

static int read_pieces(struct reading *rd, struct pieces *p, uint64_t off, uint64_t len)
{
	int rc = 0;

	if (rd->may_lend)
		rd->bytes = ahead_view(rd->j, rd->s, p, off, len, &rd->lent);
	if (rd->lent)
		return 0;
	for (size_t i = 0; rc == 0 && i < p->num; i++)
		if (!is_remote(rd, &p->at[i]))
			rc = read_here(rd, &p->at[i], p->listed_usec);
	if (rc < 0)
		return rc;
	ahead_take(rd->j, rd->s, p, rd->buf + (off - rd->off), off);
	return fetch_remote(rd, p);
}

/* Its home's kernel writes to it. -EAGAIN: not any more. */
static int read_carried(struct reading *rd, uint64_t off, uint64_t len)
{
	int rc = carry_read(rd->j, rd->s, rd->buf + (off - rd->off), len, off);

	rd->s->carried = rc == 0;
	return rc == -ESTALE ? -EAGAIN : rc;
}

static int read_window(struct reading *rd, uint64_t off, uint64_t len)
{
	struct pieces p = { 0 };

	if (rd->s->carried && !rd->s->is_shared)
		return read_carried(rd, off, len);
	int rc = share_locate(rd->j, rd->s, off, len, &p);

	if (rc == -EBUSY) {
		pieces_free(&p);
		return read_carried(rd, off, len);
	}
	if (rc == 0 && shared_is_lapsed(rd->j, rd->s))
		rc = -ESTALE; /* a drain may have gone on without us: then the places are newer than the limit */
	rc = rc < 0 ? rc : read_pieces(rd, &p, off, len);
	pieces_free(&p);
	return rc;
}

/* ---- again, and for all windows */

int share_refresh(struct job *j, struct shared *s, int why, int tries)
{
	if (why == -ESTALE)
		shared_doubt(s);
	else
		s->epoch++;
	if (tries > 1)
		usleep(SHARE_RETRY_USEC / 10);
	return why == -ESTALE ? shared_make_current(j, s) : 0;
}

static int refresh(struct reading *rd, int why, int tries)
{
	rd->refreshed |= why == -ESTALE;
	return share_refresh(rd->j, rd->s, why, tries);
}

static int read_part(struct reading *rd, uint64_t off, uint64_t len)
{
	int rc = -EAGAIN;

	for (int tries = 0; tries < SHARE_READ_TRIES; tries++) {
		rc = read_window(rd, off, len);
		if (rc != -EAGAIN && rc != -ESTALE)
			return rc;
		int again = refresh(rd, rc, tries);
		if (again < 0)
			return again;
	}
	return rc == -EAGAIN ? -EIO : rc;
}

bool shared_is_outside(struct shared *s)
{
	pthread_mutex_lock(&s->mutex);
	bool outside = s->outside && !s->is_shared;
	pthread_mutex_unlock(&s->mutex);
	return outside;
}

static int read_windows(struct reading *rd, uint64_t end)
{
	int rc = 0;

	rd->may_lend = rd->may_lend && rd->off / SHARE_WINDOW == (end - 1) / SHARE_WINDOW;
	for (uint64_t pos = rd->off, next; rc == 0 && pos < end; pos = next) {
		next = (pos / SHARE_WINDOW + 1) * SHARE_WINDOW;
		next = next < end ? next : end;
		rc = read_part(rd, pos, next - pos);
	}
	return rc;
}

/* True: all of the file is in the backing file, and *ret is what came of reading there. */
static bool read_outside(struct reading *rd, size_t len, ssize_t *ret)
{
	*ret = -ESTALE;
	for (int tries = 0; *ret == -ESTALE && tries < SHARE_READ_TRIES; tries++) {
		if (shared_is_home(rd->j, rd->s) || !shared_is_outside(rd->s))
			return false;
		*ret = backing_read(rd, rd->buf, len, rd->off);
		int again = *ret == -ESTALE ? refresh(rd, -ESTALE, tries) : 0;
		if (again < 0)
			*ret = again;
	}
	return true;
}

static ssize_t read_at(struct reading *rd, size_t len)
{
	int rc = shared_make_current(rd->j, rd->s);
	ssize_t got;

	if (rc < 0)
		return rc;
	if (read_outside(rd, len, &got))
		return got;
	uint64_t size = shared_size(rd->j, rd->s);
	if (rd->may_write && rd->s->is_shared && len > 0 && (rd->off >= size || len > size - rd->off))
		rc = share_end(rd->j, rd->s, &size);
	if (rc < 0)
		return rc;
	if (rd->off >= size || len == 0)
		return 0;
	len = len < size - rd->off ? len : (size_t)(size - rd->off);
	rc = read_windows(rd, rd->off + len);
	return rc < 0 ? rc : (ssize_t)len;
}

ssize_t share_read_at(struct job *j, struct shared *s, void *buf, size_t len, uint64_t off)
{
	struct reading rd = { .j = j, .s = s, .buf = buf, .off = off };

	return read_at(&rd, len);
}

static bool read_alone(struct job *j, struct job_file *file, void *buf, size_t len, uint64_t off, ssize_t *ret)
{
	if (!shared_alone_begin(j, file->shared))
		return false;
	*ret = core_read(j->core, file->local, buf, len, off);
	shared_alone_end(file->shared);
	return true;
}

ssize_t share_read(struct job *j, struct job_file *file, bool process, void *buf, size_t len, uint64_t off,
	struct job_bytes *ret_where)
{
	struct reading rd = { .j = j, .s = file->shared, .buf = buf, .off = off, .may_lend = true };
	ssize_t got;

	*ret_where = (struct job_bytes){ .at = buf };
	if (read_alone(j, file, buf, len, off, &got))
		return got;
	if (process)
		show_to(j, file);
	ahead_of(j, file, len, off);
	rd.may_write = file->sieve != NULL;
	struct sieve_moment begun = sieve_begin_read(file);
	got = read_at(&rd, len);
	if (rd.lent)
		*ret_where = (struct job_bytes){ .at = rd.bytes, .lent = rd.lent, .len = (size_t)got };
	if (got > 0 && (rd.s->is_shared || !shared_is_home(j, rd.s)))
		sieve_note_read(file, &begun, ret_where->at, (size_t)got, off, (size_t)got < len);
	return got;
}
