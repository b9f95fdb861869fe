#!/usr/bin/env bats
# SPDX-License-Identifier: GPL-3.0-or-later
#
# A drain is true or it fails: what arrives, how, and what is said when it cannot.

load ../lib/mount

agent_pid() {
	pgrep -P "$(daemon_pid)" cistern-agent | head -n 1 | grep .
}

# Files of all kinds; run twice with the same number, it gives the same.
make_tree() {
	(
		cd "$1" || exit
		umask 022
		mkdir -p a/b/c empty
		random_file a/one 300000 "$2"
		random_file a/b/two 4097 "$2"
		: >a/b/c/nothing
		truncate -s 3M a/sparse
		printf middle | dd of=a/sparse bs=1 seek=1500000 conv=notrunc status=none
		ln -s one a/link
		ln a/one a/b/hard
		chmod 4751 a/b/two
		setfattr -n user.note -v "number $2" a/one 2>/dev/null || true
		if [ "$(id -u)" -eq 0 ]; then chown 123:456 a/b/two a/b && chmod 4751 a/b/two && chown -h 7:8 a/link; fi
		touch -h -d '2002-03-04 05:06:07.123456789' a/one a/link
		touch -d '1999-01-01 00:00:00.000000001' a/b/c/nothing empty a/b/c a/b a
	)
}

# warned_of PATH TEXT...: the manifest says so of it.
warned_of() {
	local path=$1 text
	output=$(jq -r --arg path "$path" '.files[] | select(.path == $path).warning' "$STORE/manifest.json")
	shift
	for text in "$@"; do says "$text"; done
}

# needs_big_attribute: long, which has to be local, is a value that the backing file system does not take.
needs_big_attribute() {
	needs_program setfattr getfattr jq
	long=$(printf '%060000d' 0)
	: >"$BACKING/probe"
	! setfattr -n user.big -v "$long" "$BACKING/probe" || skip "the backing file system takes attributes of 60,000 bytes"
	rm "$BACKING/probe"
}

@test "of two mounts on one host at a time each tells of its own files" {
	local long i
	needs_big_attribute
	mkdir "$WORK/b2" "$WORK/m2"
	mount_cistern
	mount_cistern "$WORK/s2" "$WORK/m2" "$WORK/b2"
	for i in "$MNT/a" "$WORK/m2/a" "$WORK/m2/b"; do
		echo text >"$i"
		setfattr -n user.big -v "$long" "$i"
	done
	exits 0 flush
	says "1 file has a warning: see"
	exits 0 "$CISTERN" flush --wait --mount "$WORK/m2"
	says "2 files have a warning: see"
	exits 0 "$CISTERN" umount --wait "$WORK/m2"
	says "2 files have a warning: see \"kept\" and \"warning\" in $WORK/s2/manifest.json"
	exits 0 umount_wait
	says "1 file has a warning: see \"kept\" and \"warning\" in $STORE/manifest.json"
}

@test "an extended attribute that the backing file system does not take is named, and all else is drained" {
	local long links=0
	needs_big_attribute
	mount_cistern
	seq 100000 >"$DIRECT/f"
	cp "$DIRECT/f" "$MNT/f"
	setfattr -n user.big -v "$long" "$MNT/f"
	setfattr -n user.small -v kept "$MNT/f"
	# Whoever asks is told of all that the mount has drained, once.
	exits 0 flush
	says "1 file has a warning: see"
	mkdir "$MNT/d"
	echo other >"$MNT/d/other"
	setfattr -n user.big -v "$long" "$MNT/d"
	setfattr -n user.small -v kept "$MNT/d"
	exits 0 flush
	says "2 files have a warning: see"
	ln -s other "$MNT/d/link"
	setfattr -h -n trusted.big -v "$long" "$MNT/d/link" 2>/dev/null && links=1
	exits 0 umount_wait
	says "$((2 + links)) files have a warning: see \"kept\" and \"warning\" in $STORE/manifest.json"
	is "$(grep -c warning <<<"$output")" 1
	[ "$links" -eq 0 ] || warned_of d/link "extended attribute trusted.big (60000 bytes) is not there"
	cmp "$DIRECT/f" "$BACKING/f"
	is "$(cat "$BACKING/d/other")" other
	for name in f d; do
		is "$(getfattr --only-values -n user.small "$BACKING/$name" 2>/dev/null)" kept
		warned_of "$name" "extended attribute user.big (60000 bytes) is not there" "no room for it"
	done
	is "$(jq -r .result "$STORE/manifest.json")" complete
	# A later mount does not repeat it.
	mount_cistern
	echo more >"$MNT/more"
	exits 0 umount_wait
	refute says warning >/dev/null
	warned_of f "extended attribute user.big"
}

@test "mode, owner, times, xattrs, links and holes arrive as they were left" {
	mount_cistern
	make_tree "$MNT" 1
	make_tree "$DIRECT" 1
	same_trees "$MNT" "$DIRECT"
	umount_wait
	same_trees "$BACKING" "$DIRECT"
	local name
	for name in a/one a/link a/b/c/nothing empty a/b/c a/b a; do
		same_word "$(find "$BACKING/$name" -maxdepth 0 -printf %T@)" "$(find "$DIRECT/$name" -maxdepth 0 -printf %T@)"
	done
	[ "$(stat -c %b "$BACKING/a/sparse")" -le "$(($(stat -c %b "$DIRECT/a/sparse") + 16))" ]
}

