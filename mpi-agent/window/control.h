/* SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef MPI_AGENT_WINDOW_CONTROL_H
#define MPI_AGENT_WINDOW_CONTROL_H

/*
 * What agents say to each other (COMM_CONTROL): all of one length, so that there is nothing to get wrong. Which field a kind uses:
 *
 *   ASK      segment                              reader -> holder: where is it?
 *   ANSWER   segment, status, at, len, mapping    holder -> reader
 *   SOON     mapping, at, len                     reader -> holder: I will read this
 *   RETIRE   segment, mapping                     holder -> readers: do not begin to read there any more
 *   RETIRED  segment, mapping                     reader -> holder: I do not read there any more
 *   LEFT     -                                    to all: my daemon has closed its socket
 *   JOINED   len (incarnation)                    to all: there is a daemon again
 *   QUIT     -                                    to rank 0: I was told to end
 *   END      -                                    rank 0 to all: all end now
 */

#include <stddef.h>
#include <stdint.h>

enum control_kind {
	CONTROL_ASK = 1,
	CONTROL_ANSWER,
	CONTROL_SOON,
	CONTROL_RETIRE,
	CONTROL_RETIRED,
	CONTROL_LEFT,
	CONTROL_JOINED,
	CONTROL_QUIT,
	CONTROL_END,
};

struct control {
	enum control_kind kind;
	int32_t status;
	uint32_t segment;
	uint64_t at, len;
	uint64_t mapping; /* number of a mapping of the holder's; never used twice */
};

#define CONTROL_BYTES 40

uint8_t *control_encode(const struct control *m);                          /* malloc'd; NULL: out of memory */
int control_decode(const uint8_t *bytes, size_t len, struct control *ret); /* -EBADMSG */

/* How one goes to a rank. */
struct control_sender {
	int (*send)(uint32_t rank, const struct control *m, void *arg);
	void *arg;
};

#endif
