/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Entries are found by their keys; and what is in a directory by that, since it moves with it: so a line costs what it is about, and not what the
 * log is about.
 */
#include "format/manifest/manifest_table.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "format/base/array.h"
#include "format/manifest/manifest_private.h"

bool text_take_string(const char *p, const char *end, struct text *ret)
{
	const char *at = p + 1;

	if (p >= end || *p != '"')
		return false;
	while (at < end && *at != '"')
		at += *at == '\\' ? 2 : 1;
	if (at >= end)
		return false;
	*ret = (struct text){ p, (size_t)(at + 1 - p) };
	return true;
}

struct text entry_rest(const struct entry *e)
{
	const char *at = e->key.at + e->key.len;

	return (struct text){ at, e->line.len > 0 ? (size_t)(e->line.at + e->line.len - at) : 0 };
}

bool text_has_state(const struct text *said, const char *state)
{
	char want[32];
	size_t n = (size_t)snprintf(want, sizeof(want), ",\"state\":\"%s\"", state);

	return said->len >= n && memcmp(said->at, want, n) == 0;
}

/* Whence, by a line of that state. */
static bool came_from(const struct entry *e, const char *state, struct text *ret)
{
	static const char key[] = ",\"state\":\"\",\"from\":";
	struct text rest = entry_rest(e);

	return text_has_state(&rest, state) &&
	       text_take_string(rest.at + sizeof(key) - 1 + strlen(state), rest.at + rest.len, ret);
}

/* ---- the table */

static size_t hash(const char *at, size_t len)
{
	uint64_t h = 0xcbf29ce484222325ull;

	for (size_t i = 0; i < len; i++)
		h = (h ^ (unsigned char)at[i]) * 0x100000001b3ull;
	return (size_t)(h ^ h >> 32);
}

static bool is_same(const struct text *a, const struct text *b)
{
	return a->len == b->len && memcmp(a->at, b->at, a->len) == 0;
}

typedef const struct text *(*text_of_fn)(const struct table *t, size_t number);

static const struct text *key_of(const struct table *t, size_t number)
{
	return &t->entries[number - 1].key;
}

static const struct text *path_of(const struct table *t, size_t number)
{
	return &t->folders[number - 1].path;
}

/* The slot where the number of what has that text is, or belongs. */
static size_t *slot_of(const struct table *t, const struct hash *h, text_of_fn text_of, const struct text *text)
{
	size_t i = hash(text->at, text->len) & (h->num - 1);

	while (h->slots[i] && !is_same(text_of(t, h->slots[i]), text))
		i = (i + 1) & (h->num - 1);
	return &h->slots[i];
}

/* So that there is a slot for one more than num. */
static int hash_room(const struct table *t, struct hash *h, text_of_fn text_of, size_t num)
{
	struct hash larger = { .num = h->num ? 2 * h->num : 512 };

	if (2 * num < h->num)
		return 0;
	larger.slots = calloc(larger.num, sizeof(*larger.slots));
	if (!larger.slots)
		return -ENOMEM;
	for (size_t i = 1; i <= num; i++)
		*slot_of(t, &larger, text_of, text_of(t, i)) = i;
	free(h->slots);
	*h = larger;
	return 0;
}

/* What the folder of that key would be called; len 0: it is in none. */
static struct text folder_of(const struct text *key)
{
	const char *slash = memrchr(key->at, '/', key->len);

	return (struct text){ key->at, slash ? (size_t)(slash - key->at) : 0 };
}

/* The folder of that path, and those above it. *ret: its number; 0: path is empty. */
static int find_folder(struct table *t, struct text path, size_t *ret)
{
	size_t below = 0, *slot;

	for (*ret = 0; path.len > 0; path = folder_of(&path)) {
		if (hash_room(t, &t->by_path, path_of, t->num_folders) < 0 ||
			array_room(&t->folders, &t->cap_folders, t->num_folders, sizeof(*t->folders)) < 0)
			return -ENOMEM;
		slot = slot_of(t, &t->by_path, path_of, &path);
		bool known = *slot;
		if (!known) {
			t->folders[t->num_folders++] = (struct folder){ .path = path };
			*slot = t->num_folders;
		}
		if (below) {
			t->folders[below - 1].next = t->folders[*slot - 1].folder;
			t->folders[*slot - 1].folder = below;
		}
		*ret = *ret ? *ret : *slot;
		if (known)
			break;
		below = *slot;
	}
	return 0;
}

