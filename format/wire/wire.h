/* SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef FORMAT_WIRE_WIRE_H
#define FORMAT_WIRE_WIRE_H

/*
 * What the daemon, the agent and the tools say to each other over STORE/ctl.sock (SOCK_STREAM): frames of a
 * 16-byte header {magic "CWR1", u16 version, u16 type, u32 body length, u32 CRC32C of the body} and a body of fields {u16 tag, u8
 * kind, value}. A request is answered by exactly one frame of type WIRE_REPLY with WIRE_STATUS (0 or -errno as i64) and,
 * on errors, WIRE_TEXT. Unknown fields are skipped.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cistern/error.h"
#include "format/base/cursor.h"

#define WIRE_MAX_BYTES   (4u << 20)
#define WIRE_FETCH_SLOTS 4          /* that one drain may use at a time */
#define WIRE_FETCH_BYTES (1u << 20) /* fit a slot */
#define WIRE_SOCKET      "ctl.sock" /* in the store; linked from a short path when the store's is too long for sun_path */

enum wire_type {
	WIRE_REPLY = 1,
	/* tools -> daemon */
	WIRE_STATUS_GET, /* -> every field of enum wire_tag marked S */
	WIRE_FLUSH,      /* PATH* (absolute in the mount, or relative to its root), none: all -> SESSION */
	WIRE_WAIT, /* SESSION (0: any): replies when it has ended, or after TIMEOUT with -ETIMEDOUT; RESULT, TEXT* */
	WIRE_PAUSE,
	WIRE_RESUME,
	WIRE_SNAPSHOT,   /* -> PATH (name of the snapshot), SEQ; lives until the connection closes */
	WIRE_CONFIG_GET, /* -> TEXT = "key=value,..." with origins as "key=value@origin" lines */
	/* agent -> daemon */
	WIRE_DRAIN_BEGIN, /* PROTOCOL_* -> PROTOCOL_*, SESSION, PATH (snapshot name), SEQ, FILTER*, OPTIONS (config_to_options), PART, SINCE, CAUTIOUS, SHARED, NODE_NAME */
	WIRE_DRAIN_STEP, /* RECORD (encoded PLACED, REMOVED or DRAINED): the daemon commits it. -> STATUS; PAUSED; RATE; TIME_SHARE */
	WIRE_DRAIN_PROGRESS, /* PLANNED_BYTES, DONE_BYTES, PLANNED_FILES, DONE_FILES, PATH (current) -> PAUSED, RATE, TIME_SHARE, CANCEL */
	WIRE_DRAIN_ERROR,  /* PATH, CODE, TEXT */
	WIRE_DRAIN_SHARED, /* SHARED (one entry), CODE: as the watcher's shared() has it (mpi-agent/replay/drain.h) */
	WIRE_DRAIN_FETCH, /* SLOT, PAYLOAD: u64 off, u32 node, u32 segment, u32 len each, LE: bring them, one behind the other, to the slot */
	WIRE_DRAIN_END, /* RESULT (enum cistern_exit), TEXT, TOTALS */
	/*
	 * serving agent <-> daemon (docs/design/many-nodes.md, 2). HELLO and ASSEMBLED are requests with replies; from the reply to
	 * ASSEMBLED on, the connection carries the rest in both directions, without replies. A daemon that refuses answers either
	 * with -errno and TEXT (-EBUSY: another agent is there): then no node is assembled.
	 */
	WIRE_AGENT_HELLO, /* PID, PROTOCOL_*, VERSION_TEXT -> PROTOCOL_*, UUID (16 bytes), JOB (text, may be empty), JOB_UUID (16 bytes), NODE, NODES (1:
			       * not numbered), BACKING, INCARNATION, STORE, VERSION_TEXT, NODES_WANTED, MEMORY (bytes of the shared memory; its
			       * descriptor comes with the reply: wire_send_fd, wire_call_fd) */
	WIRE_AGENT_ASSEMBLED, /* PROTOCOL_*, NODE, NODES, JOB_UUID, NODE_NAME of each node in order (its host), INCARNATIONS (u64 LE of each) */
	WIRE_AGENT_REFUSED, /* TEXT: why this set of stores is wrong; the agent ends */
	WIRE_PEER_SEND,     /* daemon -> agent: NODE (to; not oneself), PAYLOAD: carry it. In order for each node */
	WIRE_PEER_RECEIVED, /* agent -> daemon: NODE (from), PAYLOAD */
	WIRE_PEER_GET, /* daemon -> agent: SEQ (id), PAYLOAD: u32 node, u32 segment, u64 off, u32 len, u32 0, u64 to (in MEMORY) each, LE */
	WIRE_PEER_GOT, /* agent -> daemon: SEQ (id), STATUS: 0; -ENOENT: a segment is gone, or the node's own; -EINVAL: beyond its end */
	WIRE_PEER_LEFT, /* agent -> daemon: NODE: its daemon closed its socket. What is sent to it is dropped */
	WIRE_PEER_JOINED, /* agent -> daemon: NODE, INCARNATION: it has a daemon again (one mounted anew while the agents ran) */
	/* draining agent -> daemon, again */
	WIRE_DRAIN_FETCHED, /* SLOT: when what was fetched last is there -> OFFSET: in the memory whose descriptor the agent was started with */
	WIRE_DRAIN_OCCUPIED, /* RECORD: PLACED of a name that something else has, which backing_ino is: 0: may it be replaced? -EBUSY */
	WIRE_DRAIN_PLACES, /* PAYLOAD: u64 ino, off, len, how many at most, LE -> OFFSET: where to go on, PAYLOAD: u64 size, stamp of the newest cut, LE, places (format/place/places.h) */
};

