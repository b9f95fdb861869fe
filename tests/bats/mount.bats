#!/usr/bin/env bats
# SPDX-License-Identifier: GPL-3.0-or-later
#
# Mounts come, go, are refused and come back.

load ../lib/mount

@test "a mount shows the backing directory, and umount --wait leaves everything there" {
	echo before >"$BACKING/old"
	mount_cistern
	is "$(cat "$MNT/old")" before
	echo hello >"$MNT/new"
	is "$(cat "$MNT/new")" hello
	umount_wait
	is "$(cat "$BACKING/new")" hello
	no_leftovers "$BACKING"
	wait_until 60 no_daemon "$MNT"
}

@test "the mount can be used when cistern mount returns, and the daemon holds nothing of the caller" {
	timeout 120 bash -c '"$CISTERN" mount "$1" "$2" --store "$3" 2>&1 | cat' - "$BACKING" "$MNT" "$STORE" 3>&-
	echo "$STORE $MNT" >>"$WORK/mounts"
	is_mounted "$MNT"
	umount_wait
}

@test "mount -t fuse.cistern mounts through mount(8)" {
	needs_root "mount(8) looks for helpers in /sbin"
	[ ! -e /sbin/mount.fuse.cistern ] || skip "/sbin/mount.fuse.cistern is installed"
	ln -s "$CISTERN" /sbin/mount.fuse.cistern
	undo "rm -f /sbin/mount.fuse.cistern"
	echo "$STORE $MNT" >>"$WORK/mounts"
	mount -t fuse.cistern -o "store=$STORE,capacity=100M,noatime" "$BACKING" "$MNT" 3>&-
	is_mounted "$MNT"
	grep -q " $MNT fuse.cistern .*noatime" /proc/mounts
	echo x >"$MNT/f"
	is "$(status_of capacity_bytes)" $((100 << 20))
	umount "$MNT"
	"$CISTERN" wait --timeout 10m "$STORE"
	is "$(cat "$BACKING/f")" x
}

@test "called as mount.fuse.cistern it takes mount(8)'s arguments" {
	ln -s "$CISTERN" "$WORK/mount.fuse.cistern"
	echo "$STORE $MNT" >>"$WORK/mounts"
	"$WORK/mount.fuse.cistern" "$BACKING" "$MNT" -o "rw,store=$STORE,nofail" 3>&-
	is_mounted "$MNT"
	umount_wait
}

@test "plain cistern umount drains in the background, and cistern wait waits for it" {
	mount_cistern -o drain=unmount
	random_file "$MNT/big" $((16 << 20))
	"$CISTERN" umount "$MNT" 3>&-
	refute is_mounted "$MNT"
	"$CISTERN" wait --timeout 10m "$STORE"
	random_file "$DIRECT/big" $((16 << 20))
	cmp "$BACKING/big" "$DIRECT/big"
}

# Another mount namespace keeps the mount, so that the daemon hears of its end when this says so.
hold_mount() {
	unshare --mount sleep infinity 3>&- &
	holder=$!
	wait_until 60 leads_to_other "/proc/$holder/ns/mnt"
}

leads_to_other() {
	[ "$(readlink "$1")" != "$(readlink /proc/self/ns/mnt)" ]
}

# It has been told that the mount stands, and sleeps until it asks again.
naps() {
	grep -qs nanosleep "/proc/$1/wchan"
}

@test "cistern wait waits also for a drain that the daemon has not begun yet, since it has not heard of the umount" {
	local holder waiter
	needs_root "a mount namespace"
	mount_cistern -o drain=unmount
	random_file "$MNT/big" $((16 << 20))
	hold_mount
	"$CISTERN" umount "$MNT" 3>&-
	refute is_mounted "$MNT"
	is "$("$CISTERN" status --json "$STORE" | jq -r .state)" mounted
	"$CISTERN" wait --timeout 10m "$STORE" 3>&- &
	waiter=$!
	wait_until 60 naps "$waiter"
	kill "$holder"
	wait "$waiter"
	random_file "$DIRECT/big" $((16 << 20))
	cmp "$BACKING/big" "$DIRECT/big"
}

