/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Two stores of a job wrote one file, in random overlapping pieces with commits in between; it is drained in parts, each
 * domain by its home, and must be what a model holds in which commits are applied in the order of their stamps. New files
 * and updates of existing ones; with buffers of several sizes. Then the same from dead stores: with what was never
 * committed, into another directory and in place, and with one store lost.
 *
 *   test-drain-shared [seeds [first seed]]
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "format/place/place.h"
#include "format/wire/wire.h"
#include "format/store/hosts.h"
#include "format/store/store.h"
#include "mpi-agent/command/recover_run.h"
#include "mpi-agent/command/recover_set.h"
#include "format/base/crc32c.h"
#include "mpi-agent/replay/drain.h"
#include "tests/lib/scratch.h"
#include "tests/lib/tap.h"
#include "tests/lib/world.h"

#define NODES       3u
#define FILE_MAX    (6u << 20)
#define DOMAIN      (1u << 20)
#define INO         100u
#define PATH_MAX_   512
#define SEED_LINKED 99u /* a file that was there before the job, under two names */

struct write { /* not committed yet */
	uint64_t off;
	size_t len;
	uint8_t *bytes; /* owned */
	struct write *next;
};

struct job {
	char top[PATH_MAX_], backing[PATH_MAX_ + 16], dir[NODES][PATH_MAX_ + 16];
	struct store *store[NODES];
	struct write *writes[NODES];
	uint64_t stamp, size, existing_size, random, last, next[NODES];
	uint8_t model[FILE_MAX];
	uint8_t owner[FILE_MAX];         /* who wrote the byte: node + 1 */
	uint8_t joined[NODES][FILE_MAX]; /* lies in what a node's witness was told of as one */
	bool refuses;                    /* what is to be begun */
	bool taken;                      /* its name is another node's in the backing directory */
	bool existing, cautious;
	/* what the home reported */
	struct wire_shared shared;
	char shared_path[PATH_MAX_];
	unsigned int num_shared, errors;
	enum wire_part part;
	uint8_t fetched[WIRE_FETCH_SLOTS][WIRE_FETCH_BYTES];
	bool fetching[WIRE_FETCH_SLOTS];
};

static uint64_t draw(struct job *j, uint64_t below)
{
	j->random ^= j->random << 13;
	j->random ^= j->random >> 7;
	j->random ^= j->random << 17;
	return j->random % below;
}

static struct state *state_of(struct job *j, unsigned int node)
{
	return store_state(j->store[node]);
}

static void commit(struct job *j, unsigned int node, struct record *rec)
{
	rec->ino = rec->ino ? rec->ino : INO;
	world_must(store_commit(j->store[node], rec), record_type_name(rec->type));
}

/* ---- the job */

static void adopt_root(struct job *j, unsigned int node)
{
	struct record rec = { .type = RECORD_ADOPT, .ino = STATE_ROOT_INO, .nlink = 2 };
	struct stat st;

	world_must(stat(j->backing, &st), j->backing);
	rec.mode = st.st_mode;
	rec.backing_dev = st.st_dev;
	rec.backing_ino = st.st_ino;
	commit(j, node, &rec);
}

/* linked: as "other", too. */
static void make_existing(struct job *j, bool linked)
{
	struct record rec = { .type = RECORD_ADOPT, .parent = STATE_ROOT_INO, .name = "f" };
	char path[PATH_MAX_ + 32], other[PATH_MAX_ + 32];
	struct stat st;
	int fd;

	j->size = j->existing_size = 1 + draw(j, FILE_MAX);
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
	commit(j, 0, &rec);
}

static void make_new(struct job *j)
{
	struct record rec = { .type = RECORD_CREATE, .parent = STATE_ROOT_INO, .name = "f", .mode = S_IFREG | 0640 };

	commit(j, 0, &rec);
}

/* knows: the home does, that others write the file. */
static void job_start_with(struct job *j, uint64_t seed, bool knows)
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
	for (unsigned int n = 0; n < NODES; n++) {
		struct store_options opt = { .mode = STORE_CREATE_OR_OPEN, .backing = j->backing };
		struct cistern_error err = { 0 };
		struct state_report report;

		snprintf(j->dir[n], sizeof(j->dir[n]), "%s/s%u", j->top, n);
		if (store_open(j->dir[n], &opt, &j->store[n], &report, &err) < 0)
			world_die(err.text, err.code);
		if (store_number(j->store[n], n, NODES, (const uint8_t *)"sixteen bytes...", &err) < 0)
			world_die(err.text, err.code);
		adopt_root(j, n);
	}
	if (j->existing)
		make_existing(j, seed == SEED_LINKED);
	else
		make_new(j);
	if (knows)
		commit(j, 0, &share);
	foreign.size = j->size;
	for (unsigned int n = 1; n < NODES; n++) {
		foreign.seq = 0;
		commit(j, n, &foreign);
	}
}

