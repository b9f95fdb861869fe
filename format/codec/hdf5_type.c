/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Datatypes (specification IV.A.2.d), as deep as they go: whether HDF5 could make sense of them, and where in an element there
 * are identifiers of objects in the global heap, which lists of varying length and references to regions are.
 */
#include "format/codec/hdf5_private.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "format/base/array.h"

#define DEPTH_MAX  32u
#define PLACES_MAX 65536u
#define OLD_DIMS   4u /* of a member, in version 1 of compounds */

enum reference_kind { REFERENCE_OBJECT, REFERENCE_REGION, REFERENCE_OBJECT2, REFERENCE_REGION2, REFERENCE_ATTRIBUTE };

struct parsing {
	struct hdf5_walk *w;
	const struct hdf5_message *m;
	struct cursor c;
	struct hdf5_places *places; /* NULL: not asked for */
	unsigned int depth;
};

struct head { /* what all types begin with */
	unsigned int class, version;
	uint32_t bits, size;
};

static int parse(struct parsing *p, uint64_t off, uint32_t list, struct head *ret);

static int bad(struct parsing *p, const char *why)
{
	return hdf5_fail(p->w, -EBADMSG, p->m->off, "an impossible datatype: %s", why);
}

static int add_place(struct parsing *p, uint64_t off, uint32_t list, bool is_list, uint32_t unit)
{
	struct hdf5_places *to = p->places;
	int r;

	if (!to)
		return 0;
	if (to->num == PLACES_MAX)
		return hdf5_fail(
			p->w, -ENOTSUP, p->m->off, "a datatype with more than %u lists in an element", PLACES_MAX);
	if (array_room(&to->list, &to->cap, to->num, sizeof(*to->list)) < 0)
		return -ENOMEM;
	r = hdf5_charge(p->w, HDF5_PLACE_BYTES);
	if (r < 0)
		return r;
	to->list[to->num++] = (struct hdf5_place){ .off = off, .unit = unit, .is_list = is_list, .in_list = list };
	return 0;
}

/* ---- compounds */

struct extent_of {
	uint64_t off, len;
};

static int by_off(const void *a, const void *b)
{
	const struct extent_of *x = a, *y = b;

	return (x->off > y->off) - (x->off < y->off);
}

static int check_members(struct parsing *p, const struct head *h, struct extent_of *members, unsigned int num)
{
	if (num > 1)
		qsort(members, num, sizeof(*members), by_off);
	for (unsigned int i = 0; i < num; i++) {
		if (members[i].off > h->size || members[i].len > h->size - members[i].off)
			return hdf5_fail(p->w, -ENOTSUP,
				p->m->off, /* HDF5 1.x reads such elements, whatever it finds there */
				"a compound of %" PRIu32 " bytes with a member that reaches behind it", h->size);
		if (i > 0 && members[i].off - members[i - 1].off < members[i - 1].len)
			return bad(p, "two members of a compound overlap");
	}
	return 0;
}

/* A name, NUL at its end; up to version 2 in whole multiples of 8 bytes. */
static void skip_name(struct parsing *p, unsigned int version)
{
	const uint8_t *end = cursor_left(&p->c) > 0 ? memchr(p->c.at, '\0', cursor_left(&p->c)) : NULL;
	size_t len = end ? (size_t)(end - p->c.at) + 1 : 0;

	if (!end)
		cursor_fail(&p->c);
	else
		(void)cursor_bytes(&p->c, version < 3 ? (len + 7) / 8 * 8 : len);
}

