/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * cistern-convert, cistern-mpi-agent convert: blobs to a canonical file and back, by one process or by all that mpiexec has started. Every
 * process opens the set and finds the same; each carries its own part of the canonical file, and none needs another's
 * data. They only agree, step by step, that all is well: one failure ends all of them, and nothing gets its name.
 */
#include "mpi-agent/command/convert.h"

#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "format/base/clock.h"
#include "format/base/json.h"
#include "format/base/units.h"
#include "mpi-agent/comm/signals.h"
#include "mpi-agent/comm/team.h"
#include "mpi-agent/convert/cover.h"
#include "mpi-agent/convert/publish.h"
#include "mpi-agent/convert/rewrite.h"
#include "mpi-agent/convert/split.h"
#include "mpi-agent/convert/surplus.h"
#include "mpi-agent/convert/transfer.h"

#define BUFFER_LEAST  ((uint64_t)2 << 20) /* by default: what stays in the processor's cache, ... */
#define BUFFER_MOST   ((uint64_t)32 << 20)
#define BUFFER_BLOB   ((uint64_t)16 << 10) /* ... but so much of each blob */
#define BUFFER_MIN    ((uint64_t)1 << 12)
#define BUFFER_MAX    ((uint64_t)1 << 32)
#define DOMAIN_ALIGN  ((uint64_t)1 << 20)
#define TERMINAL_USEC 250000u
#define LINES_USEC    10000000u

enum layout { TO_CANONICAL, TO_BLOB_VARIABLE, TO_BLOB_PROCESS };

struct convert {
	struct team team;
	char **inputs; /* borrowed */
	size_t num_inputs;
	const char *to;
	enum layout layout;
	struct split_options split;
	struct mapfile decomp;
	struct classic_align align;
	uint64_t buffer; /* 0: by the number of blobs */
	bool fill, force, as_json, as_written;
	struct blob_set set;
	struct cover cover; /* of all processes, at the first */
	uint64_t added;
	struct publish *outs; /* owned; one for each file that is made */
	uint32_t num_outs;
	struct surplus surplus; /* at the first process */
	int fd;                 /* of the canonical file */
	uint64_t bytes_made;
	int signals;
	bool on_terminal, said;
	uint64_t began_usec, said_usec;
	struct cistern_error err;
};

/* ---- together */

/* The first failure of all, everywhere. */
static int agree(struct convert *c, int r)
{
	return team_agree(&c->team, r, &c->err);
}

static int broadcast(struct convert *c, void *bytes, size_t len)
{
	return team_broadcast(&c->team, bytes, len, &c->err);
}

static bool is_first(const struct convert *c)
{
	return c->team.rank == 0;
}

static int check_signals(struct convert *c)
{
	struct pollfd p = { .fd = c->signals, .events = POLLIN };

	if (poll(&p, 1, 0) > 0)
		return cistern_error_set(&c->err, -EINTR, "interrupted; nothing was made");
	return 0;
}

/* ---- what is said */

/* The first process speaks for all: their parts are of one size. */
static void say_progress(struct convert *c, uint64_t done, uint64_t total)
{
	char done_text[UNITS_TEXT], total_text[UNITS_TEXT], rate_text[UNITS_TEXT];
	uint64_t now = clock_usec(), rate;

	if (!is_first(c) || now - c->said_usec < (c->on_terminal ? TERMINAL_USEC : LINES_USEC))
		return;
	c->said_usec = now;
	done *= c->team.size;
	total *= c->team.size;
	rate = (uint64_t)((double)done * 1e6 / (double)(now - c->began_usec + 1));
	fprintf(stderr, "%sconvert: %s of %s (%d %%), %s/s%s", c->on_terminal ? "\r\033[K" : "",
		units_format_bytes(done, done_text), units_format_bytes(total, total_text),
		total > 0 ? (int)(100 * (double)done / (double)total) : 100, units_format_bytes(rate, rate_text),
		c->on_terminal ? "" : "\n");
	c->said = c->on_terminal;
}

static void end_progress(struct convert *c)
{
	if (c->said)
		fputs("\r\033[K", stderr);
	c->said = false;
}

