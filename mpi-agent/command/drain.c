/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * cistern-agent drain: one session for a living daemon. The daemon owns the store; we read a snapshot of its index and
 * the segments, which it keeps for us, and report over its socket what is durable. When the connection breaks nobody can
 * commit our steps any more: we stop at once, and a next session goes on.
 *
 * A step that the daemon does not take, because the file or its directory has gone meanwhile, is no error.
 */
#include "mpi-agent/command/command.h"

#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "format/base/clock.h"
#include "format/base/config.h"
#include "format/base/units.h"
#include "format/place/place.h"
#include "format/place/places.h"
#include "format/store/steps.h"
#include "format/store/straggler.h"
#include "format/wire/protocol.h"
#include "format/wire/wire.h"
#include "mpi-agent/command/recover_claim.h"
#include "mpi-agent/replay/drain.h"
#include "mpi-agent/replay/session.h"
#include "format/manifest/manifest.h"

#define CALL_TIMEOUT_USEC (600u * 1000000u)
#define FILTERS_MAX       4096
#define ERRNO_MAX         4095
#define OPTIONS_BYTES_MAX (1u << 20)

struct live {
	const char *store_path;
	int fd; /* the daemon */
	int backing_fd;
	int memory_fd;         /* -1: there are no other nodes */
	const uint8_t *memory; /* owned; NULL until first needed */
	size_t memory_bytes;
	struct store *store;
	struct config *cfg;
	struct manifest *manifest;
	uint64_t mark; /* how long its log was */
	uint64_t session, seq, since, part, cautious, convert, haste;
	uint64_t asked_usec;              /* CLOCK_MONOTONIC: before the snapshot was made */
	struct drain_layout_rules *rules; /* owned */
	char *settings;                   /* owned: all of them, as text */
	char convert_path[STORE_PATH_MAX + 32];
	char snapshot[256];
	char node[256]; /* the name of this one, in a job */
	struct drain_result result;
	struct manifest_noted noted;
	char **filters; /* owned, as are they */
	size_t num_filters;
	uint64_t *left_alone; /* owned */
	size_t num_left_alone;
	struct wire_shared_list shared;
	struct wire_msg request, reply;
	struct buf record;
	char intent_path[STORE_PATH_MAX + 32];
	bool broken; /* the connection is */
};

/* Sends the request, waits for its reply. *ret_status: what the daemon says of it. */
static int call(struct live *l, int64_t *ret_status)
{
	int r = wire_send(l->fd, &l->request);

	if (r == 0)
		r = wire_recv(l->fd, &l->reply, CALL_TIMEOUT_USEC);
	if (r == 0 && (l->reply.type != WIRE_REPLY || !wire_get_i64(&l->reply, WIRE_STATUS, ret_status) ||
			      *ret_status > 0 || *ret_status < -ERRNO_MAX))
		r = -EBADMSG;
	l->broken = r < 0;
	return r;
}

static void take_control(const struct live *l, struct drain_control *control)
{
	uint64_t v;

	if (wire_get_u64(&l->reply, WIRE_PAUSED, &v))
		control->paused = v != 0;
	if (wire_get_u64(&l->reply, WIRE_CANCEL, &v))
		control->cancel = v != 0;
	if (wire_get_u64(&l->reply, WIRE_RATE, &v))
		control->rate = v;
	if (wire_get_u64(&l->reply, WIRE_TIME_SHARE, &v))
		control->share_percent = v < 1 ? 1 : v > 100 ? 100 : (unsigned int)v;
}

static int on_step(const struct record *rec, void *arg)
{
	struct live *l = arg;
	int64_t status;
	int r;

	buf_reset(&l->record);
	r = record_encode(rec, &l->record);
	if (r < 0)
		return r;
	wire_msg_init(&l->request, WIRE_DRAIN_STEP);
	wire_put_bytes(&l->request, WIRE_RECORD, l->record.data, l->record.len);
	r = call(l, &status);
	if (r < 0)
		return r;
	return (int)status;
}

