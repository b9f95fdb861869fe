#!/usr/bin/env bats
# SPDX-License-Identifier: GPL-3.0-or-later
#
# layout=netcdf4: what was written as netCDF classic is netCDF-4 in the end, as netCDF-C and HDF5's own tools see it.

load ../lib/mount
load ../lib/job
load ../lib/netcdf4

setup() {
	cistern_setup
	needs_fuse
	needs_program ncgen ncdump nccopy h5dump python3 jq setfattr
	needs_built cistern-nc4
}

converter() {
	"${top_builddir:?}/cistern-nc4" "$@"
}

extended() {
	cat <<'END'
netcdf extended {
dimensions: time = UNLIMITED ; x = 3 ;
variables:
	ubyte a(time, x) ; ushort b(x) ; uint c(x) ; int64 d(time) ; uint64 e(x) ;
	int64 x(x) ;
	d:_FillValue = -7LL ;
	:huge = 18446744073709551615ULL ;
data: a = 1, 2, 255 ; b = 1, 2, 65535 ; c = 1, 2, 4294967295 ; d = -9223372036854775807 ; e = 18446744073709551615, 0, 1 ;
	x = 10, 20, 30 ;
}
END
}

empty() {
	cat <<'END'
netcdf empty {
dimensions: time = UNLIMITED ; n = 3 ;
variables: float T(time, n) ; double time(time) ; int other(n) ;
}
END
}

not_mounted() {
	! is_mounted "$1"
}

kept_because() {
	jq -er --arg path "$1" '.files[] | select(.path == $path).kept.reason' "$STORE/manifest.json" | grep -F "$2"
}

@test "files of all kinds, through the mount and into netCDF-4" {
	local kind name
	mkdir "$WORK/cdl"
	for name in everything extended empty; do $name >"$WORK/cdl/$name"; done
	mount_cistern -o layout=netcdf4
	mkdir "$MNT/dir"
	for name in everything empty; do
		for kind in classic 64-bit-offset cdf5; do
			ncgen -k "$kind" -o "$DIRECT/$name-$kind.nc" "$WORK/cdl/$name"
		done
	done
	ncgen -k cdf5 -o "$DIRECT/extended.nc" "$WORK/cdl/extended"
	cp "$DIRECT"/*.nc "$MNT/dir"
	ncgen -k classic -o "$MNT/written-here.nc" "$WORK/cdl/everything"
	chmod 640 "$MNT/dir/extended.nc"
	setfattr -n user.note -v kept "$MNT/dir/extended.nc"
	touch -d '2001-02-03 04:05:06.123456789' "$MNT/dir/extended.nc"
	umount_wait
	no_leftovers "$BACKING"
	for name in "$DIRECT"/*.nc; do
		is_new "$BACKING/dir/${name##*/}"
		same_file "$name" "$BACKING/dir/${name##*/}"
		h5dump "$BACKING/dir/${name##*/}" >"$WORK/h5dump"
	done
	same_file "$DIRECT/everything-classic.nc" "$BACKING/written-here.nc"
	is "$(ncdump -k "$BACKING/written-here.nc")" "netCDF-4 classic model"
	is "$(ncdump -k "$BACKING/dir/extended.nc")" netCDF-4
	is "$(stat -c '%a %y' "$BACKING/dir/extended.nc")" "640 2001-02-03 04:05:06.123456789 +0000"
	getfattr --only-values -n user.note "$BACKING/dir/extended.nc" | grep -qx kept
	is "$(jq -r '[.files[] | select(.layout == "netcdf4" and .state == "verified")] | length' "$STORE/manifest.json")" 8
	[ ! -e "$STORE/drain.convert" ]
}

@test "the new file has the structure that nccopy gives it" {
	everything >"$WORK/cdl"
	ncgen -k classic -o "$WORK/c.nc" "$WORK/cdl"
	nccopy -k nc7 "$WORK/c.nc" "$WORK/theirs.nc"
	converter -o deflate=0 "$WORK/c.nc" "$WORK/ours.nc"
	# Types, spaces, attributes; not where things are, how chunked, nor what says who made it and numbers what needs none.
	structure() {
		h5dump -A "$1" | sed -e 's/DATASET [0-9]*/DATASET/g' | python3 -c '
import re, sys
text = sys.stdin.read()
for name in ("_NCProperties", "_Netcdf4Dimid"):
    text = re.sub(r"\n( *)ATTRIBUTE \"%s\" \{.*?\n\1\}(?=\n)" % name, "", text, flags=re.S)
sys.stdout.write(re.sub(r"^HDF5 .*", "", text))'
	}
	same_word "$(structure "$WORK/theirs.nc")" "$(structure "$WORK/ours.nc")"
}

