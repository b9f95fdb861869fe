#!/usr/bin/env bats
# SPDX-License-Identifier: GPL-3.0-or-later
#
# Names that somebody else takes in the backing directory: what Cistern does not know is not overwritten, and what cannot have its name stands
# beside it, once, however often a drain is repeated or killed.

load ../lib/mount
load ../lib/job

# beside NAME [DIR]: where what cannot have the name is; it must be one.
beside() {
	local found
	found=("${2:-$BACKING}/$1".cistern-*)
	[ "${#found[@]}" -eq 1 ] && [ -e "${found[0]}" ] || { echo "beside $1: ${found[*]}"; return 1; }
	echo "${found[0]}"
}

# listed PATH: under which name the manifest has it.
listed() {
	jq -r --arg path "$1" '.beside[] | select(.path == $path).as' "${2:-$STORE/manifest.json}"
}

@test "a new file whose name somebody else takes: both are kept, and it is said" {
	needs_program jq
	mount_cistern -o drain=unmount
	echo ours >"$MNT/f"
	echo theirs >"$BACKING/f"
	exits 7 "$CISTERN" flush --wait --mount "$MNT"
	says "under another name"
	is "$(cat "$BACKING/f")" theirs
	is "$(cat "$(beside f)")" ours
	is "$(listed f)" "$(basename "$(beside f)")"
	is "$(cat "$MNT/f")" ours
	is "$(ls -A "$MNT")" f
	exits 7 "$CISTERN" flush --wait --mount "$MNT"
	echo more >>"$MNT/f"
	exits 7 "$CISTERN" umount --wait "$MNT"
	is "$(cat "$BACKING/f")" theirs
	is "$(cat "$(beside f)")" "ours
more"
	exits 7 "$CISTERN" wait "$STORE"
	is "$(status_of dirty_files "$STORE")" 0
	is "$(status_of misplaced_names "$STORE")" 0
	exits 0 "$CISTERN" status --check "$STORE"
	mount_cistern
	is "$(cat "$MNT/f")" "ours
more"
	rm "$BACKING/f"
	flush
	is "$(cat "$BACKING/f")" "ours
more"
	is "$(ls -A "$BACKING")" f
	is "$(listed f)" ""
	umount_wait
}

@test "umount --wait of a bind mount, whose daemon goes on, says it, too" {
	needs_root "bind mounts"
	mount_cistern -o drain=unmount
	mkdir "$WORK/bound"
	mount --bind "$MNT" "$WORK/bound"
	undo "umount -l $WORK/bound"
	echo ours >"$MNT/f"
	echo theirs >"$BACKING/f"
	exits 7 "$CISTERN" umount --wait "$WORK/bound"
	says "under another name"
	exits 7 "$CISTERN" umount --wait "$MNT"
}

@test "names of all kinds that somebody else takes, with everything" {
	needs_program jq
	local kind name long
	long=$(printf 'n%.0s' {1..255})
	mkdir "$BACKING/old"
	echo known >"$BACKING/known"
	echo other >"$BACKING/other"
	mount_cistern -o drain=unmount
	echo file >"$MNT/over-dir"
	echo file >"$MNT/over-link"
	echo file >"$MNT/over-fifo"
	ln -s target "$MNT/link"
	echo twice >"$MNT/one"
	ln "$MNT/one" "$MNT/two"
	mkdir "$MNT/dir" "$MNT/merged"
	echo in >"$MNT/dir/in"
	echo in >"$MNT/merged/in"
	mv "$MNT/old" "$MNT/new"
	mv "$MNT/known" "$MNT/moved"
	echo long >"$MNT/$long"
	echo known >"$MNT/other"

	mkdir "$BACKING/over-dir" "$BACKING/merged" "$BACKING/new"
	mkfifo "$BACKING/over-fifo"
	ln -s elsewhere "$BACKING/over-link"
	for name in link two dir moved "$long" merged/in; do echo theirs >"$BACKING/$name"; done
	cp -a "$BACKING" "$DIRECT/theirs"

	exits 7 "$CISTERN" flush --wait --mount "$MNT"
	exits 7 "$CISTERN" umount --wait "$MNT"
	is "$(find "$BACKING" -name '*.cistern-*' -not -path '*.cistern-*/*' | wc -l)" 10
	[ -d "$BACKING/over-dir" ] && [ -p "$BACKING/over-fifo" ]
	is "$(readlink "$BACKING/over-link")" elsewhere
	for name in link two dir moved "$long" merged/in; do is "$(cat "$BACKING/$name")" theirs; done
	[ -d "$BACKING/new" ]
	for name in over-dir over-link over-fifo; do is "$(cat "$(beside "$name")")" file; done
	is "$(readlink "$BACKING"/link.cistern-*)" target
	is "$(stat -c %i "$BACKING/one")" "$(stat -c %i "$(beside two)")"
	is "$(cat "$(beside dir)/in")" in
	is "$(cat "$(beside moved)")" known
	[ -d "$(beside new)" ]
	is "$(cat "$BACKING"/nnn*~*.cistern-*)" long
	is "$(cat "$(beside in "$BACKING/merged")")" in
	is "$(cat "$BACKING/other")" known
	[ ! -e "$BACKING/known" ] && [ ! -e "$BACKING/old" ]
	is "$(jq '.beside | length' "$STORE/manifest.json")" 10
}

