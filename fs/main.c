/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * cistern-fs: the daemon of one mount. "cistern mount" starts it; this file only puts its parts together, in an order that
 * matters:
 *
 *   backing directory (before the mount can hide it), fork (before RocksDB and we have threads; of a job, the watcher too), store, core,
 *   drain manager, maintenance, socket, mount, ready; then it waits for a signal or for the mount to go; then the other way
 *   round: session, final drain, result, socket, core, store.
 *
 * A first signal unmounts and drains, as umount(8) does; a second one cuts short what takes long then: files that are
 * still open, or the drain, whose rest stays in the store.
 */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include "format/base/config.h"
#include "format/base/config_check.h"
#include "format/base/units.h"
#include "format/store/store.h"
#include "fs/core/core.h"
#include "fs/ctl/ctl.h"
#include "fs/drain/drain.h"
#include "fs/drain/maintain.h"
#include "fs/drain/result.h"
#include "fs/drain/settle.h"
#include "fs/drain/carry.h"
#include "fs/ops/ops.h"
#include "fs/peer/peer_agent.h"
#include "fs/session/launch.h"
#include "fs/session/log.h"
#include "fs/session/session.h"
#include "fs/session/watch.h"

#ifndef CISTERN_LIBEXECDIR
#define CISTERN_LIBEXECDIR "/usr/local/libexec/cistern"
#endif

#ifndef CISTERN_VERSION
#define CISTERN_VERSION "0"
#endif

#define LOG_FILE   "cistern.log"
#define GRACE_MSEC 10000 /* for open files, after a signal */

struct daemon {
	char backing[PATH_MAX], mountpoint[PATH_MAX], store_path[PATH_MAX];
	char recovered[CISTERN_ERROR_TEXT_BYTES];
	bool foreground;
	int ready_fd;
	struct launch launch;
	struct watch watch;
	struct config *cfg; /* all owned */
	struct log *log;
	int backing_fd;
	struct store *store;
	struct core *core;
	struct peer_agent *agent;      /* NULL: one node alone */
	_Atomic(struct carry *) carry; /* likewise */
	struct job *job;
	struct ops *ops;
	struct drain *drain;
	struct maintain *maintain;
	struct ctl *ctl;
	_Atomic(struct session *) session; /* core's hooks look at it from any thread */
	_Atomic(struct maintain *) poked;
	_Atomic(struct drain *) drains;
	atomic_bool passthrough;
	unsigned int signals; /* received */
};

/* ---- core's hooks; core lives longer than what they use */

static int hook_backing_open(int fd, void *arg)
{
	struct daemon *d = arg;
	struct session *s = atomic_load(&d->session);

	return s ? session_backing_open(s, fd) : -ENOTCONN;
}

static void hook_backing_close(int backing_id, void *arg)
{
	struct daemon *d = arg;
	struct session *s = atomic_load(&d->session);

	if (s)
		session_backing_close(s, backing_id);
}

static void hook_want_drain(bool urgent, void *arg)
{
	struct daemon *d = arg;
	struct maintain *m = atomic_load(&d->poked);
	struct drain *drain = atomic_load(&d->drains);

	if (urgent && m) /* what was deleted may be enough */
		maintain_hurry(m);
	if (drain)
		drain_want(drain, urgent);
}

/* A writer, in one of our workers. */
static void hook_waits(bool begins, void *arg)
{
	struct daemon *d = arg;
	struct session *s = atomic_load(&d->session);

	if (s && begins)
		session_will_block(s);
	else if (s)
		session_has_blocked(s);
}

static void hook_wake(void *arg)
{
	struct daemon *d = arg;
	struct maintain *m = atomic_load(&d->poked);

	if (m)
		maintain_poke(m);
}

static void hook_invalidate(uint64_t ino, bool data, void *arg)
{
	struct daemon *d = arg;
	struct session *s = atomic_load(&d->session);

	if (s)
		session_invalidate(s, ino, data);
}

/* ---- what the other nodes of the job want */

static void hook_invalidate_now(uint64_t ino, bool data, void *arg)
{
	struct daemon *d = arg;
	struct session *s = atomic_load(&d->session);

	if (s)
		session_invalidate_now(s, ino, data);
}

static void hook_invalidate_name(uint64_t parent, const char *name, void *arg)
{
	struct daemon *d = arg;
	struct session *s = atomic_load(&d->session);

	if (s)
		session_invalidate_name(s, parent, name);
}

