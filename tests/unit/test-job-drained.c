/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * What nodes see of files while, and after, a drain has carried them: the bytes leave maps and layers and are in the backing file from
 * then on. The drain's steps are done here by hand, one after the other, so that something can happen between any two.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fs/drain/ready.h"
#include "fs/job/private.h"
#include "fs/job/share.h"
#include "tests/lib/job_world.h"
#include "tests/lib/tap.h"

#define NODES       2u
#define BEGIN_TRIES 3000

static const struct core_cred cred = { 0 };

struct file { /* its home is node 0 */
	struct job_world *w;
	uint64_t ino;
	struct job_file *at[NODES]; /* NULL: not open there */
	/* of the drain */
	uint64_t stamp, time_usec, upto[NODES], size;
	struct stat st;
};

static void close_at(struct file *f, uint32_t node)
{
	struct job *j = job_world_job(f->w, node);

	if (!f->at[node])
		return;
	is_int(job_flush(j, f->at[node]), 0, "closed on a node");
	job_release(j, f->at[node]);
	f->at[node] = NULL;
}

static void open_at(struct file *f, uint32_t node, int flags)
{
	struct core_open_reply reply;

	close_at(f, node);
	is_int(job_open(job_world_job(f->w, node), f->ino, flags, &f->at[node], &reply), 0, "opened on a node");
}

static void begin(struct file *f)
{
	struct core_open_reply reply;
	struct core_entry e;

	*f = (struct file){ .w = job_world_start(NODES) };
	is_int(job_create_file(job_world_job(f->w, 0), 1, "f", 0644, O_RDWR, cred, &e, &f->at[0], &reply), 0,
		"a file is made");
	f->ino = e.ino;
	for (uint32_t n = 0; n < NODES; n++)
		job_world_job(f->w, n)->share->tell_usec = UINT64_MAX;
}

static void end(struct file *f)
{
	for (uint32_t n = 0; n < NODES; n++)
		close_at(f, n);
	job_world_stop(f->w);
}

static void put(struct file *f, uint32_t node, const char *text, uint64_t off)
{
	struct job *j = job_world_job(f->w, node);

	is_int(job_write(j, f->at[node], text, strlen(text), off), (int)strlen(text), "a node writes");
	is_int(job_fsync(j, f->ino, f->at[node], false), 0, "and commits");
}

static void cut(struct file *f, uint32_t node, uint64_t size)
{
	is_int(share_truncate(job_world_job(f->w, node), f->ino, size), 0, "a node cuts it");
}

/* All nodes read the same: those that have it open, and after an opening. "." stands for zero. */
static void all_read(struct file *f, const char *text)
{
	size_t len = strlen(text);

	for (uint32_t n = 0; n < NODES; n++) {
		char got[64] = "";

		if (!f->at[n])
			open_at(f, n, O_RDONLY);
		ssize_t num = job_read(job_world_job(f->w, n), f->at[n], got, sizeof(got) - 1, 0);
		for (ssize_t i = 0; i < num; i++)
			got[i] = got[i] ? got[i] : '.';
		ok(num == (ssize_t)len && memcmp(got, text, len) == 0, "node %u reads %s: %s (%zd)", n, text, got, num);
	}
}

/* ---- the drain */

static struct store *home_store(struct file *f)
{
	return job_world_store(f->w, 0);
}

