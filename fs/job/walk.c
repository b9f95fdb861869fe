/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Who lists a directory and then looks up one name of it after the other, in the order of the listing, will look up the next ones, too. So they are
 * asked for together: first their servers, then the homes of the files, each node once, all at the same time. That is what is asked for a single name, and what
 * comes is believed as long as the homes' words are good (quiet.c), so it does not matter that nobody has looked these names up yet. The listing is a guess at what to
 * ask for, and nothing else.
 *
 * In messages NAMES is, of each name: its number with who asks, and then: to a node, inode and name; from a server, nothing more; from a
 * home, whether it is bare (seen.c).
 */
#include "fs/job/walk.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "format/base/clock.h"
#include "fs/job/quiet.h"
#include "fs/job/share.h"

#define WALKS      8u
#define BATCH_MIN  8u
#define BATCH_MAX  256u
#define NAMES_MAX  262144u /* of all listings that are remembered */
#define SPARES     1024u   /* files that were asked for, and nobody has looked up */
#define PAUSE_USEC 300000u /* behind a batch in vain: the home is busy */
#define WAIT_USEC  200000u /* for nodes that are slow: what they answer later is of use to later lookups */

struct walk {
	uint64_t dir;
	struct listing *list; /* owned reference; NULL: none */
	uint64_t first, next; /* names that were looked up, or asked for, last */
	uint32_t batch;       /* 0: nobody walks */
	uint64_t pause_usec;  /* until then nothing is asked for */
};

struct walks {
	pthread_mutex_t lock;
	struct walk at[WALKS];
	unsigned int hand;
	uint64_t spares[SPARES]; /* 0: none */
	unsigned int last_spare;
};

/* ---- what is asked for together */

struct want {
	char name[RECORD_NAME_MAX + 1];
	uint64_t ino;
	uint32_t server, home;
	bool sure; /* so says its server */
};

struct batch {
	struct job *j;
	uint64_t dir;
	unsigned int num;
	pthread_mutex_t lock;
	pthread_cond_t all;         /* CLOCK_MONOTONIC */
	unsigned int missing, refs; /* answers; they, and who asks */
	bool has_servers;           /* what they answer from now on is too late */
	struct want wants[BATCH_MAX];
};

struct asking {
	struct batch *b;
	struct quiet_ask ask;
	void (*take)(struct asking *q, const struct wire_msg *reply);
};

/* number: of a name; UINT32_MAX: that was the last. */
static uint32_t next_number(struct cursor *c, uint32_t end)
{
	uint32_t number = cursor_left(c) > 0 ? cursor_u32(c) : UINT32_MAX;

	return cursor_ok(c) && number < end ? number : UINT32_MAX;
}

static struct cursor names_of(const struct wire_msg *m)
{
	const uint8_t *bytes = NULL;
	size_t len = 0;

	(void)message_get_bytes(m, MESSAGE_NAMES, 0, &bytes, &len);
	return cursor_make(bytes, len);
}

/* b->lock is held. */
static void take_sure(struct asking *q, const struct wire_msg *reply)
{
	struct cursor c = names_of(reply);
	uint32_t i;

	while (!q->b->has_servers && (i = next_number(&c, q->b->num)) != UINT32_MAX)
		q->b->wants[i].sure = true;
}

static void keep_spare(struct job *j, uint64_t ino)
{
	struct walks *w = j->walks;

	pthread_mutex_lock(&w->lock);
	uint64_t *at = &w->spares[w->last_spare++ % SPARES], old = *at;
	*at = ino;
	pthread_mutex_unlock(&w->lock);
	if (old)
		remote_drop_spare(j, old);
}

/* b->lock is held. */
static void take_entries(struct asking *q, const struct wire_msg *reply)
{
	uint64_t number = quiet_take(q->b->j, &q->ask, message_get(reply, MESSAGE_QUIET));
	struct cursor c = names_of(reply);
	uint32_t i;

	for (unsigned int n = 0; (i = next_number(&c, q->b->num)) != UINT32_MAX; n++) {
		const struct want *w = &q->b->wants[i];
		struct seen s = { .dir = q->b->dir, .name = w->name, .bare = cursor_u8(&c) };

		if (entry_get_nth(reply, n, &s.entry) < 0 || s.entry.ino != w->ino)
			return;
		remote_spare(q->b->j, w->ino, q->b->dir, w->name);
		keep_spare(q->b->j, w->ino);
		seen_put(q->b->j, q->ask.home, number, &s);
	}
}

