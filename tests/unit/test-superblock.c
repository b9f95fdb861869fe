/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * The superblock: its bytes lie where docs/format/superblock.md says, and everything that is not exactly so is refused.
 */
#include "format/store/superblock.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "format/base/crc32c.h"
#include "tests/lib/sim.h"
#include "tests/lib/tap.h"

static struct superblock example(void)
{
	struct superblock sb = { .version = 1,
		.node_index = 2,
		.num_nodes = 5,
		.created_ns = 0x0102030405060708,
		.uid = 1000,
		.job = "job 42",
		.backing = "/proj/run42",
		.mountpoint = "/cistern" };

	for (int i = 0; i < STORE_UUID_BYTES; i++)
		sb.uuid[i] = (uint8_t)(0xa0 + i), sb.job_uuid[i] = (uint8_t)(0xc0 + i);
	return sb;
}

static bool same(const struct superblock *a, const struct superblock *b)
{
	return a->version == b->version && memcmp(a->uuid, b->uuid, sizeof(a->uuid)) == 0 &&
	       memcmp(a->job_uuid, b->job_uuid, sizeof(a->job_uuid)) == 0 && strcmp(a->job, b->job) == 0 &&
	       a->node_index == b->node_index && a->num_nodes == b->num_nodes && strcmp(a->backing, b->backing) == 0 &&
	       strcmp(a->mountpoint, b->mountpoint) == 0 && a->created_ns == b->created_ns && a->uid == b->uid;
}

static void set_crc(uint8_t *data, size_t len)
{
	uint32_t crc;

	memset(data + 16, 0, 4);
	crc = crc32c(0, data, len);
	for (int i = 0; i < 4; i++)
		data[16 + i] = (uint8_t)(crc >> (8 * i));
}

static void test_bytes(void)
{
	static const uint8_t prefix[16] = { 'C', 'I', 'S', 'T', 'E', 'R', 'N', '\n', 1, 0, 0, 0, 0, 0x30, 0, 0 };
	static const uint8_t numbers[16] = { 2, 0, 0, 0, 5, 0, 0, 0, 8, 7, 6, 5, 4, 3, 2, 1 };
	struct superblock sb = example();
	struct buf out BUF_CLEANUP = { 0 };
	uint8_t copy[SUPERBLOCK_BYTES];

	if (!is_int(superblock_encode(&sb, &out), 0, "encodes") || !is_u64(out.len, 12288, "into 12288 bytes"))
		return;
	memcpy(copy, out.data, sizeof(copy));
	ok(memcmp(out.data, prefix, sizeof(prefix)) == 0, "mark, version, length");
	set_crc(copy, sizeof(copy));
	ok(memcmp(copy + 16, out.data + 16, 4) == 0, "CRC-32C of all bytes with itself as zeros, little-endian");
	ok(out.data[20] == 0xe8 && out.data[21] == 3 && !out.data[22] && !out.data[23], "owner at 20");
	ok(memcmp(out.data + 24, sb.uuid, 16) == 0, "UUID at 24");
	ok(memcmp(out.data + 40, numbers, sizeof(numbers)) == 0, "node, nodes, time at 40");
	is_str((char *)out.data + 64, "job 42", "job at 64");
	is_str((char *)out.data + 320, "/proj/run42", "backing directory at 320");
	is_str((char *)out.data + 4416, "/cistern", "mount point at 4416");
	ok(memcmp(out.data + 8512, sb.job_uuid, 16) == 0, "UUID of the job at 8512");
}

