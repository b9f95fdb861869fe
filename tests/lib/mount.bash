# SPDX-License-Identifier: GPL-3.0-or-later
#
# For bats files that mount. Each test has a folder of its own with BACKING, STORE, MNT and DIRECT (a plain directory to compare
# with); whatever it mounts is unmounted, and every daemon it started is ended by its pid, also when the test fails. After
# that the logs of daemons and of a job's agents are read: an assertion or a sanitizer's report there fails the test, whatever it thought.

: "${CISTERN:?is set by make check}"
export PYTHONPATH=${top_srcdir:?}/tests/lib PYTHONDONTWRITEBYTECODE=1

# ---- set up and take down

cistern_setup() {
	# Short paths: a socket's is limited. Others may pass through, for the tests with several users.
	WORK=$(mktemp -d "${TMPDIR:-/tmp}/cistern-XXXXXX")
	chmod 755 "$WORK"
	BACKING=$WORK/backing STORE=$WORK/store MNT=$WORK/mnt DIRECT=$WORK/direct
	mkdir "$BACKING" "$MNT" "$DIRECT"
	: >"$WORK/mounts"
	: >"$WORK/undo"
	unset "${!CISTERN_HIGH@}" "${!CISTERN_DRAIN@}" CISTERN_CONFIG CISTERN_AGENT_ABORT_AFTER
	export XDG_CONFIG_HOME=$WORK/no-config
	MOUNT_OPTIONS=
}

# Skips aloud where nobody can mount.
needs_fuse() {
	[ -x "$CISTERN" ] || skip "cistern is not built"
	[ -c /dev/fuse ] || skip "there is no /dev/fuse"
	[ -r /dev/fuse ] && [ -w /dev/fuse ] || skip "no right to open /dev/fuse"
	if [ "$(id -u)" -ne 0 ] && ! command -v fusermount3 >/dev/null; then
		skip "fusermount3 is not installed (Debian: fuse3)"
	fi
}

needs_root() {
	[ "$(id -u)" -eq 0 ] || skip "needs root: $1"
}

needs_program() {
	local name
	for name in "$@"; do
		command -v "$name" >/dev/null || skip "$name is not installed"
	done
}

# python_with MODULE: the first python that has it, else the one that is first in the path.
python_with() {
	local name
	for name in python3 /usr/bin/python3; do
		"$name" -c "import $1" 2>/dev/null && { echo "$name"; return; }
	done
	echo python3
}

# needs_built PROGRAM: sets the variable named after it (tests/parity/fsx: fsx).
needs_built() {
	[ -x "${top_builddir:?}/$1" ] || skip "$1 is not built"
}

# Commands for the end of the test, last one first.
undo() {
	printf '%s\n' "$*" >>"$WORK/undo"
}

cistern_teardown() {
	local store mnt pid log bad=0
	[ -n "${WORK:-}" ] && [ -d "$WORK" ] || return 0
	# A job's agents (tests/lib/job.bash) end last: without them its daemons would wait for each other.
	jobs -p | while read -r pid; do [ "$pid" = "${AGENTS:-}" ] || kill "$pid" 2>/dev/null; done
	while read -r store mnt; do
		release_mount "$mnt"
	done <"$WORK/mounts"
	while read -r store mnt; do
		end_daemon "$store" "$mnt"
		look_at_log "$store/cistern.log" || bad=1
	done < <(sort -u "$WORK/mounts")
	tac "$WORK/undo" >"$WORK/undo.sh"
	bash "$WORK/undo.sh" >&2 || true
	for log in "$WORK"/{,*/}agents{,.before}.log; do
		look_at_log "$log" || bad=1
	done
	[ -n "${KEEP:-}" ] || rm -rf --one-file-system "$WORK" || true
	return "$bad"
}

setup() {
	cistern_setup
	needs_fuse
}

teardown() {
	cistern_teardown
}

is_mounted() {
	grep -q " $1 fuse.cistern " /proc/mounts
}

release_mount() {
	local i
	for i in 1 2 3; do
		is_mounted "$1" || return 0
		fusermount3 -u -q "$1" 2>/dev/null || umount "$1" 2>/dev/null || fusermount3 -u -z -q "$1" || umount -l "$1"
	done
}

# The daemons whose command line names this mount point; there is no other way to know one that died before it could say its pid.
daemon_pids() {
	local dir
	for dir in $(grep -lazsE -- "$1([/,]|\$)" /proc/[0-9]*/cmdline); do
		dir=${dir%/cmdline}
		if grep -qs '^cistern' "$dir/comm"; then echo "${dir#/proc/}"; fi
	done
}

end_daemon() {
	local pid
	wait_until 5 no_daemon "$1" || true
	for pid in $(daemon_pids "$WORK"); do
		echo "ending process $pid, which is still there: $(tr '\0' ' ' <"/proc/$pid/cmdline")" >&2
		kill -KILL "$pid" 2>/dev/null || true
	done
}

