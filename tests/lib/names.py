#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-3.0-or-later
"""names.py [--seed N] [--rounds N] [--processes N] [--calls N] [--lossy] MOUNT...: processes on all mounts make, link, move, remove,
list and look at a few names, all at once; what the calls say must be what one file system could have said, doing one after the other.

Every round has a directory of its own. What a call makes carries the call's number: a file or directory in its mode, a symbolic link in
the length of its target; so a look says whose thing it sees. --lossy: mounts may die under the calls; a call that ends so may have
happened or not.

What is taken as one moment: whatever changes names, with success. A path of two parts is walked first, and its end may happen when the
directory has another name. A refusal needs for each of its reasons a moment at which it was true; a listing for each name a moment at
which it was there, or was not; a look at a file for its name and for its number of links. A directory that is being removed may be
found without its links. While files are exchanged, their homes may count a link more."""

import argparse
import copy
import ctypes
import errno
import multiprocessing
import os
import random
import shutil
import stat
import sys
import time

from linear import NEVER, Step, has_order

TOP = ["x", "y", "z"]
PLACES = TOP + ["x/p", "y/p"]
NOREPLACE, EXCHANGE = 1, 2
LOST = {errno.ENOTCONN, errno.ECONNABORTED, errno.EIO, errno.ETIMEDOUT}
UNDECIDED = ""  # of a round: to find out whether an order explains it would take too long
UNDECIDED_MAX = 0.1  # of all rounds, or one
PATIENCE = 120  # seconds; only a test that fails needs them
fork = multiprocessing.get_context("fork")
libc = ctypes.CDLL(None, use_errno=True)


# ---- calls

