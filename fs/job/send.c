/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * What a commit (commit.c) sends to others: to each domain home the pieces in its domains, and what a home does with them.
 *
 * Of what a writer commits to its own domains nobody else would know when its store is lost. So the next node is told last, as
 * a witness: recovery can say then which bytes are missing. Nobody reads or drains by what a witness knows, so a witness that
 * cannot be reached does not fail a commit, and only fsync waits for it: once, and then not before it has been heard again.
 */
#include "fs/job/send.h"

#include <errno.h>
#include <stdlib.h>

#define PIECE_BYTES      36u /* encoded */
#define PIECE_F_WHOLE    2u
#define PIECE_F_HOLE     1u
#define WITNESS_RUN_MAX  (1u << 30)
#define WITNESS_RUN_USEC 1000u

struct parcel {             /* of what is sent: a node's */
	struct buf body;    /* owned */
	uint64_t time_usec; /* of its first piece */
};

static int sending_begin(struct sending *out, struct job *j, uint64_t ino)
{
	*out = (struct sending){ .j = j, .ino = ino, .num_nodes = peers_count(j->peers) };
	out->parts = calloc(out->num_nodes, sizeof(*out->parts));
	if (!out->parts)
		return -ENOMEM;
	fan_init(&out->fan);
	return 0;
}

static void witness_heard(int status, const struct wire_msg *reply, void *arg)
{
	struct share *sh = arg;

	(void)reply;
	if (status == 0)
		sh->witness_away = false;
}

static void send_message(struct sending *out, uint32_t node, const struct wire_msg *m)
{
	if (out->hint)
		(void)peers_call_async(out->j->peers, node, m, witness_heard, out->j->share);
	else if (out->tell && peers_tell(out->j->peers, node, m) == 0)
		out->j->share->messages++;
	else if (out->witness)
		fan_call_brief(out->j, &out->fan, node, m);
	else
		fan_call(out->j, &out->fan, node, m);
}

static void send_body(struct sending *out, uint32_t node)
{
	struct buf *body = &out->parts[node].body;
	struct wire_msg m = { 0 };

	if (body->len == 0)
		return;
	message_init(&m, MESSAGE_SHARE_PUT);
	message_put(&m, MESSAGE_SHARE_INO, out->ino);
	message_put(&m, MESSAGE_SHARE_AT_STAMP, out->stamp);
	message_put(&m, MESSAGE_SHARE_BASE, out->base);
	message_put(&m, MESSAGE_SHARE_TIME, out->parts[node].time_usec);
	message_put_bytes(&m, MESSAGE_SHARE_PIECES, body->data, body->len);
	if (buf_ok(body)) {
		send_message(out, node, &m);
	} else {
		fan_begin(&out->fan);
		fan_done(-ENOMEM, NULL, &out->fan);
	}
	wire_msg_free(&m);
	buf_reset(body);
}

static void send_all(struct sending *out)
{
	for (uint32_t node = 0; node < out->num_nodes; node++)
		send_body(out, node);
}

static uint32_t home_of(const struct sending *out, const struct extent *e)
{
	return place_domain(out->ino, e->off, PLACE_DOMAIN_SIZE, out->num_nodes);
}

/* The difference of times fits. */
static bool is_near(const struct parcel *p, const struct extent *e)
{
	int64_t later = (int64_t)(e->time_usec - p->time_usec);

	return later >= INT32_MIN && later <= INT32_MAX;
}

static void send_extent(struct sending *out, uint32_t node, const struct extent *e)
{
	struct parcel *p = &out->parts[node];
	struct buf *body = &p->body;

	if (body->len > 0 && !is_near(p, e))
		send_body(out, node);
	if (body->len == 0)
		p->time_usec = e->time_usec;
	buf_u64(body, e->off);
	buf_u64(body, e->segment_off);
	buf_u32(body, e->len);
	buf_u32(body, e->segment);
	buf_u32(body, e->whole ? e->crc : 0);
	buf_u32(body, (uint32_t)(e->time_usec - p->time_usec));
	buf_u8(body, (uint8_t)((e->whole ? PIECE_F_WHOLE : 0) | (e->kind == EXTENT_HOLE ? PIECE_F_HOLE : 0)));
	buf_zeros(body, 3);
	if (body->len >= SHARE_PIECES_MAX * PIECE_BYTES)
		send_body(out, node);
}

static int sending_end(struct sending *out)
{
	send_all(out);
	int rc = fan_wait(&out->fan);
	for (uint32_t node = 0; node < out->num_nodes; node++)
		buf_free(&out->parts[node].body);
	free(out->parts);
	return rc;
}

/* Those of one stamp and base go together. */
static void begin_stamp(struct sending *out, uint64_t stamp, uint64_t base)
{
	base = base < stamp ? base : stamp - 1;
	if (stamp == out->stamp && base == out->base)
		return;
	send_all(out);
	out->stamp = stamp;
	out->base = base;
}

static void send_some(struct sending *out, const struct layer_list *l, const struct commit_bases *b, uint64_t base)
{
	for (size_t i = 0; i < l->num; i++) {
		if (bases_of(b, l->at[i].ext.seq) != base)
			continue;
		begin_stamp(out, l->at[i].stamp, base);
		send_extent(out, home_of(out, &l->at[i].ext), &l->at[i].ext);
	}
}

