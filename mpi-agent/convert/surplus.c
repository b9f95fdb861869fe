/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * What a smaller set leaves over. A file goes only when it says itself that it is this subfile of the very set that is replaced; the last
 * one goes first, so that who is killed meanwhile finds the others again by BASE.0000. Crash safety: docs/design/blob-layouts.md.
 */
#include "mpi-agent/convert/surplus.h"

#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "format/base/fdio.h"
#include "mpi-agent/convert/set.h"

/* Only ours say their numbers. */
static bool open_subfile(const char *path, uint32_t number, struct subfile *ret)
{
	struct stat st;

	if (lstat(path, &st) < 0 || !S_ISREG(st.st_mode) || subfile_open(path, ret, NULL) < 0)
		return false;
	if (!ret->head.is_exact || ret->head.exact.subfile == number)
		return true;
	subfile_close(ret);
	return false;
}

static bool is_of_set(const struct blob_head *first, const char *path, uint32_t number)
{
	struct subfile f;
	bool is = open_subfile(path, number, &f);

	if (is) {
		is = blob_head_compare(first, &f.head, NULL) == 0;
		subfile_close(&f);
	}
	return is;
}

static int remove_one(const char *path, struct cistern_error *err)
{
	if (unlink(path) == 0 || errno == ENOENT)
		return 0;
	return cistern_error_set(
		err, -errno, "%s is of the set that was replaced, and cannot be removed: %s", path, strerror(errno));
}

static int remove_all(
	const char *base, const struct blob_head *first, uint32_t num, struct surplus *s, struct cistern_error *err)
{
	char path[PATH_MAX];
	struct stat st;
	int r = 0, one;

	for (uint32_t i = first->num_subfiles; i > num; i--) {
		if (blob_set_path(base, i - 1, path, sizeof(path)) < 0 || lstat(path, &st) < 0)
			continue;
		if (!is_of_set(first, path, i - 1)) {
			s->kept++;
			s->first_kept = i - 1;
			continue;
		}
		one = remove_one(path, r == 0 ? err : NULL);
		s->removed += one == 0;
		r = r == 0 ? one : r;
	}
	return r;
}

int surplus_remove(const char *base, uint32_t num, struct surplus *ret, struct cistern_error *err)
{
	struct surplus s = { 0 };
	struct subfile first;
	char path[PATH_MAX];
	int r = blob_set_path(base, 0, path, sizeof(path)), synced;

	*ret = s;
	if (r < 0 || !open_subfile(path, 0, &first))
		return 0;
	r = remove_all(base, &first.head, num, &s, err);
	subfile_close(&first);
	*ret = s;
	synced = s.removed > 0 ? fdio_sync_parent(path) : 0;
	return r < 0 || synced == 0 ? r : cistern_error_set(err, synced, "%s: %s", path, strerror(-synced));
}
