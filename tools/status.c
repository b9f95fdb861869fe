/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * cistern status. Of a running daemon it shows what the daemon says; of a store without one, what the store itself
 * holds, read without changing anything, and what to do about it.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "format/base/json.h"
#include "format/base/units.h"
#include "format/place/place.h"
#include "format/store/hosts.h"
#include "format/store/store.h"
#include "format/store/straggler.h"
#include "tools/cistern.h"
#include "tools/lib/clock.h"
#include "tools/lib/daemon.h"
#include "tools/lib/drained.h"
#include "tools/lib/say.h"
#include "tools/lib/target.h"

/* Every number of a status reply, by its name in JSON. */
static const struct {
	enum wire_tag tag;
	const char *key;
} numbers[] = {
	{ WIRE_PID, "pid" },
	{ WIRE_UPTIME_USEC, "uptime_usec" },
	{ WIRE_CAPACITY, "capacity_bytes" },
	{ WIRE_USED, "used_bytes" },
	{ WIRE_FREE, "free_bytes" },
	{ WIRE_DIRTY_BYTES, "dirty_bytes" },
	{ WIRE_DIRTY_FILES, "dirty_files" },
	{ WIRE_DRAINED_BYTES, "drained_bytes" },
	{ WIRE_DRAINED_FILES, "drained_files" },
	{ WIRE_WRITTEN_BYTES, "written_bytes" },
	{ WIRE_SAVED_BYTES, "saved_bytes" },
	{ WIRE_THROUGH_BYTES, "through_bytes" },
	{ WIRE_LOG_BYTES, "log_bytes" },
	{ WIRE_PRIVATE_BYTES, "private_bytes" },
	{ WIRE_PRIVATE_FILES, "private_files" },
	{ WIRE_EXTENTS, "extents" },
	{ WIRE_INDEX_BYTES, "index_bytes" },
	{ WIRE_OPEN_FILES, "open_files" },
	{ WIRE_CACHED_READS, "cached_reads" },
	{ WIRE_WRITE_RATE, "write_bytes_per_second" },
	{ WIRE_DRAIN_RATE, "drain_bytes_per_second" },
	{ WIRE_PLANNED_BYTES, "planned_bytes" },
	{ WIRE_DONE_BYTES, "done_bytes" },
	{ WIRE_VERIFY_BYTES, "verify_bytes" },
	{ WIRE_VERIFIED_BYTES, "verified_bytes" },
	{ WIRE_PLANNED_FILES, "planned_files" },
	{ WIRE_DONE_FILES, "done_files" },
	{ WIRE_TIME_SHARE, "drain_share" },
	{ WIRE_ERRORS, "errors" },
	{ WIRE_LAST_RESULT, "last_result" },
};

static const struct {
	enum wire_tag tag;
	const char *key;
} texts[] = {
	{ WIRE_STORE, "store" },
	{ WIRE_BACKING, "backing" },
	{ WIRE_MOUNTPOINT, "mountpoint" },
	{ WIRE_STATE, "state" },
	{ WIRE_CURRENT_PATH, "current_path" },
	{ WIRE_WAITING, "waiting_for" },
	{ WIRE_RECOVERED, "recovered" },
	{ WIRE_JOB, "job" },
	{ WIRE_VERSION_TEXT, "version" },
};

static const struct {
	enum wire_tag tag;
	const char *key;
} switches[] = {
	{ WIRE_DRAINING, "draining" },
	{ WIRE_PAUSED, "paused" },
	{ WIRE_PASSTHROUGH, "passthrough" },
};

#define OTHERS_SHOWN 16       /* nodes whose hosts are named */
#define ANSWER_USEC  5000000u /* a daemon that takes longer is looked at from outside */

#define NUM_OF(a) (sizeof(a) / sizeof((a)[0]))

