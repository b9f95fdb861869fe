/* SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef FORMAT_BASE_LIMITS_H
#define FORMAT_BASE_LIMITS_H

/*
 * Limits of resources that a process inherits from a shell, a batch system or a service (setrlimit(2)). They are meant for
 * applications. A daemon or an agent works for many of them, so each program raises its own first. One thread.
 */

#include <stddef.h>
#include <stdint.h>

#include "cistern/error.h"

#define LIMITS_TEXT 256

/*
 * Raises the limits of open files, file size, processor time and memory, as far as this user may. A file that may not grow
 * is from now on an error (EFBIG) and no signal. Returns how many files may be open.
 */
size_t limits_raise(void);
/* Refuses limits under which no store works: -EMFILE, or -EFBIG when a file of file_bytes may not be made. */
int limits_check(uint64_t file_bytes, struct cistern_error *err);
/* What the limits that are left will do: "" where they do nothing. Returns out. */
const char *limits_warning(char out[LIMITS_TEXT]);

#endif
