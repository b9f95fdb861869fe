/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Files of other nodes, as our kernel knows them: how often it was told of each, so that the home, which has counted a lookup
 * for each time, is told when it has forgotten it; and where it was found, as long as it is untouched, or under which name.
 */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "format/base/idmap.h"
#include "fs/job/private.h"
#include "fs/job/quiet.h"

#define REMOTE_BUCKETS 65536u
#define REMOTE_TRIES   3 /* directories above that go and come meanwhile */

struct remote_ino {
	struct remote_ino *next;
	uint64_t ino, nlookup, held; /* held: counted by the home */
	uint64_t hint_dir;           /* 0: none */
	char *hint;                  /* owned; NULL: none */
	uint64_t name_dir;           /* and name: where it was looked up last */
	char *name;                  /* owned; NULL: not by a name */
};

struct remote {
	pthread_mutex_t lock;
	struct idmap early; /* files that core has counted look-ups of before we had a number: how many */
	struct remote_ino *buckets[REMOTE_BUCKETS];
};

uint32_t remote_home(struct job *j, uint64_t ino)
{
	uint32_t num = peers_count(j->peers), home = place_ino(ino, num);

	return home < num ? home : peers_self(j->peers);
}

void hint_put(struct wire_msg *m, const struct hint *hint)
{
	if (!hint || !hint->dir)
		return;
	message_put(m, MESSAGE_HINT_DIR, hint->dir);
	message_put_str(m, MESSAGE_HINT, hint->path);
}

void hint_get(const struct wire_msg *m, struct hint *ret)
{
	ret->dir = message_get(m, MESSAGE_HINT_DIR);
	if (!message_get_str(m, MESSAGE_HINT, ret->path, sizeof(ret->path))) {
		ret->dir = 0;
		ret->path[0] = '\0';
	}
}

/* ---- the table */

static struct remote_ino **find(struct remote *r, uint64_t ino)
{
	struct remote_ino **at = &r->buckets[ino * 0x9E3779B97F4A7C15ull >> 48];

	while (*at && (*at)->ino != ino)
		at = &(*at)->next;
	return at;
}

bool remote_has(struct job *j, uint64_t ino)
{
	pthread_mutex_lock(&j->remote->lock);
	bool early = idmap_get(&j->remote->early, ino) > 0, has = *find(j->remote, ino) != NULL;
	pthread_mutex_unlock(&j->remote->lock);
	return has || (early && remote_home(j, ino) != peers_self(j->peers));
}

void remote_note_early(struct job *j, uint64_t ino)
{
	struct remote *r = j->remote;

	pthread_mutex_lock(&r->lock);
	(void)idmap_set(&r->early, ino, idmap_get(&r->early, ino) + 1);
	pthread_mutex_unlock(&r->lock);
}

/* Those of so many look-ups that are forgotten which core has counted before we had a number. The lock is held. */
static uint64_t take_early(struct remote *r, uint64_t ino, uint64_t nlookup)
{
	uint64_t early = idmap_get(&r->early, ino), taken = early < nlookup ? early : nlookup;

	if (taken)
		(void)idmap_set(&r->early, ino, early - taken);
	return taken;
}

void remote_count(struct job *j, uint64_t ino, const struct hint *hint)
{
	struct remote *r = j->remote;

	pthread_mutex_lock(&r->lock);
	struct remote_ino **at = find(r, ino);
	if (!*at && (*at = calloc(1, sizeof(**at))))
		(*at)->ino = ino;
	if (*at) {
		(*at)->nlookup++;
		(*at)->held++;
		if (hint && hint->dir) {
			free((*at)->hint);
			(*at)->hint = strdup(hint->path);
			(*at)->hint_dir = (*at)->hint ? hint->dir : 0;
		}
	}
	pthread_mutex_unlock(&r->lock);
}

bool remote_count_again(struct job *j, uint64_t ino)
{
	pthread_mutex_lock(&j->remote->lock);
	struct remote_ino *r = *find(j->remote, ino);
	if (r)
		r->nlookup++;
	pthread_mutex_unlock(&j->remote->lock);
	return r != NULL;
}

