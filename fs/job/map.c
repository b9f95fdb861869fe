/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Where the bytes of a file are: asked of the domain homes (of the home, as long as the file is not shared) by windows, and
 * kept until somebody is said to have committed, or until the answer is too old: freed payload lives for
 * PLACE_GRACE_USEC, so what was handed out is right for that long.
 */
#include "fs/job/share.h"

#include <errno.h>
#include <stdlib.h>

#include "format/base/clock.h"
#include "format/place/places.h"

#define BATCH      256
#define RANGES_MAX 16384u /* of one answer */

/* ---- maps */

void map_put(struct map *m)
{
	if (m && --m->refs == 0)
		free(m);
}

void shared_drop_maps(struct shared *s)
{
	for (size_t i = 0; i < SHARE_WINDOWS; i++) {
		map_put(s->maps[i]);
		s->maps[i] = NULL;
	}
}

static struct map **slot_of(struct shared *s, uint64_t window)
{
	return &s->maps[window % SHARE_WINDOWS];
}

static struct map *map_cached(struct shared *s, uint64_t window)
{
	struct map *m;

	pthread_mutex_lock(&s->mutex);
	m = *slot_of(s, window);
	if (m && (m->window != window || m->epoch != s->epoch || clock_usec() - m->asked_usec >= SHARE_FRESH_USEC))
		m = NULL;
	if (m)
		m->refs++;
	pthread_mutex_unlock(&s->mutex);
	return m;
}

bool map_is_known(struct shared *s, uint64_t window)
{
	struct map *m = map_cached(s, window);
	bool known = m != NULL;

	map_put(m);
	return known;
}

static void map_keep(struct shared *s, struct map *m)
{
	pthread_mutex_lock(&s->mutex);
	if (m->epoch == s->epoch) {
		struct map **slot = slot_of(s, m->window);

		map_put(*slot);
		m->refs++;
		*slot = m;
	}
	pthread_mutex_unlock(&s->mutex);
}

/* ---- answers */

/* Fills body with places of the range; *ret_next: where to go on. */
typedef int (*list_places)(
	struct job *j, uint64_t ino, uint64_t off, uint64_t len, struct buf *body, uint64_t *ret_next);

static int list_map(struct job *j, uint64_t ino, uint64_t off, uint64_t len, struct buf *body, uint64_t *ret_next)
{
	struct share_extent batch[BATCH];
	size_t num;
	int rc = state_share_extents(store_state(j->opt.store), ino, off, len, batch, BATCH, &num, ret_next);

	for (size_t i = 0; rc == 0 && i < num; i++)
		places_put(body, &batch[i]);
	return rc;
}

static int list_home(struct job *j, uint64_t ino, uint64_t off, uint64_t len, struct buf *body, uint64_t *ret_next)
{
	struct extent batch[BATCH];
	size_t num;
	int rc = state_extents(store_state(j->opt.store), ino, off, len, batch, BATCH, &num, ret_next);

	for (size_t i = 0; rc == 0 && i < num; i++)
		places_put(body, &(struct share_extent){ .off = batch[i].off,
					 .segment_off = batch[i].segment_off,
					 .len = batch[i].len,
					 .node = peers_self(j->peers),
					 .segment = batch[i].segment,
					 .crc = batch[i].whole ? batch[i].crc : 0,
					 .kind = batch[i].kind,
					 .whole = batch[i].whole });
	return rc;
}

static int list_all(struct job *j, const struct wire_msg *m, list_places list, struct buf *body, uint64_t *ret_next)
{
	uint64_t ino = message_get(m, MESSAGE_SHARE_INO), off = message_get(m, MESSAGE_SHARE_OFF);
	uint64_t end = off + message_get(m, MESSAGE_SHARE_LEN);
	size_t enough = message_get(m, MESSAGE_SHARE_FIRST) ? 1 : RANGES_MAX * PLACES_BYTES;
	int rc = end < off ? -EINVAL : 0;

	while (rc == 0 && off < end && body->len < enough)
		rc = list(j, ino, off, end - off, body, &off);
	*ret_next = off;
	return rc == 0 && !buf_ok(body) ? -ENOMEM : rc;
}

