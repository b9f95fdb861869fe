/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * cistern-convert: "cistern convert" by one process. A program of its own, without MPI: libraries that come with that one take longer
 * to start than files of some ten megabytes to convert.
 */
#include "format/base/descriptors.h"
#include "format/base/limits.h"
#include "mpi-agent/command/convert.h"
#include "mpi-agent/command/say.h"

int main(int argc, char **argv)
{
	descriptors_fill();
	limits_raise();
	return say_flush(command_convert(argc, argv));
}