static void note_name(struct job *j, uint64_t ino, uint64_t dir, const char *name)
{
	pthread_mutex_lock(&j->remote->lock);
	struct remote_ino *r = *find(j->remote, ino);
	if (r && (!r->name || strcmp(r->name, name) != 0)) {
		free(r->name);
		r->name = strdup(name);
	}
	if (r)
		r->name_dir = dir;
	pthread_mutex_unlock(&j->remote->lock);
}

bool remote_name(struct job *j, uint64_t ino, uint64_t *ret_dir, char ret_name[RECORD_NAME_MAX + 1])
{
	pthread_mutex_lock(&j->remote->lock);
	struct remote_ino *r = *find(j->remote, ino);
	bool known = r && r->name;
	if (known) {
		*ret_dir = r->name_dir;
		snprintf(ret_name, RECORD_NAME_MAX + 1, "%s", r->name);
	}
	pthread_mutex_unlock(&j->remote->lock);
	return known;
}

void remote_spare(struct job *j, uint64_t ino, uint64_t dir, const char *name)
{
	pthread_mutex_lock(&j->remote->lock);
	struct remote_ino **at = find(j->remote, ino);
	if (!*at && (*at = calloc(1, sizeof(**at))))
		(*at)->ino = ino;
	if (*at)
		(*at)->held++;
	pthread_mutex_unlock(&j->remote->lock);
	note_name(j, ino, dir, name);
}

static void entry_free(struct remote_ino *r)
{
	free(r->hint);
	free(r->name);
	free(r);
}

/* Else the home would keep a file that is removed, for our kernel. */
static const struct tell_kind forget_kind = { .outlives = false };

static void tell_forget(struct job *j, uint64_t ino, uint64_t count)
{
	struct wire_msg m = { 0 };

	message_init(&m, MESSAGE_FILE_FORGET);
	message_put(&m, MESSAGE_INO, ino);
	message_put(&m, MESSAGE_COUNT, count);
	job_tell(j, remote_home(j, ino), &m, &forget_kind);
	wire_msg_free(&m);
}

/* lock is held. NULL: our kernel still knows it. */
static struct remote_ino *take_unused(struct remote_ino **at)
{
	struct remote_ino *r = *at;

	if (!r || r->nlookup > 0)
		return NULL;
	*at = r->next;
	return r;
}

static void give_back(struct job *j, struct remote_ino *gone)
{
	if (!gone)
		return;
	tell_forget(j, gone->ino, gone->held);
	entry_free(gone);
}

void remote_drop_spare(struct job *j, uint64_t ino)
{
	pthread_mutex_lock(&j->remote->lock);
	struct remote_ino *gone = take_unused(find(j->remote, ino));
	pthread_mutex_unlock(&j->remote->lock);
	give_back(j, gone);
}

void remote_forget(struct job *j, uint64_t ino, uint64_t nlookup)
{
	struct remote_ino *gone = NULL;

	pthread_mutex_lock(&j->remote->lock);
	uint64_t early = take_early(j->remote, ino, nlookup), rest = nlookup - early;
	struct remote_ino **at = find(j->remote, ino);
	bool ours = *at == NULL;
	if (*at && rest > 0) {
		(*at)->nlookup -= rest < (*at)->nlookup ? rest : (*at)->nlookup;
		gone = take_unused(at);
	}
	pthread_mutex_unlock(&j->remote->lock);
	if (ours || early > 0)
		core_forget(j->core, ino, ours ? nlookup : early);
	give_back(j, gone);
}

void remote_hint(struct job *j, uint64_t ino, struct hint *ret)
{
	ret->dir = 0;
	ret->path[0] = '\0';
	if (!(ino & STATE_BACKING_INO_BIT))
		return;
	pthread_mutex_lock(&j->remote->lock);
	struct remote_ino *r = *find(j->remote, ino);
	if (r && r->hint && strlen(r->hint) < sizeof(ret->path)) {
		ret->dir = r->hint_dir;
		strcpy(ret->path, r->hint);
	}
	pthread_mutex_unlock(&j->remote->lock);
	if (!r && core_hint(j->core, ino, NULL, &ret->dir, ret->path, sizeof(ret->path)) < 0)
		ret->dir = 0;
}

/* ---- requests */

static int ask(struct job *j, uint32_t home, const struct wire_msg *request, struct wire_msg *reply)
{
	if (home == peers_self(j->peers))
		return home_do(j, home, request, reply);
	return peers_call(j->peers, home, request, reply);
}

