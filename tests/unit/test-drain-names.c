/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Random trees through a store and a drain. What an application does to a directory is done to a model of it and told to a
 * store (tests/lib/world.h); then the store is drained into the backing directory, and the two trees must be the same
 * (tests/lib/compare_trees.h).
 *
 * Also when the drain is killed after any change that it makes, over and over, with a store that hears of each step (a
 * living daemon) and with one that never changes (a dead store), and when the application goes on after the snapshot.
 *
 *   test-drain-names [seeds [first seed [dead|once|sessions|killed|parts]]]
 *
 * Each part runs in a child, so that a killed drain takes everything with it that a process has.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "format/store/store.h"
#include "mpi-agent/replay/drain.h"
#include "format/manifest/manifest.h"
#include "tests/lib/compare_trees.h"
#include "tests/lib/tap.h"
#include "tests/lib/world.h"

#define EXIT_KILLED 137

/* ---- drains */

static void say_error(const char *path, int code, const char *text, void *arg)
{
	printf("# drain: %s: %s (%d)\n", path, text, code);
}

static int commit_step(const struct record *rec, void *arg)
{
	struct world *w = arg;
	struct record copy = *rec;
	struct buf bytes BUF_CLEANUP = { 0 };
	struct record_scratch scratch = { 0 };
	struct record decoded;
	size_t used;
	int r;

	/* By way of its encoding, as it reaches a daemon. */
	world_must(record_encode(&copy, &bytes), "encode");
	world_must(record_decode(bytes.data, bytes.len, &scratch, &decoded, &used), "decode");
	decoded.seq = 0;
	decoded.time_ns = 1;
	r = store_commit(w->store, &decoded);
	record_scratch_free(&scratch);
	if (r < 0 && r != -ENOENT && r != -ESTALE)
		printf("# step %s of %" PRIu64 ": %s\n", record_type_name(rec->type), rec->ino, strerror(-r));
	return r;
}

static int drain(struct world *w, struct store *source, uint64_t upto, bool live, enum wire_part part, const char *to)
{
	struct drain_options opt = { .store = source,
		.part = part,
		.upto = upto,
		.base_dirfd = -1,
		.verify = DRAIN_VERIFY_READ,
		.buffer_bytes = 2u << 20,
		.watcher = { .error = say_error, .step = live ? commit_step : NULL, .arg = w } };
	struct cistern_error err = { 0 };
	struct drain_result res;
	char intent[WORLD_PATH_BYTES], steps[WORLD_PATH_BYTES];
	int r;

	world_path(intent, w->store_dir, "drain.intent");
	world_path(steps, w->store_dir, "recover.steps");
	opt.intent_path = intent;
	opt.steps_path = live || strcmp(to, w->backing) != 0 ? NULL : steps;
	opt.in_place = strcmp(to, w->backing) == 0;
	opt.to_dirfd = open(to, O_RDONLY | O_DIRECTORY);
	world_must(opt.to_dirfd, to);
	if (!opt.in_place)
		opt.base_dirfd = open(w->backing, O_RDONLY | O_DIRECTORY);
	r = drain_run(&opt, &res, &err);
	close(opt.to_dirfd);
	if (opt.base_dirfd >= 0)
		close(opt.base_dirfd);
	if (r < 0)
		printf("# drain_run: %s\n", err.text);
	fflush(stdout);
	return r < 0 || res.totals.failed > 0 || res.totals.missing_bytes > 0 ? 1 : 0;
}

/* A session of a living daemon; more: operations between the snapshot and the drain. */
static int live_session(struct world *w, unsigned int more, enum wire_part part)
{
	struct store_options opt = { .mode = STORE_READ_ONLY };
	struct cistern_error err = { 0 };
	struct state_report report;
	struct store *snapshot;
	char name[64];
	uint64_t seq;
	int r;

	world_open(w);
	world_must(store_sync(w->store), "sync");
	store_pin(w->store);
	if (store_snapshot(w->store, name, sizeof(name), &seq, &err) < 0)
		world_die(err.text, err.code);
	world_run_ops(w, more);
	opt.snapshot = name;
	if (store_open(w->store_dir, &opt, &snapshot, &report, &err) < 0)
		world_die(err.text, err.code);
	r = drain(w, snapshot, seq, true, part, w->backing);
	store_abandon(snapshot);
	store_unpin(w->store);
	world_must(store_close(w->store), "close");
	return r;
}

