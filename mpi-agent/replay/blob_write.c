/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Subfiles, from their temporary names to their own. Nothing of the store is given up here. They are made whole under temporary names and are
 * on the device before the first of them gets its name; who is killed in between is followed by somebody who does all of it again.
 */
#include "mpi-agent/replay/blob_writer.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "format/base/crc32c.h"

#define BLOCKS_MOST    128u
#define BLOCKS_LEAST   4u
#define WRITE_OUT_FROM (8u << 20)

/* ---- what is written */

static int note_piece(struct blob_writer *w, struct blob_subfile *sub, const void *buf, size_t len, uint64_t off)
{
	if (w->s->opt->verify < DRAIN_VERIFY_READ)
		return 0;
	if (sub->num_pieces == sub->cap_pieces) {
		size_t cap = sub->cap_pieces ? 2 * sub->cap_pieces : 256;
		struct piece_written *pieces = reallocarray(sub->pieces, cap, sizeof(*pieces));

		if (!pieces)
			return -ENOMEM;
		sub->pieces = pieces;
		sub->cap_pieces = cap;
	}
	sub->pieces[sub->num_pieces++] = (struct piece_written){ off, len, crc32c(0, buf, len) };
	return 0;
}

int blob_sub_write(struct blob_writer *w, struct blob_subfile *sub, const void *buf, size_t len, uint64_t off)
{
	int r = sub->f->ops->pwrite(sub->f, buf, len, off);

	if (r == 0)
		r = note_piece(w, sub, buf, len, off);
	sub->written += len;
	if (r == 0 && sub->written - sub->begun >= WRITE_OUT_FROM) {
		sub->f->ops->write_out(sub->f, 0, 0);
		sub->begun = sub->written;
	}
	return r;
}

int blob_put_to_target(const void *bytes, size_t len, uint64_t off, void *arg)
{
	struct blob_target *t = arg;

	return blob_sub_write(t->w, t->sub, bytes, len, off);
}

/* ---- names */

/*
 * Somebody has put it there through the mount, or changed it there: then it is a file like any other, though it be a subfile. -EEXIST: of this
 * node's, or, as far as others have drained it, of another's.
 */
static int check_owner(const struct session *s, uint64_t dir, const char *path, uint64_t backing_ino)
{
	struct record rec = { .type = RECORD_PLACED, .ino = STATE_ROOT_INO, .parent = dir, .backing_ino = backing_ino };
	const char *slash = strrchr(path, '/');
	struct state_name e;
	uint64_t owner;

	snprintf(rec.name, sizeof(rec.name), "%s", slash ? slash + 1 : path);
	if (state_lookup(s->st, dir, rec.name, &e) == 0 || state_backing_owner(s->st, dir, rec.name, &owner) == 0)
		return -EEXIST;
	if (!s->opt->watcher.occupied)
		return 0;
	int r = s->opt->watcher.occupied(&rec, s->opt->watcher.arg);
	return r == -ENOENT ? 0 : r == -EBUSY ? -EEXIST : r;
}

/* Our own from an earlier attempt, or those of a file that this one replaces; nothing else. */
int blob_may_replace(struct session *s, uint64_t dir, const char *path)
{
	struct classic CLASSIC_CLEANUP header = { 0 };
	struct sink_file *f;
	struct stat st;
	int r = s->to->ops->stat(s->to, path, &st);

	if (r < 0)
		return r == -ENOENT ? 0 : r;
	r = check_owner(s, dir, path, st.st_ino);
	if (r == 0)
		r = S_ISREG(st.st_mode) ? s->to->ops->open(s->to, path, SINK_READ, &f) : -EEXIST;
	if (r < 0)
		return r;
	r = classic_read(blob_sink_read, f, &header, NULL);
	if (r == 0 && !blob_is_header(&header))
		r = -EEXIST;
	if (r == -EBADMSG)
		r = blob_process_recognise(blob_sink_read, f, (uint64_t)st.st_size);
	sink_file_close(f);
	return r == -EBADMSG || r == -EFBIG ? -EEXIST : r;
}

