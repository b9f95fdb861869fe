/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * What this node has written to a shared file becomes everybody's. In this order, so that a crash in between loses nothing
 * and hides nothing of others:
 *
 *   stamp from the home; list of what is not committed; payload where other processes can read it; COMMITTED into our own
 *   journal (from here on these bytes have this stamp, however often they are told), durable if asked for; all
 *   domain homes; the home, which tells the openers.
 *
 * Who fails behind the record tells everything again, under the stamps that are noted: the domain homes are not changed by
 * what they have already.
 *
 * The next node is told last, as a witness (send.c).
 */
#include "fs/job/carry.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>

#include "format/base/array.h"
#include "format/base/clock.h"
#include "fs/job/send.h"

#define BATCH          256
#define FIRST_LIST_CAP 64
#define KNOWN_TRIES    4

/* ---- what there is to tell */

static int list_add(struct layer_list *l, const struct layer_extent *e)
{
	if (l->num == l->cap) {
		size_t cap = l->cap ? l->cap * 2 : FIRST_LIST_CAP;
		struct layer_extent *grown = reallocarray(l->at, cap, sizeof(*grown));

		if (!grown)
			return -ENOMEM;
		l->at = grown;
		l->cap = cap;
	}
	l->at[l->num++] = *e;
	return 0;
}

/* Also what is written while it is listed. */
static int list_uncommitted(struct job *j, uint64_t ino, struct layer_list *ret)
{
	struct extent batch[BATCH];
	size_t num;
	uint64_t off = 0;
	int rc = 0;

	ret->num = 0;
	while (rc == 0 && off != UINT64_MAX) {
		rc = state_uncommitted(store_state(j->opt.store), ino, off, batch, BATCH, &num, &off);
		for (size_t i = 0; rc == 0 && i < num; i++)
			if (batch[i].kind != EXTENT_BACKING)
				rc = list_add(ret, &(struct layer_extent){ .ext = batch[i] });
	}
	return rc;
}

static int by_stamp(const void *a, const void *b)
{
	const struct layer_extent *x = a, *y = b;

	if (x->stamp != y->stamp)
		return x->stamp < y->stamp ? -1 : 1;
	return x->ext.off < y->ext.off ? -1 : x->ext.off > y->ext.off;
}

/* What was committed before, by stamps. */
static int list_committed(struct job *j, uint64_t ino, struct layer_list *ret)
{
	struct layer_extent batch[BATCH];
	struct inode in;
	size_t num;
	int rc = state_inode(store_state(j->opt.store), ino, &in);

	for (uint64_t off = 0, next; rc == 0 && off < in.size; off = next) {
		rc = state_layer(store_state(j->opt.store), ino, off, in.size - off, batch, BATCH, &num, &next);
		for (size_t i = 0; rc == 0 && i < num; i++)
			if (batch[i].stamp)
				rc = list_add(ret, &batch[i]);
	}
	if (rc == 0 && ret->num)
		qsort(ret->at, ret->num, sizeof(*ret->at), by_stamp);
	return rc;
}

/* ---- the home */

static int ask_stamp(struct job *j, struct shared *s, uint64_t *ret)
{
	struct wire_msg m = { 0 }, reply = { 0 };

	message_init(&m, MESSAGE_SHARE_STAMP);
	message_put(&m, MESSAGE_SHARE_INO, s->ino);
	int rc = share_call(j, s->home, &m, &reply);
	if (rc == 0) {
		*ret = message_get(&reply, MESSAGE_SHARE_AT_STAMP);
		rc = *ret ? 0 : -EBADMSG;
	}
	wire_msg_free(&m);
	wire_msg_free(&reply);
	return rc;
}

/* When the newest of it was written, as exactly as it is known. Writes that left nothing to be told: now. */
static int64_t time_of_newest(struct job *j, uint64_t ino, const struct layer_list *l)
{
	uint64_t newest_usec = 0;
	struct inode in;

	for (size_t i = 0; i < l->num; i++)
		if (l->at[i].ext.time_usec > newest_usec)
			newest_usec = l->at[i].ext.time_usec;
	if (newest_usec == 0)
		return clock_now(state_clock(j->state));
	if (state_inode(j->state, ino, &in) == 0 && (uint64_t)in.mtime_ns / 1000 == newest_usec)
		return in.mtime_ns;
	return (int64_t)newest_usec * 1000;
}