@test "renames, deletions, directory renames and swaps of files that are there already" {
	make_tree "$BACKING" 2
	make_tree "$DIRECT" 2
	change() {
		cd "$1" || exit
		mv a/one a/was-one
		rm a/b/two
		mv a/b/c moved-up
		mv a renamed
		mkdir a
		echo new >a/one
		echo x >x
		echo y >y
		mv x t && mv y x && mv t y
		rmdir empty
		echo file >empty
		mv renamed/link renamed/b/link2
	}
	mount_cistern
	(change "$MNT")
	(change "$DIRECT")
	same_trees "$MNT" "$DIRECT"
	umount_wait
	no_leftovers "$BACKING"
	same_trees "$BACKING" "$DIRECT"
}

@test "names that change places in a ring, and a child that becomes the parent" {
	ring() {
		cd "$1" || exit
		mv 1 t && mv 2 1 && mv 3 2 && mv t 3
		mv d/e x && mv d x/d && mv x d
		python3 -c "import ctypes; assert ctypes.CDLL(None).renameat2(-100, b'p', -100, b'q', 2) == 0"
	}
	local dir
	for dir in "$BACKING" "$DIRECT"; do
		mkdir -p "$dir/d/e" "$dir/p"
		for name in 1 2 3 d/f d/e/g p/inside q; do echo "$name" >"$dir/$name"; done
	done
	needs_program python3
	mount_cistern
	(ring "$MNT")
	(ring "$DIRECT")
	umount_wait
	no_leftovers "$BACKING"
	same_trees "$BACKING" "$DIRECT"
}

@test "every kind of change, drained at each step" {
	mount_cistern
	make_tree "$MNT" 3
	make_tree "$DIRECT" 3
	flush
	same_trees "$BACKING" "$DIRECT"
	(cd "$MNT" && mv a/b b && rm -r empty && ln b/two again && echo more >>a/one && truncate -s 5 b/two)
	(cd "$DIRECT" && mv a/b b && rm -r empty && ln b/two again && echo more >>a/one && truncate -s 5 b/two)
	flush
	same_trees "$BACKING" "$DIRECT"
	is "$(status_of dirty_files)" 0
	(cd "$MNT" && mv b a/b && chmod 600 again && rm a/link)
	(cd "$DIRECT" && mv b a/b && chmod 600 again && rm a/link)
	umount_wait
	same_trees "$BACKING" "$DIRECT"
}

@test "a new file appears under its name only when it is whole" {
	mount_cistern -o drain=unmount,flush_buffer_size=1M
	random_file "$MNT/big" $((48 << 20))
	random_file "$DIRECT/big" $((48 << 20))
	"$CISTERN" flush --wait --mount "$MNT" 3>&- &
	local flush=$! seen=0
	while kill -0 "$flush" 2>/dev/null; do
		if [ -e "$BACKING/big" ]; then
			is "$(stat -c %s "$BACKING/big")" $((48 << 20))
			cmp "$BACKING/big" "$DIRECT/big"
			seen=1
		fi
		refute ls "$MNT"/.cistern-*
	done
	wait "$flush"
	cmp "$BACKING/big" "$DIRECT/big"
	no_leftovers "$BACKING"
	echo "seen while draining: $seen"
}

@test "a file that exists is changed in place: the same inode, its other links too" {
	random_file "$BACKING/f" 200000 1
	ln "$BACKING/f" "$BACKING/g"
	local ino
	ino=$(stat -c %i "$BACKING/f")
	mount_cistern
	printf changed | dd of="$MNT/f" bs=1 seek=100000 conv=notrunc status=none
	umount_wait
	is "$(stat -c %i "$BACKING/f")" "$ino"
	random_file "$DIRECT/f" 200000 1
	printf changed | dd of="$DIRECT/f" bs=1 seek=100000 conv=notrunc status=none
	cmp "$BACKING/f" "$DIRECT/f"
	cmp "$BACKING/g" "$DIRECT/f"
}

@test "truncated and grown again: zeros, not what was there before" {
	random_file "$BACKING/f" 200000 1
	mount_cistern
	truncate -s 1000 "$MNT/f"
	truncate -s 150000 "$MNT/f"
	printf end | dd of="$MNT/f" bs=1 seek=120000 conv=notrunc status=none
	cp "$MNT/f" "$WORK/mount"
	umount_wait
	random_file "$DIRECT/f" 1000 1
	truncate -s 150000 "$DIRECT/f"
	printf end | dd of="$DIRECT/f" bs=1 seek=120000 conv=notrunc status=none
	cmp "$WORK/mount" "$DIRECT/f"
	cmp "$BACKING/f" "$DIRECT/f"
}

@test "what was written and deleted never reaches the backing directory, and is counted as saved" {
	mount_cistern -o drain=unmount,data=log
	random_file "$MNT/f" 1000000
	rm "$MNT/f"
	[ "$(status_of saved_bytes)" -ge 1000000 ]
	umount_wait
	is "$(ls -A "$BACKING")" ""
	"$CISTERN" status --json "$STORE" | jq -e '.drained_bytes == 0'
}

@test "flush of one path drains that one only" {
	mount_cistern -o drain=unmount
	mkdir "$MNT/d"
	echo one >"$MNT/one"
	echo two >"$MNT/two"
	echo three >"$MNT/d/three"
	"$CISTERN" flush --wait "$MNT/one"
	is "$(cat "$BACKING/one")" one
	[ ! -e "$BACKING/two" ]
	"$CISTERN" flush --wait "$MNT/d"
	is "$(cat "$BACKING/d/three")" three
	[ ! -e "$BACKING/two" ]
	umount_wait
	is "$(cat "$BACKING/two")" two
}

