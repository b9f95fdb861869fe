/* SPDX-License-Identifier: GPL-3.0-or-later */
/* Pages that kernels keep of files that other nodes write, too; data and holes of such files. */
#include <errno.h>
#include <fcntl.h>
#include <linux/falloc.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "fs/job/private.h"
#include "fs/job/share.h"
#include "tests/lib/job_world.h"
#include "tests/lib/tap.h"

#define NODES 3u

struct file { /* made by node 0 */
	struct job_world *w;
	uint64_t ino;
	struct job_file *open[NODES];
};

static struct job *job_at(const struct file *f, uint32_t node)
{
	return job_world_job(f->w, node);
}

static void make(struct file *f)
{
	struct core_open_reply reply;
	struct core_entry e = { 0 };

	*f = (struct file){ .w = job_world_start(NODES) };
	is_int(job_create_file(job_at(f, 0), 1, "f", 0644, O_RDWR, (struct core_cred){ 0 }, &e, &f->open[0], &reply), 0,
		"a file");
	f->ino = e.ino;
}

static void open_at(struct file *f, uint32_t node, int flags)
{
	struct core_open_reply reply;

	is_int(job_open(job_at(f, node), f->ino, flags, &f->open[node], &reply), 0, "opened elsewhere");
}

static void sync_at(struct file *f, uint32_t node)
{
	is_int(job_fsync(job_at(f, node), f->ino, f->open[node], false), 0, "synced");
}

static void write_at(struct file *f, uint32_t node, const char *text, uint64_t off)
{
	is_int(job_write(job_at(f, node), f->open[node], text, strlen(text), off), (int64_t)strlen(text), "written");
}

static void end(struct file *f)
{
	for (uint32_t i = 0; i < NODES; i++) {
		is_int(job_flush(job_at(f, i), f->open[i]), 0, "flushed");
		job_release(job_at(f, i), f->open[i]);
	}
	job_world_stop(f->w);
}

/* What a kernel does with a page: fills it, changes it, later writes it back. */
static void fill_page(struct file *f, uint32_t node, uint8_t *page)
{
	ssize_t got = job_read(job_at(f, node), f->open[node], page, 4096, 0);

	is_int(got, 100, "a page");
	job_pages_given(job_at(f, node), f->open[node], page, got < 0 ? 0 : (size_t)got, 4096, 0);
}

static void change_page(struct file *f, uint32_t node, uint8_t *page, char *want, size_t at, int letter)
{
	memset(page + at, letter, 10);
	memset(want + at, letter, 10);
	is_int(job_write_page(job_at(f, node), f->open[node], page, 100, 0), 100, "written back");
	sync_at(f, node);
}

/* Three nodes change one page at the same time, each other bytes of it, and write it back one after the other, twice. */
static void test_old_pages(void)
{
	static uint8_t page[NODES][4096];
	char want[101], got[100];
	struct file f;

	memset(want, '.', 100);
	want[100] = '\0';
	make(&f);
	write_at(&f, 0, want, 0);
	fill_page(&f, 0, page[0]); /* while nobody else has the file */
	open_at(&f, 1, O_RDWR);
	open_at(&f, 2, O_RDWR);
	fill_page(&f, 1, page[1]);
	fill_page(&f, 2, page[2]);
	for (uint32_t i = 0; i < 2 * NODES; i++)
		change_page(&f, i % NODES, page[i % NODES], want, 10 * i, (int)('a' + i));
	for (uint32_t i = 0; i < NODES; i++) {
		is_int(job_read(job_at(&f, i), f.open[i], got, 100, 0), 100, "read");
		ok(memcmp(got, want, 100) == 0, "what each has changed is seen");
	}
	end(&f);
}

static void finds(struct file *f, uint32_t node, uint64_t from, int whence, uint64_t wanted)
{
	uint64_t off = 0;

	is_int(job_lseek(job_at(f, node), f->open[node], (int64_t)from, whence, &off), 0, "sought");
	is_u64(off, wanted, whence == SEEK_DATA ? "data" : "a hole");
}

static void finds_none(struct file *f, uint32_t node, uint64_t from)
{
	uint64_t off;

	is_int(job_lseek(job_at(f, node), f->open[node], (int64_t)from, SEEK_DATA, &off), -ENXIO, "no data");
}

/* A hole of a thousand domains is passed with few questions, and no data in it is missed. */
static void test_seek(void)
{
	const uint64_t far = 1000 * PLACE_DOMAIN_SIZE + 5, mid = 400 * PLACE_DOMAIN_SIZE + 4097;
	struct file f;

	make(&f);
	write_at(&f, 0, "far", far);
	sync_at(&f, 0);
	open_at(&f, 2, O_RDONLY);
	finds(&f, 2, 0, SEEK_DATA, far); /* one node alone has it */
	open_at(&f, 1, O_RDWR);
	uint64_t before = job_at(&f, 1)->share->messages;
	finds(&f, 1, 0, SEEK_DATA, far);
	ok(job_at(&f, 1)->share->messages - before < 40, "with few questions");
	write_at(&f, 1, "mid", mid);
	finds(&f, 1, 1, SEEK_DATA, mid);
	finds(&f, 1, mid + 3, SEEK_DATA, far);
	sync_at(&f, 1);
	finds(&f, 2, 0, SEEK_DATA, mid);
	finds(&f, 2, mid, SEEK_HOLE, mid + 3);
	finds_none(&f, 2, far + 3);
	is_int(share_truncate(job_at(&f, 0), f.ino, far), 0, "cut");
	finds_none(&f, 2, mid + 3);
	end(&f);
}

/* A file that was there before the job: behind a hole that has just been made in it all that is in the backing file is data. */
static void test_seek_behind_hole(bool home_alone)
{
	const uint64_t hole = 4 * (uint64_t)SHARE_WINDOW, size = 3 * PLACE_DOMAIN_SIZE;
	struct file f = { .w = job_world_start(NODES) };
	struct core_entry e;
	char path[4096];

	snprintf(path, sizeof(path), "%s/f", job_world_backing(f.w));
	int fd = open(path, O_CREAT | O_RDWR, 0644);
	ok(fd >= 0 && pwrite(fd, "x", 1, (off_t)hole) == 1 && ftruncate(fd, (off_t)size) == 0,
		"a file of before the job");
	close(fd);
	for (uint32_t i = 0; i < NODES; i++) {
		is_int(job_lookup(job_at(&f, i), 1, "f", &e), 0, "found");
		f.ino = e.ino;
		open_at(&f, i, home_alone && i != place_ino(f.ino, NODES) ? O_RDONLY : O_RDWR);
	}
	uint32_t by = place_ino(f.ino, NODES);
	is_int(job_fallocate(job_at(&f, by), f.open[by], FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, hole), 0,
		"a hole is made");
	sync_at(&f, by);
	for (uint32_t i = 0; i < NODES; i++)
		finds(&f, i, 0, SEEK_DATA, hole);
	end(&f);
}

int main(void)
{
	test_old_pages();
	test_seek();
	test_seek_behind_hole(false);
	test_seek_behind_hole(true);
	return done_testing();
}
