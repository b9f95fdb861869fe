/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Stores of a job wrote one file (written.h); it is drained in parts, each domain by its home, and must be what a model holds in which
 * commits are applied in the order of their stamps. New files and updates of existing ones; with buffers of several sizes.
 *
 *   test-drain-shared [seeds [first seed]]
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "format/base/crc32c.h"
#include "tests/lib/tap.h"
#include "tests/lib/written.h"

/*
 * Bit by bit from the polynomial: a new file's bytes; of one that was there before, what was written, in its place. There must be
 * no byte that was written and is not counted.
 */
static void check_checksum(struct written *j, uint64_t seed)
{
	uint32_t crc = UINT32_MAX;
	uint64_t bytes = 0;

	for (uint64_t i = 0; i < j->size; i++) {
		crc ^= j->existing && !j->owner[i] ? 0 : j->model[i];
		for (int k = 0; k < 8; k++)
			crc = crc >> 1 ^ (crc & 1 ? 0x82f63b78u : 0);
		bytes += j->owner[i] != 0;
	}
	ok(crc32c_of_parts(j->shared.crc_sum, j->shared.size) == ~crc, "checksum of the %s file, seed %" PRIu64,
		j->existing ? "existing" : "new", seed);
	ok(j->shared.written >= bytes && bytes > 0, "all bytes are counted, seed %" PRIu64, seed);
}

static void test(struct written *j, uint64_t seed)
{
	unsigned int rounds;
	struct inode in;

	written_start(j, seed);
	rounds = 5 + (unsigned int)written_draw(j, 60);
	for (unsigned int i = 0; i < rounds; i++) {
		unsigned int node = (unsigned int)written_draw(j, WRITTEN_NODES);

		written_put(j, node);
		if (written_draw(j, 4) == 0)
			written_commit(j, (unsigned int)written_draw(j, WRITTEN_NODES));
	}
	for (unsigned int node = 0; node < WRITTEN_NODES; node++)
		if (j->writes[node])
			written_commit(j, node);
	written_drain(j);
	ok(j->num_shared == 1 && j->errors == 0, "drained without complaint, seed %" PRIu64, seed);
	ok(written_is_model(j, j->backing, 0), "%s file is what was committed, seed %" PRIu64,
		j->existing ? "existing" : "new", seed);
	check_checksum(j, seed);
	ok(state_inode(written_state(j, 0), WRITTEN_INO, &in) == 0 &&
			!(in.flags & (INODE_NEW | INODE_DIRTY_DATA | INODE_DIRTY_META)),
		"it is clean, seed %" PRIu64, seed);
	written_end(j, true);
}

/* What the home has written and not committed has not been carried: it stays, also when it has never committed anything. */
static void test_uncommitted(struct written *j)
{
	struct extent ext[2];
	uint64_t next;
	size_t num = 0;

	written_start(j, 2);
	written_put(j, 1);
	written_commit(j, 1);
	written_put(j, 0);
	written_drain(j);
	is_u64(j->errors, 0, "a file that its home has written to, and not committed, is drained");
	ok(state_uncommitted(written_state(j, 0), WRITTEN_INO, 0, ext, 2, &num, &next) == 0 && num > 0,
		"what was not committed stays there");
	written_forget(j, 0);
	written_end(j, true);
}

