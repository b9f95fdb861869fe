/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * For LD_PRELOAD: the process that carries a drain (cistern-agent drain) dies of SIGKILL before the step number $KILLED_STEP of those that it
 * does, from 1. Steps are what changes names, the intents and what is noted of temporary files, and each message to the daemon. It happens
 * once: the file $KILLED_FILE is made before, and no process dies once it is there. With $KILLED_DAEMON its daemon dies right before it; with
 * $KILLED_DAEMON=alone the daemon alone. And who makes a file whose name begins with $KILLED_MAKING dies once it is there.
 */
#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

#define WORDS_BYTES 4096

static bool carries(void)
{
	char words[WORDS_BYTES];
	int fd = open("/proc/self/cmdline", O_RDONLY | O_CLOEXEC);
	ssize_t len = fd < 0 ? -1 : read(fd, words, sizeof(words) - 1);
	const char *second;

	if (fd >= 0)
		close(fd);
	if (len <= 0)
		return false;
	words[len] = '\0';
	second = words + strlen(words) + 1;
	return strstr(words, "cistern-agent") && second < words + len && strcmp(second, "drain") == 0;
}

static void die(const char *mark, const char *daemon)
{
	int fd = open(mark, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0644);

	if (fd < 0)
		return; /* one has died already */
	close(fd);
	if (daemon)
		kill(getppid(), SIGKILL);
	if (!daemon || strcmp(daemon, "alone") != 0)
		kill(getpid(), SIGKILL);
}

static void step(void)
{
	static atomic_int known, done; /* of a process that we are guests of */
	const char *number = getenv("KILLED_STEP"), *mark = getenv("KILLED_FILE");

	if (!number || !mark)
		return;
	if (!known)
		known = carries() ? 1 : -1;
	if (known > 0 && ++done == atoi(number))
		die(mark, getenv("KILLED_DAEMON"));
}

/* What has just been made. */
static void made(const char *path, int flags)
{
	const char *prefix = getenv("KILLED_MAKING"), *mark = getenv("KILLED_FILE");

	if (prefix && mark && flags & O_CREAT && strncmp(path, prefix, strlen(prefix)) == 0)
		die(mark, NULL);
}

#define NEXT(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

int openat(int dir, const char *path, int flags, ...)
{
	va_list ap;

	va_start(ap, flags);
	mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(ap, mode_t) : 0;
	va_end(ap);
	int fd = NEXT(openat)(dir, path, flags, mode);
	made(path, flags);
	return fd;
}

int renameat2(int from_dir, const char *from, int to_dir, const char *to, unsigned int flags)
{
	step();
	return NEXT(renameat2)(from_dir, from, to_dir, to, flags);
}

int linkat(int from_dir, const char *from, int to_dir, const char *to, int flags)
{
	step();
	return NEXT(linkat)(from_dir, from, to_dir, to, flags);
}

int unlinkat(int dir, const char *name, int flags)
{
	step();
	return NEXT(unlinkat)(dir, name, flags);
}

int mkdirat(int dir, const char *name, mode_t mode)
{
	step();
	return NEXT(mkdirat)(dir, name, mode);
}

int symlinkat(const char *target, int dir, const char *name)
{
	step();
	return NEXT(symlinkat)(target, dir, name);
}

/* Intents and notes: they are appended to, and emptied. */
ssize_t write(int fd, const void *buf, size_t len)
{
	step();
	return NEXT(write)(fd, buf, len);
}

int ftruncate(int fd, off_t len)
{
	step();
	return NEXT(ftruncate)(fd, len);
}

int unlink(const char *path)
{
	step();
	return NEXT(unlink)(path);
}

ssize_t sendmsg(int fd, const struct msghdr *msg, int flags)
{
	step();
	return NEXT(sendmsg)(fd, msg, flags);
}

ssize_t send(int fd, const void *buf, size_t len, int flags)
{
	step();
	return NEXT(send)(fd, buf, len, flags);
}
