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

@test "random system calls, each at a random node: as in a plain directory" {
	needs_built tests/parity/parity
	start_job 2
	chmod 755 "$DIRECT" "$WORK/m0"
	"$top_builddir/tests/parity/parity" --seed "$seed" --ops "${CISTERN_OPS:-800}" --also "$WORK/m1" "$WORK/m0" "$DIRECT"
	arrives
}

@test "random system calls, each at a random node, while the kernel writes what each node has made" {
	needs_built tests/parity/parity
	start_job 2 data=private,private_min_free=0
	chmod 755 "$DIRECT" "$WORK/m0"
	"$top_builddir/tests/parity/parity" --seed "$seed" --ops "${CISTERN_OPS:-500}" --also "$WORK/m1" "$WORK/m0" "$DIRECT"
	arrives
}

# What one node's kernel writes without its daemon, another node opens, reads, writes, cuts, renames and replaces.
@test "a file that is open in passthrough at one node is anybody's" {
	start_job 2 data=private,private_min_free=0
	cd "$WORK"
	exec 7<>m0/f
	grep -q passthrough=1 s0/cistern.log || skip "no passthrough here"
	printf hello >&7
	[ "$(cat m1/f)" = hello ]
	[ "$(stat -c %s m1/f)" -eq 5 ]
	printf J | dd of=m1/f conv=notrunc status=none
	[ "$(cat m0/f)" = Jello ]
	printf ', you' >>m1/f
	[ "$(cat m0/f)" = "Jello, you" ]
	[ "$(cat m1/f)" = "Jello, you" ]
	truncate -s 5 m1/f
	[ "$(cat m0/f)" = Jello ]
	mv m1/f m1/g
	printf y | dd of=m1/g bs=1 seek=4 conv=notrunc,fsync status=none
	[ "$(cat m0/g)" = Jelly ]
	exec 7>&-
	printf ' jar' >>m0/g
	[ "$(cat m1/g)" = "Jelly jar" ]
	exec 7<>m0/h
	printf old >&7
	printf new >m1/i
	mv m1/i m1/h
	[ "$(cat m0/h m1/h)" = newnew ]
	exec 7>&-
	cp -r m0/. "$DIRECT"
	cd /
	[ "$(cat "$DIRECT/g" "$DIRECT/h")" = "Jelly jarnew" ]
	arrives
}

@test "a node whose store has no room for the directory tree says so, and goes on when there is room" {
	make_tmpfs small 64M
	mkdir -p "$WORK/small/store"
	ln -s "$WORK/small/store" "$WORK/s1"
	start_job 2 journal_size=64K,reserve=8M
	mkdir "$WORK/m0/d"
	fallocate -l 1G "$WORK/small/filler" || dd if=/dev/zero of="$WORK/small/filler" bs=1M || true
	until_refused() { ! setfattr -n user.big -v "$(printf '%060000d' 0)" "$WORK/m0/d"; }
	wait_until 60 until_refused
	exits 2 ls "$WORK/m1/d"
	says "Input/output error"
	run "$CISTERN" status "$WORK/m1"
	says "make room on the file system of its store"
	run "$CISTERN" status "$WORK/m0"
	says "node 1"
	rm "$WORK/small/filler"
	wait_until 60 mkdir "$WORK/m0/then"
	wait_until 60 test -d "$WORK/m1/then"
	setfattr -x user.big "$WORK/m0/d" # more than the backing directory takes
	stop_job
}
