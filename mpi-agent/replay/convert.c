/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Layouts. A file is first drained as it is; that it is to have another layout is noted in a list in the store. When
 * everything is drained and nobody can have a file open any more, the list is worked through: the new file is made beside the
 * old one, proved, gets its attributes, and takes its place. Until that is reported the old one keeps a name of its own, so
 * that it can be put back. What cannot be converted stays as it is, and that is said.
 *
 * Files that were in the backing directory before the mount stay as they are, unless their own attribute says otherwise.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "format/base/crc32c.h"
#include "format/base/clock.h"
#include "format/codec/classic.h"
#include "mpi-agent/replay/conversion.h"
#include "mpi-agent/replay/intent.h"
#include "mpi-agent/replay/session.h"

#define READ_BYTES (1u << 20)
#define LIST_MAX   (256u << 20) /* bytes */
#define DIRTY_FLAGS                                                                                                \
	(INODE_NEW | INODE_DIRTY_DATA | INODE_DIRTY_META | INODE_DIRTY_XATTR | INODE_PRIVATE | INODE_UNPUBLISHED | \
		INODE_ORPHAN | INODE_FOREIGN)

/* ---- which files */

int conversion_own_layout(struct session *s, const struct inode *in, struct sink_file *f, enum drain_layout *ret,
	char **ret_options, struct cistern_error *err)
{
	uint8_t value[1024];
	ssize_t len = -ENODATA;
	size_t known = 0;

	if (in->flags & (INODE_NEW | INODE_DIRTY_XATTR)) {
		int r = state_xattr(s->st, in->ino, DRAIN_LAYOUT_XATTR, value, sizeof(value), &known);

		len = r < 0 ? r : (ssize_t)known;
	} else if (f) {
		len = f->ops->get_xattr(f, DRAIN_LAYOUT_XATTR, value, sizeof(value));
	}
	if (len < 0)
		return 0;
	return drain_layout_parse_xattr(value, (size_t)len, ret, ret_options, err) < 0 ? -EINVAL : 1;
}

enum drain_layout convert_wanted(struct session *s, const struct inode *in, const char *shown)
{
	enum drain_layout layout = DRAIN_LAYOUT_CANONICAL;
	char *options = NULL;
	int r = s->opt->convert ? conversion_own_layout(s, in, NULL, &layout, &options, NULL) : -ENOENT;

	free(options);
	if (r == 0 && !(in->ino & STATE_BACKING_INO_BIT))
		layout = drain_layout_of(s->opt->convert->rules, shown);
	return layout;
}

static int append(const char *path, uint64_t ino)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600), n, r = 0;
	char line[32];

	if (fd < 0)
		return -errno;
	n = snprintf(line, sizeof(line), "%" PRIu64 "\n", ino);
	errno = EIO; /* of a short one */
	if (write(fd, line, (size_t)n) != n)
		r = -errno;
	return close(fd) && r == 0 ? -errno : r;
}

void convert_note(struct session *s, const struct inode *in, struct sink_file *f, const char *shown)
{
	const struct drain_watcher *w = &s->opt->watcher;
	enum drain_layout layout = DRAIN_LAYOUT_CANONICAL;
	char *options = NULL, text[128];
	int r = conversion_own_layout(s, in, f, &layout, &options, NULL);

	free(options);
	if (r == 0 && !(in->ino & STATE_BACKING_INO_BIT))
		layout = drain_layout_of(s->opt->convert->rules, shown);
	/* A wrong attribute is for the last session to tell of. */
	if (r != -EINVAL && layout != DRAIN_LAYOUT_NETCDF4)
		return;
	r = append(s->opt->convert->list_path, in->ino);
	snprintf(text, sizeof(text), "it cannot be noted in the store: %s", strerror(-r));
	if (r < 0 && w->layout)
		w->layout(shown, true, text, w->arg);
}

/* ---- what is said */

static int checksum(struct sink_file *f, uint32_t *ret)
{
	uint8_t *buf = malloc(READ_BYTES);
	uint64_t off = 0;
	ssize_t n = buf ? 1 : -ENOMEM;

	*ret = 0;
	while (n > 0) {
		n = f->ops->pread(f, buf, READ_BYTES, off);
		if (n > 0) {
			*ret = crc32c(*ret, buf, (size_t)n);
			off += (uint64_t)n;
		}
	}
	free(buf);
	return (int)n;
}

