/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Payload of other nodes goes on changing places while a drain works from its snapshot: what is written over, or cut off, is given back by the
 * node that had it, no earlier than PLACE_GRACE_USEC later. So what was fetched within half of that counts, as for whoever reads. What was fetched
 * later counts if the living map of this node, which is its domain home, still names the place: a node gives nothing back before the domain home
 * knows what has come instead (store_hold_freed). What it names no more is fetched from where it says that the bytes are now. They are newer
 * than the session, which may carry them: they stay dirty, for the next one.
 *
 * Bytes that are nowhere any more are zeros if a cut has taken them off since the snapshot. If not, the file is removed, or something that is not
 * known here has been done to it: it is not carried in this session (-EBUSY).
 */
#include "mpi-agent/replay/copy_private.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "format/base/clock.h"

#define TRIES          8u    /* each begins with places as they are by then */
#define PLACES_AT_ONCE 1024u /* asked for */
#define PIECES_AT_ONCE 4096u /* fetched from new places */

struct fresh { /* the range of a window, as the living map has it */
	struct copier *c;
	struct copy_job *job;
	uint8_t *data;            /* the window's */
	bool all;                 /* nothing of the window could be had: what is where it was is wanted as well */
	struct share_cut cut;     /* the newest that the snapshot knows of */
	struct share_cut new_cut; /* and the map */
	uint64_t next, end;       /* places from there on are to be asked for */
	size_t num, at;           /* of ext: not used yet */
	struct share_extent ext[PLACES_AT_ONCE];
};

static bool is_remote(const struct copier *c, const struct piece *p)
{
	return p->source == PIECE_LOG && p->node != c->node;
}

static bool has_remote(const struct copier *c, const struct window *w)
{
	uint32_t i = 0;

	while (i < w->num && !is_remote(c, &w->pieces[i]))
		i++;
	return i < w->num;
}

/* r: what came of fetching them. */
static bool is_doubtful(const struct copier *c, const struct copy_job *job, const struct window *w, int r)
{
	if (!job->shared || !c->s->opt->watcher.places || !has_remote(c, w))
		return false;
	return r == -ENOENT || (r == 0 && clock_usec() - c->asked_usec >= c->s->opt->fresh_usec);
}

static int ask(struct fresh *f)
{
	const struct drain_watcher *w = &f->c->s->opt->watcher;
	struct drain_places range = { .ino = f->job->in->ino, .off = f->next, .len = f->end - f->next };
	struct share_cut cut = { 0 };
	uint64_t next = 0;
	int r = w->places(&range, f->ext, PLACES_AT_ONCE, &f->num, &next, &cut, w->arg);

	f->at = 0;
	if (r == 0 && (next <= f->next || f->num > PLACES_AT_ONCE))
		r = -EBADMSG;
	if (r < 0)
		return r;
	f->next = next;
	if (cut.stamp > f->new_cut.stamp)
		f->new_cut = cut;
	return 0;
}

/* What covers pos, or NULL; *ret_end: how far that is so, end at the most. */
static int place_at(struct fresh *f, uint64_t pos, uint64_t end, const struct share_extent **ret, uint64_t *ret_end)
{
	const struct share_extent *e = NULL;
	int r = 0;

	for (;; f->at++) {
		while (r == 0 && f->at == f->num && f->next < f->end)
			r = ask(f);
		e = r == 0 && f->at < f->num ? &f->ext[f->at] : NULL;
		if (!e || e->off + e->len > pos)
			break;
	}
	*ret_end = end;
	*ret = e && e->off <= pos ? e : NULL;
	if (e && e->off > pos && e->off < end)
		*ret_end = e->off;
	else if (*ret && e->off + e->len < end)
		*ret_end = e->off + e->len;
	return r;
}

static bool is_there(const struct piece *p, const struct share_extent *e, uint64_t pos)
{
	return e && e->kind == EXTENT_LOG && e->node == p->node && e->segment == p->segment &&
	       e->segment_off + (pos - e->off) == p->segment_off + (pos - p->off);
}

static bool is_cut_off(const struct fresh *f, uint64_t pos)
{
	return f->new_cut.stamp > f->cut.stamp && pos >= f->new_cut.size;
}

