/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Finding logs. A name may be FILE.meta, its FILE.data, a netCDF file (then logs are sought beside it, and where
 * PNETCDF_HINTS had the driver put them), or a directory with logs. What looks like a log by its first bytes but cannot be
 * read stays in the set, so that nobody takes an incomplete set for a whole one.
 */
#include "tools/lib/bbset.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "format/base/array.h"
#include "format/base/fdio.h"
#include "format/base/hints.h"

#define META_SUFFIX     ".meta"
#define DATA_SUFFIX     ".data"
#define REPAIRED_SUFFIX ".repaired" /* fsck's copies */
#define HEAD_BYTES      64
#define NO_NCID         UINT32_MAX

#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22
#endif

/* ---- files */

/* A place for one more open file: of the one that was opened longest ago among those that nobody reads. */
static struct bbset_file **find_slot(struct bbset *set)
{
	for (size_t i = 0; i < BBSET_OPEN_MAX; i++) {
		struct bbset_file **slot = &set->open[set->next_open++ % BBSET_OPEN_MAX];

		if (!*slot || (*slot)->users == 0)
			return slot;
	}
	return NULL;
}

/* Opens the file again if need be. */
static int file_fd(struct bbset_file *f)
{
	struct bbset_file **slot;

	if (f->fd >= 0)
		return f->fd;
	slot = find_slot(f->set);
	if (!slot)
		return -EMFILE;
	f->fd = open(f->path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
	if (f->fd < 0)
		return -errno;
	if (*slot) {
		close((*slot)->fd);
		(*slot)->fd = -1;
	}
	*slot = f;
	return f->fd;
}

/* The descriptor stays open until end_use(). */
static int begin_use(struct bbset_file *f)
{
	int fd;

	pthread_mutex_lock(&f->set->lock);
	fd = file_fd(f);
	f->users += fd >= 0;
	pthread_mutex_unlock(&f->set->lock);
	return fd;
}

static void end_use(struct bbset_file *f)
{
	pthread_mutex_lock(&f->set->lock);
	f->users--;
	pthread_mutex_unlock(&f->set->lock);
}

/* For bblog_source: exactly len bytes. */
static int file_read(void *arg, uint64_t off, void *buf, size_t len)
{
	struct bbset_file *f = arg;
	int fd = begin_use(f), r;

	if (fd < 0)
		return fd;
	r = fdio_read_exact(fd, buf, len, off);
	end_use(f);
	return r;
}

static uint64_t in_page(uint64_t off)
{
	return off % (uint64_t)sysconf(_SC_PAGESIZE);
}

static void end_view(void *arg, const uint8_t *bytes, size_t len)
{
	size_t before = (size_t)in_page((uintptr_t)bytes);

	(void)arg;
	munmap((void *)(uintptr_t)(bytes - before), before + len);
}

/* As long as it is mapped. All of it is there then: what the file lost, or the device does not give, is noticed here, and said when it is read. */
static const uint8_t *file_view(void *arg, uint64_t off, size_t len)
{
	struct bbset_file *f = arg;
	size_t before = (size_t)in_page(off);
	int fd = atomic_load(&f->no_view) ? -1 : begin_use(f);
	uint8_t *p;

	if (fd < 0)
		return NULL;
	p = mmap(NULL, before + len, PROT_READ, MAP_PRIVATE, fd, (off_t)(off - before));
	end_use(f);
	if (p != MAP_FAILED && madvise(p, before + len, MADV_POPULATE_READ) == 0)
		return p + before;
	if (p != MAP_FAILED)
		munmap(p, before + len);
	atomic_store(&f->no_view, true);
	return NULL;
}

static void free_file(struct bbset_file *f)
{
	if (!f)
		return;
	if (f->fd >= 0)
		close(f->fd);
	free(f->path);
	free(f);
}

/* NULL with errno: it cannot be opened, or is no regular file. */
static struct bbset_file *add_file(struct bbset *set, const char *path)
{
	struct bbset_file *f = calloc(1, sizeof(*f));

	if (!f || array_room(&set->files, &set->cap_files, set->num_files, sizeof(*set->files)) < 0) {
		free(f);
		errno = ENOMEM;
		return NULL;
	}
	f->set = set;
	f->fd = -1;
	f->path = strdup(path);
	if (!f->path || stat(path, &f->st) < 0 || !S_ISREG(f->st.st_mode)) {
		int why = !f->path ? ENOMEM : !S_ISREG(f->st.st_mode) && f->st.st_mode ? EINVAL : errno;

		free_file(f);
		errno = why;
		return NULL;
	}
	set->files[set->num_files++] = f;
	return f;
}

/* The first bytes of a regular file; how many, 0 when there are none to be had. */
static size_t read_head(const char *path, uint8_t head[HEAD_BYTES])
{
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	struct stat st;
	ssize_t n = 0;

	if (fd < 0)
		return 0;
	if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode))
		n = pread(fd, head, HEAD_BYTES, 0);
	close(fd);
	return n > 0 ? (size_t)n : 0;
}

