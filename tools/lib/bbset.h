/* SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef TOOLS_LIB_BBSET_H
#define TOOLS_LIB_BBSET_H

/*
 * The logs of PnetCDF's burst-buffer driver that a command was given, and the netCDF files that they belong to. Logs
 * are known by what is in them. They are read only, at most BBSET_OPEN_MAX files at a time.
 */

#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/stat.h>

#include "format/codec/bblog.h"
#include "format/codec/bbreplay.h"
#include "format/codec/classic.h"

#define BBSET_OPEN_MAX 128u

struct bbset;

struct bbset_file {
	struct bbset *set;   /* borrowed */
	char *path;          /* owned */
	int fd;              /* -1: closed for the moment; under the set's lock, as users */
	unsigned int users;  /* that read it right now */
	struct stat st;      /* as it was found */
	atomic_bool no_view; /* it cannot be mapped */
};

/* One rank's log: a pair of files, or a channel of a shared pair. */
struct bbset_log {
	struct bbset_file *meta, *data; /* borrowed from the set */
	uint32_t channel, num_channels;
	struct bblog *log;   /* owned; NULL: it cannot be read, and broken says why */
	char *broken;        /* owned */
	const char *no_data; /* NULL, or what is wrong with the data file as a whole */
	uint32_t ncid;       /* of the file's name; UINT32_MAX: it has none */
	struct bblog_source data_source;
};

struct bbset {
	struct bbset_log *logs; /* owned: by netCDF file, ncid, rank; those that cannot be read come last */
	size_t num, cap;
	struct bbset_file **files; /* owned */
	size_t num_files, cap_files;
	pthread_mutex_t lock;                    /* of what is open; the logs' sources may be read by several threads */
	struct bbset_file *open[BBSET_OPEN_MAX]; /* borrowed; a ring */
	size_t next_open;
	char **netcdf; /* owned: netCDF files that were named */
	size_t num_netcdf, cap_netcdf;
};

/* The logs of one opening of one netCDF file. */
struct bbset_group {
	struct bbset_log *logs; /* borrowed */
	size_t num;
	const char *path; /* of the netCDF file as the logs have it; borrowed */
	uint32_t ncid;
	uint64_t num_ranks;     /* the most that one of them says */
	bool twice;             /* a rank is there twice */
	bool several_runs;      /* they do not say the same number of ranks, which all of one opening have */
	char netcdf[PATH_MAX];  /* where the file is; "" when it is not found */
	char other[PATH_MAX];   /* another file that may be meant; "" */
	struct timespec newest; /* last change of any of the logs */
};

/*
 * Whether name is a log, a directory with logs that is not a store, or, with netcdf, a netCDF file beside which there
 * are some. Nothing is said.
 */
bool bbset_is_target(const char *name, bool netcdf);
bool bbset_is_directory(const char *name);
/* Finds and opens the logs that names (NULL at the end) mean. -ENOENT: there are none. */
int bbset_open(char *const *names, struct bbset *ret, struct cistern_error *err);
void bbset_close(struct bbset *set);
/* The group that begins at log number *at, which moves behind it. false: there is none left. */
bool bbset_next(struct bbset *set, size_t *at, struct bbset_group *ret);
/* For a replay: as many as the group has, which they point into. The caller frees the array; NULL: out of memory. */
struct bbreplay_log *bbset_replay_logs(const struct bbset_group *g);
/* "1, 4-7": the ranks of which the group has no log; "" when it has all. At most cap bytes. Returns how many there are. */
uint64_t bbset_missing(const struct bbset_group *g, char *out, size_t cap);
/* The header of a netCDF file, and what the file was when it was opened (may be NULL). -EBADMSG: it is not classic netCDF, or damaged. */
int bbset_read_netcdf(const char *path, struct stat *ret_st, struct classic *ret, struct cistern_error *err);

#endif
