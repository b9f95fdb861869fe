/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * The stores of a job that died, whose nodes wrote one file (written.h): recovered with what was never committed, into another
 * directory and in place, and with one store lost; and what only some of the stores know.
 *
 *   test-recover-shared [seeds [first seed]]
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "format/place/place.h"
#include "format/store/hosts.h"
#include "mpi-agent/command/recover_run.h"
#include "mpi-agent/command/recover_set.h"
#include "mpi-agent/sink/sink.h"
#include "tests/lib/tap.h"
#include "tests/lib/written.h"

#define LOST_HOST "lost-host"

static void note_hosts(struct written *j)
{
	const char *hosts[WRITTEN_NODES] = { "host-0", LOST_HOST, "host-2" };

	for (unsigned int n = 0; n < WRITTEN_NODES; n++)
		world_must(hosts_note(j->store[n], hosts, WRITTEN_NODES), HOSTS_FILE);
}

/* Of all the ranges that the manifest's log lists as missing, bytes; UINT64_MAX: one is not said to be the lost node's. */
static uint64_t listed_missing(struct manifest *m)
{
	static const char length[] = "\"length\":", node[] = ",\"node\":\"node 1 (host " LOST_HOST ")\"}";
	struct buf log BUF_CLEANUP = { 0 };
	uint64_t bytes = 0;

	world_must(manifest_read(m, 0, SIZE_MAX, &log), "log");
	buf_bytes(&log, "", 1);
	for (char *line = strtok((char *)log.data, "\n"); line; line = strtok(NULL, "\n")) {
		if (strstr(line, "\"state\":\"overlap\""))
			continue;
		for (char *at = line; (at = strstr(at, length));) {
			bytes += strtoull(at + strlen(length), &at, 10);
			if (strncmp(at, node, strlen(node)) != 0)
				return UINT64_MAX;
		}
	}
	return bytes;
}

#define ALL_BUT_LAST (WRITTEN_NODES + 1)

static bool is_lost(unsigned int node, unsigned int lost)
{
	return lost == ALL_BUT_LAST ? node + 1 < WRITTEN_NODES : node + 1 == lost;
}

typedef int tick_fn(const struct drain_progress *progress, struct drain_control *control, void *arg);

/* What is lost is that of node lost - 1; 0: nothing is. sink: NULL, or of that directory. */
static int recover_with(struct written *j, const char *to, unsigned int lost, tick_fn *tick, struct sink *sink,
	struct manifest_totals *ret)
{
	struct store_options how = { .mode = STORE_READ_ONLY };
	struct drain_options opt = { .in_place = strcmp(to, j->backing) == 0,
		.base_dirfd = -1,
		.sink = sink,
		.verify = DRAIN_VERIFY_READ,
		.buffer_bytes = 2u << 20,
		.watcher = { .tick = tick, .error = written_error, .arg = j } };
	struct recover_set set = { 0 };
	struct cistern_error err = { 0 };
	struct state_report report;
	int r = 0;

	for (unsigned int n = 0; r == 0 && n < WRITTEN_NODES; n++) {
		struct store *s;

		if (is_lost(n, lost))
			continue;
		r = store_open(j->dir[n], &how, &s, &report, &err);
		if (r == 0)
			r = recover_set_add(&set, s, &err);
	}
	opt.to_dirfd = open(to, O_RDONLY | O_DIRECTORY);
	if (!opt.in_place)
		opt.base_dirfd = open(j->backing, O_RDONLY | O_DIRECTORY);
	if (r == 0)
		r = recover_set_merge(&set, opt.in_place ? opt.to_dirfd : opt.base_dirfd, &err);
	if (r == 0)
		r = manifest_open(NULL, &opt.manifest, &err);
	if (r == 0)
		r = recover_run(&set, &(struct team){ .size = 1 }, &opt, ret, &err);
	if (r == 0)
		is_u64(listed_missing(opt.manifest), ret->missing_bytes,
			"the manifest says whose store had what is missing");
	manifest_close(opt.manifest);
	if (r < 0)
		tap_diag("recover: %s", err.text);
	close(opt.to_dirfd);
	if (opt.base_dirfd >= 0)
		close(opt.base_dirfd);
	recover_set_close(&set);
	return r;
}

static int recover(struct written *j, const char *to, unsigned int lost, struct manifest_totals *ret)
{
	return recover_with(j, to, lost, NULL, NULL, ret);
}

