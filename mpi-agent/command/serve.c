/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * cistern-mpi-agent: serves one node's daemon among those of the other nodes. It carries messages and fetches bytes, and keeps nothing
 * that must not be lost: whatever goes wrong with MPI, the whole set of agents ends, and is started again.
 *
 * One thread, one loop. While something goes on it looks at MPI again and again; then it sleeps, longer and longer, and at last in
 * poll(), from which sockets wake it: the daemon's, that for wake-ups (comm/wake.h), deleted segments, signals.
 */
#include <errno.h>
#include <getopt.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <time.h>
#include <unistd.h>

#include "format/base/descriptors.h"
#include "format/base/limits.h"
#include "format/base/clock.h"
#include "format/base/units.h"
#include "mpi-agent/comm/link.h"
#include "mpi-agent/comm/signals.h"
#include "mpi-agent/command/assemble.h"
#include "mpi-agent/command/command.h"
#include "mpi-agent/command/convert.h"
#include "mpi-agent/command/say.h"
#include "mpi-agent/window/holder.h"
#include "mpi-agent/window/reader.h"

#define QUEUE_BYTES_MAX (64ull << 20) /* on their way to other nodes: beyond, the daemon is not listened to */

#define SLOW_AFTER_USEC 100000u /* so long we look often while something is under way that does not come */
#define NAP_NSEC        20000   /* how often "often" is */
#define SLOW_NAP_NSEC   500000
#define LOOK_NSEC       20000000 /* a look at MPI when idle */
#define ALONE_NSEC      1000000000
#define AGAIN_USEC      250000u   /* between tries to find a new daemon, */
#define AGAIN_USEC_MAX  10000000u /* and at last to serve one that is there and cannot be served */

#define END_USEC         2000000u /* for what is under way when all end */
#define QUIT_USEC        5000000u /* for rank 0 to hear that we were told to end */
#define BARRIER_USEC     5000000u
#define FINALIZE_SECONDS 10
#define START_USEC       60000000u

struct old_memory { /* of a daemon that has gone, while there are gets into it */
	struct old_memory *next;
	struct assembly_memory memory;
};

struct serve {
	struct comm *comm;
	struct wake *wake;
	struct arena *arena;
	struct near *near;
	struct holder *holder;
	struct reader *reader;
	struct link *link; /* NULL: the daemon has left */
	struct assembly a;
	int signals;
	struct wire_msg out; /* scratch */
	uint32_t num_left;
	uint64_t now_usec, active_usec, again_usec, end_usec;
	uint64_t pause_usec;           /* until again_usec comes again */
	uint64_t left;                 /* the incarnation of the daemon that has gone */
	struct old_memory *old;        /* owned */
	struct cistern_error unserved; /* why the daemon that is there is not served, as it was said last */
	uint64_t quit_usec;            /* 0: we were not told to end */
	bool ending;
	struct cistern_error err;
};

/* ---- to other agents */

static int send_control(uint32_t rank, const struct control *m, void *arg)
{
	bool in_order = m->kind == CONTROL_LEFT || m->kind == CONTROL_JOINED; /* with the daemons' messages */

	struct serve *s = arg;

	return comm_send(
		s->comm, rank, in_order ? COMM_NOTICE : COMM_CONTROL, control_encode(m), CONTROL_BYTES, &s->err);
}

static int send_to_others(struct serve *s, enum control_kind kind, uint64_t len)
{
	struct control m = { .kind = kind, .len = len };
	int r = 0;

	for (uint32_t rank = 0; rank < s->a.num && r == 0; rank++)
		if (rank != comm_rank(s->comm))
			r = send_control(rank, &m, s);
	return r;
}

/* ---- to the daemon */

static int tell(struct serve *s)
{
	int r = s->link ? link_send(s->link, &s->out) : 0;

	return r < 0 ? cistern_error_set(&s->err, r, "a message for the daemon: %s", strerror(-r)) : 0;
}

