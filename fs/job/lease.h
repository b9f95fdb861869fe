/* SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef FS_JOB_LEASE_H
#define FS_JOB_LEASE_H

/* Leases of those who read what they may write: while a node has one, no other node writes to the file without its knowing. lease.c */

#include "fs/job/share.h"

uint64_t lease_usec(const struct job *j); /* so long is one good, and who is bound for it bound */

/* ---- who reads */

bool lease_is_good(struct shared *s); /* nobody else has anything that he has not committed */
/* The home has given one, with that stamp, good until then. */
void lease_take(struct shared *s, uint64_t stamp, uint64_t until_usec);
void lease_end(struct shared *s); /* mutex is held: the home has forgotten it */
void lease_serve_recall(struct job *j, struct peers_request *rq);

/* ---- who writes */

enum lease_said {
	LEASE_CALM,
	LEASE_WRITING,
	LEASE_UNCOMMITTED
}; /* nothing; something is on its way; there is something to commit */

/* CALM: and for bind_usec from now on we tell the home before we write. */
enum lease_said lease_ask(struct shared *s, uint64_t bind_usec);
void lease_bind(struct shared *s); /* the same, from when we begin to write the file */
/* Around a write of a process: no other node has a lease then. Waits for the home, as long as we are bound at the most. */
void lease_begin_write(struct job *j, struct shared *s);
void lease_end_write(struct shared *s);

/* ---- the home */

void lease_stir(struct shared *s); /* mutex is held: something was committed */
void lease_no_more(
	struct shared *s); /* mutex is held: somebody writes, or may do so; a round that is under way gives none */
void lease_note_round(struct shared *s, bool calm);        /* calm: all have answered that they have nothing */
bool lease_is_due(struct shared *s, uint64_t *ret_writes); /* a round that begins now may give leases */
/* At the end of that round. Its stamp; 0: it gets none. */
uint64_t lease_give(struct job *j, struct shared *s, uint32_t node, uint64_t writes);
bool lease_must_tell(struct job *j, struct shared *s, uint32_t node); /* a node that begins to write is bound at once */
void lease_recall_all(struct job *j, struct shared *s);               /* nobody waits for it */
void lease_serve_writes(struct job *j, struct peers_request *rq);

#endif
