/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * By the calls that take a mount apart into its steps (fsopen(2), fsmount(2), move_mount(2)), since
 * only these can make one before it has a place. They are called by number: libraries older than
 * they are do not name them.
 */
#include "fs/session/new_mount.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/syscall.h>
#include <unistd.h>

enum {
	CALL_MOVE_MOUNT = 429,
	CALL_FSOPEN = 430,
	CALL_FSCONFIG = 431,
	CALL_FSMOUNT = 432
};                                                 /* everywhere but on alpha */
enum { SET_FLAG = 0, SET_STRING = 1, CREATE = 6 }; /* fsconfig */
enum { CLOSE_ON_EXEC = 1 };                        /* fsopen, fsmount */
enum { OF_DESCRIPTOR = 0x4, BENEATH = 0x200 };     /* move_mount */
enum { RDONLY = 0x1, NOSUID = 0x2, NODEV = 0x4, NOEXEC = 0x8, NOATIME = 0x10, NODIRATIME = 0x80 };

/* ---- made */

/* What mount(8) has words for: of the mount, or of the file system. */
struct flags {
	unsigned int of_mount;
	bool sync, dirsync;
};

static void take_flag(struct flags *f, const char *word, size_t len)
{
	static const struct {
		const char *word;
		unsigned int set, clear;
	} known[] = {
		{ "suid", 0, NOSUID },
		{ "nosuid", NOSUID, 0 },
		{ "dev", 0, NODEV },
		{ "nodev", NODEV, 0 },
		{ "exec", 0, NOEXEC },
		{ "noexec", NOEXEC, 0 },
		{ "noatime", NOATIME, 0 },
		{ "nodiratime", NODIRATIME, 0 },
	};

	for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
		if (strlen(known[i].word) == len && strncmp(known[i].word, word, len) == 0)
			f->of_mount = (f->of_mount | known[i].set) & ~known[i].clear;
	f->sync |= len == 4 && strncmp(word, "sync", 4) == 0;
	f->dirsync |= len == 7 && strncmp(word, "dirsync", 7) == 0;
}

static struct flags flags_of(const struct session_options *opt)
{
	struct flags f = { .of_mount = NOSUID | NODEV | (opt->read_only ? RDONLY : 0) };

	for (const char *word = opt->mount_flags; *word;) {
		size_t len = strcspn(word, ",");

		take_flag(&f, word, len);
		word += len + (word[len] == ',');
	}
	return f;
}

static int set(int fs, const char *key, const char *value)
{
	return syscall(CALL_FSCONFIG, fs, value ? SET_STRING : SET_FLAG, key, value, 0) < 0 ? -errno : 0;
}

static int set_number(int fs, const char *key, unsigned int value)
{
	char text[16];

	snprintf(text, sizeof(text), "%u", value);
	return set(fs, key, text);
}

static int configure(int fs, const struct session_options *opt, const struct flags *f, int device)
{
	int r = set(fs, "source", opt->fsname);

	r = r ? r : set(fs, "subtype", "cistern");
	r = r ? r : set_number(fs, "fd", (unsigned int)device);
	r = r ? r : set(fs, "rootmode", "40000");
	r = r ? r : set_number(fs, "user_id", getuid());
	r = r ? r : set_number(fs, "group_id", getgid());
	r = r ? r : set(fs, "default_permissions", NULL);
	if (!r && opt->allow_other)
		r = set(fs, "allow_other", NULL);
	if (!r && opt->read_only)
		r = set(fs, "ro", NULL);
	if (!r && f->sync)
		r = set(fs, "sync", NULL);
	if (!r && f->dirsync)
		r = set(fs, "dirsync", NULL);
	if (!r && syscall(CALL_FSCONFIG, fs, CREATE, NULL, NULL, 0) < 0)
		r = -errno;
	return r;
}

/*
 * The mount's descriptor or -errno. The file system's own is closed: it would keep the connection
 * alive.
 */
static int create_on(int device, const struct session_options *opt)
{
	struct flags f = flags_of(opt);
	int fs = (int)syscall(CALL_FSOPEN, "fuse", CLOSE_ON_EXEC), r;

	if (fs < 0)
		return -errno;
	r = configure(fs, opt, &f, device);
	if (r == 0) {
		r = (int)syscall(CALL_FSMOUNT, fs, CLOSE_ON_EXEC, f.of_mount);
		r = r < 0 ? -errno : r;
	}
	close(fs);
	return r;
}

int new_mount_create(const struct session_options *opt, int *ret_device, int *ret_mount)
{
	int device = open("/dev/fuse", O_RDWR | O_CLOEXEC), r;

	if (device < 0)
		return -errno;
	r = create_on(device, opt);
	if (r < 0) {
		close(device);
		return r;
	}
	*ret_device = device;
	*ret_mount = r;
	return 0;
}

/* ---- placed */

static int move(int mount_fd, const char *mountpoint, unsigned int how)
{
	return syscall(CALL_MOVE_MOUNT, mount_fd, "", AT_FDCWD, mountpoint, OF_DESCRIPTOR | how) < 0 ? -errno : 0;
}

/* That one and none other: somebody else may have freed the mount point by now. */
static int detach(int root_fd)
{
	char path[64];

	snprintf(path, sizeof(path), "/proc/self/fd/%d", root_fd);
	return umount2(path, MNT_DETACH) < 0 ? -errno : 0;
}

int new_mount_replace(int mount_fd, const char *mountpoint)
{
	int dead_fd = open(mountpoint, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC), r;

	if (dead_fd < 0)
		return -errno;
	r = move(mount_fd, mountpoint, BENEATH);
	r = r ? r : detach(dead_fd);
	close(dead_fd);
	return r;
}

int new_mount_put(int mount_fd, const char *mountpoint)
{
	return move(mount_fd, mountpoint, 0);
}
