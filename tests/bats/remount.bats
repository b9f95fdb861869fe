#!/usr/bin/env bats
# SPDX-License-Identifier: GPL-3.0-or-later
#
# A dead daemon's mount makes way for the next one, and nobody sees the directory below. Mounts in places of other kinds.

load ../lib/mount

setup() {
	cistern_setup
	needs_fuse
}

# begin PROGRAM ARG...: of tests/lib/hole.py; end_it ends it, and has what it said in $said.
begin() {
	mkfifo "$WORK/go"
	python3 "$top_srcdir/tests/lib/hole.py" "$@" <"$WORK/go" >"$WORK/said" 3>&- &
	watching=$!
	exec {go}>"$WORK/go"
}

end_it() {
	echo >&"$go"
	exec {go}>&-
	wait "$watching"
	rm "$WORK/go"
	said=$(cat "$WORK/said")
}

# The counter, or the number of files, goes on.
grows() {
	local now
	now=$(of_progress)
	[ -n "$now" ] && [ "$now" != "$was" ]
}

# wait_for_more: until the program that begin has started gets something done.
wait_for_more() {
	was=$(of_progress)
	wait_until 60 grows
}

# with_mishap MISHAP COMMAND...: see tests/lib/mishap.c.
with_mishap() {
	local shim=$top_builddir/tests/lib/mishap.so runtime
	[ -e "$shim" ] || skip "tests/lib/mishap.so is not built"
	runtime=$(ldd "$top_builddir/cistern-fs" | awk '/libasan/ { print $3 ":" }')
	MISHAP=$1 LD_PRELOAD=$runtime$shim "${@:2}"
}

needs_beneath() {
	needs_root "a mount in the place of another"
	printf '%s\n6.5\n' "$(uname -r)" | sort -VC && skip "Linux 6.5 puts a mount beneath another one"
	return 0
}

@test "who looks at the mount point sees the dead mount, then the new one, and nothing else" {
	local i old
	needs_beneath
	of_progress() { ls -U "$MNT" 2>/dev/null | wc -l; }
	mount_cistern
	for i in 1 2 3; do
		old=$(stat -c %d "$MNT")
		begin poll "$MNT"
		wait_for_more
		kill_daemon
		exits 0 mount_cistern
		says "took the place of"
		wait_for_more
		end_it
		[[ $said =~ ^dev:$old\ ((ENOTCONN|ECONNABORTED)\ )+dev:([0-9]+)\ made=[0-9]+$ ]] || { echo "$said"; return 1; }
		is "$(grep -c " $MNT " /proc/self/mountinfo)" 1
	done
	umount_wait
	is "$(ls -A "$MNT" | wc -l)" 0
}

@test "whatever a writer that tries again was told to be written is in the backing directory" {
	local i
	needs_beneath
	of_progress() { ls -U "$MNT" 2>/dev/null | wc -l; }
	mount_cistern
	begin write "$MNT"
	for i in 1 2 3; do
		wait_for_more
		kill_daemon
		mount_cistern
	done
	wait_for_more
	end_it
	umount_wait
	is "$(ls -A "$MNT" | wc -l)" 0
	python3 "$top_srcdir/tests/lib/hole.py" check "$said" "$BACKING"
}

@test "over its own backing directory, too, a counter never goes back" {
	local i
	needs_beneath
	of_progress() { cat "$BACKING/n" 2>/dev/null; }
	echo 0000000000 >"$BACKING/n"
	mount_cistern "$STORE" "$BACKING" "$BACKING"
	begin count "$BACKING/n"
	for i in 1 2 3; do
		wait_for_more
		kill_daemon "$BACKING"
		exits 0 mount_cistern "$STORE" "$BACKING" "$BACKING"
		is "$(status_of backing "$BACKING")" "$BACKING"
	done
	wait_for_more
	end_it
	umount_wait "$BACKING"
	is "$(sed 's/^0*//' "$BACKING/n")" "$said"
	no_leftovers "$BACKING"
}

