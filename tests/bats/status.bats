#!/usr/bin/env bats
# SPDX-License-Identifier: GPL-3.0-or-later
#
# What may be deleted: cistern status --check and safe_to_delete, of one node and of a job's; and what cistern wait says of data that remain.

load "${top_srcdir:?}/tests/lib/mount.bash"
load "$top_srcdir/tests/lib/job.bash"

# leaves STATUS STORE: --check ends with STATUS, and safe_to_delete agrees.
leaves() {
	run "$CISTERN" status --check "$2"
	echo "$output"
	[ "$status" -eq "$1" ]
	is "$("$CISTERN" status --json "$2" | jq .safe_to_delete)" "$([ "$1" -eq 0 ] && echo true || echo false)"
}

kill_and_free() {
	kill_daemon "$STORE"
	release_mount "$MNT"
}

@test "a store is safe to delete only when no data, name or attribute is in it alone, and nobody uses it" {
	echo old >"$BACKING/gone"
	echo old >"$BACKING/mode"
	mount_cistern -o drain=unmount
	leaves 5 "$STORE"
	echo new >"$MNT/data"
	kill_and_free
	leaves 3 "$STORE"
	[[ $output == *"2 files (directories counted)"* ]]
	mount_cistern -o drain=unmount
	umount_wait
	leaves 0 "$STORE"

	mount_cistern -o drain=unmount
	rm "$MNT/gone"
	kill_and_free
	leaves 3 "$STORE"
	[[ $output == *"1 name deleted or moved"* ]]
	mount_cistern -o drain=unmount
	umount_wait
	leaves 0 "$STORE"

	mount_cistern -o drain=unmount
	chmod 700 "$MNT/mode"
	kill_and_free
	leaves 3 "$STORE"
	mount_cistern -o drain=unmount
	umount_wait
	leaves 0 "$STORE"
	is "$(stat -c %a "$BACKING/mode")" 700
}

@test "bytes of another node's file are not safe to delete, and what is drained is" {
	local k
	start_job 2 drain=unmount
	echo here >"$WORK/m0/f"
	wait_until 60 test -e "$WORK/m1/f"
	head -c 60000 /dev/zero | tr '\0' x >>"$WORK/m1/f"
	kill_job
	for k in 0 1; do leaves 3 "$WORK/s$k"; done
	[[ $output == *"60000 bytes in 1 file of other nodes"* || $output == *"in 1 file of other nodes"* ]]
	for k in 0 1; do mount_node $k drain=unmount; done
	start_agents
	"$CISTERN" flush --wait --mount "$WORK/m0"
	kill_job # before it could be said that all of the job is out
	for k in 0 1; do leaves 3 "$WORK/s$k"; done
	[[ $output == *"not all of its job is"* ]]
	for k in 0 1; do mount_node $k drain=unmount; done
	start_agents
	stop_job
	for k in 0 1; do leaves 0 "$WORK/s$k"; done
	is "$(stat -c %s "$WORK/b/f")" 60005
}

@test "what removed files have left in a job's stores is safe to delete when the job is drained" {
	local k
	start_job 2 drain=unmount
	echo here >"$WORK/m0/gone"
	wait_until 60 test -e "$WORK/m1/gone"
	head -c 60000 /dev/zero >>"$WORK/m1/gone"
	exec 9<"$WORK/m0/gone"
	rm "$WORK/m1/gone"
	exec 9<&-
	stop_job
	for k in 0 1; do leaves 0 "$WORK/s$k"; done
}

@test "cistern wait says that data remain, and ends with 3" {
	mount_cistern -o drain=unmount
	exits 0 "$CISTERN" wait "$MNT"
	random_file "$MNT/f" 300000
	run "$CISTERN" wait "$MNT"
	[ "$status" -eq 3 ]
	[[ $output == *"no drain is on; 2 files"*"remain in the store: 'cistern flush --wait --mount $MNT'"* ]]
	"$CISTERN" flush --wait --mount "$MNT"
	exits 0 "$CISTERN" wait "$MNT"
	umount_wait
}
