/* SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef FORMAT_WIRE_FRAME_H
#define FORMAT_WIRE_FRAME_H

/* Frames as bytes, without a socket. */

#include "format/wire/wire.h"

#define WIRE_VERSION      1u
#define WIRE_HEADER_BYTES 16u

struct wire_header {
	uint16_t type;
	uint32_t len; /* of the body, bytes */
	uint32_t crc; /* of the body, CRC32C */
};

void wire_encode_header(const struct wire_msg *m, uint8_t out[WIRE_HEADER_BYTES]);
/* 0; -EBADMSG: no header; -EPROTONOSUPPORT: of a newer version; -E2BIG: body longer than WIRE_MAX_BYTES. */
int wire_decode_header(const uint8_t in[WIRE_HEADER_BYTES], struct wire_header *ret);
/* Is the body whole (length, CRC), and a run of fields? 0 or -EBADMSG. */
int wire_check_body(const struct wire_header *h, const uint8_t *body, size_t len);

#endif
