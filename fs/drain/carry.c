/* SPDX-License-Identifier: GPL-3.0-or-later */
/* The parts of a job's drain as this node does them: by an agent of its own, or, what needs none, here. */
#include "fs/drain/carry.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "format/base/text.h"
#include "fs/drain/fetch.h"
#include "fs/drain/idle.h"
#include "fs/drain/job_manifest.h"
#include "fs/drain/ready.h"
#include "fs/drain/settle.h"

struct carry {
	struct carry_options opt;
	struct fetch *fetch;           /* owned */
	struct drain *carrier;         /* owned */
	struct collective *collective; /* owned */
	struct job_manifest *manifest; /* owned */
	_Atomic(struct drain *) asker; /* borrowed */
	uint64_t since; /* the first inode number of a new file here that is newer than what was asked for */
	_Atomic(uint64_t) time_usec; /* of the session that the running part belongs to */
	uint64_t removed;            /* the last session of which we have done part remove whole; UINT64_MAX: none */
};

/* ---- what needs no agent */

static void commit_all(struct carry *c, enum cistern_exit *ret_exit, char text[CISTERN_ERROR_TEXT_BYTES])
{
	int r = job_syncfs(c->opt.job);

	*ret_exit = r ? CISTERN_EXIT_INCOMPLETE : CISTERN_EXIT_OK;
	if (r)
		snprintf(text, CISTERN_ERROR_TEXT_BYTES,
			"what was written to shared files cannot be told to the other nodes: %s", strerror(-r));
	/* The first part's snapshot would, with the other nodes waiting. Should it fail, that snapshot tells. */
	(void)state_checkpoint(store_state(c->opt.drain.store));
}

/*
 * Durable, so that each store by itself knows what is carried (docs/design/power-loss.md): once for all files.
 */
static void drop_all(struct carry *c, const struct wire_shared_list *list, enum cistern_exit *ret_exit,
	char text[CISTERN_ERROR_TEXT_BYTES])
{
	int r = 0;

	for (size_t i = 0; r == 0 && i < list->num; i++) {
		struct drained d = { .ino = list->at[i].ino, .stamp = list->at[i].stamp, .time_usec = c->time_usec };

		r = job_drop_drained(c->opt.job, &d);
	}
	if (r == 0 && list->num > 0)
		r = store_sync(c->opt.drain.store);
	*ret_exit = r ? CISTERN_EXIT_INCOMPLETE : CISTERN_EXIT_OK;
	if (r)
		snprintf(text, CISTERN_ERROR_TEXT_BYTES, "drained bytes of shared files cannot be given back: %s",
			strerror(-r));
}

/* ---- directories */

#define DIRS_AT_ONCE 4096

/* Copies of directories here that files which came and went have left their marks on. */
struct marked {
	struct carry *c;
	uint64_t tree_stamp; /* not newer than what the copies say */
	struct record *at;   /* owned: that they are drained */
	size_t num;
};

/* They are clean when node 0 has noted their times. */
static int hand_over(struct marked *m)
{
	struct buf bytes BUF_CLEANUP = { 0 };
	int r;

	for (size_t i = 0; i < m->num; i++)
		job_put_dir_time(&bytes, m->at[i].ino, m->at[i].mtime_ns, m->tree_stamp);
	r = m->num == 0 ? 0 : !buf_ok(&bytes) ? -ENOMEM : collective_tell_dirs(m->c->collective, bytes.data, bytes.len);
	for (size_t i = 0; r == 0 && i < m->num; i++) {
		r = store_commit(m->c->opt.drain.store, &m->at[i]);
		r = r == -ENOENT ? 0 : r;
	}
	m->num = 0;
	return r;
}

static int mark_dir(const struct inode *in, void *arg)
{
	struct marked *m = arg;

	if (!S_ISDIR(in->mode) || in->flags & INODE_NEW || !(in->flags & (INODE_DIRTY_META | INODE_DIRTY_XATTR)))
		return 0;
	m->at[m->num++] = (struct record){ .type = RECORD_DRAINED,
		.flags = RECORD_F_META_ONLY,
		.ino = in->ino,
		.gen = in->gen,
		.upto = in->version,
		.size = in->size,
		.mtime_ns = in->mtime_ns };
	return m->num == DIRS_AT_ONCE ? hand_over(m) : 0;
}