/* Bytes that node 1 wrote, in whatever domain: all of them are known to the other; most: with what may be lost as well. */
static uint64_t known_lost(const struct written *j, bool most)
{
	uint64_t n = 0;

	for (uint64_t i = 0; i < j->size; i++)
		n += most ? written_is_lost(j, i, 2) : j->owner[i] == 2;
	return n;
}

static void test_dead(struct written *j, uint64_t seed)
{
	char out[WRITTEN_PATH + 16], part[WRITTEN_PATH + 16];
	struct manifest_totals res;
	uint64_t lost, most, missing;

	written_start(j, seed);
	for (unsigned int i = 0; i < 40; i++) {
		written_put(j, (unsigned int)written_draw(j, WRITTEN_NODES));
		if (written_draw(j, 4) == 0)
			written_commit(j, (unsigned int)written_draw(j, WRITTEN_NODES));
	}
	snprintf(out, sizeof(out), "%s/out", j->top);
	snprintf(part, sizeof(part), "%s/part", j->top);
	world_must(mkdir(out, 0755), out);
	world_must(mkdir(part, 0755), part);
	if (seed % 3) /* else all is committed, and it is known what is lost with a store */
		for (unsigned int n = 0; n < WRITTEN_NODES; n++)
			written_forget(j, n);
	else
		for (unsigned int n = 0; n < WRITTEN_NODES; n++)
			written_commit(j, n);
	lost = known_lost(j, false);
	most = known_lost(j, true);
	note_hosts(j);
	for (unsigned int n = 0; n < WRITTEN_NODES; n++)
		store_abandon(j->store[n]);
	ok(recover(j, out, 0, &res) == 0 && res.failed == 0 && res.missing_bytes == 0 && written_is_model(j, out, 0),
		"dead stores, elsewhere, seed %" PRIu64, seed);
	if (seed % 3 == 0) {
		ok(recover(j, part, 2, &res) == 0 && res.failed == 0 && written_is_model(j, part, 2),
			"one store lost, seed %" PRIu64, seed);
		missing = res.missing_bytes;
		ok(missing >= lost && missing <= most, "what is known to be lost, and little more: %" PRIu64,
			missing - lost);
		ok(recover(j, j->backing, 2, &res) == 0 && res.failed == 0, "the same in place, seed %" PRIu64, seed);
		is_u64(res.missing_bytes, missing, "of which the same is missing");
		ok(missing == 0 ||
				strstr(j->said,
					j->existing
						? ": the file has what it had there before, or zeros behind its old end;"
						: ": they are zeros;"),
			"what is in their place is said");
	}
	ok(recover(j, j->backing, 0, &res) == 0 && res.failed == 0 && written_is_model(j, j->backing, 0),
		"dead stores, in place, seed %" PRIu64, seed);
	ok(recover(j, j->backing, 0, &res) == 0 && res.failed == 0 && written_is_model(j, j->backing, 0),
		"and once more, seed %" PRIu64, seed);
	written_end(j, false);
}

/* ---- what only some stores know */

#define SOME 5000u

/* A node writes n bytes of these from off on. */
static void put_bytes(struct written *j, unsigned int node, uint64_t off, size_t len, uint8_t byte)
{
	uint8_t bytes[SOME];

	memset(bytes, byte, len);
	world_must(store_write(j->store[node], WRITTEN_INO, 0, off, bytes, len), "write");
	memset(j->model + off, byte, len);
	j->size = j->size > off + len ? j->size : off + len;
}

/* A map, and the layer or the file of that node, as it does it when it hears of it. */
static void cut_at(struct written *j, unsigned int node, uint64_t size, uint64_t stamp)
{
	struct record cut = { .type = RECORD_SHARE_CUT, .size = size, .stamp = stamp };
	struct record end = { .type = RECORD_TRUNCATE, .size = size };

	written_record(j, node, &cut);
	written_record(j, node, &end);
}

static bool recovers(struct written *j)
{
	char out[WRITTEN_PATH + 64];
	struct manifest_totals res;
	int r;

	snprintf(out, sizeof(out), "%s/out", j->top);
	world_must(mkdir(out, 0755), out);
	r = recover(j, out, 0, &res);
	if (r == 0 && res.failed == 0 && res.missing_bytes == 0 && written_is_model(j, out, 0))
		r = recover(j, j->backing, 0, &res);
	else
		r = -EIO;
	return r == 0 && res.failed == 0 && res.missing_bytes == 0 && written_is_model(j, j->backing, 0);
}

