/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * What each record does to the state, by docs/design/one-node.md section 3, seen through the state's questions. At the
 * end of each story the state is compared with one made from the journal alone.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "tests/lib/state_fixture.h"
#include "tests/lib/tap.h"

#define FILE_MODE (S_IFREG | 0644)
#define DIR_MODE  (S_IFDIR | 0755)
#define ADOPTED   (STATE_BACKING_INO_BIT | 77)
#define K         1024u
#define M         (1024u * 1024u)

static struct inode inode_of(struct state_fixture *f, uint64_t ino)
{
	struct inode in = { 0 };

	if (state_inode(f->st, ino, &in) < 0)
		in.ino = 0;
	return in;
}

static uint64_t ino_at(struct state_fixture *f, uint64_t parent, const char *name)
{
	struct state_name d;

	return state_lookup(f->st, parent, name, &d) < 0 ? 0 : d.ino;
}

static uint64_t owner_of(struct state_fixture *f, uint64_t parent, const char *name)
{
	uint64_t ino;

	return state_backing_owner(f->st, parent, name, &ino) < 0 ? 0 : ino;
}

static struct record adopt(uint64_t ino, uint64_t parent, const char *name, uint32_t mode, uint64_t size)
{
	struct record rec = record_name(RECORD_ADOPT, ino, parent, name);

	rec.mode = mode;
	rec.size = size;
	rec.nlink = S_ISDIR(mode) ? 2 : 1;
	rec.mtime_ns = 5;
	rec.backing_dev = 9;
	rec.backing_ino = ino & 0xffff;
	return rec;
}

static void begin(struct state_fixture *f)
{
	if (fixture_init(f) || fixture_open(f, STATE_READ_WRITE) || fixture_adopt_root(f))
		ok(false, "a new store opens");
}

static void end(struct state_fixture *f, const char *story)
{
	is_int(fixture_differences(f), 0, story);
	fixture_end(f);
}

static void test_create(void)
{
	struct state_fixture f;
	struct record rec;
	struct inode in;
	char target[64];

	begin(&f);
	is_u64(state_new_ino(f.st), 2, "the first new inode is 2");
	rec = record_create(2, 1, "file", FILE_MODE);
	rec.uid = 7;
	rec.time_ns = 1000;
	is_int(commit(&f, rec, NULL), 0, "create a file");
	in = inode_of(&f, 2);
	is_u64(in.nlink, 1, "it has a link");
	is_u64(in.flags, INODE_NEW | INODE_DIRTY_META | INODE_DIRTY_DATA, "is new and dirty");
	ok(in.mtime_ns == 1000 && in.ctime_ns == 1000 && in.btime_ns == 1000, "and has the record's time");
	is_u64(in.uid, 7, "and owner");
	is_int(inode_of(&f, 1).mtime_ns, 1000, "as has its parent");
	ok(inode_of(&f, 1).flags & INODE_DIRTY_META, "which is dirty");
	is_int(commit(&f, record_create(3, 1, "file", FILE_MODE), NULL), -EEXIST, "the name is taken");
	is_int(commit(&f, record_create(2, 1, "other", FILE_MODE), NULL), -EEXIST, "the number is taken");
	is_int(commit(&f, record_create(3, 2, "x", FILE_MODE), NULL), -ENOTDIR, "a file is no directory");
	is_int(commit(&f, record_create(3, 99, "x", FILE_MODE), NULL), -ENOENT, "no such parent");
	is_int(commit(&f, record_create(3, 1, "..", FILE_MODE), NULL), -EINVAL, "no such name");
	is_int(commit(&f, record_create(3, 1, "dev", S_IFCHR | 0600), NULL), -EINVAL, "no devices");
	is_int(commit(&f, record_create(3, 1, "dir", DIR_MODE), NULL), 0, "create a directory");
	is_u64(inode_of(&f, 3).nlink, 2, "it has two links");
	is_u64(inode_of(&f, 1).nlink, 3, "and its parent one more");
	rec = record_create(4, 3, "link", S_IFLNK | 0777);
	is_int(commit(&f, rec, NULL), -EINVAL, "a symbolic link needs a target");
	rec.target = "over/there";
	rec.target_len = 10;
	is_int(commit(&f, rec, NULL), 0, "create a symbolic link");
	is_int(state_symlink(f.st, 4, target, sizeof target), 0, "its target");
	is_str(target, "over/there", "is what was said");
	is_int(state_symlink(f.st, 4, target, 5), -ERANGE, "and does not fit everywhere");
	is_u64(inode_of(&f, 4).size, 10, "its size is the target's length");
	is_u64(state_new_ino(f.st), 5, "the next new inode");
	rec = record_create(5, 0, "", FILE_MODE);
	is_int(commit(&f, rec, NULL), 0, "a temporary file without a name");
	ok(inode_of(&f, 5).flags & INODE_ORPHAN, "is an orphan");
	is_int(commit(&f, record_name(RECORD_LINK, 5, 1, "named"), NULL), 0, "until it is linked");
	is_u64(inode_of(&f, 5).flags & INODE_ORPHAN, 0, "then no more");
	is_u64(inode_of(&f, 5).nlink, 1, "with one link");
	end(&f, "create: the same from the journal");
}

