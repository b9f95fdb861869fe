#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-3.0-or-later
"""read_log.py [--checkpoint | --marks] STORE: prints the records of a store's journal (or of its newest checkpoint) as JSON lines.
With --marks also its sync marks, in their places.

Written from docs/format/store.md alone, as a second opinion on what the bytes mean: it shares nothing with Cistern's own
decoder. Names, targets, keys and values are printed in hexadecimal. The last line says how the journal ended. Exit status 0:
whole, or with a torn tail; 4: damaged."""

import json
import os
import re
import struct
import sys

HEADER_BLOCK = 4096
LIMIT = 2**63 - 1
M64 = 2**64 - 1


class Bad(Exception):
    """Not valid."""


class Newer(Bad):
    """Whole, but not for who knows this version alone."""


# ---- CRC-32C

def crc_table():
    table = []
    for byte in range(256):
        for _ in range(8):
            byte = byte >> 1 ^ (0x82F63B78 if byte & 1 else 0)
        table.append(byte)
    return table


TABLE = crc_table()


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc = TABLE[(crc ^ byte) & 0xFF] ^ crc >> 8
    return crc ^ 0xFFFFFFFF


def check_crc(data, at, seed=b""):
    stored = struct.unpack_from("<I", data, at)[0]
    if crc32c(seed + data[:at] + bytes(4) + data[at + 4:]) != stored:
        raise Bad("CRC")


# ---- fields

class Body:
    def __init__(self, data):
        self.data, self.at = data, 0

    def take(self, length):
        if length > len(self.data) - self.at:
            raise Bad("short")
        self.at += length
        return self.data[self.at - length:self.at]

    def u16(self):
        return int.from_bytes(self.take(2), "little")

    def u32(self):
        return int.from_bytes(self.take(4), "little")

    def u64(self):
        return int.from_bytes(self.take(8), "little")

    def i64(self):
        return int.from_bytes(self.take(8), "little", signed=True)

    def blob(self):
        return self.take(self.u16())

    def str(self):
        text = self.blob()
        if 0 in text:
            raise Bad("NUL")
        return text

    def long(self):
        return self.take(self.u32())

    def varint(self):
        value = 0
        for i in range(10):
            byte = self.take(1)[0]
            if i == 9 and byte > 1:
                break
            value |= (byte & 0x7F) << 7 * i
            if byte < 0x80:
                return value
        raise Bad("varint")

    def svarint(self):
        value = self.varint()
        return value >> 1 ^ -(value & 1)

    def ranges(self, with_crc=False):
        num, end, result = self.u32(), 0, []
        if num > 16384:
            raise Bad("ranges")
        for _ in range(num):
            off = (end + self.svarint()) & M64
            length = self.varint()
            result.append([off, length, self.u32() if with_crc else 0])
            end = off + length & M64
        return result

    def ranges_crc(self):
        return self.ranges(with_crc=True)

    def timed_pieces(self):
        return self.pieces(timed=True)

    def pieces(self, timed=False):
        num, end, segment, segment_end, time, result = self.u32(), 0, 0, 0, 0, []
        if num > 16384:
            raise Bad("pieces")
        for _ in range(num):
            off, length, kind = (end + self.svarint()) & M64, self.varint(), self.take(1)[0]
            end = off + length & M64
            time = time + self.svarint() & M64 if timed else 0
            piece = [off, length, kind & 0x7F, 0, 0, kind >> 7, 0, time]
            if kind & 0x7F != 1:
                segment += self.svarint()
                piece[3:5] = segment, (segment_end + self.svarint()) & M64
                segment_end = piece[4] + length & M64
                piece[6] = self.u32() if kind >> 7 else 0
            result.append(piece)
        return result

    def tagged(self):
        """(tag, required, Body) of each tagged field, up to the padding."""
        last = 0
        while self.at < len(self.data) and self.data[self.at]:
            tag, flags = self.varint(), self.take(1)[0]
            if not last < tag <= 65535:
                raise Bad("tag")
            if flags > 1:
                raise Newer("flags of field %d" % tag)
            yield tag, bool(flags), Body(self.take(self.varint()))
            last = tag

    def used_up(self):
        if self.at < len(self.data):
            raise Bad("field too long")

    def finish(self):
        rest = self.data[self.at:]
        if len(rest) > 7 or any(rest):
            raise Bad("padding")


