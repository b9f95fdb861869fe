/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * cistern inspect: what is in a store, file by file, or one file range by range. A running daemon is asked for a
 * snapshot of its index, which lives as long as the connection; a store without one is read as it is. Nothing is
 * changed either way.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "format/base/json.h"
#include "format/base/units.h"
#include "format/store/store.h"
#include "tools/bblog.h"
#include "tools/cistern.h"
#include "tools/conflicts.h"
#include "tools/lib/bbset.h"
#include "tools/lib/history.h"
#include "tools/lib/locate.h"
#include "tools/lib/ranges.h"
#include "tools/lib/say.h"
#include "tools/lib/stores.h"
#include "tools/lib/survey.h"
#include "tools/lib/target.h"
#include "tools/lib/terminal.h"
#include "tools/lib/walk.h"
#include "tools/picture.h"
#include "tools/variables.h"

#define MAP_COLUMNS 60

struct inspect_options {
	bool json, conflicts, ranges, map, look;
	const char *svg;   /* where the picture goes; NULL: nowhere */
	const char **with; /* owned; further stores, num_with of them */
	size_t num_with;
};

struct inspect {
	const struct inspect_options *opt; /* borrowed */
	const char *mounted;               /* the file's path in its mount; NULL: not named by it. Borrowed */
	struct stores all;                 /* that were named */
	struct store *first;               /* of all */
	struct store *store;               /* of all: what is shown is in it */
	struct history *history;           /* owned; of store; NULL: not known */
	struct history_file of_all;        /* of one file: of all stores, when several have written it */
	bool complete;                     /* the history is */
	bool want_json;
	struct json j;
	uint64_t num_listed, log_bytes, private_bytes, overwritten_bytes;
};

struct file_facts {
	uint64_t size;
	uint64_t log_bytes, log_extents, private_bytes;
	uint64_t first_seq, last_seq;       /* of what is in the log now; 0: nothing is */
	const struct history_file *history; /* NULL: no writes known. Borrowed */
};

static const char *state_word(const struct inode *in)
{
	if (in->flags & INODE_ORPHAN)
		return "orphan";
	if (in->flags & INODE_FOREIGN)
		return "layer";
	if (in->flags & INODE_NEW)
		return "new";
	if (in->flags & INODE_DIRTY_DATA)
		return "modified";
	return in->flags & (INODE_DIRTY_META | INODE_DIRTY_XATTR) ? "attributes" : "clean";
}

static const char *type_word(const struct inode *in)
{
	return S_ISDIR(in->mode) ? "directory" : S_ISLNK(in->mode) ? "symlink" : "file";
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

static bool is_of_many(const struct inode *node)
{
	return S_ISREG(node->mode) && node->flags & (INODE_SHARED | INODE_FOREIGN);
}

static int gather(struct inspect *in, const struct inode *node, struct file_facts *ret)
{
	int r;

	*ret = (struct file_facts){ .history = history_of(in->history, node->ino) };
	if (in->all.num > 1 && in->of_all.ino == node->ino)
		ret->history = &in->of_all;
	r = locate_size(in->store, node, &ret->size, &ret->private_bytes);
	if (r < 0 || !S_ISREG(node->mode) || node->ino == 0)
		return r;
	if (in->all.num > 1 && is_of_many(node))
		return gather_all(in, node->ino, ret);
	return ranges_each(store_state(in->store), node, ret->size, count_range, ret);
}

/* Written since the last drain, and no longer there: written over, cut off or punched. */
static uint64_t overwritten(const struct file_facts *f)
{
	return f->history && f->history->since_drain_bytes > f->log_bytes ? f->history->since_drain_bytes - f->log_bytes
									  : 0;
}

/* Names may hold any byte; lines for people must stay lines. */
static void print_path(const char *path)
{
	for (; *path; path++)
		putchar((unsigned char)*path < 0x20 || *path == 0x7f ? '?' : *path);
}

/* ---- the list of files */

static void file_json(struct json *j, const char *path, const struct inode *node, const struct file_facts *f)
{
	json_object(j);
	json_kstr(j, "path", path);
	json_ku64(j, "ino", node->ino);
	json_kstr(j, "type", type_word(node));
	json_kstr(j, "state", state_word(node));
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
		json_ku64(j, "overwritten_bytes", overwritten(f));
		json_ku64(j, "first_write_seq", f->history->first_seq);
		json_ku64(j, "last_write_seq", f->history->last_seq);
	}
}

