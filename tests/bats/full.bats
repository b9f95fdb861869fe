#!/usr/bin/env bats
# SPDX-License-Identifier: GPL-3.0-or-later
#
# A full store is no error while the backing directory has room.

load ../lib/mount
load ../lib/job

big=$((96 << 20))

# write_three_times: one file of three times the capacity, sequentially and then here and there.
write_three_times() {
	random_file "$1/one" "$big" 1
	random_file "$WORK/patch" 1000000 2
	local off
	for off in 0 25000001 50000000 99000000; do
		dd if="$WORK/patch" of="$1/one" bs=1M oflag=seek_bytes seek="$off" conv=notrunc status=none
	done
}

many_files() {
	local i
	mkdir "$1/many"
	for i in $(seq 96); do random_file "$1/many/$i" $((1 << 20)) "$i" || return; done
}

@test "one file of three times the capacity" {
	mount_cistern -o capacity=32M,full_timeout=1s
	write_three_times "$MNT"
	write_three_times "$DIRECT"
	cmp "$MNT/one" "$DIRECT/one"
	umount_wait
	cmp "$BACKING/one" "$DIRECT/one"
	no_leftovers "$BACKING"
}

@test "one file of three times the capacity, held open, all through the log" {
	mount_cistern -o capacity=32M,full_timeout=200ms,data=log
	write_three_times "$MNT"
	write_three_times "$DIRECT"
	umount_wait
	cmp "$BACKING/one" "$DIRECT/one"
}

@test "many files, three times the capacity together" {
	mount_cistern -o capacity=32M,full_timeout=1s
	many_files "$MNT"
	many_files "$DIRECT"
	umount_wait
	same_trees "$BACKING" "$DIRECT"
	no_leftovers "$BACKING"
}

@test "nothing may drain: writes go through, also to a file that exists" {
	random_file "$BACKING/old" $((8 << 20)) 9
	mount_cistern -o capacity=32M,full_timeout=100ms,drain=unmount
	"$CISTERN" pause "$MNT"
	random_file "$MNT/new" $((80 << 20)) 3
	random_file "$WORK/patch" 1000000 4
	dd if="$WORK/patch" of="$MNT/old" bs=1M oflag=seek_bytes seek=3000001 conv=notrunc status=none
	[ "$(status_of through_bytes)" -gt 0 ]
	random_file "$DIRECT/new" $((80 << 20)) 3
	random_file "$DIRECT/old" $((8 << 20)) 9
	dd if="$WORK/patch" of="$DIRECT/old" bs=1M oflag=seek_bytes seek=3000001 conv=notrunc status=none
	cmp "$MNT/new" "$DIRECT/new"
	cmp "$MNT/old" "$DIRECT/old"
	"$CISTERN" resume "$MNT"
	umount_wait
	cmp "$BACKING/new" "$DIRECT/new"
	cmp "$BACKING/old" "$DIRECT/old"
	no_leftovers "$BACKING"
}

@test "a store on a small file system of its own" {
	make_loop ssd 48M
	mount_cistern -o reserve=4M,full_timeout=1s "$WORK/ssd/store"
	write_three_times "$MNT"
	many_files "$MNT"
	write_three_times "$DIRECT"
	many_files "$DIRECT"
	umount_wait
	same_trees "$BACKING" "$DIRECT"
}

@test "something else fills the store's file system" {
	make_loop ssd 64M
	mount_cistern -o reserve=4M,full_timeout=500ms "$WORK/ssd/store"
	random_file "$MNT/a" $((10 << 20)) 1
	fallocate -l 35M "$WORK/ssd/other"
	random_file "$MNT/b" $((12 << 20)) 2
	random_file "$DIRECT/a" $((10 << 20)) 1
	random_file "$DIRECT/b" $((12 << 20)) 2
	umount_wait
	same_trees "$BACKING" "$DIRECT"
}

room_on_ssd() {
	echo $(($(stat -f -c "%a * %S" "$WORK/ssd")))
}

