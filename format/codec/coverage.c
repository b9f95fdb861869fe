/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Extents against a layout. All ranges of objects become slots, in two sorted rows: those that are where they are, and
 * those of records, as offsets in a record. An extent finds its first slot by bisection and walks on from there. Slots of a row
 * never overlap (a damaged file's are cut where they would), so that a byte belongs to one object at most.
 *
 * Extents rise, so the bytes of an object come in rising order, and a count of what has come tells what is complete.
 */
#include "format/codec/coverage.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "format/base/array.h"

struct slot {
	uint64_t off, len; /* in the file, or in a record */
	uint64_t base;     /* the object's first byte in it, counted in the object */
	uint64_t index;    /* of a chunk */
	size_t object;
	uint64_t got; /* bytes that are there (of records: see tally) */
	bool is_heap; /* of the object's heap, wherever in the file that is */
};

struct row {
	struct slot *slots; /* owned; sorted, without overlaps */
	size_t num, cap;
};

struct tally {           /* while extents come in */
	uint64_t prefix; /* all bytes before are there */
	uint64_t record, got;
};

struct share {                      /* what a writer has of an object */
	uint64_t object_and_writer; /* writer's number + 1 in the low half; 0: an unused entry */
	uint64_t bytes;
};

struct coverage {
	const struct layout *layout; /* borrowed */
	struct row fixed, records;
	uint64_t records_begin, period, num_records;
	bool alike;                      /* every record has all that the row of records says */
	struct coverage_object *objects; /* owned; one more than the layout has: the rest */
	struct tally *tallies;
	uint64_t end; /* of the last extent */

	struct coverage_writer *writers; /* owned; all, by number */
	uint32_t *buckets;               /* owned; writers by hash: number + 1 */
	size_t num_writers, num_buckets;
	uint32_t last_writer;
	struct share *shares; /* owned; by hash */
	size_t num_shares, cap_shares;
	struct coverage_writer *told; /* owned; what objects' writers point into */
};

#define FIRST_CAP 64u

/* ---- rows */

static int add_slot(struct row *row, const struct slot *s)
{
	if (s->len == 0)
		return 0;
	if (array_room(&row->slots, &row->cap, row->num, sizeof(*row->slots)) < 0)
		return -ENOMEM;
	row->slots[row->num++] = *s;
	return 0;
}

static int by_off(const void *a, const void *b)
{
	const struct slot *x = a, *y = b;

	return x->off != y->off ? (x->off > y->off) - (x->off < y->off)
				: (x->object > y->object) - (x->object < y->object);
}

/* Sorted, and each slot without what the one before it has. */
static void sort_row(struct row *row)
{
	uint64_t end = 0;
	size_t kept = 0;

	if (row->num > 1)
		qsort(row->slots, row->num, sizeof(*row->slots), by_off);
	for (size_t i = 0; i < row->num; i++) {
		struct slot s = row->slots[i];
		uint64_t cut = s.off < end ? end - s.off : 0;

		if (s.len > UINT64_MAX - s.off)
			s.len = UINT64_MAX - s.off;
		if (cut >= s.len)
			continue;
		s.off += cut;
		s.base += cut;
		s.len -= cut;
		end = s.off + s.len;
		row->slots[kept++] = s;
	}
	row->num = kept;
}

/* The first slot that ends behind off. */
static size_t find_slot(const struct row *row, uint64_t off)
{
	size_t low = 0, high = row->num;

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (row->slots[middle].off + row->slots[middle].len <= off)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

static int add_records(struct coverage *c, size_t object)
{
	const struct layout_object *o = &c->layout->objects[object];
	struct slot s = { .off = o->begin, .len = o->len, .object = object };

	if (o->stride == 0 || o->len > o->stride || (c->period > 0 && o->stride != c->period))
		return -EINVAL;
	c->period = o->stride;
	if (o->count > c->num_records)
		c->num_records = o->count;
	if (c->records.num == 0 || o->begin < c->records_begin)
		c->records_begin = o->begin;
	return add_slot(&c->records, &s);
}

/* Behind the object's other bytes. */
static int add_heap(struct coverage *c, size_t object)
{
	const struct layout_object *o = &c->layout->objects[object];
	uint64_t base = layout_object_bytes(o) - layout_heap_bytes(o);
	int r = 0;

	for (size_t i = 0; r == 0 && i < o->num_heap; i++) {
		struct slot s = { o->heap[i].off, o->heap[i].len, base, o->heap[i].index, object, 0, true };

		r = add_slot(&c->fixed, &s);
		base += s.len;
	}
	return r;
}

static int add_object(struct coverage *c, size_t object)
{
	const struct layout_object *o = &c->layout->objects[object];
	uint64_t base = 0;
	int r = 0;

	c->objects[object].defined_bytes = layout_object_bytes(o);
	if (o->kind == LAYOUT_RECORDS)
		return add_records(c, object);
	if (o->kind == LAYOUT_HEADER || o->kind == LAYOUT_VARIABLE) {
		if (o->count == 0)
			return 0;
		struct slot s = { .off = o->begin, .len = o->len, .object = object };

		return add_slot(&c->fixed, &s);
	}
	for (size_t i = 0; r == 0 && i < o->num_pieces; i++) {
		struct slot s = { o->pieces[i].off, o->pieces[i].len, base, o->pieces[i].index, object, 0, false };

		r = add_slot(&c->fixed, &s);
		base += s.len;
	}
	return r;
}

int coverage_create(const struct layout *l, struct coverage **ret)
{
	struct coverage *c = calloc(1, sizeof(*c));
	int r = c ? 0 : -ENOMEM;

	if (c) {
		c->layout = l;
		c->objects = calloc(l->num_objects + 1, sizeof(*c->objects));
		c->tallies = calloc(l->num_objects + 1, sizeof(*c->tallies));
		r = c->objects && c->tallies ? 0 : -ENOMEM;
	}
	for (size_t i = 0; r == 0 && i < l->num_objects; i++) {
		r = add_object(c, i);
		if (r == 0)
			r = add_heap(c, i);
	}
	if (r < 0) {
		coverage_destroy(c);
		return r;
	}
	for (size_t i = 0; i < c->records.num; i++)
		c->records.slots[i].off -= c->records_begin;
	sort_row(&c->fixed);
	sort_row(&c->records);
	c->alike = true;
	for (size_t i = 0; i < c->records.num; i++) {
		const struct layout_object *o = &l->objects[c->records.slots[i].object];

		c->alike = c->alike && o->count == c->num_records && o->len == c->records.slots[i].len;
	}
	*ret = c;
	return 0;
}

void coverage_destroy(struct coverage *c)
{
	if (!c)
		return;
	free(c->fixed.slots);
	free(c->records.slots);
	free(c->objects);
	free(c->tallies);
	free(c->writers);
	free(c->buckets);
	free(c->shares);
	free(c->told);
	free(c);
}

/* ---- the walk */

struct piece {
	struct slot *slot;     /* NULL: bytes of no object */
	uint64_t off, at, len; /* at: the first byte, counted in the object */
	uint64_t times;        /* the same again in so many records, this one being the first */
};

typedef int (*piece_fn)(struct coverage *c, const struct piece *p, void *arg);

struct stretch { /* of the file, under one row */
	struct row *row;
	uint64_t start, record; /* what offsets in the row are relative to, and which record that is */
	uint64_t off, end;
	uint64_t times;
};

/* What lies between slots is the rest; so is a record of an object that has fewer. */
static int walk_row(struct coverage *c, const struct stretch *w, piece_fn each, void *arg)
{
	uint64_t off = w->off;
	int r = 0;

	for (size_t i = find_slot(w->row, off - w->start); r == 0 && i < w->row->num && off < w->end; i++) {
		struct slot *s = &w->row->slots[i];
		const struct layout_object *o = &c->layout->objects[s->object];
		uint64_t from = w->start + s->off, to = from + s->len < w->end ? from + s->len : w->end;

		if (from >= w->end)
			break;
		if (o->kind == LAYOUT_RECORDS && w->record >= o->count)
			continue;
		if (off < from) {
			r = each(c, &(struct piece){ NULL, off, 0, from - off, w->times }, arg);
			off = from;
		}
		if (r == 0)
			r = each(c,
				&(struct piece){
					s, off, s->base + o->len * w->record + (off - from), to - off, w->times },
				arg);
		off = to;
	}
	return r == 0 && off < w->end ? each(c, &(struct piece){ NULL, off, 0, w->end - off, w->times }, arg) : r;
}

static int walk_fixed(struct coverage *c, uint64_t off, uint64_t end, piece_fn each, void *arg)
{
	return off < end ? walk_row(c, &(struct stretch){ &c->fixed, 0, 0, off, end, 1 }, each, arg) : 0;
}

/* Together: records that are covered from end to end are one stretch, so that an extent of a million million costs no more than one of two. */
static int walk_records(struct coverage *c, uint64_t off, uint64_t end, bool together, piece_fn each, void *arg)
{
	int r = 0;

	while (r == 0 && off < end) {
		uint64_t record = (off - c->records_begin) / c->period, start = c->records_begin + record * c->period;
		struct stretch w = { &c->records, start, record, off, end - start < c->period ? end : start + c->period,
			1 };

		if (together && off == start && c->alike && end - off >= c->period)
			w.times = (end - off) / c->period;
		r = walk_row(c, &w, each, arg);
		off = w.end + (w.times - 1) * c->period;
	}
	return r;
}

static int walk(struct coverage *c, uint64_t off, uint64_t len, bool together, piece_fn each, void *arg)
{
	uint64_t end = len > UINT64_MAX - off ? UINT64_MAX : off + len;
	uint64_t first = c->num_records > 0 ? c->records_begin : UINT64_MAX;
	uint64_t last = c->num_records > 0 ? first + c->period * c->num_records : UINT64_MAX;
	int r = walk_fixed(c, off, end < first ? end : first, each, arg);

	if (r == 0 && end > first)
		r = walk_records(c, off > first ? off : first, end < last ? end : last, together, each, arg);
	return r == 0 && end > last ? walk_fixed(c, off > last ? off : last, end, each, arg) : r;
}

/* ---- writers */

static uint64_t mix(uint64_t v)
{
	v *= UINT64_C(0x9e3779b97f4a7c15);
	return v ^ v >> 29;
}

static size_t bucket_of(const struct coverage *c, uint32_t node, uint32_t process)
{
	size_t i = (size_t)mix((uint64_t)node << 32 | process) & (c->num_buckets - 1);

	while (c->buckets[i] &&
		(c->writers[c->buckets[i] - 1].node != node || c->writers[c->buckets[i] - 1].process != process))
		i = (i + 1) & (c->num_buckets - 1);
	return i;
}

static int grow_writers(struct coverage *c)
{
	size_t num = c->num_buckets ? 2 * c->num_buckets : FIRST_CAP;
	struct coverage_writer *writers = reallocarray(c->writers, num / 2, sizeof(*writers));
	uint32_t *buckets = calloc(num, sizeof(*buckets));

	if (writers)
		c->writers = writers;
	if (!writers || !buckets) {
		free(buckets);
		return -ENOMEM;
	}
	free(c->buckets);
	c->buckets = buckets;
	c->num_buckets = num;
	for (size_t i = 0; i < c->num_writers; i++)
		c->buckets[bucket_of(c, writers[i].node, writers[i].process)] = (uint32_t)i + 1;
	return 0;
}

/* The writer's number; most often it is the one that wrote before. */
static int intern(struct coverage *c, const struct coverage_extent *e, uint32_t *ret_writer)
{
	const struct coverage_writer *last = &c->writers[c->last_writer];
	size_t bucket;

	if (c->num_writers == 0 || last->node != e->node || last->process != e->process) {
		if (2 * c->num_writers >= c->num_buckets && grow_writers(c) < 0)
			return -ENOMEM;
		bucket = bucket_of(c, e->node, e->process);
		if (!c->buckets[bucket]) {
			c->writers[c->num_writers] = (struct coverage_writer){ .node = e->node, .process = e->process };
			c->buckets[bucket] = (uint32_t)++c->num_writers;
		}
		c->last_writer = c->buckets[bucket] - 1;
	}
	*ret_writer = c->last_writer;
	return 0;
}

static struct share *share_of(struct share *shares, size_t cap, uint64_t key)
{
	size_t i = (size_t)mix(key) & (cap - 1);

	while (shares[i].object_and_writer && shares[i].object_and_writer != key)
		i = (i + 1) & (cap - 1);
	return &shares[i];
}

static int grow_shares(struct coverage *c)
{
	size_t cap = c->cap_shares ? 2 * c->cap_shares : FIRST_CAP;
	struct share *grown = calloc(cap, sizeof(*grown));

	if (!grown)
		return -ENOMEM;
	for (size_t i = 0; i < c->cap_shares; i++)
		if (c->shares[i].object_and_writer)
			*share_of(grown, cap, c->shares[i].object_and_writer) = c->shares[i];
	free(c->shares);
	c->shares = grown;
	c->cap_shares = cap;
	return 0;
}

static int credit(struct coverage *c, size_t object, uint32_t writer, uint64_t bytes)
{
	uint64_t key = (uint64_t)object << 32 | (writer + 1);
	struct share *s;

	if (2 * c->num_shares >= c->cap_shares && grow_shares(c) < 0)
		return -ENOMEM;
	s = share_of(c->shares, c->cap_shares, key);
	c->num_shares += s->object_and_writer == 0;
	s->object_and_writer = key;
	s->bytes += bytes;
	return 0;
}

/* ---- adding */

struct adding {
	const struct coverage_extent *e;
	uint32_t writer;
};

static void count_complete(struct coverage *c, const struct piece *p)
{
	const struct layout_object *o = &c->layout->objects[p->slot->object];
	struct tally *t = &c->tallies[p->slot->object];

	if (p->slot->is_heap) {
		p->slot->got += p->len;
		return;
	}
	if (p->at == t->prefix)
		t->prefix += p->len * p->times;
	if (o->kind != LAYOUT_RECORDS) {
		p->slot->got += p->len;
		return;
	}
	if (p->at / o->len != t->record) {
		t->record = p->at / o->len;
		t->got = 0;
	}
	t->got += p->len;
	if (t->got == o->len)
		c->objects[p->slot->object].complete += p->times;
	t->record += p->times - 1;
}

static int add_piece(struct coverage *c, const struct piece *p, void *arg)
{
	const struct adding *a = arg;
	size_t object = p->slot ? p->slot->object : c->layout->num_objects;
	uint64_t bytes = p->len * p->times;
	struct coverage_object *o = &c->objects[object];

	if (a->e->state == COVERAGE_LOGGED)
		o->logged_bytes += bytes;
	else
		o->drained_bytes += bytes;
	if (p->slot)
		count_complete(c, p);
	return a->e->state == COVERAGE_LOGGED && a->e->node != COVERAGE_NOBODY ? credit(c, object, a->writer, bytes)
									       : 0;
}

int coverage_add(struct coverage *c, const struct coverage_extent *e)
{
	struct adding a = { .e = e };
	int r = 0;

	if (e->off < c->end || e->len > UINT64_MAX - e->off)
		return -EINVAL;
	if (e->state == COVERAGE_LOGGED && e->node != COVERAGE_NOBODY)
		r = intern(c, e, &a.writer);
	c->end = e->off + e->len;
	return r == 0 ? walk(c, e->off, e->len, true, add_piece, &a) : r;
}

static int note_piece(struct coverage *c, const struct piece *p, void *arg)
{
	c->objects[p->slot ? p->slot->object : c->layout->num_objects].noted_bytes += p->len * p->times;
	return 0;
}

void coverage_note(struct coverage *c, uint64_t off, uint64_t len)
{
	walk(c, off, len, true, note_piece, NULL);
}

void coverage_forget_notes(struct coverage *c)
{
	for (size_t i = 0; i <= c->layout->num_objects; i++)
		c->objects[i].noted_bytes = c->objects[i].kept_bytes;
}

void coverage_keep_notes(struct coverage *c)
{
	for (size_t i = 0; i <= c->layout->num_objects; i++)
		c->objects[i].kept_bytes = c->objects[i].noted_bytes;
}

/* ---- fill values */

struct looking {
	const uint8_t *bytes;
	uint64_t off;
};

static uint64_t count_equal(const uint8_t *bytes, uint64_t num, const uint8_t *value, uint32_t size)
{
	uint64_t equal = 0, wanted = 0, found = 0;

	if (size > sizeof(wanted)) {
		for (uint64_t i = 0; i < num; i++)
			equal += memcmp(bytes + i * size, value, size) == 0;
		return equal;
	}
	memcpy(&wanted, value, size);
	for (uint64_t i = 0; i < num; i++) {
		memcpy(&found, bytes + i * size, size);
		equal += found == wanted;
	}
	return equal;
}

static int look_piece(struct coverage *c, const struct piece *p, void *arg)
{
	const struct looking *l = arg;
	const struct layout_object *o = p->slot ? &c->layout->objects[p->slot->object] : NULL;
	uint64_t skip, num;

	if (!o || !o->has_fill || o->filtered || p->slot->is_heap)
		return 0;
	skip = (o->element_bytes - p->at % o->element_bytes) % o->element_bytes;
	if (skip >= p->len)
		return 0;
	num = (p->len - skip) / o->element_bytes;
	c->objects[p->slot->object].looked_bytes += num * o->element_bytes;
	c->objects[p->slot->object].fill_bytes +=
		o->element_bytes * count_equal(l->bytes + (p->off - l->off) + skip, num, o->fill, o->element_bytes);
	return 0;
}

void coverage_look(struct coverage *c, uint64_t off, const void *bytes, size_t len)
{
	struct looking l = { bytes, off };

	walk(c, off, len, false, look_piece, &l);
}

/* ---- telling */

struct telling {
	void (*each)(const struct coverage_part *part, void *arg);
	void *arg;
};

static int tell_piece(struct coverage *c, const struct piece *p, void *arg)
{
	const struct telling *t = arg;
	struct coverage_part part = { p->slot ? p->slot->object : SIZE_MAX, p->off, p->at, p->len };

	t->each(&part, t->arg);
	return 0;
}

void coverage_each(struct coverage *c, uint64_t off, uint64_t len,
	void (*each)(const struct coverage_part *part, void *arg), void *arg)
{
	struct telling t = { each, arg };

	walk(c, off, len, false, tell_piece, &t);
}

/* A chunk is not whole without what its elements have in a heap. */
static void open_chunk(struct coverage *c, const struct slot *s, uint8_t *whole)
{
	struct coverage_object *o = &c->objects[s->object];

	if (!s->is_heap || s->got == s->len)
		return;
	if (s->index < c->layout->objects[s->object].num_pieces) {
		o->complete -= whole[s->index];
		whole[s->index] = 0;
	} else if (o->complete > 0) {
		o->complete--;
	}
}

/* Nor is a variable; the gap is the first element with something missing. */
static void judge_heap(struct coverage *c, const struct slot *s)
{
	struct coverage_object *o = &c->objects[s->object];

	if (!s->is_heap || s->got == s->len || c->layout->objects[s->object].kind != LAYOUT_VARIABLE)
		return;
	o->complete = 0;
	if (s->index < o->gap)
		o->gap = s->index;
}

/* Of chunks: the lowest index of which not every byte is there, also of one that has no place in the file. */
static int judge_chunks(struct coverage *c)
{
	size_t num = 0;
	uint8_t *whole; /* by index, object after object */
	size_t *first = calloc(c->layout->num_objects + 1, sizeof(*first));

	for (size_t i = 0; first && i < c->layout->num_objects; i++) {
		first[i] = num;
		num += c->layout->objects[i].num_pieces;
	}
	whole = calloc(num + 1, 1);
	for (size_t i = 0; first && whole && i < c->fixed.num; i++) {
		const struct slot *s = &c->fixed.slots[i];

		if (!s->is_heap && s->got == s->len && s->index < c->layout->objects[s->object].num_pieces)
			whole[first[s->object] + s->index] = 1;
	}
	for (size_t i = 0; first && whole && i < c->fixed.num; i++)
		if (c->layout->objects[c->fixed.slots[i].object].kind == LAYOUT_CHUNKS)
			open_chunk(c, &c->fixed.slots[i], whole + first[c->fixed.slots[i].object]);
	for (size_t i = 0; first && whole && i < c->layout->num_objects; i++) {
		const struct layout_object *o = &c->layout->objects[i];
		size_t k = 0;

		if (o->kind != LAYOUT_CHUNKS)
			continue;
		while (k < o->num_pieces && whole[first[i] + k])
			k++;
		if (k < layout_parts(o))
			c->objects[i].gap = k;
	}
	num = first && whole;
	free(first);
	free(whole);
	return num ? 0 : -ENOMEM;
}

static int judge(struct coverage *c)
{
	for (size_t i = 0; i < c->fixed.num; i++)
		c->objects[c->fixed.slots[i].object].complete +=
			!c->fixed.slots[i].is_heap && c->fixed.slots[i].got == c->fixed.slots[i].len;
	for (size_t i = 0; i <= c->layout->num_objects; i++)
		c->objects[i].gap = UINT64_MAX;
	for (size_t i = 0; i < c->layout->num_objects; i++) {
		const struct layout_object *o = &c->layout->objects[i];

		if (o->kind != LAYOUT_HEADER && o->kind != LAYOUT_VARIABLE && o->kind != LAYOUT_RECORDS)
			continue;
		if (c->tallies[i].prefix < c->objects[i].defined_bytes - layout_heap_bytes(o) ||
			(o->kind == LAYOUT_VARIABLE && o->count == 0 && layout_parts(o) > 0))
			c->objects[i].gap = c->tallies[i].prefix;
	}
	for (size_t i = 0; i < c->fixed.num; i++)
		judge_heap(c, &c->fixed.slots[i]);
	return judge_chunks(c);
}

static int by_bytes(const void *a, const void *b)
{
	const struct coverage_writer *x = a, *y = b;

	if (x->bytes != y->bytes)
		return x->bytes < y->bytes ? 1 : -1;
	return x->node != y->node ? (x->node > y->node) - (x->node < y->node)
				  : (x->process > y->process) - (x->process < y->process);
}

static int tell_writers(struct coverage *c)
{
	struct coverage_writer *at = malloc((c->num_shares + 1) * sizeof(*at));

	if (!at)
		return -ENOMEM;
	c->told = at;
	for (size_t i = 0; i < c->cap_shares; i++)
		if (c->shares[i].object_and_writer)
			c->objects[c->shares[i].object_and_writer >> 32].num_writers++;
	for (size_t i = 0; i <= c->layout->num_objects; i++) {
		c->objects[i].writers = at;
		at += c->objects[i].num_writers;
		c->objects[i].num_writers = 0;
	}
	for (size_t i = 0; i < c->cap_shares; i++) {
		const struct share *s = &c->shares[i];
		struct coverage_object *o = &c->objects[s->object_and_writer >> 32];

		if (!s->object_and_writer)
			continue;
		o->writers[o->num_writers] = c->writers[(uint32_t)s->object_and_writer - 1];
		o->writers[o->num_writers++].bytes = s->bytes;
	}
	for (size_t i = 0; i <= c->layout->num_objects; i++)
		if (c->objects[i].num_writers > 1)
			qsort(c->objects[i].writers, c->objects[i].num_writers, sizeof(*at), by_bytes);
	return 0;
}

int coverage_finish(struct coverage *c)
{
	int r = judge(c);

	return r < 0 ? r : tell_writers(c);
}

const struct coverage_object *coverage_of(const struct coverage *c, size_t object)
{
	return &c->objects[object];
}

const struct coverage_object *coverage_rest(const struct coverage *c)
{
	return &c->objects[c->layout->num_objects];
}

void coverage_index(const struct layout_object *o, uint64_t byte, uint64_t *ret_index)
{
	uint64_t element = o->element_bytes > 0 ? byte / o->element_bytes : byte;

	for (uint32_t i = o->num_dims; i-- > 0;) {
		uint64_t len = i == 0 || o->dims[i] == 0 ? UINT64_MAX : o->dims[i]; /* the slowest takes what is left */

		ret_index[i] = element % len;
		element /= len;
	}
}
