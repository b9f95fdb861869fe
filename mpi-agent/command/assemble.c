/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * How agents come together. Each gets its store's identity from the daemon; rank 0 sees all, and decides; every daemon must agree. Nobody
 * leaves this early: a rank without a daemon takes part with the reason for that, so that all of them can say it.
 */
#include "mpi-agent/command/assemble.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "format/base/clock.h"
#include "format/base/io.h"
#include "format/store/hosts.h"
#include "format/wire/protocol.h"
#include "mpi-agent/comm/signals.h"
#include "mpi-agent/window/near.h"

#define CALL_TIMEOUT_USEC  30000000u
#define AGAIN_TIMEOUT_USEC 1000000u
#define NAP_NSEC           50000000

/* ---- the daemon */

void assembly_memory_free(struct assembly_memory *m)
{
	if (m->at)
		munmap(m->at, m->bytes);
	*m = (struct assembly_memory){ 0 };
}

static int map_memory(const char *store, int fd, uint64_t bytes, struct assembly_memory *ret, struct cistern_error *err)
{
	struct stat st;
	void *p;

	if (fd < 0 || bytes == 0 || fstat(fd, &st) < 0 || (uint64_t)st.st_size < bytes)
		return cistern_error_set(err, -EBADMSG, "%s: the daemon gave no memory to share", store);
	p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (p == MAP_FAILED)
		return cistern_error_set(err, -errno, "%s: cannot map the daemon's memory: %s", store, strerror(errno));
	/* Before anybody waits for it: a virtual machine finds its pages slowly, and the first fetches would pay for that. */
	(void)madvise(p, bytes, MADV_HUGEPAGE);
	(void)madvise(p, bytes, MADV_POPULATE_WRITE);
	*ret = (struct assembly_memory){ p, bytes };
	return 0;
}

/* With the daemon of this node: what both speak is what others may speak with this node. */
static int agree(struct identity *id, struct cistern_error *err)
{
	char daemon[sizeof(id->version) + 32], agent[] = "this agent (" CISTERN_VERSION ")";

	if (protocols_meet(protocols_own, id->protocols, &id->protocols))
		return 0;
	snprintf(daemon, sizeof(daemon), "the daemon (%s)", id->version);
	(void)protocols_refuse(err, agent, protocols_own, daemon, id->protocols,
		"start the agents of the version that the mounts are of, or mount anew with the agents' version");
	return cistern_error_prefix(err, "%s", id->store);
}

static int hello(
	int fd, struct identity *id, struct assembly_memory *ret, uint64_t timeout_usec, struct cistern_error *err)
{
	struct wire_msg request = { 0 }, reply = { 0 };
	uint64_t bytes = 0;
	int memory = -1, r;

	wire_msg_init(&request, WIRE_AGENT_HELLO);
	wire_put_u64(&request, WIRE_PID, (uint64_t)getpid());
	wire_put_str(&request, WIRE_VERSION_TEXT, CISTERN_VERSION);
	protocols_put(&request);
	r = wire_call_fd(fd, &request, &reply, timeout_usec, &memory, err);
	if (r < 0)
		cistern_error_prefix(err, "%s", id->store);
	if (r == 0 && identity_from_reply(&reply, id) < 0)
		r = cistern_error_set(err, -EBADMSG, "%s: the daemon's answer makes no sense", id->store);
	if (r == 0)
		r = agree(id, err);
	if (r == 0) {
		(void)wire_get_u64(&reply, WIRE_MEMORY, &bytes);
		r = map_memory(id->store, memory, bytes, ret, err);
	}
	if (memory >= 0)
		close(memory);
	wire_msg_free(&request);
	wire_msg_free(&reply);
	return r;
}

/* Waits until there is a daemon. fd, or -ETIMEDOUT or another error. */
static int connect_store(const char *store, uint64_t timeout_usec, struct cistern_error *err)
{
	uint64_t deadline = clock_usec() + timeout_usec;

	for (;;) {
		struct cistern_error why = { 0 }; /* what was so a moment ago is no error */
		int fd = wire_connect(store, &why);

		if (fd >= 0)
			return fd;
		if (fd != -ENOENT && fd != -ECONNREFUSED) {
			*err = why;
			return fd;
		}
		if (clock_usec() >= deadline)
			return cistern_error_set(
				err, -ETIMEDOUT, "%s: no daemon serves this store: mount it on this node first", store);
		if (signals_nap(NAP_NSEC))
			return cistern_error_set(err, -EINTR, "%s: told to end while waiting for its daemon", store);
	}
}

