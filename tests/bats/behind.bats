#!/usr/bin/env bats
# SPDX-License-Identifier: GPL-3.0-or-later
#
# What others do to files of the backing directory while they are read through the mount: docs/posix.md says what a reader sees, and when.

load ../lib/mount

# shows FILE TEXT
shows() {
	[ "$(cat "$1")" = "$2" ]
}

@test "a file of the same size with its mtime set back is seen to have changed" {
	printf AAAA >"$BACKING/f"
	touch -r "$BACKING/f" "$WORK/times"
	mount_cistern
	is "$(cat "$MNT/f")" AAAA
	printf BBBB | dd of="$BACKING/f" conv=notrunc status=none
	touch -r "$WORK/times" "$BACKING/f"
	wait_until 5 shows "$MNT/f" BBBB
}

# Two changes so near to each other that many a file system gives them one time: nothing tells them apart, so the file is read again.
@test "two changes within the grain of the file system's clock are both seen" {
	local i
	mount_cistern
	for i in {1..20}; do
		printf 'A%03d' "$i" >"$BACKING/f$i"
		is "$(cat "$MNT/f$i")" "$(printf 'A%03d' "$i")"
		printf 'B%03d' "$i" | dd of="$BACKING/f$i" conv=notrunc status=none
	done
	for i in {1..20}; do
		wait_until 5 shows "$MNT/f$i" "$(printf 'B%03d' "$i")"
	done
}

@test "a file that others replace keeps its bytes and its size for who has it open, and is the new one for who opens it" {
	local attr
	printf 'old\n' >"$BACKING/f"
	mount_cistern -o backing_timeout=0
	exec 5<"$MNT/f"
	printf 'new and longer\n' >"$BACKING/f.new"
	mv "$BACKING/f.new" "$BACKING/f"
	is "$(stat -L -c %s /proc/self/fd/5)" 4
	is "$(cat <&5)" old
	is "$(cat "$MNT/f")" "new and longer"
	is "$(stat -L -c %s /proc/self/fd/5)" 4
	exec 5<&-
}

# The same of one that was changed here and drained; and the number of the file that has gone may be another one's soon.
@test "a file that was drained and that others replace then keeps its bytes for who has it open" {
	mount_cistern -o backing_timeout=0
	printf 'old\n' >"$MNT/f"
	flush
	exec 5<"$MNT/f"
	printf 'new and longer\n' >"$BACKING/f.new"
	mv "$BACKING/f.new" "$BACKING/f"
	is "$(cat "$MNT/f")" "new and longer"
	is "$(stat -L -c %s /proc/self/fd/5)" 4
	is "$(cat <&5)" old
	exec 5<&-
	printf 'third\n' >"$BACKING/g"
	is "$(cat "$MNT/g")" third
	is "$(cat "$MNT/f")" "new and longer"
}

@test "a file open for writing that others replace is not the new one" {
	printf 'old\n' >"$BACKING/f"
	mount_cistern -o backing_timeout=0
	exec 5<>"$MNT/f"
	printf 'new and longer\n' >"$BACKING/f.new"
	mv "$BACKING/f.new" "$BACKING/f"
	is "$(stat -L -c %s /proc/self/fd/5)" 4
	is "$(cat <&5)" old
	exec 5<&-
}

behind() {
	timeout 300 python3 "$top_srcdir/tests/lib/behind.py" "$@"
}

@test "a FIFO that others put in a file's place holds up nobody but who opens it" {
	echo old >"$BACKING/f"
	mount_cistern -o backing_timeout=1h
	[ -f "$MNT/f" ]
	rm "$BACKING/f"
	mkfifo "$BACKING/f"
	exits 124 timeout 2 cat "$MNT/f"
	[ -p "$MNT/f" ]
	exits 0 timeout 60 "$CISTERN" umount --wait "$MNT"
	[ -p "$BACKING/f" ]
}

