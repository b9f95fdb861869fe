#!/usr/bin/env bats
# SPDX-License-Identifier: GPL-3.0-or-later
#
# layout=netcdf4 in a job of many nodes: large files are compressed and compared by all of them, and nothing depends on any.

load "${top_srcdir:?}/tests/lib/mount.bash"
load "$top_srcdir/tests/lib/job.bash"
load "$top_srcdir/tests/lib/netcdf4.bash"

setup() {
	cistern_setup
	needs_fuse
	needs_mpi
	needs_program ncgen ncdump nccopy python3 jq setfattr
	needs_built cistern-nc4
}

@test "a job of three nodes: large files are converted by all of them" {
	local name
	everything >"$WORK/cdl"
	ncgen -k cdf5 -o "$DIRECT/small.nc" "$WORK/cdl"
	waves "$DIRECT/large.nc" 12
	start_job 3 layout=netcdf4,convert_share=1M
	mkdir "$WORK/m0/dir"
	for name in large small; do cp "$DIRECT/$name.nc" "$WORK/m1/dir/$name.nc"; done
	cp "$DIRECT/large.nc" "$WORK/m2/own.nc"
	setfattr -n user.cistern.layout -v 'netcdf4;deflate=0' "$WORK/m2/own.nc"
	stop_job
	no_leftovers "$WORK/b"
	for name in dir/large.nc own.nc; do
		same_file "$DIRECT/large.nc" "$WORK/b/$name"
		is_new "$WORK/b/$name"
		is "$(told_of "$name" nodes "$WORK/s0")" 3
	done
	same_word "$(told_of dir/large.nc packed_chunks "$WORK/s0")" "$(told_of dir/large.nc chunks "$WORK/s0")"
	is "$(told_of own.nc packed_chunks "$WORK/s0")" 0
	jq -e '.files[] | select(.path == "dir/large.nc") | .conversion | .nodes_cpu_usec > 0 and .mdc_hit_rate <= 1' "$WORK/s0/manifest.json"
	same_file "$DIRECT/small.nc" "$WORK/b/dir/small.nc"
	is "$(told_of dir/small.nc nodes "$WORK/s0")" null
}

# start_uneven OPTIONS: a job of two nodes, of which node 1 has the fake converter; the file is its own.
start_uneven() {
	JOB_NODES=2
	mkdir -p "$WORK/b" "$WORK/m0" "$WORK/m1"
	mount_node 0 "$1"
	CISTERN_LIBEXEC=$WORK/libexec mount_node 1 "$1"
	start_agents
}

@test "a job of two nodes: a helper that fails, or packs something else, changes nothing of the file" {
	local n=0 step
	waves "$DIRECT/c.nc" 6
	# It dies at a step; its share is of a file with other values; it says that it has, and has not.
	for step in 'pack) kill -KILL $$' 'check) exit 1' 'pack) set -- "${@/\/proc\/self\/fd\/4/'"$WORK"'\/other.nc}"' \
		'pack) echo result packed; exit 0'; do
		n=$((n + 1))
		[ -e "$WORK/other.nc" ] || { cp "$DIRECT/c.nc" "$WORK/other.nc" && printf 'other values' | dd of="$WORK/other.nc" bs=1 seek=3000000 conv=notrunc status=none; }
		fake_converter <<-END
			#!/bin/bash
			for ((i = 1; i < \$#; i++)); do
				[ "\${!i}" = --step ] && i=\$((i + 1)) && case \${!i} in
				$step ;;
				esac
			done
			echo "\$*" >>"$WORK/ran"
			exec "$top_builddir/cistern-nc4" "\$@"
		END
		start_uneven layout=netcdf4,convert_share=1M
		cp "$DIRECT/c.nc" "$WORK/m0/f$n.nc"
		stop_job
		no_leftovers "$WORK/b"
		is_new "$WORK/b/f$n.nc"
		same_file "$DIRECT/c.nc" "$WORK/b/f$n.nc"
		rm -r "$WORK"/s? "$WORK/b"
	done
	[ -s "$WORK/ran" ]
}

@test "a job of two nodes whose agents die at their Nth change while they convert: one of both files is there, in the end the new one" {
	local n k pids
	waves "$DIRECT/c.nc" 3
	for n in 2 4 7; do
		fake_converter <<<$'#!/bin/sh\nexit 7'
		CISTERN_LIBEXEC=$WORK/libexec start_job 2 layout=netcdf4,convert_share=1M
		cp "$DIRECT/c.nc" "$WORK/m1/c.nc"
		stop_job
		cmp "$WORK/b/c.nc" "$DIRECT/c.nc"
		CISTERN_AGENT_ABORT_AFTER=$n start_job 2 layout=netcdf4,convert_share=1M
		pids=()
		for k in 0 1; do
			umount_wait "$WORK/m$k" >/dev/null 2>&1 &
			pids+=($!)
		done
		for k in 0 1; do wait "${pids[k]}" || true; done
		agents_end
		is_whole "$WORK/b/c.nc"
		find "$WORK/b" -printf '%f\n' >>"$WORK/seen"
		start_job 2 layout=netcdf4,convert_share=1M
		stop_job
		is_new "$WORK/b/c.nc"
		same_file "$DIRECT/c.nc" "$WORK/b/c.nc"
		no_leftovers "$WORK/b"
		rm -r "$WORK"/s? "$WORK/b"
	done
	grep -q -- '-nc4' "$WORK/seen"
}