/* Left until the drain in progress is done; 0: unknown or none. */
static uint64_t left_usec(const struct wire_msg *m)
{
	uint64_t planned = daemon_u64(m, WIRE_PLANNED_BYTES), done = daemon_u64(m, WIRE_DONE_BYTES);
	uint64_t verify = daemon_u64(m, WIRE_VERIFY_BYTES), verified = daemon_u64(m, WIRE_VERIFIED_BYTES);
	uint64_t rate = daemon_u64(m, WIRE_DRAIN_RATE), left = planned > done ? planned - done : 0;

	if (verify > verified && verify - verified > left) /* the rate is of what is read back, too */
		left = verify - verified;
	return daemon_u64(m, WIRE_DRAINING) && rate ? (uint64_t)((double)left / (double)rate * 1e6) : 0;
}

/* ---- a running daemon */

static void json_texts(struct json *j, const char *key, const struct wire_msg *m, enum wire_tag tag)
{
	char text[CISTERN_ERROR_TEXT_BYTES];

	json_key(j, key);
	json_array(j);
	for (unsigned int n = 0; wire_get_str(m, tag, n, text, sizeof(text)); n++)
		json_str(j, text);
	json_end_array(j);
}

static void json_number_or_null(struct json *j, const char *key, const struct wire_msg *m, enum wire_tag tag)
{
	uint64_t v;

	json_key(j, key);
	if (wire_get_u64(m, tag, &v))
		json_u64(j, v);
	else
		json_null(j);
}

/* Only of a mount that has others. */
static void json_job(struct json *j, const struct wire_msg *m)
{
	uint64_t nodes;

	if (!wire_get_u64(m, WIRE_NODES, &nodes))
		return;
	json_ku64(j, "nodes", nodes);
	json_number_or_null(j, "node", m, WIRE_NODE);
	json_number_or_null(j, "agent_pid", m, WIRE_AGENT_PID);
	json_ku64(j, "agent_usec", daemon_u64(m, WIRE_AGENT_USEC));
	json_texts(j, "hosts", m, WIRE_NODE_NAME);
	json_texts(j, "missing", m, WIRE_MISSING);
}

static int live_json(const struct wire_msg *m)
{
	char text[CISTERN_ERROR_TEXT_BYTES];
	struct json j;

	json_init(&j, stdout, true);
	json_object(&j);
	for (size_t i = 0; i < NUM_OF(texts); i++)
		if (wire_get_str(m, texts[i].tag, 0, text, sizeof(text)))
			json_kstr(&j, texts[i].key, text);
	for (size_t i = 0; i < NUM_OF(numbers); i++)
		json_ku64(&j, numbers[i].key, daemon_u64(m, numbers[i].tag));
	for (size_t i = 0; i < NUM_OF(switches); i++)
		json_kbool(&j, switches[i].key, daemon_u64(m, switches[i].tag) != 0);
	json_kbool(&j, "safe_to_delete", false); /* it is in use */
	json_key(&j, "time_left_usec");
	if (left_usec(m))
		json_u64(&j, left_usec(m));
	else
		json_null(&j);
	json_job(&j, m);
	json_texts(&j, "error_texts", m, WIRE_ERROR_TEXT);
	json_texts(&j, "stragglers", m, WIRE_STRAGGLER_TEXT);
	json_end_object(&j);
	return json_finish(&j);
}

/* "label      12 GiB" */
static void bytes_line(const char *label, uint64_t bytes)
{
	char text[UNITS_TEXT];

	printf("  %-10s %s\n", label, units_format_bytes(bytes, text));
}

static void files_line(const char *label, uint64_t files, uint64_t bytes)
{
	char text[UNITS_TEXT];

	printf("  %-10s %" PRIu64 " file%s, %s\n", label, files, files == 1 ? "" : "s",
		units_format_bytes(bytes, text));
}

