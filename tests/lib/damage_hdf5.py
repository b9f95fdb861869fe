#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-3.0-or-later
"""damage_hdf5 FACTS SEED NUMBER FILE...: NUMBER damaged copies of each file; what our walk says of them.

FACTS is tests/unit/hdf5-facts. A walk must end, say where each damage is, and notice what h5ls and h5stat notice. Prints one line
for each copy where it does not, and at last how many copies there were, and how many of them h5ls or h5stat refused."""

import os
import random
import subprocess
import sys

facts, seed, number, files = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4:]
dice = random.Random(seed)
COPY = "damaged.h5"


def metadata(path):
	"""Where the format's own bytes are: that is where it hurts."""
	ranges = [line.split() for line in run(facts, "metadata", path).stdout.decode().splitlines()]
	return [(int(off), int(length)) for off, length in ranges]


def run(*command):
	return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=60)


def damage(data, ranges):
	kind = dice.randrange(4)
	if kind == 0:
		return data[:dice.randrange(len(data))]
	off, length = dice.choice(ranges)
	at = off + dice.randrange(length)
	if kind == 1:
		data[at] ^= 1 << dice.randrange(8)
	elif kind == 2:
		width = min(dice.choice((2, 4, 8)), len(data) - at)
		data[at:at + width] = dice.choice((b"\0", b"\xff", b"\x7f")) * width
	else:
		width = min(dice.randrange(1, 64), len(data) - at)
		data[at:at + width] = bytes(dice.randrange(256) for _ in range(width))
	return data


def refused(path):
	"""HDF5's own word. Its tools may well crash on such a file, or go round in circles."""
	for command in (("h5ls", "-r", path), ("h5stat", path)):
		try:
			said = run(*command)
		except subprocess.TimeoutExpired:
			return "does not end"
		if said.returncode != 0 or b"unable to" in said.stdout:
			return "%s: status %d" % (command[0], said.returncode)
	return None


def complaints(path):
	said = run(facts, "problems", path)
	lines = [line for line in said.stdout.decode(errors="replace").splitlines() if not line.startswith("elsewhere: ")]
	wrong = []
	if said.returncode not in (0, 1):
		wrong.append("our walk ends with status %d" % said.returncode)
	wrong += ["no offset: " + line for line in lines if "at offset " not in line and "no signature" not in line]
	return lines, wrong


copies = bad = 0
for file in files:
	with open(file, "rb") as source:
		good = source.read()
	ranges = metadata(file)
	for i in range(number):
		with open(COPY, "wb") as out:
			out.write(damage(bytearray(good), ranges))
		lines, wrong = complaints(COPY)
		theirs = refused(COPY)
		copies += 1
		bad += theirs is not None
		if theirs and not lines:
			wrong.append("only HDF5 notices: " + theirs)
		for line in wrong:
			os.replace(COPY, "%s-%d-%d.h5" % (os.path.basename(file), seed, i))
			print("%s, copy %d: %s" % (file, i, line))
			break
print("%d copies, %d refused by HDF5" % (copies, bad))
