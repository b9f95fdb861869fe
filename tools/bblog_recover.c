/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * cistern recover of PnetCDF's burst-buffer logs: replay onto the netCDF file. The logs are only read. The file is changed in
 * a copy beside its place, which takes the place once it is whole and on the device; what was there before is there until then. With
 * --in-place the file itself is changed, for files too large to be copied: interrupted, it is to be done again, which gives
 * the same.
 *
 * A log does not say whether the driver closed its file normally after it. So what the replay changes is compared: nothing, when
 * it did. When the file is much younger than the logs, or a little and has a good part of their values, but not all, somebody
 * may have changed it since, and nothing is done unasked.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "format/base/fdio.h"
#include "format/base/json.h"
#include "format/base/units.h"
#include "format/codec/bbreplay.h"
#include "tools/bblog.h"
#include "tools/lib/bbset.h"
#include "tools/lib/clock.h"
#include "tools/lib/parallel.h"
#include "tools/lib/say.h"

#define RANKS_BYTES  256
#define LATE_SECONDS 600
#define THERE_SHARE  4

struct recovery {
	const struct bblog_recover *opt;
	struct bbset_group g;
	struct json *j; /* NULL: text */
	struct classic nc;
	char to[PATH_MAX];   /* the file that is to have everything, resolved */
	char base[PATH_MAX]; /* the file that has the header: the same, if it exists */
	char temp[PATH_MAX]; /* where the copy is; "" */
	struct stat st;      /* of the base, before it was read */
	bool exists;         /* to does */
	int fd;              /* owned; the file that is read and written */
	struct bbreplay_stats stats;
	uint64_t replay_usec; /* of the replay alone, without the copy before and the sync after it */
	const char *state;    /* for the report */
};

/* ---- bytes of the netCDF file */

static int file_read(void *arg, uint64_t off, void *buf, size_t len)
{
	const struct recovery *rc = arg;

	return fdio_read_exact(rc->fd, buf, len, off);
}

static int file_write(void *arg, uint64_t off, const void *buf, size_t len)
{
	const struct recovery *rc = arg;

	return fdio_write(rc->fd, buf, len, off);
}

/* What cannot be had now is said when it is written. */
static void file_reserve(void *arg, uint64_t off, uint64_t len)
{
	const struct recovery *rc = arg;

	(void)fallocate(rc->fd, FALLOC_FL_KEEP_SIZE, (off_t)off, (off_t)len);
}

static void each(void *arg, unsigned int num, void (*work)(void *task, unsigned int i), void *task)
{
	(void)arg;
	parallel_each(num, work, task);
}

/* ---- findings */

static const char *const kind_keys[] = {
	[BBREPLAY_WRONG] = "wrong",
	[BBREPLAY_LOST] = "lost",
	[BBREPLAY_DATA] = "no-data",
	[BBREPLAY_RANGE] = "range",
	[BBREPLAY_CONFLICT] = "conflict",
};

static void finding_json(struct recovery *rc, const struct bbreplay_finding *f, uint64_t rank, const char *var)
{
	struct json *j = rc->j;

	json_object(j);
	json_kstr(j, "kind", kind_keys[f->kind]);
	json_kstr(j, "log", rc->g.logs[f->log].meta->path);
	json_ku64(j, "rank", rank);
	json_ku64(j, "entry", f->seq);
	if (*var)
		json_kstr(j, "variable", var);
	json_ku64(j, f->kind == BBREPLAY_CONFLICT ? "bytes" : f->kind == BBREPLAY_LOST ? "entries" : "values", f->num);
	if (f->text)
		json_kstr(j, "text", f->text);
	json_end_object(j);
}

