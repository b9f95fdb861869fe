/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Building and reading keys. Whoever reads one from a disk goes through key_parse(), which accepts exactly what the
 * builders make.
 */
#include "format/index/key.h"

#include <assert.h>
#include <endian.h>
#include <errno.h>
#include <string.h>

#include "format/base/cursor.h"

static void put_u64(struct key *key, uint64_t v)
{
	v = htobe64(v);
	memcpy(key->bytes + key->len, &v, sizeof v);
	key->len = (uint16_t)(key->len + sizeof v);
}

void key_kind(struct key *key, enum key_kind kind)
{
	key->bytes[0] = (uint8_t)kind;
	key->len = 1;
}

void key_number(struct key *key, enum key_kind kind, uint64_t number)
{
	key_kind(key, kind);
	put_u64(key, number);
}

void key_name(struct key *key, enum key_kind kind, uint64_t number, const char *name, size_t len)
{
	assert(len <= RECORD_NAME_MAX);
	key_number(key, kind, number);
	memcpy(key->bytes + key->len, name, len);
	key->len = (uint16_t)(key->len + len);
}

void key_page(struct key *key, enum key_kind kind, uint64_t ino, uint64_t page)
{
	key_number(key, kind, ino);
	put_u64(key, page);
}

void key_meta(struct key *key, enum key_meta which)
{
	key_kind(key, KEY_META);
	key->bytes[key->len++] = (uint8_t)which;
}

static void parse_name(struct cursor *c, struct key_parts *parts)
{
	parts->name_len = cursor_left(c);
	parts->name = (const char *)cursor_bytes(c, parts->name_len);
	if (!parts->name || parts->name_len == 0 || parts->name_len > RECORD_NAME_MAX ||
		memchr(parts->name, 0, parts->name_len))
		cursor_fail(c);
}

int key_parse(const void *bytes, size_t len, struct key_parts *ret)
{
	struct cursor c = cursor_make(bytes, len);
	struct key_parts parts = { .kind = cursor_u8(&c) };

	switch (parts.kind) {
	case KEY_NAME:
	case KEY_BACKING:
	case KEY_XATTR:
		parts.id = cursor_u64_be(&c);
		parse_name(&c, &parts);
		break;
	case KEY_PAGE:
	case KEY_PART:
	case KEY_SHARE_PAGE:
		parts.id = cursor_u64_be(&c);
		parts.page = cursor_u64_be(&c);
		break;
	case KEY_INODE:
	case KEY_TARGET:
	case KEY_SEGMENT:
	case KEY_WRITERS:
	case KEY_COMMITS:
	case KEY_SHARE:
	case KEY_CONFLICTS:
	case KEY_ORPHAN: parts.id = cursor_u64_be(&c); break;
	case KEY_META: parts.id = cursor_u8(&c); break;
	default: cursor_fail(&c);
	}
	if (!cursor_ok(&c) || cursor_left(&c) > 0)
		return -EBADMSG;
	*ret = parts;
	return 0;
}
