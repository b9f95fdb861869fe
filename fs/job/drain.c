/* SPDX-License-Identifier: GPL-3.0-or-later */
/* What a drain of the job needs to know of it, and has to tell it (docs/design/many-nodes.md, 6). */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "format/store/steps.h"
#include "fs/job/share.h"
#include "fs/job/upto.h"

int job_drain_stamp(struct job *j, uint64_t ino, uint64_t *ret_stamp)
{
	struct shared *s = shared_get(j, ino);
	int rc = !s ? -ENOMEM : power_is_settled(j) ? registry_settled_stamp(s, ret_stamp) : -EBUSY;

	shared_put(j, s);
	return rc;
}

void job_drained(struct job *j, uint64_t ino)
{
	struct shared *s = shared_find(j, ino);
	struct view *v = s ? malloc(sizeof(*v)) : NULL;

	if (v && registry_view(j, s, NOBODY, v) == 0) {
		shared_apply(s, v, 0);
		(void)registry_tell(j, s); /* who cannot be reached asks anew when it is back */
	}
	free(v);
	shared_put(j, s);
}

/* ---- what was carried goes */

#define LAYER_EXTENTS 64

/* Maps first: what a map still names must still be there. */
static int drop_map(struct job *j, const struct drained *d)
{
	struct record rec = { .type = RECORD_SHARE_DROP, .ino = d->ino, .stamp = d->stamp };
	struct share_extent any;
	uint64_t next;
	size_t num;

	if (d->time_usec) {
		rec.flags = RECORD_F_TIMED;
		rec.drop_usec = d->time_usec;
	}
	int rc = state_share_extents(j->state, d->ino, 0, UINT64_MAX, &any, 1, &num, &next);
	return rc < 0 || num == 0 || d->stamp == 0 ? rc : store_commit(j->opt.store, &rec);
}

/* The home's map has noted it when the file was published, and may have the places all the same. */
int job_know_drained(struct job *j, const struct drained *d)
{
	bool at_home = place_ino(d->ino, peers_count(j->peers)) == peers_self(j->peers);
	uint64_t stamp, usec;
	int rc = state_share_drained(j->state, d->ino, &stamp, &usec);

	return rc < 0 || (stamp >= d->stamp && !at_home) ? rc : drop_map(j, d);
}

static int has_upto(struct job *j, uint64_t ino, uint64_t upto)
{
	struct layer_extent ext[LAYER_EXTENTS];
	bool has = false;
	size_t num;
	int rc = 0;

	for (uint64_t off = 0; rc == 0 && !has && off != UINT64_MAX;) {
		rc = state_layer(j->state, ino, off, UINT64_MAX - off, ext, LAYER_EXTENTS, &num, &off);
		for (size_t i = 0; rc == 0 && i < num; i++)
			has |= ext[i].ext.seq <= upto;
	}
	return rc < 0 ? rc : has;
}

/* The home's own went with its own record. */
static int drop_layer(struct job *j, const struct drained *d, uint64_t upto)
{
	struct record rec = { .type = RECORD_DRAINED, .ino = d->ino, .upto = upto };
	struct inode in;
	int rc = state_inode(j->state, d->ino, &in);

	if (rc == 0 && in.flags & INODE_FOREIGN && d->time_usec)
		rc = upto_before(j->state, d->ino, d->time_usec, &rec.upto);
	if (rc < 0 || !(in.flags & INODE_FOREIGN))
		return rc == -ENOENT ? 0 : rc;
	rc = has_upto(j, d->ino, rec.upto);
	rec.gen = in.gen;
	return rc <= 0 ? rc : store_commit(j->opt.store, &rec);
}

int job_drop_drained(struct job *j, const struct drained *d)
{
	uint64_t upto = 0;
	int rc = drop_map(j, d);

	if (rc == 0)
		rc = upto_committed(j->state, d->ino, d->stamp, &upto);
	return rc < 0 ? rc : drop_layer(j, d, upto);
}

static bool lacks_drop(struct job *j, const struct drained *d)
{
	struct share_extent any;
	uint64_t next, stamp = 0, usec;
	size_t num = 0;

	(void)state_share_extents(j->state, d->ino, 0, UINT64_MAX, &any, 1, &num, &next);
	return num > 0 || state_share_drained(j->state, d->ino, &stamp, &usec) < 0 || stamp < d->stamp;
}

/*
 * Of what was written up to that time all was committed up to that stamp, and carried: also what a node that has lost power does not know to be
 * committed any more. What others may still tell of it is not to come back into an empty map, either.
 */
static int drop_forgotten(struct job *j, const struct drained *d)
{
	struct record rec = { .type = RECORD_SHARE_DROP, .ino = d->ino, .stamp = d->stamp };
	uint64_t upto = state_seq(j->state);

	rec.flags = RECORD_F_TIMED;
	rec.drop_usec = d->time_usec;
	int rc = lacks_drop(j, d) ? store_commit(j->opt.store, &rec) : 0;
	return rc < 0 ? rc : drop_layer(j, d, upto);
}

int drain_drop_again(struct job *j, const struct drained *d, bool forgotten)
{
	return forgotten && d->time_usec ? drop_forgotten(j, d) : job_drop_drained(j, d);
}

#define INTENTS_MAX (64 << 20)

/*
 * Is our agent about to give something that name, or has it done so and not told us yet? What it intends stands in a file until we have heard of it.
 * The name alone is looked for there, wherever it stands: who asks in vain asks again.
 */
