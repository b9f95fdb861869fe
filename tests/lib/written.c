/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "tests/lib/written.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "format/place/place.h"
#include "tests/lib/scratch.h"
#include "tests/lib/tap.h"

#define DOMAIN (1u << 20)

struct pending { /* not committed yet */
	uint64_t off;
	size_t len;
	uint8_t *bytes; /* owned */
	struct pending *next;
};

uint64_t written_draw(struct written *j, uint64_t below)
{
	j->random ^= j->random << 13;
	j->random ^= j->random >> 7;
	j->random ^= j->random << 17;
	return j->random % below;
}

struct state *written_state(struct written *j, unsigned int node)
{
	return store_state(j->store[node]);
}

void written_record(struct written *j, unsigned int node, struct record *rec)
{
	rec->ino = rec->ino ? rec->ino : WRITTEN_INO;
	world_must(store_commit(j->store[node], rec), record_type_name(rec->type));
}

/* ---- the job */

static void adopt_root(struct written *j, unsigned int node)
{
	struct record rec = { .type = RECORD_ADOPT, .ino = STATE_ROOT_INO, .nlink = 2 };
	struct stat st;

	world_must(stat(j->backing, &st), j->backing);
	rec.mode = st.st_mode;
	rec.backing_dev = st.st_dev;
	rec.backing_ino = st.st_ino;
	written_record(j, node, &rec);
}

/* linked: as "other", too. */
static void make_existing(struct written *j, bool linked)
{
	struct record rec = { .type = RECORD_ADOPT, .parent = STATE_ROOT_INO, .name = "f" };
	char path[WRITTEN_PATH + 32], other[WRITTEN_PATH + 32];
	struct stat st;
	int fd;

	j->size = j->existing_size = 1 + written_draw(j, WRITTEN_MAX);
	for (uint64_t i = 0; i < j->size; i++)
		j->model[i] = (uint8_t)(i * 7 + 3);
	snprintf(path, sizeof(path), "%s/f", j->backing);
	fd = open(path, O_CREAT | O_WRONLY, 0644);
	world_must(fd, path);
	world_must(write(fd, j->model, j->size) == (ssize_t)j->size ? 0 : -EIO, path);
	if (linked) {
		snprintf(other, sizeof(other), "%s/other", j->backing);
		world_must(link(path, other), other);
	}
	world_must(fstat(fd, &st), path);
	close(fd);
	rec.mode = st.st_mode;
	rec.nlink = (uint32_t)st.st_nlink;
	rec.size = j->size;
	rec.backing_dev = st.st_dev;
	rec.backing_ino = st.st_ino;
	written_record(j, 0, &rec);
}

static void make_new(struct written *j)
{
	struct record rec = { .type = RECORD_CREATE, .parent = STATE_ROOT_INO, .name = "f", .mode = S_IFREG | 0640 };

	written_record(j, 0, &rec);
}

void written_start_with(struct written *j, uint64_t seed, bool knows)
{
	struct record share = { .type = RECORD_SHARE };
	struct record foreign = {
		.type = RECORD_FOREIGN, .parent = STATE_ROOT_INO, .name = "f", .mode = S_IFREG | 0640
	};

	memset(j, 0, sizeof(*j));
	j->random = seed * 0x9E3779B97F4A7C15ull + 1;
	j->existing = seed % 2;
	snprintf(j->top, sizeof(j->top), "%s/test-drain-shared.XXXXXX", scratch_parent());
	if (!mkdtemp(j->top))
		world_die("mkdtemp", -errno);
	snprintf(j->backing, sizeof(j->backing), "%s/backing", j->top);
	world_must(mkdir(j->backing, 0755), j->backing);
	for (unsigned int n = 0; n < WRITTEN_NODES; n++) {
		struct store_options opt = { .mode = STORE_CREATE_OR_OPEN, .backing = j->backing };
		struct cistern_error err = { 0 };
		struct state_report report;

		snprintf(j->dir[n], sizeof(j->dir[n]), "%s/s%u", j->top, n);
		if (store_open(j->dir[n], &opt, &j->store[n], &report, &err) < 0)
			world_die(err.text, err.code);
		if (store_number(j->store[n], n, WRITTEN_NODES, (const uint8_t *)"sixteen bytes...", &err) < 0)
			world_die(err.text, err.code);
		adopt_root(j, n);
	}
	if (j->existing)
		make_existing(j, seed == WRITTEN_LINKED);
	else
		make_new(j);
	if (knows)
		written_record(j, 0, &share);
	foreign.size = j->size;
	for (unsigned int n = 1; n < WRITTEN_NODES; n++) {
		foreign.seq = 0;
		written_record(j, n, &foreign);
	}
}

