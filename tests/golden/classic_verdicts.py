#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-3.0-or-later
"""classic_verdicts DUMP SEED NUMBER FILE...: is our reader of netCDF classic headers (DUMP is tests/unit/dump-classic) of one mind
with PnetCDF's ncvalidator, about these files, which must be good, and about NUMBER damaged copies of each.

Where verdicts differ it must be for a reason that docs/formats.md has in a table; its name, how often it was seen, and one file
are printed. A difference without a reason is printed as "UNEXPLAINED", and fails."""

import collections
import os
import random
import re
import resource
import struct
import subprocess
import sys

dump, seed, number, files = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4:]
dice = random.Random(seed)
COPY = "copy.nc"

# Name: what ours says, and what ncvalidator says. The table in docs/formats.md has a line for each, with the specification's words.
REASONS = {
	"padding": (r"^// padding at offset \d+ is not zero", r"padding is non-null byte"),
	"more-bytes": (r"^// end: more bytes", r"file size \(\d+\) is larger than expected"),
	"order": (r"^// encode: ", r"variable begin offset orders"),
	"name-nul": (r"name has a NUL in it", r"is a valid NetCDF"),
	"dimension-number": (r"has dimension \d{10,}; expected less than", r"is a valid NetCDF"),
	"list-tag": (r"expected a list of \w+: tag", r"is a valid NetCDF"),
	"negative-count": (r"is negative", r"is a valid NetCDF"),
	"record-elsewhere": (r"expected all of the first record in the", r"is a valid NetCDF"),
}
NO_VERDICT = "ncvalidator-has-no-verdict"


def limit():
	"""Some damaged files keep ncvalidator busy for minutes."""
	resource.setrlimit(resource.RLIMIT_CPU, (1, 1))


def verdict(*command, limits=None):
	said = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, preexec_fn=limits)
	return said.returncode == 0, said.stdout.decode(errors="replace"), said.returncode


def header_bytes(path):
	"""As netCDF-C or the generator wrote it: up to the first variable's begin. From our dump, which other tests compare."""
	ok, said, _ = verdict(dump, path)
	return int(re.search(r"^// header (\d+) ", said, re.M).group(1)) if ok else None


def flip(data, end):
	data[dice.randrange(end)] ^= 1 << dice.randrange(8)


def cut(data, end):
	del data[dice.randrange(end):]


def cut_behind(data, end):
	del data[dice.randrange(end, len(data) + 1):]


def word(data, end):
	"""One of the header's 4-byte fields: vsize, begin, lengths, types, tags, numbers."""
	at = dice.randrange(end // 4) * 4
	data[at:at + 4] = struct.pack(">I", dice.choice((0, 1, 2, 3, 5, 7, 10, 11, 12, 99, 255, 4096, 0x7fffffff, 0x80000000, 0xffffffff)))


def near(data, end):
	"""A field that is off by little."""
	at = dice.randrange(end // 4) * 4
	old = struct.unpack(">I", data[at:at + 4])[0]
	data[at:at + 4] = struct.pack(">I", (old + dice.choice((-8, -4, -1, 1, 2, 4, 8))) & 0xffffffff)


def numrecs(data, end):
	del end
	width = 8 if data[3] == 5 else 4
	data[4:4 + width] = dice.choice((b"\0" * width, b"\xff" * width, b"\x7f" + b"\xff" * (width - 1), b"\0" * (width - 1) + b"\2"))


def padding(data, end):
	"""Of a name or a text: what is behind its last byte, when it is no whole word."""
	places = [i for i in range(8, end - 4) if data[i - 1] != 0 and data[i] == 0 and i % 4 != 0 and chr(data[i - 1]).isalnum()]
	if places:
		data[dice.choice(places)] = dice.choice(b"\1x ")


def name(data, end):
	"""A letter becomes one that no name may have, or one that is no UTF-8."""
	places = [i for i in range(8, end) if chr(data[i]).isalpha()]
	if places:
		data[dice.choice(places)] = dice.choice(b"/\0\x01\x7f\xff\xc3 ")


DAMAGES = (flip, flip, flip, cut, cut_behind, word, word, near, near, numrecs, padding, name)


def damaged(good, end):
	data = bytearray(good)
	dice.choice(DAMAGES)(data, end)
	return data


def reason(ours_said, theirs_said):
	for key, (ours, theirs) in REASONS.items():
		if re.search(ours, ours_said, re.M) and re.search(theirs, theirs_said):
			return key
	return None


def compare(path, seen):
	ours, ours_said, ours_code = verdict(dump, path)
	theirs, theirs_said, theirs_code = verdict("ncvalidator", path, limits=limit)
	if ours_code not in (0, 1):
		return "our reader ends with status %d" % ours_code
	if ours == theirs and theirs_code >= 0:
		return None
	key = NO_VERDICT if theirs_code < 0 else reason(ours_said, theirs_said)
	if key:
		seen[key].append(path)
		return None
	return "ours %s: %s; ncvalidator: %s" % ("takes it" if ours else "refuses",
		ours_said.strip().splitlines()[-1] if not ours else "", " ".join(theirs_said.split()))


def main():
	seen = collections.defaultdict(list)
	copies = failed = 0
	for file in files:
		ok, said, _ = verdict("ncvalidator", file)
		end = header_bytes(file)
		if not ok or end is None:
			print("UNEXPLAINED %s is not good: %s" % (file, said))
			failed += 1
			continue
		with open(file, "rb") as source:
			good = source.read()
		for i in range(number):
			path = "%s-%d" % (os.path.basename(file), i)
			with open(COPY, "wb") as out:
				out.write(damaged(good, end))
			why = compare(COPY, seen)
			copies += 1
			if why:
				os.replace(COPY, path)
				print("UNEXPLAINED %s: %s" % (path, why))
				failed += 1
	for key in sorted(seen):
		print("%s %d" % (key, len(seen[key])))
	print("%d files, %d copies" % (len(files), copies))
	return failed > 0


sys.exit(main())
