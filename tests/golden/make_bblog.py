#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-3.0-or-later
"""make_bblog.py DIR FIRST LAST: random logs of PnetCDF's burst-buffer driver, and what a replay of them must give.

For each seed a directory DIR/SEED with base.nc (as a killed job leaves it), the logs of 1 to 4 ranks in any layout, order of bytes
and mode, and expected.nc. Puts overlap a lot. Written from docs/format/pnetcdf-burst-buffer.md and the netCDF classic format's
specification; the model goes element by element, in the order of ranks and entries, and shares nothing with Cistern's code."""

import os
import random
import struct
import sys

BLOCK = 8 << 20
# netCDF types: code, size, struct code, smallest, largest, default fill
BYTE, CHAR, SHORT, INT, FLOAT, DOUBLE, UBYTE, USHORT, UINT, INT64, UINT64 = range(1, 12)
FLT_MAX, DBL_MAX = struct.unpack(">f", b"\x7f\x7f\xff\xff")[0], sys.float_info.max
EXTERNAL = {
    BYTE: ("b", -2**7, 2**7 - 1, -127), CHAR: ("c", 0, 0, b"\0"), SHORT: ("h", -2**15, 2**15 - 1, -32767),
    INT: ("i", -2**31, 2**31 - 1, -2147483647), FLOAT: ("f", -FLT_MAX, FLT_MAX, 9.9692099683868690e+36),
    DOUBLE: ("d", -DBL_MAX, DBL_MAX, 9.9692099683868690e+36), UBYTE: ("B", 0, 2**8 - 1, 255),
    USHORT: ("H", 0, 2**16 - 1, 65535), UINT: ("I", 0, 2**32 - 1, 4294967295),
    INT64: ("q", -2**63, 2**63 - 1, -9223372036854775806), UINT64: ("Q", 0, 2**64 - 1, 18446744073709551614)}
# types in memory: code, struct code
TEXT, SCHAR, UCHAR, MSHORT, MUSHORT, MINT, MUINT, MFLOAT, MDOUBLE, LONGLONG, ULONGLONG, NATIVE, LONG = range(1, 14)
MEMORY = {TEXT: "c", SCHAR: "b", UCHAR: "B", MSHORT: "h", MUSHORT: "H", MINT: "i", MUINT: "I", MFLOAT: "f", MDOUBLE: "d",
          LONGLONG: "q", ULONGLONG: "Q"}
OWN = {BYTE: "b", CHAR: "c", SHORT: "h", INT: "i", FLOAT: "f", DOUBLE: "d", UBYTE: "B", USHORT: "H", UINT: "I", INT64: "q",
       UINT64: "Q"}


def pad(data, to=4):
    return data + bytes(-len(data) % to)


class Var:
    def __init__(self, name, xtype, dims, shape, record, fill):
        self.name, self.xtype, self.dims, self.shape, self.record, self.fill = name, xtype, dims, shape, record, fill
        self.code, self.least, self.most, default = EXTERNAL[xtype]
        self.fill_value = default if fill is None else fill
        self.width = struct.calcsize(self.code)
        self.part = self.width  # of the variable, or of one record of it
        for length in shape[1:] if record else shape:
            self.part *= length
        self.begin = 0


