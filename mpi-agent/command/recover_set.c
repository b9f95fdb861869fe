/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Each store's state is a copy in memory, so it may be changed: a shared file's home gets a share map of all that the stores know
 * (format/store/unite.h). One whose home is lost gets a stand-in, in the store that knows most of its place.
 */
#include "mpi-agent/command/recover_set.h"

#include "mpi-agent/command/recover_names.h"
#include "mpi-agent/command/recover_tree.h"
#include "mpi-agent/command/say.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "format/base/array.h"
#include "format/base/clock.h"
#include "format/place/place.h"
#include "format/store/hosts.h"
#include "format/store/unite.h"
#include "mpi-agent/plan/names.h"
#include "mpi-agent/replay/located.h"

#define GAP_BYTES (1u << 30) /* in one record */

/* ---- the set */

static int check_member(const struct recover_set *set, const struct store *store, struct cistern_error *err)
{
	const struct superblock *sb = store_superblock(store), *other = NULL;
	char node[HOSTS_NODE_BYTES];

	for (uint32_t i = 0; i < set->num_nodes && !other; i++)
		if (set->stores[i])
			other = store_superblock(set->stores[i]);
	if (sb->num_nodes < 2)
		return cistern_error_set(err, -EINVAL,
			"%s is the store of one node alone, not of a job: recover it by itself", store_path(store));
	if (sb->node_index >= sb->num_nodes || sb->num_nodes > PLACE_NODES_MAX)
		return cistern_error_set(err, -EBADMSG, "%s: node %" PRIu32 " of %" PRIu32 ": run cistern fsck on it",
			store_path(store), sb->node_index, sb->num_nodes);
	if (!other)
		return 0;
	if (memcmp(other->job_uuid, sb->job_uuid, STORE_UUID_BYTES) != 0 || other->num_nodes != sb->num_nodes)
		return cistern_error_set(err, -EINVAL, "%s is a store of another job than the first one: leave it out",
			store_path(store));
	if (set->stores[sb->node_index])
		return cistern_error_set(err, -EINVAL, "%s and %s are both of %s: leave one out",
			store_path(set->stores[sb->node_index]), store_path(store),
			hosts_node_text(set->stores[sb->node_index], sb->node_index, node));
	return 0;
}

int recover_set_add(struct recover_set *set, struct store *store, struct cistern_error *err)
{
	const struct superblock *sb = store_superblock(store);
	int r = check_member(set, store, err);

	if (r == 0 && !set->stores) {
		set->stores = calloc(sb->num_nodes, sizeof(struct store *));
		set->lost = calloc(sb->num_nodes, sizeof(*set->lost));
		set->names = calloc(sb->num_nodes, sizeof(*set->names));
		set->located = calloc(sb->num_nodes, sizeof(struct located *));
		set->listed = calloc(sb->num_nodes, sizeof(*set->listed));
		set->num_nodes = sb->num_nodes;
		if (!set->stores || !set->lost || !set->names || !set->located || !set->listed)
			r = cistern_error_set(err, -ENOMEM, "out of memory");
	}
	if (r < 0) {
		store_abandon(store);
		return r;
	}
	set->stores[sb->node_index] = store;
	set->num++;
	return 0;
}

static void forget_places(struct recover_set *set)
{
	for (uint32_t i = 0; set->located && set->listed && i < set->num_nodes; i++) {
		located_destroy(set->located[i]);
		set->located[i] = NULL;
		idmap_free(&set->listed[i]);
		set->listed[i] = (struct idmap){ 0 };
	}
	free(set->parked);
	set->parked = NULL;
	set->num_parked = set->cap_parked = 0;
}

void recover_set_close(struct recover_set *set)
{
	forget_places(set);
	for (uint32_t i = 0; set->stores && i < set->num_nodes; i++)
		if (set->stores[i])
			store_abandon(set->stores[i]);
	for (size_t i = 0; i < set->num_overlaps; i++)
		share_conflicts_free(&set->overlaps[i].met);
	free(set->overlaps);
	free(set->located);
	free(set->listed);
	free(set->stores);
	free(set->names);
	free(set->lost);
	*set = (struct recover_set){ 0 };
}