@test "the buffer's size does not change the bytes" {
	local size
	for size in 1M 64M; do
		mkdir "$WORK/b$size" "$WORK/m$size"
		random_file "$WORK/b$size/old" 3000000 9
		mount_cistern -o "flush_buffer_size=$size,data=log" "$WORK/s$size" "$WORK/m$size" "$WORK/b$size"
		"$top_builddir/tests/crash/writer" -q -s 77 -n 600 "$WORK/m$size"
		printf x | dd of="$WORK/m$size/old" bs=1 seek=2999990 conv=notrunc status=none
		umount_wait "$WORK/m$size"
	done
	same_trees "$WORK/b1M" "$WORK/b64M"
}

# Kibibytes of a file that are in the page cache.
cached_kib() {
	echo $(($(fincore -nb -o RES "$1") / 1024))
}

# Blocks of 4 KiB that carry their number.
numbered_blocks() {
	python3 -c 'import sys; [sys.stdout.buffer.write(i.to_bytes(4096, "little")) for i in range(int(sys.argv[1]))]' "$1"
}

@test "scattered blocks are drained past the page cache, and are what was written" {
	needs_program python3
	needs_program fincore
	dd if=/dev/zero of="$BACKING/probe" bs=1M count=1 oflag=direct status=none || skip "no O_DIRECT in $BACKING"
	[ "$(cached_kib "$BACKING/probe")" -eq 0 ] || skip "$BACKING keeps its files in the page cache"
	rm "$BACKING/probe"
	mount_cistern -o drain=unmount,data=log,drain_share=100%,flush_buffer_size=4M
	"$top_builddir/tests/bench/scatter" "$MNT/file" 4096 4096 1 0
	umount_wait
	# the first and the last window go through it
	[ "$(cached_kib "$BACKING/file")" -le 4096 ]
	numbered_blocks 4096 | cmp - "$BACKING/file"
}

@test "blocks scattered over more segments than are kept open are what was written" {
	needs_program python3
	mount_cistern -o drain=unmount,data=log,drain_share=100%,segment_size=1M
	"$top_builddir/tests/bench/scatter" "$MNT/file" 40000 4096 1 0
	[ "$(find "$STORE/segment" -name '*.seg' | wc -l)" -gt 128 ]
	umount_wait
	numbered_blocks 40000 | cmp - "$BACKING/file"
}

@test "the manifest lists every file with size, bytes, checksum and state" {
	needs_program python3
	mount_cistern -o data=log
	random_file "$MNT/new" 123456 4
	mkdir "$MNT/d"
	random_file "$MNT/d/more" 5000 5
	ln -s new "$MNT/link"
	umount_wait
	jq -e '.result == "complete" and .exit_status == 0 and .totals.failed == 0' "$STORE/manifest.json"
	jq -e '.files | length >= 2' "$STORE/manifest.json"
	local path size crc
	for path in new d/more; do
		size=$(stat -c %s "$BACKING/$path")
		crc=$(crc32c "$BACKING/$path")
		jq -c --arg p "$path" '.files[] | select(.path | ltrimstr("/") == $p)' "$STORE/manifest.json" | tee "$WORK/line"
		jq -e --argjson s "$size" --arg c "$crc" '.size == $s and .bytes_written == $s and .state == "drained"
			and .checksum.algorithm == "crc32c" and .checksum.value == $c and .checksum.of == "file"' "$WORK/line"
	done
	while IFS= read -r line; do jq -e ".path // .state" <<<"$line"; done <"$STORE/manifest.jsonl"
}

@test "the manifest says of a name that is a drained file's further link what it links to, and not what was there before" {
	mount_cistern
	echo one >"$MNT/one"
	echo two >"$MNT/two"
	"$CISTERN" flush --wait "$MNT"
	rm "$MNT/two"
	ln "$MNT/one" "$MNT/two"
	mv "$MNT/one" "$MNT/three"
	umount_wait
	is "$(cat "$BACKING/two" "$BACKING/three")" $'one\none'
	is "$(jq -c '[.files[].path], [.linked[], .moved[] | .path]' "$STORE/manifest.json" | tr '\n' ' ')" '[] ["two","three"] '
}

@test "the manifest lists a file of several names once, as it is, whichever of them are written to, linked or removed" {
	needs_program python3
	mount_cistern
	listed() {
		"$CISTERN" flush --wait "$MNT"
		jq -c '[.files[] | [.path, .size]], [.linked[] | [.path, .from]]' "$STORE/manifest.json" | tr '\n' ' '
	}
	mkdir "$MNT/d"
	echo two words >"$MNT/d/b"
	is "$(listed)" '[["d/b",10]] [] '
	ln "$MNT/d/b" "$MNT/d/a"
	echo and three more >>"$MNT/d/a"
	is "$(listed)" '[["d/a",25]] [["d/b","d/a"]] '
	ln "$MNT/d/a" "$MNT/c"
	is "$(listed)" '[["d/a",25]] [["d/b","d/a"],["c","d/a"]] '
	echo end >>"$MNT/d/b"
	is "$(listed)" '[["c",29]] [["d/b","c"],["d/a","c"]] '
	rm "$MNT/c"
	is "$(listed)" '[["d/b",29]] [["d/a","d/b"]] '
	mv "$MNT/d" "$MNT/e"
	is "$(listed)" '[["e/b",29]] [["e/a","e/b"]] '
	echo again >"$MNT/e/a"
	is "$(listed)" '[["e/a",6]] [["e/b","e/a"]] '
	umount_wait
}

