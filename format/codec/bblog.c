/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Decoder of PnetCDF's burst-buffer logs. The driver writes C structs as they lie in memory, so that the offsets of
 * the header depend on release and platform, and from the first put on its entry_begin holds the number of entries
 * instead. What is believed here is therefore what can be computed: the header's end from the lengths of its two
 * names, each entry's size from its kind and its number of dimensions. The count at byte 56 bounds what counts, since
 * the driver writes it last; whatever follows was flushed before, or never acknowledged.
 *
 * Invariant: an entry handed out without a word in `wrong` has in-range fields, arrays of the promised length, a
 * number of elements that fits its bytes, and values right behind those of the entry before it. Whether it fits its
 * variable is for those who know the netCDF file.
 */
#include "format/codec/bblog.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "format/codec/bbstream.h"

#define FORMAT_CDF   "CDF0\0\0\0\0" /* whatever the kind of the netCDF file */
#define HEADER_MAX   (80 + BBLOG_PATH_BYTES + 4 + BBLOG_HOST_BYTES + 16)
#define SCAN_BYTES   (UINT64_C(1) << 20)
#define TAIL_MAX     (UINT64_C(1) << 16) /* entries that are looked at behind those that count */
#define FIELD_RANKS  24
#define FIELD_RANK   32
#define FIELD_NDIMS  40
#define FIELD_COUNT  48
#define FIELD_BEGIN  56
#define FIELD_LENGTH 64

struct bblog {
	struct bbstream in;
	const struct bblog_header *h; /* own, or borrowed from the log that this one follows; NULL: of none yet */
	struct bblog_header *own;     /* owned; NULL: a reader of another's log */
	int64_t *numbers;             /* owned: start, count, stride of the last entry */
	size_t cap_numbers;
	struct bblog_mark next;
};

/* ---- numbers in either order of bytes */

#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
#define HOST_BIG true
#else
#define HOST_BIG false
#endif

static uint32_t get32(const uint8_t *p, bool big)
{
	uint32_t v;

	memcpy(&v, p, sizeof(v));
	return big == HOST_BIG ? v : __builtin_bswap32(v);
}

static uint64_t get64(const uint8_t *p, bool big)
{
	uint64_t v;

	memcpy(&v, p, sizeof(v));
	return big == HOST_BIG ? v : __builtin_bswap64(v);
}

static void put64(uint8_t *p, uint64_t v, bool big)
{
	for (int i = 0; i < 8; i++)
		p[i] = (uint8_t)(v >> 8 * (big ? 7 - i : i));
}

static uint64_t round_up(uint64_t v, uint64_t to)
{
	return (v + to - 1) / to * to;
}

/* ---- the header */

bool bblog_is_meta(const void *buf, size_t len)
{
	return len >= 24 && memcmp(buf, BBLOG_MAGIC FORMAT_CDF, 16) == 0;
}

static int bad(struct cistern_error *err, uint64_t off, const char *what)
{
	return cistern_error_set(err, -EBADMSG, "byte %" PRIu64 ": %s", off, what);
}

/* Bytes 16 to 23. big_endian is 1 only on machines that write the 1 last. */
static int decode_flags(const uint8_t *p, struct bblog_header *h, struct cistern_error *err)
{
	static const uint8_t little[4] = { 0 }, big[4] = { 0, 0, 0, 1 };
	uint32_t external;

	if (memcmp(p + 16, little, 4) != 0 && memcmp(p + 16, big, 4) != 0)
		return bad(err, 16, "the order of bytes is neither little- nor big-endian");
	h->big_endian = p[19] == 1;
	external = get32(p + 20, h->big_endian);
	if (external > 1)
		return bad(err, 20, "is_external is neither 0 nor 1");
	h->external = external == 1;
	return 0;
}

/* A name with its NUL at off, which must lie in the header's len bytes. */
static int decode_name(
	const uint8_t *p, size_t len, uint64_t off, uint64_t name_len, char *out, size_t cap, struct cistern_error *err)
{
	if (name_len >= cap || off > len || name_len + 1 > len - off)
		return bad(err, off, "a name is longer than it can be");
	if (memchr(p + off, 0, (size_t)name_len) || p[off + name_len] != 0)
		return bad(err, off, "a name does not end where its length says");
	memcpy(out, p + off, (size_t)name_len + 1);
	return 0;
}