static void test_round_trip(void)
{
	struct superblock sb = example(), back;
	struct buf out BUF_CLEANUP = { 0 };

	memset(sb.backing, 'x', sizeof(sb.backing) - 1);
	buf_u8(&out, 7); /* encode appends */
	is_int(superblock_encode(&sb, &out), 0, "the longest path encodes");
	is_int(superblock_decode(out.data + 1, out.len - 1, &back, NULL), 0, "and decodes");
	ok(same(&sb, &back), "to the same");
	memset(sb.backing, 'x', sizeof(sb.backing));
	is_int(superblock_encode(&sb, &out), -EINVAL, "a path without end is refused");
	sb = example();
	sb.node_index = 5;
	is_int(superblock_encode(&sb, &out), -EINVAL, "a node beyond the nodes is refused");
	sb = example();
	sb.node_index = 0;
	sb.num_nodes = 1;
	is_int(superblock_encode(&sb, &out), -EINVAL, "one node alone is of no job");
	memset(sb.job_uuid, 0, sizeof(sb.job_uuid));
	is_int(superblock_encode(&sb, &out), 0, "and without a job's UUID it is well");
}

/* Every single damaged byte is noticed. */
static void test_damage(void)
{
	struct superblock sb = example(), back;
	struct buf out BUF_CLEANUP = { 0 };
	size_t i, missed = 0;

	(void)superblock_encode(&sb, &out);
	for (i = 0; i < out.len; i++) {
		out.data[i] ^= 0x40;
		if (superblock_decode(out.data, out.len, &back, NULL) != -EBADMSG)
			missed++;
		out.data[i] ^= 0x40;
	}
	is_u64(missed, 0, "each damaged byte is noticed");
	for (i = 0, missed = 0; i < out.len; i += i < 64 ? 1 : 509)
		if (superblock_decode(out.data, i, &back, NULL) != -EBADMSG)
			missed++;
	is_u64(missed, 0, "each cut is noticed");
}

/* With a right CRC: fields that make no sense. */
static void test_nonsense(void)
{
	static const struct {
		size_t at;
		uint8_t value;
		const char *what;
	} table[] = {
		{ 40, 9, "node beyond the nodes" },
		{ 44, 0, "no nodes" },
		{ 56, 1, "reserved bytes" },
		{ 64 + 200, 'x', "rubbish behind the job" },
		{ 320 + 4000, 'x', "rubbish behind the backing directory" },
		{ 12287, 1, "rubbish at the end" },
		{ 8, 0, "version 0" },
	};
	struct superblock sb = example(), back;

	for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
		struct buf out BUF_CLEANUP = { 0 };

		(void)superblock_encode(&sb, &out);
		out.data[table[i].at] = table[i].value;
		set_crc(out.data, out.len);
		is_int(superblock_decode(out.data, out.len, &back, NULL), -EBADMSG, table[i].what);
	}
}

static void test_newer(void)
{
	struct superblock sb = example(), back;
	struct buf out BUF_CLEANUP = { 0 };
	struct cistern_error err = { 0 };

	(void)superblock_encode(&sb, &out);
	out.data[8] = 7;
	set_crc(out.data, out.len);
	is_int(superblock_decode(out.data, out.len, &back, &err), -EPROTONOSUPPORT,
		"a newer version is told from damage");
	ok(strstr(err.text, "version 7") && strstr(err.text, "up to 1"), "and both versions are named: %s", err.text);
	out.data[13] = 0x20;
	set_crc(out.data, 0x2000);
	is_int(superblock_decode(out.data, 0x2000, &back, NULL), -EPROTONOSUPPORT, "also with another length");
}

static void test_file(void)
{
	struct superblock sb = example(), back;
	struct sim *sim = NULL;
	struct io *io = NULL;

	if (!is_int(sim_create(&sim, &io), 0, "a disk"))
		return;
	is_int(superblock_load(io, &back, NULL), -ENOENT, "no file yet");
	is_int(superblock_save(io, &sb), 0, "saved");
	is_int(sim_power_cut(sim, 1), 0, "power lost");
	is_int(superblock_load(io, &back, NULL), 0, "it is there");
	ok(same(&sb, &back), "and the same");
	is_int(sim_corrupt(sim, "superblock", 100, 1), 0, "a byte turns");
	is_int(superblock_load(io, &back, NULL), -EBADMSG, "and is noticed");
	sim_destroy(sim);
}

int main(void)
{
	test_bytes();
	test_round_trip();
	test_damage();
	test_nonsense();
	test_newer();
	test_file();
	return done_testing();
}
