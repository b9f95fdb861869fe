/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Locks between two processes. The other process opens what a handle of ours has open (through /proc) and takes, tests or
 * drops a lock there; what both of them are told must be the same on both sides. Nobody ever waits for a lock.
 */
#include "tests/parity/parity.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <signal.h>
#include <unistd.h>

enum lock_kind { LOCK_FLOCK, LOCK_RECORD, LOCK_TEST, LOCK_DROP };

struct lock_call {
	enum lock_kind kind;
	int fd; /* of the asking process */
	int side;
	int type; /* LOCK_SH ... or F_RDLCK ... */
	int64_t off, len;
};

struct locker {
	pid_t pid;
	int to, from; /* pipes */
};

static struct outcome lock_fd(int fd, const struct lock_call *c)
{
	struct flock fl = { .l_type = (short)c->type, .l_whence = SEEK_SET, .l_start = c->off, .l_len = c->len };
	struct outcome o;

	switch (c->kind) {
	case LOCK_FLOCK: return outcome_of(flock(fd, c->type | LOCK_NB));
	case LOCK_RECORD: return outcome_of(fcntl(fd, F_SETLK, &fl));
	case LOCK_TEST:
		o = outcome_of(fcntl(fd, F_GETLK, &fl));
		if (o.ret == 0)
			o.ret = fl.l_type == F_UNLCK ? 1 : 2 + fl.l_type * 1000 + fl.l_start % 500;
		return o;
	case LOCK_DROP: break;
	}
	return (struct outcome){ .ret = 0 };
}

/* One descriptor a side is kept: opening the next closes it, which drops its locks. */
static struct outcome serve(pid_t parent, int kept[SIDES], const struct lock_call *c)
{
	char path[64];

	if (c->kind == LOCK_DROP || kept[c->side] < 0) {
		if (kept[c->side] >= 0)
			close(kept[c->side]);
		snprintf(path, sizeof(path), "/proc/%d/fd/%d", (int)parent, c->fd);
		kept[c->side] = open(path, O_RDWR | O_CLOEXEC);
		if (kept[c->side] < 0)
			return outcome_of(-1);
	}
	return lock_fd(kept[c->side], c);
}

static void serve_all(pid_t parent, int in, int out)
{
	int kept[SIDES] = { -1, -1 };
	struct lock_call c;

	while (read(in, &c, sizeof(c)) == (ssize_t)sizeof(c)) {
		struct outcome o = serve(parent, kept, &c);

		if (write(out, &o, sizeof(o)) != (ssize_t)sizeof(o))
			break;
	}
	_exit(0);
}

struct locker *locker_start(void)
{
	struct locker *l = calloc(1, sizeof(*l));
	pid_t parent = getpid();
	int to[2], from[2];

	if (!l || pipe2(to, O_CLOEXEC) < 0 || pipe2(from, O_CLOEXEC) < 0)
		return NULL;
	l->pid = fork();
	if (l->pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		close(to[1]);
		close(from[0]);
		serve_all(parent, to[0], from[1]);
	}
	close(to[0]);
	close(from[1]);
	l->to = to[1];
	l->from = from[0];
	return l;
}

void locker_stop(struct locker *l)
{
	if (!l)
		return;
	close(l->to);
	close(l->from);
	if (l->pid > 0)
		waitpid(l->pid, NULL, 0);
	free(l);
}

static struct outcome ask_other(const struct locker *l, const struct lock_call *c)
{
	struct outcome o = { .ret = -1, .err = EPIPE };

	if (write(l->to, c, sizeof(*c)) != (ssize_t)sizeof(*c) || read(l->from, &o, sizeof(o)) != (ssize_t)sizeof(o))
		o = (struct outcome){ .ret = -1, .err = EPIPE };
	return o;
}

static bool op_lock(struct parity *p)
{
	static const int flock_types[] = { LOCK_SH, LOCK_EX, LOCK_UN }, record_types[] = { F_RDLCK, F_WRLCK, F_UNLCK };
	enum lock_kind kinds[] = { LOCK_FLOCK, LOCK_RECORD, LOCK_RECORD, LOCK_TEST, LOCK_DROP };
	struct lock_call c = { .kind = kinds[rng_below(&p->rng, 5)],
		.off = (int64_t)rng_below(&p->rng, 100),
		.len = (int64_t)rng_below(&p->rng, 50) };
	struct handle *h = any_handle(p);
	bool other = rng_percent(&p->rng, 50);
	struct outcome o[SIDES];
	size_t type = rng_below(&p->rng, c.kind == LOCK_TEST ? 2 : 3);

	if (!h || (h->flags & O_ACCMODE) != O_RDWR)
		return true;
	c.type = c.kind == LOCK_FLOCK ? flock_types[type] : record_types[type];
	note(p, " %td %s kind %d type %d %jd+%jd", h - p->handles, other ? "other" : "self", (int)c.kind, c.type,
		(intmax_t)c.off, (intmax_t)c.len);
	for (c.side = 0; c.side < SIDES; c.side++) {
		c.fd = h->fd[c.side];
		o[c.side] = other ? ask_other(p->locker, &c) : lock_fd(c.fd, &c);
	}
	return same_outcome(p, o, "lock");
}

const struct operation lock_operations[] = { { "lock", 40, op_lock }, { NULL, 0, NULL } };