/* Part begin: what is in there now is what will be carried. bytes: that. */
static void drain_begins(struct file *f, const char *bytes)
{
	char path[4096 + 8];

	/* -EBUSY: the nodes have not yet agreed that none of them has lost its power; or a cut is under way. */
	int rc = -EBUSY;
	for (int tries = 0; rc == -EBUSY && tries < BEGIN_TRIES; tries++) {
		rc = job_drain_stamp(job_world_job(f->w, 0), f->ino, &f->stamp);
		if (rc == -EBUSY)
			usleep(10000);
	}
	is_int(rc, 0, "a drain begins");
	f->time_usec = (uint64_t)clock_now(state_clock(store_state(home_store(f)))) / 1000u;
	for (uint32_t n = 0; n < NODES; n++)
		f->upto[n] = state_seq(store_state(job_world_store(f->w, n)));
	snprintf(path, sizeof(path), "%s/f", job_world_backing(f->w));
	int fd = open(path, O_CREAT | O_TRUNC | O_RDWR, 0644);
	f->size = strlen(bytes);
	ok(fd >= 0 && write(fd, bytes, f->size) == (ssize_t)f->size && fstat(fd, &f->st) == 0, "carries it");
	close(fd);
}

/* Part files, without what other nodes are told. */
static void drain_publishes(struct file *f)
{
	struct record placed = { .type = RECORD_PLACED,
		.ino = f->ino,
		.parent = 1,
		.name = "f",
		.backing_dev = f->st.st_dev,
		.backing_ino = f->st.st_ino };
	struct record drained = { .type = RECORD_DRAINED,
		.ino = f->ino,
		.flags = RECORD_F_TIMED,
		.upto = f->upto[0],
		.stamp = f->stamp,
		.drop_usec = f->time_usec,
		.size = f->size,
		.backing_dev = f->st.st_dev,
		.backing_ino = f->st.st_ino };

	is_int(core_drain_step(job_world_core(f->w, 0), &placed), 0, "publishes it");
	is_int(core_drain_step(job_world_core(f->w, 0), &drained), 0, "says so");
}

/* Part drop. */
static void drain_drops(struct file *f)
{
	for (uint32_t n = 0; n < NODES; n++) {
		struct record drop = { .type = RECORD_SHARE_DROP,
			.flags = RECORD_F_TIMED,
			.ino = f->ino,
			.stamp = f->stamp,
			.drop_usec = f->time_usec };
		struct record layer = { .type = RECORD_DRAINED, .ino = f->ino, .upto = f->upto[n], .size = f->size };
		struct store *s = job_world_store(f->w, n);
		struct inode in;

		is_int(store_commit(s, &drop), 0, "a node drops the map");
		if (n && state_inode(store_state(s), f->ino, &in) == 0)
			is_int(store_commit(s, &layer), 0, "and its layer");
	}
}

static void drain_ends(struct file *f)
{
	drain_publishes(f);
	job_drained(job_world_job(f->w, 0), f->ino);
	if (f->stamp)
		drain_drops(f);
}

/* ---- */

static void share_it(struct file *f)
{
	begin(f);
	put(f, 0, "0123456789", 0);
	open_at(f, 1, O_RDWR);
	put(f, 1, "AB", 0);
}

/* The drained bytes show, though the file has changed meanwhile and stays dirty. */
static void test_written_meanwhile(void)
{
	struct file f;

	share_it(&f);
	drain_begins(&f, "AB23456789");
	put(&f, 1, "zz", 12);
	drain_ends(&f);
	all_read(&f, "AB23456789..zz");
	put(&f, 0, "y", 2);
	close_at(&f, 0);
	close_at(&f, 1);
	all_read(&f, "ABy3456789..zz");
	end(&f);
}

/* What was cut off meanwhile does not come back. */
static void test_cut_meanwhile(void)
{
	struct inode in = { 0 };
	struct file f;

	share_it(&f);
	drain_begins(&f, "AB23456789");
	cut(&f, 1, 6);
	cut(&f, 0, 4);
	cut(&f, 1, 8);
	put(&f, 1, "zz", 12);
	drain_ends(&f);
	all_read(&f, "AB23........zz");
	is_int(state_inode(store_state(home_store(&f)), f.ino, &in), 0, "the home knows it");
	is_u64(in.backing_limit, 4, "so far the backing file counts");
	end(&f);
}

