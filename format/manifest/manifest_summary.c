/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * The summary of a manifest's log. It does not parse JSON: the escaped path, as it stands in a line, is the key, and the last line of a key
 * is its entry. Of overlaps and missing bytes all that a path has ever had are put into its entry. What a line says is so of the file, and is kept
 * with each name that the file is said to have or to have got: one of those that are left lists it, whichever have gone.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "format/base/array.h"
#include "format/base/fdio.h"
#include "format/base/json.h"
#include "format/base/process.h"
#include "format/manifest/manifest_private.h"

#define KEY_PREFIX "{\"path\":"
#define SUM_PREFIX "{\"state\":\"summary\"," /* a line of no file: up to here a process has made a summary */
#define SUM_BYTES  96
#define TIME_BYTES 40

/* ---- the table of paths */

struct text { /* borrowed from the mapped log */
	const char *at;
	size_t len;
};

enum entry_as { AS_TOLD, AS_MOVED, AS_LINKED }; /* in the order in which names of one file list it */

struct entry {
	struct text key,
		line; /* line.len 0: it has none; extras may be known, or its directory has moved here in that line */
	struct text said; /* of the file, by its line or by that of another name: what follows the path */
	size_t file;      /* names of one file have the same number; 0: nothing has been said of it */
	size_t teller;    /* the entry whose line said is of */
	enum entry_as as;
	struct text from; /* moved or linked: with its quotes */
	struct text kept; /* of a line of that state behind it: what follows the state */
	bool gone;
	const char *taken_by; /* gone: the line of the move that has taken it away; NULL: none has */
	size_t extras_from,
		extras_were; /* those before are of a file that had this name once; the same before it was gone */
};

enum extra_kind { EXTRA_OVERLAP, EXTRA_MISSING };

struct extra { /* what a line of its own says of a file */
	enum extra_kind kind;
	size_t entry, seq;
	uint64_t off;
	struct text text; /* of its line, what stands behind the state, and the closing brace */
};

struct table {
	struct entry *entries; /* owned, in the order of their first line */
	size_t num, cap;
	size_t *slots; /* owned: index + 1 into entries; num_slots a power of two */
	size_t num_slots;
	size_t num_files;
	char **made; /* owned, each too: paths that no line has */
	size_t num_made, cap_made;
	struct extra *extras; /* owned */
	size_t num_extras, cap_extras;
	char sum[SUM_BYTES]; /* the line of whose summary it is */
	const char *others;  /* where what others have summed up ends */
};

/* The string (with its quotes) that begins at p. */
static bool take_string(const char *p, const char *end, struct text *ret)
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

/* What follows the path in the line of the entry. */
static struct text rest_of(const struct entry *e)
{
	const char *at = e->key.at + e->key.len;

	return (struct text){ at, e->line.len > 0 ? (size_t)(e->line.at + e->line.len - at) : 0 };
}

static bool has_state(const struct text *said, const char *state)
{
	char want[32];
	size_t n = (size_t)snprintf(want, sizeof(want), ",\"state\":\"%s\"", state);

	return said->len >= n && memcmp(said->at, want, n) == 0;
}

/* Whence, by a line of that state. */
static bool came_from(const struct entry *e, const char *state, struct text *ret)
{
	static const char key[] = ",\"state\":\"\",\"from\":";
	struct text rest = rest_of(e);

	return has_state(&rest, state) &&
	       take_string(rest.at + sizeof(key) - 1 + strlen(state), rest.at + rest.len, ret);
}

static size_t hash(const struct text *t)
{
	uint64_t h = 0xcbf29ce484222325ull;

	for (size_t i = 0; i < t->len; i++)
		h = (h ^ (unsigned char)t->at[i]) * 0x100000001b3ull;
	return (size_t)(h ^ h >> 32);
}

static bool is_same(const struct text *a, const struct text *b)
{
	return a->len == b->len && memcmp(a->at, b->at, a->len) == 0;
}

