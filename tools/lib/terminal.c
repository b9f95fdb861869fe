/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "tools/lib/terminal.h"

#include <stdint.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "format/base/units.h"

#define COLUMNS_MAX 10000u

unsigned int terminal_columns(int fd)
{
	const char *said = getenv("COLUMNS");
	struct winsize size;
	uint64_t columns;

	if (!isatty(fd))
		return 0;
	if (said && units_parse_u64(said, &columns) == 0 && columns > 0 && columns <= COLUMNS_MAX)
		return (unsigned int)columns;
	return ioctl(fd, TIOCGWINSZ, &size) == 0 ? size.ws_col : 0;
}
