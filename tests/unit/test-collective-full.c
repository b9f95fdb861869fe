/* SPDX-License-Identifier: GPL-3.0-or-later */
/* Sessions of a job whose nodes have more files that others wrote to than one session's list takes. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "format/base/drain_layout.h"
#include "fs/drain/collective_private.h"
#include "tests/lib/loopback.h"
#include "tests/lib/tap.h"

#define NODES      2u
#define FILES      130u
#define PATH_BYTES 16000u /* a node's list is of 2 MiB */

struct world;

struct node {
	struct world *w;
	uint32_t index;
	unsigned int lists; /* it has */
	struct collective *c;
};

struct world {
	struct loopback *l;
	struct node nodes[NODES];
	pthread_mutex_t lock;
	pthread_cond_t cond;
	bool stuck; /* nothing is published */
	unsigned int sessions, whole;
	uint64_t late;
	bool answered;
	enum cistern_exit result;
	char text[CISTERN_ERROR_TEXT_BYTES];
};

static void list_files(uint32_t node, struct wire_shared_list *ret)
{
	char path[PATH_BYTES + 1];
	struct wire_shared f = { .layout = DRAIN_LAYOUT_CANONICAL, .path = path, .shown = (char *)"f" };

	memset(path, 'p', PATH_BYTES);
	path[PATH_BYTES] = '\0';
	for (uint64_t i = 0; i < FILES; i++) {
		f.ino = 1 + node * FILES + i;
		if (wire_shared_add(ret, &f))
			abort();
	}
}

static bool publish(const struct node *n, const struct wire_shared_list *all, struct wire_shared_list *ret)
{
	uint64_t first = 1 + n->index * FILES;

	for (size_t i = 0; !n->w->stuck && i < all->num; i++)
		if (all->at[i].ino >= first && all->at[i].ino < first + FILES && !all->at[i].failed &&
			wire_shared_add(ret, &all->at[i]))
			abort();
	return ret->num > 0;
}

static void work(const struct collective_work *work, struct collective_done *ret, void *arg)
{
	struct node *n = arg;

	ret->result = CISTERN_EXIT_OK;
	if (work->part == WIRE_PART_BEGIN && n->lists > 0)
		list_files(n->index, &ret->shared);
	if (work->part == WIRE_PART_FILES)
		n->lists -= publish(n, work->shared, &ret->shared);
}

static void stop_work(void *arg)
{
	(void)arg;
}

static int summary(const struct manifest_session *s, struct cistern_error *err, void *arg)
{
	struct node *n = arg;

	(void)err;
	n->w->sessions++;
	n->w->whole += s->whole;
	n->w->late += s->totals.late;
	return 0;
}

static void take_answer(uint64_t id, enum cistern_exit result, const char *text, void *arg)
{
	struct world *w = ((struct node *)arg)->w;

	(void)id;
	pthread_mutex_lock(&w->lock);
	w->answered = true;
	w->result = result;
	snprintf(w->text, sizeof(w->text), "%s", text);
	pthread_cond_broadcast(&w->cond);
	pthread_mutex_unlock(&w->lock);
}

static void serve(struct peers_request *rq, void *arg)
{
	collective_serve(((struct node *)arg)->c, rq);
}

static void event(enum peers_event event, uint32_t node, void *arg)
{
	collective_event(((struct node *)arg)->c, event, node);
}

static void start_node(struct world *w, uint32_t i, unsigned int lists)
{
	struct node *n = &w->nodes[i];
	struct cistern_error err = { 0 };
	struct collective_options opt = { .peers = loopback_peers(w->l, i),
		.leave_timeout_usec = 60000000,
		.work = work,
		.stop_work = stop_work,
		.answer = take_answer,
		.summary = summary,
		.arg = n };

	*n = (struct node){ .w = w, .index = i, .lists = lists };
	if (collective_create(&opt, &n->c, &err))
		abort();
	peers_set_hooks(opt.peers, &(struct peers_hooks){ .handle = serve, .event = event, .arg = n });
}

static struct world *start(unsigned int lists, bool stuck)
{
	struct world *w = calloc(1, sizeof(*w));

	pthread_mutex_init(&w->lock, NULL);
	pthread_cond_init(&w->cond, NULL);
	w->stuck = stuck;
	w->l = loopback_create(&(struct loopback_options){ .num = NODES, .numbered = true });
	for (uint32_t i = 0; i < NODES; i++)
		start_node(w, i, lists);
	loopback_assemble(w->l);
	return w;
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

static void drain(struct world *w, enum drain_kind kind)
{
	struct timespec until;
	int r = 0;

	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_sec += 120;
	collective_ask(w->nodes[1].c, 1, kind, false, NULL, 0);
	pthread_mutex_lock(&w->lock);
	while (!w->answered && r == 0)
		r = pthread_cond_timedwait(&w->cond, &w->lock, &until);
	pthread_mutex_unlock(&w->lock);
	ok(w->answered, "the drain ends");
	is_u64(w->late, 0, "no file is said to have been too late");
}

/* Each session has room for one node's list; the last one is that in which only one node has any. */
static void test_carried(unsigned int lists)
{
	struct world *w = start(lists, false);

	drain(w, DRAIN_FLUSH);
	ok(w->result == CISTERN_EXIT_OK, "who waits has everything: %s", w->text);
	ok(w->sessions > lists && w->sessions <= lists * NODES, "in %u sessions", w->sessions);
	is_u64(w->whole, 1, "of which the last one comes to all");
	stop(w);
}

static void test_too_many(enum drain_kind kind, bool stuck, unsigned int sessions)
{
	struct world *w = start(1, stuck);

	drain(w, kind);
	is_int(w->result, CISTERN_EXIT_INCOMPLETE, "not all is drained");
	ok(strstr(w->text, "too many files that several nodes wrote"), "which is said: %s", w->text);
	is_u64(w->sessions, sessions, "after so many sessions");
	is_u64(w->whole, 0, "of which none comes to all");
	stop(w);
}

int main(void)
{
	test_carried(1);
	test_carried(21); /* more sessions than are tried when nothing comes of them */
	test_too_many(DRAIN_FLUSH, true, 20);
	test_too_many(DRAIN_BACKGROUND, false, 1);
	return done_testing();
}
