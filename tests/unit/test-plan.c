/* SPDX-License-Identifier: GPL-3.0-or-later */
/* The data plan: transfer ranges, windows, their reads and writes, and what is stale in a backing file. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "format/store/store.h"
#include "format/wire/wire.h"
#include "mpi-agent/plan/names.h"
#include "mpi-agent/plan/window.h"
#include "tests/lib/scratch.h"
#include "tests/lib/tap.h"

#define MIB (1u << 20)

static struct piece log_piece(uint64_t off, uint32_t len, uint32_t segment, uint64_t segment_off, bool whole)
{
	return (struct piece){ .source = PIECE_LOG,
		.off = off,
		.len = len,
		.segment = segment,
		.segment_off = segment_off,
		.whole = whole };
}

static void add(struct window *w, struct piece p)
{
	ok(window_add(w, &p) == 0, "a piece is added");
}

static void test_pieces(void)
{
	struct window w = { 0 };
	uint32_t order[8], num;
	uint64_t bytes;

	add(&w, log_piece(0, 100, 1, 5000, false));
	add(&w, log_piece(100, 100, 1, 5100, false));
	is_u64(w.num, 1, "pieces that continue one another are one");
	add(&w, log_piece(200, 100, 1, 5200, true));
	is_u64(w.num, 2, "a checked payload stays alone");
	add(&w, log_piece(300, 50, 1, 100, true));
	add(&w, (struct piece){ .source = PIECE_HOLE, .off = 350, .len = 1000 });
	add(&w, log_piece(1350, 10, 0, 900, true));
	add(&w, log_piece(2000, 10, 1, 150, true));
	is_u64(w.bytes, 370, "a hole takes no room in the buffer");
	is_u64(w.pieces[4].at, 350, "pieces lie in the buffer without gaps");

	window_read_order(&w, order, &num);
	is_u64(num, 5, "a hole is not read");
	is_u64(order[0], 4, "reads go by segment");
	is_u64(order[1], 2, "then by place");
	is_u64(window_read_run(&w, order, num, 1, 8), 2,
		"neighbours in the segment are one read, wherever they are in the file");
	is_u64(window_read_run(&w, order, num, 3, 8), 2, "also at the end");
	is_u64(window_read_run(&w, order, num, 3, 1), 1, "at most so many");

	is_u64(window_write_run(&w, 0, &bytes), 3, "what is contiguous in the file is one write");
	is_u64(bytes, 350, "of all its bytes");
	is_u64(window_write_run(&w, 3, &bytes), 1, "a hole stands alone");
	is_u64(bytes, 1000, "with its length");
	is_u64(window_write_run(&w, 4, &bytes), 1, "a gap ends a write");
	window_free(&w);
}

/* Sealed pages have no checksums and follow each other; a fetch from another node takes WIRE_FETCH_BYTES at the most. */
static void test_long_pieces(void)
{
	struct window w = { 0 };
	uint32_t most = 0;

	for (uint32_t i = 0; i < 8; i++)
		add(&w, log_piece((uint64_t)i * (MIB - 4096), MIB - 4096, 1, (uint64_t)i * (MIB - 4096), false));
	for (uint32_t i = 0; i < w.num; i++)
		most = w.pieces[i].len > most ? w.pieces[i].len : most;
	is_u64(w.bytes, 8 * (uint64_t)(MIB - 4096), "much that continues one another");
	ok(most <= WIRE_FETCH_BYTES, "is no piece that cannot be fetched");
	window_free(&w);
}

static uint64_t new_file(struct store *s, const char *name)
{
	struct record rec = { .type = RECORD_CREATE,
		.ino = state_new_ino(store_state(s)),
		.parent = STATE_ROOT_INO,
		.mode = S_IFREG | 0644 };

	snprintf(rec.name, sizeof(rec.name), "%s", name);
	ok(store_commit(s, &rec) == 0, "a file is made");
	return rec.ino;
}

