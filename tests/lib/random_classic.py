#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-3.0-or-later
"""random_classic.py SEED FILE: a netCDF classic file of random definitions and values, written by the format's
specification and by nothing of Cistern. Names, shapes, types, attributes, fill values, numbers of records and the version
(CDF-1, 2, 5) are random; NaN and infinities occur; names that mean something elsewhere, too."""

import random
import struct
import sys

TYPES = {1: (1, "b"), 2: (1, "c"), 3: (2, "h"), 4: (4, "i"), 5: (4, "f"), 6: (8, "d"),
         7: (1, "B"), 8: (2, "H"), 9: (4, "I"), 10: (8, "q"), 11: (8, "Q")}
ODD_NAMES = ["a.b", "x+y", "T@850", "größe", "名前", "n0-1", "name", "class", "group", "_x", "A b", "data_1", "e(1)"]


def pad(data, fill=b"\0"):
    return data + fill * (-len(data) % 4)


class Writer:
    def __init__(self, seed):
        self.rng = random.Random(seed)
        self.version = self.rng.choice([1, 2, 5])
        self.types = list(TYPES) if self.version == 5 else list(TYPES)[:6]
        self.used = set()

    def count(self, n):
        return struct.pack(">q" if self.version == 5 else ">i", n)

    def text(self, name):
        raw = name.encode()
        return self.count(len(raw)) + pad(raw)

    def name(self, stem):
        while True:
            name = self.rng.choice(ODD_NAMES + [stem] * 12)
            if name in self.used or name == stem:
                name = "%s%d" % (stem, len(self.used))
            if name not in self.used:
                self.used.add(name)
                return name

    def value(self, kind):
        size, code = TYPES[kind]
        if code in "fd":
            special = [float("nan"), float("inf"), -float("inf"), -0.0, 9.969209968386869e36, 1e-30]
            v = self.rng.choice(special) if self.rng.random() < 0.1 else self.rng.uniform(-1e6, 1e6)
            return struct.pack(">" + code, v)
        if code == "c":
            return bytes([self.rng.choice(b"abcxyz 019\0")])
        return self.rng.getrandbits(8 * size).to_bytes(size, "big")

    def values(self, kind, num):
        if self.rng.random() < 0.3:
            return self.value(kind) * num
        return b"".join(self.value(kind) for _ in range(num))

    def attribute(self, name, kind, num):
        return self.text(name) + struct.pack(">i", kind) + self.count(num) + pad(self.values(kind, num))

    def attributes(self, fill_kind=None):
        atts, num = b"", self.rng.choice([0, 0, 1, 2, 12])
        if fill_kind and self.rng.random() < 0.4:
            atts, num = self.attribute("_FillValue", fill_kind, 1), num + 1
        names = set()
        while len(names) < num - (1 if atts and not names and b"_FillValue" in atts else 0):
            names.add("att%d" % len(names) if self.rng.random() < 0.7 else ODD_NAMES[len(names) % len(ODD_NAMES)])
        for name in sorted(names):
            atts += self.attribute(name, self.rng.choice(self.types), self.rng.choice([0, 1, 1, 2, 7]))
        total = len(names) + (1 if b"_FillValue" in atts else 0)
        return struct.pack(">i", 12) + self.count(total) + atts if total else struct.pack(">i", 0) + self.count(0)

    def define(self):
        rng = self.rng
        self.dims = [(self.name("dim"), rng.choice([1, 1, 2, 3, 5, 17, 40])) for _ in range(rng.randint(0, 6))]
        self.record = rng.randrange(len(self.dims)) if self.dims and rng.random() < 0.7 else None
        if self.record is not None:
            self.dims[self.record] = (self.dims[self.record][0], 0)
        self.records = rng.choice([0, 1, 2, 9, 70]) if self.record is not None else 0
        self.vars = []
        taken = set()
        for _ in range(rng.randint(0, 8)):
            fixed = [i for i in range(len(self.dims)) if i != self.record]
            dims = [rng.choice(fixed) for _ in range(rng.choice([0, 1, 1, 2, 3]))] if fixed else []
            if self.record is not None and rng.random() < 0.5:
                dims = [self.record] + dims
            name = self.name("var")
            if self.dims and rng.random() < 0.4:  # a coordinate variable, or one that only has its name
                dim = rng.randrange(len(self.dims))
                if self.dims[dim][0] not in taken:
                    name = self.dims[dim][0]
                    if rng.random() < 0.7:
                        dims = [dim] + [d for d in dims if d != self.record][:rng.choice([0, 0, 1])]
            taken.add(name)
            self.vars.append((name, dims, rng.choice(self.types)))

    def bytes_of(self, dims, kind):
        num = TYPES[kind][0]
        for dim in dims:
            num *= self.dims[dim][1] if dim != self.record else 1
        return num

    def is_record(self, dims):
        return bool(dims) and dims[0] == self.record and self.record is not None

    def header(self, atts, global_atts, begins):
        out = b"CDF" + bytes([self.version]) + self.count(self.records)
        out += struct.pack(">i", 10 if self.dims else 0) + self.count(len(self.dims))
        for name, length in self.dims:
            out += self.text(name) + self.count(length)
        out += global_atts + struct.pack(">i", 11 if self.vars else 0) + self.count(len(self.vars))
        for (name, dims, kind), var_atts, begin in zip(self.vars, atts, begins):
            size = self.bytes_of(dims, kind)
            out += self.text(name) + self.count(len(dims)) + b"".join(self.count(d) for d in dims) + var_atts
            out += struct.pack(">i", kind) + self.count(size + -size % 4)
            out += struct.pack(">i" if self.version == 1 else ">q", begin)
        return out

    def write(self, path):
        self.define()
        atts = [self.attributes(kind) for _, _, kind in self.vars]
        global_atts = self.attributes()
        at = len(self.header(atts, global_atts, [0] * len(self.vars)))
        at += self.rng.choice([0, 0, 4, 512])
        begins = [0] * len(self.vars)
        order = [i for i, v in enumerate(self.vars) if not self.is_record(v[1])]
        inside = [i for i, v in enumerate(self.vars) if self.is_record(v[1])]
        for i in order + inside:
            begins[i] = at
            size = self.bytes_of(self.vars[i][1], self.vars[i][2])
            at += size if len(inside) == 1 and i in inside else size + -size % 4
        with open(path, "wb") as out:
            out.write(self.header(atts, global_atts, begins))
            for i in order:
                out.seek(begins[i])
                size = self.bytes_of(self.vars[i][1], self.vars[i][2])
                out.write(pad(self.values(self.vars[i][2], size // TYPES[self.vars[i][2]][0])))
            if inside:
                out.seek(begins[inside[0]])
            for _ in range(self.records):
                for i in inside:
                    size = self.bytes_of(self.vars[i][1], self.vars[i][2])
                    data = self.values(self.vars[i][2], size // TYPES[self.vars[i][2]][0])
                    out.write(data if len(inside) == 1 else pad(data))


Writer(int(sys.argv[1])).write(sys.argv[2])
