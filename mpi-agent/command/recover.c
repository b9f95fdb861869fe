/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * cistern-agent recover: what a dead store holds goes to a directory: the backing directory itself, where it is drained
 * just as the daemon would have had it drained, or another one, where the files are made whole. The store's own files are
 * only read, under its lock: what drains it meanwhile would take away what is read. A recovery in place keeps its steps beside them.
 *
 * cistern-mpi-agent recover: the same by all processes that mpiexec has started. Each opens all stores; the first one speaks, and holds the locks, for all.
 */
#include "mpi-agent/command/command.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "format/base/clock.h"
#include "format/base/config.h"
#include "format/base/dead_mount.h"
#include "format/base/json.h"
#include "format/base/units.h"
#include "format/store/steps.h"
#include "mpi-agent/command/recover_claim.h"
#include "mpi-agent/command/recover_run.h"
#include "mpi-agent/command/recover_set.h"
#include "mpi-agent/command/recover_unseen.h"
#include "mpi-agent/command/say.h"
#include "mpi-agent/comm/team.h"
#include "mpi-agent/replay/drain.h"
#include "format/manifest/manifest.h"

#define TERMINAL_USEC 250000u
#define LINES_USEC    10000000u

struct recover {
	const char *store_path, *to, *backing, *manifest_path, *verify;
	char **store_paths; /* all of them; borrowed */
	size_t num_stores;
	int *held;              /* owned: what holds each store's lock, or -1; NULL: another process does */
	struct recover_set set; /* when they are those of a job; else empty */
	struct recover_claim claim;
	bool as_json, force;
	struct team team;
	struct config *cfg;
	struct store *store;
	struct manifest *manifest;
	struct manifest_noted noted;
	int to_fd, backing_fd;
	bool in_place, backing_is_copy;
	char to_real[PATH_MAX];
	char manifest_default[PATH_MAX + 32];
	char intent_path[PATH_MAX + 32], steps_path[PATH_MAX + 32];
	bool on_terminal, said_progress;
	uint64_t began_usec, said_usec;
};

static bool is_first(const struct recover *rc)
{
	return rc->team.rank == 0;
}

/* ---- what is said */

static int on_tick(const struct drain_progress *p, struct drain_control *control, void *arg)
{
	char done[UNITS_TEXT], planned[UNITS_TEXT], verified[UNITS_TEXT], rate_text[UNITS_TEXT], left[UNITS_TEXT] = "?";
	struct recover *rc = arg;
	char path[61];
	uint64_t now = clock_usec(), rate, done_bytes, planned_bytes;

	if (!is_first(rc) || now - rc->said_usec < (rc->on_terminal ? TERMINAL_USEC : LINES_USEC))
		return 0;
	rc->said_usec = now;
	done_bytes = (p->done_bytes + p->verified_bytes) * rc->team.size; /* the others should be about as far */
	planned_bytes = (p->planned_bytes + p->verify_bytes) * rc->team.size;
	rate = (uint64_t)((double)done_bytes * 1e6 / (double)(now - rc->began_usec + 1));
	if (rate > 0 && planned_bytes >= done_bytes)
		units_format_usec((planned_bytes - done_bytes) / rate * 1000000u, left);
	snprintf(path, sizeof(path), "%s", p->path);
	fprintf(stderr, "%s%s of %s%s%s, %s/s, %s left: %s%s", rc->on_terminal ? "\r\033[K" : "",
		units_format_bytes(p->done_bytes * rc->team.size, done),
		units_format_bytes(p->planned_bytes * rc->team.size, planned), p->verify_bytes > 0 ? ", verified " : "",
		p->verify_bytes > 0 ? units_format_bytes(p->verified_bytes * rc->team.size, verified) : "",
		units_format_bytes(rate, rate_text), left, say_masked(path), rc->on_terminal ? "" : "\n");
	rc->said_progress = rc->on_terminal;
	return 0;
}

static void end_progress_line(struct recover *rc)
{
	if (rc->said_progress)
		fputs("\r\033[K", stderr);
	rc->said_progress = false;
}

static void on_error(const char *path, int code, const char *text, void *arg)
{
	end_progress_line(arg);
	say_recover("%.4000s: %s", path, text);
}

static void on_beside(const char *path, const char *there, void *arg)
{
	end_progress_line(arg);
	say_recover("%.4000s: becomes %.4000s, since something that Cistern does not know has its name", path, there);
}

