/* SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef FS_JOB_QUIET_H
#define FS_JOB_QUIET_H

/*
 * A home gives another node its word that none of the files at home there changes its names or attributes before that node has heard of it
 * (quiet.c); and what was heard under such words (seen.c).
 */

#include "fs/job/private.h"

extern const struct part quiet_part;

/* ---- the home */

/* For so long, from when it was asked for, a node may take what it is told from now on for true; usec, 0: it may not. Not of files that are open. */
uint64_t quiet_give(struct job *j, uint32_t node);
/*
 * Between these two files at home here may change: nobody takes what he was told before for true any more. Waits, not for long; alone: for nothing.
 * The caller holds no lock that a transport's thread may want.
 */
void quiet_begin_change(struct job *j);
void quiet_end_change(struct job *j);
/* The same of what is being made, and is open from the beginning. Waits for nothing. */
void quiet_begin_birth(struct job *j);
void quiet_end_birth(struct job *j);
void quiet_serve_recall(struct job *j, struct peers_request *rq);

/* ---- who was given it: numbers of words, each as long as nothing has changed at that home. 0: none */

struct quiet_ask { /* before a home is asked */
	uint32_t home;
	uint64_t number, asked_usec;
};
struct quiet_ask quiet_ask(struct job *j, uint32_t home);
uint64_t quiet_take(
	struct job *j, const struct quiet_ask *ask, uint64_t usec); /* what quiet_give said came with the answer */
bool quiet_holds(struct job *j, uint32_t home, uint64_t number);

/* ---- seen.c */

extern const struct part seen_part;
struct seen { /* of a file at home elsewhere */
	uint64_t dir;
	const char *name;
	struct core_entry entry;
	bool bare; /* it has no extended attributes */
};
void seen_put(struct job *j, uint32_t home, uint64_t number, const struct seen *s);
/* As the home would say it now, with a lookup counted for our kernel. */
bool seen_lookup(struct job *j, uint64_t dir, const char *name, struct core_entry *ret);
bool seen_has(struct job *j, uint64_t dir, const char *name); /* seen_lookup, without counting */
/* ret, ret_bare: or NULL. */
bool seen_attr(struct job *j, uint64_t ino, struct core_entry *ret, bool *ret_bare);

#endif
