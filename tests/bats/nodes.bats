#!/usr/bin/env bats
# SPDX-License-Identifier: GPL-3.0-or-later
#
# Programs over the mounts of several nodes: what arrives in the backing directory is what the same programs write to a plain
# directory, byte for byte.

load "${top_srcdir:?}/tests/lib/mount.bash"
load "$top_srcdir/tests/lib/job.bash"

setup() {
	job_setup
}

# Programs for an MPI that is not the one the agents use are built here, once.
setup_file() {
	local mpi
	for mpi in mpich openmpi; do
		command -v mpicc.$mpi >/dev/null || continue
		mpicc.$mpi -O1 -o "$BATS_FILE_TMPDIR/nodes-io.$mpi" "$top_srcdir/tests/mpi/nodes-io.c"
	done
	# Debian's PnetCDF is Open MPI's.
	if command -v mpicc.openmpi >/dev/null && [ -e /usr/include/pnetcdf.h ]; then
		mpicc.openmpi -O1 -o "$BATS_FILE_TMPDIR/nodes-nc" "$top_srcdir/tests/mpi/nodes-nc.c" -lpnetcdf
	fi
	if command -v h5pcc.mpich >/dev/null && [ -n "$(hdf5_example)" ]; then
		gzip -dcf "$(hdf5_example)" >"$BATS_FILE_TMPDIR/ph5example.c"
		(cd "$BATS_FILE_TMPDIR" && h5pcc.mpich -O1 -w -o ph5example ph5example.c)
	fi
}

# HDF5's own parallel program, as its documentation has it.
hdf5_example() {
	ls /usr/share/doc/libhdf5-doc/examples/ph5example.c* 2>/dev/null | head -n 1
}

# again N: another job, of N nodes, with nothing of the last one.
again() {
	rm -rf "$WORK"/s? "$WORK/b" "$DIRECT"
	mkdir "$DIRECT"
	start_job "$1"
}

# writer FILE K REF: record after record of REF, K and every second one, until there is a file $WORK/stop or a write fails. What has
# returned is counted in $WORK/written-K.
writer() {
	python3 - "$1" "$2" "$3" "$WORK/stop" >"$WORK/written-$2" 2>"$WORK/writer-$2.log" 3>&- <<'END'
import os, sys, itertools
path, k, ref, stop = sys.argv[1], int(sys.argv[2]), open(sys.argv[3], "rb").read(), sys.argv[4]
fd = os.open(path, os.O_WRONLY | os.O_CREAT, 0o644)
for i in range(k, len(ref) // 1000, 2):
    if os.path.exists(stop):
        break
    assert os.pwrite(fd, ref[i * 1000:(i + 1) * 1000], i * 1000) == 1000
    if i % 16 == k:
        os.fsync(fd)
    os.write(1, b"x")
os.close(fd)
END
}

has_written() {
	[ "$(stat -c %s "$WORK/written-$1")" -ge "$2" ]
}

# all_written FILE REF K...: what the writers have had confirmed is in FILE.
all_written() {
	local file=$1 ref=$2
	shift 2
	for k in "$@"; do
		python3 - "$file" "$ref" "$k" "$(stat -c %s "$WORK/written-$k")" <<'END' || return
import sys
data, ref, k, num = open(sys.argv[1], "rb").read(), open(sys.argv[2], "rb").read(), int(sys.argv[3]), int(sys.argv[4])
lost = [i for i in range(k, 2 * num, 2) if data[i * 1000:(i + 1) * 1000] != ref[i * 1000:(i + 1) * 1000]]
if lost:
    sys.exit("node %d: %d of %d records are lost, the first is %d" % (k, len(lost), num, lost[0]))
END
	done
}

# pieces FILE TO...: the file's 47,008-byte pieces in turn through each of TO.
pieces() {
	local from=$1 i to=("${@:2}")
	for ((i = 0; i * 47008 < $(stat -c %s "$from"); i++)); do
		dd if="$from" of="${to[i % ${#to[@]}]}" bs=47008 skip=$i seek=$i count=1 conv=notrunc status=none || return
	done
}

# published_first K: of what node K has published of files of many, that was on its device before anybody dropped his part of it.
published_first() {
	python3 "$top_srcdir/tests/golden/read_log.py" --marks "$WORK/s$1" >"$WORK/log" || return
	python3 - "$WORK/log" <<'END'
import json, sys
log = [json.loads(line) for line in open(sys.argv[1])]
drops = [i for i, r in enumerate(log) if r.get("type") == "share-drop"]
assert drops, "nothing was dropped"
for drop in drops:
    at = max(i for i in range(drop) if log[i]["type"] == "drained" and log[i]["ino"] == log[drop]["ino"])
    assert any(r["type"] in ("mark", "sync") and r["upto"] >= log[at]["seq"] for r in log[at:drop]), \
        "inode %d is dropped before it is durable that it was published" % log[at]["ino"]
END
}

@test "names, data, a flush and two late unmounts of two nodes" {
	start_job 2
	echo one >"$WORK/m0/f"
	is "$(cat "$WORK/m1/f")" one
	mkdir "$WORK/m1/d"
	echo two >"$WORK/m1/d/g"
	is "$(cat "$WORK/m0/d/g")" two
	random_file "$WORK/ref" 4000000
	cp "$WORK/ref" "$WORK/m0/shared"
	cmp "$WORK/ref" "$WORK/m1/shared"
	pieces "$WORK/ref" "$WORK/m0/n1" "$WORK/m1/n1"
	for k in 0 1; do cmp "$WORK/ref" "$WORK/m$k/n1"; done

	"$CISTERN" flush --wait --mount "$WORK/m1" 3>&-
	published_first 0
	mkdir "$DIRECT/d"
	echo one >"$DIRECT/f"
	echo two >"$DIRECT/d/g"
	cp "$WORK/ref" "$DIRECT/shared"
	cp "$WORK/ref" "$DIRECT/n1"
	same_trees "$WORK/b" "$DIRECT"
	for k in 0 1; do same_trees "$WORK/m$k" "$DIRECT"; done

	rm "$WORK/m1/f" "$DIRECT/f"
	mv "$WORK/m0/d" "$WORK/m0/e"
	mv "$DIRECT/d" "$DIRECT/e"
	mv "$WORK/m1/shared" "$WORK/m1/e/moved"
	mv "$DIRECT/shared" "$DIRECT/e/moved"
	echo more >>"$WORK/m1/n1"
	echo more >>"$DIRECT/n1"
	arrives
}

# Node 0 knows them by name; another node, that there are some.
says_whom_it_waits_for() {
	local text
	text=$(status_of waiting_for "$WORK/s$first")
	case $first in
	0) [[ $text == "node 1 ("*", still mounted" ]] ;;
	*) [[ $text == "other nodes, "*"on node 0 (host "* && $(status_of waiting_for "$WORK/m0") == "node 0 ("*", still mounted" ]] ;;
	esac
}