/* A node is not there: what it may have in the backing directory is not replaced, and what wants the place waits. */
static void test_cautious(struct written *j)
{
	struct record move = { .type = RECORD_RENAME,
		.from_parent = STATE_ROOT_INO,
		.from_name = "f",
		.parent = STATE_ROOT_INO,
		.name = "g" };
	char path[WRITTEN_PATH + 32], got[8] = "";
	int fd;

	written_start(j, 1);
	written_record(j, 0, &move);
	snprintf(path, sizeof(path), "%s/g", j->backing);
	fd = open(path, O_CREAT | O_RDWR, 0600);
	world_must(fd, path);
	world_must(write(fd, "other", 5) == 5 ? 0 : -EIO, path);
	close(fd);
	j->cautious = true;
	written_part(j, 0, WIRE_PART_PARK, 2u << 20);
	written_part(j, 0, WIRE_PART_FILES, 2u << 20);
	fd = open(path, O_RDONLY);
	ok(j->errors > 0, "a file that wants the place of an unknown one is complained of");
	ok(fd >= 0 && read(fd, got, sizeof(got)) == 5 && memcmp(got, "other", 5) == 0,
		"and the unknown one is still there");
	close(fd);
	j->cautious = false;
	j->errors = 0;
	written_part(j, 0, WIRE_PART_FILES, 2u << 20);
	is_u64(j->errors, 0, "with all nodes there it is placed");
	written_end(j, true);
}

static unsigned int num_files(const char *dir)
{
	unsigned int num = 0;
	DIR *d = opendir(dir);

	world_must(d ? 0 : -errno, dir);
	for (const struct dirent *e; (e = readdir(d));)
		num += e->d_name[0] != '.' || strlen(e->d_name) > 2;
	closedir(d);
	return num;
}

/* A file that is not to be drained now, or that is removed while it is, leaves nothing in the backing directory. */
static void test_removed(struct written *j)
{
	struct record gone = { .type = RECORD_UNLINK, .parent = STATE_ROOT_INO, .name = "f" };
	char path[WRITTEN_PATH + 32];
	int fd;

	written_start(j, 2);
	written_put(j, 1);
	written_commit(j, 1);
	j->refuses = true;
	written_part(j, 0, WIRE_PART_BEGIN, 2u << 20);
	ok(j->errors == 0 && num_files(j->backing) == 0, "of a file that may not be drained now nothing is left");
	j->refuses = false;
	written_part(j, 0, WIRE_PART_BEGIN, 2u << 20);
	written_part(j, 0, WIRE_PART_DATA, 2u << 20);
	is_u64(num_files(j->backing), 1, "a file is begun");
	j->shared.failed = true;
	written_part(j, 0, WIRE_PART_FILES, 2u << 20);
	ok(j->errors > 0 && num_files(j->backing) == 0, "of one that a node could not write nothing is left");
	j->shared.failed = false;
	j->num_shared = j->errors = 0;
	written_part(j, 0, WIRE_PART_BEGIN, 2u << 20);
	snprintf(path, sizeof(path), "%s/f", j->backing);
	fd = open(path, O_CREAT | O_RDWR, 0600);
	world_must(fd, path);
	close(fd);
	j->taken = true;
	written_part(j, 0, WIRE_PART_FILES, 2u << 20);
	ok(j->errors == 0 && num_files(j->backing) == 1,
		"nor of one whose name is taken, so that it waits for the next session");
	world_must(unlink(path), path);
	j->taken = false;
	j->num_shared = 0;
	written_part(j, 0, WIRE_PART_BEGIN, 2u << 20);
	written_record(j, 0, &gone);
	written_part(j, 0, WIRE_PART_FILES, 2u << 20);
	ok(j->errors == 0 && num_files(j->backing) == 0, "of one that is removed meanwhile neither");
	written_end(j, true);
}

/* As a living home notes each commit, whether the file grows by it or not. */
static void write_elsewhere(struct written *j)
{
	struct record noted = { .type = RECORD_TRUNCATE };

	written_put(j, 1);
	written_commit(j, 1);
	noted.size = j->size;
	written_record(j, 0, &noted);
}

