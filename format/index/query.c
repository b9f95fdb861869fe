/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Questions to the state. Each takes the lock, answers with copies, and leaves the cache trimmed. Walks over everything
 * go in chunks, each from where the last one ended, so that the caller's function runs without the lock.
 */
#include "format/index/state_private.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define CHUNK          64
#define PAGES_CHUNK    64
#define PATH_DEPTH_MAX 4096

void query_begin(struct state *st)
{
	pthread_mutex_lock(&st->lock);
}

/* A damaged index is the end of this state, and the next open makes a new one. */
int query_end(struct state *st, int r)
{
	if (r == -EBADMSG)
		state_fail(st, r);
	cache_trim(&st->cache);
	pthread_mutex_unlock(&st->lock);
	return r;
}

/* ---- one object */

int state_inode(struct state *st, uint64_t ino, struct inode *ret)
{
	struct node_item *ni;
	int r;

	query_begin(st);
	r = find_node(st, ino, &ni);
	if (r == 0)
		node_to_inode(&ni->n, ret);
	return query_end(st, r);
}

int state_remembered(struct state *st, uint64_t ino, struct inode *ret)
{
	struct node_item *ni;
	int r;

	query_begin(st);
	r = find_any_node(st, ino, &ni);
	if (r == 0 && !node_is_remembered(&ni->n))
		r = -ENOENT;
	if (r == 0)
		node_to_inode(&ni->n, ret);
	return query_end(st, r);
}

static int lookup(struct state *st, enum key_kind kind, uint64_t parent, const char *name, struct state_name *ret)
{
	struct name_item *d;
	int r;

	if (strnlen(name, RECORD_NAME_MAX + 1) > RECORD_NAME_MAX)
		return -ENAMETOOLONG;
	query_begin(st);
	r = find_name(st, kind, parent, name, &d);
	if (r == 0 && !item_present(&d->it))
		r = -ENOENT;
	if (r == 0) {
		ret->ino = d->ino;
		ret->stamp = d->stamp;
		ret->type = d->type;
	}
	return query_end(st, r);
}

int state_lookup(struct state *st, uint64_t parent, const char *name, struct state_name *ret)
{
	int r = lookup(st, KEY_NAME, parent, name, ret);

	if (r == 0)
		strcpy(ret->name, name);
	return r;
}

int state_backing_owner(struct state *st, uint64_t parent, const char *name, uint64_t *ret_ino)
{
	struct state_name found;
	int r = lookup(st, KEY_BACKING, parent, name, &found);

	if (r == 0)
		*ret_ino = found.ino;
	return r;
}

bool state_dir_is_empty(struct state *st, uint64_t parent)
{
	struct node_item *dir;
	int r;

	query_begin(st);
	r = find_node(st, parent, &dir);
	if (r == 0 && dir->n.num_children > 0)
		r = -ENOTEMPTY;
	return query_end(st, r) == 0 || r == -ENOENT;
}

static int copy_blob(struct state *st, const struct key *key, void *out, size_t cap, size_t *ret_len)
{
	struct blob_item *b;
	int r;

	query_begin(st);
	r = find_blob(st, key, &b);
	if (r == 0 && !item_present(&b->it))
		r = -ENOENT;
	else if (r == 0 && cap && b->len > cap)
		r = -ERANGE;
	if (r == 0 && cap && b->len)
		memcpy(out, b->data, b->len);
	if (r == 0)
		*ret_len = b->len;
	return query_end(st, r);
}

int state_symlink(struct state *st, uint64_t ino, char *out, size_t cap)
{
	struct key key;
	size_t len;
	int r;

	if (cap < 2)
		return -ERANGE;
	key_number(&key, KEY_TARGET, ino);
	r = copy_blob(st, &key, out, cap - 1, &len);
	if (r == 0)
		out[len] = '\0';
	return r;
}

int state_xattr(struct state *st, uint64_t ino, const char *name, void *out, size_t cap, size_t *ret_len)
{
	size_t len = strnlen(name, RECORD_NAME_MAX + 1);
	struct key key;
	int r;

	if (len == 0 || len > RECORD_NAME_MAX)
		return -ENODATA;
	key_name(&key, KEY_XATTR, ino, name, len);
	r = copy_blob(st, &key, out, cap, ret_len);
	return r == -ENOENT ? -ENODATA : r;
}

