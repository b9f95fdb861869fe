/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Opening, closing, dying: whatever happens to the process, the machine or RocksDB's files, what comes back is what the
 * journal says, and what was durable is in it.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "format/index/db.h"
#include "tests/lib/state_fixture.h"
#include "tests/lib/tap.h"

#define FILE_MODE (S_IFREG | 0644)
#define K         1024u

/* ---- in place of the C library's, for the program's own files */

static _Atomic unsigned int num_fsyncs;

int fsync(int fd)
{
	num_fsyncs++;
	return (int)syscall(SYS_fsync, fd);
}

/* ---- */

static void begin(struct state_fixture *f)
{
	if (fixture_init(f) || fixture_open(f, STATE_READ_WRITE) || fixture_adopt_root(f))
		ok(false, "a new store opens");
}

/* Files from..to - 1, each with a write. */
static uint64_t add_files(struct state_fixture *f, uint64_t from, uint64_t to)
{
	uint64_t seq = 0;

	for (uint64_t i = from; i < to; i++) {
		char name[32];

		snprintf(name, sizeof name, "file-%lu", (unsigned long)i);
		if (commit(f, record_create(i, 1, name, FILE_MODE), NULL) ||
			commit(f, record_write(i, 0, 4 * K, 1 + (uint32_t)i % 5, i * 4 * K), &seq))
			ok(false, "files are added");
	}
	return seq;
}

static uint64_t num_files(struct state *st)
{
	struct state_totals t;

	state_totals(st, &t);
	return t.names;
}

static void test_lives(void)
{
	struct state_fixture f;
	uint64_t seq;

	begin(&f);
	ok(!f.report.rebuilt && !f.report.clean, "a new store is not rebuilt, and nobody has closed it");
	add_files(&f, 2, 50);
	is_int(fixture_close(&f), 0, "close");
	is_int(fixture_open(&f, STATE_READ_WRITE), 0, "open");
	ok(f.report.clean && f.report.replayed_records == 0, "clean, nothing to replay");
	is_u64(num_files(f.st), 48, "all there");
	is_u64(state_new_ino(f.st), 50, "numbers go on");
	seq = add_files(&f, 50, 80);
	fixture_kill(&f);
	is_int(fixture_open(&f, STATE_READ_WRITE), 0, "open after a kill");
	ok(!f.report.clean && f.report.replayed_records > 60 && !f.report.rebuilt, "the tail is replayed");
	ok(state_seq(f.st) > seq && num_files(f.st) == 78, "all there");
	is_int(state_checkpoint(f.st), 0, "checkpoint");
	add_files(&f, 80, 90);
	fixture_kill(&f);
	is_int(fixture_open(&f, STATE_READ_WRITE), 0, "open");
	ok(f.report.replayed_records <= 21, "only what came after the checkpoint, and its SYNC, is replayed");
	is_int(fixture_differences(&f), 0, "as from the journal");
	fixture_end(&f);
}

static void test_orphans(void)
{
	struct state_fixture f;
	uint64_t live;

	begin(&f);
	add_files(&f, 2, 12);
	for (uint64_t i = 2; i < 6; i++) {
		char name[32];

		snprintf(name, sizeof name, "file-%lu", (unsigned long)i);
		commit(&f, record_name(RECORD_UNLINK, i, 1, name), NULL);
		if (i == 3)
			state_checkpoint(f.st);
	}
	fixture_kill(&f);
	is_int(fixture_open(&f, STATE_READ_WRITE), 0, "open");
	is_u64(f.report.orphans, 4, "orphans are freed");
	is_u64(f.freed_bytes, 16 * K, "and their payload is told");
	is_int(state_segment_live(f.st, 4, &live), 0, "a segment");
	is_u64(live, 4 * K, "has what is left");
	is_int(fixture_differences(&f), 0, "as from the journal");
	fixture_end(&f);
}

