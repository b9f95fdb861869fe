/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * cistern inspect of PnetCDF's burst-buffer logs: each rank's log, and each entry that counts. The netCDF file gives variables
 * their names where it is found; without it they have numbers.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "format/base/json.h"
#include "format/base/units.h"
#include "tools/bblog.h"
#include "tools/lib/bbset.h"
#include "tools/lib/say.h"

#define RANKS_BYTES 256
#define NUMBERS     48 /* bytes of a column of numbers */

struct view {
	struct bbset_group g;
	struct classic nc; /* empty: not known */
	bool known;
	struct json *j; /* NULL: text */
	bool damaged;
	char damage[CISTERN_ERROR_TEXT_BYTES]; /* of the log that is being shown; "" */
};

static const char *count_word(enum bblog_count_from from)
{
	static const char *const words[] = {
		[BBLOG_COUNT_AT_56] = "at-56", [BBLOG_COUNT_NONE] = "not-yet", [BBLOG_COUNT_AT_48] = "at-48"
	};

	return words[from];
}

/* Names come from others' files; lines must stay lines. */
static void print_name(const char *name)
{
	for (; *name; name++)
		putchar((unsigned char)*name < 0x20 || *name == 0x7f ? '?' : *name);
}

static const char *var_name(const struct view *v, uint32_t varid)
{
	return v->known && varid < v->nc.num_vars ? v->nc.vars[varid].name : NULL;
}

/* ---- entries */

static void json_numbers(struct json *j, const char *key, const int64_t *numbers, uint64_t num)
{
	if (!numbers)
		return;
	json_key(j, key);
	json_array(j);
	for (uint64_t i = 0; i < num; i++)
		json_i64(j, numbers[i]);
	json_end_array(j);
}

static void entry_json(const struct view *v, const struct bblog_entry *e)
{
	struct json *j = v->j;

	json_object(j);
	json_ku64(j, "entry", e->seq);
	json_ku64(j, "offset", e->off);
	json_ku64(j, "size", e->size);
	json_kstr(j, "kind", bblog_kind_name(e->kind));
	json_ku64(j, "requests", e->num);
	json_kstr(j, "type", bblog_type_name(e->type));
	json_ku64(j, "variable", e->varid);
	if (var_name(v, e->varid))
		json_kstr(j, "name", var_name(v, e->varid));
	json_ku64(j, "data_offset", e->data_off);
	json_ku64(j, "data_bytes", e->data_len);
	json_numbers(j, "start", e->start, e->num * e->ndims);
	json_numbers(j, "count", e->count, e->num * e->ndims);
	json_numbers(j, "stride", e->stride, e->ndims);
	if (e->wrong)
		json_kstr(j, "wrong", e->wrong);
	json_end_object(j);
}

/* "[0,0]" */
static void print_numbers(const char *before, const int64_t *numbers, uint32_t num)
{
	printf("%s[", before);
	for (uint32_t d = 0; d < num; d++)
		printf(d ? ",%" PRId64 : "%" PRId64, numbers[d]);
	putchar(']');
}

static void entry_line(const struct view *v, uint64_t rank, const struct bblog_entry *e)
{
	printf("%6" PRIu64 " %8" PRIu64 "  %-4s %-9s %12" PRIu64 " %10" PRIu64 "  ", rank, e->seq,
		bblog_kind_name(e->kind), bblog_type_name(e->type), e->data_off, e->data_len);
	if (var_name(v, e->varid))
		print_name(var_name(v, e->varid));
	else
		printf("variable %" PRIu32, e->varid);
	if (e->ndims > 0) {
		print_numbers(" ", e->start, e->ndims);
		if (e->count)
			print_numbers("+", e->count, e->ndims);
		if (e->stride)
			print_numbers(" by ", e->stride, e->ndims);
	}
	if (e->num > 1)
		printf(" and %" PRIu64 " more", e->num - 1);
	if (e->wrong)
		printf("  WRONG: %s", e->wrong);
	putchar('\n');
}

/* Entries of a log. Damage is shown, and no failure. */
static int each_entry(struct view *v, struct bbset_log *l, struct cistern_error *err)
{
	struct cistern_error why = { 0 };
	struct bblog_entry e;
	int r;

	bblog_rewind(l->log);
	while ((r = bblog_next(l->log, &e, &why)) > 0) {
		v->damaged |= e.wrong != NULL;
		if (v->j)
			entry_json(v, &e);
		else
			entry_line(v, bblog_header(l->log)->rank, &e);
	}
	if (r == -EBADMSG) {
		v->damaged = true;
		if (v->j)
			memcpy(v->damage, why.text, sizeof(v->damage));
		else
			printf("%6" PRIu64 "  DAMAGE: %s\n", bblog_header(l->log)->rank, why.text);
		return 0;
	}
	return r < 0 ? cistern_error_set(err, r, "%s: %s", l->meta->path, why.text) : 0;
}

/* ---- logs */

static int log_json(struct view *v, struct bbset_log *l, struct cistern_error *err)
{
	const struct bblog_header *h = bblog_header(l->log);
	struct json *j = v->j;
	int r;

	json_object(j);
	json_kstr(j, "meta", l->meta->path);
	if (l->data)
		json_kstr(j, "data", l->data->path);
	json_ku64(j, "rank", h->rank);
	json_ku64(j, "ranks", h->num_ranks);
	json_ku64(j, "channel", l->channel);
	json_ku64(j, "channels", l->num_channels);
	json_kstr(j, "host", h->host);
	json_kstr(j, "written_by", bblog_layout_name(h->layout));
	json_kbool(j, "big_endian", h->big_endian);
	json_kbool(j, "redefined", h->redefined);
	json_ku64(j, "entries_begin", h->begin);
	json_ku64(j, "num_entries", h->count);
	json_kstr(j, "count_found", count_word(h->count_from));
	if (l->no_data)
		json_kstr(j, "wrong", l->no_data);
	json_key(j, "entries");
	json_array(j);
	v->damage[0] = '\0';
	r = each_entry(v, l, err);
	json_end_array(j);
	if (v->damage[0])
		json_kstr(j, "damage", v->damage);
	json_end_object(j);
	return r;
}

