/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * An entry: u64 ino, size, limit, upto, stamp, drained_stamp, drained_usec, written, extents; u32 crc_sum, failed_node, failed_errno;
 * u8 flags (1 in place, 2 failed), layout; u16 length and bytes of the path, the same of what is shown of it.
 */
#include "format/wire/shared.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "format/base/array.h"
#include "format/base/drain_layout.h"

#define ENTRY_BYTES 90u
#define PATH_BYTES  16384u
#define IN_PLACE    1u
#define FAILED      2u

static size_t entry_bytes(const struct wire_shared *f)
{
	return ENTRY_BYTES + strlen(f->path) + strlen(f->shown);
}

static void truncate_list(struct wire_shared_list *list, size_t num)
{
	while (list->num > num) {
		struct wire_shared *f = &list->at[--list->num];

		list->bytes -= entry_bytes(f);
		free(f->path);
		free(f->shown);
	}
}

bool wire_shared_has_part(const struct wire_shared *f, enum wire_part part)
{
	switch (part) {
	case WIRE_PART_DEAL:
	case WIRE_PART_BLOBS: return f->layout != DRAIN_LAYOUT_CANONICAL && !f->failed;
	case WIRE_PART_DATA: return f->layout == DRAIN_LAYOUT_CANONICAL;
	case WIRE_PART_HEAD: return f->layout == DRAIN_LAYOUT_CANONICAL && f->in_place;
	default: return false;
	}
}

void wire_shared_free(struct wire_shared_list *list)
{
	truncate_list(list, 0);
	free(list->at);
	idmap_free(&list->index);
	*list = (struct wire_shared_list){ 0 };
}

static bool fits(const struct wire_shared_list *list, const struct wire_shared *f)
{
	return strlen(f->path) < PATH_BYTES && strlen(f->shown) < PATH_BYTES &&
	       (list->stays_here || list->bytes + entry_bytes(f) <= WIRE_SHARED_BYTES);
}

int wire_shared_add(struct wire_shared_list *list, const struct wire_shared *f)
{
	char *path, *shown;

	if (!fits(list, f))
		return -ENOSPC;
	if (array_room(&list->at, &list->cap, list->num, sizeof(*list->at)) < 0)
		return -ENOMEM;
	path = strdup(f->path);
	shown = strdup(f->shown);
	if (!path || !shown ||
		(!wire_shared_find(list, f->ino) && idmap_set(&list->index, f->ino, list->num + 1) < 0)) {
		free(path);
		free(shown);
		return -ENOMEM;
	}
	list->at[list->num] = *f;
	list->at[list->num].path = path;
	list->at[list->num++].shown = shown;
	list->bytes += entry_bytes(f);
	return 0;
}

/* The index may be of an entry that a list that could not be decoded had. */
struct wire_shared *wire_shared_find(const struct wire_shared_list *list, uint64_t ino)
{
	uint64_t i = idmap_get(&list->index, ino);

	return i > 0 && i <= list->num && list->at[i - 1].ino == ino ? &list->at[i - 1] : NULL;
}

void wire_shared_encode(const struct wire_shared_list *list, struct buf *out)
{
	for (size_t i = 0; i < list->num; i++) {
		const struct wire_shared *f = &list->at[i];

		buf_u64(out, f->ino);
		buf_u64(out, f->size);
		buf_u64(out, f->limit);
		buf_u64(out, f->upto);
		buf_u64(out, f->stamp);
		buf_u64(out, f->drained_stamp);
		buf_u64(out, f->drained_usec);
		buf_u64(out, f->written);
		buf_u64(out, f->extents);
		buf_u32(out, f->crc_sum);
		buf_u32(out, f->failed_node);
		buf_u32(out, f->failed_errno);
		buf_u8(out, (uint8_t)((f->in_place ? IN_PLACE : 0) | (f->failed ? FAILED : 0)));
		buf_u8(out, f->layout);
		buf_str(out, f->path);
		buf_str(out, f->shown);
	}
}

int wire_shared_decode(const void *bytes, size_t len, struct wire_shared_list *list)
{
	struct cursor c = cursor_make(bytes, len);
	char *path = malloc(2 * PATH_BYTES), *shown = path ? path + PATH_BYTES : NULL;
	size_t before = list->num;
	int r = path ? 0 : -ENOMEM;

	while (r == 0 && cursor_left(&c) > 0) {
		struct wire_shared f = { .path = path, .shown = shown };
		uint8_t flags;

		f.ino = cursor_u64(&c);
		f.size = cursor_u64(&c);
		f.limit = cursor_u64(&c);
		f.upto = cursor_u64(&c);
		f.stamp = cursor_u64(&c);
		f.drained_stamp = cursor_u64(&c);
		f.drained_usec = cursor_u64(&c);
		f.written = cursor_u64(&c);
		f.extents = cursor_u64(&c);
		f.crc_sum = cursor_u32(&c);
		f.failed_node = cursor_u32(&c);
		f.failed_errno = cursor_u32(&c);
		flags = cursor_u8(&c);
		f.layout = cursor_u8(&c);
		cursor_str(&c, path, PATH_BYTES);
		cursor_str(&c, shown, PATH_BYTES);
		f.in_place = flags & IN_PLACE;
		f.failed = flags & FAILED;
		r = cursor_ok(&c) && f.ino > 0 && flags <= (IN_PLACE | FAILED) && f.layout < DRAIN_LAYOUT_END
			    ? wire_shared_add(list, &f)
			    : -EBADMSG;
	}
	if (r == 0 && !cursor_ok(&c))
		r = -EBADMSG;
	if (r < 0)
		truncate_list(list, before);
	free(path);
	return r;
}