static int on_tick(const struct drain_progress *p, struct drain_control *control, void *arg)
{
	struct live *l = arg;
	int64_t status;
	int r;

	wire_msg_init(&l->request, WIRE_DRAIN_PROGRESS);
	wire_put_u64(&l->request, WIRE_PLANNED_BYTES, p->planned_bytes);
	wire_put_u64(&l->request, WIRE_DONE_BYTES, p->done_bytes);
	wire_put_u64(&l->request, WIRE_VERIFY_BYTES, p->verify_bytes);
	wire_put_u64(&l->request, WIRE_VERIFIED_BYTES, p->verified_bytes);
	wire_put_u64(&l->request, WIRE_PLANNED_FILES, p->planned_files);
	wire_put_u64(&l->request, WIRE_DONE_FILES, p->done_files);
	wire_put_str(&l->request, WIRE_PATH, p->path);
	r = call(l, &status);
	if (r == 0)
		take_control(l, control);
	return r < 0 ? r : (int)status;
}

static int on_shared(const struct wire_shared *f, int status, void *arg)
{
	struct live *l = arg;
	struct wire_shared_list one = { 0 };
	int64_t answer;
	int r = wire_shared_add(&one, f);

	buf_reset(&l->record);
	wire_shared_encode(&one, &l->record);
	wire_shared_free(&one);
	wire_msg_init(&l->request, WIRE_DRAIN_SHARED);
	wire_put_bytes(&l->request, WIRE_SHARED, l->record.data, l->record.len);
	wire_put_i64(&l->request, WIRE_CODE, status);
	if (r == 0)
		r = call(l, &answer);
	return r < 0 ? r : (int)answer;
}

static int on_fetch(unsigned int slot, const struct drain_fetch *ranges, size_t num, void *arg)
{
	struct live *l = arg;
	int64_t answer;
	int r;

	buf_reset(&l->record);
	for (size_t i = 0; i < num; i++) {
		buf_u64(&l->record, ranges[i].off);
		buf_u32(&l->record, ranges[i].node);
		buf_u32(&l->record, ranges[i].segment);
		buf_u32(&l->record, ranges[i].len);
	}
	wire_msg_init(&l->request, WIRE_DRAIN_FETCH);
	wire_put_u64(&l->request, WIRE_SLOT, slot);
	wire_put_bytes(&l->request, WIRE_PAYLOAD, l->record.data, l->record.len);
	r = call(l, &answer);
	return r < 0 ? r : (int)answer;
}

static int map_memory(struct live *l)
{
	struct stat st;
	void *p;

	if (l->memory)
		return 0;
	if (l->memory_fd < 0 || fstat(l->memory_fd, &st) < 0 || st.st_size <= 0)
		return -EBADF;
	p = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_SHARED, l->memory_fd, 0);
	if (p == MAP_FAILED)
		return -errno;
	l->memory = p;
	l->memory_bytes = (size_t)st.st_size;
	return 0;
}

static int on_fetched(unsigned int slot, const uint8_t **ret, void *arg)
{
	struct live *l = arg;
	uint64_t off = 0;
	int64_t answer;
	int r;

	wire_msg_init(&l->request, WIRE_DRAIN_FETCHED);
	wire_put_u64(&l->request, WIRE_SLOT, slot);
	r = call(l, &answer);
	if (r == 0)
		r = answer < 0 ? (int)answer : map_memory(l);
	if (r < 0)
		return r;
	if (!wire_get_u64(&l->reply, WIRE_OFFSET, &off) || off > l->memory_bytes ||
		l->memory_bytes - off < WIRE_FETCH_BYTES)
		return -EBADMSG;
	*ret = l->memory + off;
	return 0;
}

static int take_places(struct live *l, struct share_extent *out, size_t cap, size_t *ret_num, uint64_t *ret_next,
	struct share_cut *ret_cut)
{
	const uint8_t *bytes;
	size_t len;

	if (!wire_get_u64(&l->reply, WIRE_OFFSET, ret_next) ||
		!wire_get_bytes(&l->reply, WIRE_PAYLOAD, 0, &bytes, &len))
		return -EBADMSG;
	struct cursor c = cursor_make(bytes, len);
	ret_cut->size = cursor_u64(&c);
	ret_cut->stamp = cursor_u64(&c);
	for (*ret_num = 0; cursor_ok(&c) && cursor_left(&c) > 0; ++*ret_num)
		if (*ret_num == cap || !places_get(&c, &out[*ret_num]))
			return -EBADMSG;
	return cursor_ok(&c) ? 0 : -EBADMSG;
}