static struct window_plan *plan_of(struct store *s, uint64_t ino, uint64_t from, uint64_t to, bool base, uint64_t limit)
{
	struct window_plan_options opt = { .st = store_state(s),
		.ino = ino,
		.from = from,
		.to = to,
		.holes = !base,
		.base = base,
		.backing_limit = limit };
	struct window_plan *plan = NULL;

	ok(window_plan_create(&opt, &plan) == 0, "a plan is made");
	return plan;
}

/* A dense file written in scattered order: whole pages, all of it, once. */
static void test_dense(struct store *s)
{
	const uint32_t num = 5 * 256; /* 5 MiB in pieces of 4 KiB */
	uint64_t ino = new_file(s, "dense"), next = 0;
	bool last = false, aligned = true, in_order = true;
	static uint8_t block[4096];
	struct window w = { 0 };
	struct window_plan *plan;
	unsigned int windows = 0;

	for (uint32_t i = 0; i < num; i++) {
		memset(block, (int)i, sizeof(block));
		if (store_write(s, ino, 0, (uint64_t)(i * 7 % num) * 4096, block, sizeof(block)))
			ok(false, "write");
	}
	plan = plan_of(s, ino, 0, (uint64_t)num * 4096, false, 0);
	while (!last && window_plan_next(plan, 2 * MIB, &w, &last) == 0 && w.num > 0) {
		windows++;
		aligned = aligned && w.pieces[0].off % MIB == 0 && w.bytes <= 2 * MIB;
		for (uint32_t i = 0; i < w.num; i++) {
			in_order = in_order && w.pieces[i].off == next && w.pieces[i].at == next - w.pieces[0].off;
			next += w.pieces[i].len;
		}
	}
	is_u64(windows, 3, "5 MiB are three windows of at most 2 MiB");
	ok(aligned, "windows begin at whole MiB and fit the buffer");
	ok(in_order, "their pieces follow one another");
	is_u64(next, (uint64_t)num * 4096, "all bytes are carried");
	ok(last, "the last window knows that it is the last");
	window_plan_destroy(plan);
	window_free(&w);
}

/* Holes, gaps, and what the backing file shows between. */
static void test_base(struct store *s)
{
	uint64_t ino = new_file(s, "base");
	struct record punch = { .type = RECORD_PUNCH, .ino = ino, .off = 3 * MIB, .len = 4096 };
	struct window w = { 0 };
	struct window_plan *plan;
	bool last = false;
	uint64_t base = 0, log = 0, holes = 0;

	ok(store_write(s, ino, 0, 1000, "abcd", 4) == 0, "a write at 1000");
	ok(store_write(s, ino, 0, 3 * MIB + 100, "efgh", 4) == 0, "a write at 3 MiB");
	/* As if a backing file of 2 MiB + 500 showed below. */
	plan = plan_of(s, ino, 0, 3 * MIB + 104, true, 2 * MIB + 500);
	while (!last && window_plan_next(plan, MIB, &w, &last) == 0)
		for (uint32_t i = 0; i < w.num; i++)
			*(w.pieces[i].source == PIECE_BASE ? &base : &log) += w.pieces[i].len;
	is_u64(log, 8, "what was written comes from the log");
	is_u64(base, 2 * MIB + 500 - 4, "the rest from the backing file, up to its limit");
	window_plan_destroy(plan);

	ok(store_commit(s, &punch) == 0, "a range is punched");
	last = false;
	plan = plan_of(s, ino, 0, 3 * MIB + 8192, false, 0);
	while (!last && window_plan_next(plan, MIB, &w, &last) == 0)
		for (uint32_t i = 0; i < w.num; i++)
			holes += w.pieces[i].source == PIECE_HOLE ? w.pieces[i].len : 0;
	is_u64(holes, 0, "behind the limit nothing has to be punched: it is cut off before");
	window_plan_destroy(plan);

	plan = plan_of(s, ino, 0, 0, false, 0);
	ok(window_plan_next(plan, MIB, &w, &last) == 0 && w.num == 0 && last, "an empty file has no window");
	window_plan_destroy(plan);
	window_free(&w);
}

