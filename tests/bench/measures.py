# SPDX-License-Identifier: GPL-3.0-or-later
"""What is measured, between whom, and what is wanted of it.

A Measure takes one sample of one side in a fresh directory: a dictionary of values, larger is better unless its lines say
otherwise. Who goes when, how often, and what becomes of the samples is not decided here.
"""

import os
import random
import resource
import shlex
import shutil
import subprocess
import time
from collections import namedtuple

import bblogs
import machine

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
STRIDED_RECORD = 47008
STRIDED_PROCESSES = 4
FILL_PAYLOAD = 64
FILL_FILES = 1000
CISTERN = ("default", "log", "private")
PLAIN = "passthrough_ll"
WRITEBACK = "passthrough_ll+writeback"
SIDES_ALL = ("raw", PLAIN, "default", "log", "private")

# One row of the table: of the value key, what ours (a side, or of several the best one) must be compared with base
# (likewise; None: an absolute limit). wanted None: for information. at_most: the smaller the better.
Line = namedtuple("Line", "title key ours base wanted at_most", defaults=(None, False))


class Context:
	"""What samples need: sides by name, compiled programs, how large things shall be."""

	def __init__(self, peers, programs, scale):
		self.peers = peers
		self.programs = programs
		self.scale = scale
		self.reservoir = machine.Reservoir()

	def size(self, full, least=MIB, unit=MIB):
		"""full, scaled, in whole units."""
		return max(int(full * self.scale), least) // unit * unit

	def count(self, full, least=10):
		return max(int(full * self.scale), least)

	def program(self, name, *args):
		return [os.path.join(self.programs, name), *map(str, args)]


class Measure:
	name = title = ""
	units = {}       # of each value
	sides = ()
	lines = ()
	root_only = False

	def peer(self, side):
		"""Whose file system a side works on."""
		return side

	def disk_bytes(self, context):
		"""Most that a sample has on disk at once."""
		return 0

	def warm_bytes(self, context):
		"""Memory that is held warm for the page cache, and size of the file that is written and deleted before the first sample."""
		return 0

	def begin(self, context, area):
		"""Before the first sample."""

	def sample(self, context, side, area):
		raise NotImplementedError


def on_side(method):
	"""sample(context, side, place) on a file system that is made for it and thrown away after it."""
	def sample(self, context, side, area):
		place = context.peers[self.peer(side)].enter(area)
		try:
			return method(self, context, side, place)
		finally:
			place.leave()
	return sample


# ---- sequential writing

class Sequential(Measure):
	def __init__(self, name, title, block, jobs, direct, size, sides, lines):
		self.name, self.title, self.sides = name, title, sides
		self.block, self.jobs, self.direct, self.full = block, jobs, direct, size
		self.units = {"rate": "B/s"}
		self.lines = [Line(f"{title}{who}", "rate", ours, base, wanted) for who, ours, base, wanted in lines]

	def disk_bytes(self, context):
		return context.size(self.full)

	def warm_bytes(self, context):
		return 2 * context.size(self.full)

	@on_side
	def sample(self, context, side, place):
		context.reservoir.release()
		return {"rate": machine.fio(place.path, "write", self.block, context.size(self.full), self.jobs, self.direct)}


class Strided(Measure):
	name = "strided"
	title = "N-1 strided 47,008-byte writes, 4 processes"
	units = {"rate": "B/s"}
	sides = SIDES_ALL
	lines = [Line(title, "rate", "default", "raw", 0.8),
		 Line(f"{title}, best setting", "rate", ("log", "private"), "raw"),
		 Line(title, "rate", "default", PLAIN)]

	def disk_bytes(self, context):
		return context.size(GIB)

	def warm_bytes(self, context):
		return 2 * context.size(GIB)

	@on_side
	def sample(self, context, side, place):
		context.reservoir.release()
		said = machine.run_json(context.program("strided", "strided", context.size(GIB), STRIDED_RECORD,
			*[os.path.join(place.path, "shared")] * STRIDED_PROCESSES))
		return {"rate": said["bytes"] / said["seconds"]}


# ---- reading

