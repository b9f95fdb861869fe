/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Power lost (docs/design/power-loss.md). What a node does without fsync it may forget with the power; but the others have seen it. So a
 * daemon that finds that power was lost tells all, before anybody believes what it, or they, know of the files that several nodes write:
 *
 *   CUTS   everybody tells it what was cut off of shared files (relearn.c); before that it writes to none
 *   LOST   everybody takes its pieces out of the share maps: their payload may be gone, and under them lies what counted before
 *   TELL   everybody, it too, tells what is in its layer again: the domain homes then know what is there, also those whose own
 *          maps were lost. The home is told which of its files others have written; a layer whose file is no more goes
 *   CLAIM  of each name that a file of it has: what was renamed or removed without fsync is back. The server looks who has it
 *
 * Until a node has done that, or has said that it need not, it is not *settled*, and nobody says where the bytes of shared files are
 * (SHARE_LOCATE waits). Each daemon asks all others, and asks again whoever is restarted. Nothing that the three steps do asks for places.
 *
 * Also here: what is on a device elsewhere, for those whose promise depends on it.
 */
#include "fs/job/carry.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "format/base/array.h"

#define AGAIN_USEC  10000u
#define LONG_USEC   200000u
#define NAMES_BATCH 64u

struct held_back { /* a request that is answered later */
	struct held_back *next;
	struct peers_request *rq;
};

struct power {
	struct job *j;
	pthread_mutex_t lock;
	uint64_t life;    /* of this daemon */
	bool begun;       /* the first assembly was seen */
	bool *settled;    /* owned, by node */
	uint64_t *lives;  /* owned, by node: daemons that were seen */
	int *refused;     /* owned, by node: why it cannot do what all must before we are settled; 0: it can */
	uint32_t missing; /* nodes that are not settled */
	bool stale;       /* kernels may have pages of what was lost */
	struct held_back *askers, *readers, *writers;
	struct workers
		*again; /* owned: they tell again, and wait for the drivers of others, which do not wait for them */
	pthread_t thread;
	bool has_thread;
};

struct settled_question { /* is that node settled? */
	struct power *p;
	uint32_t node;
	uint64_t life;
	int status;
};

/* ---- who is settled; lock is held where nothing else is said */

static bool keep(struct held_back **list, struct peers_request *rq)
{
	struct held_back *k = malloc(sizeof(*k));

	if (k) {
		*k = (struct held_back){ *list, rq };
		*list = k;
	}
	return k;
}

static struct held_back *take(struct held_back **list)
{
	struct held_back *all = *list;

	*list = NULL;
	return all;
}

/* Without the lock. */
static void let_read(struct job *j, struct held_back *k)
{
	while (k) {
		struct held_back *next = k->next;

		workers_serve(j->workers, map_serve_locate, k->rq);
		free(k);
		k = next;
	}
}

static struct held_back *set_settled(struct power *p, uint32_t node, bool settled)
{
	if (p->settled[node] != settled)
		p->missing += settled ? -1u : 1u;
	p->settled[node] = settled;
	if (p->missing)
		return NULL;
	if (p->stale && workers_do(p->j->share->tellers, share_drop_pages, NULL) == 0)
		p->stale = false;
	return take(&p->readers);
}

bool power_is_settled(struct job *j)
{
	struct power *p = j->power;

	pthread_mutex_lock(&p->lock);
	bool is = p->begun && p->missing == 0;
	pthread_mutex_unlock(&p->lock);
	return is;
}

void power_serve_locate(struct job *j, struct peers_request *rq)
{
	struct power *p = j->power;

	pthread_mutex_lock(&p->lock);
	bool waits = (!p->begun || p->missing) && !j->ending, kept = waits && keep(&p->readers, rq);
	pthread_mutex_unlock(&p->lock);
	if (!waits)
		workers_serve(j->workers, map_serve_locate, rq);
	else if (!kept)
		peers_reply_status(rq, -ENOMEM);
}

void power_serve_settled(struct job *j, struct peers_request *rq)
{
	struct power *p = j->power;

	pthread_mutex_lock(&p->lock);
	bool waits = !p->begun || !p->settled[peers_self(j->peers)], kept = waits && keep(&p->askers, rq);
	pthread_mutex_unlock(&p->lock);
	if (!kept)
		peers_reply_status(rq, waits ? -ENOMEM : 0);
}

static void answer(struct held_back *k, int status)
{
	while (k) {
		struct held_back *next = k->next;

		peers_reply_status(k->rq, status);
		free(k);
		k = next;
	}
}

