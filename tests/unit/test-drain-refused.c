/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * What the mount says of the steps that a drain reports: it has given up names meanwhile, which are taken back, and nobody's bytes are lost by
 * that; and the draining process ends right behind such a report, when the manifest has to have its say already.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "mpi-agent/sink/sink.h"
#include "tests/lib/backed.h"
#include "tests/lib/remove_tree.h"
#include "tests/lib/tap.h"
#include "tests/lib/world.h"

#define KILLED 137
#define FILES  140u

struct mount {
	struct backed at;
	bool refuses; /* names in the mount have gone; meanwhile another node's file comes to where the new one is */
	bool refuses_moves;
	bool loses_name; /* another node's file comes to "n" when the next move is told, which is refused */
	uint64_t refused_first, refused_last; /* files whose names have gone in the mount; 0: none */
	bool drained;                         /* one of these was said to be */
	uint64_t fails_ino;                   /* the first step about it cannot be taken: the session is over */
	enum record_type fails_type;
	unsigned int dies_at, told; /* of the files that the mount is told to be drained; dies_at 0: it does not */
};

static int on_step(const struct record *rec, void *arg)
{
	struct mount *m = arg;
	struct record copy = *rec;

	if (m->refuses && rec->type == RECORD_PLACED) {
		backed_come(&m->at, rec->name);
		return -ESTALE;
	}
	if (m->refuses_moves && rec->flags & RECORD_F_MOVED)
		return -ENOENT;
	if (m->loses_name && rec->flags & RECORD_F_MOVED) {
		m->loses_name = false;
		backed_come(&m->at, "n");
		return -ENOENT;
	}
	if (rec->ino >= m->refused_first && rec->ino <= m->refused_last) {
		m->drained |= rec->type == RECORD_DRAINED;
		return rec->type == RECORD_PLACED ? -ENOENT : 0;
	}
	if (rec->ino == m->fails_ino && rec->type == m->fails_type)
		return -EIO;
	copy.seq = 0;
	copy.time_ns = 1;
	int r = store_commit(m->at.store, &copy);
	m->told += rec->type == RECORD_DRAINED;
	if (m->dies_at && m->told == m->dies_at)
		_exit(KILLED);
	return r;
}

static struct drain_result drain(struct mount *m, enum wire_part part)
{
	return backed_drain(&m->at, &(struct drain_options){ .part = part, .watcher = { .step = on_step, .arg = m } });
}

static void start(struct mount *m)
{
	*m = (struct mount){ 0 };
	backed_make(&m->at);
	backed_fill(&m->at);
}

static struct record file(uint64_t ino, const char *name)
{
	struct record rec = { .type = RECORD_CREATE, .ino = ino, .parent = STATE_ROOT_INO, .mode = S_IFREG | 0644 };

	snprintf(rec.name, sizeof(rec.name), "%s", name);
	return rec;
}

static void make_many(struct mount *m)
{
	for (unsigned int i = 0; i < FILES; i++) {
		char name[32];

		snprintf(name, sizeof(name), "f%03u", i);
		backed_commit(&m->at, file(100 + i, name));
	}
}

/* What the manifest's log has of it. */
static bool is_logged(const struct mount *m, const char *name, const char *state)
{
	char want[80], line[4096];
	bool found = false;
	FILE *in = fopen(backed_in_store(&m->at, MANIFEST_LOG), "re");

	snprintf(want, sizeof(want), "{\"path\":\"%s\",\"state\":\"%s\"", name, state);
	while (in && !found && fgets(line, sizeof(line), in))
		found = strncmp(line, want, strlen(want)) == 0;
	if (in)
		fclose(in);
	return found;
}

/* What a summary of the log has. */
static bool is_summed_up(const struct mount *m, const char *text)
{
	struct manifest_session session = { .store_uuid = "", .job = "", .backing = "", .destination = "" };
	struct cistern_error err = { 0 };
	struct manifest *log;
	char path[BACKED_PATH_BYTES], all[8192];

	snprintf(path, sizeof(path), "%s", backed_in_store(&m->at, MANIFEST_FILE));
	world_must(manifest_open(backed_in_store(&m->at, MANIFEST_LOG), &log, &err), err.text);
	world_must(manifest_write(log, &session, path, &err), err.text);
	manifest_close(log);
	FILE *in = fopen(path, "re");
	world_must(in ? 0 : -1, path);
	all[fread(all, 1, sizeof(all) - 1, in)] = '\0';
	fclose(in);
	return strstr(all, text);
}

/* ---- killed right behind the word that a file is drained */

