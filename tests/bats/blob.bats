#!/usr/bin/env bats
# SPDX-License-Identifier: GPL-3.0-or-later
#
# Who wrote what.

load ../lib/mount

# written_by: "offset process" of all writes in the store's journal, as docs/format/store.md has it.
written_by() {
	python3 "$top_srcdir/tests/golden/read_log.py" "$STORE" |
		python3 -c 'import json, sys
for line in sys.stdin:
    rec = json.loads(line)
    if rec.get("type") == "write":
        print(rec["off"], rec["writer"])'
}

@test "the log knows which process wrote what: threads are one, those that open the same file are two" {
	needs_program python3
	mount_cistern -o data=log
	python3 - "$MNT/file" >"$WORK/expected" <<-'END'
		import os, sys, threading
		fd = os.open(sys.argv[1], os.O_CREAT | os.O_RDWR, 0o644)
		os.pwrite(fd, b"a" * 10, 0)
		thread = threading.Thread(target=os.pwrite, args=(fd, b"b" * 10, 100))
		thread.start()
		thread.join()
		print(0, os.getpid())
		print(100, os.getpid(), flush=True)
		child = os.fork()
		if child == 0:
		    own = os.open(sys.argv[1], os.O_WRONLY)
		    os.pwrite(own, b"c" * 10, 200)
		    os._exit(0)
		os.waitpid(child, 0)
		print(200, child)
	END
	written_by >"$WORK/got"
	diff "$WORK/expected" "$WORK/got"
	kill_daemon
	"$CISTERN" fsck "$STORE"
	mount_cistern -o data=log
	umount_wait
	is "$(stat -c %s "$BACKING/file")" 210
}
