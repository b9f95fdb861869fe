/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * The parts of a job's drain, store after store; or, by several processes, of which each has opened all stores and found the same, each its
 * own stores at the same time. Between the parts they meet, as the nodes of a living job do, and the first one learns what the
 * others' manifests say. One failure ends all of them; done again, it goes on.
 */
#include "mpi-agent/command/recover_run.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "format/base/cursor.h"
#include "format/journal/record.h"
#include "format/wire/shared.h"
#include "mpi-agent/command/recover_nameless.h"
#include "mpi-agent/plan/names.h"

#define LINES_BYTES  (64u << 10) /* about so much of a manifest at once */
#define ARRAY_NUM(a) (sizeof(a) / sizeof((a)[0]))

struct carrying {
	struct recover_set *set;
	const struct team *team;
	const struct drain_options *how; /* borrowed */
	struct manifest_totals *sum;     /* borrowed: what this process has carried */
	struct buf dir_steps;            /* owned: records of moved directories */
	uint64_t mark;                   /* of the manifest: what stands before it, the first process has */
	struct drain_watcher user;       /* the caller's */
	struct wire_shared_list shared;
	uint32_t node; /* whose turn it is */
	enum wire_part part;
	uint8_t *fetched[WIRE_FETCH_SLOTS]; /* owned; NULL until first used */
};

/* All stores have the same directories, and who leads finds or moves them. */
static bool moves_dirs(enum wire_part part)
{
	return part == WIRE_PART_LOOK || part == WIRE_PART_DIRS;
}

static int apply_to(struct state *st, const struct record *rec)
{
	struct record copy = *rec;
	int r;

	copy.seq = state_seq(st) + 1;
	r = state_apply(st, &copy);
	return r == -ENOENT || r == -ESTALE ? 0 : r;
}

/* The others have the same directories: where those are now, all must know. Files that cannot be there any more are found later. */
static int tell_others(struct carrying *c, const struct record *rec)
{
	for (uint32_t i = 0; i < c->set->num_nodes; i++) {
		struct record moved;
		struct state *st;
		int r = 0;

		if (!c->set->stores[i] || i == c->set->first_node)
			continue;
		st = store_state(c->set->stores[i]);
		if (rec->type == RECORD_PLACED && names_make_room(st, rec->parent, rec->name, &moved))
			r = apply_to(st, &moved);
		if (r == 0)
			r = apply_to(st, rec);
		if (r < 0)
			return r;
	}
	return 0;
}

static int on_step(const struct record *rec, void *arg)
{
	struct carrying *c = arg;
	struct inode in;
	int r = 0;

	if (!moves_dirs(c->part) || state_inode(store_state(c->set->stores[c->set->first_node]), rec->ino, &in) < 0 ||
		!S_ISDIR(in.mode))
		return 0;
	if (c->team->size > 1)
		r = record_encode(rec, &c->dir_steps);
	return r < 0 ? r : tell_others(c, rec);
}

static int on_tick(const struct drain_progress *p, struct drain_control *control, void *arg)
{
	struct carrying *c = arg;

	return c->user.tick ? c->user.tick(p, control, c->user.arg) : 0;
}

static void on_error(const char *path, int code, const char *text, void *arg)
{
	struct carrying *c = arg;

	if (c->user.error)
		c->user.error(path, code, text, c->user.arg);
}

static void on_beside(const char *path, const char *there, void *arg)
{
	struct carrying *c = arg;

	if (c->user.beside)
		c->user.beside(path, there, c->user.arg);
}

