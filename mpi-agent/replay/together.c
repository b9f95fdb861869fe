/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * A large file of a job is converted by many nodes, since each chunk of it can be compressed and compared alone: its home
 * offers it, helpers compress a share each into files beside it, the home puts these together, helpers compare a share
 * each of what has come of it with the classic file, and the home lets it take the place of that. All meet in the backing directory, which
 * they have in common; what is small (who has done what) goes with the drain's parts.
 *
 * Nothing depends on a helper: what it has not packed the home packs; what it has not compared, or found to differ, the
 * home makes again alone, as if nobody had helped. What lies beside the file has the names of files that several nodes write to, and
 * goes with the session, or with the next one.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mpi-agent/replay/conversion.h"

/* In a struct wire_shared of such a file: path is the new file's, shown the classic file's, written processor time in microseconds. */
#define HOME(f)    ((f)->upto)
#define HELPERS(f) ((f)->stamp)
#define CHECKED(f) ((f)->extents) /* shares that have been compared */

/* The first line of the facts: of which files they are true. */
#define IDENTITY_BYTES 256

static size_t identity(const struct stat *from, const struct stat *to, char out[IDENTITY_BYTES])
{
	return (size_t)snprintf(out, IDENTITY_BYTES,
		"%" PRIu64 " %" PRIu64 " %" PRId64 ".%09ld %" PRIu64 " %" PRIu64 "\n", (uint64_t)from->st_ino,
		(uint64_t)from->st_size, (int64_t)from->st_mtim.tv_sec, from->st_mtim.tv_nsec, (uint64_t)to->st_ino,
		(uint64_t)to->st_size);
}

/* ---- names */

static int join(char *out, const struct wire_shared *f, const char *suffix)
{
	int len = snprintf(out, SESSION_PATH_MAX, "%s.%s", f->path, suffix);

	return len < SESSION_PATH_MAX ? 0 : -ENAMETOOLONG;
}

static int parcel_path(char *out, const struct wire_shared *f, uint32_t which)
{
	char number[16];

	snprintf(number, sizeof(number), "%" PRIu32, which);
	return join(out, f, number);
}

/* What was found out when the file was made, for the home's next part. */
static int facts_path(char *out, const struct wire_shared *f)
{
	return join(out, f, "facts");
}

static int create(struct session *s, const char *path, struct sink_file **ret)
{
	int r = s->to->ops->open(s->to, path, SINK_CREATE, ret);

	if (r == -EEXIST && s->to->ops->remove(s->to, path, false) == 0)
		r = s->to->ops->open(s->to, path, SINK_CREATE, ret);
	return r;
}

/* ---- who */

static uint64_t count_helpers(const struct session *s, uint64_t size)
{
	uint64_t share = s->opt->convert->share_bytes, num = share ? size / share : 1;

	num = num < s->opt->num_nodes ? num : s->opt->num_nodes;
	return num < CONVERT_PARCELS_MAX ? num : CONVERT_PARCELS_MAX;
}

/* Helpers of different files are different nodes. UINT32_MAX: this one does not help. */
static uint32_t my_share(const struct session *s, const struct wire_shared *f)
{
	uint32_t num = s->opt->num_nodes, which = (s->opt->node + num - (uint32_t)(f->ino % num)) % num;

	return which < HELPERS(f) && HELPERS(f) <= CONVERT_PARCELS_MAX ? which : UINT32_MAX;
}

/* cpu_usec: spent on it here. */
static int tell(struct session *s, const struct wire_shared *f, const struct convert_result *res, bool checked)
{
	struct wire_shared mine = *f;

	mine.written = convert_cpu_usec(res);
	mine.extents = checked;
	mine.crc_sum = 0;
	return s->opt->watcher.shared(&mine, 0, s->opt->watcher.arg) < 0 ? -ECONNRESET : 0;
}

/* ---- one file, one step */

struct helping {
	const struct wire_shared *f; /* borrowed */
	struct sink_file *from, *to; /* owned: the classic file, what is made of it */
	char *options;               /* owned */
	struct convert_task task;
	struct convert_result result;
};

static void end_helping(struct helping *h)
{
	sink_file_close(h->from);
	sink_file_close(h->to);
	free(h->options);
}

