/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Sets of subfiles. Each subfile says how many there are, and how many processes wrote all of them; our own say which one they
 * are and a number that no other set has. Names end in the subfile's number, as E3SM-IO's do. What does not fit is refused
 * before anything is written.
 */
#include "mpi-agent/convert/set.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <limits.h>

#define NUMBER_DIGITS 4
#define FIRST_MAX     100u /* a set that lacks its first hundred is none */

int blob_set_path(const char *base, uint32_t number, char *out, size_t cap)
{
	int n = snprintf(out, cap, "%s.%0*" PRIu32, base, NUMBER_DIGITS, number);

	return n < 0 || (size_t)n >= cap ? -ENAMETOOLONG : 0;
}

/* The number at the end of a path, and how long the path is without it. -ENOENT: none. */
static int split_path(const char *path, size_t *ret_base_len, uint32_t *ret_number)
{
	const char *dot = strrchr(path, '.');
	size_t digits = dot ? strspn(dot + 1, "0123456789") : 0;

	if (digits < NUMBER_DIGITS || digits > 9 || dot[1 + digits] != '\0')
		return -ENOENT;
	*ret_base_len = (size_t)(dot - path);
	*ret_number = (uint32_t)strtoul(dot + 1, NULL, 10);
	return 0;
}

/* ---- which files */

struct names {
	char **paths; /* owned, each too */
	size_t num;
};

static void free_names(struct names *n)
{
	for (size_t i = 0; i < n->num; i++)
		free(n->paths[i]);
	free(n->paths);
}

static int add_name(struct names *n, const char *path)
{
	char **grown = reallocarray(n->paths, n->num + 1, sizeof(*grown));

	if (!grown)
		return -ENOMEM;
	n->paths = grown;
	n->paths[n->num] = strdup(path);
	return n->paths[n->num] ? (n->num++, 0) : -ENOMEM;
}

/* How many subfiles the set of this one has. */
static int ask_subfiles(const char *path, uint32_t *ret, struct cistern_error *err)
{
	struct subfile f;
	int r = subfile_open(path, &f, err);

	if (r < 0)
		return r;
	*ret = f.head.num_subfiles;
	subfile_close(&f);
	return 0;
}

int blob_set_first(const char *base, char *out, size_t cap)
{
	int r = 0;

	for (uint32_t i = 0; r == 0 && i < FIRST_MAX; i++) {
		r = blob_set_path(base, i, out, cap);
		if (r == 0 && access(out, F_OK) == 0)
			return 0;
	}
	return r < 0 ? r : -ENOENT;
}

/* All of a set from what their names have in common. */
static int add_numbered(struct names *n, const char *base, struct cistern_error *err)
{
	char path[PATH_MAX];
	uint32_t num = 0;
	int r = blob_set_first(base, path, sizeof(path));

	if (r == -ENOENT)
		return cistern_error_set(err, r, "%s: there is no such subfile, and none %s.0000", base, base);
	if (r == 0)
		r = ask_subfiles(path, &num, err);
	for (uint32_t i = 0; r == 0 && i < num; i++) {
		r = blob_set_path(base, i, path, sizeof(path));
		if (r == 0 && access(path, F_OK) != 0)
			r = cistern_error_set(err, -ENOENT,
				"the set is not complete: %s is missing, of %" PRIu32 " subfiles", path, num);
		if (r == 0)
			r = add_name(n, path);
	}
	return r;
}

static int add_one_path(struct names *n, const char *path, struct cistern_error *err)
{
	char base[PATH_MAX];
	uint32_t number;
	size_t len;

	if (split_path(path, &len, &number) == 0 && len < sizeof(base) && access(path, F_OK) == 0) {
		memcpy(base, path, len);
		base[len] = '\0';
		return add_numbered(n, base, err);
	}
	if (access(path, F_OK) == 0)
		return add_name(n, path);
	return add_numbered(n, path, err);
}

/* ---- one set */

