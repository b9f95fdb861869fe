/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "tests/lib/backed.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "format/store/steps.h"
#include "tests/lib/remove_tree.h"
#include "tests/lib/scratch.h"
#include "tests/lib/world.h"

void backed_make(struct backed *b)
{
	*b = (struct backed){ 0 };
	snprintf(b->top, sizeof(b->top), "%s/cistern-backed-XXXXXX", scratch_parent());
	world_must(mkdtemp(b->top) ? 0 : -1, b->top);
	snprintf(b->backing, sizeof(b->backing), "%s/b", b->top);
	snprintf(b->dir, sizeof(b->dir), "%s/s", b->top);
	world_must(mkdir(b->backing, 0755), b->backing);
}

void backed_open(struct backed *b)
{
	struct store_options opt = { .mode = STORE_CREATE_OR_OPEN, .backing = b->backing, .nodes = 2 };
	struct cistern_error err = { 0 };
	struct state_report report;

	world_must(store_open(b->dir, &opt, &b->store, &report, &err), b->dir);
}

void backed_fill(struct backed *b)
{
	struct stat st;

	backed_open(b);
	world_must(stat(b->backing, &st), b->backing);
	backed_commit(b, (struct record){ .type = RECORD_ADOPT,
				 .ino = STATE_ROOT_INO,
				 .nlink = 2,
				 .mode = st.st_mode,
				 .backing_dev = st.st_dev,
				 .backing_ino = st.st_ino });
}

void backed_end(struct backed *b)
{
	world_must(store_close(b->store), b->dir);
	remove_tree(b->top);
}

void backed_commit(struct backed *b, struct record rec)
{
	world_must(store_commit(b->store, &rec), record_type_name(rec.type));
}

void backed_adopt(struct backed *b, ino_t number)
{
	backed_commit(b, (struct record){ .type = RECORD_ADOPT,
				 .ino = 10,
				 .parent = STATE_ROOT_INO,
				 .name = "n",
				 .mode = S_IFREG | 0644,
				 .nlink = 1,
				 .backing_ino = number });
}

void backed_path(const struct backed *b, const char *name, char out[BACKED_PATH_BYTES])
{
	snprintf(out, BACKED_PATH_BYTES, "%s/%s", b->backing, name);
}

const char *backed_in_store(const struct backed *b, const char *name)
{
	static char path[BACKED_PATH_BYTES];

	snprintf(path, sizeof(path), "%s/%s", b->dir, name);
	return path;
}

ino_t backed_put(const struct backed *b, const char *name, const char *text)
{
	char path[BACKED_PATH_BYTES];
	struct stat st;

	backed_path(b, name, path);
	int fd = open(path, O_CREAT | O_WRONLY | O_TRUNC | O_CLOEXEC, 0644);
	world_must(fd, path);
	world_must(write(fd, text, strlen(text)) < 0 ? -1 : fstat(fd, &st), path);
	close(fd);
	return st.st_ino;
}

void backed_come(const struct backed *b, const char *name)
{
	char from[BACKED_PATH_BYTES], to[BACKED_PATH_BYTES];

	backed_put(b, "other", "another node's");
	backed_path(b, "other", from);
	backed_path(b, name, to);
	world_must(rename(from, to), to);
}

bool backed_holds(const struct backed *b, const char *name, const char *text)
{
	char path[BACKED_PATH_BYTES], got[64] = "";

	backed_path(b, name, path);
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return false;
	ssize_t n = read(fd, got, sizeof(got) - 1);
	close(fd);
	return n >= 0 && strcmp(got, text) == 0;
}

bool backed_is_free(const struct backed *b, const char *name)
{
	char path[BACKED_PATH_BYTES];

	backed_path(b, name, path);
	return access(path, F_OK) < 0 && errno == ENOENT;
}

int backed_try_drain(struct backed *b, const struct drain_options *with, struct drain_result *ret)
{
	struct store_options ro = { .mode = STORE_READ_ONLY };
	struct drain_options opt = *with;
	struct cistern_error err = { 0 };
	char name[64], intent[BACKED_PATH_BYTES];
	struct state_report report;
	int r;

	world_must(store_sync(b->store), "sync");
	store_pin(b->store);
	world_must(store_snapshot(b->store, name, sizeof(name), &opt.upto, &err), err.text);
	ro.snapshot = name;
	world_must(store_open(b->dir, &ro, &opt.store, &report, &err), err.text);
	snprintf(intent, sizeof(intent), "%s", backed_in_store(b, INTENT_FILE));
	opt.intent_path = intent;
	opt.in_place = true;
	opt.base_dirfd = -1;
	opt.num_nodes = 2;
	opt.domain_size = 16u << 20;
	opt.since = UINT64_MAX;
	opt.buffer_bytes = 1u << 20;
	opt.to_dirfd = open(b->backing, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	world_must(opt.to_dirfd, b->backing);
	world_must(manifest_open(backed_in_store(b, MANIFEST_LOG), &opt.manifest, &err), err.text);
	r = drain_run(&opt, ret, &err);
	if (r < 0)
		printf("# %s\n", err.text);
	b->manifest_error = manifest_sync(opt.manifest, NULL);
	manifest_close(opt.manifest);
	close(opt.to_dirfd);
	store_abandon(opt.store);
	store_unpin(b->store);
	return r;
}

struct drain_result backed_drain(struct backed *b, const struct drain_options *with)
{
	struct drain_result res;

	world_must(backed_try_drain(b, with, &res), "a drain");
	return res;
}