/* Both names; *ret_end: the first byte behind the second one, before padding. */
static int decode_names(
	const uint8_t *p, size_t len, struct bblog_header *h, uint64_t *ret_end, struct cistern_error *err)
{
	bool big = h->big_endian, wide = len >= 72 && get32(p + (big ? 64 : 68), big) == 0;
	uint64_t name_len = wide ? get64(p + FIELD_LENGTH, big) : get32(p + FIELD_LENGTH, big);
	uint64_t off = wide ? 72 : 68, at;
	int r = decode_name(p, len, off, name_len, h->path, sizeof(h->path), err);

	if (r < 0)
		return r;
	if (h->path[0] != '/')
		return bad(err, off, "the path of the netCDF file is not absolute");
	h->layout = wide ? BBLOG_L2 : BBLOG_L1;
	at = off + name_len + 1;
	if (len < 4 || at > len - 4)
		return bad(err, at, "the header is cut short");
	name_len = get32(p + at, big);
	r = decode_name(p, len, at + 4, name_len, h->host, sizeof(h->host), err);
	/* the driver reserves the struct's size, which is rounded up to 8, and not where the name begins */
	*ret_end = at + 4 + name_len + 1 + (wide ? 8 : 4);
	return r;
}

/* Whether what stands at off looks like an entry: enough to tell two places for the first one apart. */
static bool entry_at(const uint8_t *p, size_t len, uint64_t off, bool big)
{
	uint64_t size;
	uint32_t ndims;

	if (off > len || len - off < BBLOG_ENTRY_BYTES)
		return false;
	size = get64(p + off, big);
	ndims = get32(p + off + 20, big);
	return size >= BBLOG_ENTRY_BYTES && size % 8 == 0 && size <= BBLOG_ENTRY_MAX && ndims <= BBLOG_DIMS_MAX &&
	       get64(p + off + 24, big) == BBLOG_DATA_BEGIN;
}

/* 1.11.0 to 1.12.2 pad the header to 4 bytes, later ones to 16; nothing in the header says so. */
static void place_entries(const uint8_t *p, size_t len, uint64_t size, uint64_t end, struct bblog_header *h)
{
	uint64_t four = round_up(end, 4), sixteen = round_up(end, 16);
	bool old, at_four = entry_at(p, len, four, h->big_endian),
		  at_sixteen = entry_at(p, len, sixteen, h->big_endian);

	h->begin = sixteen;
	if (h->layout == BBLOG_L2 || four == sixteen)
		return;
	old = size < sixteen || (!at_sixteen && (at_four || h->field_56 == four));
	if (!old)
		return;
	h->layout = BBLOG_L0;
	h->begin = four;
}

/* A second define phase writes max_ndims at byte 51, or 55, by mistake: over num_entries, and what is behind it. */
static bool marked_by_redefinition(const struct bblog_header *h)
{
	unsigned int shift = h->layout == BBLOG_L2 ? 56 : 24;
	uint64_t n = h->field_48 >> shift;

	return !h->big_endian && n > 0 && n <= BBLOG_DIMS_MAX && n << shift == h->field_48;
}

/* On a big-endian machine the same mistake only hits the count, which the next put or flush sets right. */
static bool count_of_redefinition(const struct bblog_header *h)
{
	unsigned int shift = h->layout == BBLOG_L2 ? 8 : 40;
	uint64_t n = h->field_56 >> shift;

	return h->big_endian && n > 0 && n <= BBLOG_DIMS_MAX && n << shift == h->field_56;
}

static void find_count(uint64_t size, struct bblog_header *h)
{
	uint64_t room = size > h->begin ? (size - h->begin) / BBLOG_ENTRY_BYTES : 0;

	h->redefined = marked_by_redefinition(h);
	h->count_from = BBLOG_COUNT_AT_56;
	h->count = h->field_56;
	if (h->field_56 == h->begin && h->field_48 > 0 && !h->redefined) {
		h->count_from = BBLOG_COUNT_AT_48;
		h->count = h->field_48;
	} else if (h->field_56 > room && count_of_redefinition(h)) {
		h->redefined = true;
		h->count = 0;
	}
}