# within SECONDS STATUS COMMAND...: as exits, and it takes no longer.
within() {
	local limit=$1 begun=$EPOCHREALTIME
	shift
	exits "$@"
	python3 -c "import sys; sys.exit($EPOCHREALTIME - $begun > $limit)" || { echo "took from $begun to $EPOCHREALTIME"; return 1; }
}

@test "with a daemon that does not answer, time-outs hold, and status says what it is like" {
	local daemon
	mount_cistern -o drain=unmount
	echo text >"$MNT/f"
	daemon=$(daemon_pid "$MNT")
	kill -STOP "$daemon"
	undo "kill -CONT $daemon 2>/dev/null"
	within 10 6 "$CISTERN" status "$STORE"
	says "$MNT on $BACKING (no answer; store $STORE)"
	says "its daemon (pid $daemon, stopped) has not answered"
	exits 6 bash -c '"$1" status --json "$2" 2>/dev/null' - "$CISTERN" "$STORE"
	is "$(jq -r '.state, .pid, .process_state' <<<"$output" | paste -sd ' ')" "no answer $daemon stopped"
	within 8 6 "$CISTERN" umount --wait --timeout 2s "$MNT"
	is_mounted "$MNT"
	within 8 6 "$CISTERN" flush --wait --timeout 2s --mount "$MNT"
	within 8 6 "$CISTERN" wait --timeout 2s "$STORE"
	kill -CONT "$daemon"
	umount_wait
	is "$(cat "$BACKING/f")" text
}

@test "umount names who has the mount in another mount namespace, as containers do, and waits for that" {
	local pid daemon
	needs_root "mount namespaces"
	mount_cistern
	daemon=$(daemon_pid "$STORE")
	echo text >"$MNT/f"
	unshare -m --propagation private sleep 600 3>&- &
	pid=$!
	undo "kill $pid 2>/dev/null; true"
	wait_until 10 grep -q "$MNT" "/proc/$pid/mountinfo"
	exits 6 "$CISTERN" umount --wait --timeout 3s "$MNT"
	[[ $output == *"$MNT is still mounted for processes in 1 other mount namespace "*"pid $pid "*": mount $MNT"* ]]
	refute mountpoint -q "$MNT"
	cmp "$BACKING/f" <(echo text)
	kill "$pid"
	wait_until 60 gone "$daemon"
	exits 0 "$CISTERN" wait "$STORE"
}

@test "umount(8) drains in the background as well" {
	mount_cistern -o drain=unmount
	random_file "$MNT/f" 3000000
	fusermount3 -u "$MNT" || umount "$MNT"
	"$CISTERN" wait --timeout 10m "$STORE"
	random_file "$DIRECT/f" 3000000
	cmp "$BACKING/f" "$DIRECT/f"
	wait_until 60 no_daemon "$MNT"
}

@test "SIGTERM unmounts and drains" {
	mount_cistern -o drain=unmount
	random_file "$MNT/f" 3000000
	kill -TERM "$(daemon_pid)"
	wait_until 60 no_daemon "$MNT"
	refute is_mounted "$MNT"
	random_file "$DIRECT/f" 3000000
	cmp "$BACKING/f" "$DIRECT/f"
}

@test "a busy umount names the process and leaves the mount" {
	mount_cistern
	tail -f /dev/null >"$MNT/held" 3>&- &
	local holder=$!
	wait_until 60 leads_to "/proc/$holder/fd/1" "$MNT/held"
	exits 5 "$CISTERN" umount "$MNT"
	says "pid $holder"
	says "held"
	is_mounted "$MNT"
	kill "$holder"
	wait "$holder" || true
	umount_wait
}

@test "a process that works in the mount is named" {
	mount_cistern
	(cd "$MNT" && exec sleep infinity 3>&-) &
	local holder=$!
	wait_until 60 leads_to "/proc/$holder/cwd" "$MNT"
	exits 5 "$CISTERN" umount --wait "$MNT"
	says "pid $holder"
	kill "$holder"
	wait "$holder" || true
	umount_wait
}

@test "a store in use is refused, and its holder named" {
	mount_cistern
	mkdir "$WORK/mnt2"
	exits 5 mount_cistern "$STORE" "$WORK/mnt2"
	says "$(daemon_pid)"
	refute is_mounted "$WORK/mnt2"
	umount_wait
}

