/* SPDX-License-Identifier: GPL-3.0-or-later */
/* A node whose agent hangs: what can be done without it is done, and what waits for it is done when it goes on. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "format/place/place.h"
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
	uint64_t until = share_now_usec() + usec;
	bool right;

	while (!(right = shows(w, f, text)) && share_now_usec() < until)
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
	uint64_t begun = share_now_usec();
	tell_after(w, 0);
	for (unsigned int i = 0; i < FILES; i++)
		ok(shows_soon(w, &files[i], "soon", SOON_USEC),
			"a file that needs nothing of a node that hangs is told");
	for (unsigned int i = 0; i < FILES; i++)
		ok(put(w, &files[i], "more") && shows_soon(w, &files[i], "more", SOON_USEC), "and again");
	ok(share_now_usec() - begun < SOON_USEC, "while what needs it waits");
	loopback_set_hanging(job_world_loopback(w), HANGS, false);
	for (unsigned int i = 0; i < FILES; i++)
		ok(shows_soon(w, &behind[i], "late", 2 * SOON_USEC), "that is told when it goes on");
	for (unsigned int i = 0; i < FILES; i++) {
		end_file(w, &files[i]);
		end_file(w, &behind[i]);
	}
	job_world_stop(w);
}

int main(void)
{
	test_told();
	return done_testing();
}
