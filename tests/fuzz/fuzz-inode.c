/* SPDX-License-Identifier: GPL-3.0-or-later */
/* Values and keys of the index from anybody's bytes: inodes, names, segments, the numbers, keys. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "format/index/state_private.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void demand(bool condition)
{
	if (!condition)
		abort();
}

static void try_inode(const uint8_t *data, size_t size)
{
	struct node n = { 0 }, again = { 0 };
	struct buf first = { 0 }, second = { 0 };
	struct inode in;

	if (node_decode(data, size, &n) < 0)
		return;
	node_to_inode(&n, &in);
	demand(node_encode(&n, &first) == 0);
	demand(node_decode(first.data, first.len, &again) == 0);
	demand(node_encode(&again, &second) == 0);
	demand(first.len == second.len && memcmp(first.data, second.data, first.len) == 0);
	node_free(&n);
	node_free(&again);
	buf_free(&first);
	buf_free(&second);
}

static void try_meta(const uint8_t *data, size_t size)
{
	struct meta m, again;
	struct buf out = { 0 };

	if (meta_decode(data, size, &m) < 0)
		return;
	demand(meta_encode(&m, &out) == 0);
	demand(meta_decode(out.data, out.len, &again) == 0);
	buf_free(&out);
}

static void try_key(const uint8_t *data, size_t size)
{
	struct key_parts parts;
	struct key key;

	if (key_parse(data, size, &parts) < 0)
		return;
	if (parts.name)
		key_name(&key, parts.kind, parts.id, parts.name, parts.name_len);
	else if (parts.kind == KEY_PAGE || parts.kind == KEY_SHARE_PAGE)
		key_page(&key, parts.kind, parts.id, parts.page);
	else if (parts.kind == KEY_META)
		key_meta(&key, (enum key_meta)parts.id);
	else
		key_number(&key, parts.kind, parts.id);
	demand(key.len == size && memcmp(key.bytes, data, size) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct name_value name;
	uint64_t number;
	bool flag;

	try_inode(data, size);
	try_meta(data, size);
	try_key(data, size);
	name_decode(data, size, &name);
	segment_decode(data, size, &number, &flag);
	return 0;
}