static int tell_node(struct serve *s, enum wire_type type, uint32_t rank, uint64_t incarnation)
{
	wire_msg_init(&s->out, type);
	wire_put_u64(&s->out, WIRE_NODE, s->a.members[rank].node);
	if (type == WIRE_PEER_JOINED)
		wire_put_u64(&s->out, WIRE_INCARNATION, incarnation);
	return tell(s);
}

static void on_got(uint64_t id, int status, void *arg)
{
	struct serve *s = arg;

	wire_msg_init(&s->out, WIRE_PEER_GOT);
	wire_put_u64(&s->out, WIRE_SEQ, id);
	wire_put_i64(&s->out, WIRE_STATUS, status);
	(void)tell(s); /* out of memory is in s->err, and noticed by the loop */
}

static void on_sending(uint32_t rank, void *arg)
{
	struct serve *s = arg;

	wake_up(s->wake, rank, s->now_usec);
}

static void on_reading(uint32_t rank, void *arg)
{
	struct serve *s = arg;

	wake_hurry(s->wake, rank, s->now_usec);
}

static void on_read(uint32_t rank, void *arg)
{
	struct serve *s = arg;

	wake_heard(s->wake, rank, s->now_usec);
}

/* ---- the end */

static int end_all(struct serve *s)
{
	struct control quit = { .kind = CONTROL_QUIT };

	if (s->ending || s->quit_usec)
		return 0;
	if (comm_rank(s->comm) != 0) {
		s->quit_usec = s->now_usec + QUIT_USEC;
		return send_control(0, &quit, s);
	}
	s->ending = true;
	return send_to_others(s, CONTROL_END, 0);
}

/* A rank's daemon has gone, or is back (incarnation not 0). When all have gone, so do we. */
static int set_incarnation(struct serve *s, uint32_t rank, uint64_t incarnation)
{
	struct assembly_member *m = &s->a.members[rank];
	int r = 0;

	if (m->incarnation && !incarnation)
		s->num_left++;
	if (!m->incarnation && incarnation)
		s->num_left--;
	m->incarnation = incarnation;
	if (rank != comm_rank(s->comm))
		r = tell_node(s, incarnation ? WIRE_PEER_JOINED : WIRE_PEER_LEFT, rank, incarnation);
	if (r == 0 && s->num_left == s->a.num && comm_rank(s->comm) == 0)
		r = end_all(s);
	return r;
}

/* ---- what comes from other agents */

static int on_payload(struct serve *s, uint32_t rank, const uint8_t *bytes, size_t len)
{
	if (!s->link)
		return 0;
	wire_msg_init(&s->out, WIRE_PEER_RECEIVED);
	wire_put_u64(&s->out, WIRE_NODE, s->a.members[rank].node);
	wire_put_bytes(&s->out, WIRE_PAYLOAD, bytes, len);
	return tell(s);
}

static int on_control(struct serve *s, uint32_t rank, const struct control *m)
{
	switch (m->kind) {
	case CONTROL_ASK:
	case CONTROL_SOON:
	case CONTROL_RETIRED: return holder_on_control(s->holder, rank, m);
	case CONTROL_ANSWER:
	case CONTROL_RETIRE: return reader_on_control(s->reader, rank, m);
	case CONTROL_LEFT: return set_incarnation(s, rank, 0);
	case CONTROL_JOINED: return set_incarnation(s, rank, m->len);
	case CONTROL_QUIT: return end_all(s);
	case CONTROL_END: s->ending = true; return 0;
	}
	return -EBADMSG;
}

static int on_message(uint32_t rank, enum comm_kind kind, uint8_t *bytes, size_t len, void *arg)
{
	struct serve *s = arg;
	struct control m;
	int r;

	wake_heard(s->wake, rank, s->now_usec);
	if (kind == COMM_PAYLOAD) {
		r = on_payload(s, rank, bytes, len);
	} else {
		r = control_decode(bytes, len, &m);
		if (r == 0)
			r = on_control(s, rank, &m);
	}
	free(bytes);
	if (r < 0 && !s->err.code)
		cistern_error_set(&s->err, r, "a message of host %s: %s", s->a.members[rank].host, strerror(-r));
	return r;
}

