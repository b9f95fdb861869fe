/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Opening and closing files in a job. At a file's home this is core's affair, and no message is sent; the table of shared
 * files only learns that it is open. Elsewhere the home is told how often this node has the file open for reading and for
 * writing: the numbers, not their change, so that telling it again does no harm. Who writes gets a layer, an inode of
 * our own state that holds what this node writes.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "fs/job/ahead.h"
#include "format/base/clock.h"
#include "fs/job/lease.h"
#include "fs/job/quiet.h"

#define ADOPT_TRIES    8
#define STREAMED_BYTES (64u << 20)

static bool is_writable(int flags)
{
	return (flags & O_ACCMODE) != O_RDONLY;
}

/* ---- the home is told */

/* With a time, since the home may come to a closing after the opening behind it. */
static void put_counts(struct job *j, struct shared *s, struct wire_msg *m)
{
	pthread_mutex_lock(&s->mutex);
	message_init(m, MESSAGE_SHARE_REGISTER);
	message_put(m, MESSAGE_SHARE_INO, s->ino);
	message_put(m, MESSAGE_SHARE_READERS, s->readers);
	message_put(m, MESSAGE_SHARE_WRITERS, s->writers);
	message_put(m, MESSAGE_SHARE_END, s->own_end);
	message_put(m, MESSAGE_SHARE_AT_STAMP, s->end_cut < s->stamp ? s->stamp : s->end_cut);
	message_put(m, MESSAGE_SHARE_TIME, (uint64_t)clock_now(state_clock(j->state)));
	pthread_mutex_unlock(&s->mutex);
}

/* ---- layers */

/* Where it belongs: as its home knows of the backing directory; of a new file, as it was found here. */
static void name_foreign(struct job *j, const struct view *v, struct record *rec)
{
	rec->parent = v->parent;
	memcpy(rec->name, v->name, sizeof(rec->name));
	if (!v->name[0])
		(void)remote_name(j, v->ino, &rec->parent, rec->name);
}

/* Which file of the backing directory it is; no bytes of the layer are in that by this. */
static int note_backing(struct job *j, const struct view *v)
{
	struct record rec = { .type = RECORD_DRAINED,
		.flags = RECORD_F_META_ONLY,
		.ino = v->ino,
		.size = v->size,
		.backing_dev = v->backing_dev,
		.backing_ino = v->backing_ino };

	return v->backing_ino ? store_commit(j->opt.store, &rec) : 0;
}

/* Should the home be lost, recovery has the name from here. */
static int make_foreign(struct job *j, const struct view *v)
{
	struct record rec = {
		.type = RECORD_FOREIGN, .ino = v->ino, .mode = v->mode, .uid = v->uid, .gid = v->gid, .size = v->size
	};
	struct inode in;

	name_foreign(j, v, &rec);
	if (state_inode(store_state(j->opt.store), v->ino, &in) == 0 &&
		(!v->backing_ino || in.backing_ino == v->backing_ino) &&
		(!rec.name[0] || (in.origin_parent == rec.parent && strcmp(in.origin_name, rec.name) == 0)))
		return 0;
	int rc = store_commit(j->opt.store, &rec);
	return rc < 0 ? rc : note_backing(j, v);
}

void shared_note_place(struct job *j, const struct view *v)
{
	struct inode in;

	if (v->backing_ino && state_inode(store_state(j->opt.store), v->ino, &in) == 0 && in.flags & INODE_FOREIGN)
		(void)make_foreign(j, v);
}

/* open_lock is held. */
static int open_layer(struct job *j, struct shared *s, const struct view *v)
{
	struct core_open_reply open;

	if (s->layer || s->writers == 0 || !s->is_shared)
		return 0; /* of one that is not shared all is carried to its home */
	int rc = make_foreign(j, v);
	if (rc == 0)
		rc = core_open_number(j->core, s->ino, O_RDWR, &open);
	if (rc == 0)
		s->layer = open.file;
	return rc;
}

