#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-3.0-or-later
"""locks.py SCENARIO MOUNT...: processes on several mounts of a job take locks of one file; an exception when one of them sees
what it must not. Files are made in the first mount."""

import errno
import fcntl
import multiprocessing
import multiprocessing.connection
import os
import random
import signal
import struct
import sys

OFD_GETLK, OFD_SETLK, OFD_SETLKW = 36, 37, 38
PATIENCE = 60  # seconds; only a test that fails needs them
spawn = multiprocessing.get_context("fork")


class Client:
    """A process of its own, which does one thing after the other: call() waits for the answer, start() and answer() do not."""

    def __init__(self, path):
        self.pipe, other = spawn.Pipe()
        self.process = spawn.Process(target=self.serve, args=(other, path), daemon=True)
        self.process.start()

    def serve(self, pipe, path):
        signal.signal(signal.SIGALRM, self.alarm)
        self.path = path
        self.fd = os.open(path, os.O_RDWR)
        while True:
            name, args = pipe.recv()
            try:
                pipe.send(getattr(self, "do_" + name)(*args))
            except OSError as e:
                pipe.send(-e.errno)

    @staticmethod
    def alarm(number, frame):
        signal.setitimer(signal.ITIMER_REAL, 0)
        raise InterruptedError(errno.EINTR, "a signal")

    def start(self, name, *args):
        self.pipe.send((name, args))

    def answer(self):
        assert self.pipe.poll(PATIENCE), "no answer"
        return self.pipe.recv()

    def call(self, name, *args):
        self.start(name, *args)
        return self.answer()

    def waits(self):
        """It has not answered. That it never will is not shown by this, but that it has is."""
        return not self.pipe.poll(0.2)

    def kill(self):
        os.kill(self.process.pid, signal.SIGKILL)
        self.process.join(PATIENCE)
        assert self.process.exitcode is not None, "a killed process does not end"

    # ---- in the process
    def do_lock(self, how, start=0, length=0):
        fcntl.lockf(self.fd, how, length, start)

    def do_flock(self, how):
        fcntl.flock(self.fd, how)

    def do_ofd(self, how, start, length, wait=False):
        lock = struct.pack("hhqqi4x", how, 0, start, length, 0)
        fcntl.fcntl(self.fd, OFD_SETLKW if wait else OFD_SETLK, lock)

    def do_who(self, start, length):
        lock = fcntl.fcntl(self.fd, fcntl.F_GETLK, struct.pack("hhqqi4x", fcntl.F_WRLCK, 0, start, length, 0))
        return struct.unpack("hhqqi4x", lock)

    def do_free(self, ofd, start, length):
        """Could it be locked for writing?"""
        lock = struct.pack("hhqqi4x", fcntl.F_WRLCK, 0, start, length, 0)
        lock = fcntl.fcntl(self.fd, OFD_GETLK if ofd else fcntl.F_GETLK, lock)
        return struct.unpack("hhqqi4x", lock)[0] == fcntl.F_UNLCK

    def do_lock_alarmed(self, how):
        signal.setitimer(signal.ITIMER_REAL, 0.2, 0.2)  # again, if the call is not waiting yet
        fcntl.lockf(self.fd, how)

    def do_write(self, off, data):
        return os.pwrite(self.fd, data, off)

    def do_read(self, off, length):
        return os.pread(self.fd, length, off)

    def do_open_and_close(self):
        os.close(os.open(self.path, os.O_RDONLY))

    def do_reopen(self):
        os.close(self.fd)
        self.fd = os.open(self.path, os.O_RDWR)


TRY, WAIT, SHARE, FREE = fcntl.LOCK_EX | fcntl.LOCK_NB, fcntl.LOCK_EX, fcntl.LOCK_SH | fcntl.LOCK_NB, fcntl.LOCK_UN


def paths(mounts, name):
    with open(os.path.join(mounts[0], name), "w") as f:
        f.write("0" * 100)
    return [os.path.join(m, name) for m in mounts]


