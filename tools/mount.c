/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * cistern mount, and the helper that mount(8) calls. Everything that can be known to be wrong before anything is
 * touched is checked here, in words that name the remedy; then the daemon is started, and its one line on the ready
 * pipe decides: "ok", "ok recovered: TEXT", or "E CODE TEXT". In the foreground this process becomes the daemon.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cistern/error.h"
#include "format/base/config.h"
#include "format/base/dead_mount.h"
#include "format/base/limits.h"
#include "tools/cistern.h"
#include "tools/lib/last_mount.h"
#include "tools/lib/libexec.h"
#include "tools/lib/mounts.h"
#include "tools/lib/say.h"
#include "tools/lib/settings.h"
#include "tools/lib/target.h"

#define DAEMON         "cistern-fs"
#define CONFIG_CLEANUP __attribute__((cleanup(destroy_config)))

struct mount_plan {
	struct config *cfg; /* owned by who runs the command */
	char backing[PATH_MAX], mountpoint[PATH_MAX], store[PATH_MAX];
	unsigned long remount_flags; /* MS_*, of mount(8)'s options */
	bool dead;                   /* a mount of ours whose daemon has died is at the mount point */
	bool foreground, fake, verbose, sloppy;
	bool remount;        /* mount -o remount */
	const char *access;  /* "ro" or "rw", whichever was said last; NULL */
	char unchanged[256]; /* of a remount: settings that were given, and stay as they are */
};

static void destroy_config(struct config **cfg)
{
	config_destroy(*cfg);
}

/* ---- options that are mount(8)'s and not ours */

/* Words that mean nothing to us, or that hold for every mount of ours anyway (nosuid, nodev). */
static const char *const ignored_words[] = {
	"defaults",
	"auto",
	"noauto",
	"nofail",
	"_netdev",
	"user",
	"users",
	"nouser",
	"owner",
	"group",
	"nosuid",
	"nodev",
	"suid",
	"dev",
	"async",
	"relatime",
	"norelatime",
	"nostrictatime",
	"nolazytime",
	"silent",
	NULL,
};

/* The last one of a pair counts. */
static const struct {
	const char *word, *opposite;
	unsigned long flag;
} flag_words[] = {
	{ "noexec", "exec", MS_NOEXEC },
	{ "noatime", "atime", MS_NOATIME },
	{ "nodiratime", "diratime", MS_NODIRATIME },
};

/* What the kernel shows of a mount, and mount(8) says again when it is mounted anew. */
static const char *const kernel_words[] = {
	"user_id=", "group_id=", "rootmode=", "max_read=", "blksize=", "fd=", "default_permissions", "allow_other", NULL
};

static bool is_of_kernel(const char *word)
{
	for (size_t i = 0; kernel_words[i]; i++)
		if (strncmp(word, kernel_words[i], strlen(kernel_words[i])) == 0)
			return true;
	return false;
}

static bool is_ignored(const char *word)
{
	for (size_t i = 0; ignored_words[i]; i++)
		if (strcmp(word, ignored_words[i]) == 0)
			return true;
	return strncmp(word, "x-", 2) == 0 || strncmp(word, "X-", 2) == 0 || strncmp(word, "comment=", 8) == 0 ||
	       strncmp(word, "subtype=", 8) == 0;
}

static bool is_flag(struct mount_plan *plan, const char *word)
{
	for (size_t i = 0; i < sizeof(flag_words) / sizeof(flag_words[0]); i++) {
		if (strcmp(word, flag_words[i].word) == 0)
			plan->remount_flags |= flag_words[i].flag;
		else if (strcmp(word, flag_words[i].opposite) == 0)
			plan->remount_flags &= ~flag_words[i].flag;
		else
			continue;
		return true;
	}
	if (strcmp(word, "rw") == 0)
		plan->access = "rw";
	else if (plan->remount && strcmp(word, "ro") == 0)
		plan->access = "ro";
	else
		return false;
	return true;
}

