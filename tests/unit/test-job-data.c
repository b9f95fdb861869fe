/* SPDX-License-Identifier: GPL-3.0-or-later */
/* Data of files in a job: several nodes in one process, joined by the loopback. */
#include <errno.h>
#include <fcntl.h>
#include <linux/falloc.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fs/job/private.h"
#include "fs/job/share.h"
#include "tests/lib/job_world.h"
#include "tests/lib/tap.h"

static const struct core_cred cred = { 0 };

struct open { /* an open file of a node */
	struct job *j;
	struct job_file *file;
};

static uint64_t create(struct job_world *w, uint32_t node, const char *name, int flags, struct open *ret)
{
	struct core_open_reply reply;
	struct core_entry e;

	ret->j = job_world_job(w, node);
	int rc = job_create_file(ret->j, 1, name, 0644, flags, cred, &e, &ret->file, &reply);
	if (rc)
		printf("# create %s: %d\n", name, rc);
	return rc ? 0 : e.ino;
}

static int open_at(struct job_world *w, uint32_t node, uint64_t ino, int flags, struct open *ret)
{
	struct core_open_reply reply;

	ret->j = job_world_job(w, node);
	return job_open(ret->j, ino, flags, &ret->file, &reply);
}

static int close_it(struct open *o)
{
	int rc = job_flush(o->j, o->file);

	job_release(o->j, o->file);
	return rc;
}

static ssize_t put(struct open *o, const char *text, uint64_t off)
{
	return job_write(o->j, o->file, text, strlen(text), off);
}

static bool shows(struct open *o, uint64_t off, const char *text)
{
	size_t len = strlen(text);
	char *buf = calloc(1, len + 2);
	ssize_t got = job_read(o->j, o->file, buf, len + 1, off);
	bool same = got >= (ssize_t)len && memcmp(buf, text, len) == 0;

	if (!same)
		printf("# %zd bytes: %.60s, not %s\n", got, buf, text);
	free(buf);
	return same;
}

/* A file that only its home writes is read elsewhere. */
static void test_unshared(void)
{
	struct job_world *w = job_world_start(2);
	struct open a, b;
	uint64_t ino = create(w, 0, "f", O_RDWR, &a);

	is_int(put(&a, "hello", 0), 5, "written at home");
	is_int(open_at(w, 1, ino, O_RDONLY, &b), 0, "opened elsewhere");
	ok(shows(&b, 0, "hello"), "and read there");
	is_int(put(&a, "HE", 0), 2, "written at home");
	is_int(job_fsync(a.j, ino, a.file, false), 0, "synced");
	ok(shows(&b, 0, "HEllo"), "the open file shows it");
	is_int(close_it(&b), 0, "closed");
	is_int(close_it(&a), 0, "closed");
	job_world_stop(w);
}

static void test_no_messages(void)
{
	struct job_world *w = job_world_start(2);
	struct job *j = job_world_job(w, 0);
	struct open a;
	uint64_t ino = create(w, 0, "f", O_RDWR, &a), before = j->share->messages;

	is_int(put(&a, "hello", 0), 5, "written at home");
	ok(shows(&a, 0, "hello"), "read");
	is_int(job_fsync(a.j, ino, a.file, false), 0, "synced");
	is_int(close_it(&a), 0, "closed");
	is_int(open_at(w, 0, ino, O_RDWR | O_TRUNC, &a), 0, "opened anew");
	is_int(close_it(&a), 0, "closed");
	is_u64(j->share->messages, before, "no other node was asked for the data of a file of one node");
	job_world_stop(w);
}

static void test_shared(void)
{
	struct job_world *w = job_world_start(3);
	struct open f[3];
	uint64_t ino = create(w, 0, "f", O_RDWR, &f[0]);

	is_int(put(&f[0], "0000000000", 0), 10, "written at home");
	is_int(open_at(w, 1, ino, O_RDWR, &f[1]), 0, "opened by another node, too");
	is_int(open_at(w, 2, ino, O_RDWR, &f[2]), 0, "and by a third");
	is_int(put(&f[1], "111", 2), 3, "written there");
	ok(shows(&f[1], 0, "0011100000"), "own writes are seen at once");
	is_int(put(&f[2], "22", 6), 2, "written there");
	is_int(put(&f[0], "x", 9), 1, "and at home");
	is_int(job_fsync(f[1].j, ino, f[1].file, false), 0, "synced");
	ok(shows(&f[0], 0, "001110000x"), "home sees it");
	ok(shows(&f[2], 0, "0011102200"), "the third sees it, and its own");
	is_int(job_fsync(f[2].j, ino, f[2].file, false), 0, "synced");
	is_int(job_fsync(f[0].j, ino, f[0].file, false), 0, "synced");
	for (int i = 0; i < 3; i++)
		ok(shows(&f[i], 0, "001110220x"), "node %d sees all", i);
	is_int(put(&f[2], "longer", 12), 6, "written past the end");
	is_int(job_fsync(f[2].j, ino, f[2].file, false), 0, "synced");
	for (int i = 0; i < 3; i++)
		is_u64(shared_size(f[i].j, f[i].file->shared), 18, "the size is known everywhere");
	for (int i = 0; i < 3; i++)
		is_int(close_it(&f[i]), 0, "closed");
	is_int(open_at(w, 1, ino, O_RDONLY, &f[1]), 0, "opened again");
	ok(shows(&f[1], 12, "longer"), "all is there");
	is_int(close_it(&f[1]), 0, "closed");
	job_world_stop(w);
}

