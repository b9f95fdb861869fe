/* SPDX-License-Identifier: GPL-3.0-or-later */
/* What a drain of the job needs to know of it, and has to tell it (docs/design/many-nodes.md, 6). */
#include <errno.h>
#include <stdlib.h>

#include "fs/job/share.h"

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
		shared_apply(s, v);
		(void)registry_tell(j, s); /* who cannot be reached asks anew when it is back */
	}
	free(v);
	shared_put(j, s);
}

int job_take_dir_time(struct job *j, uint64_t ino, int64_t mtime_ns, uint64_t tree_stamp)
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