static int tell_home(struct job *j, struct shared *s, uint64_t stamp, uint64_t size, int64_t mtime_ns)
{
	struct wire_msg m = { 0 }, reply = { 0 };
	struct view *v = malloc(sizeof(*v));

	if (!v)
		return -ENOMEM;
	message_init(&m, MESSAGE_SHARE_COMMITTED);
	message_put(&m, MESSAGE_SHARE_INO, s->ino);
	message_put(&m, MESSAGE_SHARE_AT_STAMP, stamp);
	message_put(&m, MESSAGE_SHARE_SIZE, size);
	message_put(&m, MESSAGE_SHARE_MTIME, (uint64_t)mtime_ns);
	uint64_t asked_usec = clock_usec();
	int rc = share_call(j, s->home, &m, &reply);
	if (rc == 0) {
		view_get(&reply, v);
		shared_apply(s, v, asked_usec);
		shared_note_place(j, v);
	}
	wire_msg_free(&m);
	wire_msg_free(&reply);
	free(v);
	return rc;
}

/* ---- a commit */

struct commit {
	uint64_t stamp, upto, end;
	uint64_t cuts; /* of our layer, when it was listed */
	struct commit_bases bases;
	bool resend, fresh; /* what was committed before; what was not */
	uint64_t resends;
	bool unknown; /* to the home, perhaps for good */
	bool again;   /* resend later: it is too early to know whether the layer is of use */
	bool gone;    /* a node that was given up lacks some of it */
	struct layer_list list;
};

/* *ret_cut: our layer has been cut since it was listed, and nothing is noted. */
static int note_committed(struct job *j, struct shared *s, struct commit *c, bool *ret_cut)
{
	struct record rec = { .type = RECORD_COMMITTED, .ino = s->ino, .upto = c->upto, .stamp = c->stamp };
	int rc = segment_settle(store_segments(j->opt.store));

	pthread_mutex_lock(&s->layer_lock);
	*ret_cut = c->cuts != shared_cuts(s);
	if (rc == 0 && !*ret_cut && c->list.num)
		rc = store_commit(j->opt.store, &rec);
	pthread_mutex_unlock(&s->layer_lock);
	return rc;
}

static int resend(struct job *j, struct shared *s)
{
	struct layer_list l = { 0 };
	int rc = list_committed(j, s->ino, &l);

	if (rc == 0)
		rc = send_list(j, s, &l, &(struct commit_bases){ 0 });
	free(l.at);
	return rc == -ENOENT ? 0 : rc;
}

static int resend_witness(struct job *j, struct shared *s, bool durable)
{
	struct layer_list l = { 0 };
	int rc = list_committed(j, s->ino, &l);

	if (rc == 0)
		send_witness(j, s, &l, durable);
	free(l.at);
	return rc == -ENOENT ? 0 : rc;
}

/* A home of a domain that was given up holds up nobody: it is told when it is back (shared.parked). */
static int but_gone(struct commit *c, int rc)
{
	c->gone |= rc == -EHOSTDOWN;
	return rc == -EHOSTDOWN ? 0 : rc;
}

static int tell_commit(struct job *j, struct shared *s, struct commit *c)
{
	int rc = but_gone(c, send_list(j, s, &c->list, &c->bases));

	return rc < 0 ? rc : tell_home(j, s, c->stamp, c->end, time_of_newest(j, s->ino, &c->list));
}

/*
 * Who waits for the witness does not wait for it behind the others: that it knows of a commit that is noted here and told to nobody yet does no
 * harm. Who does not wait for it does not wait behind what it is sent, either.
 */
static int tell_durably(struct job *j, struct shared *s, struct commit *c)
{
	struct sending witness;
	int sent = witness_begin(&witness, j, s, &c->list, true);
	int rc = tell_commit(j, s, c);

	if (sent == 0)
		sent = witness_end(&witness);
	if (rc == 0 && sent == -ECONNRESET)
		send_witness(j, s, &c->list, true);
	return rc;
}

