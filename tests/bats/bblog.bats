#!/usr/bin/env bats
# SPDX-License-Identifier: GPL-3.0-or-later
#
# Logs of PnetCDF's burst-buffer driver: fsck, inspect and recover of real ones (tests/golden/pnetcdf-bb-logs) and of random
# ones, whose results are computed by tests/golden/make_bblog.py, and what they show against a reader that was written from
# docs/format/pnetcdf-burst-buffer.md alone.

load ../lib/mount

setup() {
	cistern_setup
	golden=$top_srcdir/tests/golden
	unset PNETCDF_HINTS CISTERN_FLUSH_BUFFER_SIZE
	cp -r "$golden/pnetcdf-bb-logs" "$WORK/logs"
	chmod -R u+w "$WORK/logs"
	crash=$WORK/logs/v1.12.3-crash
	right=$golden/pnetcdf-bb-logs/v1.12.3-crash/t-recovered.nc
	# as the job's end left them: the netCDF file before the last put
	touch -d '2024-01-01 10:00' "$WORK"/logs/*/*.nc
	touch -d '2024-01-01 10:05' "$WORK"/logs/*/*.meta "$WORK"/logs/*/*.data
}

# poke FILE OFFSET BYTES: in printf's words.
poke() {
	printf "$3" | dd of="$1" bs=1 seek="$2" conv=notrunc status=none
}

says() {
	grep -qF -- "$1" <<<"$output" || { echo "not said: $1" >&2; printf '%s\n' "$output" >&2; return 1; }
}

# The entries as inspect has them, one JSON object a line, in the words of read_bblog.py.
inspected() {
	"$CISTERN" inspect --json "$@" | python3 -c '
import json, sys
layouts = {"PnetCDF 1.11.0 to 1.12.2": 0, "PnetCDF 1.12.3": 1, "PnetCDF 1.13.0 or later": 2}
for group in json.load(sys.stdin)["pnetcdf_logs"]:
    for log in group["logs"]:
        print(json.dumps({"layout": layouts[log["written_by"]], "big_endian": log["big_endian"], "ranks": log["ranks"],
            "rank": log["rank"], "path": group["path"], "host": log["host"], "begin": log["entries_begin"],
            "count": log["num_entries"]}, sort_keys=True))
        for e in log["entries"]:
            e.pop("name", None)
            print(json.dumps(e, sort_keys=True))'
}

@test "bblog: the document's reader and ours see the same entries in real logs" {
	needs_program python3
	local meta lines=0
	for meta in "$WORK"/logs/*/*.meta; do
		inspected "$meta" >"$WORK/ours"
		python3 "$golden/read_bblog.py" "$meta" >"$WORK/theirs"
		diff "$WORK/ours" "$WORK/theirs"
		lines=$((lines + $(wc -l <"$WORK/ours")))
	done
	[ "$lines" -gt 30 ]
}

