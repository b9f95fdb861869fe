/* SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef MPI_AGENT_COMM_LINK_H
#define MPI_AGENT_COMM_LINK_H

/*
 * The connection to the node's daemon, without waiting: frames are queued and go when the daemon takes them; what comes is handed over
 * frame by frame.
 */

#include <stdbool.h>
#include <stdint.h>

#include "format/wire/wire.h"

struct link;

int link_create(int fd, struct link **ret); /* takes over fd. -ENOMEM: fd is closed */
void link_destroy(struct link *l);
int link_fd(const struct link *l);
/* Queues a frame; copies. -ENOMEM, -E2BIG */
int link_send(struct link *l, const struct wire_msg *m);
uint64_t link_unsent_bytes(const struct link *l);
/*
 * Writes what goes. 1: something went, 0, or -errno: the connection is gone. A daemon that takes no more may still have something to say:
 * then what is for it is dropped, now and later, and only link_read tells the end.
 */
int link_flush(struct link *l);
/* A frame has come; m is borrowed. 0, or an error that ends link_read. */
typedef int (*link_received)(const struct wire_msg *m, void *arg);
/* Reads what is there, up to a bound. How many frames, or -errno: -ECONNRESET at the end of the stream, -EBADMSG. */
int link_read(struct link *l, link_received received, void *arg);

#endif
