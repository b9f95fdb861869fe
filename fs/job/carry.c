/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * A private file that is open at its home: the kernel there reads and writes the private segment, and neither tells us of it nor
 * lets go of it before the last such open file is closed. So there is one copy of its bytes, and what other nodes read and write is
 * carried to it, request by request: neither a layer nor a share map could hide, or show, what the kernel does. The same for a
 * file which is in part in the backing file only, since its home's store was full; of that only writes are carried.
 *
 * What is carried is at the home when the write returns, and so is in the home's store alone. It is told to those who have the file
 * open elsewhere with fsync and close, as ever.
 *
 * Reads wait for workers only; changes run in drivers, since they may wait for room. None is begun when who sent it has given up waiting, and has
 * told so.
 *
 * Carried are also bytes of a backing file to which no path leads any more: its file was removed, but is open.
 */
#include "fs/job/carry.h"
#include "format/base/clock.h"
#include "fs/job/quiet.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "format/base/fdio.h"

#define CARRY_TRIES 8
#define CARRY_BYTES (1u << 20) /* of one message */

enum carry { CARRY_WRITE = 1, CARRY_APPEND, CARRY_FALLOCATE, CARRY_SYNC };
enum { CARRY_TELL = 1, CARRY_DURABLE = 2 }; /* modes of CARRY_SYNC */

/* ---- at home */

/* The home's view of a request. */
struct carried {
	struct job *j;
	struct peers_request *rq;
	struct shared *s;
	struct core_file *file;
	const uint8_t *bytes;
	size_t len;
	uint64_t off, what;
	int mode;
};

static int do_write(struct carried *c)
{
	for (size_t done = 0; done < c->len;) {
		ssize_t put = core_write(c->j->core, c->file, c->bytes + done, c->len - done, c->off + done);

		if (put <= 0)
			return put < 0 ? (int)put : -EIO;
		done += (size_t)put;
	}
	return 0;
}

static int find_end(struct job *j, struct shared *s, uint64_t *ret)
{
	struct core_where *w = malloc(sizeof(*w));
	int rc = w ? core_where(j->core, s->ino, w) : -ENOMEM;

	if (rc == 0)
		*ret = w->size;
	free(w);
	return rc;
}

static int do_through(struct carried *c)
{
	pthread_mutex_lock(&c->s->through_lock);
	int rc = share_check_wanted(c->j, c->rq);
	if (rc == 0 && c->what == CARRY_APPEND)
		rc = find_end(c->j, c->s, &c->off);
	rc = rc < 0 ? rc : do_write(c);
	pthread_mutex_unlock(&c->s->through_lock);
	return rc;
}

ssize_t carry_write_through(
	struct job *j, struct job_file *file, uint32_t writer, bool append, const void *buf, size_t len, uint64_t off)
{
	struct shared *s = file->shared;

	pthread_mutex_lock(&s->through_lock);
	int rc = append ? find_end(j, s, &off) : 0;
	ssize_t done = rc < 0 ? rc : core_write_as(j->core, writer, file->local, buf, len, off);
	pthread_mutex_unlock(&s->through_lock);
	return done;
}

static int do_bytes(struct carried *c)
{
	if (c->s->kept == KEPT_THROUGH)
		return do_through(c);
	return c->what == CARRY_APPEND ? core_append(c->j->core, c->file, c->bytes, c->len) : do_write(c);
}

static int do_change(struct carried *c)
{
	switch (c->what) {
	case CARRY_WRITE:
	case CARRY_APPEND: return do_bytes(c);
	case CARRY_FALLOCATE: return core_fallocate(c->j->core, c->file, c->mode, c->off, c->len);
	case CARRY_SYNC: return c->mode & CARRY_DURABLE ? core_fsync(c->j->core, c->s->ino, c->file, false) : 0;
	default: return -EOPNOTSUPP;
	}
}

static void read_request(struct carried *c, struct peers_request *rq)
{
	const struct wire_msg *m = peers_msg(rq);

	c->rq = rq;
	c->what = message_get(m, MESSAGE_SHARE_FLAGS);
	c->off = message_get(m, MESSAGE_SHARE_OFF);
	c->len = message_get(m, MESSAGE_SHARE_LEN);
	c->mode = (int)message_get(m, MESSAGE_SHARE_MODE);
	if (c->what <= CARRY_APPEND && !message_get_bytes(m, MESSAGE_SHARE_PIECES, 0, &c->bytes, &c->len))
		c->what = 0;
}

