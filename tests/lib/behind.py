# SPDX-License-Identifier: GPL-3.0-or-later
#
# What others change in a backing directory, and what readers of a mount see of it.
#
#   behind.py polls BACKING MOUNT RECORDS      one appends records, another one polls with a descriptor that was open before
#   behind.py rewritten BACKING MOUNT SECONDS  a file is rewritten in place, its times set back; who has it open or mapped sees that in time
#   behind.py sweep BACKING WINDOW SECONDS SEED MOUNT...
#       random changes of random files, and readers with new, old and mapped descriptors through each mount. What they see must have been
#       there at a moment within WINDOW seconds before the read: no byte that no file ever had, nothing older, nothing of another file.
#
# The model is what this process itself wrote into the backing directory, and when.

import mmap
import os
import random
import subprocess
import sys
import threading
import time

CELL = 32


def fail(*words):
    print(*words, flush=True)
    os._exit(1)


# ---- one file that grows

def polls(backing, mount, records):
    record = lambda i: b"%015d\n" % i
    out = open(backing + "/log", "ab", 0)
    out.write(record(0))
    fd = os.open(mount + "/log", os.O_RDONLY)
    if os.read(fd, 16) != record(0):
        fail("the first record is wrong")

    def append():
        for i in range(1, records):
            out.write(record(i))
            time.sleep(0.0005)

    thread = threading.Thread(target=append)
    thread.start()
    got = record(0)
    end = time.monotonic() + 60
    while len(got) < 16 * records and time.monotonic() < end:
        some = os.read(fd, 4096)
        got += some
        if not some:
            time.sleep(0.001)
    thread.join()
    wrong = sum(got[16 * i:16 * i + 16] != record(i) for i in range(records))
    if wrong:
        fail(wrong, "of", records, "records are wrong")


# ---- one file that is rewritten in place

def rewritten(backing, mount, seconds):
    path, size = backing + "/f", 20000
    with open(path, "wb") as out:
        out.write(b"A" * size)
    time.sleep(0.3)
    fd = os.open(mount + "/f", os.O_RDONLY)
    mapped = mmap.mmap(fd, size, prot=mmap.PROT_READ)
    if os.pread(fd, size, 0) != b"A" * size or mapped[:] != b"A" * size:
        fail("it is not read as it is")
    was = os.stat(path)
    with open(path, "r+b") as out:
        out.write(b"B" * size)
    os.utime(path, ns=(was.st_atime_ns, was.st_mtime_ns))
    end = time.monotonic() + seconds
    while os.pread(fd, size, 0) != b"B" * size or mapped[:] != b"B" * size:
        if time.monotonic() > end:
            fail("after", seconds, "s it is not seen")
        time.sleep(0.01)


# ---- the sweep

class Content:
    """One file, whatever name it has: for each cell what it had, and since when, and until when."""

    def __init__(self, number):
        self.number = number
        self.cells = []  # of each a list of [version, begin, end]; version None: it is behind the end
        self.size = 0  # cells
        self.version = 0

    def bytes_of(self, cell, version):
        return b"%08d %08d %013d\n" % (self.number, cell, version)

    def set(self, cell, version, now):
        while len(self.cells) <= cell:
            self.cells.append([[None, 0, None]])
        self.cells[cell].append([version, now, None])

    def ended(self, cells, now):
        for cell in cells:
            history = self.cells[cell]
            for old in history[:-1]:
                if old[2] is None:
                    old[2] = now
            del history[:-20]

    def had(self, cell, version, begin, end):
        if cell >= len(self.cells):
            return version is None
        return any(v == version and b <= end and (e is None or e >= begin) for v, b, e in self.cells[cell])


