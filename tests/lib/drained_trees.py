#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-3.0-or-later
"""drained_trees.py [--seed N] [--rounds N] [--seconds N] [--processes N] [--flushers N] REFERENCE BACKING MOUNT...

Processes use the mounts of a job at random, each call on any of them, while "cistern flush" runs without pause. What they do they do to
the plain directory REFERENCE, too: both must say the same, and what is closed or fsynced must look the same on any node. A process has
names of its own, so what they must show is known: files that are written, cut, linked, renamed, replaced, removed while they are open,
directories that come, go and move with all that is in them, names that change their type. Some files are everybody's: each process has
blocks of its own there. Others look at the names and list them meanwhile, without pause: what they see must have been true at some
moment of the look. After each round, and a flush, every mount and BACKING are what REFERENCE is."""

import argparse
import errno
import multiprocessing
import os
import random
import shutil
import stat
import subprocess
import sys
import time
import zlib

TOP = "common"
NAMES, SHARED = "abcde", 3
BLOCK, BLOCKS = 5000, 40  # of everybody's files
HANDLES = 3
STALE_NSEC = 30 * 1000000000  # docs/posix.md, ESTALE; only a test that fails needs them
PATIENCE = 240  # seconds; only a test that fails needs them
OWN_TEMPORARY = ".cistern-"
fork = multiprocessing.get_context("fork")


class Wrong(Exception):
    pass


def patiently(what, *args, looks=()):
    """Once more where Linux says ESTALE. Paths that are looked at, too: what another node has moved the kernel moves then, which a rename cannot do."""
    end = time.monotonic_ns() + STALE_NSEC
    while True:
        try:
            return what(*args)
        except OSError as e:
            if e.errno != errno.ESTALE or time.monotonic_ns() > end:
                raise
        time.sleep(0.01)
        for path in looks:
            try:
                os.stat(path)
            except OSError:
                pass


def answer(what, *args, looks=()):
    """(0, result), or (errno, None)."""
    try:
        return 0, patiently(what, *args, looks=looks)
    except OSError as e:
        return e.errno, None


def kind_of(st):
    return "d" if stat.S_ISDIR(st.st_mode) else "l" if stat.S_ISLNK(st.st_mode) else "f"


def identity(path):
    """What a look at a name may compare: its kind and, but of a symbolic link, what its maker has left in the mode."""
    error, st = answer(os.lstat, path)
    return None if error else (kind_of(st), 0 if stat.S_ISLNK(st.st_mode) else st.st_mode & 0o77)


def contents(path):
    with patiently(open, path, "rb") as f:
        return f.read()


def first_difference(a, b):
    at = next((i for i, (x, y) in enumerate(zip(a, b)) if x != y), min(len(a), len(b)))
    return "%d and %d bytes, which differ at %d: %s and %s" % (len(a), len(b), at, a[at:at + 16].hex(), b[at:at + 16].hex())


# ---- who changes things

