#!/usr/bin/env bats
# SPDX-License-Identifier: GPL-3.0-or-later
#
# Other people's netCDF and HDF5 files: what fsck, drains and inspect say of each, beside ncdump, h5dump and h5py. The folder is told:
#
#   FORMATS  a folder with such files, at any depth: the test files of HDF5, of netCDF-C, of netCDF4-python
#
# Run by make suites FORMATS=DIR. Every verdict that differs is a line; some have a reason that is theirs (an older HDF5 than the file).

load "${top_srcdir:?}/tests/lib/mount.bash"

setup() {
	cistern_setup
}

teardown() {
	cistern_teardown
}

@test "verdicts over a folder of files are those of other programs" {
	[ -n "${FORMATS:-}" ] || skip "FORMATS is not told"
	needs_fuse
	needs_program ncdump h5dump
	"$(python_with h5py)" "$top_srcdir/tests/soak/formats.py" "$CISTERN" "$WORK" "$FORMATS" >&3
}
