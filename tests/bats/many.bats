#!/usr/bin/env bats
# SPDX-License-Identifier: GPL-3.0-or-later
#
# Random work over the mounts of several nodes, compared with what one file system does.
# CISTERN_SEED gives another sequence, CISTERN_OPS a longer one.

load "${top_srcdir:?}/tests/lib/mount.bash"
load "$top_srcdir/tests/lib/job.bash"

seed=${CISTERN_SEED:-1}

setup() {
	cistern_setup
	needs_fuse
	needs_mpi
}

# arrives: the end of the job: everything has arrived, nothing else is there.
arrives() {
	stop_job
	no_leftovers "$WORK/b"
	same_trees "$WORK/b" "$DIRECT"
}

@test "random system calls, each at a random node: as in a plain directory" {
	needs_built tests/parity/parity
	start_job 2
	chmod 755 "$DIRECT" "$WORK/m0"
	"$top_builddir/tests/parity/parity" --seed "$seed" --ops "${CISTERN_OPS:-800}" --also "$WORK/m1" "$WORK/m0" "$DIRECT"
	arrives
}
