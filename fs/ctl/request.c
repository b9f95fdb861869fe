/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * One function per request, and a table of them. A handler adds its fields to the reply and returns 0, or fills the
 * error; the status is put by who called it. Everything in a request is untrusted.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "format/place/places.h"
#include "format/wire/protocol.h"
#include "fs/ctl/private.h"

typedef int handler_fn(
	struct client *client, const struct wire_msg *request, struct wire_msg *reply, struct cistern_error *err);

static uint64_t get_u64(const struct wire_msg *m, enum wire_tag tag)
{
	uint64_t v = 0;

	wire_get_u64(m, tag, &v);
	return v;
}

/* ---- tools */

static int answer_status(
	struct client *client, const struct wire_msg *request, struct wire_msg *reply, struct cistern_error *err)
{
	ctl_put_status(client->ctl, reply);
	return 0;
}

/* The path becomes relative to the root, in place: "" for the root itself. False when it lies outside the mount. */
static bool relative_path(const struct ctl *c, char *path)
{
	size_t len = strlen(c->opt.mountpoint);
	char *at = path, *to;

	if (*at == '/') {
		while (len > 0 && c->opt.mountpoint[len - 1] == '/')
			len--;
		if (strncmp(at, c->opt.mountpoint, len) != 0 || (at[len] != '/' && at[len] != '\0'))
			return false;
		at += len;
	}
	to = path;
	while (*at) { /* component by component: "a//./b/" is "a/b" */
		size_t n;

		at += strspn(at, "/");
		n = strcspn(at, "/");
		if (n == 2 && at[0] == '.' && at[1] == '.')
			return false;
		if (n > 0 && !(n == 1 && at[0] == '.')) {
			if (to > path)
				*to++ = '/';
			memmove(to, at, n);
			to += n;
		}
		at += n;
	}
	*to = '\0';
	return true;
}

static void free_strings(char **strings, size_t num)
{
	for (size_t i = 0; i < num; i++)
		free(strings[i]);
	free(strings);
}

/* The n-th path of a request, relative to the root; the caller frees it. -ENOENT, err untouched: there are no more. */
static int get_path(
	const struct ctl *c, const struct wire_msg *request, unsigned int n, char **ret, struct cistern_error *err)
{
	char given[STORE_PATH_MAX];
	char *path = NULL;
	int r = wire_copy_str(request, WIRE_PATH, n, STORE_PATH_MAX - 1, &path);

	if (r == -ENOENT)
		return r;
	if (r < 0)
		return cistern_error_set(err, r, "path %u of the request: %s", n + 1,
			r == -EBADMSG ? "it is no string, too long, or holds a zero byte" : strerror(-r));
	snprintf(given, sizeof(given), "%s", path);
	if (!relative_path(c, path)) {
		free(path);
		return cistern_error_set(err, -EINVAL, "%s is not below the mount point %s", given, c->opt.mountpoint);
	}
	*ret = path;
	return 0;
}

/* All paths of a request. 0, and num 0 for everything: the root among them, more of them than a drain takes, or none. */
static int get_paths(
	struct ctl *c, const struct wire_msg *request, char ***ret, size_t *ret_num, struct cistern_error *err)
{
	char **paths = calloc(DRAIN_PATHS_MAX + 1, sizeof(*paths));
	size_t num = 0;
	bool all = false;
	int r = paths ? 0 : cistern_error_set(err, -ENOMEM, "out of memory");

	while (r == 0 && !all) {
		r = get_path(c, request, (unsigned int)num, &paths[num], err);
		if (r == 0)
			all = *paths[num++] == '\0' || num > DRAIN_PATHS_MAX;
	}
	if (r == -ENOENT)
		r = 0;
	if (r < 0 || all) {
		free_strings(paths, num);
		paths = NULL;
		num = 0;
	}
	if (r == 0) {
		*ret = paths;
		*ret_num = num;
	}
	return r;
}

