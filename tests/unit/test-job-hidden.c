/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * A directory that the backing directory has, with files that have all been removed and that no drain has taken away yet: it can be removed,
 * however many they are, and it cannot as soon as it shows one.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "fs/job/private.h"
#include "tests/lib/job_path.h"
#include "tests/lib/job_world.h"
#include "tests/lib/tap.h"

#define NODES      2u
#define PATH_BYTES (RECORD_NAME_MAX + 8)

static uint64_t now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

static void nth_path(char out[PATH_BYTES], size_t len, unsigned int i)
{
	memset(out, 'n', len);
	memcpy(out, "old/", 4);
	snprintf(out + len - 8, 9, "%08u", i % 100000000u);
}

static void put_file(struct job_world *w, const char *path)
{
	char at[1024];

	snprintf(at, sizeof(at), "%s/%s", job_world_backing(w), path);
	int fd = open(at, O_WRONLY | O_CREAT, 0600);
	if (fd < 0 || close(fd)) {
		printf("Bail out! %s: %s\n", at, strerror(errno));
		exit(1);
	}
}

/* All were there, and are removed; paths are as long as that. */
static struct job_world *start(unsigned int num, size_t len)
{
	struct job_world *w = job_world_start(NODES);
	unsigned int removed = 0;
	char path[PATH_BYTES];

	snprintf(path, sizeof(path), "%.200s/old", job_world_backing(w));
	if (mkdir(path, 0700))
		exit(1);
	for (unsigned int i = 0; i < num; i++) {
		nth_path(path, len, i);
		put_file(w, path);
	}
	for (unsigned int i = 0; i < num; i++) {
		nth_path(path, len, i);
		removed += path_unlink(job_world_job(w, i % NODES), path) == 0;
	}
	is_u64(removed, num, "files are removed that the backing directory has");
	return w;
}

static uint64_t ino_of(struct job_world *w, const char *path)
{
	struct stat st;

	return path_stat(job_world_job(w, 0), path, &st) == 0 ? st.st_ino : 0;
}

/* So many bytes a node says at once of what it hides. */
static size_t page_bytes(struct job_world *w, uint64_t dir, uint32_t node)
{
	struct wire_msg m = { 0 }, reply = { 0 };
	const uint8_t *names;
	size_t len = 0;

	message_init(&m, MESSAGE_TREE_HIDDEN);
	message_put(&m, MESSAGE_DIR, dir);
	message_put_str(&m, MESSAGE_NAME, "");
	is_int(peers_call(job_world_peers(w, 0), node, &m, &reply), 0, "a node says what it hides");
	ok(message_get_bytes(&reply, MESSAGE_NAMES, 0, &names, &len) && message_get(&reply, MESSAGE_COUNT),
		"and that there is more");
	wire_msg_free(&m);
	wire_msg_free(&reply);
	return len;
}

static void test_pages(void)
{
	struct job_world *w = start(3000, 40);

	for (uint32_t i = 0; i < NODES; i++) {
		job_world_job(w, i)->hidden_page_bytes = 1000;
		ok(page_bytes(w, ino_of(w, "old"), i) < 20000, "a page at a time");
	}
	put_file(w, "old/new");
	is_int(path_rmdir(job_world_job(w, 1), "old"), -ENOTEMPTY, "what shows one more is not removed");
	is_int(path_unlink(job_world_job(w, 0), "old/new"), 0, "that one is removed");
	is_int(path_rmdir(job_world_job(w, 1), "old"), 0, "and then the directory");
	job_world_stop(w);
}

/* What each node hides is longer than a message: JOB_HIDDEN_MANY=36000. */
static void test_many(unsigned int num)
{
	struct job_world *w = start(num, PATH_BYTES - 8);
	uint64_t begun = now_ms();

	is_int(path_rmdir(job_world_job(w, 1), "old"), 0, "of however many");
	uint64_t took = now_ms() - begun;
	ok(took < 3000 + num / 10, "soon: in %llu ms", (unsigned long long)took);
	job_world_stop(w);
}

int main(void)
{
	const char *many = getenv("JOB_HIDDEN_MANY");

	test_pages();
	if (many)
		test_many((unsigned int)strtoul(many, NULL, 10));
	return done_testing();
}
