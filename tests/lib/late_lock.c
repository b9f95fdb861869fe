/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * For LD_PRELOAD: who is about to lock a file by flock() makes the file $LATE_LOCK.asked, and goes on when there is one $LATE_LOCK.go, or
 * after a minute.
 */
#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <unistd.h>

#define PATH_BYTES 4096
#define STEP_USEC  10000u
#define STEPS      6000u

typedef int flock_fn(int fd, int how);

int flock(int fd, int how)
{
	flock_fn *next = (flock_fn *)dlsym(RTLD_NEXT, "flock");
	const char *at = getenv("LATE_LOCK");
	char asked[PATH_BYTES], go[PATH_BYTES];

	if (!at)
		return next(fd, how);
	snprintf(asked, sizeof(asked), "%s.asked", at);
	snprintf(go, sizeof(go), "%s.go", at);
	close(open(asked, O_CREAT | O_WRONLY | O_CLOEXEC, 0644));
	for (unsigned int i = 0; i < STEPS && access(go, F_OK) < 0; i++)
		usleep(STEP_USEC);
	return next(fd, how);
}
