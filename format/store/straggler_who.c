/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Who the stragglers are: a process with a descriptor or a shared mapping for writing of a file that
 * has the number of ours, on a file system without a device, under a path that ends in the file's
 * own. None of it calls the file system in question, which may hang. What we may not look at is not found.
 */
#include "format/store/straggler.h"

#include <ctype.h>
#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "format/index/state.h"
#include "format/place/shown.h"

struct device {
	unsigned int major, minor;
};

struct look {
	struct straggler *at; /* borrowed */
	size_t num;
	bool live;
	struct device own; /* of the live mount */
	pid_t pid;         /* the process in question */
};

/* ---- names */

struct climb {
	struct straggler *at;
	uint64_t *above; /* of each: the inode whose name comes next; the root: it is done */
	size_t num;
	bool any;
};

static void put_in_front(char path[STRAGGLER_PATH], const char *name)
{
	char longer[STRAGGLER_PATH + 300];

	snprintf(longer, sizeof(longer), "%.255s%s%s", name, path[0] ? "/" : "", path);
	if (strlen(longer) < STRAGGLER_PATH)
		memcpy(path, longer, strlen(longer) + 1);
}

static int step_up(uint64_t parent, const char *name, uint64_t ino, void *arg)
{
	struct climb *c = arg;

	for (size_t i = 0; i < c->num; i++)
		if (c->above[i] == ino && ino != STATE_ROOT_INO) {
			put_in_front(c->at[i].path, name);
			c->above[i] = parent;
			c->any = true;
		}
	return 0;
}

/* One walk over all names for each directory above: there are few stragglers, if any. */
static void find_paths(struct state *st, struct straggler *at, size_t num)
{
	struct climb c = { .at = at, .num = num, .any = true };

	c.above = calloc(num, sizeof(*c.above));
	if (!c.above)
		return;
	for (size_t i = 0; i < num; i++) {
		c.above[i] = at[i].ino;
		at[i].path[0] = '\0';
	}
	for (int depth = 0; c.any && depth < 256; depth++) {
		c.any = false;
		if (state_each_name(st, step_up, &c) != 0)
			break;
	}
	free(c.above);
}

/* ---- processes */

static bool ends_in(const char *link, const char *path)
{
	size_t have = strlen(link), want = strlen(path);

	return want > 0 && have > want && link[have - want - 1] == '/' && strcmp(link + have - want, path) == 0;
}

static bool may_be_on(const struct look *l, unsigned int major, unsigned int minor)
{
	return major == 0 && !(l->live && l->own.major == major && l->own.minor == minor);
}

static void add_process(const struct look *l, struct straggler *g)
{
	char path[64], name[32] = "?", one[STRAGGLER_WHO];
	size_t len = strlen(g->who);
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/comm", (int)l->pid);
	f = fopen(path, "re");
	if (f && fgets(name, sizeof(name), f))
		name[strcspn(name, "\n")] = '\0';
	if (f)
		fclose(f);
	snprintf(one, sizeof(one), "process %d (%s)", (int)l->pid, name);
	if (!strstr(g->who, one) && len + strlen(one) + 3 < sizeof(g->who))
		snprintf(g->who + len, sizeof(g->who) - len, "%s%s", len ? ", " : "", one);
}

/* ino: as programs see it. */
static void match(const struct look *l, uint64_t ino, const char *link)
{
	for (size_t i = 0; i < l->num; i++)
		if (shown_number(l->at[i].ino) == ino && ends_in(link, l->at[i].path))
			add_process(l, &l->at[i]);
}

/* The inode number of a descriptor for writing; 0: it is for reading. */
static uint64_t written_inode(pid_t pid, const char *fd)
{
	unsigned int flags = O_RDONLY;
	char path[64], line[128];
	uint64_t ino = 0;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/fdinfo/%.20s", (int)pid, fd);
	f = fopen(path, "re");
	if (!f)
		return 0;
	while (fgets(line, sizeof(line), f)) {
		(void)sscanf(line, "flags: %o", &flags);
		(void)sscanf(line, "ino: %" SCNu64, &ino);
	}
	fclose(f);
	return (flags & O_ACCMODE) == O_RDONLY ? 0 : ino;
}

/* Asks the kernel alone, of the file behind the link. */
static bool device_of(const char *path, struct device *ret)
{
	struct statx st;

	if (statx(AT_FDCWD, path, AT_STATX_DONT_SYNC | AT_NO_AUTOMOUNT, 0, &st) < 0)
		return false;
	*ret = (struct device){ st.stx_dev_major, st.stx_dev_minor };
	return true;
}

static void look_at_fd(const struct look *l, const char *fd)
{
	char path[64], link[PATH_MAX];
	uint64_t ino = written_inode(l->pid, fd);
	struct device dev = { 0, 0 };
	ssize_t n;

	if (ino == 0)
		return;
	snprintf(path, sizeof(path), "/proc/%d/fd/%.20s", (int)l->pid, fd);
	n = readlink(path, link, sizeof(link) - 1);
	link[n > 0 ? n : 0] = '\0';
	if (link[0] != '/' || (device_of(path, &dev) && !may_be_on(l, dev.major, dev.minor)))
		return;
	match(l, ino, link);
}

static void look_at_fds(const struct look *l)
{
	char path[64];
	struct dirent *e;
	DIR *d;

	snprintf(path, sizeof(path), "/proc/%d/fd", (int)l->pid);
	d = opendir(path);
	while (d && (e = readdir(d)) != NULL)
		if (e->d_name[0] != '.')
			look_at_fd(l, e->d_name);
	if (d)
		closedir(d);
}

/* "7f1-7f2 rw-s 00000000 00:2f 1234 /path": only what is shared reaches the file. */
static void look_at_maps(const struct look *l)
{
	unsigned int major, minor;
	char path[64], rights[8], *line = NULL;
	size_t cap = 0;
	uint64_t ino;
	int at;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/maps", (int)l->pid);
	f = fopen(path, "re");
	while (f && getline(&line, &cap, f) > 0) {
		at = 0;
		if (sscanf(line, "%*s %7s %*s %x:%x %" SCNu64 " %n", rights, &major, &minor, &ino, &at) < 4 ||
			at == 0 || rights[3] != 's' || !may_be_on(l, major, minor))
			continue;
		line[strcspn(line, "\n")] = '\0';
		match(l, ino, line + at);
	}
	free(line);
	if (f)
		fclose(f);
}

void straggler_name(struct state *st, struct straggler *at, size_t num, const char *live)
{
	struct look l = { .at = at, .num = num };
	struct dirent *e;
	DIR *d;

	if (num == 0)
		return;
	find_paths(st, at, num);
	for (size_t i = 0; i < num; i++)
		at[i].who[0] = '\0';
	l.live = live && device_of(live, &l.own);
	d = opendir("/proc");
	while (d && (e = readdir(d)) != NULL) {
		if (!isdigit((unsigned char)e->d_name[0]))
			continue;
		l.pid = (pid_t)strtol(e->d_name, NULL, 10);
		if (l.pid == getpid())
			continue;
		look_at_fds(&l);
		look_at_maps(&l);
	}
	if (d)
		closedir(d);
}
