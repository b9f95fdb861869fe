/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * The summary of a manifest's log. Of the names of a file one of those that are left lists it, whichever have gone; the others are links of that.
 */
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

#include "format/base/fdio.h"
#include "format/base/json.h"
#include "format/base/process.h"
#include "format/manifest/manifest_private.h"
#include "format/manifest/manifest_table.h"

#define TIME_BYTES 40

/* ---- what is written */

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

static const char *result_text(int result)
{
	return cistern_exit_is_out(result) ? "complete" : result == CISTERN_EXIT_INCOMPLETE ? "incomplete" : "failed";
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

static void put_nodes(FILE *out, const struct manifest_session *s)
{
	struct json j;

	put_ku64(out, "num_nodes", s->num_nodes);
	fputs("  \"nodes\": ", out);
	json_init(&j, out, false);
	json_array(&j);
	for (uint32_t i = 0; s->nodes && i < s->num_nodes; i++)
		json_str(&j, s->nodes[i]);
	json_end_array(&j);
	fputs(",\n  \"troubles\": ", out);
	json_init(&j, out, false);
	json_array(&j);
	for (size_t i = 0; i < s->num_troubles; i++) {
		json_object(&j);
		json_kstr(&j, "node", s->troubles[i].node);
		json_kstr(&j, "error", s->troubles[i].text);
		json_end_object(&j);
	}
	json_end_array(&j);
	fputs(",\n", out);
}

static void put_header(FILE *out, const struct manifest_session *s, uint64_t failed)
{
	const struct manifest_totals *t = &s->totals;
	char text[TIME_BYTES];

	fputs("{\n", out);
	put_ku64(out, "version", MANIFEST_VERSION);
	put_kstr(out, "store", s->store_uuid);
	put_kstr(out, "job", s->job);
	put_ku64(out, "node", s->node);
	if (s->num_nodes > 0)
		put_nodes(out, s);
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
		t->files, t->bytes, t->names_moved, t->names_removed, failed, t->missing_bytes);
}

/* The key is of what was out of the way, or below it: where it was has been said. */
static bool is_parked(const struct entry *e)
{
	return memmem(e->key.at, e->key.len, MANIFEST_PARKED, sizeof(MANIFEST_PARKED) - 1);
}

enum listing { LIST_FILES, LIST_BESIDE, LIST_MOVED, LIST_LINKED, LIST_REMOVED };

static bool is_listed(const struct entry *e, enum listing what)
{
	struct text rest = entry_rest(e);

	switch (what) {
	case LIST_BESIDE: return !e->gone && e->beside.len > 0;
	case LIST_MOVED: return !e->gone && e->as == AS_MOVED;
	case LIST_LINKED: return !e->gone && e->as == AS_LINKED;
	case LIST_REMOVED: return e->gone && text_has_state(&rest, "removed") && !is_parked(e);
	default: return !e->gone && e->as == AS_TOLD && e->said.len > 0;
	}
}

/* It has no name that lists it: from now on this one does. Of a file of which only names have been said there is nothing to list but those. */
static void list_alone(const struct table *t, struct entry *e)
{
	const struct entry *teller = &t->entries[e->teller], *from = table_find(t, &e->from);

	if (e->said.len == 0) {
		e->gone = from && !from->gone; /* another file by now */
		return;
	}
	e->as = AS_TOLD;
	if (teller->file == e->file)
		e->kept = teller->kept;
}

/* Which name of each file lists it, when all lines are taken; the others are links of that. */
static int settle_links(struct table *t)
{
	size_t *lister = calloc(t->num_files + 1, sizeof(*lister)); /* by file: its entry + 1 */

	if (!lister)
		return -ENOMEM;
	for (size_t i = 0; i < t->num; i++) {
		const struct entry *e = &t->entries[i];
		size_t *one = &lister[e->file];

		if (!e->gone && e->file != 0 && (*one == 0 || t->entries[*one - 1].as > e->as))
			*one = i + 1;
	}
	for (size_t i = 0; i < t->num; i++) {
		struct entry *e = &t->entries[i];
		const struct entry *by;

		if (!is_listed(e, LIST_LINKED))
			continue;
		by = &t->entries[lister[e->file] - 1];
		if (by == e)
			list_alone(t, e);
		else
			e->from = is_parked(by) && by->from.len > 0 ? by->from : by->key;
	}
	free(lister);
	return 0;
}