/* The same type num times, one behind the other; the first has been parsed, and its places are from first on. */
static int repeat(struct parsing *p, size_t first, uint64_t num, uint64_t bytes)
{
	size_t end = p->places ? p->places->num : 0;
	int r = 0;

	if (first == end)
		return 0;
	for (uint64_t i = 1; r == 0 && i < num; i++) {
		size_t copy = p->places->num;

		for (size_t k = first; r == 0 && k < end; k++) {
			struct hdf5_place from = p->places->list[k];
			bool inner = from.in_list != HDF5_NO_LIST && from.in_list >= first;

			r = add_place(p, inner ? from.off : from.off + i * bytes,
				inner ? (uint32_t)(from.in_list - first + copy) : from.in_list, from.is_list,
				from.unit);
			if (r == 0)
				p->places->list[p->places->num - 1].has_inner = from.has_inner;
		}
	}
	return r;
}

/* Version 1: a member may be an array by itself. */
static uint64_t old_dims(struct parsing *p)
{
	unsigned int rank = cursor_u8(&p->c);
	uint64_t num = 1;

	(void)cursor_bytes(&p->c, 3 + 4 + 4);
	for (unsigned int i = 0; i < OLD_DIMS; i++) {
		uint32_t len = cursor_u32(&p->c);

		num *= i < rank && num <= UINT32_MAX ? len : 1;
	}
	if (rank > OLD_DIMS)
		cursor_fail(&p->c);
	return num;
}

static int member(struct parsing *p, const struct head *h, uint64_t off, uint32_t list, struct extent_of *ret)
{
	size_t first = p->places ? p->places->num : 0;
	uint64_t num = 1;
	struct head of;
	int r;

	skip_name(p, h->version);
	ret->off = h->version < 3 ? cursor_u32(&p->c) : hdf5_uint(&p->c, hdf5_width(h->size));
	if (h->version == 1)
		num = old_dims(p);
	if (!cursor_ok(&p->c) || ret->off > UINT32_MAX)
		return bad(p, "it is cut short");
	r = parse(p, off + ret->off, list, &of);
	if (r < 0)
		return r;
	if (__builtin_mul_overflow(num, (uint64_t)of.size, &ret->len))
		return bad(p, "a member of a compound of more bytes than there are numbers for");
	return repeat(p, first, num, of.size);
}

static int compound(struct parsing *p, const struct head *h, uint64_t off, uint32_t list)
{
	unsigned int num = h->bits & 0xffff;
	struct extent_of *members = calloc(num + 1u, sizeof(*members));
	int r = members ? 0 : -ENOMEM;

	if (r == 0 && num == 0)
		r = bad(p, "a compound without members");
	for (unsigned int i = 0; r == 0 && i < num; i++)
		r = member(p, h, off, list, &members[i]);
	if (r == 0)
		r = check_members(p, h, members, num);
	free(members);
	return r;
}

/* ---- the others that have types inside */

static int enumeration(struct parsing *p, const struct head *h)
{
	unsigned int num = h->bits & 0xffff;
	struct head of;
	int r = parse(p, 0, HDF5_NO_LIST, &of);

	if (r < 0)
		return r;
	for (unsigned int i = 0; i < num && cursor_ok(&p->c); i++)
		skip_name(p, h->version);
	if (of.class != HDF5_INTEGER || of.size != h->size || (uint64_t)num * of.size > cursor_left(&p->c))
		return bad(p, "an enumeration whose values are no integers of its size, or cut short");
	(void)cursor_bytes(&p->c, (size_t)num * of.size);
	return 0;
}

static int varying(struct parsing *p, uint64_t off, uint32_t list)
{
	size_t number = p->places ? p->places->num : 0;
	struct head of;
	int r = add_place(p, off, list, true, 0);

	if (r == 0)
		r = parse(p, 0, (uint32_t)number, &of);
	if (r == 0 && p->places) {
		p->places->list[number].unit = of.size;
		p->places->list[number].has_inner = p->places->num > number + 1;
	}
	return r;
}

