/* SPDX-License-Identifier: GPL-3.0-or-later */
/* Sessions of a job: three nodes in one process, whose work is only written down. */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "format/base/drain_layout.h"
#include "fs/drain/collective_private.h"
#include "tests/lib/loopback.h"
#include "tests/lib/tap.h"

#define NODES    3u
#define DONE_MAX 2048
#define ANSWERS  64

enum { ALL_KINDS = -1 };

struct done { /* a part that a node carried out */
	uint32_t node;
	unsigned int part;
	bool cautious;
	unsigned int running;     /* parts of another kind at work at that time */
	unsigned int num, failed; /* shared files that it was told of */
	unsigned int blobs;       /* of them, those that become subfiles */
	bool last, again, alone;
	enum wire_haste haste;
};

struct answer {
	uint32_t node;
	uint64_t id;
	enum cistern_exit result;
	char text[CISTERN_ERROR_TEXT_BYTES];
};

struct node {
	struct world *w;
	uint32_t index;
	struct collective *c;
};

struct world {
	struct loopback *l;
	struct node nodes[NODES];
	pthread_mutex_t lock;
	pthread_cond_t cond;
	struct done done[DONE_MAX];
	unsigned int num_done;
	struct answer answers[ANSWERS];
	unsigned int num_answers;
	unsigned int at_work[WIRE_PART_END + 1];
	/* what they shall do */
	unsigned int hold_part; /* this part lasts until it is stopped or let go; UINT_MAX: none */
	uint32_t hold_node;
	bool stopped;
	unsigned int fail_part; /* on node 1 */
	bool share;             /* node 1 is home of two files, of which node 2 cannot write one */
	bool blobs;             /* in the last session, both become subfiles, */
	bool refuse;            /* or that one cannot on node 2 */
	int ignore
		[NODES]; /* a node does not answer the next request of this kind, node 0: from node 2; ALL_KINDS: none at all */
	unsigned int ignored[NODES];
	unsigned int late; /* so many sessions find a file of node 2's too late */
};

static void share_files(
	struct world *w, uint32_t node, const struct collective_work *work, struct wire_shared_list *ret)
{
	uint8_t layout = w->blobs && work->last ? DRAIN_LAYOUT_BLOB_VARIABLE : DRAIN_LAYOUT_CANONICAL;
	struct wire_shared f = { .ino = 5, .layout = layout, .path = (char *)"five", .shown = (char *)"5" };

	if (!w->share || (w->blobs && !work->last))
		return;
	if (work->part == WIRE_PART_BEGIN && node == 1) {
		wire_shared_add(ret, &f);
		f = (struct wire_shared){ .ino = 6, .layout = layout, .path = (char *)"six", .shown = (char *)"6" };
		wire_shared_add(ret, &f);
	}
	if (work->part == WIRE_PART_BLOBS && (node != 2 || w->refuse)) {
		f.written = 100;
		f.layout = node == 2 ? DRAIN_LAYOUT_CANONICAL : layout;
		wire_shared_add(ret, &f);
	}
	if (work->part == WIRE_PART_DATA && node == 2 && !w->blobs) {
		f.failed = true;
		wire_shared_add(ret, &f);
	}
	for (size_t i = 0; work->part == WIRE_PART_FILES && node == 1 && i < work->shared->num; i++)
		if (!work->shared->at[i].failed)
			wire_shared_add(ret, &work->shared->at[i]);
}

static void work(const struct collective_work *work, struct collective_done *ret, void *arg)
{
	struct node *n = arg;
	struct world *w = n->w;
	struct done d = { .node = n->index,
		.part = work->part,
		.cautious = work->cautious,
		.last = work->last,
		.again = work->again,
		.alone = work->alone,
		.haste = work->haste };

	pthread_mutex_lock(&w->lock);
	w->at_work[work->part]++;
	for (unsigned int p = 0; p <= WIRE_PART_END; p++)
		d.running += p != work->part ? w->at_work[p] : 0;
	d.num = (unsigned int)work->shared->num;
	for (size_t i = 0; i < work->shared->num; i++)
		d.failed += work->shared->at[i].failed;
	for (size_t i = 0; i < work->shared->num; i++)
		d.blobs += work->shared->at[i].layout != DRAIN_LAYOUT_CANONICAL;
	w->done[w->num_done++] = d;
	pthread_cond_broadcast(&w->cond);
	while (w->hold_part == work->part && w->hold_node == n->index && !w->stopped)
		pthread_cond_wait(&w->cond, &w->lock);
	ret->result = CISTERN_EXIT_OK;
	if (w->fail_part == work->part && n->index == 1) {
		ret->result = CISTERN_EXIT_INCOMPLETE;
		snprintf(ret->text, sizeof(ret->text), "the disk is on strike");
	}
	if (work->part == WIRE_PART_FILES && n->index == 2 && w->late > 0) {
		ret->totals.late = 1;
		w->late--;
	}
	share_files(w, n->index, work, &ret->shared);
	w->at_work[work->part]--;
	pthread_mutex_unlock(&w->lock);
}