/* By a cut that the stamp has waited for: with this stamp the home would take the end for one from behind the cut. */
static void lower_end(struct shared *s, struct commit *c)
{
	pthread_mutex_lock(&s->mutex);
	if (c->end > s->own_end)
		c->end = s->own_end;
	pthread_mutex_unlock(&s->mutex);
}

/*
 * Listed before the stamp is given: a cut goes by stamps, so what has one from before it must have been written before it; and what one in
 * between has cut off is not to come back. What is written while it is listed may have taken the place of what was to be committed: it goes along,
 * and is committed once more, since the record says upto.
 */
static int list_and_stamp(struct job *j, struct shared *s, struct commit *c)
{
	c->cuts = shared_cuts(s);
	c->upto = state_seq(store_state(j->opt.store));
	int rc = list_uncommitted(j, s->ino, &c->list);
	bases_listed(s, &c->bases);
	rc = rc < 0 ? rc : ask_stamp(j, s, &c->stamp);
	lower_end(s, c);
	return rc;
}

static int commit_fresh(struct job *j, struct shared *s, struct commit *c, bool durable)
{
	bool cut = false;
	int rc;

	do {
		rc = list_and_stamp(j, s, c);
		rc = rc < 0 ? rc : note_committed(j, s, c, &cut);
	} while (rc == 0 && cut);
	if (rc == 0 && durable)
		rc = store_sync(j->opt.store);
	for (size_t i = 0; i < c->list.num; i++)
		c->list.at[i].stamp = c->stamp;
	if (rc == 0)
		rc = durable ? tell_durably(j, s, c) : tell_commit(j, s, c);
	if (rc == 0 && !durable)
		send_witness(j, s, &c->list, false);
	return rc;
}

/*
 * Of a layer whose file its home does not have: a daemon that died there may not have come to tell that it is gone (registry.c). It goes
 * when nobody has it open any more. But a home that has lost power may not know of it until all is settled, and says so in its time.
 */
static int judge_unknown(struct job *j, struct shared *s, struct commit *c)
{
	pthread_mutex_lock(&s->mutex);
	bool used = s->readers + s->writers > 0;
	s->unknown = used;
	c->unknown = true;
	pthread_mutex_unlock(&s->mutex);
	if (used)
		return 0;
	c->again = !power_is_settled(j);
	return c->again ? 0 : -ESTALE;
}

/* A daemon may have died behind noting a commit, before it told how long the file is by it. -ESTALE: it is no more. */
static int retell_home(struct job *j, struct shared *s, struct commit *c)
{
	struct layer_list l = { 0 };
	uint64_t end = 0;
	int rc = list_committed(j, s->ino, &l);

	for (size_t i = 0; i < l.num; i++)
		end = l.at[i].ext.off + l.at[i].ext.len > end ? l.at[i].ext.off + l.at[i].ext.len : end;
	if (rc == 0 && l.num)
		rc = tell_home(j, s, l.at[l.num - 1].stamp, end, time_of_newest(j, s->ino, &l));
	free(l.at);
	return rc == -ENOENT ? 0 : rc == -ESTALE ? judge_unknown(j, s, c) : rc;
}

static int run(struct job *j, struct shared *s, struct commit *c, bool durable)
{
	int rc = c->resend ? but_gone(c, resend(j, s)) : 0;

	if (rc == 0 && c->resend)
		rc = retell_home(j, s, c);
	if (rc == 0 && c->resend &&
		!c->unknown) /* nobody may wait for that, so it would come behind the end of the layer */
		rc = resend_witness(j, s, durable);
	return rc == 0 && c->fresh ? commit_fresh(j, s, c, durable) : rc;
}

/* The layer of a file that is no more went meanwhile (registry.c): what was written to it last, a mapping's pages perhaps, nobody wants. */
static bool is_dropped(struct job *j, const struct shared *s)
{
	struct inode in;

	return state_inode(store_state(j->opt.store), s->ino, &in) == -ENOENT;
}