static bool is_meta_file(const char *path)
{
	uint8_t head[HEAD_BYTES];

	return bblog_is_meta(head, read_head(path, head));
}

static bool is_netcdf_file(const char *path)
{
	uint8_t head[HEAD_BYTES];
	size_t len = read_head(path, head);

	return len >= 4 && classic_is(head, len);
}

static bool ends_with(const char *s, const char *suffix)
{
	size_t a = strlen(s), b = strlen(suffix);

	return a >= b && strcmp(s + a - b, suffix) == 0;
}

/* path with its suffix exchanged. */
static bool other_suffix(const char *path, const char *from, const char *to, char out[PATH_MAX])
{
	size_t len = strlen(path) - strlen(from);

	if (!ends_with(path, from) || len + strlen(to) >= PATH_MAX)
		return false;
	memcpy(out, path, len);
	strcpy(out + len, to);
	return true;
}

/* FILE_NCID_RANK.meta: the two numbers. */
static uint32_t ncid_of(const char *path)
{
	size_t len = strlen(path) - strlen(META_SUFFIX), digits;

	if (!ends_with(path, META_SUFFIX))
		return NO_NCID;
	for (int part = 0; part < 2; part++) {
		for (digits = 0; len > 0 && path[len - 1] >= '0' && path[len - 1] <= '9'; digits++)
			len--;
		if (digits == 0 || digits > 9 || len == 0 || path[len - 1] != '_')
			return NO_NCID;
		if (part == 1)
			return (uint32_t)strtoul(path + len, NULL, 10);
		len--;
	}
	return NO_NCID;
}

/* ---- logs */

static const char *check_data(struct bbset_file *data)
{
	char magic[BBLOG_MAGIC_BYTES];

	if (!data)
		return "its data file is missing";
	if ((uint64_t)data->st.st_size < BBLOG_MAGIC_BYTES || file_read(data, 0, magic, sizeof(magic)) < 0)
		return "its data file is empty, or cannot be read";
	return memcmp(magic, BBLOG_MAGIC, sizeof(magic)) == 0 ? NULL : "its data file does not begin as one";
}

static struct bblog_source source_of(struct bbset_file *f)
{
	return (struct bblog_source){ .read = file_read, .arg = f, .size = f ? (uint64_t)f->st.st_size : 0 };
}

/* One channel. Damage is kept as the log's state, and no failure. */
static int add_channel(struct bbset *set, struct bbset_file *meta, struct bbset_file *data, uint32_t channel,
	uint32_t num_channels, const char *broken)
{
	struct bblog_source src = source_of(meta);
	struct cistern_error why = { 0 };
	struct bbset_log *l;
	int r = array_room(&set->logs, &set->cap, set->num, sizeof(*set->logs));

	if (r < 0)
		return r;
	l = &set->logs[set->num];
	*l = (struct bbset_log){ .meta = meta, .data = data, .channel = channel, .num_channels = num_channels };
	l->ncid = ncid_of(meta->path);
	l->no_data = check_data(data);
	l->data_source = source_of(l->no_data ? NULL : data);
	l->data_source.view = file_view;
	l->data_source.end_view = end_view;
	r = broken ? -EBADMSG : bblog_open(&src, channel, num_channels, &l->log, &why);
	if (r == -ENOMEM)
		return r;
	if (r < 0) {
		l->broken = strdup(broken ? broken : why.text);
		if (!l->broken)
			return -ENOMEM;
	}
	set->num++;
	return 0;
}

static bool is_known(const struct bbset *set, const struct stat *st)
{
	for (size_t i = 0; i < set->num; i++)
		if (set->logs[i].meta->st.st_dev == st->st_dev && set->logs[i].meta->st.st_ino == st->st_ino)
			return true;
	return false;
}

