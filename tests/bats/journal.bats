#!/usr/bin/env bats
# SPDX-License-Identifier: GPL-3.0-or-later
#
# The journal, read by tests/golden/read_log.py, which was written from docs/format/store.md alone, and by our own decoder.

setup() {
	command -v python3 >/dev/null || skip "python3 is not installed (Debian: python3)"
	store=$BATS_TEST_TMPDIR/store
	dump=$top_builddir/tests/unit/dump-journal
	mkdir "$store"
	"$dump" --sample "$store"
}

golden() {
	python3 "$top_srcdir/tests/golden/read_log.py" "$@"
}

# Both readers: the same lines and the same verdict.
same() {
	local ours=0 theirs=0
	"$dump" "$store" >"$BATS_TEST_TMPDIR/ours" 2>"$BATS_TEST_TMPDIR/said" || ours=$?
	golden "$store" >"$BATS_TEST_TMPDIR/theirs" 2>>"$BATS_TEST_TMPDIR/said" || theirs=$?
	cat "$BATS_TEST_TMPDIR/said"
	diff "$BATS_TEST_TMPDIR/ours" "$BATS_TEST_TMPDIR/theirs"
	echo "ours $ours, theirs $theirs, expected $1"
	[ "$ours" -eq "$1" ] && [ "$theirs" -eq "$1" ]
}

# poke FILE OFFSET: changes a byte.
poke() {
	printf '\xa5' | dd of="$1" bs=1 seek="$2" conv=notrunc status=none
}

@test "journal: the document's reader and ours read the same records" {
	same 0
	[ "$(wc -l <"$BATS_TEST_TMPDIR/ours")" -gt 1000 ]
	tail -n 1 "$BATS_TEST_TMPDIR/ours" | grep '"whole":true'
	cut -d '"' -f 6 "$BATS_TEST_TMPDIR/ours" | sort -u >"$BATS_TEST_TMPDIR/types"
	grep -x write "$BATS_TEST_TMPDIR/types" && grep -x drained "$BATS_TEST_TMPDIR/types"
}

@test "journal: both read the same checkpoint" {
	"$dump" --checkpoint "$store" | head -n -1 >"$BATS_TEST_TMPDIR/ours"
	golden --checkpoint "$store" | head -n -1 >"$BATS_TEST_TMPDIR/theirs"
	[ "$(wc -l <"$BATS_TEST_TMPDIR/ours")" -eq 100 ]
	diff "$BATS_TEST_TMPDIR/ours" "$BATS_TEST_TMPDIR/theirs"
}

@test "journal: both end at a torn tail" {
	last=$store/journal/00000003.jnl
	truncate -s $(($(stat -c %s "$last") - 40)) "$last"
	same 0
	tail -n 1 "$BATS_TEST_TMPDIR/ours" | grep '"whole":false,"damaged":false'
}

@test "journal: both refuse damage in the middle of a file" {
	poke "$store/journal/00000003.jnl" 4300
	same 4
}

@test "journal: both refuse damage in an earlier file" {
	poke "$store/journal/00000001.jnl" 5000
	same 4
}

@test "journal: both refuse a lost file" {
	rm "$store/journal/00000002.jnl"
	same 4
}
