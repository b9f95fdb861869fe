/* SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef FORMAT_BASE_CONFIG_H
#define FORMAT_BASE_CONFIG_H

/*
 * Settings. One table holds every setting of Cistern (name, type, unit, range, default, help); it feeds the parser
 * of -o options, the configuration files, the environment, `cistern config`, --help and the manual page.
 *
 * A value comes from, later ones win: the default, /etc/cistern.conf, $XDG_CONFIG_HOME/cistern.conf
 * (~/.config/cistern.conf), the file named by CISTERN_CONFIG, PNETCDF_HINTS (the nc_burst_buf settings), the environment
 * (CISTERN_<NAME>, upper case, '.' and '-' as '_'), the command line. Files hold "name = value" lines, '#' begins a comment. An unknown name and a value
 * out of range are errors that name the place (file and line, variable, option), the setting and the allowed values.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "cistern/error.h"

enum config_type {
	CONFIG_BYTES,
	CONFIG_BYTES_OR_0, /* 0 is no size here but says something of its own; min holds for the others */
	CONFIG_USEC,
	CONFIG_COUNT,
	CONFIG_PERCENT,
	CONFIG_REAL, /* a decimal fraction; the number is in millionths */
	CONFIG_BOOL,
	CONFIG_CHOICE,
	CONFIG_STRING
};

/* Every setting. The order is that of the table in config.c. */
enum config_id {
	CONFIG_STORE,             /* string: the store's directory */
	CONFIG_MANIFEST,          /* string: where a copy of the manifest goes besides the store; empty: nowhere */
	CONFIG_CAPACITY,          /* bytes: the store may hold so much; 0: all that its file system has, less reserve */
	CONFIG_RESERVE,           /* bytes: kept free on the store's file system. Default 64M, min 1M */
	CONFIG_HIGH_WATER,        /* percent of capacity at which the background drain starts. 70 */
	CONFIG_LOW_WATER,         /* percent at which it stops. 40 */
	CONFIG_DRAIN,             /* choice idle|watermark|unmount. watermark */
	CONFIG_IDLE_INTERVAL,     /* usec without writes before drain=idle begins. 5s */
	CONFIG_DRAIN_RATE,        /* bytes per second, 0 = no limit. 0 */
	CONFIG_DRAIN_SHARE,       /* percent of the time that a drain works while applications write. 50, min 1 */
	CONFIG_FLUSH_BUFFER_SIZE, /* bytes of memory that a drain uses for data. 64M, min 1M */
	CONFIG_VERIFY,            /* choice none|size|read|format. size */
	CONFIG_DATA,              /* choice auto|log|private: how written bytes reach the store. auto */
	CONFIG_PRIVATE_MIN_FREE,  /* bytes: room the store must have for private segments. 4G */
	CONFIG_SMALL_FILE, /* bytes: files up to this size are packed in the log when their directory shows a habit. 64K */
	CONFIG_SEGMENT_SIZE,        /* bytes of one data segment. 64M, min 1M, max 1G */
	CONFIG_JOURNAL_SIZE,        /* bytes of one journal file. 16M, min 64K, max 256M */
	CONFIG_INDEX_MEMORY,        /* bytes of memory for the index. 256M, min 8M */
	CONFIG_CHECKPOINT_INTERVAL, /* usec between index checkpoints while there are changes. 10s */
	CONFIG_STAGING,   /* bytes of shared memory for large writes on their way to the log; 0: none. 32M, max 1G */
	CONFIG_WRITE_OUT, /* bool: start writing the log to the device early. yes */
	CONFIG_THREADS,   /* count of FUSE worker threads, 1..64. 4 */
	CONFIG_BACKING_TIMEOUT, /* usec until what others change in the backing directory is seen; 0: reads past the page cache. 1s */
	CONFIG_FULL_TIMEOUT,    /* usec that a writer waits for room before it writes through. 2s */
	CONFIG_ALLOW_OTHER,     /* bool: other users may use the mount; cistern mount by root says yes */
	CONFIG_ALLOW_ROOT,      /* bool, reserved for symmetry with fuse: no */
	CONFIG_READ_ONLY,       /* bool ("ro"): no changes through the mount. no */
	CONFIG_NODES,           /* count: how many mounts make up the job, one on each of its nodes, 1..65536. 1 */
	CONFIG_JOB,             /* string: the job's id */
	CONFIG_VISIBLE,         /* choice close|read|write: when other nodes see what was written. read */
	CONFIG_AGENT_TIMEOUT,   /* usec that a call waits for other nodes. 5m, min 100ms */
	CONFIG_NODE_TIMEOUT,    /* usec after which a node without daemon is given up. 60s, min 100ms */
	CONFIG_UNMOUNT_TIMEOUT, /* usec that the last drain waits for nodes that are still mounted. 30m */
	CONFIG_LOG_LEVEL,       /* choice error|warning|info|debug. info */
	/* the hints of PnetCDF's burst-buffer driver, see config_hints.h */
	CONFIG_NC_BURST_BUF,                   /* choice disable|enable. disable */
	CONFIG_NC_BURST_BUF_DIRNAME,           /* string: the store is in a folder of it. ./ */
	CONFIG_NC_BURST_BUF_DEL_ON_CLOSE,      /* choice disable|enable. enable */
	CONFIG_NC_BURST_BUF_FLUSH_BUFFER_SIZE, /* bytes, 0: no limit. 0 */
	CONFIG_NC_BURST_BUF_OVERWRITE,         /* choice disable|enable. disable */
	CONFIG_NC_BURST_BUF_SHARED_LOGS,       /* choice disable|enable. disable */
	CONFIG_LAYOUT,          /* string: in which layout drained files lie (drain_layout.h). canonical */
	CONFIG_NUM_SUBFILES,    /* count: subfiles of a file in blob layout. 1, max 65536 */
	CONFIG_CHUNK,           /* string: lengths of the chunks of netCDF-4 files. "" */
	CONFIG_DEFLATE,         /* count: how hard they are compressed, 0..9. 1 */
	CONFIG_SHUFFLE,         /* bool: their bytes are shuffled first. yes */
	CONFIG_CONVERT_THREADS, /* count: threads that compress, 0: one per processor. 0, max 256 */
	CONFIG_CONVERT_SHARE,   /* bytes of a file for each node of a job that converts it, 0: its home alone. 64M */
	/* HDF5's metadata cache while netCDF-4 files are made: H5AC_cache_config_t, by its names, with its ranges and defaults */
	CONFIG_MDC_VERSION,
	CONFIG_MDC_RPT_FCN_ENABLED,
	CONFIG_MDC_OPEN_TRACE_FILE,
	CONFIG_MDC_CLOSE_TRACE_FILE,
	CONFIG_MDC_TRACE_FILE_NAME,
	CONFIG_MDC_EVICTIONS_ENABLED,
	CONFIG_MDC_SET_INITIAL_SIZE,
	CONFIG_MDC_INITIAL_SIZE,
	CONFIG_MDC_MIN_CLEAN_FRACTION,
	CONFIG_MDC_MAX_SIZE,
	CONFIG_MDC_MIN_SIZE,
	CONFIG_MDC_EPOCH_LENGTH,
	CONFIG_MDC_INCR_MODE,
	CONFIG_MDC_LOWER_HR_THRESHOLD,
	CONFIG_MDC_INCREMENT,
	CONFIG_MDC_APPLY_MAX_INCREMENT,
	CONFIG_MDC_MAX_INCREMENT,
	CONFIG_MDC_FLASH_INCR_MODE,
	CONFIG_MDC_FLASH_MULTIPLE,
	CONFIG_MDC_FLASH_THRESHOLD,
	CONFIG_MDC_DECR_MODE,
	CONFIG_MDC_UPPER_HR_THRESHOLD,
	CONFIG_MDC_DECREMENT,
	CONFIG_MDC_APPLY_MAX_DECREMENT,
	CONFIG_MDC_MAX_DECREMENT,
	CONFIG_MDC_EPOCHS_BEFORE_EVICTION,
	CONFIG_MDC_APPLY_EMPTY_RESERVE,
	CONFIG_MDC_EMPTY_RESERVE,
	CONFIG_MDC_DIRTY_BYTES_THRESHOLD,
	CONFIG_MDC_METADATA_WRITE_STRATEGY,
	CONFIG_NUM
};