@test "the manifest's checksum of a file changed in place covers what was written" {
	needs_program python3
	random_file "$BACKING/f" 500000 1
	mount_cistern -o data=log
	random_file "$WORK/x" 5000 2
	dd if="$WORK/x" of="$MNT/f" bs=5000 count=1 oflag=seek_bytes seek=300000 conv=notrunc status=none
	dd if="$WORK/x" of="$MNT/f" bs=1000 count=1 oflag=seek_bytes seek=100 conv=notrunc status=none
	umount_wait
	jq -c '.files[]' "$STORE/manifest.json" | tee "$WORK/line"
	jq -e '.size == 500000 and .bytes_written == 6000 and .checksum.of == "written_ranges"' "$WORK/line"
	is "$(jq -r .checksum.value "$WORK/line")" "$(crc32c "$BACKING/f" 100:1000 300000:5000)"
}

@test "verify=read says verified, and a copy of the manifest goes where it is wanted" {
	mount_cistern -o "verify=read,manifest=$WORK/copy.json"
	random_file "$MNT/f" 3000000
	umount_wait
	jq -e '.files[0].state == "verified"' "$STORE/manifest.json"
	cmp "$STORE/manifest.json" "$WORK/copy.json"
	[ "$(stat -c %a "$WORK/copy.json")" = 644 ]
}

@test "pause holds the drain, resume lets it go on" {
	mount_cistern -o drain=idle,idle_interval=10ms
	"$CISTERN" pause "$MNT"
	is "$(status_of paused)" true
	random_file "$MNT/f" 100000
	refute wait_until 1 test -e "$BACKING/f"
	"$CISTERN" resume "$MNT"
	is "$(status_of paused)" false
	wait_until 60 test -e "$BACKING/f"
	umount_wait
	cmp <(random_file /dev/stdout 100000) "$BACKING/f"
}

@test "drain=idle drains by itself, without being asked" {
	mount_cistern -o drain=idle,idle_interval=50ms
	random_file "$MNT/f" 2000000
	wait_until 60 test -e "$BACKING/f"
	wait_until 60 all_drained
	umount_wait
}

@test "drain_rate limits the background drain" {
	mount_cistern -o drain=idle,idle_interval=10ms,drain_rate=4M,flush_buffer_size=1M
	local begin=$SECONDS
	random_file "$MNT/f" $((16 << 20))
	wait_until 60 test -e "$BACKING/f"
	echo "took $((SECONDS - begin)) s"
	[ $((SECONDS - begin)) -ge 3 ]
	umount_wait
}

share_is() {
	[ "$(status_of drain_share)" = "$1" ]
}

writing_lowers_the_share() {
	dd if=/dev/zero of="$MNT/app" bs=64K count=1 conv=notrunc,fsync status=none && share_is 20
}

@test "a drain makes way while an application writes, and has all the time again when it has stopped" {
	mount_cistern -o drain=idle,idle_interval=10ms,drain_share=20%,drain_rate=100K,flush_buffer_size=1M,data=log
	share_is 0
	random_file "$MNT/f" $((16 << 20))
	wait_until 60 share_is 100
	wait_until 60 writing_lowers_the_share
	wait_until 60 share_is 100
	umount_wait
	is "$(stat -c %s "$BACKING/f")" $((16 << 20))
}

@test "cistern flush --timeout gives up with status 6 and the drain goes on" {
	# An agent that begins when it may: until then the drain cannot have ended.
	mkdir "$WORK/libexec"
	cat >"$WORK/libexec/cistern-agent" <<-END
		#!/bin/bash
		until [ "\$1" != drain ] || [ -e "$WORK/go" ]; do sleep 0.02; done
		exec "${CISTERN_LIBEXEC:?}/cistern-agent" "\$@"
	END
	chmod +x "$WORK/libexec/cistern-agent"
	CISTERN_LIBEXEC=$WORK/libexec:$CISTERN_LIBEXEC mount_cistern -o drain=unmount
	random_file "$MNT/f" 1000000
	exits 6 "$CISTERN" flush --wait --timeout 50ms "$MNT/f"
	[ ! -e "$BACKING/f" ]
	: >"$WORK/go"
	wait_until 60 test -e "$BACKING/f"
	umount_wait
	is "$(stat -c %s "$BACKING/f")" 1000000
}

# ---- drains that cannot succeed

@test "a directory that cannot be written: named, others done, status 3, and again after it was mended" {
	needs_root "chattr +i"
	mkdir "$BACKING/locked" "$BACKING/open"
	mount_cistern -o drain=unmount
	random_file "$MNT/locked/f" 50000
	random_file "$MNT/open/g" 50000
	chattr +i "$BACKING/locked" || skip "chattr +i does not work here"
	undo "chattr -i $BACKING/locked"
	exits 3 "$CISTERN" flush --wait --mount "$MNT"
	says "locked/f"
	cmp "$MNT/locked/f" "$BACKING/open/g"
	no_leftovers "$BACKING"
	[ ! -e "$BACKING/locked/f" ]
	[ "$(status_of errors)" -ge 1 ]
	jq -e '.result == "incomplete"' "$STORE/manifest.json"
	exits 3 "$CISTERN" umount --wait "$MNT"
	refute is_mounted "$MNT"
	"$CISTERN" status --json "$STORE" | jq -e '.dirty_files >= 1'
	chattr -i "$BACKING/locked"
	mount_cistern
	umount_wait
	cmp "$BACKING/locked/f" "$BACKING/open/g"
}

