/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * fsx: one file, random operations, a model of it in memory, and a look at the file after every operation. With --processes each
 * process has a region of the file to itself and leaves the size alone; neighbours' writes must never show. The idea
 * is that of the old "file system exerciser"; the code is our own.
 */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <inttypes.h>
#include <linux/falloc.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "tests/parity/rng.h"

#define LOG_LINES 40
#define LOG_BYTES 160
#define ALIGN     4096u
#define PROCESSES 16

struct settings {
	uint64_t seed, ops, size, every;
	unsigned int seconds, processes, direct_percent;
	const char *hook, *path;
};

struct fsx {
	const struct settings *set; /* borrowed */
	struct rng rng;
	int fd;
	bool direct, shared;        /* opened with O_DIRECT; one of several processes */
	uint64_t base, max, size;   /* region in the file, its length, and how much of it there is */
	unsigned char *model, *buf; /* owned, max bytes and one page */
	uint64_t op;
	char log[LOG_LINES][LOG_BYTES];
};

struct operation {
	const char *name;
	unsigned int weight;
	bool resizes;
	bool (*run)(struct fsx *f);
};

static void note(struct fsx *f, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static bool failure(struct fsx *f, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

static void note(struct fsx *f, const char *fmt, ...)
{
	char *line = f->log[f->op % LOG_LINES];
	size_t len = strlen(line);
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(line + len, LOG_BYTES - len, fmt, ap);
	va_end(ap);
}

static bool failure(struct fsx *f, const char *fmt, ...)
{
	uint64_t from = f->op >= LOG_LINES ? f->op - LOG_LINES + 1 : 1;
	va_list ap;

	printf("FAILED at operation %" PRIu64 " of region %" PRIu64 "+%" PRIu64 ": ", f->op, f->base, f->max);
	va_start(ap, fmt);
	vprintf(fmt, ap);
	va_end(ap);
	printf("\nthe last operations (offsets in the region):\n");
	for (uint64_t i = from; i <= f->op; i++)
		printf("  %s\n", f->log[i % LOG_LINES]);
	return false;
}

/* ---- ranges */

struct range {
	uint64_t off;
	size_t len;
};

/* Somewhere in [0, limit), not empty; whole pages when the file is open for direct I/O. False: there is no room for one. */
static bool random_range(struct fsx *f, uint64_t limit, struct range *ret)
{
	uint64_t longest = rng_percent(&f->rng, 70) ? 9000 : f->max / 2;

	if (f->direct)
		limit &= ~(uint64_t)(ALIGN - 1);
	if (limit == 0)
		return false;
	ret->off = rng_below(&f->rng, limit);
	ret->len = 1 + rng_below(&f->rng, limit - ret->off < longest ? limit - ret->off : longest);
	if (!f->direct)
		return true;
	ret->off &= ~(uint64_t)(ALIGN - 1);
	ret->len = (ret->len + ALIGN - 1) & ~(size_t)(ALIGN - 1);
	return ret->off + ret->len <= limit;
}

/* What lies between the old end and a write beyond it are zeros. */
static void model_extend(struct fsx *f, uint64_t end)
{
	if (end > f->size) {
		memset(f->model + f->size, 0, end - f->size);
		f->size = end;
	}
}

/* ---- looking */

static bool check_size(struct fsx *f)
{
	struct stat st;

	if (fstat(f->fd, &st) < 0)
		return failure(f, "fstat: %s", strerror(errno));
	if (!f->shared && (uint64_t)st.st_size != f->size)
		return failure(f, "size is %jd and should be %" PRIu64, (intmax_t)st.st_size, f->size);
	return true;
}

static bool check_bytes(struct fsx *f, const unsigned char *got, uint64_t off, size_t len, const char *how)
{
	if (memcmp(got, f->model + off, len) == 0)
		return true;
	while (*got == f->model[off]) {
		got++;
		off++;
	}
	return failure(f, "%s: byte %" PRIu64 " is %02x and should be %02x", how, off, *got, f->model[off]);
}

static bool read_and_check(struct fsx *f, uint64_t off, size_t len)
{
	size_t done = 0, want = f->direct ? (len + ALIGN - 1) & ~(size_t)(ALIGN - 1) : len;

	while (done < len) {
		ssize_t n = pread(f->fd, f->buf + done, want - done, (off_t)(f->base + off + done));

		if (n <= 0)
			return failure(
				f, "read of %zu at %" PRIu64 ": %s", len, off, n < 0 ? strerror(errno) : "end of file");
		done += (size_t)n;
	}
	return check_bytes(f, f->buf, off, len, "read");
}

static bool check_all(struct fsx *f)
{
	return check_size(f) && read_and_check(f, 0, f->size);
}

/* ---- operations */

static bool op_write(struct fsx *f)
{
	struct range r;
	ssize_t n;

	if (!random_range(f, f->max, &r))
		return true;
	note(f, " %" PRIu64 "+%zu%s", r.off, r.len, f->direct ? " direct" : "");
	rng_fill(&f->rng, f->buf, r.len);
	n = pwrite(f->fd, f->buf, r.len, (off_t)(f->base + r.off));
	if (n != (ssize_t)r.len)
		return failure(f, "pwrite returned %zd: %s", n, strerror(errno));
	model_extend(f, r.off + r.len);
	memcpy(f->model + r.off, f->buf, r.len);
	return true;
}

static bool op_read(struct fsx *f)
{
	struct range r;

	if (!random_range(f, f->size, &r))
		return true;
	note(f, " %" PRIu64 "+%zu%s", r.off, r.len, f->direct ? " direct" : "");
	return read_and_check(f, r.off, r.len);
}

static bool op_truncate(struct fsx *f)
{
	uint64_t size = rng_below(&f->rng, f->max + 1);

	note(f, " %" PRIu64, size);
	if (ftruncate(f->fd, (off_t)size) < 0)
		return failure(f, "ftruncate: %s", strerror(errno));
	model_extend(f, size);
	f->size = size;
	return true;
}

static bool op_map(struct fsx *f, bool do_write)
{
	struct range r;
	uint64_t page;
	unsigned char *m;
	bool good = true;

	if (!random_range(f, f->size, &r))
		return true;
	page = (f->base + r.off) & ~(uint64_t)(ALIGN - 1);
	note(f, " %" PRIu64 "+%zu", r.off, r.len);
	m = mmap(NULL, f->base + r.off + r.len - page, do_write ? PROT_READ | PROT_WRITE : PROT_READ, MAP_SHARED, f->fd,
		(off_t)page);
	if (m == MAP_FAILED)
		return failure(f, "mmap: %s", strerror(errno));
	if (do_write) {
		rng_fill(&f->rng, f->model + r.off, r.len);
		memcpy(m + (f->base + r.off - page), f->model + r.off, r.len);
		if (rng_percent(&f->rng, 50) && msync(m, f->base + r.off + r.len - page, MS_SYNC) < 0)
			good = failure(f, "msync: %s", strerror(errno));
	} else {
		good = check_bytes(f, m + (f->base + r.off - page), r.off, r.len, "mapping");
	}
	return munmap(m, f->base + r.off + r.len - page) == 0 && good;
}

static bool op_map_read(struct fsx *f)
{
	return op_map(f, false);
}

static bool op_map_write(struct fsx *f)
{
	return op_map(f, true);
}

static bool zero_out(struct fsx *f, int mode, uint64_t limit)
{
	struct range r;

	if (!random_range(f, limit, &r))
		return true;
	note(f, " %" PRIu64 "+%zu mode %d", r.off, r.len, mode);
	if (fallocate(f->fd, mode, (off_t)(f->base + r.off), (off_t)r.len) < 0)
		return failure(f, "fallocate: %s", strerror(errno));
	if (!(mode & FALLOC_FL_KEEP_SIZE))
		model_extend(f, r.off + r.len);
	if (mode & (FALLOC_FL_PUNCH_HOLE | FALLOC_FL_ZERO_RANGE) && r.off < f->size)
		memset(f->model + r.off, 0, f->size - r.off < r.len ? f->size - r.off : r.len);
	return true;
}

static bool op_punch(struct fsx *f)
{
	return zero_out(f, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, f->max);
}

static bool op_zero(struct fsx *f)
{
	return zero_out(
		f, FALLOC_FL_ZERO_RANGE | (f->shared || rng_percent(&f->rng, 50) ? FALLOC_FL_KEEP_SIZE : 0), f->max);
}

static bool op_allocate(struct fsx *f)
{
	return zero_out(f, rng_percent(&f->rng, 50) ? FALLOC_FL_KEEP_SIZE : 0, f->max);
}

static bool op_copy(struct fsx *f)
{
	struct range from;
	off_t in, out;
	uint64_t to;
	size_t left;

	if (!random_range(f, f->size, &from))
		return true;
	to = rng_below(&f->rng, f->max - from.len + 1);
	if (f->direct)
		to &= ~(uint64_t)(ALIGN - 1);
	if (to < from.off + from.len && from.off < to + from.len)
		return true;
	note(f, " %" PRIu64 "+%zu to %" PRIu64, from.off, from.len, to);
	in = (off_t)(f->base + from.off);
	out = (off_t)(f->base + to);
	for (left = from.len; left > 0;) {
		ssize_t n = copy_file_range(f->fd, &in, f->fd, &out, left, 0);

		if (n <= 0)
			return failure(f, "copy_file_range returned %zd: %s", n, strerror(errno));
		left -= (size_t)n;
	}
	model_extend(f, to + from.len);
	memcpy(f->model + to, f->model + from.off, from.len);
	return true;
}

static bool op_fsync(struct fsx *f)
{
	return fsync(f->fd) == 0 ? true : failure(f, "fsync: %s", strerror(errno));
}

static bool open_file(struct fsx *f)
{
	f->direct = rng_percent(&f->rng, f->set->direct_percent);
	f->fd = open(f->set->path, O_RDWR | O_CREAT | O_CLOEXEC | (f->direct ? O_DIRECT : 0), 0644);
	if (f->fd < 0 && f->direct && errno == EINVAL) { /* a file system without direct I/O */
		f->direct = false;
		f->fd = open(f->set->path, O_RDWR | O_CREAT | O_CLOEXEC, 0644);
	}
	return f->fd >= 0 ? true : failure(f, "open: %s", strerror(errno));
}

static bool op_reopen(struct fsx *f)
{
	int fd = f->fd;

	f->fd = -1;
	if (close(fd) < 0)
		return failure(f, "close: %s", strerror(errno));
	return open_file(f);
}

static bool run_hook(struct fsx *f)
{
	int status;

	if (!f->set->hook)
		return true;
	note(f, " [hook]");
	fflush(NULL);
	status = system(f->set->hook);
	return status == 0 ? true : failure(f, "'%s' ended with status %d", f->set->hook, status);
}

/* The hook sees the file closed one time, open the next. */
static bool op_hook(struct fsx *f)
{
	int fd = f->fd;

	if (rng_percent(&f->rng, 50))
		return run_hook(f);
	f->fd = -1;
	if (close(fd) < 0)
		return failure(f, "close: %s", strerror(errno));
	return run_hook(f) && open_file(f);
}

static const struct operation operations[] = {
	{ "write", 30, false, op_write },
	{ "read", 10, false, op_read },
	{ "truncate", 8, true, op_truncate },
	{ "map_read", 8, false, op_map_read },
	{ "map_write", 14, false, op_map_write },
	{ "punch", 6, false, op_punch },
	{ "zero", 6, false, op_zero },
	{ "allocate", 3, true, op_allocate },
	{ "copy", 6, true, op_copy },
	{ "fsync", 3, false, op_fsync },
	{ "reopen", 6, false, op_reopen },
};
#define OPERATIONS (sizeof(operations) / sizeof(operations[0]))

static const struct operation *pick(struct fsx *f)
{
	uint64_t total = 0, at;

	for (size_t i = 0; i < OPERATIONS; i++)
		total += f->shared && operations[i].resizes ? 0 : operations[i].weight;
	at = rng_below(&f->rng, total);
	for (size_t i = 0;; i++) {
		unsigned int weight = f->shared && operations[i].resizes ? 0 : operations[i].weight;

		if (at < weight)
			return &operations[i];
		at -= weight;
	}
}

static bool step(struct fsx *f)
{
	const struct operation *o = pick(f);

	snprintf(f->log[f->op % LOG_LINES], LOG_BYTES, "%" PRIu64 " %s", f->op, o->name);
	if (!o->run(f) || (f->op % f->set->every == 0 && !op_hook(f)))
		return false;
	return check_all(f);
}

static bool run(struct fsx *f)
{
	time_t end = time(NULL) + f->set->seconds;

	if (!open_file(f) || !check_all(f))
		return false;
	for (f->op = 1; f->op <= f->set->ops && (f->set->seconds == 0 || time(NULL) < end); f->op++)
		if (!step(f))
			return false;
	f->op--;
	return op_reopen(f) && check_all(f) && close(f->fd) == 0;
}

/* ---- processes */

static int run_region(const struct settings *set, unsigned int index)
{
	struct fsx *f = calloc(1, sizeof(*f));
	bool good;

	if (!f)
		return 2;
	f->set = set;
	f->rng.state = set->seed + index * UINT64_C(1000003);
	f->shared = set->processes > 1;
	f->max = set->size;
	f->base = index * set->size;
	f->size = f->shared ? f->max : 0;
	f->model = calloc(1, f->max);
	f->buf = aligned_alloc(ALIGN, f->max + ALIGN);
	good = f->model && f->buf && run(f);
	if (good)
		printf("region %u: no difference after %" PRIu64 " operations\n", index, f->op);
	free(f->model);
	free(f->buf);
	free(f);
	fflush(stdout);
	return good ? 0 : 1;
}

static int run_processes(const struct settings *set)
{
	int status, result = 0;

	if (truncate(set->path, (off_t)(set->processes * set->size)) < 0) {
		perror(set->path);
		return 2;
	}
	fflush(NULL);
	for (unsigned int i = 0; i < set->processes; i++) {
		pid_t pid = fork();

		if (pid == 0)
			_exit(run_region(set, i));
		if (pid < 0)
			result = 2;
	}
	while (wait(&status) > 0)
		if (status != 0)
			result = 1;
	return result;
}

static int usage(void)
{
	fprintf(stderr,
		"usage: fsx [--seed N] [--ops N] [--seconds N] [--size BYTES] [--processes N] [--direct PERCENT]\n"
		"           [--hook COMMAND] [--every N] FILE\n");
	return 2;
}

static bool parse(int argc, char **argv, struct settings *set)
{
	static const struct option options[] = {
		{ "seed", required_argument, NULL, 's' },
		{ "ops", required_argument, NULL, 'n' },
		{ "size", required_argument, NULL, 'l' },
		{ "seconds", required_argument, NULL, 't' },
		{ "hook", required_argument, NULL, 'h' },
		{ "every", required_argument, NULL, 'e' },
		{ "direct", required_argument, NULL, 'd' },
		{ "processes", required_argument, NULL, 'p' },
		{ NULL, 0, NULL, 0 },
	};
	int key;

	while ((key = getopt_long(argc, argv, "p:", options, NULL)) >= 0)
		switch (key) {
		case 's': set->seed = strtoull(optarg, NULL, 0); break;
		case 'n': set->ops = strtoull(optarg, NULL, 0); break;
		case 'l': set->size = strtoull(optarg, NULL, 0); break;
		case 't': set->seconds = (unsigned int)strtoul(optarg, NULL, 0); break;
		case 'h': set->hook = optarg; break;
		case 'e': set->every = strtoull(optarg, NULL, 0); break;
		case 'd': set->direct_percent = (unsigned int)strtoul(optarg, NULL, 0); break;
		case 'p': set->processes = (unsigned int)strtoul(optarg, NULL, 0); break;
		default: return false;
		}
	set->path = optind < argc ? argv[optind] : NULL;
	return optind + 1 == argc && set->every > 0 && set->size >= 2 * ALIGN && set->size % ALIGN == 0 &&
	       set->processes > 0 && set->processes <= PROCESSES;
}

int main(int argc, char **argv)
{
	struct settings set = {
		.seed = 1, .ops = 1000, .size = 256u << 10, .every = 200, .processes = 1, .direct_percent = 20
	};
	int fd;

	if (!parse(argc, argv, &set))
		return usage();
	printf("fsx --seed %" PRIu64 " --ops %" PRIu64 " --size %" PRIu64 " --processes %u\n", set.seed, set.ops,
		set.size, set.processes);
	fd = open(set.path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
	if (fd < 0 || close(fd) < 0) {
		perror(set.path);
		return 2;
	}
	return set.processes > 1 ? run_processes(&set) : run_region(&set, 0);
}
