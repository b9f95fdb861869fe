/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "tools/inspect.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <sys/stat.h>

#include "format/base/units.h"
#include "format/store/store.h"
#include "tools/lib/locate.h"
#include "tools/lib/walk.h"

static void file_line(const char *path, const struct inode *node, const struct file_facts *f)
{
	char size[UNITS_TEXT], in_log[UNITS_TEXT], over[UNITS_TEXT] = "-", writes[24] = "-", seqs[48] = "-", state[32];

	if (f->history) {
		units_format_bytes(inspect_overwritten(f), over);
		snprintf(writes, sizeof(writes), "%" PRIu64, f->history->writes);
	}
	if (f->last_seq)
		snprintf(seqs, sizeof(seqs), "%" PRIu64 "..%" PRIu64, f->first_seq, f->last_seq);
	snprintf(state, sizeof(state), "%s%s", inspect_state(node), node->flags & INODE_PRIVATE ? ",private" : "");
	printf("%12s %12s %8" PRIu64 " %8s %12s %15s  %-16s ",
		S_ISREG(node->mode) ? units_format_bytes(f->size, size) : "-",
		units_format_bytes(node->flags & INODE_PRIVATE ? f->private_bytes : f->log_bytes, in_log),
		f->log_extents, writes, over, seqs, state);
	inspect_print_path(path);
	puts(S_ISDIR(node->mode) ? "/" : "");
}

static int show_file(const char *path, const struct inode *node, void *arg)
{
	struct inspect *in = arg;
	struct inode now = *node;
	struct file_facts f;
	int r;

	if (S_ISDIR(node->mode) && !(node->flags & ~(uint32_t)INODE_ORPHAN))
		return 0; /* only there because something below it is */
	locate_now(in->store, &now);
	r = inspect_gather(in, &now, &f);
	if (r < 0)
		return r;
	in->num_listed++;
	in->log_bytes += f.log_bytes;
	in->private_bytes += f.private_bytes;
	in->overwritten_bytes += inspect_overwritten(&f);
	if (in->want_json) {
		inspect_file_json(&in->j, path, node, &f);
		json_end_object(&in->j);
	} else {
		file_line(path, node, &f);
	}
	return 0;
}

/* What no walk over names finds: deleted while in use, or homed on another node. */
static int show_unnamed(const struct inode *node, void *arg)
{
	char path[RECORD_NAME_MAX + 64];

	if (node->flags & INODE_FOREIGN)
		snprintf(path, sizeof(path), "(inode %" PRIu64 ", part of another node's %s)", node->ino,
			node->origin_name);
	else if (node->flags & INODE_ORPHAN && !S_ISDIR(node->mode))
		snprintf(path, sizeof(path), "(inode %" PRIu64 ", deleted while open)", node->ino);
	else
		return 0;
	return show_file(path, node, arg);
}

static void totals_json(struct inspect *in, const struct state_totals *t)
{
	struct json *j = &in->j;

	json_key(j, "totals");
	json_object(j);
	json_ku64(j, "listed", in->num_listed);
	json_ku64(j, "dirty_files", t->dirty_files);
	json_ku64(j, "log_bytes", in->log_bytes);
	json_ku64(j, "private_bytes", in->private_bytes);
	json_ku64(j, "private_files", t->private_files);
	json_ku64(j, "extents", t->extents);
	json_ku64(j, "written_bytes", t->written_bytes);
	json_ku64(j, "saved_bytes", t->saved_bytes);
	json_ku64(j, "drained_bytes", t->drained_bytes);
	json_ku64(j, "drained_files", t->drained_files);
	json_ku64(j, "through_bytes", t->through_bytes);
	json_ku64(j, "seq", t->seq);
	json_kbool(j, "history_complete", in->history && in->complete);
	json_end_object(j);
}

static void totals_text(const struct inspect *in, const struct state_totals *t)
{
	char log[UNITS_TEXT], private[UNITS_TEXT], written[UNITS_TEXT], saved[UNITS_TEXT], over[UNITS_TEXT],
		drained[UNITS_TEXT], extents[UNITS_COUNT];

	printf("%" PRIu64 " listed, %" PRIu64 " dirty; %s in the log in %s, %s in private segments\n", in->num_listed,
		t->dirty_files, units_format_bytes(in->log_bytes, log),
		units_format_count(t->extents, "extent", extents), units_format_bytes(in->private_bytes, private));
	printf("ever written %s, drained %s, saved %s; overwritten in the files above %s%s\n",
		units_format_bytes(t->written_bytes, written), units_format_bytes(t->drained_bytes, drained),
		units_format_bytes(t->saved_bytes, saved), units_format_bytes(in->overwritten_bytes, over),
		in->history && in->complete ? "" : " (as far back as the journal reaches)");
}

int inspect_list(struct inspect *in)
{
	struct state *st = store_state(in->store);
	struct state_totals totals;
	struct inode root;
	int r;

	state_totals(st, &totals);
	if (in->want_json) {
		inspect_store_json(in);
		json_key(&in->j, "files");
		json_array(&in->j);
	} else {
		printf("%s: backing directory %s\n", store_path(in->store), store_superblock(in->store)->backing);
		printf("%12s %12s %8s %8s %12s %15s  %-16s %s\n", "SIZE", "IN STORE", "EXTENTS", "WRITES",
			"OVERWRITTEN", "SEQ", "STATE", "PATH");
	}
	r = walk_find(st, ".", &root);
	if (r == 0)
		r = show_file(".", &root, in);
	if (r == 0 || r == -ENOENT) /* a store that was never mounted has no root yet */
		r = walk_names(st, show_file, in);
	if (r == 0)
		r = state_each_inode(st, show_unnamed, in);
	if (in->want_json) {
		json_end_array(&in->j);
		totals_json(in, &totals);
	} else if (r == 0) {
		totals_text(in, &totals);
	}
	return r;
}
