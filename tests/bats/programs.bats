#!/usr/bin/env bats
# SPDX-License-Identifier: GPL-3.0-or-later
#
# Programs that nobody here wrote make, rewrite and extend netCDF and HDF5 files through the mount; what arrives is, byte for byte,
# what the same commands make in a plain directory.

load "${top_srcdir:?}/tests/lib/mount.bash"

setup() {
	cistern_setup
	needs_fuse
	needs_program ncgen nccopy ncks h5repack h5copy python3 jq
}

# both COMMAND...: in the mount and in the plain directory, with the same names; they must say the same.
both() {
	(cd "$MNT" && "$@") >"$WORK/said-mount" 2>&1 || { cat "$WORK/said-mount"; return 1; }
	(cd "$DIRECT" && "$@") >"$WORK/said-direct" 2>&1 || { cat "$WORK/said-direct"; return 1; }
	diff "$WORK/said-direct" "$WORK/said-mount"
}

# both_in_one_second COMMAND...: for programs that put the time of day, in seconds, into what they write.
both_in_one_second() {
	local second
	until
		second=$(date +%s)
		both "$@" || return 1
		[ "$(date +%s)" = "$second" ]
	do :; done
}

# cdl RECORDS FIRST: fixed and record variables, one of bytes; values from FIRST on.
cdl() {
	python3 - "$1" "$2" <<'END'
import sys
records, first = int(sys.argv[1]), int(sys.argv[2])
print("netcdf f { dimensions: time = UNLIMITED ; lat = 30 ; lon = 50 ;")
print("variables: float T(time, lat, lon) ; T:units = \"K\" ; double time(time) ; short q(time, lat) ; q:_FillValue = -9s ;")
print("byte mask(lat, lon) ; float lat(lat) ; int never(lon) ; :title = \"five\" ; data:")
print("T = %s ;" % ", ".join("%d.5" % (first + i) for i in range(records * 1500)))
print("time = %s ; q = %s ;" % (", ".join(str(first + i) for i in range(records)), ", ".join(str(i % 999) for i in range(records * 30))))
print("mask = %s ; lat = %s ; }" % (", ".join(str(i % 100) for i in range(1500)), ", ".join(str(i) for i in range(30))))
END
}

make_files() {
	cdl 6 0 >"$WORK/one.cdl"
	cdl 3 9000 >"$WORK/two.cdl"
	for kind in classic 64-bit-offset cdf5; do
		both ncgen -k "$kind" -o "one-$kind.nc" "$WORK/one.cdl"
		both ncgen -k "$kind" -o "two-$kind.nc" "$WORK/two.cdl"
		both ncgen -x -k "$kind" -o "nofill-$kind.nc" "$WORK/one.cdl"
	done
}

arrives() {
	umount_wait
	no_leftovers "$BACKING"
	same_trees "$BACKING" "$DIRECT"
}

# settings: each of these tests runs with data in the log, and as it comes.
through() {
	mount_cistern -o "$1"
	make_files
}

@test "ncgen and nccopy: all kinds, fill and no fill, chunked, compressed, header with room, fixed" {
	through data=log
	for kind in classic 64-bit-offset cdf5; do
		both nccopy -k cdf5 "one-$kind.nc" "copy-$kind.nc"
		both nccopy -h 5000 "one-$kind.nc" "room-$kind.nc"
		both nccopy -u "one-$kind.nc" "fixed-$kind.nc"
		both nccopy -k nc4 -d 1 -s -c time/2,lat/10,lon/25 "one-$kind.nc" "four-$kind.nc"
	done
	flush
	both ncgen -k classic -o one-cdf5.nc "$WORK/two.cdl" # over what has been drained
	arrives
}

# NCO would put the time of day into the attribute history, but for -h; it writes beside the file and renames, but for -A, --no_tmp_fl and in place.
nco_commands() {
	local kind
	for kind in classic 64-bit-offset cdf5; do
		both ncks -h -O -v T,q -d lat,3,20 "one-$kind.nc" "cut-$kind.nc"
		both ncks -h -A -v never,mask "one-$kind.nc" "cut2-$kind.nc"
		both ncks -h -A --no_tmp_fl -v T "two-$kind.nc" "cut2-$kind.nc" # defines anew, data move
		both ncrcat -h -O "one-$kind.nc" "two-$kind.nc" "cat-$kind.nc"
		both ncrcat -h --rec_apn --no_tmp_fl "two-$kind.nc" "cat-$kind.nc" # records more, where it is
		both ncra -h -O "one-$kind.nc" "two-$kind.nc" "mean-$kind.nc"
		both ncrename -h -v T,a_much_longer_name_than_before -d lat,latitude "cat-$kind.nc"
		both ncatted -h -a "units,q,o,c,$(printf 'kg%.0s' {1..200})" "cat-$kind.nc"
		both ncks -h -O -7 -L 1 "cat-$kind.nc" "seven-$kind.nc"
	done
}

