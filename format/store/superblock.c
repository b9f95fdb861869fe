/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * The superblock: what makes a directory a store, and whose it is. It is small and seldom written, so it is replaced
 * as a whole and never patched. The first 20 bytes (magic, version, length, CRC) keep their place in every version
 * to come, so that an old program can tell a newer store from a damaged one.
 */
#include "format/store/superblock.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "format/base/crc32c.h"

#define MAGIC       "CISTERN\n"
#define MAGIC_BYTES 8u
#define CRC_AT      16u
#define PREFIX      20u
#define USED_BYTES  (64u + 256u + 2u * STORE_PATH_MAX + STORE_UUID_BYTES)

_Static_assert(sizeof(((struct superblock *)NULL)->job) == 256, "the job's field has 256 bytes");
_Static_assert(USED_BYTES <= SUPERBLOCK_BYTES, "the fields fit");

static bool terminated(const char *text, size_t cap)
{
	return memchr(text, '\0', cap) != NULL;
}

/* Field of fixed width: the string, then zeros. */
static void put_field(struct buf *out, const char *text, size_t cap)
{
	size_t len = strlen(text);

	buf_bytes(out, text, len);
	buf_zeros(out, cap - len);
}

static bool all_zero(const uint8_t *p, size_t len)
{
	return !p || len == 0 || (p[0] == 0 && memcmp(p, p + 1, len - 1) == 0);
}

/* One of the nodes there are; alone, of no job. */
static bool numbers_make_sense(const struct superblock *sb)
{
	return sb->num_nodes > 0 && sb->node_index < sb->num_nodes &&
	       (sb->num_nodes > 1 || all_zero(sb->job_uuid, sizeof(sb->job_uuid)));
}

int superblock_encode(const struct superblock *sb, struct buf *out)
{
	size_t start = out->len;

	if (!terminated(sb->job, sizeof(sb->job)) || !terminated(sb->backing, sizeof(sb->backing)) ||
		!terminated(sb->mountpoint, sizeof(sb->mountpoint)))
		return -EINVAL;
	if (sb->version != STORE_FORMAT_VERSION || !numbers_make_sense(sb))
		return -EINVAL;
	buf_bytes(out, MAGIC, MAGIC_BYTES);
	buf_u32(out, sb->version);
	buf_u32(out, SUPERBLOCK_BYTES);
	buf_u32(out, 0); /* CRC, below */
	buf_u32(out, sb->uid);
	buf_bytes(out, sb->uuid, STORE_UUID_BYTES);
	buf_u32(out, sb->node_index);
	buf_u32(out, sb->num_nodes);
	buf_u64(out, (uint64_t)sb->created_ns);
	buf_u64(out, 0); /* reserved */
	put_field(out, sb->job, sizeof(sb->job));
	put_field(out, sb->backing, sizeof(sb->backing));
	put_field(out, sb->mountpoint, sizeof(sb->mountpoint));
	buf_bytes(out, sb->job_uuid, sizeof(sb->job_uuid));
	buf_zeros(out, SUPERBLOCK_BYTES - USED_BYTES);
	if (!buf_ok(out))
		return -ENOMEM;
	buf_poke_u32(out, start + CRC_AT, crc32c(0, out->data + start, SUPERBLOCK_BYTES));
	return 0;
}

/* CRC of the bytes with the CRC's own four taken as zeros. */
static uint32_t crc_of(const uint8_t *data, size_t len)
{
	uint32_t crc = crc32c_zeros(crc32c(0, data, CRC_AT), 4);

	return crc32c(crc, data + CRC_AT + 4, len - CRC_AT - 4);
}

