/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Error texts. A text is always one terminated line: what does not fit is cut, and line breaks (a file name may
 * hold any byte) become '?', so that a log line stays one line whatever a user named their file.
 */
#include "cistern/error.h"

#include <stdio.h>
#include <string.h>

static void one_line(char *text)
{
	for (char *p = text; *p; p++)
		if ((unsigned char)*p < 0x20 || *p == 0x7f)
			*p = '?';
}

/* The arguments may point into err->text itself, hence the detour over a buffer of our own. */
int cistern_error_set(struct cistern_error *err, int code, const char *fmt, ...)
{
	char text[CISTERN_ERROR_TEXT_BYTES];
	va_list ap;

	if (!err)
		return code;
	va_start(ap, fmt);
	if (vsnprintf(text, sizeof(text), fmt, ap) < 0)
		text[0] = '\0';
	va_end(ap);
	one_line(text);
	memcpy(err->text, text, sizeof(text));
	err->code = code;
	return code;
}

int cistern_error_prefix(struct cistern_error *err, const char *fmt, ...)
{
	char text[CISTERN_ERROR_TEXT_BYTES];
	size_t len, room;
	va_list ap;

	if (!err)
		return 0;
	va_start(ap, fmt);
	if (vsnprintf(text, sizeof(text), fmt, ap) < 0)
		text[0] = '\0';
	va_end(ap);
	one_line(text);
	len = strlen(text);
	room = sizeof(text) - len;
	if (room > 2)
		snprintf(text + len, room, ": %.*s", (int)(room - 3), err->text);
	memcpy(err->text, text, sizeof(text));
	return err->code;
}
