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
