/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * The frame of a drain session: progress, pauses, the rate, and the order of done, durable, reported. A step is first
 * done in the destination, then applied to our copy of the state (so that later paths are right), and it is reported only
 * after the names it changed are synced. If we are killed in between, the next session finds out (locate.c). What the
 * manifest is to say of it is in the log before it is reported: behind that nobody would say it.
 */
#include "mpi-agent/replay/session.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "format/base/clock.h"
#include "format/base/units.h"
#include "mpi-agent/plan/names.h"
#include "mpi-agent/replay/copy.h"
#include "mpi-agent/replay/located.h"

#define TICK_USEC     20000u /* so late does a drain notice that an application has begun to write */
#define PAUSE_USEC    200000u
#define SLEEP_USEC    50000u
#define REST_MAX_USEC 1000000u
#define MOVES_USEC    20000u /* a living mount does not know where a moved file is until it is told */
#define NAMES_AT_ONCE 256
#define USEC_PER_SEC  1e6

static void sleep_usec(uint64_t usec)
{
	struct timespec t = { (time_t)(usec / 1000000), (long)(usec % 1000000) * 1000 };

	nanosleep(&t, NULL);
}

/* For other reasons than to make way: it is no work after which a rest is due. */
static void wait_usec(struct session *s, uint64_t usec)
{
	uint64_t began = clock_usec();

	sleep_usec(usec);
	s->rested_usec += clock_usec() - began;
}

int session_end(struct session *s, int r, const char *why)
{
	if (s->fatal == 0) {
		s->fatal = r;
		if (s->err && s->err->code == 0)
			cistern_error_set(s->err, r, "%s: %s", why, strerror(-r));
	}
	return s->fatal;
}

int session_tick(struct session *s, bool now)
{
	const struct drain_watcher *w = &s->opt->watcher;
	int r;

	if (s->fatal)
		return s->fatal;
	if (!w->tick || (!now && clock_usec() - s->last_tick_usec < TICK_USEC))
		return 0;
	for (;;) {
		r = w->tick(&s->progress, &s->control, w->arg);
		s->last_tick_usec = clock_usec();
		if (r < 0)
			return session_end(s, r, "nobody follows this drain any more");
		if (s->control.cancel)
			return session_end(
				s, -ECANCELED, "the drain was cancelled; a next one goes on where it stopped");
		if (!s->control.paused)
			return 0;
		wait_usec(s, PAUSE_USEC);
	}
}

void session_plan(struct session *s, uint64_t bytes)
{
	s->progress.planned_bytes += bytes;
	if (s->opt->verify >= DRAIN_VERIFY_READ)
		s->progress.verify_bytes += bytes;
}

/* As below. */
void session_done(struct session *s, uint64_t bytes)
{
	s->progress.done_bytes += bytes;
	if (s->progress.planned_bytes < s->progress.done_bytes)
		s->progress.planned_bytes = s->progress.done_bytes;
}

/* Plans leave out what nobody can know before: headers of subfiles, holes of new files. */
void session_verified(struct session *s, uint64_t bytes)
{
	struct drain_progress *p = &s->progress;

	p->verified_bytes += bytes;
	if (p->verify_bytes < p->verified_bytes)
		p->verify_bytes = p->verified_bytes;
}

/* After so much work. A limit: what was slow for other reasons, such as a file system that hung, is not atoned for. */
uint64_t session_rest_usec(uint64_t worked_usec, unsigned int share_percent)
{
	uint64_t rest = worked_usec * (100 - share_percent) / share_percent;

	return rest < REST_MAX_USEC ? rest : REST_MAX_USEC;
}

int session_make_way(struct session *s)
{
	uint64_t now = clock_usec(), began = now, worked = now - s->rested_usec, rest;
	int r = session_tick(s, false);

	while (r == 0) {
		rest = session_rest_usec(worked, s->control.share_percent);
		if (now - began >= rest)
			break;
		rest -= now - began;
		sleep_usec(rest < TICK_USEC ? rest : TICK_USEC);
		r = session_tick(s, false);
		now = clock_usec();
	}
	s->rested_usec = now;
	return r;
}