/* The part that all versions share. */
static int check_prefix(const uint8_t *data, size_t len, struct cistern_error *err)
{
	struct cursor c = cursor_make(data, len);
	const uint8_t *magic = cursor_bytes(&c, MAGIC_BYTES);
	uint32_t version = cursor_u32(&c), length = cursor_u32(&c), crc = cursor_u32(&c);

	if (!cursor_ok(&c))
		return cistern_error_set(err, -EBADMSG, "%zu bytes long, too short for a superblock", len);
	if (memcmp(magic, MAGIC, MAGIC_BYTES) != 0)
		return cistern_error_set(err, -EBADMSG, "does not begin with the mark of a store");
	if (length != len || len > SUPERBLOCK_MAX_BYTES)
		return cistern_error_set(err, -EBADMSG, "is %zu bytes long and says %u", len, length);
	if (crc_of(data, len) != crc)
		return cistern_error_set(err, -EBADMSG, "its checksum is wrong");
	if (version > STORE_FORMAT_VERSION)
		return cistern_error_set(err, -EPROTONOSUPPORT,
			"store format version %u, this program knows versions up to %u: use the newer Cistern that made "
			"the store",
			version, STORE_FORMAT_VERSION);
	if (version != STORE_FORMAT_VERSION || len != SUPERBLOCK_BYTES)
		return cistern_error_set(err, -EBADMSG, "impossible version %u or length", version);
	return 0;
}

static void get_field(struct cursor *c, char *out, size_t cap)
{
	const uint8_t *p = cursor_bytes(c, cap);
	size_t len = p ? strnlen((const char *)p, cap) : 0;

	if (!p || len == cap || !all_zero(p + len, cap - len)) {
		cursor_fail(c);
		return;
	}
	memcpy(out, p, cap);
}

int superblock_decode(const void *buf, size_t len, struct superblock *ret, struct cistern_error *err)
{
	struct cursor c = cursor_make(buf, len);
	struct superblock sb = { .version = STORE_FORMAT_VERSION };
	const uint8_t *uuid, *job_uuid;
	int r = check_prefix(buf, len, err);

	if (r)
		return r;
	(void)cursor_bytes(&c, PREFIX);
	sb.uid = cursor_u32(&c);
	uuid = cursor_bytes(&c, STORE_UUID_BYTES);
	sb.node_index = cursor_u32(&c);
	sb.num_nodes = cursor_u32(&c);
	sb.created_ns = (int64_t)cursor_u64(&c);
	if (cursor_u64(&c) != 0)
		cursor_fail(&c);
	get_field(&c, sb.job, sizeof(sb.job));
	get_field(&c, sb.backing, sizeof(sb.backing));
	get_field(&c, sb.mountpoint, sizeof(sb.mountpoint));
	job_uuid = cursor_bytes(&c, STORE_UUID_BYTES);
	if (job_uuid)
		memcpy(sb.job_uuid, job_uuid, STORE_UUID_BYTES);
	if (!all_zero(cursor_bytes(&c, SUPERBLOCK_BYTES - USED_BYTES), SUPERBLOCK_BYTES - USED_BYTES))
		cursor_fail(&c);
	if (!cursor_ok(&c) || !numbers_make_sense(&sb))
		return cistern_error_set(err, -EBADMSG, "a field has an impossible value");
	memcpy(sb.uuid, uuid, STORE_UUID_BYTES);
	*ret = sb;
	return 0;
}

int superblock_load(struct io *io, struct superblock *ret, struct cistern_error *err)
{
	void *data = NULL;
	size_t len = 0;
	int r = io_read_all(io, SUPERBLOCK_FILE, SUPERBLOCK_MAX_BYTES, &data, &len);

	if (r == -ENOENT)
		return r;
	if (r == -EFBIG)
		return cistern_error_set(err, -EBADMSG, SUPERBLOCK_FILE ": longer than any superblock");
	if (r)
		return cistern_error_set(err, r, SUPERBLOCK_FILE ": cannot be read: %s", strerror(-r));
	r = superblock_decode(data, len, ret, err);
	free(data);
	if (r)
		cistern_error_prefix(err, SUPERBLOCK_FILE);
	return r;
}

int superblock_save(struct io *io, const struct superblock *sb)
{
	struct buf out BUF_CLEANUP = { 0 };
	int r = superblock_encode(sb, &out);

	return r ? r : io_replace(io, SUPERBLOCK_FILE, out.data, out.len);
}
