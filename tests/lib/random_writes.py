#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-3.0-or-later
"""random_writes.py FIRST NUM DIR...: files FIRST.nc and so on, netCDF classic, written by netCDF-C's library at random:
definitions of all types, CDF-1, 2 and 5, one record variable or several, fill and no fill, values in pieces, appended and
skipped records, overwrites, new attributes, names, dimensions and variables that make the header grow. Between its openings a
file is gone to another process, and through another of the directories (mounts of one file system). What is read on the way, and
what the library says, goes to standard output: it is the same wherever the directories are."""

import ctypes
import ctypes.util
import os
import random
import sys
import zlib

CREATE = {1: 0, 2: 0x200, 5: 0x20}
WRITE, SHARE, NOFILL, UNLIMITED = 1, 0x800, 0x100, 0
SIZES = {1: 1, 2: 1, 3: 2, 4: 4, 5: 4, 6: 8, 7: 1, 8: 2, 9: 4, 10: 8, 11: 8}
MAX = ctypes.c_size_t * 8


class File:
    """One opening of a file: what the library's inquiries say is all that is known of it."""

    def __init__(self, lib, rng, said, dealt):
        # Not shared, the library writes whole blocks, others' values too.
        self.lib, self.rng, self.said, self.id = lib, rng, said, ctypes.c_int()
        self.share = SHARE if dealt or rng.random() < .3 else 0

    def call(self, name, *args, may_fail=False):
        r = getattr(self.lib, "nc_" + name)(self.id, *args)
        self.said.append("%s %d" % (name, r))
        if r != 0 and not may_fail:
            raise OSError("nc_%s: %d" % (name, r))
        return r

    def number(self, name):
        out = ctypes.c_int()
        self.call(name, ctypes.byref(out))
        return out.value

    def dim_len(self, dim):
        out = ctypes.c_size_t()
        self.call("inq_dimlen", dim, ctypes.byref(out))
        return out.value

    def var(self, var):
        kind, num, dims = ctypes.c_int(), ctypes.c_int(), (ctypes.c_int * 64)()
        self.call("inq_var", var, None, ctypes.byref(kind), ctypes.byref(num), dims, None)
        return kind.value, list(dims[:num.value])

    # ---- definitions

    def types(self):
        return list(SIZES) if self.version == 5 else [1, 2, 3, 4, 5, 6]

    def bytes(self, kind, num):
        if self.rng.random() < .2:
            return bytes(SIZES[kind]) * num
        if kind == 2:
            return bytes(self.rng.choice(b"abc xyz09") for _ in range(num))
        return self.rng.randbytes(SIZES[kind] * num)

    def attribute(self, var, name=None):
        kind, num = self.rng.choice(self.types()), self.rng.choice([0, 1, 1, 3, 9, 40])
        name = name or "a%d" % self.rng.randrange(6)
        self.call("put_att", var, name.encode(), kind, ctypes.c_size_t(num), self.bytes(kind, num), may_fail=True)

    def define_dims(self, num):
        for _ in range(num):
            n = self.number("inq_ndims")
            unlimited = self.number("inq_unlimdim") < 0 and self.rng.random() < .5
            length = UNLIMITED if unlimited else self.rng.choice([1, 1, 2, 3, 5, 17, 40, 300])
            name = "d" + "x" * self.rng.choice([0, 1, 2, 3, 30]) + str(n)
            self.call("def_dim", name.encode(), ctypes.c_size_t(length), None)

    def define_vars(self, num):
        rng, unlimited = self.rng, self.number("inq_unlimdim")
        for _ in range(num):
            fixed = [d for d in range(self.number("inq_ndims")) if d != unlimited]
            dims = [rng.choice(fixed) for _ in range(rng.choice([0, 1, 1, 2, 3]))] if fixed else []
            while self.elements(dims) > 40000:
                dims.pop()
            if unlimited >= 0 and (not self.one_record or not self.records) and rng.random() < .6:
                dims = [unlimited] + dims
                self.records = True
            n, kind = self.number("inq_nvars"), rng.choice(self.types())
            name = "v" + "y" * rng.choice([0, 1, 2, 3, 60]) + str(n)
            self.call("def_var", name.encode(), kind, len(dims), (ctypes.c_int * 8)(*dims), None)
            if rng.random() < .3:
                self.call("put_att", n, b"_FillValue", kind, ctypes.c_size_t(1), self.bytes(kind, 1), may_fail=True)
            for _ in range(rng.choice([0, 0, 1, 4])):
                self.attribute(n)

    def elements(self, dims):
        num = 1
        for d in dims:
            num *= max(1, self.dim_len(d))
        return num

    def end_define(self):
        rng = self.rng
        if rng.random() < .6:
            self.call("enddef")
        else:
            args = [rng.choice([0, 100, 2000]), rng.choice([4, 8, 512]), rng.choice([0, 64]), rng.choice([4, 16, 256])]
            self.call("_enddef", *[ctypes.c_size_t(n) for n in args])

    def create(self, path):
        rng = self.rng
        self.version = rng.choice([1, 2, 5])
        self.one_record, self.records = rng.random() < .3, False
        self.lib.nc_create(path.encode(), CREATE[self.version] | self.share, ctypes.byref(self.id))
        self.mode()
        self.define_dims(rng.randint(0, 6))
        self.define_vars(rng.randint(0, 8))
        for _ in range(rng.choice([0, 1, 5])):
            self.attribute(-1)
        self.end_define()

    def open(self, path):
        r = self.lib.nc_open(path.encode(), WRITE | self.share, ctypes.byref(self.id))
        self.said.append("open %d" % r)
        if r != 0:
            raise OSError("nc_open %s: %d" % (path, r))
        self.version = {1: 1, 2: 2, 5: 5}[self.number("inq_format")]
        unlimited = self.number("inq_unlimdim")
        self.records = any(unlimited in self.var(v)[1] for v in range(self.number("inq_nvars")))
        self.one_record = self.records and self.rng.random() < .3
        self.mode()

    def mode(self):
        self.call("set_fill", self.rng.choice([0, NOFILL]), None)

    # ---- what programs do

    def piece(self, dims, beyond):
        start, count, unlimited = [], [], self.number("inq_unlimdim")
        for d in dims:
            length = self.dim_len(d)
            if d == unlimited:
                length += self.rng.choice([0, 1, 1, 2, 5]) if beyond else 0
            if length == 0:
                return None, None
            at = 0 if self.rng.random() < .4 else self.rng.randrange(length)
            start.append(at)
            count.append(length - at if self.rng.random() < .5 else self.rng.randint(1, length - at))
        return start, count

    def any_piece(self, beyond):
        num = self.number("inq_nvars")
        if num == 0:
            return None
        var = self.rng.randrange(num)
        kind, dims = self.var(var)
        start, count = self.piece(dims, beyond)
        if start is None:
            return None
        total = 1
        for n in count:
            total *= n
        return var, kind, MAX(*start), MAX(*count), total

    def put(self):
        p = self.any_piece(True)
        if p:
            self.call("put_vara", p[0], p[2], p[3], self.bytes(p[1], p[4]))

    def deal(self, which, num):
        """This process's strip of each variable, as those of a parallel program share them."""
        for var in range(self.number("inq_nvars")):
            kind, dims = self.var(var)
            lengths = [max(self.dim_len(d), 2) if d == self.number("inq_unlimdim") else self.dim_len(d) for d in dims]
            if not lengths:
                continue
            cut = lengths.index(max(lengths))
            start, count, total = [0] * len(dims), lengths[:], 1
            start[cut] = lengths[cut] * which // num
            count[cut] = lengths[cut] * (which + 1) // num - start[cut]
            for n in count:
                total *= n
            if total:
                self.call("put_vara", var, MAX(*start), MAX(*count), self.bytes(kind, total))

    def put_stepping(self):
        p = self.any_piece(False)
        if p:
            steps = (ctypes.c_ssize_t * 8)(*[self.rng.randint(1, 3) for _ in range(8)])
            count = MAX(*[(n + s - 1) // s for n, s in zip(p[3], steps)])
            self.call("put_vars", p[0], p[2], count, steps, self.bytes(p[1], p[4]))

    def get(self):
        p = self.any_piece(False)
        if p:
            out = ctypes.create_string_buffer(p[4] * SIZES[p[1]])
            self.call("get_vara", p[0], p[2], p[3], out)
            self.said.append("%08x" % zlib.crc32(out.raw))

    def redefine(self):
        self.call("redef")
        for _ in range(self.rng.randint(0, 3)):
            self.rng.choice([lambda: self.define_dims(1), lambda: self.define_vars(1), self.rename,
                             lambda: self.attribute(-1)])()
        if self.number("inq_nvars") > 0:
            self.attribute(self.rng.randrange(self.number("inq_nvars")))
        self.end_define()

    def rename(self):
        num = self.number("inq_nvars")
        if num > 0:
            name = "r" + "z" * self.rng.choice([0, 3, 90]) + str(self.rng.randrange(10**6))
            self.call("rename_var", self.rng.randrange(num), name.encode(), may_fail=True)

    def work(self):
        actions = [self.put] * 12 + [self.put_stepping] * 3 + [self.get] * 4 + [self.redefine] * 2
        actions += [self.rename, lambda: self.attribute(-1), lambda: self.call("sync"), self.mode]
        for _ in range(self.rng.randint(1, 14)):
            self.rng.choice(actions)()

    def close(self):
        self.call("close")


def opening(lib, rng, path, which, num, dealt):
    """In a process of its own; True: all went well."""
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        said = []
        try:
            f = File(lib, rng, said, dealt)
            (f.open if which else f.create)(path)
            if dealt:
                f.deal(which, num)
            if not dealt or rng.random() < .5:
                f.work()
            f.close()
        except OSError as e:
            print(path, e, file=sys.stderr)
            os._exit(1)
        print("\n".join(said), flush=True)
        os._exit(0)
    return os.waitpid(child, 0)[1] == 0


def main():
    first, num, dirs = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:]
    lib = ctypes.CDLL(ctypes.util.find_library("netcdf"))
    for seed in range(first, first + num):
        rng = random.Random(seed)
        print("file", seed)
        openings, dealt = rng.choice([1, 2, 2, 3, 5]), rng.random() < .5
        for i in range(openings):
            where = random.Random(seed * 100 + i).choice(dirs)
            if not opening(lib, random.Random(seed * 1000 + i), "%s/%d.nc" % (where, seed), i, openings, dealt):
                sys.exit("file %d, opening %d" % (seed, i))


main()
