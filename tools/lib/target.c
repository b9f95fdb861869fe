/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * From what the user typed to a store. The daemon mounts with its backing directory as the source, so the store is
 * not in mountinfo; the mount's root tells it as an extended attribute.
 */
#include "tools/lib/target.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "format/base/dead_mount.h"
#include "format/store/store.h"
#include "tools/lib/mount_store.h"

int target_real_path(const char *name, char out[PATH_MAX], struct cistern_error *err)
{
	int r = dead_mount_real_path(name, out);

	return r == 0 ? 0 : cistern_error_set(err, r, "%s: %s", name, strerror(-r));
}

static int ask_for_store(struct target *t, struct cistern_error *err)
{
	int r = mount_store(t->mount.mountpoint, t->store);

	if (r == -ENOTCONN || r == -ECONNABORTED) {
		t->dead = true;
		return cistern_error_set(err, -ENOTCONN,
			"%s: its daemon has died; free the mount point with 'cistern umount %s', then mount again with the same store, "
			"which continues where it stopped, or run 'cistern recover STORE --to %s'",
			t->mount.mountpoint, t->mount.mountpoint, t->mount.source);
	}
	return r == 0 ? 0
		      : cistern_error_set(err, r, "%s does not tell its store: %s; name the store instead",
				t->mount.mountpoint, r == -ENODATA ? "empty answer" : strerror(-r));
}

/* Of a bind mount the path in the file system begins with what of it is mounted. */
static int set_path(struct target *t, const char *real, struct cistern_error *err)
{
	const char *root = t->mount.root + strspn(t->mount.root, "/");
	const char *rest = real + strlen(t->mount.mountpoint);
	int n;

	rest += strspn(rest, "/");
	t->at_mountpoint = *rest == '\0';
	n = snprintf(t->path, sizeof(t->path), "%s%s%s", root, *root && *rest ? "/" : "", *rest || *root ? rest : ".");
	return n < (int)sizeof(t->path) ? 0 : cistern_error_set(err, -ENAMETOOLONG, "%s: the path is too long", real);
}

static int only_mount(const struct mount_entry *m, void *arg)
{
	struct target *t = arg;

	if (!m->cistern || (t->mounted && m->major == t->mount.major && m->minor == t->mount.minor))
		return 0; /* the second one is a bind mount of the first */
	if (t->mounted)
		return -E2BIG;
	t->mounted = true;
	t->mount = *m;
	return 0;
}

/* No name: where we are, else the only one there is. */
static int resolve_default(struct target *t, struct cistern_error *err)
{
	char cwd[PATH_MAX];
	int r;

	if (getcwd(cwd, sizeof(cwd)) && mounts_holding(cwd, &t->mount) == 0 && t->mount.cistern) {
		t->mounted = true;
	} else {
		r = mounts_each(only_mount, t);
		if (r == -E2BIG)
			return cistern_error_set(err, r, "there are several cistern mounts here; say which is meant");
		if (r < 0 || !t->mounted)
			return cistern_error_set(
				err, r < 0 ? r : -ENOENT, "there is no cistern mount here; say what is meant");
	}
	memcpy(t->path, ".", 2);
	t->at_mountpoint = true;
	return ask_for_store(t, err);
}

int target_resolve_mount(const char *name, struct target *ret, struct cistern_error *err)
{
	char real[PATH_MAX];
	int r;

	*ret = (struct target){ .mounted = false };
	if (!name)
		return resolve_default(ret, err);
	r = target_real_path(name, real, err);
	if (r < 0)
		return r;
	r = mounts_holding(real, &ret->mount);
	if (r < 0 || !ret->mount.cistern)
		return cistern_error_set(err, -ENOENT,
			"%s is not in a cistern mount: name a mount point, or a path in a mount ('mount -t fuse.cistern' lists them)",
			name);
	ret->mounted = true;
	r = set_path(ret, real, err);
	return r < 0 ? r : ask_for_store(ret, err);
}

int target_resolve(const char *name, struct target *ret, struct cistern_error *err)
{
	struct cistern_error why;
	struct superblock *sb;
	int r = target_resolve_mount(name, ret, &why);

	if (r == 0 || ret->mounted) {
		if (r < 0)
			cistern_error_set(err, r, "%s", why.text);
		return r;
	}
	if (!realpath(name, ret->store))
		return cistern_error_set(err, -errno, "%s: %s", name, strerror(errno));
	sb = malloc(sizeof(*sb));
	if (!sb)
		return cistern_error_set(err, -ENOMEM, "out of memory");
	r = store_read_superblock(ret->store, sb, &why);
	free(sb);
	if (r == -ENOENT || r == -ENOTDIR)
		return cistern_error_set(err, r,
			"%s is neither a store nor in a cistern mount: name a store's directory, a mount point, or a path in a "
			"mount%s",
			name, r == -ENOTDIR ? "; 'cistern fsck' looks into a file that is in none" : "");
	return r < 0 ? cistern_error_set(err, r, "%s", why.text) : 0;
}
