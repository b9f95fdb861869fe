/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Nodes that write the same bytes one after the other, in an order that only the test knows: whose write was later wins, however
 * their commits come (docs/design/write-times.md).
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/falloc.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fs/job/private.h"
#include "fs/job/share.h"
#include "tests/lib/job_world.h"
#include "tests/lib/tap.h"

#define NODES   3u
#define SEC     INT64_C(1000000000)
#define SIZE    240u
#define CHANGES 120u

static const struct core_cred cred = { 0 };

struct file { /* open on all nodes, which commit when they are told to */
	struct job_world *w;
	uint64_t ino;
	struct job_file *at[NODES];
};

static _Noreturn void bail_out(const char *what, int rc)
{
	printf("Bail out! %s: %s\n", what, strerror(-rc));
	exit(1);
}

static void open_at(struct file *f, uint32_t node)
{
	struct core_open_reply reply;
	int rc = job_open(job_world_job(f->w, node), f->ino, O_RDWR, &f->at[node], &reply);

	if (rc)
		bail_out("a file cannot be opened", rc);
	job_world_job(f->w, node)->share->tell_usec = UINT64_MAX;
}

static void begin(struct file *f)
{
	struct core_open_reply reply;
	struct core_entry e;
	int rc;

	f->w = job_world_start(NODES);
	rc = job_create_file(job_world_job(f->w, 0), 1, "f", 0644, O_RDWR, cred, &e, &f->at[0], &reply);
	if (rc)
		bail_out("a file cannot be made", rc);
	f->ino = e.ino;
	job_world_job(f->w, 0)->share->tell_usec = UINT64_MAX;
	for (uint32_t n = 1; n < NODES; n++)
		open_at(f, n);
}

static void end(struct file *f)
{
	for (uint32_t n = 0; n < NODES; n++)
		job_release(job_world_job(f->w, n), f->at[n]);
	job_world_stop(f->w);
}

static bool put(struct file *f, uint32_t node, const char *text, uint64_t off)
{
	return job_write(job_world_job(f->w, node), f->at[node], text, strlen(text), off) == (ssize_t)strlen(text);
}

static bool commit(struct file *f, uint32_t node)
{
	return job_flush(job_world_job(f->w, node), f->at[node]) == 0;
}

static bool shows(struct file *f, uint32_t node, const char *text)
{
	char buf[SIZE + 1] = "";
	ssize_t got = job_read(job_world_job(f->w, node), f->at[node], buf, SIZE, 0);

	if (got != (ssize_t)strlen(text) || strcmp(buf, text) != 0) {
		tap_diag("node %u: %zd bytes: %s, not %s", node, got, buf, text);
		return false;
	}
	return true;
}

static bool all_show(struct file *f, const char *text)
{
	bool good = true;

	for (uint32_t n = 0; n < NODES; n++)
		good = shows(f, n, text) && good;
	return good;
}

/* ---- the later write wins */

static void test_order(uint32_t early, uint32_t late, bool late_first)
{
	struct file f;

	begin(&f);
	ok(put(&f, early, "........", 0) && put(&f, late, "data", 2), "node %u fills, then node %u writes over it",
		early, late);
	ok(commit(&f, late_first ? late : early) && commit(&f, late_first ? early : late), "%s commits first",
		late_first ? "who wrote later" : "who wrote before");
	ok(all_show(&f, "..data.."), "the later write is what all see");
	ok(put(&f, early, "again", 1) && commit(&f, early), "written over");
	ok(all_show(&f, ".again.."), "and so does what comes after that");
	end(&f);
}

/* What was written in between two of another node's writes lies between them, though these commit together. */
static void test_between(void)
{
	struct file f;

	begin(&f);
	ok(put(&f, 1, "aaaaaaaa", 0) && put(&f, 2, "bbbb", 2) && put(&f, 1, "cc", 3), "a, b over it, c over that");
	ok(commit(&f, 2) && commit(&f, 1), "committed by one and by the other");
	ok(all_show(&f, "aabccbaa"), "in the order of the writes");
	end(&f);
}

