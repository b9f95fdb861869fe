/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Messages between daemons: who is asked, how often a request is executed when agents and daemons die, what callers are told. The
 * handler counts and keeps requests, so the test knows what happened on the other side.
 */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fs/peer/frame.h"
#include "tests/lib/job_world.h"
#include "tests/lib/loopback.h"
#include "tests/lib/tap.h"

#define NODES    3
#define KEPT_MAX 8

enum { ECHO = 1000, KEEP, NOTE, FAIL, ASK_OTHER };

struct side { /* what one daemon knows */
	struct world *w;
	uint32_t node;
	unsigned int echoes, notes, events[4], last_event_node[4];
	enum peers_event last_event;
	uint64_t last_note;
	bool disorder;
	struct peers_request *kept[KEPT_MAX];
	unsigned int num_kept;
};

struct world {
	struct loopback *l;
	pthread_mutex_t lock;
	pthread_cond_t cond;
	struct side sides[NODES];
	char log_text[4096]; /* all lines, one after the other, as far as they fit */
	bool slow_log;       /* a line takes its time */
};

static uint64_t number_of(const struct wire_msg *m)
{
	uint64_t v = 0;

	wire_get_u64(m, WIRE_SEQ, &v);
	return v;
}

static void answer(struct peers_request *rq, uint64_t number)
{
	struct wire_msg reply = { 0 };

	wire_msg_init(&reply, WIRE_REPLY);
	wire_put_i64(&reply, WIRE_STATUS, 0);
	wire_put_u64(&reply, WIRE_SEQ, number);
	peers_reply(rq, &reply);
	wire_msg_free(&reply);
}

static void asked_done(int status, const struct wire_msg *reply, void *arg)
{
	struct peers_request *rq = arg;

	if (status)
		peers_reply_status(rq, status);
	else
		answer(rq, number_of(reply) + 1);
}

static void handle(struct peers_request *rq, void *arg)
{
	const struct wire_msg *m = peers_msg(rq);
	struct side *s = arg;
	uint64_t number = number_of(m);
	uint16_t type = m->type;

	pthread_mutex_lock(&s->w->lock);
	s->echoes += type == ECHO;
	if (type == NOTE) {
		s->notes++;
		s->disorder = s->disorder || number <= s->last_note;
		s->last_note = number;
	}
	if (type == KEEP && s->num_kept < KEPT_MAX)
		s->kept[s->num_kept++] = rq;
	pthread_cond_broadcast(&s->w->cond);
	pthread_mutex_unlock(&s->w->lock);
	if (type == KEEP)
		return;
	if (type == ASK_OTHER) {
		struct wire_msg ask = { .type = ECHO };

		wire_put_u64(&ask, WIRE_SEQ, number);
		if (peers_call_async(loopback_peers(s->w->l, s->node), (s->node + 1) % NODES, &ask, asked_done, rq))
			peers_reply_status(rq, -EIO);
		wire_msg_free(&ask);
	} else if (type == FAIL) {
		peers_reply_status(rq, -ENOENT);
	} else {
		answer(rq, number + 100 * s->node);
	}
}

static void event(enum peers_event event, uint32_t node, void *arg)
{
	struct side *s = arg;

	pthread_mutex_lock(&s->w->lock);
	s->events[event]++;
	s->last_event_node[event] = node;
	s->last_event = event;
	pthread_cond_broadcast(&s->w->cond);
	pthread_mutex_unlock(&s->w->lock);
}

static void take_line(bool warning, const char *name, const char *text, void *arg)
{
	struct world *w = arg;

	size_t len;

	(void)warning;
	pthread_mutex_lock(&w->lock);
	len = strlen(w->log_text);
	snprintf(w->log_text + len, sizeof(w->log_text) - len, "%s %s\n", name, text);
	pthread_cond_broadcast(&w->cond);
	pthread_mutex_unlock(&w->lock);
	if (w->slow_log)
		usleep(300000);
}

static void set_hooks(struct world *w, uint32_t node)
{
	w->sides[node].w = w;
	w->sides[node].node = node;
	peers_set_hooks(loopback_peers(w->l, node),
		&(struct peers_hooks){ .handle = handle, .event = event, .arg = &w->sides[node] });
}

static struct world *world_make(const struct loopback_options *opt)
{
	struct loopback_options o = *opt;
	struct world *w = calloc(1, sizeof(*w));

	if (!w)
		abort();
	pthread_mutex_init(&w->lock, NULL);
	pthread_cond_init(&w->cond, NULL);
	o.num = NODES;
	o.log = take_line;
	o.log_arg = w;
	w->l = loopback_create(&o);
	for (uint32_t i = 0; i < NODES; i++)
		set_hooks(w, i);
	return w;
}

static void world_free(struct world *w)
{
	loopback_destroy(w->l);
	pthread_mutex_destroy(&w->lock);
	pthread_cond_destroy(&w->cond);
	free(w);
}

static void wait_kept(struct world *w, uint32_t node, unsigned int num)
{
	pthread_mutex_lock(&w->lock);
	while (w->sides[node].num_kept < num)
		pthread_cond_wait(&w->cond, &w->lock);
	pthread_mutex_unlock(&w->lock);
}

