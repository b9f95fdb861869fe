/* SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef FS_DRAIN_MACHINE_H
#define FS_DRAIN_MACHINE_H

/* The states of a drain and what leads from one to the next: a table, without any action of its own. */

#include <stdbool.h>

enum drain_state {
	DRAIN_IDLE,     /* no session */
	DRAIN_STARTING, /* the agent was started and has not yet asked for the session */
	DRAIN_RUNNING,  /* it works */
	DRAIN_PAUSED,   /* it waits to be let on */
	DRAIN_ENDING,   /* its connection is closed or its result is here; the process is awaited */
	DRAIN_UNDOING,  /* what a session did and could not report is being taken back */
	DRAIN_WAITING,  /* the agent died; a while until it is started again */
	DRAIN_STATE_NUM
};

enum drain_event {
	DRAIN_EV_START, /* a session was chosen and its agent started */
	DRAIN_EV_BEGIN, /* the agent took it */
	DRAIN_EV_PAUSE,
	DRAIN_EV_RESUME,
	DRAIN_EV_END,   /* the agent's result */
	DRAIN_EV_LOST,  /* its connection closed without one */
	DRAIN_EV_EXIT,  /* its process has ended */
	DRAIN_EV_UNDO,  /* it has left something to be taken back */
	DRAIN_EV_RETRY, /* start it again, later */
	DRAIN_EV_DONE,  /* the session is over */
	DRAIN_EVENT_NUM
};

/* The state after event in state. False: the event means nothing there, the state stays. */
bool drain_machine_next(enum drain_state state, enum drain_event event, enum drain_state *ret);
const char *drain_state_name(enum drain_state state); /* static */

#endif
