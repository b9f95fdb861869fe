#!/usr/bin/env bats
# SPDX-License-Identifier: GPL-3.0-or-later
#
# The walk of HDF5 files beside HDF5 and netCDF themselves: every dataset, its shape, type, filters and the place of each chunk;
# every netCDF-4 variable and its dimensions.

load "${top_srcdir:?}/tests/lib/mount.bash"

setup() {
	cistern_setup
	ours=$top_builddir/tests/unit/hdf5-facts
	theirs=$top_builddir/tests/mpi/h5-facts
	cd "$WORK" || return
}

teardown() {
	cistern_teardown
}

needs_hdf5() {
	[ -x "$theirs" ] || skip "built without HDF5, so nobody says what is right"
}

# agree FILE...: with HDF5, line by line.
agree() {
	local file
	for file; do
		"$theirs" show "$file" >"$file.said" # slow: HDF5 looks for each chunk from the first one on
		diff -u "$file.said" <("$ours" show "$file") >"$file.diff" || { head -20 "$file.diff"; return 1; }
		[ -s "$file.said" ] || { echo "$file: no datasets"; return 1; }
	done
}

# Variables and dimensions as ncdump shows them: name(dimension=length, ...), a star behind what is unlimited.
netcdf_dims() {
	ncdump -h "$1" | python3 -c '
import re, sys
dims, group, members = {}, [], False
for line in sys.stdin:
    line = line.rstrip()
    if re.match(r"^\s*compound ", line):
        members = True
    if members:
        members = not re.match(r"^\s*\}", line)
        continue
    found = re.match(r"^\s*group: (\S+) \{", line)
    if found:
        group.append(found.group(1))
    elif re.match(r"^\s*\} // group", line):
        group.pop()
    found = re.match(r"^\s*(\w+) = (UNLIMITED|\d+) ;(?: // \((\d+) currently\))?", line)
    path = "/".join(group)
    if found and ":" not in line:
        dims[(path, found.group(1))] = found.group(2) if found.group(3) is None else found.group(3) + "*"
    found = re.match(r"^\s*(\w+) (\w+)(?:\(([^)]*)\))? ;$", line)
    if not found or line.strip().startswith(("}", "types")):
        continue
    shown = []
    for name in filter(None, (found.group(3) or "").split(", ")):
        places = ["/".join(group[:i]) for i in range(len(group), -1, -1)]
        place = next(p for p in places if (p, name) in dims)
        shown.append("%s=%s" % ("/".join(filter(None, (place, name))), dims[(place, name)]))
    print("%s(%s)" % ("/".join(filter(None, (path, found.group(2)))), ", ".join(shown)))
' | sort
}

# agree_netcdf FILE...: with ncdump.
agree_netcdf() {
	local file
	for file; do
		diff -u <(netcdf_dims "$file") <("$ours" dims "$file" | sort) || return
		[ "$(netcdf_dims "$file" | wc -l)" -gt 0 ] || { echo "$file: no variables"; return 1; }
		is "$("$ours" problems "$file")" ""
	done
}

cdl='netcdf a { types: byte enum e { one = 1 } ; compound c { int i ; float f ; } ;
dimensions: time = UNLIMITED ; lat = 4 ; lon = 5 ; n = 3 ;
variables: double time(time) ; float lat(lat) ; float T(time, lat, lon) ; T:_FillValue = -1.f ; int nodim ; short z(lon) ;
  string s(lat) ; e v(n) ; c w(n) ; char n(time, n) ; int many(lat, time) ;
  many:a1 = 1 ; many:a2 = 1 ; many:a3 = 1 ; many:a4 = 1 ; many:a5 = 1 ; many:a6 = 1 ; many:a7 = 1 ; many:a8 = 1 ; many:a9 = 1 ;
  many:a10 = 1 ; many:a11 = 1 ; int64 lon(lon, lat) ;
