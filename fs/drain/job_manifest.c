/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Lines travel at least once: a node forgets them when node 0 has them, and when it never hears so it sends them again. So that node 0 knows
 * them again, what is sent gets a number first, by which its file is called from then on, and nothing is added to it any more. Lines arrive part by
 * part, because a part ends on all nodes before the next one begins; so what is said of a path by several nodes stands in the order in which it came
 * to be.
 */
#include "fs/drain/job_manifest.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "format/base/fdio.h"

#define PIECE_BYTES (1u << 20) /* longer than any line */
#define PART_PREFIX MANIFEST_PART_LOG "."
#define NAME_BYTES  128

struct job_manifest {
	struct job_manifest_options opt;
	char uuid[37];
	uint64_t part; /* the number of what is being sent; 0: nothing is. Of who sends */
	pthread_mutex_t lock;
	struct manifest *log; /* owned; opened when it is needed: on node 0. Under lock */
};

/* What an earlier daemon had begun to send. */
static int find_part(struct job_manifest *jm)
{
	DIR *dir = opendir(store_path(jm->opt.store));
	const struct dirent *e;

	if (!dir)
		return -errno;
	while ((e = readdir(dir)))
		if (strncmp(e->d_name, PART_PREFIX, strlen(PART_PREFIX)) == 0)
			jm->part = strtoull(e->d_name + strlen(PART_PREFIX), NULL, 16);
	closedir(dir);
	return 0;
}

int job_manifest_create(const struct job_manifest_options *opt, struct job_manifest **ret, struct cistern_error *err)
{
	struct job_manifest *jm = calloc(1, sizeof(*jm));
	int r;

	if (!jm)
		return cistern_error_set(err, -ENOMEM, "out of memory");
	jm->opt = *opt;
	store_uuid_text(store_superblock(opt->store)->uuid, jm->uuid);
	pthread_mutex_init(&jm->lock, NULL);
	r = find_part(jm);
	if (r < 0) {
		job_manifest_destroy(jm);
		return cistern_error_set(err, r, "%s: %s", store_path(opt->store), strerror(-r));
	}
	*ret = jm;
	return 0;
}

void job_manifest_destroy(struct job_manifest *jm)
{
	if (!jm)
		return;
	manifest_close(jm->log);
	pthread_mutex_destroy(&jm->lock);
	free(jm);
}

/* ---- sending */

/* Whole lines among the first len bytes; a line that an agent did not live to end is of no use. */
static size_t whole_lines(const char *text, size_t len)
{
	const char *last = memrchr(text, '\n', len);

	return last ? (size_t)(last + 1 - text) : 0;
}

static int send_piece(
	struct manifest_piece *p, char *lines, int (*send)(const void *piece, size_t len, void *arg), void *arg)
{
	char head[MANIFEST_HEAD_BYTES];
	size_t n = manifest_piece_head(p, head);

	memcpy(lines - n, head, n);
	return send(lines - n, n + (size_t)p->bytes, arg);
}

static int send_all(
	struct job_manifest *jm, int fd, char *piece, int (*send)(const void *piece, size_t len, void *arg), void *arg)
{
	struct manifest_piece p = { .part = jm->part };
	char *lines = piece + MANIFEST_HEAD_BYTES;
	int r = 0;

	memcpy(p.store, jm->uuid, sizeof(p.store));
	while (r == 0) {
		ssize_t got = pread(fd, lines, PIECE_BYTES, (off_t)p.from);

		if (got < 0)
			return -errno;
		p.bytes = whole_lines(lines, (size_t)got);
		if (p.bytes == 0)
			break;
		r = send_piece(&p, lines, send, arg);
		p.from += p.bytes;
	}
	return r;
}

static void part_path(const struct job_manifest *jm, char out[STORE_PATH_MAX + 64])
{
	snprintf(out, STORE_PATH_MAX + 64, "%s/" PART_PREFIX "%016" PRIx64, store_path(jm->opt.store), jm->part);
}

static int send_part(struct job_manifest *jm, int (*send)(const void *piece, size_t len, void *arg), void *arg)
{
	char path[STORE_PATH_MAX + 64], *piece;
	int fd, r;

	part_path(jm, path);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0 && errno == ENOENT) /* somebody has removed it */
		jm->part = 0;
	if (fd < 0)
		return jm->part ? -errno : 0;
	piece = malloc(MANIFEST_HEAD_BYTES + PIECE_BYTES);
	r = piece ? send_all(jm, fd, piece, send, arg) : -ENOMEM;
	free(piece);
	close(fd);
	if (r == 0 && unlink(path))
		r = -errno;
	if (r == 0)
		jm->part = 0;
	return r;
}

