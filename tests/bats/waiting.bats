#!/usr/bin/env bats
# SPDX-License-Identifier: GPL-3.0-or-later
#
# Programs that stand still (docs/design/waiting.md): what waits for a backing directory that hangs, for room, for other nodes. A killed
# program is gone in two seconds whatever it waits for, and what needs nobody else goes on.

load ../lib/mount
load ../lib/job

HANGS=

teardown() {
	go_on
	cistern_teardown
}

# backing_that_hangs [DIRECTORY]: $WORK/slow shows it, and hangs after hang.
backing_that_hangs() {
	needs_built tests/lib/hangs
	mkdir "$WORK/slow"
	"$top_builddir/tests/lib/hangs" "${1:-$BACKING}" "$WORK/slow" 3>&- &
	HANGS=$!
	undo "fusermount3 -uzq $WORK/slow; kill -KILL $HANGS 2>/dev/null"
	wait_until 10 grep -q " $WORK/slow fuse" /proc/mounts
}

hang() {
	kill -STOP "$HANGS"
}

go_on() {
	[ -z "$HANGS" ] || kill -CONT "$HANGS" 2>/dev/null || true
}

# stands PROGRAM ARG...: in the background; it shall wait.
stands() {
	"$@" >>"$WORK/said" 2>&1 3>&- &
	STANDING+=($!)
}

# For an answer, or for another one that waits for one and holds what it wants, a directory's lock.
waits_in_fuse() {
	grep -qsE 'fuse|request_wait_answer' "/proc/$1/wchan" || grep -qs '^State:.D' "/proc/$1/status"
}

all_wait() {
	local pid
	for pid in "${STANDING[@]}"; do
		wait_until 20 waits_in_fuse "$pid" || { tr '\0' ' ' <"/proc/$pid/cmdline"; return 1; }
	done
}

# Not what the shell has been told of them: they are gone as the kernel sees it, which is when a batch system takes a node for free.
killed_are_gone() {
	local begun
	all_wait || return
	begun=$(date +%s%N)
	kill -KILL "${STANDING[@]}"
	wait_until 10 gone "${STANDING[@]}" || return
	[ "$(($(date +%s%N) - begun))" -lt 2000000000 ] || { echo "after $((($(date +%s%N) - begun) / 1000000)) ms"; return 1; }
	wait "${STANDING[@]}" || true
	STANDING=()
}

@test "a backing directory hangs: who is killed is gone, and nothing is done by halves" {
	mkdir "$BACKING/d"
	for f in a b c e g h i k; do echo "$f" >"$BACKING/$f"; done
	backing_that_hangs
	mount_cistern -o backing_timeout=0 "$STORE" "$MNT" "$WORK/slow"
	exec 7<"$MNT/k"
	hang
	stands stat "$MNT/a"
	stands cat "$MNT/b"
	stands ls "$MNT/d"
	stands mkdir "$MNT/new"
	stands touch "$MNT/touched"
	stands rm "$MNT/c"
	stands mv "$MNT/e" "$MNT/f"
	stands ln "$MNT/g" "$MNT/linked"
	stands ln -s x "$MNT/symbolic"
	stands truncate -s 1 "$MNT/h"
	stands dd if=/dev/zero of="$MNT/i" bs=4k count=1 conv=notrunc,fsync
	stands df "$MNT"
	stands chmod 600 "$MNT/k"
	stands tail -c 1 /dev/fd/7
	killed_are_gone
	go_on
	exec 7<&-
	umount_wait
	is "$(cat "$BACKING/a" "$BACKING/b")" $'a\nb'
	[ -e "$BACKING/e" ] || [ -e "$BACKING/f" ]
	is "$(cat "$BACKING"/[ef])" e
	no_leftovers "$BACKING"
}

@test "a backing directory hangs: a hundred wait for it, and the log goes on; then they have what they wanted" {
	local i
	for i in $(seq 100); do echo "$i" >"$BACKING/old$i"; done
	backing_that_hangs
	mount_cistern -o backing_timeout=0,data=log "$STORE" "$MNT" "$WORK/slow"
	mkdir "$MNT/new"
	echo begun >"$MNT/new/begun"
	hang
	for i in $(seq 100); do stands cat "$MNT/old$i"; done
	all_wait
	timeout 10 dd if=/dev/zero of="$MNT/new/file" bs=1M count=8 conv=fsync status=none
	timeout 10 mkdir "$MNT/new/below"
	timeout 10 mv "$MNT/new/begun" "$MNT/new/below/moved"
	timeout 10 ls -lR "$MNT/new" >"$WORK/listed"
	grep -q moved "$WORK/listed"
	timeout 10 rm "$MNT/new/file"
	go_on
	wait "${STANDING[@]}"
	is "$(sort -n "$WORK/said" | md5sum)" "$(seq 100 | md5sum)"
	umount_wait
	is "$(cat "$BACKING/new/below/moved")" begun
	no_leftovers "$BACKING"
}

