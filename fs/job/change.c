/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * What changes names, driven by the node where the system call happened: lock the names at their servers, look what is there,
 * have the home (or, for directories, node 0) do it, and say what is there now. Under its lock a name is what the tree,
 * the server's pointer and the backing directory say, in this order.
 *
 * When it is not known what a daemon that died meanwhile has done, the request is made again: under the lock nobody else can
 * have changed the name, so an answer that it is done already means that it was. Whatever is not known then is for the
 * server to find out.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "fs/job/private.h"

#define CHANGE_TRIES 8 /* pointers that turn out to be stale */

enum found_kind { FOUND_NOTHING, FOUND_DIR, FOUND_FILE };

struct found { /* under a locked name */
	enum found_kind kind;
	uint64_t ino;
	struct hint hint; /* if it is untouched; dir 0: it is not */
};

static int find_in_backing(struct job *j, const struct name_ref *ref, struct found *ret)
{
	struct core_entry e;
	int rc = core_backing_lookup(j->core, ref->dir, ref->name, &e);

	if (rc < 0)
		return rc == -ENOENT ? 0 : rc;
	ret->ino = e.ino;
	ret->kind = S_ISDIR(e.attr.st_mode) ? FOUND_DIR : FOUND_FILE;
	if (ret->kind == FOUND_DIR)
		core_forget(j->core, e.ino, 1);
	return core_hint(j->core, ref->dir, ref->name, &ret->hint.dir, ret->hint.path, sizeof(ret->hint.path));
}

static int find(struct job *j, const struct name_ref *ref, struct found *ret)
{
	struct state_name e;
	int rc = state_lookup(j->state, ref->dir, ref->name, &e);

	ret->kind = FOUND_NOTHING;
	ret->ino = 0;
	ret->hint.dir = 0;
	ret->hint.path[0] = '\0';
	if (rc < 0 && rc != -ENOENT)
		return rc;
	if (rc == 0 && e.type == S_IFDIR) {
		ret->kind = FOUND_DIR;
		ret->ino = e.ino;
		return 0;
	}
	if (ref->at.ino) {
		ret->kind = FOUND_FILE;
		ret->ino = ref->at.ino;
		return 0;
	}
	return ref->at.hidden ? 0 : find_in_backing(j, ref, ret);
}

/*
 * The name is to be a file of that home, or NO_HOME: a directory. If another home has moved its file away from it, that is durable first:
 * else that file would be back with the power, and lose its only name to ours. -EAGAIN: it may be back already: look again.
 */
#define NO_HOME UINT32_MAX
static int take_name(struct job *j, struct name_ref *ref, uint32_t home)
{
	struct pointer *at = &ref->at;

	if (!at->left || at->left == home + 1)
		return 0;
	int rc = at->left == POINTER_LEFT_ANY ? power_sync_any(j) : power_sync_life(j, at->left - 1, at->left_life);
	if (rc == 0)
		at->left = 0;
	return rc;
}

static int lock_name(struct job *j, struct name_ref *ref, uint64_t dir, const char *name, struct found *ret)
{
	int rc = tree_know(j, dir);

	ref->dir = dir;
	ref->name = name;
	if (rc == 0)
		rc = held_lock(j, ref, 1);
	if (rc < 0)
		return rc;
	rc = find(j, ref, ret);
	if (rc < 0)
		held_unlock(j, ref);
	return rc;
}

/* The operation is over: what is there is known, or is to be found out. */
static void unlock_name(struct job *j, struct name_ref *ref, bool known)
{
	if (known)
		held_unlock(j, ref);
	else
		held_unlock_unknown(j, ref);
}

static void put_place(struct wire_msg *m, const struct name_ref *ref)
{
	message_put(m, MESSAGE_DIR, ref->dir);
	message_put_str(m, MESSAGE_NAME, ref->name);
}

/* Did the request fail before anything was done? Else the name's server is to ask. */
static bool is_certain(int rc, bool reset)
{
	return !reset && rc != -ETIMEDOUT && rc != -ECONNRESET && rc != -EHOSTDOWN && rc != -ESHUTDOWN && rc != -EILSEQ;
}

/* ---- what others do under our locks: not when these may be somebody else's */

struct under {
	const struct name_ref *a, *b; /* b: NULL: one alone */
};

/* It was not done in time. Does it make sense to ask once more? */
static bool may_ask_again(struct job *j, const struct under *u, int rc, unsigned int tries)
{
	return rc == -ETIME && tries < CHANGE_TRIES && held_renew(j, u->a) == 0 && (!u->b || held_renew(j, u->b) == 0);
}

