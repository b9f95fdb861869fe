/* SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef TESTS_LIB_STATE_FIXTURE_H
#define TESTS_LIB_STATE_FIXTURE_H

/*
 * A state over a simulated disk, with RocksDB in a temporary directory, to open, kill, and open again.
 */

#include <stdbool.h>
#include <stdint.h>

#include "format/index/state.h"
#include "tests/lib/sim.h"

struct state_fixture {
	struct sim *sim;
	struct io *io;    /* of sim */
	char dir[256];    /* owned: removed at the end */
	char index[300];  /* in dir: RocksDB */
	struct state *st; /* NULL while closed */
	struct state_report report;
	struct cistern_error err;
	uint8_t boot_id[STATE_BOOT_ID_BYTES];
	uint64_t index_memory, journal_size;
	/* freed() told so much, payload and whole private segments */
	uint64_t freed_bytes, freed_privates;
	/* check_payload() says no to WRITE records of these seqs */
	uint64_t lost_from, lost_to;
};

int fixture_init(struct state_fixture *f);
void fixture_end(struct state_fixture *f); /* also deletes its files */
int fixture_open(struct state_fixture *f, enum state_mode mode);
void fixture_kill(struct state_fixture *f); /* as the death of the process: no checkpoint, no UNMOUNT */
int fixture_close(struct state_fixture *f); /* in good order */
void fixture_reboot(struct state_fixture *f, uint64_t seed); /* kill, power loss, another boot id */
/* Another state over the same store, made from the journal alone, in the directory "name" of dir. */
int fixture_second_opinion(struct state_fixture *f, const char *name, struct state **ret);
/* The number of differences between f->st and one made from the journal alone; they are printed. -errno. */
int64_t fixture_differences(struct state_fixture *f);
int fixture_copy_index(
	const struct state_fixture *f, const char *from, const char *to); /* paths; to is emptied first */
int damage_tables(const char *index); /* the first block of each file of a closed index; how many there are */

/* Commit; the result of state_commit. *ret_seq may be NULL. */
int commit(struct state_fixture *f, struct record rec, uint64_t *ret_seq);
/* The usual start: the root, adopted. */
int fixture_adopt_root(struct state_fixture *f);
/* Records with the fields that tests mostly set. */
struct record record_create(uint64_t ino, uint64_t parent, const char *name, uint32_t mode);
struct record record_name(enum record_type type, uint64_t ino, uint64_t parent, const char *name);
struct record record_write(uint64_t ino, uint64_t off, uint64_t len, uint32_t segment, uint64_t segment_off);
struct record record_rename(
	uint64_t ino, uint64_t from_parent, const char *from, uint64_t parent, const char *name, uint64_t other_ino);

#endif
