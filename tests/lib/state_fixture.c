/* SPDX-License-Identifier: GPL-3.0-or-later */
/* A state over a simulated disk. See the header. */
#include "tests/lib/state_fixture.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/lib/scratch.h"
#include "tests/lib/tap.h"

static void empty_directory(const char *path)
{
	char name[600];
	struct dirent *entry;
	DIR *dir = opendir(path);

	while (dir && (entry = readdir(dir))) {
		if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
			continue;
		snprintf(name, sizeof name, "%s/%s", path, entry->d_name);
		if (unlink(name) < 0) {
			empty_directory(name);
			rmdir(name);
		}
	}
	if (dir)
		closedir(dir);
}

int fixture_init(struct state_fixture *f)
{
	*f = (struct state_fixture){ .boot_id = { 1 }, .journal_size = 256u << 10 };
	snprintf(f->dir, sizeof f->dir, "%s/test-state-XXXXXX", scratch_parent());
	if (!mkdtemp(f->dir))
		return -errno;
	snprintf(f->index, sizeof f->index, "%s/index", f->dir);
	return sim_create(&f->sim, &f->io);
}

void fixture_end(struct state_fixture *f)
{
	fixture_kill(f);
	sim_destroy(f->sim);
	empty_directory(f->dir);
	rmdir(f->dir);
}

static void on_freed(uint32_t segment, uint64_t off, uint64_t len, uint64_t seq, void *arg)
{
	struct state_fixture *f = arg;

	(void)seq;
	if (segment == 0)
		f->freed_privates = f->freed_bytes = 0;
	else if (off == 0 && len == UINT64_MAX)
		f->freed_privates++;
	else
		f->freed_bytes += len;
}

static int check_payload(const struct record *rec, void *arg)
{
	const struct state_fixture *f = arg;

	return rec->seq >= f->lost_from && rec->seq < f->lost_to ? -EBADMSG : 0;
}

static struct state_options options(struct state_fixture *f, enum state_mode mode, const char *index)
{
	return (struct state_options){ .io = f->io,
		.index_path = index,
		.mode = mode,
		.index_memory = f->index_memory,
		.journal_size = f->journal_size,
		.check_payload = check_payload,
		.arg = f,
		.freed = on_freed,
		.freed_arg = f,
		.boot_id = f->boot_id };
}

int fixture_open(struct state_fixture *f, enum state_mode mode)
{
	struct state_options opt = options(f, mode, f->index);
	int r;

	f->report = (struct state_report){ 0 };
	f->freed_bytes = f->freed_privates = 0;
	r = state_open(&opt, &f->st, &f->report, &f->err);
	if (r < 0) {
		f->st = NULL;
		tap_diag("state_open: %d %s", r, f->err.text);
	}
	return r;
}

void fixture_kill(struct state_fixture *f)
{
	state_destroy(f->st);
	f->st = NULL;
}

int fixture_close(struct state_fixture *f)
{
	int r = state_close(f->st);

	f->st = NULL;
	return r;
}

void fixture_reboot(struct state_fixture *f, uint64_t seed)
{
	/* Power first: what the end of the process would still do to the disk must not happen. */
	sim_power_cut(f->sim, seed);
	fixture_kill(f);
	f->boot_id[0]++;
}

int fixture_second_opinion(struct state_fixture *f, const char *name, struct state **ret)
{
	char path[400];
	struct state_options opt = options(f, STATE_REBUILD_READ_ONLY, path);
	struct state_report report;
	int r;

	snprintf(path, sizeof path, "%s/%s", f->dir, name);
	opt.freed = NULL;
	r = state_open(&opt, ret, &report, &f->err);
	if (r < 0)
		tap_diag("second opinion: %d %s", r, f->err.text);
	return r;
}

static void print_difference(const char *line, void *arg)
{
	int *left = arg;

	if ((*left)-- > 0)
		tap_diag("%s", line);
}

