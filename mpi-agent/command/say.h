/* SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef MPI_AGENT_COMMAND_SAY_H
#define MPI_AGENT_COMMAND_SAY_H

/* What commands say to people. Names may hold any byte: a terminal must not be steered by them, and a message is one line. */

char *say_masked(char *text); /* control characters become '?'; returns text */
/* "cistern recover: ", the message and a newline, to stderr. */
void say_recover(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
/* What was printed must have arrived: else it is said, and an exit status that was 0 becomes CISTERN_EXIT_FAILED. */
int say_flush(int status);

#endif
