/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * cistern-nc4 IN OUT: makes a netCDF-4 file of a netCDF classic one, and proves it. The work is done by processes of its
 * own, which are started anew: one makes the file, then several, with nothing in memory, read it back and compare. This one
 * uses no HDF5 itself; whatever happens in there, it says what became of the file.
 *
 * It tells on standard output, a line each: "result converted", or "result kept" with "reason ..." when the file is none that
 * can be converted, or "result failed" with "reason ..."; and figures. Exit status 0, 0, 1. OUT is of use only when converted.
 *
 * Several nodes do the same in steps (docs/design/netcdf4.md, 7), each by one call of this program: "--step pack" writes a share's
 * compressed chunks to OUT, "--step make" makes the file of such, which are open as descriptors from 6 on, "--step check" reads a
 * share of it back. "result packed", "made" or "checked" is then what is hoped for.
 */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <inttypes.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "format/base/config.h"
#include "format/base/descriptors.h"
#include "format/base/units.h"
#include "mpi-agent/nc4/file.h"

#define CHECKERS_MAX 64
#define CHECK_BYTES  (4u << 20) /* for one of them, at least */
#define ARGS_MAX     24
#define TEXT_MAX     4096
#define REPORT_FD    3
#define PARCEL_FD    6 /* the first one */
#define PARCELS_MAX  256
#define STATUS_KEPT  10 /* of the process that makes: said why */
#define STATUS_NO    11 /* of all: failed, said why */

enum step { STEP_ALL, STEP_PACK, STEP_MAKE, STEP_CHECK };

struct convert {
	const char *in, *out;
	enum step step;
	struct nc4_share share;
	uint64_t num_parcels;
	const char *options[8]; /* borrowed; as -o takes them, later ones win */
	size_t num_options;
	struct config *cfg; /* owned */
	unsigned int threads;
	bool make, check;
	uint32_t part, parts;
	/* the classic file */
	uint8_t *file; /* mapped */
	uint64_t bytes;
	struct classic c;
	struct nc4_shape shape;
};

/* ---- the classic file */

static int map_file(struct convert *v, struct cistern_error *err)
{
	int fd = open(v->in, O_RDONLY | O_CLOEXEC), r = 0;
	struct stat st;

	if (fd < 0)
		return cistern_error_set(err, -errno, "%s: %s", v->in, strerror(errno));
	if (fstat(fd, &st))
		r = cistern_error_set(err, -errno, "%s: %s", v->in, strerror(errno));
	else if (st.st_size < 4)
		r = cistern_error_set(err, -EINVAL, "it is no netCDF classic file");
	v->bytes = (uint64_t)st.st_size;
	if (r == 0) {
		v->file = mmap(NULL, v->bytes, PROT_READ, MAP_SHARED, fd, 0);
		if (v->file == MAP_FAILED) {
			v->file = NULL;
			r = cistern_error_set(err, -errno, "%s: %s", v->in, strerror(errno));
		}
	}
	close(fd);
	return r;
}

/* How much of the file counts: room that was reserved behind the last record, and never filled, is no part of the new one. */
static int used_bytes(const struct convert *v, uint64_t *ret_bytes, struct cistern_error *err)
{
	struct source_memory memory = { v->file, v->bytes };
	struct source source = { .read_bytes = source_read_memory, .arg = &memory, .size = v->bytes };
	struct classic_records found;
	int r = classic_find_records(&v->c, &source, &found);

	if (r < 0)
		return cistern_error_set(err, r, "looking for its last record: %s", strerror(-r));
	*ret_bytes = found.begun == v->c.num_records && !v->c.streaming ? found.data_end : v->bytes;
	return 0;
}

static int take_file(struct convert *v, struct cistern_error *err)
{
	struct nc4_options opt = { .deflate = (unsigned int)config_number(v->cfg, CONFIG_DEFLATE),
		.shuffle = config_number(v->cfg, CONFIG_SHUFFLE) != 0,
		.chunk = config_string(v->cfg, CONFIG_CHUNK) };
	uint64_t used = 0;
	int r = map_file(v, err);

	if (r == 0 && !classic_is(v->file, v->bytes))
		r = cistern_error_set(err, -EINVAL, "it is no netCDF classic file");
	if (r == 0)
		r = classic_decode(v->file, v->bytes, &v->c, err);
	if (r == -ENODATA)
		r = cistern_error_set(err, -EBADMSG, "it ends inside its header");
	if (r == 0)
		r = used_bytes(v, &used, err);
	return r == 0 ? nc4_shape_make(&v->c, used, &opt, &v->shape, err) : r;
}

