/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * From records to the state: the table. Each record type has a check, which changes nothing and says whether the record
 * fits the state, and an application, which then cannot be refused any more. So a commit is check, append, apply: what
 * is refused is not in the journal, and what is in the journal applies. docs/design/one-node.md, section 3, says what
 * each one means.
 */
#include "format/index/state_private.h"

#include <errno.h>
#include <string.h>

static int check_nothing(struct state *st, const struct record *rec)
{
	(void)st;
	(void)rec;
	return 0;
}

static int apply_mount(struct state *st, const struct record *rec)
{
	memset(st->meta.boot_id, 0, sizeof st->meta.boot_id);
	if (rec->key && rec->key_len == sizeof st->meta.boot_id)
		memcpy(st->meta.boot_id, rec->key, rec->key_len);
	return 0;
}

static int apply_unmount(struct state *st, const struct record *rec)
{
	(void)rec;
	st->meta.clean = true;
	return 0;
}

static int apply_sync(struct state *st, const struct record *rec)
{
	if (rec->upto > st->meta.sync_upto)
		st->meta.sync_upto = rec->upto;
	return 0;
}

static const struct {
	int (*check)(struct state *st, const struct record *rec);
	int (*apply)(struct state *st, const struct record *rec);
} operations[RECORD_TYPE_END] = {
	[RECORD_MOUNT] = { check_nothing, apply_mount },
	[RECORD_UNMOUNT] = { check_nothing, apply_unmount },
	[RECORD_SYNC] = { check_nothing, apply_sync },
	[RECORD_CREATE] = { check_create, apply_create },
	[RECORD_ADOPT] = { check_adopt, apply_adopt },
	[RECORD_LINK] = { check_link, apply_link },
	[RECORD_UNLINK] = { check_unlink, apply_unlink },
	[RECORD_RENAME] = { check_rename, apply_rename },
	[RECORD_FREE] = { check_free, apply_free },
	[RECORD_FORGET] = { check_forget, apply_forget },
	[RECORD_SETATTR] = { check_setattr, apply_setattr },
	[RECORD_SETXATTR] = { check_setxattr, apply_setxattr },
	[RECORD_REMOVEXATTR] = { check_removexattr, apply_removexattr },
	[RECORD_TRUNCATE] = { check_truncate, apply_truncate },
	[RECORD_WRITE] = { check_write, apply_write },
	[RECORD_EXTENTS] = { check_extents, apply_extents },
	[RECORD_PUNCH] = { check_punch, apply_punch },
	[RECORD_PRIVATE] = { check_private, apply_private },
	[RECORD_SEAL] = { check_seal, apply_seal },
	[RECORD_THROUGH] = { check_through, apply_through },
	[RECORD_PLACED] = { check_placed, apply_placed },
	[RECORD_REMOVED] = { check_removed, apply_removed },
	[RECORD_DRAINED] = { check_drained, apply_drained },
	[RECORD_SHARE] = { check_share, apply_share },
	[RECORD_FOREIGN] = { check_foreign, apply_foreign },
	[RECORD_COMMITTED] = { check_committed, apply_committed },
	[RECORD_SHARE_PUT] = { check_share_put, apply_share_put },
	[RECORD_SHARE_CUT] = { check_share_cut, apply_share_cut },
	[RECORD_SHARE_DROP] = { check_share_drop, apply_share_drop },
	[RECORD_SHARE_LOST] = { check_share_lost, apply_share_lost },
};

/* A change of the directory tree is applied once, and they come in order. */
static int check_tree(const struct state *st, const struct record *rec)
{
	if (!(rec->flags & RECORD_F_TREE))
		return 0;
	if (rec->stamp == 0)
		return -EINVAL;
	return rec->stamp <= st->meta.tree_stamp ? -EALREADY : 0;
}

int apply_check(struct state *st, const struct record *rec)
{
	int r;

	if ((unsigned int)rec->type >= RECORD_TYPE_END || !operations[rec->type].check)
		return -EINVAL;
	r = check_tree(st, rec);
	return r < 0 ? r : operations[rec->type].check(st, rec);
}

static void note_time(struct state *st, const struct record *rec)
{
	st->meta.timed = st->meta.job = true;
	if (rec->time_ns > 0 && (uint64_t)rec->time_ns > st->meta.clock_ns)
		st->meta.clock_ns = (uint64_t)rec->time_ns;
}

/* Stamps of commits and cuts are of the same clock; the next ones are to be higher. */
static void note_stamp(struct state *st, const struct record *rec)
{
	if (rec->type != RECORD_COMMITTED && rec->type != RECORD_SHARE_PUT && rec->type != RECORD_SHARE_CUT)
		return;
	if (rec->stamp > INT64_MAX / 1000 || rec->stamp * 1000 <= st->meta.clock_ns)
		return;
	st->meta.timed = st->meta.job = true;
	st->meta.clock_ns = rec->stamp * 1000;
}

static void note_tree_change(struct state *st, const struct record *rec)
{
	st->meta.tree_stamp = rec->stamp;
	st->meta.tree_time_ns = rec->time_ns > 0 ? (uint64_t)rec->time_ns : 0;
}

/* What it names a sync makes durable, and says so: bytes, or a private segment's name. */
static bool has_payload(const struct record *rec)
{
	return rec->type == RECORD_WRITE || rec->type == RECORD_EXTENTS || rec->type == RECORD_SEAL ||
	       rec->type == RECORD_PRIVATE || (rec->type == RECORD_CREATE && rec->segment);
}

int apply_record(struct state *st, const struct record *rec)
{
	int r;

	if (rec->type != RECORD_SYNC)
		st->meta.clean = false;
	r = operations[rec->type].apply(st, rec);
	if (r < 0)
		return r;
	st->seq = rec->seq;
	if (rec->flags & RECORD_F_TIMED)
		note_time(st, rec);
	note_stamp(st, rec);
	if (rec->writer)
		st->meta.writers = true;
	else if (record_is_of_job(rec))
		st->meta.job = true;
	if (rec->flags & RECORD_F_TREE)
		note_tree_change(st, rec);
	if (has_payload(rec))
		st->payload_seq = rec->seq;
	return 0;
}
