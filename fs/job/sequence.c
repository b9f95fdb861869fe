/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Node 0 puts the changes of the directory tree in order: one after the other, in a thread of its own. A change is done with
 * core's usual functions on node 0's own state, which is its moment; the records that this took go to all other nodes,
 * and before all of them have them no other change begins. So a node lacks at most the records of one change,
 * unless it was given up.
 *
 * A directory that is to go is closed first on all nodes (PREPARE): no name below it is a file's or locked, and none will be
 * until COMMIT, which has no records when nothing comes of it. Nor does it go while a node that knows it is given up: that may have files there. A name that is just locked there makes the change wait, behind all others: the
 * lock's owner may be one of them. Who asks what has become of a name is then answered before it. So if the daemon that asked for the change
 * has died, it is not done any more: the locks that kept its names for it are in doubt, and what was answered must stay true.
 *
 * A node that cannot take what was committed is asked again for a while; then it serves no names (lag.c), and no other change is begun before it
 * has been able to, or was given up. It lacks the records of one change, like any other: no number of changes could be kept for it.
 *
 * After a restart of node 0's daemon its last records come from its journal, in case that some node does not have them.
 *
 * PREPARE gives the change a number, which no other one has, nor one of another daemon here: a node may have been prepared for a change that it did
 * not hear the end of. Whoever takes a COMMIT, of whatever change, knows that all before it are over (tree.c).
 */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "fs/job/hidden.h"
#include "format/base/clock.h"
#include "fs/job/private.h"

#define SEQUENCE_BUSY_USEC  1000u
#define SEQUENCE_BUSY_TRIES 30000u
#define SEQUENCE_FULL_USEC  20000
#define SEQUENCE_PATIENCE   5000000 /* usec for a node whose store is full */
#define SEQUENCE_CHASE_USEC 200000
#define SEQUENCE_NOBODY     UINT32_MAX /* has asked for it */
#define SEQUENCE_NONE       UINT64_MAX

struct change {
	struct change *next;
	struct peers_request *rq; /* NULL: TREE_SYNC */
	unsigned int tries;
};

struct sequence {
	struct job *j;
	pthread_mutex_t lock;
	pthread_cond_t cond, looked;
	pthread_t thread;
	bool started;
	bool begun;  /* the first assembly was seen */
	bool synced; /* what brings all nodes up to us is in front of the queue, or done */
	struct change *first, **last;
	int *behind; /* owned; by node, why it has not all: 0: it has; -EHOSTDOWN: it was given up; -EILSEQ: no more can be done */
	bool *restarted; /* owned; by node: its daemon is another one, whose journal may have lost its end with the power */
	bool *ahead; /* owned; by node: it has what we have lost, for good: the same numbers are other changes here */
	uint64_t *
		unknown; /* owned; by node: one that was given up has not heard of directories with that number or a higher one; else SEQUENCE_NONE */
	uint32_t num_behind; /* nodes that no change may leave further behind */
	bool in_hand;        /* a change: nobody looks */
	unsigned int looking;
	struct change *looks, **last_look; /* who waits for the end of it */
	bool look;                         /* one of the others may be back */
	int64_t chased_usec;
	/* the thread's own */
	uint64_t first_stamp;         /* of the change in hand; 0: it has no record yet */
	uint64_t prepared;            /* its number, if nodes were told of what is to come; else 0 */
	const struct wire_msg *asked; /* borrowed */
	uint32_t asker;
};

/* ---- records */

static int64_t now_usec(void)
{
	return (int64_t)clock_usec();
}

static void note_record(const struct record *rec, void *arg)
{
	struct sequence *s = arg;

	tree_log_add(s->j, rec);
	if (rec->type == RECORD_RENAME)
		s->j->moved = rec->stamp;
	if (!s->first_stamp)
		s->first_stamp = rec->stamp;
	if (s->asker != peers_self(s->j->peers))
		tree_tell_kernel(s->j, rec, !s->prepared);
}

