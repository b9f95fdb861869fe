/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Random calls on the nodes of a job, some of them fsync, and drains of files; then one node, or all, lose power (docs/design/power-loss.md). A model keeps what each
 * byte has been since it was last made durable, and by which node, and which files each name has had: one of these is there afterwards, for all nodes, and
 * never anything else; what a node did that has not lost power is there. In the end the same is recovered from the stores alone. Files in the root only: changes of directories are not promised as much.
 *
 * Arguments: the first seed, how many.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "format/manifest/manifest.h"
#include "mpi-agent/command/recover_run.h"
#include "tests/lib/job_drain.h"
#include "tests/lib/job_path.h"
#include "tests/lib/job_world.h"
#include "tests/lib/scratch.h"
#include "tests/lib/tap.h"
#include "tests/parity/rng.h"

#define NODES    3u
#define ALL      ((1u << NODES) - 1)
#define NAMES    4u
#define CYCLES   3u
#define STEPS    12u
#define CHANGES  ((CYCLES + 1) * STEPS + 1)
#define FILES    CHANGES
#define REGIONS  2u
#define FAR      (16u << 20) /* another domain */
#define WIDTH    48u
#define PATIENCE 6000 /* times 10 ms */
#define NONE     0

struct change {
	int value;
	uint32_t node;
	bool durable;
};

struct history {
	struct change at[CHANGES];
	unsigned int num;
};

/* A name is a file's for a while. That it came, and that it went, are records of the file's home: each can be lost without the other's. */
struct stay {
	int file;
	bool came_durable, left, left_durable;
};

struct name {
	struct stay at[CHANGES];
	unsigned int num;
};

struct file { /* its number is its index; 0: none */
	uint64_t ino;
	uint32_t home;
	int name; /* -1: none */
	bool durable, removed;
	struct history bytes[REGIONS][WIDTH];
};

struct model {
	struct job_world *w;
	struct rng rng;
	struct name names[NAMES];
	struct file files[FILES];
	int num_files, last_byte;
};

/* ---- what was */

static void begin_history(struct history *h)
{
	*h = (struct history){ .at = { { .durable = true } }, .num = 1 };
}

static void change(struct history *h, int value, uint32_t node)
{
	if (h->num == CHANGES)
		abort();
	h->at[h->num++] = (struct change){ .value = value, .node = node };
}

static void make_durable(struct history *h, uint32_t nodes)
{
	for (unsigned int i = 0; i < h->num; i++)
		h->at[i].durable |= nodes >> h->at[i].node & 1;
}

/* The change by which it may be value, when these nodes have lost power, counted from 1; 0: it may not. */
static unsigned int may_be(const struct history *h, int value, uint32_t lost)
{
	for (unsigned int i = h->num; i-- > 0;) {
		const struct change *c = &h->at[i];

		if (c->value == value)
			return i + 1;
		if (c->durable || !(lost >> c->node & 1))
			return 0;
	}
	return 0;
}

static struct stay *current_stay(struct name *n)
{
	for (unsigned int i = n->num; i-- > 0;)
		if (!n->at[i].left)
			return &n->at[i];
	return NULL;
}

static void leave(struct name *n)
{
	struct stay *s = current_stay(n);

	if (s)
		s->left = true;
}

static void take(struct name *n, int file)
{
	leave(n);
	if (n->num == CHANGES)
		abort();
	n->at[n->num++] = (struct stay){ .file = file };
}

static bool has_lost(const struct model *m, int file, uint32_t lost)
{
	return lost >> m->files[file].home & 1;
}

/* The stay by which that file, or none, may have the name when these nodes have lost power. */
static bool may_have(const struct model *m, const struct name *n, int file, uint32_t lost, unsigned int *ret)
{
	for (unsigned int i = n->num; i-- > 0;) {
		const struct stay *s = &n->at[i];
		bool forgot = has_lost(m, s->file, lost);

		*ret = i;
		if (s->file == file)
			return !s->left || (!s->left_durable && forgot);
		if (!s->left && (s->came_durable || !forgot))
			return false;
	}
	*ret = CHANGES;
	return file == NONE;
}