static void drain_line(const struct wire_msg *m)
{
	char done[UNITS_TEXT], planned[UNITS_TEXT], rate[UNITS_TEXT], left[UNITS_TEXT], path[PATH_MAX] = "";
	char files[UNITS_COUNT];
	uint64_t usec = left_usec(m);

	if (!daemon_u64(m, WIRE_DRAINING)) {
		printf("  %-10s %s\n", "draining",
			daemon_u64(m, WIRE_PAUSED) ? "no; paused, 'cistern resume' lets it go on" : "no");
		if (wire_get_str(m, WIRE_WAITING, 0, path, sizeof(path)))
			printf("  %-10s nodes that are unmounted wait for %s\n", "", path);
		return;
	}
	printf("  %-10s %" PRIu64 " of %s, %s of %s", "draining", daemon_u64(m, WIRE_DONE_FILES),
		units_format_count(daemon_u64(m, WIRE_PLANNED_FILES), "file", files),
		units_format_bytes(daemon_u64(m, WIRE_DONE_BYTES), done),
		units_format_bytes(daemon_u64(m, WIRE_PLANNED_BYTES), planned));
	if (daemon_u64(m, WIRE_VERIFY_BYTES) > 0)
		printf(", %s of %s verified", units_format_bytes(daemon_u64(m, WIRE_VERIFIED_BYTES), done),
			units_format_bytes(daemon_u64(m, WIRE_VERIFY_BYTES), planned));
	printf(", %s/s", units_format_bytes(daemon_u64(m, WIRE_DRAIN_RATE), rate));
	if (usec)
		printf(", %s left", units_format_usec(usec, left));
	puts(daemon_u64(m, WIRE_PAUSED) ? "; paused" : "");
	if (wire_get_str(m, WIRE_CURRENT_PATH, 0, path, sizeof(path)) && path[0])
		printf("  %-10s %s\n", "", path);
	if (wire_get_str(m, WIRE_WAITING, 0, path, sizeof(path)))
		printf("  %-10s waits for %s\n", "", path);
}

static void capacity_line(const struct wire_msg *m)
{
	char used[UNITS_TEXT], capacity[UNITS_TEXT], left[UNITS_TEXT];
	uint64_t total = daemon_u64(m, WIRE_CAPACITY), in_use = daemon_u64(m, WIRE_USED);

	printf("  %-10s %s of %s used", "capacity", units_format_bytes(in_use, used),
		units_format_bytes(total, capacity));
	if (total)
		printf(" (%d %%)", (int)(100.0 * (double)in_use / (double)total));
	printf(", %s free\n", units_format_bytes(daemon_u64(m, WIRE_FREE), left));
}

static void job_lines(const struct wire_msg *m)
{
	char text[CISTERN_ERROR_TEXT_BYTES] = "", since[UNITS_TEXT], host[HOSTS_NAME_BYTES], name[HOSTS_NODE_BYTES];
	uint64_t nodes, node, pid;

	if (!wire_get_u64(m, WIRE_NODES, &nodes))
		return;
	wire_get_str(m, WIRE_JOB, 0, text, sizeof(text));
	printf("  %-10s %s%s", "job", text, *text ? ", " : "");
	if (wire_get_u64(m, WIRE_NODE, &node) &&
		wire_get_str(m, WIRE_NODE_NAME, (unsigned int)node, host, sizeof(host)))
		printf("%s of %" PRIu64 "\n", place_node_text((uint32_t)node, host, name, sizeof(name)), nodes);
	else if (wire_get_u64(m, WIRE_NODE, &node))
		printf("node %" PRIu64 " of %" PRIu64 "\n", node, nodes);
	else
		printf("one of %" PRIu64 " nodes, not numbered yet\n", nodes);
	units_format_usec(daemon_u64(m, WIRE_AGENT_USEC), since);
	if (wire_get_u64(m, WIRE_AGENT_PID, &pid))
		printf("  %-10s process %" PRIu64 ", since %s\n", "agent", pid, since);
	else
		printf("  %-10s none since %s; start them on all nodes with 'cistern agent'\n", "agent", since);
	for (unsigned int n = 0; wire_get_str(m, WIRE_MISSING, n, text, sizeof(text)); n++)
		printf("  %-10s %s\n", n ? "" : "missing", text);
}

