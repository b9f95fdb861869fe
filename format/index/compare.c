/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Two states, key by key: the same records must give the same bytes. What depends on who had the store open (boot id,
 * last SYNC, whether it was closed) is left out.
 */
#include "format/index/state_private.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

struct side {
	struct state *st;
	struct merge m;
	struct merge_entry e;
	bool more;
	struct buf val;
};

struct comparison {
	struct side a, b;
	void (*cb)(const char *line, void *arg);
	void *arg;
	int64_t num;
};

static void describe(const struct merge_entry *e, char *out, size_t cap)
{
	static const struct {
		enum key_kind kind;
		const char *text;
	} kinds[] = { { KEY_NAME, "name" }, { KEY_BACKING, "backing name" }, { KEY_INODE, "inode" },
		{ KEY_PAGE, "extents" }, { KEY_XATTR, "xattr" }, { KEY_TARGET, "link target" },
		{ KEY_SEGMENT, "segment" }, { KEY_ORPHAN, "orphan" }, { KEY_WRITERS, "writers" },
		{ KEY_COMMITS, "commits" }, { KEY_SHARE, "share map" }, { KEY_SHARE_PAGE, "shared extents" },
		{ KEY_CONFLICTS, "conflicts" } };
	struct key_parts parts = { 0 };
	const char *text = "key";

	if (key_parse(e->key, e->key_len, &parts) < 0) {
		snprintf(out, cap, "key of no known kind");
		return;
	}
	for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++)
		if (kinds[i].kind == parts.kind)
			text = kinds[i].text;
	if (parts.name)
		snprintf(out, cap, "%s %" PRIu64 " \"%.*s\"", text, parts.id, (int)parts.name_len, parts.name);
	else if (parts.kind == KEY_PAGE || parts.kind == KEY_SHARE_PAGE)
		snprintf(out, cap, "%s %" PRIu64 " at %" PRIu64, text, parts.id, parts.page * EXTENT_PAGE_SPAN);
	else
		snprintf(out, cap, "%s %" PRIu64, text, parts.id);
}

static void differ(struct comparison *c, const struct merge_entry *e, const char *how)
{
	char what[400], line[480];

	c->num++;
	if (!c->cb)
		return;
	describe(e, what, sizeof what);
	snprintf(line, sizeof line, "%s: %s", what, how);
	c->cb(line, c->arg);
}

/* Whether a page is kept in parts depends on its history: compared is what is in it. */
static int page_value(struct side *s)
{
	struct key_parts parts = { 0 };
	struct node n = { .num_pages = 1 };
	struct leaves leaves;
	int r = key_parse(s->e.key, s->e.key_len, &parts);

	n.ino = parts.id;
	if (r == 0)
		r = page_leaves(s->st, &n, parts.page, 0, UINT64_MAX, &leaves);
	for (unsigned int i = 0; r == 0 && i < leaves.num; i++)
		for (uint32_t k = 0; k < leaves.leaf[i]->num; k++)
			buf_bytes(&s->val, &leaves.leaf[i]->ext[k], sizeof(struct extent));
	return r < 0 ? r : buf_ok(&s->val) ? 0 : -ENOMEM;
}

/* The next key but those of the index's own; of a page with its parts. */
static int step(struct side *s)
{
	int r;

	cache_trim(&s->st->cache);
	do {
		r = merge_next(&s->m, &s->e);
	} while (r > 0 && (s->e.key[0] == KEY_META || s->e.key[0] == KEY_PART));
	s->more = r > 0;
	if (r <= 0)
		return r;
	buf_reset(&s->val);
	if (s->e.key[0] == KEY_PAGE)
		return page_value(s);
	if (s->e.item)
		return item_encode(s->e.item, &s->val);
	buf_bytes(&s->val, s->e.val, s->e.val_len);
	return buf_ok(&s->val) ? 0 : -ENOMEM;
}

static int order(const struct comparison *c)
{
	const struct merge_entry *a = &c->a.e, *b = &c->b.e;
	int d;

	if (!c->a.more || !c->b.more)
		return c->a.more ? -1 : 1;
	d = memcmp(a->key, b->key, a->key_len < b->key_len ? a->key_len : b->key_len);
	return d ? d : (a->key_len > b->key_len) - (a->key_len < b->key_len);
}