static void stop_work(void *arg)
{
	struct node *n = arg;

	pthread_mutex_lock(&n->w->lock);
	n->w->stopped |= n->index == n->w->hold_node;
	pthread_cond_broadcast(&n->w->cond);
	pthread_mutex_unlock(&n->w->lock);
}

static void take_answer(uint64_t id, enum cistern_exit result, const char *text, void *arg)
{
	struct node *n = arg;
	struct world *w = n->w;
	struct answer *a;

	pthread_mutex_lock(&w->lock);
	a = &w->answers[w->num_answers++];
	*a = (struct answer){ .node = n->index, .id = id, .result = result };
	snprintf(a->text, sizeof(a->text), "%s", text);
	pthread_cond_broadcast(&w->cond);
	pthread_mutex_unlock(&w->lock);
}

static void serve(struct peers_request *rq, void *arg)
{
	struct node *n = arg;
	struct world *w = n->w;

	pthread_mutex_lock(&w->lock);
	bool ignore = w->ignore[n->index] == ALL_KINDS ||
		      (w->ignore[n->index] == peers_msg(rq)->type && (n->index > 0 || peers_from(rq) == 2));
	w->ignored[n->index] += ignore;
	if (ignore && w->ignore[n->index] != ALL_KINDS)
		w->ignore[n->index] = 0;
	pthread_mutex_unlock(&w->lock);
	if (!ignore)
		collective_serve(n->c, rq);
}

static void event(enum peers_event event, uint32_t node, void *arg)
{
	struct node *n = arg;

	collective_event(n->c, event, node);
}

static void start_node(struct world *w, uint32_t i, uint64_t leave_usec)
{
	struct node *n = &w->nodes[i];
	struct cistern_error err = { 0 };
	struct collective_options opt = { .peers = loopback_peers(w->l, i),
		.leave_timeout_usec = leave_usec,
		.ask_usec = 200000,
		.work = work,
		.stop_work = stop_work,
		.answer = take_answer,
		.arg = n };

	n->w = w;
	n->index = i;
	if (collective_create(&opt, &n->c, &err))
		abort();
	peers_set_hooks(opt.peers, &(struct peers_hooks){ .handle = serve, .event = event, .arg = n });
}

static struct world *start_with(uint64_t leave_usec, uint64_t timeout_usec)
{
	struct world *w = calloc(1, sizeof(*w));

	pthread_mutex_init(&w->lock, NULL);
	pthread_cond_init(&w->cond, NULL);
	w->hold_part = w->fail_part = UINT32_MAX;
	w->l = loopback_create(
		&(struct loopback_options){ .num = NODES, .numbered = true, .timeout_usec = timeout_usec });
	for (uint32_t i = 0; i < NODES; i++)
		start_node(w, i, leave_usec);
	loopback_assemble(w->l);
	return w;
}

/* A node's daemon is killed, and the next one started. */
static void start_anew(struct world *w, uint32_t node)
{
	loopback_kill(w->l, node);
	peers_shut_down(loopback_peers(w->l, node)); /* else its last call waits for an answer, and so would its end */
	collective_destroy(w->nodes[node].c);
	loopback_restart(w->l, node);
	start_node(w, node, 60000000);
	loopback_assemble(w->l);
	loopback_settle(w->l);
}

static struct world *start(uint64_t leave_usec)
{
	return start_with(leave_usec, 0);
}

static void stop(struct world *w)
{
	for (uint32_t i = 0; i < NODES; i++)
		peers_shut_down(loopback_peers(w->l, i));
	for (uint32_t i = 0; i < NODES; i++)
		collective_destroy(w->nodes[i].c);
	loopback_destroy(w->l);
	pthread_cond_destroy(&w->cond);
	pthread_mutex_destroy(&w->lock);
	free(w);
}

/* Waits for num answers in all; false after a minute. */
static bool wait_answers(struct world *w, unsigned int num)
{
	struct timespec until;
	int r = 0;

	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_sec += 60;
	pthread_mutex_lock(&w->lock);
	while (w->num_answers < num && r == 0)
		r = pthread_cond_timedwait(&w->cond, &w->lock, &until);
	pthread_mutex_unlock(&w->lock);
	return r == 0;
}

static unsigned int count_done(struct world *w, unsigned int part, uint32_t node)
{
	unsigned int n = 0;

	for (unsigned int i = 0; i < w->num_done; i++)
		n += w->done[i].part == part && w->done[i].node == node;
	return n;
}

/* Until it has begun that part so often. */
static void wait_works(struct world *w, uint32_t node, unsigned int part, unsigned int num)
{
	pthread_mutex_lock(&w->lock);
	while (count_done(w, part, node) < num)
		pthread_cond_wait(&w->cond, &w->lock);
	pthread_mutex_unlock(&w->lock);
}

static void wait_work(struct world *w, uint32_t node, unsigned int part)
{
	wait_works(w, node, part, 1);
}

/* Until let_go(). */
static void hold(struct world *w, unsigned int part, uint32_t node)
{
	pthread_mutex_lock(&w->lock);
	w->hold_part = part;
	w->hold_node = node;
	w->stopped = false;
	pthread_mutex_unlock(&w->lock);
}