def count(path, use_flock, times):
    fd = os.open(path, os.O_RDWR)
    lock = fcntl.flock if use_flock else fcntl.lockf
    for _ in range(times):
        lock(fd, fcntl.LOCK_EX)
        value = int(os.pread(fd, 10, 0))
        os.pwrite(fd, b"%010d" % (value + 1), 0)
        lock(fd, fcntl.LOCK_UN)


def counter(mounts, use_flock):
    files = paths(mounts, "counter%d" % use_flock)
    workers = [spawn.Process(target=count, args=(f, use_flock, 25)) for f in files * 2]
    for w in workers:
        w.start()
    for w in workers:
        w.join(PATIENCE)
        assert w.exitcode == 0, w.exitcode
    for f in files:
        with open(f) as opened:
            assert int(opened.read(10)) == 25 * len(workers), f


def scenario_counter(*mounts):
    counter(mounts, False)
    counter(mounts, True)


def scenario_rules(*mounts):
    files = paths(mounts, "rules")
    a, b = Client(files[0]), Client(files[1])
    for holder, other in (a, b), (b, a):
        assert holder.call("lock", TRY, 10, 20) is None
        assert other.call("lock", TRY, 29, 1) == -errno.EAGAIN
        assert other.call("lock", TRY, 30, 1) is None
        assert other.call("who", 0, 0)[:4] == (fcntl.F_WRLCK, 0, 10, 20), "who has it"
        holder.call("open_and_close")
        assert other.call("lock", TRY, 0, 0) is None, "closing any descriptor ends the locks"
        assert other.call("lock", FREE, 0, 0) is None
        # what was written under a lock is read under the next one
        holder.call("lock", TRY, 0, 0)
        holder.call("write", 50, b"new")
        other.start("lock", WAIT, 50, 3)
        assert other.waits()
        holder.call("lock", FREE, 0, 0)
        assert other.answer() is None
        assert other.call("read", 50, 3) == b"new"
        other.call("write", 50, b"old")
        other.call("lock", FREE, 0, 0)
        assert holder.call("read", 50, 3) == b"old"
        # flock
        assert holder.call("flock", SHARE) is None and other.call("flock", SHARE) is None
        assert other.call("flock", TRY) == -errno.EAGAIN
        holder.call("flock", FREE)
        assert other.call("flock", TRY) is None
        holder.start("flock", WAIT)
        assert holder.waits()
        other.call("reopen")
        assert holder.answer() is None, "the release of the open file ends the lock"
        holder.call("flock", FREE)
    a.kill()
    b.kill()


def scenario_ends(*mounts):
    files = paths(mounts, "ends")
    for first, second in (0, 1), (1, 0):
        a, b, c = Client(files[first]), Client(files[second]), Client(files[second])
        assert a.call("lock", TRY) is None
        assert b.call("lock_alarmed", WAIT) == -errno.EINTR, "a signal interrupts who waits"
        b.start("lock", WAIT)
        assert b.waits()
        b.kill()
        c.start("lock", WAIT)
        assert c.waits()
        a.kill()
        assert c.answer() is None, "the death of its owner ends a lock"
        c.kill()
        # an owner and a half: circles
        a, b = Client(files[first]), Client(files[second])
        a.call("lock", TRY, 0, 10)
        b.call("lock", TRY, 10, 10)
        a.start("lock", WAIT, 10, 10)
        b.start("lock", WAIT, 0, 10)
        ready = multiprocessing.connection.wait([a.pipe, b.pipe], PATIENCE)
        assert len(ready) == 1, "a circle ends for one of the two, the one that closes it"
        closing, waiting = (a, b) if a.pipe in ready else (b, a)
        assert closing.answer() == -errno.EDEADLK
        closing.kill()
        assert waiting.answer() is None
        waiting.kill()


def scenario_descriptions(*mounts):
    files = paths(mounts, "descriptions")
    a, b = Client(files[0]), Client(files[1])
    assert a.call("ofd", fcntl.F_WRLCK, 0, 10) is None
    a.call("open_and_close")
    assert b.call("ofd", fcntl.F_RDLCK, 5, 1) == -errno.EAGAIN, "another descriptor's close does not end it"
    b.start("ofd", fcntl.F_RDLCK, 5, 1, True)
    assert b.waits()
    a.call("reopen")
    assert b.answer() is None, "its own does"
    a.kill()
    b.kill()