/* One commit's extents, or what several commits have left. */
static int send_once(struct job *j, struct shared *s, const struct layer_list *l, const struct commit_bases *b)
{
	struct sending out;
	uint64_t bases[BASES_MAX];
	int rc = sending_begin(&out, j, s->ino);

	if (rc < 0)
		return rc;
	size_t num = bases_each(b, bases);
	for (size_t i = 0; i < num; i++)
		send_some(&out, l, b, bases[i]);
	return sending_end(&out);
}

int send_list(struct job *j, struct shared *s, const struct layer_list *l, const struct commit_bases *b)
{
	int rc = -ECONNRESET;

	for (int tries = 0; rc == -ECONNRESET && tries < SHARE_RESTART_TRIES; tries++)
		rc = send_once(j, s, l, b);
	return rc;
}

/*
 * A witness only says which bytes there are: where they lie is of no use without the store that they lie in. What was written at
 * the same time, nearly, is one to it, as new as the newest: what lies under it is rather missing than taken for right.
 */
struct run {
	struct layer_extent e; /* len 0: none; its time is that of the newest */
	uint64_t oldest_usec;
};

static bool run_join(struct run *run, const struct layer_extent *e)
{
	struct extent *ext = &run->e.ext;
	uint64_t oldest = run->oldest_usec < e->ext.time_usec ? run->oldest_usec : e->ext.time_usec;
	uint64_t newest = ext->time_usec > e->ext.time_usec ? ext->time_usec : e->ext.time_usec;

	if (ext->len == 0 || run->e.stamp != e->stamp || ext->kind != e->ext.kind ||
		ext->off + ext->len != e->ext.off || e->ext.len > WITNESS_RUN_MAX - ext->len ||
		newest - oldest > WITNESS_RUN_USEC)
		return false;
	ext->len += e->ext.len;
	ext->whole = false;
	ext->time_usec = newest;
	run->oldest_usec = oldest;
	return true;
}

static void send_run(struct sending *out, const struct run *run)
{
	if (run->e.ext.len == 0)
		return;
	begin_stamp(out, run->e.stamp, 0);
	send_extent(out, (peers_self(out->j->peers) + 1) % out->num_nodes, &run->e.ext);
}

/* Sent; sending_end() waits. */
int witness_begin(struct sending *out, struct job *j, struct shared *s, const struct layer_list *l, bool durable)
{
	uint32_t self = peers_self(j->peers);
	struct run run = { 0 };
	int rc = sending_begin(out, j, s->ino);

	if (rc < 0)
		return rc;
	out->tell = !durable;
	out->witness = true;
	out->hint = j->share->witness_away;
	for (size_t i = 0; out->num_nodes > 1 && i < l->num; i++) {
		const struct layer_extent *e = &l->at[i];

		if (home_of(out, &e->ext) != self)
			continue;
		if (run_join(&run, e))
			continue;
		send_run(out, &run);
		run = (struct run){ .e = *e, .oldest_usec = e->ext.time_usec };
	}
	send_run(out, &run);
	send_all(out);
	return 0;
}

int witness_end(struct sending *out)
{
	struct share *sh = out->j->share;
	int rc = sending_end(out);

	if (rc == -ETIMEDOUT)
		sh->witness_away = true;
	return rc;
}

void send_witness(struct job *j, struct shared *s, const struct layer_list *l, bool durable)
{
	struct sending out;
	int rc = -ECONNRESET;

	for (int tries = 0; rc == -ECONNRESET && tries < SHARE_RESTART_TRIES; tries++) {
		rc = witness_begin(&out, j, s, l, durable);
		rc = rc < 0 ? rc : witness_end(&out);
	}
}

static bool read_piece(struct cursor *c, uint64_t time_usec, struct record_piece *p)
{
	*p = (struct record_piece){ .off = cursor_u64(c), .segment_off = cursor_u64(c) };
	p->len = cursor_u32(c);
	p->segment = cursor_u32(c);
	p->crc = cursor_u32(c);
	p->time_usec = time_usec + (uint64_t)(int32_t)cursor_u32(c);
	uint8_t flags = cursor_u8(c);
	(void)cursor_bytes(c, 3);
	p->whole = flags & PIECE_F_WHOLE;
	p->kind = flags & PIECE_F_HOLE ? EXTENT_HOLE : EXTENT_LOG;
	return cursor_ok(c);
}

void send_serve_put(struct job *j, struct peers_request *rq)
{
	const struct wire_msg *m = peers_msg(rq);
	struct record rec = { .type = RECORD_SHARE_PUT,
		.flags = RECORD_F_TIMED,
		.ino = message_get(m, MESSAGE_SHARE_INO),
		.node = peers_from(rq),
		.stamp = message_get(m, MESSAGE_SHARE_AT_STAMP),
		.base = message_get(m, MESSAGE_SHARE_BASE) };
	struct record_piece *pieces = NULL;
	const uint8_t *bytes;
	size_t len, num;
	int rc = message_get_bytes(m, MESSAGE_SHARE_PIECES, 0, &bytes, &len) ? 0 : -EBADMSG;

	num = rc == 0 ? len / PIECE_BYTES : 0;
	if (rc == 0 && !(pieces = calloc(num + 1, sizeof(*pieces))))
		rc = -ENOMEM;
	struct cursor c = cursor_make(rc == 0 ? bytes : NULL, rc == 0 ? len : 0);
	for (size_t i = 0; rc == 0 && i < num; i++)
		rc = read_piece(&c, message_get(m, MESSAGE_SHARE_TIME), &pieces[i]) ? 0 : -EBADMSG;
	rec.pieces = pieces;
	rec.num_pieces = num;
	if (rc == 0)
		rc = store_commit(j->opt.store, &rec);
	free(pieces);
	peers_reply_status(rq, rc);
}
