#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-3.0-or-later
"""Stores into shared mappings: behind a file's end, and before its time is set.

mapped.py DIR: works on files in DIR and says, a line for each case, what was found. A plain directory says what is right.
"""
import ctypes
import hashlib
import mmap
import os
import sys

PAGE = mmap.PAGESIZE
SET_NS = 1_000_000_000 * 10**9
LIBC = ctypes.CDLL(None, use_errno=True)


def opened(name, size):
    fd = os.open(name, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o644)
    os.write(fd, b"d" * size)
    os.fsync(fd)
    return fd


class Mapping:
    """A mapping of whole pages: mmap.mmap refuses to reach past the end."""

    def __init__(self, fd, length):
        LIBC.mmap.restype = ctypes.c_void_p
        self.length = length
        self.at = LIBC.mmap(None, ctypes.c_size_t(length), 3, 1, fd, ctypes.c_long(0))
        if self.at == ctypes.c_void_p(-1).value:
            raise OSError(ctypes.get_errno(), "mmap")
        self.bytes = (ctypes.c_ubyte * length).from_address(self.at)

    def __getitem__(self, i):
        return bytes(self.bytes[i])

    def __setitem__(self, i, value):
        self.bytes[i] = value

    def close(self):
        LIBC.munmap(ctypes.c_void_p(self.at), ctypes.c_size_t(self.length))


def fallocate(fd, mode, off, length):
    if LIBC.fallocate(fd, mode, ctypes.c_long(off), ctypes.c_long(length)) < 0:
        raise OSError(ctypes.get_errno(), "fallocate")


def by_path(name, size):
    os.truncate(name, size)


def copied(fd, to):
    source = opened("source", PAGE)
    os.copy_file_range(source, fd, 100, 0, to)
    os.close(source)


def up_twice(fd, size):
    os.ftruncate(fd, size + 50)
    os.ftruncate(fd, size + 9 * PAGE)


def down_and_up(fd, size):
    os.ftruncate(fd, size - 50)
    os.ftruncate(fd, size + PAGE)


GROWS = {
    "ftruncate": lambda fd, name, size: os.ftruncate(fd, size + 3 * PAGE),
    "ftruncate within the page": lambda fd, name, size: os.ftruncate(fd, size + 20),
    "ftruncate twice": lambda fd, name, size: up_twice(fd, size),
    "ftruncate down and up": lambda fd, name, size: down_and_up(fd, size),
    "truncate": lambda fd, name, size: by_path(name, size + 3 * PAGE),
    "fallocate": lambda fd, name, size: fallocate(fd, 0, 0, size + 3 * PAGE),
    "fallocate within the page": lambda fd, name, size: fallocate(fd, 0, 0, size + 30),
    "ZERO_RANGE": lambda fd, name, size: fallocate(fd, 0x10, size + PAGE, 3 * PAGE),
    "write to a later page": lambda fd, name, size: os.pwrite(fd, b"w" * 10, size + 2 * PAGE),
    "write to the next page": lambda fd, name, size: os.pwrite(fd, b"w" * 10, (size + PAGE) // PAGE * PAGE),
    "write to the page": lambda fd, name, size: os.pwrite(fd, b"w" * 10, size + 40),
    "append": lambda fd, name, size: os.pwrite(fd, b"w" * 10, size),
    "copy_file_range": lambda fd, name, size: copied(fd, size + 2 * PAGE),
}


def digest(data):
    return hashlib.sha1(data).hexdigest()[:8]


def grow(case, size, synced):
    """What is stored behind the end must be gone; what is stored there once the file has grown must not."""
    fd = opened("f", size)
    end = (size + PAGE - 1) // PAGE * PAGE
    m = Mapping(fd, end)
    m[10] = ord("A")
    for at in range(size, end):
        m[at] = ord("X")
    if synced:
        os.fsync(fd)
        m[size] = ord("Y")
    GROWS[case](fd, "f", size)
    grown = os.fstat(fd).st_size
    mapped = bytes(m[:min(end, grown)])
    for at in range(size + 15, min(end, grown), 7):
        m[at] = ord("l")
    m[11] = ord("B")
    os.fsync(fd)
    read = os.pread(fd, grown + 1, 0)
    m.close()
    os.close(fd)
    with open("f", "rb") as again:
        return grown, digest(mapped), mapped.count(b"X"), digest(read), read.count(b"l"), digest(again.read())


SYNCS = {
    "msync": lambda fd, m: LIBC.msync(ctypes.c_void_p(m.at), ctypes.c_size_t(m.length), 4),
    "fsync": lambda fd, m: os.fsync(fd),
    "munmap and close": lambda fd, m: None,
}


def times(sync, later):
    """A time that was set stays, unless something was stored after it."""
    fd = opened("t", 3 * PAGE)
    m = Mapping(fd, 3 * PAGE)
    m[5] = ord("A")
    m[PAGE + 5] = ord("A")
    os.utime("t", ns=(SET_NS, SET_NS))
    if later:
        m[2 * PAGE + 6] = ord("B")
    SYNCS[sync](fd, m)
    m.close()
    os.close(fd)
    st = os.stat("t")
    with open("t", "rb") as again:
        data = again.read()
    return "set" if st.st_mtime_ns == SET_NS else "moved", digest(data)


def main():
    os.chdir(sys.argv[1])
    for case in GROWS:
        for size in (100, 4 * PAGE + 1000, 60 * PAGE + 4000):
            for synced in (False, True):
                print(case, size, "synced" if synced else "dirty", *grow(case, size, synced), flush=True)
    for sync in SYNCS:
        for later in (False, True):
            print("utime,", sync, "later" if later else "before", *times(sync, later), flush=True)


main()
