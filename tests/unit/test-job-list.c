/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Listings while names go from one home's file to another's, which one does before the other, with messages that take their time: the
 * names are there all along. And while more of them are in doubt than a page holds.
 */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "fs/job/private.h"
#include "tests/lib/job_path.h"
#include "tests/lib/job_world.h"
#include "tests/lib/tap.h"

#define NODES    3u
#define CHANGES  120
#define LOOKERS  12u
#define LIST_CAP 8192

struct trial {
	struct job_world *w;
	_Atomic(bool) over;
	_Atomic(uint32_t) lookers;
	_Atomic(unsigned int) wrong;
	int failed; /* of the changes, the first error */
};

static struct job_world *start(void)
{
	struct job_world *w = job_world_start(NODES);

	path_mkdir(job_world_job(w, 1), "d", 0700);
	path_create(job_world_job(w, 1), "f", 0600, 0);
	path_create(job_world_job(w, 0), "g", 0600, 0);
	loopback_set_delay(job_world_loopback(w), 0, 3000, 11);
	return w;
}

static bool has(const char *list, const char *name)
{
	char line[32];

	snprintf(line, sizeof(line), "\n%s\n", name);
	return strstr(list, line) != NULL;
}

/* Names, each between two newlines. */
static bool list(struct trial *t, uint32_t node, char out[LIST_CAP])
{
	out[0] = '\n';
	return path_list(job_world_job(t->w, node), "", out + 1, LIST_CAP - 1) == 0;
}

static bool all_are_there(struct trial *t, uint32_t node)
{
	char names[LIST_CAP];

	return list(t, node, names) && has(names, "d") && has(names, "f") && has(names, "g");
}

static void *look(void *arg)
{
	struct trial *t = arg;
	uint32_t node = t->lookers++ % NODES;

	while (!t->over)
		if (!all_are_there(t, node))
			t->wrong++;
	return NULL;
}

/* While others look all the time. How often something was not there. */
static unsigned int run(struct trial *t, void *(*changes)(void *arg))
{
	pthread_t thread[LOOKERS];

	t->over = false;
	for (unsigned int i = 0; i < LOOKERS; i++)
		if (pthread_create(&thread[i], NULL, look, t))
			exit(1);
	changes(t);
	t->over = true;
	for (unsigned int i = 0; i < LOOKERS; i++)
		pthread_join(thread[i], NULL);
	return t->wrong;
}

static void *change_places(struct trial *t, const char *a, const char *b)
{
	for (int i = 0; i < CHANGES && t->failed == 0; i++)
		t->failed = path_rename(job_world_job(t->w, 1), a, b, RENAME_EXCHANGE);
	return NULL;
}

static void *exchange_dir(void *arg)
{
	return change_places(arg, "d", "f");
}

static void *exchange_files(void *arg)
{
	return change_places(arg, "f", "g");
}

/* Each time by a file of another home. */
static void *replace(void *arg)
{
	struct trial *t = arg;

	for (uint32_t i = 0; i < CHANGES && t->failed == 0; i++) {
		struct job *j = job_world_job(t->w, i % NODES);

		t->failed = path_create(j, "new", 0600, 0);
		if (t->failed == 0)
			t->failed = path_rename(j, "new", "f", 0);
	}
	return NULL;
}

static void test_changes(struct job_world *w)
{
	static const struct {
		void *(*changes)(void *arg);
		const char *what;
	} kinds[] = { { exchange_dir, "a directory and a file that change places" },
		{ exchange_files, "files that change places" }, { replace, "what is replaced again and again" } };

	for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
		struct trial t = { .w = w };

		ok(run(&t, kinds[i].changes) == 0, "listed all the time: %s", kinds[i].what);
		is_int(t.failed, 0, "nothing was refused");
	}
}

/* ---- what a home remembers of it */

static void count_name(const char *name, void *arg)
{
	unsigned int *num = arg;

	*num += strcmp(name, "name") == 0;
}