static void let_go(struct world *w)
{
	pthread_mutex_lock(&w->lock);
	w->stopped = true;
	pthread_cond_broadcast(&w->cond);
	pthread_mutex_unlock(&w->lock);
}

static void wait_until_awaited_by(struct world *w, uint32_t node, const char *who)
{
	char waits[CISTERN_ERROR_TEXT_BYTES] = "";

	for (int tries = 0; strcmp(waits, who) != 0 && tries < 60000; tries++) {
		usleep(1000);
		collective_waits_for(w->nodes[node].c, waits, sizeof(waits));
	}
	is_str(waits, who, "whom a node waits for");
}

static void wait_until_awaited(struct world *w, const char *who)
{
	wait_until_awaited_by(w, 0, who);
}

static unsigned int num_done(struct world *w, unsigned int part, uint32_t node)
{
	unsigned int num = 0;

	for (unsigned int i = 0; i < w->num_done; i++)
		num += w->done[i].part == part && w->done[i].node == node;
	return num;
}

static const struct done *find_done(struct world *w, unsigned int part, uint32_t node)
{
	for (unsigned int i = 0; i < w->num_done; i++)
		if (w->done[i].part == part && w->done[i].node == node)
			return &w->done[i];
	abort();
}

static void test_order(void)
{
	struct world *w = start(60000000);
	char *paths[] = { (char *)"a/b" };
	unsigned int meet = 0;
	bool whole = true;

	collective_ask(w->nodes[2].c, 7, DRAIN_FLUSH, false, paths, 1);
	ok(wait_answers(w, 1), "a session that node 2 asked for ends");
	ok(w->answers[0].node == 2 && w->answers[0].id == 7 && w->answers[0].result == CISTERN_EXIT_OK,
		"node 2 is told, and nobody else");
	for (unsigned int p = 0; p <= WIRE_PART_END; p++)
		for (uint32_t node = 0; node < NODES; node++) {
			bool first_only = p == WIRE_PART_DIRS || p == WIRE_PART_FINISH;
			bool not_now = (p >= WIRE_PART_OFFER && p <= WIRE_PART_CONVERT) || p == WIRE_PART_LOOK ||
				       p == WIRE_PART_DEAL || p == WIRE_PART_BLOBS || p == WIRE_PART_DATA ||
				       p == WIRE_PART_HEAD;

			whole = whole && count_done(w, p, node) == (not_now || (first_only && node) ? 0 : 1);
		}
	ok(whole, "every node did every part once, and node 0 alone what is for it alone");
	for (unsigned int i = 0; i < w->num_done; i++)
		meet += w->done[i].running;
	is_u64(meet, 0, "no part met another one");
	ok(!find_done(w, WIRE_PART_FINISH, 0)->cautious, "nothing made them cautious");
	stop(w);
}

static void test_shared(void)
{
	struct world *w = start(60000000);

	w->share = true;
	collective_ask(w->nodes[0].c, 1, DRAIN_FLUSH, false, NULL, 0);
	ok(wait_answers(w, 1), "a session with shared files ends");
	is_u64(find_done(w, WIRE_PART_DATA, 2)->num, 2, "all nodes are told of both files");
	is_u64(find_done(w, WIRE_PART_FILES, 1)->failed, 1, "their home is told that one could not be written");
	is_u64(find_done(w, COLLECTIVE_DROP, 0)->num, 1, "only the published one is given up by the stores");
	stop(w);
}

static unsigned int most_blobs(const struct world *w, unsigned int part)
{
	unsigned int most = 0;

	for (unsigned int i = 0; i < w->num_done; i++)
		if (w->done[i].part == part && w->done[i].blobs > most)
			most = w->done[i].blobs;
	return most;
}

/* All nodes are unmounted; node 1's files become blobs, or one of them cannot. */
static void test_blobs(bool refuse)
{
	struct world *w = start(60000000);
	unsigned int blobs = refuse ? 1 : 2;

	w->share = w->blobs = true;
	w->refuse = refuse;
	for (uint32_t node = 0; node < NODES; node++)
		collective_ask(w->nodes[node].c, 1 + node, DRAIN_FINAL, false, NULL, 0);
	ok(wait_answers(w, NODES), "a last session with files that become blobs ends");
	for (uint32_t node = 0; node < NODES; node++) {
		is_u64(count_done(w, WIRE_PART_DEAL, node), 1, "each node says what it has of them");
		is_u64(count_done(w, WIRE_PART_BLOBS, node), 1, "and writes its subfiles");
		is_u64(find_done(w, WIRE_PART_BLOBS, node)->blobs, 2, "of both");
		is_u64(count_done(w, WIRE_PART_DATA, node) > 0, refuse, "what a node refuses is written canonically");
	}
	ok(find_done(w, WIRE_PART_BLOBS, 0)->last, "in the last session");
	is_u64(most_blobs(w, WIRE_PART_FILES), blobs, "the home publishes them as what they are");
	stop(w);
}

