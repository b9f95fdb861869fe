/* SPDX-License-Identifier: GPL-3.0-or-later */
/* Data of files in a job: several nodes in one process, joined by the loopback, one after the other. test-job-together: at once. */
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
#include "tests/lib/opened.h"
#include "tests/lib/tap.h"

/* A file that only its home writes is read elsewhere. */
static void test_unshared(void)
{
	struct job_world *w = job_world_start(2);
	struct opened a, b;
	uint64_t ino = opened_create(w, 0, "f", O_RDWR, &a);

	is_int(opened_put(&a, "hello", 0), 5, "written at home");
	is_int(opened_at(w, 1, ino, O_RDONLY, &b), 0, "opened elsewhere");
	ok(opened_shows(&b, 0, "hello"), "and read there");
	is_int(opened_put(&a, "HE", 0), 2, "written at home");
	is_int(job_fsync(a.j, ino, a.file, false), 0, "synced");
	ok(opened_shows(&b, 0, "HEllo"), "the open file shows it");
	is_int(opened_close(&b), 0, "closed");
	is_int(opened_close(&a), 0, "closed");
	job_world_stop(w);
}

static void test_no_messages(void)
{
	struct job_world *w = job_world_start(2);
	struct job *j = job_world_job(w, 0);
	struct opened a;
	uint64_t ino = opened_create(w, 0, "f", O_RDWR, &a), before = j->share->messages;

	is_int(opened_put(&a, "hello", 0), 5, "written at home");
	ok(opened_shows(&a, 0, "hello"), "read");
	is_int(job_fsync(a.j, ino, a.file, false), 0, "synced");
	is_int(opened_close(&a), 0, "closed");
	is_int(opened_at(w, 0, ino, O_RDWR | O_TRUNC, &a), 0, "opened anew");
	is_int(opened_close(&a), 0, "closed");
	is_u64(j->share->messages, before, "no other node was asked for the data of a file of one node");
	job_world_stop(w);
}

static void test_shared(void)
{
	struct job_world *w = job_world_start(3);
	struct opened f[3];
	uint64_t ino = opened_create(w, 0, "f", O_RDWR, &f[0]);

	is_int(opened_put(&f[0], "0000000000", 0), 10, "written at home");
	is_int(opened_at(w, 1, ino, O_RDWR, &f[1]), 0, "opened by another node, too");
	is_int(opened_at(w, 2, ino, O_RDWR, &f[2]), 0, "and by a third");
	is_int(opened_put(&f[1], "111", 2), 3, "written there");
	ok(opened_shows(&f[1], 0, "0011100000"), "own writes are seen at once");
	is_int(opened_put(&f[2], "22", 6), 2, "written there");
	is_int(opened_put(&f[0], "x", 9), 1, "and at home");
	is_int(job_fsync(f[1].j, ino, f[1].file, false), 0, "synced");
	ok(opened_shows(&f[0], 0, "001110000x"), "home sees it");
	ok(opened_shows(&f[2], 0, "0011102200"), "the third sees it, and its own");
	is_int(job_fsync(f[2].j, ino, f[2].file, false), 0, "synced");
	is_int(job_fsync(f[0].j, ino, f[0].file, false), 0, "synced");
	for (int i = 0; i < 3; i++)
		ok(opened_shows(&f[i], 0, "001110220x"), "node %d sees all", i);
	is_int(opened_put(&f[2], "longer", 12), 6, "written past the end");
	is_int(job_fsync(f[2].j, ino, f[2].file, false), 0, "synced");
	for (int i = 0; i < 3; i++)
		is_u64(shared_size(f[i].j, f[i].file->shared), 18, "the size is known everywhere");
	for (int i = 0; i < 3; i++)
		is_int(opened_close(&f[i]), 0, "closed");
	is_int(opened_at(w, 1, ino, O_RDONLY, &f[1]), 0, "opened again");
	ok(opened_shows(&f[1], 12, "longer"), "all is there");
	is_int(opened_close(&f[1]), 0, "closed");
	job_world_stop(w);
}

/* ---- a random file against a model of its bytes */

#define SIZE  200000u
#define NODES 4

