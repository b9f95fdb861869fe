/* SPDX-License-Identifier: GPL-3.0-or-later */
/* Who is told of commits to files that several nodes have open, how often, and that nobody misses anything. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "format/place/place.h"
#include "format/base/clock.h"
#include "fs/job/private.h"
#include "fs/job/share.h"
#include "tests/lib/job_world.h"
#include "tests/lib/tap.h"

#define NODES 6u

static const struct core_cred cred = { 0 };

struct file { /* open on all nodes */
	struct job_world *w;
	uint64_t ino;
	struct job_file *at[NODES];
};

/* flags: of the others than its home. */
static void open_everywhere(struct file *f, const char *name, int flags)
{
	struct core_open_reply reply;
	struct core_entry e;
	int rc = 0;

	if (job_create_file(job_world_job(f->w, 0), 1, name, 0644, O_RDWR, cred, &e, &f->at[0], &reply))
		exit(1);
	f->ino = e.ino;
	for (uint32_t n = 1; n < NODES; n++)
		rc |= job_open(job_world_job(f->w, n), f->ino, flags, &f->at[n], &reply);
	is_int(rc, 0, "a file is open everywhere");
}

static void begin_with(struct file *f, const struct job_world_options *opt, int flags)
{
	f->w = job_world_start_with(opt);
	open_everywhere(f, "f", flags);
	for (uint32_t n = 0; n < NODES; n++)
		job_world_job(f->w, n)->share->tell_usec = UINT64_MAX;
}

static void begin(struct file *f)
{
	begin_with(f, &(struct job_world_options){ .num = NODES }, O_RDWR);
}

static void close_everywhere(struct file *f)
{
	for (uint32_t n = 0; n < NODES; n++)
		job_release(job_world_job(f->w, n), f->at[n]);
}

static void end(struct file *f)
{
	close_everywhere(f);
	job_world_stop(f->w);
}

static bool put(struct file *f, uint32_t node, const char *text, uint64_t off)
{
	return job_write(job_world_job(f->w, node), f->at[node], text, strlen(text), off) == (ssize_t)strlen(text);
}

static bool commit(struct file *f, uint32_t node)
{
	return job_fsync(job_world_job(f->w, node), f->ino, f->at[node], false) == 0;
}

static bool shows(struct file *f, uint32_t node, const char *text)
{
	char buf[256] = "";
	ssize_t got = job_read(job_world_job(f->w, node), f->at[node], buf, sizeof(buf) - 1, 0);

	if (got != (ssize_t)strlen(text) || strcmp(buf, text) != 0) {
		printf("# node %u: %zd bytes: %s, not %s\n", node, got, buf, text);
		return false;
	}
	return true;
}

/* What the home has sent to others. Its own domain is the file's first, so nobody else is sent any place but its witness. */
static uint64_t sent_by_home(struct file *f)
{
	return job_world_job(f->w, 0)->share->messages;
}

/* All write, then all commit, as a step of a program does: the first commit is told to all, each other one to whom committed before. */
static void test_steps(void)
{
	struct file f;
	bool good = true;

	begin(&f);
	for (unsigned int step = 0; step < 3; step++) {
		for (uint32_t n = 1; n < NODES; n++)
			good = good && put(&f, n, "x", n);
		uint64_t before = sent_by_home(&f);
		for (uint32_t n = 1; n < NODES; n++)
			good = good && commit(&f, n);
		is_u64(sent_by_home(&f) - before, (NODES - 2) * 2, "each commit is told once, the first to all");
	}
	ok(good, "written and committed");
	end(&f);
}

/* Nobody looks meanwhile, then all do. */
static void test_late_readers(void)
{
	struct file f;

	begin(&f);
	ok(put(&f, 1, "hello", 0) && commit(&f, 1), "one commits");
	for (uint32_t n = 0; n < NODES; n++)
		ok(shows(&f, n, "hello"), "a node reads it");
	uint64_t before = sent_by_home(&f);
	ok(put(&f, 1, "hallo", 0) && commit(&f, 1), "commits again");
	is_u64(sent_by_home(&f) - before, NODES - 2, "all that have read are told");
	before = sent_by_home(&f);
	ok(put(&f, 1, "hallo, you", 0) && commit(&f, 1), "and again");
	is_u64(sent_by_home(&f) - before, 0, "nobody believes anything any more, so nobody is told");
	for (uint32_t n = 0; n < NODES; n++)
		ok(shows(&f, n, "hallo, you"), "but a node reads it");
	end(&f);
}

static int count_conflict(const struct share_conflict *c, void *arg)
{
	(void)c;
	++*(unsigned int *)arg;
	return 0;
}

