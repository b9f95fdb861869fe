/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * The table of variables, for people and as JSON. A variable's name comes last in a line, since it may have any length.
 */
#include "tools/variables.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "format/base/units.h"

#define WRITERS_SHOWN 2
#define SOURCES_SHOWN 4 /* of an object */
#define UNSEEN_SHOWN  8
#define SHAPE_BYTES   160

static bool has_elements(const struct layout_object *o)
{
	return o->kind == LAYOUT_VARIABLE || o->kind == LAYOUT_RECORDS || o->kind == LAYOUT_CHUNKS;
}

static uint64_t missing(const struct coverage_object *c)
{
	uint64_t there = c->logged_bytes + c->drained_bytes;

	return c->defined_bytes > there ? c->defined_bytes - there : 0;
}

static bool is_complete(const struct layout_object *o, const struct coverage_object *c)
{
	return c->complete >= layout_parts(o) && missing(c) == 0;
}

static void print_name(const char *name)
{
	for (; *name; name++)
		putchar((unsigned char)*name < 0x20 || *name == 0x7f ? '?' : *name);
}

/* ---- for people */

/* What does not fit is left out; lists of dimensions may be long. */
static void __attribute__((format(printf, 2, 3))) append(char out[SHAPE_BYTES], const char *fmt, ...)
{
	size_t len = strlen(out);
	va_list args;

	va_start(args, fmt);
	vsnprintf(out + len, SHAPE_BYTES - len, fmt, args);
	va_end(args);
}

/* The index of the first missing element; of chunks, of the first element of the first chunk with a gap. NULL: none is, or unknown. */
static uint64_t *gap_index(const struct layout_object *o, const struct coverage_object *c)
{
	uint64_t *index = o->num_dims > 0 && c->gap != UINT64_MAX ? calloc(o->num_dims, sizeof(*index)) : NULL;
	uint64_t chunk = c->gap;

	if (!index || o->kind != LAYOUT_CHUNKS) {
		if (index)
			coverage_index(o, c->gap, index);
		return index;
	}
	for (uint32_t i = o->num_dims; o->chunk && i-- > 0;) {
		uint64_t len = o->chunk[i] > 0 ? o->chunk[i] : 1, num = o->dims[i] / len + (o->dims[i] % len > 0);

		index[i] = num > 0 ? chunk % num * len : 0;
		chunk = num > 0 ? chunk / num : 0;
	}
	return index;
}

static const char *gap_text(const struct layout_object *o, const struct coverage_object *c, char out[SHAPE_BYTES])
{
	uint64_t *index = gap_index(o, c);

	out[0] = '\0';
	for (uint32_t i = 0; index && i < o->num_dims; i++)
		append(out, i == 0 ? "[%" PRIu64 : ",%" PRIu64, index[i]);
	if (index)
		append(out, "]");
	else if (c->gap != UINT64_MAX)
		append(out, "byte %" PRIu64, c->gap);
	else
		append(out, "-");
	free(index);
	return out;
}

static const char *writers_text(const struct coverage_object *c, char out[SHAPE_BYTES])
{
	out[0] = '\0';
	for (size_t i = 0; i < c->num_writers && i < WRITERS_SHOWN; i++) {
		append(out, i == 0 ? "%" PRIu32 : ",%" PRIu32, c->writers[i].node);
		if (c->writers[i].process != COVERAGE_NOBODY)
			append(out, ":%" PRIu32, c->writers[i].process);
	}
	if (c->num_writers > WRITERS_SHOWN)
		append(out, "+%zu", c->num_writers - WRITERS_SHOWN);
	return out[0] ? out : strcpy(out, "-");
}

static const char *percent_text(uint64_t part, uint64_t whole, char out[24])
{
	if (whole == 0)
		return strcpy(out, "-");
	snprintf(out, 24, "%.0f %%", 100.0 * (double)part / (double)whole);
	return out;
}

static void print_shape(const struct layout_object *o)
{
	print_name(o->name);
	if (!has_elements(o)) {
		putchar('\n');
		return;
	}
	printf(": %s", layout_type(o));
	for (uint32_t i = 0; i < o->num_dims; i++)
		printf("%s%" PRIu64, i == 0 ? "(" : ",", o->dims[i]);
	puts(o->num_dims > 0 ? ")" : "");
}

