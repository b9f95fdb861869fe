#!/usr/bin/env bats
# SPDX-License-Identifier: GPL-3.0-or-later
#
# Overlaps that no node of a job could have ordered; what the nodes say of a drain.

load "${top_srcdir:?}/tests/lib/mount.bash"
load "$top_srcdir/tests/lib/job.bash"

setup() {
	cistern_setup
	needs_fuse
}

# overlaps STORE...: what inspect lists, a line each, as "path offset length nodes", the nodes in order.
overlaps() {
	"$CISTERN" inspect --conflicts --json "$@" | python3 -c 'import json, sys
for c in json.load(sys.stdin)["conflicts"]: print(c["path"], c["offset"], c["length"], *sorted((c["node"], c["other"])))'
}

# 20 MiB: two domains, which have two homes. Both have the file open before either writes, and nobody asks for the other's bytes.
write_overlaps() {
	truncate -s 20M "$WORK/m0/$1"
	python3 - "$WORK/m0/$1" "$WORK/m1/$1" <<-'END'
		import os, sys
		a, b = (os.open(path, os.O_RDWR) for path in sys.argv[1:])
		os.pwrite(a, b"a" * 8192, 0)
		os.pwrite(b, b"b" * 8192, 4096)
		os.pwrite(a, b"a" * 100, 20000000)
		os.pwrite(b, b"b" * 300, 19999900)
		os.close(a)
		os.close(b)
	END
}

@test "bytes that two nodes wrote without seeing each other are listed by inspect" {
	start_job 2
	mkdir "$WORK/m0/d"
	write_overlaps d/f
	[ "$(overlaps "$WORK/s0" "$WORK/m1")" = "d/f 4096 4096 0 1
d/f 20000000 100 0 1" ]
	run overlaps "$WORK/s0"
	[ "${#lines[@]}" -eq 1 ]
	run "$CISTERN" inspect --conflicts "$WORK/s1" "$WORK/s0"
	[ "$status" -eq 0 ]
	[[ $output == *"OFFSET"*"d/f"*"2 overlaps in 1 files"* ]]
	run "$CISTERN" inspect --conflicts "$WORK/s0"
	[[ $output == *"1 of 2 stores"* ]]
	run "$CISTERN" inspect --conflicts "$WORK/s0" "$WORK/s0"
	[ "$status" -ne 0 ]
	[[ $output == *"both of node 0"* ]]
	# Who has seen the other's bytes has no conflict with them.
	echo one >"$WORK/m0/g"
	echo two >"$WORK/m1/g"
	run overlaps "$WORK/s0" "$WORK/s1"
	[[ $output != *" g "* && ${#lines[@]} -eq 2 ]]
	stop_job
}

# paths MANIFEST: of the files in it.
paths() {
	python3 -c 'import json, sys; print(*sorted(f["path"] for f in json.load(open(sys.argv[1]))["files"]))' "$1"
}

@test "nodes that are given one place for the manifest write one each" {
	start_job 2 "manifest=$WORK/list.json"
	echo a >"$WORK/m0/a"
	echo b >"$WORK/m1/b"
	"$CISTERN" flush --wait --mount "$WORK/m1"
	[ "$(paths "$WORK/list.json") $(paths "$WORK/list.json.node1")" = "a b" ]
	stop_job
}

@test "of a store that is lost the others know what was in it, also in its own domains" {
	start_job 2
	truncate -s 48M "$WORK/m0/f"
	dd if=/dev/urandom of="$WORK/m1/f" bs=1M count=32 conv=notrunc,fsync status=none
	echo 0123456789 | dd of="$WORK/m0/f" bs=1 seek=20000000 conv=notrunc,fsync status=none
	for k in 0 1; do
		pid=$("$CISTERN" status --json "$WORK/s$k" | python3 -c 'import json, sys; print(json.load(sys.stdin)["pid"])')
		kill -KILL "$pid"
		wait_until 20 gone "$pid"
	done
	mkdir "$WORK/out"
	status=0
	"$CISTERN" recover --json "$WORK/s0" --to "$WORK/out" >"$WORK/said" || status=$?
	[ "$status" -eq 3 ]
	[ "$(python3 -c 'import json, sys; print(json.load(sys.stdin)["missing_bytes"])' <"$WORK/said")" = $((33554432 - 11)) ]
	[ "$(dd if="$WORK/out/f" bs=1 skip=20000000 count=10 status=none)" = 0123456789 ]
}
