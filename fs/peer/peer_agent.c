/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * The agent's connection. The thread that serves it reads frames and tells the peers; what goes out is sent at once when
 * nothing waits before it, else queued for a second thread, so that no caller ever waits for the agent.
 *
 *   HELLO      who we are, and the memory. One agent at a time; its predecessor's process must be gone.
 *   ASSEMBLED  the set of stores is good: the store is numbered when it was not, the reply goes out, then the peers know
 *   the rest   SEND and GET out; RECEIVED, GOT, LEFT, JOINED in
 *
 * Ranges of our own segments are read here: the agent has the other nodes'. The lock is a leaf, taken under that of the peers.
 */
#include "fs/peer/peer_agent.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/queue.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "format/base/clock.h"
#include "format/place/place.h"
#include "format/store/hosts.h"
#include "format/wire/frame.h"
#include "format/wire/protocol.h"
#include "fs/peer/private.h"

#define BUFFERS        32u
#define OLD_AGENT_MSEC 10000    /* for the last agent's process to end */
#define GOODBYE_USEC   5000000u /* for what is queued, when the connection is closed by us */

struct out { /* waits to be sent */
	STAILQ_ENTRY(out) in_queue;
	uint64_t get_id;       /* a fetch: our own ranges come first */
	struct peers_get *own; /* owned */
	size_t num_own;
	uint8_t *to;
	uint8_t *bytes; /* owned; a frame; NULL: none */
	size_t len, sent;
};
STAILQ_HEAD(out_queue, out);

struct peer_agent {
	struct peer_agent_options opt;
	struct peers *peers; /* owned */
	uint64_t incarnation;
	int memory_fd;
	uint8_t *memory;
	size_t memory_bytes;
	pthread_mutex_t lock;
	pthread_cond_t cond;
	struct out_queue queue;
	int fd;         /* of the connection, borrowed; -1: none */
	bool serving;   /* somebody is in peer_agent_serve */
	bool assembled; /* frames may go out */
	bool closing;   /* what is queued is all that still goes */
	pid_t pid;      /* of the agent, or of the last one */
	int pid_fd;     /* -1: unknown */
	int64_t since_usec;
	char refused[CISTERN_ERROR_TEXT_BYTES];
};

static void say(struct peer_agent *a, bool warning, const char *event, const char *text)
{
	if (a->opt.log)
		a->opt.log(warning, event, text, a->opt.log_arg);
}

/* ---- what goes out */

static void out_free(struct out *o)
{
	if (!o)
		return;
	free(o->own);
	free(o->bytes);
	free(o);
}

static struct out *out_make(const struct wire_msg *m)
{
	struct out *o = calloc(1, sizeof(*o));

	if (!o || !m)
		return o;
	o->len = WIRE_HEADER_BYTES + m->body.len;
	o->bytes = buf_ok(&m->body) && m->body.len <= WIRE_MAX_BYTES ? malloc(o->len) : NULL;
	if (!o->bytes) {
		free(o);
		return NULL;
	}
	wire_encode_header(m, o->bytes);
	if (m->body.len)
		memcpy(o->bytes + WIRE_HEADER_BYTES, m->body.data, m->body.len);
	return o;
}

/* As much as goes at once. 0, -EAGAIN, or an error. */
static int push(int fd, struct out *o)
{
	while (o->sent < o->len) {
		ssize_t n = send(fd, o->bytes + o->sent, o->len - o->sent, MSG_DONTWAIT | MSG_NOSIGNAL);

		if (n < 0 && errno != EINTR)
			return -errno;
		o->sent += n > 0 ? (size_t)n : 0;
	}
	return 0;
}

/* The connection is of no use any more: who serves it will notice. Under the lock. */
static void hang_up(struct peer_agent *a)
{
	a->assembled = false;
	if (a->fd >= 0)
		shutdown(a->fd, SHUT_RDWR);
}

/* Takes o over. Under no lock of ours. */
static int submit(struct peer_agent *a, struct out *o)
{
	int r = -ENOTCONN;

	pthread_mutex_lock(&a->lock);
	if (a->assembled && !a->closing) {
		r = !o ? -ENOMEM : STAILQ_EMPTY(&a->queue) && !o->own ? push(a->fd, o) : -EAGAIN;
		if (r == -EAGAIN) {
			STAILQ_INSERT_TAIL(&a->queue, o, in_queue);
			pthread_cond_broadcast(&a->cond);
			o = NULL;
		} else if (r) {
			hang_up(a); /* a message is lost: all that was under way is */
		}
	}
	pthread_mutex_unlock(&a->lock);
	out_free(o);
	return r && r != -EAGAIN ? -ENOTCONN : 0;
}