class ReadBack(Measure):
	name = "read"
	title = "read back of logged data, 1 MiB"
	units = {"cold": "B/s", "warm": "B/s"}
	sides = ("raw", PLAIN, "log", "default")
	lines = [Line(f"{title}, cold", "cold", "log", "raw", 0.85),
		 Line(f"{title}, warm", "warm", "log", "raw", 0.85),
		 Line("read back with default settings, 1 MiB, cold", "cold", "default", "raw", 0.85),
		 Line("read back with default settings, 1 MiB, warm", "warm", "default", "raw", 0.85)]

	def disk_bytes(self, context):
		return context.size(2 * GIB)

	def warm_bytes(self, context):
		return 2 * context.size(2 * GIB)

	@on_side
	def sample(self, context, side, place):
		values, size = {}, context.size(2 * GIB)
		machine.fio(place.path, "write", MIB, size)
		machine.settle(place.path)
		if machine.can_drop_caches():
			machine.drop_caches()
			context.reservoir.release()
			values["cold"] = machine.fio(place.path, "read", MIB, size, sync=False)
		machine.fio(place.path, "read", MIB, size, sync=False)
		values["warm"] = machine.fio(place.path, "read", MIB, size, sync=False)
		return values


# ---- many files

class Metadata(Measure):
	"""Where the limit of open files is below the number of files, in batches: each side the same."""
	units = {"create": "files/s", "stat": "files/s", "unlink": "files/s"}
	sides = ("raw", PLAIN, WRITEBACK, "default")

	def __init__(self, name, files, wanted):
		self.name = name
		self.title = f"{files:,} files"
		self.files = files
		texts = {"create": "create, write 4 KiB, close of", "stat": "stat of", "unlink": "unlink of"}
		self.lines = [Line(f"{text} {files:,} files", key, "default", (PLAIN, WRITEBACK), wanted) for key, text in texts.items()]
		self.lines += [Line(f"{text} {files:,} files", key, "default", "raw") for key, text in texts.items()]

	@staticmethod
	def batch(files):
		"""So many files are there at once; passthrough_ll needs a descriptor for each, and the limit may be low."""
		return min(files, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 2)

	def disk_bytes(self, context):
		return 8 * KIB * context.count(self.files)

	def warm_bytes(self, context):
		return 16 * KIB * context.count(self.files)

	@on_side
	def sample(self, context, side, place):
		files = context.count(self.files)
		context.reservoir.release()
		said = machine.run_json(context.program("metadata", place.path, files, self.batch(files)))
		return {key: files / max(said[f"{key}_seconds"], 1e-6) for key in self.units}


# ---- draining

def check_copy(original, copy):
	"""The copy has the size of the original, and the same bytes wherever we look."""
	size = os.path.getsize(original)
	if not os.path.exists(copy) or os.path.getsize(copy) != size:
		raise machine.Failed(f"{copy} is not what was to be drained")
	with open(original, "rb") as a, open(copy, "rb") as b:
		for off in [0, max(size - MIB, 0), *(random.randrange(size) for _ in range(16))]:
			a.seek(off)
			b.seek(off)
			if a.read(64 * KIB) != b.read(64 * KIB):
				raise machine.Failed(f"{copy} differs from {original} near byte {off}")


class Drain(Measure):
	name = "drain"
	title = "drain of a 4 GiB file"
	units = {"rate": "B/s"}
	sides = ("cp", "default", "log", "scattered")
	lines = [Line(title, "rate", "default", "cp", 0.9),
		 Line(f"{title}, data=log", "rate", "log", "cp"),
		 Line("drain of 1,000,000 scattered 4 KiB extents (compared with the drain above)", "rate", "scattered", "default", 0.5)]

	def peer(self, side):
		return {"cp": "raw", "scattered": "log"}.get(side, side)

	def disk_bytes(self, context):
		return 2 * context.size(4 * GIB)

	def warm_bytes(self, context):
		return 2 * context.size(4 * GIB)

	@on_side
	def sample(self, context, side, place):
		if side == "scattered":
			extents = context.count(1000000)
			machine.run_json(context.program("scatter", os.path.join(place.path, "job.0.0"), extents, 4 * KIB, 1, 0))
		else:
			machine.fio(place.path, "write", MIB, context.size(4 * GIB))
		machine.settle(place.path)
		original = os.path.join(place.path, "job.0.0")
		size = os.path.getsize(original)
		context.reservoir.release()
		begin = time.monotonic()
		if side == "cp":
			copy = os.path.join(place.path, "copy")
			machine.run(["cp", original, copy])
			machine.run(["sync", copy])
		else:
			copy = os.path.join(place.backing, "job.0.0")
			machine.run([place.command, "flush", "--wait", "--mount", place.path])
		seconds = time.monotonic() - begin
		check_copy(original, copy)
		return {"rate": size / seconds}


