/* SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef FORMAT_CODEC_BBLOG_H
#define FORMAT_CODEC_BBLOG_H

/*
 * Logs of PnetCDF's burst-buffer driver: docs/format/pnetcdf-burst-buffer.md has every byte. A log is a pair: FILE.meta
 * holds a header and one entry for each put, FILE.data the values as they lay in the program's memory. In shared mode one
 * pair holds the logs ("channels") of all processes of a node, in blocks of 8 MiB by turns.
 *
 * Nothing here knows files: bytes come through a bblog_source. Functions return 0 or -errno; -EBADMSG means that the
 * bytes are no such log, or no longer, and the text names the offset. One log may be read by one thread at a time.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cistern/error.h"

#define BBLOG_MAGIC        "PnetCDF0"
#define BBLOG_MAGIC_BYTES  8u
#define BBLOG_BLOCK_BYTES  (UINT64_C(8) << 20) /* of shared mode */
#define BBLOG_PATH_BYTES   5121                /* the driver's longest path and a NUL */
#define BBLOG_HOST_BYTES   257
#define BBLOG_ENTRY_BYTES  40u /* of an entry's fixed part */
#define BBLOG_ENTRY_MAX    (UINT64_C(1) << 30)
#define BBLOG_DIMS_MAX     1024u
#define BBLOG_CHANNELS_MAX 65536u
#define BBLOG_DATA_BEGIN   8u /* of the first value in FILE.data */

/*
 * Where bytes come from. read() gives exactly len bytes at off, or -errno; it is never asked beyond size. view(), if there is one, shows
 * them where they lie, until end_view() has been called with its result and len; NULL: they have to be read. By several threads at once.
 */
struct bblog_source {
	int (*read)(void *arg, uint64_t off, void *buf, size_t len);
	const uint8_t *(*view)(void *arg, uint64_t off, size_t len);
	void (*end_view)(void *arg, const uint8_t *bytes, size_t len);
	void *arg; /* borrowed */
	uint64_t size;
};

enum bblog_layout {
	BBLOG_L0, /* 1.11.0 to 1.12.2: length of the name 4 bytes, header padded to 4 */
	BBLOG_L1, /* 1.12.3: length of the name 4 bytes, header padded to 16 */
	BBLOG_L2, /* 1.13.0 and later: length of the name 8 bytes, header padded to 16 */
};

/* Where the number of entries was found. */
enum bblog_count_from {
	BBLOG_COUNT_AT_56, /* where the driver puts it by mistake, over entry_begin */
	BBLOG_COUNT_NONE,  /* entry_begin is still there: nothing was put or flushed yet */
	BBLOG_COUNT_AT_48, /* where the README has it; only in repaired headers */
};

enum bblog_type {
	BBLOG_TEXT = 1,
	BBLOG_SCHAR,
	BBLOG_UCHAR,
	BBLOG_SHORT,
	BBLOG_USHORT,
	BBLOG_INT,
	BBLOG_UINT,
	BBLOG_FLOAT,
	BBLOG_DOUBLE,
	BBLOG_LONGLONG,
	BBLOG_ULONGLONG,
	BBLOG_NATIVE, /* the type of the variable */
	BBLOG_LONG,   /* 4 or 8 bytes */
};

/* Kinds of entries; a positive number is a varn of so many requests. */
enum bblog_kind { BBLOG_VAR = -1, BBLOG_VAR1 = -2, BBLOG_VARA = -3, BBLOG_VARS = -4 };

struct bblog_header {
	enum bblog_layout layout;
	bool big_endian;
	bool external;  /* values are in netCDF's own representation already; no release writes such logs */
	bool redefined; /* the mark that a second define phase leaves in num_entries is there */
	uint64_t num_ranks, rank;
	uint64_t max_ndims;          /* as it stands there; 0 in all known logs */
	uint64_t field_48, field_56; /* as they stand there */
	uint64_t begin;              /* of the entries: computed, not read */
	uint64_t count;              /* of the entries that count */
	enum bblog_count_from count_from;
	char path[BBLOG_PATH_BYTES]; /* absolute, of the netCDF file */
	char host[BBLOG_HOST_BYTES];
};

