#!/usr/bin/env bats
# SPDX-License-Identifier: GPL-3.0-or-later
#
# cistern convert: E3SM-IO's blobs become the file that E3SM-IO writes itself; any classic file becomes blobs and comes back to
# the byte; what is not whole is refused, and leaves nothing.

load "${top_srcdir:?}/tests/lib/mount.bash"
load "$top_srcdir/tests/lib/job.bash"

bats_require_minimum_version 1.5.0

setup() {
	cistern_setup
	needs_mpi
	golden=$top_srcdir/tests/golden
	cd "$WORK" || return
	cp "$golden"/e3sm-io/out.nc.000? . && chmod u+w out.nc.000?
	unset "${!OMPI_@}" "${!PMI@}"
	# What the libraries below MPI leave to the end of the process is not ours to free.
	export ASAN_OPTIONS=${ASAN_OPTIONS:+$ASAN_OPTIONS:}detect_leaks=0
}

# said STATUS TEXT: the last run ended so, and said that.
said() {
	[ "$status" -eq "$1" ] || { echo "status $status, not $1: $output $stderr"; return 1; }
	[[ $stderr == *"$2"* ]] || { echo "said: $stderr"; return 1; }
}

# refused STATUS TEXT ARGUMENT...: and nothing was made.
refused() {
	local code=$1 text=$2
	shift 2
	run --separate-stderr "$CISTERN" convert "$@" --to made.nc
	said "$code" "$text"
	[ -z "$(find . -name '*made.nc*')" ] || { ls -A; return 1; }
}

# poke FILE OFFSET BYTES: as printf(1) has them.
poke() {
	printf "$3" | dd of="$1" bs=1 seek="$2" conv=notrunc status=none
}

# Offset of the n-th value, of 4 bytes, of a variable that is not a record variable, as ncdump's companion would say it.
offset_of() {
	python3 - "$1" "$2" "$3" <<-'END'
		import struct, sys
		data, name = open(sys.argv[1], "rb").read(), sys.argv[2].encode()
		at = data.index(struct.pack(">Q", len(name)) + name)
		at += 8 + (len(name) + 3) // 4 * 4
		at += 8 + 8 * struct.unpack(">Q", data[at:at + 8])[0]  # dimensions; then its attributes
		num = struct.unpack(">Q", data[at + 4:at + 12])[0]
		at += 12
		for _ in range(num):
		    n = struct.unpack(">Q", data[at:at + 8])[0]
		    at += 8 + (n + 3) // 4 * 4
		    kind, n = struct.unpack(">IQ", data[at:at + 12])
		    at += 12 + (n * {2: 1, 4: 4}[kind] + 3) // 4 * 4
		print(struct.unpack(">Q", data[at + 12:at + 20])[0] + 4 * int(sys.argv[3]))
	END
}

# import_parts FILE: an HDF5 file of the files header_blob and data_blob.
import_parts() {
	local part
	for part in header_blob data_blob; do
		cat >config <<-END
			PATH $part
			INPUT-CLASS UIN
			INPUT-SIZE 8
			RANK 1
			DIMENSION-SIZES $(stat -c %s $part)
			OUTPUT-CLASS UIN
			OUTPUT-SIZE 8
			INPUT-BYTE-ORDER LE
			OUTPUT-BYTE-ORDER LE
		END
		cp config $part.config
	done
	rm -f "$1"
	h5import header_blob -c header_blob.config data_blob -c data_blob.config -o "$1" >/dev/null
}

# to_hdf5 SUBFILE FILE: the same subfile in the process-centric form, by others' hands.
to_hdf5() {
	"$golden/blob_process.py" "$1" header_blob data_blob
	import_parts "$2"
}