static void test_failure(void)
{
	struct world *w = start(60000000);

	w->fail_part = WIRE_PART_PARK;
	collective_ask(w->nodes[0].c, 1, DRAIN_FLUSH, false, NULL, 0);
	ok(wait_answers(w, 1), "a session with a failure goes on to its end");
	ok(w->answers[0].result == CISTERN_EXIT_INCOMPLETE && strstr(w->answers[0].text, "node 1") &&
			strstr(w->answers[0].text, "strike"),
		"and says which node, and why: %s", w->answers[0].text);
	stop(w);
}

static void test_death(void)
{
	struct world *w = start(60000000);

	w->hold_part = WIRE_PART_PARK;
	w->hold_node = 2;
	collective_ask(w->nodes[1].c, 1, DRAIN_FLUSH, false, NULL, 0);
	wait_work(w, 2, WIRE_PART_PARK);
	loopback_end(w->l, 2);
	ok(wait_answers(w, 1), "a session goes on without a node that ends");
	ok(w->answers[0].result == CISTERN_EXIT_INCOMPLETE && strstr(w->answers[0].text, "node 2"), "and names it: %s",
		w->answers[0].text);
	ok(find_done(w, WIRE_PART_FILES, 0)->cautious, "the others replace nothing that might be its");
	stop(w);
}

/* Nobody knows then what commits were on their way: a shared file stays in the stores, but who waits gets another session. */
static void test_restart(void)
{
	struct world *w = start(60000000);

	w->share = true;
	hold(w, WIRE_PART_DIRS, 0); /* which node 0 does alone */
	collective_ask(w->nodes[0].c, 1, DRAIN_FLUSH, false, NULL, 0);
	wait_work(w, 0, WIRE_PART_DIRS);
	start_anew(w, 2);
	let_go(w);
	ok(wait_answers(w, 1), "a session goes on when a daemon is restarted between its parts");
	is_u64(find_done(w, WIRE_PART_FILES, 1)->failed, 2, "no file that others wrote is taken for whole");
	is_u64(count_done(w, WIRE_PART_FINISH, 0), 2, "and all of it is done once more");
	ok(w->answers[0].result == CISTERN_EXIT_OK, "which is what counts: %s", w->answers[0].text);
	stop(w);
}

/* The last session, while all nodes are unmounted, is not the last one when one of them is mounted again. */
static void test_restart_last(void)
{
	struct world *w = start(60000000);

	hold(w, WIRE_PART_CONVERT, 0);
	for (uint32_t node = 0; node < NODES; node++)
		collective_ask(w->nodes[node].c, 1, DRAIN_FINAL, false, NULL, 0);
	wait_work(w, 0, WIRE_PART_CONVERT);
	start_anew(w, 2);
	let_go(w);
	wait_until_awaited(w, "node 2 (host host2), still mounted");
	is_u64(w->num_answers, 0, "nobody is told that all is done");
	collective_ask(w->nodes[2].c, 1, DRAIN_FINAL, false, NULL, 0);
	ok(wait_answers(w, NODES), "when it is unmounted again, all are answered");
	for (uint32_t i = 0; i < NODES; i++)
		is_int(w->answers[i].result, CISTERN_EXIT_OK, "well");
	stop(w);
}

static bool is_leading(struct collective *c)
{
	pthread_mutex_lock(&c->lock);
	bool is = c->leading;
	pthread_mutex_unlock(&c->lock);
	return is;
}

/* What a daemon was to be told that has died since is not told the next one, which asks for something else by the same number. */
static void test_answer_for_another(void)
{
	struct world *w = start(60000000);

	hold(w, WIRE_PART_FINISH, 0);
	collective_ask(w->nodes[1].c, 1, DRAIN_FLUSH, false, NULL, 0);
	wait_work(w, 0, WIRE_PART_FINISH);
	loopback_settle(w->l);
	loopback_kill(w->l, 1);
	loopback_settle(w->l); /* node 0 has heard of that */
	let_go(w);
	while (is_leading(w->nodes[0].c))
		usleep(1000);
	collective_destroy(w->nodes[1].c);
	loopback_restart(w->l, 1);
	start_node(w, 1, 60000000);
	hold(w, WIRE_PART_PARK, 0);
	collective_ask(w->nodes[1].c, 1, DRAIN_FLUSH, false, NULL, 0);
	loopback_assemble(w->l);
	wait_works(w, 0, WIRE_PART_PARK, 2);
	loopback_settle(w->l);
	is_u64(w->num_answers, 0, "the daemon after that waits for a session of its own");
	let_go(w);
	ok(wait_answers(w, 1) && w->answers[0].result == CISTERN_EXIT_OK, "and is told of its end: %s",
		w->answers[0].text);
	stop(w);
}

static void test_uncommitted(void)
{
	struct world *w = start(60000000);

	w->share = true;
	w->fail_part = COLLECTIVE_COMMIT;
	collective_ask(w->nodes[0].c, 1, DRAIN_FLUSH, false, NULL, 0);
	ok(wait_answers(w, 1) && w->answers[0].result == CISTERN_EXIT_INCOMPLETE,
		"a node cannot tell what it has written");
	is_u64(find_done(w, WIRE_PART_FILES, 1)->failed, 2, "and no file that others wrote is taken for whole");
	is_u64(find_done(w, COLLECTIVE_DROP, 0)->num, 0, "or given up by the stores");
	stop(w);
}