static int add_meta(struct bbset *set, const char *path, struct cistern_error *err)
{
	struct bbset_file *meta = add_file(set, path), *data = NULL;
	struct cistern_error why = { 0 };
	char data_path[PATH_MAX];
	struct bblog_source src;
	uint32_t num = 1;
	int r;

	if (!meta)
		return cistern_error_set(err, -errno, "%s: %s", path, strerror(errno));
	if (is_known(set, &meta->st))
		return 0;
	if (other_suffix(path, META_SUFFIX, DATA_SUFFIX, data_path) ||
		other_suffix(path, META_SUFFIX REPAIRED_SUFFIX, DATA_SUFFIX, data_path))
		data = add_file(set, data_path);
	src = source_of(meta);
	r = bblog_channels(&src, &num, &why);
	if (r < 0) {
		r = add_channel(set, meta, data, 0, 1, why.text);
		return r < 0 ? cistern_error_set(err, r, "%s: %s", path, strerror(-r)) : 0;
	}
	for (uint32_t c = 0; c < num && r == 0; c++)
		r = add_channel(set, meta, data, c, num, NULL);
	return r < 0 ? cistern_error_set(err, r, "%s: %s", path, strerror(-r)) : 0;
}

/* ---- names */

/* Names of dir's logs, those of the netCDF file base only unless it is NULL, in any order. each() may stop it. */
static int each_meta(const char *dir, const char *base, int (*each)(const char *path, void *arg), void *arg)
{
	DIR *d = opendir(dir);
	struct dirent *e;
	int r = 0;

	if (!d)
		return -errno;
	while (r == 0 && (errno = 0, e = readdir(d))) {
		char path[PATH_MAX];
		size_t len = base ? strlen(base) : 0;

		if (!ends_with(e->d_name, META_SUFFIX) ||
			(base && (strncmp(e->d_name, base, len) != 0 || e->d_name[len] != '_')))
			continue;
		if (snprintf(path, sizeof(path), "%s/%s", dir, e->d_name) < (int)sizeof(path) && is_meta_file(path))
			r = each(path, arg);
	}
	if (!e && r == 0)
		r = -errno;
	closedir(d);
	return r;
}

struct adding {
	struct bbset *set;
	struct cistern_error *err;
};

static int add_each(const char *path, void *arg)
{
	struct adding *a = arg;

	return add_meta(a->set, path, a->err);
}

static int stop_at_first(const char *path, void *arg)
{
	(void)path;
	(void)arg;
	return 1;
}

/* The directory of path and its last part. */
static const char *split(const char *path, char dir[PATH_MAX])
{
	const char *slash = strrchr(path, '/');

	snprintf(dir, PATH_MAX, "%.*s", slash ? (int)(slash - path) : 1, slash ? path : ".");
	if (slash == path)
		strcpy(dir, "/");
	return slash ? slash + 1 : path;
}

/* Where logs of the netCDF file may lie: beside it, or where the hints of the environment say. 1: stopped by each(). */
static int each_meta_of(const char *netcdf, int (*each)(const char *path, void *arg), void *arg)
{
	char dir[PATH_MAX], hinted[PATH_MAX] = "";
	const char *base = split(netcdf, dir);
	int r = each_meta(dir, base, each, arg);

	hints_find(getenv("PNETCDF_HINTS"), "nc_burst_buf_dirname", hinted, sizeof(hinted));
	if (r == 0 && *hinted)
		r = each_meta(hinted, base, each, arg);
	return r == -ENOENT && *hinted ? 0 : r;
}

static bool is_store(const char *dir)
{
	char path[PATH_MAX];

	return snprintf(path, sizeof(path), "%s/superblock", dir) < (int)sizeof(path) && access(path, F_OK) == 0;
}

bool bbset_is_directory(const char *name)
{
	struct stat st;

	return stat(name, &st) == 0 && S_ISDIR(st.st_mode);
}

/* name, or the FILE.meta that belongs to a FILE.data. */
static const char *meta_name(const char *name, char buf[PATH_MAX])
{
	return other_suffix(name, DATA_SUFFIX, META_SUFFIX, buf) && is_meta_file(buf) ? buf : name;
}

bool bbset_is_target(const char *name, bool netcdf)
{
	char buf[PATH_MAX];

	if (bbset_is_directory(name))
		return !is_store(name) && each_meta(name, NULL, stop_at_first, NULL) == 1;
	if (is_meta_file(meta_name(name, buf)))
		return true;
	return netcdf && is_netcdf_file(name) && each_meta_of(name, stop_at_first, NULL) == 1;
}

