#!/usr/bin/env bats
# SPDX-License-Identifier: GPL-3.0-or-later
#
# Serving agents among fake daemons: numbering, wrong sets, messages, gets, sleep, and their end.

load "${top_srcdir:?}/tests/lib/mount.bash"
load "$top_srcdir/tests/lib/job.bash"

setup() {
	cistern_setup
	needs_mpi
	fake=${top_builddir:?}/tests/mpi/fake-daemon
	[ -x "$fake" ] || skip "tests/mpi/fake-daemon is not built"
}

# start_fake K [OPTIONS...]: the daemon of $WORK/sK. What it says is in $WORK/dK.
start_fake() {
	local k=$1
	shift
	mkdir -p "$WORK/s$k/segment"
	[ -p "$WORK/c$k" ] || mkfifo "$WORK/c$k"
	: >"$WORK/d$k"
	"$fake" --store "$WORK/s$k" --commands "$WORK/c$k" "$@" >>"$WORK/d$k" 2>&1 3>&- &
	echo $! >"$WORK/fake$k.pid"
	undo "kill -KILL $! 2>/dev/null || true"
	wait_until 60 said "$k" ready
}

start_fakes() {
	local k
	JOB_NODES=$1
	for ((k = 0; k < JOB_NODES; k++)); do start_fake "$k"; done
}

end_fake() {
	tell "$1" end
	wait_until 60 gone "$(cat "$WORK/fake$1.pid")"
}

tell() {
	local k=$1
	shift
	printf '%s\n' "$*" >"$WORK/c$k"
}

# said K TEXT [TIMES]
said() {
	[ "$(grep -cE "$2" "$WORK/d$1")" -ge "${3:-1}" ]
}

refused_since_mute() {
	sed '1,/^mute/d' "$WORK/d$1" | grep -q '^refused'
}

# segment K NUMBER BYTES SEED [KIND]
segment() {
	random_file "$WORK/s$1/segment/$(printf '%08d' "$2").${5:-seg}" "$3" "$4"
}

# The message of a refusal comes everywhere, and the exit status is 2.
refused() {
	agents_end 2
	grep -qF -- "$1" "$WORK/agents.log" || { cat "$WORK/agents.log"; return 1; }
	wait_until 60 no_agents
}

@test "stores are numbered by rank, once, and keep their numbers" {
	start_fakes 3
	start_agents
	for k in 0 1 2; do
		wait_until 60 said "$k" "^assembled node=$k nodes=3 .* incarnations=3"
	done
	stop_agents
	for k in 0 1 2; do wait_until 60 said "$k" '^lost'; done
	AGENT_STORES="$WORK/s2 $WORK/s0 $WORK/s1"
	start_agents
	for k in 0 1 2; do
		wait_until 60 said "$k" "^assembled node=$k nodes=3" 2
	done
	tell 2 send 1 0 1 100
	wait_until 60 said 1 '^received from=2 number=0'
	stop_agents
}

@test "messages go both ways, whole and in order" {
	start_fakes 2
	start_agents
	tell 0 send 1 0 500 100
	tell 1 send 0 0 500 3000
	tell 0 send 1 500 3 4194000
	tell 1 send 0 500 3 4194000
	tell 0 send 1 503 100 70000
	wait_until 60 said 1 '^received from=0' 603
	wait_until 60 said 0 '^received from=1' 503
	refute grep -E 'wrong|disorder|bad|failed' "$WORK/d0" "$WORK/d1"
	stop_agents
}

# KiB that a process has in memory, without what it shares.
memory_of() {
	awk '/^RssAnon/ { print $2 }' "/proc/$1/status"
}