static int entry_room(struct table *t)
{
	size_t cap = t->cap ? 2 * t->cap : 256, *next;
	struct entry *entries;

	if (t->num < t->cap)
		return 0;
	entries = reallocarray(t->entries, cap, sizeof(*entries));
	if (!entries)
		return -ENOMEM;
	t->entries = entries;
	next = reallocarray(t->next, cap, sizeof(*next));
	if (!next)
		return -ENOMEM;
	t->next = next;
	t->cap = cap;
	return 0;
}

static int add_entry(struct table *t, const struct text *key)
{
	size_t folder;

	if (find_folder(t, folder_of(key), &folder) < 0)
		return -ENOMEM;
	t->entries[t->num++] = (struct entry){ .key = *key };
	t->next[t->num - 1] = folder ? t->folders[folder - 1].entry : 0;
	if (folder)
		t->folders[folder - 1].entry = t->num;
	return 0;
}

static int find_entry(struct table *t, const struct text *key, struct entry **ret)
{
	size_t *slot;

	if (entry_room(t) < 0 || hash_room(t, &t->by_key, key_of, t->num) < 0)
		return -ENOMEM;
	slot = slot_of(t, &t->by_key, key_of, key);
	if (!*slot) {
		if (add_entry(t, key) < 0)
			return -ENOMEM;
		*slot = t->num;
	}
	*ret = &t->entries[*slot - 1];
	return 0;
}

struct entry *table_find(const struct table *t, const struct text *key)
{
	size_t number = t->by_key.num ? *slot_of(t, &t->by_key, key_of, key) : 0;

	return number ? &t->entries[number - 1] : NULL;
}

void table_drop(const struct table *t, struct entry *e)
{
	if (!e->gone)
		e->extras_were = e->extras_from;
	e->gone = true;
	e->extras_from = t->num_extras;
}

/* ---- what is below a path */

static int add_found(struct table *t, size_t number)
{
	if (array_room(&t->found, &t->cap_found, t->num_found, sizeof(*t->found)) < 0)
		return -ENOMEM;
	t->found[t->num_found++] = number;
	return 0;
}

static int add_folder(struct table *t, size_t folder)
{
	int r = 0;

	for (size_t n = t->folders[folder - 1].entry; r == 0 && n; n = t->next[n - 1])
		r = add_found(t, n);
	for (size_t n = t->folders[folder - 1].folder; r == 0 && n; n = t->folders[n - 1].next)
		r = add_folder(t, n);
	return r;
}

static int compare_numbers(const void *a, const void *b)
{
	const size_t *x = a, *y = b;

	return (*x > *y) - (*x < *y);
}

/* Into t->found: the entries at that path and below it, in their order. */
static int find_below(struct table *t, const struct text *path)
{
	struct text folder = { path->at, path->len - 1 }; /* without the closing quote */
	size_t at = t->by_key.num ? *slot_of(t, &t->by_key, key_of, path) : 0;
	size_t in = t->by_path.num ? *slot_of(t, &t->by_path, path_of, &folder) : 0;
	int r = 0;

	t->num_found = 0;
	if (at)
		r = add_found(t, at);
	if (r == 0 && in)
		r = add_folder(t, in);
	if (r == 0 && t->num_found > 1)
		qsort(t->found, t->num_found, sizeof(*t->found), compare_numbers);
	return r;
}

/* What stood under the old name, and below it, does no longer. They are what was found. */
static void drop_moved(struct table *t, const char *line)
{
	for (size_t i = 0; i < t->num_found; i++) {
		struct entry *e = &t->entries[t->found[i] - 1];

		if (!e->gone)
			e->taken_by = line;
		table_drop(t, e);
	}
}

/* What path, which is below from, is when that has become to. */
static int make_path(
	struct table *t, const struct text *path, const struct text *from, const struct text *to, struct text *ret)
{
	size_t head = to->len - 1, skip = from->len - 1; /* without the closing quotes */
	char *made = NULL;

	if (array_room(&t->made, &t->cap_made, t->num_made, sizeof(*t->made)) == 0)
		made = malloc(head + path->len - skip);
	if (!made)
		return -ENOMEM;
	memcpy(made, to->at, head);
	memcpy(made + head, path->at + skip, path->len - skip);
	t->made[t->num_made++] = made;
	*ret = (struct text){ made, head + path->len - skip };
	return 0;
}

