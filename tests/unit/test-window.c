/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Holders and readers of segments, each alone: what they say to each other is written down, and the window is one that maps nothing
 * and whose gets end when they are told to.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "mpi-agent/window/holder.h"
#include "mpi-agent/window/near.h"
#include "mpi-agent/window/reader.h"
#include "tests/lib/remove_tree.h"
#include "tests/lib/tap.h"

#define SAID_MAX 2000
#define SELF     0u
#define OTHER    1u
#define HANGS    2u
#define MAPPINGS 300u /* that a holder may have here */

static char dir[] = "/tmp/test-window.XXXXXX";

static void must(bool good, const char *what)
{
	if (good)
		return;
	printf("Bail out! %s: %s\n", what, strerror(errno));
	exit(1);
}

/* ---- a window */

struct arena {
	uint64_t bytes, used, next;
	uint64_t rooms[SAID_MAX]; /* by place / 1 MiB */
	uint32_t num_gets;
	uint64_t lowest; /* that was got from */
	void *tags[ARENA_GETS];
	uint32_t num_begun, to_end;
};

uint64_t arena_bytes(const struct arena *a)
{
	return a->bytes;
}

int arena_map(struct arena *a, int fd, uint64_t len, uint64_t *ret_at)
{
	(void)fd;
	if (len > a->bytes - a->used)
		return -ENOSPC;
	a->used += len;
	a->rooms[a->next] = len;
	*ret_at = a->next++ << 20;
	return 0;
}

void arena_unmap(struct arena *a, uint64_t at)
{
	a->used -= a->rooms[at >> 20];
}

void arena_will_need(struct arena *a, uint64_t at, uint64_t off, uint64_t len)
{
	(void)a;
	(void)at;
	(void)off;
	(void)len;
}

int arena_get(struct arena *a, uint32_t rank, uint64_t at, void *to, uint32_t len, void *tag, struct cistern_error *err)
{
	(void)rank;
	(void)to;
	(void)len;
	(void)err;
	a->num_gets++;
	a->lowest = at < a->lowest ? at : a->lowest;
	a->tags[a->num_begun++] = tag;
	return 0;
}

bool arena_busy(const struct arena *a)
{
	return a->num_begun > 0;
}

int arena_step(
	struct arena *a, void (*ended)(uint32_t rank, void *tag, void *arg), void *arg, struct cistern_error *err)
{
	int num = 0;

	(void)err;
	for (; a->to_end && a->num_begun; a->to_end--, num++)
		ended(OTHER, a->tags[--a->num_begun], arg);
	return num;
}

void arena_each_get(struct arena *a, void (*each)(uint32_t rank, void *arg), void *arg)
{
	(void)a;
	(void)each;
	(void)arg;
}

/* ---- what is said */

struct said {
	uint32_t num;
	struct control all[SAID_MAX];
};

static int note(uint32_t rank, const struct control *m, void *arg)
{
	struct said *s = arg;

	if (rank == HANGS)
		return 0;
	must(s->num < SAID_MAX, "too much is said");
	s->all[s->num++] = *m;
	return 0;
}

static uint32_t count(const struct said *s, enum control_kind kind, uint32_t from)
{
	uint32_t num = 0;

	for (uint32_t i = from; i < s->num; i++)
		num += s->all[i].kind == kind;
	return num;
}

static const struct control *last(const struct said *s)
{
	return &s->all[s->num - 1];
}

/* ---- a holder */

struct held {
	struct arena arena;
	struct said said;
	struct holder *holder;
};

static void make_segment(uint32_t segment, off_t bytes)
{
	char path[100];
	int fd;

	snprintf(path, sizeof(path), "%s/segment/%08u.prv", dir, segment);
	must((fd = open(path, O_WRONLY | O_CREAT, 0600)) >= 0 && ftruncate(fd, bytes) == 0, path);
	close(fd);
}

static struct held *hold(uint64_t bytes)
{
	struct held *h = calloc(1, sizeof(*h));
	struct cistern_error err = { 0 };

	must(h != NULL, "memory");
	h->arena.bytes = bytes;
	if (holder_create(dir, &h->arena, 3, &(struct control_sender){ note, &h->said }, &h->holder, &err) < 0)
		must(false, err.text);
	return h;
}

static void let_go(struct held *h)
{
	holder_destroy(h->holder);
	free(h);
}

static void say_as(struct held *h, uint32_t rank, enum control_kind kind, uint32_t segment, uint64_t mapping)
{
	struct control c = { .kind = kind, .segment = segment, .mapping = mapping };

	must(holder_on_control(h->holder, rank, &c) == 0, "a message");
}

static void say(struct held *h, enum control_kind kind, uint32_t segment, uint64_t mapping)
{
	say_as(h, OTHER, kind, segment, mapping);
}

