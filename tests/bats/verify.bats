#!/usr/bin/env bats
# SPDX-License-Identifier: GPL-3.0-or-later
#
# verify=format: a drained file is what it begins like. And cistern fsck FILE, which asks the same of any file.

load "${top_srcdir:?}/tests/lib/mount.bash"

setup() {
	cistern_setup
	needs_program ncgen ncdump h5dump jq
	cd "$WORK" || return
}

teardown() {
	cistern_teardown
}

# patch FILE OFFSET BYTES: \xNN at an offset.
patch() {
	printf "$3" | dd of="$1" bs=1 seek="$2" conv=notrunc status=none
}

# make_files DIR: a netCDF classic file of three records, a netCDF-4 file, an HDF5 file without checksums, others.
make_files() {
	echo 'netcdf c { dimensions: t = UNLIMITED ; x = 300 ; variables: int a(x) ; double r(t, x) ; short s(t) ; data: a = 1, 2, 3 ;
		r = 1, 2, 3 ; s = 4, 5, 6 ; }' >c.cdl
	ncgen -k cdf5 -o "$1/classic.nc" c.cdl
	ncgen -k nc4 -o "$1/four.nc" c.cdl
	cp "$top_srcdir/tests/fuzz/corpus/hdf5/old" "$1/old.h5"
	echo "just text" >"$1/text"
	: >"$1/empty"
}

state_of() {
	jq -r --arg path "$1" '.files[] | select(.path == $path) | .state' "$STORE/manifest.json"
}

@test "whole files are verified as what they are, and all others as with verify=read" {
	local file
	needs_fuse
	mount_cistern -o drain=unmount,verify=format
	make_files "$MNT"
	umount_wait
	for file in classic.nc four.nc old.h5 text empty; do
		is "$file $(state_of $file)" "$file verified"
	done
	# The one with an external file, which cannot be looked at.
	jq -r '.files[] | select(.path == "old.h5") | .warning' "$STORE/manifest.json" | grep -q 'external: .*elsewhere.bin'
	is "$(jq '[.files[] | select(.warning != null)] | length' "$STORE/manifest.json")" 1
	ncdump -v s "$BACKING/classic.nc" | grep -q '4, 5, 6'
	ncdump -v s "$BACKING/four.nc" | grep -q '4, 5, 6'
}

@test "status says how much of what was drained has been read back, holes of new files with it" {
	needs_fuse
	mount_cistern -o drain=unmount,verify=read,data=log
	head -c 3000000 /dev/urandom >"$MNT/whole"
	printf end | dd of="$MNT/sparse" bs=1 seek=5000000 conv=notrunc status=none
	flush
	is "$(status_of planned_bytes) $(status_of done_bytes)" "3000003 3000003"
	is "$(status_of verified_bytes)" $((3000000 + 5000003))
	is "$(status_of verify_bytes)" $((3000000 + 5000003))
}

@test "holes are not read back, and small files do not wait behind large ones" {
	needs_fuse
	mount_cistern -o drain=unmount,verify=read
	truncate -s 10T "$MNT/a"
	printf end | dd of="$MNT/a" bs=1 seek=5T conv=notrunc status=none
	echo small >"$MNT/b"
	SECONDS=0
	umount_wait
	[ "$SECONDS" -lt 60 ]
	is "$(state_of a) $(state_of b)" "verified verified"
	is "$(stat -c %s "$BACKING/a")" $((10 << 40))
	is "$(dd if="$BACKING/a" bs=1 skip=5T count=3 status=none)" end
	# Its log is the order in which they were carried.
	is "$(jq -r 'select(.path == "a" or .path == "b") | .path' "$STORE/manifest.jsonl" | uniq | tr '\n' ' ')" "a b "
	mount_cistern -o drain=unmount,verify=read
	head -c 70000000 /dev/urandom >"$MNT/a"
	echo again >"$MNT/b"
	umount_wait
	is "$(jq -r 'select(.path == "a" or .path == "b") | .path' "$STORE/manifest.jsonl" | uniq | tail -n 2 | tr '\n' ' ')" "b a "
}

