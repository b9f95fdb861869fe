/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * PnetCDF's burst-buffer logs: decoded from real ones (tests/golden/pnetcdf-bb-logs, whose contents are known from the program that
 * wrote them), and from real ones changed by hand: other layouts, the other order of bytes, shared mode, damage. Replays are compared
 * with the file that PnetCDF itself made. tests/bats/bblog.bats has random logs, and the commands.
 */
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "format/codec/bblog.h"
#include "format/codec/bbreplay.h"
#include "format/codec/bbvalue.h"
#include "tests/lib/corpus.h"
#include "tests/lib/tap.h"

#define FILE_MAX   (64u << 20)
#define FINDINGS   64
#define T1         "v1.12.3/t1.nc"
#define CRASH      "v1.12.3-crash/t-crash.nc"
#define HEADER_T1  112u /* bytes of its header */
#define HEADER_OLD 104u /* as 1.12.2 would have padded it */

struct bytes {
	uint8_t *at; /* owned */
	size_t len;
	uint64_t seen; /* bytes that were read of it */
};

static struct bytes load(const char *name)
{
	const char *top = getenv("top_srcdir");
	struct bytes b = { .at = calloc(1, 65536) };
	char path[4096];
	FILE *in;

	snprintf(path, sizeof(path), "%s/tests/golden/pnetcdf-bb-logs/%s", top ? top : ".", name);
	in = fopen(path, "r");
	if (!in || !b.at) {
		fprintf(stderr, "%s: cannot read\n", path);
		abort();
	}
	b.len = fread(b.at, 1, 65536, in);
	fclose(in);
	return b;
}

static int read_bytes(void *arg, uint64_t off, void *buf, size_t len)
{
	struct bytes *b = arg;

	if (off > b->len || len > b->len - off)
		abort(); /* the source is never asked for what it has not */
	b->seen += len;
	if (len)
		memcpy(buf, b->at + off, len);
	return 0;
}

static struct bblog_source source(struct bytes *b)
{
	return (struct bblog_source){ .read = read_bytes, .arg = b, .size = b->len };
}

static struct bblog *open_log(struct bytes *b, struct cistern_error *err)
{
	struct bblog_source src = source(b);
	struct bblog *log = NULL;

	return bblog_open(&src, 0, 1, &log, err) == 0 ? log : NULL;
}

/* ---- decoding what PnetCDF wrote */

struct expected {
	uint64_t off;
	int32_t kind;
	enum bblog_type type;
	uint32_t var;
	uint64_t data_off, data_len;
	int64_t start[4], count[4], stride[2]; /* of the first two requests */
};

/* What the program did, with the offsets that a hexadecimal dump shows. */
static const struct expected rank_0[] = {
	{ 112, BBLOG_VARA, BBLOG_INT, 0, 8, 48, { 0, 0 }, { 2, 6 }, { 0 } },
	{ 200, BBLOG_VARS, BBLOG_FLOAT, 1, 56, 12, { 0, 0 }, { 1, 3 }, { 1, 2 } },
	{ 288, 2, BBLOG_SHORT, 3, 68, 4, { 0, 0, 0, 2 }, { 1, 1, 1, 1 }, { 0 } },
	{ 392, BBLOG_VARA, BBLOG_SHORT, 3, 72, 2, { 0, 1 }, { 1, 1 }, { 0 } },
	{ 480, BBLOG_VARA, BBLOG_SHORT, 3, 74, 2, { 0, 1 }, { 1, 1 }, { 0 } },
	{ 568, BBLOG_VARA, BBLOG_DOUBLE, 2, 76, 8, { 0 }, { 0 }, { 0 } },
	{ 608, BBLOG_VARA, BBLOG_INT, 0, 84, 48, { 0, 0 }, { 2, 6 }, { 0 } },
};

static bool same_entry(const struct bblog_entry *e, const struct expected *x)
{
	uint64_t n = (x->kind > 0 ? 2 : 1) * e->ndims;

	return !e->wrong && e->off == x->off && e->kind == x->kind && e->type == x->type && e->varid == x->var &&
	       e->data_off == x->data_off && e->data_len == x->data_len && memcmp(e->start, x->start, n * 8) == 0 &&
	       memcmp(e->count, x->count, n * 8) == 0 && (x->kind == BBLOG_VARS) == (e->stride != NULL) &&
	       (!e->stride || memcmp(e->stride, x->stride, 16) == 0);
}

