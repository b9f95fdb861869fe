# SPDX-License-Identifier: GPL-3.0-or-later
"""moving.py MOUNT SECONDS WORKERS STOP: names change places while drains move them in the backing directory.

MOUNT must have been filled through `moving.py --fill BACKING WORKERS`. Each worker has a folder of its own, so after each of its
changes it knows what every call must say; another process per folder reads along, and knows what the calls may say. Any other
errno, another file's bytes, target, attribute or listing is told, and makes the exit status 1. The file STOP ends it before SECONDS."""

import ctypes
import errno
import os
import sys
import time

libc = ctypes.CDLL(None, use_errno=True)
RENAME_EXCHANGE = 2
AT_FDCWD = -100


def exchange(a, b):
    if libc.renameat2(AT_FDCWD, a.encode(), AT_FDCWD, b.encode(), RENAME_EXCHANGE) < 0:
        err = ctypes.get_errno()
        raise OSError(err, os.strerror(err), a)


def put(path, text):
    with open(path, "w") as f:
        f.write(text)
    os.setxattr(path, "user.who", text.encode())


def fill(top, workers):
    for k in range(workers):
        w = f"{top}/w{k}"
        os.makedirs(f"{w}/deep/a/b")
        put(f"{w}/deep/a/b/c", "nested")
        for name in ("f", "x", "y", "q", "over", "l1"):
            put(f"{w}/{name}", name)
        os.link(f"{w}/l1", f"{w}/l2")
        for name in ("p", "d1", "d2"):
            os.mkdir(f"{w}/{name}")
            os.mkdir(f"{w}/{name}/below")
            put(f"{w}/{name}/c", f"{name}/c")
            put(f"{w}/{name}/below/c", f"{name}/below/c")
            os.symlink(f"{name}/target", f"{w}/{name}/link")


class Wrong(Exception):
    pass


class Checks:
    def __init__(self):
        self.num = 0

    def same(self, what, got, *wanted):
        self.num += 1
        if got not in wanted:
            raise Wrong(f"{what}: {got!r}, not {wanted!r}")

    def text(self, path, *wanted):
        fd = os.open(path, os.O_RDONLY)
        try:
            self.same(f"bytes of {path}", os.read(fd, 100).decode(), *wanted)
        finally:
            os.close(fd)
        self.same(f"size of {path}", os.stat(path).st_size, *[len(w) for w in wanted])
        self.same(f"xattr of {path}", os.getxattr(path, "user.who").decode(), *wanted)

    def tree(self, path, name):
        """path is the directory that was filled as name."""
        self.text(f"{path}/c", f"{name}/c")
        self.text(f"{path}/below/c", f"{name}/below/c")
        self.same(f"target of {path}/link", os.readlink(f"{path}/link"), f"{name}/target")
        self.same(f"names in {path}", sorted(os.listdir(path)), ["below", "c", "link"])


def link_takes_name(w, c):
    os.rename(f"{w}/f", f"{w}/f.1")
    os.symlink("f.1", f"{w}/f")
    c.text(f"{w}/f", "f")
    c.same("target of f", os.readlink(f"{w}/f"), "f.1")
    os.rename(f"{w}/f.1", f"{w}/f")
    c.text(f"{w}/f", "f")


def file_and_dir(w, c):
    exchange(f"{w}/p", f"{w}/q")
    c.tree(f"{w}/q", "p")
    c.text(f"{w}/p", "q")
    exchange(f"{w}/p", f"{w}/q")
    c.tree(f"{w}/p", "p")
    c.text(f"{w}/q", "q")


def two_dirs(w, c):
    exchange(f"{w}/d1", f"{w}/d2")
    c.tree(f"{w}/d1", "d2")
    c.tree(f"{w}/d2", "d1")
    exchange(f"{w}/d1", f"{w}/d2")
    c.tree(f"{w}/d1", "d1")
    c.tree(f"{w}/d2", "d2")


def two_files(w, c):
    exchange(f"{w}/x", f"{w}/y")
    c.text(f"{w}/x", "y")
    c.text(f"{w}/y", "x")
    exchange(f"{w}/x", f"{w}/y")
    c.text(f"{w}/x", "x")
    c.text(f"{w}/y", "y")


