/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * nc4 DIR BYTES CONVERTER: what it costs to make a netCDF-4 file with deflate 1 of a classic one of about BYTES, against what
 * zlib alone needs in one process to compress the same bytes at the same level, in pieces of 1 MiB. The classic file is like
 * a model's: fields of floats, smooth but for noise in their last bits, in records. Prints processor time of both, with the
 * check of the new file, and without shuffling as well; the time on the clock; the same in two shares, as two nodes of a job
 * have them, with one thread each: processor time of the one that has more, and how many times faster that is than one; the sizes.
 */
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <zlib.h>

#include "format/codec/classic.h"
#include "tests/bench/bench.h"

#define NUM_COLUMNS 48602u
#define NUM_LEVELS  26u
#define NUM_VARS    4u
#define PIECE       (1u << 20)

static void check(const char *what, int r)
{
	errno = -r;
	if (r < 0)
		bench_die(what, "nc4");
}

static void make_header(struct classic *c, uint64_t bytes)
{
	static const uint32_t dims[] = { 0, 1, 2 };
	char name[16];

	classic_init(c, 5);
	check("dim", classic_add_dim(c, "time", 0, NULL));
	check("dim", classic_add_dim(c, "lev", NUM_LEVELS, NULL));
	check("dim", classic_add_dim(c, "ncol", NUM_COLUMNS, NULL));
	for (uint32_t i = 0; i < NUM_VARS; i++) {
		snprintf(name, sizeof(name), "V%" PRIu32, i);
		check("var", classic_add_var(c, name, CLASSIC_FLOAT, 3, dims, NULL));
	}
	check("finish", classic_finish(c, NULL));
	c->num_records = bytes / c->record_bytes + 1;
	check("assign", classic_assign(c, &(struct classic_align){ .header = 512 }));
}

/* Big-endian floats around 250, with some noise: a mantissa of which the first half can be foretold. */
static void make_values(uint8_t *out, uint64_t num, uint64_t *seed)
{
	for (uint64_t i = 0; i < num; i++) {
		float v;
		uint32_t bits;

		*seed = *seed * 6364136223846793005u + 1442695040888963407u;
		v = 250.0f + 20.0f * sinf((float)i / 5000.0f) + (float)(*seed >> 40) / (float)(1 << 26);
		memcpy(&bits, &v, sizeof(bits));
		bits = __builtin_bswap32(bits);
		memcpy(out + 4 * i, &bits, sizeof(bits));
	}
}

static uint64_t make_file(const char *path, uint64_t bytes)
{
	int fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	uint8_t *values = malloc(4 * NUM_COLUMNS);
	uint64_t at, end, seed = 1;
	struct buf header = { 0 };
	struct classic c;

	make_header(&c, bytes);
	check("encode", classic_encode(&c, &header));
	if (fd < 0 || !values)
		bench_die("open", path);
	bench_pwrite(fd, header.data, header.len, 0, path);
	end = classic_file_bytes(&c);
	for (at = c.records_begin; at < end; at += 4 * NUM_COLUMNS) {
		make_values(values, NUM_COLUMNS, &seed);
		bench_pwrite(fd, values, 4 * NUM_COLUMNS, at, path);
	}
	free(values);
	buf_free(&header);
	classic_destroy(&c);
	close(fd);
	return end;
}

static double seconds_of(const struct rusage *u)
{
	return (double)(u->ru_utime.tv_sec + u->ru_stime.tv_sec) +
	       (double)(u->ru_utime.tv_usec + u->ru_stime.tv_usec) / 1e6;
}

/* The pages are read once before, as the converter finds them, too. */
static double run_zlib(const char *path, uint64_t bytes, uint64_t *ret_out)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	uint8_t *file = fd < 0 ? MAP_FAILED : mmap(NULL, bytes, PROT_READ, MAP_SHARED | MAP_POPULATE, fd, 0);
	uLong cap = compressBound(PIECE);
	Bytef *out = malloc(cap);
	struct rusage before, after;

	if (file == MAP_FAILED || !out)
		bench_die("mmap", path);
	getrusage(RUSAGE_SELF, &before);
	*ret_out = 0;
	for (uint64_t at = 0; at < bytes; at += PIECE) {
		uLongf len = cap;

		if (compress2(out, &len, file + at, bytes - at < PIECE ? bytes - at : PIECE, 1) != Z_OK)
			bench_die("compress2", path);
		*ret_out += len;
	}
	getrusage(RUSAGE_SELF, &after);
	munmap(file, bytes);
	free(out);
	close(fd);
	return seconds_of(&after) - seconds_of(&before);
}

#define HELPERS 2u

