#!/usr/bin/env bats
# SPDX-License-Identifier: GPL-3.0-or-later
#
# cistern inspect STORE FILE: what it says of variables beside what other programs wrote, and how.
# What a store tells of its history goes back to its last checkpoint: they come late here.

load "${top_srcdir:?}/tests/lib/mount.bash"
load "$top_srcdir/tests/lib/job.bash"

setup() {
	cistern_setup
	needs_fuse
	needs_program ncgen ncdump
}

# of FILE JQ-FILTER: of what inspect says of a file in $MNT, by its path there.
of() {
	"$CISTERN" inspect --json "$MNT/$1" | jq -r ".file | $2"
}

# var FILE NAME FIELD
var() {
	of "$1" ".variables[] | select(.name == \"$2\") | .$3"
}

# Three records of a CDF-5 file with fill value 1 in f; x is a coordinate.
make_cdl() {
	cat <<-'END'
		netcdf f {
		dimensions: t = UNLIMITED ; x = 1000 ; y = 3 ;
		variables: double x(x) ; float f(t, y, x) ; f:_FillValue = 1.f ; short s(t, x) ; int n ;
		data: n = 7 ; x = 1, 2 ; f = 5, 6, 1, 1 ; s = 1 ;
		}
	END
}

@test "inspect tells the variables of what ncgen wrote, in the log, in a private segment and drained" {
	local data
	make_cdl >"$WORK/f.cdl"
	for data in log auto; do
		mount_cistern -o "data=$data,drain=unmount"
		ncgen -k 5 -o "$MNT/f-$data.nc" "$WORK/f.cdl"
		is "$(of f-$data.nc .format)" 'netCDF classic (CDF-5)'
		is "$(of f-$data.nc .records)" 1
		is "$(of f-$data.nc '[.variables[] | select(.complete)] | length')" 5
		is "$(var f-$data.nc f log_bytes)" 12000
		is "$(var f-$data.nc f fill_bytes)" $((12000 - 8))
		is "$(var f-$data.nc x dims[0])" 1000
		is "$(var f-$data.nc s writers[0].node)" 0
		umount_wait
		rm -rf "$STORE"
	done
	mount_cistern -o drain=unmount,data=log,checkpoint_interval=1h
	# Through the mount also what the store knows nothing of.
	is "$(var f-log.nc f drained_bytes) $(var f-log.nc f complete) $(of f-log.nc .state)" '12000 true clean'
	exits 1 "$CISTERN" inspect "$STORE" f-log.nc
	says 'the store knows nothing of it'
	exits 2 "$CISTERN" inspect --map "$STORE"
	says 'none is named'
	# One byte is changed of what is in the backing directory.
	printf '\3' | dd of="$MNT/f-log.nc" bs=1 seek=$(($(var_begin f-log.nc x) + 8)) conv=notrunc status=none
	is "$(var f-log.nc x log_bytes) $(var f-log.nc x drained_bytes) $(var f-log.nc x missing_bytes)" '1 7999 0'
	is "$(var f-log.nc f drained_bytes)" 12000
}

# Where a variable begins, in a file in BACKING.
var_begin() {
	"$top_builddir/tests/unit/dump-classic" "$BACKING/$1" | sed -n "s/^\/\/ $2 \([0-9]*\) .*/\1/p"
}

@test "half-way through, inspect says which variables are complete, who wrote them, and where the first gap is" {
	mount_cistern -o drain=unmount,data=log,checkpoint_interval=1h
	make_cdl >"$WORK/f.cdl"
	ncgen -x -k 5 -o "$DIRECT/f.nc" "$WORK/f.cdl"
	# Two processes write into one file, as a parallel program does: a header, all of x, parts of two records of f.
	cat >"$WORK/write.py" <<-'END'
		import os, struct, subprocess, sys
		direct, path, dump = sys.argv[1:]
		said = subprocess.run([dump, direct], capture_output=True, text=True, check=True).stdout
		begin = {l.split()[1]: int(l.split()[2]) for l in said.splitlines() if l.startswith("// ") and len(l.split()) == 4}
		head = [l for l in said.splitlines() if l.startswith("// header")][0].split()
		record = int(head[4])
		fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
		header = bytearray(open(direct, "rb").read(int(head[2])))
		header[4:12] = struct.pack(">Q", 0)
		os.pwrite(fd, header, 0)
		os.pwrite(fd, struct.pack(">1000d", *range(1000)), begin["x"])
		child = os.fork()
		if child == 0:
		    fd = os.open(path, os.O_RDWR)
		    os.pwrite(fd, struct.pack(">3000f", *range(3000)), begin["f"])
		    os.pwrite(fd, b"\0" * 3000, begin["f"] + record + 4000)      # of record 1, from [1,1,0] on
		    os._exit(0)
		assert os.waitpid(child, 0)[1] == 0
		os.pwrite(fd, struct.pack(">1000d", *range(1000)), begin["x"])  # all of it once more
		os.pwrite(fd, b"\0" * 2000, begin["s"])
		print(os.getpid(), child)
	END
	pids=$(python3 "$WORK/write.py" "$DIRECT/f.nc" "$MNT/f.nc" "$top_builddir/tests/unit/dump-classic")
	is "$(of f.nc '[.variables[] | select(.complete) | .name] | join(" ")')" '(header) x'
	is "$(var f.nc x overwritten_bytes)" 8000
	is "$(var f.nc f complete_parts)/$(var f.nc f parts)" 1/2
	is "$(var f.nc f missing_bytes)" $((24000 - 12000 - 3000))
	is "$(var f.nc f 'first_gap | join(" ")')" '1 0 0'
	is "$(var f.nc s 'first_gap | join(" ")')" '1 0'
	is "$(var f.nc n missing_bytes)" 4
	is "$(var f.nc x 'writers | map(.process) | join(" ")')" "${pids% *}"
	is "$(var f.nc f 'writers | map(.process) | join(" ")')" "${pids#* }"
	is "$(of f.nc .note)" 'the header says 0 records, the file has begun 2'
	run "$CISTERN" inspect --map "$STORE" f.nc
	[ "$status" -eq 0 ]
	[[ $output == *"4 variables, 1 of them complete; 2 records"* && $output == *"0:${pids#* }"*"f: float(2,3,1000)"* ]]
	[[ $output == *"|##############################__________#######-____________| f"* ]]
	[[ $output != *$'\033'* ]]
	# As wide as the terminal, with its writers.
	output=$(COLUMNS=124 script -qec "'$CISTERN' inspect --map '$STORE' f.nc" /dev/null | sed 's/\x1b\[[0-9;]*m//g' | tr -d '\r')
	[[ $output =~ \|([^|]*)\|\ f$'\n' ]]
	is "${#BASH_REMATCH[1]}" 100
	says "# in the store, . in the backing file, - in part, _ missing"
	says "process ${pids#* }"
	# In colours on a terminal, but not where somebody asks for none.
	script -qec "'$CISTERN' inspect --map '$STORE' f.nc" /dev/null | grep -q $'\033\[3[1-6]m#'
	refute grep -q $'\033' <(NO_COLOR=1 script -qec "'$CISTERN' inspect --map '$STORE' f.nc" /dev/null)
}

