/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * What nodes tell each other of a drain, from anybody's bytes: lists of shared files and totals. What decodes encodes to the same again,
 * what does not leaves a list as it was.
 */
#include <stdlib.h>
#include <string.h>

#include "format/manifest/manifest.h"
#include "format/wire/shared.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void demand(bool condition)
{
	if (!condition)
		abort();
}

static void demand_bytes(const struct buf *out, const uint8_t *data, size_t size)
{
	demand(out->len == size && (size == 0 || memcmp(out->data, data, size) == 0));
}

static void try_list(const uint8_t *data, size_t size)
{
	struct wire_shared one = { .ino = 7, .path = (char *)"a", .shown = (char *)"b" };
	struct wire_shared_list list = { 0 }, kept = { 0 };
	struct buf out = { 0 };

	demand(wire_shared_add(&kept, &one) == 0);
	if (wire_shared_decode(data, size, &list) < 0) {
		demand(list.num == 0 && list.bytes == 0);
		demand(wire_shared_decode(data, size, &kept) < 0 && kept.num == 1 && wire_shared_find(&kept, 7));
	} else {
		wire_shared_encode(&list, &out);
		demand_bytes(&out, data, size);
		demand(list.bytes == size);
		demand(wire_shared_decode(data, size, &kept) < 0 || kept.num == list.num + 1);
	}
	wire_shared_free(&list);
	wire_shared_free(&kept);
	buf_free(&out);
}

static void try_totals(const uint8_t *data, size_t size)
{
	struct manifest_totals totals;
	struct buf out = { 0 };

	if (manifest_totals_decode(data, size, &totals) < 0)
		return;
	manifest_totals_encode(&totals, &out);
	demand_bytes(&out, data, size);
	buf_free(&out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	try_list(data, size);
	try_totals(data, size);
	return 0;
}
