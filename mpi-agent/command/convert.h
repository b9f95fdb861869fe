/* SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef MPI_AGENT_COMMAND_CONVERT_H
#define MPI_AGENT_COMMAND_CONVERT_H

/* cistern-convert, and cistern-mpi-agent convert. argv[0] is "convert"; returns an exit status, the same in all processes. */
int command_convert(int argc, char **argv);

#endif