static void finding_text(const struct bbreplay_finding *f, uint64_t rank, const char *var)
{
	char num[UNITS_COUNT];

	switch (f->kind) {
	case BBREPLAY_WRONG:
	case BBREPLAY_DATA: printf("left out: rank %" PRIu64 ", entry %" PRIu64 ": %s\n", rank, f->seq, f->text); break;
	case BBREPLAY_LOST:
		printf("lost: rank %" PRIu64 ": %s: %s\n", rank, units_format_count(f->num, "entry", num), f->text);
		break;
	case BBREPLAY_RANGE:
		printf("note: rank %" PRIu64 ", entry %" PRIu64 ": %" PRIu64
		       " values do not fit the type of %s and became its fill value (NC_ERANGE)\n",
			rank, f->seq, f->num, var);
		break;
	case BBREPLAY_CONFLICT:
		printf("note: %" PRIu64
		       " bytes of %s were written differently by several ranks; the highest rank's count "
		       "(first: rank %" PRIu64 ", entry %" PRIu64 "), the logs do not say who was last\n",
			f->num, var, rank, f->seq);
		break;
	}
}

static void found(void *arg, const struct bbreplay_finding *f)
{
	struct recovery *rc = arg;
	const char *var = f->var < rc->nc.num_vars ? rc->nc.vars[f->var].name : "";
	uint64_t rank = bblog_header(rc->g.logs[f->log].log)->rank;

	if (rc->j)
		finding_json(rc, f, rank, var);
	else
		finding_text(f, rank, var);
}

static bool is_skipped(void *arg, size_t log, uint64_t seq)
{
	const struct recovery *rc = arg;
	uint64_t rank = bblog_header(rc->g.logs[log].log)->rank;

	for (size_t i = 0; i < rc->opt->num_skip; i++)
		if (rc->opt->skip[i].rank == rank && rc->opt->skip[i].seq == seq)
			return true;
	return false;
}

/* ---- which file */

/* In this order: a file that is there; in a directory, under its own name; a new one. */
static int find_target(struct recovery *rc, struct cistern_error *err)
{
	const char *to = rc->opt->to, *name = strrchr(rc->g.path, '/') + 1;
	char path[PATH_MAX];
	struct stat st;
	int n = snprintf(path, sizeof(path), "%s", to);

	if (stat(to, &st) == 0 && S_ISDIR(st.st_mode))
		n = snprintf(path, sizeof(path), "%s/%s", to, name);
	if (n >= (int)sizeof(path))
		return cistern_error_set(err, -ENAMETOOLONG, "%s: the name is too long", to);
	rc->exists = stat(path, &st) == 0;
	if (rc->exists && !S_ISREG(st.st_mode))
		return cistern_error_set(err, -EINVAL, "%s is no regular file", path);
	if (!rc->exists)
		strcpy(rc->to, path);
	else if (!realpath(path, rc->to))
		return cistern_error_set(err, -errno, "%s: %s", path, strerror(errno));
	return 0;
}

static bool same_file(const char *a, const char *b)
{
	struct stat sa, sb;

	return stat(a, &sa) == 0 && stat(b, &sb) == 0 && sa.st_dev == sb.st_dev && sa.st_ino == sb.st_ino;
}

/* The file with the header: what is replaced, or what is copied. */
static int find_base(struct recovery *rc, struct cistern_error *err)
{
	if (rc->exists) {
		strcpy(rc->base, rc->to);
		return 0;
	}
	if (!*rc->g.netcdf)
		return cistern_error_set(err, -ENOENT,
			"the netCDF file %s, which has the header, is not found, nor one of its name beside the logs: name it after the logs",
			rc->g.path);
	if (*rc->g.other)
		return cistern_error_set(err, -EINVAL,
			"which file do the logs belong to, %s or %s? Name it after the logs", rc->g.netcdf,
			rc->g.other);
	strcpy(rc->base, rc->g.netcdf);
	return 0;
}

