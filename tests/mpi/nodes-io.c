/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * nodes-io PATTERN PATH [HINT=VALUE...]: ranks write one file together through MPI-IO, each through the path that it is given
 * (the same file by another mount), and read back what the others wrote: after sync, barrier, sync, and once more after the
 * file has been closed and opened again. Two rounds, the second one over the first. All bytes follow from their offset, so
 * that another run gives the same file; PATTERN "atomic" and "shared" leave the order to chance, and check what may vary.
 *
 * Exit status: 0 all is right; 1 not; 3 the MPI refuses what PATTERN wants. Built with any MPI.
 */
#include <mpi.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ROUNDS 2

enum how { WRITE_AT, WRITE_ALL, WRITE_VIEW, WRITE_ORDERED, WRITE_SHARED, WRITE_ATOMIC };

struct pattern {
	const char *name;
	enum how how;
	int bytes;       /* of a record */
	int records;     /* of each rank */
	bool contiguous; /* a rank's records follow each other; else they alternate with the others' */
};

static const struct pattern patterns[] = {
	{ "segmented", WRITE_AT, 47008, 40, true },
	{ "strided", WRITE_AT, 47008, 40, false },
	{ "collective", WRITE_ALL, 4100, 300, false },
	{ "sieved", WRITE_VIEW, 100, 3000, false },
	{ "ordered", WRITE_ORDERED, 5000, 30, false },
	{ "shared", WRITE_SHARED, 5000, 30, false },
	{ "atomic", WRITE_ATOMIC, 100000, 1, false },
};

struct run {
	const struct pattern *p;
	const char *path;
	MPI_Info info;
	MPI_File fh;
	int rank, num, round;
	unsigned char *data, *wanted; /* owned; all records of a rank */
};

static void refuse(const struct run *r, const char *what, int code)
{
	char text[MPI_MAX_ERROR_STRING] = "";
	int len;

	MPI_Error_string(code, text, &len);
	fprintf(stderr, "nodes-io: rank %d: %s: %s\n", r->rank, what, text);
	MPI_Abort(MPI_COMM_WORLD, 3);
}

static void wrong(const struct run *r, const char *when, int owner, long at)
{
	fprintf(stderr, "nodes-io: rank %d: %s, round %d: byte %ld of rank %d's is wrong\n", r->rank, when, r->round,
		at, owner);
	MPI_Abort(MPI_COMM_WORLD, 1);
}

