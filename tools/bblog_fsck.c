/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * cistern fsck of PnetCDF's burst-buffer logs: headers, the chain of entries, values in the data files, ranks, and whether each
 * entry fits the netCDF file. The logs may be all that is left of a job, so that nothing in them is ever changed: --repair writes
 * FILE.meta.repaired beside each, with a header that says what the README says it does, and without torn entries, for programs
 * that believe it.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "format/base/fdio.h"
#include "format/base/units.h"
#include "format/codec/bbreplay.h"
#include "format/codec/bbstream.h"
#include "tools/bblog.h"
#include "tools/lib/bbset.h"

#define RANKS_BYTES  256
#define HEADER_BYTES 8192
#define COPY_BYTES   (1u << 20)
#define REPAIRED     ".repaired"

struct check {
	struct fsck *f;
	struct bbset_group g;
	const struct classic *nc; /* NULL: not known */
};

/* ---- one log */

static void check_header(struct fsck *f, const struct bbset_log *l)
{
	const struct bblog_header *h = bblog_header(l->log);
	char num[UNITS_COUNT];

	fsck_report(f, FSCK_OK, NULL, 0, 0, "%s: rank %" PRIu64 " of %" PRIu64 ", %s, %s-endian, written by %s on %s",
		l->meta->path, h->rank, h->num_ranks, units_format_count(h->count, "entry", num),
		h->big_endian ? "big" : "little", bblog_layout_name(h->layout), h->host);
	if (h->count_from == BBLOG_COUNT_AT_56)
		fsck_report(f, FSCK_NOTE, NULL, 0, 0,
			"%s: its header has the number of entries where their begin belongs, as PnetCDF leaves it",
			l->meta->path);
	if (h->redefined)
		fsck_report(f, FSCK_NOTE, NULL, 0, 0,
			"%s: num_entries was overwritten when the program defined anew, as PnetCDF does",
			l->meta->path);
	if (l->no_data)
		fsck_report(f, FSCK_DAMAGE, NULL, 0, 0, "%s: %s", l->meta->path, l->no_data);
}

static int check_tail(struct fsck *f, struct bbset_log *l, struct cistern_error *err)
{
	uint64_t bytes = 0, entries = 0;
	char num[UNITS_COUNT], whole[UNITS_COUNT];
	int r = bblog_tail(l->log, &bytes, &entries, err);

	if (r < 0)
		return cistern_error_prefix(err, "%s", l->meta->path);
	if (bytes > 0)
		fsck_report(f, FSCK_NOTE, NULL, 0, 0,
			"%s: %s behind the last entry that counts, with %s: flushed before, or a put that had not returned",
			l->meta->path, units_format_count(bytes, "byte", num),
			units_format_count(entries, "whole entry", whole));
	return 0;
}

/* ---- entries, and whether they fit the netCDF file */

static void found(void *arg, const struct bbreplay_finding *e)
{
	struct check *c = arg;
	const char *path = c->g.logs[e->log].meta->path;
	char num[UNITS_COUNT];
	uint64_t rank = bblog_header(c->g.logs[e->log].log)->rank;

	if (e->kind == BBREPLAY_DATA && c->g.logs[e->log].no_data)
		return; /* said once, of all */
	if (e->kind == BBREPLAY_LOST)
		fsck_report(c->f, FSCK_DAMAGE, NULL, 0, 0, "%s: %s; lost from there on: %s", path, e->text,
			units_format_count(e->num, "entry", num));
	else
		fsck_report(c->f, FSCK_DAMAGE, NULL, 0, 0, "%s: rank %" PRIu64 ", entry %" PRIu64 ": %s", path, rank,
			e->seq, e->text);
}

/* Without the netCDF file: what can be seen from the logs alone. */
static int check_alone(struct check *c, size_t i, struct cistern_error *err)
{
	struct bbset_log *l = &c->g.logs[i];
	struct cistern_error why = { 0 };
	struct bbreplay_finding f = { .log = i };
	struct bblog_entry e;
	int r;

	bblog_rewind(l->log);
	while ((r = bblog_next(l->log, &e, &why)) > 0) {
		f = (struct bbreplay_finding){ .kind = BBREPLAY_WRONG, .log = i, .seq = e.seq, .text = e.wrong };
		if (!e.wrong && !l->no_data && e.data_off + e.data_len > l->data_source.size && l->num_channels == 1)
			f.text = "the data log ends before its values do";
		if (f.text)
			found(c, &f);
	}
	if (r != -EBADMSG)
		return r < 0 ? cistern_error_set(err, r, "%s: %s", l->meta->path, why.text) : 0;
	f.kind = BBREPLAY_LOST;
	f.num = bblog_header(l->log)->count - bblog_tell(l->log).seq;
	f.text = why.text;
	found(c, &f);
	return 0;
}

