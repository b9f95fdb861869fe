/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * A record from anybody: as it is, and with frame and CRC made right, so that the fields are reached. What is taken must
 * be written again, and be the same when it is read then.
 */
#include <stdlib.h>
#include <string.h>

#include "format/base/crc32c.h"
#include "format/journal/record.h"
#include "tests/lib/record_samples.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Of what is not known nothing is written again. */
static bool skipped(const struct record *rec)
{
	return rec->trailer && rec->trailer->num_skipped > 0;
}

static void decode_twice(const uint8_t *data, size_t size)
{
	struct record_scratch first = { 0 }, second = { 0 };
	struct record rec, again;
	struct buf out = { 0 };
	size_t used;

	if (record_decode(data, size, &first, &rec, &used) == 0) {
		if (used > size || used % 8)
			abort();
		if (record_encode(&rec, &out) || record_decode(out.data, out.len, &second, &again, &used))
			abort();
		if ((used != out.len && !skipped(&rec)) || !record_equal(&rec, &again))
			abort();
	}
	buf_free(&out);
	record_scratch_free(&first);
	record_scratch_free(&second);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct buf fixed = { 0 };

	decode_twice(data, size);
	if (size < RECORD_HEADER_BYTES)
		return 0;
	buf_bytes(&fixed, data, size);
	buf_zeros(&fixed, (8 - size % 8) % 8);
	if (!buf_ok(&fixed))
		return 0;
	memcpy(fixed.data, "CJR1\0\0\0", 8);
	buf_poke_u32(&fixed, 8, (uint32_t)fixed.len);
	buf_poke_u32(&fixed, 4, crc32c(0, fixed.data, fixed.len));
	decode_twice(fixed.data, fixed.len);
	buf_free(&fixed);
	return 0;
}