@test "nodes are unmounted one after the other, in either order; the first one waits for the last" {
	for order in "0 1" "1 0"; do
		read -r first last <<<"$order"
		start_job 2
		random_file "$WORK/ref" 1000000 "$first"
		pieces "$WORK/ref" "$WORK/m0/f$first" "$WORK/m1/f$first"
		cp "$WORK/ref" "$DIRECT/f$first"
		echo "$first" | tee "$WORK/m$first/own$first" >"$DIRECT/own$first"
		umount_wait "$WORK/m$first" &
		wait_until 60 test -s "$WORK/b/own$first"
		wait_until 60 says_whom_it_waits_for
		exits 6 "$CISTERN" wait --timeout 1s "$WORK/s$first"
		says "; it waits for $(status_of waiting_for "$WORK/s$first")"
		# The other node goes on meanwhile.
		echo late | tee "$WORK/m$last/late$first" >"$DIRECT/late$first"
		kill -0 $!
		umount_wait "$WORK/m$last"
		wait $!
		agents_end_well
		no_leftovers "$WORK/b"
		same_trees "$WORK/b" "$DIRECT"
		rm -r "$WORK/s0" "$WORK/s1"
	done
}

# mpi_io MPI: all patterns. Hints make every rank write its part of a collective call.
mpi_io() {
	local pattern program=$BATS_FILE_TMPDIR/nodes-io.$1
	needs_program "mpicc.$1" "mpiexec.$1"
	start_job 2
	for pattern in segmented strided collective ordered sieved; do
		echo "$1 $pattern"
		both "$1" "$program" $pattern "@/$pattern"
		all_see $pattern
	done
	both "$1" "$program" collective @/collective-2 "cb_config_list=*:*" cb_nodes=2 romio_cb_write=enable
	for pattern in shared atomic; do
		echo "$1 $pattern"
		# The order is left to chance, so there is no file to compare with.
		ranks "$1" "$program" $pattern "@/$pattern"
		cp "$WORK/m0/$pattern" "$DIRECT/$pattern"
	done
	arrives
}

@test "MPI-IO of MPICH: N-1 segmented, strided, collective, sieved, shared file pointers, atomic" {
	mpi_io mpich
}

@test "MPI-IO of Open MPI: N-1 segmented, strided, collective, sieved, shared file pointers, atomic" {
	mpi_io openmpi
}

@test "HDF5: ranks on two nodes write one file" {
	needs_built tests/mpi/ph5
	needs_program h5diff
	start_job 2
	both mpich "$top_builddir/tests/mpi/ph5" @/a.h5 6
	all_see a.h5
	ranks mpich "$top_builddir/tests/mpi/ph5" --check @/a.h5 6
	cp "$WORK/m1/a.h5" "$WORK/m0/b.h5"
	cp "$DIRECT/a.h5" "$DIRECT/b.h5"
	h5diff "$WORK/m0/b.h5" "$WORK/m1/a.h5"
	arrives
	h5diff "$WORK/b/a.h5" "$DIRECT/a.h5"
}

@test "PnetCDF: ranks on two nodes write one file" {
	needs_program mpiexec.openmpi ncdump
	[ -x "$BATS_FILE_TMPDIR/nodes-nc" ] || skip "PnetCDF for Open MPI is not installed (libpnetcdf-dev)"
	start_job 2
	both openmpi "$BATS_FILE_TMPDIR/nodes-nc" @/a.nc
	all_see a.nc
	for k in 0 1; do same_word "$(ncdump "$WORK/m$k/a.nc")" "$(ncdump "$DIRECT/a.nc")"; done
	arrives
}

@test "HDF5's own parallel example, on two nodes and on four" {
	local nodes file
	needs_program h5diff
	[ -x "$BATS_FILE_TMPDIR/ph5example" ] || skip "the examples of HDF5 are not installed (libhdf5-doc)"
	for nodes in 2 4; do
		again "$nodes"
		both mpich "$BATS_FILE_TMPDIR/ph5example" -f @ -c
		# Each file tells the second in which it was made.
		for file in ParaEg0.h5 ParaEg1.h5; do
			h5diff "$WORK/m1/$file" "$DIRECT/$file"
			cp "$WORK/m0/$file" "$DIRECT/$file"
			all_see "$file"
		done
		arrives
	done
}

