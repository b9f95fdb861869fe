#!/usr/bin/env bats
# SPDX-License-Identifier: GPL-3.0-or-later
#
# Shared mappings of files in the log. What is right a plain directory says (tests/lib/mapped.py).

load "${top_srcdir:?}/tests/lib/mount.bash"
load "$top_srcdir/tests/lib/job.bash"

setup() {
	cistern_setup
	needs_fuse
	needs_program python3
}

# mapped DIR: what the stores into mappings do there. A call that never ends is not waited for.
mapped() {
	mkdir -p "$1" && timeout -k 5 60 python3 "$top_srcdir/tests/lib/mapped.py" "$1"
}

# right: says it, if the file system of the tests keeps to it (ext4 on a recent Linux does).
right() {
	mapped "$DIRECT/d" >"$WORK/right"
	awk '!/^utime/ && $(NF - 3) != 0 { bad = 1 } END { exit bad }' "$WORK/right" ||
		skip "stores behind the end come along in a plain directory here"
}

same_as_directory() {
	mapped "$1" >"$WORK/found"
	diff "$WORK/right" "$WORK/found"
}

@test "stores into a mapping behind the end do not come with a file that grows, and a time that was set stays" {
	right
	mount_cistern -o data=log
	same_as_directory "$MNT/d"
	umount_wait
	cmp "$DIRECT/d/f" "$BACKING/d/f"
	cmp "$DIRECT/d/t" "$BACKING/d/t"
}

# A file that was drained a moment ago counts as changed when its size is set, while the kernel holds up the write-back of its pages.
@test "the same beside drains without a pause: no call waits for its own write-back" {
	local i
	right
	mount_cistern -o data=log,drain=idle,idle_interval=30ms
	for i in 1 2 3 4; do same_as_directory "$MNT/d$i"; done
	umount_wait
}

@test "the same in a job of two nodes, in directories of either" {
	needs_mpi
	right
	start_job 2 data=log
	mkdir "$WORK/m1/theirs"
	same_as_directory "$WORK/m0/theirs"
	same_as_directory "$WORK/m0/own"
	stop_job
	cmp "$DIRECT/d/t" "$WORK/b/theirs/t"
}
