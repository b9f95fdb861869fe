/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Writes become cells of a grid, of which the last write that touches one gives the colour, and cells become rectangles, those
 * that continue each other one. So a file of a million writes makes a picture of some hundred kilobytes.
 */
#include "tools/picture.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "format/base/units.h"

#define COLUMNS       480u
#define ROWS          220u
#define CELL          2u /* pixels */
#define LEFT          90u
#define TOP           120u
#define WIDTH         (COLUMNS * CELL)
#define HEIGHT        (ROWS * CELL)
#define NOW           (TOP + HEIGHT + 24u) /* the strip of what is where now */
#define BAND          18u
#define RECORDS_DRAWN 100u
#define LINE          6u  /* pixels of a band whose border is drawn through all */
#define LABEL         14u /* and that the name above it needs */
#define MISSING       0u  /* what a cell holds: nothing, drained, or node + LOGGED */
#define DRAINED       1u
#define LOGGED        2u

static const char *const colours[] = { "#1f77b4", "#ff7f0e", "#2ca02c", "#d62728", "#9467bd", "#8c564b", "#e377c2",
	"#17becf" };
#define NUM_COLOURS   (sizeof(colours) / sizeof(colours[0]))
#define WRITERS_MAX   64u /* that are told apart; more have the last one's colour */
#define WRITERS_NAMED 10u

struct picture {
	const struct survey *s;
	FILE *out;
	uint64_t size;
	uint32_t *cells;               /* ROWS rows of COLUMNS */
	uint32_t writers[WRITERS_MAX]; /* nodes or processes, in the order in which they come */
	uint32_t num_writers;
	/* of the bands of variables */
	uint32_t band_from, band_to; /* columns; of band_object */
	size_t band_object;
	unsigned int num_bands;
};

static const char *colour_of(uint32_t cell)
{
	return cell == DRAINED ? "#b0b0b0" : colours[(cell - LOGGED) % NUM_COLOURS];
}

static uint32_t column_of(const struct picture *p, uint64_t off)
{
	return p->size > 0 && off < p->size ? (uint32_t)((unsigned __int128)off * COLUMNS / p->size) : COLUMNS;
}

/* One past the last column that [off, off + len) touches. */
static uint32_t column_end(const struct picture *p, uint64_t off, uint64_t len)
{
	uint32_t last = column_of(p, off + len - 1);

	return last < COLUMNS ? last + 1 : COLUMNS;
}

static void print_text(FILE *out, const char *text)
{
	for (const unsigned char *c = (const unsigned char *)text; *c; c++) {
		if (*c == '&')
			fputs("&amp;", out);
		else if (*c == '<')
			fputs("&lt;", out);
		else if (*c == '>')
			fputs("&gt;", out);
		else
			fputc(*c < 0x20 || *c >= 0x7f ? '?' : *c, out);
	}
}

static void rectangle(FILE *out, uint32_t x, uint32_t y, uint32_t width, uint32_t height, const char *colour)
{
	fprintf(out, "<rect x='%u' y='%u' width='%u' height='%u' fill='%s'/>\n", x, y, width, height, colour);
}

static void label(FILE *out, uint32_t x, uint32_t y, const char *anchor, const char *text)
{
	fprintf(out, "<text x='%u' y='%u' text-anchor='%s'>", x, y, anchor);
	print_text(out, text);
	fputs("</text>\n", out);
}

/* ---- cells */

static uint32_t cell_of(struct picture *p, uint32_t node, uint32_t process)
{
	uint32_t writer = survey_colour(p->s, node, process), i = 0;

	while (i < p->num_writers && p->writers[i] != writer)
		i++;
	if (i == p->num_writers && i < WRITERS_MAX)
		p->writers[p->num_writers++] = writer;
	return LOGGED + (i < WRITERS_MAX ? i : WRITERS_MAX - 1);
}

static void paint(struct picture *p, uint32_t row, uint64_t off, uint64_t len, uint32_t cell)
{
	uint32_t end;

	if (len == 0 || off >= p->size)
		return;
	end = column_end(p, off, len);
	for (uint32_t i = column_of(p, off); i < end; i++)
		p->cells[row * COLUMNS + i] = cell;
}

