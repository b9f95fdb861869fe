/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * The manifest's log and its summary. Every line of the log begins with {"path":"..." and is whole: a line that a killed
 * session left torn is ended before the next one is appended, and passed over when the summary is made. The summary does
 * not parse JSON: the escaped path, as it stands in the line, is the key, and the last line of a key is its entry.
 */
#include "mpi-agent/replay/manifest.h"

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

#include "format/base/json.h"

#define KEY_PREFIX "{\"path\":"
#define TIME_BYTES 40

struct manifest {
	FILE *log; /* owned */
};

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
	*ret = m;
	return 0;
}

void manifest_close(struct manifest *m)
{
	if (!m)
		return;
	fclose(m->log);
	free(m);
}

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
	json_kstr(j, "of", f->of_file ? "file" : "written_ranges");
	json_end_object(j);
}

static void put_missing(struct json *j, const struct manifest_file *f)
{
	json_key(j, "missing");
	json_array(j);
	for (size_t i = 0; i < f->num_missing; i++) {
		json_object(j);
		json_ku64(j, "offset", f->missing[i].off);
		json_ku64(j, "length", f->missing[i].len);
		json_end_object(j);
	}
	json_end_array(j);
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
	if (f->num_missing > 0)
		put_missing(&j, f);
	if (f->error) {
		json_ku64(&j, "errno", (uint64_t)-f->error);
		json_kstr(&j, "error", f->error_text);
	}
	json_end_object(&j);
	fputc('\n', m->log);
}

void manifest_add_removed(struct manifest *m, const char *path)
{
	struct json j;

	json_init(&j, m->log, false);
	json_object(&j);
	json_kstr(&j, "path", path);
	json_kstr(&j, "state", "removed");
	json_end_object(&j);
	fputc('\n', m->log);
}

void manifest_add_moved(struct manifest *m, const char *from, const char *to)
{
	struct json j;

	json_init(&j, m->log, false);
	json_object(&j);
	json_kstr(&j, "path", to);
	json_kstr(&j, "state", "moved");
	json_kstr(&j, "from", from);
	json_end_object(&j);
	fputc('\n', m->log);
}

/* ---- the summary */

struct text { /* borrowed from the mapped log */
	const char *at;
	size_t len;
};

struct entry {
	struct text key, line;
	bool gone;
};