static void make_update(struct mount *m)
{
	backed_adopt(&m->at, backed_put(&m->at, "f000", ""));
	backed_commit(&m->at, (struct record){ .type = RECORD_RENAME,
				      .ino = 10,
				      .from_parent = STATE_ROOT_INO,
				      .from_name = "n",
				      .parent = STATE_ROOT_INO,
				      .name = "f000" });
	backed_commit(&m->at, (struct record){ .type = RECORD_TRUNCATE, .ino = 10, .size = 3 });
}

/* In a child, since a store has threads. */
static bool dies(struct mount *m, void (*make)(struct mount *m))
{
	int status;

	fflush(stdout);
	pid_t pid = fork();
	world_must(pid, "fork");
	if (pid == 0) {
		backed_fill(&m->at);
		make(m);
		drain(m, WIRE_PART_WHOLE);
		_exit(0);
	}
	world_must(waitpid(pid, &status, 0) < 0 ? -1 : 0, "wait");
	return WIFEXITED(status) && WEXITSTATUS(status) == KILLED;
}

/* Nobody comes to say what became of it. */
static void test_told_in_time(void (*make)(struct mount *m), unsigned int dies_at)
{
	struct mount m = { .dies_at = dies_at };
	unsigned int said = 0;

	backed_make(&m.at);
	ok(dies(&m, make), "killed behind the word of %u files", dies_at);
	for (unsigned int i = 0; i < dies_at; i++) {
		char name[32];

		snprintf(name, sizeof(name), "f%03u", i);
		said += is_logged(&m, name, "drained");
	}
	is_u64(said, dies_at, "the manifest's log has them");
	remove_tree(m.at.top);
}

/* ---- names that the mount has given up */

/* What is taken back, unless it is not what is there by now. */
static void test_refused(void)
{
	struct mount m;

	start(&m);
	backed_commit(&m.at, file(10, "n"));
	m.refuses = true;
	drain(&m, WIRE_PART_FILES);
	ok(backed_holds(&m.at, "n", "another node's"), "what has come to the place of a file that is taken back stays");
	backed_end(&m.at);
}

/* Found as "n", and moved to a new directory. */
static void make_moved(struct mount *m)
{
	struct record dir = file(11, "d");

	backed_adopt(&m->at, backed_put(&m->at, "n", "only copy"));
	dir.mode = S_IFDIR | 0755;
	backed_commit(&m->at, dir);
	backed_commit(&m->at, (struct record){ .type = RECORD_RENAME,
				      .ino = 10,
				      .from_parent = STATE_ROOT_INO,
				      .from_name = "n",
				      .parent = 11,
				      .name = "m" });
}

/* A file that has been drained before. */
static void make_drained(struct mount *m)
{
	struct manifest *log;

	make_moved(m);
	world_must(manifest_open(backed_in_store(&m->at, MANIFEST_LOG), &log, NULL), MANIFEST_LOG);
	manifest_add_file(log, &(struct manifest_file){ .path = "n", .state = "drained" });
	manifest_close(log);
}

/* The manifest has it where it is. */
static void test_refused_listed(void)
{
	struct mount m;

	start(&m);
	make_drained(&m);
	m.refuses_moves = true;
	drain(&m, WIRE_PART_WHOLE);
	ok(is_summed_up(&m, "{\"path\":\"n\",\"state\":\"drained\""), "what has moved back is what it was before");
	ok(!is_summed_up(&m, "d/m"), "and nothing is said of where it was meanwhile");
	m.refuses_moves = false;
	drain(&m, WIRE_PART_WHOLE);
	ok(is_summed_up(&m, "{\"path\":\"d/m\",\"state\":\"moved\",\"from\":\"n\"}"), "until it has moved");
	backed_end(&m.at);
}

/* The directory has gone in the mount; a new file has the name that the moved one had. */
static void test_refused_move(void)
{
	struct drain_result res;
	struct mount m;

	start(&m);
	make_moved(&m);
	backed_commit(&m.at, file(12, "n"));
	m.refuses_moves = true;
	res = drain(&m, WIRE_PART_WHOLE);
	ok(backed_holds(&m.at, "n", "only copy"), "a file that is moved back is not replaced");
	is_int(res.totals.failed, 1, "what was to replace it waits, which is said");
	m.refuses_moves = false;
	res = drain(&m, WIRE_PART_WHOLE);
	ok(backed_holds(&m.at, "n", "") && backed_holds(&m.at, "d/m", "only copy"), "the next session has both");
	is_int(res.totals.failed, 0, "without a failure");
	backed_end(&m.at);
}