static bool is_of_the_file(int code)
{
	return code == -EINVAL || code == -EBADMSG || code == -EFBIG;
}

static uint64_t cpu_usec_of(const struct rusage *usage)
{
	return (uint64_t)(usage->ru_utime.tv_sec + usage->ru_stime.tv_sec) * 1000000 +
	       (uint64_t)(usage->ru_utime.tv_usec + usage->ru_stime.tv_usec);
}

/* ---- the processes that work */

static int say_no(const struct cistern_error *err, int status)
{
	dprintf(REPORT_FD, "reason %s\n", err->text);
	return status;
}

/* One that is missing, or not whole, is done without. */
static void open_parcels(struct convert *v, struct parcel **parcels)
{
	for (uint32_t i = 0; i < v->num_parcels; i++) {
		struct nc4_share share = { i, (uint32_t)v->num_parcels };

		if (parcel_open(PARCEL_FD + (int)i, &v->shape, &share, &parcels[i]) < 0)
			parcels[i] = NULL;
	}
}

static int run_make(struct convert *v)
{
	struct parcel *parcels[PARCELS_MAX] = { NULL };
	struct cistern_error err = { 0 };
	struct nc4_make m = { .file = v->file,
		.cfg = v->cfg,
		.out = v->out,
		.shape = &v->shape,
		.threads = v->threads,
		.parcels = parcels,
		.num_parcels = (uint32_t)v->num_parcels };
	int r = nc4_hdf5_begin();

	open_parcels(v, parcels);

	if (r < 0)
		cistern_error_set(&err, r, "HDF5 does not start");
	else
		r = nc4_make(&m, &err);
	for (uint32_t i = 0; i < v->num_parcels; i++)
		parcel_close(parcels[i]);
	if (r < 0)
		return say_no(&err, STATUS_NO);
	dprintf(REPORT_FD,
		"kind netCDF-4%s\nvariables %" PRIu32 "\nchunks %" PRIu64 "\nchunk_bytes %" PRIu64
		"\npacked_chunks %" PRIu64 "\nmdc_hit_rate %.6f\n"
		"mdc_max_size %zu\nmdc_min_clean_size %zu\nmdc_cur_size %zu\nmdc_cur_num_entries %d\n",
		v->shape.strict ? " classic model" : "", v->c.num_vars, v->shape.num_chunks, m.stored_bytes,
		m.parcel_chunks, m.report.hit_rate, m.report.max_bytes, m.report.min_clean_bytes, m.report.now_bytes,
		m.report.entries);
	return 0;
}

static int run_check(struct convert *v)
{
	struct cistern_error err = { 0 };
	struct nc4_check c = { .file = v->file,
		.out = v->out,
		.shape = &v->shape,
		.share = v->share,
		.part = v->part,
		.parts = v->parts };
	int r = nc4_hdf5_begin();

	if (r < 0)
		cistern_error_set(&err, r, "HDF5 does not start");
	else
		r = nc4_check(&c, &err);
	return r < 0 ? say_no(&err, STATUS_NO) : 0;
}

/* ---- a share of the chunks, for another node */

static bool is_of_share(uint32_t var, uint64_t number, const void *arg)
{
	const struct convert *v = arg;
	uint64_t index;

	return v->shape.vars[var].is_filtered && nc4_share_has(&v->share, v->shape.num_chunks, number, &index);
}

static int write_parcel(struct convert *v, int fd)
{
	struct packer_options opt = { .shape = &v->shape,
		.file = v->file,
		.deflate = v->shape.deflate,
		.threads = v->threads,
		.memory_bytes = config_number(v->cfg, CONFIG_FLUSH_BUFFER_SIZE),
		.wants = is_of_share,
		.arg = v };
	struct parcel_writer w = { 0 };
	struct packer *packer = NULL;
	struct packed p;
	int r = parcel_begin(&w, fd, &v->shape, &v->share);

	if (r == 0)
		r = packer_create(&opt, &packer);
	while (r == 0 && (r = packer_take(packer, &p)) == 1)
		r = parcel_add(&w, &p);
	if (r == 0)
		r = parcel_end(&w);
	packer_destroy(packer);
	parcel_free(&w);
	return r;
}

