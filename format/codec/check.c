/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Classic: the header parses, and the records that it counts agree with the bytes. A file may be shorter than its header says:
 * what nobody wrote at its end is left out by some writers; but of the last record at least something must be there, and when more
 * than a small share of all values is missing, that is said louder. Zeros behind the records are no further ones. HDF5: all
 * that the walk reaches is there, whole and inside the file.
 */
#include "format/codec/check.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "format/codec/classic.h"
#include "format/codec/classic_layout.h"
#include "format/codec/hdf5.h"

#define FIRST_BYTES 4096u /* of a file, that say whether anything was written to it */
#define SMALL_SHARE \
	100u /* one part in so many of a file's values may be missing: fewer are those of its last variables */

static void say(struct check *c, enum check_verdict verdict, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
static void say(struct check *c, enum check_verdict verdict, const char *fmt, ...)
{
	va_list args;

	c->verdict = verdict;
	va_start(args, fmt);
	vsnprintf(c->text, sizeof(c->text), fmt, args);
	va_end(args);
}

/* Whoever shows an error of a format's names the format, too. */
static const char *without_name(const char *text)
{
	return strncmp(text, "HDF5: ", 6) == 0 ? text + 6 : text;
}

/* ---- netCDF classic */

static double floor_percent(uint64_t part, uint64_t whole)
{
	return whole > 0 ? (double)(uint64_t)(100.0 * (double)part / (double)whole) : 0;
}

static void say_reserved(const struct classic *c, uint64_t size, struct check *ret)
{
	uint64_t end = c->records_begin + c->num_records * c->record_bytes;

	ret->reserved = true;
	say(ret, CHECK_DOUBTFUL,
		"the %" PRIu64 " bytes behind its %" PRIu64
		" records are zeros, as a program leaves them that reserves room: no records",
		size > end ? size - end : 0, c->num_records);
}

static void check_records(
	const struct classic *c, uint64_t size, const struct classic_records *found, struct check *ret)
{
	ret->told_records = c->num_records;
	ret->seen_records = found->whole;
	ret->room_records = found->room;
	ret->numrecs_bytes = c->version == 5 ? 8 : 4;
	if (c->num_record_vars == 0 || c->record_bytes == 0)
		return;
	ret->streaming = c->streaming;
	ret->stale = !c->streaming && found->whole > c->num_records;
	if (c->streaming)
		say(ret, CHECK_DOUBTFUL,
			"the header does not say how many records there are, and by its size the file has %" PRIu64
			": 'cistern fsck --fix-numrecs FILE' writes the number",
			found->whole);
	else if (ret->stale)
		say(ret, CHECK_DOUBTFUL,
			"the header counts %" PRIu64 " records and the file has %" PRIu64
			": readers do not see the others; 'cistern fsck --fix-numrecs FILE' mends it",
			c->num_records, found->whole);
	else if (c->num_records > 0 && size <= c->records_begin + (c->num_records - 1) * c->record_bytes)
		say(ret, CHECK_BROKEN,
			"the header counts %" PRIu64 " records, and the file ends at offset %" PRIu64
			", in or before record %" PRIu64,
			c->num_records, size, found->room);
	else if (found->room > c->num_records)
		say_reserved(c, size, ret);
}

/* Of what a variable has in the last record, or as a whole: bytes that a file of that size has. */
static uint64_t there_of(const struct classic *c, const struct classic_var *v, uint64_t size)
{
	uint64_t begin = v->begin + (v->is_record ? (c->num_records - 1) * c->record_bytes : 0);

	return size <= begin ? 0 : size - begin < v->bytes ? size - begin : v->bytes;
}

/* Adds up what is defined and what of it is there; *ret_first: the variable that is cut and begins first, or NULL. */
static void add_up(const struct classic *c, uint64_t size, uint64_t *ret_all, uint64_t *ret_there,
	const struct classic_var **ret_first)
{
	*ret_all = *ret_there = 0;
	*ret_first = NULL;
	for (uint32_t i = 0; i < c->num_vars; i++) {
		const struct classic_var *v = &c->vars[i];
		uint64_t there, before;

		if (v->is_record && c->num_records == 0)
			continue;
		there = there_of(c, v, size);
		before = v->is_record ? (c->num_records - 1) * v->bytes : 0;
		*ret_all += before + v->bytes; /* parts of a file of less than 2^63 bytes: classic_check_begins() */
		*ret_there += before + there;
		if (there < v->bytes && (!*ret_first || v->begin < (*ret_first)->begin))
			*ret_first = v;
	}
}

/* The file ends before its variables do: writers leave out what nobody wrote, and what was cut off looks the same. */
static void check_end(const struct classic *c, uint64_t size, struct check *ret)
{
	const struct classic_var *v;
	uint64_t all, there, bytes, of;

	add_up(c, size, &all, &there, &v);
	if (!v)
		return;
	of = v->bytes * (v->is_record ? c->num_records : 1);
	bytes = of - (v->bytes - there_of(c, v, size));
	say(ret, all - there > all / SMALL_SHARE ? CHECK_SHORT : CHECK_DOUBTFUL,
		"the file ends at offset %" PRIu64 ", and variable %.80s has %" PRIu64 " of its %" PRIu64
		" bytes (%.0f %%), all variables %" PRIu64 " of %" PRIu64 " (%.0f %%): readers see zeros for the rest",
		size, v->name, bytes, of, floor_percent(bytes, of), there, all, floor_percent(there, all));
}

static void check_padding(const struct classic *c, struct check *ret)
{
	if (c->odd_padding > 0)
		say(ret, CHECK_DOUBTFUL,
			"the padding at offset %" PRIu64
			" is not zero, which the format wants: netCDF-C reads it, PnetCDF may not ('ncvalidator -x' mends it)",
			c->odd_padding);
}

static void check_limits(const struct classic *c, struct check *ret)
{
	const struct classic_var *v = classic_find_oversized(c);

	if (v)
		say(ret, CHECK_DOUBTFUL,
			"variable %.80s has %" PRIu64 " bytes%s, more than CDF-%" PRIu32
			" allows of one that is not the last (%s): some readers refuse the file",
			v->name, v->bytes, v->is_record ? " in each record" : "", c->version,
			c->version == 1 ? "2^31 - 4" : "2^32 - 4");
}

static int check_names(const struct classic *c, struct check *ret)
{
	const char *name = NULL;
	int r = classic_find_duplicate(c, &name);

	if (r == 0 && name)
		say(ret, CHECK_DOUBTFUL,
			"two of its variables, or of its dimensions, are named %.100s: readers find one of them by that name",
			name);
	return r;
}

static int check_classic(const struct source *s, struct check *ret)
{
	struct classic c CLASSIC_CLEANUP = { 0 };
	struct classic_records records;
	struct cistern_error err = { 0 };
	int r = classic_read(s->read_bytes, s->arg, &c, &err);

	if (r == -EBADMSG || r == -EFBIG || r == -ENODATA) {
		say(ret, CHECK_BROKEN, "its header cannot be read: %.200s", err.text);
		return 0;
	}
	if (r == 0)
		r = classic_find_records(&c, s, &records);
	if (r < 0)
		return r;
	check_records(&c, s->size, &records, ret);
	if (ret->verdict == CHECK_SOUND || c.streaming)
		check_end(&c, s->size, ret);
	if (ret->verdict == CHECK_SOUND)
		check_limits(&c, ret);
	if (ret->verdict == CHECK_SOUND)
		check_padding(&c, ret);
	return ret->verdict == CHECK_SOUND ? check_names(&c, ret) : 0;
}

static int is_classic(const struct source *s)
{
	uint8_t first[8];
	ssize_t got = s->read_bytes(first, sizeof(first), 0, s->arg);

	return got < 0 ? (int)got : classic_is(first, (size_t)got);
}

static int layout_of_classic(const struct source *s, struct layout *ret, struct cistern_error *err)
{
	struct classic c CLASSIC_CLEANUP = { 0 };
	struct classic_records records;
	int r = classic_read(s->read_bytes, s->arg, &c, err);

	if (r < 0)
		return r;
	r = classic_find_records(&c, s, &records);
	return r < 0 ? cistern_error_set(err, r, "looking for its last record: %s", strerror(-r))
		     : classic_layout(&c, s->size, records.begun, ret);
}

/* ---- HDF5 */

static int check_hdf5(const struct source *s, struct check *ret)
{
	struct hdf5 h HDF5_CLEANUP = { 0 };
	struct cistern_error err = { 0 };
	const struct hdf5_problem *p;
	int r = hdf5_walk(s->read_bytes, s->arg, s->size, &h, &err);

	if (r == -ENODATA || r == -EBADMSG || r == -ENOTSUP) {
		say(ret, r == -ENOTSUP ? CHECK_DOUBTFUL : CHECK_BROKEN, "%.250s", without_name(err.text));
		return 0;
	}
	if (r < 0)
		return r;
	p = hdf5_worst(&h, HDF5_NOT_WRITTEN);
	if (p)
		say(ret, CHECK_BROKEN, "%s%.80s%s%.150s", p->object[0] ? "dataset or group " : "", p->object,
			p->object[0] ? ": " : "", p->text);
	else if (h.num_problems > 0)
		say(ret, CHECK_DOUBTFUL, "not all of it could be checked: %.60s: %.140s", h.problems[0].object,
			h.problems[0].text);
	return 0;
}

static int is_hdf5(const struct source *s)
{
	uint64_t base;
	int r = hdf5_find(s->read_bytes, s->arg, s->size, &base);

	return r == -ENODATA ? 0 : r < 0 ? r : 1;
}

static int layout_of_hdf5(const struct source *s, struct layout *ret, struct cistern_error *err)
{
	return hdf5_layout(s->read_bytes, s->arg, s->size, ret, err);
}

/* ---- which */

struct format {
	const char *name;
	int (*is)(const struct source *s); /* 1 or 0; -errno of reading */
	int (*check)(const struct source *s, struct check *ret);
	/* 0; -EBADMSG, -EFBIG, -ENODATA, -ENOTSUP: it cannot be mapped; another -errno; and *err */
	int (*layout)(const struct source *s, struct layout *ret, struct cistern_error *err);
};

/* A further format is a row. */
static const struct format formats[] = {
	[CHECK_OTHER] = { "no known format", NULL, NULL, NULL },
	[CHECK_CLASSIC] = { "netCDF classic", is_classic, check_classic, layout_of_classic },
	[CHECK_HDF5] = { "HDF5", is_hdf5, check_hdf5, layout_of_hdf5 },
};

#define NUM_FORMATS (sizeof(formats) / sizeof(formats[0]))

const char *check_format_name(enum check_format format)
{
	return formats[format].name;
}

/* CHECK_OTHER: none; else the format, or -errno of reading. */
static int recognise(const struct source *s)
{
	for (size_t i = CHECK_OTHER + 1; i < NUM_FORMATS; i++) {
		int r = formats[i].is(s);

		if (r != 0)
			return r < 0 ? r : (int)i;
	}
	return CHECK_OTHER;
}

int check_file(const struct source *s, struct check *ret)
{
	int format = recognise(s), r;
	struct check c = { 0 };

	if (format < 0)
		return format;
	c.format = (enum check_format)format;
	r = format == CHECK_OTHER ? 0 : formats[format].check(s, &c);
	if (r == 0)
		*ret = c;
	return r;
}

/* Why it is of no known format. */
static int say_unknown(const struct source *s, struct cistern_error *err)
{
	uint8_t first[FIRST_BYTES];
	ssize_t got = s->read_bytes(first, sizeof(first), 0, s->arg);
	bool zeros = true;

	if (got < 0)
		return cistern_error_set(err, (int)got, "reading its first bytes: %s", strerror((int)-got));
	for (ssize_t i = 0; i < got; i++)
		zeros &= first[i] == 0;
	return cistern_error_set(err, -ENOMSG, "%s",
		got == 0 ? "it is empty"
		: zeros  ? "its first bytes are zeros: no header has been written yet"
			 : "it begins like no format that is known here");
}

int check_layout(const struct source *s, struct layout *ret, struct cistern_error *err)
{
	struct cistern_error why = { 0 };
	int format = recognise(s), r;

	if (format < 0)
		return cistern_error_set(err, format, "reading its first bytes: %s", strerror(-format));
	if (format == CHECK_OTHER)
		return say_unknown(s, err);
	r = formats[format].layout(s, ret, &why);
	if (r == -EBADMSG || r == -EFBIG || r == -ENODATA || r == -ENOTSUP)
		return cistern_error_set(err, -ENOMSG, "it begins like %s, but cannot be mapped (yet): %s",
			formats[format].name, without_name(why.text));
	return r < 0 ? cistern_error_set(err, r, "%s", *why.text ? why.text : strerror(-r)) : 0;
}
