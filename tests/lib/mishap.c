/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Preloaded into a daemon, by $MISHAP: "beneath": the kernel moves mounts, but puts none beneath
 * another one (Linux 5.2 to 6.4). "workers": no thread can be started once the mount has its place,
 * behind the two that tell the kernel what is stale.
 */
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MOVE_MOUNT 429
#define BENEATH    0x200
#define NOTIFIERS  2

typedef int create_fn(pthread_t *thread, const pthread_attr_t *attr, void *(*run)(void *), void *arg);

static int is(const char *what)
{
	const char *mishap = getenv("MISHAP");

	return mishap && strcmp(mishap, what) == 0;
}

long syscall(long number, ...)
{
	long (*next)(long, ...) = (long (*)(long, ...))dlsym(RTLD_NEXT, "syscall");
	long arg[6];
	va_list ap;

	va_start(ap, number);
	for (int i = 0; i < 6; i++)
		arg[i] = va_arg(ap, long);
	va_end(ap);
	if (number == MOVE_MOUNT && arg[4] & BENEATH && is("beneath")) {
		errno = EINVAL;
		return -1;
	}
	return next(number, arg[0], arg[1], arg[2], arg[3], arg[4], arg[5]);
}

static int has_device(void)
{
	char path[300], target[64];
	DIR *d = opendir("/proc/self/fd");
	struct dirent *e;
	int has = 0;

	while (d && (e = readdir(d)) != NULL) {
		snprintf(path, sizeof(path), "/proc/self/fd/%s", e->d_name);
		ssize_t n = readlink(path, target, sizeof(target) - 1);
		target[n > 0 ? n : 0] = '\0';
		has |= strcmp(target, "/dev/fuse") == 0;
	}
	if (d)
		closedir(d);
	return has;
}

int pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*run)(void *), void *arg)
{
	create_fn *next = (create_fn *)dlsym(RTLD_NEXT, "pthread_create");
	static int started;

	if (is("workers") && has_device() && ++started > NOTIFIERS)
		return EAGAIN;
	return next(thread, attr, run, arg);
}