/* [pos, end) of p is to be had from e. It lies in the buffer where p has it. */
static int add_piece(struct window *w, const struct piece *p, const struct share_extent *e, uint64_t pos, uint64_t end)
{
	struct piece new = { .source = PIECE_LOG,
		.off = pos,
		.len = (uint32_t)(end - pos),
		.segment = e->segment,
		.node = e->node,
		.segment_off = e->segment_off + (pos - e->off),
		.crc = e->crc,
		.whole = e->whole && pos == e->off && end == e->off + e->len };
	uint32_t num = w->num;

	if (num == WINDOW_PIECES_MAX)
		return -EBUSY;
	int r = window_add(w, &new);
	if (r == 0 && w->num > num)
		w->pieces[num].at = p->at + (size_t)(pos - p->off);
	return r;
}

/* What of p is not where it was: zeros, or added to w. */
static int renew_piece(struct fresh *f, struct piece *p, struct window *w)
{
	uint64_t end = p->off + p->len, until;
	const struct share_extent *e;
	int r = 0;

	for (uint64_t pos = p->off; r == 0 && pos < end; pos = until) {
		r = place_at(f, pos, end, &e, &until);
		bool there = r == 0 && is_there(p, e, pos);
		if (r < 0 || (there && !f->all))
			continue;
		if (!there)
			p->whole = false;
		if (e && e->kind == EXTENT_LOG)
			r = add_piece(w, p, e, pos, until);
		else if (e || is_cut_off(f, pos))
			memset(f->data + p->at + (pos - p->off), 0, (size_t)(until - pos));
		else
			r = -EBUSY;
	}
	return r;
}

static int check(struct copy_job *job, const struct copy_buffer *b)
{
	uint32_t crc;
	int r = 0;

	for (uint32_t i = 0; r == 0 && i < b->w.num; i++)
		r = copy_check_piece(job, b, &b->w.pieces[i], &crc);
	return r;
}

static int settle(struct copier *c, struct copy_job *job, struct copy_buffer *b, int r, unsigned int tries);

/* The pieces of a window from *at on, as many as are fetched together from other places. */
static int renew_some(struct fresh *f, struct copy_buffer *b, uint32_t *at, unsigned int tries)
{
	struct copy_buffer new = { .data = b->data };
	uint64_t asked_usec = clock_usec();
	int r = 0;

	f->num = f->at = 0;
	f->next = b->w.pieces[*at].off;
	for (; r == 0 && *at < b->w.num && new.w.num < PIECES_AT_ONCE; ++*at)
		if (is_remote(f->c, &b->w.pieces[*at]))
			r = renew_piece(f, &b->w.pieces[*at], &new.w);
	if (r == 0 && new.w.num > 0) {
		f->c->asked_usec = asked_usec;
		r = settle(f->c, f->job, &new, copy_read_log(f->c, f->job, &new), tries + 1);
	}
	if (r == 0)
		r = check(f->job, &new);
	window_free(&new.w);
	return r;
}

static int renew(struct copier *c, struct copy_job *job, struct copy_buffer *b, bool all, unsigned int tries)
{
	const struct piece *last = &b->w.pieces[b->w.num - 1];
	struct fresh *f = calloc(1, sizeof(*f));
	int r;

	if (!f)
		return -ENOMEM;
	f->c = c;
	f->job = job;
	f->data = b->data;
	f->all = all;
	f->end = last->off + last->len;
	r = state_share_newest_cut(c->s->st, job->in->ino, &f->cut.size, &f->cut.stamp);
	for (uint32_t at = 0; r == 0 && at < b->w.num;)
		r = renew_some(f, b, &at, tries);
	free(f);
	return r;
}

/* b's pieces have been fetched, at places of c->asked_usec. */
static int settle(struct copier *c, struct copy_job *job, struct copy_buffer *b, int r, unsigned int tries)
{
	if (!is_doubtful(c, job, &b->w, r))
		return r;
	if (tries == TRIES)
		return r < 0 ? r : -EBUSY;
	job->error_text[0] = '\0';
	return renew(c, job, b, r < 0, tries);
}

int copy_freshen(struct copier *c, struct copy_job *job, struct copy_buffer *b, int r)
{
	uint32_t num_runs = c->num_runs, num_local = c->num_local, num_waited = c->num_waited;

	c->asked_usec = c->s->opt->asked_usec;
	r = settle(c, job, b, r, 0);
	c->num_runs = num_runs; /* of the window, not of what was renewed */
	c->num_local = num_local;
	c->num_waited = num_waited;
	return r;
}