static int greet(struct assembly *a, uint64_t timeout_usec, struct cistern_error *err)
{
	int r = connect_store(a->self.store, timeout_usec, err);

	if (r < 0)
		return r;
	a->fd = r;
	near_look(a->self.store, &a->self.folder);
	return hello(a->fd, &a->self, &a->memory, CALL_TIMEOUT_USEC, err);
}

static int tell_assembled(struct assembly *a, uint64_t timeout_usec, struct cistern_error *err)
{
	struct wire_msg request = { 0 }, reply = { 0 };
	struct buf incarnations BUF_CLEANUP = { 0 };
	int r;

	wire_msg_init(&request, WIRE_AGENT_ASSEMBLED);
	wire_put_u64(&request, WIRE_NODE, a->self.node);
	wire_put_u64(&request, WIRE_NODES, a->num);
	wire_put_bytes(&request, WIRE_JOB_UUID, a->job_uuid, sizeof(a->job_uuid));
	wire_put_u64(&request, WIRE_PROTOCOL_OLDEST, a->protocols.oldest);
	wire_put_u64(&request, WIRE_PROTOCOL_NEWEST, a->protocols.newest);
	for (uint32_t node = 0; node < a->num; node++) {
		const struct assembly_member *m = &a->members[a->rank_of[node]];

		wire_put_str(&request, WIRE_NODE_NAME, m->host);
		buf_u64(&incarnations, m->incarnation);
	}
	if (!buf_ok(&incarnations))
		r = cistern_error_set(err, -ENOMEM, "out of memory");
	else {
		wire_put_bytes(&request, WIRE_INCARNATIONS, incarnations.data, incarnations.len);
		r = wire_call(a->fd, &request, &reply, timeout_usec, err);
		if (r < 0)
			cistern_error_prefix(err, "host %s: %s", a->self.host, a->self.store);
	}
	wire_msg_free(&request);
	wire_msg_free(&reply);
	return r;
}

static void tell_refusal(int fd, const struct cistern_error *err)
{
	struct wire_msg m = { 0 };

	if (fd < 0)
		return;
	wire_msg_init(&m, WIRE_AGENT_REFUSED);
	wire_put_str(&m, WIRE_TEXT, err->text);
	(void)wire_send(fd, &m); /* it is not served anyway */
	wire_msg_free(&m);
}

/* ---- all together. What rank 0 tells the others about the ranks, once it has found them to be one job: */

static void encode_ranks(const struct identity *ids, const uint32_t *node, uint32_t num, struct protocols protocols,
	const uint8_t *job_uuid, struct buf *out)
{
	buf_u32(out, protocols.oldest);
	buf_u32(out, protocols.newest);
	buf_bytes(out, job_uuid, IDENTITY_UUID_BYTES);
	for (uint32_t i = 0; i < num; i++) {
		buf_u32(out, node[i]);
		buf_u64(out, ids[i].incarnation);
		buf_str(out, ids[i].host);
		identity_put_place(out, &ids[i].place);
		buf_str(out, ids[i].store);
		identity_put_folder(out, &ids[i].folder);
	}
}

static bool is_same_host(const struct assembly *a, const struct identity_place *place)
{
	return place->host_id != 0 && place->host_id == a->self.place.host_id;
}

static int decode_ranks(const struct buf *b, struct assembly *a, struct identity_place *places)
{
	struct cursor c = cursor_make(b->data, b->len);
	char store[IDENTITY_TEXT_BYTES];
	const uint8_t *uuid;

	a->protocols.oldest = cursor_u32(&c);
	a->protocols.newest = cursor_u32(&c);
	uuid = cursor_bytes(&c, IDENTITY_UUID_BYTES);
	if (uuid)
		memcpy(a->job_uuid, uuid, IDENTITY_UUID_BYTES);
	for (uint32_t i = 0; i < a->num && cursor_ok(&c); i++) {
		struct assembly_member *m = &a->members[i];

		m->node = cursor_u32(&c);
		m->incarnation = cursor_u64(&c);
		cursor_str(&c, m->host, sizeof(m->host));
		identity_get_place(&c, &places[i]);
		cursor_str(&c, store, sizeof(store));
		identity_get_folder(&c, &m->folder);
		if (m->node >= a->num)
			return -EBADMSG;
		if (cursor_ok(&c) && is_same_host(a, &places[i]) && !(m->store = strdup(store)))
			return -ENOMEM;
		a->rank_of[m->node] = i;
	}
	return cursor_ok(&c) && cursor_left(&c) == 0 ? 0 : -EBADMSG;
}

