/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * A drain moves names in the backing directory first and reports them afterwards; a recovery moves them and cannot report at
 * all. The state of a store that is mounted after either has died must agree with the backing directory before anybody
 * looks, else files below moved directories are missing. A recovery has completed its steps, so they are committed. Of a
 * killed drain's moves it is not known which are complete; they are taken back by the agent, which knows how to.
 */
#include "fs/drain/settle.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "format/store/steps.h"
#include "fs/drain/agent.h"

bool settle_is_due(const char *store_path)
{
	char path[STORE_PATH_MAX + sizeof(INTENT_FILE) + 1];
	struct stat st;
	bool due;
	int fd;

	snprintf(path, sizeof(path), "%s/" INTENT_FILE, store_path);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return false;
	/* An agent whose daemon has died holds it until it notices. */
	due = flock(fd, LOCK_SH | LOCK_NB) != 0 || fstat(fd, &st) != 0 || st.st_size > 0;
	close(fd);
	return due;
}

static bool has(const char *store_path, const char *name)
{
	char path[STORE_PATH_MAX + 64];

	snprintf(path, sizeof(path), "%s/%s", store_path, name);
	return access(path, F_OK) == 0;
}

bool settle_has_temps(const char *store_path)
{
	return has(store_path, TEMPS_FILE) || has(store_path, THROUGH_FILE);
}

void settle_drop_through(const char *store_path)
{
	char path[STORE_PATH_MAX + sizeof(THROUGH_FILE) + 1];

	snprintf(path, sizeof(path), "%s/" THROUGH_FILE, store_path);
	(void)unlink(path); /* what is left of it costs the next drain a look */
}

bool settle_wants_convert(const char *store_path)
{
	return has(store_path, CONVERT_FILE);
}

struct undoing {
	int fd;     /* eventfd: it has ended */
	int status; /* valid then */
};

static void undo_ended(int status, void *arg)
{
	struct undoing *u = arg;

	u->status = status;
	eventfd_write(u->fd, 1);
}

static int wait_for_undo(struct undoing *u, struct agent *agent, struct cistern_error *err)
{
	struct pollfd p = { .fd = u->fd, .events = POLLIN };
	int n = poll(&p, 1, (int)(SETTLE_USEC / 1000));

	if (n <= 0)
		agent_kill(agent, SIGKILL);
	agent_destroy(agent);
	if (n <= 0)
		return cistern_error_set(
			err, -ETIMEDOUT, "cistern-agent undo did not end within %d s", (int)(SETTLE_USEC / 1000000));
	return u->status ? cistern_error_set(err, -EIO, "cistern-agent undo failed; cistern.log says why") : 0;
}

static int run_undo(const struct settle_options *opt, const char *snapshot, struct cistern_error *err)
{
	struct undoing u = { .fd = eventfd(0, EFD_CLOEXEC) };
	struct agent_options agent = {
		.command = "undo",
		.snapshot = snapshot,
		.store_path = store_path(opt->store),
		.libexec_dir = opt->libexec_dir,
		.backing_fd = opt->backing_fd,
		.memory_fd = -1,
		.output_fd = log_fd(opt->log),
		.ended = undo_ended,
		.arg = &u,
	};
	struct agent *a = NULL;
	int r;

	if (u.fd < 0)
		return cistern_error_set(err, -errno, "cannot set up a descriptor: %s", strerror(errno));
	r = agent_start(&agent, &a, err);
	if (!r)
		r = wait_for_undo(&u, a, err);
	close(u.fd);
	return r;
}

static int undo(const struct settle_options *opt, struct cistern_error *err)
{
	char snapshot[64];
	uint64_t seq;
	int r = store_snapshot(opt->store, snapshot, sizeof(snapshot), &seq, err);

	if (r)
		return r;
	r = run_undo(opt, snapshot, err);
	store_remove_snapshot(store_path(opt->store), snapshot); /* what is left of it goes with the next */
	return r;
}

static int take_over(const struct settle_options *opt, struct cistern_error *err)
{
	bool stale;
	size_t num;
	int r = steps_settle(opt->store, opt->report->last_seq, &num, &stale, err);

	if (!r && num)
		log_event(opt->log, LOG_LEVEL_INFO, "recovery-taken-over", "steps=%zu", num);
	if (!r && stale)
		log_event(opt->log, LOG_LEVEL_WARNING, "recovery-stale",
			"text=\"the store has changed since it was recovered; the next drain finds out what was done\"");
	return r;
}

int settle_store(const struct settle_options *opt, char *text, size_t cap, struct cistern_error *err)
{
	struct cistern_error local = { 0 };
	int r = take_over(opt, err);

	*text = '\0';
	if (r || !settle_is_due(store_path(opt->store)))
		return r;
	r = undo(opt, &local);
	log_event(opt->log, r ? LOG_LEVEL_ERROR : LOG_LEVEL_INFO, "undo", "errno=%d text=\"%s\"", -r, local.text);
	if (r)
		snprintf(text, cap,
			"what a killed drain had moved could not be taken back (%.200s): files may be missing until the next "
			"drain, so run 'cistern flush'",
			local.text);
	return 0;
}
