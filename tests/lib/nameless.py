#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-3.0-or-later
"""nameless.py REFERENCE BACKING MOUNT...: files that one node has open, another one removes and drains forget are read, written, cut and
synced as in the plain directory REFERENCE, until they are closed. Each node opens and removes files that each has made, or that were in
BACKING before; some were changed since they were drained, some by several nodes; some names go to other files. In the end every mount, and
BACKING, are what REFERENCE is."""

import itertools
import os
import subprocess
import sys

SIZE = 70000
OTHER = b"another file"


def flush(mount):
    subprocess.run([os.environ["CISTERN"], "flush", "--wait", "--timeout", "10m", "--mount", mount], stdin=subprocess.DEVNULL, check=True)


def data_of(name):
    return (name.encode() * SIZE)[:SIZE]


def put(path, data, off=0, flags=os.O_CREAT):
    fd = os.open(path, os.O_WRONLY | flags, 0o644)
    os.pwrite(fd, data, off)
    os.close(fd)


class Nameless:
    """One file: made, changed, opened, removed on the nodes that its name says, and in the reference."""

    def __init__(self, args, kind, home, opener, remover):
        self.reference, self.backing, self.mounts = args[0], args[1], args[2:]
        self.name = "%s-%d-%d-%d" % (kind, home, opener, remover)
        self.kind, self.home, self.opener, self.remover = kind, home, opener, remover
        self.fds = []

    def both(self, node):
        return [base + "/" + self.name for base in (self.mounts[node], self.reference)]

    def make(self):
        for path in (self.backing + "/" + self.name, self.both(0)[1]) if self.kind == "old" else self.both(self.home):
            put(path, data_of(self.name))

    def change(self):
        """Behind the first drain: some of it is in the stores, the rest in the backing file only."""
        nodes = {"changed": [self.home], "shared": [self.opener, self.remover]}.get(self.kind, [])
        for k, node in enumerate(nodes):
            for path in self.both(node):
                put(path, b"changed", 100 + 5000 * k)

    def open(self):
        flags = os.O_RDONLY if self.kind == "read" else os.O_RDWR
        self.fds = [os.open(path, flags) for path in self.both(self.opener)]

    def remove(self):
        replaced = (self.home + self.opener + self.remover) % 3
        for path in self.both(self.remover):
            if replaced == 0:
                put(path + ".other", OTHER)
                os.rename(path + ".other", path)
            else:
                os.unlink(path)
        if replaced == 1:
            for path in self.both((self.remover + 1) % len(self.mounts)):
                put(path, OTHER, 0, os.O_CREAT | os.O_EXCL)

    def same(self, what, do):
        got, want = (do(fd) for fd in self.fds)
        assert got == want, "%s of %s: %s, not %s" % (what, self.name, str(got)[:200], str(want)[:200])

    def look(self):
        self.same("fstat", lambda fd: (os.fstat(fd).st_size, os.fstat(fd).st_nlink))
        self.same("lseek for data", lambda fd: os.lseek(fd, 100, os.SEEK_DATA))
        self.same("a read of the middle", lambda fd: os.pread(fd, 1000, SIZE // 2))
        self.same("a read", lambda fd: os.pread(fd, SIZE + 1, 0))

    def use(self):
        self.look()
        if self.kind == "read":
            return
        self.same("a write", lambda fd: os.pwrite(fd, b"written", 9000))
        self.same("fsync", os.fsync)
        self.look()

    def cut(self):
        if self.kind != "read":
            self.same("ftruncate", lambda fd: os.ftruncate(fd, SIZE // 2 + 500))
        self.look()

    def close(self):
        for fd in self.fds:
            os.close(fd)


def tree(base):
    return {name: open(base + "/" + name, "rb").read() for name in os.listdir(base)}


def main():
    args = [os.path.abspath(path) for path in sys.argv[1:]]
    nodes = range(len(args) - 2)
    kinds = "old", "read", "write", "changed", "shared"
    files = [Nameless(args, kind, *who) for kind in kinds for who in itertools.product(nodes, repeat=3)]
    for step in "make", "change", "open", "remove", "use", "cut", "close":
        for f in files:
            try:
                getattr(f, step)()
            except (OSError, AssertionError) as e:
                sys.exit("%s of %s: %s" % (step, f.name, e))
        if step not in ("change", "open"):
            flush(args[2])
    want = tree(args[0])
    for base in args[1:]:
        got = tree(base)
        wrong = sorted(name for name in set(got) | set(want) if got.get(name) != want.get(name))
        assert not wrong, "%s: %s" % (base, wrong)


if __name__ == "__main__":
    main()
