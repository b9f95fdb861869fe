# SPDX-License-Identifier: GPL-3.0-or-later
"""mirrored.py work MOUNT DIRECT SEED PENDING: random changes of a mount, each of which is made in DIRECT, too, once it has returned.

It ends when the mount does; what was under way then, and may have happened, stands in the file PENDING. mirrored.py settle MOUNT DIRECT
PENDING: does the mount show what DIRECT has, at once, with what was under way or without? DIRECT has it afterwards."""

import ctypes
import errno
import os
import random
import stat
import sys

libc = ctypes.CDLL(None, use_errno=True)


def exchange(a, b):
    if libc.renameat2(-100, a.encode(), -100, b.encode(), 2) < 0:
        err = ctypes.get_errno()
        raise OSError(err, os.strerror(err), a)


def write(path, seed, size, flags):
    fd = os.open(path, os.O_WRONLY | flags, 0o644)
    try:
        os.write(fd, random.Random(seed).randbytes(size))
    finally:
        os.close(fd)


def do(top, op):
    what, *args = op
    path = [f"{top}/{a}" if isinstance(a, str) else a for a in args]
    if what == "make":
        write(path[0], 0, 0, os.O_CREAT | os.O_EXCL)
    elif what == "append":
        write(path[0], args[1], args[2], os.O_APPEND)
    elif what == "symlink":
        os.symlink(args[0], path[1])
    else:
        {"exchange": exchange, "rename": os.rename, "link": os.link, "unlink": os.unlink, "mkdir": os.mkdir, "rmdir": os.rmdir}[what](*path)


def seen(top):
    """All that a tree shows, by path; an errno is shown as well."""
    found = {}

    def visit(path):
        full = f"{top}/{path}"
        try:
            st = os.lstat(full)
            if stat.S_ISDIR(st.st_mode):
                names = sorted(os.listdir(full))
                found[path] = ("dir", names)
                for name in names:
                    visit(f"{path}/{name}" if path else name)
            elif stat.S_ISLNK(st.st_mode):
                found[path] = ("link", os.readlink(full))
            else:
                with open(full, "rb") as f:
                    found[path] = ("file", st.st_nlink, f.read())
        except OSError as e:
            found[path] = ("error", str(e))

    visit("")
    return found


def draw(rng, direct):
    dirs, files, names = [""], [], []
    for top, subdirs, others in os.walk(direct):
        rel = os.path.relpath(top, direct)
        rel = "" if rel == "." else rel + "/"
        dirs += [rel + d for d in subdirs]
        names += [rel + n for n in subdirs + others]
        files += [rel + n for n in others if not os.path.islink(f"{top}/{n}")]

    def fresh():
        d = rng.choice(dirs)
        return (d + "/" if d else "") + f"n{rng.randrange(40)}"

    what = rng.choices(("make", "append", "rename", "exchange", "link", "unlink", "mkdir", "rmdir", "symlink"), (6, 10, 8, 5, 3, 6, 2, 1, 2))[0]
    size = rng.choice((10, 3000, 100000, 900000))
    if what == "make":
        return (what, fresh())
    if what == "append" and files:
        return (what, rng.choice(files), rng.randrange(1 << 30), size)
    if what == "rename" and names:
        return (what, rng.choice(names), rng.choice((fresh(), rng.choice(names))))
    if what == "exchange" and names:
        return (what, rng.choice(names), rng.choice(names))
    if what == "link" and files:
        return (what, rng.choice(files), fresh())
    if what == "unlink" and len(names) > 20:
        return (what, rng.choice(names))
    if what == "rmdir" and len(dirs) > 1:
        return (what, rng.choice(dirs[1:]))
    if what == "symlink":
        return (what, f"to{rng.randrange(9)}", fresh())
    return ("mkdir", fresh())


def outcome(top, op):
    try:
        do(top, op)
        return 0
    except OSError as e:
        return e.errno


def work(mount, direct, seed, pending):
    rng = random.Random(seed)
    num = 0
    while True:
        op = draw(rng, direct)
        with open(pending, "w") as f:
            f.write(repr(op))
        if not os.path.ismount(mount):
            return
        got = outcome(mount, op)
        if got in (errno.ENOTCONN, errno.ECONNABORTED):
            print(f"{num} changes, the last one: {op}")
            return
        wanted = outcome(direct, op)
        os.unlink(pending)
        num += 1
        if got != wanted:
            sys.exit(f"{op} says {os.strerror(got)}, not {os.strerror(wanted)}")


def differences(a, b):
    for path in sorted(a.keys() | b.keys()):
        x, y = a.get(path), b.get(path)
        if x != y:
            yield f"{path}: {str(x)[:200]} instead of {str(y)[:200]}"


def settle(mount, direct, pending):
    shown = seen(mount)
    without = list(differences(shown, seen(direct)))
    if not without:
        return 0
    if os.path.exists(pending):
        with open(pending) as f:
            outcome(direct, eval(f.read()))
        if not list(differences(shown, seen(direct))):
            return 0
    print("\n".join(without[:20]))
    return 1


if sys.argv[1] == "work":
    work(*sys.argv[2:4], int(sys.argv[4]), sys.argv[5])
else:
    sys.exit(settle(*sys.argv[2:5]))
