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
#include <sys/stat.h>
#include <time.h>

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
	/* jobs of many nodes (docs/design/many-nodes.md); record version 2 */
	RECORD_SHARE, /* at its home: other nodes write the file, too */
	RECORD_FOREIGN, /* an inode homed on another node of which this store will hold bytes; again: it has changed there */
	RECORD_COMMITTED, /* what this store has of the inode up to seq upto, and had not committed, now counts, with stamp */
	RECORD_SHARE_PUT,  /* share map: node's committed extents */
	RECORD_SHARE_CUT,  /* share map: bytes at and behind size with a lower stamp go, also those still to come */
	RECORD_SHARE_DROP, /* share map: bytes with a stamp up to this one go; UINT64_MAX: the whole map */
	RECORD_SHARE_LOST, /* share map: all of node's go (UINT32_MAX: all), since power was lost: it is told again */
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
	RECORD_F_COPIED = 64,   /* SETXATTR: as the backing file has it, ahead of a first change: changes nothing yet */
	RECORD_F_STAMPED = 128, /* the record has a stamp behind its body. record_encode() sets it by rec->stamp */
	RECORD_F_TREE =
		256, /* a change of the directory tree, of which stamp (not 0) is the number. Names and attributes only */
	/*
	 * WRITE, EXTENTS, PUNCH of a shared file: time_ns is the job's clock, and what was written keeps it. SHARE_PUT: the pieces
	 * have times; SHARE_DROP, DRAINED: goes by time, too.
	 */
	RECORD_F_TIMED = 512,
};

struct record_range {
	uint64_t off; /* in the file, bytes */
	uint32_t len; /* bytes */
	uint32_t crc; /* CRC32C of the payload; 0 in SEAL */
};

/* RECORD_SHARE_PUT: a committed extent. */
struct record_piece {
	uint64_t off;         /* in the file, bytes */
	uint64_t segment_off; /* kind 0: in the node's segment, bytes */
	uint32_t len;         /* bytes, > 0 */
	uint32_t segment;     /* kind 0: of that node; else 0 */
	uint32_t crc;         /* CRC32C of the payload while whole; else 0 */
	uint8_t kind;         /* enum extent_kind: 0 log, 1 hole */
	bool whole;           /* kind 0: crc is valid */
	uint64_t time_usec;   /* with RECORD_F_TIMED: when it was written, by the job's clock; else 0 */
};

/*
 * The trailer: what a record says beyond its type's body, as tagged fields (format/base/tagged.h). A record without one has
 * not a byte more for it.
 */
enum record_tag { /* numbers as on disk; TRAILER_HAS(tag) in record_trailer.has */
	RECORD_TAG_REQUEST =
		1, /* optional: of an operation that the kernel asked for: its request and what it was told */
	RECORD_TAG_TIMES = 2,  /* optional: times that 64 bits of nanoseconds do not hold */
	RECORD_TAG_DEVICE = 3, /* required: the inode is a FIFO, a socket or a device node */
	RECORD_TAG_COPIES = 4, /* optional: SYNC: which ranges of this store's segments another node holds, too */
	RECORD_TAG_END
};

#define RECORD_HAS(tag) (1u << (tag))

struct record_copy {       /* a range of a segment */
	uint32_t segment;  /* not 0 */
	uint64_t off, len; /* in it, bytes; len > 0 */
};

struct record_trailer {
	uint32_t has; /* RECORD_HAS(tag) of what counts below; 0: as if there were no trailer */
	/* REQUEST */
	uint64_t unique;       /* the kernel's number of the request; not 0 */
	uint32_t answer_error; /* an errno, or 0: it succeeded */
	uint64_t answer_ino;   /* the inode that it was told of, or 0 */
	/* TIMES: atime, mtime, ctime; enum record_attr's bits say which. The record's own is the nearest that it can hold */
	uint32_t wide_mask;
	struct timespec wide[3];
	/* DEVICE: 0, 0 of a FIFO or a socket */
	uint32_t dev_major, dev_minor;
	/* COPIES */
	uint32_t copies_node;             /* that holds them */
	const struct record_copy *copies; /* at most RECORD_EXTENTS_MAX; borrowed as the record's own arrays */
	size_t num_copies;
	/* decoded: */
	uint32_t num_skipped; /* optional fields that are not known */
	uint32_t unknown;     /* tag of a required field that is not known; 0: all are */
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
	/*
	 * WRITE, EXTENTS: the process that wrote it (the id of its thread group, as the daemon sees it); 0: not known. Else 0.
	 */
	uint32_t writer;

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

	/*
	 * Jobs of many nodes. stamp: of COMMITTED and SHARE_*: of a commit of the file's data (as the file's home gives them).
	 * Of records of names and attributes (CREATE to REMOVEXATTR, PLACED, REMOVED, DRAINED; 0: none): with RECORD_F_TREE
	 * the number of the tree change; else what the name's server gave, which CREATE, ADOPT, LINK and RENAME leave in
	 * the entries that they make.
	 */
	uint64_t stamp;
	uint64_t base;                     /* SHARE_PUT: newest stamp that the writer had seen; < stamp */
	const struct record_piece *pieces; /* SHARE_PUT: rising offsets are fastest; at most RECORD_EXTENTS_MAX */
	size_t num_pieces;
	uint64_t drop_usec; /* SHARE_DROP, DRAINED with RECORD_F_TIMED: only what was written up to then; else 0 */

	const struct record_trailer *trailer; /* NULL: none */
};

/* Append the encoded record (header with CRC, body, padded to 8 bytes) to out. 0, -EINVAL, -ENAMETOOLONG, -E2BIG, -ENOMEM. */
int record_encode(const struct record *rec, struct buf *out);

struct record_scratch { /* memory that decoded records borrow from; zero-initialise, free at the end */
	struct record_range *ranges;
	size_t cap;
	struct record_piece *pieces;
	size_t cap_pieces;
	struct record_copy *copies;
	size_t cap_copies;
	struct record_trailer trailer;
	char target[RECORD_TARGET_MAX + 1];
};
void record_scratch_free(struct record_scratch *s);

/*
 * Decode the record at the start of buf. Valid if and only if magic, version, length, CRC and every field are
 * right. *ret_used = its length. 0; -ENODATA: zeros, nothing was written here; -EBADMSG: damaged or torn;
 * -EPROTONOSUPPORT: whole, but of a newer program: *ret_used is good, and of *ret_rec the header, and the trailer's unknown
 * when it is that. The record borrows from buf and scratch.
 */
int record_decode(
	const void *buf, size_t len, struct record_scratch *scratch, struct record *ret_rec, size_t *ret_used);

/* Is it of a type, or does it have a stamp, that only jobs of many nodes have? Of a record that can be encoded. */
bool record_is_of_job(const struct record *rec);
/* What an ADOPT record has of a backing file besides its names and target: mode, owner, links, size, times, device and inode. */
void record_set_attributes(struct record *rec, const struct stat *st);

const char *record_type_name(enum record_type type); /* "create", ...; "?" when unknown. Static. */

#endif