struct model {
	struct job_world *w;
	uint32_t num;
	uint64_t ino, base, seed;
	struct opened open[NODES];
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
	int rc = opened_close(&m->open[node]);

	check(m, rc == 0, "close", node, (uint64_t)-rc, 0);
	model_commit(m, node);
	rc = opened_at(m->w, node, m->ino, O_RDWR, &m->open[node]);
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
	rc = opened_at(m->w, node, m->ino, O_RDWR, &m->open[node]);
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
	m->ino = opened_create(m->w, 0, "f", O_RDWR, &m->open[0]);
	for (uint32_t i = 1; i < num; i++)
		check(m, opened_at(m->w, i, m->ino, O_RDWR, &m->open[i]) == 0, "open", i, 0, 0);
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
		opened_close(&m->open[i]);
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
	struct opened f[3];
	char name[8];

	for (int i = 0; i < 6; i++) { /* at home here and there */
		snprintf(name, sizeof(name), "b%d", i);
		make_backing(w, name, "from outside");
		for (uint32_t n = 0; n < 3; n++)
			is_int(opened_at(w, n, lookup(w, n, name), n == 1 ? O_RDWR : O_RDONLY, &f[n]), 0, "opened");
		ok(opened_shows(&f[0], 0, "from outside") && opened_shows(&f[1], 0, "from outside") &&
				opened_shows(&f[2], 0, "from outside"),
			"all read it");
		is_int(opened_put(&f[1], "FROM", 0), 4, "one writes");
		is_int(opened_put(&f[1], " and inside", 12), 11, "and appends");
		ok(opened_shows(&f[1], 0, "FROM outside and inside"), "and sees that");
		is_int(job_fsync(f[1].j, 0, f[1].file, false), 0, "synced");
		for (uint32_t n = 0; n < 3; n++) {
			ok(opened_shows(&f[n], 0, "FROM outside and inside"), "all see it");
			is_int(opened_close(&f[n]), 0, "closed");
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
	struct opened a, b;
	struct inode in;
	uint64_t ino = opened_create(w, 0, "f", O_RDWR, &a), next;
	size_t num;

	is_int(opened_at(w, 1, lookup(w, 1, "f"), O_RDWR, &b), 0, "opened elsewhere");
	is_int(opened_put(&b, "hello", 0), 5, "written there");
	is_int(opened_close(&a), 0, "closed at home");
	is_int(job_unlink(job_world_job(w, 0), 1, "f"), 0, "removed at home");
	job_forget(job_world_job(w, 0), ino, 1);
	ok(opened_shows(&b, 0, "hello"), "who has it open still sees it");
	is_int(job_fsync(b.j, ino, b.file, false), 0, "and may sync it");
	ok(opened_shows(&b, 0, "hello"), "and read it");
	is_int(opened_close(&b), 0, "closed");
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
	struct opened a, b;
	uint64_t ino = opened_create(w, 0, "f", O_RDWR, &a);

	is_int(opened_put(&a, "0123456789", 0), 10, "written at home");
	is_u64(lookup(w, 1, "f"), ino, "found elsewhere");
	is_int(set_size(w, 1, ino, 4), 0, "cut by a node that has not even opened it");
	ok(opened_shows(&a, 0, "0123") && !opened_shows(&a, 0, "01234"), "home sees it");
	is_int(opened_at(w, 1, ino, O_RDWR, &b), 0, "opened elsewhere");
	is_int(opened_put(&b, "abcdefgh", 2), 8, "written there");
	is_int(set_size(w, 0, ino, 6), 0, "cut at home");
	ok(opened_shows(&b, 0, "01abcd") || opened_shows(&b, 0, "01abcd"), "both kept what was before");
	ok(!opened_shows(&b, 0, "01abcde"), "and nothing behind");
	is_int(job_fsync(b.j, ino, b.file, false), 0, "synced");
	is_int(set_size(w, 1, ino, 9), 0, "grown");
	char buf[16] = "";
	is_int(job_read(a.j, a.file, buf, 16, 0), 9, "home sees the size");
	ok(memcmp(buf, "01abcd\0\0\0", 9) == 0, "and zeros where there was something once");
	is_int(opened_close(&b), 0, "closed");
	is_int(opened_at(w, 1, ino, O_RDWR | O_TRUNC, &b), 0, "opened with O_TRUNC");
	is_int(job_read(a.j, a.file, buf, 16, 0), 0, "it is empty for all");
	is_int(opened_close(&a) + opened_close(&b), 0, "closed");
	job_world_stop(w);
}

static void test_visible(void)
{
	struct job_world_options opt = { .num = 2, .settings = "data=log,visible=write" };
	struct job_world *w = job_world_start_with(&opt);
	struct opened a, b;
	uint64_t ino = opened_create(w, 0, "f", O_RDWR, &a);

	is_int(opened_at(w, 1, ino, O_RDONLY, &b), 0, "opened by a reader");
	is_int(opened_put(&a, "alone", 0), 5, "written by one node");
	ok(opened_shows(&b, 0, "alone"), "seen at once");
	is_int(opened_close(&b), 0, "closed");
	is_int(opened_at(w, 1, ino, O_RDWR, &b), 0, "opened by a second writer");
	is_int(opened_put(&a, "ALONE", 0), 5, "written");
	ok(opened_shows(&b, 0, "ALONE"), "seen at once");
	is_int(opened_put(&b, "both", 5), 4, "written by the other one");
	ok(opened_shows(&a, 0, "ALONEboth"), "seen at once");
	is_int(opened_close(&a) + opened_close(&b), 0, "closed");
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
	struct opened a, b;
	uint64_t ino = opened_create(w, 0, "f", O_RDWR, &a), own = 0, other = 0, len;

	is_int(opened_at(w, 1, lookup(w, 1, "f"), O_RDWR, &b), 0, "opened elsewhere");
	while (place_domain(ino, own, PLACE_DOMAIN_SIZE, 3) != 1)
		own += PLACE_DOMAIN_SIZE;
	while (place_domain(ino, other, PLACE_DOMAIN_SIZE, 3) != 0)
		other += PLACE_DOMAIN_SIZE;
	is_int(opened_put(&b, "mine", own), 4, "written to its own domain");
	is_int(opened_put(&b, "yours", other), 5, "and to another's");
	is_int(job_fsync(b.j, ino, b.file, false), 0, "synced");
	is_u64(known_of(w, 1, ino, own, 1), 4, "the home of the domain knows");
	is_u64(known_of(w, 2, ino, own, 1), 4, "and so does the next node");
	is_u64(known_of(w, 0, ino, other, 1), 5, "the home of the other domain knows of its own");
	is_u64(known_of(w, 0, ino, own, 1) + known_of(w, 2, ino, other, 1), 0, "and nobody else of anything");
	ok(opened_put(&b, "to", own + 100) == 2 && opened_put(&b, "gether", own + 102) == 6, "two pieces that touch");
	is_int(job_fsync(b.j, ino, b.file, false), 0, "synced");
	len = known_of(w, 2, ino, own + 100, 1);
	ok(len == 8 || (len == 2 && known_of(w, 2, ino, own + 102, 1) == 6),
		"are one to the witness, if they were written at once");
	is_int(opened_put(&b, "not", own + 200), 3, "a piece");
	usleep(5000);
	is_int(opened_put(&b, "together", own + 203), 8, "and one behind it, later");
	is_int(job_fsync(b.j, ino, b.file, false), 0, "synced");
	is_u64(known_of(w, 2, ino, own + 200, 1), 3, "stay two: what another node wrote in between is not under both");
	is_int(opened_put(&b, "mine again", own), 10, "written once more");
	is_int(opened_close(&b), 0, "closed");
	for (int i = 0; i < 3000 && known_of(w, 2, ino, own, 1) != 10; i++)
		usleep(10000);
	is_u64(known_of(w, 2, ino, own, 1), 10, "the next node gets to know of that");
	is_int(opened_close(&a), 0, "closed");
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
	test_visible();
	for (unsigned int i = from; i < from + rounds; i++)
		for (uint32_t num = 2; num <= NODES; num++) {
			test_random(num, 0, i * 1000 + num, 400, false);
			test_random(num, PLACE_DOMAIN_SIZE - SIZE / 2, i * 2000 + num, 400, false);
			test_random(num, PLACE_DOMAIN_SIZE - SIZE / 2, i * 3000 + num, 400, true);
		}
	return done_testing();
}
