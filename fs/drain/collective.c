/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Three threads. The asker's side sends what this node asks for to node 0, again when node 0's daemon is another one. The
 * worker carries out one part at a time and tells node 0. On node 0 the leader takes all asks that wait, runs the parts of
 * one session for them, and answers. What is asked while a session runs waits for the next one: its snapshots are older.
 *
 * A node that cannot be reached, or whose daemon was restarted on the way, has not done its part: the session goes on
 * without it, cautiously (nothing is replaced that might be that node's), and its end says so and names the node.
 *
 * Unmounted nodes ask for a final session. Their data are carried at once; they are answered when all nodes have asked for
 * one and a session has run after that, since until then others need what they are home of.
 */
#include "fs/drain/collective.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "fs/job/message.h"

#define SEC INT64_C(1000000)

enum {                                           /* MESSAGE_DRAIN_FIRST and on */
	MESSAGE_DRAIN_ASK = MESSAGE_DRAIN_FIRST, /* to node 0: ID, KIND, PATH* */
	MESSAGE_DRAIN_ANSWER,                    /* from node 0: ID, RESULT, WIRE_TEXT */
	MESSAGE_DRAIN_CANCEL,                    /* to node 0: ID */
	MESSAGE_DRAIN_PART,                      /* from node 0: SESSION, PART, KIND, CAUTIOUS, PATH* */
	MESSAGE_DRAIN_PART_DONE,                 /* to node 0: SESSION, PART, RESULT, WIRE_TEXT */
	MESSAGE_DRAIN_STOP                       /* from node 0: SESSION: its part shall end soon */
};

enum { TAG_ID = MESSAGE_DRAIN_TAGS, TAG_KIND, TAG_PATH, TAG_RESULT, TAG_SESSION, TAG_PART, TAG_CAUTIOUS, TAG_SHARED };

struct paths { /* owned; num 0: everything */
	char **at;
	size_t num;
};

struct ask { /* on node 0: what somebody waits for; on the asking node: what it has asked for */
	struct ask *next;
	uint32_t from;
	uint64_t id;
	enum drain_kind kind;
	struct paths paths;
	bool sent, cancelled;
	bool lost; /* node 0, which had been asked, has ended */
};

struct task { /* a part that node 0 wants from us */
	struct task *next;
	uint64_t session;
	unsigned int part;
	enum drain_kind kind;
	bool cautious;
	struct paths paths;
	struct wire_shared_list shared;
};

enum { AT_WORK = 1, DONE, LOST };

struct collective {
	struct collective_options opt;
	pthread_t asker, worker, leader;
	unsigned int threads;
	pthread_mutex_t lock;
	pthread_cond_t changed; /* CLOCK_MONOTONIC */
	/* all below under lock */
	bool ending;
	struct ask *mine;  /* asked for by this node, in order */
	struct task *todo; /* for the worker */
	bool working;
	uint64_t working_on;
	/* node 0 */
	struct ask *asks, *finals; /* waiting for a session; of unmounted nodes */
	uint64_t session;
	unsigned int part;
	bool leading, stop_session, background;
	uint8_t *state;                 /* of each node in the running part; owned */
	uint32_t num_state;             /* how many nodes */
	struct wire_shared_list shared; /* of the running session */
	enum cistern_exit result;
	char text[CISTERN_ERROR_TEXT_BYTES];
	int64_t leave_usec;     /* finals are answered by then; 0: none waits */
	uint64_t finals_served; /* how many of them had asked when the last session began */
};

static int64_t now_usec(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * SEC + t.tv_nsec / 1000;
}

/* ---- paths and lists */

static void paths_free(struct paths *p)
{
	for (size_t i = 0; i < p->num; i++)
		free(p->at[i]);
	free(p->at);
	*p = (struct paths){ 0 };
}

static bool paths_add(struct paths *p, const char *path)
{
	char **grown = reallocarray(p->at, p->num + 1, sizeof(*grown));

	if (!grown)
		return false;
	p->at = grown;
	p->at[p->num] = strdup(path);
	return p->at[p->num] && ++p->num;
}

/* Out of memory: everything, which is more than was asked for and never less. */
static void paths_copy(struct paths *to, char *const *from, size_t num)
{
	*to = (struct paths){ 0 };
	for (size_t i = 0; i < num; i++)
		if (!paths_add(to, from[i])) {
			paths_free(to);
			return;
		}
}

static void paths_decode(struct paths *to, const struct wire_msg *m)
{
	char path[STORE_PATH_MAX + 1];

	*to = (struct paths){ 0 };
	while (wire_get_str(m, (enum wire_tag)TAG_PATH, (unsigned int)to->num, path, sizeof(path)))
		if (to->num == DRAIN_PATHS_MAX || !paths_add(to, path)) {
			paths_free(to);
			return;
		}
}

static void paths_encode(struct wire_msg *m, const struct paths *p)
{
	for (size_t i = 0; i < p->num; i++)
		wire_put_str(m, (enum wire_tag)TAG_PATH, p->at[i]);
}

static void ask_free(struct ask *a)
{
	paths_free(&a->paths);
	free(a);
}

static void append(struct ask **list, struct ask *a)
{
	while (*list)
		list = &(*list)->next;
	a->next = NULL;
	*list = a;
}

static struct ask *find_ask(struct ask *list, uint32_t from, uint64_t id)
{
	while (list && (list->from != from || list->id != id))
		list = list->next;
	return list;
}

static uint64_t count(const struct ask *list)
{
	uint64_t n = 0;

	for (; list; list = list->next)
		n++;
	return n;
}

static void wait_changed(struct collective *c, int64_t until)
{
	struct timespec at = { .tv_sec = until / SEC, .tv_nsec = until % SEC * 1000 };

	if (until == INT64_MAX)
		pthread_cond_wait(&c->changed, &c->lock);
	else
		pthread_cond_timedwait(&c->changed, &c->lock, &at);
}

static uint64_t get(const struct wire_msg *m, int tag)
{
	return message_get(m, (enum message_tag)tag);
}

static void put(struct wire_msg *m, int tag, uint64_t v)
{
	message_put(m, (enum message_tag)tag, v);
}

/* ---- asking */

int collective_ask(struct collective *c, uint64_t id, enum drain_kind kind, char *const *paths, size_t num)
{
	struct ask *a = calloc(1, sizeof(*a));

	if (!a)
		return -ENOMEM;
	a->id = id;
	a->kind = kind;
	paths_copy(&a->paths, paths, num);
	pthread_mutex_lock(&c->lock);
	append(&c->mine, a);
	pthread_cond_broadcast(&c->changed);
	pthread_mutex_unlock(&c->lock);
	return 0;
}

void collective_cancel(struct collective *c, uint64_t id)
{
	struct wire_msg m = { 0 };

	message_init(&m, (enum message_type)MESSAGE_DRAIN_CANCEL);
	put(&m, TAG_ID, id);
	peers_tell(c->opt.peers, 0, &m);
	wire_msg_free(&m);
}

/* lock is held. NULL: it is not there any more. */
static struct ask *take_ask(struct ask **list, uint32_t from, uint64_t id)
{
	struct ask *a = find_ask(*list, from, id);

	while (a && *list != a)
		list = &(*list)->next;
	if (a)
		*list = a->next;
	return a;
}

/* lock is held, given up meanwhile. */
static void give_up_ask(struct collective *c, uint64_t id, const char *why)
{
	ask_free(take_ask(&c->mine, 0, id));
	pthread_mutex_unlock(&c->lock);
	c->opt.answer(id, CISTERN_EXIT_INCOMPLETE, why, c->opt.arg);
	pthread_mutex_lock(&c->lock);
}

/* lock is held, given up meanwhile. */
static void send_ask(struct collective *c, struct ask *a)
{
	struct wire_msg m = { 0 };
	uint64_t id = a->id;
	int r;

	message_init(&m, (enum message_type)MESSAGE_DRAIN_ASK);
	put(&m, TAG_ID, a->id);
	put(&m, TAG_KIND, a->kind);
	paths_encode(&m, &a->paths);
	a->sent = true;
	pthread_mutex_unlock(&c->lock);
	r = peers_call(c->opt.peers, 0, &m, NULL);
	wire_msg_free(&m);
	pthread_mutex_lock(&c->lock);
	a = r < 0 && r != -ESHUTDOWN ? find_ask(c->mine, 0, id) : NULL;
	if (a && r == -ECONNRESET) {
		a->sent = false; /* another daemon leads now: once more */
	} else if (a) {
		give_up_ask(c, id, "node 0, which leads drains, cannot be reached");
	}
}

static void *asker_thread(void *arg)
{
	struct collective *c = arg;

	pthread_mutex_lock(&c->lock);
	while (!c->ending) {
		struct ask *a = c->mine;

		while (a && a->sent && !a->lost)
			a = a->next;
		if (a && a->lost)
			give_up_ask(c, a->id, "node 0, which leads drains, has ended");
		else if (a)
			send_ask(c, a);
		else
			wait_changed(c, INT64_MAX);
	}
	pthread_mutex_unlock(&c->lock);
	return NULL;
}

static void serve_answer(struct collective *c, const struct wire_msg *m)
{
	uint64_t id = get(m, TAG_ID);
	char text[CISTERN_ERROR_TEXT_BYTES] = "";
	struct ask *a;

	wire_get_str(m, WIRE_TEXT, 0, text, sizeof(text));
	pthread_mutex_lock(&c->lock);
	a = take_ask(&c->mine, 0, id);
	pthread_mutex_unlock(&c->lock);
	if (!a)
		return;
	ask_free(a);
	c->opt.answer(id, (enum cistern_exit)get(m, TAG_RESULT), text, c->opt.arg);
}

/* ---- working */

static void put_shared(struct wire_msg *m, const struct wire_shared_list *list)
{
	struct buf bytes = { 0 };

	wire_shared_encode(list, &bytes);
	message_put_bytes(m, (enum message_tag)TAG_SHARED, bytes.data, bytes.len);
	buf_free(&bytes);
}

static int get_shared(const struct wire_msg *m, struct wire_shared_list *list)
{
	const uint8_t *bytes;
	size_t len;

	return message_get_bytes(m, (enum message_tag)TAG_SHARED, 0, &bytes, &len)
		       ? wire_shared_decode(bytes, len, list)
		       : 0;
}

static void tell_done(struct collective *c, const struct task *t, enum cistern_exit result, const char *text,
	const struct wire_shared_list *shared)
{
	struct wire_msg m = { 0 };

	message_init(&m, (enum message_type)MESSAGE_DRAIN_PART_DONE);
	put(&m, TAG_SESSION, t->session);
	put(&m, TAG_PART, t->part);
	put(&m, TAG_RESULT, result);
	wire_put_str(&m, WIRE_TEXT, text);
	put_shared(&m, shared);
	peers_call(c->opt.peers, 0, &m, NULL); /* node 0 cannot be reached: it does without us */
	wire_msg_free(&m);
}

static void task_free(struct task *t)
{
	paths_free(&t->paths);
	wire_shared_free(&t->shared);
	free(t);
}

static void *worker_thread(void *arg)
{
	struct collective *c = arg;

	pthread_mutex_lock(&c->lock);
	while (!c->ending) {
		struct task *t = c->todo;
		enum cistern_exit result = CISTERN_EXIT_FAILED;
		char text[CISTERN_ERROR_TEXT_BYTES] = "";
		struct wire_shared_list shared = { 0 };

		if (!t) {
			wait_changed(c, INT64_MAX);
			continue;
		}
		c->todo = t->next;
		c->working = true;
		c->working_on = t->session;
		pthread_mutex_unlock(&c->lock);
		c->opt.work(&(struct collective_work){ .kind = t->kind,
				    .part = t->part,
				    .cautious = t->cautious,
				    .paths = (const char *const *)t->paths.at,
				    .num_paths = t->paths.num,
				    .shared = &t->shared },
			&result, text, &shared, c->opt.arg);
		tell_done(c, t, result, text, &shared);
		wire_shared_free(&shared);
		task_free(t);
		pthread_mutex_lock(&c->lock);
		c->working = false;
	}
	pthread_mutex_unlock(&c->lock);
	return NULL;
}

static int serve_part(struct collective *c, const struct wire_msg *m)
{
	struct task *t = calloc(1, sizeof(*t)), **at = &c->todo;

	if (!t)
		return -ENOMEM;
	t->session = get(m, TAG_SESSION);
	t->part = (unsigned int)get(m, TAG_PART);
	t->kind = (enum drain_kind)get(m, TAG_KIND);
	t->cautious = get(m, TAG_CAUTIOUS) != 0;
	paths_decode(&t->paths, m);
	if (get_shared(m, &t->shared) < 0) {
		task_free(t);
		return -ENOMEM;
	}
	pthread_mutex_lock(&c->lock);
	while (*at)
		at = &(*at)->next;
	*at = t;
	pthread_cond_broadcast(&c->changed);
	pthread_mutex_unlock(&c->lock);
	return 0;
}

static void serve_stop(struct collective *c, uint64_t session)
{
	bool mine;

	pthread_mutex_lock(&c->lock);
	mine = c->working && c->working_on == session;
	pthread_mutex_unlock(&c->lock);
	if (mine)
		c->opt.stop_work(c->opt.arg);
}

/* ---- leading (node 0) */

static int serve_ask(struct collective *c, uint32_t from, const struct wire_msg *m)
{
	struct ask *a = calloc(1, sizeof(*a));
	uint64_t id = get(m, TAG_ID);

	if (!a)
		return -ENOMEM;
	a->from = from;
	a->id = id;
	a->kind = (enum drain_kind)get(m, TAG_KIND);
	paths_decode(&a->paths, m);
	pthread_mutex_lock(&c->lock);
	if (find_ask(c->asks, from, id) || find_ask(c->finals, from, id)) {
		ask_free(a); /* asked again */
	} else {
		append(a->kind == DRAIN_FINAL ? &c->finals : &c->asks, a);
		if (c->leading && c->background && a->kind != DRAIN_BACKGROUND)
			c->stop_session = true; /* nobody waits for that one */
		if (a->kind == DRAIN_FINAL && !c->leave_usec)
			c->leave_usec = now_usec() + (int64_t)c->opt.leave_timeout_usec;
		pthread_cond_broadcast(&c->changed);
	}
	pthread_mutex_unlock(&c->lock);
	return 0;
}

static void serve_cancel(struct collective *c, uint32_t from, uint64_t id)
{
	struct ask *a;

	pthread_mutex_lock(&c->lock);
	a = find_ask(c->asks, from, id);
	a = a ? a : find_ask(c->finals, from, id);
	if (a)
		a->cancelled = true;
	/* A running session serves several: it goes on unless nobody but the background wants it. */
	if (c->leading && c->background)
		c->stop_session = true;
	pthread_cond_broadcast(&c->changed);
	pthread_mutex_unlock(&c->lock);
}

/* lock is held. The first trouble is told; all count. */
static void note_result(struct collective *c, uint32_t node, enum cistern_exit result, const char *text)
{
	char name[128];

	if (result == CISTERN_EXIT_OK)
		return;
	if (c->result == CISTERN_EXIT_OK || (c->result == CISTERN_EXIT_INCOMPLETE && !c->text[0]))
		snprintf(c->text, sizeof(c->text), "%s: %s", peers_name(c->opt.peers, node, name, sizeof(name)),
			text[0] ? text : "not everything could be drained");
	c->result = c->result == CISTERN_EXIT_FAILED ? c->result : result;
}

/* lock is held. What a node's part says of shared files. */
static void take_shared(struct collective *c, const struct wire_msg *m)
{
	struct wire_shared_list said = { 0 };
	int r = c->part == WIRE_PART_BEGIN ? get_shared(m, &c->shared) : get_shared(m, &said);

	for (size_t i = 0; i < said.num; i++) {
		struct wire_shared *known = wire_shared_find(&c->shared, said.at[i].ino);

		if (known && c->part == WIRE_PART_FILES)
			known->failed = false; /* it is published */
		else if (known)
			known->failed = known->failed || said.at[i].failed;
	}
	wire_shared_free(&said);
	if (r == -ENOSPC || r == -ENOMEM) /* these are not known to the others: they stay dirty */
		note_result(c, 0, CISTERN_EXIT_INCOMPLETE,
			"too many shared files for one session: run cistern flush again");
}

/* lock is held. Before a part that needs that all went well before it; after a part that only names what went well. */
static void fail_shared(struct collective *c)
{
	for (size_t i = 0; i < c->shared.num; i++)
		c->shared.at[i].failed = true;
}

static void drop_failed_shared(struct collective *c)
{
	struct wire_shared_list good = { 0 };

	for (size_t i = 0; i < c->shared.num; i++)
		if (!c->shared.at[i].failed && wire_shared_add(&good, &c->shared.at[i]) < 0)
			break; /* the rest is dropped with the next session */
	wire_shared_free(&c->shared);
	c->shared = good;
}

static void serve_part_done(struct collective *c, uint32_t from, const struct wire_msg *m)
{
	char text[CISTERN_ERROR_TEXT_BYTES] = "";

	wire_get_str(m, WIRE_TEXT, 0, text, sizeof(text));
	pthread_mutex_lock(&c->lock);
	if (c->leading && get(m, TAG_SESSION) == c->session && get(m, TAG_PART) == c->part && from < c->num_state &&
		c->state[from] == AT_WORK) {
		c->state[from] = DONE;
		take_shared(c, m);
		note_result(c, from, (enum cistern_exit)get(m, TAG_RESULT), text);
		pthread_cond_broadcast(&c->changed);
	}
	pthread_mutex_unlock(&c->lock);
}

/* lock is held. */
static void lose(struct collective *c, uint32_t node, const char *why)
{
	if (!c->leading || node >= c->num_state || c->state[node] != AT_WORK)
		return;
	c->state[node] = LOST;
	note_result(c, node, CISTERN_EXIT_INCOMPLETE, why);
	pthread_cond_broadcast(&c->changed);
}

void collective_event(struct collective *c, enum peers_event event, uint32_t node)
{
	pthread_mutex_lock(&c->lock);
	if (event == PEERS_RESTARTED)
		lose(c, node, "its daemon was restarted during the drain");
	if (event == PEERS_GONE)
		lose(c, node, "its daemon has ended");
	if (event == PEERS_RESTARTED && node == 0)
		for (struct ask *a = c->mine; a; a = a->next)
			a->sent = false;
	if (event == PEERS_GONE && node == 0)
		for (struct ask *a = c->mine; a; a = a->next)
			a->lost = a->sent;
	pthread_cond_broadcast(&c->changed);
	pthread_mutex_unlock(&c->lock);
}

struct sending {
	struct collective *c;
	uint32_t node;
};

static void part_sent(int status, const struct wire_msg *reply, void *arg)
{
	struct sending *s = arg;
	char why[CISTERN_ERROR_TEXT_BYTES];

	if (status) {
		snprintf(why, sizeof(why), "cannot be reached (%s)", strerror(-status));
		pthread_mutex_lock(&s->c->lock);
		lose(s->c, s->node, why);
		pthread_mutex_unlock(&s->c->lock);
	}
	free(s);
}

static void send_to(struct collective *c, uint32_t node, const struct wire_msg *m)
{
	struct sending *s = malloc(sizeof(*s));
	int r = s ? 0 : -ENOMEM;

	if (s) {
		*s = (struct sending){ c, node };
		r = peers_call_async(c->opt.peers, node, m, part_sent, s);
	}
	if (r < 0) {
		free(s);
		pthread_mutex_lock(&c->lock);
		lose(c, node, strerror(-r));
		pthread_mutex_unlock(&c->lock);
	}
}

/* lock is held, given up meanwhile. Who is not at work takes no notice. */
static void send_stop(struct collective *c)
{
	struct wire_msg m = { 0 };

	message_init(&m, (enum message_type)MESSAGE_DRAIN_STOP);
	put(&m, TAG_SESSION, c->session);
	pthread_mutex_unlock(&c->lock);
	for (uint32_t i = 0; i < c->num_state; i++)
		peers_tell(c->opt.peers, i, &m);
	wire_msg_free(&m);
	pthread_mutex_lock(&c->lock);
}

static bool all_done(const struct collective *c)
{
	for (uint32_t i = 0; i < c->num_state; i++)
		if (c->state[i] == AT_WORK)
			return false;
	return true;
}

/* lock is held, given up meanwhile. True: every node that should has done it. */
static bool run_part(struct collective *c, unsigned int part, bool first_only, enum drain_kind kind, bool cautious,
	const struct paths *paths)
{
	uint32_t num = first_only ? 1 : c->num_state;
	struct wire_msg m = { 0 };
	bool told = false, whole = true;

	message_init(&m, (enum message_type)MESSAGE_DRAIN_PART);
	put(&m, TAG_SESSION, c->session);
	put(&m, TAG_PART, part);
	put(&m, TAG_KIND, kind);
	put(&m, TAG_CAUTIOUS, cautious);
	paths_encode(&m, paths);
	put_shared(&m, &c->shared);
	if (part == WIRE_PART_FILES)
		fail_shared(c); /* until its home says that it is published */
	c->part = part;
	for (uint32_t i = 0; i < c->num_state; i++)
		c->state[i] = i < num ? AT_WORK : DONE;
	pthread_mutex_unlock(&c->lock);
	for (uint32_t i = 0; i < num; i++)
		send_to(c, i, &m);
	wire_msg_free(&m);
	pthread_mutex_lock(&c->lock);
	while (!all_done(c) && !c->ending) {
		if (c->stop_session && !told) {
			told = true;
			send_stop(c);
			continue;
		}
		wait_changed(c, INT64_MAX);
	}
	for (uint32_t i = 0; i < num; i++)
		whole = whole && c->state[i] == DONE;
	return whole && !c->ending;
}

/* lock is held, given up meanwhile. */
static void run_session(struct collective *c, enum drain_kind kind, const struct paths *paths)
{
	static const struct {
		unsigned int part;
		bool first_only; /* node 0 alone */
	} parts[] = {
		{ COLLECTIVE_COMMIT, false },
		{ WIRE_PART_DIRS, true },
		{ WIRE_PART_PARK, false },
		{ WIRE_PART_BEGIN, false },
		{ WIRE_PART_DATA, false },
		{ WIRE_PART_HEAD, false },
		{ WIRE_PART_FILES, false },
		{ COLLECTIVE_DROP, false },
		{ WIRE_PART_REMOVE, false },
		{ WIRE_PART_FINISH, true },
	};
	bool whole = true;

	c->session++;
	c->leading = true;
	c->stop_session = false;
	c->background = kind == DRAIN_BACKGROUND;
	c->result = CISTERN_EXIT_OK;
	c->text[0] = '\0';
	wire_shared_free(&c->shared);
	for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]) && !c->stop_session && !c->ending; i++) {
		whole = run_part(c, parts[i].part, parts[i].first_only, kind, !whole, paths) && whole;
		if (parts[i].part == WIRE_PART_FILES)
			drop_failed_shared(c);
		else if (parts[i].part == WIRE_PART_HEAD && !whole)
			fail_shared(c);
	}
	if (c->stop_session && c->result == CISTERN_EXIT_OK) {
		c->result = CISTERN_EXIT_INCOMPLETE;
		snprintf(c->text, sizeof(c->text), "stopped before its end; the rest is in the stores");
	}
	c->leading = false;
}