static int answer_flush(
	struct client *client, const struct wire_msg *request, struct wire_msg *reply, struct cistern_error *err)
{
	char **paths = NULL;
	size_t num = 0;
	uint64_t id;
	int r = get_paths(client->ctl, request, &paths, &num, err);

	if (r)
		return r;
	id = drain_request(client->ctl->opt.drain, (const char *const *)paths, num);
	free_strings(paths, num);
	if (id == 0)
		return cistern_error_set(err, -ENOMEM, "out of memory");
	wire_put_u64(reply, WIRE_SESSION, id);
	return 0;
}

/* What the session complains of; in a job, this node's part of it, too. */
static void each_error(struct ctl *c, void (*each)(const char *path, int code, const char *text, void *arg), void *arg)
{
	drain_each_error(c->opt.drain, each, arg);
	if (c->opt.carry)
		drain_each_error(carry_carrier(c->opt.carry), each, arg);
}

static void put_error_text(const char *path, int code, const char *text, void *arg)
{
	char line[STORE_PATH_MAX + CISTERN_ERROR_TEXT_BYTES];
	struct wire_msg *reply = arg;

	if (reply->body.len > WIRE_MAX_BYTES / 2)
		return;
	snprintf(line, sizeof(line), "%s: %s", path, text);
	wire_put_str(reply, WIRE_TEXT, line);
}

static int answer_wait(
	struct client *client, const struct wire_msg *request, struct wire_msg *reply, struct cistern_error *err)
{
	uint64_t id = get_u64(request, WIRE_SESSION);
	char text[CISTERN_ERROR_TEXT_BYTES];
	enum cistern_exit result;
	int r = drain_wait(client->ctl->opt.drain, id, get_u64(request, WIRE_TIMEOUT_USEC), &result, text);

	if (r == -ETIMEDOUT)
		return cistern_error_set(err, r, "the drain goes on; it had not ended in time");
	if (r == -ESHUTDOWN)
		return cistern_error_set(err, r, "the daemon ends");
	if (r)
		return cistern_error_set(err, r, "no drain session %llu is known", (unsigned long long)id);
	wire_put_u64(reply, WIRE_RESULT, (uint64_t)result);
	if (*text)
		wire_put_str(reply, WIRE_TEXT, text);
	if (!cistern_exit_is_out(result))
		each_error(client->ctl, put_error_text, reply);
	return 0;
}

/* Those of a job's mounts are not answered here (ctl.c). */
static int answer_hello(
	struct client *client, const struct wire_msg *request, struct wire_msg *reply, struct cistern_error *err)
{
	(void)client;
	(void)request;
	(void)reply;
	return cistern_error_set(err, -EINVAL,
		"it is mounted without other nodes (nodes=1), and takes no agent: unmount it, and mount it with -o nodes=N "
		"on each of the job's N nodes");
}

/* In a job every node's drain drains all nodes: node 0, which leads, holds them, and tells all nodes. */
static int answer_pause(
	struct client *client, const struct wire_msg *request, struct wire_msg *reply, struct cistern_error *err)
{
	bool pause = request->type == WIRE_PAUSE;
	struct ctl *c = client->ctl;

	if (!c->opt.carry) {
		drain_pause(c->opt.drain, pause);
		return 0;
	}
	int r = collective_pause(carry_collective(c->opt.carry), pause);
	if (r)
		return cistern_error_set(err, r,
			"node 0, which leads the drains of the job, could not be asked: %s; nothing is %s",
			strerror(-r), pause ? "paused" : "resumed");
	drain_pause(c->opt.drain, pause); /* node 0's word to us may be on its way yet */
	return 0;
}

static int answer_snapshot(
	struct client *client, const struct wire_msg *request, struct wire_msg *reply, struct cistern_error *err)
{
	struct store *store = client->ctl->opt.store;
	uint64_t seq;
	int r;

