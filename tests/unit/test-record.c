/* SPDX-License-Identifier: GPL-3.0-or-later */
/* Records: round trips of every type, and that nothing but what was written is read. */
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "format/base/crc32c.h"
#include "format/journal/record.h"
#include "tests/lib/record_samples.h"
#include "tests/lib/tap.h"

static const struct record *samples;
static size_t num_samples;

/* Decodes from a buffer of exactly len bytes, so that the sanitizers see a read past the end. */
static int decode_copy(const uint8_t *bytes, size_t len, struct record_scratch *s, struct record *rec, size_t *used)
{
	uint8_t *copy = malloc(len ? len : 1);
	int r;

	memcpy(copy, bytes, len);
	r = record_decode(copy, len, s, rec, used);
	free(copy);
	return r;
}

static void round_trips(void)
{
	BUF_CLEANUP struct buf out = { 0 };
	struct record_scratch s = { 0 };
	bool seen[RECORD_TYPE_END] = { false };
	size_t used;

	for (size_t i = 0; i < num_samples; i++) {
		struct record rec = samples[i], got;

		rec.seq = i + 1;
		seen[rec.type] = true;
		buf_reset(&out);
		buf_bytes(&out, "odd", 3); /* what stands before is not looked at, aligned or not */
		if (!is_int(record_encode(&rec, &out), 0, record_type_name(rec.type)))
			continue;
		ok((out.len - 3) % 8 == 0, "%s is padded", record_type_name(rec.type));
		memset(&got, 0xee, sizeof(got));
		is_int(record_decode(out.data + 3, out.len - 3, &s, &got, &used), 0, "decodes");
		ok(used == out.len - 3 && record_equal(&rec, &got), "%s comes back", record_type_name(rec.type));
	}
	for (int type = 1; type < RECORD_TYPE_END; type++)
		ok(seen[type], "there is a sample of %s", record_type_name(type));
	record_scratch_free(&s);
}

static void damage(void)
{
	BUF_CLEANUP struct buf out = { 0 };
	struct record_scratch s = { 0 };
	struct record got;
	size_t used, bad = 0, accepted = 0;

	for (size_t i = 0; i < num_samples; i++) {
		buf_reset(&out);
		if (record_encode(&samples[i], &out))
			bad++;
		for (size_t at = 0; at < out.len; at++)
			for (int bit = 0; bit < 8; bit++) {
				out.data[at] ^= (uint8_t)(1 << bit);
				accepted += record_decode(out.data, out.len, &s, &got, &used) != -EBADMSG;
				out.data[at] ^= (uint8_t)(1 << bit);
			}
		for (size_t len = 1; len < out.len; len++)
			accepted += decode_copy(out.data, len, &s, &got, &used) != -EBADMSG;
	}
	is_u64(bad, 0, "samples encode");
	is_u64(accepted, 0, "flipped bits and cut records that were taken");
	record_scratch_free(&s);
}

/* Changes a byte and makes the CRC right again: what must be refused for what it says. */
static int decode_forged(struct buf *b, size_t at, uint8_t value, size_t len)
{
	struct record_scratch s = { 0 };
	struct record got;
	uint8_t before = b->data[at];
	size_t used;
	int r;

	b->data[at] = value;
	buf_poke_u32(b, 4, 0);
	buf_poke_u32(b, 4, crc32c(0, b->data, len));
	r = decode_copy(b->data, len, &s, &got, &used);
	b->data[at] = before;
	record_scratch_free(&s);
	return r;
}