/* from: the first record, 0: none. Of changes before the one in hand nobody is taken for prepared, nor for the asker. */
static void put_commit(struct sequence *s, struct wire_msg *m, uint64_t from, enum tree_word word)
{
	uint64_t last = state_tree_stamp(s->j->state);
	bool in_hand = from == s->first_stamp;

	message_init(m, MESSAGE_TREE_COMMIT);
	message_put(m, MESSAGE_ASKER, in_hand ? s->asker : SEQUENCE_NOBODY);
	message_put(m, MESSAGE_PREPARED, in_hand ? s->prepared : 0);
	message_put(m, MESSAGE_STAMP, last);
	message_put(m, MESSAGE_COUNT, word);
	if (from)
		tree_log_put(s->j, m, from, last);
}

/* A change of ours has the number of its last one. Numbers that were lost with the power are given again. */
static bool is_other(struct sequence *s, uint64_t has, uint64_t time_ns)
{
	uint64_t ours = tree_log_time(s->j, has);

	return ours && time_ns && ours != time_ns;
}

/* What it lacks is kept no more, or it has, or had, what we have lost: has, made at time_ns. */
static bool is_lost(struct sequence *s, uint32_t node, uint64_t has, uint64_t time_ns)
{
	uint64_t last = state_tree_stamp(s->j->state);
	bool ahead = has > last || is_other(s, has, time_ns);
	char name[128];

	pthread_mutex_lock(&s->lock);
	s->ahead[node] |= ahead;
	pthread_mutex_unlock(&s->lock);
	if (!s->ahead[node] && (has == last || tree_log_has(s->j, has + 1)))
		return false;
	if (s->behind[node] != -EILSEQ)
		job_log(s->j, true, "tree_lost", "node=\"%s\" has=%llu last=%llu",
			peers_name(s->j->peers, node, name, sizeof(name)), (unsigned long long)has,
			(unsigned long long)last);
	return true;
}

/* What that node lacks, from what it says to have. -ENODATA: we have not kept that, or lack what it has; it knows. */
static int catch_up(struct sequence *s, uint32_t node, bool last_try)
{
	struct wire_msg m = { 0 }, reply = { 0 };

	message_init(&m, MESSAGE_TREE_STAMP);
	int rc = peers_call(s->j->peers, node, &m, &reply);
	uint64_t has = rc == 0 ? message_get(&reply, MESSAGE_STAMP) : 0;
	uint64_t last = state_tree_stamp(s->j->state);
	bool lost = rc == 0 && is_lost(s, node, has, message_get(&reply, MESSAGE_TIME));
	if (rc == 0) {
		put_commit(s, &m, has < last && !lost ? has + 1 : 0,
			s->ahead[node]     ? TREE_AHEAD
			: lost || last_try ? TREE_LAST_TRY
					   : TREE_TRY);
		rc = peers_call(s->j->peers, node, &m, NULL);
	}
	if (lost && rc == -EILSEQ)
		rc = -ENODATA;
	wire_msg_free(&m);
	wire_msg_free(&reply);
	return rc;
}

static bool holds_up(int behind)
{
	return behind && behind != -EHOSTDOWN && behind != -EILSEQ;
}

/* rc: of the last try. */
static void note_behind(struct sequence *s, uint32_t node, int rc)
{
	char name[128];

	rc = rc == -ESHUTDOWN ? -EHOSTDOWN : rc == -ENODATA ? -EILSEQ : rc;
	pthread_mutex_lock(&s->lock);
	int before = s->behind[node];
	s->behind[node] = rc;
	if (rc == -EHOSTDOWN && s->unknown[node] == SEQUENCE_NONE)
		s->unknown[node] = state_new_ino(s->j->state);
	s->num_behind += holds_up(rc) - holds_up(before);
	pthread_mutex_unlock(&s->lock);
	if (rc != before && rc < 0 && rc != -EHOSTDOWN)
		job_log(s->j, true, "tree_behind", "node=\"%s\" status=%d text=\"%s%s\"",
			peers_name(s->j->peers, node, name, sizeof(name)), rc,
			holds_up(rc) ? "no directory can be changed before: " : "",
			lag_remedy(s->ahead[node] ? LAG_AHEAD : rc));
	if (rc == 0 && before)
		job_log(s->j, false, "tree_complete", "node=\"%s\"", peers_name(s->j->peers, node, name, sizeof(name)));
}