/* All stores are here: it is there at once. */
static int on_fetch(unsigned int slot, const struct drain_fetch *ranges, size_t num, void *arg)
{
	struct carrying *c = arg;
	uint8_t *bytes = c->fetched[slot];
	int r = 0;

	if (!bytes)
		bytes = c->fetched[slot] = malloc(WIRE_FETCH_BYTES);
	if (!bytes)
		return -ENOMEM;

	for (size_t i = 0; r == 0 && i < num; i++) {
		if (ranges[i].node >= c->set->num_nodes || !c->set->stores[ranges[i].node])
			return -ENODATA;
		r = segment_read(store_segments(c->set->stores[ranges[i].node]), ranges[i].segment, ranges[i].off,
			bytes, ranges[i].len);
		bytes += ranges[i].len;
	}
	return r;
}

static int on_fetched(unsigned int slot, const uint8_t **ret, void *arg)
{
	struct carrying *c = arg;

	*ret = c->fetched[slot];
	return 0;
}

static int on_shared(const struct wire_shared *f, int status, void *arg)
{
	struct carrying *c = arg;
	struct wire_shared *known = wire_shared_find(&c->shared, f->ino);

	if (c->part == WIRE_PART_BEGIN)
		return wire_shared_add(&c->shared, f);
	if (!known)
		return 0;
	known->failed = known->failed || status < 0;
	known->failed_node = c->node;
	known->failed_errno = known->failed && status < 0 ? (uint32_t)-status : known->failed_errno;
	known->written += f->written;
	known->extents += f->extents;
	known->crc_sum ^= f->crc_sum;
	known->missing += f->missing;
	return 0;
}

static bool is_named(uint64_t dir, const char *name, void *arg)
{
	const struct carrying *c = arg;
	struct state_name there;
	bool is = false;

	for (uint32_t i = 0; !is && i < c->set->num_nodes; i++)
		is = i != c->node && c->set->stores[i] &&
		     state_lookup(store_state(c->set->stores[i]), dir, name, &there) == 0 && there.type != S_IFDIR;
	return is;
}

/* What another node had removed, it still knows. */
static bool is_known(uint64_t dir, const char *name, const struct stat *there, void *arg)
{
	const struct carrying *c = arg;

	for (uint32_t i = 0; i < c->set->num_nodes; i++)
		if (c->set->stores[i] && names_is_known(store_state(c->set->stores[i]), dir, name, there->st_ino))
			return true;
	return false;
}

static bool may_be_lost(uint64_t dir, const char *name, const struct stat *there, void *arg)
{
	return !is_known(dir, name, there, arg);
}

static int run_one(struct carrying *c, uint32_t node, enum wire_part part, struct cistern_error *err)
{
	struct drain_options opt = *c->how;
	struct drain_result one = { 0 };
	int r;

	c->node = opt.node = node;
	c->part = opt.part = part;
	opt.store = c->set->stores[node];
	opt.upto = state_seq(store_state(opt.store));
	opt.overlaps = recover_set_overlaps;
	opt.overlaps_arg = c->set;
	opt.named = is_named;
	opt.known = is_known;
	opt.may_be_lost = opt.in_place && !recover_set_is_whole(c->set) ? may_be_lost : NULL;
	opt.named_arg = c;
	opt.dirs_are_told = node != c->set->first_node;
	opt.lost = c->set->lost;
	opt.num_lost = c->set->num_nodes;
	opt.shared = c->shared;
	opt.watcher = (struct drain_watcher){ .step = on_step,
		.tick = on_tick,
		.error = on_error,
		.beside = on_beside,
		.fetch = on_fetch,
		.fetched = on_fetched,
		.shared = on_shared,
		.arg = c };
	r = drain_run(&opt, &one, err);
	if (part == WIRE_PART_DATA || part == WIRE_PART_HEAD)
		one.totals.files = 0; /* counted when they have their names */
	manifest_totals_add(c->sum, &one.totals);
	return r;
}

/* A home writes all of its shared files: their maps are whole there. */
static int run_files(struct carrying *c, uint32_t node, struct cistern_error *err)
{
	static const enum wire_part parts[] = { WIRE_PART_BEGIN, WIRE_PART_DATA, WIRE_PART_HEAD, WIRE_PART_FILES };
	int r = 0;

	wire_shared_free(&c->shared);
	c->shared.stays_here = true;
	for (size_t i = 0; r == 0 && i < sizeof(parts) / sizeof(parts[0]); i++)
		r = run_one(c, node, parts[i], err);
	return r;
}

