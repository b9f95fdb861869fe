/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * The order of things: content, then spans, then the layout, then what of the layout the spans cover; the journal is read by the
 * caller, who wants other things of it as well, and comes last.
 */
#include "tools/lib/survey.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "format/base/array.h"
#include "format/codec/check.h"
#include "format/codec/classic.h"
#include "tools/lib/moment.h"

#define LOOK_BYTES (256u << 20) /* more payload than this is read only when asked for */
#define LOOK_SPANS 100000u
#define BLOCK      (1u << 20)
#define DRAWABLE   50000000u /* parts; a second or so */

/* ---- what is there */

static int cover(struct survey *s)
{
	int r = coverage_create(&s->layout, &s->coverage);

	for (size_t i = 0; r == 0 && i < s->spans.num; i++) {
		const struct span *span = &s->spans.list[i];
		struct coverage_extent e = {
			.off = span->off, .len = span->len, .node = span->node, .process = span->process
		};

		e.state = span->state == SPAN_LOGGED ? COVERAGE_LOGGED : COVERAGE_DRAINED;
		r = coverage_add(s->coverage, &e);
	}
	return r == 0 ? coverage_finish(s->coverage) : r;
}

static bool is_little(const struct survey *s)
{
	uint64_t bytes = s->elsewhere.logged_bytes;

	for (size_t i = 0; i < s->spans.num; i++)
		if (s->spans.list[i].state == SPAN_LOGGED)
			bytes += s->spans.list[i].len;
	return bytes <= LOOK_BYTES && s->spans.num <= LOOK_SPANS;
}

static int look_at(struct survey *s, uint64_t off, uint64_t end, uint8_t *block)
{
	while (off < end) {
		size_t len = end - off < BLOCK ? (size_t)(end - off) : BLOCK;
		ssize_t n = content_read(block, len, off, &s->content);

		if (n <= 0)
			return (int)n;
		coverage_look(s->coverage, off, block, (size_t)n);
		off += (uint64_t)n;
	}
	return 0;
}

/* All logged bytes, neighbours in one go. A payload that cannot be read is fsck's business: there is no answer then. */
static void look(struct survey *s)
{
	uint8_t *block = malloc(BLOCK);
	int r = block ? 0 : -ENOMEM;

	for (size_t i = 0, next; r == 0 && i < s->spans.num; i = next) {
		const struct span *first = &s->spans.list[i];
		uint64_t end = first->off + first->len;

		for (next = i + 1; next < s->spans.num && s->spans.list[next].off == end &&
				   s->spans.list[next].state == first->state &&
				   content_is_unseen(&s->content, s->spans.list[next].node) ==
					   content_is_unseen(&s->content, first->node);
			next++)
			end += s->spans.list[next].len;
		if (first->state == SPAN_LOGGED && !content_is_unseen(&s->content, first->node))
			r = look_at(s, first->off, end, block);
	}
	if (r == 0)
		r = elsewhere_look(&s->elsewhere);
	s->looked = r == 0;
	free(block);
}

/* ---- what is in stores that are not given */

static void add_unseen(const struct coverage_part *part, void *arg)
{
	struct survey *s = arg;

	if (part->object != SIZE_MAX)
		s->unseen_of[part->object] += part->len;
}

static int list_unseen(struct survey *s)
{
	s->unseen = calloc(SURVEY_UNSEEN_MAX, sizeof(*s->unseen));
	if (!s->unseen)
		return -ENOMEM;
	for (size_t i = 0; i < s->spans.num; i++) {
		const struct span *span = &s->spans.list[i];

		if (span->state != SPAN_LOGGED || !content_is_unseen(&s->content, span->node))
			continue;
		s->unseen_bytes += span->len;
		if (s->num_unseen++ < SURVEY_UNSEEN_MAX)
			s->unseen[s->num_unseen - 1] = *span;
	}
	return 0;
}

static int share_out_unseen(struct survey *s)
{
	s->unseen_of = calloc(s->layout.num_objects + 1, sizeof(*s->unseen_of));
	if (!s->unseen_of)
		return -ENOMEM;
	for (size_t i = 0; s->unseen_bytes > 0 && i < s->spans.num; i++) {
		const struct span *span = &s->spans.list[i];

		if (span->state == SPAN_LOGGED && content_is_unseen(&s->content, span->node))
			coverage_each(s->coverage, span->off, span->len, add_unseen, s);
	}
	return 0;
}

/* ---- headers */

/* Up to where a header may have reached: to the first variable. */
static uint64_t header_reach(const struct layout *l)
{
	uint64_t reach = UINT64_MAX, header = 0;

	for (size_t i = 0; i < l->num_objects; i++) {
		const struct layout_object *o = &l->objects[i];

		if (o->kind == LAYOUT_HEADER)
			header = o->begin + o->len;
		else if (o->begin < reach)
			reach = o->begin;
	}
	return reach == UINT64_MAX ? header : reach;
}

