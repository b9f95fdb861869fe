#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-3.0-or-later
"""damage_hdf5_small FACTS SMALL: copies of the files in SMALL, each damaged in one place, and what our walk has to say of them.

FACTS is tests/unit/hdf5-facts, SMALL is tests/golden/hdf5-small: files that HDF5 1.10.8 has written ("tests/mpi/h5-facts small DIR").
A case is a name, its file, what is done to it (which returns the offset that has to be named), the first line that our walk has to
print, and what h5dump 1.10.8 does with the copy: it refuses, crashes, or accepts it; docs/formats.md says why not all are refused.
Prints a line for each case that comes out otherwise, and at last how many there were. Another h5dump, or none, is not asked."""

import os
import shutil
import struct
import subprocess
import sys

from lookup3 import lookup3

facts, small = sys.argv[1:3]

class Copy:
	def __init__(self, name):
		with open(os.path.join(small, name), "rb") as source:
			self.data = bytearray(source.read())

	def find(self, signature, number=0, behind=0):
		at = behind - 1
		for _ in range(number + 1):
			at = self.data.index(signature, at + 1)
		return at

	def get(self, off, width=8):
		return int.from_bytes(self.data[off:off + width], "little")

	def put(self, off, value, width=8):
		self.data[off:off + width] = value.to_bytes(width, "little")

	def seal(self, start, length):
		"""A block's checksum, behind its first length bytes, made right."""
		self.put(start + length, lookup3(bytes(self.data[start:start + length])), 4)

	def header_bytes(self, at):
		"""Of an object header of version 2, without its checksum."""
		flags = self.data[at + 5]
		width = 1 << (flags & 3)
		size = at + 6 + (16 if flags & 0x20 else 0) + (4 if flags & 0x10 else 0)
		return size + width + self.get(size, width) - at


def put(c, off, value, width=8, says=None):
	c.put(off, value, width)
	return off if says is None else says


def resealed(c, block, length, off, value, width=8, says=None):
	c.put(block + off, value, width)
	c.seal(block, length)
	return block if says is None else says


def cut(c, length, says):
	del c.data[length:]
	return says


def swapped(c, at, width, says):
	"""Two neighbours of width bytes change places."""
	first, second = c.data[at:at + width], c.data[at + width:at + 2 * width]
	c.data[at:at + 2 * width] = second + first
	return says


FAR = 0x7fffffff0000
S0, S1, S2, S3 = ("superblock-%d.h5" % i for i in range(4))


def tree(c, kind, level, number=0):
	"""A B-tree node of version 1: kind 0 of a group, 1 of chunks."""
	at = -1
	while True:
		at = c.find(b"TREE", behind=at + 1)
		if c.data[at + 4] == kind and c.data[at + 5] == level:
			if number == 0:
				return at
			number -= 1