@test "files that are not what they begin like stay in the log, with the place; another setting drains them as they are" {
	needs_fuse
	mkdir made
	make_files made
	mount_cistern -o drain=unmount,verify=format
	cp made/* "$MNT"
	patch "$MNT/classic.nc" 15 '\x07'
	patch "$MNT/old.h5" "$(grep -obUa TREE made/old.h5 | sed -n '2s/:.*//p')" 'LEAF'
	truncate -s -3000 "$MNT/four.nc"
	exits 3 "$CISTERN" flush --wait --mount "$MNT"
	says "classic.nc"
	says "begins like netCDF classic"
	says "old.h5"
	says "begins like HDF5"
	says "at offset $(grep -obUa LEAF "$MNT/old.h5" | sed 's/:.*//')"
	says "four.nc"
	says "cistern recover on the store with --verify read"
	for file in classic.nc old.h5 four.nc; do
		is "$file $(state_of $file)" "$file failed"
		[ ! -e "$BACKING/$file" ]
	done
	is "$(state_of text)" verified
	is "$(status_of dirty_files)" 3
	exits 3 "$CISTERN" umount --wait "$MNT"
	"$CISTERN" recover "$STORE" --to "$BACKING" --verify read
	cmp <(tail -c 3000 "$BACKING/old.h5") <(tail -c 3000 made/old.h5)
	is "$(stat -c %s "$BACKING/four.nc")" $(($(stat -c %s made/four.nc) - 3000))
}

@test "an existing file that becomes another one is noticed, too, and drained when it is mended" {
	needs_fuse
	make_files "$BACKING"
	mount_cistern -o drain=unmount,verify=format
	patch "$MNT/classic.nc" 15 '\x07'
	exits 3 "$CISTERN" flush --wait --mount "$MNT"
	says "classic.nc"
	says "offset"
	patch "$MNT/classic.nc" 15 '\x0a'
	umount_wait
	is "$(state_of classic.nc)" verified
	ncdump "$BACKING/classic.nc" >/dev/null
}

# with_misreads COMMAND...: the destination gives back other bytes from the second mebibyte on (tests/lib/misread.c).
with_misreads() {
	local shim=$top_builddir/tests/lib/misread.so runtime
	[ -e "$shim" ] || skip "tests/lib/misread.so is not built"
	runtime=$(ldd "$CISTERN_LIBEXEC/cistern-agent" | awk '/lib(a|ub)san/ { printf "%s ", $3 }')
	MISREAD_DIR=$BACKING/bad MISREAD_FROM=1048576 LD_PRELOAD="$runtime$shim" "$@"
}

@test "where a destination gives back other bytes, the variables that have them are named" {
	needs_fuse
	mkdir "$BACKING/bad"
	with_misreads mount_cistern -o drain=unmount,verify=format
	echo 'netcdf v { dimensions: x = 200000 ; variables: int first(x) ; double second(x) ; int third(x) ; data: first = 1 ; }' |
		ncgen -k 2 -o "$MNT/bad/v.nc" -
	: >"$BACKING/bad/misread.on"
	exits 3 "$CISTERN" flush --wait --mount "$MNT"
	says "bad/v.nc"
	says "read back"
	says "second from offset 1048576 on, third"
	refute says "first"
	rm "$BACKING/bad/misread.on"
	umount_wait
	is "$(state_of bad/v.nc)" verified
}

@test "of an HDF5 file, too, the datasets whose chunks come back with other bytes are named" {
	needs_fuse
	mkdir "$BACKING/bad"
	with_misreads mount_cistern -o drain=unmount,verify=format
	echo 'netcdf v { dimensions: x = 100000 ; y = 100000 ; variables: int first(x) ; double second(y) ; second:_ChunkSizes = 10000 ;
		int third(x) ; third:_Storage = "contiguous" ; data: first = 1 ; second = 2 ; third = 3 ; }' | ncgen -k nc4 -o v.nc -
	cp v.nc "$MNT/bad/v.nc"
	: >"$BACKING/bad/misread.on"
	exits 3 "$CISTERN" flush --wait --mount "$MNT"
	says "bad/v.nc"
	says "second from offset 1048576 on"
	refute says "first"
	refute says "third"
	rm "$BACKING/bad/misread.on"
	umount_wait
	is "$(state_of bad/v.nc)" verified
	cmp v.nc "$BACKING/bad/v.nc"
}