int state_segment_live(struct state *st, uint32_t segment, uint64_t *ret_live_bytes)
{
	struct segment_item *s;
	int r;

	query_begin(st);
	r = find_segment(st, segment, &s);
	if (r == 0 && !item_present(&s->it))
		r = -ENOENT;
	if (r == 0)
		*ret_live_bytes = s->is_private ? STATE_SEGMENT_PRIVATE : s->live;
	return query_end(st, r);
}

void state_totals(struct state *st, struct state_totals *ret)
{
	const struct meta *m = &st->meta;

	query_begin(st);
	*ret = (struct state_totals){
		.inodes = m->inodes,
		.names = m->names,
		.dirty_files = m->dirty_files,
		.special = m->special,
		.log_bytes = m->log_bytes,
		.extents = m->extents,
		.private_files = m->private_files,
		.written_bytes = m->written_bytes,
		.saved_bytes = m->saved_bytes,
		.drained_bytes = m->drained_bytes,
		.drained_files = m->drained_files,
		.through_bytes = m->through_bytes,
		.share_inodes = m->share_inodes,
		.share_extents = m->share_extents,
		.index_bytes = st->cache.bytes,
		.seq = st->seq,
		.checkpoint_seq = st->checkpoint_seq,
	};
	query_end(st, 0);
}

/* ---- walks: up to cap entries behind *at (len 0: from the start of prefix), which moves along */

struct chunk {
	struct key prefix, at;
	size_t num, cap;
	int (*take)(struct chunk *c, const struct merge_entry *e, const struct key_parts *parts);
	void *out;
};

/* 0, and c->num entries: less than cap at the end. */
static int next_chunk(struct state *st, struct chunk *c)
{
	struct merge_entry e;
	struct merge m;
	int r, end;

	c->num = 0;
	query_begin(st);
	r = merge_begin(&m, &st->cache, &c->prefix, c->at.len ? &c->at : NULL);
	while (r >= 0 && c->num < c->cap && (r = merge_next(&m, &e)) > 0) {
		struct key_parts parts = { 0 };

		r = key_parse(e.key, e.key_len, &parts);
		if (r == 0)
			r = c->take(c, &e, &parts);
		if (r < 0)
			break;
		c->num += r == 0;
		memcpy(c->at.bytes, e.key, e.key_len);
		c->at.len = (uint16_t)e.key_len;
	}
	end = m.walk ? merge_end(&m) : 0;
	return query_end(st, r < 0 ? r : end);
}

static int entry_name(const struct merge_entry *e, struct state_name *out)
{
	const struct name_item *d = (const struct name_item *)e->item;
	struct name_value v = { 0 };
	int r = 0;

	if (d)
		v = (struct name_value){ .ino = d->ino, .stamp = d->stamp, .type = d->type };
	else
		r = name_decode(e->val, e->val_len, &v);
	out->ino = v.ino;
	out->stamp = v.stamp;
	out->type = v.type;
	return r;
}

static int take_name(struct chunk *c, const struct merge_entry *e, const struct key_parts *parts)
{
	struct state_name *out = (struct state_name *)c->out + c->num;

	memcpy(out->name, parts->name, parts->name_len);
	out->name[parts->name_len] = '\0';
	return entry_name(e, out);
}

static int list(struct state *st, enum key_kind kind, uint64_t parent, const char *after, struct state_name *out,
	size_t cap, size_t *ret_num)
{
	struct chunk c = { .cap = cap, .take = take_name, .out = out };
	size_t len = strnlen(after, RECORD_NAME_MAX + 1);
	int r;

	if (len > RECORD_NAME_MAX)
		return -ENAMETOOLONG;
	key_number(&c.prefix, kind, parent);
	if (len)
		key_name(&c.at, kind, parent, after, len);
	r = next_chunk(st, &c);
	if (r == 0)
		*ret_num = c.num;
	return r;
}

int state_list_names(
	struct state *st, uint64_t parent, const char *after, struct state_name *out, size_t cap, size_t *ret_num)
{
	return list(st, KEY_NAME, parent, after, out, cap, ret_num);
}

int state_list_backing_names(
	struct state *st, uint64_t parent, const char *after, struct state_name *out, size_t cap, size_t *ret_num)
{
	return list(st, KEY_BACKING, parent, after, out, cap, ret_num);
}

static int take_inode(struct chunk *c, const struct merge_entry *e, const struct key_parts *parts)
{
	struct inode *out = (struct inode *)c->out + c->num;
	struct node n = { 0 };
	int r;

	(void)parts;
	if (e->item) {
		const struct node *known = &((const struct node_item *)e->item)->n;

		node_to_inode(known, out);
		return node_is_remembered(known);
	}
	r = node_decode(e->val, e->val_len, &n);
	if (r < 0)
		return r;
	node_to_inode(&n, out);
	r = node_is_remembered(&n);
	node_free(&n);
	return r;
}