# fill_with_private: many files and a big one, up to the last block of the store's file system.
fill_with_private() {
	make_loop ssd 64M
	mount_cistern -o reserve=1M,private_min_free=1M,data=private,drain=unmount "$WORK/ssd/store"
	grep -q "passthrough=1" "$WORK/ssd/store/cistern.log" || skip "the kernel writes no private files by itself"
	mkdir "$MNT/many"
	(cd "$MNT/many" && seq 12000 | xargs touch)
	exits 1 dd if=/dev/zero of="$MNT/big" bs=1M
	says "No space left"
	[ "$(room_on_ssd)" -lt $((1 << 20)) ]
	size=$(stat -c %s "$MNT/big")
}

# is_emptied: what the store had is in the backing directory, and it goes on.
is_emptied() {
	is "$(ls "$BACKING/many" | wc -l)" 12000
	is "$(stat -c %s "$BACKING/big")" "$size"
	[ "$(room_on_ssd)" -gt $((32 << 20)) ]
	echo more >"$MNT/more"
	umount_wait
	is "$(cat "$BACKING/more")" more
}

@test "a private file fills the store's file system to its last block: it can be drained" {
	fill_with_private
	timeout 120 "$CISTERN" flush --wait "$MNT"
	is_emptied
}

@test "the same, and the daemon is killed: the next one can begin, and drain it" {
	fill_with_private
	kill_daemon
	mount_cistern -o reserve=1M "$WORK/ssd/store"
	timeout 120 "$CISTERN" flush --wait "$MNT"
	is_emptied
}

@test "store and backing both full: ENOSPC at the write, and nothing acknowledged is lost" {
	make_tmpfs small 16M
	mount_cistern -o capacity=32M,full_timeout=100ms,data=log "$STORE" "$MNT" "$WORK/small"
	random_file "$WORK/data" $((96 << 20)) 5
	exits 1 dd if="$WORK/data" of="$MNT/f" bs=256k oflag=nonblock
	says "No space left"
	local written
	written=$(sed -n 's/^\([0-9]*\)+[01] records out.*/\1/p' <<<"$output")
	echo "wrote $written blocks"
	[ "$written" -gt 40 ]
	cmp -n $((written << 18)) "$MNT/f" "$WORK/data"
	mount -o remount,size=256M "$WORK/small"
	umount_wait
	cmp -n $((written << 18)) "$WORK/small/f" "$WORK/data"
}

@test "the background drain starts at the high-water mark and makes room" {
	mount_cistern -o capacity=64M,high_water=50,low_water=20,data=log
	random_file "$MNT/a" $((48 << 20))
	wait_until 60 test -e "$BACKING/a"
	used_is_low() { [ "$(status_of used_bytes)" -lt $((40 << 20)) ]; }
	wait_until 60 used_is_low
	cmp "$BACKING/a" "$MNT/a"
	umount_wait
}

@test "while many writers wait for room, others read and look" {
	local i before pids=()
	echo small >"$BACKING/old"
	mount_cistern -o capacity=32M,threads=4,full_timeout=10m,data=log
	"$CISTERN" pause "$STORE" # here and below: by a way that needs no worker
	random_file "$MNT/ballast" $((26 << 20)) 1
	for i in $(seq 16); do random_file "$DIRECT/w$i" $((2 << 20)) "$i"; done
	# There is room for two or three of them.
	for i in $(seq 16); do
		dd if="$DIRECT/w$i" of="$MNT/w$i" bs=1M status=none 3>&- &
		pids+=($!)
	done
	nothing_moves() {
		before=$(status_of written_bytes "$STORE")
		[ "$before" -gt $((26 << 20)) ] && sleep 0.5 && [ "$(status_of written_bytes "$STORE")" = "$before" ]
	}
	many_wait() {
		local pid waiting=0
		for pid in "${pids[@]}"; do gone "$pid" || waiting=$((waiting + 1)); done
		[ "$waiting" -ge 5 ] || { echo "only $waiting writers wait"; return 1; }
	}
	others() {
		wait_until 60 nothing_moves && many_wait && timeout 60 stat "$MNT/w1" "$MNT/ballast" &&
			is "$(timeout 60 cat "$MNT/old")" small && is "$(timeout 60 ls "$MNT" | wc -l)" 18 &&
			timeout 60 cmp -n 1000000 "$MNT/ballast" <(random_file /dev/stdout $((26 << 20)) 1) && many_wait
	}
	local result=0
	others || result=1
	"$CISTERN" resume "$STORE" # in any case: nothing else ends the writers soon
	for i in "${pids[@]}"; do wait "$i"; done
	umount_wait
	for i in $(seq 16); do cmp "$BACKING/w$i" "$DIRECT/w$i"; done
	return "$result"
}