static void test_background(void)
{
	struct world *w = start(60000000);

	w->share = true;
	w->hold_part = WIRE_PART_FILES;
	w->hold_node = 1;
	collective_ask(w->nodes[0].c, 1, DRAIN_BACKGROUND, false, NULL, 0);
	wait_work(w, 1, WIRE_PART_FILES);
	collective_ask(w->nodes[2].c, 2, DRAIN_FLUSH, false, NULL, 0);
	ok(wait_answers(w, 2), "a session in the background makes way");
	ok(w->answers[0].id == 1 && w->answers[0].result == CISTERN_EXIT_INCOMPLETE && w->answers[1].id == 2 &&
			w->answers[1].result == CISTERN_EXIT_OK,
		"and the one that somebody waits for is whole");
	for (uint32_t node = 0; node < NODES; node++) {
		is_u64(num_done(w, COLLECTIVE_DROP, node), 2, "nodes give up what each of them has published");
		is_u64(find_done(w, COLLECTIVE_DROP, node)->num, 1, "of the first one, too");
	}
	is_u64(num_done(w, WIRE_PART_FINISH, 0), 1, "and that does nothing else then");
	stop(w);
}

static void test_final(void)
{
	struct world *w = start(60000000);
	unsigned int before;

	collective_ask(w->nodes[1].c, 1, DRAIN_FINAL, false, NULL, 0);
	collective_ask(w->nodes[0].c, 2, DRAIN_FINAL, false, NULL, 0);
	wait_work(w, 0, WIRE_PART_FINISH);
	collective_ask(w->nodes[2].c, 3, DRAIN_FLUSH, false, NULL, 0);
	ok(wait_answers(w, 1), "who is mounted still gets an answer");
	before = w->num_answers;
	ok(before == 1 && w->answers[0].id == 3, "who is unmounted waits for the others");
	for (uint32_t node = 0; node < NODES; node++)
		is_u64(count_done(w, WIRE_PART_CONVERT, node), 0, "nothing is converted while somebody is mounted");
	collective_ask(w->nodes[2].c, 4, DRAIN_FINAL, false, NULL, 0);
	ok(wait_answers(w, 4), "when the last one is unmounted, all are answered");
	for (unsigned int i = 1; i < 4; i++)
		is_int(w->answers[i].result, CISTERN_EXIT_OK, "well");
	for (uint32_t node = 0; node < NODES; node++)
		is_u64(count_done(w, WIRE_PART_CONVERT, node), 1, "then every node converts");
	stop(w);
}

static void test_late(void)
{
	struct world *w = start(300000);
	bool late = false;

	collective_ask(w->nodes[1].c, 1, DRAIN_FINAL, false, NULL, 0);
	collective_ask(w->nodes[2].c, 2, DRAIN_FINAL, false, NULL, 0);
	ok(wait_answers(w, 2), "a node that stays mounted is not waited for for ever");
	ok(w->answers[0].result == CISTERN_EXIT_INCOMPLETE && strstr(w->answers[0].text, "node 0") &&
			!strstr(w->answers[0].text, "node 2"),
		"it is named: %s", w->answers[0].text);
	for (unsigned int i = 0; i < w->num_done; i++)
		late = w->done[i].haste == WIRE_HASTE_LATE || late;
	ok(late, "what waits for the last session does not wait for it");
	stop(w);
}

/* Nobody waits for the time-out then. */
static void test_ended(void)
{
	struct world *w = start(3600ull * 1000000);
	bool late = false;

	collective_ask(w->nodes[0].c, 1, DRAIN_FINAL, false, NULL, 0);
	collective_ask(w->nodes[1].c, 2, DRAIN_FINAL, false, NULL, 0);
	wait_until_awaited(w, "node 2 (host host2), still mounted");
	loopback_end(w->l, 2);
	ok(wait_answers(w, 2), "a node whose daemon has ended is not waited for");
	for (unsigned int i = 0; i < 2; i++)
		ok(w->answers[i].result == CISTERN_EXIT_INCOMPLETE && strstr(w->answers[i].text, "node 2") &&
				strstr(w->answers[i].text, "has ended") && !strstr(w->answers[i].text, "mounted"),
			"it is named as what it is: %s", w->answers[i].text);
	for (unsigned int i = 0; i < w->num_done; i++)
		late = w->done[i].haste == WIRE_HASTE_LATE || late;
	ok(late, "what waits for the last session does not wait for it");
	stop(w);
}