/* lock is held, given up meanwhile; a is freed. */
static void answer(struct collective *c, struct ask *a, enum cistern_exit result, const char *text)
{
	struct wire_msg m = { 0 };

	message_init(&m, (enum message_type)MESSAGE_DRAIN_ANSWER);
	put(&m, TAG_ID, a->id);
	put(&m, TAG_RESULT, result);
	wire_put_str(&m, WIRE_TEXT, text);
	pthread_mutex_unlock(&c->lock);
	peers_call(c->opt.peers, a->from, &m, NULL); /* a node that has gone needs no answer */
	wire_msg_free(&m);
	ask_free(a);
	pthread_mutex_lock(&c->lock);
}

/* Our own last: with the answer to a final one this daemon ends, and the others must have theirs by then. */
static void answer_all(struct collective *c, struct ask **list, enum cistern_exit result, const char *text)
{
	struct ask *own = NULL;

	while (*list) {
		struct ask *a = *list;

		*list = a->next;
		if (a->from == 0)
			append(&own, a);
		else
			answer(c, a, result, text);
	}
	while (own) {
		struct ask *a = own;

		own = a->next;
		answer(c, a, result, text);
	}
}

/* What all of them want together. */
static void merge(const struct ask *list, enum drain_kind *ret_kind, struct paths *ret)
{
	*ret = (struct paths){ 0 };
	*ret_kind = DRAIN_BACKGROUND;
	for (const struct ask *a = list; a; a = a->next)
		if (a->kind != DRAIN_BACKGROUND)
			*ret_kind = DRAIN_FLUSH;
	for (const struct ask *a = list; a; a = a->next) {
		bool good = a->paths.num > 0;

		for (size_t i = 0; good && i < a->paths.num; i++)
			good = ret->num < DRAIN_PATHS_MAX && paths_add(ret, a->paths.at[i]);
		if (!good) {
			paths_free(ret);
			return;
		}
	}
}