struct config_setting {
	const char *name; /* "flush_buffer_size" */
	enum config_type type;
	uint64_t min, max;   /* of the number; for strings max = longest length */
	const char *choices; /* "none|size|read|format"; the value is the index */
	const char *default_text;
	const char *help; /* one sentence, for --help and the manual page */
};

struct config; /* one value and its origin per setting; not thread-safe while being changed */

const struct config_setting *config_table(size_t *ret_num); /* static */
int config_create(struct config **ret);                     /* all defaults */
void config_destroy(struct config *cfg);
/*
 * The three below change all that they are told to, or, on an error, nothing.
 * Reads the files and the environment as above. A missing default file is fine; a missing CISTERN_CONFIG is not.
 * An empty variable counts as unset; a CISTERN_ variable that looks like a misspelt setting is an error, others are not
 * ours.
 */
int config_load(struct config *cfg, struct cistern_error *err);
/*
 * "key=value,key,key=value"; a bare boolean is yes. A comma in a value is written "\,", a backslash "\\" (one before
 * any other character is itself). where: for messages ("-o"). "ro" and "rw" set and clear read_only; the kernel's own
 * mount flags are collected (config_mount_flags); what concerns only mount(8) and fstab is ignored (noauto, nofail,
 * user, _netdev, x-*, comment=...).
 */
int config_parse_options(struct config *cfg, const char *options, const char *where, struct cistern_error *err);
int config_set(struct config *cfg, const char *name, const char *value, const char *where, struct cistern_error *err);
uint64_t config_number(
	const struct config *cfg, enum config_id id); /* bytes, usec, count, percent, millionths, bool, choice index */
const char *config_string(const struct config *cfg, enum config_id id); /* borrowed until the next change */
const char *config_text(const struct config *cfg, enum config_id id, char *out, size_t cap); /* parses back */
const char *config_origin(
	const struct config *cfg, enum config_id id); /* "default", "/etc/cistern.conf:3", "-o", ... */
/*
 * The kernel's own mount options that were among the parsed ones (nodev, noatime, dirsync, ...), comma separated, each
 * once and the last one last; "" when there were none. Borrowed until the next change.
 */
const char *config_mount_flags(const struct config *cfg);
/* All values and mount flags as one "key=value,..." string (malloc'd), to hand them to another program. */
char *config_to_options(const struct config *cfg);

#endif
