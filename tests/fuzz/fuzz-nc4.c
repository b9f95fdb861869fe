/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Classic files from anybody, and chunks that anybody wishes: a length byte, so many bytes of the setting, then the file. What
 * has a shape is gathered, chunk by chunk; no value may come from beyond the file's end or go beyond the chunk's.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "mpi-agent/nc4/pack.h"
#include "mpi-agent/nc4/shape.h"

#define CHUNKS_MAX      256
#define CHUNK_BYTES_MAX (4u << 20)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_box(const struct nc4_shape *s, uint32_t var, uint64_t chunk)
{
	uint64_t start[NC4_RANK_MAX], count[NC4_RANK_MAX];

	nc4_chunk_box(&s->vars[var], s->c->vars[var].num_dims, chunk, start, count);
	for (uint32_t d = 0; d < s->c->vars[var].num_dims; d++)
		if (count[d] == 0 || start[d] + count[d] > s->vars[var].dims[d])
			abort();
}

static void gather(const struct nc4_shape *s, uint32_t var, const uint8_t *file)
{
	uint8_t *out;

	if (s->vars[var].chunk_bytes > CHUNK_BYTES_MAX)
		return;
	out = malloc(s->vars[var].chunk_bytes); /* exactly: who goes beyond is found out */
	for (uint64_t i = 0; out && i < s->vars[var].num_chunks && i < CHUNKS_MAX; i++) {
		check_box(s, var, i);
		pack_gather(s, var, i, file, out);
	}
	free(out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char chunk[256] = "";
	struct nc4_options opt = { .deflate = 1, .shuffle = true, .chunk = chunk };
	struct nc4_shape s;
	struct classic c;
	uint8_t *file;
	size_t len;

	if (size < 1 || size - 1 < data[0])
		return 0;
	memcpy(chunk, data + 1, data[0]);
	len = size - 1 - data[0];
	file = malloc(len + 1);
	if (!file)
		return 0;
	memcpy(file, data + 1 + data[0], len);
	if (classic_decode(file, len, &c, NULL) == 0) {
		if (nc4_shape_make(&c, len, &opt, &s, NULL) == 0) {
			for (uint32_t i = 0; i < c.num_vars; i++)
				gather(&s, i, file);
			nc4_shape_free(&s);
		}
		classic_destroy(&c);
	}
	free(file);
	return 0;
}