static void wait_event(struct world *w, uint32_t node, enum peers_event what, unsigned int num)
{
	pthread_mutex_lock(&w->lock);
	while (w->sides[node].events[what] < num)
		pthread_cond_wait(&w->cond, &w->lock);
	pthread_mutex_unlock(&w->lock);
}

static int ask(struct world *w, uint32_t from, uint32_t to, uint16_t type, uint64_t number, uint64_t *ret)
{
	struct wire_msg m = { .type = type }, reply = { 0 };
	int r;

	wire_put_u64(&m, WIRE_SEQ, number);
	r = peers_call(loopback_peers(w->l, from), to, &m, &reply);
	if (!r && ret)
		*ret = number_of(&reply);
	wire_msg_free(&m);
	wire_msg_free(&reply);
	return r;
}

/* For worlds of short time-outs, in which a slow machine may be too late. */
static int ask_again(struct world *w, uint32_t from, uint32_t to)
{
	int r = -ETIMEDOUT;

	for (int i = 0; i < 600 && r == -ETIMEDOUT; i++)
		r = ask(w, from, to, ECHO, 1, NULL);
	return r;
}

static int tell(struct world *w, uint32_t from, uint32_t to, uint64_t number)
{
	struct wire_msg m = { .type = NOTE };
	int r;

	wire_put_u64(&m, WIRE_SEQ, number);
	r = peers_tell(loopback_peers(w->l, from), to, &m);
	wire_msg_free(&m);
	return r;
}

/* A call in a thread of its own. */
struct asker {
	struct world *w;
	uint32_t from, to;
	uint16_t type;
	uint64_t number, got;
	int r;
	pthread_t thread;
};

static void *asker_thread(void *arg)
{
	struct asker *a = arg;

	a->r = ask(a->w, a->from, a->to, a->type, a->number, &a->got);
	return NULL;
}

static void asker_start(struct asker *a)
{
	a->r = 1;
	if (pthread_create(&a->thread, NULL, asker_thread, a))
		abort();
}

static int asker_join(struct asker *a)
{
	pthread_join(a->thread, NULL);
	return a->r;
}

/* ---- tests */

static void test_frames(void)
{
	static const uint8_t expected[] = { 3, 2, 2, 0, /**/ 5, 0, 0, 0, 0, 0, 0, 0, /**/ 3, 0, 0, 0, 0, 0, 0, 0,
		/**/ 3, 2, 1, 0, 0, 0, 0, 0,
		/**/ 6, 0, 0, 0, 0, 0, 0, 0,
		/**/ 4, 0, 0, 0, 0, 0, 0, 0, /**/ 7, 0, 0, 0, 0, 0, 0, 0, /**/ 8, 0, 0, 0, 0, 0, 0, 0, /**/ 9, 0, 0, 0,
		0, 0, 0, 0, /**/ 0, 1, 0, 0, 0, 0, 0, 0, /**/ 3, 4, 'b' };
	static const uint64_t acks[] = { 9, 256 };
	struct frame f = { .kind = FRAME_REPLY,
		.incarnation = 5,
		.to = 3,
		.time_ns = 0x010203,
		.number = 6,
		.previous = 4,
		.seen = 7,
		.below = 8,
		.num_acks = 2,
		.type = 0x0403 },
		     back;
	struct buf out BUF_CLEANUP = { 0 };
	size_t missed = 0;

	frame_put_head(&out, &f, acks);
	buf_u8(&out, 'b');
	ok(out.len == sizeof(expected) && memcmp(out.data, expected, out.len) == 0, "a frame's bytes");
	is_int(frame_decode(out.data, out.len, &back), 0, "are a frame");
	ok(back.number == 6 && back.to == 3 && back.time_ns == 0x010203 && back.previous == 4 && back.seen == 7 &&
			back.below == 8 && back.type == 0x0403 && back.body_len == 1 && frame_ack(&back, 1) == 256,
		"with the same fields");
	for (size_t len = 0; len < out.len - 1; len++)
		missed += frame_decode(out.data, len, &back) == 0;
	is_u64(missed, 0, "no cut one is");
	out.data[2] = 65;
	is_int(frame_decode(out.data, out.len, &back), -EBADMSG, "nor one with too many acks");
	out.data[0] = 1;
	is_int(frame_decode(out.data, out.len, &back), -EPROTONOSUPPORT, "nor one of another version");
}

static void count_reply(uint32_t node, const struct wire_msg *reply, void *arg)
{
	uint64_t *sum = arg;

	*sum += number_of(reply) * (node + 1);
}