@test "a mount right behind an umount waits for the drain that is still on" {
	mount_cistern -o drain=unmount
	seq -f "$MNT/%g" 3000 | xargs touch
	"$CISTERN" umount "$MNT"
	exits 0 mount_cistern
	says "waiting for the end of that"
	[ -e "$BACKING/3000" ]
	umount_wait
}

@test "mounting twice on one mount point is refused" {
	mount_cistern
	exits 5 mount_cistern "$WORK/store2"
	umount_wait
}

@test "a store of another backing directory is refused" {
	mount_cistern
	echo x >"$MNT/f"
	umount_wait
	mkdir "$WORK/other"
	exits 1 mount_cistern "$STORE" "$MNT" "$WORK/other" || exits 2 mount_cistern "$STORE" "$MNT" "$WORK/other"
	says "$BACKING"
	refute is_mounted "$MNT"
}

@test "a directory that is not empty is not made into a store" {
	mkdir "$STORE"
	echo precious >"$STORE/thesis.txt"
	exits 1 mount_cistern
	says "not empty"
	is "$(cat "$STORE/thesis.txt")" precious
	is "$(find "$STORE" -mindepth 1 | wc -l)" 1
}

@test "a store of a newer version is refused and not touched" {
	needs_program python3
	mount_cistern
	umount_wait
	# Magic, version and CRC stand where they will always stand (docs/format/superblock.md).
	printf '\x63\x00\x00\x00' | dd of="$STORE/superblock" bs=1 seek=8 conv=notrunc status=none
	printf '\x00\x00\x00\x00' | dd of="$STORE/superblock" bs=1 seek=16 conv=notrunc status=none
	crc32c "$STORE/superblock" | fold -w 2 | tac | tr -d '\n' | sed 's/../\\x&/g' | xargs -0 printf '%b' |
		dd of="$STORE/superblock" bs=1 seek=16 conv=notrunc status=none
	cp "$STORE/superblock" "$WORK/superblock"
	exits 1 mount_cistern
	says "newer"
	refute is_mounted "$MNT"
	cmp "$STORE/superblock" "$WORK/superblock"
}

@test "a damaged superblock is refused, and says so" {
	mount_cistern
	umount_wait
	printf 'garbage!' | dd of="$STORE/superblock" bs=1 seek=20 conv=notrunc status=none
	exits 4 mount_cistern || exits 1 mount_cistern
	says superblock
	refute is_mounted "$MNT"
}

@test "a damaged journal is refused with fsck as the remedy" {
	mount_cistern -o drain=unmount
	random_file "$MNT/f" 100000
	kill_daemon
	release_mount "$MNT"
	local journal size
	journal=$(find "$STORE/journal" -name '*.jnl' -size +0 | sort | head -n 1)
	[ -n "$journal" ]
	size=$(stat -c %s "$journal")
	[ "$size" -gt 200 ]
	printf '\xff\xff\xff\xff\xff\xff\xff\xff' | dd of="$journal" bs=1 seek=80 conv=notrunc status=none
	# Damage before the tail, or a tail cut to nothing: never a mount that silently lost what was there.
	if mount_cistern 2>"$WORK/said"; then
		cat "$WORK/said"
		grep -q recovered "$WORK/said"
	else
		cat "$WORK/said"
		grep -q fsck "$WORK/said"
	fi
}

@test "after SIGKILL the next mount takes the place of the dead one and everything acknowledged is there" {
	mount_cistern -o drain=unmount
	random_file "$MNT/f" 5000000
	mkdir "$MNT/d"
	mv "$MNT/f" "$MNT/d/g"
	kill_daemon
	refute ls "$MNT"
	exits 0 mount_cistern
	says "took the place of the mount of a daemon that had died"
	random_file "$DIRECT/g" 5000000
	cmp "$MNT/d/g" "$DIRECT/g"
	umount_wait
	cmp "$BACKING/d/g" "$DIRECT/g"
	[ ! -e "$BACKING/f" ]
}

@test "cistern umount frees a mount point whose daemon died" {
	mount_cistern
	kill_daemon
	exits 0 "$CISTERN" umount "$MNT"
	says "recover"
	refute is_mounted "$MNT"
}