/* Is it worth asking again? *since: when it was full first. */
static bool may_pass(int rc, int64_t *since)
{
	if (rc == -ECONNRESET || rc == -ETIMEDOUT || rc == -EILSEQ || rc == -EAGAIN)
		return true;
	if (rc != -ENOSPC && rc != -ENOMEM)
		return false;
	if (!*since)
		*since = now_usec();
	usleep(SEQUENCE_FULL_USEC);
	return now_usec() - *since < SEQUENCE_PATIENCE;
}

/* Until the node has everything, or was given up, or knows that it cannot have it. */
static void insist(struct sequence *s, uint32_t node, int rc)
{
	bool last_try = false;
	int64_t since = 0;

	while (rc < 0 && rc != -EHOSTDOWN && rc != -ESHUTDOWN && rc != -ENODATA && !s->j->ending) {
		if (!may_pass(rc, &since)) {
			if (last_try)
				break;
			last_try = true;
		}
		rc = catch_up(s, node, last_try);
	}
	if (!s->j->ending)
		note_behind(s, node, rc);
}

/* The same, once: whoever cannot be reached just now stays behind. */
static void try_again(struct sequence *s, uint32_t node)
{
	int rc = catch_up(s, node, true);

	if (rc != -ECONNRESET && rc != -ETIMEDOUT && rc != -EAGAIN && !s->j->ending)
		note_behind(s, node, rc);
}

static bool takes_restarted(struct sequence *s, uint32_t node)
{
	pthread_mutex_lock(&s->lock);
	bool was = s->restarted[node];
	s->restarted[node] = false;
	pthread_mutex_unlock(&s->lock);
	return was;
}

/* Between two changes: those that hold us up, now and then; and all that may be back. */
static void chase(struct sequence *s)
{
	bool due = s->num_behind && now_usec() - s->chased_usec >= SEQUENCE_CHASE_USEC;

	pthread_mutex_lock(&s->lock);
	bool look = s->look;
	s->look = false;
	pthread_mutex_unlock(&s->lock);
	for (uint32_t i = 0; s->behind && (due || look) && i < peers_count(s->j->peers); i++) {
		if (look && (takes_restarted(s, i) || (s->behind[i] && !holds_up(s->behind[i]))))
			insist(s, i, -EAGAIN);
		else if (holds_up(s->behind[i]))
			try_again(s, i);
	}
	if (due)
		s->chased_usec = now_usec();
}

void sequence_troubles(struct job *j, void (*say)(const char *text, void *arg), void *arg)
{
	struct sequence *s = j->sequence;
	uint32_t num = peers_count(j->peers);
	char text[512], name[128];

	for (uint32_t i = 1; i < num; i++) {
		pthread_mutex_lock(&s->lock);
		int rc = s->behind ? s->behind[i] : 0;
		int why = rc == -EILSEQ && s->ahead[i] ? LAG_AHEAD : rc;
		pthread_mutex_unlock(&s->lock);
		if (rc == 0 || rc == -EHOSTDOWN)
			continue;
		snprintf(text, sizeof(text), "%s: its store has not taken a change of the directory tree (%s)%s: %s",
			peers_name(j->peers, i, name, sizeof(name)), lag_reason(why),
			holds_up(rc) ? ", before which no other can be made" : "", lag_remedy(why));
		say(text, arg);
	}
}

/* To all nodes, also when there is nothing but the end of what PREPARE began. */
static void distribute(struct sequence *s)
{
	uint32_t num = peers_count(s->j->peers);
	int *status = calloc(num, sizeof(*status));
	struct wire_msg m = { 0 };

	if (!s->first_stamp && !s->prepared) {
		free(status);
		return;
	}
	put_commit(s, &m, s->first_stamp, TREE_TRY);
	if (status)
		(void)peers_call_all(s->j->peers, &m, status, NULL, NULL);
	for (uint32_t i = 0; i < num; i++)
		if (!status || status[i] != -EILSEQ || s->behind[i] != -EILSEQ)
			insist(s, i, status ? status[i] : -EAGAIN);
	wire_msg_free(&m);
	free(status);
	s->prepared = 0;
	s->first_stamp = 0;
}

