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
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "format/store/steps.h"
#include "format/store/store.h"
#include "mpi-agent/replay/drain.h"
#include "mpi-agent/replay/intent.h"
#include "mpi-agent/sink/sink.h"
#include "tests/lib/backed.h"
#include "tests/lib/remove_tree.h"
#include "tests/lib/tap.h"
#include "tests/lib/world.h"

#define KILLED 137 /* as CISTERN_AGENT_ABORT_AFTER has it */

struct place {
	struct backed at;
	int says;       /* of what is in the way */
	ino_t unneeded; /* a node says so of that one; 0: of what says says */
	bool flagless;  /* the backing file system knows no rename but the plain one */
	bool comes;     /* another node's file comes to a name right before ours does */
	bool came;
	bool blind;           /* one look at a name fails */
	unsigned int changes; /* of the backing directory, when it dies */
	unsigned int left;
	bool right, kept, whole; /* so far, in all lives */
	bool cautious;
	bool moves; /* the directory d gives way to another one when the first file is opened there */
	unsigned int asked, late;
	uint64_t asked_ino;
};

static void make_place(struct place *p)
{
	*p = (struct place){ .says = -EBUSY, .left = p->left, .right = p->right, .kept = p->kept, .whole = p->whole };
	backed_make(&p->at);
}

static void start(struct place *p)
{
	*p = (struct place){ 0 };
	make_place(p);
	backed_fill(&p->at);
}

static int on_occupied(const struct record *rec, void *arg)
{
	struct place *p = arg;

	p->asked++;
	p->asked_ino = rec->backing_ino;
	return p->unneeded ? (p->unneeded == rec->backing_ino ? 0 : -EBUSY) : p->says;
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
	return store_commit(p->at.store, &copy);
}

/* ---- the backing directory, in which something happens between a look and a rename */

static struct place *of_sink; /* the one that is being drained */

static void before(const char *to)
{
	if (of_sink->comes && strcmp(to, "n") == 0) {
		of_sink->comes = false;
		of_sink->came = true;
		backed_come(&of_sink->at, "n");
	}
}

static const struct sink_ops *posix;

static void move_dir(const struct place *p)
{
	char from[BACKED_PATH_BYTES], to[BACKED_PATH_BYTES];

	backed_path(&p->at, "d", from);
	backed_path(&p->at, "elsewhere", to);
	world_must(rename(from, to), to);
	world_must(mkdir(from, 0755), from);
}

static int on_open(struct sink *s, const char *path, enum sink_open how, struct sink_file **ret)
{
	if (of_sink->moves && strncmp(path, "d/", 2) == 0) {
		of_sink->moves = false;
		move_dir(of_sink);
	}
	return posix->open(s, path, how, ret);
}

static int on_stat(struct sink *s, const char *path, struct stat *ret)
{
	if (of_sink->blind && strcmp(path, "n") == 0) {
		of_sink->blind = false;
		return -EIO;
	}
	return posix->stat(s, path, ret);
}

static int on_rename(struct sink *s, const char *from, const char *to, bool is_dir)
{
	before(to);
	return posix->rename(s, from, to, is_dir);
}

static int on_rename_new(struct sink *s, const char *from, const char *to)
{
	if (!of_sink->flagless)
		before(to);
	return of_sink->flagless ? -EOPNOTSUPP : posix->rename_new(s, from, to);
}

static int on_exchange(struct sink *s, const char *one, const char *other)
{
	if (!of_sink->flagless)
		before(other);
	return of_sink->flagless ? -EOPNOTSUPP : posix->exchange(s, one, other);
}

static struct sink *open_sink(struct place *p, int fd)
{
	static struct sink_ops ops;
	struct sink *s;

	world_must(sink_posix_create(fd, &s), p->at.backing);
	of_sink = p;
	posix = s->ops;
	ops = *s->ops;
	ops.open = on_open;
	ops.stat = on_stat;
	ops.rename = on_rename;
	ops.rename_new = on_rename_new;
	ops.exchange = on_exchange;
	s->ops = &ops;
	return s;
}

static int on_shared(const struct wire_shared *f, int status, void *arg)
{
	(void)f, (void)status, (void)arg;
	return 0;
}

