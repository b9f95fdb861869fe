/* SPDX-License-Identifier: GPL-3.0-or-later */
/* Which layout a file gets: the rules, and the attribute. */
#include "format/base/drain_layout.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "format/base/config_check.h"
#include "tests/lib/tap.h"

static void fits(const char *text, const char *path, enum drain_layout want)
{
	struct drain_layout_rules *rules = NULL;
	struct cistern_error err = { 0 };

	if (ok(drain_layout_rules_create(text, &rules, &err) == 0, "'%s' is a list of rules", text))
		ok(drain_layout_of(rules, path) == want, "'%s': %s is %s", text, path, drain_layout_name(want));
	drain_layout_rules_destroy(rules);
}

static void is_possible(const char *text, const char *name, int want)
{
	struct drain_layout_rules *rules = NULL;

	if (ok(drain_layout_rules_create(text, &rules, NULL) == 0, "'%s' is a list of rules", text))
		is_int(drain_layout_is_possible(rules, DRAIN_LAYOUT_BLOB_VARIABLE, name), want, name);
	drain_layout_rules_destroy(rules);
}

static void refused(const char *text)
{
	struct drain_layout_rules *rules = NULL;
	struct cistern_error err = { 0 };
	int r = drain_layout_rules_create(text, &rules, &err);

	ok(r == -EINVAL && strstr(err.text, "netcdf4"), "'%s' is refused: %s", text, err.text);
}

static void attribute(const char *value, int result, enum drain_layout want, const char *want_options)
{
	enum drain_layout layout = DRAIN_LAYOUT_END;
	struct cistern_error err = { 0 };
	char *options = NULL;
	int r = drain_layout_parse_xattr(value, strlen(value), &layout, &options, &err);

	ok(r == result, "attribute '%s': %d", value, r);
	if (r == 0 && result == 0) {
		ok(layout == want, "attribute '%s' is %s", value, drain_layout_name(want));
		is_str(options, want_options, "its options");
	}
	free(options);
}

/* As docs/admin.md has them; 0 to 9 is zlib's range. */
static void settings(const char *value, int result, const char *text)
{
	struct cistern_error err = { 0 };
	int r = config_check_layout_xattr(value, strlen(value), &err);

	ok(r == result && (r == 0 || strstr(err.text, text)), "attribute '%s': %d %s", value, r, err.text);
	is_int(config_check_layout_xattr(value, strlen(value), NULL), result, "without a place for the text");
}

int main(void)
{
	fits("", "a.nc", DRAIN_LAYOUT_CANONICAL);
	fits("canonical", "a.nc", DRAIN_LAYOUT_CANONICAL);
	fits("netcdf4", "dir/a.nc", DRAIN_LAYOUT_NETCDF4);
	fits("a/*.h0.nc=blob-variable;*=netcdf4", "a/b.h0.nc", DRAIN_LAYOUT_BLOB_VARIABLE);
	fits("a/*.h0.nc=blob-process;*=netcdf4", "a/b.h0.nc", DRAIN_LAYOUT_BLOB_PROCESS);
	is_possible("a/*.h0.nc=blob-variable;*=netcdf4", "b.h0.nc", 1);
	is_possible("a/*.h0.nc=blob-variable;*=netcdf4", "b.h1.nc", 0);
	is_possible("netcdf4", "b", 0);
	is_possible("blob-variable", "b", 1);
	fits("*.nc=netcdf4", "a.nc", DRAIN_LAYOUT_NETCDF4);
	fits("*.nc=netcdf4", "dir/sub/a.nc", DRAIN_LAYOUT_NETCDF4);
	fits("*.nc=netcdf4", "a.nc.txt", DRAIN_LAYOUT_CANONICAL);
	fits("rst*=canonical;*.nc=netcdf4", "rst1.nc", DRAIN_LAYOUT_CANONICAL);
	fits("rst*=canonical;*.nc=netcdf4", "h0.nc", DRAIN_LAYOUT_NETCDF4);
	fits("out/*.nc=netcdf4", "out/a.nc", DRAIN_LAYOUT_NETCDF4);
	fits("out/*.nc=netcdf4", "a.nc", DRAIN_LAYOUT_CANONICAL);
	fits("out/*.nc=netcdf4", "out/sub/a.nc", DRAIN_LAYOUT_CANONICAL);
	fits("a=b.nc=netcdf4", "a=b.nc", DRAIN_LAYOUT_NETCDF4);
	fits(";;canonical;", "a.nc", DRAIN_LAYOUT_CANONICAL);
	refused("netcdf");
	refused("*.nc=");
	refused("*.nc=netcdf4 ");
	refused("canonical;x=y");

	attribute("netcdf4", 0, DRAIN_LAYOUT_NETCDF4, "");
	attribute("canonical", 0, DRAIN_LAYOUT_CANONICAL, "");
	attribute("netcdf4;deflate=4;chunk=time:1,lat:90;shuffle=no", 0, DRAIN_LAYOUT_NETCDF4,
		"deflate=4,chunk=time:1\\,lat:90,shuffle=no");
	attribute("netcdf4;shuffle;", 0, DRAIN_LAYOUT_NETCDF4, "shuffle,");
	attribute("netcdf4;mdc.trace_file_name=/etc/passwd", -EINVAL, 0, NULL);
	attribute("netcdf4;deflate=1;store=/x", -EINVAL, 0, NULL);
	attribute("netcdf4;chunk=a:1\\,store=/x", -EINVAL, 0, NULL);
	attribute("netcdf4;chunk=a:1\\", -EINVAL, 0, NULL);
	attribute("", -EINVAL, 0, NULL);
	attribute("netcdf4,deflate=4", -EINVAL, 0, NULL);

	settings("netcdf4;deflate=9;shuffle;chunk=time:1/T:lev:10", 0, NULL);
	settings("netcdf4;chunk=time:0", 0, NULL);
	settings("netcdf4;deflate=10", -EINVAL, "deflate");
	settings("netcdf4;deflate=", -EINVAL, "deflate");
	settings("netcdf4;shuffle=perhaps", -EINVAL, "shuffle");
	settings("netcdf4;chunk=time", -EINVAL, "'time' is not of the form DIMENSION:NUMBER");
	settings("netcdf4;chunk=time:1,lev:", -EINVAL, "'lev:'");
	settings("netcdf4;chunk=:1", -EINVAL, "':1'");
	settings("netcdf4;chunk=time:99999999999999999999", -EINVAL, "time:9");
	settings("canonical;chunk=x", -EINVAL, "'x'");
	settings("netcdf5", -EINVAL, "one of canonical");
	return done_testing();
}
