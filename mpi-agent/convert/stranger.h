/* SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef MPI_AGENT_CONVERT_STRANGER_H
#define MPI_AGENT_CONVERT_STRANGER_H

/* Files that cannot be converted as they are: what they seem to be, and which command is for them. */

#include "cistern/error.h"

enum stranger_for {
	STRANGER_FOR_CANONICAL, /* a subfile is wanted */
	STRANGER_FOR_BLOBS,     /* a netCDF classic file is wanted */
};

/* Of a file that has been opened. 0: it begins like what is wanted; -EBADMSG, and text: it does not. -errno of reading. */
int stranger_look(int fd, enum stranger_for wanted, struct cistern_error *err);
/* Of what is no regular file: -EINVAL, and text. */
int stranger_refuse_other(const char *path, struct cistern_error *err);
/* A netCDF classic file that is no subfile, an HDF5 file that is none: -EBADMSG, and text. */
int stranger_refuse_classic(struct cistern_error *err);
int stranger_refuse_hdf5(struct cistern_error *err);

#endif
