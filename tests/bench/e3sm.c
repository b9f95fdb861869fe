/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * e3sm [OPTION...] PATH: one history file as the climate model E3SM writes it, CDF-5, canonical order: each process writes the
 * elements that it owns, one pwrite for each run of neighbours. A plain MPI program: any file system, any number of processes;
 * PATH may differ from process to process (mpiexec's "prog A : prog B") where one file has several names.
 *
 *   F  atmosphere: 414 variables, 3 maps: columns are dealt out in runs of about seven, level by level; 28 bytes a request
 *   G  ocean: 52 variables, 6 maps: cells, edges and vertices with their levels beside each other; 700 bytes a request
 *   I  land: 560 variables, 5 maps: runs of land, what is sea is never written; 180 bytes a request
 *
 * The maps are made up, with counts and sizes as measured on E3SM's own for 16 processes (small) or its production runs (full); tiny
 * has all variables and little data. What an element holds depends on variable, record and place alone, and so does what is
 * one request: files of different numbers of processes are equal, byte for byte.
 *
 * With --from=N the file is there with its first N records, and the others are added.
 * With --halfway it stops before the middle variable of the first record, with all that was written synced, until a line is read.
 *
 * Prints one line of JSON: bytes, requests and seconds, from when all have the file open until the last one has closed it.
 */
#include <fcntl.h>
#include <getopt.h>
#include <mpi.h>
#include <stdbool.h>

#include "tests/bench/bench.h"

#define PARTS_MIN 16 /* processes that a map is made for */

enum type { CHAR = 2, INT = 4, FLOAT = 5, DOUBLE = 6 }; /* as CDF has them */

/* ---- the cases */

struct dim {
	const char *name;
	uint64_t len; /* 0: the record dimension */
};

/* A map: outer x places x inner elements; places are cut into runs, each owned by one process. */
struct map {
	int outer, places[2], inner; /* dims, -1: none */
	unsigned int run, gap;       /* mean number of places in a run, and between two */
};

struct group { /* variables of one kind */
	const char *prefix;
	unsigned int count;
	int map;     /* -1: written whole by process 0 */
	int dims[2]; /* of those, -1: none */
	enum type type;
	bool record;
};

#define DIMS_MAX   12
#define MAPS_MAX   6
#define GROUPS_MAX 12

struct workload {
	const char *name;
	struct dim dims[DIMS_MAX]; /* the first one is the record dimension */
	uint64_t len[3][DIMS_MAX]; /* by size: tiny, small, full; 0: as dims say */
	unsigned int records[3];
	struct map maps[MAPS_MAX];
	struct group groups[GROUPS_MAX];
};

enum { NONE = -1 };

static const struct workload workloads[] = {
	{ "F", { { "time", 0 }, { "ncol", 0 }, { "lev", 72 }, { "nbnd", 2 }, { "chars", 8 } },
		{ { 0, 90, 5 }, { 0, 866, 72 }, { 0, 777602, 72 } }, { 2, 1, 25 },
		{ { NONE, { 1, NONE }, NONE, 7, 0 }, { NONE, { 1, NONE }, NONE, 7, 0 },
			{ 2, { 1, NONE }, NONE, 7, 0 } },
		{ { "coord", 3, 0, { NONE, NONE }, DOUBLE, false }, { "hy", 8, NONE, { 2, NONE }, DOUBLE, false },
			{ "base", 5, NONE, { NONE, NONE }, INT, false },
			{ "surf", 251, 1, { NONE, NONE }, FLOAT, true },
			{ "step", 11, NONE, { NONE, NONE }, DOUBLE, true },
			{ "written", 2, NONE, { 4, NONE }, CHAR, true },
			{ "bounds", 1, NONE, { 3, NONE }, DOUBLE, true },
			{ "field", 133, 2, { NONE, NONE }, FLOAT, true } } },
	{ "G",
		{ { "Time", 0 }, { "nCells", 0 }, { "nEdges", 0 }, { "nVertices", 0 }, { "nVertLevels", 0 },
			{ "nVertLevelsP1", 0 }, { "StrLen", 64 } },
		{ { 0, 60, 180, 120, 4, 5 }, { 0, 1318, 3954, 2636, 20, 21 },
			{ 0, 3693225, 11135652, 7441216, 80, 81 } },
		{ 2, 1, 1 },
		{ { NONE, { 1, NONE }, NONE, 6, 0 }, { NONE, { 2, NONE }, NONE, 6, 0 }, { NONE, { 1, NONE }, 4, 6, 0 },
			{ NONE, { 2, NONE }, 4, 6, 0 }, { NONE, { 3, NONE }, 4, 6, 0 },
			{ NONE, { 1, NONE }, 5, 6, 0 } },
		{ { "cell", 6, 0, { NONE, NONE }, DOUBLE, true }, { "edge", 2, 1, { NONE, NONE }, DOUBLE, true },
			{ "layer", 25, 2, { NONE, NONE }, DOUBLE, true },
			{ "flow", 2, 3, { NONE, NONE }, DOUBLE, true },
			{ "vortex", 2, 4, { NONE, NONE }, DOUBLE, true },
			{ "face", 4, 5, { NONE, NONE }, DOUBLE, true },
			{ "global", 9, NONE, { NONE, NONE }, DOUBLE, true },
			{ "xtime", 1, NONE, { 6, NONE }, CHAR, true },
			{ "ref", 1, NONE, { 4, NONE }, DOUBLE, false } } },
	{ "I",
		{ { "time", 0 }, { "lat", 0 }, { "lon", 0 }, { "levgrnd", 0 }, { "levlak", 0 }, { "levdcmp", 0 },
			{ "hist_interval", 2 }, { "string_length", 16 } },
		{ { 0, 12, 24, 3, 2, 2 }, { 0, 120, 240, 15, 10, 10 }, { 0, 360, 720, 15, 10, 15 } }, { 2, 1, 240 },
		{ { NONE, { 1, 2 }, NONE, 44, 17 }, { 3, { 1, 2 }, NONE, 44, 17 }, { 4, { 1, 2 }, NONE, 44, 17 },
			{ 5, { 1, 2 }, NONE, 44, 17 }, { 6, { 1, 2 }, NONE, 44, 17 } },
		{ { "lev", 2, NONE, { 3, NONE }, FLOAT, false }, { "lon", 1, NONE, { 2, NONE }, FLOAT, false },
			{ "lat", 1, NONE, { 1, NONE }, FLOAT, false }, { "area", 6, 0, { NONE, NONE }, FLOAT, false },
			{ "zsoi", 9, 1, { NONE, NONE }, FLOAT, false }, { "step", 7, NONE, { NONE, NONE }, INT, true },
			{ "bounds", 1, NONE, { 6, NONE }, DOUBLE, true },
			{ "written", 2, NONE, { 7, NONE }, CHAR, true },
			{ "flux", 459, 0, { NONE, NONE }, FLOAT, true }, { "soil", 60, 1, { NONE, NONE }, FLOAT, true },
			{ "lake", 2, 2, { NONE, NONE }, FLOAT, true },
			{ "pool", 10, 3, { NONE, NONE }, FLOAT, true } } },
};

/* ---- what a case becomes at a size */

struct run {
	uint64_t at, len; /* places */
	int owner;
};

struct laid_map {
	uint64_t outer, places, inner;
	struct run *runs; /* owned */
	size_t num_runs;
};

struct variable {
	char name[32];
	int dims[4], num_dims;
	int map;
	enum type type;
	bool record;
	uint64_t elements; /* of one record, or in all */
	uint64_t vsize;    /* their bytes, padded to 4 */
	uint64_t begin;
};

struct job {
	const struct workload *load;
	const char *path;
	int size, fd, rank, ranks;
	bool sync, halfway;
	uint64_t records, from; /* from: the first one that is written; not 0: the file is there */
	struct dim dims[DIMS_MAX];
	int num_dims;
	struct laid_map maps[MAPS_MAX];
	struct variable *vars; /* owned */
	int num_vars;
	uint64_t header_bytes, recsize, end;
	uint8_t *buf; /* owned */
	size_t buf_bytes;
	uint64_t bytes, requests; /* of this process */
};

static void die(const char *what, const char *path)
{
	fprintf(stderr, "e3sm: %s: %s: %s\n", path, what, strerror(errno));
	MPI_Abort(MPI_COMM_WORLD, 1);
	exit(1);
}

static void *must_alloc(size_t num, size_t each)
{
	void *p = calloc(num ? num : 1, each);

	if (!p)
		die("no memory", "e3sm");
	return p;
}

static uint64_t mix(uint64_t x)
{
	x += 0x9e3779b97f4a7c15u;
	x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
	x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
	return x ^ (x >> 31);
}

static uint64_t dim_len(const struct job *j, int dim)
{
	return dim < 0 ? 1 : j->dims[dim].len;
}

static unsigned int type_bytes(enum type type)
{
	static const unsigned int bytes[] = { [CHAR] = 1, [INT] = 4, [FLOAT] = 4, [DOUBLE] = 8 };

	return bytes[type];
}

static uint64_t around(uint64_t mean, uint64_t seed) /* 1 to 2 mean - 1; 0 for 0 */
{
	return mean ? 1 + mix(seed) % (2 * mean - 1) : 0;
}

/* Maps of the same places are cut alike when they have levels, as E3SM's are; without, each has its own deal. */
static void lay_map(struct job *j, int number)
{
	const struct map *m = &j->load->maps[number];
	struct laid_map *l = &j->maps[number];
	uint64_t seed = (uint64_t)m->places[0] * 1000 + (m->outer < 0 && m->inner < 0 ? (uint64_t)number : 77);
	int parts = j->ranks > PARTS_MIN ? j->ranks : PARTS_MIN;

	l->outer = dim_len(j, m->outer);
	l->inner = dim_len(j, m->inner);
	l->places = dim_len(j, m->places[0]) * dim_len(j, m->places[1]);
	l->runs = must_alloc(l->places, sizeof(*l->runs));
	for (uint64_t at = 0, i = 0; at < l->places; i++) {
		uint64_t len = around(m->run, seed + 3 * i), gap = around(m->gap, seed + 3 * i + 1);

		len = len < l->places - at ? len : l->places - at;
		l->runs[l->num_runs++] =
			(struct run){ at, len, (int)(mix(seed + 3 * i + 2) % (uint64_t)parts) % j->ranks };
		at += len + gap;
	}
}

static void add_dims(struct variable *v, const int *dims, int num)
{
	for (int i = 0; i < num; i++)
		if (dims[i] >= 0)
			v->dims[v->num_dims++] = dims[i];
}

static void add_variable(struct job *j, const struct group *g, unsigned int number)
{
	struct variable *v = &j->vars[j->num_vars++];
	const int time = 0;

	*v = (struct variable){ .map = g->map, .type = g->type, .record = g->record, .elements = 1 };
	snprintf(v->name, sizeof(v->name), "%s%u", g->prefix, number);
	if (g->record)
		add_dims(v, &time, 1);
	if (g->map < 0) {
		add_dims(v, g->dims, 2);
	} else {
		const struct map *m = &j->load->maps[g->map];

		add_dims(v, &m->outer, 1);
		add_dims(v, m->places, 2);
		add_dims(v, &m->inner, 1);
	}
	for (int i = g->record; i < v->num_dims; i++)
		v->elements *= j->dims[v->dims[i]].len;
	v->vsize = (v->elements * type_bytes(v->type) + 3) / 4 * 4;
}

static void lay_variables(struct job *j)
{
	int num = 0;

	for (int g = 0; g < GROUPS_MAX; g++)
		num += (int)j->load->groups[g].count;
	j->vars = must_alloc((size_t)num, sizeof(*j->vars));
	for (int g = 0; g < GROUPS_MAX; g++)
		for (unsigned int i = 0; i < j->load->groups[g].count; i++)
			add_variable(j, &j->load->groups[g], i);
}

static void lay_out(struct job *j)
{
	for (int i = 0; i < DIMS_MAX && j->load->dims[i].name; i++, j->num_dims++) {
		j->dims[i] = j->load->dims[i];
		if (j->load->len[j->size][i])
			j->dims[i].len = j->load->len[j->size][i];
	}
	for (int i = 0; i < MAPS_MAX && j->load->maps[i].run; i++)
		lay_map(j, i);
	lay_variables(j);
}

/* ---- the header: CDF-5, big-endian */

struct bytes {
	uint8_t *data; /* NULL: only counted */
	size_t len;
};

static void put(struct bytes *b, uint64_t value, int width)
{
	for (int i = width - 1; i >= 0; i--, b->len++)
		if (b->data)
			b->data[b->len] = (uint8_t)(value >> (8 * i));
}

static void put_text(struct bytes *b, const char *text)
{
	size_t len = strlen(text);

	put(b, len, 8);
	for (size_t i = 0; i < (len + 3) / 4 * 4; i++)
		put(b, i < len ? (uint8_t)text[i] : 0, 1);
}

static void put_attribute(struct bytes *b, const char *name, const char *text)
{
	put_text(b, name);
	put(b, CHAR, 4);
	put_text(b, text);
}

static void put_variable(struct bytes *b, const struct job *j, const struct variable *v)
{
	put_text(b, v->name);
	put(b, (uint64_t)v->num_dims, 8);
	for (int i = 0; i < v->num_dims; i++)
		put(b, (uint64_t)v->dims[i], 8);
	put(b, 0xc, 4);
	put(b, 2, 8);
	put_attribute(b, "long_name", v->name);
	put_attribute(b, "case", j->load->name);
	put(b, v->type, 4);
	put(b, v->vsize, 8);
	put(b, v->begin, 8);
}

static void put_header(struct bytes *b, const struct job *j)
{
	put(b, 0x43444605, 4); /* "CDF", 5 */
	put(b, 0, 8);          /* records: none yet */
	put(b, 0xa, 4);
	put(b, (uint64_t)j->num_dims, 8);
	for (int i = 0; i < j->num_dims; i++) {
		put_text(b, j->dims[i].name);
		put(b, j->dims[i].len, 8);
	}
	put(b, 0xc, 4);
	put(b, 1, 8);
	put_attribute(b, "title", "E3SM-like workload of Cistern");
	put(b, 0xb, 4);
	put(b, (uint64_t)j->num_vars, 8);
	for (int i = 0; i < j->num_vars; i++)
		put_variable(b, j, &j->vars[i]);
}

static void place_variables(struct job *j)
{
	struct bytes counted = { 0 };
	uint64_t at;

	put_header(&counted, j);
	j->header_bytes = counted.len;
	at = (counted.len + 511) / 512 * 512;
	for (int record = 0; record < 2; record++)
		for (int i = 0; i < j->num_vars; i++) {
			if (j->vars[i].record != record)
				continue;
			j->vars[i].begin = at;
			at += j->vars[i].vsize;
			j->recsize += record ? j->vars[i].vsize : 0;
		}
	j->end = at + (j->records - 1) * j->recsize;
}

static void write_all(struct job *j, const void *buf, size_t len, uint64_t off)
{
	ssize_t n = pwrite(j->fd, buf, len, (off_t)off);

	if (n >= 0 && (size_t)n != len)
		errno = ENOSPC;
	if (n < 0 || (size_t)n != len)
		die("pwrite", j->path);
	j->bytes += len;
	j->requests++;
}

static void write_header(struct job *j)
{
	struct bytes b = { must_alloc(j->header_bytes, 1), 0 };

	put_header(&b, j);
	write_all(j, b.data, b.len, 0);
	free(b.data);
	if (ftruncate(j->fd, (off_t)j->end) < 0)
		die("ftruncate", j->path);
}

static void write_num_records(struct job *j, uint64_t num)
{
	uint8_t data[8];
	struct bytes b = { data, 0 };

	put(&b, num, 8);
	write_all(j, data, sizeof(data), 4);
}

/* ---- data */

/* A whole number that a float can hold. */
static uint32_t value_of(int var, uint64_t record, uint64_t element)
{
	return (uint32_t)(((uint64_t)var * 7919 + record * 104729 + element * 13 + 1) % 16777213);
}

static void encode(struct bytes *b, enum type type, uint32_t value)
{
	float f = (float)value;
	double d = value + 0.5;
	uint64_t bits = 0;
	uint32_t half = 0;

	switch (type) {
	case CHAR: put(b, 'a' + value % 26, 1); break;
	case INT: put(b, value, 4); break;
	case FLOAT:
		memcpy(&half, &f, sizeof(half));
		put(b, half, 4);
		break;
	case DOUBLE:
		memcpy(&bits, &d, sizeof(bits));
		put(b, bits, 8);
		break;
	}
}

static void write_elements(struct job *j, int var, uint64_t record, uint64_t first, uint64_t num)
{
	const struct variable *v = &j->vars[var];
	size_t need = num * type_bytes(v->type);
	struct bytes b = { 0 };

	if (need > j->buf_bytes) {
		free(j->buf);
		j->buf = must_alloc(need, 1);
		j->buf_bytes = need;
	}
	b.data = j->buf;
	for (uint64_t i = first; i < first + num; i++)
		encode(&b, v->type, value_of(var, record, i));
	write_all(j, b.data, b.len, v->begin + record * (v->record ? j->recsize : 0) + first * type_bytes(v->type));
}

static void write_variable(struct job *j, int var, uint64_t record)
{
	const struct variable *v = &j->vars[var];
	const struct laid_map *l = v->map < 0 ? NULL : &j->maps[v->map];

	if (!l) {
		if (j->rank == 0)
			write_elements(j, var, record, 0, v->elements);
		return;
	}
	for (uint64_t o = 0; o < l->outer; o++)
		for (size_t i = 0; i < l->num_runs; i++)
			if (l->runs[i].owner == j->rank)
				write_elements(j, var, record, (o * l->places + l->runs[i].at) * l->inner,
					l->runs[i].len * l->inner);
}

/* One line: how many variables, then each rank's process and the bytes it has written; goes on when rank 0 has read a line. */
static void stop_halfway(struct job *j)
{
	uint64_t mine[2] = { (uint64_t)getpid(), j->bytes }, *all = must_alloc((size_t)j->ranks, sizeof(mine));
	char line[16];

	if (fsync(j->fd) < 0)
		die("fsync", j->path);
	MPI_Gather(mine, 2, MPI_UINT64_T, all, 2, MPI_UINT64_T, 0, MPI_COMM_WORLD);
	if (j->rank == 0) {
		printf("%d", j->num_vars / 2);
		for (int i = 0; i < j->ranks; i++)
			printf(" %llu %llu", (unsigned long long)all[2 * i], (unsigned long long)all[2 * i + 1]);
		putchar('\n');
		fflush(stdout);
		if (!fgets(line, sizeof(line), stdin))
			die("reading a line", "standard input");
	}
	MPI_Barrier(MPI_COMM_WORLD);
	free(all);
}

static void write_variables(struct job *j, bool record_ones, uint64_t record)
{
	for (int i = 0; i < j->num_vars; i++) {
		if (j->halfway && record_ones && record == 0 && i == j->num_vars / 2)
			stop_halfway(j);
		if (j->vars[i].record == record_ones)
			write_variable(j, i, record);
	}
}

static void open_file(struct job *j)
{
	if (j->rank == 0) {
		j->fd = open(j->path, O_WRONLY | (j->from ? 0 : O_CREAT | O_TRUNC), 0644);
		if (j->fd < 0)
			die("open", j->path);
		if (j->from == 0)
			write_header(j);
		else if (ftruncate(j->fd, (off_t)j->end) < 0)
			die("ftruncate", j->path);
	}
	MPI_Barrier(MPI_COMM_WORLD);
	if (j->rank != 0)
		j->fd = open(j->path, O_WRONLY);
	if (j->fd < 0)
		die("open", j->path);
	MPI_Barrier(MPI_COMM_WORLD);
}

static void write_file(struct job *j)
{
	if (j->from == 0)
		write_variables(j, false, 0);
	for (uint64_t r = j->from; r < j->records; r++) {
		write_variables(j, true, r);
		MPI_Barrier(MPI_COMM_WORLD); /* only whole records are counted */
		if (j->rank == 0)
			write_num_records(j, r + 1);
	}
	if (j->sync && fsync(j->fd) < 0)
		die("fsync", j->path);
	if (close(j->fd) < 0)
		die("close", j->path);
	MPI_Barrier(MPI_COMM_WORLD);
}

static void report(const struct job *j, double seconds)
{
	uint64_t mine[2] = { j->bytes, j->requests }, sum[2] = { 0, 0 };

	MPI_Reduce(mine, sum, 2, MPI_UINT64_T, MPI_SUM, 0, MPI_COMM_WORLD);
	if (j->rank == 0)
		printf("{\"case\": \"%s\", \"processes\": %d, \"variables\": %d, \"records\": %llu, \"file_bytes\": %llu, "
		       "\"bytes\": %llu, \"requests\": %llu, \"seconds\": %.6f}\n",
			j->load->name, j->ranks, j->num_vars, (unsigned long long)j->records,
			(unsigned long long)j->end, (unsigned long long)sum[0], (unsigned long long)sum[1], seconds);
}

/* ---- the command line */

static void __attribute__((noreturn)) usage(void)
{
	fprintf(stderr,
		"usage: e3sm [--case=F|G|I] [--size=tiny|small|full] [--records=N] [--from=N] [--fsync] [--halfway] PATH\n");
	MPI_Abort(MPI_COMM_WORLD, 2);
	exit(2);
}

static const struct workload *workload_named(const char *name)
{
	for (size_t i = 0; i < sizeof(workloads) / sizeof(workloads[0]); i++)
		if (strcmp(workloads[i].name, name) == 0)
			return &workloads[i];
	usage();
}

static int size_named(const char *name)
{
	static const char *const names[] = { "tiny", "small", "full" };

	for (int i = 0; i < 3; i++)
		if (strcmp(names[i], name) == 0)
			return i;
	usage();
}

static void parse(struct job *j, int argc, char **argv)
{
	static const struct option options[] = { { "case", required_argument, NULL, 'c' },
		{ "size", required_argument, NULL, 's' }, { "records", required_argument, NULL, 'r' },
		{ "from", required_argument, NULL, 'a' }, { "fsync", no_argument, NULL, 'f' },
		{ "halfway", no_argument, NULL, 'h' }, { 0 } };
	int c;

	j->load = &workloads[0];
	j->size = 1;
	while ((c = getopt_long(argc, argv, "", options, NULL)) != -1)
		switch (c) {
		case 'c': j->load = workload_named(optarg); break;
		case 's': j->size = size_named(optarg); break;
		case 'r': j->records = bench_number(optarg, 1); break;
		case 'a': j->from = bench_number(optarg, 1); break;
		case 'f': j->sync = true; break;
		case 'h': j->halfway = true; break;
		default: usage();
		}
	if (argc - optind != 1)
		usage();
	j->path = argv[optind];
	if (!j->records)
		j->records = j->load->records[j->size];
}

static void job_free(struct job *j)
{
	for (int i = 0; i < MAPS_MAX; i++)
		free(j->maps[i].runs);
	free(j->vars);
	free(j->buf);
}

int main(int argc, char **argv)
{
	struct job j = { .fd = -1 };
	double started;

	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &j.rank);
	MPI_Comm_size(MPI_COMM_WORLD, &j.ranks);
	parse(&j, argc, argv);
	lay_out(&j);
	place_variables(&j);
	open_file(&j);
	started = bench_now();
	write_file(&j);
	report(&j, bench_now() - started);
	job_free(&j);
	MPI_Finalize();
	return 0;
}