static bool is_intended(struct job *j, const char *name)
{
	char path[STORE_PATH_MAX + sizeof(INTENT_FILE) + 1];
	struct stat st;
	bool is = true;

	snprintf(path, sizeof(path), "%s/" INTENT_FILE, store_path(j->opt.store));
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return errno != ENOENT;
	if (fstat(fd, &st) == 0 && st.st_size <= INTENTS_MAX) {
		char *text = malloc((size_t)st.st_size + 1);
		ssize_t n = text ? pread(fd, text, (size_t)st.st_size, 0) : -1;

		is = n < 0 || memmem(text, (size_t)n, name, strlen(name));
		free(text);
	}
	close(fd);
	return is;
}

/* What has lost its last name gets none any more. */
static int is_needed(struct job *j, uint64_t dir, const char *name, uint64_t backing_ino)
{
	struct inode in;
	uint64_t owner;
	int rc = state_backing_owner(j->state, dir, name, &owner);

	if (rc == 0 && state_inode(j->state, owner, &in) == -ENOENT)
		rc = state_remembered(j->state, owner, &in);
	else if (rc == 0)
		rc = state_inode(j->state, owner, &in);
	if (rc < 0 || in.backing_ino != backing_ino)
		return rc < 0 ? rc : -ENOENT;
	return in.nlink > 0 && !(in.flags & INODE_ORPHAN) ? -EEXIST : 0;
}

void drain_serve_needed(struct job *j, struct peers_request *rq)
{
	const struct wire_msg *m = peers_msg(rq);
	char name[RECORD_NAME_MAX + 1];
	bool good = message_get_str(m, MESSAGE_NAME, name, sizeof(name));
	/* In this order: what is intended no more is known to the state. */
	bool intended = good && is_intended(j, name);
	int rc = good ? is_needed(j, message_get(m, MESSAGE_DIR), name, message_get(m, MESSAGE_INO)) : -EBADMSG;

	peers_reply_status(rq, rc == -ENOENT && intended ? -EBUSY : rc);
}

/* Of what nodes say, that counts most which forbids most. */
static int weigh(const int *status, uint32_t num)
{
	bool known = false, unsure = false;

	for (uint32_t i = 0; i < num; i++) {
		if (status[i] == -EEXIST)
			return -EEXIST;
		known |= status[i] == 0;
		unsure |= status[i] != 0 && status[i] != -ENOENT;
	}
	return unsure ? -EBUSY : known ? 0 : -ENOENT;
}

int job_drain_occupied(struct job *j, const struct record *rec)
{
	uint32_t num = peers_count(j->peers);
	int *status = calloc(num, sizeof(*status)), rc;
	struct wire_msg m = { 0 };

	if (!status)
		return -ENOMEM;
	message_init(&m, MESSAGE_NAME_NEEDED);
	message_put(&m, MESSAGE_DIR, rec->parent);
	message_put_str(&m, MESSAGE_NAME, rec->name);
	message_put(&m, MESSAGE_INO, rec->backing_ino);
	(void)peers_call_all(j->peers, &m, status, NULL, NULL);
	rc = weigh(status, num);
	wire_msg_free(&m);
	free(status);
	return rc;
}

#define DIR_TIME_BYTES 24u

void job_put_dir_time(struct buf *out, uint64_t ino, int64_t mtime_ns, uint64_t tree_stamp)
{
	buf_u64(out, ino);
	buf_u64(out, (uint64_t)mtime_ns);
	buf_u64(out, tree_stamp);
}

/* 0 also when the directory has gone. */
static int take_dir_time(struct job *j, uint64_t ino, int64_t mtime_ns, uint64_t tree_stamp)
{
	struct record rec = { .type = RECORD_SETATTR,
		.ino = ino,
		.mask = RECORD_ATTR_MTIME | RECORD_ATTR_CTIME,
		.mtime_ns = mtime_ns,
		.ctime_ns = mtime_ns };
	struct inode in;

	if (times_is_void(j, ino, tree_stamp) || state_inode(j->state, ino, &in) < 0 || in.mtime_ns >= mtime_ns)
		return 0;
	rec.gen = in.gen;
	if (rec.ctime_ns < in.ctime_ns)
		rec.ctime_ns = in.ctime_ns;
	int rc = store_commit(j->opt.store, &rec);
	return rc == -ENOENT || rc == -ESTALE ? 0 : rc;
}

static void do_take_dir_times(struct job *j, struct peers_request *rq)
{
	const uint8_t *bytes = NULL;
	size_t len = 0;
	bool good = wire_get_bytes(peers_msg(rq), WIRE_PAYLOAD, 0, &bytes, &len) && len % DIR_TIME_BYTES == 0;
	struct cursor at = cursor_make(bytes, good ? len : 0);
	int rc = good ? 0 : -EBADMSG;

	while (rc == 0 && cursor_left(&at) > 0) {
		uint64_t ino = cursor_u64(&at), mtime_ns = cursor_u64(&at), stamp = cursor_u64(&at);

		rc = take_dir_time(j, ino, (int64_t)mtime_ns, stamp);
	}
	peers_reply_status(rq, rc);
}

void job_take_dir_times(struct job *j, struct peers_request *rq)
{
	workers_serve(j->workers, do_take_dir_times, rq);
}

int job_tree_record(struct job *j, const struct record *rec)
{
	struct wire_msg m = { 0 };
	struct buf bytes BUF_CLEANUP = { 0 };
	int rc = record_encode(rec, &bytes);

	tree_init(&m, TREE_DRAINED);
	message_put_bytes(&m, MESSAGE_RECORD_BYTES, bytes.data, bytes.len);
	if (rc == 0)
		rc = tree_change(j, &m);
	wire_msg_free(&m);
	return rc;
}
