#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-3.0-or-later
"""blob_process.py SUBFILE HEADER DATA [big]: the parts of a process-centric subfile with values as on a small-endian machine, or with
"big" largest byte first, and integers of the header as in a file (docs/format/blob.md), from a variable-centric CDF-5 one. Knows nothing of our code; h5import makes an HDF5 file of the parts."""

import struct
import sys

BIG = sys.argv[4:] == ["big"]
ORDER = ">" if BIG else "<"
SIZES = {1: 1, 2: 1, 3: 2, 4: 4, 5: 4, 6: 8, 7: 1, 8: 2, 9: 4, 10: 8, 11: 8}


class Header:
    def __init__(self, data):
        self.data, self.at, self.out = data, 0, bytearray()
        assert data[:4] == b"CDF\5"
        self.take(4)
        self.numrecs = self.u64()
        self.dims = [self.dim() for _ in range(self.list())]
        self.atts = dict(self.att() for _ in range(self.list()))
        self.vars = [self.var() for _ in range(self.list())]

    def take(self, n):
        part = self.data[self.at:self.at + n]
        self.at += n
        self.out += part
        return part

    def u32(self):
        return struct.unpack(">I", self.take(4))[0]

    def u64(self):
        return struct.unpack(">Q", self.take(8))[0]

    def list(self):
        self.u32()
        return self.u64()

    def name(self):
        n = self.u64()
        return self.take((n + 3) // 4 * 4)[:n].decode()

    def dim(self):
        return self.name(), self.u64()

    def att(self):
        """Its values go out the other way round."""
        name, kind, num = self.name(), self.u32(), self.u64()
        size = SIZES[kind]
        values = self.data[self.at:self.at + num * size]
        self.out += swap(values, size) + bytes(-num * size % 4)
        self.at += (num * size + 3) // 4 * 4
        return name, (kind, values)

    def var(self):
        v = {"name": self.name()}
        v["dims"] = [self.u64() for _ in range(self.u64())]
        v["atts"] = dict(self.att() for _ in range(self.list()))
        v["type"], v["vsize"] = self.u32(), self.u64()
        v["begin"] = struct.unpack(">Q", self.data[self.at:self.at + 8])[0]
        self.at += 8
        self.out += bytes(8)  # begin says nothing there
        return v


def swap(raw, size):
    return b"".join(raw[i:i + size][::-1] for i in range(0, len(raw), size)) if size > 1 and not BIG else bytes(raw)


def main():
    with open(sys.argv[1], "rb") as f:
        data = f.read()
    h = Header(data)
    lengths = dict(h.dims)
    unlimited = [i for i, (_, n) in enumerate(h.dims) if n == 0]
    by_name = {v["name"]: v for v in h.vars}
    records = [v for v in h.vars if v["dims"] and v["dims"][0] in unlimited]
    recsize = sum(v["vsize"] for v in records)
    maps = struct.unpack(">i", h.atts["num_decompositions"][1])[0]
    blobs = lengths["nblobs"]

    def values(v, record, first, num):
        size = SIZES[v["type"]]
        off = v["begin"] + record * recsize + first * size
        return swap(data[off:off + num * size], size)

    def number(name, blob):
        return struct.unpack(ORDER + ("i" if by_name[name]["type"] == 4 else "q"), values(by_name[name], 0, blob, 1))[0]

    out = bytearray()
    for b in range(blobs):
        for m in range(1, maps + 1):
            d = "D%d." % m
            for what in "nreqs", "blob_start", "blob_count":
                out += values(by_name[d + what], 0, b, 1)
            for what in "offsets", "lengths":
                out += values(by_name[d + what], 0, b * lengths[d + "max_nreqs"], number(d + "nreqs", b))
        for v in h.vars[5 * maps:]:
            is_record = v in records
            if "decomposition_ID" in v["atts"]:
                d = "D%d." % struct.unpack(">i", v["atts"]["decomposition_ID"][1])[0]
                first, num = number(d + "blob_start", b), number(d + "blob_count", b)
            else:
                first, num = 0, 1 if b == 0 else 0
                for dim in v["dims"][1 if is_record else 0:]:
                    num *= h.dims[dim][1]
            for record in range(h.numrecs if is_record else 1):
                out += values(v, record, first, num)
    with open(sys.argv[2], "wb") as f:
        f.write(h.out)
    with open(sys.argv[3], "wb") as f:
        f.write(out)


main()