static void print_object(const struct survey *s, size_t i)
{
	const struct layout_object *o = &s->layout.objects[i];
	const struct coverage_object *c = survey_object(s, i);
	char a[UNITS_TEXT], b[UNITS_TEXT], d[UNITS_TEXT], e[UNITS_TEXT], f[UNITS_TEXT], fill[24], whole[48];
	char gap[SHAPE_BYTES], writers[SHAPE_BYTES];

	snprintf(whole, sizeof(whole), "%" PRIu64 "/%" PRIu64, c->complete, layout_parts(o));
	printf("%11s %11s %11s %11s %11s %6s %11s %10s %-16s ", units_format_bytes(c->defined_bytes, a),
		units_format_bytes(c->logged_bytes, b), units_format_bytes(c->drained_bytes, d),
		units_format_bytes(missing(c), e), units_format_bytes(survey_overwritten(s, i), f),
		s->looked ? percent_text(c->fill_bytes, c->looked_bytes, fill) : "?", whole, gap_text(o, c, gap),
		writers_text(c, writers));
	print_shape(o);
}

/* What there is of bytes in another file, or why they are not counted. */
static void print_count(const struct survey *s, size_t i, size_t number)
{
	const struct elsewhere_source *found = elsewhere_source_of(&s->elsewhere, i, number);
	const struct elsewhere_file *file = found ? elsewhere_file_of(&s->elsewhere, found) : NULL;

	if (!found)
		return;
	if (file->why_not)
		printf(": not counted, %s", file->why_not);
	else if (!elsewhere_of(&s->elsewhere, i))
		printf(": not counted, since others are not");
	else
		printf(": %" PRIu64 " in the store, %" PRIu64 " drained, %" PRIu64 " missing", found->logged_bytes,
			found->drained_bytes, found->len - found->logged_bytes - found->drained_bytes);
	if (!file->why_not && found->unseen_bytes > 0)
		printf("; %" PRIu64 " not seen", found->unseen_bytes);
}

static void print_source(const struct survey *s, size_t i, size_t number)
{
	const struct layout_object *o = &s->layout.objects[i];
	const struct layout_source *from = &o->sources[number];

	printf("elsewhere: ");
	print_name(o->name);
	if (from->object)
		printf(": selected elements of ");
	else
		printf(": %" PRIu64 " bytes from offset %" PRIu64 " on of ", from->bytes, from->off);
	print_name(from->object ? from->object : from->file);
	if (from->object) {
		printf(" in ");
		print_name(strcmp(from->file, ".") == 0 ? "this file" : from->file);
	}
	print_count(s, i, number);
	putchar('\n');
}

/* Elements that this file names and does not have: of each object the first sources. */
static void print_sources(const struct survey *s)
{
	for (size_t i = 0; i < s->layout.num_objects; i++) {
		const struct layout_object *o = &s->layout.objects[i];

		for (size_t k = 0; k < o->num_sources && k < SOURCES_SHOWN; k++)
			print_source(s, i, k);
		if (o->num_sources > SOURCES_SHOWN)
			printf("elsewhere: and %zu further places\n", o->num_sources - SOURCES_SHOWN);
	}
}

static void print_rest(const struct survey *s)
{
	const struct coverage_object *c = coverage_rest(s->coverage);
	char a[UNITS_TEXT], b[UNITS_TEXT];

	if (c->logged_bytes + c->drained_bytes > 0)
		printf("%11s %11s %11s  (padding, and bytes that belong to nothing)\n", "",
			units_format_bytes(c->logged_bytes, a), units_format_bytes(c->drained_bytes, b));
}

static const char *time_text(int64_t time_ns, char out[40])
{
	time_t seconds = (time_t)(time_ns / 1000000000);
	struct tm tm;

	if (!localtime_r(&seconds, &tm) || strftime(out, 40, "%Y-%m-%d %H:%M:%S", &tm) == 0)
		strcpy(out, "?");
	return out;
}

static void print_generations(const struct generations *g, bool complete)
{
	char when[40], num[UNITS_COUNT], vars[UNITS_COUNT];

	printf("header: %s, %" PRIu64 " of them of the number of records alone",
		units_format_count(g->writes, "write", num), g->counts);
	if (g->lost > 0)
		printf("; %" PRIu64 " whose bytes have been given back", g->lost);
	printf("%s\n", complete ? "" : " (as far back as the journal reaches)");
	if (g->num == 0)
		puts("no earlier header can be known: what the log has of it is not whole");
	if (g->num > GENERATIONS_MAX)
		printf("the last %d of %" PRIu32 " headers:\n", GENERATIONS_MAX, g->num);
	for (uint32_t i = 0; i < g->num; i++) {
		const struct generation *one = generations_at(g, i);

		if (one)
			printf("  %" PRIu32 ". %s, seq %" PRIu64 ": %s, %s, %" PRIu64 " bytes, data from %" PRIu64
			       " on, records of %" PRIu64 "\n",
				i + 1, time_text(one->time_ns, when), one->seq,
				units_format_count(one->num_dims, "dimension", num),
				units_format_count(one->num_vars, "variable", vars), one->header_bytes,
				one->first_begin, one->record_bytes);
	}
}