/* The opening is for this request; whoever sent it keeps the file there. */
static int with_file(struct carried *c, int (*fn)(struct carried *c))
{
	struct core_open_reply open;
	int rc = core_open_number(c->j->core, c->s->ino, O_RDONLY, &open);

	if (rc < 0)
		return rc;
	c->file = open.file;
	rc = fn(c);
	core_release(c->j->core, open.file);
	return rc;
}

/* Neither private nor in part in the backing file any more: then it can be shared. */
static bool is_kept(const struct carried *c)
{
	return c->s->kept == KEPT_THROUGH || (c->s->kept == KEPT_PRIVATE && core_is_kernels(c->j->core, c->file));
}

static int change_locked(struct carried *c)
{
	pthread_rwlock_rdlock(&c->s->lock);
	int rc = c->s->is_shared || !(c->what == CARRY_SYNC || is_kept(c)) ? -ESTALE : 0;
	if (rc == 0 && c->what != CARRY_SYNC)
		rc = share_check_wanted(c->j, c->rq);
	if (rc == 0)
		rc = do_change(c);
	pthread_rwlock_unlock(&c->s->lock);
	return rc;
}

static void reply_size(struct carried *c, struct peers_request *rq)
{
	struct core_where *w = malloc(sizeof(*w));
	struct wire_msg reply = { 0 };
	int rc = w ? core_where(c->j->core, c->s->ino, w) : -ENOMEM;

	if (rc < 0) {
		peers_reply_status(rq, rc);
	} else {
		wire_msg_init(&reply, WIRE_REPLY);
		wire_put_i64(&reply, WIRE_STATUS, 0);
		message_put(&reply, MESSAGE_SHARE_SIZE, w->size);
		peers_reply(rq, &reply);
		wire_msg_free(&reply);
	}
	free(w);
}

/* A commit is told whoever made it; that the file has become shared meanwhile has been told. */
static void end_change(struct carried *c, struct peers_request *rq)
{
	if (c->what == CARRY_SYNC) {
		(c->mode & CARRY_TELL ? tell_and_reply : registry_reply)(c->j, c->s, rq);
		return;
	}
	if (c->s->kept != KEPT_PRIVATE && c->j->opt.invalidate)
		c->j->opt.invalidate(c->s->ino, true, c->j->opt.arg);
	reply_size(c, rq);
}

static void do_carried(struct job *j, struct peers_request *rq)
{
	struct carried c = { .j = j };

	read_request(&c, rq);
	c.s = shared_get(j, message_get(peers_msg(rq), MESSAGE_SHARE_INO));
	quiet_begin_change(j);
	int rc = c.s ? with_file(&c, change_locked) : -ENOMEM;
	quiet_end_change(j);
	if (rc < 0)
		peers_reply_status(rq, rc);
	else
		end_change(&c, rq);
	shared_put(j, c.s);
}

void carry_serve_change(struct job *j, struct peers_request *rq)
{
	workers_serve(j->share->drivers, do_carried, rq);
}

struct read_reply {
	struct carried c;
	uint8_t *buf;
	ssize_t got;
};

static int do_read(struct carried *c)
{
	struct read_reply *r = (struct read_reply *)c;

	if (!core_is_kernels(c->j->core, c->file))
		return -ESTALE;
	r->got = core_read(c->j->core, c->file, r->buf, c->len, c->off);
	return r->got < 0 ? (int)r->got : 0;
}

/* Who sent it has it open, so it has been held here since before its last name went. */
static int do_read_backing(struct carried *c)
{
	struct read_reply *r = (struct read_reply *)c;
	int fd = core_open_origin(c->j->core, c->s->ino);

	if (fd < 0)
		return fd == -ENOENT ? -ESTALE : fd;
	r->got = fdio_read(fd, r->buf, c->len, c->off);
	close(fd);
	return r->got < 0 ? (int)r->got : 0;
}

