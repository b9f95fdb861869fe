# SPDX-License-Identifier: GPL-3.0-or-later
"""What is measured of a job of two nodes. See measures.py for what a Measure is."""

import os
import subprocess
import time

import jobs
import machine
from measures import GIB, KIB, MIB, STRIDED_RECORD, Line, Measure, on_side

NEW_EXTENTS = 100000
COMMIT_BLOCK = 512
COMMIT_STEP = 16 # blocks: extents that do not touch


class OwnFiles(Measure):
	"""N-N: each process has a file of its own."""
	name = "n-n"
	title = "N-N 1 MiB writes, 2 processes on 2 nodes"
	units = {"rate": "B/s"}
	sides = ("one node", "job")
	lines = [Line(title, "rate", "job", "one node", 0.95)]

	def disk_bytes(self, context):
		return context.size(2 * GIB)

	def warm_bytes(self, context):
		return 2 * context.size(2 * GIB)

	@on_side
	def sample(self, context, side, place):
		directories = ":".join(place.paths) if side == "job" else place.path
		context.reservoir.release()
		return {"rate": machine.fio(directories, "write", MIB, context.size(2 * GIB), jobs.NODES)}


class OneFile(Measure):
	"""N-1 beside N-N, by the same program."""
	units = {"rate": "B/s"}
	sides = ("N-N", "segmented", "strided")

	def __init__(self, name, record):
		self.name, self.record = name, record
		self.title = f"{record:,}-byte" if record % MIB else f"{record // MIB} MiB"
		self.lines = [Line(f"N-1 {pattern} {self.title} writes, 2 nodes", "rate", pattern, "N-N", 0.9)
			for pattern in self.sides[1:]]
		self.title = f"N-1 {self.title} writes, 2 nodes"

	def peer(self, side):
		return "job"

	def disk_bytes(self, context):
		return context.size(2 * GIB)

	def warm_bytes(self, context):
		return 2 * context.size(2 * GIB)

	@on_side
	def sample(self, context, side, place):
		pattern = "own" if side == "N-N" else side
		files = [os.path.join(path, f"own.{i}" if side == "N-N" else "shared") for i, path in enumerate(place.paths)]
		context.reservoir.release()
		said = machine.run_json(context.program("strided", pattern, context.size(2 * GIB), self.record, *files))
		return {"rate": said["bytes"] / said["seconds"]}


class Visible(Measure):
	"""N-1 with a commit for each write beside a commit at the end."""
	name = "n-1-visible"
	title = "N-1 strided 1 MiB writes, 2 nodes, visible=write (compared with visible=close)"
	units = {"rate": "B/s"}
	sides = ("close", "write")
	lines = [Line(title, "rate", "write", "close")]

	def peer(self, side):
		return "job" if side == "close" else "job, visible=write"

	def disk_bytes(self, context):
		return context.size(GIB)

	def warm_bytes(self, context):
		return 2 * context.size(GIB)

	@on_side
	def sample(self, context, side, place):
		context.reservoir.release()
		said = machine.run_json(context.program("strided", "strided", context.size(GIB), MIB, *[os.path.join(path, "shared") for path in place.paths]))
		return {"rate": said["bytes"] / said["seconds"]}