static void say_warnings(const struct convert *c)
{
	char num[UNITS_COUNT];

	if (c->cover.twice > 0)
		fprintf(stderr,
			"cistern convert: %" PRIu64 " elements are in several blobs, the first one element %" PRIu64
			" of map D%" PRIu32 "; the blob further behind in the set was taken\n",
			c->cover.twice, c->cover.twice_element, c->cover.twice_map + 1);
	if (c->cover.never > 0)
		fprintf(stderr, "cistern convert: %" PRIu64 " elements of maps are in no blob; they %s\n",
			c->cover.never, c->fill ? "have their fill value" : "are holes, which read as zero");
	if (c->added > 0)
		fprintf(stderr,
			"cistern convert: %" PRIu64 " elements of maps belong to no process; the last one has them\n",
			c->added);
	if (c->surplus.removed > 0)
		fprintf(stderr, "cistern convert: removed what the set before had more: %s\n",
			units_format_count(c->surplus.removed, "subfile", num));
	if (c->surplus.kept > 0)
		fprintf(stderr,
			"cistern convert: %" PRIu32
			" files stay that are named as subfiles and are none of the set before, the first one "
			"%s.%04" PRIu32 "\n",
			c->surplus.kept, c->to, c->surplus.first_kept);
}

static void say_json(const struct convert *c, int status, uint32_t subfiles, uint32_t blobs)
{
	struct json j;

	json_init(&j, stdout, true);
	json_object(&j);
	json_kstr(&j, "to", c->to);
	json_kstr(&j, "layout",
		c->layout == TO_CANONICAL       ? "canonical"
		: c->layout == TO_BLOB_VARIABLE ? "blob-variable"
						: "blob-process");
	json_ku64(&j, "bytes", c->bytes_made);
	json_ku64(&j, "subfiles", subfiles);
	json_ku64(&j, "blobs", blobs);
	json_ku64(&j, "maps", c->set.num > 0 ? c->set.files[0].head.num_maps : 0);
	json_ku64(&j, "variables", c->set.canonical.num_vars);
	json_ku64(&j, "records", c->set.canonical.num_records);
	json_ku64(&j, "processes", c->team.size);
	json_ku64(&j, "elements_in_several_blobs", c->cover.twice);
	json_ku64(&j, "elements_in_no_blob", c->cover.never);
	json_ku64(&j, "elements_added", c->added);
	json_ku64(&j, "subfiles_removed", c->surplus.removed);
	json_kstr(&j, "error", c->err.text);
	json_ku64(&j, "exit_status", (uint64_t)status);
	json_end_object(&j);
	json_finish(&j);
}

static int say_end(struct convert *c, int r)
{
	static const struct {
		int code, status;
	} statuses[] = { { 0, CISTERN_EXIT_OK }, { -EINVAL, CISTERN_EXIT_USAGE }, { -EBUSY, CISTERN_EXIT_BUSY },
		{ -EBADMSG, CISTERN_EXIT_DAMAGED } };
	uint32_t blobs = 0;
	char bytes[UNITS_TEXT];
	char num[3][UNITS_COUNT];
	int status = CISTERN_EXIT_FAILED;

	for (size_t i = 0; i < sizeof(statuses) / sizeof(statuses[0]); i++)
		if (statuses[i].code == r)
			status = statuses[i].status;
	if (!is_first(c))
		return status;
	end_progress(c);
	for (uint32_t i = 0; i < c->set.num; i++)
		blobs += c->set.files[i].head.nblobs;
	if (r == 0)
		say_warnings(c);
	else
		fprintf(stderr, "cistern convert: %s\n", c->err.text);
	if (c->as_json)
		say_json(c, status, c->set.num, blobs);
	else if (r == 0)
		printf("%s: %s, %s, %s %s %s\n", c->to, units_format_bytes(c->bytes_made, bytes),
			units_format_count(c->set.canonical.num_vars, "variable", num[0]),
			units_format_count(blobs, "blob", num[1]), c->layout == TO_CANONICAL ? "from" : "in",
			units_format_count(c->set.num, "subfile", num[2]));
	fflush(stdout);
	return status;
}

/* ---- files that are made */

