/* SPDX-License-Identifier: GPL-3.0-or-later */
/* Progress lines, and the small readers of the tools: mountinfo and result.json. */
#include "tools/lib/progress.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/lib/tap.h"
#include "tools/lib/daemon.h"
#include "tools/lib/mounts.h"

#define SECOND UINT64_C(1000000)
#define MIB    (UINT64_C(1) << 20)

static void check_format(void)
{
	char line[PROGRESS_LINE], longest[3 * PROGRESS_LINE];

	is_str(progress_format(line, sizeof(line), "drain", &(struct progress_bytes){ 512 * MIB, 2048 * MIB, 0, 0 },
		       256.0 * MIB, "run/out.nc"),
		"drain: 512 MiB of 2 GiB (25 %), 256 MiB/s, 6 s left, run/out.nc", "all parts");
	is_str(progress_format(line, sizeof(line), "drain", &(struct progress_bytes){ 17, 0, 0, 0 }, 0, NULL),
		"drain: 17 bytes", "nothing known but what is done");
	is_str(progress_format(line, sizeof(line), "fsck", &(struct progress_bytes){ 3, 3, 0, 0 }, 100, ""),
		"fsck: 3 bytes of 3 bytes (100 %), 100 bytes/s", "at the end");
	is_str(progress_format(line, sizeof(line), "fsck", &(struct progress_bytes){ 5, 3, 0, 0 }, 0, NULL),
		"fsck: 5 bytes of 3 bytes (100 %)", "more than planned");
	is_str(progress_format(line, sizeof(line), "drain",
		       &(struct progress_bytes){ 1024 * MIB, 1024 * MIB, 512 * MIB, 1024 * MIB }, 256.0 * MIB,
		       "out.nc"),
		"drain: 1 GiB of 1 GiB, 512 MiB of 1 GiB verified (75 %), 256 MiB/s, 2 s left, out.nc",
		"what is written and not yet read back is not at its end");
	is_str(progress_format(line, sizeof(line), "drain", &(struct progress_bytes){ 2, 2, 2, 2 }, 0, NULL),
		"drain: 2 bytes of 2 bytes, 2 bytes of 2 bytes verified (100 %)", "and then it is");
	is_str(progress_format(line, sizeof(line), "d", &(struct progress_bytes){ 0, UINT64_MAX, 0, 0 }, 1, NULL),
		"d: 0 bytes of 16 EiB (0 %), 1 byte/s", "no time left is told when it would be absurd");
	is_str(progress_format(line, sizeof(line), "d", &(struct progress_bytes){ 0, 0, 0, 0 }, 0, "a\nb\033[2J"),
		"d: 0 bytes, a?b?[2J", "names do not steer the terminal");
	memset(longest, 'x', sizeof(longest) - 1);
	longest[sizeof(longest) - 1] = '\0';
	progress_format(line, sizeof(line), "drain", &(struct progress_bytes){ 512 * MIB, 2048 * MIB, 0, 0 },
		256.0 * MIB, longest);
	ok(strlen(line) < 120, "a long name is cut");
	progress_format(line, sizeof(line), longest, &(struct progress_bytes){ 1, 2, 0, 0 }, 3, longest);
	ok(strlen(line) < sizeof(line), "nothing is written past the end");
}

/* What is shown is kept in memory, which has no descriptor to ask for a terminal. */
struct shown {
	struct progress p;
	char *text; /* owned */
	size_t len;
	FILE *out;
};

static void show(struct shown *s, const char *label, bool tty)
{
	s->text = NULL;
	s->out = open_memstream(&s->text, &s->len);
	if (!s->out)
		abort();
	progress_init(&s->p, NULL, label, 0);
	s->p.out = s->out;
	s->p.tty = tty;
}

static void is_shown(struct shown *s, const char *expected, const char *name)
{
	fclose(s->out);
	is_str(s->text, expected, name);
	free(s->text);
}

static void check_plain_lines(void)
{
	struct shown s;

	show(&s, "drain", false);
	for (uint64_t i = 1; i <= 12; i++)
		progress_update(&s.p, &(struct progress_bytes){ i * 10 * MIB, 120 * MIB, 0, 0 }, NULL, i * SECOND);
	progress_end(&s.p);
	is_shown(&s,
		"drain: 50 MiB of 120 MiB (41 %), 10 MiB/s, 7 s left\n"
		"drain: 100 MiB of 120 MiB (83 %), 10 MiB/s, 2 s left\n",
		"a line every five seconds");
}

static void check_terminal(void)
{
	struct shown s;

	show(&s, "d", true);
	progress_update(&s.p, &(struct progress_bytes){ 0, 0, 0, 0 }, NULL, SECOND / 10);
	progress_update(&s.p, &(struct progress_bytes){ 2, 0, 0, 0 }, NULL, SECOND);
	progress_end(&s.p);
	progress_end(&s.p);
	is_shown(&s, "\rd: 2 bytes, 2 bytes/s\033[K\r\033[K", "one line, rewritten and at last removed");
}

static void check_waiting(void)
{
	struct shown s;

	show(&s, "drain", false);
	progress_wait(&s.p, "node 1", SECOND);
	progress_wait(&s.p, "node 1, still mounted", 5 * SECOND);
	progress_wait(&s.p, "node 2", 6 * SECOND);
	for (uint64_t i = 0; i < 100; i++)
		progress_wait(&s.p, "node 1, still mounted", (11 + 5 * i) * SECOND);
	is_shown(&s, "drain: waits for node 1, still mounted\n", "a line in five seconds says what is waited for");
}

