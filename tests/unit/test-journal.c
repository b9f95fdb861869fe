/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * The journal: what was appended is read again, by a reader that shares nothing with the writer but the disk; after
 * kills (the disk as it is), lost power (sim_power_cut) and damage.
 */
#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "format/journal/journal.h"
#include "format/journal/journal_file.h"
#include "tests/lib/record_samples.h"
#include "tests/lib/sim.h"
#include "tests/lib/tap.h"

#define FILE_BYTES 65536
#define FIRST      "journal/00000001.jnl"

struct disk {
	struct sim *sim;
	struct io *io;
};

static struct disk disk_create(void)
{
	struct disk d;

	if (sim_create(&d.sim, &d.io))
		abort();
	sim_set_file_limit(d.sim, 8 << 20);
	return d;
}

static struct journal *begin(struct disk *d, uint64_t first_seq)
{
	struct cistern_error err = { 0 };
	struct journal *j = NULL;

	if (journal_create(d->io, FILE_BYTES, first_seq, &j, &err))
		tap_diag("%s", err.text);
	return j;
}

static struct record write_record(uint64_t off, uint64_t len, uint64_t segment_off)
{
	return (struct record){ .type = RECORD_WRITE,
		.time_ns = 1000000 + (int64_t)off,
		.ino = 5,
		.gen = 1,
		.off = off,
		.len = len,
		.segment = 1,
		.segment_off = segment_off,
		.payload_crc = (uint32_t)off };
}

static int append_unlink(struct journal *j, uint64_t ino)
{
	struct record rec = { .type = RECORD_UNLINK, .ino = ino, .parent = 1, .name = "a name of some length" };

	return journal_append(j, &rec);
}

/* Unlinks up to the seq, the ino of each being its seq. */
static int append_upto(struct journal *j, uint64_t seq)
{
	int r = 0;

	while (!r && journal_next_seq(j) <= seq)
		r = append_unlink(j, journal_next_seq(j));
	return r;
}

struct reading {
	uint64_t num, wrong, next;
	struct journal_end end;
	struct cistern_error err;
};

static int read_one(const struct record *rec, void *arg)
{
	struct reading *rd = arg;

	rd->num++;
	rd->wrong += rec->seq != rd->next++ || (rec->type == RECORD_UNLINK && rec->ino != rec->seq);
	return 0;
}

static int read_all(struct disk *d, uint64_t after, struct reading *rd)
{
	*rd = (struct reading){ .next = after + 1 };
	return journal_replay(d->io, after, read_one, rd, &rd->end, &rd->err);
}

static bool reads(struct disk *d, uint64_t after, uint64_t last)
{
	struct reading rd;
	int r = read_all(d, after, &rd);

	if (r)
		tap_diag("%s", rd.err.text);
	return !r && rd.wrong == 0 && rd.num == last - after && rd.end.records == rd.num && rd.end.last_seq == last;
}

static uint64_t file_size(struct disk *d, const char *path)
{
	struct io_file *file;
	uint64_t size = 0;

	if (io_open(d->io, path, IO_READ, &file))
		return 0;
	file->ops->size(file, &size);
	io_close(file);
	return size;
}

static void cut_file(struct disk *d, const char *path, uint64_t size)
{
	struct io_file *file;

	if (io_open(d->io, path, IO_READ | IO_WRITE, &file))
		abort();
	file->ops->truncate(file, size);
	io_close(file);
}

/* ---- all types */

struct expectation {
	const struct record *samples;
	size_t num, at, wrong;
};

static int compare_one(const struct record *rec, void *arg)
{
	struct expectation *e = arg;
	struct record expected = e->samples[e->at % e->num];

	expected.seq = ++e->at;
	if (!record_equal(rec, &expected)) {
		e->wrong++;
		tap_diag("record %zu (%s) differs", e->at, record_type_name(expected.type));
	}
	return 0;
}