/*
 * A cut that one store alone knows: the others have not heard of it, or forgotten it with their power. What comes before it is gone, wherever it was;
 * what was committed behind it stays. The file is as long as its home says, and what is between shows zeros.
 */
static void test_lone_cut(struct written *j, unsigned int knows)
{
	struct record longer = { .type = RECORD_TRUNCATE };
	uint64_t stamp;

	written_start(j, 2);
	for (unsigned int n = 0; n < WRITTEN_NODES; n++) {
		put_bytes(j, n, 1000 * n, 1000, (uint8_t)(n + 1));
		written_commit(j, n);
	}
	stamp = ++j->stamp;
	cut_at(j, knows, 500, stamp);
	memset(j->model + 500, 0, 2500);
	put_bytes(j, knows, 2500, 100, 9);
	written_commit(j, knows);
	j->size = 3000; /* its home has not forgotten the cut, but never heard of it: no power was lost there */
	if (knows == 0) {
		longer.size = j->size;
		written_record(j, 0, &longer);
	}
	for (unsigned int n = 0; n < WRITTEN_NODES; n++)
		store_abandon(j->store[n]);
	ok(recovers(j), "a cut that only the store of node %u knows", knows);
	written_end(j, false);
}

/*
 * A drain has carried all; node 1 has not dropped what it had written, node 2 has, which had written over that. Not that, nor what it told of it, comes back.
 */
static void test_lone_drop(struct written *j, bool map)
{
	struct record drained = { .type = RECORD_DRAINED, .flags = RECORD_F_TIMED };
	struct record layer = { .type = RECORD_DRAINED };
	struct record drop = { .type = RECORD_SHARE_DROP, .flags = RECORD_F_TIMED };

	written_start(j, 2);
	put_bytes(j, 0, 0, 100, 1);
	written_commit(j, 0);
	put_bytes(j, 1, 0, 3000, 2);
	written_commit(j, 1);
	put_bytes(j, 2, 1000, 1000, 3);
	written_commit(j, 2);
	drained.drop_usec = drop.drop_usec = (uint64_t)clock_now(state_clock(written_state(j, 2))) / 1000;
	for (unsigned int n = 0; n < WRITTEN_NODES; n++)
		clock_heard(state_clock(written_state(j, n)), (int64_t)(drop.drop_usec + 1) * 1000);
	drained.stamp = drop.stamp = j->stamp;
	drained.upto = state_seq(written_state(j, 0));
	layer.upto = state_seq(written_state(j, 2));
	written_drain(j);
	is_u64(j->errors, 0, "all is drained");
	drained.size = j->size;
	written_record(j, 0, &drained);
	if (map)
		written_record(j, 0, &drop);
	written_record(j, 2, &layer);
	put_bytes(j, 1, 10, 20, 4);
	for (unsigned int n = 0; n < WRITTEN_NODES; n++)
		store_abandon(j->store[n]);
	ok(recovers(j), "what was drained does not come back from a store that has forgotten it");
	written_end(j, false);
}

/* The home has forgotten with its power that others write the file; it has made it, and that is all. */
static void test_unknown_writers(struct written *j)
{
	written_start_with(j, 2, false);
	put_bytes(j, 1, 0, 3000, 2);
	written_commit(j, 1);
	for (unsigned int n = 0; n < WRITTEN_NODES; n++)
		store_abandon(j->store[n]);
	ok(recovers(j), "what others wrote to a file whose home does not know of them any more");
	written_end(j, false);
}

/* A file's name was given to another one's of another home, and one of both stores has not heard, or has forgotten. */
static void test_name_twice(struct written *j, unsigned int winner)
{
	char out[WRITTEN_PATH + 64], path[WRITTEN_PATH + 80];
	struct manifest_totals res;
	struct stat st;

	written_start(j, 2);
	for (unsigned int n = 0; n < WRITTEN_NODES; n++) {
		struct record made = { .type = RECORD_CREATE, .parent = STATE_ROOT_INO, .name = "twice" };

		made.ino = place_first_ino(n) + 50;
		made.mode = S_IFREG | (n == winner ? 0600 : 0640);
		made.stamp = n == winner ? 900 : 100 + n;
		written_record(j, n, &made);
		store_abandon(j->store[n]);
	}
	snprintf(out, sizeof(out), "%s/out", j->top);
	world_must(mkdir(out, 0755), out);
	for (const char *to = out; to; to = to == out ? j->backing : NULL) {
		snprintf(path, sizeof(path), "%s/twice", to);
		ok(recover(j, to, 0, &res) == 0 && res.failed == 0 && stat(path, &st) == 0 &&
				st.st_mode == (S_IFREG | 0600),
			"of three files with one name that of node %u has the highest stamp", winner);
	}
	written_end(j, false);
}

