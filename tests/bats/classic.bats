#!/usr/bin/env bats
# SPDX-License-Identifier: GPL-3.0-or-later
#
# The codec of netCDF classic headers beside other programs: what they write decodes to what ncdump says of it and encodes to the
# same bytes; what ncdump refuses is refused.

load "${top_srcdir:?}/tests/lib/mount.bash"

setup() {
	cistern_setup
	needs_program ncgen ncdump nccopy
	dump=$top_builddir/tests/unit/dump-classic
	cd "$WORK" || return
}

# What ncdump -h says, without values of attributes, which dump-classic does not print.
expected() {
	ncdump -h "$1" | sed -e '1d; $d; /^$/d; /^\/\/ global/d' -e 's/^\(\t\t[^ ]*\) = .*/\1/'
}

actual() {
	"$dump" "$1" | sed -e '/^\/\//d' -e 's/^\(\t\t[^ ]*\) \/\/ .*/\1/'
}

# agree FILE...: with ncdump, and with the bytes.
agree() {
	local file
	for file in "$@"; do
		diff -u <(expected "$file") <(actual "$file") || return
		"$dump" "$file" | grep -qx '// encode: same' || { echo "$file: encodes to other bytes"; return 1; }
	done
}

# ends_well FILE: where the header says. The libraries leave the last padding out, or not.
ends_well() {
	local end size
	end=$("$dump" "$1" | sed -n 's/^\/\/ header .* end //p')
	size=$(stat -c %s "$1")
	[ "$size" -le "$end" ] && [ "$end" -le $((size + 3)) ] || { echo "$1: $size bytes, should be $end"; return 1; }
}

# cdl TYPE...: a variable without dimensions, a fixed one and a record one of each type; names of many lengths.
cdl() {
	local type
	printf 'netcdf f {\ndimensions: t = UNLIMITED ; x = 3 ; a_longer_name = 7 ;\nvariables:\n'
	for type; do
		printf '%s s_%s ; %s %s(x, a_longer_name) ; %s r%s(t, x) ; r%s:units = "m/s" ;\n' $type $type $type v$type $type $type $type
		printf 'v%s:w = 1, 2, 3 ; v%s:z = 1., 2. ;\n' $type $type
	done
	printf ':title = "five" ; :t1 = "" ; :n = 5s ;\ndata: '
	for type; do printf 's_%s = 7 ; r%s = 1, 2, 3, 4, 5, 6 ; ' $type $type; done
	printf '}\n'
}

@test "files of ncgen and nccopy decode to what ncdump says, and encode to the same bytes" {
	local old='byte char short int float double' k type
	cdl byte short int float double >old.cdl
	cdl byte short int float double ubyte ushort uint int64 uint64 >new.cdl
	for k in 1 2; do
		ncgen -k $k -o old$k.nc old.cdl
		nccopy -k cdf5 old$k.nc old${k}to5.nc
	done
	ncgen -k 5 -o new5.nc new.cdl
	nccopy -h 4096 new5.nc room5.nc
	nccopy -u -k 2 old1.nc fixed2.nc
	echo 'netcdf e { }' | ncgen -k 1 -o empty.nc -
	echo 'netcdf e { dimensions: t = UNLIMITED ; variables: char c(t) ; data: c = "abc" ; }' | ncgen -k 2 -o one.nc -
	agree old1.nc old2.nc old1to5.nc old2to5.nc new5.nc room5.nc fixed2.nc empty.nc one.nc
	for k in old1 old2 old1to5 new5 room5 fixed2 one; do ends_well $k.nc; done
	# Exactly one record variable, of each type: not padded.
	for type in byte short int float double ubyte ushort uint int64 uint64; do
		echo "netcdf o { dimensions: t = UNLIMITED ; x = 3 ; variables: $type v(t, x) ; data: v = 1,2,3,4,5,6,7,8,9 ; }" |
			ncgen -k 5 -o "o-$type.nc" -
		agree "o-$type.nc"
		ends_well "o-$type.nc"
	done
}

@test "variables of more than 4 GiB are where netCDF-C puts them" {
	local k
	echo 'netcdf l { dimensions: t = UNLIMITED ; y = 70000 ; x = 70000 ; variables: float a(y, x) ; int i ; short r(t) ;
		data: i = 5 ; r = 1, 2 ; }' >large.cdl
	for k in 5; do
		ncgen -x -k $k -o large$k.nc large.cdl
		agree large$k.nc
		ends_well large$k.nc
		# The integer lies right behind 19.6 GB.
		is "$("$dump" large$k.nc | sed -n 's/^\/\/ i \([0-9]*\) .*/\1/p')" \
			$(($("$dump" large$k.nc | sed -n 's/^\/\/ a \([0-9]*\) .*/\1/p') + 19600000000))
		is "$(od -An -tu1 -j "$("$dump" large$k.nc | sed -n 's/^\/\/ i \([0-9]*\) .*/\1/p')" -N 4 large$k.nc | tr -d ' ')" 0005
	done
}

