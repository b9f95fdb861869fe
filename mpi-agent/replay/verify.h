/* SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef MPI_AGENT_REPLAY_VERIFY_H
#define MPI_AGENT_REPLAY_VERIFY_H

/* Does the destination hold what was written, and is it what it claims to be? Called from the session's thread. */

#include <stdint.h>

#include "mpi-agent/replay/copy.h"

#define VERIFY_TEXT_BYTES 448

/*
 * Reads back what copy_run() wrote and compares checksums. 0; -EIO: other bytes came back, job->error_text says which (and in
 * DRAIN_VERIFY_FORMAT whose: variables); errors of the sink.
 */
int verify_read(struct session *s, struct copy_job *job);
/*
 * The whole file f of size bytes as what it begins like. 0: it is, or begins like nothing that is known; warning (of
 * VERIFY_TEXT_BYTES): "" or a doubt, like a count of records that is behind. -EIO: it is not, and text says so; errors of the
 * sink, -ENOMEM.
 */
int verify_format(struct sink_file *f, uint64_t size, char *warning, char *text);

#endif
