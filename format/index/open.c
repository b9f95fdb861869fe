/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Opening a state: what RocksDB stands for, and the journal from there on.
 *
 * RocksDB is only trusted as far as the journal bears it out: it must open, say for which seq it stands, and the journal
 * must reach that far and apply without contradiction. Else the index is made anew: emptied, filled from the newest .ckp
 * file, and the journal behind that applied. Before anything is deleted the journal has been read to its end, so
 * that a damaged one costs nothing; and it must reach as far as the index did: that is written behind the journal (checkpoint.c), so
 * one that ends before it has lost files, and then the index is what is left of them. While the index is made anew it has no cursor, and so nobody will trust it half done.
 *
 * Lost power. When the boot id differs from that of the last MOUNT, payloads behind the last SYNC may be missing, and
 * the order in which the journal's own pages reached the device is anybody's guess. So the tail is read twice: first for
 * the last SYNC and MOUNT, then to apply it, with each doubtful payload checked. If a write was dropped, the journal is
 * compacted before the new MOUNT is written: else a later replay, in the new boot, would believe the record. If that is
 * interrupted, the index remembers it (must_compact), or, made anew, meets the record and checks it again.
 */
#include "format/index/state_private.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define DEFAULT_INDEX_MEMORY (256ull << 20)
#define DEFAULT_JOURNAL_SIZE (16ull << 20)
#define REBUILD_DIRTY_BYTES  (600ull << 20) /* what a rebuild may keep in memory before it writes it out */
#define LOAD_BATCH_BYTES     (4u << 20)

struct opening {
	struct state *st;
	struct state_report *report;
	struct cistern_error *err;
	struct journal_end end;
	uint8_t boot_id[STATE_BOOT_ID_BYTES];      /* of now */
	uint8_t last_boot_id[STATE_BOOT_ID_BYTES]; /* of the last MOUNT; zero: none */
	uint64_t sync_upto;
	uint64_t index_seq; /* what the index stood for; 0: it does not say */
	bool rebuilding;
	bool index_wrong; /* what failed speaks against the index, not the journal */
	bool cut;         /* the journal has a tail to be cut */
};

/* ---- which boot */

