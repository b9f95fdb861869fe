/* SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef CISTERN_ERROR_H
#define CISTERN_ERROR_H

/*
 * The text of a failure, for people. Functions return 0 or a negative errno; those that know which file, which
 * offset and what to do about it fill one of these as well. A caller that does not care passes NULL.
 */

#include <stdarg.h>
#include <stdbool.h>

#define CISTERN_ERROR_TEXT_BYTES 1024

struct cistern_error {
	int code;                            /* negative errno, 0 while nothing went wrong */
	char text[CISTERN_ERROR_TEXT_BYTES]; /* one line, no newline, always terminated */
};

/* Exit statuses of every cistern program; scripts may rely on them. */
enum cistern_exit {
	CISTERN_EXIT_OK = 0,         /* all that was asked for is done */
	CISTERN_EXIT_FAILED = 1,     /* something failed; the message names it; nothing is lost */
	CISTERN_EXIT_USAGE = 2,      /* the command line or a setting is wrong; nothing was touched */
	CISTERN_EXIT_INCOMPLETE = 3, /* done in part: some files are still in the store */
	CISTERN_EXIT_DAMAGED = 4,    /* damage was found (fsck: and not repaired) */
	CISTERN_EXIT_BUSY = 5,       /* in use by somebody else: another daemon, an open file */
	CISTERN_EXIT_TIMEOUT = 6,    /* the time-out ran out first; work goes on in the background */
	CISTERN_EXIT_BESIDE = 7,     /* everything is out, but something is under another name; the manifest lists it */
	CISTERN_EXIT_LAST = CISTERN_EXIT_BESIDE
};

/* Is everything that was to be drained in the backing directory, under whatever name? */
static inline bool cistern_exit_is_out(int status)
{
	return status == CISTERN_EXIT_OK || status == CISTERN_EXIT_BESIDE;
}

/*
 * Fill *err (may be NULL) with code and the formatted text, and return code, so that callers can write
 * "return cistern_error_set(err, -EINVAL, ...)". An earlier text is replaced.
 */
int cistern_error_set(struct cistern_error *err, int code, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

/* Put the formatted text and ": " in front of what *err already says. Returns err's code; 0 when err is NULL. */
int cistern_error_prefix(struct cistern_error *err, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

#endif
