/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Names that several stores have. A name that goes from a file of one home to a file of another one is two records in two journals, the new
 * file's first: the job may have died between them, or one store have forgotten its own with its node's power (docs/design/power-loss.md, 2 and 5).
 * As in a living job (fs/job/rebuild.c) the higher stamp wins, of equal ones the lower node; the other file has lost the name.
 *
 * First the stores' names are listed by their checksums alone, so that only those are looked up everywhere that may be in several.
 */
#include "mpi-agent/command/recover_names.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "format/base/array.h"
#include "format/base/crc32c.h"

#define NAMES_BATCH 64u

struct known { /* a name in a store */
	uint32_t crc, node;
};

struct lost { /* a name that another store has by right */
	uint64_t dir, ino;
	char name[RECORD_NAME_MAX + 1];
};

struct settling {
	struct recover_set *set;
	struct known *known; /* owned; sorted before any is looked for */
	size_t num_known, cap_known;
	struct lost *lost; /* owned; of the store at hand */
	size_t num_lost, cap_lost;
	uint32_t node; /* whose store is at hand */
	int (*each)(struct settling *s, uint64_t dir, const struct state_name *e);
};

static int each_in_dir(const struct inode *in, void *arg)
{
	struct state_name names[NAMES_BATCH];
	char after[RECORD_NAME_MAX + 1] = "";
	size_t num = S_ISDIR(in->mode) ? NAMES_BATCH : 0;
	struct settling *s = arg;
	int r = 0;

	while (r == 0 && num == NAMES_BATCH) {
		r = state_list_names(store_state(s->set->stores[s->node]), in->ino, after, names, NAMES_BATCH, &num);
		for (size_t i = 0; r == 0 && i < num; i++)
			if (names[i].type != S_IFDIR)
				r = s->each(s, in->ino, &names[i]);
		if (r == 0 && num)
			memcpy(after, names[num - 1].name, sizeof(after));
	}
	return r;
}

static int each_name(struct settling *s, int (*each)(struct settling *s, uint64_t dir, const struct state_name *e))
{
	s->each = each;
	return state_each_inode(store_state(s->set->stores[s->node]), each_in_dir, s);
}

static uint32_t crc_of(uint64_t dir, const char *name)
{
	return crc32c(crc32c(0, &dir, sizeof(dir)), name, strlen(name));
}

static int note_known(struct settling *s, uint64_t dir, const struct state_name *e)
{
	if (array_room(&s->known, &s->cap_known, s->num_known, sizeof(*s->known)) < 0)
		return -ENOMEM;
	s->known[s->num_known++] = (struct known){ crc_of(dir, e->name), s->node };
	return 0;
}

static int compare_known(const void *a, const void *b)
{
	const struct known *x = a, *y = b;

	return (x->crc > y->crc) - (x->crc < y->crc);
}

/* Those stay that more than one store may have. */
static void keep_several(struct settling *s)
{
	size_t kept = 0;

	if (s->num_known)
		qsort(s->known, s->num_known, sizeof(*s->known), compare_known);
	for (size_t i = 0, end; i < s->num_known; i = end) {
		bool several = false;

		for (end = i + 1; end < s->num_known && s->known[end].crc == s->known[i].crc; end++)
			several |= s->known[end].node != s->known[i].node;
		if (several)
			s->known[kept++] = s->known[i];
	}
	s->num_known = kept;
}

static bool has_better(const struct settling *s, uint64_t dir, const struct state_name *e)
{
	struct state_name there;

	for (uint32_t i = 0; i < s->set->num_nodes; i++) {
		if (i == s->node || !s->set->stores[i] ||
			state_lookup(store_state(s->set->stores[i]), dir, e->name, &there) < 0 ||
			there.type == S_IFDIR || there.ino == e->ino)
			continue;
		if (there.stamp > e->stamp || (there.stamp == e->stamp && i < s->node))
			return true;
	}
	return false;
}

static int note_lost(struct settling *s, uint64_t dir, const struct state_name *e)
{
	const struct known key = { .crc = crc_of(dir, e->name) };

	if (!bsearch(&key, s->known, s->num_known, sizeof(key), compare_known) || !has_better(s, dir, e))
		return 0;
	if (array_room(&s->lost, &s->cap_lost, s->num_lost, sizeof(*s->lost)) < 0)
		return -ENOMEM;
	struct lost *l = &s->lost[s->num_lost++];
	*l = (struct lost){ .dir = dir, .ino = e->ino };
	memcpy(l->name, e->name, sizeof(l->name));
	return 0;
}

static int give_up(struct settling *s, const struct lost *l)
{
	struct state *st = store_state(s->set->stores[s->node]);
	struct record rec = { .type = RECORD_UNLINK, .ino = l->ino, .parent = l->dir };
	struct inode dir;
	int r = state_inode(st, l->dir, &dir);

	if (r < 0)
		return r;
	rec.seq = state_seq(st) + 1;
	rec.time_ns = dir.mtime_ns; /* that the name was given is the other store's to say */
	memcpy(rec.name, l->name, sizeof(rec.name));
	return state_apply(st, &rec);
}

static int settle_store(struct settling *s)
{
	int r;

	s->num_lost = 0;
	r = each_name(s, note_lost);
	for (size_t i = 0; r == 0 && i < s->num_lost; i++)
		r = give_up(s, &s->lost[i]);
	return r;
}

/* Who has a name by right keeps it, so the order of the stores does not matter. */
int recover_names_settle(struct recover_set *set)
{
	struct settling s = { .set = set };
	int r = 0;

	for (s.node = 0; r == 0 && s.node < set->num_nodes; s.node++)
		if (set->stores[s.node])
			r = each_name(&s, note_known);
	keep_several(&s);
	for (s.node = 0; r == 0 && s.num_known && s.node < set->num_nodes; s.node++)
		if (set->stores[s.node])
			r = settle_store(&s);
	free(s.known);
	free(s.lost);
	return r;
}
