/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * A line for each node of the job, in order. Nothing but messages depends on it: a file that is not right is one that says nothing.
 */
#include "format/store/hosts.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "format/base/cursor.h"
#include "format/base/io.h"
#include "format/place/place.h"

#define LIMIT ((size_t)PLACE_NODES_MAX * HOSTS_NAME_BYTES)

static bool is_plain(const char *name, size_t len)
{
	for (size_t i = 0; i < len; i++)
		if (name[i] <= ' ' || name[i] > '~')
			return false;
	return true;
}

/* A name that does not fit into a line is an empty one. */
static void put_line(struct buf *out, const char *name)
{
	size_t len = strnlen(name, HOSTS_NAME_BYTES);

	if (len < HOSTS_NAME_BYTES && is_plain(name, len))
		buf_bytes(out, name, len);
	buf_bytes(out, "\n", 1);
}

static bool is_there(struct store *s, const struct buf *want)
{
	void *data = NULL;
	size_t len = 0;
	bool same = io_read_all(store_io(s), HOSTS_FILE, LIMIT, &data, &len) == 0 && len == want->len &&
		    memcmp(data, want->data, len) == 0;

	free(data);
	return same;
}

int hosts_note(struct store *s, const char *const *names, uint32_t num)
{
	struct buf out BUF_CLEANUP = { 0 };

	for (uint32_t i = 0; i < num; i++)
		put_line(&out, names[i]);
	if (!buf_ok(&out))
		return -ENOMEM;
	return is_there(s, &out) ? 0 : io_replace(store_io(s), HOSTS_FILE, out.data, out.len);
}

/* What a line says, with its end: 0, -ENOENT: nothing, -EBADMSG. */
static int take_line(const char *at, const char *end, char ret[HOSTS_NAME_BYTES])
{
	if (end - at >= HOSTS_NAME_BYTES || !is_plain(at, (size_t)(end - at)))
		return -EBADMSG;
	if (end == at)
		return -ENOENT;
	memcpy(ret, at, (size_t)(end - at));
	ret[end - at] = '\0';
	return 0;
}

static int find_line(const char *text, size_t len, uint32_t node, char ret[HOSTS_NAME_BYTES])
{
	const char *at = text, *end;

	for (;; at = end + 1, node--) {
		end = memchr(at, '\n', len - (size_t)(at - text));
		if (!end)
			return at == text + len ? -ENOENT : -EBADMSG;
		if (node == 0)
			return take_line(at, end, ret);
	}
}

int hosts_find_in(struct io *dir, uint32_t node, char ret[HOSTS_NAME_BYTES])
{
	void *data = NULL;
	size_t len = 0;
	int r = io_read_all(dir, HOSTS_FILE, LIMIT, &data, &len);

	if (r == 0)
		r = find_line(data, len, node, ret);
	free(data);
	return r;
}

int hosts_find(struct store *s, uint32_t node, char ret[HOSTS_NAME_BYTES])
{
	return hosts_find_in(store_io(s), node, ret);
}

int hosts_each(struct store *s, void (*fn)(uint32_t node, const char *name, void *arg), void *arg)
{
	char name[HOSTS_NAME_BYTES];
	void *data = NULL;
	size_t len = 0;
	int r = io_read_all(store_io(s), HOSTS_FILE, LIMIT, &data, &len);
	const char *at = data, *end;

	for (uint32_t node = 0; r == 0 && (end = memchr(at, '\n', len)) != NULL; node++) {
		if (take_line(at, end, name) == 0)
			fn(node, name, arg);
		len -= (size_t)(end + 1 - at);
		at = end + 1;
	}
	free(data);
	return r;
}

const char *hosts_node_text(struct store *s, uint32_t node, char out[HOSTS_NODE_BYTES])
{
	char host[HOSTS_NAME_BYTES] = "";

	(void)hosts_find(s, node, host);
	return place_node_text(node, host, out, HOSTS_NODE_BYTES);
}