static void serve_read(struct job *j, struct peers_request *rq, int (*fn)(struct carried *c))
{
	struct read_reply r = { .c.j = j };
	struct wire_msg reply = { 0 };

	read_request(&r.c, rq);
	r.c.s = shared_get(j, message_get(peers_msg(rq), MESSAGE_SHARE_INO));
	r.buf = r.c.len <= CARRY_BYTES ? malloc(r.c.len + 1) : NULL;
	int rc = r.c.s && r.buf ? with_file(&r.c, fn) : -ENOMEM;
	if (rc == 0) {
		wire_msg_init(&reply, WIRE_REPLY);
		wire_put_i64(&reply, WIRE_STATUS, 0);
		message_put_bytes(&reply, MESSAGE_SHARE_PIECES, r.buf, (size_t)r.got);
		peers_reply(rq, &reply);
		wire_msg_free(&reply);
	} else {
		peers_reply_status(rq, rc);
	}
	free(r.buf);
	shared_put(j, r.c.s);
}

void carry_serve_read(struct job *j, struct peers_request *rq)
{
	serve_read(j, rq, do_read);
}

void carry_serve_backing(struct job *j, struct peers_request *rq)
{
	serve_read(j, rq, do_read_backing);
}

/* ---- elsewhere */

bool carry_again(struct job *j, struct shared *s, int tries, ssize_t *done)
{
	if (*done != -ESTALE)
		return false;
	int rc = tries ? shared_register(j, s) : 0;
	if (rc < 0 || (tries == CARRY_TRIES && carry_is_needed(s)))
		*done = rc < 0 ? rc : -EIO;
	return rc == 0 && tries < CARRY_TRIES && carry_is_needed(s);
}

static void init(struct wire_msg *m, struct shared *s, enum carry what)
{
	message_init(m, MESSAGE_SHARE_CARRY);
	message_put(m, MESSAGE_SHARE_INO, s->ino);
	message_put(m, MESSAGE_SHARE_FLAGS, what);
}

static void note_carried(struct shared *s)
{
	s->has_carried = true;
	s->carries++;
}

void carry_note_set(struct job *j, uint64_t ino)
{
	struct shared *s = shared_find(j, ino);

	if (s)
		s->carries++;
	shared_put(j, s);
}

/* once: what would do harm if it were done twice is not said again to another daemon. */
static int send(struct job *j, struct shared *s, struct wire_msg *m, bool once)
{
	struct wire_msg reply = { 0 };

	share_put_until(j, m);
	note_carried(s); /* and behind it: a commit in between would take the mark and not tell it */
	j->share->messages++;
	int rc = once ? peers_call(j->peers, s->home, m, &reply) : share_call(j, s->home, m, &reply);
	if (rc == 0) {
		note_carried(s);
		pthread_mutex_lock(&s->mutex);
		uint64_t size = message_get(&reply, MESSAGE_SHARE_SIZE);
		s->size = size > s->size ? size : s->size;
		s->epoch++;
		pthread_mutex_unlock(&s->mutex);
	}
	wire_msg_free(&reply);
	return rc;
}

static int send_bytes(struct job *j, struct shared *s, enum carry what, const void *buf, size_t len, uint64_t off)
{
	struct wire_msg m = { 0 };

	init(&m, s, what);
	message_put(&m, MESSAGE_SHARE_OFF, off);
	message_put_bytes(&m, MESSAGE_SHARE_PIECES, buf, len);
	int rc = send(j, s, &m, what == CARRY_APPEND);
	wire_msg_free(&m);
	return rc;
}

ssize_t carry_write(struct job *j, struct shared *s, const void *buf, size_t len, uint64_t off)
{
	size_t part = len < CARRY_BYTES ? len : CARRY_BYTES;
	uint64_t max = core_max_bytes(j->core);

	if (off >= max)
		return -EFBIG;
	part = part < max - off ? part : max - off;
	int rc = send_bytes(j, s, CARRY_WRITE, buf, part, off);
	return rc < 0 ? rc : (ssize_t)part;
}

ssize_t carry_append(struct job *j, struct shared *s, const void *buf, size_t len)
{
	size_t part = len < CARRY_BYTES ? len : CARRY_BYTES;
	int rc = send_bytes(j, s, CARRY_APPEND, buf, part, 0);

	return rc < 0 ? rc : (ssize_t)part;
}