static void job_start(struct job *j, uint64_t seed)
{
	job_start_with(j, seed, true);
}

static void job_end(struct job *j, bool alive)
{
	char command[PATH_MAX_ + 16];

	for (unsigned int n = 0; alive && n < NODES; n++)
		store_close(j->store[n]);
	snprintf(command, sizeof(command), "rm -rf '%s'", j->top);
	if (system(command))
		tap_diag("%s is left", j->top);
}

/* ---- writing */

static void do_write(struct job *j, unsigned int node)
{
	size_t len = 1 + draw(j, draw(j, 3) ? 5000 : 300000);
	uint64_t off = draw(j, FILE_MAX - len);
	struct write *w = malloc(sizeof(*w)), **at = &j->writes[node];

	/* Often it goes on, so that its witness is told of runs, or writes over what was written last. */
	uint64_t how = draw(j, 3), from = how == 0 ? off : how == 1 ? j->next[node] : j->last;
	if (from + len <= FILE_MAX)
		off = from;
	j->last = off;
	j->next[node] = off + len;
	*w = (struct write){ .off = off, .len = len, .bytes = malloc(len) };
	for (size_t i = 0; i < len; i++)
		w->bytes[i] = (uint8_t)draw(j, 256);
	world_must(store_write(j->store[node], INO, 0, off, w->bytes, len), "write");
	memcpy(j->model + off, w->bytes, len);
	memset(j->owner + off, (int)node + 1, len);
	while (*at)
		at = &(*at)->next;
	*at = w;
}

static void put_extent(struct job *j, unsigned int node, uint32_t to, const struct extent *e)
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

	commit(j, to, &rec);
}

static uint32_t home_of(const struct extent *e)
{
	return place_domain(INO, e->off, DOMAIN, NODES);
}

/* What the witness is told of a node's own domains: as fs/job/commit.c, runs of what was written at about the same time. */
struct run {
	struct extent e; /* len 0: none */
	bool joined;
};

static void end_run(struct job *j, unsigned int node, struct run *run)
{
	if (run->e.len)
		put_extent(j, node, (node + 1) % NODES, &run->e);
	if (run->joined)
		memset(j->joined[node] + run->e.off, 1, run->e.len);
	*run = (struct run){ .joined = false };
}

static void witness(struct job *j, unsigned int node, struct run *run, const struct extent *e)
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

static void apply_writes(struct job *j, unsigned int node)
{
	for (struct write *w; (w = j->writes[node]);) {
		j->writes[node] = w->next;
		if (w->off + w->len > j->size)
			j->size = w->off + w->len;
		free(w->bytes);
		free(w);
	}
}

static void do_commit(struct job *j, unsigned int node)
{
	struct record done = { .type = RECORD_COMMITTED, .upto = state_seq(state_of(j, node)), .stamp = ++j->stamp };
	struct record grow = { .type = RECORD_TRUNCATE };
	struct inode home;
	struct run run = { .joined = false };
	struct extent ext[64];
	uint64_t off = 0;
	size_t num;

	while (off != UINT64_MAX) {
		world_must(state_uncommitted(state_of(j, node), INO, off, ext, 64, &num, &off), "uncommitted");
		for (size_t i = 0; i < num; i++) {
			if (ext[i].kind == EXTENT_BACKING)
				continue;
			put_extent(j, node, home_of(&ext[i]), &ext[i]);
			if (home_of(&ext[i]) == node)
				witness(j, node, &run, &ext[i]);
		}
	}
	end_run(j, node, &run);
	commit(j, node, &done);
	apply_writes(j, node);
	world_must(state_inode(state_of(j, 0), INO, &home), "home");
	grow.size = j->size;
	if (home.size < j->size) /* the home itself may have written more that it has not committed */
		commit(j, 0, &grow);
}

/* ---- draining */