static void forgeries(void)
{
	struct record rec = { .type = RECORD_UNLINK, .seq = 1, .parent = 1, .name = "abc" };
	BUF_CLEANUP struct buf out = { 0 };
	struct record_scratch s = { 0 };
	struct record got;
	uint8_t zeros[128] = { 0 };
	size_t used;

	is_int(record_encode(&rec, &out), 0, "encodes");
	is_int(decode_forged(&out, 12, RECORD_UNLINK, out.len), 0, "nothing changed");
	is_int(decode_forged(&out, 12, 0, out.len), -EBADMSG, "type 0");
	is_int(decode_forged(&out, 12, RECORD_TYPE_END, out.len), -EBADMSG, "type too high");
	is_int(decode_forged(&out, 13, 0, out.len), -EBADMSG, "version 0");
	is_int(decode_forged(&out, 13, 2, out.len), -EBADMSG, "version 2 of what is of version 1");
	is_int(decode_forged(&out, 13, 3, out.len), -EBADMSG, "version 3 of what nobody wrote");
	is_int(decode_forged(&out, 13, 4, out.len), -EBADMSG, "version 4 of what has no write time");
	is_int(decode_forged(&out, 13, 5, out.len), -EBADMSG, "version 5 of what was not drained");
	is_int(decode_forged(&out, 13, 6, out.len), -EBADMSG, "version 6 of what has no trailer");
	is_int(decode_forged(&out, 13, 7, out.len), -EPROTONOSUPPORT, "version 7");
	is_int(decode_forged(&out, 14, 1, out.len), -EBADMSG, "a flag that unlink does not have");
	is_int(decode_forged(&out, 55, 1, out.len), -EBADMSG, "reserved");
	is_int(decode_forged(&out, 64, 2, out.len), -EBADMSG, "name shorter than its bytes");
	is_int(decode_forged(&out, 64, 200, out.len), -EBADMSG, "name longer than the record");
	is_int(decode_forged(&out, 66, '/', out.len), -EBADMSG, "slash in a name");
	is_int(decode_forged(&out, 67, 0, out.len), -EBADMSG, "NUL in a name");
	is_int(decode_forged(&out, out.len - 1, 1, out.len), -EBADMSG, "padding");
	is_int(record_decode(zeros, sizeof(zeros), &s, &got, &used), -ENODATA, "zeros");
	is_int(record_decode(zeros, 1, &s, &got, &used), -ENODATA, "one zero");
	is_int(record_decode(zeros, 0, &s, &got, &used), -ENODATA, "nothing");
	zeros[40] = 1;
	is_int(record_decode(zeros, sizeof(zeros), &s, &got, &used), -EBADMSG, "zeros and then something");
}

/* Offsets 12: type, 13: version, 14 and 15: flags, 56: body. */
static void forged_stamps(void)
{
	struct record rec = { .type = RECORD_FREE, .seq = 1, .stamp = 5 };
	struct record_piece hole = { .off = 1, .len = 2, .kind = 1 };
	BUF_CLEANUP struct buf out = { 0 };

	is_int(record_encode(&rec, &out), 0, "a stamp alone encodes");
	ok(out.len == 64 && out.data[13] == 2 && out.data[14] == RECORD_F_STAMPED, "with its flag, as version 2");
	is_int(decode_forged(&out, 13, 1, out.len), -EBADMSG, "which version 1 does not have");
	is_int(decode_forged(&out, 56, 0, out.len), -EBADMSG, "a stamp of 0");
	is_int(decode_forged(&out, 14, 0, out.len), -EBADMSG, "a stamp without its flag");
	is_int(decode_forged(&out, 12, RECORD_UNMOUNT, out.len), -EBADMSG, "a stamp on a type that has none");
	buf_reset(&out);
	rec = (struct record){
		.type = RECORD_SHARE_PUT, .seq = 1, .stamp = 5, .base = 4, .pieces = &hole, .num_pieces = 1
	};
	is_int(record_encode(&rec, &out), 0, "a share-put encodes");
	is_int(decode_forged(&out, 13, 1, out.len), -EBADMSG, "and is of version 2");
	is_int(decode_forged(&out, 56, 4, out.len), -EBADMSG, "its base is below its stamp");
	is_int(decode_forged(&out, 72, 0, out.len), -EBADMSG, "it has pieces");
	is_int(decode_forged(&out, 77, 0, out.len), -EBADMSG, "of some length");
	is_int(decode_forged(&out, 78, 2, out.len), -EBADMSG, "log or hole");
	is_int(decode_forged(&out, 78, 0x81, out.len), -EBADMSG, "a hole has no CRC");
}

/* A record of version 6 whose trailer is these bytes, made from one without. */
static int decode_with_trailer(
	const struct record *rec, const void *trailer, size_t len, struct record_scratch *s, struct record *got)
{
	BUF_CLEANUP struct buf out = { 0 };
	size_t used = 0, body;
	int r;

	is_int(record_encode(rec, &out), 0, "encodes");
	for (body = out.len; body > RECORD_HEADER_BYTES && !out.data[body - 1];)
		body--;
	out.len = body;
	buf_bytes(&out, trailer, len);
	buf_zeros(&out, (8 - out.len % 8) % 8);
	out.data[13] = 6;
	buf_poke_u32(&out, 8, (uint32_t)out.len);
	buf_poke_u32(&out, 4, 0);
	buf_poke_u32(&out, 4, crc32c(0, out.data, out.len));
	r = record_decode(out.data, out.len, s, got, &used);
	ok(used == out.len, "as long as it is, understood or not");
	return r;
}

