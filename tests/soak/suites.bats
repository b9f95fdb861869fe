#!/usr/bin/env bats
# SPDX-License-Identifier: GPL-3.0-or-later
#
# What others test parallel I/O and file systems with, on two nodes in turn and in a plain directory: it must end alike, and leave the same bytes.
# None of it comes ready to be run, so the folders with its sources are told, and what is not told is skipped:
#
#   ROMIO    of ROMIO's tests, in MPICH's source: src/mpi/romio/test
#   PNETCDF  of PnetCDF's source, of the version that is installed
#   HDF5     testpar of an HDF5 that was built (configure --enable-parallel CC=mpicc.mpich; make; make -C testpar check TESTS=)
#   IOR      with the programs ior and mdtest, built for MPICH
#   PJDFSTEST of pjdfstest, built
#   LTP      of the Linux Test Project, configured, with lib, libs and testcases/kernel/syscalls built; on one node
#   XFSTESTS of xfstests, built; on one node; XFSTESTS_WHICH: which tests, default -g quick
#
# Run by make suites ROMIO=DIR ...

load "${top_srcdir:?}/tests/lib/mount.bash"
load "$top_srcdir/tests/lib/job.bash"

setup() {
	job_setup
	needs_root "mounts of their own for ranks"
	mkdir "$WORK/here"
	cat >"$WORK/rank" <<-'END'
		#!/bin/bash
		# rank WORK NODES PROGRAM ARG...: in $WORK/here, which is the plain directory if there are no nodes.
		work=$1 nodes=$2 rank=${PMI_RANK:-$OMPI_COMM_WORLD_RANK}
		shift 2
		[ "$nodes" -eq 0 ] && from=$work/direct || from=$work/m$((rank % nodes))
		exec unshare -m bash -c 'mount --bind "$1" "$2" && cd "$2" && shift 2 && exec "$@"' - "$from" "$work/here" "$@"
	END
	chmod 755 "$WORK/rank"
}

# same MPI RANKS PROGRAM ARG...
same() {
	local nodes status=()
	for nodes in 0 2; do
		status[nodes]=0
		run_ranks "$1" -n "$2" "$WORK/rank" "$WORK" $nodes "${@:3}" >"$WORK/said" 2>&1 || status[nodes]=$?
	done
	echo "$1 ${3##*/}: status ${status[0]} in the plain directory, ${status[2]} on the nodes"
	[ "${status[0]}" -eq "${status[2]}" ] || { tail -n 20 "$WORK/said"; failed+=("$1 ${3##*/}"); }
}

# ends FILE...: those have other bytes each time, also in a plain directory.
ends() {
	local file
	is "${failed[*]}" ""
	for file in "$@"; do cp "$WORK/m0/$file" "$DIRECT/$file"; done
	arrives
}

# Gigabytes.
is_large() {
	[[ $1 == large_* || $1 == big_* || $1 == coll_perf || $1 == last_large_var ]]
}