static struct drain_result drain(struct place *p, enum wire_part part)
{
	struct drain_options opt = { .part = part,
		.cautious = p->cautious,
		.watcher = {
			.step = on_step, .shared = on_shared, .occupied = on_occupied, .late = on_late, .arg = p } };
	struct drain_result res;
	int fd = open(p->at.backing, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	world_must(fd, p->at.backing);
	p->asked = p->late = 0;
	opt.sink = open_sink(p, fd);
	res = backed_drain(&p->at, &opt);
	sink_destroy(opt.sink);
	close(fd);
	return res;
}

/* Names that files, links and moved files of ours are to get. */
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
#define NUM_KINDS (sizeof(kinds) / sizeof(kinds[0]))

static void make_old(struct place *p, size_t kind)
{
	if (kinds[kind].type != RECORD_CREATE)
		backed_commit(&p->at, (struct record){ .type = RECORD_ADOPT,
					      .ino = 10,
					      .parent = STATE_ROOT_INO,
					      .name = "old",
					      .mode = S_IFREG | 0644,
					      .nlink = 1,
					      .backing_ino = backed_put(&p->at, "old", "ours") });
}

static void make_ours(struct place *p, size_t kind)
{
	make_old(p, kind);
	backed_commit(&p->at, kinds[kind]);
}

/* Each with another node's file there. */
static void test_files(void)
{
	for (size_t i = 0; i < NUM_KINDS; i++) {
		struct drain_result res;
		struct place p;

		start(&p);
		make_ours(&p, i);
		ino_t there = backed_put(&p.at, "n", "another node's");
		res = drain(&p, WIRE_PART_FILES);
		ok(p.asked > 0 && p.asked_ino == there, "%s: whose is what has the name? That is asked",
			record_type_name(kinds[i].type));
		ok(backed_holds(&p.at, "n", "another node's"),
			"it is left alone when nobody says that it is not needed");
		is_int(res.totals.failed, 0, "that is no failure");
		ok(res.totals.late == 1 && p.late == 1, "but something that the next session has");
		p.says = 0;
		res = drain(&p, WIRE_PART_FILES);
		ok(!backed_holds(&p.at, "n", "another node's"), "it is replaced when somebody does");
		ok(res.totals.failed == 0 && res.totals.late == 0, "then nothing is left");
		backed_end(&p.at);
	}
}

static int count_temp(const char *name, void *arg)
{
	*(unsigned int *)arg += strncmp(name, ".cistern-tmp-", 13) == 0 || strncmp(name, ".cistern-shared-", 16) == 0;
	return 0;
}

static unsigned int temps(const struct place *p, const char *dir)
{
	int fd = open(p->at.backing, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	unsigned int num = 0;
	struct sink *s;

	world_must(fd, p->at.backing);
	world_must(sink_posix_create(fd, &s), p->at.backing);
	world_must(s->ops->list(s, dir, count_temp, &num), p->at.backing);
	sink_destroy(s);
	close(fd);
	return num;
}

/* A node that knows nothing of it, since it is not in reach, has a directory that was moved by others, and there is another one in its place. */
static void test_dir_moved(size_t kind, bool meanwhile)
{
	struct record rec = kinds[kind];
	char path[BACKED_PATH_BYTES];
	struct drain_result res;
	struct stat st;
	struct place p;

	start(&p);
	p.cautious = true;
	backed_path(&p.at, "d", path);
	world_must(mkdir(path, 0755) == 0 ? stat(path, &st) : -1, path);
	backed_commit(&p.at, (struct record){ .type = RECORD_ADOPT,
				     .ino = 20,
				     .parent = STATE_ROOT_INO,
				     .name = "d",
				     .mode = S_IFDIR | 0755,
				     .nlink = 2,
				     .backing_ino = st.st_ino });
	make_old(&p, kind);
	rec.parent = 20;
	backed_commit(&p.at, rec);
	p.moves = meanwhile;
	if (!meanwhile)
		move_dir(&p);
	res = drain(&p, WIRE_PART_FILES);
	ok(res.totals.failed == (rec.type == RECORD_CREATE),
		"%s: a new file whose directory is not in its place is complained of", record_type_name(rec.type));
	backed_path(&p.at, "d/n", path);
	ok(lstat(path, &st) < 0 && temps(&p, "d") == 0, "nothing comes to another directory");
	backed_end(&p.at);
}

/* Another node's file comes to the name when it has been looked at, and nothing, or what nobody needs, was there. */
static void test_moment(size_t kind, bool had, bool flagless)
{
	struct drain_result res;
	struct place p;

	start(&p);
	make_ours(&p, kind);
	p.unneeded = had ? backed_put(&p.at, "n", "unneeded") : 1;
	p.flagless = flagless;
	p.comes = !flagless;
	res = drain(&p, WIRE_PART_FILES);
	is_int(res.totals.failed, 0, "no failure");
	is_int(res.totals.late, !flagless,
		flagless ? "a file system that knows only plain renames has them"
			 : "a name that got a file since it was looked at waits for the next session");
	is_int(backed_holds(&p.at, "n", "another node's"), !flagless, "which has that file until then");
	if (!flagless) {
		char path[BACKED_PATH_BYTES];

		backed_path(&p.at, "n", path);
		world_must(unlink(path), path);
		res = drain(&p, WIRE_PART_FILES);
		ok(res.totals.late == 0 && res.totals.failed == 0, "it has its own when that has gone");
	}
	is_u64(temps(&p, "."), 0, "nothing is left beside it");
	backed_end(&p.at);
}

/* What has the name cannot be looked at, where the backing file system knows only plain renames. */
static void test_blind(size_t kind)
{
	struct drain_result res;
	struct place p;

	start(&p);
	make_ours(&p, kind);
	backed_put(&p.at, "n", "another node's");
	p.flagless = p.blind = true;
	res = drain(&p, WIRE_PART_FILES);
	ok(!p.blind && backed_holds(&p.at, "n", "another node's"), "%s: what could not be looked at is not replaced",
		record_type_name(kinds[kind].type));
	is_int(res.totals.failed, 1, "that is a failure");
	backed_end(&p.at);
}

/* ---- killed */

/* In a child, since a store has threads: true: it was not killed. */
static bool in_child(struct place *p, size_t kind, void (*act)(struct place *p, size_t kind))
{
	int status;

	fflush(stdout);
	pid_t pid = fork();
	world_must(pid, "fork");
	if (pid == 0) {
		act(p, kind);
		_exit(0);
	}
	world_must(waitpid(pid, &status, 0) < 0 ? -1 : 0, "wait");
	if (!WIFEXITED(status) || (WEXITSTATUS(status) != 0 && WEXITSTATUS(status) != KILLED))
		world_die("a child", ECHILD);
	return WEXITSTATUS(status) == 0;
}

/* The store is left as by a killed daemon, too. */
static void drain_and_die(struct place *p, size_t kind)
{
	char text[16];

	backed_fill(&p->at);
	make_ours(p, kind);
	p->unneeded = backed_put(&p->at, "n", "unneeded");
	snprintf(text, sizeof(text), "%u", p->changes);
	world_must(setenv("CISTERN_AGENT_ABORT_AFTER", text, 1), text);
	drain(p, WIRE_PART_FILES);
}

static void undo(struct place *p)
{
	int fd = open(p->at.backing, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	struct intent *in;
	struct sink *s;

	world_must(fd, p->at.backing);
	world_must(sink_posix_create(fd, &s), p->at.backing);
	world_must(intent_open(backed_in_store(&p->at, INTENT_FILE), &in), backed_in_store(&p->at, INTENT_FILE));
	world_must(intent_undo(in, store_state(p->at.store), s), "undo");
	intent_close(in);
	sink_destroy(s);
	close(fd);
}

static bool is_told(const struct place *p)
{
	uint64_t owner;

	return state_backing_owner(store_state(p->at.store), STATE_ROOT_INO, "n", &owner) == 0 && owner == 10;
}

static void look_and_go_on(struct place *p, size_t kind)
{
	backed_open(&p->at);
	undo(p);
	if (kinds[kind].type != RECORD_CREATE)
		p->whole = p->whole && (backed_holds(&p->at, "old", "ours") || backed_holds(&p->at, "n", "ours"));
	if (p->came)
		p->kept = p->kept && backed_holds(&p->at, "n", "another node's");
	else
		p->right = p->right &&
			   (is_told(p) || backed_holds(&p->at, "n", "unneeded") || backed_is_free(&p->at, "n"));
	struct drain_result res = drain(p, WIRE_PART_FILES);
	p->right = p->right && res.totals.failed == 0 && res.totals.late == p->came && is_told(p) == !p->came;
	if (p->came)
		p->kept = p->kept && backed_holds(&p->at, "n", "another node's");
	else
		p->right = p->right && !backed_holds(&p->at, "n", "unneeded");
	world_must(store_close(p->at.store), p->at.dir);
}

/* At each change of the backing directory, with and without another node's file that comes in the worst moment. */
static void test_kills(struct place *p, size_t kind, bool comes)
{
	bool through = false;
	unsigned int n = 0;

	p->right = p->kept = p->whole = true;
	while (!through && n < 100) {
		make_place(p);
		p->comes = comes;
		p->changes = ++n;
		through = in_child(p, kind, drain_and_die);
		p->comes = false;
		in_child(p, kind, look_and_go_on);
		remove_tree(p->at.top);
	}
	ok(n > 2 && through, "%s: killed at each of %u changes", record_type_name(kinds[kind].type), n - 1);
	ok(p->right,
		"what a node does not need is there, or has gone, or ours is there; the next drain has ours there");
	ok(p->kept, "another node's file keeps its name");
	ok(p->whole, "ours is somewhere");
}

/* ---- a file of two names loses one of them with its directory, and the state knew it by that one */

static void make_two_names(struct place *p)
{
	struct record file = { .type = RECORD_ADOPT, .ino = 10, .parent = 11, .name = "f", .mode = S_IFREG | 0644 };
	char dir[BACKED_PATH_BYTES], one[BACKED_PATH_BYTES], other[BACKED_PATH_BYTES];
	struct stat st;

	backed_path(&p->at, "d", dir);
	world_must(mkdir(dir, 0755), dir);
	world_must(stat(dir, &st), dir);
	file.backing_ino = backed_put(&p->at, "d/f", "ours");
	backed_path(&p->at, "d/f", one);
	backed_path(&p->at, "n", other);
	world_must(link(one, other), other);
	backed_commit(&p->at, (struct record){ .type = RECORD_ADOPT,
				      .ino = 11,
				      .parent = STATE_ROOT_INO,
				      .name = "d",
				      .mode = S_IFDIR | 0755,
				      .nlink = 2,
				      .backing_ino = st.st_ino });
	file.nlink = 2;
	backed_commit(&p->at, file);
	file.parent = STATE_ROOT_INO;
	snprintf(file.name, sizeof(file.name), "n");
	backed_commit(&p->at, file);
}

static void die_removing(struct place *p, size_t unused)
{
	char text[16];

	(void)unused;
	backed_fill(&p->at);
	make_two_names(p);
	backed_commit(&p->at, (struct record){ .type = RECORD_UNLINK, .ino = 10, .parent = 11, .name = "f" });
	backed_commit(
		&p->at, (struct record){ .type = RECORD_UNLINK, .ino = 11, .parent = STATE_ROOT_INO, .name = "d" });
	backed_commit(&p->at, (struct record){ .type = RECORD_FREE, .ino = 11 });
	snprintf(text, sizeof(text), "%u", p->changes);
	world_must(setenv("CISTERN_AGENT_ABORT_AFTER", text, 1), text);
	drain(p, WIRE_PART_WHOLE);
}

static void find_and_go_on(struct place *p, size_t unused)
{
	char path[BACKED_PATH_BYTES];

	(void)unused;
	backed_open(&p->at);
	undo(p);
	p->whole = p->whole && state_backing_path(store_state(p->at.store), 10, path, sizeof(path)) == 0 &&
		   backed_holds(&p->at, path, "ours");
	struct drain_result res = drain(p, WIRE_PART_WHOLE);
	p->right =
		p->right && res.totals.failed == 0 && backed_is_free(&p->at, "d") && backed_holds(&p->at, "n", "ours");
	world_must(store_close(p->at.store), p->at.dir);
}

static void test_name_with_dir(struct place *p)
{
	bool through = false;
	unsigned int n = 0;

	p->right = p->whole = true;
	while (!through && n < 100) {
		make_place(p);
		p->changes = ++n;
		through = in_child(p, 0, die_removing);
		in_child(p, 0, find_and_go_on);
		remove_tree(p->at.top);
	}
	ok(n > 2 && through, "killed at each of %u changes when a name goes with its directory", n - 1);
	ok(p->whole, "the file is where the state says that it is");
	ok(p->right, "and the next drain ends");
}

/* ---- temporary files of a session that was killed, in a directory in which no other one has anything to do */

#define OTHER_JOBS ".cistern-tmp-01234567-d12"

static void make_file_in_dir(struct place *p, bool shared)
{
	char path[BACKED_PATH_BYTES];
	struct stat st;

	backed_fill(&p->at);
	backed_path(&p->at, "d", path);
	world_must(mkdir(path, 0755), path);
	world_must(stat(path, &st), path);
	backed_put(&p->at, "d/" OTHER_JOBS, "of a living job");
	backed_commit(&p->at, (struct record){ .type = RECORD_ADOPT,
				      .ino = 11,
				      .parent = STATE_ROOT_INO,
				      .name = "d",
				      .mode = S_IFDIR | 0755,
				      .nlink = 2,
				      .backing_ino = st.st_ino });
	backed_commit(&p->at,
		(struct record){ .type = RECORD_CREATE, .ino = 10, .parent = 11, .name = "f", .mode = S_IFREG | 0644 });
	if (shared)
		backed_commit(&p->at, (struct record){ .type = RECORD_SHARE, .ino = 10 });
}

static void die_in_dir(struct place *p, size_t part)
{
	char text[16];

	make_file_in_dir(p, part == WIRE_PART_BEGIN);
	snprintf(text, sizeof(text), "%u", p->changes);
	world_must(setenv("CISTERN_AGENT_ABORT_AFTER", text, 1), text);
	drain(p, (enum wire_part)part);
}

/* The file goes, and the directory moves; none of its parts places or removes anything there. */
static void leave_dir(struct place *p, size_t part)
{
	(void)part;
	backed_open(&p->at);
	p->left += temps(p, "d") > 1;
	backed_commit(&p->at, (struct record){ .type = RECORD_UNLINK, .ino = 10, .parent = 11, .name = "f" });
	backed_commit(&p->at, (struct record){ .type = RECORD_FREE, .ino = 10 });
	undo(p);
	drain(p, WIRE_PART_BEGIN);
	drain(p, WIRE_PART_FILES);
	drain(p, WIRE_PART_REMOVE);
	p->right = p->right && temps(p, "d") == 1 && backed_holds(&p->at, "d/" OTHER_JOBS, "of a living job");
	p->kept = p->kept && access(backed_in_store(&p->at, TEMPS_FILE), F_OK) < 0;
	world_must(store_close(p->at.store), p->at.dir);
}

static void test_sweep(struct place *p, enum wire_part part)
{
	bool through = false;
	unsigned int n = 0;

	p->right = p->kept = true;
	p->left = 0;
	while (!through && n < 100) {
		make_place(p);
		p->changes = ++n;
		through = in_child(p, part, die_in_dir);
		in_child(p, part, leave_dir);
		remove_tree(p->at.top);
	}
	ok(through && p->left > 0, "killed at each of %u changes, a session leaves temporary files at %u of them",
		n - 1, p->left);
	ok(p->right, "the next one removes them, and not those of another job");
	ok(p->kept, "and forgets where they were");
}

static int64_t mtime_of(const struct place *p, const char *name)
{
	char path[BACKED_PATH_BYTES];
	struct stat st;

	backed_path(&p->at, name, path);
	world_must(stat(path, &st), path);
	return (int64_t)st.st_mtim.tv_sec * 1000000000 + st.st_mtim.tv_nsec;
}

/*
 * What is removed is known by its number, which another node's file may have got since. If that may be, the nodes are asked.
 */
static void test_number_again(int says, bool as_it_was)
{
	bool stays = !as_it_was && (says == -EEXIST || says == -EBUSY);
	struct cistern_error err = { 0 };
	struct drain_result res;
	struct place p;

	start(&p);
	world_must(store_number(p.at.store, 0, 2, (const uint8_t *)"sixteen bytes...", &err), err.text);
	world_must(store_close(p.at.store), p.at.dir);
	backed_open(&p.at); /* a job's, from the beginning */
	p.cautious = true;
	p.says = says;
	ino_t number = backed_put(&p.at, "n", "another node's");
	backed_commit(&p.at, (struct record){ .type = RECORD_ADOPT,
				     .ino = 10,
				     .parent = STATE_ROOT_INO,
				     .name = "n",
				     .mode = S_IFREG | 0644,
				     .nlink = 1,
				     .size = strlen("another node's"),
				     .mtime_ns = as_it_was ? mtime_of(&p, "n") : 1,
				     .backing_ino = number });
	backed_commit(
		&p.at, (struct record){ .type = RECORD_UNLINK, .ino = 10, .parent = STATE_ROOT_INO, .name = "n" });
	backed_commit(&p.at, (struct record){ .type = RECORD_FREE, .ino = 10 });
	res = drain(&p, WIRE_PART_REMOVE);
	ok(as_it_was ? p.asked == 0 : p.asked == 1 && p.asked_ino == number,
		"nodes are asked for what has the name of a removed file, and its number, unless it is as old");
	is_int(backed_holds(&p.at, "n", "another node's"), stays, "it goes unless a node has it, or does not say so");
	is_int(res.totals.failed, stays && says == -EBUSY, "which is complained of");
	p.says = 0;
	drain(&p, WIRE_PART_REMOVE);
	is_int(p.asked, stays && says == -EBUSY, "and tried again");
	is_int(backed_holds(&p.at, "n", "another node's"), stays && says == -EEXIST, "until it is known");
	backed_end(&p.at);
}

/* It has not gone, by another name, or since somebody uses it: nothing else can have its number. */
static void test_number_in_use(void)
{
	struct place p;

	start(&p);
	p.cautious = true;
	backed_adopt(&p.at, backed_put(&p.at, "n", "ours"));
	backed_commit(
		&p.at, (struct record){ .type = RECORD_UNLINK, .ino = 10, .parent = STATE_ROOT_INO, .name = "n" });
	drain(&p, WIRE_PART_REMOVE);
	ok(p.asked == 0 && !backed_holds(&p.at, "n", "ours"), "what is still known is removed without a question");
	backed_end(&p.at);
}

/* A directory is to get the name of a removed file of ours, where another node's file is by now. */
static void test_directory(bool ours)
{
	struct drain_result res;
	struct place p;

	start(&p);
	backed_adopt(&p.at, backed_put(&p.at, "n", "ours"));
	backed_commit(
		&p.at, (struct record){ .type = RECORD_UNLINK, .ino = 10, .parent = STATE_ROOT_INO, .name = "n" });
	backed_commit(&p.at, (struct record){ .type = RECORD_CREATE,
				     .ino = 11,
				     .parent = STATE_ROOT_INO,
				     .name = "n",
				     .mode = S_IFDIR | 0755 });
	if (!ours)
		backed_come(&p.at, "n");
	res = drain(&p, WIRE_PART_DIRS);
	is_int(res.totals.failed, 0, "no failure");
	is_int(backed_holds(&p.at, "n", "another node's"), !ours,
		"what has a directory's name goes only if it is the file that was removed");
	is_int(res.totals.late, !ours, "else the directory waits for the next session");
	backed_end(&p.at);
}

static unsigned int mode_of(const struct place *p, const char *name)
{
	char path[BACKED_PATH_BYTES];
	struct stat st;

	backed_path(&p->at, name, path);
	world_must(stat(path, &st), path);
	return st.st_mode & 07777;
}

/* A shared file's data have been drained, or are other nodes' affair; its attributes were set later than its data began to be. */
static void test_late_attributes(void)
{
	struct drain_result res;
	struct inode in;
	struct place p;

	start(&p);
	backed_adopt(&p.at, backed_put(&p.at, "n", ""));
	backed_commit(&p.at, (struct record){ .type = RECORD_SHARE, .ino = 10 });
	backed_commit(&p.at,
		(struct record){ .type = RECORD_SETATTR, .ino = 10, .mask = RECORD_ATTR_MODE, .mode = S_IFREG | 0751 });
	res = drain(&p, WIRE_PART_FILES);
	is_int(mode_of(&p, "n"), 0751,
		"attributes of a shared file whose data are in their place are drained by its home alone");
	ok(res.totals.files == 1 && res.totals.failed == 0 && res.totals.late == 0, "as a file");
	world_must(state_inode(store_state(p.at.store), 10, &in), "n");
	ok(!(in.flags & INODE_DIRTY_META), "nothing of it is left to be drained");
	backed_commit(&p.at, (struct record){ .type = RECORD_TRUNCATE, .ino = 10, .size = 5 });
	backed_commit(&p.at,
		(struct record){ .type = RECORD_SETATTR, .ino = 10, .mask = RECORD_ATTR_MODE, .mode = S_IFREG | 0640 });
	res = drain(&p, WIRE_PART_FILES);
	is_int(mode_of(&p, "n"), 0751, "of one whose data are not, they come with these");
	is_u64(res.totals.files, 0, "which no part before has begun with");
	backed_end(&p.at);
}

/* Others begin to write to a file when the part has gone by that begins with shared files, so no part carries it. */
static void test_shared_late(bool written_before)
{
	struct record punch = { .type = RECORD_PUNCH, .ino = 10, .off = 0, .len = 3 };
	struct drain_result res;
	struct place p;

	start(&p);
	backed_commit(&p.at, (struct record){ .type = RECORD_ADOPT,
				     .ino = 10,
				     .parent = STATE_ROOT_INO,
				     .name = "n",
				     .mode = S_IFREG | 0644,
				     .nlink = 1,
				     .size = 11,
				     .backing_ino = backed_put(&p.at, "n", "eleven....!") });
	if (written_before)
		backed_commit(&p.at, punch);
	backed_commit(&p.at, (struct record){ .type = RECORD_SHARE, .ino = 10 });
	punch.off = 5;
	backed_commit(&p.at, punch);
	res = drain(&p, WIRE_PART_FILES);
	ok(res.totals.files == 0 && res.totals.failed == 0,
		"a file that several nodes write, and that was not begun, stays");
	is_int(res.totals.late, written_before, "and is late if its home had written to it when others began");
	backed_end(&p.at);
}

/* A directory was removed in the mount, and has something in it in the last part, which the node that leads does not know. */
static void test_not_empty(bool parked)
{
	const char *name = parked ? ".cistern-park-10" : "d";
	char path[BACKED_PATH_BYTES], inside[64];
	struct drain_result res;
	struct stat st;
	struct place p;

	start(&p);
	backed_path(&p.at, name, path);
	world_must(mkdir(path, 0755), path);
	world_must(stat(path, &st), path);
	backed_commit(&p.at, (struct record){ .type = RECORD_ADOPT,
				     .ino = 10,
				     .parent = STATE_ROOT_INO,
				     .name = "d",
				     .mode = S_IFDIR | 0755,
				     .nlink = 2,
				     .backing_ino = st.st_ino });
	backed_commit(
		&p.at, (struct record){ .type = RECORD_UNLINK, .ino = 10, .parent = STATE_ROOT_INO, .name = "d" });
	if (parked)
		backed_commit(&p.at, (struct record){ .type = RECORD_PLACED,
					     .flags = RECORD_F_MOVED,
					     .ino = 10,
					     .parent = STATE_ROOT_INO,
					     .name = ".cistern-park-10",
					     .from_parent = STATE_ROOT_INO,
					     .from_name = "d",
					     .backing_ino = st.st_ino });
	snprintf(inside, sizeof(inside), "%s/f", name);
	backed_put(&p.at, inside, "another node's");
	res = drain(&p, WIRE_PART_FINISH);
	is_int(res.totals.failed, parked,
		parked ? "all nodes had been told of a parked directory: what is in it is a stranger's"
		       : "one that was removed after that waits for the next session");
	ok(backed_holds(&p.at, inside, "another node's") && res.totals.names_removed == 0, "nothing in it is touched");
	backed_path(&p.at, inside, path);
	world_must(unlink(path), path);
	res = drain(&p, WIRE_PART_FINISH);
	ok(res.totals.failed == 0 && res.totals.names_removed == 1, "the next one removes it when it is empty");
	backed_end(&p.at);
}

/* The place of a file of ours, which is to be written to or moved from there, has been given to another node's file since: ours was removed. */
static void test_lost(const struct record *change)
{
	char from[BACKED_PATH_BYTES], to[BACKED_PATH_BYTES];
	struct drain_result res;
	struct place p;

	start(&p);
	backed_commit(&p.at, (struct record){ .type = RECORD_ADOPT, /* with bytes that the store has not */
				     .ino = 10,
				     .parent = STATE_ROOT_INO,
				     .name = "n",
				     .mode = S_IFREG | 0644,
				     .nlink = 1,
				     .size = strlen("ours"),
				     .backing_ino = backed_put(&p.at, "n", "ours") });
	backed_commit(&p.at, *change);
	backed_put(&p.at, "other", "another node's");
	backed_path(&p.at, "other", from);
	backed_path(&p.at, "n", to);
	world_must(rename(from, to), to);
	res = drain(&p, WIRE_PART_FILES);
	ok(p.asked > 0 && p.asked_ino != 0, "%s: is the file in whose place another one is still needed? That is asked",
		record_type_name(change->type));
	ok(res.totals.failed + res.totals.late == 1,
		"if it is, somebody outside has replaced it, which is complained of, or it is made anew when that is certain");
	p.says = 0;
	res = drain(&p, WIRE_PART_FILES);
	ok(res.totals.failed == 0 && res.totals.late == 0, "if not, there is nothing to do for it");
	ok(backed_holds(&p.at, "n", "another node's"), "what has its place is left alone");
	backed_end(&p.at);
}

/* A drain has carried what was written before it, and not what came while it ran; then somebody replaces the file. */
static void test_carried_in_part(void)
{
	struct record drained = { .type = RECORD_DRAINED, .ino = 10, .size = 4 };
	struct drain_result res;
	struct place p;

	start(&p);
	backed_commit(&p.at, kinds[0]);
	world_must(store_write(p.at.store, 10, 0, 0, "ours", 4), "write");
	drained.upto = state_seq(store_state(p.at.store));
	drained.backing_ino = backed_put(&p.at, "n", "ours");
	world_must(store_write(p.at.store, 10, 0, 100, "more", 4), "write");
	backed_commit(&p.at, (struct record){ .type = RECORD_PLACED,
				     .ino = 10,
				     .parent = STATE_ROOT_INO,
				     .name = "n",
				     .backing_ino = drained.backing_ino });
	backed_commit(&p.at, drained);
	backed_come(&p.at, "n");
	res = drain(&p, WIRE_PART_WHOLE);
	ok(res.totals.failed == 1 && res.totals.files == 0,
		"a file of which a part had been carried, and that somebody has replaced, is not made anew without that part");
	ok(backed_holds(&p.at, "n", "another node's"), "what has its place is left alone");
	backed_end(&p.at);
}

int main(void)
{
	/* A child says in it what it has done. */
	struct place *p = mmap(NULL, sizeof(*p), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	world_must(p == MAP_FAILED ? -1 : 0, "mmap");
	for (size_t i = 0; i < NUM_KINDS; i++) { /* first: there are no threads yet */
		test_kills(p, i, false);
		test_kills(p, i, true);
	}
	test_name_with_dir(p);
	test_sweep(p, WIRE_PART_FILES);
	test_sweep(p, WIRE_PART_BEGIN);
	test_lost(&(struct record){ .type = RECORD_TRUNCATE, .ino = 10, .size = 2 });
	test_lost(&(struct record){ .type = RECORD_RENAME,
		.ino = 10,
		.from_parent = STATE_ROOT_INO,
		.from_name = "n",
		.parent = STATE_ROOT_INO,
		.name = "m" });
	test_files();
	test_carried_in_part();
	for (size_t i = 0; i < NUM_KINDS; i++)
		test_dir_moved(i, false);
	test_dir_moved(0, true);
	test_number_again(0, false);
	test_number_again(-ENOENT, false);
	test_number_again(-EEXIST, false);
	test_number_again(-EBUSY, false);
	test_number_again(-EEXIST, true);
	test_number_in_use();
	test_directory(true);
	test_directory(false);
	test_late_attributes();
	test_shared_late(false);
	test_shared_late(true);
	test_not_empty(false);
	test_not_empty(true);
	for (size_t i = 0; i < NUM_KINDS; i++) {
		test_moment(i, false, false);
		test_moment(i, true, false);
		test_moment(i, true, true);
		test_blind(i);
	}
	return done_testing();
}