static void print_summary(const struct survey *s)
{
	uint64_t whole = 0, num = 0;
	char text[UNITS_COUNT];

	for (size_t i = 0; i < s->layout.num_objects; i++) {
		if (!has_elements(&s->layout.objects[i]))
			continue;
		num++;
		whole += is_complete(&s->layout.objects[i], survey_object(s, i));
	}
	printf("%s: %s, %" PRIu64 " of them complete", s->layout.format, units_format_count(num, "variable", text),
		whole);
	if (s->layout.has_records)
		printf("; %s", units_format_count(s->layout.num_records, "record", text));
	putchar('\n');
	if (s->layout.note[0])
		printf("note: %s\n", s->layout.note);
}

static void print_partial(const struct survey *s)
{
	const struct stores *all = s->content.stores;
	char bytes[UNITS_TEXT], num[UNITS_COUNT], node[STORES_NODE_BYTES], nodes[STORES_NODES_BYTES];

	if (!s->content.partial)
		return;
	printf("note: other nodes write it, too, and %" PRIu32 " of %" PRIu32
	       " stores are not given (name them all, or --with STORE): "
	       "what those nodes had not told the others is not known; %s\n",
		all->num_nodes - (uint32_t)all->num, all->num_nodes, stores_not_given(all, nodes));
	if (s->unseen_bytes > 0)
		printf("not seen: %s that count as in the store, but are in none of those that are given\n",
			units_format_bytes(s->unseen_bytes, bytes));
	for (uint64_t i = 0; i < s->num_unseen && i < UNSEEN_SHOWN; i++)
		printf("not seen: %s from offset %" PRIu64 " on, of %s\n",
			units_format_count(s->unseen[i].len, "byte", num), s->unseen[i].off,
			stores_node_text(all, s->unseen[i].node, node));
	if (s->num_unseen > UNSEEN_SHOWN)
		printf("not seen: and %s\n", units_format_count(s->num_unseen - UNSEEN_SHOWN, "further range", num));
}

static void print_loss(const struct survey *s, const struct loss *l)
{
	const struct layout_object *o = s->mapped ? layout_owner(&s->layout, l->off) : NULL;
	char node[STORES_NODE_BYTES], num[UNITS_COUNT];

	printf("lost: %s from offset %" PRIu64 " on", units_format_count(l->len, "byte", num), l->off);
	if (o) {
		printf(", in ");
		print_name(o->name);
	}
	switch (l->why) {
	case LOSS_NOT_GIVEN:
		printf(": they are in the store of %s, which is not given\n",
			stores_node_text(s->content.stores, l->node, node));
		break;
	case LOSS_GONE:
		printf(": segment %" PRIu32 " of the store of %s cannot be read; 'cistern fsck' says more\n",
			l->segment, stores_node_text(s->content.stores, l->node, node));
		break;
	case LOSS_DAMAGED:
		printf(": they are damaged in segment %" PRIu32
		       " of the store of %s (wrong checksum); 'cistern fsck' says more\n",
			l->segment, stores_node_text(s->content.stores, l->node, node));
		break;
	}
}

static void print_losses(const struct survey *s)
{
	const struct losses *lost = &s->content.losses;

	for (size_t i = 0; i < lost->num; i++)
		print_loss(s, &lost->list[i]);
	if (lost->more)
		puts("lost: and further ranges");
}

void variables_print(const struct survey *s, bool complete)
{
	print_partial(s);
	if (!s->mapped) {
		printf("raw, %s: %s\n", s->content.losses.num > 0 ? "cannot be mapped" : "not yet mapped", s->why.text);
		print_losses(s);
		return;
	}
	print_summary(s);
	print_losses(s);
	printf("%11s %11s %11s %11s %11s %6s %11s %10s %-16s %s\n", "DEFINED", "IN STORE", "DRAINED", "MISSING",
		"OVERWRITTEN", "FILL", "COMPLETE", "FIRST GAP", "WRITERS", "VARIABLE");
	for (size_t i = 0; i < s->layout.num_objects; i++)
		print_object(s, i);
	print_rest(s);
	print_sources(s);
	if (s->has_generations)
		print_generations(&s->generations, complete);
}