@test "ROMIO's tests, of both MPIs" {
	local mpi program random=()
	[ -n "${ROMIO:-}" ] || skip "ROMIO is not told"
	start_job 2
	for mpi in mpich openmpi; do
		mkdir "$WORK/$mpi"
		for program in "$ROMIO"/*.c; do
			program=$(basename "$program" .c)
			is_large "$program" && continue
			mpicc.$mpi -O1 -w -o "$WORK/$mpi/$program" "$ROMIO/$program.c" 2>/dev/null || continue
			same $mpi "$([[ $program == *noncontig* || $program == types_with_zeros ]] && echo 2 || echo 4)" \
				"$WORK/$mpi/$program" -fname "$WORK/here/$mpi.$program"
		done
		random+=("$mpi.shared_fp")
	done
	ends "${random[@]}"
}

@test "PnetCDF's tests" {
	local source program
	[ -n "${PNETCDF:-}" ] || skip "PNETCDF is not told"
	start_job 2
	mkdir "$WORK/tests"
	: >"$WORK/tests/config.h"
	for source in "$PNETCDF"/test/{testcases,nonblocking,header,cdf_format}/*.{c,m4}; do
		[ -e "$source" ] || continue
		program=$(basename "${source%.*}")
		is_large "$program" && continue
		if [[ $source == *.m4 ]]; then
			m4 -I"$PNETCDF/m4" "$source" >"$WORK/tests/$program.c" || continue
			source=$WORK/tests/$program.c
		fi
		mpicc.openmpi -O1 -w -I"$WORK/tests" -I"$PNETCDF/test/common" -I"$PNETCDF/src/include" -o "$WORK/tests/$program" "$source" \
			"$PNETCDF/test/common/testutils.c" -lpnetcdf -lm 2>/dev/null || { echo "cannot build $program"; continue; }
		same openmpi 4 "$WORK/tests/$program" "$WORK/here/$program.nc"
	done
	ends check_type.nc # each rank writes what happens to be on its stack
}

@test "HDF5's parallel tests" {
	local program
	[ -n "${HDF5:-}" ] || skip "HDF5 is not told"
	start_job 2
	export HDF5_PARAPREFIX=$WORK/here HDF5TestExpress=${HDF5TestExpress:-2}
	for program in t_mpi testphdf5 t_filters_parallel t_pread t_init_term t_shapesame; do
		same mpich 4 "$HDF5/$program"
	done
	ends
}

@test "IOR: segmented, strided and each rank its file, by POSIX and MPI-IO, written, verified and read by other ranks; mdtest" {
	local api sizes each
	[ -n "${IOR:-}" ] || skip "IOR is not told"
	start_job 2
	for api in POSIX MPIIO "MPIIO -c"; do
		for sizes in "-t 47008 -b 470080 -s 4" "-t 64k -b 1m -s 4" "-t 47008 -b 47008 -s 40"; do
			for each in "" -F; do
				[ "$api $each" = "MPIIO -c -F" ] && continue
				# shellcheck disable=SC2086 # several words
				same mpich 4 "$IOR/ior" -a $api $each $sizes -w -r -W -R -C -e -k -G 77 -o "$WORK/here/$(tr -d ' ' <<<"$api$each$sizes")"
			done
		done
	done
	same mpich 4 "$IOR/mdtest" -n 40 -d "$WORK/here/md" -z 1 -b 2 -w 3901 -e 3901
	same mpich 4 "$IOR/mdtest" -n 40 -d "$WORK/here/md" -u -N 1 -w 3901 -e 3901
	ends
}

# pjd FOLDER: what those tests say there, in order.
pjd() {
	(cd "$1" && find "$WORK/pjd/tests" -name '*.t' | sort | while read -r file; do
		echo "${file#"$WORK"/pjd/}"
		bash "$file" 2>&1
	done)
}

@test "pjdfstest: each call on a random node" {
	[ -n "${PJDFSTEST:-}" ] || skip "PJDFSTEST is not told"
	needs_program shuf
	start_job 2
	cp -r "$PJDFSTEST" "$WORK/pjd"
	sed -i 's/fs=.df -PT.*/fs=EXT4/' "$WORK/pjd/tests/conf" # it leaves things out by the type
	mv "$WORK/pjd/pjdfstest" "$WORK/pjd/program"
	cat >"$WORK/pjd/pjdfstest" <<-'END'
		#!/bin/bash
		[[ $PWD != */m0* ]] || cd "${PWD/\/m0//m$(shuf -i 0-1 -n 1)}" || exit
		stat -- */ */*/ >/dev/null 2>&1 # a kernel asks for no owner before it checks it (docs/posix.md)
		exec "${0%/*}/program" "$@"
	END
	chmod 755 "$WORK/pjd/pjdfstest"
	mkdir "$DIRECT/pjd" "$WORK/m0/pjd"
	pjd "$DIRECT/pjd" >"$WORK/pjd.direct"
	pjd "$WORK/m0/pjd" >"$WORK/pjd.job"
	# What POSIX leaves open (TODO) may end otherwise; and access times of links, which are not kept up, as they should.
	sed -i 's/pjdfstest_[0-9a-f]*/NAME/g' "$WORK"/pjd.{direct,job}
	is "$(wc -l <"$WORK/pjd.job")" "$(wc -l <"$WORK/pjd.direct")"
	diff -u "$WORK/pjd.direct" "$WORK/pjd.job" >"$WORK/differs" || true
	refute grep -v '# TODO' <(grep '^+not ok' "$WORK/differs")
}

