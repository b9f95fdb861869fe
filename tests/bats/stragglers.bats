#!/usr/bin/env bats
# SPDX-License-Identifier: GPL-3.0-or-later
#
# Programs that had a file open when the mount's daemon was killed go on writing to it, and the kernel lets them. What
# they write is kept, they are named, and nothing is said to be drained while they are there.

load ../lib/mount

setup() {
	cistern_setup
	needs_fuse
	needs_root "the kernel's passthrough"
	MOUNT_OPTIONS=drain=unmount,data=private
}

# The daemon is killed; the dead mount goes with the next one.
die() {
	kill_daemon
}

# What is missing is said with the name of the file and that of the process.
names_it() {
	says "$1"
	says "process $2 ("
	says "still open for writing"
}

segments() {
	find "$STORE/segment" -name '*.prv' | wc -l
}

@test "a shell that goes on writing: flush and umount say so, nothing is freed, and all of it arrives" {
	mount_cistern
	exec 9>"$MNT/out"
	echo one >&9
	die
	echo two >&9
	mount_cistern
	is "$(cat "$MNT/out")" $'one\ntwo'
	exits 3 flush
	names_it out $$
	is "$("$CISTERN" status "$MNT" | grep "stragglers" | grep -c "out: .*process $$ (")" 1
	is "$("$CISTERN" status --json "$MNT" | jq '.stragglers | length')" 1
	is "$(jq -r '.files[] | select(.path == "out").state' "$STORE/manifest.json")" failed
	echo three >&9
	exec 9>&-
	is "$(cat "$MNT/out")" $'one\ntwo\nthree'
	is "$("$CISTERN" status --json "$MNT" | jq '.stragglers | length')" 0
	umount_wait
	is "$(cat "$BACKING/out")" $'one\ntwo\nthree'
}

@test "without a flush between: what came before the descriptor was closed is there" {
	mount_cistern
	exec 9>"$MNT/out"
	echo one >&9
	die
	echo two >&9
	mount_cistern
	echo three >&9
	exec 9>&-
	umount_wait
	is "$(cat "$BACKING/out")" $'one\ntwo\nthree'
}

@test "umount --wait while the writer lives ends with 3, and the next mount has what came later" {
	mount_cistern
	exec 9>"$MNT/out"
	echo one >&9
	die
	echo two >&9
	mount_cistern
	echo whole >"$MNT/other"
	exits 3 "$CISTERN" umount --wait "$MNT" 3>&-
	names_it out $$
	is "$(cat "$BACKING/other")" whole
	is "$(cat "$BACKING/out")" $'one\ntwo'
	echo three >&9
	mount_cistern
	is "$(cat "$MNT/out")" $'one\ntwo\nthree'
	echo four >&9
	exec 9>&-
	umount_wait
	is "$(cat "$BACKING/out")" $'one\ntwo\nthree\nfour'
}

@test "recover while the writer lives: not silently, nothing is freed, and later all of it" {
	mount_cistern
	exec 9>"$MNT/out"
	echo one >&9
	die
	echo two >&9
	release_mount "$MNT"
	mkdir "$WORK/elsewhere"
	exits 3 "$CISTERN" recover "$STORE" --to "$WORK/elsewhere"
	names_it out $$
	is "$(cat "$WORK/elsewhere/out")" $'one\ntwo'
	exits 3 "$CISTERN" recover "$STORE" --to "$BACKING"
	names_it out $$
	is "$(cat "$BACKING/out")" $'one\ntwo'
	echo three >&9
	exits 3 "$CISTERN" recover "$STORE" --to "$BACKING"
	"$CISTERN" fsck --repair "$STORE" >"$WORK/said" 2>&1 || cat "$WORK/said"
	grep -q "process $$ (" "$WORK/said"
	"$CISTERN" status "$STORE" >"$WORK/said"
	grep -q "process $$ (" "$WORK/said"
	echo four >&9
	exec 9>&-
	"$CISTERN" recover "$STORE" --to "$BACKING"
	is "$(cat "$BACKING/out")" $'one\ntwo\nthree\nfour'
	mount_cistern
	is "$(cat "$MNT/out")" $'one\ntwo\nthree\nfour'
	umount_wait
	is "$(cat "$BACKING/out")" $'one\ntwo\nthree\nfour'
}

mapper='
import mmap, os, sys
fd = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT)
os.write(fd, b"0" * 8192)
m = mmap.mmap(fd, 8192)
os.close(fd)
print(os.getpid(), flush=True)
for line in sys.stdin:
    off, word = line.split()
    m[int(off):int(off) + len(word)] = word.encode()
    print("done", flush=True)
'

@test "a mapping whose descriptor is closed counts, and its stores arrive" {
	local pid done
	mount_cistern
	coproc MAP { exec python3 -c "$mapper" "$MNT/map" 3>&-; }
	read -r pid <&"${MAP[0]}"
	die
	echo 4096 late >&"${MAP[1]}" && read -r done <&"${MAP[0]}"
	mount_cistern
	exits 3 flush
	names_it map "$pid"
	echo 8000 later >&"${MAP[1]}" && read -r done <&"${MAP[0]}"
	eval "exec ${MAP[1]}>&-"
	wait "$pid"
	umount_wait
	is "$(tail -c +4097 "$BACKING/map" | head -c 4)" late
	is "$(tail -c +8001 "$BACKING/map" | head -c 5)" later
	is "$(stat -c %s "$BACKING/map")" 8192
}

