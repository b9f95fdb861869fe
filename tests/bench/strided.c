/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * strided PATTERN BYTES RECORD FILE...: writing as parallel applications do it, one process for each FILE, which may be names of
 * one file, also in several mounts. Record k of process p of P with K records each lies, by PATTERN, at
 *   strided    (k * P + p) * RECORD
 *   segmented  (p * K + k) * RECORD
 *   own        k * RECORD
 * Timed from when all have the file open until the last one has synced and closed it.
 */
#include <fcntl.h>
#include <stdbool.h>
#include <sys/wait.h>

#include "tests/bench/bench.h"

struct pattern {
	char **paths;
	uint64_t processes;
	uint64_t records; /* of each process */
	size_t record_bytes;
	uint64_t step, part;    /* in records: from one to the next of a process, from one process to the next */
	int ready_fd, start_fd; /* ends of two pipes: a byte says "open", end of file says "go" */
};

static void write_records(const struct pattern *p, uint64_t rank)
{
	const char *path = p->paths[rank];
	char *buf = malloc(p->record_bytes), byte = 0;
	int fd = open(path, O_WRONLY | O_CREAT, 0644);

	if (!buf)
		bench_die("malloc", path);
	if (fd < 0)
		bench_die("open", path);
	memset(buf, (int)('a' + rank % 26), p->record_bytes);
	if (write(p->ready_fd, &byte, 1) != 1 || read(p->start_fd, &byte, 1) != 0)
		bench_die("pipe", path);
	for (uint64_t k = 0; k < p->records; k++)
		bench_pwrite(fd, buf, p->record_bytes, (k * p->step + rank * p->part) * p->record_bytes, path);
	if (fsync(fd) < 0)
		bench_die("fsync", path);
	if (close(fd) < 0)
		bench_die("close", path);
	free(buf);
}

static void start_writers(struct pattern *p, const int ready[2], const int start[2])
{
	for (uint64_t rank = 0; rank < p->processes; rank++) {
		pid_t pid = fork();

		if (pid < 0)
			bench_die("fork", p->paths[rank]);
		if (pid == 0) {
			close(start[1]);
			close(ready[0]);
			write_records(p, rank);
			_exit(0);
		}
	}
}

static void await_writers(uint64_t processes)
{
	int status;

	while (processes--)
		if (wait(&status) < 0 || status != 0)
			exit(1); /* the writer has said why */
}

static void set_pattern(struct pattern *p, const char *name)
{
	bool strided = strcmp(name, "strided") == 0, segmented = strcmp(name, "segmented") == 0;

	if (!strided && !segmented && strcmp(name, "own") != 0) {
		fprintf(stderr, "'%s' is no pattern: strided, segmented, own\n", name);
		exit(2);
	}
	p->step = strided ? p->processes : 1;
	p->part = strided ? 1 : segmented ? p->records : 0;
}

int main(int argc, char **argv)
{
	int ready[2], start[2];
	struct pattern p;
	double begin;
	char byte;

	bench_usage(argc < 5 ? argc : 5, 4, "strided PATTERN BYTES RECORD FILE...");
	p.paths = argv + 4;
	p.processes = (uint64_t)argc - 4;
	p.record_bytes = (size_t)bench_number(argv[3], 1);
	p.records = bench_number(argv[2], 1) / p.processes / p.record_bytes;
	if (p.records == 0)
		p.records = 1;
	set_pattern(&p, argv[1]);
	if (pipe(ready) < 0 || pipe(start) < 0)
		bench_die("pipe", p.paths[0]);
	p.ready_fd = ready[1];
	p.start_fd = start[0];
	start_writers(&p, ready, start);
	close(ready[1]);
	for (uint64_t i = 0; i < p.processes; i++)
		if (read(ready[0], &byte, 1) != 1)
			exit(1); /* the writer has said why */
	begin = bench_now();
	close(start[1]);
	await_writers(p.processes);
	printf("{\"seconds\": %.6f, \"bytes\": %llu}\n", bench_now() - begin,
		(unsigned long long)(p.records * p.processes * p.record_bytes));
	return 0;
}