static void live_text(const struct wire_msg *m)
{
	char mountpoint[PATH_MAX] = "", backing[PATH_MAX] = "", store[PATH_MAX] = "", state[32] = "";
	char up[UNITS_TEXT], rate[UNITS_TEXT], text[CISTERN_ERROR_TEXT_BYTES];
	uint64_t errors = daemon_u64(m, WIRE_ERRORS);

	wire_get_str(m, WIRE_MOUNTPOINT, 0, mountpoint, sizeof(mountpoint));
	wire_get_str(m, WIRE_BACKING, 0, backing, sizeof(backing));
	wire_get_str(m, WIRE_STORE, 0, store, sizeof(store));
	wire_get_str(m, WIRE_STATE, 0, state, sizeof(state));
	printf("%s on %s (%s; store %s, daemon %" PRIu64 ", up %s)\n", mountpoint, backing,
		state[0] ? state : "mounted", store, daemon_u64(m, WIRE_PID),
		units_format_usec(daemon_u64(m, WIRE_UPTIME_USEC), up));
	job_lines(m);
	capacity_line(m);
	files_line("dirty", daemon_u64(m, WIRE_DIRTY_FILES), daemon_u64(m, WIRE_DIRTY_BYTES));
	drain_line(m);
	files_line("drained", daemon_u64(m, WIRE_DRAINED_FILES), daemon_u64(m, WIRE_DRAINED_BYTES));
	printf("  %-10s %s", "written", units_format_bytes(daemon_u64(m, WIRE_WRITTEN_BYTES), rate));
	printf(", now %s/s\n", units_format_bytes(daemon_u64(m, WIRE_WRITE_RATE), rate));
	bytes_line("saved", daemon_u64(m, WIRE_SAVED_BYTES));
	if (daemon_u64(m, WIRE_THROUGH_BYTES))
		bytes_line("through", daemon_u64(m, WIRE_THROUGH_BYTES));
	if (wire_get_str(m, WIRE_RECOVERED, 0, text, sizeof(text)) && text[0])
		printf("  %-10s %s\n", "recovered", text);
	printf("  %-10s %" PRIu64 "\n", "errors", errors);
	for (unsigned int n = 0; wire_get_str(m, WIRE_ERROR_TEXT, n, text, sizeof(text)); n++)
		printf("    %s\n", text);
	for (unsigned int n = 0; wire_get_str(m, WIRE_STRAGGLER_TEXT, n, text, sizeof(text)); n++)
		printf("  %-10s %s\n", n ? "" : "stragglers", text);
}

/* ---- a store without a daemon */

struct how { /* is asked */
	bool json, check;
};

struct dead_store {
	const char *path;
	struct store *s;             /* borrowed */
	const struct superblock *sb; /* borrowed from the open store */
	struct state_totals totals;
	struct state_left left;
	struct state_report report;
	struct store_space space;
	uint64_t private_bytes; /* that private files occupy */
	struct daemon_result result;
	bool has_result;
	struct straggler *stragglers; /* owned */
	size_t num_stragglers;
};

/* Those who write through the dead mount. */
static void find_stragglers(struct dead_store *d)
{
	size_t num = straggler_list(d->s, NULL, 0);

	d->stragglers = num ? calloc(num, sizeof(*d->stragglers)) : NULL;
	if (!d->stragglers)
		return;
	d->num_stragglers = straggler_list(d->s, d->stragglers, num);
	straggler_name(store_state(d->s), d->stragglers, d->num_stragglers, NULL);
}

static void dead_json_stragglers(struct json *j, const struct dead_store *d)
{
	char line[CISTERN_ERROR_TEXT_BYTES];

	json_key(j, "stragglers");
	json_array(j);
	for (size_t i = 0; i < d->num_stragglers; i++)
		json_str(j, straggler_line(&d->stragglers[i], line, sizeof(line)));
	json_end_array(j);
}

static void dead_straggler_lines(const struct dead_store *d)
{
	char line[CISTERN_ERROR_TEXT_BYTES];

	for (size_t i = 0; i < d->num_stragglers; i++)
		printf("  %-10s %s\n", i ? "" : "stragglers", straggler_line(&d->stragglers[i], line, sizeof(line)));
}

