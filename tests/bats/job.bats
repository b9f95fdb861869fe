#!/usr/bin/env bats
# SPDX-License-Identifier: GPL-3.0-or-later
#
# Mounts of a job and their agents: numbers, status, what is refused, agents and daemons that come and go.

load "${top_srcdir:?}/tests/lib/mount.bash"
load "$top_srcdir/tests/lib/job.bash"

setup() {
	cistern_setup
	needs_fuse
}

# of K FIELD: what status says of the mount of node K.
of() {
	"$CISTERN" status --json "$WORK/s$1" | jq -rc ".$2"
}

says_of() {
	[ "$(of "$1" "$2")" = "$3" ]
}

@test "mounts of a job get their numbers from the agents, and keep them" {
	start_job 2 job=j7
	for k in 0 1; do
		wait_until 60 says_of $k node $k
		[ "$(of $k nodes) $(of $k job)" = "2 j7" ]
		[ "$(of $k agent_pid)" = "$(cat "$WORK/agent$k.pid")" ]
		[ "$(of $k hosts)" = "[\"$(hostname)\",\"$(hostname)\"]" ]
		[ "$(of $k missing)" = "[]" ]
	done
	run "$CISTERN" status "$WORK/m1"
	[[ $output == *"node 1 (host $(hostname)) of 2"*"process $(cat "$WORK/agent1.pid")"* ]]
	"$CISTERN" inspect --json "$WORK/s1" | jq -e '.node_index == 1 and .num_nodes == 2'
}

@test "a job goes on when its agents die, and takes the next ones" {
	start_job 2
	kill_agent 1
	for k in 0 1; do wait_until 60 says_of $k agent_pid null; done
	run "$CISTERN" status "$WORK/m0"
	[[ $output == *"node 0 (host $(hostname)) of 2"*"none since"* ]]
	start_agents
	for k in 0 1; do wait_until 60 says_of $k agent_pid "$(cat "$WORK/agent$k.pid")"; done
}

@test "a node whose daemon has died is missing until it is mounted again" {
	start_job 2
	kill_daemon "$WORK/s1"
	wait_until 60 says_of 0 missing "[\"node 1 (host $(hostname)): its daemon has not come back\"]"
	mount_node 1
	wait_until 60 says_of 0 missing "[]"
	wait_until 60 says_of 1 agent_pid "$(cat "$WORK/agent1.pid")"
	[ "$(of 1 node)" = 1 ]
}

@test "a second start of agents leaves, and the job goes on" {
	start_job 2
	wait_until 60 says_of 0 agent_pid "$(cat "$WORK/agent0.pid")"
	exits 0 no_leaks "$CISTERN" agent --store "$WORK/s0" --timeout 10s
	says "serves this store already. The job goes on with it"
	says_of 0 agent_pid "$(cat "$WORK/agent0.pid")"
}

@test "agents of another number than the mounts were told are refused before anything is numbered" {
	needs_mpi
	JOB_NODES=2
	for k in 0 1; do
		mkdir -p "$WORK/b" "$WORK/m$k"
		mount_node $k nodes=3
	done
	launch_agents
	agents_end 2
	grep -q "nodes=3" "$WORK/agents.log"
	[ "$(of 0 node)" = null ]
	run "$CISTERN" status "$WORK/m0"
	[[ $output == *"not numbered yet"* ]]
}

# A mount that waits 500 ms for its agents, which nobody starts, and a command that does not wait for more.
call_without_agents() {
	run timeout 60 "$@"
	[ "$status" -eq 1 ]
	[[ $output == *"Input/output error"* ]]
}

@test "a mount whose agents never come refuses names, and one line of its log says for whom it has waited" {
	local k pid
	JOB_NODES=2
	mkdir -p "$WORK/b" "$WORK/m0"
	mount_node 0 agent_timeout=500ms
	for k in 1 2 3; do call_without_agents mkdir "$WORK/m0/x$k"; done
	grep -E ' job_not_assembled text="[^="]+"$' "$WORK/s0/cistern.log"
	is "$(grep -c job_not_assembled "$WORK/s0/cistern.log")" 1
	pid=$(daemon_pid "$WORK/m0")
	kill -TERM "$pid"
	wait_until 60 gone "$pid"
	grep -E ' job_never_assembled failed_calls=[0-9]+$' "$WORK/s0/cistern.log"
}