@test "a read-only backing directory: nothing is lost, recover brings it elsewhere" {
	needs_root "bind mounts"
	mkdir "$WORK/bound"
	mount --bind "$BACKING" "$WORK/bound" || skip "no bind mounts"
	undo "umount -l $WORK/bound"
	mount_cistern -o drain=unmount "$STORE" "$MNT" "$WORK/bound"
	random_file "$MNT/f" 100000
	mount -o remount,ro,bind "$WORK/bound"
	exits 3 "$CISTERN" umount --wait "$MNT"
	says "f"
	mkdir "$WORK/elsewhere"
	"$CISTERN" recover "$STORE" --to "$WORK/elsewhere"
	cmp <(random_file /dev/stdout 100000) "$WORK/elsewhere/f"
}

@test "a backing directory that vanished: its file is named, others done; put back, the drain succeeds" {
	mkdir "$BACKING/sub"
	mount_cistern -o drain=unmount
	random_file "$MNT/sub/f" 60000
	random_file "$MNT/g" 60000
	mv "$BACKING/sub" "$WORK/away"
	exits 3 "$CISTERN" flush --wait --mount "$MNT"
	says "sub/f"
	cmp "$BACKING/g" <(random_file /dev/stdout 60000)
	mv "$WORK/away" "$BACKING/sub"
	flush
	cmp "$BACKING/sub/f" "$BACKING/g"
	umount_wait
}

@test "a backing directory that is gone for ever: recover brings its files elsewhere" {
	mkdir "$BACKING/sub" "$WORK/elsewhere"
	mount_cistern -o drain=unmount
	random_file "$MNT/sub/f" 60000
	rm -r "$BACKING/sub"
	exits 3 "$CISTERN" umount --wait "$MNT"
	says "sub/f"
	"$CISTERN" recover "$STORE" --to "$WORK/elsewhere"
	cmp "$WORK/elsewhere/sub/f" <(random_file /dev/stdout 60000)
}

@test "a full backing directory: said, kept, and drained once there is room" {
	make_tmpfs small 8M
	mount_cistern -o drain=unmount "$STORE" "$MNT" "$WORK/small"
	random_file "$MNT/small" 100000
	random_file "$MNT/big" $((12 << 20))
	exits 3 "$CISTERN" flush --wait --mount "$MNT"
	says "big"
	says "space"
	cmp "$WORK/small/small" <(random_file /dev/stdout 100000)
	[ ! -e "$WORK/small/big" ]
	no_leftovers "$WORK/small"
	cmp "$MNT/big" <(random_file /dev/stdout $((12 << 20)))
	mount -o remount,size=64M "$WORK/small"
	umount_wait
	cmp "$WORK/small/big" <(random_file /dev/stdout $((12 << 20)))
}

@test "a file that cannot be drained does not keep its directory's others back" {
	needs_root "chattr +i"
	random_file "$BACKING/stuck" 1000
	mount_cistern -o drain=unmount
	echo more >>"$MNT/stuck"
	for i in 1 2 3 4 5; do echo "$i" >"$MNT/$i"; done
	chattr +i "$BACKING/stuck" || skip "chattr +i does not work here"
	undo "chattr -i $BACKING/stuck"
	exits 3 "$CISTERN" flush --wait --mount "$MNT"
	says stuck
	for i in 1 2 3 4 5; do is "$(cat "$BACKING/$i")" "$i"; done
	chattr -i "$BACKING/stuck"
	umount_wait
	is "$(tail -n 1 "$BACKING/stuck" | tail -c 5)" more
}

# in_state STATE: the paths of the manifest's files that have it, in order.
in_state() {
	jq -r --arg state "$1" '.files[] | select(.state == $state).path' "$STORE/manifest.json" | LC_ALL=C sort | paste -sd' '
}

@test "what failed and has no name any more, or another one, is not in the manifest for ever" {
	needs_program jq
	needs_root "chattr +i"
	mkdir "$BACKING/locked"
	mount_cistern -o drain=unmount
	for f in deleted moved stays; do echo "$f" >"$MNT/locked/$f"; done
	mkdir "$MNT/locked/dir"
	chattr +i "$BACKING/locked" || skip "chattr +i does not work here"
	undo "chattr -i $BACKING/locked"
	exits 3 "$CISTERN" flush --wait --mount "$MNT"
	is "$(in_state failed)" "locked locked/deleted locked/dir locked/moved locked/stays"
	rm "$MNT/locked/deleted"
	mv "$MNT/locked/moved" "$MNT/elsewhere"
	exits 3 "$CISTERN" flush --wait "$MNT/locked/stays"
	is "$(in_state failed)" "locked locked/deleted locked/dir locked/moved locked/stays"
	exits 3 "$CISTERN" flush --wait --mount "$MNT"
	is "$(in_state failed)" "locked locked/dir locked/stays"
	is "$(in_state drained)" elsewhere
	chattr -i "$BACKING/locked"
	umount_wait
	is "$(in_state failed)" ""
	is "$(in_state drained)" "elsewhere locked/stays"
}

@test "a damaged payload is never written: named, and the others arrive" {
	mount_cistern -o drain=unmount,data=log
	random_file "$MNT/bad" 300000 1
	random_file "$MNT/good" 300000 2
	kill_daemon
	release_mount "$MNT"
	local off segment
	off=$("$CISTERN" inspect --json "$STORE" bad | jq '[.file.ranges[] | select(.segment != null)][0].segment_off')
	segment=$STORE/segment/$(printf '%08d' "$("$CISTERN" inspect --json "$STORE" bad |
		jq '[.file.ranges[] | select(.segment != null)][0].segment')").seg
	[ -e "$segment" ] || segment=$(find "$STORE/segment" -name '*.seg' | sort | head -n 1)
	printf XXXX | dd of="$segment" bs=1 seek=$((off + 1000)) conv=notrunc status=none
	exits 4 "$CISTERN" fsck "$STORE"
	says bad
	exits 3 "$CISTERN" recover "$STORE" --to "$BACKING"
	says bad
	[ ! -e "$BACKING/bad" ]
	cmp "$BACKING/good" <(random_file /dev/stdout 300000 2)
}