static void test_names(void)
{
	struct state_fixture f;
	struct state_name list[4];
	struct record rec;
	size_t num = 0;

	begin(&f);
	commit(&f, record_create(2, 1, "a", FILE_MODE), NULL);
	commit(&f, record_create(3, 1, "d", DIR_MODE), NULL);
	is_int(commit(&f, record_name(RECORD_LINK, 2, 3, "b"), NULL), 0, "a second name");
	is_u64(inode_of(&f, 2).nlink, 2, "and link");
	is_int(commit(&f, record_name(RECORD_LINK, 3, 1, "e"), NULL), -EPERM, "not of a directory");
	is_int(commit(&f, record_name(RECORD_UNLINK, 3, 1, "d"), NULL), -ENOTEMPTY, "which is not removed while full");
	is_int(commit(&f, record_name(RECORD_UNLINK, 3, 1, "a"), NULL), -ESTALE, "nor by a name of another");
	is_int(commit(&f, record_name(RECORD_UNLINK, 2, 1, "a"), NULL), 0, "unlink");
	is_u64(inode_of(&f, 2).nlink, 1, "a link less");
	is_u64(ino_at(&f, 1, "a"), 0, "the name is gone");
	is_u64(ino_at(&f, 3, "b"), 2, "the other is there");
	is_int(commit(&f, record_name(RECORD_FREE, 2, 0, ""), NULL), -EBUSY, "no freeing what has names");
	is_int(commit(&f, record_name(RECORD_UNLINK, 2, 3, "b"), NULL), 0, "unlink the last");
	ok(inode_of(&f, 2).flags & INODE_ORPHAN, "an orphan");
	is_int(commit(&f, record_name(RECORD_FREE, 2, 0, ""), NULL), 0, "is freed");
	is_u64(inode_of(&f, 2).ino, 0, "and gone");
	is_int(commit(&f, record_name(RECORD_UNLINK, 3, 1, "d"), NULL), 0, "rmdir");
	is_u64(inode_of(&f, 1).nlink, 2, "the parent loses a link");
	is_int(commit(&f, record_create(9, 3, "x", FILE_MODE), NULL), -ENOENT, "no names in a removed directory");

	for (uint64_t i = 0; i < 6; i++)
		commit(&f, record_create(10 + i, 1, (char[2]){ (char)('f' - i), 0 }, i == 3 ? DIR_MODE : FILE_MODE),
			NULL);
	is_int(state_list_names(f.st, 1, "", list, 4, &num), 0, "list");
	is_u64(num, 4, "as many as fit");
	ok(strcmp(list[0].name, "a") == 0 && strcmp(list[3].name, "d") == 0, "in order");
	is_u64(list[2].type, S_IFDIR, "with types");
	state_checkpoint(f.st);
	commit(&f, record_name(RECORD_UNLINK, 11, 1, "e"), NULL);
	is_int(state_list_names(f.st, 1, "d", list, 4, &num), 0, "list on");
	is_u64(num, 1, "without what was removed since the checkpoint");
	is_str(list[0].name, "f", "up to the last");
	rec = record_rename(10, 1, "f", 12, "f", 0);
	is_int(commit(&f, rec, NULL), -ENOTDIR, "rename below a file");
	end(&f, "names: the same from the journal");
}

static void test_rename(void)
{
	struct state_fixture f;
	struct record rec;

	begin(&f);
	commit(&f, record_create(2, 1, "d1", DIR_MODE), NULL);
	commit(&f, record_create(3, 1, "d2", DIR_MODE), NULL);
	commit(&f, record_create(4, 2, "f", FILE_MODE), NULL);
	commit(&f, record_create(5, 3, "g", FILE_MODE), NULL);
	is_int(commit(&f, record_rename(4, 2, "f", 3, "f", 0), NULL), 0, "move a file");
	ok(ino_at(&f, 2, "f") == 0 && ino_at(&f, 3, "f") == 4, "it is there and not here");
	is_int(commit(&f, record_rename(4, 3, "f", 3, "g", 0), NULL), -EEXIST, "not over one that was not named");
	is_int(commit(&f, record_rename(4, 3, "f", 3, "g", 5), NULL), 0, "over another");
	ok(ino_at(&f, 3, "g") == 4 && inode_of(&f, 5).flags & INODE_ORPHAN, "which is an orphan");
	is_int(commit(&f, record_rename(2, 1, "d1", 3, "sub", 0), NULL), 0, "move a directory");
	ok(inode_of(&f, 1).nlink == 3 && inode_of(&f, 3).nlink == 3, "links move with it");
	is_int(commit(&f, record_rename(2, 3, "sub", 3, "g", 4), NULL), -ENOTDIR, "no directory over a file");
	is_int(commit(&f, record_rename(4, 3, "g", 3, "sub", 2), NULL), -EISDIR, "no file over a directory");
	commit(&f, record_create(6, 1, "d3", DIR_MODE), NULL);
	is_int(commit(&f, record_rename(6, 1, "d3", 1, "d2", 3), NULL), -ENOTEMPTY, "nor over a full one");
	is_int(commit(&f, record_rename(6, 1, "d3", 3, "sub", 2), NULL), 0, "a directory over an empty one");
	ok(inode_of(&f, 3).nlink == 3 && inode_of(&f, 1).nlink == 3 && inode_of(&f, 2).nlink == 0, "links are right");
	commit(&f, record_create(7, 1, "h", FILE_MODE), NULL);
	rec = record_rename(7, 1, "h", 3, "sub", 6);
	rec.flags = RECORD_F_EXCHANGE;
	is_int(commit(&f, rec, NULL), 0, "exchange a file and a directory");
	ok(ino_at(&f, 1, "h") == 6 && ino_at(&f, 3, "sub") == 7, "each has the other's name");
	ok(inode_of(&f, 1).nlink == 4 && inode_of(&f, 3).nlink == 2, "links are right again");
	is_int(commit(&f, record_rename(3, 1, "d2", 3, "x", 0), NULL), -EINVAL, "not into itself");
	is_int(commit(&f, record_rename(7, 1, "nothing", 3, "x", 0), NULL), -ENOENT, "not what is not there");
	end(&f, "rename: the same from the journal");
}