/* A row of cells as rectangles. */
static void draw_row(const struct picture *p, const uint32_t *cells, uint32_t y, uint32_t height)
{
	for (uint32_t i = 0, end; i < COLUMNS; i = end) {
		for (end = i + 1; end < COLUMNS && cells[end] == cells[i]; end++)
			continue;
		if (cells[i] != MISSING)
			rectangle(p->out, LEFT + i * CELL, y, (end - i) * CELL, height, colour_of(cells[i]));
	}
}

static void draw_writes(struct picture *p)
{
	const struct survey *s = p->s;

	for (size_t i = 0; i < s->num_writes; i++) {
		uint32_t row = (uint32_t)((unsigned __int128)i * ROWS / s->num_writes);
		/* Few writes are higher than a row. */
		uint32_t end = (uint32_t)((unsigned __int128)(i + 1) * ROWS / s->num_writes);

		do
			paint(p, row, s->writes[i].off, s->writes[i].len,
				cell_of(p, s->writes[i].node, s->writes[i].process));
		while (++row < end);
	}
	for (uint32_t row = 0, end; row < ROWS; row = end) {
		const uint32_t *cells = p->cells + row * COLUMNS;

		for (end = row + 1;
			end < ROWS && memcmp(cells, p->cells + end * COLUMNS, COLUMNS * sizeof(*cells)) == 0; end++)
			continue;
		draw_row(p, cells, TOP + row * CELL, (end - row) * CELL);
	}
}

/* Where a cell has bytes of several kinds, the one that was painted last shows. */
static void draw_now(struct picture *p)
{
	const struct spans *spans = &p->s->spans;

	memset(p->cells, 0, COLUMNS * sizeof(*p->cells));
	for (size_t i = 0; i < spans->num; i++)
		paint(p, 0, spans->list[i].off, spans->list[i].len,
			spans->list[i].state == SPAN_DRAINED ? DRAINED
							     : cell_of(p, spans->list[i].node, spans->list[i].process));
	draw_row(p, p->cells, NOW, BAND);
}

/* ---- variables */

static void end_band(struct picture *p)
{
	uint32_t x = LEFT + p->band_from * CELL, width = (p->band_to - p->band_from) * CELL;

	if (p->band_object == SIZE_MAX || width == 0)
		return;
	rectangle(p->out, x, TOP - BAND - 2, width, BAND, p->num_bands++ % 2 ? "#d8d8d8" : "#f0f0f0");
	if (width < LINE)
		return;
	fprintf(p->out, "<line x1='%u' y1='%u' x2='%u' y2='%u' stroke='#000' stroke-opacity='0.25'/>\n", x,
		TOP - BAND - 2, x, NOW + BAND);
	if (width < LABEL)
		return;
	fprintf(p->out, "<text transform='translate(%u,%u) rotate(-40)'>", x + width / 2, TOP - BAND - 6);
	print_text(p->out, p->s->layout.objects[p->band_object].name);
	fputs("</text>\n", p->out);
}

/* Objects narrower than a column share the band of their neighbour. */
static void add_part(const struct coverage_part *part, void *arg)
{
	struct picture *p = arg;
	uint32_t from = column_of(p, part->off), to = column_end(p, part->off, part->len);

	if (part->object == SIZE_MAX || (part->object != p->band_object && to <= p->band_to))
		return;
	if (part->object != p->band_object) {
		end_band(p);
		p->band_object = part->object;
		p->band_from = from > p->band_to ? from : p->band_to;
	}
	p->band_to = to;
}

/* Where each record begins, when there is room for them. */
static void draw_records(const struct picture *p)
{
	const struct layout *l = &p->s->layout;
	uint64_t begin = UINT64_MAX;

	for (size_t i = 0; i < l->num_objects; i++)
		if (l->objects[i].kind == LAYOUT_RECORDS && l->objects[i].begin < begin)
			begin = l->objects[i].begin;
	if (begin >= p->size || l->num_records > RECORDS_DRAWN)
		return;
	for (uint64_t i = 0; i < l->num_records && begin + i * l->record_bytes < p->size; i++) {
		uint32_t x = LEFT + column_of(p, begin + i * l->record_bytes) * CELL;

		fprintf(p->out,
			"<line x1='%u' y1='%u' x2='%u' y2='%u' stroke='#000' stroke-opacity='0.6' stroke-dasharray='3 3'/>\n",
			x, TOP - BAND - 2, x, NOW + BAND);
	}
}