/* RocksDB's files of an earlier time, or none, or damaged ones. */
static void test_index_lost(void)
{
	struct state_fixture f;
	char old[400], path[800];
	int fd;

	begin(&f);
	snprintf(old, sizeof old, "%s/old", f.dir);
	add_files(&f, 2, 40);
	state_checkpoint(f.st);
	is_int(fixture_copy_index(&f, f.index, old), 0, "copy the index");
	add_files(&f, 40, 60);
	state_checkpoint(f.st);
	add_files(&f, 60, 70);
	fixture_kill(&f);
	fixture_copy_index(&f, old, f.index);
	is_int(fixture_open(&f, STATE_READ_WRITE), 0, "open with the older index");
	ok(!f.report.rebuilt && num_files(f.st) == 68, "more is replayed");
	is_int(state_compact(f.st), 0, "compact");
	add_files(&f, 70, 75);
	fixture_kill(&f);
	fixture_copy_index(&f, old, f.index);
	is_int(fixture_open(&f, STATE_READ_WRITE), 0, "open with an index older than the journal");
	ok(f.report.rebuilt && num_files(f.st) == 73, "it is rebuilt");
	fixture_kill(&f);
	snprintf(path, sizeof path, "%s/CURRENT", f.index);
	unlink(path);
	is_int(fixture_open(&f, STATE_READ_WRITE), 0, "open without CURRENT");
	ok(f.report.rebuilt && num_files(f.st) == 73, "it is rebuilt");
	fixture_kill(&f);
	fd = open(path, O_WRONLY | O_TRUNC);
	if (fd < 0 || write(fd, "MANIFEST-x", 10) != 10 || close(fd) < 0)
		ok(false, "damage is done");
	is_int(fixture_open(&f, STATE_READ_WRITE), 0, "open with a damaged CURRENT");
	ok(f.report.rebuilt && num_files(f.st) == 73, "it is rebuilt");
	fixture_kill(&f);
	is_int(fixture_open(&f, STATE_REBUILD), 0, "rebuild on demand");
	ok(f.report.rebuilt && num_files(f.st) == 73, "the same");
	is_int(fixture_differences(&f), 0, "as from the journal");
	fixture_end(&f);
}

static bool is_marked(const struct state_fixture *f)
{
	char mark[400];

	snprintf(mark, sizeof mark, "%s/" DB_DAMAGED_FILE, f->index);
	return access(mark, F_OK) == 0;
}

/* For 398 files, or up to the first that the index cannot be read for. */
static int ask_all(const struct state_fixture *f)
{
	struct state_name d;
	int r = 0;

	for (uint64_t i = 2; i < 400 && (r == 0 || r == -ENOENT); i++) {
		char name[32];

		snprintf(name, sizeof name, "file-%lu", (unsigned long)i);
		r = state_lookup(f->st, 1, name, &d);
	}
	return r;
}

static void test_damaged_table(void)
{
	struct state_fixture f;

	begin(&f);
	add_files(&f, 2, 400);
	fixture_close(&f);
	ok(damage_tables(f.index) > 0, "table files are damaged");
	is_int(fixture_open(&f, STATE_READ_WRITE), 0, "open");
	if (!f.report.rebuilt) { /* only reading shows it: the look-up fails, and the next open knows */
		int r = ask_all(&f);

		is_int(r, -EBADMSG, "a look-up that meets the damage says so");
		unsigned int before = num_fsyncs;
		ok(before > 0 && is_marked(&f), "and the index is marked");
		is_int(ask_all(&f), -EBADMSG, "so does another one");
		is_u64(num_fsyncs - before, 0, "which need not mark it");
		is_int(commit(&f, record_write(2, 0, 4 * K, 9, 0), NULL), -EIO, "and no commit follows");
		fixture_kill(&f);
		is_int(fixture_open(&f, STATE_READ_WRITE), 0, "open again");
	}
	ok(f.report.rebuilt && num_files(f.st) == 398, "it is rebuilt");
	is_int(fixture_differences(&f), 0, "as from the journal");
	fixture_end(&f);
}

