/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * A daemon hears of its umount a moment later than who has called it, and its socket goes before
 * its lock. So what counts is the lock, and whether the mount can still be seen by the daemon.
 */
#include "tools/lib/last_mount.h"

#include <errno.h>
#include <poll.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "format/store/store.h"
#include "tools/lib/clock.h"
#include "tools/lib/daemon.h"
#include "tools/lib/mounts.h"
#include "tools/lib/say.h"

#define CALL_USEC  3000000u
#define WAIT_USEC  60000000u
#define LOOK_MSEC  20
#define QUIET_USEC 1000000u

enum look {
	FREE,    /* nobody is in the way, or somebody whom opening the store names */
	BETWEEN, /* its daemon has no socket: it begins, or ends */
	UNHEARD, /* its daemon has no mount and does not know that yet */
	DRAINS   /* its daemon has no mount any more */
};

struct last {
	const char *store;
	struct wire_msg status; /* owned; of UNHEARD and DRAINS */
	pid_t pid;
};

static void last_free(struct last *l)
{
	wire_msg_free(&l->status);
}

static int is_at(const struct mount_entry *m, void *arg)
{
	return m->cistern && strcmp(m->mountpoint, arg) == 0;
}

/* As the daemon sees it, which may live in another mount namespace than we; else as we do. */
static bool has_mount(struct last *l)
{
	char mountpoint[PATH_MAX] = "";
	int r;

	if (!wire_get_str(&l->status, WIRE_MOUNTPOINT, 0, mountpoint, sizeof(mountpoint)))
		return true;
	r = mounts_each_of(l->pid, is_at, mountpoint);
	if (r < 0)
		r = mounts_each(is_at, mountpoint);
	return r != 0;
}

static enum look look(struct last *l)
{
	char state[32] = "";
	bool recovers;
	int r = store_holder(l->store, &l->pid, &recovers);

	if (r < 0 || l->pid == 0 || recovers)
		return FREE;
	DAEMON_FD_CLEANUP int fd = wire_connect_within(l->store, CALL_USEC, NULL);
	if (fd == -ENOENT || fd == -ECONNREFUSED)
		return BETWEEN;
	last_free(l);
	r = fd < 0 ? fd : daemon_ask(fd, WIRE_STATUS_GET, &l->status, NULL);
	if (r == -ECONNRESET || r == -EPIPE)
		return BETWEEN;
	if (r < 0 || !wire_get_str(&l->status, WIRE_STATE, 0, state, sizeof(state)) || !state[0])
		return FREE;
	return strcmp(state, "mounted") != 0 ? DRAINS : has_mount(l) ? FREE : UNHEARD;
}

static int wait_for_drain(struct last *l, uint64_t deadline, struct cistern_error *err)
{
	struct cistern_error late = { 0 };

	if (daemon_u64(&l->status, WIRE_NODES) > 1)
		return cistern_error_set(err, -EBUSY,
			"%s: its last mount was taken down, and its daemon (pid %d) serves the other nodes of the job until all are "
			"unmounted ('cistern status' on node 0 names them) and everything is drained; 'cistern wait %s' waits for that",
			l->store, (int)l->pid, l->store);
	DAEMON_FD_CLEANUP int pidfd = daemon_pidfd(l->pid);
	say("%s: what its last mount has left is being drained; waiting for the end of that", l->store);
	if (daemon_wait_end(l->store, pidfd, deadline, &late) == -ETIMEDOUT)
		return cistern_error_set(err, -EBUSY, "%s; mount then", late.text);
	return 0;
}

/*
 * Nothing tells of the moment when a daemon hears of its umount: its end does, and else we look
 * again.
 */
static void wait_a_moment(const struct last *l)
{
	DAEMON_FD_CLEANUP int pidfd = daemon_pidfd(l->pid);
	struct pollfd end = { .fd = pidfd, .events = POLLIN };

	poll(&end, 1, LOOK_MSEC);
}

static int too_late(const struct last *l, enum look seen, struct cistern_error *err)
{
	if (seen == UNHEARD)
		return cistern_error_set(err, -EBUSY,
			"%s: its last mount was taken down, but its daemon (pid %d) has it still: in another mount namespace (a "
			"container, or a service of its own), which must end or unmount it first",
			l->store, (int)l->pid);
	return cistern_error_set(err, -EBUSY,
		"%s: in use by process %d, which begins or ends and does not answer: see %s/cistern.log", l->store,
		(int)l->pid, l->store);
}

int last_mount_await(const char *store, struct cistern_error *err)
{
	__attribute__((cleanup(last_free))) struct last l = { .store = store };
	uint64_t begun = clock_usec(), deadline = clock_deadline(WAIT_USEC);
	bool said = false;
	enum look seen;
	int r = 0;

	while (r == 0 && (seen = look(&l)) != FREE) {
		if (clock_left(deadline, 1) == 0)
			return too_late(&l, seen, err);
		if (seen == DRAINS) {
			r = wait_for_drain(&l, deadline, err);
			continue;
		}
		if (!said && clock_usec() - begun > QUIET_USEC) {
			say("%s: its last mount has gone; waiting for its daemon (pid %d) to end", store, (int)l.pid);
			said = true;
		}
		wait_a_moment(&l);
	}
	return r;
}
