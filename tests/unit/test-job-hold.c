/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * What a node may give back of a file that others read: nothing that the domain home still names. Here a commit of what has come instead is under
 * way, and misses it, since that has been written over again.
 * And what a node reads of its own segments while it waits for the domain home: nothing that it has given back meanwhile.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "format/store/store.h"
#include "format/base/clock.h"
#include "fs/job/message.h"
#include "fs/job/private.h"
#include "fs/job/share.h"
#include "tests/lib/job_world.h"
#include "tests/lib/tap.h"

#define NODES     2u
#define HOME      0u /* of the file, and of its first domain as it turns out */
#define WRITER    1u
#define BLOCK     (256u << 10)
#define WAIT_USEC 30000000u

static const struct core_cred cred = { 0 };

struct scene {
	struct job_world *w;
	uint64_t ino;
	struct job_file *at_home, *writer;
	struct shared *s;        /* the writer's */
	struct share_extent old; /* of it, the first */
	uint8_t bytes[BLOCK];
	uint8_t few[4096]; /* so few that nothing is read ahead: the read asks for their places itself */
	uint64_t let_go_usec;
};

/* Until then nothing is given back: layers of an earlier life may not have been told. */
static void await_sweep(struct scene *t)
{
	uint64_t until = clock_usec() + WAIT_USEC;

	for (uint32_t n = 0; n < NODES; n++)
		while (!job_world_job(t->w, n)->share->swept && clock_usec() < until) {
			share_poke(job_world_job(t->w, n));
			usleep(1000);
		}
}

static void begin(struct scene *t)
{
	struct core_open_reply reply;
	struct core_entry e;
	char name[16];

	t->w = job_world_start(NODES);
	await_sweep(t);
	for (unsigned int i = 0; snprintf(name, sizeof(name), "f%u", i), true; i++) {
		if (job_create_file(job_world_job(t->w, HOME), 1, name, 0644, O_RDWR, cred, &e, &t->at_home, &reply) <
			0)
			exit(1);
		if (place_domain(e.ino, 0, PLACE_DOMAIN_SIZE, NODES) == HOME)
			break;
		job_release(job_world_job(t->w, HOME), t->at_home);
	}
	t->ino = e.ino;
	if (job_open(job_world_job(t->w, WRITER), t->ino, O_RDWR, &t->writer, &reply) < 0)
		exit(1);
	t->s = t->writer->shared;
	for (uint32_t n = 0; n < NODES; n++)
		job_world_job(t->w, n)->share->tell_usec = UINT64_MAX;
}

static void end(struct scene *t)
{
	job_release(job_world_job(t->w, HOME), t->at_home);
	job_release(job_world_job(t->w, WRITER), t->writer);
	job_world_stop(t->w);
}

static bool put(struct scene *t, uint32_t node, char byte, size_t len, uint64_t off)
{
	struct job_file *file = node == HOME ? t->at_home : t->writer;

	memset(t->bytes, byte, len);
	return job_write(job_world_job(t->w, node), file, t->bytes, len, off) == (ssize_t)len;
}

static void *commit(void *arg)
{
	struct scene *t = arg;

	return share_commit(job_world_job(t->w, WRITER), t->s, false) == 0 ? t : NULL;
}

static bool is_telling(struct scene *t)
{
	uint64_t until = clock_usec() + WAIT_USEC;
	bool yes = false;

	while (!yes && clock_usec() < until) {
		pthread_mutex_lock(&t->s->mutex);
		yes = t->s->telling_usec != 0;
		pthread_mutex_unlock(&t->s->mutex);
		usleep(1000);
	}
	usleep(50000); /* it has the number up to which it tells by now, or the test shows nothing */
	return yes;
}

/* As if the grace were over. */
static void give_back(struct scene *t)
{
	struct store *s = job_world_store(t->w, WRITER);

	store_set_grace(s, 1);
	usleep(10);
	ok(store_sync(s) == 0 && store_maintain(s, false) == 0, "what may be given back is");
}

static bool has_only(struct scene *t, const char *these)
{
	bool good = job_read(job_world_job(t->w, HOME), t->at_home, t->bytes, BLOCK, 0) == (ssize_t)BLOCK;

	for (size_t i = 0; good && i < BLOCK; i++) {
		good = t->bytes[i] && strchr(these, t->bytes[i]);
		if (!good)
			tap_diag("byte %zu is %02x", i, t->bytes[i]);
	}
	return good;
}

/* The writer's extent is in parts there, so it has no checksum. */
static void write_first(struct scene *t)
{
	uint64_t next;
	size_t num;

	ok(put(t, WRITER, 'a', BLOCK, 0) && commit(t), "a block is written and committed");
	ok(put(t, WRITER, 'x', 5000, 2 * BLOCK) && commit(t), "and more, so that the next one does not lie beside it");
	ok(put(t, HOME, 'h', 5000, BLOCK / 2) &&
			share_commit(job_world_job(t->w, HOME), t->at_home->shared, false) == 0,
		"another node writes in its middle");
	ok(has_only(t, "ah"), "it is seen");
	ok(state_share_extents(store_state(job_world_store(t->w, HOME)), t->ino, 0, 1, &t->old, 1, &num, &next) == 0 &&
			num == 1 && t->old.node == WRITER,
		"and where it is, is known");
}

static bool is_given_back(struct scene *t)
{
	struct segment_set *set = store_segments(job_world_store(t->w, WRITER));
	char first = 0;
	int r = segment_read(set, t->old.segment, t->old.segment_off, &first, 1);

	return r == -ENOENT || (r == 0 && first == 0);
}

