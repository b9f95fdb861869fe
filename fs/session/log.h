/* SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef FS_SESSION_LOG_H
#define FS_SESSION_LOG_H

/* The daemon's log: STORE/cistern.log, a line per event, "time level event key=value ...". Thread-safe. */

#include <stdbool.h>

#include "cistern/error.h"

/* The order is that of the setting log_level's choices. */
enum log_level { LOG_LEVEL_ERROR, LOG_LEVEL_WARNING, LOG_LEVEL_INFO, LOG_LEVEL_DEBUG };

struct log;

/* Until log_open_file() lines go to stderr only, and then also there when also_stderr is set. */
int log_create(enum log_level level, bool also_stderr, struct log **ret);
void log_destroy(struct log *log); /* NULL is fine */
/* Appends from now on to the file at path (0600). */
int log_open_file(struct log *log, const char *path, struct cistern_error *err);
int log_fd(const struct log *log); /* borrowed, O_APPEND; -1 before log_open_file() */

/* event: one word. fmt: "key=value ..." or "". A line break in a value becomes '?'. */
void log_event(struct log *log, enum log_level level, const char *event, const char *fmt, ...)
	__attribute__((format(printf, 4, 5)));

#endif
