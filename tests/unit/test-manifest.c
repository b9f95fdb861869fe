/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * The manifest's sums: of which files a mount tells, though others had the same store, or the same process number, before it; two at a time,
 * each with its own log; and totals that are added up and sent.
 */
#include "format/manifest/manifest.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "format/base/process.h"
#include "tests/lib/remove_tree.h"
#include "tests/lib/scratch.h"
#include "tests/lib/tap.h"

#define PATH_BYTES    512
#define OTHER         INT32_MAX /* no process */
#define MOVES         100000u
#define MOVES_SECONDS 20 /* two with all sanitizers */

static char work[PATH_BYTES];

static const char *in_work(const char *name, char out[PATH_BYTES + 32])
{
	snprintf(out, PATH_BYTES + 32, "%s/%s", work, name);
	return out;
}

static struct manifest *opened(const char *log)
{
	char path[PATH_BYTES + 32];
	struct cistern_error err = { 0 };
	struct manifest *m = NULL;

	ok(manifest_open(in_work(log, path), &m, &err) == 0, "%s is open %s", log, err.text);
	return m;
}

static void warned(struct manifest *m, const char *path)
{
	manifest_add_file(m, &(struct manifest_file){ .path = path, .state = "drained", .warning = "of something" });
}

/* Files with a warning that process has to tell of. */
static uint64_t told(struct manifest *m, pid_t process)
{
	char path[PATH_BYTES + 32];
	struct manifest_noted noted = { 0 };
	struct cistern_error err = { 0 };
	struct manifest_session s = {
		.store_uuid = "", .job = "", .backing = "", .destination = "", .process = process, .ret_noted = &noted
	};

	ok(manifest_write(m, &s, in_work("manifest.json", path), &err) == 0, "a summary %s", err.text);
	return noted.warned;
}

/* As it would be if who wrote log had had the same number, and had begun at another time. */
static void age(const char *log)
{
	char path[PATH_BYTES + 32], command[2 * PATH_BYTES];

	snprintf(command, sizeof(command), "sed -i 's/\\(\"began\":[0-9]*\\)/\\17/' %s", in_work(log, path));
	is_int(system(command), 0, "it was another process");
}

static void test_noted(void)
{
	struct manifest *m = opened("one");

	warned(m, "a");
	is_u64(told(m, 0), 1, "a file");
	warned(m, "b");
	is_u64(told(m, 0), 2, "and another: all of the mount's are told");
	is_u64(told(m, OTHER), 0, "another mount does not tell of them");
	warned(m, "c");
	is_u64(told(m, OTHER), 1, "but of its own");
	manifest_close(m);
	age("one");
	m = opened("one");
	warned(m, "d");
	is_u64(told(m, OTHER), 1, "nor does one whose process has got the same number");
	manifest_close(m);
}

static void test_two_mounts(void)
{
	struct manifest *one = opened("left"), *other = opened("right");

	warned(one, "a");
	warned(other, "b");
	warned(other, "c");
	is_u64(told(one, 0), 1, "each of two mounts at a time");
	is_u64(told(other, OTHER), 2, "tells of its own files");
	warned(one, "d");
	is_u64(told(one, 0), 2, "and of all of them,");
	is_u64(told(other, OTHER), 2, "whatever the other one sums up meanwhile");
	manifest_close(one);
	manifest_close(other);
}

static bool summary_has(const char *text)
{
	char path[PATH_BYTES + 32], all[8192];
	FILE *in = fopen(in_work("manifest.json", path), "r");
	size_t n = in ? fread(all, 1, sizeof(all) - 1, in) : 0;

	if (in)
		fclose(in);
	all[n] = '\0';
	return strstr(all, text);
}

/* What was said of a name is not true any more when it has become another file's. */
static void test_linked(void)
{
	struct manifest *m = opened("links");

	manifest_add_file(m, &(struct manifest_file){ .path = "old", .state = "drained" });
	manifest_add_file(m, &(struct manifest_file){ .path = "f", .state = "drained" });
	manifest_add_moved(m, "f", MANIFEST_PARKED "7");
	manifest_add_linked(m, MANIFEST_PARKED "7", "old");
	is_u64(told(m, 0), 0, "summed up");
	ok(summary_has("{\"path\":\"old\",\"state\":\"linked\",\"from\":\"f\"}"), "a further link says of what");
	ok(!summary_has("{\"path\":\"old\",\"state\":\"drained\""), "and nothing of what was there");
	manifest_add_file(m, &(struct manifest_file){ .path = "old", .state = "drained" });
	is_u64(told(m, 0), 0, "summed up");
	ok(summary_has("{\"path\":\"old\",\"state\":\"drained\"") && !summary_has("linked\","),
		"until it is drained again");
	manifest_close(m);
}