/* What has been said since the last part was named becomes one, if that is anything. Its name is durable before it is told. */
static int name_part(struct job_manifest *jm)
{
	char log[STORE_PATH_MAX + 32], path[STORE_PATH_MAX + 64];
	struct stat st;
	int r;

	snprintf(log, sizeof(log), "%s/" MANIFEST_PART_LOG, store_path(jm->opt.store));
	if (stat(log, &st))
		return errno == ENOENT ? 0 : -errno;
	if (st.st_size == 0)
		return 0;
	do {
		if (getrandom(&jm->part, sizeof(jm->part), 0) != (ssize_t)sizeof(jm->part))
			return -EIO;
	} while (jm->part == 0);
	part_path(jm, path);
	r = rename(log, path) ? -errno : 0;
	if (r < 0)
		jm->part = 0;
	return r < 0 ? r : fdio_sync_parent(path);
}

int job_manifest_send(struct job_manifest *jm, int (*send)(const void *piece, size_t len, void *arg), void *arg)
{
	int r = jm->part ? send_part(jm, send, arg) : 0;

	r = r ? r : name_part(jm);
	return r == 0 && jm->part ? send_part(jm, send, arg) : r;
}

/* ---- node 0 */

/* lock is held. After an error nobody knows what is in the stream; what is in the file is ended by who opens it. */
static int checked(struct job_manifest *jm, int r)
{
	if (r < 0) {
		manifest_close(jm->log);
		jm->log = NULL;
	}
	return r;
}

/* lock is held. */
static int open_log(struct job_manifest *jm, struct cistern_error *err)
{
	char path[STORE_PATH_MAX + 32];
	int r;

	if (jm->log)
		return 0;
	snprintf(path, sizeof(path), "%s/" MANIFEST_LOG, store_path(jm->opt.store));
	r = manifest_open(path, &jm->log, err);
	if (r == 0 && (r = manifest_find_pieces(jm->log)) < 0)
		cistern_error_set(err, r, "manifest %s: %s", path, strerror(-r));
	return checked(jm, r);
}

int job_manifest_append(struct job_manifest *jm, const void *piece, size_t len)
{
	int r;

	pthread_mutex_lock(&jm->lock);
	r = open_log(jm, NULL);
	if (r == 0)
		r = checked(jm, manifest_append_piece(jm->log, piece, len));
	pthread_mutex_unlock(&jm->lock);
	return r;
}

uint64_t job_manifest_mark(struct job_manifest *jm)
{
	uint64_t mark;

	pthread_mutex_lock(&jm->lock);
	mark = open_log(jm, NULL) == 0 ? manifest_mark(jm->log) : 0;
	pthread_mutex_unlock(&jm->lock);
	return mark;
}

struct names {
	const char **at; /* owned, and all that they point to in text */
	char *text;      /* owned */
};

static int name_nodes(struct peers *p, uint32_t num, struct names *ret)
{
	ret->at = calloc(num + 1, sizeof(*ret->at));
	ret->text = calloc(num + 1, NAME_BYTES);
	if (!ret->at || !ret->text)
		return -ENOMEM;
	for (uint32_t i = 0; i < num; i++)
		ret->at[i] = peers_name(p, i, ret->text + (size_t)i * NAME_BYTES, NAME_BYTES);
	return 0;
}

static int write_own(
	struct job_manifest *jm, const struct manifest_session *s, const char *path, struct cistern_error *err)
{
	int r;

	pthread_mutex_lock(&jm->lock);
	r = open_log(jm, err);
	r = checked(jm, r ? r : manifest_write(jm->log, s, path, err));
	pthread_mutex_unlock(&jm->lock);
	return r;
}

/* The copy is on a file system that may hang. Nobody who brings lines waits for it, for he may be the one who hears of all that other nodes want. */
static int write_both(struct job_manifest *jm, const struct manifest_session *s, struct cistern_error *err)
{
	const char *copy = config_string(jm->opt.cfg, CONFIG_MANIFEST);
	char path[STORE_PATH_MAX + 32];
	int r;

	snprintf(path, sizeof(path), "%s/" MANIFEST_FILE, store_path(jm->opt.store));
	r = write_own(jm, s, path, err);
	return r == 0 && copy && copy[0] ? manifest_copy(path, copy, err) : r;
}

int job_manifest_write(struct job_manifest *jm, const struct manifest_session *session, struct cistern_error *err)
{
	const struct superblock *sb = store_superblock(jm->opt.store);
	struct manifest_session s = *session;
	struct names names = { 0 };
	int r;

	s.store_uuid = jm->uuid;
	s.job = sb->job;
	s.backing = s.destination = sb->backing;
	s.node = sb->node_index;
	s.num_nodes = peers_count(jm->opt.peers);
	r = name_nodes(jm->opt.peers, s.num_nodes, &names);
	s.nodes = names.at;
	r = r < 0 ? cistern_error_set(err, r, "out of memory") : write_both(jm, &s, err);
	free(names.at);
	free(names.text);
	return r;
}