/* Numbers of files by what they say, by their names, or by the order in which they were given. */
static int number_file(struct subfile *f, uint32_t place, uint32_t num, struct cistern_error *err)
{
	uint32_t number;
	size_t len;

	if (f->head.is_exact)
		f->number = f->head.exact.subfile;
	else
		f->number = split_path(f->path, &len, &number) == 0 ? number : place;
	if (f->head.num_subfiles < num)
		return cistern_error_set(err, -EBADMSG,
			"%s is of a set of %" PRIu32 " subfiles, and %" PRIu32 " are given: name one set", f->path,
			f->head.num_subfiles, num);
	if (f->number >= f->head.num_subfiles)
		return cistern_error_set(err, -EBADMSG, "%s: subfile %" PRIu32 " of a set of %" PRIu32, f->path,
			f->number, f->head.num_subfiles);
	return 0;
}

static int by_number(const void *a, const void *b)
{
	const struct subfile *x = a, *y = b;

	return (x->number > y->number) - (x->number < y->number);
}

/* Says the name of the first that is missing, as far as names of the others show it. */
static int missing(const struct blob_set *s, struct cistern_error *err)
{
	uint32_t want = s->files[0].head.num_subfiles, i = 0, number;
	char base[PATH_MAX], path[PATH_MAX + 16];
	size_t len;

	while (i < s->num && s->files[i].number == i)
		i++;
	if (split_path(s->files[0].path, &len, &number) < 0 || len >= sizeof(base))
		return cistern_error_set(
			err, -ENOENT, "the set is not complete: subfile %" PRIu32 " is missing, of %" PRIu32, i, want);
	memcpy(base, s->files[0].path, len);
	base[len] = '\0';
	blob_set_path(base, i, path, sizeof(path));
	return cistern_error_set(err, -ENOENT,
		"the set is not complete: %s (subfile %" PRIu32 " of %" PRIu32 ") is missing", path, i, want);
}

static int check_set(struct blob_set *s, struct cistern_error *err)
{
	uint64_t blobs = 0;

	for (uint32_t i = 0; i < s->num; i++) {
		int r = number_file(&s->files[i], i, s->num, err);

		if (r < 0)
			return r;
		blobs += s->files[i].head.nblobs;
	}
	qsort(s->files, s->num, sizeof(*s->files), by_number);
	for (uint32_t i = 1; i < s->num; i++) {
		int r = 0;

		if (s->files[i].number == s->files[i - 1].number)
			r = cistern_error_set(err, -EBADMSG, "both are subfile %" PRIu32, s->files[i].number);
		else
			r = blob_head_compare(&s->files[0].head, &s->files[i].head, err);
		if (r < 0) {
			cistern_error_prefix(err, "%s and %s do not belong together",
				s->files[s->files[i].number == s->files[i - 1].number ? i - 1 : 0].path,
				s->files[i].path);
			return r;
		}
	}
	if (s->num < s->files[0].head.num_subfiles)
		return missing(s, err);
	if (blobs != s->files[0].head.global_nprocs)
		return cistern_error_set(err, -EBADMSG,
			"%s: the subfiles have %" PRIu64 " blobs together, but %" PRIu32 " processes wrote them",
			s->files[0].path, blobs, s->files[0].head.global_nprocs);
	return 0;
}

uint64_t blob_set_map_end(const struct blob_set *s, uint32_t map)
{
	uint64_t end = 0;

	for (uint32_t i = 0; i < s->num; i++)
		for (uint32_t b = 0; b < s->files[i].head.nblobs; b++) {
			const struct runs_index *x = subfile_runs(&s->files[i], map, b);

			if (x->count > 0 && x->high > end)
				end = x->high;
		}
	return end;
}

/* Where a program that writes the canonical file itself would stop: behind the last element of all. */
static int measure(struct blob_set *s)
{
	const struct blob_head *h = &s->files[0].head;
	uint64_t *ends = calloc(h->num_maps + 1, sizeof(*ends));

	if (!ends)
		return -ENOMEM;
	for (uint32_t i = 0; i < h->num_maps; i++)
		ends[i] = blob_set_map_end(s, i);
	s->file_bytes = s->canonical.header_bytes;
	for (uint32_t i = 0; i < s->canonical.num_vars; i++) {
		const struct classic_var *v = &s->canonical.vars[i];
		uint64_t elements = h->vars[i].map == BLOB_NO_MAP ? v->elements : ends[h->vars[i].map];
		uint64_t records = v->is_record ? s->canonical.num_records : 1, end;

		if (elements == 0 || records == 0)
			continue;
		end = classic_offset(&s->canonical, v, records - 1, elements);
		s->file_bytes = end > s->file_bytes ? end : s->file_bytes;
	}
	free(ends);
	return 0;
}

