/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * A process for each blob, one after the other: they are numbered in the order in which they begin, so blobs keep theirs. What
 * went wrong in one it tells in memory that it shares with this one. A blob's values are read in order, in large pieces.
 */
#include "mpi-agent/convert/rewrite.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "format/base/drain_layout.h"
#include "format/base/fdio.h"

#define IO_BYTES (1u << 20) /* a multiple of every type's size */

int rewrite_create(const struct blob_set *set, const char *path, struct cistern_error *err)
{
	const char *layout = drain_layout_name(
		set->files[0].process_centric ? DRAIN_LAYOUT_BLOB_PROCESS : DRAIN_LAYOUT_BLOB_VARIABLE);
	int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666), r = 0;

	if (fd < 0)
		return cistern_error_set(err, -errno, "%s: %s", path, strerror(errno));
	/* Only a mount refuses a layout that does not exist. */
	if (fsetxattr(fd, DRAIN_LAYOUT_XATTR, "?", 1, 0) == 0 || errno != EINVAL) {
		unlink(path);
		r = cistern_error_set(err, -EINVAL, "%s is in no Cistern mount, which --as-written is for", path);
	} else if (fsetxattr(fd, DRAIN_LAYOUT_XATTR, layout, strlen(layout), 0) < 0) {
		r = cistern_error_set(err, -errno, "%s cannot get layout %s: %s", path, layout, strerror(errno));
	}
	close(fd);
	return r;
}

/* ---- values of a subfile, one after the other */

struct values {
	const struct subfile *file;
	uint32_t size;
	uint64_t off, end; /* in the subfile: of what was not read yet */
	uint8_t *at;       /* of what was read */
	size_t left;
	uint8_t *buf; /* owned; IO_BYTES */
};

static void values_begin(struct values *v, uint64_t off, uint64_t len, uint32_t size)
{
	v->off = off;
	v->end = off + len;
	v->size = size;
	v->left = 0;
}

static int values_more(struct values *v, struct cistern_error *err)
{
	size_t len = v->end - v->off < IO_BYTES ? (size_t)(v->end - v->off) : IO_BYTES;
	int r = fdio_read_exact(v->file->fd, v->buf, len, v->off);

	if (r < 0)
		return cistern_error_set(err, r, "%s: reading at %" PRIu64 ": %s", v->file->path, v->off, strerror(-r));
	if (v->file->little_endian)
		blob_turn_values(v->buf, v->buf, len / v->size, v->size);
	v->off += len;
	v->at = v->buf;
	v->left = len;
	return 0;
}

struct target {
	int fd;
	const char *path;
	uint64_t written;
};

/* The next len bytes of values go to off. */
static int values_put(struct values *v, struct target *to, uint64_t off, uint64_t len, struct cistern_error *err)
{
	int r = 0;

	while (r == 0 && len > 0) {
		size_t part;

		if (v->left == 0 && (r = values_more(v, err)) < 0)
			return r;
		part = len < v->left ? (size_t)len : v->left;
		r = fdio_write(to->fd, v->at, part, off);
		if (r < 0)
			return cistern_error_set(err, r, "%s: writing at %" PRIu64 ": %s", to->path, off, strerror(-r));
		v->at += part;
		v->left -= part;
		off += part;
		len -= part;
		to->written += part;
	}
	return r;
}

/* ---- what is in no blob */

static int put_residue(const struct blob_set *s, struct target *to, struct cistern_error *err)
{
	const struct blob_head *h = &s->files[0].head;
	struct cursor c = cursor_make(h->exact.residue, (size_t)h->exact.residue_bytes);
	struct blob_residue res;
	int r = 0;

	if (!h->is_exact)
		return 0;
	while (r == 0 && blob_next_residue(&c, &res) > 0)
		for (uint64_t i = 0; r == 0 && i < res.count; i++)
			r = fdio_write(to->fd, res.bytes, (size_t)res.len, res.off + i * res.stride);
	return r < 0 ? cistern_error_set(err, r, "%s: %s", to->path, strerror(-r)) : 0;
}

