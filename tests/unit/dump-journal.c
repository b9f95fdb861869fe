/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * dump-journal STORE: prints the journal's records as tests/golden/read_log.py does, for comparison.
 * dump-journal --checkpoint STORE: the newest checkpoint. dump-journal --sample STORE: makes journal files and a checkpoint
 * with records of all types in them.
 */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "format/journal/journal.h"
#include "tests/lib/record_samples.h"

static int print_one(const struct record *rec, void *arg)
{
	record_print_json(arg, rec);
	return 0;
}

static int dump(struct io *io)
{
	struct cistern_error err = { 0 };
	struct journal_end end;
	int r = journal_replay(io, 0, print_one, stdout, &end, &err);

	printf("{\"last_seq\":%llu,\"whole\":%s,\"damaged\":%s}\n", (unsigned long long)end.last_seq,
		r || end.cut_bytes ? "false" : "true", r ? "true" : "false");
	if (r)
		fprintf(stderr, "%s\n", err.text);
	return r ? CISTERN_EXIT_DAMAGED : 0;
}

static int dump_checkpoint(struct io *io)
{
	struct cistern_error err = { 0 };
	uint64_t seq;
	int r = journal_checkpoint_load(io, print_one, stdout, &seq, &err);

	if (r)
		fprintf(stderr, "%s\n", err.text);
	else
		printf("{\"seq\":%llu}\n", (unsigned long long)seq);
	return r ? CISTERN_EXIT_FAILED : 0;
}

/* Several files, sync marks between the records, and long runs of writes. */
static int append_samples(struct journal *j)
{
	const struct record *samples;
	size_t num = record_samples(&samples);
	uint32_t number;
	uint64_t seq;
	int r = 0;

	for (size_t i = 0; i < 20 * num && !r; i++) {
		struct record rec = samples[i % num];

		r = journal_append(j, &rec);
		if (!r && i % 50 == 10)
			r = journal_sync(j, &seq);
		if (!r && i == 5 * num)
			r = journal_rotate(j, &number);
	}
	for (uint64_t i = 0; i < 1000 && !r; i++) {
		struct record rec = { .type = RECORD_WRITE,
			.time_ns = (int64_t)(i * i),
			.ino = 3,
			.writer = i < 300 ? 0 : 1000 + (uint32_t)(i / 7 % 3),
			.off = i % 7 * 1000,
			.len = 1 + i,
			.segment = 8,
			.segment_off = 4096 + i * (i + 1) / 2,
			.payload_crc = (uint32_t)(i * 2654435761u) };

		r = journal_append(j, &rec);
		if (!r && i % 300 == 100)
			r = journal_sync(j, &seq);
	}
	return r;
}

static int add_samples(struct io *io)
{
	struct journal_checkpoint *c;
	char key[16];
	int r = journal_checkpoint_begin(io, 3, &c);

	if (r)
		return r;
	for (int i = 0; i < 100 && !r; i++) {
		snprintf(key, sizeof(key), "key%d", i);
		r = journal_checkpoint_add(c, key, strlen(key), "a value of some length", (size_t)(i % 20));
	}
	if (r)
		journal_checkpoint_abort(c);
	return r ? r : journal_checkpoint_commit(c, 4711);
}

static int sample(struct io *io)
{
	struct cistern_error err = { 0 };
	struct journal *j;
	int r = journal_create(io, 65536, 1, &j, &err);

	if (!r) {
		r = append_samples(j);
		journal_destroy(j);
	}
	if (!r)
		r = add_samples(io);
	if (r)
		fprintf(stderr, "%s: %s\n", strerror(-r), err.text);
	return r ? CISTERN_EXIT_FAILED : 0;
}

int main(int argc, char **argv)
{
	const char *what = argc == 3 ? argv[1] : "";
	int dirfd = argc == 2 || argc == 3 ? open(argv[argc - 1], O_RDONLY | O_DIRECTORY) : -1;
	struct io *io = NULL;
	int status;

	if (dirfd < 0 || io_posix_create(dirfd, &io)) {
		fprintf(stderr, "usage: dump-journal [--checkpoint|--sample] STORE\n");
		return CISTERN_EXIT_USAGE;
	}
	if (strcmp(what, "--sample") == 0)
		status = sample(io);
	else
		status = strcmp(what, "--checkpoint") == 0 ? dump_checkpoint(io) : dump(io);
	io_destroy(io);
	close(dirfd);
	return status;
}
