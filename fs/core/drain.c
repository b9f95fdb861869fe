/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * What the core does for a drain: it remembers which private files could have been written since a session began (the
 * kernel does not tell us of writes to them), commits the steps that the agent reports, and lets go of descriptors
 * that a step has made stale. And the tick: a look at the private files that are open.
 */
#include "fs/core/private.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include "format/base/clock.h"

#define LEFT_ALONE_MAX  4096    /* more than that are drained although open: harmless, but not of use */
#define TICK_BUSY_USEC  20000u  /* while a private file grows, and in a session, which makes way for who writes */
#define TICK_QUIET_USEC 250000u /* while one is open */
#define TICK_YOUNG_USEC 1000000 /* just opened: its first bytes will come now */
#define TICK_MAX_FILES  256
#define TICK_CHUNK      (8u << 20) /* write-out begins in pieces of this size */
#define TICK_REWRITTEN  (1u << 20) /* bytes that a file counts for that was written and did not grow: nobody knows */

/*
 * A change of a private file is marked after it was made, still under the node's lock. Either the session began before the mark,
 * then the mark counts; or after it, then the session's snapshot is newer than the change. DRAINED takes the node's lock, so it
 * comes before the change or after the mark.
 */

/* session is held. Without a memory of what is busy nothing private may be given up: is_busy then says yes to all. */
static void busy_add(struct core *c, uint64_t ino)
{
	c->all_busy = c->all_busy || idmap_set(&c->busy, ino, 1) < 0;
}

void drain_mark_busy(struct core *c, uint64_t ino)
{
	pthread_mutex_lock(&c->session);
	if (c->in_session)
		busy_add(c, ino);
	pthread_mutex_unlock(&c->session);
}

static bool is_busy(struct core *c, uint64_t ino)
{
	pthread_mutex_lock(&c->session);
	bool busy = !c->in_session || c->all_busy || idmap_get(&c->busy, ino);
	pthread_mutex_unlock(&c->session);
	return busy;
}

/* session is held. Who writes to them is not known, but somebody does. */
static void leave_stragglers(struct core *c, const struct straggler *list, size_t num)
{
	for (size_t i = 0; i < num && c->left_alone.num < LEFT_ALONE_MAX; i++)
		(void)idmap_set(&c->left_alone, list[i].ino, 1);
}

void core_session_begin(struct core *c, bool leave_open)
{
	size_t num_stragglers;
	struct straggler *stragglers = core_stragglers(c, &num_stragglers);

	pthread_rwlock_wrlock(&c->through); /* before names: who writes through may wait for the backing directory */
	pthread_mutex_lock(&c->names);      /* a name goes before the snapshot, or is in doubt */
	pthread_mutex_lock(&c->tick);
	pthread_mutex_lock(&c->session);
	c->in_session = true;
	c->told++;
	c->all_busy = false;
	idmap_free(&c->busy);
	idmap_free(&c->left_alone);
	for (struct node *n = c->tick_head; n; n = n->tick_next) {
		busy_add(c, n->ino);
		if (leave_open && n->writers > 0 && c->left_alone.num < LEFT_ALONE_MAX)
			(void)idmap_set(
				&c->left_alone, n->ino, 1); /* out of memory: it is drained, which does no harm */
	}
	if (leave_open)
		leave_stragglers(c, stragglers, num_stragglers);
	pthread_mutex_unlock(&c->session);
	pthread_mutex_unlock(&c->tick);
	pthread_mutex_unlock(&c->names);
	pthread_rwlock_unlock(&c->through);
	free(stragglers);
}

void core_session_end(struct core *c)
{
	pthread_mutex_lock(&c->session);
	c->in_session = false;
	c->told++;
	pthread_cond_broadcast(&c->told_cond);
	doubt_clear(c);
	idmap_free(&c->busy);
	idmap_free(&c->left_alone);
	pthread_mutex_unlock(&c->session);
	space_signal(c);
	c->hooks.wake(c->hooks.arg); /* there is space to be given back */
}

size_t core_session_left_alone(struct core *c, uint64_t *out, size_t cap)
{
	pthread_mutex_lock(&c->session);
	size_t num = idmap_keys(&c->left_alone, out, cap);
	pthread_mutex_unlock(&c->session);
	return num;
}

bool drain_is_running(struct core *c)
{
	pthread_mutex_lock(&c->session);
	bool running = c->in_session;
	pthread_mutex_unlock(&c->session);
	return running;
}

bool drain_allows_through(struct core *c, uint64_t ino)
{
	pthread_mutex_lock(&c->session);
	bool allowed = !c->in_session || idmap_get(&c->left_alone, ino);
	pthread_mutex_unlock(&c->session);
	return allowed;
}

