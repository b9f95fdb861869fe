/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "format/codec/bbruns.h"

#include <stdlib.h>

#include "format/base/array.h"

void bbruns_init(struct bbruns *r, uint64_t memory_bytes)
{
	*r = (struct bbruns){ .max = (size_t)(memory_bytes / sizeof(struct bbruns_run)) };
}

void bbruns_free(struct bbruns *r)
{
	free(r->runs);
	*r = (struct bbruns){ 0 };
}

bool bbruns_keep(struct bbruns *r, uint64_t base, uint64_t off, uint64_t num)
{
	int64_t at = (int64_t)(off - base); /* both are below CLASSIC_BYTES_MAX */

	if (r->num == r->max || num > UINT32_MAX || at < INT32_MIN || at > INT32_MAX)
		return false;
	if (array_room(&r->runs, &r->cap, r->num, sizeof(*r->runs)) < 0)
		return false;
	r->runs[r->num++] = (struct bbruns_run){ .at = (int32_t)at, .num = (uint32_t)num };
	return true;
}
