/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * The table of formats. A further one is a row: a test of the first FIRST_BYTES bytes and a function that reads the rest.
 */
#include "tools/lib/formats.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>

#include "format/codec/classic_layout.h"
#include "format/codec/hdf5.h"

#define FIRST_BYTES 4096u /* of a file, for tests */

struct source {
	formats_read_fn read_bytes;
	void *arg;
	uint64_t size;
};

struct format {
	const char *name;
	bool (*is)(const void *first, size_t len);
	/* 0, -EBADMSG or another -errno, and *err */
	int (*layout)(const struct source *s, struct layout *ret, struct cistern_error *err);
};

static int layout_classic(const struct source *s, struct layout *ret, struct cistern_error *err)
{
	CLASSIC_CLEANUP struct classic c = { 0 };
	int r = classic_read(s->read_bytes, s->arg, &c, err);

	return r < 0 ? r : classic_layout(&c, s->size, ret);
}

/* The signature may stand behind a block of the user's, of 512 bytes or a power of two times that. */
static bool is_hdf5(const void *first, size_t len)
{
	for (size_t at = 0; at<len; at = at> 0 ? at * 2 : 512)
		if (hdf5_is((const uint8_t *)first + at, len - at))
			return true;
	return false;
}

static int layout_hdf5(const struct source *s, struct layout *ret, struct cistern_error *err)
{
	return hdf5_layout(s->read_bytes, s->arg, s->size, ret, err);
}

static const struct format formats[] = {
	{ "netCDF classic", classic_is, layout_classic },
	{ "HDF5", is_hdf5, layout_hdf5 },
};

static const struct format *recognise(const void *first, size_t len)
{
	for (size_t i = 0; i < sizeof(formats) / sizeof(formats[0]); i++)
		if (formats[i].is(first, len))
			return &formats[i];
	return NULL;
}

static bool is_zero(const uint8_t *bytes, size_t len)
{
	for (size_t i = 0; i < len; i++)
		if (bytes[i])
			return false;
	return true;
}

int formats_layout(formats_read_fn read_bytes, void *arg, uint64_t size, struct layout *ret, struct cistern_error *err)
{
	struct source s = { read_bytes, arg, size };
	uint8_t first[FIRST_BYTES];
	const struct format *f;
	ssize_t n = read_bytes(first, sizeof(first), 0, arg);
	int r;

	if (n < 0)
		return cistern_error_set(err, (int)n, "reading its first bytes: %s", strerror((int)-n));
	f = recognise(first, (size_t)n);
	if (!f && is_zero(first, (size_t)n))
		return cistern_error_set(err, -ENOMSG, "%s",
			n == 0 ? "it is empty" : "its first bytes are zeros: no header has been written yet");
	if (!f)
		return cistern_error_set(err, -ENOMSG, "it begins like no format that is known here");
	r = f->layout(&s, ret, err);
	if (r == -EBADMSG || r == -EFBIG || r == -ENODATA || r == -ENOTSUP) {
		cistern_error_prefix(err, "it begins like %s, but cannot be mapped (yet)", f->name);
		err->code = -ENOMSG;
		return -ENOMSG;
	}
	return r;
}