class SlowDown(Measure):
	"""An application that writes at half of what the raw file system takes, alone and while other data are drained."""
	name = "slowdown"
	title = "slow-down of a writer at half the raw rate while a drain is on"
	units = {"slowdown": "%", "mean_slowdown": "%", "p99_usec": "us", "p99_alone_usec": "us", "covered": "%"}
	sides = ("cp", "default")
	lines = [Line(title, "slowdown", "default", None, 10.0, True),
		 Line("the same, raw, while cp copies as much", "slowdown", "cp", None, None, True),
		 Line("share of that time in which the drain was on", "covered", "default", None, None),
		 Line("99th percentile of its writes during the drain", "p99_usec", "default", None, None, True),
		 Line("99th percentile of its writes without a drain", "p99_alone_usec", "default", None, None, True)]

	def peer(self, side):
		return "raw" if side == "cp" else side

	def disk_bytes(self, context):
		return 2 * context.size(4 * GIB) + 2 * context.size(2 * GIB)

	def warm_bytes(self, context):
		return 2 * context.size(4 * GIB)

	def begin(self, context, area):
		rates = []
		for _ in range(3):
			rates.append(machine.fio(area, "write", MIB, context.size(2 * GIB)))
			for name in os.listdir(area):
				os.unlink(os.path.join(area, name))
			machine.settle(area)
		self.rate = int(sorted(rates)[1] / 2)

	def paced(self, context, place, name):
		machine.settle(place.path)
		context.reservoir.fill(self.warm_bytes(context))
		context.reservoir.release()
		return machine.run_json(context.program("paced", os.path.join(place.path, name), context.size(2 * GIB), self.rate))

	@on_side
	def sample(self, context, side, place):
		bulk = os.path.join(place.path, "bulk")
		os.mkdir(bulk)
		os.mkdir(os.path.join(place.path, "app"))
		machine.fio(bulk, "write", MIB, context.size(4 * GIB))
		alone = self.paced(context, place, "app/alone")
		carry = ["cp", os.path.join(bulk, "job.0.0"), os.path.join(place.path, "copy")]
		if side != "cp":
			carry = [place.command, "flush", "--wait", bulk]
		machine.settle(place.path)
		context.reservoir.fill(self.warm_bytes(context))
		context.reservoir.release()
		begin = time.monotonic()
		carrier = subprocess.Popen(carry, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
		try:
			beside = machine.run_json(context.program("paced", os.path.join(place.path, "app/beside"), context.size(2 * GIB),
				self.rate))
			still_on = carrier.poll() is None
			status = carrier.wait(600)
			took = time.monotonic() - begin
		finally:
			if carrier.poll() is None:
				carrier.kill()
				carrier.wait()
		if status != 0:
			raise machine.Failed(f"{' '.join(carry)} ended with status {status}")
		return {
			"slowdown": (beside["seconds"] / alone["seconds"] - 1) * 100,
			"mean_slowdown": (beside["mean_usec"] / alone["mean_usec"] - 1) * 100,
			"p99_usec": beside["p99_usec"],
			"p99_alone_usec": alone["p99_usec"],
			"covered": 100.0 if still_on else min(took / beside["seconds"], 1) * 100,
		}


# ---- recovery, and doing nothing

class Recovery(Measure):
	"""Stores are filled once for each side and copied for each sample: a mount changes them."""
	name = "recovery"
	title = "mount after SIGKILL, 10,000,000 extents in the log"
	units = {"seconds": "s", "rss": "B", "peak_rss": "B", "extent": "B"}
	sides = ("default", "no checkpoint")
	lines = [Line(title, "seconds", "default", None, 20.0, True),
		 Line("resident memory after that", "rss", "default", None, float(GIB), True),
		 Line("resident memory at its highest", "peak_rss", "default", None, float(GIB), True),
		 Line("index memory per live extent", "extent", "default", None, None, True),
		 Line("mount when no checkpoint was ever taken", "seconds", "no checkpoint", None, None, True),
		 Line("resident memory at its highest then", "peak_rss", "no checkpoint", None, None, True)]

	def peer(self, side):
		return "default"

	def disk_bytes(self, context):
		return 4 * 400 * context.count(10000000)

	def begin(self, context, area):
		self.models = area
		self.backing = os.path.join(area, "backing")

	def model(self, context, side, place):
		"""The store that side mounts copies of. It is made at first use: the superblock names the backing directory."""
		model = os.path.join(self.models, side)
		if not os.path.exists(model):
			machine.run(context.program("fill", model + ".new", place.backing, context.count(10000000), FILL_FILES, FILL_PAYLOAD,
				0 if side == "no checkpoint" else 1))
			os.rename(model + ".new", model)
		return model

	def sample(self, context, side, area):
		place = context.peers[self.peer(side)].prepare(area)
		place.backing = self.backing
		os.makedirs(place.backing, exist_ok=True)
		machine.run(["cp", "-a", self.model(context, side, place), place.store])
		machine.settle(area)
		try:
			begin = time.monotonic()
			place.mount("drain=unmount")
			names = len(os.listdir(place.path))
			seconds = time.monotonic() - begin
			return self.values(context, place, names, seconds)
		finally:
			place.leave()

	@staticmethod
	def values(context, place, names, seconds):
		status = place.status()
		if names != FILL_FILES or int(status["extents"]) < context.count(10000000) * 99 // 100:
			raise machine.Failed(f"{names} files and {status['extents']} extents came back of {FILL_FILES} and "
				f"{context.count(10000000)}")
		rss, peak = machine.memory_bytes(int(status["pid"]))
		return {"seconds": seconds, "rss": rss, "peak_rss": peak, "extent": status["index_bytes"] / status["extents"]}


class Idle(Measure):
	name = "idle"
	title = "CPU of an idle mount"
	units = {"cpu": "%"}
	sides = ("default",)
	lines = [Line(title, "cpu", "default", None, 1.0, True)]

	@on_side
	def sample(self, context, side, place):
		with open(os.path.join(place.path, "file"), "wb") as file:
			file.write(b"x" * MIB)
		time.sleep(2)
		pids, seconds = place.pids(), max(10 * context.scale, 1)
		before = sum(machine.cpu_seconds(pid) for pid in pids)
		time.sleep(seconds)
		return {"cpu": (sum(machine.cpu_seconds(pid) for pid in pids) - before) / seconds * 100}


class Map(Measure):
	"""No file system takes part: the side only gives a directory."""
	name = "map"
	title = "header and extent-to-variable map, 400 variables, 1,200,000 extents"
	units = {"seconds": "s", "rss": "B"}
	sides = ("default",)
	lines = [Line(title, "seconds", "default", None, 1.0, True),
		 Line("resident memory of that at its highest", "rss", "default", None, 200.0 * MIB, True)]

	def sample(self, context, side, area):
		return machine.run_json(context.program("map", context.count(1200000)))


class Hdf5Chunks(Measure):
	"""No file system takes part, but for the directory: HDF5 makes the files, our walk reads them."""
	name = "hdf5-chunks"
	title = "walk of an HDF5 file of 100,000 chunks, version 1 B-tree: CPU"
	units = {"tree1": "s", "tree2": "s"}
	sides = ("default",)
	lines = [Line(title, "tree1", "default", None, 1.0, True),
		 Line("the same, version 2 B-tree", "tree2", "default", None, 1.0, True)]

	def walk(self, context, path):
		return int(machine.run(context.program("../unit/hdf5-facts", "time", path))) / 1e6

	def sample(self, context, side, area):
		os.makedirs(area, exist_ok=True)
		machine.run(context.program("../mpi/h5-facts", "large", area, context.count(100000, 1000)))
		return {"tree1": self.walk(context, os.path.join(area, "large-old.h5")),
			"tree2": self.walk(context, os.path.join(area, "large.h5"))}


class NetCDF4(Measure):
	"""No file system takes part, but for the directory."""
	name = "netcdf4"
	title = "netCDF-4 from classic, deflate 1, and the check of it: CPU against zlib in one process"
	units = {"cpu_ratio": "x", "plain_ratio": "x", "clock_ratio": "x", "helper_ratio": "x", "helpers_speed_up": "x"}
	sides = ("default",)
	lines = [Line(title, "cpu_ratio", "default", None, 1.5, True),
		 Line("the same without shuffling: the very bytes that zlib has", "plain_ratio", "default", None, 1.5, True),
		 Line("the same, on the clock, all processors", "clock_ratio", "default", None, None, True),
		 Line("the same by two nodes, a thread each: CPU of the one that has more", "helper_ratio", "default", None, 0.75, True),
		 Line("how many times faster two nodes are than one, a thread each", "helpers_speed_up", "default", None, 1.6, False)]

	def sample(self, context, side, area):
		converter = os.path.join(os.environ.get("CISTERN_LIBEXEC", "."), "cistern-nc4")
		os.makedirs(area, exist_ok=True)
		said = machine.run_json(context.program("nc4", area, context.size(128 * MIB), converter))
		return {key: said[key] for key in self.units}


class Replay(Measure):
	"""PnetCDF's logs onto their file, without the copy of that file before and the sync after it, which the driver's flush has not."""
	units = {"rate": "B/s"}
	sides = ("cp", "driver", "default")

	def __init__(self, name, title, total, put, double=False):
		self.name, self.full, self.put, self.double = name, total, put, double
		self.title = f"replay of PnetCDF's logs, {title}"
		self.lines = [Line(self.title, "rate", "default", "driver", 3.0), Line(self.title, "rate", "default", "cp")]

	def peer(self, side):
		return "default" if side == "default" else "raw"

	def disk_bytes(self, context):
		return 6 * context.size(self.full)

	def warm_bytes(self, context):
		return 2 * context.size(self.full)

	def begin(self, context, area):
		if "default" not in context.peers:
			raise machine.Failed("without cistern there is nothing to compare with")
		self.logs = os.path.join(area, "logs")
		self.result = os.path.join(area, "result.nc")
		bblogs.write(self.logs, context.size(self.full), self.put, self.double)
		self.replay(self.result)

	def replay(self, to):
		said = machine.run_json([os.environ["CISTERN"], "recover", "--json", self.logs, "--to", to])["pnetcdf_logs"][0]
		return said["covered_bytes"] / max(said["replay_usec"], 1) * 1e6

	def driver(self, context, area):
		command = shlex.split(os.environ.get("CISTERN_PNETCDF_FLUSH", ""))
		if not command:
			raise machine.Skip("CISTERN_PNETCDF_FLUSH does not name the program, see docs/performance.md")
		said = machine.run_json([*command, area, str(context.size(self.full)), str(self.put), "double" if self.double else "float"])
		return said["bytes"] / said["seconds"]

	def sample(self, context, side, area):
		os.makedirs(area, exist_ok=True)
		to = os.path.join(area, "to.nc")
		context.reservoir.release()
		if side == "driver":
			return {"rate": self.driver(context, area)}
		if side == "cp":
			return {"rate": os.path.getsize(self.result) / machine.timed(["cp", self.result, to])}
		rate = self.replay(to)
		check_copy(self.result, to)
		return {"rate": rate}


# ---- the list

def _writes():
	large = [("", "default", "raw", 0.90), ("", "default", PLAIN, 1.8), (", best setting", ("log", "private"), "raw", 0.95)]
	small = [("", "default", "raw", 0.85), ("", "default", PLAIN, None), (", best setting", ("log", "private"), "raw", 0.95)]
	direct = [("", "default", "raw", 1.0), ("", "default", PLAIN, None)]
	direct_small = [("", "default", "raw", 2.5), ("", "default", PLAIN, None)]
	direct_sides = ("raw", PLAIN, "default")
	everybody = SIDES_ALL + (WRITEBACK,)
	return [
		Sequential("write-1m", "1 MiB writes, 1 process", MIB, 1, False, 2 * GIB, everybody, large),
		Sequential("write-1m-2", "1 MiB writes, 2 processes", MIB, 2, False, 2 * GIB, SIDES_ALL, large),
		Sequential("direct-1m", "1 MiB writes, O_DIRECT, 1 process", MIB, 1, True, 2 * GIB, direct_sides, direct),
		Sequential("direct-1m-2", "1 MiB writes, O_DIRECT, 2 processes", MIB, 2, True, 2 * GIB, direct_sides, direct),
		Sequential("direct-4k", "4 KiB writes, O_DIRECT, 1 process", 4 * KIB, 1, True, 256 * MIB, direct_sides, direct_small),
		Sequential("write-4k", "4 KiB writes, 1 process", 4 * KIB, 1, False, GIB, everybody, small),
	]


def every_measure():
	"""In the order in which they run. passthrough_ll finds its inodes in one list: with few files that does not show."""
	return [*_writes(), Strided(), ReadBack(), Metadata("files", 100000, 1.0), Metadata("files-few", 5000, 1.0), Drain(),
		SlowDown(), Recovery(), Idle(), Map(), Hdf5Chunks(), NetCDF4(),
		Replay("replay-64k", "puts of 64 KiB", 256 * MIB, 64 * KIB),
		Replay("replay-32", "puts of 32 bytes", 32 * MIB, 32),
		Replay("replay-double", "puts of 64 KiB of doubles as float", 256 * MIB, 64 * KIB, True)]


def remove(path):
	shutil.rmtree(path, ignore_errors=True)
