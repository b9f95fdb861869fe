/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * The agent's connection, from both ends: two daemons' worth of stores and peers, and in place of their agents a thread for each that
 * speaks format/wire over a socket pair, carries what it is given to the other, and fetches payload with segment_read.
 */
#include "fs/peer/peer_agent.h"
#include "fs/peer/private.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "format/place/place.h"
#include "format/wire/protocol.h"
#include "format/wire/wire.h"
#include "tests/lib/tap.h"

#define NODES 2

static _Noreturn void bail_out(const char *why)
{
	printf("Bail out! %s\n", why);
	exit(1);
}

struct world;

struct side {
	struct world *w;
	uint32_t node;
	struct store *store;
	struct peer_agent *daemon;
	uint64_t incarnation;
	/* the daemon's end */
	int daemon_fd;
	pthread_t server;
	/* the agent's end */
	int fd;
	uint8_t *memory;
	pthread_t agent;
	pthread_mutex_t lock; /* who sends to the daemon */
	bool connected;
	unsigned int notes, events[4];
};

struct world {
	char dir[64], backing[96];
	struct side sides[NODES];
	char log[4096];
	pthread_mutex_t lock;
	pthread_cond_t cond;
	pthread_barrier_t quiet;
};

static const uint8_t job_uuid[STORE_UUID_BYTES] = { 1, 2, 3 }, other_uuid[STORE_UUID_BYTES] = { 3, 2, 1 };

static void take_line(bool warning, const char *event, const char *text, void *arg)
{
	struct world *w = arg;
	size_t len;

	(void)warning;
	pthread_mutex_lock(&w->lock);
	len = strlen(w->log);
	snprintf(w->log + len, sizeof(w->log) - len, "%s %s\n", event, text);
	pthread_mutex_unlock(&w->lock);
}

/* ---- what daemons do: an echo */

static void handle(struct peers_request *rq, void *arg)
{
	const struct wire_msg *m = peers_msg(rq);
	struct wire_msg reply = { 0 };
	struct side *s = arg;
	const uint8_t *p = NULL;
	size_t len = 0;

	pthread_mutex_lock(&s->w->lock);
	s->notes++;
	pthread_cond_broadcast(&s->w->cond);
	pthread_mutex_unlock(&s->w->lock);
	wire_get_bytes(m, WIRE_PAYLOAD, 0, &p, &len);
	wire_msg_init(&reply, WIRE_REPLY);
	wire_put_i64(&reply, WIRE_STATUS, 0);
	wire_put_u64(&reply, WIRE_NODE, s->node);
	wire_put_bytes(&reply, WIRE_PAYLOAD, p, len);
	peers_reply(rq, &reply);
	wire_msg_free(&reply);
}

static void event(enum peers_event what, uint32_t node, void *arg)
{
	struct side *s = arg;

	(void)node;
	pthread_mutex_lock(&s->w->lock);
	s->events[what]++;
	pthread_cond_broadcast(&s->w->cond);
	pthread_mutex_unlock(&s->w->lock);
}

static void wait_event(struct side *s, enum peers_event what, unsigned int num)
{
	pthread_mutex_lock(&s->w->lock);
	while (s->events[what] < num)
		pthread_cond_wait(&s->w->cond, &s->w->lock);
	pthread_mutex_unlock(&s->w->lock);
}

static void open_store(struct side *s)
{
	struct store_options opt = { .mode = STORE_CREATE_OR_OPEN, .backing = s->w->backing, .job = "job 7" };
	struct state_report report;
	struct cistern_error err = { 0 };
	char path[128];

	snprintf(path, sizeof(path), "%s/store%u", s->w->dir, s->node);
	if (store_open(path, &opt, &s->store, &report, &err))
		bail_out(err.text);
}

static void begin_daemon(struct side *s)
{
	struct peer_agent_options opt = {
		.store = s->store,
		.nodes = NODES,
		.timeout_usec = 60000000,
		.node_timeout_usec = 60000000,
		.version = "1",
		.log = take_line,
		.log_arg = s->w,
	};
	struct cistern_error err = { 0 };

	if (peer_agent_create(&opt, &s->daemon, &err))
		bail_out(err.text);
	peers_set_hooks(
		peer_agent_peers(s->daemon), &(struct peers_hooks){ .handle = handle, .event = event, .arg = s });
}

