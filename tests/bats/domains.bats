#!/usr/bin/env bats
# SPDX-License-Identifier: GPL-3.0-or-later
#
# Which process writes what of a file of many nodes when it is drained (docs/design/many-nodes.md): each piece of 16 MiB is written by its home
# alone, once, from front to back.

load "${top_srcdir:?}/tests/lib/mount.bash"
load "$top_srcdir/tests/lib/job.bash"

setup() {
	job_setup
	needs_program strace
	strace -qq -o /dev/null true || skip "strace may not trace here"
}

# Programs that drain, each under strace: what node K's write is in $WORK/writesK.
trace_drains() {
	local libexec=${CISTERN_LIBEXEC%%:*}
	mkdir "$WORK/libexec"
	ln -s "$libexec"/cistern-* "$WORK/libexec"
	rm "$WORK/libexec/cistern-agent"
	cat >"$WORK/libexec/cistern-agent" <<-END
		#!/bin/bash
		[[ "\$*" =~ $WORK/s([0-9]) ]]
		exec strace -qq -f -y -A -s 0 -e trace=write,pwrite64,writev,pwritev,pwritev2,copy_file_range,sendfile,splice \\
			-o "$WORK/writes\${BASH_REMATCH[1]}" "$libexec/cistern-agent" "\$@"
	END
	chmod +x "$WORK/libexec/cistern-agent"
	CISTERN_LIBEXEC=$WORK/libexec
}

# write_strided FILE BYTES: the nodes' 47,008-byte records in turn, as they are in $WORK/ref.
write_strided() {
	local k pids=() pid
	for ((k = 0; k < JOB_NODES; k++)); do
		python3 - "$WORK/ref" "$WORK/m$k/$1" "$k" "$JOB_NODES" 3>&- <<-'END' &
			import os, sys
			data, k, nodes = open(sys.argv[1], "rb").read(), int(sys.argv[3]), int(sys.argv[4])
			fd = os.open(sys.argv[2], os.O_WRONLY | os.O_CREAT, 0o644)
			for at in range(47008 * k, len(data), 47008 * nodes):
			    os.pwrite(fd, data[at:at + 47008], at)
			os.close(fd)
		END
		pids+=($!)
	done
	for pid in "${pids[@]}"; do wait "$pid" || return; done
}

# Each byte of the file was written once, by the home of its domain; and each domain in order, by few writes.
written_by_homes() {
	python3 - "$WORK" "$(stat -c %i "$WORK/m0/$1")" "$(stat -c %s "$WORK/ref")" "$JOB_NODES" <<'END'
import re, sys
from place import first_domain, inode_of
work, ino, size, nodes = sys.argv[1], inode_of(int(sys.argv[2])), int(sys.argv[3]), int(sys.argv[4])
DOMAIN = 16 << 20
CALL = re.compile(r"(\w+)\(\d+<[^>]*/\.cistern-shared-[^>]*>, .*?, (\d+), (\d+)(?:\) += (\d+)| <unfinished)")

def home(domain):
    return (first_domain(ino, nodes) + domain) % nodes

writes = []
for k in range(nodes):
    for line in open(f"{work}/writes{k}"):
        if "/.cistern-shared-" not in line:
            continue
        call, length, off, done = CALL.search(line).groups()
        assert call == "pwrite64" and done in (None, length), line
        writes.append((int(off), int(length), k))
for off, length, k in writes:
    domain = off // DOMAIN
    assert (off + length - 1) // DOMAIN == domain, f"node {k} writes {length} bytes at {off}, over a border"
    assert home(domain) == k, f"node {k} writes {length} bytes at {off}, of domain {domain}, which is node {home(domain)}'s"
end = 0
for off, length, k in sorted(writes):
    assert off == end, f"{off} follows {end}: written twice, or not at all"
    end = off + length
assert end == size, end
for domain in range(-(-size // DOMAIN)):
    its = [w for w in writes if w[0] // DOMAIN == domain]
    print("domain", domain, "by node", home(domain), "writes", [w[1] for w in its])
    assert its == sorted(its), its
    assert len(its) <= 16, its
END
}

drained_by_homes() {
	trace_drains
	random_file "$WORK/ref" $(((80 << 20) + 12345))
	start_job "$1" drain=unmount
	write_strided f
	"$CISTERN" flush --wait --timeout 5m --mount "$WORK/m0" 3>&-
	cmp "$WORK/ref" "$WORK/b/f"
	written_by_homes f
	stop_job
}

@test "a file of two nodes is drained in pieces of 16 MiB, each written once, in order, by its home alone" {
	drained_by_homes 2
}

@test "so is one of four nodes" {
	drained_by_homes 4
}