static uint64_t num_records(const struct blob_set *s, uint32_t var)
{
	return s->canonical.vars[var].is_record ? s->canonical.num_records : 1;
}

/* A variable that is not cut up, from the first subfile. */
static int put_whole(
	const struct blob_set *s, uint32_t var, struct values *from, struct target *to, struct cistern_error *err)
{
	const struct classic_var *v = &s->canonical.vars[var];
	int r = 0;

	for (uint64_t rec = 0; r == 0 && rec < num_records(s, var); rec++) {
		uint64_t off = subfile_off(from->file, from->file->head.vars[var].var, rec, 0);

		if (off == SUBFILE_NOWHERE)
			continue;
		values_begin(from, off, v->bytes, classic_type_bytes(v->type));
		r = values_put(from, to, classic_offset(&s->canonical, v, rec, 0), v->bytes, err);
	}
	return r;
}

int rewrite_frame(const struct blob_set *set, int fd, const char *path, struct cistern_error *err)
{
	struct values from = { .file = &set->files[0], .buf = malloc(IO_BYTES) };
	struct target to = { .fd = fd, .path = path };
	int r = from.buf ? fdio_write(fd, set->header, (size_t)set->header_bytes, 0) : -ENOMEM;

	if (r < 0)
		cistern_error_set(err, r, "%s: %s", path, strerror(-r));
	else
		r = put_residue(set, &to, err);
	for (uint32_t v = 0; r == 0 && v < set->canonical.num_vars; v++)
		if (from.file->head.vars[v].map == BLOB_NO_MAP)
			r = put_whole(set, v, &from, &to, err);
	free(from.buf);
	return r;
}

/* ---- a blob */

/* Its part of a record of a variable. */
static int put_record(const struct blob_set *s, uint32_t var, uint64_t record, uint32_t blob, struct values *from,
	struct target *to, struct cistern_error *err)
{
	const struct classic_var *v = &s->canonical.vars[var];
	const struct blob_var *bv = &from->file->head.vars[var];
	const struct runs_index *x = subfile_runs(from->file, bv->map, blob);
	uint64_t off = x->count > 0 ? subfile_off(from->file, bv->var, record, blob) : 0;
	uint64_t base = classic_offset(&s->canonical, v, record, 0);
	uint32_t size = classic_type_bytes(v->type);
	int r = 0;

	if (off == SUBFILE_NOWHERE)
		return cistern_error_set(err, -EBADMSG, "%s: record %" PRIu64 " of blob %" PRIu32 " is not there",
			from->file->path, record, blob);
	if (!from->file->process_centric)
		off += subfile_share(from->file, bv->map, blob)->start * size;
	values_begin(from, off, x->count * size, size);
	for (uint64_t i = 0; r == 0 && i < x->runs.num; i++) {
		uint64_t at, len;

		runs_get(&x->runs, i, &at, &len);
		r = values_put(from, to, base + at * size, len * size, err);
	}
	return r;
}

static int put_blob(
	const struct blob_set *s, uint32_t file, uint32_t blob, struct target *to, struct cistern_error *err)
{
	struct values from = { .file = &s->files[file], .buf = malloc(IO_BYTES) };
	int r = from.buf ? 0 : -ENOMEM;

	for (uint32_t v = 0; r == 0 && v < s->canonical.num_vars; v++)
		for (uint64_t rec = 0; r == 0 && from.file->head.vars[v].map != BLOB_NO_MAP && rec < num_records(s, v);
			rec++)
			r = put_record(s, v, rec, blob, &from, to, err);
	free(from.buf);
	return r == -ENOMEM ? cistern_error_set(err, r, "out of memory") : r;
}

/* ---- its process */

struct told { /* by the process that writes a blob */
	int result;
	uint64_t written;
	struct cistern_error err;
};