static unsigned int count_same(struct bblog *log)
{
	struct bblog_entry e;
	unsigned int same = 0;

	bblog_rewind(log);
	while (bblog_next(log, &e, NULL) > 0)
		same += e.seq < 7 && same_entry(&e, &rank_0[e.seq]);
	return same;
}

static void test_entries(void)
{
	struct bytes b = load(T1 "_0_0.meta");
	struct bblog *log = open_log(&b, NULL);
	const struct bblog_header *h = bblog_header(log);
	uint64_t bytes, entries;

	is_int(h->layout, BBLOG_L1, "layout");
	ok(!h->big_endian && !h->external && !h->redefined, "flags");
	is_u64(h->num_ranks, 2, "ranks");
	is_u64(h->rank, 0, "rank");
	is_u64(h->field_48, 0, "num_entries is never written");
	is_u64(h->begin, HEADER_T1, "entries begin");
	is_u64(h->count, 7, "entries, at byte 56");
	is_int(h->count_from, BBLOG_COUNT_AT_56, "from there");
	is_str(h->path, "/scratch/job421/t1.nc", "path");
	is_str(h->host, "vm", "host");
	is_u64(count_same(log), 7, "entries as the program made them");
	ok(bblog_tail(log, &bytes, &entries, NULL) == 0 && bytes == 0 && entries == 0, "nothing behind them");
	bblog_close(log);
	free(b.at);
}

static void test_redefined(void)
{
	struct bytes b = load("v1.12.3-redef/t-redef.nc_0_0.meta");
	struct bblog *log = open_log(&b, NULL);
	uint64_t bytes = 0, entries = 0;

	ok(bblog_header(log)->redefined, "the second define phase left its mark");
	is_u64(bblog_header(log)->count, 1, "entries since the last flush");
	is_int(bblog_tail(log, &bytes, &entries, NULL), 0, "looking behind them");
	is_u64(entries, 6, "leftovers of before the last flush");
	bblog_close(log);
	free(b.at);
}

static void test_new_layout(void)
{
	struct bytes b = load("v1.15.0/tm-close.nc_0_1.meta");
	struct bblog *log = open_log(&b, NULL);

	is_int(bblog_header(log)->layout, BBLOG_L2, "layout of 1.13.0 and later");
	is_u64(bblog_header(log)->begin, 128, "entries begin");
	is_u64(bblog_header(log)->rank, 1, "rank");
	bblog_close(log);
	free(b.at);
}

/* ---- what PnetCDF would have written elsewhere */

/* As 1.12.2 pads the header: to 4 bytes. That of t1.nc ends at 101. */
static void test_old_layout(void)
{
	struct bytes b = load(T1 "_0_0.meta");
	struct bblog *log;
	struct bblog_entry e;
	uint64_t seen = 0;

	memmove(b.at + HEADER_OLD, b.at + HEADER_T1, b.len - HEADER_T1);
	b.len -= HEADER_T1 - HEADER_OLD;
	log = open_log(&b, NULL);
	is_int(bblog_header(log)->layout, BBLOG_L0, "layout of 1.11.0 to 1.12.2");
	is_u64(bblog_header(log)->begin, HEADER_OLD, "entries begin");
	while (bblog_next(log, &e, NULL) > 0)
		seen += !e.wrong;
	is_u64(seen, 7, "entries");
	bblog_close(log);
	b.at[56] = HEADER_OLD; /* before the first put */
	b.len = HEADER_OLD;
	log = open_log(&b, NULL);
	is_int(bblog_header(log)->layout, BBLOG_L0, "layout of an empty log");
	is_int(bblog_header(log)->count_from, BBLOG_COUNT_NONE, "which has no count yet");
	is_u64(bblog_header(log)->count, 0, "and no entries");
	bblog_close(log);
	free(b.at);
}

static void swap(uint8_t *p, unsigned int len)
{
	for (unsigned int i = 0; i < len / 2; i++) {
		uint8_t t = p[i];

		p[i] = p[len - 1 - i];
		p[len - 1 - i] = t;
	}
}