static void watch_headers(struct survey *s)
{
	uint8_t magic[4];
	ssize_t n = content_read(magic, sizeof(magic), 0, &s->content);

	if (n < 4 || !classic_is(magic, sizeof(magic)) || s->content.private_fd >= 0)
		return;
	s->has_generations = generations_init(&s->generations, header_reach(&s->layout)) == 0;
}

/* ---- what of header and metadata is lost */

#define DOUBT_BYTES  (16u << 20) /* so much of what a failed mapping has read is looked at, */
#define DOUBT_PIECES 256u        /* and so many pieces of metadata */

static int look_for_losses(struct survey *s, uint64_t off, uint64_t end)
{
	uint64_t first;

	return s->content.mounted_fd >= 0 || s->content.in.ino == 0 ? 0 : losses_look(&s->content, off, end, &first);
}

static bool is_data(const struct layout_object *o)
{
	return o && o->kind != LAYOUT_HEADER && o->kind != LAYOUT_METADATA;
}

/* Not all damage breaks a rule of the format. */
static int look_at_metadata(struct survey *s)
{
	int r = 0;

	for (size_t i = 0; r == 0 && i < s->layout.num_objects; i++) {
		const struct layout_object *o = &s->layout.objects[i];

		if (o->kind == LAYOUT_HEADER)
			r = look_for_losses(s, o->begin, o->begin + o->len);
		for (size_t k = 0; o->kind == LAYOUT_METADATA && r == 0 && k < o->num_pieces && k < DOUBT_PIECES; k++)
			r = look_for_losses(s, o->pieces[k].off, o->pieces[k].off + o->pieces[k].len);
	}
	return r;
}

static void say_lost_metadata(struct survey *s)
{
	const struct losses *lost = &s->content.losses;
	char note[sizeof(s->layout.note)];
	size_t i = 0;

	while (i < lost->num && is_data(layout_owner(&s->layout, lost->list[i].off)))
		i++;
	if (i == lost->num)
		return;
	memcpy(note, s->layout.note, sizeof(note));
	snprintf(s->layout.note, sizeof(s->layout.note),
		"metadata of it is lost (below): what that leads to is not in the table, or not as it was%s%.150s",
		note[0] ? ": " : "", note);
}

/* mapped: what came of it. */
static int doubt(struct survey *s, int mapped)
{
	const struct losses *lost = &s->content.losses;
	int r = 0;

	if (mapped == -ENOMEM)
		return mapped;
	if (mapped == 0)
		r = look_at_metadata(s);
	else if (lost->num == 0)
		r = look_for_losses(s, 0, s->content.reach < DOUBT_BYTES ? s->content.reach : DOUBT_BYTES);
	if (r < 0 || lost->num == 0)
		return r < 0 ? r : mapped;
	if (mapped == 0)
		say_lost_metadata(s);
	else
		cistern_error_set(&s->why, mapped, "%s is lost (below), and with it what the other bytes mean",
			lost->list[0].off == 0 ? "the beginning of its header" : "a part of its header");
	return mapped;
}

/* ---- the layout */

static ssize_t read_survey(void *buf, size_t len, uint64_t off, void *arg)
{
	struct survey *s = arg;

	return content_read(buf, len, off, &s->content);
}

/* What the stores have was written; what else there is may be a block that the backing file system filled up with zeros. */
static bool range_of_spans(uint64_t off, struct source_range *ret, void *arg)
{
	const struct survey *s = arg;
	size_t low = 0, high = s->spans.num;

	while (low < high) { /* the first one that ends behind off */
		size_t middle = low + (high - low) / 2;

		if (s->spans.list[middle].off + s->spans.list[middle].len <= off)
			low = middle + 1;
		else
			high = middle;
	}
	if (low == s->spans.num)
		return false;
	ret->off = s->spans.list[low].off;
	ret->end = ret->off + s->spans.list[low].len;
	ret->written = s->spans.list[low].state == SPAN_LOGGED && s->content.private_fd < 0;
	return true;
}

/* s is where it stays: the coverage points to its layout. */
static int fill_in(struct survey *s, const struct survey_options *opt)
{
	struct source source = { read_survey, range_of_spans, s, s->content.size };
	int r = spans_gather(&s->content, &s->spans);

	for (size_t i = 0; r == 0 && i < s->spans.num; i++)
		if (s->spans.list[i].state == SPAN_LOGGED)
			s->many_nodes = s->many_nodes ||
					s->spans.list[i].node != store_superblock(s->content.store)->node_index;
	if (r == 0)
		r = list_unseen(s);
	if (r == 0)
		r = doubt(s, check_layout(&source, &s->layout, &s->why));
	s->mapped = r == 0;
	if (r < 0)
		return s->why.code < 0 && r != -ENOMEM ? 0 : r; /* raw, and it is known why */
	r = cover(s);
	if (r == 0)
		r = elsewhere_open(
			s->content.stores, s->content.store, opt->path, opt->mounted, &s->layout, &s->elsewhere);
	if (r == 0)
		r = share_out_unseen(s);
	if (r == 0 && (opt->look || is_little(s)))
		look(s);
	if (r == 0)
		watch_headers(s);
	return r;
}

