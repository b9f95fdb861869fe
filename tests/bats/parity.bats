#!/usr/bin/env bats
# SPDX-License-Identifier: GPL-3.0-or-later
#
# The mount behaves like a plain directory: under random sequences of system calls, under a data exerciser, and for real
# programs, whose files must come out byte for byte the same. CISTERN_SEED gives another sequence, CISTERN_OPS a longer one.

load ../lib/mount

seed=${CISTERN_SEED:-1}

setup() {
	cistern_setup
	needs_fuse
	parity=$top_builddir/tests/parity/parity fsx=$top_builddir/tests/parity/fsx ph5=$top_builddir/tests/mpi/ph5
	hook="'$CISTERN' flush --wait --timeout 10m --mount '$MNT'"
}

# parity_run OPTIONS...: on $MNT and $DIRECT, then again the trees that are left after the drain.
parity_run() {
	needs_built tests/parity/parity
	chmod 755 "$DIRECT" "$MNT"
	"$parity" --ops "${CISTERN_OPS:-4000}" "$@" "$MNT" "$DIRECT"
	umount_wait
	no_leftovers "$BACKING"
	same_trees "$BACKING" "$DIRECT"
}

@test "the parity test itself finds a difference" {
	needs_built tests/parity/parity
	mkdir "$WORK/a" "$WORK/b"
	"$parity" --seed "$seed" --ops 1500 "$WORK/a" "$WORK/b"
	rm -rf "$WORK/a" "$WORK/b"
	mkdir "$WORK/a" "$WORK/b"
	exits 1 "$parity" --seed "$seed" --ops 1500 --every 700 --hook "echo x >$WORK/a/other" "$WORK/a" "$WORK/b"
	says DIFFERENCE
}

@test "the data exerciser itself finds a difference" {
	needs_built tests/parity/fsx
	"$fsx" --seed "$seed" --ops 300 "$WORK/x"
	exits 1 "$fsx" --seed "$seed" --ops 300 --every 100 --hook "printf x | dd of=$WORK/x conv=notrunc status=none" "$WORK/x"
	says FAILED
}

@test "random system calls: as in a plain directory" {
	mount_cistern
	parity_run --seed "$seed"
}

@test "random system calls, all data through the log" {
	mount_cistern -o data=log
	parity_run --seed $((seed + 1))
}

@test "random system calls, all data in private segments" {
	mount_cistern -o data=private,private_min_free=0
	parity_run --seed $((seed + 2))
}

@test "random system calls with drains in between" {
	mount_cistern -o data=log
	parity_run --seed $((seed + 3)) --every 400 --hook "$hook"
}

@test "random system calls with drains in between, private segments" {
	mount_cistern -o private_min_free=0
	parity_run --seed $((seed + 4)) --every 400 --hook "$hook"
}

@test "random system calls, drained as soon as possible" {
	mount_cistern -o drain=idle,idle_interval=10ms
	parity_run --seed $((seed + 5))
}

@test "random system calls on files that the backing directory has already" {
	local begin=$((EPOCHSECONDS - 2))
	needs_built tests/parity/parity
	mount_cistern
	"$parity" --seed $((seed + 6)) --ops 1500 "$MNT" "$DIRECT"
	umount_wait
	same_trees "$BACKING" "$DIRECT"
	mount_cistern "$WORK/store2"
	parity_run --seed $((seed + 7)) --every 1000 --hook "$hook" --since "$begin"
}

@test "random system calls, remounted in between" {
	local i begin=$((EPOCHSECONDS - 2))
	needs_built tests/parity/parity
	for i in 1 2 3 4; do
		mount_cistern -o drain=unmount
		"$parity" --seed $((seed + 10 + i)) --ops 600 --since "$begin" "$MNT" "$DIRECT"
		if [ "$i" -lt 3 ]; then kill_daemon; else umount_wait; fi
	done
	same_trees "$BACKING" "$DIRECT"
}

