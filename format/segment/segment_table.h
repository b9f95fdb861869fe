/* SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef FORMAT_SEGMENT_SEGMENT_TABLE_H
#define FORMAT_SEGMENT_SEGMENT_TABLE_H

/*
 * Inside of a segment set: which segments there are, and their open files. For segment*.c only. Everything is under
 * set->lock unless it says otherwise.
 */

#include <pthread.h>

#include "format/segment/segment.h"

#define SEGMENT_DIR      "segment"
#define SEGMENT_OPEN_MAX 128u /* files kept open at most, besides those in use and those with unsynced payload */
#define SEGMENT_PATH     40
#define SEGMENT_CHUNK    (1u << 20) /* written out at a time */

struct segment {
	uint32_t id;
	bool is_private;
	int64_t lost_ns;               /* read_only: it has no file, and counts as empty, since then; 0: it has one */
	bool wide;                     /* .prv: file is open for writing as well: it is new */
	bool removed;                  /* no longer in the table; goes with the last user */
	bool dirty;                    /* .seg: payload since the last segment_sync */
	unsigned int users;            /* of file: it is not closed meanwhile */
	uint64_t size;                 /* .seg: payload ends before it; .prv: as last seen */
	uint64_t allocated;            /* bytes on the device, as far as known */
	uint64_t names_gen;            /* value of set->names_gen when the file was created */
	struct io_file *file;          /* owned; NULL while closed */
	int direct_fd;                 /* owned: past the page cache, while file is open; -1: none */
	bool syncing;                  /* .prv: somebody syncs it */
	int failed;                    /* .prv: a sync failed: what it should have covered may be lost */
	struct segment *newer, *older; /* open files, by use */
	struct segment *next_dirty;    /* while dirty: of set->dirty */
	struct segment *next_synced;   /* of those that segment_sync is busy with */
};

enum segment_open_kind { SEGMENT_COPIED, SEGMENT_STAGED, SEGMENT_OPEN_KINDS };

struct segment_open {          /* a .seg that is appended to */
	struct segment *seg;   /* with one user (us); or NULL: there is none */
	uint64_t end;          /* next free byte of it */
	uint64_t bytes;        /* its allocated size */
	uint32_t *chunk_bytes; /* owned: how much of each of its 1 MiB chunks is complete */
};

struct segment_place {       /* given out, never again */
	struct segment *seg; /* with one user more */
	uint64_t from;       /* the end of the payload before: what lies between is padding */
	uint64_t off, end;
};

struct segment_set {
	struct io *io; /* borrowed */
	struct segment_options opt;
	pthread_mutex_t sync_lock; /* one segment_sync at a time; taken before lock */
	pthread_mutex_t lock;

	struct segment **at; /* owned, by id */
	size_t num, cap;
	uint32_t next_id;
	uint64_t allocated; /* sum over all */

	struct segment *newest, *oldest; /* open files */
	size_t num_open, open_max;

	/* Staged payloads have segments of their own: no page of these is ever in the page cache but as read from the device. */
	struct segment_open open[SEGMENT_OPEN_KINDS];
	struct staging *staging; /* owned; NULL: none. Has a lock of its own, never held together with this one */
	uint64_t found_staged;

	struct segment *dirty; /* the first; their files are open */
	bool syncing;
	pthread_cond_t synced;                /* a .prv has been */
	uint64_t names_gen, names_synced_gen; /* creations so far; and those that are durable */
	int failed;                           /* a sync failed: what it should have covered may be lost */
};

const char *segment_path(char out[SEGMENT_PATH], uint32_t id, bool is_private);
struct segment *segment_table_find(struct segment_set *set, uint32_t id); /* or NULL */
/* Lists the folder. err names the file, below the store. */
int segment_table_load(struct segment_set *set, struct cistern_error *err);
/* A new file of that kind, open, in the table, with one user. -ENOMEM, or what creating gave. */
int segment_table_create(struct segment_set *set, bool is_private, uint64_t bytes, struct segment **ret);
/* Likewise a private one with a number that was given before. */
int segment_table_create_lost(struct segment_set *set, uint32_t id, struct segment **ret);
int segment_table_add_lost(struct segment_set *set, uint32_t id, struct segment **ret); /* read_only: lost_ns */
bool segment_is_lost(struct segment_set *set, uint32_t id, int64_t *ret_since_ns);      /* likewise; takes the lock */
void segment_table_remove(struct segment_set *set, struct segment *seg); /* from the table, not from the disk */
void segment_table_destroy(struct segment_set *set);
void segment_set_allocated(struct segment_set *set, struct segment *seg, uint64_t bytes);
uint64_t segment_blocks(uint64_t bytes); /* rounded up to blocks */
/* What the device holds of an open file; fallback when the I/O seam cannot tell. Under the lock or not. */
uint64_t segment_device_bytes(struct io_file *file, uint64_t fallback);

/*
 * Opens when needed, and keeps open: a .prv for reading alone, so that segment_find_writer finds
 * others. Of a new one the first descriptor is for writing, too (wide).
 */
int segment_use(struct segment_set *set, struct segment *seg);
void segment_unuse(struct segment_set *set, struct segment *seg);
/* Another open file of it, for writing; the caller closes it. */
int segment_open_wide(struct segment_set *set, const struct segment *seg, struct io_file **ret);
void segment_close(struct segment_set *set, struct segment *seg); /* that is open, and not in use */
/* Both with the lock taken inside: -ENOENT. */
int segment_get(struct segment_set *set, uint32_t id, struct segment **ret);
void segment_put(struct segment_set *set, struct segment *seg);

void segment_mark_dirty(struct segment_set *set, struct segment *seg);
/* Nothing more is appended to it; the unused rest is given back. */
void segment_close_open(struct segment_set *set, struct segment_open *open);
struct segment_open *segment_open_of(struct segment_set *set, const struct segment *seg); /* or NULL: not appended to */
/* A place in the segment for staged payloads, whole blocks. Takes the lock. */
int segment_reserve(struct segment_set *set, size_t len, struct segment_place *ret);

#endif