static int dead_session(struct world *w, const char *to)
{
	struct store_options opt = { .mode = STORE_READ_ONLY };
	struct cistern_error err = { 0 };
	struct state_report report;
	struct store *store;
	int r;

	if (store_open(w->store_dir, &opt, &store, &report, &err) < 0)
		world_die(err.text, err.code);
	r = drain(w, store, state_seq(store_state(store)), false, WIRE_PART_WHOLE, to);
	store_abandon(store);
	return r;
}

/* ---- children */

struct part {
	unsigned int ops, more, abort_after;
	enum wire_part part;
	bool live, export;
};

static void in_child(struct world *w, const struct part *p)
{
	char text[32];
	int r = 0;

	if (p->ops) {
		world_open(w);
		world_run_ops(w, p->ops);
		world_must(store_close(w->store), "close");
		_exit(0);
	}
	if (p->abort_after) {
		snprintf(text, sizeof(text), "%u", p->abort_after);
		setenv("CISTERN_AGENT_ABORT_AFTER", text, 1);
	}
	if (p->export)
		r = dead_session(w, w->out);
	else
		r = p->live ? live_session(w, p->more, p->part) : dead_session(w, w->backing);
	_exit(r);
}

static int run_part(struct world *w, struct part p)
{
	int status;
	pid_t pid;

	fflush(stdout);
	pid = fork();
	world_must(pid, "fork");
	if (pid == 0)
		in_child(w, &p);
	/* what a child draws is not drawn again here: each part has a seed of its own */
	world_random(w);
	w->clock_ns += 1000 * WORLD_TIME_STEP;
	world_must(waitpid(pid, &status, 0), "waitpid");
	return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

/* ---- the tests */

static bool check(struct world *w, int status, const char *kind, uint64_t seed)
{
	unsigned int num = compare_trees(w->backing, w->model, false);

	return ok(status == 0 && num == 0, "%s, seed %" PRIu64 " (status %d, %u differences)", kind, seed, status, num);
}

/* The backing files lie where sessions before it have moved them. */
static void export_behind(struct world *w, int status, const char *what, uint64_t seed)
{
	char command[WORLD_PATH_BYTES + 16];

	snprintf(command, sizeof(command), "rm -rf '%s'", w->out);
	if (status != 0 || system(command) != 0)
		return;
	world_must(mkdir(w->out, 0755), "out");
	status = run_part(w, (struct part){ .export = true });
	ok(status == 0 && compare_trees(w->out, w->model, true) == 0,
		"made whole elsewhere behind %s, seed %" PRIu64 " (status %d)", what, seed, status);
}

/* One drain of a dead store; then again, although all is done: nothing changes. */
static void test_dead(struct world *w, uint64_t seed)
{
	int status;

	world_make(w, seed);
	status = run_part(w, (struct part){ .ops = 5 + (unsigned int)(seed * 7 % w->max_ops) });
	ok(status == 0, "operations, seed %" PRIu64 " (status %d)", seed, status);
	world_must(mkdir(w->out, 0755), "out");
	status = run_part(w, (struct part){ .export = true });
	ok(status == 0 && compare_trees(w->out, w->model, true) == 0,
		"made whole elsewhere, seed %" PRIu64 " (status %d)", seed, status);
	status = run_part(w, (struct part){ 0 });
	if (check(w, status, "dead store", seed)) {
		status = run_part(w, (struct part){ 0 });
		check(w, status, "dead store once more", seed);
		export_behind(w, status, "a drain", seed);
	}
}

/* Killed after the first, the second, ... change, until one comes through. */
static void test_killed(struct world *w, uint64_t seed, bool live, unsigned int first, unsigned int stride)
{
	unsigned int kills = 0, at = first;
	int status;

	world_make(w, seed);
	status = run_part(w, (struct part){ .ops = 5 + (unsigned int)(seed * 11 % w->max_ops) });
	ok(status == 0, "operations, seed %" PRIu64 " (status %d)", seed, status);
	do {
		status = run_part(w, (struct part){ .live = live, .abort_after = at });
		at += stride;
		kills += status == EXIT_KILLED;
	} while (status == EXIT_KILLED);
	tap_diag("%u kills", kills);
	check(w, status, live ? "killed, living daemon" : "killed, dead store", seed);
}

/* Killed once, anywhere; then drained. */
static void test_killed_once(struct world *w, uint64_t seed, bool live)
{
	int status;

	world_make(w, seed);
	status = run_part(w, (struct part){ .ops = 5 + (unsigned int)(seed * 13 % w->max_ops) });
	ok(status == 0, "operations, seed %" PRIu64 " (status %d)", seed, status);
	status = run_part(w, (struct part){ .live = live, .abort_after = 1 + world_below(w, 150) });
	if (status == EXIT_KILLED && !live)
		export_behind(w, 0, "one that was killed", seed);
	if (status == EXIT_KILLED)
		status = run_part(w, (struct part){ .live = live });
	check(w, status, live ? "killed once, living daemon" : "killed once, dead store", seed);
}

/* Sessions one after the other, with operations before, after the snapshot, and in between; some are killed. */
static void test_sessions(struct world *w, uint64_t seed)
{
	int status = 0;

	world_make(w, seed);
	for (int i = 0; i < 4; i++) {
		status = run_part(w, (struct part){ .ops = 1 + world_below(w, 25) });
		ok(status == 0, "operations, seed %" PRIu64 " (status %d)", seed, status);
		status = run_part(w, (struct part){ .live = true,
					     .more = world_below(w, 15),
					     .abort_after = world_below(w, 2) ? 1 + world_below(w, 100) : 0 });
		ok(status == 0 || status == EXIT_KILLED, "session %d, seed %" PRIu64 " (status %d)", i, seed, status);
		if (status == EXIT_KILLED)
			status = run_part(w, (struct part){ .live = true });
	}
	status = run_part(w, (struct part){ .live = true });
	check(w, status, "sessions", seed);
	status = run_part(w, (struct part){ .live = true });
	check(w, status, "an idle session", seed);
}

/* As on a node of a job that is node 0: in parts; each may be killed and done again. */
static void test_parts(struct world *w, uint64_t seed)
{
	int status = 0;

	world_make(w, seed);
	for (int i = 0; i < 3; i++) {
		status = run_part(w, (struct part){ .ops = 5 + world_below(w, 40) });
		ok(status == 0, "operations, seed %" PRIu64 " (status %d)", seed, status);
		for (enum wire_part part = WIRE_PART_PARK; part < WIRE_PART_END; part++) {
			struct part p = { .live = true, .part = part };

			p.abort_after = world_below(w, 3) ? 0 : 1 + world_below(w, 20);
			status = run_part(w, p);
			p.abort_after = 0;
			if (status == EXIT_KILLED)
				status = run_part(w, p);
			if (status != 0)
				tap_diag("part %d: status %d", (int)part, status);
		}
		check(w, status, "in parts", seed);
	}
}

static bool wanted(int argc, char **argv, const char *test)
{
	return argc < 4 || strcmp(argv[3], test) == 0;
}

int main(int argc, char **argv)
{
	uint64_t seeds = argc > 1 ? strtoull(argv[1], NULL, 10) : 6, first = argc > 2 ? strtoull(argv[2], NULL, 10) : 1;
	struct world *w = world_new();

	umask(022);
	for (uint64_t seed = first; seed < first + seeds; seed++) {
		if (wanted(argc, argv, "dead"))
			test_dead(w, seed);
		if (wanted(argc, argv, "once"))
			test_killed_once(w, 1000 + seed, seed % 2);
		if (wanted(argc, argv, "sessions"))
			test_sessions(w, 2000 + seed);
		if (wanted(argc, argv, "killed"))
			test_killed(w, 3000 + seed, seed % 2, 1, 1 + (unsigned int)(seed % 7));
		if (wanted(argc, argv, "parts"))
			test_parts(w, 4000 + seed);
	}
	world_free(w);
	return done_testing();
}
