# SPDX-License-Identifier: GPL-3.0-or-later
"""What both benches share: the command line, rounds, cleaning up, the report.

Each measure goes in rounds; in each round each side gets a fresh directory and gives one sample, and the round after begins with
another side. Medians are compared. What cannot run is skipped, aloud. Whatever happens, mounts are taken away, daemons ended,
and files deleted.
"""

import argparse
import datetime
import os
import re
import shlex
import shutil
import signal
import sys
import tempfile
from collections import namedtuple

import machine
import measures
import peers
import report

QUICK_SCALE = 1 / 8
SPARE_BYTES = 1 << 30
TRIES = 2 # a side that fails so often in a measure is left out of it


# A program: its name, what its help says, its measures in order, who takes part (peers.sides), the columns of its table.
Program = namedtuple("Program", "name description every_measure sides columns")


def parse_arguments(program):
	parser = argparse.ArgumentParser(prog=program.name, description=program.description)
	parser.add_argument("--runs", type=int, help="samples of each side (default 5, with --quick 3)")
	parser.add_argument("--quick", action="store_true", help="an eighth of the sizes: to see that all works, not for figures")
	parser.add_argument("--scale", type=float, help="all sizes and numbers times this (default 1)")
	parser.add_argument("--only", metavar="PATTERN", help="measures whose name matches this regular expression")
	parser.add_argument("--list", action="store_true", help="names of the measures, and what they are")
	parser.add_argument("--json", metavar="FILE", help="write everything, every sample too, to FILE")
	parser.add_argument("--dir", metavar="DIR", help="where stores and raw files lie: on the disk in question (default: the build directory)")
	parser.add_argument("--backing-dir", metavar="DIR", help="where backing directories lie (default: in --dir)")
	parser.add_argument("--no-cistern", action="store_true", help="only the others: how fast is this machine?")
	parser.add_argument("--strict", action="store_true", help="exit status 1 when something wanted is not met")
	options = parser.parse_args(sys.argv[1:] or shlex.split(os.environ.get("BENCH_ARGS", "")))
	options.runs = options.runs or (3 if options.quick else 5)
	options.scale = options.scale or (QUICK_SCALE if options.quick else 1.0)
	if options.runs < 1 or options.scale <= 0:
		parser.error("--runs and --scale are above zero")
	return options


