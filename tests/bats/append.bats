#!/usr/bin/env bats
# SPDX-License-Identifier: GPL-3.0-or-later
#
# Appends, and flags of descriptors that change behind the daemon's back: on a mount as in a plain directory.

load ../lib/mount

# both CODE [ARGUMENT...]: a Python program says the same in the mount and in a directory.
both() {
	local code=$1
	shift
	(cd "$DIRECT" && python3 -c "$code" "$@") >"$WORK/direct.said"
	(cd "$MNT" && python3 -c "$code" "$@") >"$WORK/mount.said"
	[ -s "$WORK/direct.said" ]
	diff "$WORK/direct.said" "$WORK/mount.said"
}

changing_flags='
import fcntl, mmap, os
O = os.O_RDWR | os.O_CREAT
NOAPPEND = 0x20
def show(what, fd):
    print(what, os.lseek(fd, 0, os.SEEK_CUR), os.fstat(fd).st_size, os.pread(fd, 100, 0))

a = os.open("cleared", O | os.O_APPEND)
os.write(a, b"0123456789")
fcntl.fcntl(a, fcntl.F_SETFL, fcntl.fcntl(a, fcntl.F_GETFL) & ~os.O_APPEND)
os.pwrite(a, b"AB", 0)
show("cleared", a)
os.lseek(a, 4, 0)
os.write(a, b"CD")
show("written", a)
fcntl.fcntl(a, fcntl.F_SETFL, fcntl.fcntl(a, fcntl.F_GETFL) | os.O_APPEND)
os.pwrite(a, b"EF", 0)
show("set again", a)

b = os.open("set", O)
os.write(b, b"0123456789")
fcntl.fcntl(b, fcntl.F_SETFL, os.O_APPEND)
os.pwrite(b, b"GH", 0)
show("set", b)

c = os.open("once", O | os.O_APPEND)
os.write(c, b"0123456789")
try:
    os.pwritev(c, [b"IJ"], 2, NOAPPEND)
except OSError as e:
    print("RWF_NOAPPEND", e.errno)
show("once", c)
os.write(c, b"KL")
show("and appended", c)

d = os.open("mixed", O)
e = os.open("mixed", os.O_WRONLY | os.O_APPEND)
f = os.open("mixed", os.O_WRONLY | os.O_APPEND | os.O_DSYNC)
for i in range(5):
    os.write(e, b"e" * i)
    os.write(d, b"d")
    os.write(f, b"f" * 3)
show("mixed", d)
os.ftruncate(d, 7)
os.write(e, b"cut")
show("cut", d)
m = mmap.mmap(d, 10)
m[1] = ord("m")
os.write(f, bytes(m[:3]))
show("mapped", d)
os.posix_fallocate(d, 0, 30)
os.write(e, b"end")
show("allocated", d)
'

@test "what takes O_APPEND off a descriptor, or puts it on, is believed: as in a directory" {
	mount_cistern
	both "$changing_flags"
	umount_wait
	same_trees "$DIRECT" "$BACKING"
}

@test "the same in files of the log" {
	mount_cistern -o data=log
	both "$changing_flags"
	umount_wait
	same_trees "$DIRECT" "$BACKING"
}

# Each record is a line of its own length; every second process changes its flags on the way.
appenders='
import fcntl, os, sys
n = int(sys.argv[1])
kids = []
for k in range(4):
    pid = os.fork()
    if pid == 0:
        fd = os.open("log", os.O_WRONLY | os.O_CREAT | (os.O_APPEND if k < 3 else 0), 0o644)
        if k == 3:
            fcntl.fcntl(fd, fcntl.F_SETFL, os.O_APPEND)
        for i in range(n):
            os.write(fd, b"%d:%d:%s\n" % (k, i, b"x" * ((i * 7 + k) % 90)))
        os._exit(0)
    kids.append(pid)
for pid in kids:
    os.waitpid(pid, 0)
print(sorted(open("log").read().split("\n")) ==
      sorted([""] + ["%d:%d:%s" % (k, i, "x" * ((i * 7 + k) % 90)) for k in range(4) for i in range(n)]))
'

@test "processes that append to one file lose nothing to each other, however they came to append" {
	mount_cistern
	both "$appenders" 2000
	is "$(cat "$WORK/mount.said")" True
	umount_wait
	is "$(sort "$BACKING/log" | sha256sum)" "$(sort "$DIRECT/log" | sha256sum)"
}

@test "a full store does not keep an open file from being appended to, as it does not keep the kernel" {
	mount_cistern -o data=private,capacity=40M,full_timeout=1s,drain=unmount
	exec 8>>"$MNT/log"
	head -c 60M /dev/zero >&8
	echo end >&8
	exec 8>&-
	is "$(stat -c %s "$MNT/log")" $(((60 << 20) + 4))
	umount_wait
	is "$(tail -c 4 "$BACKING/log")" end
}

# who writes: in the file's group, or not
writing_strangers='
import os, stat, sys
def mode(p): return oct(os.stat(p).st_mode & 0o7777)
def as_user(uid, gid, groups, do):
    pid = os.fork()
    if pid == 0:
        os.setgroups(groups); os.setgid(gid); os.setuid(uid)
        do()
        os._exit(0)
    print(os.waitpid(pid, 0)[1])
def write(p): fd = os.open(p, os.O_WRONLY); os.write(fd, b"x")
os.umask(0)
n = 0
for m in 0o2666, 0o2676, 0o6666, 0o6777:
    for who in (4001, 4001, []), (4001, 4002, []), (4001, 4001, [4003, 4002]), (4002, 4001, []):
        for do in "write", "truncate", "trunc", "map", "chown":
            n += 1
            p = "f%d" % n
            fd = os.open(p, os.O_RDWR | os.O_CREAT); os.write(fd, b"data"); os.close(fd)
            os.chown(p, 4002, 4002); os.chmod(p, m)
            as_user(*who, {
                "write": lambda: write(p),
                "truncate": lambda: os.truncate(p, 1),
                "trunc": lambda: os.close(os.open(p, os.O_WRONLY | os.O_TRUNC)),
                "map": lambda: os.path.getsize(p),
                "chown": lambda: who[0] == 4002 and os.chown(p, -1, 4002 if 4002 in who[2] + [who[1]] else -1),
            }[do])
            print(do, who, oct(m), mode(p))
    p = "r%o" % m
    write_root = os.open(p, os.O_RDWR | os.O_CREAT); os.chown(p, 4002, 4002); os.chmod(p, m)
    os.write(write_root, b"root"); print("root", mode(p))
    os.chown(p, 4001, 4002); print("root gives it away", mode(p))
'

@test "set-group-ID without execution for the group goes where a stranger writes, and stays where a member does" {
	needs_root "other users"
	for data in auto log; do
		STORE=$WORK/store-$data
		rm -rf "${DIRECT:?}" && mkdir "$DIRECT"
		mount_cistern -o allow_other,data=$data
		chmod 777 "$DIRECT" "$MNT"
		both "$writing_strangers"
		umount_wait
		rm -rf "${BACKING:?}"/*
	done
}