static void write_blob(const struct rewrite *w, uint32_t file, uint32_t blob, struct told *told)
{
	struct target to = { .fd = open(w->path, O_WRONLY | O_CLOEXEC | O_NOFOLLOW), .path = w->path };

	if (to.fd < 0)
		told->result = cistern_error_set(&told->err, -errno, "%s: %s", w->path, strerror(errno));
	else
		told->result = put_blob(w->set, file, blob, &to, &told->err);
	if (to.fd >= 0 && close(to.fd) < 0 && told->result == 0)
		told->result = cistern_error_set(&told->err, -errno, "%s: %s", w->path, strerror(errno));
	told->written = to.written;
}

static int run_process(
	const struct rewrite *w, uint32_t file, uint32_t blob, struct told *told, struct cistern_error *err)
{
	pid_t pid;
	int status;

	*told = (struct told){ .result = -ECHILD };
	pid = fork();
	if (pid == 0) {
		write_blob(w, file, blob, told);
		_exit(0);
	}
	if (pid < 0)
		return cistern_error_set(err, -errno, "no process for a blob: %s", strerror(errno));
	while (waitpid(pid, &status, 0) < 0)
		if (errno != EINTR)
			return cistern_error_set(err, -errno, "waiting for a process: %s", strerror(errno));
	if (told->result == -ECHILD)
		return cistern_error_set(err, -ECHILD, "the process that wrote blob %" PRIu32 " of %s has died", blob,
			w->set->files[file].path);
	if (told->result < 0)
		*err = told->err;
	return told->result;
}

/* ---- this part's */

/* Whole subfiles, mostly made by one node, stay with one part where there are enough. */
static bool is_ours(const struct rewrite *w, uint32_t file, uint64_t stream, uint64_t num_streams)
{
	if (w->set->num >= w->num)
		return (uint64_t)file * w->num / w->set->num == w->share;
	return stream * w->num / num_streams == w->share;
}

static uint64_t blob_bytes(const struct blob_set *s, uint32_t file, uint32_t blob)
{
	uint64_t sum = 0;

	for (uint32_t v = 0; v < s->canonical.num_vars; v++) {
		uint32_t map = s->files[file].head.vars[v].map;

		if (map != BLOB_NO_MAP)
			sum += subfile_runs(&s->files[file], map, blob)->count * num_records(s, v) *
			       classic_type_bytes(s->canonical.vars[v].type);
	}
	return sum;
}

/* Of each blob of this part, in order. */
static int each_blob(const struct rewrite *w, int (*each)(uint32_t file, uint32_t blob, void *arg), void *arg)
{
	uint64_t stream = 0, num_streams = 0;
	int r = 0;

	for (uint32_t f = 0; f < w->set->num; f++)
		num_streams += w->set->files[f].head.nblobs;
	for (uint32_t f = 0; r == 0 && f < w->set->num; f++)
		for (uint32_t b = 0; r == 0 && b < w->set->files[f].head.nblobs; b++, stream++)
			if (is_ours(w, f, stream, num_streams))
				r = each(f, b, arg);
	return r;
}

struct progress {
	const struct rewrite *w;
	struct told *told; /* shared with the processes */
	uint64_t done, total;
	struct cistern_error *err;
};

static int count_blob(uint32_t file, uint32_t blob, void *arg)
{
	struct progress *p = arg;

	p->total += blob_bytes(p->w->set, file, blob);
	return 0;
}

static int carry_blob(uint32_t file, uint32_t blob, void *arg)
{
	struct progress *p = arg;
	int r = run_process(p->w, file, blob, p->told, p->err);

	p->done += p->told->written;
	return r < 0 ? r : p->w->each(p->done, p->total, p->w->arg);
}

int rewrite_blobs(const struct rewrite *w, struct cistern_error *err)
{
	void *shared = mmap(NULL, sizeof(struct told), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	struct progress p = { .w = w, .told = shared, .err = err };
	int r;

	if (shared == MAP_FAILED)
		return cistern_error_set(err, -errno, "out of memory");
	(void)each_blob(w, count_blob, &p);
	r = each_blob(w, carry_blob, &p);
	munmap(shared, sizeof(struct told));
	return r;
}