bool recover_set_is_whole(const struct recover_set *set)
{
	return set->num == set->num_nodes;
}

void recover_set_say(const struct recover_set *set)
{
	for (uint32_t i = 0; i < set->num_nodes; i++)
		if (set->lost[i])
			printf("store of %s: not given; files that only this node had are not known, bytes of it in others' "
			       "files are missing\n",
				set->lost[i]);
}

/* ---- overlaps: those that the job's nodes have met; putting the layers together meets others, that were none */

static int add_overlap(const struct share_conflict *c, void *arg)
{
	return share_conflicts_add(arg, c, UINT32_MAX);
}

static int note_overlaps(struct recover_set *set, uint64_t ino)
{
	struct recover_overlaps o = { .ino = ino };
	int r = 0;

	for (uint32_t i = 0; r == 0 && i < set->num_nodes; i++) {
		uint64_t more = 0;

		if (set->stores[i])
			r = state_conflicts(store_state(set->stores[i]), ino, add_overlap, &o.met, &more);
		o.met.more += more;
	}
	if (r == 0 && o.met.num > 0)
		r = array_room(&set->overlaps, &set->cap_overlaps, set->num_overlaps, sizeof(*set->overlaps));
	if (r == 0 && o.met.num > 0)
		set->overlaps[set->num_overlaps++] = o;
	else
		share_conflicts_free(&o.met);
	return r;
}

static int compare_overlaps(const void *a, const void *b)
{
	const struct recover_overlaps *x = a, *y = b;

	return (x->ino > y->ino) - (x->ino < y->ino);
}

int recover_set_overlaps(
	uint64_t ino, int (*cb)(const struct share_conflict *c, void *arg), void *cb_arg, uint64_t *ret_more, void *arg)
{
	const struct recover_set *set = arg;
	const struct recover_overlaps key = { .ino = ino }, *o = NULL;
	int r = 0;

	if (set->num_overlaps > 0)
		o = bsearch(&key, set->overlaps, set->num_overlaps, sizeof(key), compare_overlaps);
	for (uint32_t i = 0; o && r == 0 && i < o->met.num; i++)
		r = cb(&o->met.list[i], cb_arg);
	*ret_more = o ? o->met.more : 0;
	return r;
}

/* ---- merging */

struct inos {
	uint64_t *at; /* owned */
	size_t num, cap;
};

static int add_ino(struct inos *list, uint64_t ino)
{
	if (array_room(&list->at, &list->cap, list->num, sizeof(*list->at)) < 0)
		return -ENOMEM;
	list->at[list->num++] = ino;
	return 0;
}

static int note_shared(const struct inode *in, void *arg)
{
	return in->flags & INODE_SHARED && S_ISREG(in->mode) ? add_ino(arg, in->ino) : 0;
}

static int compare_inos(const void *a, const void *b)
{
	const uint64_t *x = a, *y = b;

	return (*x > *y) - (*x < *y);
}

/* All inodes that are shared somewhere, each once. */
static int list_shared(const struct recover_set *set, struct inos *list)
{
	size_t kept = 0;
	int r = 0;

	for (uint32_t i = 0; r == 0 && i < set->num_nodes; i++)
		if (set->stores[i])
			r = state_each_inode(store_state(set->stores[i]), note_shared, list);
	if (list->num > 1)
		qsort(list->at, list->num, sizeof(*list->at), compare_inos);
	for (size_t i = 0; i < list->num; i++)
		if (i == 0 || list->at[i] != list->at[i - 1])
			list->at[kept++] = list->at[i];
	list->num = kept;
	return r;
}

struct target { /* where a shared file is put together */
	struct state *st;
	uint64_t ino;
	struct store_united united;
	bool stands_in; /* for one whose home is lost */
	bool unfound;   /* and of which a drain has carried something, or that was there before, and is not found */
};

