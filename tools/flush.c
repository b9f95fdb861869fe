/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * cistern flush, wait, pause and resume: when the daemon drains, and the end of it.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "format/base/units.h"
#include "format/store/store.h"
#include "tools/cistern.h"
#include "tools/lib/clock.h"
#include "tools/lib/daemon.h"
#include "tools/lib/drained.h"
#include "tools/lib/say.h"
#include "tools/lib/target.h"

#define NOTICE_USEC  20000u
#define NOTICE_TRIES 250u

enum { OPT_WAIT = 256, OPT_TIMEOUT, OPT_MOUNT };

/* ---- flush */

/* The paths of one mount, relative to its root; owned. */
struct flush_list {
	char **paths;
	size_t num;
};

static void free_list(struct flush_list *list)
{
	for (size_t i = 0; i < list->num; i++)
		free(list->paths[i]);
	free(list->paths);
}

/* All operands must lie in one mount: a drain is one mount's. */
static int collect_paths(
	char *const *names, size_t num, struct target *t, struct flush_list *list, struct cistern_error *err)
{
	struct target next;
	int r;

	list->paths = calloc(num ? num : 1, sizeof(*list->paths));
	if (!list->paths)
		return cistern_error_set(err, -ENOMEM, "out of memory");
	for (size_t i = 0; i < num; i++) {
		if (access(names[i], F_OK) < 0 && errno != ENOTCONN)
			return cistern_error_set(err, -errno, "%s: %s", names[i], strerror(errno));
		r = target_resolve_mount(names[i], &next, err);
		if (r < 0)
			return r;
		if (t->mounted && strcmp(t->store, next.store) != 0)
			return cistern_error_set(err, -EXDEV,
				"%s is in the mount at %s and not in that at %s; flush them one after the other",
				names[i], next.mount.mountpoint, t->mount.mountpoint);
		*t = next;
		list->paths[i] = strdup(next.path);
		if (!list->paths[i])
			return cistern_error_set(err, -ENOMEM, "out of memory");
		list->num++;
	}
	return 0;
}

static int flush(const struct target *t, const struct flush_list *list, bool wait, uint64_t deadline)
{
	struct cistern_error err = { 0 };
	WIRE_MSG_CLEANUP struct wire_msg reply = { 0 };
	DAEMON_FD_CLEANUP int fd = daemon_connect(t->store, deadline, &err);
	uint64_t session = 0;

	if (fd < 0 || daemon_flush(fd, list->paths, list->num, deadline, &session, &err) < 0)
		return say_error(&err);
	if (!wait)
		return CISTERN_EXIT_OK;
	if (daemon_wait_drain(fd, session, deadline, &reply, &err) < 0)
		return say_error(&err);
	return daemon_say_result(&reply);
}

static const struct args_option options_of_flush[] = {
	{ OPT_WAIT, "wait", NULL, "return when it is done; the exit status says how it went" },
	{ OPT_TIMEOUT, "timeout", "TIME",
		"with --wait: give up after so long (90s, 30m, 2h); the drain goes on in the background" },
	{ OPT_MOUNT, "mount", "MOUNTPOINT",
		"flush this mount; not needed with PATH, in a mount, or when there is only one" },
	{ 0 },
};

static int run_flush(const struct command *cmd, int argc, char **argv)
{
	__attribute__((cleanup(free_list))) struct flush_list list = { 0 };
	struct cistern_error err = { 0 };
	const char *mountpoint = NULL;
	struct target t = { .mounted = false };
	uint64_t timeout_usec = 0, deadline;
	bool wait = false;
	struct args a;
	int key, r;

	args_init(&a, cmd, argc, argv);
	while ((key = args_next(&a)) >= 0) {
		if (key == OPT_WAIT)
			wait = true;
		else if (key == OPT_MOUNT)
			mountpoint = optarg;
		else if ((r = args_usec(cmd, "--timeout", optarg, &timeout_usec)) >= 0)
			return r;
	}
	if (a.exit_status >= 0)
		return a.exit_status;
	if (timeout_usec && !wait)
		return args_usage_error(cmd, "--timeout goes with --wait");
	deadline = clock_deadline(timeout_usec);
	if (mountpoint || optind == argc)
		r = target_resolve_mount(mountpoint, &t, &err);
	else
		r = 0;
	if (r == 0)
		r = collect_paths(argv + optind, (size_t)(argc - optind), &t, &list, &err);
	return r < 0 ? say_error(&err) : flush(&t, &list, wait, deadline);
}