static void test_stale(struct store *s)
{
	uint64_t ino = new_file(s, "stale"), tail = 0;
	struct record through = { .type = RECORD_THROUGH, .ino = ino, .off = 8192, .len = 4096 };
	struct gap *gaps = NULL;
	size_t num = 0;

	ok(store_write(s, ino, 0, 20000, "abcd", 4) == 0, "a logged write at 20000");
	ok(window_stale_ranges(store_state(s), ino, 0, 20004, &gaps, &num, &tail) == 0, "stale ranges");
	is_u64(tail, 0, "without bytes of the backing file all of it can be cut off");
	is_u64(num, 0, "and no gap is left");
	free(gaps);
	ok(store_commit(s, &through) == 0, "written through at 8192");
	ok(window_stale_ranges(store_state(s), ino, 4096, 20004, &gaps, &num, &tail) == 0, "stale ranges");
	is_u64(tail, 12288, "what was written through is kept");
	is_u64(num, 1, "one gap before it");
	ok(num == 1 && gaps[0].off == 4096 && gaps[0].len == 4096, "from the limit to it");
	free(gaps);
}

static void test_names(struct store *s)
{
	uint64_t ino = new_file(s, "name");
	struct record placed = { .type = RECORD_PLACED, .ino = ino, .parent = STATE_ROOT_INO, .name = "old" };
	struct names_step step;
	struct inode in;

	ok(names_next_step(store_state(s), STATE_ROOT_INO, "name", ino, &in, &step) == 0, "a step");
	is_int(step.action, NAMES_DATA, "a new file comes with its data");
	ok(store_commit(s, &placed) == 0, "placed under another name");
	ok(names_next_step(store_state(s), STATE_ROOT_INO, "name", ino, &in, &step) == 0, "a step");
	is_int(step.action, NAMES_MOVE, "it is moved");
	is_str(step.from_name, "old", "from there");
	snprintf(placed.name, sizeof(placed.name), "name");
	ok(store_commit(s, &placed) == 0, "placed where it belongs");
	ok(names_next_step(store_state(s), STATE_ROOT_INO, "name", ino, &in, &step) == 0, "a step");
	is_int(step.action, NAMES_DONE, "nothing is left to do");
	is_int(names_next_step(store_state(s), STATE_ROOT_INO, "x", 999999, &in, &step), -ENOENT,
		"an inode that is not there");
}

int main(void)
{
	char top[512], path[600], command[600];
	struct store_options opt = {
		.mode = STORE_CREATE_OR_OPEN, .backing = "/nonexistent", .index_memory = 8u << 20
	};
	struct record root = { .type = RECORD_ADOPT, .ino = STATE_ROOT_INO, .mode = S_IFDIR | 0755, .name = "." };
	struct cistern_error err = { 0 };
	struct state_report report;
	struct store *s = NULL;
	struct inode in;

	snprintf(top, sizeof(top), "%s/cistern-plan-XXXXXX", scratch_parent());
	if (!mkdtemp(top))
		return 1;
	snprintf(path, sizeof(path), "%s/store", top);
	if (!ok(store_open(path, &opt, &s, &report, &err) == 0, "a store is made %s", err.text))
		return done_testing();
	if (state_inode(store_state(s), STATE_ROOT_INO, &in) < 0)
		ok(store_commit(s, &root) == 0, "the root is adopted");
	test_pieces();
	test_long_pieces();
	test_dense(s);
	test_base(s);
	test_stale(s);
	test_names(s);
	ok(store_close(s) == 0, "the store is closed");
	snprintf(command, sizeof(command), "rm -rf '%s'", top);
	ok(system(command) == 0, "all is removed");
	return done_testing();
}