static void test_adopt(void)
{
	struct state_fixture f;
	char path[64], tiny[3];

	begin(&f);
	is_int(commit(&f, adopt(ADOPTED, 1, "dir", DIR_MODE, 0), NULL), 0, "adopt a directory");
	is_int(commit(&f, adopt(ADOPTED + 1, ADOPTED, "file", FILE_MODE, 5000), NULL), 0, "and a file in it");
	is_u64(inode_of(&f, ADOPTED + 1).flags, 0, "it is clean");
	is_u64(inode_of(&f, ADOPTED + 1).backing_limit, 5000, "and shows the backing file");
	is_int(inode_of(&f, ADOPTED).mtime_ns, 5, "nothing visible changes");
	ok(ino_at(&f, ADOPTED, "file") == ADOPTED + 1 && owner_of(&f, ADOPTED, "file") == ADOPTED + 1,
		"both names are its own");
	is_int(state_backing_path(f.st, ADOPTED + 1, path, sizeof path), 0, "its path");
	is_str(path, "dir/file", "is known");
	is_int(state_backing_path(f.st, 1, path, sizeof path), 0, "the root's path");
	is_str(path, ".", "is a dot");
	is_int(state_backing_path(f.st, ADOPTED + 1, tiny, sizeof tiny), -ENAMETOOLONG, "too long for a small buffer");
	is_int(commit(&f, adopt(ADOPTED + 1, ADOPTED, "file", FILE_MODE, 5000), NULL), 0, "again: nothing");
	is_int(commit(&f, adopt(ADOPTED + 2, ADOPTED, "file", FILE_MODE, 1), NULL), -EEXIST, "not by another");
	is_int(commit(&f, adopt(ADOPTED + 1, 1, "hard", FILE_MODE, 5000), NULL), 0, "its second name");
	is_u64(inode_of(&f, ADOPTED + 1).nlink, 2, "and link");

	is_int(commit(&f, record_rename(ADOPTED, 1, "dir", 1, "moved", 0), NULL), 0, "rename the directory");
	state_backing_child_path(f.st, ADOPTED, "file", path, sizeof path);
	is_str(path, "dir/file", "the backing path is the old one");
	is_u64(owner_of(&f, 1, "dir"), ADOPTED, "whose name is hidden");
	is_int(commit(&f, record_name(RECORD_FORGET, ADOPTED + 1, ADOPTED, "file"), NULL), 0, "one name vanishes");
	state_backing_path(f.st, ADOPTED + 1, path, sizeof path);
	is_str(path, "hard", "the other is its path now");
	is_int(commit(&f, record_name(RECORD_FORGET, ADOPTED + 1, 1, "hard"), NULL), 0, "then that");
	is_u64(inode_of(&f, ADOPTED + 1).ino, 0, "and it is gone");
	commit(&f, record_create(2, 1, "new", FILE_MODE), NULL);
	is_int(commit(&f, record_name(RECORD_FORGET, 2, 1, "new"), NULL), -ENOENT, "a new file cannot vanish");
	end(&f, "adopt: the same from the journal");
}

static int count_xattr(const char *name, const void *val, size_t len, void *arg)
{
	(void)val;
	*(size_t *)arg += strlen(name) * 100 + len;
	return 0;
}

static struct record xattr(uint64_t ino, const char *name, const char *value)
{
	return (struct record){ .type = value ? RECORD_SETXATTR : RECORD_REMOVEXATTR,
		.ino = ino,
		.key = (const uint8_t *)name,
		.key_len = strlen(name),
		.value = (const uint8_t *)value,
		.value_len = value ? strlen(value) : 0 };
}