static bool is_taken(const struct recover_set *set, uint64_t dir, const char *name)
{
	struct state_name there;

	for (uint32_t i = 0; i < set->num_nodes; i++)
		if (set->stores[i] && state_lookup(store_state(set->stores[i]), dir, name, &there) == 0)
			return true;
	return false;
}

/*
 * On the device that the job was mounted over: a file whose number was made from that of its backing file (fs/core/node.c), or that a drain has
 * carried, which the home has told.
 */
static bool is_same(const struct recover_set *set, const struct inode *in, const struct stat *st)
{
	struct stat top;

	return S_ISREG(st->st_mode) && fstat(set->backing_fd, &top) == 0 && st->st_dev == top.st_dev &&
	       (in->ino == (STATE_BACKING_INO_BIT | st->st_ino) || in->backing_ino == st->st_ino);
}

enum place { PLACE_FREE, PLACE_SAME, PLACE_TAKEN };

struct spot { /* in the backing directory */
	uint64_t parent;
	char name[RECORD_NAME_MAX + 1];
	struct stat was; /* what is there */
};

/* What stores know of the bytes of a file whose home is lost. */
struct known {
	bool has;           /* a layer has some, or a map names some: where, if not in a layer at hand, is lost */
	bool was_there;     /* it is known to have been in the backing directory */
	uint64_t carried;   /* all that was done with a stamp up to this one is there; 0: nothing is known to be */
	uint64_t cut;       /* stamp of the newest cut; 0: none */
	int64_t written_ns; /* the last change of the layers that have some, or were cut; 0: none */
};

/* What a store has of a file whose home is lost. */
struct remains {
	struct state *st;
	struct inode in;
	enum place remembered; /* what is where that store's node remembers it to have been */
	bool found;            /* as it was before the job, or as it was drained: */
	struct spot at;
	struct known known; /* by all stores */
};

/* ---- where the file is by now */

static bool is_new_dir(struct state *st, uint64_t dir)
{
	struct inode in;

	return dir != STATE_ROOT_INO && state_inode(st, dir, &in) == 0 && !in.origin_name[0];
}

/* What is at that place: nothing, the file as it was before the job or as it was drained, something else. -errno: who can say? */
static int look_at(const struct recover_set *set, uint32_t node, const struct inode *in, struct spot *at)
{
	char path[PATH_MAX];
	int r = located_child(set->located[node], at->parent, at->name, path, sizeof(path));

	if (r < 0)
		return r == -ENOENT ? PLACE_FREE : r == -ENAMETOOLONG ? PLACE_TAKEN : r;
	if (fstatat(set->backing_fd, path, &at->was, AT_SYMLINK_NOFOLLOW))
		return errno == ENOENT ? PLACE_FREE : PLACE_TAKEN;
	if (is_same(set, in, &at->was))
		return PLACE_SAME;
	/* A new directory has what a recovery before this one has put there. */
	return is_new_dir(store_state(set->stores[node]), at->parent) ? PLACE_FREE : PLACE_TAKEN;
}

static bool is_dir_there(struct state *st, uint64_t dir)
{
	struct inode in;

	return state_inode(st, dir, &in) == 0 && !(in.flags & INODE_ORPHAN);
}

/* The place that says what it is. */
static struct spot own_spot(const struct remains *r)
{
	const char *name = r->in.origin_name;
	struct spot own = { .parent = STATE_ROOT_INO };

	if (is_dir_there(r->st, r->in.origin_parent))
		own.parent = r->in.origin_parent;
	snprintf(own.name, sizeof(own.name), "%.200s%srecovered-inode-%" PRIu64, name, name[0] ? "." : "", r->in.ino);
	return own;
}

static int note_parked(struct recover_set *set, uint32_t node, uint64_t parent, int dirfd, const char *name)
{
	struct recover_parked p = { .node = node, .parent = parent };

	if (snprintf(p.name, sizeof(p.name), "%s", name) >= (int)sizeof(p.name) || /* not one of ours */
		fstatat(dirfd, name, &p.st, AT_SYMLINK_NOFOLLOW))
		return 0;
	if (array_room(&set->parked, &set->cap_parked, set->num_parked, sizeof(*set->parked)) < 0)
		return -ENOMEM;
	set->parked[set->num_parked++] = p;
	return 0;
}