/* Each RETIRE since from is answered. */
static void give_back(struct held *h, uint32_t from)
{
	for (uint32_t i = from; i < h->said.num; i++) {
		struct control c = h->said.all[i];

		if (c.kind == CONTROL_RETIRE)
			say(h, CONTROL_RETIRED, c.segment, c.mapping);
	}
}

static bool all_good(const struct said *s)
{
	for (uint32_t i = 0; i < s->num; i++)
		if (s->all[i].kind == CONTROL_ANSWER && s->all[i].status)
			return false;
	return true;
}

/* Whoever reads all files of a node, one after the other, does so whatever their number. */
static void test_many(void)
{
	struct held *h = hold(1ull << 43);
	uint32_t asked = 0, before;

	for (; asked < MAPPINGS + 10; asked++) {
		make_segment(asked, 10);
		say(h, CONTROL_ASK, asked, 0);
	}
	ok(all_good(&h->said), "nobody is refused");
	is_int(count(&h->said, CONTROL_ANSWER, 0), MAPPINGS, "as many are mapped as may be");
	ok(count(&h->said, CONTROL_RETIRE, 0) > 10, "those before are retired");
	for (uint32_t i = 0; i < h->said.num; i++)
		if (h->said.all[i].kind == CONTROL_RETIRE) {
			is_int(h->said.all[i].segment, 0, "what was asked for longest ago first");
			break;
		}
	give_back(h, 0);
	ok(all_good(&h->said), "what is given back does for those that waited");
	is_int(count(&h->said, CONTROL_ANSWER, 0), asked, "each of them");
	before = h->said.num;
	say(h, CONTROL_ASK, asked - 1, 0);
	is_int(h->said.num, before + 1, "what is mapped is told at once");
	say(h, CONTROL_ASK, 0, 0);
	ok(last(&h->said)->status == 0 && last(&h->said)->segment == 0, "what was retired is mapped again");
	let_go(h);
}

/* A reader that hangs gives nothing back of the many that it knows, the oldest and some others. */
static void test_hanging(void)
{
	struct held *h = hold(1ull << 43);

	for (uint32_t i = 0; i < MAPPINGS / 2; i++)
		say_as(h, HANGS, CONTROL_ASK, i, 0);
	for (uint32_t i = MAPPINGS / 2; i < MAPPINGS + 10; i++) {
		uint32_t before = h->said.num;

		say(h, CONTROL_ASK, i, 0);
		if (i % 10 == 0)
			say_as(h, HANGS, CONTROL_ASK, i, 0);
		give_back(h, before);
	}
	ok(all_good(&h->said), "another one is not refused");
	is_int(count(&h->said, CONTROL_ANSWER, 0), MAPPINGS / 2 + 10, "nor does it wait");
	let_go(h);
}

static void test_large(void)
{
	struct held *h = hold(1000);
	uint32_t before;

	for (uint32_t i = 1; i <= 4; i++)
		make_segment(i, 300);
	make_segment(5, 2000);
	for (uint32_t i = 1; i <= 3; i++)
		say(h, CONTROL_ASK, i, 0);
	ok(all_good(&h->said), "what fits is mapped, without room to grow");
	before = h->said.num;
	say(h, CONTROL_ASK, 4, 0);
	is_int(count(&h->said, CONTROL_ANSWER, before), 0, "one more waits");
	give_back(h, 0);
	is_int(count(&h->said, CONTROL_ANSWER, before), 1, "for what is given back");
	ok(all_good(&h->said), "and is mapped");
	say(h, CONTROL_ASK, 5, 0);
	give_back(h, before);
	ok(last(&h->said)->kind == CONTROL_ANSWER && last(&h->said)->segment == 5 && last(&h->said)->status == -ENOSPC,
		"one that never fits is refused");
	let_go(h);
}

/* ---- a reader */

#define RANGES 100

struct readers {
	struct arena arena;
	struct said said;
	struct near *near;
	struct reader *reader;
	uint8_t memory[4096];
	int status[8]; /* by id; 1: not yet */
};

static void got(uint64_t id, int status, void *arg)
{
	struct readers *r = arg;

	r->status[id] = status;
}

static void ignore(uint32_t rank, void *arg)
{
	(void)rank;
	(void)arg;
}

static struct readers *begin_to_read(bool near)
{
	struct readers *r = calloc(1, sizeof(*r));
	struct reader_options opt;
	struct identity_folder place;

	must(r != NULL, "memory");
	r->arena.lowest = UINT64_MAX;
	for (int i = 0; i < 8; i++)
		r->status[i] = 1;
	if (near) {
		near_look(dir, &place);
		must(near_create(3, &r->near) == 0, "near");
		near_add(r->near, OTHER, dir, &place);
	}
	opt = (struct reader_options){ .arena = &r->arena,
		.near = r->near,
		.memory = r->memory,
		.memory_bytes = sizeof(r->memory),
		.self = SELF,
		.num_ranks = 3,
		.sender = { note, &r->said },
		.reading = ignore,
		.read = ignore,
		.got = got,
		.arg = r };
	must(reader_create(&opt, &r->reader) == 0, "a reader");
	return r;
}

