/* SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef FS_JOB_NAMES_TABLE_H
#define FS_JOB_NAMES_TABLE_H

/*
 * What the server of names (names.c) knows, by directory and name. An entry is there while its name is a file's or hidden, is locked or asked
 * for. Everything is under the caller's lock.
 */

#include "fs/job/private.h"

#define NAMES_BUCKETS 65536u

struct name_entry {
	struct name_entry *next; /* in its bucket */
	struct name_dir *dir;
	struct name_entry *in_dir, **in_dir_at; /* the others of it */
	struct pointer at;
	uint64_t id; /* 0: not locked */
	uint32_t node;
	bool doubted; /* asked for at the homes */
	bool needed;  /* of a lock that was told */
	bool over;    /* it has ended, perhaps long ago: what its owner says was there then may be so no more */
	bool refused; /* doubted, and a node does not say what it has */
	bool lacking; /* nobody has it, but a node that was given up may */
	uint32_t
		late; /* doubted: 1 + the node whose daemon had it locked and has ended: what it asked for may be under way; 0: none */
	uint64_t lock_stamp;
	uint64_t left_round; /* of at.left */
	struct names_waiter *first, **last;
	char name[]; /* terminated */
};

struct name_dir { /* there while entries or a mark need it */
	struct name_dir *next;
	struct name_entry *first;
	uint64_t ino, entries, files, locked; /* files: that are one, and not locked */
	uint64_t lacking;                     /* entries */
	bool closed;                          /* about to go: no lock is given */
	struct name_dir *next_closed;
};

struct names_table {
	uint64_t num, lacking; /* entries; lacking: of these */
	unsigned int lefts;    /* entries with at.left */
	struct name_dir *closed;
	struct name_entry *entries[NAMES_BUCKETS];
	struct name_dir *dirs[NAMES_BUCKETS];
};

/* NULL: it is not there; make: no memory. */
struct name_dir *names_table_dir(struct names_table *t, uint64_t ino, bool make);
struct name_entry *names_table_find(struct names_table *t, uint64_t dir, const char *name);
struct name_entry *names_table_make(struct names_table *t, uint64_t dir, const char *name);
/* Unless something needs them. A directory goes with its last entry. */
void names_table_drop(struct names_table *t, struct name_entry *e);
void names_table_drop_dir(struct names_table *t, struct name_dir *d);
void names_table_close_dir(struct names_table *t, struct name_dir *d);
/* One that was closed, and is no more; NULL: none. It stays until it is dropped. */
struct name_dir *names_table_open_dir(struct names_table *t);
void names_table_free(struct names_table *t); /* what is in it; nobody waits */

void name_entry_set_pointer(struct names_table *t, struct name_entry *e, const struct pointer *at);
void name_entry_set_owner(struct name_entry *e, uint32_t node, uint64_t id);
void name_entry_set_lacking(struct names_table *t, struct name_entry *e, bool lacking);

#endif