static void all_types(void)
{
	struct expectation e = { 0 };
	struct disk d = disk_create();
	struct journal *j = begin(&d, 1);
	struct journal_end end;
	uint64_t bytes;
	int r = 0;

	e.num = record_samples(&e.samples);
	for (size_t round = 0; round < 50; round++)
		for (size_t i = 0; i < e.num && !r; i++) {
			struct record rec = e.samples[i];

			r = journal_append(j, &rec);
		}
	is_int(r, 0, "samples of all types are appended, over several files");
	is_int(journal_replay(d.io, 0, compare_one, &e, &end, NULL), 0, "read while the writer has the files open");
	is_u64(e.at, 50 * e.num, "all come back");
	is_u64(e.wrong, 0, "and are the same");
	bytes = journal_bytes(j);
	journal_destroy(j);
	e.at = 0;
	is_int(journal_replay(d.io, 0, compare_one, &e, &end, NULL), 0, "read after the writer has ended");
	ok(e.at == 50 * e.num && e.wrong == 0, "all the same");
	ok(end.file > 2 && file_size(&d, FIRST) <= FILE_BYTES, "there are several files");
	ok(bytes > 50 * e.num * 56 && bytes < 50 * e.num * 200, "journal_bytes is plausible: %" PRIu64, bytes);
	sim_destroy(d.sim);
}

/* ---- runs */

struct run_reading {
	uint64_t num, wrong;
};

static int read_run(const struct record *rec, void *arg)
{
	struct run_reading *rd = arg;
	struct record expected = write_record(rd->num * 100 % 7777, 100, rd->num * 100);

	expected.seq = ++rd->num;
	expected.time_ns -= rd->num == 50;
	expected.ino = rd->num % 97 == 0 ? 6 : 5;
	expected.writer = rd->num < 2000 ? 0 : 7000 + (uint32_t)rd->num % 4; /* four processes take turns */
	rd->wrong += !record_equal(rec, &expected);
	return 0;
}

static void runs(void)
{
	struct disk d = disk_create();
	struct journal *j = begin(&d, 1);
	struct run_reading rd = { 0 };
	struct journal_end end;
	uint64_t seq;
	int r = 0;

	for (uint64_t i = 0; i < 5000 && !r; i++) {
		struct record rec = write_record(i * 100 % 7777, 100, i * 100);

		rec.time_ns -= i == 49;
		rec.ino = (i + 1) % 97 == 0 ? 6 : 5; /* another file's write ends the run */
		rec.writer = i + 1 < 2000 ? 0 : 7000 + (uint32_t)(i + 1) % 4;
		r = journal_append(j, &rec);
		if (!r && i % 1000 == 500)
			r = journal_sync(j, &seq); /* a sync mark in the middle of a run */
	}
	is_int(r, 0, "5000 writes");
	ok(journal_bytes(j) < 5000 * 28, "take little room: %" PRIu64 " bytes", journal_bytes(j));
	is_int(journal_replay(d.io, 0, read_run, &rd, &end, NULL), 0, "are read");
	ok(rd.num == 5000 && rd.wrong == 0, "as they were");
	is_u64(end.last_seq, 5000, "up to the last");
	journal_destroy(j);
	sim_destroy(d.sim);
}

/* ---- ends */

