/* SPDX-License-Identifier: GPL-3.0-or-later */
/* The manifest of a job: lines that are told again, since the answer was lost, and who was killed meanwhile. */
#include "fs/drain/job_manifest.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/lib/loopback.h"
#include "tests/lib/tap.h"
#include "tests/lib/world.h"

struct job {
	struct world *w;
	struct loopback *l;
	struct config *cfg;
	struct job_manifest *jm; /* node 0 is also who tells */
	unsigned int told, lost; /* pieces; of so many from now on the answer is lost */
};

static struct job_manifest *begun(const struct job *j)
{
	struct job_manifest_options opt = { .store = j->w->store, .cfg = j->cfg, .peers = loopback_peers(j->l, 0) };
	struct cistern_error err = { 0 };
	struct job_manifest *jm;

	world_must(job_manifest_create(&opt, &jm, &err), err.text);
	return jm;
}

static void begin(struct job *j)
{
	*j = (struct job){ .w = world_new() };
	world_make(j->w, 1);
	world_open(j->w);
	j->l = loopback_create(&(struct loopback_options){ .num = 1 });
	if (!j->l)
		world_die("loopback", ENOMEM);
	loopback_assemble(j->l);
	world_must(config_create(&j->cfg), "config");
	j->jm = begun(j);
}

static void end(struct job *j)
{
	job_manifest_destroy(j->jm);
	config_destroy(j->cfg);
	loopback_destroy(j->l);
	store_close(j->w->store);
	world_free(j->w);
}

/* The daemons die, and others begin. */
static void restart(struct job *j)
{
	job_manifest_destroy(j->jm);
	j->jm = begun(j);
}

static void path_of(const struct job *j, const char *name, char out[WORLD_PATH_BYTES])
{
	world_path(out, j->w->store_dir, name);
}

/* An agent says what became of a file. */
static void say(const struct job *j, const char *path, const char *moved_from)
{
	char log[WORLD_PATH_BYTES];
	struct cistern_error err = { 0 };
	struct manifest *m;

	path_of(j, MANIFEST_PART_LOG, log);
	world_must(manifest_open(log, &m, &err), err.text);
	if (moved_from)
		manifest_add_moved(m, moved_from, path);
	else
		manifest_add_file(m, &(struct manifest_file){ .path = path, .state = "drained" });
	world_must(manifest_sync(m, &err), err.text);
	manifest_close(m);
}

static int tell(const void *piece, size_t len, void *arg)
{
	struct job *j = arg;
	int r = job_manifest_append(j->jm, piece, len);

	j->told++;
	if (r < 0 || j->lost == 0)
		return r;
	j->lost--;
	return -ETIMEDOUT;
}

/* How often text is in that file of the store. */
static unsigned int count(const struct job *j, const char *name, const char *text)
{
	char path[WORLD_PATH_BYTES], line[4096];
	unsigned int n = 0;
	FILE *f;

	path_of(j, name, path);
	f = fopen(path, "re");
	while (f && fgets(line, sizeof(line), f))
		n += strstr(line, text) ? 1 : 0;
	if (f)
		fclose(f);
	return n;
}

static void sum_up(const struct job *j)
{
	struct cistern_error err = { 0 };
	int r = job_manifest_write(j->jm, &(struct manifest_session){ .session = 1 }, &err);

	ok(r == 0, "a summary %s", err.text);
}

/* Another node's file comes to the name from which one of ours has moved: of that we never hear that it is known. */
static void told_again(bool restarts)
{
	struct job j;
	static const char other[] = "{\"path\":\"a\",\"state\":\"drained\",\"size\":7}\n";

	begin(&j);
	say(&j, "a", NULL);
	is_int(job_manifest_send(j.jm, tell, &j), 0, "a file is told");
	say(&j, "b", "a");
	j.lost = 1;
	is_int(job_manifest_send(j.jm, tell, &j), -ETIMEDOUT, "the answer to the move is lost");
	is_int(job_manifest_append(j.jm, other, strlen(other)), 0, "another file gets the old name");
	if (restarts)
		restart(&j);
	say(&j, "c", NULL);
	is_int(job_manifest_send(j.jm, tell, &j), 0, "all is told again, and what has come since");
	is_int(j.told, 4, "one piece after the other");
	sum_up(&j);
	is_int(count(&j, MANIFEST_LOG, "\"state\":\"moved\""), 1, "the move is in the log once");
	is_int(count(&j, MANIFEST_FILE, "{\"path\":\"a\",\"state\":\"drained\",\"size\":7}"), 1,
		"the summary lists the other file");
	is_int(count(&j, MANIFEST_FILE, "{\"path\":\"b\""), 1, "the one that moved");
	is_int(count(&j, MANIFEST_FILE, "{\"path\":\"c\""), 1, "and the last one");
	is_int(job_manifest_send(j.jm, tell, &j), 0, "nothing is left to be told");
	is_int(j.told, 4, "nothing is");
	end(&j);
}

/* Node 0's daemon dies while it takes a piece: how much of it is in the log is a matter of luck. */
static void torn(size_t kept)
{
	struct job j;
	char log[WORLD_PATH_BYTES];
	struct stat before;

	begin(&j);
	path_of(&j, MANIFEST_LOG, log);
	say(&j, "a", NULL);
	is_int(job_manifest_send(j.jm, tell, &j), 0, "a file is told");
	world_must(stat(log, &before), log);
	say(&j, "b", "a");
	say(&j, "d", NULL);
	j.lost = 1;
	is_int(job_manifest_send(j.jm, tell, &j), -ETIMEDOUT, "a piece is taken, of which no answer says so");
	world_must(truncate(log, before.st_size + (off_t)kept), log);
	restart(&j);
	ok(job_manifest_send(j.jm, tell, &j) == 0, "it is told again when %zu bytes of it were there", kept);
	is_int(count(&j, MANIFEST_LOG, "\"state\":\"moved\""), 1, "the move is there once");
	is_int(count(&j, MANIFEST_LOG, "{\"path\":\"d\""), 1, "and what came behind it");
	restart(&j);
	sum_up(&j);
	is_int(count(&j, MANIFEST_FILE, "{\"path\":\"b\""), 1, "both are in the summary");
	is_int(count(&j, MANIFEST_FILE, "{\"path\":\"d\""), 1, "both");
	end(&j);
}

