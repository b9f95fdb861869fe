/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * First all sources and which file each is in; then the variables that can be counted get their places in a layout of their own; then
 * the spans of the files are moved to where they are in it. A file's descriptors are open only while it is looked at: there may be many.
 */
#include "tools/lib/elsewhere.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "format/base/array.h"
#include "tools/lib/content.h"
#include "tools/lib/locate.h"
#include "tools/lib/mounts.h"

#define BLOCK (1u << 20)

static const char *const outside = "it is outside of this mount";

struct search { /* for files */
	struct elsewhere *e;
	struct store *first;
	const char *path, *mounted; /* of the file that names them */
};

/* ---- which file */

/* Appends path to out, without "." and ".."; false: it leads out of the root, or is too long. */
static bool append(char *out, size_t cap, const char *path)
{
	while (path += strspn(path, "/"), *path) {
		size_t len = strcspn(path, "/"), have = strlen(out);
		char *slash = strrchr(out, '/');

		if (len == 2 && strncmp(path, "..", 2) == 0) {
			if (have == 0)
				return false;
			*(slash ? slash : out) = '\0';
		} else if (len != 1 || *path != '.') {
			if (have + len + 2 > cap)
				return false;
			snprintf(out + have, cap - have, "%s%.*s", have ? "/" : "", (int)len, path);
		}
		path += len;
	}
	return *out != '\0';
}

/* What of an absolute name is in the mount: NULL is nothing. */
static const char *in_mount(const struct superblock *sb, const char *name)
{
	const char *roots[] = { sb->mountpoint, sb->backing };

	for (size_t i = 0; i < 2; i++)
		if (*roots[i] && mounts_path_in(name, roots[i]))
			return name + strlen(roots[i]);
	return NULL;
}

/* The path in the mount of what is called name there. */
static bool resolve(const struct search *s, const char *name, char *out, size_t cap)
{
	const char *slash = strrchr(s->path, '/');
	char dir[PATH_MAX];

	*out = '\0';
	if (*name == '/') {
		name = in_mount(store_superblock(s->first), name);
	} else if (slash) {
		snprintf(dir, sizeof(dir), "%.*s", (int)(slash - s->path), s->path);
		append(out, cap, dir);
	}
	return name && append(out, cap, name);
}

/* Its path in the mount, or NULL: the file that names it has none. */
static char *mounted_path(const struct search *s, const char *path)
{
	size_t root = s->mounted ? strlen(s->mounted) - strlen(s->path) : 0;
	char *out = NULL;

	if (s->mounted && asprintf(&out, "%.*s%s", (int)root, s->mounted, path) < 0)
		return NULL;
	return out;
}

/* By the stores, or by what they leave to see of the backing directory. */
static int find(const struct search *s, struct elsewhere_file *f)
{
	char backing[2 * PATH_MAX];
	int r = locate_file(s->e->all, s->first, f->path, f->opened, &f->store, &f->in);

	if (r != -ENOENT || s->mounted || s->e->all->num < s->e->all->num_nodes)
		return r == -ENOTDIR ? -ENOENT : r;
	r = locate_backing(s->first, f->path, backing, sizeof(backing));
	if (r == 0)
		r = locate_clean(backing, &f->in);
	if (r < 0)
		return r;
	f->store = s->first;
	f->opened = strdup(backing);
	return f->opened ? 0 : -ENOMEM;
}

static int open_content(const struct elsewhere *e, const struct elsewhere_file *f, struct content *ret)
{
	struct cistern_error err = { 0 };

	return content_open(e->all, f->store, &f->in, f->size, f->opened, ret, &err);
}

static int gather(struct elsewhere *e, struct elsewhere_file *f)
{
	struct content c;
	int r = locate_size(f->store, &f->in, &f->size, NULL);

	if (r == 0)
		r = open_content(e, f, &c);
	if (r < 0)
		return r;
	f->size = c.size;
	r = spans_gather(&c, &f->spans);
	content_close(&c);
	return r;
}

