/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * A map of a file for a terminal: a line for each object, from its first byte to its last, records one after the other, in cells.
 * A cell shows the least that holds of all its bytes: missing before drained before logged, so that a gap is never hidden.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "tools/variables.h"

#define COLUMNS 60u

struct cell {
	uint64_t bytes, logged, drained;
	uint32_t writer;       /* of most bytes so far */
	uint64_t writer_bytes; /* as in a vote: its own, less those of others */
};

struct map {
	const struct survey *s;
	struct cell *cells; /* COLUMNS for each object */
	const struct span *span;
};

static uint64_t cell_begin(uint64_t total, uint32_t column)
{
	return (uint64_t)((unsigned __int128)total * column / COLUMNS);
}

/* At least one byte: those of a small object are in several cells. */
static uint64_t cell_end(uint64_t total, uint32_t column)
{
	uint64_t begin = cell_begin(total, column), end = cell_begin(total, column + 1);

	return end > begin ? end : begin + 1;
}

static void vote(struct cell *c, uint32_t writer, uint64_t bytes)
{
	if (c->writer == writer)
		c->writer_bytes += bytes;
	else if (c->writer_bytes >= bytes)
		c->writer_bytes -= bytes;
	else {
		c->writer = writer;
		c->writer_bytes = bytes - c->writer_bytes;
	}
}

static void mark(const struct coverage_part *part, void *arg)
{
	struct map *m = arg;
	uint64_t total, end = part->at + part->len;

	if (part->object == SIZE_MAX)
		return;
	total = layout_object_bytes(&m->s->layout.objects[part->object]); /* has this part: not 0 */
	for (uint32_t i = (uint32_t)((unsigned __int128)part->at * COLUMNS / total); i < COLUMNS; i++) {
		uint64_t from = cell_begin(total, i), to = cell_end(total, i);
		struct cell *c = &m->cells[part->object * COLUMNS + i];

		if (from >= end)
			break;
		from = from > part->at ? from : part->at;
		to = to < end ? to : end;
		if (to <= from)
			continue;
		if (m->span->state == SPAN_DRAINED)
			c->drained += to - from;
		else
			c->logged += to - from;
		if (m->span->state == SPAN_LOGGED)
			vote(c, survey_colour(m->s, m->span->node, m->span->process), to - from);
	}
}

static void print_cell(const struct cell *c, uint64_t bytes, bool colour)
{
	char letter = bytes == 0                       ? ' '
		      : c->logged + c->drained == 0    ? '_'
		      : c->logged + c->drained < bytes ? '-'
		      : c->logged > 0                  ? '#'
						       : '.';

	if (colour && c->logged > 0)
		printf("\033[%um%c\033[m", 31 + c->writer % 6, letter);
	else
		putchar(letter);
}

static void print_line(const struct survey *s, size_t object, const struct cell *cells, bool colour)
{
	const struct layout_object *o = &s->layout.objects[object];
	uint64_t total = layout_object_bytes(o);

	putchar('|');
	for (uint32_t i = 0; i < COLUMNS; i++)
		print_cell(&cells[i], total > 0 ? cell_end(total, i) - cell_begin(total, i) : 0, colour);
	printf("| ");
	for (const char *p = o->name; *p; p++)
		putchar((unsigned char)*p < 0x20 || *p == 0x7f ? '?' : *p);
	putchar('\n');
}

int variables_map(const struct survey *s, bool colour)
{
	struct map m = { .s = s, .cells = calloc(s->layout.num_objects * COLUMNS + 1, sizeof(*m.cells)) };

	if (!m.cells)
		return -ENOMEM;
	if (!survey_drawable(s))
		puts("there are too many records to draw each");
	for (size_t i = 0; survey_drawable(s) && i < s->spans.num; i++) {
		m.span = &s->spans.list[i];
		coverage_each(s->coverage, m.span->off, m.span->len, mark, &m);
	}
	for (size_t i = 0; survey_drawable(s) && i < s->layout.num_objects; i++)
		print_line(s, i, m.cells + i * COLUMNS, colour);
	puts("# in the store, . in the backing file, - in part, _ missing; colours are nodes, or processes of one");
	free(m.cells);
	return 0;
}