CASES = [
	# Superblocks
	("superblock-0-version", S0,
		lambda c: put(c, 8, 9, 1, 0),
		"HDF5: at offset %d: a superblock of version 9", "refuses"),
	("superblock-0-widths", S0,
		lambda c: put(c, 13, 3, 1, 0),
		"HDF5: at offset %d: addresses of 3 and lengths of 8 bytes", "refuses"),
	("superblock-0-root", S0,
		lambda c: put(c, 64, FAR, 8, 0),
		"HDF5: raw, not yet mapped: at offset %d: the root group would be behind the end of the file", "refuses"),
	("superblock-0-end", S0,
		lambda c: put(c, 40, 1000000, 8, len(c.data)),
		"not written: : at offset %d: the file ends here, and says that it has 1000000 bytes", "refuses"),
	("superblock-0-cut", S0,
		lambda c: cut(c, 70, 0),
		"HDF5: at offset %d: the superblock is cut short, or has no root group", "refuses"),
	("superblock-1-nodes", S1,
		lambda c: put(c, 16, 0, 2, 0),
		"HDF5: at offset %d: the superblock has nodes of 0 and 1 entries, flags 0", "refuses"),
	("superblock-1-cut", S1,
		lambda c: cut(c, 5000, tree(c, 0, 1, 1)),
		"not written: group: at offset %d: a B-tree node of 8 bytes would lie behind the end of the file, which has 5000 bytes", "refuses"),
	("superblock-2-checksum", S2,
		lambda c: put(c, 44, c.get(44, 4) ^ 1, 4, 0),
		"HDF5: at offset %d: the checksum of these 48 bytes is wrong", "refuses"),
	("superblock-2-root", S2,
		lambda c: resealed(c, 0, 44, 36, FAR),
		"HDF5: raw, not yet mapped: at offset %d: the root group would be behind the end of the file", "refuses"),
	("superblock-3-checksum", S3,
		lambda c: put(c, 20, 1, 1, 0),
		"HDF5: at offset %d: the checksum of these 48 bytes is wrong", "refuses"),
	("superblock-3-cut", S3,
		lambda c: cut(c, 40, 0),
		"HDF5: at offset %d: the superblock is cut short", "refuses"),
	("superblock-3-half", S3,
		lambda c: cut(c, 4200, 4096),
		"not written: tree: at offset %d: an object header of 284 bytes would lie behind the end of the file, which has 4200 bytes", "refuses"),
	# Groups of version 1: B-tree, symbol table nodes, local heap
	("group-tree-signature", S0,
		lambda c: put(c, c.find(b"TREE"), 0, 4),
		"damaged: : at offset %d: \"TREE\" has to be here", "refuses"),
	("group-tree-type", S0,
		lambda c: put(c, c.find(b"TREE") + 4, 1, 1, c.find(b"TREE")),
		"damaged: : at offset %d: a B-tree node of type 1 and not 0", "refuses"),
	("group-tree-level", S1,
		lambda c: put(c, tree(c, 0, 1) + 5, 40, 1, tree(c, 0, 1)),
		"damaged: group: at offset %d: a B-tree node has the impossible level 40", "accepts"),
	("group-tree-loop", S1,
		lambda c: put(c, tree(c, 0, 1) + 32, tree(c, 0, 2), 8, tree(c, 0, 2)),
		"damaged: group: at offset %d: a B-tree node has the impossible level 2", "crashes"),
	("group-tree-child", S1,
		lambda c: put(c, tree(c, 0, 0) + 32, tree(c, 0, 0), 8, tree(c, 0, 0)),
		"damaged: : at offset %d: \"SNOD\" has to be here", "refuses"),
	("group-tree-wild", S0,
		lambda c: put(c, c.find(b"TREE") + 32, FAR, 8, FAR),
		"not written: : at offset %d: a symbol table node of 8 bytes would lie behind the end of the file, which has 10824 bytes", "refuses"),
	("group-tree-count", S0,
		lambda c: put(c, c.find(b"TREE") + 6, 60000, 2, c.find(b"TREE")),
		"not written: : at offset %d: a B-tree node of 960032 bytes would lie behind the end of the file, which has 10824 bytes", "refuses"),
	("group-tree-sibling", S1,
		lambda c: put(c, tree(c, 0, 0, 1) + 16, tree(c, 0, 1), 8, tree(c, 0, 0, 3)),
		"damaged: group: at offset %d: a B-tree node and the one to its left do not name each other", "accepts"),
	("group-tree-key", S1,
		lambda c: put(c, tree(c, 0, 0, 3) + 24, 0, 8, tree(c, 0, 0, 3) + 24),
		"damaged: group: at offset %d: a key of names, and a name to its left that sorts behind it", "accepts"),
	("symbols-signature", S0,
		lambda c: put(c, c.find(b"SNOD"), 0, 1),
		"damaged: : at offset %d: \"SNOD\" has to be here", "refuses"),
	("symbols-count", S0,
		lambda c: put(c, c.find(b"SNOD") + 6, 999, 2, c.find(b"SNOD")),
		"not written: : at offset %d: a symbol table node of 39968 bytes would lie behind the end of the file, which has 10824 bytes", "refuses"),
	("symbols-order", S0,
		lambda c: swapped(c, c.find(b"SNOD", 1) + 8, 40, c.find(b"HEAP", 1) + 40),
		"damaged: group: at offset %d: a name that does not sort behind the one before", "refuses"),
	("symbols-name", S0,
		lambda c: put(c, c.find(b"SNOD") + 8, 100000, 8, c.find(b"SNOD")),
		"damaged: : at offset %d: a name at 100000, behind the end of the names", "refuses"),
	("symbols-header-wild", S0,
		lambda c: put(c, c.find(b"SNOD") + 16, FAR, 8, c.find(b"SNOD")),
		"not written: chunks: at offset %d: its header would be at address 140737488289792, behind the end of the file", "refuses"),
	("names-signature", S0,
		lambda c: put(c, c.find(b"HEAP"), 0, 4),
		"damaged: : at offset %d: \"HEAP\" has to be here", "refuses"),
	("names-gap", S0,
		lambda c: put(c, c.find(b"HEAP") + 16, 3, 8, c.get(c.find(b"HEAP") + 24) + 3),
		"damaged: : at offset %d: a gap between names of 7161128027805674350 bytes", "refuses"),
	("names-wild", S0,
		lambda c: put(c, c.find(b"HEAP") + 24, FAR, 8, FAR),
		"not written: : at offset %d: the names of a local heap of 88 bytes would lie behind the end of the file, which has 10824 bytes", "refuses"),
	# Chunks by B-trees of version 1
	("chunk-tree-signature", S0,
		lambda c: put(c, tree(c, 1, 0), 0, 1),
		"damaged: chunks: at offset %d: \"TREE\" has to be here", "refuses"),
	("chunk-tree-wild", S0,
		lambda c: put(c, tree(c, 1, 0) + 24 + 24, FAR, 8, tree(c, 1, 0)),
		"not written: chunks: at offset %d: a chunk of 16 bytes at address 140737488289792 lies behind the end of the file", "refuses"),
	("chunk-tree-order", S0,
		lambda c: swapped(c, tree(c, 1, 0) + 24, 32, tree(c, 1, 0)),
		"damaged: chunks: at offset %d: a chunk that does not sort behind the one before", "accepts"),
	("chunk-tree-twice", S0,
		lambda c: put(c, tree(c, 1, 0) + 24 + 32 + 8, 0, 8, tree(c, 1, 0)),
		"damaged: chunks: at offset %d: a chunk that does not sort behind the one before", "accepts"),
	("chunk-tree-between", S0,
		lambda c: put(c, tree(c, 1, 0) + 24 + 32 + 8, 5, 8, tree(c, 1, 0)),
		"damaged: chunks: at offset %d: a chunk begins at 5, which is no multiple of 4", "accepts"),
	("chunk-tree-overlap", S0,
		lambda c: put(c, tree(c, 1, 0) + 24 + 24, c.get(tree(c, 1, 0) + 24 + 24) + 8, 8, c.get(tree(c, 1, 0) + 24 + 32 + 24)),
		"damaged: chunks: at offset %d: two chunks overlap", "accepts"),
	("chunk-tree-size", S0,
		lambda c: put(c, tree(c, 1, 0) + 24, 0x7fffffff, 4, tree(c, 1, 0)),
		"not written: chunks: at offset %d: a chunk of 2147483647 bytes at address 3496 lies behind the end of the file", "refuses"),
	("chunk-tree-loop", S1,
		lambda c: put(c, tree(c, 1, 1) + 24 + 24, tree(c, 1, 3), 8, tree(c, 1, 3)),
		"damaged: chunks: at offset %d: a B-tree node has the impossible level 3", "crashes"),
	("chunk-tree-level", S1,
		lambda c: put(c, tree(c, 1, 2) + 5, 1, 1, tree(c, 1, 2)),
		"damaged: chunks: at offset %d: a B-tree node has the impossible level 1", "accepts"),
	("chunk-tree-count", S1,
		lambda c: put(c, tree(c, 1, 0) + 6, 3, 2, tree(c, 1, 0)),
		"damaged: chunks: at offset %d: a chunk that does not sort behind the one before", "refuses"),
	# Object headers of version 2
	("header-checksum", S3,
		lambda c: put(c, 195 + 30, c.get(225, 1) ^ 4, 1, 195),
		"damaged: single: at offset %d: the checksum of these 284 bytes is wrong", "refuses"),
	("header-version", S3,
		lambda c: resealed(c, 195, c.header_bytes(195), 4, 7, 1),
		"not understood: single: at offset %d: an object header of version 7", "refuses"),
	("header-signature", S3,
		lambda c: put(c, 195, 0, 4),
		"damaged: single: at offset %d: \"OHDR\" has to be here", "refuses"),
	("continuation-checksum", S3,
		lambda c: put(c, c.find(b"OCHK") + 6, 0xff, 1, c.find(b"OCHK")),
		"HDF5: at offset %d: the checksum of these 47 bytes is wrong", "refuses"),
	# Links in heaps: fractal heap and B-tree of version 2
	("heap-checksum", S2,
		lambda c: put(c, c.find(b"FRHP") + 20, 99, 1, c.find(b"FRHP")),
		"damaged: dense: at offset %d: the checksum of these 146 bytes is wrong", "refuses"),
	("heap-width", S2,
		lambda c: resealed(c, c.find(b"FRHP"), 142, 110, 3, 2),
		"damaged: dense: at offset %d: an impossible heap", "refuses"),
	("heap-root-wild", S2,
		lambda c: resealed(c, c.find(b"FRHP"), 142, 132, FAR, 8, FAR),
		"not written: dense: at offset %d: a heap's block of 512 bytes would lie behind the end of the file, which has 14629 bytes", "refuses"),
	("heap-rows", S2,
		lambda c: resealed(c, c.find(b"FRHP", 2), 142, 140, 60000, 2),
		"damaged: many: at offset %d: an impossible heap", "refuses"),
	("heap-block-checksum", S2,
		lambda c: put(c, c.find(b"FHDB") + 40, 0xffff, 2, c.find(b"FHDB")),
		"damaged: many: at offset %d: the checksum of a heap's block is wrong", "refuses"),
	("heap-block-signature", S2,
		lambda c: put(c, c.find(b"FHDB"), 0, 4),
		"damaged: many: at offset %d: \"FHDB\" has to be here", "refuses"),
	("heap-table-checksum", S2,
		lambda c: put(c, c.find(b"FHIB") + 20, 1, 1, c.find(b"FHIB")),
		"damaged: many: at offset %d: the checksum of these 53 bytes is wrong", "refuses"),
	("heap-packed-checksum", S2,
		lambda c: put(c, c.get(c.find(b"FRHP", 1) + 132) + 9, 0xff, 1, c.get(c.find(b"FRHP", 1) + 132)),
		"damaged: packed: at offset %d: the checksum of these 49 bytes is wrong", "refuses"),
	("heap-packed-short", S2,
		lambda c: resealed(c, c.find(b"FRHP", 1), 172, 142, 3, 8, c.get(c.find(b"FRHP", 1) + 132)),
		"damaged: packed: at offset %d: too short for a checksum", "crashes"),
	("heap-packed-filter", S2,
		lambda c: resealed(c, c.find(b"FRHP", 1), 172, 156, 7, 2, c.get(c.find(b"FRHP", 1) + 132)),
		"not understood: packed: at offset %d: a block behind filter 7", "refuses"),
	("link-tree-checksum", S2,
		lambda c: put(c, c.find(b"BTHD") + 10, 1, 1, c.find(b"BTHD")),
		"damaged: dense: at offset %d: the checksum of these 38 bytes is wrong", "refuses"),
	("link-tree-type", S2,
		lambda c: resealed(c, c.find(b"BTHD"), 34, 5, 1, 1),
		"damaged: dense: at offset %d: a B-tree of version 0, type 1 and not 5", "crashes"),
	("link-tree-wild", S2,
		lambda c: resealed(c, c.find(b"BTHD"), 34, 16, FAR, 8, FAR),
		"not written: dense: at offset %d: a B-tree node of 54 bytes would lie behind the end of the file, which has 14629 bytes", "refuses"),
	("link-tree-depth", S2,
		lambda c: resealed(c, c.find(b"BTHD"), 34, 12, 40000, 2),
		"damaged: dense: at offset %d: an impossible B-tree", "refuses"),
	("link-leaf-checksum", S2,
		lambda c: put(c, c.find(b"BTLF") + 8, c.get(c.find(b"BTLF") + 8, 1) ^ 1, 1, c.find(b"BTLF")),
		"damaged: dense: at offset %d: the checksum of these 54 bytes is wrong", "refuses"),
	# Chunk indexes of superblock 3
	("fixed-head-checksum", S3,
		lambda c: put(c, c.find(b"FAHD") + 8, 9, 1, c.find(b"FAHD")),
		"damaged: fixed: at offset %d: the checksum of these 28 bytes is wrong", "refuses"),
	("fixed-head-count", S3,
		lambda c: resealed(c, c.find(b"FAHD"), 24, 8, 1 << 40),
		"damaged: fixed: at offset %d: a chunk index of 1099511627776 entries for 3 chunks", "refuses"),
	("fixed-head-wild", S3,
		lambda c: resealed(c, c.find(b"FAHD"), 24, 16, FAR, 8, FAR),
		"not written: fixed: at offset %d: a chunk index of 42 bytes would lie behind the end of the file, which has 6428 bytes", "refuses"),
	("fixed-block-checksum", S3,
		lambda c: put(c, c.find(b"FADB") + 14, 0, 1, c.find(b"FADB")),
		"damaged: fixed: at offset %d: the checksum of these 42 bytes is wrong", "refuses"),
	("fixed-block-chunk-wild", S3,
		lambda c: resealed(c, c.find(b"FADB"), 38, 14, FAR),
		"not written: fixed: at offset %d: a chunk of 16 bytes at address 140737488289792 lies behind the end of the file", "refuses"),
	("fixed-block-head", S3,
		lambda c: resealed(c, c.find(b"FADB"), 38, 6, 48),
		"damaged: fixed: at offset %d: a block of another chunk index", "refuses"),
	("growing-head-checksum", S3,
		lambda c: put(c, c.find(b"EAHD") + 12, 9, 1, c.find(b"EAHD")),
		"damaged: growing: at offset %d: the checksum of these 72 bytes is wrong", "refuses"),
	("growing-head-wild", S3,
		lambda c: resealed(c, c.find(b"EAHD"), 68, 60, FAR, 8, FAR),
		"not written: growing: at offset %d: the first block of a chunk index of 298 bytes would lie behind the end of the file, which has 6428 bytes", "refuses"),
	("growing-head-entry", S3,
		lambda c: resealed(c, c.find(b"EAHD"), 68, 6, 3, 1),
		"damaged: growing: at offset %d: a chunk index with entries of 3 bytes", "refuses"),
	("growing-index-checksum", S3,
		lambda c: put(c, c.find(b"EAIB") + 14, 0, 1, c.find(b"EAIB")),
		"damaged: growing: at offset %d: the checksum of these 298 bytes is wrong", "refuses"),
	("growing-index-loop", S3,
		lambda c: resealed(c, c.find(b"EAIB"), 294, 54, c.get(c.find(b"EAIB") + 46), 8, c.get(c.find(b"EAIB") + 46)),
		"damaged: growing: at offset %d: a block of a chunk index is used twice", "accepts"),
	("growing-block-checksum", S3,
		lambda c: put(c, c.find(b"EADB") + 30, 1, 1, c.find(b"EADB")),
		"damaged: growing: at offset %d: the checksum of these 150 bytes is wrong", "refuses"),
	("growing-block-chunk-wild", S3,
		lambda c: resealed(c, c.find(b"EADB"), 146, 18, FAR),
		"not written: growing: at offset %d: a chunk of 8 bytes at address 140737488289792 lies behind the end of the file", "refuses"),
	("tree-head-checksum", S3,
		lambda c: put(c, c.find(b"BTHD") + 8, 77, 1, c.find(b"BTHD")),
		"damaged: tree: at offset %d: the checksum of these 38 bytes is wrong", "refuses"),
	("tree-head-type", S3,
		lambda c: resealed(c, c.find(b"BTHD"), 34, 5, 5, 1),
		"damaged: tree: at offset %d: a B-tree of version 0, type 5 and not 10", "refuses"),
	("tree-leaf-checksum", S3,
		lambda c: put(c, c.find(b"BTLF") + 7, 1, 1, c.find(b"BTLF")),
		"damaged: tree: at offset %d: the checksum of these 226 bytes is wrong", "refuses"),
	("tree-leaf-signature", S3,
		lambda c: put(c, c.find(b"BTLF"), 0, 4),
		"damaged: tree: at offset %d: \"BTLF\" has to be here", "refuses"),
]


def run(*command):
	done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=300)
	return done.returncode, done.stdout.decode(errors="replace")


def theirs(path):
	status = run("h5dump", path)[0]
	return "crashes" if status < 0 else "refuses" if status else "accepts"


def is_known():
	return shutil.which("h5dump") is not None and "1.10.8" in run("h5dump", "--version")[1]


asked = is_known()
for base in (S0, S1, S2, S3):
	said = run(facts, "problems", os.path.join(small, base))[1].strip()
	if said:
		print("%s, as it is: %s" % (base, said))
for name, base, edit, expected, verdict in CASES:
	copy = Copy(base)
	off = edit(copy)
	with open(name + ".h5", "wb") as out:
		out.write(copy.data)
	first = run(facts, "problems", name + ".h5")[1].split("\n")[0]
	if first != expected % off:
		print("%s: '%s' should be '%s'" % (name, first, expected % off))
	if asked and theirs(name + ".h5") != verdict:
		print("%s: h5dump %s it, which should be: %s" % (name, theirs(name + ".h5"), verdict))
print("%d copies%s" % (len(CASES), "" if asked else ", without h5dump"))
