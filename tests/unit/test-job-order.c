/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Names of a job, used by all nodes at once: whatever calls say must be what one file system could have said, doing one call
 * after the other, each at some moment between its beginning and its end (Herlihy and Wing, Linearizability: a
 * correctness condition for concurrent objects, 1990). Threads on all nodes do a few calls on a few names; then an order is
 * searched that explains all results, and ends with what every node shows.
 *
 * Meanwhile agents die, or a daemon. What its own calls have done by then is not known: each may have happened or not.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "tests/lib/job_path.h"
#include "tests/lib/job_world.h"
#include "tests/lib/tap.h"

#define NAMES        3
#define THREADS      6
#define CALLS        4 /* of a thread in a round */
#define CALLS_MAX    (THREADS * CALLS)
#define ROOT_INO     1u
#define MEMO_BUCKETS (1u << 16)

static const struct core_cred cred = { .uid = 0, .gid = 0, .pid = 1 };
static const char *const names[NAMES] = { "x", "y", "z" };

enum kind { LOOKUP, CREATE, MKDIR, UNLINK, RMDIR, RENAME, NOREPLACE, EXCHANGE, KINDS };
static const char *const kind_names[KINDS] = { "lookup", "create", "mkdir", "unlink", "rmdir", "rename",
	"rename-noreplace", "exchange" };

struct call {
	enum kind kind;
	unsigned int a, b; /* names */
	int rc;
	uint64_t ino; /* LOOKUP, CREATE, MKDIR */
	bool dir;
	int64_t begin_ns, end_ns;
	uint32_t node;
};

struct shown { /* what the names are; ino 0: nothing */
	uint64_t ino[NAMES];
	bool dir[NAMES];
};

/* ---- what one file system does: is that the call's result? Changes *s. */

static int remove_from(struct shown *s, unsigned int a, bool dir)
{
	if (!s->ino[a])
		return -ENOENT;
	if (s->dir[a] != dir)
		return dir ? -ENOTDIR : -EISDIR;
	s->ino[a] = 0;
	return 0;
}

static int make_in(struct shown *s, const struct call *c)
{
	if (s->ino[c->a])
		return -EEXIST;
	s->ino[c->a] = c->ino;
	s->dir[c->a] = c->dir;
	return 0;
}

static int move_in(struct shown *s, unsigned int a, unsigned int b, enum kind kind)
{
	struct shown old = *s;

	if (!s->ino[a] || (kind == EXCHANGE && !s->ino[b]))
		return -ENOENT;
	if (kind == NOREPLACE && s->ino[b])
		return -EEXIST;
	if (kind == RENAME && s->ino[b] && s->dir[a] != s->dir[b])
		return s->dir[a] ? -ENOTDIR : -EISDIR;
	s->ino[b] = old.ino[a];
	s->dir[b] = old.dir[a];
	s->ino[a] = kind == EXCHANGE ? old.ino[b] : 0;
	s->dir[a] = old.dir[b];
	return 0;
}

static bool explains(struct shown *s, const struct call *c);

static bool is_unknown(const struct call *c)
{
	return c->rc == -EIO;
}

/* A call without an answer, as if it had succeeded. */
static bool happens(struct shown *s, const struct call *c)
{
	struct call done = *c;

	done.rc = 0;
	return explains(s, &done);
}

static bool explains(struct shown *s, const struct call *c)
{
	switch (c->kind) {
	case LOOKUP: return c->rc == (s->ino[c->a] ? 0 : -ENOENT) && (c->rc || c->ino == s->ino[c->a]);
	case CREATE:
	case MKDIR: return make_in(s, c) == c->rc;
	case UNLINK: return remove_from(s, c->a, false) == c->rc;
	case RMDIR: return remove_from(s, c->a, true) == c->rc;
	default: return move_in(s, c->a, c->b, c->kind) == c->rc;
	}
}

/* ---- the search: depth first, over calls that may come next; what was tried in vain is remembered */

struct tried {
	struct tried *next;
	uint32_t done;
	struct shown s;
};

struct search {
	const struct call *calls;
	unsigned int num;
	struct shown end;
	struct tried *memo[MEMO_BUCKETS];
};

static bool is_same(const struct shown *a, const struct shown *b)
{
	return memcmp(a->ino, b->ino, sizeof(a->ino)) == 0;
}