	if (*client->snapshot)
		return cistern_error_set(err, -EBUSY, "this connection has the snapshot %s already", client->snapshot);
	store_pin(store);
	r = store_snapshot(store, client->snapshot, sizeof(client->snapshot), &seq, err);
	if (r) {
		client->snapshot[0] = '\0';
		store_unpin(store);
		return r;
	}
	wire_put_str(reply, WIRE_PATH, client->snapshot);
	wire_put_u64(reply, WIRE_SEQ, seq);
	return 0;
}

static int answer_config(
	struct client *client, const struct wire_msg *request, struct wire_msg *reply, struct cistern_error *err)
{
	const struct config *cfg = client->ctl->opt.cfg;
	const struct config_setting *table;
	char *options = config_to_options(cfg), line[2 * STORE_PATH_MAX], value[STORE_PATH_MAX];
	size_t num;

	if (!options)
		return cistern_error_set(err, -ENOMEM, "out of memory");
	wire_put_str(reply, WIRE_TEXT, options);
	free(options);
	table = config_table(&num);
	for (size_t i = 0; i < CONFIG_NUM; i++) {
		snprintf(line, sizeof(line), "%s=%s@%s", table[i].name, config_text(cfg, i, value, sizeof(value)),
			config_origin(cfg, i));
		wire_put_str(reply, WIRE_TEXT, line);
	}
	return 0;
}

/* ---- the agent */

/* Whom agents serve. */
static struct drain *carrier_of(struct client *client)
{
	const struct ctl_options *opt = &client->ctl->opt;

	return opt->carry ? carry_carrier(opt->carry) : opt->drain;
}

static void put_orders(struct client *client, struct wire_msg *reply)
{
	struct drain_orders orders = drain_orders(carrier_of(client));

	wire_put_u64(reply, WIRE_PAUSED, orders.paused);
	wire_put_u64(reply, WIRE_RATE, orders.rate);
	wire_put_u64(reply, WIRE_TIME_SHARE, orders.share_percent);
	wire_put_u64(reply, WIRE_CANCEL, orders.cancel);
}

/* Those of the agent's snapshot: their segment, and who they are. */
static void put_stragglers(const struct drain_grant *g, struct wire_msg *reply)
{
	char text[STRAGGLER_WHO + 16];

	for (size_t i = 0; i < g->num_stragglers; i++) {
		snprintf(text, sizeof(text), "%u %s", g->stragglers[i].segment, g->stragglers[i].who);
		wire_put_str(reply, WIRE_STRAGGLER, text);
	}
}

static void put_grant(const struct drain_grant *g, struct wire_msg *reply)
{
	struct buf skip = { 0 };

	wire_put_u64(reply, WIRE_PART, g->part);
	wire_put_u64(reply, WIRE_CAUTIOUS, g->cautious);
	wire_put_u64(reply, WIRE_CONVERT, g->convert);
	wire_put_u64(reply, WIRE_ROOM, g->haste);
	wire_put_u64(reply, WIRE_SINCE, g->since);
	wire_put_bytes(reply, WIRE_SHARED, g->shared.data, g->shared.len);
	wire_put_u64(reply, WIRE_SESSION, g->session);
	wire_put_str(reply, WIRE_PATH, g->snapshot);
	wire_put_str(reply, WIRE_NODE_NAME, g->node_name);
	wire_put_u64(reply, WIRE_SEQ, g->seq);
	for (size_t i = 0; i < g->num_paths; i++)
		wire_put_str(reply, WIRE_FILTER, g->paths[i]);
	put_stragglers(g, reply);
	for (size_t i = 0; i < g->num_skip; i++)
		buf_u64(&skip, g->skip[i]);
	if (buf_ok(&skip)) /* without the list the agent does not begin */
		wire_put_bytes(reply, WIRE_SKIP_INODES, skip.data, skip.len);
	buf_free(&skip);
}

static int answer_begin(
	struct client *client, const struct wire_msg *request, struct wire_msg *reply, struct cistern_error *err)
{
	struct drain_grant grant = { 0 };
	char *options;
	int r;

