/* SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef FORMAT_BASE_LAUNCH_H
#define FORMAT_BASE_LAUNCH_H

#include <stdbool.h>

/*
 * Has MPICH's mpiexec, or srun, started this process as one of several? One alone need not load MPI, whose start takes longer than
 * many a command. By the environment that they hand to their processes (PMI, PMI2, PMIx).
 */
bool launch_is_one_of_many(void);

#endif