static size_t *slot_of(const struct table *t, const struct text *key)
{
	size_t i = hash(key) & (t->num_slots - 1);

	while (t->slots[i]) {
		if (is_same(&t->entries[t->slots[i] - 1].key, key))
			break;
		i = (i + 1) & (t->num_slots - 1);
	}
	return &t->slots[i];
}

static int grow(struct table *t)
{
	size_t cap = t->cap ? 2 * t->cap : 256;
	struct entry *entries = reallocarray(t->entries, cap, sizeof(*entries));
	size_t *slots;

	if (!entries)
		return -ENOMEM;
	t->entries = entries;
	slots = calloc(2 * cap, sizeof(*slots));
	if (!slots)
		return -ENOMEM;
	free(t->slots);
	t->slots = slots;
	t->num_slots = 2 * cap;
	t->cap = cap;
	for (size_t i = 0; i < t->num; i++)
		*slot_of(t, &t->entries[i].key) = i + 1;
	return 0;
}

static int find_entry(struct table *t, const struct text *key, struct entry **ret)
{
	size_t *slot;

	if (t->num == t->cap && grow(t) < 0)
		return -ENOMEM;
	slot = slot_of(t, key);
	if (!*slot) {
		t->entries[t->num++] = (struct entry){ .key = *key };
		*slot = t->num;
	}
	*ret = &t->entries[*slot - 1];
	return 0;
}

static struct entry *known_entry(const struct table *t, const struct text *key)
{
	size_t slot = t->num ? *slot_of(t, key) : 0;

	return slot ? &t->entries[slot - 1] : NULL;
}

static void mark_gone(const struct table *t, struct entry *e)
{
	if (!e->gone)
		e->extras_were = e->extras_from;
	e->gone = true;
	e->extras_from = t->num_extras;
}

static bool is_at_or_below(const struct entry *e, const struct text *path)
{
	size_t n = path->len - 1; /* without the closing quote */

	return e->key.len > n && memcmp(e->key.at, path->at, n) == 0 && (e->key.at[n] == '"' || e->key.at[n] == '/');
}

