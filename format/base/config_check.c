/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "format/base/config_check.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

#include "format/base/chunk_list.h"
#include "format/base/drain_layout.h"

static int check_water(const struct config *cfg, struct cistern_error *err)
{
	uint64_t low = config_number(cfg, CONFIG_LOW_WATER), high = config_number(cfg, CONFIG_HIGH_WATER);

	return low <= high ? 0
			   : cistern_error_set(err, -EINVAL,
				     "low_water=%" PRIu64 " (%s) is above high_water=%" PRIu64
				     " (%s); make it as much or less",
				     low, config_origin(cfg, CONFIG_LOW_WATER), high,
				     config_origin(cfg, CONFIG_HIGH_WATER));
}

static int say_origin(const struct config *cfg, enum config_id id, int r, struct cistern_error *err)
{
	if (r == -EINVAL)
		cistern_error_prefix(err, "%s", config_origin(cfg, id));
	return r;
}

static int check_layout(const struct config *cfg, struct cistern_error *err)
{
	struct drain_layout_rules *rules = NULL;
	int r = drain_layout_rules_create(config_string(cfg, CONFIG_LAYOUT), &rules, err);

	drain_layout_rules_destroy(rules);
	return say_origin(cfg, CONFIG_LAYOUT, r, err);
}

static int ignore(const struct chunk_item *item, void *arg)
{
	(void)item, (void)arg;
	return 0;
}

static int check_chunk(const struct config *cfg, struct cistern_error *err)
{
	return say_origin(cfg, CONFIG_CHUNK, chunk_list_each(config_string(cfg, CONFIG_CHUNK), ignore, NULL, err), err);
}

int config_check(const struct config *cfg, struct cistern_error *err)
{
	int r = check_water(cfg, err);

	if (r == 0)
		r = check_layout(cfg, err);
	return r == 0 ? check_chunk(cfg, err) : r;
}

static int check_options(const char *options, struct cistern_error *err)
{
	struct config *cfg = NULL;
	int r = config_create(&cfg);

	if (r < 0)
		return cistern_error_set(err, r, "out of memory");
	r = config_parse_options(cfg, options, DRAIN_LAYOUT_XATTR, err);
	r = r == -ERANGE ? -EINVAL : r; /* to setxattr it would mean its name's or value's length */
	if (r == 0)
		r = check_chunk(cfg, err);
	config_destroy(cfg);
	return r;
}

int config_check_layout_xattr(const void *value, size_t len, struct cistern_error *err)
{
	enum drain_layout layout;
	char *options = NULL;
	int r = drain_layout_parse_xattr(value, len, &layout, &options, err);

	if (r == 0)
		r = check_options(options, err);
	free(options);
	return r;
}