/* What is in a directory moves with it, and what was said of it is so there. What was found is at or below from. */
static int move_below(struct table *t, const struct text *from, const struct text *to, const char *line)
{
	for (size_t i = 0; i < t->num_found; i++) {
		struct entry e = t->entries[t->found[i] - 1], *known;

		if (e.gone || e.file == 0 || e.key.len == from->len)
			continue;
		if (make_path(t, &e.key, from, to, &e.key) < 0 || find_entry(t, &e.key, &known) < 0)
			return -ENOMEM;
		e.line = (struct text){ line, 0 };
		e.extras_from = known->extras_from;
		*known = e;
	}
	return 0;
}

/*
 * From is where it had been moved to, and to where it was before; and of neither, nor of what is in it, anything has been said since. What
 * was found is at or below from.
 */
static const char *returning_line(const struct table *t, const struct text *from, const struct text *to)
{
	const struct entry *moved = table_find(t, from), *here = table_find(t, to);
	struct text was;

	if (!moved || moved->gone || !came_from(moved, "moved", &was) || !is_same(&was, to))
		return NULL;
	if (here && here->file != 0 && here->taken_by != moved->line.at)
		return NULL;
	for (size_t i = 0; i < t->num_found; i++)
		if (t->entries[t->found[i] - 1].line.at > moved->line.at)
			return NULL;
	return moved->line.at;
}

/* What was said of what has come back to that path is so again: line had taken it away. */
static int bring_back(struct table *t, const struct text *to, const char *line)
{
	int r = find_below(t, to);

	for (size_t i = 0; r == 0 && i < t->num_found; i++) {
		struct entry *e = &t->entries[t->found[i] - 1];

		if (e->taken_by != line)
			continue;
		e->gone = false;
		e->taken_by = NULL;
		e->extras_from = e->extras_were;
	}
	return r;
}

/* entry: its place in the table; e: its line. */
static int put_extra(struct table *t, enum extra_kind kind, size_t entry, const struct entry *e)
{
	static const char offset[] = "\"offset\":";
	const char *at = e->key.at + e->key.len + sizeof(",\"state\":\"overlap\",") - 1; /* "missing" is as long */
	const char *end = e->line.at + e->line.len;
	struct extra x = { .kind = kind, .entry = entry, .seq = t->num_extras, .off = UINT64_MAX };

	if (at >= end)
		return 0;
	x.text = (struct text){ at, (size_t)(end - at) };
	if (x.text.len > sizeof(offset) && memcmp(at, offset, sizeof(offset) - 1) == 0)
		x.off = strtoull(
			at + sizeof(offset) - 1, NULL, 10); /* ends before the line does: at a comma or the brace */
	if (array_room(&t->extras, &t->cap_extras, t->num_extras, sizeof(*t->extras)) < 0)
		return -ENOMEM;
	t->extras[t->num_extras++] = x;
	return 0;
}

/* What was only out of the way meanwhile has moved from where it was before. */
static struct text where_from(const struct table *t, const struct text *from)
{
	const char *name = from->at + 1;
	const struct entry *parked;

	for (const char *p = name; p < from->at + from->len; p++)
		name = *p == '/' ? p + 1 : name;
	if ((size_t)(from->at + from->len - name) < sizeof(MANIFEST_PARKED) ||
		memcmp(name, MANIFEST_PARKED, sizeof(MANIFEST_PARKED) - 1) != 0)
		return *from;
	parked = table_find(t, from);
	return parked && parked->from.len > 0 ? parked->from : *from;
}

static bool take_sum(struct table *t, const char *line, size_t len)
{
	if (len < strlen(SUM_PREFIX) || memcmp(line, SUM_PREFIX, strlen(SUM_PREFIX)) != 0)
		return false;
	if (len != strlen(t->sum) || memcmp(line, t->sum, len) != 0)
		t->others = line;
	return true;
}

/* One more name of what is under from, or its new one: what is said of that is so of e. */
static void take_file(struct table *t, const struct text *from, enum entry_as as, struct entry *e)
{
	struct entry *of = table_find(t, from);

	e->from = where_from(t, from);
	e->as = as;
	e->said = (struct text){ 0 };
	if (!of || of->gone) {
		e->file = ++t->num_files;
		return;
	}
	if (of->file == 0)
		of->file = ++t->num_files;
	e->file = of->file;
	e->said = of->said;
	e->teller = of->teller;
	if (of->as == AS_LINKED)
		e->as = AS_LINKED;
}

