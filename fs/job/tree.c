/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Directories, on every node: the whole tree is in our state, and what node 0 has ordered is applied to it. Who wants to change
 * a directory asks node 0, and has its answer when all nodes have the change; but for those that were given up, of which it may be one.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "fs/job/hidden.h"
#include "fs/job/private.h"
#include "fs/job/quiet.h"

void tree_init(struct wire_msg *request, enum tree_change change)
{
	message_init(request, MESSAGE_TREE_CHANGE);
	message_put(request, MESSAGE_CHANGE, change);
}

int tree_change_hiding(struct job *j, struct wire_msg *request, bool *ret_hidden)
{
	struct wire_msg reply = { 0 };
	/* Node 0 restarted: its new daemon may or may not have done it, and the caller looks. */
	int rc = peers_call(j->peers, 0, request, &reply);

	*ret_hidden = rc == 0 && message_get(&reply, MESSAGE_POINTER) != 0;
	uint64_t stamp = message_get(&reply, MESSAGE_STAMP);
	wire_msg_free(&reply);
	/* Who was given up meanwhile hears that it is done before it is told what it lacks. */
	return rc == 0 ? lag_wait(j, stamp) : rc;
}

int tree_change(struct job *j, struct wire_msg *request)
{
	bool hidden;

	return tree_change_hiding(j, request, &hidden);
}

/* ---- directories that the tree does not have yet */

int tree_know_path(struct job *j, uint64_t dir, const char *path)
{
	struct wire_msg m = { 0 };
	int rc;

	tree_init(&m, TREE_ADOPT);
	message_put(&m, MESSAGE_HINT_DIR, dir);
	message_put_str(&m, MESSAGE_HINT, path);
	do
		rc = tree_change(j, &m);
	while (rc == -ECONNRESET); /* nothing is done twice */
	wire_msg_free(&m);
	return rc;
}

int tree_know(struct job *j, uint64_t dir)
{
	struct inode in;
	struct hint hint;
	uint32_t type;
	int rc = core_is_known(j->core, dir);

	if (rc != 0)
		return rc < 0 ? rc : 0;
	if (state_inode(j->state, dir, &in) == 0)
		return -ENOENT;
	type = core_type(j->core, dir);
	if (type != S_IFDIR)
		return type ? -ENOTDIR : -ESTALE;
	rc = core_hint(j->core, dir, NULL, &hint.dir, hint.path, sizeof(hint.path));
	if (rc == 0 && hint.path[0])
		rc = tree_know_path(j, hint.dir, hint.path);
	return rc;
}

int tree_know_above(struct job *j, uint64_t hint_dir, const char *hint)
{
	char path[HINT_BYTES];
	size_t len = strlen(hint);
	const char *slash = strrchr(hint, '/');

	if (!slash || len >= sizeof(path))
		return slash ? -ENAMETOOLONG : 0;
	memcpy(path, hint, (size_t)(slash - hint));
	path[slash - hint] = '\0';
	return tree_know_path(j, hint_dir, path);
}

/* ---- what node 0 says */

/*
 * What PREPARE has begun, for whichever change: there is one at a time. If we did not hear of the end of it, since we were given up, that comes with
 * what we lack.
 */
static void end_prepared(struct job *j)
{
	j->moving[0] = j->moving[1] = 0;
	j->prepared = 0;
	names_open_dirs(j->names);
}

static void drop_name(struct job *j, const struct wire_msg *m, enum message_tag dir_tag, enum message_tag tag)
{
	char name[RECORD_NAME_MAX + 1];

	if (j->opt.invalidate_name && message_get_str(m, tag, name, sizeof(name)))
		j->opt.invalidate_name(message_get(m, dir_tag), name, j->opt.arg);
}

static bool is_announced(struct job *j, const struct wire_msg *m, enum message_tag dir_tag, enum message_tag tag)
{
	char name[RECORD_NAME_MAX + 1];

	return message_get_str(m, tag, name, sizeof(name)) && announce_runs(j, message_get(m, dir_tag), name);
}