# by_user COMMAND...: of an ordinary user, whose are $BACKING, $MNT and $WORK/his.
by_user() {
	"${by_other[@]}" env "HOME=$WORK/his" "$@" 3>&-
}

be_user() {
	needs_user_mounts
	copy_programs
	mkdir "$WORK/his"
	chown "$other:$other" "$BACKING" "$MNT" "$WORK/his"
	STORE=$WORK/his/store
	printf '%s %s\n%s %s\n' "$STORE" "$MNT" "$STORE" "$BACKING" >>"$WORK/mounts"
}

# kill_his MNT
kill_his() {
	local pid
	pid=$(by_user "$CISTERN" status --json "$1" | jq -er .pid)
	kill -KILL "$pid"
	wait_until 60 gone "$pid"
}

# After a file has come into the directory below, an ordinary user's mount takes the place of a dead one: fusermount3 is made to take a moment, and
# then a program has written there.
slow_fusermount() {
	mkdir "$WORK/bin"
	cat >"$WORK/bin/fusermount3" <<-END
		#!/bin/bash
		$(command -v fusermount3) "\$@" || exit
		[ "\$1" != -u ] || { cd / && $1; }
	END
	chmod 755 "$WORK/bin" "$WORK/bin/fusermount3"
}

@test "an ordinary user is told what came into the directory below in the moment between two mounts, and it is left alone" {
	be_user
	by_user touch "$MNT/before"
	by_user "$CISTERN" mount "$BACKING" "$MNT" --store "$STORE"
	by_user bash -c 'echo kept >"$1/f"' - "$MNT"
	kill_his "$MNT"
	slow_fusermount "mkdir -p $MNT/d/e && echo lost >$MNT/d/e/came && touch $MNT/came"
	exits 0 by_user env PATH="$WORK/bin:$PATH" "$CISTERN" mount "$BACKING" "$MNT" --store "$STORE"
	says "$MNT was free for "
	says "d/e/came"
	says " came"
	[[ $output != *before* ]]
	grep -q "written-below path=d/e/came" "$STORE/cistern.log"
	is "$(by_user cat "$MNT/f")" kept
	by_user "$CISTERN" umount --wait "$MNT"
	is "$(cat "$BACKING/f" "$MNT/d/e/came")" $'kept\nlost'
	# Nothing came: nothing is said.
	by_user "$CISTERN" mount "$BACKING" "$MNT" --store "$STORE"
	kill_his "$MNT"
	exits 0 by_user "$CISTERN" mount "$BACKING" "$MNT" --store "$STORE"
	[[ $output != *"was free"* ]]
	by_user "$CISTERN" umount --wait "$MNT"
}

@test "an ordinary user's mount over its own backing directory takes the place of a dead one, and says what was written there meanwhile" {
	be_user
	by_user bash -c 'mkdir "$1/d"; echo old >"$1/d/f"' - "$BACKING"
	by_user "$CISTERN" mount "$BACKING" "$BACKING" --store "$STORE"
	by_user bash -c 'echo new >"$1/g"' - "$BACKING"
	kill_his "$BACKING"
	slow_fusermount "echo more >>$BACKING/d/f"
	exits 0 by_user env PATH="$WORK/bin:$PATH" "$CISTERN" mount "$BACKING" "$BACKING" --store "$STORE"
	says "$BACKING was free for "
	says "d/f; it is the backing directory"
	is "$(by_user cat "$BACKING/d/f" "$BACKING/g")" $'old\nmore\nnew'
	by_user "$CISTERN" umount --wait "$BACKING"
	is "$(cat "$BACKING/d/f" "$BACKING/g")" $'old\nmore\nnew'
}