int survey_open(const struct stores *all, struct store *st, const struct inode *in, uint64_t size,
	const struct survey_options *opt, struct survey *ret, struct cistern_error *err)
{
	int r;

	*ret = (struct survey){ .want_writes = opt->writes };
	r = content_open(all, st, in, size, opt->mounted, &ret->content, err);
	if (r < 0)
		return r;
	r = fill_in(ret, opt);
	if (r < 0) {
		survey_close(ret);
		return cistern_error_set(err, r, "%s", strerror(-r));
	}
	return 0;
}

void survey_close(struct survey *s)
{
	coverage_destroy(s->coverage);
	elsewhere_close(&s->elsewhere);
	layout_destroy(&s->layout);
	spans_free(&s->spans);
	generations_free(&s->generations);
	content_close(&s->content);
	free(s->writes);
	free(s->unseen);
	free(s->unseen_of);
	s->coverage = NULL;
	s->writes = NULL;
	s->unseen = NULL;
	s->unseen_of = NULL;
}

/* ---- the journal */

static void keep_write(struct survey *s, const struct record *rec, uint64_t off, uint64_t len)
{
	if (s->coverage)
		coverage_note(s->coverage, off, len);
	if (!s->want_writes)
		return;
	if (array_room(&s->writes, &s->cap_writes, s->num_writes, sizeof(*s->writes)) < 0) {
		s->error = -ENOMEM;
		return;
	}
	s->writes[s->num_writes++] = (struct survey_write){ off, len, rec->seq, rec->time_ns, rec->node,
		rec->writer ? rec->writer : COVERAGE_NOBODY };
}

void survey_begin(struct survey *s, struct store *store)
{
	s->noting = store;
	if (s->coverage)
		coverage_keep_notes(s->coverage);
	elsewhere_keep_notes(&s->elsewhere);
}

int survey_note(const struct record *rec, void *arg)
{
	struct survey *s = arg;

	elsewhere_note(&s->elsewhere, rec);
	if (rec->ino != s->content.in.ino || rec->ino == 0)
		return 0;
	if (rec->type == RECORD_WRITE)
		keep_write(s, rec, rec->off, rec->len);
	for (size_t i = 0; rec->type == RECORD_EXTENTS && i < rec->num_ranges; i++)
		keep_write(s, rec, rec->ranges[i].off, rec->ranges[i].len);
	if (rec->type == RECORD_DRAINED && s->coverage) {
		coverage_forget_notes(s->coverage);
		s->only_since_drain = true;
	}
	if (s->has_generations && s->error == 0)
		s->error = generations_note(&s->generations, store_segments(s->noting), rec);
	return s->error;
}

static int by_time(const void *a, const void *b)
{
	const struct survey_write *x = a, *y = b;

	return moment_compare(
		(struct moment){ x->time_ns, x->node, x->seq }, (struct moment){ y->time_ns, y->node, y->seq });
}

/* Of one store, the journal's order is that of the writes, whatever the clock said. */
void survey_finish(struct survey *s)
{
	bool many = false;

	for (size_t i = 1; i < s->num_writes; i++)
		many = many || s->writes[i].node != s->writes[0].node;
	if (many)
		qsort(s->writes, s->num_writes, sizeof(*s->writes), by_time);
	if (s->has_generations)
		generations_finish(&s->generations);
}

bool survey_reaches_elsewhere(const struct survey *s)
{
	return s->elsewhere.coverage != NULL;
}

const struct coverage_object *survey_object(const struct survey *s, size_t object)
{
	const struct coverage_object *o = elsewhere_of(&s->elsewhere, object);

	return o ? o : coverage_of(s->coverage, object);
}

uint64_t survey_overwritten(const struct survey *s, size_t object)
{
	const struct coverage_object *o = coverage_of(s->coverage, object);

	if (elsewhere_of(&s->elsewhere, object))
		return elsewhere_overwritten(&s->elsewhere, object);
	return o->noted_bytes > o->logged_bytes ? o->noted_bytes - o->logged_bytes : 0;
}

uint64_t survey_unseen(const struct survey *s, size_t object)
{
	return elsewhere_of(&s->elsewhere, object) ? elsewhere_unseen(&s->elsewhere, object) : s->unseen_of[object];
}

uint32_t survey_colour(const struct survey *s, uint32_t node, uint32_t process)
{
	if (s->many_nodes)
		return node;
	return process == COVERAGE_NOBODY ? 0 : process;
}

bool survey_drawable(const struct survey *s)
{
	uint64_t parts = 0;

	for (size_t i = 0; i < s->layout.num_objects && parts < DRAWABLE; i++) {
		const struct layout_object *o = &s->layout.objects[i];

		parts += o->count < DRAWABLE ? o->count + o->num_pieces : DRAWABLE;
	}
	return s->mapped && parts < DRAWABLE;
}
