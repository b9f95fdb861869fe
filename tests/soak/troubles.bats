#!/usr/bin/env bats
# SPDX-License-Identifier: GPL-3.0-or-later
#
# Random work of all nodes (tests/lib/troubled.py) while their job has troubles of all kinds, drawn at random: links are cut for shorter
# and for longer than agent_timeout, daemons and agents hang, die and come back, drains run; and one node never comes back. What was said
# with success has happened, in all mounts, in the backing directory and in what a recovery makes. CISTERN_SEED gives other work and troubles,
# CISTERN_ROUNDS more of them, CISTERN_NODES and CISTERN_MOUNT other jobs. Run by make soak.

load "${top_srcdir:?}/tests/lib/load.bash"

seed=${CISTERN_SEED:-1} nodes=${CISTERN_NODES:-3} rounds=${CISTERN_ROUNDS:-4}
CISTERN_MOUNT=${CISTERN_MOUNT:-agent_timeout=2s}

begin_work() {
	echo "seed $seed"
	: >"$WORK/died"
	begin_load program troubled.py --seed "$seed" --deaths "$WORK/deaths" "$@"
}

# ---- troubles, of node K

for_a_while() {
	sleep "$((RANDOM % ${1:-2})).$((RANDOM % 10))"
}

goes_on_soon() {
	wait_until "${CISTERN_PATIENCE:-120}" goes_on "$(worked)"
}

cut_briefly() {
	cut_link "$1"
	for_a_while
	heal_link "$1"
	goes_on_soon
}

cut_long() {
	cut_link "$1"
	sleep 3
	for_a_while 4
	heal_link "$1"
	goes_on_soon
}

slowed() {
	slow_link "$1" $((RANDOM % 20 + 1))
	for_a_while 4
	heal_link "$1"
	goes_on_soon
}

hangs() {
	local pid=$1
	kill -STOP "$pid"
	undo "kill -CONT $pid 2>/dev/null; true"
	for_a_while 5
	kill -CONT "$pid"
	goes_on_soon
}

daemon_hangs() {
	hangs "$(daemon_pid "$WORK/m$1")"
}

agent_hangs() {
	hangs "$(cat "$WORK/agent$1.pid")"
}

# Its locks are over, from some moment of this on.
dies() {
	{ cat "$WORK/died"; echo "inf $1"; } >"$WORK/deaths.new"
	mv "$WORK/deaths.new" "$WORK/deaths"
	kill_daemon "$WORK/m$1" || return
	echo "$(python3 -c 'import time; print(time.monotonic())') $1" >>"$WORK/died"
	cp "$WORK/died" "$WORK/deaths.new"
	mv "$WORK/deaths.new" "$WORK/deaths"
}

daemon_killed() {
	dies "$1" || return
	for_a_while
	comes_back "$1"
	goes_on_soon
}

agents_killed() {
	kill_agent "$1" || return
	for_a_while 4
	start_agents
}

both_killed() {
	dies "$1" || return
	agents_die_too "$1"
}

killed_while_cut() {
	cut_link "$1"
	for_a_while 4
	daemon_of=$(((RANDOM % nodes)))
	dies "$daemon_of" || return
	comes_back "$daemon_of" || return
	heal_link "$1"
	goes_on_soon
}

# It may fail: a node is in trouble, or the next trouble comes meanwhile.
drained() {
	"$CISTERN" flush --wait --timeout 1m --mount "$WORK/m$1" >>"$WORK/flushes.log" 2>&1 3>&- &
	for_a_while
}

# ---- the end

times_of() {
	(cd "$1" && find . -type f -printf '%P %T@\n' | sort)
}