/* Of overlaps, missing bytes and layouts: they are said beside the line of the file itself. */
static bool take_further(struct table *t, struct entry *known, const struct entry *e, int *ret)
{
	size_t i = (size_t)(known - t->entries), skip = sizeof(",\"state\":\"kept\",") - 1;

	*ret = 0;
	if (text_has_state(&e->said, "overlap")) {
		*ret = put_extra(t, EXTRA_OVERLAP, i, e);
	} else if (text_has_state(&e->said, "missing")) {
		*ret = put_extra(t, EXTRA_MISSING, i, e);
	} else if (text_has_state(&e->said, "kept")) {
		if (e->said.len > skip)
			known->kept = (struct text){ e->said.at + skip, e->said.len - skip };
	} else if (text_has_state(&e->said, "beside")) {
		known->key = e->key;
		known->gone = false;
		known->beside = memmem(e->said.at, e->said.len, ",\"as\":", 6) ? e->said : (struct text){ 0 };
	} else {
		return false;
	}
	return true;
}

/* Its path, and what the line says. False: it is torn, or of no file. */
static bool read_line(const char *line, size_t len, struct entry *ret)
{
	size_t prefix = strlen(KEY_PREFIX);

	*ret = (struct entry){ .line = { line, len } };
	if (len < prefix + 3 || line[len - 1] != '}' || memcmp(line, KEY_PREFIX, prefix) != 0 ||
		!text_take_string(line + prefix, line + len, &ret->key))
		return false;
	ret->said = entry_rest(ret);
	return true;
}

/* *ret_returns: it is where it was, and nothing else is to be said of it. */
static int take_move(struct table *t, const struct text *from, struct entry *e, bool *ret_returns)
{
	const char *left;

	if (find_below(t, from) < 0)
		return -ENOMEM;
	left = returning_line(t, from, &e->key);
	*ret_returns = left;
	take_file(t, from, AS_MOVED, e);
	if (left ? bring_back(t, &e->key, left) < 0 || find_below(t, from) < 0
		 : move_below(t, from, &e->key, e->line.at) < 0)
		return -ENOMEM;
	drop_moved(t, e->line.at);
	return 0;
}

static int take_line(struct table *t, const char *line, size_t len)
{
	struct entry e, *known;
	struct text from;
	int r;

	if (take_sum(t, line, len) || !read_line(line, len, &e))
		return 0;
	if (came_from(&e, "moved", &from)) {
		bool returns;

		if (take_move(t, &from, &e, &returns) < 0)
			return -ENOMEM;
		if (returns)
			return 0;
	}
	if (came_from(&e, "linked", &from)) {
		if (is_same(&from, &e.key))
			return 0;
		if (find_entry(t, &from, &known) < 0)
			return -ENOMEM;
		take_file(t, &from, AS_LINKED, &e);
	}
	if (find_entry(t, &e.key, &known) < 0)
		return -ENOMEM;
	if (take_further(t, known, &e, &r))
		return r;
	if (text_has_state(&e.said, "removed") || text_has_state(&e.said, "gone")) {
		known->key = e.key;
		known->line = e.line;
		table_drop(t, known);
		return 0;
	}
	if (e.file == 0) {
		e.file = ++t->num_files;
		e.teller = (size_t)(known - t->entries);
	}
	e.extras_from = known->extras_from;
	*known = e;
	return 0;
}

int table_make(struct table *t, const char *text, size_t len)
{
	const char *at = text, *end = text + len;
	int r = 0;

	while (r == 0 && at < end) {
		const char *newline = memchr(at, '\n', (size_t)(end - at));

		if (!newline)
			break;
		r = take_line(t, at, (size_t)(newline - at));
		at = newline + 1;
	}
	return r;
}

void table_free(struct table *t)
{
	for (size_t i = 0; i < t->num_made; i++)
		free(t->made[i]);
	free(t->made);
	free(t->entries);
	free(t->next);
	free(t->folders);
	free(t->by_key.slots);
	free(t->by_path.slots);
	free(t->found);
	free(t->extras);
}
