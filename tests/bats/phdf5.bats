#!/usr/bin/env bats
# SPDX-License-Identifier: GPL-3.0-or-later
#
# HDF5 programs, parallel ones and HDF5's own tools, through one mount and through the mounts of two nodes: what arrives is what they
# write to a plain directory, byte for byte; and what is said of their files on the way.

load "${top_srcdir:?}/tests/lib/mount.bash"
load "$top_srcdir/tests/lib/job.bash"

setup() {
	job_setup
	needs_built tests/mpi/h5-scenes
	needs_program h5diff h5dump jq
	scenes=$top_builddir/tests/mpi/h5-scenes
	ours=$top_builddir/tests/unit/hdf5-facts
	theirs=$top_builddir/tests/mpi/h5-facts
	cd "$WORK" || return
}

teardown() {
	cistern_teardown
}

# same_files DIR: as in the plain directory. Where a program gives other bytes each time, HDF5 sees the same, and our walk sees what HDF5 sees.
same_files() {
	local file name varies
	varies=$("$scenes" | sed -n 's/\*:.*//p')
	for file in "$DIRECT"/*.h5; do
		name=${file##*/}
		if ! grep -qx "${name%.h5}" <<<"$varies"; then
			cmp "$file" "$1/$name" || return
			continue
		fi
		h5diff -v "$file" "$1/$name" >diff || { cat diff; return 1; }
		same_word "$("$theirs" show "$1/$name")" "$("$ours" show "$1/$name")" || return
		is "$("$ours" problems "$1/$name")" "" || return
	done
	is "$(cd "$1" && echo *.h5)" "$(cd "$DIRECT" && echo *.h5)"
}

# of PATH JQ-FILTER: of what inspect says of a file.
of() {
	"$CISTERN" inspect --json "$1" | jq -r ".file | $2"
}

@test "parallel programs on one mount write what they write to a plain directory" {
	[ "$("$scenes" | wc -l)" -ge 19 ]
	mount_cistern -o drain=unmount,verify=format
	run_ranks mpich -n 2 "$scenes" "$MNT"
	run_ranks mpich -n 2 "$scenes" "$DIRECT"
	same_files "$MNT"
	umount_wait
	same_files "$BACKING"
	is "$(jq -r '.files | map(.state) | unique | join(" ")' "$STORE/manifest.json")" verified
	is "$(jq -r '[.files[] | select(.warning != null)] | length' "$STORE/manifest.json")" 0
}

# over_two_nodes OPTIONS SCENE...: the same files in both mounts and, when all is drained, below the mounts.
over_two_nodes() {
	local k options="verify=format$1"
	shift
	start_job 2 "$options"
	both mpich "$scenes" @ "$@"
	for k in 0 1; do same_files "$WORK/m$k"; done
	"$CISTERN" inspect --conflicts --json "$WORK/s0" "$WORK/s1" >conflicts.json
	stop_job
	no_leftovers "$WORK/b"
	same_files "$WORK/b"
	is "$(jq -r '[.files[] | select(.state != "verified" or .warning != null)] | length' "$WORK/s0/manifest.json")" 0
}

@test "parallel programs over two nodes write what they write to a plain directory" {
	# HDF5 orders what ranks write by messages of MPI alone: a node writes fill values, then another one elements over them.
	# They read what others have just written, too: compressed chunks, metadata.
	over_two_nodes "" contiguous-together chunked-together latest deflated flushes-metadata appends overwrites overwrites-contiguous fill-late objects pages
}

@test "the same with visible=write, and nothing is written without having been seen" {
	over_two_nodes ,visible=write contiguous-together chunked-together latest deflated flushes-metadata appends overwrites fill-late objects pages
	is "$(jq ".conflicts | length" conflicts.json)" 0
}

# hold: a program has the file open through the mount; what it has done last is in $WORK/said.
hold() {
	mkfifo "$WORK/go"
	mpiexec.mpich -n 1 "$scenes" --hold "$1" <"$WORK/go" >"$WORK/said" 3>&- &
	writer=$!
	exec 9>"$WORK/go"
	wait_until 60 grep -qx written "$WORK/said"
}

until_it_has() {
	echo >&9
	wait_until 60 grep -qx "$1" "$WORK/said"
}