static bool is_setting(const char *word)
{
	size_t num, len = strcspn(word, "=");
	const struct config_setting *table = config_table(&num);

	for (size_t i = 0; i < num; i++)
		if (strlen(table[i].name) == len && strncmp(word, table[i].name, len) == 0)
			return true;
	return false;
}

/* The length of the first option of a list; "\," is part of a value. */
static size_t option_len(const char *list)
{
	size_t n = 0;

	while (list[n] && list[n] != ',')
		n += list[n] == '\\' && list[n + 1] ? 2 : 1;
	return n;
}

static bool has_word(const char *list, const char *word)
{
	for (size_t len; *list; list += len + (list[len] == ',')) {
		len = option_len(list);
		if (len == strlen(word) && strncmp(list, word, len) == 0)
			return true;
	}
	return false;
}

/* A mount that stands keeps its settings: what fstab(5) has of them is said again, and changes nothing. */
static void keep_setting(struct mount_plan *plan, const char *word)
{
	size_t len = strlen(plan->unchanged);

	if (!is_of_kernel(word))
		snprintf(plan->unchanged + len, sizeof(plan->unchanged) - len, "%s%.*s", len ? ", " : "",
			(int)strcspn(word, "="), word);
}

static int parse_option(struct mount_plan *plan, const char *word, struct cistern_error *err)
{
	if (is_ignored(word) || is_flag(plan, word) || strcmp(word, "remount") == 0)
		return 0;
	if (plan->remount && (is_setting(word) || is_of_kernel(word))) {
		keep_setting(plan, word);
		return 0;
	}
	return is_setting(word) || !plan->sloppy ? config_parse_options(plan->cfg, word, "-o", err) : 0;
}

static int parse_options(struct mount_plan *plan, const char *list, struct cistern_error *err)
{
	plan->remount |= has_word(list, "remount");
	while (*list) {
		size_t len = option_len(list);
		char *word = strndup(list, len);
		int r;

		if (!word)
			return cistern_error_set(err, -ENOMEM, "out of memory");
		r = len > 0 ? parse_option(plan, word, err) : 0;
		free(word);
		if (r < 0)
			return r;
		list += len + (list[len] == ',');
	}
	return 0;
}

/* ---- checks */

/*
 * What is written could never be drained into a file system that is mounted read-only. Who may not make names in the directory itself may be
 * allowed to in those below it.
 */
static int check_writable(const struct mount_plan *plan, struct cistern_error *err)
{
	if (config_number(plan->cfg, CONFIG_READ_ONLY) ||
		faccessat(AT_FDCWD, plan->backing, W_OK | X_OK, AT_EACCESS) == 0)
		return 0;
	if (errno == EROFS)
		return cistern_error_set(err, -EROFS,
			"backing directory %s lies on a file system that is mounted read-only, so that nothing could be drained: have "
			"it mounted for writing, or mount with -o ro to read only",
			plan->backing);
	say("backing directory %s: %s: what is made in it itself cannot be drained, but stays in the store (exit status 3); only directories below it "
	    "that are yours can take anything",
		plan->backing, strerror(errno));
	return 0;
}

/* Beneath a dead mount there is nothing to be resolved: the path counts as it is written. */
static int resolve_backing(struct mount_plan *plan, const char *backing, struct cistern_error *err)
{
	if (realpath(backing, plan->backing))
		return 0;
	if (errno == ENOTCONN && plan->dead) {
		if (target_real_path(backing, plan->backing, NULL) < 0)
			snprintf(plan->backing, sizeof(plan->backing), "%s", backing);
		if (mounts_path_in(plan->backing, plan->mountpoint))
			return 0;
		errno = ENOTCONN;
	}
	return cistern_error_set(err, -errno, "backing directory %s: %s%s", backing, strerror(errno),
		errno == ENOENT     ? "; create it first"
		: errno == ENOTCONN ? "; the mount there is dead, unmount it"
				    : "");
}