/* Node 0 alone carries the attributes of directories, from its own copies, to which the times of the others' are added. */
static void clean_dirs(struct carry *c, enum cistern_exit *ret_exit, char text[CISTERN_ERROR_TEXT_BYTES])
{
	struct state *st = store_state(c->opt.drain.store);
	struct marked m = { .c = c };
	int r;

	if (peers_self(c->opt.peers) == 0)
		return;
	m.tree_stamp = state_tree_stamp(st);
	m.at = calloc(DIRS_AT_ONCE, sizeof(*m.at));
	r = m.at ? state_each_inode(st, mark_dir, &m) : -ENOMEM;
	if (r == 0)
		r = hand_over(&m);
	free(m.at);
	if (r < 0 && *ret_exit == CISTERN_EXIT_OK) {
		*ret_exit = CISTERN_EXIT_INCOMPLETE;
		snprintf(text, CISTERN_ERROR_TEXT_BYTES, "the store's directories cannot be marked as drained: %s",
			strerror(-r));
	}
}

static void take_dirs(struct peers_request *rq, void *arg)
{
	struct carry *c = arg;

	job_take_dir_times(c->opt.job, rq);
}

/* ---- the parts */

static bool is_told(unsigned int part, const struct wire_shared *f)
{
	if (part == WIRE_PART_BEGIN || part == WIRE_PART_OFFER)
		return true;
	return part == WIRE_PART_FILES ? f->published : f->told;
}

/* An agent that came to its end has spoken of all of them. */
static void fail_untold(unsigned int part, struct wire_shared_list *list)
{
	for (size_t i = 0; i < list->num; i++)
		if (wire_shared_has_part(&list->at[i], (enum wire_part)part) && !list->at[i].told) {
			list->at[i].told = list->at[i].failed = true;
			list->at[i].failed_errno = 0;
			list->at[i].written = list->at[i].extents = list->at[i].crc_sum = 0;
		}
}

static int send_lines(const void *lines, size_t len, void *arg)
{
	struct carry *c = arg;

	return collective_tell_lines(c->collective, lines, len);
}

/* What the part's agents say of files is in the job's manifest before the part has ended. */
static void send_manifest(struct carry *c, struct collective_done *ret)
{
	int r = job_manifest_send(c->manifest, send_lines, c);

	if (r == 0 || ret->result != CISTERN_EXIT_OK)
		return;
	ret->result = CISTERN_EXIT_INCOMPLETE;
	snprintf(ret->text, sizeof(ret->text), "what became of its files cannot be told to node 0: %s", strerror(-r));
}

struct complaint { /* the first of a list of errors */
	char *text;
	uint64_t num;
};

static void take_complaint(const char *path, int code, const char *text, void *arg)
{
	char why[CISTERN_ERROR_TEXT_BYTES / 4], where[CISTERN_ERROR_TEXT_BYTES / 4];
	struct complaint *k = arg;

	(void)code;
	if (k->num++ == 0)
		snprintf(k->text, CISTERN_ERROR_TEXT_BYTES, "%s: %s", text_fit_end(where, sizeof(where), path),
			text_fit(why, sizeof(why), text));
}

/* For node 0 and who asked there: why this node could not carry all. */
static void describe(struct carry *c, struct collective_done *ret)
{
	struct complaint k = { .text = ret->text };
	size_t len;

	if (ret->result == CISTERN_EXIT_OK || ret->text[0])
		return;
	drain_each_error(c->carrier, take_complaint, &k);
	len = strlen(ret->text);
	if (k.num > 1)
		snprintf(ret->text + len, sizeof(ret->text) - len, "; and %" PRIu64 " more", k.num - 1);
}

/* What each node does of files of many. */
static bool is_of_shared(unsigned int part)
{
	return part == WIRE_PART_DEAL || part == WIRE_PART_BLOBS || part == WIRE_PART_DATA || part == WIRE_PART_HEAD;
}

/*
 * Other nodes drop their layers of what is published here, so that is not to be forgotten with the power. Else it counts as
 * unpublished, and is carried again: harmless. Likewise of what sessions before have carried, which part begin says.
 */
static int keep_published(struct carry *c, unsigned int part, const struct wire_shared_list *list)
{
	bool any = false;

	for (size_t i = 0; i < list->num; i++)
		any |= (part == WIRE_PART_FILES && list->at[i].published) ||
		       (part == WIRE_PART_BEGIN && list->at[i].drained_stamp);
	return any ? store_sync(c->opt.drain.store) : 0;
}

/*
 * A node may have missed part drop of an earlier session, or that part was stopped. What its map still names is in segments that may have been given
 * back since.
 */
static int forget_drained(struct carry *c, const struct wire_shared_list *list)
{
	int r = 0;

	for (size_t i = 0; r == 0 && i < list->num; i++) {
		const struct wire_shared *f = &list->at[i];

		r = job_know_drained(c->opt.job,
			&(struct drained){ .ino = f->ino, .stamp = f->drained_stamp, .time_usec = f->drained_usec });
	}
	return r;
}

static void fail_part(struct collective_done *ret, int r)
{
	ret->result = CISTERN_EXIT_FAILED;
	snprintf(ret->text, sizeof(ret->text), "the part could not be carried out: %s", strerror(-r));
}

