/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Checkpoint files: a header block, STATE records numbered 1, 2, 3, ... and STATE_END. A file counts if and only if it is
 * whole, up to STATE_END with the right count; so loading reads it twice, first to check, then to hand it out: a state
 * that was filled from half a checkpoint would have to be thrown away.
 *
 * A value longer than PIECE_BYTES is split over several records, each with the value's whole length and its own place in
 * it, and put together again here; callers see whole values.
 */
#include "format/journal/journal.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "format/base/clock.h"
#include "format/journal/journal_file.h"

#define PIECE_BYTES  (256u << 10)
#define FLUSH_BYTES  (1u << 20)
#define WINDOW_BYTES (4u << 20) /* must hold the longest record */

/* ---- writing */

struct journal_checkpoint {
	struct io *io;        /* borrowed */
	struct io_file *file; /* owned */
	uint32_t number;
	struct buf out; /* not yet written */
	uint64_t off;   /* where it goes */
	uint64_t num_records, num_keys;
};

void journal_checkpoint_abort(struct journal_checkpoint *c)
{
	char path[JOURNAL_PATH];

	if (!c)
		return;
	if (c->file) {
		io_close(c->file);
		(void)c->io->ops->unlink(c->io, journal_path(path, c->number, CHECKPOINT_TEMP_EXT));
	}
	buf_free(&c->out);
	free(c);
}

int journal_checkpoint_begin(struct io *io, uint32_t number, struct journal_checkpoint **ret)
{
	struct journal_header header = { .number = number };
	struct journal_checkpoint *c = calloc(1, sizeof(*c));
	uint8_t block[JOURNAL_BLOCK];
	char path[JOURNAL_PATH];
	int r;

	if (!c)
		return -ENOMEM;
	c->io = io;
	c->number = number;
	journal_path(path, number, CHECKPOINT_TEMP_EXT);
	r = io_open(io, path, IO_READ | IO_WRITE | IO_CREATE | IO_TRUNCATE, &c->file);
	if (r) {
		journal_checkpoint_abort(c);
		return r;
	}
	header.created_ns = clock_wall_ns();
	journal_header_encode(JOURNAL_CHECKPOINT, &header, block);
	buf_bytes(&c->out, block, sizeof(block));
	*ret = c;
	return 0;
}

static int flush(struct journal_checkpoint *c)
{
	int r;

	if (!buf_ok(&c->out))
		return -ENOMEM;
	r = io_write(c->file, c->out.data, c->out.len, c->off);
	if (r)
		return r;
	c->off += c->out.len;
	buf_reset(&c->out);
	return 0;
}

static int add_record(struct journal_checkpoint *c, struct record *rec)
{
	int r;

	rec->seq = c->num_records + 1;
	r = record_encode(rec, &c->out);
	if (r)
		return r;
	c->num_records++;
	return c->out.len >= FLUSH_BYTES ? flush(c) : 0;
}

int journal_checkpoint_add(
	struct journal_checkpoint *c, const void *key, size_t key_len, const void *val, size_t val_len)
{
	struct record rec = { .type = RECORD_STATE, .key = key, .key_len = key_len, .len = val_len };
	int r;

	do {
		rec.value = (const uint8_t *)val + rec.off;
		rec.value_len = val_len - rec.off < PIECE_BYTES ? val_len - rec.off : PIECE_BYTES;
		r = add_record(c, &rec);
		rec.off += rec.value_len;
	} while (!r && rec.off < val_len);
	c->num_keys += !r;
	return r;
}

static int publish(struct journal_checkpoint *c)
{
	char temp[JOURNAL_PATH], path[JOURNAL_PATH];
	int r = c->file->ops->sync(c->file);

	journal_path(temp, c->number, CHECKPOINT_TEMP_EXT);
	if (!r)
		r = c->io->ops->rename(c->io, temp, journal_path(path, c->number, CHECKPOINT_EXT));
	if (r)
		return r;
	journal_close_file(&c->file); /* from here on there is nothing to take back */
	return c->io->ops->sync_dir(c->io, JOURNAL_DIR);
}

int journal_checkpoint_commit(struct journal_checkpoint *c, uint64_t seq)
{
	struct record rec = { .type = RECORD_STATE_END, .upto = seq, .count = c->num_keys };
	int r = add_record(c, &rec);

	if (!r)
		r = flush(c);
	if (!r)
		r = publish(c);
	journal_checkpoint_abort(c);
	return r;
}

/* ---- reading */

struct loader {
	struct io_file *file; /* owned */
	uint8_t *window;      /* owned, WINDOW_BYTES: the file from off on */
	size_t len, at;       /* bytes in it; of which so many have been read */
	uint64_t off;
	struct record_scratch scratch;
	struct buf value;                                 /* a long one, put together */
	int (*each)(const struct record *rec, void *arg); /* NULL: only check */
	void *arg;
	uint64_t num_records, num_keys, seq;
	bool stopped; /* each() wants no more */
};

static void loader_cleanup(struct loader *l)
{
	io_close(l->file);
	free(l->window);
	record_scratch_free(&l->scratch);
	buf_free(&l->value);
}

/* Makes sure that the window holds the longest record, or all that is left. */
static int refill(struct loader *l)
{
	ssize_t n;

	if (l->len - l->at >= RECORD_MAX_BYTES)
		return 0;
	memmove(l->window, l->window + l->at, l->len - l->at);
	l->off += l->at;
	l->len -= l->at;
	l->at = 0;
	n = l->file->ops->pread(l->file, l->window + l->len, WINDOW_BYTES - l->len, l->off + l->len);
	if (n < 0)
		return (int)n;
	l->len += (size_t)n;
	return 0;
}

