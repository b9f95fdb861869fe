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
#include "tests/lib/remove_tree.h"
#include "tests/lib/tap.h"
#include "tests/lib/world.h"

#define DIR_BYTES 256
#define KILLED    137 /* as CISTERN_AGENT_ABORT_AFTER has it */

struct place {
	char top[DIR_BYTES], backing[DIR_BYTES + 8], dir[DIR_BYTES + 8];
	struct store *store;
	int says;       /* of what is in the way */
	ino_t unneeded; /* a node says so of that one; 0: of what says says */
	bool flagless;  /* the backing file system knows no rename but the plain one */
	bool comes;     /* another node's file comes to a name right before ours does */
	bool came;
	unsigned int changes; /* of the backing directory, when it dies */
	unsigned int left;
	bool right, kept, whole; /* so far, in all lives */
	bool refuses; /* names in the mount have gone; meanwhile another node's file comes to where the new one is */
	uint64_t refused_first, refused_last; /* files whose names have gone in the mount; 0: none */
	bool drained;                         /* one of these was said to be */
	bool refuses_moves;
	bool cautious;
	bool moves; /* the directory d gives way to another one when the first file is opened there */
	unsigned int asked, late;
	uint64_t asked_ino;
};

static void commit(struct place *p, struct record rec)
{
	world_must(store_commit(p->store, &rec), record_type_name(rec.type));
}