/* More lines than a piece has: the second one's answer is lost, so the first is told again, too. */
static void many(void)
{
	char name[256];
	struct job j;

	begin(&j);
	memset(name, 'x', sizeof(name));
	for (unsigned int i = 0; i < 6000; i++) {
		snprintf(name + 200, 32, "%u", i);
		say(&j, name, NULL);
	}
	j.lost = 1;
	is_int(job_manifest_send(j.jm, tell, &j), -ETIMEDOUT, "the first answer is lost");
	is_int(job_manifest_send(j.jm, tell, &j), 0, "then it is told again");
	ok(j.told > 2, "in %u pieces", j.told);
	is_int(count(&j, MANIFEST_LOG, "{\"path\":"), 6000, "each line is in the log once");
	end(&j);
}

/* What was told by a version that had no heads, and what is none. */
static void test_heads(void)
{
	static const char old[] = "{\"path\":\"a\",\"state\":\"drained\"}\n";
	struct manifest_piece p = { .store = "6c7cbd4e-0000-4000-8000-000000000001", .part = 5, .bytes = sizeof(old) };
	char piece[MANIFEST_HEAD_BYTES + sizeof(old)];
	struct job j;
	size_t n;

	begin(&j);
	is_int(job_manifest_append(j.jm, old, strlen(old)), 0, "lines without a head are taken");
	n = manifest_piece_head(&p, piece);
	memcpy(piece + n, old, sizeof(old));
	is_int(job_manifest_append(j.jm, piece, n + strlen(old)), -EINVAL, "a piece that is longer than it is is not");
	is_int(count(&j, MANIFEST_LOG, "{\"path\":\"a\""), 1, "nothing of it is");
	p.bytes = strlen(old);
	n = manifest_piece_head(&p, piece);
	memcpy(piece + n, old, sizeof(old));
	is_int(job_manifest_append(j.jm, piece, n + strlen(old)), 0, "a whole one is");
	p.part = 6;
	n = manifest_piece_head(&p, piece);
	memcpy(piece + n, old, sizeof(old));
	is_int(job_manifest_append(j.jm, piece, n + strlen(old)), 0, "so is one of another number");
	is_int(count(&j, MANIFEST_LOG, "{\"path\":\"a\""), 3, "all three are there");
	end(&j);
}

static bool is_same(const char *a, const char *b)
{
	char command[2 * WORLD_PATH_BYTES + 16];

	snprintf(command, sizeof(command), "cmp %s %s", a, b);
	return system(command) == 0;
}

struct writing {
	struct job *j;
	struct cistern_error err;
	int r;
};

static void *write_summary(void *arg)
{
	struct writing *w = arg;

	w->r = job_manifest_write(w->j->jm, &(struct manifest_session){ .session = 1 }, &w->err);
	return NULL;
}

static void be_late(int sig)
{
	(void)sig;
	static const char text[] = "Bail out! lines wait for the copy\n";
	(void)!write(STDOUT_FILENO, text, sizeof(text) - 1);
	_exit(1);
}

/* Who writes to a pipe that nobody reads hangs, as on a file system that does not answer. */
static void test_hanging_copy(void)
{
	struct job j;
	struct writing w = { .j = &j };
	char copy[WORLD_PATH_BYTES], temp[WORLD_PATH_BYTES];
	pthread_t writer;
	int fd;

	begin(&j);
	world_path(copy, j.w->top, "copy.json");
	world_path(temp, j.w->top, "copy.json.tmp");
	world_must(mkfifo(temp, 0600), temp);
	world_must(config_set(j.cfg, "manifest", copy, "test", &w.err), w.err.text);
	say(&j, "a", NULL);
	is_int(job_manifest_send(j.jm, tell, &j), 0, "a file is told");
	world_must(-pthread_create(&writer, NULL, write_summary, &w), "thread");
	while (count(&j, MANIFEST_FILE, "{\"path\":\"a\"") == 0)
		usleep(1000);
	say(&j, "b", NULL);
	signal(SIGALRM, be_late);
	alarm(30);
	is_int(job_manifest_send(j.jm, tell, &j), 0, "another one is while the summary's copy hangs");
	alarm(0);
	is_int(count(&j, MANIFEST_LOG, "{\"path\":\"b\""), 1, "it is in the log");
	fd = open(temp, O_RDONLY | O_CLOEXEC);
	pthread_join(writer, NULL);
	close(fd);
	ok(w.r < 0 && strstr(w.err.text, copy), "a pipe is no copy: %s", w.err.text);
	sum_up(&j);
	path_of(&j, MANIFEST_FILE, temp);
	ok(is_same(temp, copy), "the next one is the same as the store's");
	is_int(count(&j, MANIFEST_FILE, "{\"path\":\"b\""), 1, "with both files");
	end(&j);
}

int main(void)
{
	static const size_t kept[] = { 0, 1, 50, 140, 150, 170, 200, 250 };

	told_again(false);
	told_again(true);
	for (size_t i = 0; i < sizeof(kept) / sizeof(kept[0]); i++)
		torn(kept[i]);
	many();
	test_heads();
	test_hanging_copy();
	return done_testing();
}