/* False: there is nothing to tell. */
static bool begin(struct job *j, struct shared *s, struct commit *c, bool fresh)
{
	pthread_mutex_lock(&s->mutex);
	c->resend = s->resend && !s->parked;
	c->gone = s->resend && s->parked;
	c->resends = s->resends;
	c->fresh = fresh && s->dirty_usec;
	if (c->fresh) {
		s->telling_usec = s->dirty_usec;
		s->dirty_usec = 0;
		bases_begin(s, &c->bases);
		c->end = s->own_end;
	}
	pthread_mutex_unlock(&s->mutex);
	c->bases.begun = state_seq(store_state(j->opt.store));
	return c->resend || c->fresh;
}

static void end(struct shared *s, const struct commit *c, int rc)
{
	pthread_mutex_lock(&s->mutex);
	if (rc < 0 && c->fresh)
		bases_restore(s, &c->bases);
	if (rc < 0 && c->fresh && (!s->dirty_usec || s->dirty_usec > s->telling_usec))
		s->dirty_usec = s->telling_usec;
	bool found = s->resends != c->resends; /* meanwhile, that it must be told again */
	if (rc < 0 || c->again || c->gone)
		s->resend = true;
	else if (!found)
		s->resend = false;
	if (!found)
		s->parked = !c->again && (rc == -EHOSTDOWN || (rc == 0 && c->gone));
	s->left = s->left && s->resend && !s->parked;
	if (rc == 0 && c->fresh && s->own_end <= c->end)
		s->own_end = 0; /* the home knows of it now */
	s->telling_usec = 0;
	pthread_mutex_unlock(&s->mutex);
}

/* All files are looked at only if this one was the oldest, or is now. Of two that end at once each may find that it was not: once a second. */
static void update_hold(struct job *j, struct shared *s, uint64_t before)
{
	struct share *sh = j->share;

	sh->hold_is_old = true;
	if (before <= sh->hold_usec || shared_oldest(s) < sh->hold_usec)
		share_update_hold(j);
}

void commit_serve_forget(struct job *j, struct peers_request *rq)
{
	struct record rec = {
		.type = RECORD_SHARE_LOST, .ino = message_get(peers_msg(rq), MESSAGE_SHARE_INO), .node = peers_from(rq)
	};

	peers_reply_status(rq, store_commit(j->opt.store, &rec));
}

/* Numbers of backing files may be given again: a new layer's places are to stay. */
static bool is_forgotten(struct job *j, struct wire_msg *m)
{
	struct inode in;

	return state_inode(j->state, message_get(m, MESSAGE_SHARE_INO), &in) == -ENOENT;
}

static const struct tell_kind forgotten_kind = { .outlives = true, .still_holds = is_forgotten };

static void tell_forgotten(struct job *j, uint64_t ino)
{
	struct wire_msg m = { 0 };

	message_init(&m, MESSAGE_SHARE_FORGET);
	message_put(&m, MESSAGE_SHARE_INO, ino);
	for (uint32_t node = 0; node < peers_count(j->peers); node++)
		job_tell(j, node, &m, &forgotten_kind);
	wire_msg_free(&m);
}

/* The file is no more, so its layer is of no use; nor are the places in it that maps have, some of them just told again. */
static void drop_layer(struct job *j, struct shared *s)
{
	struct record rec = { .type = RECORD_FREE, .ino = s->ino };
	struct inode in;

	if (state_inode(store_state(j->opt.store), s->ino, &in) == 0 && in.flags & INODE_FOREIGN &&
		store_commit(j->opt.store, &rec) == 0) {
		s->losses++;
		tell_forgotten(j, s->ino);
	}
}

/*
 * The home does not know the file. One that has lost power may not know it yet: it is told again, and finds what is in the backing directory by its
 * path. Else what was written goes with the file. True: it has.
 */
static bool lose_layer(struct job *j, struct shared *s, struct commit *c)
{
	if (c->fresh && !power_is_settled(j))
		return false;
	drop_layer(j, s);
	s->losses += c->fresh;
	c->gone = false;
	return true;
}