@test "PnetCDF's own programs, on two nodes and on four: one makes files, another compares them" {
	local nodes kind
	needs_program mpiexec.openmpi ncmpigen ncmpidiff
	{
		echo 'netcdf f { dimensions: time = UNLIMITED ; y = 30 ; x = 50 ; variables: float T(time, y, x) ; T:units = "K" ; double t(time) ; int m(y, x) ;'
		echo "data: T = $(seq -s, 6000) ; t = 1, 2, 3, 4 ; m = $(seq -s, 1500) ; }"
	} >"$WORK/f.cdl"
	sed 's/ t = 1,/ t = 7,/' "$WORK/f.cdl" >"$WORK/g.cdl"
	for nodes in 2 4; do
		again "$nodes"
		for kind in 1 2 5; do
			both openmpi ncmpigen -v "$kind" -o "@/$kind.nc" "$WORK/f.cdl"
			all_see "$kind.nc"
			ranks openmpi ncmpidiff "@/$kind.nc" "$DIRECT/$kind.nc"
		done
		both openmpi ncmpigen -v 5 -o @/other.nc "$WORK/g.cdl"
		refute ranks openmpi ncmpidiff @/other.nc "$DIRECT/5.nc"
		arrives
	done
}

@test "fio on two nodes, with checksums, into files of their own" {
	needs_program fio
	start_job 2
	for k in 0 1; do
		fio --name="node$k" --directory="$WORK/m$k" --size=4M --bsrange=1k-64k --rw=randwrite --verify=crc32c --do_verify=1 \
			--verify_fatal=1 --randseed=$((k + 7)) --end_fsync=1 --output="$WORK/fio$k" --aux-path="$WORK" 3>&- &
		wait_for[k]=$!
	done
	for k in 0 1; do wait "${wait_for[k]}" || { cat "$WORK/fio$k"; false; }; done
	# The other node sees it right away.
	for k in 0 1; do cp "$WORK/m$((1 - k))/node$k.0.0" "$DIRECT/"; done
	for k in 0 1; do cmp "$WORK/m$k/node$k.0.0" "$DIRECT/node$k.0.0"; done
	arrives
}

@test "four nodes: programs over all of them" {
	needs_built tests/mpi/ph5
	needs_program mpicc.mpich
	start_job 4
	both mpich "$top_builddir/tests/mpi/ph5" @/a.h5 1
	for pattern in strided sieved; do
		both mpich "$BATS_FILE_TMPDIR/nodes-io.mpich" $pattern @/$pattern
		all_see $pattern
	done
	if [ -x "$BATS_FILE_TMPDIR/nodes-nc" ]; then
		both openmpi "$BATS_FILE_TMPDIR/nodes-nc" @/a.nc
		all_see a.nc
	fi
	for k in 0 1 2 3; do
		mkdir "$WORK/m$k/d$k"
		random_file "$WORK/m$(((k + 1) % 4))/d$k/f" 300000 "$k"
		mkdir "$DIRECT/d$k"
		random_file "$DIRECT/d$k/f" 300000 "$k"
	done
	mv "$WORK/m3/d0" "$WORK/m1/d1/d"
	mv "$DIRECT/d0" "$DIRECT/d1/d"
	arrives
}

@test "nodes in network namespaces" {
	needs_program mpicc.mpich
	start_job_netns 2
	both mpich "$BATS_FILE_TMPDIR/nodes-io.mpich" strided @/strided
	all_see strided
	arrives
}

# missing MANIFEST CONDITION: far, what is listed as missing of what node 1 wrote far behind, is as the condition says; all is node 1's.
missing() {
	python3 - "$1" "$2" "$(hostname)" <<'END'
import json, sys
m = json.load(open(sys.argv[1]))
assert m["exit_status"] == 3, m
[f] = [f for f in m["files"] if f["path"] == "f"]
assert {r.get("node") for r in f["missing"]} == {"node 1 (host %s)" % sys.argv[3]}, f["missing"]
far = [(r["offset"] / (1 << 24), r["length"]) for r in f["missing"] if r["offset"] >= 1 << 24]
all_far = [(i, 5) for i in range(1, 7)]
assert eval(sys.argv[2]), far
END
}

# two_writers [MOUNT_OPTIONS]: node 0 has made the file; each node has written something.
two_writers() {
	start_job 2 "$@"
	random_file "$WORK/ref" 20000000
	: >"$WORK/m0/f"
	for k in 0 1; do
		writer "$WORK/m$k/f" $k "$WORK/ref" &
		writers[k]=$!
	done
	for k in 0 1; do wait_until 60 has_written $k 100; done
}

@test "a daemon is killed while both nodes write, and mounted again: nothing that was written is lost" {
	for victim in 0 1; do
		rm -rf "$WORK"/s? "$WORK"/stop "$WORK"/b/f
		two_writers
		kill_daemon "$WORK/m$victim"
		wait "${writers[victim]}" || true
		release_mount "$WORK/m$victim"
		mount_node "$victim"
		has=$(stat -c %s "$WORK/written-$((1 - victim))")
		wait_until 60 has_written $((1 - victim)) $((has + 50))
		: >"$WORK/stop"
		wait "${writers[1 - victim]}"
		# What the dead daemon had not told yet, since nobody had synced it, the next one tells as soon as it can.
		for k in 0 1; do wait_until 60 all_written "$WORK/m$k/f" "$WORK/ref" 0 1; done
		stop_job
		no_leftovers "$WORK/b"
		all_written "$WORK/b/f" "$WORK/ref" 0 1
	done
}

@test "agents are killed while both nodes write, and started again" {
	two_writers
	kill_agent 1
	start_agents
	for k in 0 1; do
		has=$(stat -c %s "$WORK/written-$k")
		wait_until 60 has_written $k $((has + 50))
	done
	: >"$WORK/stop"
	for k in 0 1; do wait "${writers[k]}"; done
	for k in 0 1; do all_written "$WORK/m$k/f" "$WORK/ref" 0 1; done
	stop_job
	no_leftovers "$WORK/b"
	all_written "$WORK/b/f" "$WORK/ref" 0 1
}