static int on_places(const struct drain_places *ask, struct share_extent *out, size_t cap, size_t *ret_num,
	uint64_t *ret_next, struct share_cut *ret_cut, void *arg)
{
	struct live *l = arg;
	int64_t answer;
	int r;

	buf_reset(&l->record);
	buf_u64(&l->record, ask->ino);
	buf_u64(&l->record, ask->off);
	buf_u64(&l->record, ask->len);
	buf_u64(&l->record, cap);
	wire_msg_init(&l->request, WIRE_DRAIN_PLACES);
	wire_put_bytes(&l->request, WIRE_PAYLOAD, l->record.data, l->record.len);
	r = call(l, &answer);
	if (r == 0 && answer < 0)
		r = (int)answer;
	return r < 0 ? r : take_places(l, out, cap, ret_num, ret_next, ret_cut);
}

static int on_occupied(const struct record *rec, void *arg)
{
	struct live *l = arg;
	int64_t answer;
	int r;

	buf_reset(&l->record);
	r = record_encode(rec, &l->record);
	wire_msg_init(&l->request, WIRE_DRAIN_OCCUPIED);
	wire_put_bytes(&l->request, WIRE_RECORD, l->record.data, l->record.len);
	if (r == 0)
		r = call(l, &answer);
	return r < 0 ? r : (int)answer;
}

static void on_late(const char *path, const char *text, void *arg)
{
	(void)arg;
	fprintf(stderr, "cistern-agent: %s waits for the next drain: %s\n", path, text);
}

static void on_beside(const char *path, const char *there, void *arg)
{
	(void)arg;
	fprintf(stderr, "cistern-agent: %s is at %s: something that Cistern does not know has its name\n", path, there);
}

static void on_layout(const char *path, bool kept, const char *text, void *arg)
{
	(void)arg;
	if (kept)
		fprintf(stderr, "cistern-agent: %s keeps its layout: %s\n", path, text);
}

static void on_error(const char *path, int code, const char *text, void *arg)
{
	struct live *l = arg;
	int64_t status;

	if (l->broken)
		return;
	wire_msg_init(&l->request, WIRE_DRAIN_ERROR);
	wire_put_str(&l->request, WIRE_PATH, path);
	wire_put_i64(&l->request, WIRE_CODE, code);
	wire_put_str(&l->request, WIRE_TEXT, text);
	call(l, &status);
}

/* One that cannot be understood ends the session: without it more would be drained than was asked for, or less. */
static int take_filters(struct live *l, struct cistern_error *err)
{
	int r = 0;

	l->filters = calloc(FILTERS_MAX + 1, sizeof(*l->filters));
	if (!l->filters)
		return cistern_error_set(err, -ENOMEM, "out of memory");
	while (l->num_filters <= FILTERS_MAX && r == 0) {
		r = wire_copy_str(&l->reply, WIRE_FILTER, (unsigned int)l->num_filters, STORE_PATH_MAX,
			&l->filters[l->num_filters]);
		l->num_filters += r == 0;
	}
	if (r == -ENOENT)
		return 0;
	if (r == 0)
		return cistern_error_set(err, -E2BIG, "the daemon names more than %u paths to drain", FILTERS_MAX);
	return cistern_error_set(err, r, "path %zu of those that the daemon wants drained: %s", l->num_filters + 1,
		r == -EBADMSG ? "it is no string, too long, or holds a zero byte" : strerror(-r));
}

static int take_left_alone(struct live *l, struct cistern_error *err)
{
	const uint8_t *list;
	size_t len;

	if (!wire_get_bytes(&l->reply, WIRE_SKIP_INODES, 0, &list, &len) || len % sizeof(uint64_t) != 0)
		return cistern_error_set(err, -EBADMSG,
			"the daemon's list of files to be left alone is missing or no list of inode numbers");
	struct cursor c = cursor_make(list, len);
	l->left_alone = calloc(len / sizeof(uint64_t) + 1, sizeof(uint64_t));
	if (!l->left_alone)
		return cistern_error_set(err, -ENOMEM, "out of memory");
	while (cursor_left(&c) > 0)
		l->left_alone[l->num_left_alone++] = cursor_u64(&c);
	return 0;
}

static int take_options(struct live *l, struct cistern_error *err)
{
	char *text = NULL;
	int r = wire_copy_str(&l->reply, WIRE_OPTIONS, 0, OPTIONS_BYTES_MAX, &text);

	if (r < 0)
		return cistern_error_set(err, r, "the daemon's settings: %s",
			r == -ENOENT    ? "they are missing"
			: r == -EBADMSG ? "they are no string, too long, or hold a zero byte"
					: strerror(-r));
	r = config_create(&l->cfg);
	r = r < 0 ? cistern_error_set(err, r, "out of memory") : config_parse_options(l->cfg, text, "daemon", err);
	if (r == 0)
		r = drain_layout_rules_create(config_string(l->cfg, CONFIG_LAYOUT), &l->rules, err);
	l->settings = text;
	return r;
}

