#!/usr/bin/env bats
# SPDX-License-Identifier: GPL-3.0-or-later
#
# make bench, in miniature: every measure must run and its JSON must be complete. What it measures so is worthless.

setup() {
	[ -n "${top_srcdir:-}" ] && [ -n "${top_builddir:-}" ] || skip "run by make check"
	command -v fio >/dev/null || skip "fio is not installed"
	command -v jq >/dev/null || skip "jq is not installed"
	command -v python3 >/dev/null || skip "python3 is not installed"
	dir=$(mktemp -d "${TMPDIR:-/var/tmp}/cistern-bench.XXXXXX")
	bench=$top_srcdir/tests/bench/run
}

teardown() {
	if [ -n "${dir:-}" ]; then rm -rf "$dir"; fi
}

# What the measurement has left in the directory it was given, and mounts.
nothing_is_left() {
	[ "$(ls "$dir")" = "${1:-}" ]
	! grep -qF "$dir" /proc/self/mountinfo
}

@test "bench lists its measures" {
	run "$bench" --list
	[ "$status" -eq 0 ]
	[ "${#lines[@]}" -ge 13 ]
}

@test "bench refuses a pattern that matches nothing" {
	run "$bench" --dir "$dir" --no-cistern --only 'no such measure'
	[ "$status" -eq 2 ]
	nothing_is_left
}

@test "what make bench is told reaches the measures as it was typed" {
	run make -s -C "$top_builddir" bench MAKEFLAGS= BENCH_ARGS="--quick --runs 1 --scale 0.002 --no-cistern --only ^(write-4k|write-1m)$ --dir '$dir'"
	echo "$output"
	[ "$status" -eq 0 ]
	[[ $output == *write-4k* && $output == *write-1m* && $output != *files-few* ]]
}

@test "bench measures the others without cistern" {
	run "$bench" --quick --runs 1 --scale 0.002 --no-cistern --only '^write-4k$' --dir "$dir" --json "$dir/out.json"
	echo "$output"
	[ "$status" -eq 0 ]
	jq -e '.measures[0].sides.raw.rate.median > 0' "$dir/out.json"
	jq -e '.skipped[] | select(.what == "cistern")' "$dir/out.json"
	nothing_is_left out.json
}

@test "bench measures everything, and its JSON is complete" {
	[ -c /dev/fuse ] || skip "no /dev/fuse"
	# What the libraries below MPI leave to the end of the process is not ours to free.
	export ASAN_OPTIONS=${ASAN_OPTIONS:+$ASAN_OPTIONS:}detect_leaks=0
	[ -x "$CISTERN" ] && [ -x "$CISTERN_LIBEXEC/cistern-fs" ] && [ -x "$CISTERN_LIBEXEC/cistern-agent" ] ||
		skip "cistern is not built"
	run timeout 800 "$bench" --quick --runs 1 --scale 0.002 --dir "$dir" --json "$dir/out.json"
	echo "$output"
	[ "$status" -eq 0 ]
	[ "$(jq '.measures | length' "$dir/out.json")" -eq "$("$bench" --list | wc -l)" ]
	# each line of our defaults has a value, each measure a sample of each round
	run jq -r '.measures[].lines[] | select(.ours == null) | .title' "$dir/out.json"
	[ -z "$output" ]
	jq -e 'all(.measures[].sides | select(.default) | .default[]; .samples | length == 1)' "$dir/out.json"
	jq -e '.machine.kernel and .machine.cpus > 0 and .options.runs == 1' "$dir/out.json"
	nothing_is_left out.json
}

@test "bench cleans up when it is interrupted" {
	# So many rounds that it cannot be done before it is interrupted.
	setsid "$bench" --quick --runs 100000 --scale 0.05 --no-cistern --only '^strided$' --dir "$dir" >"$dir/said" 2>&1 &
	pid=$!
	for _ in $(seq 2400); do
		if grep -q 'strided: ' "$dir/said"; then break; fi
		sleep 0.05
	done
	kill -TERM "$pid"
	status=0
	wait "$pid" || status=$?
	cat "$dir/said"
	[ "$status" -eq 130 ]
	nothing_is_left said
}

@test "the bench of nodes measures everything, and its JSON is complete" {
	[ -c /dev/fuse ] || skip "no /dev/fuse"
	[ -x "$CISTERN_LIBEXEC/cistern-mpi-agent" ] || skip "cistern-mpi-agent is not built"
	command -v mpiexec.mpich >/dev/null || skip "mpiexec.mpich is not installed"
	# What the libraries below MPI leave to the end of the process is not ours to free.
	export ASAN_OPTIONS=${ASAN_OPTIONS:+$ASAN_OPTIONS:}detect_leaks=0
	# What slowed links and a job without work show is the same with sanitizers, and takes its time.
	only=.
	[ -z "${CISTERN_SANITIZED:-}" ] || only='^(n-1-|remote-read|job-drain|job-blob-drain$|commit)'
	run timeout 800 "$top_srcdir/tests/bench/nodes" --quick --runs 1 --scale 0.002 --only "$only" --dir "$dir" --json "$dir/out.json"
	echo "$output"
	[ "$status" -eq 0 ]
	left_out=0
	if jq -e '.skipped[] | select(.what == "hosts")' "$dir/out.json"; then
		left_out=$(jq '[.skipped[] | select(.why == "none of its sides can run")] | length' "$dir/out.json")
	fi
	[ "$(jq '.measures | length' "$dir/out.json")" -eq "$(("$("$top_srcdir/tests/bench/nodes" --list | cut -d' ' -f1 | grep -cE "$only")" - left_out))" ]
	run jq -r '.measures[].lines[] |
		select(.ours == null or .base_side != null and .base == null) | .title' "$dir/out.json"
	[ -z "$output" ]
	[ "$left_out" -gt 0 ] || jq -e '[.skipped[] | select(.what | test("drop") | not)] == []' "$dir/out.json"
	nothing_is_left out.json
}

@test "what falls to the nodes of large jobs is spread evenly" {
	[ -x "$top_builddir/tests/bench/scaling" ] || skip "not built"
	run "$top_builddir/tests/bench/scaling" 64
	echo "$output"
	[ "$status" -eq 0 ]
	[ "${#lines[@]}" -ge 9 ]
	# Fewer domains than nodes cannot be even: 64 domains on 1,024 and 8,192 nodes.
	grep -q '^| drain bytes of one shared file of 1 GiB .*| 16.00 | 128.00 |$' <<<"$output"
	# A step of all nodes in one shared file costs its home about ten messages a node, and does not grow with the square.
	[ "$(awk -F'|' '/messages of the home/ { print ($6 < 12 * 8192) }' <<<"$output")" = 1 ]
}