data: time = 1, 2, 3 ; lat = 1, 2, 3, 4 ; nodim = 7 ; s = "a", "b", "c", "d" ; v = one, one, one ;
group: g { dimensions: lat = 2 ; more = UNLIMITED ; variables: ubyte q(time, lat, more) ; uint64 lat(lat) ; data: lat = 1, 2 ;
  group: h { variables: int p(more, lon) ; } } }'

# agree_tools FILE...: with h5stat, h5ls and h5debug: superblock, counts, bytes, and where each object is.
agree_tools() {
	local file
	for file; do
		diff -u <(python3 "$top_srcdir/tests/golden/hdf5_tools.py" "$file") <("$ours" tools "$file") || { echo "$file"; return 1; }
	done
}

@test "files of every kind that HDF5 writes are walked as HDF5 and its tools say" {
	needs_hdf5
	needs_program h5stat h5ls h5debug
	"$theirs" make .
	agree *.h5
	agree_tools old.h5 latest.h5 shared.h5 block.h5 heaps.h5 elsewhere.h5 width-2-2-0.h5 width-8-4-1.h5
	is "$(for file in *.h5; do "$ours" problems "$file"; done | grep -v '^elsewhere: ')" ""
	is "$("$ours" problems old.h5 | sed 's/ at offset [0-9]*:/ -/')" \
		"elsewhere: external: - its 48 bytes are in 1 other file, the first is elsewhere.bin"
	is "$("$ours" problems elsewhere.h5 | sed 's/ at offset [0-9]*:/ -/' | grep '^elsewhere: mapped:')" \
		"elsewhere: mapped: - its elements are those of 2 mapped selections, the first of /x in a.h5"
}

@test "what a program has flushed while others read (SWMR) is walked as a reader of its sees it" {
	local file
	needs_hdf5
	"$theirs" swmr .
	for file in swmr-?.h5; do
		agree "$file"
		is "$("$ours" problems "$file" | sed 's/, or died.*//')" \
			"not written: : at offset 0: a writer has it open for others to read meanwhile (SWMR)"
	done
	is "$("$ours" problems swmr.h5)" ""
	[ "$("$ours" show swmr-0.h5 | wc -l)" -lt "$("$ours" show swmr-4.h5 | wc -l)" ]
}

