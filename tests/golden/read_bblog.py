#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-3.0-or-later
"""read_bblog.py FILE.meta...: prints the entries of PnetCDF's burst-buffer logs as JSON lines.

Written from docs/format/pnetcdf-burst-buffer.md alone, as a second opinion on what the bytes mean: it shares nothing with
Cistern's own decoder. For each log (in shared mode: each channel) a line about its header, then one for each entry that
counts. Exit status 0, or 4: something does not follow the grammar."""

import json
import struct
import sys

BLOCK = 8 << 20
TYPES = {1: ("text", 1), 2: ("schar", 1), 3: ("uchar", 1), 4: ("short", 2), 5: ("ushort", 2), 6: ("int", 4), 7: ("uint", 4),
         8: ("float", 4), 9: ("double", 8), 10: ("longlong", 8), 11: ("ulonglong", 8), 12: ("native", None), 13: ("long", None)}
KINDS = {-1: "var", -2: "var1", -3: "vara", -4: "vars"}


class Bad(Exception):
    """Not of the grammar."""


def demand(condition, what):
    if not condition:
        raise Bad(what)


class Reader:
    def __init__(self, data, order):
        self.data, self.order = data, order

    def number(self, code, at):
        demand(at + struct.calcsize(code) <= len(self.data), "cut short at %d" % at)
        return struct.unpack_from(self.order + code, self.data, at)[0]

    def name(self, at, length):
        demand(at + length + 1 <= len(self.data), "a name is cut short")
        text = self.data[at:at + length]
        demand(0 not in text and self.data[at + length] == 0, "a name does not end where it should")
        return text.decode()


def round_up(value, to):
    return (value + to - 1) // to * to


def header(data):
    demand(data[:16] == b"PnetCDF0CDF0\0\0\0\0", "magic")
    demand(data[16:20] in (b"\0\0\0\0", b"\0\0\0\1"), "big_endian")
    order = ">" if data[19] else "<"
    r = Reader(data, order)
    wide = data[64:68] == bytes(4) if data[19] else data[68:72] == bytes(4)
    at, base = (72, 80) if wide else (68, 72)
    path = r.name(at, r.number("Q" if wide else "I", 64))
    demand(path.startswith("/"), "path")
    second = at + len(path.encode()) + 1
    host = r.name(second + 4, r.number("I", second))
    end = base + len(path.encode()) + 1 + 4 + len(host.encode()) + 1
    count = r.number("Q", 56)
    layout, begin = (2, round_up(end, 16)) if wide else decide(r, count, round_up(end, 4), round_up(end, 16))
    demand(begin <= len(data), "the header is cut short")
    h = {"layout": layout, "big_endian": order == ">", "ranks": r.number("Q", 24), "rank": r.number("Q", 32), "path": path,
         "host": host, "begin": begin}
    if count == begin and r.number("Q", 48):
        count = r.number("Q", 48)
    elif count == begin and not has_entries(r, begin, count):
        count = 0
    h["count"] = count
    return r, h


def has_entries(r, at, num):
    try:
        data_at = 8
        for _ in range(num):
            e = entry(r, at, data_at)
            at, data_at = at + e["size"], data_at + e["data_bytes"]
        return True
    except Bad:
        return False


def decide(r, count, four, sixteen):
    """Layout 0 or 1, and where the entries begin."""
    def is_entry(at):
        return at + 40 <= len(r.data) and 40 <= r.number("Q", at) <= len(r.data) - at and r.number("Q", at + 24) == 8

    if four == sixteen:
        return 1, sixteen
    old = len(r.data) < sixteen or (not is_entry(sixteen) and (is_entry(four) or count == four))
    return (0, four) if old else (1, sixteen)


def entry(r, at, data_at):
    size, kind, itype, varid, ndims = (r.number(c, at + o) for c, o in (("Q", 0), ("i", 8), ("I", 12), ("I", 16), ("I", 20)))
    data_off, data_len = r.number("Q", at + 24), r.number("Q", at + 32)
    demand(kind in KINDS or kind > 0, "kind")
    demand(itype in TYPES, "type")
    n = max(kind, 1)
    numbers = (size - 40) // 8
    demand(at + size <= len(r.data) and size == 40 + 8 * numbers, "size")
    allowed = (n * ndims, 2 * n * ndims) if kind > 0 else (3 * ndims,)
    demand(numbers in allowed, "size")
    values = list(struct.unpack_from("%s%dq" % (r.order, numbers), r.data, at + 40))
    start, rest = values[:n * ndims], values[n * ndims:]
    count, stride = rest[:n * ndims], rest[n * ndims:]
    demand(min(start + count + [0]) >= 0, "a negative number")
    elements = 0
    for i in range(n):
        product = 1
        for c in count[i * ndims:(i + 1) * ndims]:
            product *= c
        elements += product
    name, width = TYPES[itype]
    width = width or (data_len // elements if elements else 8)
    demand(data_len == elements * width, "data_len")
    demand(data_off == data_at, "data_off")
    e = {"offset": at, "size": size, "kind": KINDS.get(kind, "varn"), "requests": n, "type": name, "variable": varid,
         "data_offset": data_off, "data_bytes": data_len, "start": start}
    if count or (kind < 0 or numbers == 2 * n * ndims):
        e["count"] = count
    if kind == -4:
        demand(min(stride + [1]) >= 1, "stride")
        e["stride"] = stride
    else:
        demand(not any(stride), "stride")
    return e


def channels(data):
    if data[BLOCK:BLOCK + 32] != data[:32]:
        return [data]
    num = 0
    while data[num * BLOCK:num * BLOCK + 32] == data[:32]:
        num += 1
    parts = []
    for c in range(num):
        blocks = range(c * BLOCK, len(data), num * BLOCK)
        parts.append(b"".join(data[b:b + BLOCK] for b in blocks))
    return parts


def show(data):
    r, h = header(data)
    print(json.dumps(h, sort_keys=True))
    at, data_at = h["begin"], 8
    for number in range(h["count"]):
        e = entry(r, at, data_at)
        e["entry"] = number
        print(json.dumps(e, sort_keys=True))
        at += e["size"]
        data_at += e["data_bytes"]


def main():
    status = 0
    for path in sys.argv[1:]:
        with open(path, "rb") as source:
            data = source.read()
        try:
            for part in channels(data):
                show(part)
        except Bad as bad:
            print("%s: %s" % (path, bad), file=sys.stderr)
            status = 4
    sys.exit(status)


if __name__ == "__main__":
    main()
