# SPDX-License-Identifier: GPL-3.0-or-later
"""The machine under the measurements: running programs, fio, settling, caches, memory, mounts and processes.

Nothing here knows what is measured or whom it is compared with.
"""

import json
import mmap
import os
import shutil
import signal
import subprocess
import time

MIB = 1 << 20
COMMAND_SECONDS = 1800
SETTLE_SECONDS = 20
SETTLED_BYTES = 32 * MIB
HUGE = 2 * MIB
MADV_POPULATE_WRITE = 23 # mmap.h; Python has no name for it


class Failed(Exception):
	"""A program did not do what it was started for; the text says which and why."""


class Skip(Exception):
	"""Something cannot be measured here; the text says why."""


# ---- programs

def run(args, timeout=COMMAND_SECONDS):
	"""Run to the end; its standard output. Failed carries what it said."""
	try:
		done = subprocess.run(args, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=timeout)
	except FileNotFoundError:
		raise Failed(f"{args[0]}: not found") from None
	except subprocess.TimeoutExpired:
		raise Failed(f"{' '.join(args)}: not done after {timeout} s") from None
	if done.returncode != 0:
		said = (done.stderr.strip() or done.stdout.strip() or "it said nothing").splitlines()[-1]
		raise Failed(f"{os.path.basename(args[0])} ended with status {done.returncode}: {said}")
	return done.stdout


def run_json(args, timeout=COMMAND_SECONDS):
	said = run(args, timeout)
	try:
		return json.loads(said)
	except ValueError:
		raise Failed(f"{os.path.basename(args[0])} did not print JSON: {said[:200]!r}") from None


def timed(args, timeout=COMMAND_SECONDS):
	"""Seconds that it ran."""
	begin = time.monotonic()
	run(args, timeout)
	return time.monotonic() - begin


