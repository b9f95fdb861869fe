/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Attributes of what has been carried over. The order matters: a change of owner clears set-id bits and capabilities, an
 * ACL changes the mode, and everything changes times; so owner, mode, xattrs, times.
 *
 * What the destination's file system or our rights do not allow (a foreign owner, a namespace of xattrs) is a warning and
 * not a failure: the bytes are there, and no later drain could do better.
 */
#include "mpi-agent/replay/session.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void attrs_of_inode(const struct inode *in, struct sink_attr *ret)
{
	*ret = (struct sink_attr){
		.mode = in->mode, .uid = in->uid, .gid = in->gid, .atime_ns = in->atime_ns, .mtime_ns = in->mtime_ns
	};
}

/* What the mount shows and lets go; others (labels, a file system's own) are not ours to remove. */
static bool is_ours_to_remove(const char *name)
{
	return strncmp(name, "user.", 5) == 0 || strcmp(name, "system.posix_acl_access") == 0 ||
	       strcmp(name, "system.posix_acl_default") == 0 || strcmp(name, "security.capability") == 0;
}

struct xattr_job {
	struct state *st;
	uint64_t ino;
	struct sink_file *to, *from;
	uint8_t *value; /* RECORD_VALUE_MAX bytes */
	struct attrs_warning *warning;
};

void attrs_add_warning(struct attrs_warning *warning, const char *text)
{
	size_t len = strlen(warning->text);

	if (text && text[0])
		snprintf(warning->text + len, sizeof(warning->text) - len, "%s%s", len > 0 ? "; " : "", text);
}

static int refused(struct xattr_job *job, const char *name, size_t len, int r)
{
	char text[sizeof(job->warning->text)];

	if (r != -EOPNOTSUPP && r != -EPERM && r != -EACCES && r != -E2BIG && r != -ERANGE)
		return r;
	snprintf(text, sizeof(text),
		"the extended attribute %s (%zu bytes) is not there: the destination's file system %s (%s)", name, len,
		r == -E2BIG ? "has no room for it beside the file's others" : "or our rights do not allow it",
		strerror(-r));
	attrs_add_warning(job->warning, text);
	return 0;
}

static int set_one(const char *name, const void *val, size_t len, void *arg)
{
	struct xattr_job *job = arg;
	int r = job->to->ops->set_xattr(job->to, name, val, len);

	return r < 0 ? refused(job, name, len, r) : 0;
}

/* One that was removed in the mount. */
static int still_there(struct xattr_job *job, const char *name, int r)
{
	char text[sizeof(job->warning->text)];

	if (r != -EOPNOTSUPP && r != -EPERM && r != -EACCES)
		return r;
	snprintf(text, sizeof(text), "the extended attribute %s could not be removed: %s", name, strerror(-r));
	attrs_add_warning(job->warning, text);
	return 0;
}

static int remove_one(const char *name, void *arg)
{
	struct xattr_job *job = arg;
	size_t len;
	int r;

	if (!is_ours_to_remove(name))
		return 0;
	r = state_xattr(job->st, job->ino, name, job->value, RECORD_VALUE_MAX, &len);
	if (r != -ENODATA)
		return r;
	r = job->to->ops->remove_xattr(job->to, name);
	return r == -ENODATA ? 0 : r < 0 ? still_there(job, name, r) : 0;
}

static int apply_xattrs(struct session *s, const struct inode *in, struct sink_file *f, struct attrs_warning *warning)
{
	struct xattr_job job = { .st = s->st, .ino = in->ino, .to = f, .warning = warning };
	int r;

	job.value = malloc(RECORD_VALUE_MAX);
	r = job.value ? f->ops->list_xattrs(f, remove_one, &job) : -ENOMEM;
	if (r == 0)
		r = state_list_xattrs(s->st, in->ino, set_one, &job);
	free(job.value);
	return r;
}

int attrs_apply(struct session *s, const struct inode *in, const struct sink_attr *attr, struct sink_file *f,
	struct attrs_warning *warning)
{
	struct sink_attr times = *attr;
	const char *text = NULL;
	int r = 0;

	if (in->flags & (INODE_NEW | INODE_DIRTY_XATTR)) {
		/* Owner and mode first: they would clear capabilities. */
		r = f->ops->set_attr(f, attr, &text);
		attrs_add_warning(warning, text);
		if (r == 0)
			r = apply_xattrs(s, in, f, warning);
		times.times_only = true;
	}
	if (r == 0) {
		r = f->ops->set_attr(f, &times, &text);
		attrs_add_warning(warning, text);
	}
	return r;
}

void attrs_tell(struct session *s, const char *path, const struct attrs_warning *warning)
{
	struct manifest_file mf = { .path = path, .state = "drained", .warning = warning->text };

	if (warning->text[0] && s->opt->manifest)
		manifest_add_file(s->opt->manifest, &mf);
}

static int copy_one(const char *name, void *arg)
{
	struct xattr_job *job = arg;
	ssize_t len = job->from->ops->get_xattr(job->from, name, job->value, RECORD_VALUE_MAX);

	if (len < 0)
		return len == -ENODATA ? 0 : refused(job, name, 0, (int)len);
	return set_one(name, job->value, (size_t)len, job);
}

int attrs_copy_xattrs(struct sink_file *from, struct sink_file *to, struct attrs_warning *warning)
{
	struct xattr_job job = { .from = from, .to = to, .warning = warning };
	int r;

	job.value = malloc(RECORD_VALUE_MAX);
	r = job.value ? from->ops->list_xattrs(from, copy_one, &job) : -ENOMEM;
	free(job.value);
	return r;
}