	if (!protocols_meet(protocols_own, protocols_get(request), NULL))
		return protocols_refuse(err, "the daemon", protocols_own, "the draining agent", protocols_get(request),
			PROTOCOLS_ELSEWHERE);
	protocols_put(reply);
	r = drain_agent_begin(carrier_of(client), client, &grant, err);

	if (r)
		return r;
	put_grant(&grant, reply);
	drain_grant_free(&grant);
	options = config_to_options(client->ctl->opt.cfg);
	if (options)
		wire_put_str(reply, WIRE_OPTIONS, options);
	free(options);
	put_orders(client, reply);
	return 0;
}

static int answer_step(
	struct client *client, const struct wire_msg *request, struct wire_msg *reply, struct cistern_error *err)
{
	const uint8_t *bytes;
	struct record rec;
	size_t len, used;
	int r;

	if (!wire_get_bytes(request, WIRE_RECORD, 0, &bytes, &len))
		return cistern_error_set(err, -EBADMSG, "a drain step without a record");
	r = record_decode(bytes, len, &client->scratch, &rec, &used);
	if (r || used != len)
		return cistern_error_set(err, r ? r : -EBADMSG, "a drain step with a damaged record of %zu bytes", len);
	rec.seq = 0; /* both are the state's to give */
	rec.time_ns = 0;
	r = drain_agent_step(carrier_of(client), client, &rec, err);
	if (!r)
		put_orders(client, reply);
	return r;
}

static int answer_progress(
	struct client *client, const struct wire_msg *request, struct wire_msg *reply, struct cistern_error *err)
{
	struct drain_progress p = {
		.planned_bytes = get_u64(request, WIRE_PLANNED_BYTES),
		.done_bytes = get_u64(request, WIRE_DONE_BYTES),
		.verify_bytes = get_u64(request, WIRE_VERIFY_BYTES),
		.verified_bytes = get_u64(request, WIRE_VERIFIED_BYTES),
		.planned_files = get_u64(request, WIRE_PLANNED_FILES),
		.done_files = get_u64(request, WIRE_DONE_FILES),
	};
	int r;

	wire_get_str(request, WIRE_PATH, 0, p.path, sizeof(p.path));
	r = drain_agent_progress(carrier_of(client), client, &p);
	if (r)
		return cistern_error_set(err, r, "this connection has no drain session");
	put_orders(client, reply);
	return 0;
}

static int answer_error(
	struct client *client, const struct wire_msg *request, struct wire_msg *reply, struct cistern_error *err)
{
	char path[STORE_PATH_MAX] = "", text[CISTERN_ERROR_TEXT_BYTES] = "";
	int64_t code = -EIO;

	wire_get_str(request, WIRE_PATH, 0, path, sizeof(path));
	wire_get_str(request, WIRE_TEXT, 0, text, sizeof(text));
	wire_get_i64(request, WIRE_CODE, &code);
	if (code >= 0 || code < -4095)
		code = -EIO;
	if (drain_agent_error(carrier_of(client), client, path, (int)code, text))
		return cistern_error_set(err, -ESTALE, "this connection has no drain session");
	return 0;
}

static int answer_shared(
	struct client *client, const struct wire_msg *request, struct wire_msg *reply, struct cistern_error *err)
{
	struct wire_shared_list list = { 0 };
	const uint8_t *bytes;
	int64_t status = 0;
	size_t len;
	int r = wire_get_bytes(request, WIRE_SHARED, 0, &bytes, &len) ? wire_shared_decode(bytes, len, &list)
								      : -EBADMSG;

	wire_get_i64(request, WIRE_CODE, &status);
	if (r == 0)
		r = list.num == 1 ? drain_agent_shared(carrier_of(client), client, &list.at[0], (int)status) : -EBADMSG;
	wire_shared_free(&list);
	return r ? cistern_error_set(err, r, "a shared file of a drain: %s", strerror(-r)) : 0;
}

#define FETCH_ENTRY_BYTES 20u
#define FETCH_RANGES_MAX  8192u