static void test_holes(void)
{
	struct file f;
	char buf[8];

	begin(&f);
	ok(put(&f, 1, "aaaaaaaa", 0) && commit(&f, 1), "a file");
	is_int(job_fallocate(job_world_job(f.w, 2), f.at[2], FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4), 0,
		"a hole is made");
	ok(put(&f, 1, "bb", 1) && commit(&f, 1) && commit(&f, 2), "and written to, which is committed first");
	for (uint32_t n = 0; n < NODES; n++)
		ok(job_read(job_world_job(f.w, n), f.at[n], buf, 8, 0) == 8 && memcmp(buf, "\0bb\0aaaa", 8) == 0,
			"it lies under the write");
	end(&f);
}

/* What its home had before others came is older than all that they write. */
static void test_before_shared(void)
{
	struct file f;
	struct core_open_reply reply;
	struct core_entry e;

	f.w = job_world_start(NODES);
	if (job_create_file(job_world_job(f.w, 0), 1, "f", 0644, O_RDWR, cred, &e, &f.at[0], &reply))
		exit(1);
	f.ino = e.ino;
	job_world_job(f.w, 0)->share->tell_usec = UINT64_MAX;
	ok(put(&f, 0, "........", 0), "written at home");
	open_at(&f, 1);
	open_at(&f, 2);
	ok(put(&f, 1, "data", 2) && commit(&f, 1) && commit(&f, 0), "others write over it, and commit first");
	ok(all_show(&f, "..data.."), "theirs is seen");
	end(&f);
}

/* ---- daemons that die */

/* What the dead daemon had not told is for the next one to tell, once it has found it. */
static void restart(struct file *f, uint32_t node)
{
	job_release(job_world_job(f->w, node), f->at[node]);
	job_world_restart(f->w, node);
	open_at(f, node);
	while (!job_world_job(f->w, node)->share->swept)
		usleep(1000);
}

static void test_restart(uint32_t node)
{
	struct file f;

	begin(&f);
	ok(put(&f, 1, "........", 0) && put(&f, 2, "data", 2), "written, and written over");
	restart(&f, node);
	ok(commit(&f, 2) && commit(&f, 1) && commit(&f, 0), "node %u's daemon is restarted, then all commit", node);
	restart(&f, node);
	ok(all_show(&f, "..data.."), "in the order of the writes");
	end(&f);
}

struct flush {
	struct file *f;
	uint32_t node;
};

static void *flush_one(void *arg)
{
	const struct flush *fl = arg;

	(void)commit(fl->f, fl->node);
	return NULL;
}

static bool has_uncommitted(struct file *f, uint32_t node)
{
	struct extent first;
	uint64_t next;
	size_t num;

	return state_uncommitted(store_state(job_world_store(f->w, node)), f->ino, 0, &first, 1, &num, &next) == 0 &&
	       num > 0;
}

/* A daemon dies when it has noted its commit, and before it has told the home how long the file is by it. */
static void test_tail(void)
{
	struct loopback *l;
	pthread_t thread;
	struct file f;

	begin(&f);
	l = job_world_loopback(f.w);
	uint32_t domain = place_domain(f.ino, 0, PLACE_DOMAIN_SIZE, NODES), node = domain == 1 ? 2 : 1;
	struct flush fl = { &f, node };
	ok(put(&f, 0, "....", 0) && commit(&f, 0) && put(&f, node, "tail", 4), "written behind the end");
	loopback_settle(l);
	loopback_lose_at_reply(l, domain, MESSAGE_SHARE_PUT);
	if (pthread_create(&thread, NULL, flush_one, &fl))
		exit(1);
	loopback_await_loss(l, domain);
	ok(!has_uncommitted(&f, node), "and noted as committed");
	loopback_kill(l, node);
	job_shut_down(job_world_job(f.w, node));
	pthread_join(thread, NULL);
	restart(&f, node);
	ok(commit(&f, node) && all_show(&f, "....tail"), "the next daemon tells it");
	end(&f);
}