/* The canonical header: as it is kept, with the number of records as it is now; or put together. */
static int make_header(struct blob_set *s, struct cistern_error *err)
{
	const struct blob_exact *e = &s->files[0].head.exact;
	struct buf BUF_CLEANUP out = { 0 };
	uint32_t width = s->canonical.version == 5 ? 8 : 4;
	int r = 0;

	if (s->files[0].head.is_exact)
		buf_bytes(&out, e->header, (size_t)e->header_bytes);
	else
		r = classic_encode(&s->canonical, &out);
	if (r < 0 || !buf_ok(&out))
		return -ENOMEM;
	for (uint32_t i = 0; s->files[0].head.is_exact && !s->canonical.streaming && i < width; i++)
		out.data[CLASSIC_NUMRECS_OFF + i] = (uint8_t)(s->canonical.num_records >> (8 * (width - 1 - i)));
	s->header = out.data;
	s->header_bytes = out.len;
	out = (struct buf){ 0 };
	return 0;
}

static int place(struct blob_set *s, const struct classic_align *align, struct cistern_error *err)
{
	struct blob_head *h = &s->files[0].head;
	int r = 0;

	s->canonical = h->canonical; /* taken over; the other subfiles keep theirs */
	h->canonical = (struct classic){ 0 };
	if (!h->is_exact)
		r = classic_assign(&s->canonical, align);
	if (r < 0)
		return cistern_error_set(err, r, "the canonical file would be too large");
	r = make_header(s, err);
	if (r == 0)
		r = measure(s);
	if (r == 0 && h->is_exact)
		s->file_bytes = h->exact.file_bytes;
	return r;
}

/* A file, perhaps the canonical one, that has the name of a set. */
static void hint_at_set(const char *path, struct cistern_error *err)
{
	char first[PATH_MAX], text[CISTERN_ERROR_TEXT_BYTES];

	if (!err || access(path, F_OK) < 0 || blob_set_first(path, first, sizeof(first)) < 0)
		return;
	memcpy(text, err->text, sizeof(text));
	cistern_error_set(err, err->code,
		"%s is a file beside subfiles of that name, and is taken itself: name %s for those. %.600s", path,
		first, text);
}

int blob_set_open(char *const *paths, size_t num_paths, const struct classic_align *align, struct blob_set *ret,
	struct cistern_error *err)
{
	struct blob_set s = { 0 };
	struct names n = { 0 };
	int r = 0;

	if (num_paths == 1)
		r = add_one_path(&n, paths[0], err);
	for (size_t i = 0; r == 0 && num_paths > 1 && i < num_paths; i++)
		r = add_name(&n, paths[i]);
	if (r == 0)
		s.files = calloc(n.num + 1, sizeof(*s.files));
	if (r == 0 && !s.files)
		r = -ENOMEM;
	for (size_t i = 0; r == 0 && i < n.num; i++) {
		r = subfile_open(n.paths[i], &s.files[i], err);
		s.num += r == 0;
	}
	if (r == -EBADMSG && num_paths == 1 && s.num == 0)
		hint_at_set(paths[0], err);
	if (r == 0)
		r = check_set(&s, err);
	if (r == 0)
		r = place(&s, align, err);
	free_names(&n);
	if (r == -ENOMEM)
		cistern_error_set(err, r, "out of memory");
	if (r < 0)
		blob_set_destroy(&s);
	else
		*ret = s;
	return r;
}

void blob_set_destroy(struct blob_set *s)
{
	if (!s)
		return;
	for (uint32_t i = 0; i < s->num; i++)
		subfile_close(&s->files[i]);
	free(s->files);
	free(s->header);
	classic_destroy(&s->canonical);
	*s = (struct blob_set){ 0 };
}
