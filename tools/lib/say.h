/* SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef TOOLS_LIB_SAY_H
#define TOOLS_LIB_SAY_H

/* What the command says to people: on standard error, each line with the program's name in front. */

#include "cistern/error.h"

void say(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

void say_note(const char *text); /* "note: text" */

/* Says the text of err and returns the exit status that fits its code. */
int say_error(const struct cistern_error *err);

/* The exit status (enum cistern_exit) for a negative errno; 0 for 0. */
int say_exit_status(int code);

#endif