/* ---- what comes from the daemon */

/* Rank of a node that is not ourselves; READER_NO_RANK: there is none. */
static uint32_t rank_of(const struct serve *s, uint64_t node)
{
	return node < s->a.num && node != s->a.self.node ? s->a.rank_of[node] : READER_NO_RANK;
}

static int on_send(struct serve *s, const struct wire_msg *m)
{
	const uint8_t *p = NULL;
	uint64_t node = UINT64_MAX;
	uint32_t rank;
	size_t len = 0;
	void *copy;

	if (!wire_get_u64(m, WIRE_NODE, &node) || !wire_get_bytes(m, WIRE_PAYLOAD, 0, &p, &len))
		return -EBADMSG;
	rank = rank_of(s, node);
	if (rank == READER_NO_RANK)
		return -EBADMSG;
	if (!s->a.members[rank].incarnation)
		return 0;
	copy = malloc(len + 1);
	if (copy && len)
		memcpy(copy, p, len);
	return comm_send(s->comm, rank, COMM_PAYLOAD, copy, len, &s->err);
}

#define RANGE_BYTES 32u

static int on_get(struct serve *s, const struct wire_msg *m)
{
	struct reader_range *ranges;
	const uint8_t *p = NULL;
	struct cursor c;
	uint64_t id = 0;
	size_t len = 0;
	int r;

	if (!wire_get_u64(m, WIRE_SEQ, &id) || !wire_get_bytes(m, WIRE_PAYLOAD, 0, &p, &len) || len % RANGE_BYTES)
		return -EBADMSG;
	ranges = calloc(len / RANGE_BYTES + 1, sizeof(*ranges));
	if (!ranges)
		return -ENOMEM;
	c = cursor_make(p, len);
	for (size_t i = 0; i < len / RANGE_BYTES; i++) {
		ranges[i].rank = rank_of(s, cursor_u32(&c));
		ranges[i].segment = cursor_u32(&c);
		ranges[i].off = cursor_u64(&c);
		ranges[i].len = cursor_u32(&c);
		cursor_u32(&c);
		ranges[i].to = cursor_u64(&c);
	}
	r = reader_get(s->reader, id, ranges, len / RANGE_BYTES);
	free(ranges);
	return r;
}

static int on_frame(const struct wire_msg *m, void *arg)
{
	struct serve *s = arg;
	int r = 0;

	if (m->type == WIRE_PEER_SEND)
		r = on_send(s, m);
	else if (m->type == WIRE_PEER_GET)
		r = on_get(s, m);
	if (r < 0 && !s->err.code)
		cistern_error_set(&s->err, r, "%s: a message of the daemon: %s", s->a.self.store, strerror(-r));
	return r;
}

/* ---- a daemon that goes, and perhaps comes back */

static int make_reader(struct serve *s)
{
	struct reader_options opt = { .arena = s->arena,
		.near = s->near,
		.memory = s->a.memory.at,
		.memory_bytes = s->a.memory.bytes,
		.self = comm_rank(s->comm),
		.num_ranks = s->a.num,
		.sender = { send_control, s },
		.reading = on_reading,
		.read = on_read,
		.got = on_got,
		.arg = s };

	return reader_create(&opt, &s->reader);
}

static void say(const char *text)
{
	fprintf(stderr, "cistern agent: %s\n", text);
}

static void say_as_node(const struct serve *s, struct cistern_error err)
{
	cistern_error_prefix(&err, "node %u of %u (host %s)", s->a.self.node, s->a.num, s->a.self.host);
	say(err.text);
}

static void look_again(struct serve *s, uint64_t pause_usec)
{
	s->pause_usec = pause_usec < AGAIN_USEC_MAX ? pause_usec : AGAIN_USEC_MAX;
	s->again_usec = s->now_usec + s->pause_usec;
}

