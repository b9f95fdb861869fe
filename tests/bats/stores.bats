#!/usr/bin/env bats
# SPDX-License-Identifier: GPL-3.0-or-later
#
# Stores that earlier programs have left (tests/golden/stores): this one has to open, check and drain them to the bytes that they had.

load "${top_srcdir:?}/tests/lib/mount.bash"

setup() {
	cistern_setup
	needs_program xz
	golden=$top_srcdir/tests/golden/stores
	cd "$WORK" || return
}

# unpack STORE...
unpack() {
	local store
	for store; do tar -xJf "$golden/$store.tar.xz" || return; done
}

# drains_to SUMS STORE...: each is sound, and together they become files of these sums, in out. MISSING: what recover may say
# and fail with.
drains_to() {
	local store
	for store in "${@:2}"; do
		"$CISTERN" fsck "$store" >fsck.said || { cat fsck.said; return 1; }
		grep -q 'the store is sound' fsck.said || return
	done
	rm -rf out
	mkdir out
	"$CISTERN" recover --force "${@:2}" --to out >recover.said 2>&1 || grep -q "$MISSING" recover.said || { cat recover.said; return 1; }
	(cd out && sha256sum -c --quiet "$golden/$1")
}

@test "stores of one node: sound, listed, and drained to the bytes that they had" {
	local store
	unpack node-log node-private
	for store in node-log node-private; do
		is "$("$CISTERN" inspect --json "$store" | jq -r '[.files[].path] | sort | join(" ")')" \
			'. d d/hard d/hole d/link d/renamed log.bin old.txt small.txt'
		MISSING='^missing: 37 bytes' drains_to node.sums "$store"
		is "$(readlink out/d/link) $(stat -c '%h %i' out/small.txt)" "../log.bin 2 $(stat -c %i out/d/hard)"
		is "$(find out ! -type d | wc -l)" 7
		# Its backing file is not there: only what was written over it is known.
		is "$(tr '\0' _ <out/old.txt)" "$(printf '____BYTES%033d' 0 | tr 0 _)"
	done
	is "$("$CISTERN" inspect --json node-log log.bin | jq '[.file.size, .file.log_bytes, .file.writes, .file.overwritten_bytes] | tostring')" \
		"\"[16664,16664,44,$((16384 + 3000 + 500 + 280 + 21 - 16664))]\""
}

@test "a store with a FIFO, a socket and a device node: sound, listed, and its file is drained" {
	unpack node-special
	"$CISTERN" fsck node-special
	python3 "$golden/../read_log.py" node-special | tail -n 1 | grep '"whole":true'
	is "$("$CISTERN" inspect --json node-special | jq -r '[.files[] | .path + ":" + .type] | sort | join(" ")')" \
		'.:directory d/hard:fifo d/null:device d:directory f:file fifo:fifo sock:socket'
	mkdir out
	"$CISTERN" recover --force node-special --to out
	is "$(cat out/f) $(find out -name d -type d | wc -l) $(find out ! -type d | wc -l)" 'bytes of a file 1 1'
}

@test "the stores of a job of two nodes: sound, put together, and drained to the bytes that they had" {
	unpack job-0 job-1
	MISSING='^nothing may be missing' drains_to job.sums job-1 job-0
	is "$(readlink out/link) $(find out ! -type d | wc -l)" 'shared.bin 5'
	is "$("$CISTERN" inspect --json job-0 job-1 shared.bin | jq .file.size)" 30050
	refute "$CISTERN" inspect --json job-0 job-1 gone
}

@test "a store of a newer version is refused by all commands, with its version and what to do" {
	local command
	unpack node-log
	python3 - node-log/superblock <<-'END'
		import sys
		from crc32c import crc32c
		data = bytearray(open(sys.argv[1], "rb").read())
		def seal():
		    return crc32c(data[:16] + bytes(4) + data[20:]).to_bytes(4, "little")
		assert data[8:12] == (1).to_bytes(4, "little") and data[16:20] == seal()
		data[8:12] = (2).to_bytes(4, "little")
		data[16:20] = seal()
		open(sys.argv[1], "wb").write(data)
	END
	for command in fsck inspect 'recover --to out'; do
		# shellcheck disable=SC2086
		run "$CISTERN" $command node-log
		[ "$status" -ne 0 ]
		says 'store format version 2, this program knows versions up to 1: use the newer Cistern that made the store'
	done
}