/* A cut that is older than the drain does not hide what that has carried, whoever still knows of it. */
static void test_cut_before(bool reopened)
{
	struct file f;

	share_it(&f);
	cut(&f, 1, 1);
	put(&f, 1, "new", 1);
	put(&f, 0, "er", 4);
	if (reopened) {
		close_at(&f, 0);
		close_at(&f, 1);
	}
	drain_begins(&f, "Anewer");
	drain_ends(&f);
	all_read(&f, "Anewer");
	open_at(&f, 1, O_RDWR);
	all_read(&f, "Anewer");
	put(&f, 1, "W", 1);
	all_read(&f, "AWewer");
	end(&f);
}

/* Between the drain's step and its news at another node. */
static void test_before_told(bool shared)
{
	struct file f;

	if (shared) {
		share_it(&f);
		drain_begins(&f, "AB23456789");
	} else {
		begin(&f);
		put(&f, 0, "AB23456789", 0);
		close_at(&f, 0);
		open_at(&f, 1, O_RDONLY);
		drain_begins(&f, "AB23456789");
		f.stamp = 0;
	}
	drain_publishes(&f);
	all_read(&f, "AB23456789");
	job_drained(job_world_job(f.w, 0), f.ino);
	all_read(&f, "AB23456789");
	end(&f);
}

/* What the agent's snapshot has of the file at node 0. */
static struct wire_shared seen(struct file *f)
{
	struct state *st = store_state(home_store(f));
	struct inode in;

	if (state_inode(st, f->ino, &in) < 0)
		exit(1);
	return (struct wire_shared){
		.ino = f->ino, .size = in.size, .limit = in.backing_limit, .upto = state_seq(st), .in_place = true
	};
}

static void drops(struct file *f, uint32_t node)
{
	is_int(job_drop_drained(job_world_job(f->w, node),
		       &(struct drained){ .ino = f->ino, .stamp = f->stamp, .time_usec = f->time_usec }),
		0, "a node does its part drop");
}

/*
 * Nodes do part drop one after the other, or miss it, while their programs go on: what they still have is not read any more, nor what it hid. The
 * drain writes other letters, so that it shows where bytes are read from.
 */
static void test_dropped_by_some(unsigned int dropped)
{
	struct file f;

	share_it(&f);
	put(&f, 0, "C", 1);
	drain_begins(&f, "acdefghijk");
	put(&f, 1, "new", 6);
	drain_publishes(&f);
	job_drained(job_world_job(f.w, 0), f.ino);
	for (uint32_t n = 0; n < NODES; n++)
		if (dropped & 1u << n)
			drops(&f, n);
	all_read(&f, "acdefgnewk");
	put(&f, 0, "Y", 1);
	all_read(&f, "aYdefgnewk");
	cut(&f, 1, 4);
	put(&f, 0, "Z", 5);
	all_read(&f, "aYde.Z");
	end(&f);
}

/* Nobody has dropped anything, and nodes go on: the next session knows from the home what it is not to take from maps again. */
static void test_not_dropped(void)
{
	struct share_extent ext[8];
	struct file f;
	uint64_t next;
	size_t num;

	share_it(&f);
	put(&f, 1, "far", PLACE_DOMAIN_SIZE);
	drain_begins(&f, "AB23456789");
	drain_publishes(&f);
	put(&f, 1, "x", 3);
	struct wire_shared w = seen(&f);
	is_int(ready_shared(job_world_job(f.w, 0), store_state(home_store(&f)), 0, &w), 0, "it can be drained again");
	is_u64(w.drained_stamp, f.stamp, "with what was carried before: up to that stamp,");
	is_u64(w.drained_usec, f.time_usec, "and that time");
	for (unsigned int again = 0; again < 2; again++)
		for (uint32_t n = 0; n < NODES; n++)
			is_int(job_know_drained(job_world_job(f.w, n),
				       &(struct drained){
					       .ino = f.ino, .stamp = w.drained_stamp, .time_usec = w.drained_usec }),
				0, "a node hears of that");
	for (uint64_t off = 0; off <= PLACE_DOMAIN_SIZE; off += PLACE_DOMAIN_SIZE) {
		uint32_t domain = place_domain(f.ino, off, PLACE_DOMAIN_SIZE, NODES);
		struct state *st = store_state(job_world_store(f.w, domain));

		is_int(state_share_extents(st, f.ino, off, 10, ext, 8, &num, &next), 0, "a map");
		ok(off ? num == 0 : num == 1 && ext[0].off == 3 && ext[0].len == 1, "has only what is new");
	}
	end(&f);
}