@test "padding that netCDF-C leaves behind the records of a variable alone is no record" {
	mount_cistern -o data=log,checkpoint_interval=1h
	echo 'netcdf odd { dimensions: t = UNLIMITED ; x = 3 ; variables: short b(t, x) ; data:
		b = 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21 ; }' >"$WORK/cdl"
	ncgen -k cdf5 -o "$MNT/odd.nc" "$WORK/cdl"
	is "$(of odd.nc '[.records, .note, .variables[].complete] | map(tostring) | join(" ")')" '7 null true true'
}

@test "what cannot be mapped is raw, and why is said" {
	mount_cistern -o drain=unmount,data=log,checkpoint_interval=1h
	head -c 10000 /dev/zero >"$MNT/zeros"
	head -c 10000 /dev/zero | tr '\0' x >"$MNT/text"
	: >"$MNT/empty"
	printf 'CDF\5\0\0\0\0\0\0\0\0\0\0\0\12' >"$MNT/begun.nc"
	is "$(of zeros .mapped)" false
	is "$(of zeros '.ranges[0].len')" 10000
	run "$CISTERN" inspect "$STORE" zeros
	[[ $output == *"raw, not yet mapped: its first bytes are zeros"*"WHERE"* ]]
	run "$CISTERN" inspect "$STORE" text
	[[ $output == *"raw, not yet mapped: it begins like no format that is known here"* ]]
	run "$CISTERN" inspect "$STORE" empty
	[[ $output == *"raw, not yet mapped: it is empty"* ]]
	run "$CISTERN" inspect "$STORE" begun.nc
	[[ $output == *"it begins like netCDF classic, but cannot be mapped (yet): the file ends inside the header"* ]]
}

@test "a path that is longer than any call takes spoils no list" {
	mount_cistern -o data=log
	echo x >"$MNT/f"
	(cd "$MNT" && python3 - <<-'END'
		import os
		for i in range(18):
		    os.mkdir("d" * 240)
		    os.chdir("d" * 240)
		open("deep", "w").write("123")
	END
	)
	kill_daemon
	release_mount "$MNT"
	"$CISTERN" inspect "$STORE" >"$WORK/list"
	grep -q ' f$' "$WORK/list"
	is "$(grep -c 'its path is too long' "$WORK/list")" 3
	[[ "$("$CISTERN" inspect --json "$STORE" | jq -r '.files[] | select(.size == 3).path')" == '(inode '*', its path is too long)' ]]
}

@test "inspect tells datasets and chunks of netCDF-4 files, and says when there is nothing to map yet" {
	mount_cistern -o drain=unmount,data=log,checkpoint_interval=1h
	cat >"$WORK/n.cdl" <<-'END'
		netcdf n {
		dimensions: t = UNLIMITED ; x = 100 ;
		variables:
		  double fixed(x) ; fixed:_Storage = "contiguous" ;
		  int whole(t, x) ; whole:_ChunkSizes = 2, 30 ;
		  int packed(t, x) ; packed:_ChunkSizes = 1, 100 ; packed:_DeflateLevel = 1 ;
		data: fixed = 1, 2 ;
		whole = 1, 2, 3 ; packed = 1, 2, 3 ;
		}
	END
	ncgen -k nc4 -o "$MNT/n.nc" "$WORK/n.cdl"
	[[ "$(of n.nc .format)" == "netCDF-4 (superblock "* ]]
	is "$(var n.nc fixed log_bytes) $(var n.nc fixed complete)" '800 true'
	# 100 elements in chunks of 30: the last one reaches over the edge.
	is "$(var n.nc whole complete_parts)/$(var n.nc whole parts) $(var n.nc whole log_bytes)" "4/4 $((4 * 2 * 30 * 4))"
	is "$(var n.nc packed complete)" true
	same_word "$(of n.nc .records)" "$(ncdump -h "$MNT/n.nc" | sed -n 's/.*t = UNLIMITED.*(\([0-9]*\) currently)/\1/p')"
	is "$(var n.nc metadata missing_bytes)" 0
	# Of two dimensions that grow, none is that of the records.
	echo 'netcdf u { dimensions: a = UNLIMITED ; b = UNLIMITED ; variables: int v(a) ; int w(a, b) ; data: v = 1, 2 ; }' >"$WORK/u.cdl"
	ncgen -k nc4 -o "$MNT/u.nc" "$WORK/u.cdl"
	is "$(var u.nc v dims | tr -d ' \n') $(of u.nc .records)" "[2] null"
	# Before a writer's close the way to the data is in its memory alone.
	head -c 96 "$MNT/n.nc" >"$MNT/begun.nc"
	truncate -s 4096 "$MNT/begun.nc"
	is "$(of begun.nc .mapped)" false
	run "$CISTERN" inspect "$STORE" begun.nc
	[[ $output == *"raw, not yet mapped: it begins like HDF5"* ]]
}