static int name_outs(struct convert *c, uint32_t num)
{
	char path[PATH_MAX];
	int r = 0;

	c->outs = calloc(num, sizeof(*c->outs));
	if (!c->outs)
		return -ENOMEM;
	for (c->num_outs = 0; r == 0 && c->num_outs < num; c->num_outs++) {
		const char *name = c->to;

		if (c->layout != TO_CANONICAL) {
			r = blob_set_path(c->to, c->num_outs, path, sizeof(path));
			name = path;
		}
		c->outs[c->num_outs].fd = -1;
		if (r == 0)
			r = publish_name(&c->outs[c->num_outs], name, c->force, &c->err);
	}
	return r;
}

/* An input is never replaced by what is made of it. */
static int check_inputs(struct convert *c)
{
	struct stat in, out;

	for (uint32_t i = 0; i < c->num_outs; i++)
		for (size_t k = 0; k < (c->layout == TO_CANONICAL ? c->set.num : 1); k++) {
			int fd = c->layout == TO_CANONICAL ? c->set.files[k].fd : c->fd;

			if (stat(c->outs[i].path, &out) == 0 && fstat(fd, &in) == 0 && in.st_dev == out.st_dev &&
				in.st_ino == out.st_ino)
				return cistern_error_set(
					&c->err, -EINVAL, "%s is what is to be converted", c->outs[i].path);
		}
	return 0;
}

/* The first process creates all, the others open them. bytes: that all together will have. */
static int open_outs(struct convert *c, uint64_t bytes)
{
	int r = check_inputs(c);

	for (uint32_t i = 0; r == 0 && is_first(c) && i < c->num_outs; i++)
		r = publish_create(&c->outs[i], &c->err);
	if (r == 0 && is_first(c))
		r = publish_check_room(&c->outs[0], bytes, &c->err);
	r = agree(c, r);
	for (uint32_t i = 0; r == 0 && !is_first(c) && i < c->num_outs; i++)
		r = publish_join(&c->outs[i], &c->err);
	return agree(c, r);
}

/*
 * The first of a set comes last: without it nobody takes the others for a set. Until then it is the old one's, by which what that had more
 * is known. What cannot be removed does not keep the new set from being whole.
 */
static int name_all(struct convert *c)
{
	int r = 0, further = 0;

	for (uint32_t i = c->num_outs; r == 0 && i > 1; i--)
		r = publish_commit(&c->outs[i - 1], &c->err);
	if (r == 0 && c->force && c->layout != TO_CANONICAL)
		further = surplus_remove(c->to, c->num_outs, &c->surplus, &c->err);
	if (r == 0)
		r = publish_commit(&c->outs[0], &c->err);
	return r < 0 ? r : further;
}

static int commit_outs(struct convert *c)
{
	int r = check_signals(c);

	for (uint32_t i = 0; r == 0 && i < c->num_outs; i++)
		r = publish_sync(&c->outs[i], &c->err);
	r = agree(c, r);
	return r < 0 ? r : agree(c, is_first(c) ? name_all(c) : 0);
}

/* ---- the bytes */

typedef int (*carry_fn)(struct transfer *w, uint64_t from, uint64_t to, struct cistern_error *err);

static uint64_t choose_buffer(const struct convert *c)
{
	uint64_t bytes = 0;

	if (c->buffer > 0)
		return c->buffer;
	for (uint32_t i = 0; i < c->set.num; i++)
		bytes += c->set.files[i].head.nblobs * BUFFER_BLOB;
	return bytes < BUFFER_LEAST ? BUFFER_LEAST : bytes > BUFFER_MOST ? BUFFER_MOST : bytes;
}

/* This process's part of the canonical file. */
static int carry(struct convert *c, uint64_t bytes, carry_fn transfer)
{
	uint64_t domain = (bytes / c->team.size + DOMAIN_ALIGN) / DOMAIN_ALIGN * DOMAIN_ALIGN, from, end, cap;
	uint64_t buffer = choose_buffer(c);
	struct transfer *t = NULL;
	int r;

	from = domain * c->team.rank < bytes ? domain * c->team.rank : bytes;
	end = bytes - from < domain ? bytes : from + domain;
	cap = end - from < buffer ? end - from : buffer;
	r = transfer_create(&c->set, c->fd, c->layout == TO_CANONICAL ? c->to : c->inputs[0], cap + 1, c->fill, &t);
	for (uint64_t at = from; r == 0 && at < end;) {
		uint64_t to = end - at < buffer ? end : at + buffer;

		r = transfer(t, at, to, &c->err);
		if (r == 0)
			r = check_signals(c);
		at = to;
		say_progress(c, at - from, end - from);
	}
	if (r == 0)
		r = transfer_finish(t, &c->err);
	transfer_destroy(t);
	return agree(c, r);
}