static void say_json(const struct recover *rc, const struct manifest_totals *t, int result)
{
	struct json j;

	json_init(&j, stdout, true);
	json_object(&j);
	json_kstr(&j, "store", rc->store_path);
	json_kstr(&j, "to", rc->to_real);
	json_kbool(&j, "in_place", rc->in_place);
	json_ku64(&j, "files", t->files);
	json_ku64(&j, "bytes", t->bytes);
	json_ku64(&j, "moved", t->names_moved);
	json_ku64(&j, "removed", t->names_removed);
	json_ku64(&j, "failed", t->failed);
	json_ku64(&j, "missing_bytes", t->missing_bytes);
	json_key(&j, "lost");
	json_array(&j);
	for (uint32_t i = 0; i < rc->set.num_nodes; i++)
		if (rc->set.lost[i])
			json_str(&j, rc->set.lost[i]);
	json_end_array(&j);
	json_kstr(&j, "manifest", rc->manifest_path);
	json_ku64(&j, "exit_status", (uint64_t)result);
	json_end_object(&j);
	json_finish(&j);
}

static void say_summary(const struct recover *rc, const struct manifest_totals *t, int result)
{
	char bytes[UNITS_TEXT], missing[UNITS_TEXT], noted[256], files[UNITS_COUNT];

	if (rc->as_json) {
		say_json(rc, t, result);
		return;
	}
	printf("%s, %s, into %s\n", units_format_count(t->files, "file", files), units_format_bytes(t->bytes, bytes),
		rc->to_real);
	if (t->names_moved + t->names_removed > 0)
		printf("names moved: %llu, removed: %llu%s\n", (unsigned long long)t->names_moved,
			(unsigned long long)t->names_removed, rc->in_place ? "" : " (listed in the manifest only)");
	if (t->missing_bytes > 0)
		printf("missing: %s, in the ranges that the manifest lists\n",
			units_format_bytes(t->missing_bytes, missing));
	recover_set_say(&rc->set);
	if (t->failed > 0)
		printf("failed: %llu; they are still in the store\n", (unsigned long long)t->failed);
	manifest_noted_text(&rc->noted, "the manifest", noted, sizeof(noted));
	if (noted[0])
		printf("%s\n", noted);
	printf("manifest: %s\n", rc->manifest_path);
}

/* ---- what is opened */

/* Makes path and what is missing above it. */
static int make_dirs(const char *path)
{
	char part[PATH_MAX];

	if (snprintf(part, sizeof(part), "%s", path) >= (int)sizeof(part))
		return -ENAMETOOLONG;
	for (char *p = part + 1; *p; p++) {
		if (*p != '/')
			continue;
		*p = '\0';
		if (mkdir(part, 0777) && errno != EEXIST)
			return -errno;
		*p = '/';
	}
	return mkdir(part, 0777) && errno != EEXIST ? -errno : 0;
}

/* 1: nothing in it but our claim. */
static int is_empty(const struct recover *rc)
{
	int fd = openat(rc->to_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC), num = 0;
	DIR *dir = fd >= 0 ? fdopendir(fd) : NULL;
	struct dirent *e;

	if (!dir) {
		num = -errno;
		if (fd >= 0)
			close(fd);
		return num;
	}
	while (num == 0 && (e = readdir(dir)))
		num += strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0 &&
		       !recover_claim_is(&rc->claim, e->d_name);
	closedir(dir);
	return num == 0;
}

/* Beneath a dead mount nobody writes meanwhile. Only root can look there: -ENOTCONN for others. */
static int open_directory(const struct recover *rc, const char *path)
{
	const char *mountpoint = store_superblock(rc->store)->mountpoint;
	int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	char real[PATH_MAX];
	size_t len = strlen(mountpoint);

	if (fd >= 0 || (errno != ENOTCONN && errno != ECONNABORTED))
		return fd >= 0 ? fd : -errno;
	if (dead_mount_real_path(path, real) < 0)
		return -ENOTCONN;
	if (len == 0 || strncmp(real, mountpoint, len) != 0 || (real[len] != '/' && real[len] != '\0'))
		mountpoint = real;
	fd = dead_mount_open_below(mountpoint, real);
	return fd == -EPERM || fd == -ENOSYS ? -ENOTCONN : fd;
}

