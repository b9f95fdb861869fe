#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-3.0-or-later
"""recovered.py --seed N before MODEL BACKING
recovered.py --seed N work [--steps N] [--drained] [--kill PID]... MODEL MOUNT...
recovered.py --seed N check [--thorough] MODEL BACKING STORE...

A job of several nodes works at random, one call after the other, each by any node, so it is known what must be there, and which node has
written each byte: what "before" leaves, "work" goes on with, and "check" compares with. Files have many writers, holes, several names; they and
directories come, go and move. --drained: a drain has carried everything since. --kill: these daemons die at the end, with files open; else
everything is closed and synced.
"check" recovers the stores: all of them elsewhere, by one, two or three processes; each time without one of them, elsewhere; sometimes so in place;
then all in place, once killed on the way, and once more. What is listed as missing must be what the lost node has written, and all else be there."""

import argparse
import ctypes
import errno
import functools
import json
import operator
import os
import pickle
import random
import shutil
import signal
import stat
import subprocess
import sys
import time

from place import BACKING_BIT, home_of, inode_of

WINDOWS = [(0, 70000), (200000, 900000), ((16 << 20) - 30001, (16 << 20) + 30003), ((48 << 20) - 20000, (48 << 20) + 9)]
WEIGHTS = [6, 1, 5, 3]
END = 64 << 20
NAMES = ["a", "b", "c", "d", "e", "f"]
PATIENCE = 60  # seconds; only a test that fails needs them
libc = ctypes.CDLL(None, use_errno=True)


class Wrong(Exception):
    pass


def patiently(what, *args):
    """Linux says ESTALE where another node has moved a directory (docs/posix.md)."""
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            return what(*args)
        except OSError as e:
            if e.errno != errno.ESTALE or time.monotonic() > deadline:
                raise
            time.sleep(0.01)


# ---- the model

class Bytes:
    """A window of a file: what is there, the node (counted from 1) whose write that is since the last drain, and all nodes that have written there."""

    def __init__(self, size):
        self.data, self.owner, self.wrote = bytearray(size), bytearray(size), bytearray(size)

    def put(self, off, data, node):
        stop = off + len(data)
        self.data[off:stop] = data
        self.owner[off:stop] = bytes([node]) * len(data)
        if node:
            self.wrote[off:stop] = self.wrote[off:stop].translate(bytes(x | 1 << (node - 1) for x in range(256)))

    def forget(self):
        self.owner, self.wrote = bytearray(len(self.data)), bytearray(len(self.data))


class Node:
    """A file, directory or symbolic link."""

    def __init__(self, kind):
        self.kind, self.size, self.names, self.ino, self.target = kind, 0, set(), None, None
        self.windows = {}
        self.writers = set()  # since the last drain
        self.cut_alone = False  # since then, when no other node wrote: its home alone knows of that
        self.cuts = []  # since then: bits of the nodes that had written what was cut off, and where
        self.known_names = set()  # those that it has had, as their directories are called now: there it may lie still
        self.drained = None  # as state_of() was
        self.seen = None  # mode, links, time of the last write
        self.uncommitted = False

    def window(self, at):
        if at not in self.windows:
            begin, end = WINDOWS[at]
            self.windows[at] = Bytes(end - begin)
        return self.windows[at]

    def each_part(self, off, stop):
        for at, (begin, end) in enumerate(WINDOWS):
            a, b = max(off, begin), min(stop, end)
            if a < b and (at in self.windows):
                yield self.windows[at], a - begin, b - begin, a

    def put(self, at, off, data, node):
        begin, _ = WINDOWS[at]
        self.window(at).put(off - begin, data, node)
        self.size = max(self.size, off + len(data))
        self.writers.add(node)

    def zero(self, off, stop, node=0):
        for w, a, b, _ in self.each_part(off, stop):
            w.put(a, bytes(b - a), node)

    def cut(self, size):
        if size < self.size:
            self.cuts.append((functools.reduce(operator.or_, (x for w, a, b, _ in self.each_part(size, END) for x in set(w.wrote[a:b])), 0), size))
            self.zero(size, END)
        self.size = size

    def contents(self):
        """[(offset, data)], all else is zeros."""
        return [(WINDOWS[at][0], bytes(w.data[:max(0, self.size - WINDOWS[at][0])])) for at, w in sorted(self.windows.items())]


