/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Talking to the daemon. A wait is cut into slices: the daemon answers each with "not yet", then it is asked how far
 * it is, so that one connection carries both and a daemon that hangs is noticed within DAEMON_CALL_USEC.
 */
#include "tools/lib/daemon.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "format/store/store.h"
#include "tools/lib/clock.h"
#include "tools/lib/progress.h"
#include "tools/lib/say.h"

#define SLICE_USEC     500000u
#define LOCK_POLL_USEC 100000u
#define LATE_USEC      500000u /* an answer may come so much behind the deadline */
#define CONNECT_USEC   10000000u
#define GLANCE_USEC    2000000u /* for what can be done without */

void daemon_close(int *fd)
{
	if (*fd >= 0)
		close(*fd);
	*fd = -1;
}

uint64_t daemon_u64(const struct wire_msg *reply, enum wire_tag tag)
{
	uint64_t v = 0;

	return wire_get_u64(reply, tag, &v) ? v : 0;
}

static uint64_t answer_usec(uint64_t deadline, uint64_t limit_usec)
{
	uint64_t left = clock_left(deadline, limit_usec);

	return left > LATE_USEC ? left : LATE_USEC;
}

int daemon_connect(const char *store, uint64_t deadline, struct cistern_error *err)
{
	return wire_connect_within(store, answer_usec(deadline, CONNECT_USEC), err);
}

int daemon_ask_until(int fd, enum wire_type type, uint64_t deadline, struct wire_msg *reply, struct cistern_error *err)
{
	WIRE_MSG_CLEANUP struct wire_msg request = { 0 };

	wire_msg_init(&request, type);
	return wire_call(fd, &request, reply, answer_usec(deadline, DAEMON_CALL_USEC), err);
}

int daemon_ask(int fd, enum wire_type type, struct wire_msg *reply, struct cistern_error *err)
{
	return daemon_ask_until(fd, type, CLOCK_NO_DEADLINE, reply, err);
}

int daemon_flush(
	int fd, char *const *paths, size_t num, uint64_t deadline, uint64_t *ret_session, struct cistern_error *err)
{
	WIRE_MSG_CLEANUP struct wire_msg request = { 0 }, reply = { 0 };
	int r;

	wire_msg_init(&request, WIRE_FLUSH);
	for (size_t i = 0; i < num; i++)
		wire_put_str(&request, WIRE_PATH, paths[i]);
	r = wire_call(fd, &request, &reply, answer_usec(deadline, DAEMON_CALL_USEC), err);
	if (r < 0)
		return r;
	*ret_session = daemon_u64(&reply, WIRE_SESSION);
	return 0;
}

/* After a time-out: whom the job's drain waits for, if it is for other nodes. */
static int name_awaited(int fd, struct cistern_error *err)
{
	WIRE_MSG_CLEANUP struct wire_msg status = { 0 };
	char waiting[CISTERN_ERROR_TEXT_BYTES / 2], text[CISTERN_ERROR_TEXT_BYTES];

	if (fd < 0 || daemon_ask_until(fd, WIRE_STATUS_GET, 0, &status, NULL) < 0 ||
		!wire_get_str(&status, WIRE_WAITING, 0, waiting, sizeof(waiting)))
		return err->code;
	snprintf(text, sizeof(text), "%s", err->text);
	return cistern_error_set(err, err->code, "%s; it waits for %s", text, waiting);
}

static int show_progress(int fd, uint64_t deadline, struct progress *p, struct cistern_error *err)
{
	WIRE_MSG_CLEANUP struct wire_msg status = { 0 };
	char path[PROGRESS_LINE] = "", waiting[CISTERN_ERROR_TEXT_BYTES];
	struct progress_bytes bytes;
	int r = daemon_ask_until(fd, WIRE_STATUS_GET, deadline, &status, err);

	if (r < 0)
		return r;
	if (wire_get_str(&status, WIRE_WAITING, 0, waiting, sizeof(waiting))) {
		progress_wait(p, waiting, clock_usec());
		return 0;
	}
	wire_get_str(&status, WIRE_CURRENT_PATH, 0, path, sizeof(path));
	bytes = (struct progress_bytes){ .done_bytes = daemon_u64(&status, WIRE_DONE_BYTES),
		.total_bytes = daemon_u64(&status, WIRE_PLANNED_BYTES),
		.verified_bytes = daemon_u64(&status, WIRE_VERIFIED_BYTES),
		.verify_bytes = daemon_u64(&status, WIRE_VERIFY_BYTES) };
	progress_update(p, &bytes, path, clock_usec());
	return 0;
}

