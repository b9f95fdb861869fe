/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * The home of a file that other nodes use: who has it open, what each may believe of it, and the order of commits. All of this is
 * memory: the openers tell it again to a home that has been restarted, and stamps are taken from the job's clock, so that they rise
 * over a restart, too, whatever the system's clock shows by then.
 */
#include "fs/job/lease.h"
#include "format/base/clock.h"
#include "fs/job/quiet.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "format/base/array.h"

#define GONE_BATCH 8192u /* files in one message */

/* ---- stamps */

uint64_t registry_stamp(struct shared *s)
{
	uint64_t now = (uint64_t)clock_now(s->clock) / 1000u;

	if (s->last_stamp < s->stamp)
		s->last_stamp = s->stamp;
	s->last_stamp = now > s->last_stamp ? now : s->last_stamp + 1;
	return s->last_stamp;
}

/* mutex is held. */
static bool keep_waiting(struct shared *s, struct peers_request *rq)
{
	struct peers_request **grown = reallocarray(s->waiting, s->num_waiting + 1, sizeof(*grown));

	if (!grown)
		return false;
	s->waiting = grown;
	s->waiting[s->num_waiting++] = rq;
	return true;
}

/* mutex is held. stamp 0: that node has no commit on its way any more. False: no memory. */
static bool set_pending(struct shared *s, uint32_t node, uint64_t stamp)
{
	size_t i = 0;

	while (i < s->num_pending && s->pending[i].node != node)
		i++;
	if (i == s->num_pending && stamp) {
		struct pending *grown = reallocarray(s->pending, i + 1, sizeof(*grown));
		if (!grown)
			return false;
		s->pending = grown;
		s->num_pending++;
	}
	if (stamp)
		s->pending[i] = (struct pending){ node, stamp };
	else if (i < s->num_pending)
		s->pending[i] = s->pending[--s->num_pending];
	return true;
}

/* mutex is held. All commits up to it have been told. */
static uint64_t settled(struct shared *s)
{
	uint64_t stamp = registry_stamp(s);

	for (size_t i = 0; i < s->num_pending; i++)
		if (s->pending[i].stamp <= stamp)
			stamp = s->pending[i].stamp - 1;
	return stamp;
}

int registry_settled_stamp(struct shared *s, uint64_t *ret)
{
	pthread_mutex_lock(&s->mutex);
	bool busy = s->cutting;
	*ret = settled(s);
	pthread_mutex_unlock(&s->mutex);
	return busy ? -EBUSY : 0;
}

void registry_catch_up(struct shared *s)
{
	pthread_mutex_lock(&s->mutex);
	uint64_t stamp = settled(s);
	if (s->is_shared && s->stamp < stamp)
		s->stamp = stamp;
	pthread_mutex_unlock(&s->mutex);
}

void registry_serve_stamp(struct job *j, struct peers_request *rq)
{
	struct shared *s = shared_get(j, message_get(peers_msg(rq), MESSAGE_SHARE_INO));
	uint64_t stamp = 0;
	bool waits = false;

	if (!s) {
		peers_reply_status(rq, -ENOMEM);
		return;
	}
	pthread_mutex_lock(&s->mutex);
	bool gone = !peers_is_wanted(rq); /* it has waited for a cut, and nobody would end what it begins */
	if (s->cutting && !gone)
		waits = keep_waiting(s, rq);
	else if (!gone && set_pending(s, peers_from(rq), registry_stamp(s)))
		stamp = s->last_stamp;
	pthread_mutex_unlock(&s->mutex);
	if (stamp)
		share_reply_number(rq, 0, MESSAGE_SHARE_AT_STAMP, stamp);
	else if (!waits)
		peers_reply_status(rq, gone ? -ECONNRESET : -ENOMEM);
	shared_put(j, s);
}

/* ---- the view */

/* mutex is held. */
static struct opener *find_opener(struct shared *s, uint32_t node)
{
	for (size_t i = 0; i < s->num_openers; i++)
		if (s->openers[i].node == node)
			return &s->openers[i];
	return NULL;
}

