# SPDX-License-Identifier: GPL-3.0-or-later
"""A job of Cistern on this machine: several mounts of one backing directory, each with a store of its own, and their agents.

Also whom it is compared with: one mount, and programs of the same MPI.
"""

import os
import shutil
import subprocess
import time

import hosts
import machine
import peers

NODES = 2
LINKS = ("1gbit", "200mbit") # slow beside the disks here, as real ones are
ASSEMBLE_SECONDS = 60
ANSWER_BYTES = 8 << 30 # of each file there; nobody reads more
MPIEXEC = "mpiexec.mpich"
# hydra and those that it starts there: they hold the directory in their command line, too.
AGENT = '#!/bin/sh\nexec "$1" agent --store "$2/$PMI_RANK/store"\n'


class JobPlace(peers.Place):
	"""paths: of the nodes' mounts. path is that of node 0. hosts: where the agents run, owned; None: all here."""

	def __init__(self, command, area, nodes, on=None):
		self.command = command
		self.area = area
		self.hosts = on
		self.backing = os.path.join(area, "backing")
		self.agents = None
		self.log = os.path.join(area, "agents.log")
		os.mkdir(self.backing)
		self.nodes = []
		for number in range(nodes):
			home = os.path.join(area, str(number))
			os.makedirs(os.path.join(home, "mount"))
			self.nodes.append(peers.CisternPlace(command, home, self.backing))
		self.paths = [node.path for node in self.nodes]
		super().__init__(self.paths[0])

	def start(self, options):
		for node in self.nodes:
			node.mount(f"{options},nodes={len(self.nodes)}")
		with open(self.log, "wb") as log:
			self.agents = subprocess.Popen([*self.launcher(), self.script(), self.command, self.area],
				stdin=subprocess.DEVNULL, stdout=log, stderr=log)
		deadline = time.monotonic() + ASSEMBLE_SECONDS
		while not self.assembled():
			if self.agents.poll() is not None or time.monotonic() > deadline:
				raise machine.Failed(f"the agents did not come together: {self.said()}")
			time.sleep(0.05)

	def launcher(self):
		return self.hosts.launcher(MPIEXEC) if self.hosts else [MPIEXEC, "-n", str(len(self.nodes))]

	def script(self):
		"""What each rank starts: a file, since a launcher's shell would take a command line apart."""
		path = os.path.join(self.area, "agent")
		with open(path, "w", encoding="utf-8") as script:
			script.write(AGENT)
		os.chmod(path, 0o755)
		return path

	def said(self):
		with open(self.log, encoding="utf-8", errors="replace") as log:
			return (log.read().strip() or "they said nothing").splitlines()[-1]

	def assembled(self):
		stati = [node.status() for node in self.nodes]
		return all(status.get("agent_pid") and not status.get("missing") for status in stati)

	def pids(self):
		return machine.processes_of(self.area, peers.DAEMON_NAMES)

	def leave(self):
		machine.kill(self.pids())
		if self.agents:
			machine.end(self.agents)
		machine.unmount_below(self.area)
		if self.hosts:
			self.hosts.remove()


class Job:
	"""The mounts with some options; nothing is drained unless a measure asks for it. link: each agent is on a host of its own; the rate of their links, '': as
	fast as this machine makes them."""

	def __init__(self, command, options, link=None):
		self.command = command
		self.options = ",".join(filter(None, ["drain=unmount", options]))
		self.link = link

	def enter(self, area):
		place = JobPlace(self.command, area, NODES, None if self.link is None else hosts.Hosts(area, NODES, self.link))
		try:
			place.start(self.options)
		except BaseException:
			place.leave()
			raise
		return place


class BareHosts(peers.Raw):
	"""The raw file system, and hosts for programs of MPI."""

	def enter(self, area):
		place = super().enter(area)
		place.hosts = hosts.Hosts(area, NODES, "")
		place.leave = place.hosts.remove
		return place


def built(program):
	return os.path.join(os.environ.get("top_builddir", os.getcwd()), program)


class Answer:
	"""tests/bench/answer: a FUSE file system that has every byte at hand. Any name is a file there."""

	def enter(self, area):
		mountpoint = os.path.join(area, "mount")
		os.mkdir(mountpoint)
		return peers.mount_peer([built("tests/bench/answer"), mountpoint, str(ANSWER_BYTES), "direct"], mountpoint)


def mpi(program, *args, on=None):
	"""Command line of a program of two ranks."""
	launcher = on.launcher(MPIEXEC) if on else [MPIEXEC, "-n", str(NODES)]
	return [*launcher, program, *map(str, args)]


def sides(build_dir, want_cistern, backing_dir, skipped):
	"""As peers.sides; backing directories lie beside the stores, always."""
	found = {}
	no_hosts = hosts.lacking()
	if no_hosts:
		skipped("hosts", no_hosts)
	if shutil.which(MPIEXEC) is None:
		skipped("everything", f"{MPIEXEC} is not installed (Debian: mpich)")
		return found
	if os.access(built("tests/mpi/bare-get"), os.X_OK):
		found["mpi"] = peers.Raw()
		if not no_hosts:
			found["mpi, TCP"] = BareHosts()
	else:
		skipped("MPI", "built without MPI")
	found["bare FUSE"] = Answer()
	try:
		if not want_cistern:
			raise machine.Skip("--no-cistern")
		command = peers.find_cistern()
		found["one node"] = peers.Cistern(command, "")
		found["one node, canonical"] = peers.Cistern(command, "data=log")
		found["one node, blobs"] = peers.Cistern(command, "layout=blob-variable")
		if os.access(os.path.join(os.environ["CISTERN_LIBEXEC"], "cistern-mpi-agent"), os.X_OK):
			found["job"] = Job(command, "")
			found["job, blobs"] = Job(command, "layout=blob-variable")
			if not no_hosts:
				found["job, TCP"] = Job(command, "", "")
				for rate in LINKS:
					found[f"job, {rate}"] = Job(command, "", rate)
					found[f"job, blobs, {rate}"] = Job(command, "layout=blob-variable", rate)
			found["job, visible=write"] = Job(command, "visible=write")
			found["job, netCDF-4 by one"] = Job(command, "layout=netcdf4,convert_share=0")
			found["job, netCDF-4 by both"] = Job(command, "layout=netcdf4,convert_share=1M")
		else:
			skipped("job", "built without MPI")
	except machine.Skip as skip:
		skipped("cistern", str(skip))
	return found