/* ---- a random file against a model of its bytes */

#define SIZE  200000u
#define NODES 4

struct model {
	struct job_world *w;
	uint32_t num;
	uint64_t ino, base, seed;
	struct open open[NODES];
	bool is_open[NODES];
	uint8_t bytes[SIZE]; /* committed; from offset base on */
	size_t size;
	uint8_t own[NODES][SIZE], mask[NODES][SIZE];     /* written and not committed */
	uint32_t when[SIZE], own_when[NODES][SIZE], now; /* the order of the writes */
	size_t own_end[NODES];
	unsigned int wrong;
	bool crashes;
};

static uint64_t below(struct model *m, uint64_t n)
{
	m->seed ^= m->seed << 13;
	m->seed ^= m->seed >> 7;
	m->seed ^= m->seed << 17;
	return m->seed % n;
}

static size_t view_size(struct model *m, uint32_t node)
{
	return m->own_end[node] > m->size ? m->own_end[node] : m->size;
}

/* Who may write sees how far others have written; what, only when they commit. */
static size_t far_size(struct model *m)
{
	size_t size = m->size;

	for (uint32_t i = 0; i < m->num; i++)
		if (size < view_size(m, i))
			size = view_size(m, i);
	return size;
}

static bool shows_own(const struct model *m, uint32_t node, size_t at)
{
	return m->mask[node][at] && m->own_when[node][at] > m->when[at];
}

static void note_written(struct model *m, uint32_t node, size_t off, size_t len)
{
	m->now++;
	memset(m->mask[node] + off, 1, len);
	for (size_t i = off; i < off + len; i++)
		m->own_when[node][i] = m->now;
}

static void model_commit(struct model *m, uint32_t node)
{
	for (size_t i = 0; i < SIZE; i++)
		if (shows_own(m, node, i)) {
			m->bytes[i] = m->own[node][i];
			m->when[i] = m->own_when[node][i];
		}
	m->size = view_size(m, node);
	m->own_end[node] = 0;
	memset(m->mask[node], 0, SIZE);
}

static void set_patience(struct model *m)
{
	for (uint32_t i = 0; i < m->num; i++)
		job_world_job(m->w, i)->share->tell_usec = UINT64_MAX;
}

static void check(struct model *m, bool good, const char *what, uint32_t node, uint64_t a, uint64_t b)
{
	if (good)
		return;
	if (m->wrong++ < 10)
		printf("# %s at node %u: %llu, %llu\n", what, node, (unsigned long long)a, (unsigned long long)b);
}

/* What each node says of it later: whether it was only late. */
static void say_again(struct model *m, size_t at)
{
	usleep(200000);
	for (uint32_t i = 0; i < m->num; i++) {
		uint8_t byte = 0;
		ssize_t got = job_read(m->open[i].j, m->open[i].file, &byte, 1, m->base + at);

		printf("# a little later node %u reads %zd byte, %u; the model: %u, written by it %d at %u, committed at %u\n",
			i, got, byte, m->bytes[at], m->mask[i][at], m->own_when[i][at], m->when[at]);
	}
}

/* After a crash a home commits what it has before it lets others go on: what is not committed may show earlier than it must. */
static bool may_show(const struct model *m, size_t at, uint8_t byte)
{
	for (uint32_t i = 0; m->crashes && i < m->num; i++)
		if (shows_own(m, i, at) && m->own[i][at] == byte)
			return true;
	return false;
}

static void do_read(struct model *m, uint32_t node)
{
	static uint8_t buf[SIZE];
	size_t off = below(m, SIZE), len = 1 + below(m, SIZE - off), size = far_size(m);
	size_t expected = off >= size ? 0 : len < size - off ? len : size - off;
	ssize_t got = job_read(m->open[node].j, m->open[node].file, buf, len, m->base + off);

	check(m, got == (ssize_t)expected, "read", node, (uint64_t)got, expected);
	for (size_t i = 0; got > 0 && i < (size_t)got && i < expected; i++) {
		uint8_t e = shows_own(m, node, off + i) ? m->own[node][off + i] : m->bytes[off + i];

		if (buf[i] != e && !may_show(m, off + i, buf[i])) {
			check(m, false, "byte", node, off + i, (uint64_t)buf[i] << 8 | e);
			say_again(m, off + i);
			return;
		}
	}
}

static void do_write(struct model *m, uint32_t node)
{
	static uint8_t buf[SIZE];
	size_t off = below(m, SIZE - 1), len = 1 + below(m, below(m, 3) ? 3000 : 20000);

	if (len > SIZE - off)
		len = SIZE - off;
	for (size_t i = 0; i < len; i++)
		buf[i] = (uint8_t)(1 + below(m, 255));
	ssize_t put = job_write(m->open[node].j, m->open[node].file, buf, len, m->base + off);
	check(m, put == (ssize_t)len, "write", node, (uint64_t)put, len);
	memcpy(m->own[node] + off, buf, len);
	note_written(m, node, off, len);
	if (m->own_end[node] < off + len)
		m->own_end[node] = off + len;
}