@test "a daemon that does not listen is waited for, in bounded memory" {
	local k before after
	start_fakes 2
	# what a sanitizer keeps of freed memory is not ours
	ASAN_OPTIONS=${ASAN_OPTIONS:+$ASAN_OPTIONS:}quarantine_size_mb=4 start_agents
	tell 1 deaf
	before=$(memory_of "$(cat "$WORK/agent1.pid")")
	tell 0 send 1 0 60000 3000
	# the daemon of node 0 is not listened to any more: its socket fills up, and it hangs in send
	wait_until 60 is_stuck "$(cat "$WORK/fake0.pid")"
	for k in 0 1; do
		after=$(memory_of "$(cat "$WORK/agent$k.pid")")
		echo "agent $k: $before, then $after KiB"
		[ "$((after - before))" -lt 110000 ]
	done
	# the other direction is not held up
	tell 1 send 0 0 100 50000
	tell 1 hear
	wait_until 120 said 1 '^received from=0' 60000
	wait_until 60 said 0 '^received from=1' 100
	refute grep -E 'wrong|disorder|bad|failed' "$WORK/d0" "$WORK/d1" >/dev/null
	stop_agents
}

# Asleep in its kernel without getting on, for a second.
is_stuck() {
	local before
	before=$(grep ctxt "/proc/$1/status")
	sleep 1
	[ "$before" = "$(grep ctxt "/proc/$1/status")" ]
}

# ---- sets of stores that are no job

@test "a store of another job is refused by name" {
	start_fake 0
	start_fake 1
	start_fake 2
	start_fake 3
	AGENT_STORES="$WORK/s0 $WORK/s1" start_agents
	stop_agents
	AGENT_STORES="$WORK/s2 $WORK/s3" start_agents
	stop_agents
	AGENT_STORES="$WORK/s0 $WORK/s3" launch_agents
	refused "$WORK/s3 on host $(hostname) belongs to another job than"
	for k in 0 3; do wait_until 60 said "$k" "^refused .*$WORK/s3 on host"; done
	start_fake 4
	AGENT_STORES="$WORK/s0 $WORK/s4" launch_agents
	refused "$WORK/s4 on host $(hostname) is new, but"
}

@test "a missing store, a store twice, and a copy are refused by name" {
	start_fakes 3
	start_agents
	stop_agents
	AGENT_STORES="$WORK/s0 $WORK/s2" launch_agents
	refused "node 1 of 3 is missing"
	printf '%s\n' cn16 cn17 cn18 >"$WORK/s0/hosts" # as a mount leaves it
	AGENT_STORES="$WORK/s0 $WORK/s2" launch_agents
	refused "node 1 (host cn17) of 3 is missing"
	AGENT_STORES="$WORK/s1" launch_agents
	refused "nodes 0, 2 of 3 are missing"
	says_in_log "mpiexec -n 3 -ppn 1 cistern agent"
	AGENT_STORES="$WORK/s0 $WORK/s1 $WORK/s1" launch_agents
	refused "node 2 (host cn18) of 3 is missing"
	says_in_log "$WORK/s1: another agent of this start serves this store"
	mkdir "$WORK/s3"
	sed 's/^[0-9a-f]\{4\}/abcd/' "$WORK/s1/numbers" >"$WORK/s3/numbers"
	start_fake 3
	AGENT_STORES="$WORK/s0 $WORK/s1 $WORK/s3" launch_agents
	refused "the store $WORK/s3 on host $(hostname) and the store $WORK/s1 on host $(hostname) are both node 1"
}

says_in_log() {
	grep -qF -- "$1" "$WORK/agents.log" || { cat "$WORK/agents.log"; return 1; }
}

@test "another backing directory, job name or protocol is refused by name" {
	start_fake 0 --backing /scratch/a --job one
	start_fake 1 --backing /scratch/b --job one
	start_fake 2 --backing /scratch/a --job two
	start_fake 3 --backing /scratch/a --job one --version 9.1 --protocol 2
	AGENT_STORES="$WORK/s0 $WORK/s1" launch_agents
	refused "$WORK/s1 on host $(hostname) is mounted over /scratch/b, but the store $WORK/s0"
	AGENT_STORES="$WORK/s0 $WORK/s2" launch_agents
	refused "$WORK/s2 on host $(hostname) is of the job 'two', but the store $WORK/s0"
	AGENT_STORES="$WORK/s0 $WORK/s3" launch_agents
	agents_end 1
	says_in_log "$WORK/s3: this agent (0.1.0) speaks protocol 1, the daemon (9.1) speaks protocol 2, and this agent (0.1.0) is the older one: start the agents of the version that the mounts are of, or mount anew"
}