static int daemon_left(struct serve *s)
{
	int r;

	link_destroy(s->link);
	s->link = NULL;
	s->left = s->a.self.incarnation;
	look_again(s, AGAIN_USEC);
	r = reader_abandon(s->reader);
	if (r == 0)
		r = set_incarnation(s, comm_rank(s->comm), 0);
	return r < 0 ? r : send_to_others(s, CONTROL_LEFT, 0);
}

/* There is none; or there is one that is not served, which is said once. */
static void found_none(struct serve *s, const struct cistern_error *err)
{
	if (err->code == -ENOENT || err->code == -ECONNREFUSED || err->code == -ECONNRESET) {
		s->unserved = (struct cistern_error){ 0 };
		look_again(s, AGAIN_USEC);
		return;
	}
	if (err->code != -ETIMEDOUT ||
		!s->unserved.code) { /* one that is slow for once is not served for the old reason */
		if (strcmp(err->text, s->unserved.text) != 0)
			say_as_node(s, *err);
		s->unserved = *err;
	}
	look_again(s, 2 * s->pause_usec);
}

static void free_old_memory(struct serve *s)
{
	while (s->old) {
		struct old_memory *old = s->old;

		s->old = old->next;
		assembly_memory_free(&old->memory);
		free(old);
	}
}

/* A new daemon's memory takes the place of the old one's, which must stay until gets into it have ended. */
static int find_daemon(struct serve *s)
{
	struct old_memory *old = calloc(1, sizeof(*old));
	struct cistern_error err = { 0 };

	if (!old)
		return -ENOMEM;
	if (assemble_again(&s->a, &old->memory, &err) < 0) {
		free(old);
		found_none(s, &err);
		return 0;
	}
	old->next = s->old;
	s->old = old;
	return 0;
}

static int take_daemon(struct serve *s)
{
	struct cistern_error err = { 0 };
	int r;

	s->a.members[comm_rank(s->comm)].incarnation = s->a.self.incarnation;
	if (assemble_tell_again(&s->a, &err) < 0) {
		s->a.members[comm_rank(s->comm)].incarnation = 0;
		close(s->a.fd);
		s->a.fd = -1;
		found_none(s, &err);
		return 0;
	}
	s->num_left--;
	s->unserved = (struct cistern_error){ 0 };
	reader_set_memory(s->reader, s->a.memory.at, s->a.memory.bytes);
	r = link_create(s->a.fd, &s->link);
	s->a.fd = -1;
	return r < 0 ? r : send_to_others(s, CONTROL_JOINED, s->a.self.incarnation);
}

/* A daemon that was only not connected for a while may use its memory for something else: gets into it must have ended. */
static bool must_wait(const struct serve *s)
{
	return s->a.self.incarnation == s->left && reader_reads_old(s->reader);
}

static int look_for_daemon(struct serve *s)
{
	int r = 0;

	if (s->old && !reader_reads_old(s->reader))
		free_old_memory(s);
	if (s->link || s->ending || s->now_usec < s->again_usec)
		return 0;
	look_again(s, s->pause_usec);
	if (s->a.fd < 0)
		r = find_daemon(s);
	return r < 0 || s->a.fd < 0 || must_wait(s) ? r : take_daemon(s);
}

/* ---- the loop */

/* Bounds, in both directions: of whom is full no more is taken; what is under way goes on. */
static bool may_read_daemon(const struct serve *s)
{
	return s->link && !s->ending && comm_unsent_bytes(s->comm) < QUEUE_BYTES_MAX;
}

static bool wants_more(const struct serve *s)
{
	return !s->link || link_unsent_bytes(s->link) < COMM_WINDOW_BYTES;
}

static bool is_busy(const struct serve *s)
{
	return comm_busy(s->comm) || reader_busy(s->reader);
}

