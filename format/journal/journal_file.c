/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * The small parts of a journal file.
 *
 * A run entry leaves out what the record before it says already: inode, segment, flags, where its payload begins (right
 * behind the previous one) and its seq (one more). The seq is the seed of its CRC, so an entry in the wrong place does
 * not pass. 24 bytes are enough for writes of less than 2 MiB that follow each other within half a second or so. It says
 * who wrote only where that is another process than before; a run whose first record does not say it never does, so that
 * who does not know of writers meets none before a record of a version that he refuses.
 *
 * A sync mark says up to which seq the journal had been synced when the mark was written. It tells damage from the
 * marks that lost power leaves: a record that is unreadable although a later mark covers it was once on the device.
 */
#include "format/journal/journal_file.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "format/base/array.h"
#include "format/base/crc32c.h"

#define LOG_MAGIC        "CISTJRNL"
#define CHECKPOINT_MAGIC "CISTCKPT"
#define FILE_VERSION     1u
#define HEADER_BYTES     48u /* the rest of the block is zero */
#define HEADER_AT_CRC    12u

#define RUN_MAGIC          "rw"
#define MARK_MAGIC         "sm"
#define SMALL_HEADER_BYTES 8u /* magic, length, flags, CRC */
#define SMALL_AT_FLAGS     3u
#define RUN_WRITER         1u /* flag: the entry's writer stands at its end */
#define SMALL_AT_CRC       4u

/* The CRC of a header block with its own field as zero. */
static uint32_t crc_header(const uint8_t *block)
{
	static const uint8_t zeros[4];
	uint32_t crc = crc32c(0, block, HEADER_AT_CRC);

	crc = crc32c(crc, zeros, sizeof(zeros));
	return crc32c(crc, block + HEADER_AT_CRC + 4, JOURNAL_BLOCK - HEADER_AT_CRC - 4);
}

static void put_le(uint8_t *to, uint64_t v, size_t len)
{
	for (size_t i = 0; i < len; i++)
		to[i] = (uint8_t)(v >> (8 * i));
}