void written_start(struct written *j, uint64_t seed)
{
	written_start_with(j, seed, true);
}

void written_end(struct written *j, bool alive)
{
	char command[WRITTEN_PATH + 16];

	for (unsigned int n = 0; alive && n < WRITTEN_NODES; n++)
		store_close(j->store[n]);
	snprintf(command, sizeof(command), "rm -rf '%s'", j->top);
	if (system(command))
		tap_diag("%s is left", j->top);
}

/* ---- writing */

void written_put_at(struct written *j, unsigned int node, uint64_t off, size_t len)
{
	struct pending *w = malloc(sizeof(*w)), **at = &j->writes[node];

	*w = (struct pending){ .off = off, .len = len, .bytes = malloc(len) };
	for (size_t i = 0; i < len; i++)
		w->bytes[i] = (uint8_t)written_draw(j, 256);
	world_must(store_write(j->store[node], WRITTEN_INO, 0, off, w->bytes, len), "write");
	memcpy(j->model + off, w->bytes, len);
	memset(j->owner + off, (int)node + 1, len);
	while (*at)
		at = &(*at)->next;
	*at = w;
}

void written_put(struct written *j, unsigned int node)
{
	size_t len = 1 + written_draw(j, written_draw(j, 3) ? 5000 : 300000);
	uint64_t off = written_draw(j, WRITTEN_MAX - len);

	/* Often it goes on, so that its witness is told of runs, or writes over what was written last. */
	uint64_t how = written_draw(j, 3), from = how == 0 ? off : how == 1 ? j->next[node] : j->last;
	if (from + len <= WRITTEN_MAX)
		off = from;
	j->last = off;
	j->next[node] = off + len;
	written_put_at(j, node, off, len);
}

static void put_extent(struct written *j, unsigned int node, uint32_t to, const struct extent *e)
{
	struct record_piece piece = { .off = e->off,
		.segment_off = e->segment_off,
		.len = e->len,
		.segment = e->segment,
		.crc = e->whole ? e->crc : 0,
		.kind = e->kind,
		.whole = e->whole,
		.time_usec = e->time_usec };
	struct record rec = { .type = RECORD_SHARE_PUT,
		.flags = RECORD_F_TIMED,
		.node = node,
		.stamp = j->stamp,
		.base = j->stamp - 1,
		.pieces = &piece,
		.num_pieces = 1 };

	written_record(j, to, &rec);
}

static uint32_t home_of(const struct extent *e)
{
	return place_domain(WRITTEN_INO, e->off, DOMAIN, WRITTEN_NODES);
}

/* What the witness is told of a node's own domains: as fs/job/commit.c, runs of what was written at about the same time. */
struct run {
	struct extent e; /* len 0: none */
	bool joined;
};

static void end_run(struct written *j, unsigned int node, struct run *run)
{
	if (run->e.len)
		put_extent(j, node, (node + 1) % WRITTEN_NODES, &run->e);
	if (run->joined)
		memset(j->joined[node] + run->e.off, 1, run->e.len);
	*run = (struct run){ .joined = false };
}

static void witness(struct written *j, unsigned int node, struct run *run, const struct extent *e)
{
	if (run->e.len && run->e.kind == e->kind && run->e.off + run->e.len == e->off) {
		run->e.len += e->len;
		run->e.whole = false;
		run->e.time_usec = run->e.time_usec > e->time_usec ? run->e.time_usec : e->time_usec;
		run->joined = true;
	} else {
		end_run(j, node, run);
		run->e = *e;
	}
}