# Type: (name, flags, "kind field, ...")
TYPES = {
    1: ("mount", 0, "blob key, blob value"),
    2: ("unmount", 0, ""),
    3: ("sync", 0, "u64 upto"),
    4: ("create", 0, "u64 parent, str name, u32 mode, u32 uid, u32 gid, u32 segment, str target"),
    5: ("adopt", 0, "u64 parent, str name, u32 mode, u32 uid, u32 gid, u32 nlink, u64 size, i64 atime_ns, i64 mtime_ns, "
                    "i64 ctime_ns, u64 backing_dev, u64 backing_ino, str target"),
    6: ("link", 0, "u64 parent, str name"),
    7: ("unlink", 0, "u64 parent, str name"),
    8: ("rename", 1, "u64 from_parent, str from_name, u64 parent, str name, u64 other_ino"),
    9: ("free", 0, ""),
    10: ("forget", 0, "u64 parent, str name"),
    11: ("setattr", 0, "u32 mask, u32 mode, u32 uid, u32 gid, i64 atime_ns, i64 mtime_ns, i64 ctime_ns"),
    12: ("setxattr", 64, "blob key, blob value"),
    13: ("removexattr", 0, "blob key"),
    14: ("truncate", 0, "u64 size"),
    15: ("write", 512, "u64 off, u64 len, u32 segment, u64 segment_off, u32 payload_crc"),
    16: ("extents", 512, "u32 segment, u64 segment_off, ranges_crc ranges"),
    17: ("punch", 2 | 512, "u64 off, u64 len"),
    18: ("private", 0, "u32 segment"),
    19: ("seal", 0, "u32 segment, u64 size, i64 mtime_ns, ranges ranges"),
    20: ("through", 0, "u64 off, u64 len"),
    21: ("placed", 4 | 8, "u64 parent, str name, u64 from_parent, str from_name, u64 backing_dev, u64 backing_ino"),
    22: ("removed", 0, "u64 parent, str name"),
    23: ("drained", 16 | 32 | 512, "u64 upto, u64 size, i64 mtime_ns, u64 backing_dev, u64 backing_ino"),
    24: ("state", 0, "u64 off, u64 len, blob key, long value"),
    25: ("state-end", 0, "u64 upto, u64 count"),
    26: ("share", 0, ""),
    27: ("foreign", 0, "u64 parent, str name, u32 mode, u32 uid, u32 gid, u64 size"),
    28: ("committed", 0, "u64 upto, u64 stamp"),
    29: ("share-put", 512, "u64 stamp, u64 base, pieces pieces"),
    30: ("share-cut", 0, "u64 size, u64 stamp"),
    31: ("share-drop", 512, "u64 stamp"),
    32: ("share-lost", 0, ""),
}

# Types that may say who wrote.
MAY_HAVE_WRITER = {15, 16}

# These may have a stamp behind the body (flag 128) and be a change of the tree (256).
MAY_HAVE_STAMP = {4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 21, 22, 23}


# ---- what must hold

def need(condition, what):
    if not condition:
        raise Bad(what)


def check_name(rec, name, parent):
    text = rec[name]
    need(len(text) <= 255 and b"/" not in text and text != b"..", name)
    need(text != b"." or rec[parent] == 0, name)
    if name == "from_name" and rec["type"] == "placed":
        need(bool(text) == bool(rec["flags"] & 4), name)
    elif rec["type"] not in ("create", "adopt", "foreign"):
        need(text, name)


def check_piece(off, length, kind, segment, segment_off, whole, *_):
    need(0 < length < 2**32 and off + length <= LIMIT and kind in (0, 1), "piece")
    need(not whole if kind == 1 else 0 < segment < 2**32 and segment_off + length <= LIMIT, "piece")