/* Once: many files may be looked for in one directory. */
static int list_parked(struct recover_set *set, uint32_t node, uint64_t parent)
{
	char path[PATH_MAX];
	const struct dirent *e;
	DIR *dir = NULL;
	int fd, r;

	if (idmap_get(&set->listed[node], parent))
		return 0;
	r = idmap_set(&set->listed[node], parent, 1);
	if (r < 0 || located_child(set->located[node], parent, ".", path, sizeof(path)) < 0)
		return r;
	fd = openat(set->backing_fd, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd >= 0 && !(dir = fdopendir(fd)))
		close(fd);
	while (dir && r == 0 && (e = readdir(dir)))
		if (strncmp(e->d_name, NAMES_PARK_PREFIX, strlen(NAMES_PARK_PREFIX)) == 0)
			r = note_parked(set, node, parent, dirfd(dir), e->d_name);
	if (dir)
		closedir(dir);
	return r;
}

/* A recovery that died, or a drain, had moved it out of the way. */
static int is_parked(struct recover_set *set, uint32_t node, const struct inode *in, struct spot *at)
{
	int r = in->backing_ino ? list_parked(set, node, at->parent) : 0;

	for (size_t i = 0; r == 0 && in->backing_ino && i < set->num_parked; i++) {
		const struct recover_parked *p = &set->parked[i];

		if (p->node != node || p->parent != at->parent || !is_same(set, in, &p->st))
			continue;
		snprintf(at->name, sizeof(at->name), "%s", p->name);
		at->was = p->st;
		return 1;
	}
	return r;
}

/* Where the node remembers it; or where a recovery before this one has left it. */
static int find_place(struct recover_set *set, uint32_t node, struct remains *r)
{
	struct spot at = { .parent = r->in.origin_parent }, own = own_spot(r), parked = at;
	int place;

	memcpy(at.name, r->in.origin_name, sizeof(at.name));
	r->remembered = at.name[0] ? PLACE_FREE : PLACE_TAKEN;
	if (!at.name[0] || set->backing_fd < 0)
		return 0;
	place = look_at(set, node, &r->in, &at);
	if (place < 0)
		return place;
	r->remembered = place;
	r->at = at;
	if (place != PLACE_SAME && (place = look_at(set, node, &r->in, &own)) == PLACE_SAME)
		r->at = own;
	if (place >= 0 && place != PLACE_SAME) {
		int found = is_parked(set, node, &r->in, &parked);

		r->at = found > 0 ? parked : r->at;
		place = found < 0 ? found : found > 0 ? PLACE_SAME : place;
	}
	r->found = place == PLACE_SAME;
	return place < 0 ? place : 0;
}

static int knowledge(const struct remains *r)
{
	if (!r->in.origin_name[0])
		return 1;
	return r->found ? 4 : r->in.backing_ino ? 3 : 2;
}

/*
 * A node remembers the place of when it last opened the file for writing, or committed: it may have been moved since. So first counts that it
 * is found there; then that the node has heard of a drain, since all that a new file had before that is older; then whose layer was made, or
 * changed, last.
 */
static bool knows_more(const struct remains *r, const struct remains *than)
{
	int more = knowledge(r) - knowledge(than);

	return more ? more > 0 : r->in.mtime_ns > than->in.mtime_ns;
}

static int know_map(struct state *st, uint64_t ino, struct known *k)
{
	struct share_extent any;
	uint64_t next, size, usec;
	size_t num = 0;
	int r = state_share_extents(st, ino, 0, UINT64_MAX, &any, 1, &num, &next);

	k->has = num > 0;
	if (r == 0)
		r = state_share_newest_cut(st, ino, &size, &k->cut);
	return r < 0 ? r : state_share_drained(st, ino, &k->carried, &usec);
}

/*
 * Behind the map. What a layer had committed and has no more was carried, unless it was cut off behind that. The time of one of which all was
 * carried, or that never had any, says nothing.
 */