/* A file of that number is found as "n". */
static void adopt(struct place *p, ino_t number)
{
	commit(p, (struct record){ .type = RECORD_ADOPT,
			  .ino = 10,
			  .parent = STATE_ROOT_INO,
			  .name = "n",
			  .mode = S_IFREG | 0644,
			  .nlink = 1,
			  .backing_ino = number });
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

static void open_store(struct place *p)
{
	struct store_options opt = { .mode = STORE_CREATE_OR_OPEN, .backing = p->backing, .nodes = 2 };
	struct cistern_error err = { 0 };
	struct state_report report;

	world_must(store_open(p->dir, &opt, &p->store, &report, &err), p->dir);
}

static void make_place(struct place *p)
{
	*p = (struct place){ .says = -EBUSY, .left = p->left, .right = p->right, .kept = p->kept, .whole = p->whole };
	snprintf(p->top, sizeof(p->top), "%s/cistern-places-XXXXXX", getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp");
	world_must(mkdtemp(p->top) ? 0 : -1, p->top);
	snprintf(p->backing, sizeof(p->backing), "%s/b", p->top);
	snprintf(p->dir, sizeof(p->dir), "%s/s", p->top);
	world_must(mkdir(p->backing, 0755), p->backing);
}

static void fill(struct place *p)
{
	struct stat st;

	open_store(p);
	world_must(stat(p->backing, &st), p->backing);
	commit(p, (struct record){ .type = RECORD_ADOPT,
			  .ino = STATE_ROOT_INO,
			  .nlink = 2,
			  .mode = st.st_mode,
			  .backing_dev = st.st_dev,
			  .backing_ino = st.st_ino });
}

static void start(struct place *p)
{
	*p = (struct place){ 0 };
	make_place(p);
	fill(p);
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
	return p->unneeded ? (p->unneeded == rec->backing_ino ? 0 : -EBUSY) : p->says;
}

static void on_late(const char *path, const char *text, void *arg)
{
	(void)path, (void)text;
	((struct place *)arg)->late++;
}

static void come_instead(const struct place *p, const char *name)
{
	char from[DIR_BYTES + 80], to[DIR_BYTES + 80];

	put(p, "other", "another node's");
	in_backing(p, "other", from);
	in_backing(p, name, to);
	world_must(rename(from, to), to);
}

static int on_step(const struct record *rec, void *arg)
{
	struct place *p = arg;
	struct record copy = *rec;

	if (p->refuses && rec->type == RECORD_PLACED) {
		come_instead(p, rec->name);
		return -ESTALE;
	}
	if (p->refuses_moves && rec->flags & RECORD_F_MOVED)
		return -ENOENT;
	if (rec->ino >= p->refused_first && rec->ino <= p->refused_last) {
		p->drained |= rec->type == RECORD_DRAINED;
		return rec->type == RECORD_PLACED ? -ENOENT : 0;
	}
	copy.seq = 0;
	copy.time_ns = 1;
	return store_commit(p->store, &copy);
}

/* ---- the backing directory, in which something happens between a look and a rename */

static struct place *of_sink; /* the one that is being drained */

static void before(const char *to)
{
	if (of_sink->comes && strcmp(to, "n") == 0) {
		of_sink->comes = false;
		of_sink->came = true;
		come_instead(of_sink, "n");
	}
}

static const struct sink_ops *posix;

static void move_dir(const struct place *p)
{
	char from[DIR_BYTES + 80], to[DIR_BYTES + 80];

	in_backing(p, "d", from);
	in_backing(p, "elsewhere", to);
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

	world_must(sink_posix_create(fd, &s), p->backing);
	of_sink = p;
	posix = s->ops;
	ops = *s->ops;
	ops.open = on_open;
	ops.rename = on_rename;
	ops.rename_new = on_rename_new;
	ops.exchange = on_exchange;
	s->ops = &ops;
	return s;
}

static const char *intent_of(const struct place *p)
{
	static char path[DIR_BYTES + 40];

	snprintf(path, sizeof(path), "%s/" INTENT_FILE, p->dir);
	return path;
}

static const char *temps_of(const struct place *p)
{
	static char path[DIR_BYTES + 40];

	snprintf(path, sizeof(path), "%s/" TEMPS_FILE, p->dir);
	return path;
}

static int on_shared(const struct wire_shared *f, int status, void *arg)
{
	(void)f, (void)status, (void)arg;
	return 0;
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
		.cautious = p->cautious,
		.buffer_bytes = 1u << 20,
		.intent_path = intent_of(p),
		.watcher = {
			.step = on_step, .shared = on_shared, .occupied = on_occupied, .late = on_late, .arg = p } };
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
	opt.sink = open_sink(p, opt.to_dirfd);
	world_must(drain_run(&opt, &res, &err), err.text);
	sink_destroy(opt.sink);
	close(opt.to_dirfd);
	store_abandon(opt.store);
	store_unpin(p->store);
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
		commit(p, (struct record){ .type = RECORD_ADOPT,
				  .ino = 10,
				  .parent = STATE_ROOT_INO,
				  .name = "old",
				  .mode = S_IFREG | 0644,
				  .nlink = 1,
				  .backing_ino = put(p, "old", "ours") });
}

static void make_ours(struct place *p, size_t kind)
{
	make_old(p, kind);
	commit(p, kinds[kind]);
}

/* Each with another node's file there. */
static void test_files(void)
{
	for (size_t i = 0; i < NUM_KINDS; i++) {
		struct drain_result res;
		struct place p;

		start(&p);
		make_ours(&p, i);
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

static int count_temp(const char *name, void *arg)
{
	*(unsigned int *)arg += strncmp(name, ".cistern-tmp-", 13) == 0 || strncmp(name, ".cistern-shared-", 16) == 0;
	return 0;
}

static unsigned int temps(const struct place *p, const char *dir)
{
	int fd = open(p->backing, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	unsigned int num = 0;
	struct sink *s;

	world_must(fd, p->backing);
	world_must(sink_posix_create(fd, &s), p->backing);
	world_must(s->ops->list(s, dir, count_temp, &num), p->backing);
	sink_destroy(s);
	close(fd);
	return num;
}

/* A node that knows nothing of it, since it is not in reach, has a directory that was moved by others, and there is another one in its place. */
static void test_dir_moved(size_t kind, bool meanwhile)
{
	struct record rec = kinds[kind];
	char path[DIR_BYTES + 80];
	struct drain_result res;
	struct stat st;
	struct place p;

	start(&p);
	p.cautious = true;
	in_backing(&p, "d", path);
	world_must(mkdir(path, 0755) == 0 ? stat(path, &st) : -1, path);
	commit(&p, (struct record){ .type = RECORD_ADOPT,
			   .ino = 20,
			   .parent = STATE_ROOT_INO,
			   .name = "d",
			   .mode = S_IFDIR | 0755,
			   .nlink = 2,
			   .backing_ino = st.st_ino });
	make_old(&p, kind);
	rec.parent = 20;
	commit(&p, rec);
	p.moves = meanwhile;
	if (!meanwhile)
		move_dir(&p);
	res = drain(&p, WIRE_PART_FILES);
	ok(res.totals.failed == (rec.type == RECORD_CREATE),
		"%s: a new file whose directory is not in its place is complained of", record_type_name(rec.type));
	in_backing(&p, "d/n", path);
	ok(lstat(path, &st) < 0 && temps(&p, "d") == 0, "nothing comes to another directory");
	end(&p);
}

/* Another node's file comes to the name when it has been looked at, and nothing, or what nobody needs, was there. */
static void test_moment(size_t kind, bool had, bool flagless)
{
	struct drain_result res;
	struct place p;

	start(&p);
	make_ours(&p, kind);
	p.unneeded = had ? put(&p, "n", "unneeded") : 1;
	p.flagless = flagless;
	p.comes = !flagless;
	res = drain(&p, WIRE_PART_FILES);
	is_int(res.totals.failed, 0, "no failure");
	is_int(res.totals.late, !flagless,
		flagless ? "a file system that knows only plain renames has them"
			 : "a name that got a file since it was looked at waits for the next session");
	is_int(holds(&p, "n", "another node's"), !flagless, "which has that file until then");
	if (!flagless) {
		char path[DIR_BYTES + 80];

		in_backing(&p, "n", path);
		world_must(unlink(path), path);
		res = drain(&p, WIRE_PART_FILES);
		ok(res.totals.late == 0 && res.totals.failed == 0, "it has its own when that has gone");
	}
	is_u64(temps(&p, "."), 0, "nothing is left beside it");
	end(&p);
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

	fill(p);
	make_ours(p, kind);
	p->unneeded = put(p, "n", "unneeded");
	snprintf(text, sizeof(text), "%u", p->changes);
	world_must(setenv("CISTERN_AGENT_ABORT_AFTER", text, 1), text);
	drain(p, WIRE_PART_FILES);
}

static void undo(struct place *p)
{
	int fd = open(p->backing, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	struct intent *in;
	struct sink *s;

	world_must(fd, p->backing);
	world_must(sink_posix_create(fd, &s), p->backing);
	world_must(intent_open(intent_of(p), &in), intent_of(p));
	world_must(intent_undo(in, store_state(p->store), s), "undo");
	intent_close(in);
	sink_destroy(s);
	close(fd);
}

static bool is_free(const struct place *p, const char *name)
{
	char path[DIR_BYTES + 80];

	in_backing(p, name, path);
	return access(path, F_OK) < 0 && errno == ENOENT;
}

static bool is_told(const struct place *p)
{
	uint64_t owner;

	return state_backing_owner(store_state(p->store), STATE_ROOT_INO, "n", &owner) == 0 && owner == 10;
}

static void look_and_go_on(struct place *p, size_t kind)
{
	open_store(p);
	undo(p);
	if (kinds[kind].type != RECORD_CREATE)
		p->whole = p->whole && (holds(p, "old", "ours") || holds(p, "n", "ours"));
	if (p->came)
		p->kept = p->kept && holds(p, "n", "another node's");
	else
		p->right = p->right && (is_told(p) || holds(p, "n", "unneeded") || is_free(p, "n"));
	struct drain_result res = drain(p, WIRE_PART_FILES);
	p->right = p->right && res.totals.failed == 0 && res.totals.late == p->came && is_told(p) == !p->came;
	if (p->came)
		p->kept = p->kept && holds(p, "n", "another node's");
	else
		p->right = p->right && !holds(p, "n", "unneeded");
	world_must(store_close(p->store), p->dir);
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
		remove_tree(p->top);
	}
	ok(n > 2 && through, "%s: killed at each of %u changes", record_type_name(kinds[kind].type), n - 1);
	ok(p->right,
		"what a node does not need is there, or has gone, or ours is there; the next drain has ours there");
	ok(p->kept, "another node's file keeps its name");
	ok(p->whole, "ours is somewhere");
}

/* ---- temporary files of a session that was killed, in a directory in which no other one has anything to do */

#define OTHER_JOBS ".cistern-tmp-01234567-d12"

static void make_file_in_dir(struct place *p, bool shared)
{
	char path[DIR_BYTES + 80];
	struct stat st;

	fill(p);
	in_backing(p, "d", path);
	world_must(mkdir(path, 0755), path);
	world_must(stat(path, &st), path);
	put(p, "d/" OTHER_JOBS, "of a living job");
	commit(p, (struct record){ .type = RECORD_ADOPT,
			  .ino = 11,
			  .parent = STATE_ROOT_INO,
			  .name = "d",
			  .mode = S_IFDIR | 0755,
			  .nlink = 2,
			  .backing_ino = st.st_ino });
	commit(p,
		(struct record){ .type = RECORD_CREATE, .ino = 10, .parent = 11, .name = "f", .mode = S_IFREG | 0644 });
	if (shared)
		commit(p, (struct record){ .type = RECORD_SHARE, .ino = 10 });
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
	open_store(p);
	p->left += temps(p, "d") > 1;
	commit(p, (struct record){ .type = RECORD_UNLINK, .ino = 10, .parent = 11, .name = "f" });
	commit(p, (struct record){ .type = RECORD_FREE, .ino = 10 });
	undo(p);
	drain(p, WIRE_PART_BEGIN);
	drain(p, WIRE_PART_FILES);
	drain(p, WIRE_PART_REMOVE);
	p->right = p->right && temps(p, "d") == 1 && holds(p, "d/" OTHER_JOBS, "of a living job");
	p->kept = p->kept && access(temps_of(p), F_OK) < 0;
	world_must(store_close(p->store), p->dir);
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
		remove_tree(p->top);
	}
	ok(through && p->left > 0, "killed at each of %u changes, a session leaves temporary files at %u of them",
		n - 1, p->left);
	ok(p->right, "the next one removes them, and not those of another job");
	ok(p->kept, "and forgets where they were");
}

static int64_t mtime_of(const struct place *p, const char *name)
{
	char path[DIR_BYTES + 80];
	struct stat st;

	in_backing(p, name, path);
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
	world_must(store_number(p.store, 0, 2, (const uint8_t *)"sixteen bytes...", &err), err.text);
	world_must(store_close(p.store), p.dir);
	open_store(&p); /* a job's, from the beginning */
	p.cautious = true;
	p.says = says;
	ino_t number = put(&p, "n", "another node's");
	commit(&p, (struct record){ .type = RECORD_ADOPT,
			   .ino = 10,
			   .parent = STATE_ROOT_INO,
			   .name = "n",
			   .mode = S_IFREG | 0644,
			   .nlink = 1,
			   .size = strlen("another node's"),
			   .mtime_ns = as_it_was ? mtime_of(&p, "n") : 1,
			   .backing_ino = number });
	commit(&p, (struct record){ .type = RECORD_UNLINK, .ino = 10, .parent = STATE_ROOT_INO, .name = "n" });
	commit(&p, (struct record){ .type = RECORD_FREE, .ino = 10 });
	res = drain(&p, WIRE_PART_REMOVE);
	ok(as_it_was ? p.asked == 0 : p.asked == 1 && p.asked_ino == number,
		"nodes are asked for what has the name of a removed file, and its number, unless it is as old");
	is_int(holds(&p, "n", "another node's"), stays, "it goes unless a node has it, or does not say so");
	is_int(res.totals.failed, stays && says == -EBUSY, "which is complained of");
	p.says = 0;
	drain(&p, WIRE_PART_REMOVE);
	is_int(p.asked, stays && says == -EBUSY, "and tried again");
	is_int(holds(&p, "n", "another node's"), stays && says == -EEXIST, "until it is known");
	end(&p);
}

/* It has not gone, by another name, or since somebody uses it: nothing else can have its number. */
static void test_number_in_use(void)
{
	struct place p;

	start(&p);
	p.cautious = true;
	adopt(&p, put(&p, "n", "ours"));
	commit(&p, (struct record){ .type = RECORD_UNLINK, .ino = 10, .parent = STATE_ROOT_INO, .name = "n" });
	drain(&p, WIRE_PART_REMOVE);
	ok(p.asked == 0 && !holds(&p, "n", "ours"), "what is still known is removed without a question");
	end(&p);
}

/* A directory is to get the name of a removed file of ours, where another node's file is by now. */
static void test_directory(bool ours)
{
	struct drain_result res;
	struct place p;

	start(&p);
	adopt(&p, put(&p, "n", "ours"));
	commit(&p, (struct record){ .type = RECORD_UNLINK, .ino = 10, .parent = STATE_ROOT_INO, .name = "n" });
	commit(&p, (struct record){ .type = RECORD_CREATE,
			   .ino = 11,
			   .parent = STATE_ROOT_INO,
			   .name = "n",
			   .mode = S_IFDIR | 0755 });
	if (!ours)
		come_instead(&p, "n");
	res = drain(&p, WIRE_PART_DIRS);
	is_int(res.totals.failed, 0, "no failure");
	is_int(holds(&p, "n", "another node's"), !ours,
		"what has a directory's name goes only if it is the file that was removed");
	is_int(res.totals.late, !ours, "else the directory waits for the next session");
	end(&p);
}

/* What the mount has given up is taken back, unless it is not what is there by now. */
static void test_refused(void)
{
	struct place p;

	start(&p);
	commit(&p, (struct record){ .type = RECORD_CREATE,
			   .ino = 10,
			   .parent = STATE_ROOT_INO,
			   .name = "n",
			   .mode = S_IFREG | 0644 });
	p.refuses = true;
	drain(&p, WIRE_PART_FILES);
	ok(holds(&p, "n", "another node's"), "what has come to the place of a file that is taken back stays");
	end(&p);
}

/* The directory into which a file was moved has gone in the mount; a new file has the name that it had. */
static void test_refused_move(void)
{
	struct drain_result res;
	struct place p;

	start(&p);
	adopt(&p, put(&p, "n", "only copy"));
	commit(&p, (struct record){ .type = RECORD_CREATE,
			   .ino = 11,
			   .parent = STATE_ROOT_INO,
			   .name = "d",
			   .mode = S_IFDIR | 0755 });
	commit(&p, (struct record){ .type = RECORD_RENAME,
			   .ino = 10,
			   .from_parent = STATE_ROOT_INO,
			   .from_name = "n",
			   .parent = 11,
			   .name = "m" });
	commit(&p, (struct record){ .type = RECORD_CREATE,
			   .ino = 12,
			   .parent = STATE_ROOT_INO,
			   .name = "n",
			   .mode = S_IFREG | 0644 });
	p.refuses_moves = true;
	res = drain(&p, WIRE_PART_WHOLE);
	ok(holds(&p, "n", "only copy"), "a file that is moved back is not replaced");
	is_int(res.totals.failed, 1, "what was to replace it waits, which is said");
	p.refuses_moves = false;
	res = drain(&p, WIRE_PART_WHOLE);
	ok(holds(&p, "n", "") && holds(&p, "d/m", "only copy"), "the next session has both");
	is_int(res.totals.failed, 0, "without a failure");
	end(&p);
}

#define FILES 140u

/* Steps are told in portions, and one ends at the name of a file: in whatever place that is. */
static void test_refused_among_many(void)
{
	struct place p;

	start(&p);
	for (uint64_t i = 0; i < FILES; i++) {
		struct record rec = {
			.type = RECORD_CREATE, .ino = 100 + i, .parent = STATE_ROOT_INO, .mode = S_IFREG | 0644
		};

		snprintf(rec.name, sizeof(rec.name), "f%03u", (unsigned int)i);
		commit(&p, rec);
	}
	commit(&p,
		(struct record){ .type = RECORD_LINK, .ino = 100, .parent = STATE_ROOT_INO, .name = "f000 once more" });
	p.refused_first = 110;
	p.refused_last = 100 + FILES - 1;
	drain(&p, WIRE_PART_WHOLE);
	ok(!p.drained, "no file whose name is refused is said to be drained");
	end(&p);
}

static unsigned int mode_of(const struct place *p, const char *name)
{
	char path[DIR_BYTES + 80];
	struct stat st;

	in_backing(p, name, path);
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
	adopt(&p, put(&p, "n", ""));
	commit(&p, (struct record){ .type = RECORD_SHARE, .ino = 10 });
	commit(&p,
		(struct record){ .type = RECORD_SETATTR, .ino = 10, .mask = RECORD_ATTR_MODE, .mode = S_IFREG | 0751 });
	res = drain(&p, WIRE_PART_FILES);
	is_int(mode_of(&p, "n"), 0751,
		"attributes of a shared file whose data are in their place are drained by its home alone");
	ok(res.totals.files == 1 && res.totals.failed == 0 && res.totals.late == 0, "as a file");
	world_must(state_inode(store_state(p.store), 10, &in), "n");
	ok(!(in.flags & INODE_DIRTY_META), "nothing of it is left to be drained");
	commit(&p, (struct record){ .type = RECORD_TRUNCATE, .ino = 10, .size = 5 });
	commit(&p,
		(struct record){ .type = RECORD_SETATTR, .ino = 10, .mask = RECORD_ATTR_MODE, .mode = S_IFREG | 0640 });
	res = drain(&p, WIRE_PART_FILES);
	is_int(mode_of(&p, "n"), 0751, "of one whose data are not, they come with these");
	is_u64(res.totals.files, 0, "which no part before has begun with");
	end(&p);
}

/* Others begin to write to a file when the part has gone by that begins with shared files, so no part carries it. */
static void test_shared_late(bool written_before)
{
	struct record punch = { .type = RECORD_PUNCH, .ino = 10, .off = 0, .len = 3 };
	struct drain_result res;
	struct place p;

	start(&p);
	commit(&p, (struct record){ .type = RECORD_ADOPT,
			   .ino = 10,
			   .parent = STATE_ROOT_INO,
			   .name = "n",
			   .mode = S_IFREG | 0644,
			   .nlink = 1,
			   .size = 11,
			   .backing_ino = put(&p, "n", "eleven....!") });
	if (written_before)
		commit(&p, punch);
	commit(&p, (struct record){ .type = RECORD_SHARE, .ino = 10 });
	punch.off = 5;
	commit(&p, punch);
	res = drain(&p, WIRE_PART_FILES);
	ok(res.totals.files == 0 && res.totals.failed == 0,
		"a file that several nodes write, and that was not begun, stays");
	is_int(res.totals.late, written_before, "and is late if its home had written to it when others began");
	end(&p);
}

/* A directory was removed in the mount, and has something in it in the last part, which the node that leads does not know. */
static void test_not_empty(bool parked)
{
	const char *name = parked ? ".cistern-park-10" : "d";
	char path[DIR_BYTES + 80], inside[64];
	struct drain_result res;
	struct stat st;
	struct place p;

	start(&p);
	in_backing(&p, name, path);
	world_must(mkdir(path, 0755), path);
	world_must(stat(path, &st), path);
	commit(&p, (struct record){ .type = RECORD_ADOPT,
			   .ino = 10,
			   .parent = STATE_ROOT_INO,
			   .name = "d",
			   .mode = S_IFDIR | 0755,
			   .nlink = 2,
			   .backing_ino = st.st_ino });
	commit(&p, (struct record){ .type = RECORD_UNLINK, .ino = 10, .parent = STATE_ROOT_INO, .name = "d" });
	if (parked)
		commit(&p, (struct record){ .type = RECORD_PLACED,
				   .flags = RECORD_F_MOVED,
				   .ino = 10,
				   .parent = STATE_ROOT_INO,
				   .name = ".cistern-park-10",
				   .from_parent = STATE_ROOT_INO,
				   .from_name = "d",
				   .backing_ino = st.st_ino });
	snprintf(inside, sizeof(inside), "%s/f", name);
	put(&p, inside, "another node's");
	res = drain(&p, WIRE_PART_FINISH);
	is_int(res.totals.failed, parked,
		parked ? "all nodes had been told of a parked directory: what is in it is a stranger's"
		       : "one that was removed after that waits for the next session");
	ok(holds(&p, inside, "another node's") && res.totals.names_removed == 0, "nothing in it is touched");
	in_backing(&p, inside, path);
	world_must(unlink(path), path);
	res = drain(&p, WIRE_PART_FINISH);
	ok(res.totals.failed == 0 && res.totals.names_removed == 1, "the next one removes it when it is empty");
	end(&p);
}

/* The place of a file of ours, which is to be written to or moved from there, has been given to another node's file since: ours was removed. */
static void test_lost(const struct record *change)
{
	char from[DIR_BYTES + 80], to[DIR_BYTES + 80];
	struct drain_result res;
	struct place p;

	start(&p);
	adopt(&p, put(&p, "n", "ours"));
	commit(&p, *change);
	put(&p, "other", "another node's");
	in_backing(&p, "other", from);
	in_backing(&p, "n", to);
	world_must(rename(from, to), to);
	res = drain(&p, WIRE_PART_FILES);
	ok(p.asked > 0 && p.asked_ino != 0, "%s: is the file in whose place another one is still needed? That is asked",
		record_type_name(change->type));
	is_int(res.totals.failed, 1, "if it is, somebody outside has replaced it, which is complained of");
	p.says = 0;
	res = drain(&p, WIRE_PART_FILES);
	ok(res.totals.failed == 0 && res.totals.late == 0, "if not, there is nothing to do for it");
	ok(holds(&p, "n", "another node's"), "what has its place is left alone");
	end(&p);
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
	test_refused();
	test_refused_move();
	test_refused_among_many();
	test_late_attributes();
	test_shared_late(false);
	test_shared_late(true);
	test_not_empty(false);
	test_not_empty(true);
	for (size_t i = 0; i < NUM_KINDS; i++) {
		test_moment(i, false, false);
		test_moment(i, true, false);
		test_moment(i, true, true);
	}
	return done_testing();
}