@test "when agents have come at last, the log says how many calls have failed for want of them" {
	needs_mpi
	JOB_NODES=2
	mkdir -p "$WORK/b" "$WORK/m0" "$WORK/m1"
	for k in 0 1; do mount_node $k agent_timeout=2s; done
	call_without_agents mkdir "$WORK/m0/x"
	start_agents
	wait_until 60 grep -E ' job_assembled failed_calls=1$' "$WORK/s0/cistern.log"
	refute grep job_assembled "$WORK/s1/cistern.log"
	mkdir "$WORK/m0/x"
	stop_job
}

# at_once COMMAND...: answers although the mount's calls may wait for agents as long as anybody cares to.
at_once() {
	timeout 60 "$@" || { echo "status $?: $*"; return 1; }
}

answers_alone() {
	at_once df "$WORK/m0"
	at_once stat "$WORK/m0"
	at_once stat -f "$WORK/m0"
	at_once "$CISTERN" status "$WORK/m0"
}

@test "df, stat of the mount point and status answer at once without agents, before they have come and when they have gone" {
	local listing
	needs_mpi
	JOB_NODES=2
	mkdir -p "$WORK/b" "$WORK/m0" "$WORK/m1"
	for k in 0 1; do mount_node $k agent_timeout=1h; done
	answers_alone
	ls "$WORK/m0" >"$WORK/listing" 3>&- & # what names there are the other nodes know, too
	listing=$!
	start_agents
	wait "$listing"
	mkdir "$WORK/m1/d"
	kill_agent 1
	answers_alone
	start_agents
	is "$(ls "$WORK/m0")" d
	stop_job
}

@test "a mount without other nodes takes no agent, which says how to mount it instead" {
	needs_mpi
	mkdir -p "$WORK/b" "$WORK/m0"
	mount_cistern "$WORK/s0" "$WORK/m0" "$WORK/b"
	exits 2 no_leaks "$CISTERN" agent --store "$WORK/s0" --timeout 10s
	says "$WORK/s0: it is mounted without other nodes (nodes=1), and takes no agent: unmount it, and mount it with -o nodes=N"
	umount_wait "$WORK/m0"
}

@test "a mount that has no agents yet says so and waits for them, and goes on" {
	local writer
	needs_mpi
	JOB_NODES=2
	mkdir -p "$WORK/b" "$WORK/m0" "$WORK/m1"
	for k in 0 1; do mount_node $k; done
	run "$CISTERN" status "$WORK/m0"
	[[ $output == *"one of 2 nodes, not numbered yet"*"start them on all nodes with 'cistern agent'"* ]]
	echo text >"$WORK/m1/f" 3>&- &
	writer=$!
	sleep 1 # nothing can show that nothing happens
	refute gone "$writer"
	start_agents
	wait "$writer"
	is "$(cat "$WORK/m0/f")" text
	stop_job
}

@test "a store of a job is not mounted as if it were alone, nor as one of another number" {
	start_job 2 job=j7
	wait_until 60 says_of 1 node 1
	kill_daemon "$WORK/s1"
	for options in nodes=1 nodes=3 nodes=2,job=j8; do
		run mount_node 1 $options
		[ "$status" -ne 0 ]
		[[ $output == *"this store is that of node 1 (host $(hostname))"*"recover"* ]]
	done
	mount_node 1
}

@test "a store that has been used alone does not become a node's" {
	mkdir -p "$WORK/b" "$WORK/m0"
	mount_cistern "$WORK/s0" "$WORK/m0" "$WORK/b"
	echo x >"$WORK/m0/x"
	kill_daemon "$WORK/s0"
	JOB_NODES=2
	run mount_node 0
	[ "$status" -ne 0 ]
	[[ $output == *"without other nodes"* ]]
	mount_cistern "$WORK/s0" "$WORK/m0" "$WORK/b"
	umount_wait "$WORK/m0"
}