static int compare_extras(const void *a, const void *b)
{
	const struct extra *x = a, *y = b;
	int r = (x->entry > y->entry) - (x->entry < y->entry);

	r = r ? r : (x->kind > y->kind) - (x->kind < y->kind);
	r = r ? r : (x->off > y->off) - (x->off < y->off);
	r = r ? r : (x->text.len > y->text.len) - (x->text.len < y->text.len);
	r = r ? r : memcmp(x->text.at, y->text.at, x->text.len);
	return r ? r : (x->seq > y->seq) - (x->seq < y->seq);
}

/* Is it of the file that e lists? */
static bool is_extra_of(const struct table *t, const struct entry *e, const struct extra *x)
{
	const struct entry *teller = &t->entries[e->teller];

	if (x->entry != e->teller || teller->file != e->file)
		return false;
	return teller->gone ? x->seq >= teller->extras_were && x->seq < teller->extras_from
			    : x->seq >= teller->extras_from;
}

/* The first one of that entry, or of one behind it; they are in order. */
static size_t first_extra(const struct table *t, size_t entry)
{
	size_t from = 0, end = t->num_extras;

	while (from < end) {
		size_t mid = from + (end - from) / 2;

		if (t->extras[mid].entry < entry)
			from = mid + 1;
		else
			end = mid;
	}
	return from;
}

/* Those of e and one kind, each once. How many. */
static size_t put_extras(
	FILE *out, const struct table *t, const struct entry *e, enum extra_kind kind, const char *separator)
{
	const struct extra *last = NULL;
	size_t num = 0;

	for (size_t at = first_extra(t, e->teller); at < t->num_extras && t->extras[at].entry == e->teller; at++) {
		const struct extra *x = &t->extras[at];

		if (x->kind != kind || !is_extra_of(t, e, x) ||
			(last && last->text.len == x->text.len && memcmp(last->text.at, x->text.at, x->text.len) == 0))
			continue;
		fprintf(out, "%s{%.*s", separator, (int)x->text.len, x->text.at);
		separator = ",";
		last = x;
		num++;
	}
	return num;
}

/*
 * What is said of it, with what is known of overlaps in its list of conflicts, and what is missing at its end. Within a string a quote
 * has a backslash before it, so the key is found where it is one.
 */
static void put_file(FILE *out, const struct table *t, const struct entry *e)
{
	static const char key[] = "\"conflicts\":[";
	const struct text *said = &e->said;
	const char *at = memmem(said->at, said->len, key, sizeof(key) - 1);
	size_t n = at ? (size_t)(at - said->at) + sizeof(key) - 1 : 0, end = said->len - 1;
	struct text conflict;

	fprintf(out, KEY_PREFIX "%.*s", (int)e->key.len, e->key.at);
	if (at && text_take_string(said->at + n, said->at + said->len, &conflict))
		n += conflict.len; /* one text, and then the list ends */
	fwrite(said->at, 1, n, out);
	if (at)
		put_extras(out, t, e, EXTRA_OVERLAP, said->at[n - 1] == '[' ? "" : ",");
	fwrite(said->at + n, 1, end - n, out);
	if (at && put_extras(out, t, e, EXTRA_MISSING, ",\"missing\":[") > 0)
		fputc(']', out);
	if (e->kept.len > 0)
		fprintf(out, ",\"kept\":{%.*s", (int)e->kept.len, e->kept.at);
	fputc('}', out);
}

static void put_entry(FILE *out, const struct table *t, const struct entry *e, enum listing what)
{
	if (what == LIST_BESIDE)
		fprintf(out, KEY_PREFIX "%.*s%.*s", (int)e->key.len, e->key.at, (int)e->beside.len, e->beside.at);
	else if (e->gone)
		fwrite(e->line.at, 1, e->line.len, out);
	else if (e->as == AS_TOLD)
		put_file(out, t, e);
	else
		fprintf(out, KEY_PREFIX "%.*s,\"state\":\"%s\",\"from\":%.*s}", (int)e->key.len, e->key.at,
			e->as == AS_MOVED ? "moved" : "linked", (int)e->from.len, e->from.at);
}

static bool has_text(const struct text *t, const char *what)
{
	return t->len > 0 && memmem(t->at, t->len, what, strlen(what));
}

static bool has_missing(const struct table *t, const struct entry *e)
{
	for (size_t at = first_extra(t, e->teller); at < t->num_extras && t->extras[at].entry == e->teller; at++)
		if (t->extras[at].kind == EXTRA_MISSING && is_extra_of(t, e, &t->extras[at]))
			return true;
	return has_text(&e->said, ",\"missing\":[");
}