static int hex_digit(char c)
{
	return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static void read_boot_id(const uint8_t *given, uint8_t out[STATE_BOOT_ID_BYTES])
{
	char text[64] = { 0 };
	int fd, num = 0;
	ssize_t n;

	memset(out, 0, STATE_BOOT_ID_BYTES);
	if (given) {
		memcpy(out, given, STATE_BOOT_ID_BYTES);
		return;
	}
	fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return;
	n = read(fd, text, sizeof text - 1);
	close(fd);
	for (ssize_t i = 0; i < n && num < 2 * STATE_BOOT_ID_BYTES; i++) {
		int digit = hex_digit(text[i]);

		if (digit < 0)
			continue;
		out[num / 2] = (uint8_t)(out[num / 2] << 4 | digit);
		num++;
	}
}

static bool is_zero(const uint8_t id[STATE_BOOT_ID_BYTES])
{
	static const uint8_t zero[STATE_BOOT_ID_BYTES];

	return memcmp(id, zero, sizeof zero) == 0;
}

static bool same_boot(const struct opening *op)
{
	return memcmp(op->boot_id, op->last_boot_id, STATE_BOOT_ID_BYTES) == 0;
}

static bool was_rebooted(const struct opening *op)
{
	return !is_zero(op->last_boot_id) && !same_boot(op);
}

/* ---- the journal's tail */

static int scan_record(const struct record *rec, void *arg)
{
	struct opening *op = arg;

	if (rec->type == RECORD_SYNC && rec->upto > op->sync_upto)
		op->sync_upto = rec->upto;
	if (rec->type == RECORD_MOUNT && rec->key && rec->key_len == STATE_BOOT_ID_BYTES)
		memcpy(op->last_boot_id, rec->key, STATE_BOOT_ID_BYTES);
	return 0;
}

/* What reading the journal's end means. 0: it ends there, and what follows may be cut. */
static int judge_end(struct opening *op, int r)
{
	op->report->rebooted = was_rebooted(op);
	op->cut = op->end.cut_bytes > 0;
	if (r != -EBADMSG && r != -ENOENT)
		return r;
	if (!op->report->rebooted || !op->end.unsynced || op->end.last_seq < op->st->seq)
		return r;
	op->cut = true;
	return 0;
}

/* Read the tail to its end, for what must be known before it is applied. */
static int scan_tail(struct opening *op, uint64_t after)
{
	op->sync_upto = op->st->meta.sync_upto;
	memcpy(op->last_boot_id, op->st->meta.boot_id, STATE_BOOT_ID_BYTES);
	return judge_end(op, journal_replay(op->st->opt.io, after, scan_record, op, &op->end, op->err));
}

static uint64_t payload_bytes(const struct record *rec)
{
	uint64_t bytes = 0;

	if (rec->type == RECORD_WRITE)
		return rec->len;
	for (size_t i = 0; i < rec->num_ranges; i++)
		bytes += rec->ranges[i].len;
	return bytes;
}

/* May what it names be lost? */
static bool is_unsynced(const struct opening *op, const struct record *rec)
{
	return op->report->rebooted && rec->seq > op->sync_upto;
}

static bool doubtful(const struct opening *op, const struct record *rec)
{
	return (rec->type == RECORD_WRITE || rec->type == RECORD_EXTENTS) && is_unsynced(op, rec) &&
	       op->st->opt.check_payload;
}

static bool names_private(const struct record *rec)
{
	return (rec->type == RECORD_CREATE && rec->segment) || rec->type == RECORD_PRIVATE || rec->type == RECORD_SEAL;
}

/* *ret_bytes: how much of a SEAL's there is; the rest shows zeros. */
static int find_private(struct opening *op, const struct record *rec, uint64_t *ret_bytes)
{
	int r = op->st->opt.find_private ? op->st->opt.find_private(rec, ret_bytes, op->st->opt.arg) : 0;

	if (r > 0)
		r = lost_note(op->st, rec->ino);
	return r < 0 ? cistern_error_set(op->err, r,
			       "journal: the private segment %" PRIu32 " of record %" PRIu64 " cannot be had: %s",
			       rec->segment, rec->seq, strerror(-r))
		     : 0;
}

/* -EBADMSG: not there. */
static int check_payload(struct opening *op, const struct record *rec)
{
	int r = op->st->opt.check_payload(rec, op->st->opt.arg);

	if (r == -EBADMSG) {
		op->st->must_compact = true;
		op->report->dropped_writes++;
		op->report->dropped_bytes += payload_bytes(rec);
	} else if (r < 0) {
		cistern_error_set(op->err, r, "journal: the payload of record %" PRIu64 " cannot be checked: %s",
			rec->seq, strerror(-r));
	}
	return r;
}

static int keep_memory_bounded(struct opening *op)
{
	struct cache *c = &op->st->cache;
	int r = 0;

	if (op->rebuilding && c->dirty_bytes > REBUILD_DIRTY_BYTES)
		r = cache_write(c, false, NULL, NULL, op->err);
	cache_trim(c);
	return r;
}

/* A SEAL, of which there are so many bytes. */
static int step_cut(struct state *st, const struct record *rec, uint64_t bytes)
{
	struct record_range *ranges = calloc(rec->num_ranges + 1, sizeof(*ranges));
	struct record *cut = malloc(sizeof(*cut));
	int r = -ENOMEM;

	if (ranges && cut) {
		*cut = *rec;
		cut->ranges = ranges;
		cut->num_ranges = 0;
		for (size_t i = 0; i < rec->num_ranges; i++) {
			struct record_range *to = &ranges[cut->num_ranges];

			*to = rec->ranges[i];
			if (to->off >= bytes)
				continue;
			to->len = to->len < bytes - to->off ? to->len : bytes - to->off;
			cut->num_ranges++;
		}
		r = state_step(st, cut);
	}
	free(ranges);
	free(cut);
	return r;
}

static int step(struct opening *op, const struct record *rec)
{
	uint64_t bytes = UINT64_MAX;
	int r = names_private(rec) && is_unsynced(op, rec) ? find_private(op, rec, &bytes) : 0;

	if (r < 0)
		return r;
	r = rec->type == RECORD_SEAL && bytes < rec->size ? step_cut(op->st, rec, bytes) : state_step(op->st, rec);
	if (r < 0) {
		op->index_wrong = r != -ENOMEM;
		return cistern_error_set(op->err, r == -ENOMEM ? r : -EBADMSG,
			"journal: record %" PRIu64 " (%s, inode %" PRIu64 ", parent %" PRIu64
			", name \"%s\") contradicts the state: %s; run \"cistern fsck\" on the store",
			rec->seq, record_type_name(rec->type), rec->ino, rec->parent, rec->name, strerror(-r));
	}
	return 0;
}

static int replay_record(const struct record *rec, void *arg)
{
	struct opening *op = arg;
	int r;

	op->report->replayed_records++;
	if (doubtful(op, rec)) {
		r = check_payload(op, rec);
		if (r == -EBADMSG)
			op->st->seq = rec->seq;
		if (r < 0)
			return r == -EBADMSG ? 0 : r;
	}
	r = step(op, rec);
	return r < 0 ? r : keep_memory_bounded(op);
}

static int apply_tail(struct opening *op, uint64_t after)
{
	int r = journal_replay(op->st->opt.io, after, replay_record, op, &op->end, op->err);

	if (r < 0 && op->index_wrong)
		return r;
	r = judge_end(op, r);
	op->report->cut_bytes = op->end.cut_bytes;
	return r;
}

/* ---- RocksDB as it is */

static void close_index(struct state *st)
{
	cache_free(&st->cache);
	db_close(st->db);
	st->db = NULL;
	st->meta = (struct meta){ .next_ino = STATE_ROOT_INO + 1 };
	st->seq = st->checkpoint_seq = st->compacted_bytes = 0;
	st->failed = 0;
	st->must_compact = false;
}

static bool marked_damaged(const struct state *st)
{
	char *path = NULL;
	bool marked;

	if (asprintf(&path, "%s/%s", st->index_path, STATE_DAMAGED_FILE) < 0)
		return false;
	marked = access(path, F_OK) == 0;
	free(path);
	return marked;
}

/* -ENOENT, -EBADMSG: not to be trusted, or not there. */
static int open_index(struct opening *op, enum db_mode mode)
{
	struct state *st = op->st;
	int r;

	if (marked_damaged(st))
		return cistern_error_set(op->err, -EBADMSG, "index: %s was found damaged", st->index_path);
	r = db_open(st->index_path, mode, &st->db, op->err);
	if (r < 0)
		return r;
	r = state_load_cursor(st);
	if (r == -EPROTONOSUPPORT)
		return cistern_error_set(op->err, r,
			"index: a newer Cistern wrote %s; use that version, or a newer one, for this store. Nothing in it has "
			"been changed",
			st->index_path);
	if (r < 0)
		return cistern_error_set(op->err, -EBADMSG, "index: %s does not say for which record it stands: %s",
			st->index_path, strerror(-r));
	op->index_seq = st->seq;
	return cache_init(&st->cache, st->db, st->opt.index_memory);
}

/* The journal has been read to its end, and holds less than was on the device once. */
static int refuse_lost(struct opening *op)
{
	int has = op->end.last_seq == 0 && op->st->opt.has_segments ? op->st->opt.has_segments(op->st->opt.arg) : 0;

	if (has < 0)
		return cistern_error_set(op->err, has, "segments cannot be listed: %s", strerror(-has));
	if (has > 0 && op->index_seq == 0)
		return cistern_error_set(op->err, -EBADMSG,
			"journal: has no record, but there are segments: its files were lost; put them back");
	if (has == 0 && op->index_seq <= op->end.last_seq)
		return 0;
	return cistern_error_set(op->err, -EBADMSG,
		"journal: ends with record %" PRIu64 ", and the index stands for %" PRIu64
		": journal files, or the end of one, were lost; put them back, or run \"cistern fsck\" on the store",
		op->end.last_seq, op->index_seq);
}

/* The index as it is, and the tail applied. index_wrong: it would be worth a try to make it anew. */
static int open_with_tail(struct opening *op, enum db_mode mode)
{
	struct state *st = op->st;
	int r;

	r = open_index(op, mode);
	if (r < 0) {
		op->index_wrong = r == -ENOENT || r == -EBADMSG;
		return r;
	}
	memcpy(op->last_boot_id, st->meta.boot_id, STATE_BOOT_ID_BYTES);
	r = same_boot(op) ? 0 : scan_tail(op, st->seq);
	if (r == 0)
		r = apply_tail(op, st->seq);
	/* The journal ends before, or begins behind, what the index stands for. */
	if (r == -ENOENT || (r == -EBADMSG && op->end.unsynced && op->end.last_seq < st->seq))
		op->index_wrong = true;
	return r < 0 ? r : refuse_lost(op);
}

/* ---- RocksDB anew */

struct loading {
	struct db *db;
	struct db_batch *batch;
	struct cistern_error *err;
};

static int load_record(const struct record *rec, void *arg)
{
	struct loading *l = arg;
	struct key_parts parts;
	int r = 0;

	if (key_parse(rec->key, rec->key_len, &parts) < 0)
		return cistern_error_set(l->err, -EBADMSG, "journal: the checkpoint file has a key of no known kind");
	db_batch_put(l->batch, rec->key, rec->key_len, rec->value, rec->value_len);
	if (db_batch_bytes(l->batch) > LOAD_BATCH_BYTES) {
		r = db_write(l->db, l->batch, l->err);
		db_batch_clear(l->batch);
	}
	return r;
}

/* What the newest .ckp file stands for; 0 when there is none. */
static int load_checkpoint_file(struct opening *op, uint64_t *ret_seq)
{
	struct loading l = { .db = op->st->db, .err = op->err };
	int r;

	*ret_seq = 0;
	r = db_batch_create(&l.batch);
	if (r < 0)
		return r;
	r = journal_checkpoint_load(op->st->opt.io, load_record, &l, ret_seq, op->err);
	if (r == 0)
		r = db_write(op->st->db, l.batch, op->err);
	db_batch_destroy(l.batch);
	return r == -ENOENT ? 0 : r;
}

static int load_numbers(struct opening *op)
{
	struct key key;
	size_t len;
	char *val;
	int r;

	key_meta(&key, KEY_META_STATE);
	r = db_get(op->st->db, key.bytes, key.len, &val, &len);
	if (r == 0) {
		r = meta_decode(val, len, &op->st->meta);
		free(val);
	}
	return r < 0 ? cistern_error_set(op->err, r == -ENOENT ? -EBADMSG : r,
			       "journal: the numbers in the checkpoint file are missing or damaged: %s", strerror(-r))
		     : 0;
}

/* Of a checkpoint file: the numbers, for its boot id and last SYNC. */
static int scan_numbers(const struct record *rec, void *arg)
{
	struct opening *op = arg;
	struct key key;

	key_meta(&key, KEY_META_STATE);
	if (rec->key_len == key.len && memcmp(rec->key, key.bytes, key.len) == 0)
		return meta_decode(rec->value, rec->value_len, &op->st->meta);
	return 0;
}

/* A journal file is not there, and there is nothing else to go by: to whoever opens the store that is damage. */
static int damaged_if_lost(struct opening *op, int r)
{
	if (r != -ENOENT)
		return r;
	if (op->err)
		op->err->code = -EBADMSG;
	return -EBADMSG;
}

/* Can the journal be read to its end? Asked before anything is deleted for its sake. */
static int check_journal(struct opening *op)
{
	uint64_t seq;
	int r;

	r = journal_checkpoint_load(op->st->opt.io, scan_numbers, op, &seq, op->err);
	if (r < 0 && r != -ENOENT)
		return r;
	return damaged_if_lost(op, scan_tail(op, r == -ENOENT ? 0 : seq));
}

static int rebuild(struct opening *op)
{
	struct state *st = op->st;
	uint64_t seq;
	int r;

	close_index(st);
	if (st->tell_freed)
		st->opt.freed(0, 0, 0, 0, st->opt.freed_arg);
	*op->report = (struct state_report){ 0 };
	op->index_wrong = false;
	op->rebuilding = true;
	r = check_journal(op);
	if (r == 0)
		r = refuse_lost(op);
	st->meta = (struct meta){ .next_ino = STATE_ROOT_INO + 1 };
	if (r == 0)
		r = db_wipe(st->index_path, op->err);
	if (r == 0)
		r = db_open(st->index_path, DB_CREATE, &st->db, op->err);
	if (r == 0)
		r = cache_init(&st->cache, st->db, st->opt.index_memory);
	if (r == 0)
		r = load_checkpoint_file(op, &seq);
	if (r == 0 && seq)
		r = load_numbers(op);
	if (r < 0)
		return r;
	st->seq = seq;
	r = apply_tail(op, seq);
	op->report->rebuilt = st->seq > 0;
	return r;
}

/* ---- modes */

/* The doubtful records are out of the state: now out of the journal, before a MOUNT says that all is well. */
static int settle_dropped(struct opening *op)
{
	int r = op->st->must_compact ? state_compact(op->st) : 0;

	return r < 0 ? cistern_error_set(op->err, r, "journal: cannot be compacted: %s", strerror(-r)) : 0;
}

/*
 * In a store's first life the journal's header is made durable before the MOUNT, and that before anything follows it: without them nobody could
 * tell a journal that was lost with the power from a damaged one.
 */
static int sync_if_first(struct opening *op)
{
	int r = is_zero(op->last_boot_id) ? journal_sync(op->st->journal, NULL) : 0;

	return r < 0 ? cistern_error_set(op->err, r, "journal: cannot be synced: %s", strerror(-r)) : 0;
}

static int commit_mount(struct opening *op)
{
	const struct state_options *opt = &op->st->opt;
	struct record rec = { .type = RECORD_MOUNT,
		.key = op->boot_id,
		.key_len = sizeof op->boot_id,
		.value = (const uint8_t *)opt->version,
		.value_len = opt->version ? strlen(opt->version) : 0 };
	int r = opt->before_mount ? opt->before_mount(op->report, opt->arg) : 0;

	if (r < 0)
		return cistern_error_set(op->err, r, "a loss of power cannot be noted: %s", strerror(-r));
	r = sync_if_first(op);
	if (r == 0) {
		r = state_commit(op->st, &rec);
		if (r < 0)
			return cistern_error_set(op->err, r, "journal: cannot be appended to: %s", strerror(-r));
	}
	return r < 0 ? r : sync_if_first(op);
}

/* Inodes that had no name but users when the last daemon ended: now they have no users. */
static int free_orphans(struct opening *op)
{
	struct state *st = op->st;
	struct merge_entry e;
	struct key prefix;
	int r;

	key_kind(&prefix, KEY_ORPHAN);
	for (;;) {
		struct record rec = { .type = RECORD_FREE };
		struct key_parts parts = { 0 };
		struct merge m;
		int end;

		r = merge_begin(&m, &st->cache, &prefix, NULL);
		if (r < 0)
			break;
		r = merge_next(&m, &e);
		if (r > 0)
			r = key_parse(e.key, e.key_len, &parts) < 0 ? -EBADMSG : 1;
		end = merge_end(&m);
		r = end < 0 ? end : r;
		if (r <= 0)
			break;
		rec.ino = parts.id;
		r = state_commit(st, &rec);
		if (r < 0)
			break;
		op->report->orphans++;
	}
	return r < 0 ? cistern_error_set(op->err, r, "index: inodes without names cannot be freed: %s", strerror(-r))
		     : 0;
}

/*
 * The index that was made anew. A daemon that was killed may have left payloads in the page cache, and what the index stands for is never asked for
 * its payload again: so they go to the device first.
 */
static int write_rebuilt(struct opening *op)
{
	struct state *st = op->st;
	int r = st->opt.sync_payloads ? st->opt.sync_payloads(st->opt.arg) : 0;

	if (r < 0)
		return cistern_error_set(op->err, r, "journal: what it tells of cannot be synced: %s", strerror(-r));
	r = state_write_index(st, false, op->err);
	return r < 0 ? r : db_flush(st->db, op->err);
}

/* From here on the state can be committed to. */
static int begin_journal(struct opening *op)
{
	struct state *st = op->st;
	int r = 0;

	if (op->cut)
		r = journal_cut(st->opt.io, &op->end, op->err);
	if (r == 0)
		r = journal_create(st->opt.io, st->opt.journal_size, st->seq + 1, &st->journal, op->err);
	if (r == 0 && op->rebuilding)
		r = write_rebuilt(op);
	if (r == 0)
		r = settle_dropped(op);
	/* The index may stand for more than the journal says to be durable: the next sync, which covers all, is to say so. */
	st->payload_seq = st->seq;
	if (r == 0)
		r = commit_mount(op);
	return r < 0 ? r : free_orphans(op);
}

/* What no second reading of the journal would find again is kept by the state. */
static int report_found(struct opening *op)
{
	int r = lost_settle(op->st);

	op->report->lost_private = op->st->num_lost;
	op->report->clean = op->st->meta.clean;
	op->report->last_seq = op->st->seq;
	return r < 0 ? cistern_error_set(op->err, r == -EBADMSG ? -EIO : r,
			       "index: what was lost cannot be looked up: %s", strerror(-r))
		     : 0;
}

/* On demand, whatever the index is worth: but if it says what it stands for, that is heard. */
static int rebuild_on_demand(struct opening *op)
{
	(void)open_index(op, DB_READ_ONLY);
	return rebuild(op);
}

static int open_index_alone(struct opening *op)
{
	int r = open_index(op, DB_READ_WRITE);

	memcpy(op->last_boot_id, op->st->meta.boot_id, STATE_BOOT_ID_BYTES);
	op->report->rebooted = was_rebooted(op);
	op->st->must_compact = true; /* what the journal has must be gone before anything follows it */
	return r;
}

static int open_for_writing(struct opening *op)
{
	switch (op->st->opt.mode) {
	case STATE_REBUILD: return rebuild_on_demand(op);
	case STATE_INDEX_ALONE: return open_index_alone(op);
	default: return open_with_tail(op, DB_READ_WRITE);
	}
}

static int open_read_write(struct opening *op)
{
	int r;

	op->st->tell_freed = op->st->opt.freed;
	r = open_for_writing(op);
	if (r < 0 && op->index_wrong && !op->rebuilding)
		r = rebuild(op);
	r = r < 0 ? r : report_found(op);
	return r < 0 ? r : begin_journal(op);
}

static int make_scratch(struct opening *op)
{
	const char *tmp = getenv("TMPDIR");
	char *path = NULL, *copy;

	if (asprintf(&path, "%s/cistern-index-XXXXXX", tmp && *tmp ? tmp : "/tmp") < 0)
		return -ENOMEM;
	if (!mkdtemp(path)) {
		cistern_error_set(op->err, -errno, "index: cannot make a temporary directory %s: %s; set TMPDIR", path,
			strerror(errno));
		free(path);
		return op->err ? op->err->code : -EIO;
	}
	op->st->scratch = path;
	copy = strdup(path);
	if (!copy)
		return -ENOMEM;
	free(op->st->index_path);
	op->st->index_path = copy;
	return 0;
}

static int open_read_only(struct opening *op)
{
	int r = open_with_tail(op, DB_READ_ONLY);

	if (r == 0 || !op->index_wrong)
		return r;
	r = make_scratch(op);
	return r < 0 ? r : rebuild(op);
}

static int open_by_mode(struct opening *op)
{
	int r;

	switch (op->st->opt.mode) {
	case STATE_READ_WRITE:
	case STATE_REBUILD:
	case STATE_INDEX_ALONE: return open_read_write(op);
	case STATE_READ_ONLY: r = open_read_only(op); break;
	case STATE_SNAPSHOT: r = open_index(op, DB_READ_ONLY); break;
	case STATE_REBUILD_READ_ONLY: r = rebuild(op); break;
	default: r = -EINVAL;
	}
	return r < 0 ? r : report_found(op);
}

static int state_create(const struct state_options *opt, struct state **ret)
{
	struct state *st = calloc(1, sizeof *st);

	if (!st)
		return -ENOMEM;
	st->opt = *opt;
	if (!st->opt.index_memory)
		st->opt.index_memory = DEFAULT_INDEX_MEMORY;
	if (!st->opt.journal_size)
		st->opt.journal_size = DEFAULT_JOURNAL_SIZE;
	pthread_mutex_init(&st->checkpoint_lock, NULL);
	pthread_mutex_init(&st->lock, NULL);
	clock_init(&st->clock);
	st->clock_file = clock_file_open();
	st->meta.next_ino = STATE_ROOT_INO + 1;
	st->index_path = strdup(opt->index_path);
	if (!st->index_path) {
		state_destroy(st);
		return -ENOMEM;
	}
	*ret = st;
	return 0;
}

int state_open(
	const struct state_options *opt, struct state **ret, struct state_report *ret_report, struct cistern_error *err)
{
	struct state_report report = { 0 };
	struct opening op = { .report = &report, .err = err };
	int r;

	r = state_create(opt, &op.st);
	if (r < 0)
		return cistern_error_set(err, r, "index: %s", strerror(-r));
	read_boot_id(opt->boot_id, op.boot_id);
	r = open_by_mode(&op);
	op.st->opt.index_path = NULL; /* borrowed for the call only */
	op.st->opt.boot_id = NULL;
	op.st->opt.check_payload = NULL;
	op.st->opt.find_private = NULL;
	op.st->opt.has_segments = NULL;
	op.st->opt.before_mount = NULL;
	if (r < 0) {
		state_destroy(op.st);
		return r;
	}
	if (err)
		*err = (struct cistern_error){ 0 }; /* what was overcome on the way */
	clock_heard(&op.st->clock, (int64_t)op.st->meta.clock_ns);
	*ret = op.st;
	if (ret_report)
		*ret_report = report;
	return 0;
}