/* A bucket that fills at the rate and holds what half a second gives; it may be overdrawn by one window. */
int session_throttle(struct session *s, uint64_t bytes)
{
	int r = session_tick(s, false);

	while (r == 0 && s->control.rate > 0) {
		uint64_t now = clock_usec();
		double rate = (double)s->control.rate;

		s->tokens += rate * (double)(now - s->last_token_usec) / USEC_PER_SEC;
		s->last_token_usec = now;
		if (s->tokens > rate / 2)
			s->tokens = rate / 2;
		if (s->tokens >= 0) {
			s->tokens -= (double)bytes;
			break;
		}
		wait_usec(s, SLEEP_USEC);
		r = session_tick(s, false);
	}
	return r < 0 ? r : session_make_way(s);
}

void session_set_path(struct session *s, const char *path)
{
	snprintf(s->path, sizeof(s->path), "%s", path);
}

/* Of the store's device: what can be drained is, since that makes room there. */
static bool is_full(int r)
{
	return r == -ENOSPC || r == -EDQUOT;
}

int session_intend(struct session *s, const struct record *rec, const char *from, const char *to, const char *beside,
	bool is_dir, const struct stat *made)
{
	int r = s->intent ? intent_add(s->intent, rec, from, to, beside, is_dir, made) : 0;

	if (is_full(r))
		return -ENOBUFS;
	return r < 0 ? session_end(s, r, "the store cannot be written") : 0;
}

/* It is about what was not taken, or lies in it, or in the place where that comes back to. */
static bool follows(const struct record *rec, const struct record *refused)
{
	if (refused->type != RECORD_PLACED)
		return false;
	if (refused->ino == rec->parent || (rec->type == RECORD_DRAINED && refused->ino == rec->ino))
		return true;
	return rec->type == RECORD_PLACED && refused->flags & RECORD_F_MOVED && refused->from_parent == rec->parent &&
	       strcmp(refused->from_name, rec->name) == 0;
}

/* Such a step must not be reported either. */
static bool follows_refused(const struct session *s, size_t at)
{
	for (size_t i = 0; i < at; i++)
		if (s->refused[i] && follows(&s->steps[at], &s->steps[i]))
			return true;
	return false;
}

int session_flush_manifest(struct session *s)
{
	int r = s->opt->manifest ? manifest_flush(s->opt->manifest) : 0;

	return r < 0 && !is_full(r) ? session_end(s, r, "the manifest's log cannot be written") : 0;
}

static int report_steps(struct session *s, bool *ret_refused)
{
	const struct drain_watcher *w = &s->opt->watcher;
	int r = session_flush_manifest(s);

	*ret_refused = false;
	s->num_told = 0;
	if (r < 0)
		return r;
	for (size_t i = 0; i < s->num_steps; i++) {
		r = *ret_refused && follows_refused(s, i) ? -ENOENT : w->step ? w->step(&s->steps[i], w->arg) : 0;
		s->refused[i] = r == -ENOENT || r == -ESTALE;
		*ret_refused |= s->refused[i];
		if (s->kept && r == 0)
			r = steps_add(s->kept, &s->steps[i]);
		if (r < 0 && !s->refused[i])
			return session_end(s, r, "a step could not be reported");
		s->num_told += !s->kept;
	}
	r = s->kept ? steps_write(s->kept) : 0;
	if (r == 0)
		s->num_told = s->num_steps;
	return r;
}

int session_rename_new(struct session *s, const char *from, const char *to, bool is_dir)
{
	struct stat st;
	int r = is_dir ? -EOPNOTSUPP : s->to->ops->rename_new(s->to, from, to);

	if (r != -EOPNOTSUPP)
		return r;
	r = s->to->ops->stat(s->to, to, &st);
	if (r == -ENOENT)
		return s->to->ops->rename(s->to, from, to, is_dir);
	return r == 0 ? -EEXIST : r;
}