/* Who cannot be reached may be mounted or not. */
static void test_out_of_reach(void)
{
	struct world *w = start(3600ull * 1000000);

	collective_ask(w->nodes[0].c, 1, DRAIN_FINAL, false, NULL, 0);
	collective_ask(w->nodes[1].c, 2, DRAIN_FINAL, false, NULL, 0);
	wait_until_awaited(w, "node 2 (host host2), still mounted");
	loopback_lose(w->l, LOOPBACK_ALL);
	wait_until_awaited(w,
		"node 2 (host host2), out of reach, mounted or not: where its agent has gone, start the agents again "
		"(cistern agent)");
	loopback_assemble(w->l);
	wait_until_awaited(w, "node 2 (host host2), still mounted");
	collective_ask(w->nodes[2].c, 3, DRAIN_FINAL, false, NULL, 0);
	ok(wait_answers(w, 3), "it is heard again");
	stop(w);
}

#define START_AGENTS "out of reach, mounted or not: where its agent has gone, start the agents again (cistern agent)"

/* Who is at work can be lost, and so can node 0 for those that have asked it. */
static void test_at_work_out_of_reach(void)
{
	struct world *w = start(3600ull * 1000000);

	hold(w, WIRE_PART_FILES, 2);
	collective_ask(w->nodes[1].c, 1, DRAIN_FLUSH, false, NULL, 0);
	wait_work(w, 2, WIRE_PART_FILES);
	wait_until_awaited(w, "node 2 (host host2), at work on its part");
	wait_until_awaited_by(w, 1, "other nodes, at work; 'cistern status' on node 0 (host host0) names them");
	loopback_lose(w->l, LOOPBACK_ALL);
	wait_until_awaited(w, "node 2 (host host2), " START_AGENTS);
	wait_until_awaited_by(w, 1, "node 0 (host host0), which leads drains, " START_AGENTS);
	loopback_assemble(w->l);
	wait_until_awaited(w, "node 2 (host host2), at work on its part");
	let_go(w);
	ok(wait_answers(w, 1), "it is heard again");
	collective_ask(w->nodes[1].c, 2, DRAIN_FINAL, false, NULL, 0);
	wait_until_awaited_by(
		w, 1, "other nodes, at work or still mounted; 'cistern status' on node 0 (host host0) names them");
	stop(w);
}

/* A node that hangs is not to be taken for one that is merely mounted. */
static void test_hangs(void)
{
	struct world *w = start_with(3600ull * 1000000, 500000);

	loopback_set_hanging(w->l, 2, true);
	collective_ask(w->nodes[0].c, 1, DRAIN_FINAL, false, NULL, 0);
	collective_ask(w->nodes[1].c, 2, DRAIN_FINAL, false, NULL, 0);
	wait_until_awaited(w,
		"node 2 (host host2), without an answer: if it hangs, this goes on when it does, or node_timeout after its "
		"daemon was killed");
	loopback_set_hanging(w->l, 2, false);
	collective_ask(w->nodes[2].c, 3, DRAIN_FINAL, false, NULL, 0);
	ok(wait_answers(w, 3), "it goes on");
	stop(w);
}

/* What it had asked for is forgotten, and the next daemon of that node may number what it asks for in the same way. */
static void test_final_forgotten(void)
{
	struct world *w = start(3600ull * 1000000);

	collective_ask(w->nodes[2].c, 1, DRAIN_FINAL, false, NULL, 0);
	wait_until_awaited(w, "node 0 (host host0), node 1 (host host1), still mounted");
	start_anew(w, 2);
	collective_ask(w->nodes[2].c, 1, DRAIN_FLUSH, false, NULL, 0);
	ok(wait_answers(w, 1) && w->answers[0].node == 2 && w->answers[0].result == CISTERN_EXIT_OK,
		"a node that is mounted again is answered what it asks then");
	collective_ask(w->nodes[0].c, 2, DRAIN_FINAL, false, NULL, 0);
	collective_ask(w->nodes[1].c, 3, DRAIN_FINAL, false, NULL, 0);
	wait_until_awaited(w, "node 2 (host host2), still mounted");
	is_u64(w->num_answers, 1, "and is waited for");
	collective_ask(w->nodes[2].c, 4, DRAIN_FINAL, false, NULL, 0);
	ok(wait_answers(w, 4), "until it is unmounted again");
	for (unsigned int i = 1; i < 4; i++)
		ok(w->answers[i].result == CISTERN_EXIT_OK, "all is well %s", w->answers[i].text);
	stop(w);
}

/* So many sessions in a row find a file too late; is another one run for who asked? */
static void test_late_files(enum drain_kind kind, unsigned int late, unsigned int sessions, enum cistern_exit result)
{
	struct world *w = start(60000000);
	unsigned int num = 0;
	bool again = true;

	w->late = late;
	collective_ask(w->nodes[1].c, 1, kind, false, NULL, 0);
	ok(wait_answers(w, 1), "%u of its sessions find a file too late", late);
	for (unsigned int i = 0; i < w->num_done; i++)
		if (w->done[i].part == COLLECTIVE_COMMIT && w->done[i].node == 0)
			again = again && w->done[i].again == (num++ > 0);
	is_u64(num, sessions, "so many are run");
	ok(again, "each behind the first as what it is");
	ok(w->answers[0].result == result, "the answer is that of the last one: %s", w->answers[0].text);
	stop(w);
}

