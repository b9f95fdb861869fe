/* SPDX-License-Identifier: GPL-3.0-or-later */
/* A drain makes way: how long an agent rests after its work, and that it does. Rule: docs/design/one-node.md, section 5. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "fs/core/core.h"
#include "mpi-agent/replay/drain.h"
#include "mpi-agent/replay/session.h"
#include "tests/lib/tap.h"

#define MIB (UINT64_C(1) << 20)

static void test_rest(void)
{
	is_u64(session_rest_usec(5000, 100), 0, "all of the time: no rest");
	is_u64(session_rest_usec(5000, 50), 5000, "half of it: as long as the work");
	is_u64(session_rest_usec(5000, 20), 20000, "a fifth: four times as long");
	is_u64(session_rest_usec(0, 1), 0, "no work, no rest");
	is_u64(session_rest_usec(60000000, 10), 1000000, "never more than a second");
}

/* ---- a drain */

#define FILE_BYTES (8 * MIB)
#define HALF_BYTES (FILE_BYTES / 2)

struct watch {
	bool resting;               /* the share is low; until half is done */
	double wall, cpu;           /* seconds, when it became so */
	double took_wall, took_cpu; /* with a low share */
	struct drain_progress last; /* what was said last */
	bool backwards;             /* it has said less than before */
	unsigned int reading_back;  /* how often it said that all is written, and some of it read back */
};

static double seconds(clockid_t clock)
{
	struct timespec t;

	clock_gettime(clock, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static int on_tick(const struct drain_progress *p, struct drain_control *control, void *arg)
{
	struct watch *w = arg;

	if (w->resting && p->done_bytes >= HALF_BYTES && p->verified_bytes >= p->verify_bytes / 2) {
		w->resting = false;
		w->took_wall = seconds(CLOCK_MONOTONIC) - w->wall;
		w->took_cpu = seconds(CLOCK_PROCESS_CPUTIME_ID) - w->cpu;
	}
	control->share_percent = w->resting ? 1 : 100;
	if (p->done_bytes < w->last.done_bytes || p->verified_bytes < w->last.verified_bytes ||
		p->verified_bytes > p->verify_bytes)
		w->backwards = true;
	if (p->done_bytes == p->planned_bytes && p->verified_bytes > 0 && p->verified_bytes < p->verify_bytes)
		w->reading_back++;
	w->last = *p;
	return 0;
}

static _Noreturn void bail_out(const char *why)
{
	printf("Bail out! %s\n", why);
	exit(1);
}

static void make_store(const char *path, const char *backing)
{
	const struct core_hooks hooks = { 0 };
	struct store_options opt = { .mode = STORE_CREATE_OR_OPEN, .backing = backing };
	struct record rec = {
		.type = RECORD_CREATE, .ino = 2, .parent = STATE_ROOT_INO, .mode = S_IFREG | 0644, .name = "f"
	};
	int fd = open(backing, O_RDONLY | O_DIRECTORY);
	struct cistern_error err = { 0 };
	struct state_report report;
	struct config *cfg;
	struct store *store;
	struct core *core;
	char *block = malloc(MIB);

	if (!block || config_create(&cfg) < 0 || store_open(path, &opt, &store, &report, &err) < 0 ||
		core_create(store, cfg, fd, &hooks, &core, &err) < 0)
		bail_out("cannot make a store");
	memset(block, 'x', MIB);
	if (store_commit(store, &rec) < 0)
		bail_out("cannot make a file in it");
	for (uint64_t off = 0; off < FILE_BYTES; off += MIB)
		if (store_write(store, 2, 0, off, block, MIB) < 0)
			bail_out("cannot write to it");
	core_destroy(core);
	store_close(store);
	config_destroy(cfg);
	close(fd);
	free(block);
}

static int drain(const char *path, const char *to, enum drain_verify verify, struct watch *w)
{
	struct store_options opt = { .mode = STORE_READ_ONLY };
	struct drain_options drain = {
		.base_dirfd = -1, .buffer_bytes = 2 * MIB, .verify = verify, .watcher = { .tick = on_tick, .arg = w }
	};
	struct cistern_error err = { 0 };
	struct state_report report;
	struct drain_result res;
	int r = store_open(path, &opt, &drain.store, &report, &err);

	if (r < 0)
		bail_out(err.text);
	drain.upto = state_seq(store_state(drain.store));
	drain.to_dirfd = open(to, O_RDONLY | O_DIRECTORY);
	*w = (struct watch){
		.resting = true, .wall = seconds(CLOCK_MONOTONIC), .cpu = seconds(CLOCK_PROCESS_CPUTIME_ID)
	};
	r = drain_run(&drain, &res, &err);
	if (r < 0)
		tap_diag("%s", err.text);
	close(drain.to_dirfd);
	store_close(drain.store);
	return r;
}

/* Processor time is work, whatever else the machine does; at a share of 1 % there is 99 times as much rest. */
static void test_drain(void)
{
	char top[] = "/tmp/test-yield.XXXXXX", path[64], backing[64], to[64], again[64], cmd[128], file[80];
	struct watch w;
	struct stat st;

	if (!mkdtemp(top))
		bail_out("mkdtemp");
	snprintf(path, sizeof(path), "%s/store", top);
	snprintf(backing, sizeof(backing), "%s/backing", top);
	snprintf(to, sizeof(to), "%s/to", top);
	snprintf(again, sizeof(again), "%s/again", top);
	snprintf(file, sizeof(file), "%s/f", to);
	snprintf(cmd, sizeof(cmd), "rm -rf '%s'", top);
	if (mkdir(backing, 0755) < 0 || mkdir(to, 0755) < 0 || mkdir(again, 0755) < 0)
		bail_out("mkdir");
	make_store(path, backing);
	is_int(drain(path, to, DRAIN_VERIFY_SIZE, &w), 0,
		"a drain that may work 1 % of the time at first, and all of it then");
	ok(!w.resting && w.took_wall > 20 * w.took_cpu, "has rested: %.3f s, of which it worked %.3f", w.took_wall,
		w.took_cpu);
	ok(stat(file, &st) == 0 && (uint64_t)st.st_size == FILE_BYTES, "and has carried all");
	ok(w.last.verify_bytes == 0 && w.last.done_bytes == FILE_BYTES, "nothing is to be read back");
	is_int(drain(path, again, DRAIN_VERIFY_READ, &w), 0, "the same, and what was written is read back");
	ok(w.reading_back > 0 && !w.backwards, "it says how far that is, %u times", w.reading_back);
	is_u64(w.last.verify_bytes, FILE_BYTES, "all was to be read back");
	is_u64(w.last.verified_bytes, FILE_BYTES, "and was");
	if (system(cmd) != 0)
		tap_diag("cannot remove %s", top);
}

int main(void)
{
	test_rest();
	test_drain();
	return done_testing();
}
