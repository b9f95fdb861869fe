/* SPDX-License-Identifier: GPL-3.0-or-later */
/* Sets of stores: which are one job, and who is named when they are not. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "mpi-agent/comm/identity.h"
#include "tests/lib/tap.h"

#define NUM 5

static struct identity ids[NUM];

/* NUM stores, /s0 on h0 to /s4 on h4. nodes 1: new ones; else numbered, rank + 1 mod nodes. */
static void make_job(uint32_t nodes)
{
	memset(ids, 0, sizeof(ids));
	for (unsigned int i = 0; i < NUM; i++) {
		struct identity *id = &ids[i];

		sprintf(id->host, "h%u", i);
		sprintf(id->store, "/s%u", i);
		strcpy(id->backing, "/b");
		strcpy(id->job, "17");
		strcpy(id->version, "1.0");
		id->protocols = protocols_own;
		id->uuid[0] = (uint8_t)(200 - i);
		id->job_uuid[0] = nodes > 1 ? 7 : (uint8_t)(i + 1);
		id->nodes = nodes;
		id->node = nodes > 1 ? (i + 1) % nodes : 0;
	}
}

/* They know of one. */
static void find_host(uint32_t node, char ret[IDENTITY_NAME_BYTES], void *arg)
{
	const char *host = arg;

	snprintf(ret, IDENTITY_NAME_BYTES, "%s", node == 4 ? host : "");
}

static char host_4[] = "cn17";
static const struct identity_hosts hosts = { find_host, host_4 };

static void is_job(uint32_t num, uint8_t job, uint32_t first, const char *what)
{
	uint8_t uuid[IDENTITY_UUID_BYTES] = { 0 };
	struct cistern_error err = { 0 };
	uint32_t node[NUM] = { 99 };

	ok(identity_check(ids, num, &hosts, node, uuid, &err) == 0, "%s: a job %s", what, err.text);
	ok(uuid[0] == job, "%s: its uuid", what);
	ok(node[0] == first, "%s: the first one's number", what);
	ok(node[num - 1] == (first + num - 1) % num, "%s: the last one's number", what);
}

static void is_refused(uint32_t num, const char *text, const char *what)
{
	uint8_t uuid[IDENTITY_UUID_BYTES];
	struct cistern_error err = { 0 };
	uint32_t node[NUM];

	ok(identity_check(ids, num, &hosts, node, uuid, &err) < 0, "%s is refused", what);
	is_str(err.text, text, "by this text");
}

static void test_good(void)
{
	make_job(1);
	is_job(NUM, 1, 0, "new stores");
	make_job(NUM);
	is_job(NUM, 7, 1, "numbered stores in another order");
	make_job(1);
	is_job(1, 1, 0, "one store");
}

static int check_all(struct cistern_error *err)
{
	uint8_t uuid[IDENTITY_UUID_BYTES];
	uint32_t node[NUM];

	return identity_check(ids, NUM, NULL, node, uuid, err);
}

/* Of five, the one that differs is named first, wherever it stands. */
static void test_culprit(unsigned int odd)
{
	struct cistern_error err = { 0 };
	char wanted[200];

	make_job(1);
	strcpy(ids[odd].backing, "/c");
	snprintf(wanted, sizeof(wanted), "the store /s%u on host h%u is mounted over /c, but the store /s", odd, odd);
	ok(check_all(&err) == -EINVAL, "rank %u over another directory", odd);
	ok(strncmp(err.text, wanted, strlen(wanted)) == 0, "is the culprit: %s", err.text);
	make_job(NUM);
	ids[odd].job_uuid[0] = 8;
	snprintf(wanted, sizeof(wanted), "the store /s%u on host h%u belongs to another job than", odd, odd);
	ok(check_all(&err) == -EINVAL, "rank %u of another job", odd);
	ok(strncmp(err.text, wanted, strlen(wanted)) == 0, "is the culprit: %s", err.text);
}