# ltp_in FOLDER: each test program of LTP that works on files and needs no device of its own, and how it ends there: passed, or what failed.
ltp_in() {
	local program source status calls=$LTP/testcases/kernel/syscalls
	export LTPROOT=$LTP LTP_TIMEOUT_MUL=2 TMPDIR=$1 KCONFIG_SKIP_CHECK=1 LTP_COLORIZE_OUTPUT=n
	for call in $ltp_calls; do
		for source in "$calls/$call"/*[0-9].c "$calls/$call"/*/*[0-9].c; do
			program=${source%.c}
			[ -x "$program" ] && ! grep -qE 'needs_device|mount_device|all_filesystems|needs_rofs|format_device|mntpoint' "$source" || continue
			status=0
			(cd "$1" && PATH=${program%/*}:$PATH timeout -k 5 120 "$program") >"$WORK/ltp.said" 2>&1 </dev/null || status=$?
			echo "$call/${program##*/} $((status & ~32)) $(grep -E 'T(FAIL|BROK)' "$WORK/ltp.said" | sed -E 's/^[^:]*:[0-9]+: *//' | sort -u | cut -c 1-160 | tr '\n' ';')"
		done
	done
}

ltp_calls="access bind chdir chmod chown copy_file_range creat execve faccessat faccessat2 fadvise fallocate fchdir fchmod fchmodat fchmodat2 fchown
	fchownat fcntl fdatasync fgetxattr flistxattr flock fpathconf fremovexattr fsetxattr fstat fstatat fstatfs fsync ftruncate futimesat getcwd
	getdents getxattr inotify lchown lgetxattr link linkat listxattr llistxattr llseek lremovexattr lseek lstat mkdir mkdirat mknod mknodat mmap
	mremap msync munmap name_to_handle_at nftw open open_by_handle_at openat openat2 pathconf pread preadv preadv2 pwrite pwritev pwritev2 read
	readahead readdir readlink readlinkat readv realpath removexattr rename renameat renameat2 rmdir sendfile setxattr splice stat statfs statvfs
	statx symlink symlinkat sync sync_file_range tee truncate umask unlink unlinkat utime utimensat utimes vmsplice write writev"

@test "LTP: the calls that work on files end in a mount as in a plain directory" {
	[ -n "${LTP:-}" ] || skip "LTP is not told"
	mount_cistern -o drain=idle,idle_interval=200ms
	chmod 1777 "$MNT" "$DIRECT"
	ltp_in "$DIRECT" >"$WORK/ltp.direct"
	ltp_in "$MNT" >"$WORK/ltp.mount"
	sed -i "s#$MNT#DIR#g; s#$DIRECT#DIR#g; s#/LTP_[A-Za-z0-9]*#/LTP#g" "$WORK"/ltp.{direct,mount}
	echo "$(wc -l <"$WORK/ltp.mount") programs, $(awk '$2 == 0' "$WORK/ltp.mount" | wc -l) pass in the mount, $(awk '$2 == 0' "$WORK/ltp.direct" | wc -l) in the plain directory"
	[ "$(wc -l <"$WORK/ltp.mount")" -gt 100 ]
	# What the mount refuses, each with its row in docs/posix.md.
	join -j 1 <(sort "$WORK/ltp.direct") <(sort "$WORK/ltp.mount") -o 1.1,1.2,2.2 | awk '$2 == 0 && $3 != 0 { print $1 }' >"$WORK/ltp.differs"
	grep -Ff "$WORK/ltp.differs" "$WORK/ltp.mount" || true
	is "$(cat "$WORK/ltp.differs")" ""
	umount_wait
}

# xfs_check FSTYP DEVICE MOUNT-OPTIONS: the tests of xfstests that a file system without a block device can run; a line each: name and verdict.
xfs_check() {
	(
		cd "$WORK/xfstests" || exit
		[ "$1" != fuse ] || export FUSE_SUBTYP=.cistern
		export FSTYP=$1 TEST_DEV=$2 TEST_DIR=$WORK/test TEST_FS_MOUNT_OPTS=$3 RESULT_BASE=$WORK/xfs-$1 HOST_OPTIONS=$WORK/none
		unset SCRATCH_DEV SCRATCH_MNT
		: >"$WORK/none"
		mkdir -p "$TEST_DIR" "$RESULT_BASE"
		timeout 7200 ./check -r ${XFSTESTS_WHICH:--g quick} </dev/null
	) >"$WORK/xfs-$1.said" 2>&1 || true
	umount "$WORK/test" 2>/dev/null || true
	awk '$1 ~ /^generic\/[0-9]+$/ { print $1, /not run/ ? "notrun" : /mismatch|failed|expunged|_check/ ? "failed" : "passed" }' "$WORK/xfs-$1.said" | sort -u
}

@test "xfstests: what a file system without a block device can run, passes where it passes on ext4" {
	[ -n "${XFSTESTS:-}" ] || skip "XFSTESTS is not told"
	needs_root "users, mounts"
	id fsgqa >/dev/null 2>&1 || { useradd -m fsgqa && undo "userdel -r fsgqa"; }
	id fsgqa2 >/dev/null 2>&1 || { useradd fsgqa2 && undo "userdel fsgqa2"; }
	ln -s "$CISTERN" "/sbin/mount.fuse.cistern" && undo "rm /sbin/mount.fuse.cistern"
	cp -r "$XFSTESTS" "$WORK/xfstests"
	sed -i 's#s/fuse.glusterfs/glusterfs/#s/fuse.cistern/fuse/#' "$WORK/xfstests/common/rc" # it compares types of mounts
	make_loop plain 4G
	umount "$WORK/plain"
	losetup -f "$WORK/plain.img" && undo "losetup -d $(losetup -j "$WORK/plain.img" | cut -d: -f1)"
	xfs_check ext4 "$(losetup -j "$WORK/plain.img" | cut -d: -f1)" "" >"$WORK/xfs.ext4"
	xfs_check fuse "$BACKING" "-ostore=$STORE,allow_other,drain=idle,idle_interval=1s" >"$WORK/xfs.cistern"
	echo "$(grep -c passed "$WORK/xfs.cistern") pass, $(grep -c notrun "$WORK/xfs.cistern") cannot be run; on ext4 $(grep -c passed "$WORK/xfs.ext4") pass"
	[ "$(grep -c passed "$WORK/xfs.cistern")" -gt 0 ]
	# generic/020: a value of 65,536 bytes in an xattr; docs/posix.md.
	comm -12 <(grep passed "$WORK/xfs.ext4" | cut -d' ' -f1 | sort) <(grep failed "$WORK/xfs.cistern" | cut -d' ' -f1 | grep -v generic/020 | sort) >"$WORK/xfs.differs"
	is "$(cat "$WORK/xfs.differs")" ""
	"$CISTERN" wait "$STORE"
}
