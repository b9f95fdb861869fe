/* SPDX-License-Identifier: GPL-3.0-or-later */
/* A bounded list: a broken backing directory can make every file fail, and the manifest has them all. */
#include "fs/drain/errors.h"

#include <stdlib.h>
#include <string.h>

#include "format/base/array.h"
#include "fs/drain/drain.h"

static struct drain_error *find(struct drain_errors *e, const char *path)
{
	for (size_t i = 0; i < e->num; i++)
		if (strcmp(e->entries[i].path, path) == 0)
			return &e->entries[i];
	return NULL;
}

static struct drain_error *make(struct drain_errors *e, const char *path)
{
	struct drain_error *entry;
	char *copy;

	if (array_room(&e->entries, &e->cap, e->num, sizeof(*e->entries)) < 0)
		return NULL;
	copy = strdup(path);
	if (!copy)
		return NULL;
	entry = &e->entries[e->num++];
	*entry = (struct drain_error){ .path = copy };
	return entry;
}

void drain_errors_add(struct drain_errors *e, uint64_t session, const char *path, int code, const char *text)
{
	struct drain_error *entry = find(e, path);

	if (!entry && e->num < DRAIN_ERRORS_MAX)
		entry = make(e, path);
	if (!entry) {
		e->lost++;
		return;
	}
	free(entry->text);
	entry->text = strdup(text);
	entry->code = code;
	entry->session = session;
}

bool drain_paths_cover(char *const *paths, size_t num, const char *path)
{
	for (size_t i = 0; i < num; i++) {
		size_t len = strlen(paths[i]);

		if (strncmp(paths[i], path, len) == 0 && (path[len] == '\0' || path[len] == '/'))
			return true;
	}
	return num == 0;
}

void drain_errors_prune(struct drain_errors *e, uint64_t session, char *const *paths, size_t num_paths)
{
	size_t kept = 0;

	for (size_t i = 0; i < e->num; i++) {
		struct drain_error *entry = &e->entries[i];

		if (entry->session != session && drain_paths_cover(paths, num_paths, entry->path)) {
			free(entry->path);
			free(entry->text);
		} else {
			e->entries[kept++] = *entry;
		}
	}
	e->num = kept;
	if (num_paths == 0 && kept < DRAIN_ERRORS_MAX)
		e->lost = 0;
}

void drain_errors_free(struct drain_errors *e)
{
	for (size_t i = 0; i < e->num; i++) {
		free(e->entries[i].path);
		free(e->entries[i].text);
	}
	free(e->entries);
	*e = (struct drain_errors){ 0 };
}