/* Decodes at most FETCH_RANGES_MAX ranges; their number, or -EBADMSG. */
static int take_ranges(const struct wire_msg *request, struct peers_get *out)
{
	const uint8_t *bytes;
	struct cursor c;
	size_t len;
	int num = 0;

	if (!wire_get_bytes(request, WIRE_PAYLOAD, 0, &bytes, &len) || len % FETCH_ENTRY_BYTES ||
		len / FETCH_ENTRY_BYTES > FETCH_RANGES_MAX)
		return -EBADMSG;
	for (c = cursor_make(bytes, len); cursor_left(&c) > 0; num++) {
		out[num] = (struct peers_get){ .off = cursor_u64(&c) };
		out[num].node = cursor_u32(&c);
		out[num].segment = cursor_u32(&c);
		out[num].len = cursor_u32(&c);
	}
	return num;
}

static int answer_fetch(
	struct client *client, const struct wire_msg *request, struct wire_msg *reply, struct cistern_error *err)
{
	struct peers_get *ranges = calloc(FETCH_RANGES_MAX, sizeof(*ranges));
	int num = ranges ? take_ranges(request, ranges) : -ENOMEM, r = num;

	(void)reply;
	if (num >= 0)
		r = drain_agent_fetch(carrier_of(client), client, get_u64(request, WIRE_SLOT), ranges, (size_t)num);
	free(ranges);
	return r ? cistern_error_set(err, r, "payload of other nodes: %s", strerror(-r)) : 0;
}

static int answer_fetched(
	struct client *client, const struct wire_msg *request, struct wire_msg *reply, struct cistern_error *err)
{
	uint64_t off = 0;
	int r = drain_agent_fetched(carrier_of(client), client, get_u64(request, WIRE_SLOT), &off);

	if (r)
		return cistern_error_set(err, r, "payload of other nodes: %s", strerror(-r));
	wire_put_u64(reply, WIRE_OFFSET, off);
	return 0;
}

static int answer_occupied(
	struct client *client, const struct wire_msg *request, struct wire_msg *reply, struct cistern_error *err)
{
	struct record_scratch scratch = { 0 };
	struct record rec;
	const uint8_t *bytes;
	size_t len, used;
	int r = wire_get_bytes(request, WIRE_RECORD, 0, &bytes, &len) ? 0 : -EBADMSG;

	(void)reply;
	if (r == 0)
		r = record_decode(bytes, len, &scratch, &rec, &used);
	if (r == 0)
		r = drain_agent_occupied(carrier_of(client), client, &rec);
	record_scratch_free(&scratch);
	return r ? cistern_error_set(err, r, "whose the name is: %s", strerror(-r)) : 0;
}

#define PLACES_AT_ONCE 4096u

/* The list before the cut: what is cut off meanwhile may be in it. */
static int put_places(struct client *client, const struct wire_msg *request, struct share_extent *out,
	struct buf *places, uint64_t *ret_next)
{
	struct drain *d = carrier_of(client);
	struct share_cut cut = { 0 };
	const uint8_t *bytes;
	size_t len, num = 0;

	if (!wire_get_bytes(request, WIRE_PAYLOAD, 0, &bytes, &len) || len != 4 * sizeof(uint64_t))
		return -EBADMSG;
	struct cursor c = cursor_make(bytes, len);
	uint64_t ino = cursor_u64(&c), off = cursor_u64(&c), range = cursor_u64(&c), most = cursor_u64(&c);
	size_t cap = most < PLACES_AT_ONCE ? (size_t)most : PLACES_AT_ONCE;
	int r = cap ? drain_agent_places(d, client, ino, off, range, out, cap, &num, ret_next, &cut) : -EINVAL;
	if (r < 0)
		return r;
	buf_u64(places, cut.size);
	buf_u64(places, cut.stamp);
	for (size_t i = 0; i < num; i++)
		places_put(places, &out[i]);
	return buf_ok(places) ? 0 : -ENOMEM;
}