/* The same, and so it is from now on. What a home has lost does not come back, unless it has it still, and another file's later stay hides that. */
static bool settle_name(const struct model *m, struct name *n, int file, uint32_t lost)
{
	unsigned int at, num = 0;

	if (!may_have(m, n, file, lost, &at))
		return false;
	for (unsigned int i = 0; i < n->num; i++) {
		struct stay *s = &n->at[i];

		if (has_lost(m, s->file, lost)) {
			if (i != at && file == NONE)
				continue;
			s->left = i != at;
			s->left_durable = false;
			s->came_durable |= i == at;
		}
		n->at[num++] = *s;
	}
	n->num = num;
	return true;
}

/* ---- calls */

static const char *name_of(unsigned int i)
{
	static const char *const names[NAMES] = { "a", "b", "c", "d" };

	return names[i];
}

static struct file *file_at(struct model *m, unsigned int name)
{
	struct stay *s = current_stay(&m->names[name]);

	return s ? &m->files[s->file] : NULL;
}

static int file_number(struct model *m, unsigned int name)
{
	struct file *f = file_at(m, name);

	return f ? (int)(f - m->files) : NONE;
}

static void create(struct model *m, uint32_t node, unsigned int name)
{
	struct job *j = job_world_job(m->w, node);
	struct file *f = &m->files[++m->num_files];
	struct stat st = { 0 };

	tap_diag("node %u: make %s, file %d", node, name_of(name), m->num_files);
	is_int(path_create(j, name_of(name), 0644, O_EXCL), 0, "made");
	is_int(path_stat(j, name_of(name), &st), 0, "there");
	*f = (struct file){ .ino = st.st_ino, .home = node, .name = (int)name };
	for (unsigned int r = 0; r < REGIONS; r++)
		for (unsigned int i = 0; i < WIDTH; i++)
			begin_history(&f->bytes[r][i]);
	take(&m->names[name], m->num_files);
}

static void lose_name(struct file *f)
{
	f->name = -1;
	f->removed = true;
}

static void remove_file(struct model *m, uint32_t node, unsigned int name)
{
	struct file *f = file_at(m, name);

	tap_diag("node %u: remove %s", node, name_of(name));
	is_int(path_unlink(job_world_job(m->w, node), name_of(name)), 0, "removed");
	leave(&m->names[name]);
	lose_name(f);
}

static void rename_file(struct model *m, uint32_t node, unsigned int from, unsigned int to)
{
	struct file *f = file_at(m, from), *over = file_at(m, to);

	if (from == to)
		return;
	tap_diag("node %u: rename %s to %s", node, name_of(from), name_of(to));
	is_int(path_rename(job_world_job(m->w, node), name_of(from), name_of(to), 0), 0, "renamed");
	take(&m->names[to], (int)(f - m->files));
	leave(&m->names[from]);
	if (over)
		lose_name(over);
	f->name = (int)to;
}

/* ---- bytes */

static void put(struct model *m, uint32_t node, struct file *f, struct path_file *o)
{
	unsigned int r = rng_below(&m->rng, REGIONS), off = rng_below(&m->rng, WIDTH), len = rng_below(&m->rng, 20) + 1;
	uint8_t bytes[WIDTH];

	m->last_byte = m->last_byte % 255 + 1;
	len = off + len > WIDTH ? WIDTH - off : len;
	memset(bytes, m->last_byte, len);
	tap_diag("node %u: write %d to file %ld, region %u, %u bytes at %u", node, m->last_byte, (long)(f - m->files),
		r, len, off);
	is_int(job_write(o->j, o->file, bytes, len, (uint64_t)r * FAR + off), len, "written");
	for (unsigned int i = 0; i < len; i++)
		change(&f->bytes[r][off + i], m->last_byte, node);
}

/* A cut is the home's. */
static void cut_file(struct model *m, uint32_t node, unsigned int name)
{
	struct file *f = file_at(m, name);
	unsigned int r = rng_below(&m->rng, REGIONS), off = rng_below(&m->rng, WIDTH);

	tap_diag("node %u: cut %s, region %u, at %u", node, name_of(name), r, off);
	is_int(path_truncate(job_world_job(m->w, node), name_of(name), (off_t)r * FAR + off), 0, "cut");
	for (unsigned int i = r * WIDTH + off; i < REGIONS * WIDTH; i++)
		change(&f->bytes[i / WIDTH][i % WIDTH], 0, f->home);
}

