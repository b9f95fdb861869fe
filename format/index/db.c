/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * The one file that knows RocksDB. It turns RocksDB's messages into -errno once, here.
 *
 * Atomicity without a write-ahead log: RocksDB changes to a new memtable only between batches, and a memtable reaches
 * the device whole (the manifest names the new table file, or it does not). So what is found after a crash is the
 * result of a number of whole batches, in order; which ones, the cursor in them says.
 *
 * Memory is bounded: two memtables, a block cache, the filters of the files that are open.
 */
#include "format/index/db.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <fcntl.h>

#include <rocksdb/c.h>

#include "format/base/descriptors.h"

#define WRITE_BUFFER_BYTES (32u << 20)
#define BLOCK_CACHE_BYTES  (32u << 20)
#define OPEN_FILES         256
#define BLOOM_BITS         10.0
#define LOG_LEVEL_ERROR    3

struct db {
	rocksdb_t *rocks;
	rocksdb_options_t *options;
	rocksdb_block_based_table_options_t *table;
	rocksdb_cache_t *cache;
	rocksdb_writeoptions_t *write;
	rocksdb_readoptions_t *read;
};

struct db_batch {
	rocksdb_writebatch_t *rocks;
	size_t bytes;
};

struct db_walk {
	rocksdb_iterator_t *rocks;
	rocksdb_readoptions_t *read;
	uint8_t *bound; /* owned: RocksDB borrows it */
};

/* Frees RocksDB's message and says what it means. -ENOENT: a file is missing. */
static int convert(char *message, const char *what, struct cistern_error *err)
{
	int code = -EIO;

	if (!message)
		return 0;
	if (strstr(message, "does not exist") || strstr(message, "No such file"))
		code = -ENOENT;
	else if (strstr(message, "Corruption") || strstr(message, "Invalid argument"))
		code = -EBADMSG; /* our arguments do not change; what is found does */
	else if (strstr(message, "No space left") || strstr(message, "Disk quota exceeded"))
		code = -ENOSPC;
	cistern_error_set(err, code, "index: %s: %s", what, message);
	rocksdb_free(message);
	return code;
}

static void set_table(struct db *db)
{
	db->table = rocksdb_block_based_options_create();
	db->cache = rocksdb_cache_create_lru(BLOCK_CACHE_BYTES);
	rocksdb_block_based_options_set_block_cache(db->table, db->cache);
	rocksdb_block_based_options_set_filter_policy(db->table, rocksdb_filterpolicy_create_bloom_full(BLOOM_BITS));
	rocksdb_block_based_options_set_whole_key_filtering(db->table, 1);
	rocksdb_options_set_block_based_table_factory(db->options, db->table);
}

/* What has not been flushed when a database is closed stays away: nobody has said that what it stands for is durable. */
static int create_options(struct db *db, struct cistern_error *err)
{
	rocksdb_options_t *base = rocksdb_options_create();
	char *message = NULL;

	db->options = rocksdb_options_create();
	rocksdb_get_options_from_string(base, "avoid_flush_during_shutdown=true", db->options, &message);
	rocksdb_options_destroy(base);
	return convert(message, "options", err);
}

static void set_options(struct db *db, enum db_mode mode)
{
	int files = (int)descriptors_share(OPEN_FILES, 8);

	rocksdb_options_set_create_if_missing(db->options, mode == DB_CREATE);
	rocksdb_options_set_write_buffer_size(db->options, WRITE_BUFFER_BYTES);
	rocksdb_options_set_max_write_buffer_number(db->options, 2);
	rocksdb_options_set_max_open_files(db->options, mode == DB_READ_ONLY && files == OPEN_FILES ? -1 : files);
	rocksdb_options_set_compression(db->options, rocksdb_no_compression);
	rocksdb_options_set_max_background_jobs(db->options, 2);
	rocksdb_options_set_max_file_opening_threads(
		db->options, 1); /* there are few files; 16 threads cost more than they */
	rocksdb_options_set_info_log_level(db->options, LOG_LEVEL_ERROR);
	rocksdb_options_set_keep_log_file_num(db->options, 2);
	/* Idle means idle: no threads that wake to count. */
	rocksdb_options_set_stats_dump_period_sec(db->options, 0);
	rocksdb_options_set_stats_persist_period_sec(db->options, 0);
	rocksdb_options_set_skip_stats_update_on_db_open(db->options, 1);
	set_table(db);
	db->write = rocksdb_writeoptions_create();
	rocksdb_writeoptions_disable_WAL(db->write, 1);
	db->read = rocksdb_readoptions_create();
}

