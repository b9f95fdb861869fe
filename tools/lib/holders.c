/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Who holds a mount. Open files are told by the mount number that the kernel keeps for each descriptor
 * (/proc/PID/fdinfo), mappings by their device; only the working directory, root and program have nothing but a path.
 * None of it calls the file system in question, which may hang.
 */
#include "tools/lib/mounts.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "format/base/array.h"

static void read_link(const char *link, char out[PATH_MAX])
{
	ssize_t n = readlink(link, out, PATH_MAX - 1);

	out[n > 0 ? n : 0] = '\0';
}

static bool fd_is_on(pid_t pid, const char *fd, int mnt_id)
{
	char path[64], line[128];
	bool on = false;
	FILE *f;
	int id;

	snprintf(path, sizeof(path), "/proc/%d/fdinfo/%.20s", (int)pid, fd);
	f = fopen(path, "re");
	if (!f)
		return false;
	while (fgets(line, sizeof(line), f))
		if (sscanf(line, "mnt_id: %d", &id) == 1)
			on = id == mnt_id;
	fclose(f);
	return on;
}

static bool holds_fd(const struct mount_entry *m, struct mount_holder *h)
{
	char path[64];
	struct dirent *e;
	bool found = false;
	DIR *d;

	snprintf(path, sizeof(path), "/proc/%d/fd", (int)h->pid);
	d = opendir(path);
	if (!d)
		return false;
	while (!found && (e = readdir(d)) != NULL) {
		if (e->d_name[0] == '.' || !fd_is_on(h->pid, e->d_name, m->mnt_id))
			continue;
		found = true;
		snprintf(h->what, sizeof(h->what), "fd %.10s", e->d_name);
		snprintf(path, sizeof(path), "/proc/%d/fd/%.20s", (int)h->pid, e->d_name);
		read_link(path, h->path);
	}
	closedir(d);
	return found;
}

static bool holds_place(const struct mount_entry *m, struct mount_holder *h)
{
	static const char *const places[] = { "cwd", "root", "exe" };
	char path[64];

	for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
		snprintf(path, sizeof(path), "/proc/%d/%s", (int)h->pid, places[i]);
		read_link(path, h->path);
		if (h->path[0] == '/' && mounts_path_in(h->path, m->mountpoint)) {
			snprintf(h->what, sizeof(h->what), "%s", places[i]);
			return true;
		}
	}
	return false;
}

/* "7f1-7f2 r--s 00000000 00:2f 1234 /path" */
static bool holds_map(const struct mount_entry *m, struct mount_holder *h)
{
	unsigned int major, minor;
	char path[64], *line = NULL;
	size_t cap = 0;
	bool found = false;
	int at = 0;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/maps", (int)h->pid);
	f = fopen(path, "re");
	if (!f)
		return false;
	while (!found && getline(&line, &cap, f) > 0) {
		at = 0;
		if (sscanf(line, "%*s %*s %*s %x:%x %*u %n", &major, &minor, &at) < 2 || major != m->major ||
			minor != m->minor)
			continue;
		found = true;
		line[strcspn(line, "\n")] = '\0';
		snprintf(h->what, sizeof(h->what), "map");
		snprintf(h->path, sizeof(h->path), "%s", at > 0 ? line + at : "");
	}
	free(line);
	fclose(f);
	return found;
}

static void read_name(struct mount_holder *h)
{
	char path[64];
	FILE *f;

	snprintf(h->name, sizeof(h->name), "?");
	snprintf(path, sizeof(path), "/proc/%d/comm", (int)h->pid);
	f = fopen(path, "re");
	if (!f)
		return;
	if (fgets(h->name, sizeof(h->name), f))
		h->name[strcspn(h->name, "\n")] = '\0';
	fclose(f);
}

struct search {
	const struct mount_entry *m;
	void (*each)(const struct mount_holder *h, void *arg);
	void *arg;
	struct mount_holder h; /* the process in question */
	ino_t *seen;           /* owned: mount namespaces */
	size_t num_seen, cap_seen;
};

/* Seen now for the first time; also one that cannot be looked at is none. */
static bool is_new_namespace(struct search *s, pid_t pid)
{
	char path[64];
	struct stat st;

	snprintf(path, sizeof(path), "/proc/%d/ns/mnt", (int)pid);
	if (stat(path, &st))
		return false;
	for (size_t i = 0; i < s->num_seen; i++)
		if (s->seen[i] == st.st_ino)
			return false;
	if (array_room(&s->seen, &s->cap_seen, s->num_seen, sizeof(*s->seen)) < 0)
		return false;
	s->seen[s->num_seen++] = st.st_ino;
	return true;
}

static bool holds(struct search *s)
{
	return holds_fd(s->m, &s->h) || holds_place(s->m, &s->h) || holds_map(s->m, &s->h);
}

static int is_it(const struct mount_entry *m, void *arg)
{
	struct search *s = arg;

	if (!m->cistern || m->major != s->m->major || m->minor != s->m->minor || strcmp(m->source, s->m->source) != 0)
		return 0;
	snprintf(s->h.what, sizeof(s->h.what), "mount");
	snprintf(s->h.path, sizeof(s->h.path), "%s", m->mountpoint);
	return 1;
}

static bool sees(struct search *s)
{
	return is_new_namespace(s, s->h.pid) && mounts_each_of(s->h.pid, is_it, s) > 0;
}

/* All processes but this one. How many finds() is true of. */
static int look_at_all(struct search *s, bool (*finds)(struct search *s))
{
	DIR *d = opendir("/proc");
	struct dirent *e;
	int num = 0;

	while (d && (e = readdir(d)) != NULL) {
		if (!isdigit((unsigned char)e->d_name[0]))
			continue;
		s->h = (struct mount_holder){ .pid = (pid_t)strtol(e->d_name, NULL, 10) };
		if (s->h.pid == getpid() || !finds(s))
			continue;
		num++;
		read_name(&s->h);
		if (s->each)
			s->each(&s->h, s->arg);
	}
	if (d)
		closedir(d);
	return num;
}

static int search(const struct mount_entry *m, bool (*finds)(struct search *s),
	void (*each)(const struct mount_holder *h, void *arg), void *arg)
{
	struct search *s = calloc(1, sizeof(*s));
	int num = 0;

	if (!s)
		return 0;
	s->m = m;
	s->each = each;
	s->arg = arg;
	if (is_new_namespace(s, getpid()))
		num = look_at_all(s, finds);
	free(s->seen);
	free(s);
	return num;
}

int mounts_holders(const struct mount_entry *m, void (*each)(const struct mount_holder *h, void *arg), void *arg)
{
	return search(m, holds, each, arg);
}

int mounts_elsewhere(const struct mount_entry *m, void (*each)(const struct mount_holder *h, void *arg), void *arg)
{
	return search(m, sees, each, arg);
}
