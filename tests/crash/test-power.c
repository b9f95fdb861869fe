/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Power lost, and calls that fail, at every point of a store's life.
 *
 * A run makes random changes on a store over a simulated disk and keeps a list of them: which were acknowledged, and
 * up to where a sync said that they are durable. Then power is lost when the k-th sync begins, or the n-th call fails
 * and the daemon dies. The store is opened again, and must show exactly what some prefix of the list gives, one that
 * holds everything it had promised to keep: after a loss of power all that was synced, after a death all that was
 * acknowledged. Of the changes behind the promise a write may be missing when its payload did not reach the disk,
 * which is looked up on the disk itself, past the store. The state must also agree with one that is rebuilt from the
 * journal; and both must go on to hold after one more opening.
 *
 * Beside them are private files, which are written past the journal, at their end only, and sealed at times: what was synced of them must be there,
 * the rest may be, or be zeros, or (after a loss of power) not be there at all. Who may only read must find all that, too, before the store is opened.
 *
 * In some runs the device is full for several calls, a store goes on behind that, and power is lost at one of the next syncs.
 *
 * Every cell of 4 bytes that a write puts holds the number of that change, so a cell tells where it comes from.
 *
 * CISTERN_TEST_SEED=N repeats a run, CISTERN_TEST_POINTS=N sets how many points are tried (0: all).
 */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "format/store/store.h"
#include "tests/lib/sim.h"
#include "tests/lib/remove_tree.h"
#include "tests/lib/tap.h"

#define NUM_NAMES   5
#define NUM_PRIVATE 12
#define NUM_REFUSED 20 /* so often may a run meet a full device */
#define NUM_CHANGES 90
#define MAX_CELLS   (128u << 10 >> 2) /* of a file: 128 KiB */
#define MAX_FILES   (NUM_CHANGES + 1)
#define CELL        4u

enum change_kind {
	CHANGE_CREATE,
	CHANGE_WRITE,
	CHANGE_TRUNCATE,
	CHANGE_PUNCH,
	CHANGE_RENAME,
	CHANGE_UNLINK,
	CHANGE_FREE
};

struct change {
	enum change_kind kind;
	unsigned int file, other; /* numbers of files, 1 up; other: who lost its name */
	unsigned int name, to;    /* 1 up */
	uint32_t from, num;       /* cells; TRUNCATE: num = the new size */
	bool keep_size;
	bool placed; /* WRITE: where its payload is, is known */
	uint32_t segment;
	uint64_t segment_off;
	uint64_t seq; /* of its record; 0: it was not acknowledged */
};

struct file {
	uint32_t num; /* cells */
	uint32_t cell[MAX_CELLS];
};

struct model {
	unsigned int name[NUM_NAMES + 1]; /* file number, 0: none */
	struct file *file[MAX_FILES + 1]; /* owned */
};

struct private_file {
	bool there, promised; /* made; and durable */
	bool sealed;
	uint64_t ino;
	uint32_t segment;
	uint32_t num, kept; /* cells: acknowledged; durable */
};

struct run {
	struct sim *sim;
	struct io *io;
	struct store *s;
	struct store_options opt;
	char index[300];
	uint8_t boot[16];
	uint64_t random;
	struct change change[NUM_CHANGES + NUM_NAMES];
	uint64_t ino[MAX_FILES + 1];
	unsigned int num, acked, synced; /* changes begun, acknowledged, durable */
	unsigned int files;
	bool goes_on;         /* when the device is full */
	unsigned int refused; /* so often it was */
	struct private_file private[NUM_PRIVATE];
	struct model now; /* with all changes begun: to choose sensible ones */
	char why[1200];   /* what went wrong */
};

static uint64_t num_lost; /* private segments, over all runs */
static char work[] = "/tmp/cistern-test-power-XXXXXX";

static uint32_t roll(struct run *r, uint32_t below)
{
	r->random = r->random * 6364136223846793005u + 1442695040888963407u;
	return (uint32_t)(r->random >> 33) % below;
}