/* In the session before, or in one that we have not been at, files may have lost their names to others' without our removing what is removed. */
static bool is_unsure(const struct carry *c, const struct collective_work *w)
{
	return w->part == WIRE_PART_REMOVE && w->session != c->removed + 1;
}

static void run_part(struct carry *c, const struct collective_work *w, struct collective_done *ret)
{
	char name[DRAIN_NODE_NAME_MAX];
	struct drain_part part = { .kind = w->kind,
		.part = (enum wire_part)w->part,
		.cautious = w->part == WIRE_PART_REMOVE ? is_unsure(c, w) : w->cautious,
		.last = w->last,
		.haste = w->haste,
		.since = c->since,
		.time_usec = c->time_usec,
		.paths = w->paths,
		.num_paths = w->num_paths,
		.shared = w->part == WIRE_PART_BEGIN || w->part == WIRE_PART_OFFER ? NULL : w->shared,
		.node_name = peers_name(c->opt.peers, peers_self(c->opt.peers), name, sizeof(name)) };
	struct wire_shared_list list = { 0 };
	int r = is_of_shared(w->part) ? forget_drained(c, w->shared) : 0;
	uint64_t id = r == 0 ? drain_request_part(c->carrier, &part) : 0;

	if (r == 0)
		r = id ? drain_wait(c->carrier, id, 0, &ret->result, ret->text) : -ENOMEM;
	if (r < 0) {
		fail_part(ret, r);
		return;
	}
	describe(c, ret);
	ret->totals = drain_take_totals(c->carrier);
	if (is_of_shared(w->part))
		ret->totals.files = 0; /* counted when they have their names */
	drain_take_shared(c->carrier, &list);
	fail_untold(w->part, &list);
	r = keep_published(c, w->part, &list);
	for (size_t i = 0; i < list.num; i++)
		if (is_told(w->part, &list.at[i]))
			r = r ? r : wire_shared_add(&ret->shared, &list.at[i]);
	wire_shared_free(&list);
	if (r < 0 && w->part != WIRE_PART_FILES)
		ret->result = CISTERN_EXIT_FAILED;
	if (!w->alone) /* else node 0 hears of it in the next session */
		send_manifest(c, ret);
}

/* One that has nothing to do here: what else comes with it. */
static void pass_part(struct carry *c, const struct collective_work *w, struct collective_done *ret)
{
	ret->result = CISTERN_EXIT_OK;
	if (w->part == WIRE_PART_BEGIN)
		drain_forget_errors(c->carrier, w->paths, w->num_paths);
	send_manifest(c, ret); /* what could not be told before */
}

/* Files of many are in nobody's session, and the errors of the session before are of no interest any more. */
static void work_alone(struct carry *c, const struct collective_work *w, struct collective_done *ret)
{
	c->since = state_new_ino(store_state(c->opt.drain.store));
	drain_forget_errors(c->carrier, w->paths, w->num_paths);
	if (idle_part(c->opt.drain.store, WIRE_PART_FILES))
		ret->result = CISTERN_EXIT_OK;
	else
		run_part(c, w, ret);
}

static void work(const struct collective_work *w, struct collective_done *ret, void *arg)
{
	struct carry *c = arg;

	c->time_usec = w->time_usec;
	if (w->alone) {
		work_alone(c, w, ret);
		return;
	}
	if (w->part == COLLECTIVE_COMMIT && !w->again)
		c->since = state_new_ino(store_state(c->opt.drain.store));
	if (w->part == COLLECTIVE_COMMIT)
		commit_all(c, &ret->result, ret->text);
	else if (w->part == COLLECTIVE_DROP)
		drop_all(c, w->shared, &ret->result, ret->text);
	else if ((w->part == WIRE_PART_OFFER || w->part == WIRE_PART_CONVERT) &&
		 !settle_wants_convert(store_path(c->opt.drain.store)))
		ret->result = CISTERN_EXIT_OK; /* no file has asked for it */
	else if (is_of_shared(w->part) && w->shared->num == 0)
		ret->result = CISTERN_EXIT_OK;
	else if ((w->part != WIRE_PART_FILES || w->shared->num == 0) &&
		 idle_part(c->opt.drain.store, (enum wire_part)w->part))
		pass_part(c, w, ret);
	else
		run_part(c, w, ret);
	if (w->part == WIRE_PART_REMOVE && ret->result == CISTERN_EXIT_OK)
		c->removed = w->session;
	if (w->part == WIRE_PART_REMOVE)
		clean_dirs(c, &ret->result, ret->text);
}

static uint64_t mark(void *arg)
{
	return job_manifest_mark(((struct carry *)arg)->manifest);
}