/* Of an absolute name it is known where the file would be: not there, nobody has written it. 0, -ENOMEM. */
static int look_up(const struct search *s, const char *name, struct elsewhere_file *f)
{
	int r = find(s, f);

	if (r == -ENOENT && *name == '/' && s->e->all->num == s->e->all->num_nodes)
		return 0;
	if (r == -ENOENT)
		f->why_not = "there is no such file";
	else if (r == 0 && !S_ISREG(f->in.mode))
		f->why_not = "it is not a file";
	else if (r == 0)
		r = gather(s->e, f);
	f->there = r == 0 && !f->why_not;
	if (r < 0 && !f->why_not)
		f->why_not = "it cannot be read";
	return r == -ENOMEM ? r : 0;
}

static int add_file(const struct search *s, const char *name, const char *path, size_t *ret)
{
	struct elsewhere *e = s->e;
	struct elsewhere_file *f;

	if (array_room(&e->files, &e->cap_files, e->num_files, sizeof(*e->files)) < 0)
		return -ENOMEM;
	f = &e->files[e->num_files];
	*f = (struct elsewhere_file){ .why_not = path ? NULL : outside, .last = SIZE_MAX };
	*ret = e->num_files++;
	if (e->num_files > ELSEWHERE_FILES_MAX)
		f->why_not = "there are too many such files";
	if (f->why_not)
		return 0;
	f->path = strdup(path);
	f->opened = mounted_path(s, path);
	return f->path && (f->opened || !s->mounted) ? look_up(s, name, f) : -ENOMEM;
}

/* The file that is called name there; most often the one that was named before. */
static int file_of(const struct search *s, const char *name, size_t *ret)
{
	const struct elsewhere *e = s->e;
	char path[PATH_MAX];
	bool inside = resolve(s, name, path, sizeof(path));

	for (size_t i = e->num_files; i-- > 0;)
		if (inside ? e->files[i].path && strcmp(e->files[i].path, path) == 0 : e->files[i].why_not == outside) {
			*ret = i;
			return 0;
		}
	if (e->num_files <= ELSEWHERE_FILES_MAX)
		return add_file(s, name, inside ? path : NULL, ret);
	*ret = ELSEWHERE_FILES_MAX;
	return 0;
}

/* ---- what is counted */

static int add_sources(const struct search *s, const struct layout_object *o, size_t object)
{
	struct elsewhere *e = s->e;
	for (size_t i = 0; i < o->num_sources; i++) {
		const struct layout_source *from = &o->sources[i];
		struct elsewhere_source *to;
		int r;

		if (from->object)
			return 0;
		if (array_room(&e->sources, &e->cap_sources, e->num_sources, sizeof(*e->sources)) < 0)
			return -ENOMEM;
		to = &e->sources[e->num_sources];
		*to = (struct elsewhere_source){ .object = object, .number = i, .off = from->off, .len = from->bytes };
		r = file_of(s, from->file, &to->file);
		if (r < 0)
			return r;
		to->before = e->files[to->file].last;
		e->files[to->file].last = e->num_sources++;
	}
	return 0;
}

static bool is_countable(const struct elsewhere *e, size_t first, size_t end)
{
	for (size_t i = first; i < end; i++)
		if (e->files[e->sources[i].file].why_not)
			return false;
	return true;
}

static int add_variable(struct elsewhere *e, const struct layout_object *o, size_t first, size_t end, uint64_t *at)
{
	struct layout_object *to = layout_add(&e->layout, o->name, LAYOUT_VARIABLE);
	int r;

	if (!to)
		return -ENOMEM;
	to->element_bytes = o->element_bytes;
	r = layout_set_dims(to, o->num_dims, o->dims);
	if (r == 0 && o->has_fill)
		r = layout_set_fill(to, o->fill);
	to->begin = *at;
	to->count = 1;
	for (size_t i = first; i < end; i++) {
		e->sources[i].at = *at;
		*at += e->sources[i].len;
	}
	to->len = *at - to->begin;
	return r;
}

/* Sources of an object stand together. More bytes than there are offsets for are not counted. */
static int place(struct elsewhere *e, const struct layout *l)
{
	uint64_t at = 0;
	int r = 0;

	for (size_t i = 0, end; r == 0 && i < e->num_sources; i = end) {
		size_t object = e->sources[i].object;
		uint64_t bytes = 0;

		for (end = i; end < e->num_sources && e->sources[end].object == object; end++)
			bytes += e->sources[end].len;
		if (!is_countable(e, i, end) || bytes > INT64_MAX - at)
			continue;
		e->counted[object] = e->layout.num_objects;
		r = add_variable(e, &l->objects[object], i, end, &at);
	}
	return r;
}