@test "the stores of a job that died give back all that was written; with one lost, its part is listed" {
	two_writers
	# Over several file domains, so that node 0 knows of some of node 1's.
	for i in 1 2 3 4 5 6; do
		printf 'far %d' $i | dd of="$WORK/m1/f" bs=1 seek=$((i << 24)) conv=notrunc status=none
	done
	echo own0 >"$WORK/m0/own0"
	echo own1 >"$WORK/m1/own1"
	kill_job
	for k in 0 1; do wait "${writers[k]}" || true; done
	run "$CISTERN" status "$WORK/s1"
	[[ $output == *"node 1 (host $(hostname)) of 2"*"others     node 0 (host $(hostname))"*"cistern recover $WORK/s1 OTHERS"* ]]
	is "$("$CISTERN" status --json "$WORK/s1" | jq -c '[.node, .nodes, .hosts]')" "[1,2,[\"$(hostname)\",\"$(hostname)\"]]"
	cp -a "$WORK/s0" "$WORK/copy"
	cp -a "$WORK/s1" "$WORK/copy1"
	mkdir "$WORK/part" "$WORK/part1"

	exits 3 "$CISTERN" recover "$WORK/copy" --to "$WORK/part"
	echo "$output"
	says "the store of node 1 (host $(hostname)) of 2 nodes is not given"
	says "bytes, the first at offset"
	says "only the lost store has them, of node 1 (host $(hostname)): they are zeros"
	# At least what lies in node 0's domains, every second one.
	missing "$WORK/part.cistern-manifest.json" "len(far) >= 3 and set(far) <= set(all_far)"
	is "$(cat "$WORK/part/own0")" own0
	[ ! -e "$WORK/part/own1" ]
	# The other way round: node 0 has made the file.
	exits 3 "$CISTERN" recover "$WORK/copy1" --to "$WORK/part1"
	for i in 1 2 3 4 5 6; do is "$(tail -c +$(((i << 24) + 1)) "$WORK/part1/f" | head -c 5)" "far $i"; done
	is "$(cat "$WORK/part1/own1")" own1

	"$CISTERN" recover "$WORK/s0" "$WORK/s1" --to "$WORK/b"
	all_written "$WORK/b/f" "$WORK/ref" 0 1
	for i in 1 2 3 4 5 6; do is "$(tail -c +$(((i << 24) + 1)) "$WORK/b/f" | head -c 5)" "far $i"; done
	is "$(cat "$WORK/b/own0" "$WORK/b/own1")" "own0
own1"
	no_leftovers "$WORK/b"
}

