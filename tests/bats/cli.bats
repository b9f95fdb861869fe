#!/usr/bin/env bats
# SPDX-License-Identifier: GPL-3.0-or-later
#
# The command line, as far as it needs no mount: help, mistakes, exit statuses, settings, and the tools on stores that
# tests/lib/make-store made.

load ../lib/mount

bats_require_minimum_version 1.5.0

setup() {
	: "${CISTERN:?is set by make check}"
	make_store=${top_builddir:?}/tests/lib/make-store
	dir=$(mktemp -d "${BATS_TMPDIR:-/tmp}/cistern-cli-XXXXXX")
	mkdir "$dir/backing" "$dir/mnt"
	unset CISTERN_CONFIG "${!CISTERN_HIGH@}"
	export XDG_CONFIG_HOME=$dir/no-config
}

teardown() {
	rm -rf "$dir"
}

commands() {
	"$CISTERN" --help | sed -n '/^Commands:/,/^$/s/^  \([a-z]*\) .*/\1/p'
}

# Fails unless the last run ended with this status and said this on standard error, in one line.
said() {
	[ "$status" -eq "$1" ] || { echo "status $status, not $1: $output $stderr"; return 1; }
	[[ $stderr == *"$2"* ]] || { echo "said: $stderr"; return 1; }
}

# make_store ARGUMENT...: a store in $dir/store.
make_a_store() {
	[ -x "$make_store" ] || skip "make-store is not built"
	"$make_store" "$dir/store" "$dir/backing" "$@"
}

@test "--version and --help" {
	run --separate-stderr "$CISTERN" --version
	[ "$status" -eq 0 ] && [[ $output =~ ^cistern\ [0-9] ]]
	run --separate-stderr "$CISTERN" --help
	[ "$status" -eq 0 ] && [[ $output == *"umount"* ]] && [ -z "$stderr" ]
}

@test "no command at all is a mistake" {
	run --separate-stderr "$CISTERN"
	said 2 "Usage: cistern COMMAND"
}

@test "every command has help, the same by both ways" {
	local command
	[ "$(commands | wc -l)" -ge 12 ]
	for command in $(commands); do
		diff <("$CISTERN" help "$command") <("$CISTERN" "$command" --help)
		"$CISTERN" "$command" --help | grep -q '^Usage:'
		[ "$("$CISTERN" "$command" --help | sed '/^Examples/q; /^  cistern /d' | wc -L)" -le 80 ]
	done
}

@test "an unknown command suggests the nearest" {
	run --separate-stderr "$CISTERN" flsh
	said 2 "did you mean 'flush'?"
	run --separate-stderr "$CISTERN" unmount
	said 2 "did you mean 'umount'?"
	run --separate-stderr "$CISTERN" frobnicate
	said 2 "'cistern --help' lists them"
}

@test "every command refuses unknown options" {
	local command
	for command in $(commands); do
		run --separate-stderr "$CISTERN" "$command" --frobnicate
		said 2 "$command: unknown option '--frobnicate'"
		run --separate-stderr "$CISTERN" "$command" -Q
		said 2 "$command: unknown option '-Q'"
	done
}

@test "missing and superfluous operands" {
	local command
	for command in mount umount wait pause resume inspect fsck recover convert agent; do
		run --separate-stderr "$CISTERN" "$command"
		said 2 "is missing"
	done
	run --separate-stderr "$CISTERN" umount a b
	said 2 "'b' is one operand too many"
	run --separate-stderr "$CISTERN" wait --timeout
	said 2 "option '--timeout' needs a value"
	run --separate-stderr "$CISTERN" status --json=yes
	said 2 "takes no value"
	run --separate-stderr "$CISTERN" wait --timeout soon "$dir"
	said 2 "is no time"
	run --separate-stderr "$CISTERN" umount --timeout 3s "$dir"
	said 2 "goes with --wait"
}