@test "blobs of E3SM-IO become the file that it writes itself, with any number of processes" {
	local n
	for n in 1 2 3 4; do
		"$CISTERN" convert -n $n out.nc --to c$n.nc
		cmp c$n.nc "$golden/e3sm-io/out.nc"
	done
	"$CISTERN" convert out.nc.0002 --to by-one.nc
	cmp by-one.nc c1.nc
	mv out.nc.0001 elsewhere
	"$CISTERN" convert out.nc.0002 elsewhere out.nc.0000 --to by-all.nc --buffer 4K
	cmp by-all.nc c1.nc
	mpiexec.mpich -n 2 "$CISTERN" convert out.nc.0002 elsewhere out.nc.0000 --to by-mpiexec.nc </dev/null
	cmp by-mpiexec.nc c1.nc
	[ -z "$(find . -name '*cistern-convert*')" ]
}

@test "process-centric blobs of E3SM-IO become the same file" {
	local n
	for n in 1 2; do
		"$CISTERN" convert -n $n "$golden/e3sm-io/out.h5" --to c$n.nc
		cmp c$n.nc "$golden/e3sm-io/out.nc"
	done
	cp "$golden/e3sm-io/out.h5.0000" .
	refused 1 "out.h5.0001 is missing" out.h5
}

@test "process-centric blobs with a header as in a file become the same file" {
	local k n
	needs_program h5import
	for k in 0 1 2; do
		to_hdf5 out.nc.000$k h.000$k
	done
	for n in 1 3; do
		"$CISTERN" convert -n $n h --to c$n.nc
		cmp c$n.nc "$golden/e3sm-io/out.nc"
	done
	truncate -s -5 data_blob
	sed -i "s/DIMENSION-SIZES.*/DIMENSION-SIZES $(stat -c %s data_blob)/" data_blob.config
	rm h.0002
	h5import header_blob -c header_blob.config data_blob -c data_blob.config -o h.0002 >/dev/null
	refused 4 "end in the blob of process" h
	truncate -s -100 h.0001
	refused 4 "h.0001" h
}

@test "our own process-centric blobs are read without their table, too, and not when they lie in chunks" {
	local k part
	needs_program h5import h5dump h5repack
	"$CISTERN" convert "$golden/e3sm-io/out.nc" --layout blob-process --num-subfiles 2 --processes 5 --to p >/dev/null
	for k in 0 1; do
		for part in header_blob data_blob; do h5dump -d $part -b LE -o $part p.000$k >/dev/null; done
		import_parts q.000$k
	done
	"$CISTERN" convert q --to c.nc
	cmp c.nc "$golden/e3sm-io/out.nc"
	h5repack -l data_blob:CHUNK=100 p.0001 r.0001
	cp p.0000 r.0000
	refused 4 "r.0001: data_blob does not lie in one piece" r
	h5repack -l data_blob:CONTI r.0001 p.0001
	"$CISTERN" convert p --to c.nc --force
	cmp c.nc "$golden/e3sm-io/out.nc"
}

@test "an incomplete set is refused, and the message names what is missing" {
	local k
	for k in 0 1 2; do
		mv out.nc.000$k away
		refused 1 "out.nc.000$k is missing" out.nc
		mv away out.nc.000$k
	done
	refused 1 "out.nc.0001 (subfile 1 of 3) is missing" out.nc.0000 out.nc.0002
	refused 1 "no such subfile" nothing
	cp out.nc.0000 out.nc.0001
	run --separate-stderr "$CISTERN" convert out.nc --to made.nc
	[ "$status" -eq 0 ] && [[ $stderr == *"are in several blobs"* && $stderr == *"are in no blob"* ]]
}

