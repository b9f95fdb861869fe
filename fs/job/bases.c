/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Which commits of others this node knew when it wrote what it commits: its base. Of two that write the same bytes, neither of which knew
 * the other's, the domain home says that they are in conflict. One too low says so without need; one too high hides a conflict.
 * What is written while a commit makes its list may be in it, and has a base of its own.
 */
#include <string.h>

#include "fs/job/share.h"

static uint64_t base_of(const struct bases *b, uint64_t seq)
{
	return seq > b->late_from ? b->late : b->early;
}

uint64_t bases_of(const struct commit_bases *b, uint64_t seq)
{
	return base_of(seq > b->begun ? &b->since : &b->before, seq);
}

size_t bases_each(const struct commit_bases *b, uint64_t ret[BASES_MAX])
{
	const uint64_t all[BASES_MAX] = { b->before.early, b->before.late, b->since.early, b->since.late };
	size_t num = 0;

	for (size_t i = 0; i < BASES_MAX; i++) {
		bool known = false;

		for (size_t k = 0; k < num; k++)
			known = known || ret[k] == all[i];
		if (!known)
			ret[num++] = all[i];
	}
	return num;
}

void bases_begin(struct shared *s, struct commit_bases *ret)
{
	*ret = (struct commit_bases){ .before = s->bases, .since = s->bases };
}

void bases_listed(struct shared *s, struct commit_bases *b)
{
	pthread_mutex_lock(&s->mutex);
	b->since = s->bases;
	pthread_mutex_unlock(&s->mutex);
}

void bases_restore(struct shared *s, const struct commit_bases *b)
{
	if (memcmp(&s->bases, &b->before, sizeof(s->bases)) == 0)
		return;
	s->bases.early = b->before.early;
	if (s->bases.late_from < b->begun)
		s->bases.late_from = b->begun;
}

/* What is written from now on has seen the commits that we know of; what was written before has not. */
void bases_note(struct job *j, struct shared *s)
{
	bool news;

	pthread_mutex_lock(&s->mutex);
	if (!s->dirty_usec)
		s->bases = (struct bases){ .early = s->stamp, .late = s->stamp };
	news = s->bases.late != s->stamp;
	pthread_mutex_unlock(&s->mutex);
	if (!news)
		return;
	uint64_t seq = state_seq(store_state(j->opt.store));
	pthread_mutex_lock(&s->mutex);
	s->bases.late = s->stamp;
	s->bases.late_from = seq;
	pthread_mutex_unlock(&s->mutex);
}
