/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * The set of stores. A wrong one is never repaired here: a store that is taken for another node's would answer for files that it
 * does not have. Of two stores that differ, the one that differs from most is the culprit; the other is named too.
 */
#include "mpi-agent/comm/identity.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- bytes */

static bool get_uuid(const struct wire_msg *m, enum wire_tag tag, uint8_t out[IDENTITY_UUID_BYTES])
{
	const uint8_t *p = NULL;
	size_t len = 0;

	if (!wire_get_bytes(m, tag, 0, &p, &len) || len != IDENTITY_UUID_BYTES)
		return false;
	memcpy(out, p, len);
	return true;
}

int identity_from_reply(const struct wire_msg *reply, struct identity *ret)
{
	uint64_t node = 0, nodes = 0, wanted = 0;

	if (!get_uuid(reply, WIRE_UUID, ret->uuid) || !wire_get_u64(reply, WIRE_NODE, &node) ||
		!wire_get_u64(reply, WIRE_NODES, &nodes) || !wire_get_u64(reply, WIRE_INCARNATION, &ret->incarnation) ||
		!wire_get_str(reply, WIRE_BACKING, 0, ret->backing, sizeof(ret->backing)) ||
		!wire_get_str(reply, WIRE_VERSION_TEXT, 0, ret->version, sizeof(ret->version)))
		return -EBADMSG;
	if (nodes == 0 || nodes > UINT32_MAX || node >= nodes)
		return -EBADMSG;
	if (nodes > 1 && !get_uuid(reply, WIRE_JOB_UUID, ret->job_uuid))
		return -EBADMSG;
	if (!wire_get_str(reply, WIRE_JOB, 0, ret->job, sizeof(ret->job)))
		ret->job[0] = '\0';
	(void)wire_get_u64(reply, WIRE_NODES_WANTED, &wanted);
	ret->protocols = protocols_get(reply);
	ret->node = (uint32_t)node;
	ret->nodes = (uint32_t)nodes;
	ret->wanted = (uint32_t)wanted;
	return 0;
}

void identity_put_place(struct buf *b, const struct identity_place *place)
{
	buf_u16(b, place->port);
	for (int i = 0; i < IDENTITY_ADDRESSES; i++)
		buf_u32(b, place->addresses[i]);
	buf_u64(b, place->host_id);
}

void identity_get_place(struct cursor *c, struct identity_place *ret)
{
	ret->port = cursor_u16(c);
	for (int i = 0; i < IDENTITY_ADDRESSES; i++)
		ret->addresses[i] = cursor_u32(c);
	ret->host_id = cursor_u64(c);
}

void identity_put_folder(struct buf *b, const struct identity_folder *folder)
{
	buf_u64(b, folder->dev);
	buf_u64(b, folder->ino);
}

void identity_get_folder(struct cursor *c, struct identity_folder *ret)
{
	ret->dev = cursor_u64(c);
	ret->ino = cursor_u64(c);
}

void identity_encode(const struct identity *id, uint8_t out[IDENTITY_BYTES])
{
	struct buf b BUF_CLEANUP = { 0 };

	buf_u32(&b, id->protocols.oldest);
	buf_u32(&b, id->protocols.newest);
	buf_u32(&b, (uint32_t)id->code);
	buf_str(&b, id->text);
	buf_str(&b, id->host);
	buf_str(&b, id->store);
	buf_str(&b, id->backing);
	buf_str(&b, id->job);
	buf_str(&b, id->version);
	buf_bytes(&b, id->uuid, sizeof(id->uuid));
	buf_bytes(&b, id->job_uuid, sizeof(id->job_uuid));
	buf_u32(&b, id->node);
	buf_u32(&b, id->nodes);
	buf_u32(&b, id->wanted);
	buf_u64(&b, id->incarnation);
	identity_put_place(&b, &id->place);
	identity_put_folder(&b, &id->folder);
	memset(out, 0, IDENTITY_BYTES); /* what does not decode: out of memory */
	if (buf_ok(&b) && b.len + 2 <= IDENTITY_BYTES) {
		out[0] = 1;
		memcpy(out + 2, b.data, b.len);
	}
}

