/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "mpi-agent/command/say.h"

#include <stdarg.h>
#include <stdio.h>

#include "cistern/error.h"

#define LINE_BYTES 8192 /* a path and a text */

char *say_masked(char *text)
{
	for (char *p = text; *p; p++)
		if ((unsigned char)*p < 0x20 || *p == 0x7f)
			*p = '?';
	return text;
}

void say_recover(const char *fmt, ...)
{
	char line[LINE_BYTES];
	va_list ap;

	va_start(ap, fmt);
	if (vsnprintf(line, sizeof(line), fmt, ap) < 0)
		line[0] = '\0';
	va_end(ap);
	fprintf(stderr, "cistern recover: %s\n", say_masked(line));
}

int say_flush(int status)
{
	if (fflush(stdout) == 0 && !ferror(stdout))
		return status;
	fputs("cistern: cannot write the output\n", stderr);
	return status == CISTERN_EXIT_OK ? CISTERN_EXIT_FAILED : status;
}
