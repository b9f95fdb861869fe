/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * The templates of docs/adding-a-format.md work: the null codec decodes what its description says, and a store drains into
 * the null sink, which then has the names, kinds and sizes that a directory has into which the same store is drained.
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

#include "format/codec/null.h"
#include "format/store/store.h"
#include "mpi-agent/replay/drain.h"
#include "mpi-agent/sink/sink_null.h"
#include "tests/lib/remove_tree.h"
#include "tests/lib/tap.h"
#include "tests/lib/world.h"

/* ---- the codec; the bytes are written by hand from the table in null.h */

#define HEADER "CISTNULL\1\0\0\0\4\0\0\0\3\0\0\0\0\0\0\0\5\0first"

static void test_codec(void)
{
	struct layout l LAYOUT_CLEANUP = { 0 };
	struct null_header h;

	is_int(null_decode(HEADER "123412341234", 31 + 12, &h, NULL), 0, "a file of three elements decodes");
	is_str(h.name, "first", "its variable's name");
	is_u64(h.elements, 3, "its elements");
	is_u64(h.begin, 31, "where they begin");
	is_int(null_layout(&h, 43, &l), 0, "it has a layout");
	is_u64(l.num_objects, 2, "of a header and a variable");
	is_u64(l.file_bytes, 43, "that fills the file");
	ok(layout_owner(&l, 31) == &l.objects[1] && layout_owner(&l, 30) == &l.objects[0], "bytes have their owners");
}

static void test_damage(void)
{
	static const struct {
		size_t at;
		char byte;
		const char *says;
	} wounds[] = { { 0, 'X', "offset 0" }, { 8, 2, "offset 8" }, { 12, 0, "offset 12" }, { 23, 127, "offset 16" },
		{ 24, 0, "offset 24" }, { 25, 1, "offset 24" }, { 26, 0, "offset 26" } };
	struct null_header h;

	for (size_t i = 0; i < sizeof(wounds) / sizeof(wounds[0]); i++) {
		struct cistern_error err = { 0 };
		char bytes[] = HEADER;

		bytes[wounds[i].at] = wounds[i].byte;
		ok(null_decode(bytes, sizeof(bytes) - 1, &h, &err) == -EBADMSG && strstr(err.text, wounds[i].says),
			"damage is refused: %s", wounds[i].says);
	}
	for (size_t len = 0; len < 31; len++)
		if (null_decode(HEADER, len, &h, NULL) != -ENODATA)
			ok(false, "%zu bytes are too few", len);
}

/* ---- the sink */

struct tally {
	struct sink *sink;
	uint64_t files, bytes, wrong;
	struct world *w;
	const char *dir;
};

static void tally_tree(struct tally *t, const char *dir);

static void tally_one(struct tally *t, const char *path)
{
	char full[WORLD_PATH_BYTES];
	struct stat real, null;

	world_path(full, t->w->out, path);
	world_must(lstat(full, &real), full);
	t->files++;
	if (t->sink->ops->stat(t->sink, path, &null) < 0 || (null.st_mode ^ real.st_mode) & S_IFMT ||
		(!S_ISDIR(real.st_mode) && null.st_size != real.st_size)) {
		tap_diag("%s is not as it should be: kind %o, %lld bytes in a directory", path,
			(unsigned int)(real.st_mode & S_IFMT), (long long)real.st_size);
		t->wrong++;
	}
	if (S_ISDIR(real.st_mode))
		tally_tree(t, path);
}

static void tally_tree(struct tally *t, const char *dir)
{
	char full[WORLD_PATH_BYTES], path[WORLD_PATH_BYTES];
	struct dirent *e;
	DIR *d;

	world_path(full, t->w->out, dir);
	d = opendir(full);
	world_must(d ? 0 : -1, full);
	while ((e = readdir(d))) {
		if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0)
			continue;
		if (strcmp(dir, ".") == 0)
			snprintf(path, sizeof(path), "%s", e->d_name);
		else
			world_path(path, dir, e->d_name);
		tally_one(t, path);
	}
	closedir(d);
}

static void say_error(const char *path, int code, const char *text, void *arg)
{
	(void)arg;
	tap_diag("%s: %s (%d)", path, text, code);
}

/* All of the store; sink NULL: to a directory. */
static void drain_into(struct world *w, struct sink *sink, struct drain_result *ret)
{
	struct store_options open_options = { .mode = STORE_READ_ONLY };
	struct drain_options opt = { .sink = sink,
		.to_dirfd = sink ? -1 : open(w->out, O_RDONLY | O_DIRECTORY),
		.part = WIRE_PART_WHOLE,
		.verify = DRAIN_VERIFY_SIZE,
		.buffer_bytes = 2u << 20,
		.watcher = { .error = say_error } };
	struct cistern_error err = { 0 };
	struct state_report report;

	if (store_open(w->store_dir, &open_options, &opt.store, &report, &err) < 0)
		world_die(err.text, err.code);
	opt.upto = state_seq(store_state(opt.store));
	opt.base_dirfd = open(w->backing, O_RDONLY | O_DIRECTORY);
	world_must(opt.base_dirfd, w->backing);
	is_int(drain_run(&opt, ret, &err), 0, "the drain comes to its end");
	close(opt.base_dirfd);
	if (!sink)
		close(opt.to_dirfd);
	store_abandon(opt.store);
}

static void test_sink(void)
{
	struct world *w = world_new();
	struct drain_result res;
	struct tally t = { .w = w };
	uint64_t files;

	for (uint64_t seed = 1; seed <= 4; seed++) {
		world_make(w, seed);
		world_open(w);
		world_run_ops(w, 60);
		world_must(store_sync(w->store), "sync");
		world_must(store_close(w->store), "close");
		remove_tree(w->out);
		world_must(mkdir(w->out, 0755), w->out);
		drain_into(w, NULL, &res);
		files = res.totals.files;
		world_must(sink_null_create(&t.sink), "sink");
		drain_into(w, t.sink, &res);
		t.files = t.wrong = 0;
		tally_tree(&t, ".");
		ok(t.files > 0 && t.wrong == 0 && res.totals.failed == 0 && res.totals.files == files,
			"seed %" PRIu64 ": %" PRIu64 " names are as in a directory", seed, t.files);
		ok(res.changes > 0 && sink_null_bytes(t.sink) >= res.totals.bytes,
			"seed %" PRIu64 ": all bytes that were carried came to the sink", seed);
		sink_destroy(t.sink);
	}
	world_free(w);
}

int main(void)
{
	umask(022);
	test_codec();
	test_damage();
	test_sink();
	return done_testing();
}