/* One slice of waiting. -EAGAIN: the session is not at its end yet. -ETIMEDOUT: the daemon says nothing at all. */
static int wait_slice(int fd, uint64_t session, uint64_t deadline, struct wire_msg *reply, struct cistern_error *err)
{
	WIRE_MSG_CLEANUP struct wire_msg request = { 0 };
	uint64_t usec = clock_left(deadline, SLICE_USEC) + 1, allowed = usec + answer_usec(deadline, DAEMON_CALL_USEC);
	uint64_t limit = clock_usec() + allowed;
	int r;

	wire_msg_init(&request, WIRE_WAIT);
	wire_put_u64(&request, WIRE_SESSION, session);
	wire_put_u64(&request, WIRE_TIMEOUT_USEC, usec);
	r = wire_call(fd, &request, reply, allowed, err);
	if (r == -ETIMEDOUT && clock_usec() >= limit)
		return cistern_error_set(err, -ETIMEDOUT, "the daemon does not answer");
	return r == -ETIMEDOUT ? -EAGAIN : r;
}

int daemon_wait_drain(int fd, uint64_t session, uint64_t deadline, struct wire_msg *reply, struct cistern_error *err)
{
	struct progress p;
	int r;

	progress_init(&p, stderr, "drain", clock_usec());
	do {
		r = wait_slice(fd, session, deadline, reply, err);
		if (r != -EAGAIN)
			break;
		if (clock_left(deadline, 1) == 0) {
			cistern_error_set(err, -ETIMEDOUT,
				"the drain has not ended in the time given; it goes on in the background");
			r = name_awaited(fd, err);
			break;
		}
		r = show_progress(fd, deadline, &p, err);
	} while (r == 0);
	progress_end(&p);
	return r;
}

int daemon_result_of(const struct wire_msg *reply)
{
	uint64_t result = CISTERN_EXIT_FAILED;
	int64_t signed_result;

	if (wire_get_i64(reply, WIRE_RESULT, &signed_result))
		result = (uint64_t)signed_result;
	else if (!wire_get_u64(reply, WIRE_RESULT, &result))
		say("the daemon did not say how the drain ended");
	return result <= CISTERN_EXIT_LAST ? (int)result : CISTERN_EXIT_FAILED;
}

int daemon_say_result(const struct wire_msg *reply)
{
	char text[CISTERN_ERROR_TEXT_BYTES];

	for (unsigned int n = 0; wire_get_str(reply, WIRE_TEXT, n, text, sizeof(text)); n++)
		if (text[0])
			say("%s", text);
	return daemon_result_of(reply);
}

int daemon_pidfd(pid_t pid)
{
#ifdef SYS_pidfd_open
	int fd = pid > 0 ? (int)syscall(SYS_pidfd_open, pid, 0) : -1;

	return fd >= 0 ? fd : -errno;
#else
	return -ENOSYS;
#endif
}

/* Progress from a daemon that drains after its mount has gone. It may end at any moment: errors mean nothing here. */
static void show_last_progress(const char *store, uint64_t deadline, struct progress *p)
{
	uint64_t soon = clock_usec() + clock_left(deadline, GLANCE_USEC);
	DAEMON_FD_CLEANUP int fd = daemon_connect(store, soon, NULL);

	if (fd >= 0)
		show_progress(fd, soon, p, NULL);
}

static int end_not_seen(const char *store, pid_t holder, bool recovers, struct cistern_error *err)
{
	DAEMON_FD_CLEANUP int fd = daemon_connect(store, 0, NULL);

	if (recovers)
		return cistern_error_set(
			err, -ETIMEDOUT, "%s is still in use by a recovery (process %d)", store, (int)holder);
	cistern_error_set(err, -ETIMEDOUT, "the daemon (pid %d) still drains %s; 'cistern wait %s' waits for its end",
		(int)holder, store, store);
	return name_awaited(fd, err);
}

int daemon_wait_end(const char *store, int pidfd, uint64_t deadline, struct cistern_error *err)
{
	struct pollfd end = { .fd = pidfd, .events = POLLIN }; /* -1 is ignored by poll() */
	struct progress p;
	bool recovers = false;
	pid_t holder = 0;
	uint64_t usec;
	int r;

	progress_init(&p, stderr, "drain", clock_usec());
	for (;;) {
		r = store_holder(store, &holder, &recovers); /* -EBUSY: held, but by whom is not known */
		if ((r < 0 && r != -EBUSY) || (r == 0 && holder == 0))
			break;
		usec = clock_left(deadline, end.fd >= 0 ? SLICE_USEC : LOCK_POLL_USEC);
		if (usec == 0) {
			r = end_not_seen(store, holder, recovers, err);
			break;
		}
		if (poll(&end, 1, (int)(usec / 1000) + 1) > 0)
			end.fd = -1; /* it is dead; its lock goes at once, but for a child that may still hold it */
		show_last_progress(store, deadline, &p);
	}
	progress_end(&p);
	if (r < 0 && r != -ETIMEDOUT)
		return cistern_error_set(err, r, "%s: cannot ask who holds it: %s", store, strerror(-r));
	return r;
}