/* All numbers of the header and of the entries, which are sound. */
static void make_big_endian(struct bytes *b)
{
	uint8_t *p = b->at;
	size_t off = HEADER_T1;

	p[16] = 1;
	swap(p + 16, 4);
	swap(p + 20, 4);
	for (int i = 24; i < 64; i += 8)
		swap(p + i, 8);
	swap(p + 64 + 4 + p[64] + 1, 4);
	swap(p + 64, 4);
	while (off < b->len) {
		uint64_t size;

		memcpy(&size, p + off, 8);
		swap(p + off, 8);
		for (int i = 8; i < 24; i += 4)
			swap(p + off + i, 4);
		for (size_t i = 24; i < size; i += 8)
			swap(p + off + i, 8);
		off += size;
	}
}

static void test_big_endian(void)
{
	struct bytes b = load(T1 "_0_0.meta");
	struct bblog *log;

	make_big_endian(&b);
	log = open_log(&b, NULL);
	ok(log && bblog_header(log)->big_endian, "of a big-endian machine");
	if (log)
		is_u64(count_same(log), 7, "the same entries");
	bblog_close(log);
	free(b.at);
}

static void test_mended(void)
{
	struct bytes b = load(T1 "_0_0.meta");
	struct bblog *log = open_log(&b, NULL);

	is_int(bblog_mended_header(log, 7, b.at, b.len, NULL), HEADER_T1, "a header as the README has it");
	bblog_close(log);
	log = open_log(&b, NULL);
	is_int(bblog_header(log)->count_from, BBLOG_COUNT_AT_48, "is known as such");
	is_u64(count_same(log), 7, "and has the same entries");
	ok(bblog_mended_header(log, 7, b.at, 100, NULL) == -ENOSPC, "it needs its room");
	bblog_close(log);
	free(b.at);
}

/* ---- damage */

static void refused(const char *what, size_t off, uint8_t value, size_t len)
{
	struct cistern_error err = { 0 };
	struct bytes b = load(T1 "_0_0.meta");
	struct bblog *log;

	b.at[off] = value;
	if (len)
		b.len = len;
	log = open_log(&b, &err);
	ok(!log && err.code == -EBADMSG && strstr(err.text, "byte "), "refused: %s: %s", what, err.text);
	bblog_close(log);
	free(b.at);
}

static void test_bad_headers(void)
{
	refused("another magic", 3, 'X', 0);
	refused("another format", 8, 'B', 0);
	refused("an order of bytes that there is not", 17, 1, 0);
	refused("external that is neither", 21, 1, 0);
	refused("no ranks", 24, 0, 0);
	refused("a rank that there is not", 32, 9, 0);
	refused("a name too long", 65, 0x20, 0);
	refused("a name that ends earlier", 75, 0, 0);
	refused("a relative path", 68, 'x', 0);
	refused("a host's name too long", 91, 9, 0);
	refused("half a header", 0, 'P', 80);
	refused("a header without its padding", 0, 'P', 98);
}

/* What becomes of entry number 1 when a byte of it is another. */
static void broken_entry(const char *what, size_t off, uint8_t value, int expected, bool wrong)
{
	struct cistern_error err = { 0 };
	struct bytes b = load(T1 "_0_0.meta");
	struct bblog *log;
	struct bblog_entry e = { 0 };
	int r;

	b.at[200 + off] = value;
	log = open_log(&b, NULL);
	bblog_next(log, &e, &err);
	r = bblog_next(log, &e, &err);
	ok(r == expected && (r < 0 || (e.wrong != NULL) == wrong), "%s: %s", what, r < 0 ? err.text : e.wrong);
	if (r > 0)
		ok(bblog_next(log, &e, &err) == 1 && e.off == 288, "and the next one is found");
	bblog_close(log);
	free(b.at);
}

static void test_bad_entries(void)
{
	broken_entry("a size that does not fit", 0, 96, -EBADMSG, false);
	broken_entry("a kind that there is not", 8, 0xfb, -EBADMSG, false);
	broken_entry("another number of dimensions", 20, 3, -EBADMSG, false);
	broken_entry("thousands of dimensions", 22, 3, -EBADMSG, false);
	broken_entry("a type that there is not", 12, 14, 1, true);
	broken_entry("a variable below 0", 19, 0x80, 1, true);
	broken_entry("values elsewhere", 24, 60, 1, true);
	broken_entry("a length that does not fit", 32, 11, 1, true);
	broken_entry("a start below 0", 47, 0x80, 1, true);
	broken_entry("a count below 0", 63, 0x80, 1, true);
	broken_entry("more elements than there are numbers", 62, 0x70, 1, true);
	broken_entry("a stride of 0", 72, 0, 1, true);
	broken_entry("strides where there are none", 8, 0xfd, 1, true);
}