class Model:
    def __init__(self, nodes=0):
        self.nodes, self.tree, self.all = nodes, {"": Node("d")}, []
        self.count = 0

    def files(self, kinds="f"):
        return [p for p, n in self.tree.items() if p and n.kind in kinds]

    def add(self, path, node):
        self.tree[path] = node
        node.names.add(path)
        node.known_names.add(path)
        if node not in self.all:
            self.all.append(node)

    def drop(self, path):
        node = self.tree.pop(path)
        node.names.discard(path)
        return node

    def move(self, old, new):
        for path in [p for p in self.tree if p == old or p.startswith(old + "/")]:
            node = self.drop(path)
            self.add(new + path[len(old):], node)
        for node in self.all:
            node.known_names |= {new + p[len(old):] for p in node.known_names if p.startswith(old + "/")}

    def children(self, path):
        return [p for p in self.tree if p and os.path.dirname(p) == path]


# ---- what the job does

class Worker:
    def __init__(self, model, mounts, rng, log):
        self.m, self.mounts, self.rng, self.handles, self.log = model, mounts, rng, [], log

    def some(self, paths):
        return self.rng.choice(sorted(paths)) if paths else None

    def on(self):
        k = self.rng.randrange(len(self.mounts))
        return k, self.mounts[k]

    def say(self, text, *args):
        self.log.write(text % args + "\n")

    def free_path(self):
        path = os.path.join(self.some([p for p, n in self.m.tree.items() if n.kind == "d" and p.count("/") < 2]), self.rng.choice(NAMES))
        return path if path not in self.m.tree else None

    def mode(self, bits):
        self.m.count += 1
        return bits | self.m.count % 64

    # -- files
    def make(self):
        path = self.free_path()
        if not path:
            return
        k, base = self.on()
        fd = patiently(os.open, base + "/" + path, os.O_RDWR | os.O_CREAT | os.O_EXCL, self.mode(0o600))
        node = Node("f")
        node.ino = inode_of(os.fstat(fd).st_ino)
        self.m.add(path, node)
        self.say("node %d makes %s, inode %d", k, path, node.ino)
        self.handles.append((fd, k, node))
        if self.rng.random() < .7:
            self.put(self.handles[-1])
        self.end(self.handles[-1])

    def open(self, path, k):
        fd = patiently(os.open, self.mounts[k] + "/" + path, os.O_RDWR)
        self.handles.append((fd, k, self.m.tree[path]))
        return self.handles[-1]

    def place(self, node):
        """A range in a window: often next to one that is there."""
        at = self.rng.choices(range(len(WINDOWS)), WEIGHTS)[0]
        begin, end = WINDOWS[at]
        most = self.rng.choice([1, 10, 300, 5000, 5000, 40000, 400000])
        near = getattr(node, "last", None)
        off = near if near and begin <= near < end and self.rng.random() < .4 else self.rng.randrange(begin, end)
        return at, off, min(end, off + self.rng.randint(1, most))

    def put(self, h):
        fd, k, node = h
        for _ in range(self.rng.randint(1, 4)):
            at, off, stop = self.place(node)
            data = self.rng.randbytes(stop - off)
            os.pwrite(fd, data, off)
            node.put(at, off, data, k + 1)
            node.last = stop
            self.say("node %d writes [%d, %d) of inode %d", k, off, stop, node.ino)

    def write(self):
        path = self.some(self.m.files())
        if not path:
            return
        node = self.m.tree[path]
        open_there = [h for h in self.handles if h[2] is node]
        h = self.rng.choice(open_there) if open_there and self.rng.random() < .6 else self.open(path, self.on()[0])
        self.put(h)
        self.end(h)

    def end(self, h):
        """After a write: synced, closed, or neither."""
        how = self.rng.random()
        if how < .3:
            os.fsync(h[0])
        if how < .75:
            self.close(h)

    def close(self, h):
        self.handles.remove(h)
        os.close(h[0])
        self.say("node %d closes inode %d", h[1], h[2].ino)

    def sync(self):
        if self.handles:
            h = self.rng.choice(self.handles)
            self.close(h) if self.rng.random() < .5 else os.fsync(h[0])

    def cut(self):
        path = self.some(self.m.files())
        if path:
            node, (k, base) = self.m.tree[path], self.on()
            size = self.rng.choice([0, self.place(node)[1], self.place(node)[1], max(0, node.size - self.rng.randrange(1, 5000))])
            patiently(os.truncate, base + "/" + path, size)
            node.cut(size)
            node.cut_alone |= len(node.writers | {k + 1}) == 1
            node.writers.add(k + 1)
            self.say("node %d cuts %s, inode %d, at %d", k, path, node.ino, size)

    def punch(self):
        path = self.some(self.m.files())
        if not path:
            return
        h = self.open(path, self.on()[0])
        _, off, stop = self.place(h[2])
        if libc.fallocate(h[0], 3, ctypes.c_long(off), ctypes.c_long(stop - off)):
            raise OSError(ctypes.get_errno(), "fallocate")
        h[2].zero(off, min(stop, h[2].size))
        h[2].writers.add(h[1] + 1)
        self.say("node %d punches [%d, %d) of inode %d", h[1], off, stop, h[2].ino)
        self.close(h)

    # -- names
    def call(self, what, *paths):
        k, base = self.on()
        self.say("node %d: %s %s", k, what.__name__, " ".join(paths))
        patiently(what, *[base + "/" + p for p in paths])

    def rename(self):
        old, new = self.some(self.m.files("fl")), self.free_path() or self.some(self.m.files("fl"))
        if not old or self.m.tree[old] is self.m.tree.get(new):
            return
        self.call(os.rename, old, new)
        if new in self.m.tree:
            self.m.drop(new)
        self.m.move(old, new)

    def rename_dir(self):
        old, new = self.some(self.m.files("d")), self.free_path()
        if old and new and not (new + "/").startswith(old + "/"):
            self.call(os.rename, old, new)
            self.m.move(old, new)

    def link(self):
        old, new = self.some(self.m.files()), self.free_path()
        if old and new:
            self.call(os.link, old, new)
            self.m.add(new, self.m.tree[old])

    def unlink(self):
        path = self.some(self.m.files("fl"))
        if path:
            self.call(os.unlink, path)
            self.m.drop(path)

    def symlink(self):
        path = self.free_path()
        if path:
            node = Node("l")
            node.target = "t%d" % self.m.count
            k, base = self.on()
            patiently(os.symlink, node.target, base + "/" + path)
            node.ino = inode_of(patiently(os.lstat, base + "/" + path).st_ino)
            self.m.count += 1
            self.m.add(path, node)
            self.say("node %d: symlink %s", k, path)

    def mkdir(self):
        path = self.free_path()
        if path:
            k, base = self.on()
            self.say("node %d: mkdir %s", k, path)
            patiently(os.mkdir, base + "/" + path, self.mode(0o700))
            node = Node("d")
            node.ino = inode_of(patiently(os.lstat, base + "/" + path).st_ino)
            self.m.add(path, node)

    def rmdir(self):
        """With all that is in it."""
        path = self.some(self.m.files("d"))
        if path and self.rng.random() < .5:
            self.remove_tree(path)

    def remove_tree(self, path):
        for child in sorted(self.m.children(path)):
            if self.m.tree[child].kind == "d":
                self.remove_tree(child)
            else:
                self.call(os.unlink, child)
                self.m.drop(child)
        self.call(os.rmdir, path)
        self.m.drop(path)

    def chmod(self):
        path = self.some(self.m.files("fd"))
        if path:
            k, base = self.on()
            mode = self.mode(0o700 if self.m.tree[path].kind == "d" else 0o600)
            self.say("node %d: chmod %s", k, path)
            patiently(os.chmod, base + "/" + path, mode)

    def utime(self):
        path = self.some(self.m.files())
        if path and not any(h[2] is self.m.tree[path] for h in self.handles):
            k, base = self.on()
            self.say("node %d: utime %s", k, path)
            ns = self.rng.randrange(10 ** 18)
            patiently(lambda: os.utime(base + "/" + path, ns=(ns, ns)))

    KINDS = {"make": 7, "write": 18, "sync": 4, "cut": 3, "punch": 2, "rename": 5, "rename_dir": 1.5, "link": 2, "unlink": 3, "symlink": 1,
             "mkdir": 3, "rmdir": 1, "chmod": 1, "utime": 1}

    def step(self):
        getattr(self, self.rng.choices(list(self.KINDS), list(self.KINDS.values()))[0])()

    def settle(self):
        """Everything is made known, and synced: the last calls of all nodes."""
        for h in list(self.handles):
            os.fsync(h[0])
            self.close(h)

    def sync_all(self):
        """Every node asks all others, so what it has said to them before has arrived."""
        for base in self.mounts:
            fd = os.open(base, os.O_RDONLY | os.O_DIRECTORY)
            os.fsync(fd)
            os.close(fd)

    def look_patiently(self):
        """What a daemon that was killed had not committed its next one makes known by and by."""
        deadline = time.monotonic() + PATIENCE
        while True:
            try:
                return self.look()
            except Wrong:
                if time.monotonic() > deadline:
                    raise
                time.sleep(.1)

    def look(self):
        """What a node shows of each name. Its time is the job's to say."""
        for path, node in self.m.tree.items():
            base = self.rng.choice(self.mounts)
            node.seen = look(base + "/" + path)
            if node.kind == "f":
                at = differs(base + "/" + path, node)
                if at is not None:
                    raise Wrong("%s/%s differs from the model at %d" % (base, path, at))