/* The index is written behind the journal: one that stands for more is what is left of files that were lost. */
static void test_index_ahead(void)
{
	static const enum state_mode modes[] = { STATE_READ_WRITE, STATE_READ_ONLY, STATE_REBUILD };
	struct state_fixture f, g;

	begin(&f);
	begin(&g);
	add_files(&f, 2, 10);
	add_files(&g, 2, 30);
	fixture_close(&g);
	fixture_kill(&f);
	fixture_copy_index(&f, g.index, f.index);
	for (size_t i = 0; i < sizeof modes / sizeof modes[0]; i++) {
		is_int(fixture_open(&f, modes[i]), -EBADMSG, "an index that is ahead of the journal is refused");
		ok(strstr(f.err.text, "were lost") && strstr(f.err.text, "fsck"), "why and what to do: %s", f.err.text);
		fixture_kill(&f);
	}
	is_int(fixture_open(&f, STATE_INDEX_ALONE), 0, "the journal begins anew behind it");
	is_u64(num_files(f.st), 28, "with all that it stands for");
	add_files(&f, 40, 50);
	is_int(fixture_differences(&f), 0, "as from the journal");
	fixture_kill(&f);
	is_int(fixture_open(&f, STATE_REBUILD), 0, "which is whole");
	is_u64(num_files(f.st), 38, "with what came since");
	fixture_end(&f);
	fixture_end(&g);
}

/* From now on, or no more: as on a device without room, or without descriptors. */
static void let_no_mark_be_made(const struct state_fixture *f, bool none)
{
	char mark[400];

	snprintf(mark, sizeof mark, "%s/" DB_DAMAGED_FILE, f->index);
	if (none ? symlink("nowhere/at/all", mark) : unlink(mark))
		abort();
}

/* A checkpoint whose journal could not be synced stands for nothing, also when power is lost behind it. */
static void test_index_not_durable(void)
{
	struct state_fixture f;

	for (uint64_t seed = 1; seed <= 8; seed++) {
		bool no_mark = seed % 4 == 1, late_mark = seed % 4 == 2;

		begin(&f);
		uint64_t synced = add_files(&f, 2, 10);
		state_sync(f.st, synced, NULL);
		add_files(&f, 10, 30);
		sim_stop_at_sync(f.sim, 1);
		if (no_mark || late_mark)
			let_no_mark_be_made(&f, true);
		ok(state_checkpoint(f.st) < 0, "power is lost in a checkpoint");
		if (late_mark)
			let_no_mark_be_made(&f, false);
		fixture_kill(&f);
		ok(is_marked(&f) == !no_mark, "the index is %s", no_mark ? "not marked" : "marked");
		fixture_reboot(&f, seed);
		is_int(fixture_open(&f, STATE_READ_WRITE), 0, "the store opens");
		ok(num_files(f.st) >= 8, "with what was synced");
		is_int(fixture_differences(&f), 0, "as from the journal");
		fixture_end(&f);
	}
}

static int list_files(const char *dir, char *out, size_t cap)
{
	struct dirent **entries;
	int num = scandir(dir, &entries, NULL, alphasort);
	struct stat st;
	size_t at = 0;

	out[0] = '\0';
	for (int i = 0; i < num; i++) {
		char path[800];

		snprintf(path, sizeof path, "%s/%s", dir, entries[i]->d_name);
		if (entries[i]->d_name[0] != '.' && stat(path, &st) == 0 && at < cap)
			at += (size_t)snprintf(out + at, cap - at, "%s %ld;", entries[i]->d_name, (long)st.st_size);
		free(entries[i]);
	}
	free(entries);
	return num;
}

static int count_entries(const char *path)
{
	struct dirent *entry;
	DIR *dir = opendir(path);
	int num = 0;

	while (dir && (entry = readdir(dir)))
		num += entry->d_name[0] != '.';
	if (dir)
		closedir(dir);
	return num;
}

