/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Deals from anybody's bytes. A checksum stands behind them, which no mutation would meet, so it is put there. What decodes
 * encodes to the same again, and what is made of two of them is a plan or a reason.
 */
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "format/base/crc32c.h"
#include "mpi-agent/plan/unite.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void demand(bool condition)
{
	if (!condition)
		abort();
}

static void round_trip(const struct deal *d)
{
	struct buf first = { 0 }, second = { 0 };
	struct deal again = { 0 };

	demand(deal_encode(d, &first) == 0);
	demand(deal_decode(first.data, first.len, &again) == 0);
	demand(deal_encode(&again, &second) == 0);
	demand(first.len == second.len && memcmp(first.data, second.data, first.len) == 0);
	deal_free(&again);
	buf_free(&first);
	buf_free(&second);
}

/* A header with as many variables as the deal tells of, if these are few. */
static void try_unite(const struct deal *d)
{
	static const struct classic_align align = { .header = 4 };
	struct deal deals[2] = { *d, { .node = 1 } };
	static const uint32_t dims[] = { 0, 1 };
	char why[DEAL_WHY] = "", name[16] = "v0";
	struct classic header;
	struct unite_plan p;
	int r;

	if (d->num_vars == 0 || d->num_vars > 9)
		return;
	classic_init(&header, 5);
	classic_add_dim(&header, "time", 0, NULL);
	classic_add_dim(&header, "col", 3, NULL);
	for (uint32_t i = 0; i < d->num_vars; i++) {
		name[1] = (char)('0' + i);
		classic_add_var(&header, name, CLASSIC_INT, 2 - i % 2, dims, NULL);
	}
	header.num_records = 2;
	demand(classic_finish(&header, NULL) == 0 && classic_assign(&header, &align) == 0);
	deals[1].num_vars = d->num_vars;
	deals[1].vars = calloc(d->num_vars, sizeof(*deals[1].vars));
	r = unite(deals, 2, &header, 4, &p, why);
	demand(r == 0 || (r == -EOPNOTSUPP && why[0]) || r == -ENOMEM);
	if (r == 0)
		unite_free(&p);
	free(deals[1].vars);
	classic_destroy(&header);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct buf bytes = { 0 };
	struct deal d = { 0 };

	buf_bytes(&bytes, data, size);
	buf_u32(&bytes, crc32c(0, data, size));
	if (buf_ok(&bytes) && deal_decode(bytes.data, bytes.len, &d) == 0) {
		round_trip(&d);
		try_unite(&d);
		deal_free(&d);
	}
	buf_free(&bytes);
	return 0;
}
