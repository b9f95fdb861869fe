/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * cistern help: the overview, the help of one command, and (for the build of the documents) the manual pages, all
 * from the same tables.
 */
#include <stdlib.h>
#include <string.h>

#include "cistern/error.h"
#include "tools/cistern.h"
#include "tools/lib/say.h"

static const struct {
	int status;
	const char *meaning;
} exit_statuses[] = {
	{ CISTERN_EXIT_OK, "all that was asked for is done" },
	{ CISTERN_EXIT_FAILED, "something failed; the message names it; nothing is lost" },
	{ CISTERN_EXIT_USAGE, "the command line or a setting is wrong; nothing was touched" },
	{ CISTERN_EXIT_INCOMPLETE, "done in part: some files are still in the store" },
	{ CISTERN_EXIT_DAMAGED, "damage was found (fsck: and not repaired)" },
	{ CISTERN_EXIT_BUSY, "in use by somebody else: another daemon, an open file" },
	{ CISTERN_EXIT_TIMEOUT, "the time-out ran out first; work goes on in the background" },
	{ CISTERN_EXIT_BESIDE,
		"everything is on the backing directory, but something under another name; the manifest lists it" },
};

#define NUM_EXITS        (sizeof(exit_statuses) / sizeof(exit_statuses[0]))
#define NAME_MAX_LETTERS 24

static const char about[] =
	"Cistern is a burst-buffer file system. What is written into its mount lands in logs on this node's own disk, the store, and is "
	"drained from there into the backing directory on the global file system: in the background, on demand, and when the mount "
	"is taken down.";

static const char example[] = "cistern mount /lustre/proj/run42 /cistern --store /local/nvme/$JOB\n"
			      "cistern status /cistern\n"
			      "cistern umount --wait /cistern\n";

static size_t min3(size_t a, size_t b, size_t c)
{
	size_t m = a < b ? a : b;

	return m < c ? m : c;
}

/*
 * Levenshtein's distance: letters inserted, deleted or exchanged. Names longer than NAME_MAX_LETTERS are far from
 * everything.
 */
static size_t distance(const char *a, const char *b)
{
	size_t row[NAME_MAX_LETTERS + 1], len_a = strlen(a), len_b = strlen(b);

	if (len_a > NAME_MAX_LETTERS || len_b > NAME_MAX_LETTERS)
		return NAME_MAX_LETTERS;
	for (size_t j = 0; j <= len_b; j++)
		row[j] = j;
	for (size_t i = 1; i <= len_a; i++) {
		size_t diagonal = row[0];

		row[0] = i;
		for (size_t j = 1; j <= len_b; j++) {
			size_t above = row[j];

			row[j] = min3(above + 1, row[j - 1] + 1, diagonal + (a[i - 1] != b[j - 1]));
			diagonal = above;
		}
	}
	return row[len_b];
}

const char *command_nearest(const char *name)
{
	const char *best = NULL;
	size_t best_distance = 3;

	for (const struct command *const *c = command_list(); *c; c++) {
		size_t d = distance(name, (*c)->name);

		if (d < best_distance && d < strlen((*c)->name)) {
			best = (*c)->name;
			best_distance = d;
		}
	}
	return best;
}

void command_overview(FILE *out)
{
	fputs("Usage: cistern COMMAND [OPTIONS] ...\n\n", out);
	args_wrap(out, about, 0);
	fputs("\nCommands:\n", out);
	for (const struct command *const *c = command_list(); *c; c++)
		fprintf(out, "  %-10s %s\n", (*c)->name, (*c)->summary);
	fprintf(out,
		"\n'cistern COMMAND --help' tells more about one, 'cistern --version' the version.\n\nExit status:\n");
	for (size_t i = 0; i < NUM_EXITS; i++)
		fprintf(out, "  %d  %s\n", exit_statuses[i].status, exit_statuses[i].meaning);
}

void command_overview_man(FILE *out)
{
	fputs(".\\\" SPDX-License-Identifier: GPL-3.0-or-later\n.\\\" Made by \"cistern help --man\".\n", out);
	fputs(".TH CISTERN 1 \"\" \"Cistern\" \"Cistern manual\"\n.SH NAME\ncistern \\- a burst-buffer file system\n",
		out);
	fputs(".SH SYNOPSIS\n.B cistern\n.I COMMAND\n[OPTIONS] ...\n.br\n.B cistern \\-\\-version\n.SH DESCRIPTION\n",
		out);
	man_text(out, about);
	fputs("\n.SH COMMANDS\n", out);
	for (const struct command *const *c = command_list(); *c; c++) {
		fprintf(out, ".TP\n.BR cistern\\-%s (1)\n", (*c)->name);
		man_text(out, (*c)->summary);
		putc('\n', out);
	}
	fputs(".SH EXAMPLES\n.nf\n", out);
	man_text(out, example);
	fputs(".fi\n.SH EXIT STATUS\n", out);
	for (size_t i = 0; i < NUM_EXITS; i++) {
		fprintf(out, ".TP\n.B %d\n", exit_statuses[i].status);
		man_text(out, exit_statuses[i].meaning);
		putc('\n', out);
	}
	fputs(".SH ENVIRONMENT\n.TP\n.B CISTERN_LIBEXEC\nDirectories, separated by colons, that are searched first for the programs "
	      "cistern\\-fs and cistern\\-agent.\n.TP\n.B CISTERN_CONFIG\nA file with settings; see\n.BR cistern.conf (5).\n",
		out);
	fputs(".SH SEE ALSO\n.BR cistern.conf (5),\n.BR mount (8),\n.BR fusermount3 (1)\n", out);
}

enum { OPT_MAN = 256 };

static const struct args_option options[] = {
	{ OPT_MAN, "man", NULL, NULL },
	{ 0 },
};

static int run_help(const struct command *cmd, int argc, char **argv)
{
	const struct command *topic = NULL;
	bool man = false;
	struct args a;
	int key;

	args_init(&a, cmd, argc, argv);
	while ((key = args_next(&a)) >= 0)
		if (key == OPT_MAN)
			man = true;
	if (a.exit_status >= 0 || (a.exit_status = args_operands(&a, 0, 1)) >= 0)
		return a.exit_status;
	if (optind < argc) {
		topic = command_find(argv[optind]);
		if (!topic)
			return args_usage_error(cmd, "there is no command '%s'", argv[optind]);
	}
	if (man)
		topic ? args_print_man(topic, stdout) : command_overview_man(stdout);
	else
		topic ? args_print_help(topic, stdout) : command_overview(stdout);
	return CISTERN_EXIT_OK;
}

const struct command command_help = {
	.name = "help",
	.summary = "tell about a command",
	.synopsis = "help [COMMAND]",
	.about = "Prints the list of commands, or the help of one, as 'cistern COMMAND --help' does.",
	.options = options,
	.run = run_help,
};