#define MUST(r, call)                              \
	do {                                       \
		int code_ = (call);                \
		if (code_ != MPI_SUCCESS)          \
			refuse((r), #call, code_); \
	} while (0)

static unsigned char byte_at(long off, int round)
{
	unsigned long x = (unsigned long)off * 2654435761u + (unsigned long)round * 40503u;

	return (unsigned char)(x >> 16 ^ x >> 3);
}

static long stride(const struct run *r)
{
	return r->p->contiguous ? r->p->bytes : (long)r->num * r->p->bytes;
}

static long first(const struct run *r, int owner)
{
	return (long)owner * (r->p->contiguous ? (long)r->p->bytes * r->p->records : r->p->bytes);
}

static int all_bytes(const struct run *r)
{
	return r->p->bytes * r->p->records;
}

static void fill(const struct run *r, int owner, unsigned char *to)
{
	for (int i = 0; i < r->p->records; i++)
		for (int j = 0; j < r->p->bytes; j++)
			*to++ = byte_at(first(r, owner) + i * stride(r) + j, r->round);
}

static void see(struct run *r, int owner)
{
	MPI_Datatype record, records;

	MUST(r, MPI_Type_contiguous(r->p->bytes, MPI_BYTE, &record));
	MUST(r, MPI_Type_create_resized(record, 0, stride(r), &records));
	MUST(r, MPI_Type_commit(&records));
	MUST(r, MPI_File_set_view(r->fh, first(r, owner), MPI_BYTE, records, "native", r->info));
	MPI_Type_free(&record);
	MPI_Type_free(&records);
}

static void see_all(struct run *r)
{
	MUST(r, MPI_File_set_view(r->fh, 0, MPI_BYTE, MPI_BYTE, "native", r->info));
}

static void write_mine(struct run *r)
{
	int bytes = r->p->bytes;

	switch (r->p->how) {
	case WRITE_AT:
		for (int i = 0; i < r->p->records; i++)
			MUST(r, MPI_File_write_at(r->fh, first(r, r->rank) + i * stride(r), r->data + (long)i * bytes,
					bytes, MPI_BYTE, MPI_STATUS_IGNORE));
		return;
	case WRITE_ALL:
	case WRITE_VIEW:
		see(r, r->rank);
		if (r->p->how == WRITE_ALL)
			MUST(r, MPI_File_write_all(r->fh, r->data, all_bytes(r), MPI_BYTE, MPI_STATUS_IGNORE));
		else
			MUST(r, MPI_File_write(r->fh, r->data, all_bytes(r), MPI_BYTE, MPI_STATUS_IGNORE));
		see_all(r);
		return;
	default: /* ordered: one record of each rank after the other */
		MUST(r, MPI_File_seek_shared(r->fh, 0, MPI_SEEK_SET));
		for (int i = 0; i < r->p->records; i++)
			MUST(r, MPI_File_write_ordered(
					r->fh, r->data + (long)i * bytes, bytes, MPI_BYTE, MPI_STATUS_IGNORE));
	}
}

/* What the next rank wrote, and what all wrote. */
static void read_back(struct run *r, const char *when)
{
	for (int k = 1; k <= r->num; k++) {
		int owner = (r->rank + k) % r->num;

		fill(r, owner, r->wanted);
		memset(r->data, 0, (size_t)all_bytes(r));
		for (int i = 0; i < r->p->records; i++)
			MUST(r, MPI_File_read_at(r->fh, first(r, owner) + i * stride(r),
					r->data + (long)i * r->p->bytes, r->p->bytes, MPI_BYTE, MPI_STATUS_IGNORE));
		for (int i = 0; i < all_bytes(r); i++)
			if (r->data[i] != r->wanted[i])
				wrong(r, when, owner, first(r, owner) + i / r->p->bytes * stride(r) + i % r->p->bytes);
	}
}

static void sync_all(struct run *r)
{
	MUST(r, MPI_File_sync(r->fh));
	MPI_Barrier(MPI_COMM_WORLD);
	MUST(r, MPI_File_sync(r->fh));
}

static void open_file(struct run *r, int mode)
{
	MUST(r, MPI_File_open(MPI_COMM_WORLD, r->path, mode, r->info, &r->fh));
}

static void regular(struct run *r)
{
	for (r->round = 0; r->round < ROUNDS; r->round++) {
		open_file(r, MPI_MODE_CREATE | MPI_MODE_RDWR);
		fill(r, r->rank, r->data);
		write_mine(r);
		sync_all(r);
		read_back(r, "after sync");
		MUST(r, MPI_File_close(&r->fh));
		MPI_Barrier(MPI_COMM_WORLD);
		open_file(r, MPI_MODE_RDONLY);
		read_back(r, "opened again");
		MUST(r, MPI_File_close(&r->fh));
	}
}

/* The records of all ranks, each one once, in any order. */
static void shared(struct run *r)
{
	int bytes = r->p->bytes, total = r->p->records * r->num;
	bool *seen = calloc((size_t)total, sizeof(*seen));

	open_file(r, MPI_MODE_CREATE | MPI_MODE_RDWR);
	for (int i = 0; i < r->p->records; i++) {
		memset(r->data, 1 + r->rank, (size_t)bytes);
		memcpy(r->data, &i, sizeof(i));
		MUST(r, MPI_File_write_shared(r->fh, r->data, bytes, MPI_BYTE, MPI_STATUS_IGNORE));
	}
	sync_all(r);
	for (int k = 0; k < total; k++) {
		int i, owner;

		MUST(r, MPI_File_read_at(r->fh, (MPI_Offset)k * bytes, r->data, bytes, MPI_BYTE, MPI_STATUS_IGNORE));
		memcpy(&i, r->data, sizeof(i));
		owner = r->data[bytes - 1] - 1;
		if (owner < 0 || owner >= r->num || i < 0 || i >= r->p->records || seen[owner * r->p->records + i])
			wrong(r, "a record lost or twice", owner, (long)k * bytes);
		seen[owner * r->p->records + i] = true;
		for (int j = sizeof(i); j < bytes; j++)
			if (r->data[j] != 1 + owner)
				wrong(r, "records mixed", owner, (long)k * bytes + j);
	}
	free(seen);
	MUST(r, MPI_File_close(&r->fh));
}

/* All write the same bytes: a reader sees one writer's, never parts of two, and no step back. */
static void atomic(struct run *r)
{
	open_file(r, MPI_MODE_CREATE | MPI_MODE_RDWR);
	MUST(r, MPI_File_set_atomicity(r->fh, 1));
	for (int round = 0; round < 20; round++) {
		memset(r->data, 1 + r->rank * 20 + round, (size_t)r->p->bytes);
		MUST(r, MPI_File_write_at(r->fh, 0, r->data, r->p->bytes, MPI_BYTE, MPI_STATUS_IGNORE));
		MUST(r, MPI_File_read_at(r->fh, 0, r->data, r->p->bytes, MPI_BYTE, MPI_STATUS_IGNORE));
		for (int i = 1; i < r->p->bytes; i++)
			if (r->data[i] != r->data[0])
				wrong(r, "writes mixed", r->rank, i);
		if (r->data[0] == 0 || ((r->data[0] - 1) / 20 == r->rank && (r->data[0] - 1) % 20 != round))
			wrong(r, "a write of before", r->rank, 0);
	}
	MPI_Barrier(MPI_COMM_WORLD);
	MUST(r, MPI_File_read_at(r->fh, 0, r->data, 1, MPI_BYTE, MPI_STATUS_IGNORE));
	if ((r->data[0] - 1) % 20 != 19)
		wrong(r, "not a last write", r->rank, 0);
	MUST(r, MPI_File_close(&r->fh));
}

static void hint(MPI_Info info, char *text)
{
	char *value = strchr(text, '=');

	if (value) {
		*value++ = '\0';
		MPI_Info_set(info, text, value);
	}
}

int main(int argc, char **argv)
{
	struct run r = { 0 };

	for (size_t i = 0; argc > 2 && i < sizeof(patterns) / sizeof(patterns[0]); i++)
		if (strcmp(patterns[i].name, argv[1]) == 0)
			r.p = &patterns[i];
	if (!r.p) {
		fprintf(stderr, "usage: nodes-io PATTERN PATH [HINT=VALUE...]\n");
		return 2;
	}
	MPI_Init(NULL, NULL);
	MPI_Comm_rank(MPI_COMM_WORLD, &r.rank);
	MPI_Comm_size(MPI_COMM_WORLD, &r.num);
	MPI_Info_create(&r.info);
	for (int i = 3; i < argc; i++)
		hint(r.info, argv[i]);
	r.path = argv[2];
	r.data = malloc((size_t)all_bytes(&r));
	r.wanted = malloc((size_t)all_bytes(&r));
	if (!r.data || !r.wanted)
		MPI_Abort(MPI_COMM_WORLD, 1);
	if (r.p->how == WRITE_SHARED)
		shared(&r);
	else if (r.p->how == WRITE_ATOMIC)
		atomic(&r);
	else
		regular(&r);
	free(r.data);
	free(r.wanted);
	MPI_Info_free(&r.info);
	MPI_Finalize();
	return 0;
}