static unsigned int conflicts(struct file *f)
{
	uint64_t more = 0;
	unsigned int num = 0;

	for (uint32_t n = 0; n < NODES; n++)
		(void)state_conflicts(store_state(job_world_store(f->w, n)), f->ino, count_conflict, &num, &more);
	return num;
}

/* Who was not told of a commit, since he had not looked, has seen it all the same when he writes over it afterwards. */
static void test_order_is_known(void)
{
	struct file f;

	begin(&f);
	for (unsigned int i = 0; i < 3; i++)
		ok(put(&f, 1, "first", 0) && commit(&f, 1), "one commits");
	ok(put(&f, 2, "later", 0) && commit(&f, 2), "another writes over it, and commits");
	is_u64(conflicts(&f), 0, "which is no conflict");
	ok(put(&f, 3, "three", 0) && put(&f, 4, "four!", 0) && commit(&f, 4) && commit(&f, 3), "two at once");
	ok(conflicts(&f) > 0, "are one");
	end(&f);
}

/* A promise of a home that was restarted is none. */
static void test_home_restarts(void)
{
	struct file f;
	struct core_open_reply reply;

	begin(&f);
	ok(put(&f, 1, "before", 0) && commit(&f, 1) && shows(&f, 2, "before"), "written, and read elsewhere");
	job_release(job_world_job(f.w, 0), f.at[0]);
	job_world_restart(f.w, 0);
	ok(put(&f, 1, "behind", 0) && commit(&f, 1), "written when the home is another one");
	ok(shows(&f, 2, "behind") && shows(&f, 3, "behind"), "and read");
	ok(put(&f, 3, "beyond", 0) && commit(&f, 3) && shows(&f, 2, "beyond"), "who has read is told by that one");
	is_int(job_open(job_world_job(f.w, 0), f.ino, O_RDWR, &f.at[0], &reply), 0, "opened at home again");
	ok(shows(&f, 0, "beyond"), "and read there");
	end(&f);
}

static _Atomic(uint64_t) dropped; /* a bit for each node whose kernel was told to forget pages */

static void note_dropped(uint32_t node, uint64_t ino, bool data, void *arg)
{
	(void)ino, (void)arg;
	if (data)
		dropped |= UINT64_C(1) << node;
}

static void nap(void)
{
	nanosleep(&(struct timespec){ .tv_nsec = 10000000 }, NULL);
}

static bool forgets_pages(uint32_t node)
{
	for (unsigned int i = 0; i < 6000 && !(dropped >> node & 1); i++)
		nap();
	return dropped >> node & 1;
}

/* Nobody could be told in time: agents that are there again are no reason to go on believing. */
static void test_agents_come_back(void)
{
	struct file f;

	begin_with(&f, &(struct job_world_options){ .num = NODES, .timeout_usec = 4000000, .invalidate = note_dropped },
		O_RDONLY);
	ok(put(&f, 0, "hello", 0) && commit(&f, 0) && shows(&f, 2, "hello"), "written at home, and read elsewhere");
	loopback_lose(job_world_loopback(f.w), 2);
	dropped = 0;
	ok(put(&f, 0, "hallo", 0) && commit(&f, 0),
		"written at home while there are no agents, longer than a call may last");
	is_u64(dropped & ~UINT64_C(1), 0, "of which nobody hears");
	loopback_assemble(job_world_loopback(f.w));
	loopback_settle(job_world_loopback(f.w));
	ok(shows(&f, 2, "hallo"), "who has read before the agents went reads it when they are back");
	ok(forgets_pages(2), "and its kernel forgets what it had read");
	end(&f);
}

/* Node 4 only reads meanwhile; it is neither a home nor the witness of a writer. */
static void test_reader_hangs(void)
{
	struct file f, g;
	bool good = true;
	uint64_t begin_usec;

	begin_with(&f,
		&(struct job_world_options){ .num = NODES, .timeout_usec = 12000000, .invalidate = note_dropped },
		O_RDWR);
	g.w = f.w;
	open_everywhere(&g, "g", O_RDWR);
	ok(put(&f, 4, "hello", 0) && commit(&f, 4) && shows(&f, 4, "hello"),
		"written, and read, which needs nobody else");
	ok(put(&g, 1, "hello", 0) && commit(&g, 1) && shows(&g, 4, "hello"), "another file likewise");
	loopback_set_hanging(job_world_loopback(f.w), 4, true);
	dropped = 0;
	begin_usec = clock_usec();
	ok(put(&f, 1, "hallo", 0) && commit(&f, 1), "a commit of which a node that hangs does not hear");
	ok(clock_usec() - begin_usec >= 6000000, "waits for it as long as it may believe what it knows");
	begin_usec = clock_usec();
	for (unsigned int i = 0; i < 4; i++)
		good = good && put(&f, i % 2, "hullo", 0) && commit(&f, i % 2) && put(&g, 1, "hullo", 0) &&
		       commit(&g, 1);
	ok(good, "so do others");
	ok(clock_usec() - begin_usec < 30000000, "without waiting, also those of other files");
	is_u64(dropped & 16, 0, "of which it hears nothing");
	loopback_set_hanging(job_world_loopback(f.w), 4, false);
	ok(shows(&f, 4, "hullo") && shows(&g, 4, "hullo"), "and reads what is new as soon as he can");
	ok(forgets_pages(4), "his kernel forgets what it had read");
	ok(put(&f, 1, "holla", 0) && commit(&f, 1) && shows(&f, 4, "holla"), "and it goes on as before");
	close_everywhere(&g);
	end(&f);
}