static int op_send(void *transport, uint32_t node, const struct buf *head, const void *body, size_t body_len)
{
	struct wire_msg m = { .type = WIRE_PEER_SEND };
	struct buf payload BUF_CLEANUP = { 0 };
	struct out *o;

	buf_bytes(&payload, head->data, head->len);
	buf_bytes(&payload, body, body_len);
	wire_put_u64(&m, WIRE_NODE, node);
	wire_put_bytes(&m, WIRE_PAYLOAD, payload.data, payload.len);
	o = buf_ok(&payload) ? out_make(&m) : NULL;
	wire_msg_free(&m);
	return submit(transport, o);
}

static void put_range(struct buf *b, const struct peers_get *g, uint64_t to)
{
	buf_u32(b, g->node);
	buf_u32(b, g->segment);
	buf_u64(b, g->off);
	buf_u32(b, g->len);
	buf_u32(b, 0);
	buf_u64(b, to);
}

/* The frame for the ranges of others; NULL also when there are none. */
static struct out *get_make(
	uint64_t id, uint64_t to, const struct peers_get *gets, size_t num, uint32_t self, bool *ret_bad)
{
	struct wire_msg m = { .type = WIRE_PEER_GET };
	struct buf ranges BUF_CLEANUP = { 0 };
	struct out *o = NULL;

	for (size_t i = 0; i < num; i++)
		if (gets[i].node != self)
			put_range(&ranges, &gets[i], to + gets[i].to);
	wire_put_u64(&m, WIRE_SEQ, id);
	wire_put_bytes(&m, WIRE_PAYLOAD, ranges.data, ranges.len);
	*ret_bad = !buf_ok(&ranges);
	if (ranges.len > 0)
		o = out_make(&m);
	*ret_bad = *ret_bad || (ranges.len > 0 && !o);
	wire_msg_free(&m);
	return o;
}

static int add_own(struct out *o, uint64_t id, uint8_t *to, const struct peers_get *gets, size_t num, uint32_t self)
{
	o->own = calloc(num + 1, sizeof(*gets));
	if (!o->own)
		return -ENOMEM;
	for (size_t i = 0; i < num; i++)
		if (gets[i].node == self)
			o->own[o->num_own++] = gets[i];
	o->get_id = id;
	o->to = to;
	return 0;
}

static int op_get(void *transport, uint64_t id, uint8_t *to, const struct peers_get *gets, size_t num)
{
	struct peer_agent *a = transport;
	uint32_t self = store_superblock(a->opt.store)->node_index;
	bool bad = false, own = num == 0;
	struct out *o = get_make(id, (uint64_t)(to - a->memory), gets, num, self, &bad);

	for (size_t i = 0; i < num; i++)
		own = own || gets[i].node == self;
	if (!bad && own) {
		o = o ? o : out_make(NULL);
		bad = !o || add_own(o, id, to, gets, num, self);
	}
	if (bad) {
		out_free(o);
		o = NULL;
	}
	return submit(a, o);
}

static uint8_t *op_memory(void *transport, size_t *ret_bytes)
{
	struct peer_agent *a = transport;

	*ret_bytes = a->memory_bytes;
	return a->memory;
}

static void op_lacks(void *transport, char *text, size_t cap)
{
	struct peer_agent *a = transport;

	pthread_mutex_lock(&a->lock);
	if (a->fd >= 0)
		snprintf(text, cap,
			"This node's agent (process %ld) is there and waits for those of the other nodes, or they for their mounts",
			(long)a->pid);
	else if (*a->refused)
		snprintf(text, cap, "The last ones ended: %s", a->refused);
	else
		snprintf(text, cap, "There is none on this node");
	pthread_mutex_unlock(&a->lock);
}

static const struct peers_transport_ops ops = { op_send, op_get, op_memory, op_lacks };

/* ---- the thread that sends what did not go at once */

