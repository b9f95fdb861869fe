/* SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef MPI_AGENT_NC4_CLOSE_H
#define MPI_AGENT_NC4_CLOSE_H

#include <hdf5.h>

/* Ids of HDF5's that are closed when they go out of scope; < 0: there is none. */
static inline void nc4_close_object(const hid_t *id)
{
	if (*id >= 0)
		H5Oclose(*id);
}
static inline void nc4_close_att(const hid_t *id)
{
	if (*id >= 0)
		H5Aclose(*id);
}
static inline void nc4_close_space(const hid_t *id)
{
	if (*id >= 0)
		H5Sclose(*id);
}
static inline void nc4_close_type(const hid_t *id)
{
	if (*id >= 0)
		H5Tclose(*id);
}
static inline void nc4_close_list(const hid_t *id)
{
	if (*id >= 0)
		H5Pclose(*id);
}
#define CLOSE_OBJECT __attribute__((cleanup(nc4_close_object)))
#define CLOSE_ATT    __attribute__((cleanup(nc4_close_att)))
#define CLOSE_SPACE  __attribute__((cleanup(nc4_close_space)))
#define CLOSE_TYPE   __attribute__((cleanup(nc4_close_type)))
#define CLOSE_LIST   __attribute__((cleanup(nc4_close_list)))

#endif
