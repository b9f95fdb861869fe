#!/usr/bin/env bats
# SPDX-License-Identifier: GPL-3.0-or-later
#
# A daemon and what carries its drains are killed at random while a small store is written to and drains all the time. Behind each death the next
# mount shows at once all that had returned. CISTERN_SEED gives other work and deaths, CISTERN_ROUNDS more of them. Run by make soak.

load "${top_srcdir:?}/tests/lib/mount.bash"

seed=${CISTERN_SEED:-1} rounds=${CISTERN_ROUNDS:-30}
options=data=log,capacity=${CISTERN_CAPACITY:-40M},drain=idle,idle_interval=30ms,full_timeout=50ms

mirrored() {
	python3 "$top_srcdir/tests/lib/mirrored.py" "$@"
}

carrier_dies() {
	local pids
	pids=$(pgrep -f -- "drain --store $STORE") && kill -KILL $pids 2>/dev/null || true
}

@test "daemons and agents are killed while a small store drains: each mount shows all that had returned, at once" {
	local round work pids i
	echo "seed $seed"
	RANDOM=$seed
	for ((round = 0; round < rounds; round++)); do
		mount_cistern -o "$options"
		mirrored settle "$MNT" "$DIRECT" "$WORK/pending" || { echo "round $round"; return 1; }
		rm -f "$WORK/pending"
		pids=$(daemon_pids "$MNT")
		mirrored work "$MNT" "$DIRECT" "$((seed * 1000 + round))" "$WORK/pending" 3>&- &
		work=$!
		for ((i = RANDOM % 6; i > 0; i--)); do
			sleep "0.$((RANDOM % 4))"
			carrier_dies
		done
		sleep "$((RANDOM % 2)).$((RANDOM % 10))"
		[ $((RANDOM % 2)) = 0 ] || carrier_dies
		kill -KILL $pids
		wait "$work"
		wait_until 60 gone $pids
	done
	mount_cistern -o "$options"
	mirrored settle "$MNT" "$DIRECT" "$WORK/pending"
	umount_wait
	same_trees "$DIRECT" "$BACKING"
	no_leftovers "$BACKING"
}
