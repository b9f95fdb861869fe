/* SPDX-License-Identifier: GPL-3.0-or-later */
/* Whose get is begun next: ranks take turns, and those that do not answer leave gets to the others. */
#include <stddef.h>

#include "mpi-agent/window/turns.h"
#include "tests/lib/tap.h"

#define RANKS 8u
#define MOST  16u
#define EACH  40u

static struct turn waits[RANKS][EACH];

static struct turns *make(void)
{
	struct turns *t = NULL;

	ok(turns_create(RANKS, MOST, &t) == 0, "made");
	return t;
}

static void push_all(struct turns *t, uint32_t rank)
{
	for (uint32_t i = 0; i < EACH; i++)
		turns_push(t, rank, &waits[rank][i]);
}

/* Begins what may begin; how many of each rank. */
static uint32_t begin_all(struct turns *t, uint32_t by_rank[RANKS])
{
	const struct turn *turn;
	uint32_t num = 0;

	for (uint32_t i = 0; i < RANKS; i++)
		by_rank[i] = 0;
	for (; (turn = turns_next(t)); num++)
		by_rank[turn->rank]++;
	return num;
}

static void one_rank_in_its_order(void)
{
	struct turns *t = make();
	bool in_order = true;

	push_all(t, 3);
	for (uint32_t i = 0; i < EACH; i++) {
		in_order = in_order && turns_next(t) == &waits[3][i];
		turns_ended(t, 3);
	}
	ok(in_order, "those of one rank go in the order in which they came");
	ok(!turns_next(t), "and no more than came");
	turns_destroy(t);
}

static void ranks_alternate(void)
{
	struct turns *t = make();
	bool by_turns = true;

	for (uint32_t rank = 0; rank < RANKS; rank++)
		push_all(t, rank);
	for (uint32_t i = 0; i < RANKS * EACH; i++) {
		const struct turn *turn = turns_next(t);

		by_turns = by_turns && turn && turn->rank == i % RANKS;
		turns_ended(t, i % RANKS);
	}
	ok(by_turns, "ranks take turns, whoever came first");
	turns_destroy(t);
}

/* Ranks that never answer, one more after the other: the last one goes on. */
static void the_silent_leave_some(void)
{
	struct turns *t = make();
	uint32_t begun[RANKS];
	bool goes_on = true;

	push_all(t, 0);
	ok(begin_all(t, begun) == MOST / 2, "a rank alone has half of them");
	push_all(t, 1);
	ok(begin_all(t, begun) == MOST / 4 && begun[1] == MOST / 4, "the next one half of what it leaves");
	push_all(t, 2);
	begin_all(t, begun);
	ok(begun[2] == MOST / 8, "and so on");
	push_all(t, 4);
	for (uint32_t i = 0; i < EACH; i++) {
		const struct turn *turn = turns_next(t);

		goes_on = goes_on && turn == &waits[4][i];
		turns_ended(t, 4);
	}
	ok(goes_on, "who answers gets all of its own, past what the others wait with");
	for (int i = 0; i < 4; i++)
		turns_ended(t, 0);
	ok(begin_all(t, begun) > 0 && begun[0] > 0, "who answers again goes on, too");
	turns_destroy(t);
}

static void no_more_than_there_are(void)
{
	struct turns *t = make();
	uint32_t begun[RANKS], num;
	bool all_have_one = true;

	for (uint32_t rank = 0; rank < RANKS; rank++)
		push_all(t, rank);
	num = begin_all(t, begun);
	ok(num <= MOST && num > MOST / 2, "no more than may be are under way: %u of %u", num, MOST);
	for (uint32_t rank = 0; rank < RANKS; rank++)
		all_have_one = all_have_one && begun[rank] > 0;
	ok(all_have_one, "and no rank has none");
	turns_destroy(t);
}

static void taken_back(void)
{
	struct turns *t = make();
	const struct turn *all;
	uint32_t begun[RANKS], num = 0;

	push_all(t, 5);
	push_all(t, 6);
	ok(turns_next(t)->rank == 5, "one begins");
	for (all = turns_take(t, 5); all && all == &waits[5][1 + num]; all = all->next)
		num++;
	ok(!all && num == EACH - 1, "the rest of the rank is taken back, in order");
	begin_all(t, begun);
	ok(begun[5] == 0 && begun[6] > 0, "and only the others are left");
	turns_push(t, 5, &waits[5][7]);
	turns_ended(t, 6);
	ok(turns_take(t, 5) == &waits[5][7] && !waits[5][7].next, "it may come again");
	ok(!turns_take(t, 5), "nothing to take");
	turns_destroy(t);
}

int main(void)
{
	one_rank_in_its_order();
	ranks_alternate();
	the_silent_leave_some();
	no_more_than_there_are();
	taken_back();
	return done_testing();
}
