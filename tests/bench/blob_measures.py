# SPDX-License-Identifier: GPL-3.0-or-later
"""What is measured of blobs becoming canonical files. See measures.py for what a Measure is."""

import os
import time

import jobs
import machine
import peers
from measures import MIB, Line, Measure, check_copy

PROCESSES = 4
FORMS = ("blob-variable", "blob-process")
TITLE = "cistern convert to a canonical file, F-case-like, 4 blobs"


class BlobConvert(Measure):
	"""The subfiles are what a drain made of a climate model's file, four processes on one node; cp copies the file itself."""
	name = "convert"
	title = TITLE
	units = {"rate": "B/s"}
	sides = ("cp", *FORMS)
	lines = [Line(f"{TITLE}, {form}", "rate", form, "cp", 0.5) for form in FORMS]

	def peer(self, side):
		return "raw" if side == "cp" else "default"

	def disk_bytes(self, context):
		return 400 * MIB

	def warm_bytes(self, context):
		return 100 * MIB

	def write(self, context, processes, path):
		size = "small" if context.scale >= 0.1 else "tiny"
		machine.run([jobs.MPIEXEC, "-n", str(processes), *context.program("e3sm", "--case=F", f"--size={size}", path)])

	def begin(self, context, area):
		self.inputs = area
		self.original = os.path.join(area, "f.nc")
		self.write(context, 1, self.original)
		for form in FORMS:
			if "default" in context.peers:
				self.drain(context, peers.Cistern(context.peers["default"].command, f"layout={form}"), os.path.join(area, form))

	def drain(self, context, cistern, area):
		place = cistern.enter(area)
		try:
			self.write(context, PROCESSES, os.path.join(place.path, "f.nc"))
			machine.run([place.command, "umount", "--wait", place.path])
		finally:
			place.leave()

	def sample(self, context, side, area):
		copy, blobs = os.path.join(area, "copy"), os.path.join(self.inputs, side, "backing", "f.nc")
		machine.warm_file(self.original if side == "cp" else blobs + ".0000")
		machine.settle(area)
		context.reservoir.release()
		begin = time.monotonic()
		if side == "cp":
			machine.run(["cp", self.original, copy])
			machine.run(["sync", "-d", copy])
		else:
			machine.run([context.peers["default"].command, "convert", blobs, "--to", copy])
		seconds = time.monotonic() - begin
		check_copy(self.original, copy)
		return {"rate": os.path.getsize(copy) / seconds}


def every_measure():
	return [BlobConvert()]
