# SPDX-License-Identifier: GPL-3.0-or-later
"""many_changes.py make DIR: what a directory has before. many_changes.py change DIR: changes of all kinds that a drain has to carry.

In a small store that only unmounting drains, the second half of the data goes through to the backing directory."""

import ctypes
import os
import random
import shutil
import sys

libc = ctypes.CDLL(None, use_errno=True)
MIB = 1 << 20


def exchange(a, b):
    if libc.renameat2(-100, a.encode(), -100, b.encode(), 2) < 0:
        err = ctypes.get_errno()
        raise OSError(err, os.strerror(err), a)


def put(name, size=3000, mode="wb"):
    with open(name, mode) as f:
        f.write(random.Random(f"{name} {mode}").randbytes(size))


def make():
    for name in ("changed", "replaced", "renamed", "x", "y", "q", "removed", "l1", "k1", "f", "stays", "wide", "under"):
        put(name)
    os.link("l1", "l2")
    for name in ("p", "e1", "e2", "moved", "gone", "up", "up/down"):
        os.mkdir(name)
        put(f"{name}/inside")


def change_names():
    exchange("x", "y")
    exchange("p", "q")
    exchange("e1", "e2")
    os.rename("f", "f.1")
    os.symlink("f.1", "f")
    os.unlink("l1")
    os.link("k1", "k2")
    os.unlink("removed")
    shutil.rmtree("gone")
    os.rename("up/down", "down")
    os.rename("up", "down/up")
    os.mkdir("made")
    os.rename("moved", "made/moved")
    os.rename("renamed", "made/renamed")


def change_data():
    put("changed", 100, "ab")
    put("new.tmp")
    os.rename("new.tmp", "replaced")
    put("made/new")
    os.link("made/new", "new.link")
    os.symlink("nowhere", "made/link")
    put("filler", 7 * MIB)
    put("wide", 2 * MIB, "ab")
    for name in ("through", "through.2", "through.3", "through.4"):
        put(name, MIB)
    os.rename("through.2", "made/through")
    os.unlink("through.3")
    os.rename("through.4", "under")


os.chdir(sys.argv[2])
if sys.argv[1] == "make":
    make()
else:
    change_names()
    change_data()