static int ask_home(struct job *j, const struct under *u, const struct found *f, struct wire_msg *m,
	struct wire_msg *reply, bool *ret_reset)
{
	size_t len = m->body.len;
	unsigned int tries = 0;
	int rc;

	*ret_reset = false;
	do {
		bool reset;

		m->body.len = len;
		held_put_until(m, u->a, u->b);
		rc = remote_call(j, f->ino, f->hint.dir ? &f->hint : NULL, m, reply, &reset);
		*ret_reset |= reset;
	} while (may_ask_again(j, u, rc, ++tries));
	return rc == -ETIME ? -EIO : rc;
}

static int ask_node_0(struct job *j, const struct under *u, struct wire_msg *m, bool *ret_hidden)
{
	size_t len = m->body.len;
	unsigned int tries = 0;
	int rc;

	do {
		m->body.len = len;
		held_put_until(m, u->a, u->b);
		rc = tree_change_hiding(j, m, ret_hidden);
	} while (may_ask_again(j, u, rc, ++tries));
	m->body.len = len;
	return rc == -ETIME ? -EIO : rc;
}

/* ---- making */

static int lock_free_once(struct job *j, struct name_ref *ref, uint64_t dir, const char *name, uint32_t home)
{
	struct found found;
	int rc = lock_name(j, ref, dir, name, &found);

	if (rc < 0)
		return rc;
	rc = found.kind != FOUND_NOTHING ? -EEXIST : take_name(j, ref, home);
	if (rc == 0)
		rc = held_keep(j, ref);
	if (rc < 0)
		unlock_name(j, ref, rc != -EAGAIN);
	return rc;
}

static int lock_free(struct job *j, struct name_ref *ref, uint64_t dir, const char *name, uint32_t home)
{
	int rc = -EAGAIN;

	for (int tries = 0; rc == -EAGAIN && tries < CHANGE_TRIES; tries++)
		rc = lock_free_once(j, ref, dir, name, home);
	return rc == -EAGAIN ? -EIO : rc;
}

static void now_file(struct name_ref *ref, uint64_t ino)
{
	ref->at.ino = ino;
	ref->at.stamp = ref->stamp;
}

int change_create(struct job *j, uint64_t parent, const char *name, mode_t mode, const char *target, dev_t rdev,
	int flags, struct core_cred cred, struct core_entry *ret, struct core_open_reply *ret_open)
{
	struct name_ref ref = { 0 };
	int rc = lock_free(j, &ref, parent, name, peers_self(j->peers));

	if (rc < 0)
		return rc;
	struct core_how how = { .stamp = ref.stamp, .rdev = rdev, .free = true };
	if (ret_open)
		rc = core_create_file_at(j->core, parent, name, mode, flags, cred, &how, ret, ret_open);
	else
		rc = core_make_at(j->core, parent, name, mode, target, cred, &how, ret);
	struct state_name made = { .ino = rc == 0 ? ret->ino : 0 };
	/* Opening may have failed after the file was made. */
	int there = rc == 0 ? 0 : state_lookup(j->state, parent, name, &made);
	if (there == 0)
		now_file(&ref, made.ino);
	unlock_name(j, &ref, there == 0 || there == -ENOENT);
	if (ref.at.ino)
		times_changed(j, parent);
	return rc;
}

/* A directory that node 0 is to do something with is in the tree. */
static int know_found(struct job *j, const struct found *f)
{
	return f->kind == FOUND_DIR && f->hint.dir ? tree_know_path(j, f->hint.dir, f->hint.path) : 0;
}

/* left: the name that goes, if one does. done: what node 0 says when it has done it before its daemon was restarted; or the name leads elsewhere now: -ESTALE. */
static int change_tree(
	struct job *j, const struct under *u, struct wire_msg *m, int done, bool *ret_certain, struct pointer *left)
{
	bool reset = false;
	int rc;

	bool hidden;

	while ((rc = ask_node_0(j, u, m, &hidden)) == -ECONNRESET)
		reset = true;
	left->hidden |= hidden;
	if (reset && (rc == done || rc == -ESTALE))
		rc = 0;
	*ret_certain = rc == 0 || is_certain(rc, reset);
	return rc;
}

int change_mkdir(
	struct job *j, uint64_t parent, const char *name, mode_t mode, struct core_cred cred, struct core_entry *ret)
{
	struct name_ref ref = { 0 };
	struct wire_msg m = { 0 };
	bool certain;
	int rc = lock_free(j, &ref, parent, name, NO_HOME);