/* Others begin to write to it while its home's agent carries it: of what it had written the domain homes have been told. */
static void test_shared_meanwhile(void)
{
	struct layer_extent ext[4];
	struct file f;
	uint64_t next;
	size_t num = 0;

	begin(&f);
	put(&f, 0, "0123456789", 0);
	close_at(&f, 0);
	drain_begins(&f, "0123456789");
	f.stamp = 0;
	open_at(&f, 1, O_RDWR);
	put(&f, 1, "AB", 0);
	drain_ends(&f);
	ok(state_layer(store_state(home_store(&f)), f.ino, 0, 10, ext, 4, &num, &next) == 0 && num > 0,
		"what nodes are told of a file's places stays there, though the drain has carried it");
	all_read(&f, "AB23456789");
	end(&f);
}

/* Between the agent's snapshot and its look at the file. */
static void test_not_ready(void)
{
	struct file f;

	share_it(&f);
	drain_begins(&f, "AB23456789");
	drain_ends(&f);
	struct state *st = store_state(home_store(&f));
	struct job *j = job_world_job(f.w, 0);
	struct wire_shared w = seen(&f);
	put(&f, 1, "x", 3);
	is_int(ready_shared(j, st, 0, &w), 0, "a file that nodes write to can be drained");
	w = seen(&f);
	cut(&f, 1, 0);
	put(&f, 1, "y", 12);
	is_int(ready_shared(j, st, 0, &w), -EBUSY,
		"one that was cut since the agent's snapshot cannot, though it is as long again");
	w = seen(&f);
	is_int(ready_shared(j, st, 0, &w), 0, "the next session can");
	close_at(&f, 0);
	close_at(&f, 1);
	is_int(job_unlink(j, 1, "f"), 0, "it is removed");
	is_int(ready_shared(j, st, 0, &w), -EBUSY, "what was removed is in no session");
	w.ino++;
	is_int(ready_shared(j, st, 0, &w), -EBUSY, "nor what the store does not know any more");
	end(&f);
}

/* An agent gives a name to what its snapshot has, though the mount has taken it away: no node sees that. */
static void test_removed_meanwhile(bool renamed)
{
	struct file f;

	begin(&f);
	put(&f, 0, "0123456789", 0);
	core_session_begin(job_world_core(f.w, 0), false);
	drain_begins(&f, "");
	is_int(renamed ? job_rename(job_world_job(f.w, 0), 1, "f", 1, "g", 0)
		       : job_unlink(job_world_job(f.w, 0), 1, "f"),
		0, "the name goes while its node drains");
	for (uint32_t n = 0; n < NODES; n++) {
		struct core_entry e;

		is_int(job_lookup(job_world_job(f.w, n), 1, "f", &e), -ENOENT, "what appears under it is not shown");
	}
	drain_publishes(&f);
	core_session_end(job_world_core(f.w, 0));
	for (uint32_t n = 0; n < NODES; n++) {
		struct core_entry e;

		is_int(job_lookup(job_world_job(f.w, n), 1, "f", &e), -ENOENT, "nor when that is known");
	}
	end(&f);
}