void written_forget(struct written *j, unsigned int node)
{
	for (struct pending *w; (w = j->writes[node]);) {
		j->writes[node] = w->next;
		if (w->off + w->len > j->size)
			j->size = w->off + w->len;
		free(w->bytes);
		free(w);
	}
}

void written_commit(struct written *j, unsigned int node)
{
	struct record done = {
		.type = RECORD_COMMITTED, .upto = state_seq(written_state(j, node)), .stamp = ++j->stamp
	};
	struct record grow = { .type = RECORD_TRUNCATE };
	struct inode home;
	struct run run = { .joined = false };
	struct extent ext[64];
	uint64_t off = 0;
	size_t num;

	while (off != UINT64_MAX) {
		world_must(state_uncommitted(written_state(j, node), WRITTEN_INO, off, ext, 64, &num, &off),
			"uncommitted");
		for (size_t i = 0; i < num; i++) {
			if (ext[i].kind == EXTENT_BACKING)
				continue;
			put_extent(j, node, home_of(&ext[i]), &ext[i]);
			if (home_of(&ext[i]) == node)
				witness(j, node, &run, &ext[i]);
		}
	}
	end_run(j, node, &run);
	written_record(j, node, &done);
	written_forget(j, node);
	world_must(state_inode(written_state(j, 0), WRITTEN_INO, &home), "home");
	grow.size = j->size;
	if (home.size < j->size) /* the home itself may have written more that it has not committed */
		written_record(j, 0, &grow);
}

/* ---- draining */

static int on_step(const struct record *rec, void *arg)
{
	struct written *j = arg;
	struct record copy = *rec;

	copy.seq = 0;
	copy.time_ns = 1;
	return store_commit(j->store[0], &copy);
}

static int on_fetch(unsigned int slot, const struct drain_fetch *ranges, size_t num, void *arg)
{
	struct written *j = arg;
	uint8_t *bytes = j->fetched[slot];
	int r = 0;

	if (slot >= WIRE_FETCH_SLOTS || j->fetching[slot])
		return -EINVAL;
	if (j->before_fetch)
		j->before_fetch(j);
	j->fetching[slot] = true;

	for (size_t i = 0; r == 0 && i < num; i++) {
		struct segment_set *set = store_segments(j->store[ranges[i].node]);

		r = segment_settle(set);
		if (r == 0)
			r = segment_read(set, ranges[i].segment, ranges[i].off, bytes, ranges[i].len);
		bytes += ranges[i].len;
	}
	return r;
}

/* What is in the other slots meanwhile is not touched. */
static int on_fetched(unsigned int slot, const uint8_t **ret, void *arg)
{
	struct written *j = arg;

	if (!j->fetching[slot])
		return -EINVAL;
	j->fetching[slot] = false;
	*ret = j->fetched[slot];
	return 0;
}

static int on_places(const struct drain_places *ask, struct share_extent *out, size_t cap, size_t *ret_num,
	uint64_t *ret_next, struct share_cut *ret_cut, void *arg)
{
	struct written *j = arg;
	struct state *st = written_state(j, j->node);
	int r = state_share_extents(st, ask->ino, ask->off, ask->len, out, cap, ret_num, ret_next);

	return r < 0 ? r : state_share_newest_cut(st, ask->ino, &ret_cut->size, &ret_cut->stamp);
}

static void on_late(const char *path, const char *text, void *arg)
{
	struct written *j = arg;

	j->late++;
	tap_diag("late: %s: %s", path, text);
}

static int on_shared(const struct wire_shared *f, int status, void *arg)
{
	struct written *j = arg;

	j->errors += status != 0 && status != -EBUSY;
	if (status == -EBUSY) {
		j->shared.failed = true;
		j->shared.failed_errno = EBUSY;
	}
	if (j->part != WIRE_PART_BEGIN) {
		j->shared.crc_sum ^= f->crc_sum;
		j->shared.written += f->written;
		return 0;
	}
	if (j->refuses)
		return -EBUSY;
	j->num_shared++;
	j->shared = *f;
	j->shared.stamp = j->stamp;
	snprintf(j->shared_path, sizeof(j->shared_path), "%s", f->path);
	j->shared.path = j->shared_path;
	j->shared.shown = (char *)"f";
	return 0;
}