# with_misreads COMMAND...: with tests/lib/misread.c in its processes, behind what a sanitizer must have first.
with_misreads() {
	local shim=$top_builddir/tests/lib/misread.so runtime
	[ -e "$shim" ] || skip "tests/lib/misread.so is not built"
	runtime=$(ldd "$CISTERN_LIBEXEC/cistern-agent" | awk '/lib(a|ub)san/ { printf "%s ", $3 }')
	MISREAD_DIR=$BACKING/bad LD_PRELOAD="$runtime$shim" "$@"
}

@test "verify=read: a destination that gives back other bytes is named, others done, and again after it was mended" {
	local name
	mkdir "$BACKING/bad" "$BACKING/good"
	random_file "$BACKING/bad/old" 3000000 1
	cp "$BACKING/bad/old" "$DIRECT/old"
	with_misreads mount_cistern -o drain=unmount,verify=read
	for name in bad/new bad/old good/new; do
		dd if=/dev/urandom of="$MNT/$name" bs=100000 count=5 oflag=seek_bytes seek=100000 conv=notrunc status=none
	done
	cp "$MNT/bad/old" "$DIRECT/old"
	cp "$MNT/bad/new" "$DIRECT/new"
	: >"$BACKING/bad/misread.on"
	exits 3 "$CISTERN" flush --wait --mount "$MNT"
	says bad/new
	says bad/old
	says "read back"
	cmp "$MNT/good/new" "$BACKING/good/new"
	jq -e '.result == "incomplete" and .totals.failed == 2' "$STORE/manifest.json"
	jq -e '[.files[] | select(.path | test("bad/(new|old)$")) | .state] == ["failed", "failed"]' "$STORE/manifest.json"
	jq -e '[.files[] | select(.path | test("good/new$")) | .state] == ["verified"]' "$STORE/manifest.json"
	[ ! -e "$BACKING/bad/new" ]
	is "$(status_of dirty_files)" 2
	exits 3 "$CISTERN" umount --wait "$MNT"
	says bad/new
	"$CISTERN" status --json "$STORE" | jq -e '.dirty_files == 2'
	rm "$BACKING/bad/misread.on"
	mount_cistern -o verify=read
	cmp "$MNT/bad/old" "$DIRECT/old"
	cmp "$MNT/bad/new" "$DIRECT/new"
	umount_wait
	no_leftovers "$BACKING"
	cmp "$BACKING/bad/old" "$DIRECT/old"
	cmp "$BACKING/bad/new" "$DIRECT/new"
	jq -e '[.files[] | select(.path | test("bad/(new|old)$")) | .state] == ["verified", "verified"]' "$STORE/manifest.json"
}

# ---- drains that are interrupted

@test "an agent killed in the middle is replaced, and the bytes are the same" {
	mount_cistern -o drain=unmount,flush_buffer_size=1M
	random_file "$BACKING/old" $((8 << 20)) 3
	"$top_builddir/tests/crash/writer" -q -s 5 -n 800 "$MNT"
	"$top_builddir/tests/crash/writer" -q -s 5 -n 800 "$DIRECT"
	random_file "$DIRECT/old" $((8 << 20)) 3
	# A drain may end before the signal comes: write again until two agents died at their work.
	local round last=0 flush kills=0 pid
	for round in $(seq 50); do
		[ "$kills" -lt 2 ] || break
		last=$round
		random_file "$MNT/big" $((64 << 20)) "$round"
		"$CISTERN" flush --wait --mount "$MNT" 3>&- >"$WORK/said" 2>&1 &
		flush=$!
		while kill -0 "$flush" 2>/dev/null && [ "$kills" -lt 2 ]; do
			if pid=$(agent_pid); then
				sleep "0.0$((round % 4))"
				kill -KILL "$pid" 2>/dev/null && kills=$((kills + 1))
			fi
		done
		wait "$flush" || cat "$WORK/said"
	done
	echo "killed $kills agents in $last rounds"
	[ "$kills" -ge 2 ]
	random_file "$DIRECT/big" $((64 << 20)) "$last"
	umount_wait
	no_leftovers "$BACKING"
	same_trees "$BACKING" "$DIRECT"
}

# What was in the backing directory under a name is whole at every moment: old or new.
@test "an agent that dies at its Nth change: every name is whole, and the end is the same" {
	local n dies
	change() {
		(cd "$1" && echo changed >>one/f && mv two 2 && mkdir -p three/deep && random_file three/deep/g 40000 2 &&
			random_file h 5000 3 && mv swap1 t && mv swap2 swap1 && mv t swap2 && rm gone && ln -s h link && chmod 600 one/f)
	}
	begin() {
		(cd "$1" && mkdir one two && echo f >one/f && echo x >two/x && echo 1 >swap1 && echo 2 >swap2 && echo g >gone)
	}
	begin "$DIRECT"
	change "$DIRECT"
	# Until one comes through: so many changes there are to die at.
	for ((n = 1, dies = 1; dies; n++)); do
		mkdir "$WORK/b$n" "$WORK/m$n"
		begin "$WORK/b$n"
		CISTERN_AGENT_ABORT_AFTER=$n mount_cistern -o drain=unmount "$WORK/s$n" "$WORK/m$n" "$WORK/b$n"
		change "$WORK/m$n"
		if "$CISTERN" flush --wait --timeout 5m --mount "$WORK/m$n" 3>&-; then dies=0; fi
		if [ -e "$WORK/b$n/three/deep/g" ]; then cmp "$WORK/b$n/three/deep/g" "$DIRECT/three/deep/g"; fi
		if [ -e "$WORK/b$n/h" ]; then cmp "$WORK/b$n/h" "$DIRECT/h"; fi
		same_trees "$WORK/m$n" "$DIRECT"
		kill_daemon "$WORK/m$n"
		"$CISTERN" umount "$WORK/m$n" || true
		mount_cistern "$WORK/s$n" "$WORK/m$n" "$WORK/b$n"
		same_trees "$WORK/m$n" "$DIRECT"
		umount_wait "$WORK/m$n"
		no_leftovers "$WORK/b$n"
		same_trees "$WORK/b$n" "$DIRECT"
	done
	echo "the $((n - 1))th came through"
	[ "$n" -gt 10 ]
}

