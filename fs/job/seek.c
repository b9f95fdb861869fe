/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * lseek for data and holes of a file that other nodes have, too: window by window, as it is read; the backing file counts as
 * data. Behind some windows without data all who may know of any are asked where the next begins: a hole may be far longer than
 * what can be asked for by windows. Who does not answer is no failure: then it goes on by windows, which say what is wrong.
 */
#include "fs/job/share.h"

#include <errno.h>
#include <unistd.h>

#define EMPTY_WINDOWS 4 /* then it pays to ask all */

/* As they are found for reads. */
static int locate(struct job *j, struct shared *s, uint64_t from, uint64_t end, struct pieces *ret)
{
	int rc = -EAGAIN;

	for (int tries = 0; (rc == -EAGAIN || rc == -ESTALE) && tries < SHARE_READ_TRIES; tries++) {
		pieces_free(ret);
		rc = tries ? share_refresh(j, s, rc, tries) : 0;
		rc = rc < 0 ? rc : share_locate(j, s, from, end - from, ret);
		if (rc == 0 && shared_is_lapsed(j, s))
			rc = -ESTALE;
	}
	return rc;
}

static int seek_window(struct job *j, struct shared *s, uint64_t from, uint64_t end, int whence, uint64_t *ret)
{
	struct pieces p = { 0 };
	int rc = locate(j, s, from, end, &p);

	*ret = end;
	for (size_t i = 0; rc == 0 && i < p.num && *ret == end; i++)
		if ((p.at[i].kind == PIECE_ZERO) == (whence == SEEK_HOLE))
			*ret = p.at[i].off;
	pieces_free(&p);
	return rc;
}

static uint64_t own_next(struct job *j, struct shared *s, uint64_t off, uint64_t size)
{
	struct layer_extent first;
	uint64_t next;
	size_t num = 0;
	int rc = state_layer(store_state(j->opt.store), s->ino, off, size - off, &first, 1, &num, &next);

	return rc < 0 ? off : num ? first.ext.off : size;
}

/* Where data may begin in [off, size): off when that is not known. The backing file last: a drain may just have taken it out of the maps. */
static uint64_t next_known(struct job *j, struct shared *s, uint64_t off, uint64_t size)
{
	bool shared = s->is_shared;
	uint64_t own = shared ? own_next(j, s, off, size) : size, next = size;

	if (own == off || map_next(j, s, off, size, &next) < 0)
		return off;
	if (shared && (share_limit(j, s) > off || shared_is_lapsed(j, s)))
		return off;
	return own < next ? own : next;
}

static int seek_shared(struct job *j, struct shared *s, int64_t off, int whence, uint64_t *ret)
{
	int rc = shared_make_current(j, s);
	uint64_t size = shared_size(j, s);
	unsigned int empty = 0;

	if (rc < 0)
		return rc;
	if (off < 0 || (uint64_t)off >= size)
		return -ENXIO;
	for (uint64_t pos = (uint64_t)off, end; rc == 0 && pos < size; pos = end) {
		end = (pos / SHARE_WINDOW + 1) * SHARE_WINDOW;
		end = end < size ? end : size;
		rc = seek_window(j, s, pos, end, whence, ret);
		if (rc == -EBUSY) /* nobody but its home's kernel knows: all of it is data */
			*ret = whence == SEEK_DATA ? pos : size;
		if (rc == -EBUSY)
			return 0;
		if (rc == 0 && *ret < end)
			return 0;
		if (rc == 0 && end < size && whence == SEEK_DATA && ++empty % EMPTY_WINDOWS == 0)
			end = next_known(j, s, end, size);
	}
	*ret = size;
	return rc < 0 ? rc : whence == SEEK_HOLE ? 0 : -ENXIO;
}

/* -ESTALE: no path that we know leads to it. */
static int seek_outside(struct job *j, struct shared *s, int64_t off, int whence, uint64_t *ret)
{
	int fd = read_backing_fd(j, s);
	off_t at = fd < 0 ? fd : lseek(fd, off, whence);
	int rc = fd < 0 ? fd : at < 0 ? -errno : 0;

	if (fd >= 0)
		close(fd);
	if (rc == 0)
		*ret = (uint64_t)at;
	return rc;
}

int share_lseek(struct job *j, struct job_file *file, int64_t off, int whence, uint64_t *ret_off)
{
	struct shared *s = file->shared;

	if (whence != SEEK_DATA && whence != SEEK_HOLE)
		return -EINVAL;
	if (shared_is_home(j, s) && !s->is_shared)
		return core_lseek(j->core, file->local, off, whence, ret_off);
	show_to(j, file);
	int rc = !shared_is_home(j, s) && shared_is_outside(s) ? seek_outside(j, s, off, whence, ret_off) : -ESTALE;
	if (rc != -ESTALE)
		return rc;
	if (shared_is_outside(s))
		shared_doubt(s);
	return seek_shared(j, s, off, whence, ret_off);
}