@test "the elements of compact datasets are theirs, and not the metadata around them" {
	needs_program h5repack h5dump
	mount_cistern -o drain=unmount,data=log
	cat >"$WORK/n.cdl" <<-'END'
		netcdf n {
		dimensions: x = 100 ; y = 7 ;
		variables: double a(x) ; short b(y) ; int far(x) ;
		data: a = 1, 2 ; b = 1, 2, 3 ; far = 5 ;
		}
	END
	ncgen -k nc4 -o "$WORK/n.nc" "$WORK/n.cdl"
	h5repack -l a,b:COMPA "$WORK/n.nc" "$MNT/n.nc"
	# h5dump's words of each: where its elements are, and how many bytes.
	for name in a b far; do
		h5dump -pH -d "/$name" "$MNT/n.nc" | awk '/STORAGE_LAYOUT/ { at = 1 } at && /COMPACT|CONTIGUOUS/ { kind = $1 }
			at && /SIZE/ { print kind, $2; exit }'
	done >"$WORK/theirs"
	is "$(tr '\n' ' ' <"$WORK/theirs")" "COMPACT 800 COMPACT 14 CONTIGUOUS 400 "
	for name in a b far; do is "$(var n.nc $name log_bytes) $(var n.nc $name complete)" "$(var n.nc $name defined_bytes) true"; done
	is "$(var n.nc a log_bytes) $(var n.nc b log_bytes) $(var n.nc far log_bytes)" "800 14 400"
	# No byte counts twice, and none is lost.
	is "$(var n.nc metadata missing_bytes)" 0
	same_word "$(of n.nc '([.variables[].log_bytes] | add) + .other_log_bytes')" "$(of n.nc .log_bytes)"
	is "$("$CISTERN" inspect --json "$STORE" n.nc | jq '.file.variables | map(.missing_bytes) | add')" 0
}

@test "headers that a file has had are told" {
	mount_cistern -o drain=unmount,data=log,checkpoint_interval=1h
	cat >"$WORK/grow.py" <<-'END'
		import sys
		small, large, path = sys.argv[1:]
		with open(path, "w+b", buffering=0) as f:
		    for source in small, large:
		        f.seek(0)
		        f.write(open(source, "rb").read())
		        f.seek(4)
		        f.write(bytes(4))
	END
	echo 'netcdf a { dimensions: t = UNLIMITED ; variables: int a(t) ; data: a = 1 ; }' | ncgen -k 1 -o "$DIRECT/a.nc" -
	echo 'netcdf a { dimensions: t = UNLIMITED ; variables: int a(t) ; short b(t) ; data: a = 1 ; b = 2 ; }' |
		ncgen -k 1 -o "$DIRECT/b.nc" -
	python3 "$WORK/grow.py" "$DIRECT/a.nc" "$DIRECT/b.nc" "$MNT/f.nc"
	is "$(of f.nc '.header_generations | map("\(.variables) \(.record_bytes)") | join(", ")')" '1 4, 2 8'
	is "$(of f.nc .header_writes_of_records)" 2
	run "$CISTERN" inspect "$STORE" f.nc
	[[ $output == *"header: 4 writes, 2 of them of the number of records alone"*"  2. "*"2 variables"* ]]
	# What has been drained and given back is not made up.
	flush
	is "$(of f.nc '.header_writes_given_back >= 0 and .mapped')" true
}

# redefine STEP FILE: one opening of a file by netCDF-C's library: it is made, or gets a long attribute, a variable, a dimension.
redefine() {
	python3 - "$@" <<-'END'
		import ctypes, ctypes.util, sys
		step, path = (word.encode() for word in sys.argv[1:])
		lib = ctypes.CDLL(ctypes.util.find_library("netcdf"))
		f, var, dims = ctypes.c_int(), ctypes.c_int(), (ctypes.c_int * 2)()
		at = (ctypes.c_size_t * 2)(0, 0)
		num = (ctypes.c_size_t * 2)(3, 1000)

		def call(name, *args):
		    r = getattr(lib, "nc_" + name)(*args)
		    if r != 0:
		        raise OSError("nc_%s: %d" % (name, r))

		if step == b"first":
		    call("create", path, 0x20, ctypes.byref(f))
		    call("def_dim", f, b"t", ctypes.c_size_t(0), ctypes.byref(dims))
		    call("def_dim", f, b"x", ctypes.c_size_t(1000), ctypes.byref(dims, 4))
		else:
		    call("open", path, 1, ctypes.byref(f))
		    call("redef", f)
		    call("inq_dimid", f, b"t", ctypes.byref(dims))
		    call("inq_dimid", f, b"x", ctypes.byref(dims, 4))
		if step == b"text":
		    call("put_att_text", f, -1, b"history", ctypes.c_size_t(20000), b"h" * 20000)
		elif step == b"dimension":
		    call("def_dim", f, b"y", ctypes.c_size_t(7), ctypes.byref(var))
		else:
		    call("def_var", f, step, 4, 2, dims, ctypes.byref(var))
		call("enddef", f)
		if step in (b"first", b"late"):
		    call("put_vara_int", f, var, at, num, (ctypes.c_int * 3000)(*range(3000)))
		call("close", f)
	END
}

# header_of FILE: its dimensions, variables, bytes and where data begin, as PnetCDF's tools say.
header_of() {
	ncmpidump -h "$1" >"$WORK/dumped"
	ncoffsets -s "$1" >"$WORK/offsets"
	echo "$(sed -n '/^dimensions:/,/^variables:/p' "$WORK/dumped" | grep -c ' = ')" "$(grep -c '^	[a-z]* [a-z]*(.*) ;$' "$WORK/dumped")" \
		"$(sed -n 's/^	size *= \([0-9]*\) bytes.*/\1/p' "$WORK/offsets")" \
		"$(sed -n 's/.*start file offset = *\([0-9]*\).*/\1/p' "$WORK/offsets" | sort -n | head -1)"
}