/* Once more behind the commit's number, before it lists what it tells: so it has nothing to tell of the block. */
static void overtake(struct scene *t, char byte, char next)
{
	struct loopback *l = job_world_loopback(t->w);
	void *done = NULL;
	pthread_t thread;

	ok(put(t, WRITER, byte, BLOCK, 0), "the block is written over");
	loopback_set_hanging(l, HOME, true);
	if (pthread_create(&thread, NULL, commit, t))
		exit(1);
	ok(is_telling(t), "a commit is under way");
	ok(put(t, WRITER, next, BLOCK, 0), "the block is written over again");
	loopback_set_hanging(l, HOME, false);
	pthread_join(thread, &done);
	ok(done, "the commit has ended");
}

static void test_overtaken(void)
{
	static struct scene t;

	begin(&t);
	write_first(&t);
	overtake(&t, 'b', 'c');
	give_back(&t);
	ok(has_only(&t, "abch"), "what the domain home names is still there");
	overtake(&t, 'd', 'e');
	give_back(&t);
	ok(has_only(&t, "abcdeh"), "also after several such commits");
	ok(commit(&t) && has_only(&t, "e"), "a commit that misses nothing shows the block");
	end(&t);
}

static void test_given_back(void)
{
	static struct scene t;

	begin(&t);
	write_first(&t);
	overtake(&t, 'b', 'c');
	give_back(&t);
	ok(!is_given_back(&t), "what the domain home names is kept");
	ok(commit(&t) && has_only(&t, "c"), "the next commit tells what has come instead");
	give_back(&t);
	ok(is_given_back(&t), "then it is given back");
	end(&t);
}

static void *read_few(void *arg)
{
	struct scene *t = arg;

	memset(t->few, '?', sizeof(t->few));
	return job_read(job_world_job(t->w, WRITER), t->writer, t->few, sizeof(t->few), 0) == sizeof(t->few) ? t : NULL;
}

/* Meanwhile it waits for the domain home's answer, which was given before. */
static bool read_late(struct scene *t, bool (*meanwhile)(struct scene *t))
{
	struct loopback *l = job_world_loopback(t->w);
	void *done = NULL;
	pthread_t thread;

	t->s->epoch++; /* no earlier answer is used */
	loopback_hold_reply(l, HOME, MESSAGE_SHARE_LOCATE, 0);
	if (pthread_create(&thread, NULL, read_few, t))
		exit(1);
	loopback_await_held(l, HOME);
	uint64_t until = clock_usec() + SHARE_FRESH_USEC;
	bool good = meanwhile(t);
	while (clock_usec() < until)
		usleep(10000);
	t->let_go_usec = clock_usec();
	loopback_let_go(l, HOME);
	pthread_join(thread, &done);
	return good && done;
}

static bool all_are(struct scene *t, char byte)
{
	size_t i = 0;

	while (i < sizeof(t->few) && t->few[i] == byte)
		i++;
	if (i < sizeof(t->few))
		tap_diag("byte %zu is %02x", i, t->few[i]);
	return i == sizeof(t->few);
}

/* What is known of the first window is from before. */
static bool was_asked_once(struct scene *t)
{
	pthread_mutex_lock(&t->s->mutex);
	const struct map *m = t->s->maps[0];
	bool once = m && m->window == 0 && m->asked_usec < t->let_go_usec;
	pthread_mutex_unlock(&t->s->mutex);
	return once;
}

static bool nothing(struct scene *t)
{
	(void)t;
	return true;
}

static bool write_over(struct scene *t)
{
	bool told = put(t, WRITER, 'b', BLOCK, 0) && commit(t);

	give_back(t);
	return told && is_given_back(t);
}

static void test_late(void)
{
	static struct scene t;

	begin(&t);
	write_first(&t);
	ok(read_late(&t, nothing) && all_are(&t, 'a'),
		"the domain home is slow to say where bytes are: own ones are read");
	ok(was_asked_once(&t), "and it is not asked again, since they are where they were");
	ok(read_late(&t, write_over), "they are written over, told and given back while it is slow");
	ok(all_are(&t, 'b'), "what is read is what has come instead");
	end(&t);
}

static uint64_t held_by(struct scene *t)
{
	return job_world_job(t->w, WRITER)->share->hold_usec;
}

/* Of several files the one with the oldest write counts, whichever is committed first. */
static void test_oldest(void)
{
	static struct scene t;
	struct core_open_reply reply;
	struct core_entry e;
	struct job_file *other;

	begin(&t);
	struct job *j = job_world_job(t.w, WRITER);
	ok(job_create_file(job_world_job(t.w, HOME), 1, "other", 0644, O_RDWR, cred, &e, &other, &reply) == 0,
		"a file");
	job_release(job_world_job(t.w, HOME), other);
	ok(job_open(j, e.ino, O_RDWR, &other, &reply) == 0, "opened elsewhere");
	is_u64(held_by(&t), UINT64_MAX, "nothing is held");
	ok(put(&t, WRITER, 'a', 100, 0), "a node writes to one file");
	uint64_t held = held_by(&t);
	ok(held < UINT64_MAX, "what it frees is held");
	ok(job_write(j, other, "b", 1, 0) == 1 && share_commit(j, other->shared, false) == 0,
		"it writes to another one, and commits that");
	is_u64(held_by(&t), held, "as before");
	ok(job_write(j, other, "b", 1, 0) == 1, "it writes again");
	ok(commit(&t), "the first file is committed");
	ok(held_by(&t) > held && held_by(&t) < UINT64_MAX, "what the other one has freed is held");
	ok(share_commit(j, other->shared, false) == 0, "that is committed, too");
	is_u64(held_by(&t), UINT64_MAX, "and nothing is held any more");
	job_release(j, other);
	end(&t);
}

int main(void)
{
	test_overtaken();
	test_given_back();
	test_oldest();
	test_late();
	return done_testing();
}