static void hook_invalidate_names(void *arg)
{
	struct daemon *d = arg;
	struct session *s = atomic_load(&d->session);

	if (s)
		session_invalidate_names(s);
}

static void hook_drop(uint64_t ino, void *arg)
{
	struct daemon *d = arg;
	struct session *s = atomic_load(&d->session);

	if (s)
		session_drop(s, ino);
}

static void hook_drain_request(struct peers_request *rq, void *arg)
{
	struct daemon *d = arg;
	struct carry *carry = atomic_load(&d->carry);

	if (carry)
		collective_serve(carry_collective(carry), rq);
	else
		peers_reply_status(rq, -EAGAIN);
}

static void hook_event(enum peers_event event, uint32_t node, void *arg)
{
	struct daemon *d = arg;
	struct carry *carry = atomic_load(&d->carry);

	if (carry)
		collective_event(carry_collective(carry), event, node);
}

static void hook_log(bool bad, const char *event, const char *text, void *arg)
{
	struct daemon *d = arg;

	log_event(d->log, bad ? LOG_LEVEL_WARNING : LOG_LEVEL_INFO, event, "text=\"%s\"", text);
}

/* ---- the command line */

static int usage(void)
{
	fputs("usage: cistern-fs BACKING MOUNTPOINT -o KEY=VALUE,... [--foreground] [--ready-fd N]\n"
	      "'cistern mount' starts it; see cistern(1).\n",
		stderr);
	return CISTERN_EXIT_USAGE;
}

static int check_settings(const struct config *cfg, struct cistern_error *err)
{
	if (!*config_string(cfg, CONFIG_STORE))
		return cistern_error_set(
			err, -EINVAL, "no store is given: -o store=DIR, a directory on this node's own disk");
	return config_check(cfg, err);
}

static int absolute(const char *path, char out[PATH_MAX], struct cistern_error *err)
{
	char dir[PATH_MAX];
	int n;

	if (realpath(path, out))
		return 0;
	if (errno != ENOENT && errno != ENOTCONN)
		return cistern_error_set(err, -errno, "%s: %s", path, strerror(errno));
	if (path[0] == '/')
		n = snprintf(out, PATH_MAX, "%s", path);
	else
		n = getcwd(dir, sizeof(dir)) ? snprintf(out, PATH_MAX, "%s/%s", dir, path) : PATH_MAX;
	return n < PATH_MAX ? 0 : cistern_error_set(err, -ENAMETOOLONG, "%s: the path is too long", path);
}

