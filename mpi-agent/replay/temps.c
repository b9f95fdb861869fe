/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Where temporary files may be. A session that is killed leaves some in directories that no later one may have anything to do in: their
 * files were removed, or replaced by another node's. So before it makes the first one in a directory it notes that in STORE/drain.temps, a
 * line each: "t" or "s", and the directory's inode number, which stays the same when it moves. "s": for what all nodes write to, which is
 * there from one part of a session to another: what is found when files are begun is of an earlier one. A session that ends in order takes its own lines back; whoever drains or recovers the store next finds
 * what is left there, and sweeps those directories of what has the store's own prefix (names_sweep).
 *
 * Nothing depends on it but that temporary files go, so what cannot be written or read is passed over. It needs no sync: it has to outlive us.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "format/store/steps.h"
#include "mpi-agent/replay/session.h"

enum temps_kind { TEMPS_OWN = 1, TEMPS_SHARED = 2 }; /* bits */

struct temps {
	char path[STORE_PATH_MAX + sizeof(TEMPS_FILE) + 1];
	struct idmap dirs; /* bits of what may be there */
	bool found;        /* something that an earlier session has left */
	int fd;            /* -1: nothing noted yet */
};

static void take_lines(struct temps *t, FILE *f)
{
	uint64_t ino;
	char kind;

	while (fscanf(f, "%c %" SCNu64 "\n", &kind, &ino) == 2) {
		uint64_t bit = kind == 's' ? TEMPS_SHARED : TEMPS_OWN;

		if (ino && idmap_set(&t->dirs, ino, idmap_get(&t->dirs, ino) | bit) == 0)
			t->found = true;
	}
}

int temps_open(struct session *s)
{
	struct temps *t = calloc(1, sizeof(*t));
	FILE *f;

	if (!t)
		return -ENOMEM;
	s->temps = t;
	t->fd = -1;
	snprintf(t->path, sizeof(t->path), "%s/" TEMPS_FILE, store_path(s->opt->store));
	f = fopen(t->path, "re");
	if (f)
		take_lines(t, f);
	if (f)
		fclose(f);
	return 0;
}

static void write_line(struct temps *t, char kind, uint64_t dir)
{
	char line[32];
	int n = snprintf(line, sizeof(line), "%c %" PRIu64 "\n", kind, dir);

	if (t->fd < 0)
		t->fd = open(t->path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
	if (t->fd >= 0 && write(t->fd, line, (size_t)n) != n) {
		close(t->fd);
		t->fd = -1;
	}
}

void temps_note(struct session *s, uint64_t dir, bool shared)
{
	struct temps *t = s->temps;
	uint64_t bit = shared ? TEMPS_SHARED : TEMPS_OWN, known = t ? idmap_get(&t->dirs, dir) : bit;

	if (known & bit || idmap_set(&t->dirs, dir, known | bit) < 0)
		return;
	write_line(t, shared ? 's' : 't', dir);
}

/* Files that are written through to are made in the root. */
static int sweep_through(struct session *s)
{
	char path[STORE_PATH_MAX + sizeof(THROUGH_FILE) + 1];

	snprintf(path, sizeof(path), "%s/" THROUGH_FILE, store_path(s->opt->store));
	if (!session_places_files(s) || access(path, F_OK) < 0)
		return 0;
	s->sweeps_through = true;
	int r = names_sweep(s, STATE_ROOT_INO, ".");
	s->sweeps_through = false;
	return r;
}

/* Directories of earlier sessions; one that is nowhere in the backing directory has none. */
int temps_sweep(struct session *s)
{
	char path[SESSION_PATH_MAX];
	struct temps *t = s->temps;
	int r = 0;

	r = sweep_through(s);
	s->begins = s->opt->part == WIRE_PART_BEGIN;
	for (size_t i = 0; t && t->found && r == 0 && i < t->dirs.cap; i++) {
		uint64_t dir = t->dirs.slots[i].key;
		bool any = t->dirs.slots[i].value & TEMPS_OWN || names_are_published(s);

		if (dir == 0 || !any || state_backing_path(s->st, dir, path, sizeof(path)) < 0)
			continue;
		r = names_sweep(s, dir, path);
		r = r == -ENOENT || r == -ENOTDIR ? 0 : r;
	}
	s->begins = false;
	return r;
}

/* Are files that all nodes write to still wanted, or may some have been left? */
static bool keeps_shared(const struct session *s)
{
	if (names_are_published(s))
		return false;
	return s->opt->part != WIRE_PART_FILES || s->result.totals.late > 0 || s->result.totals.failed > 0;
}

void temps_end(struct session *s)
{
	struct temps *t = s->temps;
	bool keeps = keeps_shared(s), any = false;

	if (t->dirs.num == 0)
		return;
	if (t->fd >= 0)
		close(t->fd);
	t->fd = -1;
	for (size_t i = 0; keeps && i < t->dirs.cap; i++)
		any = any || (t->dirs.slots[i].key && t->dirs.slots[i].value & TEMPS_SHARED);
	if (!any) {
		(void)unlink(t->path);
		return;
	}
	if (truncate(t->path, 0) < 0)
		return;
	for (size_t i = 0; i < t->dirs.cap; i++)
		if (t->dirs.slots[i].key && t->dirs.slots[i].value & TEMPS_SHARED)
			write_line(t, 's', t->dirs.slots[i].key);
}

void temps_close(struct session *s)
{
	struct temps *t = s->temps;

	if (!t)
		return;
	if (t->fd >= 0)
		close(t->fd);
	idmap_free(&t->dirs);
	free(t);
	s->temps = NULL;
}
