# SPDX-License-Identifier: GPL-3.0-or-later
"""Whom we compare: the raw file system (the floor), libfuse's passthrough_ll over it (plain FUSE), and Cistern in its settings.

Each is a side. side.enter(area) makes an empty file system in the fresh directory area and returns a place: place.path is
where the application works, place.leave() ends it without saving anything. What an area holds is deleted by the caller.
"""

import gzip
import os
import resource
import shlex
import shutil
import subprocess

import machine

EXAMPLES = "/usr/share/doc/libfuse3-dev/examples"
PEER_SOURCES = ("passthrough_ll.c", "passthrough_helpers.h")
DAEMON_NAMES = ("cistern-fs", "cistern-agent", "cistern-mpi-age", "passthrough_ll") # as the kernel knows them: 15 bytes
CACHE_FOREVER = "cache=always,timeout=86400"


class Place:
	"""Where an application works."""

	def __init__(self, path):
		self.path = path

	def leave(self):
		pass


class Raw:
	"""The file system that holds the stores."""

	def enter(self, area):
		path = os.path.join(area, "raw")
		os.mkdir(path)
		return Place(path)


# ---- passthrough_ll

class MountedPeer(Place):
	def __init__(self, mountpoint, process):
		super().__init__(mountpoint)
		self.process = process

	def leave(self):
		try:
			machine.unmount(self.path)
			self.process.wait(60)
		except (machine.Failed, subprocess.TimeoutExpired):
			machine.kill([self.process.pid])
			machine.unmount_below(self.path)
			self.process.wait()


def mount_peer(command, mountpoint):
	"""A file system that stays in the foreground."""
	process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
	place = MountedPeer(mountpoint, process)
	try:
		machine.await_mount(mountpoint, process)
	except BaseException:
		place.leave()
		raise
	return place


class Passthrough:
	"""libfuse's example, unchanged. It keeps a descriptor for each file that the kernel knows."""

	def __init__(self, program, options):
		self.program = program
		self.options = options

	def enter(self, area):
		source, mountpoint = os.path.join(area, "source"), os.path.join(area, "mount")
		os.mkdir(source)
		os.mkdir(mountpoint)
		return mount_peer([self.program, "-f", "-o", f"source={source},{self.options}", mountpoint], mountpoint)


def raise_file_limit():
	soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
	wanted = 1 << 20
	try:
		resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, max(hard, wanted)))
	except (OSError, ValueError):
		resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, hard), hard))
	return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def build_passthrough(build_dir):
	"""Compile the example that the development package of libfuse installs; kept in build_dir. Skip: it is not there."""
	program = os.path.join(build_dir, "passthrough_ll")
	if os.access(program, os.X_OK):
		return program
	os.makedirs(build_dir, exist_ok=True)
	for name in PEER_SOURCES:
		_copy_example(name, build_dir)
	with open(os.path.join(build_dir, "config.h"), "w", encoding="ascii"):
		pass
	try:
		flags = machine.run(["pkg-config", "--cflags", "--libs", "fuse3"]).split()
		compiler = shlex.split(os.environ.get("CC", "cc"))
		machine.run([*compiler, "-O2", "-w", "-I", build_dir, "-o", program + ".new", os.path.join(build_dir, "passthrough_ll.c"),
			*flags])
	except machine.Failed as failure:
		raise machine.Skip(f"passthrough_ll does not compile: {failure}") from None
	os.rename(program + ".new", program)
	return program


def _copy_example(name, build_dir):
	source, target = os.path.join(EXAMPLES, name), os.path.join(build_dir, name)
	if os.path.exists(source):
		shutil.copyfile(source, target)
	elif os.path.exists(source + ".gz"):
		with gzip.open(source + ".gz") as packed, open(target, "wb") as out:
			shutil.copyfileobj(packed, out)
	else:
		raise machine.Skip(f"{source} is not installed (Debian: libfuse3-dev)")


# ---- Cistern

class CisternPlace(Place):
	"""A mount; store and backing directory lie beside it."""

	def __init__(self, command, area, backing):
		super().__init__(os.path.join(area, "mount"))
		self.command = command
		self.area = area
		self.store = os.path.join(area, "store")
		self.backing = backing

	def mount(self, options):
		machine.run([self.command, "mount", self.backing, self.path, "--store", self.store, "-o", options], 600)

	def status(self):
		return machine.run_json([self.command, "status", "--json", self.path], 60)

	def pids(self):
		return machine.processes_of(self.area, DAEMON_NAMES)

	def daemon(self):
		return int(self.status()["pid"])

	def leave(self):
		"""As a power switch would: nothing that was written needs to be drained."""
		machine.kill(self.pids())
		machine.unmount_below(self.area)


class Cistern:
	"""The mount with some options; nothing is drained unless a measure asks for it."""

	def __init__(self, command, options, backing_dir=None):
		self.command = command
		self.options = ",".join(filter(None, ["drain=unmount", options]))
		self.needs_passthrough = "data=private" in options
		self.backing_dir = backing_dir

	def prepare(self, area):
		"""Directories, not mounted yet."""
		backing = os.path.join(area, "backing")
		if self.backing_dir:
			backing = os.path.join(self.backing_dir, os.path.basename(area))
		os.makedirs(backing)
		os.mkdir(os.path.join(area, "mount"))
		return CisternPlace(self.command, area, backing)

	def enter(self, area):
		place = self.prepare(area)
		try:
			place.mount(self.options)
			if self.needs_passthrough and not place.status()["passthrough"]:
				raise machine.Skip("kernel passthrough is not to be had (Linux 6.9 and CAP_SYS_ADMIN)")
		except BaseException:
			place.leave()
			raise
		return place


def find_cistern():
	"""The command, by the environment that make sets. Skip: it is not built."""
	command = os.environ.get("CISTERN", "")
	libexec = os.environ.get("CISTERN_LIBEXEC", "")
	for path in (command, os.path.join(libexec, "cistern-fs"), os.path.join(libexec, "cistern-agent")):
		if not os.access(path, os.X_OK):
			raise machine.Skip(f"{path or 'cistern'} is not built; run this as 'make bench'")
	return command


def sides(build_dir, want_cistern, backing_dir, skipped):
	"""Every side that can be had, by its name. skipped(what, why) hears of the others."""
	found = {"raw": Raw()}
	try:
		program = build_passthrough(build_dir)
		found["passthrough_ll"] = Passthrough(program, CACHE_FOREVER + ",no_writeback")
		found["passthrough_ll+writeback"] = Passthrough(program, CACHE_FOREVER + ",writeback")
	except machine.Skip as skip:
		skipped("passthrough_ll", str(skip))
	try:
		if not want_cistern:
			raise machine.Skip("--no-cistern")
		command = find_cistern()
		found["default"] = Cistern(command, "", backing_dir)
		found["log"] = Cistern(command, "data=log", backing_dir)
		found["private"] = Cistern(command, "data=private", backing_dir)
	except machine.Skip as skip:
		skipped("cistern", str(skip))
	return found