no_daemon() {
	[ -z "$(daemon_pids "$1")" ]
}

# look_at_log LOG: nothing in it speaks of a crash. A launcher tells which signal has ended a process, and 9 and 15 may be a test's. It has an
# assertion of its own, which fails when others have ended it.
look_at_log() {
	local words='[Aa]ssert|BUG|[Pp]anic|AddressSanitizer|UndefinedBehavior|runtime error:|LeakSanitizer|Segmentation|signal:? (6|7|8|11)\b'
	[ -e "$1" ] || return 0
	if grep -vE '^\[(mpiexec|proxy).*assert \(' "$1" | grep -E "$words"; then
		echo "the log $1 has suspicious words, above"
		return 1
	fi
}

# ---- other users; not root's

other=65534
by_other=(setpriv "--reuid=$other" "--regid=$other" --clear-groups)

# as UID COMMAND...
as() {
	local uid=$1
	shift
	setpriv --reuid="$uid" --regid="$uid" --clear-groups "$@"
}

# Ordinary users may mount, as on most systems; on others for as long as the test lasts, and for one test at a time: the other's end would take that
# away.
needs_user_mounts() {
	needs_root "a second user"
	needs_program setpriv fusermount3 flock
	[ -u "$(command -v fusermount3)" ] || skip "fusermount3 is not set-user-id root"
	exec {user_mounts}</dev
	flock -w 600 "$user_mounts" || { echo "another test keeps /dev/fuse"; return 1; }
	if ! "${by_other[@]}" test -w /dev/fuse; then
		mknod -m 666 "$WORK/fuse" c 10 229 && mount --bind "$WORK/fuse" /dev/fuse || skip "/dev/fuse is not for ordinary users here"
		undo "umount -l /dev/fuse"
		"${by_other[@]}" test -w /dev/fuse || skip "/dev/fuse is not for ordinary users here, nor is one in $WORK"
	fi
}

# copy_programs: CISTERN and CISTERN_LIBEXEC are copies that everybody can reach.
copy_programs() {
	mkdir "$WORK/programs"
	cp -L "$CISTERN" "${CISTERN_LIBEXEC%%:*}"/cistern-{fs,agent,mpi-agent} "$WORK/programs" 2>/dev/null || [ -x "$WORK/programs/cistern-agent" ]
	chmod 755 "$WORK/programs" "$WORK"/programs/*
	CISTERN=$WORK/programs/cistern CISTERN_LIBEXEC=$WORK/programs
}

# ---- doing and waiting

# wait_until SECONDS COMMAND...: as soon as COMMAND succeeds; fails when the time is over.
wait_until() {
	local end=$((SECONDS + $1))
	shift
	until "$@"; do
		[ "$SECONDS" -lt "$end" ] || { echo "waited in vain for: $*" >&2; return 1; }
		sleep 0.05
	done
}

# leads_to LINK TARGET
leads_to() {
	[ "$(readlink "$1")" = "$2" ]
}

# refute COMMAND...: COMMAND must fail ("!" does not end a test).
refute() {
	if "$@"; then
		echo "succeeded, but must not: $*" >&2
		return 1
	fi
}

# exits STATUS COMMAND...: and keeps what it printed in $output.
exits() {
	local wanted=$1 status=0
	shift
	output=$("$@" 2>&1 3>&-) || status=$?
	[ "$status" -eq "$wanted" ] || { echo "status $status, not $wanted, of: $*"; echo "$output"; return 1; }
}

# fits FILE...: each is what docs/inspect.schema.json says that inspect --json prints.
fits() {
	local file
	for file; do
		python3 "$top_srcdir/tests/lib/check_schema.py" "$top_srcdir/docs/inspect.schema.json" <"$file" || { echo "$file"; return 1; }
	done
}

# says TEXT: the output of the last exits has it.
says() {
	[[ $output == *"$1"* ]] || { echo "nothing of '$1' in: $output"; return 1; }
}

# is A B: two words are equal.
is() {
	[ "$1" = "$2" ] || { echo "'$1' should be '$2'"; return 1; }
}

# no_leaks COMMAND...: what the libraries below MPI leave to the end of a process is not ours to free.
no_leaks() {
	ASAN_OPTIONS=${ASAN_OPTIONS:+$ASAN_OPTIONS:}detect_leaks=0 "$@"
}

# ---- the mount

# mount_cistern [-o OPTIONS] [STORE [MNT [BACKING]]]: MOUNT_OPTIONS apply to all.
mount_cistern() {
	local options=${MOUNT_OPTIONS:-}
	if [ "${1:-}" = -o ]; then
		options=${options:+$options,}$2
		shift 2
	fi
	local store=${1:-$STORE} mnt=${2:-$MNT} backing=${3:-$BACKING}
	printf '%s %s\n' "$store" "$mnt" >>"$WORK/mounts"
	"$CISTERN" mount "$backing" "$mnt" --store "$store" ${options:+-o "$options"} 3>&- || return
	is_mounted "$mnt"
}

daemon_pid() {
	"$CISTERN" status --json "${1:-$MNT}" | jq -er .pid
}

# The end of the mount, of its daemon, and of everything being in BACKING.
umount_wait() {
	local pids
	pids=$(daemon_pids "${1:-$MNT}")
	"$CISTERN" umount --wait --timeout 10m "${1:-$MNT}" 3>&- || return
	refute is_mounted "${1:-$MNT}" || return
	wait_until 60 gone $pids
}

flush() {
	"$CISTERN" flush --wait --timeout 10m --mount "$MNT" "$@" 3>&-
}

all_drained() {
	[ "$(status_of dirty_files)" = 0 ]
}

# The number that status says of the mount.
status_of() {
	"$CISTERN" status --json "${2:-$MNT}" | jq -r ".$1"
}

# Kills the daemon as a crash would, and waits for its end.
kill_daemon() {
	local pid
	pid=$(daemon_pid "${1:-$MNT}") || return
	kill -KILL "$pid"
	wait_until 60 gone "$pid"
}

# gone PID...: a zombie whom nobody waits for is gone as well; not one whose other threads still end, and hold what it had open. (Such a one has no
# command line any more.)
gone() {
	local pid
	for pid; do
		[ ! -e "/proc/$pid" ] || [ -z "$(grep -LEs '^State:.[ZX]' /proc/"$pid"/task/*/status)" ] || return
	done
}