static int read_own(struct peer_agent *a, const struct out *o)
{
	int r = 0;

	for (size_t i = 0; i < o->num_own && !r; i++) {
		const struct peers_get *g = &o->own[i];

		r = segment_read(store_segments(a->opt.store), g->segment, g->off, o->to + g->to, g->len);
	}
	return r;
}

static int send_rest(struct peer_agent *a, struct out *o, int64_t deadline_usec)
{
	int r;

	while ((r = push(a->fd, o)) == -EAGAIN) {
		struct pollfd p = { .fd = a->fd, .events = POLLOUT };
		int64_t left = deadline_usec - peers_now();

		if (left <= 0)
			return -ETIMEDOUT;
		(void)poll(&p, 1, left > 1000000 ? 1000 : (int)(left / 1000 + 1));
	}
	return r;
}

/* Without the lock. 0 or an error of the connection. */
static int process(struct peer_agent *a, struct out *o, int64_t deadline_usec)
{
	bool fetch = o->own != NULL;
	int r = fetch ? read_own(a, o) : 0;

	if (fetch && (r || !o->bytes)) {
		peers_got(a->peers, o->get_id, r);
		return 0;
	}
	return o->bytes ? send_rest(a, o, deadline_usec) : 0;
}

static void *writer_thread(void *arg)
{
	struct peer_agent *a = arg;
	int64_t end = 0;
	struct out *o;

	pthread_mutex_lock(&a->lock);
	for (;;) {
		while (!(o = STAILQ_FIRST(&a->queue)) && !a->closing)
			pthread_cond_wait(&a->cond, &a->lock);
		if (!o)
			break;
		if (a->closing && !end)
			end = peers_now() + GOODBYE_USEC;
		pthread_mutex_unlock(&a->lock);
		int r = process(a, o, end ? end : peers_now() + (int64_t)a->opt.timeout_usec);
		pthread_mutex_lock(&a->lock);
		STAILQ_REMOVE_HEAD(&a->queue, in_queue); /* not before: what comes must not overtake it */
		out_free(o);
		if (r) {
			hang_up(a);
			break;
		}
	}
	pthread_mutex_unlock(&a->lock);
	return NULL;
}

/* ---- welcome */

static pid_t pid_of(int fd)
{
	struct ucred cred;
	socklen_t len = sizeof(cred);

	return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &len) == 0 ? cred.pid : 0;
}

static int open_pid(pid_t pid)
{
	return pid > 0 ? (int)syscall(SYS_pidfd_open, pid, 0) : -1;
}

/* The last agent must have ended, or be this one; else it might write into memory that others use. */
static int wait_for_old(struct peer_agent *a, int fd, pid_t pid, struct cistern_error *err)
{
	struct pollfd p[2] = { { .fd = a->pid_fd, .events = POLLIN }, { .fd = fd, .events = POLLRDHUP } };
	int64_t deadline = peers_now() + OLD_AGENT_MSEC * 1000;

	if (a->pid_fd < 0 || pid == a->pid)
		return 0;
	while (!p[0].revents) {
		int64_t left = deadline - peers_now();

		if (left <= 0)
			return cistern_error_set(err, -EBUSY,
				"the last agent of this store (process %ld) has not ended yet; end it first",
				(long)a->pid);
		if (poll(p, 2, (int)(left / 1000 + 1)) < 0 && errno != EINTR)
			return cistern_error_set(err, -errno, "waiting for the last agent: %s", strerror(errno));
		if (p[1].revents)
			return -ECONNRESET;
	}
	return 0;
}

static bool is_dead(int pid_fd)
{
	struct pollfd p = { .fd = pid_fd, .events = POLLIN };

	return pid_fd >= 0 && poll(&p, 1, 0) > 0;
}

/* Who serves an agent that is dead parts with it. Under the lock. */
static void wait_for_part(struct peer_agent *a)
{
	struct timespec until;

	clock_gettime(CLOCK_MONOTONIC, &until);
	until.tv_sec += OLD_AGENT_MSEC / 1000;
	while (a->serving && is_dead(a->pid_fd) &&
		pthread_cond_clockwait(&a->cond, &a->lock, CLOCK_MONOTONIC, &until) == 0)
		continue;
}

