#!/usr/bin/env bats
# SPDX-License-Identifier: GPL-3.0-or-later
#
# Nothing acknowledged is lost: the daemon is killed under a writer that says what was acknowledged (tests/crash/writer.c), at
# instants that nobody chose; afterwards the mount, the recovered files and fsck must agree with what the writer was told. CISTERN_SEED gives the
# same operations and waits again.

load ../lib/mount

setup() {
	cistern_setup
	needs_fuse
	needs_built tests/crash/writer
	writer=$top_builddir/tests/crash/writer
	seed=${CISTERN_SEED:-$RANDOM}
	RANDOM=$seed
	echo "CISTERN_SEED=$seed"
}

# expect_acknowledged DIR SEED: it holds all that was acknowledged; the one operation in flight may have happened or not.
expect_acknowledged() {
	local acked model
	acked=$(tail -n 1 "$WORK/acks" | cut -d ' ' -f 2)
	for model in "${acked:-0}" $((${acked:-0} + 1)); do
		rm -rf "$WORK/model"
		mkdir "$WORK/model"
		"$writer" -q -s "$2" -n "$model" "$WORK/model"
		if same_trees "$1" "$WORK/model" >"$WORK/diff" 2>&1; then return 0; fi
	done
	echo "acknowledged: ${acked:-0}; differences to one operation more:"
	head -n 40 "$WORK/diff"
	return 1
}

# write_and_kill SEED OPTIONS [WRITER-OPTION]: the writer runs, the daemon dies some time later.
write_and_kill() {
	local pid process
	mount_cistern -o "$2" || return
	pid=$(daemon_pid)
	: >"$WORK/acks"
	"$writer" -s "$1" -n 1000000 ${3:+"$3"} "$MNT" >"$WORK/acks" 2>"$WORK/writer.err" 3>&- &
	process=$!
	wait_until 60 test -s "$WORK/acks" || { cat "$WORK/writer.err"; return 1; }
	# Any instant will do: nothing is waited for here but that some time goes by.
	sleep "0.$((RANDOM % 6 + 1))"
	kill -KILL "$pid"
	local status=0
	wait "$process" || status=$?
	cat "$WORK/writer.err"
	[ "$status" -eq 3 ] || return 1
	wait_until 60 gone "$pid"
	"$CISTERN" umount "$MNT" 2>/dev/null || true
	echo "killed after $(tail -n 1 "$WORK/acks")"
}

kill_then_remount() {
	local seed=$1 i
	for i in 1 2; do
		write_and_kill "$seed" "$2" || return
		"$CISTERN" fsck "$STORE" || return
		mount_cistern || return
		expect_acknowledged "$MNT" "$seed" || return
		umount_wait || return
		expect_acknowledged "$BACKING" "$seed" || return
		"$CISTERN" fsck "$STORE" || return
		no_leftovers "$BACKING" || return
		rm -rf "$BACKING" "$STORE"
		mkdir "$BACKING"
		seed=$((seed + 100))
	done
}

@test "SIGKILL, then mount again: data=log" {
	kill_then_remount $seed data=log
}

@test "SIGKILL, then mount again: data=private" {
	kill_then_remount $seed data=private,private_min_free=0
}

@test "SIGKILL, then mount again: data=auto" {
	kill_then_remount $seed data=auto
}

@test "SIGKILL, then recover" {
	local mode
	for mode in log private auto; do
		write_and_kill $seed "data=$mode,private_min_free=0"
		"$CISTERN" recover "$STORE" --to "$BACKING"
		expect_acknowledged "$BACKING" $seed
		no_leftovers "$BACKING"
		rm -rf "$BACKING" "$STORE"
		mkdir "$BACKING"
	done
}

@test "a store that was copied recovers as the store itself would" {
	write_and_kill $seed data=auto
	cp -a "$STORE" "$WORK/copy"
	mv "$STORE" "$WORK/away"
	"$CISTERN" recover "$WORK/copy" --to "$BACKING"
	expect_acknowledged "$BACKING" $seed
}

@test "SIGKILL during a drain" {
	local pid i met=0
	# A drain may be over by then.
	for ((i = 0; i < 2 || (met == 0 && i < 20); i++)); do
		write_and_kill $seed data=auto
		mount_cistern -o flush_buffer_size=1M
		pid=$(daemon_pid)
		"$CISTERN" flush --mount "$MNT"
		sleep "0.0$((RANDOM % 9))"
		if pgrep -P "$pid" cistern-agent >/dev/null; then met=$((met + 1)); fi
		kill -KILL "$pid"
		wait_until 60 gone "$pid"
		"$CISTERN" umount "$MNT" || true
		"$CISTERN" fsck "$STORE"
		mount_cistern
		expect_acknowledged "$MNT" $seed
		umount_wait
		expect_acknowledged "$BACKING" $seed
		no_leftovers "$BACKING"
		rm -rf "$BACKING" "$STORE"
		mkdir "$BACKING"
		seed=$((seed + 1))
	done
	echo "$met of $i drains were met"
	[ "$met" -gt 0 ]
}

