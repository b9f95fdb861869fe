#!/usr/bin/env bats
# SPDX-License-Identifier: GPL-3.0-or-later
#
# What others do to the backing directory itself while it is mounted.

load ../lib/mount

@test "a backing directory that was removed and made anew: an error each time, until it is mounted again and takes all" {
	mount_cistern -o drain=unmount
	echo text >"$MNT/f"
	chmod 750 "$MNT"
	rmdir "$BACKING"
	mkdir -m 755 "$BACKING"
	for _ in 1 2; do
		exits 3 "$CISTERN" flush --wait --mount "$MNT"
		says "f: "
	done
	exits 3 "$CISTERN" umount --wait "$MNT"
	is "$(ls -A "$BACKING")" ""
	mount_cistern
	is "$(cat "$MNT/f")" text
	flush
	umount_wait
	is "$(cat "$BACKING/f")" text
	is "$(stat -c %a "$BACKING")" 750
}

@test "a backing directory that was renamed: it is drained into, and named as it is called now" {
	mount_cistern -o drain=unmount
	echo text >"$MNT/f"
	mv "$BACKING" "$WORK/renamed"
	is "$(status_of backing)" "$WORK/renamed"
	exits 0 "$CISTERN" umount --wait "$MNT"
	says "everything is on $WORK/renamed"
	is "$(cat "$WORK/renamed/f")" text
}

@test "a backing directory that was renamed, and does not take all: the message names it as it is called now" {
	mount_cistern -o drain=unmount
	mkdir "$MNT/sub"
	echo text >"$MNT/sub/f"
	flush
	echo more >>"$MNT/sub/f"
	rm -r "$BACKING/sub"
	mv "$BACKING" "$WORK/renamed"
	exits 3 "$CISTERN" umount --wait "$MNT"
	says "not all is in $WORK/renamed;"
}
