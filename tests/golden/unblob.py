#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-3.0-or-later
"""unblob.py BASE CANONICAL: compares the subfiles BASE.0000, BASE.0001, ... with the canonical file, element by element.

Written from E3SM-IO's description of its blob layouts, from docs/format/blob.md (the table of the process-centric one, whose
HDF5 files h5dump takes apart) and from the netCDF classic format specification: it shares nothing with Cistern. Each decomposed variable is put together again by the maps (D*.offsets, D*.lengths, blob after
blob), each other one is taken from every subfile. Prints what it has seen as JSON; exit status 1 and the first difference
where they differ."""

import json
import os
import struct
import subprocess
import sys
import tempfile

SIZES = {1: 1, 2: 1, 3: 2, 4: 4, 5: 4, 6: 8, 7: 1, 8: 2, 9: 4, 10: 8, 11: 8}
CODES = {1: "b", 3: "h", 4: "i", 5: "f", 6: "d", 7: "B", 8: "H", 9: "I", 10: "q", 11: "Q"}


class Classic:
    """A CDF-5 file, in memory."""

    def __init__(self, path):
        with open(path, "rb") as file:
            self.parse(path, file.read())

    def parse(self, path, data):
        self.data, self.path, self.at = data, path, 4
        assert self.data[:4] == b"CDF\5", path + ": no CDF-5 file"
        self.num_records = self.count()
        self.dims = self.listing(0xA, lambda: (self.name(), self.count()))
        self.atts = dict(self.attributes())
        self.vars = dict(self.listing(0xB, self.variable))
        records = [v for v in self.vars.values() if v["record"]]
        self.recsize = sum((v["bytes"] + 3) // 4 * 4 for v in records)
        if len(records) == 1:
            self.recsize = records[0]["bytes"]

    def take(self, length):
        self.at += length
        return self.data[self.at - length:self.at]

    def u32(self):
        return struct.unpack(">I", self.take(4))[0]

    def count(self):
        return struct.unpack(">Q", self.take(8))[0]

    def name(self):
        length = self.count()
        return self.take((length + 3) // 4 * 4)[:length].decode()

    def listing(self, tag, each):
        found, num = self.u32(), self.count()
        assert found == tag or (found == 0 and num == 0), "%s: list at %d" % (self.path, self.at)
        return [each() for _ in range(num)]

    def attribute(self):
        name, kind, num = self.name(), self.u32(), self.count()
        raw = self.take((num * SIZES[kind] + 3) // 4 * 4)[:num * SIZES[kind]]
        return name, raw.decode("latin-1") if kind == 2 else list(struct.unpack(">%d%s" % (num, CODES[kind]), raw))

    def attributes(self):
        return self.listing(0xC, self.attribute)

    def variable(self):
        name = self.name()
        dims = [self.count() for _ in range(self.count())]
        v = {"dims": dims, "atts": dict(self.attributes()), "type": self.u32(), "vsize": self.count(), "begin": self.count()}
        v["record"] = bool(dims) and self.dims[dims[0]][1] == 0
        v["elements"] = 1
        for dim in dims[v["record"]:]:
            v["elements"] *= self.dims[dim][1]
        v["bytes"] = v["elements"] * SIZES[v["type"]]
        return name, v

    def raw(self, v, record=0):
        """The bytes of a variable, or of one record of it; what lies behind the end of the file is zeros."""
        at = v["begin"] + (record * self.recsize if v["record"] else 0)
        return self.data[at:at + v["bytes"]].ljust(v["bytes"], b"\0")

    def values(self, name):
        v = self.vars[name]
        return struct.unpack(">%d%s" % (v["elements"], CODES[v["type"]]), self.raw(v))

    def dim(self, name):
        return dict(self.dims)[name]


class Process(Classic):
    """An HDF5 subfile with header_blob, data_blob and table_blob."""

    def __init__(self, path):
        self.parse(path, self.part(path, "header_blob"))
        self.blobs, table = self.part(path, "data_blob"), self.part(path, "table_blob")
        magic, version, self.order, blobs, num_vars, length, num = struct.unpack_from("<4sHHIIQQ", table)
        assert (magic, version, num_vars) == (b"CBLT", 1, len(self.vars)), path + ": table_blob"
        assert (length, len(table)) == (len(self.blobs), 32 + 40 * num + 4), path + ": lengths in table_blob"
        assert blobs == self.dim("nblobs"), path + ": blobs in table_blob"
        self.places = {}
        for i in range(num):
            blob, var, record, records, off, size = struct.unpack_from("<IIQQQQ", table, 32 + 40 * i)
            for k in range(records):
                self.places[blob, var, record + k] = off + k * (size // records), size // records

    @staticmethod
    def part(path, name):
        with tempfile.TemporaryDirectory() as work:
            out = os.path.join(work, name)
            subprocess.run(["h5dump", "-d", name, "-b", "LE", "-o", out, path], check=True, stdout=subprocess.DEVNULL)
            with open(out, "rb") as file:
                return file.read()

    def raw(self, v, record=0):
        """Its blobs' parts as they would lie in a variable-centric file."""
        size, out = SIZES[v["type"]], b""
        var = next(i for i, each in enumerate(self.vars.values()) if each is v)  # others may look the same
        dims = [self.dims[dim] for dim in v["dims"]]
        rows = dims[1][1] if len(dims) == 2 and dims[0][0] == "nblobs" else 0
        for blob in range(self.dim("nblobs")):
            off, length = self.places.get((blob, var, record), (0, 0))
            part = self.blobs[off:off + length]
            if self.order == 1:
                part = b"".join(part[i:i + size][::-1] for i in range(0, length, size))
            out += part.ljust(rows * size, b"\0")
        assert len(out) == v["bytes"], "%s: variable %d, record %d has %d bytes" % (self.path, var, record, len(out))
        return out


def open_subfile(path):
    with open(path, "rb") as file:
        return (Process if file.read(4) == b"\x89HDF" else Classic)(path)


def requests(sub, number):
    """Of each blob of map number: where its elements begin in the subfile, and its (offset, length) pairs."""
    prefix, rows = "D%d." % number, sub.dim("D%d.max_nreqs" % number)
    offsets, lengths = sub.values(prefix + "offsets"), sub.values(prefix + "lengths")
    result = []
    for blob, (nreqs, start, count) in enumerate(zip(sub.values(prefix + "nreqs"), sub.values(prefix + "blob_start"),
                                                     sub.values(prefix + "blob_count"))):
        pairs = list(zip(offsets[blob * rows:blob * rows + nreqs], lengths[blob * rows:blob * rows + nreqs]))
        assert sum(length for _, length in pairs) == count, "%s: %sblob_count[%d]" % (sub.path, prefix, blob)
        result.append((start, pairs))
    return result


def scatter(sub, v, record, maps, to):
    """The elements of one subfile go to their places."""
    size, raw = SIZES[v["type"]], sub.raw(v, record)
    for start, pairs in maps[v["atts"]["decomposition_ID"][0]]:
        for off, length in pairs:
            to[off * size:(off + length) * size] = raw[start * size:(start + length) * size]
            start += length


def put_together(subs, maps, name, want, record):
    if "decomposition_ID" not in subs[0].vars[name]["atts"]:
        copies = {sub.raw(sub.vars[name], record) for sub in subs}
        assert len(copies) == 1, name + ": subfiles differ"
        return copies.pop()
    to = bytearray(want["bytes"])
    for sub, its in zip(subs, maps):
        scatter(sub, sub.vars[name], record, its, to)
    return bytes(to)


def main(base, canonical):
    whole = Classic(canonical)
    first = open_subfile(base + ".0000")
    subs = [first] + [open_subfile("%s.%04d" % (base, i)) for i in range(1, first.atts["num_subfiles"][0])]
    num_maps = first.atts["num_decompositions"][0]
    maps = [{i: requests(sub, i) for i in range(1, num_maps + 1)} for sub in subs]
    assert sum(sub.dim("nblobs") for sub in subs) == first.atts["global_nprocs"][0], "global_nprocs"
    aux = ["D%d.%s" % (i + 1, what) for i in range(num_maps)
           for what in ("nreqs", "blob_start", "blob_count", "offsets", "lengths")]
    decomposed = 0
    for sub in subs:
        assert list(sub.vars) == aux + list(whole.vars), sub.path + ": variables"
        assert sub.num_records == whole.num_records, sub.path + ": records"
        assert sub.dims[:len(whole.dims)] == whole.dims, sub.path + ": dimensions"
    for name, want in whole.vars.items():
        got = first.vars[name]
        decomposed += "decomposition_ID" in got["atts"]
        assert got["atts"].get("global_dimids", got["dims"]) == want["dims"], name + ": dimensions"
        for record in range(whole.num_records if want["record"] else 1):
            if put_together(subs, maps, name, want, record) != whole.raw(want, record):
                sys.exit("%s, record %d: differs" % (name, record))
    print(json.dumps({"subfiles": len(subs), "blobs": first.atts["global_nprocs"][0], "maps": num_maps,
                      "decomposed": decomposed, "variables": len(whole.vars), "records": whole.num_records}))


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(*sys.argv[1:])