static void *server_thread(void *arg)
{
	struct side *s = arg;
	struct wire_msg m = { 0 };

	if (wire_recv(s->daemon_fd, &m, 0) == 0)
		peer_agent_serve(s->daemon, s->daemon_fd, &m);
	shutdown(s->daemon_fd, SHUT_RDWR);
	wire_msg_free(&m);
	return NULL;
}

/* ---- what agents do */

static int connect_speaking(struct side *s, uint64_t oldest, uint64_t newest, struct wire_msg *reply, int *ret_memory,
	struct cistern_error *err)
{
	struct wire_msg hello = { 0 };
	int fds[2], r;

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds))
		bail_out("socketpair");
	s->daemon_fd = fds[0];
	s->fd = fds[1];
	if (pthread_create(&s->server, NULL, server_thread, s))
		bail_out("thread");
	wire_msg_init(&hello, WIRE_AGENT_HELLO);
	wire_put_u64(&hello, WIRE_PID, (uint64_t)getpid());
	if (newest) {
		wire_put_u64(&hello, WIRE_PROTOCOL_OLDEST, oldest);
		wire_put_u64(&hello, WIRE_PROTOCOL_NEWEST, newest);
	}
	r = wire_call_fd(s->fd, &hello, reply, 30000000, ret_memory, err);
	wire_msg_free(&hello);
	return r;
}

static int connect_agent(struct side *s, struct wire_msg *reply, int *ret_memory, struct cistern_error *err)
{
	return connect_speaking(s, PROTOCOL_OLDEST, PROTOCOL_NEWEST, reply, ret_memory, err);
}

static void disconnect_agent(struct side *s)
{
	close(s->fd);
	pthread_join(s->server, NULL);
	close(s->daemon_fd);
	s->fd = s->daemon_fd = -1;
}

static int assemble(struct side *s, uint32_t node, uint32_t nodes, const uint8_t *uuid, struct cistern_error *err)
{
	struct wire_msg m = { 0 }, reply = { 0 };
	struct buf incarnations BUF_CLEANUP = { 0 };
	int r;

	wire_msg_init(&m, WIRE_AGENT_ASSEMBLED);
	protocols_put(&m);
	wire_put_u64(&m, WIRE_NODE, node);
	wire_put_u64(&m, WIRE_NODES, nodes);
	wire_put_bytes(&m, WIRE_JOB_UUID, uuid, STORE_UUID_BYTES);
	for (uint32_t i = 0; i < nodes; i++) {
		wire_put_str(&m, WIRE_NODE_NAME, i ? "cn1" : "cn0");
		buf_u64(&incarnations, s->w->sides[i % NODES].incarnation);
	}
	wire_put_bytes(&m, WIRE_INCARNATIONS, incarnations.data, incarnations.len);
	r = wire_call(s->fd, &m, &reply, 30000000, err);
	wire_msg_free(&m);
	wire_msg_free(&reply);
	return r;
}

static void to_daemon(struct side *s, const struct wire_msg *m)
{
	pthread_mutex_lock(&s->lock);
	if (s->connected)
		(void)wire_send(s->fd, m);
	pthread_mutex_unlock(&s->lock);
}

static void carry(struct side *s, const struct wire_msg *m)
{
	struct wire_msg out = { 0 };
	const uint8_t *p = NULL;
	uint64_t node = NODES;
	size_t len = 0;

	if (!wire_get_u64(m, WIRE_NODE, &node) || node >= NODES || !wire_get_bytes(m, WIRE_PAYLOAD, 0, &p, &len))
		bail_out("a daemon sends nonsense");
	wire_msg_init(&out, WIRE_PEER_RECEIVED);
	wire_put_u64(&out, WIRE_NODE, s->node);
	wire_put_bytes(&out, WIRE_PAYLOAD, p, len);
	to_daemon(&s->w->sides[node], &out);
	wire_msg_free(&out);
}

static int fetch_range(struct side *s, struct cursor *c)
{
	uint32_t node = cursor_u32(c), segment = cursor_u32(c);
	uint64_t off = cursor_u64(c);
	uint32_t len = cursor_u32(c), zero = cursor_u32(c);
	uint64_t to = cursor_u64(c);

	if (!cursor_ok(c) || zero || node >= NODES || node == s->node)
		return -EINVAL;
	return segment_read(store_segments(s->w->sides[node].store), segment, off, s->memory + to, len);
}

