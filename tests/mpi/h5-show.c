/* SPDX-License-Identifier: GPL-3.0-or-later */
/* "h5-facts show FILE": what HDF5 says of a file's datasets, one line each with its chunks behind it. */
#include "tests/mpi/h5-show.h"

#include <string.h>
#include <unistd.h>

#define CHUNKS_LISTED 3000u

static const char *class_name(hid_t type)
{
	static const char *const names[] = { "integer", "float", "time", "string", "bits", "opaque", "compound",
		"reference", "enum", "varying", "array" };
	H5T_class_t class = H5Tget_class(type);

	if (class == H5T_STRING && H5Tis_variable_str(type) > 0)
		return "varying";
	return class >= 0 && class <= H5T_ARRAY ? names[class] : "?";
}

static void show_dims(const char *word, int rank, const hsize_t *dims)
{
	printf(" %s=", word);
	for (int i = 0; i < rank; i++) {
		if (dims[i] == H5S_UNLIMITED || dims[i] == UINT32_MAX ||
			dims[i] == UINT16_MAX) /* in lengths of four and two bytes it is not seen */
			printf("%s*", i ? "," : "");
		else
			printf("%s%llu", i ? "," : "", (unsigned long long)dims[i]);
	}
}

struct chunk {
	unsigned long long off, len, index;
};

static int by_off(const void *a, const void *b)
{
	const struct chunk *x = a, *y = b;

	return (x->off > y->off) - (x->off < y->off);
}

static FILE *open_raw(hid_t set)
{
	char path[4096];
	FILE *in;

	DO((int)H5Fget_name(set, path, sizeof(path)));
	in = fopen(path, "rb");
	demand(in != NULL, path);
	return in;
}

/* Bytes of the file itself, whatever HDF5 says; to be freed. */
static unsigned char *file_bytes(FILE *in, const struct chunk *c)
{
	unsigned char *bytes = malloc(c->len);

	demand(bytes && fseek(in, (long)c->off, SEEK_SET) == 0 && fread(bytes, 1, c->len, in) == c->len, "reading");
	return bytes;
}

struct listing {
	struct chunk *list;
	hsize_t num, next;
	unsigned char **bytes; /* of each chunk, as in the file */
};

/*
 * H5Dget_chunk_info() is wrong about which chunk it is where the dimension that grows is not the first (seen in 1.10.8): so
 * it is asked for places only, and the chunk at some coordinates, which H5Dread_chunk() gives, is looked for among them. All
 * chunks of our files differ.
 */
static void place_chunk(hid_t set, struct listing *l, const hsize_t *at, unsigned long long index)
{
	unsigned char *raw;
	uint32_t mask;
	hsize_t len = 0;

	if (H5Dget_chunk_storage_size(set, at, &len) < 0 || len == 0)
		return;
	raw = malloc(len);
	demand(raw != NULL, "memory");
	DO(H5Dread_chunk(set, H5P_DEFAULT, at, &mask, raw));
	for (hsize_t i = 0; i < l->num; i++) {
		struct chunk *c = &l->list[(l->next + i) % l->num];

		if (c->len != len || memcmp(l->bytes[c - l->list], raw, len) != 0)
			continue;
		c->index = index;
		l->next = (hsize_t)(c - l->list) + 1;
		break;
	}
	free(raw);
}

static void place_chunks(hid_t set, struct listing *l, int rank, const hsize_t *dims, const hsize_t *shape)
{
	hsize_t at[H5S_MAX_RANK] = { 0 };
	unsigned long long index = 0;
	int d;

	H5Eset_auto2(H5E_DEFAULT, NULL, NULL); /* chunks that are not there are no failure */
	do {
		place_chunk(set, l, at, index++);
		for (d = rank - 1; d >= 0; d--) {
			at[d] += shape[d];
			if (at[d] < dims[d])
				break;
			at[d] = 0;
		}
	} while (d >= 0);
}

static void list_chunks(hid_t set, struct listing *l, hsize_t block)
{
	hid_t space = GET(H5Dget_space(set));
	FILE *in;

	for (hsize_t i = 0; i < l->num; i++) {
		hsize_t at[H5S_MAX_RANK], len;
		unsigned int mask;
		haddr_t off;

		DO(H5Dget_chunk_info(set, space, i, at, &mask, &off, &len));
		l->list[i] = (struct chunk){ off + block, len, 0 }; /* it leaves a user block out */
	}
	H5Sclose(space);
	qsort(l->list, l->num, sizeof(*l->list), by_off);
	in = open_raw(set);
	for (hsize_t i = 0; i < l->num; i++)
		l->bytes[i] = file_bytes(in, &l->list[i]);
	fclose(in);
}

