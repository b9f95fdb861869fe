/* SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef MPI_AGENT_COMM_IDENTITY_H
#define MPI_AGENT_COMM_IDENTITY_H

/*
 * Who the stores are that agents were started for, and whether they are one job. Pure: no MPI, no sockets.
 */

#include <netinet/in.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cistern/error.h"
#include "format/base/cursor.h"
#include "format/wire/protocol.h"
#include "format/wire/wire.h"

#define IDENTITY_UUID_BYTES 16
#define IDENTITY_TEXT_BYTES 4097 /* a path and its NUL */
#define IDENTITY_NAME_BYTES 256
#define IDENTITY_ADDRESSES  4
#define IDENTITY_BYTES      10256 /* encoded, padded */

struct identity_place { /* where wake-ups go */
	uint16_t port;
	uint32_t addresses[IDENTITY_ADDRESSES]; /* IPv4, network order; 0: no more */
	uint64_t host_id;                       /* equal ones, not 0, reach each other by loopback */
};

struct identity_folder { /* of a store's segments, by the numbers that its kernel has for it; zeros: not known */
	uint64_t dev, ino;
};

struct identity {
	int32_t code; /* not 0: there is no store to be had, and text says why */
	char text[CISTERN_ERROR_TEXT_BYTES];
	char host[IDENTITY_NAME_BYTES];
	char store[IDENTITY_TEXT_BYTES];
	char backing[IDENTITY_TEXT_BYTES];
	char job[IDENTITY_NAME_BYTES];
	char version[64];
	struct protocols protocols; /* that its daemon speaks, and its agent */
	uint8_t uuid[IDENTITY_UUID_BYTES];
	uint8_t job_uuid[IDENTITY_UUID_BYTES]; /* of a numbered store; else a proposal */
	uint32_t node, nodes;                  /* nodes 1: not numbered */
	uint32_t wanted;                       /* how many nodes its mount was told of; 0: not known */
	uint64_t incarnation;
	struct identity_place place;
	struct identity_folder folder;
};

/* What a daemon's reply to WIRE_AGENT_HELLO says. -EBADMSG: something is missing. Host and place stay as they are. */
int identity_from_reply(const struct wire_msg *reply, struct identity *ret);

void identity_put_place(struct buf *b, const struct identity_place *place);
void identity_get_place(struct cursor *c, struct identity_place *ret);
void identity_put_folder(struct buf *b, const struct identity_folder *folder);
void identity_get_folder(struct cursor *c, struct identity_folder *ret);
void identity_encode(const struct identity *id, uint8_t out[IDENTITY_BYTES]);
int identity_decode(const uint8_t in[IDENTITY_BYTES], struct identity *ret); /* -EBADMSG */

struct identity_hosts { /* where nodes were when the job assembled last, for those whose stores are not there */
	void (*find)(uint32_t node, char ret[IDENTITY_NAME_BYTES], void *arg); /* "": not known */
	void *arg;
};

/* The protocols that all speak. 0, or -EPROTONOSUPPORT and a text that names the oldest and the newest. */
int identity_protocols(const struct identity *ids, uint32_t num, struct protocols *ret, struct cistern_error *err);
/*
 * Do the stores of num ranks make one job (hosts may be NULL)? 0: ret_node[rank] is each one's number, *ret_job_uuid the job's. Else -EINVAL, or the code
 * of a rank that has no store, and a text that names the culprit (store and host), what is wrong, and the remedy.
 */
int identity_check(const struct identity *ids, uint32_t num, const struct identity_hosts *hosts, uint32_t *ret_node,
	uint8_t ret_job_uuid[IDENTITY_UUID_BYTES], struct cistern_error *err);

#endif