@test "the first of several files that a driver writes is not damage, and the others are none of HDF5's" {
	local file
	needs_hdf5
	needs_fuse
	needs_program jq
	mount_cistern -o drain=unmount,verify=format
	"$theirs" several "$MNT"
	umount_wait
	is "$(cd "$BACKING" && echo *-m.h5 *-0.h5)" "new-m.h5 old-m.h5 new-0.h5 old-0.h5"
	for file in "$BACKING"/*-m.h5 "$BACKING"/*-0.h5; do
		exits 0 "$CISTERN" fsck "$file"
		case $file in
		*-0.h5) says "it is one of several files that belong together, written by a file driver (family)" ;;
		*-m.h5) says "it is one of several files that belong together, written by a file driver (multi or split)" ;;
		esac
	done
	is "$(jq -r '.files | map(.state) | unique | join(" ")' "$STORE/manifest.json")" verified
	is "$(jq '[.files[] | select(.warning)] | length' "$STORE/manifest.json")" 4
}

@test "the file of a parallel program is walked as HDF5 said when it was written" {
	diff "$top_srcdir/tests/golden/parallel.facts" <("$ours" show "$top_srcdir/tests/fuzz/corpus/hdf5/parallel")
	is "$("$ours" problems "$top_srcdir/tests/fuzz/corpus/hdf5/parallel")" ""
}

@test "damaged files: a walk ends, says where, and notices what h5ls and h5stat notice" {
	local corpus=$top_srcdir/tests/fuzz/corpus/hdf5 seed=7
	needs_program h5ls h5stat
	is "$(python3 "$top_srcdir/tests/lib/damage_hdf5.py" "$ours" $seed 20 "$corpus"/{old,latest,shared,heaps,parallel} |
		tee /dev/fd/3 | grep -v '^100 copies, ')" ""
}

@test "files damaged in one known place: the walk names what is wrong, and its offset, as h5dump refuses them" {
	is "$(python3 "$top_srcdir/tests/golden/damage_hdf5_small.py" "$ours" "$top_srcdir/tests/golden/hdf5-small" |
		tee /dev/fd/3 | grep -vE '^[0-9]+ copies')" ""
}

@test "files of h5import, h5repack and h5jam are walked as HDF5 says" {
	local file low
	needs_hdf5
	needs_program h5import h5repack h5jam
	seq 1 600 >numbers
	h5import numbers -dims 20,30 -type TEXTIN -size 32 -outfile made.h5
	h5repack -f GZIP=1 -f SHUF -f FLET -l CHUNK=7x4 made.h5 packed.h5
	for low in 0 1 2; do h5repack --low=$low --high=2 -l CHUNK=7x4 made.h5 low$low.h5; done
	h5repack --low=2 --high=2 -c 0 -d 0 -l CHUNK=20x30 made.h5 dense.h5
	echo "a user's own text" >text
	h5jam -i packed.h5 -u text -o jammed.h5
	for low in 0 1 2; do h5jam -i low$low.h5 -u text -o jammed$low.h5; done
	agree made.h5 packed.h5 low0.h5 low1.h5 low2.h5 dense.h5 jammed.h5 jammed0.h5 jammed1.h5 jammed2.h5
	for file in made.h5 dense.h5 jammed*.h5; do
		exits 0 "$CISTERN" fsck "$file"
		says "the file is sound"
	done
}

@test "netCDF-4 files of ncgen and nccopy have the variables and dimensions that ncdump shows" {
	needs_program ncgen nccopy ncdump
	echo "$cdl" >a.cdl
	ncgen -k nc4 -o a.nc a.cdl
	echo 'netcdf c { dimensions: t = UNLIMITED ; x = 3 ; variables: float r(t, x) ; int t(t) ; int f(x) ; data: r = 1,2,3,4,5,6 ;
		t = 1, 2 ; }' | ncgen -k 1 -o c3.nc -
	nccopy -k nc4 c3.nc c4.nc
	nccopy -k nc7 -d 1 -s -c t/1,x/2 c3.nc c7.nc
	# Records of a dimension that has no variable of its own, and of variables that are longer than theirs.
	echo 'netcdf l { dimensions: t = UNLIMITED ; u = UNLIMITED ; x = 2 ; variables: float r(t, x) ; int s(t) ; int u(u) ; short v(u, x) ;
		data: r = 1,2,3,4,5,6 ; s = 1 ; u = 1 ; v = 1,2,3,4,5,6,7,8 ; }' | ncgen -k nc4 -o l.nc -
	agree_netcdf a.nc c4.nc c7.nc l.nc
	[ ! -x "$theirs" ] || agree a.nc c4.nc c7.nc
}

@test "the chunks of netCDF variables are as many as ncdump -s and their lengths say" {
	needs_program ncgen
	echo 'netcdf d { dimensions: t = UNLIMITED ; y = 10 ; x = 9 ; variables: int v(t, y, x) ; v:_ChunkSizes = 2, 4, 5 ;
		v:_DeflateLevel = 1 ; data: v = 1, 2, 3 ; }' | ncgen -k nc4 -o d.nc -
	ncdump -h -s d.nc | grep -q '_ChunkSizes = 2, 4, 5'
	# One record: 1 x 3 x 2 chunks.
	is "$("$ours" show d.nc | grep '^v ')" "v integer size=4 dims=1,10,9 most=*,10,9 filters=1 chunk=2,4,5 chunks=6"
}

@test "100,000 chunks are found in the time of their index's bytes" {
	local file usec
	needs_hdf5
	"$theirs" large . 100000
	for file in large.h5 large-old.h5; do
		"$ours" show $file | grep -q ' chunks=100000$'
		usec=$("$ours" time $file)
		echo "$file: $usec us" >&3
		# About 20 ms; sanitizers and an old machine may take their share. What asks HDF5 for each takes minutes.
		[ "$usec" -lt 3000000 ]
	done
}