/* mutex is held. */
static bool promise(struct shared *s, uint32_t node)
{
	struct opener *o = find_opener(s, node);

	if (o)
		o->promised = true;
	return o;
}

void registry_promise(struct shared *s, uint32_t node)
{
	pthread_mutex_lock(&s->mutex);
	(void)promise(s, node);
	pthread_mutex_unlock(&s->mutex);
}

void registry_told(struct shared *s, uint32_t node, uint64_t stamp, bool knows, bool slow)
{
	pthread_mutex_lock(&s->mutex);
	struct opener *o = find_opener(s, node);
	if (o && knows && o->untold <= stamp) {
		o->untold = 0;
		o->slow = false;
	} else if (o && !knows) {
		o->untold = o->untold < stamp ? stamp : o->untold;
		o->slow |= slow;
	}
	if (o)
		o->again = false;
	pthread_mutex_unlock(&s->mutex);
}

/* mutex is held. */
static int audience_make(const struct shared *s, struct audience *ret)
{
	*ret = (struct audience){ .at = calloc(s->num_openers + 1, sizeof(*ret->at)) };
	return ret->at ? 0 : -ENOMEM;
}

int registry_untold(struct job *j, struct shared *s, struct audience *ret)
{
	*ret = (struct audience){ 0 };
	pthread_mutex_lock(&s->mutex);
	bool any = false;
	for (size_t i = 0; i < s->num_openers; i++)
		any |= s->openers[i].untold != 0;
	int rc = any ? audience_make(s, ret) : 0;
	for (size_t i = 0; any && rc == 0 && i < s->num_openers; i++) {
		struct opener *o = &s->openers[i];

		if (!o->untold || o->again || peers_is_silent(j->peers, o->node))
			continue;
		o->again = true;
		ret->at[ret->num++].node = o->node;
	}
	pthread_mutex_unlock(&s->mutex);
	return rc;
}

static void describe_known(struct shared *s, const struct core_where *w, struct view *v)
{
	if (w->in.flags & INODE_SHARED) {
		v->flags |= VIEW_SHARED;
		pthread_mutex_lock(&s->mutex);
		v->size = s->size;
		pthread_mutex_unlock(&s->mutex);
	}
	v->limit = w->in.backing_limit;
	v->backing_dev = w->in.backing_dev;
	v->backing_ino = w->in.backing_ino;
	v->mode = w->in.mode;
	v->uid = w->in.uid;
	v->gid = w->in.gid;
	v->parent = w->in.origin_parent;
	memcpy(v->name, w->in.origin_name, sizeof(v->name));
	if (w->has_path)
		memcpy(v->path, w->path, sizeof(v->path));
}

struct moment {
	uint64_t stamp;
	uint64_t
		end; /* of a cut that is under way: who sees this view takes it for newer than that. UINT64_MAX: none */
	bool promised;
};

/* mutex is held. */
static struct moment moment_of(struct shared *s, uint32_t asks)
{
	struct moment now = { .promised = promise(s, asks), .end = s->cutting ? s->cut.size : UINT64_MAX };

	now.stamp = registry_stamp(s);
	return now;
}

struct drained_upto drained_at_home(struct job *j, const struct shared *s)
{
	struct drained_upto upto = { 0 };

	if (s->is_shared) /* else nobody asks maps */
		(void)state_share_drained(j->state, s->ino, &upto.stamp, &upto.usec);
	return upto;
}

