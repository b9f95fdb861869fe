/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "tools/inspect.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "format/base/units.h"
#include "format/store/store.h"
#include "tools/lib/locate.h"
#include "tools/lib/ranges.h"
#include "tools/lib/say.h"
#include "tools/lib/survey.h"
#include "tools/lib/terminal.h"
#include "tools/picture.h"
#include "tools/variables.h"

#define MAP_COLUMNS 60

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

	inspect_store_json(v->in);
	json_key(j, "file");
	inspect_file_json(j, path, node, f);
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
	char size[UNITS_TEXT], writes[UNITS_COUNT], bytes[UNITS_COUNT];
	int r;

	inspect_print_path(path);
	printf(": %s, inode %" PRIu64 ", %s, %s (%s)\n", inspect_type(node), node->ino, inspect_state(node),
		units_format_bytes(f->size, size), units_format_count(f->size, "byte", bytes));
	if (f->history)
		printf("%s of %s, %" PRIu64 " of them overwritten since the last drain\n",
			units_format_count(f->history->writes, "write", writes),
			units_format_count(f->history->written_bytes, "byte", bytes), inspect_overwritten(f));
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

		if (store == in->store || !(inspect_is_of_many(node) || survey_reaches_elsewhere(s)))
			continue; /* comes last, and stays */
		survey_begin(s, store);
		inspect_read_history(in, store, survey_note, s);
		add_history(in, node->ino);
		complete = complete && in->history && in->complete;
		history_destroy(in->history);
		in->history = NULL;
		in->complete = false;
	}
	survey_begin(s, in->store);
	inspect_read_history(in, in->store, survey_note, s);
	add_history(in, node->ino);
	in->complete = in->complete && complete;
	survey_finish(s);
}

static int show_found(struct inspect *in, const char *path, const struct inode *node, struct survey *s)
{
	struct file_facts facts;
	struct file_view v = { .in = in, .private_segment = node->private_segment };
	int r = inspect_gather(in, node, &facts);

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
	int r = inspect_gather(in, node, &facts);

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
	char base[2 * PATH_MAX], nodes[STORES_NODES_BYTES];

	snprintf(base, sizeof(base), "%s/%s", sb->backing, stores_relative(in->first, path));
	if (has_subfiles(base))
		return cistern_error_set(err, -ENOENT,
			"%s: there are only its subfiles, %.1000s.0000 and on: 'cistern convert' makes a file of them, with --as-written "
			"in a mount, where a program can go on with it",
			path, base);
	if (in->all.num < in->all.num_nodes)
		return cistern_error_set(err, -ENOENT,
			"%s: no store that is given has a file of this name; %zu of %" PRIu32
			" stores are not given (%s), and a new file's name is in the store of the node that made it",
			path, in->all.num_nodes - in->all.num, in->all.num_nodes, stores_not_given(&in->all, nodes));
	return cistern_error_set(err, -ENOENT,
		"%s: the store knows nothing of it (a file that was never changed is only in %s)", path, sb->backing);
}

int inspect_file(struct inspect *in, const char *path, struct cistern_error *err)
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
		inspect_read_history(in, in->store, NULL, NULL);
	r = show_found(in, path, &node, regular ? &s : NULL);
	if (r < 0)
		cistern_error_set(err, r, "%s: %s", path, strerror(-r));
	if (r == 0 && regular && in->opt->svg)
		r = picture_write(&s, path, in->opt->svg, err);
	if (regular)
		survey_close(&s);
	return r;
}