static void test_torn(void)
{
	struct bytes b = load(T1 "_0_0.meta");
	struct cistern_error err = { 0 };
	struct bblog_entry e;
	struct bblog *log;
	uint64_t n = 0;
	int r;

	b.len -= 3;
	log = open_log(&b, NULL);
	while ((r = bblog_next(log, &e, &err)) > 0)
		n++;
	is_int(r, -EBADMSG, "the last entry is torn");
	is_u64(n, 6, "those before it are there");
	ok(strstr(err.text, "byte 608") != NULL, "%s", err.text);
	bblog_close(log);
	free(b.at);
}

/* ---- shared mode */

/* Both ranks' files as one, each in its own blocks. */
static struct bytes share(const char *suffix)
{
	struct bytes all = { .at = calloc(1, FILE_MAX) };
	char name[64];

	for (unsigned int rank = 0; rank < 2; rank++) {
		struct bytes one;

		snprintf(name, sizeof(name), CRASH "_0_%u.%s", rank, suffix);
		one = load(name);
		all.len = rank * BBLOG_BLOCK_BYTES + one.len;
		memcpy(all.at + rank * BBLOG_BLOCK_BYTES, one.at, one.len);
		free(one.at);
	}
	return all;
}

/* ---- replay */

struct target {
	struct bytes file;
	unsigned int found[5]; /* of each kind */
	struct bbreplay_finding last[5];
	uint64_t end_of_writes;
	bool ascending;
	uint64_t skip_log, skip_seq; /* UINT64_MAX: none */
	uint64_t memory_bytes;
	unsigned int num_reserved; /* calls */
	uint64_t reserved_off, reserved_len;
};

static int target_read(void *arg, uint64_t off, void *buf, size_t len)
{
	struct target *t = arg;

	return read_bytes(&t->file, off, buf, len);
}

static int target_write(void *arg, uint64_t off, const void *buf, size_t len)
{
	struct target *t = arg;

	if (off + len > 65536)
		return -EFBIG;
	if (off != CLASSIC_NUMRECS_OFF)
		t->ascending &= off >= t->end_of_writes;
	t->end_of_writes = off + len;
	memcpy(t->file.at + off, buf, len);
	if (off + len > t->file.len)
		t->file.len = off + len;
	return 0;
}

static void target_reserve(void *arg, uint64_t off, uint64_t len)
{
	struct target *t = arg;

	t->num_reserved += t->end_of_writes == 0;
	t->reserved_off = off;
	t->reserved_len = len;
}

static void target_found(void *arg, const struct bbreplay_finding *f)
{
	struct target *t = arg;

	t->found[f->kind]++;
	t->last[f->kind] = *f;
}

static bool target_skip(void *arg, size_t log, uint64_t seq)
{
	struct target *t = arg;

	return log == t->skip_log && seq == t->skip_seq;
}

struct pair {
	struct bytes meta, data;
	struct bbreplay_log log;
};

static void open_pair(struct pair *p, const char *file, unsigned int rank)
{
	char name[64];

	snprintf(name, sizeof(name), "%s_0_%u.meta", file, rank);
	p->meta = load(name);
	snprintf(name, sizeof(name), "%s_0_%u.data", file, rank);
	p->data = load(name);
	p->log = (struct bbreplay_log){ .meta = open_log(&p->meta, NULL), .data = source(&p->data), .num_channels = 1 };
}

static void close_pair(struct pair *p)
{
	bblog_close(p->log.meta);
	free(p->meta.at);
	free(p->data.at);
}

static struct bbreplay_stats replay(struct target *t, const struct bbreplay_log *logs, size_t num, bool dry)
{
	struct bbreplay_ops ops = { .read = target_read,
		.write = target_write,
		.reserve = target_reserve,
		.found = target_found,
		.skip = target_skip,
		.arg = t,
		.memory_bytes = t->memory_bytes,
		.old_size = t->file.len,
		.dry = dry };
	struct bbreplay_stats stats = { 0 };
	struct cistern_error err = { 0 };
	struct bbreplay *b = NULL;
	struct classic nc;

	t->ascending = true;
	is_int(classic_decode(t->file.at, t->file.len, &nc, NULL), 0, "the netCDF file's header");
	is_int(bbreplay_create(&nc, logs, num, &ops, &b, &err), 0, "first pass");
	is_int(bbreplay_run(b, &err), 0, "second pass");
	ok(t->ascending, "writes go up");
	stats = *bbreplay_stats(b);
	bbreplay_destroy(b);
	classic_destroy(&nc);
	return stats;
}