/* This connection is the agent's now; only then may another thread know. */
static int take_place(struct peer_agent *a, int fd, struct cistern_error *err)
{
	pid_t pid = pid_of(fd);
	int r;

	pthread_mutex_lock(&a->lock);
	wait_for_part(a);
	r = a->serving
		    ? cistern_error_set(err, -EBUSY, "an agent (process %ld) serves this store already", (long)a->pid)
		    : 0;
	a->serving = true;
	pthread_mutex_unlock(&a->lock);
	if (r)
		return r;
	r = wait_for_old(a, fd, pid, err);
	pthread_mutex_lock(&a->lock);
	if (r) {
		a->serving = false;
	} else {
		if (a->pid_fd >= 0)
			close(a->pid_fd);
		a->pid_fd = open_pid(pid);
		a->pid = pid;
		a->fd = fd;
		a->closing = a->assembled = false;
	}
	pthread_cond_broadcast(&a->cond); /* who waits for the dead one's end is refused at once, or is next */
	pthread_mutex_unlock(&a->lock);
	return r;
}

static void refuse(int fd, const struct cistern_error *err)
{
	struct wire_msg reply = { 0 };

	wire_reply_error(&reply, err);
	(void)wire_send(fd, &reply); /* it ends anyway */
	wire_msg_free(&reply);
}

/* Text in err. */
static int check_protocols(const struct wire_msg *hello, struct cistern_error *err)
{
	struct protocols its = protocols_get(hello);

	return protocols_meet(protocols_own, its, NULL)
		       ? 0
		       : protocols_refuse(err, "this node's daemon", protocols_own, "the agent", its,
				 "start the agents of the version that the mounts are of, or mount anew with the agents' version");
}

static int greet(struct peer_agent *a, int fd)
{
	const struct superblock *sb = store_superblock(a->opt.store);
	struct wire_msg m = { 0 };
	int r;

	wire_reply_error(&m, NULL);
	wire_put_bytes(&m, WIRE_UUID, sb->uuid, sizeof(sb->uuid));
	wire_put_str(&m, WIRE_JOB, sb->job);
	wire_put_bytes(&m, WIRE_JOB_UUID, sb->job_uuid, sizeof(sb->job_uuid));
	wire_put_u64(&m, WIRE_NODE, sb->node_index);
	wire_put_u64(&m, WIRE_NODES, sb->num_nodes);
	wire_put_u64(&m, WIRE_NODES_WANTED, a->opt.nodes);
	wire_put_str(&m, WIRE_BACKING, sb->backing);
	wire_put_u64(&m, WIRE_INCARNATION, a->incarnation);
	wire_put_str(&m, WIRE_STORE, store_path(a->opt.store));
	wire_put_str(&m, WIRE_VERSION_TEXT, a->opt.version);
	protocols_put(&m);
	wire_put_u64(&m, WIRE_MEMORY, a->memory_bytes);
	r = wire_send_fd(fd, &m, a->memory_fd);
	wire_msg_free(&m);
	return r;
}

/* ---- assembled */

struct names {
	char **names; /* owned, count of them */
	uint32_t num, count;
};

static bool take_name(const uint8_t *p, size_t len, void *arg)
{
	struct names *n = arg;

	if (n->num == n->count)
		return false;
	n->names[n->num] = strndup((const char *)p, len);
	return n->names[n->num++] != NULL;
}

static void names_free(struct names *n)
{
	for (uint32_t i = 0; n->names && i < n->num; i++)
		free(n->names[i]);
	free(n->names);
}

static int take_incarnations(const struct wire_msg *m, uint32_t count, uint64_t **ret)
{
	const uint8_t *p;
	size_t len;
	struct cursor c;

	if (!wire_get_bytes(m, WIRE_INCARNATIONS, 0, &p, &len) || len != (size_t)count * 8)
		return -EBADMSG;
	*ret = calloc(count, sizeof(**ret));
	if (!*ret)
		return -ENOMEM;
	c = cursor_make(p, len);
	for (uint32_t i = 0; i < count; i++)
		(*ret)[i] = cursor_u64(&c);
	return 0;
}