@test "an ordinary user's mount that fails in the gap says that the path means the directory itself now" {
	be_user
	by_user "$CISTERN" mount "$BACKING" "$MNT" --store "$STORE"
	by_user bash -c 'echo text >"$1/f"' - "$MNT"
	kill_his "$MNT"
	slow_fusermount "chmod 0 $MNT" # where nobody may write fusermount3 does not mount
	exits 1 by_user env PATH="$WORK/bin:$PATH" "$CISTERN" mount "$BACKING" "$MNT" --store "$STORE"
	says "what programs write to $MNT goes to the directory itself now"
	chmod 755 "$MNT"
	exits 0 by_user "$CISTERN" mount "$BACKING" "$MNT" --store "$STORE"
	is "$(by_user cat "$MNT/f")" text
	by_user "$CISTERN" umount --wait "$MNT"
}

@test "where the kernel puts no mount beneath another, root's gap is short, and what came is told" {
	needs_root "a mount in the place of another"
	local i name
	of_progress() { ls -U "$MNT" 2>/dev/null | wc -l; }
	mount_cistern
	begin write "$MNT"
	for i in 1 2 3; do
		wait_for_more
		kill_daemon
		with_mishap beneath exits 0 mount_cistern
		says "took the place of"
		[[ $(grep ' gap ' "$STORE/cistern.log" | tail -n 1) == *" found=0 "* ]] || says "was free for"
	done
	wait_for_more
	end_it
	is "$(grep -c ' gap mountpoint=' "$STORE/cistern.log")" 3
	umount_wait
	ls "$MNT" >"$WORK/below"
	while read -r name; do grep -q "written-below path=$name\$" "$STORE/cistern.log"; done <"$WORK/below"
	python3 "$top_srcdir/tests/lib/hole.py" check "$said" "$MNT" "$BACKING"
}

@test "a mount that fails leaves the dead one" {
	mount_cistern
	echo text >"$MNT/f"
	kill_daemon
	mv "$STORE/superblock" "$WORK/superblock"
	exits 1 mount_cistern
	refute ls "$MNT"
	is_mounted "$MNT"
	mv "$WORK/superblock" "$STORE/superblock"
	mkdir "$WORK/other"
	exits 2 mount_cistern "$STORE" "$MNT" "$WORK/other"
	refute ls "$MNT"
	is_mounted "$MNT"
	with_mishap workers exits 1 mount_cistern
	says "cannot start thread"
	refute ls "$MNT"
	is_mounted "$MNT"
	mount_cistern
	is "$(cat "$MNT/f")" text
	umount_wait
	is "$(ls -A "$MNT" | wc -l)" 0
}

@test "the settings of a mount hold also where it takes the place of a dead one" {
	needs_root "mount options"
	mount_cistern -o noexec,noatime,allow_other=no
	grep " $MNT " /proc/self/mountinfo | cut -d ' ' -f 6,9- >"$WORK/first"
	kill_daemon
	mount_cistern -o noexec,noatime,allow_other=no
	grep " $MNT " /proc/self/mountinfo | cut -d ' ' -f 6,9- | diff "$WORK/first" -
	umount_wait
	mount_cistern -o ro
	grep " $MNT " /proc/self/mountinfo | cut -d ' ' -f 6,9- >"$WORK/first"
	kill_daemon
	mount_cistern -o ro
	grep " $MNT " /proc/self/mountinfo | cut -d ' ' -f 6,9- | diff "$WORK/first" -
	exits 1 touch "$MNT/x"
	umount_wait
}

@test "dead mounts that lie on each other all make way" {
	needs_root "mounts over a dead one"
	mount_cistern
	echo text >"$MNT/f"
	kill_daemon
	mount --bind "$MNT" "$MNT" 2>/dev/null || skip "a dead mount cannot be bound here"
	is "$(grep -c " $MNT " /proc/self/mountinfo)" 2
	mount_cistern
	is "$(cat "$MNT/f")" text
	is "$(grep -c " $MNT " /proc/self/mountinfo)" 1
	umount_wait
}