int state_each_inode(struct state *st, int (*cb)(const struct inode *in, void *arg), void *arg)
{
	struct inode out[CHUNK];
	struct chunk c = { .cap = CHUNK, .take = take_inode, .out = out };
	int r;

	key_kind(&c.prefix, KEY_INODE);
	do {
		r = next_chunk(st, &c);
		for (size_t i = 0; r == 0 && i < c.num; i++)
			r = cb(&out[i], arg);
	} while (r == 0 && c.num == c.cap);
	return r;
}

struct full_entry {
	uint64_t parent;
	struct state_name name;
};

static int take_full(struct chunk *c, const struct merge_entry *e, const struct key_parts *parts)
{
	struct full_entry *out = (struct full_entry *)c->out + c->num;

	out->parent = parts->id;
	memcpy(out->name.name, parts->name, parts->name_len);
	out->name.name[parts->name_len] = '\0';
	return entry_name(e, &out->name);
}

static int each_name(struct state *st, enum key_kind kind,
	int (*cb)(uint64_t parent, const char *name, uint64_t ino, void *arg), void *arg)
{
	struct full_entry out[CHUNK];
	struct chunk c = { .cap = CHUNK, .take = take_full, .out = out };
	int r;

	key_kind(&c.prefix, kind);
	do {
		r = next_chunk(st, &c);
		for (size_t i = 0; r == 0 && i < c.num; i++)
			r = cb(out[i].parent, out[i].name.name, out[i].name.ino, arg);
	} while (r == 0 && c.num == c.cap);
	return r;
}

int state_each_name(struct state *st, int (*cb)(uint64_t parent, const char *name, uint64_t ino, void *arg), void *arg)
{
	return each_name(st, KEY_NAME, cb, arg);
}

int state_each_backing_name(
	struct state *st, int (*cb)(uint64_t parent, const char *name, uint64_t ino, void *arg), void *arg)
{
	return each_name(st, KEY_BACKING, cb, arg);
}

struct segment_entry {
	uint32_t segment;
	uint64_t live;
};

static int take_segment(struct chunk *c, const struct merge_entry *e, const struct key_parts *parts)
{
	struct segment_entry *out = (struct segment_entry *)c->out + c->num;
	const struct segment_item *s = (const struct segment_item *)e->item;
	bool is_private;
	int r = 0;

	if (s) {
		is_private = s->is_private;
		out->live = s->live;
	} else {
		r = segment_decode(e->val, e->val_len, &out->live, &is_private);
	}
	if (r < 0 || parts->id > UINT32_MAX)
		return -EBADMSG;
	out->segment = (uint32_t)parts->id;
	if (is_private)
		out->live = STATE_SEGMENT_PRIVATE;
	return 0;
}

int state_each_segment(struct state *st, int (*cb)(uint32_t segment, uint64_t live_bytes, void *arg), void *arg)
{
	struct segment_entry out[CHUNK];
	struct chunk c = { .cap = CHUNK, .take = take_segment, .out = out };
	int r;

	key_kind(&c.prefix, KEY_SEGMENT);
	do {
		r = next_chunk(st, &c);
		for (size_t i = 0; r == 0 && i < c.num; i++)
			r = cb(out[i].segment, out[i].live, arg);
	} while (r == 0 && c.num == c.cap);
	return r;
}

struct xattr_entry {
	char name[RECORD_NAME_MAX + 1];
	struct buf val;
};

static int take_xattr(struct chunk *c, const struct merge_entry *e, const struct key_parts *parts)
{
	const struct blob_item *b = (const struct blob_item *)e->item;
	struct xattr_entry *out = c->out;

	memcpy(out->name, parts->name, parts->name_len);
	out->name[parts->name_len] = '\0';
	buf_reset(&out->val);
	if (b)
		buf_bytes(&out->val, b->data, b->len);
	else
		buf_bytes(&out->val, e->val, e->val_len);
	return buf_ok(&out->val) ? 0 : -ENOMEM;
}

int state_list_xattrs(
	struct state *st, uint64_t ino, int (*cb)(const char *name, const void *val, size_t len, void *arg), void *arg)
{
	struct xattr_entry out = { .val = { 0 } };
	struct chunk c = { .cap = 1, .take = take_xattr, .out = &out };
	int r;