static const char *text_of(int r)
{
	return r == -ENOTCONN ? "a dead mount covers it: 'cistern umount' takes that away" : strerror(-r);
}

static int open_backing(struct recover *rc, struct cistern_error *err)
{
	const char *path = rc->backing ? rc->backing : store_superblock(rc->store)->backing;
	int fd = open_directory(rc, path);

	rc->backing_fd = fd < 0 ? -1 : fd;
	if (fd >= 0)
		return 0;
	if (rc->backing)
		return cistern_error_set(err, fd, "backing directory %s: %s", path, text_of(fd));
	if (is_first(rc))
		say_recover("backing directory %s: %s: files get what the store has of them", path, text_of(fd));
	return 0;
}

#define LOOKED_AT 1000 /* names of a store that are others' */

struct known_files {
	struct state *st;
	int dirfd;
	size_t others; /* of this store */
	bool has_others, found;
};

static int look_for_known(uint64_t parent, const char *name, uint64_t ino, void *arg)
{
	struct known_files *known = arg;
	char path[PATH_MAX];
	struct inode in;
	struct stat st;

	if (parent == 0 || state_inode(known->st, ino, &in) < 0 || in.backing_ino == 0 ||
		state_backing_child_path(known->st, parent, name, path, sizeof(path)) < 0 ||
		fstatat(known->dirfd, path, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return 0;
	known->found = st.st_ino == in.backing_ino && ((st.st_mode ^ in.mode) & S_IFMT) == 0;
	known->others += !known->found;
	known->has_others |= !known->found;
	return known->found || known->others == LOOKED_AT;
}

/* Where they are remembered; or where a recovery before this one has moved them. */
static int look_for_known_of(struct store *store, struct known_files *known)
{
	int r;

	known->st = store_state(store);
	known->others = 0;
	r = state_each_backing_name(known->st, look_for_known, known);
	if (r >= 0 && !known->found) {
		known->others = 0;
		r = state_each_name(known->st, look_for_known, known);
	}
	return known->found ? 1 : r < 0 ? r : 0;
}

/*
 * Its files have other inode numbers then. Device numbers say nothing: they are others when a file system is mounted anew. The top of a file system
 * often has the same number in each, so what lies below is looked at: one file that is known is enough.
 */
static bool is_copy(const struct recover *rc, const struct stat *backing)
{
	struct known_files known = { .dirfd = rc->backing_fd };
	struct inode root;
	int r = 0;

	if (state_inode(store_state(rc->store), STATE_ROOT_INO, &root) < 0 || root.backing_ino == 0)
		return false;
	if (backing->st_ino != root.backing_ino)
		return true;
	if (rc->set.num == 0)
		r = look_for_known_of(rc->store, &known);
	for (uint32_t i = 0; r == 0 && i < rc->set.num_nodes; i++)
		if (rc->set.stores[i])
			r = look_for_known_of(rc->set.stores[i], &known);
	return !known.found && known.has_others;
}

static void look_at_backing(struct recover *rc)
{
	const char *path = rc->backing ? rc->backing : store_superblock(rc->store)->backing;
	struct stat backing;

	rc->backing_is_copy =
		!rc->in_place && rc->backing_fd >= 0 && fstat(rc->backing_fd, &backing) == 0 && is_copy(rc, &backing);
	if (rc->backing_is_copy && is_first(rc))
		say_recover(
			"%s has other files than those that the store was mounted over, or copies of them: what is wanted of its "
			"files is taken from those that have their names; that they are the same is not checked",
			path);
}

/* By the first process, before anything is looked at there. */
static int claim_destination(struct recover *rc, struct cistern_error *err)
{
	recover_claim_init(&rc->claim, store_superblock(rc->store));
	return is_first(rc) ? recover_claim_take(&rc->claim, rc->to_fd, rc->to, err) : 0;
}

static int open_destination(struct recover *rc, struct cistern_error *err)
{
	int r = make_dirs(rc->to);

	if (r == 0) {
		r = open_directory(rc, rc->to);
		rc->to_fd = r < 0 ? -1 : r;
		r = r < 0 ? r : dead_mount_real_path(rc->to, rc->to_real);
	}
	return r < 0 ? cistern_error_set(err, r, "%s: %s", rc->to, text_of(r)) : claim_destination(rc, err);
}

static int check_destination(struct recover *rc, struct cistern_error *err)
{
	struct stat to, backing;
	int r;

	if (fstat(rc->to_fd, &to))
		return cistern_error_set(err, -errno, "%s: %s", rc->to, strerror(errno));
	rc->in_place = rc->backing_fd >= 0 && fstat(rc->backing_fd, &backing) == 0 && backing.st_dev == to.st_dev &&
		       backing.st_ino == to.st_ino;
	if (rc->in_place || rc->force)
		return 0;
	r = is_empty(rc);
	if (r == 0)
		return cistern_error_set(err, -ENOTEMPTY,
			"%s: not empty, and not the store's backing directory: give an empty one, or --force to add to it; "
			"files of others there stay as they are",
			rc->to);
	return r < 0 ? cistern_error_set(err, r, "%s: %s", rc->to, strerror(-r)) : 0;
}

static int name_unseen_of(struct recover *rc, struct state *st)
{
	int r = recover_unseen_name(st, rc->set.num > 0 && rc->in_place, !is_first(rc));

	return r < 0 || rc->in_place ? r : recover_unseen_links(st, !is_first(rc));
}

/* In the backing directory what one node wrote is seen under the other links by itself. */
static int name_unseen(struct recover *rc)
{
	int r = 0;

	if (rc->set.num == 0)
		return rc->in_place ? 0 : name_unseen_of(rc, store_state(rc->store));
	for (uint32_t i = 0; r == 0 && i < rc->set.num_nodes; i++)
		if (rc->set.stores[i])
			r = name_unseen_of(rc, store_state(rc->set.stores[i]));
	return r;
}

static int say_lost(const char *path, const struct inode *in, void *arg)
{
	(void)in;
	say_recover("%s: %s: " STATE_LOST_TEXT, (const char *)arg, path);
	return 0;
}

/* Complained of later. */
static bool is_given_twice(const struct recover *rc, size_t num)
{
	struct stat st, other;

	for (size_t i = 0; i < num; i++)
		if (rc->held[i] >= 0 && stat(rc->store_paths[num], &st) == 0 && stat(rc->store_paths[i], &other) == 0 &&
			st.st_dev == other.st_dev && st.st_ino == other.st_ino)
			return true;
	return false;
}

/* Until the end, by the first process. */
static int hold_stores(struct recover *rc, struct cistern_error *err)
{
	int r = 0;

	if (!is_first(rc))
		return 0;
	rc->held = calloc(rc->num_stores, sizeof(*rc->held));
	if (!rc->held)
		return cistern_error_set(err, -ENOMEM, "out of memory");
	memset(rc->held, 0xff, rc->num_stores * sizeof(*rc->held)); /* -1 */
	for (size_t i = 0; r == 0 && i < rc->num_stores; i++)
		r = is_given_twice(rc, i) ? 0 : store_hold(rc->store_paths[i], &rc->held[i], err);
	return r;
}

static int open_store(struct recover *rc, const char *path, struct store **ret, struct cistern_error *err)
{
	struct store_options opt = { .mode = STORE_READ_ONLY, .held = true };
	struct state_report report;
	char bytes[UNITS_TEXT], writes[UNITS_COUNT];
	int r;

	opt.index_memory = config_number(rc->cfg, CONFIG_INDEX_MEMORY);
	r = store_open(path, &opt, ret, &report, err);
	if (r < 0 || !is_first(rc))
		return r;
	if (report.cut_bytes > 0)
		say_recover("%s: the journal ends in a torn record, of which %s count for nothing", path,
			units_format_bytes(report.cut_bytes, bytes));
	if (report.dropped_writes > 0)
		say_recover("%s: lost with the power, since they were never synced: %s (%s)", path,
			units_format_count(report.dropped_writes, "write", writes),
			units_format_bytes(report.dropped_bytes, bytes));
	r = state_each_lost(store_state(*ret), say_lost, (void *)path);
	if (r < 0) {
		cistern_error_set(err, r, "%s: its index cannot be read: %s", path, strerror(-r));
		store_abandon(*ret);
	}
	return r;
}

/* One store of one node; or some or all of a job. */
static int open_stores(struct recover *rc, struct cistern_error *err)
{
	int r = 0;

	for (size_t i = 0; r == 0 && i < rc->num_stores; i++) {
		struct store *store = NULL;

		r = open_store(rc, rc->store_paths[i], &store, err);
		if (r == 0 && rc->num_stores == 1 && store_superblock(store)->num_nodes == 1)
			rc->store = store;
		else if (r == 0)
			r = recover_set_add(&rc->set, store, err);
	}
	if (r == 0 && !rc->store)
		rc->store = recover_set_first(&rc->set);
	return r;
}

static int open_all(struct recover *rc, struct cistern_error *err)
{
	int r = config_create(&rc->cfg);

	rc->set.silent = !is_first(rc);
	if (r == 0)
		r = config_load(rc->cfg, err);
	if (r == 0 && rc->verify)
		r = config_set(rc->cfg, "verify", rc->verify, "--verify", err);
	if (r < 0)
		return r;
	r = open_stores(rc, err);
	if (r == 0)
		r = open_backing(rc, err);
	return r == 0 ? open_destination(rc, err) : r;
}

/* What is there, on both sides: behind the claim, so that no other recovery changes it. */
static int look_at_all(struct recover *rc, struct cistern_error *err)
{
	int r = rc->set.num > 0 ? recover_set_merge(&rc->set, rc->backing_fd, err) : 0;

	if (r == 0)
		r = check_destination(rc, err);
	if (r == 0)
		look_at_backing(rc);
	if (r == 0)
		r = name_unseen(rc);
	if (r == 0 && !rc->manifest_path) {
		snprintf(rc->manifest_default, sizeof(rc->manifest_default), "%s.cistern-manifest.json", rc->to_real);
		rc->manifest_path = rc->manifest_default;
	}
	return r < 0 ? r : manifest_open(NULL, &rc->manifest, err);
}

/* ---- the run */

static int write_manifest(
	struct recover *rc, const struct manifest_totals *t, int64_t started_ns, int result, struct cistern_error *err)
{
	const struct superblock *sb = store_superblock(rc->store);
	char uuid[37];
	struct manifest_session ms = { .store_uuid = uuid,
		.job = sb->job,
		.node = sb->node_index,
		.backing = rc->backing ? rc->backing : sb->backing,
		.destination = rc->to_real,
		.started_ns = started_ns,
		.ended_ns = clock_wall_ns(),
		.result = result,
		.totals = *t,
		.num_nodes = rc->set.num_nodes,
		.ret_noted = &rc->noted };

	store_uuid_text(sb->uuid, uuid);
	return manifest_write(rc->manifest, &ms, rc->manifest_path, err);
}

static int run(struct recover *rc, struct cistern_error *err)
{
	struct drain_options opt = { .store = rc->store,
		.to_dirfd = rc->to_fd,
		.in_place = rc->in_place,
		.base_dirfd = rc->in_place ? -1 : rc->backing_fd,
		.base_is_copy = rc->backing_is_copy,
		.upto = state_seq(store_state(rc->store)),
		.verify = (enum drain_verify)config_number(rc->cfg, CONFIG_VERIFY),
		.buffer_bytes = config_number(rc->cfg, CONFIG_FLUSH_BUFFER_SIZE),
		.rate = (config_number(rc->cfg, CONFIG_DRAIN_RATE) + rc->team.size - 1) / rc->team.size,
		.manifest = rc->manifest,
		.watcher = { .tick = on_tick, .error = on_error, .beside = on_beside, .arg = rc } };
	int64_t started_ns = clock_wall_ns();
	struct drain_result res = { 0 };
	int r = 0, result;

	/* A store that cannot be written to is recovered all the same: killed half-way, it is looked for what was done. */
	if (rc->in_place && rc->set.num == 0 && access(store_path(rc->store), W_OK) == 0) {
		snprintf(rc->intent_path, sizeof(rc->intent_path), "%s/" INTENT_FILE, store_path(rc->store));
		snprintf(rc->steps_path, sizeof(rc->steps_path), "%s/" STEPS_FILE, store_path(rc->store));
		opt.intent_path = rc->intent_path;
		opt.steps_path = rc->steps_path;
	}
	rc->on_terminal = isatty(STDERR_FILENO);
	rc->began_usec = rc->said_usec = clock_usec();
	if (rc->set.num > 0)
		r = recover_run(&rc->set, &rc->team, &opt, &res.totals, err);
	else if (is_first(rc))
		r = drain_run(&opt, &res, err);
	r = team_agree(&rc->team, r, err);
	end_progress_line(rc);
	/* A lost store may have had what no other one knows of. */
	bool all = res.totals.failed == 0 && res.totals.missing_bytes == 0 && recover_set_is_whole(&rc->set);
	result = r < 0 ? CISTERN_EXIT_FAILED : all ? CISTERN_EXIT_OK : CISTERN_EXIT_INCOMPLETE;
	if (!is_first(rc))
		return result;
	if (write_manifest(rc, &res.totals, started_ns, result, r < 0 ? NULL : err) < 0 && result == CISTERN_EXIT_OK)
		result = CISTERN_EXIT_FAILED;
	result = manifest_noted_result(result, &rc->noted);
	say_summary(rc, &res.totals, result);
	return result;
}

static void recover_close(struct recover *rc)
{
	manifest_close(rc->manifest);
	if (rc->store && rc->set.num == 0)
		store_abandon(rc->store);
	recover_set_close(&rc->set);
	for (size_t i = 0; rc->held && i < rc->num_stores; i++)
		if (rc->held[i] >= 0)
			close(rc->held[i]);
	free(rc->held);
	config_destroy(rc->cfg);
	recover_claim_end(&rc->claim);
	if (rc->to_fd >= 0)
		close(rc->to_fd);
	if (rc->backing_fd >= 0)
		close(rc->backing_fd);
}

static int parse(struct recover *rc, int argc, char **argv)
{
	static const struct option options[] = { { "to", required_argument, NULL, 't' },
		{ "backing", required_argument, NULL, 'b' }, { "verify", required_argument, NULL, 'v' },
		{ "manifest", required_argument, NULL, 'm' }, { "json", no_argument, NULL, 'j' },
		{ "force", no_argument, NULL, 'f' }, { 0 } };
	int c;

	while ((c = getopt_long(argc, argv, "", options, NULL)) != -1) {
		switch (c) {
		case 't': rc->to = optarg; break;
		case 'b': rc->backing = optarg; break;
		case 'v': rc->verify = optarg; break;
		case 'm': rc->manifest_path = optarg; break;
		case 'j': rc->as_json = true; break;
		case 'f': rc->force = true; break;
		default: return -EINVAL;
		}
	}
	if (optind >= argc || !rc->to || !rc->to[0])
		return -EINVAL;
	rc->store_path = argv[optind];
	rc->store_paths = argv + optind;
	rc->num_stores = (size_t)(argc - optind);
	return 0;
}

static int status_of(int code)
{
	switch (-code) {
	case EBUSY: return CISTERN_EXIT_BUSY;
	case EBADMSG: return CISTERN_EXIT_DAMAGED;
	case EINVAL:
	case ENOTEMPTY: return CISTERN_EXIT_USAGE;
	default: return CISTERN_EXIT_FAILED;
	}
}

/* From the arguments to the end; the same exit status in all processes. */
static int recover(struct recover *rc, struct cistern_error *err)
{
	int r = team_agree(&rc->team, hold_stores(rc, err), err);

	if (r == 0)
		r = team_agree(&rc->team, open_all(rc, err), err);
	if (r == 0)
		r = team_agree(&rc->team, look_at_all(rc, err), err);
	int result = r < 0 ? status_of(r) : run(rc, err);
	struct cistern_error later = { 0 };

	if (team_broadcast(&rc->team, &result, sizeof(result), &later) < 0)
		result = CISTERN_EXIT_FAILED;
	if (err->code && is_first(rc))
		say_recover("%s", err->text);
	return result;
}

int command_recover(int argc, char **argv)
{
	struct recover rc = { .to_fd = -1, .backing_fd = -1, .claim = { .fd = -1 } };
	struct cistern_error err = { 0 };
	int result = CISTERN_EXIT_USAGE;

	if (team_join(&rc.team, &argc, &argv, &err) < 0) {
		say_recover("%s", err.text);
		return status_of(err.code);
	}
	if (parse(&rc, argc, argv) == 0)
		result = recover(&rc, &err);
	else if (is_first(&rc))
		fputs("usage: cistern recover [-n N] STORE... --to DIR [--backing DIR] [--verify none|size|read|format] [--manifest FILE] "
		      "[--json] [--force]\n",
			stderr);
	recover_close(&rc);
	team_leave(&rc.team);
	return result;
}