@test "a subfile that is cut short, damaged or of another run is refused by its name" {
	local at
	cp out.nc.0001 good
	truncate -s -4 out.nc.0001
	refused 4 "out.nc.0001: it has" out.nc
	cp good out.nc.0001
	truncate -s 5000 out.nc.0001
	refused 4 "out.nc.0001: the file ends inside the header" out.nc
	cp good out.nc.0001
	poke out.nc.0001 11 '\x03' # three records
	refused 4 "out.nc.0001: it has" out.nc
	truncate -s 40000 out.nc.0001
	refused 4 "out.nc.0000 and out.nc.0001 do not belong together: one has 2 records, one 3" out.nc
	cp good out.nc.0001
	at=$(offset_of out.nc.0001 D3.offsets 0)
	poke out.nc.0001 "$at" '\x00\x00\x01\x00'
	refused 4 "out.nc.0001: map D3, blob 0: run 0" out.nc
	cp good out.nc.0001
	poke out.nc.0001 "$(($(offset_of out.nc.0001 D2.blob_start 2) + 7))" '\x01'
	refused 4 "out.nc.0001: blob 1 of map D2" out.nc
	cp "$golden/e3sm-io/out.nc" out.nc.0001
	refused 4 "out.nc.0001: no subfile" out.nc
	cp good out.nc.0001
	"$CISTERN" convert out.nc --to c.nc
	"$CISTERN" convert c.nc --layout blob-variable --processes 2 --to other
	refused 4 "other.0000 is of a set of 1 subfiles, and 4 are given: name one set" other.0000 out.nc.000?
	refused 4 "" "$golden/e3sm-io/README.md"
}

@test "what several blobs have, and what none has, is said and done as documented" {
	local at
	at=$(offset_of out.nc.0002 D1.offsets 0)
	# The first column of subfile 2 becomes one that an earlier subfile has.
	poke out.nc.0002 "$at" "\x00\x00\x00\x$(od -An -tx1 -j $(($(offset_of out.nc.0000 D1.offsets 0) + 3)) -N 1 out.nc.0000 | tr -d ' ')"
	run --separate-stderr "$CISTERN" convert out.nc --to made.nc
	said 0 "1 elements are in several blobs"
	said 0 "1 elements of maps are in no blob; they are holes"
	"$CISTERN" convert -n 3 out.nc --to again.nc 2>said
	grep -q "1 elements are in several blobs" said
	cmp made.nc again.nc
	[ "$(cmp -l made.nc "$golden/e3sm-io/out.nc" | wc -l)" -gt 0 ]
	"$CISTERN" convert out.nc --fill --to filled.nc 2>said
	grep -q "have their fill value" said
	needs_program ncdump
	[ "$(diff <(ncdump made.nc | tail -n +2) <(ncdump filled.nc | tail -n +2) | grep -c '^>.*_')" -gt 0 ]
}

@test "what is there is not replaced without --force, and an input never" {
	echo old >c.nc
	run --separate-stderr "$CISTERN" convert out.nc --to c.nc
	said 1 "c.nc exists; --force replaces it"
	[ "$(cat c.nc)" = old ]
	"$CISTERN" convert out.nc --to c.nc --force
	cmp c.nc "$golden/e3sm-io/out.nc"
	run --separate-stderr "$CISTERN" convert out.nc --to out.nc.0001 --force
	said 2 "is what is to be converted"
	run --separate-stderr "$CISTERN" convert -n 2 c.nc --layout blob-variable --to out.nc
	said 1 "out.nc.0000 exists"
	cmp out.nc.0001 "$golden/e3sm-io/out.nc.0001"
	mkdir folder
	run --separate-stderr "$CISTERN" convert out.nc --to folder
	said 1 "folder is not a regular file"
	cp c.nc out.nc
	run --separate-stderr "$CISTERN" convert out.nc --fill --to out.nc --force
	said 4 "out.nc is a file beside subfiles of that name, and is taken itself: name out.nc.0000 for those. out.nc: no subfile of blobs"
	"$CISTERN" convert out.nc.0000 --to out.nc --force
	rm out.nc
	echo garbage >alien.0000
	run --separate-stderr "$CISTERN" convert alien --to c2.nc
	said 4 "alien.0000: neither a netCDF classic file nor an HDF5 file"
	refute grep -q "is a file beside" <<<"$stderr"
	run --separate-stderr "$CISTERN" convert out.nc --to missing/c.nc
	said 1 "missing/"
}

