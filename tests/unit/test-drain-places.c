/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * A node's part of a job's drain finds that its names have something else in the backing directory than its snapshot knows there: another
 * node's file, perhaps its only copy. Nothing is replaced that nobody has said is not needed; what waits for that is no failure.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "format/store/store.h"
#include "mpi-agent/replay/drain.h"
#include "tests/lib/remove_tree.h"
#include "tests/lib/tap.h"
#include "tests/lib/world.h"

#define DIR_BYTES 256

struct place {
	char top[DIR_BYTES], backing[DIR_BYTES + 8], dir[DIR_BYTES + 8];
	struct store *store;
	int says; /* of what is in the way */
	unsigned int asked, late;
	uint64_t asked_ino;
};

static void commit(struct place *p, struct record rec)
{
	world_must(store_commit(p->store, &rec), record_type_name(rec.type));
}

static void in_backing(const struct place *p, const char *name, char out[DIR_BYTES + 80])
{
	snprintf(out, DIR_BYTES + 80, "%s/%s", p->backing, name);
}

/* Something there; its number. */
static ino_t put(const struct place *p, const char *name, const char *text)
{
	char path[DIR_BYTES + 80];
	struct stat st;

	in_backing(p, name, path);
	int fd = open(path, O_CREAT | O_WRONLY | O_TRUNC, 0644);
	world_must(fd, path);
	world_must(write(fd, text, strlen(text)) < 0 ? -1 : fstat(fd, &st), path);
	close(fd);
	return st.st_ino;
}

static bool holds(const struct place *p, const char *name, const char *text)
{
	char path[DIR_BYTES + 80], got[64] = "";

	in_backing(p, name, path);
	int fd = open(path, O_RDONLY);
	if (fd < 0)
		return false;
	ssize_t n = read(fd, got, sizeof(got) - 1);
	close(fd);
	return n >= 0 && strcmp(got, text) == 0;
}

