/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Messages and exit statuses. Libraries return errors, the command says them: here, once, so that every sub-command
 * maps the same failure to the same status.
 */
#include "tools/lib/say.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

void say(const char *fmt, ...)
{
	va_list ap;

	fflush(stdout); /* keep the order of what is read on one terminal */
	fputs("cistern: ", stderr);
	va_start(ap, fmt);
	vfprintf(stderr, fmt, ap);
	va_end(ap);
	putc('\n', stderr);
}

void say_note(const char *text)
{
	say("note: %s", text);
}

int say_error(const struct cistern_error *err)
{
	say("%s", err->text[0] ? err->text : strerror(-err->code));
	return say_exit_status(err->code ? err->code : -EIO);
}

int say_exit_status(int code)
{
	switch (code) {
	case 0: return CISTERN_EXIT_OK;
	case -EBUSY: return CISTERN_EXIT_BUSY;
	case -ETIMEDOUT: return CISTERN_EXIT_TIMEOUT;
	case -EBADMSG: return CISTERN_EXIT_DAMAGED;
	default: return CISTERN_EXIT_FAILED;
	}
}
