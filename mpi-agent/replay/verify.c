/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Checks of a file that has been carried over. Checksums come first: that nothing of it changed on its way. Only what passed
 * is looked at as a format, so that a failure there is the application's file and not the carrier's mistake. Where checksums
 * differ, payload and destination are compared byte by byte, to say where, and which variables have it.
 */
#include "mpi-agent/replay/verify.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "format/codec/check.h"

#define NAMES_SHOWN 3u

static ssize_t read_sink(void *buf, size_t len, uint64_t off, void *arg)
{
	struct sink_file *f = arg;

	return f->ops->pread(f, buf, len, off);
}

static bool range_of_sink(uint64_t off, struct source_range *ret, void *arg)
{
	struct sink_file *f = arg;

	return source_seek(f->ops->descriptor(f), off, ret);
}

static struct source source_of(struct sink_file *f, uint64_t size)
{
	return (struct source){ .read_bytes = read_sink, .next_range = range_of_sink, .arg = f, .size = size };
}

/* ---- which bytes, and whose */

struct difference {
	const struct layout *layout;
	uint64_t ranges, first_off;
	const struct layout_object *shown[NAMES_SHOWN];
	size_t num_shown;
	char text[VERIFY_TEXT_BYTES]; /* names and offsets */
};

static void name_object(struct difference *d, const struct layout_object *o, uint64_t off)
{
	size_t at = strlen(d->text);

	for (size_t i = 0; i < d->num_shown; i++)
		if (d->shown[i] == o)
			return;
	if (d->num_shown == NAMES_SHOWN)
		return;
	d->shown[d->num_shown++] = o;
	snprintf(d->text + at, sizeof(d->text) - at, "%s%.50s from offset %" PRIu64 " on", at > 0 ? ", " : "", o->name,
		off);
}

static int on_difference(uint64_t off, void *arg)
{
	struct difference *d = arg;
	const struct layout_object *o = layout_owner(d->layout, off);

	if (d->ranges++ == 0)
		d->first_off = off;
	if (o)
		name_object(d, o, off);
	return 0;
}

/* The layout is read from a destination that is known to give back wrong bytes: so none may be found. */
static void explain(struct session *s, struct copy_job *job)
{
	struct layout l LAYOUT_CLEANUP = { 0 };
	struct source source = source_of(job->to, job->in->size);
	struct difference d = { .layout = &l };
	size_t at = strlen(job->error_text);

	if (check_layout(&source, &l, NULL) < 0)
		l = (struct layout){ 0 };
	if (copy_compare(s->copier, job, on_difference, &d) < 0 || d.ranges == 0)
		return;
	if (d.num_shown > 0)
		snprintf(job->error_text + at, sizeof(job->error_text) - at, ": different are %s", d.text);
	else
		snprintf(job->error_text + at, sizeof(job->error_text) - at, ": different from offset %" PRIu64 " on",
			d.first_off);
}

/* ---- both */

int verify_read(struct session *s, struct copy_job *job)
{
	uint64_t bytes;
	uint32_t crc;
	int r;

	if (!job->in_place && job->end - job->from > job->written)
		s->progress.verify_bytes += job->end - job->from - job->written; /* its holes, too */
	job->to->ops->drop_cache(job->to);
	r = copy_read_back(s->copier, job, &crc, &bytes);
	if (r < 0 || (crc == job->crc && bytes == job->crc_bytes))
		return r;
	snprintf(job->error_text, sizeof(job->error_text),
		"verification failed: checksum %08" PRIx32 " was read back and not %08" PRIx32
		": check the backing directory's file system, then run cistern flush",
		crc, job->crc);
	if (s->opt->verify == DRAIN_VERIFY_FORMAT)
		explain(s, job);
	return -EIO;
}

int verify_format(struct sink_file *f, uint64_t size, char *warning, char *text)
{
	struct source source = source_of(f, size);
	struct check c = { 0 };
	int r = check_file(&source, &c);

	warning[0] = '\0';
	if (r < 0 || c.verdict == CHECK_SOUND)
		return r;
	if (c.verdict != CHECK_BROKEN) {
		snprintf(warning, VERIFY_TEXT_BYTES, "%s", c.text);
		return 0;
	}
	snprintf(text, VERIFY_TEXT_BYTES,
		"verification failed: it begins like %s: %.200s; to have it as it is, mount with verify=read, or unmount and run "
		"cistern recover on the store with --verify read",
		check_format_name(c.format), c.text);
	return -EIO;
}