static void dead_json_job(struct json *j, const struct dead_store *d)
{
	char host[HOSTS_NAME_BYTES];

	if (d->sb->num_nodes <= 1)
		return;
	json_kstr(j, "job", d->sb->job);
	json_ku64(j, "nodes", d->sb->num_nodes);
	json_ku64(j, "node", d->sb->node_index);
	json_key(j, "hosts");
	json_array(j);
	for (uint32_t i = 0; i < d->sb->num_nodes && hosts_find(d->s, i, host) == 0; i++)
		json_str(j, host);
	json_end_array(j);
}

/* Where to look for the stores that belong to this one. */
static void dead_job_lines(const struct dead_store *d)
{
	char host[HOSTS_NAME_BYTES], name[HOSTS_NODE_BYTES];
	uint32_t shown = 0;

	if (d->sb->num_nodes <= 1)
		return;
	printf("  %-10s %s%s%s of %u\n", "job", d->sb->job, d->sb->job[0] ? ", " : "",
		hosts_node_text(d->s, d->sb->node_index, name), d->sb->num_nodes);
	for (uint32_t i = 0; i < d->sb->num_nodes && shown < OTHERS_SHOWN; i++) {
		if (i == d->sb->node_index || hosts_find(d->s, i, host) < 0)
			continue;
		if (shown++ == 0)
			printf("  %-10s ", "others");
		else
			fputs(", ", stdout);
		fputs(place_node_text(i, host, name, sizeof(name)), stdout);
	}
	if (shown > 0)
		puts(shown + 1 < d->sb->num_nodes ? ", ..." : "");
}

/* A recovery of the job's other stores is a better one with this one, also where nothing in it is left to be drained. */
static bool is_needed_by_job(const struct dead_store *d)
{
	return d->sb->num_nodes > 1 && (!d->has_result || !cistern_exit_is_out((int)d->result.result));
}

static bool is_safe_to_delete(const struct dead_store *d)
{
	return state_left_nothing(&d->left) && !is_needed_by_job(d);
}

static void dead_json(const struct dead_store *d)
{
	struct json j;

	json_init(&j, stdout, true);
	json_object(&j);
	json_kstr(&j, "store", d->path);
	json_kstr(&j, "backing", d->sb->backing);
	json_kstr(&j, "mountpoint", d->sb->mountpoint);
	json_kstr(&j, "state", "no daemon");
	dead_json_job(&j, d);
	json_key(&j, "pid");
	json_null(&j);
	json_kbool(&j, "closed_in_order", d->report.clean);
	json_ku64(&j, "torn_bytes", d->report.cut_bytes);
	json_ku64(&j, "used_bytes", d->space.used_bytes);
	json_ku64(&j, "dirty_files", d->totals.dirty_files);
	json_kbool(&j, "safe_to_delete", is_safe_to_delete(d));
	json_ku64(&j, "misplaced_names", d->left.names);
	json_ku64(&j, "files_of_other_nodes", d->left.layers);
	json_ku64(&j, "bytes_of_other_nodes", d->left.layer_bytes);
	json_ku64(&j, "shared_ranges", d->left.shares);
	json_ku64(&j, "log_bytes", d->totals.log_bytes);
	json_ku64(&j, "private_files", d->totals.private_files);
	json_ku64(&j, "private_bytes", d->private_bytes);
	json_ku64(&j, "extents", d->totals.extents);
	json_ku64(&j, "drained_files", d->totals.drained_files);
	json_ku64(&j, "drained_bytes", d->totals.drained_bytes);
	json_ku64(&j, "written_bytes", d->totals.written_bytes);
	json_ku64(&j, "saved_bytes", d->totals.saved_bytes);
	json_ku64(&j, "through_bytes", d->totals.through_bytes);
	dead_json_stragglers(&j, d);
	if (d->has_result) {
		json_ku64(&j, "last_result", (uint64_t)d->result.result);
		json_kstr(&j, "last_text", d->result.text);
	}
	json_end_object(&j);
	json_finish(&j);
}

