/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Options and help from one table. getopt_long() does the parsing; its messages are replaced by ours, which name the
 * sub-command. Help and manual page are two renderings of the same table.
 */
#include "tools/lib/args.h"

#include <stdarg.h>
#include <string.h>

#include "cistern/error.h"
#include "format/base/units.h"
#include "tools/lib/say.h"

#define KEY_HELP    'h'
#define HELP_COLUMN 24
#define HELP_WIDTH  80

static const struct args_option help_option = { KEY_HELP, "help", NULL, "print this help" };

static void add_option(struct args *a, const struct args_option *o, size_t *shorts, size_t *longs)
{
	if (o->key < 256) {
		a->shorts[(*shorts)++] = (char)o->key;
		if (o->arg)
			a->shorts[(*shorts)++] = ':';
	}
	if (o->name)
		a->longs[(*longs)++] =
			(struct option){ o->name, o->arg ? required_argument : no_argument, NULL, o->key };
}

void args_init(struct args *a, const struct command *cmd, int argc, char **argv)
{
	size_t shorts = 0, longs = 0;

	*a = (struct args){ .cmd = cmd, .argc = argc, .argv = argv, .exit_status = -1 };
	a->shorts[shorts++] = ':'; /* a missing value is told apart from an unknown option */
	for (size_t i = 0; cmd->options[i].key && i < ARGS_MAX_OPTIONS; i++)
		add_option(a, &cmd->options[i], &shorts, &longs);
	add_option(a, &help_option, &shorts, &longs);
	opterr = 0;
	optind = 0; /* glibc: begin anew */
}

int args_usage_error(const struct command *cmd, const char *fmt, ...)
{
	char text[CISTERN_ERROR_TEXT_BYTES];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	say("%s: %s; see 'cistern %s --help'", cmd->name, text, cmd->name);
	return CISTERN_EXIT_USAGE;
}

static int wrong_option(struct args *a, int key)
{
	const char *text = a->argv[optind - 1];

	if (key == ':')
		a->exit_status = args_usage_error(a->cmd, "option '%s' needs a value", text);
	else if (text[0] == '-' && text[1] == '-' && optopt)
		a->exit_status = args_usage_error(a->cmd, "option '%s' takes no value", text);
	else if (optopt)
		a->exit_status = args_usage_error(a->cmd, "unknown option '-%c'", optopt);
	else
		a->exit_status = args_usage_error(a->cmd, "unknown option '%s'", text);
	return -1;
}

int args_next(struct args *a)
{
	int key = getopt_long(a->argc, a->argv, a->shorts, a->longs, NULL);

	if (key == '?' || key == ':')
		return wrong_option(a, key);
	if (key == KEY_HELP) {
		args_print_help(a->cmd, stdout);
		a->exit_status = CISTERN_EXIT_OK;
		return -1;
	}
	return key;
}

int args_operands(struct args *a, int min, int max)
{
	int num = a->argc - optind;

	if (num < min)
		return args_usage_error(a->cmd, "%s is missing", num == 0 ? "an operand" : "another operand");
	if (max >= 0 && num > max)
		return args_usage_error(a->cmd, "'%s' is one operand too many", a->argv[optind + max]);
	return -1;
}

int args_usec(const struct command *cmd, const char *option, const char *text, uint64_t *ret_usec)
{
	if (units_parse_usec(text, ret_usec) < 0 || *ret_usec == 0)
		return args_usage_error(cmd, "%s '%s' is no time; write for example 90s, 30m or 2h", option, text);
	return -1;
}

/* "-o, --option VALUE"; returns the number of characters. */
static int option_head(const struct args_option *o, char *out, size_t cap)
{
	int n = 0;

	if (o->key < 256)
		n += snprintf(out + n, cap - (size_t)n, "-%c", o->key);
	if (o->name)
		n += snprintf(out + n, cap - (size_t)n, "%s--%s", n ? ", " : "", o->name);
	if (o->arg)
		n += snprintf(out + n, cap - (size_t)n, " %s", o->arg);
	return n;
}

void args_wrap(FILE *out, const char *text, int indent)
{
	int column = indent;

	while (*text) {
		int len = (int)strcspn(text, " \n");

		if (column > indent && column + 1 + len >= HELP_WIDTH) {
			fprintf(out, "\n%*s", indent, "");
			column = indent;
		}
		column += fprintf(out, "%s%.*s", column > indent ? " " : "", len, text);
		text += len;
		if (*text == '\n') {
			fprintf(out, "\n%*s", text[1] ? indent : 0, "");
			column = indent;
		}
		text += *text != '\0';
	}
	putc('\n', out);
}