class Call:
    """error 0: success; seen: what a look has shown; number: of what it makes."""

    def __init__(self, who, kind, a, b, number):
        self.who, self.kind, self.a, self.b, self.number = who, kind, a, b, number
        self.error, self.seen, self.ino, self.begin, self.end = 0, None, None, 0, 0

    def __str__(self):
        result = errno.errorcode.get(self.error, self.error) if self.error else "ok" if self.seen is None else self.seen
        return "%-9s process %d: %d to %s us: %s %s %s -> %s" % ("[%d]" % self.number, self.who, self.begin // 1000,
                                                              "?" if self.end == NEVER else self.end // 1000, self.kind, self.a, self.b or "", result)


def identify(st):
    """(kind, number) of something, by what its maker has left in it."""
    if stat.S_ISLNK(st.st_mode):
        return "l", st.st_size
    return "d" if stat.S_ISDIR(st.st_mode) else "f", st.st_mode & 0o77


def rename2(a, b, flags):
    if libc.renameat2(-100, os.fsencode(a), -100, os.fsencode(b), flags):
        raise OSError(ctypes.get_errno(), "renameat2")


def opened(call, path, flags):
    fd = os.open(path, flags | os.O_NOFOLLOW, 0o600 | call.number)
    call.end = time.monotonic_ns()
    st = os.fstat(fd)
    os.close(fd)
    call.seen, call.ino = identify(st), st.st_ino


def looked_at(call, path):
    st = os.lstat(path)
    call.seen, call.ino = (identify(st), st.st_nlink), st.st_ino


def listed(call, path):
    with os.scandir(path) as entries:
        found = [(e.name, "l" if e.is_symlink() else "d" if e.is_dir(follow_symlinks=False) else "f") for e in entries]
    call.seen = sorted(found)


DO = {
    "excl": lambda c, a, b: opened(c, a, os.O_WRONLY | os.O_CREAT | os.O_EXCL),
    "creat": lambda c, a, b: opened(c, a, os.O_WRONLY | os.O_CREAT),
    "open": lambda c, a, b: opened(c, a, os.O_RDONLY),
    "mkdir": lambda c, a, b: os.mkdir(a, 0o700 | c.number),
    "symlink": lambda c, a, b: os.symlink("t" * c.number, a),
    "link": lambda c, a, b: os.link(a, b, follow_symlinks=False),
    "unlink": lambda c, a, b: os.unlink(a),
    "rmdir": lambda c, a, b: os.rmdir(a),
    "rename": lambda c, a, b: os.rename(a, b),
    "noreplace": lambda c, a, b: rename2(a, b, NOREPLACE),
    "exchange": lambda c, a, b: rename2(a, b, EXCHANGE),
    "lstat": lambda c, a, b: looked_at(c, a),
    "readdir": lambda c, a, b: listed(c, a),
}
WEIGHTS = {"excl": 5, "creat": 2, "open": 1, "mkdir": 4, "symlink": 1, "link": 3, "unlink": 4, "rmdir": 3, "rename": 5, "noreplace": 1,
           "exchange": 2, "lstat": 4, "readdir": 2}


def run(call):
    """Where this process stands: in a mount that has died there is nothing, and not what is below the mount point."""
    call.begin = time.monotonic_ns()
    try:
        DO[call.kind](call, call.a, call.b)
    except OSError as e:
        call.error = e.errno
    call.end = call.end or time.monotonic_ns()
    return call


def draw(rng, kinds, who, number):
    kind = rng.choices(kinds, [WEIGHTS[k] for k in kinds])[0]
    a = rng.choice(PLACES)
    b = None
    if kind == "readdir":
        a = rng.choice([".", ".", "x"])
    elif kind == "mkdir":  # only there, so that no directory lies in another
        a = rng.choice(TOP)
    elif kind == "link":
        b = rng.choice(PLACES)
    elif kind in ("rename", "noreplace", "exchange"):
        same = [p for p in PLACES if ("/" in p) == ("/" in a) and p != a]
        b = rng.choice(same)
    return Call(who, kind, a, b, number)


# ---- the model: state = (what the names in TOP are, what p in each directory is, where walks have come); 0: nothing

EMPTY = ((0,) * len(TOP), frozenset(), frozenset())
NOWHERE = ("dead", 0)  # the walk has failed, as the call says


class Places:
    """What a call's paths mean in a state. A thing is (kind, number)."""

    def __init__(self, state):
        self.top, self.kids, self.walks = state

    def walked(self, key):
        return next((thing for k, thing in self.walks if k == key), None)

    def is_there(self, directory):
        return directory in self.top

    def get(self, place):
        """place: a name of TOP, or the directory (a thing) whose p it is. None: no such directory."""
        if isinstance(place, str):
            return self.top[TOP.index(place)]
        if not self.is_there(place):
            return None
        return next((thing for d, thing in self.kids if d == place), 0)

    def put(self, place, thing):
        if isinstance(place, str):
            at = TOP.index(place)
            self.top = self.top[:at] + (thing,) + self.top[at + 1:]
        else:
            self.kids = frozenset(k for k in self.kids if k[0] != place) | ({(place, thing)} if thing else frozenset())

    def links(self, thing):
        return self.top.count(thing) + sum(kid == thing for _, kid in self.kids)

    def is_empty(self, directory):
        return all(d != directory for d, _ in self.kids)

    def state(self):
        return self.top, self.kids, self.walks


class Model:
    """The steps of one call; moves: calls that may have changed directories, or exchanged something."""

    def __init__(self, call, moves):
        self.call, self.steps = call, []
        self.moves = [m for m in moves if m.begin < call.end and call.begin < m.end]
        lost = call.error in LOST
        self.begin, self.end = call.begin, NEVER if lost else call.end
        walks = self.walk_all()
        if call.kind == "readdir":
            self.list()
        elif lost:
            self.lost(walks)
        elif call.error:
            self.refuse(walks)
        else:
            getattr(self, "did_" + call.kind)(walks)

    def add(self, change, after=(), look=False):
        self.steps.append(Step(self.begin, self.end, change, after, look, str(self.call)))
        return self.steps[-1]

    def look(self, test, after=()):
        """test(Places) must be true at some moment."""
        return self.add(lambda state: [state] if test(Places(state)) else [], after, True)

    # ---- walks, one after the other; behind one that has failed there is none
    def key(self, which):
        return self.call.who, self.call.number, which

    def walk_all(self):
        call = self.call
        if "/" in call.a:
            self.walk(0, call.a)
        if call.kind == "link":
            self.step_of_walk("found", self.found)
        if call.b and "/" in call.b:
            self.walk(1, call.b)
        return self.steps[-1:]

    def step_of_walk(self, which, come):
        """come(Places): (where it leads, why not)."""
        def change(state):
            p = Places(state)
            if self.has_failed(p):
                return [state]
            thing, reason = come(p)
            if reason and self.call.error not in LOST and reason != self.call.error:
                return []
            p.walks = p.walks | {(self.key(which), NOWHERE if reason else thing)}
            return [p.state()]
        return self.add(change, self.steps[-1:])

    def walk(self, which, path):
        def come(p):
            thing = p.get(path.split("/")[0])
            if not thing or thing[0] == "l":
                return thing, errno.ENOENT
            return thing, 0 if thing[0] == "d" else errno.ENOTDIR
        return self.step_of_walk(which, come)

    def found(self, p):
        """What a link will lead to."""
        thing = p.get(self.place(p, 0))
        return thing, 0 if thing else errno.ENOENT

    def has_failed(self, p):
        return any(k[:2] == self.key(0)[:2] and thing == NOWHERE for k, thing in p.walks)

    def place(self, p, which):
        path = (self.call.a, self.call.b)[which]
        return path if "/" not in path else p.walked(self.key(which))

    def arrive(self, p):
        """The walks of a call that is over are forgotten."""
        p.walks = frozenset(w for w in p.walks if w[0][:2] != self.key(0)[:2])
        return [p.state()]

    def act(self, what, after):
        """what(Places, place of a, place of b) changes it and says whether the call's success is right."""
        def change(state):
            p = Places(state)
            if self.has_failed(p) or not what(p, self.place(p, 0), self.call.b and self.place(p, 1)):
                return []
            return self.arrive(p)
        return self.add(change, after)

    # ---- what succeeds
    def make(self, kind, after):
        def what(p, a, b):
            if p.get(a) != 0:
                return False
            p.put(a, (kind, self.call.number))
            return True
        return self.act(what, after)

    def did_excl(self, walks):
        self.make("f", walks)

    def did_mkdir(self, walks):
        self.make("d", walks)

    def did_symlink(self, walks):
        self.make("l", walks)

    def did_creat(self, walks):
        if self.call.seen == ("f", self.call.number):
            self.make("f", walks)
        else:
            self.did_open(walks)

    def did_open(self, walks):
        self.act(lambda p, a, b: p.get(a) == self.call.seen, walks)

    def did_lstat(self, walks):
        thing, links = self.call.seen
        if thing[0] == "d" and links == 0:
            self.act(lambda p, a, b: True, walks)
            return
        first = self.act(lambda p, a, b: p.get(a) == thing, walks)
        if thing[0] != "d" and not any(m.kind == "exchange" for m in self.moves):
            self.look(lambda p: p.links(thing) == links, [first])

    def did_unlink(self, walks):
        def what(p, a, b):
            thing = p.get(a)
            if not thing or thing[0] == "d":
                return False
            p.put(a, 0)
            return True
        self.act(what, walks)

    def did_rmdir(self, walks):
        def what(p, a, b):
            thing = p.get(a)
            if not thing or thing[0] != "d" or not p.is_empty(thing):
                return False
            p.put(a, 0)
            return True
        self.act(what, walks)

    def did_link(self, walks):
        def what(p, a, b):
            thing = p.walked(self.key("found"))
            if thing[0] == "d" or p.links(thing) == 0 or p.get(b) != 0:
                return False
            p.put(b, thing)
            return True
        self.act(what, walks)

    def twins(self, walks):
        """Two names of one thing stay; the kernel looks at one after the other, before it asks the file system to move anything."""
        def change(state):
            p = Places(state)
            thing = 0 if self.has_failed(p) else p.get(self.place(p, 0))
            if not thing:
                return [state]
            p.walks = p.walks | {(self.key("twin"), thing)}
            return [state, p.state()]
        return [self.add(change, walks)]

    def did_rename(self, walks):
        def what(p, a, b):
            thing, other = p.get(a), p.get(b)
            if p.walked(self.key("twin")):
                return other == p.walked(self.key("twin"))
            if not thing or other is None:
                return False
            if other and (thing[0] == "d") != (other[0] == "d"):
                return False
            if other and other[0] == "d" and not p.is_empty(other):
                return False
            p.put(a, 0)
            p.put(b, thing)
            return True
        self.act(what, self.twins(walks))

    def did_noreplace(self, walks):
        def what(p, a, b):
            thing = p.get(a)
            if not thing or p.get(b) != 0:
                return False
            p.put(a, 0)
            p.put(b, thing)
            return True
        self.act(what, walks)

    def did_exchange(self, walks):
        def what(p, a, b):
            thing, other = p.get(a), p.get(b)
            if p.walked(self.key("twin")):
                return other == p.walked(self.key("twin"))
            if not thing or not other:
                return False
            p.put(a, other)
            p.put(b, thing)
            return True
        self.act(what, self.twins(walks))

    # ---- what fails: each reason was true at some moment after the walks
    def refuse(self, walks):
        call, e = self.call, self.call.error

        def when(test, after=walks):
            def change(state):
                p = Places(state)
                if self.has_failed(p) or test(p, self.place(p, 0), call.b and self.place(p, 1)):
                    return [state]
                return []
            return self.add(change, after, True)

        def is_kind(place, kind):
            return lambda p, a, b: bool(p.get((a, b)[place])) and (p.get((a, b)[place])[0] == "d") == (kind == "d")

        reasons = []
        if e == errno.ENOENT:
            def gone(p, a, b):
                if call.kind == "link":
                    return p.links(p.walked(self.key("found"))) == 0 or p.get(b) is None
                absent = p.get(a) is None if call.kind in ("excl", "creat", "mkdir", "symlink") else not p.get(a)
                return absent or (b is not None and (p.get(b) is None or (call.kind == "exchange" and not p.get(b))))
            reasons = [gone]
        elif e == errno.EEXIST and call.kind in ("excl", "mkdir", "symlink"):
            reasons = [lambda p, a, b: bool(p.get(a))]
        elif e == errno.EEXIST and call.kind in ("link", "noreplace"):
            reasons = [lambda p, a, b: bool(p.get(b))]
        elif e in (errno.ENOTEMPTY, errno.EEXIST) and call.kind in ("rmdir", "rename"):
            at = call.kind == "rename"
            reasons = [lambda p, a, b: bool(p.get((a, b)[at])) and not p.is_empty(p.get((a, b)[at]))]
        elif e == errno.EISDIR and call.kind in ("creat", "open", "unlink"):
            reasons = [is_kind(0, "d")]
        elif e == errno.ENOTDIR and call.kind == "rmdir":
            reasons = [is_kind(0, "f")]
        elif e in (errno.EISDIR, errno.ENOTDIR) and call.kind == "rename":
            reasons = [is_kind(e == errno.EISDIR, "d"), is_kind(e == errno.ENOTDIR, "f")]
        elif e == errno.ELOOP and call.kind in ("creat", "open"):
            reasons = [lambda p, a, b: bool(p.get(a)) and p.get(a)[0] == "l"]
        elif e == errno.EPERM and call.kind == "link":
            reasons = [lambda p, a, b: p.walked(self.key("found"))[0] == "d"]
        else:
            reasons = [lambda p, a, b: False]
        whens = [when(r) for r in reasons]
        self.add(lambda state: self.arrive(Places(state)), whens)

    # ---- what nobody has answered: as if done, or not
    def lost(self, walks):
        if self.call.kind in ("open", "lstat"):
            self.steps = []
            return
        kind = "excl" if self.call.kind == "creat" else self.call.kind
        getattr(self, "did_" + kind)(walks)
        done = self.steps[-1].change
        self.steps[-1].change = lambda state: done(state) + self.arrive(Places(state))

    # ---- listings
    def list(self):
        call = self.call
        if call.error:
            if call.error in LOST:
                return
            if call.a == ".":
                self.look(lambda p: False)
            elif call.error == errno.ENOTDIR:
                self.look(lambda p: bool(p.get("x")) and p.get("x")[0] == "f")
            else:
                self.look(lambda p: call.error == errno.ENOENT and (not p.get("x") or p.get("x")[0] == "l"))
            return
        if call.a == ".":
            for name in TOP:
                kinds = [k for n, k in call.seen if n == name]
                self.look(lambda p, name=name, kinds=kinds: self.is_listed(p.get(name), kinds))
        else:
            self.list_walked()

    @staticmethod
    def is_listed(thing, kinds):
        """kinds: of the name in the listing, [] if it is not there."""
        return thing[0] in kinds if thing else not kinds

    def list_walked(self):
        """Of the directory that was x when it was opened."""
        first = self.walk(0, "x/p")
        kinds = [k for _, k in self.call.seen]

        def holds(p):
            thing = p.get(p.walked(self.key(0)))  # a removed one shows nothing
            return thing[0] in kinds if thing else not kinds
        seen = self.look(holds, [first])
        self.add(lambda state: self.arrive(Places(state)), [seen])


def steps_of(calls):
    kinds = ("mkdir", "rmdir", "rename", "noreplace", "exchange")
    moves = [call for call in calls if call.kind in kinds and (call.error == 0 or call.error in LOST)]
    return [step for call in calls for step in Model(call, moves).steps]


def numbers_differ(calls):
    """A thing has one inode number, everywhere."""
    inos = {}
    for call in calls:
        thing = call.seen[0] if call.kind == "lstat" and call.seen else call.seen
        if call.ino and inos.setdefault(thing, call.ino) != call.ino:
            return "%s has inode numbers %d and %d" % (thing, inos[thing], call.ino)
    return None


def twice_listed(calls):
    for call in calls:
        if call.kind == "readdir" and call.seen and len({n for n, _ in call.seen}) < len(call.seen):
            return "a name is listed twice: %s" % call
    return None


def without(calls, call):
    """As if nobody had seen what the call said."""
    unseen = copy.copy(call)
    unseen.error, unseen.seen = errno.EIO, None
    return [unseen if c is call else c for c in calls]


def verdict(calls, brief):
    """None, or what is wrong, or UNDECIDED; brief: not on whose account."""
    wrong = numbers_differ(calls) or twice_listed(calls)
    if wrong:
        return wrong
    found = has_order(steps_of(calls), EMPTY)
    if found is not False:
        return None if found else UNDECIDED
    if brief:
        return "no order explains it"
    alone = [call for call in calls if has_order(steps_of(without(calls, call)), EMPTY)]
    return "no order explains it; without one of these there is one:\n" + "\n".join(map(str, alone))


# ---- rounds

def until_done(what, also=()):
    """what(), again when its mount has just died or is not there yet."""
    end = time.monotonic() + PATIENCE
    while True:
        try:
            return what()
        except OSError as e:
            if e.errno not in LOST | {errno.ENOENT, *also} or time.monotonic() > end:
                raise
            time.sleep(0.02)


def stand_in(path):
    until_done(lambda: os.chdir(path))


def worker(pipe, barrier, progress):
    os.umask(0)
    progress = os.open(progress, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    while True:
        work = pipe.recv()
        if work is None:
            return
        base, calls = work
        stand_in(base)
        barrier.wait(PATIENCE)
        said = []
        for call in calls:
            said.append(run(call))
            os.write(progress, b".")
            if call.error in LOST:
                stand_in(base)
        pipe.send(said)


class Trial:
    def __init__(self, args):
        self.args, self.rng = args, random.Random(args.seed)
        self.barrier = fork.Barrier(args.processes)
        self.pipes, self.workers = [], []
        for _ in range(args.processes):
            mine, other = fork.Pipe()
            self.workers.append(fork.Process(target=worker, args=(other, self.barrier, args.progress), daemon=True))
            self.workers[-1].start()
            self.pipes.append(mine)

    def mount_of(self, who):
        return self.args.mounts[who % len(self.args.mounts)]

    def stand_in_mount(self, mount):
        os.chdir(mount)
        if self.args.lossy and not os.path.ismount("."):
            raise OSError(errno.ENOTCONN, mount)

    def make_base(self, name):
        """In some mount, unless mounts have nothing to do with each other."""
        def make(mount):
            self.stand_in_mount(mount)
            try:
                os.lstat(name)
            except FileNotFoundError:
                os.mkdir(name, 0o777)
        for mount in dict.fromkeys([self.mount_of(self.rng.randrange(100))] + self.args.mounts):
            until_done(lambda mount=mount: make(mount), [errno.EEXIST])

    def last_looks(self, name):
        """All nodes, when all is quiet."""
        calls = []
        for who, mount in enumerate(self.args.mounts):
            for kind, place in [("lstat", p) for p in PLACES] + [("readdir", "."), ("readdir", "x")]:
                stand_in(mount + "/" + name)
                calls.append(run(Call(1000 + who, kind, place, None, len(calls) + 100)))
        return calls

    def round(self, number):
        name = "round%d" % number
        self.make_base(name)
        per = self.args.calls
        for who, pipe in enumerate(self.pipes):
            calls = [draw(self.rng, self.args.kinds.split(","), who, 1 + who * per + i) for i in range(per)]
            pipe.send((self.mount_of(who) + "/" + name, calls))
        calls = []
        for pipe in self.pipes:
            assert pipe.poll(PATIENCE), "a call does not end"
            calls += pipe.recv()
        calls += self.last_looks(name)
        start = min(call.begin for call in calls)
        for call in calls:
            call.begin, call.end = call.begin - start, call.end - start
        return calls

    def end(self):
        for pipe in self.pipes:
            pipe.send(None)
        for process in self.workers:
            process.join(PATIENCE)

    def remove(self, number):
        """What is left of a round, through any mount; what is not shown cannot be in the way. None, or what is wrong."""
        name, mount = "round%d" % number, self.args.mounts[self.rng.randrange(len(self.args.mounts))]

        def remove():
            self.stand_in_mount(mount)
            try:
                os.lstat(name)
            except FileNotFoundError:
                return
            shutil.rmtree(name)
        try:
            until_done(remove, [errno.ENOTEMPTY]) if self.args.lossy else remove()
        except OSError as e:
            return "cannot be removed: %s" % e
        os.chdir("/")
        return None


def spoil(calls):
    """Something that cannot be: the last look shows one thing less, or one that nobody has made."""
    last = [c for c in calls if c.kind == "readdir" and c.a == "."][-1]
    last.seen = last.seen[1:] if last.seen else [("x", "f")]


def refused_unfairly(calls, lossy):
    return [] if lossy else [call for call in calls if call.error in LOST]


def main():
    parser = argparse.ArgumentParser()
    for name, default in ("seed", 1), ("rounds", 40), ("processes", 6), ("calls", 8):
        parser.add_argument("--" + name, type=int, default=default)
    parser.add_argument("--kinds", help="only these calls, with commas", default=",".join(WEIGHTS))
    parser.add_argument("--lossy", action="store_true")
    parser.add_argument("--spoil", action="store_true", help="every round must be found wrong after a change of its record")
    parser.add_argument("--until", help="go on until this file is there")
    parser.add_argument("--progress", default="/dev/null", help="gets a byte for each call")
    parser.add_argument("mounts", nargs="+")
    args = parser.parse_args()
    args.mounts = [os.path.abspath(m) for m in args.mounts]
    if args.until:
        args.until = os.path.abspath(args.until)
    assert args.processes * args.calls < 64, "numbers are in six bits of a mode"
    trial, count, done, ran, undecided = Trial(args), 0, 0, 0, 0
    while count < args.rounds or (args.until and not os.path.exists(args.until)):
        calls = trial.round(count)
        count += 1
        done += sum(call.error == 0 for call in calls)
        ran += len(calls)
        if args.spoil:
            spoil(calls)
        said = verdict(calls, args.spoil)
        undecided += said == UNDECIDED
        wrong = "\n".join(map(str, refused_unfairly(calls, args.lossy))) or said or trial.remove(count - 1)
        if bool(wrong) != args.spoil:
            print("seed %d, round %d: %s" % (args.seed, count, wrong or "the change of its record was not found"))
            print("\n".join(map(str, sorted(calls, key=lambda c: c.begin))))
            return 1
    trial.end()
    print("seed %d: %d rounds, %d undecided, %d of %d calls succeeded" % (args.seed, count, undecided, done, ran))
    if undecided > max(1, UNDECIDED_MAX * count):
        print("too many rounds are undecided")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