def look(path):
    st = patiently(os.lstat, path)
    kind = "d" if stat.S_ISDIR(st.st_mode) else "l" if stat.S_ISLNK(st.st_mode) else "f"
    size = st.st_size if kind != "d" else 0
    return kind, stat.S_IMODE(st.st_mode), st.st_nlink if kind != "d" else 0, size, st.st_mtime_ns


# ---- comparing

def first_difference(a, b):
    return next((i for i, (x, y) in enumerate(zip(a, b)) if x != y), None)


def read_all(path):
    """[(offset, data)] of what is not a hole."""
    found = []
    with patiently(open, path, "rb") as f:
        size, off = os.fstat(f.fileno()).st_size, 0
        while off < size:
            try:
                off = os.lseek(f.fileno(), off, os.SEEK_DATA)
            except OSError:
                break
            end = os.lseek(f.fileno(), off, os.SEEK_HOLE)
            found.append((off, os.pread(f.fileno(), end - off, off)))
            off = end
    return size, found


def expand(parts, off, stop):
    """The bytes of a range, of [(offset, data)]."""
    out = bytearray(stop - off)
    for begin, data in parts:
        a, b = max(off, begin), min(stop, begin + len(data))
        if a < b:
            out[a - off:b - off] = data[a - begin:b - begin]
    return out


