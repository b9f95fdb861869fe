/* SPDX-License-Identifier: GPL-3.0-or-later */
/* Requests of other nodes: who handles what, and where. */
#include <errno.h>

#include "fs/job/carry.h"
#include "fs/job/hidden.h"
#include "fs/job/lease.h"
#include "fs/job/private.h"
#include "fs/job/quiet.h"
#include "fs/job/send.h"
#include "fs/job/share.h"
#include "fs/job/walk.h"

enum serve_where {
	SERVE_HERE,   /* in the transport's thread: short, and takes no lock that is held over a system call */
	SERVE_WORKER, /* in a worker: may wait for our own store */
	SERVE_TURN, /* so, too, when those before it are done: the end of a change must not come before its beginning */
};

enum serve_lag { /* while our tree lacks a change: lag.c */
	LAG_SERVED,
	LAG_REFUSED,
	LAG_WAITS,
};

static const struct {
	serve_handler fn;
	enum serve_where where;
	enum serve_lag lag;
} serve_table[MESSAGE_TYPE_END] = {
	/* In the order of their arrival, also with what happens to the nodes that ask. */
	[MESSAGE_NAME_LOCK] = { names_serve_lock, SERVE_HERE, LAG_REFUSED },
	[MESSAGE_NAME_UNLOCK] = { names_serve_unlock, SERVE_HERE },
	[MESSAGE_NAME_LOOKUP] = { names_serve_lookup, SERVE_HERE, LAG_REFUSED },
	[MESSAGE_NAME_LOOKUP_MANY] = { walk_serve_lookups, SERVE_HERE, LAG_REFUSED },
	[MESSAGE_NAME_DOUBT] = { names_serve_doubt, SERVE_HERE },
	[MESSAGE_NAME_CLAIM] = { names_serve_claim, SERVE_HERE },
	[MESSAGE_NAME_NEEDED] = { drain_serve_needed, SERVE_WORKER },
	[MESSAGE_NAME_LIST] = { list_serve, SERVE_WORKER, LAG_REFUSED },
	[MESSAGE_NAME_SEND] = { late_serve_question, SERVE_HERE, LAG_WAITS },
	[MESSAGE_NAME_WHO] = { late_serve_question, SERVE_HERE, LAG_WAITS },
	[MESSAGE_NAME_AWAIT] = { sequence_serve, SERVE_HERE },
	[MESSAGE_TREE_CHANGE] = { sequence_serve, SERVE_HERE },
	[MESSAGE_TREE_PREPARE] = { tree_serve_prepare, SERVE_TURN },
	[MESSAGE_TREE_HIDDEN] = { hidden_serve, SERVE_WORKER },
	[MESSAGE_TREE_COMMIT] = { tree_serve_commit, SERVE_TURN },
	[MESSAGE_TREE_STAMP] = { tree_serve_stamp, SERVE_HERE },
	[MESSAGE_TREE_RECORDS] = { tree_serve_records, SERVE_WORKER },
	[MESSAGE_FILE_GET] = { home_serve, SERVE_WORKER },
	[MESSAGE_FILE_GET_MANY] = { walk_serve_gets, SERVE_WORKER, LAG_REFUSED },
	[MESSAGE_FILE_SET] = { home_serve, SERVE_WORKER },
	[MESSAGE_FILE_READLINK] = { home_serve, SERVE_WORKER },
	[MESSAGE_FILE_ADOPT] = { home_serve, SERVE_WORKER, LAG_REFUSED },
	[MESSAGE_FILE_LINK] = { home_serve, SERVE_WORKER, LAG_REFUSED },
	[MESSAGE_FILE_UNLINK] = { home_serve, SERVE_WORKER },
	[MESSAGE_FILE_RENAME] = { home_serve, SERVE_WORKER, LAG_REFUSED },
	[MESSAGE_FILE_GETXATTR] = { home_serve, SERVE_WORKER },
	[MESSAGE_FILE_LISTXATTR] = { home_serve, SERVE_WORKER },
	[MESSAGE_FILE_SETXATTR] = { home_serve, SERVE_WORKER },
	[MESSAGE_FILE_REMOVEXATTR] = { home_serve, SERVE_WORKER },
	[MESSAGE_FILE_FORGET] = { home_serve, SERVE_WORKER },
	[MESSAGE_FILE_LOST] = { home_serve_lost, SERVE_WORKER },
	[MESSAGE_DIR_TOLD] = { times_serve_told, SERVE_HERE },
	[MESSAGE_DIR_ASK] = { times_serve_ask, SERVE_HERE },
	[MESSAGE_DIR_CHANGED] = { times_serve_changed, SERVE_HERE },
	[MESSAGE_SHARE_REGISTER] = { registry_serve_register, SERVE_HERE },
	[MESSAGE_SHARE_STAMP] = { registry_serve_stamp, SERVE_WORKER },
	[MESSAGE_SHARE_PUT] = { send_serve_put, SERVE_WORKER },
	[MESSAGE_SHARE_COMMITTED] = { registry_serve_committed, SERVE_HERE },
	[MESSAGE_SHARE_TOLD] = { tell_serve_told, SERVE_HERE },
	[MESSAGE_SHARE_LOOK] = { registry_serve_look, SERVE_WORKER },
	[MESSAGE_SHARE_LOCATE] = { power_serve_locate, SERVE_HERE },
	[MESSAGE_SHARE_LOCATE_HOME] = { map_serve_locate_home, SERVE_WORKER },
	[MESSAGE_SHARE_APPEND] = { append_serve_place, SERVE_WORKER },
	[MESSAGE_SHARE_TRUNCATE] = { cut_serve_truncate, SERVE_HERE },
	[MESSAGE_SHARE_CUT] = { cut_serve_cut, SERVE_HERE },
	[MESSAGE_SHARE_DROP] = { registry_serve_drop, SERVE_WORKER },
	[MESSAGE_SHARE_END_ASK] = { end_serve_ask, SERVE_WORKER },
	[MESSAGE_SHARE_SHOW] = { show_serve, SERVE_WORKER },
	[MESSAGE_SHARE_SHOW_NOW] = { show_serve_now, SERVE_HERE },
	[MESSAGE_SHARE_RECALL] = { lease_serve_recall, SERVE_HERE },
	[MESSAGE_SHARE_WRITES] = { lease_serve_writes, SERVE_WORKER },
	[MESSAGE_SHARE_FORGET] = { commit_serve_forget, SERVE_WORKER },
	[MESSAGE_SHARE_CARRY] = { carry_serve_change, SERVE_HERE },
	[MESSAGE_SHARE_CARRY_READ] = { carry_serve_read, SERVE_WORKER },
	[MESSAGE_SHARE_BACKING_READ] = { carry_serve_backing, SERVE_WORKER },
	[MESSAGE_LOCK_ASK] = { lock_serve_ask, SERVE_HERE },
	[MESSAGE_LOCK_CANCEL] = { lock_serve_cancel, SERVE_HERE },
	[MESSAGE_LOCK_FIX] = { lock_serve_fix, SERVE_HERE },
	[MESSAGE_LOCK_FORGET] = { lock_serve_forget, SERVE_HERE },
	[MESSAGE_LOCK_GRANTED] = { lock_serve_granted, SERVE_HERE },
	[MESSAGE_LOCK_RECLAIM] = { lock_serve_reclaim, SERVE_HERE },
	[MESSAGE_LOCK_HELD] = { lock_serve_held, SERVE_HERE },
	[MESSAGE_LOCK_LOST] = { lock_serve_lost, SERVE_HERE },
	[MESSAGE_SYNC] = { power_serve_sync, SERVE_WORKER },
	[MESSAGE_POWER_SETTLED] = { power_serve_settled, SERVE_HERE },
	[MESSAGE_POWER_LOST] = { power_serve_lost, SERVE_HERE },
	[MESSAGE_POWER_TELL] = { power_serve_tell, SERVE_HERE },
	[MESSAGE_POWER_CUTS] = { relearn_serve, SERVE_WORKER },
	[MESSAGE_POWER_KNOWS_CUTS] = { power_serve_knows_cuts, SERVE_HERE },
	[MESSAGE_QUIET_RECALL] = { quiet_serve_recall, SERVE_HERE },
};

void serve_request(struct peers_request *rq, void *arg)
{
	struct job *j = arg;
	unsigned int type = peers_msg(rq)->type;
	serve_handler fn = type < MESSAGE_TYPE_END ? serve_table[type].fn : NULL;

	if (type >= MESSAGE_DRAIN_FIRST && type <= MESSAGE_DRAIN_LAST && j->opt.drain_request)
		j->opt.drain_request(rq, j->opt.arg);
	else if (!fn)
		peers_reply_status(rq, -EOPNOTSUPP);
	else if (serve_table[type].lag == LAG_REFUSED && lag_is(j))
		peers_reply_status(rq, -EIO);
	else if (serve_table[type].lag == LAG_WAITS && lag_keeps(j, fn, rq))
		return;
	else if (serve_table[type].where == SERVE_HERE)
		fn(j, rq);
	else if (lag_keeps_until(j, message_get(peers_msg(rq), MESSAGE_TREE), fn, rq))
		return;
	else if (serve_table[type].where == SERVE_TURN)
		workers_serve_in_turn(j->workers, fn, rq);
	else
		workers_serve(j->workers, fn, rq);
}
