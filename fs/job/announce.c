/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Our own kernel, while it moves or removes a directory for one of our processes. It believes the directory's old name until the call returns,
 * when other nodes may have seen the change for long, and it cannot be told: dropping a name waits for the lock of the directory that it is in,
 * which the call holds. So such a call is sent back once, with ESTALE, as if the kernel had had the names from before a change of somebody
 * else's. Linux then takes the same path again and looks at each name anew (LOOKUP_REVAL); and what we say of the two names from then on is good
 * for that one look. Whoever comes by such a name asks us, and waits with the others for the end of the change (tree_is_moving).
 *
 * The second call is known by its thread. What cannot be sent back (the thread has no number here, too many are under way) has the kernel
 * forget all names at once, instead: mark_moving in tree.c. That is right as well, but processes whose working directory is
 * looked up then have none for a moment (getcwd: ENOENT).
 */
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "fs/job/private.h"

#define ANNOUNCE_MAX     64u
#define ANNOUNCE_SECONDS 600 /* whose second call has not come by then has given up: what it looked for is gone */

struct announced {
	pid_t pid; /* of the thread; 0: free */
	bool runs; /* the second call is under way */
	time_t since;
	uint64_t dir[2];
	char name[2][RECORD_NAME_MAX + 1]; /* "": none */
};

struct announce {
	pthread_mutex_t lock;
	_Atomic(unsigned int) num;
	struct announced *at; /* owned: ANNOUNCE_MAX */
};

static time_t now_seconds(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec;
}

/* lock is held. */
static struct announced *find_thread(struct announce *a, pid_t pid)
{
	for (size_t i = 0; i < ANNOUNCE_MAX; i++)
		if (a->at[i].pid == pid)
			return &a->at[i];
	return NULL;
}

/* lock is held. */
static struct announced *find_room(struct announce *a)
{
	time_t now = now_seconds();

	for (size_t i = 0; i < ANNOUNCE_MAX; i++)
		if (!a->at[i].pid || (!a->at[i].runs && now - a->at[i].since > ANNOUNCE_SECONDS))
			return &a->at[i];
	return NULL;
}

static bool is_name(const struct announced *e, size_t which, uint64_t dir, const char *name)
{
	return e->pid && e->dir[which] == dir && strcmp(e->name[which], name) == 0;
}

static bool is_tree_dir(struct job *j, uint64_t dir, const char *name)
{
	struct state_name e;

	return *name && state_lookup(j->state, dir, name, &e) == 0 && e.type == S_IFDIR;
}

/* lock is held. */
static int first_call(struct announce *a, pid_t pid, const uint64_t dir[2], const char *const name[2])
{
	struct announced *e = find_thread(a, pid);

	if (!e && (e = find_room(a)) && !e->pid)
		a->num++;
	if (!e)
		return 0;
	*e = (struct announced){ .pid = pid, .since = now_seconds() };
	for (size_t i = 0; i < 2; i++) {
		e->dir[i] = dir[i];
		strcpy(e->name[i], name[i]);
	}
	return -ESTALE;
}

int job_announce(struct job *j, pid_t pid, const uint64_t dir[2], const char *const name[2])
{
	int rc = 0;

	if (job_alone(j) || !pid || strlen(name[0]) > RECORD_NAME_MAX || strlen(name[1]) > RECORD_NAME_MAX)
		return 0;
	if (!is_tree_dir(j, dir[0], name[0]) && !is_tree_dir(j, dir[1], name[1]))
		return 0;
	pthread_mutex_lock(&j->announce->lock);
	struct announced *e = find_thread(j->announce, pid);
	if (e && is_name(e, 0, dir[0], name[0]) && is_name(e, 1, dir[1], name[1]))
		e->runs = true;
	else
		rc = first_call(j->announce, pid, dir, name);
	pthread_mutex_unlock(&j->announce->lock);
	return rc;
}

void job_announce_end(struct job *j, pid_t pid)
{
	struct announce *a = j->announce;

	if (job_alone(j) || !pid || !a->num)
		return;
	pthread_mutex_lock(&a->lock);
	struct announced *e = find_thread(a, pid);
	if (e) {
		e->pid = 0;
		a->num--;
	}
	pthread_mutex_unlock(&a->lock);
}

/* running: the second call has come. */
static bool find_name(struct job *j, uint64_t dir, const char *name, bool running)
{
	struct announce *a = j->announce;
	bool found = false;

	if (!a->num)
		return false;
	pthread_mutex_lock(&a->lock);
	for (size_t i = 0; !found && i < ANNOUNCE_MAX; i++)
		found = (a->at[i].runs || !running) &&
			(is_name(&a->at[i], 0, dir, name) || is_name(&a->at[i], 1, dir, name));
	pthread_mutex_unlock(&a->lock);
	return found;
}

bool announce_is(struct job *j, uint64_t dir, const char *name)
{
	return find_name(j, dir, name, false);
}

bool announce_runs(struct job *j, uint64_t dir, const char *name)
{
	return find_name(j, dir, name, true);
}

static int announce_create(struct job *j, struct cistern_error *err)
{
	j->announce = calloc(1, sizeof(*j->announce));
	if (!j->announce)
		return cistern_error_set(err, -ENOMEM, "out of memory");
	pthread_mutex_init(&j->announce->lock, NULL);
	j->announce->at = calloc(ANNOUNCE_MAX, sizeof(*j->announce->at));
	return j->announce->at ? 0 : cistern_error_set(err, -ENOMEM, "out of memory");
}

static void announce_destroy(struct job *j)
{
	if (!j->announce)
		return;
	pthread_mutex_destroy(&j->announce->lock);
	free(j->announce->at);
	free(j->announce);
	j->announce = NULL;
}

const struct part announce_part = { .create = announce_create, .destroy = announce_destroy };