/* ---- to a canonical file */

/* Bytes that are written: holes take no room. */
static uint64_t count_bytes(const struct blob_set *s)
{
	uint64_t sum = s->header_bytes;

	for (uint32_t i = 0; i < s->canonical.num_vars; i++) {
		const struct classic_var *v = &s->canonical.vars[i];
		uint32_t map = s->files[0].head.vars[i].map;
		uint64_t elements = map == BLOB_NO_MAP ? v->elements : 0;

		for (uint32_t k = 0; map != BLOB_NO_MAP && k < s->num; k++)
			elements += s->files[k].head.maps[map].nelems;
		sum += elements * classic_type_bytes(v->type) * (v->is_record ? s->canonical.num_records : 1);
	}
	return sum < s->file_bytes ? sum : s->file_bytes;
}

/* All processes' counts, at the first. */
static int count_cover(struct convert *c)
{
	struct cover mine, *all = NULL;
	int r = agree(c, cover_count(&c->set, c->team.rank, c->team.size, &mine));

	c->cover = mine;
	if (r < 0 || c->team.size == 1)
		return r;
	all = calloc(c->team.size, sizeof(*all));
	r = agree(c, all ? 0 : -ENOMEM);
	if (r == 0)
		r = team_gather(&c->team, &mine, sizeof(mine), all, &c->err);
	for (uint32_t i = 1; r == 0 && is_first(c) && i < c->team.size; i++) {
		if (all[i].twice_map < c->cover.twice_map ||
			(all[i].twice_map == c->cover.twice_map && all[i].twice_element < c->cover.twice_element)) {
			c->cover.twice_map = all[i].twice_map;
			c->cover.twice_element = all[i].twice_element;
		}
		c->cover.twice += all[i].twice;
		c->cover.never += all[i].never;
	}
	free(all);
	return r;
}

static int on_blob(uint64_t done, uint64_t total, void *arg)
{
	struct convert *c = arg;

	say_progress(c, done, total);
	return check_signals(c);
}

/* By as many processes as wrote the set. */
static int write_again(struct convert *c)
{
	struct rewrite w = { .set = &c->set,
		.path = c->outs[0].temp,
		.share = c->team.rank,
		.num = c->team.size,
		.each = on_blob,
		.arg = c };
	int r = agree(c, is_first(c) ? rewrite_frame(&c->set, c->fd, c->to, &c->err) : 0);

	return r == 0 ? agree(c, rewrite_blobs(&w, &c->err)) : r;
}

static int set_size(struct convert *c)
{
	char bytes[UNITS_TEXT];

	if (ftruncate(c->fd, (off_t)c->set.file_bytes) == 0)
		return 0;
	return cistern_error_set(&c->err, -errno, "%s would have %s, which cannot be: %s", c->to,
		units_format_bytes(c->set.file_bytes, bytes), strerror(errno));
}

static int to_canonical(struct convert *c)
{
	int r = agree(c, blob_set_open(c->inputs, c->num_inputs, &c->align, &c->set, &c->err));

	if (r == 0 && c->fill && !c->set.files[0].head.is_exact)
		c->set.file_bytes = classic_file_bytes(&c->set.canonical);
	if (r == 0)
		r = agree(c, name_outs(c, 1));
	if (r == 0 && c->as_written)
		r = agree(c, is_first(c) ? rewrite_create(&c->set, c->outs[0].temp, &c->err) : 0);
	if (r == 0)
		r = open_outs(c, count_bytes(&c->set));
	if (r == 0) {
		c->fd = c->outs[0].fd;
		c->bytes_made = c->set.file_bytes;
		r = agree(c, is_first(c) ? set_size(c) : 0);
	}
	if (r == 0)
		r = count_cover(c);
	if (r == 0)
		r = c->as_written ? write_again(c) : carry(c, c->set.file_bytes, transfer_to_canonical);
	return r < 0 ? r : commit_outs(c);
}