/* ---- a cut between a commit's begin and its stamp */

static struct shared *shared_at(struct file *f, uint32_t node)
{
	struct shared *s = shared_find(job_world_job(f->w, node), f->ino);

	if (!s)
		bail_out("a file is not known", -ENOENT);
	return s;
}

/* As a cut does while it is on its way: whoever asks for a stamp waits. */
static void stop_stamps(struct shared *s)
{
	pthread_mutex_lock(&s->mutex);
	s->cutting = true;
	pthread_mutex_unlock(&s->mutex);
}

static bool is_asked_for_stamp(struct shared *s)
{
	pthread_mutex_lock(&s->mutex);
	bool asked = s->num_waiting > 0;
	pthread_mutex_unlock(&s->mutex);
	return asked;
}

/* How far a node has written is not so any more when the home has cut that off before it gives the stamp. */
static void test_cut(uint32_t node)
{
	struct flush fl;
	struct file f;
	pthread_t thread;

	begin(&f);
	fl = (struct flush){ &f, node };
	ok(put(&f, 0, "....", 0) && commit(&f, 0) && put(&f, node, "far", 100), "written, the end by node %u", node);
	struct shared *s = shared_at(&f, 0);
	stop_stamps(s);
	if (pthread_create(&thread, NULL, flush_one, &fl))
		exit(1);
	while (!is_asked_for_stamp(s))
		usleep(1000);
	is_int(share_truncate(job_world_job(f.w, 1), f.ino, 2), 0, "cut when the commit has begun");
	pthread_join(thread, NULL);
	ok(all_show(&f, ".."), "it stays as short as that");
	ok(put(&f, node, "end", 3) && commit(&f, node), "what is written afterwards");
	shared_put(job_world_job(f.w, 0), s);
	char buf[8] = "";
	ok(job_read(job_world_job(f.w, 0), f.at[0], buf, sizeof(buf), 0) == 6 && memcmp(buf, "..\0end", 6) == 0,
		"makes it longer");
	end(&f);
}

/* What a node says to the home that has not heard of the last cut, and whose file had 104 bytes. */
static int say_old_end(struct file *f, struct wire_msg *m, enum message_tag end, struct wire_msg *ret_reply)
{
	message_put(m, MESSAGE_SHARE_INO, f->ino);
	message_put(m, MESSAGE_SHARE_AT_STAMP, 1);
	message_put(m, end, 104);
	int rc = peers_call(job_world_job(f->w, 1)->peers, 0, m, ret_reply);
	wire_msg_free(m);
	wire_msg_free(ret_reply);
	return rc;
}

struct teller {
	struct file *f;
	_Atomic(bool) enough;
	unsigned int failed;
};

static void *tell_old_commits(void *arg)
{
	struct teller *t = arg;

	while (!t->enough) {
		struct wire_msg m = { 0 }, reply = { 0 };

		message_init(&m, MESSAGE_SHARE_COMMITTED);
		t->failed += say_old_end(t->f, &m, MESSAGE_SHARE_SIZE, &reply) != 0;
	}
	return NULL;
}

static uint64_t size_at_home(struct file *f)
{
	struct inode in = { 0 };

	(void)state_inode(store_state(job_world_store(f->w, 0)), f->ino, &in);
	return in.size;
}

