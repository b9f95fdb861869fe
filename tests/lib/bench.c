/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "tests/lib/bench.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "tests/lib/remove_tree.h"
#include "tests/lib/tap.h"

bool bench_open(struct bench *b)
{
	struct cistern_error err = { 0 };

	b->opt.io = b->io;
	b->opt.index_path = b->index;
	b->opt.backing = "/backing";
	return ok(store_open(b->dir, &b->opt, &b->s, NULL, &err) == 0, "the store opens %s", err.text);
}

bool bench_begin(struct bench *b, uint64_t segment_size, uint64_t capacity)
{
	*b = (struct bench){ .opt = { .mode = STORE_CREATE_OR_OPEN,
				     .segment_size = segment_size,
				     .journal_size = 1 << 20,
				     .capacity = capacity,
				     .reserve = 1 << 20 } };
	strcpy(b->dir, "/tmp/cistern-bench-XXXXXX");
	if (!ok(mkdtemp(b->dir) != NULL, "a folder"))
		return false;
	snprintf(b->index, sizeof(b->index), "%s/index", b->dir);
	return ok(sim_create(&b->sim, &b->io) == 0, "a disk") && bench_open(b);
}

void bench_end(struct bench *b)
{
	is_int(store_close(b->s), 0, "the store closes");
	sim_destroy(b->sim);
	remove_tree(b->dir);
}

int bench_root(struct store *s)
{
	struct record rec = {
		.type = RECORD_ADOPT, .ino = STATE_ROOT_INO, .name = ".", .mode = S_IFDIR | 0755, .nlink = 2
	};
	struct inode in;

	return state_inode(store_state(s), STATE_ROOT_INO, &in) == 0 ? 0 : store_commit(s, &rec);
}

struct inode bench_file(struct store *s, const char *name)
{
	struct record rec = { .type = RECORD_CREATE,
		.parent = STATE_ROOT_INO,
		.mode = S_IFREG | 0644,
		.ino = state_new_ino(store_state(s)) };
	struct inode in = { 0 };

	strcpy(rec.name, name);
	ok(bench_root(s) == 0 && store_commit(s, &rec) == 0 && state_inode(store_state(s), rec.ino, &in) == 0,
		"a file: %s", name);
	return in;
}

int bench_fill(struct store *s, const struct inode *in, uint64_t off, size_t len, int byte)
{
	char *buf = malloc(len);
	int r;

	if (!buf)
		return -ENOMEM;
	memset(buf, byte, len);
	r = store_write(s, in->ino, in->gen, off, buf, len);
	free(buf);
	return r;
}

int bench_base(uint64_t off, size_t len, void *buf, void *arg)
{
	unsigned int *calls = arg;

	(void)off;
	memset(buf, 'B', len);
	(*calls)++;
	return 0;
}

bool bench_reads(struct store *s, uint64_t ino, uint64_t off, size_t len, int byte)
{
	unsigned int calls = 0;
	struct inode in;
	char *buf = malloc(len);
	bool same = buf && state_inode(store_state(s), ino, &in) == 0 &&
		    store_read(s, &in, off, len, buf, true, bench_base, &calls, NULL) == 0;

	for (size_t i = 0; same && i < len; i++)
		same = buf[i] == byte;
	free(buf);
	return same;
}

uint64_t bench_used(const struct bench *b)
{
	return segment_allocated_bytes(store_segments(b->s)) - segment_free_in_open(store_segments(b->s));
}
