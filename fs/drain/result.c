/* SPDX-License-Identifier: GPL-3.0-or-later */
/* The result: replaced as a whole through the I/O seam, so that who reads it sees one or none. */
#include "fs/drain/result.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "format/base/io.h"
#include "format/base/json.h"

static void put_error(const char *path, int code, const char *text, void *arg)
{
	struct json *j = arg;

	json_object(j);
	json_kstr(j, "path", path);
	json_key(j, "errno");
	json_i64(j, -(int64_t)code);
	json_kstr(j, "text", text);
	json_end_object(j);
}

static int format_result(const struct result *res, struct drain *d, char **ret, size_t *ret_len)
{
	FILE *out = open_memstream(ret, ret_len);
	struct json j;
	int r;

	if (!out)
		return -errno;
	json_init(&j, out, true);
	json_object(&j);
	json_ku64(&j, "result", (uint64_t)res->exit);
	json_kstr(&j, "text", res->text);
	json_ku64(&j, "dirty_files", res->dirty_files);
	json_ku64(&j, "dirty_bytes", res->dirty_bytes);
	json_key(&j, "errors");
	json_array(&j);
	if (d)
		drain_each_error(d, put_error, &j);
	json_end_array(&j);
	json_end_object(&j);
	r = json_finish(&j);
	return fclose(out) && !r ? -errno : r;
}

static int replace(const char *store_path, const char *text, size_t len)
{
	int fd = open(store_path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	struct io *io = NULL;
	int r = fd < 0 ? -errno : io_posix_create(fd, &io);

	if (fd >= 0)
		close(fd);
	if (!r)
		r = io_replace(io, RESULT_FILE, text, len);
	io_destroy(io);
	return r;
}

int result_write(const char *store_path, const struct result *res, struct drain *d, struct cistern_error *err)
{
	char *text = NULL;
	size_t len = 0;
	int r = format_result(res, d, &text, &len);

	if (!r)
		r = replace(store_path, text, len);
	free(text);
	if (r)
		cistern_error_set(err, r, "%s/%s: cannot write the result: %s", store_path, RESULT_FILE, strerror(-r));
	return r;
}

/* For good: a loss of power must not bring it back beside what is written from now on. */
int result_remove(const char *store_path)
{
	int fd = open(store_path, O_RDONLY | O_DIRECTORY | O_CLOEXEC), r = 0;

	if (fd < 0)
		return -errno;
	if (unlinkat(fd, RESULT_FILE, 0) == 0)
		r = fsync(fd) < 0 && errno != EINVAL && errno != EOPNOTSUPP ? -errno : 0;
	else if (errno != ENOENT)
		r = -errno;
	close(fd);
	return r;
}