static void beginnings(void)
{
	struct disk d = disk_create();
	struct reading rd;
	struct journal *j;
	uint32_t number = 0;
	uint64_t seq;

	is_int(read_all(&d, 0, &rd), 0, "no folder: an empty journal");
	is_u64(rd.end.last_seq, 0, "without records");
	is_int(read_all(&d, 5, &rd), -ENOENT, "but records after 5 are missing");
	j = begin(&d, 1);
	ok(reads(&d, 0, 0), "a new journal is empty");
	is_int(append_upto(j, 3), 0, "three records");
	is_int(journal_rotate(j, &number), 0, "rotation");
	is_u64(number, 2, "begins file 2");
	ok(reads(&d, 0, 3) && reads(&d, 3, 3), "an empty last file is fine");
	is_int(append_upto(j, 2000), 0, "2000 records");
	ok(reads(&d, 0, 2000) && reads(&d, 1999, 2000) && reads(&d, 700, 2000) && reads(&d, 2000, 2000),
		"are read from anywhere");
	is_int(read_all(&d, 2001, &rd), -ENOENT, "a journal that ends too early");
	is_int(journal_sync(j, &seq), 0, "synced");
	is_int(journal_remove_before(d.io, 99), -ENOENT, "nothing is removed before a file that does not exist");
	is_int(journal_remove_before(d.io, number), 0, "removal of the first file");
	ok(file_size(&d, FIRST) == 0, "it has gone");
	is_int(read_all(&d, 0, &rd), -ENOENT, "record 1 is missing");
	ok(strstr(rd.err.text, "00000002.jnl") != NULL && !rd.end.unsynced, "and said so: %s", rd.err.text);
	ok(reads(&d, 3, 2000), "from record 4 on it is whole");
	journal_destroy(j);
	j = begin(&d, 2001);
	is_int(append_upto(j, 2001), 0, "the next process appends");
	ok(reads(&d, 3, 2001), "and is read");
	journal_destroy(j);
	sim_destroy(d.sim);
}

static int stop_at_ten(const struct record *rec, void *arg)
{
	(void)arg;
	return rec->seq == 10 ? -EBADMSG : 0;
}

static void stopping(void)
{
	struct disk d = disk_create();
	struct journal *j = begin(&d, 1);
	struct cistern_error err = { 0 };
	struct journal_end end;

	append_upto(j, 20);
	is_int(journal_replay(d.io, 0, stop_at_ten, NULL, &end, &err), -EBADMSG, "each()'s own result comes back");
	ok(end.records == 10 && err.code == 0, "and is not taken for damage");
	journal_destroy(j);
	sim_destroy(d.sim);
}

/* A record's first n bytes for every n: what a kill in the middle of an append leaves. */
static void torn_tails(bool run)
{
	struct disk d = disk_create();
	struct journal *j = begin(&d, 1);
	uint64_t from = 0, to, whole, wrong = 0;
	struct reading rd;
	struct io_file *file;
	uint8_t tail[256];

	for (uint64_t i = 0; i < 10; i++) {
		struct record rec = write_record(i * 10, 10, run ? i * 10 : i * 100);

		journal_append(j, &rec);
		from = i == 8 ? journal_bytes(j) : from;
	}
	to = journal_bytes(j);
	journal_destroy(j);
	if (io_open(d.io, FIRST, IO_READ | IO_WRITE, &file) || io_read_exact(file, tail, to - from, from))
		abort();
	for (whole = to - from; !tail[whole - 1];)
		whole--; /* zeros need not be written to be there */
	for (uint64_t n = 0; n < whole; n++) {
		file->ops->truncate(file, from + n); /* cut off */
		wrong += read_all(&d, 0, &rd) != 0 || rd.num != 9 || rd.end.off != from;
		file->ops->truncate(file, FILE_BYTES); /* and zeros behind it */
		wrong += read_all(&d, 0, &rd) != 0 || rd.num != 9 || rd.end.off != from || rd.end.cut_bytes > n;
		wrong += n > 0 && rd.end.cut_bytes == 0;
		io_write(file, tail, n + 1, from);
	}
	io_close(file);
	is_u64(wrong, 0, run ? "torn run entries are cut" : "torn records are cut");
	ok(reads(&d, 0, 10), "the whole one is read");
	cut_file(&d, FIRST, from + 5);
	is_int(read_all(&d, 0, &rd), 0, "torn once more");
	is_int(journal_cut(d.io, &rd.end, NULL), 0, "is cut");
	is_u64(file_size(&d, FIRST), from, "to the right size");
	j = begin(&d, 10);
	append_upto(j, 12);
	ok(reads(&d, 0, 12), "and the journal goes on");
	journal_destroy(j);
	sim_destroy(d.sim);
}

/* ---- damage */