# ---- comparing

# What find sees of a tree, one line each; WHAT: "times" with mtime to the nanosecond.
tree_of() {
	local times=
	[ "${2:-}" = times ] && times=' %T@'
	(cd "$1" && find . \( -type d -printf "%P d %m %U %G$times\n" \) -o \
		-printf "%P %y %m %U %G %s %n %l$times\n" | LC_ALL=C sort)
	if command -v getfattr >/dev/null; then
		(cd "$1" && find . -print0 | LC_ALL=C sort -z | xargs -0 getfattr -h -d -m '^user\.[^c]' 2>/dev/null) || true
	fi
}

# same_word A B: so are the outputs of two commands. Two that have failed have said nothing, which is not the same.
same_word() {
	[ -n "$1" ] || { echo "nothing is said"; return 1; }
	diff <(echo "$1") <(echo "$2")
}

# same_trees A B [times]: names, types, modes, owners, sizes, links, targets, xattrs, and every byte.
same_trees() {
	diff <(tree_of "$1" "${3:-}") <(tree_of "$2" "${3:-}") && diff -r --no-dereference "$1" "$2"
}

# Nothing that belongs to the drain is left behind.
no_leftovers() {
	[ -d "$1" ] || { echo "no directory $1"; return 1; }
	is "$(find "$1" -name '.cistern-*' | wc -l)" 0
}

# random_file FILE BYTES [SEED]: the same bytes for the same seed, and none of them a hole.
random_file() {
	openssl enc -aes-128-ctr -nosalt -K "$(printf '%032x' "${3:-1}")" -iv 0 </dev/zero 2>/dev/null | head -c "$2" >"$1"
}

# make_loop NAME BYTES: an ext4 of its own, mounted at $WORK/NAME. Skips where that cannot be had.
make_loop() {
	needs_root "a file system of its own size"
	truncate -s "$2" "$WORK/$1.img"
	mkfs.ext4 -q -F -m 0 -O ^has_journal "$WORK/$1.img" || skip "mkfs.ext4 does not work"
	mkdir -p "$WORK/$1"
	mount -o loop "$WORK/$1.img" "$WORK/$1" || skip "no loop devices"
	undo "umount -l $WORK/$1"
}

# make_tmpfs NAME BYTES
make_tmpfs() {
	needs_root "a tmpfs of its own size"
	mkdir -p "$WORK/$1"
	mount -t tmpfs -o "size=$2" tmpfs "$WORK/$1" || skip "no tmpfs can be mounted"
	undo "umount -l $WORK/$1"
}

# tear_journal STORE: a torn record, behind the last good one, or over the end of that if it ends in zeros. (The journal is
# preallocated with zeros or cut to what is used.)
tear_journal() {
	python3 - "$(find "$1/journal" -name '*.jnl' | sort | tail -n 1)" <<'END'
import sys
with open(sys.argv[1], "r+b") as f:
    data = f.read().rstrip(b"\0")
    f.seek((len(data) + 7) // 8 * 8)
    f.write(b"CISR torn" * 5)
END
}

# crc32c FILE [OFFSET:LENGTH...]: of the ranges, or of all.
crc32c() {
	python3 - "$@" <<'END'
import sys
from crc32c import crc32c
data = open(sys.argv[1], "rb").read()
ranges = [tuple(map(int, r.split(":"))) for r in sys.argv[2:]] or [(0, len(data))]
print("%08x" % crc32c(b"".join(data[off:off + num] for off, num in ranges)))
END
}
