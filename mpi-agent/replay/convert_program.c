/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * The program gets the files as descriptors from 4 on, opened by us, so that no path is followed again; and tells on its
 * standard output, in lines of a word and a value. Its own words are not trusted further than that the file was made and
 * compared: it is another process because HDF5 may fail in any way.
 */
#include "mpi-agent/replay/convert_program.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define PROGRAM    "cistern-nc4"
#define IN_FD      4
#define OUT_FD     5
#define PARCEL_FD  6 /* and those behind it */
#define ARGS_MAX   16
#define IN_PATH    "/proc/self/fd/4"
#define OUT_PATH   "/proc/self/fd/5"
#define PATH_BYTES 4200
#define SAID_BYTES 8192
#define TICK_MSEC  20

struct run {
	pid_t pid;
	int fd; /* owned: what it says */
	char said[SAID_BYTES];
	size_t len;
};

/* Where this program is. */
static bool find_program(char *out, size_t cap)
{
	const char *list = secure_getenv("CISTERN_LIBEXEC");
	ssize_t n;

	while (list && *list) {
		size_t len = strcspn(list, ":");

		if (len > 0 && (size_t)snprintf(out, cap, "%.*s/" PROGRAM, (int)len, list) < cap &&
			access(out, X_OK) == 0)
			return true;
		list += len + (list[len] == ':');
	}
	n = readlink("/proc/self/exe", out, cap - sizeof(PROGRAM) - 1);
	if (n <= 0)
		return false;
	out[n] = '\0';
	if (!strrchr(out, '/'))
		return false;
	strcpy(strrchr(out, '/') + 1, PROGRAM);
	return access(out, X_OK) == 0;
}

#define FILES_MAX (PARCEL_FD + CONVERT_PARCELS_MAX)

struct handing {            /* descriptors that the program gets: from IN_FD on, -1: none */
	int fds[FILES_MAX]; /* owned: copies that are not in each other's way */
	int end;
};

static int hand_over(struct handing *h, int fd)
{
	int copy = fd < 0 ? -1 : fcntl(fd, F_DUPFD_CLOEXEC, FILES_MAX);

	h->fds[h->end++] = copy;
	return fd >= 0 && copy < 0 ? -errno : 0;
}

static void end_handing(struct handing *h)
{
	for (int i = IN_FD; i < h->end; i++)
		if (h->fds[i] >= 0)
			close(h->fds[i]);
}

static int set_up_files(posix_spawn_file_actions_t *files, const struct handing *h, int said)
{
	int r = posix_spawn_file_actions_addopen(files, STDIN_FILENO, "/dev/null", O_RDONLY, 0);

	r = r ? r : posix_spawn_file_actions_adddup2(files, said, STDOUT_FILENO);
	for (int i = IN_FD; r == 0 && i < h->end; i++)
		if (h->fds[i] >= 0)
			r = posix_spawn_file_actions_adddup2(files, h->fds[i], i);
	return r;
}

static int hand_all(const struct convert_task *t, struct handing *h)
{
	int r = hand_over(h, t->in);

	if (r == 0)
		r = hand_over(h, t->out);
	for (uint32_t i = 0; r == 0 && t->step == CONVERT_MAKE && i < t->num; i++)
		r = hand_over(h, t->parcels[i]);
	return r;
}

static int start_program(const char *program, const char *const *argv, const struct handing *h, struct run *run)
{
	posix_spawn_file_actions_t files;
	int fds[2], r;

	if (pipe2(fds, O_CLOEXEC))
		return -errno;
	r = -posix_spawn_file_actions_init(&files);
	if (r == 0) {
		r = -set_up_files(&files, h, fds[1]);
		r = r ? r : -posix_spawn(&run->pid, program, &files, NULL, (char *const *)argv, environ);
		posix_spawn_file_actions_destroy(&files);
	}
	close(fds[1]);
	if (r < 0)
		close(fds[0]);
	run->fd = fds[0];
	return r;
}

static int spawn(const char *program, const char *settings, const struct convert_task *t, struct run *run)
{
	static const char *const steps[] = {
		[CONVERT_PACK] = "pack", [CONVERT_MAKE] = "make", [CONVERT_CHECK] = "check"
	};
	const char *argv[ARGS_MAX] = { PROGRAM, "-o", settings, "-o", t->options, IN_PATH, OUT_PATH };
	char share[32], parcels[16];
	struct handing h = { .end = IN_FD };
	size_t n = 7;
	int r = hand_all(t, &h);

	snprintf(share, sizeof(share), "%u/%u", t->which, t->num);
	snprintf(parcels, sizeof(parcels), "%u", t->num);
	if (t->step != CONVERT_ALL) {
		argv[n++] = "--step";
		argv[n++] = steps[t->step];
	}
	if (t->step == CONVERT_PACK || t->step == CONVERT_CHECK) {
		argv[n++] = "--share";
		argv[n++] = share;
	}
	if (t->step == CONVERT_MAKE) {
		argv[n++] = "--parcels";
		argv[n++] = parcels;
	}
	if (r == 0)
		r = start_program(program, argv, &h, run);
	end_handing(&h);
	return r;
}