static void test_attributes(void)
{
	struct state_fixture f;
	struct record rec = { .type = RECORD_SETATTR,
		.ino = 2,
		.mask = RECORD_ATTR_MODE | RECORD_ATTR_MTIME,
		.mode = 0600,
		.mtime_ns = 44,
		.time_ns = 55 };
	size_t len = 0, sum = 0;
	char val[16];

	begin(&f);
	commit(&f, record_create(2, 1, "f", FILE_MODE), NULL);
	is_int(commit(&f, rec, NULL), 0, "setattr");
	is_u64(inode_of(&f, 2).mode, S_IFREG | 0600, "the mode, and not the type");
	ok(inode_of(&f, 2).mtime_ns == 44 && inode_of(&f, 2).ctime_ns == 55, "mtime as said, ctime of the record");
	rec.gen = 3;
	is_int(commit(&f, rec, NULL), -ESTALE, "another generation");
	is_int(commit(&f, xattr(2, "user.a", "one"), NULL), 0, "set an xattr");
	is_int(commit(&f, xattr(2, "user.a", "three"), NULL), 0, "and another value");
	is_int(commit(&f, xattr(2, "user.bb", ""), NULL), 0, "and an empty one");
	is_int(state_xattr(f.st, 2, "user.a", val, sizeof val, &len), 0, "get it");
	ok(len == 5 && memcmp(val, "three", 5) == 0, "it is the later one");
	is_int(state_xattr(f.st, 2, "user.a", val, 2, &len), -ERANGE, "too small a buffer");
	is_int(state_xattr(f.st, 2, "user.a", NULL, 0, &len), 0, "its length alone");
	is_int(state_xattr(f.st, 2, "user.c", val, sizeof val, &len), -ENODATA, "one that is not there");
	state_list_xattrs(f.st, 2, count_xattr, &sum);
	is_u64(sum, 605 + 700, "list both");
	is_int(commit(&f, xattr(2, "user.a", NULL), NULL), 0, "remove one");
	is_int(commit(&f, xattr(2, "user.a", NULL), NULL), -ENODATA, "only once");
	ok(inode_of(&f, 2).flags & INODE_DIRTY_XATTR, "the set is dirty");
	commit(&f, record_name(RECORD_UNLINK, 2, 1, "f"), NULL);
	is_int(commit(&f, record_name(RECORD_FREE, 2, 0, ""), NULL), 0, "freed with what it has");
	is_int(state_xattr(f.st, 2, "user.bb", val, sizeof val, &len), -ENODATA, "nothing is left");
	end(&f, "attributes: the same from the journal");
}

/* "LOG off+len@segment_off HOLE ..." of [0, end) */
static void describe(struct state_fixture *f, uint64_t ino, char *out, size_t cap)
{
	static const char *const kinds[] = { "L", "H", "B" };
	struct extent e[32];
	uint64_t next;
	size_t num = 0, at = 0;

	out[0] = '\0';
	if (state_extents(f->st, ino, 0, INT64_MAX, e, 32, &num, &next) < 0)
		return;
	for (size_t i = 0; i < num && at < cap; i++)
		at += (size_t)snprintf(out + at, cap - at, "%s%s%lu+%u", i ? " " : "", kinds[e[i].kind],
			(unsigned long)(e[i].off / K), e[i].len / K);
}

static void is_extents(struct state_fixture *f, uint64_t ino, const char *expected, const char *name)
{
	char got[512];

	describe(f, ino, got, sizeof got);
	is_str(got, expected, name);
}

static struct record range(enum record_type type, uint64_t ino, uint64_t off, uint64_t len, uint32_t flags)
{
	return (struct record){ .type = type, .ino = ino, .off = off, .len = len, .flags = flags };
}

