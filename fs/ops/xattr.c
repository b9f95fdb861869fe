/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Extended attributes. Each inode has one more, user.cistern.store: where the mount's store is, so that the tools find
 * the daemon of a mount point, also where only a part of the mount is mounted (a bind mount). It is not listed, so copies do not
 * carry it away.
 */
#include <string.h>
#include <sys/xattr.h>

#include "format/base/config_check.h"
#include "format/base/drain_layout.h"
#include "fs/ops/private.h"

#define STORE_XATTR "user.cistern.store"

/* The reply buffer overlays the name behind a request's first 80 bytes: work behind it. */
#define NAME_ROOM 4096u

static bool is_store_xattr(const char *name)
{
	return strcmp(name, STORE_XATTR) == 0;
}

static void reply_value(fuse_req_t req, ssize_t n, const void *value, size_t size)
{
	if (n < 0)
		reply_status(req, (int)n);
	else if (size == 0)
		fuse_reply_xattr(req, (size_t)n);
	else if ((size_t)n > size)
		reply_status(req, -ERANGE);
	else
		fuse_reply_buf(req, value, (size_t)n);
}

static char *value_buffer(fuse_req_t req, size_t *size)
{
	if (*size > SESSION_DATA_BYTES - NAME_ROOM)
		*size = SESSION_DATA_BYTES - NAME_ROOM;
	return (char *)session_reply_buffer(session_of(req)) + NAME_ROOM;
}

void ops_getxattr(fuse_req_t req, fuse_ino_t ino, const char *name, size_t size)
{
	char *value = value_buffer(req, &size);

	if (is_store_xattr(name)) {
		const char *path = ops_of(req)->opt.store_path;

		reply_value(req, (ssize_t)strlen(path), path, size);
		return;
	}
	reply_value(req, job_getxattr(job_of(req), ino, name, value, size), value, size);
}

void ops_listxattr(fuse_req_t req, fuse_ino_t ino, size_t size)
{
	char *value = value_buffer(req, &size);

	reply_value(req, job_listxattr(job_of(req), ino, value, size), value, size);
}

/* The caller gets a number only. */
static void log_refused_layout(struct ops *o, fuse_ino_t ino, const void *value, size_t size)
{
	struct cistern_error err = { 0 };

	if (config_check_layout_xattr(value, size, &err) == 0)
		(void)cistern_error_set(&err, -EINVAL,
			"only a file has a layout of its own; for all files of a folder: mount with -o layout=FOLDER/*=LAYOUT");
	log_event(o->opt.log, LOG_LEVEL_WARNING, "layout-refused", "ino=%llu text=\"%s\"", (unsigned long long)ino,
		err.text);
}

void ops_setxattr(fuse_req_t req, fuse_ino_t ino, const char *name, const char *value, size_t size, int flags)
{
	int rc = is_store_xattr(name) ? -EPERM : job_setxattr(job_of(req), ino, name, value, size, flags);

	if (rc == -EINVAL && strcmp(name, DRAIN_LAYOUT_XATTR) == 0)
		log_refused_layout(ops_of(req), ino, value, size);
	reply_status(req, rc);
}

void ops_removexattr(fuse_req_t req, fuse_ino_t ino, const char *name)
{
	if (is_store_xattr(name))
		reply_status(req, -EPERM);
	else
		reply_status(req, job_removexattr(job_of(req), ino, name));
}
