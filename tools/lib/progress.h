/* SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef TOOLS_LIB_PROGRESS_H
#define TOOLS_LIB_PROGRESS_H

/*
 * How far a long task is: one line that is rewritten on a terminal, a plain line every few seconds elsewhere (so that
 * a job's log stays short). The caller gives the time, so that a test can.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#define PROGRESS_TTY_USEC   200000u    /* between two lines on a terminal */
#define PROGRESS_PLAIN_USEC 5000000u   /* and elsewhere */
#define PROGRESS_SAME_USEC  600000000u /* and elsewhere, between two of the same words */
#define PROGRESS_LINE       256        /* bytes that every line fits in, NUL included */

struct progress {
	FILE *out; /* borrowed; NULL: quiet */
	bool tty;
	bool shown;        /* a line stands on the terminal and has no newline yet */
	const char *label; /* borrowed */
	uint64_t last_usec, last_bytes, shown_usec;
	double rate;              /* bytes per second, smoothed; 0 while unknown */
	char line[PROGRESS_LINE]; /* as shown last */
};

/* out is a terminal or not: isatty() decides, unless out is NULL. */
void progress_init(struct progress *p, FILE *out, const char *label, uint64_t now_usec);
/* How much is done. total_bytes 0: unknown. */
struct progress_bytes {
	uint64_t done_bytes, total_bytes;
	uint64_t verified_bytes, verify_bytes; /* read back, and to be read back in all; 0: nothing is */
};

/* Prints when it is time to. what: the file at hand, or NULL. */
void progress_update(struct progress *p, const struct progress_bytes *b, const char *what, uint64_t now_usec);
/* The same when nothing is done at the moment: "drain: waits for node 2 (host cn17), still mounted". */
void progress_wait(struct progress *p, const char *what, uint64_t now_usec);
/* Ends the line on a terminal, so that other output may follow. More updates may come. */
void progress_end(struct progress *p);

/*
 * The line itself: "drain: 1.5 GiB of 4 GiB (37 %), 812 MiB/s, 3.1 s left, run/out.nc"; of what is read back, too, "drain: 4 GiB of 4 GiB,
 * 1 GiB of 4 GiB verified (62 %), 812 MiB/s, ...". Rate 0: not known.
 */
const char *progress_format(
	char *out, size_t cap, const char *label, const struct progress_bytes *b, double rate, const char *what);

#endif
