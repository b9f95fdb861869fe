/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Files of several nodes in blob layout (docs/design/blob-layouts.md, "Jobs of many nodes"). Beside the temporary file that the home
 * makes stand, with more behind its name:
 *
 *   .deal.N  what node N has of the file
 *   .NNNN    subfiles
 *   .kept    why it is in canonical order after all
 *
 * The temporary file itself has the header from the beginning on. Nothing of this outlives the file's publication, and all of it
 * is made again when a drain begins anew.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "format/place/place.h"
#include "mpi-agent/replay/blobs.h"

#define EXTENTS_AT_ONCE 4096u
#define DEAL_FILE_MAX   (1ull << 30)

/* ---- small files beside the temporary one */

static int write_beside(struct session *s, const char *path, const void *bytes, size_t len)
{
	struct sink_file *f = NULL;
	int r = s->to->ops->remove(s->to, path, false);

	if (r == 0 || r == -ENOENT)
		r = s->to->ops->open(s->to, path, SINK_CREATE, &f);
	if (r == 0)
		r = f->ops->pwrite(f, bytes, len, 0);
	sink_file_close(f);
	return r;
}

static int read_beside(struct session *s, const char *path, uint64_t max, struct buf *out)
{
	struct sink_file *f = NULL;
	struct stat st;
	ssize_t got = 0;
	int r = s->to->ops->open(s->to, path, SINK_READ, &f);

	if (r == 0)
		r = f->ops->fstat(f, &st);
	if (r == 0 && (uint64_t)st.st_size > max)
		r = -EFBIG;
	if (r == 0) {
		buf_zeros(out, (size_t)st.st_size);
		r = buf_ok(out) ? 0 : -ENOMEM;
	}
	if (r == 0)
		got = f->ops->pread(f, out->data, out->len, 0);
	sink_file_close(f);
	return r < 0 ? r : got < 0 ? (int)got : (size_t)got < out->len ? -EIO : 0;
}

static int beside(char *out, size_t cap, const struct wire_shared *f, const char *end)
{
	int n = snprintf(out, cap, "%s.%s", f->path, end);

	return n < 0 || (size_t)n >= cap ? -ENAMETOOLONG : 0;
}

static int deal_path(char *out, size_t cap, const struct wire_shared *f, uint32_t node)
{
	char end[32];

	snprintf(end, sizeof(end), "deal.%" PRIu32, node);
	return beside(out, cap, f, end);
}

/* Any node may say why; the home reads it. */
static int keep(struct session *s, struct wire_shared *f, const char *why)
{
	char path[SESSION_PATH_MAX];
	int r = beside(path, sizeof(path), f, "kept");

	f->layout = DRAIN_LAYOUT_CANONICAL;
	return r < 0 ? r : write_beside(s, path, why, strlen(why));
}

int blob_kept(struct session *s, const struct wire_shared *f, char **ret)
{
	struct buf BUF_CLEANUP text = { 0 };
	char path[SESSION_PATH_MAX];
	int r = f->in_place ? -ENOENT : beside(path, sizeof(path), f, "kept");

	*ret = NULL;
	if (r == 0)
		r = read_beside(s, path, BLOB_WHY, &text);
	if (r == 0)
		buf_u8(&text, 0);
	if (r == 0 && buf_ok(&text))
		*ret = strdup((const char *)text.data);
	return r == -ENOENT ? 0 : r < 0 ? r : *ret ? 0 : -ENOMEM;
}

/* ---- begin, at the home */

const char *blob_haste_text(enum wire_haste haste)
{
	return haste == WIRE_HASTE_ROOM
		       ? "the store needed room before the mount was unmounted"
		       : "not all nodes of the job were unmounted in time, so its last drain did not come";
}

int blob_begin(struct session *s, const struct inode *in, struct wire_shared *f, enum drain_layout layout)
{
	struct buf BUF_CLEANUP header = { 0 };
	struct sink_file *to = NULL;
	char why[BLOB_WHY] = "";
	int r;

	if (!s->opt->convert->now)
		return keep(s, f, blob_haste_text(s->opt->convert->haste));
	r = blob_plan_header(s, in, &header, why);
	if (r == -EOPNOTSUPP)
		return keep(s, f, why);
	if (r == 0)
		r = s->to->ops->open(s->to, f->path, SINK_UPDATE, &to);
	if (r == 0)
		r = to->ops->pwrite(to, header.data, header.len, 0);
	sink_file_close(to);
	f->layout = (uint8_t)layout;
	return r;
}