static int next_record(struct loader *l, struct record *rec)
{
	size_t used;
	int r = refill(l);

	if (!r)
		r = record_decode(l->window + l->at, l->len - l->at, &l->scratch, rec, &used);
	if (r)
		return r == -ENODATA ? -EBADMSG : r;
	if (rec->seq != ++l->num_records || (rec->type != RECORD_STATE && rec->type != RECORD_STATE_END))
		return -EBADMSG;
	l->at += used;
	return 0;
}

static int deliver(struct loader *l, const struct record *rec)
{
	int r = l->each ? l->each(rec, l->arg) : 0;

	l->num_keys++;
	l->stopped = r != 0;
	return r;
}

/* The key goes to the front of the buffer, so that it outlives the window as well. */
static int long_value(struct loader *l, const struct record *first)
{
	struct record rec = *first, whole = *first;
	int r = 0;

	buf_reset(&l->value);
	buf_bytes(&l->value, first->key, first->key_len);
	for (;;) {
		buf_bytes(&l->value, rec.value, rec.value_len);
		if (!buf_ok(&l->value))
			return -ENOMEM;
		if (rec.off + rec.value_len == first->len)
			break;
		whole.off = rec.off + rec.value_len;
		r = next_record(l, &rec);
		if (r)
			return r;
		if (rec.type != RECORD_STATE || rec.off != whole.off || rec.len != first->len || !rec.value_len ||
			rec.key_len != first->key_len || memcmp(rec.key, l->value.data, rec.key_len) != 0)
			return -EBADMSG;
	}
	whole.off = 0;
	whole.key = l->value.data;
	whole.value = l->value.data + whole.key_len;
	whole.value_len = l->value.len - whole.key_len;
	return deliver(l, &whole);
}

/* One way through the file. 0: it is whole. */
static int walk(struct loader *l)
{
	struct record rec;
	int r;

	l->off = JOURNAL_BLOCK;
	l->len = l->at = 0;
	l->num_records = l->num_keys = 0;
	for (;;) {
		r = next_record(l, &rec);
		if (r)
			return r;
		if (rec.type == RECORD_STATE_END)
			break;
		if (rec.off != 0)
			return -EBADMSG;
		r = rec.value_len == rec.len ? deliver(l, &rec) : long_value(l, &rec);
		if (r)
			return r;
	}
	l->seq = rec.upto;
	r = refill(l);
	if (r)
		return r;
	return rec.count == l->num_keys && l->at == l->len ? 0 : -EBADMSG;
}

static int open_checkpoint(struct io *io, uint32_t number, struct loader *l)
{
	struct journal_header header;
	char path[JOURNAL_PATH];
	ssize_t n;
	int r = io_open(io, journal_path(path, number, CHECKPOINT_EXT), IO_READ, &l->file);

	if (r)
		return r;
	l->window = malloc(WINDOW_BYTES);
	if (!l->window)
		return -ENOMEM;
	n = l->file->ops->pread(l->file, l->window, JOURNAL_BLOCK, 0);
	if (n < 0)
		return (int)n;
	r = journal_header_decode(JOURNAL_CHECKPOINT, l->window, (size_t)n, &header);
	if (!r && header.number != number)
		r = -EBADMSG;
	return r == -ENODATA ? -EBADMSG : r;
}

/* -EBADMSG: not whole; *ret_stopped: the result is each()'s. */
static int load(struct io *io, uint32_t number, int (*each)(const struct record *rec, void *arg), void *arg,
	uint64_t *ret_seq, bool *ret_stopped)
{
	__attribute__((cleanup(loader_cleanup))) struct loader l = { 0 };
	int r = open_checkpoint(io, number, &l);

	if (!r)
		r = walk(&l);
	if (r)
		return r;
	l.each = each;
	l.arg = arg;
	r = walk(&l);
	*ret_stopped = l.stopped;
	if (!r)
		*ret_seq = l.seq;
	return r && !l.stopped ? -EIO : r; /* it was whole a moment ago; and part of it has been handed out */
}

int journal_checkpoint_load(struct io *io, int (*each)(const struct record *rec, void *arg), void *arg,
	uint64_t *ret_seq, struct cistern_error *err)
{
	__attribute__((cleanup(journal_numbers_free))) struct journal_numbers n = { 0 };
	bool stopped = false;
	int r = journal_numbers_list(io, CHECKPOINT_EXT, &n);

	*ret_seq = 0;
	if (r)
		return cistern_error_set(err, r, JOURNAL_DIR ": cannot be listed: %s", strerror(-r));
	r = -ENOENT;
	for (size_t i = n.num; i > 0; i--) {
		r = load(io, n.at[i - 1], each, arg, ret_seq, &stopped);
		if (!r || stopped)
			return r;
		cistern_error_set(err, r,
			JOURNAL_DIR "/%08" PRIu32 CHECKPOINT_EXT ": %s; run \"cistern fsck\" on the store", n.at[i - 1],
			r == -EBADMSG ? "not whole" : strerror(-r));
		if (r != -EBADMSG)
			return r;
	}
	return r == -ENOENT ? cistern_error_set(err, r, JOURNAL_DIR ": there is no checkpoint file") : r;
}
