/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "format/base/array.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define FIRST_CAP 16

int array_room(void *at, size_t *cap, size_t num, size_t size)
{
	size_t more = *cap ? *cap * 2 : FIRST_CAP;
	void *items;

	if (num < *cap)
		return 0;
	memcpy(&items, at, sizeof(items)); /* whatever it points to: pointers to all types look the same */
	items = reallocarray(items, more, size);
	if (!items)
		return -ENOMEM;
	memcpy(at, &items, sizeof(items));
	*cap = more;
	return 0;
}