static int resolve_paths(struct daemon *d, const char *backing, const char *mountpoint, struct cistern_error *err)
{
	size_t len;
	int r = absolute(backing, d->backing, err);

	r = r ? r : absolute(mountpoint, d->mountpoint, err);
	r = r ? r : absolute(config_string(d->cfg, CONFIG_STORE), d->store_path, err);
	if (r)
		return r;
	len = strlen(d->mountpoint);
	/* The daemon would wait for itself. */
	if (strncmp(d->store_path, d->mountpoint, len) == 0 &&
		(d->store_path[len] == '/' || d->store_path[len] == '\0'))
		return cistern_error_set(err, -EINVAL, "the store %s lies in the mount point %s; choose another place",
			d->store_path, d->mountpoint);
	d->backing_fd = open(d->backing, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (d->backing_fd < 0)
		return cistern_error_set(err, -errno, "backing directory %s: %s", d->backing, strerror(errno));
	return 0;
}

static int parse_ready_fd(const char *text, int *ret, struct cistern_error *err)
{
	char *end;
	long n = strtol(text, &end, 10);

	if (*end || end == text || n < 0 || n > INT_MAX)
		return cistern_error_set(err, -EINVAL, "--ready-fd %s: not a descriptor", text);
	*ret = (int)n;
	return 0;
}

static int parse(struct daemon *d, int argc, char **argv, struct cistern_error *err)
{
	static const struct option longs[] = {
		{ "foreground", no_argument, NULL, 'f' },
		{ "ready-fd", required_argument, NULL, 'r' },
		{ 0 },
	};
	const char *options[16];
	size_t num = 0;
	int c, r = 0;

	/* The settings come last: what is wrong with them is told on the ready descriptor. */
	while (!r && (c = getopt_long(argc, argv, "o:", longs, NULL)) >= 0) {
		if (c == 'f')
			d->foreground = true;
		else if (c == 'r')
			r = parse_ready_fd(optarg, &d->ready_fd, err);
		else if (c == 'o' && num < sizeof(options) / sizeof(options[0]))
			options[num++] = optarg;
		else
			r = cistern_error_set(
				err, -EINVAL, "cannot make sense of the command line; 'cistern mount' knows how");
	}
	for (size_t i = 0; i < num && !r; i++)
		r = config_parse_options(d->cfg, options[i], "-o", err);
	if (!r && argc - optind != 2)
		r = cistern_error_set(err, -EINVAL, "give BACKING and MOUNTPOINT");
	if (!r)
		r = check_settings(d->cfg, err);
	return r ? r : resolve_paths(d, argv[optind], argv[optind + 1], err);
}

/* ---- building up */

static void say_recovered(struct daemon *d, const struct state_report *rep)
{
	char bytes[UNITS_TEXT], dropped[UNITS_TEXT];
	struct state_totals totals;
	int n = 0;

	state_totals(store_state(d->store), &totals);
	log_event(d->log, LOG_LEVEL_INFO, "store-open",
		"path=%s clean=%d rebuilt=%d rebooted=%d replayed=%llu cut_bytes=%llu dropped_writes=%llu orphans=%llu "
		"dirty_files=%llu log_bytes=%llu staged=%llu staging_slots=%u",
		d->store_path, rep->clean, rep->rebuilt, rep->rebooted, (unsigned long long)rep->replayed_records,
		(unsigned long long)rep->cut_bytes, (unsigned long long)rep->dropped_writes,
		(unsigned long long)rep->orphans, (unsigned long long)totals.dirty_files,
		(unsigned long long)totals.log_bytes,
		(unsigned long long)segment_found_staged(store_segments(d->store)),
		segment_slots(store_segments(d->store)));
	if (totals.dirty_files == 0 &&
		(rep->clean || (rep->replayed_records == 0 && !rep->rebuilt && rep->cut_bytes == 0)))
		return; /* nothing in it: drained, or just made */
	if (!rep->clean)
		n = snprintf(d->recovered, sizeof(d->recovered),
			"the last daemon had not ended in good order%s; %llu records replayed%s; ",
			rep->rebooted ? " and the machine was restarted" : "",
			(unsigned long long)rep->replayed_records, rep->rebuilt ? ", the index rebuilt" : "");
	if (rep->cut_bytes)
		n += snprintf(d->recovered + n, sizeof(d->recovered) - (size_t)n, "a torn end of %s cut off; ",
			units_format_bytes(rep->cut_bytes, bytes));
	if (rep->dropped_writes)
		n += snprintf(d->recovered + n, sizeof(d->recovered) - (size_t)n,
			"%llu writes (%s) that were never synced are lost with the power; ",
			(unsigned long long)rep->dropped_writes, units_format_bytes(rep->dropped_bytes, dropped));
	snprintf(d->recovered + n, sizeof(d->recovered) - (size_t)n, "%llu files wait to be drained",
		(unsigned long long)totals.dirty_files);
}

static int open_store(struct daemon *d, struct cistern_error *err)
{
	struct store_options opt = {
		.mode = STORE_CREATE_OR_OPEN,
		.backing = d->backing,
		.mountpoint = d->mountpoint,
		.nodes = (uint32_t)config_number(d->cfg, CONFIG_NODES),
		.job = config_string(d->cfg, CONFIG_JOB),
		.segment_size = config_number(d->cfg, CONFIG_SEGMENT_SIZE),
		.journal_size = config_number(d->cfg, CONFIG_JOURNAL_SIZE),
		.index_memory = config_number(d->cfg, CONFIG_INDEX_MEMORY),
		.capacity = config_number(d->cfg, CONFIG_CAPACITY),
		.reserve = config_number(d->cfg, CONFIG_RESERVE),
		.write_out = config_number(d->cfg, CONFIG_WRITE_OUT),
		.staging = config_number(d->cfg, CONFIG_STAGING),
	};
	char path[PATH_MAX + sizeof(LOG_FILE) + 1];
	char unsettled[CISTERN_ERROR_TEXT_BYTES];
	struct state_report report = { 0 };
	size_t n;
	int r = store_open(d->store_path, &opt, &d->store, &report, err);

	if (r)
		return r;
	snprintf(path, sizeof(path), "%s/%s", d->store_path, LOG_FILE);
	r = log_open_file(d->log, path, err);
	if (r)
		return r;
	r = settle_store(
		&(struct settle_options){
			.store = d->store, .report = &report, .log = d->log, .libexec_dir = CISTERN_LIBEXECDIR },
		unsettled, sizeof(unsettled), err);
	if (r)
		return r;
	say_recovered(d, &report);
	n = strlen(d->recovered);
	if (*unsettled)
		snprintf(d->recovered + n, sizeof(d->recovered) - n, "%s%s", n ? "; " : "", unsettled);
	r = result_remove(d->store_path);
	return r ? cistern_error_set(
			   err, r, "%s: cannot remove the last mount's result: %s", d->store_path, strerror(-r))
		 : 0;
}

/* Inode numbers, and what is in the log, are of one node alone: too late to become one of many. */
static int check_unused(struct daemon *d, struct cistern_error *err)
{
	struct state_totals totals;

	state_totals(store_state(d->store), &totals);
	if (store_superblock(d->store)->num_nodes > 1 || totals.inodes <= 1)
		return 0;
	return cistern_error_set(err, -EINVAL,
		"%s: this store is that of a mount without other nodes: drain it (mount it with nodes=1, or run 'cistern "
		"recover') and give the job an empty directory",
		d->store_path);
}

static int create_agent(struct daemon *d, struct cistern_error *err)
{
	struct peer_agent_options opt = {
		.store = d->store,
		.nodes = (uint32_t)config_number(d->cfg, CONFIG_NODES),
		.timeout_usec = config_number(d->cfg, CONFIG_AGENT_TIMEOUT),
		.node_timeout_usec = config_number(d->cfg, CONFIG_NODE_TIMEOUT),
		.version = CISTERN_VERSION,
		.log = hook_log,
		.log_arg = d,
	};
	int r;

	if (opt.nodes == 1)
		return 0;
	r = check_unused(d, err);
	return r ? r : peer_agent_create(&opt, &d->agent, err);
}

static int create_job(struct daemon *d, struct cistern_error *err)
{
	struct job_options opt = {
		.core = d->core,
		.store = d->store,
		.cfg = d->cfg,
		.peers = d->agent ? peer_agent_peers(d->agent) : NULL,
		.invalidate = hook_invalidate_now,
		.invalidate_name = hook_invalidate_name,
		.invalidate_names = hook_invalidate_names,
		.drop = hook_drop,
		.drain_request = hook_drain_request,
		.event = hook_event,
		.log = hook_log,
		.arg = d,
	};

	return job_create(&opt, &d->job, err);
}

static int create_core(struct daemon *d, struct cistern_error *err)
{
	struct core_hooks hooks = {
		.backing_open = hook_backing_open,
		.backing_close = hook_backing_close,
		.want_drain = hook_want_drain,
		.waits = hook_waits,
		.wake = hook_wake,
		.invalidate = hook_invalidate,
		.arg = d,
	};
	int r = core_create(d->store, d->cfg, d->backing_fd, &hooks, &d->core, err);

	r = r ? r : create_agent(d, err);
	r = r ? r : create_job(d, err);
	if (!r &&
		ops_create(&(struct ops_options){ .job = d->job, .store_path = d->store_path, .log = d->log }, &d->ops))
		r = cistern_error_set(err, -ENOMEM, "out of memory");
	return r;
}

/* Of a job, sessions are asked for, and only this node's part of them is carried here. */
static int create_drain(struct daemon *d, struct cistern_error *err)
{
	struct drain_options drain = {
		.store = d->store,
		.core = d->core,
		.cfg = d->cfg,
		.log = d->log,
		.libexec_dir = CISTERN_LIBEXECDIR,
		.backing_fd = d->backing_fd,
	};
	struct carry_options carry = { .drain = drain, .job = d->job };
	struct carry *c = NULL;
	int r = 0;

	if (d->agent) {
		carry.peers = peer_agent_peers(d->agent);
		carry.memory_fd = peer_agent_memory_fd(d->agent);
		carry.leave_timeout_usec = config_number(d->cfg, CONFIG_UNMOUNT_TIMEOUT);
		r = carry_create(&carry, &c, err);
	}
	if (!r && c)
		drain.ask = carry_ask(c);
	if (!r)
		r = drain_create(&drain, &d->drain, err);
	if (!r && c)
		carry_set_asker(c, d->drain);
	atomic_store(&d->carry, c);
	return r;
}

static int create_servants(struct daemon *d, struct cistern_error *err)
{
	int r = create_drain(d, err);

	if (r)
		return r;
	atomic_store(&d->drains, d->drain);
	r = maintain_create(
		&(struct maintain_options){
			.store = d->store, .core = d->core, .drain = d->drain, .cfg = d->cfg, .log = d->log },
		&d->maintain, err);
	if (r)
		return r;
	atomic_store(&d->poked, d->maintain);
	return ctl_create(&(struct ctl_options){ .store = d->store,
				  .core = d->core,
				  .drain = d->drain,
				  .carry = d->agent ? atomic_load(&d->carry) : NULL,
				  .maintain = d->maintain,
				  .job = d->job,
				  .agent = d->agent,
				  .cfg = d->cfg,
				  .log = d->log,
				  .mountpoint = d->mountpoint,
				  .recovered = d->recovered,
				  .passthrough = &d->passthrough },
		&d->ctl, err);
}

/* Root serves everybody unless told otherwise. */
static bool wants_others(const struct config *cfg)
{
	if (strcmp(config_origin(cfg, CONFIG_ALLOW_OTHER), "default") == 0)
		return geteuid() == 0;
	return config_number(cfg, CONFIG_ALLOW_OTHER);
}

/* Without a watcher all is right as long as nobody kills us. */
static void begin_watch(struct daemon *d)
{
	static const char *const ways[WATCH_END] = { "none", "abort-file", "force" };
	enum watch_way way = WATCH_NONE;
	int r;

	if (d->watch.pid == 0)
		return;
	r = watch_mounted(&d->watch, d->mountpoint, &way);
	if (way == WATCH_NONE)
		log_event(d->log, LOG_LEVEL_WARNING, "watch",
			"errno=%d text=\"should this daemon be killed, what waits in its mount may hang: fusectl is not "
			"mounted on /sys/fs/fuse/connections\"",
			-r);
	else
		log_event(d->log, LOG_LEVEL_INFO, "watch", "pid=%d way=%s", d->watch.pid, ways[way]);
}

static int mount_session(struct daemon *d, struct cistern_error *err)
{
	struct session_options opt = {
		.fsname = d->backing,
		.mountpoint = d->mountpoint,
		.mount_flags = config_mount_flags(d->cfg),
		.read_only = config_number(d->cfg, CONFIG_READ_ONLY),
		.allow_other = wants_others(d->cfg),
		.of_many = d->agent != NULL,
		.threads = (unsigned int)config_number(d->cfg, CONFIG_THREADS),
		.ops = ops_table(d->ops),
		.raw = ops_raw,
		.context = d->ops,
		.segments = segment_slots(store_segments(d->store)) ? store_segments(d->store) : NULL,
		.log = d->log,
	};
	struct session *s = NULL;
	struct session_kernel kernel;
	int r = session_create(&opt, &s, err);

	if (r)
		return r;
	atomic_store(&d->session, s);
	r = session_mount(s, err);
	if (r)
		return r;
	begin_watch(d);
	kernel = session_kernel(s);
	atomic_store(&d->passthrough, kernel.passthrough);
	core_set_kernel(
		d->core, &(struct core_kernel){ .passthrough = kernel.passthrough, .direct_mmap = kernel.direct_mmap });
	r = session_start(s, err);
	if (!r)
		log_event(d->log, LOG_LEVEL_INFO, "mounted",
			"backing=%s mountpoint=%s passthrough=%d direct_mmap=%d threads=%u", d->backing, d->mountpoint,
			kernel.passthrough, kernel.direct_mmap, opt.threads);
	return r;
}

static int build(struct daemon *d, struct cistern_error *err)
{
	int r = open_store(d, err);

	r = r ? r : create_core(d, err);
	r = r ? r : create_servants(d, err);
	return r ? r : mount_session(d, err);
}

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
	char why[CISTERN_ERROR_TEXT_BYTES / 4], bytes[UNITS_TEXT];

	snprintf(why, sizeof(why), "%.250s", res->text);
	if (d->agent && !drain_is_needed(d->store)) {
		snprintf(res->text, sizeof(res->text), "not all of the job is in %.200s%s%s; what this node had is",
			d->backing, *why ? ": " : "", why);
		return;
	}
	snprintf(res->text, sizeof(res->text),
		"not all is in %.200s%s%s; %llu file%s (%s) wait%s in the store %.200s: mount it again to go on, or run "
		"'cistern recover' on it%s; 'cistern fsck' looks into it",
		d->backing, *why ? ": " : "", why, (unsigned long long)res->dirty_files,
		res->dirty_files == 1 ? "" : "s", units_format_bytes(res->dirty_bytes, bytes),
		res->dirty_files == 1 ? "s" : "", d->store_path, d->agent ? " and the job's other stores" : "");
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
	if (res->exit == CISTERN_EXIT_OK && drain_is_needed(d->store)) /* whatever the agent says */
		res->exit = CISTERN_EXIT_INCOMPLETE;
	if (res->exit != CISTERN_EXIT_OK)
		describe_rest(d, res);
}