@test "a set that replaces one of more subfiles leaves none of them beside it, and all else alone" {
	local layout
	needs_program jq
	"$CISTERN" convert out.nc --to c.nc
	for layout in blob-variable blob-process; do
		rm -rf b && mkdir b
		"$CISTERN" convert c.nc --layout blob-variable --num-subfiles 9 --to b/x
		"$CISTERN" convert c.nc --layout blob-variable --num-subfiles 9 --to b/other
		mv b/other.0004 b/x.0004       # of another set
		mv b/x.0005 b/x.0007           # of this one, and not what it is called
		echo text >b/x.0006
		ln -sf other.0008 b/x.0008
		: >b/x.0003.old
		cp b/other.0003 b/x.0009
		"$CISTERN" convert c.nc --layout $layout --num-subfiles 2 --to b/x --force --json >j 2>said
		[ "$(cd b && echo x.*)" = "x.0000 x.0001 x.0003.old x.0004 x.0006 x.0007 x.0008 x.0009" ] || { ls b; return 1; }
		[ "$(jq .subfiles_removed j)" -eq 2 ]
		grep -q 'removed what the set before had more: 2 subfiles' said
		grep -q '4 files stay .*, the first one b/x.0004' said
		"$CISTERN" convert b/x.0000 b/x.0001 --to back.nc --force
		cmp back.nc c.nc
	done
	# E3SM-IO's own, whose subfiles have no number of their set.
	"$CISTERN" convert c.nc --layout blob-variable --to out.nc --force 2>said
	[ "$(echo out.nc*)" = out.nc.0000 ]
	"$CISTERN" convert out.nc --to back.nc --force
	cmp back.nc c.nc
	# Killed before the first subfile got its name, with some of the old set's gone: the next run finds the others.
	"$CISTERN" convert c.nc --layout blob-variable --num-subfiles 6 --to k
	"$CISTERN" convert c.nc --layout blob-variable --num-subfiles 2 --to l
	mv l.0001 k.0001
	rm k.0005
	"$CISTERN" convert c.nc --layout blob-variable --num-subfiles 2 --to k --force 2>said
	[ "$(echo k.*)" = "k.0000 k.0001" ]
	"$CISTERN" convert k --to back.nc --force
	cmp back.nc c.nc
	# One that is as large, or larger.
	"$CISTERN" convert c.nc --layout blob-variable --num-subfiles 4 --to out.nc --force 2>said
	"$CISTERN" convert c.nc --layout blob-process --num-subfiles 4 --to out.nc --force 2>>said
	refute grep removed said
	[ "$(echo out.nc.*)" = "out.nc.0000 out.nc.0001 out.nc.0002 out.nc.0003" ]
}

# big FILE: a classic file of some MB without values; only its header is made.
big() {
	printf 'netcdf f { dimensions: x = 200000 ; y = 20 ; variables: double v(y, x) ; }' >f.cdl
	ncgen -k cdf5 -o "$1" f.cdl
}

@test "killed at any time, the result is not there, and the next run makes it" {
	local pid i met=0
	needs_program ncgen
	big c.nc
	"$CISTERN" convert c.nc --layout blob-variable --num-subfiles 2 --processes 7 --to b >/dev/null
	for ((i = 0; i < 3 || (met == 0 && i < 100); i++)); do
		"$CISTERN" convert b --to made.nc --buffer 64K >/dev/null 2>&1 3>&- &
		pid=$!
		wait_until 60 exists_or_gone $pid .made.nc.cistern-convert
		kill -KILL $pid 2>/dev/null || true
		wait $pid || true
		if [ -e .made.nc.cistern-convert ]; then met=$((met + 1)); fi
		[ ! -e made.nc ] || cmp made.nc c.nc
		rm -f made.nc
	done
	echo "$met of $i programs were met at their work"
	[ "$met" -gt 0 ]
	rm -f .made.nc.cistern-convert
	"$CISTERN" convert b --to made.nc --buffer 64K >/dev/null 2>&1 3>&- &
	pid=$!
	wait_until 60 exists_or_gone $pid .made.nc.cistern-convert
	kill -TERM $pid 2>/dev/null || true
	wait $pid || true
	[ -e made.nc ] || [ ! -e .made.nc.cistern-convert ]
	rm -f made.nc
	"$CISTERN" convert b --to made.nc >/dev/null
	cmp made.nc c.nc
}