struct table {
	struct entry *entries; /* owned, in the order of their first line */
	size_t num, cap;
	size_t *slots; /* owned: index + 1 into entries; num_slots a power of two */
	size_t num_slots;
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

static bool has_state(const struct entry *e, const char *state)
{
	char want[32];
	size_t n = (size_t)snprintf(want, sizeof(want), ",\"state\":\"%s\"", state);
	const char *at = e->key.at + e->key.len;

	return (size_t)(e->line.at + e->line.len - at) >= n && memcmp(at, want, n) == 0;
}

static size_t hash(const struct text *t)
{
	uint64_t h = 0xcbf29ce484222325ull;

	for (size_t i = 0; i < t->len; i++)
		h = (h ^ (unsigned char)t->at[i]) * 0x100000001b3ull;
	return (size_t)(h ^ h >> 32);
}

static size_t *slot_of(const struct table *t, const struct text *key)
{
	size_t i = hash(key) & (t->num_slots - 1);

	while (t->slots[i]) {
		const struct text *k = &t->entries[t->slots[i] - 1].key;

		if (k->len == key->len && memcmp(k->at, key->at, k->len) == 0)
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

static int put_entry(struct table *t, const struct entry *e)
{
	size_t *slot;

	if (t->num == t->cap && grow(t) < 0)
		return -ENOMEM;
	slot = slot_of(t, &e->key);
	if (*slot) {
		t->entries[*slot - 1] = *e;
		return 0;
	}
	t->entries[t->num++] = *e;
	*slot = t->num;
	return 0;
}

/* What stood under the old name, and below it, does no longer. */
static void drop_moved(struct table *t, const struct text *from)
{
	for (size_t i = 0; i < t->num; i++) {
		const struct text *k = &t->entries[i].key;
		size_t n = from->len - 1; /* without the closing quote */

		if (k->len > n && memcmp(k->at, from->at, n) == 0 && (k->at[n] == '"' || k->at[n] == '/'))
			t->entries[i].gone = true;
	}
}

static int take_line(struct table *t, const char *line, size_t len)
{
	struct entry e = { .line = { line, len } };
	static const char from_key[] = ",\"state\":\"moved\",\"from\":";
	struct text from;
	size_t prefix = strlen(KEY_PREFIX);

	if (len < prefix + 3 || line[len - 1] != '}' || memcmp(line, KEY_PREFIX, prefix) != 0 ||
		!take_string(line + prefix, line + len, &e.key))
		return 0; /* torn */
	e.gone = has_state(&e, "removed");
	if (has_state(&e, "moved") && take_string(e.key.at + e.key.len + sizeof(from_key) - 1, line + len, &from))
		drop_moved(t, &from);
	return put_entry(t, &e);
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

static void put_header(FILE *out, const struct manifest_session *s)
{
	char text[TIME_BYTES];

	fputs("{\n", out);
	put_ku64(out, "version", MANIFEST_VERSION);
	put_kstr(out, "store", s->store_uuid);
	put_kstr(out, "job", s->job);
	put_ku64(out, "node", s->node);
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
		s->files, s->bytes, s->names_moved, s->names_removed, s->failed, s->missing_bytes);
}

enum listing { LIST_FILES, LIST_MOVED, LIST_REMOVED };

static bool is_listed(const struct entry *e, enum listing what)
{
	switch (what) {
	case LIST_MOVED: return !e->gone && has_state(e, "moved");
	case LIST_REMOVED: return e->gone && has_state(e, "removed");
	default: return !e->gone && !has_state(e, "moved");
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
		fwrite(t->entries[i].line.at, 1, t->entries[i].line.len, out);
		separator = ",\n";
	}
	fputs(*separator == ',' ? "\n  ]" : "]", out);
	fputs(end, out);
}

static int write_summary(const char *path, const struct manifest_session *session, const struct table *t)
{
	char temp[4200];
	FILE *out;
	int r = 0;

	if (snprintf(temp, sizeof(temp), "%s.tmp", path) >= (int)sizeof(temp))
		return -ENAMETOOLONG;
	out = fopen(temp, "we");
	if (!out)
		return -errno;
	put_header(out, session);
	put_list(out, t, "files", LIST_FILES, ",\n");
	put_list(out, t, "moved", LIST_MOVED, ",\n");
	put_list(out, t, "removed", LIST_REMOVED, "\n}\n");
	if (fflush(out) || ferror(out) || fsync(fileno(out)))
		r = errno ? -errno : -EIO;
	if (fclose(out) && r == 0)
		r = -errno;
	if (r == 0 && rename(temp, path))
		r = -errno;
	if (r < 0)
		unlink(temp);
	return r;
}

int manifest_write(
	struct manifest *m, const struct manifest_session *session, const char *path, struct cistern_error *err)
{
	struct table t = { 0 };
	char *text = NULL;
	struct stat st;
	int r = 0;

	if (fflush(m->log) || ferror(m->log) || fsync(fileno(m->log)) || fstat(fileno(m->log), &st))
		return cistern_error_set(err, -EIO, "the manifest's log could not be written");
	if (st.st_size > 0) {
		text = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_SHARED, fileno(m->log), 0);
		r = text == MAP_FAILED ? -errno : make_table(&t, text, (size_t)st.st_size);
	}
	if (r == 0)
		r = write_summary(path, session, &t);
	if (text && text != MAP_FAILED)
		munmap(text, (size_t)st.st_size);
	free(t.entries);
	free(t.slots);
	return r < 0 ? cistern_error_set(err, r, "manifest %s: %s", path, strerror(-r)) : 0;
}
