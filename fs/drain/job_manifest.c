/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Lines travel at least once: a node forgets them when node 0 has them, and when it never hears so it sends them again, which
 * does no harm, since the last line of a path counts. They arrive part by part, because a part ends on all nodes before the next
 * one begins; so what is said of a path by several nodes stands in the order in which it came to be.
 */
#include "fs/drain/job_manifest.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PIECE_BYTES (1u << 20) /* longer than any line */
#define NAME_BYTES  128

struct job_manifest {
	struct job_manifest_options opt;
	pthread_mutex_t lock;
	struct manifest *log; /* owned; opened when it is needed: on node 0. Under lock */
};

int job_manifest_create(const struct job_manifest_options *opt, struct job_manifest **ret, struct cistern_error *err)
{
	struct job_manifest *jm = calloc(1, sizeof(*jm));

	if (!jm)
		return cistern_error_set(err, -ENOMEM, "out of memory");
	jm->opt = *opt;
	pthread_mutex_init(&jm->lock, NULL);
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

static int send_all(int fd, char *piece, int (*send)(const void *lines, size_t len, void *arg), void *arg)
{
	off_t at = 0;
	int r = 0;

	while (r == 0) {
		ssize_t got = pread(fd, piece, PIECE_BYTES, at);
		size_t len = got > 0 ? whole_lines(piece, (size_t)got) : 0;

		if (got < 0)
			return -errno;
		if (len == 0)
			break;
		r = send(piece, len, arg);
		at += (off_t)len;
	}
	return r;
}

int job_manifest_send(struct job_manifest *jm, int (*send)(const void *lines, size_t len, void *arg), void *arg)
{
	char path[STORE_PATH_MAX + 32], *piece;
	int fd, r;

	snprintf(path, sizeof(path), "%s/" MANIFEST_PART_LOG, store_path(jm->opt.store));
	fd = open(path, O_RDWR | O_CLOEXEC);
	if (fd < 0)
		return errno == ENOENT ? 0 : -errno;
	piece = malloc(PIECE_BYTES);
	r = piece ? send_all(fd, piece, send, arg) : -ENOMEM;
	if (r == 0 && ftruncate(fd, 0))
		r = -errno;
	free(piece);
	close(fd);
	return r;
}

/* ---- node 0 */

/* lock is held. */
static int open_log(struct job_manifest *jm, struct cistern_error *err)
{
	char path[STORE_PATH_MAX + 32];

	snprintf(path, sizeof(path), "%s/" MANIFEST_LOG, store_path(jm->opt.store));
	return jm->log ? 0 : manifest_open(path, &jm->log, err);
}

/* lock is held. After an error nobody knows what is in the stream; what is in the file is ended by who opens it. */
static int checked(struct job_manifest *jm, int r)
{
	if (r < 0) {
		manifest_close(jm->log);
		jm->log = NULL;
	}
	return r;
}

int job_manifest_append(struct job_manifest *jm, const void *lines, size_t len)
{
	int r;

	pthread_mutex_lock(&jm->lock);
	r = open_log(jm, NULL);
	if (r == 0)
		r = checked(jm, manifest_append(jm->log, lines, len));
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

/* lock is held. */
static int write_both(struct job_manifest *jm, const struct manifest_session *s, struct cistern_error *err)
{
	const char *copy = config_string(jm->opt.cfg, CONFIG_MANIFEST);
	char path[STORE_PATH_MAX + 32];
	int r = open_log(jm, err);

	snprintf(path, sizeof(path), "%s/" MANIFEST_FILE, store_path(jm->opt.store));
	if (r == 0)
		r = manifest_write(jm->log, s, path, err);
	if (r == 0 && copy && copy[0])
		r = manifest_write(jm->log, s, copy, err);
	return r;
}

int job_manifest_write(struct job_manifest *jm, const struct manifest_session *session, struct cistern_error *err)
{
	const struct superblock *sb = store_superblock(jm->opt.store);
	struct manifest_session s = *session;
	struct names names = { 0 };
	char uuid[37];
	int r;

	store_uuid_text(sb->uuid, uuid);
	s.store_uuid = uuid;
	s.job = sb->job;
	s.backing = s.destination = sb->backing;
	s.node = sb->node_index;
	s.num_nodes = peers_count(jm->opt.peers);
	r = name_nodes(jm->opt.peers, s.num_nodes, &names);
	s.nodes = names.at;
	if (r < 0) {
		cistern_error_set(err, r, "out of memory");
	} else {
		pthread_mutex_lock(&jm->lock);
		r = checked(jm, write_both(jm, &s, err));
		pthread_mutex_unlock(&jm->lock);
	}
	free(names.at);
	free(names.text);
	return r;
}