static void test_read_only(void)
{
	struct state_fixture f;
	char before[4000], after[4000], path[400];
	struct state_name d;
	uint64_t calls;

	begin(&f);
	add_files(&f, 2, 20);
	state_checkpoint(f.st);
	add_files(&f, 20, 30);
	fixture_kill(&f);
	list_files(f.index, before, sizeof before);
	calls = sim_calls(f.sim);
	is_int(fixture_open(&f, STATE_READ_ONLY), 0, "open for reading only");
	is_u64(num_files(f.st), 28, "with the tail");
	ok(f.report.replayed_records >= 20 && f.report.replayed_records <= 21, "which was applied");
	is_int(commit(&f, record_create(99, 1, "x", FILE_MODE), NULL), -EROFS, "no commits");
	ok(state_sync(f.st, 0, NULL) == -EROFS && state_checkpoint(f.st) == -EROFS && state_compact(f.st) == -EROFS,
		"nothing is written");
	is_int(fixture_close(&f), 0, "close");
	list_files(f.index, after, sizeof after);
	is_str(after, before, "no file of the index has changed");
	is_u64(sim_calls(f.sim), calls, "nor of the journal");
	snprintf(path, sizeof path, "%s/index.away", f.dir);
	rename(f.index, path);
	snprintf(path, sizeof path, "%s/tmp", f.dir);
	if (mkdir(path, 0700) < 0 || setenv("TMPDIR", path, 1) < 0)
		abort();
	is_int(fixture_open(&f, STATE_READ_ONLY), 0, "open for reading only without an index");
	ok(f.report.rebuilt && num_files(f.st) == 28 && state_lookup(f.st, 1, "file-29", &d) == 0, "from the journal");
	is_int(count_entries(path), 1, "in a temporary directory");
	is_int(fixture_close(&f), 0, "close");
	is_int(count_entries(path), 0, "which is gone then");
	unsetenv("TMPDIR");
	ok(access(f.index, F_OK) < 0 && sim_calls(f.sim) == calls, "nothing was made or changed");
	fixture_end(&f);
}

static void test_snapshot(void)
{
	struct state_fixture f;
	struct cistern_error err;
	char path[400], live[300];
	uint64_t seq = 0;

	begin(&f);
	add_files(&f, 2, 20);
	snprintf(path, sizeof path, "%s/snap-1", f.dir);
	is_int(state_snapshot(f.st, path, &seq, &err), 0, "snapshot");
	ok(seq + 1 >= state_seq(f.st), "as of now");
	ok(state_snapshot(f.st, path, &seq, &err) < 0, "not twice at one place");
	add_files(&f, 20, 30);
	state_checkpoint(f.st);
	strcpy(live, f.index);
	{
		struct state *st = f.st;

		strcpy(f.index, path);
		is_int(fixture_open(&f, STATE_SNAPSHOT), 0, "open it beside the living one");
		is_u64(num_files(f.st), 18, "it has not moved on");
		is_u64(state_seq(f.st), seq, "and knows its version");
		fixture_kill(&f);
		strcpy(f.index, live);
		f.st = st;
	}
	is_u64(num_files(f.st), 28, "the living one has");
	fixture_end(&f);
}

static void test_compaction(void)
{
	struct state_fixture f;
	uint64_t ino = 2;

	begin(&f);
	f.journal_size = 64u << 10;
	fixture_kill(&f);
	fixture_open(&f, STATE_READ_WRITE);
	while (!state_wants_compaction(f.st) && ino < 100000) {
		add_files(&f, ino, ino + 100);
		ino += 100;
	}
	ok(ino < 100000, "a journal that has grown wants to be compacted");
	is_int(state_compact(f.st), 0, "compact");
	is_int(fixture_differences(&f), 0, "the journal still says the same");
	add_files(&f, ino, ino + 10);
	is_int(fixture_differences(&f), 0, "and goes on");
	fixture_kill(&f);
	is_int(fixture_open(&f, STATE_REBUILD), 0, "rebuild");
	is_u64(num_files(f.st), ino + 8, "from .ckp file and journal");
	is_int(state_compact(f.st), 0, "compact again");
	fixture_kill(&f);
	is_int(fixture_open(&f, STATE_READ_WRITE), 0, "open right after a compaction");
	ok(!f.report.rebuilt && f.report.replayed_records <= 1, "nothing is lost or replayed");
	is_int(fixture_differences(&f), 0, "as from the journal");
	fixture_end(&f);
}