static bool same_value(const struct comparison *c)
{
	return c->a.val.len == c->b.val.len &&
	       (c->a.val.len == 0 || memcmp(c->a.val.data, c->b.val.data, c->a.val.len) == 0);
}

static int compare_keys(struct comparison *c)
{
	int r, d;

	r = step(&c->a);
	if (r == 0)
		r = step(&c->b);
	while (r == 0 && (c->a.more || c->b.more)) {
		d = order(c);
		if (d < 0)
			differ(c, &c->a.e, "only in the first");
		else if (d > 0)
			differ(c, &c->b.e, "only in the second");
		else if (!same_value(c))
			differ(c, &c->a.e, "not the same");
		if (d <= 0)
			r = step(&c->a);
		if (r == 0 && d >= 0)
			r = step(&c->b);
	}
	return r;
}

static void compare_number(struct comparison *c, const char *name, uint64_t a, uint64_t b)
{
	char line[160];

	if (a == b)
		return;
	c->num++;
	snprintf(line, sizeof line, "%s: %" PRIu64 " in the first, %" PRIu64 " in the second", name, a, b);
	if (c->cb)
		c->cb(line, c->arg);
}

static void compare_numbers(struct comparison *c, const struct meta *a, const struct meta *b)
{
	compare_number(c, "next inode number", a->next_ino, b->next_ino);
	compare_number(c, "number of inodes", a->inodes, b->inodes);
	compare_number(c, "number of names", a->names, b->names);
	compare_number(c, "dirty files", a->dirty_files, b->dirty_files);
	compare_number(c, "live bytes in the log", a->log_bytes, b->log_bytes);
	compare_number(c, "extents", a->extents, b->extents);
	compare_number(c, "private files", a->private_files, b->private_files);
	compare_number(c, "bytes written", a->written_bytes, b->written_bytes);
	compare_number(c, "bytes saved", a->saved_bytes, b->saved_bytes);
	compare_number(c, "bytes drained", a->drained_bytes, b->drained_bytes);
	compare_number(c, "files drained", a->drained_files, b->drained_files);
	compare_number(c, "bytes written through", a->through_bytes, b->through_bytes);
	compare_number(c, "part of a job", a->job, b->job);
	compare_number(c, "knows writers", a->writers, b->writers);
	compare_number(c, "number of the tree's last change", a->tree_stamp, b->tree_stamp);
	if (a->tree_time_ns && b->tree_time_ns) /* an older index does not know it */
		compare_number(c, "time of the tree's last change", a->tree_time_ns, b->tree_time_ns);
	compare_number(c, "share maps", a->share_inodes, b->share_inodes);
	compare_number(c, "extents of share maps", a->share_extents, b->share_extents);
}

static int compare_locked(struct comparison *c, struct state *a, struct state *b)
{
	struct key all = { .len = 0 };
	int r, end;

	r = merge_begin(&c->a.m, &a->cache, &all, NULL);
	if (r == 0)
		r = merge_begin(&c->b.m, &b->cache, &all, NULL);
	if (r == 0)
		r = compare_keys(c);
	end = merge_end(&c->a.m);
	r = r < 0 ? r : end;
	end = merge_end(&c->b.m);
	r = r < 0 ? r : end;
	if (r == 0)
		compare_numbers(c, &a->meta, &b->meta);
	return r;
}

int64_t state_compare(struct state *a, struct state *b, void (*cb)(const char *line, void *arg), void *arg)
{
	struct comparison c = { .a.st = a, .b.st = b, .cb = cb, .arg = arg };
	struct state *first = (uintptr_t)a < (uintptr_t)b ? a : b, *second = first == a ? b : a;
	int r;

	if (a == b)
		return 0;
	pthread_mutex_lock(&first->lock); /* by address, so that two comparisons cannot wait for each other */
	pthread_mutex_lock(&second->lock);
	r = compare_locked(&c, a, b);
	pthread_mutex_unlock(&second->lock);
	pthread_mutex_unlock(&first->lock);
	buf_free(&c.a.val);
	buf_free(&c.b.val);
	return r < 0 ? r : c.num;
}