@test "daemons of several versions are one job when they speak a protocol in common" {
	start_fake 0 --version 0.1.7
	start_fake 1 --version 3.0
	AGENT_STORES="$WORK/s0 $WORK/s1" launch_agents
	wait_until 60 said 0 '^assembled node=. nodes=2'
	wait_until 60 said 1 '^assembled node=. nodes=2'
	stop_agents
}

@test "a daemon that refuses ends all agents, with its words" {
	start_fake 0
	start_fake 1 --refuse "this number is not mine"
	AGENT_STORES="$WORK/s0 $WORK/s1" launch_agents
	refused "this number is not mine"
	says_in_log "$WORK/s1"
	wait_until 60 said 0 '^refused .*this number is not mine'
}

# It has looked for its daemon in vain, and sleeps until it looks again.
naps() {
	grep -qs sigtimedwait "/proc/$(cat "$WORK/agent$1.pid")/wchan"
}

@test "agents wait for daemons, and say which one does not come" {
	start_fake 0
	mkdir "$WORK/s1"
	AGENT_STORES="$WORK/s0 $WORK/s1"
	AGENT_TIMEOUT=1s launch_agents
	agents_end 6
	says_in_log "$WORK/s1: no daemon serves this store"
	launch_agents
	wait_until 60 naps 1
	start_fake 1
	wait_until 60 agents_settled
	says_in_log "assembled nodes=2"
	stop_agents
}

@test "one node needs no launcher" {
	start_fake 0
	ASAN_OPTIONS=${ASAN_OPTIONS:+$ASAN_OPTIONS:}detect_leaks=0 "$CISTERN" agent --store "$WORK/s0" >"$WORK/agents.log" 2>&1 3>&- &
	AGENTS=$!
	undo "kill -KILL $AGENTS 2>/dev/null"
	wait_until 60 agents_settled
	wait_until 60 said 0 '^assembled node=0 nodes=1 '
	kill -TERM "$AGENTS"
	agents_end 0
}

# ---- bytes

# fetched K ID STATUS: the answer to a get.
fetched() {
	wait_until 60 said "$1" "^got id=$2 status=" || return
	said "$1" "^got id=$2 status=$3\$" || { cat "$WORK/d$1"; return 1; }
}

# cut FILE OFF LEN
cut_out() {
	tail -c +$(($2 + 1)) "$1" | head -c "$3"
}

right_bytes() {
	local s=$WORK/s1/segment
	start_fakes 2
	segment 1 1 5000000 7
	segment 1 2 300000 8 prv
	start_agents
	tell 0 get 1 "$WORK/g1" 1 1 0 4096 1 1 4096 100 1 1 4196 1000000 1 1 77 5
	fetched 0 1 0
	cmp "$WORK/g1" <(cut_out "$s/00000001.seg" 0 1004196; cut_out "$s/00000001.seg" 77 5)
	tell 0 get 2 "$WORK/g2" 1 1 1234567 3765433 1 2 0 300000
	fetched 0 2 0
	cmp "$WORK/g2" <(cut_out "$s/00000001.seg" 1234567 3765433; cat "$s/00000002.prv")
	# beyond the end; no such segment, node; the node's own
	tell 0 get 3 "$WORK/g3" 1 1 4999999 2
	fetched 0 3 -22
	tell 0 get 4 "$WORK/g4" 1 9 0 10
	fetched 0 4 -2
	tell 0 get 5 "$WORK/g5" 0 1 0 10
	fetched 0 5 -2
	tell 0 get 6 "$WORK/g6" 7 1 0 10
	fetched 0 6 -2
	# grown a little, and beyond the room that was left for it
	random_file "$WORK/more" 200000000 9
	head -c 500000 "$WORK/more" >>"$s/00000002.prv"
	tell 0 get 7 "$WORK/g7" 1 2 299000 501000
	fetched 0 7 0
	cmp "$WORK/g7" <(cut_out "$s/00000002.prv" 299000 501000)
	tail -c +500001 "$WORK/more" >>"$s/00000002.prv"
	tell 0 get 8 "$WORK/g8" 1 2 199000000 1000000 1 2 10 20
	fetched 0 8 0
	cmp "$WORK/g8" <(cut_out "$s/00000002.prv" 199000000 1000000; cut_out "$s/00000002.prv" 10 20)
	# a new one, and one that has gone
	segment 1 10 100000 10
	tell 0 get 9 "$WORK/g9" 1 10 0 100000
	fetched 0 9 0
	cmp "$WORK/g9" "$s/00000010.seg"
	rm "$s/00000001.seg"
	wait_until 60 is_unmapped 1 00000001.seg
	tell 0 get 10 "$WORK/g10" 1 1 0 10
	fetched 0 10 -2
	tell 0 get 11 "$WORK/g11" 1 10 5 10
	fetched 0 11 0
	stop_agents
}