static int on_step(const struct record *rec, void *arg)
{
	struct job *j = arg;
	struct record copy = *rec;

	copy.seq = 0;
	copy.time_ns = 1;
	return store_commit(j->store[0], &copy);
}

static int on_fetch(unsigned int slot, const struct drain_fetch *ranges, size_t num, void *arg)
{
	struct job *j = arg;
	uint8_t *bytes = j->fetched[slot];
	int r = 0;

	if (slot >= WIRE_FETCH_SLOTS || j->fetching[slot])
		return -EINVAL;
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
	struct job *j = arg;

	if (!j->fetching[slot])
		return -EINVAL;
	j->fetching[slot] = false;
	*ret = j->fetched[slot];
	return 0;
}

static int on_shared(const struct wire_shared *f, int status, void *arg)
{
	struct job *j = arg;

	j->errors += status != 0;
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

static void on_error(const char *path, int code, const char *text, void *arg)
{
	struct job *j = arg;

	j->errors++;
	tap_diag("%s: %s (%d)", path, text, code);
}

static int on_occupied(const struct record *rec, void *arg)
{
	(void)rec, (void)arg;
	return -EBUSY;
}

static void run_part(struct job *j, unsigned int node, enum wire_part part, uint64_t buffer)
{
	struct drain_options opt = { .node = node,
		.num_nodes = NODES,
		.domain_size = DOMAIN,
		.part = part,
		.cautious = j->cautious,
		.in_place = true,
		.base_dirfd = -1,
		.verify = DRAIN_VERIFY_READ,
		.buffer_bytes = buffer,
		.shared = &j->shared,
		.num_shared = j->num_shared,
		.watcher = { .step = on_step,
			.fetch = on_fetch,
			.fetched = on_fetched,
			.shared = on_shared,
			.error = on_error,
			.arg = j } };
	struct store_options how = { .mode = STORE_READ_ONLY };
	struct cistern_error err = { 0 };
	struct state_report report;
	struct drain_result res;
	char name[64];

	opt.watcher.occupied = j->taken ? on_occupied : NULL;
	j->part = part;
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
	store_abandon(opt.store);
	store_remove_snapshot(j->dir[node], name);
}

static void drain(struct job *j)
{
	static const enum wire_part parts[] = { WIRE_PART_BEGIN, WIRE_PART_DATA, WIRE_PART_HEAD, WIRE_PART_FILES };
	uint64_t buffer = (1 + draw(j, 8)) << 20;

	for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++)
		for (unsigned int node = 0; node < NODES; node++)
			if (node == 0 || parts[i] == WIRE_PART_DATA || parts[i] == WIRE_PART_HEAD)
				run_part(j, node, parts[i], buffer);
}

/* Of a lost store: who had it wrote this byte, or something beside it that its witness was told of together with it. */
static bool is_lost(const struct job *j, uint64_t i, unsigned int lost)
{
	return lost && (j->owner[i] == lost || j->joined[lost - 1][i]);
}

/* The file in dir: 0 when it is the model; bytes that may be lost with a store (0: none) are not looked at. */
static bool is_model(struct job *j, const char *dir, unsigned int lost)
{
	char path[PATH_MAX_ + 32];
	uint8_t *got = malloc(FILE_MAX + 1);
	ssize_t n;
	bool same;
	int fd;

	snprintf(path, sizeof(path), "%s/f", dir);
	fd = open(path, O_RDONLY);
	n = fd < 0 ? -1 : read(fd, got, FILE_MAX + 1);
	same = n == (ssize_t)j->size;
	if (!same)
		tap_diag("%zd bytes and not %" PRIu64, n, j->size);
	for (uint64_t i = 0; same && i < j->size; i++)
		if (got[i] != j->model[i] && !is_lost(j, i, lost)) {
			tap_diag("first difference at %" PRIu64, i);
			same = false;
		}
	if (fd >= 0)
		close(fd);
	free(got);
	return same;
}

/*
 * Bit by bit from the polynomial: a new file's bytes; of one that was there before, what was written, in its place. There must be
 * no byte that was written and is not counted.
 */