bool blob_waits(const struct session *s)
{
	return !s->opt->convert->now && s->opt->convert->haste == WIRE_HASTE_NONE;
}

/* ---- deal, on every node */

/* What the maps of the domains here have of each node. */
static int add_domain(struct session *s, const struct wire_shared *f, uint64_t off, uint64_t end, struct deal_sum *sums)
{
	struct share_extent *e = malloc(EXTENTS_AT_ONCE * sizeof(*e));
	uint64_t next;
	size_t num;
	int r = e ? 0 : -ENOMEM;

	while (r == 0 && off < end) {
		r = state_share_extents(s->st, f->ino, off, end - off, e, EXTENTS_AT_ONCE, &num, &next);
		for (size_t i = 0; r == 0 && i < num; i++) {
			if (e[i].kind == EXTENT_LOG && e[i].node < s->opt->num_nodes)
				deal_sum_add(&sums[e[i].node], e[i].off, e[i].len);
			else if (e[i].kind == EXTENT_LOG)
				r = -EBADMSG;
		}
		off = next;
	}
	free(e);
	return r;
}

static int add_seen(struct session *s, const struct wire_shared *f, struct deal *deal)
{
	uint32_t num = s->opt->num_nodes;
	uint64_t step = s->opt->domain_size;
	struct deal_sum *sums = calloc(num, sizeof(*sums));
	int r = 0;

	deal->seen = calloc(num, sizeof(*deal->seen));
	if (!sums || !deal->seen)
		r = -ENOMEM;
	for (uint64_t off = 0; r == 0 && off < f->size; off += step)
		if (place_domain(f->ino, off, step, num) == s->opt->node)
			r = add_domain(s, f, off, off + step < f->size ? off + step : f->size, sums);
	for (uint32_t n = 0; r == 0 && n < num; n++)
		if (sums[n].bytes > 0)
			deal->seen[deal->num_seen++] = (struct deal_seen){ n, sums[n] };
	free(sums);
	return r;
}

/* What this node has of it, as a file of its own. */
static int view_of(struct session *s, const struct wire_shared *f, struct inode *ret)
{
	struct extent e;
	uint64_t next;
	size_t num = 0;
	int r = state_inode(s->st, f->ino, ret);

	if (r == -ENOENT) {
		*ret = (struct inode){ .ino = f->ino };
		return 0;
	}
	if (r == 0)
		r = state_uncommitted(s->st, f->ino, 0, &e, 1, &num, &next);
	if (r == 0 && num > 0)
		r = -EBUSY; /* the session is not what it is taken for */
	ret->size = f->size;
	ret->flags = INODE_NEW | (ret->flags & INODE_WRITERS);
	ret->backing_limit = 0;
	return r;
}

static int plan_part(
	struct session *s, const struct wire_shared *f, struct inode *in, struct blob_plan *plan, struct deal *deal)
{
	struct sink_file *head = NULL;
	int r = view_of(s, f, in);

	if (r == 0)
		r = s->to->ops->open(s->to, f->path, SINK_READ, &head);
	if (r == 0)
		r = blob_plan_part(s, in, head, plan, deal);
	sink_file_close(head);
	deal->node = s->opt->node;
	return r;
}

static int write_deal(struct session *s, const struct wire_shared *f)
{
	struct buf BUF_CLEANUP bytes = { 0 };
	struct blob_plan plan = { 0 };
	struct deal deal = { 0 };
	char path[SESSION_PATH_MAX];
	struct inode in;
	int r = plan_part(s, f, &in, &plan, &deal);

	if (r == 0)
		r = add_seen(s, f, &deal);
	if (r == 0)
		r = deal_encode(&deal, &bytes);
	if (r == 0)
		r = deal_path(path, sizeof(path), f, s->opt->node);
	if (r == 0)
		r = write_beside(s, path, bytes.data, bytes.len);
	blob_plan_free(&plan);
	deal_free(&deal);
	return r;
}

/* ---- blobs, on every node */

static void free_deals(struct deal *deals, uint32_t num)
{
	for (uint32_t n = 0; deals && n < num; n++)
		deal_free(&deals[n]);
	free(deals);
}

static int read_deals(struct session *s, const struct wire_shared *f, struct deal **ret)
{
	uint32_t num = s->opt->num_nodes;
	struct deal *deals = calloc(num, sizeof(*deals));
	char path[SESSION_PATH_MAX];
	int r = deals ? 0 : -ENOMEM;

	for (uint32_t n = 0; r == 0 && n < num; n++) {
		struct buf BUF_CLEANUP bytes = { 0 };

		r = deal_path(path, sizeof(path), f, n);
		if (r == 0)
			r = read_beside(s, path, DEAL_FILE_MAX, &bytes);
		if (r == 0)
			r = deal_decode(bytes.data, bytes.len, &deals[n]);
	}
	if (r < 0)
		free_deals(deals, num);
	else
		*ret = deals;
	return r;
}