/* ---- to blobs */

static int read_decomp(struct convert *c, const char *path)
{
	struct mapfile d = { 0 };
	struct mapfile_map *grown;
	int fd = open(path, O_RDONLY | O_CLOEXEC), r = 0;
	struct stat st;
	void *p;

	if (fd < 0 || fstat(fd, &st) < 0)
		r = cistern_error_set(&c->err, -errno, "%s: %s", path, strerror(errno));
	if (r == 0) {
		p = mmap(NULL, (size_t)st.st_size + 1, PROT_READ, MAP_PRIVATE, fd, 0);
		if (p == MAP_FAILED) {
			r = cistern_error_set(&c->err, -errno, "%s: %s", path, strerror(errno));
		} else {
			r = mapfile_decode(p, (size_t)st.st_size, &d, &c->err);
			munmap(p, (size_t)st.st_size + 1);
			if (r < 0)
				cistern_error_prefix(&c->err, "%s", path);
		}
	}
	if (fd >= 0)
		close(fd);
	if (r == 0 && c->decomp.num > 0 && d.num_procs != c->decomp.num_procs)
		r = cistern_error_set(&c->err, -EINVAL, "%s is of %" PRIu32 " processes, the maps before of %" PRIu32,
			path, d.num_procs, c->decomp.num_procs);
	grown = r == 0 ? reallocarray(c->decomp.maps, c->decomp.num + d.num, sizeof(*grown)) : NULL;
	if (r == 0 && !grown)
		r = -ENOMEM;
	if (r < 0) {
		mapfile_destroy(&d);
		return r;
	}
	memcpy(grown + c->decomp.num, d.maps, d.num * sizeof(*grown));
	free(d.maps);
	c->decomp.maps = grown;
	c->decomp.num += d.num;
	c->decomp.num_procs = d.num_procs;
	return 0;
}

/* A set has a name, too; but it is no file of that name. */
static int refuse_missing(struct convert *c, const char *path, int error)
{
	char first[PATH_MAX];
	struct subfile f;

	if (error != ENOENT || blob_set_first(path, first, sizeof(first)) < 0 || subfile_open(first, &f, NULL) < 0)
		return cistern_error_set(&c->err, -error, "%s: %s", path, strerror(error));
	cistern_error_set(&c->err, -EINVAL,
		"%s: no file, but a set of subfiles (%s is one of %" PRIu32
		", %s), and --layout is for canonical files. 'cistern convert %s "
		"--to FILE' makes that of the set; then it is FILE that --layout takes",
		path, first, f.head.num_subfiles, f.process_centric ? "blob-process" : "blob-variable", path);
	subfile_close(&f);
	return -EINVAL;
}

static int plan_blobs(struct convert *c)
{
	int r = 0;

	c->fd = open(c->inputs[0], O_RDONLY | O_CLOEXEC);
	if (c->fd < 0)
		return refuse_missing(c, c->inputs[0], errno);
	if (is_first(c) && getrandom(c->split.set, sizeof(c->split.set), 0) != sizeof(c->split.set))
		r = cistern_error_set(&c->err, -EIO, "no random number for the set");
	r = agree(c, r);
	if (r == 0)
		r = broadcast(c, c->split.set, sizeof(c->split.set));
	if (r < 0)
		return r;
	c->split.process_centric = c->layout == TO_BLOB_PROCESS;
	c->split.decomp = c->decomp.num > 0 ? &c->decomp : NULL;
	if (c->split.num_procs == 0)
		c->split.num_procs = c->decomp.num > 0                      ? c->decomp.num_procs
				     : c->team.size > c->split.num_subfiles ? c->team.size
									    : c->split.num_subfiles;
	if (c->split.num_procs < c->split.num_subfiles)
		return cistern_error_set(&c->err, -EINVAL, "%" PRIu32 " processes cannot be in %" PRIu32 " subfiles",
			c->split.num_procs, c->split.num_subfiles);
	return split_plan(c->fd, c->inputs[0], &c->split, &c->set, &c->added, &c->err);
}