/* What would make the result somebody else's file. */
static int check_group(struct recovery *rc, struct cistern_error *err)
{
	if (rc->g.twice)
		return cistern_error_set(
			err, -EINVAL, "%s: there are two logs of one rank; give those of one run only", rc->g.path);
	if (rc->g.several_runs && !rc->opt->force)
		return cistern_error_set(err, -EINVAL,
			"%s: the logs do not say the same number of ranks: some are of another run, and would be written over this one's ('cistern fsck' shows the number of each); give those of one run only, or --force",
			rc->g.path);
	if (rc->exists && *rc->g.netcdf && !same_file(rc->to, rc->g.netcdf) && !same_file(rc->to, rc->g.other) &&
		!rc->opt->force)
		return cistern_error_set(err, -EEXIST,
			"%s is there, and is not the file of the logs, %s; --force replays onto it all the same",
			rc->to, rc->g.netcdf);
	return 0;
}

static int changed_meanwhile(const char *path, struct cistern_error *err)
{
	return cistern_error_set(
		err, -EBUSY, "%s has been changed meanwhile, by another recovery or a program: do it again", path);
}

/* What is open as fd is what the header was read of, and nobody has written to it since. */
static int check_base(const struct recovery *rc, int fd, struct cistern_error *err)
{
	const struct stat *was = &rc->st;
	struct stat is;

	if (fstat(fd, &is) < 0)
		return cistern_error_set(err, -errno, "%s: %s", rc->base, strerror(errno));
	return is.st_dev == was->st_dev && is.st_ino == was->st_ino && is.st_size == was->st_size &&
			       is.st_mtim.tv_sec == was->st_mtim.tv_sec && is.st_mtim.tv_nsec == was->st_mtim.tv_nsec
		       ? 0
		       : changed_meanwhile(rc->base, err);
}

static int open_base(const struct recovery *rc, int flags, int *ret, struct cistern_error *err)
{
	int fd = open(rc->base, flags | O_CLOEXEC), r;

	if (fd < 0)
		return cistern_error_set(err, -errno, "%s: %s", rc->base, strerror(errno));
	r = check_base(rc, fd, err);
	if (r < 0)
		close(fd);
	else
		*ret = fd;
	return r;
}

/* ---- the copy */

/* Holes stay holes. */
static int copy_data(int from, int to, off_t size)
{
	off_t at = 0;

	while (at < size) {
		off_t begin = lseek(from, at, SEEK_DATA), end;
		int r;

		if (begin < 0)
			return errno == ENXIO ? 0 : -errno;
		end = lseek(from, begin, SEEK_HOLE);
		if (end < 0)
			return -errno;
		r = fdio_copy(from, to, (uint64_t)begin, (uint64_t)((end < size ? end : size) - begin));
		if (r < 0)
			return r;
		at = end;
	}
	return 0;
}

/* Who had it before has given it its name, or removed it, by the time that its lock is free. */
static int lock_temp(struct recovery *rc, struct cistern_error *err)
{
	if (flock(rc->fd, LOCK_EX | LOCK_NB) < 0)
		return cistern_error_set(err, -EBUSY, "%s is being recovered by another process", rc->to);
	if (fdio_check_name(rc->fd, rc->temp) < 0)
		return cistern_error_set(err, -EBUSY, "%s was just recovered by another process: do it again", rc->to);
	return 0;
}

