# SPDX-License-Identifier: GPL-3.0-or-later
"""CRC-32C by its polynomial, for tests: an independent source. mount.bash has it in PYTHONPATH."""

TABLE = []
for n in range(256):
	for _ in range(8):
		n = n >> 1 ^ (0x82F63B78 if n & 1 else 0)
	TABLE.append(n)


def crc32c(data):
	crc = 0xFFFFFFFF
	for byte in data:
		crc = crc >> 8 ^ TABLE[(crc ^ byte) & 255]
	return crc ^ 0xFFFFFFFF