/* A store is always one process's, since its state changes on the way; the one that leads is the first process's. */
static int run_own(struct carrying *c, enum wire_part part, struct cistern_error *err)
{
	uint32_t turn = 0;
	int r = 0;

	for (uint32_t k = 0; r == 0 && k < c->set->num_nodes; k++) {
		uint32_t node = (c->set->first_node + k) % c->set->num_nodes;

		if (!c->set->stores[node] || turn++ % c->team->size != c->team->rank)
			continue;
		r = part == WIRE_PART_FILES ? run_files(c, node, err) : run_one(c, node, part, err);
	}
	return r;
}

/* ---- together */

static int apply_steps(struct carrying *c, const struct buf *b)
{
	struct record_scratch scratch = { 0 };
	struct record rec;
	size_t used;
	int r = 0;

	for (size_t at = 0; r == 0 && at < b->len; at += used) {
		r = record_decode(b->data + at, b->len - at, &scratch, &rec, &used);
		r = r < 0 ? r : tell_others(c, &rec);
	}
	record_scratch_free(&scratch);
	return r;
}

/* What the first process did with directories, to all. */
static int share_steps(struct carrying *c, struct cistern_error *err)
{
	uint64_t len = c->dir_steps.len;
	int r = team_broadcast(c->team, &len, sizeof(len), err);

	if (r == 0 && c->team->rank > 0)
		buf_zeros(&c->dir_steps, len);
	r = team_agree(c->team, r < 0 ? r : buf_ok(&c->dir_steps) && len <= INT_MAX ? 0 : -ENOMEM, err);
	if (r == 0 && len > 0)
		r = team_broadcast(c->team, c->dir_steps.data, len, err);
	if (r == 0 && c->team->rank > 0)
		r = apply_steps(c, &c->dir_steps);
	buf_reset(&c->dir_steps);
	return team_agree(c->team, r, err);
}

/* Lines of all processes' manifests: lens has how long each one's are, all what they are, each in max bytes. */
static int append_lines(struct carrying *c, const uint64_t *lens, uint64_t max, const uint8_t *all)
{
	int r = 0;

	for (uint32_t i = 1; r == 0 && i < c->team->size; i++)
		r = manifest_append(c->how->manifest, all + i * max, lens[i]);
	return r;
}

/* One round of it; *ret: the longest. mine is the caller's, to be used again. lens, *all: the first process's. */
static int gather_round(struct carrying *c, struct buf *mine, uint64_t *lens, uint64_t *ret, struct cistern_error *err)
{
	uint64_t len, max = 0;
	uint8_t *all = NULL;
	int r = 0;

	buf_reset(mine);
	if (c->team->rank > 0)
		r = manifest_read(c->how->manifest, c->mark, LINES_BYTES, mine);
	len = mine->len;
	c->mark += len;
	r = team_agree(c->team, r, err);
	r = r < 0 ? r : team_gather(c->team, &len, sizeof(len), lens, err);
	for (uint32_t i = 0; r == 0 && c->team->rank == 0 && i < c->team->size; i++)
		max = lens[i] > max ? lens[i] : max;
	r = r < 0 ? r : team_broadcast(c->team, &max, sizeof(max), err);
	*ret = max;
	if (r < 0 || max == 0)
		return r;
	buf_zeros(mine, max - len);
	if (c->team->rank == 0)
		all = malloc(max * c->team->size);
	r = team_agree(c->team, !buf_ok(mine) || max > INT_MAX || (c->team->rank == 0 && !all) ? -ENOMEM : 0, err);
	r = r < 0 ? r : team_gather(c->team, mine->data, max, all, err);
	if (r == 0 && c->team->rank == 0)
		r = append_lines(c, lens, max, all);
	free(all);
	return team_agree(c->team, r, err);
}

