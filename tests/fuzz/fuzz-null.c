/* SPDX-License-Identifier: GPL-3.0-or-later */
/* Headers of the null format from anybody: what decodes lies behind its header, and has a layout. */
#include <stdlib.h>

#include "format/codec/null.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void demand(bool condition)
{
	if (!condition)
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct layout l LAYOUT_CLEANUP = { 0 };
	struct null_header h;

	if (null_decode(data, size, &h, NULL) < 0)
		return 0;
	demand(h.begin <= size && h.element_bytes > 0 && h.name[0]);
	demand(null_layout(&h, size, &l) == 0 && l.num_objects == 2 && l.file_bytes >= h.begin);
	return 0;
}