@test "a read-only mount changes nothing" {
	echo x >"$BACKING/f"
	mount_cistern -o ro
	is "$(cat "$MNT/f")" x
	exits 1 touch "$MNT/g"
	says "Read-only"
	exits 1 bash -c 'echo y >>"$1"' - "$MNT/f"
	umount_wait
	is "$(ls "$BACKING")" f
}

@test "a mount over its own backing directory covers it" {
	echo x >"$BACKING/f"
	mount_cistern "$STORE" "$BACKING" "$BACKING"
	is "$(cat "$BACKING/f")" x
	echo y >"$BACKING/g"
	mv "$BACKING/f" "$BACKING/f2"
	"$CISTERN" flush --wait "$BACKING" # the drain must reach what the mount covers
	is "$("$CISTERN" status --json "$BACKING" | jq .dirty_files)" 0
	echo z >>"$BACKING/g"
	umount_wait "$BACKING"
	is "$(cat "$BACKING/g" "$BACKING/f2")" $'y\nz\nx'
	is "$(ls "$BACKING" | tr '\n' ' ')" "f2 g "
	no_leftovers "$BACKING"
}

@test "the options of a mount are checked before anything is touched" {
	exits 2 mount_cistern -o no_such_option=1
	exits 2 mount_cistern -o capacity=lots
	exits 2 mount_cistern -o capacity=200
	[[ $output == *"did you mean 200M or 200G?"* ]]
	[ ! -e "$STORE" ]
	exits 1 mount_cistern "$STORE" "$MNT" "$WORK/nowhere"
	[ ! -e "$STORE" ]
	exits 2 mount_cistern "$BACKING/store"
	exits 2 mount_cistern "$MNT/store"
}

# refused_for NAME: neither mounted nor harmed, since NAME, which lies in the store, is no file.
refused_for() {
	exits 1 mount_cistern
	says "$STORE"
	says "$1"
	rm -rf "${STORE:?}/$1"
}

@test "what lies in a store under a file's name, and is none, is named with the store, and nothing outside is touched" {
	random_file "$WORK/outside" 3000
	mount_cistern -o drain=unmount,data=log
	random_file "$MNT/f" 100000
	kill_daemon
	mkdir "$STORE/segment/00000009.seg"
	refused_for segment/00000009.seg
	ln -s nowhere "$STORE/segment/00000009.seg"
	refused_for segment/00000009.seg
	mkfifo "$STORE/segment/00000009.seg"
	refused_for segment/00000009.seg
	mkdir "$STORE/journal/00000009.jnl"
	refused_for journal/00000009.jnl
	ln -s "$WORK/outside" "$STORE/journal/00000002.jnl"
	exits 1 "$CISTERN" fsck --repair "$STORE"
	refused_for journal/00000002.jnl
	cmp "$WORK/outside" <(random_file /dev/stdout 3000)
	touch "$STORE/snap-7"
	mount_cistern
	[ ! -e "$STORE/snap-7" ]
	umount_wait
	cmp "$BACKING/f" <(random_file /dev/stdout 100000)
}

@test "a backing directory on a file system that is mounted read-only is refused, unless only reading is wanted" {
	needs_root "a file system that is mounted read-only"
	echo old >"$BACKING/f"
	mount --bind "$BACKING" "$BACKING"
	undo "umount -l $BACKING"
	mount -o remount,ro,bind "$BACKING"
	exits 1 mount_cistern
	says "mounted read-only"
	says "-o ro"
	[ ! -e "$STORE" ]
	mount_cistern -o ro
	is "$(cat "$MNT/f")" old
	umount_wait
}

@test "who may not write to the backing directory is told so by the mount" {
	needs_user_mounts
	copy_programs
	mkdir -m 755 "$BACKING/mine" "$WORK/his"
	chown "$other" "$BACKING/mine" "$MNT" "$WORK/his"
	output=$("${by_other[@]}" "$CISTERN" mount "$BACKING" "$MNT" --store "$WORK/his/store" 2>&1 3>&-)
	printf '%s %s\n' "$WORK/his/store" "$MNT" >>"$WORK/mounts"
	says "Permission denied"
	"${by_other[@]}" sh -c "echo text >'$MNT/mine/f'"
	"${by_other[@]}" "$CISTERN" umount --wait "$MNT" 3>&-
	is "$(cat "$BACKING/mine/f")" text
	chmod 777 "$BACKING"
	exits 0 "${by_other[@]}" "$CISTERN" mount --fake "$BACKING" "$MNT" --store "$WORK/his/store"
	is "$output" ""
}