static int check_with_netcdf(struct check *c, struct cistern_error *err)
{
	struct bbreplay_ops ops = { .found = found, .arg = c, .dry = true };
	struct bbreplay_log *logs = bbset_replay_logs(&c->g);
	struct bbreplay *b = NULL;
	char entries[UNITS_COUNT], values[UNITS_COUNT];
	int r;

	if (!logs)
		return cistern_error_set(err, -ENOMEM, "out of memory");
	r = bbreplay_create(c->nc, logs, c->g.num, &ops, &b, err);
	if (r == 0)
		fsck_report(c->f, FSCK_OK, NULL, 0, 0, "%s: what fits it: %s with %s", c->g.netcdf,
			units_format_count(bbreplay_stats(b)->entries, "entry", entries),
			units_format_count(bbreplay_stats(b)->values, "value", values));
	bbreplay_destroy(b);
	free(logs);
	return r;
}

static int check_entries(struct check *c, struct cistern_error *err)
{
	struct cistern_error why = { 0 };
	struct classic nc = { 0 };
	int r = 0;

	if (*c->g.netcdf && bbset_read_netcdf(c->g.netcdf, NULL, &nc, &why) == 0) {
		c->nc = &nc;
		r = check_with_netcdf(c, err);
		classic_destroy(&nc);
		return r;
	}
	if (*c->g.netcdf)
		fsck_report(c->f, FSCK_DAMAGE, NULL, 0, 0, "%s", why.text);
	else
		fsck_report(c->f, FSCK_NOTE, NULL, 0, 0,
			"%s: the netCDF file is not found, so that nobody can say whether the entries fit it",
			c->g.path);
	for (size_t i = 0; i < c->g.num && r == 0; i++)
		r = check_alone(c, i, err);
	return r;
}

static void check_ranks(struct check *c)
{
	char missing[RANKS_BYTES];
	uint64_t num = bbset_missing(&c->g, missing, sizeof(missing));

	if (num > 0)
		fsck_report(c->f, FSCK_NOTE, NULL, 0, 0,
			"%s: the logs of rank%s %s of %" PRIu64 " are not among these: on other nodes, or lost",
			c->g.path, num == 1 ? "" : "s", missing, c->g.num_ranks);
	if (c->g.twice)
		fsck_report(c->f, FSCK_DAMAGE, NULL, 0, 0, "%s: there are two logs of one rank", c->g.path);
	if (c->g.several_runs)
		fsck_report(c->f, FSCK_DAMAGE, NULL, 0, 0,
			"%s: the logs do not say the same number of ranks: some are of another run", c->g.path);
	if (*c->g.other)
		fsck_report(c->f, FSCK_NOTE, NULL, 0, 0, "%s is meant by the logs; there is also %s", c->g.netcdf,
			c->g.other);
}

/* ---- --repair: a copy */

/* How far the entries are whole, and how many. */
static int whole_entries(struct bbset_log *l, uint64_t *ret_num, uint64_t *ret_end, struct cistern_error *err)
{
	struct bblog_entry e;
	int r;

	bblog_rewind(l->log);
	while ((r = bblog_next(l->log, &e, err)) > 0)
		;
	*ret_num = bblog_tell(l->log).seq;
	*ret_end = bblog_tell(l->log).off;
	return r == -EBADMSG ? 0 : r;
}