/*
 * Descriptors of what the file was before this step. The node's lock is held exclusively. *ret_let_go: the node was kept for
 * what is not owed any more; the caller has its reference.
 */
static void drop_stale(struct core *c, struct node *n, bool was_new, bool *ret_let_go)
{
	struct inode in;

	if (state_inode(c->state, n->ino, &in) < 0)
		return;
	if (!(in.flags & INODE_DIRTY_DATA)) {
		n->caught_up = false;
		n->through_dirty = n->through_before =
			false; /* the agent has synced the file, and nothing came after */
		n->through_error = 0;
		*ret_let_go = n->kept;
		n->kept = false;
	}
	if (n->opens == 0 && !n->through_dirty)
		data_close_backing(n);
	if (!(in.flags & INODE_PRIVATE) && n->pass_opens == 0 && n->private_fd >= 0)
		close(atomic_exchange(&n->private_fd, -1));
	if (was_new && !n->through_dirty)
		data_close_backing(n);
}

/* The marks of a session say whether a private file may have changed; that it has not is also looked at, before its bytes are given up. */
static bool differs_from_private(struct core *c, const struct inode *in, const struct record *rec)
{
	uint64_t size, allocated;
	int64_t mtime_ns;

	if (!(in->flags & INODE_PRIVATE) || rec->flags & RECORD_F_META_ONLY)
		return false;
	if (segment_private_size(c->segments, in->private_segment, &size, &allocated, &mtime_ns) < 0)
		return true;
	return size != rec->size || mtime_ns != rec->mtime_ns;
}

/*
 * Carried as its home's alone, while others began to write to it: what its home had written is a layer by now, of which the domain homes have
 * been told, or are about to be. It stays, and all is carried again, from their maps.
 */
static bool is_shared_since(const struct inode *in, const struct record *rec)
{
	return (in->flags & (INODE_SHARED | INODE_FOREIGN)) == INODE_SHARED && rec->stamp == 0;
}

static int drained_locked(struct core *c, struct node *n, struct record *rec, bool *ret_let_go)
{
	struct inode in;
	int rc = state_inode(c->state, rec->ino, &in);
	bool was_new = rc == 0 && in.flags & INODE_NEW;

	/* Deleted meanwhile, and still open: the backing file goes soon, so the store's bytes must stay. */
	if (rc == 0 && in.flags & INODE_ORPHAN)
		return 0;
	if (rc == 0 && is_shared_since(&in, rec))
		rec->flags |= RECORD_F_META_ONLY;
	if (is_busy(c, rec->ino) || n->pass_opens > 0 ||
		(rc == 0 && (straggler_holds(c, n, &in) || differs_from_private(c, &in, rec))))
		rec->flags |= RECORD_F_KEEP_PRIVATE;
	rc = tree_commit_drained(c, rec);
	stamp_forget(n);
	if (rc == 0)
		drop_stale(c, n, was_new, ret_let_go);
	return rc;
}

static int step_drained(struct core *c, struct record *rec)
{
	struct node_ref r NODE_CLEANUP = { c, NULL };
	bool let_go = false;
	struct inode in;

	/* The node is made if need be, so that its lock keeps an open of the file away from the step. */
	int rc = state_inode(c->state, rec->ino, &in);
	if (rc == 0)
		rc = node_of_state(c, &in, &r.n);
	if (rc < 0)
		return rc == -ENOENT ? tree_commit_drained(c, rec) : rc;
	pthread_rwlock_wrlock(&r.n->lock);
	rc = drained_locked(c, r.n, rec, &let_go);
	pthread_rwlock_unlock(&r.n->lock);
	if (let_go)
		node_put(c, r.n);
	if (rc == 0)
		c->hooks.invalidate(rec->ino, false, c->hooks.arg);
	space_signal(c);
	return rc;
}

/* What the session was asked to leave alone may have gone through to its backing file since: its data may not come from a snapshot. */
static bool is_left_alone(struct core *c, const struct record *rec)
{
	pthread_mutex_lock(&c->session);
	bool left =
		rec->type != RECORD_REMOVED && !(rec->flags & RECORD_F_MOVED) && idmap_get(&c->left_alone, rec->ino);
	pthread_mutex_unlock(&c->session);
	return left;
}

/* A file whose bytes are elsewhere now, under other names. Only when nobody can have it open any more. */
static int step_gone(struct core *c, struct record *rec)
{
	struct inode in;
	int rc = state_inode(c->state, rec->ino, &in);

	if (rc < 0)
		return rc;
	if (!c->unmounted || !S_ISREG(in.mode) || in.nlink != 1)
		return -EINVAL;
	pthread_mutex_lock(&c->names);
	rc = store_commit(c->store, rec);
	pthread_mutex_unlock(&c->names);
	space_signal(c);
	return rc;
}

