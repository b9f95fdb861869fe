/* SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef FORMAT_BASE_PROCESS_H
#define FORMAT_BASE_PROCESS_H

/* What the kernel says of a process. */

#include <stdint.h>
#include <sys/types.h>

/* When it began, in clock ticks since the machine did (proc(5), starttime). -ESRCH: there is none; -EBADMSG, other -errno of /proc. */
int process_began(pid_t pid, uint64_t *ret);

#endif
