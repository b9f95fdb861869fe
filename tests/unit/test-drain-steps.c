/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * What a job's daemon does with its agent: which of its steps are changes of the whole job's tree, and which this node's alone; and what is
 * done when it dies. The agent is a script that does what it is told through a fifo; what takes back is the real one.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "format/store/steps.h"
#include "fs/drain/drain.h"
#include "mpi-agent/replay/intent.h"
#include "tests/lib/remove_tree.h"
#include "tests/lib/scratch.h"
#include "tests/lib/tap.h"
#include "tests/lib/world.h"

#define DIR_BYTES   80
#define WAIT_USEC   60000000u
#define LOOK_NSEC   5000000
#define SHARED_TEMP ".cistern-shared-0-26"

enum { DIR_INO = 10, FILE_INO, GONE_INO, UNKNOWN_INO };

struct daemon {
	char top[DIR_BYTES], backing[DIR_BYTES + 8], dir[DIR_BYTES + 8];
	struct store *store;
	struct config *cfg;
	struct core *core;
	struct log *log;
	struct drain *drain;
	int backing_fd, memory_fd;
	unsigned int tree_steps;
};

static void commit(struct daemon *d, struct record rec)
{
	world_must(store_commit(d->store, &rec), record_type_name(rec.type));
}

static void in_top(const struct daemon *d, const char *name, char out[DIR_BYTES + 40])
{
	snprintf(out, DIR_BYTES + 40, "%s/%s", d->top, name);
}

/* ---- the agent: "drain" waits for a word, "undo" is done */

static void write_file(const char *path, mode_t mode, const char *text)
{
	int fd = open(path, O_CREAT | O_WRONLY | O_TRUNC | O_CLOEXEC, mode);

	world_must(fd, path);
	world_must(write(fd, text, strlen(text)) < 0 ? -1 : close(fd), path);
}

static void install_agent(const struct daemon *d)
{
	const char *real = getenv("CISTERN_LIBEXEC");
	char path[DIR_BYTES + 40], text[6000];

	if (!real)
		world_die("CISTERN_LIBEXEC", EINVAL);
	snprintf(text, sizeof(text),
		"#!/bin/sh\necho \"$*\" >>%s/calls\nif [ \"$1\" = undo ]; then exec %s/cistern-agent \"$@\"; fi\n"
		"read -r word <%s/words\nif [ \"$word\" = die ]; then kill -KILL $$; fi\nexit 0\n",
		d->top, real, d->top);
	in_top(d, "cistern-agent", path);
	write_file(path, 0755, text);
	in_top(d, "words", path);
	world_must(mkfifo(path, 0600), path);
	world_must(setenv("CISTERN_LIBEXEC", d->top, 1), path);
}

static void tell_agent(const struct daemon *d, const char *word)
{
	char path[DIR_BYTES + 40];

	in_top(d, "words", path);
	write_file(path, 0600, word);
}

static bool was_called(const struct daemon *d, const char *how)
{
	char path[DIR_BYTES + 40], line[5000];
	bool found = false;

	in_top(d, "calls", path);
	FILE *f = fopen(path, "re");
	while (f && !found && fgets(line, sizeof(line), f))
		found = strncmp(line, how, strlen(how)) == 0;
	if (f)
		fclose(f);
	return found;
}

/* ---- the daemon */

static int backing_open(int fd, void *arg)
{
	(void)fd, (void)arg;
	return -ENOTSUP;
}

static void backing_close(int id, void *arg)
{
	(void)id, (void)arg;
}

static void want_drain(bool urgent, void *arg)
{
	(void)urgent, (void)arg;
}

static void waits(bool begins, void *arg)
{
	(void)begins, (void)arg;
}

static void wake(void *arg)
{
	(void)arg;
}

static void invalidate(uint64_t ino, bool data, void *arg)
{
	(void)ino, (void)data, (void)arg;
}

static void unreadable(const char *text, void *arg)
{
	(void)text, (void)arg;
}

static int tree_step(struct record *rec, void *arg)
{
	(void)rec;
	((struct daemon *)arg)->tree_steps++;
	return 0;
}

