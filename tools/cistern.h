/* SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef TOOLS_CISTERN_H
#define TOOLS_CISTERN_H

/* The sub-commands of cistern. Each is one table and one function, in the file that its name says. */

#include "tools/lib/args.h"

#ifndef PACKAGE_VERSION
#define PACKAGE_VERSION "0"
#endif

extern const struct command command_mount;   /* mount.c */
extern const struct command command_umount;  /* umount.c */
extern const struct command command_flush;   /* flush.c */
extern const struct command command_wait;    /* flush.c */
extern const struct command command_pause;   /* flush.c */
extern const struct command command_resume;  /* flush.c */
extern const struct command command_status;  /* status.c */
extern const struct command command_inspect; /* inspect.c */
extern const struct command command_fsck;    /* fsck.c */
extern const struct command command_recover; /* recover.c */
extern const struct command command_convert; /* convert.c */
extern const struct command command_agent;   /* agent.c */
extern const struct command command_config;  /* config.c */
extern const struct command command_help;    /* help.c */

const struct command *const *command_list(void);      /* all of them, NULL at the end */
const struct command *command_find(const char *name); /* NULL: none has that name */
const char *command_nearest(const char *name);        /* the one that was probably meant; NULL: none is near */
void command_overview(FILE *out);                     /* cistern --help */
void command_overview_man(FILE *out);                 /* cistern.1 */

/* As mount(8) calls its helpers: PROGRAM BACKING MOUNTPOINT [-sfnv] [-o OPTIONS] [-t TYPE]. */
int mount_helper(int argc, char **argv);

#endif