@test "of the headers that netCDF-C made one after the other, those whose bytes are there are told, and the others counted" {
	needs_program ncmpidump ncoffsets
	python3 -c 'import ctypes.util, sys; sys.exit(not ctypes.util.find_library("netcdf"))' || skip "there is no libnetcdf"
	mount_cistern -o drain=unmount,data=log,checkpoint_interval=1h
	for step in first text late dimension; do
		redefine $step "$DIRECT/f.nc"
		redefine $step "$MNT/f.nc"
		header_of "$DIRECT/f.nc" >>"$WORK/made"
	done
	cmp "$DIRECT/f.nc" "$MNT/f.nc"
	is "$(wc -l <"$WORK/made")" 4
	is "$(cut -d ' ' -f 1,2 "$WORK/made" | xargs)" '2 1 2 1 2 2 3 2'
	of f.nc '.header_generations[] | "\(.dimensions) \(.variables) \(.header_bytes) \(.first_begin)"' >"$WORK/told"
	cat "$WORK/told"
	# Some of the older ones have been written over as a whole, and their space given back: no other one is told of instead.
	is "$(tail -n 1 "$WORK/told")" "$(tail -n 1 "$WORK/made")"
	diff <(grep -Fx -f "$WORK/told" "$WORK/made") "$WORK/told"
	[ "$(wc -l <"$WORK/told")" -eq 4 ] || [ "$(of f.nc .header_writes_given_back)" -gt 0 ]
}

@test "the picture is an SVG of bounded size that names the variables" {
	mount_cistern -o drain=unmount,data=log,checkpoint_interval=1h
	make_cdl | ncgen -k 5 -o "$MNT/f&.nc" -
	"$CISTERN" inspect --svg "$WORK/f.svg" "$STORE" 'f&.nc' >/dev/null
	python3 - "$WORK/f.svg" <<-'END'
		import sys, xml.dom.minidom
		svg = xml.dom.minidom.parse(sys.argv[1])
		words = [t.firstChild.data for t in svg.getElementsByTagName("text")]
		assert words[0].startswith("f&.nc: netCDF classic (CDF-5)"), words
		assert "x" in words and "f" in words and "now" in words, words
		assert len(svg.getElementsByTagName("rect")) > 5
	END
	[ "$(stat -c %s "$WORK/f.svg")" -lt 1000000 ]
	run "$CISTERN" inspect --svg "$WORK/none/f.svg" "$STORE" 'f&.nc'
	[ "$status" -eq 1 ]
	[[ $output == *"none/f.svg: No such file or directory"* ]]
}

@test "of a file that two nodes write, each one's part is known, and with both stores all" {
	start_job 2 data=log,checkpoint_interval=1h
	make_cdl >"$WORK/f.cdl"
	ncgen -x -k 5 -o "$DIRECT/f.nc" "$WORK/f.cdl"
	cp "$DIRECT/f.nc" "$WORK/m0/f.nc"
	begin=$("$top_builddir/tests/unit/dump-classic" "$DIRECT/f.nc" | sed -n 's/^\/\/ f \([0-9]*\) .*/\1/p')
	pid=$(python3 - "$WORK/m0/f.nc" "$WORK/m1/f.nc" "$begin" <<-'END'
		import os, sys
		print(os.getpid())
		a, b = (os.open(path, os.O_RDWR) for path in sys.argv[1:3])
		begin = int(sys.argv[3])
		os.pwrite(a, b"a" * 4000, begin)
		os.pwrite(b, b"b" * 8000, begin + 4000)
		for fd in a, b:
		    os.fsync(fd)
		    os.close(fd)
	END
	)
	"$CISTERN" inspect --json --with "$WORK/s1" "$WORK/m0/f.nc" >"$WORK/both.json"
	is "$(jq -r '.file.variables[] | select(.name == "f") | .writers | map("\(.node) \(.bytes)") | join(", ")' "$WORK/both.json")" \
		'1 8000, 0 4000'
	is "$(jq -r '.file.variables[] | select(.name == "f") | .complete_parts' "$WORK/both.json")" 1
	# A share map knows nodes; their processes are known from their stores.
	is "$(jq -r '.file.variables[] | select(.name == "f") | .writers | map(.process) | join(" ")' "$WORK/both.json")" "$pid $pid"
	# Through the other node's mount, whose store has no name for the file.
	"$CISTERN" inspect --json "$WORK/m1/f.nc" >"$WORK/one.json"
	is "$(jq -r '.file.format' "$WORK/one.json")" 'netCDF classic (CDF-5)'
	is "$(jq -r '.file.variables[] | select(.name == "f") | [.writers[] | select(.node == 1)][0].bytes' "$WORK/one.json")" 8000
	# By its store alone the header may be out of reach, and that is said.
	run "$CISTERN" inspect "$WORK/s0" f.nc
	[[ $output == *"note: other nodes write it, too"* ]]
	"$CISTERN" inspect --json "$WORK/s0" >"$WORK/list.json"
	"$CISTERN" inspect --json --conflicts "$WORK/s0" "$WORK/s1" >"$WORK/conflicts.json"
	fits "$WORK"/{both,one,list,conflicts}.json
	is "$(jq -r '.job_uuid | length' "$WORK/list.json")" 36
	run "$CISTERN" inspect --with "$WORK/s0" "$WORK/m0/f.nc"
	[ "$status" -eq 1 ]
	[[ $output == *"are both of node 0 (host $(hostname))"* ]]
	stop_job
}

# report FILTER STORE...: of f.nc in the job's stores.
report() {
	"$CISTERN" inspect --json "${@:2}" f.nc >"$WORK/report.json" || return
	fits "$WORK/report.json" || return
	jq "$1" "$WORK/report.json"
}