/* We are. */
static void settle(struct power *p)
{
	pthread_mutex_lock(&p->lock);
	struct held_back *readers = p->j->ending ? NULL : set_settled(p, peers_self(p->j->peers), true);
	p->j->is_settled = !p->j->ending;
	struct held_back *askers = take(&p->askers);
	pthread_mutex_unlock(&p->lock);
	answer(askers, 0);
	let_read(p->j, readers);
}

/* ---- who writes */

void power_serve_knows_cuts(struct job *j, struct peers_request *rq)
{
	struct power *p = j->power;

	pthread_mutex_lock(&p->lock);
	bool waits = !j->knows_cuts && !j->ending, kept = waits && keep(&p->writers, rq);
	pthread_mutex_unlock(&p->lock);
	if (!kept)
		peers_reply_status(rq, waits ? -ENOMEM : 0);
}

int power_wait_cuts(struct job *j)
{
	struct wire_msg m = { 0 };

	if (j->knows_cuts)
		return 0;
	message_init(&m, MESSAGE_POWER_KNOWS_CUTS);
	int rc = peers_call(j->peers, peers_self(j->peers), &m, NULL);
	wire_msg_free(&m);
	return rc;
}

int power_wait_settled(struct job *j)
{
	struct wire_msg m = { 0 };

	if (j->is_settled)
		return 0;
	message_init(&m, MESSAGE_POWER_SETTLED);
	int rc = peers_call(j->peers, peers_self(j->peers), &m, NULL);
	wire_msg_free(&m);
	return rc;
}

static void let_write(struct power *p)
{
	pthread_mutex_lock(&p->lock);
	p->j->knows_cuts = true;
	struct held_back *writers = take(&p->writers);
	pthread_mutex_unlock(&p->lock);
	answer(writers, 0);
	share_poke(p->j);
}

/* ---- asking the others */

static void ask(struct job *j, void *arg);

static void answered(int status, const struct wire_msg *reply, void *arg)
{
	struct settled_question *q = arg;
	struct power *p = q->p;
	struct held_back *readers = NULL;

	(void)reply;
	pthread_mutex_lock(&p->lock);
	bool current = q->life == p->lives[q->node];
	bool over = status == 0 || status == -EHOSTDOWN || status == -ESHUTDOWN || p->j->ending;
	if (current && over && !p->j->ending)
		readers = set_settled(p, q->node, true);
	pthread_mutex_unlock(&p->lock);
	let_read(p->j, readers);
	q->status = status;
	if (!current || over || workers_do(p->j->workers, ask, q) < 0)
		free(q);
}

static void ask(struct job *j, void *arg)
{
	struct settled_question *q = arg;
	struct wire_msg m = { 0 };

	if (q->status < 0)
		usleep(AGAIN_USEC);
	message_init(&m, MESSAGE_POWER_SETTLED);
	int rc = peers_call_async(j->peers, q->node, &m, answered, q);
	wire_msg_free(&m);
	if (rc < 0)
		answered(rc, NULL, q);
}

/* A daemon that we do not know yet. */
static void ask_node(struct power *p, uint32_t node)
{
	struct settled_question *q = calloc(1, sizeof(*q));

	pthread_mutex_lock(&p->lock);
	(void)set_settled(p, node, false);
	p->lives[node]++;
	if (q)
		*q = (struct settled_question){ .p = p, .node = node, .life = p->lives[node] };
	pthread_mutex_unlock(&p->lock);
	if (!q || workers_do(p->j->workers, ask, q) < 0)
		free(q); /* never settled: reads wait, and time out */
}

/* ---- what was drained while a daemon died */

struct restarted {
	uint32_t node;
};

static void hear(struct job *j, void *arg)
{
	struct restarted *r = arg;

	(void)relearn_drained(j, r->node); /* our store has said why */
	free(r);
}

/* It may have published files, and be another one before the session could say so. */
static void hear_drained(struct power *p, uint32_t node)
{
	struct restarted *r = malloc(sizeof(*r));

	if (r)
		r->node = node;
	if (!r || workers_do(p->again, hear, r) < 0)
		free(r); /* with the next drain of the file */
}

/* ---- somebody has */

struct maps {
	uint64_t *inos; /* owned */
	size_t num, cap;
};

