/* SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef FORMAT_STORE_SUPERBLOCK_H
#define FORMAT_STORE_SUPERBLOCK_H

/* The superblock's bytes (docs/format/superblock.md) and its file in the store. Pure: no locks, no threads. */

#include <stddef.h>

#include "format/base/cursor.h"
#include "format/base/io.h"
#include "format/store/store.h"

#define SUPERBLOCK_FILE      "superblock"
#define SUPERBLOCK_BYTES     12288u
#define SUPERBLOCK_MAX_BYTES (1u << 20) /* of any version */

/* Append the encoded superblock. 0, -EINVAL (a string without end, numbers out of range), -ENOMEM. */
int superblock_encode(const struct superblock *sb, struct buf *out);
/*
 * Valid if and only if length, magic, version, CRC, every field and every unused byte are right. 0; -EBADMSG: damaged;
 * -EPROTONOSUPPORT: whole, but of a newer version. err (may be NULL) gets a text without the file's name.
 */
int superblock_decode(const void *buf, size_t len, struct superblock *ret, struct cistern_error *err);

/* The file in the store. -ENOENT: there is none. Text in err except for -ENOENT. */
int superblock_load(struct io *io, struct superblock *ret, struct cistern_error *err);
/* Replaced as a whole: after a crash the old or the new one is there. */
int superblock_save(struct io *io, const struct superblock *sb);

#endif