static void fetch(struct side *s, const struct wire_msg *m)
{
	struct wire_msg out = { 0 };
	const uint8_t *p = NULL;
	uint64_t id = 0;
	struct cursor c;
	size_t len = 0;
	int r = 0;

	if (!wire_get_u64(m, WIRE_SEQ, &id) || !wire_get_bytes(m, WIRE_PAYLOAD, 0, &p, &len) || len == 0)
		bail_out("a daemon fetches nonsense");
	c = cursor_make(p, len);
	while (cursor_left(&c) && r == 0)
		r = fetch_range(s, &c);
	wire_msg_init(&out, WIRE_PEER_GOT);
	wire_put_u64(&out, WIRE_SEQ, id);
	wire_put_i64(&out, WIRE_STATUS, r);
	to_daemon(s, &out);
	wire_msg_free(&out);
}

static void *agent_thread(void *arg)
{
	struct side *s = arg;
	struct wire_msg m = { 0 };

	while (wire_recv(s->fd, &m, 0) == 0) {
		if (m.type == WIRE_PEER_SEND)
			carry(s, &m);
		else if (m.type == WIRE_PEER_GET)
			fetch(s, &m);
	}
	wire_msg_free(&m);
	return NULL;
}

/* ---- all together */

static void map_memory(struct side *s, const struct wire_msg *reply, int fd)
{
	uint64_t bytes = 0;
	struct stat st;

	if (!wire_get_u64(reply, WIRE_MEMORY, &bytes) || fd < 0 || fstat(fd, &st) || (uint64_t)st.st_size != bytes)
		bail_out("no memory");
	s->memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	close(fd);
	if (s->memory == MAP_FAILED)
		bail_out("mmap");
}

static void greet(struct side *s)
{
	struct wire_msg reply = { 0 };
	struct cistern_error err = { 0 };
	int fd = -1;

	if (connect_agent(s, &reply, &fd, &err) || !wire_get_u64(&reply, WIRE_INCARNATION, &s->incarnation))
		bail_out(err.text);
	map_memory(s, &reply, fd);
	wire_msg_free(&reply);
}

static void start_agents(struct world *w)
{
	struct cistern_error err = { 0 };

	for (uint32_t i = 0; i < NODES; i++)
		greet(&w->sides[i]);
	for (uint32_t i = 0; i < NODES; i++) {
		struct side *s = &w->sides[i];

		pthread_mutex_lock(&s->lock); /* nothing may come before it is assembled: hold it back */
		s->connected = true;
	}
	for (uint32_t i = 0; i < NODES; i++) {
		struct side *s = &w->sides[i];

		if (assemble(s, i, NODES, job_uuid, &err))
			bail_out(err.text);
		if (pthread_create(&s->agent, NULL, agent_thread, s))
			bail_out("thread");
	}
	for (uint32_t i = 0; i < NODES; i++)
		pthread_mutex_unlock(&w->sides[i].lock);
}

static void end_agents(struct world *w)
{
	for (uint32_t i = 0; i < NODES; i++) {
		struct side *s = &w->sides[i];

		pthread_mutex_lock(&s->lock);
		s->connected = false;
		shutdown(s->fd, SHUT_RDWR);
		pthread_mutex_unlock(&s->lock);
	}
	for (uint32_t i = 0; i < NODES; i++) {
		struct side *s = &w->sides[i];

		pthread_join(s->agent, NULL);
		disconnect_agent(s);
		munmap(s->memory, 32 * PEERS_BUFFER_BYTES);
	}
}

static struct world *world_make(void)
{
	struct world *w = calloc(1, sizeof(*w));

	if (!w)
		bail_out("out of memory");
	pthread_mutex_init(&w->lock, NULL);
	pthread_cond_init(&w->cond, NULL);
	snprintf(w->dir, sizeof(w->dir), "/tmp/test-peer-agent.XXXXXX");
	if (!mkdtemp(w->dir))
		bail_out("mkdtemp");
	snprintf(w->backing, sizeof(w->backing), "%s/backing", w->dir);
	mkdir(w->backing, 0755);
	for (uint32_t i = 0; i < NODES; i++) {
		struct side *s = &w->sides[i];

		*s = (struct side){ .w = w, .node = i, .fd = -1, .daemon_fd = -1 };
		pthread_mutex_init(&s->lock, NULL);
		open_store(s);
		begin_daemon(s);
	}
	return w;
}