int identity_decode(const uint8_t in[IDENTITY_BYTES], struct identity *ret)
{
	struct cursor c = cursor_make(in, IDENTITY_BYTES);
	const uint8_t *uuid, *job_uuid;

	if (cursor_u16(&c) != 1)
		return -EBADMSG;
	ret->protocols.oldest = cursor_u32(&c);
	ret->protocols.newest = cursor_u32(&c);
	ret->code = (int32_t)cursor_u32(&c);
	cursor_str(&c, ret->text, sizeof(ret->text));
	cursor_str(&c, ret->host, sizeof(ret->host));
	cursor_str(&c, ret->store, sizeof(ret->store));
	cursor_str(&c, ret->backing, sizeof(ret->backing));
	cursor_str(&c, ret->job, sizeof(ret->job));
	cursor_str(&c, ret->version, sizeof(ret->version));
	uuid = cursor_bytes(&c, IDENTITY_UUID_BYTES);
	job_uuid = cursor_bytes(&c, IDENTITY_UUID_BYTES);
	ret->node = cursor_u32(&c);
	ret->nodes = cursor_u32(&c);
	ret->wanted = cursor_u32(&c);
	ret->incarnation = cursor_u64(&c);
	identity_get_place(&c, &ret->place);
	identity_get_folder(&c, &ret->folder);
	if (!cursor_ok(&c))
		return -EBADMSG;
	memcpy(ret->uuid, uuid, IDENTITY_UUID_BYTES);
	memcpy(ret->job_uuid, job_uuid, IDENTITY_UUID_BYTES);
	return 0;
}

/* ---- the set */

#define WHO_FORMAT "the store %s on host %s"
#define WHO(id)    (id)->store, (id)->host

/* What it looks like when another MPI than ours has started the agents. */
static const char *alone_text(uint32_t num)
{
	return num > 1 ? "" : ". If more were started, each is alone: they need MPICH's mpiexec, or srun --mpi=pmi2";
}

typedef bool (*same_fn)(const struct identity *a, const struct identity *b);

static bool same_backing(const struct identity *a, const struct identity *b)
{
	return strcmp(a->backing, b->backing) == 0;
}

static bool same_job(const struct identity *a, const struct identity *b)
{
	return strcmp(a->job, b->job) == 0;
}

static bool same_state(const struct identity *a, const struct identity *b)
{
	return (a->nodes > 1) == (b->nodes > 1);
}

static bool same_job_uuid(const struct identity *a, const struct identity *b)
{
	return a->nodes == b->nodes && (a->nodes == 1 || memcmp(a->job_uuid, b->job_uuid, IDENTITY_UUID_BYTES) == 0);
}

/* One of those that most are like, by Boyer and Moore's vote; when there is no majority, one of them. */
static const struct identity *usual(const struct identity *ids, uint32_t num, same_fn same)
{
	const struct identity *candidate = &ids[0];
	uint32_t votes = 0;

	for (uint32_t i = 0; i < num; i++) {
		if (votes == 0)
			candidate = &ids[i];
		if (same(candidate, &ids[i]))
			votes++;
		else
			votes--;
	}
	return votes ? candidate : &ids[0];
}

/* The first that differs from most; NULL: none does. */
static const struct identity *odd_one(
	const struct identity *ids, uint32_t num, same_fn same, const struct identity **ret_usual)
{
	*ret_usual = usual(ids, num, same);
	for (uint32_t i = 0; i < num; i++)
		if (!same(*ret_usual, &ids[i]))
			return &ids[i];
	return NULL;
}