static int add_netcdf(struct bbset *set, const char *name)
{
	if (array_room(&set->netcdf, &set->cap_netcdf, set->num_netcdf, sizeof(*set->netcdf)) < 0)
		return -ENOMEM;
	set->netcdf[set->num_netcdf] = strdup(name);
	return set->netcdf[set->num_netcdf++] ? 0 : -ENOMEM;
}

static int add_name(struct bbset *set, const char *name, struct cistern_error *err)
{
	struct adding adding = { .set = set, .err = err };
	char buf[PATH_MAX];
	const char *meta = meta_name(name, buf);
	int r;

	if (is_meta_file(meta))
		return add_meta(set, meta, err);
	if (bbset_is_directory(name))
		r = each_meta(name, NULL, add_each, &adding);
	else if (is_netcdf_file(name))
		r = add_netcdf(set, name);
	else if (access(name, R_OK) < 0)
		r = -errno;
	else
		return cistern_error_set(err, -EINVAL,
			"%s is neither a log of PnetCDF's burst-buffer driver nor a classic netCDF file", name);
	return r < 0 && (!err || !err->code) ? cistern_error_set(err, r, "%s: %s", name, strerror(-r)) : r;
}

static int log_order(const void *pa, const void *pb)
{
	const struct bbset_log *a = pa, *b = pb;
	uint64_t ra, rb;
	int r;

	if (!a->log || !b->log)
		return a->log ? -1 : b->log ? 1 : strcmp(a->meta->path, b->meta->path);
	r = strcmp(bblog_header(a->log)->path, bblog_header(b->log)->path);
	if (r != 0)
		return r;
	if (a->ncid != b->ncid)
		return a->ncid < b->ncid ? -1 : 1;
	ra = bblog_header(a->log)->rank;
	rb = bblog_header(b->log)->rank;
	return ra != rb ? (ra < rb ? -1 : 1) : strcmp(a->meta->path, b->meta->path);
}

/* netCDF files bring their logs along where only they were named. */
static int add_logs_of_netcdf(struct bbset *set, struct cistern_error *err)
{
	struct adding adding = { .set = set, .err = err };
	int r = 0;

	for (size_t i = 0; i < set->num_netcdf && r == 0; i++) {
		r = each_meta_of(set->netcdf[i], add_each, &adding);
		if (r < 0 && (!err || !err->code))
			cistern_error_set(err, r, "%s: %s", set->netcdf[i], strerror(-r));
	}
	return r;
}

int bbset_open(char *const *names, struct bbset *ret, struct cistern_error *err)
{
	int r = 0;

	*ret = (struct bbset){ .lock = PTHREAD_MUTEX_INITIALIZER };
	for (char *const *n = names; *n && r == 0; n++)
		r = add_name(ret, *n, err);
	if (r == 0 && ret->num == 0)
		r = add_logs_of_netcdf(ret, err);
	if (r == 0 && ret->num == 0)
		r = cistern_error_set(err, -ENOENT, "%s: there are no logs of PnetCDF's burst-buffer driver", names[0]);
	if (r < 0) {
		bbset_close(ret);
		return r;
	}
	qsort(ret->logs, ret->num, sizeof(*ret->logs), log_order);
	return 0;
}

void bbset_close(struct bbset *set)
{
	for (size_t i = 0; i < set->num; i++) {
		bblog_close(set->logs[i].log);
		free(set->logs[i].broken);
	}
	for (size_t i = 0; i < set->num_files; i++)
		free_file(set->files[i]);
	for (size_t i = 0; i < set->num_netcdf; i++)
		free(set->netcdf[i]);
	free(set->logs);
	free(set->files);
	free(set->netcdf);
	*set = (struct bbset){ 0 };
}

/* ---- groups */

static bool same_file(const char *a, const char *b)
{
	struct stat sa, sb;

	return stat(a, &sa) == 0 && stat(b, &sb) == 0 && sa.st_dev == sb.st_dev && sa.st_ino == sb.st_ino;
}

static const char *last_part(const char *path)
{
	return strrchr(path, '/') ? strrchr(path, '/') + 1 : path;
}

/* Named on the command line: the one of the same name, or the only one. */
static const char *named_netcdf(const struct bbset *set, const char *path)
{
	for (size_t i = 0; i < set->num_netcdf; i++)
		if (strcmp(last_part(set->netcdf[i]), last_part(path)) == 0)
			return set->netcdf[i];
	return set->num_netcdf == 1 ? set->netcdf[0] : NULL;
}