/* Nothing is to show that was cut off. */
static void make_longer(struct model *m)
{
	for (unsigned int i = 0; i < NAMES; i++)
		if (file_at(m, i) && rng_below(&m->rng, 2)) {
			uint32_t node = rng_below(&m->rng, NODES);

			tap_diag("node %u: make %s longer", node, name_of(i));
			is_int(path_truncate(job_world_job(m->w, node), name_of(i), FAR + WIDTH), 0, "longer");
		}
}

/* What this node has written, what was cut off, and the name. */
static void sync_file(struct file *f, uint32_t node, struct name *name)
{
	f->durable = true;
	current_stay(name)->came_durable = true;
	for (unsigned int r = 0; r < REGIONS; r++)
		for (unsigned int i = 0; i < WIDTH; i++)
			make_durable(&f->bytes[r][i], 1u << node | 1u << f->home);
}

static void write_file(struct model *m, uint32_t node, unsigned int name, bool writes, bool syncs)
{
	struct file *f = file_at(m, name);
	struct path_file o;
	int rc = path_open(job_world_job(m->w, node), name_of(name), O_RDWR, &o);

	is_int(rc, 0, "opened");
	if (rc)
		return;
	if (writes)
		put(m, node, f, &o);
	if (syncs) {
		tap_diag("node %u: fsync %s", node, name_of(name));
		is_int(job_fsync(o.j, o.ino, o.file, false), 0, "synced");
		sync_file(f, node, &m->names[name]);
	}
	is_int(path_close(&o), 0, "closed");
}

static void sync_names(struct model *m, uint32_t node)
{
	tap_diag("node %u: fsync the directory", node);
	is_int(job_fsync(job_world_job(m->w, node), 1, NULL, false), 0, "the directory is synced");
	for (unsigned int i = 0; i < NAMES; i++) {
		struct file *f = file_at(m, i);

		for (unsigned int k = 0; k < m->names[i].num; k++) {
			struct stay *stay = &m->names[i].at[k];

			stay->came_durable = true;
			stay->left_durable = stay->left;
		}
		if (f)
			f->durable = true;
	}
}

/* ---- drains */

static void check(struct model *m, uint32_t lost);

/* What it is by now: in the backing directory, whoever loses power. */
static void make_drained(struct file *f, struct name *name)
{
	f->durable = true;
	current_stay(name)->came_durable = true;
	for (unsigned int r = 0; r < REGIONS; r++)
		for (unsigned int i = 0; i < WIDTH; i++)
			make_durable(&f->bytes[r][i], ALL);
}

/* One of the nodes does not drop its part: its daemon dies, or it loses power, right behind the publishing; if it is the home, no node drops anything. */
static void drop_without(struct model *m, const struct job_drain *d, uint32_t node, bool power)
{
	tap_diag("node %u %s before it drops its part", node, power ? "loses power" : "dies");
	job_world_kill(m->w, node);
	for (uint32_t n = 0; n < NODES; n++)
		if (n != node && node != d->home)
			is_int(job_drain_drop(d, n), 0, "dropped");
	if (power)
		job_world_lose_power(m->w, node, rng_below(&m->rng, UINT32_MAX));
	job_world_revive(m->w, node);
	check(m, power ? 1u << node : 0);
}

static void drain_file(struct model *m, unsigned int name)
{
	struct file *f = file_at(m, name);
	struct job_drain d;
	int rc = job_drain_carry(m->w, NODES, f->ino, &d);

	tap_diag("%s is drained: %d", name_of(name), rc);
	if (rc == -ENOENT) /* one node alone has used it */
		return;
	is_int(rc, 0, "carried");
	is_int(job_drain_publish(&d), 0, "published");
	make_drained(f, &m->names[name]);
	if (rng_below(&m->rng, 2)) {
		drop_without(m, &d, rng_below(&m->rng, NODES), rng_below(&m->rng, 2));
		return;
	}
	for (uint32_t n = 0; n < NODES; n++)
		is_int(job_drain_drop(&d, n), 0, "dropped");
}

