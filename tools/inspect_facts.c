/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "tools/inspect.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <sys/stat.h>

#include "format/store/store.h"
#include "tools/lib/locate.h"
#include "tools/lib/ranges.h"
#include "tools/lib/say.h"

const char *inspect_state(const struct inode *in)
{
	if (in->flags & INODE_ORPHAN)
		return "orphan";
	if (in->flags & INODE_FOREIGN)
		return "layer";
	if (inode_is_special(in->mode))
		return "kept";
	if (in->flags & INODE_NEW)
		return "new";
	if (in->flags & INODE_DIRTY_DATA)
		return "modified";
	return in->flags & (INODE_DIRTY_META | INODE_DIRTY_XATTR) ? "attributes" : "clean";
}

const char *inspect_type(const struct inode *in)
{
	switch (in->mode & S_IFMT) {
	case S_IFDIR: return "directory";
	case S_IFLNK: return "symlink";
	case S_IFIFO: return "fifo";
	case S_IFSOCK: return "socket";
	case S_IFCHR:
	case S_IFBLK: return "device";
	default: return "file";
	}
}

static int count_range(const struct range *r, void *arg)
{
	struct file_facts *f = arg;

	if (r->kind != RANGE_LOG)
		return 0;
	f->log_bytes += r->len;
	f->log_extents++;
	if (!f->first_seq || r->ext->seq < f->first_seq)
		f->first_seq = r->ext->seq;
	if (r->ext->seq > f->last_seq)
		f->last_seq = r->ext->seq;
	return 0;
}

/* What each of the job's nodes has of it in its store. */
static int gather_all(const struct inspect *in, uint64_t ino, struct file_facts *ret)
{
	uint64_t first_seq = 0, last_seq = 0;
	int r = 0;

	for (size_t i = 0; r == 0 && i < in->all.num; i++) {
		struct store *s = in->all.list[i].store;
		struct inode node;

		r = state_inode(store_state(s), ino, &node);
		if (r == 0)
			r = ranges_each(store_state(s), &node, node.size, count_range, ret);
		r = r == -ENOENT ? 0 : r;
		if (s == in->store) {
			first_seq = ret->first_seq;
			last_seq = ret->last_seq;
		}
		ret->first_seq = first_seq; /* numbers of another store's mean nothing beside them */
		ret->last_seq = last_seq;
	}
	return r;
}

bool inspect_is_of_many(const struct inode *node)
{
	return S_ISREG(node->mode) && node->flags & (INODE_SHARED | INODE_FOREIGN);
}

int inspect_gather(struct inspect *in, const struct inode *node, struct file_facts *ret)
{
	int r;

	*ret = (struct file_facts){ .history = history_of(in->history, node->ino) };
	if (in->all.num > 1 && in->of_all.ino == node->ino)
		ret->history = &in->of_all;
	r = locate_size(in->store, node, &ret->size, &ret->private_bytes);
	if (r < 0 || !S_ISREG(node->mode) || node->ino == 0)
		return r;
	if (in->all.num > 1 && inspect_is_of_many(node))
		return gather_all(in, node->ino, ret);
	return ranges_each(store_state(in->store), node, ret->size, count_range, ret);
}

uint64_t inspect_overwritten(const struct file_facts *f)
{
	return f->history && f->history->since_drain_bytes > f->log_bytes ? f->history->since_drain_bytes - f->log_bytes
									  : 0;
}

/* Names may hold any byte; lines for people must stay lines. */
void inspect_print_path(const char *path)
{
	for (; *path; path++)
		putchar((unsigned char)*path < 0x20 || *path == 0x7f ? '?' : *path);
}

void inspect_read_history(
	struct inspect *in, struct store *s, int (*each)(const struct record *rec, void *arg), void *arg)
{
	struct cistern_error err = { 0 };

	if (history_read(store_io(s), each, arg, &in->history, &in->complete, &err) < 0)
		say("note: how often files were overwritten is not known: %s", err.text);
}

void inspect_file_json(struct json *j, const char *path, const struct inode *node, const struct file_facts *f)
{
	json_object(j);
	json_kstr(j, "path", path);
	json_ku64(j, "ino", node->ino);
	json_kstr(j, "type", inspect_type(node));
	json_kstr(j, "state", inspect_state(node));
	json_kbool(j, "private", (node->flags & INODE_PRIVATE) != 0);
	json_ku64(j, "size", f->size);
	json_ku64(j, "links", node->nlink);
	json_ku64(j, "log_bytes", f->log_bytes);
	json_ku64(j, "log_extents", f->log_extents);
	json_ku64(j, "private_bytes", f->private_bytes);
	json_ku64(j, "first_seq", f->first_seq);
	json_ku64(j, "last_seq", f->last_seq);
	if (f->history) {
		json_ku64(j, "writes", f->history->writes);
		json_ku64(j, "written_bytes", f->history->written_bytes);
		json_ku64(j, "overwritten_bytes", inspect_overwritten(f));
		json_ku64(j, "first_write_seq", f->history->first_seq);
		json_ku64(j, "last_write_seq", f->history->last_seq);
	}
}

void inspect_store_json(struct inspect *in)
{
	const struct superblock *sb = store_superblock(in->first);
	char uuid[37];

	store_uuid_text(sb->uuid, uuid);
	json_kstr(&in->j, "store", store_path(in->first));
	json_kstr(&in->j, "uuid", uuid);
	json_ku64(&in->j, "format_version", sb->version);
	json_kstr(&in->j, "backing", sb->backing);
	json_kstr(&in->j, "mountpoint", sb->mountpoint);
	json_kstr(&in->j, "job", sb->job);
	json_ku64(&in->j, "node_index", sb->node_index);
	json_ku64(&in->j, "num_nodes", sb->num_nodes);
	if (sb->num_nodes > 1) {
		store_uuid_text(sb->job_uuid, uuid);
		json_kstr(&in->j, "job_uuid", uuid);
	}
}