static int array(struct parsing *p, const struct head *h, uint64_t off, uint32_t list)
{
	size_t first = p->places ? p->places->num : 0;
	unsigned int rank = cursor_u8(&p->c);
	uint64_t num = 1;
	struct head of;
	int r;

	(void)cursor_bytes(&p->c, h->version < 3 ? 3 : 0);
	for (unsigned int i = 0; i < rank && cursor_ok(&p->c); i++)
		if (__builtin_mul_overflow(num, (uint64_t)cursor_u32(&p->c), &num) || num > UINT32_MAX)
			return bad(p, "an array of more bytes than it has");
	(void)cursor_bytes(&p->c, h->version < 3 ? 4 * (size_t)rank : 0);
	if (!cursor_ok(&p->c))
		return bad(p, "it is cut short");
	r = parse(p, off, list, &of);
	if (r == 0 && num * of.size != h->size)
		r = bad(p, "an array of another size than its elements have");
	return r == 0 ? repeat(p, first, num, of.size) : r;
}

/* ---- all */

static int properties(struct parsing *p, const struct head *h, uint64_t off, uint32_t list)
{
	switch (h->class) {
	case HDF5_INTEGER:
	case HDF5_BITS: (void)cursor_bytes(&p->c, 4); return 0;
	case HDF5_FLOAT: (void)cursor_bytes(&p->c, 12); return 0;
	case HDF5_TIME: (void)cursor_bytes(&p->c, 2); return 0;
	case HDF5_STRING: return 0;
	case HDF5_OPAQUE: (void)cursor_bytes(&p->c, h->bits & 0xff); return 0;
	case HDF5_COMPOUND: return compound(p, h, off, list);
	case HDF5_REFERENCE: return (h->bits & 15) == REFERENCE_REGION ? add_place(p, off, list, false, 0) : 0;
	case HDF5_ENUM: return enumeration(p, h);
	case HDF5_VARYING: return varying(p, off, list);
	case HDF5_ARRAY: return array(p, h, off, list);
	default:
		return hdf5_fail(p->w, -ENOTSUP, p->m->off, "a datatype of class %u, version %u", h->class, h->version);
	}
}

/* At the cursor is a type of elements at off, in an element or in one of a list's. */
static int parse(struct parsing *p, uint64_t off, uint32_t list, struct head *ret)
{
	unsigned int first = cursor_u8(&p->c);
	int r;

	*ret = (struct head){ .class = first & 15, .version = first >> 4 };
	ret->bits = cursor_u16(&p->c);
	ret->bits |= (uint32_t)cursor_u8(&p->c) << 16;
	ret->size = cursor_u32(&p->c);
	if (!cursor_ok(&p->c) || ret->version == 0 || ret->size == 0)
		return bad(p, "it has no version or no size, or is cut short");
	if (ret->version > 4 || ret->class > HDF5_ARRAY)
		return hdf5_fail(
			p->w, -ENOTSUP, p->m->off, "a datatype of class %u, version %u", ret->class, ret->version);
	if (p->depth++ == DEPTH_MAX)
		return hdf5_fail(p->w, -ENOTSUP, p->m->off, "a datatype of more than %u levels", DEPTH_MAX);
	r = properties(p, ret, off, list);
	p->depth--;
	return r < 0 ? r : cursor_ok(&p->c) ? 0 : bad(p, "it is cut short");
}

int hdf5_type_decode(
	struct hdf5_walk *w, const struct hdf5_message *m, struct hdf5_type *ret, struct hdf5_places *ret_places)
{
	struct parsing p = { .w = w, .m = m, .c = cursor_make(m->data, m->len), .places = ret_places };
	struct head h;
	int r = parse(&p, 0, HDF5_NO_LIST, &h);

	*ret = (struct hdf5_type){ .class = (uint8_t)h.class, .size = h.size };
	if (h.class <= HDF5_FLOAT || h.class == HDF5_BITS)
		ret->big_endian = h.bits & 1;
	ret->is_signed = h.class == HDF5_INTEGER && (h.bits & 8);
	ret->is_strings = h.class == HDF5_VARYING && (h.bits & 15) == 1;
	return r;
}

void hdf5_places_free(struct hdf5_places *p)
{
	free(p->list);
	*p = (struct hdf5_places){ 0 };
}