const struct command command_flush = {
	.name = "flush",
	.summary = "drain a mount, or some files of it, now",
	.synopsis = "flush [--wait] [--timeout TIME] [--mount MOUNTPOINT] [PATH...]",
	.about =
		"Begins to drain everything in the mount, or only the files PATH and what is below the directories PATH. Without --wait it returns "
		"at once.\n\n"
		"In a job of several nodes it is the job's drain, whichever node asks for it. Nodes that cannot be reached are named; what can be "
		"drained without them is, and the exit status is 3. Without node 0, which leads, that is what each node, when it is asked, alone "
		"has written into directories that the backing directory has.",
	.examples = "cistern flush --wait /cistern/restart.nc\ncistern flush --mount /cistern",
	.options = options_of_flush,
	.run = run_flush,
};

/* ---- wait */

static bool has_lost_mount(const struct wire_msg *status, const char *state)
{
	struct mount_entry there;
	char mountpoint[PATH_MAX];

	return strcmp(state, "mounted") == 0 &&
	       wire_get_str(status, WIRE_MOUNTPOINT, 0, mountpoint, sizeof(mountpoint)) &&
	       mounts_at(mountpoint, &there) == -ENOENT;
}

/*
 * Whose mount has just gone hears of it in a moment, and then drains. It is not waited for longer than that: the mount may stand in another
 * mount namespace.
 */
static int ask_state(
	int fd, uint64_t deadline, char *state, size_t cap, struct wire_msg *status, struct cistern_error *err)
{
	int r;

	for (unsigned int tries = 0;; tries++) {
		state[0] = '\0';
		r = daemon_ask_until(fd, WIRE_STATUS_GET, deadline, status, err);
		if (r == 0)
			wire_get_str(status, WIRE_STATE, 0, state, cap);
		if (r < 0 || tries == NOTICE_TRIES || !has_lost_mount(status, state))
			return r;
		wire_msg_free(status);
		*status = (struct wire_msg){ 0 };
		usleep(NOTICE_USEC);
	}
}

/* What the mount still has to drain. An exit status: whatever the drain that was waited for said, data that remain count. */
static int say_what_remains(int fd, uint64_t deadline, bool was_draining, int result)
{
	WIRE_MSG_CLEANUP struct wire_msg status = { 0 };
	struct cistern_error err = { 0 };
	char files[UNITS_COUNT], bytes[UNITS_TEXT], mountpoint[PATH_MAX] = "";
	int r = daemon_ask_until(fd, WIRE_STATUS_GET, deadline, &status, &err);

	if (r < 0)
		return r == -ECONNRESET || r == -EPIPE ? -ECONNRESET : say_error(&err);
	if (daemon_u64(&status, WIRE_DIRTY_FILES) == 0)
		return result;
	wire_get_str(&status, WIRE_MOUNTPOINT, 0, mountpoint, sizeof(mountpoint));
	say("%s; %s (%s) remain in the store: 'cistern flush --wait --mount %s' drains them",
		was_draining ? "the drain that was on has ended" : "no drain is on",
		units_format_count(daemon_u64(&status, WIRE_DIRTY_FILES), "file", files),
		units_format_bytes(daemon_u64(&status, WIRE_DIRTY_BYTES), bytes), mountpoint);
	return cistern_exit_is_out(result) ? CISTERN_EXIT_INCOMPLETE : result;
}

/*
 * *ret_ends: the daemon is on its way out, so that its end is what counts. Returns an exit status, or -ECONNRESET
 * when the daemon ended meanwhile.
 */
static int wait_for_drain(int fd, uint64_t deadline, bool *ret_ends, int *ret_pidfd)
{
	WIRE_MSG_CLEANUP struct wire_msg status = { 0 }, reply = { 0 };
	struct cistern_error err = { 0 };
	char state[32];
	int r = ask_state(fd, deadline, state, sizeof(state), &status, &err);

	if (r == 0) {
		*ret_ends = state[0] && strcmp(state, "mounted") != 0;
		*ret_pidfd = daemon_pidfd((pid_t)daemon_u64(&status, WIRE_PID));
		if (*ret_ends)
			return CISTERN_EXIT_OK;
		r = daemon_wait_drain(fd, 0, deadline, &reply, &err);
	}
	if (r == -ECONNRESET || r == -EPIPE)
		return -ECONNRESET;
	if (r < 0)
		return say_error(&err);
	return say_what_remains(fd, deadline, daemon_u64(&status, WIRE_DRAINING) != 0, daemon_say_result(&reply));
}