# Directories are looked up once and then believed: somebody must say so when they move.
@test "a directory that is renamed at one node is known by its new name at the other at once" {
	start_job 2
	mkdir "$WORK/m0/d"
	stat "$WORK/m1/d"
	mv "$WORK/m0/d" "$WORK/m0/e"
	wait_until 60 test ! -e "$WORK/m1/d"
	[ -d "$WORK/m1/e" ]
	rmdir "$WORK/m0/e"
	wait_until 60 test ! -e "$WORK/m1/e"
}

# exchange A B
exchange() {
	python3 -c 'import ctypes, os, sys
a, b = map(os.fsencode, sys.argv[1:])
sys.exit(ctypes.CDLL(None).renameat2(-100, a, -100, b, 2))' "$@"
}

# A node that writes to the file of another keeps an inode for it, too, but not its name.
@test "a directory and a file that two nodes write change places, at both" {
	start_job 2
	for home in 0 1; do
		echo one >"$WORK/m$home/f"
		echo two >>"$WORK/m$((1 - home))/f"
		mkdir "$WORK/m1/d" "$WORK/m0/d/in"
		exchange "$WORK/m$home/d" "$WORK/m$home/f"
		mkdir "$WORK/m0/next"
		for k in 0 1; do
			is "$(cd "$WORK/m$k" && find . | sort | xargs)" ". ./d ./f ./f/in ./next"
			is "$(cat "$WORK/m$k/d")" "one
two"
		done
		rm -r "$WORK/m0/d" "$WORK/m1/f" "$WORK/m1/next"
	done
	refute grep tree_ "$WORK/s0/cistern.log" "$WORK/s1/cistern.log"
}

@test "a file that two nodes write is the same at both, by close and by fsync" {
	start_job 2
	echo -n 0123456789 >"$WORK/m0/f"
	exec 5<"$WORK/m1/f"
	echo -n ABC | dd of="$WORK/m1/f" bs=1 seek=4 conv=notrunc status=none
	[ "$(cat "$WORK/m0/f")" = 0123ABC789 ]
	echo -n xyz | dd of="$WORK/m0/f" bs=1 seek=8 conv=notrunc,fsync status=none
	[ "$(cat <&5)" = 0123ABC7xyz ]
	exec 5<&-
	echo more >>"$WORK/m1/f"
	echo and >>"$WORK/m0/f"
	[ "$(cat "$WORK/m1/f")" = $'0123ABC7xyzmore\nand' ]
	truncate -s 4 "$WORK/m1/f"
	[ "$(cat "$WORK/m0/f")" = 0123 ]
	head -c 40M /dev/urandom >"$WORK/m0/big"
	cmp "$WORK/m0/big" "$WORK/m1/big"
	dd if=/dev/zero of="$WORK/m1/big" bs=1M seek=7 count=20 conv=notrunc status=none
	cmp "$WORK/m0/big" "$WORK/m1/big"
	[ "$(dd if="$WORK/m0/big" bs=1M skip=7 count=20 status=none | tr -d '\0' | wc -c)" = 0 ]
}

