// SPDX-License-Identifier: GPL-3.0-or-later
/* Requests of other nodes: who handles what, and where. */
#include <errno.h>

#include "fs/job/private.h"

enum serve_where {
	SERVE_HERE,   /* in the transport's thread: short, and takes no lock that is held over a system call */
	SERVE_WORKER, /* in a worker: may wait for our own store */
};

static const struct {
	serve_handler fn;
	enum serve_where where;
} serve_table[MESSAGE_TYPE_END] = { { NULL, SERVE_HERE } };

void serve_request(struct peers_request *rq, void *arg)
{
	struct job *j = arg;
	unsigned int type = peers_msg(rq)->type;
	serve_handler fn = type < MESSAGE_TYPE_END ? serve_table[type].fn : NULL;

	if (!fn)
		peers_reply_status(rq, -EOPNOTSUPP);
	else if (serve_table[type].where == SERVE_HERE)
		fn(j, rq);
	else
		workers_serve(j->workers, fn, rq);
}
