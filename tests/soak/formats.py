#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-3.0-or-later
"""formats.py CISTERN WORK FOLDER: what we say of each netCDF and HDF5 file below FOLDER, beside what others do with it.

Ours: fsck, a drain with verify=format, inspect, and for classic files a drain with layout=netcdf4. Theirs: ncdump, h5dump, and h5py where
this python has it. A line for each verdict that differs, and at last how many files there were; 1 when there was any difference.
WORK is an empty folder for mounts. A note of ours is no verdict: it may stand beside whatever they say. What takes them longer than
TOOL_SECONDS is not judged."""

import json
import os
import shutil
import subprocess
import sys


def can_import(name):
    return subprocess.run([sys.executable, "-c", "import " + name], capture_output=True, check=False).returncode == 0


TOOL_SECONDS = 20
BATCH_BYTES = 256 << 20  # of files in a mount at a time

cistern, work, folder = sys.argv[1:4]
HAVE = {name: can_import(name) for name in ("h5py", "netCDF4")}
differences = 0


def differs(path, what, ours, theirs):
    global differences
    differences += 1
    print("%s: %s: ours: %s; theirs: %s" % (os.path.relpath(path, folder), what, ours, theirs), flush=True)


def run(*command, timeout=None, cwd=None):
    """Exit status and output; status None: it took too long."""
    try:
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=timeout, cwd=cwd, check=False)
        return done.returncode, done.stdout.decode(errors="replace")
    except subprocess.TimeoutExpired:
        return None, ""


def format_of(path):
    with open(path, "rb") as f:
        first = f.read(8)
        if first[:3] == b"CDF" and first[3:4] in (b"\1", b"\2", b"\5"):
            return "classic"
        at = 0
        while first and at < 1 << 30:
            if first == b"\x89HDF\r\n\x1a\n":
                return "hdf5"
            at = at * 2 or 512
            f.seek(at)
            first = f.read(8)
    return None


# ---- theirs

def walk_h5py(path):
    """Opens all objects and their attributes in a process of its own, since a bad file may end that."""
    code = ("import h5py,sys\nwith h5py.File(sys.argv[1],'r') as f:\n"
            " def each(n,o):\n  [o.attrs.get_id(a) for a in o.attrs]\n  getattr(o,'dtype',0)\n f.visititems(each)")
    return run(sys.executable, "-c", code, path, timeout=TOOL_SECONDS)[0] if HAVE["h5py"] else None


def theirs(path, kind):
    """'reads': all of it; 'opens': but not all values; 'refuses'; None: nobody said."""
    if kind == "classic":
        status, _ = run("ncdump", path, timeout=TOOL_SECONDS)
        return None if status is None else "reads" if status == 0 else "refuses"
    status, said = run("h5dump", path, timeout=TOOL_SECONDS, cwd=os.path.dirname(path))
    if status is None:
        return None
    if status == 0:
        return "reads"
    opens = run("h5dump", "-H", path, timeout=TOOL_SECONDS)[0] == 0 or walk_h5py(path) == 0
    return "opens" if opens and ("filter" in said or "unable to print data" in said) else "refuses"


SHAPES = """
import json, sys
path, is_netcdf, names = sys.argv[1], sys.argv[2] == "True", json.load(sys.stdin)
found = {}
def add(group, prefix):
    for name, variable in group.variables.items():
        found[prefix + name] = list(variable.shape)
    for name, inner in group.groups.items():
        add(inner, prefix + name + "/")
if is_netcdf:
    import netCDF4
    with netCDF4.Dataset(path) as data:
        add(data, "")
else:
    import h5py
    with h5py.File(path, "r") as data:
        for name in names:  # an object may have several
            if isinstance(data.get(name), h5py.Dataset):
                found[name] = list(data[name].shape or ())
print(json.dumps(found))
"""


def shapes(path, is_netcdf, ours):
    """name -> shape of those variables of ours that they find, or None when nobody can tell. In a process that may end at a bad file."""
    done = subprocess.run([sys.executable, "-c", SHAPES, path, str(is_netcdf)], input=json.dumps(list(ours)), capture_output=True, text=True,
                          check=False)
    return json.loads(done.stdout) if done.returncode == 0 else None


# ---- ours

def fsck(path):
    status, said = run(cistern, "fsck", path)
    said = said.strip().split("\n")
    if status not in (0, 4):
        return "fails", "fsck ends with %s: %s" % (status, said[0])
    return ("damaged" if status == 4 else "sound" if "is sound" in said[-1] else "noted"), said[0]


def same_bytes(a, b):
    return run("cmp", "-s", a, b)[0] == 0