	key_number(&c.prefix, KEY_XATTR, ino);
	do {
		r = next_chunk(st, &c);
		if (r == 0 && c.num)
			r = cb(out.name, out.val.data, out.val.len, arg);
	} while (r == 0 && c.num);
	buf_free(&out.val);
	return r;
}

/* ---- extents */

struct range_query {
	uint64_t off, end;
	struct extent *out;
	size_t num, cap;
	uint64_t next; /* end, or where the output ran out */
};

static void leaf_extents(const struct extent_page *p, struct range_query *q)
{
	for (uint32_t i = extent_page_find(p, q->off); i < p->num && p->ext[i].off < q->end; i++) {
		if (q->num == q->cap) {
			q->next = p->ext[i].off > q->off ? p->ext[i].off : q->off;
			return;
		}
		q->out[q->num++] = extent_clip(&p->ext[i], q->off, q->end);
	}
}

static int page_extents(struct state *st, const struct node *n, uint64_t page, struct range_query *q)
{
	struct leaves leaves;
	int r;

	r = page_leaves(st, n, page, q->off, q->end, &leaves);
	for (unsigned int i = 0; r == 0 && i < leaves.num && q->next == q->end; i++)
		leaf_extents(leaves.leaf[i], q);
	return r;
}

static int range_extents(struct state *st, const struct node *n, struct range_query *q)
{
	uint64_t page[PAGES_CHUNK], first = q->off / EXTENT_PAGE_SPAN;
	size_t num;
	int r;

	do {
		r = pages_list(st, n, first, (q->end - 1) / EXTENT_PAGE_SPAN, page, PAGES_CHUNK, &num);
		for (size_t i = 0; r == 0 && i < num && q->next == q->end; i++)
			r = page_extents(st, n, page[i], q);
		if (num)
			first = page[num - 1] + 1;
	} while (r == 0 && num == PAGES_CHUNK && q->next == q->end);
	return r;
}

int state_extents(struct state *st, uint64_t ino, uint64_t off, uint64_t len, struct extent *out, size_t cap,
	size_t *ret_num, uint64_t *ret_next)
{
	struct range_query q = {
		.off = off, .end = len > UINT64_MAX - off ? UINT64_MAX : off + len, .out = out, .cap = cap
	};
	struct node_item *ni;
	int r;

	q.next = q.end;
	query_begin(st);
	r = find_node(st, ino, &ni);
	if (r == 0 && len > 0)
		r = range_extents(st, &ni->n, &q);
	r = query_end(st, r);
	if (r < 0)
		return r;
	*ret_num = q.num;
	*ret_next = q.next;
	return 0;
}

/* ---- paths of backing files: built from the end of a buffer to its front */

struct path {
	char *buf;
	size_t at; /* buf + at is the path so far */
};

static int prepend(struct path *p, const char *name)
{
	size_t len = strlen(name), slash = p->buf[p->at] != '\0';

	if (len + slash > p->at)
		return -ENAMETOOLONG;
	if (slash)
		p->buf[--p->at] = '/';
	p->at -= len;
	memcpy(p->buf + p->at, name, len);
	return 0;
}

/* In front of what is there: the path of ino. Nothing for the root. */
static int prepend_path(struct state *st, uint64_t ino, struct path *p)
{
	struct node_item *ni;
	int r;

	for (int depth = 0; ino != STATE_ROOT_INO; depth++) {
		if (depth == PATH_DEPTH_MAX)
			return -ENAMETOOLONG;
		r = find_node(st, ino, &ni);
		if (r < 0)
			return r;
		if (!ni->n.origin_name)
			return -ENOENT;
		r = prepend(p, ni->n.origin_name);
		if (r < 0)
			return r;
		ino = ni->n.origin_parent;
	}
	return 0;
}

static int backing_path(struct state *st, uint64_t ino, const char *name, char *out, size_t cap)
{
	struct path p = { .buf = out, .at = cap - 1 };
	int r = 0;

	if (cap < 2)
		return -ENAMETOOLONG;
	out[p.at] = '\0';
	if (name)
		r = prepend(&p, name);
	query_begin(st);
	if (r == 0)
		r = prepend_path(st, ino, &p);
	r = query_end(st, r);
	if (r == 0 && out[p.at] == '\0')
		r = prepend(&p, ".");
	if (r == 0)
		memmove(out, out + p.at, cap - p.at);
	return r;
}

int state_backing_path(struct state *st, uint64_t ino, char *out, size_t cap)
{
	return backing_path(st, ino, NULL, out, cap);
}

int state_backing_child_path(struct state *st, uint64_t parent, const char *name, char *out, size_t cap)
{
	return backing_path(st, parent, name, out, cap);
}