/* It could not be carried over, or waits. What was carried over though bytes of it are missing has failed for good. */
static bool is_unsettled(const struct table *t, const struct entry *e)
{
	return is_listed(e, LIST_FILES) &&
	       (text_has_state(&e->said, "dirty") || (text_has_state(&e->said, "failed") && !has_missing(t, e)));
}

static void drop(struct table *t, FILE *log, struct entry *e)
{
	table_drop(t, e);
	fprintf(log, KEY_PREFIX "%.*s,\"state\":\"gone\"}\n", (int)e->key.len, e->key.at);
}

/* Of these, what was told before a session that has come to everything, which has said nothing of it; and the links of that. */
static void drop_settled(struct table *t, FILE *log, const char *since)
{
	for (size_t i = 0; i < t->num; i++)
		if (t->entries[i].said.at < since && is_unsettled(t, &t->entries[i]))
			drop(t, log, &t->entries[i]);
	for (size_t i = 0; i < t->num; i++) {
		const struct entry *e = &t->entries[i],
				   *by = is_listed(e, LIST_LINKED) ? table_find(t, &e->from) : NULL;

		if (by && by->gone && by->file == e->file)
			drop(t, log, &t->entries[i]);
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
		put_entry(out, t, &t->entries[i], what);
		separator = ",\n";
	}
	fputs(*separator == ',' ? "\n  ]" : "]", out);
	fputs(end, out);
}

/* Of a job: each file counts once, however many nodes had trouble with it. */
static uint64_t count_failed(const struct table *t, const char *since)
{
	uint64_t n = 0;

	for (size_t i = 0; i < t->num; i++)
		n += is_listed(&t->entries[i], LIST_FILES) && t->entries[i].said.at >= since &&
		     text_has_state(&t->entries[i].said, "failed");
	return n;
}

/* The same of files with overlaps; the extras are in the order of their files. */
static uint64_t count_overlapping(const struct table *t, const char *since)
{
	size_t last = SIZE_MAX;
	uint64_t n = 0;

	for (size_t i = 0; i < t->num_extras; i++) {
		const struct extra *x = &t->extras[i];
		const struct entry *e = &t->entries[x->entry];

		if (x->kind != EXTRA_OVERLAP || x->entry == last || !is_extra_of(t, e, x) || e->said.at < since)
			continue;
		n += is_listed(e, LIST_FILES);
		last = x->entry;
	}
	return n;
}

/* Within a string a quote has a backslash before it, so a key is found where it is one. */
static struct manifest_noted count_noted(const struct table *t)
{
	struct manifest_noted n = { 0 };

	for (size_t i = 0; i < t->num; i++) {
		const struct entry *e = &t->entries[i];

		n.beside += is_listed(e, LIST_BESIDE);
		if (!is_listed(e, LIST_FILES) ||
			!(text_has_state(&e->said, "drained") || text_has_state(&e->said, "verified")))
			continue;
		n.kept += e->kept.len > 0 && e->kept.at >= t->others &&
			  !has_text(&e->kept, "\"reason\":\"" MANIFEST_KEPT_OTHER "\"");
		n.warned += e->said.at >= t->others && has_text(&e->said, ",\"warning\":");
	}
	return n;
}

int manifest_noted_result(int result, const struct manifest_noted *n)
{
	return result == CISTERN_EXIT_OK && n->beside > 0 ? CISTERN_EXIT_BESIDE : result;
}

/* One of several facts, behind those that are there. */
static void add_fact(char *out, size_t cap, uint64_t num, const char *one, const char *more)
{
	size_t len = strlen(out);

	if (num > 0)
		snprintf(out + len, cap - len, "%s%" PRIu64 " file%s %s", len > 0 ? ", " : "", num, num == 1 ? "" : "s",
			num == 1 ? one : more);
}

void manifest_noted_text(const struct manifest_noted *n, const char *where, char *out, size_t cap)
{
	static const char beside[] = "under another name, since somebody else has put something where the name is";
	char is[128], are[128];
	size_t len;

	snprintf(is, sizeof(is), "is %s", beside);
	snprintf(are, sizeof(are), "are %s", beside);
	out[0] = '\0';
	add_fact(out, cap, n->beside, is, are);
	add_fact(out, cap, n->kept, "is not in the layout asked for", "are not in the layout asked for");
	add_fact(out, cap, n->warned, "has a warning", "have a warning");
	len = strlen(out);
	if (len > 0)
		snprintf(out + len, cap - len, ": see %s\"kept\" and \"warning\" in %s",
			n->beside > 0 ? "\"beside\", " : "", where);
}