def subtract(ranges, off, stop):
    """What of [off, stop) is in none of the ranges, which are sorted."""
    for a, b in ranges:
        if b > off and a < stop:
            if a > off:
                yield off, a
            off = max(off, b)
    if off < stop:
        yield off, stop


def differs(path, node, listed=()):
    """Where a file is not what it must be, but for what is listed; None: nowhere."""
    size, there = read_all(path)
    if size != node.size:
        return size
    want = node.contents()
    for a, b in subtract(sorted(listed), 0, size):
        for begin, end in covers(there + want, a, b):
            at = first_difference(expand(there, begin, end), expand(want, begin, end))
            if at is not None:
                return begin + at
    return None


def covers(parts, off, stop):
    """Where any of the parts has something, as few ranges."""
    found = []
    for a, b in sorted((max(off, p), min(stop, p + len(d))) for p, d in parts):
        if a >= b:
            continue
        if found and a <= found[-1][1]:
            found[-1][1] = max(found[-1][1], b)
        else:
            found.append([a, b])
    return found


# ---- recovery

class Check:
    def __init__(self, args, model, rng):
        self.args, self.m, self.rng = args, model, rng
        self.stores = args.stores
        self.top = os.path.dirname(os.path.abspath(args.backing))
        self.num = self.doubtful = self.missing = 0
        self.what = ""

    def wrong(self, text, *args):
        raise Wrong(self.what + ": " + text % args)

    def run(self, stores, to, processes=1, status=(0,)):
        self.num += 1
        self.what = "recover -n %d %s --to %s" % (processes, " ".join(map(os.path.basename, stores)), to)
        manifest = os.path.join(self.top, "manifest.json")
        done = subprocess.run([os.environ["CISTERN"], "recover", "-n", str(processes), *stores, "--to", to, "--manifest", manifest], text=True,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
        self.said = done.stdout
        if done.returncode not in status:
            self.wrong("status %d: %s", done.returncode, done.stdout)
        with open(manifest) as f:
            entries = json.load(f)["files"]
        return {e["path"]: sorted((r["offset"], r["offset"] + r["length"]) for r in e["missing"]) for e in entries if e.get("missing")}

    def fresh(self):
        to = os.path.join(self.top, "to%d" % self.num)
        os.mkdir(to)
        return to

    # -- one file
    def check_file(self, path, node, listed, lost):
        """lost: the node, counted from 1, or None."""
        if lost is None and listed:
            self.wrong("%s: missing %s, and no store is", path, listed)
        at = differs(path, node, listed)
        if at is not None:
            self.wrong("%s, inode %d of node %d: differs at %d: %s; listed: %s", path, node.ino, self.home(node), at, self.describe(node, at), listed)
        for a, b in listed:
            self.missing += b - a
            end = self.may_be_carried(node, lost)
            for w, i, j, off in node.each_part(a, b):
                self.check_listed(path, w, i, j, off, lost, end)
            a = max(a, end)
            if sum(j - i for _, i, j, _ in node.each_part(a, b)) < b - a:
                self.wrong("%s: [%d, %d) is listed as missing, but nobody wrote there", path, a, b)

    def may_be_carried(self, node, lost):
        """
        What another node had written was cut off: it does not know that from a drain, and the home is lost. Up to there what nobody at hand has
        may be in a file that is not found, and is listed.
        """
        return min((at for who, at in node.cuts if who & ~(1 << (lost - 1))), default=0) if self.home(node) == lost - 1 else 0

    def check_listed(self, path, w, i, j, off, lost, end):
        """What the lost node has written there may also be taken for newer than it is (docs/design/write-times.md)."""
        doubtful = j - i - w.owner.count(lost, i, j)
        self.doubtful += doubtful
        if not doubtful:
            return
        for k in range(i, j):
            if w.owner[k] != lost and not w.wrote[k] >> (lost - 1) & 1 and (w.owner[k] or off + k - i >= end):
                self.wrong("%s: byte %d is listed as missing: %s", path, off + k - i, (w.owner[k], w.wrote[k]))

    def describe(self, node, at):
        for w, i, _, _ in node.each_part(at, at + 1):
            return "last written by node %d, of nodes %s" % (w.owner[i] - 1, bin(w.wrote[i]))
        return "nobody wrote there, size %d" % node.size

    def home(self, node):
        return home_of(node.ino, self.m.nodes)

    # -- a tree
    def check_whole(self, to, listed, lost=None, in_place=False):
        for path, node in sorted(self.m.tree.items()):
            there = os.path.join(to, path)
            if node.kind != "d" and lost and self.home(node) == lost - 1:
                continue
            if not os.path.lexists(there):
                if in_place or not self.is_drained(node):
                    self.wrong("%s is not there (inode %d of node %d)", path, node.ino or 0, self.home(node) if node.ino else -1)
                continue
            self.check_one(there, path, node, self.listed_of(node.names, listed), lost, in_place)
        self.check_rest(to, listed, lost, in_place)

    def listed_of(self, names, listed):
        """It is said under one of its names."""
        return sorted({r for p in names for r in listed.get(p, [])})

    def check_one(self, there, path, node, listed, lost, in_place):
        if path == "":
            return
        kind, mode, links, size, mtime = look(there)
        want = node.seen
        if kind != want[0] or (kind != "l" and mode != want[1]):
            self.wrong("%s is %s %o, not %s %o", path, kind, mode, want[0], want[1])
        if in_place and kind != "d" and lost is None and links != want[2]:
            self.wrong("%s has %d names, not %d", path, links, want[2])
        if kind == "l" and os.readlink(there) != node.target:
            self.wrong("%s leads to %s", path, os.readlink(there))
        if kind == "f":
            self.check_file(there, node, listed, lost)
        if kind == "f" and mtime != want[4] and not node.uncommitted:
            self.wrong("%s: its time is %d, not %d", path, mtime, want[4])

    def is_drained(self, node):
        """It need not be elsewhere: the backing directory has it as it is."""
        return node.drained and node.drained == state_of(self.m, node)

    def check_rest(self, to, listed, lost, in_place):
        """What is there beside what must be."""
        found = 0
        for top, dirs, files in os.walk(to):
            for name in dirs + files:
                path = os.path.relpath(os.path.join(top, name), to)
                if path in self.m.tree and not (lost and self.m.tree[path].kind != "d" and self.home(self.m.tree[path]) == lost - 1):
                    continue
                if name.startswith(".cistern-") or lost is None:
                    self.wrong("%s is there, and should not", path)
                self.check_stand_in(to, path, listed, lost, in_place)
        if lost:
            self.check_stand_ins(to, lost)

    def candidates(self, path, lost):
        """Which files of the lost home that may be."""
        number = path.rpartition("recovered-inode-")[2]
        lost_ones = [n for n in self.m.all if n.kind != "d" and self.home(n) == lost - 1]
        if "recovered-inode-" in os.path.dirname(path):  # a directory that was removed, and is not empty
            return [n for n in lost_ones if any(os.path.basename(p) == os.path.basename(path) for p in n.known_names)]
        if "recovered-inode-" in path:
            return [n for n in lost_ones if str(n.ino) == number]
        return [n for n in lost_ones if path in n.known_names]

    def is_aside(self, path, lost):
        """It was drained, and another file has got its name: it is called by its number in the backing directory."""
        name, _, number = path.rpartition(".recovered-inode-")
        return name and int(number) & BACKING_BIT and self.candidates(name, lost)

    def check_stand_in(self, to, path, listed, lost, in_place):
        """In the backing directory it may also be what the lost home had drained there."""
        may = self.candidates(path, lost)
        there = os.path.join(to, path)
        if not may and in_place and self.is_aside(path, lost):
            return
        if not may and not (in_place and os.path.isdir(there)):
            self.wrong("%s is there, and nothing is known of it", path)
        if any(not n.names or n.cut_alone or not self.others_wrote(n, lost) for n in may):
            return
        for i, node in enumerate(may):
            try:
                names = {p for p in self.names_left(node) if self.may_lead_to(os.path.join(to, p), there)}
                return self.compare_stand_in(there, node, self.listed_of(names | {path}, listed), lost)
            except Wrong:
                if i + 1 == len(may):
                    raise

    def names_left(self, node):
        """Those that it had, and no other file has now."""
        return {p for p in node.known_names if self.m.tree.get(p, node) is node}

    @staticmethod
    def may_lead_to(name, there):
        """Or another stand-in has it, which was called so before."""
        return not os.path.lexists(name) or os.path.samestat(os.lstat(name), os.lstat(there))

    def others_wrote(self, node, lost):
        return node.kind == "f" and any(o and o != lost for w in node.windows.values() for o in set(w.owner))

    def compare_stand_in(self, there, node, listed, lost):
        """Its home is lost, and with it how long it is, if that is more than the others know."""
        size = os.stat(there).st_size
        was, end = node.size, max((o + len(d.rstrip(b"\0")) for o, d in node.contents()), default=0)
        node.size = min(was, max(size, end))
        try:
            self.check_file(there, node, listed, lost)
        finally:
            node.size = was

    def check_stand_ins(self, to, lost):
        for node in self.m.all:
            if node.kind == "d" or not node.names or self.home(node) != lost - 1 or not self.others_wrote(node, lost):
                continue
            names = [p for p in node.known_names if os.path.lexists(os.path.join(to, p))]
            if not names and not self.find(to, "recovered-inode-%d" % node.ino):
                self.wrong("what others wrote to %s, inode %d of node %d, is nowhere: %s", sorted(node.names), node.ino, lost - 1, self.said)

    def find(self, to, name):
        return any(name in f for _, _, files in os.walk(to) for f in files)

    # -- all of it
    def everything(self):
        stores = list(self.stores)
        for processes in (1, 2, 3) if self.args.thorough else (self.rng.randint(1, 3),):
            self.rng.shuffle(stores)
            to = self.fresh()
            self.check_whole(to, self.run(stores, to, processes))
            shutil.rmtree(to)
        if not any(n.uncommitted for n in self.m.all):
            self.without_each(stores)
        if not self.find(self.args.backing, "recovered-inode-"):  # a lost store that is found again does not find what was moved there
            self.in_place(stores)

    def without(self, lost, to, in_place):
        stores = [s for i, s in enumerate(self.stores) if i != lost]
        self.rng.shuffle(stores)
        self.check_whole(to, self.run(stores, to, self.rng.randint(1, 2), (3,)), lost + 1, in_place)

    def without_each(self, stores):
        for lost in range(len(self.stores)):
            to = self.fresh()
            self.without(lost, to, False)
            shutil.rmtree(to)
        if self.rng.random() < .5:
            self.without(self.rng.randrange(len(self.stores)), self.args.backing, True)

    def in_place(self, stores):
        for _ in range(self.rng.randrange(3)):
            self.killed(stores)
        for _ in range(2):
            self.rng.shuffle(stores)
            listed = self.run(stores, self.args.backing, self.rng.randint(1, 3))
            self.forgive_extras()
            self.check_whole(self.args.backing, listed, None, True)

    def forgive_extras(self):
        """What a recovery without one of the stores has left there is nobody's."""
        for top, _, files in os.walk(self.args.backing):
            for name in files:
                path = os.path.relpath(os.path.join(top, name), self.args.backing)
                if path not in self.m.tree and not name.startswith(".cistern-"):
                    os.unlink(os.path.join(top, name))

    def killed(self, stores):
        env = dict(os.environ, CISTERN_AGENT_ABORT_AFTER=str(self.rng.randint(1, 12)))
        subprocess.run([os.environ["CISTERN"], "recover", "-n", str(self.rng.randint(1, 2)), *stores, "--to", self.args.backing, "--manifest",
                        os.path.join(self.top, "manifest.json")], env=env, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                       stderr=subprocess.DEVNULL, check=False)


# ---- from one call to the next

def state_of(model, node):
    """Where it is, by the number of its directory, too."""
    places = sorted((model.tree[os.path.dirname(p)].ino or 0, os.path.basename(p)) for p in node.names)
    return node.size, node.contents(), node.seen and (node.seen[1], node.kind == "f" and node.seen[4]), places


def before(args, model, rng):
    """What the backing directory has before the job: written there by hand."""
    w = Worker(model, [args.backing], rng, args.log)
    for _ in range(16):
        rng.choice([w.make, w.make, w.mkdir, w.symlink])()
    for h in list(w.handles):
        w.close(h)
    for path, node in model.tree.items():
        node.seen = look(os.path.join(args.backing, path))
    for node in model.all:
        node.ino |= BACKING_BIT
    for node in model.all:
        drained(model, node)


def drained(model, node):
    node.writers.clear()
    node.cut_alone = False
    node.cuts.clear()
    for w in node.windows.values():
        w.forget()
    node.drained = state_of(model, node)


def work(args, model, rng):
    model.nodes = len(args.mounts)
    w = Worker(model, args.mounts, rng, args.log)
    if args.drained:
        args.log.write("all is drained\n")
        for node in model.all:
            drained(model, node)
    for _ in range(args.steps):
        w.step()
    if args.kill:
        die(args, w)
    for node in model.all:
        node.uncommitted = False
    w.settle()
    w.look_patiently()
    w.sync_all()


def die(args, w):
    for _, _, node in w.handles:
        node.uncommitted = True
    for path, node in w.m.tree.items():
        node.seen = look(w.rng.choice(w.mounts) + "/" + path)
    save(args, w.m)
    for pid in args.kill:
        args.log.write("process %d is killed\n" % pid)
        os.kill(pid, signal.SIGKILL)
    os._exit(0)


def save(args, model):
    with open(args.model, "wb") as f:
        pickle.dump(model, f)
    return 0


def check(args, model, rng):
    c = Check(args, model, rng)
    c.everything()
    print("seed %s: %d recoveries, %d bytes listed as missing, %d of them in doubt" % (args.seed, c.num, c.missing, c.doubtful))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", default="1")
    parts = parser.add_subparsers(dest="part", required=True)
    for name in "before", "work", "check":
        p = parts.add_parser(name)
        if name == "work":
            p.add_argument("--steps", type=int, default=45)
            p.add_argument("--drained", action="store_true")
            p.add_argument("--kill", type=int, action="append", default=[], metavar="PID")
        if name == "check":
            p.add_argument("--thorough", action="store_true", help="elsewhere by one process, two and three; else by one of these numbers")
        p.add_argument("model")
        if name == "work":
            p.add_argument("mounts", nargs="+")
        else:
            p.add_argument("backing")
        if name == "check":
            p.add_argument("stores", nargs="+")
    args = parser.parse_args()
    os.umask(0)
    model = Model()
    if args.part != "before":
        with open(args.model, "rb") as f:
            model = pickle.load(f)
    args.log = open(args.model + ".log", "a", buffering=1, encoding="utf-8")
    try:
        {"before": before, "work": work, "check": check}[args.part](args, model, random.Random("%s %s" % (args.seed, args.part)))
    except Wrong as e:
        print("seed %s: %s" % (args.seed, e))
        return 1
    return save(args, model)


if __name__ == "__main__":
    sys.exit(main())
