/* SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef FS_JOB_PRIVATE_H
#define FS_JOB_PRIVATE_H

/* What the files of fs/job share. */

#include "fs/job/job.h"

struct job {
	struct job_options opt;
	struct core *core;   /* opt's, borrowed */
	struct peers *peers; /* opt's, borrowed; NULL: alone */
};

struct job_file {
	struct core_file *local; /* owned; NULL when nothing of it is in our store yet */
};

struct job_dir {
	struct core_dir *local; /* owned */
};

#endif
