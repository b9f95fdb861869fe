/* SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef FORMAT_WIRE_PROTOCOL_H
#define FORMAT_WIRE_PROTOCOL_H

/*
 * Do two programs understand each other? Daemons and agents of different builds meet: on one node after an upgrade, in a job
 * when nodes have different packages. The number of the protocol says so, not the version of the software: it rises when a message
 * between them (format/wire, fs/peer, fs/job, mpi-agent/comm) changes in a way that the other side must know of. A field that may be
 * left out or skipped does not raise it. Each says the oldest and the newest number that it speaks when it first says anything.
 */

#include <stdbool.h>
#include <stdint.h>

#include "cistern/error.h"
#include "format/wire/wire.h"

#define PROTOCOL_OLDEST 1u /* that this build still speaks */
#define PROTOCOL_NEWEST 1u

/* Remedy: the programs of a mount were replaced while it was there. */
#define PROTOCOLS_ELSEWHERE                                                                                                   \
	"the programs were replaced under the mount: put those of its version back, or unmount (umount, which keeps what is " \
	"in the store) and mount again"

struct protocols {
	uint32_t oldest, newest; /* 0, 0: none was said: a program from before there were numbers */
};

extern const struct protocols protocols_own;

void protocols_put(struct wire_msg *m);
struct protocols protocols_get(const struct wire_msg *m); /* what makes no sense counts as none */
/* The numbers that both speak: *ret (may be NULL). False: there is none. */
bool protocols_meet(struct protocols a, struct protocols b, struct protocols *ret);
/*
 * For two that do not meet: -EPROTONOSUPPORT, and a text: what each speaks, which is the older one, and then the remedy.
 * a and b are names: "this agent".
 */
int protocols_refuse(struct cistern_error *err, const char *a, struct protocols of_a, const char *b,
	struct protocols of_b, const char *remedy);

#endif