/* Its name is always the same, so that one that was left behind is used again, and its lock keeps a second one off. */
static int open_temp(struct recovery *rc, struct cistern_error *err)
{
	const char *slash = strrchr(rc->to, '/'), *name = slash ? slash + 1 : rc->to;
	int r;

	if (snprintf(rc->temp, sizeof(rc->temp), "%.*s.%s.cistern-recover", slash ? (int)(slash + 1 - rc->to) : 0,
		    rc->to, name) >= (int)sizeof(rc->temp)) {
		rc->temp[0] = '\0';
		return cistern_error_set(err, -ENAMETOOLONG, "%s: the name is too long", rc->to);
	}
	rc->fd = open(rc->temp, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (rc->fd < 0)
		r = cistern_error_set(err, -errno, "%s: %s", rc->temp, strerror(errno));
	else
		r = lock_temp(rc, err);
	if (r < 0)
		rc->temp[0] = '\0'; /* it is not ours to remove */
	return r;
}

static int make_copy(struct recovery *rc, struct cistern_error *err)
{
	int from, r = open_temp(rc, err);

	if (r == 0 && !rc->exists && access(rc->to, F_OK) == 0)
		r = changed_meanwhile(rc->to, err);
	if (r == 0)
		r = open_base(rc, O_RDONLY, &from, err);
	if (r < 0)
		return r;
	if (ftruncate(rc->fd, 0) < 0 || ftruncate(rc->fd, rc->st.st_size) < 0)
		r = -errno;
	else
		r = copy_data(from, rc->fd, rc->st.st_size);
	if (r < 0)
		cistern_error_set(err, r, "copying %s to %s: %s%s", rc->base, rc->temp,
			r == -ENODATA ? "it has become shorter meanwhile" : strerror(-r),
			r == -ENOSPC ? "; --in-place needs no copy" : "");
	else
		r = check_base(rc, from, err);
	close(from);
	return r;
}

/* Owner, mode, onto the device, into its place. */
static int publish(struct recovery *rc, struct cistern_error *err)
{
	int r = 0;

	if (fchown(rc->fd, rc->st.st_uid, rc->st.st_gid) < 0 && errno != EPERM)
		r = -errno;
	if (r == 0 && (fchmod(rc->fd, rc->st.st_mode & 07777) < 0 || fsync(rc->fd) < 0 || rename(rc->temp, rc->to) < 0))
		r = -errno;
	if (r == 0) {
		rc->temp[0] = '\0';
		r = fdio_sync_parent(rc->to);
	}
	return r < 0 ? cistern_error_set(err, r, "%s: %s", rc->to, strerror(-r)) : 0;
}

/* ---- the replay */

/* Onto rc->fd; quiet: no findings. */
static int replay(struct recovery *rc, bool dry, bool quiet, struct cistern_error *err)
{
	struct bbreplay_ops ops = { .read = file_read,
		.write = file_write,
		.reserve = file_reserve,
		.found = quiet ? NULL : found,
		.skip = rc->opt->num_skip ? is_skipped : NULL,
		.each = each,
		.num_workers = parallel_processors(),
		.arg = rc,
		.memory_bytes = rc->opt->memory_bytes,
		.old_size = (uint64_t)rc->st.st_size,
		.dry = dry };
	struct bbreplay_log *logs = bbset_replay_logs(&rc->g);
	struct bbreplay *b = NULL;
	uint64_t begin = clock_usec();
	int r = logs ? bbreplay_create(&rc->nc, logs, rc->g.num, &ops, &b, err)
		     : cistern_error_set(err, -ENOMEM, "out of memory");

	if (r == 0)
		r = bbreplay_run(b, err);
	if (r == 0)
		rc->stats = *bbreplay_stats(b);
	rc->replay_usec = clock_usec() - begin;
	bbreplay_destroy(b);
	free(logs);
	return r < 0 ? cistern_error_prefix(err, "%s", rc->to) : 0;
}

static bool changes(const struct recovery *rc)
{
	return rc->stats.changed_bytes > 0 || rc->stats.num_records != rc->stats.old_records ||
	       rc->stats.new_size != (uint64_t)rc->st.st_size;
}

/* How many seconds the file is younger than the newest log; below 0: it is older. */
static double seconds_younger(const struct recovery *rc)
{
	const struct timespec *a = &rc->st.st_mtim, *b = &rc->g.newest;

	return (double)(a->tv_sec - b->tv_sec) + (double)(a->tv_nsec - b->tv_nsec) / 1e9;
}

/*
 * Whether somebody perhaps changed the file since it was closed normally. A program that is killed may have written to the header
 * after its last put; but then the values are not there.
 */
static bool may_be_closed(const struct recovery *rc)
{
	const struct bbreplay_stats *s = &rc->stats;
	double younger = seconds_younger(rc);

	return younger > LATE_SECONDS ||
	       (younger > 0 && s->there_bytes > 0 && s->there_bytes >= s->telling_bytes / THERE_SHARE);
}

/* After a replay that compared. */
static int check_age(const struct recovery *rc, struct cistern_error *err)
{
	const struct bbreplay_stats *s = &rc->stats;

	if (!rc->exists || rc->opt->force || !changes(rc) || !may_be_closed(rc))
		return 0;
	return cistern_error_set(err, -EEXIST,
		"%s was changed %.0f s after the logs, and has %" PRIu64 " of the %" PRIu64
		" bytes that are not 0 in them: was it closed normally, and changed since? It was left as it is; "
		"'--to NEW.nc' makes another file, '--force' replays all the same",
		rc->to, seconds_younger(rc), s->there_bytes, s->telling_bytes);
}

static int look_only(struct recovery *rc, struct cistern_error *err)
{
	int r = open_base(rc, O_RDONLY, &rc->fd, err);

	if (r < 0)
		return r;
	r = replay(rc, true, false, err);
	rc->state = changes(rc) ? "would change" : "unchanged";
	return r;
}

static int change_in_place(struct recovery *rc, struct cistern_error *err)
{
	int r;

	if (!rc->exists)
		return cistern_error_set(err, -ENOENT, "--in-place: %s does not exist", rc->to);
	r = open_base(rc, O_RDWR, &rc->fd, err);
	if (r < 0)
		return r;
	if (seconds_younger(rc) > 0 && !rc->opt->force)
		r = replay(rc, true, true, err);
	if (r == 0)
		r = check_age(rc, err);
	if (r == 0)
		r = replay(rc, false, false, err);
	if (r == 0 && fsync(rc->fd) < 0)
		r = cistern_error_set(err, -errno, "%s: %s", rc->to, strerror(errno));
	rc->state = changes(rc) ? "recovered" : "unchanged";
	return r;
}

static int change_copy(struct recovery *rc, struct cistern_error *err)
{
	int r;

	if (rc->exists && rc->st.st_nlink > 1)
		return cistern_error_set(err, -EMLINK,
			"%s has other names (hard links), which would keep what it is now; --in-place changes all",
			rc->to);
	r = make_copy(rc, err);
	if (r == 0)
		r = replay(rc, false, false, err);
	if (r == 0)
		r = check_age(rc, err);
	if (r < 0)
		return r;
	rc->state = changes(rc) || !rc->exists ? "recovered" : "unchanged";
	return changes(rc) || !rc->exists ? publish(rc, err) : 0;
}

/* ---- the report */

static void stats_json(const struct recovery *rc, const char *missing)
{
	const struct bbreplay_stats *s = &rc->stats;
	struct json *j = rc->j;

	json_kstr(j, "file", rc->to);
	json_kstr(j, "base", rc->base);
	json_kstr(j, "state", rc->state);
	json_ku64(j, "ranks", rc->g.num_ranks);
	json_kstr(j, "missing_ranks", missing);
	json_ku64(j, "entries", s->entries);
	json_ku64(j, "left_out", s->left_out);
	json_ku64(j, "skipped", s->skipped);
	json_ku64(j, "values", s->values);
	json_ku64(j, "range_values", s->range_values);
	json_ku64(j, "overwritten_bytes", s->own_bytes);
	json_ku64(j, "conflict_bytes", s->conflict_bytes);
	json_ku64(j, "covered_bytes", s->covered_bytes);
	json_ku64(j, "changed_bytes", s->changed_bytes);
	json_ku64(j, "replay_usec", rc->replay_usec);
	json_ku64(j, "old_records", s->old_records);
	json_ku64(j, "records", s->num_records);
}

static void stats_text(const struct recovery *rc, const char *missing, uint64_t num_missing)
{
	const struct bbreplay_stats *s = &rc->stats;
	char num[5][UNITS_COUNT];

	printf("%s: %s: %s of %s, %s, %s changed, %s", rc->to, rc->state,
		units_format_count(s->entries, "entry", num[0]), units_format_count(rc->g.num, "rank", num[1]),
		units_format_count(s->values, "value", num[2]), units_format_count(s->changed_bytes, "byte", num[3]),
		units_format_count(s->num_records, "record", num[4]));
	if (s->num_records != s->old_records)
		printf(" (before: %" PRIu64 ")", s->old_records);
	if (s->skipped)
		printf(", %" PRIu64 " skipped", s->skipped);
	putchar('\n');
	if (!changes(rc) && s->entries > 0)
		puts("note: everything was there already: the driver closed or flushed the file, and kept its logs");
	if (num_missing)
		printf("missing: the logs of rank%s %s of %" PRIu64 ": what they hold is not in the file\n",
			num_missing == 1 ? "" : "s", missing, rc->g.num_ranks);
	if (s->entries)
		puts("note: " BBLOG_CANCEL_NOTE "; --skip leaves out one");
}

static void close_recovery(struct recovery *rc)
{
	if (*rc->temp)
		unlink(rc->temp);
	if (rc->fd >= 0)
		close(rc->fd);
	classic_destroy(&rc->nc);
}

static int carry_out(struct recovery *rc, struct cistern_error *err)
{
	int r = find_target(rc, err);

	if (r == 0)
		r = check_group(rc, err);
	if (r == 0)
		r = find_base(rc, err);
	if (r == 0)
		r = bbset_read_netcdf(rc->base, &rc->st, &rc->nc, err);
	if (r < 0)
		return r;
	if (rc->opt->dry_run)
		return look_only(rc, err);
	return rc->opt->in_place ? change_in_place(rc, err) : change_copy(rc, err);
}

static int recover_group(struct recovery *rc, bool *ret_incomplete, struct cistern_error *err)
{
	char missing[RANKS_BYTES];
	uint64_t num_missing = bbset_missing(&rc->g, missing, sizeof(missing));
	int r;

	if (rc->j) {
		json_object(rc->j);
		json_kstr(rc->j, "path", rc->g.path);
		json_key(rc->j, "findings");
		json_array(rc->j);
	}
	r = carry_out(rc, err);
	if (rc->j)
		json_end_array(rc->j);
	if (rc->j && r < 0)
		json_kstr(rc->j, "error", err->text);
	if (rc->j && r == 0)
		stats_json(rc, missing);
	if (rc->j)
		json_end_object(rc->j);
	else if (r == 0)
		stats_text(rc, missing, num_missing);
	*ret_incomplete |= num_missing > 0 || rc->stats.left_out > 0;
	close_recovery(rc);
	return r;
}

/* ---- all files of the logs */

/* Several openings of one file are several runs; which one was first is not in the logs. */
static int check_set(const struct bblog_recover *opt, struct bbset *set, struct cistern_error *err)
{
	struct bbset_group g, last = { 0 };
	size_t at = 0, num = 0;
	struct stat st;

	for (; bbset_next(set, &at, &g); last = g, num++)
		if (num > 0 && strcmp(g.path, last.path) == 0)
			return cistern_error_set(err, -EINVAL,
				"the logs are of two openings of %s, %s and %s: give them one after the other, the older first",
				g.path, last.logs[0].meta->path, g.logs[0].meta->path);
	if (num > 1 && (stat(opt->to, &st) < 0 || !S_ISDIR(st.st_mode)))
		return cistern_error_set(
			err, -EINVAL, "the logs are of %zu netCDF files: --to must be a directory", num);
	if (num == 0)
		return cistern_error_set(err, -EBADMSG, "%s: %s", set->logs[0].meta->path, set->logs[0].broken);
	return 0;
}

static bool has_entry(const struct bbset *set, const struct bblog_skip *skip)
{
	for (size_t i = 0; i < set->num; i++) {
		const struct bblog_header *h = set->logs[i].log ? bblog_header(set->logs[i].log) : NULL;

		if (h && h->rank == skip->rank && skip->seq < h->count)
			return true;
	}
	return false;
}

/* Who mistypes one would replay what was to be left out. */
static int check_skips(const struct bblog_recover *opt, const struct bbset *set, struct cistern_error *err)
{
	for (size_t i = 0; i < opt->num_skip; i++)
		if (!has_entry(set, &opt->skip[i]))
			return cistern_error_set(err, -EINVAL,
				"--skip %" PRIu64 ":%" PRIu64
				": there is no such entry in these logs; 'cistern inspect' lists them",
				opt->skip[i].rank, opt->skip[i].seq);
	return 0;
}

/* The first failure ends it; *ret_incomplete: something is missing. */
static int recover_all(const struct bblog_recover *opt, struct bbset *set, struct json *j, bool *ret_incomplete,
	struct cistern_error *err)
{
	struct recovery *rc = calloc(1, sizeof(*rc));
	size_t at = 0;
	int r = rc ? check_set(opt, set, err) : cistern_error_set(err, -ENOMEM, "out of memory");

	if (r == 0)
		r = check_skips(opt, set, err);
	while (r == 0) {
		*rc = (struct recovery){ .opt = opt, .j = j, .fd = -1, .state = "failed" };
		if (!bbset_next(set, &at, &rc->g))
			break;
		r = recover_group(rc, ret_incomplete, err);
	}
	for (; at < set->num && r == 0; at++) {
		*ret_incomplete = true;
		say("%s was left out: %s", set->logs[at].meta->path, set->logs[at].broken);
	}
	free(rc);
	return r;
}

static int say_what_is_missing(struct bbset *set)
{
	struct cistern_error err = { 0 };
	struct bbset_group g;
	size_t at = 0;

	if (!bbset_next(set, &at, &g))
		cistern_error_set(&err, -EBADMSG, "%s: %s", set->logs[0].meta->path, set->logs[0].broken);
	else
		cistern_error_set(&err, -EINVAL,
			"--to is missing; the logs are of %s: '--to %s' replays onto it, '--to NEW.nc' into a copy of it",
			g.path, *g.netcdf ? g.netcdf : g.path);
	say("recover: %s", err.text);
	return CISTERN_EXIT_USAGE;
}

static int exit_status(const struct cistern_error *err)
{
	return err->code == -EINVAL    ? CISTERN_EXIT_USAGE
	       : err->code == -EBADMSG ? CISTERN_EXIT_DAMAGED
				       : say_exit_status(err->code);
}

static int recover_set(const struct bblog_recover *opt, struct bbset *set)
{
	struct cistern_error err = { 0 };
	bool incomplete = false;
	struct json j;
	int r;

	if (opt->want_json) {
		json_init(&j, stdout, true);
		json_object(&j);
		json_key(&j, "pnetcdf_logs");
		json_array(&j);
	}
	r = recover_all(opt, set, opt->want_json ? &j : NULL, &incomplete, &err);
	if (opt->want_json) {
		json_end_array(&j);
		json_kbool(&j, "complete", r == 0 && !incomplete);
		json_end_object(&j);
		json_finish(&j);
	}
	if (r < 0) {
		say("recover: %s", err.text);
		return exit_status(&err);
	}
	return incomplete ? CISTERN_EXIT_INCOMPLETE : CISTERN_EXIT_OK;
}

int bblog_recover(const struct bblog_recover *opt, char *const *names)
{
	struct cistern_error err = { 0 };
	struct bbset set;
	int status;

	if (bbset_open(names, &set, &err) < 0)
		return say_error(&err);
	status = opt->to ? recover_set(opt, &set) : say_what_is_missing(&set);
	bbset_close(&set);
	return status;
}