# exercise MOUNT-OPTIONS FSX-OPTIONS...
exercise() {
	needs_built tests/parity/fsx
	mount_cistern ${1:+-o "$1"}
	shift
	"$fsx" --ops "${CISTERN_OPS:-1500}" "$@" "$MNT/x"
	cp "$MNT/x" "$DIRECT/x"
	umount_wait
	cmp "$BACKING/x" "$DIRECT/x"
}

@test "data exerciser" {
	exercise "" --seed "$seed"
}

@test "data exerciser through the log" {
	exercise data=log --seed $((seed + 1))
}

@test "data exerciser in a private segment" {
	exercise data=private,private_min_free=0 --seed $((seed + 2)) --direct 10
}

@test "data exerciser with drains, through the log" {
	exercise data=log --seed $((seed + 3)) --every 50 --hook "$hook"
}

@test "data exerciser with drains, private" {
	exercise private_min_free=0 --seed $((seed + 4)) --every 50 --hook "$hook"
}

@test "data exerciser with drains, O_DIRECT" {
	exercise "" --seed $((seed + 5)) --every 100 --direct 100 --hook "$hook"
}

@test "data exerciser, four processes in one file" {
	exercise data=log --seed "$seed" --processes 4 --size 131072 --ops 400
}

@test "data exerciser, four processes in one file, private, with drains" {
	exercise private_min_free=0 --seed "$seed" --processes 4 --size 131072 --ops 300 --every 100 --hook "$hook"
}

# ---- real programs: COMMAND runs in $DIRECT and in $MNT

both() {
	(cd "$DIRECT" && "$@") >"$WORK/direct.out" 2>&1 || { cat "$WORK/direct.out"; skip "$1 does not work here"; }
	(cd "$MNT" && "$@") >"$WORK/mount.out" 2>&1 3>&- || { cat "$WORK/mount.out"; return 1; }
}

all_same() {
	umount_wait
	no_leftovers "$BACKING"
	diff -r --no-dereference "$BACKING" "$DIRECT"
}

make_cdl() {
	cat >"$WORK/in.cdl" <<'END'
netcdf in {
dimensions: time = UNLIMITED ; x = 300 ; y = 200 ;
variables: double t(time, y, x) ; t:units = "K" ; int n(time) ; float plain(y, x) ;
data: n = 1, 2, 3, 4, 5 ;
}
END
}

@test "ncgen and nccopy, all three classic formats" {
	needs_program ncgen nccopy
	make_cdl
	mount_cistern
	local kind
	for kind in classic 64-bit-offset 64-bit-data; do
		both ncgen -k "$kind" -o "$kind.nc" "$WORK/in.cdl"
		both nccopy "$kind.nc" "copy-$kind.nc"
		both nccopy -u "$kind.nc" "fixed-$kind.nc"
	done
	all_same
}

@test "netCDF-4 by ncgen, read back" {
	needs_program ncgen ncdump
	make_cdl
	mount_cistern
	both ncgen -k nc4 -o four.nc "$WORK/in.cdl"
	ncdump "$MNT/four.nc" >"$WORK/dump"
	umount_wait
	diff <(ncdump "$BACKING/four.nc") "$WORK/dump"
	diff <(ncdump "$DIRECT/four.nc") "$WORK/dump"
}

@test "h5repack" {
	needs_built tests/mpi/ph5
	needs_program h5repack h5diff
	"$ph5" "$WORK/in.h5" 3
	mount_cistern
	both h5repack -f GZIP=1 "$WORK/in.h5" out.h5
	both cp "$WORK/in.h5" in.h5
	umount_wait
	cmp "$BACKING/in.h5" "$WORK/in.h5"
	h5diff "$BACKING/out.h5" "$WORK/in.h5"
	same_word "$(stat -c %s "$BACKING/out.h5")" "$(stat -c %s "$DIRECT/out.h5")"
}

@test "an HDF5 program of one process" {
	needs_built tests/mpi/ph5
	mount_cistern
	both "$ph5" one.h5 4
	"$ph5" --check "$MNT/one.h5" 4
	all_same
	"$ph5" --check "$BACKING/one.h5" 4
}