static void world_free(struct world *w)
{
	char cmd[128];

	for (uint32_t i = 0; i < NODES; i++) {
		peer_agent_destroy(w->sides[i].daemon);
		is_int(store_close(w->sides[i].store), 0, "a store closes in good order");
		pthread_mutex_destroy(&w->sides[i].lock);
	}
	snprintf(cmd, sizeof(cmd), "rm -rf '%s'", w->dir);
	if (system(cmd) != 0)
		tap_diag("cannot remove %s", w->dir);
	pthread_mutex_destroy(&w->lock);
	pthread_cond_destroy(&w->cond);
	free(w);
}

static int echo(struct side *s, uint32_t node, size_t len)
{
	struct wire_msg m = { .type = 1000 }, reply = { 0 };
	uint8_t *bytes = malloc(len + 1);
	const uint8_t *p = NULL;
	size_t got = 0;
	int r;

	memset(bytes, (int)(len % 251), len + 1);
	wire_put_bytes(&m, WIRE_PAYLOAD, bytes, len);
	r = peers_call(peer_agent_peers(s->daemon), node, &m, &reply);
	if (!r && (!wire_get_bytes(&reply, WIRE_PAYLOAD, 0, &p, &got) || got != len || memcmp(p, bytes, len) != 0))
		r = -EBADMSG;
	free(bytes);
	wire_msg_free(&m);
	wire_msg_free(&reply);
	return r;
}

/* ---- tests */

static void is_older(struct side *s, uint64_t oldest, uint64_t newest, const char *text)
{
	struct cistern_error err = { 0 };
	struct wire_msg reply = { 0 };

	is_int(connect_speaking(s, oldest, newest, &reply, NULL, &err), -EPROTONOSUPPORT,
		"an agent of another protocol");
	is_str(err.text, text, "is told who is older, and what to do");
	disconnect_agent(s);
	wire_msg_free(&reply);
}

/* Programs of several builds: by the numbers that they speak. */
static void test_protocols(void)
{
	struct world *w = world_make();
	struct side *s = &w->sides[1];
	struct wire_msg reply = { 0 };
	struct protocols said;
	int fd = -1;

	is_older(s, 2, 3,
		"this node's daemon speaks protocol 1, the agent speaks protocols 2 to 3, and this node's daemon is the older one: "
		"start the agents of the version that the mounts are of, or mount anew with the agents' version");
	is_older(s, 0, 0,
		"this node's daemon speaks protocol 1, the agent speaks none that has a number, and the agent is the older one: "
		"start the agents of the version that the mounts are of, or mount anew with the agents' version");
	is_int(connect_speaking(s, 1, 9, &reply, &fd, NULL), 0, "a newer one that still speaks ours is welcome");
	said = protocols_get(&reply);
	ok(said.oldest == PROTOCOL_OLDEST && said.newest == PROTOCOL_NEWEST, "and is told what we speak");
	close(fd);
	disconnect_agent(s);
	wire_msg_free(&reply);
	world_free(w);
}

