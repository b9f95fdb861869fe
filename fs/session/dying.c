/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Is a caller about to die? The kernel interrupts a request for any signal, but a program that
 * lives on must not get EINTR from calls that know none on a disk. So we look: a thread that was
 * killed has SIGKILL pending, which the kernel also makes of other signals that end a process;
 * those that leave a core stay what they are. A process that ends closes its files when its signals
 * are taken already: the kernel's flags of it say so.
 */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fs/session/callers.h"

#define PROC_BYTES   4096
#define FLAG_EXITING 0x4u /* PF_EXITING in field 9 of /proc/PID/stat */
#define FLAGS_FIELD  9
#define SIGNAL_FIELD 31

/*
 * Behind the name of the program, which may be anything, the third field follows. NULL: there is
 * none.
 */
static const char *field_of(const char *stat, int number)
{
	const char *at = strrchr(stat, ')');

	for (int field = 2; at && field < number; field++) {
		at = strchr(at, ' ');
		at = at ? at + 1 : NULL;
	}
	return at;
}

static bool read_proc(pid_t tid, const char *file, char text[PROC_BYTES])
{
	char path[64];
	ssize_t n;
	int fd;

	snprintf(path, sizeof(path), "/proc/%d/%s", (int)tid, file);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return false;
	n = read(fd, text, PROC_BYTES - 1);
	close(fd);
	text[n > 0 ? n : 0] = '\0';
	return n > 0;
}

static uint64_t signals_of(const char *status, const char *key)
{
	const char *line = strstr(status, key);

	return line ? strtoull(line + strlen(key), NULL, 16) : 0;
}

static uint64_t bit_of(int signal)
{
	return UINT64_C(1) << (signal - 1);
}

/* Signals that end a process with a core unless it catches, ignores or blocks them. */
static bool has_core_signal(const char *status)
{
	uint64_t pending = signals_of(status, "\nSigPnd:") | signals_of(status, "\nShdPnd:");
	uint64_t harmless =
		signals_of(status, "\nSigBlk:") | signals_of(status, "\nSigIgn:") | signals_of(status, "\nSigCgt:");
	uint64_t cores = bit_of(SIGQUIT) | bit_of(SIGILL) | bit_of(SIGTRAP) | bit_of(SIGABRT) | bit_of(SIGBUS) |
			 bit_of(SIGFPE) | bit_of(SIGSEGV) | bit_of(SIGXCPU) | bit_of(SIGXFSZ) | bit_of(SIGSYS);

	return pending & ~harmless & cores;
}

bool caller_is_dying(pid_t tid)
{
	char text[PROC_BYTES];
	const char *flags, *signals;

	if (tid <= 0 || !read_proc(tid, "stat", text))
		return false;
	flags = field_of(text, FLAGS_FIELD);
	signals = field_of(text, SIGNAL_FIELD);
	if (flags && strtoul(flags, NULL, 10) & FLAG_EXITING)
		return true;
	if (signals && strtoull(signals, NULL, 10) & bit_of(SIGKILL))
		return true;
	return read_proc(tid, "status", text) && has_core_signal(text);
}