def draw(rng):
    """Something that does not wait: the name of a call and its arguments."""
    start, length = rng.randrange(30), rng.choice([0, 1, rng.randrange(1, 20)])
    kind = rng.choices(["lock", "ofd", "flock", "free", "open_and_close"], [6, 5, 3, 3, 1])[0]
    if kind == "lock":
        return kind, rng.choice([TRY, SHARE, FREE]), start, length
    if kind == "ofd":
        return kind, rng.choice([fcntl.F_WRLCK, fcntl.F_RDLCK, fcntl.F_UNLCK]), start, length
    if kind == "flock":
        return kind, rng.choice([TRY, SHARE, FREE])
    return (kind, rng.random() < 0.5, start, length) if kind == "free" else (kind,)


def scenario_random(seed, number, plain, *mounts):
    """Processes on all mounts, and as many in a plain directory, which do the same: both are told the same."""
    rng = random.Random(int(seed))
    files = paths(list(mounts), "random") * 2
    pairs = [(Client(f), Client(p)) for f, p in zip(files, paths([plain], "random") * len(files))]
    record = []
    for _ in range(int(number)):
        who, what = rng.randrange(len(pairs)), draw(rng)
        said, expected = (client.call(*what) for client in pairs[who])
        record.append("process %d: %s: %s" % (who, what, expected))
        assert said == expected, "\n".join(record[-30:] + ["the mount says %s" % said])
    assert any(line.endswith(": %d" % -errno.EAGAIN) for line in record), "nobody was in anybody's way"
    for pair in pairs:
        for client in pair:
            client.kill()


def scenario_many(*mounts):
    """More who wait than the daemon has threads."""
    files = paths(mounts, "many")
    holder, waiting = Client(files[0]), [Client(files[1]) for _ in range(12)]
    holder.call("lock", TRY)
    for w in waiting:
        w.start("lock", WAIT)
    assert all(w.waits() for w in waiting[:2])
    with open(files[1] + ".other", "w") as f:
        f.write("the mount serves others")
    holder.call("lock", FREE)
    while waiting:  # in the order in which they have come, which is not known here
        ready = multiprocessing.connection.wait([w.pipe for w in waiting], PATIENCE)
        assert len(ready) == 1, "one after the other"
        w = next(w for w in waiting if w.pipe == ready[0])
        assert w.answer() is None
        w.kill()
        waiting.remove(w)


def scenario_hold(*mounts):
    """Holds locks until it reads a line; what others could do meanwhile is tried at the end."""
    files = paths(mounts, "hold")
    a, b = Client(files[0]), Client(files[1])
    a.call("lock", TRY, 0, 10)
    b.call("lock", TRY, 20, 10)
    b.start("lock", WAIT, 0, 10)
    print("held", flush=True)
    sys.stdin.readline()
    assert b.waits()
    assert a.call("lock", TRY, 20, 1) == -errno.EAGAIN
    a.call("lock", FREE, 0, 10)
    assert b.answer() is None
    assert a.call("lock", TRY, 0, 1) == -errno.EAGAIN


def scenario_dies(*mounts):
    """Locks of all kinds are held in the second mount, whose daemon is to die when this has been said; others in the first wait for them."""
    kinds = {"lock": (WAIT,), "flock": (WAIT,), "ofd": (fcntl.F_WRLCK, 0, 0, True)}
    clients = [[Client(f) for f in paths(mounts, "dies-" + kind)] for kind in kinds]
    for (other, holder), (kind, args) in zip(clients, kinds.items()):
        assert holder.call(kind, *args) is None
        other.start(kind, *args)
        assert other.waits(), kind
    print("held", flush=True)
    for (other, _), (kind, args) in zip(clients, kinds.items()):
        assert other.answer() is None, kind
        assert other.call("write", 0, b"mine") == 4


if __name__ == "__main__":
    globals()["scenario_" + sys.argv[1]](*sys.argv[2:])