@test "a backing directory hangs: a hundred that wait are killed, and others come and go" {
	local i
	for i in $(seq 110); do echo "$i" >"$BACKING/old$i"; done
	backing_that_hangs
	mount_cistern -o backing_timeout=0 "$STORE" "$MNT" "$WORK/slow"
	mkdir "$MNT/new"
	hang
	for i in $(seq 100); do stands stat "$MNT/old$i"; done
	killed_are_gone
	for i in $(seq 101 110); do stands rm "$MNT/old$i"; done
	killed_are_gone
	timeout 10 dd if=/dev/zero of="$MNT/new/file" bs=1M count=1 conv=fsync status=none
	go_on
	timeout 20 cat "$MNT/old1"
	umount_wait
	is "$(stat -c %s "$BACKING/new/file")" 1048576
}

@test "a backing directory hangs: who changes a directory that it has does not hold up who changes another" {
	mkdir "$BACKING/d"
	backing_that_hangs
	mount_cistern -o backing_timeout=0,drain=unmount "$STORE" "$MNT" "$WORK/slow"
	mkdir "$MNT/new"
	touch "$MNT/d/f" "$MNT/d/g"
	kill_daemon
	mount_cistern -o backing_timeout=0,drain=unmount "$STORE" "$MNT" "$WORK/slow"
	touch "$MNT/new/begun"
	ls "$MNT/d"
	hang
	stands rm "$MNT/d/f"
	stands mv "$MNT/d/g" "$MNT/d/h"
	all_wait
	timeout 10 mkdir "$MNT/new/below"
	timeout 10 mv "$MNT/new/begun" "$MNT/new/below/moved"
	go_on
	wait "${STANDING[@]}"
	umount_wait
	is "$(ls "$BACKING/d")" h
	[ -f "$BACKING/new/below/moved" ]
	no_leftovers "$BACKING"
}

@test "a full store: a killed writer is gone, and its bytes do not come later" {
	mount_cistern -o capacity=32M,full_timeout=10m,drain=unmount,data=log
	"$CISTERN" pause "$MNT"
	random_file "$WORK/before" $((1 << 20)) 1
	random_file "$WORK/killed" $((1 << 20)) 2
	random_file "$WORK/after" $((1 << 20)) 3
	cp "$WORK/before" "$MNT/f"
	stands dd if=/dev/zero of="$MNT/filling" bs=1M count=64 status=none
	wait_until 30 waits_for_room
	stands dd if="$WORK/killed" of="$MNT/f" bs=1M conv=notrunc status=none
	killed_are_gone
	rm "$MNT/filling"
	cmp "$MNT/f" "$WORK/before"
	timeout 30 dd if="$WORK/after" of="$MNT/f" bs=1M conv=notrunc status=none
	cmp "$MNT/f" "$WORK/after"
	"$CISTERN" resume "$MNT"
	umount_wait
	cmp "$BACKING/f" "$WORK/after"
}

waits_for_room() {
	[ "$(status_of free_bytes)" -lt $((3 << 20)) ] && waits_in_fuse "${STANDING[0]}"
}

@test "signals that a program lives on with are no errors of a call that takes long" {
	echo old >"$BACKING/old"
	backing_that_hangs
	mount_cistern -o backing_timeout=0 "$STORE" "$MNT" "$WORK/slow"
	hang
	python3 -c '
import os, signal, sys
signal.signal(signal.SIGALRM, lambda *a: None)
signal.siginterrupt(signal.SIGALRM, True)
signal.setitimer(signal.ITIMER_REAL, 0.05, 0.05)
size = os.stat(sys.argv[1]).st_size
signal.setitimer(signal.ITIMER_REAL, 0)
sys.stdout.write(str(size))' "$MNT/old" >"$WORK/size" 3>&- &
	STANDING=($!)
	all_wait
	sleep 1.5 # the time that it is interrupted in
	go_on
	wait "${STANDING[0]}"
	is "$(cat "$WORK/size")" 4
}