@test "NCO: subsets, appended variables and records, means, renaming, attributes that make the header grow" {
	through data=log
	nco_commands
	arrives
}

@test "NCO: the same on files that have been drained before each step, as data come" {
	through data=auto
	flush
	both ncks -h -A --no_tmp_fl -v T two-cdf5.nc nofill-cdf5.nc
	flush
	both ncrcat -h --rec_apn --no_tmp_fl two-classic.nc one-classic.nc
	flush
	both ncrename -h -v T,a_much_longer_name_than_before one-classic.nc
	both ncatted -h -a "units,q,o,c,$(printf 'kg%.0s' {1..200})" one-64-bit-offset.nc
	arrives
}

@test "h5repack with each filter, for all datasets and for one, and h5copy between files" {
	mount_cistern -o data=log
	cdl 6 0 >"$WORK/one.cdl"
	both ncgen -k nc4 -o four.nc "$WORK/one.cdl"
	both h5repack -f FLET -l CHUNK=2x10x25 four.nc flet.h5
	both h5repack -f SZIP=8,NN -l CHUNK=2x10x25 four.nc szip.h5
	both h5repack -f NBIT -l CHUNK=2x10x25 four.nc nbit.h5
	both h5repack -f SOFF=2,DS -l T:CHUNK=2x10x25 four.nc soff.h5
	both h5repack -f T:SHUF -f T:GZIP=9 -f T:FLET -f q:GZIP=1 -l q:CHUNK=3x30 four.nc each.h5
	both h5repack -f NONE -l lat:COMPA each.h5 none.h5
	both h5repack -j 0 -k 2 -m 64 -t 1 -a 4096 each.h5 aligned.h5
	flush
	for object in T q time lat; do both h5copy -i each.h5 -o copied.h5 -s "/$object" -d "/$object"; done
	both h5copy -p -f ref -i szip.h5 -o copied.h5 -s /T -d /a/new/group/T
	both h5copy -i copied.h5 -o copied.h5 -s /T -d /again
	both h5repack -f GZIP=3 copied.h5 packed.h5
	arrives
}

@test "h5repack: compressed, chunked, contiguous, with user blocks and pages" {
	mount_cistern -o data=log
	cdl 6 0 >"$WORK/one.cdl"
	both ncgen -k nc4 -o four.nc "$WORK/one.cdl"
	both h5repack -f GZIP=1 -l CHUNK=2x10x25 four.nc gzip.h5
	both h5repack -l CONTI four.nc plain.h5
	both h5repack -f SHUF -f GZIP=4 gzip.h5 again.h5
	both h5repack -S PAGE -G 4096 four.nc paged.h5
	both_in_one_second h5repack -L four.nc latest.h5 # its root group has times
	both nccopy -k cdf5 gzip.h5 back.nc
	arrives
}

# cdo_ ARG...: silent, over what is there, without the time of day in the attribute history.
cdo_() {
	both cdo -s -O --no_history "$@"
}

# Fixed names where CDO makes one file of another; "cat" appends to a file that is there.
cdo_commands() {
	local kind=$1
	cdo_ -f "$kind" settaxis,2001-01-01,12:00:00,1day -duplicate,6 -random,r36x18 "in-$kind.nc"
	cdo_ timmean "in-$kind.nc" "mean-$kind.nc"
	cdo_ -b F64 addc,3 -selindexbox,3,20,2,9 "in-$kind.nc" "box-$kind.nc"
	cdo_ -f "$kind" remapbil,r18x9 "in-$kind.nc" "small-$kind.nc"
	cdo_ merge "in-$kind.nc" -chname,random,a_much_longer_name "in-$kind.nc" "both-$kind.nc"
	cdo_ splitmon "in-$kind.nc" "month-$kind-"
	both cp "mean-$kind.nc" "cat-$kind.nc"
	both cdo -s --no_history cat "in-$kind.nc" "cat-$kind.nc"
}

