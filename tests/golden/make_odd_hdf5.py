#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-3.0-or-later
#
# make_odd_hdf5.py DIR: HDF5 files that HDF5 1.x reads and that a strict reader may take for damaged, and some that it refuses; made
# with h5py, some of them patched by the specification.
#
#   longname.h5   an attribute whose name has 5000 bytes
#   shared1.h5    a committed type, to which the dataset refers by a shared message of version 1, as HDF5 1.0 to 1.2 wrote it
#   element.h5    a layout of version 4 whose chunks have elements of another size than the type
#   empty.h5      null dataspaces, of a dataset and of an attribute
#   lists.h5      strings, lists, lists of strings in compounds and arrays, references to regions, compressed and not
#   unknown.h5    a message of an unknown type that forbids to open its object
#   members.h5    a compound with a member outside of it

import os
import struct
import sys

import h5py
import numpy as np

from lookup3 import lookup3


def seal(data, at, length):
    """The checksum behind length bytes."""
    data[at + length:at + length + 4] = struct.pack("<I", lookup3(bytes(data[at:at + length])))


def read(path):
    with open(path, "rb") as f:
        return bytearray(f.read())


def write(path, data):
    with open(path, "wb") as f:
        f.write(data)


def header2(data, at):
    """Of an object header of version 2: where its messages begin, and how many bytes they have."""
    flags = data[at + 5]
    begin = at + 6 + (16 if flags & 32 else 0) + (4 if flags & 16 else 0)
    width = 1 << (flags & 3)
    return begin + width, int.from_bytes(data[begin:begin + width], "little"), 2 if flags & 4 else 0


def messages2(data, at):
    begin, length, order = header2(data, at)
    pos = begin
    while pos + 4 + order <= begin + length:
        size = int.from_bytes(data[pos + 1:pos + 3], "little")
        yield data[pos], pos, pos + 4 + order, size
        pos += 4 + order + size


def seal2(data, at):
    begin, length, _ = header2(data, at)
    seal(data, at, begin - at + length)


def address(path, name):
    with h5py.File(path, "r") as f:
        return h5py.h5o.get_info(f[name].id).addr


def longname(path):
    with h5py.File(path, "w") as f:
        f.create_dataset("x", data=np.arange(4)).attrs["n" * 5000] = 7


def shared1(path):
    with h5py.File(path, "w", libver="earliest") as f:
        f["t"] = np.dtype("<i4")
        f.create_dataset("x", data=np.arange(6, dtype="<i4"), dtype=f["t"])
    old, kind = address(path, "x"), address(path, "t")
    data = read(path)
    num, = struct.unpack_from("<H", data, old + 2)
    size, = struct.unpack_from("<I", data, old + 8)
    pos, body, count = old + 16, b"", 0
    while count < num and pos < old + 16 + size:
        what, length, flags = struct.unpack_from("<HHB", data, pos)
        text = bytes(data[pos + 8:pos + 8 + length])
        if what == 3:
            assert flags & 2 and text[0] in (1, 2, 3), "the type is shared"
            text, flags = struct.pack("<BB6xQQ", 1, 0, 0, kind), 2
        if what != 0:
            body += struct.pack("<HHB3x", what, len(text), flags) + text
            count += 1
        pos += 8 + length
    new = len(data)
    data += struct.pack("<BxHII4x", 1, count, 1, len(body)) + body
    entry = data.find(struct.pack("<Q", old))
    while entry >= 0:
        data[entry:entry + 8] = struct.pack("<Q", new)
        entry = data.find(struct.pack("<Q", old), entry + 8)
    end = data.find(struct.pack("<Q", new), 24)
    assert 24 < end < 64, "the end of the file in the superblock"
    data[end:end + 8] = struct.pack("<Q", len(data))
    write(path, data)


def element(path):
    with h5py.File(path, "w", libver="latest") as f:
        f.create_dataset("x", data=np.arange(16, dtype="<i8"), chunks=(4,))
    at, data = address(path, "x"), read(path)
    for what, _, pos, _ in messages2(data, at):
        if what == 8:
            width, rank = data[pos + 4], data[pos + 3]
            assert data[pos] == 4 and data[pos + 4 + width * rank] == 8
            data[pos + 4 + width * rank] = 4
    seal2(data, at)
    write(path, data)


def empty(path):
    with h5py.File(path, "w") as f:
        f.create_dataset("x", data=h5py.Empty("f8")).attrs["a"] = h5py.Empty("i4")
        f.create_dataset("y", data=np.arange(3))


def lists(path):
    text, ints = h5py.string_dtype(), h5py.vlen_dtype(np.dtype("<i4"))
    words = ["word %d" % i * (i % 7) for i in range(600)]
    with h5py.File(path, "w") as f:
        f.create_dataset("texts", data=words, dtype=text)
        f.create_dataset("packed", data=words, dtype=text, chunks=(50,), compression="gzip", shuffle=True)
        f.create_dataset("grown", shape=(10, 3), maxshape=(None, 3), chunks=(4, 2), dtype=text)[3:7] = "x"
        rows = f.create_dataset("rows", shape=(20,), dtype=ints)
        for i in range(0, 20, 2):
            rows[i] = np.arange(i, dtype="<i4")
        pair = np.dtype([("n", "<i4"), ("t", text), ("more", text, (2,))])
        pairs = np.zeros(5, dtype=pair)
        for i in range(5):
            pairs[i]["t"] = "pair %d" % i
            pairs[i]["more"][:] = ["a", "b" * i]
        f.create_dataset("pairs", data=pairs)
        regions = f.create_dataset("regions", shape=(2,), dtype=h5py.regionref_dtype)
        regions[0] = f["rows"].regionref[2:5]
        f["texts"].attrs["about"] = ["some", "strings"]


def unknown(path):
    with h5py.File(path, "w", libver="latest") as f:
        f.create_dataset("x", data=np.arange(4, dtype="<i4")).attrs["a"] = 1
    at, data = address(path, "x"), read(path)
    for what, head, _, _ in messages2(data, at):
        if what == 12:
            data[head], data[head + 3] = 0x70, 0x80
    seal2(data, at)
    write(path, data)


def members(path):
    with h5py.File(path, "w", libver="earliest") as f:
        f.create_dataset("x", data=np.zeros(3, dtype=[("first", "<i4"), ("last", "<f8")]))
    data = read(path)
    at = data.find(b"last\0\0\0\0")
    assert data[at + 8] == 4
    data[at + 8] = 9
    write(path, data)


def main():
    for make in (longname, shared1, element, empty, lists, unknown, members):
        make(os.path.join(sys.argv[1], make.__name__ + ".h5"))


if __name__ == "__main__":
    main()
