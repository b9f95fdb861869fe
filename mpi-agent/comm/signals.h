/* SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef MPI_AGENT_COMM_SIGNALS_H
#define MPI_AGENT_COMM_SIGNALS_H

/*
 * SIGTERM, SIGINT and SIGHUP ask for an orderly end. They are blocked, in MPI's own threads too, and looked for: by a descriptor in the
 * loop, in naps before it.
 */

#include <stdbool.h>

/* Before MPI makes threads. A descriptor (signalfd) that is readable when we shall end, or -errno. */
int signals_block(void);
/* Sleeps so long, at most. True: we shall end. */
bool signals_nap(long nsec);

#endif