# read_again BYTES: a file of that size, made at either node; the other one reads and maps it, and again when somebody else, there or where it was
# made, has written and synced.
read_again() {
	timeout 120 python3 - "$1" "$WORK/m0" "$WORK/m1" 3>&- <<'END'
import mmap, os, sys
size, mounts = int(sys.argv[1]), sys.argv[2:]
places = [0, 5000, size // 2, size - 100]

def make(path, text):
    with open(path, "wb") as f:
        f.truncate(size)
        write(f.fileno(), text)

def write(fd, text):
    for at in places:
        assert os.pwrite(fd, text, at) == len(text)
    os.fsync(fd)

def compare(what, read, text):
    for at in places:
        got = read(at)
        assert got == text, f"{what} at {at}: {got}, not {text}"

for home in range(2):
    for by in range(2):
        name = f"/again.{size}.{home}.{by}"
        make(mounts[home] + name, b"begin")
        reader = os.open(mounts[1 - by] + name, os.O_RDONLY)
        mapped = mmap.mmap(reader, size, prot=mmap.PROT_READ)
        writer = os.open(mounts[by] + name, os.O_WRONLY)
        for text in b"begin", b"first", b"again":
            if text != b"begin":
                write(writer, text)
            for _ in range(2):
                compare(f"{name} read", lambda at: os.pread(reader, 5, at), text)
                compare(f"{name} mapped", lambda at: mapped[at:at + 5], text)
        for fd in reader, writer:
            os.close(fd)
END
}

@test "what a node has read and mapped of an open file it reads anew, both ways, when another one has written and synced" {
	start_job 2
	read_again 20000
	read_again $((80 << 20))
	stop_job
}

# store_pages FILE COMMAND: on each mount FILE is mapped, and other bytes of each of its pages are changed, all at the same time; then
# COMMAND is done of each map "m" with the descriptor "fd", one after the other.
store_pages() {
	python3 - "$@" "$WORK"/m? <<'END'
import mmap, os, sys
name, command = sys.argv[1:3]
open(sys.argv[3] + "/" + name, "wb").write(b"." * 9000)
fds = [os.open(mnt + "/" + name, os.O_RDWR) for mnt in sys.argv[3:]]
maps = [mmap.mmap(fd, 9000) for fd in fds]
want = bytearray(b"." * 9000)
for i, m in enumerate(maps):
    for at in range(i * 100, 9000, 1000):
        m[at:at + 50] = want[at:at + 50] = b"%d" % i * 50
for fd, m in zip(fds, maps):
    exec(command)
for fd in fds:
    os.close(fd)
for mnt in sys.argv[3:]:
    got = open(mnt + "/" + name, "rb").read()
    if got != want:
        sys.exit(f"{mnt}/{name}: other bytes from {[a == b for a, b in zip(got, want)].index(False)} on")
END
}

@test "the bytes of files that another node removes or replaces are freed, but of those that are open" {
	local k
	[ "$(printf '%s\n' 6.18 "$(uname -r)" | sort -V | head -n 1)" = 6.18 ] || skip "Linux before 6.18 keeps what it has looked up"
	start_job 2 drain=unmount
	for k in {0..29}; do random_file "$WORK/m1/f$k" 100000 "$k"; done
	cat "$WORK"/m0/f* >/dev/null
	exec 5<"$WORK/m1/f0"
	for k in {0..9}; do rm "$WORK/m0/f$k"; done
	for k in {10..19}; do rm "$WORK/m1/f$k"; done
	for k in {20..29}; do
		: >"$WORK/m0/new"
		mv "$WORK/m0/new" "$WORK/m$((k % 2))/f$k"
	done
	wait_until 60 says_of 1 log_bytes 100000
	random_file "$WORK/expected" 100000 0
	cmp "$WORK/expected" - <&5
	exec 5<&-
	rm "$WORK/expected"
	stop_job
	is "$(find "$WORK/b" -type f -size +0 | wc -l)" 0
	is "$(find "$WORK/b" -type f | wc -l)" 10
}

@test "a file that is open on one node is whole until it is closed, whoever removes it and whatever is drained" {
	start_job 3
	timeout 300 python3 "$top_srcdir/tests/lib/nameless.py" "$DIRECT" "$WORK/b" "$WORK"/m? 3>&-
	arrives
}

@test "nodes that change bytes of the same pages through mappings keep what the others have changed" {
	start_job 3
	store_pages f "m.flush()"
	store_pages g "m.flush(); os.fsync(fd)"
	store_pages h "m.close()"
	stop_job
	cmp "$WORK/b/f" "$WORK/b/g"
	cmp "$WORK/b/f" "$WORK/b/h"
}

# How many of these processes does a file system keep waiting?
waiting() {
	local pid num=0
	for pid; do grep -qs wait_answer "/proc/$pid/wchan" && num=$((num + 1)); done
	echo "$num"
}

many_wait() {
	[ "$(waiting "${callers[@]}")" -ge 8 ]
}

@test "calls that wait for other nodes do not hold up what this node does alone" {
	local k
	start_job 2
	for k in $(seq 12); do mkdir "$WORK/m0/d$k"; done
	exec 9>>"$WORK/m0/open"
	stop_agents
	callers=()
	for k in $(seq 12); do
		stat "$WORK/m0/d$k/nothing" >/dev/null 2>&1 3>&- 9>&- &
		callers+=($!)
	done
	wait_until 60 many_wait
	timeout 120 bash -c 'for i in $(seq 50); do echo line >&9; done'
	timeout 120 stat -f "$WORK/m0" >/dev/null
	many_wait
	start_agents 9>&-
	for k in "${callers[@]}"; do wait "$k" || true; done
	exec 9>&-
	is "$(wc -l <"$WORK/m1/open")" 50
}

# mtime PATH: with nanoseconds.
mtime() {
	stat -c %.9Y "$1"
}

# same_time DIR: at both nodes.
same_time() {
	same_word "$(mtime "$WORK/m0/$1")" "$(mtime "$WORK/m1/$1")" >/dev/null
}

# is_later A B: A > B, as numbers.
is_later() {
	python3 -c 'import sys; from decimal import Decimal as D; sys.exit(not D(sys.argv[1]) > D(sys.argv[2]))' "$1" "$2"
}

@test "a directory has the time of its last change, on whatever node that was; and so it is drained" {
	start_job 2
	mkdir "$WORK/m0/d" "$WORK/m0/e"
	local last=0 now op
	# Both look, so both have something in their caches that is old afterwards. Node 1 makes files, node 0 changes them: they are at home at 1.
	for op in ": >$WORK/m1/d/f" "ln $WORK/m0/d/f $WORK/m0/d/g" "rm $WORK/m0/d/f" "mv $WORK/m1/d/g $WORK/m1/d/h" "ln -s x $WORK/m1/d/s" \
		"mv $WORK/m0/d/h $WORK/m0/e/h" "mkdir $WORK/m1/d/sub" ": >$WORK/m0/d/zero"; do
		wait_until 60 same_time d
		last=$(mtime "$WORK/m1/d")
		eval "$op"
		wait_until 60 same_time d
		is_later "$(mtime "$WORK/m0/d")" "$last" || { echo "$op: $(mtime "$WORK/m0/d") is not later than $last"; false; }
	done
	wait_until 60 same_time e
	# What is synced is known: no waiting here.
	for i in 1 2 3 4 5 6 7 8; do
		mtime "$WORK/m0/d" >/dev/null
		dd if=/dev/zero of="$WORK/m1/d/synced$i" bs=10 count=1 conv=fsync status=none
		same_word "$(mtime "$WORK/m0/d")" "$(mtime "$WORK/m1/d")"
	done
	# Set to an earlier time, then changed again.
	touch -d @1000000000.5 "$WORK/m0/d" "$WORK/m1/e"
	for k in 0 1; do is "$(mtime "$WORK/m$k/d") $(mtime "$WORK/m$k/e")" "1000000000.500000000 1000000000.500000000"; done
	: >"$WORK/m1/d/again"
	wait_until 60 same_time d
	is_later "$(mtime "$WORK/m0/d")" 1000000001
	now=$(mtime "$WORK/m1/d")
	"$CISTERN" flush --wait --mount "$WORK/m0"
	is "$(mtime "$WORK/b/d") $(mtime "$WORK/b/e")" "$now 1000000000.500000000"
	is "$(mtime "$WORK/m0/d") $(mtime "$WORK/m1/d")" "$now $now"
	rm "$WORK/m1/d/again"
	now=$(mtime "$WORK/m1/d")
	stop_job
	is "$(mtime "$WORK/b/d")" "$now"
}

# step_agents: each cistern-agent of node 0 waits for $WORK/go, as long as $WORK/steps is there.
step_agents() {
	local libexec=${CISTERN_LIBEXEC%%:*}
	mkdir "$WORK/libexec"
	ln -s "$libexec"/cistern-* "$WORK/libexec"
	rm "$WORK/libexec/cistern-agent"
	cat >"$WORK/libexec/cistern-agent" <<-END
		#!/bin/bash
		[[ "\$*" != *"$WORK/s0"* ]] || until rm "$WORK/go" 2>/dev/null || [ ! -e "$WORK/steps" ]; do sleep 0.02; done
		exec "$libexec/cistern-agent" "\$@"
	END
	chmod +x "$WORK/libexec/cistern-agent"
	CISTERN_LIBEXEC=$WORK/libexec
}

has_gone() {
	[ ! -e "$WORK/go" ]
}

# is_handed_over DIR: node 1 takes it for clean again.
is_handed_over() {
	local ino
	ino=$(inode_of "$WORK/m1/$1")
	python3 "$top_srcdir/tests/golden/read_log.py" "$WORK/s1" >"$WORK/log" &&
		jq -es --argjson ino "$ino" '[.[] | select(.ino == $ino)] | last | .type == "drained"' <"$WORK/log" >/dev/null
}

# attributes FILE: what a drain carries of it.
attributes() {
	echo "$(stat -c '%s %a %Y %h' "$1") $(cat "$1")"
}

@test "a node that has nothing to carry starts no agents for a drain, and whatever is changed then is carried" {
	local change
	start_job 2 drain=unmount
	mkdir "$WORK/m0/d"
	echo of node 0 >"$WORK/m0/d/a"
	echo of node 1 >"$WORK/m1/d/b"
	"$CISTERN" flush --wait --mount "$WORK/m0"
	is "$(grep -c drain-start "$WORK/s1/cistern.log")" 1
	"$CISTERN" flush --wait --mount "$WORK/m0"
	is "$(grep -c drain-start "$WORK/s1/cistern.log")" 1
	for change in 'ln m1/d/b m1/d/link' 'ln m0/d/b m0/d/link2' 'chmod 600 m0/d/b' 'touch -d 2020-01-02 m1/d/b' 'echo more >>m1/d/b' \
		'echo of both >>m0/d/b' 'truncate -s 5 m0/d/b' 'mv m1/d/link m1/link' 'mv m0/d m0/e' 'rm m0/e/link2' 'mv m1/link m1/e/again' \
		'echo new >m1/e/c' 'mv m0/e/a m0/e/b'; do
		(cd "$WORK" && eval "$change")
		"$CISTERN" flush --wait --mount "$WORK/m0"
		is "$(cd "$WORK/b" && find . -not -name '.cistern*' | sort)" "$(cd "$WORK/m1" && find . | sort)"
		for file in $(cd "$WORK/b" && find . -type f -not -name '.cistern*'); do
			is "$change: $file: $(attributes "$WORK/b/$file")" "$change: $file: $(attributes "$WORK/m1/$file")"
		done
	done
	stop_job
}

@test "what a drain of a job could not carry is complained of until it has been" {
	needs_root "a directory that nobody may write to"
	needs_program chattr
	start_job 2 drain=unmount
	echo mine >"$WORK/m1/f"
	chattr +i "$WORK/b" || skip "chattr does not work"
	undo "chattr -i $WORK/b"
	exits 3 "$CISTERN" flush --wait --mount "$WORK/m0"
	refute is "$(of 1 errors)" 0
	chattr -i "$WORK/b"
	"$CISTERN" flush --wait --mount "$WORK/m0"
	is "$(of 1 errors)" 0
	is "$(cat "$WORK/b/f")" mine
	stop_job
}

@test "node 0 dies when it has been told of a directory's time, and before it has drained that" {
	local now drain
	step_agents
	start_job 2
	mkdir "$WORK/m0/d"
	: >"$WORK/m0/gone"
	"$CISTERN" flush --wait --mount "$WORK/m0"
	: >"$WORK/m1/d/f"
	now=$(mtime "$WORK/m1/d")
	rm "$WORK/m0/gone" # so that every part has something to look at
	touch "$WORK/steps"
	"$CISTERN" flush --wait --mount "$WORK/m1" 3>&- &
	drain=$!
	for _ in dirs park begin files; do
		touch "$WORK/go"
		wait_until 60 has_gone
	done
	wait_until 60 is_handed_over d # while node 0's part "remove" waits
	kill_daemon "$WORK/m0"
	rm "$WORK/steps"
	release_mount "$WORK/m0"
	mount_node 0
	wait "$drain" || true
	stop_job
	is "$(mtime "$WORK/b/d")" "$now"
	[ ! -e "$WORK/b/gone" ]
}

ended() {
	local pid n=0
	for pid in "${looks[@]}"; do [ -d "/proc/$pid" ] || n=$((n + 1)); done
	[ "$n" -ge "$1" ]
}

@test "who looks up a name whose server does not answer holds up nobody else in that directory" {
	local looks=() late=0 k other
	start_job 2
	mkdir "$WORK/m0/d"
	other=$(daemon_pid "$WORK/m1")
	undo "kill -CONT $other 2>/dev/null; true"
	kill -STOP "$other"
	# Of these names each node serves about a half.
	for ((k = 0; k < 24; k++)); do
		stat "$WORK/m0/d/nothing$k" >/dev/null 2>&1 3>&- &
		looks+=($!)
	done
	wait_until 10 ended 5 || late=1
	kill -CONT "$other"
	wait_until 60 ended 24
	[ "$late" -eq 0 ]
	stop_job
}

node_is_silent() {
	"$CISTERN" status "$WORK/m0" | grep -q 'node 1 .*nothing has come from it for [0-9]* s; calls of this node that wait for it: [1-9]'
}

@test "status names a node that does not answer, and how much waits for it" {
	local other made
	start_job 2
	other=$(daemon_pid "$WORK/m1")
	undo "kill -CONT $other 2>/dev/null; true"
	kill -STOP "$other"
	mkdir "$WORK/m0/d" 3>&- &
	made=$!
	wait_until 60 node_is_silent
	kill -CONT "$other"
	wait "$made"
	[ -d "$WORK/m1/d" ]
	refute node_is_silent
	stop_job
}

@test "a directory in use that another node has moved: what is open in it goes on, and after a look it can be renamed over and into" {
	start_job 2
	mkdir -p "$WORK/m0/c/p" "$WORK/m0/c/d"
	exec 9>>"$WORK/m0/c/d/f"
	touch "$WORK/m0/c/x"
	mv "$WORK/m1/c/d" "$WORK/m1/c/p/e"
	# Linux may say ESTALE here, without a look (docs/posix.md); nothing else, and nothing happens.
	python3 - "$WORK/m0/c/x" "$WORK/m0/c/p/e" 3>&- 9>&- <<'END'
import errno, os, sys
try:
    os.rename(*sys.argv[1:])
    sys.exit("a file has replaced a directory")
except OSError as e:
    if e.errno not in (errno.ESTALE, errno.EISDIR):
        raise
END
	echo more >&9
	exec 9>&-
	is "$(cat "$WORK/m1/c/p/e/f")" more
	stat "$WORK/m0/c/p/e"
	refute mv -T "$WORK/m0/c/x" "$WORK/m0/c/p/e"
	mv "$WORK/m0/c/x" "$WORK/m0/c/p/e"
	is "$(ls "$WORK/m1/c/p/e" | tr '\n' ' ')" "f x "
	stop_job
	is "$(cd "$WORK/b" && find . | LC_ALL=C sort | tr '\n' ' ')" ". ./c ./c/p ./c/p/e ./c/p/e/f ./c/p/e/x "
}
# touch_names K: how many of eight new names of both servers cannot be made in the mount of node K.
touch_names() {
	local i bad=0
	for i in 1 2 3 4 5 6 7 8; do
		timeout 60 touch "$WORK/m$1/n$i" 2>"$WORK/touched" && continue
		grep -q "Input/output error" "$WORK/touched" || { cat "$WORK/touched"; return 1; }
		bad=$((bad + 1))
	done
	echo $bad
}

@test "a node that waits unmounted for the others is not mounted again: that is said, and what to do" {
	start_job 2
	"$CISTERN" umount "$WORK/m1"
	exits 5 mount_node 1
	says "serves the other nodes of the job until all are unmounted"
	exits 0 "$CISTERN" umount --wait "$WORK/m0"
	exits 0 "$CISTERN" wait "$WORK/s1"
	agents_end_well
	mount_node 1
	mount_node 0
	start_agents
	stop_job
}

@test "what is at home on a node that was unmounted early is EIO elsewhere; the log and status name the node, and it is back with it" {
	local name failed
	start_job 2 agent_timeout=20s,unmount_timeout=2s
	echo of 1 >"$WORK/m1/f"
	exits 3 "$CISTERN" umount --wait --timeout 5m "$WORK/m1"
	wait_until 60 no_daemon "$WORK/m1"
	is "$(cat "$WORK/b/f")" "of 1"
	name="node 1 (host $(hostname))"
	wait_until 60 says_of 0 missing "[\"$name: its daemon has ended\"]"
	exits 1 timeout 60 cat "$WORK/m0/f"
	says "Input/output error"
	failed=$(touch_names 0)
	[ "$failed" -gt 0 ] && [ "$failed" -lt 8 ]
	is "$(grep -cF "peer-needed text=\"$name is asked" "$WORK/s0/cistern.log")" 1
	mount_node 1
	wait_until 60 grep -E "peer-back .*$(hostname)" "$WORK/s0/cistern.log"
	is "$(cat "$WORK/m0/f")" "of 1"
	is "$(touch_names 0)" 0
	stop_job
}

