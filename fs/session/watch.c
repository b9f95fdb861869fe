/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * What the kernel does for us may wait, uninterruptibly, for what a process in the mount holds (a directory's lock, a page), and that process for
 * an answer of ours. Should we be killed then, that thread of ours does not end, so the device stays open, so the connection lives,
 * so nobody ever answers: a circle. Who breaks it must live when we do not, and hold nothing of the device.
 *
 * It is told of our death by a signal (PR_SET_PDEATHSIG), which comes with the end of the *thread* that made it: our first one, which asks
 * nothing of the mount. A pidfd or a pipe would say nothing: both wait for the last thread, the one that hangs. Our pid, too, stays ours till then.
 *
 * What it severs is what was mounted when we told it so: the file that it has open is that connection's and none other's, also when the
 * kernel gives the number again; a mount is known by an id that is not given again (Linux 6.8).
 */
#include "fs/session/watch.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fs/session/private.h"

#ifndef STATX_MNT_ID_UNIQUE
#define STATX_MNT_ID_UNIQUE 0x4000u
#endif

#define NAME         "cistern-watch"
#define DEATH_SIGNAL SIGUSR2
#define CONNECTIONS  "/sys/fs/fuse/connections"
#define OWN_FD       3 /* the watcher's end of the socket */

struct watched { /* in the watcher */
	pid_t daemon;
	char mountpoint[PATH_MAX];
	uint64_t mount_id;
	uint32_t dev_minor;
	int abort_fd; /* -1: none */
};

/* ---- the mount; no attribute is asked for, so the kernel answers by itself */

static int identify(int dir_fd, const char *path, uint64_t *ret_id, uint32_t *ret_minor)
{
	struct statx st;

	if (statx(dir_fd, path, AT_STATX_DONT_SYNC | AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT | AT_EMPTY_PATH,
		    STATX_MNT_ID | STATX_MNT_ID_UNIQUE, &st) < 0)
		return -errno;
	*ret_id = st.stx_mnt_id;
	*ret_minor = st.stx_dev_minor;
	return 0;
}

static enum watch_way find_way(struct watched *w)
{
	char path[64];

	if (identify(AT_FDCWD, w->mountpoint, &w->mount_id, &w->dev_minor) < 0)
		return WATCH_NONE;
	snprintf(path, sizeof(path), CONNECTIONS "/%u/abort", w->dev_minor);
	w->abort_fd = open(path, O_WRONLY | O_CLOEXEC);
	return w->abort_fd >= 0 ? WATCH_FILE : session_is_admin() ? WATCH_FORCE : WATCH_NONE;
}

/* The mount is to stay, and refuse: what programs write must not go into the directory below it. It does, because we hold it. */
static void force(const struct watched *w)
{
	int fd = open(w->mountpoint, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	char path[64];
	uint64_t id = 0;
	uint32_t dev_minor = 0;

	if (fd < 0 || identify(fd, "", &id, &dev_minor) < 0 || id != w->mount_id || dev_minor != w->dev_minor)
		return;
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	umount2(path, MNT_FORCE);
}

static void sever(const struct watched *w)
{
	if (w->abort_fd < 0 || write(w->abort_fd, "1", 1) < 0)
		force(w);
}

/* ---- the watcher */

static void wait_for_death(pid_t daemon)
{
	siginfo_t info;
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, DEATH_SIGNAL);
	do { /* the kernel sends it in the name of who dies */
		info.si_pid = 0;
		sigwaitinfo(&set, &info);
	} while (info.si_pid != daemon);
}

/* Nothing of the daemon's stays open, standard error neither: whoever reads it would wait for our end. */
static int let_go(int fd)
{
	int null = open("/dev/null", O_RDWR | O_CLOEXEC);

	fd = fcntl(fd, F_DUPFD_CLOEXEC, OWN_FD);
	for (int i = 0; i < OWN_FD; i++)
		if (null < 0 || dup2(null, i) < 0)
			return -1;
	if (fd < 0 || dup2(fd, OWN_FD) < 0)
		return -1;
	return close_range(OWN_FD + 1, ~0u, 0);
}

/* Signals that end a job in order reach every process of it; this one ends with the daemon. */
static _Noreturn void watch_main(pid_t daemon, int fd)
{
	struct watched w = { .daemon = daemon, .abort_fd = -1 };
	sigset_t all;
	uint8_t way;

	sigfillset(&all);
	sigprocmask(SIG_SETMASK, &all, NULL);
	prctl(PR_SET_NAME, NAME);
	if (prctl(PR_SET_PDEATHSIG, DEATH_SIGNAL) < 0 || getppid() != daemon || let_go(fd) < 0 ||
		read(OWN_FD, w.mountpoint, sizeof(w.mountpoint)) <= 0)
		_exit(EXIT_FAILURE);
	way = (uint8_t)find_way(&w);
	if (write(OWN_FD, &way, sizeof(way)) < 0 || way == WATCH_NONE)
		_exit(EXIT_FAILURE);
	close(OWN_FD);
	wait_for_death(daemon);
	sever(&w);
	_exit(EXIT_SUCCESS);
}

/* ---- the daemon */

int watch_begin(struct watch *w, struct cistern_error *err)
{
	pid_t pid, daemon = getpid();
	int fds[2];

	*w = (struct watch){ .fd = -1 };
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds) < 0)
		return cistern_error_set(err, -errno, "cannot make a socket: %s", strerror(errno));
	pid = fork();
	if (pid == 0)
		watch_main(daemon, fds[1]);
	close(fds[1]);
	if (pid < 0) {
		close(fds[0]);
		return cistern_error_set(err, -EAGAIN, "cannot fork: %s", strerror(errno));
	}
	*w = (struct watch){ .pid = pid, .fd = fds[0] };
	return 0;
}

int watch_mounted(struct watch *w, const char *mountpoint, enum watch_way *ret)
{
	uint8_t way;
	ssize_t n = send(w->fd, mountpoint, strlen(mountpoint) + 1, MSG_NOSIGNAL);

	if (n > 0)
		n = recv(w->fd, &way, sizeof(way), 0);
	if (n < 0)
		return -errno;
	if (n != sizeof(way) || way >= WATCH_END)
		return -EPIPE;
	*ret = (enum watch_way)way;
	return 0;
}

void watch_end(struct watch *w)
{
	if (w->pid > 0) {
		kill(w->pid, SIGKILL);
		while (waitpid(w->pid, NULL, 0) < 0 && errno == EINTR)
			continue;
	}
	if (w->fd >= 0)
		close(w->fd);
	*w = (struct watch){ .fd = -1 };
}
