#!/usr/bin/env bats
# SPDX-License-Identifier: GPL-3.0-or-later
#
# A drain moves names in the backing directory before it tells the mount: nobody notices. CISTERN_SECONDS gives each test more time.

load "${top_srcdir:?}/tests/lib/mount.bash"

seconds=${CISTERN_SECONDS:-12} workers=2

# moves [OPTIONS]: names change places beside one drain after the other.
moves() {
	local work drains=0
	python3 "$top_srcdir/tests/lib/moving.py" --fill "$BACKING" "$workers"
	mount_cistern -o "drain=unmount${1:+,$1}"
	python3 "$top_srcdir/tests/lib/moving.py" "$MNT" "$seconds" "$workers" "$WORK/stop" >"$WORK/said" 2>&1 3>&- &
	work=$!
	until gone "$work"; do
		flush >"$WORK/flushed" 2>&1 || { cat "$WORK/flushed"; : >"$WORK/stop"; wait "$work"; cat "$WORK/said"; return 1; }
		drains=$((drains + 1))
	done
	wait "$work" || { cat "$WORK/said"; return 1; }
	cat "$WORK/said"
	echo "$drains drains"
	[ "$drains" -gt 5 ]
	tree_of "$MNT" >"$WORK/shown"
	umount_wait
	tree_of "$BACKING" | diff "$WORK/shown" -
	no_leftovers "$BACKING"
}

@test "names change places while drains move them: opens, looks and listings say what they say without" {
	moves
}

@test "the same where nothing is remembered of the backing directory, and nothing is passed through" {
	moves data=log,backing_timeout=0
}

@test "of two names that a file has in the backing directory one is removed and drained: the other one shows it" {
	echo text >"$BACKING/a"
	ln "$BACKING/a" "$BACKING/b"
	mount_cistern -o drain=unmount
	rm "$MNT/a"
	flush
	[ ! -e "$BACKING/a" ]
	is "$(cat "$MNT/b")" text
	echo more >>"$MNT/b"
	ln "$MNT/b" "$MNT/c"
	umount_wait
	is "$(cat "$BACKING/c")" "$(printf 'text\nmore')"
	[ "$BACKING/b" -ef "$BACKING/c" ]
	[ ! -e "$BACKING/a" ]
}