static int write_heads(struct convert *c)
{
	int r = 0;

	for (uint32_t i = 0; r == 0 && i < c->set.num; i++) {
		struct subfile *f = &c->set.files[i];

		f->path = strdup(c->outs[i].temp);
		f->fd = fcntl(c->outs[i].fd, F_DUPFD_CLOEXEC, 0);
		if (!f->path || f->fd < 0)
			return f->path ? cistern_error_set(&c->err, -errno, "%s: %s", f->path, strerror(errno))
				       : -ENOMEM;
		if (is_first(c))
			r = split_write_head(f, &c->err);
	}
	return r;
}

static int share_places(struct convert *c)
{
	int r = 0;

	for (uint32_t i = 0; r == 0 && i < c->set.num; i++)
		r = broadcast(c, &c->set.files[i].data_off, sizeof(c->set.files[i].data_off));
	return r;
}

static int to_blobs(struct convert *c)
{
	int r = agree(c, plan_blobs(c));

	for (uint32_t i = 0; r == 0 && i < c->set.num; i++)
		c->bytes_made += split_bytes(&c->set.files[i]);
	if (r == 0)
		r = agree(c, name_outs(c, c->set.num));
	if (r == 0)
		r = open_outs(c, c->bytes_made);
	if (r == 0)
		r = agree(c, write_heads(c));
	if (r == 0)
		r = share_places(c);
	if (r == 0)
		r = carry(c, c->set.file_bytes, transfer_to_blobs);
	if (c->fd >= 0)
		close(c->fd);
	c->fd = -1;
	return r < 0 ? r : commit_outs(c);
}

/* ---- arguments */

static const char usage_text[] = "usage: cistern-convert [options] BASE|SUBFILE... --to FILE\n"
				 "       cistern-convert [options] FILE --layout blob-variable|blob-process --to BASE\n"
				 "       mpiexec -n N cistern-mpi-agent convert ...\n";

static int parse_layout(struct convert *c, const char *text)
{
	static const char *const names[] = { "canonical", "blob-variable", "blob-process" };

	for (int i = 0; i < 3; i++)
		if (strcmp(text, names[i]) == 0) {
			c->layout = (enum layout)i;
			return 0;
		}
	return cistern_error_set(
		&c->err, -EINVAL, "--layout is canonical, blob-variable or blob-process, not '%s'", text);
}

static int parse_count(struct convert *c, const char *option, const char *text, uint64_t max, uint32_t *ret)
{
	uint64_t n;

	if (units_parse_u64(text, &n) < 0 || n == 0 || n > max)
		return cistern_error_set(
			&c->err, -EINVAL, "%s is a number from 1 to %" PRIu64 ", not '%s'", option, max, text);
	*ret = (uint32_t)n;
	return 0;
}

/* HEADER[,VARIABLE[,RECORD]] */
static int parse_align(struct convert *c, const char *text)
{
	uint64_t *const parts[] = { &c->align.header, &c->align.variable, &c->align.record };
	char part[UNITS_TEXT];

	for (int i = 0; i < 3; i++) {
		size_t len = strcspn(text, ",");

		snprintf(part, sizeof(part), "%.*s", len < sizeof(part) ? (int)len : 0, text);
		if (units_parse_bytes(part, parts[i]) < 0 || *parts[i] == 0 || *parts[i] % 4 != 0 ||
			*parts[i] > ((uint64_t)1 << 30))
			break;
		text += len;
		if (*text == '\0')
			return 0;
		text++;
	}
	return cistern_error_set(&c->err, -EINVAL, "--align is up to three multiples of 4 bytes, with commas");
}

static int parse_buffer(struct convert *c, const char *text)
{
	if (units_parse_bytes(text, &c->buffer) < 0 || c->buffer < BUFFER_MIN || c->buffer > BUFFER_MAX)
		return cistern_error_set(&c->err, -EINVAL, "--buffer is a size from 4K to 4G, not '%s'", text);
	return 0;
}