@test "bblog: overlapping puts, 50 random trials by replay: no wrong element, and the same entries for the document's reader" {
	needs_program python3
	local i wrong=0
	mkdir "$WORK/random"
	python3 "$golden/make_bblog.py" "$WORK/random" 1 50
	for i in "$WORK"/random/*; do
		"$CISTERN" recover "$i" --to "$i/out.nc" >"$i/said"
		cmp "$i/out.nc" "$i/expected.nc" || wrong=$((wrong + 1))
		inspected "$i" | sort >"$i/ours"
		python3 "$golden/read_bblog.py" "$i"/*.meta | sort | diff "$i/ours" -
	done
	[ "$wrong" -eq 0 ]
}

@test "bblog: overlapping puts, 50 random trials through the mount: no wrong element" {
	needs_fuse
	needs_program python3
	local i wrong=0
	mount_cistern
	python3 "$top_srcdir/tests/lib/put_posix.py" "$MNT" "$DIRECT" 1 50
	for i in {1..50}; do cmp "$MNT/$i.nc" "$DIRECT/$i.nc" || wrong=$((wrong + 1)); done
	umount_wait
	for i in {1..50}; do cmp "$BACKING/$i.nc" "$DIRECT/$i.nc" || wrong=$((wrong + 1)); done
	[ "$wrong" -eq 0 ]
}

@test "bblog: the result does not depend on the memory" {
	needs_program python3
	local seed size
	mkdir "$WORK/random"
	for seed in 73 78; do
		python3 "$golden/make_bblog.py" "$WORK/random" $seed $seed
		for size in 1M 3M 64M; do
			CISTERN_FLUSH_BUFFER_SIZE=$size "$CISTERN" recover "$WORK/random/$seed" \
				--to "$WORK/random/$seed/$size.nc" >"$WORK/said"
			cmp "$WORK/random/$seed/$size.nc" "$WORK/random/$seed/expected.nc"
		done
	done
	[ "$(stat -c %s "$WORK/random/73/expected.nc")" -gt 10000000 ]
}

@test "bblog: the result does not depend on how many work, nor does what is said" {
	needs_program python3
	needs_program taskset
	local processor seed
	processor=$(taskset -cp $$ | sed 's/.*: //; s/[-,].*//')
	mkdir "$WORK/random"
	for seed in 73 78 5; do
		python3 "$golden/make_bblog.py" "$WORK/random" $seed $seed
		CISTERN_FLUSH_BUFFER_SIZE=2M "$CISTERN" recover --json "$WORK/random/$seed" --to "$WORK/new.nc" | grep -v usec >"$WORK/all"
		cmp "$WORK/new.nc" "$WORK/random/$seed/expected.nc"
		rm "$WORK/new.nc"
		taskset -c "$processor" "$CISTERN" recover --json "$WORK/random/$seed" --to "$WORK/new.nc" | grep -v usec >"$WORK/one"
		cmp "$WORK/new.nc" "$WORK/random/$seed/expected.nc"
		rm "$WORK/new.nc"
		diff "$WORK/all" "$WORK/one"
	done
}

