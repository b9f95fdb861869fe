# SPDX-License-Identifier: GPL-3.0-or-later
"""From samples to medians, ratios, the table for people and the JSON for programs."""

import json
import statistics

COLUMNS = ("measure", "ours", "raw", "passthrough_ll", "ratio", "wanted", "met?")
NODE_COLUMNS = ("measure", "ours", "compared with", "ratio", "wanted", "met?")


def median(samples):
	return statistics.median(samples) if samples else None


class Result:
	"""The samples of one measure: samples[side][key] is a list, a value a round, None where there is none."""

	def __init__(self, measure, sides):
		self.measure = measure
		self.failures = {} # of each side, how often
		self.samples = {side: {key: [] for key in measure.units} for side in sides}

	def add(self, side, values):
		for key, samples in self.samples[side].items():
			samples.append(values.get(key))

	def median(self, side, key):
		return median([v for v in self.samples.get(side, {}).get(key, []) if v is not None])

	def best(self, sides, key, at_most):
		"""(side, median) of the best of sides; (None, None) when none was measured."""
		names = [sides] if isinstance(sides, str) else list(sides)
		found = [(self.median(name, key), name) for name in names if self.median(name, key) is not None]
		if not found:
			return None, None
		value, name = min(found) if at_most else max(found)
		return name, value

	def ratios(self, key, ours, base):
		"""Round by round, to show how far the figures scatter."""
		pairs = zip(self.samples[ours][key], self.samples[base][key])
		return [a / b for a, b in pairs if a is not None and b]

	def row(self, line):
		"""A line of the measure, judged. Everything is a plain value, for JSON; None: could not be had."""
		ours, value = self.best(line.ours, line.key, line.at_most)
		base, base_value = self.best(line.base, line.key, line.at_most) if line.base else (None, None)
		ratio = value / base_value if value is not None and base_value else None
		judged = ratio if line.base else value
		met = None
		if judged is not None and line.wanted is not None:
			met = judged <= line.wanted if line.at_most else judged >= line.wanted
		row = {"measure": self.measure.name, "title": line.title, "key": line.key, "unit": self.measure.units[line.key],
			"side": ours, "ours": value, "base_side": base or (line.base if isinstance(line.base, str) else None),
			"base": base_value, "raw": self.median("raw", line.key), "passthrough_ll": self.median("passthrough_ll", line.key),
			"ratio": ratio, "wanted": line.wanted, "at_most": line.at_most, "met": met}
		if ratio is not None:
			row["ratio_of_rounds"] = self.ratios(line.key, ours, base)
		return row

	def as_json(self):
		sides = {side: {key: {"samples": samples, "median": self.median(side, key)} for key, samples in keys.items()}
			for side, keys in self.samples.items()}
		return {"name": self.measure.name, "title": self.measure.title, "units": self.measure.units, "sides": sides,
			"lines": [self.row(line) for line in self.measure.lines]}


# ---- the table

def _number(value, unit):
	if value is None:
		return "-"
	if unit == "B/s":
		return f"{value / (1 << 20):,.0f} MiB/s"
	if unit == "B":
		return f"{value:.1f} B" if value < 10000 else f"{value / (1 << 20):,.0f} MiB"
	if unit == "files/s":
		return f"{value:,.0f}/s"
	return f"{value:,.2f} {unit}"


def _wanted(row):
	if row["wanted"] is None:
		return "-"
	sign = "<=" if row["at_most"] else ">="
	if row["base_side"] is None and row["ratio"] is None and row["at_most"]:
		return f"{sign} {_number(row['wanted'], row['unit'])}"
	return f"{sign} {row['wanted']:.2f}"


def cells(row):
	"""The row as texts, by column."""
	ours = _number(row["ours"], row["unit"])
	if row["side"] not in (None, "default"):
		ours += f" ({row['side']})"
	return {
		"measure": row["title"],
		"ours": ours,
		"raw": _number(row["raw"], row["unit"]),
		"passthrough_ll": _number(row["passthrough_ll"], row["unit"]),
		"compared with": _number(row["base"], row["unit"]),
		"ratio": "-" if row["ratio"] is None else f"{row['ratio']:.2f} of {row['base_side']}",
		"wanted": _wanted(row),
		"met?": {True: "yes", False: "NO", None: "-"}[row["met"]],
	}


def table(rows, columns):
	"""In Markdown, aligned, so that it can be read and pasted."""
	lines = [columns, *([cells(row)[name] for name in columns] for row in rows)]
	widths = [max(len(line[i]) for line in lines) for i in range(len(columns))]
	texts = ["| " + " | ".join(cell.ljust(width) for cell, width in zip(line, widths)) + " |" for line in lines]
	texts.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
	return "\n".join(texts)


def document(machine, options, results, skipped):
	"""All of it, for --json."""
	return {"version": 1, "machine": machine, "options": options, "measures": [result.as_json() for result in results],
		"skipped": [{"what": what, "why": why} for what, why in skipped]}


def write_json(path, content):
	with open(path, "w", encoding="utf-8") as out:
		json.dump(content, out, indent=1)
		out.write("\n")
