# SPDX-License-Identifier: GPL-3.0-or-later
"""The checksum of HDF5's metadata."""

import struct


def lookup3(data):
	"""Bob Jenkins' hashlittle() of 2006, initial value 0, as the specification has it for checksums."""
	mask = 0xffffffff

	def rot(x, k):
		return (x << k | x >> (32 - k)) & mask

	a = b = c = (0xdeadbeef + len(data)) & mask
	while len(data) > 12:
		x, y, z = struct.unpack("<3I", data[:12])
		a, b, c = (a + x) & mask, (b + y) & mask, (c + z) & mask
		a = ((a - c) & mask) ^ rot(c, 4); c = (c + b) & mask
		b = ((b - a) & mask) ^ rot(a, 6); a = (a + c) & mask
		c = ((c - b) & mask) ^ rot(b, 8); b = (b + a) & mask
		a = ((a - c) & mask) ^ rot(c, 16); c = (c + b) & mask
		b = ((b - a) & mask) ^ rot(a, 19); a = (a + c) & mask
		c = ((c - b) & mask) ^ rot(b, 4); b = (b + a) & mask
		data = data[12:]
	if not data:
		return c
	x, y, z = struct.unpack("<3I", data + bytes(12 - len(data)))
	a, b, c = (a + x) & mask, (b + y) & mask, (c + z) & mask
	c = ((c ^ b) - rot(b, 14)) & mask
	a = ((a ^ c) - rot(c, 11)) & mask
	b = ((b ^ a) - rot(a, 25)) & mask
	c = ((c ^ b) - rot(b, 16)) & mask
	a = ((a ^ c) - rot(c, 4)) & mask
	b = ((b ^ a) - rot(a, 14)) & mask
	return ((c ^ b) - rot(b, 24)) & mask
