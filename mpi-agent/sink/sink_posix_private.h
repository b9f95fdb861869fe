/* SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef SINK_POSIX_PRIVATE_H
#define SINK_POSIX_PRIVATE_H

/* The files of the sink over a directory only; see sink_posix.c. */

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>

#include "mpi-agent/sink/sink.h"

#define DIRS_CACHED  32
#define PAST_NOT_YET (-1)
#define PAST_NEVER   (-2)
#define TRIES        3u /* another process may take away again what it, and we, have taken */

struct open_dir {
	char *path; /* owned; NULL: the path is no longer its own, kept only to be synced */
	int fd;
	mode_t taken; /* rights of its owner that are to be given back */
	bool used, changed;
};

struct sink_posix {
	struct sink sink;
	bool reads; /* and leaves all modes as they are */
	int root;   /* owned */
	struct open_dir dirs[DIRS_CACHED];
	unsigned int num_dirs, next_victim; /* so many of dirs are used */
	int names_error; /* the first one of a directory that was synced: what was in it may not be durable, for good */
	_Atomic uint64_t changes;
	uint64_t abort_after;
};

struct posix_file {
	struct sink_file file;
	struct sink_posix *sink; /* borrowed */
	int fd;                  /* owned */
	int past_fd;             /* owned: the same by O_DIRECT; PAST_NOT_YET, PAST_NEVER */
	mode_t taken;            /* as in open_dir */
	bool path_only;          /* opened by O_PATH */
};

/* sink_posix_rights.c */
/* Passes a result on; a change that was made is counted, and may be the last one of this process. */
int sink_posix_changed(struct sink_posix *p, int r);
/* The way to an object that is open by O_PATH: its magic link leads to the object itself, also to a symbolic link. */
const char *sink_posix_link_to(int fd, char out[64]);
/* So that its owner has these, too; *taken gets those that he had not. False: it is not ours, or cannot be. */
bool sink_posix_take_rights(struct sink_posix *p, int fd, mode_t rights, mode_t *taken);
void sink_posix_give_back(struct sink_posix *p, int fd, mode_t *taken);

/* sink_posix_file.c: what sink.h says of an open file */
void sink_posix_close(struct sink_file *f);
int sink_posix_pwrite(struct sink_file *f, const void *buf, size_t len, uint64_t off);
int sink_posix_pwrite_past(struct sink_file *file, const void *buf, size_t len, uint64_t off);
ssize_t sink_posix_pread(struct sink_file *f, void *buf, size_t len, uint64_t off);
int sink_posix_zero(struct sink_file *f, uint64_t off, uint64_t len);
int sink_posix_truncate(struct sink_file *f, uint64_t size);
void sink_posix_write_out(struct sink_file *f, uint64_t off, uint64_t len);
int sink_posix_write_wait(struct sink_file *f, uint64_t off, uint64_t len);
void sink_posix_drop_cache(struct sink_file *f);
int sink_posix_next_data(struct sink_file *f, uint64_t off, uint64_t *ret);
int sink_posix_sync(struct sink_file *file, bool data_only);
int sink_posix_fstat(struct sink_file *f, struct stat *ret);
int sink_posix_descriptor(struct sink_file *f);
int sink_posix_set_attr(struct sink_file *file, const struct sink_attr *attr, const char **ret_warning);
int sink_posix_set_xattr(struct sink_file *file, const char *name, const void *val, size_t len);
ssize_t sink_posix_get_xattr(struct sink_file *f, const char *name, void *val, size_t cap);
int sink_posix_remove_xattr(struct sink_file *file, const char *name);
int sink_posix_list_xattrs(struct sink_file *f, int (*each)(const char *name, void *arg), void *arg);

#endif