/* Checks the numbers and gives them to the store. Text in err. */
static int take_numbers(struct peer_agent *a, const struct wire_msg *m, uint32_t *ret_node, struct cistern_error *err)
{
	uint64_t node = 0, nodes = 0;
	const uint8_t *uuid = NULL;
	size_t len = 0;

	if (!wire_get_u64(m, WIRE_NODE, &node) || !wire_get_u64(m, WIRE_NODES, &nodes) ||
		!wire_get_bytes(m, WIRE_JOB_UUID, 0, &uuid, &len) || len != STORE_UUID_BYTES)
		return cistern_error_set(err, -EBADMSG, "the agent's message makes no sense");
	if (!protocols_meet(protocols_own, protocols_get(m), NULL))
		return cistern_error_set(
			err, -EPROTONOSUPPORT, "the agents agreed upon a protocol that this daemon does not speak");
	if (nodes != a->opt.nodes)
		return cistern_error_set(err, -EINVAL,
			"this mount belongs to a job of %u (nodes=%u), but agents for %llu have assembled",
			a->opt.nodes, a->opt.nodes, (unsigned long long)nodes);
	*ret_node = (uint32_t)node;
	return store_number(a->opt.store, (uint32_t)node, (uint32_t)nodes, uuid, err);
}

static void now_assembled(struct peer_agent *a, uint32_t node, const char *host)
{
	char name[HOSTS_NODE_BYTES], text[HOSTS_NODE_BYTES + 64];

	pthread_mutex_lock(&a->lock);
	a->assembled = true;
	a->since_usec = peers_now();
	a->refused[0] = '\0';
	pthread_mutex_unlock(&a->lock);
	snprintf(text, sizeof(text), "%s of %u, agent process %ld", place_node_text(node, host, name, sizeof(name)),
		a->opt.nodes, (long)a->pid);
	say(a, false, "agent-assembled", text);
}

static int tell_peers(struct peer_agent *a, uint32_t node, const uint64_t *incarnations, const struct names *n)
{
	struct peers_assembly all = {
		.self = node,
		.count = a->opt.nodes,
		.incarnations = incarnations,
		.names = (const char *const *)n->names,
	};

	return peers_assembled(a->peers, &all);
}

/* For a recovery that lacks a store: without it, only the node's number is said. */
static void note_hosts(struct peer_agent *a, const struct names *n)
{
	int r = hosts_note(a->opt.store, (const char *const *)n->names, n->num);

	if (r < 0)
		say(a, true, "hosts-not-noted", strerror(-r));
}

/* 0, or an error that ends the connection. */
static int on_assembled(struct peer_agent *a, const struct wire_msg *m)
{
	struct names names = { calloc(a->opt.nodes, sizeof(char *)), 0, a->opt.nodes };
	struct cistern_error err = { 0 };
	struct wire_msg reply = { 0 };
	uint64_t *incarnations = NULL;
	uint32_t node = 0;
	int r = take_numbers(a, m, &node, &err);

	if (!r && (!names.names || !wire_each_bytes(m, WIRE_NODE_NAME, take_name, &names) || names.num != names.count ||
			  take_incarnations(m, names.count, &incarnations)))
		r = cistern_error_set(&err, -EBADMSG, "the agent's list of nodes makes no sense");
	wire_reply_error(&reply, r ? &err : NULL);
	if (wire_send(a->fd, &reply) && !r) /* before anything that is sent to the nodes */
		r = cistern_error_set(&err, -ECONNRESET, "the agent has gone");
	if (r) {
		say(a, true, "agent-refused", err.text);
		r = -ECONNRESET;
	} else {
		now_assembled(a, node, names.names[node]);
		note_hosts(a, &names);
		r = tell_peers(a, node, incarnations, &names);
	}
	names_free(&names);
	free(incarnations);
	wire_msg_free(&reply);
	return r;
}

/* ---- what comes in */

static int on_refused(struct peer_agent *a, const struct wire_msg *m)
{
	char text[CISTERN_ERROR_TEXT_BYTES];

	if (!wire_get_str(m, WIRE_TEXT, 0, text, sizeof(text)))
		snprintf(text, sizeof(text), "the agents refused this set of stores");
	say(a, true, "agent-refused", text);
	pthread_mutex_lock(&a->lock);
	snprintf(a->refused, sizeof(a->refused), "%s", text);
	pthread_mutex_unlock(&a->lock);
	return -ECONNRESET;
}