static void put_in_map(struct written *j, uint64_t ino, uint64_t off, uint64_t stamp)
{
	struct record_piece piece = { .off = off, .len = 1000, .segment = 1, .kind = EXTENT_LOG };
	struct record put = { .type = RECORD_SHARE_PUT,
		.ino = ino,
		.node = 1,
		.stamp = stamp,
		.base = stamp - 1,
		.pieces = &piece,
		.num_pieces = 1 };

	written_record(j, 2, &put);
}

/*
 * The home and the writer of a file are lost; what a third node's map knows of it is listed, but for what a drain has carried, and not if a node that is there
 * has the file, or its home is.
 */
static void test_nameless(struct written *j)
{
	uint64_t ino = place_first_ino(0) + 70, deleted = place_first_ino(2) + 70, carried = ino + 1;
	struct record drop = { .type = RECORD_SHARE_DROP, .ino = carried, .stamp = UINT64_MAX / 4 };
	struct manifest_totals res;

	written_start(j, 2);
	note_hosts(j);
	put_in_map(j, ino, 5000, 1);
	put_in_map(j, ino, 6000, 2);
	put_in_map(j, ino, 9000, 3);
	put_in_map(j, deleted, 0, 4);
	put_in_map(j, carried, 0, 5);
	written_record(j, 2, &drop);
	for (unsigned int n = 0; n < WRITTEN_NODES; n++)
		store_abandon(j->store[n]);
	ok(recover(j, j->backing, ALL_BUT_LAST, &res) == 0 && res.failed == 0, "a file that only a map knows");
	is_u64(res.missing_bytes, 3000, "what it had is missing");
	ok(recover(j, j->backing, 1, &res) == 0 && res.failed == 0 && res.missing_bytes == 0,
		"nothing is if the node that wrote it is there, and does not have it");
	written_end(j, false);
}

/* ---- more shared files than a message between nodes could list */

#define MANY     2000u
#define MANY_DIR 240 /* letters of the name of each of the directories above them */

/* Directories, one in the other, as all nodes know them. Returns the innermost one. */
static uint64_t make_deep(struct written *j, unsigned int depth)
{
	uint64_t dir = STATE_ROOT_INO;

	for (unsigned int i = 0; i < depth; i++) {
		uint64_t ino = place_first_ino(0) + 1 + i;

		for (unsigned int n = 0; n < WRITTEN_NODES; n++) {
			struct record rec = {
				.type = RECORD_CREATE, .ino = ino, .mode = S_IFDIR | 0755, .parent = dir
			};

			memset(rec.name, 'd', MANY_DIR);
			written_record(j, n, &rec);
		}
		dir = ino;
	}
	return dir;
}

static void test_many(struct written *j, unsigned int num)
{
	struct manifest_totals res;
	uint64_t dir;

	written_start(j, 2);
	dir = make_deep(j, 3);
	for (unsigned int i = 0; i < num; i++) {
		struct record rec = { .type = RECORD_CREATE, .mode = S_IFREG | 0644, .parent = dir };
		struct record share = { .type = RECORD_SHARE };

		share.ino = rec.ino = place_first_ino(0) + 100 + i;
		snprintf(rec.name, sizeof(rec.name), "file-%u", i);
		written_record(j, 0, &rec);
		written_record(j, 0, &share);
	}
	for (unsigned int n = 0; n < WRITTEN_NODES; n++)
		store_abandon(j->store[n]);
	ok(recover(j, j->backing, 0, &res) == 0 && res.failed == 0, "%u shared files of one home", num);
	is_u64(res.files, num + 1, "all of them have been carried");
	written_end(j, false);
}

/* ---- two at a time, where nothing can be locked */

