/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * The table. An agent that exits while its connection is still open (RUNNING, PAUSED) changes nothing: what it has sent
 * is still being read, and the end of that, END or LOST, follows.
 */
#include "fs/drain/machine.h"

struct cell {
	bool valid;
	enum drain_state next;
};

#define TO(state)           \
	{                   \
		true, state \
	}

static const struct cell table[DRAIN_STATE_NUM][DRAIN_EVENT_NUM] = {
	[DRAIN_IDLE] = {
		[DRAIN_EV_START] = TO(DRAIN_STARTING),
	},
	[DRAIN_STARTING] = {
		[DRAIN_EV_BEGIN] = TO(DRAIN_RUNNING),
		[DRAIN_EV_EXIT] = TO(DRAIN_ENDING),
		[DRAIN_EV_DONE] = TO(DRAIN_IDLE),
	},
	[DRAIN_RUNNING] = {
		[DRAIN_EV_PAUSE] = TO(DRAIN_PAUSED),
		[DRAIN_EV_END] = TO(DRAIN_ENDING),
		[DRAIN_EV_LOST] = TO(DRAIN_ENDING),
	},
	[DRAIN_PAUSED] = {
		[DRAIN_EV_RESUME] = TO(DRAIN_RUNNING),
		[DRAIN_EV_END] = TO(DRAIN_ENDING),
		[DRAIN_EV_LOST] = TO(DRAIN_ENDING),
	},
	[DRAIN_ENDING] = {
		[DRAIN_EV_UNDO] = TO(DRAIN_UNDOING),
		[DRAIN_EV_RETRY] = TO(DRAIN_WAITING),
		[DRAIN_EV_DONE] = TO(DRAIN_IDLE),
	},
	[DRAIN_UNDOING] = {
		[DRAIN_EV_RETRY] = TO(DRAIN_WAITING),
		[DRAIN_EV_DONE] = TO(DRAIN_IDLE),
	},
	[DRAIN_WAITING] = {
		[DRAIN_EV_START] = TO(DRAIN_STARTING),
		[DRAIN_EV_DONE] = TO(DRAIN_IDLE),
	},
};

bool drain_machine_next(enum drain_state state, enum drain_event event, enum drain_state *ret)
{
	const struct cell *c = &table[state][event];

	if (c->valid)
		*ret = c->next;
	return c->valid;
}

const char *drain_state_name(enum drain_state state)
{
	static const char *const names[] = { "idle", "starting", "running", "paused", "ending", "undoing", "waiting" };

	return names[state];
}