static int note_map(uint64_t ino, uint64_t extents, void *arg)
{
	struct maps *m = arg;

	if (extents == 0)
		return 0;
	if (array_room(&m->inos, &m->cap, m->num, sizeof(*m->inos)) < 0)
		return -ENOMEM;
	m->inos[m->num++] = ino;
	return 0;
}

/* Durable: who has lost power says it once. */
static int forget(struct job *j, uint32_t node)
{
	struct record rec = { .type = RECORD_SHARE_LOST, .node = node };
	struct maps m = { 0 };
	int rc = state_each_shared(j->state, note_map, &m);

	for (size_t i = 0; rc == 0 && i < m.num; i++) {
		rec.ino = m.inos[i];
		rec.seq = 0;
		rec.time_ns = 0;
		rc = store_commit(j->opt.store, &rec);
	}
	free(m.inos);
	return rc ? rc : store_sync(j->opt.store);
}

static void serve_lost(struct job *j, struct peers_request *rq)
{
	struct power *p = j->power;

	pthread_mutex_lock(&p->lock);
	p->stale = true;
	pthread_mutex_unlock(&p->lock);
	carry_lost(j, peers_from(rq));
	peers_reply_status(rq, forget(j, peers_from(rq)));
}

/* Behind what the daemon before it has sent. */
void power_serve_lost(struct job *j, struct peers_request *rq)
{
	workers_serve_after(j->workers, serve_lost, rq);
}

/* But nothing that has been drained: who asks may be the only one who knows. */
static void tell_ours(struct job *j, struct peers_request *rq)
{
	int rc = relearn_drained(j, peers_from(rq));

	peers_reply_status(rq, rc < 0 ? rc : commit_tell_all(j, peers_from(rq)));
}

void power_serve_tell(struct job *j, struct peers_request *rq)
{
	workers_serve(j->power->again, tell_ours, rq);
}

/* ---- we have lost power */

static bool all_have(const int *status, uint32_t num)
{
	for (uint32_t i = 0; i < num; i++)
		if (status[i] < 0 && status[i] != -EHOSTDOWN)
			return false;
	return true;
}

/* It is there, and says no: somebody has to look after it. */
static bool is_refusal(int status)
{
	return status < 0 && status != -EHOSTDOWN && status != -ESHUTDOWN && status != -ECONNRESET &&
	       status != -ETIMEDOUT && status != -EAGAIN;
}

static void note_answer(struct power *p, uint32_t node, int status)
{
	int refused = is_refusal(status) ? status : 0;
	char name[128];

	pthread_mutex_lock(&p->lock);
	bool news = p->refused[node] != refused;
	p->refused[node] = refused;
	pthread_mutex_unlock(&p->lock);
	if (news)
		job_log(p->j, refused, refused ? "power_lost_refused" : "power_lost_goes_on",
			"node=\"%s\" status=%d text=\"%s\"", peers_name(p->j->peers, node, name, sizeof(name)), status,
			refused ? lag_remedy(refused) : "");
}

void power_troubles(struct job *j, void (*say)(const char *text, void *arg), void *arg)
{
	struct power *p = j->power;
	char text[512], name[128];

	for (uint32_t i = 0; p->begun && i < peers_count(j->peers); i++) {
		pthread_mutex_lock(&p->lock);
		int rc = p->refused[i];
		pthread_mutex_unlock(&p->lock);
		if (rc == 0)
			continue;
		snprintf(text, sizeof(text),
			"%s: its store does not take, or tell, what this node has lost with its power (%s), before which files that several nodes "
			"write are neither read elsewhere nor drained: %s",
			peers_name(j->peers, i, name, sizeof(name)), lag_reason(rc), lag_remedy(rc));
		say(text, arg);
	}
}

/* To all nodes, until they have done it. */
static void tell_all(struct power *p, enum message_type type)
{
	uint32_t num = peers_count(p->j->peers);
	int *status = calloc(num, sizeof(*status));
	struct wire_msg m = { 0 };

	message_init(&m, type);
	while (status && !p->j->ending) {
		(void)peers_call_all(p->j->peers, &m, status, NULL, NULL);
		for (uint32_t i = 0; i < num && !p->j->ending; i++)
			note_answer(p, i, status[i]);
		if (all_have(status, num))
			break;
		usleep(AGAIN_USEC);
	}
	wire_msg_free(&m);
	free(status);
}