static int parse_option(struct convert *c, int key)
{
	switch (key) {
	case 't': c->to = optarg; return 0;
	case 'l': return parse_layout(c, optarg);
	case 'k': return parse_count(c, "--num-subfiles", optarg, BLOB_SUBFILES_MAX, &c->split.num_subfiles);
	case 'p': return parse_count(c, "--processes", optarg, MAPFILE_PROCS_MAX, &c->split.num_procs);
	case 'm': return read_decomp(c, optarg);
	case 'a': return parse_align(c, optarg);
	case 'b': return parse_buffer(c, optarg);
	case 'F': c->fill = true; return 0;
	case 'f': c->force = true; return 0;
	case 'j': c->as_json = true; return 0;
	case 'w': c->as_written = true; return 0;
	default: return cistern_error_set(&c->err, -EINVAL, "see 'cistern help convert'");
	}
}

static int check_arguments(struct convert *c)
{
	bool split = c->split.num_procs > 0 || c->decomp.num > 0 || c->split.num_subfiles > 0;

	if (c->num_inputs == 0 || !c->to)
		return cistern_error_set(&c->err, -EINVAL, c->to ? "nothing to convert" : "--to is missing");
	if (c->layout == TO_CANONICAL && split)
		return cistern_error_set(
			&c->err, -EINVAL, "--num-subfiles, --processes and --map are for blobs: --layout is missing");
	if (c->layout != TO_CANONICAL && c->num_inputs > 1)
		return cistern_error_set(&c->err, -EINVAL, "one file at a time is converted to blobs");
	if (c->layout != TO_CANONICAL && c->fill)
		return cistern_error_set(&c->err, -EINVAL, "--fill is for canonical files");
	if (c->as_written && (c->fill || c->layout != TO_CANONICAL))
		return cistern_error_set(
			&c->err, -EINVAL, "--as-written goes with canonical files, and without --fill");
	if (c->split.num_subfiles == 0)
		c->split.num_subfiles = 1;
	return 0;
}

static int parse(struct convert *c, int argc, char **argv)
{
	static const struct option longs[] = { { "to", required_argument, NULL, 't' },
		{ "layout", required_argument, NULL, 'l' }, { "num-subfiles", required_argument, NULL, 'k' },
		{ "processes", required_argument, NULL, 'p' }, { "map", required_argument, NULL, 'm' },
		{ "align", required_argument, NULL, 'a' }, { "buffer", required_argument, NULL, 'b' },
		{ "fill", no_argument, NULL, 'F' }, { "force", no_argument, NULL, 'f' },
		{ "json", no_argument, NULL, 'j' }, { "as-written", no_argument, NULL, 'w' },
		{ "help", no_argument, NULL, 'h' }, { 0 } };
	int key, r = 0;

	while (r == 0 && (key = getopt_long(argc, argv, "", longs, NULL)) >= 0) {
		if (key == 'h') {
			fputs(usage_text, stdout);
			exit(CISTERN_EXIT_OK);
		}
		r = parse_option(c, key);
	}
	c->inputs = argv + optind;
	c->num_inputs = (size_t)(argc - optind);
	return r < 0 ? r : check_arguments(c);
}

/* ---- from the beginning to the end */

static int join(struct convert *c, int *argc, char ***argv)
{
	c->signals = signals_block(); /* before MPI makes threads */
	if (c->signals < 0)
		return cistern_error_set(&c->err, c->signals, "cannot wait for signals: %s", strerror(-c->signals));
	return team_join(&c->team, argc, argv, &c->err);
}

static void end(struct convert *c)
{
	for (uint32_t i = 0; i < c->num_outs; i++)
		publish_end(&c->outs[i]);
	free(c->outs);
	blob_set_destroy(&c->set);
	mapfile_destroy(&c->decomp);
	if (c->signals >= 0)
		close(c->signals);
}

int command_convert(int argc, char **argv)
{
	struct convert c = { .team.size = 1, .fd = -1, .signals = -1, .align = { 512, 4, 4 } };
	int r, status;

	c.began_usec = c.said_usec = clock_usec();
	c.on_terminal = isatty(STDERR_FILENO);
	c.cover.twice_map = UINT32_MAX;
	r = join(&c, &argc, &argv);
	if (r == 0)
		r = agree(&c, parse(&c, argc, argv));
	if (r == 0)
		r = c.layout == TO_CANONICAL ? to_canonical(&c) : to_blobs(&c);
	status = say_end(&c, r);
	end(&c);
	team_leave(&c.team);
	return status;
}
