/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Classic: the header parses, and the records that it counts agree with the size. A file may be shorter than its header says:
 * what nobody wrote at its end is left out by some writers; but of the last record at least something must be there. HDF5: all
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

struct source {
	check_read_fn read_bytes;
	void *arg;
	uint64_t size;
};

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

static uint64_t end_of(const struct classic *c, const struct classic_var *v)
{
	if (!v->is_record)
		return v->begin + v->bytes;
	return c->num_records > 0 ? v->begin + (c->num_records - 1) * c->record_bytes + v->bytes : 0;
}

static void check_records(const struct classic *c, uint64_t size, struct check *ret)
{
	uint64_t seen = classic_count_records(c, size);

	ret->told_records = c->num_records;
	ret->seen_records = seen;
	ret->numrecs_bytes = c->version == 5 ? 8 : 4;
	if (c->num_record_vars == 0 || c->streaming || c->record_bytes == 0)
		return;
	ret->stale = seen > c->num_records;
	if (ret->stale)
		say(ret, CHECK_DOUBTFUL,
			"the header counts %" PRIu64 " records and the file has %" PRIu64
			": readers do not see the others; 'cistern fsck --fix-numrecs FILE' mends it",
			c->num_records, seen);
	else if (c->num_records > 0 && size <= c->records_begin + (c->num_records - 1) * c->record_bytes)
		say(ret, CHECK_BROKEN,
			"the header counts %" PRIu64 " records, and the file ends at offset %" PRIu64
			", in or before record %" PRIu64,
			c->num_records, size, seen);
}

/* The variable whose end is farthest behind the end of the file. */
static void check_end(const struct classic *c, uint64_t size, struct check *ret)
{
	const struct classic_var *last = NULL;

	for (uint32_t i = 0; i < c->num_vars; i++)
		if (end_of(c, &c->vars[i]) > size && (!last || end_of(c, &c->vars[i]) > end_of(c, last)))
			last = &c->vars[i];
	if (last)
		say(ret, CHECK_DOUBTFUL,
			"the file ends at offset %" PRIu64 ", variable %.80s at %" PRIu64
			": its last elements were never written, or are cut off",
			size, last->name, end_of(c, last));
}

static int check_classic(const struct source *s, struct check *ret)
{
	struct classic c CLASSIC_CLEANUP = { 0 };
	struct cistern_error err = { 0 };
	int r = classic_read(s->read_bytes, s->arg, &c, &err);

	if (r == -EBADMSG || r == -EFBIG || r == -ENODATA) {
		say(ret, CHECK_BROKEN, "its header cannot be read: %.200s", err.text);
		return 0;
	}
	if (r < 0)
		return r;
	check_records(&c, s->size, ret);
	if (ret->verdict == CHECK_SOUND)
		check_end(&c, s->size, ret);
	if (ret->verdict == CHECK_SOUND && c.odd_padding > 0)
		say(ret, CHECK_DOUBTFUL,
			"the padding at offset %" PRIu64
			" is not zero, which the format wants: netCDF-C reads it, PnetCDF may not ('ncvalidator -x' mends it)",
			c.odd_padding);
	return 0;
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
	int r = classic_read(s->read_bytes, s->arg, &c, err);

	return r < 0 ? r : classic_layout(&c, s->size, ret);
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

int check_file(check_read_fn read_bytes, void *arg, uint64_t size, struct check *ret)
{
	struct source s = { read_bytes, arg, size };
	int format = recognise(&s), r;
	struct check c = { 0 };

	if (format < 0)
		return format;
	c.format = (enum check_format)format;
	r = format == CHECK_OTHER ? 0 : formats[format].check(&s, &c);
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

int check_layout(check_read_fn read_bytes, void *arg, uint64_t size, struct layout *ret, struct cistern_error *err)
{
	struct source s = { read_bytes, arg, size };
	struct cistern_error why = { 0 };
	int format = recognise(&s), r;

	if (format < 0)
		return cistern_error_set(err, format, "reading its first bytes: %s", strerror(-format));
	if (format == CHECK_OTHER)
		return say_unknown(&s, err);
	r = formats[format].layout(&s, ret, &why);
	if (r == -EBADMSG || r == -EFBIG || r == -ENODATA || r == -ENOTSUP)
		return cistern_error_set(err, -ENOMSG, "it begins like %s, but cannot be mapped (yet): %s",
			formats[format].name, without_name(why.text));
	return r < 0 ? cistern_error_set(err, r, "%s", *why.text ? why.text : strerror(-r)) : 0;
}