/* A commit of before a cut is told again and again while files are cut: the file does not grow by that. */
static void test_told_again(void)
{
	unsigned int wrong = 0;
	struct file f;
	pthread_t thread;

	begin(&f);
	ok(put(&f, 0, "....", 0) && commit(&f, 0) && put(&f, 1, "far", 101) && commit(&f, 1), "written");
	is_int(share_truncate(job_world_job(f.w, 2), f.ino, 3), 0, "and cut");
	struct teller t = { .f = &f };
	if (pthread_create(&thread, NULL, tell_old_commits, &t))
		exit(1);
	for (unsigned int i = 0; i < 300; i++) {
		if (share_truncate(job_world_job(f.w, 2), f.ino, 2 + i % 2))
			exit(1);
		wrong += size_at_home(&f) != 2 + i % 2;
	}
	t.enough = true;
	pthread_join(thread, NULL);
	is_int(t.failed, 0, "told again all the time");
	is_int(wrong, 0, "it is as long as it was cut");
	is_u64(size_at_home(&f), 3, "also in the end");
	end(&f);
}

/* Who opens it says how far he has written. What was cut off of that since is not where the next append goes. */
static void test_registered_late(void)
{
	struct wire_msg m = { 0 }, reply = { 0 };
	struct file f;

	begin(&f);
	ok(put(&f, 0, "....", 0) && commit(&f, 0) && put(&f, 1, "far", 101) && commit(&f, 1), "written");
	is_int(share_truncate(job_world_job(f.w, 2), f.ino, 2), 0, "and cut");
	message_init(&m, MESSAGE_SHARE_REGISTER);
	message_put(&m, MESSAGE_SHARE_READERS, 1);
	message_put(&m, MESSAGE_SHARE_WRITERS, 1);
	message_put(&m, MESSAGE_SHARE_TIME, (uint64_t)clock_now(state_clock(store_state(job_world_store(f.w, 1)))));
	is_int(say_old_end(&f, &m, MESSAGE_SHARE_END, &reply), 0, "opened by who has not heard of it");
	message_init(&m, MESSAGE_SHARE_APPEND);
	message_put(&m, MESSAGE_SHARE_INO, f.ino);
	message_put(&m, MESSAGE_SHARE_LEN, 1);
	message_put(&m, MESSAGE_FLAGS, 1);
	is_int(peers_call(job_world_job(f.w, 1)->peers, 0, &m, &reply), 0, "appended to");
	is_u64(message_get(&reply, MESSAGE_SHARE_OFF), 2, "at its end");
	wire_msg_free(&m);
	wire_msg_free(&reply);
	end(&f);
}

static struct clock *clock_of(struct file *f, uint32_t node)
{
	return state_clock(store_state(job_world_store(f->w, node)));
}

/* A clock that was ahead does not go back with its daemon. */
static void test_clock_lasts(void)
{
	struct file f;

	begin(&f);
	clock_shift(clock_of(&f, 1), 1000 * SEC);
	int64_t before = clock_now(clock_of(&f, 1));
	ok(put(&f, 1, "data", 0), "written by a node whose clock is ahead");
	job_release(job_world_job(f.w, 1), f.at[1]);
	job_world_kill(f.w, 1);
	job_world_revive(f.w, 1);
	open_at(&f, 1);
	ok(clock_now(clock_of(&f, 1)) > before, "its next daemon's is, too");
	ok(put(&f, 1, "DATA", 0) && commit(&f, 1), "so it can write over that");
	ok(all_show(&f, "DATA"), "and it is seen");
	end(&f);
}

/* ---- clocks that differ */

/* Who has heard of a commit is later than it, whatever his clock says. */
static void test_heard(void)
{
	struct file f;

	begin(&f);
	clock_shift(clock_of(&f, 1), 1000 * SEC);
	ok(put(&f, 1, "........", 0) && commit(&f, 1), "written by a node whose clock is far ahead, and committed");
	ok(put(&f, 2, "data", 2) && commit(&f, 2), "written over by one that was told");
	ok(all_show(&f, "..data.."), "which is seen");
	ok(clock_now(clock_of(&f, 2)) > clock_now(clock_of(&f, 1)) - SEC, "its clock has been set by the message");
	end(&f);
}

