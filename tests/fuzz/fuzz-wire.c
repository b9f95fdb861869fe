/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Frames from anybody: the header as it is, then the rest as a body whose length and CRC are made right, so that the
 * fields are reached by every getter.
 */
#include <stdlib.h>
#include <string.h>

#include "format/base/crc32c.h"
#include "format/wire/frame.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void get_all(const struct wire_msg *m)
{
	const uint8_t *p;
	char text[64];
	uint64_t u;
	int64_t i;
	size_t len;

	for (unsigned int tag = 0; tag < 80; tag++) {
		(void)wire_get_u64(m, tag, &u);
		(void)wire_get_i64(m, tag, &i);
		for (unsigned int n = 0; n < 3; n++) {
			if (wire_get_bytes(m, tag, n, &p, &len) &&
				(p < m->body.data || p + len > m->body.data + m->body.len))
				abort();
			if (wire_get_str(m, tag, n, text, sizeof(text)) && strlen(text) >= sizeof(text))
				abort();
		}
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct wire_header h;
	struct wire_msg m = { 0 };

	if (size < WIRE_HEADER_BYTES)
		return 0;
	if (wire_decode_header(data, &h) == 0)
		(void)wire_check_body(&h, data + WIRE_HEADER_BYTES, size - WIRE_HEADER_BYTES);
	h.len = (uint32_t)(size - WIRE_HEADER_BYTES);
	h.crc = crc32c(0, data + WIRE_HEADER_BYTES, h.len);
	(void)wire_check_body(&h, data + WIRE_HEADER_BYTES, h.len);
	buf_bytes(&m.body, data + WIRE_HEADER_BYTES, h.len);
	if (buf_ok(&m.body))
		get_all(&m); /* also when the check fails: the getters trust nobody */
	wire_msg_free(&m);
	return 0;
}
