/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * The order of things: content, then spans, then the layout, then what of the layout the spans cover; the journal is read by the
 * caller, who wants other things of it as well, and comes last.
 */
#include "tools/lib/survey.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "format/base/array.h"
#include "format/codec/check.h"
#include "format/codec/classic.h"

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
	uint64_t bytes = 0;

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
				   s->spans.list[next].state == first->state;
			next++)
			end += s->spans.list[next].len;
		if (first->state == SPAN_LOGGED)
			r = look_at(s, first->off, end, block);
	}
	s->looked = r == 0;
	free(block);
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
	s->has_generations =
		generations_init(&s->generations, store_segments(s->content.store), header_reach(&s->layout)) == 0;
}

/* s is where it stays: the coverage points to its layout. */
static int fill_in(struct survey *s, const struct survey_options *opt)
{
	int r = spans_gather(&s->content, opt->others, opt->num_others, &s->spans);

	for (size_t i = 0; r == 0 && i < s->spans.num; i++)
		if (s->spans.list[i].state == SPAN_LOGGED)
			s->many_nodes = s->many_nodes ||
					s->spans.list[i].node != store_superblock(s->content.store)->node_index;
	if (r == 0)
		r = check_layout(content_read, &s->content, s->content.size, &s->layout, &s->why);
	s->mapped = r == 0;
	if (r < 0)
		return s->why.code < 0 && r != -ENOMEM ? 0 : r; /* raw, and it is known why */
	r = cover(s);
	if (r == 0 && (opt->look || is_little(s)))
		look(s);
	if (r == 0)
		watch_headers(s);
	return r;
}

int survey_open(struct store *st, const struct inode *in, uint64_t size, const struct survey_options *opt,
	struct survey *ret, struct cistern_error *err)
{
	int r;

	*ret = (struct survey){ .want_writes = opt->writes };
	r = content_open(st, in, size, opt->mounted, &ret->content, err);
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
	layout_destroy(&s->layout);
	spans_free(&s->spans);
	generations_free(&s->generations);
	content_close(&s->content);
	free(s->writes);
	s->coverage = NULL;
	s->writes = NULL;
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

int survey_note(const struct record *rec, void *arg)
{
	struct survey *s = arg;

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
	if (s->has_generations)
		generations_note(&s->generations, rec);
	return s->error;
}

uint64_t survey_overwritten(const struct survey *s, const struct coverage_object *o)
{
	return o->noted_bytes > o->logged_bytes ? o->noted_bytes - o->logged_bytes : 0;
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
