/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Reading ahead of files of other nodes: never anything but what reading without it gives, whoever writes meanwhile, and
 * never so much memory that others have to wait.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fs/job/private.h"
#include "format/base/clock.h"
#include "fs/job/share.h"
#include "tests/lib/job_world.h"
#include "tests/lib/tap.h"

#define SIZE    (6u << 20)
#define NODES   3u
#define STEP    (128u << 10) /* what the kernel asks for at once, at least */
#define READERS 3u
#define BUFFERS 8u /* of the loopback */

static const struct core_cred cred = { 0 };

struct file { /* open on all nodes, and what it should hold */
	struct job_world *w;
	uint64_t ino, seed;
	struct job_file *open[NODES];
	uint8_t bytes[SIZE]; /* committed */
	uint8_t own[NODES][SIZE];
	uint16_t when[SIZE], own_when[NODES][SIZE]; /* number of the write; 0: not of own, or committed */
	uint16_t num_writes;
	unsigned int wrong;
};

static uint64_t below(struct file *f, uint64_t n)
{
	f->seed ^= f->seed << 13;
	f->seed ^= f->seed >> 7;
	f->seed ^= f->seed << 17;
	return f->seed % n;
}

static void wrong(struct file *f, const char *what, uint32_t node, uint64_t off)
{
	if (f->wrong++ < 10)
		printf("# %s at node %u: %llu\n", what, node, (unsigned long long)off);
}

static struct job *job_at(struct file *f, uint32_t node)
{
	return job_world_job(f->w, node);
}

static int open_at(struct file *f, uint32_t node, int flags)
{
	struct core_open_reply reply;

	return job_open(job_at(f, node), f->ino, flags, &f->open[node], &reply);
}

static int close_at(struct file *f, uint32_t node)
{
	int rc = job_flush(job_at(f, node), f->open[node]);

	job_release(job_at(f, node), f->open[node]);
	f->open[node] = NULL;
	return rc;
}

static void write_at(struct file *f, uint32_t node, uint64_t off, size_t len)
{
	for (size_t i = 0; i < len; i++)
		f->own[node][off + i] = (uint8_t)below(f, 256);
	f->num_writes++;
	for (size_t i = 0; i < len; i++)
		f->own_when[node][off + i] = f->num_writes;
	if (job_write(job_at(f, node), f->open[node], f->own[node] + off, len, off) != (ssize_t)len)
		wrong(f, "write", node, off);
}

/* Own bytes count, or will, where they were written later. */
static bool shows_own(const struct file *f, uint32_t node, uint64_t at)
{
	return f->own_when[node][at] > f->when[at];
}

static void commit_at(struct file *f, uint32_t node)
{
	if (job_fsync(job_at(f, node), f->ino, f->open[node], false) != 0)
		wrong(f, "fsync", node, 0);
	for (size_t i = 0; i < SIZE; i++)
		if (shows_own(f, node, i)) {
			f->bytes[i] = f->own[node][i];
			f->when[i] = f->own_when[node][i];
		}
	memset(f->own_when[node], 0, sizeof(f->own_when[node]));
}

static void compare(struct file *f, uint32_t node, const uint8_t *got, uint64_t off, size_t len)
{
	for (size_t i = 0; i < len; i++)
		if (got[i] != (shows_own(f, node, off + i) ? f->own[node][off + i] : f->bytes[off + i])) {
			wrong(f, "byte", node, off + i);
			return;
		}
}

/* True: the bytes were taken from where they had been fetched to. */
static bool read_at(struct file *f, uint32_t node, uint64_t off, size_t len)
{
	uint8_t *buf = malloc(len);
	struct job_bytes where;
	ssize_t got = job_read_bytes(job_at(f, node), f->open[node], false, buf, len, off, &where);
	size_t expected = off + len < SIZE ? len : SIZE - off;
	bool lent = where.lent;

	if (got != (ssize_t)expected)
		wrong(f, "read", node, off);
	else
		compare(f, node, where.at, off, expected);
	job_bytes_end(&where);
	free(buf);
	return lent;
}

/* How many of the reads were lent. */
static unsigned int scan(struct file *f, uint32_t node, uint64_t from, size_t step)
{
	unsigned int lent = 0;

	for (uint64_t off = from; off < SIZE; off += step)
		lent += read_at(f, node, off, step);
	return lent;
}

static void make(struct file *f, const char *name)
{
	struct core_open_reply reply;
	struct core_entry e;

	is_int(job_create_file(job_at(f, 0), 1, name, 0644, O_RDWR, cred, &e, &f->open[0], &reply), 0, "made");
	f->ino = e.ino;
}