static void test_calls(void)
{
	struct world *w = world_make(&(struct loopback_options){ 0 });
	struct wire_msg m = { .type = ECHO };
	struct cistern_error err = { 0 };
	char name[64];
	uint64_t got = 0, sum = 0;
	int status[NODES];

	is_u64(peers_count(loopback_peers(w->l, 2)), 1, "alone at first");
	ok(!peers_numbered(loopback_peers(w->l, 2)), "and not numbered");
	is_int(ask(w, 2, 0, ECHO, 1, &got), 0, "it can ask itself all the same");
	is_u64(got, 201, "and gets its own answer");
	is_int(ask(w, 2, 1, ECHO, 1, NULL), -EINVAL, "but nobody else");
	loopback_assemble(w->l);
	is_int(peers_wait_numbered(loopback_peers(w->l, 2), UINT64_MAX, &err), 0, "the agents assemble");
	ok(peers_self(loopback_peers(w->l, 2)) == 2 && peers_count(loopback_peers(w->l, 2)) == 3, "node 2 of 3");
	loopback_settle(w->l);
	is_u64(w->sides[2].events[PEERS_ASSEMBLED], 1, "which is told");
	is_int(ask(w, 0, 1, ECHO, 7, &got), 0, "a call");
	is_u64(got, 107, "is answered by who was asked");
	is_int(ask(w, 0, 1, FAIL, 7, NULL), -ENOENT, "an error arrives as it is");
	is_int(ask(w, 0, 1, ASK_OTHER, 7, &got), 0, "a handler asks another node before it answers");
	is_u64(got, 208, "whose answer comes back");
	is_int(ask(w, 0, 0, ASK_OTHER, 7, &got), 0, "of one's own, too");
	is_u64(got, 108, "the same");
	wire_put_u64(&m, WIRE_SEQ, 1);
	is_int(peers_call_all(loopback_peers(w->l, 1), &m, status, count_reply, &sum), 0, "all are asked");
	is_u64(sum, 1 + 2 * 101 + 3 * 201, "and each answers");
	is_int(status[0] | status[1] | status[2], 0, "well");
	is_str(peers_name(loopback_peers(w->l, 0), 2, name, sizeof(name)), "node 2 (host host2)", "a node's name");
	buf_zeros(&m.body, WIRE_MAX_BYTES);
	is_int(peers_call(loopback_peers(w->l, 0), 1, &m, NULL), -E2BIG, "a message may not be longer than the wire's");
	wire_msg_free(&m);
	world_free(w);
}

/* More than any table holds at once, from several threads, with delays: each is executed once, tells keep their order. */
static void *many(void *arg)
{
	struct asker *a = arg;

	a->r = 0;
	for (uint64_t i = 1; i <= a->number && !a->r; i++) {
		a->r = ask(a->w, a->from, a->to, ECHO, i, &a->got);
		if (!a->r && a->got != i + 100 * a->to)
			a->r = -EBADMSG;
	}
	return NULL;
}

static void test_many(void)
{
	struct world *w = world_make(&(struct loopback_options){ 0 });
	struct asker askers[8];
	int bad = 0;

	loopback_assemble(w->l);
	is_int(peers_wait_numbered(loopback_peers(w->l, 0), UINT64_MAX, NULL), 0, "assembled");
	is_int(peers_wait_numbered(loopback_peers(w->l, 1), UINT64_MAX, NULL), 0, "both");
	loopback_set_delay(w->l, 0, 200, 42);
	for (unsigned int i = 0; i < 8; i++) {
		askers[i] = (struct asker){ .w = w, .from = i % 2, .to = 1 - i % 2, .number = 500 };
		if (pthread_create(&askers[i].thread, NULL, many, &askers[i]))
			abort();
	}
	for (uint64_t i = 1; i <= 1000; i++)
		bad |= tell(w, 0, 1, i);
	for (unsigned int i = 0; i < 8; i++)
		bad |= asker_join(&askers[i]);
	loopback_settle(w->l);
	is_int(bad, 0, "thousands of calls and tells");
	is_u64(w->sides[0].echoes, 2000, "each call is executed once by one node");
	is_u64(w->sides[1].echoes, 2000, "and by the other");
	is_u64(w->sides[1].notes, 1000, "each tell arrives once");
	ok(!w->sides[1].disorder, "in order");
	world_free(w);
}

/* Replies, requests and tells vanish with the agents. */
static void test_lost_agents(void)
{
	struct world *w = world_make(&(struct loopback_options){ 0 });
	struct asker a = { .w = w, .from = 0, .to = 1, .type = ECHO, .number = 3 };
	struct asker k = { .w = w, .from = 0, .to = 1, .type = KEEP, .number = 4 };

	loopback_assemble(w->l);
	loopback_settle(w->l);
	asker_start(&k);
	wait_kept(w, 1, 1);
	loopback_lose_at_reply(w->l, 1, 0);
	asker_start(&a);
	wait_event(w, 0, PEERS_LOST, 1);
	wait_event(w, 1, PEERS_LOST, 1);
	is_u64(w->sides[1].echoes, 1, "a request was executed, its reply was lost");
	for (uint64_t i = 1; i <= 200; i++)
		tell(w, 0, 1, i);
	loopback_settle(w->l);
	is_u64(w->sides[1].notes, 0, "nothing travels without agents");
	loopback_assemble(w->l);
	is_int(asker_join(&a), 0, "when they are back the caller gets its reply");
	is_u64(a.got, 103, "the right one");
	loopback_settle(w->l);
	is_u64(w->sides[1].echoes, 1, "and the request was not executed again");
	is_u64(w->sides[1].notes, 200, "what was told meanwhile has arrived");
	is_u64(w->sides[1].num_kept, 1, "a request that was being worked on was not given to the handler again");
	answer(w->sides[1].kept[0], 5);
	is_int(asker_join(&k), 0, "and is answered when it is done");
	is_u64(k.got, 5, "well");
	is_u64(w->sides[0].events[PEERS_RESTARTED], 0, "no daemon was restarted");
	world_free(w);
}