@test "a daemon killed while it drains: the next mount shows every name at once" {
	local i round flush pid met=0
	for i in $(seq 120); do
		mkdir "$BACKING/$i" "$DIRECT/to$i"
		echo "$i" >"$BACKING/$i/f"
		echo "$i" >"$DIRECT/to$i/f"
	done
	for ((round = 0; round < 3 || (met == 0 && round < 20); round++)); do
		mount_cistern -o drain=unmount
		for i in $(seq 120); do mv "$MNT/$i" "$MNT/to$i"; done
		"$CISTERN" flush --wait --mount "$MNT" 3>&- >"$WORK/said" 2>&1 &
		flush=$!
		sleep "0.0$(((round * 3 + 2) % 10))"
		pid=$(agent_pid) || pid=
		kill_daemon
		wait "$flush" || [ -z "$pid" ] || met=$((met + 1))
		"$CISTERN" umount "$MNT" || true
		mount_cistern -o drain=unmount
		same_trees "$MNT" "$DIRECT"
		for i in $(seq 120); do mv "$MNT/to$i" "$MNT/$i"; done
		umount_wait
		no_leftovers "$BACKING"
	done
	echo "$met of $round drains were met"
	[ "$met" -gt 0 ]
	is "$(cat "$BACKING"/*/f | sort -n | uniq | wc -l)" 120
}

@test "recovered in place and mounted again: everything is there, and nothing is left to do" {
	make_tree "$BACKING" 2
	make_tree "$DIRECT" 2
	change() {
		(cd "$1" && mv a/b b && mv a A && mkdir -p new/deep && random_file new/deep/f 50000 3 && rm -r empty &&
			echo more >>A/one && mv A/one A/was-one && ln A/was-one new/link && echo x >x && chmod 640 x)
	}
	mount_cistern -o drain=unmount
	change "$MNT"
	change "$DIRECT"
	kill_daemon
	release_mount "$MNT"
	CISTERN_AGENT_ABORT_AFTER=4 "$CISTERN" recover "$STORE" --to "$BACKING" || true
	"$CISTERN" recover "$STORE" --to "$BACKING"
	same_trees "$BACKING" "$DIRECT"
	[ -s "$STORE/recover.steps" ]
	mount_cistern -o drain=unmount
	[ ! -e "$STORE/recover.steps" ]
	same_trees "$MNT" "$DIRECT"
	is "$(status_of dirty_files)" 0
	is "$(status_of errors)" 0
	umount_wait
	same_trees "$BACKING" "$DIRECT"
}

@test "recovered in place and repaired before it is mounted: what was done is not forgotten" {
	needs_program python3
	local damage dir name
	for damage in tail index; do
		dir=$WORK/$damage
		mkdir "$dir" "$dir/b" "$dir/m" "$dir/d"
		make_tree "$dir/b" 2
		make_tree "$dir/d" 2
		mount_cistern -o drain=unmount "$dir/s" "$dir/m" "$dir/b"
		for name in m d; do
			(cd "$dir/$name" && mv a/b b && mv a A && mkdir new && echo more >>A/one && mv A/one new/ && rm -r empty &&
				chmod 755 new && chmod 755 new) # the last record is one that may be lost
		done
		kill_daemon "$dir/m"
		release_mount "$dir/m"
		if [ "$damage" = index ]; then rm -r "$dir/s/index"; else tear_journal "$dir/s"; fi
		"$CISTERN" recover "$dir/s" --to "$dir/b"
		same_trees "$dir/b" "$dir/d"
		exits 0 "$CISTERN" fsck --repair "$dir/s"
		says "repaired: "
		says "repaired: recovery"
		[ ! -e "$dir/s/recover.steps" ]
		"$CISTERN" status --json "$dir/s" | jq -e '.dirty_files == 0'
		exits 0 "$CISTERN" fsck "$dir/s"
		mount_cistern -o drain=unmount "$dir/s" "$dir/m" "$dir/b"
		same_trees "$dir/m" "$dir/d"
		is "$(status_of dirty_files "$dir/m")" 0
		is "$(status_of errors "$dir/m")" 0
		umount_wait "$dir/m"
		same_trees "$dir/b" "$dir/d"
	done
}

@test "a recovery that was killed, then a mount: nothing is missing" {
	local n
	for n in 1 3 6 10; do
		mkdir "$WORK/b$n" "$WORK/m$n" "$WORK/d$n"
		make_tree "$WORK/b$n" 2
		make_tree "$WORK/d$n" 2
		mount_cistern -o drain=unmount "$WORK/s$n" "$WORK/m$n" "$WORK/b$n"
		for dir in m d; do (cd "$WORK/$dir$n" && mv a/b b && mv a A && mkdir new && echo more >>A/one && mv A/one new/); done
		kill_daemon "$WORK/m$n"
		release_mount "$WORK/m$n"
		CISTERN_AGENT_ABORT_AFTER=$n "$CISTERN" recover "$WORK/s$n" --to "$WORK/b$n" || true
		mount_cistern -o drain=unmount "$WORK/s$n" "$WORK/m$n" "$WORK/b$n"
		same_trees "$WORK/m$n" "$WORK/d$n"
		umount_wait "$WORK/m$n"
		no_leftovers "$WORK/b$n"
		same_trees "$WORK/b$n" "$WORK/d$n"
	done
}