static void test_hello(void)
{
	struct world *w = world_make();
	struct side *s = &w->sides[1], again = *s;
	struct wire_msg reply = { 0 }, more = { 0 };
	struct cistern_error err = { 0 };
	struct peer_agent_status st;
	uint64_t nodes = 0, wanted = 0;
	const uint8_t *uuid = NULL;
	char text[128] = "";
	size_t len = 0;
	int fd = -1;

	is_int(connect_agent(s, &reply, &fd, &err), 0, "an agent is welcome");
	map_memory(s, &reply, fd);
	ok(wire_get_bytes(&reply, WIRE_UUID, 0, &uuid, &len) && len == 16 &&
			memcmp(uuid, store_superblock(s->store)->uuid, 16) == 0,
		"and learns the store's UUID");
	ok(wire_get_u64(&reply, WIRE_NODES, &nodes) && nodes == 1, "that it has no number");
	ok(wire_get_u64(&reply, WIRE_NODES_WANTED, &wanted) && wanted == 2, "of how many it shall be one");
	ok(wire_get_str(&reply, WIRE_JOB, 0, text, sizeof(text)) && strcmp(text, "job 7") == 0, "in which job");
	is_int(connect_agent(&again, &more, &fd, &err), -EBUSY, "a second one at the same time is not");
	ok(strstr(err.text, "already"), "and is told why: %s", err.text);
	disconnect_agent(&again);
	peer_agent_status(s->daemon, &st);
	ok(!st.assembled && !st.numbered && st.nodes == 2, "nothing is assembled yet");
	is_int(assemble(s, 0, 3, job_uuid, &err), -EINVAL, "a set of another number is refused");
	ok(strstr(err.text, "nodes=2"), "with the setting: %s", err.text);
	munmap(s->memory, 32 * PEERS_BUFFER_BYTES);
	disconnect_agent(s);
	is_u64(store_superblock(s->store)->num_nodes, 1, "and the store is as it was");
	is_int(connect_agent(s, &reply, &fd, &err), 0, "the next agent");
	close(fd);
	wire_msg_init(&more, WIRE_AGENT_REFUSED);
	wire_put_str(&more, WIRE_TEXT, "cn1: the wrong store");
	is_int(wire_send(s->fd, &more), 0, "is refused by the others");
	disconnect_agent(s);
	peer_agent_status(s->daemon, &st);
	is_str(st.refused, "cn1: the wrong store", "and says so");
	is_int(connect_agent(s, &reply, &fd, &err), 0, "one more");
	close(fd);
	wire_msg_init(&more, WIRE_PEER_RECEIVED);
	is_int(wire_send(s->fd, &more), 0, "which does not keep to the order");
	is_int(wire_recv(s->fd, &more, 30000000), -ECONNRESET, "is left alone");
	disconnect_agent(s);
	wire_msg_free(&reply);
	wire_msg_free(&more);
	world_free(w);
}

static void test_assembled(void)
{
	struct world *w = world_make();
	struct side *a = &w->sides[0], *b = &w->sides[1];
	struct cistern_error err = { 0 };
	struct superblock sb;
	struct peer_agent_status st;
	struct peers_node nodes[4];
	char path[128], name[64];

	start_agents(w);
	wait_event(a, PEERS_ASSEMBLED, 1);
	wait_event(b, PEERS_ASSEMBLED, 1);
	peer_agent_status(b->daemon, &st);
	ok(st.assembled && st.numbered && st.node == 1 && st.pid == getpid(), "assembled");
	is_int(peers_nodes(peer_agent_peers(a->daemon), 0, nodes, 4), 2, "two nodes");
	ok(nodes[1].present && !nodes[1].gone && strcmp(nodes[1].host, "cn1") == 0, "are there");
	is_str(peers_name(peer_agent_peers(a->daemon), 1, name, sizeof(name)), "node 1 (host cn1)", "with their hosts");
	snprintf(path, sizeof(path), "%s/store1", w->dir);
	is_int(store_read_superblock(path, &sb, &err), 0, "the superblock");
	ok(sb.node_index == 1 && sb.num_nodes == 2 && memcmp(sb.job_uuid, job_uuid, 16) == 0, "has the numbers");
	is_u64(state_new_ino(store_state(b->store)), place_first_ino(1), "and inodes are numbered by it");
	is_int(echo(a, 1, 10), 0, "a call");
	is_int(echo(b, 0, 3 << 20), 0, "a long one, the other way");
	end_agents(w);
	wait_event(a, PEERS_LOST, 1);
	peer_agent_status(a->daemon, &st);
	ok(!st.assembled && st.numbered && st.pid == 0, "the agents die");
	greet(a);
	is_int(assemble(a, 0, 2, other_uuid, &err), -EEXIST, "those of another job are refused");
	disconnect_agent(a);
	munmap(a->memory, 32 * PEERS_BUFFER_BYTES);
	greet(a);
	is_int(assemble(a, 1, 2, job_uuid, &err), -EEXIST, "and other numbers");
	disconnect_agent(a);
	munmap(a->memory, 32 * PEERS_BUFFER_BYTES);
	start_agents(w);
	is_int(echo(a, 1, 10), 0, "the same set is good again");
	end_agents(w);
	world_free(w);
}