/* Agents die all the time, while calls and tells go on. */
static void test_storm(void)
{
	struct world *w = world_make(&(struct loopback_options){ 0 });
	struct asker askers[4];
	bool told = true;
	uint64_t note = 0;
	int bad = 0;

	loopback_assemble(w->l);
	loopback_settle(w->l);
	loopback_set_delay(w->l, 0, 300, 7);
	for (unsigned int i = 0; i < 4; i++) {
		askers[i] = (struct asker){ .w = w, .from = i % 2, .to = 2, .number = 300 };
		if (pthread_create(&askers[i].thread, NULL, many, &askers[i]))
			abort();
	}
	for (unsigned int round = 0; round < 60; round++) {
		for (unsigned int i = 0; i < 20; i++)
			told = told && tell(w, 0, 1, ++note) == 0;
		loopback_lose(w->l, round % 3 ? LOOPBACK_ALL : round / 3 % NODES);
		for (unsigned int i = 0; i < 20; i++)
			told = told && tell(w, 0, 1, ++note) == 0;
		loopback_assemble(w->l);
		usleep(500);
	}
	for (unsigned int i = 0; i < 4; i++)
		bad |= asker_join(&askers[i]);
	loopback_settle(w->l);
	is_int(bad, 0, "calls go on while agents die");
	is_u64(w->sides[2].echoes, 1200, "each is executed once");
	ok(told && w->sides[1].notes == note && !w->sides[1].disorder, "each tell arrives once, in order");
	world_free(w);
}

static uint64_t incarnation_of(struct world *w, uint32_t at, uint32_t node)
{
	struct peers_node n = { 0 };

	(void)peers_nodes(loopback_peers(w->l, at), node, &n, 1);
	return n.incarnation;
}

/* Its agent has taken that for the daemon before, which had a request of the same number. */
static void receive_late_reply(struct world *w, uint32_t node, uint32_t from, uint64_t to, uint64_t number)
{
	struct frame f = { .kind = FRAME_REPLY,
		.incarnation = incarnation_of(w, node, from),
		.to = to,
		.number = number,
		.type = WIRE_REPLY };
	struct wire_msg reply = { 0 };
	struct buf out BUF_CLEANUP = { 0 };

	wire_put_i64(&reply, WIRE_STATUS, 0);
	wire_put_u64(&reply, WIRE_SEQ, 999);
	frame_put_head(&out, &f, NULL);
	buf_bytes(&out, reply.body.data, reply.body.len);
	peers_received(loopback_peers(w->l, node), from, out.data, out.len);
	wire_msg_free(&reply);
}

static void test_late_reply(void)
{
	struct world *w = world_make(&(struct loopback_options){ 0 });
	struct asker a = { .w = w, .from = 0, .to = 1, .type = KEEP, .number = 1 };
	uint64_t before;

	loopback_assemble(w->l);
	loopback_settle(w->l);
	before = incarnation_of(w, 0, 0);
	loopback_restart(w->l, 0);
	set_hooks(w, 0);
	loopback_assemble(w->l);
	loopback_settle(w->l);
	ok(before && incarnation_of(w, 0, 0) != before, "a daemon is another one");
	asker_start(&a);
	wait_kept(w, 1, 1);
	receive_late_reply(w, 0, 1, before, 1);
	answer(w->sides[1].kept[0], 7);
	is_int(asker_join(&a), 0, "its first request is answered");
	is_u64(a.got, 7, "by what answers it, and not by what answers the first one of the daemon before");
	world_free(w);
}

static void test_restart(void)
{
	struct world *w = world_make(&(struct loopback_options){ 0 });
	struct asker a = { .w = w, .from = 0, .to = 1, .type = KEEP, .number = 3 };
	struct asker b = { .w = w, .from = 0, .to = 1, .type = ECHO, .number = 4 };
	struct asker c = { .w = w, .from = 1, .to = 2, .type = KEEP, .number = 4 };

	loopback_assemble(w->l);
	loopback_settle(w->l);
	asker_start(&a);
	asker_start(&c);
	wait_kept(w, 1, 1);
	wait_kept(w, 2, 1);
	ok(peers_is_wanted(w->sides[2].kept[0]), "a request is wanted while its sender waits");
	loopback_kill(w->l, 1);
	loopback_settle(w->l);
	tell(w, 0, 1, 1);
	asker_start(&b);
	w->sides[1].num_kept = 0; /* the old daemon's */
	loopback_restart(w->l, 1);
	set_hooks(w, 1);
	is_int(asker_join(&c), -ESHUTDOWN, "who waits in a daemon that ends is told so");
	ok(peers_numbered(loopback_peers(w->l, 1)) && peers_self(loopback_peers(w->l, 1)) == 1,
		"the new daemon has its number at once");
	loopback_assemble(w->l);
	is_int(asker_join(&a), -ECONNRESET, "what the dead one may have executed is told so");
	loopback_settle(w->l);
	is_u64(w->sides[0].events[PEERS_RESTARTED], 1, "the others know that it is another one");
	is_u64(w->sides[0].last_event_node[PEERS_RESTARTED], 1, "which");
	ok(!peers_is_wanted(w->sides[2].kept[0]), "what the dead one asked for is not wanted any more");
	asker_join(&b);
	ok(b.r == 0 || b.r == -ECONNRESET, "what had not reached it is executed, or failed");
	is_int(ask(w, 1, 2, ECHO, 1, NULL), 0, "the new one is heard, though its numbers begin again");
	is_int(ask(w, 0, 1, ECHO, 1, NULL), 0, "and hears");
	answer(w->sides[2].kept[0], 1);
	loopback_settle(w->l);
	is_u64(w->sides[1].notes, 0, "what the dead one should have been told is not told the new one");
	world_free(w);
}

