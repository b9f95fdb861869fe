/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * make-store STORE BACKING [crash|unsynced|job]: makes a store with a bit of everything, for tests of the tools. With "crash"
 * it is left as a killed daemon leaves it, with "unsynced" as one that has not come to sync; else it is closed in good order. With "job" it
 * is that of node 1 of 2.
 *
 *   out.nc        256 KiB and a second write over bytes 65536 to 131071
 *   sub/sparse    4096 bytes at 1 MiB, a hole before
 *   sub/link      symbolic link to ../out.nc
 *   private.dat   12288 bytes in a private segment
 *   gone.tmp      written and deleted
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "format/store/store.h"

static int create(struct store *s, uint64_t parent, const char *name, uint32_t mode, const char *target,
	uint32_t segment, uint64_t *ret_ino)
{
	struct record rec = { .type = RECORD_CREATE,
		.ino = state_new_ino(store_state(s)),
		.parent = parent,
		.mode = mode,
		.segment = segment };

	snprintf(rec.name, sizeof(rec.name), "%s", name);
	if (target) {
		rec.target = target;
		rec.target_len = strlen(target);
	}
	*ret_ino = rec.ino;
	return store_commit(s, &rec);
}

/* As the daemon does at its first start. */
static int adopt_root(struct store *s, const char *backing)
{
	struct record rec = { .type = RECORD_ADOPT, .ino = STATE_ROOT_INO, .name = "." };
	struct stat st;

	if (stat(backing, &st) < 0)
		return -errno;
	record_set_attributes(&rec, &st);
	return store_commit(s, &rec);
}

static int fill(struct store *s, uint64_t ino, uint64_t off, size_t len, int byte)
{
	char buf[65536];
	int r = 0;

	memset(buf, byte, sizeof(buf));
	for (size_t n; r == 0 && len > 0; off += n, len -= n) {
		n = len < sizeof(buf) ? len : sizeof(buf);
		r = store_write(s, ino, 0, off, buf, n);
	}
	return r;
}

static int make_private(struct store *s)
{
	uint32_t segment;
	uint64_t ino;
	int r = segment_create_private(store_segments(s), &segment), fd;
	char buf[12288];

	if (r)
		return r;
	memset(buf, 'p', sizeof(buf));
	fd = segment_open_fd(store_segments(s), segment, true);
	if (fd < 0)
		return fd;
	r = pwrite(fd, buf, sizeof(buf), 0) == (ssize_t)sizeof(buf) ? 0 : -EIO;
	close(fd);
	return r ? r : create(s, STATE_ROOT_INO, "private.dat", S_IFREG | 0644, NULL, segment, &ino);
}

static int make_deleted(struct store *s)
{
	struct record gone = { .type = RECORD_UNLINK, .parent = STATE_ROOT_INO, .name = "gone.tmp" };
	uint64_t ino;
	int r = create(s, STATE_ROOT_INO, gone.name, S_IFREG | 0600, NULL, 0, &ino);

	if (!r)
		r = fill(s, ino, 0, 32768, 'g');
	gone.ino = ino;
	if (!r)
		r = store_commit(s, &gone);
	gone = (struct record){ .type = RECORD_FREE, .ino = ino };
	return r ? r : store_commit(s, &gone);
}

static int populate(struct store *s)
{
	uint64_t out, sub, ino;
	int r = create(s, STATE_ROOT_INO, "out.nc", S_IFREG | 0644, NULL, 0, &out);

	if (!r)
		r = fill(s, out, 0, 262144, 'a');
	if (!r)
		r = fill(s, out, 65536, 65536, 'b');
	if (!r)
		r = create(s, STATE_ROOT_INO, "sub", S_IFDIR | 0755, NULL, 0, &sub);
	if (!r)
		r = create(s, sub, "sparse", S_IFREG | 0644, NULL, 0, &ino);
	if (!r)
		r = fill(s, ino, 1 << 20, 4096, 's');
	if (!r)
		r = create(s, sub, "link", S_IFLNK | 0777, "../out.nc", 0, &ino);
	if (!r)
		r = make_private(s);
	if (!r)
		r = make_deleted(s);
	return r;
}

static int end(struct store *s, const char *how, int r)
{
	bool unsynced = strcmp(how, "unsynced") == 0;

	if (r == 0 && !unsynced)
		r = store_sync(s);
	if (r == 0 && !unsynced && strcmp(how, "crash") != 0)
		return store_close(s);
	store_abandon(s);
	return r;
}

int main(int argc, char **argv)
{
	struct store_options opt = { .mode = STORE_CREATE_OR_OPEN };
	struct cistern_error err = { 0 };
	struct state_report report;
	const char *how = argc > 3 ? argv[3] : "";
	uint8_t job[STORE_UUID_BYTES] = { 1 };
	struct store *s;
	int r;

	if (argc < 3) {
		fprintf(stderr, "usage: make-store STORE BACKING [crash|unsynced|job]\n");
		return 2;
	}
	opt.backing = argv[2];
	if (store_open(argv[1], &opt, &s, &report, &err) < 0) {
		fprintf(stderr, "make-store: %s\n", err.text);
		return 1;
	}
	r = adopt_root(s, argv[2]);
	if (!r && strcmp(how, "job") == 0)
		r = store_number(s, 1, 2, job, &err);
	if (!r)
		r = populate(s);
	r = end(s, how, r);
	if (r < 0)
		fprintf(stderr, "make-store: %s\n", strerror(-r));
	return r < 0;
}
