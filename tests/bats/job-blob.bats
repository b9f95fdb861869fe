#!/usr/bin/env bats
# SPDX-License-Identifier: GPL-3.0-or-later
#
# Files that processes of several nodes wrote, laid out as blobs by each node: read by tests/golden/unblob.py, converted back, and
# compared with what the same program writes directly.

load "${top_srcdir:?}/tests/lib/mount.bash"
load "$top_srcdir/tests/lib/job.bash"

setup() {
	job_setup
	needs_program python3
	needs_built tests/bench/e3sm
}

# e3sm CASE NAME [OPTION...]: two processes on each node write the file, and one writes it directly.
e3sm() {
	local k line=() program=("$top_builddir/tests/bench/e3sm" "--case=$1" --size=tiny "${@:3}")
	for ((k = 0; k < JOB_NODES; k++)); do line+=(${line:+:} -n 2 "${program[@]}" "$WORK/m$k/$2"); done
	no_leaks mpiexec.mpich "${line[@]}" </dev/null 3>&- >/dev/null &&
		no_leaks mpiexec.mpich -n 1 "${program[@]}" "$DIRECT/$2" </dev/null 3>&- >/dev/null
}

# same_blobs NAME [KEY VALUE]...: the subfiles are the file, and unblob.py says so of them.
same_blobs() {
	local name=$1
	shift
	python3 "$top_srcdir/tests/golden/unblob.py" "$WORK/b/$name" "$DIRECT/$name" >"$WORK/seen" || return
	cat "$WORK/seen"
	while [ $# -gt 0 ]; do
		is "$(jq ".$1" "$WORK/seen")" "$2" || return
		shift 2
	done
	"$CISTERN" convert "$WORK/b/$name" --to "$WORK/again.nc" --force || return
	cmp "$WORK/again.nc" "$DIRECT/$name"
}

backing() {
	(cd "$WORK/b" && echo *)
}

# told NAME FIELD: of a file in the job's manifest
told() {
	jq -r ".files[] | select(.path == \"$1\") | .$2" "$WORK/s0/manifest.json"
}

# kept NAME WORDS: it is canonical, and why.
kept() {
	cmp "$WORK/b/$1" "$DIRECT/$1" || return
	jq -e --arg why "$2" '.files | tostring | contains($why)' "$WORK/s0/manifest.json" && return
	cat "$WORK/s0/manifest.json"
	return 1
}

stores_are_good() {
	local k
	for ((k = 0; k < JOB_NODES; k++)); do
		"$CISTERN" fsck "$WORK/s$k" >"$WORK/fsck" || return
		grep -q 'files: [0-9]* with 0 bytes by checksum and 0 bytes' "$WORK/fsck" || { cat "$WORK/fsck"; return 1; }
	done
}

@test "each node makes subfiles of what its processes wrote; together they are the direct write" {
	start_job 2 layout=blob-variable,verify=read,drain=unmount
	for name in F G I; do e3sm "$name" "$name.nc"; done
	cmp "$WORK/m1/F.nc" "$DIRECT/F.nc"
	exits 0 "$CISTERN" flush --wait --mount "$WORK/m0"
	[[ $output == *"3 files stay in the store until everything is unmounted"* ]]
	# Parts of a drain that have nothing to do start no agents: this node has no file of its own.
	is "$(grep -c drain-start "$WORK/s1/cistern.log")" 0
	is "$(ls "$WORK/b")" ""
	stop_job
	is "$(backing)" "F.nc.0000 F.nc.0001 G.nc.0000 G.nc.0001 I.nc.0000 I.nc.0001"
	no_leftovers "$WORK/b"
	same_blobs F.nc subfiles 2 blobs 4 maps 3 decomposed 387 variables 414
	same_blobs G.nc subfiles 2 blobs 4 maps 6 decomposed 41
	same_blobs I.nc subfiles 2 blobs 4 decomposed 546
	is "$(told F.nc layout) $(told F.nc conversion.subfiles) $(told F.nc conversion.blobs)" "blob-variable 2 4"
	stores_are_good
}

@test "num_subfiles is divided over the nodes; mode and time are the file's; so in the other form of blobs" {
	start_job 2 'layout=*.p.nc=blob-process;*.nc=blob-variable,num_subfiles=4'
	e3sm F F.nc
	e3sm G G.p.nc
	chmod 640 "$WORK/m1/F.nc"
	touch -d '2001-02-03 04:05:06' "$WORK/m0/F.nc"
	setfattr -n user.big -v "$(printf '%060000d' 0)" "$WORK/m0/F.nc" 2>/dev/null || true
	stop_job
	getfattr -n user.big "$WORK/b/F.nc.0000" >/dev/null 2>&1 ||
		jq -e '.files[] | select(.path == "F.nc").warning | test("user.big")' "$WORK/s0/manifest.json"
	same_blobs F.nc subfiles 4 blobs 4 maps 3
	is "$(stat -c '%a %Y' "$WORK/b/F.nc.0003")" "640 $(date -d '2001-02-03 04:05:06' +%s)"
	"$CISTERN" convert "$WORK/b/G.p.nc" --to "$WORK/again.nc" --force
	cmp "$WORK/again.nc" "$DIRECT/G.p.nc"
	is "$(backing)" "F.nc.0000 F.nc.0001 F.nc.0002 F.nc.0003 G.p.nc.0000 G.p.nc.0001 G.p.nc.0002 G.p.nc.0003"
}

# goes_on NAME: each node writes its part of the set into its mount.
goes_on() {
	ranks mpich "$CISTERN" convert "$WORK/b/$1" --as-written --to "@/$1"
}

@test "a later job goes on with a set, with other processes on the same nodes" {
	local name
	start_job 2 'layout=*.p.nc=blob-process;*.nc=blob-variable'
	for name in v.nc p.p.nc; do e3sm G "$name" --records=1; done
	stop_job
	# The stores of that job are gone with it.
	rm -r "$WORK"/s?
	start_job 2
	for name in v.nc p.p.nc; do
		goes_on "$name"
		cmp "$WORK/m0/$name" "$DIRECT/$name"
		e3sm G "$name" --from=1 --records=3
		cmp "$WORK/m1/$name" "$DIRECT/$name"
	done
	stop_job
	is "$(backing)" "p.p.nc.0000 p.p.nc.0001 v.nc.0000 v.nc.0001"
	no_leftovers "$WORK/b"
	for name in v.nc p.p.nc; do same_blobs "$name" subfiles 2 blobs 4 maps 6 decomposed 41; done
	stores_are_good
}

@test "what one node wrote in a job is laid out by it; what two overwrote, or what is no netCDF file, is canonical, and that is said" {
	start_job 2 layout=blob-variable
	JOB_NODES=1 e3sm G alone.nc
	e3sm G over.nc
	e3sm G linked.nc
	ln "$WORK/m1/linked.nc" "$WORK/m1/other.nc" && ln "$DIRECT/linked.nc" "$DIRECT/other.nc"
	# What a process of node 0 wrote, node 1 writes again; the header is of both; text of both.
	dd if="$DIRECT/over.nc" of="$WORK/m1/over.nc" bs=4k skip=20 seek=20 count=2 conv=notrunc status=none
	e3sm G header.nc
	dd if="$DIRECT/header.nc" of="$WORK/m1/header.nc" bs=4 skip=3 seek=3 count=1 conv=notrunc status=none
	for k in 0 1; do printf 'text %s' $k | dd of="$WORK/m$k/text" bs=6 seek=$k conv=notrunc status=none; done
	printf 'text 0text 1' >"$DIRECT/text"
	stop_job
	is "$(backing)" "alone.nc.0000 header.nc linked.nc other.nc over.nc text"
	no_leftovers "$WORK/b"
	same_blobs alone.nc subfiles 1 blobs 2
	kept over.nc "were overwritten on another node"
	kept header.nc "overwritten on another node"
	kept linked.nc "several names"
	kept text "no netCDF classic file"
	output=$(jq -r .text "$WORK/s0/result.json")
	says '4 files are not in the layout asked for: see "kept" and "warning" in the manifest (manifest.json in node 0'
	grep -h "keeps its layout" "$WORK"/s?/cistern.log | grep over.nc
	stores_are_good
}

@test "a node that stays mounted is waited for, and then the file is canonical" {
	start_job 2 layout=blob-variable,unmount_timeout=1s
	e3sm G G.nc
	exits 3 "$CISTERN" umount --wait "$WORK/m1" 3>&-
	kept G.nc "unmounted in time"
	no_leftovers "$WORK/b"
	exits 3 "$CISTERN" umount --wait "$WORK/m0" 3>&-
}

@test "a job that died is recovered in canonical order" {
	start_job 2 layout=blob-variable
	e3sm G G.nc
	kill_daemons
	agents_end
	mkdir "$WORK/elsewhere"
	"$CISTERN" recover "$WORK/s0" "$WORK/s1" --to "$WORK/elsewhere"
	cmp "$WORK/elsewhere/G.nc" "$DIRECT/G.nc"
	is "$(ls "$WORK/elsewhere")" G.nc
}

# unkilled: the job as it was before it was killed: nothing is drained.
again() {
	local k
	for ((k = 0; k < JOB_NODES; k++)); do
		rm -rf "$WORK/s$k" && cp -r "$WORK/untouched$k" "$WORK/s$k" || return
	done
	rm -rf "$WORK"/b/* "$WORK"/b/.cistern*
}

# killed_job OPTIONS NODE CHANGES: unmounts; the drain's agents of that node die after so many changes each. True: all is drained.
killed_job() {
	local k pids=() pid bad=0
	for ((k = 0; k < JOB_NODES; k++)); do
		CISTERN_AGENT_ABORT_AFTER=$([ "$k" != "$2" ] || echo "$3") mount_node "$k" "$1" || return
	done
	start_agents || return
	for ((k = 0; k < JOB_NODES; k++)); do
		"$CISTERN" umount --wait --timeout 30s "$WORK/m$k" 3>&- >/dev/null 2>&1 &
		pids+=($!)
	done
	for pid in "${pids[@]}"; do wait "$pid" || bad=1; done
	agents_end
	return "$bad"
}

# dies LAYOUT NODE CHANGES...: what is drained is $WORK/first, whenever in the first drain that node's agents die.
dies() {
	local n k
	for n in "${@:3}"; do
		again
		if killed_job "layout=$1" "$2" "$n"; then continue; fi
		echo "$1: node $2 killed after $n changes: $(cd "$WORK/b" && echo .cistern* G*)"
		for k in 0 1; do mount_node "$k" "layout=$1" || return; done
		start_agents || return
		stop_job || return
		no_leftovers "$WORK/b" || return
		same_trees "$WORK/b" "$WORK/first" || return
		stores_are_good || return
	done
}

# killed_before_drain: the mounts of a job end with what was written in the stores, which are kept.
killed_before_drain() {
	local k
	kill_daemons || return
	agents_end
	for ((k = 0; k < JOB_NODES; k++)); do cp -r "$WORK/s$k" "$WORK/untouched$k" || return; done
}

@test "agents that die while they write leave a file in the stores, whatever its layout" {
	start_job 2
	e3sm G G.nc
	killed_before_drain
	killed_job layout=blob-variable none 0
	same_blobs G.nc subfiles 2
	cp -rp "$WORK/b" "$WORK/first"
	dies blob-variable 1 12
	rm -r "$WORK/first"
	mkdir "$WORK/first"
	cp "$DIRECT/G.nc" "$WORK/first"
	touch -r "$WORK/b/G.nc.0000" "$WORK/first/G.nc"
	dies canonical 1 2
}

# Instead of the agent: it waits to be killed as soon as there is a file .cistern*.MARK in the backing directory.
held_agent() {
	mkdir -p "$WORK/held"
	cat >"$WORK/held/cistern-agent" <<-END
		#!/bin/bash
		compgen -G "$WORK/b/.cistern*.$1" >/dev/null || exec "${CISTERN_LIBEXEC%%:*}/cistern-agent" "\$@"
		touch "$WORK/held/\$\$"
		exec sleep 120
	END
	chmod 755 "$WORK/held/cistern-agent"
}

is_held() {
	compgen -G "$WORK/held/[0-9]*" >/dev/null
}

# daemons_die MARK VICTIM: a drain comes as far as MARK says; then VICTIM's daemon dies, and then the other one. What the next drain makes is
# $WORK/first.
daemons_die() {
	local k pids=() pid
	again
	held_agent "$1"
	for k in 0 1; do CISTERN_LIBEXEC=$WORK/held:$CISTERN_LIBEXEC mount_node "$k" layout=blob-variable || return; done
	start_agents || return
	for k in 0 1; do
		"$CISTERN" umount --wait "$WORK/m$k" 3>&- >/dev/null 2>&1 &
		pids+=($!)
	done
	wait_until 60 is_held || return
	for k in "$2" $((1 - $2)); do
		echo "node $k's daemon dies: $(cd "$WORK/b" && echo .cistern* G*)"
		kill_daemon "$WORK/s$k" || return
		release_mount "$WORK/m$k"
	done
	for pid in "${pids[@]}"; do refute wait "$pid" || return; done
	(cd "$WORK/held" && kill -KILL [0-9]* && rm [0-9]*)
	agents_end
	for k in 0 1; do mount_node "$k" layout=blob-variable || return; done
	start_agents || return
	stop_job || return
	no_leftovers "$WORK/b" || return
	same_trees "$WORK/b" "$WORK/first" || return
	stores_are_good
}

@test "daemons that die between the parts of a drain into blobs leave all of it to the next" {
	start_job 2
	e3sm G G.nc
	killed_before_drain
	killed_job layout=blob-variable none 0
	cp -rp "$WORK/b" "$WORK/first"
	daemons_die deal.1 1
	daemons_die 0000 0
}

# Node 0, the file's home, writes its header and nothing else: so its agents change little but names.
@test "agents that die while subfiles get their names and the file goes are followed by others that do it again" {
	start_job 2
	no_leaks mpiexec.mpich -n 1 "$top_builddir/tests/bench/e3sm" --case=G --size=tiny "$DIRECT/G.nc" </dev/null 3>&- >/dev/null
	PYTHONPATH=$top_srcdir/tests/golden python3 -B - "$DIRECT/G.nc" "$WORK/m0/G.nc" "$WORK/m1/G.nc" <<-'END'
		import os, sys, unblob
		data, end = open(sys.argv[1], "rb").read(), unblob.Classic(sys.argv[1]).at
		with open(sys.argv[2], "wb") as home:
		    home.write(data[:end])
		for part in range(2):
		    if os.fork() == 0:
		        with open(sys.argv[3], "r+b", buffering=0) as file:
		            for at in range(end // 64 * 64 + part * 64, len(data), 128):
		                os.pwrite(file.fileno(), data[max(at, end):at + 64], max(at, end))
		        os._exit(0)
		    os.wait()
	END
	killed_before_drain
	killed_job layout=blob-variable none 0
	same_blobs G.nc subfiles 1 blobs 2
	cp -rp "$WORK/b" "$WORK/first"
	dies blob-variable 0 5 6 7
}

# Its store is as it was before the drain, the home's as it is after it.
@test "a node that died before it gave up what had arrived makes nothing of it when it is back" {
	start_job 2
	e3sm G G.nc
	killed_before_drain
	killed_job layout=blob-variable none 0
	cp -rp "$WORK/b" "$WORK/first"
	rm -r "$WORK/s1" && cp -r "$WORK/untouched1" "$WORK/s1"
	mkdir "$WORK/elsewhere"
	"$CISTERN" recover "$WORK/s0" "$WORK/s1" --to "$WORK/elsewhere"
	is "$(ls -A "$WORK/elsewhere")" ""
	for k in 0 1; do mount_node "$k" layout=blob-variable; done
	start_agents
	is "$(ls "$WORK/m0" "$WORK/m1" | sort -u | xargs)" "$WORK/m0: $WORK/m1: G.nc.0000 G.nc.0001"
	stop_job
	no_leftovers "$WORK/b"
	same_trees "$WORK/b" "$WORK/first"
	for k in 0 1; do "$CISTERN" fsck "$WORK/s$k"; done
}

# in_job NAME COMMAND...: in a job of its own: of its mounts, stores and agents.
in_job() {
	local WORK=$WORK/$1 DIRECT=$WORK/$1/direct AGENTS=${agents[$1]:-} status=0
	"${@:2}" || status=$?
	agents[$1]=$AGENTS
	return "$status"
}

# work_of NAME SEED CASE: a set of subfiles, a file of one node, and one of both.
work_of() {
	e3sm "$3" "$1.nc" || return
	random_file "$DIRECT/$1.bin" 3000000 "$2" && cp "$DIRECT/$1.bin" "$WORK/m1/$1.bin" || return
	ranks mpich python3 -c '
import os, sys
node, data = int(os.environ["PMI_RANK"]), open(sys.argv[1], "rb").read()
fd = os.open(sys.argv[2], os.O_WRONLY | os.O_CREAT, 0o644)
for at in range(node * 50000, len(data), 100000):
    os.pwrite(fd, data[at:at + 50000], at)
' "$DIRECT/$1.bin" "@/$1.shared" || return
	cp "$DIRECT/$1.bin" "$DIRECT/$1.shared"
}

@test "a file of a subfile's name that came through a mount is not replaced, though it is a subfile; of no node" {
	start_job 2 layout=a.nc=blob-variable
	e3sm G a.nc
	"$CISTERN" convert "$DIRECT/a.nc" --layout blob-variable --processes 2 --to "$WORK/other"
	cp "$WORK/other.0000" "$WORK/m0/a.nc.0001"
	cp "$WORK/other.0000" "$WORK/m1/a.nc.0000"
	"$CISTERN" flush --wait --mount "$WORK/m0"
	cmp "$WORK/b/a.nc.0000" "$WORK/other.0000"
	refute stop_job
	cmp "$WORK/b/a.nc.0000" "$WORK/other.0000"
	cmp "$WORK/b/a.nc.0001" "$WORK/other.0000"
	[[ $(told a.nc error) == *"a.nc.0000 is there already"* ]]
}

@test "two jobs on the same nodes, at the same time, into one directory: each drains its own, and tells of its own" {
	local job k pids=()
	local -A agents=()
	mkdir "$WORK/b"
	for job in x y; do
		mkdir -p "$WORK/$job/direct"
		for k in b mounts undo; do ln -s "../$k" "$WORK/$job/$k"; done
		in_job $job start_job 2 'layout=x.nc=blob-variable;y.nc=blob-process,verify=read,drain=unmount'
	done
	in_job x work_of x 1 F &
	pids+=($!)
	in_job y work_of y 2 G &
	pids+=($!)
	for k in "${pids[@]}"; do wait "$k"; done
	# A job sees its own until it is drained.
	is "$(ls "$WORK/x/m1")" "$(printf '%s\n' x.bin x.nc x.shared)"
	is "$(ls "$WORK/y/m0")" "$(printf '%s\n' y.bin y.nc y.shared)"
	pids=()
	for k in x/m0 y/m1 y/m0 x/m1; do
		umount_wait "$WORK/$k" >"$WORK/${k/\//-}.said" 2>&1 &
		pids+=($!)
	done
	for k in "${pids[@]}"; do wait "$k"; done
	for job in x y; do
		in_job $job agents_end_well
		for k in 0 1; do is "$(grep -c "$WORK/$job/m$k is unmounted; everything is on" "$WORK/$job-m$k.said")" 1; done
		is "$(jq -r '.files | map(.path) | unique | join(" ")' "$WORK/$job/s0/manifest.json")" "$job.bin $job.nc $job.shared"
		is "$(jq -r '[.files[] | select(.kept)] | length' "$WORK/$job/s0/manifest.json")" 0
		in_job $job stores_are_good
		"$CISTERN" convert "$WORK/b/$job.nc" --to "$WORK/$job/again.nc"
		cmp "$WORK/$job/again.nc" "$WORK/$job/direct/$job.nc"
		for k in bin shared; do cmp "$WORK/b/$job.$k" "$WORK/$job/direct/$job.$k"; done
	done
	is "$(backing)" "$(echo {x,y}.{bin,nc.000{0,1},shared})"
	no_leftovers "$WORK/b"
}