int carry_fallocate(struct job *j, struct shared *s, int mode, uint64_t off, uint64_t len)
{
	struct wire_msg m = { 0 };

	init(&m, s, CARRY_FALLOCATE);
	message_put(&m, MESSAGE_SHARE_OFF, off);
	message_put(&m, MESSAGE_SHARE_LEN, len);
	message_put(&m, MESSAGE_SHARE_MODE, (uint64_t)mode);
	int rc = send(j, s, &m, false);
	wire_msg_free(&m);
	return rc;
}

int carry_sync(struct job *j, struct shared *s, bool tell, bool durable)
{
	struct wire_msg m = { 0 }, reply = { 0 };

	uint64_t asked_usec = clock_usec();

	init(&m, s, CARRY_SYNC);
	message_put(&m, MESSAGE_SHARE_MODE, (tell ? CARRY_TELL : 0) | (durable ? CARRY_DURABLE : 0));
	int rc = share_call(j, s->home, &m, &reply);
	if (rc == 0)
		rc = shared_apply_reply(s, &reply, asked_usec);
	wire_msg_free(&m);
	wire_msg_free(&reply);
	return rc;
}

static bool is_kept_there(struct shared *s)
{
	pthread_mutex_lock(&s->mutex);
	bool is = s->carries == s->carries_kept;
	pthread_mutex_unlock(&s->mutex);
	return is;
}

/* The daemon that has synced may be another one, and have lost what its predecessor was given: it says so before it is settled. */
int carry_settle(struct job *j, struct shared *s, uint64_t carries)
{
	struct wire_msg m = { 0 };

	if (is_kept_there(s))
		return 0;
	message_init(&m, MESSAGE_POWER_SETTLED);
	int rc = share_call(j, s->home, &m, NULL);
	wire_msg_free(&m);
	pthread_mutex_lock(&s->mutex);
	if (rc == 0 && s->carries_kept < carries)
		s->carries_kept = carries;
	pthread_mutex_unlock(&s->mutex);
	return rc;
}

static void lose_carried(struct job *j, struct shared *s, void *arg)
{
	const uint32_t *home = arg;

	(void)j;
	pthread_mutex_lock(&s->mutex);
	if (s->home == *home && s->carries != s->carries_kept) {
		s->carries_kept = s->carries;
		s->losses++;
	}
	pthread_mutex_unlock(&s->mutex);
}

void carry_lost(struct job *j, uint32_t home)
{
	shared_each(j, lose_carried, &home);
}

/* How many bytes there are, up to len. */
static ssize_t read_part(
	struct job *j, struct shared *s, enum message_type what, uint8_t *buf, size_t len, uint64_t off)
{
	struct wire_msg m = { 0 }, reply = { 0 };
	const uint8_t *bytes;
	size_t got = 0;

	message_init(&m, what);
	message_put(&m, MESSAGE_SHARE_INO, s->ino);
	message_put(&m, MESSAGE_SHARE_OFF, off);
	message_put(&m, MESSAGE_SHARE_LEN, len);
	int rc = share_call(j, s->home, &m, &reply);
	if (rc == 0 && (!message_get_bytes(&reply, MESSAGE_SHARE_PIECES, 0, &bytes, &got) || got > len))
		rc = -EBADMSG;
	if (rc == 0 && got)
		memcpy(buf, bytes, got);
	wire_msg_free(&m);
	wire_msg_free(&reply);
	return rc < 0 ? rc : (ssize_t)got;
}

static ssize_t read_all(struct job *j, struct shared *s, enum message_type what, uint8_t *buf, size_t len, uint64_t off)
{
	size_t done = 0;

	while (done < len) {
		size_t part = len - done < CARRY_BYTES ? len - done : CARRY_BYTES;
		ssize_t got = read_part(j, s, what, buf + done, part, off + done);

		if (got < 0)
			return got;
		done += (size_t)got;
		if ((size_t)got < part)
			break;
	}
	return (ssize_t)done;
}

int carry_read(struct job *j, struct shared *s, void *buf, size_t len, uint64_t off)
{
	ssize_t got = read_all(j, s, MESSAGE_SHARE_CARRY_READ, buf, len, off);

	if (got < 0)
		return (int)got;
	memset((uint8_t *)buf + got, 0, len - (size_t)got);
	return 0;
}

ssize_t carry_read_backing(struct job *j, struct shared *s, void *buf, size_t len, uint64_t off)
{
	return read_all(j, s, MESSAGE_SHARE_BACKING_READ, buf, len, off);
}
