/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "format/base/launch.h"

#include <stdlib.h>
#include <string.h>

bool launch_is_one_of_many(void)
{
	const char *size = getenv("PMI_SIZE");

	return (getenv("PMI_FD") || getenv("PMI_PORT") || getenv("PMI_RANK") || getenv("PMIX_RANK")) &&
	       !(size && strcmp(size, "1") == 0);
}
