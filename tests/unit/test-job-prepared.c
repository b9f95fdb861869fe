/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * A change of a directory is announced to all nodes (PREPARE) before it is made or given up. What that has begun on a node comes to its end,
 * whenever that node hears of it.
 */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fs/job/private.h"
#include "tests/lib/job_world.h"
#include "tests/lib/tap.h"

#define NODES    3u
#define PREPARED 2u /* the node that this is about */
#define ROOT_INO 1u

/* ---- what is asked for in order is done in order */

struct gate { /* where the kernel of the prepared node is held up, in PREPARE */
	pthread_mutex_t lock;
	pthread_cond_t cond;
	bool reached, open;
	unsigned int answered; /* requests */
	bool early;            /* one was while the gate was closed */
};

static void wait_at_gate(uint32_t node, uint64_t parent, const char *name, void *arg)
{
	struct gate *g = arg;

	(void)node, (void)parent, (void)name;
	pthread_mutex_lock(&g->lock);
	g->reached = true;
	pthread_cond_broadcast(&g->cond);
	while (!g->open)
		pthread_cond_wait(&g->cond, &g->lock);
	pthread_mutex_unlock(&g->lock);
}

static void note_answer(int status, const struct wire_msg *reply, void *arg)
{
	struct gate *g = arg;

	(void)status, (void)reply;
	pthread_mutex_lock(&g->lock);
	g->answered++;
	g->early = g->early || !g->open;
	pthread_cond_broadcast(&g->cond);
	pthread_mutex_unlock(&g->lock);
}

static void ask(struct job_world *w, struct wire_msg *m, struct gate *g)
{
	if (peers_call_async(job_world_peers(w, 0), PREPARED, m, note_answer, g))
		exit(1);
	wire_msg_free(m);
}

/* Node 0 has given up waiting for its PREPARE, and says that nothing comes of it. */
static void test_order(void)
{
	struct gate g = { PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER };
	struct job_world *w = job_world_start_with(
		&(struct job_world_options){ .num = NODES, .invalidate_name = wait_at_gate, .arg = &g });
	struct wire_msg m = { 0 };

	message_init(&m, MESSAGE_TREE_PREPARE);
	message_put(&m, MESSAGE_INO, 77);
	message_put(&m, MESSAGE_FROM_DIR, ROOT_INO);
	message_put_str(&m, MESSAGE_FROM, "d");
	ask(w, &m, &g);
	message_init(&m, MESSAGE_TREE_COMMIT);
	ask(w, &m, &g);
	pthread_mutex_lock(&g.lock);
	while (!g.reached)
		pthread_cond_wait(&g.cond, &g.lock);
	pthread_mutex_unlock(&g.lock);
	usleep(200000); /* it would have been done by then */
	pthread_mutex_lock(&g.lock);
	g.open = true;
	pthread_cond_broadcast(&g.cond);
	while (g.answered < 2)
		pthread_cond_wait(&g.cond, &g.lock);
	pthread_mutex_unlock(&g.lock);
	ok(!g.early, "a change does not end on a node before what was asked for before that is done");
	job_world_stop(w);
}

int main(void)
{
	test_order();
	return done_testing();
}