/* ---- registering */

/* open_lock is held. */
static int register_locked(struct job *j, struct shared *s, struct view *v)
{
	struct wire_msg m = { 0 }, reply = { 0 };

	put_counts(j, s, &m);
	j->share->messages++;
	uint64_t asked_usec = clock_usec();
	int rc = remote_call(j, s->ino, NULL, &m, &reply, NULL);
	if (rc == 0) {
		view_get(&reply, v);
		shared_apply(s, v, asked_usec);
		if (v->flags & VIEW_BOUND)
			lease_bind(s);
		pthread_mutex_lock(&s->mutex);
		s->registered = true;
		pthread_mutex_unlock(&s->mutex);
		rc = open_layer(j, s, v);
	}
	wire_msg_free(&m);
	wire_msg_free(&reply);
	return rc;
}

bool shared_is_unregistered(struct shared *s)
{
	pthread_mutex_lock(&s->mutex);
	bool is = !s->at_home && !s->registered && s->readers + s->writers > 0;
	pthread_mutex_unlock(&s->mutex);
	return is;
}

int shared_register(struct job *j, struct shared *s)
{
	struct view *v = malloc(sizeof(*v));
	int rc = v ? 0 : -ENOMEM;

	pthread_mutex_lock(&s->open_lock);
	if (rc == 0 && s->readers + s->writers > 0)
		rc = register_locked(j, s, v);
	pthread_mutex_unlock(&s->open_lock);
	free(v);
	return rc;
}

static void count_opens(struct shared *s, int flags, uint32_t by)
{
	pthread_mutex_lock(&s->mutex);
	if (is_writable(flags))
		s->writers += by;
	else
		s->readers += by;
	if (s->writers == 0)
		lease_end(s);
	pthread_mutex_unlock(&s->mutex);
}

struct closing { /* of what the home is told until it has heard it */
	STAILQ_ENTRY(closing) in_list;
	struct job *j;
	uint32_t home;
	struct wire_msg m; /* owned */
};

static void send_closing(struct job *j, void *arg);

static void closing_free(struct closing *c)
{
	wire_msg_free(&c->m);
	free(c);
}

/* Too much waits for that node already. */
static void keep_closing(struct closing *c)
{
	struct share *sh = c->j->share;

	pthread_mutex_lock(&sh->wake);
	STAILQ_INSERT_TAIL(&sh->closings, c, in_list);
	pthread_mutex_unlock(&sh->wake);
}

/* Else the home would keep the file open for us. What we have opened since counts more there, by its time. */
static void closing_done(int status, const struct wire_msg *reply, void *arg)
{
	struct closing *c = arg;

	(void)reply;
	if (!c->j->ending && (status == -EAGAIN || status == -ENOMEM)) {
		keep_closing(c);
		return;
	}
	if (!c->j->ending && status == -ETIMEDOUT && workers_do(c->j->workers, send_closing, c) == 0)
		return;
	closing_free(c); /* a daemon that is no more has forgotten us */
}

static void send_closing(struct job *j, void *arg)
{
	struct closing *c = arg;

	j->share->messages++;
	int rc = peers_call_async(j->peers, c->home, &c->m, closing_done, c);
	if (rc < 0)
		closing_done(rc, NULL, c);
}

static struct closing *take_closing(struct closing_list *list)
{
	struct closing *c = STAILQ_FIRST(list);

	if (c)
		STAILQ_REMOVE_HEAD(list, in_list);
	return c;
}

void closings_round(struct job *j)
{
	struct closing_list list = STAILQ_HEAD_INITIALIZER(list);
	struct closing *c;

	pthread_mutex_lock(&j->share->wake);
	STAILQ_CONCAT(&list, &j->share->closings);
	pthread_mutex_unlock(&j->share->wake);
	while ((c = take_closing(&list)))
		send_closing(j, c);
}