/* What it says does not matter; parcels: descriptors that it gets from 6 on, or NULL. */
static pid_t start_converter(const char *const *argv, const int *parcels)
{
	posix_spawn_file_actions_t files;
	pid_t pid;

	posix_spawn_file_actions_init(&files);
	posix_spawn_file_actions_addopen(&files, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
	for (int i = 0; parcels && i < (int)HELPERS; i++)
		posix_spawn_file_actions_adddup2(&files, parcels[i], 6 + i);
	errno = posix_spawn(&pid, argv[0], &files, NULL, (char *const *)argv, environ);
	if (errno)
		bench_die("cistern-nc4", argv[0]);
	posix_spawn_file_actions_destroy(&files);
	return pid;
}

/* Its processor time is that of its processes, too. */
static double end_converter(pid_t pid)
{
	struct rusage usage;
	int status;

	if (wait4(pid, &status, 0, &usage) != pid || status != 0)
		bench_die("wait4", "cistern-nc4");
	return seconds_of(&usage);
}

static double run_converter(const char *program, const char *in, const char *out, const char *options,
	const char *threads, double *ret_clock)
{
	const char *argv[] = { program, "-o", options, "--threads", threads, in, out, NULL };
	double began = bench_now(), cpu = end_converter(start_converter(argv, NULL));

	*ret_clock = bench_now() - began;
	return cpu;
}

/* Each helper's share, at the same time, with one thread; cpu: HELPERS, added to. */
static void run_shares(const char *program, const char *step, const char *in, const char *const *outs, double *cpu)
{
	char share[HELPERS][16];
	pid_t pids[HELPERS];

	for (unsigned int i = 0; i < HELPERS; i++) {
		const char *argv[] = { program, "-o", "deflate=1", "--threads", "1", "--step", step, "--share",
			share[i], in, outs[i], NULL };

		snprintf(share[i], sizeof(share[i]), "%u/%u", i, HELPERS);
		pids[i] = start_converter(argv, NULL);
	}
	for (unsigned int i = 0; i < HELPERS; i++)
		cpu[i] += end_converter(pids[i]);
}

/* As the nodes of a job do it, in steps. Processor time of the one that has most: it puts the file together, too. */
static double run_together(const char *program, const char *dir, const char *in, const char *out, double *ret_clock)
{
	char parcel[HELPERS][4096];
	const char *const parcels[HELPERS] = { parcel[0], parcel[1] }, *const news[HELPERS] = { out, out };
	const char *argv[] = { program, "-o", "deflate=1", "--threads", "1", "--step", "make", "--parcels", "2", in,
		out, NULL };
	double cpu[HELPERS] = { 0 }, began;
	int fds[HELPERS];

	for (unsigned int i = 0; i < HELPERS; i++) {
		snprintf(parcel[i], sizeof(parcel[i]), "%.4000s/parcel%u", dir, i);
		/* Out of the way of where the converter wants them. */
		fds[i] = fcntl(open(parcel[i], O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600), F_DUPFD_CLOEXEC, 20);
		if (fds[i] < 0)
			bench_die("open", parcel[i]);
	}
	began = bench_now();
	run_shares(program, "pack", in, parcels, cpu);
	cpu[0] += end_converter(start_converter(argv, fds));
	run_shares(program, "check", in, news, cpu);
	*ret_clock = bench_now() - began;
	return cpu[0] > cpu[1] ? cpu[0] : cpu[1];
}

int main(int argc, char **argv)
{
	char in[4096], out[4096];
	double zlib, cpu, plain, clock, plain_clock, together, together_clock, alone_clock;
	uint64_t bytes, packed;
	struct stat st;

	bench_usage(argc, 3, "nc4 DIR BYTES CONVERTER");
	snprintf(in, sizeof(in), "%s/classic.nc", argv[1]);
	snprintf(out, sizeof(out), "%s/new.nc", argv[1]);
	bytes = make_file(in, bench_number(argv[2], 1));
	zlib = run_zlib(in, bytes, &packed);
	plain = run_converter(argv[3], in, out, "deflate=1,shuffle=no", "0", &plain_clock);
	cpu = run_converter(argv[3], in, out, "deflate=1", "0", &clock);
	run_converter(argv[3], in, out, "deflate=1", "1", &alone_clock);
	together = run_together(argv[3], argv[1], in, out, &together_clock);
	if (stat(out, &st))
		bench_die("stat", out);
	printf("{\"zlib_cpu\": %.6f, \"cpu\": %.6f, \"cpu_ratio\": %.4f, \"plain_ratio\": %.4f, \"clock_ratio\": %.4f, "
	       "\"helper_ratio\": %.4f, \"helpers_speed_up\": %.4f, "
	       "\"bytes\": %" PRIu64 ", \"zlib_bytes\": %" PRIu64 ", \"nc4_bytes\": %" PRIu64 "}\n",
		zlib, cpu, cpu / zlib, plain / zlib, clock / zlib, together / zlib, alone_clock / together_clock, bytes,
		packed, (uint64_t)st.st_size);
	return 0;
}
