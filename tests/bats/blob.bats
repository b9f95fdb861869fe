#!/usr/bin/env bats
# SPDX-License-Identifier: GPL-3.0-or-later
#
# Who wrote what, and files that are laid out by it: the subfiles are read by tests/golden/unblob.py, which was written from
# E3SM-IO's description, and compared with what the same program writes directly.

load ../lib/mount

# written_by: "offset process" of all writes in the store's journal, as docs/format/store.md has it.
written_by() {
	python3 "$top_srcdir/tests/golden/read_log.py" "$STORE" |
		python3 -c 'import json, sys
for line in sys.stdin:
    rec = json.loads(line)
    if rec.get("type") == "write":
        print(rec["off"], rec["writer"])'
}

needs_e3sm() {
	needs_program python3 mpiexec.mpich
	needs_built tests/bench/e3sm
}

# e3sm PROCESSES CASE PATH [OPTION...]
e3sm() {
	no_leaks mpiexec.mpich -n "$1" "$top_builddir/tests/bench/e3sm" --case="$2" --size=tiny "${@:4}" "$3" 3>&- >/dev/null
}

# same_blobs BASE CANONICAL KEY VALUE...: the subfiles are that file, and unblob.py says so of them.
same_blobs() {
	local base=$1 canonical=$2
	shift 2
	python3 "$top_srcdir/tests/golden/unblob.py" "$base" "$canonical" >"$WORK/seen" || return
	cat "$WORK/seen"
	while [ $# -gt 0 ]; do
		is "$(jq ".$1" "$WORK/seen")" "$2"
		shift 2
	done
}

# told PATH FIELD: of a file in the manifest
told() {
	jq -r ".files[] | select(.path == \"$1\") | .$2" "$STORE/manifest.json"
}

@test "the log knows which process wrote what: threads are one, those that open the same file are two" {
	needs_program python3
	mount_cistern -o data=log
	python3 - "$MNT/file" >"$WORK/expected" <<-'END'
		import os, sys, threading
		fd = os.open(sys.argv[1], os.O_CREAT | os.O_RDWR, 0o644)
		os.pwrite(fd, b"a" * 10, 0)
		thread = threading.Thread(target=os.pwrite, args=(fd, b"b" * 10, 100))
		thread.start()
		thread.join()
		print(0, os.getpid())
		print(100, os.getpid(), flush=True)
		child = os.fork()
		if child == 0:
		    own = os.open(sys.argv[1], os.O_WRONLY)
		    os.pwrite(own, b"c" * 10, 200)
		    os._exit(0)
		os.waitpid(child, 0)
		print(200, child)
	END
	written_by >"$WORK/got"
	diff "$WORK/expected" "$WORK/got"
	kill_daemon
	"$CISTERN" fsck "$STORE"
	mount_cistern -o data=log
	umount_wait
	is "$(stat -c %s "$BACKING/file")" 210
}

@test "E3SM's cases become subfiles that hold the direct write" {
	needs_e3sm
	mount_cistern -o layout=blob-variable,verify=read
	for name in F G I; do
		e3sm 3 "$name" "$MNT/$name.nc"
		e3sm 1 "$name" "$DIRECT/$name.nc"
		cmp "$MNT/$name.nc" "$DIRECT/$name.nc"
	done
	umount_wait
	is "$(cd "$BACKING" && echo *)" "F.nc.0000 G.nc.0000 I.nc.0000"
	no_leftovers "$BACKING"
	same_blobs "$BACKING/F.nc" "$DIRECT/F.nc" subfiles 1 blobs 3 maps 3 decomposed 387 variables 414
	same_blobs "$BACKING/G.nc" "$DIRECT/G.nc" subfiles 1 blobs 3 maps 6 decomposed 41
	same_blobs "$BACKING/I.nc" "$DIRECT/I.nc" subfiles 1 blobs 3 decomposed 546
	for name in F G I; do
		"$CISTERN" convert "$BACKING/$name.nc" --to "$WORK/again.nc" --force
		cmp "$WORK/again.nc" "$DIRECT/$name.nc"
	done
	is "$(told F.nc layout) $(told F.nc state) $(told F.nc conversion.maps)" "blob-variable verified 3"
	if command -v ncdump >/dev/null; then
		for name in F G I; do ncdump "$BACKING/$name.nc.0000" >"$WORK/cdl"; grep -q ':global_nprocs = 3 ;' "$WORK/cdl"; done
		# what only ours say does not flood who looks
		is "$(ncdump -h "$BACKING/F.nc.0000" | grep cistern_ | awk 'length > 200' | wc -l)" 0
	fi
	"$CISTERN" fsck "$STORE"
	mount_cistern
	is "$(cd "$MNT" && echo *)" "F.nc.0000 G.nc.0000 I.nc.0000"
	cmp "$MNT/F.nc.0000" "$BACKING/F.nc.0000"
	umount_wait
}

@test "processes are divided over num_subfiles; mode and time are the file's" {
	needs_e3sm
	mount_cistern -o layout=blob-variable,num_subfiles=2
	e3sm 3 F "$MNT/F.nc"
	e3sm 1 F "$DIRECT/F.nc"
	chmod 640 "$MNT/F.nc"
	touch -d '2001-02-03 04:05:06' "$MNT/F.nc"
	umount_wait
	same_blobs "$BACKING/F.nc" "$DIRECT/F.nc" subfiles 2 blobs 3 maps 3
	is "$(stat -c '%a %Y' "$BACKING/F.nc.0001")" "640 $(date -d '2001-02-03 04:05:06' +%s)"
}

@test "the same in the process-centric form, which HDF5's own tools read" {
	needs_e3sm
	needs_program h5dump
	mount_cistern -o layout=blob-process,num_subfiles=2,verify=read
	for name in F G; do
		e3sm 3 "$name" "$MNT/$name.nc"
		e3sm 1 "$name" "$DIRECT/$name.nc"
	done
	kill_daemon
	release_mount "$MNT"
	cp -r "$STORE" "$WORK/untouched"
	mount_cistern -o layout=blob-process,num_subfiles=2,verify=read
	umount_wait
	is "$(cd "$BACKING" && echo *)" "F.nc.0000 F.nc.0001 G.nc.0000 G.nc.0001"
	no_leftovers "$BACKING"
	is "$(told F.nc layout) $(told F.nc state) $(told F.nc conversion.maps)" "blob-process verified 3"
	h5dump -H "$BACKING/F.nc.0000" >"$WORK/shown"
	is "$(grep -c 'H5T_STD_U8LE' "$WORK/shown")" 3
	same_blobs "$BACKING/F.nc" "$DIRECT/F.nc" subfiles 2 blobs 3 maps 3 decomposed 387 variables 414
	same_blobs "$BACKING/G.nc" "$DIRECT/G.nc" subfiles 2 blobs 3 maps 6 decomposed 41
	for name in F G; do
		"$CISTERN" convert "$BACKING/$name.nc" --to "$WORK/again.nc" --force
		cmp "$WORK/again.nc" "$DIRECT/$name.nc"
	done
	"$CISTERN" fsck "$STORE"
	# E3SM-IO's order: what another program makes of the variable-centric form
	rm -rf "$STORE" && mv "$WORK/untouched" "$STORE"
	mkdir "$WORK/process" && mv "$BACKING"/* "$WORK/process"
	mount_cistern -o layout=blob-variable,num_subfiles=2
	umount_wait
	for name in F.nc.0000 F.nc.0001 G.nc.0001; do
		h5dump -d data_blob -b LE -o "$WORK/data" "$WORK/process/$name" >/dev/null
		h5dump -d header_blob -b LE -o "$WORK/header" "$WORK/process/$name" >/dev/null
		"$top_srcdir/tests/golden/blob_process.py" "$BACKING/$name" "$WORK/expected-header" "$WORK/expected" big
		cmp "$WORK/data" "$WORK/expected"
		cmp "$WORK/header" "$WORK/expected-header"
	done
}

@test "subfiles of one form replace those of the other, and HDF5 files that are none are left alone" {
	needs_e3sm
	needs_program h5import
	mount_cistern -o layout=blob-process
	e3sm 2 G "$MNT/G.nc"
	e3sm 1 G "$DIRECT/G.nc"
	umount_wait
	mount_cistern -o layout=blob-variable
	e3sm 3 G "$MNT/G.nc"
	umount_wait
	same_blobs "$BACKING/G.nc" "$DIRECT/G.nc" blobs 3
	mount_cistern
	refute setfattr -n user.cistern.layout -v blob-process "$MNT" # folders have none
	: >"$MNT/G.nc"
	setfattr -n user.cistern.layout -v blob-process "$MNT/G.nc"
	e3sm 2 G "$MNT/G.nc"
	umount_wait
	same_blobs "$BACKING/G.nc" "$DIRECT/G.nc" blobs 2
	h5dump -H "$BACKING/G.nc.0000" >/dev/null
	echo 1 >"$WORK/one" # an HDF5 file, but not ours
	h5import "$WORK/one" -dims 1 -path header_blob -type TEXTIN -size 32 -o "$WORK/other" >/dev/null
	cp "$WORK/other" "$BACKING/G.nc.0000"
	mount_cistern -o layout=blob-process
	e3sm 2 G "$MNT/G.nc"
	refute "$CISTERN" umount --wait "$MNT"
	cmp "$BACKING/G.nc.0000" "$WORK/other"
	rm "$BACKING/G.nc.0000"
	mount_cistern -o layout=blob-process
	umount_wait
	same_blobs "$BACKING/G.nc" "$DIRECT/G.nc" blobs 2
}

@test "an attribute that subfiles cannot have is told of, once" {
	needs_e3sm
	needs_program setfattr
	local long
	long=$(printf '%060000d' 0)
	: >"$BACKING/probe"
	! setfattr -n user.big -v "$long" "$BACKING/probe" || skip "the backing file system takes attributes of 60,000 bytes"
	rm "$BACKING/probe"
	mount_cistern -o layout=blob-variable,num_subfiles=2
	e3sm 2 G "$MNT/G.nc"
	setfattr -n user.big -v "$long" "$MNT/G.nc"
	exits 0 flush
	says "1 file stays in the store until everything is unmounted"
	exits 0 umount_wait
	says "1 file has a warning: see"
	refute says "stays in the store" >/dev/null
	is "$(told G.nc warning | grep -c 'user.big (60000 bytes) is not there')" 1
}

@test "a layout is chosen by mount, by pattern and by the file itself" {
	needs_e3sm
	needs_program setfattr
	mount_cistern -o 'layout=*.h0.nc=blob-variable'
	refute setfattr -n user.cistern.layout -v blobs "$MNT"
	for name in a.h0.nc b.nc c.h0.nc d.nc; do : >"$MNT/$name"; done
	setfattr -n user.cistern.layout -v canonical "$MNT/c.h0.nc"
	setfattr -n user.cistern.layout -v blob-variable "$MNT/d.nc"
	refute setfattr -n user.cistern.layout -v blob-variables "$MNT/d.nc"
	for name in a.h0.nc b.nc c.h0.nc d.nc; do e3sm 2 G "$MNT/$name"; done
	e3sm 1 G "$DIRECT/G.nc"
	umount_wait
	is "$(cd "$BACKING" && echo *)" "a.h0.nc.0000 b.nc c.h0.nc d.nc.0000"
	same_blobs "$BACKING/a.h0.nc" "$DIRECT/G.nc" blobs 2
	same_blobs "$BACKING/d.nc" "$DIRECT/G.nc" blobs 2
	cmp "$BACKING/b.nc" "$DIRECT/G.nc"
	cmp "$BACKING/c.h0.nc" "$DIRECT/G.nc"
	exits 2 "$CISTERN" mount "$BACKING" "$MNT" --store "$STORE" -o layout=blobs
}

@test "what cannot be laid out as blobs stays canonical, and that is said" {
	needs_e3sm
	mount_cistern -o layout=blob-variable
	echo "no netCDF" >"$MNT/text"
	e3sm 1 G "$MNT/alone.nc"
	e3sm 2 G "$MNT/linked.nc"
	ln "$MNT/linked.nc" "$MNT/other.nc"
	e3sm 1 G "$DIRECT/G.nc"
	umount_wait
	is "$(cd "$BACKING" && echo *)" "alone.nc linked.nc other.nc text"
	cmp "$BACKING/alone.nc" "$DIRECT/G.nc"
	cmp "$BACKING/linked.nc" "$DIRECT/G.nc"
	for name in alone.nc linked.nc text; do grep -q "$name keeps its layout" "$STORE/cistern.log"; done
	jq -e '.files | tostring | test("no netCDF classic file")' "$STORE/manifest.json"
	jq -e '.files | tostring | test("several names")' "$STORE/manifest.json"
}

@test "until the mount is gone the file is the mount's; flushed, killed and recovered it is as it was written" {
	needs_e3sm
	mount_cistern -o layout=blob-variable
	e3sm 2 G "$MNT/G.nc"
	e3sm 1 G "$DIRECT/G.nc"
	flush
	is "$(ls "$BACKING")" ""
	cmp "$MNT/G.nc" "$DIRECT/G.nc"
	kill_daemon
	release_mount "$MNT"
	mkdir "$WORK/elsewhere"
	"$CISTERN" recover "$STORE" --to "$WORK/elsewhere"
	cmp "$WORK/elsewhere/G.nc" "$DIRECT/G.nc"
	mount_cistern -o layout=blob-variable
	cmp "$MNT/G.nc" "$DIRECT/G.nc"
	umount_wait
	same_blobs "$BACKING/G.nc" "$DIRECT/G.nc" blobs 2
}

# grows PATH: records 2 and 3 are added to a file of the G case that has two.
grows() {
	e3sm 3 G "$1" --from=2 --records=3
	e3sm 2 G "$1" --from=3 --records=4
}

@test "records that come after a flush are in the same blobs" {
	needs_e3sm
	mount_cistern -o layout=blob-variable,num_subfiles=2
	e3sm 4 G "$MNT/G.nc" --records=2
	exits 0 "$CISTERN" flush --wait --mount "$MNT"
	[[ $output == *"1 file stays in the store until everything is unmounted"* ]]
	is "$(told G.nc state) $(told G.nc layout)" "dirty blob-variable"
	e3sm 4 G "$MNT/G.nc" --from=2 --records=3
	e3sm 1 G "$DIRECT/G.nc" --records=3
	cmp "$MNT/G.nc" "$DIRECT/G.nc"
	e3sm 2 G "$MNT/G.nc" --from=3 --records=4
	e3sm 1 G "$DIRECT/G.nc" --records=4
	umount_wait
	same_blobs "$BACKING/G.nc" "$DIRECT/G.nc" subfiles 2 maps 6 decomposed 41
	"$CISTERN" convert "$BACKING/G.nc" --to "$WORK/again.nc"
	cmp "$WORK/again.nc" "$DIRECT/G.nc"
}

@test "a later mount goes on with a set: the file is read and written there, and its records join the blobs" {
	needs_e3sm
	needs_program setfattr
	local layout
	e3sm 1 G "$DIRECT/2" --records=2
	e3sm 1 G "$DIRECT/4" --records=4
	for layout in blob-variable blob-process; do
		mount_cistern -o "layout=$layout,num_subfiles=2"
		e3sm 3 G "$MNT/$layout.nc" --records=2
		umount_wait
		cp -r "$BACKING" "$WORK/$layout"
		# Not by the mount's settings, but as the set is.
		mount_cistern
		exits 1 "$CISTERN" inspect "$MNT/$layout.nc"
		[[ $output == *"$BACKING/$layout.nc.0000 and on: 'cistern convert' makes a file of them, with --as-written"* ]]
		exits 2 "$CISTERN" convert "$WORK/$layout/$layout.nc" --as-written --to "$WORK/outside.nc"
		[[ $output == *"in no Cistern mount"* ]]
		is "$(ls -A "$WORK" | grep -c outside || true)" 0
		"$CISTERN" convert "$BACKING/$layout.nc" --as-written --to "$MNT/$layout.nc"
		cmp "$MNT/$layout.nc" "$DIRECT/2"
		is "$(getfattr --only-values -n user.cistern.layout "$MNT/$layout.nc")" "$layout"
		kill_daemon
		release_mount "$MNT"
		mount_cistern
		grows "$MNT/$layout.nc"
		cmp "$MNT/$layout.nc" "$DIRECT/4"
		umount_wait
		[ ! -e "$BACKING/$layout.nc.0001" ] # of the set before
		same_blobs "$BACKING/$layout.nc" "$DIRECT/4" subfiles 1 blobs 3 maps 6 decomposed 41
		"$CISTERN" convert "$BACKING/$layout.nc" --to "$WORK/again.nc" --force
		cmp "$WORK/again.nc" "$DIRECT/4"
		is "$(told "$layout.nc" layout)" "$layout"
	done
	no_leftovers "$BACKING"
}

@test "subfiles replace subfiles and what the file replaced, and nothing else" {
	needs_e3sm
	echo old >"$BACKING/G.nc"
	echo older >"$BACKING/H.nc"
	mkdir "$BACKING/there"
	echo "somebody's" >"$BACKING/there/G.nc.0000"
	mount_cistern -o layout=blob-variable
	rm "$MNT/G.nc"
	mv "$MNT/H.nc" "$MNT/moved"
	e3sm 2 G "$MNT/G.nc"
	e3sm 2 G "$MNT/H.nc"
	e3sm 2 G "$MNT/there/G.nc"
	e3sm 1 G "$DIRECT/G.nc"
	refute "$CISTERN" umount --wait "$MNT"
	is "$(cd "$BACKING" && echo * there/*)" "G.nc.0000 H.nc.0000 moved there there/G.nc.0000"
	is "$(cat "$BACKING/there/G.nc.0000" "$BACKING/moved" | tr '\n' ' ')" "somebody's older "
	same_blobs "$BACKING/H.nc" "$DIRECT/G.nc" blobs 2
	same_blobs "$BACKING/G.nc" "$DIRECT/G.nc" blobs 2
	rm "$BACKING/there/G.nc.0000"
	mount_cistern -o layout=blob-variable
	e3sm 3 G "$MNT/G.nc"
	umount_wait
	same_blobs "$BACKING/G.nc" "$DIRECT/G.nc" blobs 3
	same_blobs "$BACKING/there/G.nc" "$DIRECT/G.nc" blobs 2
	is "$(cd "$BACKING" && echo * there/*)" "G.nc.0000 H.nc.0000 moved there there/G.nc.0000"
}

@test "a file of a subfile's name that came through the mount is not replaced, though it is a subfile" {
	needs_e3sm
	e3sm 1 G "$DIRECT/G.nc"
	"$CISTERN" convert "$DIRECT/G.nc" --layout blob-variable --processes 2 --to "$WORK/other"
	mount_cistern -o layout=G.nc=blob-variable
	cp "$WORK/other.0000" "$MNT/G.nc.0000"
	e3sm 2 G "$MNT/G.nc"
	refute "$CISTERN" umount --wait "$MNT"
	cmp "$BACKING/G.nc.0000" "$WORK/other.0000"
	[[ $(told G.nc error) == *"G.nc.0000 is there already"* ]]
	mount_cistern -o layout=G.nc=blob-variable
	mv "$MNT/G.nc.0000" "$MNT/mine"
	umount_wait
	cmp "$BACKING/mine" "$WORK/other.0000"
	same_blobs "$BACKING/G.nc" "$DIRECT/G.nc" blobs 2
}

@test "a disk that fills while the canonical file is made keeps nothing of it, and the subfiles are untouched" {
	local n
	needs_e3sm
	needs_root "mounting a tmpfs"
	mount_cistern -o layout=blob-variable
	e3sm 2 I "$MNT/I.nc"
	e3sm 1 I "$DIRECT/I.nc"
	umount_wait
	cp "$BACKING/I.nc.0000" "$WORK/before"
	# The land has three quarters of the bytes, and some in every block: the room is found to do, and does not.
	mkdir "$WORK/small"
	mount -t tmpfs -o size=1400k tmpfs "$WORK/small" || skip "no tmpfs can be mounted"
	undo "umount $WORK/small"
	for n in 1 2; do
		exits 1 no_leaks "$CISTERN" convert -n $n "$BACKING/I.nc" --to "$WORK/small/I.nc"
		[[ $output == *"small/I.nc: writing at "*"No space left on device"* ]]
		is "$(ls -A "$WORK/small")" ""
	done
	cmp "$BACKING/I.nc.0000" "$WORK/before"
	mount -o remount,size=2m "$WORK/small"
	"$CISTERN" convert "$BACKING/I.nc" --to "$WORK/small/I.nc"
	cmp "$WORK/small/I.nc" "$DIRECT/I.nc"
}

@test "a drain that is killed anywhere ends with the same subfiles" {
	needs_e3sm
	mount_cistern -o layout=blob-variable,num_subfiles=2
	e3sm 2 G "$MNT/G.nc"
	e3sm 1 G "$DIRECT/G.nc"
	kill_daemon
	release_mount "$MNT"
	cp -r "$STORE" "$WORK/untouched"
	local n
	for n in 1 160 $(seq 278 290); do
		rm -rf "$STORE" && cp -r "$WORK/untouched" "$STORE" && rm -f "$BACKING"/G.nc*
		CISTERN_AGENT_ABORT_AFTER=$n mount_cistern -o layout=blob-variable,num_subfiles=2
		if "$CISTERN" umount --wait --timeout 30s "$MNT" 3>&-; then break; fi
		echo "killed after $n changes: $(cd "$BACKING" && echo .cistern* G*)"
		mount_cistern -o layout=blob-variable,num_subfiles=2
		umount_wait
		no_leftovers "$BACKING"
		same_blobs "$BACKING/G.nc" "$DIRECT/G.nc" subfiles 2
		is "$(cd "$BACKING" && echo *)" "G.nc.0000 G.nc.0001"
	done
	same_blobs "$BACKING/G.nc" "$DIRECT/G.nc" subfiles 2
	[ "$n" -gt 279 ] && [ "$n" -lt 290 ] # it was killed before and after the names, and at last not at all
}