static void check_checksum(struct job *j, uint64_t seed)
{
	uint32_t crc = UINT32_MAX;
	uint64_t bytes = 0;

	for (uint64_t i = 0; i < j->size; i++) {
		crc ^= j->existing && !j->owner[i] ? 0 : j->model[i];
		for (int k = 0; k < 8; k++)
			crc = crc >> 1 ^ (crc & 1 ? 0x82f63b78u : 0);
		bytes += j->owner[i] != 0;
	}
	ok(crc32c_of_parts(j->shared.crc_sum, j->shared.size) == ~crc, "checksum of the %s file, seed %" PRIu64,
		j->existing ? "existing" : "new", seed);
	ok(j->shared.written >= bytes && bytes > 0, "all bytes are counted, seed %" PRIu64, seed);
}

/* ---- dead stores */

#define LOST_HOST "lost-host"

static void note_hosts(struct job *j)
{
	const char *hosts[NODES] = { "host-0", LOST_HOST, "host-2" };

	for (unsigned int n = 0; n < NODES; n++)
		world_must(hosts_note(j->store[n], hosts, NODES), HOSTS_FILE);
}

/* Of all the ranges that the manifest's log lists as missing, bytes; UINT64_MAX: one is not said to be the lost node's. */
static uint64_t listed_missing(struct manifest *m)
{
	static const char length[] = "\"length\":", node[] = ",\"node\":\"node 1 (host " LOST_HOST ")\"}";
	struct buf log BUF_CLEANUP = { 0 };
	uint64_t bytes = 0;

	world_must(manifest_read(m, 0, SIZE_MAX, &log), "log");
	buf_bytes(&log, "", 1);
	for (char *line = strtok((char *)log.data, "\n"); line; line = strtok(NULL, "\n")) {
		if (strstr(line, "\"state\":\"overlap\""))
			continue;
		for (char *at = line; (at = strstr(at, length));) {
			bytes += strtoull(at + strlen(length), &at, 10);
			if (strncmp(at, node, strlen(node)) != 0)
				return UINT64_MAX;
		}
	}
	return bytes;
}

/* What is lost is that of node lost - 1; 0: nothing is. */
static int recover(struct job *j, const char *to, unsigned int lost, struct manifest_totals *ret)
{
	struct store_options how = { .mode = STORE_READ_ONLY };
	struct drain_options opt = { .in_place = strcmp(to, j->backing) == 0,
		.base_dirfd = -1,
		.verify = DRAIN_VERIFY_READ,
		.buffer_bytes = 2u << 20,
		.watcher = { .error = on_error, .arg = j } };
	struct recover_set set = { 0 };
	struct cistern_error err = { 0 };
	struct state_report report;
	int r = 0;

	for (unsigned int n = 0; r == 0 && n < NODES; n++) {
		struct store *s;

		if (n + 1 == lost)
			continue;
		r = store_open(j->dir[n], &how, &s, &report, &err);
		if (r == 0)
			r = recover_set_add(&set, s, &err);
	}
	opt.to_dirfd = open(to, O_RDONLY | O_DIRECTORY);
	if (!opt.in_place)
		opt.base_dirfd = open(j->backing, O_RDONLY | O_DIRECTORY);
	if (r == 0)
		r = recover_set_merge(&set, opt.in_place ? opt.to_dirfd : opt.base_dirfd, &err);
	if (r == 0)
		r = manifest_open(NULL, &opt.manifest, &err);
	if (r == 0)
		r = recover_run(&set, &(struct team){ .size = 1 }, &opt, ret, &err);
	if (r == 0)
		is_u64(listed_missing(opt.manifest), ret->missing_bytes,
			"the manifest says whose store had what is missing");
	manifest_close(opt.manifest);
	if (r < 0)
		tap_diag("recover: %s", err.text);
	close(opt.to_dirfd);
	if (opt.base_dirfd >= 0)
		close(opt.base_dirfd);
	recover_set_close(&set);
	return r;
}

/* Bytes that node 1 wrote, in whatever domain: all of them are known to the other; most: with what may be lost as well. */
static uint64_t known_lost(const struct job *j, bool most)
{
	uint64_t n = 0;

	for (uint64_t i = 0; i < j->size; i++)
		n += most ? is_lost(j, i, 2) : j->owner[i] == 2;
	return n;
}