static void do_punch(struct model *m, uint32_t node)
{
	size_t off = below(m, SIZE - 1), len = 1 + below(m, SIZE - off), size = view_size(m, node);
	int rc = job_fallocate(
		m->open[node].j, m->open[node].file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, m->base + off, len);

	check(m, rc == 0, "punch", node, (uint64_t)-rc, 0);
	if (off >= size)
		return;
	if (len > size - off)
		len = size - off;
	memset(m->own[node] + off, 0, len);
	note_written(m, node, off, len);
}

static void do_commit(struct model *m, uint32_t node)
{
	int rc = job_fsync(m->open[node].j, m->ino, m->open[node].file, false);

	check(m, rc == 0, "fsync", node, (uint64_t)-rc, 0);
	model_commit(m, node);
}

static void do_truncate(struct model *m, uint32_t node)
{
	size_t size = below(m, SIZE);
	int rc = share_truncate(m->open[node].j, m->ino, m->base + size);

	check(m, rc == 0, "truncate", node, (uint64_t)-rc, 0);
	model_commit(m, node);
	memset(m->bytes + size, 0, SIZE - size);
	m->size = size;
	for (uint32_t i = 0; i < m->num; i++) {
		memset(m->mask[i] + size, 0, SIZE - size);
		if (m->own_end[i] > size)
			m->own_end[i] = size;
	}
}

static void do_reopen(struct model *m, uint32_t node)
{
	int rc = close_it(&m->open[node]);

	check(m, rc == 0, "close", node, (uint64_t)-rc, 0);
	model_commit(m, node);
	rc = open_at(m->w, node, m->ino, O_RDWR, &m->open[node]);
	check(m, rc == 0, "open", node, (uint64_t)-rc, 0);
}

/* The daemon dies, and what it had not told is told by the next one. */
static void do_restart(struct model *m, uint32_t node)
{
	job_release(m->open[node].j, m->open[node].file);
	job_world_restart(m->w, node);
	set_patience(m);
	int rc = job_syncfs(job_world_job(m->w, node));
	check(m, rc == 0, "syncfs", node, (uint64_t)-rc, 0);
	model_commit(m, node);
	rc = open_at(m->w, node, m->ino, O_RDWR, &m->open[node]);
	check(m, rc == 0, "open", node, (uint64_t)-rc, 0);
}

static void do_lose(struct model *m, uint32_t node)
{
	loopback_lose(job_world_loopback(m->w), node);
	loopback_assemble(job_world_loopback(m->w));
}

static void one_op(struct model *m, bool crashes)
{
	uint32_t node = (uint32_t)below(m, m->num);
	uint64_t what = below(m, crashes ? 105 : 100);

	if (what < 40)
		do_read(m, node);
	else if (what < 75)
		do_write(m, node);
	else if (what < 80)
		do_punch(m, node);
	else if (what < 92)
		do_commit(m, node);
	else if (what < 96)
		do_truncate(m, node);
	else if (what < 100)
		do_reopen(m, node);
	else if (what < 103)
		do_lose(m, node);
	else
		do_restart(m, node);
}

static void test_random(uint32_t num, uint64_t base, uint64_t seed, unsigned int ops, bool crashes)
{
	struct model *m = calloc(1, sizeof(*m));

	*m = (struct model){ .w = job_world_start(num), .num = num, .base = base, .seed = seed, .crashes = crashes };
	set_patience(m);
	m->ino = create(m->w, 0, "f", O_RDWR, &m->open[0]);
	for (uint32_t i = 1; i < num; i++)
		check(m, open_at(m->w, i, m->ino, O_RDWR, &m->open[i]) == 0, "open", i, 0, 0);
	check(m, share_truncate(m->open[0].j, m->ino, base) == 0, "base", 0, 0, 0);
	for (unsigned int i = 0; i < ops && m->wrong == 0; i++)
		one_op(m, crashes);
	for (uint32_t i = 0; i < num; i++)
		do_commit(m, i);
	for (unsigned int i = 0; i < 20; i++)
		do_read(m, i % num);
	ok(m->wrong == 0, "%u nodes, from %llu, seed %llu%s", num, (unsigned long long)base, (unsigned long long)seed,
		crashes ? ", with crashes" : "");
	for (uint32_t i = 0; i < num; i++)
		close_it(&m->open[i]);
	job_world_stop(m->w);
	free(m);
}

/* ---- files of the backing directory */

static void make_backing(struct job_world *w, const char *name, const char *text)
{
	char path[256];

	snprintf(path, sizeof(path), "%s/%s", job_world_backing(w), name);
	FILE *f = fopen(path, "w");
	ok(f && fputs(text, f) >= 0 && fclose(f) == 0, "%s is in the backing directory", name);
}