/* Elsewhere the backing file is known by a path, where something else may be by now. */
static void test_moved_meanwhile(void)
{
	char from[4096 + 8], to[4096 + 8];
	struct file f;

	begin(&f);
	put(&f, 0, "0123456789", 0);
	close_at(&f, 0);
	drain_begins(&f, "0123456789");
	f.stamp = 0;
	drain_ends(&f);
	open_at(&f, 1, O_RDONLY);
	is_int(job_rename(job_world_job(f.w, 0), 1, "f", 1, "g", 0), 0,
		"a drained file that is open elsewhere is renamed");
	snprintf(from, sizeof(from), "%s/f", job_world_backing(f.w));
	snprintf(to, sizeof(to), "%s/g", job_world_backing(f.w));
	struct record moved = { .type = RECORD_PLACED,
		.flags = RECORD_F_MOVED,
		.ino = f.ino,
		.parent = 1,
		.name = "g",
		.from_parent = 1,
		.from_name = "f",
		.backing_dev = f.st.st_dev,
		.backing_ino = f.st.st_ino };
	is_int(rename(from, to), 0, "the next drain moves it");
	is_int(core_drain_step(job_world_core(f.w, 0), &moved), 0, "and says so");
	int fd = open(from, O_CREAT | O_RDWR, 0644);
	ok(fd >= 0 && write(fd, "another", 7) == 7, "another file gets the old name");
	close(fd);
	all_read(&f, "0123456789");
	end(&f);
}

/* The next drain, when the file has no name any more; something else comes there. */
static void drain_removes(struct file *f)
{
	uint32_t home = place_ino(f->ino, NODES);
	struct record removed = { .type = RECORD_REMOVED, .ino = f->ino, .parent = 1, .name = "f" };
	char path[4096 + 8];

	snprintf(path, sizeof(path), "%s/f", job_world_backing(f->w));
	is_int(unlink(path), 0, "a drain removes what has no name");
	int fd = open(path, O_CREAT | O_EXCL | O_RDWR, 0644);
	ok(fd >= 0 && write(fd, "another", 7) == 7, "another file gets its place");
	close(fd);
	is_int(core_drain_step(job_world_core(f->w, home), &removed), 0, "and says so");
}

static void says_size(struct file *f, uint32_t node, uint64_t size)
{
	struct core_entry e;

	is_int(job_getattr(job_world_job(f->w, node), f->ino, f->at[node], &e), 0, "a node has its attributes");
	is_int((long long)e.attr.st_size, (long long)size, "its size");
	is_int((int)e.attr.st_nlink, 0, "and no link");
}

static void seeks(struct file *f, uint32_t node, uint64_t hole)
{
	struct job *j = job_world_job(f->w, node);
	uint64_t at = 99;

	is_int(job_lseek(j, f->at[node], 2, SEEK_DATA, &at), 0, "data is looked for");
	is_int((long long)at, 2, "and there");
	is_int(job_lseek(j, f->at[node], 2, SEEK_HOLE, &at), 0, "so is a hole");
	is_int((long long)at, (long long)hole, "behind it");
}

/* What is open elsewhere, but was never read there, has its bytes in a backing file without a name. */
static void test_removed_while_open(int flags, bool seeks_first)
{
	struct core_entry e;
	struct file f;

	begin(&f);
	put(&f, 0, "0123456789", 0);
	close_at(&f, 0);
	drain_begins(&f, "0123456789");
	f.stamp = 0;
	drain_ends(&f);
	is_int(job_lookup(job_world_job(f.w, 1), 1, "f", &e), 0, "another node finds it");
	open_at(&f, 1, flags);
	is_int(job_unlink(job_world_job(f.w, 0), 1, "f"), 0, "a drained file that is open elsewhere is removed");
	drain_removes(&f);
	if (seeks_first)
		seeks(&f, 1, 10);
	says_size(&f, 1, 10);
	all_read(&f, "0123456789");
	if (flags == O_RDWR) {
		put(&f, 1, "AB", 2);
		all_read(&f, "01AB456789");
		cut(&f, 1, 6);
		put(&f, 1, "C", 7);
		all_read(&f, "01AB45.C");
		says_size(&f, 1, 8);
	}
	end(&f);
}