static void batch_put(struct batch *b)
{
	pthread_mutex_lock(&b->lock);
	bool last = --b->refs == 0;
	pthread_mutex_unlock(&b->lock);
	if (!last)
		return;
	pthread_cond_destroy(&b->all);
	pthread_mutex_destroy(&b->lock);
	free(b);
}

static void answered(int status, const struct wire_msg *reply, void *arg)
{
	struct asking *q = arg;
	struct batch *b = q->b;

	pthread_mutex_lock(&b->lock);
	if (status == 0 && reply)
		q->take(q, reply);
	if (--b->missing == 0)
		pthread_cond_signal(&b->all);
	pthread_mutex_unlock(&b->lock);
	batch_put(b);
	free(q);
}

static uint32_t node_of(const struct want *w, enum message_type type)
{
	return type == MESSAGE_NAME_LOOKUP_MANY ? w->server : w->home;
}

static bool is_asked(const struct want *w, enum message_type type, uint32_t node)
{
	return node_of(w, type) == node && (type == MESSAGE_NAME_LOOKUP_MANY || w->sure);
}

static void ask_node(struct batch *b, enum message_type type, uint32_t node)
{
	struct asking *q = calloc(1, sizeof(*q));
	struct buf names BUF_CLEANUP = { 0 };
	struct wire_msg m = { 0 };

	if (!q)
		return;
	*q = (struct asking){ .b = b, .ask = quiet_ask(b->j, node) };
	q->take = type == MESSAGE_NAME_LOOKUP_MANY ? take_sure : take_entries;
	for (uint32_t i = 0; i < b->num; i++)
		if (is_asked(&b->wants[i], type, node)) {
			buf_u32(&names, i);
			buf_u64(&names, b->wants[i].ino);
			buf_str(&names, b->wants[i].name);
		}
	message_init(&m, type);
	message_put(&m, MESSAGE_DIR, b->dir);
	message_put_bytes(&m, MESSAGE_NAMES, names.data, names.len);
	pthread_mutex_lock(&b->lock);
	b->missing++;
	b->refs++;
	pthread_mutex_unlock(&b->lock);
	int rc = peers_call_brief(b->j->peers, node, &m, answered, q);
	if (rc < 0)
		answered(rc, NULL, q);
	wire_msg_free(&m);
}

static void await_answers(struct batch *b, uint64_t until_usec)
{
	struct timespec until = { .tv_sec = (time_t)(until_usec / 1000000u),
		.tv_nsec = (long)(until_usec % 1000000u) * 1000 };

	pthread_mutex_lock(&b->lock);
	while (b->missing > 0 && pthread_cond_timedwait(&b->all, &b->lock, &until) == 0)
		;
	pthread_mutex_unlock(&b->lock);
}

/* Each node that has some of them, at the same time. */
static void ask_all(struct batch *b, enum message_type type, uint64_t until_usec)
{
	for (uint32_t i = 0; i < b->num; i++) {
		uint32_t node = node_of(&b->wants[i], type), k = 0;

		while (k < i && !is_asked(&b->wants[k], type, node))
			k++;
		if (k == i && is_asked(&b->wants[i], type, node) && !peers_is_silent(b->j->peers, node))
			ask_node(b, type, node);
	}
	await_answers(b, until_usec);
}

/* A file of another node that was made in this job: what was found in the backing directory is under nobody's word. */
static bool is_theirs(struct job *j, struct listing *l, uint64_t i, const char **ret_name, uint64_t *ret_ino)
{
	uint32_t type;

	return list_get(l, i, ret_name, ret_ino, &type) == 0 && type != S_IFDIR && *ret_ino &&
	       !(*ret_ino & STATE_BACKING_INO_BIT) && remote_home(j, *ret_ino) != peers_self(j->peers);
}

