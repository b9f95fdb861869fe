/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Bytes of the file, and what is known of all blocks alike. The one invariant: no byte is read that the file does not have,
 * and no block of a tree is read twice, so a walk ends whatever the addresses say.
 */
#include "format/codec/hdf5_private.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "format/base/array.h"

#define MAP_FIRST 64u

/* ---- map */

static size_t slot_of(const struct hdf5_map *m, uint64_t key)
{
	size_t at = (size_t)(key * 0x9E3779B97F4A7C15u >> 20) & (m->cap - 1);

	while (m->keys[at] != UINT64_MAX && m->keys[at] != key)
		at = (at + 1) & (m->cap - 1);
	return at;
}

static int map_grow(struct hdf5_map *m)
{
	struct hdf5_map big = { .cap = m->cap ? m->cap * 2 : MAP_FIRST };

	big.keys = malloc(big.cap * sizeof(*big.keys));
	big.values = malloc(big.cap * sizeof(*big.values));
	if (!big.keys || !big.values) {
		hdf5_map_free(&big);
		return -ENOMEM;
	}
	memset(big.keys, 0xff, big.cap * sizeof(*big.keys));
	for (size_t i = 0; i < m->cap; i++)
		if (m->keys[i] != UINT64_MAX) {
			size_t at = slot_of(&big, m->keys[i]);

			big.keys[at] = m->keys[i];
			big.values[at] = m->values[i];
		}
	big.num = m->num;
	hdf5_map_free(m);
	*m = big;
	return 0;
}

int hdf5_map_set(struct hdf5_map *m, uint64_t key, uint64_t value)
{
	size_t at;

	if (m->num * 2 >= m->cap && map_grow(m) < 0)
		return -ENOMEM;
	at = slot_of(m, key);
	if (m->keys[at] == key)
		return -EEXIST;
	m->keys[at] = key;
	m->values[at] = value;
	m->num++;
	return 0;
}

bool hdf5_map_get(const struct hdf5_map *m, uint64_t key, uint64_t *ret_value)
{
	size_t at;

	if (m->cap == 0)
		return false;
	at = slot_of(m, key);
	if (m->keys[at] != key)
		return false;
	*ret_value = m->values[at];
	return true;
}

void hdf5_map_free(struct hdf5_map *m)
{
	free(m->keys);
	free(m->values);
	*m = (struct hdf5_map){ 0 };
}

/* ---- numbers */

uint64_t hdf5_uint(struct cursor *c, unsigned int bytes)
{
	const uint8_t *p = cursor_bytes(c, bytes);
	uint64_t v = 0;

	for (unsigned int i = bytes; p && i > 0; i--)
		v = v << 8 | p[i - 1];
	return v;
}

uint64_t hdf5_get_addr(const struct hdf5_walk *w, struct cursor *c)
{
	uint64_t v = hdf5_uint(c, w->addr_bytes);

	return w->addr_bytes < 8 && v == (UINT64_C(1) << 8 * w->addr_bytes) - 1 ? HDF5_NOWHERE : v;
}

uint64_t hdf5_get_len(const struct hdf5_walk *w, struct cursor *c)
{
	return hdf5_uint(c, w->len_bytes);
}

uint64_t hdf5_off(const struct hdf5_walk *w, uint64_t addr, uint64_t len)
{
	uint64_t room = w->size - w->base;

	return addr > room || len > room - addr ? HDF5_NOWHERE : w->base + addr;
}

unsigned int hdf5_log2(uint64_t v)
{
	return v > 0 ? 63 - (unsigned int)__builtin_clzll(v) : 0;
}

unsigned int hdf5_width(uint64_t most)
{
	return hdf5_log2(most) / 8 + 1;
}

/* ---- failures */

int hdf5_fail(struct hdf5_walk *w, int code, uint64_t off, const char *fmt, ...)
{
	va_list args;
	size_t at = 0;

	if (off == HDF5_NOWHERE)
		off = w->last_off;
	w->bad_off = off;
	if (off != HDF5_NOWHERE)
		at = (size_t)snprintf(w->bad_text, sizeof(w->bad_text), "at offset %" PRIu64 ": ", off);
	va_start(args, fmt);
	vsnprintf(w->bad_text + at, sizeof(w->bad_text) - at, fmt, args);
	va_end(args);
	return code;
}

/* ---- blocks */