/* true: for the first time here. */
static bool remember(struct search *f, uint32_t done, const struct shown *s)
{
	uint64_t h = done * 0x9E3779B97F4A7C15ull;

	for (unsigned int i = 0; i < NAMES; i++)
		h = (h ^ s->ino[i]) * 0x9E3779B97F4A7C15ull;
	struct tried **at = &f->memo[h >> 48];
	for (struct tried *t = *at; t; t = t->next)
		if (t->done == done && is_same(&t->s, s))
			return false;
	struct tried *t = malloc(sizeof(*t));
	*t = (struct tried){ *at, done, *s };
	*at = t;
	return true;
}

/* May call i come next? Not before one that has ended before it began. */
static bool may_come(const struct search *f, uint32_t done, unsigned int i)
{
	for (unsigned int k = 0; k < f->num; k++)
		if (!(done & 1u << k) && f->calls[k].end_ns < f->calls[i].begin_ns)
			return false;
	return true;
}

static bool find_order(struct search *f, uint32_t done, const struct shown *s)
{
	if (done == (1u << f->num) - 1)
		return is_same(s, &f->end);
	if (!remember(f, done, s))
		return false;
	for (unsigned int i = 0; i < f->num; i++) {
		struct shown next = *s;

		if (done & 1u << i || !may_come(f, done, i))
			continue;
		if (is_unknown(&f->calls[i])) {
			if (happens(&next, &f->calls[i]) && find_order(f, done | 1u << i, &next))
				return true;
			if (find_order(f, done | 1u << i, s))
				return true;
		} else if (explains(&next, &f->calls[i]) && find_order(f, done | 1u << i, &next)) {
			return true;
		}
	}
	return false;
}

static bool was_there(const struct shown *s, uint64_t ino)
{
	for (unsigned int i = 0; i < NAMES; i++)
		if (s->ino[i] == ino)
			return true;
	return false;
}

static bool was_made(const struct call *calls, unsigned int num, uint64_t ino)
{
	for (unsigned int i = 0; i < num; i++)
		if ((calls[i].kind == CREATE || calls[i].kind == MKDIR) && calls[i].ino == ino)
			return true;
	return false;
}

static bool is_linear_as(const struct call *calls, unsigned int num, const struct shown *begin, const struct shown *end)
{
	struct search *f = calloc(1, sizeof(*f));

	f->calls = calls;
	f->num = num;
	f->end = *end;
	bool found = find_order(f, 0, begin);
	for (unsigned int i = 0; i < MEMO_BUCKETS; i++)
		for (struct tried *t = f->memo[i], *next; t; t = next) {
			next = t->next;
			free(t);
		}
	free(f);
	return found;
}

/*
 * A number that was seen, and nobody says to have made: calls without an answer may have. Fills at most cap.
 */
static unsigned int find_unmade(const struct call *calls, unsigned int num, const struct shown *begin,
	const struct shown *end, struct call *out, unsigned int cap)
{
	unsigned int found = 0;

	for (unsigned int k = 0; k < num + NAMES && found < cap; k++) {
		struct call seen = { .ino = k < num ? calls[k].ino : end->ino[k - num],
			.dir = k < num ? calls[k].dir : end->dir[k - num] };

		if (!seen.ino || was_there(begin, seen.ino) || was_made(calls, num, seen.ino) ||
			was_made(out, found, seen.ino))
			continue;
		seen.kind = seen.dir ? MKDIR : CREATE;
		out[found++] = seen;
	}
	return found;
}

/* Give each of the numbers to a call that may have made it, in all ways. */
static bool try_makers(struct call *calls, unsigned int num, const struct shown *begin, const struct shown *end,
	const struct call *unmade, unsigned int left)
{
	if (left == 0)
		return is_linear_as(calls, num, begin, end);
	for (unsigned int i = 0; i < num; i++) {
		struct call *c = &calls[i], old = *c;

		if (!is_unknown(c) || c->kind != unmade->kind || c->ino < UINT64_MAX - num ||
			(!unmade->dir && unmade->ino >> 40 != c->node))
			continue;
		c->ino = unmade->ino;
		bool found = try_makers(calls, num, begin, end, unmade + 1, left - 1);
		c->ino = old.ino;
		if (found)
			return true;
	}
	return false;
}