int blob_subfile_path(const char *base, uint32_t number, char *out, size_t cap)
{
	int n = snprintf(out, cap, "%s.%04" PRIu32, base, number);

	return n < 0 || (size_t)n >= cap ? -ENAMETOOLONG : 0;
}

static int name_temp(struct blob_writer *w, struct blob_subfile *sub, const char *base)
{
	char path[SESSION_PATH_MAX];
	int r = blob_subfile_path(base, w->plan->first_subfile + (uint32_t)(sub - w->sub), path, sizeof(path));

	if (r < 0)
		return r;
	sub->temp = strdup(path);
	return sub->temp ? 0 : -ENOMEM;
}

static int name_final(struct blob_writer *w, struct blob_subfile *sub, const struct file_place *place)
{
	char name[RECORD_NAME_MAX + 1], path[SESSION_PATH_MAX];
	int r = blob_subfile_path(place->name, w->plan->first_subfile + (uint32_t)(sub - w->sub), name, sizeof(name));

	if (r == 0)
		r = session_join(path, sizeof(path), place->dir_path, name);
	if (r == -ENAMETOOLONG) {
		snprintf(w->why, BLOB_WHY, "its name is too long for subfiles");
		return -EOPNOTSUPP;
	}
	if (r < 0)
		return r;
	sub->final = strdup(path);
	if (!sub->final)
		return -ENOMEM;
	r = blob_may_replace(w->s, place->dir, path);
	if (r == -EEXIST)
		snprintf(w->why, BLOB_WHY,
			"%s is there already and was not made by a drain: move it away and mount the store again: the next unmount makes the subfiles",
			sub->final);
	return r;
}

static int open_subfile(struct blob_writer *w, struct blob_subfile *sub)
{
	struct session *s = w->s;
	int r = s->to->ops->open(s->to, sub->temp, SINK_CREATE, &sub->f);

	if (r == -EEXIST && s->to->ops->remove(s->to, sub->temp, false) == 0)
		r = s->to->ops->open(s->to, sub->temp, SINK_CREATE, &sub->f);
	return r;
}

static int make_buffers(struct blob_writer *w)
{
	uint64_t most = 0, sum = 0;

	for (uint32_t i = 0; i < w->num_subfiles; i++) {
		most = 0;
		for (uint32_t v = w->plan->d->num_maps * BLOB_MAP_VARS; v < w->sub[i].header.num_vars; v++)
			if (w->sub[i].header.vars[v].bytes > most)
				most = w->sub[i].header.vars[v].bytes;
		sum += most;
		w->sub[i].buf = sum <= w->s->opt->buffer_bytes ? malloc((size_t)most + 1) : NULL;
		if (!w->sub[i].buf && sum <= w->s->opt->buffer_bytes)
			return -ENOMEM;
	}
	if (sum > w->s->opt->buffer_bytes) {
		snprintf(w->why, BLOB_WHY,
			"a record of its largest variable needs %" PRIu64 " bytes of memory: raise flush_buffer_size",
			sum);
		return -EOPNOTSUPP;
	}
	w->num_blocks = (uint32_t)(w->s->opt->buffer_bytes / BLOB_BLOCK_BYTES);
	w->num_blocks = w->num_blocks < BLOCKS_LEAST  ? BLOCKS_LEAST
			: w->num_blocks > BLOCKS_MOST ? BLOCKS_MOST
						      : w->num_blocks;
	w->blocks = calloc(w->num_blocks, sizeof(*w->blocks));
	return w->blocks ? 0 : -ENOMEM;
}