@test "gets bring the right bytes of segments new, grown, deleted" {
	only_gets
	right_bytes
}

@test "so do reads of a store of the same host" {
	right_bytes
}

is_unmapped() {
	refute gone "$(cat "$WORK/agent$1.pid")" && refute grep -q "$2" "/proc/$(cat "$WORK/agent$1.pid")/maps" >/dev/null 2>&1
}

# Of a deleted file nothing is kept: neither mapped by its holder, nor open at the reader.
is_let_go() {
	is_unmapped "$1" "$2" && refute grep -q "$2" <(ls -l "/proc/$(cat "$WORK/agent0.pid")/fd" 2>&1)
}

come_and_go() {
	local i n=0
	start_fakes 2
	start_agents
	for i in 1 2 3 4 5 6; do segment 1 "$i" 2000000 "$i"; cp "$WORK/s1/segment/0000000$i.seg" "$WORK/copy$i"; done
	for i in 1 2 3 4 5 6; do
		tell 0 get "$((100 + i))" "$WORK/h$i" 1 "$i" 0 1000000 1 "$i" 1000000 1000000
		tell 0 get "$((200 + i))" "$WORK/k$i" 1 "$i" 0 1000000
		rm "$WORK/s1/segment/0000000$i.seg"
		tell 0 get "$((300 + i))" "$WORK/l$i" 1 "$i" 1000000 1000000
	done
	for i in 1 2 3 4 5 6; do
		for n in 1 2 3; do wait_until 60 said 0 "^got id=${n}0$i status=(0|-2)\$"; done
		if said 0 "^got id=10$i status=0"; then cmp "$WORK/h$i" "$WORK/copy$i"; fi
		if said 0 "^got id=20$i status=0"; then cmp "$WORK/k$i" <(cut_out "$WORK/copy$i" 0 1000000); fi
		if said 0 "^got id=30$i status=0"; then cmp "$WORK/l$i" <(cut_out "$WORK/copy$i" 1000000 1000000); fi
		wait_until 60 is_let_go 1 "0000000$i.seg"
	done
	stop_agents
}

@test "segments come and go while they are got" {
	only_gets
	come_and_go
}

@test "segments come and go while they are read" {
	come_and_go
}

@test "what lies in a store of the same host is had though its agent stands still" {
	start_fakes 2
	segment 1 1 3000000 1
	start_agents
	tell 0 get 1 "$WORK/g1" 1 1 0 4096
	fetched 0 1 0
	kill -STOP "$(cat "$WORK/agent1.pid")"
	tell 0 get 2 "$WORK/g2" 1 1 0 3000000
	fetched 0 2 0
	kill -CONT "$(cat "$WORK/agent1.pid")"
	cmp "$WORK/g2" "$WORK/s1/segment/00000001.seg"
	stop_agents
}

cut_under_a_get() {
	start_fakes 2
	segment 1 1 3000000 1
	start_agents
	tell 0 get 1 "$WORK/g1" 1 1 0 4096
	fetched 0 1 0
	truncate -s 4096 "$WORK/s1/segment/00000001.seg"
	tell 0 get 2 "$WORK/g2" 1 1 2000000 1000
	wait_until 60 said 0 '^got id=2'
	tell 0 get 3 "$WORK/g3" 1 1 0 4096
	fetched 0 3 0
	cmp "$WORK/g3" "$WORK/s1/segment/00000001.seg"
	stop_agents
}

@test "a file that is cut under a get kills nobody" {
	only_gets
	cut_under_a_get
}

