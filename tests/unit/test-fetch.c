/* SPDX-License-Identifier: GPL-3.0-or-later */
/* What a draining process has fetched for it: slots that fill side by side, and everything given back, whatever happens. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "format/wire/wire.h"
#include "fs/drain/fetch.h"
#include "tests/lib/job_world.h"
#include "tests/lib/tap.h"
#include "tests/lib/world.h"

#define BUFFERS 8u /* of the loopback */
#define BYTES   (3u << 20)

struct fetching {
	struct job_world *w;
	struct fetch *fetch;
	uint8_t *base; /* of the memory that offsets are of */
	uint64_t ino;
	uint8_t *bytes; /* of a file on node 0 */
};

static void begin(struct fetching *t)
{
	struct core_open_reply reply;
	struct peers_buffer b;
	struct job_file *file;
	struct core_entry e;
	struct job *j;

	t->w = job_world_start(2);
	t->bytes = malloc(BYTES);
	for (size_t i = 0; i < BYTES; i++)
		t->bytes[i] = (uint8_t)(i * 7 + i / 4096);
	j = job_world_job(t->w, 0);
	is_int(job_create_file(j, 1, "f", 0644, O_RDWR, (struct core_cred){ 0 }, &e, &file, &reply), 0, "made");
	t->ino = e.ino;
	for (size_t off = 0; off < BYTES; off += 4096)
		if (job_write(j, file, t->bytes + off, 4096, off) != 4096)
			world_die("write", -EIO);
	is_int(job_fsync(j, e.ino, file, false), 0, "synced");
	job_release(j, file);
	is_int(fetch_create(job_world_peers(t->w, 1), &t->fetch), 0, "created");
	is_int(peers_buffer_get(job_world_peers(t->w, 1), NULL, 0, &b), 0, "a buffer");
	t->base = b.bytes - peers_buffer_offset(job_world_peers(t->w, 1), &b);
	peers_buffer_put(job_world_peers(t->w, 1), &b);
}

static unsigned int free_buffers(struct fetching *t)
{
	struct peers *p = job_world_peers(t->w, 1);
	struct peers_buffer b[BUFFERS + 1];
	unsigned int num = 0;

	while (num <= BUFFERS && peers_buffer_try(p, NULL, 0, &b[num]) == 0)
		num++;
	for (unsigned int i = 0; i < num; i++)
		peers_buffer_put(p, &b[i]);
	return num;
}

static void end(struct fetching *t)
{
	fetch_destroy(t->fetch);
	loopback_settle(job_world_loopback(t->w));
	is_int(free_buffers(t), BUFFERS, "no buffer is kept");
	job_world_stop(t->w);
	free(t->bytes);
}

/* Where blocks of the file lie: num from off on, every second one. */
static size_t list(struct fetching *t, uint64_t off, size_t num, struct peers_get *ret)
{
	struct extent e;
	uint64_t next;
	size_t found;

	for (size_t i = 0; i < num; i++, off += 8192) {
		if (state_extents(store_state(job_world_store(t->w, 0)), t->ino, off, 4096, &e, 1, &found, &next) ||
			found != 1)
			world_die("no extent", -ENODATA);
		ret[i] = (struct peers_get){ .node = 0, .segment = e.segment, .off = e.segment_off, .len = 4096 };
	}
	return num;
}

static bool is_there(struct fetching *t, uint64_t at, uint64_t off, size_t num)
{
	bool same = true;

	for (size_t i = 0; i < num; i++)
		same = same && memcmp(t->base + at + i * 4096, t->bytes + off + i * 8192, 4096) == 0;
	return same;
}

static void test_slots(void)
{
	struct peers_get gets[WIRE_FETCH_BYTES / 4096 + 1];
	struct fetching t = { 0 };
	uint64_t at;

	begin(&t);
	for (uint64_t slot = 0; slot < WIRE_FETCH_SLOTS; slot++)
		is_int(fetch_begin(t.fetch, slot, gets, list(&t, slot << 19, 50, gets)), 0, "begun");
	is_int(fetch_begin(t.fetch, 1, gets, 1), -EBUSY, "not before it was waited for");
	for (uint64_t slot = 0; slot < WIRE_FETCH_SLOTS; slot++)
		ok(fetch_wait(t.fetch, slot, &at) == 0 && is_there(&t, at, slot << 19, 50), "slot %u is right",
			(unsigned int)slot);
	is_int(fetch_wait(t.fetch, 1, &at), -ENOENT, "there is nothing to wait for any more");
	is_int(fetch_begin(t.fetch, 1, gets, list(&t, 4096, 256, gets)), 0, "a slot is used again, and filled");
	ok(fetch_wait(t.fetch, 1, &at) == 0 && is_there(&t, at, 4096, 256), "and right");
	is_int(fetch_begin(t.fetch, 1, gets, list(&t, 0, 257, gets)), -EINVAL, "more does not fit");
	is_int(fetch_begin(t.fetch, WIRE_FETCH_SLOTS, gets, 1), -EINVAL, "there are no more slots");
	is_int(fetch_wait(t.fetch, WIRE_FETCH_SLOTS, &at), -EINVAL, "none to wait for, either");
	gets[0].segment = 999999;
	is_int(fetch_begin(t.fetch, 2, gets, 1), 0, "of a segment that there is not");
	ok(fetch_wait(t.fetch, 2, &at) < 0, "is an error");
	is_int(fetch_begin(t.fetch, 2, gets, list(&t, 0, 3, gets)), 0, "and the slot is good again");
	ok(fetch_wait(t.fetch, 2, &at) == 0 && is_there(&t, at, 0, 3), "for others");
	end(&t);
}

struct waiting {
	struct fetching *t;
	int result;
};

static void *wait_for_it(void *arg)
{
	struct waiting *w = arg;
	uint64_t at;

	w->result = fetch_wait(w->t->fetch, 0, &at);
	return NULL;
}

/* The process that waited has died; its manager takes everything back while there are no agents. */
static void test_reset(void)
{
	struct fetching t = { 0 };
	struct waiting w = { .t = &t };
	struct peers_get gets[16];
	pthread_t thread;
	uint64_t at;

	begin(&t);
	loopback_lose(job_world_loopback(t.w), LOOPBACK_ALL);
	is_int(fetch_begin(t.fetch, 0, gets, list(&t, 0, 16, gets)), 0, "begun");
	is_int(fetch_begin(t.fetch, 3, gets, list(&t, 0, 16, gets)), 0, "and another one");
	pthread_create(&thread, NULL, wait_for_it, &w);
	fetch_reset(t.fetch);
	pthread_join(thread, NULL);
	ok(w.result < 0, "who waited is told");
	is_int(fetch_begin(t.fetch, 3, gets, list(&t, 8192, 16, gets)), 0, "the next process begins");
	loopback_assemble(job_world_loopback(t.w));
	ok(fetch_wait(t.fetch, 3, &at) == 0 && is_there(&t, at, 8192, 16), "and gets what it asked for");
	end(&t);
}

int main(void)
{
	test_slots();
	test_reset();
	return done_testing();
}
