/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * The line is told once, on the ready descriptor and to the parent that waits in the foreground. Everything of the
 * process that later code relies on (signals, limits, directories) is set here, before there are threads.
 */
#include "fs/session/launch.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

#include "format/base/limits.h"

#define LINE_BYTES (CISTERN_ERROR_TEXT_BYTES + 64)

/* ---- the waiting parent */

static size_t read_line(int fd, char line[LINE_BYTES])
{
	size_t len = 0;
	ssize_t n;

	while (len < LINE_BYTES - 1 &&
		((n = read(fd, line + len, LINE_BYTES - 1 - len)) > 0 || (n < 0 && errno == EINTR)))
		len += n > 0 ? (size_t)n : 0;
	line[len] = '\0';
	line[strcspn(line, "\n")] = '\0';
	return len;
}

static void wait_for_child(int fd, bool speak)
{
	char line[LINE_BYTES], *text = line;
	long status = CISTERN_EXIT_FAILED;

	if (read_line(fd, line) == 0)
		snprintf(line, sizeof(line), "cistern-fs ended without a word");
	if (strncmp(line, "ok", 2) == 0)
		_exit(CISTERN_EXIT_OK);
	if (strncmp(line, "E ", 2) == 0) {
		status = strtol(line + 2, &text, 10);
		text += strspn(text, " ");
	}
	if (speak)
		dprintf(STDERR_FILENO, "cistern-fs: %s\n", text);
	_exit((int)status);
}

static int into_background(struct launch *l, struct cistern_error *err)
{
	int fds[2], null;
	pid_t pid;

	if (pipe2(fds, O_CLOEXEC) < 0)
		return cistern_error_set(err, -errno, "cannot make a pipe: %s", strerror(errno));
	pid = fork();
	if (pid < 0) {
		close(fds[0]);
		close(fds[1]);
		return cistern_error_set(err, -EAGAIN, "cannot fork: %s", strerror(errno));
	}
	if (pid > 0) {
		close(fds[1]);
		if (l->ready_fd >= 0)
			close(l->ready_fd);
		wait_for_child(fds[0], l->ready_fd < 0);
	}
	close(fds[0]);
	l->parent_fd = fds[1];
	setsid();
	null = open("/dev/null", O_RDWR | O_CLOEXEC);
	if (null < 0 || dup2(null, STDIN_FILENO) < 0 || dup2(null, STDOUT_FILENO) < 0)
		return cistern_error_set(err, -errno, "/dev/null: %s", strerror(errno));
	close(null);
	return 0;
}

/* ---- the process */

static int take_signals(struct launch *l, struct cistern_error *err)
{
	sigset_t set;

	signal(SIGPIPE, SIG_IGN);
	sigemptyset(&set);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGINT);
	sigaddset(&set, SIGHUP);
	if (sigprocmask(SIG_BLOCK, &set, NULL) < 0)
		return cistern_error_set(err, -errno, "cannot block signals: %s", strerror(errno));
	l->signal_fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	return l->signal_fd < 0 ? cistern_error_set(err, -errno, "signalfd: %s", strerror(errno)) : 0;
}

/* A wish: without it the daemon is less robust, not wrong. */
static void ask_to_be_spared(void)
{
	int fd = geteuid() == 0 ? open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC) : -1;

	if (fd >= 0) {
		if (write(fd, "-800", 4) < 0)
			errno = 0;
		close(fd);
	}
}

int launch_begin(struct launch *l, bool foreground, int ready_fd, struct cistern_error *err)
{
	int r = 0;

	*l = (struct launch){ .foreground = foreground, .ready_fd = ready_fd, .parent_fd = -1, .signal_fd = -1 };
	if (ready_fd >= 0) { /* out of the way of the standard descriptors, which become /dev/null */
		l->ready_fd = fcntl(ready_fd, F_DUPFD_CLOEXEC, 3);
		if (l->ready_fd < 0)
			return cistern_error_set(err, -errno, "--ready-fd %d: %s", ready_fd, strerror(errno));
		if (ready_fd > STDERR_FILENO)
			close(ready_fd);
	}
	if (!foreground)
		r = into_background(l, err);
	if (!r)
		r = take_signals(l, err);
	umask(0);
	if (chdir("/") < 0 && !r)
		r = cistern_error_set(err, -errno, "/: %s", strerror(errno));
	ask_to_be_spared();
	limits_raise();
	return r;
}

/* ---- the line */

static void tell(struct launch *l, const char *line)
{
	int *const fds[] = { &l->ready_fd, &l->parent_fd };

	for (size_t i = 0; i < 2; i++) {
		if (*fds[i] < 0)
			continue;
		dprintf(*fds[i], "%s\n", line); /* nobody there any more: nothing to be done about it */
		close(*fds[i]);
		*fds[i] = -1;
	}
}

void launch_ready(struct launch *l, const char *recovered, int log_fd)
{
	char line[LINE_BYTES];

	snprintf(line, sizeof(line), *recovered ? "ok recovered: %s" : "ok%s", recovered);
	tell(l, line);
	if (!l->foreground && log_fd >= 0)
		dup2(log_fd, STDERR_FILENO); /* what libraries say */
}

void launch_failed(struct launch *l, enum cistern_exit status, const char *text)
{
	char line[LINE_BYTES];

	if (l->foreground || (l->ready_fd < 0 && l->parent_fd < 0))
		dprintf(STDERR_FILENO, "cistern-fs: %s\n", text);
	snprintf(line, sizeof(line), "E %d %s", (int)status, text);
	tell(l, line);
}