static int know_layer(struct state *st, const struct inode *in, struct known *k)
{
	struct layer_extent any;
	struct commit_point last = { 0 };
	uint64_t next;
	size_t num = 0;
	int r = state_layer(st, in->ino, 0, UINT64_MAX, &any, 1, &num, &next);

	if (r == 0 && num == 0)
		r = state_commit_by(st, in->ino, UINT64_MAX, &last, NULL);
	if (last.stamp > k->carried)
		k->carried = last.stamp;
	if (num > 0 || k->cut > k->carried)
		k->written_ns = in->mtime_ns;
	k->has |= num > 0;
	k->was_there = in->backing_ino != 0;
	return r;
}

static void know_all(struct known *all, const struct known *k)
{
	all->has |= k->has;
	all->was_there |= k->was_there;
	all->carried = k->carried > all->carried ? k->carried : all->carried;
	all->cut = k->cut > all->cut ? k->cut : all->cut;
	all->written_ns = k->written_ns > all->written_ns ? k->written_ns : all->written_ns;
}

/* There is nothing that the backing directory has not got, wherever that has it now, or has not got any more. */
static bool is_carried(const struct known *k)
{
	return !k->has && (k->was_there || k->carried) && k->cut <= k->carried;
}

/* A recovery before this one may have moved directories. */
static int locate_dirs(struct recover_set *set, uint32_t node)
{
	if (set->backing_fd < 0 || set->located[node])
		return 0;
	return located_create(set->stores[node], set->backing_fd, true, &set->located[node]);
}

/* *ret is replaced if this store knows more of the place, or ret_any says that none has known any. */
static int look_into(struct recover_set *set, uint32_t node, uint64_t ino, struct remains *ret, bool *ret_any)
{
	struct state *st = store_state(set->stores[node]);
	struct remains r = { .st = st };
	struct known k = { 0 }, all = ret->known;
	int rc = know_map(st, ino, &k);
	bool has_layer = rc == 0 && state_inode(st, ino, &r.in) == 0;

	if (has_layer)
		rc = know_layer(st, &r.in, &k);
	if (rc < 0)
		return rc;
	know_all(&all, &k);
	if (has_layer) {
		rc = locate_dirs(set, node);
		if (rc == 0)
			rc = find_place(set, node, &r);
		if (rc < 0)
			return rc;
		if (!*ret_any || knows_more(&r, ret))
			*ret = r;
		*ret_any = true;
	}
	ret->known = all;
	return 0;
}

/* Of the stores that have some of a file the one that knows most of its place; of equal ones the first. -ENOENT: none has. */
static int find_remains(struct recover_set *set, uint64_t ino, struct remains *ret)
{
	bool any = false;
	int r = 0;

	*ret = (struct remains){ 0 };
	for (uint32_t i = 0; r == 0 && i < set->num_nodes; i++)
		if (set->stores[i])
			r = look_into(set, i, ino, ret, &any);
	return r < 0 || any ? r : -ENOENT;
}

static void say_name(const struct inode *in, const char *name)
{
	say_recover("inode %" PRIu64 "%s%s: the store that has its name is lost: it becomes %s", in->ino,
		in->origin_name[0] ? ", known as " : "", in->origin_name, name);
}

/* The file lies there, though it has another name now. */
static void describe_place(const struct spot *at, const struct record *made, struct record *rec)
{
	*rec = (struct record){ .type = RECORD_PLACED,
		.flags = RECORD_F_MOVED,
		.ino = made->ino,
		.parent = at->parent,
		.from_parent = made->parent,
		.backing_dev = made->backing_dev,
		.backing_ino = made->backing_ino };
	memcpy(rec->name, at->name, sizeof(rec->name));
	memcpy(rec->from_name, made->name, sizeof(rec->from_name));
}

/* What was written behind the file that lies there makes it newer. */
static void adopt_place(const struct remains *r, struct record *rec)
{
	rec->type = RECORD_ADOPT;
	record_set_attributes(rec, &r->at.was);
	if (rec->mtime_ns < r->known.written_ns)
		rec->mtime_ns = r->known.written_ns;
	if (rec->ctime_ns < rec->mtime_ns)
		rec->ctime_ns = rec->mtime_ns;
}