static bool is_linear(struct call *calls, unsigned int num, const struct shown *begin, const struct shown *end)
{
	struct call unmade[CALLS_MAX];
	unsigned int found = find_unmade(calls, num, begin, end, unmade, CALLS_MAX);

	for (unsigned int i = 0; i < num; i++)
		if (is_unknown(&calls[i]) && (calls[i].kind == CREATE || calls[i].kind == MKDIR)) {
			calls[i].dir = calls[i].kind == MKDIR;
			calls[i].ino = UINT64_MAX - i; /* nobody saw its number */
		}
	return try_makers(calls, num, begin, end, unmade, found);
}

/* ---- calls */

static int64_t now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (int64_t)ts.tv_sec * 1000000000 + ts.tv_nsec;
}

static int run_lookup(struct job *j, struct call *c, const char *name)
{
	struct core_entry e;
	int rc = job_lookup(j, ROOT_INO, name, &e);

	if (rc == 0) {
		c->ino = e.ino;
		c->dir = S_ISDIR(e.attr.st_mode);
		job_forget(j, e.ino, 1);
	}
	return rc;
}

static int run_make(struct job *j, struct call *c, const char *name)
{
	struct core_entry e;
	int rc = c->kind == MKDIR ? job_mkdir(j, ROOT_INO, name, 0755, cred, &e)
				  : job_mknod(j, ROOT_INO, name, S_IFREG | 0644, 0, cred, &e);

	if (rc == 0) {
		c->ino = e.ino;
		c->dir = c->kind == MKDIR;
		job_forget(j, e.ino, 1);
	}
	return rc;
}

static void run_call(struct job *j, struct call *c)
{
	const char *a = names[c->a], *b = names[c->b];

	c->begin_ns = now_ns();
	switch (c->kind) {
	case LOOKUP: c->rc = run_lookup(j, c, a); break;
	case CREATE:
	case MKDIR: c->rc = run_make(j, c, a); break;
	case UNLINK: c->rc = job_unlink(j, ROOT_INO, a); break;
	case RMDIR: c->rc = job_rmdir(j, ROOT_INO, a); break;
	case RENAME: c->rc = job_rename(j, ROOT_INO, a, ROOT_INO, b, 0); break;
	case NOREPLACE: c->rc = job_rename(j, ROOT_INO, a, ROOT_INO, b, RENAME_NOREPLACE); break;
	default: c->rc = job_rename(j, ROOT_INO, a, ROOT_INO, b, RENAME_EXCHANGE);
	}
	c->end_ns = is_unknown(c) ? INT64_MAX : now_ns();
}

enum trouble { QUIET, SLOW, AGENTS, DAEMON };
static const char *const trouble_names[] = { "", ", slow", ", agents dying", ", a daemon dying" };

struct round {
	struct job_world *w;
	enum trouble trouble;
	uint32_t num;
	struct call calls[CALLS_MAX];
	pthread_barrier_t begin;
	bool with_dirs;
	uint64_t random;
	uint32_t victim;
};

struct worker {
	struct round *r;
	bool joined;
	unsigned int index;
	pthread_t thread;
};

static void *work(void *arg)
{
	struct worker *w = arg;

	pthread_barrier_wait(&w->r->begin);
	for (unsigned int i = 0; i < CALLS; i++) {
		struct call *c = &w->r->calls[w->index * CALLS + i];

		run_call(job_world_job(w->r->w, c->node), c);
	}
	return NULL;
}

static unsigned int below(struct round *r, unsigned int n)
{
	r->random ^= r->random << 13;
	r->random ^= r->random >> 7;
	r->random ^= r->random << 17;
	return (unsigned int)(r->random >> 20) % n;
}

static void draw(struct round *r, struct call *c, uint32_t node)
{
	static const enum kind files[] = { LOOKUP, LOOKUP, CREATE, CREATE, UNLINK, UNLINK, RENAME, RENAME, NOREPLACE,
		EXCHANGE };
	static const enum kind all[] = { LOOKUP, LOOKUP, CREATE, MKDIR, UNLINK, RMDIR, RENAME, RENAME, NOREPLACE,
		EXCHANGE };

	*c = (struct call){ .node = node, .a = below(r, NAMES) };
	c->b = (c->a + 1 + below(r, NAMES - 1)) % NAMES;
	c->kind = r->with_dirs ? all[below(r, 10)] : files[below(r, 10)];
}

