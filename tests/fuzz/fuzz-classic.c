/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Classic headers from anybody's bytes: what decodes encodes to bytes that decode to the same, to the very same bytes where
 * the decoder says so; places of elements lie in the file that the header defines; and a shorter input never decodes.
 */
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "format/codec/classic.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void demand(bool condition)
{
	if (!condition)
		abort();
}

static void check_places(const struct classic *c)
{
	uint64_t end = classic_file_bytes(c);

	demand(end <= CLASSIC_BYTES_MAX);
	for (uint32_t i = 0; i < c->num_vars; i++) {
		const struct classic_var *v = &c->vars[i];
		uint64_t records = v->is_record ? c->num_records : 1;
		uint8_t fill[CLASSIC_TYPE_BYTES];

		demand(classic_var_fill(v, fill) == classic_type_bytes(v->type));
		demand(v->begin >= c->header_bytes && v->elements > 0);
		if (records > 0)
			demand(classic_offset(c, v, records - 1, v->elements - 1) < end + 4);
	}
	demand(classic_count_records(c, end) >= (c->num_record_vars > 0 ? c->num_records : 0));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct classic c = { 0 }, again = { 0 };
	struct buf out = { 0 }, second = { 0 };
	struct cistern_error err = { 0 };

	if (classic_decode(data, size, &c, &err) < 0) {
		demand(err.code < 0 && err.text[0]);
		return 0;
	}
	demand(classic_encode(&c, &out) == 0 && out.len + c.slack == c.header_bytes && c.header_bytes <= size);
	demand(!c.exact || memcmp(out.data, data, out.len) == 0);
	demand(classic_decode(out.data, out.len, &again, NULL) == 0 && again.exact);
	demand(classic_decode(out.data, out.len - 1, &again, NULL) == -ENODATA);
	demand(classic_encode(&again, &second) == 0);
	demand(second.len == out.len && memcmp(second.data, out.data, out.len) == 0);
	check_places(&c);
	classic_destroy(&c);
	classic_destroy(&again);
	buf_free(&out);
	buf_free(&second);
	return 0;
}