@test "random files" {
	local seed
	for seed in 1 2 3 4 6 8 10 12; do
		python3 "$top_srcdir/tests/lib/random_classic.py" "$seed" "$WORK/o.nc"
		converter -o "deflate=$((seed % 3)),shuffle=$((seed % 2))" "$WORK/o.nc" "$WORK/n.nc" | grep -qx 'result converted'
		same_file "$WORK/o.nc" "$WORK/n.nc"
	done
}

@test "a file of thousands of variables is checked in the time of its bytes" {
	python3 -c 'print("netcdf many { dimensions: x = 2 ; y = 3 ; variables:")
for i in range(3000): print("float v%d(x, y) ;" % i)
print("}")' >"$WORK/cdl"
	ncgen -k cdf5 -o "$WORK/c.nc" "$WORK/cdl"
	# About a second. A search of the file for each reference takes minutes.
	timeout 60 "$top_builddir/cistern-nc4" "$WORK/c.nc" "$WORK/n.nc" | grep -qx 'result converted'
	same_file "$WORK/c.nc" "$WORK/n.nc"
}

@test "settings: rules, a file's own, chunks, compression" {
	everything >"$WORK/cdl"
	ncgen -k classic -o "$DIRECT/c.nc" "$WORK/cdl"
	cp "$DIRECT/c.nc" "$BACKING/was-there.nc"
	cp "$DIRECT/c.nc" "$BACKING/asked-for.nc"
	mount_cistern -o 'layout=rst*=canonical;*.nc=netcdf4,chunk=time:1/T:lat:2,deflate=3'
	for name in rst.nc h0.nc own.nc canonical.nc classic; do cp "$DIRECT/c.nc" "$MNT/$name"; done
	setfattr -n user.cistern.layout -v 'netcdf4;deflate=0;chunk=time:7,lon:2' "$MNT/own.nc"
	setfattr -n user.cistern.layout -v canonical "$MNT/canonical.nc"
	cp "$DIRECT/c.nc" "$MNT/was-there.nc"
	setfattr -n user.cistern.layout -v netcdf4 "$MNT/asked-for.nc"
	cp "$DIRECT/c.nc" "$MNT/asked-for.nc"
	flush
	for name in h0.nc own.nc; do cmp "$DIRECT/c.nc" "$BACKING/$name"; done # not before the end
	umount_wait
	for name in rst.nc canonical.nc classic was-there.nc; do cmp "$DIRECT/c.nc" "$BACKING/$name"; done
	for name in h0.nc own.nc asked-for.nc; do same_file "$DIRECT/c.nc" "$BACKING/$name"; is_new "$BACKING/$name"; done
	ncdump -hs "$BACKING/h0.nc" >"$WORK/h0"
	grep -q 'T:_ChunkSizes = 1, 2, 2, 4' "$WORK/h0"
	grep -q 'time:_ChunkSizes = 1' "$WORK/h0"
	grep -q 'T:_DeflateLevel = 3' "$WORK/h0"
	grep -q 'T:_Shuffle = "true"' "$WORK/h0"
	ncdump -hs "$BACKING/own.nc" >"$WORK/own"
	grep -q 'T:_ChunkSizes = 7, 2, 3, 2' "$WORK/own"
	refute grep -q Deflate "$WORK/own"
	refute mount_cistern -o layout=netcdf5
	refute mount_cistern -o deflate=10
}

# refused_attribute VALUE TEXT [NAME]: at once, and the log says why.
refused_attribute() {
	exits 1 setfattr -n user.cistern.layout -v "$1" "$MNT/${3:-own.nc}"
	says "Invalid argument"
	grep -q "layout-refused .*$2" "$STORE/cistern.log" || { echo "'$2' is not in:"; grep layout-refused "$STORE/cistern.log"; return 1; }
}