static void wait_usec(unsigned int usec)
{
	struct timespec t = { .tv_nsec = (long)usec * 1000 };

	nanosleep(&t, NULL);
}

/*
 * Somewhere in the middle of the calls, wherever that is. A daemon that dies takes its calls with it: here they end without an answer,
 * and only then may it be taken apart.
 */
static void make_trouble(struct round *r, struct worker *workers)
{
	struct loopback *l = job_world_loopback(r->w);

	if (r->trouble == QUIET || r->trouble == SLOW)
		return;
	wait_usec(below(r, 4000));
	if (r->trouble == AGENTS) {
		for (unsigned int i = 0; i < 3; i++) {
			loopback_lose(l, LOOPBACK_ALL);
			wait_usec(below(r, 3000));
			loopback_assemble(l);
			wait_usec(below(r, 3000));
		}
		return;
	}
	r->victim = below(r, r->num);
	loopback_kill(l, r->victim);
	job_shut_down(job_world_job(r->w, r->victim));
	for (unsigned int t = 0; t < THREADS; t++)
		if (t % r->num == r->victim) {
			pthread_join(workers[t].thread, NULL);
			workers[t].joined = true;
		}
	job_world_kill(r->w, r->victim);
	wait_usec(below(r, 4000));
	job_world_revive(r->w, r->victim);
}

static void run_round(struct round *r)
{
	struct worker workers[THREADS];

	pthread_barrier_init(&r->begin, NULL, THREADS);
	for (unsigned int t = 0; t < THREADS; t++) {
		for (unsigned int i = 0; i < CALLS; i++)
			draw(r, &r->calls[t * CALLS + i], t % r->num);
		workers[t] = (struct worker){ .r = r, .index = t };
		if (pthread_create(&workers[t].thread, NULL, work, &workers[t]))
			abort();
	}
	make_trouble(r, workers);
	for (unsigned int t = 0; t < THREADS; t++)
		if (!workers[t].joined)
			pthread_join(workers[t].thread, NULL);
	pthread_barrier_destroy(&r->begin);
}

/* ---- what nodes show when all is quiet */

static bool look(struct job_world *w, uint32_t node, struct shown *ret)
{
	char list[64], expected[64] = "";

	*ret = (struct shown){ .ino = { 0 } };
	for (unsigned int i = 0; i < NAMES; i++) {
		struct core_entry e;
		int rc = job_lookup(job_world_job(w, node), ROOT_INO, names[i], &e);

		if (rc < 0 && rc != -ENOENT)
			return false;
		if (rc < 0)
			continue;
		ret->ino[i] = e.ino;
		ret->dir[i] = S_ISDIR(e.attr.st_mode);
		job_forget(job_world_job(w, node), e.ino, 1);
		snprintf(expected + strlen(expected), sizeof(expected) - strlen(expected), "%s\n", names[i]);
	}
	int rc = path_list(job_world_job(w, node), "", list, sizeof(list));
	if (rc < 0 || strcmp(list, expected) != 0)
		tap_diag("node %u: %s listed, %s looked up, %d", node, list, expected, rc);
	return rc == 0 && strcmp(list, expected) == 0;
}

static bool look_everywhere(struct job_world *w, uint32_t num, struct shown *ret)
{
	struct shown other;
	bool good = look(w, 0, ret);

	for (uint32_t i = 1; good && i < num; i++)
		if (!look(w, i, &other) || !is_same(&other, ret)) {
			tap_diag("node %u shows %" PRIx64 " %" PRIx64 " %" PRIx64, i, other.ino[0], other.ino[1],
				other.ino[2]);
			good = false;
		}
	return good;
}

/* What a dead daemon has asked of node 0 may still be done, as long as node 0 is at it: it says so by what it shows. */
static bool look_at_last(const struct round *r, struct shown *ret)
{
	struct shown before;
	bool good = look_everywhere(r->w, r->num, ret);

	for (unsigned int tries = 0; r->trouble == DAEMON && tries < 500; tries++) {
		bool was_good = good;

		before = *ret;
		wait_usec(2000);
		loopback_settle(job_world_loopback(r->w));
		good = look_everywhere(r->w, r->num, ret);
		if (good && was_good && is_same(&before, ret))
			break;
	}
	return good;
}