static int decode_header(const uint8_t *p, size_t len, uint64_t size, struct bblog_header *h, struct cistern_error *err)
{
	uint64_t end = 0;
	int r;

	if (!bblog_is_meta(p, len))
		return bad(err, 0, "this is not the metadata log of PnetCDF's burst-buffer driver");
	r = decode_flags(p, h, err);
	if (r < 0)
		return r;
	if (len < 72)
		return bad(err, len, "the header is cut short");
	h->num_ranks = get64(p + FIELD_RANKS, h->big_endian);
	h->rank = get64(p + FIELD_RANK, h->big_endian);
	h->max_ndims = get64(p + FIELD_NDIMS, h->big_endian);
	h->field_48 = get64(p + FIELD_COUNT, h->big_endian);
	h->field_56 = get64(p + FIELD_BEGIN, h->big_endian);
	if (h->num_ranks == 0 || h->num_ranks > INT32_MAX)
		return bad(err, FIELD_RANKS, "the number of ranks is not believable");
	if (h->rank >= h->num_ranks)
		return bad(err, FIELD_RANK, "the rank is not below the number of ranks");
	r = decode_names(p, len, h, &end, err);
	if (r < 0)
		return r;
	place_entries(p, len, size, end, h);
	if (h->begin > size)
		return bad(err, size, "the header is cut short");
	find_count(size, h);
	return 0;
}

/* ---- channels, and the header of one */

static bool header_at(const struct bblog_source *meta, uint64_t block, uint8_t head[64])
{
	uint64_t off = block * BBLOG_BLOCK_BYTES;

	return off + 64 <= meta->size && meta->read(meta->arg, off, head, 64) == 0 && bblog_is_meta(head, 64);
}

/* Each channel begins with a header of its own, in one of the first blocks; ranks rise from one to the next. */
int bblog_channels(const struct bblog_source *meta, uint32_t *ret_num, struct cistern_error *err)
{
	uint8_t first[64], head[64];
	uint64_t ranks, rank;
	uint32_t num = 1;
	bool big;

	if (!header_at(meta, 0, first))
		return bad(err, 0, "this is not the metadata log of PnetCDF's burst-buffer driver");
	big = first[19] == 1;
	ranks = get64(first + FIELD_RANKS, big);
	rank = get64(first + FIELD_RANK, big);
	while (num < BBLOG_CHANNELS_MAX && num < ranks && header_at(meta, num, head) &&
		memcmp(first, head, FIELD_RANK) == 0 && get64(head + FIELD_RANK, big) > rank) {
		rank = get64(head + FIELD_RANK, big);
		num++;
	}
	*ret_num = num;
	return 0;
}

static int read_header(struct bblog *log, struct cistern_error *err)
{
	uint64_t most = HEADER_MAX + BBLOG_ENTRY_BYTES, len = log->in.size < most ? log->in.size : most;
	const uint8_t *p;
	int r;

	r = bbstream_look(&log->in, 0, len, &p);
	if (r < 0)
		return cistern_error_set(err, r, "reading the header: %s", strerror(-r));
	return decode_header(p, (size_t)len, log->in.size, log->own, err);
}

void bblog_close(struct bblog *log)
{
	if (!log)
		return;
	bbstream_free(&log->in);
	free(log->numbers);
	free(log->own);
	free(log);
}

void bblog_release(struct bblog *log)
{
	bbstream_free(&log->in);
	free(log->numbers);
	log->numbers = NULL;
	log->cap_numbers = 0;
}

const struct bblog_header *bblog_header(const struct bblog *log)
{
	return log->h;
}

uint64_t bblog_size(const struct bblog *log)
{
	return log->in.size;
}

/* ---- entries */

void bblog_rewind(struct bblog *log)
{
	log->next = (struct bblog_mark){ .off = log->h->begin, .data_off = BBLOG_DATA_BEGIN };
}

struct bblog_mark bblog_tell(const struct bblog *log)
{
	return log->next;
}

void bblog_seek(struct bblog *log, const struct bblog_mark *mark)
{
	log->next = *mark;
}

void bblog_expect(struct bblog *log, const struct bblog_mark *end)
{
	bbstream_expect(&log->in, end->off);
}

