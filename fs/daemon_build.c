/* SPDX-License-Identifier: GPL-3.0-or-later */
/* The daemon's parts are made, tied to each other by hooks, and taken apart. */
#include "fs/daemon.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "format/base/units.h"
#include "fs/drain/result.h"
#include "fs/drain/settle.h"

#ifndef CISTERN_LIBEXECDIR
#define CISTERN_LIBEXECDIR "/usr/local/libexec/cistern"
#endif

#ifndef CISTERN_VERSION
#define CISTERN_VERSION "0"
#endif

#define LOG_FILE         "cistern.log"
#define UNREADABLE_LINES 100 /* in the log; a program may try for ever */

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

static bool hook_unwanted(void *arg)
{
	struct daemon *d = arg;
	struct session *s = atomic_load(&d->session);

	return s && session_is_unwanted(s);
}

static bool hook_commits(bool begins, void *arg)
{
	struct daemon *d = arg;
	struct session *s = atomic_load(&d->session);

	if (s && !begins)
		session_keep_not(s);
	return !s || !begins || session_keep(s);
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

static void hook_unreadable(const char *text, void *arg)
{
	struct daemon *d = arg;

	if (atomic_fetch_add(&d->unreadable, 1) < UNREADABLE_LINES)
		log_event(d->log, LOG_LEVEL_ERROR, "unreadable", "text=\"%s\"", text);
}

static void hook_log(bool bad, const char *event, const char *text, void *arg)
{
	struct daemon *d = arg;

	log_event(d->log, bad ? LOG_LEVEL_WARNING : LOG_LEVEL_INFO, event, "text=\"%s\"", text);
}

/* Facts are "key=value ..." already. */
static void hook_log_facts(bool bad, const char *event, const char *facts, void *arg)
{
	struct daemon *d = arg;

	log_event(d->log, bad ? LOG_LEVEL_WARNING : LOG_LEVEL_INFO, event, "%s", facts);
}

/* ---- building up */

static void say_recovered(struct daemon *d, const struct state_report *rep)
{
	char bytes[UNITS_TEXT], dropped[UNITS_TEXT], num[UNITS_COUNT];
	struct state_totals totals;
	int n = 0;

	state_totals(store_state(d->store), &totals);
	log_event(d->log, LOG_LEVEL_INFO, "store-open",
		"path=%s clean=%d rebuilt=%d rebooted=%d replayed=%llu cut_bytes=%llu dropped_writes=%llu lost_private=%llu orphans=%llu "
		"dirty_files=%llu log_bytes=%llu staged=%llu staging_slots=%u",
		d->store_path, rep->clean, rep->rebuilt, rep->rebooted, (unsigned long long)rep->replayed_records,
		(unsigned long long)rep->cut_bytes, (unsigned long long)rep->dropped_writes,
		(unsigned long long)rep->lost_private, (unsigned long long)rep->orphans,
		(unsigned long long)totals.dirty_files, (unsigned long long)totals.log_bytes,
		(unsigned long long)segment_found_staged(store_segments(d->store)),
		segment_slots(store_segments(d->store)));
	if (totals.dirty_files == 0 &&
		(rep->clean || (rep->replayed_records == 0 && !rep->rebuilt && rep->cut_bytes == 0)))
		return; /* nothing in it: drained, or just made */
	if (!rep->clean)
		n = snprintf(d->recovered, sizeof(d->recovered),
			"the last daemon had not ended in good order%s; %s replayed%s; ",
			rep->rebooted ? " and the machine was restarted" : "",
			units_format_count(rep->replayed_records, "record", num),
			rep->rebuilt ? ", the index rebuilt" : "");
	if (rep->cut_bytes)
		n += snprintf(d->recovered + n, sizeof(d->recovered) - (size_t)n, "a torn end of %s cut off; ",
			units_format_bytes(rep->cut_bytes, bytes));
	if (rep->dropped_writes)
		n += snprintf(d->recovered + n, sizeof(d->recovered) - (size_t)n,
			"lost with the power, since they were never synced: %s (%s); ",
			units_format_count(rep->dropped_writes, "write", num),
			units_format_bytes(rep->dropped_bytes, dropped));
	if (rep->lost_private)
		n += snprintf(d->recovered + n, sizeof(d->recovered) - (size_t)n,
			"what had been written to %s without a sync is lost with the power, an empty file or zeros at the end are left; ",
			units_format_count(rep->lost_private, "file", num));
	snprintf(d->recovered + n, sizeof(d->recovered) - (size_t)n, "%s to be drained",
		units_format_count(totals.dirty_files, "file", num));
}

/* They need not know that the mount under them has died. */
static void say_stragglers(struct daemon *d)
{
	size_t num = straggler_list(d->store, NULL, 0), n = strlen(d->recovered);
	char files[UNITS_COUNT];

	if (num)
		snprintf(d->recovered + n, sizeof(d->recovered) - n,
			"%s%s still open for writing through the dead mount: 'cistern status' names the processes",
			n ? "; " : "", units_format_count(num, "file", files));
}

static int open_store(struct daemon *d, struct state_report *report, struct cistern_error *err)
{
	struct store_options opt = {
		.mode = STORE_CREATE_OR_OPEN,
		.backing = d->backing,
		.mountpoint = d->mountpoint,
		.nodes = (uint32_t)config_number(d->cfg, CONFIG_NODES),
		.job = config_string(d->cfg, CONFIG_JOB),
		.version = CISTERN_VERSION,
		.segment_size = config_number(d->cfg, CONFIG_SEGMENT_SIZE),
		.journal_size = config_number(d->cfg, CONFIG_JOURNAL_SIZE),
		.index_memory = config_number(d->cfg, CONFIG_INDEX_MEMORY),
		.capacity = config_number(d->cfg, CONFIG_CAPACITY),
		.reserve = config_number(d->cfg, CONFIG_RESERVE),
		.ballast = !config_number(d->cfg, CONFIG_READ_ONLY),
		.write_out = config_number(d->cfg, CONFIG_WRITE_OUT),
		.staging = config_number(d->cfg, CONFIG_STAGING),
	};
	char path[PATH_MAX + sizeof(LOG_FILE) + 1];
	int r = store_open(d->store_path, &opt, &d->store, report, err);

	if (r)
		return r;
	snprintf(path, sizeof(path), "%s/%s", d->store_path, LOG_FILE);
	return log_open_file(d->log, path, err);
}

/* All that takes long is behind us: an ordinary user's dead mount must go now, if the backing directory is below it. */
static int uncover_backing(struct daemon *d, struct cistern_error *err)
{
	int r = d->backing_fd < 0 ? place_free(&d->place, err) : 0;

	return r || d->backing_fd >= 0 ? r : daemon_open_backing(d, err);
}

/* What the last daemon has left half done. */
static int settle(struct daemon *d, const struct state_report *report, struct cistern_error *err)
{
	char unsettled[CISTERN_ERROR_TEXT_BYTES];
	size_t n;
	int r = settle_store(&(struct settle_options){ .store = d->store,
				     .report = report,
				     .log = d->log,
				     .libexec_dir = CISTERN_LIBEXECDIR,
				     .backing_fd = d->backing_fd },
		unsettled, sizeof(unsettled), err);

	if (r)
		return r;
	say_recovered(d, report);
	say_stragglers(d);
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
		.unwanted = hook_unwanted,
		.drain_request = hook_drain_request,
		.event = hook_event,
		.log = hook_log_facts,
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
		.unreadable = hook_unreadable,
		.unwanted = hook_unwanted,
		.commits = hook_commits,
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
		.place = &d->place,
		.mount_flags = config_mount_flags(d->cfg),
		.read_only = config_number(d->cfg, CONFIG_READ_ONLY),
		.allow_other = wants_others(d->cfg),
		.of_many = d->agent != NULL,
		.threads = (unsigned int)config_number(d->cfg, CONFIG_THREADS),
		.ops = ops_table(d->ops),
		.raw = ops_raw,
		.may_wait = ops_may_wait,
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
	if (kernel.passthrough && !straggler_can_be_found(d->store)) {
		kernel.passthrough = false;
		log_event(d->log, LOG_LEVEL_WARNING, "no-passthrough",
			"text=\"the store's file system has no leases, so who writes past a dead daemon could not be found: "
			"everything goes into the log\"");
	}
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

/* ---- the gap, when a dead mount could only be taken away first */

#define GAP_NAMES_BYTES 300u

struct gap_names {
	struct daemon *d;
	char text[GAP_NAMES_BYTES]; /* the first of them */
	size_t len, num_shown;
};

static void take_gap_name(const char *path, void *arg)
{
	struct gap_names *g = arg;
	size_t len = strlen(path);

	log_event(g->d->log, LOG_LEVEL_WARNING, "written-below", "path=%s", path);
	if (g->len + len + 2 >= sizeof(g->text))
		return;
	g->len += (size_t)snprintf(g->text + g->len, sizeof(g->text) - g->len, "%s%s", g->len ? ", " : "", path);
	g->num_shown++;
}

/* The mount stands. Names what came into the directory below it while it did not. */
static void tell_gap(struct daemon *d)
{
	struct gap_names g = { .d = d };
	bool all = true, is_backing = strcmp(d->backing, d->mountpoint) == 0;
	size_t num = place_look(&d->place, take_gap_name, &g, &all), n = strlen(d->recovered);
	char more[64] = "";

	if (!d->place.freed)
		return;
	log_event(d->log, LOG_LEVEL_INFO, "gap", "mountpoint=%s msec=%u found=%zu all=%d", d->mountpoint,
		place_gap_msec(&d->place), num, all);
	if (num == 0 && all)
		return;
	if (num > g.num_shown)
		snprintf(more, sizeof(more), " and %zu more (all in the log)", num - g.num_shown);
	snprintf(d->recovered + n, sizeof(d->recovered) - n,
		"%s%s was free for %u ms, since only root can replace a dead mount at once; programs wrote meanwhile to the "
		"directory below%s: %s%s%s%s",
		n ? "; " : "", d->mountpoint, place_gap_msec(&d->place),
		num ? "" : " or not, it was too large to be looked through", g.text, more,
		num && !all ? ", and perhaps more, it was too large to be looked through" : "",
		!num         ? ""
		: is_backing ? "; it is the backing directory"
			     : "; the mount hides it: unmount to have it");
}

/* The path means the bare directory now, and programs do not know that. */
static void tell_free(const struct daemon *d, struct cistern_error *err)
{
	char text[CISTERN_ERROR_TEXT_BYTES];

	snprintf(text, sizeof(text), "%s", err->text);
	(void)cistern_error_set(err, err->code,
		"%.700s; the mount of the dead daemon had been taken away before, so what programs write to %s goes to the directory itself now",
		text, d->mountpoint);
}

int daemon_build(struct daemon *d, struct cistern_error *err)
{
	struct state_report report = { 0 };
	int r;

	place_init(&d->place, d->mountpoint);
	r = open_store(d, &report, err);
	r = r ? r : uncover_backing(d, err);
	r = r ? r : settle(d, &report, err);
	r = r ? r : create_core(d, err);
	r = r ? r : create_servants(d, err);
	r = r ? r : mount_session(d, err);
	if (!r)
		tell_gap(d);
	else if (d->place.freed)
		tell_free(d, err);
	place_close(&d->place);
	return r;
}

void daemon_tear_down(struct daemon *d)
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