static void test_dead(struct job *j, uint64_t seed)
{
	char out[PATH_MAX_ + 16], part[PATH_MAX_ + 16];
	struct manifest_totals res;
	uint64_t lost, most, missing;

	for (unsigned int i = 0; i < 40; i++) {
		do_write(j, (unsigned int)draw(j, NODES));
		if (draw(j, 4) == 0)
			do_commit(j, (unsigned int)draw(j, NODES));
	}
	snprintf(out, sizeof(out), "%s/out", j->top);
	snprintf(part, sizeof(part), "%s/part", j->top);
	world_must(mkdir(out, 0755), out);
	world_must(mkdir(part, 0755), part);
	if (seed % 3) /* else all is committed, and it is known what is lost with a store */
		for (unsigned int n = 0; n < NODES; n++)
			apply_writes(j, n);
	else
		for (unsigned int n = 0; n < NODES; n++)
			do_commit(j, n);
	lost = known_lost(j, false);
	most = known_lost(j, true);
	note_hosts(j);
	for (unsigned int n = 0; n < NODES; n++)
		store_abandon(j->store[n]);
	ok(recover(j, out, 0, &res) == 0 && res.failed == 0 && res.missing_bytes == 0 && is_model(j, out, 0),
		"dead stores, elsewhere, seed %" PRIu64, seed);
	if (seed % 3 == 0) {
		ok(recover(j, part, 2, &res) == 0 && res.failed == 0 && is_model(j, part, 2),
			"one store lost, seed %" PRIu64, seed);
		missing = res.missing_bytes;
		ok(missing >= lost && missing <= most, "what is known to be lost, and little more: %" PRIu64,
			missing - lost);
		ok(recover(j, j->backing, 2, &res) == 0 && res.failed == 0, "the same in place, seed %" PRIu64, seed);
		is_u64(res.missing_bytes, missing, "of which the same is missing");
	}
	ok(recover(j, j->backing, 0, &res) == 0 && res.failed == 0 && is_model(j, j->backing, 0),
		"dead stores, in place, seed %" PRIu64, seed);
	ok(recover(j, j->backing, 0, &res) == 0 && res.failed == 0 && is_model(j, j->backing, 0),
		"and once more, seed %" PRIu64, seed);
}

static void test(struct job *j, uint64_t seed)
{
	unsigned int rounds;
	struct inode in;

	job_start(j, seed);
	rounds = 5 + (unsigned int)draw(j, 60);
	for (unsigned int i = 0; i < rounds; i++) {
		unsigned int node = (unsigned int)draw(j, NODES);

		do_write(j, node);
		if (draw(j, 4) == 0)
			do_commit(j, (unsigned int)draw(j, NODES));
	}
	for (unsigned int node = 0; node < NODES; node++)
		if (j->writes[node])
			do_commit(j, node);
	drain(j);
	ok(j->num_shared == 1 && j->errors == 0, "drained without complaint, seed %" PRIu64, seed);
	ok(is_model(j, j->backing, 0), "%s file is what was committed, seed %" PRIu64, j->existing ? "existing" : "new",
		seed);
	check_checksum(j, seed);
	ok(state_inode(state_of(j, 0), INO, &in) == 0 &&
			!(in.flags & (INODE_NEW | INODE_DIRTY_DATA | INODE_DIRTY_META)),
		"it is clean, seed %" PRIu64, seed);
	job_end(j, true);
	job_start(j, seed);
	test_dead(j, seed);
	job_end(j, false);
}

/* What the home has written and not committed has not been carried: it stays, also when it has never committed anything. */
static void test_uncommitted(struct job *j)
{
	struct extent ext[2];
	uint64_t next;
	size_t num = 0;

	job_start(j, 2);
	do_write(j, 1);
	do_commit(j, 1);
	do_write(j, 0);
	drain(j);
	is_u64(j->errors, 0, "a file that its home has written to, and not committed, is drained");
	ok(state_uncommitted(state_of(j, 0), INO, 0, ext, 2, &num, &next) == 0 && num > 0,
		"what was not committed stays there");
	apply_writes(j, 0);
	job_end(j, true);
}