static void dead_advice(const struct dead_store *d)
{
	bool drained = state_left_nothing(&d->left);

	if (!drained && d->sb->num_nodes > 1)
		printf("What is dirty is only here: mount the job again on all its nodes, which goes on, or bring the stores together and run\n"
		       "  cistern recover %s OTHERS... --to %s\n",
			d->path, d->sb->backing);
	else if (!drained)
		printf("What is dirty is only here: mount it again with --store %s, which goes on, or run\n"
		       "  cistern recover %s --to %s\n",
			d->path, d->path, d->sb->backing);
	else if (is_needed_by_job(d))
		puts("What this node is to drain is on the backing directory; keep the store until all of the job are drained.");
	else
		puts("Everything is on the backing directory; the store may be deleted.");
}

static void dead_text(const struct dead_store *d)
{
	char text[UNITS_TEXT], private[UNITS_TEXT], files[UNITS_COUNT], others[UNITS_COUNT], left[DRAINED_LEFT_TEXT];

	printf("%s (no daemon; backing directory %s%s)\n", d->path, d->sb->backing,
		d->report.clean ? "" : "; the last daemon died");
	dead_job_lines(d);
	printf("  %-10s %s\n", "used", units_format_bytes(d->space.used_bytes, text));
	printf("  %-10s %s; %s in the log, %s in %s with private data\n", "dirty",
		units_format_count(d->totals.dirty_files, "file", files), units_format_bytes(d->totals.log_bytes, text),
		units_format_bytes(d->private_bytes, private),
		units_format_count(d->totals.private_files, "file", others));
	if (!state_left_nothing(&d->left))
		printf("  %-10s %s\n", "only here", drained_left_text(&d->left, left, sizeof(left)));
	files_line("drained", d->totals.drained_files, d->totals.drained_bytes);
	bytes_line("written", d->totals.written_bytes);
	bytes_line("saved", d->totals.saved_bytes);
	if (d->report.cut_bytes)
		printf("  %-10s %s, which the next mount cuts\n", "torn tail",
			units_format_bytes(d->report.cut_bytes, text));
	if (d->has_result && d->result.text[0])
		printf("  %-10s %s\n", "last drain", d->result.text);
	dead_straggler_lines(d);
	dead_advice(d);
}

struct private_sum {
	struct segment_set *segments;
	uint64_t bytes;
};

/* A segment that is not there is fsck's business. */
static int add_private(uint32_t segment, uint64_t live_bytes, void *arg)
{
	struct private_sum *sum = arg;
	uint64_t size, allocated;
	int64_t mtime_ns;

	if (live_bytes == STATE_SEGMENT_PRIVATE &&
		segment_private_size(sum->segments, segment, &size, &allocated, &mtime_ns) == 0)
		sum->bytes += allocated;
	return 0;
}

/* The answer of --check, in one line. */
static int check_verdict(const struct dead_store *d)
{
	char left[DRAINED_LEFT_TEXT];

	if (is_safe_to_delete(d)) {
		printf("%s: everything is on the backing directory %s; the store may be deleted\n", d->path,
			d->sb->backing);
		return CISTERN_EXIT_OK;
	}
	if (state_left_nothing(&d->left))
		say("%s must not be deleted: what this node was to drain is on the backing directory %s, but not all of its job is",
			d->path, d->sb->backing);
	else
		say("%s must not be deleted; only here and not on the backing directory %s: %s; 'cistern status %s' says what to do",
			d->path, d->sb->backing, drained_left_text(&d->left, left, sizeof(left)), d->path);
	return CISTERN_EXIT_INCOMPLETE;
}

static int show_dead(const struct dead_store *d, const struct how *how)
{
	if (how->json)
		dead_json(d);
	else if (!how->check)
		dead_text(d);
	else
		return check_verdict(d);
	return how->check && !is_safe_to_delete(d) ? CISTERN_EXIT_INCOMPLETE : CISTERN_EXIT_OK;
}