/* 0: the entry's length says it. */
static uint32_t type_bytes(uint32_t type)
{
	static const uint8_t bytes[] = {
		[BBLOG_TEXT] = 1,
		[BBLOG_SCHAR] = 1,
		[BBLOG_UCHAR] = 1,
		[BBLOG_SHORT] = 2,
		[BBLOG_USHORT] = 2,
		[BBLOG_INT] = 4,
		[BBLOG_UINT] = 4,
		[BBLOG_FLOAT] = 4,
		[BBLOG_DOUBLE] = 8,
		[BBLOG_LONGLONG] = 8,
		[BBLOG_ULONGLONG] = 8,
		[BBLOG_NATIVE] = 0,
		[BBLOG_LONG] = 0,
	};

	return bytes[type];
}

/* The sizes that an entry of this kind may have: with, and, for a varn, without counts. 0: there is none. */
static void entry_sizes(int32_t kind, uint32_t ndims, uint64_t *ret_with, uint64_t *ret_without)
{
	uint64_t one = 8 * (uint64_t)ndims;

	*ret_with = *ret_without = 0;
	if (kind > 0) {
		*ret_with = BBLOG_ENTRY_BYTES + 2 * one * (uint64_t)kind;
		*ret_without = BBLOG_ENTRY_BYTES + one * (uint64_t)kind;
	} else if (kind >= BBLOG_VARS && kind < 0) {
		*ret_with = BBLOG_ENTRY_BYTES + 3 * one;
	}
}

static int broken(const struct bblog *log, const char *what, struct cistern_error *err)
{
	return cistern_error_set(
		err, -EBADMSG, "byte %" PRIu64 ": entry %" PRIu64 ": %s", log->next.off, log->next.seq, what);
}

/* len bytes of the entry that is next. */
static int look(struct bblog *log, uint64_t len, const uint8_t **ret, struct cistern_error *err)
{
	int r = bbstream_look(&log->in, log->next.off, len, ret);

	if (r == -ENODATA)
		return broken(log, "the file ends in it", err);
	return r < 0 ? cistern_error_set(err, r, "byte %" PRIu64 ": %s", log->next.off, strerror(-r)) : 0;
}

/* The fixed part, and whether the size fits it. */
static int decode_fixed(struct bblog *log, struct bblog_entry *e, bool *ret_counts, struct cistern_error *err)
{
	uint64_t with, without;
	const uint8_t *p;
	bool big = log->h->big_endian;
	int r;

	r = look(log, BBLOG_ENTRY_BYTES, &p, err);
	if (r < 0)
		return r;
	e->size = get64(p, big);
	e->kind = (int32_t)get32(p + 8, big);
	e->type = (enum bblog_type)get32(p + 12, big);
	e->varid = get32(p + 16, big);
	e->ndims = get32(p + 20, big);
	e->data_off = get64(p + 24, big);
	e->data_len = get64(p + 32, big);
	if (e->ndims > BBLOG_DIMS_MAX)
		return broken(log, "it has more dimensions than a variable can have", err);
	entry_sizes(e->kind, e->ndims, &with, &without);
	if (with == 0)
		return broken(log, "it is of no known kind", err);
	if (e->size != with && (without == 0 || e->size != without))
		return broken(log, "its size does not fit its kind and its dimensions", err);
	if (e->size > BBLOG_ENTRY_MAX)
		return broken(log, "it is too large", err);
	*ret_counts = e->size == with;
	e->num = e->kind > 0 ? (uint64_t)e->kind : 1;
	return 0;
}

/* start, count and stride as numbers of this machine. */
static int decode_numbers(struct bblog *log, struct bblog_entry *e, bool counts, struct cistern_error *err)
{
	size_t num = (size_t)(e->size - BBLOG_ENTRY_BYTES) / 8, one = (size_t)e->num * e->ndims;
	const uint8_t *p;
	int r;

	r = look(log, e->size, &p, err);
	if (r < 0)
		return r;
	if (num >= log->cap_numbers) { /* of a scalar's there are none, but there is a place for them */
		int64_t *numbers = realloc(log->numbers, (num + 1) * sizeof(*numbers));

		if (!numbers)
			return cistern_error_set(err, -ENOMEM, "entry %" PRIu64 ": out of memory", log->next.seq);
		log->numbers = numbers;
		log->cap_numbers = num + 1;
	}
	for (size_t i = 0; i < num; i++)
		log->numbers[i] = (int64_t)get64(p + BBLOG_ENTRY_BYTES + 8 * i, log->h->big_endian);
	e->start = log->numbers;
	e->count = counts ? log->numbers + one : NULL;
	e->stride = e->kind < 0 ? log->numbers + 2 * one : NULL;
	return 0;
}