class Mount:
    def __init__(self, settings):
        self.at = {name: os.path.join(work, name) for name in ("backing", "store", "mnt")}
        for name in ("backing", "mnt"):
            os.mkdir(self.at[name])
        status, said = run(cistern, "mount", self.at["backing"], self.at["mnt"], "--store", self.at["store"], "-o", settings)
        if status != 0:
            sys.exit("formats.py: no mount: " + said)

    def path(self, number):
        return os.path.join(self.at["mnt"], "%d.nc" % number)

    def drained(self, number):
        return os.path.join(self.at["backing"], "%d.nc" % number)

    def end(self):
        """What the manifest says of each file."""
        run(cistern, "umount", "--wait", self.at["mnt"])
        with open(os.path.join(self.at["store"], "manifest.json"), encoding="utf-8") as f:
            return {entry["path"]: entry for entry in json.load(f)["files"]}

    def remove(self):
        run("fusermount3", "-uz", self.at["mnt"])
        for name in self.at.values():
            shutil.rmtree(name, ignore_errors=True)


def check_inspect(path, inside, kind, verdict):
    status, said = run(cistern, "inspect", "--json", inside)
    if status != 0:
        differs(path, "inspect", "fails: " + said.strip()[:200], verdict)
        return
    file = json.loads(said)["file"]
    if not file["mapped"]:
        differs(path, "inspect", "raw: " + file["reason"][:200], "it is read")
        return
    ours = {v["name"]: v["dims"] for v in file["variables"] if v["kind"] not in ("header", "metadata", "free")}
    known = shapes(path, kind == "classic" or file["format"].startswith("netCDF-4"), ours)
    for name, dims in ours.items() if known is not None else ():
        if name not in known or known[name] != dims:
            differs(path, "inspect", "%s%s" % (name, dims), known.get(name, "no such variable"))


def drain(files):
    mount = Mount("drain=unmount,verify=format")
    try:
        for number, (path, kind, verdict, said) in enumerate(files):
            shutil.copyfile(path, mount.path(number))
            if said == "reads" and verdict == "sound":
                check_inspect(path, mount.path(number), kind, said)
        manifest = mount.end()
        for number, (path, kind, verdict, said) in enumerate(files):
            entry = manifest.get("%d.nc" % number, {"state": "missing"})
            if entry["state"] != "verified" and verdict != "damaged":
                differs(path, "drain", "%s: %s" % (entry["state"], entry.get("error", "")), said)
            elif entry["state"] == "verified" and not same_bytes(path, mount.drained(number)):
                differs(path, "drain", "other bytes", said)
    finally:
        mount.remove()


def body_of(path):
    status, said = run("ncdump", path, timeout=TOOL_SECONDS)
    return said.split("\n", 1)[-1] if status == 0 else None


def convert(files):
    files = [f for f in files if f[1] == "classic" and f[3] == "reads"]
    if not files:
        return
    mount = Mount("drain=unmount,layout=netcdf4")
    try:
        for number, entry in enumerate(files):
            shutil.copyfile(entry[0], mount.path(number))
        manifest = mount.end()
        for number, (path, _, _, _) in enumerate(files):
            entry = manifest.get("%d.nc" % number, {"state": "missing"})
            if entry.get("layout") == "netcdf4":
                if body_of(path) != body_of(mount.drained(number)):
                    differs(path, "netcdf4", "other values", "ncdump of the classic file")
            elif not same_bytes(path, mount.drained(number)):
                differs(path, "netcdf4", "%s, and other bytes" % entry["state"], "the classic file")
    finally:
        mount.remove()


def main():
    files, batch = [], []
    for top, _, names in sorted(os.walk(folder)):
        files += [os.path.join(top, name) for name in sorted(names)]
    files = [(p, format_of(p)) for p in files if os.path.isfile(p) and not os.path.islink(p)]
    files = [(p, kind) for p, kind in files if kind]
    for path, kind in files:
        verdict, said = fsck(path)
        other = theirs(path, kind)
        if verdict == "fails" or (verdict == "damaged" and other == "reads") or (verdict == "sound" and other == "refuses"):
            differs(path, "fsck", said, other)
        batch.append((path, kind, verdict, other))
        if sum(os.path.getsize(f[0]) for f in batch) > BATCH_BYTES or path == files[-1][0]:
            drain(batch)
            convert(batch)
            batch = []
    print("%d files, %d verdicts that differ%s" % (len(files), differences, "" if all(HAVE.values()) else "; without h5py or netCDF4"))
    return 1 if differences else 0


if __name__ == "__main__":
    sys.exit(main())
