/* SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef FORMAT_BASE_INFLATE_H
#define FORMAT_BASE_INFLATE_H

#include <stddef.h>

/*
 * The bytes of a zlib stream (RFC 1950), which must be exactly out_len, in one go. 0; -EBADMSG: it is no such stream, its
 * checksum is wrong, or it has more or fewer bytes; -ENOMEM. Never writes past out + out_len, which may be rubbish on failure.
 */
int inflate_zlib(const void *in, size_t in_len, void *out, size_t out_len);

#endif
