/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * cistern umount. Plain, it unmounts and leaves the rest of the drain to the daemon in the background. With --wait it
 * drains while the mount still stands (so that a failure can be looked into), unmounts, waits for the daemon's end
 * and reads the result it left in the store: only that says that all is on the backing directory.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "format/store/store.h"
#include "tools/cistern.h"
#include "tools/lib/clock.h"
#include "tools/lib/daemon.h"
#include "tools/lib/drained.h"
#include "tools/lib/say.h"
#include "tools/lib/target.h"

static void say_holder(const struct mount_holder *h, void *arg)
{
	int *shown = arg;

	if ((*shown)++ < 20)
		say("  pid %d (%s): %s %s", (int)h->pid, h->name, h->what, h->path);
}

static int unmount(const struct target *t)
{
	struct cistern_error err = { 0 };
	int shown = 0, num;

	if (mounts_unmount(t->mount.mountpoint, false, &err) == 0)
		return CISTERN_EXIT_OK;
	if (err.code != -EBUSY)
		return say_error(&err);
	say("%s is in use and stays mounted; these hold it:", t->mount.mountpoint);
	num = mounts_holders(&t->mount, say_holder, &shown);
	if (num > 20)
		say("  and %d more", num - 20);
	if (num == 0)
		say("  none that could be looked into; perhaps a process of another user or container, or a mount below it");
	return CISTERN_EXIT_BUSY;
}

/* Was it a bind mount, or the mount of which there are some? Then the daemon goes on, and that is said. */
static bool say_bound(const struct target *t)
{
	struct mount_entry m;

	if (mounts_same(&t->mount, &m) < 0)
		return false;
	say("%s is unmounted; the same mount is still at %s, and its daemon goes on", t->mount.mountpoint,
		m.mountpoint);
	return true;
}

/* Its daemon goes on until it is nowhere mounted any more. */
static void say_elsewhere(const struct target *t)
{
	int shown = 0, num = mounts_elsewhere(&t->mount, NULL, NULL);

	if (num == 0)
		return;
	say("%s is still mounted for processes in %d other mount namespace%s (containers, or services of their own); the daemon waits until they have ended or unmounted it:",
		t->mount.mountpoint, num, num > 1 ? "s" : "");
	(void)mounts_elsewhere(&t->mount, say_holder, &shown);
}

/* Nobody answers there: the mount point can be freed, the data stay in the store, which we cannot know any more. */
static int free_dead(const struct target *t, bool wait)
{
	struct cistern_error err = { 0 };

	if (mounts_unmount(t->mount.mountpoint, true, &err) < 0)
		return say_error(&err);
	say("%s: its daemon had died; the mount point is free again: what programs write there now goes to the directory itself",
		t->mount.mountpoint);
	say("what was not drained is still in the store; mount it again, or run 'cistern recover STORE --to %s'",
		t->mount.source);
	return wait ? CISTERN_EXIT_INCOMPLETE : CISTERN_EXIT_OK;
}

/* When the drain went well and left nothing for the last one: what there is to say of it, at the end. */
static void take_note(int fd, uint64_t deadline, const struct wire_msg *reply, char noted[CISTERN_ERROR_TEXT_BYTES])
{
	WIRE_MSG_CLEANUP struct wire_msg status = { 0 };

	if (daemon_ask_until(fd, WIRE_STATUS_GET, deadline, &status, NULL) < 0 ||
		daemon_u64(&status, WIRE_DIRTY_FILES) > 0 ||
		!wire_get_str(reply, WIRE_TEXT, 0, noted, CISTERN_ERROR_TEXT_BYTES))
		noted[0] = '\0';
}

/* What is known of the daemon while the mount stands. */
struct before {
	int pidfd;              /* owned; to wait for its end */
	char backing[PATH_MAX]; /* where the backing directory is by now */
	char noted
		[CISTERN_ERROR_TEXT_BYTES]; /* what is to be noted of a drain that went well: the last one may tell of more */
};

static void before_free(struct before *b)
{
	daemon_close(&b->pidfd);
}

/* Drain while the mount stands. What went wrong is said now. Returns an exit status. */
static int drain_first(const struct target *t, uint64_t deadline, struct before *b)
{
	struct cistern_error err = { 0 };
	WIRE_MSG_CLEANUP struct wire_msg status = { 0 }, reply = { 0 };
	DAEMON_FD_CLEANUP int fd = daemon_connect(t->store, deadline, &err);
	uint64_t session = 0;

	if (fd < 0 || daemon_ask_until(fd, WIRE_STATUS_GET, deadline, &status, &err) < 0)
		return say_error(&err);
	b->pidfd = daemon_pidfd((pid_t)daemon_u64(&status, WIRE_PID));
	wire_get_str(&status, WIRE_BACKING, 0, b->backing, sizeof(b->backing));
	if (daemon_flush(fd, NULL, 0, deadline, &session, &err) < 0 ||
		daemon_wait_drain(fd, session, deadline, &reply, &err) < 0)
		return say_error(&err);
	if (!cistern_exit_is_out(daemon_result_of(&reply)))
		return daemon_say_result(&reply);
	take_note(fd, deadline, &reply, b->noted);
	return daemon_result_of(&reply);
}