static int fetch(uint64_t slot, const struct peers_get *ranges, size_t num, void *arg)
{
	(void)slot, (void)ranges, (void)num, (void)arg;
	return -EOPNOTSUPP;
}

static int begin_shared(struct wire_shared *f, void *arg)
{
	(void)f, (void)arg;
	return 0;
}

/* A directory and a file that are new, and a file that has gone: what is left is that its backing file is to be removed. */
static void fill(struct daemon *d)
{
	struct stat st;

	world_must(stat(d->backing, &st), d->backing);
	commit(d, (struct record){ .type = RECORD_ADOPT,
			  .ino = STATE_ROOT_INO,
			  .nlink = 2,
			  .mode = st.st_mode,
			  .backing_dev = st.st_dev,
			  .backing_ino = st.st_ino });
	commit(d, (struct record){ .type = RECORD_CREATE,
			  .ino = DIR_INO,
			  .parent = STATE_ROOT_INO,
			  .name = "d",
			  .mode = S_IFDIR | 0755 });
	commit(d, (struct record){ .type = RECORD_CREATE,
			  .ino = FILE_INO,
			  .parent = STATE_ROOT_INO,
			  .name = "f",
			  .mode = S_IFREG | 0644 });
	commit(d, (struct record){ .type = RECORD_ADOPT,
			  .ino = GONE_INO,
			  .parent = STATE_ROOT_INO,
			  .name = "g",
			  .mode = S_IFREG | 0644,
			  .nlink = 1,
			  .backing_ino = 77 });
	commit(d, (struct record){ .type = RECORD_UNLINK, .ino = GONE_INO, .parent = STATE_ROOT_INO, .name = "g" });
	commit(d, (struct record){ .type = RECORD_FREE, .ino = GONE_INO });
}

