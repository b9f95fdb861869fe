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

# In each directory the same calls at the end of what its file system takes, and what comes of them.
sizes_in() {
	python3 - "$1" "$2" <<'END'
import errno, os, sys
top, limit = sys.argv[1], int(sys.argv[2])
fd = os.open(top + "/f", os.O_RDWR | os.O_CREAT)

def says(call, *args):
    try:
        result = call(*args)
    except OSError as e:
        result = errno.errorcode[e.errno]
    print(call.__name__, args[1:], result, os.fstat(fd).st_size)

says(os.ftruncate, fd, limit + 1)
says(os.ftruncate, fd, limit)
says(os.ftruncate, fd, 10)
says(os.pwrite, fd, b"0123456789", limit)
says(os.pwrite, fd, b"0123456789", limit - 4)
says(os.posix_fallocate, fd, limit - 4, 10)
says(os.ftruncate, fd, 10)
END
}

@test "a file may become as large as in the backing directory, and no larger" {
	local limit data
	needs_root "a file system of its own"
	limit=$(((1 << 44) - 4096))
	mkfs.ext4 -q -F -b 4096 -m 0 -O ^has_journal "$WORK/other.img" 64M || skip "mkfs.ext4 does not work"
	mkdir "$WORK/other"
	mount -o loop "$WORK/other.img" "$WORK/other" || skip "no loop devices"
	undo "umount -l $WORK/other"
	mkdir "$WORK/other/plain" "$WORK/other/backing"
	sizes_in "$WORK/other/plain" "$limit" >"$WORK/expected"
	grep EFBIG "$WORK/expected"
	for data in log auto; do
		mount_cistern -o "data=$data" "$WORK/store-$data" "$MNT" "$WORK/other/backing"
		sizes_in "$MNT" "$limit" | diff "$WORK/expected" -
		umount_wait
		cmp "$WORK/other/backing/f" "$WORK/other/plain/f"
		rm "$WORK/other/backing/f"
	done
	no_leftovers "$WORK/other/backing"
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
