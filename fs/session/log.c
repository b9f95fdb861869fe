/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * The log. A line leaves in one write() to a descriptor opened for appending, so that lines of several threads, and
 * those of the agents, which inherit the descriptor, never mix; hence no lock. A failing log never fails the daemon.
 */
#include "fs/session/log.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define LINE_BYTES 4096

struct log {
	enum log_level level;
	bool also_stderr;
	int fd; /* -1: none yet */
};

int log_create(enum log_level level, bool also_stderr, struct log **ret)
{
	struct log *log = calloc(1, sizeof(*log));

	if (!log)
		return -ENOMEM;
	*log = (struct log){ .level = level, .also_stderr = also_stderr, .fd = -1 };
	*ret = log;
	return 0;
}

void log_destroy(struct log *log)
{
	if (!log)
		return;
	if (log->fd >= 0)
		close(log->fd);
	free(log);
}

int log_open_file(struct log *log, const char *path, struct cistern_error *err)
{
	int fd = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);

	if (fd < 0) {
		int r = -errno;

		return cistern_error_set(err, r, "%s: cannot open the log: %s", path, strerror(-r));
	}
	log->fd = fd;
	return 0;
}

int log_fd(const struct log *log)
{
	return log->fd;
}

static size_t put_head(char *line, size_t cap, enum log_level level, const char *event)
{
	static const char *const names[] = { "error", "warning", "info", "debug" };
	struct timespec now;
	struct tm tm;
	size_t len;

	clock_gettime(CLOCK_REALTIME, &now);
	gmtime_r(&now.tv_sec, &tm);
	len = strftime(line, cap, "%Y-%m-%dT%H:%M:%S", &tm);
	return len + (size_t)snprintf(line + len, cap - len, ".%06ldZ %s %s", now.tv_nsec / 1000, names[level], event);
}

static void put_line(int fd, const char *line, size_t len)
{
	ssize_t n;

	do
		n = write(fd, line, len);
	while (n < 0 && errno == EINTR);
}

void log_event(struct log *log, enum log_level level, const char *event, const char *fmt, ...)
{
	char line[LINE_BYTES];
	size_t len;
	va_list ap;
	int n;

	if (level > log->level)
		return;
	len = put_head(line, sizeof(line) - 1, level, event);
	line[len++] = ' ';
	va_start(ap, fmt);
	n = vsnprintf(line + len, sizeof(line) - 1 - len, fmt, ap);
	va_end(ap);
	if (n > 0)
		len += (size_t)n < sizeof(line) - 1 - len ? (size_t)n : sizeof(line) - 2 - len;
	for (size_t i = 0; i < len; i++)
		if ((unsigned char)line[i] < 0x20 || line[i] == 0x7f)
			line[i] = '?';
	while (len > 0 && line[len - 1] == ' ')
		len--;
	line[len++] = '\n';
	if (log->fd >= 0)
		put_line(log->fd, line, len);
	if (log->fd < 0 || log->also_stderr)
		put_line(STDERR_FILENO, line, len);
}
