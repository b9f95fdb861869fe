/* SPDX-License-Identifier: GPL-3.0-or-later */
/* Staging in a store whose writers are killed at any moment: nothing that was acknowledged is lost. */
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "format/store/store.h"
#include "tests/lib/payload.h"
#include "tests/lib/remove_tree.h"
#include "tests/lib/tap.h"

#define MIB        (1u << 20)
#define KILLS      14
#define THREADS    3
#define WRITES_MAX 400u

static char work[64] = "/tmp/cistern-test-staging-XXXXXX";

static char *in_work(const char *name)
{
	static char path[256];

	snprintf(path, sizeof(path), "%s/%s", work, name);
	return path;
}

struct acked { /* shared with the child */
	_Atomic uint64_t ino[THREADS];
	atomic_uint num[THREADS];
};

struct job {
	pthread_t thread;
	struct store *s;
	struct acked *acked;
	unsigned int index, kill_after;
	uint32_t gen;
};

static uint32_t len_of(unsigned int thread, unsigned int n)
{
	static const uint32_t lens[] = { MIB, 65536, 100001, MIB, 4096, 999999, 131072 };

	return lens[(thread + n) % (sizeof(lens) / sizeof(lens[0]))];
}

static void *job_main(void *arg)
{
	struct job *j = arg;
	uint64_t ino = atomic_load(&j->acked->ino[j->index]);
	void *slot = segment_slot_get(store_segments(j->s), true);

	for (unsigned int n = 0; n < WRITES_MAX && slot; n++) {
		uint32_t len = len_of(j->index, n);

		payload_fill(slot, len, j->index * 100000 + n);
		if (store_write(j->s, ino, j->gen, (uint64_t)n * MIB, slot, len))
			_exit(3);
		atomic_store(&j->acked->num[j->index], n + 1);
		if (n + 1 == j->kill_after)
			kill(getpid(), SIGKILL);
		if (n % 16 == 5 && store_sync(j->s))
			_exit(4);
		if (segment_slot_taken(store_segments(j->s), slot)) {
			segment_slot_put(store_segments(j->s), slot);
			slot = segment_slot_get(store_segments(j->s), true);
		}
	}
	return NULL;
}

static struct store *open_store(enum store_mode mode)
{
	struct store_options opt = { .mode = mode,
		.backing = "/backing",
		.segment_size = 8 * MIB,
		.journal_size = MIB,
		.reserve = MIB,
		.staging = mode == STORE_READ_ONLY ? 0 : 8 * MIB,
		.staging_dir = work };
	char path[256];
	struct cistern_error err = { 0 };
	struct store *s = NULL;

	strcpy(path, in_work("store"));
	if (store_open(path, &opt, &s, NULL, &err))
		tap_diag("%s", err.text);
	return s;
}

static uint64_t new_file(struct store *s, unsigned int i, uint32_t *ret_gen)
{
	struct record root = {
		.type = RECORD_ADOPT, .ino = STATE_ROOT_INO, .name = ".", .mode = S_IFDIR | 0755, .nlink = 2
	};
	struct record rec = { .type = RECORD_CREATE,
		.parent = STATE_ROOT_INO,
		.mode = S_IFREG | 0644,
		.ino = state_new_ino(store_state(s)) };
	struct inode in;

	snprintf(rec.name, sizeof(rec.name), "f%u", i);
	if (state_inode(store_state(s), STATE_ROOT_INO, &in) && store_commit(s, &root))
		_exit(5);
	if (store_commit(s, &rec) || state_inode(store_state(s), rec.ino, &in))
		_exit(6);
	*ret_gen = in.gen;
	return rec.ino;
}

static int child_main(struct acked *acked, unsigned int kill_after)
{
	struct job jobs[THREADS];
	struct store *s = open_store(STORE_CREATE_OR_OPEN);

	if (!s)
		_exit(2);
	for (unsigned int i = 0; i < THREADS; i++) {
		jobs[i] = (struct job){ .s = s, .acked = acked, .index = i, .kill_after = i == 0 ? kill_after : 0 };
		atomic_store(&acked->ino[i], new_file(s, i, &jobs[i].gen));
	}
	for (unsigned int i = 0; i < THREADS; i++)
		pthread_create(&jobs[i].thread, NULL, job_main, &jobs[i]);
	for (unsigned int i = 0; i < THREADS; i++)
		pthread_join(jobs[i].thread, NULL);
	kill(getpid(), SIGKILL);
	return 0;
}

