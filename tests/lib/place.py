# SPDX-License-Identifier: GPL-3.0-or-later
"""Which node of a job is the home of what, as docs/design/many-nodes.md, 1, and format/place have it: the hashes are SplitMix64's and FNV-1a."""

HOME_SHIFT, BACKING_BIT, MASK = 40, 1 << 63, (1 << 64) - 1
ROOT_INO = 1


def inode_of(shown):
    """The inode number that the store has, from the one that a mount shows (format/place/shown.h)."""
    if shown >= 1 << 52:
        return (shown >> 36 & 0xFFFF) << HOME_SHIFT | shown & (1 << 36) - 1
    return shown if shown == ROOT_INO else BACKING_BIT | shown


def mix(x):
    x ^= x >> 30
    x = x * 0xBF58476D1CE4E5B9 & MASK
    x ^= x >> 27
    x = x * 0x94D049BB133111EB & MASK
    return x ^ x >> 31


def home_of(ino, nodes):
    """Of a file."""
    return mix(ino) * nodes >> 64 if ino & BACKING_BIT else ino >> HOME_SHIFT


def first_domain(ino, nodes):
    """The home of a shared file's first file domain; the others follow by turns."""
    return mix(ino) * nodes >> 64


def name_server(parent, name, nodes):
    h = 0xCBF29CE484222325
    for byte in name.encode():
        h = (h ^ byte) * 0x100000001B3 & MASK
    return mix(mix(parent) ^ h) * nodes >> 64