/* How long to sleep, when nothing happens. */
static long nap_nsec(const struct serve *s)
{
	uint64_t quiet = s->now_usec - s->active_usec;

	if (quiet < WAKE_SPINS_USEC)
		return 0;
	if (is_busy(s) || s->ending)
		return quiet < SLOW_AFTER_USEC ? NAP_NSEC : SLOW_NAP_NSEC;
	if (quiet < WAKE_STAYS_USEC)
		return NAP_NSEC;
	return s->a.num > 1 ? LOOK_NSEC : ALONE_NSEC;
}

enum { POLL_WAKE, POLL_SIGNALS, POLL_SEGMENTS, POLL_DAEMON, POLL_NUM };

/* Sleeps; then, how many of the sockets have something, which is in fds. */
static int sleep_in_poll(struct serve *s, struct pollfd fds[POLL_NUM])
{
	struct timespec nap = { 0 };
	long nsec = nap_nsec(s);
	int r;

	fds[POLL_WAKE] = (struct pollfd){ wake_fd(s->wake), POLLIN, 0 };
	fds[POLL_SIGNALS] = (struct pollfd){ s->signals, POLLIN, 0 };
	fds[POLL_SEGMENTS] = (struct pollfd){ holder_fd(s->holder), POLLIN, 0 };
	fds[POLL_DAEMON] = (struct pollfd){ s->link ? link_fd(s->link) : -1, 0, 0 };
	if (may_read_daemon(s))
		fds[POLL_DAEMON].events |= POLLIN;
	if (s->link && link_unsent_bytes(s->link))
		fds[POLL_DAEMON].events |= POLLOUT;
	if (nsec == 0)
		sched_yield();
	nap.tv_sec = nsec / 1000000000;
	nap.tv_nsec = nsec % 1000000000;
	r = ppoll(fds, POLL_NUM, &nap, NULL);
	s->now_usec = clock_usec();
	return r < 0 && errno != EINTR ? -errno : r < 0 ? 0 : r;
}

static int serve_daemon(struct serve *s, const struct pollfd *p)
{
	bool has_gone = p->revents & (POLLHUP | POLLERR); /* so there is an end to what it has said */
	int r = 0;

	if (s->link && p->revents && (has_gone || may_read_daemon(s)))
		r = link_read(s->link, on_frame, s);
	if (s->err.code)
		return s->err.code;
	if (r >= 0 && s->link && link_unsent_bytes(s->link))
		r = link_flush(s->link);
	return r < 0 && s->link ? daemon_left(s) : 0;
}

static int serve_sockets(struct serve *s, const struct pollfd fds[POLL_NUM])
{
	struct signalfd_siginfo info;
	int r = 0;

	if (fds[POLL_WAKE].revents)
		(void)wake_drain(s->wake);
	if (fds[POLL_SIGNALS].revents && read(s->signals, &info, sizeof(info)) > 0)
		r = end_all(s);
	if (r >= 0 && fds[POLL_SEGMENTS].revents)
		r = holder_look(s->holder);
	return r < 0 ? r : 0;
}

/* How many things happened, or an error. */
static int serve_once(struct serve *s)
{
	struct pollfd fds[POLL_NUM];
	int num = sleep_in_poll(s, fds), r;

	r = num > 0 ? serve_sockets(s, fds) : num;
	if (r == 0)
		r = comm_step(s->comm, wants_more(s), on_message, s, &s->err);
	num = r < 0 ? r : num + r;
	if (r >= 0)
		r = reader_step(s->reader, &s->err);
	num = r < 0 ? r : num + r;
	if (r >= 0)
		r = serve_daemon(s, &fds[POLL_DAEMON]);
	if (r >= 0)
		r = look_for_daemon(s);
	if (r >= 0 && s->err.code)
		r = s->err.code;
	return r < 0 ? r : num;
}

static bool has_ended(struct serve *s)
{
	if (!s->ending)
		return false;
	if (!s->end_usec) {
		s->end_usec = s->now_usec + END_USEC;
		link_destroy(s->link);
		s->link = NULL;
	}
	return s->now_usec > s->end_usec || (!comm_busy(s->comm) && !arena_busy(s->arena));
}