/* Each part of a span that source has, with its offset in the file. */
static int each_part(const struct elsewhere *e, const struct elsewhere_source *s,
	int (*each)(const struct span *part, void *arg), void *arg)
{
	const struct spans *spans = &e->files[s->file].spans;
	uint64_t end = s->off + s->len;
	size_t low = 0, high = spans->num;
	int r = 0;

	while (low < high) { /* the first one that ends behind the beginning */
		size_t middle = low + (high - low) / 2;

		if (spans->list[middle].off + spans->list[middle].len <= s->off)
			low = middle + 1;
		else
			high = middle;
	}
	for (; r == 0 && low < spans->num && spans->list[low].off < end; low++) {
		struct span part = spans->list[low];
		uint64_t to = part.off + part.len < end ? part.off + part.len : end;

		part.off = part.off > s->off ? part.off : s->off;
		part.len = to - part.off;
		r = each(&part, arg);
	}
	return r;
}

struct counting {
	struct elsewhere *e;
	struct elsewhere_source *s;
	struct content *c;
	uint8_t *block;
};

static int count(const struct span *part, void *arg)
{
	struct counting *k = arg;
	struct coverage_extent e = { .off = k->s->at + (part->off - k->s->off),
		.len = part->len,
		.state = part->state == SPAN_LOGGED ? COVERAGE_LOGGED : COVERAGE_DRAINED,
		.node = part->node,
		.process = part->process };

	if (part->state == SPAN_LOGGED) {
		k->s->logged_bytes += part->len;
		k->e->logged_bytes += part->len;
		k->s->unseen_bytes += content_is_unseen(k->c, part->node) ? part->len : 0;
	} else {
		k->s->drained_bytes += part->len;
	}
	return coverage_add(k->e->coverage, &e);
}

static bool is_counted(const struct elsewhere *e, const struct elsewhere_source *s)
{
	return e->counted[s->object] != SIZE_MAX;
}

/* Each source that is counted and there, with its file open; that of the one before may be the same. */
static int each_counted(struct elsewhere *e, int (*each)(const struct span *part, void *arg), uint8_t *block)
{
	struct content c;
	size_t open = SIZE_MAX;
	int r = 0;

	for (size_t i = 0; r == 0 && i < e->num_sources; i++) {
		struct elsewhere_source *s = &e->sources[i];
		struct counting k = { e, s, &c, block };

		if (!is_counted(e, s) || !e->files[s->file].there)
			continue;
		if (open != s->file) {
			if (open != SIZE_MAX)
				content_close(&c);
			r = open_content(e, &e->files[s->file], &c);
			open = r == 0 ? s->file : SIZE_MAX;
		}
		if (r == 0)
			r = each_part(e, s, each, &k);
	}
	if (open != SIZE_MAX)
		content_close(&c);
	return r;
}

static int fill_in(struct search *s, const struct layout *l)
{
	struct elsewhere *e = s->e;
	int r = 0;

	e->counted = malloc((l->num_objects + 1) * sizeof(*e->counted));
	if (!e->counted)
		return -ENOMEM;
	for (size_t i = 0; i < l->num_objects; i++)
		e->counted[i] = SIZE_MAX;
	for (size_t i = 0; r == 0 && i < l->num_objects; i++)
		r = add_sources(s, &l->objects[i], i);
	if (r == 0)
		r = place(e, l);
	if (r == 0 && e->layout.num_objects > 0)
		r = coverage_create(&e->layout, &e->coverage);
	if (r < 0 || !e->coverage)
		return r;
	r = each_counted(e, count, NULL);
	return r == 0 ? coverage_finish(e->coverage) : r;
}

int elsewhere_open(const struct stores *all, struct store *first, const char *path, const char *mounted,
	const struct layout *l, struct elsewhere *ret)
{
	struct search s = { .e = ret, .first = first, .path = path, .mounted = mounted };
	int r;

	*ret = (struct elsewhere){ .all = all };
	r = fill_in(&s, l);
	if (r < 0)
		elsewhere_close(ret);
	return r;
}

