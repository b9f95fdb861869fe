/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * The null format's decoder. What it shows: bytes are read through a cursor and never by a pointer of our own; every number is
 * checked before it is used, sizes for overflow, too; a failure names the offset; "more is needed" is told from "damaged".
 */
#include "format/codec/null.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "format/base/cursor.h"

#define MAGIC       "CISTNULL"
#define MAGIC_BYTES 8u
#define VERSION     1u
#define ELEMENT_MAX 4096u

bool null_is(const void *first, size_t len)
{
	return len >= MAGIC_BYTES && memcmp(first, MAGIC, MAGIC_BYTES) == 0;
}

static int check(const struct null_header *h, uint32_t version, size_t name_len, struct cistern_error *err)
{
	uint64_t end;

	if (version != VERSION)
		return cistern_error_set(
			err, -EBADMSG, "at offset 8: version %" PRIu32 ", known is %u", version, VERSION);
	if (h->element_bytes == 0 || h->element_bytes > ELEMENT_MAX)
		return cistern_error_set(
			err, -EBADMSG, "at offset 12: elements of %" PRIu32 " bytes", h->element_bytes);
	if (__builtin_mul_overflow(h->elements, (uint64_t)h->element_bytes, &end) || end > INT64_MAX - NULL_HEADER_MAX)
		return cistern_error_set(err, -EBADMSG, "at offset 16: %" PRIu64 " elements", h->elements);
	if (name_len == 0 || name_len > NULL_NAME_MAX)
		return cistern_error_set(err, -EBADMSG, "at offset 24: a name of %zu bytes", name_len);
	return 0;
}

static int goes_on(size_t len, struct cistern_error *err)
{
	return cistern_error_set(err, -ENODATA, "its header goes on behind offset %zu", len);
}

int null_decode(const void *buf, size_t len, struct null_header *ret, struct cistern_error *err)
{
	struct cursor c = cursor_make(buf, len);
	struct null_header h = { 0 };
	const uint8_t *name;
	uint32_t version;
	size_t name_len;
	int r;

	if (len >= MAGIC_BYTES && !null_is(buf, len))
		return cistern_error_set(err, -EBADMSG, "at offset 0: \"" MAGIC "\" has to be here");
	(void)cursor_bytes(&c, MAGIC_BYTES);
	version = cursor_u32(&c);
	h.element_bytes = cursor_u32(&c);
	h.elements = cursor_u64(&c);
	name_len = cursor_u16(&c);
	if (!cursor_ok(&c))
		return goes_on(len, err);
	r = check(&h, version, name_len, err);
	if (r < 0)
		return r;
	name = cursor_bytes(&c, name_len);
	if (!name)
		return goes_on(len, err);
	if (memchr(name, '\0', name_len))
		return cistern_error_set(err, -EBADMSG, "at offset 26: a name with a NUL in it");
	memcpy(h.name, name, name_len);
	h.begin = len - cursor_left(&c);
	*ret = h;
	return 0;
}

/* The header is an object, too, so that an inspector can say that it is there; then each variable. */
static int fill(const struct null_header *h, struct layout *l)
{
	struct layout_object *o = layout_add(l, "header", LAYOUT_HEADER);

	if (!o)
		return -ENOMEM;
	o->len = h->begin;
	o->count = 1;
	o = layout_add(l, h->name, LAYOUT_VARIABLE);
	if (!o)
		return -ENOMEM;
	o->type = "opaque";
	o->element_bytes = h->element_bytes;
	o->begin = h->begin;
	o->len = h->elements * h->element_bytes;
	o->count = 1;
	return layout_set_dims(o, 1, &h->elements);
}

int null_layout(const struct null_header *h, uint64_t size, struct layout *ret)
{
	struct layout l = { .format = "null (version 1)", .size = size };
	int r = fill(h, &l);

	l.file_bytes = h->begin + h->elements * h->element_bytes;
	if (r < 0)
		layout_destroy(&l);
	else
		*ret = l;
	return r;
}
