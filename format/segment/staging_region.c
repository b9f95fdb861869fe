/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * The staging region: a file in shared memory, a header page and then slots of a header page and a payload each. This
 * file knows its bytes, who may have made it, and when a slot counts; what is done with the slots is staging.c's.
 *
 * A slot is either free or staged, and one aligned 32-bit word says which. Everything else of its header is written while
 * it says free, and covered by a checksum, as the payload is: whenever the process is killed, what is found staged is
 * whole.
 *
 * The folder is everybody's (/dev/shm): the file is made with O_EXCL and opened without following links, it must belong to
 * the store's owner or to us, and nobody else may have access. A lock on it says that its process lives.
 */
#include "format/segment/staging.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "format/base/crc32c.h"
#include "format/base/cursor.h"

#define FOLDER       "/dev/shm"
#define PREFIX       "cistern-"
#define VERSION      1u
#define UUID_BYTES   16u
#define HEADER_BYTES 64u
#define SLOT_BYTES   64u /* of a slot's header that the checksum covers; the state follows */
#define CRC_AT       8u
#define STATE_AT     64u
#define SLOTS_MAX    1024u
#define HUGE_PAGE    ((size_t)2 << 20)

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23 /* Linux 5.14 */
#endif

enum { STATE_FREE = 0, STATE_STAGED = 1 };

static const char header_magic[8] = "CISTSTAG";
static const char slot_magic[8] = "CISTSLOT";

/* ---- bytes */

/* Magic, CRC and version begin both kinds of header. */
static void put_u32(uint8_t *at, uint32_t v)
{
	for (unsigned int i = 0; i < 4; i++)
		at[i] = (uint8_t)(v >> (8 * i));
}

static void put_u64(uint8_t *at, uint64_t v)
{
	put_u32(at, (uint32_t)v);
	put_u32(at + 4, (uint32_t)(v >> 32));
}

static void finish(uint8_t *at, const char magic[8], size_t len)
{
	memcpy(at, magic, 8);
	put_u32(at + CRC_AT, 0);
	put_u32(at + 12, VERSION);
	put_u32(at + CRC_AT, crc32c(0, at, len));
}

/* Copies, so that what is checked is what is used. */
static bool is_sound(uint8_t *copy, const char magic[8], size_t len)
{
	static const uint8_t zeros[4];
	uint32_t crc = crc32c(0, copy, CRC_AT), found;
	struct cursor c = cursor_make(copy + CRC_AT, 4);

	found = cursor_u32(&c);
	crc = crc32c(crc, zeros, sizeof(zeros));
	crc = crc32c(crc, copy + CRC_AT + 4, len - CRC_AT - 4);
	return memcmp(copy, magic, 8) == 0 && crc == found;
}

static void encode_header(uint8_t at[HEADER_BYTES], const uint8_t *uuid, uint32_t num)
{
	memset(at, 0, HEADER_BYTES);
	memcpy(at + 16, uuid, UUID_BYTES);
	put_u32(at + 32, num);
	put_u32(at + 36, SEGMENT_SLOT_BYTES);
	finish(at, header_magic, HEADER_BYTES);
}

/* -ENOENT: it was never finished. uuid NULL: of any store. */
static int decode_header(const uint8_t *at, const uint8_t *uuid, uint32_t *ret_num)
{
	uint8_t copy[HEADER_BYTES];
	const uint8_t *of;
	struct cursor c;
	uint32_t version, bytes;

	memcpy(copy, at, sizeof(copy));
	if (copy[0] == 0 && memcmp(copy, copy + 1, sizeof(copy) - 1) == 0)
		return -ENOENT;
	if (!is_sound(copy, header_magic, sizeof(copy)))
		return -EBADMSG;
	c = cursor_make(copy + 12, sizeof(copy) - 12);
	version = cursor_u32(&c);
	if (version != VERSION)
		return version > VERSION ? -EPROTONOSUPPORT : -EBADMSG;
	of = cursor_bytes(&c, UUID_BYTES);
	if (!of || (uuid && memcmp(of, uuid, UUID_BYTES) != 0))
		return -EBADMSG;
	*ret_num = cursor_u32(&c);
	bytes = cursor_u32(&c);
	return *ret_num > 0 && *ret_num <= SLOTS_MAX && bytes == SEGMENT_SLOT_BYTES ? 0 : -EBADMSG;
}

