/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * A map of a file for a terminal: a line for each object, from its first byte to its last, records one after the other, in cells.
 * A cell shows the least that holds of all its bytes: missing before drained before logged, so that a gap is never hidden.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "tools/variables.h"

#define COLUMNS_LEAST 60u
#define COLUMNS_MOST  200u
#define NAME_ROOM     24u /* behind a line, for most names, with the bars at its ends */
#define WRITERS_SHOWN 12u

struct cell {
	uint64_t bytes, logged, drained;
	uint32_t writer;       /* of most bytes so far */
	uint64_t writer_bytes; /* as in a vote: its own, less those of others */
};

struct map {
	const struct survey *s;
	struct cell *cells; /* columns for each object */
	uint32_t columns;
	const struct span *span;
};

static uint64_t cell_begin(const struct map *m, uint64_t total, uint32_t column)
{
	return (uint64_t)((unsigned __int128)total * column / m->columns);
}

/* At least one byte: those of a small object are in several cells. */
static uint64_t cell_end(const struct map *m, uint64_t total, uint32_t column)
{
	uint64_t begin = cell_begin(m, total, column), end = cell_begin(m, total, column + 1);

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
	for (uint32_t i = (uint32_t)((unsigned __int128)part->at * m->columns / total); i < m->columns; i++) {
		uint64_t from = cell_begin(m, total, i), to = cell_end(m, total, i);
		struct cell *c = &m->cells[part->object * m->columns + i];

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

static void print_line(const struct map *m, size_t object, bool colour)
{
	const struct layout_object *o = &m->s->layout.objects[object];
	const struct cell *cells = m->cells + object * m->columns;
	uint64_t total = layout_object_bytes(o);

	putchar('|');
	for (uint32_t i = 0; i < m->columns; i++)
		print_cell(&cells[i], total > 0 ? cell_end(m, total, i) - cell_begin(m, total, i) : 0, colour);
	printf("| ");
	for (const char *p = o->name; *p; p++)
		putchar((unsigned char)*p < 0x20 || *p == 0x7f ? '?' : *p);
	putchar('\n');
}

/* Those that show, in the order in which they do. */
static void print_writers(const struct map *m)
{
	size_t num = m->s->layout.num_objects * m->columns;
	uint32_t shown[WRITERS_SHOWN], num_shown = 0, k;

	for (size_t i = 0; i < num && num_shown < WRITERS_SHOWN; i++) {
		if (m->cells[i].logged == 0)
			continue;
		for (k = 0; k < num_shown && shown[k] != m->cells[i].writer; k++)
			continue;
		if (k < num_shown)
			continue;
		shown[num_shown++] = m->cells[i].writer;
		printf("%s\033[%um%s %" PRIu32 "\033[m", num_shown == 1 ? "" : ", ", 31 + m->cells[i].writer % 6,
			m->s->many_nodes ? "node" : "process", m->cells[i].writer);
	}
	if (num_shown > 0)
		puts(num_shown == WRITERS_SHOWN ? ", and perhaps others" : "");
}

static uint32_t columns_of(unsigned int terminal)
{
	uint32_t columns = terminal > NAME_ROOM ? terminal - NAME_ROOM : 0;

	return columns < COLUMNS_LEAST ? COLUMNS_LEAST : columns > COLUMNS_MOST ? COLUMNS_MOST : columns;
}

int variables_map(const struct survey *s, unsigned int terminal, bool colour)
{
	struct map m = { .s = s, .columns = columns_of(terminal) };

	if (!survey_drawable(s)) {
		puts("there are too many records to draw each");
		return 0;
	}
	m.cells = calloc(s->layout.num_objects * m.columns + 1, sizeof(*m.cells));
	if (!m.cells)
		return -ENOMEM;
	for (size_t i = 0; i < s->spans.num; i++) {
		m.span = &s->spans.list[i];
		coverage_each(s->coverage, m.span->off, m.span->len, mark, &m);
	}
	for (size_t i = 0; i < s->layout.num_objects; i++)
		print_line(&m, i, colour);
	puts("# in the store, . in the backing file, - in part, _ missing");
	if (colour)
		print_writers(&m);
	free(m.cells);
	return 0;
}