/* ---- may a directory go? And what moves is not to be seen in two places. */

static int is_shown(const char *name, uint64_t ino, uint32_t type, void *arg)
{
	(void)ino, (void)type;
	return hidden_has(arg, name) ? 0 : -ENOTEMPTY;
}

/* What of the backing directory is to be seen in it? */
static int check_hidden(struct sequence *s, struct hidden *h)
{
	int rc = hidden_gather(h);

	return rc == 0 ? core_each_backing(s->j->core, h->dir, is_shown, h) : rc;
}

static void put_place(
	struct wire_msg *m, enum message_tag dir_tag, uint64_t dir, enum message_tag tag, const char *name)
{
	message_put(m, dir_tag, dir);
	message_put_str(m, tag, name);
}

/* One that was given up. What other nodes have there, or have been told of, they say. */
static bool may_have_files(struct sequence *s, uint32_t node, uint64_t dir)
{
	pthread_mutex_lock(&s->lock);
	uint64_t unknown = s->unknown[node];
	pthread_mutex_unlock(&s->lock);
	return dir && (dir & STATE_BACKING_INO_BIT || dir < unknown);
}

struct names_of { /* of a request */
	char name[RECORD_NAME_MAX + 1], from[RECORD_NAME_MAX + 1];
	uint64_t dir, from_dir;
};

/* dir: that may go; moving, at from, and other, at name: whose names are not to be believed; 0: none. */
static int prepare(struct sequence *s, const struct names_of *n, uint64_t dir, uint64_t moving, uint64_t other)
{
	uint32_t num = peers_count(s->j->peers);
	int *status = calloc(num, sizeof(*status));
	struct hidden h = { .j = s->j, .dir = dir };
	struct wire_msg m = { 0 };
	int rc = 0;

	if (!status)
		return -ENOMEM;
	s->prepared = (uint64_t)peers_time_ns(s->j->peers);
	message_init(&m, MESSAGE_TREE_PREPARE);
	message_put(&m, MESSAGE_CLOSED, dir);
	message_put(&m, MESSAGE_ASKER, s->asker);
	message_put(&m, MESSAGE_INO, moving);
	put_place(&m, MESSAGE_FROM_DIR, n->from_dir, MESSAGE_FROM, n->from);
	message_put(&m, MESSAGE_OTHER, other);
	put_place(&m, MESSAGE_DIR, n->dir, MESSAGE_NAME, n->name);
	message_put(&m, MESSAGE_PREPARED, s->prepared);
	(void)peers_call_all(s->j->peers, &m, status, hidden_take, &h);
	for (uint32_t i = 0; i < num; i++) {
		if (status[i] == -EHOSTDOWN)
			status[i] = may_have_files(s, i, dir) ? -EIO : 0;
		if (rc == 0 || status[i] == -ENOTEMPTY) /* which is certain */
			rc = status[i] == -ECONNRESET ? -EBUSY : status[i];
	}
	if (rc == 0 && dir)
		rc = check_hidden(s, &h);
	if (rc == 0 && late_is_over(s->j, s->asked))
		rc = -ETIME;
	hidden_free(&h);
	wire_msg_free(&m);
	free(status);
	return rc == -ESTALE ? 0 : rc; /* it has gone: what is to be done says so */
}

/* ---- the changes themselves, in node 0's state */

static void get_names(const struct wire_msg *m, struct names_of *ret)
{
	*ret = (struct names_of){ .dir = message_get(m, MESSAGE_DIR), .from_dir = message_get(m, MESSAGE_FROM_DIR) };
	(void)message_get_str(m, MESSAGE_NAME, ret->name, sizeof(ret->name));
	(void)message_get_str(m, MESSAGE_FROM, ret->from, sizeof(ret->from));
}

