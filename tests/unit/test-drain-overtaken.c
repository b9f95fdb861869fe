/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * While a node drains its domains of a file that several nodes wrote (written.h), payload that its snapshot names is given back by the node that
 * had it: it was written over, or cut off. These stores know no grace, so that stands for a drain that is slow.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "format/place/place.h"
#include "tests/lib/tap.h"
#include "tests/lib/written.h"

#define BLOCK  (256u << 10)
#define DOMAIN (1u << 20) /* as written.c has it */

static uint8_t before[WRITTEN_MAX];

/* Of the file; its domain home is another node than the one that writes there. */
static uint64_t place_of(unsigned int home)
{
	uint64_t off = 0;

	while (place_domain(WRITTEN_INO, off, DOMAIN, WRITTEN_NODES) != home)
		off += DOMAIN;
	return off;
}

#define DRAINER 2u
#define WRITER  1u

/* Until the freed payload is zeros, or its segment gone. */
static void give_back(struct written *j, unsigned int node)
{
	struct store *s = j->store[node];

	world_must(segment_settle(store_segments(s)), "settle");
	world_must(store_sync(s), "sync");
	world_must(store_maintain(s, true), "maintain");
	world_must(store_maintain(s, false), "maintain");
}

/* As a living node does it, whose home notes each commit, whether the file grows by it or not. */
static void commit(struct written *j, unsigned int node)
{
	struct record noted = { .type = RECORD_TRUNCATE };

	world_must(segment_settle(store_segments(j->store[node])), "settle");
	written_commit(j, node);
	noted.size = j->size;
	written_record(j, 0, &noted);
}

/* What the writer's node has there is in pieces: another one has written in the middle. */
static void start(struct written *j, uint64_t seed)
{
	uint64_t off = place_of(DRAINER);

	written_start(j, seed);
	written_put_at(j, WRITER, off, BLOCK);
	commit(j, WRITER);
	written_put_at(j, 0, off + BLOCK / 2, 5000);
	commit(j, 0);
	written_put_at(j, WRITER, off + 2 * BLOCK, BLOCK);
	commit(j, WRITER);
	written_part(j, 0, WIRE_PART_BEGIN, 2u << 20);
	memcpy(before, j->model, sizeof(before));
}

static void carry(struct written *j, void (*meanwhile)(struct written *j))
{
	for (unsigned int node = 0; node < WRITTEN_NODES; node++) {
		j->before_fetch = node == DRAINER ? meanwhile : NULL;
		written_part(j, node, WIRE_PART_DATA, 2u << 20);
	}
	j->before_fetch = NULL;
	for (unsigned int node = 0; node < WRITTEN_NODES; node++)
		written_part(j, node, WIRE_PART_HEAD, 2u << 20);
	written_part(j, 0, WIRE_PART_FILES, 2u << 20);
}

/* Each byte is what it was when the drain began, or what has been written since. */
static bool is_old_or_new(struct written *j)
{
	char path[WRITTEN_PATH + 32];
	uint8_t *got = malloc(WRITTEN_MAX);
	bool good = true;

	snprintf(path, sizeof(path), "%s/f", j->backing);
	int fd = open(path, O_RDONLY);
	ssize_t n = fd < 0 ? -1 : pread(fd, got, WRITTEN_MAX, 0);
	if (n < (ssize_t)j->shared.size)
		tap_diag("%zd bytes of %" PRIu64, n, j->shared.size);
	for (ssize_t i = 0; good && i < n; i++) {
		good = got[i] == before[i] || got[i] == j->model[i];
		if (!good)
			tap_diag("byte %zd is %02x, neither %02x nor %02x", i, got[i], before[i], j->model[i]);
	}
	if (fd >= 0)
		close(fd);
	free(got);
	return good && n >= (ssize_t)j->shared.size;
}

