/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * A journal file from anybody, on a simulated disk. An input with a header block is the file; any other one is the items
 * behind a good header, their CRCs made right where they look like records. However it reads: after journal_cut
 * the same records must be read again, without complaint, and a writer must be able to go on.
 */
#include <stdlib.h>
#include <string.h>

#include "format/base/crc32c.h"
#include "format/journal/journal.h"
#include "format/journal/journal_file.h"
#include "tests/lib/sim.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int check_order(const struct record *rec, void *arg)
{
	uint64_t *last = arg;

	if (rec->seq <= *last || (*last && rec->seq != *last + 1))
		abort();
	*last = rec->seq;
	return 0;
}

static void fix_records(struct buf *b)
{
	for (size_t at = JOURNAL_BLOCK; at + RECORD_HEADER_BYTES <= b->len; at += 8) {
		uint32_t length;

		if (memcmp(b->data + at, "CJR1", 4) != 0)
			continue;
		length = (uint32_t)b->data[at + 8] | (uint32_t)b->data[at + 9] << 8 | (uint32_t)b->data[at + 10] << 16;
		if (length < RECORD_HEADER_BYTES || length > b->len - at)
			continue;
		buf_poke_u32(b, at + 4, 0);
		buf_poke_u32(b, at + 4, crc32c(0, b->data + at, length));
	}
}

static bool make_file(struct buf *b, const uint8_t *data, size_t size)
{
	struct journal_header header = { .number = 1, .first_seq = 1 };
	uint8_t block[JOURNAL_BLOCK];

	if (size < 8 || memcmp(data, "CISTJRNL", 8) != 0) {
		journal_header_encode(JOURNAL_LOG, &header, block);
		buf_bytes(b, block, sizeof(block));
		buf_bytes(b, data, size);
		fix_records(b);
	} else {
		buf_bytes(b, data, size);
	}
	return buf_ok(b);
}

static void write_file(struct io *io, const struct buf *b)
{
	struct io_file *file;

	if (io->ops->mkdir(io, JOURNAL_DIR) ||
		io_open(io, "journal/00000001.jnl", IO_READ | IO_WRITE | IO_CREATE, &file) ||
		io_write(file, b->data, b->len, 0))
		abort();
	io_close(file);
}

static void go_on(struct io *io, uint64_t last_seq)
{
	struct record rec = { .type = RECORD_FREE };
	struct journal_end end;
	struct journal *j;
	uint64_t last = 0;

	if (last_seq == UINT64_MAX || journal_create(io, 65536, last_seq + 1, &j, NULL))
		return;
	if (journal_append(j, &rec) || journal_replay(io, last_seq, check_order, &last, &end, NULL) ||
		last != last_seq + 1)
		abort();
	journal_destroy(j);
}

static void read_cut_read(struct io *io)
{
	struct journal_end end, again;
	uint64_t last = 0, last_again = 0;
	int r = journal_replay(io, 0, check_order, &last, &end, NULL);

	if (r && !end.unsynced)
		return;
	if (journal_cut(io, &end, NULL) || journal_replay(io, 0, check_order, &last_again, &again, NULL))
		abort();
	if (last != last_again || end.records != again.records || again.cut_bytes)
		abort();
	go_on(io, again.last_seq);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct buf b = { 0 };
	struct sim *sim;
	struct io *io;

	if (size > 1 << 20 || !make_file(&b, data, size) || sim_create(&sim, &io)) {
		buf_free(&b);
		return 0;
	}
	sim_set_file_limit(sim, 2 << 20);
	write_file(io, &b);
	read_cut_read(io);
	sim_destroy(sim);
	buf_free(&b);
	return 0;
}
