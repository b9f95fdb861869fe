/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "tests/lib/remove_tree.h"

#include <sys/wait.h>
#include <unistd.h>

void remove_tree(const char *path)
{
	pid_t pid = fork();

	if (pid == 0) {
		execlp("rm", "rm", "-rf", "--", path, (char *)NULL);
		_exit(127);
	}
	if (pid > 0)
		(void)waitpid(pid, NULL, 0);
}