static void test_timeouts(void)
{
	struct world *w = world_make(&(struct loopback_options){
		.numbered = true, .timeout_usec = 100000, .patience_usec = 10000, .node_timeout_usec = 200000 });
	struct peers *p = loopback_peers(w->l, 0);
	struct cistern_error err = { 0 };

	ok(peers_numbered(p) && peers_count(p) == NODES, "numbered by an earlier assembly");
	is_int(ask(w, 0, 1, ECHO, 1, NULL), -ETIMEDOUT, "without agents a call ends by time");
	pthread_mutex_lock(&w->lock);
	while (!strstr(w->log_text, "peer-timeout"))
		pthread_cond_wait(&w->cond, &w->lock);
	ok(strstr(w->log_text, "peer-waiting waiting for node 1") &&
			strstr(w->log_text, "peer-timeout gave up waiting for node 1"),
		"and the log names who is waited for");
	pthread_mutex_unlock(&w->lock);
	loopback_assemble(w->l);
	is_int(ask(w, 0, 1, KEEP, 1, NULL), -ETIMEDOUT, "a node that does not answer, too");
	wait_kept(w, 1, 1);
	answer(w->sides[1].kept[0], 1); /* nobody wants it any more */
	loopback_settle(w->l);
	is_int(ask_again(w, 0, 1), 0, "the next call is answered");
	is_int(ask(w, 0, 0, KEEP, 1, NULL), -ETIMEDOUT, "one's own handler has no more time either");
	peers_reply_status(w->sides[0].kept[0], 0);
	loopback_kill(w->l, 1);
	wait_event(w, 0, PEERS_GONE, 1);
	is_u64(w->sides[0].last_event_node[PEERS_GONE], 1, "a daemon that stays away is given up");
	ok(!strstr(w->log_text, "peer-needed"), "nobody has needed it since");
	for (int i = 0; i < 3; i++)
		is_int(ask(w, 0, 1, ECHO, 1, NULL), -EHOSTDOWN, "and calls to it fail at once");
	const char *needed = strstr(w->log_text, "peer-needed node 1 ");
	ok(needed && !strstr(needed + 1, "peer-needed"), "the first of which is one line in the log");
	ok(strstr(w->log_text, "peer-given-up node 1 ") && !strstr(w->log_text, "peer-ended"), "the log says so");
	loopback_restart(w->l, 1);
	set_hooks(w, 1);
	loopback_assemble(w->l);
	wait_event(w, 0, PEERS_RESTARTED, 1);
	is_int(ask_again(w, 0, 1), 0, "until it is back");
	ok(strstr(w->log_text, "peer-back node 1 ") && strstr(w->log_text, "; 3 calls have failed"),
		"the log says so, and how many");
	loopback_end(w->l, 2);
	wait_event(w, 0, PEERS_GONE, 2);
	is_int(ask(w, 0, 2, ECHO, 1, NULL), -EHOSTDOWN, "one that ended for good is known at once");
	ok(strstr(w->log_text, "peer-ended node 2 "), "and the log says so");
	world_free(w);

	w = world_make(&(struct loopback_options){ .timeout_usec = 1000 });
	is_int(peers_wait_numbered(loopback_peers(w->l, 0), UINT64_MAX, &err), -ETIMEDOUT, "no number without agents");
	ok(strstr(err.text, "cistern agent"), "the text says what to do");
	world_free(w);
}

/* done() of calls that end by time, in the clock's thread. */
struct late {
	struct world *w;
	bool held, go;
};

static void hold_clock(int status, const struct wire_msg *reply, void *arg)
{
	struct late *late = arg;

	(void)status, (void)reply;
	pthread_mutex_lock(&late->w->lock);
	late->held = true;
	pthread_cond_broadcast(&late->w->cond);
	while (!late->go)
		pthread_cond_wait(&late->w->cond, &late->w->lock);
	pthread_mutex_unlock(&late->w->lock);
}

static void join_again(int status, const struct wire_msg *reply, void *arg)
{
	struct late *late = arg;

	(void)status, (void)reply;
	peers_joined(loopback_peers(late->w->l, 0), 1, 2);
}

static void keep_async(struct world *w, peers_done done, void *arg)
{
	struct wire_msg m = { .type = KEEP };

	if (peers_call_async(loopback_peers(w->l, 0), 2, &m, done, arg))
		abort();
	wire_msg_free(&m);
}