static int pack(struct convert *v)
{
	struct cistern_error err = { 0 };
	struct rusage usage;
	int r = take_file(v, &err), fd;

	if (r < 0) {
		printf("result %s\nreason %s\n", is_of_the_file(r) ? "kept" : "failed", err.text);
		return is_of_the_file(r) ? EXIT_SUCCESS : EXIT_FAILURE;
	}
	fd = open(v->out, O_WRONLY | O_CLOEXEC);
	r = fd < 0 ? -errno : write_parcel(v, fd);
	if (fd >= 0 && close(fd) && r == 0)
		r = -errno;
	if (r < 0) {
		printf("result failed\nreason packing: %s\n", strerror(-r));
		return EXIT_FAILURE;
	}
	getrusage(RUSAGE_SELF, &usage);
	printf("result packed\npack_cpu_usec %" PRIu64 "\n", cpu_usec_of(&usage));
	return EXIT_SUCCESS;
}

static int run_part(struct convert *v)
{
	struct cistern_error err = { 0 };
	int r;

	r = take_file(v, &err);
	if (r < 0)
		return say_no(&err, is_of_the_file(r) ? STATUS_KEPT : STATUS_NO);
	return v->make ? run_make(v) : run_check(v);
}

/* ---- the process that starts them */

struct worker {
	pid_t pid;
	int fd; /* what it says */
};

static int start(const struct convert *v, const char *what, unsigned int part, unsigned int parts, struct worker *ret)
{
	const char *argv[ARGS_MAX + 1] = { "cistern-nc4", what };
	char number[64], threads[32], share[64], parcels[32];
	posix_spawn_file_actions_t files;
	size_t argc = 2;
	int fds[2], r;

	snprintf(number, sizeof(number), "%u/%u", part, parts);
	snprintf(threads, sizeof(threads), "%u", v->threads);
	argv[argc++] = "--part";
	argv[argc++] = number;
	argv[argc++] = "--threads";
	argv[argc++] = threads;
	snprintf(share, sizeof(share), "%" PRIu32 "/%" PRIu32, v->share.which, v->share.num);
	snprintf(parcels, sizeof(parcels), "%" PRIu64, v->num_parcels);
	argv[argc++] = "--share";
	argv[argc++] = share;
	argv[argc++] = "--parcels";
	argv[argc++] = parcels;
	for (size_t i = 0; i < v->num_options; i++) {
		argv[argc++] = "--options";
		argv[argc++] = v->options[i];
	}
	argv[argc++] = v->in;
	argv[argc++] = v->out;
	if (pipe2(fds, O_CLOEXEC))
		return -errno;
	r = -posix_spawn_file_actions_init(&files);
	if (r == 0) {
		/* Standard output is for what HDF5 prints; ours is in the report. */
		r = -posix_spawn_file_actions_adddup2(&files, STDERR_FILENO, STDOUT_FILENO);
		r = r ? r : -posix_spawn_file_actions_adddup2(&files, fds[1], REPORT_FD);
		r = r ? r : -posix_spawn(&ret->pid, "/proc/self/exe", &files, NULL, (char *const *)argv, environ);
		posix_spawn_file_actions_destroy(&files);
	}
	close(fds[1]);
	if (r < 0)
		close(fds[0]);
	ret->fd = fds[0];
	return r;
}

/* All that it says, and how it ended; text: TEXT_MAX. */
static int wait_for(struct worker *w, char *text, int *ret_status, uint64_t *cpu_usec)
{
	struct rusage usage;
	size_t len = 0;
	ssize_t n;

	while ((n = read(w->fd, text + len, TEXT_MAX - 1 - len)) > 0 || (n < 0 && errno == EINTR))
		len += n > 0 ? (size_t)n : 0;
	text[len] = '\0';
	close(w->fd);
	while (wait4(w->pid, ret_status, 0, &usage) < 0)
		if (errno != EINTR)
			return -errno;
	*cpu_usec += cpu_usec_of(&usage);
	return 0;
}