/* lock is held. Names the nodes that are still mounted. */
static void name_late(struct collective *c, char *out, size_t cap)
{
	size_t n = 0;
	char name[128];

	out[0] = '\0';
	for (uint32_t i = 0; i < c->num_state && n < cap; i++) {
		const struct ask *a = c->finals;

		while (a && a->from != i)
			a = a->next;
		if (!a)
			n += (size_t)snprintf(out + n, cap - n, "%s%s", n ? ", " : "",
				peers_name(c->opt.peers, i, name, sizeof(name)));
	}
}

/* lock is held, given up meanwhile. After a session that all these had asked for. */
static void finish_finals(struct collective *c, uint64_t served)
{
	char text[CISTERN_ERROR_TEXT_BYTES], late[CISTERN_ERROR_TEXT_BYTES / 4];
	bool all = served == c->num_state;

	if (!c->finals || (!all && now_usec() < c->leave_usec))
		return;
	c->leave_usec = 0;
	if (all) {
		memcpy(text, c->text, sizeof(text));
		answer_all(c, &c->finals, c->result, text);
		return;
	}
	name_late(c, late, sizeof(late));
	snprintf(text, sizeof(text),
		"still mounted when the time was over: %s; what the other nodes had is drained as far as it could be%s%.500s",
		late, c->text[0] ? "; " : "", c->text);
	answer_all(c, &c->finals, CISTERN_EXIT_INCOMPLETE, text);
}

