/* SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef TOOLS_PICTURE_H
#define TOOLS_PICTURE_H

#include "cistern/error.h"
#include "tools/lib/survey.h"

/*
 * Writes an SVG of the survey (made with option writes) to the file at path, which is replaced: file offset from left to right, the
 * writes in their order from top to bottom in the colours of their nodes, above them the variables, below them what is where
 * now. Its size has a limit, however many writes there are. title: the file's name. 0 or -errno.
 */
int picture_write(const struct survey *s, const char *title, const char *path, struct cistern_error *err);

#endif