@test "bblog: a killed job's logs give the file that a normal close gives, in its place and elsewhere" {
	exits 0 "$CISTERN" recover "$crash" --to "$WORK/new.nc"
	cmp "$WORK/new.nc" "$right"
	cmp "$crash/t-crash.nc" "$golden/pnetcdf-bb-logs/v1.12.3-crash/t-crash.nc"
	says "14 entries of 2 ranks"
	says "2 records (before: 0)"
	says "12 bytes of A were written differently by several ranks"
	says "ncmpi_cancel"
	mkdir "$WORK/dir"
	exits 0 "$CISTERN" recover "$crash"/*.meta --to "$WORK/dir"
	cmp "$WORK/dir/t-crash.nc" "$right"
	chmod 640 "$crash/t-crash.nc"
	exits 0 "$CISTERN" recover "$crash/t-crash.nc" --to "$crash/t-crash.nc"
	cmp "$crash/t-crash.nc" "$right"
	is "$(stat -c %a "$crash/t-crash.nc")" 640
	is "$(find "$WORK" -name '.*cistern*')" ""
	diff -r "$golden/pnetcdf-bb-logs/v1.12.3-crash" "$crash" | grep -v 't-crash.nc differ' >"$WORK/changed" || true
	is "$(cat "$WORK/changed")" ""
}

@test "bblog: killed jobs of the oldest and of a new release, all types, with values out of range" {
	local release
	for release in v1.12.2 v1.14.1; do
		exits 0 "$CISTERN" recover "$WORK/logs/$release-killed" --to "$WORK/$release.nc"
		says "became its fill value (NC_ERANGE)"
		cmp "$WORK/$release.nc" "$WORK/logs/$release-killed/closed.nc"
	done
	exits 0 "$CISTERN" fsck "$WORK/logs/v1.12.2-killed"
	says "written by PnetCDF 1.11.0 to 1.12.2"
}

@test "bblog: in place, and what a dry run says" {
	exits 0 "$CISTERN" recover "$crash" --to "$crash/t-crash.nc" --dry-run
	says "would change"
	cmp "$crash/t-crash.nc" "$golden/pnetcdf-bb-logs/v1.12.3-crash/t-crash.nc"
	ln "$crash/t-crash.nc" "$crash/other-name"
	exits 1 "$CISTERN" recover "$crash" --to "$crash/t-crash.nc"
	says "--in-place"
	exits 0 "$CISTERN" recover "$crash" --to "$crash/t-crash.nc" --in-place
	cmp "$crash/other-name" "$right"
	exits 1 "$CISTERN" recover "$crash" --to "$WORK/none.nc" --in-place
	exits 2 "$CISTERN" recover "$crash" --to "$crash/t-crash.nc" --in-place --dry-run
}

@test "bblog: logs of a file that was closed change nothing, unless somebody changed it since" {
	local closed=$WORK/logs/v1.12.3
	exits 0 "$CISTERN" recover "$closed" --to "$closed/t1.nc"
	says "everything was there already"
	exits 0 "$CISTERN" recover "$WORK/logs/v1.12.3-redef" --to "$WORK/logs/v1.12.3-redef/t-redef.nc"
	says "everything was there already"
	exits 0 "$CISTERN" recover "$WORK/logs/v1.15.0" --to "$WORK/logs/v1.15.0/tm-close.nc"
	says "everything was there already"
	cmp "$closed/t1.nc" "$golden/pnetcdf-bb-logs/v1.12.3/t1.nc"
	poke "$closed/t1.nc" 600 'changed'
	cp "$closed/t1.nc" "$WORK/changed.nc"
	touch -d '2024-01-01 10:06' "$closed/t1.nc" "$WORK/changed.nc"
	exits 1 "$CISTERN" recover "$closed" --to "$closed/t1.nc"
	says "was changed 60 s after the logs"
	exits 1 "$CISTERN" recover "$closed" --to "$closed/t1.nc" --in-place
	cmp "$closed/t1.nc" "$WORK/changed.nc"
	exits 0 "$CISTERN" recover "$closed" --to "$closed/t1.nc" --force
	cmp "$closed/t1.nc" "$golden/pnetcdf-bb-logs/v1.12.3/t1.nc"
}

@test "bblog: a killed job may have written to the header after its last put, but not hours later" {
	touch -d '2024-01-01 10:06' "$crash/t-crash.nc"
	exits 0 "$CISTERN" recover "$crash" --to "$crash/t-crash.nc"
	cmp "$crash/t-crash.nc" "$right"
	cp "$golden/pnetcdf-bb-logs/v1.12.3-crash/t-crash.nc" "$crash"
	touch -d '2024-01-01 12:00' "$crash/t-crash.nc"
	exits 1 "$CISTERN" recover "$crash" --to "$crash/t-crash.nc"
	says "was changed 6900 s after the logs, and has 0 of the"
}

@test "bblog: a missing rank, a torn tail, lost values: the rest is replayed, and what is missing is said" {
	exits 3 "$CISTERN" recover "$crash/t-crash.nc_0_1.meta" --to "$WORK/one.nc"
	says "missing: the logs of rank 0 of 2"
	exits 3 "$CISTERN" recover "$crash/t-crash.nc_0_1.data" "$crash/t-crash.nc" --to "$WORK/two.nc" --json
	python3 -c 'import json,sys; o=json.load(sys.stdin); f=o["pnetcdf_logs"][0]
assert f["missing_ranks"] == "0" and f["entries"] == 7 and not o["complete"]' <<<"$output"
	truncate -s -3 "$crash/t-crash.nc_0_0.meta"
	truncate -s -3 "$crash/t-crash.nc_0_1.data"
	exits 3 "$CISTERN" recover "$crash" --to "$WORK/torn.nc"
	says "lost: rank 0: 1 entry: byte 608"
	says "left out: rank 1, entry 6: the data log ends"
	says "12 entries of 2 ranks"
	exits 4 "$CISTERN" fsck "$crash"
	says "lost from there on: 1 entry"
	says "rank 1, entry 6: the data log ends"
	poke "$crash/t-crash.nc_0_0.meta" 24 '\0'
	exits 3 "$CISTERN" recover "$crash" --to "$WORK/broken.nc"
	says "t-crash.nc_0_0.meta was left out"
	exits 4 "$CISTERN" recover "$crash/t-crash.nc_0_0.meta" --to "$WORK/never.nc"
	[ ! -e "$WORK/never.nc" ]
}

@test "bblog: an entry that is far behind all others ends at once: what lies between is not searched" {
	local logs=$WORK/logs/v1.12.3
	poke "$logs/t1.nc_0_0.meta" 525 '\100' # the start of the fifth entry: record 2^46 of V
	run "$CISTERN" inspect "$logs"/t1.nc_0_*.meta
	says "V [70368744177664,1]+[1,1]"
	run timeout 60 "$CISTERN" recover "$logs"/t1.nc_0_*.meta --to "$WORK/far.nc"
	[ "$status" -eq 0 ] || says "File too large" # no file of most file systems can have it
}

@test "bblog: logs of runs with different numbers of ranks are not taken for one" {
	poke "$crash/t-crash.nc_0_1.meta" 24 '\5'
	exits 4 "$CISTERN" fsck "$crash"
	says "rank 1 of 5"
	says "the logs do not say the same number of ranks: some are of another run"
	exits 2 "$CISTERN" recover "$crash" --to "$WORK/never.nc"
	says "the logs do not say the same number of ranks"
	[ ! -e "$WORK/never.nc" ]
	exits 3 "$CISTERN" recover "$crash" --to "$WORK/forced.nc" --force
	says "missing: the logs of ranks 2-4 of 5"
	cmp "$WORK/forced.nc" "$right"
}

@test "bblog: where no entry fits, nothing is said to have been there already" {
	needs_program ncgen
	echo 'netcdf other { dimensions: x = 3 ; variables: int a(x) ; }' >"$WORK/other.cdl"
	ncgen -k classic -o "$WORK/other.nc" "$WORK/other.cdl"
	exits 3 "$CISTERN" recover "$crash" "$WORK/other.nc" --to "$WORK/new.nc"
	says "left out: rank 0, entry 0"
	refute grep -F "was there already" <<<"$output"
}

@test "bblog: an entry that was cancelled can be left out, one that does not fit is" {
	exits 0 "$CISTERN" recover "$crash" --to "$WORK/skip.nc" --skip 0:3 --skip 1:3
	says "12 entries of 2 ranks"
	says "2 skipped"
	cmp "$WORK/skip.nc" "$right"
	exits 2 "$CISTERN" recover "$crash" --to "$WORK/x.nc" --skip 0
	exits 2 "$CISTERN" recover "$crash" --to "$WORK/x.nc" --skip 0:1x
	for skip in 0:7 2:0; do
		exits 2 "$CISTERN" recover "$crash" --to "$WORK/x.nc" --skip 0:3 --skip "$skip"
		says "--skip $skip: there is no such entry in these logs; 'cistern inspect' lists them"
		[ ! -e "$WORK/x.nc" ]
	done
	poke "$crash/t-crash.nc_0_0.meta" $((112 + 40)) '\3'
	exits 3 "$CISTERN" recover "$crash" --to "$WORK/bounds.nc"
	says "rank 0, entry 0: it reaches beyond the bounds of its variable"
	exits 4 "$CISTERN" fsck "$crash"
	says "rank 0, entry 0: it reaches beyond the bounds of its variable"
}

@test "bblog: which file is meant is never guessed" {
	exits 2 "$CISTERN" recover "$crash"
	says "--to is missing; the logs are of /scratch/job421/t-crash.nc"
	mv "$crash/t-crash.nc" "$WORK/moved.nc"
	exits 1 "$CISTERN" recover "$crash" --to "$WORK/new.nc"
	says "which has the header, is not found"
	exits 0 "$CISTERN" recover "$crash" "$WORK/moved.nc" --to "$WORK/new.nc"
	cmp "$WORK/new.nc" "$right"
	exits 1 "$CISTERN" recover "$crash" "$WORK/moved.nc" --to "$WORK/logs/v1.12.3/t1.nc"
	says "is not the file of the logs"
	exits 2 "$CISTERN" recover "$crash" "$WORK/logs/v1.12.3" --to "$WORK/both.nc"
	says "--to must be a directory"
	cp "$crash/t-crash.nc_0_0.meta" "$crash/t-crash.nc_1_0.meta"
	exits 2 "$CISTERN" recover "$crash" "$WORK/moved.nc" --to "$WORK/new.nc"
	says "two openings"
	rm "$crash"/t-crash.nc_1_0.meta
	cp "$crash/t-crash.nc_0_0.meta" "$crash/t-crash.nc_0_7.meta"
	exits 2 "$CISTERN" recover "$crash" "$WORK/moved.nc" --to "$WORK/new.nc"
	says "two logs of one rank"
	exits 2 "$CISTERN" recover "$crash" --to "$WORK" --backing "$WORK"
	exits 2 "$CISTERN" recover "$WORK/moved.nc" --to "$WORK" --dry-run
}

@test "bblog: only one recovery of a file at a time, and a failed one leaves it as it was" {
	needs_program flock
	: >"$crash/.t-crash.nc.cistern-recover"
	exits 5 flock "$crash/.t-crash.nc.cistern-recover" "$CISTERN" recover "$crash" --to "$crash/t-crash.nc"
	says "by another process"
	cmp "$crash/t-crash.nc" "$golden/pnetcdf-bb-logs/v1.12.3-crash/t-crash.nc"
	fail_to_recover
	cmp "$crash/t-crash.nc" "$golden/pnetcdf-bb-logs/v1.12.3-crash/t-crash.nc"
	[ ! -e "$crash/.t-crash.nc.cistern-recover" ]
	exits 0 "$CISTERN" recover "$crash" --to "$crash/t-crash.nc"
	cmp "$crash/t-crash.nc" "$right"
}

# recover_late TO COMMAND...: a recovery that has opened its copy, and locks it (tests/lib/late_lock.c) when COMMAND is over, comes too late.
recover_late() {
	local shim=$top_builddir/tests/lib/late_lock.so runtime pid
	[ -e "$shim" ] || skip "tests/lib/late_lock.so is not built"
	runtime=$(ldd "$CISTERN" | awk '/lib(a|ub)san/ { printf "%s ", $3 }')
	rm -f "$WORK"/late.*
	LATE_LOCK=$WORK/late LD_PRELOAD=$runtime$shim "$CISTERN" recover "$crash" --to "$1" >"$WORK/said" 2>&1 3>&- &
	pid=$!
	wait_until 60 test -e "$WORK/late.asked"
	"${@:2}"
	: >"$WORK/late.go"
	status=0
	wait "$pid" || status=$?
	is "$status" 5
	is "$(find "$WORK" -name '.*cistern*')" ""
}

fail_to_recover() {
	(
		ulimit -f 0
		trap '' XFSZ
		exits 1 "$CISTERN" recover "$crash" --to "$crash/t-crash.nc"
	)
}

@test "bblog: a recovery that another one of the file was a moment before does nothing" {
	local before=$golden/pnetcdf-bb-logs/v1.12.3-crash/t-crash.nc
	recover_late "$crash/t-crash.nc" fail_to_recover
	cmp "$crash/t-crash.nc" "$before"
	recover_late "$WORK/new.nc" "$CISTERN" recover "$crash" --to "$WORK/new.nc"
	cmp "$WORK/new.nc" "$right"
	recover_late "$crash/t-crash.nc" touch "$crash/t-crash.nc"
	grep -q 'changed meanwhile' "$WORK/said"
	cmp "$crash/t-crash.nc" "$before"
	touch -d '2024-01-01 10:00' "$crash/t-crash.nc"
	recover_late "$crash/t-crash.nc" "$CISTERN" recover "$crash" --to "$crash/t-crash.nc"
	cmp "$crash/t-crash.nc" "$right"
}

@test "bblog: the result may be on another file system than what it is made of" {
	local elsewhere
	elsewhere=$(mktemp -d /dev/shm/cistern-XXXXXX) || skip "there is no /dev/shm"
	[ "$(stat -c %d "$elsewhere")" != "$(stat -c %d "$crash")" ] || { rmdir "$elsewhere"; skip "/dev/shm is not another file system"; }
	"$CISTERN" recover "$crash" --to "$elsewhere/new.nc" >"$WORK/said" 2>&1 || true
	mv "$elsewhere"/* "$WORK"
	rmdir "$elsewhere"
	cmp "$WORK/new.nc" "$right"
}

@test "bblog: fsck tells damage from what PnetCDF always leaves" {
	exits 0 "$CISTERN" fsck "$WORK/logs/v1.12.3-redef"
	says "num_entries was overwritten"
	says "6 whole entries: flushed before"
	exits 0 "$CISTERN" fsck --json "$WORK/logs/v1.15.0/tm-close.nc"
	python3 -c 'import json,sys; assert json.load(sys.stdin)["verdict"] == "clean"' <<<"$output"
	exits 0 "$CISTERN" fsck "$crash/t-crash.nc_0_0.meta"
	says "the logs of rank 1 of 2 are not among these"
	mv "$crash/t-crash.nc_0_0.data" "$WORK/data"
	exits 4 "$CISTERN" fsck "$crash"
	says "its data file is missing"
	printf NotADataFile >"$crash/t-crash.nc_0_0.data"
	exits 4 "$CISTERN" fsck "$crash"
	says "does not begin as one"
	exits 2 "$CISTERN" fsck "$crash" --rebuild-index
}

@test "bblog: fsck of logs whose netCDF file is gone looks at each entry by itself" {
	local dir=$WORK/logs/v1.12.3-crash
	rm "$dir"/*.nc
	exits 0 "$CISTERN" fsck "$dir"
	cp -r "$dir" "$WORK/short"
	truncate -s -8 "$WORK/short/t-crash.nc_0_0.data"
	exits 4 "$CISTERN" fsck "$WORK/short"
	says "the data log ends before its values do"
	# The second of seven entries gets a kind that there is none of: it and those behind it are lost, the first is not.
	second=$("$CISTERN" inspect --json "$dir" | jq '.pnetcdf_logs[0].logs[1].entries[1].offset')
	poke "$dir/t-crash.nc_0_1.meta" $((second + 8)) '\373'
	exits 4 "$CISTERN" fsck "$dir"
	says "byte $second: entry 1: it is of no known kind; lost from there on: 6 entries"
	is "$(grep -c DAMAGE: <<<"$output")" 2
}

@test "bblog: fsck --repair writes copies with a header that can be believed, and changes nothing else" {
	truncate -s -3 "$crash/t-crash.nc_0_0.meta"
	exits 4 "$CISTERN" fsck --repair "$crash"
	says "repaired: $crash/t-crash.nc_0_0.meta.repaired: a copy with a header as documented, and 6 entries"
	is "$(od -An -tu8 -j48 -N16 "$crash/t-crash.nc_0_0.meta.repaired" | tr -s ' ')" " 6 112"
	is "$(od -An -tu8 -j48 -N16 "$crash/t-crash.nc_0_1.meta.repaired" | tr -s ' ')" " 7 112"
	cmp "$crash/t-crash.nc_0_1.meta" "$golden/pnetcdf-bb-logs/v1.12.3-crash/t-crash.nc_0_1.meta"
	exits 0 "$CISTERN" fsck "$crash"/*.repaired
	exits 0 "$CISTERN" recover "$crash"/*.repaired --to "$WORK/repaired.nc"
	exits 4 "$CISTERN" fsck --repair "$crash"
	says "stays as it is"
}

@test "bblog: a repair that is killed leaves no copy that looks whole" {
	(
		ulimit -c 0 -f 0
		"$CISTERN" fsck --repair "$crash" >/dev/null
	) || true
	[ ! -e "$crash/t-crash.nc_0_0.meta.repaired" ]
	exits 0 "$CISTERN" fsck --repair "$crash"
	says "repaired: $crash/t-crash.nc_0_0.meta.repaired: a copy with a header as documented, and 7 entries"
	is "$(find "$crash" -name '*.new')" ""
}

@test "bblog: inspect names variables, requests and values" {
	exits 0 "$CISTERN" inspect "$crash"
	says "logs of 2 of 2 ranks"
	says "T [0,0]+[1,3] by [1,2]"
	says "V [0,0]+[1,1] and 1 more"
	exits 0 "$CISTERN" inspect "$crash/t-crash.nc"
	says "A [0,0]+[1,6]"
	rm "$crash/t-crash.nc"
	exits 0 "$CISTERN" inspect "$crash/t-crash.nc_0_1.meta"
	says "variable 3 [1,1]+[1,1]"
	says "missing: rank 0"
	poke "$crash/t-crash.nc_0_1.meta" $((112 + 8)) '\373'
	exits 4 "$CISTERN" inspect "$crash"
	says "of no known kind"
	exits 1 "$CISTERN" inspect "$WORK/no-such-thing"
}

@test "bblog: what inspect --json prints is what docs/inspect.schema.json says, of whole logs and of damaged ones" {
	local dir k=0 part
	for dir in "$WORK"/logs/v*; do "$CISTERN" inspect --json "$dir" >"$WORK/logs-$((k++)).json"; done
	poke "$crash/t-crash.nc_0_1.meta" $((112 + 8)) '\373'
	exits 4 "$CISTERN" inspect --json "$crash"
	echo "$output" | sed -n '/^{/,$p' >"$WORK/logs-wrong.json"
	rm "$WORK"/logs/v1.12.3-redef/*_0_0.data
	"$CISTERN" inspect --json "$WORK/logs/v1.12.3-redef" >"$WORK/logs-gone.json" || true
	for part in meta data; do
		truncate -s -30 "$WORK/logs/v1.12.3/"*_0_0.$part
		"$CISTERN" inspect --json "$WORK/logs/v1.12.3" >"$WORK/logs-short-$part.json" || true
	done
	fits "$WORK"/logs-*.json
	# Whatever the schema names has been seen.
	jq -r '.["$defs"] | (.logs, .logs_of_file, .log, .entry) | .properties | keys[]' "$top_srcdir/docs/inspect.schema.json" | sort -u >"$WORK/named"
	jq -r '.. | objects | keys[]' "$WORK"/logs-*.json | sort -u >"$WORK/seen"
	is "$(comm -3 "$WORK/named" "$WORK/seen" | xargs)" ""
	for change in 'del(.pnetcdf_logs[0].logs[0].rank)' '.pnetcdf_logs[0].logs[0].entries[0].kind = "vard"' '.note = 1'; do
		jq "$change" "$WORK/logs-0.json" >"$WORK/changed.json"
		refute fits "$WORK/changed.json"
	done
}

@test "bblog: the driver's hints are settings of a mount, from its variable and as options" {
	needs_fuse
	mkdir "$WORK/bb" "$WORK/bb2"
	printf '%s\n' "$WORK/bb/cistern $MNT" "$WORK/bb2/cistern $MNT" >>"$WORK/mounts"
	PNETCDF_HINTS="nc_burst_buf=enable;nc_burst_buf_dirname=$WORK/bb;nc_burst_buf_del_on_close=disable" \
		exits 0 "$CISTERN" mount "$BACKING" "$MNT"
	says "nc_burst_buf_del_on_close: disable has no meaning here"
	is "$(getfattr --only-values -n user.cistern.store "$MNT")" "$WORK/bb/cistern"
	exits 0 "$CISTERN" umount --wait "$MNT"
	exits 0 "$CISTERN" mount "$BACKING" "$MNT" -o "nc_burst_buf_dirname=$WORK/bb2,nc_burst_buf_flush_buffer_size=5M"
	is "$output" ""
	[ -e "$WORK/bb2/cistern/superblock" ]
	exits 0 "$CISTERN" umount --wait "$MNT"
	exits 2 "$CISTERN" mount "$BACKING" "$MNT" -o nc_burst_buf_overwrite=perhaps
	says "give one of disable|enable"
}

@test "bblog: logs are found where the hints had them put" {
	mkdir "$WORK/bb"
	mv "$crash"/*.meta "$crash"/*.data "$WORK/bb"
	PNETCDF_HINTS="nc_burst_buf_dirname=$WORK/bb" exits 0 "$CISTERN" recover "$crash/t-crash.nc" --to "$WORK/new.nc"
	cmp "$WORK/new.nc" "$right"
	exits 1 "$CISTERN" recover "$crash/t-crash.nc" --to "$WORK/other.nc"
}