/* The same of one that no node has touched: who has found it knows its path, where something else is by now. */
static void test_found_and_removed(bool seeks_first)
{
	struct file f = { .w = job_world_start(NODES) };
	char path[4096 + 8];
	struct core_entry e;

	snprintf(path, sizeof(path), "%s/f", job_world_backing(f.w));
	int fd = open(path, O_CREAT | O_RDWR, 0644);
	ok(fd >= 0 && write(fd, "0123456789", 10) == 10, "a file is there before");
	close(fd);
	for (uint32_t n = 0; n < NODES; n++) {
		is_int(job_lookup(job_world_job(f.w, n), 1, "f", &e), 0, "a node finds it");
		f.ino = e.ino;
		open_at(&f, n, O_RDONLY);
	}
	is_int(job_unlink(job_world_job(f.w, 0), 1, "f"), 0, "it is removed");
	drain_removes(&f);
	for (uint32_t n = 0; n < NODES; n++) {
		if (seeks_first)
			seeks(&f, n, 10);
		says_size(&f, n, 10);
	}
	all_read(&f, "0123456789");
	end(&f);
}

/* Who has looked it up, but opens it when its backing file has gone, is to look again. */
static void test_opened_too_late(void)
{
	struct core_open_reply reply;
	struct core_entry e;
	struct file f;

	begin(&f);
	put(&f, 0, "0123456789", 0);
	close_at(&f, 0);
	drain_begins(&f, "0123456789");
	f.stamp = 0;
	drain_ends(&f);
	for (uint32_t n = 0; n < NODES; n++)
		is_int(job_lookup(job_world_job(f.w, n), 1, "f", &e), 0, "looked up");
	is_int(job_unlink(job_world_job(f.w, 0), 1, "f"), 0, "removed");
	drain_removes(&f);
	for (uint32_t n = 0; n < NODES; n++)
		is_int(job_open(job_world_job(f.w, n), f.ino, n ? O_RDONLY : O_RDWR, &f.at[n], &reply), -ESTALE,
			"and opened");
	end(&f);
}

/* A node commits what a daemon before this one has written, and nobody has the file open: the drain that begins meanwhile has not seen it. */
static void test_commit_without_opening(void)
{
	struct wire_msg m = { 0 }, reply = { 0 };
	struct file f;

	begin(&f);
	open_at(&f, 1, O_RDWR);
	put(&f, 1, "text", 0);
	for (uint32_t n = 0; n < NODES; n++)
		close_at(&f, n);
	loopback_settle(job_world_loopback(f.w));
	message_init(&m, MESSAGE_SHARE_STAMP);
	message_put(&m, MESSAGE_SHARE_INO, f.ino);
	is_int(peers_call(job_world_peers(f.w, 1), 0, &m, &reply), 0, "a node begins to commit");
	uint64_t stamp = message_get(&reply, MESSAGE_SHARE_AT_STAMP);
	drain_begins(&f, "text");
	ok(f.stamp < stamp, "which is not of that drain");
	wire_msg_free(&m);
	wire_msg_free(&reply);
	end(&f);
}

int main(void)
{
	test_opened_too_late();
	for (unsigned int dropped = 0; dropped < 1u << NODES; dropped++)
		test_dropped_by_some(dropped);
	test_not_dropped();
	test_removed_while_open(O_RDONLY, false);
	test_removed_while_open(O_RDONLY, true);
	test_removed_while_open(O_RDWR, false);
	test_found_and_removed(false);
	test_found_and_removed(true);
	test_removed_meanwhile(false);
	test_removed_meanwhile(true);
	test_not_ready();
	test_moved_meanwhile();
	test_shared_meanwhile();
	test_written_meanwhile();
	test_cut_meanwhile();
	test_cut_before(false);
	test_cut_before(true);
	test_before_told(false);
	test_before_told(true);
	test_commit_without_opening();
	return done_testing();
}
