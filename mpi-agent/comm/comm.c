/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * MPI's point-to-point messages. Sends are MPI_Isend, kept until MPI is done with their bytes. What arrives is matched in the
 * order in which it was sent (MPI_Improbe), but large messages may be complete later than small ones behind them: each rank's are
 * handed over from the head of a queue only.
 *
 * MPI takes small messages whether or not their receiver wants them, into memory without bounds. So who sends counts what the receiver has not
 * said to be done with (COMM_CREDIT), and keeps the rest.
 */
#include "mpi-agent/comm/comm_mpi.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "format/base/clock.h"
#include "format/base/cursor.h"
#include "mpi-agent/comm/signals.h"

#define TAKE_AT_ONCE  64 /* messages taken up in one step */
#define ABORT_SECONDS 5
#define NAP_NSEC      200000
#define LEFT_NAP_NSEC 50000000
#define CREDIT_BYTES  (1u << 20) /* so much is given back at once */

struct outgoing {
	struct outgoing *next;
	MPI_Request request;
	enum comm_kind kind;
	void *bytes; /* owned */
	size_t len;
};

struct to {
	struct outgoing *waiting, **tail; /* for credit */
	uint64_t lent;                    /* bytes that the receiver has not given back */
};

struct incoming {
	struct incoming *next; /* of the same rank */
	MPI_Request request;
	bool done;
	enum comm_kind kind;
	uint8_t *bytes; /* owned */
	size_t len;
};

struct from {
	struct incoming *head, **tail;
	struct from *next_busy;
	bool busy;
	uint64_t owed; /* bytes handed over and not given back */
};

struct comm {
	MPI_Comm world; /* those that are kept */
	bool split;     /* some are not */
	bool left;      /* and this is one of them */
	int rank, size;
	struct outgoing *out, **out_tail;
	uint64_t unsent;
	struct to *to;     /* per rank */
	struct from *from; /* per rank */
	void (*sending)(uint32_t rank, void *arg);
	void *sending_arg;
	bool owing;        /* some rank is owed CREDIT_BYTES or more */
	struct from *busy; /* those that something is arriving from */
};

static int say_error(int mpi_code, const char *what, struct cistern_error *err)
{
	char text[MPI_MAX_ERROR_STRING] = "";
	int len = 0;

	MPI_Error_string(mpi_code, text, &len);
	return cistern_error_set(err, -EIO, "%s: %s", what, text);
}

/* Called for every look at MPI: what is said of an error costs nothing as long as there is none. */
int comm_error(int mpi_code, const char *what, struct cistern_error *err)
{
	return mpi_code == MPI_SUCCESS ? 0 : say_error(mpi_code, what, err);
}

static void take_world(struct comm *c, MPI_Comm world)
{
	c->world = world;
	MPI_Comm_set_errhandler(c->world, MPI_ERRORS_RETURN);
	MPI_Comm_rank(c->world, &c->rank);
	MPI_Comm_size(c->world, &c->size);
	free(c->from);
	free(c->to);
	c->from = calloc((size_t)c->size, sizeof(*c->from));
	c->to = calloc((size_t)c->size, sizeof(*c->to));
	if (!c->from || !c->to)
		comm_abort(c, CISTERN_EXIT_FAILED);
	for (int i = 0; i < c->size; i++) {
		c->from[i].tail = &c->from[i].head;
		c->to[i].tail = &c->to[i].waiting;
	}
}

int comm_create(int *argc, char ***argv, struct comm **ret, struct cistern_error *err)
{
	struct comm *c = calloc(1, sizeof(*c));
	int provided = 0, r;

	if (!c)
		return cistern_error_set(err, -ENOMEM, "out of memory");
	r = comm_error(MPI_Init_thread(argc, argv, MPI_THREAD_FUNNELED, &provided), "MPI_Init_thread", err);
	if (r < 0) {
		free(c);
		return r;
	}
	c->out_tail = &c->out;
	take_world(c, MPI_COMM_WORLD);
	*ret = c;
	return 0;
}

MPI_Comm comm_mpi(const struct comm *c)
{
	return c->world;
}

static void free_incoming(struct from *f)
{
	while (f->head) {
		struct incoming *m = f->head;

		f->head = m->next;
		free(m->bytes);
		free(m);
	}
}

static void free_outgoing(struct outgoing *o)
{
	while (o) {
		struct outgoing *next = o->next;

		free(o->bytes);
		free(o);
		o = next;
	}
}

