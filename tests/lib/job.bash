# SPDX-License-Identifier: GPL-3.0-or-later
#
# Emulated hosts, for bats files that load tests/lib/mount.bash too. A job of N nodes has one backing directory $WORK/b; node K has its
# store $WORK/sK and its mount $WORK/mK, and an agent. start_job makes all of that with plain processes, start_job_netns with each
# agent in a network namespace of its own, joined by veth and a bridge. Agents of plain processes read each other's stores as files, unless
# only_gets was said before; those in namespaces are of several hosts, and fetch all by MPI. cistern_teardown ends everything.

needs_mpi() {
	needs_program mpiexec.mpich
	[ -x "${CISTERN_LIBEXEC%%:*}/cistern-mpi-agent" ] || skip "cistern-mpi-agent is not built"
}

# job_setup: for setup(), of what mounts a job.
job_setup() {
	cistern_setup
	needs_fuse
	needs_mpi
}

only_gets() {
	export CISTERN_AGENT_NEAR=no
}

# start_job N [MOUNT_OPTIONS]
start_job() {
	local k
	needs_mpi
	JOB_NODES=$1
	mkdir -p "$WORK/b"
	for ((k = 0; k < $1; k++)); do
		mkdir -p "$WORK/m$k"
		mount_node "$k" ${2:+"$2"} || return
	done
	start_agents
}

# mount_node K [MOUNT_OPTIONS]: mount a node again.
mount_node() {
	mount_cistern -o "nodes=$JOB_NODES${2:+,$2}" "$WORK/s$1" "$WORK/m$1" "$WORK/b"
}

# start_job_netns N [MOUNT_OPTIONS]
start_job_netns() {
	make_hosts "$1"
	start_job "$@"
}

# ---- agents

# start_agents: of $WORK/s0 to $WORK/s<JOB_NODES - 1>, or of the stores in AGENT_STORES, a word each. Returns when they are together.
start_agents() {
	launch_agents || return
	wait_until 60 agents_settled
	grep -q 'assembled nodes=' "$WORK/agents.log" || { cat "$WORK/agents.log"; return 1; }
}