/* What is drained into a mount of ours could not have the names that a drain needs, and would be drained twice. */
static int check_outside(const struct mount_plan *plan, const char *path, const char *what, struct cistern_error *err)
{
	struct mount_entry m;

	if ((plan->dead && mounts_path_in(path, plan->mountpoint)) || mounts_holding(path, &m) < 0 || !m.cistern)
		return 0;
	return cistern_error_set(err, -EINVAL,
		"the %s %s lies in a cistern mount, that of %s at %s: choose a directory outside of it%s", what, path,
		m.source, m.mountpoint, strcmp(what, "store") == 0 ? "" : ", as that one itself");
}

static int check_backing(struct mount_plan *plan, const char *backing, struct cistern_error *err)
{
	struct stat st;
	int r = resolve_backing(plan, backing, err);

	r = r ? r : check_outside(plan, plan->backing, "backing directory", err);
	if (r < 0 || (plan->dead && mounts_path_in(plan->backing, plan->mountpoint)))
		return r; /* the daemon looks beneath the dead mount */
	if (stat(plan->backing, &st) < 0)
		return cistern_error_set(err, -errno, "backing directory %s: %s", backing, strerror(errno));
	if (!S_ISDIR(st.st_mode))
		return cistern_error_set(err, -ENOTDIR, "backing directory %s is not a directory", backing);
	return check_writable(plan, err);
}

/*
 * The daemon puts the new mount in the place of a dead one. Of several that lie on each other it replaces one: the upper ones go now, and
 * the path stays covered.
 */
static int check_dead(struct mount_plan *plan, struct cistern_error *err)
{
	struct mount_entry m, below;
	int r = 0;

	plan->dead = dead_mount_is(plan->mountpoint);
	if (!plan->dead || mounts_at(plan->mountpoint, &m) < 0)
		return 0;
	if (!m.cistern)
		return cistern_error_set(err, -EBUSY,
			"%s is a mount of type %s that does not answer any more: unmount it first ('fusermount3 -u %s', or umount)",
			plan->mountpoint, m.type, plan->mountpoint);
	while (r == 0 && !plan->fake && plan->dead && mounts_at(plan->mountpoint, &m) == 0 &&
		mounts_by_id(m.parent_id, &below) == 0 && below.cistern &&
		strcmp(below.mountpoint, plan->mountpoint) == 0) {
		r = mounts_unmount(plan->mountpoint, true, err);
		plan->dead = dead_mount_is(plan->mountpoint);
	}
	return r;
}

static int check_mountpoint(struct mount_plan *plan, const char *mountpoint, struct cistern_error *err)
{
	struct mount_entry m;
	struct stat st;
	int r = target_real_path(mountpoint, plan->mountpoint, err);

	if (r < 0)
		return cistern_error_prefix(err, "mount point");
	r = check_dead(plan, err);
	if (r < 0 || plan->dead)
		return r;
	if (stat(plan->mountpoint, &st) < 0)
		return cistern_error_set(err, -errno, "mount point %s: %s%s", mountpoint, strerror(errno),
			errno == ENOENT ? "; create it first" : "");
	if (!S_ISDIR(st.st_mode))
		return cistern_error_set(err, -ENOTDIR, "mount point %s is not a directory", mountpoint);
	if (mounts_at(plan->mountpoint, &m) == 0 && m.cistern)
		return cistern_error_set(err, -EBUSY,
			"%s is a cistern mount of %s already; unmount it first with 'cistern umount %s'", mountpoint,
			m.source, mountpoint);
	return 0;
}