# Each file that is there is in the manifest, as it is.
manifest_is_true() {
	python3 - "$WORK/s0/manifest.json" "$WORK/b" <<'END'
import json, os, sys
from crc32c import crc32c
manifest, top = json.load(open(sys.argv[1])), sys.argv[2]
entries = {e["path"]: e for e in manifest["files"]}
others = {e["path"] for e in manifest["moved"] + manifest["linked"]}
wrong = []
for path, _, names in os.walk(top):
    for name in names:
        whole = os.path.join(path, name)
        rel = os.path.relpath(whole, top)
        if os.path.islink(whole):
            continue
        e = entries.get(rel)
        if e is None:
            if rel not in others and os.stat(whole).st_nlink == 1:
                wrong.append("%s is not in the manifest" % rel)
            continue
        if e["state"] not in ("drained", "verified") or e["size"] != os.stat(whole).st_size:
            wrong.append("%s: %s" % (rel, e))
        c = e.get("checksum")
        if c and c["of"] == "file" and e["size"] < 1 << 20 and int(c["value"], 16) != crc32c(open(whole, "rb").read()):
            wrong.append("%s: its checksum is another one: %s" % (rel, e))
if manifest["exit_status"]:
    wrong.append("exit status %d" % manifest["exit_status"])
sys.exit("\n".join(wrong) or None)
END
}

memory_of() {
	local k
	for ((k = 0; k < nodes; k++)); do
		awk -v k="$k" '/VmHWM|VmRSS/ {printf "node %d %s %d MiB; ", k, $1, $2 / 1024} END {print ""}' "/proc/$(daemon_pid "$WORK/m$k")/status"
	done
}

all_is_well() {
	echo "events over at $SECONDS s"
	end_load || return
	memory_of
	echo "load over at $SECONDS s"
	arrives || return
	echo "arrived at $SECONDS s"
	diff <(times_of "$WORK/b") <(times_of "$DIRECT") || return
	manifest_is_true || return
	wait_until 10 no_daemon "$WORK"
}

@test "links are cut, nodes hang, daemons and agents die while all nodes work, and drains run: what was said to be done is done" {
	start_job_netns "$nodes" "$CISTERN_MOUNT"
	begin_work --expect "$DIRECT"
	events "$rounds" ${CISTERN_TROUBLES:-cut_briefly cut_long slowed daemon_hangs agent_hangs daemon_killed agents_killed both_killed killed_while_cut drained drained}
	all_is_well
}

@test "the same without network namespaces" {
	start_job "$nodes" "$CISTERN_MOUNT"
	begin_work --expect "$DIRECT"
	events "$rounds" ${CISTERN_TROUBLES:-daemon_hangs agent_hangs daemon_killed agents_killed both_killed drained drained}
	all_is_well
}

# is_lost K: for good.
is_lost() {
	echo "inf $1" >"$WORK/deaths"
	kill_daemon "$WORK/m$1"
	kill -KILL "$(cat "$WORK/agent$1.pid")"
	release_mount "$WORK/m$1"
	mv "$WORK/s$1" "$WORK/lost-store"
	echo "$1" >"$WORK/lost"
	agents_end
}

@test "a node never comes back: the others end with its name, and a recovery gives what is known and lists what is not" {
	local k lost status
	start_job "$nodes" "${CISTERN_MOUNT},node_timeout=2s,unmount_timeout=3s"
	begin_work --lost "$WORK/lost" --model "$WORK/model"
	RANDOM=$seed
	works_on $((RANDOM % 400 + 100))
	[ $((RANDOM % 2)) -eq 0 ] || drained 0
	works_on $((RANDOM % 100 + 20))
	lost=$((RANDOM % nodes))
	echo "node $lost is lost"
	is_lost "$lost"
	works_on 20
	end_load
	local pids=()
	for ((k = 0; k < nodes; k++)); do
		[ "$k" -ne "$lost" ] || continue
		"$CISTERN" umount --wait --timeout 3m "$WORK/m$k" >"$WORK/umount$k" 2>&1 3>&- &
		pids[k]=$!
	done
	for k in "${!pids[@]}"; do
		status=0
		wait "${pids[k]}" || status=$?
		cat "$WORK/umount$k"
		is "$status" 3
	done
	grep "node $lost (host" "$WORK"/umount? # without agents each knows of those alone that it needs
	wait_until 10 no_daemon "$WORK"
	status=0
	"$CISTERN" recover $(for k in "${!pids[@]}"; do echo "$WORK/s$k"; done) --to "$WORK/b" || status=$?
	is "$status" 3
	program troubled.py --model "$WORK/model" --recovered "$WORK/b" --manifest "$WORK/b.cistern-manifest.json"
}