struct bblog_entry {
	uint64_t seq; /* from 0 */
	uint64_t off; /* of the entry in its channel of FILE.meta */
	uint64_t size;
	int32_t kind;
	enum bblog_type type;
	uint32_t varid, ndims;
	uint64_t num; /* requests: 1, or n of a varn */
	uint64_t data_off, data_len;
	uint64_t num_elems;
	uint32_t elem_bytes;
	const int64_t *start;  /* num * ndims; borrowed until the next call, as the others */
	const int64_t *count;  /* num * ndims; NULL: 1 everywhere */
	const int64_t *stride; /* ndims; NULL unless kind is BBLOG_VARS */
	const char *wrong;     /* NULL, or what is wrong with it: then start, count and stride may be anything */
};

struct bblog; /* one channel's log, with the place of a reader in it */

/* Whether buf, the beginning of a file, may be one of FILE.meta. */
bool bblog_is_meta(const void *buf, size_t len);
/* How many channels the meta file has: 1 unless it is in shared mode. */
int bblog_channels(const struct bblog_source *meta, uint32_t *ret_num, struct cistern_error *err);
/* src is copied, what it points to is borrowed. Reads the header of the channel. */
int bblog_open(const struct bblog_source *meta, uint32_t channel, uint32_t num_channels, struct bblog **ret,
	struct cistern_error *err);
void bblog_close(struct bblog *log);   /* bblog_close(NULL) is fine */
void bblog_release(struct bblog *log); /* gives back memory until it is read again; entries borrowed from it end */
const struct bblog_header *bblog_header(const struct bblog *log);
uint64_t bblog_size(const struct bblog *log); /* bytes that the channel can have in this file */

/*
 * Another reader, for a thread of its own. bblog_follow() puts it before the first entry of a log, which must stay until it follows
 * another one or is closed, as must the log's source. Its memory serves one log after the other. -ENOMEM.
 */
int bblog_reader(struct bblog **ret);
void bblog_follow(struct bblog *reader, const struct bblog *log);

/* Where the reader is. */
struct bblog_mark {
	uint64_t seq, off; /* of the next entry */
	uint64_t data_off; /* where its values ought to begin */
};

void bblog_rewind(struct bblog *log); /* to the first entry */
struct bblog_mark bblog_tell(const struct bblog *log);
void bblog_seek(struct bblog *log, const struct bblog_mark *mark); /* to where it was */
/* All entries up to end, where the reader once was, will be read one after the other: that far it may read ahead. */
void bblog_expect(struct bblog *log, const struct bblog_mark *end);
/*
 * The next entry that counts: 1; at the end 0; -EBADMSG where the chain of entries breaks: what follows cannot be
 * found; *ret is then anything.
 */
int bblog_next(struct bblog *log, struct bblog_entry *ret, struct cistern_error *err);
/*
 * What stands behind the entries that count, for reports: how many bytes up to the last that is not zero, and how many whole
 * entries they form. They are leftovers of before the last flush, or one entry that was being written. Moves the reader.
 */
int bblog_tail(struct bblog *log, uint64_t *ret_bytes, uint64_t *ret_entries, struct cistern_error *err);

const char *bblog_layout_name(enum bblog_layout layout); /* "PnetCDF 1.12.3" */
const char *bblog_type_name(enum bblog_type type);       /* "int"; "?" for others */
const char *bblog_kind_name(int32_t kind);               /* "vara"; "varn" for positive ones */

/*
 * The header of log as the README means it: the same bytes, but num_entries = num and entry_begin are right. At most
 * cap bytes into buf; returns how many, or -ENOSPC.
 */
int bblog_mended_header(struct bblog *log, uint64_t num, void *buf, size_t cap, struct cistern_error *err);

#endif