/* Takes what there is. 1: more may come; 0: the end. */
static int listen_to(struct run *run)
{
	ssize_t n = read(run->fd, run->said + run->len, sizeof(run->said) - 1 - run->len);

	if (n < 0)
		return errno == EINTR;
	run->len += (size_t)n;
	return n > 0;
}

/* Until it has closed its output. The daemon is told meanwhile that we are there, and may stop us. */
static int follow(struct session *s, struct run *run)
{
	struct pollfd p = { .fd = run->fd, .events = POLLIN };
	int r = 0, more = 1;

	while (r == 0 && more) {
		int n = poll(&p, 1, TICK_MSEC);

		if (n > 0)
			more = listen_to(run);
		else if (n < 0 && errno != EINTR)
			more = 0;
		r = session_tick(s, false);
	}
	return r;
}

static int wait_for(struct run *run)
{
	int status = 0;

	while (waitpid(run->pid, &status, 0) < 0 && errno == EINTR)
		;
	return status;
}

/* ---- what it said */

static bool is_number(const char *text)
{
	char *end;

	strtod(text, &end);
	return *text && !*end;
}

static void take_line(struct convert_result *ret, char *line)
{
	char *value = strchr(line, ' ');
	struct manifest_fact *fact = &ret->facts[ret->num_facts];

	if (!value)
		return;
	*value++ = '\0';
	if (strcmp(line, "result") == 0) {
		ret->converted = strcmp(value, "failed") != 0 && strcmp(value, "kept") != 0;
		ret->by_nature = strcmp(value, "kept") == 0;
	} else if (strcmp(line, "reason") == 0) {
		snprintf(ret->reason, sizeof(ret->reason), "%s", value);
	} else if (ret->num_facts < CONVERT_FACTS) {
		snprintf(fact->name, sizeof(fact->name), "%.31s", line);
		snprintf(fact->value, sizeof(fact->value), "%.95s", value);
		fact->is_number = is_number(fact->value);
		ret->num_facts++;
	}
}

void convert_facts_decode(char *text, struct convert_result *ret)
{
	char *save = NULL;

	for (char *line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save))
		take_line(ret, line);
}

size_t convert_facts_encode(const struct convert_result *res, char *out, size_t cap)
{
	size_t len = 0;

	for (size_t i = 0; i < res->num_facts && len < cap; i++)
		len += (size_t)snprintf(out + len, cap - len, "%s %s\n", res->facts[i].name, res->facts[i].value);
	return len < cap ? len : cap - 1;
}

uint64_t convert_cpu_usec(const struct convert_result *res)
{
	uint64_t sum = 0;

	for (size_t i = 0; i < res->num_facts; i++)
		if (strstr(res->facts[i].name, "_cpu_usec"))
			sum += strtoull(res->facts[i].value, NULL, 10);
	return sum;
}

static void take_said(struct run *run, int status, struct convert_result *ret)
{
	run->said[run->len] = '\0';
	convert_facts_decode(run->said, ret);
	if (ret->converted && status == 0)
		return;
	ret->converted = false;
	if (WIFSIGNALED(status))
		snprintf(ret->reason, sizeof(ret->reason), PROGRAM " ended with signal %d (%s)", WTERMSIG(status),
			strsignal(WTERMSIG(status)));
	else if (!ret->reason[0])
		snprintf(ret->reason, sizeof(ret->reason), PROGRAM " ended with status %d", WEXITSTATUS(status));
}

int convert_program_run(struct session *s, const struct convert_task *task, struct convert_result *ret)
{
	char program[PATH_BYTES];
	struct run run = { .len = 0 };
	int r, status;

	*ret = (struct convert_result){ 0 };
	if (!find_program(program, sizeof(program))) {
		snprintf(ret->reason, sizeof(ret->reason),
			PROGRAM " is not installed: this Cistern was built without HDF5");
		return 0;
	}
	r = spawn(program, s->opt->convert->settings, task, &run);
	if (r < 0) {
		snprintf(ret->reason, sizeof(ret->reason), PROGRAM " cannot be started: %s", strerror(-r));
		return 0;
	}
	r = follow(s, &run);
	if (r < 0)
		kill(run.pid, SIGKILL);
	status = wait_for(&run);
	close(run.fd);
	take_said(&run, status, ret);
	return r;
}