static int check_alike(const struct identity *ids, uint32_t num, struct cistern_error *err)
{
	const struct identity *odd, *like;

	odd = odd_one(ids, num, same_backing, &like);
	if (odd)
		return cistern_error_set(err, -EINVAL,
			WHO_FORMAT " is mounted over %s, but " WHO_FORMAT
				   " over %s: mount the same directory on all nodes",
			WHO(odd), odd->backing, WHO(like), like->backing);
	odd = odd_one(ids, num, same_job, &like);
	if (odd)
		return cistern_error_set(err, -EINVAL,
			WHO_FORMAT " is of the job '%s', but " WHO_FORMAT
				   " of '%s': start agents for the stores of one job only",
			WHO(odd), odd->job, WHO(like), like->job);
	odd = odd_one(ids, num, same_state, &like);
	if (odd)
		return cistern_error_set(err, -EINVAL,
			WHO_FORMAT
			" %s, but " WHO_FORMAT
			" %s: a new store cannot join a job. Give all nodes their own stores; or, if the job's first agents ended "
			"before all had their numbers, recover those that have (cistern recover), since they may hold files, "
			"then give all nodes new ones",
			WHO(odd), odd->nodes > 1 ? "has its number in a job already" : "is new", WHO(like),
			like->nodes > 1 ? "has its number in a job already" : "is new");
	odd = odd_one(ids, num, same_job_uuid, &like);
	if (odd)
		return cistern_error_set(err, -EINVAL,
			WHO_FORMAT " belongs to another job than " WHO_FORMAT
				   ": start agents for the stores of one job only",
			WHO(odd), WHO(like));
	return 0;
}

struct speaker {
	char text[IDENTITY_NAME_BYTES + 96]; /* "host cn17 (Cistern 0.1.0)" */
};

static void describe(const struct identity *id, struct speaker *ret)
{
	snprintf(ret->text, sizeof(ret->text), "host %s (Cistern %s)", id->host, id->version);
}

int identity_protocols(const struct identity *ids, uint32_t num, struct protocols *ret, struct cistern_error *err)
{
	const struct identity *old = &ids[0], *new = &ids[0];
	struct speaker of_old, of_new;

	for (uint32_t i = 1; i < num; i++) {
		if (ids[i].protocols.newest < old->protocols.newest)
			old = &ids[i];
		if (ids[i].protocols.oldest > new->protocols.oldest)
			new = &ids[i];
	}
	if (protocols_meet(old->protocols, new->protocols, ret))
		return 0;
	describe(old, &of_old);
	describe(new, &of_new);
	return protocols_refuse(err, of_old.text, old->protocols, of_new.text, new->protocols,
		"mount and start agents with one version on all nodes, or with versions that have a protocol in common");
}

static int compare_uuid(const void *a, const void *b)
{
	const struct identity *const *x = a, *const *y = b;

	return memcmp((*x)->uuid, (*y)->uuid, IDENTITY_UUID_BYTES);
}

static int check_once(const struct identity *ids, uint32_t num, struct cistern_error *err)
{
	const struct identity **sorted = calloc(num, sizeof(const struct identity *));
	int r = 0;

	if (!sorted)
		return cistern_error_set(err, -ENOMEM, "out of memory");
	for (uint32_t i = 0; i < num; i++)
		sorted[i] = &ids[i];
	qsort(sorted, num, sizeof(const struct identity *), compare_uuid);
	for (uint32_t i = 1; i < num && r == 0; i++)
		if (compare_uuid(&sorted[i - 1], &sorted[i]) == 0)
			r = cistern_error_set(err, -EINVAL,
				WHO_FORMAT " is there twice (the other time as %s on host %s): start one agent on "
					   "each node, each with its own store",
				WHO(sorted[i]), WHO(sorted[i - 1]));
	free(sorted);
	return r;
}

#define MISSING_NAMED 8
#define MISSING_TEXT  64 /* of one: ", 1234 (host cn1234)" */