static void tell_converted(struct session *s, const struct conversion *c)
{
	const struct drain_watcher *w = &s->opt->watcher;
	struct manifest_file mf = { .path = c->path,
		.state = "verified",
		.size = c->size,
		.bytes_written = c->size,
		.extents = 1,
		.has_checksum = true,
		.crc = c->crc,
		.of_file = true,
		.warning = c->warning.text[0] ? c->warning.text : NULL,
		.layout = drain_layout_name(DRAIN_LAYOUT_NETCDF4),
		.facts = c->result.facts,
		.num_facts = c->result.num_facts };

	s->result.converted++;
	if (w->layout)
		w->layout(c->path, false, "", w->arg);
	if (s->opt->manifest)
		manifest_add_file(s->opt->manifest, &mf);
}

static int kept(struct session *s, struct conversion *c, bool again, const char *fmt, ...)
	__attribute__((format(printf, 4, 5)));

/* It stays as it is; returns 0, or what ends the session. */
static int kept(struct session *s, struct conversion *c, bool again, const char *fmt, ...)
{
	const struct drain_watcher *w = &s->opt->watcher;
	va_list ap;

	if (s->fatal || c->quiet)
		return s->fatal;
	va_start(ap, fmt);
	vsnprintf(c->result.reason, sizeof(c->result.reason), fmt, ap);
	va_end(ap);
	c->again = again;
	s->result.kept++;
	if (w->layout)
		w->layout(c->path, true, c->result.reason, w->arg);
	if (s->opt->manifest)
		manifest_add_kept(
			s->opt->manifest, c->path, drain_layout_name(DRAIN_LAYOUT_CANONICAL), c->result.reason);
	return 0;
}

/* One of any kind: the log is not filled with those. */
static int kept_other(struct session *s, const struct conversion *c)
{
	if (c->quiet)
		return 0;
	s->result.kept++;
	if (s->opt->manifest)
		manifest_add_kept(
			s->opt->manifest, c->path, drain_layout_name(DRAIN_LAYOUT_CANONICAL), MANIFEST_KEPT_OTHER);
	return 0;
}

static int kept_errno(struct session *s, struct conversion *c, int r, const char *doing)
{
	return kept(s, c, true, "%s: %s", doing, strerror(-r));
}

/* ---- one file */

static int make_paths(struct session *s, struct conversion *c)
{
	char name[RECORD_NAME_MAX + 1];
	const char *slash = strrchr(c->path, '/');
	int r;

	c->name = slash ? slash + 1 : c->path;
	snprintf(c->dir_path, sizeof(c->dir_path), "%.*s", slash ? (int)(slash - c->path) : 1, slash ? c->path : ".");
	temps_note(s, c->in.origin_parent, false);
	snprintf(name, sizeof(name), "%s%" PRIu64 "-nc4", s->temp_prefix, c->in.ino);
	r = session_join(c->temp, sizeof(c->temp), c->dir_path, name);
	snprintf(name, sizeof(name), "%s%" PRIu64, s->classic_prefix, c->in.ino);
	return r < 0 ? r : session_join(c->keep, sizeof(c->keep), c->dir_path, name);
}

/* Of a session that was killed when all but this had been done. */
static void remove_kept_name(struct session *s, const struct conversion *c)
{
	struct stat st;

	if (s->to->ops->stat(s->to, c->keep, &st) == 0)
		s->to->ops->remove(s->to, c->keep, false);
}

int conversion_look_at(struct session *s, struct conversion *c)
{
	enum drain_layout layout;
	struct cistern_error err = { 0 };
	uint8_t magic[4];
	int r = s->to->ops->open(s->to, c->path, SINK_READ, &c->from);

	if (r == 0)
		r = c->from->ops->fstat(c->from, &c->st);
	if (r < 0 || !session_is_same(&c->in, &c->st))
		return 0; /* somebody has removed or replaced it: it is theirs */
	remove_kept_name(s, c);
	if (c->from->ops->fstat(c->from, &c->st) < 0)
		return 0;
	r = conversion_own_layout(s, &c->in, c->from, &layout, &c->options, &err);
	if (r < 0)
		return kept(s, c, false, "%s", err.text);
	if (r == 0)
		layout = c->in.ino & STATE_BACKING_INO_BIT ? DRAIN_LAYOUT_CANONICAL
							   : drain_layout_of(s->opt->convert->rules, c->path);
	if (layout != DRAIN_LAYOUT_NETCDF4)
		return 0;
	if (c->in.nlink > 1 || c->st.st_nlink > 1)
		return kept(s, c, false, "it has several names (hard links), and the others would stay classic");
	if (c->from->ops->pread(c->from, magic, sizeof(magic), 0) != sizeof(magic) || !classic_is(magic, sizeof(magic)))
		return kept_other(s, c);
	return 1;
}

