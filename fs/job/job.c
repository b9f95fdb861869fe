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

/* The end of what the log has said of the first call that failed for want of a number. */
static void log_unassembled(struct job *j, const char *event)
{
	uint64_t failed = atomic_exchange(&j->unassembled, 0);

	if (failed)
		job_log(j, false, event, "failed_calls=%" PRIu64, failed);
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
	struct cistern_error err = { 0 };

	if (peers_numbered(j->peers))
		return 0;
	int rc = peers_wait_numbered(j->peers, &err);
	if (rc != -ETIMEDOUT)
		return rc;
	if (atomic_fetch_add(&j->unassembled, 1) == 0)
		job_log(j, true, "job_not_assembled", "text=\"%s\"", err.text);
	return -EIO;
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
