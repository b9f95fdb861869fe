/* SPDX-License-Identifier: GPL-3.0-or-later */
/* A draining process that cannot have what another store has says which one it is, however many it has asked at once. */
#include <errno.h>
#include <string.h>

#include "mpi-agent/replay/fetch.h"
#include "tests/lib/tap.h"

#define NODES  4u
#define LEN    1000u
#define PIECES 12u /* of each node */

struct stores { /* of the other nodes */
	struct drain_watcher watcher;
	int failure;            /* of what is in the segment that cannot be had */
	uint32_t node, segment; /* that one */
	int status[WIRE_FETCH_SLOTS];
	unsigned int num_failed; /* fetches */
	uint8_t bytes[WIRE_FETCH_SLOTS][WIRE_FETCH_BYTES];
	struct piece pieces[NODES * PIECES];
	uint32_t order[NODES * PIECES];
	uint8_t data[NODES * PIECES * LEN];
};

static int begin(unsigned int slot, const struct drain_fetch *ranges, size_t num, void *arg)
{
	struct stores *s = arg;
	uint8_t *to = s->bytes[slot];

	s->status[slot] = 0;
	for (size_t i = 0; i < num; to += ranges[i++].len) {
		memset(to, (int)(16 * ranges[i].node + ranges[i].segment), ranges[i].len);
		if (ranges[i].node == s->node && ranges[i].segment == s->segment)
			s->status[slot] = s->failure;
	}
	return 0;
}

static int wait_for(unsigned int slot, const uint8_t **ret, void *arg)
{
	struct stores *s = arg;

	*ret = s->bytes[slot];
	s->num_failed += s->status[slot] < 0;
	return s->status[slot];
}

/* Two segments of each node, in the order in which windows are read. */
static void make_pieces(struct stores *s)
{
	for (uint32_t i = 0; i < NODES * PIECES; i++) {
		s->order[i] = i;
		s->pieces[i] = (struct piece){ .segment_off = i * 2 * LEN,
			.at = (size_t)i * LEN,
			.len = LEN,
			.segment = i % PIECES < PIECES / 2 ? 1 : 2,
			.node = i / PIECES };
	}
	s->watcher = (struct drain_watcher){ .fetch = begin, .fetched = wait_for, .arg = s };
}

static int fetch_all(struct stores *s, struct fetches *f, const struct piece **ret_failed)
{
	int r = fetches_begin(f, s->pieces, s->data, s->order, NODES * PIECES);
	int e = fetches_end(f, r == 0, ret_failed);

	return r < 0 ? r : e;
}

static void test_culprit(int failure, uint32_t node, uint32_t segment)
{
	static struct stores s;
	const struct piece *failed = NULL;

	s = (struct stores){ .failure = failure, .node = node, .segment = segment };
	make_pieces(&s);
	struct fetches *f = fetches_create(&s.watcher);
	is_int(fetch_all(&s, f, &failed), failure, "what cannot be had is an error");
	ok(failed && failed->node == node, "of the node that has it");
	ok(failed && failed->segment == segment, "and of its segment");
	unsigned int before = s.num_failed;
	is_int(fetch_all(&s, f, &failed), failure, "another window of such bytes");
	ok(failed && failed->node == node, "is of that node, too");
	is_int(s.num_failed - before, failure == -ETIMEDOUT ? 1 : 2, "who did not answer is not waited for twice");
	s.failure = 0;
	is_int(fetch_all(&s, f, &failed), 0, "when it is there again all can be had");
	ok(!failed, "and nobody is named");
	bool right = true;
	for (size_t i = 0; i < NODES * PIECES; i++)
		for (size_t at = 0; at < LEN; at++)
			right = right && s.data[i * LEN + at] == 16 * s.pieces[i].node + s.pieces[i].segment;
	ok(right, "and is in its place");
	fetches_destroy(f);
}

int main(void)
{
	test_culprit(-ETIMEDOUT, 2, 2);
	test_culprit(-ETIMEDOUT, 0, 1);
	test_culprit(-ENOENT, 3, 1);
	return done_testing();
}