/* As of a stamp that has been taken: a view with a higher one shows all that others showed. */
static int describe(struct job *j, struct shared *s, const struct moment *at, struct view *ret)
{
	struct core_where *w = malloc(sizeof(*w));
	struct drained_upto drained = drained_at_home(j, s);
	int rc = w ? core_where(j->core, s->ino, w) : -ENOMEM;

	if (rc == 0) {
		*ret = (struct view){
			.ino = s->ino, .stamp = at->stamp, .size = w->size, .mtime_ns = w->mtime_ns, .drained = drained
		};
		ret->file_stamp = w->file_stamp;
		ret->promise_usec = peers_brief_usec(j->peers);
		ret->flags = (w->known ? VIEW_KNOWN : 0) | (w->outside ? VIEW_OUTSIDE : 0) |
			     (at->promised ? VIEW_PROMISED : 0);
		if (w->known)
			describe_known(s, w, ret);
		if (ret->limit > at->end)
			ret->limit = at->end;
	}
	free(w);
	return rc;
}

int registry_view(struct job *j, struct shared *s, uint32_t asks, struct view *ret)
{
	pthread_mutex_lock(&s->mutex);
	struct moment now = moment_of(s, asks);
	pthread_mutex_unlock(&s->mutex);
	return describe(j, s, &now, ret);
}

/*
 * The stamp and the audience belong together: who was promised something before this stamp is told of it, and who is promised something
 * after it has it in his view.
 */
int registry_change(struct job *j, struct shared *s, uint32_t by, struct view *ret, struct audience *ret_audience)
{
	struct audience a;

	pthread_mutex_lock(&s->mutex);
	int rc = audience_make(s, &a);
	lease_stir(s);
	for (size_t i = 0; rc == 0 && i < s->num_openers; i++) {
		struct opener *o = &s->openers[i];

		if (o->node != by && (o->promised || (o->untold && !o->slow)))
			a.at[a.num++] = (struct listener){ o->node, o->promised };
		o->promised = false;
	}
	struct moment now = moment_of(s, rc == 0 ? by : NOBODY);
	pthread_mutex_unlock(&s->mutex);
	*ret_audience = a;
	return rc < 0 ? rc : describe(j, s, &now, ret);
}

/* flags: more of them. */
static void reply_view(struct job *j, struct shared *s, struct peers_request *rq, uint32_t flags)
{
	struct view *v = malloc(sizeof(*v));
	int rc = v ? registry_view(j, s, peers_from(rq), v) : -ENOMEM;

	if (rc == 0)
		v->flags |= flags;
	if (rc == 0)
		view_reply(rq, v);
	else
		peers_reply_status(rq, rc);
	free(v);
}

void registry_reply(struct job *j, struct shared *s, struct peers_request *rq)
{
	reply_view(j, s, rq, 0);
}

/* ---- openers */

bool registry_has_openers(struct shared *s)
{
	pthread_mutex_lock(&s->mutex);
	bool has = s->num_openers > 0;
	pthread_mutex_unlock(&s->mutex);
	return has;
}

/* mutex is held. NULL: none is known. */
static struct closing_of *find_closing(struct shared *s, uint32_t node)
{
	for (size_t i = 0; i < s->num_closings; i++)
		if (s->closings[i].node == node)
			return &s->closings[i];
	return NULL;
}

/* mutex is held. An opening that the node has given up since may still wait for its turn here. */
static int note_closing(struct shared *s, const struct opener *o)
{
	struct closing_of *c = find_closing(s, o->node);

	if (!c) {
		int rc = array_room(&s->closings, &s->cap_closings, s->num_closings, sizeof(*s->closings));
		if (rc < 0)
			return rc;
		c = &s->closings[s->num_closings++];
	}
	*c = (struct closing_of){ o->node, o->counted_ns };
	return 0;
}

/* mutex is held. */
static void forget_closing(struct shared *s, uint32_t node)
{
	struct closing_of *c = find_closing(s, node);

	if (c)
		*c = s->closings[--s->num_closings];
}

/* mutex is held. By what the node has told later. */
static bool is_overtaken(struct shared *s, const struct opener *o)
{
	const struct opener *was = find_opener(s, o->node);
	const struct closing_of *c = find_closing(s, o->node);

	return o->counted_ns && ((was && o->counted_ns < was->counted_ns) || (c && o->counted_ns < c->counted_ns));
}