@test "manual pages are those of this program" {
	local page name
	for page in "${top_srcdir:?}"/docs/man/cistern-*.1; do
		name=${page##*/cistern-}
		diff "$page" <("$CISTERN" help --man "${name%.1}")
	done
	for name in $(commands); do
		[ -e "$top_srcdir/docs/man/cistern-$name.1" ]
	done
	diff "$top_srcdir/docs/man/cistern.1" <("$CISTERN" help --man)
	diff "$top_srcdir/docs/man/cistern.conf.5" <("$CISTERN" config --man)
}

@test "a manual page has all that --help says, to the last word" {
	local name words num=0
	for name in $(commands); do
		num=$((num + 1))
		words=$("$CISTERN" "$name" --help | sed -n '/^Usage/,/^Options/p' | sed '1,/^$/d; /^Options/d' | tr -s '[:space:]' ' ')
		[ -n "$words" ] || { echo "$name"; return 1; }
		[[ "$("$CISTERN" help --man "$name" | sed '/^\.PP/d; s/\\&//g; s/\\e/\\/g; s/\\-/-/g' | tr -s '[:space:]' ' ')" == *"$words"* ]] ||
			{ echo "$name: $words"; return 1; }
	done
	[ "$num" -gt 10 ]
}

@test "output that cannot be written is an error" {
	[ -c /dev/full ] || skip "there is no /dev/full"
	run --separate-stderr bash -c '"$CISTERN" --help >/dev/full'
	said 1 "cannot write"
}

@test "config shows values and where they came from" {
	run --separate-stderr "$CISTERN" config
	[ "$status" -eq 0 ]
	[[ $output =~ high_water\ +=\ 70\ +\#\ default ]]
	[ "$("$CISTERN" config high_water reserve | paste -sd ' ')" = "70 64M" ]
	[ "$(CISTERN_HIGH_WATER=90 "$CISTERN" config high_water)" = 90 ]
	[ "$("$CISTERN" config -o high_water=80,store=/a\\,b store)" = "/a,b" ]
	echo 'capacity = 3G # some' >"$dir/conf"
	CISTERN_CONFIG=$dir/conf run --separate-stderr "$CISTERN" config
	[[ $output == *"capacity"*"3G"*"$dir/conf:1"* ]]
	"$CISTERN" config --json | python3 -c 'import json,sys; d=json.load(sys.stdin); assert d["verify"]["choices"] == "none|size|read|format" and d["reserve"]["origin"] == "default"'
}

@test "config shows what a mount of root's has for others, as the mount says it" {
	[ "$(id -u)" -eq 0 ] || skip "needs root"
	mkdir -p "$dir/backing" "$dir/mnt"
	is_shared yes
	is_shared no allow_other=no
	[[ $("$CISTERN" config) =~ allow_other\ +=\ yes\ +\#\ default\ for\ root ]]
}

# is_shared yes|no [OPTIONS]
is_shared() {
	[ "$("$CISTERN" config ${2:+-o "$2"} allow_other)" = "$1" ]
	[[ $("$CISTERN" mount -v --fake "$dir/backing" "$dir/mnt" --store "$dir/store" ${2:+-o "$2"} 2>&1) == *"allow_other=$1"* ]]
}

@test "wrong settings are refused with the place" {
	run --separate-stderr "$CISTERN" config -o high_water=200
	said 2 "high_water"
	run --separate-stderr "$CISTERN" config -o frob=1
	said 2 "frob"
	run --separate-stderr "$CISTERN" config frob
	said 2 "there is no setting 'frob'"
	echo 'frob = 3' >"$dir/conf"
	CISTERN_CONFIG=$dir/conf run --separate-stderr "$CISTERN" mount "$dir/backing" "$dir/mnt" --store "$dir/store"
	said 2 "$dir/conf:1"
	CISTERN_HIGH_WATER=many run --separate-stderr "$CISTERN" config
	said 2 "CISTERN_HIGH_WATER"
}

# refused_everywhere OPTIONS TEXT...: by config, and by a mount that is checked only.
refused_everywhere() {
	local options=$1 text
	shift
	mkdir -p "$dir/backing" "$dir/mnt"
	for text in "$@"; do
		run --separate-stderr "$CISTERN" config -o "$options"
		said 2 "$text"
		run --separate-stderr "$CISTERN" mount --fake "$dir/backing" "$dir/mnt" --store "$dir/store" -o "$options"
		said 2 "$text"
	done
	[ ! -e "$dir/store" ]
}

@test "a layout that does not exist, and settings that do not go together, are refused before a mount" {
	refused_everywhere 'layout=*.nc=netcdf5' "layout: '*.nc=netcdf5'" "one of canonical, netcdf4, blob-variable, blob-process"
	refused_everywhere 'layout=netcdf4,chunk=time:1/lev' "chunk: 'lev'" "DIMENSION:NUMBER"
	refused_everywhere 'low_water=90' "low_water=90 (-o) is above high_water=70 (default)"
	CISTERN_LAYOUT=blob run --separate-stderr "$CISTERN" config
	said 2 "CISTERN_LAYOUT: layout: 'blob'"
	"$CISTERN" config -o 'layout=*.nc=netcdf4,chunk=time:1/lev:10' chunk
	"$CISTERN" mount --fake "$dir/backing" "$dir/mnt" --store "$dir/store" -o 'layout=*.nc=netcdf4,chunk=time:1/T:lev:10'
}

@test "mount checks before it touches anything" {
	run --separate-stderr "$CISTERN" mount "$dir/backing" "$dir/mnt"
	said 2 "--store DIR"
	run --separate-stderr "$CISTERN" mount "$dir/nothing" "$dir/mnt" --store "$dir/store"
	said 1 "backing directory $dir/nothing: No such file or directory; create it first"
	run --separate-stderr "$CISTERN" mount "$dir/backing" "$dir/nothing" --store "$dir/store"
	said 1 "mount point $dir/nothing: No such file or directory; create it first"
	run --separate-stderr "$CISTERN" mount "$dir/backing" "$dir/mnt" --store "$dir/no/store"
	said 1 "the directory above it must exist"
	: >"$dir/file"
	run --separate-stderr "$CISTERN" mount "$dir/file" "$dir/mnt" --store "$dir/store"
	said 1 "is not a directory"
	run --separate-stderr "$CISTERN" mount "$dir/backing" "$dir/file" --store "$dir/store"
	said 1 "is not a directory"
	run --separate-stderr "$CISTERN" mount "$dir/backing" "$dir/mnt" --store "$dir/file"
	said 1 "is not a directory"
	[ ! -e "$dir/store" ]
}

@test "mount refuses places that contain each other" {
	mkdir "$dir/backing/sub" "$dir/mnt/sub"
	run --separate-stderr "$CISTERN" mount "$dir/backing" "$dir/mnt" --store "$dir/mnt/sub"
	said 2 "lies in the mount point"
	run --separate-stderr "$CISTERN" mount "$dir/backing" "$dir/mnt/sub" --store "$dir/mnt"
	said 2 "lies in the store"
	run --separate-stderr "$CISTERN" mount "$dir/backing" "$dir/mnt" --store "$dir/backing/sub"
	said 2 "lies in the backing directory"
	run --separate-stderr "$CISTERN" mount "$dir/backing" "$dir/backing/sub" --store "$dir/store"
	said 2 "contain itself"
	ln -s "$dir/mnt" "$dir/also"
	run --separate-stderr "$CISTERN" mount "$dir/backing" "$dir/mnt" --store "$dir/also/sub"
	said 2 "lies in the mount point"
}

# A daemon that is none: what it says on the ready pipe is in the environment.
fake_daemon() {
	mkdir -p "$dir/libexec"
	cat >"$dir/libexec/cistern-fs" <<'END'
#!/bin/bash
printf '%s\n' "$@" >"$FAKE_ARGUMENTS"
[ "$5" = --ready-fd ] || { echo foreground; exit 0; }
[ -z "$FAKE_SAYS" ] || printf '%b' "$FAKE_SAYS" >&"$6"
exit "${FAKE_STATUS:-0}"
END
	chmod +x "$dir/libexec/cistern-fs"
	export CISTERN_LIBEXEC=$dir/nothing:$dir/libexec FAKE_ARGUMENTS=$dir/arguments
}

@test "mount starts the daemon and passes its word on" {
	fake_daemon
	FAKE_SAYS='ok\n' run --separate-stderr "$CISTERN" mount "$dir/backing" "$dir/mnt" --store "$dir/store" -o high_water=71
	said 0 ""
	[ -z "$stderr" ] && [ -z "$output" ]
	[ "$(sed -n 1,3p "$dir/arguments" | paste -sd ' ')" = "$dir/backing $dir/mnt -o" ]
	sed -n 4p "$dir/arguments" | grep -q "store=$dir/store,.*high_water=71,"
	FAKE_SAYS='ok recovered: 3 files\n' run --separate-stderr "$CISTERN" mount "$dir/backing" "$dir/mnt" --store "$dir/store"
	said 0 "$dir/mnt: recovered: 3 files"
	FAKE_SAYS='E 5 the store is in use\n' FAKE_STATUS=5 run --separate-stderr "$CISTERN" mount "$dir/backing" "$dir/mnt" --store "$dir/store"
	said 5 "cistern: the store is in use"
	FAKE_SAYS='E 99 nonsense\n' FAKE_STATUS=1 run --separate-stderr "$CISTERN" mount "$dir/backing" "$dir/mnt" --store "$dir/store"
	said 1 "cistern: nonsense"
	FAKE_STATUS=7 run --separate-stderr "$CISTERN" mount "$dir/backing" "$dir/mnt" --store "$dir/store"
	said 1 "ended with status 7 and without a word"
	run --separate-stderr "$CISTERN" mount --foreground "$dir/backing" "$dir/mnt" --store "$dir/store"
	[ "$status" -eq 0 ] && [ "$output" = foreground ]
}

@test "mount says where it looked for the daemon" {
	cp "$CISTERN" "$dir/cistern"
	CISTERN_LIBEXEC=$dir run --separate-stderr "$dir/cistern" mount "$dir/backing" "$dir/mnt" --store "$dir/store"
	[ "$status" -eq 0 ] && skip "cistern-fs is installed"
	said 1 "cistern-fs was not found in CISTERN_LIBEXEC=$dir"
}

@test "mount can be called as mount(8) calls its helpers" {
	fake_daemon
	export FAKE_SAYS='ok\n'
	ln -s "$(realpath "$CISTERN")" "$dir/mount.fuse.cistern"
	run --separate-stderr "$dir/mount.fuse.cistern" "$dir/backing" "$dir/mnt" -n -o "rw,nosuid,nodev,x-some=1,store=$dir/store,high_water=72"
	said 0 ""
	grep -q "high_water=72" "$dir/arguments"
	run --separate-stderr "$CISTERN" "$dir/backing" "$dir/mnt" -o "rw,dev,suid,store=$dir/store,high_water=73"
	said 0 ""
	grep -q "high_water=73" "$dir/arguments"
	run --separate-stderr "$CISTERN" "$dir/backing" "$dir/mnt" -o "store=$dir/store,frob"
	said 2 "frob"
	run --separate-stderr "$CISTERN" "$dir/backing" "$dir/mnt" -s -o "store=$dir/store,frob"
	said 0 ""
	rm "$dir/arguments"
	run --separate-stderr "$CISTERN" "$dir/backing" "$dir/mnt" -f -v -o "store=$dir/store"
	said 0 "cistern-fs $dir/backing $dir/mnt -o"
	[ ! -e "$dir/arguments" ]
	run --separate-stderr "$CISTERN" "$dir/backing"
	said 2 "BACKING MOUNTPOINT"
}

@test "what is neither a store nor in a mount" {
	local command
	for command in wait pause resume status inspect; do
		run --separate-stderr "$CISTERN" "$command" "$dir"
		said 1 "$dir is neither a store nor in a cistern mount: name a store's directory, a mount point, or a path"
		run --separate-stderr "$CISTERN" "$command" "$dir/nothing"
		said 1 "$dir/nothing"
	done
	echo text >"$dir/text"
	run --separate-stderr "$CISTERN" inspect "$dir/text"
	said 1 "'cistern fsck' looks into a file"
	run --separate-stderr "$CISTERN" recover "$dir/text" --to "$dir/out"
	said 1 "$dir/text: not a directory: a store is a directory"
	run --separate-stderr "$CISTERN" fsck "$dir"
	said 1 "name a store's directory"
	run --separate-stderr "$CISTERN" umount "$dir/mnt"
	said 1 "is not in a cistern mount: name a mount point"
	run --separate-stderr "$CISTERN" flush "$dir/mnt"
	said 1 "is not in a cistern mount"
	run --separate-stderr "$CISTERN" flush "$dir/nothing"
	said 1 "No such file"
	run --separate-stderr "$CISTERN" fsck "$dir"
	said 1 "$dir"
	run --separate-stderr "$CISTERN" recover "$dir" --to "$dir/backing"
	said 1 "$dir"
}

@test "status of a store without a daemon says what is dirty and what to do" {
	make_a_store
	run --separate-stderr "$CISTERN" status "$dir/store"
	said 0 ""
	[[ $output == *"no daemon; backing directory $dir/backing"* ]]
	[[ $output == *"cistern recover $dir/store --to $dir/backing"* ]]
	"$CISTERN" status --json "$dir/store" | python3 -c 'import json,sys
d=json.load(sys.stdin)
assert d["pid"] is None and d["dirty_files"] >= 5 and d["log_bytes"] == 262144 + 4096 and d["private_files"] == 1, d
assert d["saved_bytes"] == 65536 + 32768 and d["closed_in_order"], d'
}

@test "wait on a store without a daemon tells that files are left" {
	make_a_store
	run --separate-stderr "$CISTERN" wait "$dir/store"
	said 3 "cistern recover $dir/store --to $dir/backing"
	run --separate-stderr "$CISTERN" pause "$dir/store"
	said 1 ""
}

@test "inspect lists files, ranges and overlaps" {
	make_a_store
	run --separate-stderr "$CISTERN" inspect "$dir/store"
	said 0 ""
	[[ $output == *"out.nc"* && $output == *"sub/sparse"* && $output == *"private.dat"* && $output != *"gone.tmp"* ]]
	"$CISTERN" inspect --json "$dir/store" | python3 -c 'import json,sys
d=json.load(sys.stdin); f={x["path"]: x for x in d["files"]}
assert sorted(f) == [".", "out.nc", "private.dat", "sub", "sub/link", "sub/sparse"], f
assert f["out.nc"]["overwritten_bytes"] == 65536 and f["out.nc"]["log_bytes"] == 262144 and f["out.nc"]["state"] == "new"
assert f["out.nc"]["writes"] == 5 and f["private.dat"]["private"] and f["private.dat"]["size"] == 12288
assert f["sub/sparse"]["size"] == (1 << 20) + 4096 and f["sub/link"]["type"] == "symlink"
assert d["totals"]["log_bytes"] == 262144 + 4096 and d["totals"]["history_complete"], d["totals"]'
}

@test "inspect maps one file" {
	make_a_store
	run --separate-stderr "$CISTERN" inspect "$dir/store" /sub/sparse
	said 0 ""
	[[ $output == *"hole"* && $output == *"#|"* ]]
	"$CISTERN" inspect --json "$dir/store" out.nc | python3 -c 'import json,sys
r=json.load(sys.stdin)["file"]["ranges"]
at=0
for x in r:
    assert x["off"] == at and x["where"] == "log" and x["len"] > 0, x
    at += x["len"]
assert at == 262144, at'
	"$CISTERN" inspect --json "$dir/store" private.dat | python3 -c 'import json,sys
f=json.load(sys.stdin)["file"]; assert f["map"] == "#" * 60 and f["ranges"][0]["where"] == "private", f'
	run --separate-stderr "$CISTERN" inspect "$dir/store" nothing
	said 1 "the store knows nothing of it"
}

@test "fsck finds a sound store sound, after a crash too, and changes nothing" {
	make_a_store crash
	local before
	# Where nobody else leaves anything.
	mkdir "$dir/tmp"
	export TMPDIR=$dir/tmp
	before=$(cd "$dir/store" && find . -type f ! -path './index/*' -exec sha256sum {} + | sort)
	run --separate-stderr "$CISTERN" fsck "$dir/store"
	said 0 ""
	[[ $output != *DAMAGE* && $output == *"ok: the store is sound"* ]]
	[ "$before" = "$(cd "$dir/store" && find . -type f ! -path './index/*' -exec sha256sum {} + | sort)" ]
	"$CISTERN" fsck --json "$dir/store" | python3 -c 'import json,sys
d=json.load(sys.stdin); assert d["verdict"] == "clean" and d["damage"] == 0 and d["findings"], d'
	[ -z "$(ls -A "$TMPDIR")" ]
}

@test "fsck names the file and the bytes of a damaged payload" {
	make_a_store
	local where
	where=$("$CISTERN" inspect --json "$dir/store" out.nc | python3 -c 'import json,sys
r=json.load(sys.stdin)["file"]["ranges"][0]; print("%08u.seg %d" % (r["segment"], r["segment_off"]))')
	printf X | dd of="$dir/store/segment/${where% *}" bs=1 seek=$((${where#* } + 100)) conv=notrunc status=none
	run --separate-stderr "$CISTERN" fsck "$dir/store"
	said 4 ""
	[[ $output =~ DAMAGE:\ file\ out.nc\ bytes\ 0-[0-9]+:\ .*checksum ]]
	run --separate-stderr "$CISTERN" fsck --repair "$dir/store"
	said 4 ""
	rm "$dir/store"/segment/*.prv
	run --separate-stderr "$CISTERN" fsck "$dir/store"
	said 4 ""
	[[ $output == *"file private.dat"*"is missing"* ]]
}

@test "fsck cuts a torn tail and drops what a crash left" {
	make_a_store crash
	tear_journal "$dir/store"
	: >"$dir/store/segment/00000098.seg"
	: >"$dir/store/segment/00000099.seg" # the highest stays: its number is not given again
	run --separate-stderr "$CISTERN" fsck "$dir/store"
	said 0 ""
	[[ $output == *"note:"*"torn record"* && $output == *"no file refers to"* ]]
	run --separate-stderr "$CISTERN" fsck --repair "$dir/store"
	said 0 ""
	[[ $output == *"repaired: journal: cut a torn tail"* ]]
	[ ! -e "$dir/store/segment/00000098.seg" ]
	[ -e "$dir/store/segment/00000099.seg" ]
	run --separate-stderr "$CISTERN" fsck "$dir/store"
	said 0 ""
	[[ $output != *"note:"* ]]
}

@test "fsck rebuilds a lost index" {
	make_a_store
	local before
	before=$("$CISTERN" inspect --json "$dir/store" | sed '/"seq"/d')
	rm -r "$dir/store/index"
	run --separate-stderr "$CISTERN" fsck "$dir/store"
	said 0 ""
	[[ $output == *"index: missing"* ]]
	run --separate-stderr "$CISTERN" fsck --rebuild-index "$dir/store"
	said 0 ""
	[[ $output == *"repaired: index"* ]]
	[ "$before" = "$("$CISTERN" inspect --json "$dir/store" | sed '/"seq"/d')" ]
}

@test "fsck keeps damage in the middle of the journal unless it is told to cut there" {
	make_a_store
	local journal
	journal=$(find "$dir/store/journal" -name '*.jnl' | sort | head -n 1)
	rm -r "$dir/store/index"
	printf 'XXXX' | dd of="$journal" bs=1 seek=$((4096 + 400)) conv=notrunc status=none
	run --separate-stderr "$CISTERN" fsck "$dir/store"
	said 4 ""
	[[ $output == *"DAMAGE: journal: journal/"*"at byte"* ]]
	run --separate-stderr "$CISTERN" fsck --repair "$dir/store"
	said 4 ""
	[[ $output == *"--discard-after-damage"* ]]
	[ ! -e "$dir/store/lost" ]
	run --separate-stderr "$CISTERN" fsck --repair --discard-after-damage "$dir/store"
	said 0 ""
	[ -n "$(find "$dir/store/lost" -type f -size +0)" ]
	run --separate-stderr "$CISTERN" fsck "$dir/store"
	said 0 ""
	run --separate-stderr "$CISTERN" fsck --discard-after-damage "$dir/store"
	said 2 "goes with --repair"
}

# damage_journal OFFSET: of its first file, and the index is gone.
damage_journal() {
	rm -r "$dir/store/index"
	printf 'XXXX' | dd of="$dir/store/journal/00000001.jnl" bs=1 seek="$1" conv=notrunc status=none
}

@test "fsck does not cut off what a killed daemon had acknowledged, though it was never synced" {
	make_a_store unsynced
	damage_journal $((4096 + 400))
	run --separate-stderr "$CISTERN" fsck --repair "$dir/store"
	said 4 ""
	[[ $output == *"none of them was ever synced"* && $output == *"--discard-after-damage"* ]]
	[ ! -e "$dir/store/lost" ]
}

@test "fsck does not cut where nothing would be left" {
	make_a_store
	local before
	before=$(ls "$dir/store/segment")
	damage_journal 80
	run --separate-stderr "$CISTERN" fsck --repair --discard-after-damage "$dir/store"
	said 4 ""
	[[ $output == *"not repaired: not one record"* ]]
	rm -r "$dir/store/journal"
	run --separate-stderr "$CISTERN" fsck --repair --discard-after-damage "$dir/store"
	said 4 ""
	[[ $output == *"has no record, but there are segments"*"not repaired: not one record"* ]]
	[ "$before" = "$(ls "$dir/store/segment")" ]
}

@test "fsck keeps what it cuts off beside what it has cut off before" {
	make_a_store
	local first
	"$CISTERN" fsck --rebuild-index "$dir/store"
	damage_journal $((4096 + 800))
	"$CISTERN" fsck --repair --discard-after-damage "$dir/store"
	first=$(cd "$dir/store/lost" && sha256sum 00000002.jnl-0)
	damage_journal $((4096 + 400))
	"$CISTERN" fsck --repair --discard-after-damage "$dir/store"
	[ "$first" = "$(cd "$dir/store/lost" && sha256sum 00000002.jnl-0)" ]
	[ -s "$dir/store/lost/00000002.jnl-0.2" ]
}

@test "fsck: what it cuts off of a node of a job is for the others as if power was lost" {
	make_a_store job
	damage_journal $((4096 + 400))
	exits 0 "$CISTERN" fsck --repair --discard-after-damage "$dir/store"
	[ -e "$dir/store/lost-power" ]
	ls "$dir/store/segment"
	[ -n "$(find "$dir/store/segment" -name '[0-9]*[1-9][0-9][0-9][0-9][0-9][0-9][0-9].seg')" ] # numbers are left out
}

# Without what only a journal that goes back to the beginning can tell.
files_of() {
	"$CISTERN" inspect --json "$1" | python3 -c 'import json,sys
for f in json.load(sys.stdin)["files"]: print([f.get(k) for k in ("path", "type", "state", "size", "log_bytes", "private")])'
}

# The index stands for more than the journal then, and is what is left of it.
@test "fsck of a store that has lost files of its journal deletes nothing, and goes on from the index when it is told to" {
	local what before segments options
	for what in newest all; do
		rm -rf "$dir/store"
		make_a_store
		"$CISTERN" fsck --rebuild-index "$dir/store"
		before=$(files_of "$dir/store")
		segments=$(ls "$dir/store/segment")
		if [ $what = all ]; then
			rm -r "$dir/store/journal"
		else
			: >"$(find "$dir/store/journal" -name '*.jnl' | sort | tail -n 1)"
		fi
		for options in "" --repair --rebuild-index; do
			run --separate-stderr "$CISTERN" fsck $options "$dir/store"
			said 4 ""
			[[ $output == *"DAMAGE: journal: "*"were lost"* && $output != *"removes them"* ]]
		done
		[[ $output == *"not repaired: with --repair --discard-after-damage"* ]]
		run --separate-stderr "$CISTERN" recover "$dir/store" --to "$dir/backing"
		said 4 "were lost"
		[ "$segments" = "$(ls "$dir/store/segment")" ]
		run --separate-stderr "$CISTERN" fsck --repair --discard-after-damage "$dir/store"
		said 0 ""
		[[ $output == *"repaired: journal: begun anew behind the index"* ]]
		[ "$(ls "$dir/store/lost")" = "" ] || [[ $output == *"what was left of it"* ]]
		[ "$(ls "$dir/store/lost")" != "" ] || [[ $output != *"what was left of it"* ]]
		[ "$before" = "$(files_of "$dir/store")" ]
		rm -r "$dir/store/index"
		[ "$before" = "$(files_of "$dir/store")" ]
		run --separate-stderr "$CISTERN" fsck "$dir/store"
		said 0 ""
	done
}

@test "fsck does not cut the journal where the index has what is damaged in it" {
	make_a_store
	local before
	before=$(files_of "$dir/store")
	printf 'XXXX' | dd of="$dir/store/journal/00000001.jnl" bs=1 seek=$((4096 + 400)) conv=notrunc status=none
	run --separate-stderr "$CISTERN" fsck --repair --discard-after-damage "$dir/store"
	said 0 ""
	[[ $output == *"repaired: journal: begun anew behind the index"*"what was left of it behind record "*" is in $dir/store/lost"* ]]
	[ -n "$(find "$dir/store/lost" -type f -size +0)" ]
	[ "$before" = "$(files_of "$dir/store")" ]
	run --separate-stderr "$CISTERN" fsck "$dir/store"
	said 0 ""
}

@test "a damaged checkpoint beside a good index is written anew by fsck --repair, which fsck says, and nothing is lost" {
	make_a_store
	local before checkpoint
	: >"$(find "$dir/store/journal" -name '*.jnl' | sort | tail -n 1)"
	"$CISTERN" fsck --repair --discard-after-damage "$dir/store"
	before=$(files_of "$dir/store")
	checkpoint=$(find "$dir/store/journal" -name '*.ckp')
	printf 'XXXX' | dd of="$checkpoint" bs=1 seek=$(($(stat -c %s "$checkpoint") / 2)) conv=notrunc status=none
	run --separate-stderr "$CISTERN" fsck "$dir/store"
	said 4 ""
	[[ $output == *"DAMAGE: journal: journal/"*".ckp"*"'cistern fsck --repair $dir/store' writes a new one, and loses nothing"* ]]
	run --separate-stderr "$CISTERN" fsck --repair "$dir/store"
	said 0 ""
	[[ $output == *"repaired: journal: its checkpoint was written anew from the index; nothing is lost"* ]]
	[ "$before" = "$(files_of "$dir/store")" ]
	rm -r "$dir/store/index"
	[ "$before" = "$(files_of "$dir/store")" ]
	run --separate-stderr "$CISTERN" fsck "$dir/store"
	said 0 ""
}

@test "fsck of a journal of which a checkpoint is left says so" {
	make_a_store
	: >"$(find "$dir/store/journal" -name '*.jnl' | sort | tail -n 1)"
	"$CISTERN" fsck --repair --discard-after-damage "$dir/store"
	[ -n "$(find "$dir/store/journal" -name '*.ckp')" ]
	local journal
	for journal in "$dir"/store/journal/*.jnl; do
		printf 'XXXX' | dd of="$journal" bs=1 seek=80 conv=notrunc status=none
	done
	rm -r "$dir/store/index"
	run --separate-stderr "$CISTERN" fsck --repair --discard-after-damage "$dir/store"
	said 4 ""
	[[ $output == *"not repaired: not one record of the journal behind its checkpoint can be had"* ]]
}

@test "a store whose journal was lost behind its checkpoint is damaged, to every command" {
	make_a_store
	: >"$(find "$dir/store/journal" -name '*.jnl' | sort | tail -n 1)"
	"$CISTERN" fsck --repair --discard-after-damage "$dir/store"
	: >"$(find "$dir/store/journal" -name '*.jnl' | sort | tail -n 1)"
	rm -r "$dir/store/index"
	run --separate-stderr "$CISTERN" status "$dir/store"
	said 4 "were lost"
	run --separate-stderr "$CISTERN" recover "$dir/store" --to "$dir/backing"
	said 4 "were lost"
	run --separate-stderr "$CISTERN" fsck "$dir/store"
	said 4 ""
	[[ $output == *"DAMAGE: journal: ends with "*"were lost"* && $output != *"run "*fsck* ]]
}

@test "fsck and recover refuse a store in use" {
	make_a_store
	python3 - "$dir/store/lock" "$dir/ready" "$dir/end" <<'END' &
import fcntl, os, struct, sys, time
lock = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT)
# byte 0, exclusive, as an open-file-description lock: F_OFD_SETLK
fcntl.fcntl(lock, 37, struct.pack("hhqqi", fcntl.F_WRLCK, os.SEEK_SET, 0, 1, 0))
fcntl.lockf(lock, fcntl.LOCK_EX, 1, 1)
open(sys.argv[2], "w").close()
deadline = time.monotonic() + 300
while not os.path.exists(sys.argv[3]) and time.monotonic() < deadline:
    time.sleep(0.02)
END
	local holder=$! tries=0
	while [ ! -e "$dir/ready" ] && [ $((tries += 1)) -le 3000 ]; do sleep 0.02; done
	run --separate-stderr "$CISTERN" fsck "$dir/store"
	said 5 "in use by process $holder"
	run --separate-stderr "$CISTERN" fsck --repair "$dir/store"
	said 5 "in use"
	run --separate-stderr "$CISTERN" recover "$dir/store" --to "$dir/backing"
	said 5 "in use"
	: >"$dir/end"
	wait "$holder"
	run --separate-stderr "$CISTERN" fsck "$dir/store"
	said 0 ""
}

@test "recover hands the store to the agent" {
	make_a_store
	run --separate-stderr "$CISTERN" recover "$dir/store"
	said 2 "--to DIR is missing; the store was mounted over $dir/backing"
	run --separate-stderr "$CISTERN" recover "$dir/store" --to "$dir/nothing"
	said 1 "create it first"
	mkdir "$dir/libexec"
	printf '#!/bin/bash\nprintf "%%s " "$@"\nexit 3\n' >"$dir/libexec/cistern-agent"
	chmod +x "$dir/libexec/cistern-agent"
	CISTERN_LIBEXEC=$dir/libexec run --separate-stderr "$CISTERN" recover "$dir/store" --to "$dir/backing" --verify=read --json
	said 3 ""
	[ "$output" = "recover --to $dir/backing --verify read --json -- $dir/store " ]
}
