# SPDX-License-Identifier: GPL-3.0-or-later
#
# Random work on all mounts of a job whose outcome is known, and what happens to the job meanwhile; for bats files, with what they need to
# mount. CISTERN_SEED gives other work, CISTERN_NODES, CISTERN_MOUNT other jobs.

load "${top_srcdir:?}/tests/lib/mount.bash"
load "$top_srcdir/tests/lib/job.bash"

setup() {
	job_setup
}

seed=${CISTERN_SEED:-1} nodes=${CISTERN_NODES:-2}
of_files=excl,creat,open,symlink,link,unlink,rename,noreplace,exchange,lstat,readdir # for names --kinds

# mounts: of all nodes.
mounts() {
	local k
	for ((k = 0; k < nodes; k++)); do echo "$WORK/m$k"; done
}

# program NAME ARG...: of tests/lib, bounded.
program() {
	timeout "${CISTERN_PATIENCE:-300}" python3 "$top_srcdir/tests/lib/$1" "${@:2}" 3>&-
}

# writers [OPTIONS...] MOUNT...: see tests/lib/shared_writes.py.
writers() {
	program shared_writes.py --seed "$seed" "$@"
}

# names [OPTIONS...] MOUNT...: see tests/lib/names.py.
names() {
	program names.py --seed "$seed" "$@"
}

# begin_load COMMAND OPTIONS...: on all mounts, until end_load, beside what has begun before; its output is in $WORK/load.log. Returns when
# it has begun: what it makes for itself before may not be killed.
begin_load() {
	local own="$WORK/worked.${#LOADS[@]}"
	: >"$own"
	"$@" --until "$WORK/stop" --progress "$own" $(mounts) >>"$WORK/load.log" 2>&1 &
	LOADS+=($!)
	wait_until "${CISTERN_PATIENCE:-120}" has_begun "$own"
}

has_begun() {
	[ -s "$1" ] || a_load_ended
}

end_load() {
	local pid bad=0
	: >"$WORK/stop"
	for pid in "${LOADS[@]}"; do wait "$pid" || bad=1; done
	LOADS=()
	cat "$WORK/load.log"
	return "$bad"
}

a_load_ended() {
	local pid
	for pid in "${LOADS[@]}"; do if gone "$pid"; then return; fi; done
	return 1
}

worked() {
	cat "$WORK"/worked.* | wc -c
}

has_worked() {
	[ "$(worked)" -ge "$1" ] || a_load_ended
}

# works_on N: the load has done N things more.
works_on() {
	wait_until "${CISTERN_PATIENCE:-120}" has_worked $(($(worked) + $1))
	refute a_load_ended || { cat "$WORK/load.log"; return 1; }
}

# Nothing can show that nothing goes on any more; a second without anything is taken for it.
stands_still() {
	local before
	before=$(worked)
	sleep 1
	[ "$before" = "$(worked)" ]
}

# ---- what happens to it

# events NUM KIND...: one after the other, drawn of these kinds.
events() {
	local i num=$1 kinds=("${@:2}")
	RANDOM=$seed
	for ((i = 0; i < num; i++)); do event "${kinds[RANDOM % ${#kinds[@]}]}" || return; done
	works_on 20
}

# event KIND: when the load has got on again, to some node.
event() {
	local node=$((RANDOM % nodes))
	works_on $((RANDOM % 20 + 1)) || return
	echo "event: $1 of node $node"
	"$1" "$node"
}

daemon_dies() {
	kill_daemon "$WORK/m$1" || return
	comes_back "$1"
}

comes_back() {
	release_mount "$WORK/m$1"
	mount_node "$1" "${CISTERN_MOUNT:-}"
}

agents_die() {
	kill_agent "$1" || return
	start_agents
}

# The daemon has died, and the agents do; it is started before them, or behind them.
agents_die_too() {
	kill_agent "$(((RANDOM % nodes)))" || return
	if [ $((RANDOM % 2)) -eq 0 ]; then
		comes_back "$1" && start_agents
	else
		launch_agents && comes_back "$1" && wait_until 60 agents_settled
	fi
}

both_die() {
	kill_daemon "$WORK/m$1" || return
	agents_die_too "$1"
}

all_daemons_die() {
	local k
	for ((k = 0; k < nodes; k++)); do kill_daemon "$WORK/m$k" || return; done
	agents_end || return
	for ((k = 0; k < nodes; k++)); do comes_back "$k" || return; done
	start_agents
}

link_is_cut() {
	cut_link "$1"
	wait_until 60 stands_still || return
	heal_link "$1"
	wait_until "${CISTERN_PATIENCE:-120}" goes_on "$(worked)"
}

# goes_on N: more than N things are done. Agents that have given a link up are started again, as a job's script does.
goes_on() {
	if gone "$AGENTS"; then
		wait_until 30 no_agents && start_agents || return
	fi
	has_worked $(($1 + 1))
}