static int do_adopt(struct sequence *s, const struct wire_msg *m)
{
	char path[HINT_BYTES];

	if (!message_get_str(m, MESSAGE_HINT, path, sizeof(path)))
		return -EBADMSG;
	return core_adopt_path(s->j->core, message_get(m, MESSAGE_HINT_DIR), path);
}

static int do_mkdir(struct sequence *s, const struct wire_msg *m)
{
	struct core_cred cred = { .uid = (uid_t)message_get(m, MESSAGE_UID),
		.gid = (gid_t)message_get(m, MESSAGE_GID) };
	struct core_how how = { .free = true };
	struct core_entry e;
	struct names_of n;

	get_names(m, &n);
	int rc = core_make_at(
		s->j->core, n.dir, n.name, S_IFDIR | (message_get(m, MESSAGE_MODE) & 07777), NULL, cred, &how, &e);
	if (rc == 0)
		core_forget(s->j->core, e.ino, 1);
	return rc;
}

static int do_rmdir(struct sequence *s, const struct wire_msg *m)
{
	struct core_how how = { .ino = message_get(m, MESSAGE_INO), .empty = true };
	struct names_of n;

	get_names(m, &n);
	int rc = prepare(s, &n, how.ino, 0, how.ino);
	return rc < 0 ? rc : core_remove_at(s->j->core, n.dir, n.name, true, &how);
}

/* OTHER: the directory that it replaces, or changes places with; 0: none, but perhaps a file, of any node. */
static int do_rename(struct sequence *s, const struct wire_msg *m)
{
	struct core *c = s->j->core;
	struct core_how how = { .ino = message_get(m, MESSAGE_INO), .empty = true };
	unsigned int flags = (unsigned int)message_get(m, MESSAGE_FLAGS);
	uint64_t other = message_get(m, MESSAGE_OTHER);
	struct state_name there;
	struct names_of n;

	get_names(m, &n);
	int rc = state_lookup(s->j->state, n.dir, n.name, &there);
	if (rc < 0 && rc != -ENOENT)
		return rc;
	if (core_is_below(c, n.dir, how.ino))
		return -EINVAL;
	if (flags & RENAME_EXCHANGE && other && core_is_below(c, n.from_dir, other))
		return -EINVAL;
	if (!other && !(flags & RENAME_EXCHANGE)) {
		how.free = true;
	} else if (!other && rc < 0) {
		how.free = true; /* the file's home changes the two (core_tree_apply) */
		flags = 0;
	}
	rc = prepare(s, &n, other && !(flags & RENAME_EXCHANGE) ? other : 0, how.ino, other);
	return rc < 0 ? rc : core_rename_at(c, n.from_dir, n.from, n.dir, n.name, flags, &how);
}

static int do_setattr(struct sequence *s, const struct wire_msg *m)
{
	struct core_entry e, ret;
	int rc = entry_get(m, &e);

	return rc < 0 ? rc
		      : core_setattr(s->j->core, message_get(m, MESSAGE_INO), &e.attr,
				(unsigned int)message_get(m, MESSAGE_MASK), NULL, &ret);
}

static int do_xattr(struct sequence *s, const struct wire_msg *m, bool removal)
{
	uint64_t ino = message_get(m, MESSAGE_INO);
	const uint8_t *value = NULL;
	size_t len = 0;
	struct names_of n;

	get_names(m, &n);
	if (removal)
		return core_removexattr(s->j->core, ino, n.name);
	(void)message_get_bytes(m, MESSAGE_VALUE, 0, &value, &len);
	return core_setxattr(s->j->core, ino, n.name, value, len, (int)message_get(m, MESSAGE_FLAGS));
}

static int do_drained(struct sequence *s, const struct wire_msg *m)
{
	struct record_scratch scratch = { 0 };
	const uint8_t *bytes;
	struct record rec;
	size_t len, used;
	int rc = message_get_bytes(m, MESSAGE_RECORD_BYTES, 0, &bytes, &len) ? 0 : -EBADMSG;

	if (rc == 0)
		rc = record_decode(bytes, len, &scratch, &rec, &used);
	if (rc == 0) {
		rec.seq = 0; /* the state's to give */
		rec.time_ns = 0;
		rc = core_drain_step(s->j->core, &rec);
	}
	record_scratch_free(&scratch);
	return rc;
}

