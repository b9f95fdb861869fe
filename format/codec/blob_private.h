/* SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef FORMAT_CODEC_BLOB_PRIVATE_H
#define FORMAT_CODEC_BLOB_PRIVATE_H

/* Names that maker and reader of subfiles share. */

#include "format/codec/blob.h"

#define BLOB_ATT_NPROCS     "global_nprocs"
#define BLOB_ATT_MAPS       "num_decompositions"
#define BLOB_ATT_SUBFILES   "num_subfiles"
#define BLOB_ATT_SET        "cistern_set"
#define BLOB_ATT_SUBFILE    "cistern_subfile"
#define BLOB_ATT_FILE_BYTES "cistern_file_bytes"
#define BLOB_ATT_HEADER     "cistern_header"
#define BLOB_ATT_LAYOUT     "cistern_layout"
#define BLOB_ATT_RESIDUE    "cistern_residue"

/*
 * What has to be kept of a canonical header for it to be made again of its definitions. 0; -ENOTSUP: it would get another length;
 * -ENOMEM. The number of records is not kept, but for "streaming".
 */
int blob_layout_encode(const uint8_t *header, size_t len, struct buf *out);
/* The header again: definitions get its version and begins. 0; -EBADMSG: it does not become what it was; -ENOMEM. */
int blob_layout_apply(const uint8_t *layout, size_t len, struct classic *definitions, struct buf *ret);

#define BLOB_NAME 32 /* bytes that every name of a map's parts fits in, NUL included */

/* "D3.nreqs" for map 2, counted from 0. Returns out. */
const char *blob_name(char out[BLOB_NAME], uint32_t map, const char *suffix);
const char *blob_map_var_suffix(enum blob_map_var which);

#endif