/* Settings that the file has of its own hold for all who work on it. */
static int begin_helping(struct session *s, const struct wire_shared *f, enum convert_step step, struct helping *h)
{
	const struct inode clean = { 0 };
	enum drain_layout layout;
	int r = s->to->ops->open(s->to, f->shown, SINK_READ, &h->from);

	h->f = f;
	session_set_path(s, f->shown);
	if (r == 0 && conversion_own_layout(s, &clean, h->from, &layout, &h->options, NULL) < 0)
		r = -EINVAL;
	h->task.step = step;
	h->task.num = (uint32_t)HELPERS(f);
	h->task.options = h->options ? h->options : "";
	return r;
}

/* h->to is open. What the program cannot do is done without; only what ends the session is returned. */
static int run(struct session *s, struct helping *h)
{
	h->task.in = h->from->ops->descriptor(h->from);
	h->task.out = h->to->ops->descriptor(h->to);
	return convert_program_run(s, &h->task, &h->result);
}

/* ---- the parts of a drain */

static int offer(struct session *s, struct conversion *c)
{
	char path[SESSION_PATH_MAX], name[RECORD_NAME_MAX + 1];
	struct wire_shared f = { .ino = c->in.ino,
		.upto = s->opt->node,
		.layout = DRAIN_LAYOUT_NETCDF4,
		.path = path,
		.shown = (char *)c->path };
	int r;

	c->quiet = true;
	r = names_sweep(
		s, c->in.origin_parent, c->dir_path); /* what a killed session has left, though the file is done */
	if (r == 0)
		r = conversion_look_at(s, c);
	if (r < 1)
		return s->fatal;
	f.size = (uint64_t)c->st.st_size;
	f.stamp = count_helpers(s, f.size);
	if (f.stamp < 2)
		return 0;
	snprintf(name, sizeof(name), "%s%" PRIu64 "-nc4", s->shared_prefix, c->in.ino);
	if (session_join(path, sizeof(path), c->dir_path, name) < 0)
		return 0;
	r = s->opt->watcher.shared(&f, 0, s->opt->watcher.arg);
	return r == -EBUSY || r == -ENOSPC ? 0 : r;
}

static int pack(struct session *s, const struct wire_shared *f)
{
	struct helping h = { .task.which = my_share(s, f) };
	char path[SESSION_PATH_MAX];
	int r;

	if (h.task.which == UINT32_MAX || parcel_path(path, f, h.task.which) < 0)
		return 0;
	if (begin_helping(s, f, CONVERT_PACK, &h) < 0 || create(s, path, &h.to) < 0) {
		end_helping(&h);
		return 0;
	}
	r = run(s, &h);
	if (!h.result.converted)
		s->to->ops->remove(s->to, path, false);
	end_helping(&h);
	return r < 0 ? r : tell(s, f, &h.result, false);
}

static void open_parcels(struct session *s, struct helping *h, struct sink_file **parcels)
{
	char path[SESSION_PATH_MAX];

	for (uint32_t i = 0; i < h->task.num; i++) {
		h->task.parcels[i] = -1;
		if (parcel_path(path, h->f, i) == 0 && s->to->ops->open(s->to, path, SINK_READ, &parcels[i]) == 0)
			h->task.parcels[i] = parcels[i]->ops->descriptor(parcels[i]);
	}
}

static int note_facts(struct session *s, const struct helping *h)
{
	char path[SESSION_PATH_MAX], text[IDENTITY_BYTES + CONVERT_FACTS_BYTES];
	struct sink_file *out = NULL;
	struct stat from, to;
	size_t len;
	int r = h->from->ops->fstat(h->from, &from);

	if (r == 0)
		r = h->to->ops->fstat(h->to, &to);
	if (r == 0)
		r = facts_path(path, h->f);
	if (r == 0)
		r = create(s, path, &out);
	if (r < 0)
		return r;
	len = identity(&from, &to, text);
	len += convert_facts_encode(&h->result, text + len, sizeof(text) - len);
	r = out->ops->pwrite(out, text, len, 0);
	sink_file_close(out);
	return r;
}

static int make(struct session *s, const struct wire_shared *f)
{
	struct sink_file *parcels[CONVERT_PARCELS_MAX] = { NULL };
	struct helping h = { .f = NULL };
	int r = 0;

	if (HOME(f) != s->opt->node || HELPERS(f) > CONVERT_PARCELS_MAX)
		return 0;
	if (begin_helping(s, f, CONVERT_MAKE, &h) == 0 && create(s, f->path, &h.to) == 0) {
		open_parcels(s, &h, parcels);
		r = run(s, &h);
		if (h.result.converted && (h.to->ops->sync(h.to, true) < 0 || note_facts(s, &h) < 0))
			h.result.converted = false;
		if (!h.result.converted)
			s->to->ops->remove(s->to, f->path, false);
	}
	for (uint32_t i = 0; i < CONVERT_PARCELS_MAX; i++)
		sink_file_close(parcels[i]);
	end_helping(&h);
	return r;
}