@test "nor does one that is cut under a read" {
	cut_under_a_get
	cmp "$WORK/g2" <(head -c 1000 /dev/zero)
}

# ---- sleep

# Ticks of a process: user and system.
ticks_of() {
	awk '{ sub(/.*\) /, ""); print $12 + $13 }' "/proc/$1/stat"
}

ticks_of_both() {
	echo $(($(ticks_of "$(cat "$WORK/agent0.pid")") + $(ticks_of "$(cat "$WORK/agent1.pid")")))
}

# quick_of_twenty: how many gets take less than 5 ms of twenty that find the agents asleep. Without a wake-up they take 0 to 20 ms, evenly.
quick_of_twenty() {
	local i num
	for i in {1..20}; do
		num=$(grep -c '^latency .* status=0' "$WORK/d0")
		sleep 0.2
		tell 0 latency 1 1
		wait_until 60 said 0 '^latency .* status=0' "$((num + 1))" || return
	done
	grep '^latency' "$WORK/d0" | tail -n 20 | sed 's/^latency usec=//' | awk '$1 < 5000 { n++ } END { print n + 0 }'
}

@test "idle agents sleep, and wake up at once" {
	local k before after quick
	only_gets
	start_fakes 2
	segment 1 1 1000000 1
	start_agents
	tell 0 latency 1 1
	wait_until 60 said 0 '^latency'
	# Nothing goes on any more: from here on they shall sleep, on a slow machine a little later. 1 % of a core each, of 5 s and in ticks of 10 ms
	for k in 1 2 3 4 5; do
		before=$(ticks_of_both)
		sleep 5
		after=$(ticks_of_both)
		echo "# ticks of two idle agents in 5 s: $((after - before))"
		[ "$((after - before))" -gt 10 ] || break
	done
	[ "$((after - before))" -le 10 ]
	# What else the machine does may spoil many.
	for k in 1 2 3 4 5; do
		quick=$(quick_of_twenty)
		echo "# $quick of 20 latencies are below 5 ms"
		[ "$quick" -lt 12 ] || break
	done
	[ "$quick" -ge 12 ]
	stop_agents
}

# is_idle PID...: no one of them needs more than 1 % of a core in 5 s.
is_idle() {
	local pid before=() bad=0
	for pid; do before[pid]=$(ticks_of "$pid"); done
	sleep 5
	for pid; do
		echo "process $pid: $(($(ticks_of "$pid") - before[pid])) ticks"
		[ $(($(ticks_of "$pid") - before[pid])) -le $(($(getconf CLK_TCK) * 5 / 100)) ] || bad=1
	done
	return "$bad"
}

@test "daemons and agents of a job that has worked and drained sleep, with files open and locked" {
	local k pids=()
	needs_fuse
	start_job 2
	random_file "$WORK/ref" 4000000
	for k in 0 1; do cp "$WORK/ref" "$WORK/m$k/f$k"; done
	for k in 0 1; do cmp "$WORK/ref" "$WORK/m$k/f$((1 - k))"; done
	echo more >>"$WORK/m1/f0"
	exec 5<>"$WORK/m0/f0" 6<"$WORK/m1/f0"
	flock 5
	"$CISTERN" flush --wait --mount "$WORK/m0" 3>&-
	for k in 0 1; do pids+=("$(daemon_pid "$WORK/m$k")" "$(cat "$WORK/agent$k.pid")"); done
	is_idle "${pids[@]}" || is_idle "${pids[@]}" || is_idle "${pids[@]}"
	exec 5>&- 6>&-
	stop_job
}

# ---- ends

@test "one killed agent takes the others along, and daemons go on with new ones" {
	start_fakes 2
	start_agents
	tell 0 send 1 0 10 1000
	wait_until 60 said 1 '^received from=0' 10
	kill_agent 1
	for k in 0 1; do wait_until 60 said "$k" '^lost'; done
	start_agents
	tell 0 send 1 10 10 1000
	wait_until 60 said 1 '^received from=0' 20
	kill_agent 0
	stop_agents_that_are_gone
}

stop_agents_that_are_gone() {
	no_agents && gone "$AGENTS"
}

