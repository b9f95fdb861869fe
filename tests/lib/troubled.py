#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-3.0-or-later
"""troubled.py [--seed N] --until FILE [--expect DIR | --model FILE] MOUNT...: processes on all mounts of a job work at random while the
job has troubles. What a call said with success has happened, by whichever node it was asked; what failed may have happened or not: a look
at the next occasion decides, and from then on it stays so.

  Writer    pieces of files that all write, some by one node and then by another; fsync makes them known
  Appender  records at the end of a file that all write
  Names     files and directories of its own among those of others: made, written, renamed, linked, removed, by any node
  Locker    a lock has one holder, who reads what the one before has written

At the end all nodes must show the same. --expect: DIR is made as the backing directory must be. --model, of a job that has lost a node
for good (--lost FILE has its number, from then on): what is known is written to FILE; "troubled.py --model FILE --recovered DIR --manifest
FILE" compares what a recovery without its store has made of it."""

import argparse
import collections
import errno
import json
import multiprocessing
import os
import pickle
import signal
import stat
import sys

from troubled_names import Gone, Names
from troubled_work import FILES, LOCKS, PATIENCE, SLOT, Appender, Holders, Locker, Writer, Wrong, pattern, place, show

fork = multiprocessing.get_context("fork")


# ---- a trial

def alarm(number, frame):
    raise InterruptedError(errno.EINTR, os.strerror(errno.EINTR))


def serve(role, pipe):
    signal.signal(signal.SIGALRM, alarm)
    for order in "work", "settle", "agree":
        try:
            pipe.recv()
            pipe.send((None, getattr(role, order)()))
        except (Wrong, Gone, OSError, ValueError) as e:
            pipe.send(("%s %d: %s: %s\n  %s" % (type(role).__name__, role.who, type(e).__name__, e, "\n  ".join(role.log)), None))
            return
    pipe.recv()
    pipe.send((None, (role.done, role.slowest, role.errors)))


class Trial:
    def __init__(self, args):
        self.args, self.roles = args, []
        prepare(args.mounts)
        for kind, num in (Writer, args.writers), (Appender, len(args.mounts)), (Names, args.writers), (Locker, len(args.mounts)):
            for who in range(num):
                mine, other = fork.Pipe()
                process = fork.Process(target=serve, args=(kind(who, args), other), daemon=True)
                process.start()
                self.roles.append((kind.__name__, who, mine))

    def all(self):
        """What each says; all do the same step at once."""
        for *_, pipe in self.roles:
            pipe.send(None)
        said = []
        for name, who, pipe in self.roles:
            said.append((name, *self.answer(name, who, pipe)))
        wrong = [error for _, error, _ in said if error]
        if wrong:
            raise Wrong("\n".join(wrong))
        return said

    def answer(self, name, who, pipe):
        while not pipe.poll(1):
            if os.path.exists(self.args.until):
                break
        if not pipe.poll(3 * PATIENCE):
            return "%s %d does not end" % (name, who), None
        return pipe.recv()