void hdf5_block_free(struct hdf5_block *b)
{
	free(b->data);
	*b = (struct hdf5_block){ 0 };
}

int hdf5_note_metadata(struct hdf5_walk *w, uint64_t off, uint64_t len)
{
	struct hdf5 *h = w->file;

	if (array_room(&h->metadata, &h->cap_metadata, h->num_metadata, sizeof(*h->metadata)) < 0)
		return -ENOMEM;
	h->metadata[h->num_metadata++] = (struct layout_piece){ .off = off, .len = len };
	return 0;
}

static int read_all(struct hdf5_walk *w, struct hdf5_block *b)
{
	size_t done = 0;

	while (done < b->len) {
		ssize_t got = w->read_bytes(b->data + done, b->len - done, b->off + done, w->arg);

		if (got == -ENODATA)
			return hdf5_fail(w, -ENODATA, b->off + done, "these bytes cannot be had");
		if (got < 0)
			return (int)got;
		if (got == 0)
			return hdf5_fail(w, -ENODATA, b->off + done, "the file ends here");
		done += (size_t)got;
	}
	return 0;
}

int hdf5_read_data(struct hdf5_walk *w, uint64_t off, size_t len, const char *what, struct hdf5_block *ret)
{
	struct hdf5_block b = { .len = len, .off = off };
	int r;

	if (len > HDF5_BLOCK_MAX)
		return hdf5_fail(w, -EBADMSG, b.off, "%s of %zu bytes is impossibly long", what, len);
	w->last_off = b.off;
	b.data = malloc(len > 0 ? len : 1);
	r = b.data ? read_all(w, &b) : -ENOMEM;
	if (r == 0 && w->image)
		hdf5_image_lay_over(w->image, b.off, b.data, len);
	if (r < 0)
		hdf5_block_free(&b);
	else
		*ret = b;
	return r;
}

int hdf5_read(struct hdf5_walk *w, uint64_t addr, size_t len, const char *what, struct hdf5_block *ret)
{
	struct hdf5_block b = { .off = hdf5_off(w, addr, len) };
	int r;

	if (addr == HDF5_NOWHERE)
		return hdf5_fail(w, -EBADMSG, HDF5_NOWHERE, "%s has no address", what);
	if (b.off == HDF5_NOWHERE)
		return hdf5_fail(w, -ENODATA, w->base + addr < addr ? addr : w->base + addr,
			"%s of %zu bytes would lie behind the end of the file, which has %" PRIu64 " bytes", what, len,
			w->size);
	r = hdf5_read_data(w, b.off, len, what, &b);
	if (r == 0)
		r = hdf5_note_metadata(w, b.off, len);
	if (r < 0)
		hdf5_block_free(&b);
	else
		*ret = b;
	return r;
}

int hdf5_read_once(struct hdf5_walk *w, uint64_t addr, size_t len, const char *what, struct hdf5_block *ret)
{
	int r = hdf5_read(w, addr, len, what, ret);

	if (r < 0)
		return r;
	r = hdf5_map_set(&w->seen, ret->off, 0);
	if (r == -EEXIST)
		r = hdf5_fail(w, -EBADMSG, ret->off, "%s is used twice", what);
	if (r < 0)
		hdf5_block_free(ret);
	return r;
}

static bool is_zeros(const uint8_t *p, size_t len)
{
	return len == 0 || (p[0] == 0 && memcmp(p, p + 1, len - 1) == 0);
}

int hdf5_signature(struct hdf5_walk *w, const struct hdf5_block *b, struct cursor *c, const char *letters)
{
	const uint8_t *p = cursor_bytes(c, 4);

	if (p && memcmp(p, letters, 4) == 0)
		return 0;
	if (is_zeros(b->data, b->len))
		return hdf5_fail(w, -ENODATA, b->off, "zeros where \"%s\" has to be", letters);
	return hdf5_fail(w, -EBADMSG, b->off, "\"%s\" has to be here", letters);
}

int hdf5_check(struct hdf5_walk *w, const struct hdf5_block *b)
{
	struct cursor c;

	if (b->len < 4)
		return hdf5_fail(w, -EBADMSG, b->off, "too short for a checksum");
	c = cursor_make(b->data + b->len - 4, 4);
	if (!hdf5_checksum_is(b->data, b->len - 4, cursor_u32(&c)))
		return hdf5_fail(w, -EBADMSG, b->off, "the checksum of these %zu bytes is wrong", b->len);
	return 0;
}