static int check_quit(struct serve *s)
{
	if (s->ending || !s->quit_usec || s->now_usec <= s->quit_usec)
		return 0;
	return cistern_error_set(
		&s->err, -ETIMEDOUT, "told to end, but host %s, which ends all, does not answer", s->a.members[0].host);
}

static int serve_loop(struct serve *s)
{
	int r = 0;

	s->now_usec = s->active_usec = clock_usec();
	while (!has_ended(s)) {
		r = check_quit(s);
		if (r == 0)
			r = serve_once(s);
		if (r < 0)
			return r;
		if (r > 0)
			s->active_usec = s->now_usec;
	}
	return arena_busy(s->arena) ? cistern_error_set(&s->err, -ETIMEDOUT, "a get does not end") : 0;
}

/* ---- from the beginning to the end */

static int exit_status(int code)
{
	switch (code) {
	case 0:
	case -EALREADY: return CISTERN_EXIT_OK;
	case -EINVAL: return CISTERN_EXIT_USAGE;
	case -EBUSY: return CISTERN_EXIT_BUSY;
	case -ETIMEDOUT: return CISTERN_EXIT_TIMEOUT;
	default: return CISTERN_EXIT_FAILED;
	}
}

/* Measures and tests of gets on one host ask for gets. */
static int find_near(struct serve *s)
{
	const char *wanted = getenv("CISTERN_AGENT_NEAR");
	int r;

	if (wanted && strcmp(wanted, "no") == 0)
		return 0;
	r = near_create(s->a.num, &s->near);
	for (uint32_t rank = 0; r == 0 && rank < s->a.num; rank++)
		if (rank != comm_rank(s->comm) && s->a.members[rank].store)
			near_add(s->near, rank, s->a.members[rank].store, &s->a.members[rank].folder);
	return r;
}

static int prepare(struct serve *s)
{
	struct control_sender sender = { send_control, s };
	int r = arena_create(s->comm, &s->arena, &s->err);

	if (r == 0)
		r = holder_create(s->a.self.store, s->arena, s->a.num, &sender, &s->holder, &s->err);
	if (r == 0)
		r = find_near(s);
	if (r == 0)
		r = make_reader(s);
	comm_set_sending(s->comm, on_sending, s);
	if (r == 0) {
		r = link_create(s->a.fd, &s->link);
		s->a.fd = -1;
	}
	if (r < 0 && !s->err.code)
		cistern_error_set(&s->err, r, "cannot begin to serve: %s", strerror(-r));
	return r;
}

/* Whatever fails from here on is the end of all agents. */
static void die(struct serve *s)
{
	say_as_node(s, s->err);
	comm_abort(s->comm, exit_status(s->err.code));
}

static int drop(uint32_t rank, enum comm_kind kind, uint8_t *bytes, size_t len, void *arg)
{
	(void)rank;
	(void)kind;
	(void)len;
	(void)arg;
	free(bytes);
	return 0;
}

static void finish(struct serve *s)
{
	alarm(FINALIZE_SECONDS); /* MPI waits for ranks that may have died */
	if (comm_barrier(s->comm, BARRIER_USEC, &s->err) < 0)
		die(s);
	while (comm_step(s->comm, false, drop, NULL, &s->err) > 0) /* MPI would complain of what nobody took */
		continue;
	arena_destroy(s->arena);
	holder_destroy(s->holder);
	reader_destroy(s->reader);
	near_destroy(s->near);
	free_old_memory(s);
	link_destroy(s->link);
	wake_destroy(s->wake);
	wire_msg_free(&s->out);
	assembly_release(&s->a);
	if (s->signals >= 0)
		close(s->signals);
	if (comm_destroy(s->comm, &s->err) < 0)
		say(s->err.text); /* all that matters is done */
}

