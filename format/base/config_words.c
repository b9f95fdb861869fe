/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Names of settings and of mount options. Words are bounded (CONFIG_WORD_BYTES), so that the edit distance has a
 * bounded cost whatever stands on the command line.
 */
#include "format/base/config_words.h"

#include <ctype.h>
#include <string.h>

#include "format/base/config.h"

#define NUM_OF(a) (sizeof(a) / sizeof((a)[0]))

static const char *const mount_flags[] = { "dev", "nodev", "suid", "nosuid", "exec", "noexec", "atime", "noatime",
	"diratime", "nodiratime", "relatime", "norelatime", "strictatime", "nostrictatime", "lazytime", "nolazytime",
	"sync", "async", "dirsync", "iversion", "noiversion", "mand", "nomand", "silent", "loud", "symfollow",
	"nosymfollow" };

static const char *const ignored[] = { "defaults", "auto", "noauto", "user", "nouser", "users", "nousers", "owner",
	"noowner", "group", "nogroup", "nofail", "_netdev", "_rnetdev" };

static const char *const ignored_prefixes[] = { "x-", "X-", "comment=", "user=" };

static bool among(const char *word, const char *const *words, size_t num)
{
	for (size_t i = 0; i < num; i++)
		if (strcmp(word, words[i]) == 0)
			return true;
	return false;
}

bool config_words_is_mount_flag(const char *option)
{
	return among(option, mount_flags, NUM_OF(mount_flags));
}

bool config_words_is_ignored(const char *option)
{
	for (size_t i = 0; i < NUM_OF(ignored_prefixes); i++)
		if (strncmp(option, ignored_prefixes[i], strlen(ignored_prefixes[i])) == 0)
			return true;
	return among(option, ignored, NUM_OF(ignored));
}

/* name as the table spells it; false when it is too long for that. */
static bool normalise(const char *name, size_t len, char out[CONFIG_WORD_BYTES])
{
	if (len >= CONFIG_WORD_BYTES)
		return false;
	for (size_t i = 0; i < len; i++)
		out[i] = name[i] == '-' || name[i] == '.' ? '_' : name[i];
	out[len] = '\0';
	return true;
}

int config_words_find(const char *name)
{
	const struct config_setting *table = config_table(NULL);
	char word[CONFIG_WORD_BYTES], ours[CONFIG_WORD_BYTES];

	if (!normalise(name, strlen(name), word))
		return -1;
	for (int i = 0; i < CONFIG_NUM; i++)
		if (normalise(table[i].name, strlen(table[i].name), ours) && strcmp(ours, word) == 0)
			return i;
	return -1;
}

static size_t min3(size_t a, size_t b, size_t c)
{
	size_t m = a < b ? a : b;

	return m < c ? m : c;
}

/* Insertions, deletions and replacements that turn a into b; one row of the usual table. */
static size_t edit_distance(const char *a, const char *b)
{
	size_t row[CONFIG_WORD_BYTES], len = strlen(b);

	for (size_t j = 0; j <= len; j++)
		row[j] = j;
	for (size_t i = 0; a[i]; i++) {
		size_t diagonal = row[0];

		row[0] = i + 1;
		for (size_t j = 1; j <= len; j++) {
			size_t up = row[j];

			row[j] = min3(up + 1, row[j - 1] + 1, diagonal + (a[i] != b[j - 1]));
			diagonal = up;
		}
	}
	return row[len];
}

const char *config_words_nearest(const char *name)
{
	const struct config_setting *table = config_table(NULL);
	const char *nearest = NULL;
	char word[CONFIG_WORD_BYTES];
	size_t best;

	if (!normalise(name, strlen(name), word))
		return NULL;
	for (char *p = word; *p; p++)
		*p = (char)tolower((unsigned char)*p);
	best = strlen(word) / 4 + 2; /* one or two errors in a short word, a few more in a long one; exclusive */
	for (int i = 0; i < CONFIG_NUM; i++) {
		size_t distance = edit_distance(word, table[i].name);

		if (distance < best) {
			best = distance;
			nearest = table[i].name;
		}
	}
	return nearest;
}

const char *config_words_from_env(const char *assignment, char ret_name[CONFIG_WORD_BYTES])
{
	const char *name, *equals = strchr(assignment, '=');

	if (!equals || strncmp(assignment, CONFIG_ENV_PREFIX, strlen(CONFIG_ENV_PREFIX)) != 0)
		return NULL;
	name = assignment + strlen(CONFIG_ENV_PREFIX);
	if (!normalise(name, (size_t)(equals - name), ret_name))
		return NULL;
	for (char *p = ret_name; *p; p++) {
		if (islower((unsigned char)*p))
			return NULL;
		*p = (char)tolower((unsigned char)*p);
	}
	return equals + 1;
}