/* mutex is held. */
static int remove_opener(struct shared *s, const struct opener *o)
{
	struct opener *was = find_opener(s, o->node);

	if (was)
		*was = s->openers[--s->num_openers];
	return o->counted_ns ? note_closing(s, o) : 0;
}

/* mutex is held. */
static int set_opener(struct shared *s, const struct opener *o)
{
	size_t i = 0;

	if (is_overtaken(s, o))
		return 0;
	if (o->readers + o->writers == 0)
		return remove_opener(s, o);
	while (i < s->num_openers && s->openers[i].node != o->node)
		i++;
	struct opener was = { 0 };
	if (i < s->num_openers)
		was = s->openers[i];
	if (o->writers > 0) /* it may have closed it meanwhile, and not be bound any more */
		lease_no_more(s);
	if (i == s->num_openers) {
		struct opener *grown = reallocarray(s->openers, i + 1, sizeof(*grown));
		if (!grown)
			return -ENOMEM;
		s->openers = grown;
		s->num_openers++;
	}
	was.node = o->node;
	was.readers = o->readers;
	was.writers = o->writers;
	was.leased_usec = o->writers > 0 ? was.leased_usec : 0;
	was.counted_ns = o->counted_ns;
	s->openers[i] = was;
	return 0;
}

/* The inode must outlive its last name as long as somebody has it open, and its backing file too. cut_lock is held. */
static int keep_anchor(struct job *j, struct shared *s)
{
	struct core_open_reply open;
	struct core_file *old = NULL;
	int rc = 0;

	if (!registry_has_openers(s)) {
		old = s->anchor;
		s->anchor = NULL;
	} else if (!s->anchor) {
		rc = core_open_number(j->core, s->ino, O_RDONLY, &open);
		if (rc == 0)
			s->anchor = open.file;
	}
	if (old)
		core_release(j->core, old);
	return rc;
}

static void forget_opener(struct job *j, struct shared *s, void *arg)
{
	const uint32_t *node = arg;

	pthread_mutex_lock(&s->mutex);
	(void)set_opener(s, &(struct opener){ .node = *node });
	forget_closing(s, *node); /* the next daemon's clock need not be ahead of it */
	(void)set_pending(s, *node, 0);
	show_doubt(s);
	pthread_mutex_unlock(&s->mutex);
	lease_recall_all(j, s); /* an anchor goes with the next opener's end, or with us */
}

void registry_forget_node(struct job *j, uint32_t node)
{
	shared_each(j, forget_opener, &node);
}

/* ---- commits */

static void raise_size(struct shared *s, uint64_t size)
{
	pthread_mutex_lock(&s->mutex);
	if (s->size < size)
		s->size = size;
	pthread_mutex_unlock(&s->mutex);
	append_raise_end(s, size);
}

uint64_t registry_end_told(struct job *j, struct shared *s, const struct wire_msg *m, enum message_tag tag)
{
	uint64_t size = message_get(m, tag);
	struct cut cut = { 0 };

	if (state_share_newest_cut(store_state(j->opt.store), s->ino, &cut.size, &cut.stamp) == 0 &&
		message_get(m, MESSAGE_SHARE_AT_STAMP) < cut.stamp && size > cut.size)
		return cut.size;
	return size;
}

static int note_commit(struct job *j, struct shared *s, struct peers_request *rq)
{
	const struct wire_msg *m = peers_msg(rq);

	pthread_mutex_lock(&s->size_lock);
	uint64_t size = registry_end_told(j, s, m, MESSAGE_SHARE_SIZE);
	int rc = core_grow(j->core, s->ino, size, (int64_t)message_get(m, MESSAGE_SHARE_MTIME));
	if (rc == 0)
		raise_size(s, size);
	pthread_mutex_unlock(&s->size_lock);
	if (rc < 0 && rc != -ESTALE) /* it will be told again; not to a file that is no more */
		return rc;
	pthread_mutex_lock(&s->mutex);
	(void)set_pending(s, peers_from(rq), 0);
	pthread_mutex_unlock(&s->mutex);
	return rc;
}