# The same without waiting: AGENTS is mpiexec's process; what they say is in $WORK/agents.log,
# and what those before them said in $WORK/agents.before.log.
launch_agents() {
	local -a stores launcher=()
	read -r -a stores <<<"${AGENT_STORES:-$(for ((k = 0; k < JOB_NODES; k++)); do printf '%s ' "$WORK/s$k"; done)}"
	cat >"$WORK/agent" <<-END
		#!/bin/bash
		stores=(${stores[*]@Q})
		echo \$\$ >"$WORK/agent\$PMI_RANK.pid"
		export CISTERN_LIBEXEC=${CISTERN_LIBEXEC@Q} ASAN_OPTIONS=\${ASAN_OPTIONS:+\$ASAN_OPTIONS:}detect_leaks=0
		exec ${CISTERN@Q} agent --store "\${stores[PMI_RANK]}" --timeout ${AGENT_TIMEOUT:-60s}
	END
	chmod 755 "$WORK/agent"
	[ ! -e "$WORK/agents.log" ] || cat "$WORK/agents.log" >>"$WORK/agents.before.log"
	: >"$WORK/agents.log"
	rm -f "$WORK"/agent*.pid
	if [ -n "${HOSTS:-}" ]; then
		launcher=(nsenter --net="/run/netns/$HOSTS-hub" env UCX_TLS=tcp,self UCX_NET_DEVICES=eth0)
		launcher+=(mpiexec.mpich -launcher ssh -launcher-exec "$WORK/enter" -iface hub -disable-hostname-propagation)
		launcher+=(-hosts "$(seq -s, -f "10.77.0.%g" 1 "${#stores[@]}")" -ppn 1)
	else
		launcher=(mpiexec.mpich)
	fi
	"${launcher[@]}" -n "${#stores[@]}" "$WORK/agent" </dev/null >>"$WORK/agents.log" 2>&1 3>&- &
	AGENTS=$!
	# By their command line, since their numbers may be others' by then.
	undo "for f in \$(grep -las -- $WORK/agent /proc/[0-9]*/cmdline); do kill -KILL \${f//[^0-9]/} 2>/dev/null; done; true"
}

agents_settled() {
	gone "$AGENTS" || grep -q 'assembled nodes=' "$WORK/agents.log"
}

# agents_end [STATUS]: they end by themselves, with that exit status.
agents_end() {
	local status=0
	wait_until 60 gone "$AGENTS" || return
	wait "$AGENTS" || status=$?
	[ -z "${1:-}" ] || [ "$status" -eq "$1" ] || { echo "status $status, not $1"; cat "$WORK/agents.log"; return 1; }
}

stop_agents() {
	kill -TERM "$(cat "$WORK/agent0.pid")"
	agents_end_well
}

# Over TCP MPICH may stumble in MPI_Finalize when all have agreed to end; what the agents themselves complain of counts.
agents_end_well() {
	[ -n "${HOSTS:-}" ] || { agents_end 0; return; }
	agents_end
	refute grep 'cistern agent: node ' "$WORK/agents.log"
}

# kill_agent K: as a crash would. The others must follow.
kill_agent() {
	kill -KILL "$(cat "$WORK/agent$1.pid")"
	agents_end && wait_until 60 no_agents
}

no_agents() {
	local file
	for file in "$WORK"/agent*.pid; do [ ! -e "$file" ] || gone "$(cat "$file")" || return 1; done
}

# kill_daemons: all of the job die, as in a crash of all nodes, and are gone.
kill_daemons() {
	local k pid pids=()
	for ((k = 0; k < JOB_NODES; k++)); do
		pid=$(daemon_pid "$WORK/s$k") || return
		pids+=("$pid")
	done
	kill -KILL "${pids[@]}"
	wait_until 60 gone "${pids[@]}" || return
	for ((k = 0; k < JOB_NODES; k++)); do release_mount "$WORK/m$k"; done
}

# kill_job: the agents, too.
kill_job() {
	kill_daemons || return
	kill -KILL "$AGENTS" 2>/dev/null || true # or they have seen their daemons go
	wait_until 60 no_agents
}

# stop_job: unmounts all, at once; the agents end by themselves.
stop_job() {
	local k pids=() pid bad=0
	for ((k = 0; k < JOB_NODES; k++)); do
		umount_wait "$WORK/m$k" &
		pids+=($!)
	done
	for pid in "${pids[@]}"; do wait "$pid" || bad=1; done
	[ "$bad" -eq 0 ] || return
	agents_end_well
}

# ---- programs over the nodes

# ranks MPI PROGRAM ARG...: one rank on each node; "@" in an argument stands for the rank's mount.
ranks() {
	local k line=()
	for ((k = 0; k < JOB_NODES; k++)); do
		line+=(${line:+:} -n 1 "${@:2}")
		line=("${line[@]//@/$WORK/m$k}")
	done
	run_ranks "$1" "${line[@]}"
}

# direct MPI PROGRAM ARG...: as many ranks, in the plain directory.
direct() {
	run_ranks "$1" -n "$JOB_NODES" "${@:2}"
}

run_ranks() {
	local launcher=(mpiexec.mpich)
	[ "$1" = mpich ] || launcher=(mpiexec.openmpi --allow-run-as-root --oversubscribe -q)
	no_leaks "${launcher[@]}" "${@:2}" </dev/null 3>&-
}

# both MPI PROGRAM ARG...: on the nodes, and in the plain directory; they must say the same.
both() {
	ranks "$@" || return
	direct "${@//@/$DIRECT}"
}

# all_see FILE: all nodes see what is in the plain directory.
all_see() {
	local k
	for ((k = 0; k < JOB_NODES; k++)); do cmp "$WORK/m$k/$1" "$DIRECT/$1" || return; done
}

# The end of the job: everything has arrived, nothing else is there; nor is anything below the mounts, where a test's programs may have come
# while a mount was away.
arrives() {
	local k
	stop_job
	no_leftovers "$WORK/b"
	for ((k = 0; k < JOB_NODES; k++)); do is "$(ls -A "$WORK/m$k")" ""; done
	same_trees "$WORK/b" "$DIRECT"
}

# ---- hosts

# make_hosts N: namespaces HOSTS-1 to HOSTS-N, with the addresses 10.77.0.1 and so on, and HOSTS-hub, where their cables meet.
make_hosts() {
	local k ns
	needs_root "network namespaces"
	needs_program ip nsenter
	HOSTS=cis-${WORK##*-}
	ip netns add "$HOSTS-hub" 2>/dev/null || { HOSTS=; skip "no network namespaces can be made"; }
	undo "ip netns del $HOSTS-hub"
	in_hub ip link set lo up
	in_hub ip link add hub type bridge || skip "no bridge can be made"
	in_hub ip addr add 10.77.0.254/24 dev hub
	in_hub ip link set hub up
	for ((k = 0; k < $1; k++)); do
		ns=$HOSTS-$((k + 1))
		ip netns add "$ns"
		undo "ip netns del $ns"
		in_hub ip link add "v$k" type veth peer name eth0 netns "$ns" || skip "no veth can be made"
		in_hub ip link set "v$k" master hub up
		nsenter --net="/run/netns/$ns" ip link set lo up
		nsenter --net="/run/netns/$ns" ip addr add "10.77.0.$((k + 1))/24" dev eth0
		nsenter --net="/run/netns/$ns" ip link set eth0 up
	done
	# As hydra calls ssh: options, the host, and a command for its shell.
	cat >"$WORK/enter" <<-END
		#!/bin/bash
		while [[ \$1 == -* ]]; do shift; done
		host=\$1
		shift
		exec nsenter --net="/run/netns/$HOSTS-\${host##*.}" sh -c "\$*"
	END
	chmod 755 "$WORK/enter"
}

in_hub() {
	nsenter --net="/run/netns/$HOSTS-hub" "$@"
}

# slow_link K MS: what the node's cable carries comes so much later; where the kernel cannot do that: a packet takes so long.
slow_link() {
	local rate=$((1500 * 8 / $2))
	shape_link "$1" netem delay "$2ms" 2>/dev/null || shape_link "$1" tbf rate "${rate}kbit" burst 10k latency 10s
}

# shape_link K DISCIPLINE...: for both ends.
shape_link() {
	local k=$1
	shift
	in_hub tc qdisc replace dev "v$k" root "$@" &&
		nsenter --net="/run/netns/$HOSTS-$((k + 1))" tc qdisc replace dev eth0 root "$@"
}

can_slow_links() {
	command -v tc >/dev/null
}

cut_link() {
	in_hub ip link set "v$1" down
}

heal_link() {
	in_hub ip link set "v$1" up
	in_hub tc qdisc del dev "v$1" root 2>/dev/null || true
	nsenter --net="/run/netns/$HOSTS-$(($1 + 1))" tc qdisc del dev eth0 root 2>/dev/null || true
}

# inode_of PATH: the number that the store has of what lies there in a mount.
inode_of() {
	python3 -c "from place import inode_of; print(inode_of($(stat -c %i "$1")))"
}
