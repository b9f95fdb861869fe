/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * fill STORE BACKING EXTENTS FILES PAYLOAD MAINTAIN: a store as a killed daemon leaves it: FILES new files, and EXTENTS
 * writes of PAYLOAD bytes scattered over them, none beside another that came before. MAINTAIN 1: checkpoints and
 * compaction happen as often as in a daemon; 0: never, so that a mount has to apply all of the journal, which is worse
 * than any daemon leaves it. Through the mount it would take an hour; the store's own library is what the daemon uses, too.
 */
#include <sys/stat.h>

#include "format/store/store.h"
#include "tests/bench/bench.h"

#define MAINTAIN_SECONDS 1.0

static int64_t wall_clock_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_REALTIME, &ts);
	return (int64_t)ts.tv_sec * 1000000000 + ts.tv_nsec;
}

static void or_die(int r, const char *what, const struct cistern_error *err)
{
	if (r >= 0)
		return;
	fprintf(stderr, "%s: %s\n", what, err && err->text[0] ? err->text : strerror(-r));
	exit(1);
}

/* As the daemon does at the first mount. */
static void adopt_root(struct store *s, const char *backing)
{
	struct record rec = { .type = RECORD_ADOPT, .time_ns = wall_clock_ns(), .ino = STATE_ROOT_INO, .name = "." };
	struct stat st;

	if (stat(backing, &st) < 0)
		bench_die("stat", backing);
	rec.mode = st.st_mode;
	rec.uid = st.st_uid;
	rec.gid = st.st_gid;
	rec.nlink = (uint32_t)st.st_nlink;
	rec.atime_ns = rec.mtime_ns = rec.ctime_ns = rec.time_ns;
	rec.backing_dev = st.st_dev;
	rec.backing_ino = st.st_ino;
	or_die(store_commit(s, &rec), "adopt the root", NULL);
}

static uint64_t create_file(struct store *s, uint64_t number)
{
	struct record rec = { .type = RECORD_CREATE,
		.time_ns = wall_clock_ns(),
		.parent = STATE_ROOT_INO,
		.mode = S_IFREG | 0644,
		.uid = getuid(),
		.gid = getgid(),
		.nlink = 1 };

	rec.ino = state_new_ino(store_state(s));
	snprintf(rec.name, sizeof(rec.name), "filled.%06llu", (unsigned long long)number);
	or_die(store_commit(s, &rec), "create", NULL);
	return rec.ino;
}

/* Extent i goes to file i % files, so that neighbours in the log are never neighbours in a file. */
static void write_extents(
	struct store *s, const uint64_t *inos, uint64_t files, uint64_t extents, size_t payload, bool maintain)
{
	uint64_t per_file = (extents + files - 1) / files, step = bench_step(per_file), at = 0;
	double next = bench_now() + MAINTAIN_SECONDS;
	char buf[4096];

	memset(buf, 0x5a, sizeof(buf));
	for (uint64_t i = 0; i < extents; i++) {
		/* every second slot stays a hole: extents that touch could be joined */
		or_die(store_write(s, inos[i % files], 0, at * 2 * payload, buf, payload), "write", NULL);
		if (i % files == files - 1)
			at = (at + step) % per_file;
		if (!maintain || i % 4096 || bench_now() < next)
			continue;
		or_die(store_maintain(s, false), "maintain", NULL);
		next = bench_now() + MAINTAIN_SECONDS;
	}
}

int main(int argc, char **argv)
{
	struct store_options opt = { .mode = STORE_CREATE_OR_OPEN, .write_out = true };
	struct cistern_error err = { 0 };
	struct state_report report;
	uint64_t extents, files, payload, *inos;
	struct store *s;
	double begin;
	bool maintain;

	bench_usage(argc, 6, "fill STORE BACKING EXTENTS FILES PAYLOAD MAINTAIN");
	extents = bench_number(argv[3], 1);
	files = bench_number(argv[4], 1);
	payload = bench_number(argv[5], 1);
	maintain = bench_number(argv[6], 0) != 0;
	if (payload > 4096) {
		fprintf(stderr, "a payload has 4096 bytes at most\n");
		return 2;
	}
	inos = calloc(files, sizeof(*inos));
	if (!inos)
		bench_die("calloc", argv[1]);
	opt.backing = argv[2];
	or_die(store_open(argv[1], &opt, &s, &report, &err), argv[1], &err);
	begin = bench_now();
	adopt_root(s, argv[2]);
	for (uint64_t i = 0; i < files; i++)
		inos[i] = create_file(s, i);
	write_extents(s, inos, files, extents, (size_t)payload, maintain);
	printf("{\"seconds\": %.6f, \"extents\": %llu}\n", bench_now() - begin, (unsigned long long)extents);
	fflush(NULL);
	_exit(0); /* nothing is closed: that is the point */
}
