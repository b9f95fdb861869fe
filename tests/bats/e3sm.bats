#!/usr/bin/env bats
# SPDX-License-Identifier: GPL-3.0-or-later
#
# A climate model's history file from its first byte to its last: many variables, strided, written by several processes, looked at
# half-way, drained in each layout, converted back, and equal to what the same program writes directly.

load "${top_srcdir:?}/tests/lib/mount.bash"
load "$top_srcdir/tests/lib/job.bash"

setup() {
	job_setup
	needs_built tests/bench/e3sm
	needs_built cistern-nc4
	needs_program nccopy ncdump jq setfattr python3
	e3sm="$top_builddir/tests/bench/e3sm --case=F --size=tiny"
	cd "$WORK" || return
	run_ranks mpich -n 1 $e3sm "$DIRECT/F.nc" >/dev/null
}

teardown() {
	cistern_teardown
}

# halfway MPIEXEC-ARGUMENT...: starts it; returns when it waits in the middle: what it said is in $WORK/said.
halfway() {
	mkfifo "$WORK/go"
	no_leaks mpiexec.mpich "$@" <"$WORK/go" >"$WORK/said" 3>&- &
	writer=$!
	exec 9>"$WORK/go"
	wait_until 60 test -s "$WORK/said"
}

go_on() {
	echo >&9
	exec 9>&-
	wait "$writer"
}

# check_halfway JSON NODE...: what inspect says of the half-written file against what the program has said: which variables are complete,
# which have nothing yet, who wrote how much. NODE: that of each rank.
check_halfway() {
	python3 - "$1" "$WORK/said" "${@:2}" <<-'END'
		import json, sys
		f = json.load(open(sys.argv[1]))["file"]
		said = [int(w) for w in open(sys.argv[2]).readline().split()]
		half, ranks = said[0], list(zip(said[1::2], said[2::2]))
		assert f["format"] == "netCDF classic (CDF-5)" and len(f["variables"]) == 415, f["format"]
		v = [v for v in f["variables"] if v["kind"] != "header"]
		assert 100 < half < len(v) - 100
		for i, one in enumerate(v):
		    there = one["log_bytes"] + one["drained_bytes"]
		    if one["kind"] == "variable":
		        assert one["complete"] and one["missing_bytes"] == 0 and one["first_gap"] is None, one
		    elif i < half: # the file is as long as with all records, but one has been begun
		        assert (one["complete_parts"], one["parts"]) == (1, 1) and there == one["defined_bytes"], one
		        assert one["first_gap"] is None, one
		    else:
		        assert one["complete_parts"] == there == 0 and not any(one["first_gap"]) and not one["writers"], one
		# Every byte that a process has written is somewhere under its name; nobody else has written anything.
		wrote = {}
		for one in f["variables"]:
		    for w in one["writers"]:
		        key = (w["node"], w["process"])
		        wrote[key] = wrote.get(key, 0) + w["bytes"]
		assert f["other_log_bytes"] == 0, f["other_log_bytes"]
		assert wrote == {(int(node), pid): num for node, (pid, num) in zip(sys.argv[3:], ranks)}, (wrote, ranks)
	END
}

# A picture is well-formed, and has the file's name in it.
is_picture() {
	python3 - "$1" "$2" <<-'END'
		import sys, xml.dom.minidom
		words = [t.firstChild.data for t in xml.dom.minidom.parse(sys.argv[1]).getElementsByTagName("text")]
		assert words[0].startswith(sys.argv[2] + ": netCDF classic (CDF-5)"), words[0]
	END
}

# comes_back DIR [BLOB-LAYOUT...]: each layout's file there, converted back, is the direct write.
comes_back() {
	local kind
	cmp "$1/canonical.nc" "$DIRECT/F.nc"
	[[ $(ncdump -k "$1/netcdf4.nc") == netCDF-4* ]]
	nccopy -k cdf5 "$1/netcdf4.nc" back.nc
	nccopy -k cdf5 "$DIRECT/F.nc" copied.nc
	cmp back.nc copied.nc
	for kind in "${@:2}"; do
		[ ! -e "$1/$kind.nc" ] && [ -e "$1/$kind.nc.0000" ]
		"$CISTERN" convert "$1/$kind.nc" --to "$kind.back"
		cmp "$kind.back" "$DIRECT/F.nc"
	done
	no_leftovers "$1"
}

@test "one node: half-way the complete variables and their writers are told, and all layouts come back" {
	local layout
	mount_cistern -o drain=unmount,data=log,verify=format
	halfway -n 3 $e3sm --halfway "$MNT/canonical.nc"
	"$CISTERN" inspect --json --svg f.svg "$MNT/canonical.nc" >f.json
	check_halfway f.json 0 0 0
	is_picture f.svg canonical.nc
	# A store whose daemon has died says the same.
	cp -r "$STORE" dead
	"$CISTERN" inspect --json dead canonical.nc >dead.json
	check_halfway dead.json 0 0 0
	go_on
	is "$("$CISTERN" inspect --json "$MNT/canonical.nc" | jq '[.file.variables[] | select(.complete)] | length')" 415
	for layout in netcdf4 blob-variable blob-process; do
		: >"$MNT/$layout.nc"
		setfattr -n user.cistern.layout -v "$layout" "$MNT/$layout.nc"
		run_ranks mpich -n 3 $e3sm "$MNT/$layout.nc" >/dev/null
	done
	umount_wait
	is "$(jq -r '.files | map(.state) | unique | join(" ")' "$STORE/manifest.json")" verified
	is "$(jq '[.files[] | select(.kept)] | length' "$STORE/manifest.json")" 0
	comes_back "$BACKING" blob-variable blob-process
}

@test "two nodes: the same, with the processes of each" {
	local layout
	start_job 2 verify=format
	halfway -n 1 $e3sm --halfway "$WORK/m0/canonical.nc" : -n 1 $e3sm --halfway "$WORK/m1/canonical.nc"
	"$CISTERN" inspect --json --svg f.svg --with "$WORK/s1" "$WORK/m0/canonical.nc" >f.json
	check_halfway f.json 0 1
	is_picture f.svg canonical.nc
	# By the other node's mount, whose store has no name for it.
	"$CISTERN" inspect --json --with "$WORK/s0" "$WORK/m1/canonical.nc" >f.json
	check_halfway f.json 0 1
	go_on
	for layout in netcdf4 blob-variable blob-process; do
		: >"$WORK/m0/$layout.nc"
		setfattr -n user.cistern.layout -v "$layout" "$WORK/m0/$layout.nc"
		ranks mpich $e3sm "@/$layout.nc" >/dev/null
	done
	stop_job
	is "$(jq -r '.files | map(.state) | unique | join(" ")' "$WORK/s0/manifest.json")" verified
	is "$(jq '[.files[] | select(.kept)] | length' "$WORK/s0/manifest.json")" 0
	is "$(cd "$WORK/b" && echo blob-*)" "blob-process.nc.0000 blob-process.nc.0001 blob-variable.nc.0000 blob-variable.nc.0001"
	comes_back "$WORK/b" blob-variable blob-process
}