/* Streams are dealt out to subfiles in groups of neighbours. place: NULL: they only get temporary names, from base on. */
static int make_subfiles(struct blob_writer *w, const char *base, const struct file_place *place)
{
	uint32_t streams = w->plan->num_streams;
	int r = 0;

	w->sub = calloc((size_t)w->num_subfiles + 1, sizeof(*w->sub));
	if (!w->sub)
		return -ENOMEM;
	for (uint32_t i = 0; i < w->num_subfiles; i++) {
		w->sub[i].first = (uint32_t)((uint64_t)streams * i / w->num_subfiles);
		w->sub[i].num = (uint32_t)((uint64_t)streams * (i + 1) / w->num_subfiles) - w->sub[i].first;
	}
	for (uint32_t i = 0; r == 0 && i < w->num_subfiles; i++) {
		r = name_temp(w, &w->sub[i], base);
		if (r == 0 && place)
			r = name_final(w, &w->sub[i], place);
		if (r == 0)
			r = blob_make_subfile(w, &w->sub[i]);
		if (r == 0 && w->layout == DRAIN_LAYOUT_BLOB_PROCESS)
			r = blob_make_process(w, &w->sub[i]);
	}
	return r == 0 ? make_buffers(w) : r;
}

static int fill_subfiles(struct blob_writer *w)
{
	int r = 0;

	for (uint32_t i = 0; r == 0 && i < w->num_subfiles; i++) {
		r = open_subfile(w, &w->sub[i]);
		if (r == 0)
			r = blob_put_head(w, &w->sub[i]);
	}
	return r == 0 ? blob_put_values(w) : r;
}

/* Does the device hold what was written? All that was not written is a hole. */
static int read_back(struct blob_writer *w, struct blob_subfile *sub)
{
	uint8_t *buf = malloc(BLOB_BLOCK_BYTES);
	int r = buf ? 0 : -ENOMEM;

	if (w->s->opt->verify >= DRAIN_VERIFY_READ)
		sub->f->ops->drop_cache(sub->f);
	for (size_t i = 0; r == 0 && i < sub->num_pieces; i++) {
		const struct piece_written *p = &sub->pieces[i];
		uint32_t crc = 0;

		for (size_t done = 0, n; r == 0 && done < p->len; done += n) {
			ssize_t got;

			n = p->len - done < BLOB_BLOCK_BYTES ? p->len - done : BLOB_BLOCK_BYTES;
			got = sub->f->ops->pread(sub->f, buf, n, p->off + done);
			r = got < 0 ? (int)got : (size_t)got < n ? -EIO : session_make_way(w->s);
			crc = crc32c(crc, buf, n);
			session_verified(w->s, n);
		}
		if (r == 0 && crc != p->crc)
			r = -EIO;
		if (r == -EIO)
			snprintf(w->why, BLOB_WHY,
				"verification failed at %" PRIu64
				" of subfile %zu: check the backing directory's file system, "
				"then run cistern flush",
				p->off, (size_t)(sub - w->sub));
	}
	free(buf);
	return r;
}

static int finish_subfile(struct blob_writer *w, struct blob_subfile *sub)
{
	struct attrs_warning again = { "" }; /* as the first one's */
	struct sink_attr attr;
	struct stat st;
	int r = 0;

	attrs_of_inode(w->in, &attr);
	if (sub->final) /* else its home does so */
		r = attrs_apply(w->s, w->in, &attr, sub->f, sub == w->sub ? &w->warning : &again);
	if (r == 0)
		r = sub->f->ops->sync(sub->f, false);
	if (r == 0)
		r = sub->f->ops->fstat(sub->f, &st);
	if (r == 0 && (uint64_t)st.st_size != blob_subfile_bytes(sub))
		r = -EIO;
	return r == 0 ? read_back(w, sub) : r;
}

static int finish_subfiles(struct blob_writer *w)
{
	int r = 0;

	for (uint32_t i = 0; r == 0 && i < w->num_subfiles; i++)
		r = finish_subfile(w, &w->sub[i]);
	return r == 0 ? session_tick(w->s, true) : r;
}

static int publish_subfiles(struct blob_writer *w)
{
	struct session *s = w->s;
	int r = 0;

	for (uint32_t i = 0; r == 0 && i < w->num_subfiles; i++) {
		r = s->to->ops->rename(s->to, w->sub[i].temp, w->sub[i].final, false);
		if (r == 0) {
			free(w->sub[i].temp);
			w->sub[i].temp = NULL;
		}
	}
	return r == 0 ? s->to->ops->sync_names(s->to) : r;
}