exists_or_gone() {
	[ -e "$2" ] || ! kill -0 "$1" 2>/dev/null
}

@test "one program at a time makes a file" {
	needs_program python3
	: >.made.nc.cistern-convert
	python3 - <<-'END' 3>&- &
		import fcntl, os, signal, struct
		fd = os.open(".made.nc.cistern-convert", os.O_RDWR)
		fcntl.fcntl(fd, 37, struct.pack("hhqqixxxx", fcntl.F_WRLCK, 0, 0, 0, 0))  # F_OFD_SETLK
		open("locked", "w").close()
		signal.pause()
	END
	undo "kill -KILL $!"
	wait_until 60 test -e locked
	run --separate-stderr "$CISTERN" convert out.nc --to made.nc
	said 5 "made.nc is being made by another program"
}

@test "a disk without room is found before anything is made" {
	needs_root "mounting a tmpfs"
	needs_program ncgen
	mkdir small
	mount -t tmpfs -o size=1m tmpfs small || skip "no tmpfs can be mounted"
	undo "umount $WORK/small"
	big c.nc
	run --separate-stderr "$CISTERN" convert c.nc --layout blob-process --to small/b
	said 1 "but there are"
	"$CISTERN" convert c.nc --layout blob-process --to b >/dev/null
	run --separate-stderr "$CISTERN" convert -n 2 b --to small/c.nc
	said 1 "small/c.nc would need"
	[ -z "$(ls -A small)" ]
}

@test "a disk that fills while subfiles are made keeps none of them" {
	local layout bytes
	needs_root "mounting a tmpfs"
	needs_program jq
	mkdir small
	for layout in blob-variable blob-process; do
		# The room is found to do, but each of the eight begins with a block of its own.
		"$CISTERN" convert "$golden/e3sm-io/out.nc" --layout $layout --num-subfiles 8 --processes 8 --to b$layout --json >said.json
		bytes=$(jq .bytes said.json)
		mount -t tmpfs -o "size=$(((bytes + 4095) / 4096 * 4))k" tmpfs small || skip "no tmpfs can be mounted"
		undo "umount $WORK/small"
		run --separate-stderr "$CISTERN" convert "$golden/e3sm-io/out.nc" --layout $layout --num-subfiles 8 --processes 8 --to small/b
		said 1 "No space left on device"
		[ -z "$(ls -A small)" ]
		umount small
	done
}

# and_back FILE ARGUMENT...: to blobs and back, with some number of processes.
and_back() {
	local file=$1
	shift
	rm -rf b && mkdir b
	"$CISTERN" convert "$file" "$@" --to b/x >/dev/null || return
	"$CISTERN" convert b/x --to b/back >/dev/null || return
	cmp b/back "$file" || { echo "$file $*"; return 1; }
}