static void expect_next(struct written *j, const char *what)
{
	j->num_shared = j->errors = j->late = 0;
	written_drain(j);
	ok(j->errors == 0 && written_is_model(j, j->backing, 0), "the next session carries the rest: %s", what);
}

/* ---- written over */

static void write_some(struct written *j)
{
	uint64_t off = place_of(DRAINER);

	j->before_fetch = NULL;
	written_put_at(j, WRITER, off, BLOCK);
	written_put_at(j, DRAINER, off + 2 * BLOCK + 100, BLOCK / 2);
	commit(j, WRITER);
	commit(j, DRAINER);
	give_back(j, WRITER);
}

static void write_all(struct written *j)
{
	uint64_t off = place_of(DRAINER);

	j->before_fetch = NULL;
	written_put_at(j, WRITER, off, 3 * BLOCK);
	commit(j, WRITER);
	give_back(j, WRITER);
}

static void test_overwritten(struct written *j, uint64_t seed, void (*meanwhile)(struct written *j), const char *what)
{
	start(j, seed);
	carry(j, meanwhile);
	ok(j->errors == 0 && j->late == 0, "%s, while it is drained: it is carried all the same, seed %" PRIu64, what,
		seed);
	ok(is_old_or_new(j), "%s: each byte is the old one or the new one, seed %" PRIu64, what, seed);
	expect_next(j, what);
	written_end(j, true);
}

/* ---- cut off, and the file made longer again */

static void cut_map(struct written *j, unsigned int node, uint64_t size)
{
	struct record cut = { .type = RECORD_SHARE_CUT, .size = size, .stamp = j->stamp };
	struct record layer = { .type = RECORD_TRUNCATE, .size = size };

	written_record(j, node, &cut);
	written_record(j, node, &layer);
}

static void cut(struct written *j)
{
	struct record longer = { .type = RECORD_TRUNCATE, .size = j->size };
	uint64_t size = place_of(DRAINER) + 1000;

	j->before_fetch = NULL;
	j->stamp++;
	for (unsigned int node = 0; node < WRITTEN_NODES; node++)
		cut_map(j, node, size);
	written_record(j, 0, &longer);
	memset(j->model + size, 0, WRITTEN_MAX - size);
	give_back(j, WRITER);
}

/* ---- in vain */

static void hide(struct written *j)
{
	struct record drop = { .type = RECORD_SHARE_DROP, .stamp = UINT64_MAX };

	j->before_fetch = NULL;
	written_record(j, DRAINER, &drop);
}

static void write_again(struct written *j)
{
	written_put_at(j, WRITER, place_of(DRAINER), BLOCK);
	commit(j, WRITER);
	give_back(j, WRITER);
}

static void test_late(struct written *j, uint64_t seed, void (*meanwhile)(struct written *j), const char *what)
{
	struct inode in;

	start(j, seed);
	carry(j, meanwhile);
	ok(j->errors == 0 && j->late > 0, "%s: it is late, which is no failure, seed %" PRIu64, what, seed);
	ok(state_inode(written_state(j, 0), WRITTEN_INO, &in) == 0 && in.flags & INODE_DIRTY_DATA,
		"%s: it stays for the next session, seed %" PRIu64, what, seed);
}

static void test_again(struct written *j, uint64_t seed)
{
	test_late(j, seed, write_again, "written over whenever it is fetched");
	expect_next(j, "written over whenever it was fetched");
	written_end(j, true);
}

static void test_nowhere(struct written *j, uint64_t seed)
{
	test_late(j, seed, hide, "what it has is nowhere any more");
	written_end(j, true);
}

int main(void)
{
	static struct written j;

	for (uint64_t seed = 2; seed < 4; seed++) {
		test_overwritten(&j, seed, write_some, "parts of it are written over");
		test_overwritten(&j, seed, write_all, "all of it is written over");
		test_overwritten(&j, seed, cut, "it is cut");
		test_again(&j, seed);
		test_nowhere(&j, seed);
	}
	return done_testing();
}