@test "pause on any node holds the drain of the job, resume on any lets it go on, and a flush does not mind" {
	start_job 3 drain=idle,idle_interval=10ms
	"$CISTERN" pause "$WORK/m1"
	for k in 0 1 2; do wait_until 10 is_paused "$k"; done
	for k in 0 1 2; do random_file "$WORK/m$k/f$k" 100000 "$k"; done
	refute wait_until 2 test -e "$WORK/b/f0" -o -e "$WORK/b/f1" -o -e "$WORK/b/f2"
	"$CISTERN" flush --wait --timeout 2m --mount "$WORK/m2" 3>&-
	for k in 0 1 2; do cmp <(random_file /dev/stdout 100000 "$k") "$WORK/b/f$k"; done
	random_file "$WORK/m0/g" 100000 7
	kill_daemon "$WORK/m2"
	release_mount "$WORK/m2"
	mount_node 2 drain=idle,idle_interval=10ms
	wait_until 30 is_paused 2
	refute wait_until 2 test -e "$WORK/b/g"
	"$CISTERN" resume "$WORK/m2"
	wait_until 60 test -e "$WORK/b/g"
	is "$("$CISTERN" status --json "$WORK/m0" | jq .paused)" false
	stop_job
}

is_paused() {
	[ "$("$CISTERN" status --json "$WORK/m$1" | jq .paused)" = true ]
}