static void print_round(const struct round *r, const struct shown *begin, const struct shown *end)
{
	int64_t first = INT64_MAX;

	for (unsigned int i = 0; i < CALLS_MAX; i++)
		first = r->calls[i].begin_ns < first ? r->calls[i].begin_ns : first;
	for (unsigned int i = 0; i < NAMES; i++)
		tap_diag("%s: %" PRIx64 " before, %" PRIx64 " after", names[i], begin->ino[i], end->ino[i]);
	for (unsigned int i = 0; i < CALLS_MAX; i++) {
		const struct call *c = &r->calls[i];

		tap_diag("node %u, %6" PRId64 " to %6" PRId64 " us: %s %s %s: %d %" PRIx64, c->node,
			(c->begin_ns - first) / 1000, (c->end_ns - first) / 1000, kind_names[c->kind], names[c->a],
			c->kind >= RENAME ? names[c->b] : "", c->rc, c->ino);
	}
}

static void test_rounds(uint32_t num, uint64_t seed, unsigned int rounds, bool with_dirs, enum trouble trouble)
{
	struct round r = { .num = num, .with_dirs = with_dirs, .trouble = trouble };
	struct shown begin = { .ino = { 0 } }, end;
	bool good = true;

	r.random = seed * 0x9e3779b97f4a7c15ull + 88172645463325252ull;
	r.w = job_world_start(num);
	if (trouble == SLOW)
		loopback_set_delay(job_world_loopback(r.w), 0, 2000, seed);
	if (trouble >= AGENTS)
		loopback_set_delay(job_world_loopback(r.w), 0, 500, seed);
	for (unsigned int i = 0; good && i < rounds; i++) {
		run_round(&r);
		good = look_at_last(&r, &end);
		if (!good)
			tap_diag("round %u: nodes show different things", i);
		if (good && !is_linear(r.calls, CALLS_MAX, &begin, &end)) {
			tap_diag("round %u: no order explains it", i);
			good = false;
		}
		if (!good)
			print_round(&r, &begin, &end);
		begin = end;
	}
	ok(good, "%u nodes%s%s at once, as if one after the other", num, with_dirs ? ", directories too" : "",
		trouble_names[trouble]);
	job_world_stop(r.w);
}

/* The checker itself: what cannot be must not be found. */
static void test_checker(void)
{
	struct call twice[2] = { { .kind = CREATE, .ino = 5, .begin_ns = 1, .end_ns = 4 },
		{ .kind = CREATE, .ino = 6, .begin_ns = 2, .end_ns = 3 } };
	struct call stale[2] = { { .kind = UNLINK, .begin_ns = 1, .end_ns = 2 },
		{ .kind = LOOKUP, .ino = 7, .begin_ns = 3, .end_ns = 4 } };
	struct shown nothing = { .ino = { 0 } }, five = { .ino = { 5 } }, seven = { .ino = { 7 } };

	ok(!is_linear(twice, 2, &nothing, &five), "two cannot both make a name");
	twice[1].rc = -EEXIST;
	ok(is_linear(twice, 2, &nothing, &five), "but one of them");
	ok(!is_linear(stale, 2, &seven, &nothing), "what is gone is not found");
	stale[1].begin_ns = 1;
	ok(is_linear(stale, 2, &seven, &nothing), "unless it was just going");
}

int main(void)
{
	const char *more = getenv("JOB_ORDER_ROUNDS"); /* when somebody looks for trouble */
	unsigned int rounds = more ? (unsigned int)strtoul(more, NULL, 10) : 60;

	test_checker();
	for (uint32_t num = 2; num <= 4; num++) {
		test_rounds(num, num, rounds, false, QUIET);
		test_rounds(num, num + 10, rounds, true, QUIET);
		test_rounds(num, num + 20, rounds / 4, true, SLOW);
		test_rounds(num, num + 30, rounds / 4, true, AGENTS);
		test_rounds(num, num + 40, rounds / 4, false, DAEMON);
		test_rounds(num, num + 50, rounds / 4, true, DAEMON);
	}
	return done_testing();
}
