/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * What our walk says of HDF5 files, for comparison: "show FILE" in the form in which tests/mpi/h5-facts prints what HDF5 itself
 * says; "dims FILE" dimensions of variables as netCDF-4 has them; "problems FILE" what could not be walked; "tools FILE" what
 * HDF5's tools count, and where objects are; "metadata FILE" the ranges of the format's own bytes; "time FILE" what a walk costs,
 * in microseconds of the processor.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "format/codec/hdf5.h"

#define CHUNKS_LISTED 3000u

static ssize_t read_bytes(void *buf, size_t len, uint64_t off, void *arg)
{
	ssize_t got = pread(*(int *)arg, buf, len, (off_t)off);

	return got < 0 ? -errno : got;
}

static int walk(const char *path, struct hdf5 *ret)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC), r;
	struct cistern_error err = { 0 };
	struct stat st;

	if (fd < 0 || fstat(fd, &st) < 0) {
		perror(path);
		return 1;
	}
	r = hdf5_walk(read_bytes, &fd, (uint64_t)st.st_size, ret, &err);
	close(fd);
	if (r < 0)
		printf("%s\n", err.text);
	return r < 0;
}

/* As a walk by name comes along: members of a group behind it and before what sorts behind it. */
static int by_path(const void *a, const void *b)
{
	const unsigned char *x = (const unsigned char *)((const struct hdf5_object *)a)->path;
	const unsigned char *y = (const unsigned char *)((const struct hdf5_object *)b)->path;

	while (*x && *x == *y)
		x++, y++;
	return (*x == '/' ? 1 : *x) - (*y == '/' ? 1 : *y);
}

static void show_dims(const char *word, uint32_t rank, const uint64_t *dims)
{
	printf(" %s=", word);
	for (uint32_t i = 0; i < rank; i++) {
		if (dims[i] == HDF5_NOWHERE)
			printf("%s*", i ? "," : "");
		else
			printf("%s%" PRIu64, i ? "," : "", dims[i]);
	}
}

static void show_sources(const struct hdf5_object *o)
{
	for (size_t i = 0; i < o->num_sources; i++) {
		const struct hdf5_source *s = &o->sources[i];

		if (s->set)
			printf("\t%s in %s\n", s->set, s->file);
		else
			printf("\t%s %" PRIu64 " %" PRIu64 "\n", s->file, s->off, s->bytes);
	}
}

static void show_storage(const struct hdf5_object *o)
{
	if (o->storage == HDF5_CHUNKED) {
		show_dims("chunk", o->rank, o->chunk);
		printf(" chunks=%zu\n", o->num_pieces);
		for (size_t i = 0; i < o->num_pieces && o->num_pieces <= CHUNKS_LISTED; i++)
			printf("\t%" PRIu64 " %" PRIu64 " #%" PRIu64 "\n", o->pieces[i].off, o->pieces[i].len,
				o->pieces[i].index);
	} else if (o->storage != HDF5_CONTIGUOUS) {
		printf(" %s\n", o->storage == HDF5_COMPACT    ? "compact"
				: o->storage == HDF5_VIRTUAL  ? "virtual"
				: o->storage == HDF5_EXTERNAL ? "external"
							      : "unknown");
		show_sources(o);
	} else if (o->data_off == HDF5_NOWHERE) {
		printf(" nowhere\n");
	} else {
		printf(" at=%" PRIu64 " bytes=%" PRIu64 "\n", o->data_off, o->data_bytes);
	}
}

static void show(const struct hdf5 *h)
{
	static const char *const classes[] = { "integer", "float", "time", "string", "bits", "opaque", "compound",
		"reference", "enum", "varying", "array" };

	for (size_t i = 0; i < h->num_objects; i++) {
		const struct hdf5_object *o = &h->objects[i];

		if (o->kind != HDF5_DATASET)
			continue;
		printf("%s %s size=%" PRIu32 "%s", o->path, classes[o->type.class],
			o->type.class == HDF5_VARYING ? 0 : o->type.size, o->type.big_endian ? " big" : "");
		show_dims("dims", o->rank, o->dims);
		show_dims("most", o->rank, o->max_dims);
		printf(" filters=%" PRIu32, o->num_filters);
		show_storage(o);
	}
}

/* name(dimension=length, ...), a "*" behind what is unlimited; before sorting, which moves objects. */
static void show_netcdf(const struct hdf5 *h)
{
	char name[HDF5_PATH_MAX];

	for (size_t i = 0; i < h->num_objects; i++) {
		const struct hdf5_object *o = &h->objects[i];

		if (o->kind != HDF5_DATASET || (o->dim != HDF5_NO_DIM && h->dims[o->dim].only_dim))
			continue;
		hdf5_name(o, name);
		printf("%s(", name);
		for (uint32_t j = 0; j < o->rank; j++) {
			const struct hdf5_dim *d = o->axes && o->axes[j] != HDF5_NO_DIM ? &h->dims[o->axes[j]] : NULL;

			if (d)
				printf("%s%s=%" PRIu64 "%s", j ? ", " : "", h->objects[d->object].path, d->len,
					d->unlimited ? "*" : "");
			else
				printf("%s?", j ? ", " : "");
		}
		printf(")\n");
	}
}