static size_t region_bytes(uint32_t num)
{
	return REGION_PAGE + (size_t)num * REGION_SLOT_BYTES;
}

static uint8_t *slot_header(const struct region *r, uint32_t slot)
{
	return r->at + REGION_PAGE + (size_t)slot * REGION_SLOT_BYTES;
}

uint8_t *region_memory(const struct region *r, uint32_t slot)
{
	return slot_header(r, slot) + REGION_PAGE;
}

static _Atomic uint32_t *slot_state(const struct region *r, uint32_t slot)
{
	return (_Atomic uint32_t *)(void *)(slot_header(r, slot) + STATE_AT);
}

/* The state is little-endian on every machine: a byte and three zeros. */
static uint32_t state_word(uint8_t state)
{
	const uint8_t bytes[4] = { state };
	uint32_t word;

	memcpy(&word, bytes, sizeof(word));
	return word;
}

void region_stage(struct region *r, uint32_t slot, const struct region_payload *p)
{
	uint8_t *at = slot_header(r, slot);

	memset(at, 0, SLOT_BYTES);
	put_u64(at + 16, p->off);
	put_u32(at + 24, p->segment);
	put_u32(at + 28, p->len);
	put_u32(at + 32, p->crc);
	finish(at, slot_magic, SLOT_BYTES);
	atomic_store_explicit(slot_state(r, slot), state_word(STATE_STAGED), memory_order_release);
}

void region_clear(struct region *r, uint32_t slot)
{
	atomic_store_explicit(slot_state(r, slot), state_word(STATE_FREE), memory_order_release);
}

bool region_look(const struct region *r, uint32_t slot, struct region_payload *ret)
{
	uint8_t copy[SLOT_BYTES];
	struct region_payload p;
	struct cursor c;
	uint32_t version;

	if (atomic_load_explicit(slot_state(r, slot), memory_order_acquire) != state_word(STATE_STAGED))
		return false;
	memcpy(copy, slot_header(r, slot), sizeof(copy));
	c = cursor_make(copy + 12, sizeof(copy) - 12);
	version = cursor_u32(&c);
	p.off = cursor_u64(&c);
	p.segment = cursor_u32(&c);
	p.len = cursor_u32(&c);
	p.crc = cursor_u32(&c);
	if (!is_sound(copy, slot_magic, sizeof(copy)) || version != VERSION)
		return false;
	if (p.segment == 0 || p.segment == UINT32_MAX || p.len == 0 || p.len > SEGMENT_SLOT_BYTES)
		return false;
	if (p.off % SEGMENT_BLOCK != 0 || p.off > INT64_MAX - SEGMENT_SLOT_BYTES)
		return false;
	if (crc32c(0, region_memory(r, slot), p.len) != p.crc)
		return false;
	*ret = p;
	return true;
}

/* ---- the file */

static char *make_path(const struct segment_staging_options *opt)
{
	char *path = NULL, hex[2 * UUID_BYTES + 5], *at = hex;

	for (unsigned int i = 0; i < UUID_BYTES; i++)
		at += sprintf(at, i == 4 || i == 6 || i == 8 || i == 10 ? "-%02x" : "%02x", opt->uuid[i]);
	return asprintf(&path, "%s/" PREFIX "%s", opt->dir ? opt->dir : FOLDER, hex) < 0 ? NULL : path;
}

void region_close(struct region *r, bool remove)
{
	if (remove && r->fd >= 0 && !region_is_lost(r))
		unlink(r->path);
	if (r->at)
		munmap(r->at, region_bytes(r->num));
	if (r->fd >= 0)
		close(r->fd);
	free(r->path);
	*r = (struct region){ .fd = -1 };
}