/* A file of two names, with something that is said beside its line. */
static struct manifest *two_names(const char *log)
{
	struct manifest *m = opened(log);

	manifest_add_overlap(m, "d/a", &(struct manifest_overlap){ .off = 1, .len = 2, .node = 3, .other = 4 });
	manifest_add_file(m, &(struct manifest_file){ .path = "d/a", .state = "drained", .size = 17 });
	manifest_add_linked(m, "d/a", "b");
	is_u64(told(m, 0), 0, "summed up");
	return m;
}

/* What is said of a file is said of one of its names, whichever are left. */
static void test_linked_left(void)
{
	struct manifest *m = two_names("left names");

	manifest_add_linked(m, "b", "c");
	manifest_add_removed(m, "d/a");
	manifest_add_file(m, &(struct manifest_file){ .path = "d/a", .state = "drained", .size = 18 });
	manifest_add_removed(m, "d/a");
	is_u64(told(m, 0), 0, "summed up");
	ok(summary_has("{\"path\":\"b\",\"state\":\"drained\",\"size\":17"),
		"a file whose first name has gone is listed by another one");
	ok(summary_has("{\"path\":\"c\",\"state\":\"linked\",\"from\":\"b\"}"), "the others are links of that");
	manifest_add_moved(m, "b", "e");
	is_u64(told(m, 0), 0, "summed up");
	ok(summary_has("{\"path\":\"c\",\"state\":\"drained\",\"size\":17") &&
			summary_has("{\"path\":\"e\",\"state\":\"linked\",\"from\":\"c\"}"),
		"whatever they are called then");
	manifest_add_removed(m, "c");
	is_u64(told(m, 0), 0, "summed up");
	ok(summary_has("{\"path\":\"e\",\"state\":\"drained\",\"size\":17") && !summary_has("\"linked\","),
		"up to the last one");
	manifest_close(m);
}

static void test_linked_removed(void)
{
	struct manifest *m = two_names("removed name");

	manifest_add_removed(m, "d/a");
	is_u64(told(m, 0), 0, "summed up");
	ok(summary_has("{\"path\":\"b\",\"state\":\"drained\",\"size\":17") && summary_has("\"length\":2,"),
		"with what had been said beside the line");
	manifest_close(m);
}

static void test_linked_moved(void)
{
	struct manifest *m = two_names("moved name");

	manifest_add_moved(m, "d/a", "c");
	is_u64(told(m, 0), 0, "summed up");
	ok(summary_has("{\"path\":\"b\",\"state\":\"linked\",\"from\":\"c\"}"), "it is a link of what has moved");
	manifest_add_moved(m, "c", "d/a");
	is_u64(told(m, 0), 0, "summed up");
	ok(summary_has("{\"path\":\"b\",\"state\":\"linked\",\"from\":\"d/a\"}") && summary_has("\"size\":17"),
		"and of where that has come back to");
	manifest_add_moved(m, "d", "e");
	is_u64(told(m, 0), 0, "summed up");
	ok(summary_has("{\"path\":\"b\",\"state\":\"linked\",\"from\":\"e/a\"}"),
		"or of what is in a directory that has moved");
	manifest_close(m);
}