/* The clock has found node 1 overdue; before it gives it up, the node is there. */
static void test_joins_in_time(void)
{
	struct world *w = world_make(&(struct loopback_options){ .timeout_usec = 100000, .node_timeout_usec = 1000 });
	struct late late = { .w = w };

	loopback_assemble(w->l);
	loopback_settle(w->l);
	keep_async(w, hold_clock, &late);
	pthread_mutex_lock(&w->lock);
	while (!late.held)
		pthread_cond_wait(&w->cond, &w->lock);
	pthread_mutex_unlock(&w->lock);
	keep_async(w, join_again, &late);
	peers_left(loopback_peers(w->l, 0), 1);
	usleep(150000); /* both times are over */
	pthread_mutex_lock(&w->lock);
	late.go = true;
	pthread_cond_broadcast(&w->cond);
	pthread_mutex_unlock(&w->lock);
	is_int(ask(w, 0, 2, KEEP, 1, NULL), -ETIMEDOUT, "the clock has looked once more");
	is_u64(w->sides[0].events[PEERS_GONE], 0, "a daemon that comes at the last moment is not given up");
	is_int(ask_again(w, 0, 1), 0, "and is heard");
	world_free(w);
}

static bool knows_gone(struct world *w)
{
	struct peers_node n;

	return peers_nodes(loopback_peers(w->l, 0), 1, &n, 1) == 1 && n.gone;
}

/* Node 1 is given up by the clock's thread; before that has told anybody, the node is there again, which another thread tells. */
static void test_order_of_events(void)
{
	struct world *w = world_make(&(struct loopback_options){ .node_timeout_usec = 1000 });
	struct side *s = &w->sides[0];

	loopback_assemble(w->l);
	loopback_settle(w->l);
	w->slow_log = true;
	peers_left(loopback_peers(w->l, 0), 1);
	while (!knows_gone(w))
		usleep(1000);
	peers_joined(loopback_peers(w->l, 0), 1, 2);
	is_u64(s->events[PEERS_GONE] + s->events[PEERS_RESTARTED], 2, "given up and back again");
	is_int(s->last_event, PEERS_RESTARTED, "are told in this order");
	world_free(w);
}

/* Of a daemon that others know to be over nothing is taken, though the transport has not come to the next one yet. */
static void test_heard_of(void)
{
	struct world *w = world_make(&(struct loopback_options){ .timeout_usec = 100000 });
	struct peers *p = loopback_peers(w->l, 0);
	struct side *s = &w->sides[0];
	struct peers_node n = { 0 };

	loopback_assemble(w->l);
	loopback_settle(w->l);
	is_int(ask_again(w, 1, 0), 0, "a daemon is heard");
	(void)peers_nodes(p, 1, &n, 1);
	uint64_t first = n.incarnation;
	is_int(peers_heard_of(p, 1, first), 0, "what others know of it, too");
	is_u64(s->events[PEERS_RESTARTED], 0, "is no news");
	is_int(peers_heard_of(p, 1, first + 100), 0, "a later one");
	is_u64(s->events[PEERS_RESTARTED], 1, "is");
	peers_joined(p, 1, first);
	(void)peers_nodes(p, 1, &n, 1);
	ok(n.incarnation == first + 100 && n.present, "which the transport's word of the first one does not change");
	is_int(ask(w, 1, 0, ECHO, 1, NULL), -ETIMEDOUT, "nor is that heard any more");
	peers_left(p, 1);
	peers_joined(p, 1, first + 100);
	peers_joined(p, 1, first + 50);
	(void)peers_nodes(p, 1, &n, 1);
	ok(n.incarnation == first + 50 && n.present, "when the transport has come to it, whatever comes behind counts");
	world_free(w);
}

static void count_done(int status, const struct wire_msg *reply, void *arg)
{
	_Atomic(unsigned int) *counts = arg;

	(void)reply;
	counts[status == -ESHUTDOWN]++;
}

static void note_done(int status, const struct wire_msg *reply, void *arg)
{
	(void)reply;
	__atomic_store_n((int *)arg, status, __ATOMIC_SEQ_CST);
}

/* How it ended, in a minute at the most; 1: it did not. */
static int wait_done(const int *status)
{
	for (unsigned int i = 0; i < 6000 && __atomic_load_n(status, __ATOMIC_SEQ_CST) == 1; i++)
		usleep(10000);
	return __atomic_load_n(status, __ATOMIC_SEQ_CST);
}

/* Who waits for the answer has a call of his own under way that is to end well. */
static void test_brief(void)
{
	struct world *w = world_make(&(struct loopback_options){ .timeout_usec = 16000000 });
	struct wire_msg m = { .type = ECHO };
	int brief = 1, other = 1, first = 1;

	wire_put_u64(&m, WIRE_SEQ, 1);
	loopback_assemble(w->l);
	loopback_settle(w->l);
	struct peers *p = loopback_peers(w->l, 0);
	is_int(peers_call_brief(p, 1, &m, note_done, &brief), 0, "a brief call");
	is_int(wait_done(&brief), 0, "is answered as any");
	loopback_set_hanging(w->l, 1, true);
	brief = 1;
	is_int(peers_call_async(p, 1, &m, note_done, &other) | peers_call_brief(p, 1, &m, note_done, &brief), 0,
		"a call, and a brief one, to a node that hangs");
	is_int(wait_done(&brief), -ETIMEDOUT, "whose time is over");
	is_int(__atomic_load_n(&other, __ATOMIC_SEQ_CST), 1, "the other's is not");
	ok(peers_is_silent(p, 1) && peers_is_present(p, 1), "the node is there, and silent");
	ok(!peers_is_silent(p, 2), "not the other one");
	is_int(peers_call_async(p, 1, &m, note_done, &first), 0, "asked once more");
	loopback_set_hanging(w->l, 1, false);
	is_int(wait_done(&first), 0, "it answers when it goes on");
	ok(!peers_is_silent(p, 1), "and is not silent any more");
	ok(strstr(w->log_text, "peer-silent nothing was heard of node 1 (host host1) for 8 s"), "which the log has");
	wire_msg_free(&m);
	world_free(w);
}

