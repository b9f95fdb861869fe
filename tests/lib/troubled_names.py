# SPDX-License-Identifier: GPL-3.0-or-later
"""What a process does with names in a job that has troubles (tests/lib/troubled.py)."""

import errno
import os
import stat
import time

from troubled_work import Role, Wrong, close, contents


def scan(node, path):
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY, dir_fd=node.at())
    try:
        with os.scandir(fd) as entries:
            return sorted(e.name for e in entries)
    finally:
        close(fd)


class Thing:
    """What has a name: final, of a file, are the contents of which one counts, now those that any node may see."""

    def __init__(self, kind, ino, home, mode, text=b""):
        self.kind, self.ino, self.home, self.modes = kind, ino, home, {mode}
        self.final, self.now, self.by, self.mtime = [text], [text], home, None
        self.writers = {home}

    def __repr__(self):
        return "%s %d of node %d" % (self.kind, self.ino, self.home)


class Names(Role):
    def __init__(self, who, args):
        super().__init__(who, args)
        self.things, self.unknown = {}, set()  # by path
        self.number = 0
        self.dirs = ["d%d/q%d" % (k, who) for k in range(2)]
        self.files = ["d%d/p%d%s" % (k, who, n) for k in range(2) for n in "ab"]

    def paths(self, kind=None):
        return [p for p, t in self.things.items() if kind is None or t.kind == kind]

    def free(self):
        """Paths where something can be made."""
        inner = [d + "/" + n for d in self.paths("d") for n in "xy"]
        return [p for p in self.files + inner if p not in self.things and p not in self.unknown]

    def step(self):
        kinds = {"create": 5, "write": 5, "rename": 5, "unlink": 3, "link": 2, "symlink": 1, "mkdir": 2, "rmdir": 1, "mvdir": 2, "chmod": 1,
                 "utime": 1, "look": 6, "scan": 2}
        try:
            getattr(self, "do_" + self.rng.choices(list(kinds), list(kinds.values()))[0])(self.node())
        except Gone as e:
            self.forget(e.args[0])

    def forget(self, paths):
        """What they are cannot be known any more."""
        self.unknown.update(paths)
        self.dirs = [d for d in self.dirs if d not in paths]
        for p in [p for p in self.things if any(p == q or p.startswith(q + "/") for q in paths)]:
            del self.things[p]

    # ---- changes of names
    def change(self, what, node, do, paths, after):
        """after: the things at the paths when it has happened."""
        before = [self.things.get(p) for p in paths]
        ok, got = self.call(what, node, do)
        things = after if ok else self.decide(what, paths, before, after)
        for p, t in zip(paths, things):
            self.things.pop(p, None)
            if t:
                self.things[p] = t
        for p, t in zip(paths, before):
            if t and t.kind == "d" and t is not self.things.get(p):
                self.move_inner(p, next((q for q, other in self.things.items() if other is t), None))
        return ok, got

    def move_inner(self, path, to):
        for p in [p for p in self.things if p.startswith(path + "/")]:
            thing = self.things.pop(p)
            if to:
                self.things[to + p[len(path):]] = thing

    def seen(self, node, path):
        look = lambda: os.stat(path, dir_fd=node.at(), follow_symlinks=False)
        return self.call("lstat " + path, node, look, answers=(errno.ENOENT, errno.ENOTDIR))

    def decide(self, what, paths, before, after):
        """It failed: has it happened?"""
        deadline = time.monotonic() + self.patience
        while True:
            node = self.rng.choice(self.living())
            looks = [self.seen(node, p) for p in paths]
            if all(ok for ok, _ in looks):
                inos = [st and st.st_ino for _, st in looks]
                for t in after:
                    if t and t.ino is None:
                        t.ino = next((i for i in inos if i and all(i != b.ino for b in before if b)), None)
                for things in before, after:
                    if [t and t.ino for t in things] == inos and None not in [t.ino for t in things if t]:
                        return things
                if time.monotonic() > deadline:
                    raise Wrong("%s has failed; node %d shows %s of %s, can only be %s or %s" % (what, node.number, inos, paths, before, after))
            elif time.monotonic() > deadline:
                if self.args.model:
                    raise Gone(paths)
                raise Wrong("%s has failed, and %s cannot be looked at any more" % (what, paths))
            time.sleep(.05)

    def create(self, node, path, text):
        self.number += 1
        mode = self.rng.choice([0o600, 0o640, 0o755])
        thing = Thing("f", None, node.number, mode)
        ok, fd = self.change("create " + path, node, lambda: os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, mode, dir_fd=node.at()), [path], [thing])
        if not ok:
            return
        ok, st = self.call("fstat " + path, node, os.fstat, fd)
        if ok:
            thing.ino = st.st_ino
        else:
            self.find(path, thing)
        self.rewrite(node, path, thing, fd, text, 0)

    def rewrite(self, node, path, thing, fd, text, off):
        """And close it."""
        what = "%s, %d at %d" % (path, len(text), off)
        ok, num = self.call("write " + what, node, os.pwrite, fd, text, off)
        if ok and num != len(text):
            raise Wrong("write %s: only %d" % (what, num))
        changed = [old.ljust(off, b"\0")[:off] + text + old[off + len(text):] for old in thing.final]
        self.changed(thing, node, ok, changed)
        if self.rng.random() < .7 and self.call("fsync " + path, node, os.fsync, fd)[0] and thing.by == node.number:
            thing.now = list(thing.final)
        ok, _ = self.call("close " + path, node, os.close, fd)
        if ok and thing.by == node.number:
            thing.now = list(thing.final)

    def changed(self, thing, node, ok, changed):
        thing.now = thing.now + changed
        thing.final = changed if ok else thing.final + changed
        thing.by = node.number if ok else thing.by
        thing.writers.add(node.number)
        thing.mtime = None

    def do_create(self, node):
        if self.free():
            self.create(node, self.rng.choice(self.free()), self.text())

    def text(self):
        return (b"%d.%d|" % (self.who, self.number)) * self.rng.choice([1, 30, 700])

    def do_write(self, node):
        path = self.pick("f")
        if not path or len(self.things[path].final) > 4:
            return
        ok, fd = self.call("open " + path, node, lambda: os.open(path, os.O_RDWR | os.O_NOFOLLOW, dir_fd=node.at()))
        if not ok:
            return
        thing = self.things[path]
        self.number += 1
        if self.rng.random() < .3:
            size = self.rng.choice([0, 7, 5000])
            ok, _ = self.call("truncate %s to %d" % (path, size), node, os.ftruncate, fd, size)
            self.changed(thing, node, ok, [old[:size].ljust(size, b"\0") for old in thing.final])
        self.rewrite(node, path, thing, fd, self.text(), self.rng.choice([0, 3, 4096]))

    def pick(self, *kinds):
        found = [p for p, t in self.things.items() if t.kind in kinds]
        return self.rng.choice(found) if found else None

    def do_rename(self, node):
        a, free = self.pick("f", "l"), self.free()
        over = [p for p in self.paths() if self.things[p].kind != "d" and a and self.things[p].ino != self.things[a].ino]
        targets = free + over
        if not a or not targets:
            return
        b, thing = self.rng.choice(targets), self.things[a]
        self.change("rename %s %s" % (a, b), node, lambda: os.rename(a, b, src_dir_fd=node.at(), dst_dir_fd=node.at()), [a, b], [None, thing])

    def do_unlink(self, node):
        path = self.pick("f", "l")
        if path:
            self.change("unlink " + path, node, lambda: os.unlink(path, dir_fd=node.at()), [path], [None])

    def do_link(self, node):
        a, free = self.pick("f"), self.free()
        if a and free:
            b, thing = self.rng.choice(free), self.things[a]
            do = lambda: os.link(a, b, src_dir_fd=node.at(), dst_dir_fd=node.at(), follow_symlinks=False)
            self.change("link %s %s" % (a, b), node, do, [a, b], [thing, thing])

    def make(self, node, what, path, thing, do):
        if self.change(what + " " + path, node, do, [path], [thing])[0]:
            self.find(path, thing)

    def find(self, path, thing):
        """The number of what has just been made."""
        if self.decide("making " + path, [path], [None], [thing]) == [None]:
            raise Wrong("%s has been made, and is not there" % path)

    def do_symlink(self, node):
        if self.free():
            path, text = self.rng.choice(self.free()), b"t" * self.rng.randint(1, 30)
            self.make(node, "symlink", path, Thing("l", None, node.number, 0o777, text), lambda: os.symlink(text, os.fsencode(path), dir_fd=node.at()))

    def do_mkdir(self, node):
        free = [d for d in self.dirs if d not in self.things]
        if free:
            path = self.rng.choice(free)
            self.make(node, "mkdir", path, Thing("d", None, 0, 0o755), lambda: os.mkdir(path, 0o755, dir_fd=node.at()))

    def do_rmdir(self, node):
        empty = [d for d in self.paths("d") if not any(p.startswith(d + "/") for p in self.things)]
        if empty:
            path = self.rng.choice(empty)
            self.change("rmdir " + path, node, lambda: os.rmdir(path, dir_fd=node.at()), [path], [None])

    def do_mvdir(self, node):
        there, free = self.paths("d"), [d for d in self.dirs if d not in self.things]
        if there and free:
            a, b = there[0], free[0]
            do = lambda: os.rename(a, b, src_dir_fd=node.at(), dst_dir_fd=node.at())
            self.change("mvdir %s %s" % (a, b), node, do, [a, b], [None, self.things[a]])

    # ---- attributes
    def do_chmod(self, node):
        path = self.pick("f")
        if path:
            mode, thing = self.rng.choice([0o600, 0o644, 0o711]), self.things[path]
            ok, _ = self.call("chmod %s %o" % (path, mode), node, lambda: os.chmod(path, mode, dir_fd=node.at()))
            thing.modes = {mode} if ok else thing.modes | {mode}

    def do_utime(self, node):
        """Who has last written must have made that known: a later commit has a time of its own."""
        path = self.pick("f")
        if path and len(self.things[path].now) == 1:
            ns, thing = self.rng.randrange(10**18), self.things[path]
            ok, _ = self.call("utime " + path, node, lambda: os.utime(path, ns=(ns, ns), dir_fd=node.at()))
            thing.mtime = ns if ok else None

    # ---- looks
    def do_look(self, node):
        path = self.pick("f", "l", "d") if self.rng.random() < .7 else self.rng.choice(self.files + self.dirs)
        if path:
            self.look(node, path)

    def look(self, node, path):
        """Whether there was an answer."""
        thing = self.things.get(path)
        ok, st = self.seen(node, path)
        if not ok:
            return False
        if (st and st.st_ino) != (thing and thing.ino):
            raise Wrong("node %d shows %s as %s, not %s" % (node.number, path, st and st.st_ino, thing))
        if thing and thing.kind == "f":
            if stat.S_IMODE(st.st_mode) not in thing.modes:
                raise Wrong("node %d shows %s with mode %o, not one of %s" % (node.number, path, stat.S_IMODE(st.st_mode), [oct(m) for m in thing.modes]))
            if thing.mtime not in (None, st.st_mtime_ns):
                raise Wrong("node %d shows %s with time %d, not %d" % (node.number, path, st.st_mtime_ns, thing.mtime))
            return self.compare(node, path, thing, thing.final if thing.by == node.number else thing.now)
        return True

    def compare(self, node, path, thing, texts):
        ok, text = self.call("read " + path, node, contents, node, path)
        if ok and text not in texts:
            raise Wrong("node %d shows %s with %d bytes %r, not one of %s" % (
                node.number, path, len(text), text[:30], [(len(t), t[:30]) for t in texts]))
        return ok

    def do_scan(self, node):
        d = "d%d" % self.rng.randrange(2)
        ok, names = self.call("scan " + d, node, scan, node, d)
        if ok:
            self.compare_names(node, d, names)

    def compare_names(self, node, d, names):
        mine = [n for n in names if n[1:].rstrip("ab") == str(self.who) and n[0] in "pq"]
        want = sorted(p.split("/")[1] for p in self.things if p.startswith(d + "/") and p.count("/") == 1)
        if mine != want:
            raise Wrong("node %d lists %s in %s, not %s" % (node.number, mine, d, want))

    # ---- at the end
    def settle(self):
        pass

    def agree(self):
        seen = {}
        for node in [] if self.args.model else self.living():
            for path in self.files + self.dirs + self.paths():
                self.agree_on(node, path, seen)
            for d in "d0", "d1":
                self.compare_names(node, d, self.eventually("scan " + d, node, lambda: scan(node, d)))
        return {path: (t, seen.get(path)) for path, t in self.things.items()}

    def agree_on(self, node, path, seen):
        """What a close that failed has not made known is known after some seconds."""
        deadline, thing = time.monotonic() + self.patience, self.things.get(path)
        if thing:
            thing.now = list(thing.final)
        while True:
            try:
                if self.look(node, path):
                    break
                wrong = "%s cannot be looked at any more by node %d" % (path, node.number)
            except Wrong as e:
                wrong = str(e)
            if time.monotonic() > deadline:
                raise Wrong(wrong)
            time.sleep(.1)
        if thing:
            self.same(node, path, thing, seen)

    def same(self, node, path, thing, seen):
        st = self.eventually("lstat " + path, node, lambda: os.stat(path, dir_fd=node.at(), follow_symlinks=False))
        text = {"d": lambda: b"", "l": lambda: os.readlink(os.fsencode(path), dir_fd=node.at()), "f": lambda: contents(node, path)}[thing.kind]
        text = self.eventually("read " + path, node, text)
        now = (text, stat.S_IMODE(st.st_mode), *((st.st_mtime_ns, st.st_nlink) if thing.kind == "f" else (0, 0)))
        if seen.setdefault(path, now) != now:
            raise Wrong("%s is not the same on all nodes: %s, and on node %d %s" % (path, seen[path], node.number, now))


class Gone(Exception):
    """Cannot be known, since a node is lost."""