@test "any classic file becomes blobs and comes back to the byte" {
	local seed kind types k p layout
	needs_program ncgen python3
	for seed in $(seq 1 12); do
		kind=$((seed % 3))
		types=byte,char,short,int,float,double
		[ $kind -ne 0 ] || types=$types,ubyte,ushort,uint,int64,uint64
		"$golden/make_classic.py" "$seed" $types >f.cdl
		ncgen -k $((kind == 0 ? 5 : kind)) -o f$seed.nc f.cdl
		k=$((seed % 3 + 1)) p=$((seed % 7 + 3))
		layout=blob-variable
		[ $((seed % 2)) -eq 0 ] || layout=blob-process
		and_back f$seed.nc --layout $layout --num-subfiles $k --processes $p --buffer 4K
	done
	and_back f3.nc -n 2 --layout blob-variable --num-subfiles 3 --processes 5
	and_back f6.nc -n 2 --layout blob-process --num-subfiles 3 --processes 5
}

@test "a file that no library wrote comes back, too: streaming, bytes between and behind variables" {
	needs_program ncgen python3
	printf 'netcdf f { dimensions: t = UNLIMITED ; x = 3 ; variables: byte a(x) ; short b(t, x) ; byte c(t, x) ; data: a = 1, 2, 3 ;
		b = 1, 2, 3, 4, 5, 6, 7, 8, 9 ; c = 1, 2, 3, 4, 5, 6, 7, 8, 9 ; }' >f.cdl
	ncgen -k classic -o f.nc f.cdl
	poke f.nc 4 '\xff\xff\xff\xff'
	and_back f.nc --layout blob-variable --processes 2
	printf 'behind' >>f.nc
	poke f.nc $(($(stat -c %s f.nc) - 8)) 'xy'
	and_back f.nc --layout blob-process --processes 3 --num-subfiles 2
}

@test "variable-centric blobs are netCDF files with the names that E3SM-IO gives" {
	needs_program ncdump
	"$CISTERN" convert "$golden/e3sm-io/out.nc" --layout blob-variable --processes 4 --to b >/dev/null
	ncdump -h b.0000 >h
	grep -q 'nblobs = 4 ;' h
	grep -q 'double CLDHGH(time, D[0-9]*.nelems) ;' h
	grep -q 'CLDHGH:global_dimids = 0, 5 ;' h
	grep -q ':global_nprocs = 4 ;' h
}

@test "maps of both forms are followed" {
	needs_program ncgen ncdump
	printf 'netcdf f { dimensions: y = 2 ; x = 3 ; variables: int v(y, x) ; data: v = 0, 1, 2, 3, 4, 5 ; }' >f.cdl
	ncgen -k cdf5 -o f.nc f.cdl
	# Fastest first; elements from 1; process 1 has nothing at first; 5 belongs to nobody.
	printf 'version 2001 npes 3 ndims 2\n3 2\n0 3\n6 0 2\n1 0\n\n2 3\n1 3 4\n' >map.dat
	run --separate-stderr "$CISTERN" convert f.nc --layout blob-variable --map map.dat --to b
	said 0 "1 elements of maps belong to no process"
	ncdump -v D1.nreqs,D1.blob_count,D1.offsets,v b.0000 | sed -n '/^data/,$p' | tr -d ' \n' >values
	grep -qF 'D1.nreqs=2,0,3;D1.blob_count=2,0,4;' values
	grep -qF 'v=1,5,0,2,3,4;' values
	"$CISTERN" convert b --to back.nc >/dev/null
	cmp back.nc f.nc
	printf 'netcdf m { dimensions: p = 2 ; n = 3 ; variables: int D1.nreqs(p) ; int D1.offsets(n) ; int D1.lengths(n) ;
		:D1.dims = 2, 3 ; data: D1.nreqs = 2, 1 ; D1.offsets = 3, 0, 1 ; D1.lengths = 3, 1, 2 ; }' >m.cdl
	ncgen -k cdf5 -o map.nc m.cdl
	"$CISTERN" convert f.nc --layout blob-variable --map map.nc --to m >/dev/null
	ncdump -v v m.0000 | grep -qF 'v = 0, 3, 4, 5, 1, 2 ;'
	run --separate-stderr "$CISTERN" convert f.nc --layout blob-variable --map map.nc --processes 3 --to no
	said 2 "the maps are of 2 processes"
	run --separate-stderr "$CISTERN" convert f.nc --layout blob-variable --map f.nc --to no
	said 4 "not a file of maps"
}