static int do_change(struct sequence *s, const struct wire_msg *m)
{
	switch ((enum tree_change)message_get(m, MESSAGE_CHANGE)) {
	case TREE_ADOPT: return do_adopt(s, m);
	case TREE_MKDIR: return do_mkdir(s, m);
	case TREE_RMDIR: return do_rmdir(s, m);
	case TREE_RENAME: return do_rename(s, m);
	case TREE_SETATTR: return do_setattr(s, m);
	case TREE_SETXATTR: return do_xattr(s, m, false);
	case TREE_REMOVEXATTR: return do_xattr(s, m, true);
	case TREE_DRAINED: return do_drained(s, m);
	default: return -EOPNOTSUPP;
	}
}

/* ---- after a restart */

static int sync_nodes(struct sequence *s)
{
	uint32_t num = peers_count(s->j->peers), self = peers_self(s->j->peers);

	int rc = learn_lost(s->j);
	if (rc < 0)
		return rc;
	int *behind = calloc(num, sizeof(*behind));
	bool *restarted = calloc(num, sizeof(*restarted));
	bool *ahead = calloc(num, sizeof(*ahead));
	uint64_t *unknown = malloc(num * sizeof(*unknown));
	if (!behind || !restarted || !ahead || !unknown) {
		free(behind);
		free(restarted);
		free(ahead);
		free(unknown);
		return -ENOMEM;
	}
	memset(unknown, 0xff, num * sizeof(*unknown)); /* SEQUENCE_NONE */
	pthread_mutex_lock(&s->lock);
	s->behind = behind;
	s->restarted = restarted;
	s->ahead = ahead;
	s->unknown = unknown;
	pthread_mutex_unlock(&s->lock);
	tree_log_load(s->j);
	for (uint32_t i = 0; i < num; i++)
		if (i != self)
			insist(s, i, -EAGAIN);
	return 0;
}

/* ---- the thread */

/* s->lock is held. */
static bool wait_slice(struct sequence *s)
{
	struct timespec until;

	if (!s->num_behind)
		return pthread_cond_wait(&s->cond, &s->lock) == 0;
	clock_gettime(CLOCK_MONOTONIC, &until);
	until.tv_nsec += SEQUENCE_CHASE_USEC * 1000;
	until.tv_sec += until.tv_nsec / 1000000000;
	until.tv_nsec %= 1000000000;
	return pthread_cond_clockwait(&s->cond, &s->lock, CLOCK_MONOTONIC, &until) == 0;
}

/* NULL: there is nothing to do, but perhaps to look after nodes that are behind. */
static struct change *take_change(struct sequence *s)
{
	pthread_mutex_lock(&s->lock);
	while (!(s->first && s->synced) && !s->look && !s->j->ending) /* TREE_SYNC is in front then */
		if (!wait_slice(s))
			break;
	struct change *c = s->j->ending || !s->synced ? NULL : s->first;
	if (c) {
		s->first = c->next;
		if (!s->first)
			s->last = &s->first;
	}
	pthread_mutex_unlock(&s->lock);
	return c;
}

static void queue_change(struct sequence *s, struct change *c, bool in_front)
{
	pthread_mutex_lock(&s->lock);
	c->next = in_front ? s->first : NULL;
	if (in_front) {
		s->synced = true;
		if (!s->first)
			s->last = &c->next;
		s->first = c;
	} else {
		*s->last = c;
		s->last = &c->next;
	}
	pthread_cond_signal(&s->cond);
	pthread_mutex_unlock(&s->lock);
}

/* What is only asked, and answered when all that was asked for before is done. */
static serve_handler question_of(const struct peers_request *rq)
{
	switch (peers_msg(rq)->type) {
	case MESSAGE_NAME_WHO: return rebuild_serve_who;
	case MESSAGE_NAME_SEND: return rebuild_serve_send;
	case MESSAGE_NAME_AWAIT: return late_serve_await;
	default: return NULL;
	}
}

