/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * The agent is a program of its own so that whatever happens in it (MPI, HDF5, a file system that hangs) leaves the
 * mount alone. It gets a process group of its own (a terminal's ^C is meant for the daemon, which then ends in good
 * order), no signal mask of ours, and the log as its output. A thread waits for it: that works on every kernel.
 */
#include "fs/drain/agent.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define PROGRAM    "cistern-agent"
#define PATH_BYTES 4200

#define BACKING_FD      3 /* in the agent */
#define BACKING_FD_TEXT "3"
#define MEMORY_FD       4
#define MEMORY_FD_TEXT  "4"

struct agent {
	pid_t pid;
	pthread_t waiter;
	void (*ended)(int status, void *arg);
	void *arg;
	pthread_mutex_t lock;
	bool gone; /* under lock: reaped, the pid may be another's */
};

/* ---- where it is */

static bool is_program(const char *path)
{
	return access(path, X_OK) == 0;
}

static bool find_in_list(const char *list, char *out, size_t cap)
{
	while (list && *list) {
		size_t n = strcspn(list, ":");

		if (n > 0 && (size_t)snprintf(out, cap, "%.*s/" PROGRAM, (int)n, list) < cap && is_program(out))
			return true;
		list += n + (list[n] == ':');
	}
	return false;
}

static bool find_beside_us(char *out, size_t cap)
{
	static const char *const places[] = { "", "../mpi-agent/", "mpi-agent/" };
	char self[PATH_BYTES];
	ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);
	char *slash;

	if (n <= 0)
		return false;
	self[n] = '\0';
	slash = strrchr(self, '/');
	if (!slash)
		return false;
	*slash = '\0';
	for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++)
		if ((size_t)snprintf(out, cap, "%s/%s" PROGRAM, self, places[i]) < cap && is_program(out))
			return true;
	return false;
}

static int find_program(const char *libexec_dir, char *out, size_t cap, struct cistern_error *err)
{
	const char *env = secure_getenv("CISTERN_LIBEXEC");

	if (find_in_list(env, out, cap) || find_in_list(libexec_dir, out, cap) || find_beside_us(out, cap))
		return 0;
	return cistern_error_set(err, -ENOENT,
		"cannot find " PROGRAM " (in CISTERN_LIBEXEC='%s', in %s, beside the daemon): install it there",
		env ? env : "", libexec_dir);
}

/* ---- its life */

static void *wait_thread(void *arg)
{
	struct agent *a = arg;
	siginfo_t info;
	int status = -1;

	while (waitid(P_PID, (id_t)a->pid, &info, WEXITED | WNOWAIT) < 0 && errno == EINTR)
		;
	pthread_mutex_lock(&a->lock);
	while (waitpid(a->pid, &status, 0) < 0 && errno == EINTR)
		;
	a->gone = true;
	pthread_mutex_unlock(&a->lock);
	a->ended(status, a->arg);
	return NULL;
}

static int set_up_files(posix_spawn_file_actions_t *files, int output_fd, int backing_fd, int memory_fd)
{
	int r = posix_spawn_file_actions_addopen(files, STDIN_FILENO, "/dev/null", O_RDONLY, 0);

	for (int fd = STDOUT_FILENO; fd <= STDERR_FILENO && !r; fd++)
		r = output_fd >= 0 ? posix_spawn_file_actions_adddup2(files, output_fd, fd)
				   : posix_spawn_file_actions_addopen(files, fd, "/dev/null", O_WRONLY, 0);
	if (!r && backing_fd >= 0) /* after the output, which may have had this number */
		r = posix_spawn_file_actions_adddup2(files, backing_fd, BACKING_FD);
	if (!r && memory_fd >= 0) /* above both */
		r = posix_spawn_file_actions_adddup2(files, memory_fd, MEMORY_FD);
	return r;
}

static int spawn_with(const char *program, const struct agent_options *opt, int memory_fd, pid_t *ret_pid)
{
	const char *argv[12] = { PROGRAM, opt->command, "--store", opt->store_path };
	size_t argc = 4;
	posix_spawn_file_actions_t files;
	posix_spawnattr_t attr;
	sigset_t none, all;
	int r = posix_spawn_file_actions_init(&files);

	if (r)
		return -r;
	if (opt->snapshot) {
		argv[argc++] = "--snapshot";
		argv[argc++] = opt->snapshot;
	}
	if (opt->backing_fd >= 0) {
		argv[argc++] = "--backing-fd";
		argv[argc++] = BACKING_FD_TEXT;
	}
	if (memory_fd >= 0) {
		argv[argc++] = "--memory-fd";
		argv[argc++] = MEMORY_FD_TEXT;
	}
	r = posix_spawnattr_init(&attr);
	if (r) {
		posix_spawn_file_actions_destroy(&files);
		return -r;
	}
	sigemptyset(&none);
	sigfillset(&all);
	r = set_up_files(&files, opt->output_fd, opt->backing_fd, memory_fd);
	r = r ? r : posix_spawnattr_setsigmask(&attr, &none);
	r = r ? r : posix_spawnattr_setsigdefault(&attr, &all);
	r = r ? r : posix_spawnattr_setpgroup(&attr, 0);
	r = r ? r
	      : posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETPGROUP);
	r = r ? r : posix_spawn(ret_pid, program, &files, &attr, (char *const *)argv, environ);
	posix_spawnattr_destroy(&attr);
	posix_spawn_file_actions_destroy(&files);
	return -r;
}

/* The descriptor of the memory is moved out of the way of those that the agent finds by their numbers. */
static int spawn(const char *program, const struct agent_options *opt, pid_t *ret_pid)
{
	int fd = opt->memory_fd < 0 ? -1 : fcntl(opt->memory_fd, F_DUPFD_CLOEXEC, MEMORY_FD + 1), r;

	if (opt->memory_fd >= 0 && fd < 0)
		return -errno;
	r = spawn_with(program, opt, fd, ret_pid);
	if (fd >= 0)
		close(fd);
	return r;
}

int agent_start(const struct agent_options *opt, struct agent **ret, struct cistern_error *err)
{
	char program[PATH_BYTES];
	struct agent *a = calloc(1, sizeof(*a));
	int r = a ? find_program(opt->libexec_dir, program, sizeof(program), err)
		  : cistern_error_set(err, -ENOMEM, "out of memory");

	if (r) {
		free(a);
		return r;
	}
	a->ended = opt->ended;
	a->arg = opt->arg;
	pthread_mutex_init(&a->lock, NULL);
	r = spawn(program, opt, &a->pid);
	if (r) {
		cistern_error_set(err, r, "cannot start %s: %s", program, strerror(-r));
	} else if ((r = -pthread_create(&a->waiter, NULL, wait_thread, a))) {
		kill(a->pid, SIGKILL);
		waitpid(a->pid, NULL, 0);
		cistern_error_set(err, r, "cannot start a thread: %s", strerror(-r));
	}
	if (r) {
		pthread_mutex_destroy(&a->lock);
		free(a);
		return r;
	}
	*ret = a;
	return 0;
}

pid_t agent_pid(const struct agent *a)
{
	return a->pid;
}

void agent_kill(struct agent *a, int signal)
{
	pthread_mutex_lock(&a->lock);
	if (!a->gone)
		kill(a->pid, signal);
	pthread_mutex_unlock(&a->lock);
}

void agent_destroy(struct agent *a)
{
	if (!a)
		return;
	pthread_join(a->waiter, NULL);
	pthread_mutex_destroy(&a->lock);
	free(a);
}