/* commit_lock is held. What has been told need not be on the home's device; nor do we know what was carried while it was open here before. */
static int commit_carried(struct job *j, struct shared *s, bool durable)
{
	bool untold = atomic_exchange(&s->has_carried, false);

	if (!untold && !(durable && carry_is_needed(s)))
		return 0;
	int rc = carry_sync(j, s, untold, durable);
	if (rc < 0 && untold)
		s->has_carried = true;
	return rc == -ESTALE ? 0 : rc;
}

/* *ret_kept: the home does not know the file, and may know it again. */
static int commit(struct job *j, struct shared *s, bool fresh, bool durable, bool *ret_kept)
{
	struct commit c = { 0 };

	*ret_kept = false;
	pthread_mutex_lock(&s->commit_lock);
	int rc = commit_carried(j, s, durable);
	if (rc == 0 && begin(j, s, &c, fresh)) {
		rc = run(j, s, &c, durable);
		if (rc == -ENOENT && is_dropped(j, s))
			rc = -ESTALE;
		if (rc == 0 && durable && !c.fresh)
			rc = store_sync(j->opt.store);
		bool lost = rc == -ESTALE && lose_layer(j, s, &c);
		*ret_kept = rc == -ESTALE && !lost;
		uint64_t oldest = shared_oldest(s);
		end(s, &c, lost ? 0 : rc);
		update_hold(j, s, oldest);
		if (lost)
			rc = durable && c.fresh ? -ESTALE : 0;
	} else if (rc == 0 && durable) {
		rc = store_sync(j->opt.store);
	}
	if (rc == 0 && c.gone)
		rc = -EHOSTDOWN;
	pthread_mutex_unlock(&s->commit_lock);
	free(c.list.at);
	return rc;
}

int share_commit(struct job *j, struct shared *s, bool durable)
{
	bool kept;

	return commit(j, s, true, durable, &kept);
}

static bool has_untold(struct shared *s)
{
	pthread_mutex_lock(&s->mutex);
	bool has = s->dirty_usec || s->resend;
	pthread_mutex_unlock(&s->mutex);
	return has;
}

/*
 * A daemon of the home that has lost power may not know the file, or that others write to it: then what is committed there is nowhere looked for.
 * That may also be so of one that comes meanwhile.
 */
int share_commit_known(struct job *j, struct shared *s, bool durable)
{
	bool untold = has_untold(s), again = untold && shared_is_unregistered(s), kept;
	int rc, tries = 0;

	do {
		int known = again ? shared_register(j, s) : 0;
		if (known < 0 && known != -ESTALE && known != -ENOENT)
			return known;
		rc = commit(j, s, true, durable, &kept);
		again = known == 0 && (kept || (rc == 0 && untold && shared_is_unregistered(s)));
	} while (again && ++tries < KNOWN_TRIES);
	return rc;
}

int share_retell(struct job *j, struct shared *s)
{
	bool kept;

	return commit(j, s, false, false, &kept);
}

void shared_resend(struct shared *s)
{
	s->left |= s->parked;
	s->parked = false;
	s->resend = true;
	s->resends++;
}

void shared_mark_dirty(struct job *j, struct shared *s, uint64_t since_usec, uint64_t end)
{
	bases_note(j, s);
	pthread_mutex_lock(&s->mutex);
	bool first = !s->dirty_usec || s->dirty_usec > since_usec;
	if (first)
		s->dirty_usec = since_usec;
	if (s->own_end < end)
		s->own_end = end;
	pthread_mutex_unlock(&s->mutex);
	if (first && since_usec < j->share->hold_usec)
		share_update_hold(j);
}

/* ---- all layers again */

struct layers {         /* of this store */
	uint64_t *inos; /* owned */
	size_t num, cap;
};

static int note_layer(const struct inode *in, void *arg)
{
	struct layers *l = arg;

	if (!(in->flags & (INODE_SHARED | INODE_FOREIGN)))
		return 0;
	if (array_room(&l->inos, &l->cap, l->num, sizeof(*l->inos)) < 0)
		return -ENOMEM;
	l->inos[l->num++] = in->ino;
	return 0;
}