void closings_drop(struct job *j)
{
	struct closing *c;

	while ((c = take_closing(&j->share->closings)))
		closing_free(c);
}

/* open_lock is held. Nobody waits for it: in order behind what came before, it arrives in time. */
static void tell_closed(struct job *j, struct shared *s)
{
	struct closing *c = calloc(1, sizeof(*c));

	if (!c)
		return; /* until it is opened here again, or we end */
	c->j = j;
	c->home = s->home;
	put_counts(j, s, &c->m);
	send_closing(j, c);
}

/* open_lock is held. */
static void close_layer(struct job *j, struct shared *s)
{
	if (s->writers == 0 && s->layer) {
		core_release(j->core, s->layer);
		s->layer = NULL;
	}
}

/* ---- open, elsewhere than at home */

/* open_lock is held. */
static int open_locked(struct job *j, struct shared *s, int flags, struct view *v)
{
	count_opens(s, flags, 1);
	int rc = register_locked(j, s, v);
	if (rc < 0) {
		count_opens(s, flags, -1u);
		close_layer(j, s);
		tell_closed(j, s);
	}
	return rc;
}

static int open_away(struct job *j, struct shared *s, int flags)
{
	struct view *v = malloc(sizeof(*v));

	if (!v)
		return -ENOMEM;
	pthread_mutex_lock(&s->open_lock);
	int rc = open_locked(j, s, flags, v);
	pthread_mutex_unlock(&s->open_lock);
	free(v);
	return rc == -ENOENT ? -ESTALE : rc;
}

/* What its home did not know while it was open here is looked at again by the thread of share.c. */
static bool is_to_be_judged(struct shared *s)
{
	pthread_mutex_lock(&s->mutex);
	bool is = s->unknown && s->readers + s->writers == 0;
	if (is) {
		s->unknown = false;
		shared_resend(s);
	}
	pthread_mutex_unlock(&s->mutex);
	return is;
}

static void close_away(struct job *j, struct shared *s, int flags)
{
	pthread_mutex_lock(&s->open_lock);
	count_opens(s, flags, -1u);
	close_layer(j, s);
	tell_closed(j, s);
	pthread_mutex_unlock(&s->open_lock);
	if (is_to_be_judged(s))
		share_poke(j);
}

/* How the kernel shall treat it: whoever may write goes past the page cache; pages of others' files are dropped when told. */
static void choose_reply(int flags, struct core_open_reply *ret)
{
	ret->direct_io = ret->parallel = is_writable(flags);
	ret->keep_cache = false;
	ret->stamp = 0;
}

/*
 * A large file of another node is read past the page cache, too: it is read once, from front to back, more often than not; we read
 * ahead ourselves; and each of its bytes is copied once instead of twice. Not where that would forbid to map it.
 */
static bool is_streamed(struct job *j, struct shared *s)
{
	return core_kernel(j->core)->direct_mmap && !shared_is_outside(s) && shared_size(j, s) >= STREAMED_BYTES;
}

/* What the backing directory has of it others may change, too. Our kernel has pages of before, or not. */
static void watch_outside(struct job *j, struct shared *s, struct core_open_reply *ret)
{
	bool outside = shared_is_outside(s);

	pthread_mutex_lock(&s->mutex);
	ret->stamp = outside ? s->file_stamp : 0;
	pthread_mutex_unlock(&s->mutex);
	ret->had_pages = true;
	if (ret->stamp && core_kernel(j->core)->direct_mmap && core_backing_timeout_usec(j->core) == 0)
		ret->direct_io = true;
}