static uint64_t lookup(struct job_world *w, uint32_t node, const char *name)
{
	struct core_entry e;

	return job_lookup(job_world_job(w, node), 1, name, &e) == 0 ? e.ino : 0;
}

static void test_backing(void)
{
	struct job_world *w = job_world_start(3);
	struct open f[3];
	char name[8];

	for (int i = 0; i < 6; i++) { /* at home here and there */
		snprintf(name, sizeof(name), "b%d", i);
		make_backing(w, name, "from outside");
		for (uint32_t n = 0; n < 3; n++)
			is_int(open_at(w, n, lookup(w, n, name), n == 1 ? O_RDWR : O_RDONLY, &f[n]), 0, "opened");
		ok(shows(&f[0], 0, "from outside") && shows(&f[1], 0, "from outside") &&
				shows(&f[2], 0, "from outside"),
			"all read it");
		is_int(put(&f[1], "FROM", 0), 4, "one writes");
		is_int(put(&f[1], " and inside", 12), 11, "and appends");
		ok(shows(&f[1], 0, "FROM outside and inside"), "and sees that");
		is_int(job_fsync(f[1].j, 0, f[1].file, false), 0, "synced");
		for (uint32_t n = 0; n < 3; n++) {
			ok(shows(&f[n], 0, "FROM outside and inside"), "all see it");
			is_int(close_it(&f[n]), 0, "closed");
		}
	}
	job_world_stop(w);
}

/* ---- names that go, sizes that are set */

static bool is_nowhere(struct job_world *w, uint64_t ino)
{
	bool nowhere = true;

	for (uint32_t n = 0; n < 2; n++) {
		struct state *st = store_state(job_world_store(w, n));
		struct share_extent se;
		uint64_t next;
		size_t num;
		struct inode in;

		nowhere = nowhere && state_inode(st, ino, &in) == -ENOENT &&
			  state_share_extents(st, ino, 0, 1 << 20, &se, 1, &num, &next) == 0 && num == 0;
	}
	return nowhere;
}

static void test_unlinked(void)
{
	struct job_world *w = job_world_start(2);
	struct share_extent se;
	struct open a, b;
	struct inode in;
	uint64_t ino = create(w, 0, "f", O_RDWR, &a), next;
	size_t num;

	is_int(open_at(w, 1, lookup(w, 1, "f"), O_RDWR, &b), 0, "opened elsewhere");
	is_int(put(&b, "hello", 0), 5, "written there");
	is_int(close_it(&a), 0, "closed at home");
	is_int(job_unlink(job_world_job(w, 0), 1, "f"), 0, "removed at home");
	job_forget(job_world_job(w, 0), ino, 1);
	ok(shows(&b, 0, "hello"), "who has it open still sees it");
	is_int(job_fsync(b.j, ino, b.file, false), 0, "and may sync it");
	ok(shows(&b, 0, "hello"), "and read it");
	is_int(close_it(&b), 0, "closed");
	job_forget(job_world_job(w, 1), ino, 1);
	loopback_settle(job_world_loopback(w));
	for (int i = 0; i < 1000 && !is_nowhere(w, ino); i++) {
		usleep(10000);
		loopback_settle(job_world_loopback(w));
	}
	is_int(state_inode(store_state(job_world_store(w, 0)), ino, &in), -ENOENT, "then it is gone at home");
	is_int(state_inode(store_state(job_world_store(w, 1)), ino, &in), -ENOENT, "and its layer elsewhere");
	for (uint32_t n = 0; n < 2; n++)
		ok(state_share_extents(store_state(job_world_store(w, n)), ino, 0, 1 << 20, &se, 1, &num, &next) == 0 &&
				num == 0,
			"and its map");
	job_world_stop(w);
}

static int set_size(struct job_world *w, uint32_t node, uint64_t ino, uint64_t size)
{
	struct stat st = { .st_size = (off_t)size };
	struct core_entry e;
	int rc = job_setattr(job_world_job(w, node), ino, &st, CORE_SET_SIZE, NULL, &e);

	return rc ? rc : (uint64_t)e.attr.st_size == size ? 0 : -EPROTO;
}

static void test_truncate(void)
{
	struct job_world *w = job_world_start(2);
	struct open a, b;
	uint64_t ino = create(w, 0, "f", O_RDWR, &a);

	is_int(put(&a, "0123456789", 0), 10, "written at home");
	is_u64(lookup(w, 1, "f"), ino, "found elsewhere");
	is_int(set_size(w, 1, ino, 4), 0, "cut by a node that has not even opened it");
	ok(shows(&a, 0, "0123") && !shows(&a, 0, "01234"), "home sees it");
	is_int(open_at(w, 1, ino, O_RDWR, &b), 0, "opened elsewhere");
	is_int(put(&b, "abcdefgh", 2), 8, "written there");
	is_int(set_size(w, 0, ino, 6), 0, "cut at home");
	ok(shows(&b, 0, "01abcd") || shows(&b, 0, "01abcd"), "both kept what was before");
	ok(!shows(&b, 0, "01abcde"), "and nothing behind");
	is_int(job_fsync(b.j, ino, b.file, false), 0, "synced");
	is_int(set_size(w, 1, ino, 9), 0, "grown");
	char buf[16] = "";
	is_int(job_read(a.j, a.file, buf, 16, 0), 9, "home sees the size");
	ok(memcmp(buf, "01abcd\0\0\0", 9) == 0, "and zeros where there was something once");
	is_int(close_it(&b), 0, "closed");
	is_int(open_at(w, 1, ino, O_RDWR | O_TRUNC, &b), 0, "opened with O_TRUNC");
	is_int(job_read(a.j, a.file, buf, 16, 0), 0, "it is empty for all");
	is_int(close_it(&a) + close_it(&b), 0, "closed");
	job_world_stop(w);
}

