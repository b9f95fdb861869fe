#!/usr/bin/env bats
# SPDX-License-Identifier: GPL-3.0-or-later
#
# False damage and false health: files that other programs read and that must not be called damaged, and files of which a part is
# gone that must not be called whole. ncdump, h5dump and h5py say what is right. ODD_FORMATS may name a folder of further such files.

load "${top_srcdir:?}/tests/lib/mount.bash"

setup() {
	cistern_setup
	needs_program ncgen ncdump jq
	cd "$WORK" || return
}

teardown() {
	cistern_teardown
}

# Files that HDF5 1.x reads, or refuses, in spite of all: tests/golden/make_odd_hdf5.py.
make_odd() {
	needs_program h5dump
	PYTHON=$(python_with h5py)
	"$PYTHON" -c "import h5py" 2>/dev/null || skip "python's h5py is not installed"
	"$PYTHON" "$top_srcdir/tests/golden/make_odd_hdf5.py" .
}

# patch FILE OFFSET BYTES: \xNN at an offset.
patch() {
	printf "$3" | dd of="$1" bs=1 seek="$2" conv=notrunc status=none
}

# odd_file NAME: a copy of one of the folder's files.
odd_file() {
	[ -n "${ODD_FORMATS:-}" ] || skip "ODD_FORMATS names no folder of odd files"
	cp "$ODD_FORMATS/$1" . && chmod u+w "$1"
}

# Three records of 12 bytes.
make_records() {
	echo 'netcdf r { dimensions: t = UNLIMITED ; x = 3 ; variables: int a(t, x) ; data: a = 1, 2, 3, 4, 5, 6, 7, 8, 0 ; }' |
		ncgen -k classic -o "$1" -
}

records_of() {
	ncdump -h "$1" | sed -n 's/.*UNLIMITED ; .. (\([0-9]*\) currently.*/\1/p'
}

# ---- records

@test "zeros behind the records are room and no records, and only --force counts them" {
	local size
	make_records r.nc
	size=$(stat -c %s r.nc)
	truncate -s 65536 r.nc
	exits 0 "$CISTERN" fsck r.nc
	says "note: netCDF classic: the $((65536 - size)) bytes behind its 3 records are zeros"
	cp r.nc before.nc
	exits 1 "$CISTERN" fsck --fix-numrecs r.nc
	says "not changed"
	says "--force"
	cmp r.nc before.nc
	exits 2 "$CISTERN" fsck --force r.nc
	exits 0 "$CISTERN" fsck --fix-numrecs --force r.nc
	is "$(records_of r.nc)" $((3 + (65536 - size) / 12))
	# Written zeros, as a program leaves them that makes room by a write at its end.
	cp before.nc r.nc
	truncate -s 65532 r.nc
	patch r.nc 65528 '\0\0\0\0\0\0\0\0'
	exits 0 "$CISTERN" fsck r.nc
	says "are zeros"
}

@test "records that hold something count up to the last of them, whatever zeros follow" {
	make_records r.nc
	patch r.nc 7 '\1'
	truncate -s 40000 r.nc
	exits 4 "$CISTERN" fsck r.nc
	says "the header counts 1 records and the file has 3"
	exits 0 "$CISTERN" fsck --fix-numrecs r.nc
	is "$(records_of r.nc)" 3
	ncdump r.nc | grep -q '7, 8, 0 ;'
	exits 0 "$CISTERN" fsck r.nc
	says "are zeros"
}

@test "a header that leaves the number of records open is a note, and the fix writes it" {
	make_records r.nc
	patch r.nc 4 '\xff\xff\xff\xff'
	exits 0 "$CISTERN" fsck r.nc
	says "note: netCDF classic: the header does not say how many records there are, and by its size the file has 3"
	exits 0 "$CISTERN" fsck --fix-numrecs r.nc
	is "$(records_of r.nc)" 3
	exits 0 "$CISTERN" fsck r.nc
	says "the file is sound"
}