def check_fields(rec):
    kind = rec["type"]
    for name, parent in (("name", "parent"), ("from_name", "from_parent")):
        if name in rec:
            check_name(rec, name, parent)
    need(len(rec.get("target", b"")) <= 4095, "target")
    if kind == "mount":
        need(len(rec["key"]) == 16, "key")
    if kind in ("setxattr", "removexattr"):
        need(1 <= len(rec["key"]) <= 255 and 0 not in rec["key"], "key")
    if kind == "state":
        need(rec["key"] and rec["len"] <= 2**26 and rec["off"] + len(rec["value"]) <= rec["len"], "value")
    if kind in ("write", "punch", "through"):
        need(rec["len"] and rec["off"] + rec["len"] <= LIMIT, "range")
    if kind == "write":
        need(rec["len"] < 2**32 and rec["segment_off"] + rec["len"] <= LIMIT, "payload")
    if kind in ("write", "extents", "private", "seal"):
        need(rec["segment"], "segment")
    need(rec.get("size", 0) <= LIMIT, "size")
    need(1 <= rec.get("mask", 1) <= 63, "mask")
    for off, length, _ in rec.get("ranges", ()):
        need(0 < length < 2**32 and off + length <= LIMIT, "range")
    if kind in ("committed", "share-put", "share-cut", "share-drop") or rec["flags"] & (128 | 256):
        need(rec.get("stamp"), "stamp")
    if kind == "share-put":
        need(rec["base"] < rec["stamp"] and rec["pieces"], "base or pieces")
        for piece in rec["pieces"]:
            check_piece(*piece)
    if kind == "extents":
        need(rec["ranges"], "ranges")
        need(rec["segment_off"] + sum(entry[1] for entry in rec["ranges"]) <= LIMIT, "payload")


# ---- trailers

def read_request(body, _):
    return {"unique": body.u64(), "error": body.u32(), "ino": body.u64()}


def read_times(body, rec):
    mask = body.take(1)[0]
    need(mask and mask & ~{"adopt": 56, "setattr": rec.get("mask", 0) & 56, "seal": 16, "drained": 16}.get(rec["type"], 0) == 0, "mask of times")
    times = {}
    for bit, name in ((8, "atime"), (16, "mtime"), (32, "ctime")):
        if mask & bit:
            times[name] = [body.i64(), body.u32()]
            need(times[name][1] < 10**9, "nanoseconds")
            need(min(max(times[name][0] * 10**9 + times[name][1], -2**63), LIMIT) == rec[name + "_ns"], "narrow time")
    return times


def read_device(body, _):
    return {"major": body.u32(), "minor": body.u32()}


def read_copies(body, _):
    node, num, segment, end, ranges = body.u32(), body.u32(), 0, 0, []
    need(0 < num <= 16384, "copies")
    for _ in range(num):
        segment += body.svarint()
        off, length = (end + body.svarint()) & M64, body.varint()
        need(0 < segment < 2**32 and length and off + length <= LIMIT, "copy")
        ranges.append([segment, off, length])
        end = off + length & M64
    return {"node": node, "ranges": ranges}


# Tag: (name, required, types, reader)
TAGS = {
    1: ("request", False, range(4, 21), read_request),
    2: ("times", False, (5, 11, 19, 23), read_times),
    3: ("device", True, (4, 5), read_device),
    4: ("copies", False, (3,), read_copies),
}

SPECIAL = (0o010000, 0o020000, 0o060000, 0o140000)


def read_trailer(body, kind, rec):
    trailer, any_field = {}, False
    for tag, required, field in body.tagged():
        any_field = True
        if tag not in TAGS:
            if required:
                raise Newer("field %d" % tag)
            continue
        name, is_required, types, reader = TAGS[tag]
        need(required == is_required and kind in types, "tag")
        trailer[name] = reader(field, rec)
        field.used_up()
    need(any_field, "empty trailer")
    if "request" in trailer:
        request = trailer["request"]
        need(request["unique"] and request["error"] < 4096 and not (request["error"] and request["ino"]), "request")
    return trailer


def check_device(rec):
    mode = rec["mode"] & 0o170000 if rec["type"] in ("create", "adopt") else 0
    device = rec.get("trailer", {}).get("device")
    need((mode in SPECIAL) == (device is not None), "device")
    need(device is None or mode in (0o020000, 0o060000) or not any(device.values()), "device of a pipe or a socket")


# ---- items