static int opened_away(struct job *j, struct shared *s, int flags, struct job_file *file, struct core_open_reply *ret)
{
	file->losses = s->losses;
	int rc = open_away(j, s, flags);
	if (rc < 0)
		return rc;
	file->shared = s;
	file->flags = flags;
	*ret = (struct core_open_reply){ 0 };
	choose_reply(flags, ret);
	ret->direct_io = ret->direct_io || is_streamed(j, s);
	watch_outside(j, s, ret);
	if (flags & O_TRUNC)
		rc = share_truncate(j, s->ino, 0);
	if (rc < 0) {
		close_away(j, s, flags);
		file->shared = NULL;
	}
	return rc;
}

/* ---- open, at home */

/* What is changed must be in the store, and its directories in the tree. */
static int adopt_home(struct job *j, uint64_t ino)
{
	struct hint hint;
	int rc = core_adopt(j->core, ino);

	for (int tries = 0; rc == -EREMCHG && tries < ADOPT_TRIES; tries++) {
		remote_hint(j, ino, &hint);
		rc = hint.dir ? tree_know_above(j, hint.dir, hint.path) : -ESTALE;
		rc = rc < 0 ? rc : core_adopt(j->core, ino);
	}
	return rc;
}

/* O_TRUNC of a file that others have open is theirs, too. */
static int open_home(struct job *j, struct shared *s, int flags, struct job_file *file, struct core_open_reply *ret)
{
	bool cut = false;
	int rc = is_writable(flags) || flags & O_TRUNC ? adopt_home(j, s->ino) : 0;

	if (rc < 0)
		return rc;
	pthread_rwlock_rdlock(&s->lock);
	if (flags & O_TRUNC && (s->is_shared || registry_has_openers(s)))
		cut = true;
	rc = core_open(j->core, s->ino, cut ? flags & ~O_TRUNC : flags, ret);
	if (flags & O_TRUNC)
		s->shapes++;
	pthread_rwlock_unlock(&s->lock);
	if (rc == 0)
		file->local = ret->file;
	return rc == 0 && cut ? share_truncate(j, s->ino, 0) : rc;
}

static void attach_home(struct shared *s, int flags, struct job_file *file, struct core_open_reply *ret)
{
	file->shared = s;
	file->flags = flags;
	if (!s->is_shared)
		return;
	choose_reply(flags, ret);
	registry_catch_up(s);
}

static int open_any(struct job *j, uint64_t ino, int flags, struct job_file *file, struct core_open_reply *ret)
{
	struct shared *s = shared_get(j, ino);

	if (!s)
		return -ENOMEM;
	int rc = (is_writable(flags) || flags & O_TRUNC) && !(s->at_home && !s->is_shared) ? power_wait_cuts(j) : 0;
	if (rc == 0)
		rc = shared_is_home(j, s) ? open_home(j, s, flags, file, ret) : opened_away(j, s, flags, file, ret);
	if (rc < 0) {
		if (file->local)
			core_release(j->core, file->local);
		file->local = NULL;
		shared_put(j, s);
	} else if (shared_is_home(j, s)) {
		attach_home(s, flags, file, ret);
	}
	return rc;
}

int share_open(struct job *j, uint64_t ino, int flags, struct job_file *file, struct core_open_reply *ret)
{
	bool changes = (is_writable(flags) || flags & O_TRUNC) && remote_home(j, ino) == peers_self(j->peers);

	if (changes)
		quiet_begin_change(j);
	int rc = open_any(j, ino, flags, file, ret);
	if (changes)
		quiet_end_change(j);
	return rc;
}

int share_opened(struct job *j, uint64_t ino, int flags, struct job_file *file, struct core_open_reply *ret)
{
	struct shared *s = shared_get(j, ino);

	if (!s)
		return -ENOMEM;
	attach_home(s, flags, file, ret);
	return 0;
}

void share_release(struct job *j, struct job_file *file)
{
	struct shared *s = file->shared;

	if (file->stream.run)
		ahead_forget(j, s->ino);

	if (!shared_is_home(j, s))
		close_away(j, s, file->flags);
	if (file->local)
		core_release(j->core, file->local);
	shared_put(j, s);
}