@test "nothing is left behind when the launcher ends, whatever way" {
	start_fakes 2
	start_agents
	kill -TERM "$AGENTS"
	agents_end
	wait_until 60 no_agents
	start_agents
	kill -KILL "$AGENTS"
	wait_until 60 no_agents
	start_agents
	stop_agents
}

@test "a daemon leaves, another one comes; when all have left, the agents end" {
	start_fakes 2
	start_agents
	end_fake 1
	wait_until 60 said 0 '^left node=1'
	start_fake 1
	wait_until 60 said 1 '^assembled node=1 nodes=2'
	wait_until 60 said 0 '^joined node=1 anew=1'
	tell 0 send 1 0 3 5000
	wait_until 60 said 1 '^received from=0' 3
	segment 0 1 100000 3
	tell 1 get 1 "$WORK/g1" 0 1 0 100000
	fetched 1 1 0
	cmp "$WORK/g1" "$WORK/s0/segment/00000001.seg"
	end_fake 0
	wait_until 60 said 1 '^left node=0'
	end_fake 1
	agents_end 0
	wait_until 60 no_agents
}

# ---- hosts

@test "agents in network namespaces; their link is slowed, cut and healed" {
	JOB_NODES=2
	make_hosts 2
	start_fakes 2
	segment 1 1 3000000 1
	start_agents
	tell 0 get 1 "$WORK/g1" 1 1 0 3000000
	fetched 0 1 0
	cmp "$WORK/g1" "$WORK/s1/segment/00000001.seg"
	cut_link 1
	tell 0 send 1 0 5 100000
	tell 0 get 2 "$WORK/g2" 1 1 5 2000000
	sleep 1 # nothing can show that nothing happens
	refute said 0 '^got id=2'
	heal_link 1
	fetched 0 2 0
	cmp "$WORK/g2" <(cut_out "$WORK/s1/segment/00000001.seg" 5 2000000)
	wait_until 60 said 1 '^received from=0' 5
	if can_slow_links; then
		slow_link 1 20
		tell 0 get 3 "$WORK/g3" 1 1 0 4096
		fetched 0 3 0
		heal_link 1
	else
		echo "# links are not slowed: tc is not installed" >&3
	fi
	kill_agent 1
	start_agents
	tell 1 send 0 0 5 100000
	wait_until 60 said 0 '^received from=1' 5
	stop_agents
}

# ---- daemons that end

@test "the last words of a daemon that listens no more arrive" {
	start_fakes 2
	start_agents
	tell 0 shut
	tell 1 send 0 0 1 100
	sleep 1 # nothing can show that nothing happens
	tell 0 send 1 0 200 1000
	tell 0 end
	wait_until 60 said 1 '^left node=0'
	said 1 '^received from=0' 200
	is "$(tail -n 1 "$WORK/d1")" "left node=0"
	stop_agents
}

@test "a daemon that dies while its agent does not listen to it is noticed" {
	start_fakes 2
	start_agents
	tell 1 deaf
	tell 0 send 1 0 60000 3000
	wait_until 60 is_stuck "$(cat "$WORK/fake0.pid")"
	kill -KILL "$(cat "$WORK/fake0.pid")"
	start_fake 0
	wait_until 60 said 0 '^assembled node=0'
	tell 1 hear
	wait_until 120 said 1 '^left node=0'
	wait_until 60 said 1 '^joined node=0'
	refute grep -E 'wrong|disorder|bad' "$WORK/d1" >/dev/null
	stop_agents
}

# ---- more segments than are mapped

@test "any number of segments is got, a few at a time" {
	local i gets=()
	only_gets
	export CISTERN_AGENT_MAPPINGS=4
	start_fakes 2
	for i in {1..20}; do segment 1 "$i" 100000 "$i" prv; gets+=(1 "$i" 0 100000); done
	start_agents
	tell 0 get 1 "$WORK/g1" "${gets[@]}"
	tell 0 get 2 "$WORK/g2" "${gets[@]}"
	fetched 0 1 0
	fetched 0 2 0
	cmp "$WORK/g1" <(cat "$WORK/s1/segment/"*)
	cmp "$WORK/g2" <(cat "$WORK/s1/segment/"*)
	[ "$(grep -c '\.prv$' "/proc/$(cat "$WORK/agent1.pid")/maps")" -le 6 ]
	stop_agents
}