@test "an attribute with a wrong setting is refused when it is set" {
	mount_cistern
	: >"$MNT/own.nc"
	refused_attribute 'netcdf9' "one of canonical, netcdf4"
	refused_attribute 'netcdf4;chunk=time' "chunk: 'time' is not of the form DIMENSION:NUMBER"
	refused_attribute 'netcdf4;chunk=time:1,lev:x' "chunk: 'lev:x'"
	refused_attribute 'netcdf4;deflate=99' "deflate"
	refused_attribute 'netcdf4;shuffle=perhaps' "shuffle"
	refute getfattr -n user.cistern.layout "$MNT/own.nc"
	mkdir "$MNT/folder"
	refused_attribute netcdf4 'only a file has a layout of its own' folder
	refute getfattr -n user.cistern.layout "$MNT/folder"
	setfattr -n user.cistern.layout -v 'netcdf4;deflate=9;chunk=time:1/T:lev:10;shuffle=no' "$MNT/own.nc"
	umount_wait
}

@test "what cannot be converted stays as it is, and that is said" {
	everything >"$WORK/cdl"
	ncgen -k classic -o "$DIRECT/c.nc" "$WORK/cdl"
	mount_cistern -o layout=netcdf4
	head -c 900 "$DIRECT/c.nc" >"$DIRECT/short.nc"
	head -c 100 "$DIRECT/c.nc" >"$DIRECT/header.nc"
	python3 - "$DIRECT" <<'END'
import sys
data = open(sys.argv[1] + "/c.nc", "rb").read()
open(sys.argv[1] + "/damaged.nc", "wb").write(data[:8] + b"\xff\xff\xff\xff" + data[12:])
open(sys.argv[1] + "/stale.nc", "wb").write(data[:4] + b"\0\0\0\1" + data[8:])
open(sys.argv[1] + "/reserved.nc", "wb").write(data.replace(b"units", b"CLASS"))
END
	nccopy -k nc4 "$DIRECT/c.nc" "$DIRECT/new.nc"
	cp "$DIRECT/c.nc" "$DIRECT/linked.nc"
	cp "$DIRECT/c.nc" "$DIRECT/wrong.nc"
	echo text >"$DIRECT/text"
	: >"$DIRECT/nothing"
	cp "$DIRECT"/* "$MNT"
	ln "$MNT/linked.nc" "$MNT/second-name.nc"
	refute setfattr -n user.cistern.layout -v netcdf9 "$MNT/wrong.nc"
	exits 0 umount_wait
	says "6 files are not in the layout asked for: see \"kept\" and \"warning\" in $STORE/manifest.json"
	no_leftovers "$BACKING"
	is_new "$BACKING/c.nc"
	is_new "$BACKING/wrong.nc"
	for name in short header damaged stale reserved new linked; do cmp "$DIRECT/$name.nc" "$BACKING/$name.nc"; done
	cmp "$DIRECT/text" "$BACKING/text"
	kept_because short.nc "its values end at"
	kept_because header.nc "header"
	kept_because stale.nc "room for 2 records"
	kept_because reserved.nc "attribute CLASS"
	kept_because linked.nc "several names"
	kept_because new.nc "no netCDF classic file"
	kept_because text "no netCDF classic file"
	kept_because damaged.nc ""
	grep -q 'stale.nc keeps its layout' "$STORE/cistern.log"
	is "$(jq -r .exit_status "$STORE/manifest.json")" 0
}

@test "verify=format: what it finds fault with stays as it is, all else is converted and found good" {
	everything >"$WORK/cdl"
	ncgen -k classic -o "$DIRECT/c.nc" "$WORK/cdl"
	mount_cistern -o layout=netcdf4,verify=format,drain=unmount
	cp "$DIRECT/c.nc" "$MNT/c.nc"
	cp "$DIRECT/c.nc" "$MNT/stale.nc"
	printf '\0\0\0\1' | dd of="$MNT/stale.nc" bs=1 seek=4 conv=notrunc status=none
	cp "$MNT/stale.nc" "$DIRECT/stale.nc"
	umount_wait
	is_new "$BACKING/c.nc"
	same_file "$DIRECT/c.nc" "$BACKING/c.nc"
	exits 0 "$CISTERN" fsck "$BACKING/c.nc"
	is "$(jq -r '[.files[] | select(.path == "c.nc") | .state, .layout] | join(" ")' "$STORE/manifest.json")" "verified netcdf4"
	cmp "$DIRECT/stale.nc" "$BACKING/stale.nc"
	kept_because stale.nc "room for 2 records"
	jq -r '.files[] | select(.path == "stale.nc") | .warning' "$STORE/manifest.json" | grep -q fix-numrecs
	# Mended, and written once more, it is one like others.
	exits 0 "$CISTERN" fsck --fix-numrecs "$BACKING/stale.nc"
	mount_cistern -o layout=netcdf4,verify=format
	cp "$MNT/stale.nc" "$MNT/mended.nc"
	umount_wait
	same_file "$DIRECT/c.nc" "$BACKING/mended.nc"
	is_new "$BACKING/mended.nc"
}

@test "inspect knows the new file by its store, and in a mount" {
	local where
	everything >"$WORK/cdl"
	ncgen -k classic -o "$DIRECT/c.nc" "$WORK/cdl"
	mount_cistern -o layout=netcdf4,data=log
	cp "$DIRECT/c.nc" "$MNT/c.nc"
	umount_wait
	"$CISTERN" inspect --json "$STORE" c.nc >"$WORK/store.json"
	is "$("$CISTERN" inspect --json "$STORE" | jq '.files[] | select(.path == "c.nc").size')" "$(stat -c %s "$BACKING/c.nc")"
	mount_cistern -o layout=netcdf4,data=log
	"$CISTERN" inspect --json "$MNT/c.nc" >"$WORK/mount.json"
	for where in store mount; do
		fits "$WORK/$where.json"
		is "$(jq .file.size "$WORK/$where.json")" "$(stat -c %s "$BACKING/c.nc")"
		is "$(jq '.file | [.mapped, has("note"), all(.variables[]; .missing_bytes == 0 or .kind == "chunked variable")] | tostring' "$WORK/$where.json")" \
			'"[true,false,true]"'
		[ "$(jq '.file.variables | length' "$WORK/$where.json")" -gt 5 ]
	done
	umount_wait
}

@test "a reader, a writer and another mount afterwards" {
	everything >"$WORK/cdl"
	ncgen -k classic -o "$DIRECT/c.nc" "$WORK/cdl"
	mount_cistern -o layout=netcdf4
	cp "$DIRECT/c.nc" "$MNT/c.nc"
	umount_wait
	cp "$BACKING/c.nc" "$DIRECT/n.nc"
	mount_cistern -o layout=netcdf4
	same_file "$DIRECT/c.nc" "$MNT/c.nc"
	same_word "$(stat -c %s "$MNT/c.nc")" "$(stat -c %s "$DIRECT/n.nc")"
	echo more >>"$MNT/c.nc"
	echo more >>"$DIRECT/n.nc"
	cmp "$MNT/c.nc" "$DIRECT/n.nc"
	umount_wait
	cmp "$BACKING/c.nc" "$DIRECT/n.nc"
	exits 0 "$CISTERN" fsck "$STORE"
}

died_or_gone() {
	grep -qs agent-died "$STORE/cistern.log" || gone "$1"
}

@test "an agent that dies at its Nth change: one of both files is there, in the end the new one" {
	local n pid
	everything >"$WORK/cdl"
	ncgen -k classic -o "$DIRECT/c.nc" "$WORK/cdl"
	for n in 5 9 11 12 13 14; do
		: >"$STORE/cistern.log" 2>/dev/null || true
		CISTERN_AGENT_ABORT_AFTER=$n mount_cistern -o layout=netcdf4,drain=unmount
		cp "$DIRECT/c.nc" "$MNT/f$n.nc"
		pid=$(daemon_pid)
		"$CISTERN" umount "$MNT" 3>&-
		wait_until 60 died_or_gone "$pid"
		kill -KILL "$pid" 2>/dev/null || true
		wait_until 60 gone "$pid"
		is_whole "$BACKING/f$n.nc"
		find "$BACKING" -printf '%f %i\n' >>"$WORK/seen"
		mount_cistern -o layout=netcdf4
		is_whole "$MNT/f$n.nc"
		same_word "$(ncdump -n x "$MNT/f$n.nc")" "$(ncdump -n x "$DIRECT/c.nc")"
		umount_wait
		is_new "$BACKING/f$n.nc"
		same_file "$DIRECT/c.nc" "$BACKING/f$n.nc"
		no_leftovers "$BACKING"
	done
	# It was killed with both under a name, too.
	grep -q '^.cistern-classic-' "$WORK/seen"
	exits 0 "$CISTERN" fsck "$STORE"
}

@test "a converter that dies, fails or is not there: the classic file stays, and the next drain tries again" {
	everything >"$WORK/cdl"
	ncgen -k classic -o "$DIRECT/c.nc" "$WORK/cdl"
	fake_converter <<-'END'
		#!/bin/sh
		echo half >/proc/self/fd/5
		echo result converted
		kill -KILL $$
	END
	CISTERN_LIBEXEC=$WORK/libexec mount_cistern -o layout=netcdf4
	cp "$DIRECT/c.nc" "$MNT/c.nc"
	umount_wait
	cmp "$DIRECT/c.nc" "$BACKING/c.nc"
	no_leftovers "$BACKING"
	kept_because c.nc "signal 9"
	printf '#!/bin/sh\nexit 7\n' >"$WORK/libexec/cistern-nc4"
	CISTERN_LIBEXEC=$WORK/libexec mount_cistern -o layout=netcdf4
	umount_wait
	cmp "$DIRECT/c.nc" "$BACKING/c.nc"
	kept_because c.nc "status 7"
	mount_cistern -o layout=netcdf4
	umount_wait
	is_new "$BACKING/c.nc"
	same_file "$DIRECT/c.nc" "$BACKING/c.nc"
}

@test "a file that is not what it was made from is found out" {
	everything >"$WORK/cdl"
	ncgen -k classic -o "$WORK/c.nc" "$WORK/cdl"
	converter -o deflate=0 "$WORK/c.nc" "$WORK/n.nc"
	check() { "${top_builddir:?}/cistern-nc4" --check "$WORK/c.nc" "$1" 3>"$WORK/said"; }
	check "$WORK/n.nc"
	# One byte of a value, of an attribute, of a fill value; another length; other attributes.
	python3 - "$WORK" <<'END'
import struct, sys
work = sys.argv[1]
data = open(work + "/n.nc", "rb").read()
def change(name, old, new):
    assert data.count(old) >= 1, name
    at = data.index(old)
    open("%s/%s" % (work, name), "wb").write(data[:at] + new + data[at + len(old):])
change("value", struct.pack("<4f", 5, 6, 7, 8), struct.pack("<4f", 5, 6, 7, 9))
change("text", b"fffff", b"ffffe")
END
	for name in value text; do
		refute check "$WORK/$name"
		grep -q 'values of' "$WORK/said"
	done
	for sed in 's/2.5, -3/2.5, -4/' 's/"days since/"days Since/' 's/lon = 4 ;/lon = 4 ; more = 3 ;/' 's/-9.f/-8.f/' \
		's/scalar = 42/scalar = 43/' 's/short lev/int lev/' 's/:bytes = 1b, -1b ;//' 's/NaNf/24/'; do
		sed "$sed" "$WORK/cdl" >"$WORK/other.cdl"
		refute cmp -s "$WORK/cdl" "$WORK/other.cdl"
		ncgen -k classic -o "$WORK/other.nc" "$WORK/other.cdl"
		converter "$WORK/other.nc" "$WORK/other.n.nc" | grep -qx 'result converted'
		refute check "$WORK/other.n.nc"
		[ -s "$WORK/said" ]
	done
}

@test "settings of HDF5's metadata cache are passed on, its report comes back" {
	everything >"$WORK/cdl"
	ncgen -k classic -o "$DIRECT/c.nc" "$WORK/cdl"
	mount_cistern -o "layout=netcdf4,mdc.initial_size=1M,mdc.min_clean_fraction=0.25,mdc.open_trace_file,mdc.trace_file_name=$WORK/trace"
	cp "$DIRECT/c.nc" "$MNT/c.nc"
	umount_wait
	is "$(jq -r '.files[0].conversion.mdc_max_size' "$STORE/manifest.json")" 1048576
	is "$(jq -r '.files[0].conversion.mdc_min_clean_size' "$STORE/manifest.json")" 262144
	jq -e '.files[0].conversion | .mdc_hit_rate <= 1 and .mdc_cur_size > 0 and .mdc_cur_num_entries > 0' "$STORE/manifest.json"
	head -n 1 "$WORK"/trace* | grep -q 'HDF5 metadata cache trace file version 1'
	refute mount_cistern -o mdc.epoch_length=99
	# What only HDF5 knows: a limit above the other.
	mount_cistern -o layout=netcdf4,mdc.min_size=8M,mdc.max_size=4M
	cp "$DIRECT/c.nc" "$MNT/d.nc"
	umount_wait
	cmp "$DIRECT/c.nc" "$BACKING/d.nc"
	kept_because d.nc "HDF5"
}

@test "settings of HDF5's metadata cache with verify=format: what is converted, and what is kept, has been looked at" {
	everything >"$WORK/cdl"
	ncgen -k classic -o "$DIRECT/c.nc" "$WORK/cdl"
	mount_cistern -o "layout=netcdf4,verify=format,mdc.initial_size=1M"
	cp "$DIRECT/c.nc" "$MNT/c.nc"
	umount_wait
	is "$(jq -r '.files[0] | "\(.state) \(.conversion.mdc_max_size)"' "$STORE/manifest.json")" "verified 1048576"
	is "$(ncdump -k "$BACKING/c.nc")" "netCDF-4 classic model"
	"$CISTERN" fsck "$BACKING/c.nc"
	# What HDF5 refuses stays classic, and is verified as that.
	mount_cistern -o layout=netcdf4,verify=format,mdc.min_size=8M,mdc.max_size=4M
	cp "$DIRECT/c.nc" "$MNT/d.nc"
	umount_wait
	cmp "$DIRECT/c.nc" "$BACKING/d.nc"
	is "$(jq -r '.files[] | select(.path == "d.nc") | .state' "$STORE/manifest.json")" verified
}

@test "a job of two nodes: files of each, and one that both wrote, when the last is unmounted" {
	everything >"$WORK/cdl"
	ncgen -k cdf5 -o "$DIRECT/c.nc" "$WORK/cdl"
	start_job 2 layout=netcdf4
	cp "$DIRECT/c.nc" "$WORK/m0/zero.nc"
	mkdir "$WORK/m1/dir"
	cp "$DIRECT/c.nc" "$WORK/m1/dir/one.nc"
	# Even blocks of it by one node, odd ones by the other.
	python3 - "$DIRECT/c.nc" "$WORK/m0/both.nc" "$WORK/m1/both.nc" <<'END'
import os, sys
data = open(sys.argv[1], "rb").read()
fds = [os.open(name, os.O_RDWR | os.O_CREAT) for name in sys.argv[2:]]
for i in range(0, len(data), 100):
    os.pwrite(fds[i // 100 % 2], data[i:i + 100], i)
for fd in fds:
    os.close(fd)
END
	"$CISTERN" flush --wait --timeout 60s --mount "$WORK/m0" 3>&-
	for name in zero.nc dir/one.nc both.nc; do cmp "$DIRECT/c.nc" "$WORK/b/$name"; done
	umount_wait "$WORK/m0" &
	local first=$!
	wait_until 60 not_mounted "$WORK/m0"
	cmp "$DIRECT/c.nc" "$WORK/b/zero.nc" # the other node could still have it open
	cmp "$DIRECT/c.nc" "$WORK/m1/zero.nc"
	umount_wait "$WORK/m1"
	wait "$first"
	agents_end_well
	for name in zero.nc dir/one.nc both.nc; do
		is_new "$WORK/b/$name"
		same_file "$DIRECT/c.nc" "$WORK/b/$name"
	done
	is "$(jq -r '[.files[] | select(.layout == "netcdf4")] | length' "$WORK/s0/manifest.json")" 3
	no_leftovers "$WORK/b"
}