static void do_committed(struct job *j, struct peers_request *rq)
{
	struct shared *s = shared_get(j, message_get(peers_msg(rq), MESSAGE_SHARE_INO));

	quiet_begin_change(j);
	int rc = s ? note_commit(j, s, rq) : -ENOMEM;
	quiet_end_change(j);

	if (rc == 0)
		tell_and_reply(j, s, rq);
	else
		peers_reply_status(rq, rc);
	shared_put(j, s);
}

void registry_serve_committed(struct job *j, struct peers_request *rq)
{
	workers_serve(j->share->tellers, do_committed, rq);
}

/* Who was told of a change wants to know what it was. */
void registry_serve_look(struct job *j, struct peers_request *rq)
{
	struct shared *s = shared_find(j, message_get(peers_msg(rq), MESSAGE_SHARE_INO));
	bool knows = false;

	if (s) {
		pthread_mutex_lock(&s->mutex);
		knows = find_opener(s, peers_from(rq));
		pthread_mutex_unlock(&s->mutex);
	}
	if (knows)
		registry_reply(j, s, rq);
	else
		peers_reply_status(rq, -ESTALE);
	shared_put(j, s);
}

/* ---- opens */

uint64_t shared_size_here(struct job *j, const struct shared *s)
{
	struct inode in;

	return state_inode(store_state(j->opt.store), s->ino, &in) == 0 ? in.size : 0;
}

/*
 * The first writer elsewhere: from now on places are asked of the domain homes. Our own writers stand still meanwhile; what
 * they wrote is a layer, and is committed as one.
 */
static int become_shared(struct job *j, struct shared *s)
{
	struct core_open_reply open;
	int rc = s->is_shared ? 0 : core_open_number(j->core, s->ino, O_RDONLY, &open);

	if (rc == 0 && !s->is_shared) {
		pthread_rwlock_wrlock(&s->lock);
		rc = core_share(j->core, open.file);
		if (rc == 0) {
			pthread_mutex_lock(&s->mutex);
			s->dirty_usec = s->dirty_usec ? s->dirty_usec : clock_usec();
			s->own_end = shared_size_here(j, s); /* the first commit tells it */
			s->is_shared = true;
			s->epoch++;
			pthread_mutex_unlock(&s->mutex);
		}
		s->kept = rc != -EBUSY ? KEPT_NOT : core_is_kernels(j->core, open.file) ? KEPT_PRIVATE : KEPT_THROUGH;
		pthread_rwlock_unlock(&s->lock);
		core_release(j->core, open.file);
	}
	return rc == -EBUSY ? 0 : rc; /* what others write is carried here */
}

static void read_opener(struct peers_request *rq, struct opener *ret)
{
	const struct wire_msg *m = peers_msg(rq);

	*ret = (struct opener){ .node = peers_from(rq),
		.readers = (uint32_t)message_get(m, MESSAGE_SHARE_READERS),
		.writers = (uint32_t)message_get(m, MESSAGE_SHARE_WRITERS),
		.counted_ns = message_get(m, MESSAGE_SHARE_TIME) };
}

int registry_find(struct job *j, uint64_t ino, const struct wire_msg *m)
{
	struct hint *hint = malloc(sizeof(*hint));

	if (!hint)
		return -ENOMEM;
	hint_get(m, hint);
	int rc = core_find(j->core, ino, hint->dir, hint->path);
	free(hint);
	return rc;
}

/* A daemon that has gone meanwhile has been forgotten before, and nobody would end what it opens. */
static int take_opener(struct shared *s, struct peers_request *rq, const struct opener *o)
{
	pthread_mutex_lock(&s->mutex);
	int rc = peers_is_wanted(rq) ? set_opener(s, o) : -ECONNRESET;
	pthread_mutex_unlock(&s->mutex);
	return rc;
}