/* Where it was when the logs were written, or beside them. */
static void find_netcdf(const struct bbset *set, struct bbset_group *g)
{
	const char *named = named_netcdf(set, g->path);
	char dir[PATH_MAX], beside[PATH_MAX];

	g->netcdf[0] = g->other[0] = '\0';
	split(g->logs[0].meta->path, dir);
	if (snprintf(beside, sizeof(beside), "%s/%s", dir, last_part(g->path)) >= (int)sizeof(beside) ||
		!is_netcdf_file(beside))
		beside[0] = '\0';
	if (named) {
		snprintf(g->netcdf, sizeof(g->netcdf), "%s", named);
	} else if (strlen(g->path) < PATH_MAX && is_netcdf_file(g->path)) {
		snprintf(g->netcdf, sizeof(g->netcdf), "%s", g->path);
		if (*beside && !same_file(beside, g->path))
			snprintf(g->other, sizeof(g->other), "%s", beside);
	} else {
		snprintf(g->netcdf, sizeof(g->netcdf), "%s", beside);
	}
}

static bool later(const struct timespec *a, const struct timespec *b)
{
	return a->tv_sec != b->tv_sec ? a->tv_sec > b->tv_sec : a->tv_nsec > b->tv_nsec;
}

static void take_newest(struct timespec *newest, const struct bbset_file *f)
{
	if (f && later(&f->st.st_mtim, newest))
		*newest = f->st.st_mtim;
}

bool bbset_next(struct bbset *set, size_t *at, struct bbset_group *ret)
{
	struct bbset_log *first = &set->logs[*at];
	uint64_t last_rank = UINT64_MAX;

	if (*at >= set->num || !first->log)
		return false;
	*ret = (struct bbset_group){ .logs = first, .path = bblog_header(first->log)->path, .ncid = first->ncid };
	for (; *at < set->num && set->logs[*at].log; ++*at) {
		struct bbset_log *l = &set->logs[*at];
		const struct bblog_header *h = bblog_header(l->log);

		if (l->ncid != ret->ncid || strcmp(h->path, ret->path) != 0)
			break;
		ret->num++;
		ret->twice |= h->rank == last_rank;
		last_rank = h->rank;
		ret->several_runs |= ret->num_ranks > 0 && h->num_ranks != ret->num_ranks;
		if (h->num_ranks > ret->num_ranks)
			ret->num_ranks = h->num_ranks;
		take_newest(&ret->newest, l->meta);
		take_newest(&ret->newest, l->data);
	}
	find_netcdf(set, ret);
	return true;
}

struct bbreplay_log *bbset_replay_logs(const struct bbset_group *g)
{
	struct bbreplay_log *logs = calloc(g->num, sizeof(*logs));

	for (size_t i = 0; logs && i < g->num; i++)
		logs[i] = (struct bbreplay_log){ .meta = g->logs[i].log,
			.data = g->logs[i].data_source,
			.channel = g->logs[i].channel,
			.num_channels = g->logs[i].num_channels };
	return logs;
}

/* Appends the ranks from begin up to end. */
static void append_ranks(char *out, size_t cap, uint64_t begin, uint64_t end)
{
	size_t len = strlen(out);

	snprintf(out + len, cap - len, end - begin > 1 ? "%s%" PRIu64 "-%" PRIu64 : "%s%" PRIu64, len ? ", " : "",
		begin, end - 1);
}

uint64_t bbset_missing(const struct bbset_group *g, char *out, size_t cap)
{
	uint64_t next = 0, missing = 0;

	*out = '\0';
	for (size_t i = 0; i <= g->num; i++) {
		uint64_t rank = i < g->num ? bblog_header(g->logs[i].log)->rank : g->num_ranks;

		if (rank > next) {
			append_ranks(out, cap, next, rank);
			missing += rank - next;
		}
		next = rank + 1;
	}
	return missing;
}

/* ---- the netCDF file */

int bbset_read_netcdf(const char *path, struct stat *ret_st, struct classic *ret, struct cistern_error *err)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY), r;
	struct stat st;

	if (fd < 0 || fstat(fd, &st) < 0) {
		r = cistern_error_set(err, -errno, "%s: %s", path, strerror(errno));
	} else {
		r = classic_read(fdio_read_arg, &fd, ret, err);
		if (r < 0)
			cistern_error_prefix(err, "%s", path);
		else if (ret_st)
			*ret_st = st;
	}
	if (fd >= 0)
		close(fd);
	return r;
}