static void is_file(const struct bytes *got, const char *name)
{
	struct bytes expected = load(name);

	ok(got->len == expected.len && memcmp(got->at, expected.at, got->len) == 0, "equal to %s", name);
	free(expected.at);
}

static struct target make_target(const char *name)
{
	return (struct target){ .file = load(name), .skip_log = UINT64_MAX, .memory_bytes = BBREPLAY_MIN_BYTES };
}

static void replay_pairs(const char *file, const char *base, const char *expected, uint64_t changed)
{
	struct pair p[2];
	struct target t = make_target(base);
	struct bbreplay_stats s;

	open_pair(&p[0], file, 0);
	open_pair(&p[1], file, 1);
	s = replay(&t, (struct bbreplay_log[]){ p[0].log, p[1].log }, 2, false);
	is_file(&t.file, expected);
	ok((s.changed_bytes > 0) == (changed > 0) && (s.writes > 0) == (changed > 0), "%s: what changes is counted",
		base);
	is_u64(s.left_out, 0, "every entry was replayed");
	close_pair(&p[0]);
	close_pair(&p[1]);
	free(t.file.at);
}

static void test_replay(void)
{
	struct pair p[2];
	struct target t;
	struct bbreplay_stats s;

	replay_pairs(CRASH, CRASH, "v1.12.3-crash/t-recovered.nc", 1);
	replay_pairs(CRASH, "v1.12.3-crash/t-recovered.nc", "v1.12.3-crash/t-recovered.nc", 0);
	replay_pairs(T1, T1, T1, 0);
	replay_pairs("v1.12.3-redef/t-redef.nc", "v1.12.3-redef/t-redef.nc", "v1.12.3-redef/t-redef.nc", 0);
	replay_pairs("v1.15.0/tm-close.nc", "v1.15.0/tm-close.nc", "v1.15.0/tm-close.nc", 0);

	t = make_target(CRASH);
	open_pair(&p[0], CRASH, 0);
	s = replay(&t, &p[0].log, 1, true);
	ok(s.changed_bytes > 0 && s.writes == 0 && s.num_records == 1 && s.old_records == 0, "a dry run only counts");
	is_file(&t.file, CRASH);
	close_pair(&p[0]);
	free(t.file.at);
}

static void test_shared(void)
{
	struct bytes meta = share("meta"), data = share("data");
	struct bblog_source src = source(&meta);
	struct target t = make_target(CRASH);
	struct bbreplay_log logs[2];
	uint32_t num = 0;

	is_int(bblog_channels(&src, &num, NULL), 0, "shared mode");
	is_u64(num, 2, "channels");
	for (uint32_t i = 0; i < num; i++) {
		logs[i] = (struct bbreplay_log){ .data = source(&data), .channel = i, .num_channels = num };
		is_int(bblog_open(&src, i, num, &logs[i].meta, NULL), 0, "channel");
	}
	is_u64(bblog_header(logs[1].meta)->rank, 1, "rank of the second one");
	replay(&t, logs, 2, false);
	is_file(&t.file, "v1.12.3-crash/t-recovered.nc");
	bblog_close(logs[0].meta);
	bblog_close(logs[1].meta);
	free(meta.at);
	free(data.at);
	free(t.file.at);
}

/* The program gave up entry 3 of rank 0, which put 77 where entry 4 puts 88; and rank 1's row is over rank 0's. */
static void test_findings(void)
{
	struct pair p[2];
	struct target t = make_target(CRASH);
	struct bbreplay_stats s;

	open_pair(&p[0], CRASH, 0);
	open_pair(&p[1], CRASH, 1);
	t.skip_log = 0;
	t.skip_seq = 3;
	p[1].data.len -= 1;
	p[1].log.data.size -= 1;
	s = replay(&t, (struct bbreplay_log[]){ p[0].log, p[1].log }, 2, false);
	is_u64(s.skipped, 1, "left out as asked");
	is_u64(t.found[BBREPLAY_DATA], 1, "an entry without all of its values");
	is_u64(t.last[BBREPLAY_DATA].seq, 6, "is the last one");
	is_u64(t.found[BBREPLAY_CONFLICT], 1, "a variable that two ranks wrote");
	is_u64(t.last[BBREPLAY_CONFLICT].var, 0, "is A");
	is_u64(t.last[BBREPLAY_CONFLICT].num, s.conflict_bytes, "with these bytes");
	is_u64(s.entries, 12, "entries that were replayed");
	is_u64(s.left_out, 1, "and not");
	close_pair(&p[0]);
	close_pair(&p[1]);
	free(t.file.at);
}

