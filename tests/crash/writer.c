/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * writer: a program whose operations depend on nothing but the seed, and which says which of them were acknowledged. It prints
 * "ack N" (one write(2) each, to somewhere safe) after operation N returned. When the file system under it dies it ends with
 * status 3. What must be found afterwards is what "writer --ops N" leaves in a plain directory, or, since the operation
 * in flight may have happened, what "--ops N+1" leaves.
 */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/parity/rng.h"

#define HANDLES   4
#define BLOCK_MAX (48u << 10)
#define FILE_MAX  (4u << 20)
#define DEAD      3

struct writer {
	struct rng rng;
	int fd[HANDLES]; /* -1: none */
	bool quiet, sync;
	unsigned char buf[BLOCK_MAX];
};

struct operation {
	const char *name;
	unsigned int weight;
	int (*run)(struct writer *w);
};

static void random_name(struct writer *w, char out[32])
{
	static const char *const dirs[] = { "", "", "", "one/", "two/" };

	snprintf(out, 32, "%sf%d", dirs[rng_below(&w->rng, 5)], (int)rng_below(&w->rng, 8));
}

static int op_open(struct writer *w)
{
	size_t at = rng_below(&w->rng, HANDLES);
	int flags = rng_percent(&w->rng, 20) ? O_TRUNC : 0;
	char name[32];

	random_name(w, name);
	if (w->fd[at] >= 0 && close(w->fd[at]) < 0 && errno != EBADF) {
		w->fd[at] = -1;
		return -1;
	}
	w->fd[at] = open(name, O_RDWR | O_CREAT | O_CLOEXEC | flags, 0644);
	return w->fd[at];
}

static int op_write(struct writer *w)
{
	int fd = w->fd[rng_below(&w->rng, HANDLES)];
	size_t len = 1 + rng_below(&w->rng, rng_percent(&w->rng, 50) ? 600 : BLOCK_MAX);
	uint64_t off = rng_below(&w->rng, rng_percent(&w->rng, 60) ? 256u << 10 : FILE_MAX);

	rng_fill(&w->rng, w->buf, len);
	if (fd < 0)
		return 0;
	return pwrite(fd, w->buf, len, (off_t)off) == (ssize_t)len ? 0 : -1;
}

static int op_append(struct writer *w)
{
	int fd = w->fd[rng_below(&w->rng, HANDLES)];
	size_t len = 1 + rng_below(&w->rng, 3000);
	struct stat st;

	rng_fill(&w->rng, w->buf, len);
	if (fd < 0)
		return 0;
	if (fstat(fd, &st) < 0)
		return -1;
	return pwrite(fd, w->buf, len, st.st_size) == (ssize_t)len ? 0 : -1;
}

static int op_truncate(struct writer *w)
{
	int fd = w->fd[rng_below(&w->rng, HANDLES)];
	uint64_t size = rng_below(&w->rng, FILE_MAX / 4);

	return fd < 0 ? 0 : ftruncate(fd, (off_t)size);
}

static int op_rename(struct writer *w)
{
	char from[32], to[32];

	random_name(w, from);
	random_name(w, to);
	return rename(from, to);
}

static int op_unlink(struct writer *w)
{
	char name[32];

	random_name(w, name);
	return unlink(name);
}

static int op_link(struct writer *w)
{
	char from[32], to[32];

	random_name(w, from);
	random_name(w, to);
	return link(from, to);
}

static int op_chmod(struct writer *w)
{
	mode_t mode = 0600 | (mode_t)rng_below(&w->rng, 0100);
	char name[32];

	random_name(w, name);
	return chmod(name, mode);
}

static const struct operation operations[] = {
	{ "write", 100, op_write },
	{ "append", 30, op_append },
	{ "open", 30, op_open },
	{ "truncate", 6, op_truncate },
	{ "rename", 8, op_rename },
	{ "unlink", 5, op_unlink },
	{ "link", 3, op_link },
	{ "chmod", 3, op_chmod },
};
#define OPERATIONS (sizeof(operations) / sizeof(operations[0]))

static const struct operation *pick(struct writer *w)
{
	uint64_t total = 0, at;

	for (size_t i = 0; i < OPERATIONS; i++)
		total += operations[i].weight;
	at = rng_below(&w->rng, total);
	for (size_t i = 0;; i++) {
		if (at < operations[i].weight)
			return &operations[i];
		at -= operations[i].weight;
	}
}

/* Names that are not there or there already are part of the game. */
static bool is_harmless(int error)
{
	return error == ENOENT || error == EEXIST;
}

static bool acknowledge(const struct writer *w, uint64_t n)
{
	char line[64];
	int len = snprintf(line, sizeof(line), "ack %" PRIu64 "\n", n);

	return w->quiet || write(STDOUT_FILENO, line, (size_t)len) == len;
}

static int run(struct writer *w, uint64_t ops)
{
	if ((mkdir("one", 0755) < 0 || mkdir("two", 0755) < 0) && errno != EEXIST)
		return DEAD;
	for (uint64_t n = 1; n <= ops; n++) {
		const struct operation *o = pick(w);

		if (o->run(w) < 0 && !is_harmless(errno)) {
			fprintf(stderr, "operation %" PRIu64 ", %s: %s\n", n, o->name, strerror(errno));
			return errno == ENOTCONN || errno == ECONNABORTED || errno == EIO ? DEAD : 1;
		}
		if (w->sync && n % 64 == 0)
			for (size_t i = 0; i < HANDLES; i++)
				if (w->fd[i] >= 0 && fsync(w->fd[i]) < 0)
					return DEAD;
		if (!acknowledge(w, n))
			return 1;
	}
	return 0;
}

int main(int argc, char **argv)
{
	struct writer *w = calloc(1, sizeof(*w));
	uint64_t ops = 1000;
	int key, result;

	if (!w)
		return 1;
	while ((key = getopt(argc, argv, "s:n:qf")) >= 0)
		switch (key) {
		case 's': w->rng.state = strtoull(optarg, NULL, 0); break;
		case 'n': ops = strtoull(optarg, NULL, 0); break;
		case 'q': w->quiet = true; break;
		case 'f': w->sync = true; break;
		default: optind = argc + 1; break;
		}
	if (optind + 1 != argc) {
		fprintf(stderr, "usage: writer [-s SEED] [-n OPERATIONS] [-q] [-f] DIRECTORY\n"
				"-q: do not print what is acknowledged; -f: fsync now and then\n");
		free(w);
		return 2;
	}
	for (size_t i = 0; i < HANDLES; i++)
		w->fd[i] = -1;
	umask(022);
	if (chdir(argv[optind]) < 0) {
		perror(argv[optind]);
		free(w);
		return 2;
	}
	result = run(w, ops);
	free(w);
	return result;
}
