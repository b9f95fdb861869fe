/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * The state to the device: checkpoints, compaction of the journal, snapshots.
 *
 * A checkpoint is one batch: all dirty items, the state's numbers and the cursor, that is, the seq that they stand for.
 * It is made under the lock, in memory; then payloads and journal are synced, and only then the batch is flushed. So
 * RocksDB on the device is never ahead of the journal on the device (RocksDB flushes of its own accord only when a later
 * batch comes), and a journal that ends before it has lost files (open.c). These waits are under checkpoint_lock alone: commits go on.
 *
 * Compaction: the journal begins a new file in the same moment as the batch is made, so the batch stands for exactly what
 * lies before that file. A walk over RocksDB, which sees nothing later, is written as the file's .ckp; when that is
 * whole and durable, the older journal files go.
 *
 * A failed checkpoint leaves everything dirty, and so nothing is lost. When the one whose task they are does not keep up
 * and memory fills, a commit makes one itself.
 */
#include "format/index/state_private.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define CURSOR_VERSION    1
#define WANT_ITEMS        200000u    /* dirty: what a checkpoint takes under the lock stays below half a second */
#define WANT_RECORDS      2000000u   /* since the last one: what a recovery replays stays below a few seconds */
#define INDEX_SLACK       (4u << 20) /* what RocksDB takes besides the changes */
#define COMPACT_MIN_FILES 4          /* journal files' worth of bytes before compaction is worth a thought */

/* ---- cursor and numbers */

static int put_meta(struct state *st, struct db_batch *b, struct buf *out)
{
	struct key key;
	int r;

	buf_reset(out);
	r = meta_encode(&st->meta, out);
	if (r < 0)
		return r;
	key_meta(&key, KEY_META_STATE);
	db_batch_put(b, key.bytes, key.len, out->data, out->len);
	buf_reset(out);
	buf_u8(out, CURSOR_VERSION);
	buf_u64(out, st->seq);
	buf_u64(out, st->compacted_bytes);
	buf_u8(out, st->must_compact);
	if (!buf_ok(out))
		return -ENOMEM;
	key_meta(&key, KEY_META_CURSOR);
	db_batch_put(b, key.bytes, key.len, out->data, out->len);
	return 0;
}

static int add_meta(struct db_batch *b, void *arg)
{
	BUF_CLEANUP struct buf out = { 0 };

	return put_meta(arg, b, &out);
}

int state_write_index(struct state *st, bool atomic, struct cistern_error *err)
{
	int r = cache_write(&st->cache, atomic, add_meta, st, err);

	if (r == 0)
		st->checkpoint_seq = st->seq;
	return r;
}

static int get_meta(struct state *st, enum key_meta which, char **ret_val, size_t *ret_len)
{
	struct key key;

	key_meta(&key, which);
	return db_get(st->db, key.bytes, key.len, ret_val, ret_len);
}

static int load_numbers(struct state *st)
{
	size_t len;
	char *val;
	int r;

	r = get_meta(st, KEY_META_STATE, &val, &len);
	if (r < 0)
		return r;
	r = meta_decode(val, len, &st->meta);
	free(val);
	return r;
}

int state_load_cursor(struct state *st)
{
	uint64_t seq, compacted_bytes;
	uint8_t version, must_compact;
	struct cursor c;
	size_t len;
	char *val;
	int r;

	r = get_meta(st, KEY_META_CURSOR, &val, &len);
	if (r < 0)
		return r;
	c = cursor_make(val, len);
	version = cursor_u8(&c);
	seq = cursor_u64(&c);
	compacted_bytes = cursor_u64(&c);
	must_compact = cursor_u8(&c);
	free(val);
	if (!cursor_ok(&c) || version != CURSOR_VERSION)
		return -EBADMSG;
	r = load_numbers(st);
	if (r < 0)
		return r;
	st->seq = st->checkpoint_seq = seq;
	st->compacted_bytes = compacted_bytes;
	st->must_compact = must_compact;
	return 0;
}

/* ---- checkpoint */

static bool read_only(const struct state *st)
{
	return !st->journal;
}

/*
 * The batch is made, and stands for upto: now everything to the device, the payloads and the journal first. What the index
 * stands for is never asked for its payload again, so none may be missing from it.
 */
static int make_durable(struct state *st, uint64_t upto, struct cistern_error *err)
{
	int r = st->opt.sync_payloads ? st->opt.sync_payloads(st->opt.arg) : 0;

	if (r == 0) {
		r = state_sync(st, upto, NULL);
		if (r == -ENOSPC) /* for the record of it, which the index does not need */
			r = journal_sync(st->journal, NULL);
	}
	if (r < 0) {
		/* RocksDB has it, and nobody may make it durable any more. */
		pthread_mutex_lock(&st->lock);
		state_fail(st, -EBADMSG);
		pthread_mutex_unlock(&st->lock);
		return cistern_error_set(err, r, "journal: sync failed: %s; remount the store", strerror(-r));
	}
	return db_flush(st->db, err);
}

/* RocksDB does not get over a flush that finds the device full before it is opened again. */
static void make_room(struct state *st)
{
	uint64_t bytes;

	pthread_mutex_lock(&st->lock);
	bytes = st->cache.dirty_bytes;
	pthread_mutex_unlock(&st->lock);
	if (st->opt.make_room)
		st->opt.make_room(bytes + INDEX_SLACK, st->opt.arg);
}