@test "inspect counts no zeros, unless the log has them; netcdf4 leaves them out" {
	needs_fuse
	mount_cistern -o "drain=unmount,data=log"
	make_records r.nc
	cp r.nc "$MNT/r.nc"
	truncate -s 65532 "$MNT/r.nc"
	patch "$MNT/r.nc" 65528 '\0\0\0\0'
	is "$("$CISTERN" inspect --json "$MNT/r.nc" | jq .file.records)" 3
	# A record of zeros that a program wrote, and did not count yet.
	head -c 12 /dev/zero | dd of="$MNT/r.nc" bs=1 seek="$(stat -c %s r.nc)" conv=notrunc status=none
	is "$("$CISTERN" inspect --json "$MNT/r.nc" | jq .file.records)" 4
	# Half of the next one.
	head -c 6 /dev/zero | dd of="$MNT/r.nc" bs=1 seek=$(($(stat -c %s r.nc) + 12)) conv=notrunc status=none
	is "$("$CISTERN" inspect --json "$MNT/r.nc" | jq .file.records)" 5
	umount_wait
	rm -rf "$STORE"
	needs_built cistern-nc4
	truncate -s 65536 r.nc
	mount_cistern -o "drain=unmount,layout=netcdf4"
	cp r.nc "$MNT/four.nc"
	umount_wait
	is "$(ncdump -k "$BACKING/four.nc")" "netCDF-4 classic model"
	is "$(ncdump "$BACKING/four.nc" | tail -n +2)" "$(ncdump r.nc | tail -n +2)"
}

@test "the odd files with zeros and without a number" {
	odd_file test_netcdf_dummy_file.nc
	odd_file streaming.nc
	exits 0 "$CISTERN" fsck test_netcdf_dummy_file.nc
	says "the 6796 bytes behind its 0 records are zeros"
	exits 1 "$CISTERN" fsck --fix-numrecs test_netcdf_dummy_file.nc
	cmp test_netcdf_dummy_file.nc "$ODD_FORMATS/test_netcdf_dummy_file.nc"
	exits 0 "$CISTERN" fsck --fix-numrecs streaming.nc
	is "$(records_of streaming.nc)" 3
}

# ---- variables

@test "a file that ends long before its variables do is not ok, and how much of it there is is said" {
	echo 'netcdf f { dimensions: x = 100000 ; variables: int a(x) ; int b(x) ; data: a = 1 ; b = 2 ; }' | ncgen -k 2 -o f.nc -
	truncate -s 16000 f.nc
	ncdump f.nc >/dev/null # reads zeros
	exits 4 "$CISTERN" fsck f.nc
	says "DAMAGE: netCDF classic: the file ends at offset 16000, and variable a has 15876 of its 400000 bytes (3 %)"
	says "all variables 15876 of 800000 (1 %)"
	echo 'netcdf f { dimensions: x = 100000 ; variables: int a(x) ; int b(x) ; data: a = 1 ; b = 2 ; }' | ncgen -k 2 -o f.nc -
	truncate -s -4000 f.nc
	exits 0 "$CISTERN" fsck f.nc
	says "note: netCDF classic: the file ends"
	says "variable b has 396000 of its 400000 bytes (99 %)"
	# It opens: so it is drained, and the manifest says it.
	needs_fuse
	truncate -s 16000 f.nc
	mount_cistern -o drain=unmount,verify=format
	cp f.nc "$MNT"
	umount_wait
	jq -r '.files[0].warning' "$STORE/manifest.json" | grep -q '15876 of 800000 (1 %)'
}

@test "variables larger than CDF-1 and CDF-2 allow where they stand are named" {
	echo 'netcdf f { dimensions: x = 65536 ; y = 16384 ; variables: int a(x, y) ; byte b(x) ; }' >f.cdl
	refute ncgen -x -k 64-bit-offset -o f.nc f.cdl
	ncgen -x -k cdf5 -o f5.nc f.cdl || skip "this ncgen makes no CDF-5 files"
	exits 0 "$CISTERN" fsck f5.nc
	refute says "more than"
	# The same as CDF-2, which has counts and sizes of 4 bytes.
	python3 - <<-'END'
		import struct
		def name(n):
		    return struct.pack(">i", len(n)) + n + bytes(-len(n) % 4)
		def var(n, dims, type, begin):
		    return name(n) + struct.pack(">i%di" % len(dims), len(dims), *dims) + bytes(8) + struct.pack(">iIq", type, 0xffffffff, begin)
		dims = struct.pack(">ii", 10, 2) + name(b"x") + struct.pack(">i", 65536) + name(b"y") + struct.pack(">i", 16384)
		head = b"CDF\2" + bytes(4) + dims + bytes(8)
		size = 65536 * 16384 * 4
		for file, order in (("wrong.nc", (b"a", b"b")), ("right.nc", (b"b", b"a"))):
		    at, vars = 4096, b""
		    for n in order:
		        vars += var(n, (0, 1), 4, at) if n == b"a" else var(n, (0,), 1, at)
		        at += size if n == b"a" else 65536
		    with open(file, "wb") as f:
		        f.write(head + struct.pack(">ii", 11, 2) + vars)
		        f.truncate(at)
	END
	exits 0 "$CISTERN" fsck wrong.nc
	says "variable a has 4294967296 bytes, more than CDF-2 allows of one that is not the last"
	exits 0 "$CISTERN" fsck right.nc
	says "the file is sound"
}

