/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * cistern convert: becomes cistern-convert, or with -n as many cistern-mpi-agent convert as are wanted, through mpiexec. When mpiexec
 * has started this command, it becomes one of them, with all that mpiexec hands to its processes.
 */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cistern/error.h"
#include "format/base/launch.h"
#include "tools/cistern.h"
#include "tools/lib/launch.h"
#include "tools/lib/libexec.h"
#include "tools/lib/say.h"

#define AGENT "cistern-mpi-agent"
#define ALONE "cistern-convert"

enum {
	OPT_TO = 256,
	OPT_LAYOUT,
	OPT_SUBFILES,
	OPT_PROCESSES,
	OPT_MAP,
	OPT_ALIGN,
	OPT_FILL,
	OPT_BUFFER,
	OPT_FORCE,
	OPT_JSON,
	OPT_AS_WRITTEN,
};

/* All but -n are the agent's, and go to it as they are. */
static const struct args_option options[] = {
	LAUNCH_OPTION,
	{ OPT_TO, "to", "FILE", "what is made; of blobs, what stands before \".0000\" in their names" },
	{ OPT_LAYOUT, "layout", "canonical|blob-variable|blob-process", "what is made; default canonical" },
	{ OPT_SUBFILES, "num-subfiles", "K", "to blobs: into so many subfiles; default 1" },
	{ OPT_PROCESSES, "processes", "P",
		"to blobs: so many blobs, as if P processes had written the file; default: those of the maps, else one for each "
		"subfile or process of this command" },
	{ OPT_MAP, "map", "FILE",
		"to blobs: which process has which elements, as E3SM-IO (map_f_case_16p.nc) or PIO (piodecomp...dat) say it; may "
		"be given several times; without it, each process has an even part" },
	{ OPT_ALIGN, "align", "HEADER[,VARIABLE[,RECORD]]",
		"from blobs of E3SM-IO: where variables begin; default 512,4,4, as PnetCDF does; 4 is netCDF-C's way" },
	{ OPT_FILL, "fill", NULL, "from blobs: elements that are in no blob get their fill value, instead of holes" },
	{ OPT_BUFFER, "buffer", "SIZE",
		"memory for a part of the file, of which each process has two; default 2M to 32M, by the number of blobs" },
	{ OPT_AS_WRITTEN, "as-written", NULL,
		"from blobs, FILE in a Cistern mount: written there by as many processes as once wrote it, so that what a job adds "
		"to it is drained into blobs with it; as many processes of this command as nodes, one on each" },
	{ OPT_FORCE, "force", NULL,
		"replace what is there; of a set of subfiles, also those that it has more than the new one" },
	{ OPT_JSON, "json", NULL, "print the outcome as JSON" },
	{ 0 },
};

struct call {
	const char **argv; /* owned; what it points to is borrowed, but for the options' heads */
	size_t num;
	char (*heads)[32]; /* owned; "--to" */
	size_t num_heads;
};

static void pass_on(struct call *call, int key, const char *value)
{
	const struct args_option *o = options;

	while (o->key && o->key != key)
		o++;
	snprintf(call->heads[call->num_heads], sizeof(call->heads[0]), "--%s", o->name);
	call->argv[call->num++] = call->heads[call->num_heads++];
	if (o->arg)
		call->argv[call->num++] = value;
}

/* Becomes the converter, the agent, or mpiexec: call's arguments begin at LAUNCH_ARGS. Returns only with an error. */
static int exec_converter(struct call *call, uint64_t n, struct cistern_error *err)
{
	bool alone = n == 1 && !launch_is_one_of_many();
	const char **argv = call->argv + (alone ? 1 : 0); /* the converter has no other command */
	char program[PATH_MAX];
	int r = libexec_find(alone ? ALONE : AGENT, program, err);

	if (r < 0)
		return r;
	argv[LAUNCH_ARGS] = program;
	return launch_exec(argv, n, err);
}