static void serve(struct job *j, struct peers_request *rq, list_places list, bool settle)
{
	struct wire_msg reply = { 0 };
	struct buf body BUF_CLEANUP = { 0 };
	struct inode in;
	struct cut cut = { 0 };
	uint64_t ino = message_get(peers_msg(rq), MESSAGE_SHARE_INO), next = 0;
	int rc = list_all(j, peers_msg(rq), list, &body, &next);

	if (rc == 0 && !settle) /* asked last: what is cut off meanwhile may be in the list */
		rc = state_share_newest_cut(store_state(j->opt.store), ino, &cut.size, &cut.stamp);
	if (rc == 0 && settle)
		rc = segment_settle(store_segments(j->opt.store));
	if (rc < 0) {
		peers_reply_status(rq, rc);
		return;
	}
	wire_msg_init(&reply, WIRE_REPLY);
	wire_put_i64(&reply, WIRE_STATUS, 0);
	message_put(&reply, MESSAGE_SHARE_OFF, next);
	message_put_bytes(&reply, MESSAGE_SHARE_PIECES, body.data, body.len);
	message_put(&reply, MESSAGE_SHARE_SIZE, cut.size);
	message_put(&reply, MESSAGE_SHARE_AT_STAMP, cut.stamp);
	/* Asked last: a drain may have brought the bytes that were not found any more to the backing file. */
	if (settle && state_inode(store_state(j->opt.store), ino, &in) == 0)
		message_put(&reply, MESSAGE_SHARE_LIMIT, in.backing_limit);
	peers_reply(rq, &reply);
	wire_msg_free(&reply);
}

void map_serve_locate(struct job *j, struct peers_request *rq)
{
	serve(j, rq, list_map, false);
}

void map_serve_locate_home(struct job *j, struct peers_request *rq)
{
	struct inode in;
	int rc = state_inode(store_state(j->opt.store), message_get(peers_msg(rq), MESSAGE_SHARE_INO), &in);

	if (rc == 0 && in.flags & INODE_PRIVATE)
		rc = core_seal(j->core, in.ino);
	if (rc == 0 && in.flags & INODE_SHARED)
		rc = -ESTALE;
	if (rc < 0)
		peers_reply_status(rq, rc == -ENOENT ? -ESTALE : rc);
	else
		serve(j, rq, list_home, true);
}

/* ---- questions */

struct answer {
	struct buf places;
	struct cut cut;
	uint64_t limit, next;
};

static void take_cut(struct cut *cut, const struct wire_msg *reply)
{
	uint64_t stamp = message_get(reply, MESSAGE_SHARE_AT_STAMP);

	if (stamp > cut->stamp)
		*cut = (struct cut){ .size = message_get(reply, MESSAGE_SHARE_SIZE), .stamp = stamp };
}

static void raise_limit(uint64_t *limit, const struct wire_msg *reply)
{
	uint64_t said = message_get(reply, MESSAGE_SHARE_LIMIT);

	if (*limit < said)
		*limit = said;
}

static void init_ask(struct wire_msg *m, const struct shared *s, bool shared, uint64_t off, uint64_t end)
{
	message_init(m, shared ? MESSAGE_SHARE_LOCATE : MESSAGE_SHARE_LOCATE_HOME);
	message_put(m, MESSAGE_SHARE_INO, s->ino);
	message_put(m, MESSAGE_SHARE_OFF, off);
	message_put(m, MESSAGE_SHARE_LEN, end - off);
}

static int ask_part(struct job *j, struct shared *s, bool shared, uint64_t off, uint64_t end, struct answer *a)
{
	struct wire_msg m = { 0 }, reply = { 0 };
	const uint8_t *bytes;
	size_t len;

	init_ask(&m, s, shared, off, end);
	uint32_t node = shared ? place_domain(s->ino, off, PLACE_DOMAIN_SIZE, peers_count(j->peers)) : s->home;
	int rc = share_call(j, node, &m, &reply);
	if (rc == 0) {
		a->next = message_get(&reply, MESSAGE_SHARE_OFF);
		if (a->next <= off || a->next > end ||
			!message_get_bytes(&reply, MESSAGE_SHARE_PIECES, 0, &bytes, &len))
			rc = -EBADMSG;
		else if (len)
			buf_bytes(&a->places, bytes, len);
	}
	if (rc == 0) {
		take_cut(&a->cut, &reply);
		raise_limit(&a->limit, &reply);
	}
	wire_msg_free(&m);
	wire_msg_free(&reply);
	return rc;
}

