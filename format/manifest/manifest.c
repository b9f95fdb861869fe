/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * The manifest's log. Every line of a file begins with {"path":"..." and is whole: a line that a killed session left torn is ended before the
 * next one is appended, and passed over when the summary is made. Overlaps and missing bytes have lines of their own, since other nodes know
 * of them than the one that says what became of the file.
 */
#include "format/manifest/manifest.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdio_ext.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "format/base/json.h"
#include "format/manifest/manifest_private.h"

static void note_error(struct manifest *m)
{
	if (m->error == 0 && ferror(m->log))
		m->error = errno ? -errno : -EIO;
}

int manifest_open(const char *log_path, struct manifest **ret, struct cistern_error *err)
{
	struct manifest *m = calloc(1, sizeof(*m));
	int fd;

	if (!m)
		return cistern_error_set(err, -ENOMEM, "no memory for the manifest");
	if (log_path) {
		fd = open(log_path, O_RDWR | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
		m->log = fd < 0 ? NULL : fdopen(fd, "a+");
		if (!m->log && fd >= 0)
			close(fd);
	} else {
		m->log = tmpfile();
	}
	if (!m->log) {
		int r = -errno;

		free(m);
		return cistern_error_set(
			err, r, "manifest %s: %s", log_path ? log_path : "(temporary file)", strerror(-r));
	}
	if (fseek(m->log, -1, SEEK_END) == 0 && fgetc(m->log) != '\n') {
		fseek(m->log, 0, SEEK_END);
		fputc('\n', m->log);
	}
	fseek(m->log, 0, SEEK_END);
	note_error(m);
	*ret = m;
	return 0;
}

void manifest_close(struct manifest *m)
{
	if (!m)
		return;
	fclose(m->log);
	free(m->stores);
	free(m);
}

static void put_checksum(struct json *j, const struct manifest_file *f)
{
	char text[16];

	json_key(j, "checksum");
	if (!f->has_checksum) {
		json_null(j);
		return;
	}
	snprintf(text, sizeof(text), "%08" PRIx32, f->crc);
	json_object(j);
	json_kstr(j, "algorithm", "crc32c");
	json_kstr(j, "value", text);
	json_kstr(j, "of", f->of_file ? "file" : f->of_places ? "written_ranges_in_place" : "written_ranges");
	json_end_object(j);
}

static void put_range(struct json *j, const struct manifest_range *range)
{
	json_ku64(j, "offset", range->off);
	json_ku64(j, "length", range->len);
	if (range->node)
		json_kstr(j, "node", range->node);
}

static void put_missing(struct json *j, const struct manifest_file *f)
{
	json_key(j, "missing");
	json_array(j);
	for (size_t i = 0; i < f->num_missing; i++) {
		json_object(j);
		put_range(j, &f->missing[i]);
		json_end_object(j);
	}
	json_end_array(j);
}

static void put_layout(struct json *j, const struct manifest_file *f)
{
	json_kstr(j, "layout", f->layout);
	if (f->num_facts == 0)
		return;
	json_key(j, "conversion");
	json_object(j);
	for (size_t i = 0; i < f->num_facts; i++) {
		const struct manifest_fact *fact = &f->facts[i];

		if (fact->is_number)
			json_kf64(j, fact->name, strtod(fact->value, NULL));
		else
			json_kstr(j, fact->name, fact->value);
	}
	json_end_object(j);
}

static void end_line(struct manifest *m, struct json *j)
{
	json_end_object(j);
	fputc('\n', m->log);
	note_error(m);
}

void manifest_add_file(struct manifest *m, const struct manifest_file *f)
{
	struct json j;

	json_init(&j, m->log, false);
	json_object(&j);
	json_kstr(&j, "path", f->path);
	json_kstr(&j, "state", f->state);
	json_ku64(&j, "size", f->size);
	json_ku64(&j, "bytes_written", f->bytes_written);
	json_ku64(&j, "extents", f->extents);
	put_checksum(&j, f);
	json_key(&j, "conflicts");
	json_array(&j);
	if (f->conflict)
		json_str(&j, f->conflict);
	json_end_array(&j);
	if (f->warning)
		json_kstr(&j, "warning", f->warning);
	if (f->layout)
		put_layout(&j, f);
	if (f->num_missing > 0)
		put_missing(&j, f);
	if (f->error) {
		json_ku64(&j, "errno", (uint64_t)-f->error);
		json_kstr(&j, "error", f->error_text);
		if (m->node)
			json_kstr(&j, "node", m->node);
	}
	end_line(m, &j);
}

static void begin_line(struct manifest *m, struct json *j, const char *path, const char *state)
{
	json_init(j, m->log, false);
	json_object(j);
	json_kstr(j, "path", path);
	json_kstr(j, "state", state);
}

void manifest_add_overlap(struct manifest *m, const char *path, const struct manifest_overlap *o)
{
	struct json j;

	begin_line(m, &j, path, "overlap");
	json_ku64(&j, "offset", o->off);
	json_ku64(&j, "length", o->len);
	json_key(&j, "nodes");
	json_array(&j);
	json_u64(&j, o->node);
	json_u64(&j, o->other);
	json_end_array(&j);
	end_line(m, &j);
}

void manifest_add_more_overlaps(struct manifest *m, const char *path, uint64_t not_listed)
{
	struct json j;

	begin_line(m, &j, path, "overlap");
	json_ku64(&j, "not_listed", not_listed);
	end_line(m, &j);
}

void manifest_add_missing(struct manifest *m, const char *path, const struct manifest_range *range)
{
	struct json j;

	begin_line(m, &j, path, "missing");
	put_range(&j, range);
	end_line(m, &j);
}

void manifest_add_kept(struct manifest *m, const char *path, const char *layout, const char *reason)
{
	struct json j;

	begin_line(m, &j, path, "kept");
	json_kstr(&j, "layout", layout);
	json_kstr(&j, "reason", reason);
	end_line(m, &j);
}

void manifest_add_beside(struct manifest *m, const char *path, const char *there)
{
	struct json j;

	begin_line(m, &j, path, "beside");
	if (there)
		json_kstr(&j, "as", there);
	end_line(m, &j);
}

void manifest_add_removed(struct manifest *m, const char *path)
{
	struct json j;

	begin_line(m, &j, path, "removed");
	end_line(m, &j);
}

void manifest_add_gone(struct manifest *m, const char *path)
{
	struct json j;

	begin_line(m, &j, path, "gone");
	end_line(m, &j);
}

void manifest_add_moved(struct manifest *m, const char *from, const char *to)
{
	struct json j;

	begin_line(m, &j, to, "moved");
	json_kstr(&j, "from", from);
	end_line(m, &j);
}

void manifest_add_linked(struct manifest *m, const char *from, const char *to)
{
	struct json j;

	begin_line(m, &j, to, "linked");
	json_kstr(&j, "from", from);
	end_line(m, &j);
}

/* Up to the end of the first line that ends behind at_least bytes. */
static int read_lines(int fd, uint64_t from, size_t at_least, struct buf *out)
{
	char piece[4096];

	for (size_t done = 0;;) {
		ssize_t n = pread(fd, piece, sizeof(piece), (off_t)(from + done));
		const char *end = NULL;

		if (n <= 0)
			return n < 0 ? -errno : 0;
		if (done + (size_t)n > at_least) {
			size_t skip = done < at_least ? at_least - done : 0;

			end = memchr(piece + skip, '\n', (size_t)n - skip);
		}
		buf_bytes(out, piece, end ? (size_t)(end + 1 - piece) : (size_t)n);
		if (end)
			return 0;
		done += (size_t)n;
	}
}

int manifest_read(struct manifest *m, uint64_t from, size_t at_least, struct buf *out)
{
	int r;

	if (fflush(m->log))
		return errno ? -errno : -EIO;
	r = read_lines(fileno(m->log), from, at_least, out);
	return r == 0 && !buf_ok(out) ? -ENOMEM : r;
}

int manifest_append(struct manifest *m, const void *lines, size_t len)
{
	struct stat before;
	int r;

	if (fflush(m->log) || fstat(fileno(m->log), &before))
		return -errno;
	if (fwrite(lines, 1, len, m->log) == len && fflush(m->log) == 0)
		return 0;
	r = errno ? -errno : -EIO;
	__fpurge(m->log);
	clearerr(m->log);
	return ftruncate(fileno(m->log), before.st_size) ? -EIO : r; /* what is torn would take the next line with it */
}

void manifest_set_node(struct manifest *m, const char *name)
{
	m->node = name;
}

int manifest_flush(struct manifest *m)
{
	(void)fflush(m->log);
	note_error(m);
	return m->error;
}

uint64_t manifest_mark(struct manifest *m)
{
	struct stat st;

	return fflush(m->log) == 0 && fstat(fileno(m->log), &st) == 0 ? (uint64_t)st.st_size : 0;
}

int manifest_sync(struct manifest *m, struct cistern_error *err)
{
	if (fflush(m->log) || ferror(m->log) || fsync(fileno(m->log)))
		return cistern_error_set(err, -EIO, "the manifest's log could not be written");
	return 0;
}

/* ---- totals */

void manifest_totals_add(struct manifest_totals *sum, const struct manifest_totals *one)
{
	sum->files += one->files;
	sum->bytes += one->bytes;
	sum->names_moved += one->names_moved;
	sum->names_removed += one->names_removed;
	sum->failed += one->failed;
	sum->missing_bytes += one->missing_bytes;
	sum->late += one->late;
}

void manifest_totals_encode(const struct manifest_totals *t, struct buf *out)
{
	buf_u64(out, t->files);
	buf_u64(out, t->bytes);
	buf_u64(out, t->names_moved);
	buf_u64(out, t->names_removed);
	buf_u64(out, t->failed);
	buf_u64(out, t->missing_bytes);
	buf_u64(out, t->late);
}

int manifest_totals_decode(const void *bytes, size_t len, struct manifest_totals *ret)
{
	struct cursor c = cursor_make(bytes, len);
	struct manifest_totals t;

	t.files = cursor_u64(&c);
	t.bytes = cursor_u64(&c);
	t.names_moved = cursor_u64(&c);
	t.names_removed = cursor_u64(&c);
	t.failed = cursor_u64(&c);
	t.missing_bytes = cursor_u64(&c);
	t.late = cursor_u64(&c);
	if (!cursor_ok(&c) || cursor_left(&c) > 0)
		return -EBADMSG;
	*ret = t;
	return 0;
}