static void file_line(const char *path, const struct inode *node, const struct file_facts *f)
{
	char size[UNITS_TEXT], in_log[UNITS_TEXT], over[UNITS_TEXT] = "-", writes[24] = "-", seqs[48] = "-", state[32];

	if (f->history) {
		units_format_bytes(overwritten(f), over);
		snprintf(writes, sizeof(writes), "%" PRIu64, f->history->writes);
	}
	if (f->last_seq)
		snprintf(seqs, sizeof(seqs), "%" PRIu64 "..%" PRIu64, f->first_seq, f->last_seq);
	snprintf(state, sizeof(state), "%s%s", state_word(node), node->flags & INODE_PRIVATE ? ",private" : "");
	printf("%12s %12s %8" PRIu64 " %8s %12s %15s  %-16s ",
		S_ISREG(node->mode) ? units_format_bytes(f->size, size) : "-",
		units_format_bytes(node->flags & INODE_PRIVATE ? f->private_bytes : f->log_bytes, in_log),
		f->log_extents, writes, over, seqs, state);
	print_path(path);
	puts(S_ISDIR(node->mode) ? "/" : "");
}

static int show_file(const char *path, const struct inode *node, void *arg)
{
	struct inspect *in = arg;
	struct file_facts f;
	int r;

	if (S_ISDIR(node->mode) && !(node->flags & ~(uint32_t)INODE_ORPHAN))
		return 0; /* only there because something below it is */
	r = gather(in, node, &f);
	if (r < 0)
		return r;
	in->num_listed++;
	in->log_bytes += f.log_bytes;
	in->private_bytes += f.private_bytes;
	in->overwritten_bytes += overwritten(&f);
	if (in->want_json) {
		file_json(&in->j, path, node, &f);
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

static void store_json(struct inspect *in)
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
		drained[UNITS_TEXT];

	printf("%" PRIu64 " listed, %" PRIu64 " dirty; %s in the log in %" PRIu64 " extents, %s in private segments\n",
		in->num_listed, t->dirty_files, units_format_bytes(in->log_bytes, log), t->extents,
		units_format_bytes(in->private_bytes, private));
	printf("ever written %s, drained %s, saved %s; overwritten in the files above %s%s\n",
		units_format_bytes(t->written_bytes, written), units_format_bytes(t->drained_bytes, drained),
		units_format_bytes(t->saved_bytes, saved), units_format_bytes(in->overwritten_bytes, over),
		in->history && in->complete ? "" : " (as far back as the journal reaches)");
}

static int show_list(struct inspect *in)
{
	struct state *st = store_state(in->store);
	struct state_totals totals;
	struct inode root;
	int r;

	state_totals(st, &totals);
	if (in->want_json) {
		store_json(in);
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

/* ---- one file */

struct file_view {
	struct inspect *in;
	uint64_t size;
	uint32_t private_segment;
	char map[MAP_COLUMNS + 1];
};

/* What of a cell is in the store shows before what is in the backing file, that before what is nowhere. */
static void draw(struct file_view *v, const struct range *r)
{
	static const char letters[] = {
		[RANGE_LOG] = '#', [RANGE_PRIVATE] = '#', [RANGE_BACKING] = '.', [RANGE_HOLE] = ' '
	};
	unsigned __int128 scale = MAP_COLUMNS;
	size_t first = (size_t)(scale * r->off / v->size);
	size_t last = (size_t)((scale * (r->off + r->len) + v->size - 1) / v->size) - 1;

	for (size_t i = first; i <= last && i < MAP_COLUMNS; i++)
		if (letters[r->kind] == '#' || (letters[r->kind] == '.' && v->map[i] == ' '))
			v->map[i] = letters[r->kind];
}

static int draw_range(const struct range *r, void *arg)
{
	draw(arg, r);
	return 0;
}

static int range_json(const struct range *r, void *arg)
{
	struct file_view *v = arg;
	struct json *j = &v->in->j;

	draw(v, r);
	json_object(j);
	json_ku64(j, "off", r->off);
	json_ku64(j, "len", r->len);
	json_kstr(j, "where", range_kind_name(r->kind));
	if (r->kind == RANGE_LOG) {
		json_ku64(j, "segment", r->ext->segment);
		json_ku64(j, "segment_off", r->ext->segment_off);
	}
	if (r->kind == RANGE_PRIVATE)
		json_ku64(j, "segment", v->private_segment);
	if (r->ext)
		json_ku64(j, "seq", r->ext->seq);
	if (r->kind == RANGE_LOG && r->ext->whole)
		json_ku64(j, "crc32c", r->ext->crc);
	json_end_object(j);
	return 0;
}

static int range_line(const struct range *r, void *arg)
{
	struct file_view *v = arg;
	char where[48], seq[24] = "-", crc[16] = "-";

	draw(v, r);
	snprintf(where, sizeof(where), "%s", range_kind_name(r->kind));
	if (r->kind == RANGE_LOG)
		snprintf(where, sizeof(where), "%" PRIu32 "@%" PRIu64, r->ext->segment, r->ext->segment_off);
	if (r->kind == RANGE_PRIVATE)
		snprintf(where, sizeof(where), "private %" PRIu32, v->private_segment);
	if (r->ext)
		snprintf(seq, sizeof(seq), "%" PRIu64, r->ext->seq);
	if (r->kind == RANGE_LOG && r->ext->whole)
		snprintf(crc, sizeof(crc), "%08" PRIx32, r->ext->crc);
	printf("%16" PRIu64 " %12" PRIu64 "  %-22s %10s  %s\n", r->off, r->len, where, seq, crc);
	return 0;
}

static int show_ranges(struct file_view *v, const struct inode *node, int (*each)(const struct range *r, void *arg))
{
	struct range all = { .kind = RANGE_BACKING, .len = v->size };

	if (!S_ISREG(node->mode) || v->size == 0)
		return 0;
	return node->ino == 0 ? each(&all, v) : ranges_each(store_state(v->in->store), node, v->size, each, v);
}

/* One regular file: what it is, and (raw: always) its ranges. */
static int show_survey_json(struct file_view *v, const struct inode *node, const struct survey *s)
{
	struct json *j = &v->in->j;
	bool want_ranges = v->in->opt->ranges || !s->mapped;
	int r;

	variables_json(s, v->in->complete, j);
	if (!want_ranges)
		return show_ranges(v, node, draw_range);
	json_key(j, "ranges");
	json_array(j);
	r = show_ranges(v, node, range_json);
	json_end_array(j);
	return r;
}

static int show_one_json(struct file_view *v, const char *path, const struct inode *node, const struct file_facts *f,
	const struct survey *s)
{
	struct json *j = &v->in->j;
	int r = 0;

	store_json(v->in);
	json_key(j, "file");
	file_json(j, path, node, f);
	if (s)
		r = show_survey_json(v, node, s);
	json_kstr(j, "map", v->map);
	json_end_object(j);
	return r;
}

static int show_ranges_text(struct file_view *v, const struct inode *node)
{
	if (v->size > 0)
		printf("%16s %12s  %-22s %10s  %s\n", "OFFSET", "LENGTH", "WHERE", "SEQ", "CRC32C");
	return show_ranges(v, node, range_line);
}

static int show_one_text(struct file_view *v, const char *path, const struct inode *node, const struct file_facts *f,
	const struct survey *s)
{
	char size[UNITS_TEXT];
	int r;

	print_path(path);
	printf(": %s, inode %" PRIu64 ", %s, %s (%" PRIu64 " bytes)\n", type_word(node), node->ino, state_word(node),
		units_format_bytes(f->size, size), f->size);
	if (f->history)
		printf("%" PRIu64 " writes of %" PRIu64 " bytes, %" PRIu64
		       " of them overwritten since the last drain\n",
			f->history->writes, f->history->written_bytes, overwritten(f));
	if (!s)
		return 0;
	r = show_ranges(v, node, draw_range);
	if (r == 0 && f->size > 0)
		printf("|%s|  # in the store, . in the backing file\n", v->map);
	if (r == 0)
		variables_print(s, v->in->history && v->in->complete);
	if (r == 0 && v->in->opt->map && s->mapped)
		r = variables_map(s, terminal_columns(STDOUT_FILENO), isatty(STDOUT_FILENO) && !getenv("NO_COLOR"));
	return r == 0 && (v->in->opt->ranges || !s->mapped) ? show_ranges_text(v, node) : r;
}

static void read_history(
	struct inspect *in, struct store *s, int (*each)(const struct record *rec, void *arg), void *arg)
{
	struct cistern_error err = { 0 };

	if (history_read(store_io(s), each, arg, &in->history, &in->complete, &err) < 0)
		say("note: how often files were overwritten is not known: %s", err.text);
}

static void add_history(struct inspect *in, uint64_t ino)
{
	const struct history_file *f = history_of(in->history, ino);

	if (!f)
		return;
	in->of_all.writes += f->writes;
	in->of_all.written_bytes += f->written_bytes;
	in->of_all.since_drain_bytes += f->since_drain_bytes;
	in->of_all.ino = ino;
}

/* Of one file, as all stores that were given have it. */
static void read_histories(struct inspect *in, const struct inode *node, struct survey *s)
{
	bool complete = true;

	for (size_t i = 0; i < in->all.num; i++) {
		struct store *store = in->all.list[i].store;

		if (store == in->store || !(is_of_many(node) || survey_reaches_elsewhere(s)))
			continue; /* comes last, and stays */
		survey_begin(s, store);
		read_history(in, store, survey_note, s);
		add_history(in, node->ino);
		complete = complete && in->history && in->complete;
		history_destroy(in->history);
		in->history = NULL;
		in->complete = false;
	}
	survey_begin(s, in->store);
	read_history(in, in->store, survey_note, s);
	add_history(in, node->ino);
	in->complete = in->complete && complete;
	survey_finish(s);
}

static int show_found(struct inspect *in, const char *path, const struct inode *node, struct survey *s)
{
	struct file_facts facts;
	struct file_view v = { .in = in, .private_segment = node->private_segment };
	int r = gather(in, node, &facts);

	if (r < 0)
		return r;
	v.size = facts.size;
	memset(v.map, ' ', MAP_COLUMNS);
	return in->want_json ? show_one_json(&v, path, node, &facts, s) : show_one_text(&v, path, node, &facts, s);
}

static int survey_file(
	struct inspect *in, const char *path, const struct inode *node, struct survey *ret, struct cistern_error *err)
{
	struct survey_options opt = { .path = stores_relative(in->first, path),
		.mounted = in->mounted,
		.look = in->opt->look,
		.writes = in->opt->svg != NULL };
	struct file_facts facts;
	int r = gather(in, node, &facts);

	return r < 0 ? cistern_error_set(err, r, "%s", strerror(-r))
		     : survey_open(&in->all, in->store, node, facts.size, &opt, ret, err);
}

/* What was drained in blob layout is not there by its own name. */
static bool has_subfiles(const char *base)
{
	char first[2 * PATH_MAX + 8];
	struct stat sb;

	snprintf(first, sizeof(first), "%s.0000", base);
	return stat(first, &sb) == 0 && S_ISREG(sb.st_mode);
}

static int say_unknown(const struct inspect *in, const char *path, struct cistern_error *err)
{
	const struct superblock *sb = store_superblock(in->first);
	char base[2 * PATH_MAX];

	snprintf(base, sizeof(base), "%s/%s", sb->backing, stores_relative(in->first, path));
	if (has_subfiles(base))
		return cistern_error_set(err, -ENOENT,
			"%s: there are only its subfiles, %.1000s.0000 and on: 'cistern convert' makes a file of them, with --as-written "
			"in a mount, where a program can go on with it",
			path, base);
	if (in->all.num < in->all.num_nodes)
		return cistern_error_set(err, -ENOENT,
			"%s: no store that is given has a file of this name; %zu of %" PRIu32
			" stores are not given, and a new file's name is in the store of the node that made it",
			path, in->all.num_nodes - in->all.num, in->all.num_nodes);
	return cistern_error_set(err, -ENOENT,
		"%s: the store knows nothing of it (a file that was never changed is only in %s)", path, sb->backing);
}

static int show_one(struct inspect *in, const char *path, struct cistern_error *err)
{
	struct inode node;
	struct survey s;
	bool regular;
	int r = locate_file(&in->all, in->first, path, in->mounted, &in->store, &node);

	if (r == -ENOENT)
		return say_unknown(in, path, err);
	if (r < 0)
		return cistern_error_set(err, r, "%s: %s", path, strerror(-r));
	regular = S_ISREG(node.mode);
	if (regular && (r = survey_file(in, path, &node, &s, err)) < 0) {
		cistern_error_prefix(err, "%s", path);
		return r;
	}
	if (regular)
		read_histories(in, &node, &s);
	else
		read_history(in, in->store, NULL, NULL);
	r = show_found(in, path, &node, regular ? &s : NULL);
	if (r < 0)
		cistern_error_set(err, r, "%s: %s", path, strerror(-r));
	if (r == 0 && regular && in->opt->svg)
		r = picture_write(&s, path, in->opt->svg, err);
	if (regular)
		survey_close(&s);
	return r;
}

/* ---- the command */

static int show(struct inspect *in, const char *path)
{
	struct cistern_error err = { 0 };
	int r;

	if (!path)
		read_history(in, in->store, NULL, NULL);
	if (in->want_json) {
		json_init(&in->j, stdout, true);
		json_object(&in->j);
	}
	r = path ? show_one(in, path, &err) : show_list(in);
	if (r < 0 && !path)
		cistern_error_set(&err, r, "%s: reading the index: %s", store_path(in->store), strerror(-r));
	if (in->want_json) {
		json_end_object(&in->j);
		json_finish(&in->j);
	}
	history_destroy(in->history);
	return r < 0 ? say_error(&err) : CISTERN_EXIT_OK;
}

enum { OPT_JSON = 256, OPT_CONFLICTS, OPT_RANGES, OPT_MAP, OPT_SVG, OPT_FILL, OPT_WITH };

#define STORES_MAX 65536

static const struct args_option options[] = {
	{ OPT_JSON, "json", NULL, "print JSON, all sizes in bytes" },
	{ OPT_MAP, "map", NULL,
		"of a file: draw a line for each variable: # in the store, . in the backing file, - in part, _ missing; on a terminal as wide as that, in colours of writers" },
	{ OPT_SVG, "svg", "FILE", "of a file: draw a picture of its writes and of where its bytes are now" },
	{ OPT_RANGES, "ranges", NULL, "of a file: list its ranges also when its variables are known" },
	{ OPT_FILL, "fill", NULL,
		"of a file: compare with fill values also where that means to read more than 256 MiB" },
	{ OPT_WITH, "with", "STORE",
		"of a file that nodes of a job write together: look into that node's store, too; may be repeated" },
	{ OPT_CONFLICTS, "conflicts", NULL,
		"list what several nodes of a job wrote to the same bytes; the exit status is 0 also when there is some" },
	{ 0 },
};

/* With the other stores that were named. */
static int open_all(struct inspect *in, const char *store, struct cistern_error *err)
{
	int r = stores_add(&in->all, store, err);

	for (size_t i = 0; r == 0 && i < in->opt->num_with; i++) {
		struct target t;

		r = target_resolve(in->opt->with[i], &t, err);
		if (r == 0)
			r = stores_add(&in->all, t.store, err);
	}
	if (r == 0)
		in->first = in->store = in->all.list[0].store;
	return r;
}

static bool needs_file(const struct inspect_options *opt)
{
	return opt->map || opt->svg || opt->ranges || opt->look || opt->num_with > 0;
}

static int inspect_store(const char *name, const char *file, const struct inspect_options *opt)
{
	struct inspect in = { .want_json = opt->json, .opt = opt };
	char mounted[2 * PATH_MAX];
	struct cistern_error err = { 0 };
	struct target t;
	int status;

	if (target_resolve(name, &t, &err) < 0)
		return say_error(&err);
	if (!file && t.mounted && strcmp(t.path, ".") != 0)
		file = t.path; /* a file named by its path in the mount */
	if (!file && needs_file(opt))
		return args_usage_error(&command_inspect,
			"--map, --svg, --ranges, --fill and --with are about a file, and none is named");
	status = open_all(&in, t.store, &err) < 0 ? say_error(&err) : CISTERN_EXIT_OK;
	if (file && t.mounted) {
		snprintf(mounted, sizeof(mounted), "%s/%s", t.mount.mountpoint,
			mounts_path_in(file, t.mount.mountpoint) ? file + strlen(t.mount.mountpoint) : file);
		in.mounted = mounted;
	}
	if (status == CISTERN_EXIT_OK)
		status = show(&in, file);
	stores_close(&in.all);
	return status;
}

static void take_option(struct inspect_options *opt, int key)
{
	opt->json = opt->json || key == OPT_JSON;
	opt->conflicts = opt->conflicts || key == OPT_CONFLICTS;
	opt->ranges = opt->ranges || key == OPT_RANGES;
	opt->map = opt->map || key == OPT_MAP;
	opt->look = opt->look || key == OPT_FILL;
	if (key == OPT_SVG)
		opt->svg = optarg;
	if (key == OPT_WITH)
		opt->with[opt->num_with++] = optarg;
}

/* In a mount, a directory or a netCDF file means what the store has of it; a log is a log everywhere. */
static bool are_logs(const char *name)
{
	struct cistern_error err;
	struct target t;

	return bbset_is_target(name, false) ? !bbset_is_directory(name) || target_resolve_mount(name, &t, &err) < 0
					    : bbset_is_target(name, true) && target_resolve_mount(name, &t, &err) < 0;
}

static int run_with_options(const struct command *cmd, int argc, char **argv, struct inspect_options *opt)
{
	struct args a;
	int key;

	args_init(&a, cmd, argc, argv);
	while ((key = args_next(&a)) >= 0)
		take_option(opt, key);
	if (a.exit_status >= 0 || (a.exit_status = args_operands(&a, 1, STORES_MAX)) >= 0)
		return a.exit_status;
	if (opt->conflicts)
		return conflicts_show(argv + optind, (size_t)(argc - optind), opt->json);
	if (are_logs(argv[optind]))
		return bblog_inspect(argv + optind, opt->json);
	for (int i = optind + 1; i < argc - 1; i++) /* STORE... FILE */
		opt->with[opt->num_with++] = argv[i];
	return inspect_store(argv[optind], argc - optind > 1 ? argv[argc - 1] : NULL, opt);
}

static int run_inspect(const struct command *cmd, int argc, char **argv)
{
	struct inspect_options opt = { .with = calloc((size_t)argc + 1, sizeof(*opt.with)) };
	int status = CISTERN_EXIT_FAILED;

	if (opt.with)
		status = run_with_options(cmd, argc, argv, &opt);
	else
		say("out of memory");
	free(opt.with);
	return status;
}

const struct command command_inspect = {
	.name = "inspect",
	.summary = "show what is in a store, file by file",
	.synopsis =
		"inspect [--json] STORE|MOUNTPOINT\n"
		"inspect [--json] [--map] [--svg FILE] [--ranges] [--fill] [--with STORE]... STORE|MOUNTPOINT... PATH\n"
		"inspect [--json] [--map] [--svg FILE] [--ranges] [--fill] [--with STORE]... PATH-IN-A-MOUNT\n"
		"inspect --conflicts [--json] STORE|MOUNTPOINT...\n"
		"inspect [--json] LOG|DIR... [FILE.nc]",
	.about =
		"Lists what the store knows: for each file its size, the bytes and extents it has in the log, how many writes there were and how many bytes of them "
		"have been overwritten (as far back as the journal reaches), the sequence numbers of the oldest and newest write that is still there, and its state: "
		"new (not in the backing directory yet), modified, attributes (only those changed), clean, orphan (deleted while open); private: its data lie in a "
		"file of their own in the store.\n\n"
		"With PATH, one file, as its mount would show it now. When its format is known, a table of what it is made of: for each variable the bytes that it has, "
		"how many of them are in the store, in the backing file, and in neither (missing: nobody has written them), how many were overwritten since the last drain, "
		"the share of the logged elements that equal the fill value, how many of its records (or chunks, or 1) are complete, the index of its first missing element, "
		"and who wrote what is logged (NODE:PROCESS, or NODE where the process is not known). Then what headers the file has had, as far as the journal and the payloads still tell. A file of another format, or "
		"whose header has not been written yet, is raw: the reason is said, and its ranges are listed, with the segment and offset where each is, the "
		"sequence number of the write and the checksum.\n\n"
		"Known are netCDF classic (CDF-1, 2 and 5) and HDF5 with netCDF-4; an HDF5 file can be mapped once its writer has flushed or closed it. What is missing of bytes in the backing file is known as finely as its file system keeps holes, and not at all where it "
		"keeps none. Of a file in a private segment (data=auto, where one node alone writes it) the journal has no writes: which node wrote it is known, but not which of its processes wrote "
		"what, nor what was overwritten; mount with data=log to know. Of a file that nodes of a job write together, one store knows a part; a "
		"path in a mount has its header read through the mount. Further stores, named before PATH or by --with, are put together with the first as recovery "
		"would; of a dead job name all of them, in any order. Of what is only in stores that are not given, the bytes are listed (not seen): they count as in the store, "
		"but their values, and a header among them, cannot be read.\n\n"
		"With --conflicts, the stores of a job of many nodes: which bytes of which files two nodes wrote although neither had seen what the other "
		"had written, so that nothing but their clocks decided whose was later. NODE's bytes count, OTHER's do not; all nodes agree on that. A "
		"store knows of its own part of each file; all stores together know everything. What has been drained is "
		"no longer listed.\n\n"
		"LOG is the .meta file of a log that PnetCDF's burst-buffer driver left behind, DIR a directory with such logs: shown are each rank's log and each "
		"entry in it, which variable it is for, from where and how many elements, and where in the data file its values are.\n\n"
		"It works on a store in use, of which it shows one moment, and on one without a daemon. Nothing is changed.",
	.examples = "cistern inspect /local/nvme/$JOB\ncistern inspect --json /local/nvme/$JOB out.nc\n"
		    "cistern inspect --conflicts /stores/node-*\ncistern inspect /local/nvme/out.nc_0_0.meta",
	.options = options,
	.run = run_inspect,
};
