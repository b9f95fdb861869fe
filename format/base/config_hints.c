/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * The driver's log directory becomes the store, in a folder of its own: other programs' logs may lie beside it. The rest
 * either limits memory, as here, or is about files that a mount does not have.
 */
#include "format/base/config_hints.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "format/base/config_words.h"
#include "format/base/hints.h"

#define VALUE_BYTES 4096
#define NOTE_BYTES  (2 * VALUE_BYTES) /* longer notes are cut */
#define STORE_NAME  "cistern"
#define OURS        "nc_burst"
#define NUM_OF(a)   (sizeof(a) / sizeof((a)[0]))

static const enum config_id ids[] = { CONFIG_NC_BURST_BUF, CONFIG_NC_BURST_BUF_DIRNAME,
	CONFIG_NC_BURST_BUF_DEL_ON_CLOSE, CONFIG_NC_BURST_BUF_FLUSH_BUFFER_SIZE, CONFIG_NC_BURST_BUF_OVERWRITE,
	CONFIG_NC_BURST_BUF_SHARED_LOGS };

static bool is_set(const struct config *cfg, enum config_id id)
{
	return strcmp(config_origin(cfg, id), "default") != 0;
}

/* As PnetCDF reads them: words in any case, numbers in any base, below 0 as 0. false: it takes the default. */
static bool normalise(enum config_type type, char value[VALUE_BYTES])
{
	long long number;

	if (type == CONFIG_STRING)
		return true;
	if (type == CONFIG_BYTES) {
		number = strtoll(value, NULL, 0);
		snprintf(value, VALUE_BYTES, "%lld", number < 0 ? 0 : number);
		return true;
	}
	if (strcasecmp(value, "enable") != 0 && strcasecmp(value, "disable") != 0)
		return false;
	strcpy(value, strcasecmp(value, "enable") == 0 ? "enable" : "disable");
	return true;
}

int config_hints_load(struct config *cfg, const char *hints, struct cistern_error *err)
{
	const struct config_setting *table = config_table(NULL);
	char value[VALUE_BYTES];

	for (size_t i = 0; i < NUM_OF(ids); i++) {
		const struct config_setting *s = &table[ids[i]];
		int r = 0;

		if (hints_find(hints, s->name, value, sizeof(value)) && normalise(s->type, value))
			r = config_set(cfg, s->name, value, HINTS_ENV, err);
		if (r < 0)
			return r;
	}
	return 0;
}

/* ---- what they mean */

static void tell(void (*note)(const char *text), const char *where, const char *text)
{
	char all[NOTE_BYTES];

	if (!note)
		return;
	if (snprintf(all, sizeof(all), "%s: %s", where, text) > 0)
		note(all);
}

/* "PNETCDF_HINTS: nc_burst_buf_dirname", for messages and as the origin of what is set from it. */
static const char *where_from(const struct config *cfg, enum config_id id, char out[VALUE_BYTES])
{
	snprintf(out, VALUE_BYTES, "%s: %s", config_origin(cfg, id), config_table(NULL)[id].name);
	return out;
}

static int apply_dirname(struct config *cfg, void (*note)(const char *text), struct cistern_error *err)
{
	const char *dir = config_string(cfg, CONFIG_NC_BURST_BUF_DIRNAME);
	char where[VALUE_BYTES], store[VALUE_BYTES];

	if (!is_set(cfg, CONFIG_NC_BURST_BUF_DIRNAME) || !*dir)
		return 0;
	where_from(cfg, CONFIG_NC_BURST_BUF_DIRNAME, where);
	if (is_set(cfg, CONFIG_STORE)) {
		tell(note, where, "not used, since the setting store says where the store is");
		return 0;
	}
	if (snprintf(store, sizeof(store), "%s%s" STORE_NAME, dir, dir[strlen(dir) - 1] == '/' ? "" : "/") >=
		(int)sizeof(store))
		return cistern_error_set(err, -ENAMETOOLONG, "%s: the path is too long", where);
	return config_set(cfg, "store", store, where, err);
}