static uint32_t get_u32(const uint8_t *p)
{
	return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

static bool all_zero(const uint8_t *p, size_t len)
{
	return len == 0 || (p[0] == 0 && memcmp(p, p + 1, len - 1) == 0);
}

/* ---- header block */

static const char *magic_of(enum journal_kind kind)
{
	return kind == JOURNAL_LOG ? LOG_MAGIC : CHECKPOINT_MAGIC;
}

void journal_header_encode(enum journal_kind kind, const struct journal_header *header, uint8_t block[JOURNAL_BLOCK])
{
	memset(block, 0, JOURNAL_BLOCK);
	memcpy(block, magic_of(kind), 8);
	put_le(block + 8, FILE_VERSION, 4);
	put_le(block + 16, header->number, 4);
	put_le(block + 24, header->first_seq, 8);
	put_le(block + 32, (uint64_t)header->created_ns, 8);
	put_le(block + 40, header->durable_seq, 8);
	put_le(block + HEADER_AT_CRC, crc_header(block), 4);
}

int journal_header_decode(enum journal_kind kind, const uint8_t *block, size_t len, struct journal_header *ret)
{
	struct cursor c;
	uint32_t version, reserved;

	if (all_zero(block, len < JOURNAL_BLOCK ? len : JOURNAL_BLOCK))
		return -ENODATA;
	if (len < JOURNAL_BLOCK || memcmp(block, magic_of(kind), 8) != 0)
		return -EBADMSG;
	if (crc_header(block) != get_u32(block + HEADER_AT_CRC))
		return -EBADMSG;
	c = cursor_make(block + 8, HEADER_BYTES - 8);
	version = cursor_u32(&c);
	if (version != FILE_VERSION)
		return version > FILE_VERSION ? -EPROTONOSUPPORT : -EBADMSG;
	(void)cursor_u32(&c); /* CRC */
	ret->number = cursor_u32(&c);
	reserved = cursor_u32(&c);
	ret->first_seq = cursor_u64(&c);
	ret->created_ns = (int64_t)cursor_u64(&c);
	ret->durable_seq = cursor_u64(&c);
	if (reserved || !all_zero(block + HEADER_BYTES, JOURNAL_BLOCK - HEADER_BYTES))
		return -EBADMSG;
	return kind == JOURNAL_LOG && (!ret->first_seq || ret->durable_seq >= ret->first_seq) ? -EBADMSG : 0;
}

/* ---- run entries */

void journal_run_follow(struct journal_run *run, const struct record *rec)
{
	run->open = rec->type == RECORD_WRITE;
	if (!run->open)
		return;
	run->ino = rec->ino;
	run->gen = rec->gen;
	run->node = rec->node;
	run->flags = rec->flags;
	run->segment = rec->segment;
	run->writer = rec->writer;
	run->time_ns = rec->time_ns;
	run->next_off = rec->off + rec->len;
	run->next_segment_off = rec->segment_off + rec->len;
}

static bool payload_ok(uint64_t off, uint64_t segment_off, uint64_t len)
{
	return len && len <= UINT32_MAX && off <= INT64_MAX - len && segment_off <= INT64_MAX - len;
}

bool journal_run_continues(const struct journal_run *run, const struct record *rec)
{
	return run->open && rec->type == RECORD_WRITE && !rec->trailer && rec->ino == run->ino &&
	       rec->gen == run->gen && rec->node == run->node && rec->flags == run->flags &&
	       rec->segment == run->segment && !rec->writer == !run->writer &&
	       rec->segment_off == run->next_segment_off && payload_ok(rec->off, rec->segment_off, rec->len);
}

static size_t put_varint(uint8_t *to, uint64_t v)
{
	size_t n = 0;

	for (; v >= 0x80; v >>= 7)
		to[n++] = (uint8_t)(v | 0x80);
	to[n++] = (uint8_t)v;
	return n;
}

static size_t put_svarint(uint8_t *to, int64_t v)
{
	return put_varint(to, (uint64_t)v << 1 ^ (v < 0 ? UINT64_MAX : 0));
}

/* The CRC of a small item, in one go: its field taken as zero, after 0 or 8 bytes of seed. */
static uint32_t crc_small(const uint8_t *p, size_t len, const uint64_t *seed)
{
	uint8_t bytes[8 + JOURNAL_RUN_MAX], *at = bytes;

	if (seed) {
		put_le(at, *seed, 8);
		at += 8;
	}
	memcpy(at, p, len);
	memset(at + SMALL_AT_CRC, 0, 4);
	return crc32c(0, bytes, (size_t)(at - bytes) + len);
}

/* Magic, length, flags and CRC around a body that is in place already. */
static void seal_small(uint8_t *p, const char *magic, size_t len, uint8_t flags, const uint64_t *seed)
{
	memcpy(p, magic, 2);
	p[2] = (uint8_t)len;
	p[SMALL_AT_FLAGS] = flags;
	put_le(p + SMALL_AT_CRC, crc_small(p, len, seed), 4);
}

static bool small_is_whole(const uint8_t *p, size_t len, const char *magic, uint8_t flags, const uint64_t *seed)
{
	if (len < SMALL_HEADER_BYTES || memcmp(p, magic, 2) != 0 || p[SMALL_AT_FLAGS] & ~flags)
		return false;
	if (p[2] <= SMALL_HEADER_BYTES || p[2] > JOURNAL_RUN_MAX || p[2] % JOURNAL_ALIGN || p[2] > len)
		return false;
	return crc_small(p, p[2], seed) == get_u32(p + SMALL_AT_CRC);
}

size_t journal_run_encode(const struct journal_run *run, const struct record *rec, uint8_t out[JOURNAL_RUN_MAX])
{
	size_t n = SMALL_HEADER_BYTES;

	memset(out, 0, JOURNAL_RUN_MAX);
	put_le(out + n, rec->payload_crc, 4);
	n += 4;
	n += put_svarint(out + n, (int64_t)(rec->off - run->next_off));
	n += put_varint(out + n, rec->len);
	n += put_svarint(out + n, (int64_t)((uint64_t)rec->time_ns - (uint64_t)run->time_ns));
	if (rec->writer != run->writer)
		n += put_varint(out + n, rec->writer);
	n = (n + JOURNAL_ALIGN - 1) / JOURNAL_ALIGN * JOURNAL_ALIGN;
	seal_small(out, RUN_MAGIC, n, rec->writer != run->writer ? RUN_WRITER : 0, &rec->seq);
	return n;
}

bool journal_run_is_entry(uint64_t seq, const uint8_t *p, size_t len, size_t *ret_used)
{
	if (!small_is_whole(p, len, RUN_MAGIC, RUN_WRITER, &seq))
		return false;
	*ret_used = p[2];
	return true;
}

static void run_record(const struct journal_run *run, uint64_t seq, struct record *rec)
{
	memset(rec, 0, offsetof(struct record, name));
	rec->name[0] = '\0';
	rec->from_name[0] = '\0';
	memset(&rec->other_ino, 0, sizeof(*rec) - offsetof(struct record, other_ino));
	rec->type = RECORD_WRITE;
	rec->seq = seq;
	rec->flags = run->flags;
	rec->ino = run->ino;
	rec->gen = run->gen;
	rec->node = run->node;
	rec->writer = run->writer;
	rec->segment = run->segment;
	rec->segment_off = run->next_segment_off;
}

static bool decode_writer(struct cursor *c, const struct journal_run *run, struct record *rec)
{
	uint64_t writer = cursor_varint(c);

	rec->writer = (uint32_t)writer;
	return run->writer && writer && writer <= UINT32_MAX && writer != run->writer;
}

int journal_run_decode(const struct journal_run *run, uint64_t seq, const uint8_t *p, size_t len,
	struct record *ret_rec, size_t *ret_used)
{
	struct cursor c;
	size_t used;

	if (!run->open || !journal_run_is_entry(seq, p, len, &used))
		return -EBADMSG;
	run_record(run, seq, ret_rec);
	c = cursor_make(p + SMALL_HEADER_BYTES, used - SMALL_HEADER_BYTES);
	ret_rec->payload_crc = cursor_u32(&c);
	ret_rec->off = run->next_off + (uint64_t)cursor_svarint(&c);
	ret_rec->len = cursor_varint(&c);
	ret_rec->time_ns = (int64_t)((uint64_t)run->time_ns + (uint64_t)cursor_svarint(&c));
	if (p[SMALL_AT_FLAGS] & RUN_WRITER && !decode_writer(&c, run, ret_rec))
		return -EBADMSG;
	if (!cursor_ok(&c) || cursor_left(&c) >= JOURNAL_ALIGN || !all_zero(c.at, cursor_left(&c)))
		return -EBADMSG;
	if (!payload_ok(ret_rec->off, ret_rec->segment_off, ret_rec->len))
		return -EBADMSG;
	*ret_used = used;
	return 0;
}

/* ---- sync marks */

void journal_mark_encode(uint64_t durable_seq, uint8_t out[JOURNAL_MARK_BYTES])
{
	put_le(out + SMALL_HEADER_BYTES, durable_seq, 8);
	seal_small(out, MARK_MAGIC, JOURNAL_MARK_BYTES, 0, NULL);
}

int journal_mark_decode(const uint8_t *p, size_t len, uint64_t *ret_durable_seq)
{
	struct cursor c;

	if (len < JOURNAL_MARK_BYTES || !small_is_whole(p, len, MARK_MAGIC, 0, NULL) || p[2] != JOURNAL_MARK_BYTES)
		return -EBADMSG;
	c = cursor_make(p + SMALL_HEADER_BYTES, 8);
	*ret_durable_seq = cursor_u64(&c);
	return 0;
}

/* ---- names */

const char *journal_path(char out[JOURNAL_PATH], uint32_t number, const char *ext)
{
	snprintf(out, JOURNAL_PATH, JOURNAL_DIR "/%08" PRIu32 "%s", number, ext);
	return out;
}

/* Is name the one that we would give to the file with the number it begins with? */
static bool parse_name(const char *name, const char *ext, uint32_t *ret_number)
{
	char text[JOURNAL_PATH];
	unsigned long number = strtoul(name, NULL, 10);

	if (number == 0 || number > UINT32_MAX)
		return false;
	journal_path(text, (uint32_t)number, ext);
	if (strcmp(text + strlen(JOURNAL_DIR "/"), name) != 0)
		return false;
	*ret_number = (uint32_t)number;
	return true;
}

struct listing {
	struct journal_numbers *numbers;
	const char *ext;
};

static int add_number(const char *name, void *arg)
{
	struct listing *l = arg;
	struct journal_numbers *n = l->numbers;
	uint32_t number;

	if (!parse_name(name, l->ext, &number))
		return 0;
	if (array_room(&n->at, &n->cap, n->num, sizeof(*n->at)) < 0)
		return -ENOMEM;
	n->at[n->num++] = number;
	return 0;
}

static int by_number(const void *a, const void *b)
{
	uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

	return (x > y) - (x < y);
}

int journal_numbers_list(struct io *io, const char *ext, struct journal_numbers *ret)
{
	struct journal_numbers n = { 0 };
	struct listing l = { .numbers = &n, .ext = ext };
	int r = io->ops->list(io, JOURNAL_DIR, add_number, &l);

	if (r && r != -ENOENT) {
		free(n.at);
		return r;
	}
	if (n.num)
		qsort(n.at, n.num, sizeof(*n.at), by_number);
	*ret = n;
	return 0;
}

void journal_numbers_free(struct journal_numbers *n)
{
	free(n->at);
	*n = (struct journal_numbers){ 0 };
}

void journal_close_file(struct io_file **file)
{
	io_close(*file);
	*file = NULL;
}