/* An agent dies behind its word that the file has its name; another node commits; and the next agent does the same part. */
static void test_published_before(struct written *j)
{
	uint64_t late;

	written_start(j, 2);
	written_put(j, 1);
	written_commit(j, 1);
	written_part(j, 0, WIRE_PART_BEGIN, 2u << 20);
	written_part(j, 0, WIRE_PART_DATA, 2u << 20);
	written_part(j, 1, WIRE_PART_DATA, 2u << 20);
	written_part(j, 0, WIRE_PART_FILES, 2u << 20);
	ok(j->errors == 0 && num_files(j->backing) == 1, "a file has its name");
	write_elsewhere(j);
	late = j->late;
	written_part(j, 0, WIRE_PART_FILES, 2u << 20);
	is_u64(j->errors, 0, "that it has been written to since then is no failure of the part that is done again");
	is_u64(j->late - late, 1, "but something for the next session");
	written_drain(j);
	ok(j->errors == 0 && written_is_model(j, j->backing, 0), "which carries it");
	written_end(j, true);
}

/* The backing file under this name is what it was before anybody wrote. */
static bool is_untouched(const struct written *j, const char *name)
{
	char path[WRITTEN_PATH + 32];
	uint8_t byte = 0;
	uint64_t i = 0;
	int fd;

	snprintf(path, sizeof(path), "%s/%s", j->backing, name);
	fd = open(path, O_RDONLY);
	while (fd >= 0 && read(fd, &byte, 1) == 1 && byte == (uint8_t)(i * 7 + 3))
		i++;
	close(fd);
	return i > 0 && i == j->existing_size;
}

/* A name that goes takes nothing along of what other nodes have written to the file: neither if it has another one in the mount... */
static void test_name_removed(struct written *j)
{
	struct record more = { .type = RECORD_LINK, .parent = STATE_ROOT_INO, .name = "g" };
	struct record gone = { .type = RECORD_UNLINK, .parent = STATE_ROOT_INO, .name = "g" };
	struct inode in;

	written_start(j, 1);
	written_record(j, 0, &more);
	written_part(j, 0, WIRE_PART_FILES, 2u << 20);
	is_u64(num_files(j->backing), 2, "a file has two names");
	write_elsewhere(j);
	written_record(j, 0, &gone);
	written_part(j, 0, WIRE_PART_REMOVE, 2u << 20);
	ok(j->errors == 0 && num_files(j->backing) == 1, "it loses one, after another node has written to it");
	ok(is_untouched(j, "f"), "that is not written to it as if all were its home's");
	ok(state_inode(written_state(j, 0), WRITTEN_INO, &in) == 0 && in.flags & INODE_DIRTY_DATA,
		"and not taken for drained");
	written_drain(j);
	ok(j->errors == 0 && written_is_model(j, j->backing, 0), "the next session writes it");
	written_end(j, true);
}

/* ... nor if it has one that the mount does not know. */
static void test_unseen_name(struct written *j)
{
	struct record gone = { .type = RECORD_UNLINK, .parent = STATE_ROOT_INO, .name = "f" };
	struct inode in;

	written_start(j, WRITTEN_LINKED);
	write_elsewhere(j);
	written_record(j, 0, &gone);
	written_part(j, 0, WIRE_PART_REMOVE, 2u << 20);
	ok(j->errors > 0, "that a file's bytes have no place any more is complained of");
	ok(is_untouched(j, "other"), "its other name shows what it did");
	ok(state_inode(written_state(j, 0), WRITTEN_INO, &in) == 0 && in.flags & INODE_DIRTY_DATA,
		"the bytes stay in the stores");
	written_end(j, true);
}

int main(int argc, char **argv)
{
	uint64_t seeds = argc > 1 ? strtoull(argv[1], NULL, 10) : 8, first = argc > 2 ? strtoull(argv[2], NULL, 10) : 1;
	struct written *j = malloc(sizeof(*j));

	world_must(j ? 0 : -ENOMEM, "memory");
	for (uint64_t seed = first; seed < first + seeds; seed++)
		test(j, seed);
	test_uncommitted(j);
	test_cautious(j);
	test_removed(j);
	test_published_before(j);
	test_name_removed(j);
	test_unseen_name(j);
	free(j);
	return done_testing();
}
