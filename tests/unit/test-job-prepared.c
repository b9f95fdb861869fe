/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * A change of a directory is announced to all nodes (PREPARE) before it is made or given up. What that has begun on a node comes to its end,
 * whenever that node hears of it.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "format/place/place.h"
#include "fs/job/private.h"
#include "tests/lib/job_path.h"
#include "tests/lib/job_world.h"
#include "tests/lib/tap.h"

#define NODES    3u
#define PREPARED 2u /* the node that this is about */
#define ASKS     1u /* asks for most changes, and answers PREPARE late */
#define ROOT_INO 1u
#define PATIENCE 3000 /* times 10 ms */

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

/* ---- a node is given up between the two, and comes back as it was */

struct trial {
	struct job_world *w;
	struct loopback *l;
	pthread_mutex_t lock;
	char told[512]; /* names that the kernel of the prepared node has dropped, each behind a blank */
};

static void note_name(uint32_t node, uint64_t parent, const char *name, void *arg)
{
	struct trial *t = arg;

	if (node != PREPARED || parent != ROOT_INO)
		return;
	pthread_mutex_lock(&t->lock);
	snprintf(t->told + strlen(t->told), sizeof(t->told) - strlen(t->told), " %s", name);
	pthread_mutex_unlock(&t->lock);
}

static bool is_told(struct trial *t, const char *name)
{
	char wanted[16];

	snprintf(wanted, sizeof(wanted), " %s", name);
	pthread_mutex_lock(&t->lock);
	bool told = strstr(t->told, wanted) != NULL;
	pthread_mutex_unlock(&t->lock);
	return told;
}

static void begin(struct trial *t)
{
	*t = (struct trial){ .lock = PTHREAD_MUTEX_INITIALIZER };
	t->w = job_world_start_with(&(struct job_world_options){ .num = NODES,
		.timeout_usec = 10000000,
		.node_timeout_usec = 200000,
		.invalidate_name = note_name,
		.arg = t });
	t->l = job_world_loopback(t->w);
}

/* One that begins like that and is served by that node. */
static void served_by(char name[8], uint64_t dir, char first, uint32_t node)
{
	unsigned int i = 0;

	do
		snprintf(name, 8, "%c%u", first, i++);
	while (place_name(dir, name, NODES) != node);
}

/* Of a new directory that nobody needs the prepared node for. */
static void make_dir(struct trial *t, char name[8], char first)
{
	served_by(name, ROOT_INO, first, 0);
	is_int(path_mkdir(job_world_job(t->w, 0), name, 0700), 0, "a directory");
}

static int make_file(struct trial *t, uint32_t by, const char *dir, uint32_t server)
{
	struct stat st = { 0 };
	char name[8], path[20];

	(void)path_stat(job_world_job(t->w, by), dir, &st);
	served_by(name, st.st_ino, 'n', server);
	snprintf(path, sizeof(path), "%s/%s", dir, name);
	return path_create(job_world_job(t->w, by), path, 0600, O_EXCL);
}

struct asked { /* a change that a thread waits for */
	struct job *j;
	char from[8], to[8]; /* to "": it is removed; from "": made */
	int rc;
	pthread_t thread;
};

static void *asked_main(void *arg)
{
	struct asked *a = arg;

	a->rc = !*a->from ? path_mkdir(a->j, a->to, 0700)
		: *a->to  ? path_rename(a->j, a->from, a->to, 0)
			  : path_rmdir(a->j, a->from);
	return NULL;
}

static void ask_for(struct trial *t, struct asked *a, uint32_t node, const char *from, const char *to)
{
	*a = (struct asked){ .j = job_world_job(t->w, node) };
	strcpy(a->from, from);
	strcpy(a->to, to);
	if (pthread_create(&a->thread, NULL, asked_main, a))
		exit(1);
}

static int result(struct asked *a)
{
	pthread_join(a->thread, NULL);
	return a->rc;
}

