# SPDX-License-Identifier: GPL-3.0-or-later
"""A job of Cistern on this machine: several mounts of one backing directory, each with a store of its own, and their agents.

Also whom it is compared with: one mount, and programs of the same MPI.
"""

import os
import shutil
import subprocess
import time

import machine
import peers

NODES = 2
ASSEMBLE_SECONDS = 60
MPIEXEC = "mpiexec.mpich"
# hydra and those that it starts there: they hold the directory in their command line, too.
AGENT = 'exec "$0" agent --store "$1/$PMI_RANK/store"'


class JobPlace(peers.Place):
	"""paths: of the nodes' mounts. path is that of node 0."""

	def __init__(self, command, area, nodes):
		self.command = command
		self.area = area
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
			self.agents = subprocess.Popen([MPIEXEC, "-n", str(len(self.nodes)), "sh", "-c", AGENT, self.command, self.area],
				stdin=subprocess.DEVNULL, stdout=log, stderr=log)
		deadline = time.monotonic() + ASSEMBLE_SECONDS
		while not self.assembled():
			if self.agents.poll() is not None or time.monotonic() > deadline:
				raise machine.Failed(f"the agents did not come together: {self.said()}")
			time.sleep(0.05)

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


class Job:
	"""The mounts with some options; nothing is drained unless a measure asks for it."""

	def __init__(self, command, options):
		self.command = command
		self.options = ",".join(filter(None, ["drain=unmount", options]))

	def enter(self, area):
		place = JobPlace(self.command, area, NODES)
		try:
			place.start(self.options)
		except BaseException:
			place.leave()
			raise
		return place


def mpi(program, *args):
	"""Command line of a program of two ranks."""
	return [MPIEXEC, "-n", str(NODES), program, *map(str, args)]


def sides(build_dir, want_cistern, backing_dir, skipped):
	"""As peers.sides; backing directories lie beside the stores, always."""
	found = {}
	if shutil.which(MPIEXEC) is None:
		skipped("everything", f"{MPIEXEC} is not installed (Debian: mpich)")
		return found
	if os.access(os.path.join(os.environ.get("top_builddir", os.getcwd()), "tests/mpi/bare-get"), os.X_OK):
		found["mpi"] = peers.Raw()
	else:
		skipped("MPI", "built without MPI")
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
			found["job, visible=write"] = Job(command, "visible=write")
			found["job, netCDF-4 by one"] = Job(command, "layout=netcdf4,convert_share=0")
			found["job, netCDF-4 by both"] = Job(command, "layout=netcdf4,convert_share=1M")
		else:
			skipped("job", "built without MPI")
	except machine.Skip as skip:
		skipped("cistern", str(skip))
	return found
