/* SPDX-License-Identifier: GPL-3.0-or-later */
/* Publication of converted files: temporary, fsync, rename, fsync of the directory. */
#include "mpi-agent/convert/publish.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "format/base/fdio.h"
#include "format/base/units.h"

#define SUFFIX ".cistern-convert"

static int failed(const char *path, struct cistern_error *err)
{
	return cistern_error_set(err, -errno, "%s: %s", path, strerror(errno));
}

int publish_name(struct publish *p, const char *path, bool force, struct cistern_error *err)
{
	const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
	int n, m;

	p->fd = -1;
	p->created = false;
	p->force = force;
	n = snprintf(p->path, sizeof(p->path), "%s", path);
	m = snprintf(p->temp, sizeof(p->temp), "%.*s.%s" SUFFIX, (int)(name - path), path, name);
	if (n >= (int)sizeof(p->path) || m >= (int)sizeof(p->temp) || *name == '\0')
		return cistern_error_set(err, -ENAMETOOLONG, "%s: no name for a file", path);
	return 0;
}

static int lock(struct publish *p, struct cistern_error *err)
{
	struct flock whole = { .l_type = F_WRLCK, .l_whence = SEEK_SET };

	/* Not flock(2): that is HDF5's. File systems without locks are trusted. */
	if (fcntl(p->fd, F_OFD_SETLK, &whole) < 0 && (errno == EAGAIN || errno == EACCES))
		return cistern_error_set(err, -EBUSY, "%s is being made by another program", p->path);
	if (fdio_check_name(p->fd, p->temp) < 0)
		return cistern_error_set(err, -EBUSY, "%s was just made by another program", p->path);
	return 0;
}

int publish_create(struct publish *p, struct cistern_error *err)
{
	struct stat st;
	int r;

	if (stat(p->path, &st) == 0 && !S_ISREG(st.st_mode))
		return cistern_error_set(err, -EEXIST, "%s is not a regular file", p->path);
	if (lstat(p->path, &st) == 0 && !p->force)
		return cistern_error_set(err, -EEXIST, "%s exists; --force replaces it", p->path);
	p->fd = open(p->temp, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
	if (p->fd < 0)
		return failed(p->temp, err);
	r = lock(p, err);
	if (r < 0)
		return r;
	p->created = true;
	return ftruncate(p->fd, 0) < 0 ? failed(p->temp, err) : 0;
}

int publish_join(struct publish *p, struct cistern_error *err)
{
	p->fd = open(p->temp, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
	return p->fd < 0 ? failed(p->temp, err) : 0;
}

int publish_check_room(const struct publish *p, uint64_t bytes, struct cistern_error *err)
{
	char want[UNITS_TEXT], have[UNITS_TEXT];
	struct statvfs v;
	uint64_t room;

	if (fstatvfs(p->fd, &v) < 0)
		return failed(p->temp, err);
	if (v.f_blocks == 0) /* a file system that does not say */
		return 0;
	room = (uint64_t)v.f_bavail * v.f_frsize;
	if (room < bytes)
		return cistern_error_set(err, -ENOSPC, "%s would need %s, but there are %s free", p->path,
			units_format_bytes(bytes, want), units_format_bytes(room, have));
	return 0;
}

int publish_sync(struct publish *p, struct cistern_error *err)
{
	return fsync(p->fd) < 0 ? failed(p->temp, err) : 0;
}

/* As rename(2), but never over what is there. */
static int rename_new(const char *from, const char *to)
{
	if (renameat2(AT_FDCWD, from, AT_FDCWD, to, RENAME_NOREPLACE) == 0)
		return 0;
	if (errno != EINVAL && errno != ENOSYS)
		return -1;
	return link(from, to) < 0 || unlink(from) < 0 ? -1 : 0;
}

int publish_commit(struct publish *p, struct cistern_error *err)
{
	int r;

	if ((p->force ? rename(p->temp, p->path) : rename_new(p->temp, p->path)) < 0)
		return failed(p->path, err);
	p->created = false;
	r = fdio_sync_parent(p->path);
	return r < 0 ? cistern_error_set(err, r, "%s: %s", p->path, strerror(-r)) : 0;
}

void publish_end(struct publish *p)
{
	if (p->created)
		unlink(p->temp);
	p->created = false;
	if (p->fd >= 0)
		close(p->fd);
	p->fd = -1;
}
