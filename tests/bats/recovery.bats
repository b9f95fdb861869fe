#!/usr/bin/env bats
# SPDX-License-Identifier: GPL-3.0-or-later
#
# The stores of a dead job of four nodes, recovered by any number of processes: what the same commands leave in a plain directory.

load "${top_srcdir:?}/tests/lib/mount.bash"
load "$top_srcdir/tests/lib/job.bash"

setup() {
	job_setup
	export ASAN_OPTIONS=${ASAN_OPTIONS:+$ASAN_OPTIONS:}detect_leaks=0 # what the libraries below MPI leave
}

# before DIR: what there is before the job.
before() {
	local i
	mkdir -p "$1/old/deep/er" "$1/away"
	for i in 1 2 3 4 5 6 7 8; do random_file "$1/old/f$i" 3000 "$i"; done
	echo deep >"$1/old/deep/er/file"
	echo gone >"$1/away/gone"
}

put() {
	echo "$1" >"$2"
}

# write_at TEXT FILE OFFSET
write_at() {
	printf '%s' "$1" | dd of="$2" bs=1 seek="$3" conv=notrunc,fsync status=none
}

# on COMMAND...: in the next one of the directories all.
on() {
	local dir=${all[turn++ % ${#all[@]}]}
	(cd "$dir" && "$@")
}

# job DIR...: what a job does, its commands by turns in each of the directories.
job() {
	local all=("$@") turn=0 i
	for i in 1 2 3 4 5 6 7 8 9; do
		on random_file new$i $((i * 5000)) "$((20 + i))"
		on ln new$i link$i
	done
	# One file of all, in several file domains, and one that was there.
	on truncate -s 70M shared
	for i in {0..63}; do
		on write_at "block $i" shared $((i * 1000003))
		on write_at "$i" old/f1 $((i * 40))
	done
	on mv old/deep moved
	on mv moved/er er
	for i in 1 2 3; do on mv "old/f$((i + 1))" er/g$i; done
	# Names change hands.
	on mv old/f5 old/x && on mv old/f6 old/f5 && on mv old/x old/f6
	on rm old/f7 && on put "another f7" old/f7
	on rm -r away
	for i in 1 2 3 4 5 6 7 8; do
		on mkdir d$i
		for k in 1 2 3; do on put "$i $k" d$i/$k; done
		on ln -s ../er d$i/er
	done
	on chmod 640 new3
	on setfattr -n user.a -v b new4
}

# Its four nodes write, and die.
dead_job() {
	mkdir "$WORK/b" "$WORK/ref"
	before "$WORK/ref"
	cp -a "$WORK/ref/." "$WORK/b"
	start_job 4
	job "$WORK/m0" "$WORK/m1" "$WORK/m2" "$WORK/m3"
	job "$WORK/ref"
	kill_job
}

# replace ROUND: on two nodes by turns, files are removed and made anew, and replaced by a rename. A file's node changes with that.
replace() {
	local i r=$1
	for i in {1..16}; do
		rm "$WORK/m$((i % 2))/a$i"
		echo "new $r $i" >"$WORK/m$(((i / 2 + r) % 2))/a$i"
		echo "new $r $i" >"$WORK/m$((i % 2))/t"
		mv "$WORK/m$((i / 2 % 2))/t" "$WORK/m$(((i / 4 + r) % 2))/r$i"
		rm "$WORK/ref/a$i"
		echo "new $r $i" | tee "$WORK/ref/a$i" >"$WORK/ref/r$i"
	done
}

# What a manifest says, but for times and places, and for two files that exchange their names: which line comes last is chance.
said() {
	jq -S '{totals, result, files: (.files | map(select(.path | test("f[56]$") | not)) | sort_by(.path))}' "$1"
}

@test "one, two, three and seven processes recover the same elsewhere, and three say the same in place" {
	local n stores=("$WORK/s2" "$WORK/s0" "$WORK/s3" "$WORK/s1")
	dead_job
	for n in 1 2 3 7; do
		mkdir "$WORK/to$n"
		"$CISTERN" recover -n "$n" "${stores[@]}" --to "$WORK/to$n" --json >"$WORK/json$n"
		is "$(jq .exit_status "$WORK/json$n")" 0
		no_leftovers "$WORK/to$n"
		[ "$n" != 1 ] || { touch -r "$WORK/b" "$WORK/to1"; continue; }
		touch -r "$WORK/b" "$WORK/to$n" # not among what is recovered
		same_trees "$WORK/to$n" "$WORK/to1" times
		diff <(jq 'del(.to, .manifest)' "$WORK/json1") <(jq 'del(.to, .manifest)' "$WORK/json$n")
		diff <(said "$WORK/to1.cistern-manifest.json") <(said "$WORK/to$n.cistern-manifest.json")
	done
	cmp "$WORK/to1/shared" "$WORK/ref/shared"
	cmp "$WORK/to1/old/f1" "$WORK/ref/old/f1"

	exits 0 mpiexec.mpich -n 3 "$CISTERN" recover "${stores[@]}" --to "$WORK/b"
	echo "$output"
	is "$(grep -c 'manifest:' <<<"$output")" 1
	same_trees "$WORK/b" "$WORK/ref"
	no_leftovers "$WORK/b"
}

@test "processes that are killed half-way, or all but one of the stores: another number of them goes on" {
	local n pid
	dead_job
	for n in 2 4 3; do
		find "$WORK/b" -printf '%p %i\n' | sort >"$WORK/was"
		setsid "$CISTERN" recover -n "$n" "$WORK"/s? --to "$WORK/b" >/dev/null 2>&1 3>&- &
		pid=$!
		undo "kill -KILL -- -$pid 2>/dev/null; true"
		wait_until 60 has_begun "$pid"
		kill -KILL -- -$pid 2>/dev/null || true # or it was quick
		wait "$pid" || true
		wait_until 60 no_recovery
	done
	exits 0 "$CISTERN" recover -n 2 "$WORK"/s? --to "$WORK/b"
	same_trees "$WORK/b" "$WORK/ref"
	no_leftovers "$WORK/b"
	# What one store says alone, two processes say, too.
	mkdir "$WORK/to1" "$WORK/to2"
	for n in 1 2; do exits 3 "$CISTERN" recover -n "$n" "$WORK/s1" --to "$WORK/to$n" --backing "$WORK/ref"; done
	same_trees "$WORK/to1" "$WORK/to2"
	is "$(grep -c 'the store of node 2 .* is not given' <<<"$output")" 1
}

has_begun() {
	gone "$1" || ! find "$WORK/b" -printf '%p %i\n' | sort | cmp -s - "$WORK/was"
}

no_recovery() {
	! grep -aqs -- "--to.$WORK/b" /proc/[0-9]*/cmdline
}

# fill_inodes DIR: one is left.
fill_inodes() {
	local i
	mkdir "$1/fill"
	for ((i = 0; ; i++)); do touch "$1/fill/$i" 2>/dev/null || break; done
	rm "$1/fill/$((i - 1))"
}

@test "a recovery that is done again, and gives a file the inode number of the one that it replaces, does not take it for that" {
	local k old claim
	make_loop b 2M
	rmdir "$WORK/b/lost+found"
	for k in 0 1; do # one of both nodes knows the old file
		rm -rf "$WORK/b/fill" "$WORK/b/f" "$WORK/s0" "$WORK/s1"
		echo old >"$WORK/b/f"
		old=$(stat -c %i "$WORK/b/f")
		start_job 2
		rm "$WORK/m0/f"
		echo new >"$WORK/m$k/f"
		kill_job
		claim=$WORK/b/.cistern-tmp-$("$CISTERN" inspect --json "$WORK/s0" | jq -r '.job_uuid[:8]')-recovery
		touch "$WORK/b/claim" # it is there already, so the free inode is the file's
		fill_inodes "$WORK/b"
		ln -f "$WORK/b/claim" "$claim"
		exits 0 "$CISTERN" recover "$WORK/s0" "$WORK/s1" --to "$WORK/b"
		is "$(<"$WORK/b/f")" new
		ln "$WORK/b/claim" "$claim"
		exits 0 "$CISTERN" recover "$WORK/s0" "$WORK/s1" --to "$WORK/b"
		is "$(<"$WORK/b/f")" new
		is "$(stat -c %i "$WORK/b/f")" "$old"
	done
}

@test "files that were there before the job, or were drained in it, and are replaced by those of other nodes: drained and recovered" {
	local i
	mkdir "$WORK/b" "$WORK/ref"
	for i in {1..16}; do echo "old $i" | tee "$WORK/b/a$i" "$WORK/b/r$i" "$WORK/ref/a$i" >"$WORK/ref/r$i"; done
	start_job 2
	replace 1
	"$CISTERN" flush --wait --timeout 10m --mount "$WORK/m0"
	same_trees "$WORK/b" "$WORK/ref"
	replace 2
	stop_job
	same_trees "$WORK/b" "$WORK/ref"
	no_leftovers "$WORK/b"

	start_job 2
	replace 3
	kill_job
	exits 0 "$CISTERN" recover "$WORK/s0" "$WORK/s1" --to "$WORK/b"
	same_trees "$WORK/b" "$WORK/ref"
	no_leftovers "$WORK/b"
}

# before_types DIR: names that are going to change their type, in several copies: whose node does what differs from one to the next.
before_types() {
	local d f
	for d in "$1"/{1..3}; do
		mkdir -p "$d/a" "$d/away/sub" "$d/old" "$d/up" "$d/deep/er" "$d/x"
		for f in m f r a/b away/gone away/sub/x old/in up/f deep/er/kept deep/rest x/in; do echo "before, $f" >"$d/$f"; done
		ln "$d/f" "$d/link"
		ln -s m "$d/l"
	done
}

# types ROUND DIR...: each call in the next one of the directories. In even rounds back again.
types() {
	local all=("${@:2}") turn=0 i d f
	for i in 1 2 3; do
		turn=$i
		at() { d=${all[turn++ % ${#all[@]}]}/$i; }
		if [ "$(($1 % 2))" = 1 ]; then
			for f in m a/b l; do
				at; rm "$d/$f"; at; mkdir "$d/$f"; at; echo "in $f, $1" >"$d/$f/in"; at; echo "too, $1" >"$d/$f/too"
			done
			for f in away x; do at; rm -r "$d/$f"; done
			at; echo "away, $1" >"$d/away"
			at; ln -s m "$d/x"
			# What had the name is still there, under another.
			at; mv "$d/old" "$d/new"; at; echo "old, $1" >"$d/old"
			at; mv "$d/r" "$d/s"; at; mkdir "$d/r"; at; echo "in r, $1" >"$d/r/in"
			at; rm "$d/f"; at; mkdir "$d/f"; at; mv "$d/link" "$d/f/link"
			at; mv "$d/up" "$d/down"; at; rm "$d/down/f"; at; mkdir "$d/down/f"; at; echo "in down/f, $1" >"$d/down/f/in"
			# Out of a directory that goes.
			at; mv "$d/deep/er" "$d/er"; at; mv "$d/er/kept" "$d/kept"; at; rm -r "$d/deep"; at; mv "$d/kept" "$d/deep"
		else
			for f in m a/b l; do at; rm -r "$d/$f"; at; echo "$f, $1" >"$d/$f"; done
			for f in away x; do at; rm "$d/$f"; at; mkdir "$d/$f"; at; echo "in $f, $1" >"$d/$f/in"; done
			at; rm "$d/old"; at; mv "$d/new" "$d/old"
			at; rm -r "$d/r"; at; mv "$d/s" "$d/r"
			at; mv "$d/f/link" "$d/link"; at; rmdir "$d/f"; at; ln "$d/link" "$d/f"
			at; rm -r "$d/down/f"; at; echo "down/f, $1" >"$d/down/f"; at; mv "$d/down" "$d/up"
			at; mv "$d/deep" "$d/kept"; at; mkdir "$d/deep"; at; mv "$d/er" "$d/deep/er"; at; mv "$d/kept" "$d/deep/er/kept"
		fi
	done
}

# job_of_types NODES
job_of_types() {
	mkdir "$WORK/b" "$WORK/ref"
	before_types "$WORK/b"
	before_types "$WORK/ref"
	start_job "$1"
}

next_types() {
	types "$1" "${@:2}"
	types "$1" "$WORK/ref"
}

@test "names that change their type, of what was there or was drained, on two and three nodes: drained" {
	local n
	for n in 2 3; do
		job_of_types "$n"
		next_types 1 "$WORK"/m?
		"$CISTERN" flush --wait --timeout 10m --mount "$WORK/m0"
		same_trees "$WORK/b" "$WORK/ref"
		no_leftovers "$WORK/b"
		is "$(jq -c '.result, [.removed[].path | select(contains(".cistern"))]' "$WORK/s0/manifest.json" | tr '\n' ' ')" '"complete" [] '
		next_types 2 "$WORK"/m?
		stop_job
		same_trees "$WORK/b" "$WORK/ref"
		no_leftovers "$WORK/b"
		rm -r "$WORK/b" "$WORK/ref" "$WORK"/s?
	done
}

@test "names that change their type in a job that dies: recovered, by processes that die at their first change, at their third, and so on" {
	local n=1
	job_of_types 3
	next_types 1 "$WORK"/m?
	"$CISTERN" flush --wait --timeout 10m --mount "$WORK/m2"
	next_types 2 "$WORK"/m?
	kill_job
	until CISTERN_AGENT_ABORT_AFTER=$n "$CISTERN" recover -n "$((1 + n % 3 / 2))" "$WORK"/s? --to "$WORK/b" >"$WORK/out" 2>&1 3>&-; do
		n=$((n + 2))
		[ "$n" -lt 200 ] || { cat "$WORK/out"; return 1; }
	done
	[ "$n" -gt 10 ] || { echo "it came through with $n"; return 1; }
	same_trees "$WORK/b" "$WORK/ref"
	no_leftovers "$WORK/b"
	exits 0 "$CISTERN" recover "$WORK"/s? --to "$WORK/b"
	same_trees "$WORK/b" "$WORK/ref"
}

@test "what a living job's draining process had moved when it died is taken back" {
	local n
	mkdir -p "$WORK/b/was/sub" "$WORK/ref/is"
	echo x | tee "$WORK/b/was/sub/file" >"$WORK/ref/is/file"
	start_job 2
	mv "$WORK/m1/was/sub" "$WORK/m1/is"
	rmdir "$WORK/m0/was"
	for n in 1 2 3 4; do
		kill_daemon "$WORK/m0"
		release_mount "$WORK/m0"
		CISTERN_AGENT_ABORT_AFTER=$n mount_node 0
		"$CISTERN" flush --wait --timeout 60s --mount "$WORK/m1" >>"$WORK/flushed" 2>&1 3>&- || true
	done
	refute grep ' error undo ' "$WORK/s0/cistern.log"
	grep ' info undo session=' "$WORK/s0/cistern.log"
	stop_job
	same_trees "$WORK/b" "$WORK/ref"
	no_leftovers "$WORK/b"
}

# dying_node K CHANGES: its daemon is killed; the next one's draining processes die at that change.
dying_node() {
	kill_daemon "$WORK/m$1" || return
	release_mount "$WORK/m$1"
	CISTERN_AGENT_ABORT_AFTER=$2 mount_node "$1"
}

deaths() {
	grep -c 'cistern-agent ended with status 137' "$WORK/s$1/cistern.log" || true
}

# has_died K FLUSH NUM: more often than that, or there were fewer changes.
has_died() {
	gone "$2" || [ "$(deaths "$1")" -gt "$3" ]
}

# By hand: CISTERN_CHANGES="$(seq 1 2 80)" and the like.
@test "names that change their type in a job that goes on while the processes that drain it die at their first change, at their third, and so on, and daemons with them" {
	local n round=1 victim=0 pid died
	job_of_types 3
	for n in ${CISTERN_CHANGES:-1 5 13 3}; do
		dying_node "$victim" "$n"
		next_types "$round" "$WORK"/m?
		died=$(deaths "$victim")
		"$CISTERN" flush --wait --timeout 60s --mount "$WORK/m$(((victim + 1) % 3))" >>"$WORK/flushed" 2>&1 3>&- &
		pid=$!
		wait_until 60 has_died "$victim" "$pid" "$died"
		if [ $((round % 3)) = 0 ]; then kill_agent 1 && start_agents; fi
		same_trees "$WORK/m$victim" "$WORK/ref"
		victim=$(((victim + 1) % 3)) round=$((round + 1))
	done
	for n in 0 1 2; do kill_daemon "$WORK/m$n"; done
	agents_end
	for n in 0 1 2; do
		release_mount "$WORK/m$n"
		mount_node "$n"
	done
	start_agents
	stop_job
	same_trees "$WORK/b" "$WORK/ref"
	refute grep -h ' error undo ' "$WORK"/s?/cistern.log
}

# take_turns SECONDS: two nodes give six names new files, by a rename or anew, and take them away, each call on any of them; what is there must
# always be the newest. Leaves the same in $WORK/ref.
take_turns() {
	python3 - "$WORK" "$1" 3>&- <<'END'
import os, random, sys, time
work, end, want, n = sys.argv[1], time.time() + float(sys.argv[2]), {}, 0
random.seed(1)
nodes = [work + "/m0/", work + "/m1/"]
def put(path, text):
    with open(path, "w") as f:
        f.write(text)
while time.time() < end or n < 100:
    n += 1
    name, kind, a, b = "f%d" % random.randrange(6), random.random(), random.choice(nodes), random.choice(nodes)
    text = "%d\n" % n * random.choice([1, 2000])
    if kind < 0.45:
        put(a + "t", text)
        os.rename(b + "t", b + name)
        want[name] = text
    elif name in want:
        os.unlink(a + name)
        del want[name]
    if 0.45 <= kind < 0.9:
        put(b + name, text)
        want[name] = text
    if random.random() < 0.2:
        time.sleep(random.random() / 10)
for name in want:
    put(work + "/ref/" + name, want[name])
END
}

@test "names that go from file to file and from node to node while drains run: none is lost" {
	mkdir "$WORK/b" "$WORK/ref"
	start_job 2 drain=idle,idle_interval=10ms
	take_turns 8
	stop_job
	same_trees "$WORK/b" "$WORK/ref"
	no_leftovers "$WORK/b"
}

# A job of two that died, and wrote $WORK/ref as f.
dead_pair() {
	start_job 2
	random_file "$WORK/ref" 3000000
	cp "$WORK/ref" "$WORK/m0/f"
	write_at other "$WORK/m1/f" 10
	write_at other "$WORK/ref" 10
	kill_job
}

@test "one recovery of a store at a time, and no mount meanwhile" {
	local pid n waiter status
	mkdir "$WORK/b" "$WORK/to" "$WORK/to2"
	dead_pair
	for n in 1 2; do
		CISTERN_DRAIN_RATE=20K CISTERN_FLUSH_BUFFER_SIZE=1M "$CISTERN" recover -n "$n" "$WORK/s0" "$WORK/s1" --to "$WORK/b" >/dev/null 2>&1 3>&- &
		pid=$!
		undo "kill $pid 2>/dev/null; true"
		wait_until 60 has_shared
		exits 5 "$CISTERN" recover "$WORK/s1" --to "$WORK/b"
		says 'is in use by a recovery (process'
		exits 5 "${top_builddir:?}/cistern-agent" recover "$WORK/s1" "$WORK/s0" --to "$WORK/to2" # the first look is past
		says "$WORK/s1: in use by a recovery (process"
		exits 5 "$CISTERN" mount "$WORK/b" "$WORK/m1" --store "$WORK/s1" -o nodes=2
		says "$WORK/s1: in use by a recovery (process"
		exits 5 "$CISTERN" fsck "$WORK/s0"
		says 'is in use by a recovery (process'
		exits 6 "$CISTERN" wait --timeout 10ms "$WORK/s0"
		says "$WORK/s0 is still in use by a recovery (process"
		exits 0 "$CISTERN" status "$WORK/s0" # who only reads may
		exits 0 "$CISTERN" inspect "$WORK/s1"
		"$CISTERN" wait "$WORK/s1" >"$WORK/said" 2>&1 3>&- &
		waiter=$!
		wait_until 60 grep -q "$WORK/s1 is in use by a recovery (process" "$WORK/said"
		kill "$pid"
		status=0
		wait "$waiter" || status=$?
		is "$status" 3
		grep 'it has ended' "$WORK/said"
		wait "$pid" || true
		wait_until 60 no_recovery
		rm -f "$WORK"/b/.cistern-shared-*
	done
	exits 2 "$CISTERN" recover "$WORK/s0" "$WORK/s0" --to "$WORK/to"
	says 'are both of node 0'
	chmod a-w "$WORK/s0/lock" # as good as it goes
	exits 0 "$CISTERN" recover "$WORK/s0" "$WORK/s1" --to "$WORK/b"
	cmp "$WORK/b/f" "$WORK/ref"
}

@test "a recovery in a container is met by one in another, which has the same process number there" {
	needs_root "containers"
	unshare -pf true 2>/dev/null || skip "no name space of processes can be had"
	mkdir "$WORK/b" "$WORK/to"
	start_job 2
	random_file "$WORK/m0/f" 3000000
	write_at other "$WORK/m1/f" 10
	kill_job
	CISTERN_DRAIN_RATE=20K CISTERN_FLUSH_BUFFER_SIZE=1M unshare -pf --kill-child "${top_builddir:?}/cistern-agent" recover "$WORK/s0" "$WORK/s1" --to "$WORK/b" >/dev/null 2>&1 3>&- &
	undo "kill $! 2>/dev/null; true"
	wait_until 60 has_shared
	exits 5 unshare -pf "$top_builddir/cistern-agent" recover "$WORK/s0" "$WORK/s1" --to "$WORK/to"
	says "$WORK/s0: in use by "
	kill -KILL "$!" # its child, too
	wait "$!" || true
	wait_until 60 no_recovery
}

@test "copies of stores, which have locks of their own, are not recovered into one place at once; in another one they are" {
	local pid
	mkdir "$WORK/b" "$WORK/to"
	dead_pair
	cp -a "$WORK/s0" "$WORK/c0"
	cp -a "$WORK/s1" "$WORK/c1"
	CISTERN_DRAIN_RATE=20K CISTERN_FLUSH_BUFFER_SIZE=1M "$CISTERN" recover "$WORK/s0" "$WORK/s1" --to "$WORK/b" >/dev/null 2>&1 3>&- &
	pid=$!
	undo "kill $pid 2>/dev/null; true"
	wait_until 60 has_shared
	exits 5 "$CISTERN" recover "$WORK/c0" "$WORK/c1" --to "$WORK/b"
	says "$WORK/b: in use by a recovery (process"
	exits 5 "$CISTERN" recover -n 2 "$WORK/c0" "$WORK/c1" --to "$WORK/b"
	is "$(grep -c "in use by a recovery (process" <<<"$output")" 1
	has_shared
	exits 0 "$CISTERN" recover "$WORK/c0" "$WORK/c1" --to "$WORK/to"
	cmp "$WORK/to/f" "$WORK/ref"
	is "$(ls -A "$WORK/to")" f
	kill "$pid"
	wait "$pid" || true
	exits 0 "$CISTERN" recover "$WORK/c0" "$WORK/c1" --to "$WORK/b" # it takes over what the killed one has left
	cmp "$WORK/b/f" "$WORK/ref"
	is "$(ls -A "$WORK/b")" f
}

has_shared() {
	[ -n "$(find "$WORK/b" -name '.cistern-shared-*')" ]
}

@test "names do not steer the terminal, and output that does not arrive is a failure" {
	local n odd=$'o\ndd\e[31m'
	mkdir "$WORK/b" "$WORK/to" "$WORK/to1"
	start_job 2
	for n in "$odd" f; do
		echo x >"$WORK/m0/$n"
		write_at other "$WORK/m1/$n" 10
	done
	kill_job
	exits 3 "$CISTERN" recover "$WORK/s1" --to "$WORK/to"
	says 'o?dd?[31m: 2 bytes, the first at offset 0'
	refute grep -q $'\e' <<<"$output"
	exits 1 bash -c '"$@" >/dev/full' - "$CISTERN" recover "$WORK/s0" "$WORK/s1" --to "$WORK/to1" --json
	says 'cannot write the output'
}

@test "elsewhere, what has become of a directory is told once, whatever number of stores knows it" {
	local n
	mkdir -p "$WORK/b/d/sub" "$WORK/b/e/sub" "$WORK/to1" "$WORK/to2"
	for n in d/x e/x f g; do echo x >"$WORK/b/$n"; done
	start_job 3
	mv "$WORK/m0/d" "$WORK/m0/dd"
	mv "$WORK/m2/g" "$WORK/m2/h"
	rm -r "$WORK/m1/e" "$WORK/m2/f"
	kill_job
	for n in 1 2; do
		exits 0 "$CISTERN" recover -n "$n" "$WORK/s0" "$WORK/s1" "$WORK/s2" --to "$WORK/to$n"
		says 'names moved: 2, removed: 4 '
		is "$(jq -r '.removed[].path' "$WORK/to$n.cistern-manifest.json" | sort | tr '\n' ' ')" 'e e/sub e/x f '
	done
}

@test "what is not for several processes is refused, and one failure ends all with one message" {
	mkdir "$WORK/b" "$WORK/to"
	start_job 2
	echo x >"$WORK/m0/x"
	stop_job
	exits 2 "$CISTERN" recover -n 0 "$WORK/s0" --to "$WORK/to"
	says "-n is a number of processes, from 1 on, not '0'"
	exits 2 env PMI_RANK=0 PMI_SIZE=2 "$CISTERN" recover -n 2 "$WORK/s0" --to "$WORK/to"
	says "-n inside mpiexec"
	touch "$WORK/to/there"
	exits 2 "$CISTERN" recover -n 3 "$WORK/s0" "$WORK/s1" --to "$WORK/to"
	is "$(grep -c "not empty, and not the store's backing directory" <<<"$output")" 1
}

@test "elsewhere, a file gets what its own backing file has: not what another one has that has its name by now" {
	local f
	mkdir "$WORK/to1" "$WORK/to2" "$WORK/to3" "$WORK/ref" "$BACKING/d"
	for f in a b; do random_file "$BACKING/$f" 50000; done
	random_file "$BACKING/d/c" 50000
	cp -a "$BACKING" "$WORK/copy"
	mount_cistern -o data=log
	for f in a b d/c; do write_at "into $f" "$MNT/$f" 100; done
	mv "$MNT/a" "$MNT/t"
	mv "$MNT/b" "$MNT/a"
	mv "$MNT/t" "$MNT/b"
	mv "$MNT/d" "$MNT/e"
	cp -a "$MNT/." "$WORK/ref"
	kill_daemon
	release_mount "$MNT"
	exits 0 "$CISTERN" recover "$STORE" --to "$BACKING"
	diff -r "$BACKING" "$WORK/ref"
	exits 0 "$CISTERN" recover "$STORE" --to "$WORK/to1"
	diff -r "$WORK/to1" "$WORK/ref"
	# Somebody else's.
	random_file "$BACKING/another" 50000 7
	mv "$BACKING/another" "$BACKING/a"
	rm "$BACKING/e/c"
	exits 3 "$CISTERN" recover "$STORE" --to "$WORK/to2"
	is "$(missing_of "$WORK/to2" a)" '0+100 106+49894 '
	is "$(missing_of "$WORK/to2" e/c)" '0+100 108+49892 '
	cmp "$WORK/to2/b" "$WORK/ref/b"
	# In a copy all inodes are others.
	exits 0 "$CISTERN" recover "$STORE" --to "$WORK/to3" --backing "$WORK/copy"
	says "$WORK/copy has other files than those that the store was mounted over, or copies of them"
	diff -r "$WORK/to3" "$WORK/ref"
}

# other_number FILE: its copy in its place.
other_number() {
	cp -a "$1" "$1.copy"
	rm "$1"
	mv "$1.copy" "$1"
}

@test "the same files on another device are the files of the store, and copies under the same inode number of their top are not" {
	local f
	mkdir "$WORK/to1" "$WORK/to2" "$WORK/to3" "$WORK/ref"
	make_loop top 4M
	rmdir "$WORK/top/lost+found"
	for f in a b; do random_file "$WORK/top/$f" 50000; done
	mount_cistern -o data=log "$STORE" "$MNT" "$WORK/top"
	for f in a b; do write_at "into $f" "$MNT/$f" 100; done
	cp -a "$MNT/." "$WORK/ref"
	kill_daemon
	release_mount "$MNT"
	# Mounted elsewhere, where one of them is somebody else's by now.
	sync -f "$WORK/top"
	cp "$WORK/top.img" "$WORK/away.img"
	mkdir "$WORK/away"
	mount -o loop "$WORK/away.img" "$WORK/away"
	undo "umount -l $WORK/away"
	exits 0 "$CISTERN" recover "$STORE" --to "$WORK/to1" --backing "$WORK/away"
	is "$(grep -c 'is not checked' <<<"$output")" 0
	diff -r "$WORK/to1" "$WORK/ref"
	random_file "$WORK/away/c" 50000 7
	mv "$WORK/away/c" "$WORK/away/a"
	exits 3 "$CISTERN" recover "$STORE" --to "$WORK/to2" --backing "$WORK/away"
	is "$(missing_of "$WORK/to2" a)" '0+100 106+49894 '
	cmp "$WORK/to2/b" "$WORK/ref/b"
	# As after a restore.
	for f in a b; do other_number "$WORK/top/$f"; done
	exits 0 "$CISTERN" recover "$STORE" --to "$WORK/to3"
	says "$WORK/top has other files than those that the store was mounted over, or copies of them"
	diff -r "$WORK/to3" "$WORK/ref"
}

@test "what was written under a name that was removed is recovered elsewhere, too, when the backing file has another link" {
	mkdir "$WORK/to"
	random_file "$BACKING/f" 50000
	ln "$BACKING/f" "$BACKING/link"
	mount_cistern
	printf 'written' | dd of="$MNT/f" bs=1 seek=100 conv=notrunc,fsync status=none
	rm "$MNT/f"
	cp "$MNT/link" "$WORK/ref"
	sync -f "$MNT"
	kill_daemon
	release_mount "$MNT"
	"$CISTERN" recover "$STORE" --to "$WORK/to"
	cmp "$WORK/ref" "$WORK"/to/f.recovered-inode-*
	"$CISTERN" recover "$STORE" --to "$BACKING"
	cmp "$WORK/ref" "$BACKING/link"
	is "$(ls -A "$BACKING")" link
}

@test "a path that was removed, and is another file's since, is that one's in the manifest of a recovery elsewhere" {
	mkdir "$WORK/to"
	mkdir "$BACKING/d"
	echo old >"$BACKING/d/f"
	mount_cistern
	rm "$MNT/d/f"
	mv "$MNT/d" "$MNT/away"
	mkdir "$MNT/d"
	echo new >"$MNT/d/f"
	kill_daemon
	release_mount "$MNT"
	exits 0 "$CISTERN" recover "$STORE" --to "$WORK/to" --manifest "$WORK/manifest.json"
	is "$(cat "$WORK/to/d/f")" new
	is "$(jq -r '.files[] | select(.path == "d/f").state' "$WORK/manifest.json")" drained
	is "$(jq '.removed | length' "$WORK/manifest.json")" 0
}

# over NODE FILE TEXT OFFSET: into the file as that node sees it, and into what it must be.
over() {
	write_at "$3" "$WORK/m$1/$2" "$4"
	write_at "$3" "$WORK/ref/$2" "$4"
}

# times_of FILE...: when they were changed, to the nanosecond.
times_of() {
	stat -c '%n %y' "$@"
}

@test "what was drained, and written over by other nodes, when the store of the file's home is lost: it lies over what was drained" {
	local written
	mkdir "$WORK/b" "$WORK/ref" "$WORK/to"
	start_job 2
	random_file "$WORK/ref/f" 100000
	cp "$WORK/ref/f" "$WORK/m0/f"
	cp "$WORK/ref/f" "$WORK/m0/g"
	over 1 f 'before' 10
	exec 8<>"$WORK/m1/g"
	"$CISTERN" flush --wait --timeout 10m --mount "$WORK/m0"
	over 1 f 'once more' 50000
	cp "$WORK/ref/f" "$WORK/ref/g"
	cat "$WORK/ref/g" >&8
	sync "$WORK/m1/g"
	exec 8>&-
	written=$(cd "$WORK/m1" && times_of f g)
	kill_job
	exits 3 "$CISTERN" recover "$WORK/s1" --to "$WORK/to"
	diff -r "$WORK/to" "$WORK/ref"
	is "$(cd "$WORK/to" && times_of f g)" "$written"
	exits 3 "$CISTERN" recover "$WORK/s1" --to "$WORK/b"
	diff -r "$WORK/b" "$WORK/ref"
	is "$(cd "$WORK/b" && times_of f g)" "$written"
	exits 0 "$CISTERN" recover "$WORK/s0" "$WORK/s1" --to "$WORK/b"
	diff -r "$WORK/b" "$WORK/ref"
}

@test "the same when the file's name has gone to another one since: what was drained comes along, and the other one keeps the name" {
	mkdir "$WORK/b" "$WORK/ref" "$WORK/to"
	start_job 3
	random_file "$WORK/ref/f" 100000
	cp "$WORK/ref/f" "$WORK/m0/f"
	"$CISTERN" flush --wait --timeout 10m --mount "$WORK/m0"
	over 1 f 'before' 10
	local ino
	ino=$(inode_of "$WORK/m1/f")
	mv "$WORK/m0/f" "$WORK/m0/away"
	mv "$WORK/ref/f" "$WORK/ref/f.recovered-inode-$ino"
	echo another >"$WORK/m2/f"
	cp "$WORK/m2/f" "$WORK/ref/f"
	kill_job
	exits 3 "$CISTERN" recover "$WORK/s1" "$WORK/s2" --to "$WORK/to"
	diff -r "$WORK/to" "$WORK/ref"
	exits 3 "$CISTERN" recover "$WORK/s1" "$WORK/s2" --to "$WORK/b"
	diff -r "$WORK/b" "$WORK/ref"
	exits 3 "$CISTERN" recover "$WORK/s1" "$WORK/s2" --to "$WORK/b" # it lies under its new name by now
	diff -r "$WORK/b" "$WORK/ref"
	# A file that is not found is made of what is known; what had been drained of it is missing.
	rm "$WORK/b/f.recovered-inode-$ino"
	exits 3 "$CISTERN" recover "$WORK/s1" "$WORK/s2" --to "$WORK/b"
	is "$(missing_of "$WORK/b" "f.recovered-inode-$ino")" '0+10 '
	is "$(tr -d '\0' <"$WORK/b/f.recovered-inode-$ino")" before
}

# missing_of DIR FILE: offsets and lengths of its ranges that the manifest lists.
missing_of() {
	jq -j --arg f "$2" '.files[] | select(.path == $f) | .missing[] | "\(.offset)+\(.length) "' "$1.cistern-manifest.json"
}

@test "the same when its directory has been moved since: a recovery that is done again, or was killed, finds it there" {
	local n
	mkdir "$WORK/b" "$WORK/ref"
	start_job 3
	mkdir "$WORK/m0/d" "$WORK/ref/e"
	random_file "$WORK/ref/e/f" 100000
	cp "$WORK/ref/e/f" "$WORK/m0/d/f"
	cp "$WORK/ref/e/f" "$WORK/ref/e/g"
	cp "$WORK/ref/e/f" "$WORK/m0/d/g"
	"$CISTERN" flush --wait --timeout 10m --mount "$WORK/m0"
	write_at before "$WORK/m1/d/f" 10
	write_at before "$WORK/ref/e/f" 10
	write_at before "$WORK/m1/d/g" 10
	write_at before "$WORK/ref/e/g" 10
	mv "$WORK/ref/e/g" "$WORK/ref/e/g.recovered-inode-$(inode_of "$WORK/m1/d/g")"
	mv "$WORK/m0/d/g" "$WORK/m0/away"
	mv "$WORK/m0/d" "$WORK/m0/e"
	echo another >"$WORK/m2/e/g"
	echo another >"$WORK/ref/e/g"
	kill_job
	for n in 1 2 3 4 5 6 7 8; do
		CISTERN_AGENT_ABORT_AFTER=$n "$CISTERN" recover "$WORK/s1" "$WORK/s2" --to "$WORK/b" >>"$WORK/out" 2>&1 || true
	done
	for n in 1 2; do
		exits 3 "$CISTERN" recover "$WORK/s1" "$WORK/s2" --to "$WORK/b"
		diff -r "$WORK/b" "$WORK/ref"
		no_leftovers "$WORK/b"
	done
}

# moved FILE TO: by the node that it is at home on, and in what it must be.
moved() {
	mv "$WORK/m0/$1" "$WORK/m0/$2"
	mv "$WORK/ref/$1" "$WORK/ref/$2"
}

# lost_of DIR FILE: a file that is not found, and of which no more is known than that node 0 had bytes of it. All of it is missing. It goes.
lost_of() {
	is "$(jq -r --arg f "$2" '.files[] | select(.path == $f) | .missing[] | "\(.offset) \(.node)"' "$1.cistern-manifest.json")" \
		"0 node 0 (host $(hostname))"
	rm "$1/$2"
}

@test "the same when the file has been moved, and nodes remember several places: the one where it is counts, of a new file the newest" {
	local f n dated
	mkdir "$WORK/b" "$WORK/ref" "$WORK/to0" "$WORK/to1" "$WORK/to3" "$WORK/carried"
	start_job 3
	for f in f back dated tmp here cut late; do
		random_file "$WORK/ref/$f" 100000
		cp "$WORK/ref/$f" "$WORK/m0/$f"
	done
	for f in dated tmp here cut late; do over 1 "$f" 'and carried' 10; done
	touch -d '2001-01-01' "$WORK/m0/dated"
	"$CISTERN" flush --wait --timeout 10m --mount "$WORK/m0"
	dated=$(cd "$WORK/b" && times_of dated)
	: >>"$WORK/m1/dated"
	over 1 f 'in the old place' 10
	over 2 back 'where it is again' 10
	moved f g
	moved back away
	moved tmp final
	moved late later
	"$CISTERN" flush --wait --timeout 10m --mount "$WORK/m0"
	over 1 away 'in between' 50000
	moved away back
	"$CISTERN" flush --wait --timeout 10m --mount "$WORK/m0"
	over 2 g 'in the new place' 50000
	for n in 1 2; do # that node is the last one to open it
		touch "$WORK/m0/new" "$WORK/ref/new"
		over $((3 - n)) new 'by its first name' 0
		moved new new$n
		over "$n" new$n 'by its last name' 10
	done
	touch "$WORK/m0/empty" "$WORK/ref/empty"
	: >>"$WORK/m1/empty"
	touch "$WORK/before"
	truncate -s 0 "$WORK/m1/cut" "$WORK/ref/cut"
	write_at 'by the node that is lost' "$WORK/m0/later" 20
	kill_job
	# Of these the stores have nothing any more, but for what is known to be lost.
	mv "$WORK/ref/final" "$WORK/ref/here" "$WORK/ref/later" "$WORK/carried"
	mv "$WORK/b" "$WORK/hidden"
	exits 3 "$CISTERN" recover "$WORK/s1" "$WORK/s2" --to "$WORK/to0"
	is "$(cd "$WORK/to0" && stat -c '%n %s' *)" \
		"$(printf '%s\n' 'cut 0' 'empty 0' 'g 50016' 'late 44' 'new1 26' 'new2 26')"
	mv "$WORK/hidden" "$WORK/b"
	for n in 1 3; do
		exits 3 "$CISTERN" recover -n "$n" "$WORK/s2" "$WORK/s1" --to "$WORK/to$n"
		lost_of "$WORK/to$n" late
		cmp "$WORK/to$n/g" "$WORK/ref/g"
		diff -r "$WORK/to$n" "$WORK/ref"
		is "$(cd "$WORK/to$n" && times_of dated)" "$dated"
	done
	exits 3 "$CISTERN" recover "$WORK/s1" "$WORK/s2" --to "$WORK/b"
	lost_of "$WORK/b" late
	mv "$WORK"/carried/* "$WORK/ref"
	diff -r "$WORK/b" "$WORK/ref"
	is "$(cd "$WORK/b" && times_of dated)" "$dated"
	[ "$WORK/b/cut" -nt "$WORK/before" ]
}

@test "a node whose daemon had died when a drain placed its directory: its file gets there all the same" {
	local k
	mkdir "$WORK/b" "$WORK/ref"
	start_job 3 agent_timeout=5s,node_timeout=1s
	mkdir -p "$WORK/m0/d/e" "$WORK/ref/d/e"
	for k in 0 2; do
		random_file "$WORK/ref/d/e/f$k" 5000 "$k"
		cp "$WORK/ref/d/e/f$k" "$WORK/m$k/d/e/f$k"
	done
	kill_daemon "$WORK/m2"
	wait_until 60 grep -q peer-given-up "$WORK/s0/cistern.log"
	exits 3 "$CISTERN" flush --wait --timeout 2m --mount "$WORK/m0"
	cmp "$WORK/b/d/e/f0" "$WORK/ref/d/e/f0"
	for k in 0 1; do kill_daemon "$WORK/m$k"; done
	for k in 0 1 2; do release_mount "$WORK/m$k"; done
	exits 3 "$CISTERN" recover "$WORK/s0" "$WORK/s2" --to "$WORK/b" # one is not given
	diff -r "$WORK/b" "$WORK/ref"
}

@test "a file with a link in the backing directory that nobody has looked at: elsewhere it is said to be missing, in place it has what was written" {
	mkdir "$WORK/b" "$WORK/to"
	random_file "$WORK/b/f" 100000
	ln "$WORK/b/f" "$WORK/b/g"
	cp "$WORK/b/f" "$WORK/ref"
	start_job 2
	write_at before "$WORK/m0/f" 10
	write_at other "$WORK/m1/f" 50000
	write_at before "$WORK/ref" 10
	write_at other "$WORK/ref" 50000
	kill_job
	exits 0 "$CISTERN" recover "$WORK/s0" "$WORK/s1" --to "$WORK/to"
	[[ $output == *'there f: 1 more link of it in the backing directory'*'is not made here'* ]]
	cmp "$WORK/to/f" "$WORK/ref"
	is "$(ls -A "$WORK/to")" f
	exits 0 "$CISTERN" recover "$WORK/s0" "$WORK/s1" --to "$WORK/b"
	cmp "$WORK/b/f" "$WORK/ref"
	cmp "$WORK/b/g" "$WORK/ref"
}

@test "a file with two names that lost both, and got another one: nothing stays parked after a recovery that died when it had parked it" {
	local k n=1
	mkdir "$WORK/b"
	start_job 2
	mkdir "$WORK/m0/c"
	random_file "$WORK/m0/d" 50000
	ln "$WORK/m0/d" "$WORK/m0/c/b"
	echo two >"$WORK/m0/two"
	ln "$WORK/m0/two" "$WORK/m0/c/two"
	"$CISTERN" flush --wait --timeout 2m --mount "$WORK/m0"
	cp "$WORK/m0/d" "$WORK/ref"
	mv "$WORK/m1/two" "$WORK/m1/c/z" # it has several names still
	mv "$WORK/m1/d" "$WORK/m1/c/e"
	for k in d c/b; do
		echo another >"$WORK/m1/new"
		mv "$WORK/m1/new" "$WORK/m1/$k"
	done
	kill_job
	until [ "$(find "$WORK/b" -name '.cistern-park-*' -size +1)" ]; do
		CISTERN_AGENT_ABORT_AFTER=$n exits 137 "$CISTERN" recover "$WORK/s0" "$WORK/s1" --to "$WORK/b"
		n=$((n + 1))
	done
	exits 0 "$CISTERN" recover "$WORK/s0" "$WORK/s1" --to "$WORK/b"
	no_leftovers "$WORK/b"
	cmp "$WORK/b/c/e" "$WORK/ref"
	is "$(cat "$WORK/b/c/b" "$WORK/b/d" | tr '\n' ' ')" 'another another '
	is "$(stat -c %h "$WORK/b/c/e")" 1
}

@test "a file with two names that lost both, and got one of them again: it is found after a recovery that died when it had taken the other one away" {
	local k
	mkdir "$WORK/b"
	start_job 2
	mkdir "$WORK/m0/c"
	random_file "$WORK/m0/d" 50000
	ln "$WORK/m0/d" "$WORK/m0/c/b"
	"$CISTERN" flush --wait --timeout 2m --mount "$WORK/m0"
	mv "$WORK/m1/c/b" "$WORK/m1/away"
	mv "$WORK/m1/d" "$WORK/m1/c/b.new"
	rm "$WORK/m1/away"
	mv "$WORK/m1/c/b.new" "$WORK/m1/c/b"
	write_at more "$WORK/m1/c/b" 100
	cp "$WORK/m0/c/b" "$WORK/ref"
	kill_job
	rm "$WORK/b/d" # it did not come to the bytes
	exits 0 "$CISTERN" recover "$WORK/s0" "$WORK/s1" --to "$WORK/b"
	cmp "$WORK/b/c/b" "$WORK/ref"
	is "$(cd "$WORK/b" && find . -type f)" ./c/b
}

# modes DIR: of all that is in it.
modes() {
	(cd "$1" && find . -mindepth 1 -printf '%P %m\n' | sort)
}

# read_only DIR...: by turns in these, as an ordinary user: what is there, and what is new, becomes read-only behind its last write.
read_only() {
	local all=("$@") turn=0 i
	on mkdir d d/e
	on put new d/e/g
	for i in 1 2 3 4; do
		on put "$i" d/f$i
		on chmod 444 d/f$i
		on mkdir d/e/sub$i
		on put "$i" d/e/sub$i/f
		on chmod "50$i" d/e/sub$i
	done
	on chmod u+w old old/f old/moves
	on write_at more old/f 10
	on write_at other old/f 50
	on put new old/new
	on mv old/moves d/e/moved
	on chmod 555 d/e/moved
	on rm old/gone
	on chmod 400 old/f
	on chmod 0 d/e/g
	on chmod 555 old d
	on chmod 500 d/e
}

@test "read-only files and directories, recovered by an ordinary user: elsewhere from store after store, in place, and after processes that died" {
	local n=1 dir
	needs_root "a second user"
	needs_program setpriv
	copy_programs
	for dir in b ref; do
		mkdir -p "$WORK/$dir/old/moves"
		seq 100 >"$WORK/$dir/old/f"
		touch "$WORK/$dir/old/gone" "$WORK/$dir/old/moves/f"
		chmod 444 "$WORK/$dir/old/f"
		chmod 555 "$WORK/$dir/old/moves" "$WORK/$dir/old"
		chown -R $other:$other "$WORK/$dir"
	done
	export -f read_only on put write_at
	as $other bash -ec 'read_only "$@"' - "$WORK/ref"
	start_job 2 allow_other,staging=0
	as $other bash -ec 'read_only "$@"' - "$WORK/m0" "$WORK/m1"
	kill_job
	chown -R $other:$other "$WORK/s0" "$WORK/s1"
	chmod 777 "$WORK"
	mkdir -m 777 "$WORK/to"
	cp -a "$WORK/b" "$WORK/b2"
	exits 0 as $other "$CISTERN" recover "$WORK/s0" "$WORK/s1" --to "$WORK/to"
	is "$(modes "$WORK/to")" "$(modes "$WORK/ref" | grep -v moved/f)" # that one the job has not touched
	cmp "$WORK/to/old/f" "$WORK/ref/old/f"
	is "$(modes "$WORK/b")" "$(modes "$WORK/b2")"
	until CISTERN_AGENT_ABORT_AFTER=$n as $other "$CISTERN" recover "$WORK/s0" "$WORK/s1" --to "$WORK/b" >"$WORK/out" 2>&1 3>&-; do
		n=$((n + 7))
		[ "$n" -lt 400 ] || { cat "$WORK/out"; return 1; }
	done
	[ "$n" -gt 20 ] || { echo "it came through with $n"; return 1; }
	exits 0 as $other "$CISTERN" recover "$WORK/s0" "$WORK/s1" --to "$WORK/b"
	same_trees "$WORK/b" "$WORK/ref"
	is "$(modes "$WORK/b")" "$(modes "$WORK/ref")"
}