# strided_owners: both nodes write f by turns, and over each other; $WORK/owners has who wrote each byte last, from 1, and synced it, and
# 255 behind that, where nobody has synced.
strided_owners() {
	python3 - "$WORK" 3>&- <<'END'
import os, random, sys
work, rng = sys.argv[1], random.Random(1)
fds = [os.open(f"{work}/m{k}/f", os.O_RDWR | os.O_CREAT, 0o644) for k in range(2)]
owners = bytearray(22000000)

def write(k, off, num, owner):
    assert os.pwrite(fds[k], b"ab"[k:k + 1] * num, off) == num
    owners[off:off + num] = bytes([owner]) * num

for i in range(20000000 // 47008):
    if i % 50 < 45:  # some holes
        write(i % 2, i * 47008, 47008, 1 + i % 2)
for k in 1, 0, 1:
    for fd in fds:
        os.fsync(fd)
    for _ in range(40):
        write(k, rng.randrange(20000000), rng.choice([1, 10, 5000, 47008, 150000]), 1 + k)
for fd in fds:
    os.fsync(fd)
for i in range(20):
    write(i % 2, 21000000 + i * 47008, 47008, 255)
with open(f"{work}/owners", "wb") as f:
    f.write(owners)
END
}

# listed_without K DIR: what was recovered into DIR without the store of node K has all that the others wrote last; the rest is zeros, and of
# that exactly what node K wrote last is listed.
listed_without() {
	python3 - "$WORK/owners" "$1" "$2" "$(hostname)" <<'END'
import json, re, sys
owners, lost, to = open(sys.argv[1], "rb").read(), 1 + int(sys.argv[2]), sys.argv[3]
[f] = [f for f in json.load(open(to + ".cistern-manifest.json"))["files"] if f["path"] == "f"]
assert {r["node"] for r in f["missing"]} == {f"node {lost - 1} (host {sys.argv[4]})"}, f["missing"]
end = owners.index(255)

def merged(ranges):
    found = []
    for a, b in sorted(r for r in ranges if r[0] < end):
        if found and a <= found[-1][1]:
            a, b = found[-1][0], max(b, found.pop()[1])
        found.append((a, min(b, end)))
    return found

missing = merged((r["offset"], r["offset"] + r["length"]) for r in f["missing"])
wrote = [m.span() for m in re.finditer(bytes([lost]) + b"+", owners)]
both = set(missing) ^ set(wrote)
assert not both, f"{len(both)} ranges are listed and not lost, or lost and not listed: {sorted(both)[:4]}"
data = open(to + "/f", "rb").read(end).ljust(end, b"\0")
want = owners[:end].translate(bytes([0, *b"ab"]).ljust(256, b"\0")).replace(b"ab"[lost - 1:lost], b"\0")
assert data == want, next(i for i in range(end) if data[i] != want[i])
print(len(wrote), "ranges")
END
}

@test "with one store lost, exactly the bytes are listed as missing that its node wrote last" {
	local k
	start_job 2
	strided_owners
	kill_job
	for k in 0 1; do
		mkdir "$WORK/to$k"
		cp -a "$WORK/s$((1 - k))" "$WORK/copy"
		exits 3 "$CISTERN" recover "$WORK/copy" --to "$WORK/to$k"
		listed_without "$k" "$WORK/to$k"
		rm -rf "$WORK/copy"
	done
}

# over FILE TEXT: at 1000.
over() {
	printf '%s' "$2" | dd of="$1" bs=1 seek=1000 conv=notrunc,fsync status=none
}

@test "with the store of the node that made or keeps a file lost, what others wrote to it is there, under its name" {
	local i
	mkdir "$WORK/b" "$WORK/to"
	for i in 1 2 3 4 5 6; do random_file "$WORK/b/old$i" 3000 "$i"; done # about half of them are kept by either node
	cp -r "$WORK/b" "$WORK/ref"
	start_job 2 data=log
	mkdir "$WORK/m0/d"
	for i in 0 1; do
		echo "made by 0" >"$WORK/m0/d/new$i"
		over "$WORK/m1/d/new$i" "of node 1"
	done
	mv "$WORK/m0/d/new1" "$WORK/m0/d/moved"
	echo another >"$WORK/m1/d/new1"
	for i in 1 2 3 4 5 6; do
		over "$WORK/m1/old$i" "of node 1"
		over "$WORK/ref/old$i" "of node 1"
	done
	kill_job
	for to in "$WORK/to" "$WORK/b"; do
		cp -a "$WORK/s1" "$WORK/copy"
		exits 3 "$CISTERN" recover "$WORK/copy" --to "$to"
		echo "$output"
		says "known as new1: the store that has its name is lost: it becomes new1.recovered-inode-"
		rm -rf "$WORK/copy"
		ls -lR "$to"
		is "$(tail -c +1001 "$to/d/new0")" "of node 1"
		is "$(cat "$to/d/new1")" another
		is "$(tail -c +1001 "$to"/d/new1.recovered-inode-*)" "of node 1"
		for i in 1 2 3 4 5 6; do cmp "$WORK/ref/old$i" "$to/old$i"; done
	done
}

@test "in place a file that the lost store may have moved away is moved aside, and found there when that store is found again" {
	local n
	mkdir "$WORK/b" "$WORK/to"
	start_job 2
	random_file "$WORK/m0/f" 100000
	cp "$WORK/m0/f" "$WORK/ref"
	cp "$WORK/ref" "$WORK/m0/d"
	ln -s old "$WORK/m0/l"
	"$CISTERN" flush --wait --timeout 10m --mount "$WORK/m0"
	for n in f l d; do mv "$WORK/m0/$n" "$WORK/m0/away.$n"; done
	echo another >"$WORK/m1/f"
	ln -s another "$WORK/m1/l"
	mkdir "$WORK/m1/d"
	echo new >"$WORK/m1/d/new"
	ln "$WORK/m1/d/new" "$WORK/m1/new2"
	ln -s new "$WORK/m1/new.l"
	kill_job
	for n in 1 2; do # what the first one has published the second one knows again
		exits 3 "$CISTERN" recover "$WORK/s1" --to "$WORK/b"
		echo "$output"
		for i in f l d; do
			[ "$n" = 2 ] || [[ $output == *"$i: what had this name in the backing directory may be a file of a store that is not given"* ]]
		done
		[ "$n" = 1 ] || [[ $output != *"what had this name"* ]]
		[[ $output != *"failed:"* ]]
		cmp "$WORK/ref" "$WORK"/b/f.recovered-inode-*
		cmp "$WORK/ref" "$WORK"/b/d.recovered-inode-*
		is "$(readlink "$WORK"/b/l.recovered-inode-* "$WORK/b/l" "$WORK/b/new.l" | tr '\n' ' ')" 'old another new '
		is "$(cat "$WORK/b/f" "$WORK/b/d/new" "$WORK/b/new2" | tr '\n' ' ')" 'another new new '
		no_leftovers "$WORK/b"
	done
	exits 0 "$CISTERN" recover "$WORK/s0" "$WORK/s1" --to "$WORK/b"
	cmp "$WORK/ref" "$WORK/b/away.f"
	cmp "$WORK/ref" "$WORK/b/away.d"
	is "$(readlink "$WORK/b/away.l" "$WORK/b/l" | tr '\n' ' ')" 'old another '
	is "$(cat "$WORK/b/f" "$WORK/b/d/new" | tr '\n' ' ')" 'another new '
	[ "$(find "$WORK/b" -name '*recovered-inode*')" = "" ]
}

@test "a new file whose home is lost, recovered in place once more: it is the same one" {
	local n
	mkdir "$WORK/b"
	start_job 2
	for n in f g; do
		echo "made by its home" >"$WORK/m0/$n"
		over "$WORK/m1/$n" 'made longer'
	done
	echo another >"$WORK/b/g" # somebody else's
	kill_job
	for n in 1 2 3; do
		exits 3 "$CISTERN" recover "$WORK/s1" --to "$WORK/b"
		is "$(cd "$WORK/b" && echo *)" "$(cd "$WORK/b" && echo f g g.recovered-inode-*)"
		is "$(find "$WORK/b" -type f | wc -l)" 3
		is "$(tail -c +1001 "$WORK/b/f") $(cat "$WORK/b/g") $(tail -c +1001 "$WORK"/b/g.recovered-inode-*)" 'made longer another made longer'
	done
}

@test "in place a directory that was removed, in which the lost store had files, is not left hidden, and goes when that store is found again" {
	mkdir "$WORK/b"
	start_job 2
	mkdir "$WORK/m0/d"
	random_file "$WORK/m0/d/f" 100000
	"$CISTERN" flush --wait --timeout 10m --mount "$WORK/m0"
	cp "$WORK/b/d/f" "$WORK/ref"
	rm "$WORK/m0/d/f"
	rmdir "$WORK/m0/d"
	kill_job
	for _ in 1 2; do
		exits 3 "$CISTERN" recover "$WORK/s1" --to "$WORK/b"
		echo "$output"
		[[ $output == *"recovered-inode-"*": a directory that was removed in the mount, with what may be of a store that is not given"* ]]
		cmp "$WORK/ref" "$WORK"/b/recovered-inode-*/f
		no_leftovers "$WORK/b"
	done
	exits 0 "$CISTERN" recover "$WORK/s0" "$WORK/s1" --to "$WORK/b"
	is "$(ls -A "$WORK/b")" ""
}

# missing_of NAME...: which ranges the manifest lists of each, and of no other file; and what has moved aside.
missing_of() {
	python3 - "$WORK/b.cistern-manifest.json" "$@" <<'END'
import json, sys
m = json.load(open(sys.argv[1]))
files = {f["path"]: f for f in m["files"]}
for name in sys.argv[2:]:
    f = files.pop(name)
    print(name, f["state"], [(r["offset"], r["length"]) for r in f.get("missing", [])])
assert not [f for f in files.values() if f.get("missing")], files
print(*(f["from"] for f in m["moved"] if "recovered-inode" in f["path"]))
END
}

@test "in place what is missing of a file is listed under its name, also when what had that is moved aside" {
	local n
	mkdir "$WORK/b"
	start_job 2
	for n in f g d; do random_file "$WORK/m0/$n" 50000; done
	random_file "$WORK/m1/h" 50000
	"$CISTERN" flush --wait --timeout 10m --mount "$WORK/m0"
	for n in f g d; do mv "$WORK/m0/$n" "$WORK/m0/away.$n"; done
	mkdir "$WORK/m1/d"
	for n in f d/f; do
		random_file "$WORK/m1/$n" 50000
		over "$WORK/m0/$n" lost
	done
	mv "$WORK/m1/h" "$WORK/m1/g"
	over "$WORK/m0/g" lost
	kill_job
	for n in 1 2; do
		exits 3 "$CISTERN" recover "$WORK/s1" --to "$WORK/b"
		is "$(missing_of f g d/f)" "$(printf '%s failed [(1000, 4)]\n' f g d/f; [ "$n" = 2 ] || echo d f g)"
	done
}

@test "elsewhere what is missing of a file in a new directory is listed under its name, also when what had the directory's moved" {
	local k
	mkdir "$WORK/b" "$WORK/to"
	start_job 3
	for k in 0 1; do ln -s old "$WORK/m$k/c$k"; done
	"$CISTERN" flush --wait --timeout 10m --mount "$WORK/m0"
	for k in 0 1; do
		random_file "$WORK/m$k/b$k" 50000000 # it takes a while, so that the other one does not see the directory yet
		mv "$WORK/m$k/c$k" "$WORK/m$k/a$k"
		mkdir "$WORK/m2/c$k"
		random_file "$WORK/m2/c$k/f" 50000
		over "$WORK/m$((1 - k))/c$k/f" kept
	done
	kill_job
	exits 3 no_leaks "$CISTERN" recover -n 2 "$WORK/s0" "$WORK/s1" --to "$WORK/to" --manifest "$WORK/b.cistern-manifest.json"
	is "$(missing_of c0/f c1/f | head -2)" "$(printf 'c%s/f failed [(0, 1000), (1004, 48996)]\n' 0 1)"
}

# several_names: in $WORK/m0, of a directory that cannot be made: new files, a moved one, one that was written to, and their other names.
several_names() {
	mkdir "$WORK/m0/p/d"
	echo new >"$WORK/m0/f"
	ln "$WORK/m0/f" "$WORK/m0/p/d/f" # its directory comes behind the root
	echo new >"$WORK/m0/p/d/only"
	mv "$WORK/m0/old" "$WORK/m0/moved"
	ln "$WORK/m0/moved" "$WORK/m0/p/d/moved"
	over "$WORK/m0/changed" more
	ln "$WORK/m0/changed" "$WORK/m0/p/d/changed"
	mkdir "$WORK/m0/z"
	echo late >"$WORK/m0/p/d/late"
	ln "$WORK/m0/p/d/late" "$WORK/m0/z/late" # before it
	ln "$WORK/m0/p/d/late" "$WORK/m0/p/d/later"
	ln -s "$WORK" "$WORK/m0/l"
	ln "$WORK/m0/l" "$WORK/m0/p/d/l"
	echo kept >"$WORK/m0/p/d/kept"
	ln "$WORK/m0/p/d/kept" "$WORK/m0/p/d/kept2"
}

# several_carried: what of that can be is there; what else, is said by name.
several_carried() {
	local n
	for n in f moved changed late later l only kept kept2; do
		[[ $output == *"p/d/$n: its directory could not be placed"* ]] || { echo "$n is not said"; return 1; }
		python3 -c 'import json, sys
assert [f["state"] for f in json.load(open(sys.argv[1]))["files"] if f["path"] == sys.argv[2]] == ["failed"]' "$WORK/manifest.json" "p/d/$n" || return
	done
	is "$(cat "$WORK/b/f" "$WORK/b/z/late" | tr '\n' ' ')$(readlink "$WORK/b/l")" "new late $WORK"
	cmp "$WORK/b/moved" "$WORK/ref"
	cmp "$WORK/b/changed" "$WORK/ref2"
	is "$(cd "$WORK/b" && echo * p/*)" 'changed f l moved p z p/*'
	no_leftovers "$WORK/b"
}

@test "a file of several names, of which one is in a directory that cannot be placed: it gets the others, and that one is told" {
	local nodes k stores
	needs_root "a directory that nobody may write to"
	for nodes in 1 2; do
		rm -rf "$WORK"/b "$WORK"/s?
		mkdir -p "$WORK/b/p"
		random_file "$WORK/b/old" 50000
		cp "$WORK/b/old" "$WORK/b/changed"
		cp "$WORK/b/old" "$WORK/ref"
		cp "$WORK/b/old" "$WORK/ref2"
		over "$WORK/ref2" more
		stores=("$WORK/s0")
		if [ "$nodes" = 1 ]; then
			mkdir -p "$WORK/m0"
			mount_cistern "$WORK/s0" "$WORK/m0" "$WORK/b"
			several_names
			JOB_NODES=1 kill_daemons
		else
			stores+=("$WORK/s1")
			start_job 2
			several_names
			kill_job
		fi
		chattr +i "$WORK/b/p" || skip "chattr does not work"
		undo "chattr -i $WORK/b/p"
		for k in 1 2; do
			exits 3 "$CISTERN" recover "${stores[@]}" --to "$WORK/b" --manifest "$WORK/manifest.json"
			echo "$output"
			several_carried
		done
		chattr -i "$WORK/b/p"
		exits 0 "$CISTERN" recover "${stores[@]}" --to "$WORK/b"
		is "$(cd "$WORK/b/p/d" && echo *)" 'changed f kept kept2 l late later moved only'
		is "$(stat -c %h "$WORK"/b/p/d/* | tr '\n' ' ')" '2 2 2 2 2 3 3 2 1 '
		cmp "$WORK/b/p/d/changed" "$WORK/ref2"
	done
}

# linked_twice: f of the backing directory, that has another link there, is written to by both nodes and removed. $WORK/ref is what it is then.
linked_twice() {
	mkdir -p "$WORK/b/d" "$WORK/to"
	random_file "$WORK/ref" 50000
	cp "$WORK/ref" "$WORK/b/f"
	ln "$WORK/b/f" "$WORK/b/d/link"
	start_job 2
	over "$WORK/m0/f" "of node 0"
	over "$WORK/ref" "of node 0"
	printf 'of node 1' | dd of="$WORK/m1/f" bs=1 seek=60000 conv=notrunc,fsync status=none
	printf 'of node 1' | dd of="$WORK/ref" bs=1 seek=60000 conv=notrunc status=none
	rm "$WORK/m1/f"
	for k in 0 1; do cmp "$WORK/ref" "$WORK/m$k/d/link"; done
}

@test "what nodes wrote under a name that was removed a recovery gives back, under the file's other links and elsewhere" {
	linked_twice
	kill_job
	"$CISTERN" recover "$WORK/s0" "$WORK/s1" --to "$WORK/to"
	cmp "$WORK/ref" "$WORK"/to/f.recovered-inode-*
	"$CISTERN" recover "$WORK/s0" "$WORK/s1" --to "$WORK/b"
	cmp "$WORK/ref" "$WORK/b/d/link"
	[ ! -e "$WORK/b/f" ]
	no_leftovers "$WORK/b"
}

@test "the same behind a drain, which leaves it in the stores and says what to do" {
	local k pids=()
	linked_twice
	for k in 0 1; do
		"$CISTERN" umount --wait "$WORK/m$k" 3>&- >"$WORK/umount$k" 2>&1 &
		pids+=($!)
	done
	for k in 0 1; do refute wait "${pids[k]}"; done
	grep "linked elsewhere in the backing directory.*cistern recover" "$WORK/umount0"
	"$CISTERN" recover "$WORK/s0" "$WORK/s1" --to "$WORK/b"
	cmp "$WORK/ref" "$WORK/b/d/link"
	no_leftovers "$WORK/b"
}

@test "a recovery goes on where another one has ended, also in new directories into which files of many were moved" {
	local k f
	start_job 2
	mkdir "$WORK/m0/old"
	for f in a b c d; do printf '%5000s' "$f" >"$WORK/m0/old/$f"; over "$WORK/m1/old/$f" "of node 1"; done
	"$CISTERN" flush --wait --mount "$WORK/m0" 3>&-
	mkdir -p "$WORK/m0/new/er"
	mv "$WORK/m0/old/a" "$WORK/m0/new/"
	mv "$WORK/m0/old/b" "$WORK/m0/new/er/"
	mv "$WORK/m0/old/c" "$WORK/m0/new/x"
	for f in new/a new/er/b new/x old/d; do
		over "$WORK/m0/$f" "since by 0"
		printf 'since by 1' | dd of="$WORK/m1/$f" bs=1 seek=6000 conv=notrunc,fsync status=none
	done
	cp -a "$WORK/m0/." "$DIRECT"
	sync -f "$WORK/m0"
	kill_job
	for k in 1 2; do
		"$CISTERN" recover "$WORK/s0" "$WORK/s1" --to "$WORK/b"
		same_trees "$WORK/b" "$DIRECT"
		# As if the first one had been killed before it wrote this.
		dd if=/dev/zero of="$WORK/b/new/a" bs=1 seek=1000 count=10 conv=notrunc status=none
	done
}

# touch_some K: names of both servers; those of the node that is gone fail. None says nothing, or hangs.
touch_some() {
	local i pids=() bad=0
	for i in 1 2 3 4 5 6 7 8; do
		timeout 100 touch "$WORK/m$1/some$i" 2>"$WORK/touched-$i" 3>&- &
		pids[i]=$!
	done
	for i in "${!pids[@]}"; do
		wait "${pids[i]}" && continue
		grep "Input/output error" "$WORK/touched-$i" || { echo "some$i: no word of what went wrong"; return 1; }
		bad=$((bad + 1))
	done
	[ "$bad" -gt 0 ]
}

@test "a node never comes back while both write: the other says whom it misses and keeps what it has; recovery lists what is lost" {
	two_writers agent_timeout=2s,node_timeout=2s,unmount_timeout=3s
	for i in 1 2 3 4 5 6; do
		printf 'far %d' $i | dd of="$WORK/m1/f" bs=5 seek=$((i << 24)) oflag=seek_bytes conv=notrunc,fsync status=none
	done
	exec 5>>"$WORK/m0/own0"
	pid=$(daemon_pid "$WORK/m1")
	kill -KILL "$pid" "$(cat "$WORK/agent1.pid")"
	wait "${writers[1]}" || true
	release_mount "$WORK/m1"
	wait_until 60 gone "$pid"
	mv "$WORK/s1" "$WORK/lost"
	agents_end
	echo own >&5
	exec 5>&-
	touch_some 0
	grep 'gave up waiting for node 1 (host .*) after 2 s' "$WORK/s0/cistern.log"
	: >"$WORK/stop"
	wait "${writers[0]}" || true
	exits 3 "$CISTERN" umount --wait --timeout 5m "$WORK/m0"
	echo "$output"
	says "node 1 (host"

	cp -a "$WORK/s0" "$WORK/copy"
	mkdir "$WORK/part"
	exits 3 "$CISTERN" recover "$WORK/copy" --to "$WORK/part"
	echo "$output"
	says "the store of node 1 (host $(hostname)) of 2 nodes is not given"
	says "bytes, the first at offset"
	says "only the lost store has them, of node 1 (host $(hostname)): they are zeros"
	missing "$WORK/part.cistern-manifest.json" "far == all_far"

	"$CISTERN" recover "$WORK/lost" "$WORK/s0" --to "$WORK/b"
	all_written "$WORK/b/f" "$WORK/ref" 0 1
	for i in 1 2 3 4 5 6; do is "$(tail -c +$(((i << 24) + 1)) "$WORK/b/f" | head -c 5)" "far $i"; done
	is "$(cat "$WORK/b/own0")" own
	no_leftovers "$WORK/b"
}

@test "a node that hangs with a file open holds up who writes it once, for no failure; it reads what is new when it goes on" {
	local other
	start_job 3 agent_timeout=20s
	touch "$WORK/m0/f"
	other=$(daemon_pid "$WORK/m2")
	undo "kill -CONT $other 2>/dev/null; true"
	timeout 300 python3 - "$WORK" "$other" 3>&- <<'END'
import os, signal, sys, threading, time
from place import first_domain, inode_of
work, daemon = sys.argv[1], int(sys.argv[2])
writer = os.open(work + "/m1/f", os.O_RDWR)
pages = os.open(work + "/m2/f", os.O_RDONLY)
direct = os.open(work + "/m2/f", os.O_RDWR)
first = first_domain(inode_of(os.fstat(writer).st_ino), 3)
# The pieces of 16 MiB whose places the node that hangs does not keep.
at = [i << 24 for i in range(3) if (first + i) % 3 != 2]

def put(text):
    for off in at:
        assert os.pwrite(writer, text, off) == len(text)

put(b"old")
os.fsync(writer)
assert [os.pread(fd, 3, off) for fd in (pages, direct) for off in at] == [b"old"] * 4
got = []
reader = threading.Thread(target=lambda: got.append(os.pread(direct, 3, at[0])))
os.kill(daemon, signal.SIGSTOP)
try:
    put(b"hey")
    begin = time.monotonic()
    os.fsync(writer)
    print("the first fsync took", time.monotonic() - begin)
    begin = time.monotonic()
    for _ in range(5):
        put(b"new")
        os.fsync(writer)
        put(b"now")
        os.close(os.dup(writer))
    took = time.monotonic() - begin
    print("ten more commits took", took)
    assert took < 60
    reader.start()
finally:
    os.kill(daemon, signal.SIGCONT)
reader.join()
assert got == [b"now"], got
begin = time.monotonic()
while [os.pread(pages, 3, off) for off in at] != [b"now"] * 2:
    assert time.monotonic() - begin < 60, os.pread(pages, 3, at[0])
    time.sleep(0.01)
put(b"end")
os.fsync(writer)
assert [os.pread(fd, 3, off) for fd in (pages, direct) for off in at] == [b"end"] * 4
END
	stop_job
	is "$(tr -d '\0' <"$WORK/b/f")" endend
}

# Longer than freed payload is kept: at this rate the last MiBs are fetched some 15 s after the snapshot that says where they are.
@test "what a node writes over while another one drains it slowly does not become zeros" {
	start_job 2 drain=idle,idle_interval=3s,drain_rate=768K,flush_buffer_size=1M
	timeout 300 python3 - "$WORK" 3>&- <<'END'
import glob, os, sys, time
from place import first_domain, inode_of
work, MIB = sys.argv[1], 1 << 20

def wait_for(what):
    until = time.monotonic() + 120
    while not what():
        assert time.monotonic() < until
        time.sleep(0.02)

fds = [os.open(f"{work}/m{k}/f", os.O_RDWR | os.O_CREAT) for k in range(2)]
drainer = first_domain(inode_of(os.fstat(fds[0]).st_ino), 2)
owner = 1 - drainer
for i in range(16):
    os.pwrite(fds[owner], b"o" * MIB, i * MIB)
os.fsync(fds[owner])
for i in range(16):  # so the owner's are in parts, without checksums
    os.pwrite(fds[drainer], b"d" * 4096, i * MIB + MIB // 2)
for fd in fds:  # what is open is left alone
    os.close(fd)
wait_for(lambda: any(os.stat(f).st_blocks for f in glob.glob(work + "/b/.cistern-shared-*")))
begin = time.monotonic()
fd = os.open(f"{work}/m{owner}/f", os.O_RDWR)
for i in range(11, 16):
    os.pwrite(fd, b"n" * MIB, i * MIB)
os.fsync(fd)
os.close(fd)
wait_for(lambda: os.path.exists(work + "/b/f"))
with open(work + "/b/f", "rb") as f:
    there = f.read()
print("published after", time.monotonic() - begin, "s")
assert time.monotonic() - begin > 13, "too early to show anything"
assert len(there) == 16 * MIB and set(there) <= set(b"don"), set(there)
END
	stop_job
	is "$(tr -cd o <"$WORK/b/f" | wc -c)" $((11 * ((1 << 20) - 4096)))
}