static void add_missing(char *list, uint32_t node, const struct identity_hosts *hosts)
{
	char host[IDENTITY_NAME_BYTES] = "", text[MISSING_TEXT];

	if (hosts)
		hosts->find(node, host, hosts->arg);
	snprintf(text, sizeof(text), "%s%u%s%.40s%s", *list ? ", " : "", node, *host ? " (host " : "", host,
		*host ? ")" : "");
	strcat(list, text);
}

static int missing_nodes(const struct identity *ids, const uint32_t *rank_of, uint32_t num, uint32_t nodes,
	const struct identity_hosts *hosts, struct cistern_error *err)
{
	char list[MISSING_NAMED * MISSING_TEXT + 8] = "";
	uint32_t missing = 0;

	for (uint32_t i = 0; i < nodes; i++)
		if (!rank_of[i] && missing++ < MISSING_NAMED)
			add_missing(list, i, hosts);
	if (missing > MISSING_NAMED)
		strcat(list, ", ...");
	return cistern_error_set(err, -EINVAL,
		"node%s %s of %u %s missing: " WHO_FORMAT
		" is node %u of a job of %u, but agents were started for %u; start them on all nodes: "
		"mpiexec -n %u -ppn 1 cistern agent --store DIR%s",
		missing > 1 ? "s" : "", list, nodes, missing > 1 ? "are" : "is", WHO(&ids[0]), ids[0].node, nodes, num,
		nodes, alone_text(num));
}

/* All are of one job, each store once: each number once, and none missing. */
static int check_numbers(
	const struct identity *ids, uint32_t num, const struct identity_hosts *hosts, struct cistern_error *err)
{
	uint32_t nodes = ids[0].nodes, *rank_of = calloc(nodes, sizeof(*rank_of)); /* rank + 1 */
	int r = 0;

	if (!rank_of)
		return cistern_error_set(err, -ENOMEM, "out of memory");
	for (uint32_t i = 0; i < num && r == 0; i++) {
		uint32_t node = ids[i].node;

		if (rank_of[node])
			r = cistern_error_set(err, -EINVAL,
				WHO_FORMAT " and " WHO_FORMAT " are both node %u of the job: one is a copy",
				WHO(&ids[i]), WHO(&ids[rank_of[node] - 1]), node);
		rank_of[node] = i + 1;
	}
	if (r == 0 && num != nodes)
		r = missing_nodes(ids, rank_of, num, nodes, hosts, err);
	free(rank_of);
	return r;
}

/* New stores: before any of them is numbered. */
static int check_wanted(const struct identity *ids, uint32_t num, struct cistern_error *err)
{
	for (uint32_t i = 0; i < num; i++)
		if (ids[i].wanted && ids[i].wanted != num)
			return cistern_error_set(err, -EINVAL,
				WHO_FORMAT
				" is mounted as one of %u (nodes=%u), but agents were started for %u: start one on each node "
				"of the job, or mount with nodes=%u%s",
				WHO(&ids[i]), ids[i].wanted, ids[i].wanted, num, num, alone_text(num));
	return 0;
}

int identity_check(const struct identity *ids, uint32_t num, const struct identity_hosts *hosts, uint32_t *ret_node,
	uint8_t ret_job_uuid[IDENTITY_UUID_BYTES], struct cistern_error *err)
{
	int r;

	for (uint32_t i = 0; i < num; i++)
		if (ids[i].code)
			return cistern_error_set(err, ids[i].code, "host %s: %s", ids[i].host, ids[i].text);
	r = check_once(ids, num, err);
	if (r == 0)
		r = check_alike(ids, num, err);
	if (r == 0)
		r = ids[0].nodes > 1 ? check_numbers(ids, num, hosts, err) : check_wanted(ids, num, err);
	if (r < 0)
		return r;
	for (uint32_t i = 0; i < num; i++)
		ret_node[i] = ids[0].nodes > 1 ? ids[i].node : i;
	memcpy(ret_job_uuid, ids[0].job_uuid, IDENTITY_UUID_BYTES);
	return 0;
}