static int check_store(struct mount_plan *plan, struct cistern_error *err)
{
	const char *store = config_string(plan->cfg, CONFIG_STORE);
	struct stat st;
	int r;

	if (!store || !*store)
		return cistern_error_set(err, -EINVAL,
			"no store is given: add --store DIR (or -o store=DIR), a directory on this node's own disk");
	r = target_real_path(store, plan->store, err);
	if (r < 0)
		return cistern_error_prefix(err, "store (the directory above it must exist)");
	if (stat(plan->store, &st) == 0 && !S_ISDIR(st.st_mode))
		return cistern_error_set(err, -ENOTDIR, "store %s is not a directory", store);
	r = check_outside(plan, plan->store, "store", err);
	return r < 0 ? r : config_set(plan->cfg, "store", plan->store, "--store", err);
}

static int check_places(const struct mount_plan *plan, struct cistern_error *err)
{
	const struct {
		const char *inner, *outer, *text;
		bool same_is_fine;
	} rules[] = {
		{ plan->mountpoint, plan->store, "the mount point %s lies in the store %s", false },
		{ plan->store, plan->mountpoint, "the store %s lies in the mount point %s, which would hide it",
			false },
		{ plan->backing, plan->store, "the backing directory %s lies in the store %s", false },
		{ plan->store, plan->backing,
			"the store %s lies in the backing directory %s, where it would be seen as data", false },
		{ plan->mountpoint, plan->backing,
			"the mount point %s lies in the backing directory %s, so that the mount would contain itself",
			true },
	};

	for (size_t i = 0; i < sizeof(rules) / sizeof(rules[0]); i++) {
		char text[CISTERN_ERROR_TEXT_BYTES];

		if (!mounts_path_in(rules[i].inner, rules[i].outer) ||
			(rules[i].same_is_fine && strcmp(rules[i].inner, rules[i].outer) == 0))
			continue;
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
		snprintf(text, sizeof(text), rules[i].text, rules[i].inner, rules[i].outer);
#pragma GCC diagnostic pop
		return cistern_error_set(err, -EINVAL, "%s; choose another place", text);
	}
	return 0;
}

/* ---- the daemon */

/*
 * Becomes the daemon; returns only with an error. ready_fd -1: it stays in the foreground and tells on standard
 * error.
 */
static int exec_daemon(const struct mount_plan *plan, const char *program, const char *options, int ready_fd)
{
	char fd_text[16];
	const char *argv[] = { DAEMON, plan->backing, plan->mountpoint, "-o", options, NULL, NULL, NULL };

	if (ready_fd < 0) {
		argv[5] = "--foreground";
	} else {
		snprintf(fd_text, sizeof(fd_text), "%d", ready_fd);
		argv[5] = "--ready-fd";
		argv[6] = fd_text;
	}
	fflush(NULL);
	execv(program, (char *const *)argv);
	return -errno;
}

/* Starts the daemon and reads what it says until it closes the pipe. *ret_pid: the process that was started. */
static int start_daemon(
	const struct mount_plan *plan, const char *program, const char *options, char *line, size_t cap, pid_t *ret_pid)
{
	size_t len = 0;
	int fds[2];
	ssize_t n;
	pid_t pid;

	if (pipe2(fds, O_CLOEXEC) < 0)
		return -errno;
	pid = fork();
	if (pid < 0) {
		int r = -errno;

		close(fds[0]);
		close(fds[1]);
		return r;
	}
	if (pid == 0) {
		fcntl(fds[1], F_SETFD, 0);
		dprintf(fds[1], "E %d %s: %s\n", CISTERN_EXIT_FAILED, program,
			strerror(-exec_daemon(plan, program, options, fds[1])));
		_exit(CISTERN_EXIT_FAILED);
	}
	close(fds[1]);
	while (len + 1 < cap && ((n = read(fds[0], line + len, cap - 1 - len)) > 0 || (n < 0 && errno == EINTR))) {
		len += n > 0 ? (size_t)n : 0;
		if (memchr(line, '\n', len))
			break;
	}
	close(fds[0]);
	line[len] = '\0';
	line[strcspn(line, "\n")] = '\0';
	*ret_pid = pid;
	return 0;
}