class Bench:
	def __init__(self, program, options, scratch, backing_dir):
		self.program = program
		self.options = options
		self.scratch = scratch
		self.skips = []
		self.results = []
		self.areas = 0
		self.warm_bytes = 0 # what the measure that is on wants to be held
		self.backing_dir = backing_dir
		build = os.environ.get("top_builddir", os.getcwd())
		found = program.sides(os.path.join(build, "bench-peers"), not options.no_cistern, backing_dir, self.skipped)
		self.context = measures.Context(found, os.path.join(build, "tests/bench"), options.scale)

	def skipped(self, what, why):
		if (what, why) not in self.skips:
			self.skips.append((what, why))
			print(f"# skipped: {what}: {why}", flush=True)

	def area(self):
		self.areas += 1
		path = os.path.join(self.scratch, str(self.areas))
		os.mkdir(path)
		return path

	def clear(self, area):
		machine.kill(machine.processes_of(area, peers.DAEMON_NAMES))
		machine.unmount_below(area)
		self.context.reservoir.release()
		measures.remove(area)
		if self.backing_dir:
			measures.remove(os.path.join(self.backing_dir, os.path.basename(area)))
		self.context.reservoir.fill(self.warm_bytes)
		machine.settle(self.scratch)

	def sides_of(self, measure):
		return [side for side in measure.sides if measure.peer(side) in self.context.peers]

	def one(self, measure, sides, side, result):
		area = self.area()
		try:
			values = measure.sample(self.context, side, area)
			result.add(side, values)
			shown = ", ".join(f"{key} {report._number(value, measure.units[key])}" for key, value in values.items())
			print(f"#   {measure.name}: {side}: {shown}", flush=True)
		except machine.Skip as skip:
			self.skipped(f"{measure.name}, {side}", str(skip))
			sides.remove(side)
		except (machine.Failed, OSError) as failure:
			self.skipped(f"{measure.name}, {side}", str(failure).replace(area, "..."))
			result.add(side, {})
			result.failures[side] = result.failures.get(side, 0) + 1
			if result.failures[side] >= TRIES:
				sides.remove(side)
		finally:
			self.clear(area)

	def measure(self, measure):
		sides = self.sides_of(measure)
		if not sides:
			self.skipped(measure.name, "none of its sides can run")
			return
		free, need = shutil.disk_usage(self.scratch).free, measure.disk_bytes(self.context) + measure.warm_bytes(self.context)
		if free < need + SPARE_BYTES:
			self.skipped(measure.name, f"needs {need >> 20:,} MiB and {SPARE_BYTES >> 20:,} to spare, {free >> 20:,} are free")
			return
		result = report.Result(measure, sides)
		kept = self.area()
		try:
			if measure.warm_bytes(self.context):
				machine.warm_disk(kept, measure.warm_bytes(self.context))
			self.warm_bytes = measure.warm_bytes(self.context)
			self.context.reservoir.fill(self.warm_bytes)
			measure.begin(self.context, kept)
			for number in range(self.options.runs):
				turn = number % max(len(sides), 1)
				for side in sides[turn:] + sides[:turn]:
					if side in sides:
						self.one(measure, sides, side, result)
		except (machine.Failed, OSError) as failure:
			if isinstance(failure.__context__, KeyboardInterrupt):  # cleaning up behind it failed
				raise failure.__context__
			self.skipped(measure.name, str(failure))
		finally:
			self.warm_bytes = 0
			self.clear(kept)
		self.results.append(result)
		print(report.table([result.row(line) for line in measure.lines], self.program.columns), flush=True)

	def all(self):
		chosen = [m for m in self.program.every_measure() if re.search(self.options.only or "", m.name)]
		if not chosen:
			print(f"no measure matches '{self.options.only}'; --list shows them", file=sys.stderr)
			return 2
		if not machine.can_drop_caches():
			self.skipped("cold reads", "caches can be dropped by root only")
		for measure in chosen:
			self.measure(measure)
		return 0

	def title(self):
		if self.options.scale == 1:
			return ""
		return f"Not for figures: sizes and numbers are {self.options.scale:g} times those that the table names.\n"

	def rows(self):
		return [result.row(line) for result in self.results for line in result.measure.lines]

	def finish(self):
		"""The whole table, the skips once more, the JSON. Number of goals not met."""
		rows = self.rows()
		print("\n" + self.title() + report.table(rows, self.program.columns))
		for what, why in self.skips:
			print(f"skipped: {what}: {why}")
		judged = [row for row in rows if row["met"] is not None]
		print(f"{sum(row['met'] for row in judged)} of {len(judged)} goals met; {self.options.runs} runs, scale {self.options.scale:g}")
		if self.options.json:
			about = machine.describe(self.scratch)
			about["time"] = datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")
			asked = {"runs": self.options.runs, "scale": self.options.scale, "quick": self.options.quick, "only": self.options.only}
			report.write_json(self.options.json, report.document(about, asked, self.results, self.skips))
		return sum(not row["met"] for row in judged)


def stop(number, frame):
	raise KeyboardInterrupt


def main(program):
	options = parse_arguments(program)
	if options.list:
		for measure in program.every_measure():
			print(f"{measure.name:12} {measure.title}")
		return 0
	signal.signal(signal.SIGTERM, stop)
	signal.signal(signal.SIGHUP, stop)
	peers.raise_file_limit()
	place = options.dir or os.environ.get("top_builddir", os.getcwd())
	scratch = os.path.realpath(tempfile.mkdtemp(prefix="bench.", dir=place))
	backing_dir = options.backing_dir and os.path.realpath(tempfile.mkdtemp(prefix="bench.", dir=options.backing_dir))
	bench = None
	try:
		bench = Bench(program, options, scratch, backing_dir)
		status = bench.all()
		missed = bench.finish() if status == 0 else 0
		return status or int(options.strict and missed > 0)
	except KeyboardInterrupt:
		print("# interrupted: cleaning up", flush=True)
		return 130
	finally:
		signal.signal(signal.SIGINT, signal.SIG_IGN)
		signal.signal(signal.SIGTERM, signal.SIG_IGN)
		if bench:
			bench.context.reservoir.release()
		machine.kill(machine.processes_of(scratch, peers.DAEMON_NAMES))
		machine.unmount_below(scratch)
		measures.remove(scratch)
		if backing_dir:
			measures.remove(backing_dir)


def run(program):
	"""The exit status."""
	try:
		return main(program)
	except machine.Failed as problem:
		print(f"{program.name}: {problem}", file=sys.stderr)
		return 1
