/* SPDX-License-Identifier: GPL-3.0-or-later */
/* A node whose agent hangs: what can be done without it is done, and what waits for it is done when it goes on. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "format/place/place.h"
#include "format/base/clock.h"
#include "fs/job/private.h"
#include "fs/job/share.h"
#include "tests/lib/job_world.h"
#include "tests/lib/tap.h"

#define NODES     4u
#define HANGS     3u /* this one */
#define FILES     6u
#define SOON_USEC 30000000u /* well before agent_timeout, which is 60 s */

static const struct core_cred cred = { 0 };

struct file { /* of one node, written by node 1, read by node 2 */
	uint64_t ino;
	struct job_file *writer, *reader;
};

static uint64_t open_made(struct job_world *w, uint32_t home, const char *name)
{
	struct core_open_reply reply;
	struct job_file *file;
	struct core_entry e;

	if (job_create_file(job_world_job(w, home), 1, name, 0644, O_RDWR, cred, &e, &file, &reply))
		exit(1);
	job_release(job_world_job(w, home), file);
	return e.ino;
}

/* Its places are known to node 0. */
static void begin_file(struct job_world *w, struct file *f, uint32_t home)
{
	static unsigned int num;
	struct core_open_reply reply;
	char name[32];

	do {
		snprintf(name, sizeof(name), "f%u", num++);
		f->ino = open_made(w, home, name);
	} while (place_domain(f->ino, 0, PLACE_DOMAIN_SIZE, NODES) != 0);
	if (job_open(job_world_job(w, 1), f->ino, O_RDWR, &f->writer, &reply) ||
		job_open(job_world_job(w, 2), f->ino, O_RDONLY, &f->reader, &reply))
		exit(1);
}

static void end_file(struct job_world *w, struct file *f)
{
	job_release(job_world_job(w, 1), f->writer);
	job_release(job_world_job(w, 2), f->reader);
}

static bool put(struct job_world *w, struct file *f, const char *text)
{
	return job_write(job_world_job(w, 1), f->writer, text, strlen(text), 0) == (ssize_t)strlen(text);
}

static bool shows(struct job_world *w, struct file *f, const char *text)
{
	char buf[32] = "";

	return job_read(job_world_job(w, 2), f->reader, buf, sizeof(buf) - 1, 0) == (ssize_t)strlen(text) &&
	       strcmp(buf, text) == 0;
}

static bool shows_soon(struct job_world *w, struct file *f, const char *text, uint64_t usec)
{
	uint64_t until = clock_usec() + usec;
	bool right;

	while (!(right = shows(w, f, text)) && clock_usec() < until)
		usleep(10000);
	return right;
}

static void tell_after(struct job_world *w, uint64_t usec)
{
	for (uint32_t n = 0; n < NODES; n++) {
		job_world_job(w, n)->share->tell_usec = usec;
		share_poke(job_world_job(w, n));
	}
}

static struct peers_node known_of(struct job_world *w)
{
	struct peers_node n = { 0 };

	(void)peers_nodes(job_world_peers(w, 1), HANGS, &n, 1);
	return n;
}

static bool is_silent_soon(struct job_world *w, bool silent)
{
	uint64_t until = clock_usec() + 2 * SOON_USEC;
	bool right;

	while (!(right = (known_of(w).silent_usec > 0) == silent) && clock_usec() < until)
		usleep(10000);
	return right;
}

