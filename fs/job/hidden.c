/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Which names of the backing directory's a directory that may go does not show: each node says what it hides, node 0 puts it together. Names in
 * doubt come first: one that is in doubt no more is known to the state. There may be more than a message holds, so they are told in pages, in the
 * order of their bytes: the first with PREPARE. The directory is closed meanwhile: none becomes visible again.
 */
#include "fs/job/hidden.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "format/base/array.h"

#define HIDDEN_BATCH 256

/* ---- a node says */

struct page {
	bool owned; /* its state's, after those in doubt */
	char after[RECORD_NAME_MAX + 1];
	struct buf names;
	size_t bytes; /* it may have, about */
	bool more;
};

static void put_doubted(const char *name, void *arg)
{
	struct page *p = arg;

	if (p->more || strcmp(name, p->after) <= 0)
		return;
	p->more = p->names.len >= p->bytes;
	if (p->more)
		return;
	buf_str(&p->names, name);
	snprintf(p->after, sizeof(p->after), "%s", name);
}

static int put_owned(struct job *j, uint64_t dir, struct page *p)
{
	struct state_name *names = calloc(HIDDEN_BATCH, sizeof(*names));
	size_t num = HIDDEN_BATCH;
	int rc = names ? 0 : -ENOMEM;

	while (rc == 0 && num == HIDDEN_BATCH && p->names.len < p->bytes) {
		num = 0;
		rc = state_list_backing_names(j->state, dir, p->after, names, HIDDEN_BATCH, &num);
		for (size_t i = 0; i < num; i++)
			buf_str(&p->names, names[i].name);
		if (num > 0)
			memcpy(p->after, names[num - 1].name, sizeof(p->after));
	}
	p->more = num == HIDDEN_BATCH;
	free(names);
	return rc;
}

static int fill(struct job *j, uint64_t dir, struct page *p)
{
	p->bytes = atomic_load(&j->hidden_page_bytes);
	if (!p->owned) {
		core_each_doubt(j->core, dir, put_doubted, p);
		if (p->more)
			return 0;
		p->owned = true;
		p->after[0] = '\0';
	}
	return put_owned(j, dir, p);
}

static void reply_page(struct job *j, struct peers_request *rq, uint64_t dir, int rc, struct page *p)
{
	struct wire_msg reply = { 0 };

	if (rc == 0 && dir)
		rc = fill(j, dir, p);
	wire_msg_init(&reply, WIRE_REPLY);
	wire_put_i64(&reply, WIRE_STATUS, rc == 0 && !buf_ok(&p->names) ? -ENOMEM : rc);
	message_put_bytes(&reply, MESSAGE_NAMES, p->names.data, p->names.len);
	message_put(&reply, MESSAGE_COUNT, p->more);
	message_put(&reply, MESSAGE_FLAGS, p->owned);
	message_put_str(&reply, MESSAGE_FROM, p->after);
	peers_reply(rq, &reply);
	wire_msg_free(&reply);
	buf_free(&p->names);
}

void hidden_reply(struct job *j, struct peers_request *rq, uint64_t dir, int rc)
{
	reply_page(j, rq, dir, rc, &(struct page){ .owned = false });
}

void hidden_serve(struct job *j, struct peers_request *rq)
{
	const struct wire_msg *m = peers_msg(rq);
	struct page p = { .owned = message_get(m, MESSAGE_FLAGS) != 0 };
	bool good = message_get_str(m, MESSAGE_NAME, p.after, sizeof(p.after));

	reply_page(j, rq, message_get(m, MESSAGE_DIR), good ? 0 : -EBADMSG, &p);
}

/* ---- node 0 puts it together */

struct hidden_rest {
	struct wire_msg next; /* owned; type 0: there is no more */
	uint32_t node;
};

struct hidden_name { /* in names */
	const uint8_t *at;
	size_t len;
};

/* What comes after the page, as a question; type 0: nothing does. */
static void take_page(struct hidden *h, const struct wire_msg *reply, struct wire_msg *next)
{
	char after[RECORD_NAME_MAX + 1];
	const uint8_t *names;
	size_t len;

	next->type = 0;
	if (message_get_bytes(reply, MESSAGE_NAMES, 0, &names, &len))
		buf_bytes(&h->names, names, len);
	if (!message_get(reply, MESSAGE_COUNT) || !message_get_str(reply, MESSAGE_FROM, after, sizeof(after)))
		return;
	message_init(next, MESSAGE_TREE_HIDDEN);
	message_put(next, MESSAGE_DIR, h->dir);
	message_put(next, MESSAGE_FLAGS, message_get(reply, MESSAGE_FLAGS));
	message_put_str(next, MESSAGE_NAME, after);
}

void hidden_take(uint32_t node, const struct wire_msg *reply, void *arg)
{
	struct hidden *h = arg;
	struct wire_msg m = { 0 };

	if (!reply)
		return;
	take_page(h, reply, &m);
	if (!m.type)
		return;
	if (array_room(&h->rests, &h->rests_cap, h->num_rests, sizeof(*h->rests)) == 0) {
		h->rests[h->num_rests++] = (struct hidden_rest){ m, node };
		return;
	}
	h->names.bad = true;
	wire_msg_free(&m);
}

static int ask_rest(struct hidden *h, struct hidden_rest *r)
{
	struct wire_msg reply = { 0 };
	int rc = 0;

	while (rc == 0 && r->next.type && buf_ok(&h->names)) {
		rc = peers_call(h->j->peers, r->node, &r->next, &reply);
		if (rc == 0)
			take_page(h, &reply, &r->next);
	}
	wire_msg_free(&reply);
	return rc == -EHOSTDOWN ? 0 : rc == -ECONNRESET ? -EBUSY : rc;
}

static int compare(const void *a, const void *b)
{
	const struct hidden_name *x = a, *y = b;
	int order = memcmp(x->at, y->at, x->len < y->len ? x->len : y->len);

	return order ? order : (x->len > y->len) - (x->len < y->len);
}

static int sort(struct hidden *h)
{
	struct cursor c = cursor_make(h->names.data, h->names.len);

	while (cursor_left(&c) > 0) {
		struct hidden_name n = { .at = cursor_blob(&c, &n.len) };

		if (!n.at)
			return -EBADMSG;
		if (array_room(&h->sorted, &h->cap, h->num, sizeof(*h->sorted)) < 0)
			return -ENOMEM;
		h->sorted[h->num++] = n;
	}
	if (h->num > 0)
		qsort(h->sorted, h->num, sizeof(*h->sorted), compare);
	return 0;
}

int hidden_gather(struct hidden *h)
{
	int rc = 0;

	for (size_t i = 0; rc == 0 && i < h->num_rests; i++)
		rc = ask_rest(h, &h->rests[i]);
	if (rc < 0)
		return rc;
	return buf_ok(&h->names) ? sort(h) : -ENOMEM;
}

bool hidden_has(const struct hidden *h, const char *name)
{
	const struct hidden_name key = { (const uint8_t *)name, strlen(name) };

	return h->num > 0 && bsearch(&key, h->sorted, h->num, sizeof(*h->sorted), compare);
}

void hidden_free(struct hidden *h)
{
	for (size_t i = 0; i < h->num_rests; i++)
		wire_msg_free(&h->rests[i].next);
	free(h->rests);
	buf_free(&h->names);
	free(h->sorted);
}
