/* SPDX-License-Identifier: GPL-3.0-or-later */
/* Decompression is ISA-L's, which is there for checksums anyway; its state is too large for a stack. */
#include "format/base/inflate.h"

#include <errno.h>
#include <isa-l.h>
#include <stdlib.h>

int inflate_zlib(const void *in, size_t in_len, void *out, size_t out_len)
{
	struct inflate_state *s;
	int r;

	if (in_len > UINT32_MAX || out_len > UINT32_MAX)
		return -EBADMSG;
	s = malloc(sizeof(*s));
	if (!s)
		return -ENOMEM;
	isal_inflate_init(s);
	s->crc_flag = ISAL_ZLIB;
	s->next_in = (uint8_t *)in; /* is only read */
	s->avail_in = (uint32_t)in_len;
	s->next_out = out;
	s->avail_out = (uint32_t)out_len;
	r = isal_inflate_stateless(s) == ISAL_DECOMP_OK && s->avail_out == 0 ? 0 : -EBADMSG;
	free(s);
	return r;
}
