#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-3.0-or-later
"""Watches a mount point while its daemon dies and another one takes its place.

hole.py poll DIR: until standard input ends, stats DIR and makes files in it. Says each file system (st_dev) and error that it has
met, in the order in which it met it first, and how many files it has made: "dev:65 ENOTCONN dev:66 made=12".
hole.py write DIR: until standard input ends, makes files one after the other, tries again what fails, and says how many the system took.
hole.py count FILE: likewise raises the number in FILE, opened anew each time, each fsynced; says the last one, or that it found a lower
number than it had written.
hole.py check NUM DIR...: each of the NUM files of a writer is whole in one of the directories; names those that are not.
"""
import errno
import os
import select
import sys


def over():
    return bool(select.select([sys.stdin], [], [], 0)[0])


def note(seen, word):
    if word not in seen:
        seen.append(word)


def poll(top):
    seen, made = [], 0
    while not over():
        try:
            note(seen, "dev:%d" % os.stat(top).st_dev)
            os.close(os.open("%s/%d-%d" % (top, os.getpid(), made), os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644))
            made += 1
        except OSError as e:
            note(seen, errno.errorcode[e.errno])
    print(*seen, "made=%d" % made)


def write(top):
    made = 0
    while not over():
        try:
            fd = os.open("%s/w-%d" % (top, made), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
            try:
                os.write(fd, b"%d\n" % made)
            finally:
                os.close(fd)
            made += 1
        except OSError:
            pass
    print(made)


def count(path):
    last = 0
    while not over():
        try:
            fd = os.open(path, os.O_RDWR)
            try:
                found = int(os.pread(fd, 11, 0))
                if found < last:
                    print("%d was written, and %d is there" % (last, found))
                    return
                os.pwrite(fd, b"%010d\n" % (last + 1), 0)
                os.fsync(fd)
            finally:
                os.close(fd)
            last += 1
        except OSError:
            pass
    print(last)


def is_whole(top, i):
    try:
        with open("%s/w-%d" % (top, i), "rb") as f:
            return f.read() == b"%d\n" % i
    except FileNotFoundError:
        return False


def check(num, *tops):
    bad = [i for i in range(int(num)) if not any(is_whole(top, i) for top in tops)]
    if bad or int(num) == 0:
        sys.exit("of %s files %d are not there, from number %s on" % (num, len(bad), bad[:1]))


{"poll": poll, "write": write, "count": count, "check": check}[sys.argv[1]](*sys.argv[2:])
