/* SPDX-License-Identifier: GPL-3.0-or-later */
/* Requests for sessions, and the results of the last ones. */
#include "fs/drain/request.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fs/drain/drain.h"
#include "fs/drain/errors.h"

struct drain_request *drain_request_new(uint64_t id, enum drain_kind kind)
{
	struct drain_request *r = calloc(1, sizeof(*r));

	if (r)
		*r = (struct drain_request){ .id = id, .kind = kind };
	return r;
}

static void free_paths(char **paths, size_t num)
{
	for (size_t i = 0; i < num; i++)
		free(paths[i]);
	free(paths);
}

void drain_request_free(struct drain_request *r)
{
	if (!r)
		return;
	free_paths(r->paths, r->num_paths);
	free(r);
}

static void want_everything(struct drain_request *r)
{
	free_paths(r->paths, r->num_paths);
	r->paths = NULL;
	r->num_paths = 0;
}

static bool add_path(struct drain_request *r, const char *path)
{
	char **paths, *copy;

	if (r->num_paths > 0 && drain_paths_cover(r->paths, r->num_paths, path))
		return true;
	if (r->num_paths >= DRAIN_PATHS_MAX)
		return false;
	paths = reallocarray(r->paths, r->num_paths + 1, sizeof(*paths));
	if (!paths)
		return false;
	r->paths = paths;
	copy = strdup(path);
	if (!copy)
		return false;
	r->paths[r->num_paths++] = copy;
	return true;
}

void drain_request_add(struct drain_request *r, const char *const *paths, size_t num, bool first)
{
	if (!first && r->num_paths == 0)
		return; /* everything already */
	for (size_t i = 0; i < num; i++)
		if (!add_path(r, paths[i])) {
			want_everything(r);
			return;
		}
	if (num == 0)
		want_everything(r);
}

char **drain_request_copy_paths(const struct drain_request *r)
{
	char **paths = calloc(r->num_paths + 1, sizeof(*paths));

	for (size_t i = 0; paths && i < r->num_paths; i++) {
		paths[i] = strdup(r->paths[i]);
		if (!paths[i]) {
			free_paths(paths, i);
			return NULL;
		}
	}
	return paths;
}

void drain_results_put(struct drain_results *r, uint64_t id, enum cistern_exit result, const char *text)
{
	struct drain_result *slot = &r->ring[id % DRAIN_RESULTS];

	slot->id = id;
	slot->exit = result;
	snprintf(slot->text, sizeof(slot->text), "%s", text);
}

const struct drain_result *drain_results_find(const struct drain_results *r, uint64_t id)
{
	const struct drain_result *slot = &r->ring[id % DRAIN_RESULTS];

	return slot->id == id ? slot : NULL;
}