/* What was moved by rec is under name now, in the directory that it came from: so it is in our state. */
static int apply_back(struct session *s, const struct record *rec, const char *name)
{
	struct record back = *rec;

	back.parent = rec->from_parent;
	memcpy(back.name, name, sizeof(back.name));
	back.from_parent = rec->parent;
	memcpy(back.from_name, rec->name, sizeof(back.from_name));
	back.seq = state_seq(s->st) + 1;
	return state_apply(s->st, &back);
}

static void tell_moved(struct session *s, const char *from, const char *to)
{
	if (s->opt->manifest && strcmp(from, to) != 0)
		manifest_add_moved(s->opt->manifest, from, to);
}

/* Its old name, at from, is another file's by now. The mount has it there: *rec becomes the step from there. 1 */
static int park_moved(struct session *s, struct record *rec, const char *to, const char *from, bool is_dir)
{
	char name[RECORD_NAME_MAX + 1] = "", park[SESSION_PATH_MAX];
	struct record intended = *rec;
	int r;

	names_park_name(rec->ino, name);
	intended.parent = rec->from_parent;
	memcpy(intended.name, name, sizeof(intended.name));
	r = state_backing_child_path(s->st, rec->from_parent, name, park, sizeof(park));
	if (r == 0 && strcmp(to, park) != 0) {
		r = session_intend(s, &intended, to, park, "", is_dir, NULL);
		if (r == 0)
			r = session_rename_new(s, to, park, is_dir);
		if (r == 0)
			r = apply_back(s, rec, name);
	}
	if (r < 0)
		return r;
	tell_moved(s, to, from); /* what is said of it there is so beside that, too */
	tell_moved(s, from, park);
	rec->parent = rec->from_parent;
	memcpy(rec->name, name, sizeof(rec->name));
	return 1;
}

/* Back from to, where nothing has come meanwhile, and so in our state: nobody else may be given the name. 1: it is parked beside that. */
static int undo_moved(struct session *s, struct record *rec, const char *to, bool is_dir)
{
	char from[SESSION_PATH_MAX];
	int r = state_backing_child_path(s->st, rec->from_parent, rec->from_name, from, sizeof(from));

	if (r == 0)
		r = session_rename_new(s, to, from, is_dir);
	if (r == -EEXIST && strcmp(to, from) != 0)
		return park_moved(s, rec, to, from, is_dir);
	if (r < 0)
		return r;
	tell_moved(s, to, from);
	return apply_back(s, rec, rec->from_name);
}

/* A name in a directory that the mount has given up since: back to where it was, or away with it. 1: *rec is to be told now. */
static int undo_placed(struct session *s, struct record *rec)
{
	char to[SESSION_PATH_MAX];
	struct stat st;
	int r = state_backing_child_path(s->st, rec->parent, rec->name, to, sizeof(to));
	bool known = r == 0, moves = rec->flags & RECORD_F_MOVED;

	if (r == 0)
		r = s->to->ops->stat(s->to, to, &st);
	if (r == 0 && rec->backing_ino && rec->backing_ino != st.st_ino)
		r = -ENOENT; /* somebody else's by now */
	if (r == 0)
		r = moves ? undo_moved(s, rec, to, S_ISDIR(st.st_mode))
			  : s->to->ops->remove(s->to, to, S_ISDIR(st.st_mode));
	if (s->opt->manifest && known && (r == -ENOENT || (r == 0 && !moves))) {
		beside_to_shown(to, rec->ino);
		manifest_add_gone(s->opt->manifest, to);
	}
	if (idmap_set(&s->inodes, rec->ino, INODE_IS_FAILED) < 0 || idmap_set(&s->given_up, rec->ino, 1) < 0)
		return -ENOMEM;
	return r == -ENOENT ? 0 : r;
}