static void test_limits(void)
{
	struct world *w = world_make(&(struct loopback_options){ .numbered = true });
	struct peers *p = loopback_peers(w->l, 0);
	struct wire_msg m = { .type = ECHO };
	_Atomic(unsigned int) counts[2] = { 0 };
	unsigned int begun = 0;
	int r, told = 0;

	while ((r = peers_call_async(p, 1, &m, count_done, counts)) == 0)
		begun++;
	is_int(r, -EAGAIN, "calls that wait have a limit");
	is_int(peers_call_brief(p, 1, &m, count_done, counts), 0, "not yet those that are brief");
	begun++;
	while ((r = peers_call_brief(p, 1, &m, count_done, counts)) == 0)
		begun++;
	is_int(r, -EAGAIN, "they have one, too");
	loopback_assemble(w->l);
	for (uint64_t i = 1; i <= 3 * begun && !told; i++) {
		told = tell(w, 2, 1, i);
		loopback_settle(w->l);
	}
	is_int(told, 0, "tells that have arrived do not count");
	loopback_lose(w->l, LOOPBACK_ALL);
	loopback_settle(w->l);
	begun -= counts[0];
	counts[0] = 0;
	while (peers_call_async(p, 1, &m, count_done, counts) == 0)
		begun++;
	ok(begun >= 1000, "a generous one");
	peers_shut_down(p);
	is_u64(counts[1], begun, "all are told when the daemon ends");
	is_u64(counts[0], 0, "each once");
	is_int(peers_call(p, 1, &m, NULL), -ESHUTDOWN, "no call after that");
	is_int(peers_call(p, 0, &m, NULL), -ESHUTDOWN, "not even to oneself");
	wire_msg_free(&m);
	world_free(w);
}

static void test_payload(void)
{
	struct job_world *jw = job_world_start(2);
	struct peers *p = job_world_peers(jw, 0);
	struct segment_set *set = store_segments(job_world_store(jw, 1));
	struct peers_buffer b = { 0 }, all[8];
	uint8_t text[] = "somewhere else";
	uint32_t segment = 0;
	uint64_t off = 0;
	_Atomic(unsigned int) counts[2] = { 0 };
	bool got = true;

	is_int(segment_append(set, text, sizeof(text), &segment, &off), 0, "payload at node 1");
	is_int(peers_buffer_get(p, NULL, 0, &b), 0, "a buffer at node 0");
	struct peers_get gets[2] = { { 1, segment, off, sizeof(text), 100 }, { 1, segment, off + 10, 4, 0 } };
	is_int(peers_get(p, &b, gets, 2), 0, "is filled");
	is_str((char *)b.bytes + 100, "somewhere else", "with what is there");
	ok(memcmp(b.bytes, "else", 4) == 0, "twice");
	gets[0].segment += 100;
	is_int(peers_get(p, &b, gets, 2), -ENOENT, "no such segment");
	gets[0].to = PEERS_BUFFER_BYTES - 3;
	is_int(peers_get(p, &b, gets, 2), -EINVAL, "beyond the buffer");
	gets[0] = gets[1];
	loopback_set_delay(job_world_loopback(jw), 100000, 100000, 1);
	is_int(peers_get_async(p, &b, gets, 1, count_done, counts), 0, "one is on its way");
	loopback_lose(job_world_loopback(jw), LOOPBACK_ALL);
	loopback_settle(job_world_loopback(jw));
	is_int(peers_get_async(p, &b, gets, 1, count_done, counts), 0,
		"when the agents die, another begins while there are none");
	loopback_set_delay(job_world_loopback(jw), 0, 0, 1);
	loopback_assemble(job_world_loopback(jw));
	loopback_settle(job_world_loopback(jw));
	is_u64(counts[0], 2, "both end well");
	peers_buffer_put(p, &b);
	for (unsigned int i = 0; i < 8; i++)
		got = got && peers_buffer_get(p, NULL, 0, &all[i]) == 0;
	ok(got, "all buffers can be had");
	for (unsigned int i = 0; i < 8; i++)
		peers_buffer_put(p, &all[i]);
	job_world_stop(jw);
}

/* ---- a node that does not give its payload */

#define BUFFERS 8u /* of the loopback */

struct hoard { /* of buffers, for what some nodes do not give */
	struct peers *p;
	struct peers_buffer at[BUFFERS];
	unsigned int num;
	_Atomic(unsigned int) counts[2];
	int refused;
};

static void hoard(struct hoard *h, struct peers *p, const struct peers_get *gets, size_t num)
{
	*h = (struct hoard){ .p = p };
	while (h->num < BUFFERS && (h->refused = peers_buffer_try(p, gets, num, &h->at[h->num])) == 0)
		if (peers_get_async(p, &h->at[h->num++], gets, num, count_done, h->counts) < 0)
			abort();
}

static void hoard_put(struct hoard *h)
{
	while (h->num > 0)
		peers_buffer_put(h->p, &h->at[--h->num]);
}