/* Flips each byte of [from, to) of a file and reads. Counts readings that gave another result than expected. */
static uint64_t flip_all(struct disk *d, const char *path, uint64_t from, uint64_t to, int expected, bool unsynced)
{
	uint64_t wrong = 0;
	struct reading rd;

	for (uint64_t off = from; off < to; off++) {
		sim_corrupt(d->sim, path, off, 0x41);
		if (read_all(d, 0, &rd) != expected || rd.wrong || rd.end.unsynced != unsynced) {
			wrong++;
			tap_diag("byte %" PRIu64 ": %d %s", off, rd.err.code, rd.err.text);
		}
		sim_corrupt(d->sim, path, off, 0x41);
	}
	return wrong;
}

static void damage(bool run)
{
	struct disk d = disk_create();
	struct journal *j = begin(&d, 1);
	uint64_t seq, end = 0;
	struct reading rd;

	for (uint64_t i = 0; i < 8; i++) {
		struct record rec = write_record(i * 10, 10, run ? i * 10 : i * 100);

		journal_append(j, &rec);
		end = i == 4 ? journal_bytes(j) : end;
	}
	is_u64(flip_all(&d, FIRST, JOURNAL_BLOCK, end, -EBADMSG, true), 0,
		"every byte that valid records follow: damage, unsynced");
	is_u64(flip_all(&d, FIRST, 0, 60, -EBADMSG, true), 0, "so in the header");
	is_int(journal_sync(j, &seq), 0, "sync");
	is_u64(seq, 8, "of all");
	end = journal_bytes(j) - JOURNAL_MARK_BYTES;
	is_u64(flip_all(&d, FIRST, JOURNAL_BLOCK, end, -EBADMSG, false), 0,
		"afterwards every byte is damage for certain");
	is_u64(flip_all(&d, FIRST, 0, 60, -EBADMSG, false), 0, "so in the header");
	is_u64(flip_all(&d, FIRST, end, end + 16, 0, false), 0, "a torn sync mark is just a torn tail");
	journal_destroy(j);
	j = begin(&d, 9);
	append_upto(j, 9);
	is_u64(flip_all(&d, FIRST, JOURNAL_BLOCK, JOURNAL_BLOCK + 100, -EBADMSG, false), 0, "and with a later file");
	sim_corrupt(d.sim, FIRST, JOURNAL_BLOCK + 8, 1);
	is_int(read_all(&d, 0, &rd), -EBADMSG, "damaged");
	ok(strstr(rd.err.text, FIRST) && strstr(rd.err.text, "4096") && strstr(rd.err.text, "fsck"), "%s", rd.err.text);
	journal_destroy(j);
	sim_destroy(d.sim);
}

static void lost_files(void)
{
	struct disk d = disk_create();
	struct journal *j = begin(&d, 1);
	struct reading rd;
	uint64_t seq;
	uint32_t number;

	append_upto(j, 5);
	journal_rotate(j, &number);
	append_upto(j, 9);
	journal_rotate(j, &number);
	append_upto(j, 12);
	journal_sync(j, &seq);
	is_u64(seq, 12, "sync over three files");
	append_upto(j, 13);
	ok(reads(&d, 0, 13), "three files");
	d.io->ops->unlink(d.io, "journal/00000002.jnl");
	is_int(read_all(&d, 0, &rd), -ENOENT, "the middle one is lost");
	ok(rd.num == 5 && rd.end.last_seq == 5 && !rd.end.unsynced, "after record 5, which had been synced: %s",
		rd.err.text);
	ok(reads(&d, 9, 13), "what is behind it can be read");
	cut_file(&d, FIRST, JOURNAL_BLOCK + 8);
	is_int(read_all(&d, 0, &rd), -EBADMSG, "a short file that others follow");
	journal_destroy(j);
	sim_destroy(d.sim);
}