def fio(directory, rw, block, size, jobs=1, direct=False, sync=True):
	"""Bytes a second of sequential I/O by psync, end fsync included. Each job has a file of its own, size is their sum.

	Caches are as they are: fio is told not to drop them, and not to preallocate.
	"""
	each = max(size // jobs // block, 1) * block
	args = ["fio", "--name=job", f"--directory={directory}", f"--rw={rw}", f"--bs={block}", f"--size={each}",
		f"--numjobs={jobs}", f"--direct={int(direct)}", f"--end_fsync={int(sync)}", "--ioengine=psync",
		"--fallocate=none", "--invalidate=0", "--output-format=json"]
	said = run(args)
	try:
		parts = [job[rw] for job in json.loads(said[said.index("{"):])["jobs"]]
	except (ValueError, KeyError):
		raise Failed(f"fio did not print what was expected: {said[:200]!r}") from None
	seconds = max(part["runtime"] for part in parts) / 1000
	return sum(part["io_bytes"] for part in parts) / max(seconds, 0.001)


def end(process, seconds=20):
	"""SIGTERM, SIGKILL when that does not help, and wait."""
	process.terminate()
	try:
		process.wait(seconds)
	except subprocess.TimeoutExpired:
		process.kill()
		process.wait()


# ---- a quiet machine

def _meminfo():
	with open("/proc/meminfo", encoding="ascii") as lines:
		return {line.split(":")[0]: int(line.split()[1]) * 1024 for line in lines if line.rstrip().endswith("kB")}


def settle(path):
	"""What was written or deleted before is on the device; bounded, since others may write, too."""
	run(["sync", "-f", path])
	deadline = time.monotonic() + SETTLE_SECONDS
	while time.monotonic() < deadline:
		now = _meminfo()
		if now["Dirty"] + now["Writeback"] < SETTLED_BYTES:
			return
		time.sleep(0.1)


def can_drop_caches():
	return os.access("/proc/sys/vm/drop_caches", os.W_OK)


def drop_caches():
	with open("/proc/sys/vm/drop_caches", "w", encoding="ascii") as control:
		control.write("3")


class Reservoir:
	"""Memory that was touched, held by a child until it is wanted, so that it can be given to the page cache warm.

	Virtual machines find the memory behind a page at its first touch, slowly, and those that report free pages to their host lose it
	again two seconds after it was freed. Without this, a side's figure depends on what ran before it.
	"""

	def __init__(self):
		self.pid = self.pipe = None

	def fill(self, size):
		"""Hold so much, or half of what there is. Soon after a sample's files were deleted it costs little."""
		self.release()
		size = min(size, _meminfo()["MemAvailable"] // 2) // HUGE * HUGE
		if size == 0:
			return
		ready, told = os.pipe()
		held, self.pipe = os.pipe()
		self.pid = os.fork()
		if self.pid == 0:
			try:
				os.close(self.pipe)
				_hold(size, told, held)
			finally:
				os._exit(0)
		os.close(told)
		os.close(held)
		os.read(ready, 1)
		os.close(ready)

	def release(self):
		"""Give it back, right before the clock runs."""
		if self.pid is None:
			return
		os.close(self.pipe)
		os.waitpid(self.pid, 0)
		self.pid = self.pipe = None


def _hold(size, told, held):
	signal.signal(signal.SIGINT, signal.SIG_IGN) # the parent cleans up
	area = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
	area.madvise(mmap.MADV_HUGEPAGE)
	area.madvise(MADV_POPULATE_WRITE)
	os.write(told, b"x")
	os.read(held, 1) # until the parent closes its end, or ends


def warm_disk(directory, size):
	"""Write and delete a file as large: blocks are then not used for the first time."""
	fio(directory, "write", MIB, size)
	for name in os.listdir(directory):
		os.unlink(os.path.join(directory, name))
	settle(directory)


def warm_file(path):
	"""Into the page cache."""
	with open(path, "rb") as file:
		while file.read(MIB):
			pass


# ---- mounts and processes of ours: all carry the scratch directory's name

def _unescape(path):
	return path.replace("\\040", " ").replace("\\011", "\t").replace("\\012", "\n").replace("\\134", "\\")


def mounts_below(directory):
	"""Mount points at or below directory, the last mounted first."""
	with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as lines:
		points = [_unescape(line.split()[4]) for line in lines]
	return [p for p in reversed(points) if p == directory or p.startswith(directory + "/")]


def unmount(mountpoint, lazy=False):
	run(["fusermount3", "-uz" if lazy else "-u", mountpoint], 60)


def unmount_below(directory):
	for point in mounts_below(directory):
		try:
			unmount(point, lazy=True)
		except Failed as failure:
			print(f"# could not unmount {point}: {failure}")


def await_mount(mountpoint, process, seconds=10):
	"""Until something is mounted there. process: who should do so."""
	deadline = time.monotonic() + seconds
	while mountpoint not in mounts_below(mountpoint):
		if process.poll() is not None:
			raise Failed(f"{process.args[0]} ended with status {process.returncode} instead of mounting")
		if time.monotonic() > deadline:
			raise Failed(f"{process.args[0]} has not mounted {mountpoint} after {seconds} s")
		time.sleep(0.005)


def processes_of(directory, names):
	"""Pids of those of our processes with these names whose command line holds the directory."""
	found = []
	for entry in os.listdir("/proc"):
		if not entry.isdigit() or int(entry) == os.getpid():
			continue
		try:
			with open(f"/proc/{entry}/comm", encoding="utf-8", errors="replace") as comm:
				if comm.read().strip() not in names:
					continue
			with open(f"/proc/{entry}/cmdline", "rb") as cmdline:
				if os.fsencode(directory) in cmdline.read():
					found.append(int(entry))
		except OSError:
			continue  # it has ended
	return found


def kill(pids, seconds=20):
	"""SIGKILL, and wait for the end."""
	for pid in pids:
		try:
			os.kill(pid, signal.SIGKILL)
		except ProcessLookupError:
			pass
	deadline = time.monotonic() + seconds
	while time.monotonic() < deadline and any(_alive(pid) for pid in pids):
		time.sleep(0.01)


def _alive(pid):
	try:
		with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as stat:
			return stat.read().rsplit(")", 1)[1].split()[0] not in "ZX"
	except OSError:
		return False


def cpu_seconds(pid):
	"""CPU time of a process, of all its threads that live, to the nanosecond."""
	total = 0
	for task in os.listdir(f"/proc/{pid}/task"):
		with open(f"/proc/{pid}/task/{task}/schedstat", encoding="ascii") as stat:
			total += int(stat.read().split()[0])
	return total / 1e9


def memory_bytes(pid):
	"""Resident memory of a process: (now, at its highest)."""
	with open(f"/proc/{pid}/status", encoding="utf-8", errors="replace") as lines:
		fields = dict(line.split(":", 1) for line in lines)
	return int(fields["VmRSS"].split()[0]) * 1024, int(fields["VmHWM"].split()[0]) * 1024


def describe(directory):
	"""What figures depend on, for the report."""
	def first_line(args):
		try:
			return run(args, 30).splitlines()[0]
		except (Failed, IndexError):
			return "unknown"
	uname = os.uname()
	return {
		"kernel": f"{uname.sysname} {uname.release} {uname.machine}",
		"cpus": len(os.sched_getaffinity(0)),
		"memory_bytes": _meminfo()["MemTotal"],
		"file_system": first_line(["findmnt", "-no", "FSTYPE,OPTIONS", "--target", directory]),
		"fio": first_line(["fio", "--version"]),
		"libfuse": first_line(["pkg-config", "--modversion", "fuse3"]),
		"root": os.geteuid() == 0,
		"free_bytes": shutil.disk_usage(directory).free,
	}