static void show_chunks(hid_t set, hid_t plist, int rank, const hsize_t *dims, hsize_t block)
{
	hid_t space = GET(H5Dget_space(set));
	struct listing l = { 0 };
	hsize_t shape[H5S_MAX_RANK];

	DO(H5Pget_chunk(plist, rank, shape));
	show_dims("chunk", rank, shape);
	DO(H5Dget_num_chunks(set, space, &l.num));
	H5Sclose(space);
	printf(" chunks=%llu\n", (unsigned long long)l.num);
	if (l.num == 0 || l.num > CHUNKS_LISTED)
		return;
	l.list = calloc(l.num, sizeof(*l.list));
	l.bytes = calloc(l.num, sizeof(*l.bytes));
	demand(l.list && l.bytes, "memory");
	list_chunks(set, &l, block);
	place_chunks(set, &l, rank, dims, shape);
	for (hsize_t i = 0; i < l.num; i++) {
		printf("\t%llu %llu #%llu\n", l.list[i].off, l.list[i].len, l.list[i].index);
		free(l.bytes[i]);
	}
	free(l.bytes);
	free(l.list);
}

static hsize_t user_block(hid_t set)
{
	hid_t file = GET(H5Iget_file_id(set)), how = GET(H5Fget_create_plist(file));
	hsize_t bytes = 0;

	DO(H5Pget_userblock(how, &bytes));
	H5Pclose(how);
	H5Fclose(file);
	return bytes;
}

/* Of which other files, and what there; of external ones as many bytes as there are elements for. */
static void show_sources(hid_t set, hid_t plist, H5D_layout_t layout)
{
	hid_t type = GET(H5Dget_type(set)), space = GET(H5Dget_space(set));
	hsize_t left = H5Tget_size(type) * (hsize_t)H5Sget_simple_extent_npoints(space), len;
	char file[4096] = "", name[4096] = "";
	size_t num = 0;
	off_t off;

	if (layout == H5D_VIRTUAL)
		DO(H5Pget_virtual_count(plist, &num));
	for (size_t i = 0; i < num; i++) {
		DO((int)H5Pget_virtual_filename(plist, i, file, sizeof(file)));
		DO((int)H5Pget_virtual_dsetname(plist, i, name, sizeof(name)));
		printf("\t%s in %s\n", name, file);
	}
	for (int i = 0; i < H5Pget_external_count(plist); i++) {
		DO(H5Pget_external(plist, (unsigned int)i, sizeof(file), file, &off, &len));
		len = len < left ? len : left;
		left -= len;
		printf("\t%s %lld %llu\n", file, (long long)off, (unsigned long long)len);
	}
	H5Tclose(type);
	H5Sclose(space);
}

static void show_dataset(hid_t set, const char *path)
{
	hid_t type = GET(H5Dget_type(set)), space = GET(H5Dget_space(set)), plist = GET(H5Dget_create_plist(set));
	hsize_t dims[H5S_MAX_RANK], most[H5S_MAX_RANK];
	int rank = H5Sget_simple_extent_dims(space, dims, most);
	H5D_layout_t layout = H5Pget_layout(plist);
	haddr_t off = H5Dget_offset(set);

	/* The size of what is elsewhere is one of memory. */
	printf("%s %s size=%zu%s", path, class_name(type),
		strcmp(class_name(type), "varying") == 0 ? 0 : H5Tget_size(type),
		H5Tget_order(type) == H5T_ORDER_BE ? " big" : "");
	show_dims("dims", rank, dims);
	show_dims("most", rank, most);
	printf(" filters=%d", layout == H5D_CHUNKED ? H5Pget_nfilters(plist) : 0);
	if (layout == H5D_CHUNKED) {
		show_chunks(set, plist, rank, dims, user_block(set));
	} else if (layout == H5D_COMPACT) {
		printf(" compact\n");
	} else if (layout != H5D_CONTIGUOUS || H5Pget_external_count(plist) > 0) {
		printf(" %s\n", layout == H5D_VIRTUAL ? "virtual" : "external");
		show_sources(set, plist, layout);
	} else if (off == HADDR_UNDEF || off == user_block(set) - 1) { /* which is added to all */
		printf(" nowhere\n");
	} else {
		printf(" at=%llu bytes=%llu\n", (unsigned long long)off, (unsigned long long)H5Dget_storage_size(set));
	}
	H5Tclose(type);
	H5Sclose(space);
	H5Pclose(plist);
}

static herr_t show_object(hid_t root, const char *name, const H5O_info_t *info, void *arg)
{
	hid_t set;

	(void)arg;
	if (info->type != H5O_TYPE_DATASET)
		return 0;
	set = GET(H5Dopen2(root, name, H5P_DEFAULT));
	show_dataset(set, name);
	H5Dclose(set);
	return 0;
}

void show(const char *path)
{
	hid_t file;

	H5E_BEGIN_TRY
	{
		file = H5Fopen(path, H5F_ACC_RDONLY, H5P_DEFAULT);
	}
	H5E_END_TRY
	if (file < 0) /* a writer has it open */
		file = GET(H5Fopen(path, H5F_ACC_RDONLY | H5F_ACC_SWMR_READ, H5P_DEFAULT));
	DO(H5Ovisit1(file, H5_INDEX_NAME, H5_ITER_INC, show_object, NULL));
	H5Fclose(file);
}