static int answer_places(
	struct client *client, const struct wire_msg *request, struct wire_msg *reply, struct cistern_error *err)
{
	struct share_extent *out = calloc(PLACES_AT_ONCE, sizeof(*out));
	struct buf places BUF_CLEANUP = { 0 };
	uint64_t next = 0;
	int r = out ? put_places(client, request, out, &places, &next) : -ENOMEM;

	free(out);
	if (r)
		return cistern_error_set(err, r, "places of a shared file: %s", strerror(-r));
	wire_put_u64(reply, WIRE_OFFSET, next);
	wire_put_bytes(reply, WIRE_PAYLOAD, places.data, places.len);
	return 0;
}

static int answer_end(
	struct client *client, const struct wire_msg *request, struct wire_msg *reply, struct cistern_error *err)
{
	char text[CISTERN_ERROR_TEXT_BYTES] = "";
	uint64_t result = get_u64(request, WIRE_RESULT);
	struct manifest_totals totals = { 0 };
	const uint8_t *bytes;
	size_t len;

	wire_get_str(request, WIRE_TEXT, 0, text, sizeof(text));
	if (wire_get_bytes(request, WIRE_TOTALS, 0, &bytes, &len) && manifest_totals_decode(bytes, len, &totals) < 0)
		return cistern_error_set(err, -EBADMSG, "the totals of a drain cannot be read");
	if (result > CISTERN_EXIT_LAST)
		result = CISTERN_EXIT_FAILED;
	if (drain_agent_end(carrier_of(client), client, (enum cistern_exit)result, text, &totals))
		return cistern_error_set(err, -ESTALE, "this connection has no drain session");
	return 0;
}

/* ---- the table */

void ctl_answer(struct client *client, const struct wire_msg *request, struct wire_msg *reply)
{
	static handler_fn *const handlers[] = {
		[WIRE_STATUS_GET] = answer_status,
		[WIRE_FLUSH] = answer_flush,
		[WIRE_WAIT] = answer_wait,
		[WIRE_PAUSE] = answer_pause,
		[WIRE_RESUME] = answer_pause,
		[WIRE_SNAPSHOT] = answer_snapshot,
		[WIRE_CONFIG_GET] = answer_config,
		[WIRE_DRAIN_BEGIN] = answer_begin,
		[WIRE_DRAIN_STEP] = answer_step,
		[WIRE_DRAIN_PROGRESS] = answer_progress,
		[WIRE_DRAIN_ERROR] = answer_error,
		[WIRE_DRAIN_SHARED] = answer_shared,
		[WIRE_DRAIN_FETCH] = answer_fetch,
		[WIRE_DRAIN_FETCHED] = answer_fetched,
		[WIRE_DRAIN_OCCUPIED] = answer_occupied,
		[WIRE_DRAIN_PLACES] = answer_places,
		[WIRE_DRAIN_END] = answer_end,
		[WIRE_AGENT_HELLO] = answer_hello,
	};
	struct cistern_error err = { 0 };
	int r;

	wire_msg_init(reply, WIRE_REPLY);
	if (request->type < sizeof(handlers) / sizeof(handlers[0]) && handlers[request->type])
		r = handlers[request->type](client, request, reply, &err);
	else
		r = cistern_error_set(&err, -ENOSYS,
			"this daemon does not know request %u; it may be older than the tool", request->type);
	if (r) {
		err.code = r;
		wire_reply_error(reply, &err);
	} else {
		wire_put_i64(reply, WIRE_STATUS, 0);
	}
}

void ctl_client_gone(struct client *client)
{
	struct ctl *c = client->ctl;

	drain_agent_gone(carrier_of(client), client);
	if (*client->snapshot) {
		store_unpin(c->opt.store);
		if (store_remove_snapshot(store_path(c->opt.store), client->snapshot))
			log_event(c->opt.log, LOG_LEVEL_WARNING, "snapshot-remove", "name=%s", client->snapshot);
	}
}
