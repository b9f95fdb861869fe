# SPDX-License-Identifier: GPL-3.0-or-later
"""What the bytes of a file may be that processes of several nodes write at the same time, each write with the time that it took.

On a node the later of two writes counts, where one had certainly ended before the other began; of several nodes nobody can say whose
counts, before they have made known what they wrote."""

import bisect

DOMAIN = 16 << 20  # of extents' homes: the second window lies across the border
WINDOWS = [(0, 40000), (DOMAIN - 9001, DOMAIN + 9003)]  # only there files are written
END = 1 << 40


class Write:
    """data None: zeros, to END where a file is cut."""

    def __init__(self, who, node, f, off, end, data, text):
        self.who, self.node, self.f, self.off, self.stop, self.data, self.text = who, node, f, off, end, data, text
        self.begin, self.end = 0, END

    def bytes(self, off, stop):
        return self.data[off - self.off:stop - self.off] if self.data is not None else bytes(stop - off)

    def __str__(self):
        return "process %d of node %d, %d to %d us: %s [%d, %d)" % (self.who, self.node, self.begin // 1000, self.end // 1000,
                                                                   self.text, self.off, self.stop)


class File:
    def __init__(self):
        self.size = 0
        self.windows = [bytes(end - begin) for begin, end in WINDOWS]

    def old(self, off, stop):
        for (begin, end), data in zip(WINDOWS, self.windows):
            if begin <= off < end:
                return data[off - begin:stop - begin]
        return bytes(stop - off)


def segments(writes, off, stop):
    """[off, stop), cut where writes begin and end: (from, to, the writes that cover it)."""
    cuts = sorted({off, stop} | {e for w in writes for e in (w.off, w.stop) if off < e < stop})
    starts = {a: [] for a in cuts}
    for w in writes:
        for a in cuts[bisect.bisect_left(cuts, max(w.off, off)):bisect.bisect_left(cuts, min(w.stop, stop))]:
            starts[a].append(w)
    return [(a, b, starts[a]) for a, b in zip(cuts, cuts[1:])]


def latest(writes, until=END):
    """Those of one node that no other, ended before until, has certainly come after."""
    ended = [w for w in writes if w.end < until]
    return [w for w in writes if not any(other.begin > w.end for other in ended)]


def left(old, writes):
    """What may be there when all is over."""
    nodes = {w.node for w in writes}
    found = [w for node in nodes for w in latest([w for w in writes if w.node == node])]
    return found or [old]


def meanwhile(old, writes, begin, end, node=None):
    """What a read may see by who may write: all that has ended on any node; or, with a node, on that one."""
    writes = [w for w in writes if w.begin < end]
    known = [w for w in writes if node in (None, w.node)]
    found = [w for n in {w.node for w in known} for w in latest([w for w in known if w.node == n], begin)]
    found += [w for w in writes if w not in known]
    return found if any(w.end < begin for w in known) else found + [old]


class Old:
    """What was there before the phase, as a write."""
    text = "what was there before"

    def __init__(self, file):
        self.bytes = file.old

    def __str__(self):
        return self.text


def differs(got, off, candidates):
    """The first place where got is none of the candidates, or None."""
    texts = [c.bytes(off, off + len(got)) for c in candidates]
    if got in texts:
        return None
    return next((off + i for i, byte in enumerate(got) if all(text[i] != byte for text in texts)), None)


def explain(at, got, off, candidates, file, writes):
    """got is wrong at a place."""
    num = 0
    while at - off + num < len(got) and num < 100000 and all(c.bytes(at + num, at + num + 1) != got[at - off + num:at - off + num + 1] for c in candidates):
        num += 1
    there = got[at - off:at - off + num]
    all_of_them = [w for w in writes if w.off <= at and w.stop > at]
    like = [str(c) for c in all_of_them + [Old(file)] if c.bytes(at, at + 1) == there[:1]]
    return "at %d, for %d bytes or more: %s instead of what these wrote:\n  %s\nIt is like:\n  %s\nAll writes here:\n  %s" % (
        at, num, there[:16].hex(), "\n  ".join(map(str, candidates)), "\n  ".join(like) or ("zeros" if not any(there) else "nothing known"),
        "\n  ".join(map(str, all_of_them)))