/* The daemon said nothing: how did it end? */
static int died_silently(pid_t pid)
{
	int status = 0;

	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	if (WIFSIGNALED(status))
		say("%s was killed by signal %d (%s) while it started", DAEMON, WTERMSIG(status),
			strsignal(WTERMSIG(status)));
	else
		say("%s ended with status %d and without a word", DAEMON, WEXITSTATUS(status));
	return CISTERN_EXIT_FAILED;
}

static int read_verdict(const struct mount_plan *plan, const char *line, pid_t pid)
{
	char *text;
	long code;

	if (strncmp(line, "ok", 2) == 0 && (line[2] == '\0' || line[2] == ' ')) {
		if (plan->dead)
			say("%s: took the place of the mount of a daemon that had died", plan->mountpoint);
		if (line[2] && line[3])
			say("%s: %s", plan->mountpoint, line + 3);
		return CISTERN_EXIT_OK;
	}
	if (!*line)
		return died_silently(pid);
	if (strncmp(line, "E ", 2) != 0) {
		say("%s", line);
		return CISTERN_EXIT_FAILED;
	}
	code = strtol(line + 2, &text, 10);
	say("%s", text + strspn(text, " "));
	return code > CISTERN_EXIT_OK && code <= CISTERN_EXIT_LAST ? (int)code : CISTERN_EXIT_FAILED;
}

/* noexec and its like are the mount's and not the file system's. */
static int set_flags(const struct mount_plan *plan)
{
	unsigned long flags = MS_REMOUNT | MS_BIND | MS_NOSUID | MS_NODEV | plan->remount_flags;

	if (config_number(plan->cfg, CONFIG_READ_ONLY))
		flags |= MS_RDONLY;
	if (!plan->remount_flags || mount(NULL, plan->mountpoint, NULL, flags, NULL) == 0)
		return CISTERN_EXIT_OK;
	say("%s is mounted, but without noexec, noatime or nodiratime: %s", plan->mountpoint, strerror(errno));
	return CISTERN_EXIT_FAILED;
}

static int start(const struct mount_plan *plan)
{
	struct cistern_error err = { 0 };
	char program[PATH_MAX], line[2 * CISTERN_ERROR_TEXT_BYTES];
	char *options;
	pid_t pid = 0;
	int r;

	if (libexec_find(DAEMON, program, &err) < 0)
		return say_error(&err);
	limits_raise(); /* the daemon inherits them */
	if (*limits_warning(line))
		say("%s", line);
	options = config_to_options(plan->cfg);
	if (!options) {
		say("out of memory");
		return CISTERN_EXIT_FAILED;
	}
	if (plan->verbose)
		say("%s %s %s -o %s", program, plan->backing, plan->mountpoint, options);
	if (plan->fake)
		r = 0;
	else if (plan->foreground)
		r = exec_daemon(plan, program, options, -1);
	else
		r = start_daemon(plan, program, options, line, sizeof(line), &pid);
	free(options);
	if (r < 0) {
		say("%s: %s", program, strerror(-r));
		return CISTERN_EXIT_FAILED;
	}
	if (plan->fake)
		return CISTERN_EXIT_OK;
	r = read_verdict(plan, line, pid);
	return r == CISTERN_EXIT_OK ? set_flags(plan) : r;
}

static int check_and_start(struct mount_plan *plan, const char *backing, const char *mountpoint)
{
	struct cistern_error err = { 0 };

	if (settings_finish(plan->cfg, say_note, &err) < 0) {
		say("mount: %s", err.text);
		return CISTERN_EXIT_USAGE;
	}
	if (check_mountpoint(plan, mountpoint, &err) < 0 || check_store(plan, &err) < 0 ||
		check_backing(plan, backing, &err) < 0 || check_places(plan, &err) < 0 ||
		(!plan->fake && last_mount_await(plan->store, &err) < 0)) {
		say("%s", err.text);
		return err.code == -EBUSY    ? CISTERN_EXIT_BUSY
		       : err.code == -EINVAL ? CISTERN_EXIT_USAGE
					     : CISTERN_EXIT_FAILED;
	}
	return start(plan);
}