/* The first process's manifest gets what the others' say, part after part: of two lines of a name the later one counts. */
static int gather_lines(struct carrying *c, struct cistern_error *err)
{
	uint64_t *lens = calloc(c->team->size, sizeof(*lens)), max = 1;
	struct buf mine = { 0 };
	int r = team_agree(c->team, lens ? 0 : -ENOMEM, err);

	while (r == 0 && max > 0)
		r = gather_round(c, &mine, lens, &max, err);
	buf_free(&mine);
	free(lens);
	return r;
}

static int gather_result(struct carrying *c, struct cistern_error *err)
{
	struct manifest_totals *all = calloc(c->team->size, sizeof(*all));
	int r = team_agree(c->team, all ? 0 : -ENOMEM, err);

	if (r == 0)
		r = team_gather(c->team, c->sum, sizeof(*c->sum), all, err);
	for (uint32_t i = 1; r == 0 && c->team->rank == 0 && i < c->team->size; i++)
		manifest_totals_add(c->sum, &all[i]);
	free(all);
	return r;
}

/* A part is over when it is over everywhere. What was done is told even if something failed. */
static int meet(struct carrying *c, int r, struct cistern_error *err)
{
	struct cistern_error later = { 0 };
	int told;

	if (c->team->size == 1)
		return r;
	r = team_agree(c->team, r, err);
	told = c->how->manifest ? gather_lines(c, &later) : 0;
	if (r < 0 || told == 0)
		return r;
	*err = later;
	return told;
}

static int run_part(struct carrying *c, enum wire_part part, struct cistern_error *err)
{
	bool leads = moves_dirs(part) || part == WIRE_PART_FINISH;
	int r = 0;

	if (!leads)
		r = run_own(c, part, err);
	else if (c->team->rank == 0)
		r = run_one(c, c->set->first_node, part, err);
	r = meet(c, r, err);
	return r == 0 && moves_dirs(part) && c->team->size > 1 ? share_steps(c, err) : r;
}

static int say_nameless(struct carrying *c, struct cistern_error *err)
{
	int r = recover_nameless(c->set, c->how->manifest, c->user.error, c->user.arg, &c->sum->missing_bytes);

	return r < 0 ? cistern_error_set(err, r, "what is known of files of lost stores alone: %s", strerror(-r)) : 0;
}

int recover_run(struct recover_set *set, const struct team *team, const struct drain_options *opt,
	struct manifest_totals *ret, struct cistern_error *err)
{
	static const enum wire_part in_place[] = { WIRE_PART_LOOK, WIRE_PART_PARK, WIRE_PART_DIRS, WIRE_PART_FILES,
		WIRE_PART_REMOVE, WIRE_PART_FINISH },
				    elsewhere[] = { WIRE_PART_WHOLE };
	struct carrying c = { .set = set, .team = team, .how = opt, .sum = ret, .user = opt->watcher };
	const enum wire_part *parts = opt->in_place ? in_place : elsewhere;
	size_t num = opt->in_place ? ARRAY_NUM(in_place) : ARRAY_NUM(elsewhere);
	int r = 0;

	*ret = (struct manifest_totals){ 0 };
	r = team_agree(team, team->rank == 0 ? say_nameless(&c, err) : 0, err);
	for (size_t i = 0; r == 0 && i < num; i++)
		r = run_part(&c, parts[i], err);
	if (team->size > 1) {
		struct cistern_error later = { 0 };
		int told = gather_result(&c, &later);

		if (r == 0 && told < 0) {
			*err = later;
			r = told;
		}
	}
	wire_shared_free(&c.shared);
	buf_free(&c.dir_steps);
	for (size_t i = 0; i < WIRE_FETCH_SLOTS; i++)
		free(c.fetched[i]);
	return r;
}
