/* SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef TOOLS_LIB_ARGS_H
#define TOOLS_LIB_ARGS_H

/*
 * Sub-commands and their options. One table per sub-command feeds the parser, --help and the manual page, so that the
 * three cannot differ.
 */

#include <getopt.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#define ARGS_MAX_OPTIONS 24

struct args_option {
	int key;          /* the short option's letter; 256 and up: none */
	const char *name; /* the long option; NULL: none */
	const char *arg;  /* "DIR"; NULL: takes none */
	const char *help; /* NULL: hidden */
};

struct command {
	const char *name;
	const char *summary;                                          /* one line without a full stop */
	const char *synopsis;                                         /* lines of what follows "cistern " */
	const char *about;                                            /* paragraphs, an empty line between them */
	const char *examples;                                         /* lines; NULL: none */
	const struct args_option *options;                            /* ended by key 0 */
	int (*run)(const struct command *cmd, int argc, char **argv); /* returns enum cistern_exit */
};

struct args {
	const struct command *cmd; /* borrowed */
	int argc;
	char **argv;
	int exit_status; /* -1 while all is well */
	char shorts[2 * ARGS_MAX_OPTIONS + 4];
	struct option longs[ARGS_MAX_OPTIONS + 2];
};

void args_init(struct args *a, const struct command *cmd, int argc, char **argv);
/*
 * The next option's key (its value in optarg), or -1 at the end. After the end exit_status says whether to go on: -1;
 * 0: --help has been printed; CISTERN_EXIT_USAGE: the mistake has been told.
 */
int args_next(struct args *a);
/*
 * How many operands there are; they begin at argv[optind]. Tells and returns CISTERN_EXIT_USAGE when outside of [min,
 * max], else -1.
 */
int args_operands(struct args *a, int min, int max);
/* "cistern CMD: text" and where help is; returns CISTERN_EXIT_USAGE. */
int args_usage_error(const struct command *cmd, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* A time like "30m" from an option. Returns -1, or CISTERN_EXIT_USAGE after telling. */
int args_usec(const struct command *cmd, const char *option, const char *text, uint64_t *ret_usec);

/* Text in lines of at most 80 columns, from column indent on, and a newline; line breaks in text are kept. */
void args_wrap(FILE *out, const char *text, int indent);
void args_print_help(const struct command *cmd, FILE *out); /* for --help */
void args_print_man(const struct command *cmd, FILE *out);  /* the manual page, as source for man(7) */
/* Text for man(7): backslashes, leading dots and quotes made harmless. */
void man_text(FILE *out, const char *text);

#endif
