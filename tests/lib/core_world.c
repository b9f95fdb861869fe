/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "tests/lib/core_world.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/lib/tap.h"

const struct core_cred core_world_cred = { .uid = 0, .gid = 0, .pid = 1 };

void core_world_bail_out(const char *why)
{
	printf("Bail out! %s\n", why);
	exit(1);
}

static int backing_open(int fd, void *arg)
{
	struct core_world *w = arg;

	return fd < 0 ? -EBADF : ++w->registered;
}

static void backing_close(int id, void *arg)
{
	struct core_world *w = arg;

	(void)id;
	w->closed++;
}

static void waits(bool begins, void *arg)
{
}

static void want_drain(bool urgent, void *arg)
{
	(void)urgent, (void)arg;
}

static void wake(void *arg)
{
	(void)arg;
}

static void invalidate(uint64_t ino, bool data, void *arg)
{
	struct core_world *w = arg;

	(void)ino, (void)data;
	w->invalidated++;
}

static void unreadable(const char *text, void *arg)
{
	struct core_world *w = arg;

	snprintf(w->unreadable, sizeof(w->unreadable), "%s", text);
}

void core_world_put_file(const char *dir, const char *name, const char *text)
{
	char path[300];
	snprintf(path, sizeof(path), "%s/%s", dir, name);
	FILE *f = fopen(path, "w");

	if (!f || fputs(text, f) < 0 || fclose(f) != 0)
		core_world_bail_out("cannot make a file for the test");
}

void core_world_open(struct core_world *w, const char *options, bool passthrough)
{
	struct core_hooks hooks = { backing_open, backing_close, want_drain, waits, wake, invalidate, unreadable, NULL,
		NULL, w };
	struct store_options opt = { .mode = STORE_CREATE_OR_OPEN, .backing = w->backing };
	struct state_report report;
	struct cistern_error err = { 0 };
	int fd = open(w->backing, O_RDONLY | O_DIRECTORY);

	if (config_create(&w->cfg) < 0 || config_parse_options(w->cfg, options, "test", &err) < 0)
		core_world_bail_out("settings");
	opt.capacity = config_number(w->cfg, CONFIG_CAPACITY);
	opt.reserve = config_number(w->cfg, CONFIG_RESERVE);
	if (store_open(w->store_path, &opt, &w->store, &report, &err) < 0)
		core_world_bail_out(err.text);
	if (core_create(w->store, w->cfg, fd, &hooks, &w->core, &err) < 0)
		core_world_bail_out(err.text);
	core_set_kernel(w->core, &(struct core_kernel){ .passthrough = passthrough, .direct_mmap = true });
	close(fd);
}

void core_world_close(struct core_world *w)
{
	core_destroy(w->core);
	is_int(store_close(w->store), 0, "the store closes in good order");
	config_destroy(w->cfg);
}

void core_world_make(struct core_world *w)
{
	memset(w, 0, sizeof(*w));
	snprintf(w->dir, sizeof(w->dir), "/tmp/test-core.XXXXXX");
	if (!mkdtemp(w->dir))
		core_world_bail_out("mkdtemp");
	snprintf(w->backing, sizeof(w->backing), "%s/backing", w->dir);
	snprintf(w->store_path, sizeof(w->store_path), "%s/store", w->dir);
	mkdir(w->backing, 0755);
	core_world_put_file(w->backing, "old", "from before");
	char sub[200];
	snprintf(sub, sizeof(sub), "%s/sub", w->backing);
	mkdir(sub, 0755);
	core_world_put_file(sub, "inner", "inside");
}

void core_world_remove(struct core_world *w)
{
	char cmd[128];

	snprintf(cmd, sizeof(cmd), "rm -rf '%s'", w->dir);
	if (system(cmd) != 0)
		tap_diag("cannot remove %s", w->dir);
}

uint64_t core_world_look(struct core_world *w, uint64_t parent, const char *name)
{
	struct core_entry e = { 0 };
	int rc = core_lookup(w->core, parent, name, &e);

	return rc < 0 ? 0 : e.ino;
}

int core_world_read_text(struct core_world *w, uint64_t ino, char *out, size_t cap)
{
	struct core_open_reply o;
	int rc = core_open(w->core, ino, O_RDONLY, &o);

	if (rc < 0)
		return rc;
	ssize_t got = core_read(w->core, o.file, out, cap - 1, 0);
	core_release(w->core, o.file);
	if (got < 0)
		return (int)got;
	out[got] = '\0';
	return (int)got;
}

int core_world_write_text(struct core_world *w, uint64_t ino, const char *text, uint64_t off)
{
	struct core_open_reply o;
	int rc = core_open(w->core, ino, O_WRONLY, &o);

	if (rc < 0)
		return rc;
	rc = (int)core_write(w->core, o.file, text, strlen(text), off);
	core_release(w->core, o.file);
	return rc;
}

static int by_name(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

void core_world_list(struct core_world *w, uint64_t ino, char *out, size_t cap)
{
	char *names[64];
	size_t num = 0;
	const char *name;
	uint64_t child;
	uint32_t type;
	struct core_dir *d;

	out[0] = '\0';
	if (core_opendir(w->core, ino, &d) < 0)
		return;
	for (uint64_t i = 2; num < 64 && core_readdir(w->core, d, i, &name, &child, &type) == 0; i++)
		names[num++] = strdup(name);
	core_closedir(w->core, d);
	qsort(names, num, sizeof(names[0]), by_name);
	for (size_t i = 0; i < num; i++) {
		snprintf(out + strlen(out), cap - strlen(out), "%s%s", i ? " " : "", names[i]);
		free(names[i]);
	}
}