@test "what others append to a file is seen by who had read it to its end" {
	printf 'one\n' >"$BACKING/log"
	mount_cistern
	exec 5<"$MNT/log"
	is "$(cat <&5)" one
	printf 'two\n' >>"$BACKING/log"
	next_is() { local next; next=$(cat <&5 | od -An -c); [ -z "$next" ] || { is "$next" "   t   w   o  \n" && seen=1; }; }
	seen=
	wait_until 5 eval 'next_is; [ -n "$seen" ]'
	exec 5<&-
}

@test "tail -f follows a file that others append to" {
	local pid
	printf 'one\n' >"$BACKING/log"
	mount_cistern
	tail -f "$MNT/log" >"$WORK/tail" 2>&1 3>&- &
	pid=$!
	undo "kill $pid"
	wait_until 10 shows "$WORK/tail" one
	printf 'two\n' >>"$BACKING/log"
	wait_until 10 shows "$WORK/tail" $'one\ntwo'
	kill "$pid"
}

@test "a program that polls a file that others append to gets each record, and no other" {
	local options
	for options in backing_timeout=1s ro backing_timeout=0; do
		mount_cistern -o "$options" "$WORK/store-$options"
		rm -f "$BACKING/log"
		behind polls "$BACKING" "$MNT" 2000
		umount_wait
	done
}

@test "a file that is rewritten in place is seen so by who has it open, or mapped, within the time that may be old" {
	mount_cistern
	behind rewritten "$BACKING" "$MNT" 5
}

# What a write here finds has grown: that is a part of the file then, and no zeros are.
@test "a file that others have appended to is written to far behind that: who has it open sees their bytes" {
	printf 'one\n' >"$BACKING/f"
	mount_cistern
	python3 - "$BACKING/f" "$MNT/f" <<'END'
import os, sys
writer = os.open(sys.argv[2], os.O_RDWR)
reader = os.open(sys.argv[2], os.O_RDONLY)
assert os.read(reader, 100) == b"one\n"
with open(sys.argv[1], "ab") as other:
    other.write(b"two\n")
os.pwrite(writer, b"far\n", 8192)
assert os.pread(reader, 8, 0) == b"one\ntwo\n", os.pread(reader, 8, 0)
assert os.pread(reader, 8, 8192) == b"far\n"
END
	umount_wait
	is "$(head -c 8 "$BACKING/f")" $'one\ntwo'
}

# The seed is said: CISTERN_SEED tries one again, CISTERN_SWEEP (seconds) for longer.
sweep() {
	local seed=${CISTERN_SEED:-$RANDOM}
	echo "seed $seed"
	behind sweep "${@:1:2}" "${CISTERN_SWEEP:-6}" "$seed" "${@:3}"
}

@test "random changes, and readers of all kinds: nothing that was not there" {
	mount_cistern
	sweep "$BACKING" 2.5 "$MNT"
}

@test "random changes, and readers of all kinds: a mount for reading only" {
	mount_cistern -o ro
	sweep "$BACKING" 2.5 "$MNT"
}

@test "random changes, and readers of all kinds: where nothing is believed for any time" {
	mount_cistern -o backing_timeout=0
	sweep "$BACKING" 0.5 "$MNT"
}

@test "random changes, and readers of all kinds: of files that the store knows" {
	mount_cistern
	KNOWN=1 sweep "$BACKING" 2.5 "$MNT"
}

@test "random changes, and readers of all kinds on two nodes of a job" {
	load ../lib/job
	needs_mpi
	start_job 2
	sweep "$WORK/b" 3.5 "$WORK/m0" "$WORK/m1"
	behind rewritten "$WORK/b" "$WORK/m0" 10
	rm "$WORK/b/f"
	behind rewritten "$WORK/b" "$WORK/m1" 10
	behind polls "$WORK/b" "$WORK/m0" 1000
	rm "$WORK/b/log"
	behind polls "$WORK/b" "$WORK/m1" 1000
	stop_job
}