/* lock is held, given up meanwhile. Who does not want to wait any longer. */
static void drop_cancelled(struct collective *c)
{
	struct ask *a = c->finals;

	while (a && !a->cancelled)
		a = a->next;
	if (a)
		answer(c, take_ask(&c->finals, a->from, a->id), CISTERN_EXIT_INCOMPLETE,
			"stopped before its end; the rest is in the store");
}

/* lock is held. A session is due: somebody asks, or the last ones shall not wait any longer. */
static bool is_due(struct collective *c)
{
	return c->asks || count(c->finals) > c->finals_served || (c->leave_usec && now_usec() >= c->leave_usec);
}

static int know_nodes(struct collective *c)
{
	uint32_t num = peers_count(c->opt.peers);

	if (c->num_state == num)
		return 0;
	free(c->state);
	c->state = calloc(num, 1);
	c->num_state = c->state ? num : 0;
	return c->state ? 0 : -ENOMEM;
}

static void lead(struct collective *c)
{
	struct ask *asks = c->asks;
	struct paths paths;
	enum drain_kind kind;
	uint64_t served = count(c->finals);
	char text[CISTERN_ERROR_TEXT_BYTES];
	enum cistern_exit result;

	c->asks = NULL;
	merge(asks, &kind, &paths);
	if (served > c->finals_served || !asks) {
		kind = DRAIN_FLUSH;
		paths_free(&paths);
	}
	if (know_nodes(c) < 0) {
		answer_all(c, &asks, CISTERN_EXIT_FAILED, "out of memory");
		return;
	}
	run_session(c, kind, &paths);
	paths_free(&paths);
	c->finals_served = served;
	result = c->result;
	memcpy(text, c->text, sizeof(text));
	answer_all(c, &asks, result, text);
	finish_finals(c, served);
	c->finals_served = c->finals ? c->finals_served : 0;
}