/* What stood under the old name, and below it, does no longer. */
static void drop_moved(struct table *t, const struct text *from, const char *line)
{
	for (size_t i = 0; i < t->num; i++) {
		struct entry *e = &t->entries[i];

		if (!is_at_or_below(e, from))
			continue;
		if (!e->gone)
			e->taken_by = line;
		mark_gone(t, e);
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

/* What is in a directory moves with it, and what was said of it is so there. */
static int move_below(struct table *t, const struct text *from, const struct text *to, const char *line)
{
	for (size_t i = 0, num = t->num; i < num; i++) {
		struct entry e = t->entries[i], *known;

		if (e.gone || e.file == 0 || e.key.len == from->len || !is_at_or_below(&e, from))
			continue;
		if (make_path(t, &e.key, from, to, &e.key) < 0 || find_entry(t, &e.key, &known) < 0)
			return -ENOMEM;
		e.line = (struct text){ line, 0 };
		e.extras_from = known->extras_from;
		*known = e;
	}
	return 0;
}

/* From is where it had been moved to, and to where it was before; and of neither, nor of what is in it, anything has been said since. */
static const char *returning_line(const struct table *t, const struct text *from, const struct text *to)
{
	const struct entry *moved = known_entry(t, from), *here = known_entry(t, to);
	struct text was;

	if (!moved || moved->gone || !came_from(moved, "moved", &was) || !is_same(&was, to))
		return NULL;
	if (here && here->file != 0 && here->taken_by != moved->line.at)
		return NULL;
	for (size_t i = 0; i < t->num; i++)
		if (is_at_or_below(&t->entries[i], from) && t->entries[i].line.at > moved->line.at)
			return NULL;
	return moved->line.at;
}

/* What was said of what has come back is so again. */
static bool bring_back(struct table *t, const struct text *from, const struct text *to)
{
	const char *line = returning_line(t, from, to);

	for (size_t i = 0; line && i < t->num; i++) {
		struct entry *e = &t->entries[i];

		if (e->taken_by != line)
			continue;
		e->gone = false;
		e->taken_by = NULL;
		e->extras_from = e->extras_were;
	}
	return line;
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
	if (t->num == 0 || (size_t)(from->at + from->len - name) < sizeof(MANIFEST_PARKED) ||
		memcmp(name, MANIFEST_PARKED, sizeof(MANIFEST_PARKED) - 1) != 0)
		return *from;
	parked = known_entry(t, from);
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
	struct entry *of = known_entry(t, from);

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
	if (has_state(&e->said, "overlap")) {
		*ret = put_extra(t, EXTRA_OVERLAP, i, e);
	} else if (has_state(&e->said, "missing")) {
		*ret = put_extra(t, EXTRA_MISSING, i, e);
	} else if (has_state(&e->said, "kept")) {
		if (e->said.len > skip)
			known->kept = (struct text){ e->said.at + skip, e->said.len - skip };
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
		!take_string(line + prefix, line + len, &ret->key))
		return false;
	ret->said = rest_of(ret);
	return true;
}

static int take_line(struct table *t, const char *line, size_t len)
{
	struct entry e, *known;
	struct text from;
	int r;

	if (take_sum(t, line, len) || !read_line(line, len, &e))
		return 0;
	if (came_from(&e, "moved", &from)) {
		bool returns = bring_back(t, &from, &e.key);

		take_file(t, &from, AS_MOVED, &e);
		if (!returns && move_below(t, &from, &e.key, line) < 0)
			return -ENOMEM;
		drop_moved(t, &from, line);
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
	if (has_state(&e.said, "removed") || has_state(&e.said, "gone")) {
		known->key = e.key;
		known->line = e.line;
		mark_gone(t, known);
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

static int make_table(struct table *t, const char *text, size_t len)
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

/* ---- what is written */

static const char *time_text(int64_t ns, char out[TIME_BYTES])
{
	time_t sec = (time_t)(ns / 1000000000);
	struct tm tm;
	size_t n;

	gmtime_r(&sec, &tm);
	n = strftime(out, TIME_BYTES, "%Y-%m-%dT%H:%M:%S", &tm);
	snprintf(out + n, TIME_BYTES - n, ".%03dZ", (int)(ns % 1000000000 / 1000000));
	return out;
}

static const char *result_text(int result)
{
	return result == CISTERN_EXIT_OK ? "complete" : result == CISTERN_EXIT_INCOMPLETE ? "incomplete" : "failed";
}

static void put_kstr(FILE *out, const char *key, const char *value)
{
	struct json j;

	fprintf(out, "  \"%s\": ", key);
	json_init(&j, out, false);
	json_str(&j, value);
	fputs(",\n", out);
}

static void put_ku64(FILE *out, const char *key, uint64_t value)
{
	fprintf(out, "  \"%s\": %" PRIu64 ",\n", key, value);
}

static void put_nodes(FILE *out, const struct manifest_session *s)
{
	struct json j;

	put_ku64(out, "num_nodes", s->num_nodes);
	fputs("  \"nodes\": ", out);
	json_init(&j, out, false);
	json_array(&j);
	for (uint32_t i = 0; s->nodes && i < s->num_nodes; i++)
		json_str(&j, s->nodes[i]);
	json_end_array(&j);
	fputs(",\n  \"troubles\": ", out);
	json_init(&j, out, false);
	json_array(&j);
	for (size_t i = 0; i < s->num_troubles; i++) {
		json_object(&j);
		json_kstr(&j, "node", s->troubles[i].node);
		json_kstr(&j, "error", s->troubles[i].text);
		json_end_object(&j);
	}
	json_end_array(&j);
	fputs(",\n", out);
}

static void put_header(FILE *out, const struct manifest_session *s, uint64_t failed)
{
	const struct manifest_totals *t = &s->totals;
	char text[TIME_BYTES];

	fputs("{\n", out);
	put_ku64(out, "version", MANIFEST_VERSION);
	put_kstr(out, "store", s->store_uuid);
	put_kstr(out, "job", s->job);
	put_ku64(out, "node", s->node);
	if (s->num_nodes > 0)
		put_nodes(out, s);
	put_kstr(out, "backing", s->backing);
	put_kstr(out, "destination", s->destination);
	put_ku64(out, "session", s->session);
	put_kstr(out, "started", time_text(s->started_ns, text));
	put_kstr(out, "ended", time_text(s->ended_ns, text));
	put_kstr(out, "result", result_text(s->result));
	put_ku64(out, "exit_status", (uint64_t)s->result);
	fprintf(out,
		"  \"totals\": {\"files\": %" PRIu64 ", \"bytes\": %" PRIu64 ", \"moved\": %" PRIu64
		", \"removed\": %" PRIu64 ", \"failed\": %" PRIu64 ", \"missing_bytes\": %" PRIu64 "},\n",
		t->files, t->bytes, t->names_moved, t->names_removed, failed, t->missing_bytes);
}

/* The key is of what was out of the way, or below it: where it was has been said. */
static bool is_parked(const struct entry *e)
{
	return memmem(e->key.at, e->key.len, MANIFEST_PARKED, sizeof(MANIFEST_PARKED) - 1);
}

enum listing { LIST_FILES, LIST_MOVED, LIST_LINKED, LIST_REMOVED };

static bool is_listed(const struct entry *e, enum listing what)
{
	struct text rest = rest_of(e);

	switch (what) {
	case LIST_MOVED: return !e->gone && e->as == AS_MOVED;
	case LIST_LINKED: return !e->gone && e->as == AS_LINKED;
	case LIST_REMOVED: return e->gone && has_state(&rest, "removed") && !is_parked(e);
	default: return !e->gone && e->as == AS_TOLD && e->said.len > 0;
	}
}

/* It has no name that lists it: from now on this one does. Of a file of which only names have been said there is nothing to list but those. */
static void list_alone(const struct table *t, struct entry *e)
{
	const struct entry *teller = &t->entries[e->teller], *from = known_entry(t, &e->from);

	if (e->said.len == 0) {
		e->gone = from && !from->gone; /* another file by now */
		return;
	}
	e->as = AS_TOLD;
	if (teller->file == e->file)
		e->kept = teller->kept;
}

/* Which name of each file lists it, when all lines are taken; the others are links of that. */
static int settle_links(struct table *t)
{
	size_t *lister = calloc(t->num_files + 1, sizeof(*lister)); /* by file: its entry + 1 */

	if (!lister)
		return -ENOMEM;
	for (size_t i = 0; i < t->num; i++) {
		const struct entry *e = &t->entries[i];
		size_t *one = &lister[e->file];

		if (!e->gone && e->file != 0 && (*one == 0 || t->entries[*one - 1].as > e->as))
			*one = i + 1;
	}
	for (size_t i = 0; i < t->num; i++) {
		struct entry *e = &t->entries[i];
		const struct entry *by;

		if (!is_listed(e, LIST_LINKED))
			continue;
		by = &t->entries[lister[e->file] - 1];
		if (by == e)
			list_alone(t, e);
		else
			e->from = is_parked(by) && by->from.len > 0 ? by->from : by->key;
	}
	free(lister);
	return 0;
}

static int compare_extras(const void *a, const void *b)
{
	const struct extra *x = a, *y = b;
	int r = (x->entry > y->entry) - (x->entry < y->entry);

	r = r ? r : (x->kind > y->kind) - (x->kind < y->kind);
	r = r ? r : (x->off > y->off) - (x->off < y->off);
	r = r ? r : (x->text.len > y->text.len) - (x->text.len < y->text.len);
	r = r ? r : memcmp(x->text.at, y->text.at, x->text.len);
	return r ? r : (x->seq > y->seq) - (x->seq < y->seq);
}

/* Is it of the file that e lists? */
static bool is_extra_of(const struct table *t, const struct entry *e, const struct extra *x)
{
	const struct entry *teller = &t->entries[e->teller];

	if (x->entry != e->teller || teller->file != e->file)
		return false;
	return teller->gone ? x->seq >= teller->extras_were && x->seq < teller->extras_from
			    : x->seq >= teller->extras_from;
}

/* The first one of that entry, or of one behind it; they are in order. */
static size_t first_extra(const struct table *t, size_t entry)
{
	size_t from = 0, end = t->num_extras;

	while (from < end) {
		size_t mid = from + (end - from) / 2;

		if (t->extras[mid].entry < entry)
			from = mid + 1;
		else
			end = mid;
	}
	return from;
}

/* Those of e and one kind, each once. How many. */
static size_t put_extras(
	FILE *out, const struct table *t, const struct entry *e, enum extra_kind kind, const char *separator)
{
	const struct extra *last = NULL;
	size_t num = 0;

	for (size_t at = first_extra(t, e->teller); at < t->num_extras && t->extras[at].entry == e->teller; at++) {
		const struct extra *x = &t->extras[at];

		if (x->kind != kind || !is_extra_of(t, e, x) ||
			(last && last->text.len == x->text.len && memcmp(last->text.at, x->text.at, x->text.len) == 0))
			continue;
		fprintf(out, "%s{%.*s", separator, (int)x->text.len, x->text.at);
		separator = ",";
		last = x;
		num++;
	}
	return num;
}

/*
 * What is said of it, with what is known of overlaps in its list of conflicts, and what is missing at its end. Within a string a quote
 * has a backslash before it, so the key is found where it is one.
 */
static void put_file(FILE *out, const struct table *t, const struct entry *e)
{
	static const char key[] = "\"conflicts\":[";
	const struct text *said = &e->said;
	const char *at = memmem(said->at, said->len, key, sizeof(key) - 1);
	size_t n = at ? (size_t)(at - said->at) + sizeof(key) - 1 : 0, end = said->len - 1;
	struct text conflict;

	fprintf(out, KEY_PREFIX "%.*s", (int)e->key.len, e->key.at);
	if (at && take_string(said->at + n, said->at + said->len, &conflict))
		n += conflict.len; /* one text, and then the list ends */
	fwrite(said->at, 1, n, out);
	if (at)
		put_extras(out, t, e, EXTRA_OVERLAP, said->at[n - 1] == '[' ? "" : ",");
	fwrite(said->at + n, 1, end - n, out);
	if (at && put_extras(out, t, e, EXTRA_MISSING, ",\"missing\":[") > 0)
		fputc(']', out);
	if (e->kept.len > 0)
		fprintf(out, ",\"kept\":{%.*s", (int)e->kept.len, e->kept.at);
	fputc('}', out);
}

static void put_entry(FILE *out, const struct table *t, const struct entry *e)
{
	if (e->gone)
		fwrite(e->line.at, 1, e->line.len, out);
	else if (e->as == AS_TOLD)
		put_file(out, t, e);
	else
		fprintf(out, KEY_PREFIX "%.*s,\"state\":\"%s\",\"from\":%.*s}", (int)e->key.len, e->key.at,
			e->as == AS_MOVED ? "moved" : "linked", (int)e->from.len, e->from.at);
}

static bool has_text(const struct text *t, const char *what)
{
	return t->len > 0 && memmem(t->at, t->len, what, strlen(what));
}

static bool has_missing(const struct table *t, const struct entry *e)
{
	for (size_t at = first_extra(t, e->teller); at < t->num_extras && t->extras[at].entry == e->teller; at++)
		if (t->extras[at].kind == EXTRA_MISSING && is_extra_of(t, e, &t->extras[at]))
			return true;
	return has_text(&e->said, ",\"missing\":[");
}

/* It could not be carried over, or waits. What was carried over though bytes of it are missing has failed for good. */
static bool is_unsettled(const struct table *t, const struct entry *e)
{
	return is_listed(e, LIST_FILES) &&
	       (has_state(&e->said, "dirty") || (has_state(&e->said, "failed") && !has_missing(t, e)));
}

static void drop(struct table *t, FILE *log, struct entry *e)
{
	mark_gone(t, e);
	fprintf(log, KEY_PREFIX "%.*s,\"state\":\"gone\"}\n", (int)e->key.len, e->key.at);
}

/* Of these, what was told before a session that has come to everything, which has said nothing of it; and the links of that. */
static void drop_settled(struct table *t, FILE *log, const char *since)
{
	for (size_t i = 0; i < t->num; i++)
		if (t->entries[i].said.at < since && is_unsettled(t, &t->entries[i]))
			drop(t, log, &t->entries[i]);
	for (size_t i = 0; i < t->num; i++) {
		const struct entry *e = &t->entries[i],
				   *by = is_listed(e, LIST_LINKED) ? known_entry(t, &e->from) : NULL;

		if (by && by->gone && by->file == e->file)
			drop(t, log, &t->entries[i]);
	}
}

static void put_list(FILE *out, const struct table *t, const char *key, enum listing what, const char *end)
{
	const char *separator = "\n";

	fprintf(out, "  \"%s\": [", key);
	for (size_t i = 0; i < t->num; i++) {
		if (!is_listed(&t->entries[i], what))
			continue;
		fprintf(out, "%s    ", separator);
		put_entry(out, t, &t->entries[i]);
		separator = ",\n";
	}
	fputs(*separator == ',' ? "\n  ]" : "]", out);
	fputs(end, out);
}

/* Of a job: each file counts once, however many nodes had trouble with it. */
static uint64_t count_failed(const struct table *t, const char *since)
{
	uint64_t n = 0;

	for (size_t i = 0; i < t->num; i++)
		n += is_listed(&t->entries[i], LIST_FILES) && t->entries[i].said.at >= since &&
		     has_state(&t->entries[i].said, "failed");
	return n;
}

/* The same of files with overlaps; the extras are in the order of their files. */
static uint64_t count_overlapping(const struct table *t, const char *since)
{
	size_t last = SIZE_MAX;
	uint64_t n = 0;

	for (size_t i = 0; i < t->num_extras; i++) {
		const struct extra *x = &t->extras[i];
		const struct entry *e = &t->entries[x->entry];

		if (x->kind != EXTRA_OVERLAP || x->entry == last || !is_extra_of(t, e, x) || e->said.at < since)
			continue;
		n += is_listed(e, LIST_FILES);
		last = x->entry;
	}
	return n;
}

/* Within a string a quote has a backslash before it, so a key is found where it is one. */
static struct manifest_noted count_noted(const struct table *t)
{
	struct manifest_noted n = { 0 };

	for (size_t i = 0; i < t->num; i++) {
		const struct entry *e = &t->entries[i];

		if (!is_listed(e, LIST_FILES) || !(has_state(&e->said, "drained") || has_state(&e->said, "verified")))
			continue;
		n.kept += e->kept.len > 0 && e->kept.at >= t->others &&
			  !has_text(&e->kept, "\"reason\":\"" MANIFEST_KEPT_OTHER "\"");
		n.warned += e->said.at >= t->others && has_text(&e->said, ",\"warning\":");
	}
	return n;
}

void manifest_noted_text(const struct manifest_noted *n, const char *where, char *out, size_t cap)
{
	char kept[64] = "", warned[64] = "";

	if (n->kept > 0)
		snprintf(kept, sizeof(kept), "%" PRIu64 " file%s not in the layout asked for", n->kept,
			n->kept == 1 ? " is" : "s are");
	if (n->warned > 0)
		snprintf(warned, sizeof(warned), "%" PRIu64 " file%s a warning", n->warned,
			n->warned == 1 ? " has" : "s have");
	out[0] = '\0';
	if (*kept || *warned)
		snprintf(out, cap, "%s%s%s: see \"kept\" and \"warning\" in %s", kept, *kept && *warned ? ", " : "",
			warned, where);
}

/* The daemon has no umask: whoever may read the directory may read the manifest, and nobody else write it. */
static FILE *open_summary(const char *path)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0644);
	FILE *out = fd < 0 ? NULL : fdopen(fd, "w");

	if (!out && fd >= 0)
		close(fd);
	return out;
}

static int write_summary(
	const char *path, const struct manifest_session *session, uint64_t failed, const struct table *t)
{
	char temp[4200];
	FILE *out;
	int r = 0;

	if (snprintf(temp, sizeof(temp), "%s.tmp", path) >= (int)sizeof(temp))
		return -ENAMETOOLONG;
	out = open_summary(temp);
	if (!out)
		return -errno;
	put_header(out, session, failed);
	put_list(out, t, "files", LIST_FILES, ",\n");
	put_list(out, t, "moved", LIST_MOVED, ",\n");
	put_list(out, t, "linked", LIST_LINKED, ",\n");
	put_list(out, t, "removed", LIST_REMOVED, "\n}\n");
	if (fflush(out) || ferror(out) || fsync(fileno(out)))
		r = errno ? -errno : -EIO;
	if (fclose(out) && r == 0)
		r = -errno;
	if (r == 0 && rename(temp, path))
		r = -errno;
	if (r < 0)
		unlink(temp);
	return r < 0 ? r : fdio_sync_parent(path);
}

/* A number is given again, in a container soon; with when it began it is one process's. */
static void name_process(struct table *t, pid_t pid)
{
	uint64_t began = 0;

	(void)process_began(pid, &began);
	snprintf(t->sum, sizeof(t->sum), SUM_PREFIX "\"process\":%ld,\"began\":%" PRIu64 "}", (long)pid, began);
}

int manifest_write(
	struct manifest *m, const struct manifest_session *session, const char *path, struct cistern_error *err)
{
	uint64_t failed = session->totals.failed;
	struct table t = { 0 };
	char *text = NULL;
	struct stat st;
	int r = manifest_sync(m, err);

	if (r < 0)
		return r;
	name_process(&t, session->process ? session->process : getpid());
	if (fstat(fileno(m->log), &st))
		r = -errno;
	if (r == 0 && st.st_size > 0) {
		text = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_SHARED, fileno(m->log), 0);
		r = text == MAP_FAILED ? -errno : make_table(&t, text, (size_t)st.st_size);
	}
	if (r == 0)
		r = settle_links(&t);
	if (t.num_extras > 0)
		qsort(t.extras, t.num_extras, sizeof(*t.extras), compare_extras);
	if (r == 0 && text && session->whole)
		drop_settled(&t, m->log, text + session->mark);
	if (r == 0 && session->num_nodes > 0)
		failed = count_failed(&t, text + session->mark);
	if (r == 0 && session->num_nodes > 0 && session->ret_overlapping)
		*session->ret_overlapping = count_overlapping(&t, text + session->mark);
	if (r == 0 && session->ret_noted)
		*session->ret_noted = count_noted(&t);
	if (r == 0)
		r = write_summary(path, session, failed, &t);
	if (r == 0)
		fprintf(m->log, "%s\n", t.sum);
	if (text && text != MAP_FAILED)
		munmap(text, (size_t)st.st_size);
	for (size_t i = 0; i < t.num_made; i++)
		free(t.made[i]);
	free(t.made);
	free(t.entries);
	free(t.slots);
	free(t.extras);
	return r < 0 ? cistern_error_set(err, r, "manifest %s: %s", path, strerror(-r)) : 0;
}
