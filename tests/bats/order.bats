#!/usr/bin/env bats
# SPDX-License-Identifier: GPL-3.0-or-later
#
# Names, used from all mounts of a job at once: what calls say is what one file system could have said, doing one after the other.
# CISTERN_SEED gives other histories, CISTERN_ROUNDS more of them, CISTERN_NODES other jobs.

load "${top_srcdir:?}/tests/lib/load.bash"

@test "the test itself finds what cannot be: directories that have nothing in common, records with a change" {
	names --rounds 40 "$DIRECT" "$DIRECT"
	mkdir "$WORK/other" "$WORK/third"
	exits 1 names --rounds 5 "$DIRECT" "$WORK/other"
	says "round 1: "
	names --rounds 8 --spoil "$WORK/third" "$WORK/third"
}

# Kernels that cannot look up all names anew (before Linux 6.16) may believe the old name of a directory a moment longer than another node
# knows of its move (docs/design/many-nodes.md, 8): there only what happens to files is one order.
kinds() {
	[ "$(printf '%s\n' 6.16 "$(uname -r)" | sort -V | head -n 1)" = 6.16 ] || echo "--kinds $of_files"
}

@test "names on all mounts, of files and directories: an order explains what every call said" {
	start_job "$nodes"
	names $(kinds) --rounds "${CISTERN_ROUNDS:-12}" $(mounts)
	stop_job
}