@test "files that PnetCDF writes decode and encode to the same bytes" {
	[ -x "$(command -v mpicc.openmpi)" ] && [ -e /usr/include/pnetcdf.h ] || skip "PnetCDF for Open MPI is not installed"
	cat >p.c <<-'END'
		#include <pnetcdf.h>
		int main(int argc, char **argv)
		{
			int f, d[2], v[3], n = 0;
			MPI_Offset at[2] = { 2, 0 }, len[2] = { 1, 5 };
			long long x[5] = { 1, 2, 3, 4, 5 };
			MPI_Init(&argc, &argv);
			n |= ncmpi_create(MPI_COMM_WORLD, argv[1], NC_64BIT_DATA, MPI_INFO_NULL, &f);
			n |= ncmpi_def_dim(f, "t", NC_UNLIMITED, &d[0]) | ncmpi_def_dim(f, "x", 5, &d[1]);
			n |= ncmpi_def_var(f, "rec", NC_INT64, 2, d, &v[0]) | ncmpi_def_var(f, "fix", NC_SHORT, 1, &d[1], &v[1]);
			n |= ncmpi_put_att_text(f, v[0], "units", 1, "m") | ncmpi_enddef(f);
			n |= ncmpi_put_vara_longlong_all(f, v[0], at, len, x);
			n |= ncmpi_redef(f) | ncmpi_def_var(f, "late", NC_UBYTE, 2, d, &v[2]) | ncmpi_enddef(f) | ncmpi_close(f);
			MPI_Finalize();
			return n != 0;
		}
	END
	mpicc.openmpi -o p p.c -lpnetcdf
	OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 ./p p.nc
	agree p.nc
	"$dump" p.nc | grep -q '3 currently'
	# The record that was written is where the header says. What was never written, PnetCDF leaves out at the end.
	begin=$("$dump" p.nc | sed -n 's/^\/\/ rec \([0-9]*\) .*/\1/p')
	is "$("$dump" p.nc | sed -n 's/^\/\/ header .* record \([0-9]*\) .*/\1/p')" 48
	is "$(od -An -tx1 -j $((begin + 2 * 48)) -N 16 p.nc | tr -d ' ')" 00000000000000010000000000000002
}

@test "damaged headers are refused as ncdump refuses them, and some more" {
	local file n=0
	python3 "$top_srcdir/tests/golden/make_classic_corpus.py" made
	for file in made/* "$top_srcdir"/tests/fuzz/corpus/classic/*; do
		n=$((n + 1))
		case ${file##*/} in
		good-*)
			"$dump" "$file" >/dev/null
			ncdump -h "$file" >/dev/null
			;;
		bad-*)
			refute "$dump" "$file" 2>/dev/null
			refute ncdump -h "$file" 2>/dev/null
			;;
		strict-*) refute "$dump" "$file" 2>/dev/null ;;
		*) refute echo "$file is of no kind" ;;
		esac
	done
	[ "$n" -ge 40 ]
}

@test "whole and damaged files: of one mind with PnetCDF's ncvalidator, but for what docs/formats.md lists" {
	local k reason
	needs_program ncvalidator
	cdl byte short int float double >old.cdl
	cdl byte short int float double ubyte ushort uint int64 uint64 >new.cdl
	mkdir good
	for k in 1 2; do ncgen -k $k -o good/old$k.nc old.cdl; done
	ncgen -k 5 -o good/new5.nc new.cdl
	nccopy -h 4096 good/new5.nc good/room5.nc
	nccopy -u -k 2 good/old1.nc good/fixed2.nc
	for k in 1 2 3 4; do python3 "$top_srcdir/tests/lib/random_classic.py" $k good/random$k.nc; done
	[ ! -x "$(command -v cdo)" ] || cdo -s -f nc5 random,r9x5 good/cdo.nc
	[ ! -x "$(command -v ncks)" ] || ncks -h -d x,0,1 good/old1.nc good/ncks.nc
	cp "$top_srcdir"/tests/fuzz/corpus/classic/good-cdf{1,2,5} good
	run python3 "$top_srcdir/tests/golden/classic_verdicts.py" "$dump" 3 8 good/*
	echo "$output"
	[ "$status" -eq 0 ]
	refute says UNEXPLAINED
	[ "$(tail -n 1 <<<"$output" | grep -o '[0-9]* copies')" != "0 copies" ]
	for reason in $(sed -n 's/^\([a-z-]*\) [0-9]*$/\1/p' <<<"$output" | grep -v no-verdict); do
		grep -q "^| \`$reason\` |" "$top_srcdir/docs/formats.md"
	done
}