@test "a mount may have few files open: it is refused, or works and drains with what there is" {
	exits 1 bash -c 'ulimit -n 127; "$@"' - "$CISTERN" mount "$BACKING" "$MNT" --store "$STORE"
	says "limit of open files is 127"
	says "at least 128"
	[ ! -e "$STORE" ]
	(
		ulimit -n 128
		mount_cistern -o drain=unmount,private_min_free=0
	)
	python3 - "$MNT" "$DIRECT" <<'END'
import os, sys
for top in sys.argv[1:]:
    os.mkdir(top + "/d")
    for i in range(120):
        with open(f"{top}/d/{i}", "wb") as f:
            f.write(bytes([i]) * 200000)
    many = [open(f"{top}/{i}", "wb") for i in range(200)] # all at a time
    for i, f in enumerate(many):
        f.write(b"%d" % i)
    for f in many:
        f.close()
END
	umount_wait
	same_trees "$BACKING" "$DIRECT"
}

@test "the store belongs to its user alone" {
	mount_cistern
	is "$(stat -c %a "$STORE")" 700
	umount_wait
}

@test "an idle daemon uses less than 1 % of a core" {
	mount_cistern
	echo x >"$MNT/f"
	local pid ticks before used
	pid=$(daemon_pid)
	flush
	ticks=$(getconf CLK_TCK)
	ticks_of() { sed 's/.*) //' "/proc/$pid/stat" | awk '{ print $12 + $13 }'; }
	# What the drain has left to do may take a slow machine some time; then it must come to rest.
	for _ in 1 2 3 4 5; do
		before=$(ticks_of)
		sleep 3
		used=$(($(ticks_of) - before))
		echo "$used of $((3 * ticks)) ticks"
		[ $((used * 100)) -gt $((3 * ticks)) ] || return 0
	done
	return 1
}

@test "status, inspect and fsck agree with what was written" {
	mount_cistern -o drain=unmount,data=log
	random_file "$MNT/a" 1000000
	mkdir "$MNT/d"
	random_file "$MNT/d/b" 50000 2
	is "$(status_of mountpoint)" "$MNT"
	is "$(status_of backing)" "$BACKING"
	is "$(status_of written_bytes)" 1050000
	is "$(status_of log_bytes)" 1050000
	is "$(status_of draining)" false
	[ "$(status_of dirty_files)" -ge 2 ]
	kill_daemon
	release_mount "$MNT"
	"$CISTERN" status --json "$STORE" | jq -e '.pid == null and .dirty_files >= 2 and .closed_in_order == false'
	"$CISTERN" inspect --json "$STORE" >"$WORK/inspect.json"
	jq -e '.files | map(select(.path | test("(^|/)a$"))) | .[0].size == 1000000' "$WORK/inspect.json"
	jq -e '.files | map(select(.path | test("d/b$"))) | .[0].log_bytes == 50000' "$WORK/inspect.json"
	"$CISTERN" inspect --json "$STORE" /d/b | jq -e .
	"$CISTERN" fsck --json "$STORE" | jq -e '.damage == 0'
	mount_cistern
	umount_wait
	"$CISTERN" status --json "$STORE" | jq -e '.dirty_files == 0'
	"$CISTERN" fsck --json "$STORE" | jq -e '.damage == 0'
	"$CISTERN" fsck "$STORE"
}

@test "df says what the backing file system has, less what the store owes it" {
	mount_cistern -o drain=unmount
	df "$MNT"
	local size
	size=$(stat -f -c '%b * %S' "$BACKING")
	is "$(($(stat -f -c '%b * %S' "$MNT")))" "$((size))"
	umount_wait
}

@test "the foreground daemon ends with its mount" {
	echo "$STORE $MNT" >>"$WORK/mounts"
	"$CISTERN" mount "$BACKING" "$MNT" --store "$STORE" --foreground >"$WORK/out" 2>&1 3>&- &
	local pid=$!
	wait_until 60 is_mounted "$MNT"
	echo x >"$MNT/f"
	umount_wait
	wait "$pid"
	is "$(cat "$BACKING/f")" x
}