/* Those among num names of the listing from first on. Returns behind the last. */
static uint64_t collect(struct batch *b, struct listing *l, uint64_t first, uint32_t num)
{
	uint64_t i, ino;
	const char *name;

	for (i = first; i < first + num && i < list_size(l); i++) {
		if (!is_theirs(b->j, l, i, &name, &ino))
			continue;
		struct want *w = &b->wants[b->num++];
		strncpy(w->name, name, sizeof(w->name) - 1);
		w->ino = ino;
		w->server = place_name(b->dir, name, peers_count(b->j->peers));
		w->home = remote_home(b->j, ino);
	}
	return i;
}

static struct batch *batch_new(struct job *j, uint64_t dir)
{
	struct batch *b = calloc(1, sizeof(*b));
	pthread_condattr_t attr;

	if (!b)
		return NULL;
	b->j = j;
	b->dir = dir;
	b->refs = 1;
	pthread_mutex_init(&b->lock, NULL);
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&b->all, &attr);
	pthread_condattr_destroy(&attr);
	return b;
}

static uint64_t fetch(struct job *j, uint64_t dir, struct listing *l, uint64_t first, uint32_t num)
{
	uint64_t until_usec = clock_usec() + WAIT_USEC;
	struct batch *b = batch_new(j, dir);

	if (!b)
		return first;
	uint64_t next = collect(b, l, first, num);
	ask_all(b, MESSAGE_NAME_LOOKUP_MANY, until_usec);
	pthread_mutex_lock(&b->lock);
	b->has_servers = true;
	pthread_mutex_unlock(&b->lock);
	ask_all(b, MESSAGE_FILE_GET_MANY, until_usec);
	batch_put(b);
	return next;
}

/* ---- who walks */

/* lock is held. */
static struct walk *find(struct walks *w, uint64_t dir)
{
	for (unsigned int i = 0; i < WALKS; i++)
		if (w->at[i].list && w->at[i].dir == dir)
			return &w->at[i];
	return NULL;
}

/* lock is held. */
static void forget(struct walk *at)
{
	list_close(at->list);
	*at = (struct walk){ 0 };
}

/* lock is held. Those of other directories go, the oldest first, until there are no more names than that. */
static void keep_names(struct walks *w, const struct walk *kept, size_t most)
{
	size_t num = 0;

	for (unsigned int i = 0; i < WALKS; i++)
		num += w->at[i].list ? list_size(w->at[i].list) : 0;
	for (unsigned int i = 0; i < WALKS && num > most; i++) {
		struct walk *at = &w->at[(w->hand + i) % WALKS];

		if (at == kept || !at->list)
			continue;
		num -= list_size(at->list);
		forget(at);
	}
}

void walk_listed(struct job *j, uint64_t dir, struct listing *l)
{
	struct walks *w = j->walks;

	if (list_size(l) < BATCH_MIN || list_size(l) > NAMES_MAX)
		return;
	pthread_mutex_lock(&w->lock);
	struct walk *at = find(w, dir);
	if (!at)
		at = &w->at[w->hand++ % WALKS];
	forget(at);
	*at = (struct walk){ .dir = dir, .list = list_ref(l) };
	keep_names(w, at, NAMES_MAX);
	pthread_mutex_unlock(&w->lock);
}

/* lock is held. How many names from number i on are to be asked for; 0: just this one. */
static uint32_t step(struct walk *at, uint64_t i)
{
	bool goes_on = i >= at->first && i <= at->next + BATCH_MIN;

	at->first = i;
	at->next = i + 1;
	if (!goes_on) {
		at->batch = 0;
		return 0;
	}
	at->batch = at->batch ? at->batch * 2 : BATCH_MIN;
	at->batch = at->batch < BATCH_MAX ? at->batch : BATCH_MAX;
	return at->batch;
}

/* True: some were asked for. */
bool walk_ahead(struct job *j, uint64_t dir, const char *name)
{
	struct walks *w = j->walks;
	const char *listed;
	uint64_t i, ino;
	uint32_t num = 0;

	pthread_mutex_lock(&w->lock);
	struct walk *at = find(w, dir);
	struct listing *l = at && clock_usec() >= at->pause_usec ? list_ref(at->list) : NULL;
	pthread_mutex_unlock(&w->lock);
	if (!l)
		return false;
	i = list_find(l, name);
	pthread_mutex_lock(&w->lock);
	at = find(w, dir);
	if (i != UINT64_MAX && is_theirs(j, l, i, &listed, &ino) && at && at->list == l)
		num = step(at, i);
	pthread_mutex_unlock(&w->lock);
	uint64_t next = num ? fetch(j, dir, l, i, num) : 0;
	pthread_mutex_lock(&w->lock);
	at = find(w, dir);
	if (num && at && at->list == l) {
		at->next = next;
		if (!seen_has(j, dir, name))
			at->pause_usec = clock_usec() + PAUSE_USEC;
	}
	pthread_mutex_unlock(&w->lock);
	list_close(l);
	return num > 0;
}

