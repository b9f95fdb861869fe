/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * One window over addresses that nothing lies at to begin with; files are mapped into it and out of it later. MPI's own way for memory
 * that comes and goes, dynamic windows, is emulated by messages in MPICH and a quarter as fast: memory of a window that was there from the
 * start is read by the network, or by the other process on one machine, without a detour. Where a window cannot be made over
 * addresses without memory (networks that pin it), all ranks fall back to a dynamic one, and attach each file.
 *
 * A file may be cut while it is mapped; whoever then reads behind its end, we ourselves on behalf of a get, must not die of it: such a page is
 * replaced by zeros. Readers verify what they have read.
 */
#include "mpi-agent/window/arena.h"

#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "format/base/array.h"
#include "mpi-agent/comm/comm_mpi.h"

#define ARENA_BYTES     (8ull << 40)
#define ARENA_BYTES_MIN (64ull << 30)
#define PAGE            4096ull
#define NOTHING         (MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE)

struct piece { /* of the arena, in use */
	uint64_t at, len;
};

struct get {
	bool used;
	uint32_t rank;
	void *tag;
};

struct arena {
	uint8_t *base;
	uint64_t bytes;
	bool dynamic;
	MPI_Win win;
	struct piece *pieces; /* sorted by at */
	size_t num, cap;
	uint64_t next; /* where the search for room begins */
	MPI_Request requests[ARENA_GETS];
	struct get gets[ARENA_GETS];
	int free[ARENA_GETS]; /* which are not used: the first num_free */
	int num_free;
};

/* ---- pages that are gone. A signal handler can know of nothing but this. */

static _Atomic uintptr_t guarded_from, guarded_to;

static void on_bus_error(int sig, siginfo_t *info, void *context)
{
	uintptr_t at = (uintptr_t)info->si_addr & ~(uintptr_t)(PAGE - 1);

	if (at >= guarded_from && at < guarded_to &&
		mmap((void *)at, PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) != MAP_FAILED)
		return;
	signal(sig, SIG_DFL); /* it happens again, and is the end */
}

static void guard(const struct arena *a)
{
	struct sigaction action = { .sa_sigaction = on_bus_error, .sa_flags = SA_SIGINFO };

	guarded_from = (uintptr_t)a->base;
	guarded_to = (uintptr_t)a->base + a->bytes;
	sigaction(SIGBUS, &action, NULL);
}

/* ---- the window */

static int reserve(struct arena *a)
{
	for (a->bytes = ARENA_BYTES; a->bytes >= ARENA_BYTES_MIN; a->bytes /= 2) {
		a->base = mmap(NULL, a->bytes, PROT_NONE, NOTHING, -1, 0);
		if (a->base != MAP_FAILED)
			return 0;
	}
	a->base = NULL;
	return -errno;
}

static bool all_agree(MPI_Comm world, bool mine)
{
	int in = mine, out = 0;

	return MPI_Allreduce(&in, &out, 1, MPI_INT, MPI_LAND, world) == MPI_SUCCESS && out;
}

static int make_window(struct arena *a, MPI_Comm world, struct cistern_error *err)
{
	const char *wanted = getenv("CISTERN_AGENT_WINDOW");
	bool fixed = all_agree(world, !wanted || strcmp(wanted, "dynamic") != 0);
	int r = MPI_SUCCESS;

	if (fixed) {
		r = MPI_Win_create(a->base, (MPI_Aint)a->bytes, 1, MPI_INFO_NULL, world, &a->win);
		fixed = all_agree(world, r == MPI_SUCCESS);
	}
	a->dynamic = !fixed;
	if (a->dynamic)
		r = MPI_Win_create_dynamic(MPI_INFO_NULL, world, &a->win);
	if (r == MPI_SUCCESS)
		r = MPI_Win_set_errhandler(a->win, MPI_ERRORS_RETURN);
	if (r == MPI_SUCCESS)
		r = MPI_Win_lock_all(MPI_MODE_NOCHECK, a->win);
	return comm_error(r, "the window", err);
}

int arena_create(const struct comm *c, struct arena **ret, struct cistern_error *err)
{
	struct arena *a = calloc(1, sizeof(*a));
	int r;

	if (!a)
		return cistern_error_set(err, -ENOMEM, "out of memory");
	for (int i = 0; i < ARENA_GETS; i++) {
		a->requests[i] = MPI_REQUEST_NULL;
		a->free[a->num_free++] = ARENA_GETS - 1 - i;
	}
	r = reserve(a);
	if (r < 0) {
		free(a);
		return cistern_error_set(err, r, "no addresses for the window: %s", strerror(-r));
	}
	guard(a);
	r = make_window(a, comm_mpi(c), err);
	if (r == 0)
		*ret = a;
	return r;
}

void arena_destroy(struct arena *a)
{
	if (!a)
		return;
	MPI_Win_unlock_all(a->win);
	while (a->num)
		arena_unmap(a, a->pieces[a->num - 1].at);
	MPI_Win_free(&a->win);
	munmap(a->base, a->bytes);
	free(a->pieces);
	free(a);
}

/* ---- files in it */

uint64_t arena_bytes(const struct arena *a)
{
	return a->bytes;
}

