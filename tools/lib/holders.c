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
#include <unistd.h>

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

int mounts_holders(const struct mount_entry *m, void (*each)(const struct mount_holder *h, void *arg), void *arg)
{
	struct mount_holder *h = malloc(sizeof(*h));
	DIR *d = opendir("/proc");
	struct dirent *e;
	int num = 0;

	while (d && h && (e = readdir(d)) != NULL) {
		if (!isdigit((unsigned char)e->d_name[0]))
			continue;
		*h = (struct mount_holder){ .pid = (pid_t)strtol(e->d_name, NULL, 10) };
		if (h->pid == getpid() || (!holds_fd(m, h) && !holds_place(m, h) && !holds_map(m, h)))
			continue;
		num++;
		read_name(h);
		if (each)
			each(h, arg);
	}
	if (d)
		closedir(d);
	free(h);
	return num;
}