/* ---- who is asked */

void walk_serve_lookups(struct job *j, struct peers_request *rq)
{
	struct cursor c = names_of(peers_msg(rq));
	uint64_t dir = message_get(peers_msg(rq), MESSAGE_DIR);
	struct buf names BUF_CLEANUP = { 0 };
	char name[RECORD_NAME_MAX + 1];
	struct wire_msg reply = { 0 };
	uint32_t i;

	while ((i = next_number(&c, BATCH_MAX)) != UINT32_MAX) {
		uint64_t ino = cursor_u64(&c);

		cursor_str(&c, name, sizeof(name));
		if (cursor_ok(&c) && names_peek(j->names, dir, name) == ino)
			buf_u32(&names, i);
	}
	wire_msg_init(&reply, WIRE_REPLY);
	wire_put_i64(&reply, WIRE_STATUS, 0);
	message_put_bytes(&reply, MESSAGE_NAMES, names.data, names.len);
	peers_reply(rq, &reply);
	wire_msg_free(&reply);
}

/* Its attributes, with a lookup counted for that node, if it is not open and has that name. */
static bool get_one(struct job *j, uint32_t node, uint64_t ino, uint64_t dir, const char *name, struct core_entry *ret)
{
	struct state_name there;

	if (home_is_open(j, ino) || core_find(j->core, ino, 0, "") < 0)
		return false;
	bool good = state_lookup(j->state, dir, name, &there) == 0 && there.ino == ino &&
		    core_getattr(j->core, ino, NULL, ret) == 0;
	if (good)
		home_hold(j, node, ino);
	else
		core_forget(j->core, ino, 1);
	return good;
}

void walk_serve_gets(struct job *j, struct peers_request *rq)
{
	uint64_t word_usec = quiet_give(j, peers_from(rq)), dir = message_get(peers_msg(rq), MESSAGE_DIR);
	struct cursor c = names_of(peers_msg(rq));
	struct buf names BUF_CLEANUP = { 0 };
	char name[RECORD_NAME_MAX + 1];
	struct wire_msg reply = { 0 };
	struct core_entry e;
	uint32_t i;

	wire_msg_init(&reply, WIRE_REPLY);
	wire_put_i64(&reply, WIRE_STATUS, 0);
	while (word_usec && (i = next_number(&c, BATCH_MAX)) != UINT32_MAX) {
		uint64_t ino = cursor_u64(&c);

		cursor_str(&c, name, sizeof(name));
		if (!cursor_ok(&c) || !get_one(j, peers_from(rq), ino, dir, name, &e))
			continue;
		buf_u32(&names, i);
		buf_u8(&names, core_is_bare(j->core, ino));
		entry_put(&reply, &e);
	}
	message_put(&reply, MESSAGE_QUIET, word_usec);
	message_put_bytes(&reply, MESSAGE_NAMES, names.data, names.len);
	peers_reply(rq, &reply);
	wire_msg_free(&reply);
}

/* ---- life */

static int walk_create(struct job *j, struct cistern_error *err)
{
	j->walks = calloc(1, sizeof(*j->walks));
	if (!j->walks)
		return cistern_error_set(err, -ENOMEM, "out of memory");
	pthread_mutex_init(&j->walks->lock, NULL);
	return 0;
}

static void walk_destroy(struct job *j)
{
	if (!j->walks)
		return;
	for (unsigned int i = 0; i < WALKS; i++)
		list_close(j->walks->at[i].list);
	pthread_mutex_destroy(&j->walks->lock);
	free(j->walks);
	j->walks = NULL;
}

const struct part walk_part = { .create = walk_create, .destroy = walk_destroy };