@test "what somebody else has put in the place of a known file is neither overwritten nor removed" {
	local name
	for name in removed replaced over dir; do echo old >"$BACKING/$name"; done
	mount_cistern -o drain=unmount
	for name in removed replaced over dir; do touch "$MNT/$name"; done
	rm "$MNT/removed" "$MNT/dir"
	mkdir "$MNT/dir"
	echo ours >"$MNT/new"
	mv "$MNT/new" "$MNT/over"
	rm "$MNT/replaced"
	echo ours >"$MNT/replaced"
	for name in removed replaced over dir; do
		echo theirs >"$WORK/theirs"
		mv "$WORK/theirs" "$BACKING/$name"
	done
	exits 7 "$CISTERN" umount --wait "$MNT"
	for name in removed replaced over dir; do is "$(cat "$BACKING/$name")" theirs; done
	is "$(cat "$(beside over)")" ours
	is "$(cat "$(beside replaced)")" ours
	[ -d "$(beside dir)" ]
	[ ! -e "$BACKING"/removed.cistern-* ]
}

@test "a known file that was rewritten here, and replaced there: both are kept; what cannot be made whole stays in the store" {
	local data name
	for data in auto log; do
		for name in whole part; do echo old >"$BACKING/$name"; done
		mount_cistern -o "drain=unmount,data=$data" "$STORE-$data"
		echo ours >"$MNT/whole"
		echo more >>"$MNT/part"
		for name in whole part; do
			echo theirs >"$WORK/theirs"
			mv "$WORK/theirs" "$BACKING/$name"
		done
		exits 3 "$CISTERN" umount --wait "$MNT"
		says "part: "
		for name in whole part; do is "$(cat "$BACKING/$name")" theirs; done
		is "$(cat "$(beside whole)")" ours
		[ ! -e "$BACKING"/part.cistern-* ]
		rm "$BACKING"/*
	done
}

@test "a file that was written through, and one that is converted, stand beside their names, too" {
	mount_cistern -o drain=unmount,data=log,capacity=16M,full_timeout=50ms
	random_file "$WORK/big" 40000000
	cp "$WORK/big" "$MNT/f"
	[ "$(status_of through_bytes)" -gt 0 ]
	echo theirs >"$BACKING/f"
	exits 7 "$CISTERN" umount --wait "$MNT"
	is "$(cat "$BACKING/f")" theirs
	cmp "$(beside f)" "$WORK/big"
	is "$(ls -A "$BACKING" | wc -l)" 2
	no_leftovers "$BACKING"

	needs_program ncgen ncdump
	[ -x "${CISTERN_LIBEXEC%%:*}/cistern-nc4" ] || skip "cistern-nc4 is not built"
	rm "$BACKING"/*
	mount_cistern -o drain=unmount,layout=netcdf4 "$STORE-2"
	printf 'netcdf c { dimensions: x = 4 ; variables: int v(x) ; data: v = 1, 2, 3, 4 ; }' >"$WORK/c.cdl"
	ncgen -3 -o "$WORK/c.nc" "$WORK/c.cdl"
	cp "$WORK/c.nc" "$MNT/c.nc"
	echo theirs >"$BACKING/c.nc"
	exits 7 "$CISTERN" umount --wait "$MNT"
	is "$(cat "$BACKING/c.nc")" theirs
	[[ "$(ncdump -k "$(beside c.nc)")" == netCDF-4* ]]
	ncdump -v v "$(beside c.nc)" | grep "v = 1, 2, 3, 4"
	is "$(ls -A "$BACKING" | wc -l)" 2
}

@test "a file that is replaced, renamed or removed after it was put beside" {
	mount_cistern -o drain=unmount
	for name in a b c; do echo ours >"$MNT/$name"; done
	for name in a b c; do echo theirs >"$BACKING/$name"; done
	exits 7 "$CISTERN" flush --wait --mount "$MNT"
	rm "$MNT/a"
	mv "$MNT/b" "$MNT/free"
	echo new >"$WORK/new"
	cp "$WORK/new" "$MNT/new"
	mv "$MNT/new" "$MNT/c"
	exits 7 "$CISTERN" umount --wait "$MNT"
	for name in a b c; do is "$(cat "$BACKING/$name")" theirs; done
	is "$(cat "$BACKING/free")" ours
	is "$(cat "$(beside c)")" new
	is "$(find "$BACKING" -type f | wc -l)" 5
}

@test "killed at every step, a drain puts each file beside its name once" {
	local steps=0 name
	for steps in $(seq 1 40); do
		rm -rf "$BACKING" "$STORE"
		mkdir "$BACKING"
		CISTERN_AGENT_ABORT_AFTER=$steps mount_cistern -o drain=unmount
		echo ours >"$MNT/f"
		ln "$MNT/f" "$MNT/g"
		mkdir "$MNT/d"
		echo ours >"$MNT/d/in"
		for name in f g d; do echo theirs >"$BACKING/$name"; done
		timeout 60 "$CISTERN" flush --wait --mount "$MNT" >"$WORK/out" 2>&1 3>&- || true
		kill_daemon
		fusermount3 -u "$MNT" 2>/dev/null || umount -l "$MNT"
		for name in f g d; do is "$(cat "$BACKING/$name")" theirs; done
		mount_cistern -o drain=unmount
		is "$(cat "$MNT/f" "$MNT/g" "$MNT/d/in" | tr -d '\n')" oursoursours
		exits 7 "$CISTERN" umount --wait "$MNT"
		for name in f g d; do is "$(cat "$BACKING/$name")" theirs; done
		is "$(find "$BACKING" -name '*.cistern-*' | wc -l)" 3
		is "$(cat "$(beside f)" "$(beside g)" "$(beside d)/in" | tr -d '\n')" oursoursours
		grep -q "ended with status 137" "$WORK/out" || break
	done
	[ "$steps" -gt 8 ] && [ "$steps" -lt 40 ]
}

@test "recovery overwrites nothing either, in place, again, or elsewhere" {
	local name
	mount_cistern -o drain=unmount
	echo ours >"$MNT/f"
	ln "$MNT/f" "$MNT/g"
	ln -s target "$MNT/l"
	kill_daemon
	fusermount3 -u "$MNT" 2>/dev/null || umount -l "$MNT"
	for name in f l; do echo theirs >"$BACKING/$name"; done
	mkdir "$WORK/to"
	for name in f l; do echo theirs >"$WORK/to/$name"; done
	for _ in 1 2; do
		exits 7 "$CISTERN" recover "$STORE" --to "$WORK/to" --force
		says "becomes"
		for name in f l; do is "$(cat "$WORK/to/$name")" theirs; done
		is "$(cat "$(beside f "$WORK/to")" "$WORK/to/g" | tr -d '\n')" oursours
		is "$(readlink "$WORK"/to/l.cistern-*)" target
		is "$(ls -A "$WORK/to" | wc -l)" 5
	done
	for _ in 1 2; do
		exits 7 "$CISTERN" recover "$STORE" --to "$BACKING"
		for name in f l; do is "$(cat "$BACKING/$name")" theirs; done
		is "$(cat "$(beside f)" "$BACKING/g" | tr -d '\n')" oursours
		is "$(ls -A "$BACKING" | wc -l)" 5
	done
	mount_cistern
	is "$(cat "$MNT/f")" ours
	exits 7 "$CISTERN" umount --wait "$MNT"
	is "$(ls -A "$BACKING" | wc -l)" 5
}

# ---- jobs

# job_beside NAME: as beside.
job_beside() {
	beside "$1" "$WORK/b"
}

@test "a job: what somebody else takes is kept, whoever made the file, and no drain runs in circles" {
	needs_program jq
	local name sessions
	start_job 2 drain=unmount
	echo ours >"$WORK/m0/zero"
	echo ours >"$WORK/m1/one"
	mkdir "$WORK/m1/dir"
	echo ours >"$WORK/m1/dir/in"
	ln -s target "$WORK/m1/link"
	echo first >"$WORK/m0/both"
	echo more >>"$WORK/m1/both"
	echo plain >"$WORK/m1/plain"
	for name in zero one dir link both; do echo theirs >"$WORK/b/$name"; done
	exits 7 "$CISTERN" flush --wait --mount "$WORK/m1"
	says "under another name"
	is "$(jq '.beside | length' "$WORK/s0/manifest.json")" 5
	exits 7 "$CISTERN" flush --wait --mount "$WORK/m0"
	for name in zero one dir link both; do is "$(cat "$WORK/b/$name")" theirs; done
	for name in zero one; do is "$(cat "$(job_beside "$name")")" ours; done
	is "$(cat "$(job_beside both)" | tr '\n' -)" first-more-
	is "$(cat "$(job_beside dir)/in")" ours
	is "$(readlink "$WORK"/b/link.cistern-*)" target
	is "$(cat "$WORK/b/plain")" plain
	for name in 0 1; do
		is "$(cat "$WORK/m$name/zero" "$WORK/m$name/one" "$WORK/m$name/dir/in" | tr -d '\n')" oursoursours
		is "$(cat "$WORK/m$name/both" | tr '\n' -)" first-more-
		is "$(readlink "$WORK/m$name/link")" target
	done
	sessions=$(grep -c "drain-end" "$WORK/s0/cistern.log")
	[ "$sessions" -lt 200 ]
	echo again >>"$WORK/m0/one"
	exits 7 "$CISTERN" flush --wait --mount "$WORK/m1"
	is "$(cat "$(job_beside one)" | tr '\n' -)" ours-again-
	rm "$WORK/b/dir" "$WORK/b/both" "$WORK/b/one"
	exits 7 "$CISTERN" flush --wait --mount "$WORK/m1"
	is "$(cat "$WORK/b/dir/in")" ours
	is "$(cat "$WORK/b/both" | tr '\n' -)" first-more-
	is "$(jq -r '.beside[].path' "$WORK/s0/manifest.json" | sort | tr '\n' ' ')" "link zero "
	"$CISTERN" umount "$WORK/m0" 3>&-
	exits 7 "$CISTERN" umount --wait "$WORK/m1"
	exits 7 "$CISTERN" wait "$WORK/s0"
	is "$(ls -A "$WORK/b" | wc -l)" 8
}

@test "a job whose drains are killed at one step or another: each file stands beside its name once" {
	local steps name
	for steps in 1 2 4 6 8 11; do
		rm -rf "$WORK/b" "$WORK"/s[01]
		CISTERN_AGENT_ABORT_AFTER=$steps start_job 2 drain=unmount
		mkdir "$WORK/m1/dir"
		for name in zero dir/in; do echo ours >"$WORK/m0/$name"; done
		for name in one dir/other; do echo ours >"$WORK/m1/$name"; done
		echo first >"$WORK/m0/both"
		echo more >>"$WORK/m1/both"
		sync "$WORK"/m[01]/{zero,one,both,dir/in,dir/other}
		for name in zero one both dir; do echo theirs >"$WORK/b/$name"; done
		timeout 60 "$CISTERN" flush --wait --mount "$WORK/m1" >"$WORK/out" 2>&1 3>&- || true
		kill_job
		for name in zero one both dir; do is "$(cat "$WORK/b/$name")" theirs; done
		start_job 2 drain=unmount
		exits 7 "$CISTERN" flush --wait --mount "$WORK/m1"
		for name in zero one both dir; do is "$(cat "$WORK/b/$name")" theirs; done
		for name in zero one dir/in dir/other; do is "$(cat "$WORK/m0/$name")" ours; done
		is "$(cat "$(job_beside zero)" "$(job_beside one)" "$(job_beside dir)/in" "$(job_beside dir)/other" | tr -d '\n')" oursoursoursours
		is "$(cat "$(job_beside both)" | tr '\n' -)" first-more-
		"$CISTERN" umount "$WORK/m0" 3>&-
		exits 7 "$CISTERN" umount --wait "$WORK/m1"
		is "$(ls -A "$WORK/b" | wc -l)" 8
		wait_until 60 no_agents
	done
}

@test "two jobs that make the same file, one node each: one has the name, the other stands beside it" {
	mkdir "$WORK/m2"
	mount_cistern -o drain=unmount
	mount_cistern -o drain=unmount "$WORK/store2" "$WORK/m2"
	echo one >"$MNT/f"
	echo two >"$WORK/m2/f"
	exits 0 "$CISTERN" umount --wait "$MNT"
	exits 7 "$CISTERN" umount --wait "$WORK/m2"
	is "$(cat "$BACKING/f")" one
	is "$(cat "$(beside f)")" two
}

@test "a dead job is recovered beside what somebody else has taken, twice, in place and elsewhere" {
	local name
	start_job 2 drain=unmount
	echo ours >"$WORK/m0/zero"
	echo ours >"$WORK/m1/one"
	echo first >"$WORK/m0/both"
	echo more >>"$WORK/m1/both"
	sync "$WORK/m0/zero" "$WORK/m1/one" "$WORK/m0/both" "$WORK/m1/both"
	kill_job
	for name in zero one both; do echo theirs >"$WORK/b/$name"; done
	for _ in 1 2; do
		exits 7 "$CISTERN" recover "$WORK/s0" "$WORK/s1" --to "$WORK/b"
		for name in zero one both; do is "$(cat "$WORK/b/$name")" theirs; done
		for name in zero one; do is "$(cat "$(job_beside "$name")")" ours; done
		is "$(cat "$(job_beside both)" | tr '\n' -)" first-more-
		is "$(ls -A "$WORK/b" | wc -l)" 6
	done
}