/* Of the steps, those are left that are to be told for that. */
static int undo_refused(struct session *s)
{
	size_t num = s->num_steps, left = num;
	int r = 0;

	for (size_t i = num; r >= 0 && i-- > 0;) {
		r = s->refused[i] && s->steps[i].type == RECORD_PLACED ? undo_placed(s, &s->steps[i]) : 0;
		if (r >= 0)
			s->refused[i] = false;
		if (r > 0)
			s->steps[--left] = s->steps[i];
	}
	if (r >= 0)
		r = s->to->ops->sync_names(s->to);
	if (r < 0)
		return session_end(s, r, "what the mount has given up cannot be taken back");
	s->num_steps = num - left;
	memmove(s->steps, s->steps + left, s->num_steps * sizeof(*s->steps));
	return 0;
}

static void forget_shown(struct session *s)
{
	for (size_t i = 0; i <= SESSION_STEPS; i++) {
		free(s->shown[i]);
		s->shown[i] = NULL;
	}
}

/* What has been parked, since it could not be taken back, and whose directory the mount has given up, too, stays there. */
static int tell_steps(struct session *s)
{
	bool refused;
	int r = report_steps(s, &refused);

	if (r < 0 || !refused)
		return r;
	r = undo_refused(s);
	if (r < 0)
		return r;
	forget_shown(s);
	if (s->num_steps > 0)
		r = report_steps(s, &refused);
	s->num_told = s->num_steps;
	return r;
}

int session_sync_names(struct session *s)
{
	int r = s->to->ops->sync_names(s->to);

	return r < 0 ? session_end(s, r, "the destination cannot make names durable") : 0;
}

int session_flush_steps(struct session *s)
{
	int r = s->fatal;

	if (s->num_steps == 0 || r < 0)
		return r;
	r = session_sync_names(s);
	if (r < 0)
		return r;
	r = tell_steps(s);
	if (r < 0)
		return session_end(s, r, "the steps of the recovery cannot be written");
	s->num_steps = 0;
	s->num_told = 0;
	s->first_move_usec = 0;
	forget_shown(s);
	r = s->intent ? intent_clear(s->intent) : 0;
	return r < 0 ? session_end(s, r, "the store cannot be written") : session_tick(s, false);
}

static bool wants_flush(struct session *s, const struct record *rec)
{
	uint64_t now;

	if (s->num_steps == SESSION_STEPS)
		return true;
	if (s->first_move_usec == 0 && !(rec->flags & RECORD_F_MOVED))
		return false;
	now = clock_usec();
	if (s->first_move_usec == 0)
		s->first_move_usec = now;
	return s->opt->watcher.step && now - s->first_move_usec >= MOVES_USEC;
}

int session_step(struct session *s, const struct record *rec)
{
	struct record *step;
	int r;

	if (s->fatal)
		return s->fatal;
	step = &s->steps[s->num_steps];
	*step = *rec;
	step->seq = state_seq(s->st) + 1;
	r = state_apply(s->st, step);
	if (r < 0)
		return session_end(s, r, "the store's state does not take a step of the drain: run cistern fsck");
	s->num_steps++;
	return wants_flush(s, rec) ? session_flush_steps(s) : session_tick(s, false);
}

int session_told(struct session *s, const struct record *rec, const char *shown)
{
	char *copy = strdup(shown);

	free(s->shown[s->num_steps]);
	s->shown[s->num_steps] = copy;
	s->steps[s->num_steps] = *rec;
	return copy ? session_step(s, rec) : session_end(s, -ENOMEM, "the drain stopped");
}

/* For the mount the file is as it was before. */
static void take_back_drained(struct session *s, uint64_t ino, const char *shown)
{
	manifest_add_file(s->opt->manifest,
		&(struct manifest_file){ .path = shown,
			.state = "failed",
			.error = s->fatal,
			.error_text = "the drain ended before it could say that this was drained: run cistern flush" });
	(void)links_tell(s, ino, shown);
}