static void end_reading(struct readers *r)
{
	reader_destroy(r->reader);
	near_destroy(r->near);
	free(r);
}

static void get(struct readers *r, uint64_t id, uint64_t off)
{
	struct reader_range range = { .rank = OTHER, .segment = 1, .off = off, .len = 10 };

	must(reader_get(r->reader, id, &range, 1) == 0, "a get");
}

static void get_many(struct readers *r, uint64_t id)
{
	struct reader_range ranges[RANGES];

	for (uint32_t i = 0; i < RANGES; i++)
		ranges[i] = (struct reader_range){ .rank = OTHER, .segment = 1, .off = 20u * i, .len = 10 };
	must(reader_get(r->reader, id, ranges, RANGES) == 0, "gets");
}

static void hear(struct readers *r, enum control_kind kind, int status, uint64_t at, uint64_t len, uint64_t mapping)
{
	struct control c = { .kind = kind, .status = status, .segment = 1, .at = at, .len = len, .mapping = mapping };

	must(reader_on_control(r->reader, OTHER, &c) == 0, "a message");
}

/* So many gets end, and others begin. */
static void step(struct readers *r, uint32_t ends)
{
	r->arena.to_end = ends;
	must(reader_step(r->reader, NULL) >= 0 && reader_step(r->reader, NULL) >= 0, "a step");
}

/* A place that is known stays so when asking again (for what lies behind its end) fails. */
static void test_answered_with_an_error(void)
{
	struct readers *r = begin_to_read(false);

	get_many(r, 1);
	hear(r, CONTROL_ANSWER, 0, 5000, 2000, 1);
	step(r, 0);
	ok(r->arena.num_begun < RANGES, "not all gets begin at once");
	get(r, 2, 3000);
	hear(r, CONTROL_ANSWER, -EIO, 0, 0, 0);
	is_int(r->status[2], -EIO, "who waited for the answer has it");
	while (r->arena.num_begun)
		step(r, r->arena.num_begun);
	is_int(r->status[1], 0, "the others are got");
	is_int(r->arena.num_gets, RANGES, "each");
	ok(r->arena.lowest >= 5000, "from where the segment lies");
	end_reading(r);
}

/* A place may be taken back before it was used. */
static void test_retired_while_retiring(void)
{
	struct readers *r = begin_to_read(false);

	get(r, 1, 0);
	hear(r, CONTROL_ANSWER, 0, 5000, 100, 1);
	step(r, 0);
	get(r, 2, 100);
	hear(r, CONTROL_RETIRE, 0, 0, 0, 1);
	hear(r, CONTROL_ANSWER, 0, 7000, 200, 2);
	hear(r, CONTROL_RETIRE, 0, 0, 0, 2);
	ok(last(&r->said)->kind == CONTROL_RETIRED && last(&r->said)->mapping == 2, "it is given back at once");
	step(r, 1);
	is_int(r->status[1], 0, "what was under way ends");
	ok(count(&r->said, CONTROL_RETIRED, 0) == 2 && last(&r->said)->kind == CONTROL_ASK, "then its place goes, too");
	hear(r, CONTROL_ANSWER, 0, 9000, 200, 3);
	step(r, 0);
	step(r, 1);
	is_int(r->status[2], 0, "who waited has asked anew");
	end_reading(r);
}

/* What could not be opened when its place was learned is got, to the end. */
static void test_near_later(void)
{
	struct readers *r = begin_to_read(true);
	uint32_t before;

	get_many(r, 1);
	hear(r, CONTROL_ANSWER, 0, 5000, 2000, 1);
	step(r, 0);
	before = r->arena.num_gets;
	make_segment(1, 4000);
	get(r, 2, 3000);
	hear(r, CONTROL_ANSWER, 0, 5000, 4000, 1);
	hear(r, CONTROL_RETIRE, 0, 0, 0, 1);
	while (r->arena.num_begun)
		step(r, r->arena.num_begun);
	is_int(r->arena.num_gets, before, "nothing more is got from a place that is given up");
	ok(count(&r->said, CONTROL_RETIRED, 0) == 1 && last(&r->said)->kind == CONTROL_ASK, "it is asked for anew");
	hear(r, CONTROL_ANSWER, 0, 9000, 4000, 2);
	while (reader_busy(r->reader))
		step(r, r->arena.num_begun);
	ok(r->status[1] == 0 && r->status[2] == 0, "and all is read");
	end_reading(r);
}

int main(void)
{
	char path[100];

	must(mkdtemp(dir) != NULL && setenv("CISTERN_AGENT_MAPPINGS", "200", 1) == 0, dir);
	snprintf(path, sizeof(path), "%s/segment", dir);
	must(mkdir(path, 0700) == 0, path);
	test_answered_with_an_error();
	test_retired_while_retiring();
	test_near_later();
	test_many();
	test_hanging();
	test_large();
	remove_tree(dir);
	return done_testing();
}