static int dead_status(const char *path, const struct how *how)
{
	struct store_options opt = { .mode = STORE_READ_ONLY };
	struct dead_store d = { .path = path };
	struct cistern_error err = { 0 };
	struct private_sum sum;
	struct store *s;
	int r;

	if (store_open(path, &opt, &s, &d.report, &err) < 0)
		return say_error(&err);
	d.s = s;
	d.sb = store_superblock(s);
	state_totals(store_state(s), &d.totals);
	sum = (struct private_sum){ .segments = store_segments(s) };
	r = state_each_segment(store_state(s), add_private, &sum);
	d.private_bytes = sum.bytes;
	r = r < 0 ? r : state_left(store_state(s), &d.left);
	if (r < 0) {
		store_abandon(s);
		say("%s: reading the index: %s", path, strerror(-r));
		return CISTERN_EXIT_FAILED;
	}
	if (store_space(s, &d.space) < 0)
		d.space = (struct store_space){ 0 };
	d.has_result = daemon_read_result(path, &d.result, NULL) == 0;
	drained_settle(&d.left, d.has_result ? &d.result : NULL);
	find_stragglers(&d);
	r = show_dead(&d, how);
	free(d.stragglers);
	store_abandon(s);
	return r;
}

/* ---- a daemon that does not answer */

struct silent {
	pid_t pid; /* 0: not known */
	const char *state;
	char backing[STORE_PATH_MAX], mountpoint[STORE_PATH_MAX];
};

/* What the system says that it does: the letter behind its name in /proc/PID/stat. */
static const char *state_of(pid_t pid)
{
	char path[64], text[256] = "";
	const char *end;
	FILE *in;

	snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
	in = fopen(path, "re");
	if (!in)
		return "gone";
	if (!fgets(text, sizeof(text), in))
		text[0] = '\0';
	fclose(in);
	end = strrchr(text, ')');
	switch (end && end[1] ? end[2] : '?') {
	case 'T':
	case 't': return "stopped";
	case 'D': return "waiting for a device or a file system";
	case 'Z': return "ending";
	case 'R':
	case 'S': return "running";
	default: return "in an unknown state";
	}
}

static void look_from_outside(const struct target *t, struct silent *s)
{
	struct superblock *sb = malloc(sizeof(*sb));
	bool recovers;

	*s = (struct silent){ .state = "unknown" };
	if (store_holder(t->store, &s->pid, &recovers) == 0 && s->pid > 0)
		s->state = state_of(s->pid);
	if (sb && store_read_superblock(t->store, sb, NULL) == 0) {
		snprintf(s->backing, sizeof(s->backing), "%s", sb->backing);
		snprintf(s->mountpoint, sizeof(s->mountpoint), "%s", sb->mountpoint);
	}
	free(sb);
}

static void silent_json(const struct target *t, const struct silent *s)
{
	struct json j;

	json_init(&j, stdout, true);
	json_object(&j);
	json_kstr(&j, "store", t->store);
	json_kstr(&j, "backing", s->backing);
	json_kstr(&j, "mountpoint", s->mountpoint);
	json_kstr(&j, "state", "no answer");
	json_ku64(&j, "pid", (uint64_t)s->pid);
	json_kstr(&j, "process_state", s->state);
	json_end_object(&j);
	json_finish(&j);
}

static int silent_status(const struct target *t, bool want_json)
{
	struct silent s;

	look_from_outside(t, &s);
	if (want_json)
		silent_json(t, &s);
	else
		printf("%s on %s (no answer; store %s)\n", s.mountpoint, s.backing, t->store);
	if (s.pid > 0)
		say("its daemon (pid %d, %s) has not answered for %u s%s; its log is %s/cistern.log", (int)s.pid,
			s.state, ANSWER_USEC / 1000000u,
			strcmp(s.state, "stopped") == 0 ? ": 'kill -CONT' lets it go on" : "", t->store);
	else
		say("its daemon has not answered for %u s; its log is %s/cistern.log", ANSWER_USEC / 1000000u,
			t->store);
	return CISTERN_EXIT_TIMEOUT;
}

/* ---- the command */