class RemoteRead(Measure):
	"""Written and committed on node 0, read on node 1, from front to back; agents of one host read each other's stores as files. The log is
	written past the page cache, so the first read comes from node 0's device: beside it what the device gives a direct read; and a read of what node 0 has in memory, because it was just read there:
	beside it a second read on node 0 itself. The bounds: on one machine MPI_Get is a copy of memory, while each byte that a process reads through FUSE
	goes through one more process; so what a read of the node's own file gives, and what a daemon gives that has every byte at hand (tests/bench/answer:
	no file, no checksum, no other node), are compared with MPI_Get, too."""
	name = "remote-read"
	title = "remote sequential read, 1 MiB"
	units = {"rate": "B/s"}
	sides = ("MPI_Get", "device", "bare FUSE", "job", "in memory", "at home")
	lines = [Line(title, "rate", "job", "MPI_Get", 0.5),
		 Line(f"{title}, from node 0's device", "rate", "job", "device"),
		 Line(f"{title}, from node 0's memory", "rate", "in memory", "MPI_Get"),
		 Line(f"{title}, from node 0's memory (compared with a read on node 0)", "rate", "in memory", "at home"),
		 Line("read of a file on node 0, from its memory", "rate", "at home", "MPI_Get"),
		 Line("read through a FUSE daemon that has every byte at hand", "rate", "bare FUSE", "MPI_Get"),
		 Line(f"{title}, from node 0's memory (compared with that)", "rate", "in memory", "bare FUSE"),
		 Line("direct read of the device", "rate", "device", "MPI_Get")]

	def peer(self, side):
		return {"MPI_Get": "mpi", "device": "mpi", "bare FUSE": side}.get(side, "job")

	def disk_bytes(self, context):
		return context.size(GIB)

	def warm_bytes(self, context):
		return 3 * context.size(GIB)

	@on_side
	def sample(self, context, side, place):
		size = context.size(GIB)
		if side == "MPI_Get":
			context.reservoir.release()
			said = machine.run(jobs.mpi(context.program("../mpi/bare-get")[0], MIB, size // MIB, on=getattr(place, "hosts", None)))
			return {"rate": float(said) * MIB}
		paths = getattr(place, "paths", [place.path])
		if side != "bare FUSE":
			machine.fio(paths[0], "write", MIB, size, direct=side == "device")
			machine.settle(paths[0])
		if side in ("in memory", "at home"):
			machine.fio(paths[0], "read", MIB, size, sync=False)
		context.reservoir.release()
		return {"rate": machine.fio(paths[0 if side == "at home" else -1], "read", MIB, size, direct=side == "device", sync=False)}


class RemoteReadTcp(RemoteRead):
	"""The same, with each node's agent on a host of its own: so they fetch by gets, and MPI over TCP."""
	name = "remote-read-tcp"
	title = "remote sequential read over TCP, 1 MiB"
	sides = ("MPI_Get", "job", "in memory")
	lines = [Line(title, "rate", "job", "MPI_Get", 0.5), Line(f"{title}, from node 0's memory", "rate", "in memory", "MPI_Get")]

	def peer(self, side):
		return ("mpi" if side == "MPI_Get" else "job") + ", TCP"


class JobDrain(Measure):
	"""An N-1 file of blocks that its two nodes wrote in turn and out of order, and MPI-IO's way to write the same. The bounds: two processes write as
	many bytes out of one buffer, which is the device alone; or move them from two logs into one file and do nothing else, as they come, or gathering
	blocks that lie as scattered as the drain's."""
	name = "job-drain"
	title = "collective drain of an N-1 file of 1,000,000 extents of 4 KiB"
	units = {"rate": "B/s"}
	device = {"device": "memory"} # how carry does it
	moved = {"moved": "cache", "moved directly": "direct"}
	gathered = {"gathered": "blocks", "gathered from mappings": "mapped"}
	bounds = device | moved | gathered
	sides = ("MPI_File_write_all", *bounds, "job")
	lines = [Line(title, "rate", "job", "MPI_File_write_all", 4.0),
		 Line("as many bytes written past the page cache out of one buffer, and nothing else", "rate", tuple(device), "MPI_File_write_all"),
		 Line("the drain compared with that", "rate", "job", tuple(device)),
		 Line("as many bytes moved from two logs into one file, and nothing else", "rate", tuple(moved), "MPI_File_write_all"),
		 Line("the drain compared with that", "rate", "job", tuple(moved)),
		 Line("as many blocks gathered from two logs into one file, and nothing else", "rate", tuple(gathered), "MPI_File_write_all"),
		 Line("the drain compared with that", "rate", "job", tuple(gathered))]

	def peer(self, side):
		return "job" if side == "job" else "mpi"

	def disk_bytes(self, context):
		return 8 * KIB * context.count(1000000)

	def warm_bytes(self, context):
		return 8 * KIB * context.count(1000000)

	@on_side
	def sample(self, context, side, place):
		each = context.count(1000000) // jobs.NODES
		if side in self.bounds:
			return {"rate": self.move(context, self.bounds[side], place, each * 4 * KIB)}
		if side != "job":
			context.reservoir.release()
			said = machine.run_json(jobs.mpi(context.program("mpi-hindexed")[0], os.path.join(place.path, "file"), each, 4 * KIB))
			return {"rate": said["bytes"] / said["seconds"]}
		for number, path in enumerate(place.paths):
			machine.run_json(context.program("scatter", os.path.join(path, "file"), each, 4 * KIB, jobs.NODES, number))
		size = each * jobs.NODES * 4 * KIB
		machine.settle(place.path)
		context.reservoir.release()
		seconds = machine.timed([place.command, "flush", "--wait", "--mount", place.path])
		self.check(os.path.join(place.backing, "file"), each, size)
		return {"rate": size / seconds}

	@staticmethod
	def move(context, how, place, each_bytes):
		"""From logs that are in the page cache, as those of small writes are."""
		machine.fio(place.path, "write", MIB, jobs.NODES * max(each_bytes // MIB, 1) * MIB, jobs.NODES)
		logs = [os.path.join(place.path, name) for name in sorted(os.listdir(place.path))]
		machine.settle(place.path)
		context.reservoir.release()
		said = machine.run_json(context.program("carry", how, os.path.join(place.path, "file"), min(each_bytes, os.path.getsize(logs[0])), *logs))
		return said["bytes"] / said["seconds"]

	@staticmethod
	def check(path, each, size):
		"""Blocks carry the number that scatter gave them."""
		if os.path.getsize(path) != size:
			raise machine.Failed(f"{path} has not the size of what was to be drained")
		with open(path, "rb") as file:
			for i in range(0, each, max(each // 1000, 1)):
				for part in range(jobs.NODES):
					file.seek((i * jobs.NODES + part) * 4 * KIB)
					if int.from_bytes(file.read(8), "little") != i:
						raise machine.Failed(f"{path}: block {i * jobs.NODES + part} is not what was written there")


class Commit(Measure):
	"""fsync of so many new extents among those that a shared file has: written on the node that is not its home."""
	name = "commit"
	title = "commit of 100,000 new extents"
	units = {"seconds": "ms"}
	sides = ("10^5 extents", "10^6 extents", "10^6, spread")
	lines = [Line(f"{title}, 100,000 there", "seconds", "10^5 extents", None, None, True),
		 Line(f"{title} in the same place, 1,000,000 there", "seconds", "10^6 extents", "10^5 extents", 1.25, True),
		 Line(f"{title} spread over 1,000,000", "seconds", "10^6, spread", "10^5 extents", None, True)]

	def peer(self, side):
		return "job"

	def disk_bytes(self, context):
		return 4 * COMMIT_BLOCK * context.count(11 * NEW_EXTENTS)

	@on_side
	def sample(self, context, side, place):
		there = context.count(NEW_EXTENTS * (1 if side == "10^5 extents" else 10))
		with open(os.path.join(place.paths[0], "file"), "wb") as other:
			other.write(b"x")
			other.flush()
			said = machine.run_json(context.program("commit", os.path.join(place.paths[1], "file"), there,
				context.count(NEW_EXTENTS), COMMIT_BLOCK, COMMIT_STEP, int(side == "10^6, spread")))
		return {"seconds": said["seconds"] * 1000}


class JobIdle(Measure):
	name = "job-idle"
	title = "CPU of an idle job, daemons and agents"
	units = {"cpu": "%", "first": "ms"}
	sides = ("job",)
	lines = [Line(title, "cpu", "job", None, 1.0 * jobs.NODES, True),
		 Line("first remote read after 2 s idle", "first", "job", None, 5.0, True)]

	@on_side
	def sample(self, context, side, place):
		with open(os.path.join(place.paths[0], "file"), "wb") as file:
			file.write(b"x" * MIB)
		with open(os.path.join(place.paths[1], "file"), "rb", buffering=0) as file:
			time.sleep(2)
			begin = time.monotonic()
			got = file.read(4 * KIB)
			first = time.monotonic() - begin
		if got != b"x" * 4 * KIB:
			raise machine.Failed("what was read is not what was written")
		time.sleep(2)
		pids, seconds = place.pids(), max(10 * context.scale, 1)
		before = sum(machine.cpu_seconds(pid) for pid in pids)
		time.sleep(seconds)
		return {"cpu": (sum(machine.cpu_seconds(pid) for pid in pids) - before) / seconds * 100, "first": first * 1000}


class BlobDrain(Measure):
	"""What four processes of a climate model wrote on one node, through the log, drained in canonical order and as blobs."""
	name = "blob-drain"
	title = "last drain as blobs, F-case-like file of 4 processes, one node (compared with canonical order, data=log)"
	units = {"rate": "1/s"}
	sides = ("canonical", "blobs")
	lines = [Line(title, "rate", "blobs", "canonical")]

	def peer(self, side):
		return f"one node, {side}"

	def disk_bytes(self, context):
		return 200 * MIB

	@on_side
	def sample(self, context, side, place):
		size = "small" if context.scale >= 0.1 else "tiny"
		said = machine.run_json([jobs.MPIEXEC, "-n", "4", *context.program("e3sm", "--case=F", f"--size={size}", os.path.join(place.path, "f.nc"))])
		machine.settle(place.path)
		context.reservoir.release()
		seconds = machine.timed([place.command, "umount", "--wait", place.path])
		made = os.path.join(place.backing, "f.nc" if side == "canonical" else "f.nc.0000")
		if os.path.getsize(made) < said["bytes"] // 2:
			raise machine.Failed(f"{made} has not the size of what was to be drained")
		return {"rate": 1 / seconds}


def write_case(context, place, *options):
	"""The F case by two processes on each node, into one file."""
	size = "small" if context.scale >= 0.1 else "tiny"
	ranks = []
	for path in place.paths:
		ranks += [":"] * bool(ranks) + ["-n", "2", *context.program("e3sm", "--case=F", f"--size={size}", *options, os.path.join(path, "f.nc"))]
	return machine.run_json([jobs.MPIEXEC, *ranks])


def leave_all(place):
	"""Seconds until the last node's unmount returns."""
	begin = time.monotonic()
	leaving = [subprocess.Popen([place.command, "umount", "--wait", path], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
		for path in place.paths]
	if any([process.wait() for process in leaving]):
		raise machine.Failed("not everything was drained")
	return time.monotonic() - begin


class JobBlobDrain(Measure):
	"""The same of two processes on each of two nodes: until the last node's unmount returns."""
	name = "job-blob-drain"
	title = "last drain as blobs, F-case-like file of 4 processes on 2 nodes (compared with canonical order)"
	units = {"rate": "1/s"}
	sides = ("canonical", "blobs")
	lines = [Line(title, "rate", "blobs", "canonical", 3.0)]

	def peer(self, side):
		return "job" if side == "canonical" else "job, blobs"

	def disk_bytes(self, context):
		return 300 * MIB

	@on_side
	def sample(self, context, side, place):
		said = write_case(context, place)
		machine.settle(place.path)
		context.reservoir.release()
		seconds = leave_all(place)
		names = ["f.nc"] if side == "canonical" else ["f.nc.0000", "f.nc.0001"]
		made = sum(os.path.getsize(os.path.join(place.backing, name)) for name in names)
		if sorted(os.listdir(place.backing)) != names or made < said["bytes"]:
			raise machine.Failed(f"{place.backing} does not hold what was to be drained")
		return {"rate": 1 / seconds}


class JobBlobDrainLink(JobBlobDrain):
	"""The same, with each node's agent on a host of its own, and links of that rate."""
	def __init__(self, rate):
		self.rate = rate
		self.name = f"job-blob-drain-{rate}"
		self.title = f"{JobBlobDrain.title}, links of {rate.replace('gbit', ' Gbit/s').replace('mbit', ' Mbit/s')}"
		self.lines = [Line(self.title, "rate", "blobs", "canonical", 3.0)]

	def peer(self, side):
		return f"job, {self.rate}" if side == "canonical" else f"job, blobs, {self.rate}"


class JobConvert(Measure):
	"""From the start of the program to the end of the last unmount, where its file becomes netCDF-4: by its home alone, and by both nodes."""
	name = "job-convert"
	title = "whole job with netCDF-4 output, converted by both nodes (compared with one)"
	units = {"seconds": "s"}
	sides = ("one", "both")
	lines = [Line(title, "seconds", "both", "one", None, True)]

	def peer(self, side):
		return f"job, netCDF-4 by {side}"

	def disk_bytes(self, context):
		return GIB

	@on_side
	def sample(self, context, side, place):
		begin = time.monotonic()
		write_case(context, place, "--records=4")
		leave_all(place)
		seconds = time.monotonic() - begin
		with open(os.path.join(place.backing, "f.nc"), "rb") as file:
			if file.read(4) != b"\x89HDF":
				raise machine.Failed("the file did not become a netCDF-4 file")
		return {"seconds": seconds}


class JobList(Measure):
	"""The time for each file: names and attributes of another node's files, beside those of one's own."""
	name = "job-list"
	title = "ls -l of 2,000 files of the other node, each file"
	units = {"other": "us", "own": "us"}
	sides = ("job",)
	lines = [Line(title, "other", "job", None, None), Line("the same at their home", "own", "job", None, None)]

	@on_side
	def sample(self, context, side, place):
		number = context.size(2000, 200, 1)
		for index in range(number):
			with open(os.path.join(place.paths[0], f"file{index:06}"), "wb") as file:
				file.write(b"x")
		time.sleep(1) # a home that has just changed something gives no word (many-nodes.md, 3)
		other, own = (self.list(path) / number * 1000000 for path in reversed(place.paths))
		return {"other": other, "own": own}

	@staticmethod
	def list(path):
		begin = time.monotonic()
		machine.run(["ls", "-l", path])
		return time.monotonic() - begin


def every_measure():
	"""In the order in which they run."""
	return [OwnFiles(), OneFile("n-1-47k", STRIDED_RECORD), OneFile("n-1-1m", MIB), Visible(), RemoteRead(), RemoteReadTcp(), JobDrain(), BlobDrain(), JobBlobDrain(),
		*map(JobBlobDrainLink, jobs.LINKS), JobConvert(),
		Commit(), JobList(), JobIdle()]