/* One that died says nothing itself. */
static void explain(const char *what, int status, char *text)
{
	if (*text)
		return;
	if (WIFSIGNALED(status))
		snprintf(text, TEXT_MAX, "reason the process that %s the file ended with signal %d (%s)\n", what,
			WTERMSIG(status), strsignal(WTERMSIG(status)));
	else
		snprintf(text, TEXT_MAX, "reason the process that %s the file ended with status %d\n", what,
			WEXITSTATUS(status));
}

static int failed(const char *text)
{
	printf("result failed\n%s", text);
	return EXIT_FAILURE;
}

static int failed_errno(const char *doing, int r)
{
	printf("result failed\nreason %s: %s\n", doing, strerror(-r));
	return EXIT_FAILURE;
}

/* Starting one costs as much as it takes to check a few megabytes. */
static unsigned int count_checkers(const struct convert *v)
{
	uint64_t most = v->threads < CHECKERS_MAX ? v->threads : CHECKERS_MAX;
	struct stat st;

	if (stat(v->in, &st) == 0 && (uint64_t)st.st_size / CHECK_BYTES + 1 < most)
		most = (uint64_t)st.st_size / CHECK_BYTES + 1;
	return (unsigned int)most;
}

/* Returns how the first one ended that did not end well, and what it said. */
static int check_all(struct convert *v, char *text, int *ret_status, uint64_t *cpu_usec)
{
	unsigned int parts = count_checkers(v), started = 0;
	struct worker workers[CHECKERS_MAX];
	char said[TEXT_MAX];
	int r = 0, status;

	*ret_status = 0;
	while (r == 0 && started < parts) {
		r = start(v, "--check", started, parts, &workers[started]);
		started += r == 0;
	}
	for (unsigned int i = 0; i < started; i++) {
		int one = wait_for(&workers[i], said, &status, cpu_usec);

		r = r ? r : one;
		if (one == 0 && status != 0 && *ret_status == 0) {
			*ret_status = status;
			memcpy(text, said, sizeof(said));
		}
	}
	return r;
}

/* 0; else what convert() ends with, and all is said. made: TEXT_MAX: what it says of the file. */
static int make(struct convert *v, char *made, uint64_t *cpu_usec, bool *ret_made)
{
	struct worker w;
	int status, r = start(v, "--make", 0, 1, &w);

	*ret_made = false;
	if (r == 0)
		r = wait_for(&w, made, &status, cpu_usec);
	if (r < 0)
		return failed_errno("cannot start a process", r);
	*ret_made = status == 0;
	if (status == 0)
		return EXIT_SUCCESS;
	explain("makes", status, made);
	if (WIFSIGNALED(status) || WEXITSTATUS(status) != STATUS_KEPT)
		return failed(made);
	printf("result kept\n%s", made);
	return EXIT_SUCCESS;
}

static int check(struct convert *v, uint64_t *cpu_usec)
{
	char checked[TEXT_MAX] = "";
	int status, r = check_all(v, checked, &status, cpu_usec);

	if (r < 0)
		return failed_errno("cannot start a process", r);
	if (status == 0)
		return EXIT_SUCCESS;
	explain("checks", status, checked);
	return failed(checked);
}

static int convert(struct convert *v)
{
	char made_text[TEXT_MAX] = "";
	uint64_t make_usec = 0, check_usec = 0;
	bool made = true;
	int status = EXIT_SUCCESS;

	if (v->step != STEP_CHECK)
		status = make(v, made_text, &make_usec, &made);
	if (status == EXIT_SUCCESS && made && v->step != STEP_MAKE)
		status = check(v, &check_usec);
	if (status != EXIT_SUCCESS || !made)
		return status;
	printf("result %s\n%s",
		v->step == STEP_MAKE    ? "made"
		: v->step == STEP_CHECK ? "checked"
					: "converted",
		made_text);
	if (v->step != STEP_CHECK)
		printf("make_cpu_usec %" PRIu64 "\nthreads %u\n", make_usec, v->threads);
	if (v->step != STEP_MAKE)
		printf("check_cpu_usec %" PRIu64 "\n", check_usec);
	return EXIT_SUCCESS;
}