/* They stay. */
static void keep_temps(struct blob_writer *w)
{
	for (uint32_t i = 0; i < w->num_subfiles; i++) {
		free(w->sub[i].temp);
		w->sub[i].temp = NULL;
	}
}

static void writer_free(struct blob_writer *w)
{
	for (uint32_t i = 0; w->sub && i < w->num_subfiles; i++) {
		struct blob_subfile *sub = &w->sub[i];

		if (sub->f && sub->temp)
			w->s->to->ops->remove(w->s->to, sub->temp, false);
		sink_file_close(sub->f);
		blob_process_destroy(sub->process);
		for (size_t m = 0; sub->starts && m < w->plan->d->num_maps; m++)
			free(sub->starts[m]);
		free(sub->starts);
		free(sub->pieces);
		classic_destroy(&sub->header);
		free(sub->temp);
		free(sub->final);
		free(sub->buf);
	}
	free(w->sub);
	for (uint32_t i = 0; w->blocks && i < w->num_blocks; i++)
		free(w->blocks[i].data);
	free(w->blocks);
	decomp_order_destroy(w->order);
	if (w->fd >= 0)
		close(w->fd);
}

/* The subfiles of the plan, whole but for their names. */
static int make_all(struct blob_writer *w, const char *base, const struct file_place *place)
{
	int r = decomp_order_create(&w->plan->header, &w->order);

	w->num_subfiles = w->plan->num_subfiles;
	if (r == 0)
		r = make_subfiles(w, base, place);
	if (r == 0 && place)
		r = names_sweep(w->s, place->dir, place->dir_path);
	if (r == 0)
		r = fill_subfiles(w);
	return r == 0 ? finish_subfiles(w) : r;
}

static struct blob_done what_was_done(const struct blob_writer *w)
{
	return (struct blob_done){ .subfiles = w->num_subfiles,
		.blobs = w->plan->num_streams,
		.maps = (uint32_t)w->plan->d->num_maps,
		.written = w->plan->bytes,
		.extents = w->plan->extents,
		.warning = w->warning };
}

int blob_write_part(struct session *s, const struct inode *in, struct blob_plan *plan, const char *base,
	enum drain_layout layout, struct blob_done *ret, char why[BLOB_WHY])
{
	struct blob_writer w = {
		.s = s, .in = in, .plan = plan, .layout = layout, .fd = -1, .var = DECOMP_NO_MAP, .why = why
	};
	int r = plan->num_subfiles > 0 ? make_all(&w, base, NULL) : 0;

	*ret = what_was_done(&w);
	if (r == 0)
		keep_temps(&w);
	writer_free(&w);
	return r;
}

static int temp_base(struct session *s, const struct inode *in, const struct file_place *place, char *out, size_t cap)
{
	char name[RECORD_NAME_MAX + 1];

	temps_note(s, place->dir, false);
	snprintf(name, sizeof(name), "%s%" PRIu64, s->temp_prefix, in->ino);
	return session_join(out, cap, place->dir_path, name);
}

int blob_write(struct session *s, const struct inode *in, const struct file_place *place, enum drain_layout layout,
	struct blob_done *ret, char why[BLOB_WHY])
{
	struct blob_plan plan = { 0 };
	struct blob_writer w = {
		.s = s, .in = in, .plan = &plan, .layout = layout, .fd = -1, .var = DECOMP_NO_MAP, .why = why
	};
	char base[SESSION_PATH_MAX];
	int r;

	why[0] = '\0';
	r = blob_plan_make(s, in, &plan, why);
	if (r < 0)
		return r;
	r = temp_base(s, in, place, base, sizeof(base));
	if (r == 0)
		r = make_all(&w, base, place);
	if (r == 0)
		r = publish_subfiles(&w);
	*ret = what_was_done(&w);
	writer_free(&w);
	blob_plan_free(&plan);
	return r;
}
