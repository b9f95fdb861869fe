/* SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef FORMAT_BASE_CONFIG_HINTS_H
#define FORMAT_BASE_CONFIG_HINTS_H

/*
 * Settings named like the hints of PnetCDF's burst-buffer driver, for those who have them in their job scripts: in
 * PNETCDF_HINTS, or as mount options. They stand in the table of settings with the driver's defaults; here is what they mean for a mount.
 */

#include "format/base/config.h"

/* Takes nc_burst_buf... from the text of PNETCDF_HINTS (may be NULL); other hints, and values that PnetCDF would not take, are skipped. */
int config_hints_load(struct config *cfg, const char *hints, struct cistern_error *err);
/*
 * Gives the settings that hints stand for their values, where they were not set themselves. note() is told, a sentence each, what the
 * hints that were set cannot mean here; it may be NULL. hints: as above.
 */
int config_hints_apply(
	struct config *cfg, const char *hints, void (*note)(const char *text), struct cistern_error *err);

#endif