/* Room for len bytes between pieces, the first from a->next on: index of the piece behind it, or -1. */
static ssize_t find_room(const struct arena *a, uint64_t from, uint64_t len, uint64_t *ret_at)
{
	uint64_t at = 0;

	for (size_t i = 0; i <= a->num; i++) {
		uint64_t end = i < a->num ? a->pieces[i].at : a->bytes;

		at = at < from ? from : at;
		if (at <= end && end - at >= len) {
			*ret_at = at;
			return (ssize_t)i;
		}
		if (i < a->num)
			at = a->pieces[i].at + a->pieces[i].len;
	}
	return -1;
}

static int take_room(struct arena *a, uint64_t len, uint64_t *ret_at)
{
	ssize_t i;

	if (array_room(&a->pieces, &a->cap, a->num, sizeof(*a->pieces)) < 0)
		return -ENOMEM;
	i = find_room(a, a->next, len, ret_at);
	if (i < 0)
		i = find_room(a, 0, len, ret_at);
	if (i < 0)
		return -ENOSPC;
	memmove(&a->pieces[i + 1], &a->pieces[i], (a->num - (size_t)i) * sizeof(*a->pieces));
	a->pieces[i] = (struct piece){ *ret_at, len };
	a->num++;
	a->next = *ret_at + len;
	return 0;
}

static void give_room(struct arena *a, size_t i)
{
	a->num--;
	memmove(&a->pieces[i], &a->pieces[i + 1], (a->num - i) * sizeof(*a->pieces));
}

static size_t piece_at(const struct arena *a, uint64_t at)
{
	size_t low = 0, high = a->num;

	while (low < high) {
		size_t middle = (low + high) / 2;

		if (a->pieces[middle].at < at)
			low = middle + 1;
		else
			high = middle;
	}
	return low < a->num && a->pieces[low].at == at ? low : a->num;
}

int arena_map(struct arena *a, int fd, uint64_t len, uint64_t *ret_at)
{
	uint64_t at = 0;
	void *p;
	int r;

	len = (len + PAGE - 1) & ~(PAGE - 1);
	r = take_room(a, len ? len : PAGE, &at);
	if (r < 0)
		return r;
	p = mmap(a->base + at, len ? len : PAGE, PROT_READ, MAP_SHARED | MAP_FIXED, fd, 0);
	r = p == MAP_FAILED ? -errno : 0;
	if (r == 0 && a->dynamic && MPI_Win_attach(a->win, p, (MPI_Aint)len) != MPI_SUCCESS)
		r = -EIO;
	if (r < 0) {
		arena_unmap(a, at);
		return r;
	}
	*ret_at = a->dynamic ? (uint64_t)(uintptr_t)p : at;
	return 0;
}

/* Which piece is named by at; a->num: none. */
static size_t piece_of(const struct arena *a, uint64_t at)
{
	return piece_at(a, a->dynamic && at >= a->bytes ? at - (uint64_t)(uintptr_t)a->base : at);
}

void arena_unmap(struct arena *a, uint64_t at)
{
	size_t i = piece_of(a, at);
	uint8_t *p;

	if (i == a->num)
		return;
	p = a->base + a->pieces[i].at;
	if (a->dynamic)
		MPI_Win_detach(a->win, p);
	(void)mmap(p, a->pieces[i].len, PROT_NONE, NOTHING | MAP_FIXED, -1, 0); /* the addresses stay ours */
	give_room(a, i);
}

void arena_will_need(struct arena *a, uint64_t at, uint64_t off, uint64_t len)
{
	size_t i = piece_of(a, at);

	off &= ~(PAGE - 1);
	if (i < a->num && off < a->pieces[i].len)
		(void)madvise(a->base + a->pieces[i].at + off,
			len < a->pieces[i].len - off ? len : a->pieces[i].len - off, MADV_WILLNEED);
}

/* ---- gets */

int arena_get(struct arena *a, uint32_t rank, uint64_t at, void *to, uint32_t len, void *tag, struct cistern_error *err)
{
	int i, r;

	if (a->num_free == 0)
		return -EAGAIN;
	i = a->free[a->num_free - 1];
	r = comm_error(
		MPI_Rget(to, (int)len, MPI_BYTE, (int)rank, (MPI_Aint)at, (int)len, MPI_BYTE, a->win, &a->requests[i]),
		"MPI_Rget", err);
	if (r < 0)
		return r;
	a->gets[i] = (struct get){ .used = true, .rank = rank, .tag = tag };
	a->num_free--;
	return 0;
}

bool arena_busy(const struct arena *a)
{
	return a->num_free < ARENA_GETS;
}

/* One call for all: each makes MPI look at everything that is under way. */
int arena_step(
	struct arena *a, void (*ended)(uint32_t rank, void *tag, void *arg), void *arg, struct cistern_error *err)
{
	MPI_Status unused[ARENA_GETS]; /* compilers take MPI_STATUSES_IGNORE for an array that is too short */
	int done[ARENA_GETS], num = 0, r;

	if (!arena_busy(a))
		return 0;
	r = comm_error(MPI_Testsome(ARENA_GETS, a->requests, &num, done, unused), "MPI_Rget", err);
	if (r < 0)
		return r;
	num = num == MPI_UNDEFINED ? 0 : num;
	for (int i = 0; i < num; i++) {
		struct get *g = &a->gets[done[i]];

		g->used = false;
		a->free[a->num_free++] = done[i];
		ended(g->rank, g->tag, arg);
	}
	return num;
}

void arena_each_get(struct arena *a, void (*each)(uint32_t rank, void *arg), void *arg)
{
	for (int i = 0; i < ARENA_GETS; i++)
		if (a->gets[i].used)
			each(a->gets[i].rank, arg);
}
