/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "format/base/limits.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <sys/resource.h>

#include "format/base/descriptors.h"
#include "format/base/units.h"

/* Root may raise the hard limit, others the soft one up to it. */
static void raise_limit(int resource)
{
	struct rlimit limit, none = { RLIM_INFINITY, RLIM_INFINITY };

	if (setrlimit(resource, &none) == 0 || getrlimit(resource, &limit) < 0)
		return;
	limit.rlim_cur = limit.rlim_max;
	(void)setrlimit(resource, &limit);
}

size_t limits_raise(void)
{
	static const int resources[] = { RLIMIT_FSIZE, RLIMIT_CPU, RLIMIT_AS, RLIMIT_DATA };

	for (size_t i = 0; i < sizeof(resources) / sizeof(resources[0]); i++)
		raise_limit(resources[i]);
	signal(SIGXFSZ, SIG_IGN);
	return descriptors_raise();
}

/* RLIM_INFINITY: none, or it is not known. */
static rlim_t limit_of(int resource)
{
	struct rlimit limit;

	return getrlimit(resource, &limit) == 0 ? limit.rlim_cur : RLIM_INFINITY;
}

int limits_check(uint64_t file_bytes, struct cistern_error *err)
{
	rlim_t files = limit_of(RLIMIT_NOFILE), size = limit_of(RLIMIT_FSIZE);
	char is[UNITS_TEXT], needed[UNITS_TEXT];

	if (files != RLIM_INFINITY && files < DESCRIPTORS_MIN)
		return cistern_error_set(err, -EMFILE,
			"the limit of open files is %ju, and a mount needs at least %u (1024 and more for many files at a time): "
			"raise the hard one (ulimit -Hn, nofile in limits.conf, or LimitNOFILE of a service)",
			(uintmax_t)files, DESCRIPTORS_MIN);
	if (size != RLIM_INFINITY && size < file_bytes)
		return cistern_error_set(err, -EFBIG,
			"the limit of file size is %s, and a store has files of %s: raise the hard one (ulimit -Hf, fsize in "
			"limits.conf, or LimitFSIZE of a service)",
			units_format_bytes(size, is), units_format_bytes(file_bytes, needed));
	return 0;
}

const char *limits_warning(char out[LIMITS_TEXT])
{
	rlim_t size = limit_of(RLIMIT_FSIZE), cpu = limit_of(RLIMIT_CPU);
	char text[UNITS_TEXT];

	out[0] = '\0';
	if (size != RLIM_INFINITY)
		snprintf(out, LIMITS_TEXT,
			"the limit of file size (ulimit -Hf) is %s: larger files are refused, or stay in the store until it is raised",
			units_format_bytes(size, text));
	else if (cpu != RLIM_INFINITY)
		snprintf(out, LIMITS_TEXT,
			"the limit of processor time (ulimit -Ht) is %ju s: the mount dies when its daemon has used that",
			(uintmax_t)cpu);
	return out;
}