/* Names are taken back by who started us (intent_undo). */
static void take_back_placed(struct session *s, const struct record *rec, const char *shown)
{
	bool moves = rec->flags & RECORD_F_MOVED;
	char path[SESSION_PATH_MAX];
	int r = moves ? state_backing_child_path(s->st, rec->from_parent, rec->from_name, path, sizeof(path))
		      : state_backing_child_path(s->st, rec->parent, rec->name, path, sizeof(path));

	if (r == 0)
		beside_to_shown(path, rec->ino);
	if (r == 0 && !moves)
		manifest_add_gone(s->opt->manifest, path);
	if (r == 0 && moves && shown)
		tell_moved(s, shown, path);
	if (r == 0 && moves)
		(void)apply_back(s, rec, rec->from_name);
}

/* The session has ended: what the manifest has of steps that nobody was told of is not so. The last first, and what is said of files before their names go. */
static void take_back_untold(struct session *s)
{
	bool untold[SESSION_STEPS + 1];

	for (size_t i = s->num_steps + 1; i-- > 0;) {
		untold[i] = i >= s->num_told || s->refused[i];
		if (s->shown[i] && untold[i] && s->steps[i].type == RECORD_DRAINED)
			take_back_drained(s, s->steps[i].ino, s->shown[i]);
	}
	for (size_t i = s->num_steps; i-- > 0;)
		if (untold[i] && s->steps[i].type == RECORD_PLACED)
			take_back_placed(s, &s->steps[i], s->shown[i]);
	forget_shown(s);
}

int session_fail(struct session *s, uint64_t ino, const char *path, int code, const char *fmt, ...)
{
	const struct drain_watcher *w = &s->opt->watcher;
	char text[CISTERN_ERROR_TEXT_BYTES];
	va_list ap;

	if (s->fatal)
		return s->fatal;
	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	s->result.totals.failed++;
	if (ino && idmap_set(&s->inodes, ino, INODE_IS_FAILED) < 0)
		return session_end(s, -ENOMEM, "no memory for the list of failed files");
	if (w->error)
		w->error(path, code, text, w->arg);
	if (s->opt->manifest)
		manifest_add_file(s->opt->manifest,
			&(struct manifest_file){ .path = path, .state = "failed", .error = code, .error_text = text });
	return 0;
}

static int fail_no_space(struct session *s, uint64_t ino, const char *path, uint64_t need)
{
	char need_text[UNITS_TEXT], free_text[UNITS_TEXT];
	uint64_t free_bytes = 0;

	s->to->ops->space(s->to, &free_bytes);
	units_format_bytes(free_bytes, free_text);
	if (need == 0)
		return session_fail(s, ino, path, -ENOSPC,
			"backing directory is full (%s free): free space there and run cistern flush", free_text);
	return session_fail(s, ino, path, -ENOSPC,
		"backing directory is full (needs %s, %s free): free space there and run cistern flush",
		units_format_bytes(need, need_text), free_text);
}

const char *session_missing_text(bool in_place)
{
	return in_place ? "the file has what it had there before, or zeros behind its old end" : "they are zeros";
}

/* Those of the ranges that only node's lost store had; NULL: the backing file. How many bytes. */
static uint64_t say_missing(struct session *s, const char *path, bool in_place, const struct manifest_range *missing,
	size_t num, const char *node)
{
	const struct drain_watcher *w = &s->opt->watcher;
	uint64_t bytes = 0, first = 0;
	char text[384];

	for (size_t i = 0; i < num; i++)
		if (missing[i].node == node) {
			first = bytes == 0 ? missing[i].off : first;
			bytes += missing[i].len;
		}
	if (bytes == 0 || !w->error)
		return bytes;
	snprintf(text, sizeof(text),
		"%" PRIu64 " bytes, the first at offset %" PRIu64
		", were not there to be read, %s%s: %s; the manifest lists them%s",
		bytes, first, node ? "since only the lost store has them, of " : "in the backing file",
		node ? node : "", session_missing_text(in_place),
		first == 0 ? "; without its beginning, no program opens it as what it was" : "");
	w->error(path, -ENODATA, text, w->arg);
	return bytes;
}

uint64_t session_missing(
	struct session *s, const char *path, bool in_place, const struct manifest_range *missing, size_t num)
{
	uint64_t bytes = say_missing(s, path, in_place, missing, num, NULL);

