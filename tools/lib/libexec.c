/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Finding our own programs: first where the environment says (tests, installations in odd places), then where they
 * were installed, then beside this one (a build folder, a tree that was moved as a whole).
 */
#include "tools/lib/libexec.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#ifndef CISTERN_LIBEXECDIR
#define CISTERN_LIBEXECDIR "/usr/local/libexec/cistern"
#endif

static bool try_in(const char *dir, size_t dir_len, const char *program, char out[PATH_MAX])
{
	if (dir_len == 0 || dir_len + strlen(program) + 2 > PATH_MAX)
		return false;
	snprintf(out, PATH_MAX, "%.*s/%s", (int)dir_len, dir, program);
	return access(out, X_OK) == 0;
}

static bool try_list(const char *list, const char *program, char out[PATH_MAX])
{
	while (list && *list) {
		size_t len = strcspn(list, ":");

		if (try_in(list, len, program, out))
			return true;
		list += len + (list[len] == ':');
	}
	return false;
}

static bool try_beside(const char *program, char out[PATH_MAX])
{
	static const char *const places[] = { "", "/../fs", "/../mpi-agent", "/../libexec/cistern" };
	char self[PATH_MAX], dir[PATH_MAX + 32];
	ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);

	if (n <= 0)
		return false;
	self[n] = '\0';
	*strrchr(self, '/') = '\0';
	for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
		int len = snprintf(dir, sizeof(dir), "%s%s", self, places[i]);

		if (try_in(dir, (size_t)len, program, out))
			return true;
	}
	return false;
}

int libexec_find(const char *program, char out[PATH_MAX], struct cistern_error *err)
{
	const char *env = getenv("CISTERN_LIBEXEC");

	if (try_list(env, program, out) || try_list(CISTERN_LIBEXECDIR, program, out) || try_beside(program, out))
		return 0;
	return cistern_error_set(err, -ENOENT,
		"%s was not found in CISTERN_LIBEXEC%s%s, in " CISTERN_LIBEXECDIR
		" or beside this program; set CISTERN_LIBEXEC to its folder",
		program, env ? "=" : "", env ? env : " (not set)");
}