static void test_data(void)
{
	struct record_range two[] = { { .off = 8 * K, .len = 4 * K, .crc = 1 }, { .off = 0, .len = 4 * K, .crc = 2 } };
	struct record rec;
	struct state_fixture f;
	struct state_totals t;
	struct extent e[2];
	uint64_t live, next;
	size_t num;

	begin(&f);
	commit(&f, adopt(ADOPTED, 1, "f", FILE_MODE, 64 * K), NULL);
	is_int(commit(&f, record_write(ADOPTED, 16 * K, 8 * K, 1, 0), NULL), 0, "write");
	is_extents(&f, ADOPTED, "L16+8", "one extent");
	is_int(state_segment_live(f.st, 1, &live), 0, "its segment lives");
	is_u64(live, 8 * K, "with its bytes");
	ok(inode_of(&f, ADOPTED).flags == INODE_DIRTY_DATA && inode_of(&f, ADOPTED).size == 64 * K, "dirty, no larger");
	is_int(commit(&f, record_write(ADOPTED, 20 * K, 8 * K, 2, 0), NULL), 0, "write over its end");
	is_extents(&f, ADOPTED, "L16+4 L20+8", "the later one wins");
	is_u64(f.freed_bytes, 4 * K, "what it covers is freed");
	rec = (struct record){
		.type = RECORD_EXTENTS, .ino = ADOPTED, .segment = 3, .segment_off = 100, .ranges = two, .num_ranges = 2
	};
	is_int(commit(&f, rec, NULL), 0, "a vector");
	is_extents(&f, ADOPTED, "L0+4 L8+4 L16+4 L20+8", "two more");
	state_extents(f.st, ADOPTED, 2 * K, 100 * K, e, 1, &num, &next);
	ok(num == 1 && e[0].off == 2 * K && e[0].len == 2 * K && e[0].segment_off == 100 + 6 * K && !e[0].whole,
		"clipped");
	is_u64(next, 8 * K, "and where to go on");

	is_int(commit(&f, range(RECORD_PUNCH, ADOPTED, 10 * K, 12 * K, 0), NULL), 0, "punch");
	is_extents(&f, ADOPTED, "L0+4 L8+2 H10+12 L22+6", "a hole hides the backing file");
	is_int(commit(&f, range(RECORD_PUNCH, ADOPTED, 40 * K, 60 * K, RECORD_F_KEEP_SIZE), NULL), 0,
		"punch past the end");
	is_extents(&f, ADOPTED, "L0+4 L8+2 H10+12 L22+6", "needs none");
	ok(inode_of(&f, ADOPTED).backing_limit == 40 * K && inode_of(&f, ADOPTED).size == 64 * K, "but a lower limit");
	is_int(commit(&f, range(RECORD_THROUGH, ADOPTED, 24 * K, 32 * K, 0), NULL), 0, "write through");
	is_extents(&f, ADOPTED, "L0+4 L8+2 H10+12 L22+2 B40+16", "shows the backing file again");
	rec = range(RECORD_TRUNCATE, ADOPTED, 0, 0, 0);
	rec.size = 9 * K;
	is_int(commit(&f, rec, NULL), 0, "truncate");
	is_extents(&f, ADOPTED, "L0+4 L8+1", "cuts");
	ok(inode_of(&f, ADOPTED).backing_limit == 9 * K && inode_of(&f, ADOPTED).size == 9 * K, "limit and size");
	is_int(commit(&f, record_write(ADOPTED, M - 4 * K, 8 * K, 4, 0), NULL), 0, "a write across a page's border");
	is_extents(&f, ADOPTED, "L0+4 L8+1 L1020+4 L1024+4", "is two extents");
	is_int(commit(&f, record_write(ADOPTED, INT64_MAX - 5, 8 * K, 4, 0), NULL), -EFBIG, "no offsets beyond all");
	is_int(commit(&f, record_write(1, 0, 8 * K, 4, 0), NULL), -EISDIR, "no bytes into a directory");
	state_totals(f.st, &t);
	is_u64(t.log_bytes, 4 * K + 1 * K + 8 * K, "live bytes");
	is_u64(t.extents, 4, "extents");
	is_u64(t.written_bytes, 32 * K, "bytes written");
	is_u64(t.saved_bytes, t.written_bytes - t.log_bytes, "the rest was saved");
	is_u64(t.through_bytes, 32 * K, "bytes written through");
	is_u64(f.freed_bytes, t.saved_bytes, "and told as freed");
	is_int(state_segment_live(f.st, 2, &live), -ENOENT, "a segment without live bytes");
	end(&f, "data: the same from the journal");
}

/* "off+len@process ..." of all extents */
static void is_written_by(struct state_fixture *f, uint64_t ino, const char *expected, const char *name)
{
	uint32_t process[8] = { 0 };
	struct extent e[32];
	size_t num = 0, processes = 0, at = 0;
	uint64_t next;
	char got[512] = "";

	state_extents(f->st, ino, 0, INT64_MAX, e, 32, &num, &next);
	state_writers(f->st, ino, process, 8, &processes);
	for (size_t i = 0; i < num && at < sizeof got; i++)
		at += (size_t)snprintf(got + at, sizeof got - at, "%s%lu+%u@%u", i ? " " : "",
			(unsigned long)(e[i].off / K), e[i].len / K, e[i].writer ? process[e[i].writer - 1] : 0);
	is_str(got, expected, name);
}

static void write_by(struct state_fixture *f, uint32_t writer, uint64_t off, uint64_t segment_off)
{
	struct record rec = record_write(2, off, 4 * K, 1, segment_off);

	rec.writer = writer;
	commit(f, rec, NULL);
}

