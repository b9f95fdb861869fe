#!/usr/bin/env bats
# SPDX-License-Identifier: GPL-3.0-or-later
#
# Daemons and agents of a job are killed while processes of all nodes work, and started again: what had returned has happened, what
# failed may have. Whom it meets is drawn, the same for the same CISTERN_SEED; CISTERN_ROUNDS gives that many more deaths, CISTERN_NODES and
# CISTERN_MOUNT other jobs. By hand: CISTERN_ROUNDS=20, and a few seeds.

load "${top_srcdir:?}/tests/lib/load.bash"

rounds=${CISTERN_ROUNDS:-0}
seeds=${CISTERN_SEED:-1}

# what_works [--lossy]: processes of all nodes write the same files, others use the same names.
what_works() {
	begin_load writers --phases 1 --expect "$DIRECT" "$@"
	begin_load names --rounds 1 --kinds "$of_files" "$@"
}

@test "agents are killed while all nodes write the same files and use the same names: nobody notices" {
	only_gets
	start_job "$nodes" "${CISTERN_MOUNT:-}"
	what_works
	events 1 agents_die
	end_load
	arrives
}

@test "daemons and agents are killed meanwhile: no write is lost, and an order explains what every call said of names" {
	local kind
	for seed in $seeds; do
		echo "seed $seed"
		rm -rf "$WORK"/s? "$WORK"/b "$WORK/stop" "$DIRECT"/*
		start_job "$nodes" "${CISTERN_MOUNT:-}"
		what_works --lossy
		RANDOM=$seed
		for kind in daemon_dies both_die all_daemons_die; do event "$kind"; done
		events "$rounds" daemon_dies daemon_dies agents_die both_die all_daemons_die
		end_load
		arrives
	done
}
