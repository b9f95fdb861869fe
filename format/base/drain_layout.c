/* SPDX-License-Identifier: GPL-3.0-or-later */
/* Rules that say which layout a drained file gets. The last rule, "every file is canonical", is not written down. */
#include "format/base/drain_layout.h"

#include <errno.h>
#include <fnmatch.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define RULES_MAX 256

struct rule {
	char *pattern; /* owned; NULL: every file */
	enum drain_layout layout;
};

struct drain_layout_rules {
	struct rule at[RULES_MAX];
	size_t num;
};

static const char *const names[DRAIN_LAYOUT_END] = { "canonical", "netcdf4", "blob-variable", "blob-process" };
static const char names_text[] = "canonical, netcdf4, blob-variable, blob-process";

const char *drain_layout_name(enum drain_layout layout)
{
	return names[layout];
}

static int parse_name(const char *text, size_t len, enum drain_layout *ret)
{
	for (size_t i = 0; i < DRAIN_LAYOUT_END; i++)
		if (strlen(names[i]) == len && memcmp(names[i], text, len) == 0) {
			*ret = (enum drain_layout)i;
			return 0;
		}
	return -EINVAL;
}

/* len bytes: PATTERN=LAYOUT or LAYOUT. Patterns may hold '='. */
static int parse_rule(struct rule *rule, const char *text, size_t len, struct cistern_error *err)
{
	const char *equals = memrchr(text, '=', len), *word = equals ? equals + 1 : text;

	if (parse_name(word, len - (size_t)(word - text), &rule->layout) < 0)
		return cistern_error_set(err, -EINVAL,
			"layout: '%.*s' is no rule: give LAYOUT or PATTERN=LAYOUT, LAYOUT one of %s", (int)len, text,
			names_text);
	rule->pattern = equals ? strndup(text, (size_t)(equals - text)) : NULL;
	return equals && !rule->pattern ? cistern_error_set(err, -ENOMEM, "out of memory") : 0;
}

int drain_layout_rules_create(const char *text, struct drain_layout_rules **ret, struct cistern_error *err)
{
	struct drain_layout_rules *rules = calloc(1, sizeof(*rules));
	int r = rules ? 0 : cistern_error_set(err, -ENOMEM, "out of memory");

	while (r == 0 && *text) {
		size_t len = strcspn(text, ";");

		if (len > 0 && rules->num == RULES_MAX)
			r = cistern_error_set(err, -E2BIG, "layout: more than %d rules", RULES_MAX);
		else if (len > 0)
			r = parse_rule(&rules->at[rules->num], text, len, err);
		rules->num += r == 0 && len > 0;
		text += len + (text[len] == ';');
	}
	if (r < 0) {
		drain_layout_rules_destroy(rules);
		return r;
	}
	*ret = rules;
	return 0;
}

void drain_layout_rules_destroy(struct drain_layout_rules *rules)
{
	for (size_t i = 0; rules && i < rules->num; i++)
		free(rules->at[i].pattern);
	free(rules);
}

static bool fits(const struct rule *rule, const char *path)
{
	const char *slash = strrchr(path, '/');

	if (!rule->pattern)
		return true;
	if (!strchr(rule->pattern, '/'))
		path = slash ? slash + 1 : path;
	return fnmatch(rule->pattern, path, FNM_PATHNAME) == 0;
}

enum drain_layout drain_layout_of(const struct drain_layout_rules *rules, const char *path)
{
	for (size_t i = 0; i < rules->num; i++)
		if (fits(&rules->at[i], path))
			return rules->at[i].layout;
	return DRAIN_LAYOUT_CANONICAL;
}

int drain_layout_is_wanted(const struct drain_layout_rules *rules, enum drain_layout layout)
{
	for (size_t i = 0; i < rules->num; i++)
		if (rules->at[i].layout == layout)
			return 1;
	return 0;
}

int drain_layout_is_possible(const struct drain_layout_rules *rules, enum drain_layout layout, const char *name)
{
	for (size_t i = 0; i < rules->num; i++) {
		const char *pattern = rules->at[i].pattern, *slash = pattern ? strrchr(pattern, '/') : NULL;

		if (rules->at[i].layout == layout && (!pattern || fnmatch(slash ? slash + 1 : pattern, name, 0) == 0))
			return 1;
	}
	return 0;
}

/*
 * Of a file's owner, who may be anybody, only what concerns his file: other settings name paths, and the drain may have rights
 * that he has not.
 */
static bool is_for_files(const char *text, size_t len)
{
	static const char *const allowed[] = { "chunk", "deflate", "shuffle" };

	while (len > 0) {
		size_t item = 0, name, i = 0, num = sizeof(allowed) / sizeof(allowed[0]);

		while (item < len && text[item] != ';')
			item++;
		for (name = 0; name < item && text[name] != '='; name++)
			;
		while (i < num && (strlen(allowed[i]) != name || memcmp(allowed[i], text, name) != 0))
			i++;
		/* A backslash would make a comma of the value the end of it. */
		if ((name > 0 && i == num) || memchr(text, '\\', item))
			return false;
		item += item < len;
		text += item;
		len -= item;
	}
	return true;
}

int drain_layout_parse_xattr(
	const void *value, size_t len, enum drain_layout *ret, char **ret_options, struct cistern_error *err)
{
	const char *text = value, *end = memchr(value, ';', len);
	size_t word = end ? (size_t)(end - text) : len, rest = len - word - (end != NULL);
	enum drain_layout layout;
	char *options;

	if (parse_name(text, word, &layout) < 0 || memchr(value, '\0', len))
		return cistern_error_set(err, -EINVAL, "its attribute " DRAIN_LAYOUT_XATTR " is '%.*s': give one of %s",
			(int)(len < 100 ? len : 100), text, names_text);
	if (rest > 0 && !is_for_files(end + 1, rest))
		return cistern_error_set(err, -EINVAL,
			"its attribute " DRAIN_LAYOUT_XATTR " has settings other than chunk, deflate and shuffle");
	options = calloc(2, rest + 1); /* each comma gets a backslash */
	if (!options)
		return cistern_error_set(err, -ENOMEM, "out of memory");
	for (size_t i = 0, at = 0; i < rest; i++) {
		if (end[1 + i] == ',')
			options[at++] = '\\';
		options[at++] = end[1 + i] == ';' ? ',' : end[1 + i];
	}
	*ret = layout;
	*ret_options = options;
	return 0;
}