class Owner:
    def __init__(self, who, args, seed):
        self.who, self.args, self.rng = who, args, random.Random(seed)
        self.handles = []  # (descriptor in a mount, in the reference, the reference's inode, written since the last sync, what it is)
        self.count, self.log, self.events, self.doing = 0, [], [], None

    def bases(self):
        return self.rng.choice(self.args.mounts) + "/", self.args.reference + "/"

    def note(self, text, *args):
        self.log.append("%.6f process %d: " % (time.monotonic(), self.who) + text % args)

    def call(self, text, what, *args):
        """Of an error without a path it is known whose it is."""
        self.doing = text
        result = what(*args)
        self.doing = None
        return result

    def call_both(self, text, h, what, *args):
        """what(descriptor) of both files of a handle."""
        return [self.call("%s of handle %d, %s, %s" % (text, h[0], h[4], where), what, fd, *args)
                for fd, where in zip(h, ("in the mount", "in the reference"))]

    def both(self, text, what, *paths):
        """what(base) in a mount and in the reference; the top names among paths may mean something else from here on."""
        mount, reference = self.bases()
        tops = [p for p in paths if p.count("/") == 1]
        begin = time.monotonic_ns()
        there = answer(what, mount, looks=[mount + p for p in paths])
        end = time.monotonic_ns()
        here = answer(what, reference)
        self.note("%s by %s: %s", text, os.path.basename(mount[:-1]), errno.errorcode.get(there[0], there[0] or "ok"))
        if there[0] != here[0]:
            raise Wrong("%s by %s says %s, not %s" % (text, mount, *(errno.errorcode.get(r[0], "success") for r in (there, here))))
        if here[0] == 0:
            self.events += [(begin, end, p, identity(reference + p)) for p in tops]
        return here[0] == 0

    # ---- paths

    def path(self):
        """In a directory that is there, mostly."""
        for _ in range(4):
            path = TOP + "/p%d%s" % (self.who, self.rng.choice(NAMES))
            for _ in range(self.rng.choice([0, 0, 0, 1, 1, 2])):
                path += "/" + self.rng.choice(NAMES)
            if os.path.isdir(self.args.reference + "/" + os.path.dirname(path)):
                break
        return path

    def inode(self, path):
        error, st = answer(os.lstat, self.args.reference + "/" + path)
        return None if error else st.st_ino

    def is_being_written(self, path):
        ino = self.inode(path)
        return any(h[2] == ino and h[3] for h in self.handles)

    def file(self):
        """The path of one that may be written to by its name; or one that there is not."""
        path = self.path()
        error, st = answer(os.lstat, self.args.reference + "/" + path)
        good = error or (stat.S_ISREG(st.st_mode) and not self.is_being_written(path))
        return path if good else None

    def data(self):
        num = self.rng.choice([0, 7, 100, 4096, 5000, 40000, self.rng.randrange(200000), 1500000 if self.rng.random() < 0.1 else 1])
        return self.rng.randbytes(num)

    def offset(self):
        return self.rng.choice([0, 0, 10, 4096, self.rng.randrange(100000), self.rng.randrange(3000000)])

    def mode(self, bits):
        self.count += 1
        return bits | self.count & 0o77

    # ---- changes

    def do_write(self):
        path = self.file()
        if not path:
            return
        flags = os.O_WRONLY | os.O_CREAT | self.rng.choice([0, os.O_TRUNC, os.O_TRUNC, os.O_APPEND, os.O_EXCL])
        mode, data, off, sync = self.mode(0o600), self.data(), self.offset(), self.rng.random() < 0.3

        def write(base):
            fd = os.open(base + path, flags, mode)
            try:
                os.write(fd, data) if flags & os.O_APPEND else os.pwrite(fd, data, off)
                if sync:
                    os.fsync(fd)
            finally:
                os.close(fd)
        self.both("write %s, flags %o, %d at %d" % (path, flags, len(data), off), write, path)

    def do_write_apart(self):
        """One file, by all nodes at once: pieces in turn."""
        path = self.file()
        if not path or not os.path.isdir(self.args.reference + "/" + os.path.dirname(path)):
            return
        mode, data, off, piece = self.mode(0o600), self.data(), self.offset(), self.rng.randrange(1000, 30000)
        cut = self.rng.choice([0, os.O_TRUNC])
        begin = time.monotonic_ns()
        fds = []
        bases = [base + "/" + path for base in self.args.mounts + [self.args.reference]]
        for i, name in enumerate(bases):
            fds.append(patiently(os.open, name, os.O_WRONLY | os.O_CREAT | (cut if i in (0, len(self.args.mounts)) else 0), mode))
        for i in range(0, len(data), piece):
            for k in i // piece % (len(fds) - 1), -1:
                self.call("pwrite at %d of %s" % (off + i, bases[k]), os.pwrite, fds[k], data[i:i + piece], off + i)
        for fd, name in zip(fds, bases):
            self.call("close of " + name, os.close, fd)
        self.note("write apart %s, %d, %d at %d, pieces of %d", path, cut, len(data), off, piece)
        if path.count("/") == 1:
            self.events.append((begin, time.monotonic_ns(), path, identity(self.args.reference + "/" + path)))

    def do_write_blocks(self):
        """Of a file that is everybody's."""
        path = TOP + "/shared%d" % self.rng.randrange(SHARED)
        blocks = [b for b in range(self.who, BLOCKS, self.args.processes) if self.rng.random() < 0.5]
        data = self.rng.randbytes(BLOCK)

        def write(base):
            fd = os.open(base + path, os.O_WRONLY | os.O_CREAT, 0o600)
            for b in blocks:
                os.pwrite(fd, data, b * BLOCK)
            os.close(fd)
        self.both("write blocks %s of %s" % (blocks, path), write)
        mount, reference = self.bases()
        for b in blocks:
            with patiently(open, mount + path, "rb") as f:
                f.seek(b * BLOCK)
                got = self.call("read of block %d of %s" % (b, mount + path), f.read, BLOCK)
            if got != data:
                raise Wrong("block %d of %s in %s: %s" % (b, path, mount, first_difference(got, data)))

    def do_truncate(self):
        path = self.file()
        size = self.offset()
        if path:
            self.both("truncate %s to %d" % (path, size), lambda base: os.truncate(base + path, size))

    def do_open(self):
        path = self.file()
        if not path or len(self.handles) == HANDLES or any(h[2] == self.inode(path) for h in self.handles):
            return
        flags, mode = os.O_RDWR | os.O_CREAT | self.rng.choice([0, os.O_TRUNC]), self.mode(0o600)
        fds = []
        by = []

        def open_it(base):
            fds.append(os.open(base + path, flags, mode))
            by.append(os.path.basename(base[:-1]))
        if self.both("open %s, flags %o" % (path, flags), open_it, path):
            self.handles.append([*fds, os.fstat(fds[1]).st_ino, False, "opened as %s by %s" % (path, by[0])])
            self.note("that is handle %d", fds[0])

    def do_write_open(self):
        if self.handles:
            h, data, off = self.rng.choice(self.handles), self.data(), self.offset()
            self.call_both("pwrite at %d" % off, h, os.pwrite, data, off)
            h[3] = True
            self.note("write %d at %d to handle %d", len(data), off, h[0])

    def do_truncate_open(self):
        if self.handles:
            h, size = self.rng.choice(self.handles), self.offset()
            self.call_both("ftruncate to %d" % size, h, os.ftruncate, size)
            h[3] = True
            self.note("truncate handle %d to %d", h[0], size)

    def do_read_open(self):
        if self.handles:
            h = self.rng.choice(self.handles)
            sizes = [st.st_size for st in self.call_both("fstat", h, os.fstat)]
            got, want = self.call_both("pread", h, os.pread, sizes[1] + 1, 0)
            if got != want or sizes[0] != sizes[1]:
                raise Wrong("handle %d, %s, of size %d: %s" % (h[0], h[4], sizes[0], first_difference(got, want)))

    def do_sync(self):
        if self.handles:
            h = self.rng.choice(self.handles)
            self.call("fsync of handle %d, %s" % (h[0], h[4]), os.fsync, h[0])
            h[3] = False
            self.note("fsync handle %d", h[0])

    def do_close(self):
        if self.handles:
            h = self.handles.pop(self.rng.randrange(len(self.handles)))
            self.call_both("close", h, os.close)
            self.note("close handle %d", h[0])

    def do_unlink(self):
        path = self.path()
        self.both("unlink " + path, lambda base: os.unlink(base + path), path)

    def do_rename(self):
        a, b = self.path(), self.path()
        self.both("rename %s to %s" % (a, b), lambda base: os.rename(base + a, base + b), a, b)

    def do_replace(self):
        """As editors do: the new file is written beside the old one, by perhaps another node than gives it the name."""
        path = self.file()
        if not path:
            return
        temp, mode, data = TOP + "/p%dt" % self.who, self.mode(0o600), self.data()

        def write(base):
            fd = os.open(base + temp, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
            os.write(fd, data)
            os.close(fd)
        self.both("write %s, %d" % (temp, len(data)), write, temp)
        if not self.both("rename %s to %s" % (temp, path), lambda base: os.rename(base + temp, base + path), temp, path):
            self.both("unlink " + temp, lambda base: os.unlink(base + temp), temp)

    def do_link(self):
        a, b = self.path(), self.path()
        self.both("link %s to %s" % (a, b), lambda base: os.link(base + a, base + b, follow_symlinks=False), b)

    def do_symlink(self):
        path, target = self.path(), "t" * self.rng.randrange(1, 30)
        self.both("symlink " + path, lambda base: os.symlink(target, base + path), path)

    def do_mkdir(self):
        path, mode = self.path(), self.mode(0o700)
        self.both("mkdir " + path, lambda base: os.mkdir(base + path, mode), path)

    def do_rmdir(self):
        path = self.path()
        self.both("rmdir " + path, lambda base: os.rmdir(base + path), path)

    def do_rmtree(self):
        path = self.path()
        if os.path.isdir(self.args.reference + "/" + path) and not os.path.islink(self.args.reference + "/" + path):
            self.both("rmtree " + path, lambda base: shutil.rmtree(base + path), path)

    def do_check(self):
        """Any node shows what the reference has."""
        path, (mount, reference) = self.path(), self.bases()
        if self.is_being_written(path):
            return
        there, here = (answer(look, base + path) for base in (mount, reference))
        if there != here:
            raise Wrong("%s%s is %s, not %s" % (mount, path, there, here))
        if here[0] == 0 and here[1][0] == "f":
            got, want = (self.call("read of " + base + path, contents, base + path) for base in (mount, reference))
            if got != want:
                raise Wrong("%s%s: %s" % (mount, path, first_difference(got, want)))

    WEIGHTS = {"write": 6, "write_apart": 4, "write_blocks": 2, "truncate": 2, "open": 2, "write_open": 3, "truncate_open": 1, "read_open": 1,
               "sync": 2, "close": 2, "unlink": 5, "rename": 8, "replace": 5, "link": 3, "symlink": 1, "mkdir": 5, "rmdir": 2, "rmtree": 2,
               "check": 8}

    def work(self, seconds):
        end = time.monotonic() + seconds
        self.log, self.events = [], []
        kinds, weights = list(self.WEIGHTS), list(self.WEIGHTS.values())
        num = 0
        try:
            while time.monotonic() < end:
                getattr(self, "do_" + self.rng.choices(kinds, weights)[0])()
                num += 1
                if self.rng.random() < 0.05:
                    time.sleep(self.rng.random() / 20)
            while self.handles:
                self.do_close()
        except (Wrong, OSError) as e:
            wrong = "%s: %s%s" % (type(e).__name__, e, ": " + self.doing if self.doing else "")
            self.note("%s", wrong)
            return num, "process %d: %s" % (self.who, wrong), self.log, self.events
        return num, None, self.log, self.events


def look(path):
    """(kind, mode, links, size or target)."""
    st = os.lstat(path)
    kind = kind_of(st)
    end = {"f": lambda: st.st_size, "l": lambda: os.readlink(path), "d": lambda: 0}[kind]()
    return kind, stat.S_IMODE(st.st_mode), 0 if kind == "d" else st.st_nlink, end


# ---- who looks meanwhile

class Watcher:
    def __init__(self, who, args, seed):
        self.args, self.rng = args, random.Random(seed)

    def work(self, seconds):
        """Looks: (begin, end, node, name or None for a listing, what was seen)."""
        end, seen = time.monotonic() + seconds, []
        names = [TOP + "/p%d%s" % (k, n) for k in range(self.args.processes) for n in NAMES + "t"]
        try:
            while time.monotonic() < end:
                mount, name = self.rng.choice(self.args.mounts), self.rng.choice(names + [None] * len(names))
                begin = time.monotonic_ns()
                what = identity(mount + "/" + name) if name else self.listed(mount)
                seen.append((begin, time.monotonic_ns(), os.path.basename(mount), name, what))
        except (Wrong, OSError) as e:
            return len(seen), "looking: %s: %s" % (type(e).__name__, e), [], seen
        return len(seen), None, [], seen

    @staticmethod
    def listed(mount):
        with patiently(os.scandir, mount + "/" + TOP) as entries:
            found = [(e.name, "l" if e.is_symlink() else "d" if e.is_dir(follow_symlinks=False) else "f") for e in entries]
        if len(dict(found)) < len(found):
            raise Wrong("%s lists a name twice: %s" % (mount, sorted(found)))
        if any(name.startswith(OWN_TEMPORARY) for name, _ in found):
            raise Wrong("%s lists a temporary file: %s" % (mount, sorted(found)))
        return {TOP + "/" + name: kind for name, kind in found}


class History:
    """What each name may have been at any time."""

    def __init__(self, before):
        self.before, self.events = before, {}

    def add(self, events):
        for event in events:
            self.events.setdefault(event[2], []).append(event)

    def possible(self, name, begin, end):
        was, may = self.before.get(name), set()
        for b, e, _, then in self.events.get(name, []):
            if e < begin:
                was = then
            elif b <= end:
                may.add(then)
        return may | {was}

    def refute(self, begin, end, node, name, seen):
        """None, or what cannot be."""
        if name:
            may = self.possible(name, begin, end)
            return None if seen in may else "%s of %s is %s, can only be %s, from %d to %d us" % (name, node, seen, may, begin // 1000, end // 1000)
        for name in set(self.events) | set(self.before):
            may = {p and p[0] for p in self.possible(name, begin, end)}
            if seen.get(name) not in may:
                return "a listing by %s shows %s as %s, can only be %s, from %d to %d us" % (node, name, seen.get(name), may, begin // 1000, end // 1000)
        return None


# ---- rounds

def serve(pipe, role):
    while True:
        seconds = pipe.recv()
        if seconds is None:
            return
        pipe.send(role.work(seconds))


def tree(base):
    found = {}
    for path, dirs, files in os.walk(base):
        for name in dirs + files:
            whole = os.path.join(path, name)
            seen = look(whole)
            found[os.path.relpath(whole, base)] = seen + ((zlib.crc32(contents(whole)),) if seen[0] == "f" else ())
    return found


def differ(name, got, want):
    wrong = ["%s has %s: %s, not %s" % (name, path, got.get(path, "nothing"), want.get(path, "nothing"))
             for path in sorted(set(got) | set(want)) if got.get(path) != want.get(path)]
    return "\n".join(wrong[:20])


def flush(mount):
    done = subprocess.run([os.environ["CISTERN"], "flush", "--wait", "--timeout", "%ds" % PATIENCE, "--mount", mount], stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    return done.returncode, done.stdout.strip()


def flusher(mount, stop, pipe):
    said, num = [], 0
    while not stop.is_set():
        status, text = flush(mount)
        num += 1
        if status:
            said.append("%.6f flush of %s: status %d: %s" % (time.monotonic(), mount, status, text))
    pipe.send((num, said))


class Trial:
    def __init__(self, args):
        self.args, self.pipes, self.processes = args, [], []
        for k in range(args.processes):
            self.start(serve, Owner(k, args, "%d.%d" % (args.seed, k)))
        for k in range(args.watchers):
            self.start(serve, Watcher(k, args, "%d.w%d" % (args.seed, k)))

    def start(self, what, *args):
        mine, other = fork.Pipe()
        self.processes.append(fork.Process(target=what, args=(other, *args), daemon=True))
        self.processes[-1].start()
        self.pipes.append(mine)

    def work(self):
        """[(number of calls, what is wrong or None, log, events or looks)] of all."""
        for pipe in self.pipes:
            pipe.send(self.args.seconds)
        said = []
        for pipe in self.pipes:
            assert pipe.poll(self.args.seconds + PATIENCE), "a call does not end"
            said.append(pipe.recv())
        return said

    def flushed_work(self):
        stop, mine = fork.Event(), []
        for k in range(self.args.flushers):
            a, b = fork.Pipe()
            mine.append((a, fork.Process(target=flusher, args=(self.args.mounts[k % len(self.args.mounts)], stop, b), daemon=True)))
            mine[-1][1].start()
        said = self.work()
        stop.set()
        flushes = [pipe.recv() for pipe, _ in mine]
        for _, process in mine:
            process.join()
        return said, sum(n for n, _ in flushes), [text for _, texts in flushes for text in texts]

    def round(self):
        """(calls, looks, flushes, what is wrong, logs)"""
        args = self.args
        base = args.reference + "/" + TOP
        history = History({TOP + "/" + name: identity(base + "/" + name) for name in os.listdir(base)})
        said, flushes, complaints = self.flushed_work()
        owners, watchers = said[:args.processes], said[args.processes:]
        for owner in owners:
            history.add([e for e in owner[3]])
        wrong = [s[1] for s in said if s[1]] + ([] if args.late else complaints)
        if not wrong:
            wrong = [w for s in watchers for look in s[3] for w in [history.refute(*look)] if w][:10]
        if not wrong:
            want = tree(args.reference)
            wrong = [differ(m, tree(m), want) for m in args.mounts]
            status, text = flush(random.Random(args.seed + flushes).choice(args.mounts))
            wrong += ["the flush after all: status %d: %s" % (status, text)] if status else []
            wrong += [differ(args.backing, tree(args.backing), want)]
        log = sorted(line for s in said for line in s[2]) + complaints
        return sum(o[0] for o in owners), sum(w[0] for w in watchers), flushes, len(complaints), "\n".join(filter(None, wrong)), log

    def end(self):
        for pipe in self.pipes:
            pipe.send(None)
        for process in self.processes:
            process.join(PATIENCE)


def main():
    parser = argparse.ArgumentParser()
    for name, default in ("seed", 1), ("rounds", 2), ("processes", 4), ("watchers", 2), ("flushers", 1):
        parser.add_argument("--" + name, type=int, default=default)
    parser.add_argument("--seconds", type=float, default=4, help="of a round")
    parser.add_argument("--late", action="store_true", help="flushes under way may fail")
    parser.add_argument("--log", help="what everybody did is written to this file when something is wrong")
    parser.add_argument("reference")
    parser.add_argument("backing")
    parser.add_argument("mounts", nargs="+")
    args = parser.parse_args()
    os.umask(0)
    args.reference, args.backing = os.path.abspath(args.reference), os.path.abspath(args.backing)
    args.mounts = [os.path.abspath(m) for m in args.mounts]
    for base in args.reference, args.mounts[0]:
        os.mkdir(base + "/" + TOP, 0o755)
    trial, totals = Trial(args), [0, 0, 0, 0]
    for k in range(args.rounds):
        *numbers, wrong, log = trial.round()
        totals = [a + b for a, b in zip(totals, numbers)]
        if wrong:
            print("seed %d, round %d: %s" % (args.seed, k + 1, wrong))
            if args.log:
                with open(args.log, "w") as f:
                    f.write("\n".join(log) + "\n")
            return 1
    trial.end()
    print("seed %d: %d calls, %d looks, %d flushes, %d of them not in order" % (args.seed, *totals))
    return 0


if __name__ == "__main__":
    sys.exit(main())