static int commit_step(struct core *c, struct record *rec)
{
	if (is_left_alone(c, rec))
		return -ESTALE;
	if (rec->type == RECORD_DRAINED)
		return step_drained(c, rec);
	if (rec->type == RECORD_FORGET)
		return step_gone(c, rec);
	if (rec->type != RECORD_PLACED && rec->type != RECORD_REMOVED)
		return -EINVAL;
	pthread_mutex_lock(&c->names);
	int rc = tree_commit_drained(c, rec);
	pthread_mutex_unlock(&c->names);
	return rc;
}

int core_drain_step(struct core *c, struct record *rec)
{
	int rc = commit_step(c, rec);

	motion_told(c);
	return rc;
}

/* The list of nodes that may be written. */

void tick_add(struct core *c, struct node *n)
{
	pthread_mutex_lock(&c->tick);
	if (!n->on_tick) {
		n->on_tick = true;
		n->tick_prev = NULL;
		n->tick_next = c->tick_head;
		if (c->tick_head)
			c->tick_head->tick_prev = n;
		c->tick_head = n;
		n->tick_size = n->tick_written = 0;
		n->tick_seen = false;
		n->tick_since_usec = clock_usec();
	}
	pthread_mutex_unlock(&c->tick);
	c->hooks.wake(c->hooks.arg);
}

void tick_remove(struct core *c, struct node *n)
{
	pthread_mutex_lock(&c->tick);
	if (n->on_tick) {
		n->on_tick = false;
		if (n->tick_prev)
			n->tick_prev->tick_next = n->tick_next;
		else
			c->tick_head = n->tick_next;
		if (n->tick_next)
			n->tick_next->tick_prev = n->tick_prev;
	}
	pthread_mutex_unlock(&c->tick);
}

struct tick_range {
	int fd; /* our own */
	uint64_t off, len;
};

struct tick_round {
	struct tick_range ranges[TICK_MAX_FILES];
	size_t num;
	bool any, young, grew;
};

/* How much was written to n since it was last looked at. Before the first look: what it had, or was written in a moment. */
static uint64_t estimate_written(const struct node *n, const struct stat *st)
{
	if (!n->tick_seen)
		return 0;
	if ((uint64_t)st->st_blocks > n->tick_blocks)
		return ((uint64_t)st->st_blocks - n->tick_blocks) * 512;
	return (uint64_t)st->st_size == n->tick_size ? TICK_REWRITTEN : 0;
}

/* tick is held. */
static void look_at(struct core *c, struct node *n, struct tick_round *round)
{
	struct stat st;
	int fd = n->private_fd;

	if (fd < 0 || fstat(fd, &st) < 0)
		return;
	round->any = true;
	round->young |= clock_usec() - n->tick_since_usec < TICK_YOUNG_USEC;
	int64_t mtime_ns = clock_ns_of(st.st_mtim);
	if (mtime_ns == n->tick_mtime_ns && (uint64_t)st.st_size == n->tick_size)
		return;
	round->grew = true;
	c->private_written_bytes += estimate_written(n, &st);
	n->tick_seen = true;
	n->tick_blocks = (uint64_t)st.st_blocks;
	n->tick_mtime_ns = mtime_ns;
	n->tick_size = (uint64_t)st.st_size;
	if (!c->write_out || n->tick_size < n->tick_written + TICK_CHUNK || round->num == TICK_MAX_FILES)
		return;
	uint64_t upto = n->tick_size / TICK_CHUNK * TICK_CHUNK;
	int own = fcntl(fd, F_DUPFD_CLOEXEC, 0);
	if (own < 0)
		return;
	round->ranges[round->num++] = (struct tick_range){ own, n->tick_written, upto - n->tick_written };
	n->tick_written = upto;
}

uint64_t core_tick(struct core *c)
{
	struct tick_round round = { .num = 0 };
	struct store_space sp;

	pthread_mutex_lock(&c->tick);
	for (struct node *n = c->tick_head; n; n = n->tick_next)
		look_at(c, n, &round);
	pthread_mutex_unlock(&c->tick);
	for (size_t i = 0; i < round.num; i++) {
		sync_file_range(round.ranges[i].fd, (off_t)round.ranges[i].off, (off_t)round.ranges[i].len,
			SYNC_FILE_RANGE_WRITE);
		close(round.ranges[i].fd);
	}
	if (round.grew) {
		data_touched(c);
		if (store_space(c->store, &sp) == 0 && sp.used_bytes * 100 >= sp.capacity_bytes * c->high_water_percent)
			c->hooks.want_drain(false, c->hooks.arg);
	}
	if (round.grew || round.young || (round.any && drain_is_running(c)))
		return TICK_BUSY_USEC;
	return round.any ? TICK_QUIET_USEC : 0;
}
