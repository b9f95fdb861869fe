/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Superblocks from anybody. The input is decoded as it is, and again with its CRC made right, so that the fields are
 * reached; what decodes must encode to the same bytes.
 */
#include <stdlib.h>
#include <string.h>

#include "format/base/crc32c.h"
#include "format/store/superblock.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void decode(const uint8_t *data, size_t size)
{
	struct buf out BUF_CLEANUP = { 0 };
	struct superblock sb;

	if (superblock_decode(data, size, &sb, NULL) != 0)
		return;
	if (superblock_encode(&sb, &out) != 0 || out.len != size || memcmp(out.data, data, size) != 0)
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	uint8_t *copy;
	uint32_t crc;

	decode(data, size);
	if (size < 20)
		return 0;
	copy = malloc(size);
	if (!copy)
		return 0;
	memcpy(copy, data, size);
	memset(copy + 16, 0, 4);
	crc = crc32c(0, copy, size);
	for (int i = 0; i < 4; i++)
		copy[16 + i] = (uint8_t)(crc >> (8 * i));
	decode(copy, size);
	free(copy);
	return 0;
}