static int convert(const struct command *cmd, struct call *call, int argc, char **argv)
{
	struct cistern_error err = { 0 };
	const char *procs = NULL, *to = NULL;
	uint64_t n = 1;
	struct args a;
	int key;

	call->num = LAUNCH_ARGS + 1;
	call->argv[call->num++] = "convert";
	args_init(&a, cmd, argc, argv);
	while ((key = args_next(&a)) >= 0) {
		if (key == 'n')
			procs = optarg;
		else
			pass_on(call, key, optarg);
		if (key == OPT_TO)
			to = optarg;
	}
	if (a.exit_status >= 0 || (a.exit_status = args_operands(&a, 1, INT_MAX)) >= 0)
		return a.exit_status;
	if (!to)
		return args_usage_error(cmd, "--to FILE is missing");
	if (launch_count(procs, &n, &err) < 0)
		return args_usage_error(cmd, "%s", err.text);
	call->argv[call->num++] = "--";
	while (optind < argc)
		call->argv[call->num++] = argv[optind++];
	exec_converter(call, n, &err);
	return say_error(&err);
}

static int run_convert(const struct command *cmd, int argc, char **argv)
{
	struct call call = { .argv = calloc(2 * (size_t)argc + 8, sizeof(char *)), .heads = calloc((size_t)argc, 32) };
	int status = CISTERN_EXIT_FAILED;

	if (call.argv && call.heads)
		status = convert(cmd, &call, argc, argv);
	else
		say("out of memory");
	free(call.argv);
	free(call.heads);
	return status;
}

const struct command command_convert = {
	.name = "convert",
	.summary = "turn blobs into a netCDF file, or a netCDF file into blobs",
	.synopsis =
		"convert [-n N] BASE|SUBFILE... --to FILE [--align SIZES] [--fill|--as-written] [--force] [--json]\n"
		"convert [-n N] FILE --layout blob-variable|blob-process --to BASE [--num-subfiles K] [--processes P] "
		"[--map FILE]... [--force] [--json]",
	.about =
		"Blobs are how a job of many processes writes one file fast: each process puts all of its elements in one place of a "
		"subfile, with maps that say where they belong. E3SM-IO writes them with its blob strategy. This command makes the canonical netCDF file of them, equal byte by byte to what the "
		"processes would have written themselves, with any number of processes.\n\n"
		"A set of subfiles is named by what stands before \".0000\" in their names, by any of them, or by all of them. It must be "
		"complete and of one run; else nothing is made, and the message names what is missing. Nothing appears under the name "
		"FILE before it is whole and on the disk; what is there is replaced with --force only.\n\n"
		"Blobs of E3SM-IO do not say where variables lay in the canonical file; --align does. Elements that no process had are "
		"holes there. Blobs that Cistern made keep the canonical file's header and padding.\n\n"
		"Where several blobs have the same element, the one in the later subfile wins, and in one subfile the one further behind; how "
		"many there are is said.\n\n"
		"A mount whose backing directory has the blobs of a file shows its subfiles, and not the file itself. With --as-written, FILE lies in a Cistern mount and is written there by as many processes as there are blobs. A program can then go on with it, and the drain makes subfiles of all of it, over those in the backing directory. In a job the command runs on each node once.\n\n"
		"With --layout, FILE, a netCDF classic file (CDF-1, 2 or 5), becomes blobs: variable-centric ones, which are CDF-5 files, or "
		"process-centric ones, which are HDF5 files. Arrays of the shape of a map are cut up as it says; without maps, all "
		"arrays with at least P elements, evenly. A set in one of the two forms becomes one in the other by way of the canonical "
		"file.\n\n"
		"Instead of -n, the command can be started by MPICH's mpiexec or srun itself.\n\n"
		"Exit status 1: a subfile is missing, FILE exists, or the disk is full; 4: subfiles are damaged or not of one set, or the "
		"file is of another kind, which is then named with the command that is for it; 5: "
		"FILE is being made by another program.",
	.examples = "cistern convert /lustre/run42/out.nc --to /lustre/run42/out.nc\n"
		    "cistern convert -n 8 out_h0.nc.0000 --to out_h0.nc\n"
		    "mpiexec -n 64 cistern convert out.h5 --to out.nc\n"
		    "cistern convert /lustre/run42/out.nc --as-written --to /cistern/out.nc\n"
		    "mpiexec -ppn 1 cistern convert /lustre/run42/out.nc --as-written --to /cistern/out.nc\n"
		    "cistern convert in.nc --layout blob-process --map map_f_case_16p.nc --num-subfiles 4 --to out.h5",
	.options = options,
	.run = run_convert,
};