/* As another recovery of the same job begins the file, once. */
static int begin_anew(const struct drain_progress *progress, struct drain_control *control, void *arg)
{
	char path[WRITTEN_PATH + 300], once[WRITTEN_PATH + 16];
	struct written *j = arg;
	DIR *dir = opendir(j->backing);
	struct dirent *e;

	(void)progress, (void)control;
	snprintf(once, sizeof(once), "%s/once", j->top);
	while (dir && (e = readdir(dir))) {
		snprintf(path, sizeof(path), "%s/%s", j->backing, e->d_name);
		if (strncmp(e->d_name, ".cistern-shared-", 16) != 0 || access(once, F_OK) == 0)
			continue;
		world_must(rename(path, once), once);
		world_must(close(open(path, O_WRONLY | O_CREAT | O_EXCL, 0600)), path);
		world_must(truncate(path, (off_t)j->size), path);
		break;
	}
	if (dir)
		closedir(dir);
	return 0;
}

static void test_two(struct written *j)
{
	char path[WRITTEN_PATH + 64];
	struct manifest_totals res;

	written_start(j, 2);
	put_bytes(j, 0, 0, 1000, 1);
	put_bytes(j, 1, 1000, 3000, 2);
	for (unsigned int n = 0; n < WRITTEN_NODES; n++)
		written_commit(j, n);
	for (unsigned int n = 0; n < WRITTEN_NODES; n++)
		store_abandon(j->store[n]);
	snprintf(path, sizeof(path), "%s/f", j->backing);
	ok(recover_with(j, j->backing, 0, begin_anew, NULL, &res) == 0 && res.failed == 1 && access(path, F_OK) != 0,
		"a file that somebody else has begun anew meanwhile is not published");
	ok(recovers(j), "and is when it is done again");
	written_end(j, false);
}

/* ---- what may be of a lost store is not known to have made way */

static const struct sink_ops *posix;
static bool is_broken; /* names cannot be made durable, once */

static int on_sync_names(struct sink *s)
{
	bool broken = is_broken;

	is_broken = false;
	return broken ? -EIO : posix->sync_names(s);
}

static void test_no_way(struct written *j)
{
	char path[WRITTEN_PATH + 64], aside[WRITTEN_PATH + 128];
	int fd = -1, r;
	struct manifest_totals res;
	struct sink_ops ops;
	struct sink *sink;
	struct stat st;

	written_start(j, 2);
	put_bytes(j, 0, 0, 1000, 1);
	written_commit(j, 0);
	for (unsigned int n = 0; n < WRITTEN_NODES; n++)
		store_abandon(j->store[n]);
	snprintf(path, sizeof(path), "%s/f", j->backing);
	world_must(close(open(path, O_WRONLY | O_CREAT | O_EXCL, 0600)), path);
	world_must(stat(path, &st), path);
	snprintf(aside, sizeof(aside), "%s.recovered-inode-%" PRIu64, path,
		(uint64_t)(STATE_BACKING_INO_BIT | st.st_ino));
	fd = open(j->backing, O_RDONLY | O_DIRECTORY);
	world_must(sink_posix_create(fd, &sink), j->backing);
	posix = sink->ops;
	ops = *posix;
	ops.sync_names = on_sync_names;
	sink->ops = &ops;
	is_broken = true;
	r = recover_with(j, j->backing, 2, NULL, sink, &res);
	ok(r == -EIO && access(path, F_OK) != 0 && access(aside, F_OK) == 0,
		"nothing gets the name of what may be of a lost store, and may have it again");
	ok(recover_with(j, j->backing, 2, NULL, sink, &res) == 0 && res.failed == 0 &&
			written_is_model(j, j->backing, 0) && access(aside, F_OK) == 0,
		"and it does when it is done again");
	sink->ops = posix;
	sink_destroy(sink);
	close(fd);
	written_end(j, false);
}

int main(int argc, char **argv)
{
	uint64_t seeds = argc > 1 ? strtoull(argv[1], NULL, 10) : 8, first = argc > 2 ? strtoull(argv[2], NULL, 10) : 1;
	struct written *j = malloc(sizeof(*j));

	world_must(j ? 0 : -ENOMEM, "memory");
	for (uint64_t seed = first; seed < first + seeds; seed++)
		test_dead(j, seed);
	for (unsigned int knows = 0; knows < WRITTEN_NODES; knows++)
		test_lone_cut(j, knows);
	test_lone_drop(j, false);
	test_lone_drop(j, true);
	test_unknown_writers(j);
	test_two(j);
	test_no_way(j);
	for (unsigned int winner = 0; winner < WRITTEN_NODES; winner++)
		test_name_twice(j, winner);
	test_nameless(j);
	test_many(j, MANY);
	free(j);
	return done_testing();
}