static void take_in_hand(struct sequence *s)
{
	pthread_mutex_lock(&s->lock);
	s->in_hand = true;
	while (s->looking)
		pthread_cond_wait(&s->looked, &s->lock);
	pthread_mutex_unlock(&s->lock);
}

/* Who waited looks here, before the next one: however fast the changes come. */
static void out_of_hand(struct sequence *s)
{
	pthread_mutex_lock(&s->lock);
	struct change *c = s->looks;
	s->looks = NULL;
	s->last_look = &s->looks;
	s->in_hand = false;
	pthread_mutex_unlock(&s->lock);
	for (struct change *next; c; c = next) {
		next = c->next;
		list_answer(s->j, c->rq);
		free(c);
	}
}

bool sequence_look_begin(struct job *j, struct peers_request *rq)
{
	struct change *c = calloc(1, sizeof(*c));
	struct sequence *s = j->sequence;

	pthread_mutex_lock(&s->lock);
	bool may = !s->in_hand;
	s->looking += may;
	if (!may && c) {
		c->rq = rq;
		*s->last_look = c;
		s->last_look = &c->next;
	}
	pthread_mutex_unlock(&s->lock);
	if (!may && !c)
		peers_reply_status(rq, -ENOMEM);
	if (may)
		free(c);
	return may;
}

void sequence_look_end(struct job *j)
{
	struct sequence *s = j->sequence;

	pthread_mutex_lock(&s->lock);
	if (--s->looking == 0)
		pthread_cond_signal(&s->looked);
	pthread_mutex_unlock(&s->lock);
}

/* Its answer; or -EBUSY, and it is queued again. */
static int run_change(struct sequence *s, struct change *c)
{
	if (c->tries > 0 && !peers_is_wanted(c->rq))
		return -ECONNRESET;
	if (late_is_over(s->j, peers_msg(c->rq)))
		return -ETIME;
	s->asker = peers_from(c->rq);
	s->asked = peers_msg(c->rq);
	take_in_hand(s);
	core_tree_begin(s->j->core, note_record, s);
	int rc = do_change(s, peers_msg(c->rq));
	core_tree_end(s->j->core);
	distribute(s);
	out_of_hand(s);
	return rc;
}

/* Of a directory that went while a drain makes it: only node 0, which drains directories, knows. */
static bool leaves_doubt(struct sequence *s, const struct wire_msg *m)
{
	enum tree_change kind = (enum tree_change)message_get(m, MESSAGE_CHANGE);
	struct names_of n;

	if (kind != TREE_RMDIR && kind != TREE_RENAME)
		return false;
	get_names(m, &n);
	uint64_t dir = kind == TREE_RMDIR ? n.dir : n.from_dir;
	const char *name = kind == TREE_RMDIR ? n.name : n.from;
	return core_doubts(s->j->core, dir, name);
}

static void answer(struct sequence *s, struct change *c, int rc)
{
	struct wire_msg reply = { 0 };

	wire_msg_init(&reply, WIRE_REPLY);
	wire_put_i64(&reply, WIRE_STATUS, rc);
	message_put(&reply, MESSAGE_POINTER, rc == 0 && leaves_doubt(s, peers_msg(c->rq)));
	message_put(&reply, MESSAGE_STAMP, state_tree_stamp(s->j->state));
	peers_reply(c->rq, &reply);
	wire_msg_free(&reply);
}

static void handle(struct sequence *s, struct change *c)
{
	int rc = 0;

	if (!c->rq) {
		while (sync_nodes(s) < 0 && !s->j->ending)
			usleep(SEQUENCE_FULL_USEC);
		out_of_hand(s);
	} else if (question_of(c->rq)) {
		bool waits = peers_msg(c->rq)->type != MESSAGE_NAME_AWAIT;

		if (waits &&
			holds_up(s->behind[peers_from(c->rq)])) { /* its new daemon must have all when it is answered */
			usleep(SEQUENCE_BUSY_USEC);
			queue_change(s, c, false);
			return;
		}
		workers_serve_after(s->j->workers, question_of(c->rq), c->rq);
	} else {
		rc = s->num_behind ? -EIO : run_change(s, c);
		if (rc == -EBUSY && ++c->tries < SEQUENCE_BUSY_TRIES && !s->j->ending) {
			usleep(SEQUENCE_BUSY_USEC);
			queue_change(s, c, false);
			return;
		}
		answer(s, c, rc);
	}
	free(c);
}