/* ---- several nodes at once */

#define BLOCK   5000u
#define BLOCKS  40u
#define RECORD  100u
#define RECORDS 60u

struct worker {
	struct job_world *w;
	uint32_t node, num;
	uint64_t ino, base, stride;
	int flags;
	int (*run)(struct worker *me, struct open *f);
	int result;
	pthread_barrier_t *barrier;
	pthread_t thread;
};

static void *work(void *arg)
{
	struct worker *me = arg;
	struct open f;

	me->result = open_at(me->w, me->node, me->ino, me->flags, &f);
	if (me->result)
		return NULL;
	me->result = me->run(me, &f);
	int rc = close_it(&f);
	me->result = me->result ? me->result : rc;
	return NULL;
}

static int run_all(struct job_world *w, uint32_t num, uint64_t ino, int flags, uint64_t stride,
	int (*run)(struct worker *, struct open *))
{
	struct worker all[NODES] = { { 0 } };
	pthread_barrier_t barrier;
	int rc = 0;

	pthread_barrier_init(&barrier, NULL, num);
	for (uint32_t i = 0; i < num; i++) {
		all[i] = (struct worker){
			.w = w, .node = i, .num = num, .ino = ino, .flags = flags, .run = run, .barrier = &barrier
		};
		all[i].base = stride ? 0 : PLACE_DOMAIN_SIZE - 50000;
		all[i].stride = stride ? stride : BLOCK;
		pthread_create(&all[i].thread, NULL, work, &all[i]);
	}
	for (uint32_t i = 0; i < num; i++) {
		pthread_join(all[i].thread, NULL);
		rc = rc ? rc : all[i].result;
	}
	pthread_barrier_destroy(&barrier);
	return rc;
}

static void make_shared(struct job_world *w, uint64_t ino)
{
	struct open other;

	is_int(open_at(w, 1, ino, O_WRONLY, &other), 0, "opened by another node");
	is_int(close_it(&other), 0, "closed");
}

static int append_records(struct worker *me, struct open *f)
{
	char record[RECORD];

	for (uint32_t i = 0; i < RECORDS; i++) {
		memset(record, (int)('A' + me->node), RECORD);
		if (job_write(f->j, f->file, record, RECORD, 0) != RECORD)
			return -EIO;
	}
	return 0;
}

static void test_appends(void)
{
	struct job_world *w = job_world_start(3);
	struct open f;
	uint64_t ino = create(w, 0, "log", O_RDWR, &f);
	static char all[NODES * RECORDS * RECORD + 1];
	unsigned int whole = 0, of[3] = { 0 };

	make_shared(w, ino); /* a home alone appends where its kernel says */
	is_int(run_all(w, 3, ino, O_WRONLY | O_APPEND, 0, append_records), 0, "three nodes append");
	ssize_t got = job_read(f.j, f.file, all, sizeof(all), 0);
	is_int(got, 3 * RECORDS * RECORD, "all records are there");
	for (ssize_t at = 0; at + (ssize_t)RECORD <= got; at += RECORD) {
		char first = all[at];
		size_t same = 0;

		while (same < RECORD && all[at + (ssize_t)same] == first)
			same++;
		whole += same == RECORD;
		if (first >= 'A' && first < 'D')
			of[first - 'A']++;
	}
	is_int(whole, 3 * RECORDS, "and whole");
	ok(of[0] == RECORDS && of[1] == RECORDS && of[2] == RECORDS, "each as often as written");
	is_int(close_it(&f), 0, "closed");
	job_world_stop(w);
}

static uint8_t byte_of(uint32_t writer, uint32_t round, uint64_t off)
{
	return (uint8_t)(1 + (writer * 31 + round * 7 + off / BLOCK) % 250);
}

static int check_blocks(struct worker *me, struct open *f, uint32_t round)
{
	uint8_t buf[BLOCK];

	for (uint64_t b = 0; b < BLOCKS * me->num; b++) {
		uint64_t off = me->base + b * me->stride;
		uint8_t expected = byte_of((uint32_t)((b + round) % me->num), round, off);

		if (job_read(f->j, f->file, buf, BLOCK, off) != BLOCK)
			return -ENODATA;
		for (size_t i = 0; i < BLOCK; i++)
			if (buf[i] != expected)
				return -EILSEQ;
	}
	return 0;
}