/* ---- small puts: what the first pass kept of them, or their entries a second time */

#define PUTS       400u /* of three values of A(4, 6) each */
#define PUT_VALUES 3u
#define PUT_WRONG  130u /* whose first value does not fit, of the first rank */
#define A_BEGIN    512u /* as PnetCDF aligns the first variable */
#define PUT_BYTES  (BBLOG_ENTRY_BYTES + 2u * 3u * 8u)

static uint64_t put_index(uint64_t put)
{
	return put * 7 % 24 / 6 * 6 + put % 4;
}

static int64_t put_value(unsigned int rank, uint64_t put, uint64_t i)
{
	return rank == 0 && put == PUT_WRONG && i == 0 ? INT64_C(1) << 40 : (int64_t)(put * 1000 + i);
}

/* Entry and values of one put, of 64-bit integers to A. */
static void add_put(struct pair *p, unsigned int rank, uint64_t put)
{
	const uint64_t len = PUT_VALUES * sizeof(int64_t);
	uint64_t words[] = { PUT_BYTES, (uint64_t)BBLOG_LONGLONG << 32 | (uint32_t)BBLOG_VARA, UINT64_C(2) << 32,
		p->data.len, len, put_index(put) / 6, put_index(put) % 6, 1, PUT_VALUES, 0, 0 };

	memcpy(p->meta.at + p->meta.len, words, sizeof(words));
	p->meta.len += sizeof(words);
	for (uint64_t i = 0; i < PUT_VALUES; i++, p->data.len += sizeof(int64_t))
		memcpy(p->data.at + p->data.len, &(int64_t){ put_value(rank, put, i) }, sizeof(int64_t));
}

/* The log of a real job, with count puts of ours instead of its own. */
static void make_puts(struct pair *p, unsigned int rank, uint64_t count)
{

	open_pair(p, CRASH, rank);
	bblog_close(p->log.meta);
	p->meta.len = HEADER_T1;
	p->data.len = BBLOG_DATA_BEGIN;
	memcpy(p->meta.at + 56, &count, sizeof(count));
	for (uint64_t put = 0; put < count; put++)
		add_put(p, rank, put);
	p->meta.seen = 0;
	p->log = (struct bbreplay_log){ .meta = open_log(&p->meta, NULL), .data = source(&p->data), .num_channels = 1 };
}

/* Every value of A as the last put left it; both ranks put the same but for the one that does not fit. */
static unsigned int count_right(const struct target *t)
{
	struct classic nc;
	unsigned int right = 0;
	int64_t last[24] = { 0 };

	if (classic_decode(t->file.at, t->file.len, &nc, NULL) < 0)
		return 0;
	for (uint64_t i = 0; i < PUTS * PUT_VALUES; i++)
		last[put_index(i / PUT_VALUES) + i % PUT_VALUES] = put_value(1, i / PUT_VALUES, i % PUT_VALUES);
	for (uint64_t i = 0; i < 24; i++) {
		const uint8_t *p = t->file.at + nc.vars[0].begin + 4 * i;

		right += last[i] == ((int64_t)p[0] << 24 | p[1] << 16 | p[2] << 8 | p[3]);
	}
	classic_destroy(&nc);
	return right;
}

/* Returns how many bytes of the entries' log of the first rank were read. */
static uint64_t replay_puts(uint64_t memory_bytes)
{
	struct target t = make_target(CRASH);
	struct bbreplay_stats s;
	struct pair p[2];
	uint64_t seen;

	t.memory_bytes = memory_bytes;
	make_puts(&p[0], 0, PUTS);
	make_puts(&p[1], 1, PUTS);
	s = replay(&t, (struct bbreplay_log[]){ p[0].log, p[1].log }, 2, false);
	seen = p[0].meta.seen;
	is_u64(s.entries, 2 * PUTS, "all puts were replayed");
	is_u64(count_right(&t), 24, "and every value is the last one");
	is_u64(t.found[BBREPLAY_RANGE], 1, "one put has a value that does not fit");
	is_u64(t.last[BBREPLAY_RANGE].seq, PUT_WRONG, "this one");
	is_u64(t.last[BBREPLAY_RANGE].num, 1, "and one only");
	is_u64(s.covered_bytes, 24 * 4, "bytes that were covered");
	ok(s.own_bytes > 0, "some were put more than once");
	close_pair(&p[0]);
	close_pair(&p[1]);
	free(t.file.at);
	return seen;
}