/* Any message does: here a lookup of something else. Clocks are then apart by no more than what it took. */
static void test_message(void)
{
	struct core_entry e;
	struct file f;

	begin(&f);
	clock_shift(clock_of(&f, 0), 1000 * SEC);
	ok(put(&f, 0, "........", 0), "written by a node whose clock is far ahead");
	for (uint32_t i = 0; i < 64; i++) { /* names have different servers: node 2 asks node 0 for some */
		char name[8];

		snprintf(name, sizeof(name), "n%u", i);
		(void)job_lookup(job_world_job(f.w, 2), 1, name, &e);
	}
	ok(put(&f, 2, "data", 2), "written over by one that has heard something of it");
	ok(commit(&f, 2) && commit(&f, 0), "committed");
	ok(all_show(&f, "..data.."), "in the order of the writes");
	end(&f);
}

/*
 * The limit: two nodes that have not heard of each other since their clocks went apart, and whose clocks differ by more than lies
 * between the writes. All see the same even then, and it is a conflict.
 */
static int count_conflict(const struct share_conflict *c, void *arg)
{
	(void)c;
	++*(unsigned int *)arg;
	return 0;
}

/* Any message on its way would set node 2's clock: then the next file is to show it. */
static void write_apart(struct file *f)
{
	bool apart = false;

	for (int tries = 0; !apart && tries < 100; tries++) {
		if (tries > 0)
			end(f);
		begin(f);
		loopback_settle(job_world_loopback(f->w));
		clock_shift(clock_of(f, 1), 1000 * SEC);
		bool is_put = put(f, 1, "........", 0) && put(f, 2, "data", 2);
		apart = is_put && clock_now(clock_of(f, 1)) - clock_now(clock_of(f, 2)) > 500 * SEC;
	}
	ok(apart, "written over by a node whose clock is far behind");
}

static void test_limit(void)
{
	unsigned int conflicts = 0;
	uint64_t more = 0;
	struct file f;

	write_apart(&f);
	ok(commit(&f, 2) && commit(&f, 1), "committed");
	ok(all_show(&f, "........"), "by the clocks it was before");
	for (uint32_t n = 0; n < NODES; n++)
		is_int(state_conflicts(store_state(job_world_store(f.w, n)), f.ino, count_conflict, &conflicts, &more),
			0, "asked");
	is_int(conflicts, 1, "it is listed as a conflict");
	end(&f);
}

/* ---- many writes, of which the test alone knows the order */

struct random {
	uint64_t at;
};

static uint32_t draw(struct random *r, uint32_t below)
{
	r->at = r->at * UINT64_C(6364136223846793005) + 1442695040888963407;
	return (uint32_t)(r->at >> 33) % below;
}

static void change(struct file *f, struct random *r, char *model)
{
	uint32_t node = draw(r, NODES), off = draw(r, SIZE - 40), len = 1 + draw(r, 40);
	char text[41] = "";

	if (draw(r, 8) == 0) {
		(void)commit(f, node);
		return;
	}
	memset(text, (int)('a' + draw(r, 26)), len);
	if (!put(f, node, text, off))
		exit(1);
	memcpy(model + off, text, len);
}

static void test_many(uint64_t seed)
{
	struct random r = { seed };
	char model[SIZE + 1] = "";
	struct file f;

	begin(&f);
	memset(model, '.', SIZE);
	ok(put(&f, (uint32_t)seed % NODES, model, 0), "a file (seed %lu)", (unsigned long)seed);
	for (unsigned int i = 0; i < CHANGES; i++)
		change(&f, &r, model);
	if (seed % 3 == 0)
		restart(&f, draw(&r, NODES));
	for (uint32_t n = 0, first = draw(&r, NODES); n < NODES; n++)
		ok(commit(&f, (first + n) % NODES), "committed");
	if (seed % 3 == 1)
		restart(&f, draw(&r, NODES));
	ok(all_show(&f, model), "all see the writes in their order");
	end(&f);
}

/* ---- the file's time */

