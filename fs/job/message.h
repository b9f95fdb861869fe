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
	/* names.c, rebuild.c, list.c: 200 to 219 */
	MESSAGE_NAME_LOCK =
		200, /* to the name's server: DIR, NAME, TREE, COUNT (id) -> INO, POINTER, OTHER: what is there; STAMP */
	MESSAGE_NAME_UNLOCK, /* DIR, NAME, COUNT (id), FLAGS 1: INO, POINTER, OTHER: what is there now; 0: not known */
	MESSAGE_NAME_LOOKUP, /* DIR, NAME -> INO, POINTER, OTHER; waits while the name is locked */
	MESSAGE_NAME_DOUBT,  /* its home does not have what it leads to: look who has */
	MESSAGE_NAME_SEND,   /* from a server that has just begun: COUNT: page, LIVES -> NAMES, COUNT: next page */
	MESSAGE_NAME_WHO,    /* from a server in doubt: DIR, NAME, LIVES -> INO, POINTER, OTHER as your state has it */
	MESSAGE_NAME_CLAIM,  /* to the name's server: DIR, NAME, INO, OTHER: ours, since before we lost power */
	/* DIR, NAME: what is below it behind that name: files of yours, and what they hide; TIME: when the listing began
	 * -> NAMES; HANDED: perhaps not all that has been handed over since then */
	MESSAGE_NAME_LIST,
	MESSAGE_NAME_NEEDED, /* DIR, NAME; INO: of the backing file there: 0: yours, and not needed; -EBUSY: needed; -ENOENT: not yours */
	MESSAGE_NAME_AWAIT, /* answered when what was asked before is done */
	/* DIR, NAMES (walk.c): of several names of yours -> NAMES: those that lead to the files that are said, and are not locked */
	MESSAGE_NAME_LOOKUP_MANY,

	/* tree.c, sequence.c: 220 to 239 */
	MESSAGE_TREE_CHANGE =
		220, /* to node 0: CHANGE and what it needs -> POINTER: the name that went is hidden in the backing directory */
	/* From node 0: CLOSED may go; INO (FROM in FROM_DIR), OTHER (NAME in DIR): directories that move or go; 0: none; ASKER;
	 * PREPARED -> NAMES of the backing directory hidden in CLOSED, and where more begin, as TREE_HIDDEN has it. */
	MESSAGE_TREE_PREPARE,
	/* From node 0, the end of whatever PREPARE began: RECORD*, ASKER; PREPARED: whose records these are; STAMP: the last change that you
	 * have then; COUNT: enum tree_word */
	MESSAGE_TREE_COMMIT,
	MESSAGE_TREE_STAMP,   /* from node 0: -> STAMP of the last change that you have, and its TIME */
	MESSAGE_TREE_RECORDS, /* from node 0, whose last change is STAMP: -> RECORD*, ASKER: you; TIME of that STAMP here; STAMP: the last change that you have */
	/* from node 0: DIR, closed by PREPARE; FLAGS, NAME: what comes behind that name -> NAMES; COUNT: there are more: FLAGS, FROM: behind that */
	MESSAGE_TREE_HIDDEN,

	/* home.c: 240 to 255: to the home of INO, with HINT_DIR, HINT */
	MESSAGE_FILE_GET = 240, /* COUNT: lookups to be counted -> ENTRY; QUIET, BARE */
	MESSAGE_FILE_SET,       /* MASK, ENTRY -> ENTRY */
	MESSAGE_FILE_READLINK,  /* -> TARGET */
	/* -> LIFE, too: LINK, UNLINK, RENAME, ADOPT. LEFT of UNLINK, RENAME: what lost NAME has other names */
	MESSAGE_FILE_LINK,   /* DIR, NAME, TREE, STAMP -> ENTRY, a lookup counted */
	MESSAGE_FILE_UNLINK, /* DIR, NAME; HANDED: a file of another home has the name now -> POINTER */
	/* FROM_DIR, FROM, DIR, NAME, TREE, FLAGS, STAMP; OTHER: what is replaced, if at home there; HANDED: a file of another home has
	 * FROM -> POINTER of FROM */
	MESSAGE_FILE_RENAME,
	MESSAGE_FILE_GETXATTR,    /* NAME, SIZE -> VALUE, COUNT: its size */
	MESSAGE_FILE_LISTXATTR,   /* SIZE -> VALUE, COUNT */
	MESSAGE_FILE_SETXATTR,    /* NAME, VALUE, FLAGS */
	MESSAGE_FILE_REMOVEXATTR, /* NAME */
	MESSAGE_FILE_ADOPT,  /* DIR, NAME, one of its names: your state has it afterwards, with STAMP or a higher one */
	MESSAGE_FILE_FORGET, /* one-way: COUNT lookups less */
	MESSAGE_FILE_LOST,   /* one-way, from the home: a file that you have looked up has lost a name */
	/* DIR, NAMES (walk.c): of several of your files, under a word -> QUIET; NAMES: of which, ENTRY of each, a lookup counted */
	MESSAGE_FILE_GET_MANY,

	/* times.c: 256 to 259 */
	MESSAGE_DIR_TOLD =
		256, /* to the time home of directory INO: TIME, STAMP: something has changed in it; answered when readers know */
	MESSAGE_DIR_ASK,     /* to it: INO -> TIME, STAMP: of the last change that it knows of */
	MESSAGE_DIR_CHANGED, /* from it to who has asked: INO */

	/* share*.c: 260 to 299. VIEW: the tags from SHARE_INO to SHARE_PATH */
	MESSAGE_SHARE_REGISTER =
		260, /* to the home: INO, READERS, WRITERS (of this node now), END, AT_STAMP (that knows of all cuts up to it), HINT* -> VIEW */
	MESSAGE_SHARE_STAMP, /* to the home: INO -> STAMP; waits while the file is being cut */
	MESSAGE_SHARE_PUT,   /* to a domain home: INO, STAMP, BASE, TIME, PIECES */
	MESSAGE_SHARE_COMMITTED, /* to the home: INO, STAMP, SIZE, MTIME: all homes have it -> VIEW, when all openers know */
	MESSAGE_SHARE_TOLD,      /* from the home to an opener to whom it was promised: VIEW */
	MESSAGE_SHARE_LOCATE, /* to a domain home: INO, OFF, LEN, FIRST: only some -> PIECES, OFF to go on from */
	MESSAGE_SHARE_LOCATE_HOME, /* the same to the home of a file that is not shared; -ESTALE: it is; -EBUSY: CARRY_READ */
	/*
	 * to the home: INO, LEN; LIFE of who has refused that last -> OFF: the place is yours, as of AT_STAMP; -EAGAIN, LIFE: I am another one;
	 * -EBUSY: later
	 */
	MESSAGE_SHARE_APPEND,
	MESSAGE_SHARE_TRUNCATE, /* to the home: INO, SIZE, UNTIL -> VIEW; -EAGAIN: ask again if you have the time */
	MESSAGE_SHARE_CUT,      /* from the home to all: VIEW, UNTIL: map and layer end at SIZE */
	MESSAGE_SHARE_DROP, /* from the home to all, one-way: PIECES (u64 inodes): maps and layers are of no use any more */
	MESSAGE_SHARE_LOOK,  /* from an opener that was told, to the home: INO -> VIEW; -ESTALE: register */
	MESSAGE_SHARE_CARRY, /* to the home of a file that cannot be shared: INO, FLAGS (enum carry), OFF, LEN or PIECES (bytes), MODE, UNTIL -> SIZE, or VIEW */
	MESSAGE_SHARE_CARRY_READ, /* to it: INO, OFF, LEN -> PIECES (bytes); -ESTALE: ask for places */
	MESSAGE_SHARE_BACKING_READ, /* to the home: INO, OFF, LEN -> PIECES (bytes of the backing file): no path leads there any more */
	MESSAGE_SHARE_END_ASK, /* to all: INO; LIFE: of the home, if that asks -> END: so far reaches what you know of, also what you have not committed; OFF: and what you were given; FLAGS 1: not known yet */
	MESSAGE_SHARE_FORGET,  /* to all, one-way: INO: of what you know of it nothing is to be had from me any more */
	/* to the home, from who reads what he may write: INO; answered when all who write have committed. -> PROMISE, AT_STAMP: a lease */
	MESSAGE_SHARE_SHOW,
	/* from it, to those: INO, PROMISE: say WRITES for so long, FLAGS 1: register -> FLAGS 1: has written, or does */
	MESSAGE_SHARE_SHOW_NOW,
	MESSAGE_SHARE_RECALL, /* from it, to who has a lease: INO, AT_STAMP */
	MESSAGE_SHARE_WRITES, /* to it, from who is bound: INO; answered when no other node has a lease */

	/* lock.c: 300 to 319 */
	MESSAGE_LOCK_ASK =
		300,         /* to the home: WHAT, ID, WAITS, LIST of one -> WAITS, LIST of one: what is in the way */
	MESSAGE_LOCK_CANCEL, /* to the home: ID -> WAITS: it did, and does not any more */
	MESSAGE_LOCK_FIX, /* one-way, to the home: ID, LIST: in the range of the first, the rest is all that its owner has */
	MESSAGE_LOCK_GRANTED, /* one-way, from the home: ID, ERRNO: what waited does not any more */
	MESSAGE_LOCK_RECLAIM, /* one-way, from the home: what do you hold? */
	MESSAGE_LOCK_HELD,    /* one-way, to the home: LIST, LAST */
	MESSAGE_LOCK_LOST,    /* one-way, from the home: LIST: others have them */
	MESSAGE_LOCK_FORGET, /* one-way, to a home that was given up and is back: what I had and waited for is no more */
	MESSAGE_DRAIN_FIRST = 320,
	MESSAGE_DRAIN_LAST = 339,

	/* power.c: 340 to 349 */
	MESSAGE_SYNC = 340,    /* what you have is to be on your device. LIFE: -ESTALE if you are another daemon */
	MESSAGE_POWER_SETTLED, /* answered when all know what you have lost with the power, if you have */
	MESSAGE_POWER_LOST,    /* to all: what you know of my commits may be no more */
	MESSAGE_POWER_TELL,    /* to all, then: tell all that you have committed; and me what I am home of */
	/*
	 * To all, first: COUNT: behind this inode -> PIECES: what was cut off of shared files, as you know it; DRAINED: what was carried of them; COUNT: the
	 * last inode, 0: of all
	 */
	MESSAGE_POWER_CUTS,
	MESSAGE_POWER_KNOWS_CUTS, /* to oneself: answered when that is known */

	/* quiet.c: 350 */
	MESSAGE_QUIET_RECALL =
		350, /* from a home: what it has told of its files may change; answered when that is known */
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
	MESSAGE_CLOSED,   /* a directory that may go; 0: none */
	MESSAGE_ASKER,    /* node */
	MESSAGE_TREE,     /* with DIR: the sender's last change of the tree; who does not have it yet waits for it */
	MESSAGE_LEFT,     /* pointer.left */
	MESSAGE_LIFE,     /* which daemon of a node: power_life() */
	MESSAGE_HANDED,   /* handover.c */
	MESSAGE_PREPARED, /* number of a change; 0: none that was prepared for */
	MESSAGE_LIVES,    /* late.c */
	MESSAGE_QUIET,    /* usec: the home's word (quiet.c); 0: it gives none */
	MESSAGE_BARE,     /* it has no extended attributes */

	/* share: 300 to 399 */
	MESSAGE_SHARE_INO = 300,
	MESSAGE_SHARE_SIZE,
	MESSAGE_SHARE_MTIME,
	MESSAGE_SHARE_AT_STAMP,
	MESSAGE_SHARE_BASE,
	MESSAGE_SHARE_LIMIT,
	MESSAGE_SHARE_FLAGS,
	MESSAGE_SHARE_DEV,
	MESSAGE_SHARE_BACKING_INO,
	MESSAGE_SHARE_PARENT,
	MESSAGE_SHARE_NAME,
	MESSAGE_SHARE_MODE,
	MESSAGE_SHARE_UID,
	MESSAGE_SHARE_GID,
	MESSAGE_SHARE_PATH,
	MESSAGE_SHARE_READERS,
	MESSAGE_SHARE_WRITERS,
	MESSAGE_SHARE_END,
	MESSAGE_SHARE_OFF,
	MESSAGE_SHARE_LEN,
	MESSAGE_SHARE_PIECES,
	MESSAGE_SHARE_TIME, /* PUT: of the first piece; those of the others are less it. REGISTER: when it was counted, ns */
	MESSAGE_SHARE_FIRST,
	MESSAGE_SHARE_DRAINED,       /* CUTS: inode, stamp, time (0: any) of each */
	MESSAGE_SHARE_DRAINED_STAMP, /* VIEW: struct drained_upto */
	MESSAGE_SHARE_DRAINED_TIME,
	MESSAGE_SHARE_PROMISE,    /* usec. VIEW: struct view */
	MESSAGE_SHARE_FILE_STAMP, /* VIEW: struct view */
	MESSAGE_SHARE_UNTIL, /* so long does who asks wait, or has his locks, by the job's clock, usec; not to be done later */

	/* lock: 400 to 449 */
	MESSAGE_LOCK_WHAT = 400, /* enum lock_what */
	MESSAGE_LOCK_ID,         /* of a node's request */
	MESSAGE_LOCK_WAITS,
	MESSAGE_LOCK_LIST, /* lock_put() */
	MESSAGE_LOCK_ERRNO,
	MESSAGE_LOCK_LAST, /* bool: that was all */

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