uint64_t commit_newest_stamp(struct job *j, uint64_t ino)
{
	struct commit_point last;

	return state_commit_by(store_state(j->opt.store), ino, UINT64_MAX, &last, NULL) == 0 ? last.stamp : 0;
}

/* The home may have forgotten that others write it, and how far, or the file. */
static int rejoin(struct job *j, struct shared *s)
{
	uint64_t stamp = commit_newest_stamp(j, s->ino);
	struct core_open_reply reply;
	struct job_file *file;
	struct inode in;
	int rc = state_inode(store_state(j->opt.store), s->ino, &in);

	if (rc < 0 || !(in.flags & INODE_FOREIGN))
		return 0;
	rc = job_open(j, s->ino, O_RDWR, &file, &reply);
	if (rc == -ESTALE || rc == -ENOENT)
		drop_layer(j, s);
	if (rc < 0)
		return rc == -ESTALE || rc == -ENOENT ? 0 : rc;
	rc = stamp ? tell_home(j, s, stamp, in.size, in.mtime_ns) : 0;
	job_release(j, file);
	return rc;
}

int commit_tell_all(struct job *j, uint32_t home)
{
	struct layers l = { 0 };
	int first = state_each_inode(store_state(j->opt.store), note_layer, &l);

	for (size_t i = 0; i < l.num; i++) {
		struct shared *s = shared_get(j, l.inos[i]);
		int rc = s ? resend(j, s) : -ENOMEM;

		if ((rc == 0 || rc == -EHOSTDOWN) && s->home == home && !s->at_home)
			rc = rejoin(j, s);
		if (rc == 0) /* behind that: not of a layer that has gone */
			rc = resend_witness(j, s, false);
		first = first < 0 && first != -EHOSTDOWN ? first : rc;
		shared_put(j, s);
	}
	free(l.inos);
	return first;
}

/* ---- when */

static int commit_home_alone(struct job *j, struct shared *s)
{
	return registry_has_openers(s) ? registry_tell(j, s) : 0;
}

int share_show(struct job *j, struct shared *s)
{
	int rc = shared_is_home(j, s) && !s->is_shared ? commit_home_alone(j, s) : share_commit_known(j, s, false);

	return rc == -ESTALE ? 0
			     : rc; /* it is kept, and told when the home knows the file again, or that it has gone */
}

int share_flush(struct job *j, struct job_file *file)
{
	if ((file->flags & O_ACCMODE) == O_RDONLY)
		return 0;
	sieve_forget(file);
	return share_show(j, file->shared);
}

/* Elsewhere than at home, which has the name, and how far the file reaches. */
static int sync_away(struct job *j, struct shared *s, uint64_t losses)
{
	uint64_t carries = s->carries;
	int rc = share_commit_known(j, s, true);

	rc = rc ? rc : power_sync(j, s->home);
	rc = rc ? rc : carry_settle(j, s, carries);
	return rc ? rc : s->losses == losses ? 0 : -ESTALE;
}

int share_sync(struct job *j, struct shared *s, uint64_t losses)
{
	return shared_is_home(j, s) ? share_commit(j, s, true) : sync_away(j, s, losses);
}

int share_fsync(struct job *j, struct job_file *file, bool data_only)
{
	struct shared *s = file->shared;

	sieve_forget(file);
	if (s->is_shared || !shared_is_home(j, s))
		return share_sync(j, s, file->losses);
	int rc = core_fsync(j->core, s->ino, file->local, data_only);
	return rc ? rc : commit_home_alone(j, s);
}

static void commit_one(struct job *j, struct shared *s, void *arg)
{
	int *first = arg, rc = share_commit(j, s, false);

	*first = *first ? *first : rc;
}

int share_commit_all(struct job *j)
{
	int rc = power_wait_cuts(j);

	if (rc == 0 && !j->share->swept)
		rc = sweep_all(j);
	if (rc < 0)
		return rc;
	shared_each(j, commit_one, &rc);
	return rc;
}