	for (uint32_t i = 0; i < s->opt->num_lost; i++)
		if (s->opt->lost[i])
			bytes += say_missing(s, path, in_place, missing, num, s->opt->lost[i]);
	s->result.totals.missing_bytes += bytes;
	return bytes;
}

int session_fail_errno(struct session *s, uint64_t ino, const char *path, int code, const char *doing, uint64_t need)
{
	switch (-code) {
	case ENOSPC: return fail_no_space(s, ino, path, need);
	case EDQUOT:
		return session_fail(s, ino, path, code,
			"%s: the quota in the backing directory is used up: free space or raise it, then run cistern flush",
			doing);
	case ENOBUFS:
		return session_fail(s, ino, path, code,
			"%s: the store's own device is full, and what is begun is noted there: free space on it, then run "
			"cistern flush",
			doing);
	case EACCES:
	case EPERM:
		return session_fail(s, ino, path, code,
			"%s: no permission in the backing directory: allow it there, then run cistern flush", doing);
	case EROFS:
		return session_fail(s, ino, path, code,
			"%s: the backing directory is read-only: mount it read-write, then run cistern flush", doing);
	case ENOENT:
		return session_fail(s, ino, path, code,
			"%s: it, or a directory above it, has vanished from the backing directory: put it back and run "
			"cistern flush, or get the data with cistern recover --to another directory",
			doing);
	case ESTALE:
		return session_fail(s, ino, path, code,
			"%s: somebody else has replaced it in the backing directory: put the original back and run cistern "
			"flush, or get the data with cistern recover --to another directory",
			doing);
	default: return session_fail(s, ino, path, code, "%s: %s", doing, strerror(-code));
	}
}

bool session_has_gone(struct session *s, const struct inode *in)
{
	struct record rec = { .type = RECORD_PLACED,
		.ino = in->ino,
		.gen = in->gen,
		.parent = in->origin_parent,
		.backing_dev = in->backing_dev,
		.backing_ino = in->backing_ino };

	if (!session_may_be_late(s) || !in->backing_ino)
		return false;
	memcpy(rec.name, in->origin_name, sizeof(rec.name));
	return s->opt->watcher.occupied(&rec, s->opt->watcher.arg) == 0;
}

int session_late(struct session *s, uint64_t ino, const char *path, const char *text)
{
	const struct drain_watcher *w = &s->opt->watcher;

	s->result.totals.late++;
	if (w->late)
		w->late(path, text, w->arg);
	return ino ? idmap_set(&s->inodes, ino, INODE_IS_FAILED) : 0;
}

static const char *skip_slashes(const char *p)
{
	while (*p == '/')
		p++;
	return p;
}

/* Filters are relative to the mount's root, or absolute in it. */
static bool is_below(const struct session *s, const char *filter, const char *path)
{
	const char *mount = store_superblock(s->opt->store)->mountpoint;
	size_t len = strlen(mount);

	if (len > 0 && strncmp(filter, mount, len) == 0 && (filter[len] == '/' || filter[len] == '\0'))
		filter += len;
	filter = skip_slashes(filter);
	len = strlen(filter);
	while (len > 0 && filter[len - 1] == '/')
		len--;
	if (len == 0 || (len == 1 && filter[0] == '.'))
		return true;
	return strncmp(path, filter, len) == 0 && (path[len] == '/' || path[len] == '\0');
}

bool session_selected(const struct session *s, const char *path)
{
	for (size_t i = 0; i < s->opt->num_filters; i++)
		if (is_below(s, s->opt->filters[i], path))
			return true;
	return s->opt->num_filters == 0;
}

int session_join(char *out, size_t cap, const char *dir, const char *name)
{
	bool at_root = !dir[0] || strcmp(dir, ".") == 0;
	int n = snprintf(out, cap, "%s%s%s", at_root ? "" : dir, at_root ? "" : "/", name);

	return n < 0 || (size_t)n >= cap ? -ENAMETOOLONG : 0;
}

