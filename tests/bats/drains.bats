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
killed=0
drainer_dies() {
	local pids tries
	for tries in {1..40}; do
		mapfile -t pids < <(pgrep -f -- "drain --store $WORK/s")
		[ "${#pids[@]}" -gt 0 ] || continue
		kill -KILL "${pids[RANDOM % ${#pids[@]}]}" 2>/dev/null || continue
		echo "a draining process was killed"
		killed=$((killed + 1))
		return
	done
}

@test "agents and draining processes are killed meanwhile: drains may fail, and the next ones do what they have not done" {
	local work
	echo "seed $seed"
	only_gets
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
	[ "$killed" -gt 0 ]
	arrives
}

@test "a background drain that makes way while it publishes files of two nodes leaves nothing behind of what it has published" {
	start_job 2 "drain=idle,data=log"
	program given_back.py "$WORK/s0" "$WORK/b" "$WORK/m0" "$WORK/m1"
	stop_job
	no_leftovers "$WORK/b"
}

# Of a job of two, node 1 has files of its own in a directory that was drained, and in one that was not, and half of one; node 0 has died.
lose_leader() {
	start_job 2 agent_timeout=2s,drain=unmount
	mkdir "$WORK/m0/old"
	echo before | tee "$WORK/m0/old/rewritten" "$WORK/m0/half" >/dev/null
	"$CISTERN" flush --wait --mount "$WORK/m0" 3>&-
	random_file "$WORK/ref" 3000000
	cp "$WORK/ref" "$WORK/m1/old/own"
	mkdir "$WORK/m1/new"
	echo fresh >"$WORK/m1/new/f"
	echo zero >"$WORK/m0/zero"
	echo of 0 >>"$WORK/m0/half"
	echo of 1 >>"$WORK/m1/half"
	rm "$WORK/m1/old/rewritten"
	echo after >"$WORK/m1/old/rewritten"
	kill_daemon "$WORK/m0"
	kill -KILL "$AGENTS" "$(cat "$WORK/agent0.pid")" 2>/dev/null || true
	release_mount "$WORK/m0"
	wait_until 60 no_agents
}

# What it can do without node 0 is done, and nothing else.
carried_alone() {
	[[ $output == *"node 0 (host $(hostname)), which leads drains, cannot be reached: only what this node alone has written"* ]]
	cmp "$WORK/ref" "$WORK/b/old/own"
	is "$(cat "$WORK/b/half")" before
	[[ $(cat "$WORK/b/old/rewritten") == @(before|after) ]] # the new file may be another node's for all it knows
	[ ! -e "$WORK/b/new" ]
}

everything_is_there() {
	cmp "$WORK/ref" "$WORK/b/old/own"
	is "$(cd "$WORK/b" && cat old/rewritten new/f zero half)" "after
fresh
zero
before
of 0
of 1"
	no_leftovers "$WORK/b"
}

@test "without node 0 a node drains what it alone has written, and the next session of all has the rest" {
	lose_leader
	exits 3 "$CISTERN" flush --wait --mount "$WORK/m1" 
	carried_alone
	mount_node 0
	start_agents
	"$CISTERN" flush --wait --mount "$WORK/m1" 3>&-
	everything_is_there
	is "$(jq -r '.files[] | select(.path == "old/own") | .state' "$WORK/s0/manifest.json")" drained
	stop_job
	everything_is_there
}

@test "without node 0 a node is unmounted with what it alone has written drained, and a recovery has the rest" {
	lose_leader
	exits 3 "$CISTERN" umount --wait "$WORK/m1"
	carried_alone
	"$CISTERN" recover "$WORK/s0" "$WORK/s1" --to "$WORK/b"
	everything_is_there
}
