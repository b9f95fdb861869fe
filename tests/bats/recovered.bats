#!/usr/bin/env bats
# SPDX-License-Identifier: GPL-3.0-or-later
#
# Random work (tests/lib/recovered.py) of a job that dies, of which it is known who has written each byte: what is recovered, and what is listed as
# missing. CISTERN_SEED gives other work; make soak runs it with several.

load "${top_srcdir:?}/tests/lib/mount.bash"
load "$top_srcdir/tests/lib/job.bash"

setup() {
	job_setup
}

teardown() {
	cistern_teardown
}

# died SEED: a job of three or four nodes has died: in some half of it had been drained, or one node had died before and come back, or nothing had
# been closed.
died() {
	local k pids=() mounts=() drained='' model=(python3 "$top_srcdir/tests/lib/recovered.py" --seed "$1")
	mkdir "$WORK/b"
	"${model[@]}" before "$WORK/model" "$WORK/b"
	start_job $((3 + $1 % 2))
	for ((k = 0; k < JOB_NODES; k++)); do mounts+=("$WORK/m$k"); done
	case $(($1 / 2 % 3)) in
	0)
		"${model[@]}" work "$WORK/model" "${mounts[@]}" 3>&-
		"$CISTERN" flush --wait --timeout 10m --mount "$WORK/m1"
		drained=--drained
		;;
	1)
		k=$(($1 % JOB_NODES))
		pids=("$(daemon_pid "$WORK/m$k")")
		"${model[@]}" work --kill "${pids[0]}" "$WORK/model" "${mounts[@]}" 3>&-
		wait_until 60 gone "${pids[0]}"
		release_mount "$WORK/m$k"
		mount_node "$k"
		;;
	esac
	pids=()
	for k in "${mounts[@]}"; do pids+=("$(daemon_pid "$k")"); done
	if [ $(($1 / 6 % 2)) = 0 ]; then
		"${model[@]}" work $drained "$WORK/model" "${mounts[@]}" 3>&-
	else
		"${model[@]}" work $drained "${pids[@]/#/--kill=}" "$WORK/model" "${mounts[@]}" 3>&-
	fi
	kill -KILL "${pids[@]}" 2>/dev/null || true
	wait_until 60 gone "${pids[@]}"
	for ((k = 0; k < JOB_NODES; k++)); do release_mount "$WORK/m$k"; done
	kill -KILL "$AGENTS" 2>/dev/null || true
	wait_until 60 no_agents
	"${model[@]}" check "$WORK/model" "$WORK/b" "$WORK"/s?
}

@test "random work of a job that dies: recovered from all stores, and from all but one" {
	died "${CISTERN_SEED:-2}"
}