static void save_result(struct daemon *d, const struct result *res)
{
	struct carry *carry = atomic_load(&d->carry);
	struct cistern_error err = { 0 };

	log_event(d->log, res->exit == CISTERN_EXIT_OK ? LOG_LEVEL_INFO : LOG_LEVEL_ERROR, "result",
		"result=%d dirty_files=%llu dirty_bytes=%llu text=\"%s\"", (int)res->exit,
		(unsigned long long)res->dirty_files, (unsigned long long)res->dirty_bytes, res->text);
	if (result_write(d->store_path, res, carry ? carry_carrier(carry) : d->drain, &err))
		log_event(d->log, LOG_LEVEL_ERROR, "result-write", "text=\"%s\"", err.text);
}

/* Everything that uses the store, in the reverse order of build(); any part may be missing. */
static void tear_down(struct daemon *d)
{
	struct session *s = atomic_load(&d->session);

	if (d->drain)
		drain_shut_down(d->drain);
	if (d->job)
		job_shut_down(d->job);
	if (d->agent)
		peers_shut_down(peer_agent_peers(d->agent));
	ctl_destroy(d->ctl);
	atomic_store(&d->drains, NULL);
	atomic_store(&d->poked, NULL);
	maintain_destroy(d->maintain);
	carry_destroy(atomic_load(&d->carry));
	drain_destroy(d->drain);
	ops_destroy(d->ops);
	job_destroy(d->job);
	core_destroy(d->core);
	peer_agent_destroy(d->agent);
	session_destroy(s); /* after core, whose hooks may look at it until then */
	watch_end(&d->watch);
	d->ctl = NULL;
	d->maintain = NULL;
	d->drain = NULL;
	d->ops = NULL;
	d->job = NULL;
	d->agent = NULL;
	d->core = NULL;
	atomic_store(&d->session, NULL);
}

