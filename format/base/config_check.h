/* SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef FORMAT_BASE_CONFIG_CHECK_H
#define FORMAT_BASE_CONFIG_CHECK_H

/* What the table of settings cannot know of a value: its inner form, and how settings relate to one another. */

#include "format/base/config.h"

/* 0; -EINVAL: *err says which setting is wrong, where it came from and what it may be; -ENOMEM. */
int config_check(const struct config *cfg, struct cistern_error *err);
/* The same of the value of DRAIN_LAYOUT_XATTR (drain_layout.h), len bytes, with its settings. */
int config_check_layout_xattr(const void *value, size_t len, struct cistern_error *err);

#endif