/* The same, and another node's file has come to its old name. */
static void test_refused_without_place(void)
{
	static const char park[] = MANIFEST_PARKED "10";
	struct drain_result res;
	uint64_t owner = 0;
	struct mount m;

	start(&m);
	make_drained(&m);
	m.loses_name = true;
	res = drain(&m, WIRE_PART_WHOLE);
	ok(backed_holds(&m.at, park, "only copy"), "what cannot be moved back is parked beside its old name");
	ok(backed_holds(&m.at, "n", "another node's"), "where another node's file stays");
	ok(state_backing_owner(store_state(m.at.store), STATE_ROOT_INO, park, &owner) == 0 && owner == 10,
		"the mount is told");
	ok(state_backing_owner(store_state(m.at.store), STATE_ROOT_INO, "n", &owner) == -ENOENT,
		"and does not look for it there");
	is_int(res.totals.failed, 0, "nothing has failed");
	ok(is_summed_up(&m, "{\"path\":\"" MANIFEST_PARKED "10\",\"state\":\"moved\",\"from\":\"n\"}"),
		"the manifest has it there");
	drain(&m, WIRE_PART_WHOLE);
	ok(backed_holds(&m.at, "d/m", "only copy") && backed_is_free(&m.at, park),
		"the next session has it in its place");
	ok(backed_holds(&m.at, "n", "another node's"), "and leaves the other one alone");
	ok(is_summed_up(&m, "{\"path\":\"d/m\",\"state\":\"moved\",\"from\":\"n\"}"),
		"the manifest says where it has come from");
	backed_end(&m.at);
}

/* Steps are told in portions, and one ends at the name of a file: in whatever place that is. */
static void test_refused_among_many(void)
{
	struct mount m;

	start(&m);
	make_many(&m);
	backed_commit(&m.at,
		(struct record){ .type = RECORD_LINK, .ino = 100, .parent = STATE_ROOT_INO, .name = "f000 once more" });
	m.refused_first = 110;
	m.refused_last = 100 + FILES - 1;
	drain(&m, WIRE_PART_WHOLE);
	ok(!m.drained, "no file whose name is refused is said to be drained");
	ok(is_logged(&m, "f020", "gone") && !is_logged(&m, "f005", "gone"), "the manifest takes back what it had said");
	backed_end(&m.at);
}

/* ---- the session ends before all that it has done has been told */

static const struct sink_ops *posix;
static unsigned int syncs_left; /* until names cannot be made durable, once */

static int on_sync_names(struct sink *s)
{
	return syncs_left > 0 && --syncs_left == 0 ? -EIO : posix->sync_names(s);
}

static int try_drain(struct mount *m)
{
	static struct sink_ops ops;
	struct drain_options opt = { .part = WIRE_PART_WHOLE, .watcher = { .step = on_step, .arg = m } };
	struct drain_result res;
	int fd = open(m->at.backing, O_RDONLY | O_DIRECTORY | O_CLOEXEC), r;

	world_must(fd, m->at.backing);
	world_must(sink_posix_create(fd, &opt.sink), m->at.backing);
	posix = opt.sink->ops;
	ops = *posix;
	ops.sync_names = on_sync_names;
	opt.sink->ops = &ops;
	r = backed_try_drain(&m->at, &opt, &res);
	opt.sink->ops = posix;
	sink_destroy(opt.sink);
	close(fd);
	return r;
}

/* New files; "n" has been drained before, has more now, and a further name; "old" gets another one. */
static void make_all(struct mount *m)
{
	struct record old = { .type = RECORD_ADOPT, .ino = 11, .parent = STATE_ROOT_INO, .name = "old", .nlink = 1 };
	struct manifest *log;

	start(m);
	backed_adopt(&m->at, backed_put(&m->at, "n", ""));
	old.mode = S_IFREG | 0644;
	old.backing_ino = backed_put(&m->at, "old", "");
	backed_commit(&m->at, old);
	world_must(manifest_open(backed_in_store(&m->at, MANIFEST_LOG), &log, NULL), MANIFEST_LOG);
	manifest_add_file(log, &(struct manifest_file){ .path = "n", .state = "drained" });
	manifest_add_file(log, &(struct manifest_file){ .path = "old", .state = "drained", .size = 17 });
	manifest_close(log);
	backed_commit(&m->at, (struct record){ .type = RECORD_TRUNCATE, .ino = 10, .size = 3 });
	backed_commit(&m->at, (struct record){ .type = RECORD_LINK, .ino = 10, .parent = STATE_ROOT_INO, .name = "m" });
	backed_commit(&m->at, (struct record){ .type = RECORD_RENAME,
				      .ino = 11,
				      .from_parent = STATE_ROOT_INO,
				      .from_name = "old",
				      .parent = STATE_ROOT_INO,
				      .name = "other" });
	for (unsigned int i = 0; i < 3; i++) {
		char name[32];

		snprintf(name, sizeof(name), "f%03u", i);
		backed_commit(&m->at, file(100 + i, name));
	}
}

