/* SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef FORMAT_BASE_CONFIG_WORDS_H
#define FORMAT_BASE_CONFIG_WORDS_H

/* The words that config.c meets: names of settings, also misspelt ones, variables, and other people's mount options. */

#include <stdbool.h>

#define CONFIG_ENV_PREFIX "CISTERN_"
#define CONFIG_WORD_BYTES 48 /* longer words, NUL included, are nobody's setting */

/* The setting of that name ('-' and '.' count as '_'), or -1. */
int config_words_find(const char *name);
/* The setting whose name a typing error may have turned into this one (static), or NULL. */
const char *config_words_nearest(const char *name);
/* "CISTERN_HIGH_WATER=70": the name of the setting that this would be, and (returned, borrowed) the value, or NULL. */
const char *config_words_from_env(const char *assignment, char ret_name[CONFIG_WORD_BYTES]);
bool config_words_is_mount_flag(const char *option); /* the kernel's: nodev, noatime, ... */
bool config_words_is_ignored(const char *option);    /* mount(8)'s and fstab's alone: noauto, x-..., comment=... */

#endif