static int check(struct session *s, const struct wire_shared *f)
{
	struct helping h = { .task.which = my_share(s, f) };
	int r = 0;

	if (h.task.which == UINT32_MAX)
		return 0;
	if (begin_helping(s, f, CONVERT_CHECK, &h) == 0 && s->to->ops->open(s->to, f->path, SINK_READ, &h.to) == 0) {
		r = run(s, &h);
		if (r == 0)
			r = tell(s, f, &h.result, h.result.converted);
	}
	end_helping(&h);
	return r;
}

int together_offer(struct session *s)
{
	return s->opt->convert && s->opt->convert->now ? conversion_each(s, offer) : 0;
}

int together_help(struct session *s)
{
	int r = 0;

	for (size_t i = 0; r == 0 && s->opt->convert && s->opt->convert->now && i < s->opt->shared.num; i++) {
		const struct wire_shared *f = &s->opt->shared.at[i];

		r = s->opt->part == WIRE_PART_PACK   ? pack(s, f)
		    : s->opt->part == WIRE_PART_MAKE ? make(s, f)
						     : check(s, f);
		if (r == 0)
			r = session_tick(s, false);
	}
	return r;
}

/* ---- at the home, in the end */

static const struct wire_shared *find(const struct session *s, uint64_t ino)
{
	const struct wire_shared *f = s->opt->part == WIRE_PART_CONVERT ? wire_shared_find(&s->opt->shared, ino) : NULL;

	return f && HOME(f) == s->opt->node ? f : NULL;
}

static void add_fact(struct convert_result *res, const char *name, uint64_t value)
{
	struct manifest_fact *fact = &res->facts[res->num_facts];

	if (res->num_facts == CONVERT_FACTS)
		return;
	snprintf(fact->name, sizeof(fact->name), "%s", name);
	snprintf(fact->value, sizeof(fact->value), "%" PRIu64, value);
	fact->is_number = true;
	res->num_facts++;
}

/* 1: they are of the two files as they are now. */
static int take_facts(struct session *s, const struct wire_shared *f, struct conversion *c)
{
	char path[SESSION_PATH_MAX], text[IDENTITY_BYTES + CONVERT_FACTS_BYTES] = "", want[IDENTITY_BYTES];
	struct sink_file *in = NULL;
	struct stat to;
	size_t len;
	ssize_t n = facts_path(path, f);

	if (n == 0)
		n = c->to->ops->fstat(c->to, &to);
	if (n == 0)
		n = s->to->ops->open(s->to, path, SINK_READ, &in);
	if (n == 0)
		n = in->ops->pread(in, text, sizeof(text) - 1, 0);
	sink_file_close(in);
	if (n < 0)
		return 0;
	len = identity(&c->st, &to, want);
	if (strncmp(text, want, len) != 0)
		return 0;
	convert_facts_decode(text + len, &c->result);
	add_fact(&c->result, "nodes", HELPERS(f));
	add_fact(&c->result, "nodes_cpu_usec", f->written);
	return 1;
}

int together_take(struct session *s, struct conversion *c)
{
	const struct wire_shared *f = find(s, c->in.ino);

	if (!f || f->failed || CHECKED(f) != HELPERS(f) || s->to->ops->open(s->to, f->path, SINK_UPDATE, &c->to) < 0)
		return 0;
	if (take_facts(s, f, c) == 0) {
		sink_file_close(c->to);
		c->to = NULL;
		return 0;
	}
	snprintf(c->temp, sizeof(c->temp), "%s", f->path);
	return 1;
}

void together_clean(struct session *s, const struct conversion *c)
{
	const struct wire_shared *f = find(s, c->in.ino);
	char path[SESSION_PATH_MAX];

	if (!f || s->fatal)
		return;
	s->to->ops->remove(s->to, f->path, false);
	if (facts_path(path, f) == 0)
		s->to->ops->remove(s->to, path, false);
	for (uint32_t i = 0; i < HELPERS(f) && i < CONVERT_PARCELS_MAX; i++)
		if (parcel_path(path, f, i) == 0)
			s->to->ops->remove(s->to, path, false);
}
