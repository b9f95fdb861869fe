/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "mpi-agent/comm/signals.h"

#include <errno.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <time.h>

static void fill(sigset_t *set)
{
	sigemptyset(set);
	sigaddset(set, SIGTERM);
	sigaddset(set, SIGINT);
	sigaddset(set, SIGHUP);
}

int signals_block(void)
{
	sigset_t set;
	int fd;

	fill(&set);
	if (sigprocmask(SIG_BLOCK, &set, NULL) < 0)
		return -errno;
	fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	return fd < 0 ? -errno : fd;
}

bool signals_nap(long nsec)
{
	const struct timespec nap = { .tv_sec = nsec / 1000000000, .tv_nsec = nsec % 1000000000 };
	sigset_t set;

	fill(&set);
	return sigtimedwait(&set, NULL, &nap) > 0;
}