/* A node is not there: what it may have in the backing directory is not replaced, and what wants the place waits. */
static void test_cautious(struct job *j)
{
	struct record move = { .type = RECORD_RENAME,
		.from_parent = STATE_ROOT_INO,
		.from_name = "f",
		.parent = STATE_ROOT_INO,
		.name = "g" };
	char path[PATH_MAX_ + 32], got[8] = "";
	int fd;

	job_start(j, 1);
	commit(j, 0, &move);
	snprintf(path, sizeof(path), "%s/g", j->backing);
	fd = open(path, O_CREAT | O_RDWR, 0600);
	world_must(fd, path);
	world_must(write(fd, "other", 5) == 5 ? 0 : -EIO, path);
	close(fd);
	j->cautious = true;
	run_part(j, 0, WIRE_PART_PARK, 2u << 20);
	run_part(j, 0, WIRE_PART_FILES, 2u << 20);
	fd = open(path, O_RDONLY);
	ok(j->errors > 0, "a file that wants the place of an unknown one is complained of");
	ok(fd >= 0 && read(fd, got, sizeof(got)) == 5 && memcmp(got, "other", 5) == 0,
		"and the unknown one is still there");
	close(fd);
	j->cautious = false;
	j->errors = 0;
	run_part(j, 0, WIRE_PART_FILES, 2u << 20);
	is_u64(j->errors, 0, "with all nodes there it is placed");
	job_end(j, true);
}

static unsigned int num_files(const char *dir)
{
	unsigned int num = 0;
	DIR *d = opendir(dir);

	world_must(d ? 0 : -errno, dir);
	for (const struct dirent *e; (e = readdir(d));)
		num += e->d_name[0] != '.' || strlen(e->d_name) > 2;
	closedir(d);
	return num;
}

/* A file that is not to be drained now, or that is removed while it is, leaves nothing in the backing directory. */
static void test_removed(struct job *j)
{
	struct record gone = { .type = RECORD_UNLINK, .parent = STATE_ROOT_INO, .name = "f" };
	char path[PATH_MAX_ + 32];
	int fd;

	job_start(j, 2);
	do_write(j, 1);
	do_commit(j, 1);
	j->refuses = true;
	run_part(j, 0, WIRE_PART_BEGIN, 2u << 20);
	ok(j->errors == 0 && num_files(j->backing) == 0, "of a file that may not be drained now nothing is left");
	j->refuses = false;
	run_part(j, 0, WIRE_PART_BEGIN, 2u << 20);
	run_part(j, 0, WIRE_PART_DATA, 2u << 20);
	is_u64(num_files(j->backing), 1, "a file is begun");
	j->shared.failed = true;
	run_part(j, 0, WIRE_PART_FILES, 2u << 20);
	ok(j->errors > 0 && num_files(j->backing) == 0, "of one that a node could not write nothing is left");
	j->shared.failed = false;
	j->num_shared = j->errors = 0;
	run_part(j, 0, WIRE_PART_BEGIN, 2u << 20);
	snprintf(path, sizeof(path), "%s/f", j->backing);
	fd = open(path, O_CREAT | O_RDWR, 0600);
	world_must(fd, path);
	close(fd);
	j->taken = true;
	run_part(j, 0, WIRE_PART_FILES, 2u << 20);
	ok(j->errors == 0 && num_files(j->backing) == 1,
		"nor of one whose name is taken, so that it waits for the next session");
	world_must(unlink(path), path);
	j->taken = false;
	j->num_shared = 0;
	run_part(j, 0, WIRE_PART_BEGIN, 2u << 20);
	commit(j, 0, &gone);
	run_part(j, 0, WIRE_PART_FILES, 2u << 20);
	ok(j->errors == 0 && num_files(j->backing) == 0, "of one that is removed meanwhile neither");
	job_end(j, true);
}

/* The backing file under this name is what it was before anybody wrote. */
static bool is_untouched(const struct job *j, const char *name)
{
	char path[PATH_MAX_ + 32];
	uint8_t byte = 0;
	uint64_t i = 0;
	int fd;

	snprintf(path, sizeof(path), "%s/%s", j->backing, name);
	fd = open(path, O_RDONLY);
	while (fd >= 0 && read(fd, &byte, 1) == 1 && byte == (uint8_t)(i * 7 + 3))
		i++;
	close(fd);
	return i > 0 && i == j->existing_size;
}

/* As a living home notes each commit, whether the file grows by it or not. */
static void write_elsewhere(struct job *j)
{
	struct record noted = { .type = RECORD_TRUNCATE };

	do_write(j, 1);
	do_commit(j, 1);
	noted.size = j->size;
	commit(j, 0, &noted);
}

