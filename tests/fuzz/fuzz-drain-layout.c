/* SPDX-License-Identifier: GPL-3.0-or-later */
/* Rules for layouts, and values of the attribute, from anybody. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "format/base/config.h"
#include "format/base/config_check.h"
#include "format/base/drain_layout.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void rules(const char *text)
{
	struct drain_layout_rules *rules = NULL;

	if (drain_layout_rules_create(text, &rules, NULL) == 0 &&
		drain_layout_of(rules, "dir/file.nc") >= DRAIN_LAYOUT_END)
		abort();
	drain_layout_rules_destroy(rules);
}

static void attribute(const uint8_t *value, size_t size)
{
	enum drain_layout layout = DRAIN_LAYOUT_END;
	struct config *cfg = NULL;
	char *options = NULL;

	int checked = config_check_layout_xattr(value, size, NULL);

	if (drain_layout_parse_xattr(value, size, &layout, &options, NULL) < 0) {
		if (checked == 0)
			abort();
		return;
	}
	if (layout >= DRAIN_LAYOUT_END || !options || config_create(&cfg) < 0)
		abort();
	config_parse_options(cfg, options, "fuzz", NULL);
	config_destroy(cfg);
	free(options);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char *text = calloc(1, size + 1);

	if (!text)
		return 0;
	if (size > 0)
		memcpy(text, data, size);
	rules(text);
	attribute(data, size);
	free(text);
	return 0;
}
