#!/usr/bin/env bats
# SPDX-License-Identifier: GPL-3.0-or-later
#
# Limits that a shell or a batch system has set for applications (setrlimit) when a mount is made.

load "${top_srcdir:?}/tests/lib/mount.bash"

# In KiB, as ulimit -f has it: of the shell and all that it starts; the second argument: soft (-S) or hard too (-SH).
limited() {
	(ulimit "${2:--S}" -f "$1" && mount_cistern "${@:3}")
}

@test "a soft limit of file size at the mount limits neither what is written nor what is drained" {
	for data in auto log; do
		limited 20000 -S -o drain=unmount,data=$data
		random_file "$MNT/$data" $((41 << 20))
		random_file "$DIRECT/$data" $((41 << 20))
		umount_wait
		cmp "$BACKING/$data" "$DIRECT/$data"
	done
}

@test "under a hard limit of file size a file that is too large is one file's error, and the mount says so" {
	run limited 70000 -SH -o drain=unmount,data=private
	echo "$output"
	[ "$status" -eq 0 ]
	echo "$STORE $MNT" >>"$WORK/mounts"
	random_file "$MNT/large" 83886080
	echo small >"$MNT/small"
	if [[ $output == *"limit of file size (ulimit -Hf) is"*"larger files are refused, or stay in the store"* ]]; then
		run "$CISTERN" umount --wait "$MNT"
		[ "$status" -eq 3 ]
		[[ $output == *"large: "*"File too large"* ]]
		refute test -e "$BACKING/large"
		mount_cistern -o drain=unmount
	fi # else this user could raise it
	umount_wait
	is "$(stat -c %s "$BACKING/large")" 83886080
	is "$(cat "$BACKING/small")" small
}

@test "an ordinary user is refused under a limit with which no store works, and gets EFBIG at once above a higher one" {
	needs_user_mounts
	copy_programs
	chown -R $other "$WORK"
	run "${by_other[@]}" bash -c "ulimit -f 1000; '$CISTERN' mount '$BACKING' '$MNT' --store '$STORE' 3>&-"
	[ "$status" -eq 1 ]
	[[ $output == *"limit of file size is 1000 KiB, and a store has files of 64 MiB"*"ulimit -Hf"* ]]

	echo "$STORE $MNT" >>"$WORK/mounts"
	"${by_other[@]}" bash -c "ulimit -f 70000; '$CISTERN' mount '$BACKING' '$MNT' --store '$STORE' -o drain=unmount 3>&-"
	run "${by_other[@]}" bash -c "head -c 83886080 /dev/zero >'$MNT/large'"
	[[ $output == *"File too large"* ]]
	"${by_other[@]}" bash -c "echo small >'$MNT/small'"
	"${by_other[@]}" "$CISTERN" umount --wait "$MNT"
	is "$(cat "$BACKING/small")" small
}
