#!/usr/bin/env bats
# SPDX-License-Identifier: GPL-3.0-or-later
#
# flock and fcntl locks of a whole job, as processes on two mounts see them.

load "${top_srcdir:?}/tests/lib/mount.bash"
load "$top_srcdir/tests/lib/job.bash"

setup() {
	cistern_setup
	needs_fuse
}

locks() {
	timeout 200 python3 "$top_srcdir/tests/lib/locks.py" "$@"
}

@test "processes on two mounts count under fcntl and flock locks, and lose nothing" {
	start_job 2
	locks counter "$WORK/m0" "$WORK/m1"
}

@test "locks of one mount stop processes on the other, until they are given up" {
	start_job 2
	locks rules "$WORK/m0" "$WORK/m1"
	locks descriptions "$WORK/m0" "$WORK/m1"
}

@test "random locks of all kinds on two mounts: as in a plain directory" {
	start_job 2
	locks random "${CISTERN_SEED:-1}" "${CISTERN_OPS:-800}" "$DIRECT" "$WORK/m0" "$WORK/m1"
}

@test "signals, the death of processes and circles end the wait for a lock" {
	start_job 2
	locks ends "$WORK/m0" "$WORK/m1"
}

@test "who waits for a lock takes no thread from the others" {
	start_job 2 threads=2
	locks many "$WORK/m0" "$WORK/m1"
}

@test "locks of a job outlive its agents" {
	start_job 2
	mkfifo "$WORK/go"
	locks hold "$WORK/m0" "$WORK/m1" <"$WORK/go" >"$WORK/said" 3>&- &
	local pid=$!
	exec 9>"$WORK/go"
	wait_until 60 grep -q held "$WORK/said"
	kill_agent 1
	start_agents
	echo >&9
	wait "$pid"
}

# dies K [MOUNT_OPTIONS]: the daemon of node K is killed while its processes hold locks for which the other node's wait; with options it is mounted again.
dies() {
	local pid
	locks dies "$WORK/m$((1 - $1))" "$WORK/m$1" >"$WORK/said" 3>&- &
	pid=$!
	wait_until 60 grep -q held "$WORK/said"
	kill_daemon "$WORK/m$1"
	release_mount "$WORK/m$1"
	[ -z "${2:-}" ] || mount_node "$1" "$2"
	wait "$pid"
}

@test "locks of a node whose daemon is killed go to who waits for them, when it is mounted again, or given up" {
	start_job 2 node_timeout=10m
	dies 1 node_timeout=10m
	dies 0 node_timeout=10m
	stop_job
	rm -rf "$WORK"/s? "$WORK/b"
	start_job 2 node_timeout=1s,unmount_timeout=1s
	dies 1
}

@test "a mount that is alone leaves locks to the kernel" {
	mkdir "$WORK/b" "$WORK/m"
	mount_cistern "$WORK/s" "$WORK/m" "$WORK/b"
	for scenario in counter rules ends descriptions; do locks $scenario "$WORK/m" "$WORK/m"; done
}
