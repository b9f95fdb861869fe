/* SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef FORMAT_INDEX_KEY_H
#define FORMAT_INDEX_KEY_H

/*
 * The keys of the index, as RocksDB and the journal's .ckp files hold them. A key is one byte of kind, then fields;
 * numbers are big-endian, so that bytewise order is the order of numbers and a prefix is a set that belongs together.
 */

#include <stddef.h>
#include <stdint.h>

#include "format/journal/record.h"

enum key_kind {
	KEY_NAME = 'D',    /* u64 parent, name: a directory's entry */
	KEY_BACKING = 'B', /* u64 parent, name: a backing name */
	KEY_INODE = 'I',   /* u64 ino */
	KEY_PAGE = 'E',    /* u64 ino, u64 page number: extents */
	KEY_PART = 'F',    /* u64 ino, u64 page number * PAGE_PARTS + part: those of a part of a page that has many */
	KEY_XATTR = 'X',   /* u64 ino, name */
	KEY_TARGET = 'T',  /* u64 ino: a symbolic link's target */
	KEY_SEGMENT = 'S', /* u64 segment: its live bytes */
	KEY_ORPHAN = 'O',  /* u64 ino: without names, and RECORD_FREE has not come yet */
	KEY_WRITERS = 'A', /* u64 ino: which processes wrote it */
	/* jobs of many nodes */
	KEY_COMMITS = 'C',    /* u64 ino: when its layer was committed, and where it is not */
	KEY_SHARE = 'H',      /* u64 ino: head of a share map */
	KEY_SHARE_PAGE = 'P', /* u64 ino, u64 page number: share map */
	KEY_CONFLICTS = 'W',  /* u64 ino: of a share map */
	KEY_META = 'M',       /* u8 which (enum key_meta) */
};

enum key_meta {
	KEY_META_STATE = 's',  /* struct meta: numbers that belong to the state */
	KEY_META_CURSOR = 'c', /* this index's own: the seq it stands for. Not in .ckp files */
};

#define KEY_MAX (1 + 8 + RECORD_NAME_MAX)

struct key {
	uint16_t len;
	uint8_t bytes[KEY_MAX];
};

/* A key taken apart. name is borrowed and not terminated. */
struct key_parts {
	enum key_kind kind;
	uint64_t id;      /* ino, parent, segment, or which */
	uint64_t page;    /* KEY_PAGE, KEY_SHARE_PAGE; KEY_PART: the second number */
	const char *name; /* KEY_NAME, KEY_BACKING, KEY_XATTR */
	size_t name_len;
};

/* kind and number alone: a whole key for those that have no more, the prefix of the others. */
void key_number(struct key *key, enum key_kind kind, uint64_t number);
void key_name(struct key *key, enum key_kind kind, uint64_t number, const char *name,
	size_t len); /* len <= RECORD_NAME_MAX */
void key_page(struct key *key, enum key_kind kind, uint64_t ino, uint64_t page);
void key_meta(struct key *key, enum key_meta which);
void key_kind(struct key *key, enum key_kind kind);                  /* the prefix of all keys of a kind */
int key_parse(const void *bytes, size_t len, struct key_parts *ret); /* -EBADMSG */

#endif