/* A name that goes takes nothing along of what other nodes have written to the file: neither if it has another one in the mount... */
static void test_name_removed(struct job *j)
{
	struct record more = { .type = RECORD_LINK, .parent = STATE_ROOT_INO, .name = "g" };
	struct record gone = { .type = RECORD_UNLINK, .parent = STATE_ROOT_INO, .name = "g" };
	struct inode in;

	job_start(j, 1);
	commit(j, 0, &more);
	run_part(j, 0, WIRE_PART_FILES, 2u << 20);
	is_u64(num_files(j->backing), 2, "a file has two names");
	write_elsewhere(j);
	commit(j, 0, &gone);
	run_part(j, 0, WIRE_PART_REMOVE, 2u << 20);
	ok(j->errors == 0 && num_files(j->backing) == 1, "it loses one, after another node has written to it");
	ok(is_untouched(j, "f"), "that is not written to it as if all were its home's");
	ok(state_inode(state_of(j, 0), INO, &in) == 0 && in.flags & INODE_DIRTY_DATA, "and not taken for drained");
	drain(j);
	ok(j->errors == 0 && is_model(j, j->backing, 0), "the next session writes it");
	job_end(j, true);
}

/* ... nor if it has one that the mount does not know. */
static void test_unseen_name(struct job *j)
{
	struct record gone = { .type = RECORD_UNLINK, .parent = STATE_ROOT_INO, .name = "f" };
	struct inode in;

	job_start(j, SEED_LINKED);
	write_elsewhere(j);
	commit(j, 0, &gone);
	run_part(j, 0, WIRE_PART_REMOVE, 2u << 20);
	ok(j->errors > 0, "that a file's bytes have no place any more is complained of");
	ok(is_untouched(j, "other"), "its other name shows what it did");
	ok(state_inode(state_of(j, 0), INO, &in) == 0 && in.flags & INODE_DIRTY_DATA, "the bytes stay in the stores");
	job_end(j, true);
}

/* ---- what only some stores know */

#define SOME 5000u

/* A node writes n bytes of these from off on. */
static void put_bytes(struct job *j, unsigned int node, uint64_t off, size_t len, uint8_t byte)
{
	uint8_t bytes[SOME];

	memset(bytes, byte, len);
	world_must(store_write(j->store[node], INO, 0, off, bytes, len), "write");
	memset(j->model + off, byte, len);
	j->size = j->size > off + len ? j->size : off + len;
}

/* A map, and the layer or the file of that node, as it does it when it hears of it. */
static void cut_at(struct job *j, unsigned int node, uint64_t size, uint64_t stamp)
{
	struct record cut = { .type = RECORD_SHARE_CUT, .size = size, .stamp = stamp };
	struct record end = { .type = RECORD_TRUNCATE, .size = size };

	commit(j, node, &cut);
	commit(j, node, &end);
}

static bool recovers(struct job *j)
{
	char out[PATH_MAX_ + 64];
	struct manifest_totals res;
	int r;

	snprintf(out, sizeof(out), "%s/out", j->top);
	world_must(mkdir(out, 0755), out);
	r = recover(j, out, 0, &res);
	if (r == 0 && res.failed == 0 && res.missing_bytes == 0 && is_model(j, out, 0))
		r = recover(j, j->backing, 0, &res);
	else
		r = -EIO;
	return r == 0 && res.failed == 0 && res.missing_bytes == 0 && is_model(j, j->backing, 0);
}

/*
 * A cut that one store alone knows: the others have not heard of it, or forgotten it with their power. What comes before it is gone, wherever it was;
 * what was committed behind it stays. The file is as long as its home says, and what is between shows zeros.
 */
static void test_lone_cut(struct job *j, unsigned int knows)
{
	struct record longer = { .type = RECORD_TRUNCATE };
	uint64_t stamp;

	job_start(j, 2);
	for (unsigned int n = 0; n < NODES; n++) {
		put_bytes(j, n, 1000 * n, 1000, (uint8_t)(n + 1));
		do_commit(j, n);
	}
	stamp = ++j->stamp;
	cut_at(j, knows, 500, stamp);
	memset(j->model + 500, 0, 2500);
	put_bytes(j, knows, 2500, 100, 9);
	do_commit(j, knows);
	j->size = 3000; /* its home has not forgotten the cut, but never heard of it: no power was lost there */
	if (knows == 0) {
		longer.size = j->size;
		commit(j, 0, &longer);
	}
	for (unsigned int n = 0; n < NODES; n++)
		store_abandon(j->store[n]);
	ok(recovers(j), "a cut that only the store of node %u knows", knows);
	job_end(j, false);
}