static void check_rate(void)
{
	struct progress p;

	progress_init(&p, NULL, "d", 0);
	progress_update(&p, &(struct progress_bytes){ 100, 0, 0, 0 }, NULL, SECOND);
	ok(p.rate > 99 && p.rate < 101, "the first rate is what was measured");
	progress_update(&p, &(struct progress_bytes){ 100, 0, 0, 0 }, NULL, SECOND + 1);
	ok(p.rate > 99, "too short a time is no sample");
	progress_update(&p, &(struct progress_bytes){ 100, 0, 0, 0 }, NULL, 2 * SECOND);
	ok(p.rate > 50 && p.rate < 100, "a stall lowers it slowly");
	progress_update(&p, &(struct progress_bytes){ 5, 0, 0, 0 }, NULL, 3 * SECOND);
	ok(p.rate == 0 && p.last_bytes == 5, "less than before: a new measure");
}

/* The rate and the line go on while files are read back. */
static void check_verification(void)
{
	struct shown s;

	show(&s, "drain", false);
	for (uint64_t i = 1; i <= 12; i++) {
		uint64_t written = i < 6 ? i : 6;

		progress_update(&s.p,
			&(struct progress_bytes){ written * 10 * MIB, 60 * MIB, (i - written) * 10 * MIB, 60 * MIB },
			NULL, i * SECOND);
	}
	is_shown(&s,
		"drain: 50 MiB of 60 MiB, 0 bytes of 60 MiB verified (41 %), 10 MiB/s, 7 s left\n"
		"drain: 60 MiB of 60 MiB, 40 MiB of 60 MiB verified (83 %), 10 MiB/s, 2 s left\n",
		"a line every five seconds, also while what was written is read back");
}

static void check_mountinfo(void)
{
	struct mount_entry m;
	char good[] =
		"36 35 0:47 / /mnt/my\\040mount rw,nosuid shared:1 master:2 - fuse.cistern /lustre/a\\134b rw,user_id=0\n";
	char other[] = "22 1 8:1 / / rw - ext4 /dev/sda1 rw\n";
	char cut[] = "36 35 0:47 / /mnt rw";

	ok(mounts_parse_line(good, &m) && m.cistern && m.mnt_id == 36 && m.minor == 47, "a line of mountinfo");
	is_str(m.mountpoint, "/mnt/my mount", "blanks in the mount point");
	is_str(m.source, "/lustre/a\\b", "backslashes in the source");
	ok(mounts_parse_line(other, &m) && !m.cistern && m.major == 8, "somebody else's mount");
	ok(!mounts_parse_line(cut, &m), "a line that ends early");
	ok(mounts_path_in("/a/b", "/a") && mounts_path_in("/a", "/a") && mounts_path_in("/a", "/"), "paths inside");
	ok(!mounts_path_in("/ab", "/a") && !mounts_path_in("/", "/a"), "paths outside");
	ok(mounts_at("/proc", &m) == 0 && !m.cistern, "/proc is mounted");
	ok(mounts_holding("/proc/1/x", &m) == 0 && strcmp(m.mountpoint, "/proc") == 0, "the mount that holds a path");
}

static void check_result(void)
{
	static const char *const bad[] = {
		"",
		"{",
		"{}",
		"[]",
		"{\"result\": 0}",
		"{\"result\": 0, \"dirty_files\": }",
		"{\"result\": 0, \"dirty_files\": 1} x",
		"{\"result\": 0, \"dirty_files\": 1",
		"{\"text\": \"a",
		"{\"text\": \"\\u00",
		"{\"text\": \"\\",
		"{\"result\": 99999999999999999999}",
		"{\"result\":0,\"dirty_files\":0,\"e\":[[[[[[[[[[[[[[[[[[[[[]]]]]]]]]]]]]]]]]]]]]}",
		"{\"result\":0,\"dirty_files\":0,\"e\":[1,]}",
	};
	struct daemon_result r;

	ok(daemon_parse_result(
		   "{\"result\": 3, \"text\": \"a \\\"b\\\" \\u00e9\\n\", \"dirty_files\": 2,"
		   " \"errors\": [{\"path\": \"a]\", \"errno\": 28, \"text\": \"no room\"}, {}], \"x\": [[], {}, true, -1.5e3]}\n",
		   &r),
		"a result");
	ok(r.result == 3 && r.dirty_files == 2, "its numbers");
	ok(r.num_errors == 2, "its errors");
	is_str(r.errors[0].path, "a]", "the file of one");
	is_str(r.errors[0].text, "no room", "what went wrong with it");
	is_str(r.text, "a \"b\" ?\n", "its text");
	ok(daemon_parse_result("{\"new\":-1,\"dirty_files\":0,\"result\":0}", &r) && r.result == 0,
		"unknown keys are skipped");
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		ok(!daemon_parse_result(bad[i], &r), "not a result: %s", bad[i]);
}

int main(void)
{
	check_format();
	check_plain_lines();
	check_terminal();
	check_waiting();
	check_rate();
	check_verification();
	check_mountinfo();
	check_result();
	return done_testing();
}
