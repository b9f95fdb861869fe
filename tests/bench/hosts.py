# SPDX-License-Identifier: GPL-3.0-or-later
"""Hosts that are none: network namespaces joined by cables to a switch (veth, bridge), so that MPI goes over TCP, and links can have a rate."""

import os
import shutil
import tempfile

import machine

TCP = ("UCX_TLS=tcp,self", "UCX_NET_DEVICES=eth0")
ENTER = """#!/bin/sh
# As hydra calls ssh: options, the host, and a command for its shell.
while [ "${1#-}" != "$1" ]; do shift; done
host=$1
shift
exec nsenter --net="/run/netns/%s-${host##*.}" sh -c "$*"
"""


def lacking():
	"""Why there can be none; '': there can."""
	for program in ("ip", "tc", "nsenter"):
		if shutil.which(program, path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin") is None:
			return f"{program} is not installed"
	try:
		with tempfile.TemporaryDirectory() as area:
			Hosts(area, 1, "1gbit").remove()
	except machine.Failed as failure:
		return f"no network namespaces: {failure}"
	return ""


def _in(namespace, *command):
	machine.run(["nsenter", f"--net=/run/netns/{namespace}", *command], 60)


class Hosts:
	"""Number n has the address 10.77.0.n and the namespace NAME-n; the switch is in NAME-hub. rate: of each cable, in both directions, as tc says it."""

	def __init__(self, area, num, rate):
		self.name = f"cisb{os.getpid()}"
		self.num = num
		self.made = []
		self.enter = os.path.join(area, "enter")
		with open(self.enter, "w", encoding="ascii") as script:
			script.write(ENTER % self.name)
		os.chmod(self.enter, 0o755)
		try:
			self.make(rate)
		except BaseException:
			self.remove()
			raise

	def add(self, which):
		namespace = f"{self.name}-{which}"
		machine.run(["ip", "netns", "add", namespace], 60)
		self.made.append(namespace)
		_in(namespace, "ip", "link", "set", "lo", "up")
		return namespace

	def make(self, rate):
		hub = self.add("hub")
		_in(hub, "ip", "link", "add", "hub", "type", "bridge")
		_in(hub, "ip", "addr", "add", "10.77.0.254/24", "dev", "hub")
		_in(hub, "ip", "link", "set", "hub", "up")
		for number in range(1, self.num + 1):
			host = self.add(number)
			_in(hub, "ip", "link", "add", f"v{number}", "type", "veth", "peer", "name", "eth0", "netns", host)
			_in(hub, "ip", "link", "set", f"v{number}", "master", "hub", "up")
			_in(host, "ip", "addr", "add", f"10.77.0.{number}/24", "dev", "eth0")
			_in(host, "ip", "link", "set", "eth0", "up")
			if rate:
				for namespace, device in ((hub, f"v{number}"), (host, "eth0")):
					_in(namespace, "tc", "qdisc", "add", "dev", device, "root", "tbf", "rate", rate, "burst", "1mb", "latency", "50ms")

	def launcher(self, mpiexec):
		"""Command line that starts one rank on each."""
		addresses = ",".join(f"10.77.0.{number}" for number in range(1, self.num + 1))
		return ["nsenter", f"--net=/run/netns/{self.name}-hub", "env", *TCP, mpiexec, "-launcher", "ssh", "-launcher-exec", self.enter,
			"-iface", "hub", "-disable-hostname-propagation", "-hosts", addresses, "-ppn", "1", "-n", str(self.num)]

	def remove(self):
		for namespace in reversed(self.made):
			try:
				machine.run(["ip", "netns", "del", namespace], 60)
			except machine.Failed as failure:
				print(f"# could not remove the network namespace {namespace}: {failure}")
		self.made = []