static void test_memory(struct job_world *w)
{
	struct job *j = job_world_job(w, 0);
	int64_t since = clock_now(state_clock(j->state));
	unsigned int num = 0;

	handover_note(j, 1, "name");
	handover_note(j, 1, "other");
	ok(handover_each(j, 1, since, count_name, &num) && num == 1, "what has been handed over is told");
	ok(handover_each(j, 2, since, count_name, &num) && num == 1, "in its directory");
	ok(handover_each(j, 1, clock_now(state_clock(j->state)), count_name, &num) && num == 1,
		"and not what was before");
	for (int i = 0; i < 5000; i++)
		handover_note(j, 1, "many");
	ok(!handover_each(j, 1, since, count_name, &num), "when it was too much to be remembered, that is said");
	ok(handover_each(j, 1, clock_now(state_clock(j->state)), count_name, &num), "until a listing begins anew");
}

/* ---- names in doubt, more than a page */

#define DOUBTED   2500u
#define NAME_LEN  250
#define PAGE_MOST (520u << 10)

static void doubted_path(char out[NAME_LEN + 8], unsigned int i)
{
	snprintf(out, NAME_LEN + 8, "many/%0*u", NAME_LEN, i);
}

/* They go while a drain session runs, which has put files there. */
static void make_doubts(struct job_world *w, uint32_t home)
{
	char path[NAME_LEN + 8], at[1024];
	unsigned int num = 0;

	snprintf(at, sizeof(at), "%s/many", job_world_backing(w));
	is_int(mkdir(at, 0700), 0, "a directory");
	for (unsigned int i = 0; i < DOUBTED; i++) {
		doubted_path(path, i);
		num += path_create(job_world_job(w, home), path, 0600, 0) == 0;
	}
	core_session_begin(job_world_core(w, home), false);
	for (unsigned int i = 0; i < DOUBTED; i++) {
		doubted_path(path, i);
		snprintf(at, sizeof(at), "%s/%s", job_world_backing(w), path);
		num += path_unlink(job_world_job(w, home), path) == 0 && mknod(at, S_IFREG | 0600, 0) == 0;
	}
	is_u64(num, 2 * DOUBTED, "many names come into doubt");
}

static void test_page(struct job_world *w, uint32_t home)
{
	struct wire_msg m = { 0 }, reply = { 0 };
	const uint8_t *names;
	struct stat st;
	size_t len = 0;

	is_int(path_stat(job_world_job(w, 0), "many", &st), 0, "whose directory is there");
	message_init(&m, MESSAGE_NAME_LIST);
	message_put(&m, MESSAGE_DIR, st.st_ino);
	message_put_str(&m, MESSAGE_NAME, "");
	is_int(peers_call(job_world_peers(w, 0), home, &m, &reply), 0, "their home says them");
	ok(message_get_bytes(&reply, MESSAGE_NAMES, 0, &names, &len) && len <= PAGE_MOST, "a page at a time");
	ok(message_get(&reply, MESSAGE_COUNT), "and that there are more");
	wire_msg_free(&m);
	wire_msg_free(&reply);
}

static void test_doubts(struct job_world *w)
{
	const uint32_t home = 1;
	char path[NAME_LEN + 8];
	char *list = malloc(1u << 20);

	make_doubts(w, home);
	test_page(w, home);
	is_int(path_create(job_world_job(w, home), "many/shown", 0600, 0), 0, "a file among them");
	is_int(path_list(job_world_job(w, 0), "many", list, 1u << 20), 0, "a listing");
	is_str(list, "shown\n", "shows it and none of them");
	core_session_end(job_world_core(w, home));
	for (unsigned int i = 0; i < DOUBTED; i++) {
		doubted_path(path, i);
		path_unlink(job_world_job(w, home), path);
	}
	free(list);
}

int main(void)
{
	struct job_world *w = start();

	test_changes(w);
	test_memory(w);
	loopback_set_delay(job_world_loopback(w), 0, 0, 11);
	test_doubts(w);
	job_world_stop(w);
	return done_testing();
}