@test "two agents on each node, as srun starts them with two tasks: one of each serves, the other waits, and all end well" {
	mkdir -p "$WORK/b"
	JOB_NODES=2
	for k in 0 1; do
		mkdir "$WORK/m$k"
		mount_node "$k"
	done
	AGENT_STORES="$WORK/s0 $WORK/s0 $WORK/s1 $WORK/s1" start_agents
	is "$(grep -c 'another agent of this start serves this store' "$WORK/agents.log")" 2
	echo one >"$WORK/m0/f"
	is "$(cat "$WORK/m1/f")" one
	random_file "$WORK/m1/g" 3000000
	cmp "$WORK/m0/g" "$WORK/m1/g"
	stop_job
	is "$(cat "$WORK/b/f")" one
}

@test "FIFOs, sockets and device nodes: each node sees, renames and removes what any has made, and the job ends with 0" {
	local numbers
	start_job 2
	mkfifo -m 640 "$WORK/m0/fifo"
	mkdir "$WORK/m1/d"
	mkfifo "$WORK/m1/d/other"
	(cd "$WORK/m1" && python3 -c "import socket; socket.socket(socket.AF_UNIX).bind('sock')")
	is "$(stat -c '%F %a %h' "$WORK/m1/fifo")" 'fifo 640 1'
	is "$(stat -c %F "$WORK/m0/sock" "$WORK/m0/d/other" | tr '\n' ' ')" 'socket fifo '
	for k in 0 1; do
		numbers="${numbers:+$numbers }$(stat -c %i "$WORK/m$k/fifo")"
	done
	is "${numbers% *}" "${numbers#* }"
	[ "${numbers% *}" -lt $((1 << 53)) ]
	chmod 600 "$WORK/m1/fifo"
	is "$(stat -c %a "$WORK/m0/fifo")" 600
	mv "$WORK/m1/fifo" "$WORK/m1/d/moved"
	is "$(stat -c %F "$WORK/m0/d/moved")" fifo
	echo data >"$WORK/m0/d/f"
	rm "$WORK/m0/sock"
	refute test -e "$WORK/m1/sock"
	"$CISTERN" flush --wait --timeout 5m --mount "$WORK/m0"
	is "$(cd "$WORK/b" && find . ! -type d)" ./d/f
	is "$(stat -c %F "$WORK/m0/d/moved" "$WORK/m0/d/other" "$WORK/m1/d/moved" "$WORK/m1/d/other" | sort -u)" fifo
	rm -r "$WORK/m1/d"
	is "$(ls -A "$WORK/m0")" ''
	stop_job
}