class File:
    """A name of the backing directory, that leads to one content after the other."""

    def __init__(self, backing, name, steady):
        self.path = backing + "/" + name
        self.name = name
        self.steady = steady  # it is mapped: never cut
        self.lock = threading.Lock()
        self.contents = []  # [content, begin, end]
        self.replace("create")

    def now(self):
        return self.contents[-1][0]

    # What is to be in cells first to last - 1 from now on.
    def put(self, fd, content, first, last, at=None):
        content.version += 1
        data = b"".join(content.bytes_of(i, content.version) for i in range(first, last))
        for i in range(first, last):
            content.set(i, content.version, time.monotonic())
        os.pwrite(fd, data, first * CELL)
        content.ended(range(first, last), time.monotonic())
        content.size = max(content.size, last)

    def replace(self, how):
        content = Content(numbers.pop())
        fresh = self.path + ".new"
        fd = os.open(fresh, os.O_RDWR | os.O_CREAT | os.O_TRUNC)
        self.put(fd, content, 0, rnd.randint(1, 600))
        os.close(fd)
        before = time.monotonic()
        if self.contents and how == "times":
            self.restore(fresh, os.stat(self.path))
        os.rename(fresh, self.path)
        if self.contents:
            self.contents[-1][2] = time.monotonic()
        self.contents.append([content, before, None])

    def restore(self, path, st):
        os.utime(path, ns=(st.st_atime_ns, st.st_mtime_ns))

    def cut(self, fd, content, size):
        gone = range(size, content.size)
        for i in gone:
            content.set(i, None, time.monotonic())
        os.ftruncate(fd, size * CELL)
        content.ended(gone, time.monotonic())
        content.size = size

    def change(self):
        what = rnd.choice(["append", "append", "rewrite", "rewrite", "rewrite", "times", "cut", "anew", "replace", "replace times"])
        with self.lock:
            if what.startswith("replace"):
                return self.replace(what.split()[-1])
            content = self.now()
            st = os.stat(self.path)
            fd = os.open(self.path, os.O_RDWR)
            if what == "append":
                self.put(fd, content, content.size, content.size + rnd.randint(1, 200))
            elif what in ("rewrite", "times") and content.size:
                first = rnd.randrange(content.size)
                self.put(fd, content, first, min(content.size, first + rnd.randint(1, 300)))
                if what == "times":
                    self.restore(self.path, st)
            elif what == "cut" and not self.steady:
                self.cut(fd, content, rnd.randint(0, content.size))
            elif what == "anew" and not self.steady:
                self.cut(fd, content, 0)
                self.put(fd, content, 0, rnd.randint(1, 600))
            os.close(fd)

    def content(self, number):
        return next((c for c in self.contents if c[0].number == number), None)


