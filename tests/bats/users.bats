#!/usr/bin/env bats
# SPDX-License-Identifier: GPL-3.0-or-later
#
# Several users, and mounts of ordinary users.

load ../lib/mount

setup() {
	cistern_setup
	needs_fuse
}

needs_users() {
	needs_root "a second user"
	needs_program setpriv
}

@test "without allow_other nobody else gets in" {
	needs_users
	mount_cistern -o allow_other=no
	chmod 777 "$BACKING" "$MNT"
	exits 1 as $other touch "$MNT/f"
	exits 2 as $other ls "$MNT"
	umount_wait
}

@test "with allow_other permissions are checked, and files belong to who made them" {
	needs_users
	mount_cistern -o allow_other
	echo secret >"$MNT/secret"
	chmod 600 "$MNT/secret"
	echo public >"$MNT/public"
	mkdir -m 1777 "$MNT/tmp"
	mkdir -m 755 "$MNT/mine"
	exits 1 as $other cat "$MNT/secret"
	says "Permission denied"
	is "$(as $other cat "$MNT/public")" public
	exits 1 as $other bash -c 'echo x >>"$1"' - "$MNT/public"
	exits 1 as $other touch "$MNT/mine/f"
	exits 1 as $other rm -f "$MNT/public"
	exits 1 as $other chmod 666 "$MNT/public"
	exits 1 as $other chown $other "$MNT/public"
	as $other bash -c 'umask 027; echo hello >"$1/theirs"; mkdir "$1/dir"; ln -s theirs "$1/link"' - "$MNT/tmp"
	is "$(stat -c %u:%g:%a "$MNT/tmp/theirs")" $other:$other:640
	is "$(stat -c %u:%g:%a "$MNT/tmp/dir")" $other:$other:750
	touch "$MNT/tmp/roots"
	exits 1 as $other rm -f "$MNT/tmp/roots"
	umount_wait
	is "$(stat -c %u:%g:%a "$BACKING/tmp/theirs")" $other:$other:640
	is "$(stat -c %u:%g:%a "$BACKING/tmp/dir")" $other:$other:750
	is "$(stat -c %u:%g "$BACKING/tmp/link")" $other:$other
	is "$(stat -c %u:%g:%a "$BACKING/secret")" 0:0:600
}

@test "what others have made since it was looked for is opened by who may, also with O_CREAT" {
	needs_users
	mkdir -m 1777 "$BACKING/d"
	mount_cistern -o allow_other,backing_timeout=1h
	[ ! -e "$MNT/d/secret" ] && [ ! -e "$MNT/d/public" ]
	(umask 077; echo secret >"$BACKING/d/secret")
	(umask 0; echo public >"$BACKING/d/public")
	exits 1 as $other bash -c 'cat <>"$1"' - "$MNT/d/secret"
	says "Permission denied"
	exits 1 as $other bash -c ': >"$1"' - "$MNT/d/secret"
	is "$(cat "$MNT/d/secret")" secret
	is "$(as $other bash -c 'cat <>"$1"' - "$MNT/d/public")" public
	umount_wait
	is "$(cat "$BACKING/d/secret")" secret
}

@test "what one user changed in another's file: set-user-id is dropped, owner stays" {
	needs_users
	mount_cistern -o allow_other
	cp /bin/true "$MNT/prog"
	chmod 4777 "$MNT/prog"
	as $other bash -c 'echo x >>"$1"' - "$MNT/prog"
	is "$(stat -c %u:%a "$MNT/prog")" 0:777
	umount_wait
	is "$(stat -c %u:%a "$BACKING/prog")" 0:777
}

@test "random system calls of an ordinary user: as in a plain directory" {
	needs_users
	needs_built tests/parity/parity
	cp "$top_builddir/tests/parity/parity" "$WORK/parity"
	mount_cistern -o allow_other
	mkdir -m 777 "$MNT/p" "$DIRECT/p"
	chown $other:$other "$MNT/p" "$DIRECT/p"
	as $other "$WORK/parity" --seed "${CISTERN_SEED:-1}" --ops 3000 "$MNT/p" "$DIRECT/p"
	umount_wait
	same_trees "$BACKING/p" "$DIRECT/p"
}

# Commands of an ordinary user, in a folder of his own where he may mount "store" as "mnt".
at_home() {
	home=$WORK/home
	needs_user_mounts
	copy_programs
	mkdir "$home"
	chown $other:$other "$home"
	echo "$home/store $home/mnt" >>"$WORK/mounts"
	HOME=$home CISTERN=$CISTERN CISTERN_LIBEXEC=$CISTERN_LIBEXEC as $other bash -ec "cd; $1" 3>&-
}

@test "an ordinary user mounts, writes, drains and unmounts" {
	# shellcheck disable=SC2016
	at_home 'mkdir backing mnt
		"$CISTERN" mount backing mnt --store store
		seq 100000 >mnt/f; mkdir mnt/d; mv mnt/f mnt/d/g; cmp mnt/d/g <(seq 100000)
		"$CISTERN" status --json mnt | jq -e ".passthrough == false"
		"$CISTERN" umount --wait mnt
		cmp backing/d/g <(seq 100000)'
	is "$(stat -c %u "$home/backing/d/g")" $other
}

@test "an ordinary user's read-only files and directories are drained once they were written to, and stay read-only" {
	# shellcheck disable=SC2016
	at_home 'mkdir -p backing/d mnt
		echo old >backing/d/f; touch backing/d/gone
		chmod 444 backing/d/f; chmod 555 backing/d backing
		"$CISTERN" mount backing mnt --store store
		for i in 1 2; do
			chmod u+w mnt mnt/d mnt/d/f
			echo "$i" >>mnt/d/f; echo new >mnt/d/new$i; mkdir mnt/d/sub$i; rm -f mnt/d/gone; mv mnt/d/new$i mnt/new$i
			chmod 0 mnt/new$i mnt/d/sub$i
			chmod u-w mnt mnt/d mnt/d/f
			"$CISTERN" flush --wait --mount mnt
			[ "$(stat -c %a backing backing/d backing/d/f backing/new$i backing/d/sub$i | xargs)" = "555 555 444 0 0" ]
		done
		"$CISTERN" umount --wait mnt
		cmp backing/d/f <(printf "old\n1\n2\n")
		[ "$(ls backing backing/d | xargs)" = "backing: d new1 new2 backing/d: f sub1 sub2" ]'
}

@test "a store of another user is refused" {
	needs_users
	mount_cistern
	umount_wait
	exits 1 as $other "$CISTERN" fsck "$STORE"
	exits 1 as $other "$CISTERN" inspect "$STORE"
}
