/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * cistern-fs: the daemon of one mount. "cistern mount" starts it; daemon_build.c puts its parts together, in an order that
 * matters:
 *
 *   backing directory (before the mount can hide it), fork (before RocksDB and we have threads; of a job, the watcher too), store, core,
 *   drain manager, maintenance, socket, mount, ready; then it waits for a signal or for the mount to go; then the other way
 *   round: session, final drain, result, socket, core, store.
 *
 * A first signal unmounts and drains, as umount(8) does; a second one cuts short what takes long then: files that are
 * still open, or the drain, whose rest stays in the store.
 */
#include "fs/daemon.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "format/base/descriptors.h"
#include "format/base/limits.h"
#include "format/base/text.h"
#include "format/base/units.h"
#include "fs/drain/result.h"
#include "fs/drain/settle.h"

#define GRACE_MSEC      10000 /* for open files, after a signal */
#define PATH_TEXT_BYTES 200u

/* ---- running */

static void take_signals(struct daemon *d)
{
	struct signalfd_siginfo info;

	while (read(d->launch.signal_fd, &info, sizeof(info)) == (ssize_t)sizeof(info)) {
		d->signals++;
		log_event(d->log, LOG_LEVEL_INFO, "signal", "signal=%u from_pid=%u", info.ssi_signo, info.ssi_pid);
	}
}

/* Waits for fd or a signal, at most msec (-1: for ever). True: fd is readable. */
static bool wait_for(struct daemon *d, int fd, int msec)
{
	struct pollfd p[2] = { { .fd = fd, .events = POLLIN }, { .fd = d->launch.signal_fd, .events = POLLIN } };
	int n = poll(p, 2, msec);

	if (n > 0 && p[1].revents)
		take_signals(d);
	return n > 0 && p[0].revents;
}

/* Until the mount has gone: by umount(8), or because of a signal. */
static void serve(struct daemon *d)
{
	struct session *s = atomic_load(&d->session);
	int r, end = session_end_fd(s);

	while (d->signals == 0)
		if (wait_for(d, end, -1))
			return;
	r = session_unmount(s);
	if (r < 0)
		log_event(d->log, LOG_LEVEL_ERROR, "unmount", "mountpoint=%s errno=%d", d->mountpoint, -r);
	if (r > 0)
		log_event(d->log, LOG_LEVEL_WARNING, "unmount-busy", "mountpoint=%s grace_msec=%d", d->mountpoint,
			GRACE_MSEC);
	if (r >= 0 && wait_for(d, end, GRACE_MSEC))
		return;
	log_event(d->log, LOG_LEVEL_WARNING, "abort", "mountpoint=%s", d->mountpoint);
	session_abort(s);
	while (!wait_for(d, end, -1)) /* a request that is being answered ends in its time */
		continue;
}

/* ---- the end */

/* 0, or -errno when it could not even be asked for. */
static int run_final_drain(struct daemon *d, struct result *res)
{
	uint64_t id = drain_begin_final(d->drain);
	int r;

	if (id == 0)
		return -ENOMEM;
	while ((r = drain_wait(d->drain, id, 1, &res->exit, res->text)) == -ETIMEDOUT) {
		eventfd_t value;

		if (wait_for(d, drain_event_fd(d->drain), -1))
			eventfd_read(drain_event_fd(d->drain), &value);
		if (d->signals >= 2)
			drain_cancel(d->drain);
	}
	return r;
}

