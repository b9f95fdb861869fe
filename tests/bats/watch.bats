#!/usr/bin/env bats
# SPDX-License-Identifier: GPL-3.0-or-later
#
# A daemon is killed while a thread of it waits in the kernel for a lock that a process in its mount holds, which waits for this daemon: the
# watcher severs the connection, and both end.

load "${top_srcdir:?}/tests/lib/mount.bash"
load "$top_srcdir/tests/lib/job.bash"

setup() {
	cistern_setup
	needs_fuse
	needs_mpi
	needs_root "a look into processes, and a mount that may be forced"
}

by=() # by whom programs in the mounts are started

# The job is an ordinary user's: its daemons, its agents and who uses the mounts.
be_user() {
	needs_user_mounts
	copy_programs
	by=("${by_other[@]}")
	printf '#!/bin/bash\nexec %s env HOME=%q %q "$@"\n' "${by[*]}" "$WORK" "$CISTERN" >"$WORK/cistern"
	chmod 755 "$WORK/cistern"
	CISTERN=$WORK/cistern
	mkdir "$WORK/b" "$WORK"/m{0,1,2}
	chown "$other:$other" "$WORK" "$WORK/b" "$WORK"/m?
}

needs_connections() {
	mountpoint -q /sys/fs/fuse/connections && return
	mount -t fusectl fusectl /sys/fs/fuse/connections || skip "fusectl cannot be mounted"
	undo "umount -l /sys/fs/fuse/connections"
}

# name_of not|: the first name in the root that node 1 of three serves, or does not.
name_of() {
	python3 -c "from place import ROOT_INO, name_server
print(next(n for n in map('n{}'.format, range(1000)) if $1 name_server(ROOT_INO, n, 3) == 1))"
}

# Is a thread of the process in the kernel, where no signal reaches it?
waits_in_kernel() {
	grep -qsE '^[0-9]+ \(.*\) D ' /proc/"$1"/task/*/stat
}

# Does it sleep in openat (as x86-64 and arm64 number it)?
opens() {
	grep -qs '^State:.S' "/proc/$1/status" && grep -qsE '^(257|56) ' "/proc/$1/syscall"
}

# gone() takes a process for gone whose first thread has ended; here the others count.
all_gone() {
	[ "$(ls "/proc/$1/task" 2>/dev/null | wc -l)" -le 1 ] && gone "$1"
}

# circle: node 1 is paused, so a process on node 2 waits in a directory, of which node 0 removes an entry, so that node 2 is to tell its kernel. Sets
# $daemon, of node 2, $other, of node 1, and $waiting.
circle() {
	daemon=$(daemon_pid "$WORK/m2") other=$(daemon_pid "$WORK/m1")
	undo "kill -CONT $other 2>/dev/null; umount -f $WORK/m2 2>/dev/null; true"
	free=$(name_of not) stuck=$(name_of "")
	"${by[@]}" mkdir "$WORK/m0/$free"
	"${by[@]}" ls "$WORK/m1/$free" "$WORK/m2/$free"
	kill -STOP "$other"
	"${by[@]}" touch "$WORK/m2/$stuck" 3>&- &
	waiting=$!
	wait_until 60 opens "$waiting"
	"${by[@]}" rmdir "$WORK/m0/$free" 3>&- &
	wait_until 60 waits_in_kernel "$daemon"
}

watcher() {
	pgrep -P "$daemon" cistern-watch
}

ended() {
	all_gone "$daemon" && gone "$waiting"
}

goes_on() {
	kill -CONT "$other"
	release_mount "$WORK/m2"
	mount_node 2
	"${by[@]}" ls "$WORK/m2"
	stop_job
}

@test "a daemon that is killed in a circle with a process of its mount: both end, and the job goes on" {
	start_job 3
	circle
	grep 'watch pid=.* way=' "$WORK/s2/cistern.log"
	kill -KILL "$daemon"
	wait_until 60 ended
	exits 2 ls "$WORK/m2" # nothing goes into the directory below
	says "not connected"
	goes_on
}

@test "likewise through the kernel's file of the connection" {
	needs_connections
	start_job 3
	circle
	grep "watch pid=$(watcher) way=abort-file" "$WORK/s2/cistern.log"
	umount -l "$WORK/m2" # out of sight
	kill -KILL "$daemon"
	wait_until 60 ended
	goes_on
}

@test "likewise where all is an ordinary user's" {
	needs_connections
	be_user
	start_job 3
	circle
	grep "watch pid=$(watcher) way=abort-file" "$WORK/s2/cistern.log"
	kill -KILL "$daemon"
	wait_until 60 ended
	exits 2 "${by[@]}" ls "$WORK/m2"
	says "not connected"
	goes_on
}

@test "without its watcher it hangs, and umount -f ends that" {
	start_job 3
	circle
	kill -KILL "$(watcher)"
	kill -KILL "$daemon"
	refute wait_until 2 ended
	umount -f "$WORK/m2" || true # in use
	wait_until 60 ended
	goes_on
}

@test "watchers are small, and end with their daemons" {
	local pid pids
	start_job 2
	daemon=$(daemon_pid "$WORK/m0") pids=$(watcher)
	pid=$pids
	# KiB of its own; what a sanitizer has is not.
	grep -q libasan "/proc/$pid/maps" || awk '/^Private/ { sum += $2 } END { exit sum > 1024 }' "/proc/$pid/smaps"
	is "$(find "/proc/$pid/fd" -lname '*fuse*' | wc -l)" 0
	daemon=$(daemon_pid "$WORK/m1") pids="$pids $(watcher)"
	kill -TERM $pids # a scheduler's warning to all
	kill -KILL "$daemon"
	wait_until 60 gone "${pids#* }"
	release_mount "$WORK/m1"
	mount_node 1
	kill -0 "$pid"
	stop_job
	wait_until 60 gone "$pid"
}
