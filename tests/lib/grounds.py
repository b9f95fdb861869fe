# SPDX-License-Identifier: GPL-3.0-or-later
"""grounds.py DIRECTORY: calls in a tree with another file system, a read-only one, and immutable and append-only things below it; what each says."""
import errno
import os
import sys

os.chdir(sys.argv[1])


def says(text, call, *args, **kw):
    try:
        got = call(*args, **kw)
        if isinstance(got, int) and call is os.open:
            os.close(got)
        print(text, "ok")
    except OSError as e:
        print(text, errno.errorcode[e.errno])


def make(path):
    with open(path, "w") as f:
        f.write("text\n")


def write(path, flags=0):
    return os.open(path, os.O_WRONLY | flags)


make("new")
os.mkdir("newdir")
make("newdir/in")
os.mkdir("newdir/deep")
make("other/made")
os.mkdir("other/dir")
for name in "new", "old", "newdir", "olddir", "newdir/in":
    says("rename %s to other" % name, os.rename, name, "other/got")
says("rename from other", os.rename, "other/made", "got")
says("rename from other/old", os.rename, "other/old", "newdir/deep/got")
says("rename in other", os.rename, "other/made", "other/dir/made")
says("rename over in other", os.rename, "old", "other/old")
says("link to other", os.link, "new", "other/linked")
says("link old to other", os.link, "old", "other/linked")
says("link from other", os.link, "other/old", "linked")
says("link in other", os.link, "other/old", "other/dir/linked")
says("rename other", os.rename, "other", "moved")
says("rmdir other", os.rmdir, "other")

says("create in ro", make, "ro/new")
says("mkdir in ro", os.mkdir, "ro/newdir")
says("symlink in ro", os.symlink, "x", "ro/link")
says("unlink in ro", os.unlink, "ro/old")
says("write in ro", write, "ro/old")
says("chmod in ro", os.chmod, "ro/old", 0o600)
says("touch in ro", os.utime, "ro/old")
says("read in ro", os.open, "ro/old", os.O_RDONLY)
says("xattr in ro", os.setxattr, "ro/old", "user.x", b"1")

for kind in "immutable", "append":
    says("create in " + kind, make, kind + "/new")
    says("mkdir in " + kind, os.mkdir, kind + "/newdir")
    says("unlink in " + kind, os.unlink, kind + "/old")
    says("rename in " + kind, os.rename, kind + "/old", kind + "/moved")
    says("rename out of " + kind, os.rename, kind + "/old", "moved")
    make("into")
    says("rename into " + kind, os.rename, "into", kind + "/moved")
    if os.path.exists("into"):
        os.unlink("into")
    says("rename " + kind, os.rename, kind, "moved")
    says("chmod " + kind, os.chmod, kind, 0o700)
    says("below " + kind, make, kind + "/sub/new")
    name = "f-" + kind
    says("write " + name, write, name)
    says("append " + name, write, name, os.O_APPEND)
    says("truncate " + name, write, name, os.O_TRUNC | os.O_APPEND)
    says("truncate(2) " + name, os.truncate, name, 2)
    says("read " + name, os.open, name, os.O_RDONLY)
    says("unlink " + name, os.unlink, name)
    says("rename " + name, os.rename, name, "moved")
    says("rename over " + name, os.rename, "newdir/in", name)
    says("link " + name, os.link, name, "linked")
    says("chmod " + name, os.chmod, name, 0o640)
    says("chown " + name, os.chown, name, 1, 1)
    says("touch " + name, os.utime, name)
    says("utime " + name, os.utime, name, (1, 1))
    says("xattr " + name, os.setxattr, name, "user.x", b"1")

for size in 200, 143, 144:
    name = "n" * size
    says("create %d" % size, make, "short/" + name)
    says("mkdir %d" % size, os.mkdir, "short/d" + name[1:])
    says("rename %d" % size, os.rename, "short/" + name if size < 144 else "short/old", "short/m" + name[1:])
print(sorted(os.listdir(".")), sorted(os.listdir("other")), sorted(os.listdir("newdir")))
