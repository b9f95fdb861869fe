#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-3.0-or-later
"""shared_writes.py [--seed N] [--phases N] [--processes N] [--files N] [--lossy] [--until FILE] [--expect DIR] [--listed FILE] MOUNT...

Processes on all mounts write the same files at random, and what they read is compared with a model. All goes in phases: everybody
works; when all have ended, everybody makes what he wrote known (fsync or close); when all have, everybody looks. In a phase
  apart    bytes belong to a node, or to a process: pieces next to each other, down to single bytes; the processes of a node may
           overlap each other. The file's tail is one process's, who also cuts it
  sieve    bytes belong to a process; whole spans with others' bytes in them are read, changed in parts, written back
  overlap  all write everything: which node's bytes count nobody can know, but all nodes say the same
A read under way gives, for each byte, what it was before the phase or what somebody has written since; never less than what its own
node had written. --lossy: mounts may die; what fails is done again when they are back. At the end DIR has what the files must be, and
FILE the overlaps that a drain must list; "shared_writes.py --listed FILE --manifest MANIFEST" compares."""

import argparse
import ctypes
import errno
import json
import mmap
import multiprocessing
import os
import random
import sys
import time

from shared_model import END, WINDOWS, File, Old, Write, differs, explain, left, meanwhile, segments

LOST = {errno.ENOTCONN, errno.ECONNABORTED, errno.EIO, errno.ENOENT, errno.ESHUTDOWN, errno.ETIMEDOUT}
PATIENCE = 240  # seconds; only a test that fails needs them
KINDS = {"apart": 5, "sieve": 2, "overlap": 2}  # a plain directory has no chance with "sieve"
KNOWN_NSEC = 4000000000  # what took less has not become known by itself
fork = multiprocessing.get_context("fork")
libc = ctypes.CDLL(None, use_errno=True)


class Wrong(Exception):
    pass


# ---- what a process does

class Worker:
    def __init__(self, mount, names, lossy, progress):
        self.mount, self.names, self.lossy = mount, names, lossy
        self.fds, self.dirty = {}, set()
        self.progress = os.open(progress, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)

    def fd(self, f):
        if f not in self.fds:
            self.fds[f] = os.open(self.mount + "/" + self.names[f], os.O_RDWR)
        return self.fds[f]

    def drop(self):
        """After the death of the mount."""
        for fd in self.fds.values():
            try:
                os.close(fd)
            except OSError:
                pass
        self.fds = {}

    def again(self, do, *args):
        """do, until the mount lives."""
        deadline = time.monotonic() + PATIENCE
        while True:
            try:
                return do(*args)
            except OSError as e:
                if not self.lossy or e.errno not in LOST or time.monotonic() > deadline:
                    raise OSError(e.errno, "%s %s at %s: %s" % (do.__name__, args[:3], self.mount, e.strerror))
                self.drop()
                time.sleep(0.02)

    def write(self, f, off, data):
        self.dirty.add(f)
        while data:
            num = os.pwrite(self.fd(f), data, off)
            off, data = off + num, data[num:]

    def punch(self, f, off, num):
        self.dirty.add(f)
        if libc.fallocate(self.fd(f), 3, ctypes.c_long(off), ctypes.c_long(num)):
            raise OSError(ctypes.get_errno(), "fallocate")

    def cut(self, f, size):
        self.dirty.add(f)
        os.ftruncate(self.fd(f), size)

    def sync(self, f):
        os.fsync(self.fd(f))
        self.dirty.discard(f)

    def reopen(self, f):
        """What close itself says of its file is lost when the mount is: then only fsync knows."""
        if self.lossy and f in self.dirty:
            self.sync(f)
        if f in self.fds:
            os.close(self.fds.pop(f))
        self.dirty.discard(f)
        self.fd(f)

    def read(self, f, off, num):
        return os.pread(self.fd(f), num, off)

    def read_mapped(self, f, off, num):
        """Through a mapping; what lies behind the end is not there."""
        size = os.fstat(self.fd(f)).st_size
        if size <= off:
            return b""
        with mmap.mmap(self.fd(f), size, prot=mmap.PROT_READ) as m:
            return m[off:off + num]

    def sieve(self, f, off, num, changes):
        """As ROMIO's data sieving; what is not there yet is not made."""
        span = bytearray(os.pread(self.fd(f), num, off))
        begin = time.monotonic_ns()
        self.dirty.add(f)
        for at, data in changes:
            if at - off + len(data) <= len(span):
                span[at - off:at - off + len(data)] = data
            else:
                self.write(f, at, data)
        self.write(f, off, bytes(span))
        return begin

    def work(self, actions):
        """Each as (begin, end, what it gave)."""
        said = []
        for kind, *args in actions:
            begin = time.monotonic_ns()
            got = self.again(getattr(self, kind), *args)
            said.append((begin, time.monotonic_ns(), got))
            os.write(self.progress, b".")
        return said

    def settle(self, how):
        """All that this process wrote becomes known."""
        for f in sorted(self.dirty):
            self.again(self.sync if how == "fsync" else self.reopen, f)

    def look(self, step, reader):
        """Each file: its size, and its windows, read in steps."""
        return [self.again(self.look_at, f, step, reader) for f in range(len(self.names))]

    def look_at(self, f, step, reader):
        windows = []
        for begin, end in WINDOWS:
            data = b""
            while begin + len(data) < end:
                got = getattr(self, reader)(f, begin + len(data), min(step, end - begin - len(data)))
                if not got:
                    break
                data += got
            windows.append(data)
        return os.fstat(self.fd(f)).st_size, windows