/* cut_lock is held. */
static int register_opener(struct job *j, struct shared *s, struct peers_request *rq, const struct opener *o)
{
	int rc = take_opener(s, rq, o);
	int kept = keep_anchor(j, s);
	rc = rc < 0 ? rc : kept;
	if (rc < 0 || o->writers == 0)
		return rc;
	bool was_shared = s->is_shared;
	rc = become_shared(j, s);
	pthread_mutex_lock(&s->mutex);
	bool untold = !was_shared || (s->resend && !s->parked); /* it would be missing for others */
	pthread_mutex_unlock(&s->mutex);
	if (rc == 0 && untold)
		rc = share_commit(j, s, false);
	rc = rc == -EHOSTDOWN ? 0 : rc; /* nobody sees what belongs there */
	if (rc == 0 && !was_shared && s->is_shared)
		rc = registry_tell(j, s);
	return rc;
}

/* was: what it had open before; what it is promised since then stays. Not of one that has gone meanwhile. cut_lock is held. */
static void undo_register(struct job *j, struct shared *s, const struct opener *was)
{
	struct opener again = { .node = was->node, .readers = was->readers, .writers = was->writers };

	pthread_mutex_lock(&s->mutex);
	if (find_opener(s, was->node))
		(void)set_opener(s, &again);
	pthread_mutex_unlock(&s->mutex);
	(void)keep_anchor(j, s);
}

static struct opener opener_of(struct shared *s, uint32_t node)
{
	pthread_mutex_lock(&s->mutex);
	const struct opener *o = find_opener(s, node);
	struct opener was = o ? *o : (struct opener){ .node = node };
	pthread_mutex_unlock(&s->mutex);
	return was;
}

static int do_register_at(struct job *j, struct shared *s, struct peers_request *rq)
{
	struct opener o;

	read_opener(rq, &o);
	pthread_mutex_lock(&s->cut_lock);
	struct opener was = opener_of(s, o.node);
	append_raise_end(s, registry_end_told(j, s, peers_msg(rq), MESSAGE_SHARE_END));
	int rc = register_opener(j, s, rq, &o);
	if (rc < 0)
		undo_register(j, s, &was);
	pthread_mutex_unlock(&s->cut_lock);
	return rc;
}

static bool is_bound(struct job *j, struct shared *s, struct peers_request *rq)
{
	return message_get(peers_msg(rq), MESSAGE_SHARE_WRITERS) > 0 && lease_must_tell(j, s, peers_from(rq));
}

/* Who closes a file may do so even if it is there no more. */
static void register_opens(struct job *j, struct peers_request *rq)
{
	const struct wire_msg *m = peers_msg(rq);
	uint64_t ino = message_get(m, MESSAGE_SHARE_INO);
	bool closes = !message_get(m, MESSAGE_SHARE_READERS) && !message_get(m, MESSAGE_SHARE_WRITERS);
	int rc = closes ? 0 : registry_find(j, ino, m);

	if (rc < 0) {
		peers_reply_status(rq, rc);
		return;
	}
	struct shared *s = shared_get(j, ino);
	rc = s ? do_register_at(j, s, rq) : -ENOMEM;
	if (!closes)
		core_forget(j->core, ino, 1);
	if (rc == 0 && !closes)
		reply_view(j, s, rq, is_bound(j, s, rq) ? VIEW_BOUND : 0);
	else
		peers_reply_status(rq, rc);
	shared_put(j, s);
}

/* From then on the file is known to be open. */
static void do_register(struct job *j, struct peers_request *rq)
{
	bool writes = message_get(peers_msg(rq), MESSAGE_SHARE_WRITERS);

	if (writes)
		quiet_begin_change(j);
	register_opens(j, rq);
	if (writes)
		quiet_end_change(j);
}

void registry_serve_register(struct job *j, struct peers_request *rq)
{
	workers_serve(j->share->drivers, do_register, rq);
}

/* ---- files that are gone */