static void step(struct model *m)
{
	uint32_t node = rng_below(&m->rng, NODES), kind = rng_below(&m->rng, 24);
	unsigned int name = rng_below(&m->rng, NAMES);

	if (kind == 0)
		sync_names(m, node);
	else if (!file_at(m, name))
		create(m, node, name);
	else if (kind < 3)
		remove_file(m, node, name);
	else if (kind < 6)
		rename_file(m, node, name, rng_below(&m->rng, NAMES));
	else if (kind < 8)
		cut_file(m, node, name);
	else if (kind >= 20)
		drain_file(m, name);
	else
		write_file(m, node, name, kind<18, kind> 12);
}

/* ---- what is */

/* Of all names, as each node sees them; false: not the same everywhere, or an error. */
static bool look(struct model *m, uint64_t *inos)
{
	for (uint32_t n = 0; n < NODES; n++) {
		char list[100], expected[100] = "";

		for (unsigned int i = 0; i < NAMES; i++) {
			struct stat st = { 0 };
			int rc = path_stat(job_world_job(m->w, n), name_of(i), &st);

			if ((rc && rc != -ENOENT) || (n > 0 && inos[i] != st.st_ino))
				return false;
			inos[i] = st.st_ino;
			if (st.st_ino)
				strcat(strcat(expected, name_of(i)), "\n");
		}
		if (path_list(job_world_job(m->w, n), "", list, sizeof(list)) || strcmp(list, expected) != 0)
			return false;
	}
	return true;
}

static bool all_see_the_same(struct model *m, uint64_t *inos)
{
	for (unsigned int i = 0; i < PATIENCE; i++) {
		if (look(m, inos))
			return true;
		usleep(10000);
	}
	return false;
}

static int find_ino(const struct model *m, uint64_t ino)
{
	for (int f = m->num_files; f > 0; f--)
		if (m->files[f].ino == ino)
			return f;
	return ino ? -1 : NONE;
}

/* A file is where it was, or is no more; what was durable, and not removed since, is. */
static void check_files(struct model *m, uint32_t lost)
{
	for (int i = 1; i <= m->num_files; i++) {
		struct file *f = &m->files[i];

		ok(f->name >= 0 || f->removed || (!f->durable && lost >> f->home & 1), "file %d of node %u has a name",
			i, f->home);
		f->removed = f->name < 0;
	}
}

static void check_names(struct model *m, uint32_t lost)
{
	uint64_t inos[NAMES];

	if (!ok(all_see_the_same(m, inos), "all nodes see the same names"))
		return;
	for (int i = 1; i <= m->num_files; i++)
		m->files[i].name = -1;
	for (unsigned int i = 0; i < NAMES; i++) {
		int was = file_number(m, i), f = find_ino(m, inos[i]);

		ok(f >= 0 && settle_name(m, &m->names[i], f, lost), "%s is file %d (it was %d)", name_of(i), f, was);
		if (f > 0) {
			ok(m->files[f].name < 0, "under one name");
			m->files[f].name = (int)i;
		}
	}
	check_files(m, lost);
}

static int get(struct model *m, uint32_t node, unsigned int name, uint8_t bytes[REGIONS][WIDTH])
{
	struct path_file o;
	int rc = path_open(job_world_job(m->w, node), name_of(name), O_RDONLY, &o);
	ssize_t n = 0;

	if (rc)
		return rc;
	memset(bytes, 0, REGIONS * WIDTH);
	for (unsigned int r = 0; r < REGIONS && n >= 0; r++)
		n = job_read(o.j, o.file, bytes[r], WIDTH, (uint64_t)r * FAR);
	rc = path_close(&o);
	return n < 0 ? (int)n : rc;
}