/* Nobody closes or syncs; what was written is told after a while. */
static void test_told(void)
{
	struct job_world *w = job_world_start(NODES);
	struct file files[FILES], behind[FILES];
	bool all = true;

	for (unsigned int i = 0; i < FILES; i++) {
		begin_file(w, &files[i], 0);
		begin_file(w, &behind[i], HANGS);
	}
	tell_after(w, UINT64_MAX);
	for (unsigned int i = 0; i < FILES; i++)
		all = all && put(w, &behind[i], "late") && put(w, &files[i], "soon");
	ok(all, "files of two nodes are written");
	loopback_set_hanging(job_world_loopback(w), HANGS, true);
	uint64_t begun = clock_usec();
	tell_after(w, 0);
	for (unsigned int i = 0; i < FILES; i++)
		ok(shows_soon(w, &files[i], "soon", SOON_USEC),
			"a file that needs nothing of a node that hangs is told");
	for (unsigned int i = 0; i < FILES; i++)
		ok(put(w, &files[i], "more") && shows_soon(w, &files[i], "more", SOON_USEC), "and again");
	ok(clock_usec() - begun < SOON_USEC, "while what needs it waits");
	ok(is_silent_soon(w, true), "it is known that nothing comes from it");
	ok(known_of(w).num_owed > 0 && known_of(w).owed_usec > 0 && known_of(w).present, "and that calls wait");
	loopback_set_hanging(job_world_loopback(w), HANGS, false);
	for (unsigned int i = 0; i < FILES; i++)
		ok(shows_soon(w, &behind[i], "late", 2 * SOON_USEC), "that is told when it goes on");
	ok(is_silent_soon(w, false), "and it is silent no more");
	for (unsigned int i = 0; i < FILES; i++) {
		end_file(w, &files[i]);
		end_file(w, &behind[i]);
	}
	job_world_stop(w);
}

/* ---- so much waits for it that it takes no more */

static bool goes_soon(struct job_world *w, uint32_t node, uint64_t ino)
{
	uint64_t until = clock_usec() + 2 * SOON_USEC;
	struct inode in;
	int rc;

	while ((rc = state_inode(store_state(job_world_store(w, node)), ino, &in)) == 0 && clock_usec() < until)
		usleep(10000);
	return rc == -ENOENT;
}

/* Of a node's file that is removed there; another one's kernel forgets it while nothing reaches its home. */
static void test_forgotten(void)
{
	struct job_world *w = job_world_start(NODES);
	uint64_t ino = open_made(w, HANGS, "f");
	struct core_entry e;

	is_int(job_lookup(job_world_job(w, 1), 1, "f", &e), 0, "another node looks a file up");
	is_int(job_unlink(job_world_job(w, HANGS), 1, "f"), 0, "which is removed");
	job_forget(job_world_job(w, HANGS), ino, 1);
	loopback_set_hanging(job_world_loopback(w), HANGS, true);
	job_world_fill(w, 1, HANGS, 0);
	job_forget(job_world_job(w, 1), ino, 1);
	loopback_set_hanging(job_world_loopback(w), HANGS, false);
	ok(goes_soon(w, HANGS, ino), "its home does not keep it for a kernel that has forgotten it");
	job_world_stop(w);
}

static bool has_openers(struct job_world *w, uint64_t ino)
{
	struct shared *s = shared_find(job_world_job(w, HANGS), ino);
	bool has = s && registry_has_openers(s);

	shared_put(job_world_job(w, HANGS), s);
	return has;
}

/* Of a file of its own, by another node, while nothing reaches it. */
static void test_closed(void)
{
	struct job_world *w = job_world_start(NODES);
	uint64_t ino = open_made(w, HANGS, "f"), until = clock_usec() + SOON_USEC;
	struct share *sh = job_world_job(w, 1)->share;
	struct core_open_reply reply;
	struct job_file *file;

	is_int(job_open(job_world_job(w, 1), ino, O_RDONLY, &file, &reply), 0, "another node opens a file");
	loopback_set_hanging(job_world_loopback(w), HANGS, true);
	job_world_fill(w, 1, HANGS, 0);
	uint64_t before = sh->messages;
	job_release(job_world_job(w, 1), file);
	usleep(2000000);
	ok(sh->messages - before < 10, "it closes the file, and says so now and then: %llu times",
		(unsigned long long)(sh->messages - before));
	ok(has_openers(w, ino), "which is not heard");
	loopback_set_hanging(job_world_loopback(w), HANGS, false);
	while (has_openers(w, ino) && clock_usec() < until)
		usleep(10000);
	ok(!has_openers(w, ino), "it is when the home goes on");
	job_world_stop(w);
}

/* A name that the hanging node does not serve. */
static void name_elsewhere(char name[16])
{
	for (unsigned int i = 0; snprintf(name, 16, "g%u", i), place_name(1, name, NODES) == HANGS;)
		i++;
}