static int64_t mtime_of(struct file *f, uint32_t node)
{
	struct core_entry e;
	int rc = job_getattr(job_world_job(f->w, node), f->ino, f->at[node], &e);

	return rc ? rc : e.attr.st_mtim.tv_sec * SEC + e.attr.st_mtim.tv_nsec;
}

static int set_mtime(struct file *f, uint32_t node, time_t sec)
{
	struct stat attr = { .st_mtim = { .tv_sec = sec } };
	struct core_entry e;

	return job_setattr(job_world_job(f->w, node), f->ino, &attr, CORE_SET_MTIME, NULL, &e);
}

/* Of writes and utimes the later call counts, whichever node commits when. Nodes 0 (the home) and 2 set times, node 1 writes. */
static void test_mtime(void)
{
	struct core_entry e;
	struct file f;

	begin(&f);
	for (uint32_t n = 1; n < NODES; n++)
		is_int(job_lookup(job_world_job(f.w, n), 1, "f", &e), 0, "known to the others");
	ok(put(&f, 1, "first", 0), "written");
	int64_t written = mtime_of(&f, 1);
	usleep(2000);
	ok(commit(&f, 1), "and committed");
	is_int(mtime_of(&f, 2), written, "it was changed when it was written, not when that was committed");
	for (uint32_t n = 0; n < NODES; n += 2) {
		ok(put(&f, 1, "again", 0), "written again");
		is_int(set_mtime(&f, n, 1000000000), 0, "then another node sets the time");
		is_int(mtime_of(&f, 2), 1000000000 * SEC, "at once");
		ok(commit(&f, 1), "and then the write is committed");
		is_int(mtime_of(&f, 2), 1000000000 * SEC, "the time stays as it was set");
	}
	ok(put(&f, 1, "later", 0) && commit(&f, 1), "what is written afterwards");
	ok(mtime_of(&f, 2) > written, "changes it");
	for (uint32_t n = 1; n < NODES; n++)
		job_forget(job_world_job(f.w, n), f.ino, 1);
	end(&f);
}

static int retell(struct file *f, uint32_t node)
{
	struct job *j = job_world_job(f->w, node);
	struct shared *s = shared_get(j, f->ino);
	int rc = share_retell(j, s);

	shared_put(j, s);
	return rc;
}

/* The home's daemon dies when times have been set: they stay, though what was written before is committed, or told again, to the next one. */
static void test_mtime_restart(bool checkpoint)
{
	struct file f;

	begin(&f);
	for (int committed = 0; committed < 2; committed++) {
		ok(put(&f, 1, "text", 0), "written");
		if (committed)
			ok(commit(&f, 1), "and committed");
		is_int(set_mtime(&f, 0, 1000000000), 0, "its home sets the time");
		if (checkpoint)
			is_int(state_checkpoint(store_state(job_world_store(f.w, 0))), 0, "and makes a checkpoint");
		restart(&f, 0);
		ok(committed ? retell(&f, 1) == 0 : commit(&f, 1), "the next daemon is told of the write");
		is_int(mtime_of(&f, 0), 1000000000 * SEC, "the time stays as it was set");
	}
	ok(put(&f, 1, "later", 0) && commit(&f, 1), "what is written afterwards");
	ok(mtime_of(&f, 0) > 1000000000 * SEC, "changes it");
	end(&f);
}

int main(void)
{
	test_tail();
	for (uint32_t n = 0; n < NODES; n += 2)
		test_cut(n);
	test_told_again();
	test_registered_late();
	test_order(1, 2, true);
	test_order(1, 2, false);
	test_order(0, 1, true);
	test_order(2, 0, true);
	test_between();
	test_holes();
	test_before_shared();
	for (uint32_t n = 0; n < NODES; n++)
		test_restart(n);
	test_clock_lasts();
	test_heard();
	test_message();
	test_limit();
	test_mtime();
	test_mtime_restart(false);
	test_mtime_restart(true);
	for (uint64_t seed = 1; seed <= 12; seed++)
		test_many(seed);
	return done_testing();
}