/* What a drain session of a job of many nodes does of the whole (docs/design/many-nodes.md, 6); WIRE_PART of a grant. */
enum wire_part {
	WIRE_PART_WHOLE, /* one node alone: everything */
	WIRE_PART_LOOK,  /* of a dead job only: where are the directories now? Removed ones are parked; by who leads */
	WIRE_PART_PARK, /* files that have moved make way: their backing names become parking places; removed ones, to directories */
	WIRE_PART_DIRS,  /* directories are made and moved, and removed ones parked; node 0 only */
	WIRE_PART_BEGIN, /* files that several nodes wrote: their homes make what all can write to */
	WIRE_PART_DEAL,  /* those that become blobs: each node says what it has of them, */
	WIRE_PART_BLOBS, /* and writes its subfiles */
	WIRE_PART_DATA,  /* and each node writes the domains whose home it is, */
	WIRE_PART_HEAD,  /* those that were there before: their first bytes after all others */
	WIRE_PART_FILES, /* files of one node: names and data; those of several get their names */
	WIRE_PART_OFFER, /* the job's last session: large files that become netCDF-4 files are made known to all nodes, */
	WIRE_PART_PACK,    /* which compress a share of each; */
	WIRE_PART_MAKE,    /* their homes put them together, */
	WIRE_PART_CHECK,   /* and all compare a share with the old file; */
	WIRE_PART_CONVERT, /* files of each node get the layout that was asked for */
	WIRE_PART_REMOVE,  /* backing names of files without a name go */
	WIRE_PART_FINISH,  /* those of directories, and the attributes of directories; node 0 only */
	WIRE_PART_END
};

/* Why what waits for the last drain must go now, as it is; WIRE_ROOM of a grant. */
enum wire_haste {
	WIRE_HASTE_NONE, /* it need not */
	WIRE_HASTE_ROOM, /* a store must have room */
	WIRE_HASTE_LATE, /* not all nodes of the job are unmounted, and those that are wait no longer */
	WIRE_HASTE_END
};

enum wire_kind { WIRE_U64 = 1, WIRE_I64 = 2, WIRE_BYTES = 3 };