static void *read_hello(void *arg)
{
	struct file *f = arg;
	char buf[5];
	ssize_t got = job_read(job_world_job(f->w, 4), f->at[4], buf, sizeof(buf), 0);

	return got == sizeof(buf) && memcmp(buf, "hello", sizeof(buf)) == 0 ? f : NULL;
}

static uint64_t sent_by_reader(struct file *f)
{
	return job_world_job(f->w, 4)->share->messages;
}

/* It gets its places so late that a drain may have gone on without it: then what it knows of the backing file does not go with them. */
static void test_places_come_late(void)
{
	struct file f;
	pthread_t thread;
	void *good = NULL;

	begin(&f);
	ok(put(&f, 1, "hello", 0) && commit(&f, 1) && shows(&f, 4, "hello"), "written, and read elsewhere");
	struct shared *s = shared_find(job_world_job(f.w, 4), f.ino);
	pthread_mutex_lock(&s->mutex);
	s->epoch++; /* as after another change */
	pthread_mutex_unlock(&s->mutex);
	loopback_set_hanging(job_world_loopback(f.w), 4, true);
	uint64_t before = sent_by_reader(&f);
	if (pthread_create(&thread, NULL, read_hello, &f))
		exit(1);
	while (sent_by_reader(&f) == before)
		nap();
	pthread_mutex_lock(&s->mutex);
	ok(s->current, "a reader waits for places, and believes what it knows");
	s->promise_usec = 0;
	pthread_mutex_unlock(&s->mutex);
	loopback_set_hanging(job_world_loopback(f.w), 4, false);
	pthread_join(thread, &good);
	ok(good, "it reads what is there when they come");
	is_u64(sent_by_reader(&f) - before, 3, "but asks the home first, and for the places again");
	shared_put(job_world_job(f.w, 4), s);
	end(&f);
}

/* The word is lost with the home's own agent; the others have theirs all the time, so they hear of nothing. */
static void test_home_was_away(void)
{
	struct file f;

	begin_with(&f, &(struct job_world_options){ .num = NODES, .timeout_usec = 4000000, .invalidate = note_dropped },
		O_RDONLY);
	ok(put(&f, 0, "hello", 0) && commit(&f, 0) && shows(&f, 4, "hello"), "written at home, and read elsewhere");
	loopback_lose(job_world_loopback(f.w), 0);
	dropped = 0;
	ok(put(&f, 0, "hallo", 0) && commit(&f, 0), "written while the home has no agent");
	loopback_assemble(job_world_loopback(f.w));
	loopback_settle(job_world_loopback(f.w));
	ok(shows(&f, 4, "hallo"), "who has read before reads it when it has one");
	ok(forgets_pages(4), "and its kernel is told then");
	end(&f);
}

static bool is_known_open(struct file *f)
{
	struct job *j = job_world_job(f->w, 0);
	struct shared *s = shared_find(j, f->ino);
	bool open = s && registry_has_openers(s);

	shared_put(j, s);
	return open;
}

static void wait_longer_than_calls(void)
{
	for (unsigned int i = 0; i < 200; i++)
		nap();
}

/* What is closed meanwhile is closed. */
static void test_closed_meanwhile(void)
{
	struct file f;
	bool open = true;

	begin_with(&f, &(struct job_world_options){ .num = NODES, .timeout_usec = 1000000 }, O_RDONLY);
	loopback_lose(job_world_loopback(f.w), 2);
	for (uint32_t n = 1; n < NODES; n++)
		job_release(job_world_job(f.w, n), f.at[n]);
	wait_longer_than_calls();
	ok(is_known_open(&f), "closed while there are no agents, of which the home hears nothing");
	loopback_assemble(job_world_loopback(f.w));
	for (unsigned int i = 0; i < 6000 && open; i++, nap())
		open = is_known_open(&f);
	ok(!open, "it does when they are back");
	job_release(job_world_job(f.w, 0), f.at[0]);
	job_world_stop(f.w);
}

static void fill(struct job_world *w, uint32_t from, uint32_t to)
{
	struct wire_msg m = { 0 };

	message_init(&m, MESSAGE_FILE_FORGET);
	while (peers_tell(job_world_peers(w, from), to, &m) == 0)
		;
	wire_msg_free(&m);
}