/* Interleaved blocks over the border of a domain; sync, barrier, sync. Each round another node writes a block. */
static int write_blocks(struct worker *me, struct open *f)
{
	uint8_t buf[BLOCK];
	int rc = 0;

	for (uint32_t round = 0; round < 6; round++) {
		for (uint64_t b = 0; rc == 0 && b < BLOCKS * me->num; b++) {
			uint64_t off = me->base + b * me->stride;

			if ((b + round) % me->num != me->node)
				continue;
			memset(buf, byte_of(me->node, round, off), BLOCK);
			if (job_write(f->j, f->file, buf, BLOCK, off) != BLOCK)
				rc = -EIO;
		}
		rc = rc ? rc : job_fsync(f->j, me->ino, f->file, false);
		pthread_barrier_wait(me->barrier);
		rc = rc ? rc : check_blocks(me, f, round);
		pthread_barrier_wait(me->barrier);
	}
	return rc;
}

struct chaos {
	struct job_world *w;
	uint32_t num;
	_Atomic(bool) stop;
};

static void *lose_agents(void *arg)
{
	struct chaos *c = arg;

	for (uint32_t i = 0; !c->stop; i++) {
		loopback_lose(job_world_loopback(c->w), i % c->num);
		usleep(1000);
		loopback_assemble(job_world_loopback(c->w));
		usleep(20000);
	}
	return NULL;
}

static void *restart_last(void *arg)
{
	struct chaos *c = arg;

	for (int i = 0; !c->stop && i < 5; i++) {
		job_world_restart(c->w, c->num - 1);
		usleep(20000);
	}
	return NULL;
}

/* The last node has the file not open, but is home of domains of it. */
static void test_domain_home_dies(void)
{
	struct job_world *w = job_world_start(3);
	struct chaos c = { .w = w, .num = 3 };
	pthread_t thread;
	struct open f;
	uint64_t ino = create(w, 0, "f", O_RDWR, &f);

	pthread_create(&thread, NULL, restart_last, &c);
	is_int(run_all(w, 2, ino, O_RDWR, 1 << 20, write_blocks), 0, "blocks of two nodes while a third one dies");
	c.stop = true;
	pthread_join(thread, NULL);
	is_int(close_it(&f), 0, "closed");
	job_world_stop(w);
}

static void test_blocks(uint32_t num, bool chaos)
{
	struct job_world *w = job_world_start(num);
	struct chaos c = { .w = w, .num = num };
	pthread_t thread;
	struct open f;
	uint64_t ino = create(w, 0, "f", O_RDWR, &f);

	if (chaos)
		pthread_create(&thread, NULL, lose_agents, &c);
	is_int(run_all(w, num, ino, O_RDWR, 0, write_blocks), 0,
		chaos ? "blocks while agents die" : "blocks of all nodes");
	c.stop = true;
	if (chaos)
		pthread_join(thread, NULL);
	is_int(close_it(&f), 0, "closed");
	job_world_stop(w);
}

/* As ROMIO does it: read a span, change every num-th piece of it, write the span. No locks. */
#define SPAN  40000u
#define PIECE 50u

static int sieve_spans(struct worker *me, struct open *f)
{
	static __thread uint8_t buf[SPAN];
	int rc = 0;

	for (uint64_t off = 0; rc == 0 && off < 10 * SPAN; off += SPAN) {
		if (job_read(f->j, f->file, buf, SPAN, off) != SPAN)
			rc = -ENODATA;
		pthread_barrier_wait(me->barrier);
		for (size_t at = me->node * PIECE; at < SPAN; at += me->num * PIECE)
			memset(buf + at, (int)('a' + me->node), PIECE);
		if (rc == 0 && job_write(f->j, f->file, buf, SPAN, off) != SPAN)
			rc = -EIO;
	}
	return rc ? rc : job_fsync(f->j, me->ino, f->file, false);
}

/* ROMIO has no eye for a file that ends in the span: what it has not read it writes all the same. */
static void test_sieve_at_end(void)
{
	struct job_world *w = job_world_start(3);
	static uint8_t buf[SPAN], seen[2 * SPAN];
	struct open a, b, c;
	uint64_t ino = create(w, 0, "f", O_RDWR, &a);

	is_int(open_at(w, 1, ino, O_RDWR, &b), 0, "opened by another node");
	is_int(open_at(w, 2, ino, O_RDWR, &c), 0, "and by a third");
	memset(buf, 'a', SPAN / 2);
	is_int(job_write(a.j, a.file, buf, SPAN / 2, SPAN / 2), SPAN / 2, "the first one writes, and commits nothing");
	memset(buf, 'x', SPAN);
	is_int(job_read(b.j, b.file, buf, SPAN, 0), SPAN, "the second one can read as far");
	is_int(job_read(c.j, c.file, seen, 2 * SPAN, 0), SPAN, "the third one not further");
	memset(buf + PIECE, 'b', PIECE);
	is_int(job_write(b.j, b.file, buf, SPAN, 0), SPAN, "and writes the span back, with a piece of its own");
	is_int(close_it(&a) + close_it(&b), 0, "closed");
	is_int(job_read(c.j, c.file, seen, SPAN, 0), SPAN, "read");
	ok(seen[0] == 0 && seen[PIECE] == 'b' && seen[2 * PIECE] == 0 && seen[SPAN / 2 - 1] == 0, "the piece is there");
	ok(seen[SPAN / 2] == 'a' && seen[SPAN - 1] == 'a', "and what the first one wrote");
	is_int(close_it(&c), 0, "closed");
	job_world_stop(w);
}