/* All nodes read the same, and what may be; so it is from now on. A reason why not otherwise. */
static const char *settle_bytes(struct model *m, unsigned int name, uint32_t lost)
{
	struct file *f = file_at(m, name);
	uint8_t bytes[NODES][REGIONS][WIDTH];

	for (uint32_t n = 0; n < NODES; n++) {
		if (get(m, n, name, bytes[n]))
			return "it cannot be read";
		if (memcmp(bytes[n], bytes[0], sizeof(bytes[n])) != 0)
			return "the nodes read different bytes";
	}
	for (unsigned int i = 0; i < REGIONS * WIDTH; i++)
		if (!may_be(&f->bytes[i / WIDTH][i % WIDTH], bytes[0][i / WIDTH][i % WIDTH], lost))
			return "a byte is there that cannot be";
	for (unsigned int i = 0; i < REGIONS * WIDTH; i++) {
		struct history *h = &f->bytes[i / WIDTH][i % WIDTH];

		h->num = may_be(h, bytes[0][i / WIDTH][i % WIDTH], lost);
	}
	return NULL;
}

/* What a home has not heard again of writes that were not synced shows a moment later. */
static void check_bytes(struct model *m, unsigned int name, uint32_t lost)
{
	const char *why = settle_bytes(m, name, lost);

	for (unsigned int i = 0; why && lost && i < PATIENCE; i++) {
		usleep(10000);
		why = settle_bytes(m, name, lost);
	}
	ok(!why, "%s: %s", name_of(name), why ? why : "as it may be");
}

static void check(struct model *m, uint32_t lost)
{
	check_names(m, lost);
	for (unsigned int i = 0; i < NAMES; i++)
		if (file_at(m, i))
			check_bytes(m, i, lost);
}

/* ---- power */

static uint32_t lose_power(struct model *m)
{
	uint32_t lost = rng_below(&m->rng, 3) ? 1u << rng_below(&m->rng, NODES) : ALL;

	tap_diag("power is lost: nodes %s%s%s", lost & 1 ? "0" : "", lost & 2 ? "1" : "", lost & 4 ? "2" : "");
	for (uint32_t n = 0; n < NODES; n++)
		if (lost >> n & 1)
			job_world_kill(m->w, n);
	for (uint32_t n = 0; n < NODES; n++)
		if (lost >> n & 1)
			job_world_lose_power(m->w, n, rng_below(&m->rng, UINT32_MAX));
	for (uint32_t n = 0; n < NODES; n++)
		if (lost >> n & 1)
			job_world_revive(m->w, n);
	return lost;
}

/* ---- recovery from what the stores have */

static void complain(const char *path, int code, const char *text, void *arg)
{
	(void)arg;
	tap_diag("recover: %s: %s (%d)", path, text, code);
}

static int open_stores(const char *dir, struct recover_set *set, struct cistern_error *err)
{
	struct store_options how = { .mode = STORE_READ_ONLY };
	struct state_report report;
	char path[300];
	int rc = 0;

	for (uint32_t n = 0; rc == 0 && n < NODES; n++) {
		struct store *s;

		snprintf(path, sizeof(path), "%s/store%u", dir, n);
		rc = store_open(path, &how, &s, &report, err);
		if (rc == 0)
			rc = recover_set_add(set, s, err);
	}
	return rc;
}

static int recover_to(const char *stores, const char *to)
{
	struct drain_options opt = {
		.in_place = true, .base_dirfd = -1, .buffer_bytes = 1u << 20, .watcher = { .error = complain }
	};
	struct recover_set set = { 0 };
	struct manifest_totals totals = { 0 };
	struct cistern_error err = { 0 };
	int rc = open_stores(stores, &set, &err);

	opt.to_dirfd = open(to, O_RDONLY | O_DIRECTORY);
	if (rc == 0)
		rc = recover_set_merge(&set, opt.to_dirfd, &err);
	if (rc == 0)
		rc = manifest_open(NULL, &opt.manifest, &err);
	if (rc == 0)
		rc = recover_run(&set, &(struct team){ .size = 1 }, &opt, &totals, &err);
	if (rc)
		tap_diag("recover: %s", err.text);
	is_u64(totals.failed, 0, "no file fails");
	manifest_close(opt.manifest);
	close(opt.to_dirfd);
	recover_set_close(&set);
	return rc;
}