static void claim(struct job *j, uint64_t dir, const struct state_name *e)
{
	struct wire_msg m = { 0 };
	struct pointer at = { .ino = e->ino, .stamp = e->stamp };

	message_init(&m, MESSAGE_NAME_CLAIM);
	message_put(&m, MESSAGE_DIR, dir);
	message_put_str(&m, MESSAGE_NAME, e->name);
	pointer_put(&m, &at);
	while (share_call(j, place_name(dir, e->name, peers_count(j->peers)), &m, NULL) == -ETIMEDOUT && !j->ending)
		usleep(AGAIN_USEC);
	wire_msg_free(&m);
}

static int claim_names(const struct inode *in, void *arg)
{
	struct state_name names[NAMES_BATCH];
	char after[RECORD_NAME_MAX + 1] = "";
	size_t num = S_ISDIR(in->mode) ? NAMES_BATCH : 0;
	struct job *j = arg;

	while (num == NAMES_BATCH && !j->ending) {
		int rc = state_list_names(j->state, in->ino, after, names, NAMES_BATCH, &num);

		if (rc < 0)
			return rc;
		for (size_t i = 0; i < num; i++)
			if (names[i].type != S_IFDIR)
				claim(j, in->ino, &names[i]);
		if (num)
			memcpy(after, names[num - 1].name, sizeof(after));
	}
	return 0;
}

/* Without them nothing is written here to what nodes share, and nothing told of it. */
static void learn_cuts(struct power *p)
{
	struct job *j = p->j;
	int rc = relearn_all(j), said = 0;

	while (rc < 0 && !j->ending) {
		if (rc != said)
			job_log(j, true, "power_lost_cuts", "status=%d text=\"%s\"", rc, lag_remedy(rc));
		said = rc;
		usleep(LONG_USEC);
		rc = relearn_all(j);
	}
	if (rc == 0 && !j->ending)
		let_write(p);
}

static int is_foreign(const struct inode *in, void *arg)
{
	(void)arg;
	return in->flags & INODE_FOREIGN ? 1 : 0;
}

static int is_any(uint64_t ino, uint64_t extents, void *arg)
{
	(void)ino, (void)extents, (void)arg;
	return 1;
}

/* Only who has something of shared files may have missed that it is not needed any more. */
static void learn_drained(struct power *p)
{
	struct job *j = p->j;
	bool has = state_each_shared(j->state, is_any, NULL) != 0 || state_each_inode(j->state, is_foreign, NULL) != 0;
	int rc = has ? relearn_all(j) : 0;

	if (rc < 0)
		job_log(j, true, "power_drained", "status=%d text=\"%s\"", rc, lag_remedy(rc));
}

/* The home's size, and who believes another one. */
static void tell_openers(struct job *j, struct shared *s, void *arg)
{
	(void)arg;
	if (j->ending || !s->at_home || !s->is_shared)
		return;
	if (registry_has_openers(s))
		(void)registry_tell(j, s);
	if (j->opt.invalidate)
		j->opt.invalidate(s->ino, true, j->opt.arg);
}

/* Our own maps, too, may be old ones, of what others have taken back since. */
static void *power_main(void *arg)
{
	struct power *p = arg;
	struct job *j = p->j;

	if (store_lost_power(j->opt.store)) {
		int forgotten = forget(j, SHARE_ALL_NODES);

		if (forgotten < 0)
			job_log(j, true, "power_lost_maps", "status=%d", forgotten);
		learn_cuts(p);
		tell_all(p, MESSAGE_POWER_LOST);
		tell_all(p, MESSAGE_POWER_TELL);
		int rc = state_each_inode(j->state, claim_names, j);
		if (rc == 0 && !j->ending)
			rc = store_lost_power_told(j->opt.store);
		job_log(j, rc < 0, "power_lost_told", "status=%d", rc);
		settle(p);
		shared_each(j, tell_openers, NULL); /* now: tellers wait for reads */
		return NULL;
	}
	learn_drained(p);
	settle(p);
	return NULL;
}

/* ---- what is on other nodes' devices */

void power_serve_sync(struct job *j, struct peers_request *rq)
{
	uint64_t life = message_get(peers_msg(rq), MESSAGE_LIFE);

	peers_reply_status(rq, life && life != j->power->life ? -ESTALE : store_sync(j->opt.store));
}

uint64_t power_life(struct job *j)
{
	return j->power->life;
}

int power_sync_life(struct job *j, uint32_t node, uint64_t life)
{
	struct wire_msg m = { 0 };

	message_init(&m, MESSAGE_SYNC);
	message_put(&m, MESSAGE_LIFE, life);
	int rc = life ? peers_call(j->peers, node, &m, NULL) : -ESTALE;
	wire_msg_free(&m);
	return rc == -EHOSTDOWN ? 0 : rc == -ECONNRESET || rc == -ESTALE ? -EAGAIN : rc;
}