@test "a recovery works beneath the dead mount, which keeps others out" {
	needs_root "a look beneath a mount"
	mount_cistern "$STORE" "$BACKING" "$BACKING"
	echo text >"$BACKING/f"
	kill_daemon "$BACKING"
	exits 0 "$CISTERN" recover "$STORE" --to "$BACKING"
	is_mounted "$BACKING"
	refute ls "$BACKING"
	exits 0 "$CISTERN" umount "$BACKING"
	is "$(cat "$BACKING/f")" text
	no_leftovers "$BACKING"
	mount_cistern "$STORE" "$BACKING" "$BACKING"
	echo more >>"$BACKING/f"
	kill_daemon "$BACKING"
	mount_cistern "$STORE" "$BACKING" "$BACKING"
	umount_wait "$BACKING"
	is "$(cat "$BACKING/f")" $'text\nmore'
}

@test "programs that are started without standard streams take no file of theirs for one" {
	bash -c '"$@" <&- >&- 2>&-' - "$CISTERN" mount "$BACKING" "$MNT" --store "$STORE" 3>&-
	echo "$STORE $MNT" >>"$WORK/mounts"
	is_mounted "$MNT"
	echo text >"$MNT/f"
	bash -c '"$@" <&- >&- 2>&-' - "$CISTERN" flush --wait --mount "$MNT" 3>&-
	is "$(cat "$BACKING/f")" text
	kill_daemon
	bash -c '"$@" <&-' - "$CISTERN" mount "$BACKING" "$MNT" --store "$STORE" 3>&-
	echo more >>"$MNT/f"
	kill_daemon
	exits 0 "$CISTERN" umount "$MNT"
	bash -c '"$@" <&- 2>&-' - "$CISTERN" recover "$STORE" --to "$BACKING" 3>&- >"$WORK/said"
	grep -q "into $BACKING" "$WORK/said"
	is "$(cat "$BACKING/f")" $'text\nmore'
}

# Another mount namespace keeps the mount, so that the daemon hears of its end when this says so.
hold_mount() {
	unshare --mount sleep infinity 3>&- &
	holder=$!
	undo "kill $holder 2>/dev/null; true"
	wait_until 60 leads_elsewhere "/proc/$holder/ns/mnt"
}

leads_elsewhere() {
	[ "$(readlink "$1")" != "$(readlink /proc/self/ns/mnt)" ]
}

@test "a mount right behind umount(8) waits for the daemon, also when that has not heard of it yet" {
	local holder mounting
	needs_root "a mount namespace"
	mount_cistern
	echo text >"$MNT/f"
	hold_mount
	umount "$MNT"
	"$CISTERN" mount "$BACKING" "$MNT" --store "$STORE" >"$WORK/said" 2>&1 3>&- &
	mounting=$!
	wait_until 60 grep -q "waiting for its daemon" "$WORK/said"
	refute is_mounted "$MNT"
	kill "$holder"
	wait "$mounting" || { cat "$WORK/said"; return 1; }
	is "$(cat "$MNT/f")" text
	umount_wait
}

@test "umount(8) and mount in turns" {
	local i
	needs_root "umount(8)"
	for i in {1..10}; do
		mount_cistern
		echo "$i" >>"$MNT/f"
		umount "$MNT"
	done
	mount_cistern
	seq 10 | diff - "$MNT/f"
	umount_wait
}