/* ---- the command line */

static unsigned int count_processors(void)
{
	cpu_set_t set;
	int num = sched_getaffinity(0, sizeof(set), &set) == 0 ? CPU_COUNT(&set) : 1;

	return num < 1 ? 1 : num > CHECKERS_MAX ? CHECKERS_MAX : (unsigned int)num;
}

static bool parse_part(const char *text, uint32_t *ret_part, uint32_t *ret_parts)
{
	unsigned int part, parts;

	if (sscanf(text, "%u/%u", &part, &parts) != 2 || parts == 0 || part >= parts)
		return false;
	*ret_part = part;
	*ret_parts = parts;
	return true;
}

static bool parse_step(struct convert *v, const char *text)
{
	v->step = strcmp(text, "pack") == 0    ? STEP_PACK
		  : strcmp(text, "make") == 0  ? STEP_MAKE
		  : strcmp(text, "check") == 0 ? STEP_CHECK
					       : STEP_ALL;
	return v->step != STEP_ALL;
}

static int parse(struct convert *v, int argc, char **argv)
{
	static const struct option options[] = { { "options", required_argument, NULL, 'o' },
		{ "threads", required_argument, NULL, 't' }, { "part", required_argument, NULL, 'p' },
		{ "share", required_argument, NULL, 's' }, { "parcels", required_argument, NULL, 'n' },
		{ "step", required_argument, NULL, 'S' }, { "make", no_argument, NULL, 'm' },
		{ "check", no_argument, NULL, 'c' }, { 0 } };
	uint64_t n;
	int c;

	while ((c = getopt_long(argc, argv, "o:", options, NULL)) != -1) {
		if (c == 'o' && v->num_options < 4)
			v->options[v->num_options++] = optarg;
		else if (c == 't' && units_parse_u64(optarg, &n) == 0 && n <= 256)
			v->threads = (unsigned int)n;
		else if (c == 'n' && units_parse_u64(optarg, &n) == 0 && n <= PARCELS_MAX)
			v->num_parcels = n;
		else if ((c == 'p' && parse_part(optarg, &v->part, &v->parts)) ||
			 (c == 's' && parse_part(optarg, &v->share.which, &v->share.num)) ||
			 (c == 'S' && parse_step(v, optarg)))
			continue;
		else if (c == 'm' || c == 'c')
			*(c == 'm' ? &v->make : &v->check) = true;
		else
			return -EINVAL;
	}
	if (argc - optind != 2)
		return -EINVAL;
	v->in = argv[optind];
	v->out = argv[optind + 1];
	return 0;
}

static int take_options(struct convert *v, struct cistern_error *err)
{
	int r = config_create(&v->cfg);

	if (r < 0)
		return cistern_error_set(err, r, "out of memory");
	for (size_t i = 0; r == 0 && i < v->num_options; i++)
		r = config_parse_options(v->cfg, v->options[i], "-o", err);
	if (v->threads == 0)
		v->threads = (unsigned int)config_number(v->cfg, CONFIG_CONVERT_THREADS);
	if (v->threads == 0)
		v->threads = count_processors();
	return r;
}

int main(int argc, char **argv)
{
	struct convert v = { .parts = 1, .share = { .num = 1 } };
	struct cistern_error err = { 0 };
	int status;

	descriptors_fill();
	prctl(PR_SET_PDEATHSIG, SIGKILL); /* nobody would know of us */
	if (parse(&v, argc, argv) < 0) {
		fputs("usage: cistern-nc4 [-o SETTING=VALUE,...] [--threads N] IN OUT\n", stderr);
		return CISTERN_EXIT_USAGE;
	}
	if (take_options(&v, &err) < 0) {
		printf("result kept\nreason %s\n", err.text);
		status = EXIT_SUCCESS;
	} else {
		status = v.make || v.check ? run_part(&v) : v.step == STEP_PACK ? pack(&v) : convert(&v);
	}
	nc4_shape_free(&v.shape);
	classic_destroy(&v.c);
	config_destroy(v.cfg);
	if (v.file)
		munmap(v.file, v.bytes);
	return status;
}
