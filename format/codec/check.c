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

const char *check_format_name(enum check_format format)
{
	static const char *const names[] = {
		[CHECK_OTHER] = "no known format", [CHECK_CLASSIC] = "netCDF classic", [CHECK_HDF5] = "HDF5"
	};

	return names[format];
}

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

static int check_classic(check_read_fn read_bytes, void *arg, uint64_t size, struct check *ret)
{
	struct classic c CLASSIC_CLEANUP = { 0 };
	struct cistern_error err = { 0 };
	int r = classic_read(read_bytes, arg, &c, &err);

	if (r == -EBADMSG || r == -EFBIG || r == -ENODATA) {
		say(ret, CHECK_BROKEN, "its header cannot be read: %.200s", err.text);
		return 0;
	}
	if (r < 0)
		return r;
	check_records(&c, size, ret);
	if (ret->verdict == CHECK_SOUND)
		check_end(&c, size, ret);
	return 0;
}

/* ---- HDF5 */

static int check_hdf5(check_read_fn read_bytes, void *arg, uint64_t size, struct check *ret)
{
	struct hdf5 h HDF5_CLEANUP = { 0 };
	struct cistern_error err = { 0 };
	const struct hdf5_problem *p;
	int r = hdf5_walk(read_bytes, arg, size, &h, &err);

	if (r == -ENODATA || r == -EBADMSG || r == -ENOTSUP) {
		say(ret, r == -ENOTSUP ? CHECK_DOUBTFUL : CHECK_BROKEN, "%.250s", err.text);
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

/* ---- which */

static int recognise(check_read_fn read_bytes, void *arg, uint64_t size, enum check_format *ret)
{
	uint8_t first[8];
	uint64_t base;
	ssize_t got = read_bytes(first, sizeof(first), 0, arg);
	int r;

	*ret = CHECK_OTHER;
	if (got < 0)
		return (int)got;
	if (classic_is(first, (size_t)got)) {
		*ret = CHECK_CLASSIC;
		return 0;
	}
	r = hdf5_find(read_bytes, arg, size, &base);
	if (r == 0)
		*ret = CHECK_HDF5;
	return r == -ENODATA ? 0 : r;
}

int check_file(check_read_fn read_bytes, void *arg, uint64_t size, struct check *ret)
{
	struct check c = { 0 };
	int r = recognise(read_bytes, arg, size, &c.format);

	if (r == 0 && c.format == CHECK_CLASSIC)
		r = check_classic(read_bytes, arg, size, &c);
	else if (r == 0 && c.format == CHECK_HDF5)
		r = check_hdf5(read_bytes, arg, size, &c);
	if (r == 0)
		*ret = c;
	return r;
}

static int classic_file_layout(check_read_fn read_bytes, void *arg, uint64_t size, struct layout *ret)
{
	struct classic c CLASSIC_CLEANUP = { 0 };
	int r = classic_read(read_bytes, arg, &c, NULL);

	return r < 0 ? r : classic_layout(&c, size, ret);
}

int check_layout(check_read_fn read_bytes, void *arg, uint64_t size, struct layout *ret)
{
	enum check_format format;
	int r = recognise(read_bytes, arg, size, &format);

	if (r < 0)
		return r;
	r = format == CHECK_CLASSIC ? classic_file_layout(read_bytes, arg, size, ret)
	    : format == CHECK_HDF5  ? hdf5_layout(read_bytes, arg, size, ret, NULL)
				    : -ENOMSG;
	return r == -EBADMSG || r == -EFBIG || r == -ENODATA || r == -ENOTSUP ? -ENOMSG : r;
}