def worker(pipe, *args):
    me = Worker(*args)
    while True:
        order = pipe.recv()
        if order is None:
            return
        try:
            pipe.send((None, getattr(me, order[0])(*order[1:])))
        except OSError as e:
            pipe.send((str(e), None))


# ---- a phase: what is done

class Read:
    def __init__(self, who, node, f, off, num, number):
        self.who, self.node, self.f, self.off, self.num, self.number = who, node, f, off, num, number


class Plan:
    """What the processes of one phase will do: actions[who]; writes, with the number of their action."""

    def __init__(self, rng, kind, nodes, processes, files):
        self.rng, self.kind, self.nodes, self.files = rng, kind, nodes, files
        self.actions = [[] for _ in range(processes)]
        self.writes, self.reads = [], []
        self.quiet = kind == "overlap" and rng.random() < .6
        self.tail = {}
        self.pieces = [self.deal(f, processes) for f in range(files)]
        for who in range(processes):
            if rng.random() < .9:
                for _ in range(rng.randint(3, 14)):
                    self.act(who)

    def node(self, who):
        return who % self.nodes

    def owner_of(self, who):
        return self.node(who) if self.kind == "apart" else who

    # ---- whose bytes
    def deal(self, f, processes):
        """Pieces of a file: [(off, stop, owner)]; behind self.tail[f] all is one process's."""
        rng = self.rng
        owners = self.nodes if self.kind == "apart" else processes
        if self.kind == "apart" and rng.random() < .5:
            begin, end = rng.choice(WINDOWS)
            self.tail[f] = (rng.randrange(begin, end), rng.randrange(processes))
        limit = self.tail.get(f, (END, 0))[0]
        pieces = []
        for begin, end in WINDOWS:
            at, turn = begin, rng.randrange(owners)
            while at < min(end, limit):
                fine = at + rng.randint(1, 1500) if rng.random() < .3 else at
                size = rng.choice([1, 1, 2, 3, 7, 47, 511]) if at < fine else rng.choice([rng.randint(1, 300), rng.randint(1, 9000), 4096, 47])
                while at < min(end, limit):
                    stop = min(at + size, end, limit)
                    pieces.append((at, stop, turn % owners))
                    at, turn = stop, turn + 1
                    if at >= fine:
                        break
        return pieces

    def own(self, f, who):
        return [p for p in self.pieces[f] if p[2] == self.owner_of(who)]

    # ---- actions
    def add(self, who, kind, f, *args):
        self.actions[who].append((kind, f, *args))
        return len(self.actions[who]) - 1

    def put(self, who, f, off, stop):
        data = self.rng.randbytes(stop - off)
        number = self.add(who, "write", f, off, data)
        self.writes.append((number, Write(who, self.node(who), f, off, stop, data, "write")))

    def act(self, who):
        rng = self.rng
        f = rng.randrange(self.files)
        kinds = {"put": 6, "burst": 3, "look": 4, "punch": 1, "tail": 4}
        if not self.quiet:
            kinds.update(sync=1.5, reopen=1)
        else:
            kinds.update(look=0)  # who may write sees what others have written
        if self.kind == "overlap":
            kinds.update(punch=0, burst=0)
        elif self.kind == "sieve":
            kinds.update(sieve=8, punch=0)
        getattr(self, "do_" + rng.choices(list(kinds), list(kinds.values()))[0])(who, f)

    def some(self, who, f):
        """A range that this process may write, or None."""
        rng = self.rng
        if self.kind == "overlap":
            begin, end = rng.choice(WINDOWS)
            off = rng.randrange(begin, end)
            return off, min(end, off + rng.choice([1, 5, 100, 4096, 9999]))
        own = self.own(f, who)
        if not own:
            return None
        off, stop, _ = rng.choice(own)
        how = rng.random()
        if how < .5:
            return off, stop
        at = rng.randrange(off, stop)
        return (at, at + 1) if how < .6 else (at, rng.randint(at + 1, stop))

    def do_put(self, who, f):
        where = self.some(who, f)
        if where:
            self.put(who, f, *where)

    def do_punch(self, who, f):
        where = self.some(who, f)
        if where:
            number = self.add(who, "punch", f, where[0], where[1] - where[0])
            self.writes.append((number, Write(who, self.node(who), f, *where, None, "punch")))

    def do_burst(self, who, f):
        """Own pieces one after the other, as a program with a strided view does."""
        own = self.own(f, who)
        first = self.rng.randrange(len(own)) if own else 0
        for off, stop, _ in own[first:first + self.rng.randint(2, 25)]:
            self.put(who, f, off, stop)

    def do_tail(self, who, f):
        """Only one process, so all in its order: writes and cuts."""
        rng = self.rng
        tail, owner = self.tail.get(f, (END, None))
        if who != owner:
            self.do_put(who, f)
            return
        spots = [rng.randint(max(begin, tail), end) for begin, end in WINDOWS if end > tail]
        for off in rng.sample(spots, rng.randint(1, len(spots))):
            if rng.random() < .5:
                number = self.add(who, "cut", f, off)
                self.writes.append((number, Write(who, self.node(who), f, off, END, None, "cut")))
            else:
                end = next(end for begin, end in WINDOWS if begin <= off <= end)
                if off < end:
                    self.put(who, f, off, min(end, off + rng.randint(1, 3000)))

    def do_sieve(self, who, f):
        rng = self.rng
        begin, end = rng.choice(WINDOWS)
        off = rng.randrange(begin, end)
        stop = min(end, off + rng.randint(1, 9000))
        mine = [(max(a, off), min(b, stop)) for a, b, _ in self.own(f, who) if a < stop and b > off]
        changes = [(a, rng.randbytes(b - a)) for a, b in mine if rng.random() < .7]
        number = self.add(who, "sieve", f, off, stop - off, changes)
        for a, data in changes:
            self.writes.append((number, Write(who, self.node(who), f, a, a + len(data), data, "sieve")))

    def do_look(self, who, f):
        begin, end = self.rng.choice(WINDOWS)
        off = self.rng.randrange(begin, end)
        num = min(end - off, self.rng.choice([1, 700, 9000, 30000]))
        self.reads.append(Read(who, self.node(who), f, off, num, self.add(who, "read", f, off, num)))

    def do_sync(self, who, f):
        self.add(who, "sync", f)

    def do_reopen(self, who, f):
        self.add(who, "reopen", f)