static void help_line(const struct args_option *o, FILE *out)
{
	char head[80];

	if (!o->help)
		return;
	if (option_head(o, head, sizeof(head)) < HELP_COLUMN)
		fprintf(out, "  %-*s  ", HELP_COLUMN, head);
	else
		fprintf(out, "  %s\n  %-*s  ", head, HELP_COLUMN, "");
	args_wrap(out, o->help, HELP_COLUMN + 4);
}

/* Calls each for every line of text; the line is not terminated. */
static void each_line(const char *text, FILE *out, void (*each)(FILE *out, const char *line, int len))
{
	while (*text) {
		size_t len = strcspn(text, "\n");

		each(out, text, (int)len);
		text += len + (text[len] == '\n');
	}
}

static void synopsis_line(FILE *out, const char *line, int len)
{
	fprintf(out, "  cistern %.*s\n", len, line);
}

static void example_line(FILE *out, const char *line, int len)
{
	fprintf(out, "  %.*s\n", len, line);
}

void args_print_help(const struct command *cmd, FILE *out)
{
	fprintf(out, "cistern %s: %s\n\nUsage:\n", cmd->name, cmd->summary);
	each_line(cmd->synopsis, out, synopsis_line);
	putc('\n', out);
	args_wrap(out, cmd->about, 0);
	fputs("\nOptions:\n", out);
	for (const struct args_option *o = cmd->options; o->key; o++)
		help_line(o, out);
	help_line(&help_option, out);
	if (cmd->examples) {
		fputs("\nExamples:\n", out);
		each_line(cmd->examples, out, example_line);
	}
}

/* len letters at the most. */
static void man_part(FILE *out, const char *text, size_t len)
{
	bool begin = true;

	for (; len > 0 && *text; text++, len--) {
		if (begin && (*text == '.' || *text == '\''))
			fputs("\\&", out);
		if (*text == '\\')
			fputs("\\e", out);
		else if (*text == '-')
			fputs("\\-", out);
		else
			putc(*text, out);
		begin = *text == '\n';
	}
}

void man_text(FILE *out, const char *text)
{
	man_part(out, text, SIZE_MAX);
}

static void man_line(FILE *out, const char *line, int len)
{
	man_part(out, line, (size_t)len);
	putc('\n', out);
}

static void man_synopsis_line(FILE *out, const char *line, int len)
{
	fputs(".B cistern\n", out);
	man_line(out, line, len);
	fputs(".br\n", out);
}

static void man_about_line(FILE *out, const char *line, int len)
{
	if (len == 0)
		fputs(".PP\n", out);
	else
		man_line(out, line, len);
}

static void man_option(const struct args_option *o, FILE *out)
{
	char head[80];

	if (!o->help)
		return;
	option_head(o, head, sizeof(head));
	fputs(".TP\n.B ", out);
	man_text(out, head);
	putc('\n', out);
	man_text(out, o->help);
	fputs(".\n", out);
}

void args_print_man(const struct command *cmd, FILE *out)
{
	fprintf(out, ".\\\" SPDX-License-Identifier: GPL-3.0-or-later\n.\\\" Made by \"cistern help --man %s\".\n",
		cmd->name);
	fprintf(out, ".TH CISTERN\\-%s 1 \"\" \"Cistern\" \"Cistern manual\"\n.SH NAME\n", cmd->name);
	fprintf(out, "cistern\\-%s \\- ", cmd->name);
	man_text(out, cmd->summary);
	fputs("\n.SH SYNOPSIS\n", out);
	each_line(cmd->synopsis, out, man_synopsis_line);
	fputs(".SH DESCRIPTION\n", out);
	each_line(cmd->about, out, man_about_line);
	fputs(".SH OPTIONS\n", out);
	for (const struct args_option *o = cmd->options; o->key; o++)
		man_option(o, out);
	man_option(&help_option, out);
	if (cmd->examples) {
		fputs(".SH EXAMPLES\n.nf\n", out);
		each_line(cmd->examples, out, man_line);
		fputs(".fi\n", out);
	}
	fputs(".SH EXIT STATUS\nSee\n.BR cistern (1).\n.SH SEE ALSO\n.BR cistern (1),\n.BR cistern.conf (5)\n", out);
}
