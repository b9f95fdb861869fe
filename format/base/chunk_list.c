/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "format/base/chunk_list.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static int parse_item(const char *text, size_t len, struct chunk_item *ret, struct cistern_error *err)
{
	const char *colon = memrchr(text, ':', len), *first;
	char *end = NULL;

	if (colon && colon > text && colon[1] >= '0' && colon[1] <= '9') {
		errno = 0;
		ret->len = strtoull(colon + 1, &end, 10);
	}
	if (!end || end != text + len || errno)
		return cistern_error_set(err, -EINVAL,
			"chunk: '%.*s' is not of the form DIMENSION:NUMBER or VARIABLE:DIMENSION:NUMBER",
			(int)(len < 200 ? len : 200), text);
	ret->dim = text;
	ret->dim_len = (size_t)(colon - text);
	first = memchr(text, ':', ret->dim_len);
	if (first) {
		ret->var = text;
		ret->var_len = (size_t)(first - text);
		ret->dim = first + 1;
		ret->dim_len = (size_t)(colon - ret->dim);
	}
	return 0;
}

int chunk_list_each(
	const char *text, int (*each)(const struct chunk_item *item, void *arg), void *arg, struct cistern_error *err)
{
	size_t num = 0;
	int r = 0;

	while (r == 0 && *text) {
		size_t len = strcspn(text, ",/");
		struct chunk_item item = { 0 };

		if (len > 0 && num++ == CHUNK_LIST_MAX)
			return cistern_error_set(err, -EINVAL, "chunk: more than %d items", CHUNK_LIST_MAX);
		if (len > 0)
			r = parse_item(text, len, &item, err);
		if (len > 0 && r == 0)
			r = each(&item, arg);
		text += len + (text[len] != '\0');
	}
	return r;
}