static bool is_dirty(struct mount *m, uint64_t ino)
{
	struct inode in;

	world_must(state_inode(store_state(m->at.store), ino, &in), "an inode");
	return in.flags & (INODE_NEW | INODE_DIRTY_DATA);
}

static bool is_named(struct mount *m, const char *name)
{
	uint64_t owner;

	return state_backing_owner(store_state(m->at.store), STATE_ROOT_INO, name, &owner) == 0;
}

/* For each file the manifest says what the mount has been told. */
static bool manifest_is_true(struct mount *m)
{
	bool right = true;

	for (unsigned int i = 0; i < 3; i++) {
		char want[64];

		snprintf(want, sizeof(want), "{\"path\":\"f%03u\",\"state\":\"drained\"", i);
		right &= is_summed_up(m, want) == !is_dirty(m, 100 + i);
	}
	right &= is_summed_up(m, "\"state\":\"drained\",\"size\":3") == !is_dirty(m, 10);
	right &= is_summed_up(m, "{\"path\":\"m\"") == is_named(m, "m");
	right &= is_summed_up(m, "{\"path\":\"other\",\"state\":\"moved\",\"from\":\"old\"}") == is_named(m, "other");
	return right && is_summed_up(m, "{\"path\":\"old\",\"state\":\"drained\",\"size\":17") == is_named(m, "old");
}

static void test_ends(unsigned int syncs, uint64_t ino, enum record_type type)
{
	struct mount m;

	make_all(&m);
	m.fails_ino = ino;
	m.fails_type = type;
	syncs_left = syncs;
	ok(try_drain(&m) == -EIO, "a drain fails");
	ok(manifest_is_true(&m), "the manifest says of no file that it is drained which is not so for the mount");
	m.fails_ino = 0;
	syncs_left = 0;
	ok(try_drain(&m) == 0 && !is_dirty(&m, 10) && !is_dirty(&m, 102) && manifest_is_true(&m),
		"the next one has all of them");
	backed_end(&m.at);
}

/* The store's device is full: what is drained makes room there, though that cannot be listed, and the session has failed for that. */
static void test_manifest_full(void)
{
	const char *log;
	struct mount m;

	start(&m);
	backed_commit(&m.at, file(101, "a"));
	log = backed_in_store(&m.at, MANIFEST_LOG);
	world_must(symlink("/dev/full", log), log);
	ok(try_drain(&m) == 0 && !is_dirty(&m, 101), "a file is drained when there is no room for the manifest");
	is_int(m.at.manifest_error, -EIO, "which lacks it, so the session has failed");
	backed_end(&m.at);
}

static bool no_room; /* for what is appended, but for streams */

/* In place of the C library's. */
ssize_t write(int fd, const void *buf, size_t len)
{
	if (no_room && fcntl(fd, F_GETFL) & O_APPEND) {
		errno = ENOSPC;
		return -1;
	}
	return syscall(SYS_write, fd, buf, len);
}

/* What is begun cannot be noted: then it is not begun. */
static void test_intents_full(void)
{
	struct drain_result res;
	struct mount m;

	start(&m);
	backed_commit(&m.at, file(101, "a"));
	no_room = true;
	res = drain(&m, WIRE_PART_WHOLE);
	ok(res.totals.failed == 1 && is_dirty(&m, 101) && backed_is_free(&m.at, "a"),
		"a new file waits when there is no room to note that it gets its name");
	no_room = false;
	res = drain(&m, WIRE_PART_WHOLE);
	ok(res.totals.failed == 0 && !is_dirty(&m, 101), "with room it is drained");
	backed_end(&m.at);
}

int main(void)
{
	test_told_in_time(make_many, 1); /* first: there are no threads yet */
	test_told_in_time(make_many, FILES);
	test_told_in_time(make_update, 1);
	test_refused();
	test_refused_move();
	test_refused_listed();
	test_refused_without_place();
	test_refused_among_many();
	for (unsigned int syncs = 1; syncs <= 3; syncs++) /* names, what is changed in place, what is new */
		test_ends(syncs, 0, RECORD_PLACED);
	test_ends(0, 10, RECORD_PLACED);
	test_ends(0, 10, RECORD_DRAINED);
	test_ends(0, 11, RECORD_PLACED);
	test_ends(0, 101, RECORD_PLACED);
	test_ends(0, 101, RECORD_DRAINED);
	test_manifest_full();
	test_intents_full();
	return done_testing();
}
