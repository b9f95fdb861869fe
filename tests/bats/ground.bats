#!/usr/bin/env bats
# SPDX-License-Identifier: GPL-3.0-or-later
#
# What the backing directory will refuse when a change is drained is refused at the call: the same calls in a plain directory say what is right.

load ../lib/mount
load ../lib/job

# make_grounds DIR: with another file system, a read-only one, and immutable and append-only things. Undone at the end.
make_grounds() {
	local d=$1 kind
	mkdir -p "$d"/{other,ro,short,olddir} "$d"/{immutable,append}/sub
	mount -t tmpfs tmpfs "$d/other" && undo "umount -l $d/other"
	mount -t tmpfs tmpfs "$d/ro" && undo "umount -l $d/ro"
	for name in old other/old ro/old short/old immutable/old append/old f-immutable f-append; do echo old >"$d/$name"; done
	mount -o remount,ro "$d/ro"
	for kind in immutable append; do
		chattr "+${kind:0:1}" "$d/$kind" "$d/f-$kind" || skip "chattr does not work"
		undo "chattr -${kind:0:1} $d/$kind $d/f-$kind"
	done
}

# needs_grounds: an ext4 of its own for two equal trees.
needs_grounds() {
	needs_program chattr
	make_loop fs 64M
	make_grounds "$WORK/fs/plain"
	make_grounds "$WORK/fs/b"
}

@test "another file system below, a read-only one, immutable and append-only files: what the plain directory says" {
	needs_grounds
	python3 "$top_srcdir/tests/lib/grounds.py" "$WORK/fs/plain" >"$WORK/expected"
	grep -c EXDEV "$WORK/expected"
	# What a drain cannot do, since it gives names by renaming, writes in place and sets times.
	sed -i -E 's/^((create|mkdir) in append|rename into append|(append|touch) f-append) ok$/\1 EPERM/' "$WORK/expected"
	chattr -a "$WORK/fs/plain/append" "$WORK/fs/plain/f-append"
	rm -rf "$WORK/fs/plain/append"/{new,newdir,moved}
	mount_cistern -o drain=unmount "$STORE" "$MNT" "$WORK/fs/b"
	python3 "$top_srcdir/tests/lib/grounds.py" "$MNT" >"$WORK/got"
	diff "$WORK/expected" "$WORK/got"
	umount_wait
	diff -r "$WORK/fs/plain" "$WORK/fs/b"
	exits 0 "$CISTERN" status --check "$STORE"
}

@test "a job: names do not cross file systems on any node" {
	local k
	make_loop fs 64M
	mkdir -p "$WORK/fs/b/other"
	mount -t tmpfs tmpfs "$WORK/fs/b/other" && undo "umount -l $WORK/fs/b/other"
	ln -s "$WORK/fs/b" "$WORK/b"
	start_job 2 drain=unmount
	for k in 0 1; do
		echo text >"$WORK/m$k/f$k"
		mkdir "$WORK/m$k/d$k"
		echo text >"$WORK/m$k/d$k/in"
	done
	for k in 0 1; do
		for name in f0 f1 d0 d1 d0/in d1/in; do
			refute python3 -c 'import os, sys; os.rename(*sys.argv[1:])' "$WORK/m$k/$name" "$WORK/m$k/other/got"
		done
		refute ln "$WORK/m$k/f$k" "$WORK/m$k/other/linked"
		exits 0 "$CISTERN" flush --wait --mount "$WORK/m$k"
		echo text >"$WORK/m$k/other/new$k"
		mv "$WORK/m$k/other/new$k" "$WORK/m$k/other/moved$k"
	done
	stop_job
	is "$(ls "$WORK/fs/b/other" | tr '\n' ' ')" "moved0 moved1 "
	is "$(ls "$WORK/fs/b" | tr '\n' ' ')" "d0 d1 f0 f1 lost+found other " || is "$(ls "$WORK/fs/b" | tr '\n' ' ')" "d0 d1 f0 f1 other "
}