enum wire_tag { /* S: in a status reply */
	WIRE_STATUS = 1,
	WIRE_TEXT,
	WIRE_PATH,
	WIRE_SESSION,
	WIRE_TIMEOUT_USEC,
	WIRE_RESULT,
	WIRE_SEQ,
	WIRE_FILTER,
	WIRE_OPTIONS,
	WIRE_RECORD,
	WIRE_PAUSED /*S*/,
	WIRE_RATE,
	WIRE_CANCEL,
	WIRE_CODE,
	WIRE_PLANNED_BYTES /*S*/,
	WIRE_DONE_BYTES /*S*/,
	WIRE_PLANNED_FILES /*S*/,
	WIRE_DONE_FILES /*S*/,
	WIRE_PID = 32 /*S*/,
	WIRE_BACKING /*S*/,
	WIRE_MOUNTPOINT /*S*/,
	WIRE_STORE /*S*/,
	WIRE_CAPACITY /*S*/,
	WIRE_USED /*S*/,
	WIRE_FREE /*S*/,
	WIRE_DIRTY_BYTES /*S*/,
	WIRE_DIRTY_FILES /*S*/,
	WIRE_DRAINED_BYTES /*S*/,
	WIRE_DRAINED_FILES /*S*/,
	WIRE_WRITTEN_BYTES /*S*/,
	WIRE_SAVED_BYTES /*S*/,
	WIRE_THROUGH_BYTES /*S*/,
	WIRE_LOG_BYTES /*S*/,
	WIRE_PRIVATE_BYTES /*S*/,
	WIRE_PRIVATE_FILES /*S*/,
	WIRE_EXTENTS /*S*/,
	WIRE_INDEX_BYTES /*S*/,
	WIRE_WRITE_RATE /*S bytes/s*/,
	WIRE_DRAIN_RATE /*S bytes/s*/,
	WIRE_ERRORS /*S count*/,
	WIRE_ERROR_TEXT /*S repeated: "path: text"*/,
	WIRE_STATE /*S text: mounted|draining|unmounted*/,
	WIRE_DRAINING /*S 0/1*/,
	WIRE_CURRENT_PATH /*S*/,
	WIRE_CACHED_READS /*S*/,
	WIRE_PASSTHROUGH /*S 0/1 available*/,
	WIRE_UPTIME_USEC /*S*/,
	WIRE_RECOVERED /*S text*/,
	WIRE_VERSION_TEXT /*S*/,
	WIRE_OPEN_FILES /*S*/,
	WIRE_LAST_RESULT /*S*/,
	WIRE_SKIP_INODES /* DRAIN_BEGIN's reply: bytes, u64 LE each: private files being written, to be left alone */,
	WIRE_TIME_SHARE /*S percent of the time that a drain works*/,
	WIRE_UUID = 96,
	WIRE_JOB,
	WIRE_JOB_UUID,
	WIRE_NODE,
	WIRE_NODES,
	WIRE_NODE_NAME,
	WIRE_INCARNATION,
	WIRE_INCARNATIONS,
	WIRE_MEMORY,
	WIRE_PAYLOAD,
	WIRE_PART,   /* DRAIN_BEGIN's reply: enum wire_part */
	WIRE_SHARED, /* DRAIN_BEGIN's reply: a list (shared.h) */
	WIRE_CAUTIOUS, /* DRAIN_BEGIN's reply: what another node has in the backing directory may be in the way; replace nothing */
	WIRE_ROOM,         /* DRAIN_BEGIN's reply: enum wire_haste */
	WIRE_CONVERT,      /* DRAIN_BEGIN's reply: the mount is gone, so files may get another layout */
	WIRE_NODES_WANTED, /* HELLO's reply: how many nodes the job has, as this mount was told */
	WIRE_AGENT_PID /*S; only where there is one*/,
	WIRE_AGENT_USEC /*S how long it has been assembled, or how long the daemon has been without*/,
	WIRE_MISSING /*S repeated: "node 2 (host cn17): its daemon has not come back"*/,
	WIRE_TOTALS, /* DRAIN_END: manifest_totals_encode() */
	WIRE_SLOT,   /* of memory for what a drain fetches: 0 to WIRE_FETCH_SLOTS - 1 */
	WIRE_OFFSET,
	WIRE_WAITING /*S text: whom the drain of a job waits for; only while it does*/,
	WIRE_SINCE, /* DRAIN_BEGIN's reply: inode numbers of new files of this node from there on came after the session had been asked for */
	WIRE_VERIFY_BYTES /*S that a drain reads back in all*/,
	WIRE_VERIFIED_BYTES /*S*/,
	WIRE_PROTOCOL_OLDEST, /* protocol.h: with HELLO, DRAIN_BEGIN and their replies; ASSEMBLED: those that all nodes speak */
	WIRE_PROTOCOL_NEWEST,
	WIRE_STRAGGLER, /* DRAIN_BEGIN's reply, repeated: "SEGMENT WHO": who writes through a dead mount */
	WIRE_STRAGGLER_TEXT /*S repeated: "path: who, and what to do"*/,
};