@test "a count of records that is behind is said at the drain, and mended on request, also through a mount" {
	needs_fuse
	mount_cistern -o drain=unmount,verify=format
	make_files "$MNT"
	patch "$MNT/classic.nc" 4 '\0\0\0\0\0\0\0\1'
	umount_wait
	is "$(state_of classic.nc)" verified
	jq -r '.files[] | select(.path == "classic.nc") | .warning' "$STORE/manifest.json" | grep -q 'counts 1 records and the file has 3'
	ncdump -h "$BACKING/classic.nc" | grep -q '1 currently'
	exits 4 "$CISTERN" fsck "$BACKING/classic.nc"
	says 'counts 1 records and the file has 3'
	cp "$BACKING/classic.nc" here.nc
	"$CISTERN" fsck --fix-numrecs here.nc
	ncdump -h here.nc | grep -q '3 currently'
	ncdump -v s here.nc | grep -q '4, 5, 6'
	"$CISTERN" fsck here.nc
	"$CISTERN" fsck --fix-numrecs --json here.nc | jq -e '.verdict == "clean"'
	rm -rf "$STORE"
	mount_cistern -o verify=format
	"$CISTERN" fsck --fix-numrecs "$MNT/classic.nc"
	umount_wait
	cmp here.nc "$BACKING/classic.nc"
}

@test "cistern fsck FILE tells whole files from others" {
	mkdir made
	make_files made
	for file in made/classic.nc made/four.nc; do
		exits 0 "$CISTERN" fsck "$file"
		says "the file is sound"
	done
	exits 0 "$CISTERN" fsck made/old.h5
	says "note: HDF5: not all of it could be checked: external"
	says "ok: nothing wrong was found in the file"
	head -c 10 made/four.nc >made/short.h5
	exits 4 "$CISTERN" fsck made/short.h5
	says "DAMAGE: HDF5: at offset 0: the superblock is cut short"
	printf '\211HDF\r\n\032\n\011' >made/later.h5
	exits 0 "$CISTERN" fsck made/later.h5
	says "note: HDF5: at offset 0: a superblock of version 9"
	exits 1 "$CISTERN" fsck made/text
	says "neither a store nor a file of a format"
	exits 2 "$CISTERN" fsck --fix-numrecs .
	exits 2 "$CISTERN" fsck --repair made/classic.nc
	# Cut off: the last record is not there, then not even the header.
	truncate -s -2500 made/classic.nc
	exits 4 "$CISTERN" fsck made/classic.nc
	says "the header counts 3 records, and the file ends"
	truncate -s 60 made/classic.nc
	exits 4 "$CISTERN" fsck made/classic.nc
	says "its header cannot be read"
	truncate -s -2000 made/four.nc
	exits 4 "$CISTERN" fsck made/four.nc
	refute ncdump -h made/four.nc
	# A byte of a checksummed header.
	patch made/four.nc "$(grep -obUa OHDR made/four.nc | sed -n '2s/:.*//p')" 'OHDX'
	exits 4 "$CISTERN" fsck --json made/four.nc
	jq -e '.verdict == "damaged" and .findings[0].kind == "damage"' <<<"$output"
}

@test "a file that a program still writes is said to be not yet there" {
	exits 4 "$CISTERN" fsck "$top_srcdir/tests/fuzz/corpus/hdf5/unflushed"
	says "raw, not yet mapped"
}

@test "a file that two nodes wrote is looked at when all of it is there" {
	local file k
	load "$top_srcdir/tests/lib/job.bash"
	needs_fuse
	needs_mpi
	mkdir made
	make_files made
	cp made/classic.nc made/bad.nc
	patch made/bad.nc 15 '\x07'
	start_job 2 verify=format
	for file in classic.nc bad.nc four.nc; do
		for k in 0 1; do
			dd if=made/$file of="$WORK/m$k/$file" bs=1000 skip=$((k * 3)) seek=$((k * 3)) count=$((k ? 100 : 3)) conv=notrunc status=none
		done
	done
	exits 3 "$CISTERN" flush --wait --mount "$WORK/m1"
	for file in classic.nc four.nc; do cmp made/$file "$WORK/b/$file"; done
	[ ! -e "$WORK/b/bad.nc" ]
	is "$(jq -r '.files[] | select(.path == "classic.nc") | .state' "$WORK/s0/manifest.json")" verified
	is "$(jq -r '.files[] | select(.path == "bad.nc") | .state' "$WORK/s0/manifest.json")" failed
	jq -e '.files[] | select(.path == "bad.nc") | tostring | test("begins like netCDF classic: .*offset")' "$WORK/s0/manifest.json"
	# Mended on another node, the drain goes on.
	patch "$WORK/m1/bad.nc" 15 '\x0a'
	"$CISTERN" flush --wait --mount "$WORK/m0"
	cmp made/classic.nc "$WORK/b/bad.nc"
	stop_job
}
