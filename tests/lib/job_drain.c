/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "tests/lib/job_drain.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/falloc.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "format/place/place.h"
#include "format/store/store.h"
#include "fs/job/private.h"
#include "fs/job/share.h"
#include "fs/job/upto.h"

#define BEGIN_TRIES 6000 /* times 10 ms */
#define CARRY_BYTES (128u << 10)

static struct state *state_of(const struct job_drain *d, uint32_t node)
{
	return store_state(job_world_store(d->w, node));
}

/* All of them have heard of the session before they commit. */
static int commit_all(struct job_drain *d)
{
	int64_t now = clock_now(state_clock(state_of(d, 0)));
	int rc = 0;

	d->time_usec = (uint64_t)now / 1000 - 1;
	for (uint32_t n = 0; n < d->num; n++)
		clock_heard(state_clock(state_of(d, n)), now);
	for (uint32_t n = 0; n < d->num && rc == 0; n++)
		rc = share_commit_all(job_world_job(d->w, n));
	return rc;
}

/* -EBUSY: not all nodes have said that they have not lost power, or what. */
static int begin(struct job_drain *d)
{
	struct inode in;
	int rc = -EBUSY;

	for (int i = 0; i < BEGIN_TRIES && rc == -EBUSY; i++) {
		rc = job_drain_stamp(job_world_job(d->w, d->home), d->ino, &d->stamp);
		if (rc == -EBUSY)
			usleep(10000);
	}
	if (rc == 0)
		rc = state_inode(state_of(d, d->home), d->ino, &in);
	if (rc == 0 && (!(in.flags & INODE_SHARED) || in.flags & INODE_ORPHAN || in.num_names == 0))
		rc = -ENOENT;
	if (rc < 0)
		return rc;
	d->is_new = in.flags & INODE_NEW;
	d->size = in.size;
	d->upto = state_seq(state_of(d, d->home));
	rc = upto_settled(state_of(d, d->home), d->ino, d->stamp, &d->upto);
	return rc ? rc : upto_before(state_of(d, d->home), d->ino, d->time_usec, &d->upto);
}

static bool is_zero(const uint8_t *bytes, size_t num)
{
	while (num > 0 && bytes[num - 1] == 0)
		num--;
	return num == 0;
}

static int put(int fd, const uint8_t *bytes, size_t len, uint64_t off)
{
	if (is_zero(bytes, len))
		return fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)off, (off_t)len) ? -errno : 0;
	return pwrite(fd, bytes, len, (off_t)off) == (ssize_t)len ? 0 : -EIO;
}

/* What is there may still be read meanwhile: it is the same bytes, but for what maps hide. */
static int copy(struct job *j, struct job_file *from, int to, uint64_t size)
{
	uint8_t *bytes = malloc(CARRY_BYTES);
	int rc = bytes ? 0 : -ENOMEM;

	for (uint64_t off = 0; rc == 0 && off < size;) {
		ssize_t n = job_read(j, from, bytes, CARRY_BYTES, off);

		rc = n <= 0 ? (n < 0 ? (int)n : -EIO) : put(to, bytes, (size_t)n, off);
		off += n > 0 ? (uint64_t)n : 0;
	}
	free(bytes);
	return rc;
}

static void set_name(const struct job_drain *d, char *name, size_t cap)
{
	snprintf(name, cap, "drained-%" PRIu64, d->ino);
}

static int carry(struct job_drain *d)
{
	struct job *j = job_world_job(d->w, d->home);
	char name[64], path[4096 + 64];
	struct core_open_reply reply;
	struct job_file *from;
	struct stat st;
	int rc = job_open(j, d->ino, O_RDONLY, &from, &reply);

	if (rc < 0)
		return rc;
	set_name(d, name, sizeof(name));
	snprintf(path, sizeof(path), "%s/%s", job_world_backing(d->w), name);
	int fd = open(path, O_CREAT | O_RDWR, 0644);
	rc = fd < 0 ? -errno : copy(j, from, fd, d->size);
	if (rc == 0 && (ftruncate(fd, (off_t)d->size) || fstat(fd, &st)))
		rc = -errno;
	if (rc == 0) {
		d->backing_dev = st.st_dev;
		d->backing_ino = st.st_ino;
	}
	if (fd >= 0)
		close(fd);
	job_release(j, from);
	return rc;
}

int job_drain_carry(struct job_world *w, uint32_t num, uint64_t ino, struct job_drain *ret)
{
	*ret = (struct job_drain){ .w = w, .num = num, .ino = ino, .home = place_ino(ino, num) };
	int rc = commit_all(ret);

	if (rc == 0)
		rc = begin(ret);
	return rc ? rc : carry(ret);
}

int job_drain_publish(struct job_drain *d)
{
	struct record placed = { .type = RECORD_PLACED,
		.ino = d->ino,
		.parent = STATE_ROOT_INO,
		.backing_dev = d->backing_dev,
		.backing_ino = d->backing_ino };
	struct record drained = { .type = RECORD_DRAINED,
		.flags = RECORD_F_TIMED,
		.ino = d->ino,
		.upto = d->upto,
		.size = d->size,
		.stamp = d->stamp,
		.drop_usec = d->time_usec,
		.backing_dev = d->backing_dev,
		.backing_ino = d->backing_ino };
	struct core *core = job_world_core(d->w, d->home);

	set_name(d, placed.name, sizeof(placed.name));
	int rc = d->is_new ? core_drain_step(core, &placed) : 0;
	if (rc == 0)
		rc = core_drain_step(core, &drained);
	if (rc == 0)
		job_drained(job_world_job(d->w, d->home), d->ino);
	return rc ? rc : store_sync(job_world_store(d->w, d->home));
}

int job_drain_drop(const struct job_drain *d, uint32_t node)
{
	return job_drop_drained(job_world_job(d->w, node),
		&(struct drained){ .ino = d->ino, .stamp = d->stamp, .time_usec = d->time_usec });
}