/* All are prepared for it, but node 0 does not know it yet. */
static void ask_and_hold(struct trial *t, struct asked *a, const char *from, const char *to)
{
	loopback_hold_reply(t->l, ASKS, MESSAGE_TREE_PREPARE, 0);
	ask_for(t, a, ASKS, from, to);
	loopback_await_held(t->l, ASKS);
}

static bool is_gone(struct trial *t, uint32_t by)
{
	struct peers_node n;

	return peers_nodes(job_world_peers(t->w, by), PREPARED, &n, 1) == 1 && n.gone;
}

static void cut_off(struct trial *t)
{
	loopback_cut(t->l, PREPARED);
	while (!is_gone(t, 0) || !is_gone(t, ASKS))
		usleep(10000);
}

static void ask_and_cut_off(struct trial *t, struct asked *a, const char *from, const char *to)
{
	ask_and_hold(t, a, from, to);
	while (!is_told(t, from))
		usleep(1000);
	loopback_settle(t->l);
	cut_off(t);
}

static uint64_t stamp_of(struct trial *t, uint32_t node)
{
	return state_tree_stamp(store_state(job_world_store(t->w, node)));
}

/* As it was, and it has what it missed. */
static void come_back(struct trial *t)
{
	t->told[0] = '\0';
	loopback_assemble(t->l);
	for (int i = 0; i < PATIENCE && stamp_of(t, PREPARED) != stamp_of(t, 0); i++)
		usleep(10000);
	loopback_settle(t->l);
}

static void test_committed(void)
{
	char d[8], e[8], f[8], g[8];
	struct asked a;
	struct trial t;

	begin(&t);
	make_dir(&t, d, 'd');
	make_dir(&t, f, 'f');
	served_by(e, ROOT_INO, 'e', 0);
	served_by(g, ROOT_INO, 'g', 0);
	ask_and_cut_off(&t, &a, d, e);
	loopback_let_go(t.l, ASKS);
	is_int(result(&a), 0, "a node is given up while a directory is moved, which is done");
	is_int(path_rename(job_world_job(t.w, ASKS), f, g, 0), 0, "and another one is moved");
	come_back(&t);
	ok(is_told(&t, f), "when the node is back, its kernel drops the name of that");
	job_world_stop(t.w);
}

/* It had asked for one, too, whose turn comes when its lock may be somebody else's. */
static void test_own(void)
{
	char d[8], e[8], f[8], g[8], h[8], i[8];
	struct asked a, other, own;
	struct stat st;
	struct trial t;

	begin(&t);
	make_dir(&t, d, 'd');
	make_dir(&t, f, 'f');
	make_dir(&t, h, 'h');
	served_by(e, ROOT_INO, 'e', 0);
	served_by(g, ROOT_INO, 'g', 0);
	served_by(i, ROOT_INO, 'i', 0);
	ask_and_hold(&t, &a, d, e);
	ask_for(&t, &other, ASKS, f, g);
	usleep(100000); /* node 0 has been asked; else this shows less */
	ask_for(&t, &own, PREPARED, h, i);
	usleep(100000);
	cut_off(&t);
	loopback_let_go(t.l, ASKS);
	is_int(result(&a), 0, "a node is given up while a directory is moved");
	is_int(result(&other), 0, "and another one");
	come_back(&t);
	is_int(result(&own), -EIO, "what it has asked for itself is not done");
	is_int(path_stat(job_world_job(t.w, 0), i, &st), -ENOENT, "nor seen");
	is_int(path_stat(job_world_job(t.w, PREPARED), h, &st), 0, "when the node is back, either");
	ok(is_told(&t, f), "its kernel drops the names of what was moved meanwhile");
	job_world_stop(t.w);
}

static void *let_go_late(void *arg)
{
	usleep(300000);
	loopback_let_go(arg, PREPARED);
	return NULL;
}

