#!/usr/bin/env bats
# SPDX-License-Identifier: GPL-3.0-or-later
#
# Daemons and agents of a job are killed at random while processes of all nodes work, and started again: what had returned has happened,
# what failed may have. CISTERN_SEED gives other work and other deaths, CISTERN_ROUNDS more of them, CISTERN_NODES, CISTERN_MOUNT other jobs.

load "${top_srcdir:?}/tests/lib/mount.bash"
load "$top_srcdir/tests/lib/job.bash"
load "$top_srcdir/tests/lib/load.bash"

setup() {
	cistern_setup
	needs_fuse
	needs_mpi
}

rounds=${CISTERN_ROUNDS:-5}
deaths=(daemon_dies daemon_dies agents_die both_die all_daemons_die)

@test "agents are killed while all nodes write the same files: nobody notices" {
	start_job "$nodes" "${CISTERN_MOUNT:-}"
	begin_load writers --expect "$DIRECT"
	events "$rounds" agents_die
	end_load
	arrives
}

@test "daemons and agents are killed while all nodes write the same files: nothing that was written is lost" {
	start_job "$nodes" "${CISTERN_MOUNT:-}"
	begin_load writers --lossy --expect "$DIRECT"
	events "$rounds" "${deaths[@]}"
	end_load
	arrives
}

@test "daemons and agents are killed while all nodes use the same names: an order explains what every call said" {
	start_job "$nodes" "${CISTERN_MOUNT:-}"
	begin_load names --lossy --kinds excl,creat,open,symlink,link,unlink,rename,noreplace,exchange,lstat,readdir
	events "$rounds" "${deaths[@]}"
	end_load
	arrives
}