def prepare(mounts):
    for k, name in enumerate(["shared%d" % f for f in range(FILES)] + ["appended", "locked"]):
        fd = os.open(mounts[k % len(mounts)] + "/" + name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
        if name == "locked":
            os.write(fd, b"0" * 100 * LOCKS)
        os.fsync(fd)
        os.close(fd)
    for k in range(2):
        os.mkdir(mounts[k] + "/d%d" % k, 0o755)
        os.stat(mounts[1 - k] + "/d%d" % k)


def expect(directory, said, mounts):
    """The backing directory, as it must be."""
    files = [{} for _ in range(FILES)]
    for name, _, known in said:
        if name == "Writer":
            for (f, s), (version, _) in known.items():
                files[f][s] = version
        elif name == "Appender":
            put(directory + "/appended", known)
        elif name == "Locker":
            put(directory + "/locked", known)
        elif name == "Names":
            expect_names(directory, known)
    for f, slots in enumerate(files):
        with open(directory + "/shared%d" % f, "wb") as out:
            for s, version in slots.items():
                if version:
                    out.seek(place(s))
                    out.write(pattern(f, s, version))
    for path in ["appended", "locked"] + ["shared%d" % f for f in range(FILES)]:
        seen = {(st.st_size, st.st_mtime_ns) for st in (os.stat(m + "/" + path) for m in mounts)}
        if len(seen) > 1:
            raise Wrong("the nodes show %s with sizes and times %s" % (path, seen))
        [(size, mtime)] = seen
        os.truncate(directory + "/" + path, size)
        os.chmod(directory + "/" + path, 0o644)
        os.utime(directory + "/" + path, ns=(mtime, mtime))


def put(path, data):
    with open(path, "wb") as f:
        f.write(data)


def expect_names(directory, known):
    for k in range(2):
        os.makedirs(directory + "/d%d" % k, 0o755, exist_ok=True)
    first = {}
    for path in sorted(known):
        thing, (text, mode, mtime, _) = known[path]
        whole = directory + "/" + path
        if thing.kind == "d":
            os.mkdir(whole, 0o755)
        elif thing.kind == "l":
            os.symlink(text, os.fsencode(whole))
        elif thing.ino in first:
            os.link(first[thing.ino], whole)
        else:
            put(whole, text)
            os.chmod(whole, mode)
            os.utime(whole, ns=(mtime, mtime))
            first[thing.ino] = whole


def summary(said, deaths):
    done, errors, slowest = collections.Counter(), collections.Counter(), {}
    for name, _, (num, slow, failed) in said:
        done[name] += num
        for _, _, _, what, error in failed:
            errors[what.split()[0] + " " + errno.errorcode[error]] += 1
        for kind, found in slow.items():
            slowest[kind] = max(slowest.get(kind, (0, "")), found)
    print("done: %s\nfailed: %s\nslowest: %s" % (dict(done), dict(errors), ", ".join(
        "%.1f s %s" % found for found in sorted(slowest.values(), reverse=True)[:8])))
    late = max((e[:5] for s in said for e in s[2][2]), default=None)
    if late:
        print("the last failure: %.1f to %.1f, node %d: %s: %s" % (*late[:4], errno.errorcode[late[4]]))


# ---- what a recovery has made of it

def version_of(f, s, data, tries):
    return next((v for v in [0] + [t[0] for t in tries] if data == pattern(f, s, v)), None)


def wrong_slot(data, missing, f, s, tries, lost):
    """What cannot be of a slot, or None."""
    its = max([i for i, t in enumerate(tries) if t[1] != lost and t[2]], default=-1)
    later = [t for t in tries[its + 1:] if t[1] == lost]
    if missing:
        return None if later else "is said to be missing"
    version = version_of(f, s, data, tries)
    may = {tries[its][0] if its >= 0 else 0} | {t[0] for t in tries[its + 1:]}
    if any(t[2] and t[3] for t in later):
        may = {t[0] for t in tries[tries.index(max(t for t in later if t[2] and t[3])):]}
    return None if version in may else "is %s, can be %s" % (show(f, s, data), may)


def compare_recovered(args):
    with open(args.model, "rb") as f:
        said, lost = pickle.load(f)
    manifest = json.load(open(args.manifest))
    entries = {e["path"]: e for e in manifest["files"]}
    wrong, num = [], collections.Counter()
    for name, known in said:
        if name == "Writer":
            for (f, s), (_, tries) in known.items():
                path = "shared%d" % f
                gone = [(m["offset"], m["offset"] + m["length"]) for m in entries.get(path, {}).get("missing", [])]
                missing = any(a < place(s) + SLOT and b > place(s) for a, b in gone)
                with open(args.recovered + "/" + path, "rb") as opened:
                    opened.seek(place(s))
                    data = opened.read(SLOT).ljust(SLOT, b"\0")
                bad = wrong_slot(data, missing, f, s, tries, lost)
                num["slots missing" if missing else "slots there"] += 1
                if bad:
                    wrong.append("slot %d.%d at %d %s: %s" % (f, s, place(s), bad, tries[-8:]))
        elif name == "Names":
            for path, (thing, _) in known.items():
                wrong += compare_name(args, entries, path, thing, lost, num)
    print(dict(num))
    return "\n".join(wrong) or None


def compare_name(args, entries, path, thing, lost, num):
    if thing.home == lost and thing.kind != "d":
        num["names of the lost node's files"] += 1
        return []
    whole = args.recovered + "/" + path
    if not os.path.lexists(whole):
        return ["%s is not there: %s" % (path, thing)]
    num["names"] += 1
    if thing.kind != "f":
        return []
    text, missing = open(whole, "rb").read(), entries.get(path, {}).get("missing")
    if lost in thing.writers:
        return []
    if missing:
        return ["%s is said to be missing in part, and has been written by nodes %s" % (path, thing.writers)]
    if text not in thing.final:
        return ["%s has %d bytes %r, not one of %s" % (path, len(text), text[:30], [(len(t), t[:30]) for t in thing.final])]
    mode = stat.S_IMODE(os.stat(whole).st_mode)
    return [] if mode in thing.modes else ["%s has mode %o, not one of %s" % (path, mode, [oct(m) for m in thing.modes])]


def arguments():
    parser = argparse.ArgumentParser()
    for name, default in ("seed", 1), ("writers", 3):
        parser.add_argument("--" + name, type=int, default=default)
    parser.add_argument("--pause", type=float, default=.1, help="at most so long between two things, in seconds")
    parser.add_argument("--progress", default="/dev/null", help="gets a byte for each call that succeeds")
    for name in "until", "deaths", "lost", "expect", "model", "recovered", "manifest":
        parser.add_argument("--" + name)
    parser.add_argument("mounts", nargs="*")
    return parser.parse_args()


def main():
    args = arguments()
    os.umask(0)
    if args.recovered:
        return compare_recovered(args)
    args.holders = Holders(LOCKS)
    for i in range(LOCKS):
        args.holders.put(i, -1, -1, 0, 0, -1)
    try:
        trial = Trial(args)
        trial.all()
        trial.all()
        said = trial.all()
        summary(trial.all(), args.deaths)
    except Wrong as e:
        return "seed %d: %s" % (args.seed, e)
    if args.model:
        with open(args.model, "wb") as f:
            pickle.dump(([(name, known) for name, _, known in said], int(open(args.lost).read())), f)
    if args.expect:
        expect(args.expect, said, args.mounts)
    return 0


if __name__ == "__main__":
    sys.exit(main())