static void describe_rest(const struct daemon *d, struct result *res)
{
	bool others = d->agent && !drain_is_needed(d->store), one = res->dirty_files == 1;
	char why[CISTERN_ERROR_TEXT_BYTES], head[CISTERN_ERROR_TEXT_BYTES / 4], tail[CISTERN_ERROR_TEXT_BYTES / 2];
	char path[PATH_TEXT_BYTES], backing[PATH_MAX], bytes[UNITS_TEXT];

	memcpy(why, res->text, sizeof(why));
	core_backing_path(d->core, backing);
	snprintf(head, sizeof(head), "not all %sis in %s", others ? "of the job " : "",
		text_fit_end(path, sizeof(path), backing));
	if (others)
		snprintf(tail, sizeof(tail), "; what this node had is");
	else
		snprintf(tail, sizeof(tail),
			"; %llu file%s (%s) wait%s in the store %s: mount it again to go on, or run 'cistern recover' on it%s; 'cistern "
			"fsck' looks into it",
			(unsigned long long)res->dirty_files, one ? "" : "s",
			units_format_bytes(res->dirty_bytes, bytes), one ? "s" : "",
			text_fit_end(path, sizeof(path), d->store_path), d->agent ? " and the job's other stores" : "");
	text_join(res->text, sizeof(res->text), head, why, tail);
}

/* All is well with what is there; but something never came. */
static void note_failed_calls(const struct daemon *d, struct result *res)
{
	uint64_t failed = d->agent ? job_failed_calls(d->job) : 0;
	char why[CISTERN_ERROR_TEXT_BYTES], note[160];

	if (failed == 0)
		return;
	memcpy(why, res->text, sizeof(why));
	snprintf(note, sizeof(note),
		"%llu call%s of applications failed in this mount, since the agents of the job had not assembled",
		(unsigned long long)failed, failed == 1 ? "" : "s");
	text_join(res->text, sizeof(res->text), note, why, "");
}

static void final_drain(struct daemon *d, struct result *res)
{
	struct state_totals totals;
	struct core_stats stats;
	int r = 0;

	core_unmounted(d->core);
	if (drain_is_needed(d->store) || settle_wants_convert(d->store_path) || settle_has_temps(d->store_path) ||
		(d->agent && peers_numbered(peer_agent_peers(d->agent)))) {
		ctl_set_state(d->ctl, CTL_DRAINING);
		r = run_final_drain(d, res);
		if (r) {
			res->exit = CISTERN_EXIT_FAILED;
			snprintf(res->text, sizeof(res->text), "the drain could not begin: %s", strerror(-r));
		}
	}
	state_totals(store_state(d->store), &totals);
	core_stats(d->core, &stats);
	res->dirty_files = totals.dirty_files;
	res->dirty_bytes = totals.log_bytes + stats.private_bytes;
	if (cistern_exit_is_out(res->exit) && drain_is_needed(d->store)) /* whatever the agent says */
		res->exit = CISTERN_EXIT_INCOMPLETE;
	if (cistern_exit_is_out(res->exit))
		settle_drop_through(d->store_path);
	else
		describe_rest(d, res);
	note_failed_calls(d, res);
}

static void save_result(struct daemon *d, const struct result *res)
{
	struct carry *carry = atomic_load(&d->carry);
	struct cistern_error err = { 0 };

	log_event(d->log, cistern_exit_is_out(res->exit) ? LOG_LEVEL_INFO : LOG_LEVEL_ERROR, "result",
		"result=%d dirty_files=%llu dirty_bytes=%llu text=\"%s\"", (int)res->exit,
		(unsigned long long)res->dirty_files, (unsigned long long)res->dirty_bytes, res->text);
	if (result_write(d->store_path, res, carry ? carry_carrier(carry) : d->drain, &err))
		log_event(d->log, LOG_LEVEL_ERROR, "result-write", "text=\"%s\"", err.text);
}

static enum cistern_exit run(struct daemon *d)
{
	struct result res = { .exit = CISTERN_EXIT_OK };
	int r;