static int checkpoint(struct state *st, struct cistern_error *err)
{
	uint64_t upto;
	bool needed;
	int r;

	make_room(st);
	pthread_mutex_lock(&st->lock);
	needed = st->seq != st->checkpoint_seq;
	r = st->failed;
	if (r == 0 && needed)
		r = state_write_index(st, true, err);
	upto = st->checkpoint_seq;
	cache_trim(&st->cache);
	pthread_mutex_unlock(&st->lock);
	return r < 0 || !needed ? r : make_durable(st, upto, err);
}

int state_checkpoint(struct state *st)
{
	int r;

	if (read_only(st))
		return -EROFS;
	pthread_mutex_lock(&st->checkpoint_lock);
	r = checkpoint(st, NULL);
	pthread_mutex_unlock(&st->checkpoint_lock);
	return r;
}

bool state_wants_checkpoint(struct state *st)
{
	bool wants;

	pthread_mutex_lock(&st->lock);
	wants = st->journal && !st->failed &&
		(st->cache.num_dirty > WANT_ITEMS || st->cache.dirty_bytes > st->cache.limit / 2 ||
			st->seq - st->checkpoint_seq > WANT_RECORDS);
	pthread_mutex_unlock(&st->lock);
	return wants;
}

/* ---- compaction */

/* The index as of *ret_seq, which is all that lies before the journal file *ret_number. *ret NULL: it was written, but cannot be walked. */
static int begin_compaction(struct state *st, uint32_t *ret_number, uint64_t *ret_seq, struct db_walk **ret)
{
	int r;

	pthread_mutex_lock(&st->lock);
	r = st->failed;
	if (r == 0)
		r = journal_rotate(st->journal, ret_number);
	if (r == 0)
		r = state_write_index(st, true, NULL);
	if (r == 0 && db_walk_begin(st->db, NULL, 0, NULL, 0, false, ret) < 0)
		*ret = NULL;
	*ret_seq = st->seq;
	cache_trim(&st->cache);
	pthread_mutex_unlock(&st->lock);
	return r;
}

static bool is_cursor(const uint8_t *key, size_t len)
{
	return len == 2 && key[0] == KEY_META && key[1] == KEY_META_CURSOR;
}

static int copy_index(struct db_walk *w, struct journal_checkpoint *file, uint64_t *ret_bytes)
{
	const void *key, *val;
	size_t key_len, len;
	int r = 0;

	for (*ret_bytes = 0; r == 0 && db_walk_valid(w); db_walk_next(w)) {
		key = db_walk_key(w, &key_len);
		val = db_walk_value(w, &len);
		if (is_cursor(key, key_len))
			continue;
		r = journal_checkpoint_add(file, key, key_len, val, len);
		*ret_bytes += key_len + len;
	}
	return r;
}

static int write_checkpoint_file(struct state *st, struct db_walk *w, uint32_t number, uint64_t seq)
{
	struct journal_checkpoint *file;
	uint64_t bytes;
	int r, end;

	r = journal_checkpoint_begin(st->opt.io, number, &file);
	if (r < 0) {
		db_walk_end(w);
		return r;
	}
	r = copy_index(w, file, &bytes);
	end = db_walk_end(w);
	if (r == 0)
		r = end;
	if (r < 0) {
		journal_checkpoint_abort(file);
		return r;
	}
	r = journal_checkpoint_commit(file, seq);
	if (r < 0)
		return r;
	pthread_mutex_lock(&st->lock);
	st->compacted_bytes = bytes;
	pthread_mutex_unlock(&st->lock);
	return 0;
}

static int compact(struct state *st)
{
	struct db_walk *w;
	uint32_t number;
	uint64_t seq;
	int r;

	make_room(st);
	r = begin_compaction(st, &number, &seq, &w);
	if (r < 0)
		return r;
	r = make_durable(st, seq, NULL);
	if (r == 0 && !w)
		r = -ENOMEM;
	if (r < 0) {
		db_walk_end(w);
		return r;
	}
	r = write_checkpoint_file(st, w, number, seq);
	if (r == 0)
		r = journal_remove_before(st->opt.io, number);
	if (r == 0) {
		pthread_mutex_lock(&st->lock);
		st->must_compact = false;
		pthread_mutex_unlock(&st->lock);
	}
	return r;
}

int state_compact(struct state *st)
{
	int r;

	if (read_only(st))
		return -EROFS;
	pthread_mutex_lock(&st->checkpoint_lock);
	r = compact(st);
	pthread_mutex_unlock(&st->checkpoint_lock);
	return r;
}

bool state_wants_compaction(struct state *st)
{
	uint64_t least = st->opt.journal_size * COMPACT_MIN_FILES, bytes, compacted;

	if (read_only(st))
		return false;
	bytes = journal_bytes(st->journal);
	pthread_mutex_lock(&st->lock);
	compacted = st->failed ? UINT64_MAX / 4 : st->compacted_bytes;
	pthread_mutex_unlock(&st->lock);
	return bytes > least && bytes > 3 * compacted; /* its own .ckp file counts, too */
}

/* ---- snapshot */

int state_snapshot(struct state *st, const char *path, uint64_t *ret_seq, struct cistern_error *err)
{
	uint64_t seq = 0;
	int r;

	if (read_only(st))
		return cistern_error_set(err, -EROFS, "index: the store is open for reading only");
	pthread_mutex_lock(&st->checkpoint_lock);
	r = checkpoint(st, err);
	if (r == 0) {
		pthread_mutex_lock(&st->lock);
		seq = st->checkpoint_seq; /* never newer than the copy */
		pthread_mutex_unlock(&st->lock);
		r = db_checkpoint(st->db, path, err);
	}
	if (r == 0 && ret_seq)
		*ret_seq = seq;
	pthread_mutex_unlock(&st->checkpoint_lock);
	return r;
}
