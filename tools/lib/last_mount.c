/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "tools/lib/last_mount.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>

#include "tools/lib/clock.h"
#include "tools/lib/daemon.h"
#include "tools/lib/say.h"

#define CALL_USEC 3000000u
#define WAIT_USEC 60000000u

/* Of a store whose daemon answers and has no mount any more. */
static bool is_unmounted(const char *store, struct wire_msg *status)
{
	DAEMON_FD_CLEANUP int fd = wire_connect_within(store, CALL_USEC, NULL);
	char state[32] = "";

	return fd >= 0 && daemon_ask(fd, WIRE_STATUS_GET, status, NULL) == 0 &&
	       wire_get_str(status, WIRE_STATE, 0, state, sizeof(state)) && state[0] && strcmp(state, "mounted") != 0;
}

int last_mount_await(const char *store, struct cistern_error *err)
{
	WIRE_MSG_CLEANUP struct wire_msg status = { 0 };
	struct cistern_error late = { 0 };

	if (!is_unmounted(store, &status))
		return 0;
	if (daemon_u64(&status, WIRE_NODES) > 1)
		return cistern_error_set(err, -EBUSY,
			"%s: its last mount was taken down, and its daemon (pid %d) serves the other nodes of the job until all are "
			"unmounted ('cistern status' on node 0 names them) and everything is drained; 'cistern wait %s' waits for that",
			store, (int)daemon_u64(&status, WIRE_PID), store);
	DAEMON_FD_CLEANUP int pidfd = daemon_pidfd((pid_t)daemon_u64(&status, WIRE_PID));
	say("%s: what its last mount has left is being drained; waiting for the end of that", store);
	if (daemon_wait_end(store, pidfd, clock_deadline(WAIT_USEC), &late) == -ETIMEDOUT)
		return cistern_error_set(err, -EBUSY, "%s; mount then", late.text);
	return 0;
}
