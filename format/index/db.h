/* SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef FORMAT_INDEX_DB_H
#define FORMAT_INDEX_DB_H

/*
 * RocksDB, as much of it as the index needs: bytes to bytes, atomic batches, ordered walks, hard-linked copies. Its own
 * log is off: a batch is on the device after the next db_flush().
 *
 * Thread-safe, but a batch or a walk belongs to one thread at a time.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cistern/error.h"

struct db;
struct db_batch;
struct db_walk;

#define DB_DAMAGED_FILE "CISTERN_DAMAGED" /* in a database's directory: do not use what is here */

enum db_mode { DB_CREATE, DB_READ_WRITE, DB_READ_ONLY };

/*
 * Errors of all functions: -EBADMSG (the files are damaged), -ENOSPC, -EIO, -ENOMEM.
 * db_open: also -ENOENT when there is no database, unless it shall be created, or it lacks files. A read-only one is not
 * written to.
 */
int db_open(const char *path, enum db_mode mode, struct db **ret, struct cistern_error *err);
void db_close(struct db *db); /* NULL is fine. What has not been flushed is lost */
/* An empty directory is left; made if missing. DB_DAMAGED_FILE goes when all else is gone for good. */
int db_wipe(const char *path, struct cistern_error *err);

int db_get(struct db *db, const void *key, size_t key_len, char **ret_val,
	size_t *ret_len); /* -ENOENT; free() the value */

int db_batch_create(struct db_batch **ret);
void db_batch_destroy(struct db_batch *b); /* NULL is fine */
void db_batch_clear(struct db_batch *b);
void db_batch_put(struct db_batch *b, const void *key, size_t key_len, const void *val, size_t len);
void db_batch_delete(struct db_batch *b, const void *key, size_t key_len);
size_t db_batch_bytes(const struct db_batch *b);
/* All of it or nothing, also after a crash: a batch is never split between two flushes. The batch stays as it is. */
int db_write(struct db *db, struct db_batch *b, struct cistern_error *err);
int db_flush(struct db *db, struct cistern_error *err); /* every batch before is on the device */
int db_checkpoint(struct db *db, const char *path, struct cistern_error *err);

/* Keys that begin with prefix and are >= from (NULL: the prefix), as of now: later batches are not seen. */
int db_walk_begin(struct db *db, const void *prefix, size_t prefix_len, const void *from, size_t from_len,
	bool fill_cache, struct db_walk **ret);
bool db_walk_valid(const struct db_walk *w);
const void *db_walk_key(const struct db_walk *w, size_t *ret_len); /* borrowed until the next step */
const void *db_walk_value(const struct db_walk *w, size_t *ret_len);
void db_walk_next(struct db_walk *w);
int db_walk_end(struct db_walk *w); /* frees; 0, or the error that ended the walk. NULL is fine */

#endif
