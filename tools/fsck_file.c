/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * A file instead of a store: is it what it begins like? What is mended is one number in a header, and only upwards: records
 * that the file has and its header does not count. Zeros may be room that nobody filled: they are counted on request alone.
 */
#include "tools/fsck.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "format/base/fdio.h"
#include "format/base/units.h"
#include "format/codec/blob.h"
#include "format/codec/check.h"
#include "format/codec/classic.h"

/* Durable when it returns 0. */
static int write_count(int fd, uint64_t count, unsigned int bytes)
{
	uint8_t be[8];
	int r;

	for (unsigned int i = 0; i < bytes; i++)
		be[i] = (uint8_t)(count >> 8 * (bytes - 1 - i));
	r = fdio_write(fd, be, bytes, CLASSIC_NUMRECS_OFF);
	return r == 0 && fsync(fd) < 0 ? -errno : r;
}

static int mend(struct fsck *f, int fd, const struct check *c, struct cistern_error *err)
{
	uint64_t count = f->force ? c->room_records : c->seen_records;
	char num[UNITS_COUNT];
	int r;

	if (c->reserved && !f->force)
		return cistern_error_set(err, -EPERM,
			"%s: not changed: behind the %s that the header counts are zeros alone, which may be room that nobody filled; "
			"'cistern fsck --fix-numrecs --force FILE' makes %" PRIu64 " records of all",
			f->store, units_format_count(c->told_records, "record", num), c->room_records);
	if (c->numrecs_bytes == 4 && count >= UINT32_MAX) { /* which would mean that nobody knows */
		fsck_report(
			f, FSCK_DAMAGE, NULL, 0, 0, "%" PRIu64 " records are more than this format can count", count);
		return 0;
	}
	r = write_count(fd, count, c->numrecs_bytes);
	if (r < 0)
		return cistern_error_set(
			err, r, "%s: its number of records cannot be written: %s", f->store, strerror(-r));
	if (c->streaming)
		fsck_report(f, FSCK_REPAIRED, NULL, 0, 0, "the header counts %s now, which it left open",
			units_format_count(count, "record", num));
	else
		fsck_report(f, FSCK_REPAIRED, NULL, 0, 0, "the header counts %s now, and not %" PRIu64,
			units_format_count(count, "record", num), c->told_records);
	return 0;
}

static int report(struct fsck *f, int fd, const struct check *c, struct cistern_error *err)
{
	const char *name = check_format_name(c->format);

	if (c->format == CHECK_OTHER)
		return cistern_error_set(
			err, -EINVAL, "%s is neither a store nor a file of a format that is known here", f->store);
	if (f->fix_numrecs && (c->stale || c->streaming || c->reserved))
		return mend(f, fd, c, err);
	if (c->verdict == CHECK_SOUND)
		fsck_report(f, FSCK_OK, NULL, 0, 0, "%s", name);
	else
		fsck_report(f, c->verdict >= CHECK_SHORT || c->stale ? FSCK_DAMAGE : FSCK_NOTE, NULL, 0, 0, "%s: %s",
			name, c->text);
	return 0;
}

static bool has_object(const struct layout *l, const char *name)
{
	for (size_t i = 0; i < l->num_objects; i++)
		if (strcmp(l->objects[i].name, name) == 0)
			return true;
	return false;
}

/* A part of a file, in one of the two forms of blobs. */
static bool is_subfile(int fd, const struct source *s, enum check_format format)
{
	struct classic c CLASSIC_CLEANUP = { 0 };
	struct layout l LAYOUT_CLEANUP = { 0 };

	if (format == CHECK_CLASSIC)
		return classic_read(fdio_read_arg, &fd, &c, NULL) == 0 && blob_is_header(&c);
	return format == CHECK_HDF5 && check_layout(s, &l, NULL) == 0 && has_object(&l, "header_blob") &&
	       has_object(&l, "data_blob");
}

int fsck_check_file(struct fsck *f, struct cistern_error *err)
{
	int fd = open(f->store, (f->fix_numrecs ? O_RDWR : O_RDONLY) | O_CLOEXEC), r;
	struct source source;
	struct check c = { 0 };
	struct stat st;

	if (fd < 0 || fstat(fd, &st) < 0) {
		r = cistern_error_set(err, -errno, "%s: %s", f->store, strerror(errno));
		if (fd >= 0)
			close(fd);
		return r;
	}
	source = source_of_fd(&fd, (uint64_t)st.st_size);
	r = check_file(&source, &c);
	if (r < 0)
		cistern_error_set(err, r, "%s: cannot be read: %s", f->store, strerror(-r));
	else
		r = report(f, fd, &c, err);
	if (r == 0 && is_subfile(fd, &source, c.format))
		fsck_report(f, FSCK_NOTE, NULL, 0, 0,
			"it is a subfile of blobs, with others of its name perhaps: 'cistern convert' checks the set, and makes the canonical file of it");
	if (close(fd) < 0 && r == 0 && f->fix_numrecs)
		r = cistern_error_set(err, -errno, "%s: %s", f->store, strerror(errno));
	return r;
}
