/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * cistern config: every setting, its value and where the value came from; and cistern.conf(5), from the same table.
 */
#include <stdlib.h>
#include <string.h>

#include "cistern/error.h"
#include "format/base/config.h"
#include "format/base/json.h"
#include "format/base/units.h"
#include "tools/cistern.h"
#include "tools/lib/say.h"
#include "tools/lib/settings.h"

#define VALUE_BYTES    8192
#define CONFIG_CLEANUP __attribute__((cleanup(destroy_config)))

static void destroy_config(struct config **cfg)
{
	config_destroy(*cfg);
}

static const char *const type_names[] = {
	[CONFIG_BYTES] = "size",
	[CONFIG_BYTES_OR_0] = "size",
	[CONFIG_USEC] = "time",
	[CONFIG_COUNT] = "number",
	[CONFIG_PERCENT] = "percent",
	[CONFIG_REAL] = "decimal",
	[CONFIG_BOOL] = "yes or no",
	[CONFIG_CHOICE] = "choice",
	[CONFIG_STRING] = "text",
};

static void print_json(const struct config *cfg)
{
	char value[VALUE_BYTES];
	struct json j;
	size_t num;
	const struct config_setting *table = config_table(&num);

	json_init(&j, stdout, true);
	json_object(&j);
	for (size_t i = 0; i < num; i++) {
		json_key(&j, table[i].name);
		json_object(&j);
		json_kstr(&j, "value", config_text(cfg, (enum config_id)i, value, sizeof(value)));
		json_kstr(&j, "default", table[i].default_text);
		json_kstr(&j, "origin", config_origin(cfg, (enum config_id)i));
		json_kstr(&j, "type", type_names[table[i].type]);
		if (table[i].choices)
			json_kstr(&j, "choices", table[i].choices);
		json_kstr(&j, "help", table[i].help);
		json_end_object(&j);
	}
	json_end_object(&j);
	json_finish(&j);
}

static void print_table(const struct config *cfg)
{
	char value[VALUE_BYTES];
	size_t num;
	const struct config_setting *table = config_table(&num);

	for (size_t i = 0; i < num; i++)
		printf("%-20s = %-16s # %s\n", table[i].name, config_text(cfg, (enum config_id)i, value, sizeof(value)),
			config_origin(cfg, (enum config_id)i));
}

/* Only the values of the settings named, a line each: for scripts. */
static int print_named(const struct command *cmd, const struct config *cfg, char *const *names)
{
	char value[VALUE_BYTES];
	size_t num, i;
	const struct config_setting *table = config_table(&num);

	for (; *names; names++) {
		for (i = 0; i < num && strcmp(table[i].name, *names) != 0; i++)
			;
		if (i == num)
			return args_usage_error(cmd, "there is no setting '%s'", *names);
		puts(config_text(cfg, (enum config_id)i, value, sizeof(value)));
	}
	return CISTERN_EXIT_OK;
}

/* ---- cistern.conf(5) */

static void man_range(const struct config_setting *s, FILE *out)
{
	char least[UNITS_TEXT];

	if (s->min > 0 && (s->type == CONFIG_BYTES || s->type == CONFIG_BYTES_OR_0))
		fprintf(out, " At least %s%s.", units_exact_bytes(s->min, least),
			s->type == CONFIG_BYTES_OR_0 ? ", or 0" : "");
	if (s->type == CONFIG_CHOICE) {
		fputs(" One of: ", out);
		for (const char *p = s->choices; *p; p++)
			fputs(*p == '|' ? ", " : (char[]){ *p, '\0' }, out);
		putc('.', out);
	}
}

static void man_setting(const struct config_setting *s, FILE *out)
{
	fputs(".TP\n.B ", out);
	man_text(out, s->name);
	fprintf(out, "\n(%s; default: ", type_names[s->type]);
	man_text(out, s->default_text && *s->default_text ? s->default_text : "empty");
	fputs(")\n", out);
	man_text(out, s->help);
	man_range(s, out);
	putc('\n', out);
}