/* Calls from several threads, long and short, while agents come and go: what does not go at once is queued. */
struct caller {
	struct side *from;
	unsigned int num;
	int r;
	pthread_t thread;
};

static void *caller_thread(void *arg)
{
	struct caller *c = arg;

	for (unsigned int i = 0; i < c->num && !c->r; i++)
		c->r = echo(c->from, 1 - c->from->node, i % 7 == 0 ? 700000 + i : i);
	return NULL;
}

static void test_storm(void)
{
	struct world *w = world_make();
	struct caller callers[6];
	int bad = 0;

	for (unsigned int i = 0; i < 6; i++) {
		callers[i] = (struct caller){ .from = &w->sides[i % 2], .num = 60 };
	}
	start_agents(w);
	wait_event(&w->sides[0], PEERS_ASSEMBLED, 1);
	wait_event(&w->sides[1], PEERS_ASSEMBLED, 1);
	for (unsigned int i = 0; i < 6; i++)
		if (pthread_create(&callers[i].thread, NULL, caller_thread, &callers[i]))
			bail_out("thread");
	for (unsigned int i = 0; i < 10; i++) {
		usleep(3000);
		end_agents(w);
		start_agents(w);
	}
	for (unsigned int i = 0; i < 6; i++) {
		pthread_join(callers[i].thread, NULL);
		bad |= callers[i].r;
	}
	is_int(bad, 0, "calls survive agents that come and go");
	is_u64(w->sides[0].notes, 180, "each was executed once");
	is_u64(w->sides[1].notes, 180, "here and there");
	end_agents(w);
	world_free(w);
}

static void test_payload(void)
{
	struct world *w = world_make();
	struct side *a = &w->sides[0], *b = &w->sides[1];
	struct peers *p = peer_agent_peers(a->daemon);
	struct peers_buffer buffer = { 0 };
	uint32_t here = 0, there = 0;
	uint64_t here_off = 0, there_off = 0;

	start_agents(w);
	wait_event(a, PEERS_ASSEMBLED, 1);
	if (segment_append(store_segments(a->store), "here", 5, &here, &here_off) ||
		segment_append(store_segments(b->store), "there", 6, &there, &there_off))
		bail_out("segment_append");
	is_int(peers_buffer_get(p, NULL, 0, &buffer), 0, "a buffer");
	struct peers_get gets[2] = { { 1, there, there_off, 6, 10 }, { 0, here, here_off, 5, 500 } };
	is_int(peers_get(p, &buffer, gets, 1), 0, "payload of the other node");
	is_str((char *)buffer.bytes + 10, "there", "is fetched");
	memset(buffer.bytes, 0, 1000);
	is_int(peers_get(p, &buffer, gets, 2), 0, "of both");
	ok(strcmp((char *)buffer.bytes + 10, "there") == 0 && strcmp((char *)buffer.bytes + 500, "here") == 0, "too");
	memset(buffer.bytes, 0, 1000);
	is_int(peers_get(p, &buffer, gets + 1, 1), 0, "one's own");
	is_str((char *)buffer.bytes + 500, "here", "too");
	is_int(peers_get(p, &buffer, gets, 0), 0, "nothing is fetched easily");
	gets[1].segment = 99;
	is_int(peers_get(p, &buffer, gets, 2), -ENOENT, "what is gone is told");
	gets[0].segment = 99;
	is_int(peers_get(p, &buffer, gets, 1), -ENOENT, "there, too");
	peers_buffer_put(p, &buffer);
	end_agents(w);
	world_free(w);
}

static void test_left(void)
{
	struct world *w = world_make();
	struct side *a = &w->sides[0], *b = &w->sides[1];
	struct wire_msg m = { 0 };

	start_agents(w);
	wait_event(a, PEERS_ASSEMBLED, 1);
	wait_event(b, PEERS_ASSEMBLED, 1);
	wire_msg_init(&m, WIRE_PEER_JOINED);
	wire_put_u64(&m, WIRE_NODE, 1);
	wire_put_u64(&m, WIRE_INCARNATION, b->incarnation + 1);
	to_daemon(a, &m);
	wait_event(a, PEERS_RESTARTED, 1);
	ok(true, "a node that has joined with another daemon is known to be another");
	wire_msg_free(&m);
	peers_shut_down(peer_agent_peers(b->daemon));
	end_agents(w);
	world_free(w);
}