/* ---- JSON */

static void gap_json(const struct layout_object *o, const struct coverage_object *c, struct json *j)
{
	uint64_t *index = gap_index(o, c);

	json_key(j, "first_gap");
	if (c->gap == UINT64_MAX) {
		json_null(j);
	} else {
		json_array(j);
		for (uint32_t i = 0; index && i < o->num_dims; i++)
			json_u64(j, index[i]);
		json_end_array(j);
	}
	free(index);
}

static void writers_json(const struct coverage_object *c, struct json *j)
{
	json_key(j, "writers");
	json_array(j);
	for (size_t i = 0; i < c->num_writers; i++) {
		json_object(j);
		json_ku64(j, "node", c->writers[i].node);
		if (c->writers[i].process != COVERAGE_NOBODY)
			json_ku64(j, "process", c->writers[i].process);
		json_ku64(j, "bytes", c->writers[i].bytes);
		json_end_object(j);
	}
	json_end_array(j);
}

/* Counted: what there is of it; else why not. */
static void count_json(const struct survey *s, size_t i, size_t number, struct json *j)
{
	const struct elsewhere_source *found = elsewhere_source_of(&s->elsewhere, i, number);
	const struct elsewhere_file *file = found ? elsewhere_file_of(&s->elsewhere, found) : NULL;

	if (!found)
		return;
	json_kbool(j, "counted", elsewhere_of(&s->elsewhere, i) != NULL);
	if (file->why_not)
		json_kstr(j, "reason", file->why_not);
	if (file->path)
		json_kstr(j, "path", file->path);
	if (!elsewhere_of(&s->elsewhere, i))
		return;
	json_ku64(j, "log_bytes", found->logged_bytes);
	json_ku64(j, "drained_bytes", found->drained_bytes);
	json_ku64(j, "missing_bytes", found->len - found->logged_bytes - found->drained_bytes);
	if (found->unseen_bytes > 0)
		json_ku64(j, "unseen_bytes", found->unseen_bytes);
}

static void sources_json(const struct survey *s, size_t object, struct json *j)
{
	const struct layout_object *o = &s->layout.objects[object];

	if (o->num_sources == 0)
		return;
	json_key(j, "elsewhere");
	json_array(j);
	for (size_t i = 0; i < o->num_sources; i++) {
		const struct layout_source *from = &o->sources[i];

		json_object(j);
		json_kstr(j, "file", from->file);
		if (from->object) {
			json_kstr(j, "object", from->object);
		} else {
			json_ku64(j, "offset", from->off);
			json_ku64(j, "bytes", from->bytes);
		}
		count_json(s, object, i, j);
		json_end_object(j);
	}
	json_end_array(j);
}

static void object_json(const struct survey *s, size_t i, struct json *j)
{
	const struct layout_object *o = &s->layout.objects[i];
	const struct coverage_object *c = survey_object(s, i);

	json_object(j);
	json_kstr(j, "name", o->name);
	json_kstr(j, "kind", layout_kind_name(o->kind));
	json_kstr(j, "type", layout_type(o));
	json_key(j, "dims");
	json_array(j);
	for (uint32_t k = 0; k < o->num_dims; k++)
		json_u64(j, o->dims[k]);
	json_end_array(j);
	json_ku64(j, "begin", o->begin);
	json_ku64(j, "defined_bytes", c->defined_bytes);
	if (o->num_heap > 0)
		json_ku64(j, "heap_bytes", layout_heap_bytes(o));
	json_ku64(j, "log_bytes", c->logged_bytes);
	json_ku64(j, "drained_bytes", c->drained_bytes);
	json_ku64(j, "missing_bytes", missing(c));
	json_ku64(j, "overwritten_bytes", survey_overwritten(s, i));
	if (s->content.partial)
		json_ku64(j, "unseen_bytes", survey_unseen(s, i));
	if (s->looked) {
		json_ku64(j, "fill_bytes", c->fill_bytes);
		json_ku64(j, "looked_bytes", c->looked_bytes);
	}
	json_ku64(j, "parts", layout_parts(o));
	json_ku64(j, "complete_parts", c->complete);
	json_kbool(j, "complete", is_complete(o, c));
	gap_json(o, c, j);
	writers_json(c, j);
	sources_json(s, i, j);
	json_end_object(j);
}