static void ignore(struct world *w, uint32_t node, int what)
{
	pthread_mutex_lock(&w->lock);
	w->ignore[node] = what;
	pthread_mutex_unlock(&w->lock);
}

/* Node 1 has asked for a session, and node 2 is held in its part of it. */
static struct world *start_and_hold(void)
{
	struct world *w = start_with(60000000, 3000000);

	w->hold_part = WIRE_PART_PARK;
	w->hold_node = 2;
	collective_ask(w->nodes[1].c, 1, DRAIN_FLUSH, false, NULL, 0);
	wait_work(w, 2, WIRE_PART_PARK);
	return w;
}

/* The word to stop had no room, or came before the part. */
static void test_stop_unheard(void)
{
	struct world *w = start(60000000);

	w->hold_part = WIRE_PART_FILES;
	w->hold_node = 1;
	ignore(w, 1, MESSAGE_DRAIN_STOP);
	collective_ask(w->nodes[0].c, 1, DRAIN_BACKGROUND, false, NULL, 0);
	wait_work(w, 1, WIRE_PART_FILES);
	collective_ask(w->nodes[2].c, 2, DRAIN_FLUSH, false, NULL, 0);
	ok(wait_answers(w, 2), "a session in the background makes way though a node has not heard the word to stop");
	is_u64(w->ignored[1], 1, "which is said again");
	let_go(w);
	stop(w);
}

/* Behind a cut link, say: it has begun its part, and nothing is known of it any more. */
static void test_silent(void)
{
	struct world *w = start_and_hold();

	ignore(w, 2, ALL_KINDS);
	ok(wait_answers(w, 1), "a session goes on without a node that falls silent");
	ok(w->answers[0].result == CISTERN_EXIT_INCOMPLETE && strstr(w->answers[0].text, "node 2"), "and names it: %s",
		w->answers[0].text);
	ok(find_done(w, WIRE_PART_FILES, 0)->cautious, "the others replace nothing that might be its");
	is_u64(w->ignored[2], 1, "it is asked for nothing more");
	ignore(w, 2, 0);
	let_go(w);
	collective_ask(w->nodes[1].c, 2, DRAIN_FLUSH, false, NULL, 0);
	ok(wait_answers(w, 2) && w->answers[1].result == CISTERN_EXIT_OK, "the next session is whole");
	stop(w);
}

/* What it has done since then is that. */
static void check_alone(struct world *w, uint32_t node, unsigned int since)
{
	unsigned int num = 0, good = 0;

	for (unsigned int i = since; i < w->num_done; i++) {
		const struct done *d = &w->done[i];

		num += d->alone;
		good += d->node == node && d->part == WIRE_PART_FILES && d->alone && d->cautious && d->num == 0;
	}
	ok(num == 1 && good == 1, "node %u carries its own files, cautiously, and nobody else does", node);
}

static void check_incomplete(const struct answer *a, const char *what)
{
	ok(a->result == CISTERN_EXIT_INCOMPLETE && strstr(a->text, "node 0 (host host0)") && strstr(a->text, what),
		"the answer says so: %s", a->text);
}

static void test_leader_ended(void)
{
	struct world *w = start(60000000);
	unsigned int since;

	collective_ask(w->nodes[2].c, 1, DRAIN_FINAL, false, NULL, 0);
	wait_work(w, 0, WIRE_PART_FINISH);
	since = w->num_done;
	loopback_end(w->l, 0);
	ok(wait_answers(w, 1), "who waits for node 0 does not when its daemon has ended");
	check_incomplete(&w->answers[0], "has ended");
	check_alone(w, 2, since);
	since = w->num_done;
	collective_ask(w->nodes[1].c, 2, DRAIN_FLUSH, false, NULL, 0);
	ok(wait_answers(w, 2), "nor who asks later");
	check_incomplete(&w->answers[1], "cannot be reached");
	check_alone(w, 1, since);
	stop(w);
}

/* Nothing is heard of it any more, and nobody says that it is gone. */
static void test_leader_silent(void)
{
	struct world *w = start_and_hold();
	unsigned int since;

	since = w->num_done;
	ignore(w, 0, ALL_KINDS);
	ok(wait_answers(w, 1), "node 0 falls silent in a session");
	check_incomplete(&w->answers[0], "cannot be reached");
	check_alone(w, 1, since);
	ignore(w, 0, 0);
	let_go(w);
	stop(w);
}

/* Who is unmounted waits longer: the agents may come back. */
static void test_leader_patience(void)
{
	struct world *w = start_with(4000000, 500000);
	int64_t begin;

	collective_ask(w->nodes[1].c, 1, DRAIN_FINAL, false, NULL, 0);
	wait_work(w, 0, WIRE_PART_FINISH);
	ignore(w, 0, ALL_KINDS);
	begin = collective_now_usec();
	ok(wait_answers(w, 1), "node 0 falls silent while an unmounted one waits");
	check_incomplete(&w->answers[0], "cannot be reached");
	ok(collective_now_usec() - begin >= 3500000, "which took the time that it waits for nodes");
	stop(w);
}

/* Node 1 has asked in vain, and is held in what it does alone. */
static struct world *start_and_hold_alone(void)
{
	struct world *w = start_with(60000000, 500000);