static void test_writers(void)
{
	struct record_range two[] = { { .off = 40 * K, .len = 4 * K }, { .off = 48 * K, .len = 4 * K } };
	struct record rec = { .type = RECORD_EXTENTS,
		.ino = 2,
		.writer = 77,
		.segment = 3,
		.segment_off = 0,
		.ranges = two,
		.num_ranges = 2 };
	struct state_fixture f;
	uint64_t seq;
	size_t num;

	begin(&f);
	commit(&f, record_create(2, 1, "f", FILE_MODE), NULL);
	is_int(state_writers(f.st, 2, NULL, 0, &num), 0, "a file that nobody has written");
	is_u64(num, 0, "has no writers");
	write_by(&f, 0, 0, 0);
	write_by(&f, 501, 4 * K, 4 * K);
	write_by(&f, 501, 8 * K, 8 * K);
	write_by(&f, 502, 12 * K, 12 * K);
	write_by(&f, 501, 16 * K, 16 * K);
	is_written_by(
		&f, 2, "0+4@0 4+8@501 12+4@502 16+4@501", "each extent has one, and neighbours of two stay apart");
	commit(&f, rec, NULL);
	is_written_by(&f, 2, "0+4@0 4+8@501 12+4@502 16+4@501 40+4@77 48+4@77", "those of a vector, too");
	fixture_kill(&f);
	fixture_open(&f, STATE_READ_WRITE);
	is_written_by(&f, 2, "0+4@0 4+8@501 12+4@502 16+4@501 40+4@77 48+4@77", "as after a crash, from the journal");
	fixture_close(&f);
	fixture_open(&f, STATE_READ_WRITE);
	is_written_by(&f, 2, "0+4@0 4+8@501 12+4@502 16+4@501 40+4@77 48+4@77", "and from RocksDB");
	write_by(&f, 503, 4 * K, 20 * K);
	is_written_by(&f, 2, "0+4@0 4+4@503 8+4@501 12+4@502 16+4@501 40+4@77 48+4@77", "the later one counts");
	seq = state_seq(f.st);
	commit(&f, (struct record){ .type = RECORD_DRAINED, .ino = 2, .upto = seq, .size = 52 * K }, NULL);
	is_int(state_writers(f.st, 2, NULL, 0, &num), 0, "when all has been drained");
	is_u64(num, 0, "nobody is remembered");
	ok(!(inode_of(&f, 2).flags & INODE_WRITERS), "nor that somebody was");
	write_by(&f, 501, 0, 30 * K);
	commit(&f, record_name(RECORD_UNLINK, 2, 1, "f"), NULL);
	commit(&f, (struct record){ .type = RECORD_FREE, .ino = 2 }, NULL);
	rec = record_write(1, 0, K, 1, 0);
	rec.type = RECORD_PUNCH;
	rec.writer = 5;
	is_int(commit(&f, rec, NULL), -EISDIR, "nothing else has a writer");
	end(&f, "writers: the same from the journal");
}

static void test_private(void)
{
	struct record_range data[] = { { .off = 4 * K, .len = 8 * K }, { .off = M - 4 * K, .len = 8 * K } };
	struct record rec = record_create(2, 1, "f", FILE_MODE);
	struct state_fixture f;
	struct state_totals t;
	uint64_t live;

	begin(&f);
	rec.segment = 5;
	is_int(commit(&f, rec, NULL), 0, "create with a private segment");
	ok(inode_of(&f, 2).flags & INODE_PRIVATE && inode_of(&f, 2).private_segment == 5, "it is private");
	is_int(state_segment_live(f.st, 5, &live), 0, "its segment is in use");
	is_u64(live, STATE_SEGMENT_PRIVATE, "as a private one");
	is_int(commit(&f, record_write(2, 0, 4 * K, 1, 0), NULL), -EINVAL, "no extents beside it");
	rec = (struct record){ .type = RECORD_SEAL,
		.ino = 2,
		.segment = 5,
		.size = 2 * M,
		.mtime_ns = 99,
		.ranges = data,
		.num_ranges = 2 };
	is_int(commit(&f, rec, NULL), 0, "seal");
	is_extents(&f, 2, "L4+8 L1020+4 L1024+4", "its ranges are extents");
	ok(inode_of(&f, 2).size == 2 * M && inode_of(&f, 2).mtime_ns == 99, "size and mtime");
	ok(!(inode_of(&f, 2).flags & INODE_PRIVATE), "and no more private");
	state_segment_live(f.st, 5, &live);
	is_u64(live, 16 * K, "the segment has live bytes");

	commit(&f, record_create(3, 1, "g", FILE_MODE), NULL);
	is_int(commit(&f, (struct record){ .type = RECORD_PRIVATE, .ino = 3, .segment = 6 }, NULL), 0,
		"an empty file made private");
	commit(&f, record_name(RECORD_UNLINK, 3, 1, "g"), NULL);
	is_int(commit(&f, record_name(RECORD_FREE, 3, 0, ""), NULL), 0, "and freed");
	is_u64(f.freed_privates, 1, "tells its segment");
	is_int(state_segment_live(f.st, 6, &live), -ENOENT, "which is in use no more");
	rec = record_create(4, 1, "h", FILE_MODE);
	rec.segment = 7;
	commit(&f, rec, NULL);
	rec = (struct record){ .type = RECORD_DRAINED,
		.ino = 4,
		.upto = state_seq(f.st),
		.size = 3 * M,
		.mtime_ns = 7,
		.backing_ino = 12,
		.flags = RECORD_F_KEEP_PRIVATE };
	is_int(commit(&f, rec, NULL), 0, "drained while it is written");
	ok(inode_of(&f, 4).flags & INODE_PRIVATE && inode_of(&f, 4).flags & INODE_DIRTY_DATA,
		"stays private and dirty");
	rec.flags = 0;
	is_int(commit(&f, rec, NULL), 0, "drained for good");
	ok(inode_of(&f, 4).size == 3 * M && inode_of(&f, 4).backing_limit == 3 * M && inode_of(&f, 4).mtime_ns == 7,
		"is the backing file");
	is_u64(f.freed_privates, 2, "and frees its segment");
	state_totals(f.st, &t);
	is_u64(t.private_files, 0, "no private files are left");
	end(&f, "private: the same from the journal");
}