static int make_map(const struct answer *a, struct map **ret)
{
	size_t num = a->places.len / PLACES_BYTES;
	struct map *m = calloc(1, sizeof(*m) + num * sizeof(m->ext[0]));
	struct cursor c = cursor_make(a->places.data, a->places.len);

	if (!m || !buf_ok(&a->places)) {
		free(m);
		return -ENOMEM;
	}
	m->refs = 1;
	m->num = num;
	for (size_t i = 0; i < num; i++)
		if (!places_get(&c, &m->ext[i])) {
			free(m);
			return -EBADMSG;
		}
	*ret = m;
	return 0;
}

static int ask(struct job *j, struct shared *s, uint64_t window, struct map **ret)
{
	uint64_t end = (window + 1) * SHARE_WINDOW, epoch = s->epoch, asked = clock_usec();
	bool shared = s->is_shared;
	struct answer a = { .next = window * SHARE_WINDOW };
	int rc = 0;

	while (rc == 0 && a.next < end)
		rc = ask_part(j, s, shared, a.next, end, &a);
	if (rc == 0)
		rc = make_map(&a, ret);
	if (rc == 0) {
		(*ret)->window = window;
		(*ret)->epoch = epoch;
		(*ret)->asked_usec = asked;
		(*ret)->cut = a.cut;
		(*ret)->limit = a.limit;
	}
	buf_free(&a.places);
	return rc;
}

static uint64_t asked_for(const struct shared *s, uint64_t window)
{
	const struct question *q = s->questions;

	while (q && q->window != window)
		q = q->next;
	return q ? q->number : 0;
}

static bool is_open(const struct shared *s, uint64_t number)
{
	const struct question *q = s->questions;

	while (q && q->number != number)
		q = q->next;
	return q;
}

/* Waits while somebody asks for this window: his answer may be ours, too. For one only, or who waits would wait for all before him. */
static void begin_question(struct shared *s, struct question *q)
{
	pthread_mutex_lock(&s->mutex);
	uint64_t other = asked_for(s, q->window);
	while (other && is_open(s, other))
		pthread_cond_wait(&s->answered, &s->mutex);
	q->number = ++s->last_question;
	q->next = s->questions;
	s->questions = q;
	pthread_mutex_unlock(&s->mutex);
}

static void end_question(struct shared *s, struct question *q)
{
	struct question **at = &s->questions;

	pthread_mutex_lock(&s->mutex);
	while (*at != q)
		at = &(*at)->next;
	*at = q->next;
	pthread_cond_broadcast(&s->answered);
	pthread_mutex_unlock(&s->mutex);
}

int map_get(struct job *j, struct shared *s, uint64_t window, struct map **ret)
{
	struct question q = { .window = window };
	int rc = 0;

	*ret = map_cached(s, window);
	if (*ret)
		return 0;
	begin_question(s, &q);
	*ret = map_cached(s, window);
	if (!*ret) {
		rc = ask(j, s, window, ret);
		if (rc == 0)
			map_keep(s, *ret);
	}
	end_question(s, &q);
	return rc;
}

/* ---- the first place */

/* Of a reply without places, or one that cannot be read: *next stays. */
static void take_first(uint32_t node, const struct wire_msg *reply, void *arg)
{
	uint64_t *next = arg;
	struct share_extent e;
	const uint8_t *bytes;
	size_t len;

	(void)node;
	if (!reply || !message_get_bytes(reply, MESSAGE_SHARE_PIECES, 0, &bytes, &len))
		return;
	struct cursor c = cursor_make(bytes, len);
	if (len && places_get(&c, &e) && e.off < *next)
		*next = e.off;
}

int map_next(struct job *j, struct shared *s, uint64_t off, uint64_t end, uint64_t *ret_next)
{
	struct wire_msg m = { 0 }, reply = { 0 };
	bool shared = s->is_shared;
	uint64_t next = end, limit = 0;
	int rc;

	init_ask(&m, s, shared, off, end);
	message_put(&m, MESSAGE_SHARE_FIRST, 1);
	if (shared) {
		j->share->messages += peers_count(j->peers);
		rc = peers_call_all(j->peers, &m, NULL, take_first, &next);
	} else {
		rc = share_call(j, s->home, &m, &reply);
		take_first(s->home, rc == 0 ? &reply : NULL, &next);
		raise_limit(&limit, &reply);
	}
	wire_msg_free(&m);
	wire_msg_free(&reply);
	if (rc == 0)
		*ret_next = limit > off ? off : next;
	return rc;
}
