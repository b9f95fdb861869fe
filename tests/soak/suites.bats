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

@test "pjdfstest: each call on a random node, with the names of regular files, directories and symbolic links" {
	[ -n "${PJDFSTEST:-}" ] || skip "PJDFSTEST is not told"
	needs_program shuf
	start_job 2
	cp -r "$PJDFSTEST" "$WORK/pjd"
	# Of what is refused (docs/posix.md) they say nothing new.
	grep -rlE 'for type' "$WORK/pjd/tests" | xargs sed -i -E '/for type/s/ (fifo|block|char|socket)\b//g'
	sed -i 's/fs=.df -PT.*/fs=EXT4/' "$WORK/pjd/tests/conf" # it leaves things out by the type
	grep -rlE --include='*.t' '\b(mkfifo|mknod|bind|fifo|socket|block)\b' "$WORK/pjd/tests" | xargs rm
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
