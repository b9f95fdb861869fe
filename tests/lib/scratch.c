/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "tests/lib/scratch.h"

#include <stdlib.h>
#include <string.h>

const char *scratch_parent(void)
{
	const char *tmp = getenv("TMPDIR");

	return tmp && *tmp && strlen(tmp) <= SCRATCH_PARENT_MAX ? tmp : "/tmp";
}
