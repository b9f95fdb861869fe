/* SPDX-License-Identifier: GPL-3.0-or-later */
/* What "cistern mount" has told the daemon. */
#include "fs/daemon.h"

#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "format/base/config_check.h"
#include "format/base/dead_mount.h"
#include "format/base/descriptors.h"

static int check_settings(const struct config *cfg, struct cistern_error *err)
{
	if (!*config_string(cfg, CONFIG_STORE))
		return cistern_error_set(
			err, -EINVAL, "no store is given: -o store=DIR, a directory on this node's own disk");
	return config_check(cfg, err);
}

static int absolute(const char *path, char out[PATH_MAX], struct cistern_error *err)
{
	char dir[PATH_MAX];
	int n;

	if (realpath(path, out))
		return 0;
	if (errno != ENOENT && errno != ENOTCONN)
		return cistern_error_set(err, -errno, "%s: %s", path, strerror(errno));
	if (path[0] == '/')
		n = snprintf(out, PATH_MAX, "%s", path);
	else
		n = getcwd(dir, sizeof(dir)) ? snprintf(out, PATH_MAX, "%s/%s", dir, path) : PATH_MAX;
	return n < PATH_MAX ? 0 : cistern_error_set(err, -ENAMETOOLONG, "%s: the path is too long", path);
}

static int open_backing(const struct daemon *d)
{
	int fd = open(d->backing, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	fd = fd < 0 ? -errno : fd;
	return fd == -ENOTCONN || fd == -ECONNABORTED ? dead_mount_open_below(d->mountpoint, d->backing) : fd;
}

/* Only root looks beneath a dead mount; others look again when it has been taken away. */
int daemon_open_backing(struct daemon *d, struct cistern_error *err)
{
	int fd = open_backing(d);

	if (fd >= 0) {
		d->backing_fd = fd;
		return 0;
	}
	if ((fd == -EPERM || fd == -ENOSYS) && dead_mount_is(d->mountpoint))
		return 0;
	return cistern_error_set(err, fd, "backing directory %s: %s", d->backing, strerror(-fd));
}

static int resolve_paths(struct daemon *d, const char *backing, const char *mountpoint, struct cistern_error *err)
{
	size_t len;
	int r = absolute(backing, d->backing, err);

	r = r ? r : absolute(mountpoint, d->mountpoint, err);
	r = r ? r : absolute(config_string(d->cfg, CONFIG_STORE), d->store_path, err);
	if (r)
		return r;
	len = strlen(d->mountpoint);
	/* The daemon would wait for itself. */
	if (strncmp(d->store_path, d->mountpoint, len) == 0 &&
		(d->store_path[len] == '/' || d->store_path[len] == '\0'))
		return cistern_error_set(err, -EINVAL, "the store %s lies in the mount point %s; choose another place",
			d->store_path, d->mountpoint);
	return daemon_open_backing(d, err);
}

static int parse_ready_fd(const char *text, int *ret, struct cistern_error *err)
{
	char *end;
	long n = strtol(text, &end, 10);

	if (*end || end == text || n < 0 || n > INT_MAX)
		return cistern_error_set(err, -EINVAL, "--ready-fd %s: not a descriptor", text);
	*ret = (int)n;
	return 0;
}

int daemon_parse(struct daemon *d, int argc, char **argv, struct cistern_error *err)
{
	static const struct option longs[] = {
		{ "foreground", no_argument, NULL, 'f' },
		{ "ready-fd", required_argument, NULL, 'r' },
		{ 0 },
	};
	const char *options[16];
	size_t num = 0;
	int c, r = 0;

	/* The settings come last: what is wrong with them is told on the ready descriptor. */
	while (!r && (c = getopt_long(argc, argv, "o:", longs, NULL)) >= 0) {
		if (c == 'f')
			d->foreground = true;
		else if (c == 'r')
			r = parse_ready_fd(optarg, &d->ready_fd, err);
		else if (c == 'o' && num < sizeof(options) / sizeof(options[0]))
			options[num++] = optarg;
		else
			r = cistern_error_set(
				err, -EINVAL, "cannot make sense of the command line; 'cistern mount' knows how");
	}
	/* Some may be of files of the mount that we are to replace: nobody could tell us from who writes there. */
	descriptors_drop_inherited(d->ready_fd);
	for (size_t i = 0; i < num && !r; i++)
		r = config_parse_options(d->cfg, options[i], "-o", err);
	if (!r && argc - optind != 2)
		r = cistern_error_set(err, -EINVAL, "give BACKING and MOUNTPOINT");
	if (!r)
		r = check_settings(d->cfg, err);
	return r ? r : resolve_paths(d, argv[optind], argv[optind + 1], err);
}
