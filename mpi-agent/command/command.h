/* SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef MPI_AGENT_COMMAND_COMMAND_H
#define MPI_AGENT_COMMAND_COMMAND_H

/* The agent's commands. Each takes its own arguments (argv[0] is the command's name) and returns an exit status. */

int command_drain(int argc, char **argv);
int command_recover(int argc, char **argv);
int command_undo(int argc, char **argv);

#endif