/* A new file is where it is remembered to be when a recovery before this one has published it: with its time. */
static bool was_published(const struct remains *r, const struct record *rec)
{
	return !r->found && !r->known.was_there && !r->known.carried && r->in.origin_name[0] &&
	       S_ISREG(r->at.was.st_mode) && clock_ns_of(r->at.was.st_mtim) == rec->time_ns;
}

/*
 * The name is that of when a node opened the file last, if it is known at all. If another file has it by now, or its directory is gone, this
 * one gets a name that says what it is: what others have written to it was acknowledged, and nothing is replaced that may be whole. Should it
 * have been deleted, that is one file too many. place: where it is in the backing directory, if that is not under the name; else of no type.
 */
static void describe_stand_in(
	const struct recover_set *set, const struct remains *r, struct record *rec, struct record *place)
{
	const struct inode *in = &r->in;
	bool named = is_dir_there(r->st, in->origin_parent) && !is_taken(set, in->origin_parent, in->origin_name);
	struct spot own = own_spot(r);

	*rec = (struct record){ .type = RECORD_CREATE, .mode = in->mode, .uid = in->uid, .gid = in->gid };
	*place = (struct record){ .type = RECORD_TYPE_END };
	rec->ino = state_new_ino(r->st);
	rec->parent = own.parent;
	rec->time_ns = r->known.written_ns ? r->known.written_ns : in->mtime_ns;
	named = named && (r->remembered != PLACE_TAKEN || was_published(r, rec));
	if (r->found)
		adopt_place(r, rec);
	memcpy(rec->name, named ? in->origin_name : own.name, sizeof(rec->name));
	if (!named && !set->silent)
		say_name(in, rec->name);
	if (r->found && (r->at.parent != rec->parent || strcmp(r->at.name, rec->name) != 0))
		describe_place(&r->at, rec, place);
}

/* What its share map says counts. */
static int share_target(const struct target *t)
{
	struct record share = { .type = RECORD_SHARE, .ino = t->ino, .seq = state_seq(t->st) + 1 };

	return state_apply(t->st, &share);
}

/*
 * The home of ino is lost: a file in the store that knows most of its place, over what the backing directory has of it. -ENOENT: it is nowhere,
 * or was carried, and is not where it was known to be: under the name that it has by now, or deleted.
 */
static int make_stand_in(struct recover_set *set, uint64_t ino, struct target *t)
{
	struct record rec, place;
	struct remains remains;
	int r = find_remains(set, ino, &remains);

	if (r == 0 && !remains.found && is_carried(&remains.known))
		r = -ENOENT;
	if (r < 0)
		return r;
	describe_stand_in(set, &remains, &rec, &place);
	t->st = remains.st;
	t->ino = rec.ino;
	t->stands_in = true;
	t->unfound = !remains.found && (remains.known.was_there || remains.known.carried);
	rec.seq = state_seq(t->st) + 1;
	r = state_apply(t->st, &rec);
	place.seq = rec.seq + 1;
	if (r == 0 && place.type != RECORD_TYPE_END)
		r = state_apply(t->st, &place);
	return r < 0 ? r : share_target(t);
}

/* Its home may have forgotten, with its node's power, that others write it. */
static int find_target(struct recover_set *set, uint64_t ino, struct target *t)
{
	uint32_t home = place_ino(ino, set->num_nodes);
	struct inode in;
	int r;

	if (home >= set->num_nodes || !set->stores[home])
		return make_stand_in(set, ino, t);
	t->st = store_state(set->stores[home]);
	t->ino = ino;
	r = state_inode(t->st, ino, &in);
	return r < 0 || in.flags & (INODE_SHARED | INODE_PRIVATE) ? r : share_target(t);
}

static int truncate_target(const struct target *t, const struct inode *in, uint64_t size)
{
	struct record rec = { .type = RECORD_TRUNCATE, .ino = t->ino, .size = size, .seq = state_seq(t->st) + 1 };

	rec.time_ns = in->mtime_ns;
	return state_apply(t->st, &rec);
}