static void test_small_puts(void)
{
	uint64_t with = replay_puts(UINT64_C(1) << 20), without = replay_puts(0), all = HEADER_T1 + PUTS * PUT_BYTES;

	ok(with < all + 8192, "with memory entries are read once: %" PRIu64 " bytes", with);
	ok(without > 2 * (all - 8192), "and without it twice: %" PRIu64 " bytes", without);
}

/* The first puts of one rank: what was reserved, in values of A from the first one on. */
static void is_reserved(uint64_t num_puts, bool dry, unsigned int calls, uint64_t values)
{
	struct target t = make_target(CRASH);
	struct pair p;

	make_puts(&p, 0, num_puts);
	replay(&t, &p.log, 1, dry);
	ok(t.num_reserved == calls, "%" PRIu64 " puts: room was asked for %u times before the first write", num_puts,
		t.num_reserved);
	if (calls > 0)
		ok(t.reserved_off == A_BEGIN && t.reserved_len == 4 * values,
			"all of it, and no more: %" PRIu64 " and %" PRIu64, t.reserved_off, t.reserved_len);
	close_pair(&p);
	free(t.file.at);
}

static void test_reserve(void)
{
	is_reserved(1, false, 1, PUT_VALUES);
	is_reserved(2, false, 0, 0); /* values 0 to 2 and 7 to 9: what lies between them stays a hole */
	is_reserved(PUTS, false, 1, 24);
	is_reserved(PUTS, true, 0, 0);
}

/* ---- the corpus of the fuzzer */

static bool is_sound(const char *name, uint8_t *at, size_t len)
{
	struct bytes b = { .at = at, .len = len }, nothing = { .at = calloc(1, 1000), .len = 1000 };
	struct target t = make_target(CRASH);
	struct bblog *log = open_log(&b, NULL);
	bool sound = false;

	(void)name;
	if (log) {
		struct bbreplay_log one = { .meta = log, .data = source(&nothing), .num_channels = 1 };
		struct bbreplay_stats s = replay(&t, &one, 1, true);

		sound = s.left_out == 0 && s.entries == bblog_header(log)->count;
	}
	bblog_close(log);
	free(nothing.at);
	free(t.file.at);
	return sound;
}

/* ---- values */

static void convert(const char *what, enum bblog_type from, const void *value, uint32_t bytes, uint32_t version,
	enum classic_type to, const char *expected_hex, uint64_t unfit)
{
	struct classic_var v = { .type = to };
	struct bblog_header h = { 0 };
	struct bblog_entry e = { .type = from, .elem_bytes = bytes };
	struct bbvalue b;
	uint8_t out[8] = { 0 };
	char hex[17] = "";

	if (!ok(bbvalue_plan(&h, &e, version, &v, &b) == NULL, "%s can be converted", what))
		return;
	is_u64(bbvalue_convert(&b, value, out, 1), unfit, "out of range");
	for (uint32_t i = 0; i < classic_type_bytes(to); i++)
		snprintf(hex + 2 * i, 3, "%02x", out[i]);
	is_str(hex, expected_hex, what);
}