# ---- a trial

class Trial:
    def __init__(self, args):
        self.args, self.rng = args, random.Random(args.seed)
        self.names = ["shared%d" % f for f in range(args.files)]
        self.files = [File() for _ in self.names]
        self.listed, self.pipes, self.done, self.kind = [], [], 0, ""
        for f, name in enumerate(self.names):
            os.close(os.open(self.mount(f) + "/" + name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644))
        for who in range(args.processes):
            mine, other = fork.Pipe()
            todo = (other, self.mount(who), self.names, args.lossy, args.progress)
            fork.Process(target=worker, args=todo, daemon=True).start()
            self.pipes.append(mine)

    def mount(self, who):
        return self.args.mounts[who % len(self.args.mounts)]

    def all(self, orders):
        """orders[who], to all at once; what they give."""
        for pipe, order in zip(self.pipes, orders):
            pipe.send(order)
        answers = []
        for who, pipe in enumerate(self.pipes):
            if not pipe.poll(PATIENCE + 60):
                raise Wrong("process %d at %s does not end: %s" % (who, self.mount(who), orders[who][0]))
            answers.append(pipe.recv())
        for error, _ in answers:
            if error:
                raise Wrong(error)
        return [got for _, got in answers]

    def phase(self):
        rng = self.rng
        kinds = self.args.kinds.split(",")
        plan = Plan(rng, rng.choices(kinds, [KINDS[k] for k in kinds])[0], len(self.args.mounts), self.args.processes, len(self.files))
        self.kind = plan.kind + ", quiet" * plan.quiet
        if plan.quiet or plan.kind == "sieve":  # all have all files open
            self.look()
        start = time.monotonic_ns()
        said = self.all([["work", actions] for actions in plan.actions])
        brief = time.monotonic_ns() - start < KNOWN_NSEC
        self.done += sum(map(len, said))
        writes = self.took_place(plan, said, start)
        for read in plan.reads:
            begin, end, got = said[read.who][read.number]
            self.check_read(plan, writes[read.f], read, begin - start, end - start, got)
        self.all([["settle", rng.choice(["fsync", "close"])] for _ in self.pipes])
        if plan.quiet and brief and not self.args.lossy:
            self.must_be_listed(writes)
        self.check_end(plan, writes)

    def took_place(self, plan, said, start):
        """The writes of each file, with their times."""
        writes = [[] for _ in self.files]
        for number, w in plan.writes:
            begin, end, got = said[w.who][number]
            w.begin, w.end = (got or begin) - start, end - start
            writes[w.f].append(w)
        return writes

    def check_read(self, plan, writes, read, begin, end, got):
        where = "read by process %d of node %d, %d to %d us, of %d at %d; " % (
            read.who, read.node, begin // 1000, end // 1000, read.num, read.off)
        file = self.files[read.f]
        old = Old(file)
        for a, b, over in segments(writes, read.off, read.off + len(got)):
            self.check_bytes(where, got[a - read.off:b - read.off], a, meanwhile(old, over, begin, end, read.node if self.args.lossy else None), read.f, writes)
        tail, who = plan.tail.get(read.f, (END, None))
        own = [w.stop for w in writes if w.node == read.node and w.who != who and w.data and w.end < begin]
        least = min(max([min(file.size, tail)] + own), read.off + read.num)
        if read.off + len(got) < least:
            raise Wrong("%s%s: only %d bytes, not %d" % (where, self.names[read.f], len(got), least - read.off))

    def check_bytes(self, where, got, off, candidates, f, writes):
        at = differs(got, off, candidates)
        if at is not None:
            raise Wrong("%s%s, %s" % (where, self.names[f], explain(at, got, off, candidates, self.files[f], writes)))

    def must_be_listed(self, writes):
        """Nobody has made anything known before all had written: no node can have seen another's bytes."""
        for name, some in zip(self.names, writes):
            for begin, end in WINDOWS:
                for a, b, over in segments(some, begin, end):
                    nodes = sorted({w.node for w in over})
                    if len(nodes) > 1:
                        self.listed.append((name, a, b, nodes))

    def look(self):
        """A mapping of a mount that dies would end its process."""
        rng, readers = self.rng, ["read"] if self.args.lossy else ["read", "read_mapped"]
        return self.all([["look", rng.choice([600, 4096, 10000, 60000]), rng.choice(readers)] for _ in self.pipes])

    def check_end(self, plan, writes):
        """All processes see the same, and it is what may have come of it."""
        views = self.look()
        for f, some in enumerate(writes):
            size = self.size_after(plan, f, some)
            for who, view in enumerate(views):
                self.check_view("looking at the end, process %d of node %d: " % (who, plan.node(who)), f, some, size, *view[f])
            self.files[f].size = size
            self.files[f].windows = [data.ljust(end - begin, b"\0") for (begin, end), data in zip(WINDOWS, views[0][f][1])]
        for who, view in enumerate(views):
            if view != views[0]:
                raise Wrong("process %d of node %d does not see what process 0 sees" % (who, plan.node(who)))

    def size_after(self, plan, f, writes):
        """Only the tail's process cuts, and what others write does not go beyond its beginning."""
        size = self.files[f].size
        for w in sorted(writes, key=lambda w: w.begin):
            if w.text == "cut":
                size = max([w.off] + [other.stop for other in writes if other.data and other.stop <= plan.tail[f][0]])
            elif w.data:
                size = max(size, w.stop)
        return size

    def check_view(self, where, f, writes, size, seen, windows):
        if seen != size:
            raise Wrong("%s%s has %d bytes, not %d\n  %s" % (where, self.names[f], seen, size, "\n  ".join(map(str, writes))))
        for (begin, end), data in zip(WINDOWS, windows):
            if len(data) != max(0, min(size, end) - begin):
                raise Wrong("%s%s: read %d bytes at %d, of %d in all" % (where, self.names[f], len(data), begin, size))
            for a, b, over in segments(writes, begin, begin + len(data)) if data else []:
                self.check_bytes(where, data[a - begin:b - begin], a, left(Old(self.files[f]), over), f, writes)

    def end(self):
        for pipe in self.pipes:
            pipe.send(None)

    def expect(self, directory):
        """The files as they must be."""
        for name, file in zip(self.names, self.files):
            with open(directory + "/" + name, "wb") as out:
                for (begin, _), data in zip(WINDOWS, file.windows):
                    out.seek(begin)
                    out.write(data)
                out.truncate(file.size)


def not_listed(listed, manifest):
    """Of the overlaps that must be there the first that the manifest does not have, or None."""
    has = {entry["path"]: [(c["offset"], c["offset"] + c["length"], c["nodes"]) for c in entry["conflicts"]] for entry in manifest["files"]}
    for name, a, b, nodes in listed:
        at = a
        for begin, end, between in sorted(has.get(name, [])):
            if begin <= at < end and set(between) <= set(nodes):
                at = end
        if at < b:
            return "%s: that nodes %s wrote [%d, %d) without having seen each other is not listed, from %d on" % (name, nodes, a, b, at)
    return None


def arguments():
    parser = argparse.ArgumentParser()
    for name, default in ("seed", 1), ("phases", 20), ("processes", 4), ("files", 2):
        parser.add_argument("--" + name, type=int, default=default)
    parser.add_argument("--kinds", default=",".join(KINDS))
    parser.add_argument("--lossy", action="store_true")
    parser.add_argument("--until", help="go on until this file is there")
    parser.add_argument("--progress", default="/dev/null", help="gets a byte for each action")
    parser.add_argument("--expect", help="make the files here as they must be")
    parser.add_argument("--listed", help="what a drain must list")
    parser.add_argument("--manifest", help="compare with --listed, and no more")
    parser.add_argument("mounts", nargs="*")
    return parser.parse_args()


def main():
    args = arguments()
    if args.manifest:
        return not_listed(json.load(open(args.listed)), json.load(open(args.manifest)))
    trial, count = Trial(args), 0
    while count < args.phases or (args.until and not os.path.exists(args.until)):
        count += 1
        try:
            trial.phase()
        except Wrong as e:
            return "seed %d, phase %d, %s: %s" % (args.seed, count, trial.kind, e)
    trial.end()
    if args.expect:
        trial.expect(args.expect)
    if args.listed:
        json.dump(trial.listed, open(args.listed, "w"))
    print("seed %d: %d phases, %d actions, %d overlaps must be listed" % (args.seed, count, trial.done, len(trial.listed)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