static int copy_attributes(struct conversion *c)
{
	struct sink_attr attr = { .mode = c->st.st_mode,
		.uid = c->st.st_uid,
		.gid = c->st.st_gid,
		.atime_ns = clock_ns_of(c->st.st_atim),
		.mtime_ns = clock_ns_of(c->st.st_mtim) };
	const char *warning = NULL;
	int r = c->to->ops->set_attr(c->to, &attr, &warning);

	attrs_add_warning(&c->warning, warning);
	if (r == 0)
		r = attrs_copy_xattrs(c->from, c->to, &c->warning);
	attr.times_only = true;
	return r == 0 ? c->to->ops->set_attr(c->to, &attr, &warning) : r;
}

/* -EBUSY: the original has been written to meanwhile, by somebody in the backing directory. */
static int finish_file(struct session *s, struct conversion *c, struct stat *ret)
{
	struct stat now;
	int r = checksum(c->to, &c->crc);

	if (r == 0)
		r = copy_attributes(c);
	if (r == 0)
		r = c->to->ops->sync(c->to, false);
	if (r == 0)
		r = c->to->ops->fstat(c->to, ret);
	if (r == 0)
		r = s->to->ops->stat(s->to, c->path, &now);
	if (r == 0 && (now.st_ino != c->st.st_ino || now.st_size != c->st.st_size ||
			      now.st_mtim.tv_sec != c->st.st_mtim.tv_sec ||
			      now.st_mtim.tv_nsec != c->st.st_mtim.tv_nsec || now.st_nlink != 1))
		r = -EBUSY;
	return r;
}

/* In this order: at each moment either the state knows the file that has the name, or the intent leads back to it. */
static int publish(struct session *s, struct conversion *c, const struct stat *st)
{
	struct record rec = { .type = RECORD_PLACED,
		.flags = RECORD_F_MOVED, /* from its own place: it is another file there now */
		.ino = c->in.ino,
		.gen = c->in.gen,
		.parent = c->in.origin_parent,
		.from_parent = c->in.origin_parent,
		.backing_dev = st->st_dev,
		.backing_ino = st->st_ino };
	int r = session_tick(s, true);

	memcpy(rec.name, c->in.origin_name, sizeof(rec.name));
	memcpy(rec.from_name, c->in.origin_name, sizeof(rec.from_name));
	if (r == 0)
		r = s->to->ops->link(s->to, c->path, c->keep);
	if (r == 0)
		r = session_intend(s, &rec, c->keep, c->path, "", false, NULL);
	if (r == 0)
		r = s->to->ops->rename(s->to, c->temp, c->path, false);
	if (r < 0) {
		if (!s->fatal)
			s->to->ops->remove(s->to, c->keep, false);
		return s->fatal ? s->fatal
				: kept(s, c, r != -EPERM && r != -EOPNOTSUPP,
					  "the converted file cannot take its place: %s", strerror(-r));
	}
	c->size = (uint64_t)st->st_size;
	tell_converted(s, c);
	r = session_touch(s, c->in.origin_parent);
	if (r == 0)
		r = session_step(s, &rec);
	if (r == 0)
		r = session_flush_steps(s);
	return r < 0 ? r : s->to->ops->remove(s->to, c->keep, false);
}

static int make_temp(struct session *s, struct conversion *c)
{
	int r = names_sweep(s, c->in.origin_parent, c->dir_path);

	if (r == 0)
		r = s->to->ops->open(s->to, c->temp, SINK_CREATE, &c->to);
	if (r == -EEXIST && s->to->ops->remove(s->to, c->temp, false) == 0)
		r = s->to->ops->open(s->to, c->temp, SINK_CREATE, &c->to);
	return r;
}

/* 1: it is made and proved; 0: it stays as it is, which is told. */
static int make_file(struct session *s, struct conversion *c)
{
	struct convert_task task = { .options = c->options ? c->options : "" };
	int r = make_temp(s, c);

	if (r < 0)
		return kept_errno(s, c, r, "no temporary file can be made in its directory");
	task.in = c->from->ops->descriptor(c->from);
	task.out = c->to->ops->descriptor(c->to);
	r = convert_program_run(s, &task, &c->result);
	if (r == 0 && !c->result.converted) {
		char reason[sizeof(c->result.reason)];

		memcpy(reason, c->result.reason, sizeof(reason));
		return kept(s, c, !c->result.by_nature, "%s", reason);
	}
	return r < 0 ? r : 1;
}

