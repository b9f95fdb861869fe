/* SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef FORMAT_JOURNAL_RECORD_H
#define FORMAT_JOURNAL_RECORD_H

/*
 * The records of the journal: what happened, in order. The state of a store is the result of applying them one by
 * one (format/index/state.c); nothing else enters into it. Bytes: docs/format/store.md.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "format/base/cursor.h"

#define RECORD_NAME_MAX     255   /* bytes of one path component */
#define RECORD_TARGET_MAX   4095  /* bytes of a symbolic link's target */
#define RECORD_VALUE_MAX    65535 /* bytes of an extended attribute's value */
#define RECORD_HEADER_BYTES 56
#define RECORD_MAX_BYTES    (1u << 20) /* no record is longer */
#define RECORD_EXTENTS_MAX  16384      /* entries of one vector record */

enum record_type {
	RECORD_MOUNT = 1, /* a daemon opened the store: boot id, software version */
	RECORD_UNMOUNT,   /* and closed it in good order */
	RECORD_SYNC,      /* payloads of all records with seq <= upto are on the device */
	/* names */
	RECORD_CREATE, /* a new inode and its first name */
	RECORD_ADOPT,  /* a backing file, directory or link enters the store as it is */
	RECORD_LINK,   /* a further name of an inode */
	RECORD_UNLINK, /* a name goes; also rmdir */
	RECORD_RENAME, /* a name moves, over another one, or two change places */
	RECORD_FREE,   /* the last user of an inode without names has gone */
	RECORD_FORGET, /* a clean name that has vanished from the backing directory */
	/* attributes */
	RECORD_SETATTR,
	RECORD_SETXATTR,
	RECORD_REMOVEXATTR,
	/* data */
	RECORD_TRUNCATE, /* new size */
	RECORD_WRITE,    /* one write whose payload is in a segment */
	RECORD_EXTENTS,  /* a vector of them: one payload run in one segment, delta-coded offsets */
	RECORD_PUNCH,    /* a range reads as zeros */
	RECORD_PRIVATE,  /* the inode's data now live in a private segment, offset = file offset */
	RECORD_SEAL,     /* a private segment becomes log extents: its data ranges */
	RECORD_THROUGH,  /* a write that went straight to the inode's backing file */
	/* drain */
	RECORD_PLACED,  /* a name now exists in the backing directory and belongs to this inode */
	RECORD_REMOVED, /* a name no longer exists in the backing directory */
	RECORD_DRAINED, /* data and attributes up to a version are in the backing file */
	/* checkpoint files only (journal/NNNNNNNN.ckp) */
	RECORD_STATE,     /* one key and value of the index */
	RECORD_STATE_END, /* how many there were, and the seq they stand for */
	RECORD_TYPE_END
};

/* RECORD_SETATTR: which of the fields are meant */
enum record_attr {
	RECORD_ATTR_MODE = 1,
	RECORD_ATTR_UID = 2,
	RECORD_ATTR_GID = 4,
	RECORD_ATTR_ATIME = 8,
	RECORD_ATTR_MTIME = 16,
	RECORD_ATTR_CTIME = 32
};

enum record_flag {
	RECORD_F_EXCHANGE = 1,      /* RENAME: the two names change places */
	RECORD_F_KEEP_SIZE = 2,     /* PUNCH: does not grow the file */
	RECORD_F_MOVED = 4,         /* PLACED: by renaming (from_parent, from_name); else newly made or linked */
	RECORD_F_UNPUBLISHED = 8,   /* PLACED: under a temporary name, for write-through */
	RECORD_F_KEEP_PRIVATE = 16, /* DRAINED: the private segment is still being written: stay dirty */
	RECORD_F_META_ONLY = 32,    /* DRAINED: only attributes were carried over */
	RECORD_F_COPIED = 64, /* SETXATTR: as the backing file has it, ahead of a first change: changes nothing yet */
};

struct record_range {
	uint64_t off; /* in the file, bytes */
	uint32_t len; /* bytes */
	uint32_t crc; /* CRC32C of the payload; 0 in SEAL */
};

/* One record, decoded. Strings and arrays are borrowed: from the journal's bytes, or from who appends. */
struct record {
	enum record_type type;
	uint32_t flags;
	uint64_t seq;    /* 1, 2, 3, ... without gaps over the life of a store */
	int64_t time_ns; /* CLOCK_REALTIME; becomes ctime/mtime where the operation sets them */
	uint64_t ino;
	uint32_t gen;  /* generation of the inode number */
	uint32_t node; /* node index of the job; 0 on one node */

	/* names: parent directory's inode and component; "from" = old place (RENAME, PLACED moved) */
	uint64_t parent, from_parent;
	char name[RECORD_NAME_MAX + 1], from_name[RECORD_NAME_MAX + 1];
	uint64_t other_ino; /* RENAME: the inode that lost its name, or 0; EXCHANGE: the one changed with */

	/* attributes (CREATE, ADOPT, SETATTR by mask, DRAINED: size, mtime of the backing file) */
	uint32_t mask, mode, uid, gid, nlink;
	uint64_t size;
	int64_t atime_ns, mtime_ns, ctime_ns;
	uint64_t backing_dev, backing_ino;
	const char *target; /* CREATE, ADOPT of a symbolic link; NUL-terminated */
	size_t target_len;

	/* data */
	uint64_t off, len;                 /* WRITE, PUNCH, THROUGH */
	uint32_t segment;                  /* WRITE, EXTENTS, PRIVATE, SEAL; CREATE with a private segment; 0 none */
	uint64_t segment_off;              /* WRITE, EXTENTS: where the payload (run) begins */
	uint32_t payload_crc;              /* WRITE */
	const struct record_range *ranges; /* EXTENTS: payloads follow one another; SEAL: segment_off = off */
	size_t num_ranges;

	uint64_t upto;              /* SYNC: seq; DRAINED: version; STATE_END: seq */
	const uint8_t *key, *value; /* SETXATTR/REMOVEXATTR: name, value; STATE; MOUNT: key = 16-byte boot id */
	size_t key_len, value_len;
	uint64_t count; /* STATE_END */
};

/* Append the encoded record (header with CRC, body, padded to 8 bytes) to out. 0, -EINVAL, -ENAMETOOLONG, -E2BIG, -ENOMEM. */
int record_encode(const struct record *rec, struct buf *out);

struct record_scratch { /* memory that decoded records borrow from; zero-initialise, free at the end */
	struct record_range *ranges;
	size_t cap;
	char target[RECORD_TARGET_MAX + 1];
};
void record_scratch_free(struct record_scratch *s);

/*
 * Decode the record at the start of buf. Valid if and only if magic, version, length, CRC and every field are
 * right. *ret_used = its length. 0; -ENODATA: zeros, nothing was written here; -EBADMSG: damaged or torn;
 * -EPROTONOSUPPORT: a newer version. The record borrows from buf and scratch.
 */
int record_decode(
	const void *buf, size_t len, struct record_scratch *scratch, struct record *ret_rec, size_t *ret_used);

const char *record_type_name(enum record_type type); /* "create", ...; "?" when unknown. Static. */

#endif