static enum cistern_exit run(struct daemon *d)
{
	struct result res = { .exit = CISTERN_EXIT_OK };
	int r;

	serve(d);
	ops_release_all(d->ops);
	log_event(d->log, LOG_LEVEL_INFO, "unmounted", "mountpoint=%s", d->mountpoint);
	ctl_set_state(d->ctl, CTL_UNMOUNTED);
	final_drain(d, &res);
	ctl_set_state(d->ctl, CTL_UNMOUNTED);
	save_result(d, &res);
	tear_down(d);
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

static int start_and_run(struct daemon *d)
{
	struct cistern_error err = { 0 };
	int r = launch_begin(&d->launch, d->foreground, d->ready_fd, &err);

	if (!r && config_number(d->cfg, CONFIG_NODES) > 1) /* alone, nothing that we ask of the kernel waits for us */
		r = watch_begin(&d->watch, &err);
	r = r ? r : build(d, &err);
	if (!r) {
		launch_ready(&d->launch, d->recovered, log_fd(d->log));
		return run(d);
	}
	err.code = r;
	if (log_fd(d->log) >= 0)
		log_event(d->log, LOG_LEVEL_ERROR, "start", "errno=%d text=\"%s\"", -r, err.text);
	tear_down(d);
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

int main(int argc, char **argv)
{
	struct daemon *d = calloc(1, sizeof(*d));
	struct cistern_error err = { 0 };
	int status;

	if (!d || config_create(&d->cfg)) {
		fputs("cistern-fs: out of memory\n", stderr);
		free(d);
		return CISTERN_EXIT_FAILED;
	}
	d->ready_fd = d->backing_fd = d->watch.fd = -1;
	if (argc == 1) {
		status = usage();
	} else if (parse(d, argc, argv, &err)) {
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