/* Its home may not have heard, or has forgotten, that there is something to carry. */
static int is_unheard(const struct target *t, const struct inode *in)
{
	struct share_extent any;
	uint64_t next;
	size_t num = 0;
	int r = 0;

	if (!(in->flags & (INODE_NEW | INODE_DIRTY_DATA)))
		r = state_share_extents(t->st, t->ino, 0, UINT64_MAX, &any, 1, &num, &next);
	return r < 0 ? r : num > 0;
}

/*
 * A file is as long as its home says, or, when that is lost, as what is known of it: at least as it was before, but for what was cut off. So it is
 * changed, too. Its bytes are found by the map, so that its layer ends with it does no harm.
 */
static int set_size(const struct target *t)
{
	struct inode in;
	int r = state_inode(t->st, t->ino, &in);
	bool changed = t->stands_in;

	if (r == 0)
		r = is_unheard(t, &in);
	changed |= r > 0;
	if (r >= 0 && in.backing_limit > t->united.limit) {
		r = truncate_target(t, &in, t->united.limit);
		changed = true;
	}
	return r >= 0 && (changed || in.size != t->united.size) ? truncate_target(t, &in, t->united.size) : r;
}

/* As bytes of the home: it alone knows where they are. */
static int lose(const struct target *t, uint32_t home, uint64_t off, uint64_t end)
{
	int r = 0;

	while (r == 0 && off < end) {
		struct record_piece piece = { .off = off, .segment = 1, .kind = EXTENT_LOG };
		struct record rec = { .type = RECORD_SHARE_PUT,
			.ino = t->ino,
			.node = home,
			.stamp = UINT64_MAX - 1,
			.pieces = &piece,
			.num_pieces = 1,
			.seq = state_seq(t->st) + 1 };

		piece.len = end - off < GAP_BYTES ? (uint32_t)(end - off) : GAP_BYTES;
		r = state_apply(t->st, &rec);
		off += piece.len;
	}
	return r;
}

/* Where the map has nothing, a file that is not found had what it was before. */
static int lose_rest(const struct recover_set *set, const struct target *t, uint64_t ino)
{
	uint64_t end = t->united.limit < t->united.size ? t->united.limit : t->united.size;
	uint32_t home = place_ino(ino, set->num_nodes);
	int r = 0;

	for (uint64_t off = 0, gap_end; r == 0 && off < end && home < set->num_nodes; off = gap_end) {
		struct share_extent e;
		uint64_t next;
		size_t num;

		r = state_share_extents(t->st, t->ino, off, end - off, &e, 1, &num, &next);
		if (r < 0)
			break;
		r = lose(t, home, off, num ? e.off : end);
		gap_end = num ? e.off + e.len : end;
	}
	return r;
}

static int merge_file(struct recover_set *set, uint64_t ino)
{
	size_t before = set->num_overlaps;
	struct target t = { 0 };
	int r = note_overlaps(set, ino);

	if (r == 0)
		r = find_target(set, ino, &t);
	if (r == 0 && set->num_overlaps > before)
		set->overlaps[before].ino = t.ino; /* a stand-in has another number */
	if (r == 0)
		r = store_unite(set->stores, set->num_nodes, ino, t.st, t.ino, &t.united);
	if (r == 0)
		r = set_size(&t);
	if (r == 0 && t.unfound)
		r = lose_rest(set, &t, ino);
	return r == -ENOENT ? 0 : r; /* deleted: what is left of it is of no use; or nothing is left of it */
}

/* ---- times of directories: each node knows those of its own changes of files in them, and of all changes of the tree */

struct dir_time {
	uint64_t ino;
	int64_t mtime_ns;
};

struct dir_times {
	struct dir_time *at; /* owned */
	size_t num, cap;
};

static int note_dir(const struct inode *in, void *arg)
{
	struct dir_times *d = arg;

	if (!S_ISDIR(in->mode) || !(in->flags & (INODE_NEW | INODE_DIRTY_META)))
		return 0;
	if (array_room(&d->at, &d->cap, d->num, sizeof(*d->at)) < 0)
		return -ENOMEM;
	d->at[d->num++] = (struct dir_time){ in->ino, in->mtime_ns };
	return 0;
}