/*
 * From here on what moves is looked up by asking, and lookups wait until it is over. The kernel that the change is made for has the
 * directories locked in which the names are, so they cannot be dropped there: announce.c.
 */
static void mark_moving(struct job *j, const struct wire_msg *m)
{
	j->moving[0] = message_get(m, MESSAGE_INO);
	j->moving[1] = message_get(m, MESSAGE_OTHER);
	quiet_begin_change(
		j); /* a file may change places with a directory: behind that no word is given before the end */
	quiet_end_change(j);
	if (message_get(m, MESSAGE_ASKER) == peers_self(j->peers)) {
		bool known = (!j->moving[0] || is_announced(j, m, MESSAGE_FROM_DIR, MESSAGE_FROM)) &&
			     (!j->moving[1] || is_announced(j, m, MESSAGE_DIR, MESSAGE_NAME));

		if (!known && j->opt.invalidate_names)
			j->opt.invalidate_names(j->opt.arg);
		return;
	}
	if (j->moving[0])
		drop_name(j, m, MESSAGE_FROM_DIR, MESSAGE_FROM);
	if (j->moving[1])
		drop_name(j, m, MESSAGE_DIR, MESSAGE_NAME);
	j->prepared = message_get(m, MESSAGE_PREPARED);
}

/* No name below it is a file's or locked. */
static int close_dir(struct job *j, uint64_t dir)
{
	int rc = names_close_dir(j->names, dir);

	if (rc == 0)
		rc = core_is_known(j->core, dir);
	return rc > 0 ? state_dir_is_empty(j->state, dir) ? 0 : -ENOTEMPTY : rc;
}

void tree_serve_prepare(struct job *j, struct peers_request *rq)
{
	uint64_t dir = message_get(peers_msg(rq), MESSAGE_CLOSED);
	int rc = dir ? close_dir(j, dir) : 0;

	if (rc == 0)
		mark_moving(j, peers_msg(rq)); /* else nothing comes of the change: COMMIT says so */
	hidden_reply(j, rq, dir, rc);
}

void tree_tell_kernel(struct job *j, const struct record *rec, bool names)
{
	const struct job_options *opt = &j->opt;

	/* Links and times of the directories that it is in. */
	if (opt->invalidate && (rec->type == RECORD_CREATE || rec->type == RECORD_UNLINK || rec->type == RECORD_RENAME))
		opt->invalidate(rec->parent, false, opt->arg);
	if (opt->invalidate && rec->type == RECORD_RENAME && rec->from_parent != rec->parent)
		opt->invalidate(rec->from_parent, false, opt->arg);
	names = names && opt->invalidate_name;
	if (names && rec->type == RECORD_RENAME)
		opt->invalidate_name(rec->from_parent, rec->from_name, opt->arg);
	if (names && (rec->type == RECORD_RENAME || rec->type == RECORD_UNLINK))
		opt->invalidate_name(rec->parent, rec->name, opt->arg);
	if (opt->invalidate &&
		(rec->type == RECORD_SETATTR || rec->type == RECORD_SETXATTR || rec->type == RECORD_REMOVEXATTR))
		opt->invalidate(rec->ino, false, opt->arg);
}

/* names: our kernel may remember those of the directories. */
static int apply_one(struct job *j, struct record *rec, bool ours, bool names)
{
	bool news = rec->stamp > state_tree_stamp(j->state);

	if (news)
		tree_log_add(j, rec); /* as it came */
	if (rec->type == RECORD_RENAME && news)
		j->moved = rec->stamp; /* first: list.c */
	int rc = core_tree_apply(j->core, rec);
	if (rc == 0 && rec->type == RECORD_SETATTR && rec->mask & RECORD_ATTR_MTIME)
		times_reset(j, rec->ino, rec->stamp);
	if (rc == 0 && news && !ours)
		tree_tell_kernel(j, rec, names);
	return rc;
}