static bool fail(struct run *r, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Says what is wrong; false. */
static bool fail(struct run *r, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(r->why, sizeof(r->why), fmt, ap);
	va_end(ap);
	return false;
}

/* ---- the model ---- */

static void model_free(struct model *m)
{
	for (unsigned int i = 0; i <= MAX_FILES; i++)
		free(m->file[i]);
	memset(m, 0, sizeof(*m));
}

static void set_size(struct file *f, uint32_t num)
{
	if (num > f->num)
		memset(f->cell + f->num, 0, (num - f->num) * CELL);
	f->num = num;
}

static void apply_data(struct file *f, const struct change *c, uint32_t value)
{
	uint32_t end = c->from + c->num, i;

	if (c->kind == CHANGE_TRUNCATE) {
		set_size(f, c->num);
		return;
	}
	if (c->kind == CHANGE_PUNCH && c->keep_size && end > f->num)
		end = f->num;
	if (end > f->num)
		set_size(f, end);
	for (i = c->from; i < end; i++)
		f->cell[i] = c->kind == CHANGE_WRITE ? value : 0;
}

static void apply(struct model *m, const struct change *c, uint32_t value)
{
	switch (c->kind) {
	case CHANGE_CREATE:
		m->file[c->file] = calloc(1, sizeof(struct file));
		m->name[c->name] = c->file;
		break;
	case CHANGE_RENAME:
		m->name[c->name] = 0;
		m->name[c->to] = c->file;
		break;
	case CHANGE_UNLINK: m->name[c->name] = 0; break;
	case CHANGE_FREE:
		free(m->file[c->file]);
		m->file[c->file] = NULL;
		break;
	default: apply_data(m->file[c->file], c, value);
	}
}

/* ---- changes ---- */

static int commit_data(struct run *r, struct change *c, uint32_t value)
{
	struct record rec = { .ino = r->ino[c->file] };
	struct extent e[2];
	uint64_t next;
	uint32_t *buf;
	size_t num = 0;
	int e1;

	if (c->kind == CHANGE_TRUNCATE) {
		rec.type = RECORD_TRUNCATE;
		rec.size = (uint64_t)c->num * CELL;
		return store_commit(r->s, &rec);
	}
	if (c->kind == CHANGE_PUNCH) {
		rec.type = RECORD_PUNCH;
		rec.off = (uint64_t)c->from * CELL;
		rec.len = (uint64_t)c->num * CELL;
		rec.flags = c->keep_size ? RECORD_F_KEEP_SIZE : 0;
		return store_commit(r->s, &rec);
	}
	buf = calloc(c->num, CELL);
	for (uint32_t i = 0; buf && i < c->num; i++)
		buf[i] = value;
	e1 = buf ? store_write(r->s, rec.ino, 0, (uint64_t)c->from * CELL, buf, c->num * CELL) : -ENOMEM;
	free(buf);
	if (!e1 &&
		state_extents(store_state(r->s), rec.ino, (uint64_t)c->from * CELL, c->num * CELL, e, 2, &num, &next) ==
			0 &&
		num == 1 && e[0].len == c->num * CELL) {
		c->placed = true;
		c->segment = e[0].segment;
		c->segment_off = e[0].segment_off;
	}
	return e1;
}

static int commit(struct run *r, struct change *c, uint32_t value)
{
	struct record rec = { .ino = r->ino[c->file], .parent = STATE_ROOT_INO };

	sprintf(rec.name, "name%u", c->name);
	switch (c->kind) {
	case CHANGE_CREATE:
		rec.type = RECORD_CREATE;
		rec.ino = r->ino[c->file] = state_new_ino(store_state(r->s));
		rec.mode = S_IFREG | 0644;
		return store_commit(r->s, &rec);
	case CHANGE_RENAME:
		rec.type = RECORD_RENAME;
		rec.from_parent = STATE_ROOT_INO;
		sprintf(rec.from_name, "name%u", c->name);
		sprintf(rec.name, "name%u", c->to);
		rec.other_ino = c->other ? r->ino[c->other] : 0;
		return store_commit(r->s, &rec);
	case CHANGE_UNLINK: rec.type = RECORD_UNLINK; return store_commit(r->s, &rec);
	case CHANGE_FREE: rec.type = RECORD_FREE; return store_commit(r->s, &rec);
	default: return commit_data(r, c, value);
	}
}

/* A change is listed before it is made: one that fails may be found, too. */
static int make_change(struct run *r, const struct change *c)
{
	struct change *mine = &r->change[r->num++];
	int e;

	*mine = *c;
	uint64_t seq = state_seq(store_state(r->s)) + 1;
	e = commit(r, mine, r->num);
	if (e == -ENOSPC && r->goes_on)
		r->num--; /* nothing has happened */
	if (e)
		return e;
	mine->seq = seq;
	r->acked = r->num;
	apply(&r->now, mine, r->num);
	return 0;
}

static int free_file(struct run *r, unsigned int file)
{
	return make_change(r, &(struct change){ .kind = CHANGE_FREE, .file = file });
}

static int change_name(struct run *r, unsigned int name, unsigned int file)
{
	struct change c = { .kind = CHANGE_UNLINK, .file = file, .name = name, .to = 1 + roll(r, NUM_NAMES) };
	int e;

	if (c.to != name && roll(r, 3)) {
		c.kind = CHANGE_RENAME;
		c.other = r->now.name[c.to];
	}
	e = make_change(r, &c);
	if (!e && (c.kind == CHANGE_UNLINK || c.other))
		e = free_file(r, c.kind == CHANGE_UNLINK ? file : c.other);
	return e;
}

static int change_data(struct run *r, unsigned int file)
{
	static const uint32_t sizes[] = { 1, 8, 300, 1024, 5000, 16384 };
	struct change c = { .kind = CHANGE_WRITE, .file = file, .num = 1 + roll(r, sizes[roll(r, 6)]) };
	uint32_t what = roll(r, 10), size = r->now.file[file]->num;

	c.from = roll(r, 2) ? size : roll(r, size + 1000);
	if (c.from + c.num > MAX_CELLS)
		c.from = 0;
	if (what == 0) {
		c.kind = CHANGE_TRUNCATE;
		c.num = roll(r, size + 2000) % MAX_CELLS;
	} else if (what == 1) {
		c.kind = CHANGE_PUNCH;
		c.from = roll(r, size + 1);
		if (c.from + c.num > MAX_CELLS)
			c.num = MAX_CELLS - c.from;
		c.keep_size = roll(r, 2);
	}
	return c.num || c.kind == CHANGE_TRUNCATE ? make_change(r, &c) : 0;
}

/* ---- private files: the cells of file i are all the same ---- */

static uint32_t private_cell(unsigned int i)
{
	return 0x1000u + i;
}

static int make_private(struct run *r, unsigned int i)
{
	struct private_file *p = &r->private[i];
	struct record rec = { .type = RECORD_CREATE, .parent = STATE_ROOT_INO, .mode = S_IFREG | 0644 };
	bool later = roll(r, 2); /* it gets its segment */
	int e = segment_create_private(store_segments(r->s), &p->segment);

	if (e)
		return e;
	p->ino = rec.ino = state_new_ino(store_state(r->s));
	rec.segment = later ? 0 : p->segment;
	sprintf(rec.name, "private%u", i);
	e = store_commit(r->s, &rec);
	if (!e && later) {
		rec = (struct record){ .type = RECORD_PRIVATE, .ino = p->ino, .segment = p->segment };
		e = store_commit(r->s, &rec);
		if (e) { /* an ordinary file, which stays empty */
			p->sealed = true;
			p->there = true;
			return e;
		}
	}
	p->there = !e;
	return e;
}

/* As the kernel does: past the store. */
static int append_private(struct run *r, unsigned int i)
{
	struct private_file *p = &r->private[i];
	uint32_t cells[3000], num = 1 + roll(r, 3000);
	struct io_file *file = NULL;
	char path[64];
	int e;

	for (uint32_t c = 0; c < num; c++)
		cells[c] = private_cell(i);
	snprintf(path, sizeof(path), "segment/%08u.prv", p->segment);
	e = io_open(r->io, path, IO_READ | IO_WRITE, &file);
	if (!e)
		e = io_write(file, cells, num * CELL, (uint64_t)p->num * CELL);
	io_close(file);
	if (!e)
		p->num += num;
	return e;
}

static int seal_private(struct run *r, unsigned int i)
{
	struct private_file *p = &r->private[i];
	struct record_range range = { .len = (uint64_t)p->num * CELL };
	struct record rec = { .type = RECORD_SEAL,
		.ino = p->ino,
		.segment = p->segment,
		.size = range.len,
		.ranges = &range,
		.num_ranges = p->num > 0 };
	int e = store_commit(r->s, &rec);

	p->sealed = p->sealed || !e;
	return e;
}

/* All that was acknowledged before is durable; of a private file that is not sealed, that it is there. */
static void note_synced(struct run *r)
{
	r->synced = r->acked;
	for (unsigned int i = 0; i < NUM_PRIVATE; i++) {
		struct private_file *p = &r->private[i];

		p->promised = p->there;
		if (p->sealed)
			p->kept = p->num;
	}
}

static int sync_all(struct run *r)
{
	int e = store_sync(r->s);

	if (!e)
		note_synced(r);
	return e;
}

static int sync_private(struct run *r, unsigned int i)
{
	struct private_file *p = &r->private[i];
	int e = segment_sync_private(store_segments(r->s), p->segment);

	if (!e)
		e = sync_all(r);
	if (!e)
		p->kept = p->num;
	return e;
}

static int change_private(struct run *r)
{
	unsigned int i = roll(r, NUM_PRIVATE), what = roll(r, 8);

	if (!r->private[i].there)
		return make_private(r, i);
	if (r->private[i].sealed)
		return 0;
	return what == 0 ? seal_private(r, i) : what < 3 ? sync_private(r, i) : append_private(r, i);
}

static int one_step(struct run *r)
{
	unsigned int name = 1 + roll(r, NUM_NAMES), file = r->now.name[name], what = roll(r, 20);
	int e;

	if (what == 0)
		return sync_all(r);
	if (what == 1)
		return store_maintain(r->s, roll(r, 4) == 0);
	if (what == 2)
		return state_compact(store_state(r->s));
	if (what == 16)
		return state_checkpoint(store_state(r->s));
	if (what > 16)
		return change_private(r);
	if (!file) {
		r->files++;
		e = make_change(r, &(struct change){ .kind = CHANGE_CREATE, .file = r->files, .name = name });
		r->files -= e == -ENOSPC && r->goes_on;
		return e;
	}
	return what < 5 ? change_name(r, name, file) : change_data(r, file);
}

static int open_store(struct run *r, struct state_report *report, struct cistern_error *err)
{
	return store_open(work, &r->opt, &r->s, report, err);
}

/* The first change of a store's life, as the daemon makes it. */
static int adopt_root(struct store *s)
{
	struct record rec = {
		.type = RECORD_ADOPT, .ino = STATE_ROOT_INO, .name = ".", .mode = S_IFDIR | 0755, .nlink = 2
	};

	return store_commit(s, &rec);
}

/* Behind a full device everything that was acknowledged counts still, and power is lost soon. */
static int go_on(struct run *r, int e)
{
	if (e != -ENOSPC || !r->goes_on || r->refused++ == NUM_REFUSED)
		return e;
	if (r->refused == 1)
		sim_stop_at_sync(r->sim, 1 + roll(r, 6));
	return 0;
}

/* Until everything is done and closed, or something fails. */
static int live(struct run *r)
{
	int e = open_store(r, NULL, NULL);

	if (!e)
		e = adopt_root(r->s);
	while (!e && r->num < NUM_CHANGES)
		e = go_on(r, one_step(r));
	if (!e) {
		e = store_close(r->s);
		r->s = NULL;
		if (!e)
			note_synced(r);
		for (unsigned int i = 0; !e && i < NUM_PRIVATE; i++)
			r->private[i].kept = r->private[i].num;
	}
	return e;
}

/* ---- looking at what is left ---- */

/* Is the payload on the disk? Past the store. */
static bool payload_is_there(struct run *r, const struct change *c, uint32_t value)
{
	struct io_file *file = NULL;
	uint32_t *buf = calloc(c->num, CELL);
	bool there = false;
	char path[64];

	snprintf(path, sizeof(path), "segment/%08u.seg", c->segment);
	if (buf && c->placed && io_open(r->io, path, IO_READ, &file) == 0) {
		there = io_read_exact(file, buf, c->num * CELL, c->segment_off) == 0;
		for (uint32_t i = 0; there && i < c->num; i++)
			there = buf[i] == value;
		io_close(file);
	}
	free(buf);
	return there;
}

static bool same_file(struct run *r, const struct inode *in, const struct file *f)
{
	struct cistern_error err = { 0 };
	uint32_t *buf;
	bool same;

	if (in->size != (uint64_t)f->num * CELL)
		return fail(r, "inode %llu has %llu bytes instead of %llu", (unsigned long long)in->ino,
			(unsigned long long)in->size, (unsigned long long)f->num * CELL);
	buf = calloc(f->num + 1, CELL);
	same = buf && store_read(r->s, in, 0, in->size, buf, true, NULL, NULL, &err) == 0;
	if (!same)
		fail(r, "inode %llu cannot be read: %s", (unsigned long long)in->ino, err.text);
	for (uint32_t i = 0; same && i < f->num; i++)
		if (buf[i] != f->cell[i])
			same = fail(r, "inode %llu, cell %u: from change %u instead of %u", (unsigned long long)in->ino,
				i, buf[i], f->cell[i]);
	free(buf);
	return same;
}

static bool same_as(struct run *r, const struct model *m)
{
	struct state_name found;
	struct inode in;
	char name[16];
	int e;

	for (unsigned int i = 1; i <= NUM_NAMES; i++) {
		unsigned int file = m->name[i];

		snprintf(name, sizeof(name), "name%u", i);
		e = state_lookup(store_state(r->s), STATE_ROOT_INO, name, &found);
		if (!file && e == -ENOENT)
			continue;
		if (e || !file || found.ino != r->ino[file])
			return fail(r, "%s is %s instead of inode %llu", name, e ? "missing" : "another one",
				(unsigned long long)(file ? r->ino[file] : 0));
		if (state_inode(store_state(r->s), found.ino, &in) != 0)
			return fail(r, "%s has no inode", name);
		if (!same_file(r, &in, m->file[file]))
			return false;
	}
	return true;
}

/* Does the store show what the changes up to some point between promised and begun give? */
static bool is_a_prefix(struct run *r, unsigned int promised, const bool *there)
{
	struct model m = { 0 };
	unsigned int i;
	bool found = false;

	for (i = 0; !found && i <= r->num; i++) {
		if (i > 0 && (r->change[i - 1].kind != CHANGE_WRITE || i <= promised || there[i]))
			apply(&m, &r->change[i - 1], i);
		found = i >= promised && same_as(r, &m);
	}
	model_free(&m);
	return found;
}

static int read_private(struct run *r, const struct inode *in, uint32_t *cells, uint64_t cap, uint64_t *ret_size)
{
	struct cistern_error err = { 0 };
	uint64_t allocated;
	int64_t mtime_ns;
	int e = 0;

	*ret_size = in->size;
	if (in->flags & INODE_PRIVATE)
		e = segment_private_size(store_segments(r->s), in->private_segment, ret_size, &allocated, &mtime_ns);
	if (e || *ret_size > cap || *ret_size == 0)
		return e ? e : *ret_size ? -EFBIG : 0;
	return in->flags & INODE_PRIVATE ? segment_read(store_segments(r->s), in->private_segment, 0, cells, *ret_size)
					 : store_read(r->s, in, 0, *ret_size, cells, true, NULL, NULL, &err);
}

/* What was not synced may end anywhere, and be zeros from there on. */
static bool is_part_of(uint32_t cell, uint32_t whole)
{
	for (uint32_t byte = 0xff; byte; byte <<= 8)
		if (cell & byte && (cell ^ whole) & byte)
			return false;
	return true;
}

static bool private_holds(struct run *r, unsigned int i, uint32_t *cells, uint64_t cap)
{
	const struct private_file *p = &r->private[i];
	struct state_name found;
	struct inode in;
	char name[16];
	uint64_t size;
	int e;

	snprintf(name, sizeof(name), "private%u", i);
	e = state_lookup(store_state(r->s), STATE_ROOT_INO, name, &found);
	if (!e)
		e = state_inode(store_state(r->s), found.ino, &in);
	if (e)
		return !p->promised || fail(r, "%s: %s", name, strerror(-e));
	e = read_private(r, &in, cells, cap, &size);
	if (e)
		return fail(r, "%s cannot be read: %s", name, strerror(-e));
	if (size < (uint64_t)p->kept * CELL)
		return fail(r, "%s has %llu bytes instead of %u", name, (unsigned long long)size, p->kept * CELL);
	/* Behind num is what a failed append has left. */
	for (uint64_t c = 0; c < size / CELL && c < p->num; c++)
		if (c < p->kept ? cells[c] != private_cell(i) : !is_part_of(cells[c], private_cell(i)))
			return fail(
				r, "%s, cell %llu of %u kept ones: %x", name, (unsigned long long)c, p->kept, cells[c]);
	return true;
}

static bool privates_hold(struct run *r)
{
	uint64_t cap = (uint64_t)(NUM_CHANGES + 400) * 3000 * CELL;
	uint32_t *cells = malloc(cap);
	bool good = cells;

	for (unsigned int i = 0; good && i < NUM_PRIVATE; i++)
		good = private_holds(r, i, cells, cap);
	free(cells);
	return good;
}

static void first_difference(const char *line, void *arg)
{
	struct run *r = arg;

	if (!r->why[0])
		fail(r, "rebuilt from the journal: %s", line);
}

/* The state agrees with one made from the journal alone. */
static bool same_rebuilt(struct run *r)
{
	struct cistern_error err = { 0 };
	struct state_report report = { 0 };
	struct state *other = NULL;
	char path[320];
	struct state_options opt = { .io = r->io,
		.index_path = path,
		.mode = STATE_REBUILD_READ_ONLY,
		.journal_size = 1 << 16,
		.boot_id = r->boot };
	int64_t differences;

	snprintf(path, sizeof(path), "%s/rebuilt", work);
	remove_tree(path);
	if (state_open(&opt, &other, &report, &err) != 0)
		return fail(r, "cannot be rebuilt: %s", err.text);
	r->why[0] = 0;
	differences = state_compare(store_state(r->s), other, first_difference, r);
	state_destroy(other);
	if (differences < 0)
		return fail(r, "cannot be compared: %s", strerror((int)-differences));
	return differences == 0;
}

static bool holds(struct run *r, unsigned int promised, const bool *there, const char *when)
{
	char why[1024];

	if (is_a_prefix(r, promised, there) && privates_hold(r) && (r->opt.mode == STORE_READ_ONLY || same_rebuilt(r)))
		return true;
	snprintf(why, sizeof(why), "%.900s", r->why);
	return fail(r, "%s: %s (%u changes begun, %u acknowledged, %u synced)", when, why, r->num, r->acked, r->synced);
}

static bool reopen(struct run *r, const char *when)
{
	struct state_report report = { 0 };
	struct cistern_error err = { 0 };

	r->s = NULL;
	if (open_store(r, &report, &err) != 0)
		return fail(r, "%s: %s (%u changes begun, %u acknowledged, %u synced)", when, err.text, r->num,
			r->acked, r->synced);
	num_lost += report.lost_private;
	return true;
}

static int note_sync(const struct record *rec, void *arg)
{
	uint64_t *upto = arg;

	if (rec->type == RECORD_SYNC && rec->upto > *upto)
		*upto = rec->upto;
	return 0;
}

static int ignore(const struct record *rec, void *arg)
{
	(void)rec;
	(void)arg;
	return 0;
}

/* Up to where the journal that is left says that payloads are on the disk; some may have been given back since. */
static uint64_t synced_upto(struct run *r)
{
	struct cistern_error err = { 0 };
	struct journal_end end;
	uint64_t checkpoint = 0, upto = 0;

	(void)journal_checkpoint_load(r->io, ignore, NULL, &checkpoint, &err);
	(void)journal_replay(r->io, checkpoint, note_sync, &upto, &end, &err);
	return upto > checkpoint ? upto : checkpoint;
}

/* There is no store yet, or not all of it, and nothing in it: who may only read cannot make one. */
static bool never_began(const struct run *r)
{
	return r->synced == 0 && r->acked == 0 && !r->private[0].promised;
}

/* Opened, killed, opened again, closed, opened: always the same, and it can be written. */
static bool survives(struct run *r, unsigned int promised)
{
	bool there[NUM_CHANGES + NUM_NAMES + 1] = { false }, good;

	uint64_t upto = synced_upto(r);
	for (unsigned int i = 1; i <= r->num; i++) {
		const struct change *c = &r->change[i - 1];
		there[i] = c->kind == CHANGE_WRITE && ((c->seq && c->seq <= upto) || payload_is_there(r, c, i));
	}
	r->opt.mode = STORE_READ_ONLY;
	good = never_began(r) || (reopen(r, "opened to be read") && holds(r, promised, there, "opened to be read"));
	store_abandon(r->s);
	r->s = NULL;
	r->opt.mode = STORE_CREATE_OR_OPEN;
	good = good && reopen(r, "opened") && holds(r, promised, there, "opened");
	store_abandon(r->s);
	r->s = NULL;
	good = good && reopen(r, "killed and opened") && holds(r, promised, there, "killed and opened");
	if (good && (store_maintain(r->s, true) != 0 || store_close(r->s) != 0))
		return fail(r, "cannot be closed");
	good = good && reopen(r, "closed and opened") && holds(r, promised, there, "closed and opened");
	store_abandon(r->s);
	r->s = NULL;
	return good;
}

/* ---- runs ---- */

static bool begin(struct run *r, uint64_t seed)
{
	memset(r, 0, sizeof(*r));
	r->random = seed * 2 + 1;
	snprintf(r->index, sizeof(r->index), "%s/index", work);
	remove_tree(r->index);
	r->opt = (struct store_options){ .mode = STORE_CREATE_OR_OPEN,
		.backing = "/backing",
		.index_path = r->index,
		.boot_id = r->boot,
		.segment_size = 1 << 20,
		.journal_size = 1 << 16,
		.index_memory = 8 << 20,
		.reserve = 1 << 20 };
	memset(r->boot, 1, sizeof(r->boot));
	if (sim_create(&r->sim, &r->io) != 0)
		return fail(r, "no memory");
	sim_set_file_limit(r->sim, 4 << 20);
	r->opt.io = r->io;
	return true;
}

static void end(struct run *r)
{
	store_abandon(r->s);
	sim_destroy(r->sim);
	model_free(&r->now);
}

static bool run_power(struct run *r, uint64_t seed, uint64_t k)
{
	bool good = begin(r, seed);
	int e;

	if (!good)
		return false;
	sim_stop_at_sync(r->sim, k);
	e = live(r);
	store_abandon(r->s);
	r->s = NULL;
	if (sim_power_cut(r->sim, seed + k) != 0)
		good = fail(r, "no memory");
	memset(r->boot, 2, sizeof(r->boot));
	if (k % 2)
		remove_tree(r->index); /* the index is on another disk here, or gone with this one */
	if (good && e == 0 && r->synced != r->num)
		good = fail(r, "ended well, and is not all synced");
	good = good && survives(r, r->synced);
	end(r);
	return good;
}

/* A death takes nothing of it. */
static void keep_acknowledged(struct run *r)
{
	for (unsigned int i = 0; i < NUM_PRIVATE; i++) {
		r->private[i].promised = r->private[i].there;
		r->private[i].kept = r->private[i].num;
	}
}

static bool run_fault(struct run *r, uint64_t seed, uint64_t n, int error, bool power)
{
	bool good = begin(r, seed);
	int e;

	if (!good)
		return false;
	sim_fail_after(r->sim, n, error);
	e = live(r);
	if (!e && r->synced != r->num)
		good = fail(r, "ended well, and is not all synced");
	store_abandon(r->s);
	r->s = NULL;
	sim_fail_after(r->sim, 0, 0);
	if (power && sim_power_cut(r->sim, seed + n) != 0)
		good = fail(r, "no memory");
	memset(r->boot, power ? 2 : 1, sizeof(r->boot));
	if (!power)
		keep_acknowledged(r);
	good = good && survives(r, power ? r->synced : r->acked);
	end(r);
	return good;
}

/* The device is full for num calls, from the n-th on; power is lost soon after. */
static bool run_full(struct run *r, uint64_t seed, uint64_t n, uint64_t num)
{
	bool good = begin(r, seed);

	if (!good)
		return false;
	r->goes_on = true;
	sim_fail_for(r->sim, n, num, ENOSPC);
	(void)live(r);
	store_abandon(r->s);
	r->s = NULL;
	sim_fail_after(r->sim, 0, 0);
	if (sim_power_cut(r->sim, seed + n) != 0)
		good = fail(r, "no memory");
	memset(r->boot, 2, sizeof(r->boot));
	if (n % 2)
		remove_tree(r->index);
	good = good && survives(r, r->synced);
	end(r);
	return good;
}

static uint64_t number(const char *name, uint64_t otherwise)
{
	const char *text = getenv(name);

	return text && *text ? strtoull(text, NULL, 10) : otherwise;
}

/* How often a run without accidents syncs, and calls. */
static bool count(struct run *r, uint64_t seed, uint64_t *ret_syncs, uint64_t *ret_calls)
{
	bool good = begin(r, seed) && (live(r) == 0 || fail(r, "a run without accidents failed"));

	*ret_syncs = good ? sim_syncs(r->sim) : 0;
	*ret_calls = good ? sim_calls(r->sim) : 0;
	good = good && survives(r, r->num);
	end(r);
	return good;
}

static void try_all(struct run *r, uint64_t seed, uint64_t points)
{
	uint64_t syncs = 0, calls = 0, step, failed = 0;
	bool good = count(r, seed, &syncs, &calls);

	if (!ok(good, "seed %llu: no accident: %llu syncs, %llu calls %s", (unsigned long long)seed,
		    (unsigned long long)syncs, (unsigned long long)calls, r->why))
		return;
	step = points && points < syncs ? syncs / points : 1;
	for (uint64_t k = 1 + seed % step; k <= syncs && failed < 5; k += step)
		if (!run_power(r, seed, k))
			failed += !ok(false, "seed %llu: power lost at sync %llu: %s", (unsigned long long)seed,
				(unsigned long long)k, r->why);
	ok(failed == 0, "seed %llu: power lost at every %llu. of %llu syncs", (unsigned long long)seed,
		(unsigned long long)step, (unsigned long long)syncs);
	step = points && points < calls ? calls / points : 1;
	failed = 0;
	for (uint64_t n = 1 + seed % step; n <= calls && failed < 5; n += step)
		if (!run_fault(r, seed, n, n % 3 ? EIO : ENOSPC, n % 4 == 0))
			failed += !ok(false, "seed %llu: call %llu failed: %s", (unsigned long long)seed,
				(unsigned long long)n, r->why);
	ok(failed == 0, "seed %llu: every %llu. of %llu calls failed once", (unsigned long long)seed,
		(unsigned long long)step, (unsigned long long)calls);
	failed = 0;
	for (uint64_t n = 1 + seed % step; n <= calls && failed < 5; n += step)
		if (!run_full(r, seed, n, 1 + n % 7))
			failed += !ok(false, "seed %llu: device full from call %llu on: %s", (unsigned long long)seed,
				(unsigned long long)n, r->why);
	ok(failed == 0, "seed %llu: full for some calls at every %llu. of %llu calls, then power lost",
		(unsigned long long)seed, (unsigned long long)step, (unsigned long long)calls);
}

int main(void)
{
	uint64_t seed = number("CISTERN_TEST_SEED", (uint64_t)time(NULL)), points = number("CISTERN_TEST_POINTS", 40);
	struct run *r = calloc(1, sizeof(*r));

	tap_diag("CISTERN_TEST_SEED=%llu CISTERN_TEST_POINTS=%llu", (unsigned long long)seed,
		(unsigned long long)points);
	if (!ok(r && mkdtemp(work), "a directory"))
		return done_testing();
	try_all(r, seed, points);
	tap_diag("of %llu private files something was lost with the power", (unsigned long long)num_lost);
	remove_tree(work);
	free(r);
	return done_testing();
}