	if (rc < 0)
		return rc;
	tree_init(&m, TREE_MKDIR);
	put_place(&m, &ref);
	message_put(&m, MESSAGE_MODE, mode);
	message_put(&m, MESSAGE_UID, cred.uid);
	message_put(&m, MESSAGE_GID, cred.gid);
	rc = change_tree(j, &(struct under){ .a = &ref }, &m, -EEXIST, &certain, &ref.at);
	if (rc == 0)
		rc = core_tree_lookup(j->core, parent, name, ret);
	wire_msg_free(&m);
	unlock_name(j, &ref, certain);
	return rc;
}

/* What a home says when it has changed a name. */
struct said {
	uint64_t life;         /* power_life() of it; 0: it was another daemon, and is not known */
	bool hidden, lives_on; /* lives_on: what has lost the name has another one */
};

static void said_get(const struct wire_msg *reply, struct said *ret)
{
	ret->life = message_get(reply, MESSAGE_LIFE);
	ret->hidden = message_get(reply, MESSAGE_POINTER);
	ret->lives_on = message_get(reply, MESSAGE_LEFT);
}

/* A name was taken from a file of that one's home. */
static void note_left(struct job *j, struct pointer *at, uint64_t ino, const struct said *said)
{
	at->left = said->life ? remote_home(j, ino) + 1 : POINTER_LEFT_ANY;
	at->left_life = said->life;
}

static int link_at_home(struct job *j, const struct found *f, const struct name_ref *ref, uint64_t stamp,
	struct core_entry *ret, bool *ret_reset, struct said *said)
{
	uint64_t ino = f->ino;
	bool here = remote_home(j, ino) == peers_self(j->peers);
	struct wire_msg m = { 0 }, reply = { 0 };

	message_init(&m, MESSAGE_FILE_LINK);
	put_place(&m, ref);
	message_put(&m, MESSAGE_TREE, state_tree_stamp(j->state));
	message_put(&m, MESSAGE_STAMP, stamp);
	int rc = ask_home(j, &(struct under){ .a = ref }, f, &m, &reply, ret_reset);
	if (rc == 0)
		said_get(&reply, said);
	if (rc == 0)
		rc = entry_get(&reply, ret);
	if (rc == 0 && !here)
		remote_count(j, ino, NULL);
	if (rc == -EEXIST && *ret_reset)
		rc = remote_lookup(j, ino, ref->dir, ref->name, NULL, ret);
	wire_msg_free(&m);
	wire_msg_free(&reply);
	return rc;
}

int change_link(struct job *j, uint64_t ino, uint64_t parent, const char *name, struct core_entry *ret)
{
	struct name_ref ref = { 0 };
	struct said said = { 0 };
	bool reset = false;
	int rc = lock_free(j, &ref, parent, name, remote_home(j, ino));

	if (rc < 0)
		return rc;
	rc = link_at_home(j, &(struct found){ .ino = ino }, &ref, ref.stamp, ret, &reset, &said);
	if (rc == 0)
		now_file(&ref, ino);
	unlock_name(j, &ref, rc == 0 || is_certain(rc, reset));
	return rc;
}

/* ---- removing */

/* handed: a file of another home has the name. -ENOENT: the home does not have it (any more). */
static int unlink_at_home(struct job *j, const struct found *f, const struct name_ref *ref, bool handed,
	struct said *said, bool *ret_reset)
{
	struct wire_msg m = { 0 }, reply = { 0 };

	message_init(&m, MESSAGE_FILE_UNLINK);
	put_place(&m, ref);
	message_put(&m, MESSAGE_HANDED, handed);
	int rc = ask_home(j, &(struct under){ .a = ref }, f, &m, &reply, ret_reset);
	if (rc == 0)
		said_get(&reply, said);
	wire_msg_free(&m);
	wire_msg_free(&reply);
	return rc == -ESTALE ? -ENOENT : rc;
}

static int remove_file(struct job *j, struct name_ref *ref, const struct found *f, bool *ret_stale)
{
	struct said said = { 0 };
	bool reset = false;
	int rc = unlink_at_home(j, f, ref, false, &said, &reset);

	*ret_stale = rc == -ENOENT && !reset;
	if (rc == -ENOENT && reset)
		rc = 0;
	if (rc == 0) {
		ref->at.ino = 0;
		ref->at.hidden |= said.hidden;
		if (said.lives_on)
			note_left(j, &ref->at, f->ino, &said);
	}
	unlock_name(j, ref, !*ret_stale && is_certain(rc, reset));
	return rc;
}