/* A file with bytes of node 0 all over. */
static struct file *start(uint64_t seed, int flags)
{
	struct file *f = calloc(1, sizeof(*f));

	f->w = job_world_start(NODES);
	f->seed = seed;
	make(f, "f");
	for (uint64_t off = 0; off < SIZE; off += 3 * STEP)
		write_at(f, 0, off, 3 * STEP);
	commit_at(f, 0);
	for (uint32_t node = 1; node < NODES; node++)
		is_int(open_at(f, node, flags), 0, "opened elsewhere");
	return f;
}

static void stop(struct file *f, const char *what)
{
	ok(f->wrong == 0, "%s: all reads are right", what);
	for (uint32_t node = 0; node < NODES; node++)
		if (f->open[node])
			is_int(close_at(f, node), 0, "closed");
	job_world_stop(f->w);
	free(f);
}

/* ---- one reader */

static void test_sequential(void)
{
	struct file *f = start(1, O_RDONLY);
	uint64_t before = job_at(f, 1)->share->messages;

	ok(scan(f, 1, 0, STEP) >= SIZE / STEP / 2, "who reads on gets what was fetched ahead");
	ok(job_at(f, 1)->share->messages - before <= SIZE / SHARE_WINDOW + 1, "places are asked for by windows, once");
	scan(f, 1, 0, 4096 * 5 + 1);
	ok(!read_at(f, 2, SIZE / 2, 4096), "a read at random fetches what it needs");
	stop(f, "from front to back");
}

/* What is known to be fetched is overwritten: by its home, by another node, by the reader himself. */
static void test_news(void)
{
	struct file *f = start(2, O_RDWR);

	scan(f, 1, 0, STEP);
	for (uint32_t writer = 0; writer < NODES; writer++) {
		write_at(f, writer, SIZE - 4 * STEP - 1000 * writer, 3 * STEP);
		scan(f, 1, SIZE / 2, STEP);
		commit_at(f, writer);
		scan(f, 1, SIZE / 2, STEP);
	}
	stop(f, "overwritten");
}

/* Nobody who reads at random has to wait for what others have fetched ahead. */
static void test_bounded(void)
{
	struct file *f = start(3, O_RDONLY);
	struct peers_buffer taken[BUFFERS];
	unsigned int num = 0;

	scan(f, 1, 0, STEP);
	loopback_settle(job_world_loopback(f->w));
	while (num < BUFFERS && peers_buffer_try(job_world_peers(f->w, 1), NULL, 0, &taken[num]) == 0)
		num++;
	ok(num >= BUFFERS / 2, "half of the buffers are left to others");
	peers_buffer_put(job_world_peers(f->w, 1), &taken[--num]);
	scan(f, 1, 0, STEP);
	while (num > 0)
		peers_buffer_put(job_world_peers(f->w, 1), &taken[--num]);
	is_int(close_at(f, 1), 0, "closed");
	while (num < BUFFERS && peers_buffer_try(job_world_peers(f->w, 1), NULL, 0, &taken[num]) == 0)
		num++;
	is_int(num, BUFFERS, "and all, when it is closed");
	while (num > 0)
		peers_buffer_put(job_world_peers(f->w, 1), &taken[--num]);
	stop(f, "with few buffers");
}

/* ---- several at once, as the kernel asks */

struct reader {
	struct file *f;
	uint32_t node, index;
	size_t step;
	pthread_t thread;
};

static void *read_part(void *arg)
{
	struct reader *r = arg;

	for (uint64_t off = r->index * r->step; off < SIZE; off += READERS * r->step)
		read_at(r->f, r->node, off, r->step);
	return NULL;
}

static void scan_together(struct file *f, uint32_t node, size_t step)
{
	struct reader all[READERS];

	for (uint32_t i = 0; i < READERS; i++) {
		all[i] = (struct reader){ .f = f, .node = node, .index = i, .step = step };
		pthread_create(&all[i].thread, NULL, read_part, &all[i]);
	}
	for (uint32_t i = 0; i < READERS; i++)
		pthread_join(all[i].thread, NULL);
}

/* ---- at random */

static void do_write(struct file *f, uint32_t node)
{
	uint64_t off = below(f, SIZE - 1), len = 1 + below(f, below(f, 2) ? 300 : 300000);

	write_at(f, node, off, len < SIZE - off ? len : SIZE - off);
}

