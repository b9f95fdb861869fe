#!/usr/bin/env bats
# SPDX-License-Identifier: GPL-3.0-or-later
#
# A job under Slurm, as docs/admin.md has it: a prologue mounts on each node, srun starts the agents and the application, the job's end unmounts,
# an epilogue looks whether everything is out. One controller and two slurmd on this machine, without munge, so node K has its store $WORK/sK and
# its mount $WORK/mK.

load "${top_srcdir:?}/tests/lib/mount.bash"
load "$top_srcdir/tests/lib/job.bash"

setup() {
	job_setup
	needs_root "slurmd"
	needs_program srun sbatch slurmctld slurmd
	start_slurm
}

# Ports nobody listens at.
free_port() {
	python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'
}

# hook NAME: a script for slurmd, which runs it without much of an environment; $K is the node's number.
hook() {
	{
		cat <<-END
			#!/bin/bash
			exec >>"$WORK/$1.log" 2>&1
			export PATH=/usr/sbin:/usr/bin:/sbin:/bin CISTERN_LIBEXEC=${CISTERN_LIBEXEC@Q} ${ASAN_OPTIONS:+ASAN_OPTIONS=${ASAN_OPTIONS@Q}}
			K=\${SLURMD_NODENAME#n}
		END
		cat
	} >"$WORK/$1"
	chmod 755 "$WORK/$1"
}

start_slurm() {
	local host k
	host=$(hostname)
	mkdir -p "$WORK/b" "$WORK/m0" "$WORK/m1" "$WORK/slurm"
	printf '%s\n' "$WORK/s0 $WORK/m0" "$WORK/s1 $WORK/m1" >>"$WORK/mounts"
	hook prologue <<-END
		$CISTERN mount $WORK/b $WORK/m\$K --store $WORK/s\$K -o nodes=\$SLURM_JOB_NUM_NODES,job=\$SLURM_JOB_ID
	END
	hook epilogue <<-END
		mountpoint -q $WORK/m\$K && $CISTERN umount $WORK/m\$K
		$CISTERN status --check $WORK/s\$K >/dev/null
		echo "node \$K check=\$?"
	END
	cat >"$WORK/slurm.conf" <<-END
		ClusterName=cistern
		SlurmctldHost=$host(127.0.0.1)
		SlurmUser=root
		AuthType=auth/none
		CredType=cred/none
		SlurmctldPort=$(free_port)
		StateSaveLocation=$WORK/slurm/state
		SlurmdSpoolDir=$WORK/slurm/%n
		SlurmctldPidFile=$WORK/slurm/ctld.pid
		SlurmdPidFile=$WORK/slurm/%n.pid
		SlurmctldLogFile=$WORK/slurm/ctld.log
		SlurmdLogFile=$WORK/slurm/%n.log
		SlurmdParameters=config_overrides
		ProctrackType=proctrack/linuxproc
		TaskPlugin=task/none
		JobAcctGatherType=jobacct_gather/none
		SelectType=select/cons_tres
		SelectTypeParameters=CR_CPU
		ReturnToService=2
		Prolog=$WORK/prologue
		Epilog=$WORK/epilogue
		PrologFlags=Alloc
		NodeName=n0 NodeHostname=$host NodeAddr=127.0.0.1 Port=$(free_port) CPUs=4
		NodeName=n1 NodeHostname=$host NodeAddr=127.0.0.1 Port=$(free_port) CPUs=4
		PartitionName=all Nodes=n0,n1 Default=YES State=UP
	END
	export SLURM_CONF=$WORK/slurm.conf
	undo "for f in $WORK/slurm/*.pid; do kill -KILL \$(cat \$f) 2>/dev/null; done; true"
	slurmctld -c 3>&-
	for k in 0 1; do slurmd -N "n$k" 3>&-; done
	wait_until 60 nodes_idle || skip "Slurm does not come up here: $(sinfo -Nh -o '%N %T %E' 2>&1)"
}

nodes_idle() {
	[ "$(sinfo -Nh -t idle -o %N 2>/dev/null | wc -l)" -eq 2 ]
}

# run_job: the script on standard input is the job's, between the start of the agents and the unmounting.
run_job() {
	{
		cat <<-'END'
			#!/bin/bash
			each=(srun --overlap --mpi=pmi2 --ntasks-per-node=1)
			ASAN_OPTIONS=${ASAN_OPTIONS:+$ASAN_OPTIONS:}detect_leaks=0 "${each[@]}" bash -c '"$CISTERN" agent --store "$WORK/s${SLURMD_NODENAME#n}"' &
		END
		cat
		cat <<-'END'
			"${each[@]}" bash -c '"$CISTERN" umount --wait --timeout 5m "$WORK/m${SLURMD_NODENAME#n}"' || exit 1
			wait
		END
	} >"$WORK/job.sh"
	export WORK CISTERN CISTERN_LIBEXEC
	timeout 300 sbatch --wait --quiet -N2 --ntasks-per-node=1 -o "$WORK/job.log" "$WORK/job.sh" 3>&- || { cat "$WORK/job.log" "$WORK/prologue.log"; return 1; }
	cat "$WORK/job.log"
	wait_until 60 nodes_idle
}

# 64 blocks of 4000 bytes, every other one from each node, by processes that srun starts.
@test "under Slurm: prologue, agents and application by srun, epilogue" {
	run_job <<-'END'
		"${each[@]}" bash -c 'k=$SLURM_PROCID; cd "$WORK/m${SLURMD_NODENAME#n}"
			for ((i = k; i < 64; i += 2)); do printf "%04000d" $i | dd of=shared bs=4000 seek=$i conv=notrunc status=none; done' || exit 2
		"${each[@]}" bash -c 'sha256sum <"$WORK/m${SLURMD_NODENAME#n}/shared"' || exit 3
	END
	for i in {0..63}; do printf '%04000d' "$i"; done >"$DIRECT/shared"
	is "$(grep -c "$(sha256sum <"$DIRECT/shared")" "$WORK/job.log")" 2
	same_trees "$WORK/b" "$DIRECT"
	is "$(sort "$WORK/epilogue.log" | tr '\n' ' ')" "node 0 check=0 node 1 check=0 "
}