/* A number that is another one when something else has been written, wherever. Commits have other stamps after a restart. */
static uint64_t what_is_written(struct session *s, const struct wire_shared *f, const struct deal *deals)
{
	const uint64_t factor = 0x9e3779b97f4a7c15u;
	uint64_t number = f->size;

	for (uint32_t n = 0; n < s->opt->num_nodes; n++) {
		number = number * factor + deals[n].own.bytes;
		number = number * factor + deals[n].own.places;
		number = number * factor + deals[n].own.squares;
	}
	return number;
}

/* The subfiles here, of a plan that all have agreed on. */
static int write_subfiles(struct session *s, struct wire_shared *f, const struct inode *in, struct blob_plan *plan,
	const struct deal *deals, char why[BLOB_WHY])
{
	struct unite_plan all = { 0 };
	struct blob_done done = { 0 };
	int r = unite(deals, s->opt->num_nodes, &plan->header, s->opt->convert->num_subfiles, &all, why);

	if (r == 0)
		r = blob_plan_unite(s, plan, deals, s->opt->num_nodes, &all);
	blob_plan_set(plan, store_superblock(s->opt->store)->job_uuid, f->ino, what_is_written(s, f, deals));
	if (r == 0)
		r = blob_write_part(s, in, plan, f->path, (enum drain_layout)f->layout, &done, why);
	if (r == 0) {
		f->written = done.written;
		f->extents = done.extents;
	}
	unite_free(&all);
	return r;
}

/* What one node refuses all refuse, by what its deal says. */
static int write_blobs(struct session *s, struct wire_shared *f, char why[BLOB_WHY])
{
	struct blob_plan plan = { 0 };
	struct deal *deals = NULL, own = { 0 };
	struct inode in;
	int r = read_deals(s, f, &deals);

	for (uint32_t n = 0; r == 0 && n < s->opt->num_nodes; n++)
		if (deals[n].why[0])
			r = blob_refuse(why, "%s", deals[n].why);
	if (r == 0)
		r = plan_part(s, f, &in, &plan, &own);
	if (r == 0)
		r = write_subfiles(s, f, &in, &plan, deals, why);
	blob_plan_free(&plan);
	deal_free(&own);
	free_deals(deals, s->opt->num_nodes);
	return r;
}

static int tell(struct session *s, const struct wire_shared *f, int status)
{
	const struct drain_watcher *w = &s->opt->watcher;

	return w->shared && w->shared(f, status, w->arg) < 0 ? -ECONNRESET : 0;
}

static int carry_file(struct session *s, const struct wire_shared *listed)
{
	bool blobs = s->opt->part == WIRE_PART_BLOBS;
	struct wire_shared f = *listed;
	char why[BLOB_WHY] = "";
	int r;

	session_set_path(s, f.shown);
	r = blobs ? write_blobs(s, &f, why) : write_deal(s, &f);
	if (r == -EOPNOTSUPP)
		r = keep(s, &f, why);
	if (s->fatal)
		return s->fatal;
	if (tell(s, &f, r) < 0)
		return -ECONNRESET;
	if (r == 0) {
		s->result.totals.bytes += f.written - listed->written;
		return session_tick(s, false);
	}
	return why[0] ? session_fail(s, f.ino, f.shown, r, "%s", why)
		      : session_fail_errno(s, f.ino, f.shown, r, "its part of the subfiles cannot be made", f.size);
}

int blob_shared(struct session *s)
{
	int r = 0;

	shared_count(s);
	for (size_t i = 0; r == 0 && i < s->opt->shared.num; i++)
		if (wire_shared_has_part(&s->opt->shared.at[i], s->opt->part))
			r = carry_file(s, &s->opt->shared.at[i]);
	return r;
}

/* ---- files, at the home */

struct clearing {
	struct session *s;
	const char *dir_path, *prefix;
};

static int clear_one(const char *name, void *arg)
{
	struct clearing *c = arg;
	size_t len = strlen(c->prefix);
	char path[SESSION_PATH_MAX];

	if (strncmp(name, c->prefix, len) == 0 && (name[len] == '.' || name[len] == '\0') &&
		session_join(path, sizeof(path), c->dir_path, name) == 0)
		(void)c->s->to->ops->remove(c->s->to, path, false); /* else the next sweep does */
	return 0;
}