int db_open(const char *path, enum db_mode mode, struct db **ret, struct cistern_error *err)
{
	struct db *db = calloc(1, sizeof *db);
	char *message = NULL;
	int r;

	if (!db)
		return -ENOMEM;
	r = create_options(db, err);
	if (r < 0) {
		rocksdb_options_destroy(db->options);
		free(db);
		return r;
	}
	set_options(db, mode);
	if (mode == DB_READ_ONLY)
		db->rocks = rocksdb_open_for_read_only(db->options, path, 0, &message);
	else
		db->rocks = rocksdb_open(db->options, path, &message);
	r = convert(message, path, err);
	if (r < 0) {
		db_close(db);
		return r;
	}
	*ret = db;
	return 0;
}

void db_close(struct db *db)
{
	if (!db)
		return;
	if (db->rocks)
		rocksdb_close(db->rocks);
	rocksdb_readoptions_destroy(db->read);
	rocksdb_writeoptions_destroy(db->write);
	rocksdb_block_based_options_destroy(db->table);
	rocksdb_cache_destroy(db->cache);
	rocksdb_options_destroy(db->options);
	free(db);
}

static int wipe_entry(const char *path, int dirfd, const char *name, struct cistern_error *err)
{
	if (unlinkat(dirfd, name, 0) == 0 || (errno == EISDIR && unlinkat(dirfd, name, AT_REMOVEDIR) == 0))
		return 0;
	return cistern_error_set(
		err, -errno, "index: cannot delete %s/%s: %s; remove it by hand", path, name, strerror(errno));
}

/* *ret_marked: DB_DAMAGED_FILE is there, and is left. */
static int wipe_all(const char *path, DIR *dir, bool *ret_marked, struct cistern_error *err)
{
	struct dirent *entry;
	int r = 0;

	*ret_marked = false;
	while (r == 0 && (entry = readdir(dir))) {
		if (strcmp(entry->d_name, DB_DAMAGED_FILE) == 0)
			*ret_marked = true;
		else if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
			r = wipe_entry(path, dirfd(dir), entry->d_name, err);
	}
	return r;
}

int db_wipe(const char *path, struct cistern_error *err)
{
	bool marked;
	DIR *dir;
	int r;

	if (mkdir(path, 0700) < 0 && errno != EEXIST)
		return cistern_error_set(err, -errno, "index: cannot make the directory %s: %s", path, strerror(errno));
	dir = opendir(path);
	if (!dir)
		return cistern_error_set(err, -errno, "index: cannot open the directory %s: %s", path, strerror(errno));
	r = wipe_all(path, dir, &marked, err);
	if (r == 0 && marked && fsync(dirfd(dir)) < 0)
		r = cistern_error_set(err, -errno, "index: %s cannot be synced: %s", path, strerror(errno));
	if (r == 0 && marked)
		r = wipe_entry(path, dirfd(dir), DB_DAMAGED_FILE, err);
	closedir(dir);
	return r;
}

/* Of reading what is open. There, -ENOENT would be said of a key. */
static int convert_read(char *message, const char *what)
{
	int r = convert(message, what, NULL);

	return r == -ENOENT ? -EBADMSG : r;
}

int db_get(struct db *db, const void *key, size_t key_len, char **ret_val, size_t *ret_len)
{
	char *message = NULL, *val;
	size_t len = 0;
	int r;

	val = rocksdb_get(db->rocks, db->read, key, key_len, &len, &message);
	r = convert_read(message, "read");
	if (r < 0)
		return r;
	if (!val)
		return -ENOENT;
	*ret_val = val;
	*ret_len = len;
	return 0;
}

int db_batch_create(struct db_batch **ret)
{
	struct db_batch *b = calloc(1, sizeof *b);

	if (!b)
		return -ENOMEM;
	b->rocks = rocksdb_writebatch_create();
	*ret = b;
	return 0;
}