@test "SIGKILL under a writer while drains run" {
	local i
	for i in 1 2; do
		write_and_kill $seed drain=idle,idle_interval=10ms,flush_buffer_size=1M,checkpoint_interval=50ms
		"$CISTERN" fsck "$STORE"
		mount_cistern
		expect_acknowledged "$MNT" $seed
		umount_wait
		expect_acknowledged "$BACKING" $seed
		rm -rf "$BACKING" "$STORE"
		mkdir "$BACKING"
		seed=$((seed + 1))
	done
}

@test "SIGKILL with small journals and frequent checkpoints" {
	kill_then_remount $seed data=log,journal_size=64K,checkpoint_interval=10ms,segment_size=1M
}

@test "SIGKILL in a full store" {
	write_and_kill $seed capacity=16M,full_timeout=50ms,data=log
	mount_cistern
	expect_acknowledged "$MNT" $seed
	umount_wait
	expect_acknowledged "$BACKING" $seed
}

@test "the index can be thrown away and rebuilt from the journal" {
	write_and_kill $seed data=log
	rm -rf "$STORE/index"
	exits 4 "$CISTERN" fsck "$STORE" || exits 0 "$CISTERN" fsck "$STORE"
	"$CISTERN" fsck --rebuild-index "$STORE"
	"$CISTERN" fsck "$STORE"
	mount_cistern
	expect_acknowledged "$MNT" $seed
	umount_wait
	expect_acknowledged "$BACKING" $seed
}

@test "a torn journal tail is cut at the last whole record, and said" {
	local journal
	write_and_kill $seed data=log
	"$CISTERN" fsck "$STORE"
	journal=$(find "$STORE/journal" -name '*.jnl' | sort | tail -n 1)
	# The last byte that is not zero belongs to the last record: with another one there that record is torn.
	python3 - "$journal" <<'END'
import sys
with open(sys.argv[1], "r+b") as f:
    data = f.read().rstrip(b"\0")
    f.seek(len(data) - 1)
    f.write(bytes([data[-1] ^ 0xa5 or 1]))
END
	"$CISTERN" status --json "$STORE" | jq -e '.torn_bytes > 0'
	exits 0 mount_cistern
	says recovered
	umount_wait
	# What is there is what some earlier number of operations leaves.
	local acked n
	acked=$(tail -n 1 "$WORK/acks" | cut -d ' ' -f 2)
	for n in $((acked + 1)) "$acked" $((acked - 1)) $((acked - 2)) $((acked - 3)); do
		echo "ack $n" >"$WORK/acks"
		if expect_acknowledged "$BACKING" $seed; then return 0; fi
	done
	return 1
}

@test "a daemon that is killed again and again" {
	local i
	write_and_kill $seed data=auto
	for i in 1 2 3 4 5; do
		mount_cistern
		kill_daemon
		"$CISTERN" umount "$MNT"
	done
	mount_cistern
	expect_acknowledged "$MNT" $seed
	umount_wait
	expect_acknowledged "$BACKING" $seed
}

# A daemon that is just being started may not have been seen the first time.
kill_them() {
	local pids
	pids=$(daemon_pids "$1")
	[ -n "$pids" ] || return 0
	kill -KILL $pids 2>/dev/null
	wait_until 60 gone $pids
	return 1
}

# Its program runs, and the mount is not there yet.
is_starting() {
	pgrep -f "^cistern-fs .*$MNT " >/dev/null && ! is_mounted "$MNT"
}

@test "a daemon killed while it starts" {
	local pid n met=0
	write_and_kill $seed data=log,journal_size=64K
	for ((n = 1; n <= 4 || (met == 0 && n <= 40); n++)); do
		"$CISTERN" mount "$BACKING" "$MNT" --store "$STORE" 3>&- 2>/dev/null &
		pid=$!
		sleep "0.0$((n % 9))"
		if is_starting; then met=$((met + 1)); fi
		kill -KILL "$pid" 2>/dev/null || true
		wait_until 60 kill_them "$MNT"
		"$CISTERN" umount "$MNT" 2>/dev/null || true
	done
	echo "$met of $((n - 1)) starts were met"
	[ "$met" -gt 0 ]
	mount_cistern
	expect_acknowledged "$MNT" $seed
	umount_wait
	"$CISTERN" fsck "$STORE"
}