static void empty_files(void)
{
	struct disk d = disk_create();
	struct journal *j = begin(&d, 1);
	struct io_file *file;
	struct reading rd;

	append_upto(j, 5);
	journal_destroy(j);
	if (io_open(d.io, "journal/00000002.jnl", IO_WRITE | IO_CREATE, &file))
		abort();
	ok(reads(&d, 0, 5), "an empty file is passed over");
	file->ops->allocate(file, 0, 8192);
	ok(reads(&d, 0, 5), "and one of zeros");
	io_write(file, "CISTJ", 5, 0);
	is_int(read_all(&d, 0, &rd), 0, "and one with a torn header");
	ok(rd.num == 5 && rd.end.file == 2 && rd.end.off == 0 && rd.end.cut_bytes == 5, "is a torn tail");
	is_int(journal_cut(d.io, &rd.end, NULL), 0, "which is cut");
	io_close(file);
	j = begin(&d, 6);
	append_upto(j, 6);
	ok(reads(&d, 0, 6), "and the journal goes on behind it");
	journal_destroy(j);
	sim_destroy(d.sim);
}

/* ---- no room, failing disk */

static void no_room(void)
{
	struct disk d = disk_create();
	struct journal *j;
	uint64_t last, seq;
	int r = 0;

	sim_set_capacity(d.sim, 3 * FILE_BYTES + 8192);
	j = begin(&d, 1);
	while (!r)
		r = append_unlink(j, journal_next_seq(j));
	last = journal_next_seq(j) - 1;
	is_int(r, -ENOSPC, "the disk fills up");
	is_int(append_unlink(j, 99), -ENOSPC, "and stays full");
	is_u64(journal_next_seq(j) - 1, last, "no seq is used");
	ok(reads(&d, 0, last), "all that was taken is there");
	is_int(journal_sync(j, &seq), 0, "and can be synced");
	is_u64(seq, last, "up to the last");
	sim_set_capacity(d.sim, 0);
	is_int(append_upto(j, last + 1), 0, "with room it goes on");
	ok(reads(&d, 0, last + 1), "without a gap");
	journal_destroy(j);
	sim_destroy(d.sim);
}

static void failing_sync(void)
{
	struct disk d = disk_create();
	struct journal *j = begin(&d, 1);
	uint64_t seq = 77;

	append_upto(j, 5);
	sim_fail_after(d.sim, 1, EIO);
	is_int(journal_sync(j, &seq), -EIO, "a sync fails");
	ok(seq == 77, "and promises nothing");
	is_int(journal_sync(j, &seq), -EIO, "for good");
	is_int(append_unlink(j, 6), -EIO, "nothing more is taken");
	ok(reads(&d, 0, 5), "what was taken can be read");
	journal_destroy(j);
	sim_destroy(d.sim);
}

/* Each of the first calls fails once: whatever the result, what is there is whole. */
static void failing_calls(void)
{
	uint64_t wrong = 0;

	for (uint64_t n = 1; n < 40; n++) {
		struct disk d = disk_create();
		struct journal *j = NULL;
		uint64_t seq, last = 0;
		uint32_t number;

		sim_fail_after(d.sim, n, EIO);
		if (!journal_create(d.io, FILE_BYTES, 1, &j, NULL)) {
			for (int i = 0; i < 5; i++) {
				(void)append_upto(j, journal_next_seq(j) + 3);
				(void)journal_rotate(j, &number);
				(void)journal_sync(j, &seq);
			}
			last = journal_next_seq(j) - 1;
		}
		wrong += !reads(&d, 0, last);
		journal_destroy(j);
		sim_destroy(d.sim);
	}
	is_u64(wrong, 0, "journals that are not whole after one failing call");
}

/* ---- lost power */

/* What a caller does at recovery, knowing that the machine was restarted. */
static int recover(struct disk *d, struct reading *rd)
{
	int r = read_all(d, 0, rd);

	if (r && !rd->end.unsynced)
		return r;
	return journal_cut(d->io, &rd->end, NULL);
}

