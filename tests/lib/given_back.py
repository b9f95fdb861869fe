#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-3.0-or-later
"""given_back.py STORE0 BACKING MOUNT0 MOUNT1

Two nodes write files, which the background drains; a flush has that make way while it publishes them. When the store has given back the room of
what was drained, the other node goes on with the files: everybody sees what was written, and so does the backing directory in the end."""

import os
import signal
import subprocess
import sys
import time

FILES, SIZE = 200, 8192
WRITTEN = b"a" * 4096 + b"B" * 512 + b"a" * 3584
PATIENCE = 60  # seconds; only a test that fails needs them
PATIENCE_TO_MEET = 120
PENDING_TERM = 1 << signal.SIGTERM - 1


def put(path, data, off, flags=os.O_RDWR):
    fd = os.open(path, flags, 0o644)
    os.pwrite(fd, data, off)
    return fd


def flush(mount):
    return subprocess.Popen([os.environ["CISTERN"], "flush", "--wait", mount])


def flushed(process):
    if process.wait(PATIENCE):
        sys.exit("a flush failed")


def names(top, turn):
    return [f"{top}/f{turn}.{i}" for i in range(FILES)]


def wrong(top, turn):
    return [name for name in names(top, turn) if open(name, "rb").read(SIZE) != WRITTEN]


def write_both(m0, m1, turn):
    for on0, on1 in zip(names(m0, turn), names(m1, turn)):
        first = put(on0, b"a" * SIZE, 0, os.O_RDWR | os.O_CREAT)
        os.close(put(on1, b"B" * 512, 4096))
        os.close(first)


def published(backing, turn):
    return sum(name.startswith(f"f{turn}.") for name in os.listdir(backing))


def is_drainer(pid, store):
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as f:
            words = f.read().split(b"\0")
    except OSError:
        return False
    return b"drain" in words and os.fsencode(store) in words


def drainers(store):
    return [int(pid) for pid in os.listdir("/proc") if pid.isdigit() and is_drainer(pid, store)]


def try_kill(pid, number):
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        pass


def stop_one(pids, backing, turn):
    """The process that has published some files and not all, stopped; or None."""
    for pid in pids:
        try_kill(pid, signal.SIGSTOP)
        if 0 < published(backing, turn) < FILES:
            return pid
        try_kill(pid, signal.SIGCONT)
    return None


def stop_publishing(store, backing, turn):
    """The same; None: that was too quick for us."""
    pids, end = [], time.monotonic() + PATIENCE
    while published(backing, turn) < FILES:
        pids = [pid for pid in pids if is_drainer(pid, store)] or drainers(store)
        pid = stop_one(pids, backing, turn)
        if pid:
            return pid
        if time.monotonic() > end:
            sys.exit("the background publishes nothing")
    return None


def is_told_to_end(pid):
    with open(f"/proc/{pid}/status", encoding="ascii") as f:
        pending = [line.split()[1] for line in f if line.startswith("ShdPnd:")]
    return int(pending[0], 16) & PENDING_TERM


def interrupt(pid, mount):
    asked = flush(mount)
    end = time.monotonic() + PATIENCE
    while not is_told_to_end(pid):
        if time.monotonic() > end:
            sys.exit("a flush does not tell the background to end")
        time.sleep(0.01)
    try_kill(pid, signal.SIGCONT)
    flushed(asked)


def blocks(store):
    return sum(os.stat(os.path.join(top, name)).st_blocks for top, _, names in os.walk(store + "/segment") for name in names)


def wait_given_back(store, mount):
    """It does so when it syncs, some time after the drain."""
    before, end = blocks(store), time.monotonic() + PATIENCE
    with open(f"{mount}/synced", "wb") as f:
        while blocks(store) >= before:
            if time.monotonic() > end:
                sys.exit("the store gives nothing back")
            f.write(b"again")
            f.flush()
            os.fsync(f.fileno())
            time.sleep(0.5)


def main():
    store, backing, m0, m1 = sys.argv[1:]
    pid, turn, end = None, 0, time.monotonic() + PATIENCE_TO_MEET
    while pid is None and time.monotonic() < end:
        turn += 1
        write_both(m0, m1, turn)
        pid = stop_publishing(store, backing, turn)
    if pid is None:
        sys.exit("the background was not met while it published")
    print(published(backing, turn), "files are published when the flush begins")
    interrupt(pid, m1)
    wait_given_back(store, m0)
    opened = [put(name, b"x", SIZE + 9) for name in names(m1, turn)]
    seen = {m: wrong(m, turn) for m in (m0, m1)}
    for fd in opened:
        os.close(fd)
    flushed(flush(m0))
    seen[backing] = wrong(backing, turn)
    for top, files in seen.items():
        print(f"{top}: {len(files)} files with other bytes {files[:5]}")
    sys.exit(any(seen.values()))


if __name__ == "__main__":
    main()
