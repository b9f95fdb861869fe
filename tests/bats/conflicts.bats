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
	[[ $output == *"OFFSET"*"d/f"*"2 overlaps in 1 file"* ]]
	run "$CISTERN" inspect --conflicts "$WORK/s0"
	[[ $output == *"1 of 2 stores"* ]]
	run "$CISTERN" inspect --conflicts "$WORK/s0" "$WORK/s0"
	[ "$status" -ne 0 ]
	[[ $output == *"both of node 0 (host $(hostname))"* ]]
	# Who has seen the other's bytes has no conflict with them.
	echo one >"$WORK/m0/g"
	echo two >"$WORK/m1/g"
	run overlaps "$WORK/s0" "$WORK/s1"
	[[ $output != *" g "* && ${#lines[@]} -eq 2 ]]
	stop_job
}

# Each write comes when the one before has been closed or synced, by a file opened for it, or open all the while, at the home and elsewhere.
@test "what was written one after the other is no overlap" {
	needs_program mpicc.mpich
	start_job 2
	python3 - "$WORK/m0" "$WORK/m1" <<-'END'
		import os, sys
		def write(path, byte):
		    fd = os.open(path, os.O_WRONLY | os.O_CREAT)
		    os.pwrite(fd, byte * 3000, 1000)
		    os.close(fd)
		for order in (0, 1), (1, 0):
		    a, b = (sys.argv[i + 1] + "/anew%d" % order[0] for i in order[::-1])
		    for byte in (b"a", b"b", b"c"):
		        write(a, byte)
		        write(b, byte)
		    a, b = (os.open(sys.argv[i + 1] + "/open%d" % order[0], os.O_RDWR | os.O_CREAT) for i in order[::-1])
		    for byte in (b"a", b"b", b"c"):
		        for fd in a, b:
		            os.pwrite(fd, byte * 3000, 1000)
		            os.fsync(fd)
	END
	run overlaps "$WORK/s0" "$WORK/s1"
	is "$output" ""
	# Spans that ROMIO reads and writes back, each under a lock: two rounds of them, of which the first makes the file longer.
	mpicc.mpich -O1 -o "$WORK/nodes-io" "$top_srcdir/tests/mpi/nodes-io.c"
	ranks mpich "$WORK/nodes-io" sieved @/sieved
	run overlaps "$WORK/s0" "$WORK/s1"
	is "$output" ""
	stop_job
}

# in_turn A B FILE...: A's node writes each, then B's, over a part of it.
in_turn() {
	python3 - "$@" <<-'END'
		import os, sys
		for name in sys.argv[3:]:
		    for off, mount in (0, sys.argv[1]), (1000, sys.argv[2]):
		        fd = os.open(mount + "/" + name, os.O_WRONLY | os.O_CREAT)
		        os.pwrite(fd, b"x" * 5000, off)
		        os.close(fd)
	END
}

@test "what was written one after the other is no overlap when a daemon was restarted since, and all is told again" {
	local k
	start_job 2
	in_turn "$WORK/m0" "$WORK/m1" a b c d
	in_turn "$WORK/m1" "$WORK/m0" e f g h
	for k in 0 1; do
		kill_daemon "$WORK/m$k"
		release_mount "$WORK/m$k"
		mount_node "$k"
		in_turn "$WORK/m0" "$WORK/m1" a c e g
		in_turn "$WORK/m1" "$WORK/m0" b d f h
	done
	run overlaps "$WORK/s0" "$WORK/s1"
	is "$output" ""
	stop_job
}

# in_manifest MANIFEST FILTER [ARG...]: jq's filter holds; PATH(p) is the entry of p.
in_manifest() {
	jq -e "${@:3}" "def PATH(p): .files[] | select(.path == p); $2" "$1" >"$WORK/jq.out" || { jq -c . "$1"; cat "$WORK/jq.out"; return 1; }
}

@test "a drain of the job leaves one manifest, of all nodes' files, with checksums, and a copy where it is wanted" {
	needs_program jq
	mkdir "$WORK/b"
	for f in old gone moved; do random_file "$WORK/b/$f" 3000000; done
	start_job 2 "manifest=$WORK/list.json,verify=read"
	random_file "$WORK/m0/a" 100000 1
	random_file "$WORK/m1/b" 50000 2
	# Of both nodes, in two domains; and one that was there before.
	random_file "$WORK/ref" 300000 3
	for k in 0 1; do
		dd if="$WORK/ref" of="$WORK/m$k/both" bs=100000 skip=$k seek=$((k * 16700000)) oflag=seek_bytes count=1 conv=notrunc status=none
		dd if="$WORK/ref" of="$WORK/m$k/old" bs=100000 skip=$k seek=$((k * 2000000)) oflag=seek_bytes count=1 conv=notrunc status=none
	done
	rm "$WORK/m1/gone"
	mv "$WORK/m1/moved" "$WORK/m1/away"
	"$CISTERN" flush --wait --mount "$WORK/m1"
	cmp "$WORK/list.json" "$WORK/s0/manifest.json"
	[ ! -e "$WORK/s1/manifest.json" ] && [ ! -e "$WORK/list.json.node1" ] && [ ! -s "$WORK/s0/manifest.part" ] && [ ! -s "$WORK/s1/manifest.part" ]
	in_manifest "$WORK/list.json" '.result == "complete" and .node == 0 and .num_nodes == 2 and (.nodes | length) == 2 and .troubles == []'
	in_manifest "$WORK/list.json" '([.files[].path] | sort) == ["a", "b", "both", "old"] and .removed[0].path == "gone"
		and (.removed | length) == 1 and .moved[0].from == "moved" and .moved[0].path == "away"'
	in_manifest "$WORK/list.json" '.totals.files == 4 and .totals.bytes == 550000 and .totals.removed == 1 and .totals.failed == 0'
	for f in a b both; do
		in_manifest "$WORK/list.json" 'PATH($f) | .state == "verified" and .checksum == {algorithm: "crc32c", value: $c, of: "file"}' \
			--arg f $f --arg c "$(crc32c "$WORK/b/$f")"
	done
	in_manifest "$WORK/list.json" 'PATH("both") | .size == 16800000 and .bytes_written == 200000 and .conflicts == []'
	# What was written of an existing one, in its place.
	head -c 100000 "$WORK/ref" >"$WORK/written"
	dd if="$WORK/ref" of="$WORK/written" bs=100000 skip=1 count=1 seek=2000000 oflag=seek_bytes conv=notrunc status=none
	truncate -s 3000000 "$WORK/written"
	in_manifest "$WORK/list.json" 'PATH("old") | .checksum.value == $c and .checksum.of == "written_ranges_in_place"' \
		--arg c "$(crc32c "$WORK/written")"

	# The next session counts for itself; the list is of all.
	random_file "$WORK/m1/c" 700 4
	"$CISTERN" flush --wait --mount "$WORK/m1"
	in_manifest "$WORK/list.json" '.totals.files == 1 and .totals.bytes == 700'
	stop_job
	in_manifest "$WORK/list.json" '([.files[].path] | sort) == ["a", "b", "both", "c", "old"]'
}

# change_payload FROM TO: of node 1's segment, as a device does that gives back other bytes.
change_payload() {
	local segment at
	segment=$(grep -lUa "$1" "$WORK"/s1/segment/*.seg)
	at=$(grep -obUa -m 1 "$1" "$segment" | head -n 1 | cut -d: -f1)
	printf %s "$2" | dd of="$segment" bs=1 seek="$at" conv=notrunc status=none
}

@test "overlaps, and what could not be drained, with the node's name, are in the manifest" {
	needs_program jq
	start_job 2 "manifest=$WORK/list.json,data=log"
	write_overlaps f
	echo "the bytes of here" >"$WORK/m1/here"
	change_payload "the bytes" "the_bytes"
	exits 3 "$CISTERN" flush --wait --mount "$WORK/m0"
	says "node 1 ("
	says "here: "
	is "$(status_of errors "$WORK/m0")" 0
	is "$(status_of errors "$WORK/m1")" 1
	in_manifest "$WORK/list.json" 'PATH("f") | [.conflicts[] | [.offset, .length, (.nodes | sort)]] == [[4096, 4096, [0, 1]], [20000000, 100, [0, 1]]]'
	in_manifest "$WORK/list.json" '.exit_status == 3 and .totals.failed == 1 and .totals.files == 1'
	in_manifest "$WORK/list.json" 'PATH("here") | .state == "failed" and (.node | test("node 1"))'
	in_manifest "$WORK/list.json" '.troubles | length == 1 and (.[0].node | test("node 1"))'
	change_payload "the_bytes" "the bytes"
	"$CISTERN" flush --wait --mount "$WORK/m0"
	is "$(status_of errors "$WORK/m1")" 0
	# Who drains what two nodes wrote without order is told so, once.
	write_overlaps g
	run "$CISTERN" flush --wait --mount "$WORK/m1"
	is "$status" 0
	says "1 file has bytes that nodes wrote without having seen each other"
	run "$CISTERN" flush --wait --mount "$WORK/m1"
	is "$output" ""
	stop_job
	in_manifest "$WORK/list.json" '.exit_status == 0 and .troubles == [] and (PATH("here") | .state == "drained" and .node == null)'
	in_manifest "$WORK/list.json" 'PATH("f").conflicts | length == 2'
}

@test "what failed on a node, and was deleted since, is not in the job's manifest for ever" {
	needs_program jq
	start_job 2 "manifest=$WORK/list.json,data=log"
	echo "the bytes of here" >"$WORK/m1/here"
	echo x >"$WORK/m0/drained"
	change_payload "the bytes" "the_bytes"
	exits 3 "$CISTERN" flush --wait --mount "$WORK/m0"
	in_manifest "$WORK/list.json" 'PATH("here") | .state == "failed"'
	rm "$WORK/m1/here"
	"$CISTERN" flush --wait "$WORK/m0/drained"
	in_manifest "$WORK/list.json" 'PATH("here") | .state == "failed"'
	"$CISTERN" flush --wait --mount "$WORK/m0"
	in_manifest "$WORK/list.json" '[.files[].path] == ["drained"]'
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
		wait_until 60 gone "$pid"
	done
	mkdir "$WORK/out"
	status=0
	"$CISTERN" recover --json "$WORK/s0" --to "$WORK/out" >"$WORK/said" || status=$?
	[ "$status" -eq 3 ]
	[ "$(python3 -c 'import json, sys; print(json.load(sys.stdin)["missing_bytes"])' <"$WORK/said")" = $((33554432 - 11)) ]
	[ "$(dd if="$WORK/out/f" bs=1 skip=20000000 count=10 status=none)" = 0123456789 ]
	# In place, too, the manifest lists what is missing, and what is there has its name.
	status=0
	"$CISTERN" recover --json "$WORK/s0" --to "$WORK/b" --manifest "$WORK/list.json" >"$WORK/said" || status=$?
	[ "$status" -eq 3 ]
	in_manifest "$WORK/list.json" 'PATH("f") | .state == "failed" and ([.missing[].length] | add) == 33554421' || return
	[ "$(dd if="$WORK/b/f" bs=1 skip=20000000 count=10 status=none)" = 0123456789 ]
}

@test "the stores of a dead job: one manifest, with their overlaps and the checksum of shared files" {
	needs_program jq
	start_job 2
	write_overlaps f
	# Ordered: no overlap, though putting the stores together meets both.
	echo one >"$WORK/m0/g"
	echo two >"$WORK/m1/g"
	for k in 0 1; do kill_daemon "$WORK/m$k"; done
	mkdir "$WORK/out"
	for to in "$WORK/out" "$WORK/b"; do
		"$CISTERN" recover "$WORK/s0" "$WORK/s1" --to "$to" --manifest "$WORK/list.json"
		in_manifest "$WORK/list.json" 'PATH("f") | [.conflicts[] | [.offset, .length, (.nodes | sort)]] == [[4096, 4096, [0, 1]], [20000000, 100, [0, 1]]]'
		in_manifest "$WORK/list.json" '(PATH("g").conflicts == []) and .num_nodes == 2 and .totals.files == 2'
		in_manifest "$WORK/list.json" 'PATH("f").checksum == {algorithm: "crc32c", value: $c, of: "file"}' --arg c "$(crc32c "$to/f")"
	done
}
