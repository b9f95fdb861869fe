#!/usr/bin/env bats
# SPDX-License-Identifier: GPL-3.0-or-later
#
# Random work on all mounts of a job while it is drained without pause: what arrives is what a plain directory has in the end, and
# everybody sees the same all the while; also when agents and draining processes are killed meanwhile. By hand for longer: CISTERN_SEED
# gives other work, CISTERN_ROUNDS and CISTERN_SECONDS (of each) more of it, CISTERN_NODES and CISTERN_FLUSHERS (drains at a time) other jobs.

load "${top_srcdir:?}/tests/lib/load.bash"

seed=${CISTERN_SEED:-5} nodes=${CISTERN_NODES:-3}

# trees [OPTIONS...]
trees() {
	program drained_trees.py --seed "$seed" --rounds "${CISTERN_ROUNDS:-3}" --flushers "${CISTERN_FLUSHERS:-2}" --seconds "${CISTERN_SECONDS:-2}" \
		--log "$WORK/calls.log" "$@" "$DIRECT" "$WORK/b" $(mounts)
}

@test "random work on all mounts while drains run: the backing directory becomes what a plain one is" {
	echo "seed $seed"
	start_job "$nodes" "${CISTERN_MOUNT:-}"
	trees
	arrives
}

# One of the processes that drain now; most live for some hundredths of a second.
drainer_dies() {
	local pids tries
	for tries in {1..40}; do
		mapfile -t pids < <(pgrep -f -- "drain --store $WORK/s")
		[ "${#pids[@]}" -gt 0 ] || continue
		kill -KILL "${pids[RANDOM % ${#pids[@]}]}" 2>/dev/null || continue
		echo "a draining process was killed"
		return
	done
}

@test "agents and draining processes are killed meanwhile: drains may fail, and the next ones do what they have not done" {
	local work
	echo "seed $seed"
	start_job "$nodes" "${CISTERN_MOUNT:-}"
	trees --late >"$WORK/trees.log" 2>&1 &
	work=$!
	RANDOM=$seed
	until gone "$work"; do
		sleep "0.$((RANDOM % 10))"
		if [ $((RANDOM % 4)) -gt 0 ]; then
			drainer_dies
		else
			agents_die $((RANDOM % nodes))
			echo "the agents were killed"
		fi
	done
	wait "$work" || { cat "$WORK/trees.log"; return 1; }
	cat "$WORK/trees.log"
	arrives
}

@test "a background drain that makes way while it publishes files of two nodes leaves nothing behind of what it has published" {
	start_job 2 "drain=idle,data=log"
	program given_back.py "$WORK/s0" "$WORK/b" "$WORK/m0" "$WORK/m1"
	stop_job
	no_leftovers "$WORK/b"
}