class File:
    """The netCDF file: its header, and the bytes as they should be."""

    def __init__(self, rnd):
        self.rnd = rnd
        self.version = rnd.choice((1, 2, 5))
        large = rnd.random() < 0.2
        self.dims = [0] + [rnd.randint(1, 300 if large else 9) for _ in range(4)]
        self.vars = [self.make_var(i) for i in range(rnd.randint(1, 6))]
        self.numrecs = rnd.choice((0, 0, 1, 3))
        self.place()
        head = self.header()
        size = self.record_begin + self.recsize * self.numrecs if self.recsize else self.record_begin
        body = bytes(rnd.randrange(256) for _ in range(min(997, size)))
        self.bytes = bytearray((body * (size // max(1, len(body)) + 1))[:size])
        self.bytes[:len(head)] = head
        self.bytes = self.bytes[:max(len(head), rnd.choice((size, size, rnd.randint(len(head), size))))]

    def make_var(self, i):
        rnd = self.rnd
        xtype = rnd.choice([BYTE, CHAR, SHORT, INT, FLOAT, DOUBLE] + ([UBYTE, USHORT, UINT, INT64, UINT64] if self.version == 5 else []))
        record = rnd.random() < 0.4
        dims = ([0] if record else []) + [rnd.randint(1, 4) for _ in range(rnd.randint(0, 3 - record))]
        fill = None
        if xtype != CHAR and rnd.random() < 0.3:
            fill = rnd.randint(0, 100)
        return Var("v%d" % i, xtype, dims, [self.dims[d] for d in dims], record, fill)

    def place(self):
        at = (len(self.header()) + self.rnd.choice((0, 512)) + 3) // 4 * 4
        for v in self.vars:
            if not v.record:
                v.begin, at = at, at + (v.part + 3) // 4 * 4
        records = [v for v in self.vars if v.record]
        self.record_begin, self.recsize = at, 0
        for v in records:
            v.begin = at + self.recsize
            self.recsize += v.part if len(records) == 1 else (v.part + 3) // 4 * 4

    def header(self):
        wide = self.version == 5
        def n(value):
            return struct.pack(">Q" if wide else ">I", value)
        def name(text):
            return n(len(text)) + pad(text.encode())
        def absent_or(tag, items):
            return struct.pack(">I", tag) + n(len(items)) + b"".join(items) if items else bytes(4) + n(0)
        dims = absent_or(10, [name("d%d" % i) + n(length) for i, length in enumerate(self.dims)])
        variables = []
        for v in getattr(self, "vars", []):
            fill = [name("_FillValue") + struct.pack(">I", v.xtype) + n(1) + pad(struct.pack(">" + v.code, v.fill))] if v.fill is not None else []
            variables.append(name(v.name) + n(len(v.dims)) + b"".join(n(d) for d in v.dims) + absent_or(12, fill) +
                             struct.pack(">I", v.xtype) + n((v.part + 3) // 4 * 4) + struct.pack(">I" if self.version == 1 else ">Q", v.begin))
        return b"CDF" + bytes([self.version]) + n(self.numrecs) + dims + absent_or(12, []) + absent_or(11, variables)

    def offset(self, v, index):
        at, rest = v.begin, list(index)
        if v.record:
            at += rest.pop(0) * self.recsize
        step = v.width
        for length, i in zip(reversed(v.shape[1:] if v.record else v.shape), reversed(rest)):
            at += i * step
            step *= length
        return at

    def put(self, v, index, code, value):
        at = self.offset(v, index)
        if at + v.width > len(self.bytes):
            self.bytes += bytes(at + v.width - len(self.bytes))
        self.bytes[at:at + v.width] = self.external(v, code, value)
        if v.record:
            self.numrecs = max(self.numrecs, index[0] + 1)

    def external(self, v, code, value):
        if code == v.code and v.code in "cfd":
            return struct.pack(">" + v.code, value)
        if v.xtype == BYTE and code == "B" and self.version < 5:
            return bytes([value])
        if not v.least <= value <= v.most:
            return struct.pack(">" + v.code, v.fill_value)
        return struct.pack(">" + v.code, value if v.code in "fd" else int(value))

    def finish(self):
        self.bytes[4:12 if self.version == 5 else 8] = struct.pack(">Q" if self.version == 5 else ">I", self.numrecs)
        return bytes(self.bytes)


def random_value(rnd, code):
    if code == "c":
        return bytes([rnd.randrange(32, 127)])
    if code in "fd":
        value = rnd.choice((rnd.uniform(-200, 200), rnd.uniform(-1e6, 1e6), float(rnd.randint(-2**31, 2**32)), 1e30, -1e300, 0.0))
        return struct.unpack("<f", struct.pack("<f", max(-3e38, min(3e38, value))))[0] if code == "f" else value
    bits = 8 * struct.calcsize("<" + code)
    most = min(2**(bits if code.isupper() else bits - 1) - 1, 2**52)
    least = 0 if code.isupper() else -most - 1
    return rnd.choice((rnd.randint(least, most), rnd.randint(max(least, -150), min(most, 150)), least, most))


class Log:
    """One rank's meta and data, as bytes."""

    def __init__(self, rnd, order, layout, rank, ranks, path):
        self.rnd, self.order, self.layout, self.rank = rnd, order, layout, rank
        self.entries, self.data, self.count = [], b"PnetCDF0", 0
        host = "node%d" % rank
        head = b"PnetCDF0CDF0" + bytes(4) + (b"\0\0\0\1" if order == ">" else bytes(4)) + bytes(4)
        head += struct.pack(order + "QQQQQ", ranks, rank, 0, 0, 0)
        head += struct.pack(order + ("Q" if layout == 2 else "I"), len(path)) + path.encode() + b"\0"
        head += struct.pack(order + "I", len(host)) + host.encode() + b"\0"
        base, to = ((72, 4), (72, 16), (80, 16))[layout]
        length = (base + len(path) + 1 + 4 + len(host) + 1 + to - 1) // to * to
        self.head = head + bytes(length - len(head))

    def memory(self, v):
        rnd = self.rnd
        if v.xtype == CHAR:
            return rnd.choice((TEXT, NATIVE)), "c"
        itype = rnd.choice((SCHAR, UCHAR, MSHORT, MUSHORT, MINT, MUINT, MFLOAT, MDOUBLE, LONGLONG, ULONGLONG, NATIVE, LONG))
        if itype == NATIVE:
            return itype, OWN[v.xtype]
        return itype, rnd.choice("iq") if itype == LONG else MEMORY[itype]

    def add(self, file, model):
        rnd, v = self.rnd, self.rnd.choice(file.vars)
        varid, ndims = file.vars.index(v), len(v.dims)
        kind = rnd.choice((-3, -3, -4, rnd.randint(1, 5)))
        itype, code = self.memory(v)
        stride = [rnd.randint(1, 3) for _ in v.dims] if kind == -4 else [1] * ndims
        requests = [self.request(v, stride, kind > 0) for _ in range(max(1, kind))]
        counts = kind < 0 or rnd.random() < 0.6
        if not counts:
            requests = [(start, [1] * ndims) for start, _ in requests]
        if kind < 0 and any(c == 0 for c in requests[0][1]):
            return
        values = []
        for start, count in requests:
            for index in indices(count):
                value = random_value(rnd, code)
                values.append(value)
                if model:
                    file.put(v, [s + i * d for s, i, d in zip(start, index, stride)], code, value)
        raw = struct.pack("%s%d%s" % (self.order, len(values), code), *values)
        numbers = [n for start, _ in requests for n in start] + ([n for _, count in requests for n in count] if counts else [])
        if kind < 0:
            numbers += stride if kind == -4 else [0] * ndims
        self.entries.append(struct.pack("%sQiIIIQQ%dq" % (self.order, len(numbers)), 40 + 8 * len(numbers), kind, itype, varid, ndims,
                                        len(self.data), len(raw), *numbers))
        self.data += raw
        self.count += 1

    def request(self, v, stride, may_be_empty):
        start, count = [], []
        for d, length in enumerate(v.shape):
            length = length or 6
            s = self.rnd.randrange(length)
            most = min((length - 1 - s) // stride[d] + 1, 12)
            start.append(s)
            count.append(self.rnd.randint(0 if may_be_empty and self.rnd.random() < 0.05 else 1, most))
        return start, count

    def meta(self):
        rnd, head = self.rnd, bytearray(self.head)
        struct.pack_into(self.order + "Q", head, 56, self.count if self.count or rnd.random() < 0.5 else len(head))
        if rnd.random() < 0.2 and self.order == "<" and head[56:64] != struct.pack("<Q", len(head)):  # defined anew, after a flush
            head[55 if self.layout == 2 else 51] = 3
        return bytes(head) + b"".join(self.entries)


def indices(count):
    if not count:
        yield []
        return
    for i in range(count[0]):
        for rest in indices(count[1:]):
            yield [i] + rest


def write(path, data):
    with open(path, "wb") as out:
        out.write(data)


def write_shared(path, parts):
    with open(path, "wb") as out:
        for channel, part in enumerate(parts):
            for block in range(0, len(part), BLOCK):
                out.seek((block // BLOCK * len(parts) + channel) * BLOCK)
                out.write(part[block:block + BLOCK])


def make(directory, seed):
    rnd = random.Random(seed)
    os.makedirs(directory)
    file = File(rnd)
    write(directory + "/base.nc", bytes(file.bytes))
    ranks, order, layout = rnd.randint(1, 4), rnd.choice("<<>"), rnd.randrange(3)
    path = "/lost/run" + "x" * rnd.randrange(20) + "/base.nc"
    logs = [Log(rnd, order, layout, rank, ranks, path) for rank in range(ranks)]
    for log in logs:
        for _ in range(rnd.choice((0, 5, 20, 60))):
            log.add(file, True)
    metas, datas = [log.meta() for log in logs], [log.data for log in logs]
    if ranks > 1 and rnd.random() < 0.2:
        write_shared(directory + "/base.nc_0_0.meta", metas)
        write_shared(directory + "/base.nc_0_0.data", datas)
    else:
        for log, meta, data in zip(logs, metas, datas):
            if rnd.random() < 0.3 and log.count:  # what an earlier flush, or an unfinished put, leaves behind
                meta += log.entries[0]
                data += b"older values"
            write("%s/base.nc_0_%d.meta" % (directory, log.rank), meta)
            write("%s/base.nc_0_%d.data" % (directory, log.rank), data)
    write(directory + "/expected.nc", file.finish())


def main():
    for seed in range(int(sys.argv[2]), int(sys.argv[3]) + 1):
        make("%s/%d" % (sys.argv[1], seed), seed)


if __name__ == "__main__":
    main()