static void print_man(FILE *out)
{
	size_t num;
	const struct config_setting *table = config_table(&num);

	fputs(".\\\" SPDX-License-Identifier: GPL-3.0-or-later\n.\\\" Made by \"cistern config --man\".\n"
	      ".TH CISTERN.CONF 5 \"\" \"Cistern\" \"Cistern manual\"\n.SH NAME\ncistern.conf \\- settings of Cistern\n"
	      ".SH DESCRIPTION\nA value comes from, later ones win: the default,\n.IR /etc/cistern.conf ,\n"
	      ".I $XDG_CONFIG_HOME/cistern.conf\n(usually\n.IR ~/.config/cistern.conf ),\nthe file that the environment variable\n"
	      ".B CISTERN_CONFIG\nnames,\n.B PNETCDF_HINTS\n(hints of PnetCDF's burst-buffer driver), the environment (for the setting\n.BR high_water :\n.BR CISTERN_HIGH_WATER ),\n"
	      "and the option\n.B \\-o\nof the command line.\n.PP\nFiles hold a line\n.RI \"\\(dq\" name \" = \" value \"\\(dq\"\n"
	      "for each setting;\n.B #\nbegins a comment. An unknown name and a value out of range are errors.\n.PP\n"
	      "Sizes read 64M (powers of 1024: K, M, G, T, P), times 250ms, 30s, 5m, 2h or 1d.\n"
	      ".B cistern config\nshows all values and where they came from.\n.SH SETTINGS\n",
		out);
	for (size_t i = 0; i < num; i++)
		man_setting(&table[i], out);
	fputs(".SH SEE ALSO\n.BR cistern (1),\n.BR cistern\\-config (1),\n.BR cistern\\-mount (1)\n", out);
}

/* ---- the command */

enum { OPT_JSON = 256, OPT_MAN };

static const struct args_option options[] = {
	{ 'o', "options", "KEY=VALUE,...", "set these, as 'cistern mount -o' would" },
	{ OPT_JSON, "json", NULL, "print JSON" },
	{ OPT_MAN, "man", NULL, NULL },
	{ 0 },
};

static int run_config(const struct command *cmd, int argc, char **argv)
{
	CONFIG_CLEANUP struct config *cfg = NULL;
	struct cistern_error err = { 0 };
	bool want_json = false, man = false;
	struct args a;
	int key;

	if (config_create(&cfg) < 0 || config_load(cfg, &err) < 0) {
		say("config: %s", err.text[0] ? err.text : "out of memory");
		return CISTERN_EXIT_USAGE;
	}
	args_init(&a, cmd, argc, argv);
	while ((key = args_next(&a)) >= 0) {
		if (key == OPT_JSON)
			want_json = true;
		else if (key == OPT_MAN)
			man = true;
		else if (config_parse_options(cfg, optarg, "-o", &err) < 0)
			return args_usage_error(cmd, "%s", err.text);
	}
	if (a.exit_status >= 0)
		return a.exit_status;
	if (settings_finish(cfg, man || optind < argc ? NULL : say_note, &err) < 0)
		return args_usage_error(cmd, "%s", err.text);
	if (optind < argc)
		return want_json ? args_usage_error(cmd, "--json prints all settings, do not name any")
				 : print_named(cmd, cfg, argv + optind);
	if (man)
		print_man(stdout);
	else if (want_json)
		print_json(cfg);
	else
		print_table(cfg);
	return CISTERN_EXIT_OK;
}

const struct command command_config = {
	.name = "config",
	.summary = "show every setting, its value and where it came from",
	.synopsis = "config [-o KEY=VALUE,...] [--json]\nconfig [-o KEY=VALUE,...] NAME...",
	.about =
		"Shows the settings that 'cistern mount' would use here and now. With NAME only the values of these, a line each. What the settings mean "
		"is in cistern.conf(5).",
	.examples = "cistern config\nCISTERN_HIGH_WATER=90 cistern config high_water",
	.options = options,
	.run = run_config,
};