static int finish(struct session *s, struct conversion *c)
{
	struct stat st;
	int r = finish_file(s, c, &st);

	return r < 0 ? kept_errno(s, c, r, "the converted file cannot be completed") : publish(s, c, &st);
}

static int convert_one(struct session *s, struct conversion *c)
{
	int r = conversion_look_at(s, c);

	if (r == 1) {
		r = together_take(s, c);
		if (r == 0)
			r = make_file(s, c);
		if (r == 1)
			r = finish(s, c);
		if (c->to) /* not there any more when it has taken its place */
			s->to->ops->remove(s->to, c->temp, false);
	}
	together_clean(s, c);
	return r;
}

/* One that could not be drained is noted again when it is. */
static bool may_be(struct session *s, uint64_t ino, struct conversion *c, char *path, size_t cap)
{
	return state_inode(s->st, ino, &c->in) == 0 && S_ISREG(c->in.mode) && !(c->in.flags & DIRTY_FLAGS) &&
	       state_backing_path(s->st, ino, path, cap) == 0;
}

static int each_one(
	struct session *s, uint64_t ino, int (*one)(struct session *s, struct conversion *c), bool *ret_again)
{
	struct conversion *c = calloc(1, sizeof(*c));
	char path[SESSION_PATH_MAX];
	int r = 0;

	if (!c)
		return -ENOMEM;
	if (may_be(s, ino, c, path, sizeof(path))) {
		c->path = path;
		session_set_path(s, path);
		r = make_paths(s, c);
		if (r == 0)
			r = one(s, c);
		*ret_again = c->again;
	}
	sink_file_close(c->from);
	sink_file_close(c->to);
	free(c->options);
	free(c);
	return s->fatal ? s->fatal : r;
}

/* ---- the list */

static int read_list(const char *path, char **ret)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC), r = 0;
	struct stat st;
	char *text = NULL;
	ssize_t n;

	*ret = NULL;
	if (fd < 0)
		return errno == ENOENT ? 0 : -errno;
	if (fstat(fd, &st))
		r = -errno;
	else if (st.st_size > LIST_MAX)
		r = -EFBIG;
	else if (!(text = calloc(1, (size_t)st.st_size + 1)))
		r = -ENOMEM;
	n = r == 0 ? pread(fd, text, (size_t)st.st_size, 0) : 0;
	if (n < 0)
		r = -errno;
	close(fd);
	if (r < 0)
		free(text);
	else
		*ret = text;
	return r;
}

/* What is to be tried again is left. A list that is lost in a crash leaves files as they are: nothing else. */
static int write_list(const char *path, const char *text)
{
	FILE *out;
	bool bad;

	if (!*text)
		return unlink(path) && errno != ENOENT ? -errno : 0;
	out = fopen(path, "we");
	if (!out)
		return -errno;
	bad = fputs(text, out) < 0;
	return fclose(out) || bad ? -EIO : 0;
}

static int run_list(
	struct session *s, const char *text, int (*one)(struct session *s, struct conversion *c), FILE *rest)
{
	struct idmap seen = { 0 };
	int r = 0;

	while (r == 0 && *text) {
		uint64_t ino = strtoull(text, NULL, 10);
		bool again = false, whole = strchr(text, '\n') != NULL;

		text += strcspn(text, "\n") + whole;
		if (!whole || ino == 0 || idmap_get(&seen, ino))
			continue;
		r = idmap_set(&seen, ino, 1);
		if (r == 0)
			r = each_one(s, ino, one, &again);
		if (again && rest)
			fprintf(rest, "%" PRIu64 "\n", ino);
		if (r == 0)
			r = session_tick(s, false);
	}
	idmap_free(&seen);
	return r;
}

int conversion_each(struct session *s, int (*one)(struct session *s, struct conversion *c))
{
	char *text = NULL;
	int r = read_list(s->opt->convert->list_path, &text);

	if (r == 0 && text)
		r = run_list(s, text, one, NULL);
	free(text);
	return r;
}

int convert_run(struct session *s)
{
	char *text = NULL, *rest_text = NULL;
	size_t len = 0;
	FILE *rest;
	int r;

	if (!s->opt->convert || !s->opt->convert->now)
		return 0;
	r = read_list(s->opt->convert->list_path, &text);
	if (r < 0 || !text)
		return r;
	rest = open_memstream(&rest_text, &len);
	r = rest ? run_list(s, text, convert_one, rest) : -ENOMEM;
	if (rest && fclose(rest) && r == 0)
		r = -ENOMEM;
	if (r == 0)
		r = write_list(s->opt->convert->list_path, rest_text);
	free(rest_text);
	free(text);
	return r;
}
