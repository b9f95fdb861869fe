/* SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef FS_JOB_LOCK_TABLE_H
#define FS_JOB_LOCK_TABLE_H

/*
 * Locks of files: fcntl locks of byte ranges and flock locks of whole files, who holds them and who waits. Pure: no
 * threads, no messages, no clock of its own; the caller has a lock around it. As in POSIX and flock(2), with two additions:
 *
 * Who waits does so in line: behind those who wait for the same bytes already, though nobody may hold what they want, so that
 * a writer is not starved by readers that come one after the other. But no longer than LOCK_PATIENCE_USEC: readers
 * that wait for each other would otherwise wait for the writer between them, for ever. Who does not want to wait
 * is refused only for locks that are held.
 *
 * A request for an fcntl lock that closes a circle of owners who wait for each other's locks (in this table) gets -EDEADLK.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define LOCK_PATIENCE_USEC 1000000
#define LOCK_TABLE_MAX     (1u << 20) /* locks, and as many that wait */
#define LOCK_WAITS         1          /* lock_table_set(): it waits */

enum lock_type { LOCK_TYPE_NONE = 0, LOCK_TYPE_READ = 1, LOCK_TYPE_WRITE = 2 };

struct lock { /* one that is held, or wanted; NONE: to be given up */
	uint64_t ino;
	uint64_t owner;      /* of the node's: the kernel's number */
	uint64_t start, end; /* bytes, end included; flock: 0 and UINT64_MAX */
	uint32_t node, pid;  /* whose */
	uint8_t type;        /* enum lock_type */
	bool flock;
};

struct lock_table;

/* A request that waited ends: 0, or -ENOLCK: no memory. Must not call the table. */
typedef void (*lock_table_granted)(const struct lock *want, uint64_t id, int status, void *arg);

int lock_table_create(lock_table_granted granted, void *arg, struct lock_table **ret);
void lock_table_destroy(struct lock_table *t); /* NULL is fine */

/*
 * Takes, changes or gives up. 0. -EAGAIN: somebody else holds it, and wait is not set. LOCK_WAITS: granted() will be called for
 * id, which the node has for this request alone. -EDEADLK. -ENOLCK: too many, or no memory. An flock lock that cannot be changed at
 * once is given up before its owner waits or is refused, as flock(2) says.
 */
int lock_table_set(struct lock_table *t, const struct lock *want, bool wait, uint64_t id, int64_t now_usec);
/* Grants it whatever others hold. 0 or -ENOLCK. */
int lock_table_force(struct lock_table *t, const struct lock *want);
/*
 * The owner of range has in it just what the list says, all of it his; nobody gets a byte in between that he keeps. lost() for what others
 * have meanwhile, which he does not get. It must not call the table.
 */
void lock_table_fix(struct lock_table *t, const struct lock *range, const struct lock *list, size_t num,
	int64_t now_usec, void (*lost)(const struct lock *lock, void *arg), void *arg);
/* What would be in want's way: true, and the one that begins first. */
bool lock_table_test(const struct lock_table *t, const struct lock *want, struct lock *ret);
/* Nobody waits for it any more. False: nobody did. */
bool lock_table_cancel(struct lock_table *t, uint32_t node, uint64_t id, int64_t now_usec);
/* All that an owner has on a file, of a kind. True: it had some. */
bool lock_table_drop_owner(
	struct lock_table *t, uint64_t ino, bool flock, uint32_t node, uint64_t owner, int64_t now_usec);
void lock_table_drop_node(struct lock_table *t, uint32_t node, int64_t now_usec); /* what it has, and waits for */
/* All that are held, in no order. each must not change the table; it ends with what is not 0. */
int lock_table_each(const struct lock_table *t, int (*each)(const struct lock *held, void *arg), void *arg);
uint64_t lock_table_count(const struct lock_table *t); /* held */

/* When lock_table_tick() should be called; INT64_MAX: no need. */
int64_t lock_table_due(const struct lock_table *t);
/* Who has waited behind others for long enough goes on. */
void lock_table_tick(struct lock_table *t, int64_t now_usec);

#endif