@test "a bind mount of a part of the mount knows its store: status, flush, umount" {
	needs_root "bind mounts"
	mount_cistern -o drain=unmount
	mkdir -p "$MNT/sub/dir" "$WORK/bound" "$WORK/whole"
	echo text >"$MNT/sub/dir/f"
	echo other >"$MNT/g"
	mount --bind "$MNT/sub" "$WORK/bound"
	undo "umount -l $WORK/bound"
	mount --bind "$MNT" "$WORK/whole"
	undo "umount -l $WORK/whole"
	is "$(status_of store "$WORK/bound")" "$STORE"
	is "$(status_of store "$WORK/bound/dir")" "$STORE"
	exits 0 "$CISTERN" flush --wait "$WORK/bound/dir/f"
	is "$(cat "$BACKING/sub/dir/f")" text
	[ ! -e "$BACKING/g" ]
	exits 0 "$CISTERN" inspect "$WORK/bound/dir/f"
	(cd "$WORK/bound/dir" && exits 0 "$CISTERN" status)
	# It is one mount, so it need not be named. Those of others are put out of sight.
	# shellcheck disable=SC2016
	exits 0 unshare --mount --propagation private bash -c 'for at in $(awk "\$3 == \"fuse.cistern\" { print \$2 }" /proc/self/mounts); do
			[[ $at == "$1"/* ]] || umount -l "$at"
		done
		cd / && "$2" flush --wait' - "$WORK" "$CISTERN"
	is "$(cat "$BACKING/g")" other
	exits 0 "$CISTERN" umount "$WORK/bound"
	says "is still at $MNT"
	exits 0 "$CISTERN" umount --wait "$WORK/whole"
	says "is still at $MNT"
	is "$(cat "$MNT/sub/dir/f")" text
	umount_wait
}

@test "a container that has nothing but a bind mount of a part finds the store" {
	needs_root "bind mounts"
	mount_cistern -o drain=unmount
	mkdir -p "$MNT/sub" "$WORK/bound"
	echo text >"$MNT/sub/f"
	# shellcheck disable=SC2016
	exits 0 unshare --mount bash -ec 'mount --bind "$1/sub" "$2"; umount "$1"; "$3" flush --wait "$2/f"' - "$MNT" "$WORK/bound" "$CISTERN"
	is "$(cat "$BACKING/sub/f")" text
	umount_wait
}

@test "nothing is mounted over, stored in or recovered into a cistern mount" {
	mount_cistern
	mkdir "$MNT/inner" "$WORK/mnt2"
	exits 2 mount_cistern "$WORK/store2" "$WORK/mnt2" "$MNT/inner"
	says "lies in a cistern mount"
	exits 2 mount_cistern "$MNT/inner/store" "$WORK/mnt2" "$WORK/direct"
	says "lies in a cistern mount"
	refute is_mounted "$WORK/mnt2"
	mount_cistern "$WORK/store2" "$WORK/mnt2" "$WORK/direct"
	echo x >"$WORK/mnt2/f"
	kill_daemon "$WORK/mnt2"
	exits 2 "$CISTERN" recover "$WORK/store2" --to "$MNT/inner" || exits 1 "$CISTERN" recover "$WORK/store2" --to "$MNT/inner"
	says "lies in a cistern mount"
	umount_wait
}

# mnt_options: as the kernel has them.
mnt_options() {
	awk -v at="$MNT" '$2 == at { print $4 }' /proc/self/mounts
}

@test "mount -o remount changes the kernel's flags, and says that settings stay" {
	needs_root "mount(8)"
	[ ! -e /sbin/mount.fuse.cistern ] || skip "/sbin/mount.fuse.cistern is installed"
	ln -s "$CISTERN" /sbin/mount.fuse.cistern
	undo "rm -f /sbin/mount.fuse.cistern"
	mount_cistern
	echo text >"$MNT/f"
	printf '#!/bin/sh\n' >"$MNT/prog"
	chmod 755 "$MNT/prog"
	exits 0 mount -o remount,noexec "$MNT"
	[[ ,$(mnt_options), == *,noexec,* ]]
	exits 126 bash -c '"$1"' - "$MNT/prog"
	exits 0 mount -o remount,exec,ro "$MNT"
	[[ ,$(mnt_options), != *,noexec,* && ,$(mnt_options), == *,ro,* && ,$(mnt_options), == *,nosuid,* ]]
	exits 1 touch "$MNT/g"
	exits 0 mount -o remount,rw "$MNT"
	touch "$MNT/g"
	exec 7>"$MNT/h"
	refute mount -o remount,ro "$MNT"
	exec 7>&-
	exits 0 mount -o "remount,rw,capacity=10G" "$MNT"
	says "settings stay as they are"
	says capacity
	refute mount -o remount,no_such_word "$MNT"
	is "$(cat "$MNT/f")" text
	umount_wait
}