int64_t fixture_differences(struct state_fixture *f)
{
	struct state *other;
	int left = 10;
	int64_t num;
	int r;

	r = fixture_second_opinion(f, "second", &other);
	if (r < 0)
		return r;
	num = state_compare(f->st, other, print_difference, &left);
	state_destroy(other);
	return num;
}

static int copy_file(const char *from, const char *to)
{
	char buf[65536];
	FILE *in = fopen(from, "rb"), *out = fopen(to, "wb");
	size_t n;
	int r = in && out ? 0 : -EIO;

	while (r == 0 && (n = fread(buf, 1, sizeof buf, in)) > 0)
		if (fwrite(buf, 1, n, out) != n)
			r = -EIO;
	if (in)
		fclose(in);
	if (out && fclose(out) != 0)
		r = -EIO;
	return r;
}

int fixture_copy_index(const struct state_fixture *f, const char *from, const char *to)
{
	char a[700], b[700];
	struct dirent *entry;
	DIR *dir = opendir(from);
	int r = dir ? 0 : -errno;

	(void)f;
	mkdir(to, 0700);
	empty_directory(to);
	while (r == 0 && (entry = readdir(dir))) {
		if (entry->d_name[0] == '.')
			continue;
		snprintf(a, sizeof a, "%s/%s", from, entry->d_name);
		snprintf(b, sizeof b, "%s/%s", to, entry->d_name);
		r = copy_file(a, b);
	}
	if (dir)
		closedir(dir);
	return r;
}

int commit(struct state_fixture *f, struct record rec, uint64_t *ret_seq)
{
	int r = state_commit(f->st, &rec);

	if (ret_seq)
		*ret_seq = rec.seq;
	return r;
}

int fixture_adopt_root(struct state_fixture *f)
{
	struct record root = { .type = RECORD_ADOPT,
		.ino = STATE_ROOT_INO,
		.mode = S_IFDIR | 0755,
		.nlink = 2,
		.backing_dev = 1,
		.backing_ino = 2 };

	return commit(f, root, NULL);
}

static void set_name(char *to, const char *name)
{
	snprintf(to, RECORD_NAME_MAX + 1, "%s", name);
}

struct record record_name(enum record_type type, uint64_t ino, uint64_t parent, const char *name)
{
	struct record rec = { .type = type, .ino = ino, .parent = parent };

	set_name(rec.name, name);
	return rec;
}

struct record record_create(uint64_t ino, uint64_t parent, const char *name, uint32_t mode)
{
	struct record rec = record_name(RECORD_CREATE, ino, parent, name);

	rec.mode = mode;
	return rec;
}

struct record record_write(uint64_t ino, uint64_t off, uint64_t len, uint32_t segment, uint64_t segment_off)
{
	return (struct record){ .type = RECORD_WRITE,
		.ino = ino,
		.off = off,
		.len = len,
		.segment = segment,
		.segment_off = segment_off,
		.payload_crc = (uint32_t)(off * 31 + len) };
}

struct record record_rename(
	uint64_t ino, uint64_t from_parent, const char *from, uint64_t parent, const char *name, uint64_t other_ino)
{
	struct record rec = record_name(RECORD_RENAME, ino, parent, name);

	rec.from_parent = from_parent;
	rec.other_ino = other_ino;
	set_name(rec.from_name, from);
	return rec;
}

int damage_tables(const char *index)
{
	struct dirent *entry;
	DIR *dir = opendir(index);
	char path[800];
	int num = 0;

	while (dir && (entry = readdir(dir))) {
		int fd;

		if (!strstr(entry->d_name, ".sst"))
			continue;
		snprintf(path, sizeof path, "%s/%s", index, entry->d_name);
		fd = open(path, O_WRONLY);
		num += fd >= 0 && pwrite(fd, "damagedamagedamage", 18, 40) == 18;
		if (fd >= 0)
			close(fd);
	}
	if (dir)
		closedir(dir);
	return num;
}