int power_sync(struct job *j, uint32_t node)
{
	struct wire_msg m = { 0 };

	message_init(&m, MESSAGE_SYNC);
	int rc = share_call(j, node, &m, NULL);
	wire_msg_free(&m);
	return rc == -EHOSTDOWN ? 0 : rc;
}

int power_sync_all(struct job *j)
{
	uint32_t num = peers_count(j->peers);
	int *status = calloc(num, sizeof(*status)), rc = 0;
	struct wire_msg m = { 0 };

	message_init(&m, MESSAGE_SYNC);
	if (status)
		(void)peers_call_all(j->peers, &m, status, NULL, NULL);
	for (uint32_t i = 0; status && i < num && rc == 0; i++)
		rc = status[i] == -ECONNRESET ? power_sync(j, i) : status[i] == -EHOSTDOWN ? 0 : status[i];
	wire_msg_free(&m);
	free(status);
	return status ? rc : -ENOMEM;
}

int power_sync_any(struct job *j)
{
	uint32_t num = peers_count(j->peers);
	int *status = calloc(num, sizeof(*status)), rc = status ? 0 : -ENOMEM;
	struct wire_msg m = { 0 };

	message_init(&m, MESSAGE_SYNC);
	if (status)
		(void)peers_call_all(j->peers, &m, status, NULL, NULL);
	for (uint32_t i = 0; status && i < num && rc == 0; i++)
		rc = status[i] == -ECONNRESET ? -EAGAIN : status[i] == -ETIMEDOUT ? status[i] : 0;
	wire_msg_free(&m);
	free(status);
	return rc;
}

/* ---- life */

static int power_create(struct job *j, struct cistern_error *err)
{
	j->power = calloc(1, sizeof(*j->power));
	if (!j->power)
		return cistern_error_set(err, -ENOMEM, "out of memory");
	j->power->j = j;
	j->power->life = (uint64_t)clock_now(state_clock(j->state));
	pthread_mutex_init(&j->power->lock, NULL);
	int rc = workers_create(j, &j->power->again);
	return rc < 0 ? cistern_error_set(err, rc, "cannot start threads: %s", strerror(-rc)) : 0;
}

/* Before share.c's: our thread uses it. */
static void power_destroy(struct job *j)
{
	struct power *p = j->power;

	if (!p)
		return;
	if (p->has_thread)
		pthread_join(p->thread, NULL);
	workers_destroy(p->again);
	answer(take(&p->readers), -ESHUTDOWN);
	answer(take(&p->askers), -ESHUTDOWN);
	answer(take(&p->writers), -ESHUTDOWN);
	pthread_mutex_destroy(&p->lock);
	free(p->settled);
	free(p->lives);
	free(p->refused);
	free(p);
	j->power = NULL;
}

static void begin(struct power *p)
{
	uint32_t num = peers_count(p->j->peers), self = peers_self(p->j->peers);

	pthread_mutex_lock(&p->lock);
	p->missing = num;
	p->settled = calloc(num, sizeof(*p->settled));
	p->lives = calloc(num, sizeof(*p->lives));
	p->refused = calloc(num, sizeof(*p->refused));
	p->begun = p->settled && p->lives && p->refused;
	pthread_mutex_unlock(&p->lock);
	if (!p->begun)
		return; /* nothing is ever settled: reads wait, and time out */
	for (uint32_t node = 0; node < num; node++)
		if (node != self)
			ask_node(p, node);
	p->has_thread = pthread_create(&p->thread, NULL, power_main, p) == 0;
}

static void power_event(struct job *j, enum peers_event event, uint32_t node)
{
	struct power *p = j->power;
	struct held_back *readers = NULL;

	if (event == PEERS_ASSEMBLED && !p->begun)
		begin(p);
	if (!p->begun || node == peers_self(j->peers))
		return;
	if (event == PEERS_RESTARTED)
		ask_node(p, node);
	if (event == PEERS_RESTARTED)
		hear_drained(p, node);
	if (event == PEERS_GONE) {
		pthread_mutex_lock(&p->lock);
		p->lives[node]++;
		readers = set_settled(p, node, true);
		pthread_mutex_unlock(&p->lock);
		let_read(j, readers);
	}
}

const struct part power_part = { .create = power_create, .destroy = power_destroy, .event = power_event };