static void generations_json(const struct generations *g, struct json *j)
{
	json_ku64(j, "header_writes", g->writes);
	json_ku64(j, "header_writes_of_records", g->counts);
	json_ku64(j, "header_writes_given_back", g->lost);
	json_ku64(j, "header_generations_seen", g->num);
	json_key(j, "header_generations");
	json_array(j);
	for (uint32_t i = 0; i < g->num; i++) {
		const struct generation *one = generations_at(g, i);

		if (!one)
			continue;
		json_object(j);
		json_ku64(j, "number", i + 1);
		json_ku64(j, "seq", one->seq);
		json_key(j, "time_ns");
		json_i64(j, one->time_ns);
		json_ku64(j, "node", one->node);
		json_ku64(j, "dimensions", one->num_dims);
		json_ku64(j, "variables", one->num_vars);
		json_ku64(j, "header_bytes", one->header_bytes);
		json_ku64(j, "first_begin", one->first_begin);
		json_ku64(j, "record_bytes", one->record_bytes);
		json_end_object(j);
	}
	json_end_array(j);
}

/* Which bytes are known of, and cannot be seen. */
static void unseen_json(const struct survey *s, struct json *j)
{
	const struct stores *all = s->content.stores;
	char host[HOSTS_NAME_BYTES];

	json_key(j, "stores_not_given");
	json_array(j);
	for (uint32_t i = 0; i < all->num_nodes; i++)
		if (!all->by_node[i])
			json_u64(j, i);
	json_end_array(j);
	json_key(j, "hosts_not_given");
	json_array(j);
	for (uint32_t i = 0; i < all->num_nodes; i++) {
		if (all->by_node[i])
			continue;
		stores_host(all, i, host);
		json_str(j, host);
	}
	json_end_array(j);
	json_ku64(j, "unseen_bytes", s->unseen_bytes);
	json_ku64(j, "unseen_ranges", s->num_unseen);
	json_key(j, "unseen");
	json_array(j);
	for (uint64_t i = 0; i < s->num_unseen && i < SURVEY_UNSEEN_MAX; i++) {
		json_object(j);
		json_ku64(j, "off", s->unseen[i].off);
		json_ku64(j, "len", s->unseen[i].len);
		json_ku64(j, "node", s->unseen[i].node);
		json_end_object(j);
	}
	json_end_array(j);
}

/* Only when there are any: what was not looked at may be lost as well. */
static void losses_json(const struct losses *lost, struct json *j)
{
	if (lost->num == 0)
		return;
	json_key(j, "lost");
	json_array(j);
	for (size_t i = 0; i < lost->num; i++) {
		const struct loss *l = &lost->list[i];

		json_object(j);
		json_ku64(j, "off", l->off);
		json_ku64(j, "len", l->len);
		json_ku64(j, "node", l->node);
		json_kstr(j, "why", loss_why_name(l->why));
		if (l->why != LOSS_NOT_GIVEN)
			json_ku64(j, "segment", l->segment);
		json_end_object(j);
	}
	json_end_array(j);
}

void variables_json(const struct survey *s, bool complete, struct json *j)
{
	json_kbool(j, "mapped", s->mapped);
	json_kbool(j, "one_store_of_many", s->content.partial);
	if (s->content.partial)
		unseen_json(s, j);
	losses_json(&s->content.losses, j);
	if (!s->mapped) {
		json_kstr(j, "reason", s->why.text);
		return;
	}
	json_kstr(j, "format", s->layout.format);
	if (s->layout.note[0])
		json_kstr(j, "note", s->layout.note);
	json_ku64(j, "defined_bytes", s->layout.file_bytes);
	if (s->layout.has_records) {
		json_ku64(j, "records", s->layout.num_records);
		json_ku64(j, "record_bytes", s->layout.record_bytes);
	}
	json_key(j, "variables");
	json_array(j);
	for (size_t i = 0; i < s->layout.num_objects; i++)
		object_json(s, i, j);
	json_end_array(j);
	json_ku64(j, "other_log_bytes", coverage_rest(s->coverage)->logged_bytes);
	json_ku64(j, "other_drained_bytes", coverage_rest(s->coverage)->drained_bytes);
	json_kbool(j, "history_complete", complete);
	if (s->has_generations)
		generations_json(&s->generations, j);
}