/* What a later program may add: an optional field is stepped over, a required one keeps who does not know it away. */
static void unknown_fields(void)
{
	static const uint8_t optional[] = { 0x80, 0x08, 0, 3, 1, 2, 3 }, required[] = { 0x80, 0x08, 1, 0 },
			     flag[] = { 0x80, 0x08, 2, 0 }, twice[] = { 9, 0, 0, 9, 0, 0 },
			     falling[] = { 9, 0, 0, 8, 0, 0 }, past[] = { 9, 0, 200 },
			     huge[] = { 0x80, 0x80, 0x04, 0, 0 };
	static const uint8_t between[] = { 1, 0, 20, 7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0, 99, 0,
		1, 42 };
	struct record rec = { .type = RECORD_UNLINK, .seq = 77, .parent = 1, .name = "abc" }, got;
	struct record_scratch s = { 0 };

	is_int(decode_with_trailer(&rec, optional, sizeof(optional), &s, &got), 0,
		"an optional field that is not known");
	ok(record_equal(&rec, &got) && got.trailer->num_skipped == 1, "is stepped over");
	is_int(decode_with_trailer(&rec, between, sizeof(between), &s, &got), 0, "one behind one that is known");
	ok(got.trailer->has == RECORD_HAS(RECORD_TAG_REQUEST) && got.trailer->unique == 7 &&
			got.trailer->answer_ino == 5,
		"of which nothing is lost");
	is_int(decode_with_trailer(&rec, required, sizeof(required), &s, &got), -EPROTONOSUPPORT, "a required one");
	ok(got.trailer->unknown == 1024 && got.seq == 77 && got.type == RECORD_UNLINK,
		"is named, and the header is read");
	is_int(decode_with_trailer(&rec, flag, sizeof(flag), &s, &got), -EPROTONOSUPPORT, "a flag that is not known");
	is_int(s.trailer.unknown, 1024, "the field that has it is named");
	is_int(decode_with_trailer(&rec, twice, sizeof(twice), &s, &got), -EBADMSG, "a tag twice");
	is_int(decode_with_trailer(&rec, falling, sizeof(falling), &s, &got), -EBADMSG, "falling tags");
	is_int(decode_with_trailer(&rec, past, sizeof(past), &s, &got), -EBADMSG, "a field longer than the record");
	is_int(decode_with_trailer(&rec, huge, sizeof(huge), &s, &got), -EBADMSG, "a tag beyond the last one");
	is_int(decode_with_trailer(&rec, between, 10, &s, &got), -EBADMSG, "a cut field");
	record_scratch_free(&s);
}

static int encode_once(const struct record *rec);

/* What a trailer says has to fit the record. */
static void unfit_trailers(void)
{
	struct record_copy copy = { .segment = 1, .len = 1 };
	struct record_trailer t = { .has = RECORD_HAS(RECORD_TAG_REQUEST) };
	struct record rec = { .type = RECORD_FREE, .trailer = &t };

	is_int(encode_once(&rec), -EINVAL, "a request without a number");
	t.unique = 1;
	is_int(encode_once(&rec), 0, "with one");
	t.answer_error = 4096;
	is_int(encode_once(&rec), -EINVAL, "an answer that is no error number");
	t.answer_error = 2;
	t.answer_ino = 3;
	is_int(encode_once(&rec), -EINVAL, "an error that found an inode");
	t = (struct record_trailer){ .has = RECORD_HAS(RECORD_TAG_REQUEST), .unique = 1 };
	rec.type = RECORD_UNMOUNT;
	is_int(encode_once(&rec), -EINVAL, "nobody asked for that");
	rec = (struct record){ .type = RECORD_CREATE, .parent = 1, .name = "p", .mode = S_IFIFO | 0600 };
	is_int(encode_once(&rec), -EINVAL, "a FIFO without a device field");
	rec.trailer = &t;
	t = (struct record_trailer){ .has = RECORD_HAS(RECORD_TAG_DEVICE), .dev_minor = 1 };
	is_int(encode_once(&rec), -EINVAL, "or with a number");
	rec.mode = S_IFREG | 0600;
	is_int(encode_once(&rec), -EINVAL, "a file with a device field");
	rec.mode = S_IFCHR | 0600;
	is_int(encode_once(&rec), 0, "a device node with it");
	rec = (struct record){ .type = RECORD_SETATTR, .mask = RECORD_ATTR_ATIME, .trailer = &t };
	t = (struct record_trailer){
		.has = RECORD_HAS(RECORD_TAG_TIMES), .wide_mask = RECORD_ATTR_MTIME, .wide = { { 0 }, { 0 }, { 0 } }
	};
	is_int(encode_once(&rec), -EINVAL, "a time that is not set");
	t.wide_mask = RECORD_ATTR_ATIME;
	t.wide[0].tv_sec = 1;
	is_int(encode_once(&rec), -EINVAL, "a time unlike the record's own");
	t = (struct record_trailer){ .has = RECORD_HAS(RECORD_TAG_COPIES), .copies = &copy, .num_copies = 1 };
	rec = (struct record){ .type = RECORD_SYNC, .trailer = &t };
	is_int(encode_once(&rec), 0, "a copy");
	copy.off = INT64_MAX;
	is_int(encode_once(&rec), -EINVAL, "beyond the end of all segments");
	t.num_copies = 0;
	is_int(encode_once(&rec), -EINVAL, "no copies");
	t.has = RECORD_HAS(RECORD_TAG_END);
	is_int(encode_once(&rec), -EINVAL, "a field that there is not");
}

