/* SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef FORMAT_PLACE_SHOWN_H
#define FORMAT_PLACE_SHOWN_H

/*
 * The inode numbers that programs see (st_ino, d_ino), apart from those that the store, the wire and the kernel's nodeid have. All are
 * below 2^53, so that what keeps them in doubles (JavaScript, jq, awk) takes no two files for the same. Pure functions: the same
 * on every node and at every mount.
 *
 *   1                   the root
 *   below 2^51          files of the backing directory: the number that they have there
 *   2^51 to 2^52        those whose number there is higher, or that lie on another file system below it: 51 bits of a hash
 *   2^52 to 2^53        new files: the node (16 bits) and a counter (36 bits)
 */

#include <stdbool.h>
#include <stdint.h>

uint64_t shown_number(uint64_t ino); /* 0 of 0 */
/* Back again. False: the number is a hash (or of a file that is not there), and *ret is not set. */
bool shown_inode(uint64_t shown, uint64_t *ret);

#endif
