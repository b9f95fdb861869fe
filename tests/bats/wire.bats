#!/usr/bin/env bats
# SPDX-License-Identifier: GPL-3.0-or-later
#
# What the daemon and the agent take from the socket between them: frames that are whole and yet make no sense. They are made
# here from format/wire/wire.h's description alone.

load ../lib/mount

setup() {
	cistern_setup
	needs_program python3
}

# wire CODE: Python with frame(type, fields), fields(body), take(socket), and the names of what is used here.
wire() {
	python3 -c 'import os, socket, struct, sys
REPLY, STATUS_GET, FLUSH, BEGIN = 1, 2, 3, 9
STATUS, TEXT, PATH, SESSION, SEQ, FILTER, OPTIONS, SKIP, OLDEST, NEWEST = 1, 2, 3, 4, 7, 8, 9, 65, 122, 123
from crc32c import crc32c
def field(tag, value):
    if isinstance(value, int):
        return struct.pack("<HBq", tag, 2 if tag == STATUS else 1, value)
    return struct.pack("<HBI", tag, 3, len(value)) + value
def frame(kind, *list):
    body = b"".join(field(*f) for f in list)
    return struct.pack("<4sHHII", b"CWR1", 1, kind, len(body), crc32c(body)) + body
def exactly(sock, num):
    data = b""
    while len(data) < num:
        more = sock.recv(num - len(data))
        assert more, "the other side closed the connection"
        data += more
    return data
def take(sock):
    _, _, kind, num, _ = struct.unpack("<4sHHII", exactly(sock, 16))
    body, at, found = exactly(sock, num), 0, {}
    while at < num:
        tag, value = struct.unpack_from("<HB", body, at)
        if value == 3:
            size = struct.unpack_from("<I", body, at + 3)[0]
            found[tag] = body[at + 7:at + 7 + size]
            at += 7 + size
        else:
            found[tag] = struct.unpack_from("<q", body, at + 3)[0]
            at += 11
    return kind, found
sock = socket.socket(socket.AF_UNIX)
'"$1" "${@:2}"
}

@test "flush: a path that is no string is refused, and nothing is drained" {
	needs_fuse
	mount_cistern -o drain=unmount
	echo one >"$MNT/one"
	echo two >"$MNT/two"
	wire '
sock.connect(sys.argv[1])
for bad in (b"one\0two", b"x" * 70000, 7):
    for fields in ([(PATH, bad)], [(PATH, b"one"), (PATH, bad)]):
        sock.sendall(frame(FLUSH, *fields))
        kind, reply = take(sock)
        assert kind == REPLY and reply[STATUS] == -74 and b"path %d of the request" % len(fields) in reply[TEXT], reply
sock.sendall(frame(FLUSH, (PATH, b"./one/")))
assert take(sock)[1][STATUS] == 0' "$STORE/ctl.sock"
	wait_until 60 test -e "$BACKING/one"
	[ ! -e "$BACKING/two" ]
	umount_wait
}

# begin_with FIELDS TEXT: the agent is told to begin with these fields; it must give up, saying TEXT.
begin_with() {
	mkdir -p "$WORK/dead"
	rm -f "$WORK/dead/ctl.sock"
	wire '
sock.bind(sys.argv[1] + ".new")
sock.listen()
os.rename(sys.argv[1] + ".new", sys.argv[1])
peer = sock.accept()[0]
assert take(peer)[0] == BEGIN
given = dict([(STATUS, 0), (OLDEST, 1), (NEWEST, 1), (SESSION, 1), (SEQ, 1), (PATH, b"snapshot"), (SKIP, b""), (OPTIONS, b"verify=size")])
given.update('"$1"')
peer.sendall(frame(REPLY, *((tag, value) for tag, value in given.items() if value is not None)))
peer.recv(1)' "$WORK/dead/ctl.sock" 3>&- &
	wait_until 60 test -S "$WORK/dead/ctl.sock"
	exits 1 timeout 60 "$CISTERN_LIBEXEC/cistern-agent" drain --store "$WORK/dead"
	says "$2"
	wait $!
}

@test "an agent refuses to begin with what it does not understand" {
	begin_with '{PATH: b"snap\0shot"}' "lacks a field"
	begin_with '{OLDEST: None, NEWEST: None}' "the daemon speaks none that has a number"
	begin_with '{OLDEST: 99, NEWEST: 100}' "this agent is the older one"
	begin_with '{FILTER: b"one\0two"}' "path 1 of those that the daemon wants drained"
	begin_with '{FILTER: b"x" * 70000}' "path 1 of those that the daemon wants drained"
	begin_with '{FILTER: 3}' "path 1 of those that the daemon wants drained"
	begin_with '{SKIP: b"1234567"}' "files to be left alone"
	begin_with '{SKIP: None}' "files to be left alone"
	begin_with '{OPTIONS: b"verify=size\0,verify=none"}' "settings: they are no string"
	begin_with '{OPTIONS: None}' "settings: they are missing"
	begin_with '{OPTIONS: b"verify=perhaps"}' "verify"
}

# ask_without_reading BYTES: more questions than it takes the answers of, until the daemon waits for it. Then it reads so many bytes now and then, for as
# long as $WORK/asked is there.
ask_without_reading() {
	wire '
import time
sock.connect(sys.argv[1])
sock.setblocking(False)
questions = frame(STATUS_GET) * 100
asked = 0
while asked < 20:
    try:
        sock.send(questions)
        asked = 0
    except BlockingIOError:
        asked += 1
        time.sleep(0.05)
open(sys.argv[2], "w").close()
end = time.monotonic() + 120
while time.monotonic() < end and os.path.exists(sys.argv[2]):
    time.sleep(0.05)
    if int(sys.argv[3]):
        sock.recv(int(sys.argv[3]))
' "$STORE/ctl.sock" "$WORK/asked" "$1"
}

# holds_up_no_unmount BYTES: as ask_without_reading has them
holds_up_no_unmount() {
	local began asker
	needs_fuse
	mount_cistern
	ask_without_reading "$1" 3>&- &
	asker=$!
	wait_until 60 test -e "$WORK/asked"
	began=$SECONDS
	umount_wait "$MNT"
	echo "unmounted in $((SECONDS - began)) s"
	[ $((SECONDS - began)) -lt 20 ]
	rm "$WORK/asked"
	wait "$asker" || true # or the daemon's end is its own
}

@test "who does not read what it has asked for holds up no unmount" {
	holds_up_no_unmount 0
}

@test "who reads it slowly holds up no unmount" {
	holds_up_no_unmount 8192
}