	w->hold_part = WIRE_PART_FILES;
	w->hold_node = 1;
	ignore(w, 0, ALL_KINDS);
	collective_ask(w->nodes[1].c, 1, DRAIN_FLUSH, false, NULL, 0);
	wait_work(w, 1, WIRE_PART_FILES);
	ignore(w, 0, 0);
	return w;
}

static void test_leader_back(void)
{
	struct world *w = start_and_hold_alone();

	start_anew(w, 0);
	let_go(w);
	ok(wait_answers(w, 1), "node 0's daemon is another one meanwhile");
	ok(w->answers[0].result == CISTERN_EXIT_OK, "it is asked again: %s", w->answers[0].text);
	is_u64(num_done(w, WIRE_PART_FINISH, 0), 1, "and leads a session");
	stop(w);
}

static void test_cancel_alone(void)
{
	struct world *w = start_and_hold_alone();

	collective_cancel(w->nodes[1].c, 1);
	ok(wait_answers(w, 1), "what a node does alone can be stopped");
	check_incomplete(&w->answers[0], "cannot be reached");
	stop(w);
}

static void test_ask_lost(void)
{
	struct world *w = start(60000000);
	struct collective *c = w->nodes[0].c;
	struct ask *lost;

	collective_ask(w->nodes[1].c, 1, DRAIN_FINAL, false, NULL, 0);
	wait_work(w, 0, WIRE_PART_FINISH);
	pthread_mutex_lock(&c->lock);
	lost = collective_take_ask(&c->finals, 1, 1);
	pthread_mutex_unlock(&c->lock);
	ok(lost, "an ask is lost");
	if (lost)
		collective_ask_free(lost);
	collective_ask(w->nodes[0].c, 2, DRAIN_FINAL, false, NULL, 0);
	collective_ask(w->nodes[2].c, 3, DRAIN_FINAL, false, NULL, 0);
	ok(wait_answers(w, 3), "and made again");
	for (unsigned int i = 0; i < 3; i++)
		ok(w->answers[i].result == CISTERN_EXIT_OK, "all is well %s", w->answers[i].text);
	stop(w);
}

static void test_end_not_heard(void)
{
	struct world *w = start_and_hold();

	ignore(w, 0, MESSAGE_DRAIN_PART_DONE);
	let_go(w);
	ok(wait_answers(w, 1), "a node that could not say that it is done is not waited for");
	ok(w->answers[0].result == CISTERN_EXIT_INCOMPLETE && strstr(w->answers[0].text, "node 2"), "but named: %s",
		w->answers[0].text);
	stop(w);
}

static void test_answer_not_heard(void)
{
	struct world *w = start_with(60000000, 3000000);

	ignore(w, 1, MESSAGE_DRAIN_ANSWER);
	collective_ask(w->nodes[1].c, 1, DRAIN_FLUSH, false, NULL, 0);
	ok(wait_answers(w, 1) && w->answers[0].result == CISTERN_EXIT_OK, "an answer that is lost is said again");
	is_u64(w->ignored[1], 1, "it was");
	stop(w);
}

static void test_agents_lost(void)
{
	struct world *w = start(60000000);

	for (int i = 0; i < 20; i++) {
		collective_ask(w->nodes[i % NODES].c, 100 + (uint64_t)i, DRAIN_FLUSH, false, NULL, 0);
		usleep(500);
		loopback_lose(w->l, LOOPBACK_ALL);
		loopback_assemble(w->l);
	}
	ok(wait_answers(w, 20), "agents that come and go delay, no more");
	for (unsigned int i = 0; i < w->num_answers; i++)
		if (w->answers[i].result != CISTERN_EXIT_OK)
			ok(false, "ask %u: %s", (unsigned int)w->answers[i].id, w->answers[i].text);
	stop(w);
}

int main(void)
{
	test_order();
	test_shared();
	test_blobs(false);
	test_blobs(true);
	test_failure();
	test_death();
	test_restart();
	test_restart_last();
	test_answer_for_another();
	test_uncommitted();
	test_background();
	test_final();
	test_late();
	test_ended();
	test_out_of_reach();
	test_at_work_out_of_reach();
	test_hangs();
	test_final_forgotten();
	test_late_files(DRAIN_FLUSH, 2, 3, CISTERN_EXIT_OK);
	test_late_files(DRAIN_FLUSH, 4, 5, CISTERN_EXIT_OK);
	test_late_files(DRAIN_FLUSH, 8, 9, CISTERN_EXIT_OK);
	test_late_files(DRAIN_FLUSH, 99, 20, CISTERN_EXIT_INCOMPLETE);
	test_late_files(DRAIN_BACKGROUND, 99, 1, CISTERN_EXIT_OK);
	test_stop_unheard();
	test_silent();
	test_leader_ended();
	test_leader_silent();
	test_leader_patience();
	test_leader_back();
	test_cancel_alone();
	test_ask_lost();
	test_end_not_heard();
	test_answer_not_heard();
	test_agents_lost();
	return done_testing();
}