/* What is in a directory is listed where it is. */
static void test_directory_moved(void)
{
	struct manifest *m = two_names("moved directory");

	manifest_add_moved(m, "d", MANIFEST_PARKED "7");
	manifest_add_moved(m, MANIFEST_PARKED "7", "e/f");
	manifest_add_file(m, &(struct manifest_file){ .path = "d/a", .state = "drained", .size = 18 });
	is_u64(told(m, 0), 0, "summed up");
	ok(summary_has("{\"path\":\"e/f/a\",\"state\":\"drained\",\"size\":17"),
		"what is in a moved directory has moved with it");
	ok(summary_has("{\"path\":\"d/a\",\"state\":\"drained\",\"size\":18"), "whatever comes to where it was");
	ok(!summary_has("\"path\":\"" MANIFEST_PARKED), "or where it was meanwhile");
	manifest_add_removed(m, "d/a");
	manifest_add_moved(m, "e", "g");
	is_u64(told(m, 0), 0, "summed up");
	ok(summary_has("{\"path\":\"g/f/a\",\"state\":\"drained\",\"size\":17"), "with a directory above it, too");
	manifest_add_moved(m, "g", "e");
	is_u64(told(m, 0), 0, "summed up");
	ok(summary_has("{\"path\":\"e/f/a\",\"state\":\"drained\",\"size\":17") && !summary_has("g/"), "and back");
	manifest_add_removed(m, "e/f/a");
	is_u64(told(m, 0), 0, "summed up");
	ok(summary_has("{\"path\":\"e/f/a\",\"state\":\"removed\"}"), "until it is removed there");
	manifest_close(m);
}

/* The same by a name that was a link before. */
static void test_linked_again(void)
{
	struct manifest *m = two_names("again");

	manifest_add_file(m, &(struct manifest_file){ .path = "b", .state = "drained", .size = 18 });
	manifest_add_linked(m, "b", "d/a");
	manifest_add_linked(m, "d/a", "c");
	is_u64(told(m, 0), 0, "summed up");
	ok(summary_has("{\"path\":\"b\",\"state\":\"drained\",\"size\":18") && !summary_has("\"size\":17"),
		"a file is listed as it is");
	ok(summary_has("{\"path\":\"d/a\",\"state\":\"linked\",\"from\":\"b\"}") &&
			summary_has("{\"path\":\"c\",\"state\":\"linked\",\"from\":\"b\"}"),
		"by one name, and all others are links of it");
	manifest_close(m);
}

/* Nothing was said of the file but that it has two names. */
static void test_linked_unknown(void)
{
	struct manifest *m = opened("unknown");

	manifest_add_linked(m, "x", "b");
	manifest_add_moved(m, "x", "y");
	is_u64(told(m, 0), 0, "summed up");
	ok(summary_has("{\"path\":\"b\",\"state\":\"linked\",\"from\":\"y\"}"), "one of an unknown file follows it");
	manifest_add_removed(m, "y");
	manifest_add_file(m, &(struct manifest_file){ .path = "x", .state = "drained", .size = 19 });
	manifest_add_linked(m, "z", "c");
	manifest_add_file(m, &(struct manifest_file){ .path = "z", .state = "drained", .size = 20 });
	is_u64(told(m, 0), 0, "summed up");
	ok(!summary_has("\"from\":\"x\"}") && !summary_has("\"from\":\"z\"}"), "but not another one that has its name");
	manifest_close(m);
}

/* What was said too early is taken back. */
static void test_gone(void)
{
	struct manifest *m = opened("gone");

	manifest_add_file(m, &(struct manifest_file){ .path = "f", .state = "drained" });
	manifest_add_gone(m, "f");
	is_u64(told(m, 0), 0, "summed up");
	ok(!summary_has("\"path\":\"f\""), "what is not so any more is not listed, nor as removed");
	manifest_add_file(m, &(struct manifest_file){ .path = "f", .state = "drained" });
	is_u64(told(m, 0), 0, "summed up");
	ok(summary_has("{\"path\":\"f\",\"state\":\"drained\""), "until it is there");
	manifest_close(m);
}

/* What has moved and could not stay is what it was, with all that was said of it, and of what is below it. */
static void test_moved_back(void)
{
	struct manifest *m = opened("back");

	manifest_add_overlap(m, "f", &(struct manifest_overlap){ .off = 1, .len = 2, .node = 3, .other = 4 });
	manifest_add_file(m, &(struct manifest_file){ .path = "f", .state = "drained", .size = 17 });
	manifest_add_file(m, &(struct manifest_file){ .path = "d/x", .state = "drained", .size = 18 });
	manifest_add_file(m, &(struct manifest_file){ .path = "d/y", .state = "drained", .size = 19 });
	manifest_add_removed(m, "d/y");
	manifest_add_moved(m, "f", MANIFEST_PARKED "7");
	manifest_add_moved(m, MANIFEST_PARKED "7", "e/g");
	manifest_add_moved(m, "d", "e/d");
	manifest_add_moved(m, "unknown", "e/h");
	manifest_add_moved(m, "e/h", "unknown");
	manifest_add_moved(m, "e/d", "d");
	manifest_add_moved(m, "e/g", MANIFEST_PARKED "7");
	manifest_add_moved(m, MANIFEST_PARKED "7", "f");
	is_u64(told(m, 0), 0, "summed up");
	ok(summary_has("{\"path\":\"f\",\"state\":\"drained\",\"size\":17") &&
			summary_has("{\"offset\":1,\"length\":2,\"nodes\":[3,4]}"),
		"what is back where it was says what it said there");
	ok(summary_has("{\"path\":\"d/x\",\"state\":\"drained\",\"size\":18"), "and so does what is in a directory");
	ok(!summary_has("\"size\":19"), "but for what had gone before");
	ok(!summary_has("\"moved\",") && !summary_has("e/") && !summary_has("unknown"), "nothing has moved");
	manifest_close(m);
}

