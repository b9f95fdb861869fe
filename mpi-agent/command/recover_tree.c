/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * The directories of a job. All its stores have them, but a node that could not be reached has not heard of the last changes, such as that a
 * drain has placed one: its files would have no directory. As in the living job (fs/job/sequence.c) it is told those changes, in their order, as
 * far back as the journal of the store that leads goes.
 */
#include "mpi-agent/command/recover_tree.h"
#include "mpi-agent/command/say.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "format/journal/journal.h"
#include "format/store/hosts.h"

struct following {
	struct recover_set *set;
	bool *is_other; /* owned; by node: its tree is another one, or its files do not fit the next change, and it follows no more */
};

static struct state *tree_of(const struct recover_set *set, uint32_t node)
{
	return set->stores[node] ? store_state(set->stores[node]) : NULL;
}

static bool lacks_some(const struct recover_set *set, uint32_t node)
{
	struct state *st = tree_of(set, node);

	return st && state_tree_stamp(st) < state_tree_stamp(store_state(set->first));
}

static int apply_next(struct record *rec, void *arg)
{
	struct state *st = arg;

	rec->seq = state_seq(st) + 1;
	return state_apply(st, rec);
}

/* Its last change, and what the store that leads has under that number: lost power may have made them two. */
static bool is_another(struct state *st, const struct record *rec)
{
	int64_t time_ns = (int64_t)state_tree_time(st, rec->stamp);

	return rec->stamp == state_tree_stamp(st) && time_ns && time_ns != rec->time_ns;
}

static int follow(struct following *f, uint32_t node, const struct record *rec)
{
	struct state *st = tree_of(f->set, node);
	struct record copy = *rec;

	f->is_other[node] = f->is_other[node] || is_another(st, rec);
	if (f->is_other[node])
		return 0;
	int r = state_tree_follow(st, &copy, apply_next, st);
	if (r == -ENOMEM || r == -EIO || r == -EBADMSG)
		return r;
	f->is_other[node] = r < 0 && r != -EILSEQ; /* its files do not fit that: said in the end */
	return 0;
}

static int on_record(const struct record *rec, void *arg)
{
	struct following *f = arg;
	int r = 0;

	if (!(rec->flags & RECORD_F_TREE))
		return 0;
	for (uint32_t i = 0; r == 0 && i < f->set->num_nodes; i++)
		if (i != f->set->first_node && lacks_some(f->set, i))
			r = follow(f, i, rec);
	return r;
}

static int pass_over(const struct record *rec, void *arg)
{
	(void)rec, (void)arg;
	return 0;
}

/* All that there is has been read before, when the store was opened: what cannot be read is behind that. */
static int read_journal(struct following *f)
{
	struct io *io = store_io(f->set->first);
	struct journal_end end;
	uint64_t seq;
	int r = journal_checkpoint_load(io, pass_over, NULL, &seq, NULL);

	if (r == 0 || r == -ENOENT)
		r = journal_replay(io, r == 0 ? seq : 0, on_record, f, &end, NULL);
	return r == -EBADMSG || r == -ENOENT ? 0 : r;
}

static void say_lacking(const struct recover_set *set)
{
	uint64_t last = state_tree_stamp(store_state(set->first));
	char node[HOSTS_NODE_BYTES];

	for (uint32_t i = 0; i < set->num_nodes; i++)
		if (lacks_some(set, i) && !set->silent)
			say_recover(
				"the store of %s lacks the last %" PRIu64
				" changes of the directories, which no other one has kept, or which its files do not fit: those in directories "
				"that these have made or moved stay in it; give --to another, empty directory for all of them",
				hosts_node_text(set->first, i, node), last - state_tree_stamp(tree_of(set, i)));
}

int recover_tree_follow(struct recover_set *set)
{
	struct following f = { .set = set };
	bool lacking = false;

	for (uint32_t i = 0; i < set->num_nodes; i++)
		lacking |= lacks_some(set, i);
	if (!lacking)
		return 0;
	f.is_other = calloc(set->num_nodes, sizeof(*f.is_other));
	int r = f.is_other ? read_journal(&f) : -ENOMEM;
	if (r == 0)
		say_lacking(set);
	free(f.is_other);
	return r;
}
