#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-3.0-or-later
"""check_schema SCHEMA: is the JSON on standard input what a JSON Schema says? Knows the words that docs/*.schema.json use, and
refuses others, so that none is passed over. Prints what is wrong."""

import json
import re
import sys

TYPES = {"object": dict, "array": list, "string": str, "boolean": bool, "integer": int, "null": type(None)}
KNOWN = {"$schema", "$defs", "$ref", "title", "description", "oneOf", "enum", "type", "properties", "required",
         "additionalProperties", "items", "minimum", "maximum", "pattern"}
schema_root = json.load(open(sys.argv[1], encoding="utf-8"))


def is_type(value, name):
	return isinstance(value, TYPES[name]) and not (name == "integer" and isinstance(value, bool))


def check_object(value, schema, where):
	properties = schema.get("properties", {})
	for name in schema.get("required", []):
		if name not in value:
			yield "%s: no %s" % (where, name)
	for name, part in value.items():
		if name in properties:
			yield from check(part, properties[name], "%s.%s" % (where, name))
		elif schema.get("additionalProperties", True) is False:
			yield "%s: %s is in no schema" % (where, name)


def check(value, schema, where):
	unknown = set(schema) - KNOWN
	if unknown:
		yield "schema of %s: %s" % (where, sorted(unknown))
	if "$ref" in schema:
		yield from check(value, schema_root["$defs"][schema["$ref"].split("/")[-1]], where)
	if "oneOf" in schema:
		tries = [list(check(value, one, where)) for one in schema["oneOf"]]
		if sum(not wrong for wrong in tries) != 1:
			yield from min(tries, key=len) or ["%s: fits more than one" % where]
	if "type" in schema and not is_type(value, schema["type"]):
		yield "%s: %r is no %s" % (where, value, schema["type"])
		return
	if "enum" in schema and value not in schema["enum"]:
		yield "%s: %r is none of %s" % (where, value, schema["enum"])
	if "minimum" in schema and value < schema["minimum"] or "maximum" in schema and value > schema["maximum"]:
		yield "%s: %r is out of range" % (where, value)
	if "pattern" in schema and not re.search(schema["pattern"], value):
		yield "%s: %r" % (where, value)
	if isinstance(value, dict):
		yield from check_object(value, schema, where)
	if isinstance(value, list) and "items" in schema:
		for i, part in enumerate(value):
			yield from check(part, schema["items"], "%s[%d]" % (where, i))


wrong = list(check(json.load(sys.stdin), schema_root, ""))
print("\n".join(wrong[:20]), end="\n" if wrong else "")
sys.exit(bool(wrong))