@test "space is given back: ten times the capacity, written and deleted" {
	mount_cistern -o capacity=32M,drain=unmount,data=log
	local i
	for i in $(seq 20); do
		random_file "$MNT/f" $((16 << 20)) "$i"
		rm "$MNT/f"
	done
	umount_wait
	is "$(ls -A "$BACKING")" ""
}

# one_full_store [MOUNT_OPTIONS]: a job of two; node 1 has a small store of its own.
one_full_store() {
	needs_mpi
	JOB_NODES=2
	mkdir "$WORK/b" "$WORK/m0" "$WORK/m1"
	mount_node 0 "$1"
	mount_node 1 "$1,capacity=32M"
	start_agents
}

# write_turns FILE PIECES [ALONE]: pieces of 1 MB by both nodes in turn, of a file of node 0, or behind so many that node 1 writes to its own file alone.
# DIRECT has what they said they had written. A node whose store is full may refuse to; the other one may not.
write_turns() {
	python3 - "$WORK" "$@" 3>&- <<'END'
import errno, os, random, sys, threading
work, name, num = sys.argv[1], sys.argv[2], int(sys.argv[3])
alone = int(sys.argv[4]) if len(sys.argv) > 4 else 0
SIZE = 1000000
direct = os.open(f"{work}/direct/{name}", os.O_RDWR | os.O_CREAT, 0o644)
said = [[], []]

def opened(k):
    return os.open(f"{work}/m{k}/{name}", os.O_RDWR | os.O_CREAT, 0o644)

def write(k, fd, pieces):
    for i in pieces:
        data = random.Random(i).randbytes(SIZE)
        try:
            n = os.pwrite(fd, data, i * SIZE)
            os.pwrite(direct, data[:n], i * SIZE)
            said[k].append(n)
        except OSError as e:
            said[k].append(errno.errorcode[e.errno])

first = opened(1 if alone else 0)
write(1, first, range(alone))
assert said[1] == [SIZE] * alone, said[1]
fds = [opened(k) for k in range(2)]
threads = [threading.Thread(target=write, args=(k, fds[k], range(alone + k, num, 2))) for k in range(2)]
for t in threads:
    t.start()
for t in threads:
    t.join()
for k in range(2):
    os.fsync(fds[k])
    print("node", k, {s: said[k].count(s) for s in said[k]})
assert set(said[0]) == {SIZE}, said[0]
assert set(said[1]) <= {SIZE, "ENOSPC"}, said[1]
END
}

both_see() {
	cmp "$WORK/m0/$1" "$DIRECT/$1" && cmp "$WORK/m1/$1" "$DIRECT/$1"
}

@test "a job of which one node's store is full of a file of both: the other goes on, and what is said to be written is there" {
	one_full_store full_timeout=1s
	write_turns f 120
	both_see f
	"$CISTERN" flush --wait --timeout 5m --mount "$WORK/m1" 3>&-
	write_turns g 120 60
	both_see g
	arrives
}

@test "the same when nothing may drain" {
	one_full_store full_timeout=100ms,drain=unmount
	for k in 0 1; do "$CISTERN" pause "$WORK/m$k"; done
	write_turns f 120
	both_see f
	write_turns g 120 60
	both_see g
	for k in 0 1; do "$CISTERN" resume "$WORK/m$k"; done
	arrives
}
