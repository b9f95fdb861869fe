#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-3.0-or-later
"""hdf5_tools FILE: what h5stat, h5ls and h5debug say of a file, in the form that tests/unit/hdf5-facts prints for "tools"."""

import re
import subprocess
import sys


def say(*command):
	return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def number(text, name):
	return int(re.search(r"%s:\s+(\d+)" % re.escape(name), text).group(1))


def super_block(path):
	text = say("h5debug", path)
	print("superblock version=%d addresses=%s lengths=%s block=%s" % (
		number(text, "Superblock version number"),
		re.search(r"Size of file offsets \(haddr_t type\):\s+(\d+)", text).group(1),
		re.search(r"Size of file lengths \(hsize_t type\):\s+(\d+)", text).group(1),
		re.search(r"Size of userblock:\s+(\d+)", text).group(1)))


def counts(path):
	text = say("h5stat", path)
	print("groups=%d datasets=%d types=%d" % tuple(number(text, "# of unique " + what)
		for what in ("groups", "datasets", "named datatypes")))
	print("compact=%d contiguous=%d chunked=%d virtual=%d" % tuple(number(text, "Dataset layout counts[%s]" % kind)
		for kind in ("COMPACT", "CONTIG", "CHUNKED", "VIRTUAL")))
	print("raw=%d external=%d" % (number(text, "Total raw data size"), number(text, "Total external raw data size")))
	print("deflated=%d shuffled=%d" % (number(text, "GZIP filter"), number(text, "SHUFFLE filter")))


def places(path):
	"""Address and name of each object, in the order of addresses."""
	found, name = {}, None
	for line in say("h5ls", "-rv", path).splitlines():
		begin = re.match(r"(/(?:\\.|[^\\ ])*) +(?:Group|Dataset|Type)(?!, same as)", line)
		if begin:
			name = re.sub(r"\\(.)", r"\1", begin.group(1))[1:]
		elif not line.startswith(" "):
			name = None
		place = re.match(r" +Location: +\d+:(\d+)$", line)
		if place and name is not None:
			found[int(place.group(1))] = name
	for address in sorted(found):
		print("%d %s" % (address, found[address]))


super_block(sys.argv[1])
counts(sys.argv[1])
places(sys.argv[1])