@test "what is not for convert is named, with the command that is for it" {
	needs_program ncgen
	echo 'netcdf f { dimensions: x = 4 ; variables: int v(x) ; data: v = 1, 2, 3, 4 ; }' >f.cdl
	ncgen -k 5 -o classic.nc f.cdl
	ncgen -k nc4 -o four.nc f.cdl
	cp "$golden/pnetcdf-bb-logs/v1.12.3/t1.nc_0_0.meta" log.meta
	echo 'no data' >text
	: >empty
	mkdir -p dir store
	: >store/superblock
	refused 4 "classic.nc: no subfile of blobs, but a netCDF classic file" classic.nc
	[[ $stderr == *"'cistern convert FILE --layout blob-variable --to BASE' makes subfiles of it"* ]]
	refused 4 "four.nc: no subfile of blobs, but an HDF5 file" four.nc
	[[ $stderr == *"'nccopy -k cdf5' makes a netCDF classic file"* ]]
	refused 4 "log.meta: a log of PnetCDF's burst-buffer driver: 'cistern recover LOG.meta... --to FILE.nc'" log.meta
	refused 4 "text: neither a netCDF classic file nor an HDF5 file" text
	refused 4 "empty: it is empty" empty
	refused 2 "dir: not a regular file: name a set by what stands before" dir
	refused 2 "store: the store of a mount: 'cistern recover STORE --to DIR'" store
	# To blobs.
	refused 4 "four.nc: an HDF5 file, and blobs are made of netCDF classic files: of netCDF-4, 'nccopy -k cdf5'" --layout blob-variable four.nc
	refused 4 "log.meta: a log of PnetCDF's burst-buffer driver" --layout blob-process log.meta
	refused 4 "text: neither a netCDF classic file" --layout blob-variable text
	refused 4 "empty: it is empty" --layout blob-variable empty
	refused 2 "dir: not a regular file" --layout blob-variable dir
	# What is said does: each of the remedies.
	"$CISTERN" convert classic.nc --layout blob-variable --to b
	run "$CISTERN" fsck b.0000
	[ "$status" -eq 0 ] && [[ $output == *"note: it is a subfile of blobs"* ]]
	"$CISTERN" convert b --to back.nc
	cmp back.nc classic.nc
	run "$CISTERN" fsck back.nc
	[[ $output != *"subfile"* ]]
	nccopy -k cdf5 four.nc five.nc
	"$CISTERN" convert five.nc --layout blob-process --to p
	run "$CISTERN" fsck p.0000
	[ "$status" -eq 0 ] && [[ $output == *"note: it is a subfile of blobs"* ]]
}

@test "a file that would be too large is named, with its size" {
	trap '' XFSZ
	ulimit -f 8
	refused 1 "made.nc would have 20.2 KiB, which cannot be: File too large" out.nc
}

# lying: makes of f.nc long.nc, with a dimension y of 2^24, and of p.0000 many.0000, with 2^24 blobs.
lying() {
	python3 - <<-'END'
		import struct
		MANY = 1 << 24

		def crc32c(data):
		    crc = 0xffffffff
		    for byte in data:
		        crc ^= byte
		        for _ in range(8):
		            crc = crc >> 1 ^ (0x82f63b78 if crc & 1 else 0)
		    return crc ^ 0xffffffff

		def put(data, behind, kind, value):
		    at = data.index(behind) + len(behind)
		    struct.pack_into(kind, data, at, value)

		data = bytearray(open("f.nc", "rb").read())
		put(data, struct.pack(">Q", 1) + b"y\0\0\0", ">Q", MANY)
		open("long.nc", "wb").write(data)
		data = bytearray(open("p.0000", "rb").read())
		put(data, b"nblobs\0\0", ">Q", MANY)
		put(data, b"global_nprocs\0\0\0" + struct.pack(">IQ", 4, 1), ">I", MANY)
		table = data.index(b"CBLT\1\0")
		struct.pack_into("<I", data, table + 8, MANY)
		end = table + 32 + 40 * struct.unpack_from("<Q", data, table + 24)[0]
		struct.pack_into("<I", data, end, crc32c(data[table:end]))
		open("many.0000", "wb").write(data)
	END
}