/* ---- mount -o remount */

static int refuse_remount(const char *mountpoint, int status, const char *why)
{
	say("%s: cannot be mounted anew: %s", mountpoint, why);
	return status;
}

/* Flags of the kernel's. What is not said of writing stays as it is. */
static int set_anew(const struct mount_plan *plan, const char *mountpoint)
{
	unsigned long flags = MS_REMOUNT | MS_NOSUID | MS_NODEV | plan->remount_flags;
	struct statvfs st;

	if (plan->access ? strcmp(plan->access, "ro") == 0 : statvfs(mountpoint, &st) == 0 && st.f_flag & ST_RDONLY)
		flags |= MS_RDONLY;
	return mount(NULL, mountpoint, NULL, flags, NULL) < 0 ? -errno : 0;
}

static int remount(const struct mount_plan *plan, const char *mountpoint)
{
	struct cistern_error err = { 0 };
	struct mount_entry m;
	char real[PATH_MAX];
	int r;

	if (target_real_path(mountpoint, real, &err) < 0)
		return say_error(&err);
	if (mounts_at(real, &m) < 0 || !m.cistern)
		return refuse_remount(mountpoint, CISTERN_EXIT_FAILED, "no cistern mount is there");
	if (dead_mount_is(real))
		return refuse_remount(mountpoint, CISTERN_EXIT_FAILED,
			"its daemon has died; 'cistern mount' with the same store takes its place");
	r = plan->fake ? 0 : set_anew(plan, real);
	if (r == -EBUSY)
		return refuse_remount(mountpoint, CISTERN_EXIT_BUSY, "files are open for writing");
	if (r < 0)
		return refuse_remount(
			mountpoint, CISTERN_EXIT_FAILED, r == -EPERM ? "only root can do that" : strerror(-r));
	if (*plan->unchanged)
		say("%s: settings stay as they are until it is unmounted and mounted again: %s", mountpoint,
			plan->unchanged);
	return CISTERN_EXIT_OK;
}

/* ---- the two command lines */

static int usage(const struct cistern_error *err)
{
	say("mount: %s", err->text);
	return CISTERN_EXIT_USAGE;
}

enum { OPT_STORE = 256, OPT_FAKE };

static const struct args_option options_of_mount[] = {
	{ OPT_STORE, "store", "DIR",
		"the store: a directory on this node's own disk, made if it is missing (the same as -o store=DIR)" },
	{ 'o', "options", "KEY=VALUE,...",
		"settings, see cistern.conf(5), and options of mount(8); may be given more than once" },
	{ 'F', "foreground", NULL, "do not go into the background; the log goes to standard error" },
	{ 'v', "verbose", NULL, "show how the daemon is started" },
	{ 'f', "fake", NULL, "check everything, but do not mount" },
	{ 0 },
};

/* Settings from files and environment; the caller owns *ret_cfg. An exit status. */
static int begin_plan(struct config **ret_cfg, struct mount_plan *plan)
{
	struct cistern_error err = { 0 };

	if (config_create(ret_cfg) < 0) {
		say("out of memory");
		return CISTERN_EXIT_FAILED;
	}
	plan->cfg = *ret_cfg;
	return config_load(*ret_cfg, &err) < 0 ? usage(&err) : CISTERN_EXIT_OK;
}