/* The span of the last rank goes beyond the end of the file: it has read all but its own last bytes. */
static void test_sieve_beyond_end(void)
{
	struct job_world *w = job_world_start(2);
	static uint8_t buf[SPAN], seen[SPAN + 1];
	const size_t end = SPAN - PIECE;
	struct open a, b;
	uint64_t ino = create(w, 0, "f", O_RDWR, &a);

	memset(buf, 'a', SPAN);
	is_int(job_write(a.j, a.file, buf, end, 0), (int)end, "written");
	is_int(job_fsync(a.j, ino, a.file, false), 0, "synced");
	is_int(open_at(w, 1, ino, O_RDWR, &b), 0, "opened by another node");
	is_int(job_read(b.j, b.file, buf, SPAN, 0), (int)end, "which reads a span that the file ends in");
	is_int(put(&a, "first", 3 * PIECE), 5, "the first one writes to it");
	is_int(job_fsync(a.j, ino, a.file, false), 0, "synced");
	memset(buf + PIECE, 'b', PIECE);
	memset(buf + end, 'b', PIECE);
	is_int(job_write(b.j, b.file, buf, SPAN, 0), SPAN,
		"the other one writes the span back, with pieces of its own");
	is_int(close_it(&b), 0, "closed");
	is_int(job_read(a.j, a.file, seen, SPAN + 1, 0), SPAN, "the file is longer now");
	ok(seen[PIECE - 1] == 'a' && seen[PIECE] == 'b' && seen[2 * PIECE] == 'a' && seen[end - 1] == 'a' &&
			seen[end] == 'b' && seen[SPAN - 1] == 'b',
		"the pieces are there");
	ok(memcmp(seen + 3 * PIECE, "first", 5) == 0, "and what the first one wrote");
	is_int(close_it(&a), 0, "closed");
	job_world_stop(w);
}

static bool is_later(const struct timespec *a, const struct timespec *b)
{
	return a->tv_sec != b->tv_sec ? a->tv_sec > b->tv_sec : a->tv_nsec > b->tv_nsec;
}

/* A rank that writes what was there has changed nothing, either. */
static void test_sieve_unchanged(void)
{
	struct job_world *w = job_world_start(2);
	uint8_t buf[10];
	struct core_entry before, after;
	struct open a, b;
	uint64_t ino = create(w, 0, "f", O_RDWR, &a);

	is_int(open_at(w, 1, ino, O_RDWR, &b), 0, "opened by another node");
	is_int(put(&a, "0123456789", 0), 10, "written");
	is_int(job_fsync(a.j, ino, a.file, false), 0, "synced");
	is_int(job_read(b.j, b.file, buf, sizeof(buf), 0), sizeof(buf), "the other one reads");
	is_int(put(&a, "abc", 2), 3, "the first one changes some of it");
	is_int(close_it(&a), 0, "closed");
	is_int(job_write(b.j, b.file, buf, sizeof(buf), 0), sizeof(buf), "the other one writes back what it has read");
	is_int(job_getattr(a.j, ino, NULL, &before) + job_fsync(b.j, ino, b.file, false), 0, "synced");
	is_int(job_getattr(a.j, ino, NULL, &after), 0, "looked at");
	ok(shows(&b, 0, "01abc56789"), "the change is there");
	ok(is_later(&after.attr.st_mtim, &before.attr.st_mtim), "the file's time is that of the last write");
	is_int(close_it(&b), 0, "closed");
	job_world_stop(w);
}

static void test_visible(void)
{
	struct job_world_options opt = { .num = 2, .settings = "data=log,visible=write" };
	struct job_world *w = job_world_start_with(&opt);
	struct open a, b;
	uint64_t ino = create(w, 0, "f", O_RDWR, &a);

	is_int(open_at(w, 1, ino, O_RDONLY, &b), 0, "opened by a reader");
	is_int(put(&a, "alone", 0), 5, "written by one node");
	ok(shows(&b, 0, "alone"), "seen at once");
	is_int(close_it(&b), 0, "closed");
	is_int(open_at(w, 1, ino, O_RDWR, &b), 0, "opened by a second writer");
	is_int(put(&a, "ALONE", 0), 5, "written");
	ok(shows(&b, 0, "ALONE"), "seen at once");
	is_int(put(&b, "both", 5), 4, "written by the other one");
	ok(shows(&a, 0, "ALONEboth"), "seen at once");
	is_int(close_it(&a) + close_it(&b), 0, "closed");
	job_world_stop(w);
}

static int change_pages(struct worker *me, struct open *f)
{
	static __thread uint8_t buf[4096];
	int rc = 0;

	for (uint64_t off = 0; rc == 0 && off < 20 * 4096; off += 4096) {
		if (job_read(f->j, f->file, buf, 4096, off) != 4096)
			rc = -ENODATA;
		for (size_t at = me->node * 64; at < 4096; at += me->num * 64)
			memset(buf + at, (int)('a' + me->node), 64);
		if (rc == 0 && job_write_page(f->j, f->file, buf, 4096, off) != 4096)
			rc = -EIO;
	}
	pthread_barrier_wait(me->barrier);
	return rc ? rc : job_fsync(f->j, me->ino, f->file, false);
}