void written_error(const char *path, int code, const char *text, void *arg)
{
	struct written *j = arg;

	j->errors++;
	snprintf(j->said, sizeof(j->said), "%s", text);
	tap_diag("%s: %s (%d)", path, text, code);
}

static int on_occupied(const struct record *rec, void *arg)
{
	(void)rec, (void)arg;
	return -EBUSY;
}

void written_part(struct written *j, unsigned int node, enum wire_part part, uint64_t buffer)
{
	struct drain_options opt = { .node = node,
		.num_nodes = WRITTEN_NODES,
		.domain_size = DOMAIN,
		.part = part,
		.cautious = j->cautious,
		.in_place = true,
		.base_dirfd = -1,
		.verify = DRAIN_VERIFY_READ,
		.buffer_bytes = buffer,
		.watcher = { .step = on_step,
			.fetch = on_fetch,
			.fetched = on_fetched,
			.places = on_places,
			.late = on_late,
			.shared = on_shared,
			.error = written_error,
			.arg = j } };
	struct store_options how = { .mode = STORE_READ_ONLY };
	struct cistern_error err = { 0 };
	struct state_report report;
	struct drain_result res;
	char name[64];

	if (j->num_shared)
		world_must(wire_shared_add(&opt.shared, &j->shared), "list");
	opt.watcher.occupied = j->taken ? on_occupied : NULL;
	j->part = part;
	j->node = node;
	world_must(segment_settle(store_segments(j->store[node])), "settle");
	if (store_snapshot(j->store[node], name, sizeof(name), &opt.upto, &err) < 0)
		world_die(err.text, err.code);
	how.snapshot = name;
	if (store_open(j->dir[node], &how, &opt.store, &report, &err) < 0)
		world_die(err.text, err.code);
	opt.to_dirfd = open(j->backing, O_RDONLY | O_DIRECTORY);
	world_must(opt.to_dirfd, j->backing);
	if (drain_run(&opt, &res, &err) < 0 || res.totals.failed > 0) {
		j->errors++;
		tap_diag("part %d on node %u: %s", (int)part, node, err.text);
	}
	close(opt.to_dirfd);
	wire_shared_free(&opt.shared);
	store_abandon(opt.store);
	store_remove_snapshot(j->dir[node], name);
}

void written_drain(struct written *j)
{
	static const enum wire_part parts[] = { WIRE_PART_BEGIN, WIRE_PART_DATA, WIRE_PART_HEAD, WIRE_PART_FILES };
	uint64_t buffer = (1 + written_draw(j, 8)) << 20;

	for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++)
		for (unsigned int node = 0; node < WRITTEN_NODES; node++)
			if (node == 0 || parts[i] == WIRE_PART_DATA || parts[i] == WIRE_PART_HEAD)
				written_part(j, node, parts[i], buffer);
}

bool written_is_lost(const struct written *j, uint64_t i, unsigned int lost)
{
	return lost && (j->owner[i] == lost || j->joined[lost - 1][i]);
}

bool written_is_model(struct written *j, const char *dir, unsigned int lost)
{
	char path[WRITTEN_PATH + 32];
	uint8_t *got = malloc(WRITTEN_MAX + 1);
	ssize_t n;
	bool same;
	int fd;

	snprintf(path, sizeof(path), "%s/f", dir);
	fd = open(path, O_RDONLY);
	n = fd < 0 ? -1 : read(fd, got, WRITTEN_MAX + 1);
	same = n == (ssize_t)j->size;
	if (!same)
		tap_diag("%zd bytes and not %" PRIu64, n, j->size);
	for (uint64_t i = 0; same && i < j->size; i++)
		if (got[i] != j->model[i] && !written_is_lost(j, i, lost)) {
			tap_diag("first difference at %" PRIu64, i);
			same = false;
		}
	if (fd >= 0)
		close(fd);
	free(got);
	return same;
}
