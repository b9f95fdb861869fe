/* SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef FS_JOB_MESSAGE_H
#define FS_JOB_MESSAGE_H

/*
 * What daemons of a job say to each other, over fs/peer: requests by type and what their fields are called. Every reply
 * has WIRE_STATUS (0 or -errno) first. Fields that a request does not have read as 0 or "" where its handler allows it.
 *
 * A part of fs/job owns a range of types and of tags; serve.c says who handles what.
 */

#include "format/wire/wire.h"

enum message_type {
	/* names.c: 200 to 219 */
	MESSAGE_NAME_LOCK = 200, /* to the server of each name: NAME_*: lock; -> POINTER: what is there */
	MESSAGE_NAME_UNLOCK,     /* one-way: NAME_*, POINTER: what is there now */
	MESSAGE_NAME_LOOKUP,     /* -> POINTER; waits while the name is locked */
	MESSAGE_NAME_LIST,       /* DIR: names below it that this node's files have or hide -> NAMES */
	MESSAGE_NAME_TELL, /* one-way, to a server that was restarted: NAMES that this node's state has or hides */
	MESSAGE_NAME_TOLD, /* one-way: that was all */

	/* tree.c: 220 to 239 */
	MESSAGE_TREE_CHANGE = 220, /* to node 0: CHANGE, ... -> STATUS, INO */
	MESSAGE_TREE_PREPARE,      /* from node 0: CHANGE, DIR -> STATUS, NAMES that it hides below DIR */
	MESSAGE_TREE_COMMIT,       /* from node 0: RECORD: apply it; ends what PREPARE began */
	MESSAGE_TREE_ABORT,        /* from node 0: ends what PREPARE began */
	MESSAGE_TREE_FETCH,        /* to node 0: STAMP: the records behind it -> RECORD* */
	MESSAGE_TREE_TIMES,        /* one-way, to the directory's time home: INO, TIME */
	MESSAGE_TREE_GET_TIMES,    /* INO -> TIME */

	/* remote.c: 240 to 259. All but FORGET have INO and HINT */
	MESSAGE_FILE_GET = 240, /* HOLD -> ENTRY */
	MESSAGE_FILE_SET,       /* MASK, ENTRY -> ENTRY */
	MESSAGE_FILE_READLINK,  /* -> TARGET */
	MESSAGE_FILE_LINK,      /* DIR, NAME, STAMP -> ENTRY */
	MESSAGE_FILE_UNLINK,    /* DIR, NAME */
	MESSAGE_FILE_RENAME,    /* FROM_DIR, FROM, DIR, NAME, FLAGS, OTHER, STAMP */
	MESSAGE_FILE_GETXATTR,  /* NAME, SIZE -> VALUE */
	MESSAGE_FILE_LISTXATTR, /* SIZE -> VALUE */
	MESSAGE_FILE_SETXATTR,  /* NAME, VALUE, FLAGS */
	MESSAGE_FILE_REMOVEXATTR,
	MESSAGE_FILE_FORGET, /* one-way: INO, COUNT */

	MESSAGE_SHARE_FIRST = 260,
	MESSAGE_SHARE_LAST = 299,
	MESSAGE_LOCK_FIRST = 300,
	MESSAGE_LOCK_LAST = 319,
	MESSAGE_DRAIN_FIRST = 320,
	MESSAGE_DRAIN_LAST = 339,
	MESSAGE_TYPE_END
};

enum message_tag {
	/* names, tree, remote: 200 to 259 */
	MESSAGE_INO = 200,
	MESSAGE_HINT_DIR, /* u64: a directory of the tree, and */
	MESSAGE_HINT,     /* a path from there: where an untouched backing file was found */
	MESSAGE_DIR,
	MESSAGE_NAME,
	MESSAGE_FROM_DIR,
	MESSAGE_FROM,
	MESSAGE_FLAGS,
	MESSAGE_OTHER,
	MESSAGE_STAMP,
	MESSAGE_POINTER,
	MESSAGE_NAMES,
	MESSAGE_CHANGE,
	MESSAGE_TIME,
	MESSAGE_HOLD,
	MESSAGE_ENTRY,
	MESSAGE_MASK,
	MESSAGE_TARGET,
	MESSAGE_SIZE,
	MESSAGE_VALUE,
	MESSAGE_COUNT,
	MESSAGE_MODE,
	MESSAGE_UID,
	MESSAGE_GID,
	MESSAGE_RECORD_BYTES,

	MESSAGE_SHARE_TAGS = 300, /* to 399 */
	MESSAGE_LOCK_TAGS = 400,  /* to 449 */
	MESSAGE_DRAIN_TAGS = 450, /* to 499 */
};

/* The wire's own functions, for these types and tags. Absent numbers read as 0. */
static inline void message_init(struct wire_msg *m, enum message_type type)
{
	wire_msg_init(m, (enum wire_type)(int)type);
}

static inline void message_put(struct wire_msg *m, enum message_tag tag, uint64_t v)
{
	wire_put_u64(m, (enum wire_tag)(int)tag, v);
}

static inline void message_put_bytes(struct wire_msg *m, enum message_tag tag, const void *p, size_t len)
{
	wire_put_bytes(m, (enum wire_tag)(int)tag, p, len);
}

static inline void message_put_str(struct wire_msg *m, enum message_tag tag, const char *s)
{
	wire_put_str(m, (enum wire_tag)(int)tag, s);
}

static inline uint64_t message_get(const struct wire_msg *m, enum message_tag tag)
{
	uint64_t v;

	return wire_get_u64(m, (enum wire_tag)(int)tag, &v) ? v : 0;
}

static inline bool message_get_bytes(
	const struct wire_msg *m, enum message_tag tag, unsigned int n, const uint8_t **ret, size_t *ret_len)
{
	return wire_get_bytes(m, (enum wire_tag)(int)tag, n, ret, ret_len);
}

static inline bool message_get_str(const struct wire_msg *m, enum message_tag tag, char *out, size_t cap)
{
	return wire_get_str(m, (enum wire_tag)(int)tag, 0, out, cap);
}

#endif