@test "two variables of one name are said" {
	make_records r.nc
	echo 'netcdf d { dimensions: x = 3 ; variables: int aa(x) ; int ab(x) ; data: aa = 1 ; }' | ncgen -k classic -o d.nc -
	patch d.nc "$(grep -obUa ab d.nc | head -1 | sed 's/:.*//')" aa
	exits 0 "$CISTERN" fsck d.nc
	says "are named aa"
}

# ---- HDF5

@test "what HDF5 1.x reads is not damage: old shared messages, long names, other element sizes, null dataspaces" {
	local file
	make_odd
	for file in longname shared1 empty lists; do
		h5dump "$file.h5" >/dev/null
		exits 0 "$CISTERN" fsck "$file.h5"
		says "the file is sound"
	done
	h5dump element.h5 | grep -q '12, 13, 14, 15'
	exits 0 "$CISTERN" fsck element.h5
	says "note: HDF5: not all of it could be checked: x: at offset"
	says "HDF5 1.x takes the type's, HDF5 2 refuses"
	h5dump members.h5 >/dev/null
	exits 0 "$CISTERN" fsck members.h5
	says "a compound of 12 bytes with a member that reaches behind it"
}

@test "what HDF5 refuses to open is not sound" {
	make_odd
	refute h5dump unknown.h5
	exits 0 "$CISTERN" fsck unknown.h5
	says "note: HDF5: not all of it could be checked: x: at offset"
	says "unknown type 112 that forbids to open its object"
	refute says "is sound"
}

@test "null dataspaces are complete" {
	make_odd
	needs_fuse
	mount_cistern -o drain=unmount,data=log
	cp empty.h5 "$MNT"
	is "$("$CISTERN" inspect --json "$MNT/empty.h5" | jq -c '[.file.variables[] | select(.name == "x" or .name == "y") | .complete]')" '[true,true]'
}

@test "an end of the file before what is in it is damage, and one behind it is said" {
	make_odd
	cp longname.h5 e.h5
	# Superblock 0: the end of the file is its third address, behind 24 bytes.
	is "$(od -An -tu8 -j40 -N8 e.h5 | tr -d ' ')" "$(stat -c %s e.h5)"
	"$PYTHON" -c 'import struct; f = open("e.h5", "r+b"); f.seek(40); f.write(struct.pack("<Q", 2100))'
	refute h5dump e.h5
	exits 4 "$CISTERN" fsck e.h5
	says "the superblock says that the file ends at offset 2100, and objects of it reach to"
	"$PYTHON" -c 'import struct; f = open("e.h5", "r+b"); f.seek(40); f.write(struct.pack("<Q", 1 << 30))'
	refute h5dump e.h5
	exits 4 "$CISTERN" fsck e.h5
	says "and says that it has 1073741824 bytes"
}

@test "metadata are read from a metadata cache image" {
	local theirs=$top_builddir/tests/mpi/h5-facts ours=$top_builddir/tests/unit/hdf5-facts
	[ -x "$theirs" ] || skip "built without HDF5"
	"$theirs" image image.h5
	grep -q MDCI image.h5
	# Where the root group has to be, nothing was written.
	is "$(od -An -tx1 -j48 -N4 image.h5 | tr -d ' ')" 00000000
	diff <("$theirs" show image.h5) <("$ours" show image.h5)
	exits 0 "$CISTERN" fsck image.h5
	says "the file is sound"
	patch image.h5 $(($(grep -obUa MDCI image.h5 | sed 's/:.*//') + 40)) '\x55'
	refute h5dump image.h5
	exits 4 "$CISTERN" fsck image.h5
	says "checksum"
}