static unsigned int count_wrong(struct store *s, struct acked *acked)
{
	uint8_t *buf = malloc(MIB);
	unsigned int wrong = 0;

	for (unsigned int i = 0; i < THREADS; i++)
		for (unsigned int n = 0; n < atomic_load(&acked->num[i]); n++) {
			uint32_t len = len_of(i, n);
			struct cistern_error err = { 0 };
			struct inode in;

			if (state_inode(store_state(s), atomic_load(&acked->ino[i]), &in) ||
				store_read(s, &in, (uint64_t)n * MIB, len, buf, true, NULL, NULL, &err) ||
				!payload_is(buf, 0, len, len, i * 100000 + n)) {
				if (wrong++ < 3)
					tap_diag("file %u write %u: %s", i, n, err.text);
			}
		}
	free(buf);
	return wrong;
}

static struct acked *map_acked(void)
{
	int fd = open(in_work("acked"), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	void *at = MAP_FAILED;

	if (fd >= 0 && ftruncate(fd, 4096) == 0)
		at = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (at == MAP_FAILED)
		abort();
	close(fd);
	return at;
}

/* A program of its own: RocksDB's threads do not survive a fork. */
static pid_t start_child(unsigned int kill_after)
{
	pid_t pid = fork();
	char number[16];

	if (pid == 0) {
		snprintf(number, sizeof(number), "%u", kill_after);
		execl("/proc/self/exe", "test-staging-kills", "--child", work, number, (char *)NULL);
		_exit(127);
	}
	return pid;
}

static void test_kills(void)
{
	struct acked *acked = map_acked();
	unsigned int round = 0, total = 0, wrong = 0, regions = 0, failed = 0;
	uint64_t found = 0;

	srand(1);
	for (; round < KILLS || (regions == 0 && round < 20 * KILLS); round++) {
		struct store *s;
		pid_t pid;
		int status = 0;

		remove_tree(in_work("store"));
		memset(acked, 0, 4096);
		pid = start_child(round % 2 ? 1 + (unsigned int)rand() % 40 : 0);
		if (round % 2 == 0) {
			while (atomic_load(&acked->num[THREADS - 1]) == 0 && waitpid(pid, &status, WNOHANG) == 0)
				usleep(200);
			usleep((unsigned int)rand() % 30000);
			kill(pid, SIGKILL);
		}
		if (waitpid(pid, &status, 0) == pid && !WIFSIGNALED(status))
			failed++;
		for (unsigned int i = 0; i < THREADS; i++)
			total += atomic_load(&acked->num[i]);
		s = open_store(STORE_READ_ONLY);
		wrong += s ? count_wrong(s, acked) : 1;
		found += s ? segment_found_staged(store_segments(s)) : 0;
		regions += s && segment_found_staged(store_segments(s)) > 0;
		store_close(s);
		s = open_store(STORE_CREATE_OR_OPEN);
		wrong += s ? count_wrong(s, acked) : 1;
		failed += store_close(s) != 0;
	}
	tap_diag("%u writes acknowledged; %" PRIu64 " found staged, in %u of %u rounds", total, found, regions, round);
	is_u64(failed, 0, "children and stores end as they should");
	ok(total > KILLS && regions > 0, "some were killed with payloads staged");
	is_u64(wrong, 0, "nothing that was acknowledged is lost");
	remove_tree(in_work("store"));
	munmap(acked, 4096);
}

int main(int argc, char **argv)
{
	if (argc == 4 && strcmp(argv[1], "--child") == 0) {
		snprintf(work, sizeof(work), "%s", argv[2]);
		return child_main(map_acked(), (unsigned int)atoi(argv[3]));
	}
	if (!mkdtemp(work))
		return 99;
	test_kills();
	remove_tree(work);
	return done_testing();
}