# ---- daemons that are mounted again

@test "a restarted daemon has its agent though another one hangs" {
	only_gets
	start_fakes 2
	segment 1 1 30000000 1
	segment 1 2 100000 2
	start_agents
	tell 0 get 1 "$WORK/g1" 1 1 0 4096
	fetched 0 1 0
	kill -STOP "$(cat "$WORK/agent1.pid")"
	tell 0 get 2 "$WORK/g2" 1 1 0 30000000
	tell 0 get 3 "$WORK/g3" 1 2 0 100000
	end_fake 0
	start_fake 0
	wait_until 60 said 0 '^assembled node=0'
	tell 0 get 2 "$WORK/g4" 1 1 5 29000000
	tell 0 get 5 "$WORK/g5" 1 2 0 100000
	end_fake 0
	start_fake 0
	wait_until 60 said 0 '^assembled node=0'
	tell 0 get 2 "$WORK/g6" 1 1 77 28000000
	tell 0 get 7 "$WORK/g7" 1 2 1 99000
	sleep 1 # nothing can show that nothing happens
	refute said 0 '^got'
	kill -CONT "$(cat "$WORK/agent1.pid")"
	fetched 0 2 0
	fetched 0 7 0
	is "$(grep -c '^got' "$WORK/d0")" 2
	cmp "$WORK/g6" <(cut_out "$WORK/s1/segment/00000001.seg" 77 28000000)
	cmp "$WORK/g7" <(cut_out "$WORK/s1/segment/00000002.seg" 1 99000)
	wait_until 60 has_one_memory "$(cat "$WORK/agent0.pid")"
	stop_agents
}

has_one_memory() {
	[ "$(grep -c memfd:fake "/proc/$1/maps")" -eq 1 ]
}

@test "a daemon that the agents do not serve is told why, now and then" {
	start_fakes 2
	start_agents
	end_fake 1
	rm "$WORK/s1/numbers"
	start_fake 1
	wait_until 60 said 1 "^refused $WORK/s1 is another store than before"
	sleep 4 # nothing can show that nothing happens
	[ "$(grep -c '^refused' "$WORK/d1")" -le 5 ]
	is "$(grep -c 'is another store' "$WORK/agents.log")" 1
	stop_agents
}

@test "a daemon that the agents do not serve, and that is slow for once, is not said to be another one again" {
	start_fakes 2
	start_agents
	end_fake 1
	rm "$WORK/s1/numbers"
	start_fake 1
	wait_until 60 said 1 "^refused $WORK/s1 is another store than before"
	tell 1 mute hello
	wait_until 60 said 1 '^mute'
	wait_until 60 refused_since_mute 1
	is "$(grep -c 'is another store' "$WORK/agents.log")" 1
	stop_agents
}

@test "a daemon that took the assembly and did not answer in time is served later" {
	start_fakes 2
	start_agents
	end_fake 1
	start_fake 1 --mute assembled
	wait_until 60 said 1 '^assembled node=1 nodes=2' 2
	is "$(grep -E '^(mute|lost|assembled)' "$WORK/d1" | cut -d' ' -f1 | tr '\n' ' ')" "mute assembled lost assembled "
	wait_until 60 said 0 '^joined node=1 anew=1'
	tell 1 send 0 0 3 100
	wait_until 60 said 0 ' from=1 '
	stop_agents
}

# ---- told to end

@test "agents that are told to end do so though the first one hangs" {
	start_fakes 2
	start_agents
	kill -STOP "$(cat "$WORK/agent0.pid")"
	kill -TERM "$(cat "$WORK/agent1.pid")"
	agents_end 6
	wait_until 60 no_agents
}

@test "agents that are told to end do so though a daemon is silent" {
	start_fakes 2
	start_agents
	end_fake 0
	start_fake 0 --mute assembled
	wait_until 60 said 0 '^mute'
	kill -TERM "$(cat "$WORK/agent1.pid")"
	agents_end 0
	wait_until 60 no_agents
}