/* MPI_Finalize waits for all ranks, perhaps awake: so those that are not kept wait here, asleep, for as long as the others work. */
static void meet_all(struct comm *c)
{
	MPI_Request request;
	int done = 0;

	if (!c->split || MPI_Ibarrier(MPI_COMM_WORLD, &request) != MPI_SUCCESS)
		return;
	while (MPI_Test(&request, &done, MPI_STATUS_IGNORE) == MPI_SUCCESS && !done)
		if (signals_nap(c->left ? LEFT_NAP_NSEC : NAP_NSEC) && c->left)
			comm_abort(c, CISTERN_EXIT_OK); /* told to end: all are, as by any other agent */
}

int comm_destroy(struct comm *c, struct cistern_error *err)
{
	meet_all(c);
	int r = comm_error(MPI_Finalize(), "MPI_Finalize", err);

	for (int i = 0; i < c->size; i++) {
		free_incoming(&c->from[i]);
		free_outgoing(c->to[i].waiting);
	}
	free_outgoing(c->out);
	free(c->from);
	free(c->to);
	free(c);
	return r;
}

void comm_abort(struct comm *c, int status)
{
	alarm(ABORT_SECONDS); /* should even this hang */
	MPI_Abort(c->world, status);
	_exit(status);
}

uint32_t comm_rank(const struct comm *c)
{
	return (uint32_t)c->rank;
}

uint32_t comm_size(const struct comm *c)
{
	return (uint32_t)c->size;
}

/* ---- collective */

/* Waits for a request, more and more asleep. timeout_usec 0: none. */
static int wait_for(MPI_Request *request, uint64_t timeout_usec, const char *what, struct cistern_error *err)
{
	uint64_t began = clock_usec(), passed;
	int done = 0, r;

	for (;;) {
		r = comm_error(MPI_Test(request, &done, MPI_STATUS_IGNORE), what, err);
		if (r < 0 || done)
			return r;
		passed = clock_usec() - began;
		if (timeout_usec && passed > timeout_usec)
			return cistern_error_set(err, -ETIMEDOUT, "%s: not all agents answer", what);
		if (signals_nap(passed < 1000 ? 0 : passed < 100000 ? 200000 : 2000000))
			return cistern_error_set(err, -EINTR, "told to end while waiting for the other agents");
	}
}

int comm_keep(struct comm *c, bool keep, struct cistern_error *err)
{
	MPI_Comm part;
	bool all;
	int r = comm_all(c, keep, &all, err);

	if (r < 0 || all)
		return r;
	r = comm_error(MPI_Comm_split(c->world, keep ? 0 : 1, c->rank, &part), "MPI_Comm_split", err);
	if (r < 0)
		return r;
	c->split = true;
	c->left = !keep;
	take_world(c, part);
	return 0;
}

int comm_gather(struct comm *c, const void *mine, size_t len, void *all, struct cistern_error *err)
{
	MPI_Request request;
	int r = comm_error(MPI_Igather(mine, (int)len, MPI_BYTE, all, (int)len, MPI_BYTE, 0, c->world, &request),
		"MPI_Igather", err);

	return r < 0 ? r : wait_for(&request, 0, "MPI_Igather", err);
}

int comm_broadcast(struct comm *c, void *bytes, size_t len, struct cistern_error *err)
{
	MPI_Request request;
	int r = comm_error(MPI_Ibcast(bytes, (int)len, MPI_BYTE, 0, c->world, &request), "MPI_Ibcast", err);

	return r < 0 ? r : wait_for(&request, 0, "MPI_Ibcast", err);
}

int comm_all(struct comm *c, bool mine, bool *ret_all, struct cistern_error *err)
{
	uint8_t one = mine, *each = c->rank == 0 ? calloc((size_t)c->size, 1) : NULL;
	int r = c->rank == 0 && !each ? cistern_error_set(err, -ENOMEM, "out of memory")
				      : comm_gather(c, &one, sizeof(one), each, err);

	for (int i = 0; r == 0 && each && i < c->size; i++)
		one &= each[i];
	free(each);
	if (r == 0)
		r = comm_broadcast(c, &one, sizeof(one), err);
	*ret_all = one;
	return r;
}

struct vote { /* all ranks run the same program */
	int32_t code;
	char text[CISTERN_ERROR_TEXT_BYTES];
};