/* Of a file that it has written to and closed. */
static void test_gone(void)
{
	struct job_world *w = job_world_start(NODES);
	struct core_open_reply reply;
	struct job_file *file;
	struct inode in;
	char name[16];

	name_elsewhere(name);
	uint64_t ino = open_made(w, 0, name);
	is_int(job_open(job_world_job(w, HANGS), ino, O_RDWR, &file, &reply), 0, "a node opens another one's file");
	ok(job_write(job_world_job(w, HANGS), file, "layer", 5, 0) == 5, "writes to it");
	is_int(job_flush(job_world_job(w, HANGS), file), 0, "and closes it");
	job_release(job_world_job(w, HANGS), file);
	loopback_settle(job_world_loopback(w));
	is_int(state_inode(store_state(job_world_store(w, HANGS)), ino, &in), 0, "it has a layer of it");
	loopback_set_hanging(job_world_loopback(w), HANGS, true);
	job_world_fill(w, 0, HANGS, 0);
	is_int(job_unlink(job_world_job(w, 0), 1, name), 0, "the file is removed");
	job_forget(job_world_job(w, 0), ino, 1);
	ok(goes_soon(w, 0, ino), "and is no more");
	registry_tell_gone(job_world_job(w, 0));
	loopback_set_hanging(job_world_loopback(w), HANGS, false);
	ok(goes_soon(w, HANGS, ino), "the layer goes when the node goes on");
	job_world_stop(w);
}

/* ---- so many want what it has that is not known elsewhere */

#define READERS 20u

struct reader {
	struct job_world *w;
	uint64_t ino;
	pthread_t thread;
	bool right;
};

/* At node 2. */
static bool reads(struct job_world *w, uint64_t ino)
{
	struct core_open_reply reply;
	struct job_file *file;
	char buf[16] = "";

	if (job_open(job_world_job(w, 2), ino, O_RDONLY, &file, &reply))
		return false;
	bool right = job_read(job_world_job(w, 2), file, buf, sizeof(buf), 0) == 5 && memcmp(buf, "bytes", 5) == 0;
	job_release(job_world_job(w, 2), file);
	return right;
}

static void *reader_main(void *arg)
{
	struct reader *r = arg;

	r->right = reads(r->w, r->ino);
	return NULL;
}

/* At home at node 0, where its places are known; its bytes are at writer. */
static uint64_t written_by(struct job_world *w, uint32_t writer)
{
	struct core_open_reply reply;
	struct job_file *file;
	struct file f;

	begin_file(w, &f, 0);
	end_file(w, &f);
	if (job_open(job_world_job(w, writer), f.ino, O_RDWR, &file, &reply) ||
		job_write(job_world_job(w, writer), file, "bytes", 5, 0) != 5 ||
		job_flush(job_world_job(w, writer), file))
		exit(1);
	job_release(job_world_job(w, writer), file);
	return f.ino;
}

static void test_payload(void)
{
	struct job_world *w = job_world_start(NODES);
	static struct reader readers[READERS];
	uint64_t theirs[READERS], others[4], began;
	bool all = true;

	for (unsigned int i = 0; i < READERS; i++)
		theirs[i] = written_by(w, HANGS);
	for (unsigned int i = 0; i < 4; i++)
		others[i] = written_by(w, 1);
	loopback_settle(job_world_loopback(w));
	loopback_set_hanging(job_world_loopback(w), HANGS, true);
	for (unsigned int i = 0; i < READERS; i++) {
		readers[i] = (struct reader){ .w = w, .ino = theirs[i] };
		if (pthread_create(&readers[i].thread, NULL, reader_main, &readers[i]))
			exit(1);
	}
	usleep(500000); /* they have got as far as they get */
	began = clock_usec();
	for (unsigned int i = 0; i < 4; i++)
		all = all && reads(w, others[i]);
	ok(all && clock_usec() - began < SOON_USEC,
		"who reads what another node has does not wait for many who read what the hanging one has");
	loopback_set_hanging(job_world_loopback(w), HANGS, false);
	all = true;
	for (unsigned int i = 0; i < READERS; i++) {
		pthread_join(readers[i].thread, NULL);
		all = all && readers[i].right;
	}
	ok(all, "who get it when that goes on");
	job_world_stop(w);
}

int main(void)
{
	test_told();
	test_forgotten();
	test_closed();
	test_gone();
	test_payload();
	return done_testing();
}