/* Of who recovers the store, which stays as it is. */
static int wait_for_recovery(const char *store, pid_t pid, uint64_t deadline)
{
	struct cistern_error err = { 0 };

	say("%s is in use by a recovery (process %d)", store, (int)pid);
	if (daemon_wait_end(store, -1, deadline, &err) < 0)
		return say_error(&err);
	say("it has ended; what is on the backing directory, its own words and its manifest say: a recovery does not change the store");
	return CISTERN_EXIT_INCOMPLETE;
}

static const struct args_option options_of_wait[] = {
	{ OPT_TIMEOUT, "timeout", "TIME", "give up after so long (90s, 30m, 2h); the drain goes on in the background" },
	{ 0 },
};

static int run_wait(const struct command *cmd, int argc, char **argv)
{
	DAEMON_FD_CLEANUP int fd = -1, pidfd = -1;
	struct cistern_error err = { 0 };
	uint64_t timeout_usec = 0, deadline;
	bool ends = false, recovers = false;
	pid_t holder = 0;
	struct target t;
	struct args a;
	int key, r;

	args_init(&a, cmd, argc, argv);
	while ((key = args_next(&a)) >= 0)
		if ((r = args_usec(cmd, "--timeout", optarg, &timeout_usec)) >= 0)
			return r;
	if (a.exit_status >= 0 || (a.exit_status = args_operands(&a, 1, 1)) >= 0)
		return a.exit_status;
	deadline = clock_deadline(timeout_usec);
	if (target_resolve(argv[optind], &t, &err) < 0)
		return say_error(&err);
	fd = daemon_connect(t.store, deadline, &err);
	if (fd >= 0) {
		r = wait_for_drain(fd, deadline, &ends, &pidfd);
		if (r != -ECONNRESET && !ends)
			return r;
	} else if (fd != -ENOENT && fd != -ECONNREFUSED) {
		return say_error(&err);
	}
	(void)store_holder(t.store, &holder, &recovers);
	if (recovers)
		return wait_for_recovery(t.store, holder, deadline);
	if (daemon_wait_end(t.store, pidfd, deadline, &err) < 0)
		return say_error(&err);
	return drained_verdict(t.store, NULL, NULL);
}

const struct command command_wait = {
	.name = "wait",
	.summary = "wait until the drain in progress has ended",
	.synopsis = "wait [--timeout TIME] MOUNTPOINT|STORE",
	.about =
		"Returns when the drain that is on has ended, and says what remains in the store. The exit status is 3 if anything remains. "
		"After the mount was taken down it waits for the daemon's end, and the exit status is 0 only if everything is on the backing "
		"directory (7: something is there under another name). When no daemon is there, it tells at once how things stand. A recovery of the store is waited "
		"for, too; how it went is not in the store, and the exit status is 3.",
	.examples = "cistern umount /cistern; ...; cistern wait /local/nvme/$JOB",
	.options = options_of_wait,
	.run = run_wait,
};

/* ---- pause and resume */

static const struct args_option no_options[] = { { 0 } };

static int run_switch(const struct command *cmd, int argc, char **argv)
{
	WIRE_MSG_CLEANUP struct wire_msg reply = { 0 };
	DAEMON_FD_CLEANUP int fd = -1;
	struct cistern_error err = { 0 };
	struct target t;
	struct args a;

	args_init(&a, cmd, argc, argv);
	while (args_next(&a) >= 0)
		;
	if (a.exit_status >= 0 || (a.exit_status = args_operands(&a, 1, 1)) >= 0)
		return a.exit_status;
	if (target_resolve(argv[optind], &t, &err) < 0)
		return say_error(&err);
	fd = wire_connect(t.store, &err);
	if (fd < 0 || daemon_ask(fd, cmd == &command_pause ? WIRE_PAUSE : WIRE_RESUME, &reply, &err) < 0)
		return say_error(&err);
	return CISTERN_EXIT_OK;
}

const struct command command_pause = {
	.name = "pause",
	.summary = "hold the background drain",
	.synopsis = "pause MOUNTPOINT|STORE",
	.about =
		"The drain stops after the step it is at, and none begins, until 'cistern resume' or until the mount is taken down. A store "
		"that fills up meanwhile makes writers slower.\n\n"
		"In a job of several nodes this holds the drains of all nodes, whichever node's mount is named. They go on after 'cistern "
		"resume' on any node, and when the daemon of node 0, which leads drains, ends.",
	.options = no_options,
	.run = run_switch,
};

const struct command command_resume = {
	.name = "resume",
	.summary = "let the background drain go on",
	.synopsis = "resume MOUNTPOINT|STORE",
	.about = "Undoes 'cistern pause'.",
	.options = no_options,
	.run = run_switch,
};
