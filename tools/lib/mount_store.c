/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Before the kernel asks the daemon for an attribute of the mount's root it may want to know the root's owner and mode. In a job another node
 * has these, and that one may hang. Whoever asks cannot be ended then before there is an answer; so a child asks, and is left behind.
 */
#include "tools/lib/mount_store.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "format/base/config.h"

#define ANSWER_MSEC   3000
#define COMMAND_BYTES (128u << 10)

struct answer {
	int status;
	char store[PATH_MAX];
};

static void ask(const char *mountpoint, struct answer *a)
{
	ssize_t n = getxattr(mountpoint, MOUNT_STORE_XATTR, a->store, sizeof(a->store) - 1);

	a->status = n > 0 ? 0 : n < 0 ? -errno : -ENODATA;
	a->store[n > 0 ? n : 0] = '\0';
}

/* In the child, which may stay for long: nobody must wait for the end of what it has inherited. */
static _Noreturn void ask_for_parent(const char *mountpoint, struct answer *a, int to)
{
	if (dup2(to, 0) < 0 || close_range(1, ~0u, 0) < 0)
		_exit(1);
	ask(mountpoint, a);
	_exit(write(0, a, sizeof(*a)) != (ssize_t)sizeof(*a));
}

/* Up to the end. */
static size_t read_all(int fd, void *buf, size_t cap)
{
	size_t len = 0;
	ssize_t n;

	while (len < cap && (n = read(fd, (char *)buf + len, cap - len)) > 0)
		len += (size_t)n;
	return len;
}

static int read_answer(int fd, struct answer *a)
{
	struct pollfd p = { .fd = fd, .events = POLLIN };
	int r;

	while ((r = poll(&p, 1, ANSWER_MSEC)) < 0 && errno == EINTR)
		;
	if (r <= 0)
		return r < 0 ? -errno : -ETIMEDOUT;
	return read_all(fd, a, sizeof(*a)) == sizeof(*a) ? 0 : -EIO;
}

static int ask_in_time(const char *mountpoint, struct answer *a)
{
	int fds[2], r;
	pid_t child;

	if (pipe2(fds, O_CLOEXEC) < 0)
		return -errno;
	child = fork();
	if (child == 0)
		ask_for_parent(mountpoint, a, fds[1]);
	r = child < 0 ? -errno : 0;
	close(fds[1]);
	if (r == 0)
		r = read_answer(fds[0], a);
	close(fds[0]);
	if (r == -ETIMEDOUT)
		kill(child, SIGKILL);
	else if (child > 0)
		(void)waitpid(child, NULL, 0);
	return r < 0 ? r : a->status;
}

/* ---- the daemon's command line: cistern-fs BACKING MOUNTPOINT -o SETTINGS ... */

static bool is_trusted(const char *pid)
{
	char path[64];
	struct stat st;

	snprintf(path, sizeof(path), "/proc/%.20s", pid);
	return stat(path, &st) == 0 && (st.st_uid == geteuid() || st.st_uid == 0);
}

/* The fields of the command line, each ended by a zero. 0: it has gone, or is none. */
static size_t read_command(const char *pid, char *buf, size_t cap)
{
	char path[64];
	size_t len;
	int fd;

	snprintf(path, sizeof(path), "/proc/%.20s/cmdline", pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return 0;
	len = read_all(fd, buf, cap - 1);
	close(fd);
	buf[len] = '\0';
	return len;
}

static int store_of_settings(const char *settings, char out[PATH_MAX])
{
	struct cistern_error err = { 0 };
	struct config *cfg;
	int r = config_create(&cfg);

	if (r < 0)
		return r;
	r = config_parse_options(cfg, settings, "its daemon's command line", &err);
	if (r == 0 && (size_t)snprintf(out, PATH_MAX, "%s", config_string(cfg, CONFIG_STORE)) >= PATH_MAX)
		r = -ENAMETOOLONG;
	config_destroy(cfg);
	return r == 0 && out[0] != '/' ? -ENOENT : r;
}

static int store_of_command(const char *command, size_t len, const char *mountpoint, char out[PATH_MAX])
{
	const char *field[5] = { "", "", "", "", "" };
	size_t num = 0;

	for (size_t at = 0; at < len && num < 5; at += strlen(command + at) + 1)
		field[num++] = command + at;
	if (num < 5 || strcmp(field[0], "cistern-fs") != 0 || strcmp(field[2], mountpoint) != 0 ||
		strcmp(field[3], "-o") != 0)
		return -ENOENT;
	return store_of_settings(field[4], out);
}

static int search(DIR *d, char *buf, const char *mountpoint, char out[PATH_MAX])
{
	struct dirent *e;

	while ((e = readdir(d)) != NULL) {
		if (!isdigit((unsigned char)e->d_name[0]) || !is_trusted(e->d_name))
			continue;
		size_t len = read_command(e->d_name, buf, COMMAND_BYTES);
		if (store_of_command(buf, len, mountpoint, out) == 0)
			return 0;
	}
	return -ETIMEDOUT;
}

static int find_daemon(const char *mountpoint, char out[PATH_MAX])
{
	char *buf = malloc(COMMAND_BYTES);
	DIR *d = opendir("/proc");
	int r = buf && d ? search(d, buf, mountpoint, out) : -ETIMEDOUT;

	if (d)
		closedir(d);
	free(buf);
	return r;
}

int mount_store(const char *mountpoint, char out[PATH_MAX])
{
	struct answer *a = calloc(1, sizeof(*a));
	int r = a ? ask_in_time(mountpoint, a) : -ENOMEM;

	if (r == 0)
		memcpy(out, a->store, sizeof(a->store));
	else if (r == -ETIMEDOUT)
		r = find_daemon(mountpoint, out);
	if (r < 0)
		out[0] = '\0';
	free(a);
	return r;
}