int comm_agree(struct comm *c, int code, const char *text, struct cistern_error *err)
{
	struct vote mine = { .code = code }, *all = NULL;
	int r;

	if (code && text)
		strncpy(mine.text, text, sizeof(mine.text) - 1);
	if (c->rank == 0) {
		all = calloc((size_t)c->size, sizeof(*all));
		if (!all)
			return cistern_error_set(err, -ENOMEM, "out of memory");
	}
	r = comm_gather(c, &mine, sizeof(mine), all, err);
	for (int i = c->size - 1; r == 0 && all && i >= 0; i--)
		if (all[i].code)
			mine = all[i];
	free(all);
	if (r == 0)
		r = comm_broadcast(c, &mine, sizeof(mine), err);
	if (r < 0 || !mine.code)
		return r;
	mine.text[sizeof(mine.text) - 1] = '\0';
	return cistern_error_set(err, mine.code, "%s", mine.text);
}

int comm_barrier(struct comm *c, uint64_t timeout_usec, struct cistern_error *err)
{
	MPI_Request request;
	int r = comm_error(MPI_Ibarrier(c->world, &request), "MPI_Ibarrier", err);

	return r < 0 ? r : wait_for(&request, timeout_usec, "MPI_Ibarrier", err);
}

/* ---- messages */

void comm_set_sending(struct comm *c, void (*sending)(uint32_t rank, void *arg), void *arg)
{
	c->sending = sending;
	c->sending_arg = arg;
}

/* Takes over o. */
static int begin_send(struct comm *c, uint32_t rank, struct outgoing *o, struct cistern_error *err)
{
	int r = comm_error(MPI_Isend(o->bytes, (int)o->len, MPI_BYTE, (int)rank, (int)o->kind, c->world, &o->request),
		"MPI_Isend", err);

	o->next = NULL;
	if (r < 0) {
		free_outgoing(o);
		return cistern_error_prefix(err, "rank %u", rank);
	}
	*c->out_tail = o;
	c->out_tail = &o->next;
	if (c->sending)
		c->sending(rank, c->sending_arg);
	return 0;
}

static bool needs_credit(enum comm_kind kind)
{
	return kind == COMM_PAYLOAD || kind == COMM_NOTICE;
}

/* Sends those that wait, as far as there is credit: one may always be on its way, however large. */
static int send_waiting(struct comm *c, uint32_t rank, struct cistern_error *err)
{
	struct to *to = &c->to[rank];
	int r = 0;

	while (r == 0 && to->waiting && (to->lent == 0 || to->lent + to->waiting->len <= COMM_WINDOW_BYTES)) {
		struct outgoing *o = to->waiting;

		to->waiting = o->next;
		if (!to->waiting)
			to->tail = &to->waiting;
		to->lent += o->len;
		r = begin_send(c, rank, o, err);
	}
	return r;
}

int comm_send(struct comm *c, uint32_t rank, enum comm_kind kind, void *bytes, size_t len, struct cistern_error *err)
{
	struct outgoing *o = calloc(1, sizeof(*o));

	if (!o || !bytes) {
		free(o);
		free(bytes);
		return cistern_error_set(err, -ENOMEM, "out of memory");
	}
	*o = (struct outgoing){ .kind = kind, .bytes = bytes, .len = len };
	c->unsent += len;
	if (!needs_credit(kind))
		return begin_send(c, rank, o, err);
	*c->to[rank].tail = o;
	c->to[rank].tail = &o->next;
	return send_waiting(c, rank, err);
}

/* What was handed over of a rank is done with. */
static int give_back(struct comm *c, uint32_t rank, struct cistern_error *err)
{
	struct buf b = { 0 };

	buf_u64(&b, c->from[rank].owed);
	c->from[rank].owed = 0;
	return comm_send(c, rank, COMM_CREDIT, b.data, b.len, err);
}

static int give_back_all(struct comm *c, struct cistern_error *err)
{
	int r = 0;

	if (!c->owing)
		return 0;
	c->owing = false;
	for (int i = 0; i < c->size && r == 0; i++)
		if (c->from[i].owed >= CREDIT_BYTES)
			r = give_back(c, (uint32_t)i, err);
	return r;
}

