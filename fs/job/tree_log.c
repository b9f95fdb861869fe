/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * The last changes of the directory tree, as the records in which they came: node 0 has them for nodes that were away, and all others for a
 * node 0 that has lost the end of its journal with the power (sequence.c). They are in memory, those from before this daemon in its journal, as
 * far back as that goes.
 */
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>

#include "fs/job/private.h"

#define LOG_CHANGES 1024u
#define LOG_BYTES   (1u << 20) /* of records in one message, and one more */

struct logged_change {
	uint64_t stamp; /* 0: none */
	uint64_t time_ns;
	struct buf bytes;
};

struct tree_log {
	pthread_mutex_t lock;
	struct logged_change at[LOG_CHANGES]; /* by stamp */
};

static struct logged_change *at_stamp(struct tree_log *l, uint64_t stamp)
{
	return &l->at[stamp % LOG_CHANGES];
}

void tree_log_add(struct job *j, const struct record *rec)
{
	struct tree_log *l = j->tree_log;

	pthread_mutex_lock(&l->lock);
	struct logged_change *c = at_stamp(l, rec->stamp);
	if (c->stamp <= rec->stamp) { /* the same again may be another one: the store had no room for the first */
		c->stamp = rec->stamp;
		c->time_ns = (uint64_t)rec->time_ns;
		buf_reset(&c->bytes);
		if (record_encode(rec, &c->bytes) < 0 || !buf_ok(&c->bytes))
			c->stamp = 0;
	}
	pthread_mutex_unlock(&l->lock);
}

bool tree_log_has(struct job *j, uint64_t stamp)
{
	pthread_mutex_lock(&j->tree_log->lock);
	bool has = at_stamp(j->tree_log, stamp)->stamp == stamp;
	pthread_mutex_unlock(&j->tree_log->lock);
	return has;
}

uint64_t tree_log_time(struct job *j, uint64_t stamp)
{
	uint64_t time_ns = state_tree_time(j->state, stamp);

	pthread_mutex_lock(&j->tree_log->lock);
	const struct logged_change *c = at_stamp(j->tree_log, stamp);
	if (!time_ns && stamp && c->stamp == stamp)
		time_ns = c->time_ns;
	pthread_mutex_unlock(&j->tree_log->lock);
	return time_ns;
}

void tree_log_put(struct job *j, struct wire_msg *m, uint64_t from, uint64_t upto)
{
	size_t bytes = 0;

	pthread_mutex_lock(&j->tree_log->lock);
	for (uint64_t stamp = from; stamp <= upto && bytes < LOG_BYTES; stamp++) {
		const struct logged_change *c = at_stamp(j->tree_log, stamp);

		if (c->stamp != stamp)
			break;
		message_put_bytes(m, MESSAGE_RECORD_BYTES, c->bytes.data, c->bytes.len);
		bytes += c->bytes.len;
	}
	pthread_mutex_unlock(&j->tree_log->lock);
}

/* ---- from our own journal */

static int pass_over(const struct record *rec, void *arg)
{
	(void)rec, (void)arg;
	return 0;
}

static void read_journal(struct job *j, int (*each)(const struct record *rec, void *arg), void *arg)
{
	struct io *io = store_io(j->opt.store);
	struct journal_end end;
	uint64_t seq;
	int rc = journal_checkpoint_load(io, pass_over, NULL, &seq, NULL);

	if (rc == -ENOENT)
		seq = 0;
	if (rc == 0 || rc == -ENOENT)
		rc = journal_replay(io, seq, each, arg, &end, NULL);
	if (rc < 0)
		job_log(j, true, "tree_records_unread", "status=%d", rc);
}

static int add_record(const struct record *rec, void *arg)
{
	if (rec->flags & RECORD_F_TREE)
		tree_log_add(arg, rec);
	return 0;
}

void tree_log_load(struct job *j)
{
	if (state_tree_stamp(j->state))
		read_journal(j, add_record, j);
}

struct timing {
	uint64_t stamp, time_ns;
};

static int take_time(const struct record *rec, void *arg)
{
	struct timing *t = arg;

	if (rec->flags & RECORD_F_TREE && rec->stamp == t->stamp)
		t->time_ns = (uint64_t)rec->time_ns;
	return 0;
}

uint64_t tree_log_time_old(struct job *j, uint64_t stamp)
{
	struct timing t = { .stamp = stamp };

	if (stamp)
		read_journal(j, take_time, &t);
	return t.time_ns;
}

struct putting {
	struct wire_msg *m;
	uint64_t next;
	size_t bytes;
};

static int put_record(const struct record *rec, void *arg)
{
	struct buf bytes BUF_CLEANUP = { 0 };
	struct putting *p = arg;

	if (!(rec->flags & RECORD_F_TREE) || rec->stamp != p->next || p->bytes >= LOG_BYTES)
		return 0;
	if (record_encode(rec, &bytes) < 0 || !buf_ok(&bytes))
		return -ENOMEM;
	message_put_bytes(p->m, MESSAGE_RECORD_BYTES, bytes.data, bytes.len);
	p->bytes += bytes.len;
	p->next++;
	return 0;
}

void tree_log_put_old(struct job *j, struct wire_msg *m, uint64_t from)
{
	read_journal(j, put_record, &(struct putting){ .m = m, .next = from });
}

/* ---- life */

static int tree_log_create(struct job *j, struct cistern_error *err)
{
	j->tree_log = calloc(1, sizeof(*j->tree_log));
	if (!j->tree_log)
		return cistern_error_set(err, -ENOMEM, "out of memory");
	pthread_mutex_init(&j->tree_log->lock, NULL);
	return 0;
}

static void tree_log_destroy(struct job *j)
{
	if (!j->tree_log)
		return;
	for (size_t i = 0; i < LOG_CHANGES; i++)
		buf_free(&j->tree_log->at[i].bytes);
	pthread_mutex_destroy(&j->tree_log->lock);
	free(j->tree_log);
	j->tree_log = NULL;
}

const struct part tree_log_part = {
	.create = tree_log_create,
	.destroy = tree_log_destroy,
};