struct wire_msg { /* zero-initialise; wire_msg_free */
	uint16_t type;
	struct buf body;
};

void wire_msg_init(struct wire_msg *m, enum wire_type type); /* empties */
void wire_msg_free(struct wire_msg *m);
void wire_put_u64(struct wire_msg *m, enum wire_tag tag, uint64_t v);
void wire_put_i64(struct wire_msg *m, enum wire_tag tag, int64_t v);
void wire_put_bytes(struct wire_msg *m, enum wire_tag tag, const void *p, size_t len);
void wire_put_str(struct wire_msg *m, enum wire_tag tag, const char *s);
/* The n-th (from 0) field with that tag. False when there is none or it has another kind. Borrowed from m. */
bool wire_get_u64(const struct wire_msg *m, enum wire_tag tag, uint64_t *ret);
bool wire_get_i64(const struct wire_msg *m, enum wire_tag tag, int64_t *ret);
bool wire_get_bytes(const struct wire_msg *m, enum wire_tag tag, unsigned int n, const uint8_t **ret, size_t *ret_len);
/* All fields with that tag in one go: each gets its bytes, borrowed; false stops. Were all taken? */
bool wire_each_bytes(
	const struct wire_msg *m, enum wire_tag tag, bool (*each)(const uint8_t *p, size_t len, void *arg), void *arg);
bool wire_get_str(const struct wire_msg *m, enum wire_tag tag, unsigned int n, char *out, size_t cap);
/*
 * The n-th field with that tag as a string, a copy for the caller to free. -ENOENT: there is none; -EBADMSG: there is one, but
 * it is of another kind, has more than max_bytes, or holds a NUL; -ENOMEM.
 */
int wire_copy_str(const struct wire_msg *m, enum wire_tag tag, unsigned int n, size_t max_bytes, char **ret);

/*
 * Blocking, whole frames. timeout_usec 0: none. -ECONNRESET at end of stream, -EBADMSG, -ETIMEDOUT (of wire_send: nothing has gone for as
 * long as the socket's SO_SNDTIMEO says), -E2BIG.
 */
int wire_send(int fd, const struct wire_msg *m);
int wire_recv(int fd, struct wire_msg *m, uint64_t timeout_usec);
/*
 * The same with a descriptor beside the frame. pass stays the caller's; -1: none. *ret_fd is the receiver's (close-on-exec), -1 when
 * none came.
 */
int wire_send_fd(int fd, const struct wire_msg *m, int pass);
int wire_recv_fd(int fd, struct wire_msg *m, uint64_t timeout_usec, int *ret_fd);
/* wire_send, wire_recv, and the reply's WIRE_STATUS / WIRE_TEXT turned into a return value and *err. */
int wire_call(int fd, const struct wire_msg *request, struct wire_msg *reply, uint64_t timeout_usec,
	struct cistern_error *err);
/* The same; *ret_fd as wire_recv_fd says, written only on success. */
int wire_call_fd(int fd, const struct wire_msg *request, struct wire_msg *reply, uint64_t timeout_usec, int *ret_fd,
	struct cistern_error *err);
/* A reply's WIRE_STATUS and WIRE_TEXT as a return value and *err. -EBADMSG: it is no reply. */
int wire_reply_check(const struct wire_msg *reply, struct cistern_error *err);
void wire_reply_error(struct wire_msg *reply, const struct cistern_error *err); /* fills a WIRE_REPLY */
/* Connect to / listen on the store's socket. -ENOENT, -ECONNREFUSED: no daemon; -ETIMEDOUT: it accepts nobody. fd on success. */
int wire_connect(const char *store_path, struct cistern_error *err);
int wire_connect_within(const char *store_path, uint64_t timeout_usec, struct cistern_error *err);
int wire_listen(const char *store_path, struct cistern_error *err);

#endif