/* Elements of all its requests; false: a number is negative, or the product is too large. */
static bool count_elems(const struct bblog_entry *e, uint64_t *ret)
{
	uint64_t all = 0;

	for (uint64_t i = 0; i < e->num; i++) {
		uint64_t n = 1;

		for (uint32_t d = 0; d < e->ndims; d++) {
			int64_t count = e->count ? e->count[i * e->ndims + d] : 1;

			if (e->start[i * e->ndims + d] < 0 || count < 0 ||
				__builtin_mul_overflow(n, (uint64_t)count, &n))
				return false;
		}
		if (__builtin_add_overflow(all, n, &all))
			return false;
	}
	*ret = all;
	return true;
}

static const char *wrong_stride(const struct bblog_entry *e)
{
	for (uint32_t d = 0; e->stride && d < e->ndims; d++)
		if (e->kind == BBLOG_VARS ? e->stride[d] < 1 : e->stride[d] != 0)
			return e->kind == BBLOG_VARS ? "a stride is not positive" : "it has strides, and may not";
	return NULL;
}

/* How many bytes an element takes in memory; 0: the numbers do not fit. */
static uint32_t elem_bytes(const struct bblog_entry *e)
{
	uint64_t bytes = type_bytes((uint32_t)e->type), all;

	if (bytes == 0) /* the one whose length varies */
		bytes = e->num_elems ? e->data_len / e->num_elems : 8;
	if (bytes > 8 || (bytes & (bytes - 1)) != 0 || (e->type == BBLOG_LONG && bytes < 4))
		return 0;
	return !__builtin_mul_overflow(e->num_elems, bytes, &all) && all == e->data_len ? (uint32_t)bytes : 0;
}

static const char *what_is_wrong(struct bblog_entry *e, uint64_t data_at)
{
	if ((uint32_t)e->type < BBLOG_TEXT || (uint32_t)e->type > BBLOG_LONG)
		return "it is of no known type";
	if (e->varid > INT32_MAX)
		return "its variable is a negative number";
	if (!count_elems(e, &e->num_elems))
		return "a start or a count is negative or too large";
	if (wrong_stride(e))
		return wrong_stride(e);
	e->elem_bytes = elem_bytes(e);
	if (e->elem_bytes == 0)
		return "its length does not fit its type and its counts";
	if (e->data_len > INT64_MAX - e->data_off || e->data_off != data_at)
		return "its values do not follow those of the entry before it";
	return NULL;
}

/* Field by field into *e: copies of the whole would wait for each of them. */
static int decode_entry(struct bblog *log, struct bblog_entry *e, struct cistern_error *err)
{
	bool counts = false;
	int r;

	e->seq = log->next.seq;
	e->off = log->next.off;
	e->num_elems = 0;
	e->elem_bytes = 0;
	r = decode_fixed(log, e, &counts, err);
	if (r == 0)
		r = decode_numbers(log, e, counts, err);
	if (r < 0)
		return r;
	e->wrong = what_is_wrong(e, log->next.data_off);
	if (e->kind != BBLOG_VARS)
		e->stride = NULL;
	log->next.seq++;
	log->next.off += e->size;
	if (e->data_off <= INT64_MAX && e->data_len <= INT64_MAX - e->data_off)
		log->next.data_off = e->data_off + e->data_len;
	return 1;
}

int bblog_next(struct bblog *log, struct bblog_entry *ret, struct cistern_error *err)
{
	return log->next.seq < log->h->count ? decode_entry(log, ret, err) : 0;
}

/* ---- opening */

/*
 * Byte 56 has the place of the first entry until the first put or flush, and the number of entries from then on: the same
 * number may be either. If it is a number, there are so many whole entries.
 */
static void settle_count(struct bblog *log)
{
	struct bblog_header *h = log->own;
	struct bblog_entry e;

	if (h->field_56 != h->begin || h->count_from != BBLOG_COUNT_AT_56)
		return;
	bblog_rewind(log);
	while (bblog_next(log, &e, NULL) > 0)
		;
	if (log->next.seq == h->count)
		return;
	h->count_from = BBLOG_COUNT_NONE;
	h->count = 0;
}