void db_batch_destroy(struct db_batch *b)
{
	if (!b)
		return;
	rocksdb_writebatch_destroy(b->rocks);
	free(b);
}

void db_batch_clear(struct db_batch *b)
{
	rocksdb_writebatch_clear(b->rocks);
	b->bytes = 0;
}

void db_batch_put(struct db_batch *b, const void *key, size_t key_len, const void *val, size_t len)
{
	rocksdb_writebatch_put(b->rocks, key, key_len, val, len);
	b->bytes += key_len + len + 8;
}

void db_batch_delete(struct db_batch *b, const void *key, size_t key_len)
{
	rocksdb_writebatch_delete(b->rocks, key, key_len);
	b->bytes += key_len + 8;
}

size_t db_batch_bytes(const struct db_batch *b)
{
	return b->bytes;
}

int db_write(struct db *db, struct db_batch *b, struct cistern_error *err)
{
	char *message = NULL;

	rocksdb_write(db->rocks, db->write, b->rocks, &message);
	return convert(message, "write", err);
}

int db_flush(struct db *db, struct cistern_error *err)
{
	rocksdb_flushoptions_t *options = rocksdb_flushoptions_create();
	char *message = NULL;

	rocksdb_flushoptions_set_wait(options, 1);
	rocksdb_flush(db->rocks, options, &message);
	rocksdb_flushoptions_destroy(options);
	return convert(message, "flush", err);
}

int db_checkpoint(struct db *db, const char *path, struct cistern_error *err)
{
	rocksdb_checkpoint_t *checkpoint;
	char *message = NULL;
	int r;

	checkpoint = rocksdb_checkpoint_object_create(db->rocks, &message);
	r = convert(message, path, err);
	if (r < 0)
		return r;
	rocksdb_checkpoint_create(checkpoint, path, 0, &message);
	rocksdb_checkpoint_object_destroy(checkpoint);
	return convert(message, path, err);
}

/* The first key behind all that begin with prefix, in place. Returns its length; 0: there is none. */
static size_t next_prefix(uint8_t *prefix, size_t len)
{
	while (len > 0 && prefix[len - 1] == 0xff)
		len--;
	if (len > 0)
		prefix[len - 1]++;
	return len;
}

int db_walk_begin(struct db *db, const void *prefix, size_t prefix_len, const void *from, size_t from_len,
	bool fill_cache, struct db_walk **ret)
{
	struct db_walk *w = calloc(1, sizeof *w);
	size_t bound_len;

	if (!w)
		return -ENOMEM;
	w->bound = malloc(prefix_len + 1);
	if (!w->bound) {
		free(w);
		return -ENOMEM;
	}
	if (prefix_len)
		memcpy(w->bound, prefix, prefix_len);
	bound_len = next_prefix(w->bound, prefix_len);
	w->read = rocksdb_readoptions_create();
	rocksdb_readoptions_set_fill_cache(w->read, fill_cache);
	if (bound_len)
		rocksdb_readoptions_set_iterate_upper_bound(w->read, (const char *)w->bound, bound_len);
	w->rocks = rocksdb_create_iterator(db->rocks, w->read);
	if (from)
		rocksdb_iter_seek(w->rocks, from, from_len);
	else if (prefix_len)
		rocksdb_iter_seek(w->rocks, prefix, prefix_len);
	else
		rocksdb_iter_seek_to_first(w->rocks);
	*ret = w;
	return 0;
}

bool db_walk_valid(const struct db_walk *w)
{
	return rocksdb_iter_valid(w->rocks);
}

const void *db_walk_key(const struct db_walk *w, size_t *ret_len)
{
	return rocksdb_iter_key(w->rocks, ret_len);
}

const void *db_walk_value(const struct db_walk *w, size_t *ret_len)
{
	return rocksdb_iter_value(w->rocks, ret_len);
}

void db_walk_next(struct db_walk *w)
{
	rocksdb_iter_next(w->rocks);
}

int db_walk_end(struct db_walk *w)
{
	char *message = NULL;

	if (!w)
		return 0;
	rocksdb_iter_get_error(w->rocks, &message);
	rocksdb_iter_destroy(w->rocks);
	rocksdb_readoptions_destroy(w->read);
	free(w->bound);
	free(w);
	return convert_read(message, "walk");
}
