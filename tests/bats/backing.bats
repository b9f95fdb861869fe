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