@test "many nodes, agents gone: who is killed is gone, and what its close owed is there later" {
	start_job 2 agent_timeout=5m,data=log
	mkdir "$WORK/m0/d"
	echo one >"$WORK/m0/f"
	echo two >"$WORK/m1/g"
	echo held >"$WORK/m1/locked"
	cat "$WORK/m0/g" "$WORK/m1/f"
	exec 8>>"$WORK/m0/g"
	kill_agent 0
	stands sh -c "echo more >>'$WORK/m0/g'"
	stands sh -c "echo written >&8"
	stands ls "$WORK/m0/d"
	stands mkdir "$WORK/m0/made"
	stands rm "$WORK/m0/g"
	stands cat "$WORK/m1/f"
	stands flock -x "$WORK/m0/locked" true
	stands stat "$WORK/m0/nothing"
	stands mv "$WORK/m1/f" "$WORK/m1/ff"
	stands touch "$WORK/m1/touched"
	killed_are_gone
	exec 8>&-
	start_agents
	echo again >"$WORK/m0/again"
	is "$(cat "$WORK/m1/again")" again
	flock -x "$WORK/m1/locked" true
	stop_job
	is "$(cat "$WORK/b/again")" again
	is "$(head -n 1 "$WORK/b/g")" two
	no_leftovers "$WORK/b"
}

@test "many nodes, an agent hangs: who is killed is gone" {
	start_job 2 agent_timeout=5m
	echo one >"$WORK/m0/f"
	echo two >"$WORK/m1/g"
	kill -STOP "$(cat "$WORK/agent1.pid")"
	undo "kill -CONT $(cat "$WORK/agent1.pid") 2>/dev/null"
	stands cat "$WORK/m0/g"
	stands sh -c "echo more >>'$WORK/m0/g'"
	stands touch "$WORK/m1/new"
	stands ls "$WORK/m1"
	killed_are_gone
	kill -CONT "$(cat "$WORK/agent1.pid")"
	is "$(head -n 1 "$WORK/m1/g")" two
	stop_job
}

@test "a job that was never assembled: what the backing directory has is seen, who is waited for is said, and what failed at the end" {
	mkdir -p "$WORK/b/d" "$WORK/m0"
	echo old >"$WORK/b/d/old"
	ln -s old "$WORK/b/d/link"
	mount_cistern -o nodes=2,agent_timeout=8s "$WORK/s0" "$WORK/m0" "$WORK/b"
	is "$(cd "$WORK/m0" && timeout 4 find . -printf '%P %y %s %l\n' | sort)" "$(cd "$WORK/b" && find . -printf '%P %y %s %l\n' | sort)"
	refute timeout 4 stat "$WORK/m0/nothing"
	mkdir "$WORK/m0/made" 2>"$WORK/said" 3>&- &
	STANDING=($!)
	wait_until 8 grep -q 'job_not_assembled.*start them on all its nodes' "$WORK/s0/cistern.log"
	"$CISTERN" status "$WORK/m0" | grep 'agents of the job.*wait for them: 1'
	stands touch "$WORK/m0/d/new"
	unset 'STANDING[0]'
	STANDING=("${STANDING[@]}")
	killed_are_gone
	wait_until 10 grep -q 'Input/output error' "$WORK/said"
	exits 0 "$CISTERN" umount --wait "$WORK/m0"
	says "of applications failed in this mount, since the agents of the job had not assembled"
	refute test -e "$WORK/b/made"
}

@test "files that were looked at before the job was assembled are the same files afterwards" {
	local i
	mkdir -p "$WORK/b" "$WORK/m0" "$WORK/m1"
	for i in $(seq 20); do echo "old $i" >"$WORK/b/f$i"; done
	JOB_NODES=2
	mount_node 0
	mount_node 1
	# A descriptor that only names the file: what is opened by it is not looked up again.
	python3 -c '
import os, sys
fds = [os.open(f"{sys.argv[1]}/f{i}", os.O_PATH) for i in range(1, 21)]
print("looked", flush=True)
sys.stdin.readline()
for i, fd in enumerate(fds, 1):
    with open(f"/proc/self/fd/{fd}", "a") as f:
        f.write(f"first {i}\n")' "$WORK/m0" >"$WORK/looked" < <(wait_until 60 test -e "$WORK/go" && echo) 3>&- &
	STANDING=($!)
	wait_until 20 grep -q looked "$WORK/looked"
	start_agents
	touch "$WORK/go"
	wait "${STANDING[0]}"
	for i in $(seq 20); do
		is "$(cat "$WORK/m1/f$i")" "old $i"$'\n'"first $i"
		echo "second $i" >>"$WORK/m1/f$i"
		is "$(tail -n 1 "$WORK/m0/f$i")" "second $i"
	done
	stop_job
	for i in $(seq 20); do is "$(cat "$WORK/b/f$i")" "old $i"$'\n'"first $i"$'\n'"second $i"; done
	no_leftovers "$WORK/b"
}
