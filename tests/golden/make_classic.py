#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-3.0-or-later
"""make_classic.py SEED TYPES: CDL of a classic file made up at random: dimensions, variables with and without records, of
many types and shapes, attributes, values. For ncgen."""

import random
import sys

LIMITS = {"byte": (-128, 127), "short": (-2**15, 2**15 - 1), "int": (-2**31, 2**31 - 1), "ubyte": (0, 255),
          "ushort": (0, 2**16 - 1), "uint": (0, 2**32 - 1), "int64": (-2**63, 2**63 - 1), "uint64": (0, 2**64 - 1)}
SUFFIX = {"byte": "b", "short": "s", "int": "", "ubyte": "ub", "ushort": "us", "uint": "u", "int64": "ll", "uint64": "ull"}


def value(kind, rng):
    if kind == "char":
        return '"%s"' % rng.choice("abcdefghij")
    if kind in ("float", "double"):
        return repr(rng.randrange(-10**6, 10**6) / 8) + ("f" if kind == "float" else "")
    low, high = LIMITS[kind]
    return str(rng.randrange(max(low, -2**62), min(high, 2**62)) // 2 + 1) + SUFFIX[kind]


def main():
    rng, kinds = random.Random(sys.argv[1]), sys.argv[2].split(",")
    dims = [rng.choice((1, 2, 3, 5, 8, 13, 40)) for _ in range(rng.randrange(1, 5))]
    records = rng.randrange(0, 4)
    defs, data = [], []
    for v in range(rng.randrange(1, 9)):
        kind, shape = rng.choice(kinds), rng.sample(range(len(dims)), rng.randrange(0, min(3, len(dims)) + 1))
        is_record = records and rng.random() < .6
        names = (["t"] if is_record else []) + ["d%d" % d for d in shape]
        num = records if is_record else 1
        for d in shape:
            num *= dims[d]
        defs.append(" %s v%d%s ;" % (kind, v, "(%s)" % ", ".join(names) if names else ""))
        if rng.random() < .5:
            defs.append(' v%d:units = "%s" ; v%d:a = %s ;' % (v, "x" * rng.randrange(1, 9), v, value("double", rng)))
        if rng.random() < .8:
            if kind == "char":
                data.append(' v%d = "%s" ;' % (v, "".join(rng.choice("klmnop") for _ in range(num))))
            else:
                data.append(" v%d = %s ;" % (v, ", ".join(value(kind, rng) for _ in range(num))))
    print("netcdf f {\ndimensions:")
    if records:
        print(" t = UNLIMITED ;")
    print("\n".join(" d%d = %d ;" % d for d in enumerate(dims)))
    print("variables:\n" + "\n".join(defs) + '\n :title = "number %s" ;' % sys.argv[1])
    print("data:\n" + "\n".join(data) + "\n}")


main()
