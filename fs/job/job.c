/* SPDX-License-Identifier: GPL-3.0-or-later */
/* The job's life, and that of its parts. */
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "fs/job/hidden.h"
#include "fs/job/private.h"
#include "fs/job/quiet.h"
#include "fs/job/walk.h"

static const struct part *const job_parts[] = { &quiet_part, &untold_part, &tree_log_part, &lag_part, &announce_part,
	&names_part, &rebuild_part, &held_part, &sequence_part, &remote_part, &seen_part, &walk_part, &home_part,
	&handover_part, &times_part, &share_part, &locks_part, &power_part, NULL };

#define PATIENCE_USEC 5000000u /* then it is said whom calls wait for */

/* The end of what the log has said of calls that wait, or fail, for want of a number. */
static void log_unassembled(struct job *j, const char *event)
{
	if (atomic_exchange(&j->told_unassembled, false))
		job_log(j, false, event, "failed_calls=%" PRIu64, job_failed_calls(j));
}

uint64_t job_failed_calls(const struct job *j)
{
	return atomic_load(&j->unassembled);
}

static void tell_parts(enum peers_event event, uint32_t node, void *arg)
{
	struct job *j = arg;

	if (event == PEERS_ASSEMBLED)
		log_unassembled(j, "job_assembled");

	for (const struct part *const *p = job_parts; *p; p++)
		if ((*p)->event)
			(*p)->event(j, event, node);
	if (j->opt.event)
		j->opt.event(event, node, j->opt.arg);
}

static int create_parts(struct job *j, struct cistern_error *err)
{
	struct peers_hooks hooks = {
		.handle = serve_request, .event = tell_parts, .arg = j, .clock = state_clock(j->state)
	};
	int rc = workers_create(j, &j->workers);

	if (rc < 0)
		return cistern_error_set(err, rc, "cannot start threads for the other nodes");
	for (const struct part *const *p = job_parts; rc == 0 && *p; p++)
		if ((*p)->create)
			rc = (*p)->create(j, err);
	if (rc == 0)
		peers_set_hooks(j->peers, &hooks);
	return rc;
}

int job_create(const struct job_options *opt, struct job **ret, struct cistern_error *err)
{
	struct job *j = calloc(1, sizeof(*j));

	if (!j)
		return cistern_error_set(err, -ENOMEM, "out of memory");
	j->opt = *opt;
	j->core = opt->core;
	j->peers = opt->peers;
	j->state = store_state(opt->store);
	j->hidden_page_bytes = HIDDEN_PAGE_BYTES;
	j->knows_cuts = !store_lost_power(opt->store);
	if (j->peers)
		core_join(j->core);
	int rc = j->peers ? create_parts(j, err) : 0;
	if (rc < 0)
		job_destroy(j);
	else
		*ret = j;
	return rc;
}

void job_shut_down(struct job *j)
{
	if (!j->peers)
		return;
	j->ending = true;
	for (const struct part *const *p = job_parts; *p; p++)
		if ((*p)->shut_down)
			(*p)->shut_down(j);
	peers_shut_down(j->peers);
	log_unassembled(j, "job_never_assembled");
}

void job_destroy(struct job *j)
{
	size_t num = sizeof(job_parts) / sizeof(job_parts[0]) - 1;

	if (!j)
		return;
	if (j->peers) {
		job_shut_down(j);
		workers_stop(j->workers);
		for (const struct part *const *p = job_parts; *p; p++)
			if ((*p)->stop)
				(*p)->stop(j);
		while (num-- > 0)
			if (job_parts[num]->destroy)
				job_parts[num]->destroy(j);
		workers_destroy(j->workers); /* threads of the parts may have come to them until now */
	}
	free(j);
}

bool job_is_alone(const struct job *j)
{
	return job_alone(j);
}

int job_wait_numbered(struct job *j)
{
	uint64_t left = config_number(j->opt.cfg, CONFIG_AGENT_TIMEOUT),
		 first = left < PATIENCE_USEC ? left : PATIENCE_USEC;
	struct cistern_error err = { 0 };

	if (peers_numbered(j->peers))
		return 0;
	atomic_fetch_add(&j->waiting_numbered, 1);
	int rc = peers_wait_numbered(j->peers, first, &err);
	if (rc == -ETIMEDOUT) {
		if (!atomic_exchange(&j->told_unassembled, true))
			job_log(j, true, "job_not_assembled", "text=\"calls wait: %s\"", err.text);
		rc = peers_wait_numbered(j->peers, left - first, &err);
	}
	atomic_fetch_sub(&j->waiting_numbered, 1);
	if (rc != -ETIMEDOUT)
		return rc;
	if (atomic_fetch_add(&j->unassembled, 1) == 0)
		job_log(j, true, "job_call_failed", "text=\"%s\"", err.text);
	return -EIO;
}

void job_unassembled_trouble(struct job *j, void (*say)(const char *text, void *arg), void *arg)
{
	uint64_t failed = job_failed_calls(j);
	unsigned int waiting = atomic_load(&j->waiting_numbered);
	char text[256];

	if (peers_numbered(j->peers) || (failed == 0 && waiting == 0))
		return;
	snprintf(text, sizeof(text),
		"the agents of the job, which have not assembled yet: calls that wait for them: %u, that have failed: %" PRIu64
		"; start them on all nodes (cistern agent)",
		waiting, failed);
	say(text, arg);
}

bool job_is_unwanted(struct job *j)
{
	return j->opt.unwanted && j->opt.unwanted(j->opt.arg);
}

void job_log_self(struct job *j, const char *event)
{
	char name[128];

	job_log(j, false, event, "node=\"%s\"", peers_name(j->peers, peers_self(j->peers), name, sizeof(name)));
}

void job_log(struct job *j, bool error, const char *event, const char *fmt, ...)
{
	char facts[CISTERN_ERROR_TEXT_BYTES + 64]; /* an error's text whole, in quotes */
	va_list args;

	if (!j->opt.log)
		return;
	va_start(args, fmt);
	vsnprintf(facts, sizeof(facts), fmt, args);
	va_end(args);
	j->opt.log(error, event, facts, j->opt.arg);
}