static int wait_and_unmount(const struct target *t, uint64_t deadline)
{
	__attribute__((cleanup(before_free))) struct before b = { .pidfd = -1 };
	struct cistern_error err = { 0 };
	int status, drained;

	snprintf(b.backing, sizeof(b.backing), "%s", t->mount.source);
	status = drain_first(t, deadline, &b);
	if (status == CISTERN_EXIT_TIMEOUT)
		return status; /* still mounted: the next try goes on from here */
	if (!cistern_exit_is_out(status))
		say("not everything could be drained yet; unmounting all the same, which tries the rest once more");
	drained = status;
	status = unmount(t);
	if (status != CISTERN_EXIT_OK)
		return status;
	if (say_bound(t)) {
		if (b.noted[0])
			say("%s", b.noted);
		return drained;
	}
	say_elsewhere(t);
	if (daemon_wait_end(t->store, b.pidfd, deadline, &err) < 0)
		return say_error(&err);
	status = drained_verdict(t->store, b.backing, b.noted);
	if (cistern_exit_is_out(status))
		say("%s is unmounted; everything is on %s", t->mount.mountpoint, b.backing);
	return status;
}

static void say_background(const struct target *t)
{
	bool recovers = false;
	pid_t pid = 0;

	if ((store_holder(t->store, &pid, &recovers) == 0 && pid == 0) || recovers)
		return; /* it was quick */
	say("%s is unmounted; what is not drained yet is drained in the background", t->mount.mountpoint);
	say("'cistern wait %s' waits for its end", t->store);
	if (strcmp(t->mount.mountpoint, t->mount.source) == 0)
		say("until then %s itself has what was drained so far: leave it alone ('cistern umount --wait' drains first)",
			t->mount.mountpoint);
	say_elsewhere(t);
}

enum { OPT_WAIT = 256, OPT_TIMEOUT };

static const struct args_option options[] = {
	{ OPT_WAIT, "wait", NULL, "drain first, then unmount, and return when all is on the backing directory" },
	{ OPT_TIMEOUT, "timeout", "TIME",
		"with --wait: give up after so long (90s, 30m, 2h); the drain goes on in the background" },
	{ 0 },
};

static int run_umount(const struct command *cmd, int argc, char **argv)
{
	struct cistern_error err = { 0 };
	uint64_t timeout_usec = 0, deadline;
	bool wait = false;
	struct target t;
	struct args a;
	int key, r;

	args_init(&a, cmd, argc, argv);
	while ((key = args_next(&a)) >= 0) {
		if (key == OPT_WAIT)
			wait = true;
		else if ((r = args_usec(cmd, "--timeout", optarg, &timeout_usec)) >= 0)
			return r;
	}
	if (a.exit_status >= 0 || (a.exit_status = args_operands(&a, 1, 1)) >= 0)
		return a.exit_status;
	if (timeout_usec && !wait)
		return args_usage_error(cmd, "--timeout goes with --wait");
	deadline = clock_deadline(timeout_usec);
	r = target_resolve_mount(argv[optind], &t, &err);
	if (r < 0 && t.dead)
		return free_dead(&t, wait);
	if (r == 0 && !t.at_mountpoint)
		return args_usage_error(
			cmd, "%s is in the mount at %s, but not its mount point", argv[optind], t.mount.mountpoint);
	if (r < 0)
		return say_error(&err);
	if (wait)
		return wait_and_unmount(&t, deadline);
	r = unmount(&t);
	if (r == CISTERN_EXIT_OK && !say_bound(&t))
		say_background(&t);
	return r;
}

const struct command command_umount = {
	.name = "umount",
	.summary = "take a mount down, after a drain if wanted",
	.synopsis = "umount [--wait] [--timeout TIME] MOUNTPOINT",
	.about =
		"Takes the mount at MOUNTPOINT away. What is not on the backing directory yet is drained by the daemon in the background; "
		"'cistern wait STORE' waits for that.\n\n"
		"With --wait the drain comes first and is shown. The exit status is 0 only if every byte and name is on the backing directory. "
		"It is 7 if all of it is there, but something under another name, because somebody else has put a file under its own. If some "
		"files cannot be drained, they stay in the store, the mount is taken down all the same, and the exit status is 3. If the time-out runs "
		"out during the drain, the mount stays and the exit status is 6.\n\n"
		"In a job of several nodes each node is unmounted by itself, in any order, and its daemon stays and serves the others until all "
		"are and everything is drained, or until the setting unmount_timeout of node 0's mount is over. --wait waits for that, and says "
		"which nodes it waits for; if its own time-out runs out meanwhile, the mount is gone, the exit status is 6, and 'cistern wait "
		"STORE' goes on waiting. Nodes that could not be reached or stayed mounted are named, and the exit status is 3.\n\n"
		"If processes use the mount, they are named, the mount stays, and the exit status is 5.\n\n"
		"A mount whose daemon has died is taken away at once. From then on programs that write there write to the directory below. "
		"'cistern mount' needs no umount before it: the new mount takes the place of the dead one.",
	.examples = "cistern umount --wait --timeout 30m /cistern",
	.options = options,
	.run = run_umount,
};