static int take_shared(struct live *l, struct cistern_error *err)
{
	const uint8_t *bytes;
	size_t len;
	int r = wire_get_bytes(&l->reply, WIRE_SHARED, 0, &bytes, &len) ? wire_shared_decode(bytes, len, &l->shared)
									: 0;

	return r < 0 ? cistern_error_set(
			       err, r, "%s: the daemon's list of shared files: %s", l->store_path, strerror(-r))
		     : 0;
}

static int begin(struct live *l, struct cistern_error *err)
{
	int r;

	l->fd = wire_connect(l->store_path, err);
	if (l->fd < 0)
		return l->fd;
	l->asked_usec = clock_usec();
	wire_msg_init(&l->request, WIRE_DRAIN_BEGIN);
	protocols_put(&l->request);
	r = wire_call(l->fd, &l->request, &l->reply, CALL_TIMEOUT_USEC, err);
	if (r < 0)
		return r;
	if (!protocols_meet(protocols_own, protocols_get(&l->reply), NULL))
		return protocols_refuse(
			err, "this agent", protocols_own, "the daemon", protocols_get(&l->reply), PROTOCOLS_ELSEWHERE);
	if (!wire_get_u64(&l->reply, WIRE_SESSION, &l->session) || !wire_get_u64(&l->reply, WIRE_SEQ, &l->seq) ||
		!wire_get_str(&l->reply, WIRE_PATH, 0, l->snapshot, sizeof(l->snapshot)))
		return cistern_error_set(err, -EBADMSG,
			"%s: the daemon's answer lacks a field: it is of another version", l->store_path);
	wire_get_u64(&l->reply, WIRE_PART, &l->part);
	wire_get_u64(&l->reply, WIRE_SINCE, &l->since);
	wire_get_u64(&l->reply, WIRE_CAUTIOUS, &l->cautious);
	wire_get_u64(&l->reply, WIRE_CONVERT, &l->convert);
	wire_get_u64(&l->reply, WIRE_ROOM, &l->haste);
	wire_get_str(&l->reply, WIRE_NODE_NAME, 0, l->node, sizeof(l->node));
	if (l->part >= WIRE_PART_END)
		return cistern_error_set(err, -EPROTONOSUPPORT,
			"%s: the daemon asks for part %" PRIu64 " of a drain: it is of another version", l->store_path,
			l->part);
	r = take_shared(l, err);
	if (r == 0)
		r = take_left_alone(l, err);
	if (r == 0)
		r = take_filters(l, err);
	return r == 0 ? take_options(l, err) : r;
}

/* What is written to through a dead mount is carried, but stays in the store. */
static int take_stragglers(struct live *l, struct cistern_error *err)
{
	char text[STRAGGLER_WHO + 16];
	int r = 0;

	for (unsigned int i = 0; r == 0 && wire_get_str(&l->reply, WIRE_STRAGGLER, i, text, sizeof(text)); i++) {
		char *who = text;
		uint32_t segment = (uint32_t)strtoul(text, &who, 10);

		r = straggler_add(l->store, segment, *who == ' ' ? who + 1 : who);
	}
	return r < 0 ? cistern_error_set(err, r, "out of memory") : 0;
}