/* It asks for a change, is given up, and hears that it is done when it is back, before it is told what that was. */
static void test_own_tree(void)
{
	char d[8], g[8];
	struct asked own;
	struct stat st;
	struct trial t;
	pthread_t late;

	begin(&t);
	make_dir(&t, d, 'd'); /* node 0 has nothing more to say of what was before */
	served_by(g, ROOT_INO, 'g', 0);
	loopback_hold_request(t.l, 0, PREPARED, MESSAGE_TREE_COMMIT);
	ask_for(&t, &own, PREPARED, "", g);
	loopback_await_held(t.l, 0);
	cut_off(&t);
	loopback_let_go(t.l, 0);
	while (path_stat(job_world_job(t.w, 0), g, &st) < 0)
		usleep(10000);
	loopback_hold_reply(t.l, PREPARED, MESSAGE_TREE_STAMP, 0);
	loopback_assemble(t.l);
	loopback_await_held(t.l, PREPARED);
	if (pthread_create(&late, NULL, let_go_late, t.l))
		exit(1);
	int rc = result(&own);
	bool here = stamp_of(&t, PREPARED) == stamp_of(&t, 0);
	pthread_join(late, NULL);
	ok(rc < 0 || here, "what it has asked for itself is done for it when its own tree has it: %d", rc);
	is_int(rc, 0, "which it waits for");
	job_world_stop(t.w);
}

/* It is closed on the prepared node when that is given up. */
static void begin_closed(struct trial *t, struct asked *a, char d[8])
{
	begin(t);
	make_dir(t, d, 'd');
	is_int(make_file(t, ASKS, d, ASKS), 0, "a file in it");
	ask_and_cut_off(t, a, d, "");
}

static void test_aborted(void)
{
	struct asked a;
	struct trial t;
	char d[8];

	begin_closed(&t, &a, d);
	loopback_let_go(t.l, ASKS);
	is_int(result(&a), -ENOTEMPTY, "a node is given up while a directory is removed, which is not done");
	come_back(&t);
	is_int(make_file(&t, 0, d, PREPARED), 0, "when the node is back, names in the directory are given");
	job_world_stop(t.w);
}

static void test_forgotten(void)
{
	struct asked a;
	struct trial t;
	char d[8];

	begin_closed(&t, &a, d);
	job_world_kill(t.w, 0);
	loopback_let_go(t.l, ASKS);
	loopback_set_hanging(t.l, PREPARED, true);
	job_world_revive(t.w, 0);
	cut_off(&t);
	is_int(result(&a), -ENOTEMPTY, "node 0 is restarted, too, and has forgotten the change");
	loopback_set_hanging(t.l, PREPARED, false);
	come_back(&t);
	is_int(make_file(&t, 0, d, PREPARED), 0, "when the node is back, names in the directory are given");
	job_world_stop(t.w);
}

/* It is back in the middle of the next change, and has not been prepared for that. */
static void test_next(void)
{
	char d[8], e[8], f[8], g[8];
	struct asked a;
	struct trial t;

	begin(&t);
	make_dir(&t, d, 'd');
	make_dir(&t, e, 'e');
	make_dir(&t, f, 'f');
	served_by(g, ROOT_INO, 'g', 0);
	is_int(make_file(&t, ASKS, e, ASKS), 0, "a file");
	ask_and_cut_off(&t, &a, d, e);
	loopback_let_go(t.l, ASKS);
	is_int(result(&a), -ENOTEMPTY, "a node is given up while a directory is moved, which is not done");
	ask_and_hold(&t, &a, f, g);
	t.told[0] = '\0';
	loopback_assemble(t.l);
	loopback_settle(t.l);
	loopback_let_go(t.l, ASKS);
	is_int(result(&a), 0, "it is back when another one is about to be moved");
	ok(is_told(&t, f), "of which its kernel drops the name");
	job_world_stop(t.w);
}

int main(void)
{
	test_order();
	test_committed();
	test_own();
	test_own_tree();
	test_aborted();
	test_forgotten();
	test_next();
	return done_testing();
}