static int run_mount(const struct command *cmd, int argc, char **argv)
{
	CONFIG_CLEANUP struct config *cfg = NULL;
	struct cistern_error err = { 0 };
	struct mount_plan plan = { 0 };
	struct args a;
	int key, r;

	r = begin_plan(&cfg, &plan);
	if (r != CISTERN_EXIT_OK)
		return r;
	args_init(&a, cmd, argc, argv);
	while ((key = args_next(&a)) >= 0) {
		r = 0;
		switch (key) {
		case OPT_STORE: r = config_set(cfg, "store", optarg, "--store", &err); break;
		case 'o': r = parse_options(&plan, optarg, &err); break;
		case 'F': plan.foreground = true; break;
		case 'v': plan.verbose = true; break;
		case 'f': plan.fake = true; break;
		}
		if (r < 0)
			return usage(&err);
	}
	if (a.exit_status >= 0 || (a.exit_status = args_operands(&a, 2, 2)) >= 0)
		return a.exit_status;
	return plan.remount ? remount(&plan, argv[optind + 1]) : check_and_start(&plan, argv[optind], argv[optind + 1]);
}

/* mount(8) and mount.fuse3: the two paths first, short options only, -N and -t with values that are of no use here. */
int mount_helper(int argc, char **argv)
{
	CONFIG_CLEANUP struct config *cfg = NULL;
	struct cistern_error err = { 0 };
	struct mount_plan plan = { 0 };
	int key, r;

	r = begin_plan(&cfg, &plan);
	if (r != CISTERN_EXIT_OK)
		return r;
	for (int i = 1; i < argc; i++) /* -s may stand behind the options that it is about */
		plan.sloppy |= strcmp(argv[i], "-s") == 0;
	while (r == 0 && (key = getopt(argc, argv, "sfnvwro:t:N:")) >= 0) {
		switch (key) {
		case 'f': plan.fake = true; break;
		case 'v': plan.verbose = true; break;
		case 'r': r = config_set(cfg, "ro", "yes", "-r", &err); break;
		case 'o': r = parse_options(&plan, optarg, &err); break;
		case '?': return CISTERN_EXIT_USAGE;
		}
	}
	if (r < 0)
		return usage(&err);
	if (argc - optind != 2) {
		say("mount: wanted are BACKING MOUNTPOINT [-sfnvwr] [-o OPTIONS]");
		return CISTERN_EXIT_USAGE;
	}
	return plan.remount ? remount(&plan, argv[optind + 1]) : check_and_start(&plan, argv[optind], argv[optind + 1]);
}

const struct command command_mount = {
	.name = "mount",
	.summary = "mount a backing directory through a store",
	.synopsis = "mount BACKING MOUNTPOINT --store DIR [-o KEY=VALUE,...] [--foreground]",
	.about =
		"Shows the directory BACKING at MOUNTPOINT. What is written there lands in the store at the speed of this node's disk, and is "
		"drained to BACKING in the background and when the mount is taken down. BACKING and MOUNTPOINT may be the same directory: it is "
		"then covered while the mount stands.\n\n"
		"The command returns when the mount can be used. A store that holds data of an earlier mount of the same BACKING, also of "
		"one whose daemon or node died, is continued; what was found is said. A dead mount at MOUNTPOINT stays until the new one takes its "
		"place: programs that try again meanwhile get errors, and nothing of theirs lands in the directory below. When an "
		"ordinary user mounts, there is a moment between the two, and the command names the files that came there in it. While what such a mount has left is still being drained it waits "
		"for that, for a minute at most. A BACKING on a file system that is mounted read-only is "
		"refused, but for a mount with -o ro, and that you may not write to BACKING yourself is said.\n\n"
		"It can also be called as 'mount -t fuse.cistern BACKING MOUNTPOINT -o store=DIR' and from fstab(5). Every mount is nosuid "
		"and nodev. 'mount -o remount,...' changes ro, rw, noexec, noatime and nodiratime of a mount that stands, and nothing "
		"else: settings of Cistern hold until it is unmounted. A mount that began with ro refuses all changes after remount,rw, too.\n\n"
		"BACKING and the store may not lie in a Cistern mount.",
	.examples = "cistern mount /lustre/proj/run42 /cistern --store /local/nvme/$JOB\n"
		    "cistern mount /lustre/proj/run42 /cistern --store /local/nvme/$JOB -o capacity=200G,drain=unmount",
	.options = options_of_mount,
	.run = run_mount,
};