/* The machine that runs the tests is little-endian, as the header above says; values by C's own rules and the fill values of netcdf.h. */
static void test_values(void)
{
	int8_t minus_1 = -1;
	uint8_t u200 = 200;
	int16_t s300 = 300;
	int32_t i = -70000;
	uint32_t u = 4000000000u;
	int64_t l = -5;
	uint64_t ul = UINT64_MAX;
	float f = 127.9f, fbig = 3e38f, fnan = NAN, finf = INFINITY;
	double d = 1e39, dneg = -0.5, dint = -2147483648.9;

	convert("int to int", BBLOG_INT, &i, 4, 5, CLASSIC_INT, "fffeee90", 0);
	convert("int to short", BBLOG_INT, &i, 4, 5, CLASSIC_SHORT, "8001", 1);
	convert("int to double", BBLOG_INT, &i, 4, 1, CLASSIC_DOUBLE, "c0f1170000000000", 0);
	convert("int to uint", BBLOG_INT, &i, 4, 5, CLASSIC_UINT, "ffffffff", 1);
	convert("short to byte", BBLOG_SHORT, &s300, 2, 1, CLASSIC_BYTE, "81", 1);
	convert("uchar to byte, CDF-1", BBLOG_UCHAR, &u200, 1, 1, CLASSIC_BYTE, "c8", 0);
	convert("uchar to byte, CDF-5", BBLOG_UCHAR, &u200, 1, 5, CLASSIC_BYTE, "81", 1);
	convert("schar to ubyte", BBLOG_SCHAR, &minus_1, 1, 5, CLASSIC_UBYTE, "ff", 1);
	convert("schar to int64", BBLOG_SCHAR, &minus_1, 1, 5, CLASSIC_INT64, "ffffffffffffffff", 0);
	convert("uint to int", BBLOG_UINT, &u, 4, 1, CLASSIC_INT, "80000001", 1);
	convert("uint to float", BBLOG_UINT, &u, 4, 1, CLASSIC_FLOAT, "4f6e6b28", 0);
	convert("long of 8 to int64", BBLOG_LONG, &l, 8, 5, CLASSIC_INT64, "fffffffffffffffb", 0);
	convert("long of 8 to int", BBLOG_LONG, &l, 8, 1, CLASSIC_INT, "fffffffb", 0);
	convert("long of 4 to int", BBLOG_LONG, &i, 4, 1, CLASSIC_INT, "fffeee90", 0);
	convert("ulonglong to int64", BBLOG_ULONGLONG, &ul, 8, 5, CLASSIC_INT64, "8000000000000002", 1);
	convert("float to byte", BBLOG_FLOAT, &f, 4, 1, CLASSIC_BYTE, "81", 1);
	convert("float to short", BBLOG_FLOAT, &f, 4, 1, CLASSIC_SHORT, "007f", 0);
	convert("float to double", BBLOG_FLOAT, &fbig, 4, 1, CLASSIC_DOUBLE, "47ec363cc0000000", 0);
	convert("infinity to double", BBLOG_FLOAT, &finf, 4, 1, CLASSIC_DOUBLE, "479e000000000000", 1);
	convert("infinity to float", BBLOG_FLOAT, &finf, 4, 1, CLASSIC_FLOAT, "7f800000", 0);
	convert("NaN to int", BBLOG_FLOAT, &fnan, 4, 1, CLASSIC_INT, "80000000", 0);
	convert("double to float", BBLOG_DOUBLE, &d, 8, 1, CLASSIC_FLOAT, "7cf00000", 1);
	convert("double below 0 to uint", BBLOG_DOUBLE, &dneg, 8, 5, CLASSIC_UINT, "ffffffff", 1);
	convert("double just below the least int", BBLOG_DOUBLE, &dint, 8, 1, CLASSIC_INT, "80000001", 1);
	convert("native", BBLOG_NATIVE, &s300, 2, 1, CLASSIC_SHORT, "012c", 0);
}

static void test_no_conversion(void)
{
	struct bblog_header h = { 0 };
	struct bblog_entry text = { .type = BBLOG_TEXT, .elem_bytes = 1 }, num = { .type = BBLOG_INT, .elem_bytes = 4 },
			   native = { .type = BBLOG_NATIVE, .elem_bytes = 4, .num_elems = 1 };
	struct classic_var c = { .type = CLASSIC_CHAR }, s = { .type = CLASSIC_SHORT };
	struct bbvalue b;

	ok(bbvalue_plan(&h, &text, 1, &c, &b) == NULL, "text to text");
	ok(bbvalue_plan(&h, &text, 1, &s, &b) != NULL, "no text to numbers");
	ok(bbvalue_plan(&h, &num, 1, &c, &b) != NULL, "no numbers to text");
	ok(bbvalue_plan(&h, &native, 1, &s, &b) != NULL, "native values of another size");
}

int main(void)
{
	test_entries();
	test_redefined();
	test_new_layout();
	test_old_layout();
	test_big_endian();
	test_mended();
	test_bad_headers();
	test_bad_entries();
	test_torn();
	test_replay();
	test_shared();
	test_findings();
	test_small_puts();
	test_reserve();
	corpus_check("bblog", is_sound, 30, 9);
	test_values();
	test_no_conversion();
	return done_testing();
}
