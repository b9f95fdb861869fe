#!/usr/bin/env bats
# SPDX-License-Identifier: GPL-3.0-or-later
#
# Who carries a drain is killed before each of its steps, the daemon with it or not (tests/lib/killed_step.c): every listed file is there at
# once, with its bytes, and after the next drain nothing temporary is left. Some of the steps, others with another CISTERN_SEED; CISTERN_STRIDE=1: all of
# them.

load "${top_srcdir:?}/tests/lib/mount.bash"

options=drain=unmount,data=log,capacity=8M,reserve=1M,full_timeout=50ms
stride=${CISTERN_STRIDE:-$([ -n "${CISTERN_SEED:-}" ] && echo 5 || echo 19)}
RANDOM=${CISTERN_SEED:-$RANDOM}

setup_file() {
	export shim=$top_builddir/tests/lib/killed_step.so
	[ -e "$shim" ] || skip "tests/lib/killed_step.so is not built"
}

many_changes() {
	python3 "$top_srcdir/tests/lib/many_changes.py" "$@"
}

# begin: a mount with changes of all kinds, whose drain dies before step $1.
begin() {
	rm -rf "$STORE" "$BACKING" "$WORK/died"
	mkdir "$BACKING"
	many_changes make "$BACKING"
	KILLED_STEP=$1 KILLED_FILE=$WORK/died LD_PRELOAD=$shim mount_cistern -o "$options"
	many_changes change "$MNT"
	ls "$BACKING"/.cistern-through-* >"$WORK/through"
}

shows_all() {
	same_trees "$DIRECT" "$MNT"
}

ends() {
	umount_wait
	same_trees "$DIRECT" "$BACKING"
	no_leftovers "$BACKING"
}

expect() {
	many_changes make "$DIRECT"
	many_changes change "$DIRECT"
}

# each_step COMMAND: with every step of a drain, from a few of the first ones on, until there is none of that number.
each_step() {
	local step kills=0
	for ((step = 1 + RANDOM % stride; ; step += stride)); do
		echo "step $step"
		begin "$step"
		"$@"
		ends
		[ -e "$WORK/died" ] || break
		kills=$((kills + 1))
	done
	echo "$kills kills"
	[ "$kills" -gt 1 ]
}

agent_dies() {
	local flusher
	flush >"$WORK/flushed" 2>&1 &
	flusher=$!
	shows_all
	shows_all
	wait "$flusher" || { cat "$WORK/flushed"; return 1; }
	shows_all
}

both_die() {
	local pids
	pids=$(daemon_pids "$MNT")
	flush >"$WORK/flushed" 2>&1 || true
	[ -e "$WORK/died" ] || return 0
	wait_until 60 gone $pids
	mount_cistern -o "$options"
	shows_all
}

write_until_it_dies() {
	local i
	for i in {1..20}; do
		head -c 1000000 /dev/zero >"$MNT/file.$i" || return 0
	done
	echo "nothing died"
	return 1
}

@test "a daemon dies between making a file that is written through to and saying so: it goes with the next drain" {
	local pids
	KILLED_MAKING=.cistern-through- KILLED_FILE=$WORK/died LD_PRELOAD=$shim mount_cistern -o "$options"
	pids=$(daemon_pids "$MNT")
	write_until_it_dies
	wait_until 60 gone $pids
	is "$(find "$BACKING" -name '.cistern-through-*' -size 0 | wc -l)" 1
	mount_cistern -o "$options"
	rm "$MNT"/file.*
	umount_wait
	no_leftovers "$BACKING"
}

@test "an agent dies before one of its steps: nobody notices" {
	expect
	each_step agent_dies
}

@test "it and its daemon die: the next mount shows all at once" {
	expect
	export KILLED_DAEMON=1
	each_step both_die
}

@test "its daemon alone dies, and it notices late: the next mount shows all at once" {
	expect
	export KILLED_DAEMON=alone
	each_step both_die
}
