/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Between the look at what has a name and the rename that replaces it, somebody else may have put something there: another node, or a
 * program that knows nothing of us, its only copy. So what is new gets a name only if nothing has it, in one step; and what is to replace
 * something changes places with it, and that is looked at before it is removed. If it is not what was seen, both change places again.
 *
 * Killed in between, it is beside the name, under a temporary one: intent_undo() knows of that, and brings it back (docs/design/many-nodes.md, 6).
 * Where the backing file system cannot do either (EINVAL; NFS, and most parallel ones), a link gives a new name, and what is replaced is looked at
 * right before; so it is in a recovery of several stores, which keeps no intents.
 */
#include <errno.h>

#include "mpi-agent/replay/session.h"

bool give_is_guarded(const struct session *s)
{
	return s->intent;
}

/* Numbers are given again: what has been written to since is another file. */
static bool is_still(const struct stat *then, const struct stat *now)
{
	return then->st_ino == now->st_ino && then->st_size == now->st_size &&
	       then->st_mtim.tv_sec == now->st_mtim.tv_sec && then->st_mtim.tv_nsec == now->st_mtim.tv_nsec;
}

/* What is at temp has come there unexpectedly; ours: the number of what has its name. */
static int put_back(struct session *s, const char *temp, const char *to, ino_t ours)
{
	struct stat st;
	int r = s->to->ops->exchange(s->to, temp, to);

	if (r == -ENOENT) { /* ours was removed, by its name */
		r = s->to->ops->rename_new(s->to, temp, to);
		return r < 0 && r != -EEXIST ? r : -EBUSY;
	}
	if (r < 0 || s->to->ops->stat(s->to, temp, &st) < 0 || st.st_ino == ours)
		return r < 0 ? r : -EEXIST;
	r = s->to->ops->exchange(s->to, temp, to); /* ours was replaced, by its name */
	return r < 0 ? r : -EBUSY;
}

static int replace(struct session *s, const char *temp, const char *to, const struct stat *there)
{
	struct stat ours, out;
	int r = s->to->ops->stat(s->to, temp, &ours);

	if (r == 0)
		r = s->to->ops->exchange(s->to, temp, to);
	if (r < 0)
		return r == -ENOENT ? -EEXIST : r;
	if (s->to->ops->stat(s->to, temp, &out) == 0 && is_still(there, &out)) {
		(void)s->to->ops->remove(s->to, temp, false); /* or with the next sweep */
		return 0;
	}
	r = put_back(s, temp, to, ours.st_ino);
	return r == -EEXIST || r == -EBUSY
		       ? r
		       : session_end(
				 s, r, "what somebody has put in the place of a drained file cannot be put back there");
}

/* Without the flag: a link is not made over anything either. */
static int link_new(struct session *s, const char *temp, const char *to)
{
	struct stat st;
	int r = s->to->ops->link(s->to, temp, to);

	if (r == 0)
		return s->to->ops->remove(s->to, temp, false);
	if (r != -EPERM && r != -EOPNOTSUPP && r != -ENOSYS && r != -EMLINK)
		return r;
	if (s->to->ops->stat(s->to, to, &st) == 0)
		return -EEXIST;
	return s->to->ops->rename(s->to, temp, to, false);
}

/* Without the flag, or where nobody would bring back what was exchanged: what is there is looked at once more, and the moment stays. */
static int rename_over(struct session *s, const char *temp, const char *to, const struct stat *there)
{
	struct stat now;

	if (s->to->ops->stat(s->to, to, &now) == 0 && !is_still(there, &now))
		return -EEXIST;
	return s->to->ops->rename(s->to, temp, to, false);
}

int give_name(struct session *s, const char *temp, const char *to, const struct stat *there)
{
	int r = -EOPNOTSUPP;

	if (there->st_ino == 0) {
		r = s->to->ops->rename_new(s->to, temp, to);
		return r == -EOPNOTSUPP ? link_new(s, temp, to) : r;
	}
	if (give_is_guarded(s))
		r = replace(s, temp, to, there);
	return r == -EOPNOTSUPP ? rename_over(s, temp, to, there) : r;
}