static void *sequence_main(void *arg)
{
	struct sequence *s = arg;

	while (!s->j->ending) {
		struct change *c = take_change(s);

		chase(s);
		if (c)
			handle(s, c);
	}
	return NULL;
}

static void add_change(struct job *j, struct peers_request *rq)
{
	struct change *c = calloc(1, sizeof(*c));

	if (c) {
		c->rq = rq;
		queue_change(j->sequence, c, !rq);
	} else if (rq) {
		peers_reply_status(rq, -ENOMEM);
	}
}

void sequence_serve(struct job *j, struct peers_request *rq)
{
	if (peers_self(j->peers) == 0)
		add_change(j, rq);
	else if (question_of(rq))
		workers_serve_after(j->workers, question_of(rq), rq);
	else
		peers_reply_status(rq, -EOPNOTSUPP);
}

/* ---- life */

static int sequence_create(struct job *j, struct cistern_error *err)
{
	struct sequence *s = calloc(1, sizeof(*s));

	if (!s)
		return cistern_error_set(err, -ENOMEM, "out of memory");
	j->sequence = s;
	s->j = j;
	s->last = &s->first;
	s->last_look = &s->looks;
	s->in_hand = true; /* until all nodes have what an earlier daemon had in hand */
	pthread_mutex_init(&s->lock, NULL);
	pthread_cond_init(&s->cond, NULL);
	pthread_cond_init(&s->looked, NULL);
	s->started = pthread_create(&s->thread, NULL, sequence_main, s) == 0;
	return s->started ? 0 : cistern_error_set(err, -EAGAIN, "cannot start a thread");
}

static void sequence_shut_down(struct job *j)
{
	struct sequence *s = j->sequence;

	if (!s)
		return;
	pthread_mutex_lock(&s->lock);
	pthread_cond_broadcast(&s->cond);
	pthread_mutex_unlock(&s->lock);
}

static void sequence_stop(struct job *j)
{
	struct sequence *s = j->sequence;

	if (s && s->started)
		pthread_join(s->thread, NULL);
}

static void sequence_destroy(struct job *j)
{
	struct sequence *s = j->sequence;

	if (!s)
		return;
	for (struct change *c = s->first, *next; c; c = next) {
		next = c->next;
		if (c->rq)
			peers_reply_status(c->rq, -ESHUTDOWN);
		free(c);
	}
	for (struct change *c = s->looks, *next; c; c = next) {
		next = c->next;
		peers_reply_status(c->rq, -ESHUTDOWN);
		free(c);
	}
	free(s->behind);
	free(s->restarted);
	free(s->ahead);
	free(s->unknown);
	pthread_mutex_destroy(&s->lock);
	pthread_cond_destroy(&s->cond);
	pthread_cond_destroy(&s->looked);
	free(s);
	j->sequence = NULL;
}

static void sequence_event(struct job *j, enum peers_event event, uint32_t node)
{
	struct sequence *s = j->sequence;

	if (peers_self(j->peers) != 0 || (event != PEERS_ASSEMBLED && event != PEERS_RESTARTED))
		return;
	pthread_mutex_lock(&s->lock);
	bool first = !s->begun && event == PEERS_ASSEMBLED;
	s->begun = s->begun || first;
	s->look = s->behind != NULL;
	if (s->behind && event == PEERS_RESTARTED) {
		s->restarted[node] = true;
		s->unknown[node] = SEQUENCE_NONE; /* at once: it may take a change before it is looked after */
	}
	pthread_cond_signal(&s->cond);
	pthread_mutex_unlock(&s->lock);
	if (first)
		add_change(j, NULL);
}

const struct part sequence_part = {
	.create = sequence_create,
	.shut_down = sequence_shut_down,
	.stop = sequence_stop,
	.destroy = sequence_destroy,
	.event = sequence_event,
};