static void one_step(struct file *f, bool losses)
{
	uint32_t node = (uint32_t)below(f, NODES);

	switch (below(f, losses ? 10 : 9)) {
	case 0: scan(f, node, below(f, SIZE), 1 + below(f, 3 * STEP) + 20000); break;
	case 1: scan_together(f, node, STEP); break;
	case 2: read_at(f, node, below(f, SIZE), 1 + below(f, 2 << 20)); break;
	case 3: commit_at(f, node); break;
	case 9: /* agents die, and others come */
		loopback_lose(job_world_loopback(f->w), (uint32_t)below(f, NODES));
		loopback_assemble(job_world_loopback(f->w));
		break;
	default: do_write(f, node);
	}
}

static void test_random(uint64_t seed, bool losses)
{
	struct file *f = start(seed, O_RDWR);

	for (uint32_t node = 0; node < NODES; node++) /* no commits but ours */
		job_world_job(f->w, node)->share->tell_usec = UINT64_MAX;
	for (unsigned int i = 0; i < 120 && f->wrong == 0; i++)
		one_step(f, losses);
	stop(f, losses ? "at random, while agents die" : "at random");
}

/* ---- who has bytes that nobody has asked for hangs */

/* Its places are known to another node than that one. */
static void make_not_by(struct file *f, uint32_t node)
{
	char name[8] = "f0";

	for (make(f, name); place_domain(f->ino, 0, PLACE_DOMAIN_SIZE, NODES) == node; make(f, name)) {
		job_release(job_at(f, 0), f->open[0]);
		name[1]++;
	}
}

/* Blocks of two nodes in turn; the reader wants those of one, which are fetched ahead together with the others'. */
static void test_hanging(void)
{
	struct file *f = calloc(1, sizeof(*f));
	unsigned int lent = 0;

	f->w = job_world_start(NODES);
	f->seed = 10;
	make_not_by(f, 2);
	is_int(open_at(f, 1, O_RDONLY), 0, "opened by the reader");
	is_int(open_at(f, 2, O_RDWR), 0, "and by another writer");
	for (uint64_t off = 0; off < SIZE; off += STEP)
		write_at(f, off / STEP % 2 ? 2 : 0, off, STEP);
	commit_at(f, 0);
	commit_at(f, 2);
	loopback_set_hanging(job_world_loopback(f->w), 2, true);
	uint64_t begun = clock_usec();
	for (uint64_t off = 0; off < SIZE; off += 2 * STEP)
		lent += read_at(f, 1, off, STEP);
	ok(clock_usec() - begun < 30000000, "nobody waits for a node whose bytes he does not want");
	ok(lent >= 4, "and of others is fetched ahead as ever");
	loopback_set_hanging(job_world_loopback(f->w), 2, false);
	scan(f, 1, 0, STEP);
	stop(f, "beside a node that hangs");
}

/* ---- who has the bytes goes while they are read */

struct losing {
	struct file *f;
	_Atomic(bool) stop;
};

static void *lose_agents(void *arg)
{
	struct losing *l = arg;

	for (uint32_t i = 0; !l->stop; i++) {
		loopback_lose(job_world_loopback(l->f->w), i % NODES);
		usleep(500);
		loopback_assemble(job_world_loopback(l->f->w));
		usleep(3000);
	}
	return NULL;
}

static void test_losses(void)
{
	struct file *f = start(5, O_RDONLY);
	struct losing l = { .f = f };
	pthread_t thread;

	pthread_create(&thread, NULL, lose_agents, &l);
	for (int i = 0; i < 8; i++)
		scan_together(f, 1 + (uint32_t)i % 2, STEP);
	l.stop = true;
	pthread_join(thread, NULL);
	stop(f, "agents die under readers");
}

static void test_holder_dies(void)
{
	struct file *f = start(6, O_RDONLY);

	read_at(f, 1, 0, STEP);
	read_at(f, 1, STEP, STEP);
	job_release(job_at(f, 0), f->open[0]);
	f->open[0] = NULL;
	job_world_restart(f->w, 0);
	scan(f, 1, 2 * STEP, STEP);
	scan(f, 2, 0, STEP);
	stop(f, "the holder's daemon is another one");
}

