/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * The state's own numbers as a value. Bytes: u8 version of all keys and values of the index, then varints in the
 * order of fields(), 16 bytes of boot id, u8 clean; in version 2, which a state has once it was part of a job of many nodes,
 * the varints of job_fields(); in version 3, which a state has once it knows of a write who wrote, those and u8 1 when it was; in
 * version 4, which a state has once a page was kept in parts, those and u8 1 when it knows of a write who wrote; in version 5, which
 * a state has once it knows of a write when, by the job's clock, those, u8 1 when a page was kept in parts, and the newest such time;
 * version 6, which a state has once it knows when a shared file's times were set, is the same; in version 7, which a state has once it
 * knows of what time the tree's last change is, those, u8 1 when it knows of a write when, u8 1 when it knows when times were set, and that time;
 * in version 8 those and tagged fields: what comes later is one more of these.
 */
#include "format/index/state_private.h"

#include <errno.h>
#include <string.h>

#include "format/base/tagged.h"

#define META_VERSION           1
#define META_VERSION_JOB       2
#define META_VERSION_WRITERS   3
#define META_VERSION_PARTS     4
#define META_VERSION_TIMED     5
#define META_VERSION_TIMES_SET 6
#define META_VERSION_TREE_TIME 7
#define META_VERSION_TAGGED    8
#define TAG_SPECIAL            1 /* required, no bytes: an inode has been a FIFO, a socket or a device node */
#define NUM_FIELDS             13
#define NUM_JOB_FIELDS         3

static void fields(struct meta *m, uint64_t *out[NUM_FIELDS])
{
	uint64_t *all[NUM_FIELDS] = { &m->next_ino, &m->inodes, &m->names, &m->dirty_files, &m->log_bytes, &m->extents,
		&m->private_files, &m->written_bytes, &m->saved_bytes, &m->drained_bytes, &m->drained_files,
		&m->through_bytes, &m->sync_upto };

	memcpy(out, all, sizeof all);
}

static void job_fields(struct meta *m, uint64_t *out[NUM_JOB_FIELDS])
{
	uint64_t *all[NUM_JOB_FIELDS] = { &m->tree_stamp, &m->share_inodes, &m->share_extents };

	memcpy(out, all, sizeof all);
}

static uint8_t version_of(const struct meta *m)
{
	if (m->special)
		return META_VERSION_TAGGED;
	if (m->tree_time_ns)
		return META_VERSION_TREE_TIME;
	if (m->timed)
		return m->times_set ? META_VERSION_TIMES_SET : META_VERSION_TIMED;
	if (m->parts)
		return META_VERSION_PARTS;
	return m->writers ? META_VERSION_WRITERS : m->job ? META_VERSION_JOB : META_VERSION;
}

int meta_encode(const struct meta *m, struct buf *out)
{
	struct meta copy = *m;
	uint64_t *field[NUM_FIELDS], *job_field[NUM_JOB_FIELDS];
	uint8_t version = version_of(m);

	fields(&copy, field);
	job_fields(&copy, job_field);
	buf_u8(out, version);
	for (int i = 0; i < NUM_FIELDS; i++)
		buf_varint(out, *field[i]);
	buf_bytes(out, m->boot_id, sizeof m->boot_id);
	buf_u8(out, m->clean);
	for (int i = 0; version >= META_VERSION_JOB && i < NUM_JOB_FIELDS; i++)
		buf_varint(out, *job_field[i]);
	if (version >= META_VERSION_WRITERS)
		buf_u8(out, m->job);
	if (version >= META_VERSION_PARTS)
		buf_u8(out, m->writers);
	if (version >= META_VERSION_TIMED) {
		buf_u8(out, m->parts);
		buf_varint(out, m->clock_ns);
	}
	if (version >= META_VERSION_TREE_TIME) {
		buf_u8(out, m->timed);
		buf_u8(out, m->times_set);
		buf_varint(out, m->tree_time_ns);
	}
	if (m->special)
		tagged_put(out, TAG_SPECIAL, true, NULL, 0);
	return buf_ok(out) ? 0 : -ENOMEM;
}

static bool take_flag(struct cursor *c)
{
	uint8_t v = cursor_u8(c);

	if (v > 1)
		cursor_fail(c);
	return v;
}

static int take_tagged(struct cursor *c, struct meta *m)
{
	struct tagged f = { 0 };
	int r;

	while ((r = tagged_next(c, &f)) > 0) {
		if (f.tag != TAG_SPECIAL && f.required)
			return -EPROTONOSUPPORT;
		if (f.tag == TAG_SPECIAL && (!f.required || cursor_left(&f.bytes) > 0))
			return -EBADMSG;
		m->special |= f.tag == TAG_SPECIAL;
	}
	return r;
}

int meta_decode(const void *val, size_t len, struct meta *ret)
{
	struct cursor c = cursor_make(val, len);
	uint8_t version = cursor_u8(&c);
	struct meta m = { .job = version >= META_VERSION_JOB,
		.writers = version >= META_VERSION_WRITERS,
		.parts = version >= META_VERSION_PARTS,
		.timed = version >= META_VERSION_TIMED,
		.times_set = version == META_VERSION_TIMES_SET };
	uint64_t *field[NUM_FIELDS], *job_field[NUM_JOB_FIELDS];
	const uint8_t *boot_id;
	int r = 0;

	if (cursor_ok(&c) && version > META_VERSION_TAGGED)
		return -EPROTONOSUPPORT;
	fields(&m, field);
	job_fields(&m, job_field);
	for (int i = 0; i < NUM_FIELDS; i++)
		*field[i] = cursor_varint(&c);
	boot_id = cursor_bytes(&c, sizeof m.boot_id);
	if (boot_id)
		memcpy(m.boot_id, boot_id, sizeof m.boot_id);
	m.clean = cursor_u8(&c);
	for (int i = 0; m.job && i < NUM_JOB_FIELDS; i++)
		*job_field[i] = cursor_varint(&c);
	if (m.writers)
		m.job = take_flag(&c);
	if (m.parts)
		m.writers = take_flag(&c);
	if (m.timed) {
		m.parts = take_flag(&c);
		m.clock_ns = cursor_varint(&c);
		if (m.clock_ns > INT64_MAX)
			cursor_fail(&c);
	}
	if (version >= META_VERSION_TREE_TIME) {
		m.timed = take_flag(&c);
		m.times_set = take_flag(&c);
		m.tree_time_ns = cursor_varint(&c);
		if (m.tree_time_ns > INT64_MAX)
			cursor_fail(&c);
	}
	if (version == META_VERSION_TAGGED)
		r = take_tagged(&c, &m);
	if (r < 0)
		return r;
	if (!cursor_ok(&c) || cursor_left(&c) > 0 || version < META_VERSION || m.next_ino <= STATE_ROOT_INO)
		return -EBADMSG;
	*ret = m;
	return 0;
}