/* Records without a trailer are as long as they always were. */
static void no_more_bytes(void)
{
	struct record_trailer none = { 0 };
	struct record rec = { .type = RECORD_UNMOUNT };
	BUF_CLEANUP struct buf out = { 0 };

	ok(!record_encode(&rec, &out) && out.len == RECORD_HEADER_BYTES && out.data[13] == 1, "no trailer, no bytes");
	buf_reset(&out);
	rec.trailer = &none;
	ok(!record_encode(&rec, &out) && out.len == RECORD_HEADER_BYTES && out.data[13] == 1,
		"nor with one that says nothing");
}

static int encode_once(const struct record *rec)
{
	BUF_CLEANUP struct buf out = { 0 };
	int r = record_encode(rec, &out);

	if (r)
		ok(out.len == 0, "nothing is left behind");
	return r;
}

static void refusals(void)
{
	struct record_range range = { .off = INT64_MAX, .len = 1 }, empty = { 0 };
	static uint8_t big[RECORD_MAX_BYTES + 1];
	struct record rec = { .type = RECORD_UNLINK, .parent = 1 };

	is_int(encode_once(&(struct record){ 0 }), -EINVAL, "no type");
	is_int(encode_once(&(struct record){ .type = RECORD_TYPE_END }), -EINVAL, "unknown type");
	is_int(encode_once(&rec), -EINVAL, "no name");
	strcpy(rec.name, "..");
	is_int(encode_once(&rec), -EINVAL, "..");
	strcpy(rec.name, ".");
	is_int(encode_once(&rec), -EINVAL, ".");
	memset(rec.name, 'x', sizeof(rec.name));
	is_int(encode_once(&rec), -ENAMETOOLONG, "name without end");
	rec = (struct record){ .type = RECORD_WRITE, .off = 0, .len = 0, .segment = 1 };
	is_int(encode_once(&rec), -EINVAL, "write of nothing");
	rec.len = 1;
	rec.segment = 0;
	is_int(encode_once(&rec), -EINVAL, "write into no segment");
	rec.segment = 1;
	rec.off = INT64_MAX;
	is_int(encode_once(&rec), -EINVAL, "write past the largest offset");
	rec = (struct record){ .type = RECORD_EXTENTS, .segment = 1, .ranges = &range, .num_ranges = 0 };
	is_int(encode_once(&rec), -EINVAL, "no extents");
	rec.num_ranges = 1;
	is_int(encode_once(&rec), -EINVAL, "extent past the largest offset");
	rec.ranges = &empty;
	is_int(encode_once(&rec), -EINVAL, "empty extent");
	rec.num_ranges = RECORD_EXTENTS_MAX + 1;
	is_int(encode_once(&rec), -E2BIG, "too many extents");
	rec = (struct record){ .type = RECORD_SETXATTR, .key = big, .key_len = 0 };
	is_int(encode_once(&rec), -EINVAL, "xattr without name");
	rec = (struct record){
		.type = RECORD_SETXATTR, .key = (const uint8_t *)"a", .key_len = 1, .value = big, .value_len = 65536
	};
	is_int(encode_once(&rec), -E2BIG, "xattr too long");
	rec = (struct record){
		.type = RECORD_CREATE, .target = (const char *)big, .target_len = RECORD_TARGET_MAX + 1
	};
	is_int(encode_once(&rec), -ENAMETOOLONG, "target too long");
	rec = (struct record){ .type = RECORD_STATE,
		.key = big,
		.key_len = 1,
		.value = big,
		.len = RECORD_MAX_BYTES,
		.value_len = RECORD_MAX_BYTES };
	is_int(encode_once(&rec), -E2BIG, "record too long");
	rec = (struct record){ .type = RECORD_CREATE, .flags = RECORD_F_TREE };
	is_int(encode_once(&rec), -EINVAL, "change of the tree without a number");
	rec = (struct record){ .type = RECORD_WRITE, .flags = RECORD_F_TREE, .len = 1, .segment = 1, .stamp = 1 };
	is_int(encode_once(&rec), -EINVAL, "a write is no change of the tree");
	rec = (struct record){ .type = RECORD_COMMITTED };
	is_int(encode_once(&rec), -EINVAL, "commit without a stamp");
	rec = (struct record){ .type = RECORD_UNMOUNT, .flags = 1u << 16 };
	is_int(encode_once(&rec), -EINVAL, "flag that does not fit");
	is_str(record_type_name(RECORD_TYPE_END), "?", "unknown type's name");
}