/* Appends, syncs and rotates; then the power goes. False: something synced is gone, or what is there is not in order. */
static bool survive(uint64_t seed)
{
	struct disk d = disk_create();
	uint64_t durable = 0, last = 0, random = seed * 2654435761u;
	struct reading rd;
	bool good = true;

	for (int life = 0; life < 4 && good; life++) {
		struct journal *j = begin(&d, last + 1);
		uint32_t number;

		for (int i = 0; j && i < 12; i++, random = random * 6364136223846793005u + 1) {
			good = good && append_upto(j, journal_next_seq(j) + random / 65536 % 150) == 0;
			if (random >> 60 < 5)
				good = good && journal_sync(j, &durable) == 0;
			if (random >> 60 == 9)
				good = good && journal_rotate(j, &number) == 0;
		}
		good = good && j && sim_power_cut(d.sim, seed + (uint64_t)life) == 0;
		journal_destroy(j);
		good = good && recover(&d, &rd) == 0 && rd.wrong == 0 && rd.end.last_seq >= durable;
		if (!good)
			tap_diag("seed %" PRIu64 " life %d: %" PRIu64 " durable, %" PRIu64 " read: %s", seed, life,
				durable, rd.end.last_seq, rd.err.text);
		last = rd.end.last_seq;
		good = good && reads(&d, 0, last);
	}
	sim_destroy(d.sim);
	return good;
}

static void power_cuts(void)
{
	uint64_t lost = 0;

	for (uint64_t seed = 1; seed <= 80; seed++)
		lost += !survive(seed);
	is_u64(lost, 0, "disks that lost what was synced, or could not be recovered");
}

/* The death of a process, then of the machine: the second process must sync what the first one left. */
static void kill_then_power_cut(void)
{
	uint64_t lost = 0;

	for (uint64_t seed = 1; seed < 20; seed++) {
		struct disk d = disk_create();
		struct journal *j = begin(&d, 1);
		struct reading rd;
		uint64_t seq;

		append_upto(j, 100);
		journal_destroy(j);
		j = begin(&d, 101);
		append_upto(j, 110);
		journal_sync(j, &seq);
		sim_power_cut(d.sim, seed);
		journal_destroy(j);
		lost += recover(&d, &rd) != 0 || rd.end.last_seq < 110;
		sim_destroy(d.sim);
	}
	is_u64(lost, 0, "journals of a dead process that the next one's sync did not save");
}

/* ---- threads */

struct syncer {
	struct journal *j;
	_Atomic bool stop;
	int r;
	uint64_t num;
};

static void *sync_again_and_again(void *arg)
{
	struct syncer *s = arg;
	uint64_t seq = 0, before = 0;

	while (!s->stop && !s->r) {
		s->r = journal_sync(s->j, &seq);
		if (seq < before)
			s->r = -ERANGE;
		before = seq;
		s->num++;
	}
	return NULL;
}

static void threads(void)
{
	struct disk d = disk_create();
	struct journal *j = begin(&d, 1);
	struct syncer s[2] = { { .j = j }, { .j = j } };
	pthread_t thread[2];
	int r;

	for (int i = 0; i < 2; i++)
		pthread_create(&thread[i], NULL, sync_again_and_again, &s[i]);
	r = append_upto(j, 20000);
	for (int i = 0; i < 2; i++) {
		s[i].stop = true;
		pthread_join(thread[i], NULL);
	}
	is_int(r, 0, "appended while others sync");
	ok(s[0].r == 0 && s[1].r == 0 && s[0].num > 0, "synced meanwhile");
	ok(reads(&d, 0, 20000), "all is there");
	journal_destroy(j);
	sim_destroy(d.sim);
}

/* ---- checkpoints */

struct checkpoint_reading {
	uint64_t num, wrong;
	size_t big;
};

static int read_key(const struct record *rec, void *arg)
{
	struct checkpoint_reading *rd = arg;
	char key[32];

	snprintf(key, sizeof(key), "key%08" PRIu64, rd->num);
	rd->wrong += rec->key_len != strlen(key) || memcmp(rec->key, key, rec->key_len) != 0 || rec->off ||
		     rec->len != rec->value_len;
	if (rec->value_len == rd->big && rd->big)
		for (size_t i = 0; i < rd->big; i++)
			rd->wrong += rec->value[i] != (uint8_t)(i * 7 >> 3);
	else
		rd->wrong += rec->value_len != rd->num % 50;
	rd->num++;
	return 0;
}