static void draw_variables(struct picture *p)
{
	if (!survey_drawable(p->s))
		return;
	draw_records(p);
	p->band_object = SIZE_MAX;
	coverage_each(p->s->coverage, 0, p->size, add_part, p);
	end_band(p);
}

/* ---- words */

static void draw_scales(const struct picture *p)
{
	const struct survey *s = p->s;
	char text[UNITS_TEXT], line[64];

	for (unsigned int i = 0; i <= 4; i++)
		label(p->out, LEFT + WIDTH * i / 4, NOW + BAND + 16,
			i == 0   ? "start"
			: i == 4 ? "end"
				 : "middle",
			units_format_bytes((uint64_t)((unsigned __int128)p->size * i / 4), text));
	for (unsigned int i = 0; i <= 4 && s->num_writes > 0; i++) {
		size_t write = (s->num_writes - 1) * i / 4;
		int64_t ns = s->writes[write].time_ns - s->writes[0].time_ns;

		snprintf(line, sizeof(line), "%.3g s", (double)ns / 1e9);
		label(p->out, LEFT - 6, TOP + 10 + (HEIGHT - 10) * i / 4, "end", line);
	}
	label(p->out, LEFT - 6, NOW + 13, "end", "now");
}

static void draw_legend(const struct picture *p)
{
	uint32_t x = LEFT, y = NOW + BAND + 30;
	char text[48];

	for (uint32_t i = 0; i < p->num_writers && i < WRITERS_NAMED; i++, x += 110) {
		rectangle(p->out, x, y, 10, 10, colour_of(LOGGED + i));
		snprintf(text, sizeof(text), "%s %u", p->s->many_nodes ? "node" : "process", p->writers[i]);
		if (!p->s->many_nodes && p->writers[i] == 0)
			strcpy(text, "node's");
		label(p->out, x + 14, y + 9, "start", text);
	}
	rectangle(p->out, x, y, 10, 10, colour_of(DRAINED));
	label(p->out, x + 14, y + 9, "start", "drained");
	if (p->num_writers > WRITERS_NAMED)
		label(p->out, x + 70, y + 9, "start", "and others");
}

static void draw(struct picture *p, const char *title)
{
	const uint32_t width = LEFT + WIDTH + 60, height = NOW + BAND + 56;
	char num[UNITS_COUNT];
	char text[160];

	fprintf(p->out,
		"<svg xmlns='http://www.w3.org/2000/svg' width='%u' height='%u' viewBox='0 0 %u %u' font-family='sans-serif' "
		"font-size='11'>\n",
		width, height, width, height);
	rectangle(p->out, 0, 0, width, height, "#fff");
	fprintf(p->out, "<text x='%u' y='16' font-size='13'>", LEFT);
	print_text(p->out, title);
	snprintf(text, sizeof(text), ": %s; %s, in their order from top to bottom",
		p->s->mapped ? p->s->layout.format : "raw", units_format_count(p->s->num_writes, "write", num));
	print_text(p->out, text);
	fputs("</text>\n", p->out);
	rectangle(p->out, LEFT, TOP, WIDTH, HEIGHT, "#fafafa");
	rectangle(p->out, LEFT, NOW, WIDTH, BAND, "#fafafa");
	draw_writes(p);
	if (p->s->num_writes == 0)
		label(p->out, LEFT + WIDTH / 2, TOP + HEIGHT / 2, "middle",
			"the journal tells of no write of this file");
	draw_now(p);
	draw_variables(p);
	draw_scales(p);
	draw_legend(p);
	fputs("</svg>\n", p->out);
}

int picture_write(const struct survey *s, const char *title, const char *path, struct cistern_error *err)
{
	struct picture p = { .s = s, .size = s->content.size, .cells = calloc(ROWS * COLUMNS, sizeof(*p.cells)) };
	int r = 0;

	if (!p.cells)
		return cistern_error_set(err, -ENOMEM, "out of memory");
	p.out = fopen(path, "we");
	if (p.out)
		draw(&p, title);
	if (!p.out || ferror(p.out))
		r = p.out ? -EIO : -errno;
	if (p.out && fclose(p.out) != 0 && r == 0)
		r = -errno;
	free(p.cells);
	return r < 0 ? cistern_error_set(err, r, "%s: %s", path, strerror(-r)) : 0;
}
