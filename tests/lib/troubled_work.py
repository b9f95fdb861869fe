# SPDX-License-Identifier: GPL-3.0-or-later
"""What processes do in a job that has troubles (tests/lib/troubled.py): writes, appends, locks."""

import collections
import errno
import fcntl
import mmap
import os
import random
import signal
import struct
import time

LOST = {errno.ENOTCONN, errno.ECONNABORTED, errno.EIO, errno.ESHUTDOWN, errno.ETIMEDOUT, errno.ENOLCK}
PATIENCE = 90  # seconds until all is well again after the last trouble; only a test that fails needs them
DOMAIN = 16 << 20
SLOT, SLOTS, REGIONS = 1000, 24, 3  # a file has pieces at its beginning and across the borders of its domains
RECORD = 40
FILES = 2


class Wrong(Exception):
    pass


class Node:
    """A mount. Calls are made below a descriptor: what is below the mount point while it is away is not meant."""

    def __init__(self, number, mount):
        self.number, self.mount, self.dir = number, mount, None

    def at(self):
        if self.dir is None:
            fd = os.open(self.mount, os.O_RDONLY | os.O_DIRECTORY)
            if os.fstat(fd).st_dev == os.stat(os.path.dirname(self.mount)).st_dev:
                os.close(fd)
                raise OSError(errno.ENOTCONN, "not mounted")
            self.dir = fd
        return self.dir

    def drop(self):
        if self.dir is not None:
            close(self.dir)
        self.dir = None


def close(fd):
    try:
        os.close(fd)
    except OSError:
        pass


class Role:
    def __init__(self, who, args):
        self.who, self.args = who, args
        self.rng = random.Random("%d %s %d" % (args.seed, type(self).__name__, who))
        self.nodes = [Node(k, m) for k, m in enumerate(args.mounts)]
        self.fds, self.log = {}, collections.deque(maxlen=60)
        self.slowest, self.errors, self.done = {}, [], 0
        self.patience = 5 if args.model else PATIENCE  # what needs a node that is lost never succeeds
        self.progress = os.open(args.progress, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)

    def node(self):
        """Most of the time a process works where it is."""
        return self.nodes[self.who % len(self.nodes)] if self.rng.random() < .5 else self.rng.choice(self.nodes)

    def living(self):
        lost = self.lost()
        return [n for n in self.nodes if n.number != lost]

    def lost(self):
        try:
            with open(self.args.lost) as f:
                return int(f.read())
        except (TypeError, FileNotFoundError, ValueError):
            return None

    def call(self, what, node, do, *args, answers=()):
        """(whether it succeeded, what it gave); errors in answers are as good: None."""
        begin = time.monotonic()
        got, error = self.do(what, node, do, args)
        took = time.monotonic() - begin
        said = " node %d: %s -> %s" % (node.number, what, errno.errorcode[error] if error else "ok")
        if self.log and self.log[-1].endswith(said):
            self.log.pop()
        self.log.append("%.3f +%.3f%s" % (begin, took, said))
        kind = what.split()[0]
        self.slowest[kind] = max(self.slowest.get(kind, (0, "")), (took, "%s by node %d at %.2f" % (what, node.number, begin)))
        if error and error not in answers:
            self.failed(what, node, error, begin)
            return False, None
        self.done += 1
        os.write(self.progress, b".")
        return True, got

    @staticmethod
    def do(what, node, do, args):
        """ESTALE: nothing has happened, and a look may help (docs/posix.md)."""
        for _ in range(40):
            try:
                return do(*args), 0
            except OSError as e:
                if e.errno != errno.ESTALE:
                    return None, e.errno
            for path in what.split()[1:]:
                try:
                    os.stat(path, dir_fd=node.at(), follow_symlinks=False)
                except OSError:
                    pass
            time.sleep(.05)
        return None, errno.ESTALE

    def failed(self, what, node, error, begin):
        if error == errno.EINTR:
            raise InterruptedError
        if error not in LOST:
            raise Wrong("%s by node %d: %s" % (what, node.number, os.strerror(error)))
        self.errors.append((begin, time.monotonic(), node.number, what, error))
        if error in (errno.ENOTCONN, errno.ECONNABORTED, errno.ESHUTDOWN):
            self.drop(node)
            time.sleep(.05)

    def drop(self, node):
        """Its daemon has died."""
        node.drop()
        for key in [k for k in self.fds if k[0] == node.number]:
            close(self.fds.pop(key))

    def fd(self, node, path, flags=os.O_RDWR):
        if (node.number, path) not in self.fds:
            self.fds[node.number, path] = os.open(path, flags, dir_fd=node.at())
        return self.fds[node.number, path]

    def eventually(self, what, node, do):
        """do() gives something, or fails for now; None: it may need the node that is lost."""
        deadline = time.monotonic() + self.patience
        while True:
            ok, got = self.call(what, node, do)
            if ok:
                return got
            if time.monotonic() > deadline:
                if self.args.model:
                    return None
                raise Wrong("%s by node %d does not succeed any more" % (what, node.number))
            time.sleep(.1)

    def work(self):
        while not os.path.exists(self.args.until):
            self.step()
            time.sleep(self.rng.random() * self.args.pause)