static int apply_buffer(struct config *cfg, void (*note)(const char *text), struct cistern_error *err)
{
	const enum config_id id = CONFIG_NC_BURST_BUF_FLUSH_BUFFER_SIZE;
	uint64_t bytes = config_number(cfg, id), least = config_table(NULL)[CONFIG_FLUSH_BUFFER_SIZE].min;
	char where[VALUE_BYTES], value[32];

	if (!is_set(cfg, id))
		return 0;
	where_from(cfg, id, where);
	if (is_set(cfg, CONFIG_FLUSH_BUFFER_SIZE)) {
		tell(note, where, "not used, since flush_buffer_size is set");
		return 0;
	}
	if (bytes == 0) {
		tell(note, where,
			"0 is no limit to PnetCDF; here flush_buffer_size stays as it is, and limits the memory but nothing else");
		return 0;
	}
	if (bytes < least)
		tell(note, where, "raised to the least that flush_buffer_size can be");
	snprintf(value, sizeof(value), "%" PRIu64, bytes < least ? least : bytes);
	return config_set(cfg, "flush_buffer_size", value, where, err);
}

/* Values that ask for something that a mount does not do. */
static void tell_meaningless(const struct config *cfg, void (*note)(const char *text))
{
	static const struct {
		enum config_id id;
		uint64_t value;
		const char *text;
	} rules[] = {
		{ CONFIG_NC_BURST_BUF, 0, "disable has no meaning here: a mount always buffers" },
		{ CONFIG_NC_BURST_BUF_DEL_ON_CLOSE, 0,
			"disable has no meaning here: what has been drained is given back, and is in the file itself" },
		{ CONFIG_NC_BURST_BUF_OVERWRITE, 1,
			"enable has no meaning here: what an earlier mount left in the store is continued, never overwritten" },
		{ CONFIG_NC_BURST_BUF_SHARED_LOGS, 0,
			"disable has no meaning here: all processes of a node share the mount's store" },
	};
	char where[VALUE_BYTES];

	for (size_t i = 0; i < NUM_OF(rules); i++)
		if (is_set(cfg, rules[i].id) && config_number(cfg, rules[i].id) == rules[i].value)
			tell(note, where_from(cfg, rules[i].id, where), rules[i].text);
}

static bool is_ours(const char *name)
{
	for (size_t i = 0; i < NUM_OF(ids); i++)
		if (strcmp(config_table(NULL)[ids[i]].name, name) == 0)
			return true;
	return false;
}

/* Other hints are PnetCDF's and MPI-IO's, of which there are many. */
static void tell_misspelt(const char *hints, void (*note)(const char *text))
{
	char key[VALUE_BYTES], text[NOTE_BYTES];

	while (hints_next_key(&hints, key, sizeof(key))) {
		const char *nearest = config_words_nearest(key);
		int n;

		if (is_ours(key) || (strncmp(key, OURS, strlen(OURS)) != 0 && !(nearest && is_ours(nearest))))
			continue;
		n = snprintf(text, sizeof(text),
			"'%.100s' is no hint of PnetCDF's burst-buffer driver and is skipped; these are: ", key);
		for (size_t i = 0; i < NUM_OF(ids); i++)
			n += snprintf(text + n, sizeof(text) - (size_t)n, "%s%s", i == 0 ? "" : ", ",
				config_table(NULL)[ids[i]].name);
		tell(note, HINTS_ENV, text);
	}
}

/* What PnetCDF would skip in the variable, in as far as it may have been meant for the driver. */
static void tell_skipped(const char *hints, void (*note)(const char *text))
{
	const struct config_setting *table = config_table(NULL);
	char value[VALUE_BYTES], text[NOTE_BYTES];

	if (hints_malformed(hints, value, sizeof(value))) {
		snprintf(text, sizeof(text), "'%s' is not of the form key=value; PnetCDF skips it, too", value);
		tell(note, HINTS_ENV, text);
	}
	for (size_t i = 0; i < NUM_OF(ids); i++) {
		const struct config_setting *s = &table[ids[i]];

		if (!hints_find(hints, s->name, value, sizeof(value)) || normalise(s->type, value))
			continue;
		snprintf(text, sizeof(text), "%s=%s is neither enable nor disable; PnetCDF takes %s", s->name, value,
			s->default_text);
		tell(note, HINTS_ENV, text);
	}
}

int config_hints_apply(struct config *cfg, const char *hints, void (*note)(const char *text), struct cistern_error *err)
{
	int r = apply_dirname(cfg, note, err);

	if (r == 0)
		r = apply_buffer(cfg, note, err);
	tell_meaningless(cfg, note);
	tell_skipped(hints, note);
	tell_misspelt(hints, note);
	return r;
}