static int refused(struct serve *s)
{
	int status = exit_status(s->err.code);

	if (comm_rank(s->comm) == 0 || s->err.code == -EINTR)
		say(s->err.text);
	if (s->err.code == -EINTR) /* the others may be waiting for us */
		comm_abort(s->comm, status);
	alarm(FINALIZE_SECONDS);
	wake_destroy(s->wake);
	assembly_release(&s->a);
	(void)comm_destroy(s->comm, &s->err);
	return status;
}

/* As when srun starts several tasks on a node. */
static int leave(struct serve *s)
{
	char text[CISTERN_ERROR_TEXT_BYTES];

	snprintf(text, sizeof(text), "%.800s: another agent of this start serves this store; this one is not needed",
		s->a.self.store);
	say(text);
	wake_destroy(s->wake);
	(void)comm_destroy(s->comm, &s->err);
	return CISTERN_EXIT_OK;
}

static int serve(struct serve *s, uint64_t timeout_usec)
{
	bool kept = true;

	if (wake_create(&s->a.self.place, &s->wake, &s->err) < 0 ||
		assembly_keep_first(s->comm, &s->a, &kept, &s->err) < 0)
		die(s);
	if (!kept)
		return leave(s);
	if (assemble(s->comm, s->wake, &s->a, timeout_usec, &s->err) < 0)
		return refused(s);
	if (prepare(s) < 0)
		die(s);
	if (comm_rank(s->comm) == 0)
		fprintf(stderr, "cistern agent: assembled nodes=%u\n", s->a.num);
	if (serve_loop(s) < 0)
		die(s);
	finish(s);
	return CISTERN_EXIT_OK;
}

static const char usage_text[] = "usage: cistern-mpi-agent --store DIR [--timeout TIME]\n"
				 "       cistern-mpi-agent convert --help\n"
				 "       cistern-mpi-agent recover STORE... --to DIR\n";

static int parse(int argc, char **argv, struct serve *s, uint64_t *timeout_usec)
{
	static const struct option longs[] = { { "store", required_argument, NULL, 's' },
		{ "timeout", required_argument, NULL, 't' }, { "help", no_argument, NULL, 'h' }, { 0 } };
	int key;

	while ((key = getopt_long(argc, argv, "", longs, NULL)) >= 0) {
		if (key == 'h') {
			fputs(usage_text, stdout);
			exit(CISTERN_EXIT_OK);
		}
		if (key == 't' && units_parse_usec(optarg, timeout_usec) == 0)
			continue;
		if (key != 's' || strlen(optarg) >= sizeof(s->a.self.store))
			return -EINVAL;
		strcpy(s->a.self.store, optarg);
	}
	return s->a.self.store[0] && optind == argc ? 0 : -EINVAL;
}

int main(int argc, char **argv)
{
	struct serve *s = calloc(1, sizeof(*s));
	uint64_t timeout_usec = START_USEC;
	int status;

	descriptors_fill();
	if (!s)
		return CISTERN_EXIT_FAILED;
	limits_raise();
	if (argc > 1 && (strcmp(argv[1], "convert") == 0 || strcmp(argv[1], "recover") == 0)) {
		free(s);
		return say_flush(
			argv[1][0] == 'c' ? command_convert(argc - 1, argv + 1) : command_recover(argc - 1, argv + 1));
	}
	s->signals = -1;
	s->a.fd = -1;
	if (parse(argc, argv, s, &timeout_usec) < 0) {
		fputs(usage_text, stderr);
		return CISTERN_EXIT_USAGE;
	}
	if (getenv("PMI_RANK") || getenv("PMI_FD")) /* a launcher that dies shall not leave us behind */
		prctl(PR_SET_PDEATHSIG, SIGTERM);
	prctl(PR_SET_TIMERSLACK, 1);
	s->signals = signals_block();
	if (s->signals < 0)
		cistern_error_set(&s->err, s->signals, "cannot wait for signals: %s", strerror(-s->signals));
	if (s->signals < 0 || comm_create(&argc, &argv, &s->comm, &s->err) < 0) {
		say(s->err.text);
		return CISTERN_EXIT_FAILED;
	}
	status = serve(s, timeout_usec);
	free(s);
	return status;
}