static void find_host(uint32_t node, char ret[IDENTITY_NAME_BYTES], void *arg)
{
	char host[HOSTS_NAME_BYTES] = "";
	struct io *io = NULL;
	int dir = open(arg, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	if (dir >= 0 && io_posix_create(dir, &io) == 0)
		(void)hosts_find_in(io, node, host);
	else if (dir >= 0)
		close(dir);
	io_destroy(io);
	snprintf(ret, IDENTITY_NAME_BYTES, "%s", host);
}

/* Rank 0, which has that store: all identities, checked, and what the others are told of them. */
static int judge(char *store, const uint8_t *all, uint32_t num, struct buf *out, struct cistern_error *err)
{
	struct identity_hosts hosts = { find_host, store };
	struct identity *ids = calloc(num, sizeof(*ids));
	uint32_t *node = calloc(num, sizeof(*node));
	uint8_t job_uuid[IDENTITY_UUID_BYTES];
	struct protocols protocols = { 0 };
	int r = ids && node ? 0 : -ENOMEM;

	for (uint32_t i = 0; i < num && r == 0; i++)
		r = identity_decode(all + (size_t)i * IDENTITY_BYTES, &ids[i]);
	if (r < 0)
		cistern_error_set(err, r, "cannot gather the stores: %s", strerror(-r));
	else
		r = identity_check(ids, num, &hosts, node, job_uuid, err);
	if (r == 0)
		r = identity_protocols(ids, num, &protocols, err);
	if (r == 0) {
		encode_ranks(ids, node, num, protocols, job_uuid, out);
		if (!buf_ok(out))
			r = cistern_error_set(err, -ENOMEM, "out of memory");
	}
	free(ids);
	free(node);
	return r;
}

static int gather_ids(struct comm *c, struct assembly *a, struct buf *out, struct cistern_error *err)
{
	uint8_t mine[IDENTITY_BYTES], *all = NULL;
	struct cistern_error why = { 0 };
	int r;

	identity_encode(&a->self, mine);
	if (comm_rank(c) == 0) {
		all = calloc(a->num, IDENTITY_BYTES);
		if (!all)
			return cistern_error_set(err, -ENOMEM, "out of memory");
	}
	r = comm_gather(c, mine, sizeof(mine), all, err);
	if (r == 0 && all)
		(void)judge(a->self.store, all, a->num, out, &why);
	free(all);
	return r < 0 ? r : comm_agree(c, why.code, why.text, err);
}

/* What rank 0 has in *b comes to all. */
static int share(struct comm *c, struct buf *b, struct cistern_error *err)
{
	uint64_t len = b->len;
	int r = comm_broadcast(c, &len, sizeof(len), err);

	if (r < 0)
		return r;
	if (comm_rank(c) != 0)
		buf_zeros(b, len);
	if (!buf_ok(b))
		return cistern_error_set(err, -ENOMEM, "out of memory");
	return comm_broadcast(c, b->data, len, err);
}

static int take_ranks(
	struct comm *c, struct wake *w, struct assembly *a, const struct buf *b, struct cistern_error *err)
{
	struct identity_place *places = calloc(a->num, sizeof(*places));
	int r = -ENOMEM;

	a->members = calloc(a->num, sizeof(*a->members));
	a->rank_of = calloc(a->num, sizeof(*a->rank_of));
	if (places && a->members && a->rank_of)
		r = decode_ranks(b, a, places);
	if (r == 0)
		r = wake_set_peers(w, places, a->num);
	free(places);
	if (r < 0)
		return cistern_error_set(err, r, "cannot learn who the others are: %s", strerror(-r));
	a->self.node = a->members[comm_rank(c)].node;
	return 0;
}

static int meet(struct comm *c, struct wake *w, struct assembly *a, struct cistern_error *err)
{
	struct buf ranks BUF_CLEANUP = { 0 };
	struct cistern_error why = { 0 };
	int r = gather_ids(c, a, &ranks, err);

	if (r == 0)
		r = share(c, &ranks, err);
	if (r < 0)
		return r;
	if (take_ranks(c, w, a, &ranks, &why) == 0)
		(void)tell_assembled(a, CALL_TIMEOUT_USEC, &why);
	return comm_agree(c, why.code, why.text, err);
}

struct wanted { /* all ranks run the same program */
	uint64_t host_id, dev, ino;
	char store[IDENTITY_TEXT_BYTES];
};

/* A store that is not there yet is known by its path alone. */
static bool is_same_store(const struct wanted *a, const struct wanted *b)
{
	if (a->host_id != b->host_id || a->host_id == 0)
		return false;
	if (a->ino != 0 && b->ino != 0) /* in containers, one path may lead to several stores */
		return a->dev == b->dev && a->ino == b->ino;
	return strcmp(a->store, b->store) == 0;
}

static void find_first(const struct wanted *all, uint32_t num, uint8_t *keep)
{
	for (uint32_t i = 0; i < num; i++) {
		keep[i] = true;
		for (uint32_t j = 0; j < i && keep[i]; j++)
			keep[i] = !is_same_store(&all[i], &all[j]);
	}
}

int assembly_keep_first(struct comm *c, struct assembly *a, bool *ret_kept, struct cistern_error *err)
{
	uint32_t num = comm_size(c);
	struct wanted mine = { .host_id = a->self.place.host_id }, *all = NULL;
	uint8_t *keep = calloc(num, 1);
	int r = keep ? 0 : -ENOMEM;

	near_look(a->self.store, &a->self.folder);
	mine.dev = a->self.folder.dev;
	mine.ino = a->self.folder.ino;
	snprintf(mine.store, sizeof(mine.store), "%s", a->self.store);
	if (r == 0 && comm_rank(c) == 0)
		r = (all = calloc(num, sizeof(*all))) ? 0 : -ENOMEM;
	r = r < 0 ? cistern_error_set(err, r, "out of memory") : comm_gather(c, &mine, sizeof(mine), all, err);
	if (r == 0 && all)
		find_first(all, num, keep);
	if (r == 0)
		r = comm_broadcast(c, keep, num, err);
	if (r == 0) {
		*ret_kept = keep[comm_rank(c)];
		r = comm_keep(c, *ret_kept, err);
	}
	free(all);
	free(keep);
	return r;
}

/* Another start has done all that this one could do. */
static int leave_to_others(struct comm *c, const struct assembly *a, struct cistern_error *err)
{
	bool served = false;
	int r = comm_all(c, a->self.code == -EBUSY, &served, err);

	if (r == 0 && served)
		r = cistern_error_set(
			err, -EALREADY, "%s. The job goes on with it; this start is not needed", a->self.text);
	return r;
}

int assemble(struct comm *c, struct wake *w, struct assembly *a, uint64_t timeout_usec, struct cistern_error *err)
{
	struct cistern_error why = { 0 };
	int r;

	a->num = comm_size(c);
	a->fd = -1;
	if (gethostname(a->self.host, sizeof(a->self.host) - 1) < 0)
		strcpy(a->self.host, "?");
	if (getrandom(a->self.job_uuid, sizeof(a->self.job_uuid), 0) != (ssize_t)sizeof(a->self.job_uuid))
		(void)cistern_error_set(&why, -EIO, "the system gives no random numbers");
	a->self.job_uuid[6] = (a->self.job_uuid[6] & 0x0f) | 0x40; /* RFC 4122: version 4, ... */
	a->self.job_uuid[8] = (a->self.job_uuid[8] & 0x3f) | 0x80; /* ... its variant */
	if (why.code == 0)
		(void)greet(a, timeout_usec, &why);
	a->self.code = why.code;
	memcpy(a->self.text, why.text, sizeof(a->self.text));
	r = leave_to_others(c, a, err);
	if (r < 0)
		return r;
	r = meet(c, w, a, err);
	if (r < 0)
		tell_refusal(a->fd, err);
	return r;
}

int assemble_again(struct assembly *a, struct assembly_memory *ret_old, struct cistern_error *err)
{
	struct assembly_memory memory = { 0 };
	struct identity now = a->self;
	int fd = wire_connect_within(a->self.store, AGAIN_TIMEOUT_USEC, err), r;

	if (fd < 0)
		return fd;
	r = hello(fd, &now, &memory, AGAIN_TIMEOUT_USEC, err);
	if (r == 0 && memcmp(now.uuid, a->self.uuid, sizeof(now.uuid)) != 0)
		r = cistern_error_set(err, -EINVAL,
			"%s is another store than before: the agents serve those that they began with; end them, and "
			"start new ones",
			a->self.store);
	if (r < 0) {
		if (r != -ETIMEDOUT)
			tell_refusal(fd, err);
		close(fd);
		assembly_memory_free(&memory);
		return r;
	}
	now.node = a->self.node;
	a->self = now;
	a->fd = fd;
	*ret_old = a->memory;
	a->memory = memory;
	return 0;
}

int assemble_tell_again(struct assembly *a, struct cistern_error *err)
{
	return tell_assembled(a, AGAIN_TIMEOUT_USEC, err);
}

void assembly_release(struct assembly *a)
{
	if (a->fd >= 0)
		close(a->fd);
	assembly_memory_free(&a->memory);
	for (uint32_t i = 0; a->members && i < a->num; i++)
		free(a->members[i].store);
	free(a->members);
	free(a->rank_of);
	*a = (struct assembly){ .fd = -1 };
}