/* In a domain of node 0, of which node 1 is told as a witness. */
static bool put_witnessed(struct file *f, const char *text)
{
	uint64_t off = 0;

	while (place_domain(f->ino, off, PLACE_DOMAIN_SIZE, NODES) != 0)
		off += PLACE_DOMAIN_SIZE;
	return put(f, 0, text, off);
}

static bool is_witness_away(struct file *f)
{
	return job_world_job(f->w, 0)->share->witness_away;
}

/* Node 1 would only know which bytes there are; the first fsync waits for it, no other one. */
static void test_witness_away(void)
{
	struct file f;
	bool good = true, away = true;
	uint64_t begin_usec;

	begin_with(&f,
		&(struct job_world_options){
			.num = NODES, .settings = "data=log,agent_timeout=1s", .timeout_usec = 1000000 },
		O_RDWR);
	for (uint32_t n = 1; n < NODES; n++)
		job_release(job_world_job(f.w, n), f.at[n]);
	for (unsigned int i = 0; i < 6000 && is_known_open(&f); i++)
		nap();
	ok(put_witnessed(&f, "all") && commit(&f, 0) && !is_witness_away(&f), "a commit of which a witness hears");
	loopback_lose(job_world_loopback(f.w), 1);
	begin_usec = clock_usec();
	for (unsigned int i = 0; i < 8; i++)
		good = good && put_witnessed(&f, "alone") && commit(&f, 0);
	ok(good, "commits of which it does not hear");
	ok(is_witness_away(&f), "which is noticed");
	ok(clock_usec() - begin_usec < 5000000, "only the first waits for it");
	fill(f.w, 0, 1);
	alarm(60);
	ok(put_witnessed(&f, "more") && job_flush(job_world_job(f.w, 0), f.at[0]) == 0,
		"closed when nothing more can be told");
	alarm(0);
	loopback_assemble(job_world_loopback(f.w));
	for (unsigned int i = 0; i < 600 && away; i++, nap())
		away = !put_witnessed(&f, "again") || !commit(&f, 0) || is_witness_away(&f);
	ok(!away, "and it hears again when it is back");
	job_release(job_world_job(f.w, 0), f.at[0]);
	job_world_stop(f.w);
}

/* Who closes does not wait for room, nor for ever for it. */
static void test_close_when_full(void)
{
	struct file f;

	begin_with(&f,
		&(struct job_world_options){
			.num = NODES, .settings = "data=log,agent_timeout=1s", .timeout_usec = 1000000 },
		O_RDWR);
	for (uint32_t n = 1; n < NODES; n++)
		job_release(job_world_job(f.w, n), f.at[n]);
	for (unsigned int i = 0; i < 6000 && is_known_open(&f); i++)
		nap();
	loopback_lose(job_world_loopback(f.w), 1);
	fill(f.w, 0, 1);
	alarm(60);
	ok(put_witnessed(&f, "full") && job_flush(job_world_job(f.w, 0), f.at[0]) == 0,
		"who closes does not wait for ever for room");
	alarm(0);
	loopback_assemble(job_world_loopback(f.w));
	job_release(job_world_job(f.w, 0), f.at[0]);
	job_world_stop(f.w);
}

/* The end of a name's lock, which finds too much waiting for the name's server. */
static void test_unlocked_late(void)
{
	struct job_world *w = job_world_start_with(&(struct job_world_options){ .num = 2, .timeout_usec = 2000000 });
	struct job *j = job_world_job(w, 0);
	struct name_ref ref = { .dir = 1 }, again = { .dir = 1 };
	char name[16];
	int rc = -ETIMEDOUT;
	unsigned int i = 0;

	do
		snprintf(name, sizeof(name), "n%u", i++);
	while (place_name(1, name, 2) != 1);
	ref.name = again.name = name;
	is_int(held_lock(j, &ref, 1), 0, "a name is locked at the other node");
	loopback_lose(job_world_loopback(w), 1);
	fill(w, 0, 1);
	held_unlock(j, &ref);
	loopback_assemble(job_world_loopback(w));
	for (i = 0; i < 200 && rc == -ETIMEDOUT; i++)
		rc = held_lock(job_world_job(w, 1), &again, 1);
	is_int(rc, 0, "its end is told when there is room again");
	if (rc == 0)
		held_unlock(job_world_job(w, 1), &again);
	job_world_stop(w);
}

int main(void)
{
	test_steps();
	test_late_readers();
	test_order_is_known();
	test_home_restarts();
	test_agents_come_back();
	test_reader_hangs();
	test_places_come_late();
	test_home_was_away();
	test_closed_meanwhile();
	test_witness_away();
	test_close_when_full();
	test_unlocked_late();
	return done_testing();
}
