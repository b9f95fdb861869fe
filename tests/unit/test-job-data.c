/* SPDX-License-Identifier: GPL-3.0-or-later */
/* Data of files in a job: several nodes in one process, joined by the loopback. */
#include <errno.h>
#include <fcntl.h>
#include <linux/falloc.h>
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
	uint8_t own[NODES][SIZE], mask[NODES][SIZE]; /* written and not committed */
	size_t own_end[NODES];
	unsigned int wrong;
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

static void model_commit(struct model *m, uint32_t node)
{
	for (size_t i = 0; i < SIZE; i++)
		if (m->mask[node][i])
			m->bytes[i] = m->own[node][i];
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

static void do_read(struct model *m, uint32_t node)
{
	static uint8_t buf[SIZE];
	size_t off = below(m, SIZE), len = 1 + below(m, SIZE - off), size = view_size(m, node);
	size_t expected = off >= size ? 0 : len < size - off ? len : size - off;
	ssize_t got = job_read(m->open[node].j, m->open[node].file, buf, len, m->base + off);

	check(m, got == (ssize_t)expected, "read", node, (uint64_t)got, expected);
	for (size_t i = 0; got > 0 && i < (size_t)got && i < expected; i++) {
		uint8_t e = m->mask[node][off + i] ? m->own[node][off + i] : m->bytes[off + i];

		if (buf[i] != e) {
			check(m, false, "byte", node, off + i, (uint64_t)buf[i] << 8 | e);
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
	memset(m->mask[node] + off, 1, len);
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
	memset(m->mask[node] + off, 1, len);
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

	*m = (struct model){ .w = job_world_start(num), .num = num, .base = base, .seed = seed };
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

int main(int argc, char **argv)
{
	unsigned int rounds = argc > 1 ? (unsigned int)atoi(argv[1]) : 1,
		     from = argc > 2 ? (unsigned int)atoi(argv[2]) : 1;

	test_unshared();
	test_no_messages();
	test_shared();
	for (unsigned int i = from; i < from + rounds; i++)
		for (uint32_t num = 2; num <= NODES; num++) {
			test_random(num, 0, i * 1000 + num, 400, false);
			test_random(num, PLACE_DOMAIN_SIZE - SIZE / 2, i * 2000 + num, 400, false);
			test_random(num, PLACE_DOMAIN_SIZE - SIZE / 2, i * 3000 + num, 400, true);
		}
	return done_testing();
}