@test "the stores of a dead job tell of a file what its mount told; with one lost, what cannot be seen is listed" {
	local told='.file | [.size, .format, .records, .variables, .writes, .written_bytes, .overwritten_bytes, .header_generations]'
	start_job 2 data=log,checkpoint_interval=1h
	make_cdl >"$WORK/f.cdl"
	ncgen -x -k 5 -o "$DIRECT/f.nc" "$WORK/f.cdl"
	begin=$("$top_builddir/tests/unit/dump-classic" "$DIRECT/f.nc" | sed -n 's/^\/\/ f \([0-9]*\) .*/\1/p')
	# The header by node 1, the home of the file being node 0; each node over a part of what the other wrote; two variables renamed.
	python3 - "$DIRECT/f.nc" "$WORK/m0/f.nc" "$WORK/m1/f.nc" "$begin" <<-'END'
		import os, sys
		whole = open(sys.argv[1], "rb").read()
		begin = int(sys.argv[4])
		a = os.open(sys.argv[2], os.O_RDWR | os.O_CREAT)
		b = os.open(sys.argv[3], os.O_RDWR)
		os.pwrite(b, whole, 0)
		os.fsync(b)
		os.pwrite(a, b"a" * 6000, begin)
		os.fsync(a)
		os.pwrite(b, b"b" * 4000, begin + 4000)
		os.fsync(b)
		renamed = whole.replace(b"\0\0\0\1s\0\0\0", b"\0\0\0\1z\0\0\0")
		assert renamed != whole
		os.pwrite(a, renamed[:begin], 0)
		os.fsync(a)
		os.close(a)
		os.close(b)
	END
	: >"$WORK/m0/g.nc"
	cp "$DIRECT/f.nc" "$WORK/m1/g.nc"
	"$CISTERN" inspect --json --with "$WORK/s1" "$WORK/m0/f.nc" >"$WORK/mounted.json"
	cp "$WORK/m0/f.nc" "$WORK/seen.nc"
	kill_job
	jq "$told" "$WORK/mounted.json" >"$WORK/mounted"
	is "$(jq -r '.[3][] | select(.name == "f") | .writers | map("\(.node) \(.bytes)") | join(", ")' "$WORK/mounted")" '1 8000, 0 4000'
	is "$(jq -r '.[3] | map(.name) | join(" ")' "$WORK/mounted")" '(header) x f z n'
	# However they are named: none of them is the one that knows.
	diff "$WORK/mounted" <(report "$told" "$WORK/s0" "$WORK/s1")
	diff "$WORK/mounted" <(report "$told" "$WORK/s1" "$WORK/s0")
	diff "$WORK/mounted" <(report "$told" --with "$WORK/s0" "$WORK/s1")
	is "$(jq -r '.file.one_store_of_many' "$WORK/report.json")" false
	# What the last header's writer, the home, has alone; and what the other one has.
	is "$(report '.file | [.stores_not_given, .format, .unseen_bytes] | tostring' "$WORK/s0")" \
		"$(python3 -c 'import json, sys; print(json.dumps(json.dumps([[1], "netCDF classic (CDF-5)", int(sys.argv[1]) - int(sys.argv[2]) - 4000], separators=(",", ":"))))' \
			"$(stat -c %s "$WORK/seen.nc")" "$begin")"
	is "$(report '[.file.variables[] | select(.unseen_bytes > 0) | "\(.name) \(.unseen_bytes) \(.missing_bytes)"] | join(", ")' "$WORK/s0")" \
		'"f 8000 0, z 2000 0"'
	is "$(report '[.file.unseen[] | .node] | unique | tostring' "$WORK/s0")" '"[1]"'
	run "$CISTERN" inspect "$WORK/s0" f.nc
	echo "$output"
	[[ $output == *"note: other nodes write it, too, and 1 of 2 stores are not given"*"; node 1 (host $(hostname))"* ]]
	[[ $output == *"not seen: "*" of node 1 (host $(hostname))"* ]]
	is "$(report '.file | [.stores_not_given, .hosts_not_given] | tostring' "$WORK/s0" | jq -r .)" "[[1],[\"$(hostname)\"]]"
	run "$CISTERN" inspect "$WORK/s0" made-elsewhere
	[[ $output == *"1 of 2 stores are not given (node 1 (host $(hostname)))"* ]]
	run "$CISTERN" inspect "$WORK/s0" g.nc
	echo "$output"
	[[ $output == *"raw, cannot be mapped: the beginning of its header is lost (below)"* ]]
	[[ $output == *"lost: $(stat -c %s "$DIRECT/f.nc") bytes from offset 0 on: they are in the store of node 1 (host $(hostname)), which is not given"* ]]
	# A new file's name is at its home, and where it was opened by it; its newest header is the home's.
	is "$(report '.file | [.stores_not_given, .format] | tostring' "$WORK/s1")" '"[[0],null]"'
	exits 2 "$CISTERN" inspect --map "$WORK/s0"
}

# told FILE STORE...: inspect's words on a file of these stores; its --json is held against the schema.
told() {
	"$CISTERN" inspect --json "${@:2}" "$1" >"$WORK/told.json" || return
	fits "$WORK/told.json" || return
	output=$("$CISTERN" inspect "${@:2}" "$1")
}