/* By inode, the newest first. */
static int compare_dirs(const void *a, const void *b)
{
	const struct dir_time *x = a, *y = b;

	if (x->ino != y->ino)
		return x->ino < y->ino ? -1 : 1;
	return (x->mtime_ns < y->mtime_ns) - (x->mtime_ns > y->mtime_ns);
}

static int set_dir_time(struct state *st, const struct dir_time *newest)
{
	struct record rec = { .type = RECORD_SETATTR,
		.ino = newest->ino,
		.mask = RECORD_ATTR_MTIME | RECORD_ATTR_CTIME,
		.mtime_ns = newest->mtime_ns,
		.ctime_ns = newest->mtime_ns };
	struct inode in;

	if (state_inode(st, newest->ino, &in) < 0 || in.mtime_ns >= newest->mtime_ns)
		return 0;
	rec.gen = in.gen;
	rec.seq = state_seq(st) + 1;
	if (rec.ctime_ns < in.ctime_ns)
		rec.ctime_ns = in.ctime_ns;
	return state_apply(st, &rec);
}

static int merge_dir_times(struct recover_set *set)
{
	struct dir_times d = { 0 };
	int r = 0;

	for (uint32_t i = 0; r == 0 && i < set->num_nodes; i++)
		if (set->stores[i])
			r = state_each_inode(store_state(set->stores[i]), note_dir, &d);
	if (d.num > 1)
		qsort(d.at, d.num, sizeof(*d.at), compare_dirs);
	for (size_t k = 0; r == 0 && k < d.num; k++)
		for (uint32_t i = 0; r == 0 && i < set->num_nodes; i++)
			if (set->stores[i] && (k == 0 || d.at[k].ino != d.at[k - 1].ino))
				r = set_dir_time(store_state(set->stores[i]), &d.at[k]);
	free(d.at);
	return r;
}

/* ---- all of it */

static void choose_first(struct recover_set *set)
{
	for (uint32_t i = 0; i < set->num_nodes; i++) {
		struct store *s = set->stores[i];

		if (s &&
			(!set->first || state_tree_stamp(store_state(s)) > state_tree_stamp(store_state(set->first)))) {
			set->first = s;
			set->first_node = i;
		}
	}
}

/* The others were told where it was when the job assembled. */
static void name_lost(struct recover_set *set, uint32_t node)
{
	char host[HOSTS_NAME_BYTES] = "";

	for (uint32_t i = 0; !host[0] && i < set->num_nodes; i++)
		if (set->stores[i])
			(void)hosts_find(set->stores[i], node, host);
	set->lost[node] = place_node_text(node, host, set->names[node], sizeof(set->names[node]));
	if (!set->silent)
		say_recover("the store of %s of %" PRIu32 " nodes is not given", set->lost[node], set->num_nodes);
}

struct store *recover_set_first(struct recover_set *set)
{
	choose_first(set);
	return set->first;
}

int recover_set_merge(struct recover_set *set, int backing_fd, struct cistern_error *err)
{
	struct inos list = { 0 };
	int r;

	set->backing_fd = backing_fd;
	choose_first(set);
	for (uint32_t i = 0; i < set->num_nodes; i++)
		if (!set->stores[i])
			name_lost(set, i);
	r = recover_tree_follow(set);
	if (r == 0)
		r = recover_names_settle(set);
	if (r == 0)
		r = merge_dir_times(set);
	if (r == 0)
		r = list_shared(set, &list);
	for (size_t i = 0; r == 0 && i < list.num; i++)
		r = merge_file(set, list.at[i]);
	forget_places(set);
	free(list.at);
	if (set->num_overlaps > 0)
		qsort(set->overlaps, set->num_overlaps, sizeof(*set->overlaps), compare_overlaps);
	return r < 0 ? cistern_error_set(err, r,
			       "what the stores say of shared files and directories cannot be put together: %s",
			       strerror(-r))
		     : 0;
}
