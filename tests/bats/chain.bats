#!/usr/bin/env bats
# SPDX-License-Identifier: GPL-3.0-or-later
#
# Random netCDF files, as netCDF-C's library writes and rewrites them, from one end to the other: through mounts into each
# layout, and back to what the same program writes to a plain directory. CISTERN_CHAIN_FILES and CISTERN_CHAIN_FIRST ask for other
# numbers of files and other files.

load "${top_srcdir:?}/tests/lib/mount.bash"
load "$top_srcdir/tests/lib/job.bash"
load "$top_srcdir/tests/lib/netcdf4.bash"

setup() {
	cistern_setup
	needs_fuse
	needs_program python3 ncdump nccopy jq
	first=${CISTERN_CHAIN_FIRST:-1}
}

# writes NUM DIR...: and keeps what the program saw.
writes() {
	python3 "$top_srcdir/tests/lib/random_writes.py" "$first" "${CISTERN_CHAIN_FILES:-$1}" "${@:2}" 3>&-
}

# direct NUM: what must come of it.
direct() {
	writes "$1" "$DIRECT" >"$WORK/said-direct"
}

# through NUM DIR...: the program sees the same as in the plain directory.
through() {
	writes "$@" >"$WORK/said" || return
	cmp "$WORK/said" "$WORK/said-direct"
}

# each COMMAND...: COMMAND FILE NAME for each of the files.
each() {
	local file
	for file in "$DIRECT"/*.nc; do
		"$@" "$file" "${file##*/}" || { echo "file $file"; return 1; }
	done
}

told() {
	jq -r "[.files[] | select(.layout == \"$1\")] | length" "${2:-$STORE}/manifest.json"
}

# The subfiles, or the file itself where it was not laid out; by way of the other form of blobs, too.
comes_back() {
	local got=$BACKING/$2
	rm -rf "$WORK/c"
	mkdir "$WORK/c"
	if [ ! -e "$got" ]; then
		"$CISTERN" convert "$got" --to "$WORK/c/back" >/dev/null || return
		got=$WORK/c/back
	fi
	cmp "$got" "$1" || return
	"$CISTERN" convert "$got" --layout blob-process --processes 3 --num-subfiles 2 --to "$WORK/c/p" >/dev/null &&
		"$CISTERN" convert "$WORK/c/p" --to "$WORK/c/again" >/dev/null && cmp "$WORK/c/again" "$1"
}

same_in() {
	cmp "$1/$3" "$2"
}

# is_converted DIR CLASSIC NAME
is_converted() {
	is_new "$1/$3" && same_file "$2" "$1/$3"
}

@test "random files: canonical, flushed in between" {
	direct 16
	mount_cistern -o verify=format
	writes 8 "$MNT" >"$WORK/before"
	flush
	rm "$MNT"/*.nc
	through 16 "$MNT"
	umount_wait
	no_leftovers "$BACKING"
	each same_in "$BACKING"
	for file in "$DIRECT"/*.nc; do "$CISTERN" fsck "$file" >/dev/null || { "$CISTERN" fsck "$file"; return 1; }; done
}

# blobs_and_back LAYOUT NUM
blobs_and_back() {
	direct "$2"
	mount_cistern -o "layout=$1,num_subfiles=2"
	through "$2" "$MNT"
	umount_wait
	no_leftovers "$BACKING"
	[ "$(told "$1")" -gt 0 ] || { echo "none was laid out"; return 1; }
	each comes_back
}

@test "random files: as variable-centric blobs, and back" {
	blobs_and_back blob-variable 8
}

@test "random files: as process-centric blobs, and back" {
	blobs_and_back blob-process 8
}

@test "random files: as netCDF-4, and back" {
	direct 10
	mount_cistern -o layout=netcdf4
	through 10 "$MNT"
	umount_wait
	no_leftovers "$BACKING"
	each is_converted "$BACKING"
}

@test "random files: opened on two nodes in turn, canonical and as netCDF-4" {
	direct 6
	needs_mpi
	start_job 2 'layout=n/*=netcdf4'
	mkdir "$WORK/m0/c" "$WORK/m0/n"
	through 6 "$WORK/m0/c" "$WORK/m1/c"
	through 6 "$WORK/m0/n" "$WORK/m1/n"
	stop_job
	no_leftovers "$WORK/b"
	each same_in "$WORK/b/c"
	each is_converted "$WORK/b/n"
}