static void largest_vector(void)
{
	struct record_range *ranges = calloc(RECORD_EXTENTS_MAX, sizeof(*ranges));
	struct record rec = { .type = RECORD_EXTENTS,
		.segment = 1,
		.ranges = ranges,
		.num_ranges = RECORD_EXTENTS_MAX },
		      got;
	BUF_CLEANUP struct buf out = { 0 };
	struct record_scratch s = { 0 };
	size_t used;

	for (size_t i = 0; i < RECORD_EXTENTS_MAX; i++)
		ranges[i] = (struct record_range){
			.off = i % 2 ? 0 : INT64_MAX - UINT32_MAX, .len = UINT32_MAX, .crc = (uint32_t)i
		};
	is_int(record_encode(&rec, &out), 0, "the largest vector encodes");
	is_int(record_decode(out.data, out.len, &s, &got, &used), 0, "and decodes");
	ok(record_equal(&rec, &got), "and is the same");
	record_scratch_free(&s);
	free(ranges);
}

/* ---- tests/fuzz/corpus/record: the bytes of version 1, and records that must be refused */

#define CORPUS "tests/fuzz/corpus/record"

static size_t read_corpus(const char *name, uint8_t *bytes, size_t cap)
{
	const char *top = getenv("top_srcdir");
	char path[1024];
	size_t len = 0;
	FILE *in;

	snprintf(path, sizeof(path), "%s/" CORPUS "/%s", top ? top : ".", name);
	in = fopen(path, "rb");
	if (in) {
		len = fread(bytes, 1, cap, in);
		fclose(in);
	}
	return len;
}

static void golden_bytes(void)
{
	BUF_CLEANUP struct buf out = { 0 };
	uint8_t bytes[4096];
	char name[64];

	for (size_t i = 0; i < num_samples; i++) {
		struct record rec = samples[i];
		size_t len;

		rec.seq = i + 1;
		buf_reset(&out);
		snprintf(name, sizeof(name), "good-%02zu-%s", i, record_type_name(rec.type));
		len = read_corpus(name, bytes, sizeof(bytes));
		ok(!record_encode(&rec, &out) && len == out.len && memcmp(bytes, out.data, len) == 0, "bytes of %s",
			name);
	}
}

static void must_fail(void)
{
	const char *top = getenv("top_srcdir");
	struct record_scratch s = { 0 };
	struct dirent *entry;
	struct record rec;
	uint8_t bytes[4096];
	char path[1024];
	size_t used;
	DIR *dir;

	snprintf(path, sizeof(path), "%s/" CORPUS, top ? top : ".");
	dir = opendir(path);
	ok(dir != NULL, "%s", path);
	while (dir && (entry = readdir(dir)))
		if (strncmp(entry->d_name, "bad-", 4) == 0) {
			size_t len = read_corpus(entry->d_name, bytes, sizeof(bytes));

			ok(len > 0 && decode_copy(bytes, len, &s, &rec, &used) < 0, "%s is refused", entry->d_name);
		}
	if (dir)
		closedir(dir);
	record_scratch_free(&s);
}

int main(void)
{
	num_samples = record_samples(&samples);
	round_trips();
	damage();
	forgeries();
	forged_stamps();
	unknown_fields();
	unfit_trailers();
	no_more_bytes();
	refusals();
	largest_vector();
	golden_bytes();
	must_fail();
	return done_testing();
}