static int write_checkpoint(struct disk *d, uint32_t number, uint64_t num, size_t big, uint64_t seq)
{
	uint8_t *value = malloc(big ? big : 64);
	struct journal_checkpoint *c;
	char key[32];
	int r;

	for (size_t i = 0; i < (big ? big : 64); i++)
		value[i] = (uint8_t)(i * 7 >> 3);
	r = journal_checkpoint_begin(d->io, number, &c);
	for (uint64_t i = 0; i < num && !r; i++) {
		snprintf(key, sizeof(key), "key%08" PRIu64, i);
		r = journal_checkpoint_add(c, key, strlen(key), value, big && i == num / 2 ? big : i % 50);
	}
	free(value);
	return r ? r : journal_checkpoint_commit(c, seq);
}

static void checkpoints(void)
{
	struct disk d = disk_create();
	struct journal *j = begin(&d, 1);
	struct checkpoint_reading rd = { 0 };
	struct journal_checkpoint *c;
	struct cistern_error err;
	uint64_t seq = 5, size, wrong = 0;

	is_int(journal_checkpoint_load(d.io, read_key, &rd, &seq, &err), -ENOENT, "no checkpoint");
	is_u64(seq, 0, "stands for nothing");
	is_int(write_checkpoint(&d, 2, 0, 0, 10), 0, "an empty one");
	is_int(journal_checkpoint_load(d.io, read_key, &rd, &seq, &err), 0, "is loaded");
	ok(seq == 10 && rd.num == 0, "empty");
	is_int(write_checkpoint(&d, 3, 30000, 3000000, 20), 0, "one with a value of 3 MB");
	is_int(journal_checkpoint_begin(d.io, 4, &c), 0, "one is begun");
	journal_checkpoint_abort(c);
	rd = (struct checkpoint_reading){ .big = 3000000 };
	is_int(journal_checkpoint_load(d.io, read_key, &rd, &seq, &err), 0, "the newest is loaded");
	ok(seq == 20 && rd.num == 30000 && rd.wrong == 0, "as it was");
	size = file_size(&d, "journal/00000003.ckp");
	cut_file(&d, "journal/00000003.ckp", size - 8);
	rd = (struct checkpoint_reading){ 0 };
	is_int(journal_checkpoint_load(d.io, read_key, &rd, &seq, &err), 0, "a cut one does not count");
	ok(seq == 10 && rd.num == 0, "the one before it does, and nothing of the other was handed out");
	d.io->ops->unlink(d.io, "journal/00000002.ckp");
	is_int(journal_checkpoint_load(d.io, read_key, &rd, &seq, &err), -EBADMSG, "none is whole");
	ok(rd.num == 0 && strstr(err.text, "00000003.ckp"), "%s", err.text);
	is_int(write_checkpoint(&d, 3, 3, 0, 30), 0, "a small one");
	size = file_size(&d, "journal/00000003.ckp");
	for (uint64_t off = 0; off < size; off++) {
		sim_corrupt(d.sim, "journal/00000003.ckp", off, 4);
		wrong += journal_checkpoint_load(d.io, read_key, &rd, &seq, NULL) != -EBADMSG;
		sim_corrupt(d.sim, "journal/00000003.ckp", off, 4);
	}
	is_u64(wrong, 0, "flipped bytes that were taken");
	sim_power_cut(d.sim, 1);
	rd = (struct checkpoint_reading){ 0 };
	is_int(journal_checkpoint_load(d.io, read_key, &rd, &seq, NULL), 0, "it survives power loss");
	journal_destroy(j);
	sim_destroy(d.sim);
}

int main(void)
{
	all_types();
	runs();
	beginnings();
	stopping();
	torn_tails(false);
	torn_tails(true);
	damage(false);
	damage(true);
	lost_files();
	empty_files();
	no_room();
	failing_sync();
	failing_calls();
	power_cuts();
	kill_then_power_cut();
	threads();
	checkpoints();
	return done_testing();
}
