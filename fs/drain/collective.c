/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Three threads. The asker's side sends what this node asks for to node 0, again when node 0's daemon is another one. The
 * worker carries out one part at a time and tells node 0. On node 0 the leader takes all asks that wait, runs the parts of
 * one session for them, and answers. What is asked while a session runs waits for the next one: its snapshots are older.
 *
 * A node that cannot be reached, or whose daemon was restarted on the way, has not done its part: the session goes on
 * without it, cautiously (nothing is replaced that might be that node's), and its end says so and names the node. So that this
 * is known of a node that has begun its part, too, node 0 asks those at work every few seconds whether they still are.
 *
 * Unmounted nodes ask for a final session. Their data are carried at once; they are answered when all nodes have asked for
 * one and a session has run after that, since until then others need what they are home of.
 */
#include "fs/drain/collective_private.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "format/base/clock.h"

int64_t collective_now_usec(void)
{
	return (int64_t)clock_usec();
}

uint64_t collective_life(const struct collective *c, uint32_t node)
{
	struct peers_node n;

	return peers_nodes(c->opt.peers, node, &n, 1) == 1 ? n.incarnation : 0;
}

/* ---- paths and lists */

void collective_paths_free(struct paths *p)
{
	for (size_t i = 0; i < p->num; i++)
		free(p->at[i]);
	free(p->at);
	*p = (struct paths){ 0 };
}

bool collective_paths_add(struct paths *p, const char *path)
{
	char **grown = reallocarray(p->at, p->num + 1, sizeof(*grown));

	if (!grown)
		return false;
	p->at = grown;
	p->at[p->num] = strdup(path);
	return p->at[p->num] && ++p->num;
}

/* Out of memory: everything, which is more than was asked for and never less. */
void collective_paths_copy(struct paths *to, char *const *from, size_t num)
{
	*to = (struct paths){ 0 };
	for (size_t i = 0; i < num; i++)
		if (!collective_paths_add(to, from[i])) {
			collective_paths_free(to);
			return;
		}
}

void collective_paths_decode(struct paths *to, const struct wire_msg *m)
{
	char path[STORE_PATH_MAX + 1];

	*to = (struct paths){ 0 };
	while (wire_get_str(m, (enum wire_tag)TAG_PATH, (unsigned int)to->num, path, sizeof(path)))
		if (to->num == DRAIN_PATHS_MAX || !collective_paths_add(to, path)) {
			collective_paths_free(to);
			return;
		}
}

void collective_paths_encode(struct wire_msg *m, const struct paths *p)
{
	for (size_t i = 0; i < p->num; i++)
		wire_put_str(m, (enum wire_tag)TAG_PATH, p->at[i]);
}

void collective_ask_free(struct ask *a)
{
	collective_paths_free(&a->paths);
	free(a);
}

void collective_append(struct ask **list, struct ask *a)
{
	while (*list)
		list = &(*list)->next;
	a->next = NULL;
	*list = a;
}

struct ask *collective_find_ask(struct ask *list, uint32_t from, uint64_t id)
{
	while (list && (list->from != from || list->id != id))
		list = list->next;
	return list;
}

uint64_t collective_count(const struct ask *list)
{
	uint64_t n = 0;

	for (; list; list = list->next)
		n++;
	return n;
}

void collective_wait_changed(struct collective *c, int64_t until)
{
	struct timespec at = { .tv_sec = until / SEC, .tv_nsec = until % SEC * 1000 };

	if (until == INT64_MAX)
		pthread_cond_wait(&c->changed, &c->lock);
	else
		pthread_cond_timedwait(&c->changed, &c->lock, &at);
}

/* lock is held. NULL: it is not there any more. */
struct ask *collective_take_ask(struct ask **list, uint32_t from, uint64_t id)
{
	struct ask *a = collective_find_ask(*list, from, id);

	while (a && *list != a)
		list = &(*list)->next;
	if (a)
		*list = a->next;
	return a;
}

void collective_put_shared(struct wire_msg *m, const struct wire_shared_list *list)
{
	struct buf bytes = { 0 };

	wire_shared_encode(list, &bytes);
	message_put_bytes(m, (enum message_tag)TAG_SHARED, bytes.data, bytes.len);
	buf_free(&bytes);
}

int collective_get_shared(const struct wire_msg *m, struct wire_shared_list *list)
{
	const uint8_t *bytes;
	size_t len;

	return message_get_bytes(m, (enum message_tag)TAG_SHARED, 0, &bytes, &len)
		       ? wire_shared_decode(bytes, len, list)
		       : 0;
}

void collective_task_free(struct task *t)
{
	collective_paths_free(&t->paths);
	wire_shared_free(&t->shared);
	free(t);
}

/* ---- life */

void collective_serve(struct collective *c, struct peers_request *rq)
{
	const struct wire_msg *m = peers_msg(rq);
	int r = 0;

	if ((int)m->type == MESSAGE_DRAIN_DIRS && c->opt.dirs) {
		c->opt.dirs(rq, c->opt.arg);
		return;
	}
	switch ((int)m->type) {
	case MESSAGE_DRAIN_ASK: r = collective_serve_ask(c, peers_from(rq), m); break;
	case MESSAGE_DRAIN_ANSWER: collective_serve_answer(c, m); break;
	case MESSAGE_DRAIN_CANCEL: collective_serve_cancel(c, peers_from(rq), tag_get(m, TAG_ID)); break;
	case MESSAGE_DRAIN_PART: r = collective_serve_part(c, m); break;
	case MESSAGE_DRAIN_PART_DONE: collective_serve_part_done(c, peers_from(rq), m); break;
	case MESSAGE_DRAIN_LINES: r = collective_serve_lines(c, m); break;
	case MESSAGE_DRAIN_WORKS: r = collective_serve_works(c, m); break;
	case MESSAGE_DRAIN_WAITS: r = collective_serve_waits(c, peers_from(rq), m); break;
	case MESSAGE_DRAIN_PAUSE: collective_serve_pause(c, tag_get(m, TAG_PAUSED)); break;
	case MESSAGE_DRAIN_PAUSED:
		if (c->opt.paused)
			c->opt.paused(tag_get(m, TAG_PAUSED), c->opt.arg);
		break;
	case MESSAGE_DRAIN_STOP: collective_serve_stop(c, tag_get(m, TAG_SESSION)); break;
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
	r = -pthread_create(&c->asker, NULL, collective_asker, c);
	c->threads += r == 0;
	if (r == 0)
		r = -pthread_create(&c->worker, NULL, collective_worker, c);
	c->threads += r == 0;
	if (r == 0)
		r = -pthread_create(&c->leader, NULL, collective_leader, c);
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

		collective_ask_free(list);
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

		collective_task_free(c->todo);
		c->todo = next;
	}
	free_list(c->mine);
	free_list(c->asks);
	free_list(c->finals);
	collective_forget_troubles(c);
	wire_shared_free(&c->shared);
	free(c->members);
	pthread_cond_destroy(&c->changed);
	pthread_mutex_destroy(&c->lock);
	free(c);
}
