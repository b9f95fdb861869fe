/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * cistern fsck: is a store sound? Superblock, journal, index against a second opinion rebuilt from the journal, every
 * payload against its checksum, segments that nobody needs. Without --repair nothing in the store is changed; with
 * it, only what loses nothing: see fsck_repair.c.
 */
#include "tools/fsck.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "format/base/units.h"
#include "format/store/store.h"
#include "tools/bblog.h"
#include "tools/cistern.h"
#include "tools/lib/bbset.h"
#include "tools/lib/say.h"
#include "tools/lib/target.h"

static const char *const kind_words[] = {
	[FSCK_OK] = "ok",
	[FSCK_NOTE] = "note",
	[FSCK_DAMAGE] = "DAMAGE",
	[FSCK_REPAIRED] = "repaired",
};

static const char *const kind_keys[] = {
	[FSCK_OK] = "ok",
	[FSCK_NOTE] = "note",
	[FSCK_DAMAGE] = "damage",
	[FSCK_REPAIRED] = "repaired",
};

static void finding_json(
	struct json *j, enum fsck_kind kind, const char *path, uint64_t from, uint64_t to, const char *text)
{
	json_object(j);
	json_kstr(j, "kind", kind_keys[kind]);
	if (path) {
		json_kstr(j, "path", path);
		json_ku64(j, "from", from);
		json_ku64(j, "to", to);
	}
	json_kstr(j, "text", text);
	json_end_object(j);
}

static void finding_line(enum fsck_kind kind, const char *path, uint64_t from, uint64_t to, const char *text)
{
	printf("%s: ", kind_words[kind]);
	if (path) {
		fputs("file ", stdout);
		for (; *path; path++)
			putchar((unsigned char)*path < 0x20 || *path == 0x7f ? '?' : *path);
		if (to > from)
			printf(" bytes %" PRIu64 "-%" PRIu64, from, to);
		fputs(": ", stdout);
	}
	puts(text);
}

void fsck_report(
	struct fsck *f, enum fsck_kind kind, const char *path, uint64_t from, uint64_t to, const char *fmt, ...)
{
	char text[2 * CISTERN_ERROR_TEXT_BYTES];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	f->num_damage += kind == FSCK_DAMAGE;
	f->num_notes += kind == FSCK_NOTE;
	f->num_repaired += kind == FSCK_REPAIRED;
	if (f->want_json)
		finding_json(&f->j, kind, path, from, to, text);
	else
		finding_line(kind, path, from, to, text);
}

/* The superblock, and that nobody has the store open. -EBUSY, -ENOENT: not for us; damage is reported: *ret_sound. */
static int check_superblock(struct fsck *f, bool *ret_sound, struct cistern_error *err)
{
	struct superblock *sb = malloc(sizeof(*sb));
	bool recovers = false;
	pid_t pid = 0;
	char uuid[37];
	int r;

	if (!sb)
		return cistern_error_set(err, -ENOMEM, "out of memory");
	r = store_holder(f->store, &pid, &recovers);
	if (recovers)
		r = cistern_error_set(err, -EBUSY, "%s is in use by a recovery (process %d); wait until it has ended",
			f->store, (int)pid);
	else if (pid != 0)
		r = cistern_error_set(err, -EBUSY,
			"%s is in use by process %d; unmount it and wait for its end with 'cistern wait %s'", f->store,
			(int)pid, f->store);
	else if (r < 0 && r != -ENOENT)
		r = cistern_error_set(err, r, "%s: cannot ask who holds it: %s", f->store, strerror(-r));
	else
		r = store_read_superblock(f->store, sb, err);
	if (r == 0) {
		store_uuid_text(sb->uuid, uuid);
		fsck_report(f, FSCK_OK, NULL, 0, 0, "superblock: store %s, backing directory %s", uuid, sb->backing);
		f->of_job = sb->num_nodes > 1;
		if (f->of_job)
			fsck_report(
				f, FSCK_OK, NULL, 0, 0, "superblock: of node %u of %u", sb->node_index, sb->num_nodes);
	} else if (r == -EBADMSG) {
		fsck_report(f, FSCK_DAMAGE, NULL, 0, 0, "superblock: %s", err->text);
	}
	*ret_sound = r == 0;
	free(sb);
	return r == -EBADMSG ? 0 : r;
}

/* With what a killed daemon has left in shared memory. */
static int open_segments(struct fsck *f, struct cistern_error *err)
{
	struct segment_options opt = { .read_only = true };
	struct superblock *sb = malloc(sizeof(*sb));
	int r = sb ? store_read_superblock(f->store, sb, err) : cistern_error_set(err, -ENOMEM, "out of memory");

	if (r == 0) {
		opt.staging = (struct segment_staging_options){ .uuid = sb->uuid, .owner = sb->uid };
		r = segment_set_open(f->io, &opt, &f->segments, err);
	}
	free(sb);
	if (r == 0 && segment_found_staged(f->segments) > 0)
		fsck_report(f, FSCK_OK, NULL, 0, 0,
			"staging: %" PRIu64
			" large writes of a daemon that was killed are in this node's shared memory; the "
			"next mount writes them to the store",
			segment_found_staged(f->segments));
	return r;
}