static int remove_dir(struct job *j, struct name_ref *ref, const struct found *f, bool *ret_stale)
{
	struct wire_msg m = { 0 };
	bool certain = true;
	int rc = know_found(j, f);

	tree_init(&m, TREE_RMDIR);
	put_place(&m, ref);
	message_put(&m, MESSAGE_INO, f->ino);
	if (rc == 0)
		rc = change_tree(j, &(struct under){ .a = ref }, &m, -ENOENT, &certain, &ref->at);
	wire_msg_free(&m);
	*ret_stale = rc == -ESTALE;
	unlock_name(j, ref, certain);
	return rc;
}

int change_remove(struct job *j, uint64_t parent, const char *name, bool is_dir)
{
	bool stale = true;
	int rc = -ENOENT;

	for (int tries = 0; stale && tries < CHANGE_TRIES; tries++) {
		struct name_ref ref = { 0 };
		struct found found;

		rc = lock_name(j, &ref, parent, name, &found);
		if (rc < 0)
			return rc;
		stale = false;
		if (found.kind == FOUND_NOTHING)
			rc = -ENOENT;
		else if (is_dir != (found.kind == FOUND_DIR))
			rc = is_dir ? -ENOTDIR : -EISDIR;
		if (rc < 0)
			held_unlock(j, &ref);
		else if (is_dir)
			rc = remove_dir(j, &ref, &found, &stale);
		else
			rc = remove_file(j, &ref, &found, &stale);
	}
	return rc;
}

/* ---- renaming */

struct move {
	struct name_ref ref[2]; /* from, to */
	struct found found[2];
	unsigned int flags;
	struct said said; /* by the source's home, last */
	bool certain;
	bool stale;
};

enum { FROM, TO };

/* A file's home has its name in its state, with this stamp or a higher one: it was there before what is to come. */
static int settle_at_home(struct job *j, struct move *m, int which, uint64_t stamp)
{
	const struct found *f = &m->found[which];
	struct wire_msg rq = { 0 };

	message_init(&rq, MESSAGE_FILE_ADOPT);
	put_place(&rq, &m->ref[which]);
	message_put(&rq, MESSAGE_STAMP, stamp);
	struct wire_msg reply = { 0 };
	bool reset;
	int rc = ask_home(j, &(struct under){ .a = &m->ref[which] }, f, &rq, &reply, &reset);
	if (rc == 0)
		said_get(&reply, &m->said);
	wire_msg_free(&rq);
	wire_msg_free(&reply);
	m->stale = rc == -ENOENT || rc == -ESTALE;
	m->certain = !m->stale; /* nothing was done, but the name leads elsewhere */
	return rc;
}

/* Of files of these homes, or NO_HOME; FROM only if something comes there. */
static int take_names(struct job *j, struct move *m, uint32_t home, uint32_t other)
{
	int rc = take_name(j, &m->ref[TO], home);

	if (rc == 0 && m->flags & RENAME_EXCHANGE)
		rc = take_name(j, &m->ref[FROM], other);
	if (rc == -EAGAIN) {
		m->stale = true;
		m->certain = false;
	}
	return rc;
}

/* from and to may be exchanged by the caller: a directory goes there, and a file, if any, comes back. */
static int move_dir(struct job *j, struct move *m, int from, int to)
{
	const struct found *file = &m->found[to];
	struct wire_msg rq = { 0 };
	int rc = know_found(j, &m->found[from]);

	if (rc == 0)
		rc = know_found(j, file);
	if (rc == 0)
		rc = take_names(j, m, NO_HOME, NO_HOME);
	if (rc == 0 && file->kind == FOUND_FILE)
		rc = settle_at_home(j, m, to, 0);
	if (rc < 0)
		return rc;
	tree_init(&rq, TREE_RENAME);
	put_place(&rq, &m->ref[to]);
	message_put(&rq, MESSAGE_FROM_DIR, m->ref[from].dir);
	message_put_str(&rq, MESSAGE_FROM, m->ref[from].name);
	message_put(&rq, MESSAGE_INO, m->found[from].ino);
	message_put(&rq, MESSAGE_FLAGS, m->flags & RENAME_EXCHANGE);
	message_put(&rq, MESSAGE_OTHER, file->kind == FOUND_DIR ? file->ino : 0);
	rc = change_tree(j, &(struct under){ &m->ref[FROM], &m->ref[TO] }, &rq, -ENOENT, &m->certain, &m->ref[from].at);
	m->stale = rc == -ESTALE;
	wire_msg_free(&rq);
	if (rc == 0 && file->kind == FOUND_FILE) {
		m->ref[from].at.ino = file->ino;
		m->ref[from].at.stamp = 0;
		m->ref[to].at.ino = 0;
		m->ref[to].at.hidden = true;
	}
	return rc;
}