bool region_is_lost(const struct region *r)
{
	struct stat st;

	return fstat(r->fd, &st) < 0 || st.st_nlink == 0;
}

static int lock(int fd)
{
	struct flock whole = { .l_type = F_WRLCK, .l_whence = SEEK_SET };

	if (fcntl(fd, F_OFD_SETLK, &whole) == 0)
		return 0;
	return errno == EACCES || errno == EAGAIN ? -EBUSY : -errno;
}

static int is_locked(int fd)
{
	struct flock whole = { .l_type = F_WRLCK, .l_whence = SEEK_SET };

	if (fcntl(fd, F_OFD_GETLK, &whole) < 0)
		return -errno;
	return whole.l_type == F_UNLCK ? 0 : -EBUSY;
}

static int map(struct region *r, void *place)
{
	void *at = mmap(place, region_bytes(r->num), PROT_READ | (r->writable ? PROT_WRITE : 0),
		MAP_SHARED | (place ? MAP_FIXED : 0), r->fd, 0);

	if (at == MAP_FAILED)
		return -errno;
	r->at = at;
	return 0;
}

/* Where huge pages can be mapped. Devices with long requests take them faster than many small pages. */
static int map_aligned(struct region *r)
{
	size_t bytes = region_bytes(r->num), extra;
	uint8_t *all = mmap(NULL, bytes + HUGE_PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	int e;

	if (all == MAP_FAILED)
		return -errno;
	extra = (size_t)(-(uintptr_t)all % HUGE_PAGE);
	e = map(r, all + extra);
	if (e) {
		munmap(all, bytes + HUGE_PAGE);
		return e;
	}
	if (extra)
		munmap(all, extra);
	bytes = (bytes + REGION_PAGE - 1) / REGION_PAGE * REGION_PAGE;
	munmap(all + extra + bytes, HUGE_PAGE - extra);
	return 0;
}

/* Did the file get huge pages? As the kernel tells of our mapping. */
static bool has_huge_pages(const struct region *r)
{
	FILE *in = fopen("/proc/self/smaps", "re");
	char line[512];
	unsigned long from, to, kib = 0;
	bool ours = false;

	while (in && fgets(line, sizeof(line), in)) {
		if (sscanf(line, "%lx-%lx ", &from, &to) == 2)
			ours = from == (unsigned long)(uintptr_t)r->at;
		else if (ours && sscanf(line, "ShmemPmdMapped: %lu kB", &kib) == 1)
			break;
	}
	if (in)
		fclose(in);
	return kib * 1024 >= region_bytes(r->num) / 2;
}

/* Pages are reserved at once: later on a write to one that cannot be had would be a SIGBUS. */
static int make_file(struct region *r, const struct segment_staging_options *opt)
{
	int e;

	r->fd = open(r->path, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (r->fd < 0)
		return -errno;
	e = lock(r->fd);
	if (!e && ftruncate(r->fd, (off_t)region_bytes(r->num)))
		e = -errno;
	if (!e)
		e = map_aligned(r);
	if (!e) { /* /dev/shm gives huge pages when it is mounted with huge=advise, and then to faults only */
		(void)madvise(r->at, region_bytes(r->num), MADV_HUGEPAGE);
		(void)madvise(r->at, region_bytes(r->num), MADV_POPULATE_WRITE);
		e = -posix_fallocate(r->fd, 0, (off_t)region_bytes(r->num));
	}
	if (!e) {
		r->is_huge = has_huge_pages(r);
		encode_header(r->at, opt->uuid, r->num);
	}
	return e;
}

int region_create(const struct segment_staging_options *opt, struct region *ret)
{
	uint64_t num = opt->bytes / SEGMENT_SLOT_BYTES;
	struct region r = { .fd = -1, .writable = true };
	int e;

	num = num < SEGMENT_SLOTS_MIN ? SEGMENT_SLOTS_MIN : num;
	r.num = num > SLOTS_MAX ? SLOTS_MAX : (uint32_t)num;
	r.path = make_path(opt);
	if (!r.path)
		return -ENOMEM;
	e = make_file(&r, opt);
	if (e) {
		region_close(&r, true);
		return e;
	}
	*ret = r;
	return 0;
}

static int check_file(const struct region *r, const struct segment_staging_options *opt, uint64_t *ret_bytes)
{
	struct stat st;

	if (fstat(r->fd, &st) < 0)
		return -errno;
	if (!S_ISREG(st.st_mode) || (st.st_uid != opt->owner && st.st_uid != geteuid() && st.st_uid != 0))
		return -EPERM;
	if (st.st_mode & 022)
		return -EACCES; /* others may have been at it */
	*ret_bytes = (uint64_t)st.st_size;
	return 0;
}

static int read_header(struct region *r, const uint8_t *uuid, uint64_t bytes)
{
	uint8_t header[HEADER_BYTES];
	ssize_t n = pread(r->fd, header, sizeof(header), 0);
	int e;

	if (n < 0)
		return -errno;
	if (n < (ssize_t)sizeof(header))
		return -ENOENT; /* its maker got no further */
	e = decode_header(header, uuid, &r->num);
	if (!e && bytes < region_bytes(r->num))
		e = -EBADMSG;
	return e;
}

/* Could it be ours? Root's may: its daemon may have served this store before. */
static int refused(const struct region *r, int e)
{
	struct stat st;

	if (e == -ELOOP || (e == -EACCES && lstat(r->path, &st) == 0 && st.st_uid != 0))
		return -EPERM;
	return e;
}

int region_open(const struct segment_staging_options *opt, bool writable, struct region *ret)
{
	struct region r = { .fd = -1, .writable = writable };
	uint64_t bytes = 0;
	int e;

	r.path = make_path(opt);
	if (!r.path)
		return -ENOMEM;
	r.fd = open(r.path, (writable ? O_RDWR : O_RDONLY) | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
	e = r.fd < 0 ? refused(&r, -errno) : check_file(&r, opt, &bytes);
	if (!e)
		e = writable ? lock(r.fd) : is_locked(r.fd);
	if (!e) {
		e = read_header(&r, opt->uuid, bytes);
		if (!e)
			e = map(&r, NULL);
		if (e == -ENOENT && writable)
			unlink(r.path);
	}
	if (e) {
		region_close(&r, false);
		return e;
	}
	*ret = r;
	return 0;
}

/* ---- those of stores that nobody has opened again */

static bool has_staged(const struct region *r)
{
	for (uint32_t i = 0; i < r->num; i++)
		if (atomic_load_explicit(slot_state(r, i), memory_order_acquire) != state_word(STATE_FREE))
			return true;
	return false;
}

/*
 * The lock is taken only when nothing is in it: who opens that store meanwhile takes a locked one for none. One without a header
 * may be about to be finished.
 */
static void sweep_one(struct region *r)
{
	struct stat st;

	r->fd = open(r->path, O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
	if (r->fd < 0 || fstat(r->fd, &st) || !S_ISREG(st.st_mode) || st.st_uid != geteuid() || is_locked(r->fd))
		return;
	if (read_header(r, NULL, (uint64_t)st.st_size) || map(r, NULL) || has_staged(r))
		return;
	if (lock(r->fd) == 0 && !has_staged(r))
		unlink(r->path);
}

void region_sweep(const struct segment_staging_options *opt)
{
	const char *folder = opt->dir ? opt->dir : FOLDER;
	struct dirent *entry;
	DIR *dir = opendir(folder);

	while (dir && (entry = readdir(dir))) {
		struct region r = { .fd = -1 };

		if (strncmp(entry->d_name, PREFIX, strlen(PREFIX)) != 0 ||
			strlen(entry->d_name) != strlen(PREFIX) + 36 ||
			asprintf(&r.path, "%s/%s", folder, entry->d_name) < 0)
			continue;
		sweep_one(&r);
		region_close(&r, false);
	}
	if (dir)
		closedir(dir);
}
