# SPDX-License-Identifier: GPL-3.0-or-later
"""Logs as two processes leave them behind that write one variable by turns through PnetCDF's burst-buffer driver.

Written from docs/format/pnetcdf-burst-buffer.md. tests/bench/pnetcdf-flush.c makes the same puts with the driver itself.
"""

import array
import os
import struct

RANKS = 2
FLOAT, DOUBLE = 8, 9 # types in memory
NC_FLOAT = 5
VARA = -3
BEGIN_BYTES = 8 # of a data log


def _pad(data, to=4):
	return data + bytes(-len(data) % to)


def _header(elements):
	"""A CDF-5 file with one variable of floats, a(x), defined and empty."""
	def name(text):
		return struct.pack(">Q", len(text)) + _pad(text.encode())
	dims = struct.pack(">IQ", 10, 1) + name("x") + struct.pack(">Q", elements)
	absent = bytes(12)
	head = b"CDF\5" + bytes(8) + dims + absent + struct.pack(">IQ", 11, 1) + name("a") + struct.pack(">QQ", 1, 0) + absent
	return head + struct.pack(">IQQ", NC_FLOAT, 4 * elements, (len(head) + 20 + 511) // 512 * 512)


def _log_header(rank, count, path):
	host = b"node"
	head = b"PnetCDF0CDF0" + bytes(12) + struct.pack("<QQQQQ", RANKS, rank, 0, 0, count)
	head += struct.pack("<Q", len(path)) + path.encode() + b"\0" + struct.pack("<I", len(host)) + host + b"\0"
	length = (80 + len(path) + 1 + 4 + len(host) + 1 + 15) // 16 * 16
	return head + bytes(length - len(head))


def write(directory, total_bytes, put_bytes, double):
	"""total_bytes of the file, put_bytes of it in each put; double: the program has doubles. Name of the netCDF file."""
	os.makedirs(directory)
	each, puts = put_bytes // 4, total_bytes // put_bytes // RANKS
	path = os.path.join(directory, "puts.nc")
	with open(path, "wb") as out:
		out.write(_header(each * puts * RANKS))
	values = array.array("d" if double else "f", (i * 0.5 for i in range(each))).tobytes()
	for rank in range(RANKS):
		with open(f"{path}_0_{rank}.data", "wb") as data, open(f"{path}_0_{rank}.meta", "wb") as meta:
			data.write(b"PnetCDF0")
			meta.write(_log_header(rank, puts, os.path.abspath(path)))
			for i in range(puts):
				meta.write(struct.pack("<QiIIIQQqqq", 64, VARA, DOUBLE if double else FLOAT, 0, 1, BEGIN_BYTES + i * len(values),
					len(values), (i * RANKS + rank) * each, each, 0))
				data.write(values)
	return path