# append JOURNAL TAG FLAGS: behind its last record one of version 6, a free of inode 4711, whose trailer is a field of this tag and flags.
append() {
	python3 - "$@" "$golden" <<-'END'
		import json, os, struct, subprocess, sys
		from crc32c import crc32c
		path, tag, flags, golden = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
		store = os.path.dirname(os.path.dirname(path))
		log = subprocess.run([sys.executable, golden + "/../read_log.py", store], capture_output=True, text=True, check=True)
		seq = json.loads(log.stdout.splitlines()[-1])["last_seq"] + 1
		data = open(path, "rb").read().rstrip(bytes(1))
		data += bytes(-len(data) % 8)
		assert tag < 128
		trailer = bytes((tag, flags, 5)) + b"later"
		record = struct.pack("<IIBBHQqQIIII", 0, 64, 9, 6, 0, seq, 1, 4711, 0, 0, 0, 0) + trailer
		record = b"CJR1" + struct.pack("<I", crc32c(b"CJR1" + record)) + record[4:]
		open(path, "wb").write(data + record)
	END
}

last_journal() {
	find "$1/journal" -name '*.jnl' -size +0 | sort | tail -n 1
}

# A record that a later program has written, as docs/format/store.md has it ("Trailer").
@test "a record with a required field that is not known: all commands refuse the store, say what to do, and change nothing" {
	local command
	unpack node-log
	append "$(last_journal node-log)" 100 1
	cp -a node-log before
	mkdir out
	for command in fsck 'fsck --repair' inspect 'recover --to out'; do
		# shellcheck disable=SC2086
		run "$CISTERN" $command node-log
		[ "$status" -ne 0 ]
		says 'needs field 100, which is not known here: a newer Cistern wrote it; use that version, or a newer one, for this store'
		diff -r before/journal node-log/journal
	done
}

@test "and so does a mount, which names the version that wrote it" {
	needs_fuse
	mount_cistern
	echo data >"$MNT/f"
	umount_wait
	append "$(last_journal "$STORE")" 100 1
	cp -a "$STORE" before
	run "$CISTERN" mount "$BACKING" "$MNT" --store "$STORE"
	[ "$status" -ne 0 ]
	says 'needs field 100, which is not known here: a newer Cistern wrote it (0.1.0); use that version, or a newer one'
	diff -r before/journal "$STORE/journal"
}

@test "an optional field that is not known changes nothing of what is read" {
	unpack node-log
	append "$(last_journal node-log)" 100 0
	python3 "$golden/../read_log.py" node-log | tail -n 2 | grep '"type":"free".*"trailer":{}'
	"$CISTERN" fsck node-log >fsck.said || true
	cat fsck.said
	refute grep -q 'field 100' fsck.said
}

@test "a newer record behind a lost one is no torn tail: nothing is cut off" {
	local journal
	unpack node-log
	journal=$(last_journal node-log)
	append "$journal" 100 1
	python3 - "$journal" <<-'END'
		import sys
		data = bytearray(open(sys.argv[1], "rb").read())
		data[4096 + 20] ^= 255
		open(sys.argv[1], "wb").write(data)
	END
	python3 - "$journal" <<-'END'
		import sys
		data = open(sys.argv[1], "rb").read()
		at = data.rindex(b"CJR1")
		open(sys.argv[1], "wb").write(data[:4096 + 64] + bytes(at - 4096 - 64) + data[at:])
	END
	cp -a node-log before
	run "$CISTERN" fsck node-log
	[ "$status" -eq 4 ]
	says 'is damaged, 1 good records and 0 files follow it'
	diff -r before/journal node-log/journal
}