static void test_exact(const char *what, size_t size, size_t piece, int (*run)(struct worker *, struct open *))
{
	struct job_world *w = job_world_start(3);
	uint8_t *all = calloc(1, size);
	struct open f;
	uint64_t ino = create(w, 0, "f", O_RDWR, &f);
	size_t wrong = 0;

	memset(all, '.', size);
	is_int(job_write(f.j, f.file, all, size, 0), (int64_t)size, "a file");
	make_shared(w, ino); /* as after a collective open */
	is_int(run_all(w, 3, ino, O_RDWR, 0, run), 0, what);
	is_int(job_read(f.j, f.file, all, size, 0), (int64_t)size, "read");
	for (size_t i = 0; i < size; i++)
		wrong += all[i] != 'a' + i % (piece == PIECE ? SPAN : 4096) / piece % 3;
	is_u64(wrong, 0, "each node's pieces are there");
	is_int(close_it(&f), 0, "closed");
	free(all);
	job_world_stop(w);
}

/* How many bytes at off a node's map has of the writer. */
static uint64_t known_of(struct job_world *w, uint32_t node, uint64_t ino, uint64_t off, uint32_t writer)
{
	struct share_extent e;
	uint64_t next;
	size_t num;
	int rc = state_share_extents(store_state(job_world_store(w, node)), ino, off, 4096, &e, 1, &num, &next);

	return rc == 0 && num == 1 && e.off == off && e.node == writer ? e.len : 0;
}

/* Of what a node has in its own domains the next node knows, too; of what others are home of, they alone. */
static void test_witness(void)
{
	struct job_world *w = job_world_start(3);
	struct open a, b;
	uint64_t ino = create(w, 0, "f", O_RDWR, &a), own = 0, other = 0;

	is_int(open_at(w, 1, lookup(w, 1, "f"), O_RDWR, &b), 0, "opened elsewhere");
	while (place_domain(ino, own, PLACE_DOMAIN_SIZE, 3) != 1)
		own += PLACE_DOMAIN_SIZE;
	while (place_domain(ino, other, PLACE_DOMAIN_SIZE, 3) != 0)
		other += PLACE_DOMAIN_SIZE;
	is_int(put(&b, "mine", own), 4, "written to its own domain");
	is_int(put(&b, "yours", other), 5, "and to another's");
	is_int(job_fsync(b.j, ino, b.file, false), 0, "synced");
	is_u64(known_of(w, 1, ino, own, 1), 4, "the home of the domain knows");
	is_u64(known_of(w, 2, ino, own, 1), 4, "and so does the next node");
	is_u64(known_of(w, 0, ino, other, 1), 5, "the home of the other domain knows of its own");
	is_u64(known_of(w, 0, ino, own, 1) + known_of(w, 2, ino, other, 1), 0, "and nobody else of anything");
	ok(put(&b, "to", own + 100) == 2 && put(&b, "gether", own + 102) == 6, "two pieces that touch");
	is_int(job_fsync(b.j, ino, b.file, false), 0, "synced");
	is_u64(known_of(w, 2, ino, own + 100, 1), 8, "are one to the witness");
	is_int(put(&b, "mine again", own), 10, "written once more");
	is_int(close_it(&b), 0, "closed");
	for (int i = 0; i < 3000 && known_of(w, 2, ino, own, 1) != 10; i++)
		usleep(10000);
	is_u64(known_of(w, 2, ino, own, 1), 10, "the next node gets to know of that");
	is_int(close_it(&a), 0, "closed");
	job_world_stop(w);
}

int main(int argc, char **argv)
{
	unsigned int rounds = argc > 1 ? (unsigned int)atoi(argv[1]) : 1,
		     from = argc > 2 ? (unsigned int)atoi(argv[2]) : 1;

	test_unshared();
	test_no_messages();
	test_shared();
	test_backing();
	test_unlinked();
	test_witness();
	test_truncate();
	test_appends();
	test_blocks(2, false);
	test_blocks(4, false);
	test_blocks(3, true);
	test_domain_home_dies();
	test_sieve_at_end();
	test_sieve_beyond_end();
	test_sieve_unchanged();
	test_visible();
	test_exact("three nodes sieve", 10 * SPAN, PIECE, sieve_spans);
	test_exact("three nodes change pages", 20 * 4096, 64, change_pages);
	for (unsigned int i = from; i < from + rounds; i++)
		for (uint32_t num = 2; num <= NODES; num++) {
			test_random(num, 0, i * 1000 + num, 400, false);
			test_random(num, PLACE_DOMAIN_SIZE - SIZE / 2, i * 2000 + num, 400, false);
			test_random(num, PLACE_DOMAIN_SIZE - SIZE / 2, i * 3000 + num, 400, true);
		}
	return done_testing();
}