	serve(d);
	session_join(atomic_load(&d->session));
	core_severed(d->core);
	ops_release_all(d->ops);
	log_event(d->log, LOG_LEVEL_INFO, "unmounted", "mountpoint=%s", d->mountpoint);
	ctl_set_state(d->ctl, CTL_UNMOUNTED);
	final_drain(d, &res);
	ctl_set_state(d->ctl, CTL_UNMOUNTED);
	save_result(d, &res);
	daemon_tear_down(d);
	r = store_close(d->store);
	d->store = NULL;
	if (r) {
		res.exit = CISTERN_EXIT_FAILED;
		snprintf(res.text, sizeof(res.text), "the store %.900s could not be closed in good order: %s",
			d->store_path, strerror(-r));
		save_result(d, &res);
	}
	return res.exit;
}

static enum cistern_exit exit_for(int code)
{
	switch (code) {
	case -EBUSY: return CISTERN_EXIT_BUSY;
	case -EBADMSG: return CISTERN_EXIT_DAMAGED;
	case -EINVAL: return CISTERN_EXIT_USAGE;
	default: return CISTERN_EXIT_FAILED;
	}
}

static uint64_t max_u64(uint64_t a, uint64_t b)
{
	return a > b ? a : b;
}

/* The largest file without which no store works. */
static uint64_t largest_file(const struct config *cfg)
{
	return max_u64(max_u64(config_number(cfg, CONFIG_SEGMENT_SIZE), config_number(cfg, CONFIG_JOURNAL_SIZE)),
		config_number(cfg, CONFIG_STAGING));
}

static int start_and_run(struct daemon *d)
{
	struct cistern_error err = { 0 };
	int r = launch_begin(&d->launch, d->foreground, d->ready_fd, &err);

	r = r ? r : limits_check(largest_file(d->cfg), &err);
	if (!r && config_number(d->cfg, CONFIG_NODES) > 1) /* alone, nothing that we ask of the kernel waits for us */
		r = watch_begin(&d->watch, &err);
	r = r ? r : daemon_build(d, &err);
	if (!r) {
		launch_ready(&d->launch, d->recovered, log_fd(d->log));
		return run(d);
	}
	err.code = r;
	if (log_fd(d->log) >= 0)
		log_event(d->log, LOG_LEVEL_ERROR, "start", "errno=%d text=\"%s\"", -r, err.text);
	daemon_tear_down(d);
	store_close(d->store);
	d->store = NULL;
	launch_failed(&d->launch, exit_for(r), err.text);
	return exit_for(r);
}

static void tell_early(struct daemon *d, const struct cistern_error *err)
{
	if (d->ready_fd >= 0)
		dprintf(d->ready_fd, "E %d %s\n", (int)exit_for(err->code), err->text);
	fprintf(stderr, "cistern-fs: %s\n", err->text);
}

static int usage(void)
{
	fputs("usage: cistern-fs BACKING MOUNTPOINT -o KEY=VALUE,... [--foreground] [--ready-fd N]\n"
	      "'cistern mount' starts it; see cistern(1).\n",
		stderr);
	return CISTERN_EXIT_USAGE;
}

int main(int argc, char **argv)
{
	struct daemon *d = calloc(1, sizeof(*d));
	struct cistern_error err = { 0 };
	int status;

	descriptors_fill();
	if (!d || config_create(&d->cfg)) {
		fputs("cistern-fs: out of memory\n", stderr);
		free(d);
		return CISTERN_EXIT_FAILED;
	}
	d->ready_fd = d->backing_fd = d->watch.fd = d->place.below_fd = -1;
	if (argc == 1) {
		status = usage();
	} else if (daemon_parse(d, argc, argv, &err)) {
		tell_early(d, &err);
		status = exit_for(err.code);
	} else if (log_create((enum log_level)config_number(d->cfg, CONFIG_LOG_LEVEL), d->foreground, &d->log)) {
		fputs("cistern-fs: out of memory\n", stderr);
		status = CISTERN_EXIT_FAILED;
	} else {
		status = start_and_run(d);
	}
	if (d->backing_fd >= 0)
		close(d->backing_fd);
	log_destroy(d->log);
	config_destroy(d->cfg);
	free(d);
	return status;
}