static void test_power(void)
{
	struct state_fixture f;
	uint64_t synced, durable = 0;

	for (uint64_t seed = 1; seed <= 12; seed++) {
		begin(&f);
		synced = add_files(&f, 2, 20);
		state_sync(f.st, synced, &durable);
		ok(durable >= synced, "synced");
		add_files(&f, 20, 40);
		if (seed % 3 == 0)
			state_checkpoint(f.st);
		add_files(&f, 40, 60);
		f.lost_from = synced + 2;
		f.lost_to = synced + 10;
		fixture_reboot(&f, seed);
		is_int(fixture_open(&f, STATE_READ_WRITE), 0, "open after a loss of power");
		ok(f.report.rebooted, "which is noticed");
		ok(num_files(f.st) >= (seed % 3 == 0 ? 38 : 18), "what was synced is there");
		if (f.report.dropped_writes) {
			struct extent e;
			uint64_t next;
			size_t num = 9;

			ok(f.report.dropped_bytes == f.report.dropped_writes * 4 * K,
				"writes without payload are dropped");
			state_extents(f.st, 20, 0, 4 * K, &e, 1, &num, &next);
			is_u64(num, 0, "the file does not have them");
			f.lost_from = f.lost_to = 0;
			is_int(fixture_differences(&f), 0, "nor does the journal any more");
		}
		fixture_kill(&f);
		is_int(fixture_open(&f, STATE_READ_WRITE), 0, "open again");
		ok(!f.report.rebooted && f.report.dropped_writes == 0, "once is enough");
		add_files(&f, 60, 65);
		is_int(fixture_differences(&f), 0, "as from the journal");
		fixture_end(&f);
	}
}

/* The device stops at each sync in turn, in the middle of checkpoints and compactions. */
static void test_power_at_syncs(void)
{
	struct state_fixture f;
	bool good = true, kept = true, same = true;

	for (uint64_t k = 1; k <= 14; k++) {
		uint64_t synced, durable = 0;

		begin(&f);
		synced = add_files(&f, 2, 20);
		state_sync(f.st, synced, &durable);
		sim_stop_at_sync(f.sim, k);
		for (uint64_t i = 0; i < 5 && f.st; i++) {
			for (uint64_t j = 20 + 5 * i; j < 25 + 5 * i; j++) {
				char name[32];

				snprintf(name, sizeof name, "file-%lu", (unsigned long)j);
				commit(&f, record_create(j, 1, name, FILE_MODE), NULL);
			}
			if (i % 2 == 0)
				state_checkpoint(f.st);
			else
				state_compact(f.st);
		}
		fixture_reboot(&f, k);
		good = good && fixture_open(&f, STATE_READ_WRITE) == 0;
		kept = kept && f.st && num_files(f.st) >= 18;
		same = same && f.st && fixture_differences(&f) == 0;
		fixture_end(&f);
	}
	ok(good, "power lost at any sync: the store opens");
	ok(kept, "with what was synced");
	ok(same, "and index and journal agree");
}

struct worker {
	struct state_fixture *f;
	uint64_t from, to;
	_Atomic(int) error;
};

static void *commit_files(void *arg)
{
	struct worker *w = arg;

	for (uint64_t i = w->from; i < w->to && w->error == 0; i++) {
		char name[32];

		snprintf(name, sizeof name, "file-%lu", (unsigned long)i);
		w->error = commit(w->f, record_create(i, 1, name, FILE_MODE), NULL);
		if (w->error == 0)
			w->error = commit(w->f, record_write(i, 0, 4 * K, 1 + (uint32_t)i % 5, i * 4 * K), NULL);
		if (w->error == 0 && i % 50 == 0)
			w->error = state_sync(w->f->st, state_seq(w->f->st), NULL);
	}
	return NULL;
}