@test "CDO: means, boxes, another grid, merged, split and appended, classic and netCDF-4" {
	local kind
	needs_program cdo
	mount_cistern -o data=log
	for kind in nc1 nc5 nc4; do cdo_commands $kind; done
	flush
	both cdo -s --no_history cat in-nc1.nc cat-nc1.nc # to what has been drained
	both cdo -s --no_history cat in-nc4.nc cat-nc4.nc
	cdo_ -f nc4 -z zip_1 copy in-nc1.nc zip.nc
	cdo_ -f nc4c copy in-nc5.nc classic-model.nc
	cdo_ -f nc2 copy zip.nc back.nc
	arrives
}

# What PnetCDF says of its header after each time that it has defined something: dimensions, variables, bytes of a record, of the
# header, and where data begin.
grow_program() {
	cat <<'END'
#include <pnetcdf.h>
#include <stdio.h>
#include <stdlib.h>

static int f;

static void end(int bad)
{
	MPI_Offset record, size, extent;
	int dims, vars;

	bad |= ncmpi_enddef(f) | ncmpi_inq(f, &dims, &vars, NULL, NULL) | ncmpi_inq_recsize(f, &record);
	bad |= ncmpi_inq_header_size(f, &size) | ncmpi_inq_header_extent(f, &extent);
	printf("%d %d %lld %lld %lld\n", dims, vars, record, size, extent);
	if (bad)
		exit(1);
}

int main(int argc, char **argv)
{
	MPI_Offset at[2] = { 0, 0 }, len[2] = { 4, 1000 };
	static char text[20000];
	static int x[4000];
	int d[2], v[3], n = 0;

	MPI_Init(&argc, &argv);
	for (int i = 0; i < 4000; i++)
		x[i] = i;
	n |= ncmpi_create(MPI_COMM_WORLD, argv[1], NC_64BIT_DATA, MPI_INFO_NULL, &f);
	n |= ncmpi_def_dim(f, "t", NC_UNLIMITED, &d[0]) | ncmpi_def_dim(f, "x", 1000, &d[1]);
	n |= ncmpi_def_var(f, "fixed", NC_INT, 1, &d[1], &v[0]);
	end(n | ncmpi_def_var(f, "record", NC_INT, 2, d, &v[1]));
	n = ncmpi_put_vara_int_all(f, v[0], at, &len[1], x) | ncmpi_put_vara_int_all(f, v[1], at, len, x);
	/* More text than there was room for: all data move. */
	end(n | ncmpi_redef(f) | ncmpi_put_att_text(f, NC_GLOBAL, "history", sizeof(text) - 1, memset(text, 'h', sizeof(text) - 1)));
	/* A variable more in each record: they move apart. */
	end(ncmpi_redef(f) | ncmpi_def_var(f, "late", NC_SHORT, 2, d, &v[2]));
	at[0] = 2;
	n = ncmpi_put_vara_int_all(f, v[2], at, len, x);
	n |= ncmpi_redef(f) | ncmpi_rename_var(f, v[0], "a_name_that_is_much_longer_than_it_was") | ncmpi_def_dim(f, "y", 7, &d[0]);
	end(n);
	n = ncmpi_close(f);
	MPI_Finalize();
	return n != 0;
}
END
}

@test "PnetCDF defines anew four times, data move: the same bytes, and inspect tells of these headers" {
	[ -x "$(command -v mpicc.openmpi)" ] && [ -e /usr/include/pnetcdf.h ] || skip "PnetCDF for Open MPI is not installed"
	{ echo '#include <string.h>'; grow_program; } >"$WORK/grow.c"
	mpicc.openmpi -o "$WORK/grow" "$WORK/grow.c" -lpnetcdf
	export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
	mount_cistern -o drain=unmount,data=log,checkpoint_interval=1h
	both "$WORK/grow" f.nc
	is "$(wc -l <"$WORK/said-mount")" 4
	cmp "$MNT/f.nc" "$DIRECT/f.nc"
	"$CISTERN" inspect --json "$MNT/f.nc" >"$WORK/told.json"
	jq -r '.file.header_generations[] |
		"\(.dimensions) \(.variables) \(.record_bytes) \(.header_bytes) \(.first_begin)"' "$WORK/told.json" >"$WORK/seen"
	# After a second the space of what has been written over is given back.
	[ "$(jq .file.header_writes_given_back "$WORK/told.json")" -eq 0 ] || grep -Fx -f "$WORK/seen" "$WORK/said-direct" >"$WORK/left"
	diff "$([ -e "$WORK/left" ] && echo "$WORK/left" || echo "$WORK/said-direct")" "$WORK/seen"
	is "$(tail -n 1 "$WORK/seen")" "$(tail -n 1 "$WORK/said-direct")"
	arrives
}