/* At the source's home; other: what is replaced or changed places with there, or 0; handed: a file of another home has the old name. */
static int move_at_home(struct job *j, struct move *m, uint64_t other, unsigned int flags, bool handed)
{
	struct wire_msg rq = { 0 }, reply = { 0 };
	const struct found *f = &m->found[FROM];
	bool reset = false;

	message_init(&rq, MESSAGE_FILE_RENAME);
	put_place(&rq, &m->ref[TO]);
	message_put(&rq, MESSAGE_FROM_DIR, m->ref[FROM].dir);
	message_put_str(&rq, MESSAGE_FROM, m->ref[FROM].name);
	message_put(&rq, MESSAGE_TREE, state_tree_stamp(j->state));
	message_put(&rq, MESSAGE_FLAGS, flags);
	message_put(&rq, MESSAGE_STAMP, m->ref[TO].stamp);
	message_put(&rq, MESSAGE_OTHER, other);
	message_put(&rq, MESSAGE_HANDED, handed);
	int rc = ask_home(j, &(struct under){ &m->ref[FROM], &m->ref[TO] }, f, &rq, &reply, &reset);
	m->said = (struct said){ 0 };
	if (rc == 0)
		said_get(&reply, &m->said);
	m->ref[FROM].at.hidden |= m->said.hidden;
	wire_msg_free(&rq);
	wire_msg_free(&reply);
	m->stale = (rc == -ENOENT || rc == -ESTALE) && !reset;
	if ((rc == -ENOENT || rc == -ESTALE) && reset)
		rc = 0;
	m->certain = !m->stale && is_certain(rc, reset);
	return rc;
}

static void moved(struct job *j, struct move *m)
{
	struct pointer *from = &m->ref[FROM].at, *to = &m->ref[TO].at;
	bool exchange = m->flags & RENAME_EXCHANGE;

	from->ino = exchange ? m->found[TO].ino : 0;
	from->stamp = exchange ? m->ref[FROM].stamp : 0;
	to->hidden |= m->found[TO].kind == FOUND_FILE;
	to->ino = m->found[FROM].ino;
	to->stamp = m->ref[TO].stamp;
	if (!exchange)
		note_left(j, from, m->found[FROM].ino, &m->said);
	if (m->said.lives_on)
		note_left(j, to, m->found[FROM].ino, &m->said);
}

/* What its home has just said it did is on its device. */
static int settle_file(struct job *j, uint64_t ino, const struct said *said)
{
	int rc = power_sync_life(j, remote_home(j, ino), said->life);

	return rc == -EAGAIN ? -EIO : rc;
}

/*
 * The other home's file gets the old name as well, below the one that has it; then the old one goes, and with it all is done. Below it is
 * by its stamp, 0: so the one that has it must not have come there in this same way, or from the backing directory. Each step is durable
 * before the next, so that none of the two is without a name when one home forgets what it did last.
 */
static int exchange_homes(struct job *j, struct move *m)
{
	const struct found *other = &m->found[TO];
	struct said said = { 0 };
	struct core_entry e;
	bool reset = false;
	int rc = settle_at_home(j, m, FROM, m->ref[FROM].stamp);

	if (rc == 0)
		rc = settle_file(j, m->found[FROM].ino, &m->said);
	if (rc < 0)
		return rc;
	rc = link_at_home(j, other, &m->ref[FROM], 0, &e, &reset, &said);
	if (rc < 0) {
		m->certain = is_certain(rc, reset);
		return rc;
	}
	remote_forget(j, other->ino, 1);
	rc = settle_file(j, other->ino, &said);
	if (rc < 0) {
		m->certain = false; /* the one with the higher stamp has it, as before */
		return rc;
	}
	rc = move_at_home(j, m, 0, 0, true);
	if (rc < 0) {
		/* Perhaps it was done: then the file has no other name. Else its stamp loses, and the server finds out. */
		if ((m->stale || m->certain) && unlink_at_home(j, other, &m->ref[FROM], true, &said, &reset) < 0)
			m->certain = false;
		return rc;
	}
	rc = settle_file(j, m->found[FROM].ino, &m->said);
	if (rc < 0 || unlink_at_home(j, other, &m->ref[TO], true, &said, &reset) < 0)
		m->certain = false; /* the stamps decide */
	m->ref[FROM].stamp = 0;
	moved(j, m);
	return 0;
}