static void test_bad(void)
{
	make_job(NUM);
	ids[2].nodes = 1;
	is_refused(NUM,
		"the store /s2 on host h2 is new, but the store /s0 on host h0 has its number in a job already: a new store "
		"cannot join a job. Give all nodes their own stores; or, if the job's first agents ended before all had their numbers, "
		"recover those that have (cistern recover), since they may hold files, then give all nodes new ones",
		"a new store among numbered ones");
	make_job(NUM);
	memcpy(ids[3].uuid, ids[1].uuid, IDENTITY_UUID_BYTES);
	strcpy(ids[3].host, "h9");
	is_int(check_all(NULL), -EINVAL, "a store twice is refused");
	make_job(NUM);
	ids[4].node = ids[1].node;
	is_refused(NUM,
		"the store /s4 on host h4 and the store /s1 on host h1 are both node 2 of the job: one is a copy",
		"a copy of a store");
	make_job(NUM);
	is_refused(3,
		"nodes 0, 4 (host cn17) of 5 are missing: the store /s0 on host h0 is node 1 of a job of 5, but agents were started for "
		"3; start them on all nodes: mpiexec -n 5 -ppn 1 cistern agent --store DIR",
		"a part of a job");
	is_refused(1,
		"nodes 0, 2, 3, 4 (host cn17) of 5 are missing: the store /s0 on host h0 is node 1 of a job of 5, but agents were started "
		"for 1; start them on all nodes: mpiexec -n 5 -ppn 1 cistern agent --store DIR. If more were started, each is "
		"alone: they need MPICH's mpiexec, or srun --mpi=pmi2",
		"one of a job, as another MPI's mpiexec starts them");
	make_job(1);
	ids[0].wanted = 2;
	is_refused(1,
		"the store /s0 on host h0 is mounted as one of 2 (nodes=2), but agents were started for 1: start one on each "
		"node of the job, or mount with nodes=1. If more were started, each is alone: they need MPICH's mpiexec, or "
		"srun --mpi=pmi2",
		"a new one alone");
	make_job(1);
	ids[1].code = -ETIMEDOUT;
	strcpy(ids[1].text, "no daemon");
	is_refused(NUM, "host h1: no daemon", "a rank without a store");
}

/* Versions may differ where the numbers meet. */
static void test_protocols(void)
{
	struct cistern_error err = { 0 };
	struct protocols all = { 0 };

	make_job(NUM);
	ids[1].protocols = (struct protocols){ 2, 5 };
	ids[2].protocols = (struct protocols){ 1, 3 };
	ids[0].protocols = ids[3].protocols = ids[4].protocols = (struct protocols){ 1, 4 };
	strcpy(ids[1].version, "2.0");
	ok(identity_protocols(ids, NUM, &all, &err) == 0 && all.oldest == 2 && all.newest == 3, "what all five speak");
	ids[2].protocols.newest = 1;
	is_int(identity_protocols(ids, NUM, &all, &err), -EPROTONOSUPPORT, "none that all speak");
	is_str(err.text,
		"host h2 (Cistern 1.0) speaks protocol 1, host h1 (Cistern 2.0) speaks protocols 2 to 5, and host h2 (Cistern 1.0) "
		"is the older one: mount and start agents with one version on all nodes, or with versions that have a protocol in "
		"common",
		"the oldest and the newest are named");
}

static void test_bytes(void)
{
	uint8_t bytes[IDENTITY_BYTES];
	struct identity back = { 0 };

	make_job(NUM);
	memset(ids[1].store, 's', sizeof(ids[1].store) - 1); /* the longest there are */
	memset(ids[1].backing, 'b', sizeof(ids[1].backing) - 1);
	ids[1].place = (struct identity_place){ .port = 65535, .addresses = { 1, 2 }, .host_id = UINT64_MAX };
	ids[1].folder = (struct identity_folder){ .dev = UINT64_MAX, .ino = 1 };
	ids[1].incarnation = UINT64_MAX - 1;
	identity_encode(&ids[1], bytes);
	is_int(identity_decode(bytes, &back), 0, "decodes");
	ok(memcmp(&back, &ids[1], sizeof(back)) == 0, "what was encoded");
	memset(bytes, 0, sizeof(bytes));
	is_int(identity_decode(bytes, &back), -EBADMSG, "nothing is no identity");
}

int main(void)
{
	test_good();
	for (unsigned int i = 0; i < NUM; i++)
		test_culprit(i);
	test_bad();
	test_protocols();
	test_bytes();
	return done_testing();
}