@test "who only reads through a dead mount keeps nothing back" {
	mount_cistern
	echo data >"$MNT/f"
	exec 9<"$MNT/f"
	die
	mount_cistern
	umount_wait
	is "$(cat "$BACKING/f")" data
	local line
	read -r line <&9
	is "$line" data
	exec 9<&-
}

# What the old writers, open since open_in, and the new mount do to the files of a directory.
work_on() {
	truncate -s 4 "$1/cut"
	echo after >&"$cut"
	rm "$1/gone"
	echo after >&"$gone"
	echo new >"$1/new"
	mv "$1/new" "$1/replaced"
	echo after >&"$replaced"
	mv "$1/moved" "$1/elsewhere"
	echo after >&"$moved"
	exec {new}>>"$1/both"
	echo 2 >&"$new"
	echo 3 >&"$both"
	echo 4 >&"$new"
}

open_in() {
	local fd
	exec {cut}<>"$1/cut" {gone}<>"$1/gone" {replaced}<>"$1/replaced" {moved}<>"$1/moved" {both}<>"$1/both"
	for fd in $cut $gone $replaced $moved $both; do
		echo "an old line" >&"$fd"
	done
}

close_all() {
	exec {cut}>&- {gone}>&- {replaced}>&- {moved}>&- {both}>&-
}

@test "the file is cut, removed, replaced, renamed and opened anew while the old writer goes on: as in a directory" {
	open_in "$DIRECT"
	work_on "$DIRECT"
	echo last >&"$moved"
	echo 5 >&"$both"
	exec {new}>&-
	close_all
	mount_cistern
	open_in "$MNT"
	die
	mount_cistern
	work_on "$MNT"
	exits 3 flush
	is "$("$CISTERN" status --json "$MNT" | jq -c '[.stragglers[] | split(":")[0]] | sort')" '["both","cut","elsewhere"]'
	echo last >&"$moved"
	echo 5 >&"$both"
	exec {new}>&-
	exits 3 flush
	close_all
	umount_wait
	same_trees "$DIRECT" "$BACKING"
	[ "$(segments)" -le 1 ] # the one with the highest number stays, empty
}

@test "a file that goes over to the log waits for the old writer: O_DIRECT, and another node's way of writing" {
	MOUNT_OPTIONS=drain=unmount
	mount_cistern
	exec 9<>"$MNT/f"
	truncate -s 8192 "$MNT/f"
	die
	mount_cistern
	dd if=/dev/zero of="$MNT/f" bs=4096 count=1 oflag=direct conv=notrunc status=none
	echo after >&9
	is "$(head -c 5 "$MNT/f")" after
	exec 9>&-
	umount_wait
	is "$(head -c 5 "$BACKING/f")" after
	is "$(stat -c %s "$BACKING/f")" 8192
}

@test "a connection that is cut while the daemon lives: the last drain keeps what is still written to" {
	local minor
	mount_cistern
	exec 9>"$MNT/out"
	echo one >&9
	echo whole >"$MNT/other"
	local pid
	pid=$(daemon_pid)
	umount -f "$MNT" || true
	umount -l "$MNT" || true
	wait_until 60 gone "$pid"
	echo two >&9
	is "$(cat "$BACKING/other")" whole
	mount_cistern
	is "$(cat "$MNT/out")" $'one\ntwo'
	exits 3 flush
	names_it out $$
	exec 9>&-
	umount_wait
	is "$(cat "$BACKING/out")" $'one\ntwo'
}

lines='
import os, signal, sys
fd = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT | (os.O_APPEND if len(sys.argv) > 2 else 0))
n = 0
def end(*a):
    print(n, flush=True)
    os._exit(0)
signal.signal(signal.SIGTERM, end)
print(os.getpid(), flush=True)
while True:
    os.write(fd, b"line %d\n" % n)
    n += 1
    if n % 64 == 0: signal.sigtimedwait([], 0.001)
'

@test "a fast writer over two kills, flushes and mounts: every line that was acknowledged arrives" {
	local pid
	mount_cistern
	python3 -c "$lines" "$MNT/log" >"$WORK/lines" 3>&- &
	wait_until 60 test -s "$WORK/lines"
	read -r pid <"$WORK/lines"
	wait_until 60 test -s "$MNT/log"
	die
	mount_cistern
	exits 3 flush
	die
	mount_cistern
	exits 3 flush
	names_it log "$pid"
	kill "$pid"
	wait "$pid" || true
	umount_wait
	is "$(wc -l <"$BACKING/log")" "$(tail -n 1 "$WORK/lines")"
	is "$(tail -n 1 "$BACKING/log")" "line $(($(tail -n 1 "$WORK/lines") - 1))"
}

@test "a background drain leaves such a file alone, and takes it when the writer has gone" {
	MOUNT_OPTIONS=data=private,drain=idle,idle_interval=50ms
	mount_cistern
	exec 9>"$MNT/out"
	echo one >&9
	die
	echo two >&9
	mount_cistern
	echo other >"$MNT/other"
	wait_until 60 test -s "$BACKING/other"
	refute test -e "$BACKING/out"
	exec 9>&-
	echo more >"$MNT/more"
	wait_until 60 test -s "$BACKING/out"
	wait_until 60 all_drained
	is "$(cat "$BACKING/out")" $'one\ntwo'
	umount_wait
}
