/* SPDX-License-Identifier: GPL-3.0-or-later */
/* The last step to the settings that a mount has, and "cistern config" shows. */
#include "tools/lib/settings.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "format/base/config_check.h"
#include "format/base/config_hints.h"
#include "format/base/hints.h"

/* Whoever runs a mount as root runs it for others; the kernel checks their permissions. An ordinary user asks for it. */
static int share_if_root(struct config *cfg, struct cistern_error *err)
{
	if (geteuid() != 0 || strcmp(config_origin(cfg, CONFIG_ALLOW_OTHER), "default") != 0)
		return 0;
	return config_set(cfg, "allow_other", "yes", "default for root", err);
}

int settings_finish(struct config *cfg, void (*note)(const char *text), struct cistern_error *err)
{
	int r = config_hints_apply(cfg, getenv(HINTS_ENV), note, err);

	r = r ? r : share_if_root(cfg, err);
	return r ? r : config_check(cfg, err);
}