/* What a daemon, a recovery or a repair has open is nobody's to delete, whatever is in it. */
static int check_in_use(const struct target *t, pid_t pid)
{
	char who[32] = "a process";

	if (pid > 0)
		snprintf(who, sizeof(who), "process %d", (int)pid);
	say("%s must not be deleted: %s uses it; unmount it with 'cistern umount --wait', then check again", t->store,
		who);
	return CISTERN_EXIT_BUSY;
}

static int live_status(int fd, const struct target *t, uint64_t deadline, const struct how *how)
{
	WIRE_MSG_CLEANUP struct wire_msg reply = { 0 };
	struct cistern_error err = { 0 };
	int r = daemon_ask_until(fd, WIRE_STATUS_GET, deadline, &reply, &err);

	if (r == -ETIMEDOUT)
		return silent_status(t, how->json);
	if (r < 0)
		return say_error(&err);
	if (how->json)
		live_json(&reply);
	else if (!how->check)
		live_text(&reply);
	return how->check ? check_in_use(t, (pid_t)daemon_u64(&reply, WIRE_PID)) : CISTERN_EXIT_OK;
}

enum { OPT_JSON = 256, OPT_CHECK };

static const struct args_option options[] = {
	{ OPT_CHECK, "check", NULL,
		"of a STORE: may it be deleted? The exit status is 0 only if all data, names and attributes in it are on the "
		"backing directory and nobody uses it; 3: something is only here, or not all of its job is out; 5: it is in use" },
	{ OPT_JSON, "json", NULL, "print JSON, all sizes in bytes and times in microseconds" },
	{ 0 },
};

/* Without a socket there may still be who has the store: a daemon that begins or ends, a recovery. */
static int unused_status(const struct target *t, const struct how *how)
{
	bool recovers = false;
	pid_t holder = 0;

	if (how->check && (store_holder(t->store, &holder, &recovers) == -EBUSY || holder > 0))
		return check_in_use(t, holder);
	return dead_status(t->store, how);
}

static int run_status(const struct command *cmd, int argc, char **argv)
{
	DAEMON_FD_CLEANUP int fd = -1;
	struct cistern_error err = { 0 };
	struct how how = { false, false };
	uint64_t deadline;
	struct target t;
	struct args a;
	int key;

	args_init(&a, cmd, argc, argv);
	while ((key = args_next(&a)) >= 0)
		*(key == OPT_JSON ? &how.json : &how.check) = true;
	if (a.exit_status >= 0 || (a.exit_status = args_operands(&a, 0, 1)) >= 0)
		return a.exit_status;
	if ((optind < argc ? target_resolve(argv[optind], &t, &err) : target_resolve_mount(NULL, &t, &err)) < 0)
		return say_error(&err);
	deadline = clock_deadline(ANSWER_USEC);
	fd = daemon_connect(t.store, deadline, &err);
	if (fd >= 0)
		return live_status(fd, &t, deadline, &how);
	if (fd == -ETIMEDOUT)
		return silent_status(&t, how.json);
	if (fd == -ENOENT || fd == -ECONNREFUSED)
		return unused_status(&t, &how);
	return say_error(&err);
}

const struct command command_status = {
	.name = "status",
	.summary = "show what a mount or a store is doing",
	.synopsis = "status [--check] [--json] [MOUNTPOINT|STORE]",
	.about =
		"Shows the store's capacity, what is dirty (in the store and not on the backing directory yet), being drained and drained, at what "
		"rates, how long it will take, and what went wrong; of one mount of a job, which node it is, its agent, who is missing, and "
		"whom nodes that are unmounted wait for (node 0 knows). Bytes saved are those that were written and then overwritten or "
		"deleted before they had to be drained. It also works on a store whose daemon has ended or died, and then says what to do, "
		"and of a job's store on which hosts the others were. Of a daemon that does not answer within five seconds it says what can be seen from outside, and the exit status is 6. Without an operand it is about the mount that the working directory is in, or the only one.",
	.examples = "cistern status /cistern\ncistern status --check /local/nvme/$JOB && rm -rf /local/nvme/$JOB",
	.options = options,
	.run = run_status,
};