int bblog_open(const struct bblog_source *meta, uint32_t channel, uint32_t num_channels, struct bblog **ret,
	struct cistern_error *err)
{
	struct bblog *log = calloc(1, sizeof(*log));
	int r;

	if (log)
		log->h = log->own = calloc(1, sizeof(*log->own));
	if (!log || !log->own) {
		bblog_close(log);
		return cistern_error_set(err, -ENOMEM, "out of memory");
	}
	bbstream_init(&log->in, meta, channel, num_channels);
	r = read_header(log, err);
	if (r < 0) {
		bblog_close(log);
		return num_channels > 1 ? cistern_error_prefix(err, "channel %u", channel) : r;
	}
	settle_count(log);
	bblog_rewind(log);
	*ret = log;
	return 0;
}

int bblog_reader(struct bblog **ret)
{
	*ret = calloc(1, sizeof(**ret));
	return *ret ? 0 : -ENOMEM;
}

void bblog_follow(struct bblog *reader, const struct bblog *log)
{
	bbstream_follow(&reader->in, &log->in.src, log->in.channel, log->in.num_channels);
	reader->h = log->h;
	bblog_rewind(reader);
}

/* ---- behind the entries that count */

/* *ret_end: the offset behind the last byte from off on that is not zero. */
static int last_used(struct bblog *log, uint64_t off, uint64_t *ret_end)
{
	*ret_end = off;
	while (off < log->in.size) {
		uint64_t left = log->in.size - off, len = left < SCAN_BYTES ? left : SCAN_BYTES, used = len;
		const uint8_t *p;
		int r = bbstream_look(&log->in, off, len, &p);

		if (r < 0)
			return r;
		while (used > 0 && p[used - 1] == 0)
			used--;
		if (used > 0)
			*ret_end = off + used;
		off += len;
	}
	return 0;
}

int bblog_tail(struct bblog *log, uint64_t *ret_bytes, uint64_t *ret_entries, struct cistern_error *err)
{
	struct bblog_entry e;
	uint64_t begin, end, num = 0;
	int r;

	bblog_rewind(log);
	while ((r = bblog_next(log, &e, err)) > 0)
		;
	if (r < 0 && r != -EBADMSG)
		return r;
	begin = log->next.off;
	r = last_used(log, begin, &end);
	if (r < 0)
		return cistern_error_set(err, r, "byte %" PRIu64 ": %s", begin, strerror(-r));
	while (num < TAIL_MAX && log->next.off < end && decode_entry(log, &e, NULL) > 0)
		num++;
	*ret_bytes = end - begin;
	*ret_entries = num;
	return 0;
}

int bblog_mended_header(struct bblog *log, uint64_t num, void *buf, size_t cap, struct cistern_error *err)
{
	uint64_t len = log->h->begin;
	const uint8_t *p;
	int r;

	if (len > cap)
		return cistern_error_set(err, -ENOSPC, "the header is larger than %zu bytes", cap);
	r = bbstream_look(&log->in, 0, len, &p);
	if (r < 0)
		return cistern_error_set(err, r, "reading the header: %s", strerror(-r));
	memcpy(buf, p, (size_t)len);
	put64((uint8_t *)buf + FIELD_COUNT, num, log->h->big_endian);
	put64((uint8_t *)buf + FIELD_BEGIN, len, log->h->big_endian);
	return (int)len;
}

/* ---- names */

const char *bblog_layout_name(enum bblog_layout layout)
{
	static const char *const names[] = {
		[BBLOG_L0] = "PnetCDF 1.11.0 to 1.12.2",
		[BBLOG_L1] = "PnetCDF 1.12.3",
		[BBLOG_L2] = "PnetCDF 1.13.0 or later",
	};

	return names[layout];
}

const char *bblog_type_name(enum bblog_type type)
{
	static const char *const names[] = { "?", "text", "schar", "uchar", "short", "ushort", "int", "uint", "float",
		"double", "longlong", "ulonglong", "native", "long" };

	return (uint32_t)type < sizeof(names) / sizeof(names[0]) ? names[type] : "?";
}

const char *bblog_kind_name(int32_t kind)
{
	static const char *const names[] = { "?", "var", "var1", "vara", "vars" };

	return kind > 0 ? "varn" : kind >= BBLOG_VARS ? names[-kind] : "?";
}