static int open_store(struct fsck *f, struct cistern_error *err)
{
	int r;

	f->dirfd = open(f->store, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (f->dirfd < 0)
		return cistern_error_set(err, -errno, "%s: %s", f->store, strerror(errno));
	r = io_posix_create(f->dirfd, &f->io);
	if (r < 0)
		return cistern_error_set(err, r, "%s: %s", f->store, strerror(-r));
	return open_segments(f, err);
}

/* Everything behind the superblock. */
static int look(struct fsck *f, struct cistern_error *err)
{
	int r = open_store(f, err);

	if (r == 0)
		r = fsck_check_journal(f, err);
	if (r == 0)
		r = fsck_check_index(f, err);
	if (r == 0 && f->truth)
		r = fsck_check_payloads(f, err);
	if (r == 0 && f->truth)
		r = fsck_check_segments(f, err);
	fsck_close(f);
	return r;
}

static int check(struct fsck *f, struct cistern_error *err)
{
	bool sound = false, was_damaged;
	int r = check_superblock(f, &sound, err);

	if (r < 0 || !sound)
		return r;
	r = look(f, err);
	if (r < 0 || !(f->repair || f->rebuild_index))
		return r;
	was_damaged = f->journal_damaged;
	r = fsck_repair(f, err);
	if (r == 0 && was_damaged && !f->journal_damaged) {
		f->repair = f->rebuild_index = false; /* only now can the files be checked */
		r = look(f, err);
	}
	return r;
}

static const char *verdict_word(const struct fsck *f, int r)
{
	return r < 0 ? "unfinished" : f->num_damage ? "damaged" : f->num_repaired ? "repaired" : "clean";
}

static void verdict_text(const struct fsck *f)
{
	char num[UNITS_COUNT];

	if (f->num_damage)
		printf("DAMAGE: %s left\n", units_format_count(f->num_damage, "finding", num));
	else if (f->is_file && f->num_notes) /* of what the notes tell nobody knows */
		puts("ok: nothing wrong was found in the file");
	else
		printf("ok: the %s %s\n",
			f->logs      ? "logs are"
			: f->is_file ? "file is"
				     : "store is",
			f->num_repaired && !f->logs ? "repaired" : "sound");
}

static int run_and_report(struct fsck *f)
{
	struct cistern_error err = { 0 };
	int r;

	if (f->want_json) {
		json_init(&f->j, stdout, true);
		json_object(&f->j);
		json_kstr(&f->j, f->logs ? "logs" : f->is_file ? "file" : "store", f->logs ? f->logs[0] : f->store);
		json_key(&f->j, "findings");
		json_array(&f->j);
	}
	r = f->logs ? bblog_fsck(f, f->logs, &err) : f->is_file ? fsck_check_file(f, &err) : check(f, &err);
	if (f->want_json) {
		json_end_array(&f->j);
		json_kstr(&f->j, "verdict", verdict_word(f, r));
		json_ku64(&f->j, "damage", f->num_damage);
		json_ku64(&f->j, "notes", f->num_notes);
		json_ku64(&f->j, "repaired", f->num_repaired);
		if (r < 0)
			json_kstr(&f->j, "error", err.text);
		json_end_object(&f->j);
		json_finish(&f->j);
	} else if (r == 0) {
		verdict_text(f);
	}
	free(f->unused);
	if (r < 0)
		return say_error(&err);
	return f->num_damage ? CISTERN_EXIT_DAMAGED : CISTERN_EXIT_OK;
}

#define LOGS_MAX 65536

enum { OPT_REPAIR = 256, OPT_REBUILD, OPT_DISCARD, OPT_NUMRECS, OPT_FORCE, OPT_JSON };

static const struct args_option options[] = {
	{ OPT_REPAIR, "repair", NULL,
		"cut a torn tail of the journal, rebuild an index that is wrong, remove segments that nothing refers to; write mended copies of PnetCDF's logs" },
	{ OPT_REBUILD, "rebuild-index", NULL, "build the index anew from the journal, whether or not it is wrong" },
	{ OPT_DISCARD, "discard-after-damage", NULL,
		"with --repair: cut the journal where it is damaged, or begin it anew behind an index that stands for more; what follows the damage is kept in STORE/lost, but is no longer part of the store" },
	{ OPT_NUMRECS, "fix-numrecs", NULL,
		"of a netCDF classic file: where the header counts fewer records than the file has, or none, write the number that it has" },
	{ OPT_FORCE, "force", NULL,
		"with --fix-numrecs: count what is all zeros, too, though it may be room that a program reserved and never filled" },
	{ OPT_JSON, "json", NULL, "print JSON" },
	{ 0 },
};

static int run_fsck(const struct command *cmd, int argc, char **argv)
{
	struct cistern_error err = { 0 };
	struct fsck f = { .dirfd = -1 };
	struct stat st;
	struct args a;
	int key;

	args_init(&a, cmd, argc, argv);
	while ((key = args_next(&a)) >= 0) {
		switch (key) {
		case OPT_REPAIR: f.repair = true; break;
		case OPT_REBUILD: f.rebuild_index = true; break;
		case OPT_DISCARD: f.discard = true; break;
		case OPT_NUMRECS: f.fix_numrecs = true; break;
		case OPT_FORCE: f.force = true; break;
		case OPT_JSON: f.want_json = true; break;
		}
	}
	if (a.exit_status >= 0 || (a.exit_status = args_operands(&a, 1, LOGS_MAX)) >= 0)
		return a.exit_status;
	if (f.force && !f.fix_numrecs)
		return args_usage_error(cmd, "--force goes with --fix-numrecs");
	if (f.discard && !f.repair)
		return args_usage_error(cmd, "--discard-after-damage goes with --repair");
	if (!f.fix_numrecs && bbset_is_target(argv[optind], true)) {
		if (f.discard || f.rebuild_index)
			return args_usage_error(cmd, "--rebuild-index and --discard-after-damage are for stores");
		f.logs = argv + optind;
		return run_and_report(&f);
	}
	if (argc - optind > 1)
		return args_usage_error(cmd, "one store or file at a time");
	if (!realpath(argv[optind], f.store)) {
		cistern_error_set(&err, -errno, "%s: %s", argv[optind], strerror(errno));
		return say_error(&err);
	}
	f.is_file = stat(f.store, &st) == 0 && S_ISREG(st.st_mode);
	if (f.is_file && (f.repair || f.rebuild_index))
		return args_usage_error(cmd, "--repair and --rebuild-index are for stores, and %s is a file", f.store);
	if (!f.is_file && f.fix_numrecs)
		return args_usage_error(cmd, "--fix-numrecs is for files, and %s is none", f.store);
	return run_and_report(&f);
}

const struct command command_fsck = {
	.name = "fsck",
	.summary = "check a store or a drained file, and repair it",
	.synopsis =
		"fsck [--repair [--discard-after-damage]] [--rebuild-index] [--json] STORE\nfsck [--repair] [--json] LOG|DIR... [FILE.nc]\nfsck [--fix-numrecs [--force]] [--json] FILE",
	.about =
		"Checks a store that no daemon has open: the superblock, every record of the journal, the index against one that is rebuilt from "
		"the journal, every payload against its checksum, and that all segments are there. Each finding is a line that begins with ok, note "
		"(unusual, but nothing is lost) or DAMAGE, with the file and the bytes concerned. Nothing is changed without --repair or "
		"--rebuild-index.\n\n"
		"--repair does only what loses nothing: a checkpoint that is damaged is written anew from the index when that has all. Damage in the middle of the journal stays, unless --discard-after-damage is given too: then what "
		"comes before it is kept; or, where the index stands for more than can be read of the journal, since files of that were lost, all that the index "
		"stands for. Put lost files back first, if they are anywhere. Payloads that are damaged stay as they are: a drain carries over every other file and leaves these in the "
		"store; write or delete the range, or the file, to be rid of it.\n\n"
		"LOG is the .meta file of a log that PnetCDF's burst-buffer driver left behind, DIR a directory with such logs; or only the netCDF file is named, "
		"and its logs are looked for beside it. Checked are the headers, every entry and its place in the data file, whether all ranks are there, and, when "
		"the netCDF file is found, whether each entry fits its variable. These logs are never changed: --repair writes LOG.repaired, a copy with "
		"a header as PnetCDF documents it and without torn entries. 'cistern recover' needs no such copy.\n\n"
		"Of another FILE it checks whether it is what it begins like, as the setting verify=format does at a drain: a netCDF classic file (its header, "
		"and that of all records that it counts something is there) or an HDF5 or netCDF-4 file (superblock, end of the file, all groups, "
		"datasets and chunk indexes, checksums of metadata). A header that counts fewer records than the file has is damage, since readers do "
		"not see the others; --fix-numrecs writes the number. Zeros behind the records that the header counts are a note: a program may have reserved that room. "
		"Only with --force are they counted. A file that ends before its variables do is damage where more than one byte in a hundred is missing, else a note. "
		"The file may be on any file system, also in a mount.\n\n"
		"The exit status is 0 when the store is sound or everything was repaired, 4 when damage is left, 5 when the store is in use.",
	.examples =
		"cistern fsck /local/nvme/$JOB\ncistern fsck --repair /local/nvme/$JOB\ncistern fsck /local/nvme/out.nc_*.meta\ncistern fsck --fix-numrecs out.nc",
	.options = options,
	.run = run_fsck,
};