/* Of what is replaced by what comes back nothing is true any more; nor of this when it has changed meanwhile. */
static void test_moved_back_over(void)
{
	struct manifest *m = opened("over");

	manifest_add_file(m, &(struct manifest_file){ .path = "f", .state = "drained", .size = 17 });
	manifest_add_moved(m, "f", "g");
	manifest_add_file(m, &(struct manifest_file){ .path = "f", .state = "drained", .size = 18 });
	manifest_add_moved(m, "g", "f");
	manifest_add_file(m, &(struct manifest_file){ .path = "d/x", .state = "drained", .size = 19 });
	manifest_add_moved(m, "d", "e");
	manifest_add_file(m, &(struct manifest_file){ .path = "e/x", .state = "drained", .size = 20 });
	manifest_add_moved(m, "e", "d");
	is_u64(told(m, 0), 0, "summed up");
	ok(summary_has("{\"path\":\"f\",\"state\":\"moved\",\"from\":\"g\"}"), "it has moved");
	ok(!summary_has("\"size\":18"), "what it has replaced is not listed");
	ok(!summary_has("\"size\":19"), "nor how something was before it was written to elsewhere");
	manifest_close(m);
}

static void failed(struct manifest *m, const char *path)
{
	manifest_add_file(
		m, &(struct manifest_file){ .path = path, .state = "failed", .error = -ENOSPC, .error_text = "full" });
}

static void sum_up(struct manifest *m, uint64_t mark, bool whole)
{
	char path[PATH_BYTES + 32];
	struct cistern_error err = { 0 };
	struct manifest_session s = {
		.store_uuid = "", .job = "", .backing = "", .destination = "", .mark = mark, .whole = whole
	};

	ok(manifest_write(m, &s, in_work("manifest.json", path), &err) == 0, "summed up %s", err.text);
}

static bool lists(const char *path)
{
	char want[80];

	snprintf(want, sizeof(want), "{\"path\":\"%s\"", path);
	return summary_has(want);
}

/* What failed, and is not to be carried over any more since it has no name, or another one, is not listed for ever. */
static void test_settled(void)
{
	const struct manifest_range hole = { .off = 1, .len = 2 };
	struct manifest *m = opened("settled");
	uint64_t mark;

	failed(m, "deleted");
	failed(m, "still");
	manifest_add_file(m, &(struct manifest_file){ .path = "waited", .state = "dirty" });
	manifest_add_file(m, &(struct manifest_file){ .path = "drained", .state = "drained" });
	manifest_add_file(
		m, &(struct manifest_file){ .path = "holed", .state = "failed", .missing = &hole, .num_missing = 1 });
	manifest_add_missing(m, "of many", &hole);
	manifest_add_file(m, &(struct manifest_file){ .path = "of many", .state = "failed" });
	mark = manifest_mark(m);
	failed(m, "still");
	sum_up(m, mark, false);
	ok(lists("deleted") && lists("waited"), "a session that has not come to everything leaves what failed before");
	sum_up(m, mark, true);
	ok(!lists("deleted") && !lists("waited"), "one that has drops what it has not spoken of");
	ok(lists("still") && lists("drained"), "but not what it has, nor what has been drained");
	ok(lists("holed") && lists("of many"), "nor what has been carried over with bytes missing");
	sum_up(m, mark, false);
	ok(!lists("deleted") && lists("still"), "so it stays");
	manifest_close(m);
}