class Reader(threading.Thread):
    def __init__(self, mount, files, window, seed):
        super().__init__(daemon=True)
        self.mount, self.files, self.window = mount, files, window
        self.rnd = random.Random(seed)
        self.reads = 0

    def check(self, file, data, off, begin, how, wanted=None):
        end = time.monotonic()
        begin -= self.window
        number = wanted
        for at in range(0, len(data) // CELL * CELL, CELL):
            cell = data[at:at + CELL]
            try:
                own, index, version = (int(w) for w in cell.split())
                good = cell[-1:] == b"\n" and index == (off + at) // CELL
            except ValueError:
                good = False
            if not good:
                self.wrong(file, how, off + at, "bytes that it never had", cell)
            if number is None:
                number = own
            if own != number:
                self.wrong(file, how, off + at, "bytes of file %d in %d" % (own, number), cell)
            with file.lock:
                entry = file.content(own)
                had = entry and entry[0].had(index, version, begin, end)
                if had and wanted is None and entry[2] is not None and entry[2] < begin:
                    had = False
                story = entry and index < len(entry[0].cells) and entry[0].cells[index]
            if not had:
                self.wrong(file, how, off + at, "not in time: version", version, "of", story, "read", begin, end)
        self.reads += 1
        return number

    def wrong(self, file, how, at, *words):
        fail(file.name, "through", self.mount, how, "at", at, *words)

    # Where the data end the file did, at some moment.
    def check_end(self, file, number, off, got, begin, how):
        end = time.monotonic()
        with file.lock:
            entry = file.content(number)
            if entry and not entry[0].had((off + got) // CELL, None, begin - self.window, end):
                story = entry[0].cells[(off + got) // CELL]
                self.wrong(file, how, off + got, "an end where none was:", story, "read", begin - self.window, end)

    def read_some(self, file, fd, how, number):
        cell, cells = self.rnd.randrange(800), self.rnd.randint(1, 400)
        if number is None:
            cell = 0
        begin = time.monotonic()
        data = os.pread(fd, cells * CELL, cell * CELL)
        if len(data) % CELL:
            self.wrong(file, how, cell * CELL + len(data), "an end within a record", data[-len(data) % CELL:])
        found = self.check(file, data, cell * CELL, begin, how, number)
        if found is not None and len(data) < cells * CELL:
            self.check_end(file, found, cell * CELL, len(data), begin, how)
        return found

    def once(self, file):
        fd = os.open(self.mount + "/" + file.name, os.O_RDONLY)
        self.read_some(file, fd, "opened anew", None)
        os.close(fd)

    def long(self, file):
        fd = os.open(self.mount + "/" + file.name, os.O_RDONLY)
        number = None
        for _ in range(self.rnd.randint(1, 60)):
            try:
                number = self.read_some(file, fd, "open", number)
                if self.rnd.random() < 0.3:
                    os.fstat(fd)
            except OSError as e:
                if e.errno != 116:  # ESTALE: it was replaced, and the mount could not keep it
                    raise
                break
            time.sleep(self.rnd.random() * 0.02)
        os.close(fd)

    def mapped(self, file):
        fd = os.open(self.mount + "/" + file.name, os.O_RDONLY)
        size = os.fstat(fd).st_size
        m = mmap.mmap(fd, size, prot=mmap.PROT_READ)
        number = None
        for _ in range(self.rnd.randint(1, 60)):
            cell = self.rnd.randrange(size // CELL)
            begin = time.monotonic()
            data = m[cell * CELL:(cell + self.rnd.randint(1, 200)) * CELL]
            number = self.check(file, data, cell * CELL, begin, "mapped", number)
            time.sleep(self.rnd.random() * 0.02)
        m.close()
        os.close(fd)

    def run(self):
        try:
            while not stop.is_set():
                file = self.rnd.choice(self.files)
                how = self.rnd.choice([self.once, self.long] + [self.mapped] * file.steady)
                try:
                    how(file)
                except OSError as e:
                    if e.errno not in (2, 116):  # its name changes hands
                        raise
        except BaseException as e:
            fail("reader of", self.mount, repr(e))


# With KNOWN the store has had changes of all files, which have been drained: it knows the files.
def make_known(files, mounts):
    if "KNOWN" not in os.environ:
        return
    for file in files:
        os.chmod(mounts[0] + "/" + file.name, 0o640)
    subprocess.run([os.environ["CISTERN"], "flush", "--wait", "--mount", mounts[0]], check=True)


def sweep(backing, window, seconds, mounts):
    files = [File(backing, "f%d" % i, i % 3 == 0) for i in range(6)]
    make_known(files, mounts)
    time.sleep(0.2)
    readers = [Reader(m, files, window, rnd.random()) for m in mounts for _ in range(4)]
    for r in readers:
        r.start()
    end = time.monotonic() + seconds
    changes = 0
    while time.monotonic() < end:
        rnd.choice(files).change()
        changes += 1
        time.sleep(rnd.choice([0, 0, 0.001, 0.01, 0.05, 0.3]))
    stop.set()
    for r in readers:
        r.join()
    print(changes, "changes,", sum(r.reads for r in readers), "reads")


numbers = list(range(999999, 1, -1))
stop = threading.Event()
if sys.argv[1] == "polls":
    polls(sys.argv[2], sys.argv[3], int(sys.argv[4]))
elif sys.argv[1] == "rewritten":
    rewritten(sys.argv[2], sys.argv[3], float(sys.argv[4]))
else:
    rnd = random.Random(int(sys.argv[5]))
    sweep(sys.argv[2], float(sys.argv[3]), float(sys.argv[4]), sys.argv[6:])