/* Could that be it, under this name? */
static bool is_recovered(
	const struct model *m, unsigned int name, int number, uint8_t bytes[REGIONS][WIDTH], uint32_t lost)
{
	const struct file *f = &m->files[number];
	unsigned int at;

	if (!may_have(m, &m->names[name], number, lost, &at))
		return false;
	for (unsigned int i = 0; i < REGIONS * WIDTH; i++)
		if (!may_be(&f->bytes[i / WIDTH][i % WIDTH], bytes[i / WIDTH][i % WIDTH], lost))
			return false;
	return true;
}

static void describe(const struct model *m, unsigned int name, uint8_t bytes[REGIONS][WIDTH], uint32_t lost)
{
	unsigned int at;

	for (int f = 1; f <= m->num_files; f++)
		if (may_have(m, &m->names[name], f, lost, &at))
			tap_diag("%s may be file %d", name_of(name), f);
	for (unsigned int r = 0; r < REGIONS; r++) {
		char text[4 * WIDTH + 1] = "";

		for (unsigned int i = 0; i < WIDTH; i++)
			snprintf(text + strlen(text), sizeof(text) - strlen(text), " %d", bytes[r][i]);
		tap_diag("region %u:%s", r, text);
	}
}

static void check_recovered(const struct model *m, unsigned int name, const char *dir, uint32_t lost)
{
	uint8_t bytes[REGIONS][WIDTH] = { { 0 } };
	char path[200];
	unsigned int at;
	int found = 0;

	snprintf(path, sizeof(path), "%s/%s", dir, name_of(name));
	int fd = open(path, O_RDONLY);
	if (fd < 0) {
		ok(may_have(m, &m->names[name], NONE, lost, &at), "there may be no %s", name_of(name));
		return;
	}
	for (unsigned int r = 0; r < REGIONS; r++)
		if (pread(fd, bytes[r], WIDTH, (off_t)r * FAR) < 0)
			found = -1;
	close(fd);
	for (int f = 1; f <= m->num_files && found == 0; f++)
		found = is_recovered(m, name, f, bytes, lost) ? f : 0;
	if (!ok(found > 0, "recovered %s is file %d", name_of(name), found))
		describe(m, name, bytes, lost);
}

static void recover(struct model *m)
{
	uint32_t lost = rng_below(&m->rng, 3) ? ALL : 1u << rng_below(&m->rng, NODES);
	char dir[200], command[300];

	tap_diag("the job ends; nodes %s%s%s have lost power", lost & 1 ? "0" : "", lost & 2 ? "1" : "",
		lost & 4 ? "2" : "");
	for (uint32_t n = 0; n < NODES; n++)
		job_world_kill(m->w, n);
	for (uint32_t n = 0; n < NODES; n++)
		if (lost >> n & 1)
			job_world_lose_power(m->w, n, rng_below(&m->rng, UINT32_MAX));
	snprintf(dir, sizeof(dir), "%s/test-job-power-random.XXXXXX", scratch_parent());
	if (!mkdtemp(dir))
		abort();
	job_world_copy_stores(m->w, dir);
	if (ok(recover_to(dir, job_world_backing(m->w)) == 0, "recovered"))
		for (unsigned int i = 0; i < NAMES; i++)
			check_recovered(m, i, job_world_backing(m->w), lost);
	snprintf(command, sizeof(command), "rm -rf '%s'", dir);
	ok(system(command) == 0, "removed");
}

static void run(uint64_t seed)
{
	struct model *m = calloc(1, sizeof(*m));

	if (!m)
		abort();
	tap_diag("seed %llu", (unsigned long long)seed);
	m->rng.state = seed;
	m->w = job_world_start_with(&(struct job_world_options){ .num = NODES, .simulated = true });
	for (unsigned int cycle = 0; cycle < CYCLES; cycle++) {
		for (unsigned int i = 0; i < STEPS; i++)
			step(m);
		check(m, 0);
		check(m, lose_power(m));
		make_longer(m);
		check(m, 0);
	}
	for (unsigned int i = 0; i < STEPS; i++)
		step(m);
	recover(m);
	job_world_stop(m->w);
	free(m);
}

int main(int argc, char **argv)
{
	uint64_t first = argc > 1 ? strtoull(argv[1], NULL, 0) : 8, num = argc > 2 ? strtoull(argv[2], NULL, 0) : 4;

	for (uint64_t seed = first; seed < first + num; seed++)
		run(seed);
	return done_testing();
}