static int on_received(struct peer_agent *a, const struct wire_msg *m)
{
	uint64_t node = UINT64_MAX;
	const uint8_t *p = NULL;
	size_t len = 0;

	if (!wire_get_u64(m, WIRE_NODE, &node) || node >= a->opt.nodes || !wire_get_bytes(m, WIRE_PAYLOAD, 0, &p, &len))
		return -EBADMSG;
	peers_received(a->peers, (uint32_t)node, p, len);
	return 0;
}

static int on_got(struct peer_agent *a, const struct wire_msg *m)
{
	uint64_t id;
	int64_t status;

	if (!wire_get_u64(m, WIRE_SEQ, &id) || !wire_get_i64(m, WIRE_STATUS, &status))
		return -EBADMSG;
	peers_got(a->peers, id, status > 0 || status < -4095 ? -EBADMSG : (int)status);
	return 0;
}

static int on_node(struct peer_agent *a, const struct wire_msg *m)
{
	uint64_t node = UINT64_MAX, incarnation = 0;

	if (!wire_get_u64(m, WIRE_NODE, &node) || node >= a->opt.nodes)
		return -EBADMSG;
	if (m->type == WIRE_PEER_LEFT)
		peers_left(a->peers, (uint32_t)node);
	else if (!wire_get_u64(m, WIRE_INCARNATION, &incarnation) || incarnation == 0)
		return -EBADMSG;
	else
		peers_joined(a->peers, (uint32_t)node, incarnation);
	return 0;
}

/* 0, or an error that ends the connection. assembled: what the agent has been told before. */
static int take(struct peer_agent *a, const struct wire_msg *m, bool *assembled)
{
	if (m->type == WIRE_AGENT_REFUSED)
		return on_refused(a, m);
	if (!*assembled) {
		*assembled = m->type == WIRE_AGENT_ASSEMBLED;
		return *assembled ? on_assembled(a, m) : -EBADMSG;
	}
	switch (m->type) {
	case WIRE_PEER_RECEIVED: return on_received(a, m);
	case WIRE_PEER_GOT: return on_got(a, m);
	case WIRE_PEER_LEFT:
	case WIRE_PEER_JOINED: return on_node(a, m);
	case WIRE_AGENT_ASSEMBLED: return -EBADMSG;
	default: return 0; /* of a newer agent; not for us */
	}
}

/* ---- a connection from its first frame to its last */

/* Were the agents assembled? */
static bool converse(struct peer_agent *a, int fd)
{
	struct wire_msg m = { 0 };
	bool assembled = false;
	int r;

	do
		r = wire_recv(fd, &m, 0);
	while (r == 0 && (r = take(a, &m, &assembled)) == 0);
	if (r != -ECONNRESET)
		say(a, true, "agent-error", strerror(-r));
	wire_msg_free(&m);
	return assembled;
}

/* It ended, not we: our own shutdown is one of reading alone. */
static bool has_hung_up(int fd)
{
	struct pollfd p = { .fd = fd };

	return poll(&p, 1, 0) > 0 && (p.revents & POLLHUP);
}

static void stop_serving(struct peer_agent *a)
{
	pthread_mutex_lock(&a->lock);
	a->fd = -1;
	a->serving = false;
	pthread_cond_broadcast(&a->cond);
	pthread_mutex_unlock(&a->lock);
}

static void part(struct peer_agent *a, pthread_t writer, bool was)
{
	bool lost = was && has_hung_up(a->fd);
	struct out *o;
	char text[64];

	pthread_mutex_lock(&a->lock);
	a->closing = true;
	pthread_cond_broadcast(&a->cond);
	pthread_mutex_unlock(&a->lock);
	pthread_join(writer, NULL);
	pthread_mutex_lock(&a->lock);
	a->assembled = false;
	a->fd = -1;
	a->since_usec = peers_now();
	while ((o = STAILQ_FIRST(&a->queue))) {
		STAILQ_REMOVE_HEAD(&a->queue, in_queue);
		out_free(o);
	}
	pthread_mutex_unlock(&a->lock);
	snprintf(text, sizeof(text), "agent process %ld", (long)a->pid);
	say(a, lost, lost ? "agent-lost" : "agent-left", text);
	peers_lost(a->peers);
	stop_serving(a);
}