static void test_totals(void)
{
	struct manifest_totals sum = { 1, 2, 3, 4, 5, 6, 7 }, got = { 0 };
	const struct manifest_totals one = { 10, 20, 30, 40, 50, 60, 70 };
	struct buf b BUF_CLEANUP = { 0 };

	manifest_totals_add(&sum, &one);
	manifest_totals_encode(&sum, &b);
	is_int(manifest_totals_decode(b.data, b.len, &got), 0, "totals can be sent");
	ok(got.files == 11 && got.bytes == 22 && got.names_moved == 33 && got.names_removed == 44 && got.failed == 55 &&
			got.missing_bytes == 66 && got.late == 77,
		"each is added up");
	is_int(manifest_totals_decode(b.data, b.len - 1, &got), -EBADMSG, "some that are cut off are refused");
}

static void test_process(void)
{
	uint64_t began = 0, later = 0;
	pid_t child;

	is_int(process_began(getpid(), &began), 0, "when we began");
	prctl(PR_SET_NAME, "a) 1 2 (b");
	child = fork();
	if (child == 0)
		_exit(0);
	ok(process_began(child, &later) == 0 && began > 0 && later >= began,
		"a child of that name was no earlier: %" PRIu64 ", %" PRIu64, began, later);
	waitpid(child, NULL, 0);
	is_int(process_began(child, &later), -ESRCH, "of one that has gone nothing is known");
}

/* A line costs what it is about: with all entries looked at for each, this would take minutes. */
static void test_many_moves(void)
{
	char path[PATH_BYTES + 32], from[64], to[64];
	struct cistern_error err = { 0 };
	struct manifest *m = opened("many.log");
	struct manifest_session s = { .store_uuid = "", .job = "", .backing = "", .destination = "", .process = OTHER };
	struct timespec used;

	for (unsigned int i = 0; i < MOVES; i++) {
		snprintf(from, sizeof(from), "d%u/f%u", i % 10, i);
		snprintf(to, sizeof(to), "d%u/g%u", i % 10, i);
		manifest_add_file(m, &(struct manifest_file){ .path = from, .state = "drained" });
		manifest_add_moved(m, from, to);
	}
	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
	time_t before = used.tv_sec;
	ok(manifest_write(m, &s, in_work("many.json", path), &err) == 0, "a summary of many moves %s", err.text);
	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
	ok(used.tv_sec - before < MOVES_SECONDS, "takes %ld s of processor time", (long)(used.tv_sec - before));
	manifest_close(m);
}

static void limit_files(rlim_t bytes)
{
	struct rlimit limit;

	getrlimit(RLIMIT_FSIZE, &limit);
	limit.rlim_cur = bytes;
	setrlimit(RLIMIT_FSIZE, &limit);
}

/* The disk is full when lines of another node come in, and has room again later. */
static void test_full(void)
{
	static const char first[] = "{\"path\":\"a\",\"state\":\"drained\"}\n",
			  second[] = "{\"path\":\"b\",\"state\":\"drained\"}\n";
	char path[PATH_BYTES + 32];
	struct cistern_error err = { 0 };
	struct manifest *m = opened("full.log");
	struct stat st;

	signal(SIGXFSZ, SIG_IGN);
	is_int(manifest_append(m, first, strlen(first)), 0, "there is room for one line");
	limit_files(strlen(first) + 9);
	ok(manifest_append(m, second, strlen(second)) < 0, "and not for another");
	limit_files(RLIM_INFINITY);
	ok(stat(in_work("full.log", path), &st) == 0 && (size_t)st.st_size == strlen(first),
		"of which nothing is left");
	is_int(manifest_append(m, second, strlen(second)), 0, "it comes again when there is room");
	is_int(manifest_sync(m, &err), 0, "and nothing is missing");
	ok(stat(path, &st) == 0 && (size_t)st.st_size == strlen(first) + strlen(second), "nor is anything there twice");
	manifest_close(m);
}

int main(void)
{
	snprintf(work, sizeof(work), "%s/cistern-manifest-XXXXXX", scratch_parent());
	if (!ok(mkdtemp(work) != NULL, "a directory"))
		return done_testing();
	test_noted();
	test_two_mounts();
	test_linked();
	test_linked_left();
	test_linked_removed();
	test_linked_moved();
	test_directory_moved();
	test_linked_again();
	test_linked_unknown();
	test_gone();
	test_moved_back();
	test_moved_back_over();
	test_settled();
	test_many_moves();
	test_full();
	test_totals();
	test_process();
	remove_tree(work);
	return done_testing();
}