static struct record drained(uint64_t ino, uint64_t upto, uint64_t size)
{
	return (struct record){
		.type = RECORD_DRAINED, .ino = ino, .upto = upto, .size = size, .backing_dev = 1, .backing_ino = 5
	};
}

static void test_drain(void)
{
	struct state_fixture f;
	struct state_totals t;
	struct record rec;
	uint64_t seq;
	char path[64];

	begin(&f);
	commit(&f, record_create(2, 1, "d", DIR_MODE), NULL);
	commit(&f, record_create(3, 2, "f", FILE_MODE), NULL);
	commit(&f, record_write(3, 0, 8 * K, 1, 0), NULL);
	commit(&f, xattr(3, "user.x", "y"), &seq);
	is_int(commit(&f, record_name(RECORD_PLACED, 2, 1, "d"), NULL), 0, "a new directory is placed");
	is_u64(inode_of(&f, 2).flags & INODE_NEW, 0, "new no more");
	is_int(commit(&f, record_name(RECORD_PLACED, 3, 2, "f"), NULL), 0, "a new file is placed");
	state_backing_path(f.st, 3, path, sizeof path);
	is_str(path, "d/f", "there it is");
	commit(&f, record_write(3, 4 * K, 8 * K, 2, 0), NULL);
	is_int(commit(&f, drained(3, seq, 8 * K), NULL), 0, "drained up to a version");
	is_extents(&f, 3, "B0+4 L4+8", "what is later stays");
	ok(inode_of(&f, 3).flags & INODE_DIRTY_DATA && inode_of(&f, 3).flags & INODE_DIRTY_XATTR, "and dirty");
	is_int(commit(&f, drained(3, state_seq(f.st), 12 * K), NULL), 0, "drained to the last");
	is_extents(&f, 3, "", "nothing stays");
	ok(inode_of(&f, 3).flags == 0 && inode_of(&f, 3).backing_limit == 12 * K, "clean");
	state_totals(f.st, &t);
	ok(t.drained_bytes == 12 * K && t.drained_files == 1 && t.log_bytes == 0, "counted");
	is_u64(t.drained_bytes + t.saved_bytes, t.written_bytes, "written = drained + saved");

	commit(&f, record_create(4, 1, "g", FILE_MODE), NULL);
	rec = record_name(RECORD_PLACED, 4, 1, "tmp");
	rec.flags = RECORD_F_UNPUBLISHED;
	is_int(commit(&f, rec, NULL), 0, "placed under a temporary name");
	ok(inode_of(&f, 4).flags & INODE_UNPUBLISHED, "it is unpublished");
	rec = record_name(RECORD_PLACED, 4, 1, "g");
	rec.flags = RECORD_F_MOVED;
	rec.from_parent = 1;
	strcpy(rec.from_name, "tmp");
	is_int(commit(&f, rec, NULL), 0, "and published");
	ok(owner_of(&f, 1, "tmp") == 0 && owner_of(&f, 1, "g") == 4 && !(inode_of(&f, 4).flags & INODE_UNPUBLISHED),
		"so it is");

	is_int(commit(&f, record_name(RECORD_PLACED, 4, 2, "f"), NULL), 0, "placed over another's backing name");
	state_backing_path(f.st, 3, path, sizeof path);
	is_int(state_backing_path(f.st, 3, path, sizeof path), -ENOENT, "the other has none");
	state_backing_path(f.st, 4, path, sizeof path);
	is_str(path, "g", "its own path stays the first");
	is_int(commit(&f, record_name(RECORD_REMOVED, 0, 1, "g"), NULL), 0, "which is removed");
	state_backing_path(f.st, 4, path, sizeof path);
	is_str(path, "d/f", "then it is the second");
	is_int(commit(&f, record_name(RECORD_REMOVED, 0, 1, "g"), NULL), -ENOENT, "removed only once");
	end(&f, "drain: the same from the journal");
}