def read_record(data, at):
    """(record, length) at an offset."""
    need(data[at:at + 4] == b"CJR1" and len(data) - at >= 56, "magic")
    length, kind, version, flags, seq, time_ns, ino, gen, node, writer, zero = struct.unpack_from("<IBBHQqQIIII", data, at + 8)
    need(56 <= length <= 2**20 and length % 8 == 0 and length <= len(data) - at, "length")
    check_crc(data[at:at + length], 4)
    if version > 6:
        raise Newer("record version %d" % version)
    need(kind in TYPES and zero == 0, "type or reserved field")
    name, allowed, fields = TYPES[kind]
    allowed |= 128 | 256 if kind in MAY_HAVE_STAMP else 0
    need(not writer or kind in MAY_HAVE_WRITER, "writer")
    need(version in (6, 5 if flags & 512 and kind == 23 else 4 if flags & 512 else 3 if writer else 2 if kind > 25 or flags & (128 | 256) else 1), "version")
    need(flags & ~allowed == 0, "flags")
    rec = {"seq": seq, "type": name, "flags": flags, "time_ns": time_ns, "ino": ino, "gen": gen, "node": node}
    if kind in MAY_HAVE_WRITER:
        rec["writer"] = writer
    body = Body(data[at + 56:at + length])
    for field in filter(None, fields.split(", ")):
        method, field = field.split()
        if method == "pieces" and flags & 512:
            method = "timed_pieces"
        rec[field] = getattr(body, method)()
    if flags & 128:
        rec["stamp"] = body.u64()
    if name in ("share-drop", "drained"):
        rec["drop_usec"] = body.u64() if flags & 512 else 0
    if version == 6:
        rec["trailer"] = read_trailer(body, kind, rec)
    body.finish()
    check_fields(rec)
    check_device(rec)
    return rec, length


def read_run_entry(data, at, before):
    need(before and before["type"] == "write" and len(data) - at >= 16, "run entry without a write")
    length, flags = data[at + 2], data[at + 3]
    need(length in range(16, 49, 8) and flags in (0, 1) and length <= len(data) - at, "length")
    check_crc(data[at:at + length], 4, seed=struct.pack("<Q", before["seq"] + 1))
    body = Body(data[at + 8:at + length])
    rec = dict({key: value for key, value in before.items() if key != "trailer"}, seq=before["seq"] + 1, segment_off=before["segment_off"] + before["len"])
    rec["payload_crc"] = body.u32()
    rec["off"] = (before["off"] + before["len"] + body.svarint()) & M64
    rec["len"] = body.varint()
    time_ns = (before["time_ns"] + body.svarint()) & M64
    rec["time_ns"] = time_ns - 2**64 if time_ns > LIMIT else time_ns
    if flags:
        rec["writer"] = body.varint()
        need(before["writer"] and 0 < rec["writer"] < 2**32 and rec["writer"] != before["writer"], "writer")
    body.finish()
    check_fields(rec)
    return rec, length


def read_mark(data, at):
    need(data[at + 2:at + 4] == bytes((16, 0)) and len(data) - at >= 16, "sync mark")
    check_crc(data[at:at + 16], 4)
    return struct.unpack_from("<Q", data, at + 8)[0]


def read_header(data, magic, number):
    need(len(data) >= HEADER_BLOCK and data[:8] == magic, "header")
    check_crc(data[:HEADER_BLOCK], 12)
    version, _, stored, zero, first_seq, _, durable_seq = struct.unpack_from("<IIIIQqQ", data, 8)
    need(version == 1 and stored == number and zero == 0 and not any(data[48:HEADER_BLOCK]), "header")
    return first_seq, durable_seq


# ---- files

def files(store, extension):
    pattern = re.compile(r"0*([1-9][0-9]*)\." + extension)
    for name in os.listdir(os.path.join(store, "journal")):
        match = pattern.fullmatch(name)
        if match and name == "%08d.%s" % (int(match.group(1)), extension):
            yield int(match.group(1)), os.path.join(store, "journal", name)


def content(path):
    with open(path, "rb") as file:
        return file.read()


def show(rec):
    print(json.dumps({key: value.hex() if isinstance(value, bytes) else value for key, value in rec.items()},
                     separators=(",", ":")))