static void start(struct daemon *d)
{
	struct store_options opt = { .mode = STORE_CREATE_OR_OPEN, .backing = d->backing, .nodes = 2 };
	struct core_hooks hooks = { backing_open, backing_close, want_drain, waits, wake, invalidate, unreadable, NULL,
		NULL, d };
	struct cistern_error err = { 0 };
	struct state_report report;
	char path[DIR_BYTES + 40];

	*d = (struct daemon){ .memory_fd = open("/dev/null", O_RDWR | O_CLOEXEC) };
	snprintf(d->top, sizeof(d->top), "%s/drain-steps.XXXXXX", scratch_parent());
	world_must(mkdtemp(d->top) ? 0 : -1, d->top);
	snprintf(d->backing, sizeof(d->backing), "%s/b", d->top);
	snprintf(d->dir, sizeof(d->dir), "%s/s", d->top);
	install_agent(d);
	world_must(mkdir(d->backing, 0755), d->backing);
	d->backing_fd = open(d->backing, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	world_must(d->backing_fd, d->backing);
	world_must(config_create(&d->cfg), "settings");
	world_must(store_open(d->dir, &opt, &d->store, &report, &err), err.text);
	fill(d);
	world_must(core_create(d->store, d->cfg, d->backing_fd, &hooks, &d->core, &err), err.text);
	core_join(d->core);
	world_must(log_create(LOG_LEVEL_INFO, false, &d->log), "log");
	in_top(d, "log", path);
	world_must(log_open_file(d->log, path, &err), err.text);
	world_must(drain_create(&(struct drain_options){ .store = d->store,
					.core = d->core,
					.cfg = d->cfg,
					.log = d->log,
					.libexec_dir = d->top,
					.backing_fd = d->backing_fd,
					.job = { .tree_step = tree_step,
						.fetch = fetch,
						.begin_shared = begin_shared,
						.memory_fd = d->memory_fd,
						.arg = d } },
			   &d->drain, &err),
		err.text);
}

static void end(struct daemon *d)
{
	drain_destroy(d->drain);
	log_destroy(d->log);
	core_destroy(d->core);
	world_must(store_close(d->store), d->dir);
	config_destroy(d->cfg);
	close(d->backing_fd);
	close(d->memory_fd);
	remove_tree(d->top);
}

/* ---- a part of a drain */

static uint64_t ask(struct daemon *d, enum wire_part part)
{
	return drain_request_part(d->drain,
		&(struct drain_part){ .kind = DRAIN_FLUSH, .part = part, .since = UINT64_MAX, .node_name = "node 0" });
}

/* What the agent would do first, when it has been started. */
static void take_part(struct daemon *d)
{
	struct drain_grant grant = { 0 };
	int64_t until = drain_now_usec() + WAIT_USEC;
	int r;

	while ((r = drain_agent_begin(d->drain, d, &grant, NULL)) == -EBUSY && drain_now_usec() < until)
		nanosleep(&(struct timespec){ .tv_nsec = LOOK_NSEC }, NULL);
	world_must(r, "no agent is waited for");
	drain_grant_free(&grant);
}

static void finish(struct daemon *d, uint64_t id)
{
	struct manifest_totals totals = { 0 };
	char text[CISTERN_ERROR_TEXT_BYTES];
	enum cistern_exit result;

	world_must(drain_agent_end(d->drain, d, CISTERN_EXIT_OK, "", &totals), "end");
	tell_agent(d, "end\n");
	ok(drain_wait(d->drain, id, WAIT_USEC, &result, text) == 0 && result == CISTERN_EXIT_OK, "the part is done: %s",
		text);
}

static bool is_tree_step(struct daemon *d, struct record rec)
{
	unsigned int before = d->tree_steps;

	rec.parent = STATE_ROOT_INO;
	is_int(drain_agent_step(d->drain, d, &rec, NULL), 0, "a step is taken");
	return d->tree_steps > before;
}

static bool has_backing(struct daemon *d, const char *name, uint64_t ino)
{
	uint64_t owner;

	return state_backing_owner(store_state(d->store), STATE_ROOT_INO, name, &owner) == 0 && owner == ino;
}

/* Directories are all nodes'; a file that makes way for one, or has gone before one, is its home's. */
static void test_whose(struct daemon *d)
{
	uint64_t id = ask(d, WIRE_PART_DIRS);

	take_part(d);
	ok(is_tree_step(d, (struct record){ .type = RECORD_PLACED, .ino = DIR_INO, .name = "d", .backing_ino = 5 }),
		"a directory's place is told to all nodes");
	ok(!has_backing(d, "d", DIR_INO), "by whom that is done");
	ok(is_tree_step(d, (struct record){ .type = RECORD_PLACED, .ino = UNKNOWN_INO, .name = "e", .backing_ino = 6 }),
		"so is that of one that this node does not know any more");
	ok(!is_tree_step(d, (struct record){ .type = RECORD_PLACED, .ino = FILE_INO, .name = "f", .backing_ino = 7 }),
		"a file's is not");
	ok(has_backing(d, "f", FILE_INO), "but its home notes it");
	ok(!is_tree_step(d, (struct record){ .type = RECORD_REMOVED, .ino = GONE_INO, .name = "g" }),
		"nor that a file has gone, which is not known any more");
	ok(!has_backing(d, "g", GONE_INO), "but its home forgets it");
	finish(d, id);
	id = ask(d, WIRE_PART_FILES);
	take_part(d);
	ok(!is_tree_step(d, (struct record){ .type = RECORD_REMOVED, .ino = FILE_INO, .name = "f" }),
		"in other parts nothing is told to all nodes");
	finish(d, id);
}

/* ---- an agent that dies */

static struct stat put(const struct daemon *d, const char *name)
{
	char path[DIR_BYTES + 40];
	struct stat st;

	snprintf(path, sizeof(path), "%s/%s", d->backing, name);
	write_file(path, 0644, name);
	world_must(stat(path, &st), path);
	return st;
}

static bool is_there(const struct daemon *d, const char *name)
{
	struct stat st;

	return fstatat(d->backing_fd, name, &st, 0) == 0;
}

/* What an agent notes before it gives a new file its name. */
static void note(struct intent *in, uint64_t ino, const char *name, const char *beside, const struct stat *made)
{
	struct record rec = {
		.type = RECORD_PLACED, .ino = ino, .parent = STATE_ROOT_INO, .backing_ino = made->st_ino
	};

	snprintf(rec.name, sizeof(rec.name), "%s", name);
	world_must(intent_add(in, &rec, "", name, beside, false, made), "intent");
}

static void note_move(struct intent *in, uint64_t ino, const char *from, const char *to, ino_t backing_ino)
{
	struct record rec = { .type = RECORD_PLACED,
		.flags = RECORD_F_MOVED,
		.ino = ino,
		.parent = STATE_ROOT_INO,
		.from_parent = STATE_ROOT_INO,
		.backing_ino = backing_ino };

	snprintf(rec.name, sizeof(rec.name), "%s", to);
	snprintf(rec.from_name, sizeof(rec.from_name), "%s", from);
	world_must(intent_add(in, &rec, from, to, "", false, NULL), "intent");
}

static void leave_behind(struct daemon *d)
{
	char path[sizeof(d->dir) + sizeof(INTENT_FILE) + 1];
	struct intent *in;
	struct stat st;

	snprintf(path, sizeof(path), "%s/" INTENT_FILE, d->dir);
	world_must(intent_open(path, &in), path);
	st = put(d, "new");
	note(in, 20, "new", "", &st);
	st = put(d, "theirs");
	st.st_ino++;
	note(in, 21, "theirs", "", &st);
	note_move(in, 22, "was", "is", put(d, "is").st_ino);
	note_move(in, 23, "away", "stays", put(d, "stays").st_ino + 1);
	put(d, "taken");
	note_move(in, 24, "taken", "homeless", put(d, "homeless").st_ino);
	st = put(d, "again");
	st.st_mtim.tv_nsec ^= 1;
	note(in, 25, "again", "", &st);
	st = put(d, "of-many");
	note(in, 26, "of-many", SHARED_TEMP, &st);
	intent_close(in);
}

static void test_death(struct daemon *d)
{
	uint64_t id = ask(d, WIRE_PART_FILES);

	take_part(d);
	leave_behind(d);
	drain_agent_gone(d->drain, d);
	tell_agent(d, "die\n");
	take_part(d); /* of the next one */
	ok(was_called(d, "undo --store"), "an agent dies: what it has left is taken back");
	ok(!is_there(d, "new"), "a new name that it had not told of goes");
	ok(is_there(d, "was") && !is_there(d, "is"), "what it has moved comes back");
	ok(is_there(d, "theirs"), "another node's file that has come to the place of a new one stays");
	ok(is_there(d, "stays") && !is_there(d, "away"),
		"and so does one that has come to where it had moved something");
	ok(is_there(d, "taken") && is_there(d, ".cistern-park-24") && !is_there(d, "homeless"),
		"what cannot come back, since another file has its old name, is parked beside that");
	ok(is_there(d, "again"), "a file stays that has the number of what had the name, and was not made by us");
	ok(is_there(d, SHARED_TEMP) && !is_there(d, "of-many"),
		"what many nodes have written is there for the next agent");
	finish(d, id);
}

static void tell_shared(struct daemon *d, uint64_t upto)
{
	char path[] = "t", shown[] = "f";
	struct wire_shared f = { .ino = 30, .upto = upto, .path = path, .shown = shown };

	is_int(drain_agent_shared(d->drain, d, &f, 0), 0, "a file that several nodes wrote is told of");
}

/* One that dies while it tells what is to be carried, and the one behind it. */
static void test_told_again(struct daemon *d)
{
	struct wire_shared_list list;
	uint64_t id = ask(d, WIRE_PART_BEGIN);

	take_part(d);
	tell_shared(d, 7);
	drain_agent_gone(d->drain, d);
	tell_agent(d, "die\n");
	take_part(d);
	tell_shared(d, 8);
	finish(d, id);
	drain_take_shared(d->drain, &list);
	ok(list.num == 1 && list.at[0].upto == 8, "it counts once, as the last agent has told it");
	wire_shared_free(&list);
}

int main(void)
{
	struct daemon d;

	start(&d);
	test_whose(&d);
	test_death(&d);
	test_told_again(&d);
	end(&d);
	return done_testing();
}