static int append(const void *lines, size_t len, void *arg)
{
	return job_manifest_append(((struct carry *)arg)->manifest, lines, len);
}

static int summary(const struct manifest_session *s, struct cistern_error *err, void *arg)
{
	return job_manifest_write(((struct carry *)arg)->manifest, s, err);
}

static void stop_work(void *arg)
{
	struct carry *c = arg;

	drain_cancel(c->carrier);
}

static void answer(uint64_t id, enum cistern_exit result, const char *text, void *arg)
{
	struct carry *c = arg;
	struct drain *asker = atomic_load(&c->asker);

	if (asker)
		drain_answer(asker, id, result, text);
}

static void paused(bool paused, void *arg)
{
	struct carry *c = arg;
	struct drain *asker = atomic_load(&c->asker);

	if (asker)
		drain_pause(asker, paused);
}

/* ---- what the carrier's agent needs of the job */

static int begin_shared(struct wire_shared *f, void *arg)
{
	struct carry *c = arg;

	return ready_shared(c->opt.job, store_state(c->opt.drain.store), c->time_usec, f);
}

static int tree_step(struct record *rec, void *arg)
{
	struct carry *c = arg;

	return job_tree_record(c->opt.job, rec);
}

static void drained(uint64_t ino, void *arg)
{
	struct carry *c = arg;

	job_drained(c->opt.job, ino);
}

static int occupied(const struct record *rec, void *arg)
{
	struct carry *c = arg;

	return job_drain_occupied(c->opt.job, rec);
}

static int fetch(uint64_t slot, const struct peers_get *ranges, size_t num, void *arg)
{
	struct carry *c = arg;

	return fetch_begin(c->fetch, slot, ranges, num);
}

static int fetched(uint64_t slot, uint64_t *ret_off, void *arg)
{
	struct carry *c = arg;

	return fetch_wait(c->fetch, slot, ret_off);
}

static void fetch_end(void *arg)
{
	struct carry *c = arg;

	fetch_reset(c->fetch);
}

/* ---- life */

int carry_create(const struct carry_options *opt, struct carry **ret, struct cistern_error *err)
{
	struct carry *c = calloc(1, sizeof(*c));
	struct drain_options drain = opt->drain;
	struct collective_options collective = { .peers = opt->peers,
		.leave_timeout_usec = opt->leave_timeout_usec,
		.work = work,
		.stop_work = stop_work,
		.answer = answer,
		.paused = paused,
		.mark = mark,
		.append = append,
		.dirs = take_dirs,
		.summary = summary,
		.arg = c };
	struct job_manifest_options manifest = {
		.store = opt->drain.store, .cfg = opt->drain.cfg, .peers = opt->peers
	};
	int r;

	if (!c)
		return cistern_error_set(err, -ENOMEM, "out of memory");
	c->opt = *opt;
	c->removed = UINT64_MAX;
	drain.ask = (struct drain_ask){ 0 };
	drain.job = (struct drain_job_hooks){ .begin_shared = begin_shared,
		.tree_step = tree_step,
		.drained = drained,
		.occupied = occupied,
		.fetch = fetch,
		.fetched = fetched,
		.fetch_end = fetch_end,
		.memory_fd = opt->memory_fd,
		.arg = c };
	r = fetch_create(opt->peers, &c->fetch);
	r = r ? cistern_error_set(err, r, "out of memory") : job_manifest_create(&manifest, &c->manifest, err);
	r = r ? r : drain_create(&drain, &c->carrier, err);
	r = r ? r : collective_create(&collective, &c->collective, err);
	if (r)
		carry_destroy(c);
	else
		*ret = c;
	return r;
}

void carry_destroy(struct carry *c)
{
	if (!c)
		return;
	if (c->carrier)
		drain_shut_down(c->carrier); /* the collective's worker may wait for it */
	collective_destroy(c->collective);
	drain_destroy(c->carrier);
	job_manifest_destroy(c->manifest);
	fetch_destroy(c->fetch);
	free(c);
}

struct drain *carry_carrier(struct carry *c)
{
	return c->carrier;
}

struct collective *carry_collective(struct carry *c)
{
	return c->collective;
}

void carry_set_asker(struct carry *c, struct drain *asker)
{
	atomic_store(&c->asker, asker);
}

static int ask(uint64_t id, enum drain_kind kind, bool for_room, char *const *paths, size_t num, void *arg)
{
	struct carry *c = arg;

	return collective_ask(c->collective, id, kind, for_room, paths, num);
}

static void cancel(uint64_t id, void *arg)
{
	struct carry *c = arg;

	collective_cancel(c->collective, id);
}

struct drain_ask carry_ask(struct carry *c)
{
	return (struct drain_ask){ .ask = ask, .cancel = cancel, .arg = c };
}