class End(Exception):
    """The log is good up to here."""


def read_items(data, expected, marks):
    """Yields the records of a file, and marks if they are wanted; raises End where an item is not valid."""
    at, before = HEADER_BLOCK, None
    while any(data[at:]):
        try:
            if data[at:at + 2] == b"sm":
                upto = read_mark(data, at)
                need(upto < expected, "sync mark of the future")
                at += 16
                if marks:
                    yield {"seq": expected - 1, "type": "mark", "upto": upto}
                continue
            rec, length = read_run_entry(data, at, before) if data[at:at + 2] == b"rw" else read_record(data, at)
            need(rec["seq"] == expected, "seq")
        except Bad as bad:
            raise End("%s at byte %d" % (bad, at)) from bad
        yield rec
        before, expected, at = rec, expected + 1, at + length


def whole_run_entry(data, at, seq):
    length = data[at + 2]
    need(length in range(16, 49, 8) and data[at + 3] in (0, 1) and length <= len(data) - at, "length")
    check_crc(data[at:at + length], 4, seed=struct.pack("<Q", seq))


def valid_at(data, place, seqs):
    """Is there something whole at this place? A run entry may have any of the seqs."""
    checks = []
    if data[place:place + 4] == b"CJR1":
        checks = [lambda: read_record(data, place)]
    elif data[place:place + 2] == b"sm":
        checks = [lambda: read_mark(data, place)]
    elif data[place:place + 2] == b"rw":
        checks = [lambda seq=seq: whole_run_entry(data, place, seq) for seq in seqs]
    for check in checks:
        try:
            check()
            return True
        except Bad:
            pass
    return False


def anything_valid(data, at, missing):
    """Is there a record, a run entry or a sync mark behind the item at this place, which should have the missing seq?"""
    return any(valid_at(data, place, range(missing, missing + (place - at) // 16 + 1)) for place in range(at + 8, len(data), 8))


def read_journal(store, marks):
    """Prints all records. (last seq, what ended the log or None, is it damage)."""
    begun = [(number, data) for number, data in ((n, content(p)) for n, p in sorted(files(store, "jnl"))) if any(data)]
    last = None
    for index, (number, data) in enumerate(begun):
        try:
            try:
                first_seq, durable_seq = read_header(data, b"CISTJRNL", number)
                need(durable_seq < first_seq, "durable_seq")
                need(last is None or first_seq == last + 1, "seq of the header")
            except Bad as bad:
                raise End("%s at byte 0" % bad) from bad
            last = first_seq - 1
            for rec in read_items(data, first_seq, marks):
                show(rec)
                last = rec["seq"]
        except End as end:
            at = int(str(end).rsplit(" ", 1)[1])
            damaged = index + 1 < len(begun) or anything_valid(data, at, (last or 0) + 1)
            return last or 0, "file %d: %s" % (number, end), damaged
    return last or 0, None, False


def read_checkpoint(path, number):
    """The records of a checkpoint file; Bad when it is not whole."""
    data = content(path)
    need(read_header(data, b"CISTCKPT", number) == (0, 0), "header")
    at, records, keys = HEADER_BLOCK, [], 0
    while True:
        rec, length = read_record(data, at)
        need(rec["seq"] == len(records) + 1 and rec["type"] in ("state", "state-end"), "seq")
        records.append(rec)
        at += length
        if rec["type"] == "state-end":
            break
        keys += rec["off"] == 0
    need(at == len(data) and records[-1]["count"] == keys, "end")
    return records


def newest_checkpoint(store):
    for number, path in sorted(files(store, "ckp"), reverse=True):
        try:
            return read_checkpoint(path, number)
        except Bad:
            pass
    return []


def main(args):
    if args[:1] == ["--checkpoint"]:
        for rec in newest_checkpoint(args[1]):
            show(rec)
        return 0
    last, why, damaged = read_journal(args[-1], args[0] == "--marks")
    print(json.dumps({"last_seq": last, "whole": why is None, "damaged": damaged}, separators=(",", ":")))
    if why:
        print(why, file=sys.stderr)
    return 4 if damaged else 0


if __name__ == "__main__":
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__)
    sys.exit(main(sys.argv[1:]))
