/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "tests/lib/opened.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/lib/tap.h"

static const struct core_cred cred = { 0 };

uint64_t opened_create(struct job_world *w, uint32_t node, const char *name, int flags, struct opened *ret)
{
	struct core_open_reply reply;
	struct core_entry e;

	ret->j = job_world_job(w, node);
	int rc = job_create_file(ret->j, 1, name, 0644, flags, cred, &e, &ret->file, &reply);
	if (rc)
		printf("# create %s: %d\n", name, rc);
	return rc ? 0 : e.ino;
}

int opened_at(struct job_world *w, uint32_t node, uint64_t ino, int flags, struct opened *ret)
{
	struct core_open_reply reply;

	ret->j = job_world_job(w, node);
	return job_open(ret->j, ino, flags, &ret->file, &reply);
}

int opened_close(struct opened *o)
{
	int rc = job_flush(o->j, o->file);

	job_release(o->j, o->file);
	return rc;
}

ssize_t opened_put(struct opened *o, const char *text, uint64_t off)
{
	return job_write(o->j, o->file, text, strlen(text), off);
}

bool opened_shows(struct opened *o, uint64_t off, const char *text)
{
	size_t len = strlen(text);
	char *buf = calloc(1, len + 2);
	ssize_t got = job_read(o->j, o->file, buf, len + 1, off);
	bool same = got >= (ssize_t)len && memcmp(buf, text, len) == 0;

	if (!same)
		printf("# %zd bytes: %.60s, not %s\n", got, buf, text);
	free(buf);
	return same;
}

void opened_elsewhere(struct job_world *w, uint64_t ino)
{
	struct opened other;

	is_int(opened_at(w, 1, ino, O_WRONLY, &other), 0, "opened by another node");
	is_int(opened_close(&other), 0, "closed");
}