static int write_copy(int fd, struct bbset_log *l, uint64_t num, uint64_t end, struct cistern_error *err)
{
	struct bbstream s;
	struct bblog_source src = {
		.read = l->data_source.read, .arg = l->meta, .size = (uint64_t)l->meta->st.st_size
	};
	uint8_t header[HEADER_BYTES];
	int len = bblog_mended_header(l->log, num, header, sizeof(header), err), r;
	uint64_t at = len > 0 ? (uint64_t)len : 0;

	if (len < 0)
		return len;
	bbstream_init(&s, &src, l->channel, l->num_channels);
	r = fdio_write(fd, header, (size_t)len, 0);
	while (r == 0 && at < end) {
		uint64_t part = end - at < COPY_BYTES ? end - at : COPY_BYTES;
		const uint8_t *bytes;

		r = bbstream_look(&s, at, part, &bytes);
		if (r == 0)
			r = fdio_write(fd, bytes, (size_t)part, at);
		at += part;
	}
	bbstream_free(&s);
	if (r == 0 && fsync(fd) < 0)
		r = -errno;
	return r < 0 ? cistern_error_set(err, r, "%s" REPAIRED ": %s", l->meta->path, strerror(-r)) : 0;
}

static int publish(const char *temp, const char *path, struct cistern_error *err)
{
	int r = rename(temp, path) < 0 ? -errno : fdio_sync_parent(path);

	return r < 0 ? cistern_error_set(err, r, "%s: %s", path, strerror(-r)) : 0;
}

/* Whole and on the device under its own name, or not there at all. One that was left behind half-done is begun anew. */
static int make_copy(
	struct bbset_log *l, const char *temp, const char *path, uint64_t *ret_num, struct cistern_error *err)
{
	uint64_t end = 0;
	int r = whole_entries(l, ret_num, &end, err), fd;

	if (r < 0)
		return r;
	fd = open(temp, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0644);
	if (fd < 0)
		return cistern_error_set(err, -errno, "%s: %s", temp, strerror(errno));
	r = write_copy(fd, l, *ret_num, end, err);
	if (close(fd) < 0 && r == 0)
		r = cistern_error_set(err, -errno, "%s: %s", temp, strerror(errno));
	if (r == 0)
		r = publish(temp, path, err);
	if (r < 0)
		unlink(temp);
	return r;
}

/* In shared mode each channel's log becomes one of its own. */
static int repair_log(struct fsck *f, struct bbset_log *l, struct cistern_error *err)
{
	char path[PATH_MAX], temp[PATH_MAX], channel[16] = "";
	char text[UNITS_COUNT];
	uint64_t num = 0;
	int r;

	if (l->num_channels > 1)
		snprintf(channel, sizeof(channel), ".%u", l->channel);
	if (snprintf(temp, sizeof(temp), "%s%s" REPAIRED ".new", l->meta->path, channel) >= (int)sizeof(temp))
		return cistern_error_set(err, -ENAMETOOLONG, "%s: the name is too long", l->meta->path);
	snprintf(path, sizeof(path), "%.*s", (int)(strlen(temp) - strlen(".new")), temp);
	r = access(path, F_OK) == 0 ? -EEXIST : make_copy(l, temp, path, &num, err);
	if (r == -EEXIST)
		fsck_report(f, FSCK_NOTE, NULL, 0, 0, "%s is there already, and stays as it is", path);
	else if (r == 0)
		fsck_report(f, FSCK_REPAIRED, NULL, 0, 0, "%s: a copy with a header as documented, and %s", path,
			units_format_count(num, "entry", text));
	return r == -EEXIST ? 0 : r;
}

/* ---- all */

static int check_group(struct check *c, struct cistern_error *err)
{
	int r = 0;

	for (size_t i = 0; i < c->g.num && r == 0; i++) {
		check_header(c->f, &c->g.logs[i]);
		r = check_tail(c->f, &c->g.logs[i], err);
	}
	if (r == 0)
		r = check_entries(c, err);
	if (r == 0)
		check_ranks(c);
	for (size_t i = 0; i < c->g.num && r == 0 && c->f->repair; i++)
		r = repair_log(c->f, &c->g.logs[i], err);
	return r;
}

int bblog_fsck(struct fsck *f, char *const *names, struct cistern_error *err)
{
	struct bbset set;
	struct check c = { .f = f };
	size_t at = 0;
	int r = bbset_open(names, &set, err);

	if (r < 0)
		return r;
	while (r == 0 && bbset_next(&set, &at, &c.g))
		r = check_group(&c, err);
	for (; at < set.num && r == 0; at++)
		fsck_report(f, FSCK_DAMAGE, NULL, 0, 0, "%s: %s", set.logs[at].meta->path, set.logs[at].broken);
	bbset_close(&set);
	if (r == 0)
		fsck_report(f, FSCK_NOTE, NULL, 0, 0, "%s", BBLOG_CANCEL_NOTE);
	return r;
}