static void log_line(const struct bbset_log *l)
{
	const struct bblog_header *h = bblog_header(l->log);

	printf("%6" PRIu64 " %8" PRIu64 " %12" PRIu64 "  %-24s ", h->rank, h->count,
		l->data ? (uint64_t)l->data->st.st_size : 0, bblog_layout_name(h->layout));
	print_name(l->meta->path);
	if (l->num_channels > 1)
		printf(" (channel %" PRIu32 " of %" PRIu32 ")", l->channel, l->num_channels);
	if (h->big_endian)
		printf(" (big-endian)");
	if (l->no_data)
		printf("  DAMAGE: %s", l->no_data);
	putchar('\n');
}

/* ---- groups */

static void group_head(struct view *v)
{
	char missing[RANKS_BYTES], ranks[UNITS_COUNT];
	uint64_t num = bbset_missing(&v->g, missing, sizeof(missing));

	print_name(v->g.path);
	printf(": logs of %zu of %s", v->g.num, units_format_count(v->g.num_ranks, "rank", ranks));
	if (*v->g.netcdf && strcmp(v->g.netcdf, v->g.path) != 0)
		printf(", the file is %s", v->g.netcdf);
	printf("%s\n", *v->g.netcdf ? "" : ", the file is not found: its variables have no names here");
	if (num > 0)
		printf("missing: rank%s %s\n", num == 1 ? "" : "s", missing);
}

static int show_json(struct view *v, struct cistern_error *err)
{
	char missing[RANKS_BYTES];
	int r = 0;

	json_object(v->j);
	json_kstr(v->j, "path", v->g.path);
	if (*v->g.netcdf)
		json_kstr(v->j, "netcdf", v->g.netcdf);
	json_ku64(v->j, "ncid", v->g.ncid);
	json_ku64(v->j, "ranks", v->g.num_ranks);
	bbset_missing(&v->g, missing, sizeof(missing));
	json_kstr(v->j, "missing_ranks", missing);
	json_key(v->j, "logs");
	json_array(v->j);
	for (size_t i = 0; i < v->g.num && r == 0; i++)
		r = log_json(v, &v->g.logs[i], err);
	json_end_array(v->j);
	json_end_object(v->j);
	return r;
}

static int show_text(struct view *v, struct cistern_error *err)
{
	int r = 0;

	group_head(v);
	printf("%6s %8s %12s  %-24s %s\n", "RANK", "ENTRIES", "DATA BYTES", "WRITTEN BY", "LOG");
	for (size_t i = 0; i < v->g.num; i++) {
		log_line(&v->g.logs[i]);
		v->damaged |= v->g.logs[i].no_data != NULL;
	}
	printf("%6s %8s  %-4s %-9s %12s %10s  %s\n", "RANK", "ENTRY", "KIND", "TYPE", "DATA AT", "BYTES",
		"VARIABLE [START]+[COUNT]");
	for (size_t i = 0; i < v->g.num && r == 0; i++)
		r = each_entry(v, &v->g.logs[i], err);
	return r;
}

static int show_group(struct view *v, struct cistern_error *err)
{
	v->known = *v->g.netcdf && bbset_read_netcdf(v->g.netcdf, NULL, &v->nc, NULL) == 0;
	if (*v->g.netcdf && !v->known)
		say("note: %s has no header that can be read: variables have no names here", v->g.netcdf);
	return v->j ? show_json(v, err) : show_text(v, err);
}

static int show_all(struct bbset *set, struct json *j, bool *ret_damaged, struct cistern_error *err)
{
	struct bbset_group g;
	size_t at = 0;
	int r = 0;

	while (r == 0 && bbset_next(set, &at, &g)) {
		struct view v = { .g = g, .j = j };

		r = show_group(&v, err);
		*ret_damaged |= v.damaged;
		classic_destroy(&v.nc);
	}
	for (; at < set->num; at++) {
		*ret_damaged = true;
		say("%s: %s", set->logs[at].meta->path, set->logs[at].broken);
	}
	return r;
}

int bblog_inspect(char *const *names, bool want_json)
{
	struct cistern_error err = { 0 };
	struct bbset set;
	struct json j;
	bool damaged = false;
	int r = bbset_open(names, &set, &err);

	if (r < 0)
		return say_error(&err);
	if (want_json) {
		json_init(&j, stdout, true);
		json_object(&j);
		json_key(&j, "pnetcdf_logs");
		json_array(&j);
	}
	r = show_all(&set, want_json ? &j : NULL, &damaged, &err);
	if (want_json) {
		json_end_array(&j);
		json_kstr(&j, "note", BBLOG_CANCEL_NOTE);
		json_end_object(&j);
		json_finish(&j);
	} else if (r == 0) {
		puts("note: " BBLOG_CANCEL_NOTE);
	}
	bbset_close(&set);
	if (r < 0)
		return say_error(&err);
	return damaged ? CISTERN_EXIT_DAMAGED : CISTERN_EXIT_OK;
}
