#!/usr/bin/env bats
# SPDX-License-Identifier: GPL-3.0-or-later
#
# Nodes in network namespaces whose links are cut, healed and slowed while their processes work: what needs another node waits and goes
# on, nothing says that it has done what it has not. CISTERN_SEED gives other work, CISTERN_ROUNDS more cuts, CISTERN_NODES other jobs.

load "${top_srcdir:?}/tests/lib/load.bash"

rounds=${CISTERN_ROUNDS:-2}

# what_works: processes of all nodes write the same files, others use the same names.
what_works() {
	begin_load writers --phases 1 --expect "$DIRECT"
	begin_load names --rounds 1 --kinds "$of_files"
}

@test "links are cut and healed while all nodes write the same files and use the same names: they wait, and nothing is lost" {
	start_job_netns "$nodes" "${CISTERN_MOUNT:-}"
	what_works
	events "$rounds" link_is_cut
	end_load
	arrives
}

@test "a link is slow while all nodes write the same files and use the same names" {
	can_slow_links || skip "tc is not installed"
	start_job_netns "$nodes" "${CISTERN_MOUNT:-}"
	slow_link 1 2
	what_works
	works_on 60
	end_load
	heal_link 1
	arrives
}

# eventually COMMAND...: also where a time-out that is short for the test's sake is short for the machine.
eventually() {
	wait_until 120 "$@" 2>/dev/null
}

# put TEXT FILE: where it can, and known to the other node.
put() {
	dd of="$2" conv=notrunc,fsync status=none <<<"$1" 3>&-
}

# both_have TEXT FILE
both_have() {
	is "$(cat "$WORK/m0/$2")" "$1" && is "$(cat "$WORK/m1/$2")" "$1"
}

# cut_in_two [MOUNT_OPTIONS]: two nodes, each with a file f that both have open, and one of its own; and a cut between them.
cut_in_two() {
	local k
	start_job_netns 2 "${1:-}"
	for k in 0 1; do eventually put before "$WORK/m$k/f$k"; done
	eventually put before "$WORK/m1/own"
	exec 5<>"$WORK/m1/own"
	for k in 0 1; do eventually both_have before "f$k"; done
	cut_link 1
}

# create_both NAME...: each name, at both nodes, in processes of their own: creators[NAME] has their numbers.
create_both() {
	local k name
	for name; do
		for k in 0 1; do
			timeout 200 bash -c 'set -C; : >"$1"' - "$WORK/m$k/$name" 2>/dev/null 3>&- &
			creators[$name]+=" $!"
		done
	done
}

num_ended() {
	local pid num=0
	for pid; do if gone "$pid"; then num=$((num + 1)); fi; done
	echo "$num"
}


write_own() {
	timeout 60 python3 -c 'import os; os.write(5, b"mine\n"); os.fsync(5)' 3>&-
}

@test "behind a cut link nothing succeeds that another node must know of, and all of it when the link is healed" {
	local -A creators
	local name writers=() won
	cut_in_two
	for k in 0 1; do
		put BEFORE "$WORK/m$((1 - k))/f$k" &
		writers+=($!)
	done
	create_both a b c d e f g h
	write_own
	same_word "$(timeout 60 stat -f -c %T "$WORK/m1")" "$(stat -f -c %T "$WORK/m0")"
	sleep 2 # nothing can show that nothing happens
	is "$(num_ended "${writers[@]}")" 0
	for name in a b c d e f g h; do [ "$(num_ended ${creators[$name]})" -le 1 ]; done
	heal_link 1
	wait "${writers[0]}" && wait "${writers[1]}"
	for name in a b c d e f g h; do
		won=0
		for pid in ${creators[$name]}; do if wait "$pid"; then won=$((won + 1)); fi; done
		is "$won" 1
		rm "$WORK/m0/$name"
	done
	exec 5>&-
	for k in 0 1; do is "$(cat "$WORK/m$k/f$k")" BEFORE; done
	echo mine >"$DIRECT/own"
	tail -c +6 <<<before >>"$DIRECT/own"
	echo BEFORE | tee "$DIRECT/f0" >"$DIRECT/f1"
	arrives
}

@test "what waits for a node behind a cut link longer than agent_timeout fails, by its name, and works when the link is healed" {
	local k
	cut_in_two agent_timeout=3s
	write_own
	for k in 0 1; do
		exits 1 timeout 200 dd of="$WORK/m$((1 - k))/f$k" conv=notrunc,fsync status=none <<<BEFORE
		says "Input/output error"
		grep "peer-timeout.*gave up waiting for node $k (host .*) after 3 s" "$WORK/s$((1 - k))/cistern.log"
	done
	heal_link 1
	for k in 0 1; do
		eventually put BEFORE "$WORK/m$((1 - k))/f$k"
		is "$(eventually cat "$WORK/m$k/f$k")" BEFORE
	done
	exec 5>&-
	stop_job
	is "$(cat "$WORK/b/f0" "$WORK/b/f1")" "BEFORE
BEFORE"
}

# Of the shared file nothing is published before all of it has come.
has_begun_shared() {
	find "$WORK/b" -name '.cistern-*' | grep -q .
}

@test "a link is cut while a drain works: what needs no other node arrives, the end names the node, the next one does the rest" {
	local i drain status=0
	can_slow_links || skip "tc is not installed"
	start_job_netns 2 agent_timeout=3s
	random_file "$DIRECT/shared" 24000000
	for i in 0 1; do
		random_file "$DIRECT/own$i" 1000000 "$i"
		eventually cp "$DIRECT/own$i" "$WORK/m$i/own$i"
	done
	for i in 0 1 2 3 4 5; do
		eventually dd if="$DIRECT/shared" of="$WORK/m$((i % 2))/shared" bs=4M skip=$i seek=$i count=1 conv=notrunc,fsync status=none
	done
	shape_link 1 tbf rate 10mbit burst 10k latency 10s # 10 s for node 1's bytes
	"$CISTERN" flush --wait --mount "$WORK/m0" >"$WORK/flush.log" 2>&1 3>&- &
	drain=$!
	wait_until 60 has_begun_shared
	cut_link 1
	wait "$drain" || status=$?
	cat "$WORK/flush.log"
	is "$status" 3
	grep 'node 1 (host' "$WORK/flush.log"
	cmp "$WORK/b/own0" "$DIRECT/own0"
	[ ! -e "$WORK/b/shared" ]
	is "$(status_of dirty_files "$WORK/m0")" 1
	heal_link 1
	eventually "$CISTERN" flush --wait --timeout 5m --mount "$WORK/m1" 3>&-
	cmp "$WORK/b/shared" "$DIRECT/shared"
	arrives
}
