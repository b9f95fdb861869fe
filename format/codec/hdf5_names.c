/* SPDX-License-Identifier: GPL-3.0-or-later */
/* Local heaps, which hold names (specification III.D). */
#include "format/codec/hdf5_private.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

#define NO_GAP 1u

/* Gaps between names are a list: where the next one is, or 1; how long this one is. */
static int check_gaps(struct hdf5_walk *w, const struct hdf5_block *names, uint64_t first)
{
	uint64_t most = names->len / (2 * w->len_bytes);

	for (uint64_t at = first; at != NO_GAP; most--) {
		struct cursor c;
		uint64_t len;

		if (most == 0 || at > names->len || names->len - at < 2 * w->len_bytes)
			return hdf5_fail(w, -EBADMSG, names->off, "an impossible list of gaps between names");
		c = cursor_make(names->data + at, names->len - (size_t)at);
		first = hdf5_get_len(w, &c);
		len = hdf5_get_len(w, &c);
		if (len > names->len - at)
			return hdf5_fail(w, -EBADMSG, names->off + at, "a gap between names of %" PRIu64 " bytes", len);
		at = first;
	}
	return 0;
}

int hdf5_local_heap(struct hdf5_walk *w, uint64_t addr, struct hdf5_block *ret)
{
	struct hdf5_block b HDF5_BLOCK_CLEANUP = { 0 };
	unsigned int version;
	uint64_t len, gaps, at, none;
	struct cursor c;
	int r = hdf5_read_once(w, addr, 8 + 2 * (size_t)w->len_bytes + w->addr_bytes, "a local heap", &b);

	if (r < 0)
		return r;
	c = cursor_make(b.data, b.len);
	r = hdf5_signature(w, &b, &c, "HEAP");
	if (r < 0)
		return r;
	version = cursor_u8(&c);
	(void)cursor_bytes(&c, 3);
	len = hdf5_get_len(w, &c);
	gaps = hdf5_get_len(w, &c);
	at = hdf5_get_addr(w, &c);
	if (version != 0)
		return hdf5_fail(w, -ENOTSUP, b.off, "a local heap of version %u", version);
	if (len > HDF5_BLOCK_MAX)
		return hdf5_fail(w, -EBADMSG, b.off, "a local heap of %" PRIu64 " bytes", len);
	r = hdf5_read_once(w, at, (size_t)len, "the names of a local heap", ret);
	none = w->len_bytes < 8 ? (UINT64_C(1) << 8 * w->len_bytes) - 1
				: UINT64_MAX; /* of a heap that is full, in old files */
	return r < 0 || gaps == none ? r : check_gaps(w, ret, gaps);
}