# damage STORE HEX: turns the first of these bytes round in the store's segments, where they are once.
damage() {
	python3 - "$2" "$1"/segment/*.seg <<-'END'
		import sys
		wanted, hits = bytes.fromhex(sys.argv[1]), 0
		for name in sys.argv[2:]:
		    data = open(name, "rb").read()
		    at = data.find(wanted)
		    if at >= 0:
		        hits += data.count(wanted)
		        with open(name, "r+b") as f:
		            f.seek(at)
		            f.write(bytes([data[at] ^ 255]))
		assert hits == 1, hits
	END
}

@test "of a header that lies in the stores of two dead nodes, the bytes that are lost are named, with their node and what they mean" {
	local header half cut v
	start_job 2 data=log,checkpoint_interval=1h
	{ echo 'netcdf f { dimensions: x = 10 ; variables:'; for v in {1..40}; do echo "int v$v(x) ; v$v:long_name = \"variable $v\" ;"; done; echo '}'; } >"$WORK/f.cdl"
	ncgen -k 5 -o "$DIRECT/f.nc" "$WORK/f.cdl"
	sed 's/variable \([0-9]*\)"/dataset \1:"/' "$WORK/f.cdl" >"$WORK/h.cdl"
	ncgen -k nc4 -o "$DIRECT/h.nc" "$WORK/h.cdl"
	header=$("$top_builddir/tests/unit/dump-classic" "$DIRECT/f.nc" | sed -n 's/^\/\/ v1 \([0-9]*\) .*/\1/p')
	half=$((header / 2))
	cut=$(($(grep -abo 'dataset [0-9]*:' "$DIRECT/h.nc" | tail -n 1 | cut -d: -f1) - 300))
	# Each file in two parts, the first by the home; the last of the HDF5 file has headers of datasets.
	python3 - "$DIRECT" "$WORK/m0" "$WORK/m1" "$half" "$cut" <<-'END'
		import os, sys
		for name, cut in ("f.nc", int(sys.argv[4])), ("h.nc", int(sys.argv[5])):
		    whole = open(f"{sys.argv[1]}/{name}", "rb").read()
		    assert len(whole) > cut
		    for mount, part, off in (sys.argv[2], whole[:cut], 0), (sys.argv[3], whole[cut:], cut):
		        fd = os.open(f"{mount}/{name}", os.O_RDWR | os.O_CREAT)
		        os.pwrite(fd, part, off)
		        os.fsync(fd)
		        os.close(fd)
	END
	python3 - "$DIRECT/f.nc" "$WORK/m0/g.nc" "$WORK/m1/g.nc" "$header" <<-'END'
		import os, sys
		whole, header = open(sys.argv[1], "rb").read(), int(sys.argv[4])
		for name, part, off in (sys.argv[2], whole[:header], 0), (sys.argv[3], b"values" * 50, header), (sys.argv[2], whole[header + 300:], header + 300):
		    fd = os.open(name, os.O_RDWR | os.O_CREAT)
		    os.pwrite(fd, part, off)
		    os.fsync(fd)
		    os.close(fd)
	END
	kill_job
	told f.nc "$WORK"/s?
	says 'netCDF classic (CDF-5): 40 variables, 40 of them complete'
	told h.nc "$WORK"/s?
	says 'netCDF-4 (superblock'
	says ': 40 variables'
	is "$(jq '.file | has("lost")' "$WORK/told.json")" false
	# One store is not there.
	told f.nc "$WORK/s0"
	says 'raw, cannot be mapped: a part of its header is lost (below), and with it what the other bytes mean'
	says "lost: $(($(stat -c %s "$DIRECT/f.nc") - half)) bytes from offset $half on: they are in the store of node 1 (host $(hostname)), which is not given"
	is "$(jq -c '.file.lost | map([.off, .node, .why])' "$WORK/told.json")" "[[$half,1,\"store not given\"]]"
	mkdir "$WORK/to" "$WORK/to1"
	exits 3 "$CISTERN" recover "$WORK/s0" --to "$WORK/to" --backing "$WORK/b"
	says "f.nc: $(($(stat -c %s "$DIRECT/f.nc") - half)) bytes, the first at offset $half, were not there to be read, since only the lost store has them, of node 1 (host $(hostname)): they are zeros"
	told h.nc "$WORK/s0"
	says 'note: metadata of it is lost (below): what that leads to is not in the table, or not as it was: '
	says "lost: $(($(stat -c %s "$DIRECT/h.nc") - cut)) bytes from offset $cut on: they are in the store of node 1 (host $(hostname)), which is not given"
	# Their beginning: no program can tell what these are.
	exits 3 "$CISTERN" recover "$WORK/s1" --to "$WORK/to1" --backing "$WORK/b"
	says "f.nc: $half bytes, the first at offset 0, were not there to be read"
	says 'without its beginning, no program opens it as what it was'
	# Both are there, and one is damaged.
	cp -a "$WORK/s1" "$WORK/s1.good"
	damage "$WORK/s1" "$(tail -c +$((half + 1)) "$DIRECT/f.nc" | head -c 300 | od -An -v -tx1 | tr -d ' \n')"
	told f.nc "$WORK"/s?
	says 'raw, cannot be mapped: a part of its header is lost'
	says "from offset $half on: they are damaged in segment "
	is "$(jq -c '.file.lost | map([.off, .node, .why])' "$WORK/told.json")" "[[$half,1,\"checksum wrong\"]]"
	v=$(tail -c +"$cut" "$DIRECT/h.nc" | grep -ao 'dataset [0-9]*:' | head -n 1)
	damage "$WORK/s1" "$(printf %s "$v" | od -An -v -tx1 | tr -d ' \n')"
	told h.nc "$WORK"/s?
	says "from offset $cut on, in metadata: they are damaged in segment "
	says 'note: metadata of it is lost (below)'
	rm "$WORK"/s1/segment/*.seg
	told f.nc "$WORK"/s?
	says ' bytes from offset '"$((header / 2))"' on: segment '
	says "of the store of node 1 (host $(hostname)) cannot be read; 'cistern fsck' says more"
	# What comes behind a header has nothing to do with it.
	rm -r "$WORK/s1"
	mv "$WORK/s1.good" "$WORK/s1"
	told g.nc "$WORK"/s?
	says 'netCDF classic (CDF-5): 40 variables, 40 of them complete'
	damage "$WORK/s1" "$(printf 'values%.0s' {1..50} | od -An -v -tx1 | tr -d ' \n')"
	told g.nc "$WORK"/s?
	says 'netCDF classic (CDF-5): 40 variables, 40 of them complete'
	says "lost: 300 bytes from offset $header on, in v1: they are damaged in segment "
}

# counts NAME FILE...: defined, logged, drained, missing and overwritten bytes of a dataset, as inspect says of what follows it.
counts() {
	"$CISTERN" inspect --json "${@:2}" >"$WORK/counts.json" || return
	fits "$WORK/counts.json" || return
	jq -r --arg name "$1" '.file.variables[] | select(.name == $name) |
		[.defined_bytes, .log_bytes, .drained_bytes, .missing_bytes, .overwritten_bytes, .complete] | map(tostring) | join(" ")' \
		"$WORK/counts.json"
}

# var_of JSON NAME FIELD
var_of() {
	jq -r ".file.variables[] | select(.name == \"$2\") | .$3" "$1"
}

# in_mount COMMAND...: where HDF5 looks for external files.
in_mount() {
	(cd "$MNT/d" && "$@")
}

# equal_elements FILE: how many of x's elements, from the first on, HDF5 still reads as they were written.
equal_elements() {
	in_mount h5dump -y -w 1 -d /x "$1" | tr -d ' ,' | grep -E '^[0-9]+$' | awk '$1 != i * i { exit } { i++ } END { print i }'
}

@test "elements of a dataset in external files are counted where those are in the mount, as HDF5 finds them" {
	local facts=$top_builddir/tests/mpi/h5-facts
	[ -x "$facts" ] || skip "built without HDF5, so nobody makes external files"
	needs_program h5dump h5stat
	mount_cistern -o drain=unmount,data=log,checkpoint_interval=1h
	mkdir -p "$MNT/d/sub"
	in_mount "$facts" pieces p.h5 sub/../more.bin
	is "$(in_mount h5stat p.h5 | sed -n 's/^External raw data: \([0-9]*\) bytes/\1/p')" 240
	is "$(counts x "$MNT/d/p.h5")" '240 240 0 0 0 true'
	is "$(counts x "$STORE" d/p.h5)" '240 240 0 0 0 true'
	is "$(var d/p.h5 x 'writers | map(.bytes) | join(" ")')" 240
	# One of the elements is 4, which is the dataset's fill value.
	is "$(var d/p.h5 x fill_bytes) $(var d/p.h5 x looked_bytes)" '4 240'
	# Six bytes of piece.bin's 40 that are the dataset's, and two that are not.
	printf 'xxxxxxxx' | dd of="$MNT/d/piece.bin" bs=1 seek=42 conv=notrunc status=none
	is "$(counts x "$MNT/d/p.h5")" '240 240 0 0 6 true'
	is "$(equal_elements p.h5)" 8
	# Shorter than the dataset needs: HDF5 reads zeros.
	truncate -s 150 "$MNT/d/more.bin"
	is "$(counts x "$MNT/d/p.h5")" '240 190 0 50 56 false'
	is "$(var d/p.h5 x 'first_gap[0]')" 47
	is "$(var d/p.h5 x 'elsewhere | map("\(.path) \(.log_bytes) \(.missing_bytes)") | join(", ")')" 'd/piece.bin 40 0, d/more.bin 150 50'
	flush
	is "$(counts x "$MNT/d/p.h5")" '240 0 190 50 0 false'
	umount_wait
	rm -rf "$STORE"
	mount_cistern -o drain=unmount,data=log,checkpoint_interval=1h
	# The dataset's file alone is known to the store.
	touch "$MNT/d/p.h5"
	is "$(counts x "$STORE" d/p.h5)" '240 0 190 50 0 false'
	is "$(counts x "$MNT/d/p.h5")" '240 0 190 50 0 false'
	mv "$MNT/d/piece.bin" "$MNT/d/sub/piece.bin"
	refute in_mount h5dump -d /x p.h5 >&2
	for where in "$MNT/d/p.h5" "$STORE d/p.h5"; do
		# shellcheck disable=SC2086
		run "$CISTERN" inspect $where
		[[ $output == *"x: 40 bytes from offset 8 on of piece.bin: not counted, there is no such file"* ]]
		[[ $output == *"x: 200 bytes from offset 0 on of sub/../more.bin: not counted, since others are not"* ]]
	done
	is "$(counts x "$STORE" d/p.h5)" '0 0 0 0 0 false'
	mv "$MNT/d/sub/piece.bin" "$MNT/d/piece.bin"
	is "$(counts x "$STORE" d/p.h5)" '240 0 190 50 0 false'
}

@test "an external file by its whole path, in the mount and outside; what nobody wrote is missing" {
	local facts=$top_builddir/tests/mpi/h5-facts
	[ -x "$facts" ] || skip "built without HDF5, so nobody makes external files"
	needs_program h5dump
	mount_cistern -o drain=unmount,data=auto
	mkdir -p "$MNT/d" "$MNT/other"
	in_mount "$facts" pieces p.h5 "$MNT/other/more.bin"
	is "$(counts x "$MNT/d/p.h5")" '240 240 0 0 0 true'
	rm "$MNT/other/more.bin"
	is "$(counts x "$STORE" d/p.h5)" '240 40 0 200 0 false'
	is "$(var d/p.h5 x 'first_gap[0]')" 10
	in_mount "$facts" pieces out.h5 ../../outside.bin
	run "$CISTERN" inspect "$MNT/d/out.h5"
	[[ $output == *"of piece.bin: not counted, since others are not"*"of ../../outside.bin: not counted, it is outside of this mount"* ]]
	is "$(var d/out.h5 x 'elsewhere | map("\(.counted) \(.reason)") | join(", ")')" 'false null, false it is outside of this mount'
}

@test "an external file that several nodes write counts with all of their stores, and what of it is not seen is said" {
	local facts=$top_builddir/tests/mpi/h5-facts
	[ -x "$facts" ] || skip "built without HDF5, so nobody makes external files"
	start_job 2 data=log,checkpoint_interval=1h
	(cd "$WORK/m0" && "$facts" pieces f.nc more.bin)
	dd if=/dev/zero of="$WORK/m1/more.bin" bs=100 seek=1 count=1 conv=notrunc,fsync status=none
	is "$(counts x --with "$WORK/s1" "$WORK/m0/f.nc")" '240 240 0 0 100 true'
	is "$(var_of "$WORK/counts.json" x 'writers | map("\(.node) \(.bytes)") | join(", ")')" '0 140, 1 100'
	kill_job
	is "$(counts x "$WORK/s1" "$WORK/s0" f.nc)" '240 240 0 0 100 true'
	is "$(counts x "$WORK/s0" f.nc)" '240 240 0 0 0 true'
	is "$(var_of "$WORK/counts.json" x 'elsewhere | map(.unseen_bytes) | tostring')" '[null,100]'
}

@test "what processes of an MPI program wrote adds up, and what none of them wrote is missing" {
	local wrote
	needs_mpi
	needs_built tests/bench/e3sm
	mount_cistern -o drain=unmount,data=log,checkpoint_interval=1h
	# Land: what is sea is never written.
	wrote=$(no_leaks mpiexec.mpich -n 2 "$top_builddir/tests/bench/e3sm" --case=I --size=tiny "$MNT/i.nc" 3>&-)
	"$CISTERN" inspect --json "$MNT/i.nc" >"$WORK/i.json"
	is "$(jq '[.file.variables[] | .log_bytes + .overwritten_bytes] | add' "$WORK/i.json")" \
		"$(($(jq .bytes <<<"$wrote") - $(jq .file.other_log_bytes "$WORK/i.json")))"
	same_word "$(jq '[.file.variables[] | select(.kind != "header")] | length' "$WORK/i.json")" "$(jq .variables <<<"$wrote")"
	is "$(jq '[.file.variables[].writers[].process] | unique | length' "$WORK/i.json")" 2
	# A hole of the file is a gap of a variable: both ways of looking at it give as many bytes.
	python3 - "$MNT/i.nc" "$WORK/i.json" <<-'END'
		import json, sys
		data, file = open(sys.argv[1], "rb").read(), json.load(open(sys.argv[2]))["file"]
		step = file["record_bytes"]
		holes = 0
		for v in file["variables"]:
		    if not v["missing_bytes"]:
		        assert v["first_gap"] is None and v["complete"], v
		        continue
		    holes += 1
		    size = {"float": 4, "double": 8, "int": 4, "char": 1}[v["type"]]
		    at, record, dims = 0, 0, v["dims"]
		    index = v["first_gap"]
		    if v["kind"] == "record variable":
		        record, index, dims = index[0], index[1:], dims[1:]
		    for i, n in zip(index, dims):
		        at = at * n + i
		    where = v["begin"] + record * step + at * size
		    assert data[where:where + size] == bytes(size), (v["name"], where)
		assert holes > 100, holes
	END
}

@test "what --json prints is what docs/inspect.schema.json says, and nothing in the schema is made up" {
	local k=0
	cp "$top_srcdir/tests/fuzz/corpus/hdf5/heaps" "$BACKING/elsewhere.h5"
	mount_cistern -o drain=unmount,data=log,checkpoint_interval=1h
	make_cdl >"$WORK/f.cdl"
	ncgen -k 5 -o "$MNT/f.nc" "$WORK/f.cdl"
	ncgen -k nc4 -o "$MNT/four.nc" "$WORK/f.cdl"
	echo 'netcdf s { dimensions: x = 2 ; variables: string s(x) ; data: s = "one", "two" ; }' >"$WORK/s.cdl"
	ncgen -k nc4 -o "$MNT/strings.nc" "$WORK/s.cdl"
	echo text >"$MNT/raw"
	ln -s raw "$MNT/link"
	for file in f.nc four.nc strings.nc raw elsewhere.h5; do "$CISTERN" inspect --json --ranges "$MNT/$file" >"$WORK/one-$file.json"; done
	"$CISTERN" inspect --json "$STORE" >"$WORK/list.json"
	flush
	"$CISTERN" inspect --json "$MNT/f.nc" >"$WORK/one-drained.json"
	umount_wait
	"$CISTERN" inspect --json "$STORE" >"$WORK/list-unmounted.json"
	is "$(jq -c '[.file.variables[] | select(.name == "pieces") | .elsewhere[]]' "$WORK/one-elsewhere.h5.json")" \
		'[{"file":"piece-a.bin","offset":100,"bytes":40,"counted":false,"reason":"there is no such file","path":"piece-a.bin"},'\
'{"file":"piece-b.bin","offset":0,"bytes":60,"counted":false,"reason":"there is no such file","path":"piece-b.bin"},'\
'{"file":"piece-a.bin","offset":200,"bytes":100,"counted":false,"reason":"there is no such file","path":"piece-a.bin"}]'
	is "$(jq -r '.file.variables[] | select(.name == "mapped") | .elsewhere | map("\(.object) in \(.file)") | join(", ")' \
		"$WORK/one-elsewhere.h5.json")" '/x in a.h5, /contiguous in .'
	fits "$WORK"/{one,list}-*.json "$WORK/list.json"
	# A field that goes, or comes, is noticed.
	for change in 'del(.file.size)' '.file.new_field = 1' '.file.variables[0].kind = "other"' '.file.variables[0].complete = 1'; do
		jq "$change" "$WORK/one-f.nc.json" >"$WORK/changed.json"
		refute fits "$WORK/changed.json"
	done
	# Whatever the schema names has been seen in one of them, but for jobs.
	jq -r '.["$defs"] | (.list, .listed, .one, .totals, .file, .variable, .generation, .range) | .properties | keys[]' \
		"$top_srcdir/docs/inspect.schema.json" | sort -u >"$WORK/named"
	jq -r '.. | objects | keys[]' "$WORK"/{one,list}-*.json "$WORK/list.json" | sort -u >"$WORK/seen"
	is "$(comm -23 "$WORK/named" "$WORK/seen" | xargs)" "hosts_not_given job_uuid lost stores_not_given unseen unseen_bytes unseen_ranges"
}
