#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-3.0-or-later
"""put_posix.py WHERE EXPECTED FIRST LAST: the random puts of tests/golden/make_bblog.py by pwrite(2), as PnetCDF without its
burst-buffer driver would do them: WHERE/SEED.nc is written through two descriptors in turn, EXPECTED/SEED.nc is what it must be."""

import os
import random
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "golden"))
sys.dont_write_bytecode = True
import make_bblog  # noqa: E402


class Written(make_bblog.File):
    """Each put also goes to the file system."""

    def open(self, path):
        self.fds = [os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o644), os.open(path, os.O_RDWR)]
        os.pwrite(self.fds[0], bytes(self.bytes), 0)
        self.puts = 0

    def put(self, v, index, code, value):
        super().put(v, index, code, value)
        self.puts += 1
        os.pwrite(self.fds[self.puts % 2], self.external(v, code, value), self.offset(v, index))

    def close(self):
        head = self.finish()[:12]
        os.pwrite(self.fds[0], head, 0)
        for fd in self.fds:
            os.close(fd)


def trial(where, expected, seed):
    rnd = random.Random(seed)
    file = Written(rnd)
    file.open("%s/%d.nc" % (where, seed))
    log = make_bblog.Log(rnd, "<", 1, 0, 1, "/none")
    for _ in range(40):
        log.add(file, True)
    file.close()
    make_bblog.write("%s/%d.nc" % (expected, seed), file.finish())


def main():
    for seed in range(int(sys.argv[3]), int(sys.argv[4]) + 1):
        trial(sys.argv[1], sys.argv[2], seed)


if __name__ == "__main__":
    main()
