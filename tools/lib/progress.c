/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Progress lines. The rate is smoothed over about the last ten samples, so that the time left does not jump with each
 * window of the drain; a task that starts over (less done than before) starts a new measure.
 */
#include "tools/lib/progress.h"

#include <stdarg.h>
#include <string.h>
#include <unistd.h>

#include "format/base/units.h"

#define SMOOTHING        0.2
#define MIN_SAMPLE_USEC  100000u
#define MAX_LEFT_SECONDS (100.0 * 86400)

void progress_init(struct progress *p, FILE *out, const char *label, uint64_t now_usec)
{
	*p = (struct progress){ .out = out, .label = label, .last_usec = now_usec, .shown_usec = now_usec };
	p->tty = out && isatty(fileno(out));
}

/* Appends to a line and stops, terminated, at its end. */
static void __attribute__((format(printf, 3, 4))) add(char *line, size_t cap, const char *fmt, ...)
{
	size_t len = strlen(line);
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(line + len, cap - len, fmt, ap);
	va_end(ap);
}

/* Names may hold any byte; a terminal must not be steered by them. */
static void add_name(char *line, size_t cap, const char *name)
{
	size_t len = strlen(line), left = strlen(name);

	if (len + 40 > cap)
		return;
	if (left > 60)
		name += left - 60; /* the end of a path says more than its beginning */
	for (; *name && len + 1 < cap; name++)
		line[len++] = (unsigned char)*name < 0x20 || *name == 0x7f ? '?' : *name;
	line[len] = '\0';
}

static double left_bytes(const struct progress_bytes *b)
{
	double left = b->total_bytes > b->done_bytes ? (double)(b->total_bytes - b->done_bytes) : 0;

	return b->verify_bytes > b->verified_bytes ? left + (double)(b->verify_bytes - b->verified_bytes) : left;
}

static void add_done(char *line, size_t cap, const struct progress_bytes *b)
{
	double all = (double)b->total_bytes + (double)b->verify_bytes;
	char text[UNITS_TEXT], total[UNITS_TEXT];

	add(line, cap, "%s", units_format_bytes(b->done_bytes, text));
	if (b->total_bytes > 0)
		add(line, cap, " of %s", units_format_bytes(b->total_bytes, total));
	if (b->verify_bytes > 0)
		add(line, cap, ", %s of %s verified", units_format_bytes(b->verified_bytes, text),
			units_format_bytes(b->verify_bytes, total));
	if (all > 0)
		add(line, cap, " (%d %%)", (int)(100.0 * (all - left_bytes(b)) / all));
}

const char *progress_format(
	char *out, size_t cap, const char *label, const struct progress_bytes *b, double rate, const char *what)
{
	double left = left_bytes(b);
	char text[UNITS_TEXT];

	out[0] = '\0';
	add(out, cap, "%s: ", label);
	add_done(out, cap, b);
	if (rate >= 1) {
		add(out, cap, ", %s/s", units_format_bytes((uint64_t)rate, text));
		if (left > 0 && left / rate < MAX_LEFT_SECONDS)
			add(out, cap, ", %s left", units_format_usec((uint64_t)(left / rate * 1e6), text));
	}
	if (what && *what) {
		add(out, cap, ", ");
		add_name(out, cap, what);
	}
	return out;
}

static void measure(struct progress *p, uint64_t done_bytes, uint64_t now_usec)
{
	double rate;

	if (done_bytes < p->last_bytes) {
		p->rate = 0;
	} else {
		if (now_usec < p->last_usec + MIN_SAMPLE_USEC)
			return;
		rate = (double)(done_bytes - p->last_bytes) * 1e6 / (double)(now_usec - p->last_usec);
		p->rate = p->rate > 0 ? p->rate + SMOOTHING * (rate - p->rate) : rate;
	}
	p->last_bytes = done_bytes;
	p->last_usec = now_usec;
}

static bool is_time(const struct progress *p, uint64_t now_usec)
{
	return p->out && now_usec >= p->shown_usec + (p->tty ? PROGRESS_TTY_USEC : PROGRESS_PLAIN_USEC);
}

static void show(struct progress *p, const char *line, uint64_t now_usec)
{
	if (!p->tty && strcmp(p->line, line) == 0 && now_usec < p->shown_usec + PROGRESS_SAME_USEC)
		return;
	p->shown_usec = now_usec;
	snprintf(p->line, sizeof(p->line), "%s", line);
	fprintf(p->out, p->tty ? "\r%s\033[K" : "%s\n", line);
	fflush(p->out);
	p->shown = p->tty;
}

void progress_update(struct progress *p, const struct progress_bytes *b, const char *what, uint64_t now_usec)
{
	char line[PROGRESS_LINE];

	measure(p, b->done_bytes + b->verified_bytes, now_usec);
	if (is_time(p, now_usec))
		show(p, progress_format(line, sizeof(line), p->label, b, p->rate, what), now_usec);
}

void progress_wait(struct progress *p, const char *what, uint64_t now_usec)
{
	char line[PROGRESS_LINE];

	snprintf(line, sizeof(line), "%s: waits for %s", p->label, what);
	if (is_time(p, now_usec))
		show(p, line, now_usec);
}

void progress_end(struct progress *p)
{
	if (p->shown)
		fputs("\r\033[K", p->out);
	p->shown = false;
}