static void show_problems(const struct hdf5 *h)
{
	static const char *const troubles[] = { "elsewhere", "not understood", "not written", "damaged" };

	for (size_t i = 0; i < h->kept_problems; i++)
		printf("%s: %s: %s\n", troubles[h->problems[i].trouble], h->problems[i].object, h->problems[i].text);
}

static void show_metadata(const struct hdf5 *h)
{
	for (size_t i = 0; i < h->num_metadata; i++)
		printf("%" PRIu64 " %" PRIu64 "\n", h->metadata[i].off, h->metadata[i].len);
}

/* ---- as tests/golden/hdf5_tools.py says it */

static uint64_t stored_bytes(const struct hdf5_object *o)
{
	uint64_t bytes = 0;

	if (o->storage == HDF5_COMPACT || (o->storage == HDF5_CONTIGUOUS && o->data_off != HDF5_NOWHERE))
		return o->data_bytes;
	for (size_t i = 0; i < o->num_pieces; i++)
		bytes += o->pieces[i].len;
	return bytes;
}

static bool has_filter(const struct hdf5_object *o, unsigned int id)
{
	for (uint32_t i = 0; i < o->num_filters; i++)
		if (o->filters[i] == id)
			return true;
	return false;
}

static int by_addr(const void *a, const void *b)
{
	const struct hdf5_object *x = a, *y = b;

	return (x->addr > y->addr) - (x->addr < y->addr);
}

static void show_tools(struct hdf5 *h)
{
	unsigned int kinds[3] = { 0 }, storages[HDF5_VIRTUAL + 1] = { 0 }, deflated = 0, shuffled = 0;
	uint64_t raw = 0, external = 0;

	for (size_t i = 0; i < h->num_objects; i++) {
		const struct hdf5_object *o = &h->objects[i];

		kinds[o->kind]++;
		storages[o->storage] += o->kind == HDF5_DATASET;
		raw += stored_bytes(o);
		deflated += has_filter(o, 1);
		shuffled += has_filter(o, 2);
		for (size_t k = 0; k < o->num_sources; k++)
			external += o->sources[k].bytes;
	}
	printf("superblock version=%" PRIu32 " addresses=%u lengths=%u block=%" PRIu64 "\n", h->superblock,
		h->addr_bytes, h->len_bytes, h->base);
	printf("groups=%u datasets=%u types=%u\n", kinds[HDF5_GROUP], kinds[HDF5_DATASET], kinds[HDF5_NAMED_TYPE]);
	printf("compact=%u contiguous=%u chunked=%u virtual=%u\n", storages[HDF5_COMPACT],
		storages[HDF5_CONTIGUOUS] + storages[HDF5_EXTERNAL], storages[HDF5_CHUNKED], storages[HDF5_VIRTUAL]);
	printf("raw=%" PRIu64 " external=%" PRIu64 "\ndeflated=%u shuffled=%u\n", raw, external, deflated, shuffled);
	qsort(h->objects, h->num_objects, sizeof(*h->objects), by_addr);
	for (size_t i = 0; i < h->num_objects; i++)
		printf("%" PRIu64 " %s\n", h->objects[i].addr - h->base, h->objects[i].path);
}

static int64_t processor_usec(void)
{
	struct timespec t;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
	return (int64_t)t.tv_sec * 1000000 + t.tv_nsec / 1000;
}

int main(int argc, char **argv)
{
	struct hdf5 h HDF5_CLEANUP = { 0 };
	int64_t began = processor_usec();

	if (argc != 3) {
		fputs("usage: hdf5-facts show|dims|problems|tools|metadata|time FILE\n", stderr);
		return 2;
	}
	if (walk(argv[2], &h))
		return 1;
	if (strcmp(argv[1], "time") == 0)
		printf("%" PRId64 "\n", processor_usec() - began);
	else if (strcmp(argv[1], "dims") == 0)
		show_netcdf(&h);
	else if (strcmp(argv[1], "problems") == 0)
		show_problems(&h);
	else if (strcmp(argv[1], "tools") == 0)
		show_tools(&h);
	else if (strcmp(argv[1], "metadata") == 0)
		show_metadata(&h);
	if (strcmp(argv[1], "show") != 0)
		return 0;
	qsort(h.objects, h.num_objects, sizeof(*h.objects), by_path);
	show(&h);
	return 0;
}
