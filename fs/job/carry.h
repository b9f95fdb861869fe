/* SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef FS_JOB_CARRY_H
#define FS_JOB_CARRY_H

/* Files that cannot be shared now, since their home's kernel writes to them without us: all is done at the home. */

#include "fs/job/share.h"

/* Elsewhere than at home, by who has it open for writing: there is no layer, writes are carried to the home. */
static inline bool carry_is_needed(const struct shared *s)
{
	return !s->at_home && !s->layer;
}
/*
 * -ESTALE: it can be shared by now. Around the three below: for (tries = 0; carry_again(j, s, tries, &done); tries++) done = ...; with
 * done -ESTALE in the beginning, and in the end if there is a layer to which it is to be done.
 */
bool carry_again(struct job *j, struct shared *s, int tries, ssize_t *done);
ssize_t carry_write(struct job *j, struct shared *s, const void *buf, size_t len, uint64_t off);
ssize_t carry_append(struct job *j, struct shared *s, const void *buf, size_t len);
int carry_fallocate(struct job *j, struct shared *s, int mode, uint64_t off, uint64_t len);
/* What was carried is told to others, is on the home's device, or both. -ESTALE: it is shared, so that is done otherwise; or is no more. */
int carry_sync(struct job *j, struct shared *s, bool tell, bool durable);
/*
 * The home has been asked to sync what s->carries counted before. 0 when it has also been said what it had lost with its power by then
 * (s->losses).
 */
int carry_settle(struct job *j, struct shared *s, uint64_t carries);
void carry_note_set(struct job *j,
	uint64_t ino); /* attributes are set at its home: counted as what is carried, for those who have it open */
void carry_lost(struct job *j, uint32_t home); /* its power, and what it had not synced */
/* Fills buf; behind the end: zeros. -ESTALE: ask for places again. */
int carry_read(struct job *j, struct shared *s, void *buf, size_t len, uint64_t off);
/* Of any file of another node: what the backing file has there. -ESTALE: nor does its home have it. */
ssize_t carry_read_backing(struct job *j, struct shared *s, void *buf, size_t len, uint64_t off);

/*
 * At home, of a file that is KEPT_THROUGH; shared.lock is held. What is appended goes where the file ends then: the kernel here does not
 * know what others have appended.
 */
ssize_t carry_write_through(
	struct job *j, struct job_file *file, uint32_t writer, bool append, const void *buf, size_t len, uint64_t off);

void carry_serve_read(struct job *j, struct peers_request *rq);
void carry_serve_backing(struct job *j, struct peers_request *rq);
void carry_serve_change(struct job *j, struct peers_request *rq);

#endif