static void test_orphan_directories(void)
{
	struct state_fixture f;
	char path[64];

	begin(&f);
	commit(&f, adopt(ADOPTED, 1, "d", DIR_MODE, 0), NULL);
	commit(&f, adopt(ADOPTED + 1, ADOPTED, "f", FILE_MODE, 10), NULL);
	commit(&f, record_name(RECORD_UNLINK, ADOPTED + 1, ADOPTED, "f"), NULL);
	commit(&f, record_name(RECORD_FREE, ADOPTED + 1, 0, ""), NULL);
	is_u64(owner_of(&f, ADOPTED, "f"), ADOPTED + 1, "a freed file's backing name is still known");
	commit(&f, record_name(RECORD_UNLINK, ADOPTED, 1, "d"), NULL);
	is_int(commit(&f, record_name(RECORD_FREE, ADOPTED, 0, ""), NULL), 0, "free a removed directory");
	ok(inode_of(&f, ADOPTED).flags == INODE_ORPHAN, "it stays, to find what is below it");
	state_backing_child_path(f.st, ADOPTED, "f", path, sizeof path);
	is_str(path, "d/f", "which it does");
	fixture_kill(&f);
	fixture_open(&f, STATE_READ_WRITE);
	is_u64(f.report.orphans, 0, "it is not freed again at every open");
	is_int(commit(&f, record_name(RECORD_REMOVED, 0, ADOPTED, "f"), NULL), 0, "the file is removed");
	is_int(commit(&f, record_name(RECORD_REMOVED, 0, 1, "d"), NULL), 0, "and the directory");
	is_u64(inode_of(&f, ADOPTED).ino, 0, "then it goes");
	commit(&f, adopt(ADOPTED, 1, "d", DIR_MODE, 0), NULL);
	commit(&f, record_name(RECORD_UNLINK, ADOPTED, 1, "d"), NULL);
	commit(&f, record_name(RECORD_REMOVED, 0, 1, "d"), NULL);
	is_u64(inode_of(&f, ADOPTED).ino, ADOPTED, "removed while somebody has it open: it stays");
	commit(&f, record_name(RECORD_FREE, ADOPTED, 0, ""), NULL);
	is_u64(inode_of(&f, ADOPTED).ino, 0, "until it is freed");
	end(&f, "orphan directories: the same from the journal");
}

static int count_inodes(const struct inode *in, void *arg)
{
	(void)in;
	return ++*(int *)arg == 3 ? 33 : 0;
}

static int count_backing(uint64_t parent, const char *name, uint64_t ino, void *arg)
{
	(void)ino;
	*(uint64_t *)arg += parent * 100 + strlen(name);
	return 0;
}

static int count_segments(uint32_t segment, uint64_t live, void *arg)
{
	*(uint64_t *)arg += segment * 1000000 + live;
	return 0;
}

static void test_walks(void)
{
	struct state_fixture f;
	uint64_t sum = 0;
	int num = 0;

	begin(&f);
	for (uint64_t i = 2; i < 200; i++) {
		char name[16];

		snprintf(name, sizeof name, "f%lu", (unsigned long)i);
		commit(&f, record_create(i, 1, name, FILE_MODE), NULL);
		if (i == 100)
			state_checkpoint(f.st);
	}
	is_int(state_each_inode(f.st, count_inodes, &num), 33, "a walk ends when told to");
	is_int(state_each_inode(f.st, count_inodes, &num), 0, "else at the end");
	is_int(num, 3 + 199, "with all");
	commit(&f, adopt(ADOPTED, 1, "b", FILE_MODE, 10), NULL);
	is_int(state_each_backing_name(f.st, count_backing, &sum), 0, "backing names");
	is_u64(sum, 101, "are walked");
	sum = 0;
	commit(&f, record_write(2, 0, 17, 1, 0), NULL);
	commit(&f, record_write(2, 17, 5, 2, 0), NULL);
	is_int(state_each_segment(f.st, count_segments, &sum), 0, "segments");
	is_u64(sum, 3000022, "are walked");
	ok(!state_dir_is_empty(f.st, 1) && state_dir_is_empty(f.st, 2), "empty or not");
	end(&f, "walks: the same from the journal");
}

/* A sync that knows of some payloads promises nothing of those of later records, though these are in the journal. */
static void test_sync_covers(void)
{
	struct state_fixture f;
	uint64_t first, upto = 0;

	begin(&f);
	commit(&f, record_create(2, STATE_ROOT_INO, "a", FILE_MODE), NULL);
	commit(&f, record_write(2, 0, 100, 1, 0), NULL);
	first = state_seq(f.st);
	commit(&f, record_write(2, 0, 100, 1, 4096), NULL);
	is_int(state_sync(f.st, first, &upto), 0, "a sync");
	is_u64(upto, first, "of the first write");
	is_int(state_sync(f.st, state_seq(f.st), &upto), 0, "another one");
	is_u64(upto, state_seq(f.st), "of all, and the record that says so");
	fixture_end(&f);
}

int main(void)
{
	test_create();
	test_names();
	test_rename();
	test_adopt();
	test_attributes();
	test_data();
	test_sync_covers();
	test_writers();
	test_private();
	test_drain();
	test_orphan_directories();
	test_walks();
	return done_testing();
}