static int replace_other_home(struct job *j, struct move *m)
{
	struct said said = { 0 };
	bool reset = false;
	int rc = move_at_home(j, m, 0, 0, false);

	if (rc < 0)
		return rc;
	moved(j, m);
	/* First what is there instead: should a home lose power, the name must not be without a file. */
	rc = settle_file(j, m->found[FROM].ino, &m->said);
	if (rc < 0 || unlink_at_home(j, &m->found[TO], &m->ref[TO], true, &said, &reset) < 0)
		m->certain = false; /* the stamps decide */
	return 0;
}

static int move_file(struct job *j, struct move *m)
{
	const struct found *from = &m->found[FROM], *to = &m->found[TO];
	bool there = to->kind == FOUND_FILE;
	int rc;

	if (there && from->ino == to->ino)
		return 0;
	rc = take_names(j, m, remote_home(j, from->ino), remote_home(j, to->ino));
	if (rc < 0)
		return rc;
	if (there && remote_home(j, from->ino) != remote_home(j, to->ino))
		return m->flags & RENAME_EXCHANGE ? exchange_homes(j, m) : replace_other_home(j, m);
	rc = move_at_home(j, m, there ? to->ino : 0, m->flags & RENAME_EXCHANGE, false);
	if (rc == 0)
		moved(j, m);
	return rc;
}

static int check_move(const struct move *m)
{
	enum found_kind from = m->found[FROM].kind, to = m->found[TO].kind;

	if (from == FOUND_NOTHING)
		return -ENOENT;
	if (m->flags & RENAME_EXCHANGE)
		return to == FOUND_NOTHING ? -ENOENT : 0;
	if (to == FOUND_NOTHING)
		return 0;
	if (m->flags & RENAME_NOREPLACE)
		return -EEXIST;
	if (from == to)
		return 0;
	return from == FOUND_DIR ? -ENOTDIR : -EISDIR;
}

static int move_locked(struct job *j, struct move *m)
{
	int rc = find(j, &m->ref[FROM], &m->found[FROM]);

	if (rc == 0)
		rc = find(j, &m->ref[TO], &m->found[TO]);
	if (rc == 0)
		rc = check_move(m);
	if (rc < 0)
		return rc;
	if (m->found[FROM].kind == FOUND_DIR)
		return move_dir(j, m, FROM, TO);
	if (m->found[TO].kind == FOUND_DIR) /* exchange */
		return move_dir(j, m, TO, FROM);
	return move_file(j, m);
}

static int rename_once(struct job *j, struct move *m)
{
	int rc = held_lock(j, m->ref, 2);

	if (rc < 0)
		return rc;
	m->certain = true;
	m->stale = false;
	rc = move_locked(j, m);
	unlock_name(j, &m->ref[FROM], m->certain);
	unlock_name(j, &m->ref[TO], m->certain);
	return rc;
}

int change_rename(
	struct job *j, uint64_t from_parent, const char *from, uint64_t parent, const char *name, unsigned int flags)
{
	struct move m;
	int rc, last = 0;

	if (flags & ~(unsigned int)(RENAME_EXCHANGE | RENAME_NOREPLACE) ||
		flags == (RENAME_EXCHANGE | RENAME_NOREPLACE))
		return -EINVAL;
	if (from_parent == parent && strcmp(from, name) == 0)
		return flags & RENAME_NOREPLACE ? -EEXIST : 0;
	rc = tree_know(j, from_parent);
	if (rc == 0)
		rc = tree_know(j, parent);
	for (int tries = 0; rc == 0 && tries < CHANGE_TRIES; tries++) {
		m = (struct move){ .flags = flags };
		m.ref[FROM] = (struct name_ref){ .dir = from_parent, .name = from };
		m.ref[TO] = (struct name_ref){ .dir = parent, .name = name };
		rc = rename_once(j, &m);
		if (!m.stale)
			break;
		last = rc;
		rc = 0;
	}
	if (rc < 0 || !m.stale)
		return rc;
	return last == -EAGAIN ? -EIO : -ENOENT;
}
