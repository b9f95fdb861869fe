/* SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef TESTS_PARITY_PARITY_H
#define TESTS_PARITY_PARITY_H

/*
 * Parity: every operation is done on side 0 (the mount under test) and then on side 1 (a plain directory), and whatever
 * a program could see of it must agree. Functions that compare return true when it did, else report through differ().
 */

#include <dirent.h>
#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <time.h>

#include "tests/parity/rng.h"

#define SIDES      2
#define NODES_MAX  8
#define HANDLES    12
#define LOG_LINES  48
#define LOG_BYTES  400
#define FILE_MAX   (512u << 10) /* files stay below this, so that comparing them is cheap */
#define BUFFER_MAX (96u << 10)

struct handle {
	int fd[SIDES]; /* -1: free */
	int flags;
};

struct locker;

struct parity {
	const char *root[SIDES];      /* borrowed */
	const char *roots[NODES_MAX]; /* borrowed: side 0 by several nodes' mounts, root[0] among them */
	unsigned int num_roots;
	struct rng rng, node_rng;
	struct handle handles[HANDLES];
	struct locker *locker; /* owned: the other process that takes locks */
	uint64_t op;           /* number of the operation in progress */
	int64_t run_start_sec;
	int64_t op_start_ns,
		tick_start_ns; /* coarse clock: of this operation; of the last one that began in an earlier tick */
	bool fuse;             /* side 0 is a FUSE mount */
	bool failed;
	char log[LOG_LINES][LOG_BYTES]; /* ring: operation n in line n % LOG_LINES */
	unsigned char *buf[SIDES];      /* owned, FILE_MAX + BUFFER_MAX bytes each */
};

/* What a system call said. */
struct outcome {
	int64_t ret;
	int err; /* errno, 0 when ret >= 0 */
};

struct operation {
	const char *name;
	unsigned int weight;
	bool (*run)(struct parity *p); /* false: a difference was found */
};

/* parity.c */
void note(struct parity *p, const char *fmt, ...)
	__attribute__((format(printf, 2, 3))); /* adds to this operation's line in the log */
static inline int64_t nsec(const struct timespec *t)
{
	return (int64_t)t->tv_sec * 1000000000 + t->tv_nsec;
}

bool differ(struct parity *p, const char *fmt, ...) __attribute__((format(printf, 2, 3))); /* reports; returns false */
struct outcome outcome_of(int64_t ret);                                                    /* with errno */
bool same_outcome(struct parity *p, const struct outcome o[SIDES], const char *what);
struct handle *any_handle(struct parity *p);  /* an open one, or NULL */
struct handle *free_handle(struct parity *p); /* closes one if none is free */
bool close_handle(struct parity *p, struct handle *h);

/* compare.c */
bool same_stat(struct parity *p, const struct stat st[SIDES], const char *what);
bool same_path(struct parity *p, const char *path); /* lstat, readlink, xattrs of one name, and lstat of its parent */
bool same_fd(struct parity *p, const struct handle *h); /* fstat */
bool same_content(struct parity *p, const int fd[SIDES], uint64_t off, uint64_t len, const char *what);
bool same_tree(struct parity *p); /* everything, link identity too */
void side_path(const struct parity *p, int side, const char *path, char out[PATH_MAX]);
void random_path(struct parity *p, char out[PATH_MAX]);

extern const struct operation file_operations[]; /* file_ops.c: ended by a row without name */
extern const struct operation name_operations[]; /* name_ops.c */

/* lock_ops.c */
struct locker *locker_start(void); /* NULL: no */
void locker_stop(struct locker *l);
extern const struct operation lock_operations[];

#endif