int remote_call(struct job *j, uint64_t ino, const struct hint *hint, struct wire_msg *request, struct wire_msg *reply,
	bool *ret_reset)
{
	uint32_t home = remote_home(j, ino);
	struct wire_msg own = { 0 };
	struct hint found;
	bool reset = false;
	int rc;

	if (!hint) {
		remote_hint(j, ino, &found);
		hint = &found;
	}
	message_put(request, MESSAGE_INO, ino);
	hint_put(request, hint);
	if (!reply)
		reply = &own;
	for (int tries = 0;; tries++) {
		rc = ask(j, home, request, reply);
		if (rc == -ECONNRESET) {
			reset = true;
			continue;
		}
		if (rc != -EREMCHG || tries >= REMOTE_TRIES)
			break;
		rc = hint->dir ? tree_know_above(j, hint->dir, hint->path) : -ESTALE;
		if (rc < 0)
			break;
	}
	wire_msg_free(&own);
	if (ret_reset)
		*ret_reset = reset;
	return rc;
}

/* 0, -ENOENT, or that cannot be read. */
static int check_name(struct job *j, uint64_t ino, uint64_t dir, const char *name)
{
	struct state_name e = { .ino = ino };
	int rc = name ? state_lookup(j->state, dir, name, &e) : 0;

	return rc == 0 && e.ino != ino ? -ENOENT : rc;
}

static int lookup_here(
	struct job *j, uint64_t ino, uint64_t dir, const char *name, const struct hint *hint, struct core_entry *ret)
{
	int rc = core_find(j->core, ino, hint ? hint->dir : 0, hint ? hint->path : "");

	if (rc < 0)
		return rc;
	rc = check_name(j, ino, dir, name);
	if (rc == 0)
		rc = core_getattr(j->core, ino, NULL, ret);
	if (rc < 0)
		core_forget(j->core, ino, 1);
	return rc;
}

/* What came of a FILE_GET, under the home's word, if that gave it. */
static void note_seen(struct job *j, const struct quiet_ask *ask, const struct wire_msg *reply, uint64_t dir,
	const char *name, const struct core_entry *e)
{
	struct seen s = { .dir = dir, .name = name, .entry = *e, .bare = message_get(reply, MESSAGE_BARE) };

	seen_put(j, ask->home, quiet_take(j, ask, message_get(reply, MESSAGE_QUIET)), &s);
}

int remote_lookup(
	struct job *j, uint64_t ino, uint64_t dir, const char *name, const struct hint *hint, struct core_entry *ret)
{
	struct wire_msg m = { 0 }, reply = { 0 };
	static const struct hint none;

	if (remote_home(j, ino) == peers_self(j->peers))
		return lookup_here(j, ino, dir, name, hint, ret);
	message_init(&m, MESSAGE_FILE_GET);
	message_put(&m, MESSAGE_COUNT, 1);
	if (name) {
		message_put(&m, MESSAGE_DIR, dir);
		message_put_str(&m, MESSAGE_NAME, name);
	}
	struct quiet_ask asked = quiet_ask(j, remote_home(j, ino));
	int rc = remote_call(j, ino, hint ? hint : &none, &m, &reply, NULL);
	if (rc == 0)
		rc = entry_get(&reply, ret);
	if (rc == 0)
		remote_count(j, ino, hint);
	if (rc == 0 && name) {
		note_name(j, ino, dir, name);
		note_seen(j, &asked, &reply, dir, name, ret);
	}
	wire_msg_free(&m);
	wire_msg_free(&reply);
	return rc;
}

/* ---- life */

static int remote_create(struct job *j, struct cistern_error *err)
{
	j->remote = calloc(1, sizeof(*j->remote));
	if (!j->remote)
		return cistern_error_set(err, -ENOMEM, "out of memory");
	pthread_mutex_init(&j->remote->lock, NULL);
	return 0;
}

static void remote_destroy(struct job *j)
{
	if (!j->remote)
		return;
	for (size_t i = 0; i < REMOTE_BUCKETS; i++)
		for (struct remote_ino *r = j->remote->buckets[i], *next; r; r = next) {
			next = r->next;
			entry_free(r);
		}
	idmap_free(&j->remote->early);
	pthread_mutex_destroy(&j->remote->lock);
	free(j->remote);
	j->remote = NULL;
}

const struct part remote_part = { .create = remote_create, .destroy = remote_destroy };
