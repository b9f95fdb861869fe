/* SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef FORMAT_BASE_CURSOR_H
#define FORMAT_BASE_CURSOR_H

/*
 * Checked reading and writing of bytes: everything that comes from a disk, a wire or a user passes a cursor, and
 * everything that goes there a buf. Integers are little-endian (the _be forms: big-endian, so that keys sort).
 * Errors are sticky: after a read past the end every read gives 0 and cursor_ok() is false, so that a decoder
 * checks once, at its end.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct cursor {
	const uint8_t *at; /* borrowed */
	const uint8_t *end;
	bool bad;
};

struct cursor cursor_make(const void *buf, size_t len);
bool cursor_ok(const struct cursor *c);     /* nothing was read past the end */
size_t cursor_left(const struct cursor *c); /* bytes not yet read; 0 when bad */
void cursor_fail(struct cursor *c);         /* marks as bad: the decoder found nonsense */
uint8_t cursor_u8(struct cursor *c);
uint16_t cursor_u16(struct cursor *c);
uint32_t cursor_u32(struct cursor *c);
uint64_t cursor_u64(struct cursor *c);
uint64_t cursor_u64_be(struct cursor *c);
uint64_t cursor_varint(struct cursor *c);                  /* LEB128, at most 10 bytes */
int64_t cursor_svarint(struct cursor *c);                  /* zigzag */
const uint8_t *cursor_bytes(struct cursor *c, size_t len); /* borrowed; NULL when bad */
/* A u16 length and that many bytes without NUL, copied into out and terminated. Bad when longer than cap - 1. */
void cursor_str(struct cursor *c, char *out, size_t cap);
/* The same, borrowed: sets *ret_len; NULL when bad. May hold any byte. */
const uint8_t *cursor_blob(struct cursor *c, size_t *ret_len);

/* Growable output. Memory failure is sticky: check buf_ok() once, at the end. Zero-initialised = empty. */
struct buf {
	uint8_t *data; /* owned */
	size_t len, cap;
	bool bad;
};

void buf_free(struct buf *b);  /* also resets to empty; buf_free(NULL) is fine */
void buf_reset(struct buf *b); /* empty again, memory kept, error cleared */
bool buf_ok(const struct buf *b);
void buf_u8(struct buf *b, uint8_t v);
void buf_u16(struct buf *b, uint16_t v);
void buf_u32(struct buf *b, uint32_t v);
void buf_u64(struct buf *b, uint64_t v);
void buf_u64_be(struct buf *b, uint64_t v);
void buf_varint(struct buf *b, uint64_t v);
void buf_svarint(struct buf *b, int64_t v);
void buf_bytes(struct buf *b, const void *p, size_t len);
void buf_blob(struct buf *b, const void *p, size_t len); /* u16 length, bytes; len > 65535 makes it bad */
void buf_str(struct buf *b, const char *s);              /* buf_blob of strlen(s) bytes */
void buf_zeros(struct buf *b, size_t len);
void buf_poke_u32(struct buf *b, size_t at, uint32_t v); /* overwrite, at + 4 <= len */

#define BUF_CLEANUP __attribute__((cleanup(buf_free)))

#endif