/* The daemon has no umask: whoever may read the directory may read the manifest, and nobody else write it. */
static FILE *open_summary(const char *path)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0644);
	FILE *out = fd < 0 ? NULL : fdopen(fd, "w");

	if (!out && fd >= 0)
		close(fd);
	return out;
}

/* Under its name when all of it is there, and durable. */
static int publish(const char *path, int (*fill)(FILE *out, const void *arg), const void *arg)
{
	char temp[4200];
	FILE *out;
	int r;

	if (snprintf(temp, sizeof(temp), "%s.tmp", path) >= (int)sizeof(temp))
		return -ENAMETOOLONG;
	out = open_summary(temp);
	if (!out)
		return -errno;
	r = fill(out, arg);
	if (r == 0 && (fflush(out) || ferror(out) || fsync(fileno(out))))
		r = errno ? -errno : -EIO;
	if (fclose(out) && r == 0)
		r = -errno;
	if (r == 0 && rename(temp, path))
		r = -errno;
	if (r < 0)
		unlink(temp);
	return r < 0 ? r : fdio_sync_parent(path);
}

struct summary { /* all borrowed */
	const struct manifest_session *session;
	uint64_t failed;
	const struct table *t;
};

static int put_summary(FILE *out, const void *arg)
{
	const struct summary *s = arg;

	put_header(out, s->session, s->failed);
	put_list(out, s->t, "files", LIST_FILES, ",\n");
	put_list(out, s->t, "beside", LIST_BESIDE, ",\n");
	put_list(out, s->t, "moved", LIST_MOVED, ",\n");
	put_list(out, s->t, "linked", LIST_LINKED, ",\n");
	put_list(out, s->t, "removed", LIST_REMOVED, "\n}\n");
	return 0;
}

static int put_copy(FILE *out, const void *arg)
{
	const int *from = arg;
	struct stat st;

	return fstat(*from, &st) ? -errno : fdio_copy(*from, fileno(out), 0, (uint64_t)st.st_size);
}

int manifest_copy(const char *from, const char *to, struct cistern_error *err)
{
	int fd = open(from, O_RDONLY | O_CLOEXEC), r;

	if (fd < 0)
		return cistern_error_set(err, -errno, "manifest %s: %s", from, strerror(errno));
	r = publish(to, put_copy, &fd);
	close(fd);
	return r < 0 ? cistern_error_set(err, r, "manifest %s: %s", to, strerror(-r)) : 0;
}

/* A number is given again, in a container soon; with when it began it is one process's. */
static void name_process(struct table *t, pid_t pid)
{
	uint64_t began = 0;

	(void)process_began(pid, &began);
	snprintf(t->sum, sizeof(t->sum), SUM_PREFIX "\"process\":%ld,\"began\":%" PRIu64 "}", (long)pid, began);
}

int manifest_write(
	struct manifest *m, const struct manifest_session *session, const char *path, struct cistern_error *err)
{
	struct manifest_session told = *session;
	uint64_t failed = session->totals.failed;
	struct manifest_noted noted;
	struct table t = { 0 };
	char *text = NULL;
	struct stat st;
	int r = manifest_sync(m, err);

	if (r < 0)
		return r;
	name_process(&t, session->process ? session->process : getpid());
	if (fstat(fileno(m->log), &st))
		r = -errno;
	if (r == 0 && st.st_size > 0) {
		text = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_SHARED, fileno(m->log), 0);
		r = text == MAP_FAILED ? -errno : table_make(&t, text, (size_t)st.st_size);
	}
	if (r == 0)
		r = settle_links(&t);
	if (t.num_extras > 0)
		qsort(t.extras, t.num_extras, sizeof(*t.extras), compare_extras);
	if (r == 0 && text && session->whole)
		drop_settled(&t, m->log, text + session->mark);
	if (r == 0 && session->num_nodes > 0)
		failed = count_failed(&t, text + session->mark);
	if (r == 0 && session->num_nodes > 0 && session->ret_overlapping)
		*session->ret_overlapping = count_overlapping(&t, text + session->mark);
	noted = count_noted(&t);
	if (r == 0 && session->ret_noted)
		*session->ret_noted = noted;
	told.result = manifest_noted_result(told.result, &noted);
	if (r == 0)
		r = publish(path, put_summary, &(struct summary){ &told, failed, &t });
	if (r == 0)
		fprintf(m->log, "%s\n", t.sum);
	if (text && text != MAP_FAILED)
		munmap(text, (size_t)st.st_size);
	table_free(&t);
	return r < 0 ? cistern_error_set(err, r, "manifest %s: %s", path, strerror(-r)) : 0;
}