/* The last words go out before the connection closes. */
static void test_goodbye(void)
{
	struct world *w = world_make();
	struct side *a = &w->sides[0], *b = &w->sides[1];

	start_agents(w);
	wait_event(a, PEERS_ASSEMBLED, 1);
	wait_event(b, PEERS_ASSEMBLED, 1);
	peers_shut_down(peer_agent_peers(b->daemon));
	shutdown(b->daemon_fd, SHUT_RD);
	wait_event(a, PEERS_GONE, 1);
	is_int(echo(a, 1, 1), -EHOSTDOWN, "a daemon that ends tells the others");
	end_agents(w);
	world_free(w);
}

/* An agent that is another process. The daemon's end of its connection goes to fd, then what the daemon has said. */
static _Noreturn void be_agent(int fd)
{
	struct wire_msg m = { .type = WIRE_AGENT_HELLO }, reply = { 0 };
	int fds[2];

	protocols_put(&m);
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) == 0 && wire_send_fd(fd, &m, fds[0]) == 0) {
		close(fds[0]);
		if (wire_call(fds[1], &m, &reply, 30000000, NULL) == 0)
			(void)wire_send(fd, &reply);
	}
	pause();
	_exit(1);
}

static pid_t fork_agent(struct side *s)
{
	struct wire_msg m = { 0 };
	int fds[2];
	pid_t pid;

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) || (pid = fork()) < 0)
		bail_out("fork");
	if (pid == 0)
		be_agent(fds[1]);
	close(fds[1]);
	if (wire_recv_fd(fds[0], &m, 30000000, &s->daemon_fd) || pthread_create(&s->server, NULL, server_thread, s) ||
		wire_recv(fds[0], &m, 30000000))
		bail_out("no agent");
	close(fds[0]);
	wire_msg_free(&m);
	return pid;
}

/* Nothing is said for a second: so long a daemon parts with its agent. */
static void *keep_quiet(void *arg)
{
	struct world *w = arg;

	pthread_mutex_lock(&w->lock);
	pthread_barrier_wait(&w->quiet);
	usleep(1000000);
	pthread_mutex_unlock(&w->lock);
	return NULL;
}

#define COMERS 5u

struct comer { /* an agent behind a dead one */
	struct side s;
	pthread_t thread;
	int r;
};

static void *come(void *arg)
{
	struct comer *c = arg;
	struct wire_msg reply = { 0 };

	c->r = connect_agent(&c->s, &reply, NULL, NULL);
	wire_msg_free(&reply);
	return NULL;
}

/* All at once: one gets the place, and the others hear so as soon as that. */
static void come_behind(const struct side *dead)
{
	struct comer comers[COMERS];
	unsigned int served = 0, refused = 0;
	int64_t begun = peers_now();

	for (unsigned int i = 0; i < COMERS; i++) {
		comers[i].s = *dead;
		if (pthread_create(&comers[i].thread, NULL, come, &comers[i]))
			bail_out("thread");
	}
	for (unsigned int i = 0; i < COMERS; i++) {
		pthread_join(comers[i].thread, NULL);
		served += comers[i].r == 0;
		refused += comers[i].r == -EBUSY;
	}
	is_u64(served, 1, "of those who come after a dead agent one waits for its end, and is served");
	is_u64(refused, COMERS - 1, "and the others are refused");
	ok(peers_now() - begun < 8000000, "as soon as that");
	for (unsigned int i = 0; i < COMERS; i++)
		disconnect_agent(&comers[i].s);
}

static void test_killed(void)
{
	struct world *w = world_make();
	struct side *s = &w->sides[0];
	pid_t pid = fork_agent(s);
	pthread_t quiet;

	pthread_barrier_init(&w->quiet, NULL, 2);
	if (pthread_create(&quiet, NULL, keep_quiet, w))
		bail_out("thread");
	pthread_barrier_wait(&w->quiet);
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	come_behind(s);
	pthread_join(quiet, NULL);
	pthread_join(s->server, NULL);
	close(s->daemon_fd);
	pthread_barrier_destroy(&w->quiet);
	world_free(w);
}

int main(void)
{
	test_protocols();
	test_hello();
	test_killed();
	test_assembled();
	test_storm();
	test_payload();
	test_left();
	test_goodbye();
	return done_testing();
}