static int on_credit(struct comm *c, uint32_t rank, const struct incoming *m, struct cistern_error *err)
{
	struct cursor cur = cursor_make(m->bytes, m->len);
	uint64_t bytes = cursor_u64(&cur);

	if (!cursor_ok(&cur) || bytes > c->to[rank].lent)
		return cistern_error_set(err, -EBADMSG, "rank %u gives back what it did not get", rank);
	c->to[rank].lent -= bytes;
	return send_waiting(c, rank, err);
}

uint64_t comm_unsent_bytes(const struct comm *c)
{
	return c->unsent;
}

static int finish_sends(struct comm *c, struct cistern_error *err)
{
	struct outgoing **at = &c->out, *o;
	int done, num = 0, r;

	while ((o = *at)) {
		r = comm_error(MPI_Test(&o->request, &done, MPI_STATUS_IGNORE), "MPI_Isend", err);
		if (r < 0)
			return r;
		if (!done) {
			at = &o->next;
			continue;
		}
		*at = o->next;
		c->unsent -= o->len;
		free(o->bytes);
		free(o);
		num++;
	}
	c->out_tail = at;
	return num;
}

/* Takes up one message that has arrived, or begun to. 1, or 0: there is none. */
static int take_one(struct comm *c, struct cistern_error *err)
{
	struct incoming *m;
	MPI_Message message;
	MPI_Status status;
	struct from *f;
	int there = 0, len = 0;
	int r = comm_error(
		MPI_Improbe(MPI_ANY_SOURCE, MPI_ANY_TAG, c->world, &there, &message, &status), "MPI_Improbe", err);

	if (r < 0 || !there)
		return r;
	MPI_Get_count(&status, MPI_BYTE, &len);
	m = calloc(1, sizeof(*m));
	if (m)
		m->bytes = malloc((size_t)len + 1);
	if (!m || !m->bytes) {
		free(m);
		return cistern_error_set(err, -ENOMEM, "no memory for a message of %d bytes", len);
	}
	m->kind = (enum comm_kind)status.MPI_TAG;
	m->len = (size_t)len;
	f = &c->from[status.MPI_SOURCE];
	*f->tail = m;
	f->tail = &m->next;
	if (!f->busy) {
		f->busy = true;
		f->next_busy = c->busy;
		c->busy = f;
	}
	r = comm_error(MPI_Imrecv(m->bytes, len, MPI_BYTE, &message, &m->request), "MPI_Imrecv", err);
	return r < 0 ? r : 1;
}

/* One that is complete; takes over its bytes. */
static int deliver(struct comm *c, struct from *f, struct incoming *m, comm_received received, void *arg,
	struct cistern_error *err)
{
	uint32_t rank = (uint32_t)(f - c->from);
	int r;

	if (m->kind == COMM_CREDIT) {
		r = on_credit(c, rank, m, err);
		free(m->bytes);
		return r;
	}
	if (needs_credit(m->kind)) {
		f->owed += m->len;
		c->owing |= f->owed >= CREDIT_BYTES;
	}
	return received(rank, m->kind, m->bytes, m->len, arg);
}

/* Hands over what is complete at the head of one rank's queue. */
static int hand_over(struct comm *c, struct from *f, comm_received received, void *arg, struct cistern_error *err)
{
	int num = 0, done, r;

	while (f->head) {
		struct incoming *m = f->head;

		r = comm_error(MPI_Test(&m->request, &done, MPI_STATUS_IGNORE), "MPI_Imrecv", err);
		if (r < 0)
			return r;
		if (!done)
			break;
		f->head = m->next;
		if (!f->head)
			f->tail = &f->head;
		r = deliver(c, f, m, received, arg, err);
		free(m);
		if (r < 0)
			return r;
		num++;
	}
	return num;
}

int comm_step(struct comm *c, bool more, comm_received received, void *arg, struct cistern_error *err)
{
	int num = finish_sends(c, err), r = 1;
	struct from **at = &c->busy;

	for (int i = 0; num >= 0 && r == 1 && i < TAKE_AT_ONCE; i++) {
		r = take_one(c, err);
		num = r < 0 ? r : num + r;
	}
	while (num >= 0 && *at) {
		struct from *f = *at;

		r = hand_over(c, f, received, arg, err);
		if (r < 0)
			return r;
		num += r;
		if (f->head) {
			at = &f->next_busy;
			continue;
		}
		*at = f->next_busy;
		f->busy = false;
	}
	r = num >= 0 && more ? give_back_all(c, err) : 0;
	return r < 0 ? r : num;
}

bool comm_busy(const struct comm *c)
{
	return c->out || c->busy;
}