def contents(node, path):
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW, dir_fd=node.at())
    try:
        data = b""
        while True:
            got = os.pread(fd, 1 << 20, len(data))
            if not got:
                return data
            data += got
    finally:
        close(fd)


# ---- pieces of files that all write

def pattern(f, slot, version):
    if not version:
        return bytes(SLOT)
    text = b"%d.%d.%d|" % (f, slot, version)
    return (text * (SLOT // len(text) + 1))[:SLOT]


def place(slot):
    return max(0, slot // SLOTS * DOMAIN - SLOTS * SLOT // 2) + slot % SLOTS * SLOT


def show(f, slot, data):
    """Whose version somebody sees."""
    first = data.split(b"|")[0].split(b".")
    if data == bytes(SLOT):
        return "zeros"
    if len(first) == 3 and all(t.isdigit() for t in first) and data == pattern(*map(int, first)):
        return "version %d of slot %d of file %d" % (int(first[2]), int(first[1]), int(first[0]))
    return "a mixture: %r ... %r" % (data[:24], data[-24:])


class Slot:
    """final: versions of which one counts; now: those that any node may see; tries: [version, node, success, known]."""

    def __init__(self):
        self.version, self.final, self.now, self.by, self.tries = 0, [0], [0], None, []

    def tried(self, node, ok):
        self.now.append(self.version)
        self.final = [self.version] if ok else self.final + [self.version]
        self.by = node if ok else self.by
        self.tries.append([self.version, node, ok, False])

    def known(self, node):
        """A node has made known what it wrote."""
        for t in self.tries:
            t[3] = t[3] or (t[1] == node and t[2])
        if self.by == node:
            self.now = list(self.final)


class Writer(Role):
    def __init__(self, who, args):
        super().__init__(who, args)
        self.slots = {(f, s): Slot() for f in range(FILES) for s in range(SLOTS * REGIONS) if s % args.writers == who}

    def step(self):
        node, f = self.node(), self.rng.randrange(FILES)
        own = [k for k in self.slots if k[0] == f]
        if self.rng.random() < .4:
            self.look(node, *self.rng.choice(own))
            return
        for key in self.rng.sample(own, self.rng.randint(1, 5)):
            self.put(node, *key)
        if self.rng.random() < .6:
            self.sync(node, f)

    def put(self, node, f, s):
        slot = self.slots[f, s]
        slot.version += 1
        data = pattern(f, s, slot.version)
        ok, num = self.call("pwrite %d.%d.%d" % (f, s, slot.version), node, lambda: os.pwrite(self.fd(node, "shared%d" % f), data, place(s)))
        if ok and num != SLOT:
            raise Wrong("%d bytes are written, not %d" % (num, SLOT))
        slot.tried(node.number, ok)

    def sync(self, node, f):
        ok, _ = self.call("fsync shared%d" % f, node, lambda: os.fsync(self.fd(node, "shared%d" % f)))
        if ok:
            for key in [k for k in self.slots if k[0] == f]:
                self.slots[key].known(node.number)
        return ok

    def look(self, node, f, s):
        slot = self.slots[f, s]
        ok, data = self.call("pread %d.%d" % (f, s), node, lambda: self.piece(node, f, s))
        if ok:
            self.compare(node, f, s, data.ljust(SLOT, b"\0"), slot.final if slot.by == node.number else slot.now)

    def piece(self, node, f, s):
        """Not exactly what is written: it would be taken for data sieving (docs/posix.md)."""
        return os.pread(self.fd(node, "shared%d" % f), SLOT + 1, place(s))[:SLOT]

    def compare(self, node, f, s, data, versions):
        if all(data != pattern(f, s, v) for v in versions):
            raise Wrong("node %d shows of slot %d.%d, at %d, %s; can be versions %s\n%s" % (
                node.number, f, s, place(s), show(f, s, data), versions, self.slots[f, s].tries[-12:]))

    # ---- at the end
    def settle(self):
        for node in self.living():
            for f in range(FILES):
                self.eventually("fsync shared%d" % f, node, lambda: os.fsync(self.fd(node, "shared%d" % f)) or True)
        for key, slot in self.slots.items():
            slot.now = list(slot.final)

    def agree(self):
        """What all nodes show."""
        for (f, s), slot in self.slots.items():
            for node in [] if self.args.model else self.living():
                self.agree_on(node, f, s, slot)
        return {k: (slot.final[0], slot.tries) for k, slot in self.slots.items()}

    def agree_on(self, node, f, s, slot):
        """What a dead daemon had not told, the next one tells as soon as it can."""
        deadline = time.monotonic() + self.patience
        while True:
            data = self.eventually("pread %d.%d" % (f, s), node, lambda: self.piece(node, f, s))
            data = data.ljust(SLOT, b"\0")
            if any(data == pattern(f, s, v) for v in slot.final) or time.monotonic() > deadline:
                break
            time.sleep(.1)
        self.compare(node, f, s, data, slot.final)
        slot.final = [v for v in slot.final if data == pattern(f, s, v)]


class Appender(Role):
    def __init__(self, who, args):
        super().__init__(who, args)
        self.number, self.has, self.may = 0, [], []

    def step(self):
        node = self.node()
        self.number += 1
        record = (b"%d.%d|" % (self.who, self.number)).ljust(RECORD - 1, b"=") + b"\n"
        flags = os.O_WRONLY | os.O_APPEND
        ok, _ = self.call("append %d.%d" % (self.who, self.number), node, lambda: os.write(self.fd(node, "appended", flags), record))
        (self.has if ok else self.may).append(record)
        if self.rng.random() < .3:
            self.call("fsync appended", node, lambda: os.fsync(self.fd(node, "appended", flags)))

    def settle(self):
        for node in self.living():
            self.eventually("fsync appended", node, lambda: os.fsync(self.fd(node, "appended", os.O_WRONLY | os.O_APPEND)) or True)

    def agree(self):
        if self.args.model:
            return None
        seen = {}
        deadline = time.monotonic() + self.patience
        for node in self.living():
            while True:
                data = self.eventually("read appended", node, lambda: contents(node, "appended"))
                wrong = self.wrong(data)
                if not wrong or time.monotonic() > deadline:
                    break
                time.sleep(.1)
            if wrong:
                raise Wrong("appended of node %d: %s" % (node.number, wrong))
            seen[node.number] = data
        if len(set(seen.values())) > 1:
            raise Wrong("appended is not the same on all nodes")
        return next(iter(seen.values()))

    def wrong(self, data):
        records = [data[i:i + RECORD] for i in range(0, len(data), RECORD)]
        mine = [r for r in records if r.startswith(b"%d." % self.who)]
        places = {r: [i for i, other in enumerate(records) if other == r] for r in self.has + self.may}
        for r in self.has:
            if len(places[r]) != 1:
                return "%s is there %d times" % (r[:12], len(places[r]))
        for r in self.may:
            if len(places[r]) > 1:
                return "%s, which failed, is there %d times" % (r[:12], len(places[r]))
        if [r for r in mine if r in set(self.has)] != self.has:
            return "records of process %d are not in its order" % self.who
        torn = [i for i, r in enumerate(records) if r != bytes(len(r)) and (len(r) < RECORD or not r.endswith(b"\n") or b"=" not in r)]
        return "record %d is torn: %r" % (torn[0], records[torn[0]]) if torn else None


# ---- locks

class Holders:
    """Who holds a lock now, and what has last been written under it; in memory that all processes share: number of the holder, its node,
    since when, count, node that wrote it."""
    ENTRY = struct.Struct("qqdqq")

    def __init__(self, num):
        self.memory = mmap.mmap(-1, num * self.ENTRY.size)

    def get(self, i):
        return self.ENTRY.unpack_from(self.memory, i * self.ENTRY.size)

    def put(self, i, *values):
        self.ENTRY.pack_into(self.memory, i * self.ENTRY.size, *values)


LOCKS = 3


class Locker(Role):
    """Its locks are its node's: where that daemon dies they are over, before anybody here notices."""

    def step(self):
        node, i = self.nodes[self.who % len(self.nodes)], self.rng.randrange(LOCKS)
        signal.setitimer(signal.ITIMER_REAL, self.rng.choice([.2, 1, 5]))
        try:
            ok, _ = self.call("lock %d" % i, node, lambda: fcntl.lockf(self.fd(node, "locked"), fcntl.LOCK_EX, 1, i * 100))
            signal.setitimer(signal.ITIMER_REAL, 0)
        except InterruptedError:  # perhaps when it had been granted
            self.drop(node)
            return
        if ok:
            self.held(node, i)

    def deaths(self):
        """[(time, node)] of daemons that were killed."""
        try:
            with open(self.args.deaths) as f:
                return [(float(t), int(k)) for t, k in (line.split() for line in f)]
        except FileNotFoundError:
            return []

    def may_be_over(self, node, since):
        return any(k == node and t >= since - .05 for t, k in self.deaths())

    def held(self, node, i):
        now = time.monotonic()
        holder, its, since, count, wrote = self.args.holders.get(i)
        if holder >= 0 and not self.may_be_over(its, since):
            raise Wrong("lock %d, taken by node %d, is still process %d's of node %d, since %.3f" % (i, node.number, holder, its, since))
        self.args.holders.put(i, self.who, node.number, now, count, wrote)
        ok = self.counted(node, i, now)
        mine = self.args.holders.get(i)
        if mine[:2] == (self.who, node.number) and mine[2] == now:
            self.args.holders.put(i, -1, -1, 0, *self.args.holders.get(i)[3:])
        if ok:
            ok, _ = self.call("unlock %d" % i, node, lambda: fcntl.lockf(self.fd(node, "locked"), fcntl.LOCK_UN, 1, i * 100))
        if not ok:
            self.drop(node)  # closes it: that ends what is left

    def counted(self, node, i, since):
        """The next number is written; whether that is known."""
        fd = self.fds.get((node.number, "locked"))
        ok, data = self.call("pread locked", node, os.pread, fd, 10, i * 100)
        if not ok:
            return False
        *_, count, wrote = self.args.holders.get(i)
        if int(data or b"0") < count and not self.may_be_over(node.number, since):
            raise Wrong("under lock %d node %d reads %r, not %d, which node %d wrote" % (i, node.number, data, count, wrote))
        if not self.call("pwrite locked", node, os.pwrite, fd, b"%010d" % (int(data or b"0") + 1), i * 100)[0]:
            return False
        if self.call("fsync locked", node, os.fsync, fd)[0] and not self.may_be_over(node.number, since):
            holder, its, at, count, _ = self.args.holders.get(i)
            if (holder, its, at) == (self.who, node.number, since):
                self.args.holders.put(i, holder, its, at, max(count, int(data or b"0") + 1), node.number)
        return True

    def settle(self):
        """Nobody holds any: each can be had."""
        for i in range(LOCKS):
            node = self.nodes[self.who % len(self.nodes)]
            if node.number == self.lost() or self.args.model:
                return
            self.eventually("lock %d" % i, node, lambda: self.lock_now(node, i))

    def lock_now(self, node, i):
        signal.setitimer(signal.ITIMER_REAL, 60)
        fd = self.fd(node, "locked")
        try:
            fcntl.lockf(fd, fcntl.LOCK_EX, 1, i * 100)
            fcntl.lockf(fd, fcntl.LOCK_UN, 1, i * 100)
        except OSError:
            self.drop(node)
            raise
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
        return True

    def agree(self):
        if self.args.model:
            return None
        seen = {n.number: self.eventually("read locked", n, lambda: contents(n, "locked")) for n in self.living()}
        if len(set(seen.values())) > 1:
            raise Wrong("locked is not the same on all nodes: %s" % seen)
        return seen[0]
