/* SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef TOOLS_CONFLICTS_H
#define TOOLS_CONFLICTS_H

#include <stdbool.h>
#include <stddef.h>

/* cistern inspect --conflicts: prints what the stores of a job (named as target_resolve() takes them) know together. Returns the
 * exit status. */
int conflicts_show(char *const *targets, size_t num, bool want_json);

#endif