@test "a file that a program holds open is raw until the program flushes, and whole when it is closed" {
	mount_cistern -o drain=unmount,verify=format,data=log,checkpoint_interval=1h
	hold "$MNT/held.h5"
	run "$CISTERN" inspect "$MNT/held.h5"
	[[ $output == *"raw, not yet mapped: it begins like HDF5"* || $output == *"raw, not yet mapped: its first bytes are zeros"* ]]
	is "$(of "$MNT/held.h5" .mapped)" false
	# What is there is there all the same.
	[ "$(of "$MNT/held.h5" '[.ranges[] | select(.where == "log").len] | add')" -ge 23040 ]
	until_it_has flushed
	is "$(of "$MNT/held.h5" '.variables[] | select(.name == "field") | "\(.complete) \(.parts) \(.missing_bytes)"')" "true 21 0"
	# HDF5's own program, beside the one that writes.
	HDF5_USE_FILE_LOCKING=FALSE h5dump -H "$MNT/held.h5" | grep -q 'DATASET "field"'
	# All of it is written twice, fill values and elements.
	is "$(of "$MNT/held.h5" '.variables[] | select(.name == "field") | .overwritten_bytes >= 23040')" true
	until_it_has closed
	"$CISTERN" fsck "$MNT/held.h5"
	is "$(of "$MNT/held.h5" .note)" null
	echo >&9
	exec 9>&-
	wait "$writer"
	umount_wait
	is "$(jq -r '.files[0].state' "$STORE/manifest.json")" verified
	same_word "$("$theirs" show "$BACKING/held.h5")" "$("$ours" show "$BACKING/held.h5")"
}

@test "inspect tells chunks and writers of a file of two nodes, and of dead stores says what it cannot know" {
	local at from
	start_job 2 data=log,visible=write,checkpoint_interval=1h
	ranks mpich "$scenes" @ chunked
	run_ranks mpich -n 2 "$scenes" "$DIRECT" chunked
	for from in "$WORK/m0/chunked.h5" "$WORK/m1/chunked.h5"; do
		"$CISTERN" inspect --json --svg f.svg --with "$WORK/s$([[ $from == */m0/* ]] && echo 1 || echo 0)" "$from" >f.json
		jq -e '.file.format == "HDF5 (superblock 0)" and (.file.note == null)' f.json
		# As many chunks as HDF5 says, and as many bytes.
		is "$(jq -r '.file.variables[] | select(.name == "field0") | "\(.complete_parts) \(.parts) \(.missing_bytes)"' f.json)" \
			"$("$theirs" show "$DIRECT/chunked.h5" | sed -n 's/^field0 .* chunks=\(.*\)/\1 \1 0/p')"
		is "$(jq -r '.file.variables[] | select(.name == "field0") | .writers | map(.node) | sort | unique | join(" ")' f.json)" "0 1"
		is "$(jq '[.file.variables[].writers[].process] | unique | length' f.json)" 2
		same_word "$(jq '[.file.variables[] | .writers[].bytes] | add' f.json)" "$(jq '[.file.variables[].log_bytes] | add' f.json)"
		python3 -c 'import sys, xml.dom.minidom; xml.dom.minidom.parse(sys.argv[1])' f.svg
	done
	# One chunk of HDF5's list becomes another node's.
	at=$("$theirs" show "$DIRECT/chunked.h5" | awk '/^field1 / { on = 1 } on && / #0$/ { print $1; exit }')
	dd if="$DIRECT/chunked.h5" of="$WORK/m1/chunked.h5" bs=1 skip="$at" seek="$at" count=1232 conv=notrunc status=none
	"$CISTERN" inspect --json --with "$WORK/s1" "$WORK/m0/chunked.h5" >g.json
	bytes_of() { jq '[.file.variables[] | select(.name == "field1").writers[] | select(.node == 1).bytes] | add' "$1"; }
	[ "$(bytes_of g.json)" -gt "$(bytes_of f.json)" ]
	cmp "$WORK/m0/chunked.h5" "$DIRECT/chunked.h5"
	kill_daemons
	agents_end
	"$CISTERN" inspect --json "$WORK/s1" "$WORK/s0" chunked.h5 >dead.json
	jq -e '.file.one_store_of_many == false and .file.note == null' dead.json
	same_word "$(bytes_of dead.json)" "$(bytes_of g.json)"
	# Of one dead store the metadata that the other node wrote are out of reach, and that is said.
	"$CISTERN" inspect --json "$WORK/s0" chunked.h5 >dead.json
	jq -e '.file.one_store_of_many and (.file.note | test("not yet mapped|damaged"))' dead.json
}