void elsewhere_close(struct elsewhere *e)
{
	for (size_t i = 0; i < e->num_files; i++) {
		free(e->files[i].path);
		free(e->files[i].opened);
		spans_free(&e->files[i].spans);
	}
	free(e->files);
	free(e->sources);
	free(e->counted);
	coverage_destroy(e->coverage);
	layout_destroy(&e->layout);
	*e = (struct elsewhere){ 0 };
}

/* ---- fill values */

static int look(const struct span *part, void *arg)
{
	struct counting *k = arg;
	uint64_t off = part->off, end = part->off + part->len;

	if (part->state != SPAN_LOGGED || content_is_unseen(k->c, part->node))
		return 0;
	while (off < end) {
		size_t len = end - off < BLOCK ? (size_t)(end - off) : BLOCK;
		ssize_t n = content_read(k->block, len, off, k->c);

		if (n <= 0)
			return (int)n;
		coverage_look(k->e->coverage, k->s->at + (off - k->s->off), k->block, (size_t)n);
		off += (uint64_t)n;
	}
	return 0;
}

int elsewhere_look(struct elsewhere *e)
{
	uint8_t *block = malloc(BLOCK);
	int r = block ? each_counted(e, look, block) : -ENOMEM;

	free(block);
	return r;
}

/* ---- journals */

void elsewhere_keep_notes(struct elsewhere *e)
{
	for (size_t i = 0; i < e->num_sources; i++)
		e->sources[i].kept_bytes = e->sources[i].noted_bytes;
}

static void note_write(struct elsewhere_source *s, uint64_t off, uint64_t len)
{
	uint64_t end = len < UINT64_MAX - off ? off + len : UINT64_MAX;

	off = off > s->off ? off : s->off;
	end = end < s->off + s->len ? end : s->off + s->len;
	if (off < end)
		s->noted_bytes += end - off;
}

static void note(struct elsewhere_source *s, const struct record *rec)
{
	if (rec->type == RECORD_WRITE)
		note_write(s, rec->off, rec->len);
	for (size_t i = 0; rec->type == RECORD_EXTENTS && i < rec->num_ranges; i++)
		note_write(s, rec->ranges[i].off, rec->ranges[i].len);
	if (rec->type == RECORD_DRAINED)
		s->noted_bytes = s->kept_bytes;
}

void elsewhere_note(struct elsewhere *e, const struct record *rec)
{
	for (size_t i = 0; rec->ino != 0 && i < e->num_files; i++)
		if (e->files[i].there && e->files[i].in.ino == rec->ino)
			for (size_t k = e->files[i].last; k != SIZE_MAX; k = e->sources[k].before)
				note(&e->sources[k], rec);
}

/* ---- answers */

const struct coverage_object *elsewhere_of(const struct elsewhere *e, size_t object)
{
	return e->coverage && e->counted[object] != SIZE_MAX ? coverage_of(e->coverage, e->counted[object]) : NULL;
}

/* Those of an object: from *ret on, so many. */
static size_t sources_of(const struct elsewhere *e, size_t object, const struct elsewhere_source **ret)
{
	size_t low = 0, high = e->num_sources, end;

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (e->sources[middle].object < object)
			low = middle + 1;
		else
			high = middle;
	}
	for (end = low; end < e->num_sources && e->sources[end].object == object;)
		end++;
	*ret = e->sources + low;
	return end - low;
}

const struct elsewhere_source *elsewhere_source_of(const struct elsewhere *e, size_t object, size_t number)
{
	const struct elsewhere_source *s;

	return number < sources_of(e, object, &s) ? &s[number] : NULL;
}

const struct elsewhere_file *elsewhere_file_of(const struct elsewhere *e, const struct elsewhere_source *s)
{
	return &e->files[s->file];
}

uint64_t elsewhere_overwritten(const struct elsewhere *e, size_t object)
{
	const struct elsewhere_source *s;
	uint64_t sum = 0;

	for (size_t num = sources_of(e, object, &s); num > 0; num--, s++)
		sum += s->noted_bytes > s->logged_bytes ? s->noted_bytes - s->logged_bytes : 0;
	return sum;
}

uint64_t elsewhere_unseen(const struct elsewhere *e, size_t object)
{
	const struct elsewhere_source *s;
	uint64_t sum = 0;

	for (size_t num = sources_of(e, object, &s); num > 0; num--, s++)
		sum += s->unseen_bytes;
	return sum;
}
