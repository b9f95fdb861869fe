#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-3.0-or-later
"""make_classic_corpus DIR: damaged netCDF classic headers, made from good ones that ncgen writes.

Names say who must refuse them: bad-* ncdump and Cistern, strict-* Cistern alone (the format's specification forbids it, and
ncdump does not look), good-* nobody. What is in tests/fuzz/corpus/classic was made by this."""

import os
import struct
import subprocess
import sys

CDL = """netcdf f {
dimensions: time = UNLIMITED ; x = 3 ; yy = 5 ;
variables:
  byte b(x) ; char c(yy) ; short s(time, x) ; int i ; float f(time, yy) ; f:units = "K" ; double d(yy, x) ;
  f:_FillValue = 1.f ;
  :title = "golden" ; :empty = "" ;
data: b = 1, 2, 3 ; i = 7 ; s = 1, 2, 3, 4, 5, 6 ; f = 1, 2, 3, 4, 5, 6, 7, 8, 9, 10 ;
}
"""


def good(kind, where):
	path = os.path.join(where, "good-cdf%d" % kind)
	subprocess.run(["ncgen", "-k", str(kind), "-o", path, "-"], input=CDL.encode(), check=True)
	with open(path, "rb") as written:
		return bytearray(written.read())


def main():
	where = sys.argv[1]
	os.makedirs(where, exist_ok=True)

	def write(name, data):
		with open(os.path.join(where, name), "wb") as out:
			out.write(data)

	def patched(base, at, value):
		return base[:at] + value + base[at + len(value):]

	one, two, five = (good(kind, where) for kind in (1, 2, 5))
	x = two.index(b"\0\0\0\1x\0\0\0")            # the dimension "x": name, then length
	var = two.index(b"\0\0\0\1d\0\0\0")          # double d(yy, x): name, ndims, 2 dims, no attributes, type, vsize, begin
	write("bad-magic-3", patched(two, 3, b"\3"))
	write("bad-magic-hdf", patched(two, 0, b"\x89HDF"))
	write("bad-empty", b"")
	write("bad-cut-magic", two[:3])
	write("strict-cut-dims", two[:30])
	write("bad-cut-vars", two[:300])
	write("bad-cut-5", five[:200])
	write("bad-tag-dims", patched(two, 8, struct.pack(">I", 11)))
	write("bad-tag-atts", patched(two, two.index(b"\0\0\0\5title") - 8, struct.pack(">I", 77)))
	write("bad-type-0", patched(two, var + 28, struct.pack(">I", 0)))
	write("bad-type-99", patched(two, var + 28, struct.pack(">I", 99)))
	write("bad-type-10-in-cdf2", patched(two, var + 28, struct.pack(">I", 10)))
	write("bad-dimid", patched(two, var + 12, struct.pack(">I", 3)))
	write("bad-dimid-huge", patched(two, var + 12, struct.pack(">I", 0xFFFFFFF0)))
	write("bad-unlimited-second", patched(two, var + 16, struct.pack(">I", 0)))
	write("bad-begin-in-header", patched(two, var + 36, struct.pack(">Q", 8)))
	write("bad-begin-overlap", patched(two, var + 36, struct.pack(">Q", 460)))
	write("bad-begin-negative", patched(two, var + 36, struct.pack(">q", -8)))
	write("bad-two-unlimited", patched(two, x + 8, struct.pack(">I", 0)))
	write("bad-count-of-dims-5", patched(five, 16, struct.pack(">q", -1)))
	write("strict-name-nul", patched(two, two.index(b"title") + 1, b"\0"))
	write("bad-name-length-0", patched(two, two.index(b"\0\0\0\5title"), struct.pack(">I", 0)))
	# As nc_rename_att() to a shorter name leaves it outside of the define mode.
	write("good-shortened-name", patched(two, two.index(b"title") + 1, b"\0" * 4))
	write("good-vsize-wrong", patched(two, var + 32, struct.pack(">I", 5)))
	write("good-streaming", patched(two, 4, b"\xff" * 4))
	write("good-padding-rubbish", patched(two, x + 5, b"\7"))


main()