int tree_apply(struct job *j, const struct wire_msg *m)
{
	bool ours = message_get(m, MESSAGE_ASKER) == peers_self(j->peers);
	bool names = !j->prepared || message_get(m, MESSAGE_PREPARED) != j->prepared;
	struct record_scratch scratch = { 0 };
	const uint8_t *bytes;
	size_t len, used;
	int rc = 0;

	for (unsigned int i = 0; rc == 0 && message_get_bytes(m, MESSAGE_RECORD_BYTES, i, &bytes, &len); i++) {
		struct record rec;

		rc = record_decode(bytes, len, &scratch, &rec, &used);
		if (rc == 0)
			rc = apply_one(j, &rec, ours, names);
	}
	record_scratch_free(&scratch);
	if (rc == 0 && state_tree_stamp(j->state) < message_get(m, MESSAGE_STAMP))
		rc = -EILSEQ;
	return rc;
}

/* What could not be applied: our kernel is not to believe what was there before. */
static void hide(struct job *j, const struct wire_msg *m)
{
	struct record_scratch scratch = { 0 };
	const uint8_t *bytes;
	struct record rec;
	size_t len, used;

	for (unsigned int i = 0; message_get_bytes(m, MESSAGE_RECORD_BYTES, i, &bytes, &len); i++)
		if (record_decode(bytes, len, &scratch, &rec, &used) == 0)
			tree_tell_kernel(j, &rec, true);
	record_scratch_free(&scratch);
}

void tree_serve_commit(struct job *j, struct peers_request *rq)
{
	const struct wire_msg *m = peers_msg(rq);
	bool ahead = message_get(m, MESSAGE_COUNT) == TREE_AHEAD || lag_is_ahead(j);
	int rc = ahead ? LAG_AHEAD : tree_apply(j, m);

	names_tree_grown(j->names);
	lag_tree_grown(j);
	if (rc < 0 && message_get(m, MESSAGE_COUNT) && lag_begin(j, message_get(m, MESSAGE_STAMP), rc))
		hide(j, m);
	if (rc == 0) {
		lag_end(j);
		end_prepared(j);
	}
	peers_reply_status(rq, rc);
}

static void serve_stamp(struct job *j, struct peers_request *rq)
{
	uint64_t last = state_tree_stamp(j->state);
	struct wire_msg reply = { 0 };

	wire_msg_init(&reply, WIRE_REPLY);
	wire_put_i64(&reply, WIRE_STATUS, 0);
	/* Who is ahead stays so, however many changes there are. */
	message_put(&reply, MESSAGE_STAMP, lag_is_ahead(j) ? UINT64_MAX : last);
	message_put(&reply, MESSAGE_TIME, state_tree_time(j->state, last));
	peers_reply(rq, &reply);
	wire_msg_free(&reply);
}

/* Behind what the daemon before it has sent. */
void tree_serve_stamp(struct job *j, struct peers_request *rq)
{
	workers_serve_after(j->workers, serve_stamp, rq);
}

void tree_serve_records(struct job *j, struct peers_request *rq)
{
	uint64_t last = state_tree_stamp(j->state), from = message_get(peers_msg(rq), MESSAGE_STAMP) + 1;
	uint64_t time_ns = tree_log_time(j, from - 1);
	struct wire_msg reply = { 0 };

	if (lag_is_ahead(j)) { /* our records have numbers that are others' by now */
		peers_reply_status(rq, -ENODATA);
		return;
	}
	wire_msg_init(&reply, WIRE_REPLY);
	wire_put_i64(&reply, WIRE_STATUS, 0);
	message_put(&reply, MESSAGE_ASKER, peers_self(j->peers));
	message_put(&reply, MESSAGE_STAMP, last);
	message_put(&reply, MESSAGE_TIME, time_ns ? time_ns : tree_log_time_old(j, from - 1));
	if (from > last || tree_log_has(j, from))
		tree_log_put(j, &reply, from, last);
	else
		tree_log_put_old(j, &reply, from);
	peers_reply(rq, &reply);
	wire_msg_free(&reply);
}