struct session_dir *session_dir(struct session *s, uint64_t ino)
{
	uint64_t i = idmap_get(&s->dir_index, ino);

	return i ? &s->dirs[i - 1] : NULL;
}

int session_touch(struct session *s, uint64_t dir_ino)
{
	return idmap_set(&s->touched, dir_ino, 1);
}

/*
 * By inode number alone: device numbers change when a file system is mounted anew. 0: the state has never seen the file
 * itself (a directory that an earlier session made), so its kind has to do.
 */
bool session_is_same(const struct inode *in, const struct stat *st)
{
	return ((in->mode ^ st->st_mode) & S_IFMT) == 0 && (in->backing_ino == 0 || in->backing_ino == st->st_ino);
}

int session_each_name(struct session *s, uint64_t dir,
	int (*each)(struct session *s, const struct state_name *name, void *arg), void *arg)
{
	struct state_name *names = malloc(NAMES_AT_ONCE * sizeof(*names));
	char after[RECORD_NAME_MAX + 1] = "";
	size_t num = NAMES_AT_ONCE;
	int r = names ? 0 : -ENOMEM;

	while (r == 0 && num == NAMES_AT_ONCE) {
		r = state_list_names(s->st, dir, after, names, NAMES_AT_ONCE, &num);
		for (size_t i = 0; r == 0 && i < num; i++)
			r = each(s, &names[i], arg);
		if (r == 0 && num > 0)
			memcpy(after, names[num - 1].name, sizeof(after));
	}
	free(names);
	return r;
}

static int mark_left_alone(struct session *s)
{
	int r = 0;

	for (size_t i = 0; r == 0 && i < s->opt->num_left_alone; i++)
		r = idmap_set(&s->inodes, s->opt->left_alone[i], INODE_IS_LEFT_ALONE);
	return r;
}

static int session_open(struct session *s, const struct drain_options *opt)
{
	char uuid[37];
	int r;

	s->opt = opt;
	s->st = store_state(opt->store);
	s->segments = store_segments(opt->store);
	s->progress.path = s->path;
	s->control.rate = opt->rate;
	s->control.share_percent = 100;
	s->last_token_usec = s->rested_usec = clock_usec();
	store_uuid_text(store_superblock(opt->store)->uuid, uuid);
	snprintf(s->temp_prefix, sizeof(s->temp_prefix), SESSION_TEMP_PREFIX "%.8s-d", uuid);
	snprintf(s->shared_prefix, sizeof(s->shared_prefix), SESSION_SHARED_PREFIX "%.8s-", uuid);
	snprintf(s->through_prefix, sizeof(s->through_prefix), SESSION_THROUGH_PREFIX "%.8s-", uuid);
	snprintf(s->classic_prefix, sizeof(s->classic_prefix), SESSION_CLASSIC_PREFIX "%.8s-", uuid);
	beside_open(s);
	s->steps = calloc(SESSION_STEPS + 1, sizeof(*s->steps));
	s->to = opt->sink;
	r = !s->steps ? -ENOMEM : s->to ? 0 : sink_posix_create(opt->to_dirfd, &s->to);
	if (r == 0 && !opt->in_place && opt->base_dirfd >= 0)
		r = sink_posix_create_to_read(opt->base_dirfd, &s->base);
	if (r == 0 && s->base && !opt->base_is_copy)
		r = located_create(opt->store, opt->base_dirfd, false, &s->located);
	if (r == 0 && opt->intent_path)
		r = intent_open(opt->intent_path, &s->intent);
	if (r == 0 && opt->in_place)
		r = temps_open(s);
	s->kept = opt->steps;
	if (r == 0 && opt->steps_path)
		r = steps_open(opt->steps_path, s->st, &s->kept);
	if (r == 0)
		r = mark_left_alone(s);
	if (r == 0)
		r = copier_create(s, &s->copier);
	return r < 0 ? r : batch_create(&s->batch);
}