@test "headers that lie about lengths cost no memory" {
	local layout
	needs_program ncgen python3
	echo 'netcdf f { dimensions: x = 3 ; z = 2 ; y = 4 ; variables: int w(z, x) ; int v(y, x) ; data: w = 1, 2, 3, 4, 5, 6 ; v = 7, 8 ; }' >f.cdl
	ncgen -k 5 -o f.nc f.cdl
	"$CISTERN" convert f.nc --layout blob-process --to p
	lying
	[ -n "${CISTERN_SANITIZED:-}" ] || ulimit -v 600000
	refused 4 "many.0000: it has $(stat -c %s many.0000) bytes, and should have 16777216 blobs with 2 maps" many
	# A variable that is as good as not there is not cut up, and comes back as it was.
	for layout in blob-variable blob-process; do
		"$CISTERN" convert long.nc --layout $layout --num-subfiles 2 --to b --force
		"$CISTERN" convert b --to back.nc --force
		cmp back.nc long.nc
	done
}

@test "a set that is to have the other form is told of as a set, with the way there" {
	local set
	"$CISTERN" convert out.nc --to c.nc
	"$CISTERN" convert c.nc --layout blob-process --num-subfiles 2 --to p
	rm p.0000
	for set in "out.nc out.nc.0000 3 blob-variable" "p p.0001 2 blob-process"; do
		read -r base first num form <<<"$set"
		run --separate-stderr "$CISTERN" convert -n 2 "$base" --layout blob-process --to x
		said 2 "$base: no file, but a set of subfiles ($first is one of $num, $form), and --layout is for canonical files"
		[[ $stderr == *"'cistern convert $base --to FILE' makes that of the set"* ]]
	done
	# The way.
	"$CISTERN" convert out.nc --to x.nc
	"$CISTERN" convert x.nc --layout blob-process --to x
	# No subfile, whatever its name.
	echo text >t.0000
	run --separate-stderr "$CISTERN" convert t --layout blob-process --to y
	said 1 "t: No such file"
	[ -z "$(find . -name '.*cistern-convert')" ]
}

@test "the outcome as JSON, and mistakes" {
	needs_program jq
	"$CISTERN" convert out.nc --to c.nc --json >j
	[ "$(jq -c '[.layout, .subfiles, .blobs, .records, .processes, .exit_status]' j)" = '["canonical",3,6,2,1,0]' ]
	[ "$(jq .bytes j)" -eq "$(stat -c %s c.nc)" ]
	run --separate-stderr "$CISTERN" convert out.nc --to c.nc --json
	[ "$status" -eq 1 ] && [ "$(jq .exit_status <<<"$output")" -eq 1 ]
	run --separate-stderr "$CISTERN" convert out.nc
	said 2 "--to FILE is missing"
	run --separate-stderr "$CISTERN" convert -n 0 out.nc --to x
	said 2 "-n is a number"
	run --separate-stderr "$CISTERN" convert c.nc --layout blob --to x
	said 2 "--layout is canonical"
	run --separate-stderr "$CISTERN" convert other.nc --layout blob-variable --to x
	said 1 "other.nc: No such file"
	run --separate-stderr "$CISTERN" convert out.nc.0000 --layout blob-variable --to x
	said 2 "that is a blob subfile"
	OMPI_COMM_WORLD_SIZE=4 run --separate-stderr "$CISTERN" convert out.nc --to x
	said 2 "Open MPI"
}