static void *leader_thread(void *arg)
{
	struct collective *c = arg;

	pthread_mutex_lock(&c->lock);
	while (!c->ending) {
		drop_cancelled(c);
		if (is_due(c))
			lead(c);
		else
			wait_changed(c, c->leave_usec ? c->leave_usec : INT64_MAX);
	}
	pthread_mutex_unlock(&c->lock);
	return NULL;
}

/* ---- life */

void collective_serve(struct collective *c, struct peers_request *rq)
{
	const struct wire_msg *m = peers_msg(rq);
	int r = 0;

	switch ((int)m->type) {
	case MESSAGE_DRAIN_ASK: r = serve_ask(c, peers_from(rq), m); break;
	case MESSAGE_DRAIN_ANSWER: serve_answer(c, m); break;
	case MESSAGE_DRAIN_CANCEL: serve_cancel(c, peers_from(rq), get(m, TAG_ID)); break;
	case MESSAGE_DRAIN_PART: r = serve_part(c, m); break;
	case MESSAGE_DRAIN_PART_DONE: serve_part_done(c, peers_from(rq), m); break;
	case MESSAGE_DRAIN_STOP: serve_stop(c, get(m, TAG_SESSION)); break;
	default: r = -EOPNOTSUPP;
	}
	peers_reply_status(rq, r);
}