static int fetch_now(struct peers *p, const struct peers_get *gets, size_t num)
{
	struct peers_buffer b;
	int rc = peers_buffer_try(p, gets, num, &b);

	if (rc == 0) {
		rc = peers_get(p, &b, gets, num);
		peers_buffer_put(p, &b);
	}
	return rc;
}

static unsigned int num_free(struct peers *p)
{
	struct hoard h = { .p = p };

	while (h.num < BUFFERS && peers_buffer_try(p, NULL, 0, &h.at[h.num]) == 0)
		h.num++;
	unsigned int num = h.num;
	hoard_put(&h);
	return num;
}

static struct peers_get get_of(struct job_world *jw, uint32_t node)
{
	struct peers_get get = { .node = node, .len = 1 };

	if (segment_append(store_segments(job_world_store(jw, node)), "x", 1, &get.segment, &get.off))
		abort();
	return get;
}

/* Node 2 hangs, node 1 is well, and node 0 wants much. */
static void test_hoard(void)
{
	struct job_world *jw = job_world_start_with(&(struct job_world_options){ .num = 3, .timeout_usec = 2000000 });
	struct peers *p = job_world_peers(jw, 0);
	struct peers_get gets[2] = { get_of(jw, 1), get_of(jw, 2) };
	struct hoard h;

	loopback_set_hanging(job_world_loopback(jw), 2, true);
	hoard(&h, p, &gets[1], 1);
	is_u64(h.num, BUFFERS / 2, "a node that does not give what it is asked for gets half of the buffers");
	is_int(h.refused, -EAGAIN, "and no more");
	is_int(fetch_now(p, &gets[0], 1), 0, "others have the rest");
	while (h.counts[0] + h.counts[1] < h.num)
		usleep(1000);
	hoard_put(&h);
	is_u64(num_free(p), BUFFERS / 2, "when nobody waits for it any more it still has them");
	is_int(fetch_now(p, &gets[1], 1), -EAGAIN, "and gets no more");
	is_int(fetch_now(p, gets, 2), -EBUSY, "nor do several with it");
	is_int(fetch_now(p, &gets[0], 1), 0, "others still do");
	loopback_set_hanging(job_world_loopback(jw), 2, false);
	loopback_settle(job_world_loopback(jw));
	is_u64(num_free(p), BUFFERS, "all are free when it goes on");
	is_int(fetch_now(p, gets, 2), 0, "and it gives again");
	job_world_stop(jw);
}

/* They are asked together, so it is not known which one it is. */
static void test_hoard_together(void)
{
	struct job_world *jw = job_world_start(3);
	struct peers *p = job_world_peers(jw, 0);
	struct peers_get gets[2] = { get_of(jw, 1), get_of(jw, 2) };
	struct hoard h, more;

	loopback_set_hanging(job_world_loopback(jw), 2, true);
	hoard(&h, p, gets, 2);
	is_u64(h.num, BUFFERS / 2, "two nodes of which one hangs get half of the buffers");
	is_int(h.refused, -EBUSY, "then they are to be asked one by one");
	is_int(fetch_now(p, &gets[0], 1), 0, "one gives what it is asked for");
	is_int(fetch_now(p, &gets[0], 1), 0, "and what others had asked of it does not count any more");
	hoard(&more, p, &gets[1], 1);
	is_u64(more.num, 1, "the other one may have one more buffer");
	is_int(fetch_now(p, &gets[0], 1), 0, "and does not have the rest");
	loopback_set_hanging(job_world_loopback(jw), 2, false);
	loopback_settle(job_world_loopback(jw));
	hoard_put(&h);
	hoard_put(&more);
	is_u64(num_free(p), BUFFERS, "all are free when it goes on");
	job_world_stop(jw);
}

/* The world for others' tests: nodes number their inodes differently, also after a crash. */
static void test_world(void)
{
	static const struct core_cred cred = { 0 };
	struct job_world *jw = job_world_start(2);
	struct core_entry e = { 0 };
	uint64_t first;

	is_int(core_mknod(job_world_core(jw, 1), 1, "d", S_IFREG | 0644, 0, cred, &e), 0, "something at node 1");
	first = e.ino;
	is_u64(first >> 40, 1, "has a number of node 1");
	core_forget(job_world_core(jw, 1), e.ino, 1);
	job_world_restart(jw, 1);
	is_int(core_lookup(job_world_core(jw, 1), 1, "d", &e), 0, "it is there after a crash");
	is_u64(e.ino, first, "the same");
	core_forget(job_world_core(jw, 1), e.ino, 1);
	is_int(core_mknod(job_world_core(jw, 1), 1, "e", S_IFREG | 0644, 0, cred, &e), 0, "another one");
	is_u64(e.ino, first + 1, "has the next number");
	core_forget(job_world_core(jw, 1), e.ino, 1);
	job_world_stop(jw);
}

int main(void)
{
	test_frames();
	test_calls();
	test_many();
	test_lost_agents();
	test_storm();
	test_restart();
	test_late_reply();
	test_timeouts();
	test_joins_in_time();
	test_order_of_events();
	test_heard_of();
	test_brief();
	test_limits();
	test_payload();
	test_hoard();
	test_hoard_together();
	test_world();
	return done_testing();
}