void registry_gone(uint64_t ino, void *arg)
{
	struct job *j = arg;
	struct share *sh = j->share;

	pthread_mutex_lock(&sh->wake);
	if (array_room(&sh->gone, &sh->cap_gone, sh->num_gone, sizeof(*sh->gone)) == 0)
		sh->gone[sh->num_gone++] = ino; /* else as if we had died: commit.c */
	pthread_mutex_unlock(&sh->wake);
}

/* Still: the number of a backing file may have been given again. */
static bool is_gone(struct job *j, uint64_t ino)
{
	struct inode in;

	return state_inode(j->state, ino, &in) == -ENOENT;
}

/* Those that are still no more. */
static bool are_gone(struct job *j, struct wire_msg *m)
{
	struct wire_msg left = { 0 };
	struct buf list BUF_CLEANUP = { 0 };
	const uint8_t *bytes = NULL;
	size_t len = 0;

	(void)message_get_bytes(m, MESSAGE_SHARE_PIECES, 0, &bytes, &len);
	struct cursor c = cursor_make(bytes, len);
	for (size_t i = 0; i < len / sizeof(uint64_t); i++) {
		uint64_t ino = cursor_u64(&c);

		if (is_gone(j, ino))
			buf_u64(&list, ino);
	}
	message_init(&left, MESSAGE_SHARE_DROP);
	message_put_bytes(&left, MESSAGE_SHARE_PIECES, list.data, list.len);
	wire_msg_free(m);
	*m = left;
	return buf_ok(&list) && buf_ok(&m->body) && list.len > 0;
}

static const struct tell_kind gone_kind = { .outlives = true, .still_holds = are_gone };

/* What is lost on the way is found when our next daemon is there (commit.c). */
static void tell_gone(struct job *j, const uint64_t *inos, size_t num)
{
	struct buf list BUF_CLEANUP = { 0 };
	struct wire_msg m = { 0 };

	for (size_t i = 0; i < num; i++)
		if (is_gone(j, inos[i]))
			buf_u64(&list, inos[i]);
	if (!buf_ok(&list) || list.len == 0)
		return;
	message_init(&m, MESSAGE_SHARE_DROP);
	message_put_bytes(&m, MESSAGE_SHARE_PIECES, list.data, list.len);
	for (uint32_t node = 0; node < peers_count(j->peers); node++)
		job_tell(j, node, &m, &gone_kind);
	wire_msg_free(&m);
}

/* Should we lose power first, the files are back, and need what others have of them. */
void registry_tell_gone(struct job *j)
{
	struct share *sh = j->share;

	pthread_mutex_lock(&sh->wake);
	uint64_t *gone = sh->gone;
	size_t num = sh->num_gone;
	sh->gone = NULL;
	sh->num_gone = sh->cap_gone = 0;
	pthread_mutex_unlock(&sh->wake);
	if (num && store_sync(j->opt.store) == 0)
		for (size_t i = 0; i < num; i += GONE_BATCH)
			tell_gone(j, gone + i, num - i < GONE_BATCH ? num - i : GONE_BATCH);
	free(gone);
}

static void drop(struct job *j, uint64_t ino)
{
	struct record drop = { .type = RECORD_SHARE_DROP, .ino = ino, .stamp = UINT64_MAX };
	struct record free_layer = { .type = RECORD_FREE, .ino = ino };
	struct inode in;

	(void)store_commit(j->opt.store, &drop);
	if (state_inode(store_state(j->opt.store), ino, &in) == 0 && in.flags & INODE_FOREIGN)
		(void)store_commit(j->opt.store, &free_layer);
}

void registry_serve_drop(struct job *j, struct peers_request *rq)
{
	const uint8_t *bytes;
	size_t len = 0;

	if (!message_get_bytes(peers_msg(rq), MESSAGE_SHARE_PIECES, 0, &bytes, &len))
		len = 0;
	struct cursor c = cursor_make(bytes, len);
	for (size_t i = 0; i < len / sizeof(uint64_t); i++)
		drop(j, cursor_u64(&c));
	peers_reply_status(rq, 0);
}
