#!/usr/bin/env bats
# SPDX-License-Identifier: GPL-3.0-or-later
#
# A job's drain needs memory by what it may have at work (flush_buffer_size at most), not by how large a file is or in how many pieces it was written.

load ../lib/mount
load ../lib/job

setup() {
	job_setup
}

# Programs that drain, each under one that notes in $WORK/peaks how many KiB it has had at most.
measure_agents() {
	local libexec=${CISTERN_LIBEXEC%%:*}
	mkdir "$WORK/libexec"
	ln -s "$libexec"/cistern-* "$WORK/libexec"
	rm "$WORK/libexec/cistern-agent"
	cat >"$WORK/libexec/cistern-agent" <<-END
		#!/usr/bin/env python3
		import os, subprocess, sys
		p = subprocess.Popen(["$libexec/cistern-agent"] + sys.argv[1:], close_fds=False)
		status, usage = os.wait4(p.pid, 0)[1:]
		with open("$WORK/peaks", "a") as f:
		    f.write("%d\n" % usage.ru_maxrss)
		sys.exit(os.waitstatus_to_exitcode(status) % 256)
	END
	chmod +x "$WORK/libexec/cistern-agent"
	CISTERN_LIBEXEC=$WORK/libexec
}

# write_pieces NAME MIB: a file of that size, of pieces of 1 KiB, every second one by each node.
write_pieces() {
	local k pids=() pid
	for k in 0 1; do
		python3 - "$WORK/m$k/$1" "$k" "$2" 3>&- <<-'END' &
			import os, sys
			path, k, size = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]) << 20
			fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
			piece = bytes([97 + k]) * 1024
			for at in range(1024 * k, size, 2048):
			    os.pwrite(fd, piece, at)
			os.close(fd)
		END
		pids+=($!)
	done
	for pid in "${pids[@]}"; do wait "$pid" || return; done
}

# The file in the backing directory is what was written.
is_drained() {
	python3 - "$WORK/b/$1" "$2" <<-'END'
		import sys
		size = int(sys.argv[2]) << 20
		both = (b"a" * 1024 + b"b" * 1024) * 512
		with open(sys.argv[1], "rb") as f:
		    while piece := f.read(len(both)):
		        assert piece == both
		        size -= len(piece)
		assert size == 0
	END
}

# peak_of MIB AGENTS: the most KiB that any process has had that drained a file of that size; and what the lines AGENTS of their status say of the
# agents then, in $WORK/agents.
peak_of() {
	: >"$WORK/peaks"
	write_pieces "f$1" "$1" || return
	"$CISTERN" flush --wait --timeout 5m --mount "$WORK/m0" >&2 3>&- || return
	is_drained "f$1" "$1" || return
	for k in 0 1; do awk "/$2/ { kib += \$2 } END { print kib }" "/proc/$(cat "$WORK/agent$k.pid")/status"; done | sort -n | tail -n 1 >"$WORK/agents"
	sort -n "$WORK/peaks" | tail -n 1
}

# needs_no_more AGENTS MIB: a drain of four times as much as that.
needs_no_more() {
	local small large agents
	measure_agents
	start_job 2 flush_buffer_size=4M,drain=unmount
	small=$(peak_of "$2" "$1")
	agents=$(cat "$WORK/agents")
	large=$(peak_of $((4 * $2)) "$1")
	echo "draining: $small KiB, then $large KiB; agents: $agents KiB, then $(cat "$WORK/agents") KiB"
	if [ -z "${CISTERN_SANITIZED:-}" ]; then
		[ "$large" -lt $((small + 12288)) ]
		[ "$(cat "$WORK/agents")" -lt $((agents + 12288)) ]
	fi
	stop_job
}

@test "a drain of a file that two nodes wrote, of four times as many pieces and bytes, needs no more memory" {
	needs_no_more '^VmHWM' 24
}

# What an agent has mapped for others to get is the page cache's.
@test "nor does one that fetches as if from another host" {
	only_gets
	needs_no_more '^Rss(Anon|Shmem)' 12
}