static void start(struct place *p)
{
	struct store_options opt = { .mode = STORE_CREATE_OR_OPEN, .backing = p->backing, .nodes = 2 };
	struct cistern_error err = { 0 };
	struct state_report report;
	struct stat st;

	*p = (struct place){ .says = -EBUSY };
	snprintf(p->top, sizeof(p->top), "%s/cistern-places-XXXXXX", getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp");
	world_must(mkdtemp(p->top) ? 0 : -1, p->top);
	snprintf(p->backing, sizeof(p->backing), "%s/b", p->top);
	snprintf(p->dir, sizeof(p->dir), "%s/s", p->top);
	world_must(mkdir(p->backing, 0755), p->backing);
	world_must(stat(p->backing, &st), p->backing);
	world_must(store_open(p->dir, &opt, &p->store, &report, &err), p->dir);
	commit(p, (struct record){ .type = RECORD_ADOPT,
			  .ino = STATE_ROOT_INO,
			  .nlink = 2,
			  .mode = st.st_mode,
			  .backing_dev = st.st_dev,
			  .backing_ino = st.st_ino });
}

static void end(struct place *p)
{
	world_must(store_close(p->store), p->dir);
	remove_tree(p->top);
}

static int on_occupied(const struct record *rec, void *arg)
{
	struct place *p = arg;

	p->asked++;
	p->asked_ino = rec->backing_ino;
	return p->says;
}

static void on_late(const char *path, const char *text, void *arg)
{
	(void)path, (void)text;
	((struct place *)arg)->late++;
}

static int on_step(const struct record *rec, void *arg)
{
	struct place *p = arg;
	struct record copy = *rec;

	copy.seq = 0;
	copy.time_ns = 1;
	return store_commit(p->store, &copy);
}

static struct drain_result drain(struct place *p, enum wire_part part)
{
	struct store_options ro = { .mode = STORE_READ_ONLY };
	struct drain_options opt = { .part = part,
		.in_place = true,
		.base_dirfd = -1,
		.num_nodes = 2,
		.domain_size = 16u << 20,
		.since = UINT64_MAX,
		.buffer_bytes = 1u << 20,
		.watcher = { .step = on_step, .occupied = on_occupied, .late = on_late, .arg = p } };
	struct cistern_error err = { 0 };
	struct state_report report;
	struct drain_result res;
	char name[64];

	p->asked = p->late = 0;
	world_must(store_sync(p->store), "sync");
	store_pin(p->store);
	world_must(store_snapshot(p->store, name, sizeof(name), &opt.upto, &err), err.text);
	ro.snapshot = name;
	world_must(store_open(p->dir, &ro, &opt.store, &report, &err), err.text);
	opt.to_dirfd = open(p->backing, O_RDONLY | O_DIRECTORY);
	world_must(opt.to_dirfd, p->backing);
	world_must(drain_run(&opt, &res, &err), err.text);
	close(opt.to_dirfd);
	store_abandon(opt.store);
	store_unpin(p->store);
	return res;
}

/* Names that files, links and moved files of ours are to get, each with another node's file there. */
static void test_files(void)
{
	static const struct record kinds[] = {
		{ .type = RECORD_CREATE, .ino = 10, .parent = STATE_ROOT_INO, .name = "n", .mode = S_IFREG | 0644 },
		{ .type = RECORD_CREATE,
			.ino = 10,
			.parent = STATE_ROOT_INO,
			.name = "n",
			.mode = S_IFLNK | 0777,
			.target = "t",
			.target_len = 1 },
		{ .type = RECORD_RENAME,
			.ino = 10,
			.from_parent = STATE_ROOT_INO,
			.from_name = "old",
			.parent = STATE_ROOT_INO,
			.name = "n" },
		{ .type = RECORD_LINK, .ino = 10, .parent = STATE_ROOT_INO, .name = "n" },
	};

	for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
		struct drain_result res;
		struct place p;

		start(&p);
		if (kinds[i].type != RECORD_CREATE)
			commit(&p, (struct record){ .type = RECORD_ADOPT,
					   .ino = 10,
					   .parent = STATE_ROOT_INO,
					   .name = "old",
					   .mode = S_IFREG | 0644,
					   .nlink = 1,
					   .backing_ino = put(&p, "old", "") });
		commit(&p, kinds[i]);
		ino_t there = put(&p, "n", "another node's");
		res = drain(&p, WIRE_PART_FILES);
		ok(p.asked > 0 && p.asked_ino == there, "%s: whose is what has the name? That is asked",
			record_type_name(kinds[i].type));
		ok(holds(&p, "n", "another node's"), "it is left alone when nobody says that it is not needed");
		is_int(res.totals.failed, 0, "that is no failure");
		ok(res.totals.late == 1 && p.late == 1, "but something that the next session has");
		p.says = 0;
		res = drain(&p, WIRE_PART_FILES);
		ok(!holds(&p, "n", "another node's"), "it is replaced when somebody does");
		ok(res.totals.failed == 0 && res.totals.late == 0, "then nothing is left");
		end(&p);
	}
}

/* A directory is to get the name of a removed file of ours, where another node's file is by now. */
static void test_directory(bool ours)
{
	struct drain_result res;
	struct place p;

	start(&p);
	commit(&p, (struct record){ .type = RECORD_ADOPT,
			   .ino = 10,
			   .parent = STATE_ROOT_INO,
			   .name = "n",
			   .mode = S_IFREG | 0644,
			   .nlink = 1,
			   .backing_ino = put(&p, "n", "ours") });
	commit(&p, (struct record){ .type = RECORD_UNLINK, .ino = 10, .parent = STATE_ROOT_INO, .name = "n" });
	commit(&p, (struct record){ .type = RECORD_CREATE,
			   .ino = 11,
			   .parent = STATE_ROOT_INO,
			   .name = "n",
			   .mode = S_IFDIR | 0755 });
	if (!ours) {
		char from[DIR_BYTES + 80], to[DIR_BYTES + 80];

		put(&p, "other", "another node's");
		in_backing(&p, "other", from);
		in_backing(&p, "n", to);
		world_must(rename(from, to), to);
	}
	res = drain(&p, WIRE_PART_DIRS);
	is_int(res.totals.failed, 0, "no failure");
	is_int(holds(&p, "n", "another node's"), !ours,
		"what has a directory's name goes only if it is the file that was removed");
	is_int(res.totals.late, !ours, "else the directory waits for the next session");
	end(&p);
}

int main(void)
{
	test_files();
	test_directory(true);
	test_directory(false);
	return done_testing();
}