def inside_out(w, c):
    d = f"{w}/deep"
    os.rename(f"{d}/a/b", f"{d}/b")
    os.rename(f"{d}/a", f"{d}/b/a")
    c.text(f"{d}/b/c", "nested")
    c.same("names in a", os.listdir(f"{d}/b/a"), [])
    os.rename(f"{d}/b/a", f"{d}/a")
    os.rename(f"{d}/b", f"{d}/a/b")
    c.text(f"{d}/a/b/c", "nested")


def hard_links(w, c):
    os.unlink(f"{w}/l1")
    c.text(f"{w}/l2", "l1")
    os.link(f"{w}/l2", f"{w}/l1")
    c.text(f"{w}/l1", "l1")
    os.unlink(f"{w}/l2")
    c.text(f"{w}/l1", "l1")
    os.link(f"{w}/l1", f"{w}/l2")
    c.text(f"{w}/l2", "l1")


def replaced(w, c):
    os.rename(f"{w}/over", f"{w}/gone")
    put(f"{w}/over", "new")
    c.text(f"{w}/over", "new")
    c.text(f"{w}/gone", "over")
    os.rename(f"{w}/gone", f"{w}/over")
    c.text(f"{w}/over", "over")


KINDS = (link_takes_name, file_and_dir, two_dirs, two_files, inside_out, hard_links, replaced)


def look(path, may, c):
    """What a reader beside may get: the text of one of those, or one of the errors."""
    wanted = [m for m in may if isinstance(m, str)]
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        try:
            c.same(f"bytes of {path}", os.read(fd, 100).decode(), *wanted)
        finally:
            os.close(fd)
    except OSError as e:
        c.num += 1
        if e.errno not in may:
            raise


def read_along(w, c):
    gone = errno.ENOENT
    look(f"{w}/x", ("x", "y"), c)
    look(f"{w}/y", ("x", "y"), c)
    look(f"{w}/f", ("f", gone), c)
    look(f"{w}/q", ("q", errno.EISDIR), c)
    look(f"{w}/q/c", ("p/c", errno.ENOTDIR), c)
    look(f"{w}/p/below/c", ("p/below/c", errno.ENOTDIR), c)
    look(f"{w}/d1/c", ("d1/c", "d2/c"), c)
    look(f"{w}/d2/below/c", ("d1/below/c", "d2/below/c"), c)
    look(f"{w}/over", ("over", "new", "", gone), c)
    c.same("target", os.readlink(f"{w}/d1/link"), "d1/target", "d2/target")
    c.same("names", sorted(os.listdir(f"{w}/d2")), ["below", "c", "link"])
    names = set(os.listdir(w)) - {"f.1", "gone", "f", "over", "l1", "l2"}
    c.same("names", names, {"d1", "d2", "deep", "p", "q", "x", "y"})


def run(what, w, until, stop):
    c = Checks()
    wrong = {}
    num_wrong = 0
    while time.monotonic() < until and not os.path.exists(stop):
        for step in what:
            try:
                step(w, c)
            except (OSError, Wrong) as e:
                num_wrong += 1
                wrong.setdefault(f"{step.__name__}: {e}", 0)
                wrong[f"{step.__name__}: {e}"] += 1
                if step is not read_along:
                    what = [s for s in what if s is not step]  # its names are not what it thinks any more
                    break
    for text, times in sorted(wrong.items(), key=lambda i: -i[1])[:20]:
        print(f"{w}: {times} times: {text}", flush=True)
    print(f"{w}: {c.num} checks, {num_wrong} wrong", flush=True)
    return 1 if num_wrong else 0


def main():
    if sys.argv[1] == "--fill":
        fill(sys.argv[2], int(sys.argv[3]))
        return 0
    mount, seconds, workers, stop = sys.argv[1], float(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
    until = time.monotonic() + seconds
    pids = []
    for k in range(workers):
        for what in (list(KINDS), [read_along]):
            pid = os.fork()
            if pid == 0:
                os._exit(run(what, f"{mount}/w{k}", until, stop))
            pids.append(pid)
    return max(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids)


sys.exit(main())