void blob_clear(struct session *s, const char *dir_path, const struct wire_shared *f)
{
	const char *slash = strrchr(f->path, '/');
	struct clearing c = { s, dir_path, slash ? slash + 1 : f->path };

	(void)s->to->ops->list(s->to, dir_path, clear_one, &c);
}

/* All that subfiles still lack: what makes them the file's. */
static int finish_subfile(struct session *s, const struct inode *in, const char *path, struct attrs_warning *warning)
{
	struct sink_attr attr;
	struct sink_file *f = NULL;
	int r = s->to->ops->open(s->to, path, SINK_UPDATE, &f);

	attrs_of_inode(in, &attr);
	if (r == 0)
		r = attrs_apply(s, in, &attr, f, warning);
	if (r == 0)
		r = f->ops->sync(f, false);
	sink_file_close(f);
	return r;
}

struct publication {
	struct session *s;
	const struct inode *in;
	const struct file_place *place;
	const struct wire_shared *f;
	char temp[SESSION_PATH_MAX], final[SESSION_PATH_MAX];
};

static int set_names(struct publication *p, uint32_t number)
{
	char name[RECORD_NAME_MAX + 1];
	int r = blob_subfile_path(p->place->name, number, name, sizeof(name));

	if (r == 0)
		r = session_join(p->final, sizeof(p->final), p->place->dir_path, name);
	return r == 0 ? blob_subfile_path(p->f->path, number, p->temp, sizeof(p->temp)) : r;
}

static int publish_all(struct publication *p, uint32_t num, struct attrs_warning *warning)
{
	struct session *s = p->s;
	struct attrs_warning again = { "" }; /* as the first one's */
	int r = 0;

	for (uint32_t i = 0; r == 0 && i < num; i++) {
		r = set_names(p, i);
		if (r == 0)
			r = blob_may_replace(s, p->place->dir, p->final);
		if (r == 0)
			r = finish_subfile(s, p->in, p->temp, i == 0 ? warning : &again);
	}
	if (r == 0)
		r = session_tick(s, true);
	for (uint32_t i = 0; r == 0 && i < num; i++) {
		r = set_names(p, i);
		if (r == 0)
			r = s->to->ops->rename(s->to, p->temp, p->final, false);
	}
	return r == 0 ? s->to->ops->sync_names(s->to) : r;
}

static int count_subfiles(struct session *s, const struct wire_shared *f, struct blob_done *ret)
{
	struct classic CLASSIC_CLEANUP header = { 0 };
	struct unite_plan all = { 0 };
	struct sink_file *head = NULL;
	struct deal *deals = NULL;
	char why[BLOB_WHY];
	int r = read_deals(s, f, &deals);

	if (r == 0)
		r = s->to->ops->open(s->to, f->path, SINK_READ, &head);
	if (r == 0)
		r = classic_read(blob_sink_read, head, &header, NULL);
	if (r == 0)
		r = unite(deals, s->opt->num_nodes, &header, s->opt->convert->num_subfiles, &all, why);
	if (r == 0)
		*ret = (struct blob_done){ .subfiles = all.num_subfiles,
			.blobs = all.num_streams,
			.maps = all.num_maps,
			.written = f->written,
			.extents = f->extents,
			.upto = f->upto,
			.stamp = f->stamp };
	sink_file_close(head);
	unite_free(&all);
	free_deals(deals, s->opt->num_nodes);
	return r;
}

int blob_publish(struct session *s, const struct inode *in, const struct file_place *place, const struct wire_shared *f)
{
	struct publication *p = calloc(1, sizeof(*p));
	struct blob_done done = { 0 };
	int r = p ? count_subfiles(s, f, &done) : -ENOMEM;

	session_set_path(s, place->path);
	if (r == 0) {
		*p = (struct publication){ .s = s, .in = in, .place = place, .f = f };
		r = publish_all(p, done.subfiles, &done.warning);
	}
	if (r == -EEXIST)
		r = session_fail(s, in->ino, place->path, r,
			"%s is there already and was not made by a drain: move it away and mount the store again: the next unmount makes the subfiles",
			p->final);
	else if (r < 0)
		r = session_fail_errno(s, in->ino, place->path, r, "its subfiles cannot get their names", 0);
	else
		r = blob_give_up(s, in, place, (enum drain_layout)f->layout, &done);
	free(p);
	if (r == 0 && idmap_get(&s->inodes, in->ino) == INODE_IS_DONE)
		blob_clear(s, place->dir_path, f);
	return r;
}