@test "recover can be killed and started again" {
	mount_cistern -o drain=unmount
	"$top_builddir/tests/crash/writer" -q -s 6 -n 800 "$MNT"
	"$top_builddir/tests/crash/writer" -q -s 6 -n 800 "$DIRECT"
	kill_daemon
	release_mount "$MNT"
	local n
	for n in 1 4 9 20; do
		CISTERN_AGENT_ABORT_AFTER=$n "$CISTERN" recover "$STORE" --to "$BACKING" || true
	done
	"$CISTERN" recover "$STORE" --to "$BACKING"
	no_leftovers "$BACKING"
	same_trees "$BACKING" "$DIRECT"
}

@test "writing goes on while a drain runs, and nothing of it is lost" {
	mount_cistern -o drain=unmount
	random_file "$MNT/big" $((32 << 20))
	"$top_builddir/tests/crash/writer" -q -s 8 -n 3000 "$MNT" 3>&- &
	local writer=$!
	while kill -0 "$writer" 2>/dev/null; do flush; done
	wait "$writer"
	"$top_builddir/tests/crash/writer" -q -s 8 -n 3000 "$DIRECT"
	random_file "$DIRECT/big" $((32 << 20))
	same_trees "$MNT" "$DIRECT"
	umount_wait
	no_leftovers "$BACKING"
	same_trees "$BACKING" "$DIRECT"
}

@test "files that a drain renames in the backing directory are there all the while, and afterwards" {
	local i flush round
	mkdir "$BACKING/d"
	for i in $(seq 200); do echo "$i" >"$BACKING/d/$i"; done
	mount_cistern -o drain=unmount,backing_timeout=0
	for round in 1 2 3; do
		for i in $(seq 200); do mv "$MNT/d/$i" "$MNT/d/t$i"; done
		for i in $(seq 200); do mv "$MNT/d/t$i" "$MNT/d/$((i % 200 + 1))"; done
		mv "$MNT/d" "$MNT/e"
		"$CISTERN" flush --wait --mount "$MNT" 3>&- >"$WORK/said" 2>&1 &
		flush=$!
		while kill -0 "$flush" 2>/dev/null; do
			is "$(cat "$MNT"/e/* | sort -n | uniq | wc -l)" 200
		done
		wait "$flush" || { cat "$WORK/said"; return 1; }
		is "$(find "$MNT/e" -type f | wc -l)" 200
		mv "$MNT/e" "$MNT/d"
	done
	umount_wait
	no_leftovers "$BACKING"
	is "$(cat "$BACKING"/d/* | sort -n | uniq | wc -l)" 200
	is "$(cat "$BACKING/d/4")" 1
}

@test "extended attributes are there all the while a drain carries them and moves what has them" {
	needs_program python3 setfattr
	mount_cistern -o drain=unmount
	timeout 200 python3 - "$MNT" "$CISTERN" 3>&- <<-'END'
		import subprocess, os, sys, threading, time
		top, end, missed, looks = sys.argv[1], time.monotonic() + 4, [], 0
		os.mkdir(top + "/d")
		open(top + "/f", "w").close()
		things = [os.open(top + "/d", os.O_RDONLY), os.open(top + "/f", os.O_RDONLY)]
		for fd in things:
		    os.setxattr(fd, "user.kept", b"1")
		def look(fd):
		    global looks
		    while time.monotonic() < end:
		        try:
		            if "user.kept" not in os.listxattr(fd) or os.getxattr(fd, "user.kept") != b"1":
		                missed.append("not listed")
		        except OSError as e:
		            missed.append(str(e))
		        looks += 1
		def drain():
		    while time.monotonic() < end:
		        subprocess.run([sys.argv[2], "flush", "--wait", "--mount", top])
		threads = [threading.Thread(target=look, args=(fd,)) for fd in things] + [threading.Thread(target=drain)]
		for t in threads:
		    t.start()
		names, round = ("d", "e", "f", "g"), 0
		while time.monotonic() < end:
		    for fd in things:
		        os.setxattr(fd, "user.changed", str(round).encode())
		    if round % 2:
		        for a, b in (names[:2], names[2:]):
		            os.rename(top + "/" + (a, b)[round // 2 % 2], top + "/" + (b, a)[round // 2 % 2])
		    time.sleep(0.02 * (round % 3))
		    round += 1
		for t in threads:
		    t.join()
		print(round, "rounds,", looks, "looks,", len(missed), "misses", sorted(set(missed)))
		assert not missed
	END
	umount_wait
	is "$(getfattr --only-values -n user.kept "$BACKING"/[de] 2>/dev/null)$(getfattr --only-values -n user.kept "$BACKING"/[fg] 2>/dev/null)" 11
}

@test "a deleted file that was open until just before the end is not counted as left" {
	local i
	mount_cistern -o drain=unmount
	for i in 1 2 3 4 5; do
		exec 7<>"$MNT/f$i"
		echo x >&7
		rm "$MNT/f$i"
	done
	exec 7<&-
	umount_wait
	is "$(ls -A "$BACKING")" ""
}