@test "the odd HDF5 files are read as h5dump reads them, and drained" {
	local file
	needs_fuse
	needs_program h5dump
	for file in h5clear_mdc_image longname mdci p_elem pagemdci tcompound tcompound2; do
		odd_file "$file.h5"
		h5dump "$file.h5" >/dev/null
		exits 0 "$CISTERN" fsck "$file.h5"
		refute says DAMAGE
	done
	mount_cistern -o drain=unmount,verify=format
	cp ./*.h5 "$MNT"
	umount_wait
	is "$(jq -r '.files | map(.state) | unique | join(" ")' "$STORE/manifest.json")" verified
}

# ---- lists of varying length

# without_heap FILE NUMBER: zeros in the place of that collection of the global heap.
without_heap() {
	python3 - "$1" "$2" <<-'END'
		import struct, sys
		data = bytearray(open(sys.argv[1], "rb").read())
		at = -1
		for _ in range(int(sys.argv[2]) + 1):
		    at = data.index(b"GCOL", at + 1)
		length, = struct.unpack_from("<Q", data, at + 8)
		data[at:at + length] = bytes(length)
		open(sys.argv[1], "wb").write(data)
	END
}

@test "strings and lists without their heap are not sound, whatever refers to them" {
	local num k
	make_odd
	num=$(grep -oUa GCOL lists.h5 | wc -l)
	[ "$num" -gt 1 ]
	for ((k = 0; k < num; k++)); do
		cp lists.h5 l.h5
		without_heap l.h5 "$k"
		exits 4 "$CISTERN" fsck l.h5
		says 'zeros where "GCOL" has to be'
	done
	# A list that is longer than its object.
	cp lists.h5 l.h5
	"$PYTHON" - <<-'END'
		import h5py, struct
		with h5py.File("l.h5", "r") as f:
		    at = f["texts"].id.get_offset()
		with open("l.h5", "r+b") as f:
		    f.seek(at + 16)
		    f.write(struct.pack("<I", 60000))
	END
	exits 4 "$CISTERN" fsck l.h5
	says "texts: at offset"
	says "a list of 60000 elements of 1 bytes"
	# An address that is none.
	"$PYTHON" - <<-'END'
		import h5py, struct
		with h5py.File("lists.h5", "r") as f:
		    at = f["texts"].id.get_offset()
		with open("l.h5", "r+b") as f:
		    f.seek(at + 16)
		    f.write(struct.pack("<IQI", 5, 2**64 - 1, 1))
	END
	exits 4 "$CISTERN" fsck l.h5
	says "a collection of the global heap without an address"
}

@test "heaps belong to the variables that refer to them: mapped, counted, and missed when they are gone" {
	local json
	needs_fuse
	{
		echo 'netcdf s { dimensions: x = 3000 ; variables: string name(x) ; float v(x) ; data: v = 1 ; name = "0"'
		seq -f ', "the name of number %.0f"' 1 2999
		echo '; }'
	} | ncgen -k nc4 -o s.nc -
	mount_cistern -o drain=unmount,data=log
	cp s.nc "$MNT"
	json=$("$CISTERN" inspect --json "$MNT/s.nc")
	fits <(echo "$json")
	is "$(jq -c '.file.variables[] | select(.name == "name") | [.complete, .heap_bytes > 3000 * 30, .defined_bytes - .heap_bytes]' <<<"$json")" \
		'[true,true,48000]'
	is "$(jq '.file.other_log_bytes < 10000' <<<"$json")" true
	# All but the heap: a program that died before it wrote that.
	without_heap s.nc 2
	rm "$MNT/s.nc"
	cp --sparse=always s.nc "$MNT/s.nc"
	refute ncdump "$MNT/s.nc"
	exits 4 "$CISTERN" fsck "$MNT/s.nc"
	is "$("$CISTERN" inspect --json "$MNT/s.nc" | jq -r .file.note | grep -c 'name: at offset.*GCOL')" 1
}

@test "the odd file of strings" {
	local k
	odd_file many-strings.nc
	exits 0 "$CISTERN" fsck many-strings.nc
	without_heap many-strings.nc 4
	refute ncdump many-strings.nc
	exits 4 "$CISTERN" fsck many-strings.nc
}

# ---- the sweep over folders of files, make suites FORMATS=DIR

sweep() {
	mkdir -p sweep
	"$(python_with h5py)" "$top_srcdir/tests/soak/formats.py" "$CISTERN" "$WORK/sweep" "$WORK/folder"
}

@test "the sweep over a folder lists the verdicts that differ from those of other programs, and no others" {
	needs_fuse
	needs_program h5dump
	make_odd
	mkdir -p folder/deep tools
	mv longname.h5 shared1.h5 lists.h5 element.h5 unknown.h5 folder
	make_records folder/deep/r.nc
	truncate -s 65536 folder/deep/r.nc
	cp folder/deep/r.nc folder/short.nc
	truncate -s 60 folder/short.nc
	echo text >folder/text
	exits 0 sweep
	says "7 files, 0 verdicts that differ"
	# Another program that thinks otherwise of two of them.
	printf '#!/bin/sh\ncase "$*" in *deep/r.nc) exit 1 ;; *short.nc) exit 0 ;; esac\nexec %s "$@"\n' "$(command -v ncdump)" >tools/ncdump
	chmod 755 tools/ncdump
	PATH=$WORK/tools:$PATH
	patch folder/deep/r.nc 7 '\5'
	truncate -s 200 folder/deep/r.nc
	"$CISTERN" fsck folder/deep/r.nc || true
	exits 1 sweep
	says "short.nc: fsck: ours: DAMAGE"
	says "theirs: reads"
}
