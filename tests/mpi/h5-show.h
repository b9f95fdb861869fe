/* SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef TESTS_MPI_H5_SHOW_H
#define TESTS_MPI_H5_SHOW_H

/* What h5-facts makes and what it shows have in common. */

#include <hdf5.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

static inline void demand(bool condition, const char *what)
{
	if (condition)
		return;
	fprintf(stderr, "h5-facts: %s failed\n", what);
	exit(1);
}

#define DO(call) demand((call) >= 0, #call)

static inline hid_t must(hid_t id, const char *what)
{
	demand(id >= 0, what);
	return id;
}

#define GET(call) must((call), #call)

/* What HDF5 says of a file's datasets. */
void show(const char *path);

#endif