static void session_close(struct session *s)
{
	if (s->kept != s->opt->steps)
		steps_close(s->kept);
	temps_close(s);
	links_free(s->links);
	intent_close(s->intent);
	batch_destroy(s->batch);
	copier_destroy(s->copier);
	located_destroy(s->located);
	sink_destroy(s->base);
	if (!s->opt->sink)
		sink_destroy(s->to);
	for (size_t i = 0; i < s->num_dirs; i++)
		free(s->dirs[i].path);
	free(s->dirs);
	free(s->steps);
	idmap_free(&s->dir_index);
	idmap_free(&s->inodes);
	idmap_free(&s->unplaced);
	idmap_free(&s->touched);
	idmap_free(&s->given_up);
	free(s);
}

/* Each stage is told before the next begins: what has been moved out of a directory that goes cannot be taken back. */
static int run_in_place(struct session *s)
{
	static const struct {
		int (*run)(struct session *s);
		unsigned int parts; /* bit n: enum wire_part n has it */
	} stages[] = {
		{ locate_run, ~0u },
		{ temps_sweep, ~0u },
		{ names_run, ~0u },
		{ names_park, 1u << WIRE_PART_PARK },
		{ names_park_dirs, 1u << WIRE_PART_LOOK | 1u << WIRE_PART_DIRS },
		{ shared_begin, 1u << WIRE_PART_BEGIN },
		{ blob_shared, 1u << WIRE_PART_DEAL | 1u << WIRE_PART_BLOBS },
		{ shared_write, 1u << WIRE_PART_DATA | 1u << WIRE_PART_HEAD },
		{ file_run, 1u << WIRE_PART_WHOLE | 1u << WIRE_PART_FILES },
		{ shared_leave, 1u << WIRE_PART_FILES },
		{ together_offer, 1u << WIRE_PART_OFFER },
		{ together_help, 1u << WIRE_PART_PACK | 1u << WIRE_PART_MAKE | 1u << WIRE_PART_CHECK },
		{ convert_run, 1u << WIRE_PART_WHOLE | 1u << WIRE_PART_CONVERT },
		{ names_remove, 1u << WIRE_PART_WHOLE | 1u << WIRE_PART_REMOVE | 1u << WIRE_PART_FINISH },
		{ names_finish_dirs, 1u << WIRE_PART_WHOLE | 1u << WIRE_PART_FINISH },
	};
	int r = s->intent ? intent_undo(s->intent, s->st, s->to) : 0;

	for (size_t i = 0; r == 0 && i < sizeof(stages) / sizeof(stages[0]); i++) {
		if (!(stages[i].parts & 1u << s->opt->part))
			continue;
		r = stages[i].run(s);
		if (r == 0)
			r = session_flush_steps(s);
	}
	if (r == 0)
		temps_end(s);
	return r;
}

/*
 * What was done before the order to stop is told, or it would have to be taken back and done again. The intents stay: what
 * was only begun is taken back by who started us.
 */
static void report_rest(struct session *s)
{
	if (s->num_steps > 0 && s->to->ops->sync_names(s->to) == 0)
		(void)tell_steps(s);
}

int drain_run(const struct drain_options *opt, struct drain_result *ret, struct cistern_error *err)
{
	struct session *s = calloc(1, sizeof(*s));
	int r;

	*ret = (struct drain_result){ 0 };
	if (!s)
		return cistern_error_set(err, -ENOMEM, "no memory for a drain session");
	s->err = err;
	if (err)
		err->code = 0;
	r = session_open(s, opt);
	if (r == 0)
		r = session_tick(s, true);
	if (r == 0)
		r = opt->in_place ? run_in_place(s) : export_run(s);
	if (r == -ECANCELED)
		report_rest(s);
	if (r < 0)
		session_end(s, r, "the drain stopped");
	if (r < 0 && opt->manifest)
		take_back_untold(s);
	if (r == 0)
		r = session_tick(s, true);
	*ret = s->result;
	if (s->to)
		ret->changes = s->to->ops->changes(s->to);
	session_close(s);
	return r;
}