int collective_create(const struct collective_options *opt, struct collective **ret, struct cistern_error *err)
{
	struct collective *c = calloc(1, sizeof(*c));
	pthread_condattr_t attr;
	int r;

	if (!c)
		return cistern_error_set(err, -ENOMEM, "out of memory");
	c->opt = *opt;
	pthread_mutex_init(&c->lock, NULL);
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&c->changed, &attr);
	pthread_condattr_destroy(&attr);
	r = -pthread_create(&c->asker, NULL, asker_thread, c);
	c->threads += r == 0;
	if (r == 0)
		r = -pthread_create(&c->worker, NULL, worker_thread, c);
	c->threads += r == 0;
	if (r == 0)
		r = -pthread_create(&c->leader, NULL, leader_thread, c);
	c->threads += r == 0;
	if (r < 0) {
		collective_destroy(c);
		return cistern_error_set(err, r, "cannot start the job's drain: %s", strerror(-r));
	}
	*ret = c;
	return 0;
}

static void free_list(struct ask *list)
{
	while (list) {
		struct ask *next = list->next;

		ask_free(list);
		list = next;
	}
}

void collective_destroy(struct collective *c)
{
	if (!c)
		return;
	pthread_mutex_lock(&c->lock);
	c->ending = true;
	pthread_cond_broadcast(&c->changed);
	pthread_mutex_unlock(&c->lock);
	c->opt.stop_work(c->opt.arg);
	if (c->threads > 0)
		pthread_join(c->asker, NULL);
	if (c->threads > 1)
		pthread_join(c->worker, NULL);
	if (c->threads > 2)
		pthread_join(c->leader, NULL);
	while (c->todo) {
		struct task *next = c->todo->next;

		task_free(c->todo);
		c->todo = next;
	}
	free_list(c->mine);
	free_list(c->asks);
	free_list(c->finals);
	wire_shared_free(&c->shared);
	free(c->state);
	pthread_cond_destroy(&c->changed);
	pthread_mutex_destroy(&c->lock);
	free(c);
}