/* A byte of what node 0 holds is another one. */
static void damage(struct file *f, uint64_t off)
{
	struct store *store = job_world_store(f->w, 0);
	char path[4200], byte = 0;
	struct extent e;
	uint64_t next;
	size_t num;

	is_int(state_extents(store_state(store), f->ino, off, 3 * STEP, &e, 1, &num, &next), 0, "there is an extent");
	snprintf(path, sizeof(path), "%s/segment/%08u.seg", store_path(store), (unsigned int)e.segment);
	int fd = open(path, O_RDWR);
	off_t at = (off_t)(e.segment_off + (off - e.off));
	ok(fd >= 0 && e.whole && pread(fd, &byte, 1, at) == 1 && (byte ^= 1, pwrite(fd, &byte, 1, at)) == 1, "damaged");
	close(fd);
}

/* A chunk that is not what was promised is not shown, and hides nothing else. */
static void test_damage(void)
{
	struct file *f = start(7, O_RDONLY);
	uint8_t *buf = malloc(3 * STEP);

	damage(f, 24 * STEP); /* the extent, whole, lies in the chunk that begins there */
	for (uint64_t off = 0; off < 24 * STEP; off += 3 * STEP)
		read_at(f, 1, off, 3 * STEP);
	is_int(job_read(job_at(f, 1), f->open[1], buf, 3 * STEP, 24 * STEP), -EIO, "damage is found");
	for (uint64_t off = 27 * STEP; off < SIZE; off += 3 * STEP)
		read_at(f, 1, off, 3 * STEP);
	free(buf);
	stop(f, "around a damaged extent");
}

/* There is nothing to fetch of a file that the backing directory has; nobody is asked. */
static void test_outside(void)
{
	struct file *f = start(9, O_RDONLY);
	struct core_open_reply reply;
	struct job_file *file = NULL;
	char path[300], buf[4096];
	struct core_entry e;
	uint64_t before;
	ssize_t got = 1;

	for (int i = 0; i < 3; i++) { /* at home here or there */
		snprintf(path, sizeof(path), "%s/b%d", job_world_backing(f->w), i);
		FILE *out = fopen(path, "w");
		ok(out && fwrite(f->bytes, 1, SIZE, out) == SIZE && fclose(out) == 0,
			"a file of the backing directory");
		is_int(job_lookup(job_at(f, 1), 1, strrchr(path, '/') + 1, &e), 0, "found");
		is_int(job_open(job_at(f, 1), e.ino, O_RDONLY, &file, &reply), 0, "opened");
		before = job_at(f, 1)->share->messages;
		for (uint64_t off = 0; off < SIZE && got > 0; off += (uint64_t)got) {
			got = job_read(job_at(f, 1), file, buf, sizeof(buf), off);
			if (got != sizeof(buf) || memcmp(buf, f->bytes + off, sizeof(buf)) != 0)
				wrong(f, "backing byte", 1, off);
		}
		is_u64(job_at(f, 1)->share->messages, before, "read without a message");
		job_release(job_at(f, 1), file);
	}
	stop(f, "files of the backing directory");
}

/* Whether node's kernel is told to read past its cache. */
static bool is_direct(struct file *f, uint32_t node)
{
	struct core_open_reply reply = { 0 };
	struct job_file *file;

	is_int(job_open(job_at(f, node), f->ino, O_RDONLY, &file, &reply), 0, "opened");
	job_release(job_at(f, node), file);
	return reply.direct_io;
}

static void test_large(void)
{
	struct file *f = start(8, O_RDONLY);

	for (uint32_t node = 0; node < NODES; node++)
		core_set_kernel(job_world_core(f->w, node), &(struct core_kernel){ .direct_mmap = true });
	ok(!is_direct(f, 1), "a file of another node goes through the page cache");
	is_int(job_write(job_at(f, 0), f->open[0], "x", 1, 64 << 20), 1, "it becomes large");
	is_int(job_fsync(job_at(f, 0), f->ino, f->open[0], false), 0, "and that is told");
	ok(is_direct(f, 1), "then it does not");
	ok(!is_direct(f, 0), "but at its home");
	core_set_kernel(job_world_core(f->w, 1), &(struct core_kernel){ 0 });
	ok(!is_direct(f, 1), "and where it could not be mapped");
	stop(f, "a large file");
}

int main(int argc, char **argv)
{
	unsigned int rounds = argc > 1 ? (unsigned int)atoi(argv[1]) : 1;

	test_sequential();
	test_news();
	test_bounded();
	test_losses();
	test_holder_dies();
	test_damage();
	test_hanging();
	test_large();
	test_outside();
	for (unsigned int i = 1; i <= rounds; i++) {
		test_random(i * 1000 + 7, false);
		test_random(i * 1000 + 8, true);
	}
	return done_testing();
}
