/* SPDX-License-Identifier: GPL-3.0-or-later */
/* Arrays that grow: what was in them stays. */
#include <stdint.h>
#include <stdlib.h>

#include "format/base/array.h"
#include "tests/lib/tap.h"

int main(void)
{
	uint32_t *items = NULL;
	size_t cap = 0, num, moves = 0;
	bool kept = true;

	for (num = 0; num < 100000; num++) {
		size_t had = cap;

		if (array_room(&items, &cap, num, sizeof(*items)) < 0)
			break;
		moves += cap != had;
		items[num] = (uint32_t)num * 7;
	}
	for (size_t i = 0; i < num; i++)
		kept = kept && items[i] == (uint32_t)i * 7;
	ok(num == 100000 && kept, "100,000 items, one by one");
	ok(moves < 20 && cap < 4 * num, "it grew %zu times, to %zu", moves, cap);
	free(items);
	return done_testing();
}
