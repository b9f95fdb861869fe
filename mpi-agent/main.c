/* SPDX-License-Identifier: GPL-3.0-or-later */
/* cistern-agent: carries logged data to the backing directory. Started by the daemon (drain) or by cistern (recover). */
#include <stdio.h>
#include <string.h>

#include "cistern/error.h"
#include "format/base/descriptors.h"
#include "format/base/limits.h"
#include "mpi-agent/command/command.h"
#include "mpi-agent/command/say.h"

static const char usage_text[] =
	"usage: cistern-agent drain --store DIR [--backing-fd N]\n"
	"       cistern-agent recover STORE --to DIR [--backing DIR] [--verify none|size|read|format] [--manifest FILE]\n"
	"                             [--json] [--force]\n"
	"       cistern-agent undo --store DIR [--snapshot NAME]\n";

int main(int argc, char **argv)
{
	static const struct {
		const char *name;
		int (*run)(int argc, char **argv);
	} commands[] = { { "drain", command_drain }, { "recover", command_recover }, { "undo", command_undo } };

	descriptors_fill();
	if (argc > 1 && strcmp(argv[1], "--help") == 0) {
		fputs(usage_text, stdout);
		return CISTERN_EXIT_OK;
	}
	limits_raise();
	for (size_t i = 0; argc > 1 && i < sizeof(commands) / sizeof(commands[0]); i++)
		if (strcmp(argv[1], commands[i].name) == 0)
			return say_flush(commands[i].run(argc - 1, argv + 1));
	fputs(usage_text, stderr);
	return CISTERN_EXIT_USAGE;
}