void peer_agent_serve(struct peer_agent *a, int fd, const struct wire_msg *hello)
{
	struct cistern_error err = { 0 };
	bool assembled = false;
	pthread_t writer;
	int r = check_protocols(hello, &err);

	r = r ? r : take_place(a, fd, &err);
	if (r) {
		if (*err.text)
			say(a, true, "agent-refused", err.text);
		refuse(fd, &err);
		return;
	}
	r = pthread_create(&writer, NULL, writer_thread, a);
	if (r) {
		cistern_error_set(&err, -r, "cannot start a thread");
		refuse(fd, &err);
		stop_serving(a);
		return;
	}
	if (greet(a, fd) == 0)
		assembled = converse(a, fd);
	part(a, writer, assembled);
}

void peer_agent_status(struct peer_agent *a, struct peer_agent_status *ret)
{
	*ret = (struct peer_agent_status){
		.numbered = peers_numbered(a->peers), .node = peers_self(a->peers), .nodes = a->opt.nodes
	};
	pthread_mutex_lock(&a->lock);
	ret->assembled = a->assembled;
	ret->pid = a->fd >= 0 ? a->pid : 0;
	ret->since_usec = (uint64_t)(peers_now() - a->since_usec);
	memcpy(ret->refused, a->refused, sizeof(ret->refused));
	pthread_mutex_unlock(&a->lock);
}

/* ---- life */

static int make_memory(struct peer_agent *a)
{
	void *p;

	a->memory_bytes = (size_t)BUFFERS * PEERS_BUFFER_BYTES;
	a->memory_fd = memfd_create("cistern-peers", MFD_CLOEXEC);
	if (a->memory_fd < 0 || ftruncate(a->memory_fd, (off_t)a->memory_bytes) < 0)
		return -errno;
	p = mmap(NULL, a->memory_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, a->memory_fd, 0);
	if (p == MAP_FAILED)
		return -errno;
	(void)madvise(p, a->memory_bytes, MADV_HUGEPAGE); /* the agent touches it first, all at once */
	a->memory = p;
	return 0;
}

/* Rises from daemon to daemon of a store, as long as nobody puts the clock back; and if so, is another one. */
static uint64_t make_incarnation(void)
{
	return (uint64_t)clock_wall_ns() / 1000;
}

static void take_host(uint32_t node, const char *host, void *arg)
{
	peers_set_host(arg, node, host);
}

int peer_agent_create(const struct peer_agent_options *opt, struct peer_agent **ret, struct cistern_error *err)
{
	const struct superblock *sb = store_superblock(opt->store);
	struct peer_agent *a = calloc(1, sizeof(*a));
	struct peers_options po = {
		.ops = &ops,
		.transport = a,
		.self = sb->node_index,
		.count = sb->num_nodes,
		.timeout_usec = opt->timeout_usec,
		.node_timeout_usec = opt->node_timeout_usec,
		.log = opt->log,
		.log_arg = opt->log_arg,
	};
	int r;

	if (!a)
		return cistern_error_set(err, -ENOMEM, "out of memory");
	a->opt = *opt;
	a->incarnation = po.incarnation = make_incarnation();
	a->fd = a->pid_fd = a->memory_fd = -1;
	a->since_usec = peers_now();
	STAILQ_INIT(&a->queue);
	pthread_mutex_init(&a->lock, NULL);
	pthread_cond_init(&a->cond, NULL);
	r = make_memory(a);
	r = r ? r : peers_create(&po, &a->peers);
	if (r) {
		peer_agent_destroy(a);
		return cistern_error_set(err, r, "the way to the other nodes cannot be made: %s", strerror(-r));
	}
	(void)hosts_each(opt->store, take_host, a->peers); /* else messages have numbers */
	*ret = a;
	return 0;
}

struct peers *peer_agent_peers(struct peer_agent *a)
{
	return a->peers;
}

int peer_agent_memory_fd(const struct peer_agent *a)
{
	return a->memory_fd;
}

void peer_agent_destroy(struct peer_agent *a)
{
	if (!a)
		return;
	peers_destroy(a->peers);
	if (a->memory)
		munmap(a->memory, a->memory_bytes);
	if (a->memory_fd >= 0)
		close(a->memory_fd);
	if (a->pid_fd >= 0)
		close(a->pid_fd);
	pthread_cond_destroy(&a->cond);
	pthread_mutex_destroy(&a->lock);
	free(a);
}