static int open_all(struct live *l, struct cistern_error *err)
{
	struct store_options opt = { .mode = STORE_READ_ONLY,
		.snapshot = l->snapshot,
		.index_memory = config_number(l->cfg, CONFIG_INDEX_MEMORY) };
	char path[STORE_PATH_MAX + 32];
	struct state_report report;
	int r = store_open(l->store_path, &opt, &l->store, &report, err);

	if (r == 0)
		r = take_stragglers(l, err);
	if (r < 0)
		return r;
	if (l->backing_fd < 0) {
		const char *backing = store_superblock(l->store)->backing;

		l->backing_fd = open(backing, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		if (l->backing_fd < 0)
			return cistern_error_set(err, -errno, "backing directory %s: %s", backing, strerror(errno));
	}
	snprintf(path, sizeof(path), "%s/%s", store_path(l->store),
		l->part == WIRE_PART_WHOLE ? MANIFEST_LOG : MANIFEST_PART_LOG);
	snprintf(l->intent_path, sizeof(l->intent_path), "%s/" INTENT_FILE, store_path(l->store));
	snprintf(l->convert_path, sizeof(l->convert_path), "%s/" CONVERT_FILE, store_path(l->store));
	r = manifest_open(path, &l->manifest, err);
	if (r == 0)
		l->mark = manifest_mark(l->manifest);
	if (r == 0 && l->part != WIRE_PART_WHOLE)
		manifest_set_node(l->manifest, l->node);
	return r;
}

static int write_manifests(struct live *l, int64_t started_ns, int result, bool ended, struct cistern_error *err)
{
	const struct superblock *sb = store_superblock(l->store);
	const char *copy = config_string(l->cfg, CONFIG_MANIFEST);
	char uuid[37], path[STORE_PATH_MAX + 32];
	struct manifest_session ms = { .store_uuid = uuid,
		.job = sb->job,
		.backing = sb->backing,
		.destination = sb->backing,
		.node = sb->node_index,
		.session = l->session,
		.started_ns = started_ns,
		.ended_ns = clock_wall_ns(),
		.result = result,
		.totals = l->result.totals,
		.mark = l->mark,
		.whole = ended && l->num_filters == 0 && l->num_left_alone == 0,
		.process = getppid(),
		.ret_noted = &l->noted };
	int r;

	if (l->part != WIRE_PART_WHOLE) /* the job has one, which node 0 writes at the end of the session */
		return manifest_sync(l->manifest, err);
	store_uuid_text(sb->uuid, uuid);
	snprintf(path, sizeof(path), "%s/" MANIFEST_FILE, store_path(l->store));
	r = manifest_write(l->manifest, &ms, path, err);
	if (r == 0 && copy && copy[0])
		r = manifest_write(l->manifest, &ms, copy, err);
	return r;
}

static int run(struct live *l, struct cistern_error *err)
{
	struct drain_convert convert = { .rules = l->rules,
		.settings = l->settings,
		.list_path = l->convert_path,
		.num_subfiles = (uint32_t)config_number(l->cfg, CONFIG_NUM_SUBFILES),
		.share_bytes = config_number(l->cfg, CONFIG_CONVERT_SHARE),
		.haste = l->haste < WIRE_HASTE_END ? (enum wire_haste)l->haste : WIRE_HASTE_ROOM,
		.now = l->convert != 0 };
	struct drain_options opt = { .store = l->store,
		.node = store_superblock(l->store)->node_index,
		.num_nodes = store_superblock(l->store)->num_nodes,
		.domain_size = PLACE_DOMAIN_SIZE,
		.part = (enum wire_part)l->part,
		.since = l->since,
		.cautious = l->cautious != 0,
		.to_dirfd = l->backing_fd,
		.in_place = true,
		.base_dirfd = -1,
		.upto = l->seq,
		.asked_usec = l->asked_usec,
		.fresh_usec = PLACE_GRACE_USEC / 2,
		.verify = (enum drain_verify)config_number(l->cfg, CONFIG_VERIFY),
		.buffer_bytes = config_number(l->cfg, CONFIG_FLUSH_BUFFER_SIZE),
		.rate = config_number(l->cfg, CONFIG_DRAIN_RATE),
		.filters = (const char *const *)l->filters,
		.num_filters = l->num_filters,
		.left_alone = l->left_alone,
		.num_left_alone = l->num_left_alone,
		.shared = l->shared,
		.intent_path = l->intent_path,
		.manifest = l->manifest,
		.convert = &convert,
		.watcher = { .step = on_step,
			.tick = on_tick,
			.occupied = l->part == WIRE_PART_WHOLE ? NULL : on_occupied,
			.late = on_late,
			.layout = on_layout,
			.beside = on_beside,
			.error = on_error,
			.fetch = on_fetch,
			.fetched = on_fetched,
			.places = on_places,
			.shared = on_shared,
			.arg = l } };
	int64_t started_ns = clock_wall_ns();
	int r, result;

	if (l->part == WIRE_PART_WHOLE || l->part == WIRE_PART_FINISH)
		recover_claim_sweep(store_superblock(l->store), l->backing_fd, store_superblock(l->store)->backing);
	r = drain_run(&opt, &l->result, err);
	result = r == -ECANCELED               ? CISTERN_EXIT_INCOMPLETE
		 : r < 0                       ? CISTERN_EXIT_FAILED
		 : l->result.totals.failed > 0 ? CISTERN_EXIT_INCOMPLETE
					       : CISTERN_EXIT_OK;
	if (!l->broken && write_manifests(l, started_ns, result, r == 0, r < 0 ? NULL : err) < 0 &&
		result == CISTERN_EXIT_OK)
		result = CISTERN_EXIT_FAILED;
	return manifest_noted_result(result, &l->noted);
}

/* Nothing went wrong, but who asked for a drain shall know what it did not carry. */
static void describe_waiting(uint64_t num, char *out, size_t cap)
{
	snprintf(out, cap,
		"%" PRIu64 " file%s in the store until everything is unmounted: then subfiles are made of %s", num,
		num == 1 ? " stays" : "s stay", num == 1 ? "it" : "them");
}

static void describe_noted(const struct live *l, char *out, size_t cap)
{
	char path[STORE_PATH_MAX + 32];

	snprintf(path, sizeof(path), "%s/" MANIFEST_FILE, l->store_path);
	manifest_noted_text(&l->noted, path, out, cap);
}

static void end(struct live *l, int result, const char *text)
{
	struct manifest_totals totals = l->result.totals;
	char more[CISTERN_ERROR_TEXT_BYTES];
	int64_t status;

	if (cistern_exit_is_out(result) && (l->result.waiting > 0 || !text[0])) {
		if (l->result.waiting > 0)
			describe_waiting(l->result.waiting, more, sizeof(more));
		else
			describe_noted(l, more, sizeof(more));
		text = more;
	}
	if (l->broken || l->fd < 0)
		return;
	wire_msg_init(&l->request, WIRE_DRAIN_END);
	wire_put_u64(&l->request, WIRE_RESULT, (uint64_t)result);
	wire_put_str(&l->request, WIRE_TEXT, text);
	buf_reset(&l->record);
	manifest_totals_encode(&totals, &l->record);
	wire_put_bytes(&l->request, WIRE_TOTALS, l->record.data, l->record.len);
	call(l, &status);
}

static void live_close(struct live *l)
{
	for (size_t i = 0; i < l->num_filters; i++)
		free(l->filters[i]);
	free(l->filters);
	free(l->left_alone);
	wire_shared_free(&l->shared);
	manifest_close(l->manifest);
	config_destroy(l->cfg);
	drain_layout_rules_destroy(l->rules);
	free(l->settings);
	if (l->store)
		store_abandon(l->store);
	if (l->fd >= 0)
		close(l->fd);
	if (l->backing_fd >= 0)
		close(l->backing_fd);
	if (l->memory)
		munmap((void *)l->memory, l->memory_bytes);
	if (l->memory_fd >= 0)
		close(l->memory_fd);
	wire_msg_free(&l->request);
	wire_msg_free(&l->reply);
	buf_free(&l->record);
}

static int parse(struct live *l, int argc, char **argv)
{
	static const struct option options[] = { { "store", required_argument, NULL, 's' },
		{ "backing-fd", required_argument, NULL, 'b' }, { "memory-fd", required_argument, NULL, 'm' }, { 0 } };
	uint64_t fd;
	int c;

	while ((c = getopt_long(argc, argv, "", options, NULL)) != -1) {
		if (c == 's')
			l->store_path = optarg;
		else if (c == 'b' && units_parse_u64(optarg, &fd) == 0 && fd <= INT32_MAX)
			l->backing_fd = (int)fd;
		else if (c == 'm' && units_parse_u64(optarg, &fd) == 0 && fd <= INT32_MAX)
			l->memory_fd = (int)fd;
		else
			return -EINVAL;
	}
	return l->store_path && optind == argc ? 0 : -EINVAL;
}

int command_drain(int argc, char **argv)
{
	struct live l = { .fd = -1, .backing_fd = -1, .memory_fd = -1 };
	struct cistern_error err = { 0 };
	int result;

	if (parse(&l, argc, argv) < 0) {
		fputs("usage: cistern-agent drain --store DIR [--backing-fd N] [--memory-fd N]\n", stderr);
		return CISTERN_EXIT_USAGE;
	}
	signal(SIGPIPE, SIG_IGN);
	result = begin(&l, &err) < 0 || open_all(&l, &err) < 0 ? CISTERN_EXIT_FAILED : run(&l, &err);
	if (err.code)
		fprintf(stderr, "cistern-agent: %s\n", err.text);
	end(&l, result, err.code ? err.text : "");
	live_close(&l);
	return result;
}