@test "a parallel HDF5 program" {
	needs_built tests/mpi/ph5
	needs_program mpiexec.mpich
	mount_cistern
	both mpiexec.mpich -n 2 "$ph5" two.h5 4
	mpiexec.mpich -n 2 "$ph5" --check "$MNT/two.h5" 4 3>&-
	flush
	both mpiexec.mpich -n 2 "$ph5" two.h5 3
	all_same
	"$ph5" --check "$BACKING/two.h5" 3
}

@test "fio verifies what it wrote" {
	needs_program fio
	mount_cistern
	local engine
	for engine in psync mmap; do
		(cd "$MNT" && fio --name="v-$engine" --ioengine="$engine" --rw=randwrite --bs=4k --size=8m --verify=crc32c \
			--verify_fatal=1 --numjobs=2 --group_reporting --output="$WORK/fio" 3>&-) || { cat "$WORK/fio"; return 1; }
	done
	cp -r "$MNT/." "$DIRECT"
	all_same
}

@test "cp -a, tar and find" {
	mkdir -p "$WORK/tree/a/b"
	random_file "$WORK/tree/a/one" 300000 5
	random_file "$WORK/tree/a/b/two" 70000 6
	ln -s a/one "$WORK/tree/link"
	ln "$WORK/tree/a/one" "$WORK/tree/a/hard"
	truncate -s 5M "$WORK/tree/sparse"
	chmod 640 "$WORK/tree/a/one"
	touch -d '2001-02-03 04:05:06.789' "$WORK/tree/a/b/two" "$WORK/tree/a"
	mount_cistern
	cp -a "$WORK/tree" "$MNT/copy"
	tar -C "$WORK" -cf "$MNT/t.tar" tree
	mkdir "$MNT/out"
	tar -C "$MNT/out" -xpf "$MNT/t.tar"
	same_trees "$WORK/tree" "$MNT/copy" times
	umount_wait
	same_trees "$WORK/tree" "$BACKING/copy" times
	same_trees "$WORK/tree" "$BACKING/out/tree"
	tar -C "$WORK" -df "$BACKING/t.tar"
}

@test "git: init, commits, gc, fsck" {
	needs_program git
	export GIT_CONFIG_GLOBAL=/dev/null GIT_CONFIG_NOSYSTEM=1
	mount_cistern
	# shellcheck disable=SC2016
	both bash -ec 'git init -q r; cd r; git config user.name N; git config user.email e@x; export GIT_AUTHOR_DATE="1000000000 +0000" GIT_COMMITTER_DATE="1000000000 +0000"
		for i in 1 2 3; do seq $i 2000 >f$i; git add .; git commit -q -m $i; done; git gc -q; git fsck --strict; git rev-parse HEAD >../head'
	umount_wait
	git -c safe.directory='*' -C "$BACKING/r" fsck --strict --full
	git -c safe.directory='*' -C "$BACKING/r" status --porcelain
	is "$(git -c safe.directory='*' -C "$BACKING/r" status --porcelain)" ""
	cmp "$BACKING/head" "$DIRECT/head"
}

@test "sqlite3, with its locks and journal" {
	needs_program sqlite3
	mount_cistern
	# shellcheck disable=SC2016
	both bash -ec 'sqlite3 db "create table t(a integer primary key, b text)"
		add() { for i in $(seq 10); do echo "pragma busy_timeout=300000; insert into t(b) values(hex(zeroblob(500)));"; done | sqlite3 db >/dev/null; }
		add & add & add & wait; test "$(sqlite3 db "pragma integrity_check; select count(*) from t" | tr "\n" " ")" = "ok 30 "'
	umount_wait
	is "$(sqlite3 "$BACKING/db" 'pragma integrity_check; select count(*) from t' | tr '\n' ' ')" "ok 30 "
}

@test "a program built in the mount" {
	needs_program make gcc
	mount_cistern
	# shellcheck disable=SC2016
	both bash -ec 'printf "int f(void);\nint main(void) { return f(); }\n" >m.c; echo "int f(void) { return 0; }" >f.c
		gcc -c m.c f.c; ar rcD lib.a f.o; gcc -Wl,--build-id=none -o m m.o lib.a; ./m'
	all_same
}
