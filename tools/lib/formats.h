/* SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef TOOLS_LIB_FORMATS_H
#define TOOLS_LIB_FORMATS_H

/*
 * Which format a file has, and what its bytes are. A format is a row of a table: how its files begin, and the function of its
 * codec that fills a layout.
 */

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "cistern/error.h"
#include "format/codec/layout.h"

/* Up to len bytes at off, as pread(2); 0 at the end; -errno. */
typedef ssize_t (*formats_read_fn)(void *buf, size_t len, uint64_t off, void *arg);

/*
 * The layout of a file of size bytes. 0; -ENOMSG: of no format that is known, or not (yet) to be understood: *err says why;
 * else -errno of reading. *ret (= { 0 }) is written on success only; the caller destroys it.
 */
int formats_layout(formats_read_fn read_bytes, void *arg, uint64_t size, struct layout *ret, struct cistern_error *err);

#endif
