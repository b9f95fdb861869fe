/* SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef FS_CTL_PRIVATE_H
#define FS_CTL_PRIVATE_H

#include <pthread.h>

#include "format/wire/wire.h"
#include "fs/ctl/ctl.h"

#define CTL_CLIENTS_MAX 64

struct client {
	struct ctl *ctl; /* borrowed */
	int fd;          /* -1: free */
	pthread_t thread;
	bool sending;                  /* an answer */
	bool done;                     /* the thread has ended and may be joined */
	char snapshot[64];             /* WIRE_SNAPSHOT: lives as long as the connection */
	struct record_scratch scratch; /* for decoding steps */
};

struct ctl {
	struct ctl_options opt;
	int64_t started_usec;
	atomic_int state;       /* enum ctl_state */
	int listen_fd, stop_fd; /* owned */
	pthread_t thread;
	pthread_mutex_t lock;
	pthread_cond_t sent;                    /* a client is not sending any more */
	bool stopping;                          /* under lock: of requests that have come, one more is answered */
	struct client clients[CTL_CLIENTS_MAX]; /* fd, sending and done under lock */
};

/* request.c: answers one request; reply is a WIRE_REPLY with its status in any case. */
void ctl_answer(struct client *client, const struct wire_msg *request, struct wire_msg *reply);
void ctl_client_gone(struct client *client); /* gives back what the connection held */

/* status.c */
void ctl_put_status(struct ctl *c, struct wire_msg *reply);

#endif
