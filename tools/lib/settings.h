/* SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef TOOLS_LIB_SETTINGS_H
#define TOOLS_LIB_SETTINGS_H

#include "cistern/error.h"
#include "format/base/config.h"

/*
 * When all that was given is in cfg: settings that follow from others, or from who runs the command, and whether they go together. note: as in
 * config_hints_apply(). 0, or -errno and what is wrong.
 */
int settings_finish(struct config *cfg, void (*note)(const char *text), struct cistern_error *err);

#endif