/* Two write, one makes checkpoints, compacts, takes snapshots and asks. */
static void test_threads(void)
{
	struct worker w[2];
	pthread_t thread[2];
	struct state_fixture f;
	struct state_name list[8];
	struct state_totals t = { 0 };
	char path[400];
	size_t num;
	int r = 0;

	begin(&f);
	for (int i = 0; i < 2; i++) {
		w[i] = (struct worker){ .f = &f, .from = 2 + (uint64_t)i * 1000, .to = 1002 + (uint64_t)i * 1000 };
		pthread_create(&thread[i], NULL, commit_files, &w[i]);
	}
	for (int i = 0; r == 0 && t.names < 2000 && !w[0].error && !w[1].error; i++) {
		snprintf(path, sizeof path, "%s/snap-%d", f.dir, i);
		r = i % 3 == 0   ? state_checkpoint(f.st)
		    : i % 3 == 1 ? state_compact(f.st)
				 : state_snapshot(f.st, path, NULL, NULL);
		if (r == 0)
			r = state_list_names(f.st, 1, "file-5", list, 8, &num);
		state_totals(f.st, &t);
	}
	for (int i = 0; i < 2; i++)
		pthread_join(thread[i], NULL);
	is_int(r, 0, "checkpoints, compactions and snapshots beside commits");
	ok(w[0].error == 0 && w[1].error == 0 && num_files(f.st) == 2000, "and commits beside them");
	is_int(fixture_differences(&f), 0, "as from the journal");
	fixture_end(&f);
}

/* What has been removed is not kept in memory behind the next checkpoint, however many there were. */
static void test_removed_leave_memory(void)
{
	enum { NUM = 5000, FIRST = 2 };
	struct state_totals before, after;
	struct state_fixture f;
	char name[32];
	int r = 0;

	begin(&f);
	is_int(state_checkpoint(f.st), 0, "a checkpoint");
	state_totals(f.st, &before);
	for (uint64_t ino = FIRST; r == 0 && ino < FIRST + NUM; ino++) {
		snprintf(name, sizeof(name), "gone-%d", (int)ino);
		r = commit(&f, record_create(ino, 1, name, FILE_MODE), NULL);
		r = r ? r : commit(&f, record_name(RECORD_UNLINK, ino, 1, name), NULL);
		r = r ? r : commit(&f, record_name(RECORD_FREE, ino, 0, ""), NULL);
	}
	is_int(r, 0, "files come and go");
	is_int(state_checkpoint(f.st), 0, "a checkpoint behind them");
	state_totals(f.st, &after);
	ok(after.index_bytes <= before.index_bytes + 64 * 1024, "leaves nothing of them in memory");
	ok(num_files(f.st) == 0 && fixture_differences(&f) == 0, "and nothing in the state");
	fixture_end(&f);
}

static void test_refusals(void)
{
	struct state_fixture f;

	begin(&f);
	add_files(&f, 2, 10);
	sim_fail_after(f.sim, 1, EIO);
	ok(state_sync(f.st, 0, NULL) < 0, "a sync that fails");
	is_int(commit(&f, record_create(99, 1, "x", FILE_MODE), NULL), -EIO, "ends the state");
	fixture_kill(&f);
	is_int(fixture_open(&f, STATE_READ_WRITE), 0, "until it is opened again");
	is_u64(num_files(f.st), 8, "with all");
	fixture_end(&f);
}

int main(void)
{
	test_lives();
	test_orphans();
	test_index_lost();
	test_damaged_table();
	test_index_ahead();
	test_index_not_durable();
	test_read_only();
	test_snapshot();
	test_compaction();
	test_power();
	test_power_at_syncs();
	test_threads();
	test_removed_leave_memory();
	test_refusals();
	return done_testing();
}