/*
 * A drain has carried all; node 1 has not dropped what it had written, node 2 has, which had written over that. Not that, nor what it told of it, comes back.
 */
static void test_lone_drop(struct job *j, bool map)
{
	struct record drained = { .type = RECORD_DRAINED, .flags = RECORD_F_TIMED };
	struct record layer = { .type = RECORD_DRAINED };
	struct record drop = { .type = RECORD_SHARE_DROP, .flags = RECORD_F_TIMED };

	job_start(j, 2);
	put_bytes(j, 0, 0, 100, 1);
	do_commit(j, 0);
	put_bytes(j, 1, 0, 3000, 2);
	do_commit(j, 1);
	put_bytes(j, 2, 1000, 1000, 3);
	do_commit(j, 2);
	drained.drop_usec = drop.drop_usec = (uint64_t)clock_now(state_clock(state_of(j, 2))) / 1000;
	for (unsigned int n = 0; n < NODES; n++)
		clock_heard(state_clock(state_of(j, n)), (int64_t)(drop.drop_usec + 1) * 1000);
	drained.stamp = drop.stamp = j->stamp;
	drained.upto = state_seq(state_of(j, 0));
	layer.upto = state_seq(state_of(j, 2));
	drain(j);
	is_u64(j->errors, 0, "all is drained");
	drained.size = j->size;
	commit(j, 0, &drained);
	if (map)
		commit(j, 0, &drop);
	commit(j, 2, &layer);
	put_bytes(j, 1, 10, 20, 4);
	for (unsigned int n = 0; n < NODES; n++)
		store_abandon(j->store[n]);
	ok(recovers(j), "what was drained does not come back from a store that has forgotten it");
	job_end(j, false);
}

/* The home has forgotten with its power that others write the file; it has made it, and that is all. */
static void test_unknown_writers(struct job *j)
{
	job_start_with(j, 2, false);
	put_bytes(j, 1, 0, 3000, 2);
	do_commit(j, 1);
	for (unsigned int n = 0; n < NODES; n++)
		store_abandon(j->store[n]);
	ok(recovers(j), "what others wrote to a file whose home does not know of them any more");
	job_end(j, false);
}

/* A file's name was given to another one's of another home, and one of both stores has not heard, or has forgotten. */
static void test_name_twice(struct job *j, unsigned int winner)
{
	char out[PATH_MAX_ + 64], path[PATH_MAX_ + 80];
	struct manifest_totals res;
	struct stat st;

	job_start(j, 2);
	for (unsigned int n = 0; n < NODES; n++) {
		struct record made = { .type = RECORD_CREATE, .parent = STATE_ROOT_INO, .name = "twice" };

		made.ino = place_first_ino(n) + 50;
		made.mode = S_IFREG | (n == winner ? 0600 : 0640);
		made.stamp = n == winner ? 900 : 100 + n;
		commit(j, n, &made);
		store_abandon(j->store[n]);
	}
	snprintf(out, sizeof(out), "%s/out", j->top);
	world_must(mkdir(out, 0755), out);
	for (const char *to = out; to; to = to == out ? j->backing : NULL) {
		snprintf(path, sizeof(path), "%s/twice", to);
		ok(recover(j, to, 0, &res) == 0 && res.failed == 0 && stat(path, &st) == 0 &&
				st.st_mode == (S_IFREG | 0600),
			"of three files with one name that of node %u has the highest stamp", winner);
	}
	job_end(j, false);
}

int main(int argc, char **argv)
{
	uint64_t seeds = argc > 1 ? strtoull(argv[1], NULL, 10) : 8, first = argc > 2 ? strtoull(argv[2], NULL, 10) : 1;
	struct job *j = malloc(sizeof(*j));

	world_must(j ? 0 : -ENOMEM, "memory");
	for (uint64_t seed = first; seed < first + seeds; seed++)
		test(j, seed);
	test_uncommitted(j);
	test_cautious(j);
	test_removed(j);
	test_name_removed(j);
	test_unseen_name(j);
	for (unsigned int knows = 0; knows < NODES; knows++)
		test_lone_cut(j, knows);
	test_lone_drop(j, false);
	test_lone_drop(j, true);
	test_unknown_writers(j);
	for (unsigned int winner = 0; winner < NODES; winner++)
		test_name_twice(j, winner);
	free(j);
	return done_testing();
}
