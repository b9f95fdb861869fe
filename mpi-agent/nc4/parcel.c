/* SPDX-License-Identifier: GPL-3.0-or-later */
/* The table is read and checked as a whole before any chunk is taken: a parcel is of use altogether or not at all. */
#include "mpi-agent/nc4/parcel.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "format/base/crc32c.h"
#include "format/base/fdio.h"

#define HEAD_MAGIC  "CISNC4P1"
#define TAIL_MAGIC  "CISNC4PE"
#define MAGIC_BYTES 8
#define HEAD_BYTES  24u
#define ENTRY_BYTES 24u
#define TAIL_BYTES  32u
#define CRC_OFF     16u /* in the tail */

struct entry {
	uint64_t number, off;
	uint32_t len, mask;
};

struct parcel {
	int fd;              /* borrowed */
	struct entry *table; /* owned */
	uint64_t num, next;
	uint8_t *bytes; /* owned */
	size_t cap;
};

/* Whoever has another file, or other settings, would cut it into other chunks. */
static int fingerprint(const struct nc4_shape *s, uint32_t *ret)
{
	struct buf all BUF_CLEANUP = { 0 };

	buf_u64(&all, s->c->header_bytes);
	buf_u64(&all, s->c->num_records);
	buf_u32(&all, s->deflate);
	for (uint32_t i = 0; i < s->c->num_vars; i++) {
		const struct nc4_var *v = &s->vars[i];

		buf_u64(&all, s->c->vars[i].begin);
		buf_u32(&all, s->c->vars[i].type);
		buf_u8(&all, (uint8_t)(v->is_chunked | v->is_filtered << 1 | v->is_shuffled << 2));
		buf_u64(&all, v->num_chunks);
		for (uint32_t d = 0; d < s->c->vars[i].num_dims; d++)
			buf_u64(&all, v->chunk[d]);
	}
	if (!buf_ok(&all))
		return -ENOMEM;
	*ret = crc32c(0, all.data, all.len);
	return 0;
}

static int encode_head(const struct nc4_shape *s, const struct nc4_share *share, struct buf *out)
{
	uint32_t print;
	int r = fingerprint(s, &print);

	if (r < 0)
		return r;
	buf_bytes(out, HEAD_MAGIC, MAGIC_BYTES);
	buf_u32(out, share->which);
	buf_u32(out, share->num);
	buf_u32(out, print);
	buf_u32(out, 0);
	return buf_ok(out) ? 0 : -ENOMEM;
}

/* ---- writing */

static int write_all(struct parcel_writer *w, const uint8_t *bytes, size_t len)
{
	int r = fdio_write(w->fd, bytes, len, w->at);

	if (r == 0)
		w->at += len;
	return r;
}

int parcel_begin(struct parcel_writer *w, int fd, const struct nc4_shape *s, const struct nc4_share *share)
{
	struct buf head BUF_CLEANUP = { 0 };
	int r = encode_head(s, share, &head);

	*w = (struct parcel_writer){ .fd = fd };
	return r < 0 ? r : write_all(w, head.data, head.len);
}

int parcel_add(struct parcel_writer *w, const struct packed *p)
{
	buf_u64(&w->table, p->number);
	buf_u64(&w->table, w->at);
	buf_u32(&w->table, (uint32_t)p->len);
	buf_u32(&w->table, p->filter_mask);
	w->chunks++;
	return buf_ok(&w->table) ? write_all(w, p->bytes, p->len) : -ENOMEM;
}

int parcel_end(struct parcel_writer *w)
{
	size_t tail = w->table.len;

	buf_u64(&w->table, w->at);
	buf_u64(&w->table, w->chunks);
	if (!buf_ok(&w->table))
		return -ENOMEM;
	buf_u32(&w->table, crc32c(0, w->table.data, tail + CRC_OFF));
	buf_u32(&w->table, 0);
	buf_bytes(&w->table, TAIL_MAGIC, MAGIC_BYTES);
	return buf_ok(&w->table) ? write_all(w, w->table.data, w->table.len) : -ENOMEM;
}

void parcel_free(struct parcel_writer *w)
{
	buf_free(&w->table);
}

/* ---- reading */

/* All of it, or -EBADMSG where the file ends before. */
static int read_all(int fd, uint8_t *out, size_t len, uint64_t off)
{
	int r = fdio_read_exact(fd, out, len, off);

	return r == -ENODATA ? -EBADMSG : r;
}

/* Numbers ascend and belong to the share; bytes lie behind each other and are not more than deflate can make of a chunk. */
static int take_table(struct parcel *p, const uint8_t *bytes, const struct nc4_shape *s, const struct nc4_share *share,
	uint64_t table_off)
{
	struct cursor in = cursor_make(bytes, p->num * ENTRY_BYTES);
	uint64_t at = HEAD_BYTES, index;

	for (uint64_t i = 0; i < p->num; i++) {
		struct entry *e = &p->table[i];

		*e = (struct entry){ .number = cursor_u64(&in), .off = cursor_u64(&in) };
		e->len = cursor_u32(&in);
		e->mask = cursor_u32(&in);
		if (e->number >= s->num_chunks || (i > 0 && e->number <= e[-1].number) ||
			!nc4_share_has(share, s->num_chunks, e->number, &index) || e->off != at || e->len == 0 ||
			e->len > 2 * s->max_chunk_bytes + 64 || e->len > table_off - at)
			return -EBADMSG;
		at += e->len;
	}
	return at == table_off ? 0 : -EBADMSG;
}

static int read_table(struct parcel *p, const struct nc4_shape *s, const struct nc4_share *share, uint64_t size)
{
	uint8_t tail[TAIL_BYTES], *bytes;
	uint64_t table_off, len;
	struct cursor in;
	int r = size < HEAD_BYTES + TAIL_BYTES ? -EBADMSG : read_all(p->fd, tail, sizeof(tail), size - TAIL_BYTES);

	if (r < 0)
		return r;
	in = cursor_make(tail, sizeof(tail));
	table_off = cursor_u64(&in);
	p->num = cursor_u64(&in);
	len = size - TAIL_BYTES - table_off;
	if (memcmp(tail + TAIL_BYTES - MAGIC_BYTES, TAIL_MAGIC, MAGIC_BYTES) != 0 || table_off < HEAD_BYTES ||
		table_off > size - TAIL_BYTES || p->num > s->num_chunks || len != p->num * ENTRY_BYTES)
		return -EBADMSG;
	bytes = malloc((size_t)len + CRC_OFF);
	p->table = calloc((size_t)p->num + 1, sizeof(*p->table));
	r = bytes && p->table ? read_all(p->fd, bytes, (size_t)len + CRC_OFF, table_off) : -ENOMEM;
	if (r == 0 && crc32c(0, bytes, (size_t)len + CRC_OFF) != cursor_u32(&in))
		r = -EBADMSG;
	if (r == 0)
		r = take_table(p, bytes, s, share, table_off);
	free(bytes);
	return r;
}

int parcel_open(int fd, const struct nc4_shape *s, const struct nc4_share *share, struct parcel **ret)
{
	struct parcel *p = calloc(1, sizeof(*p));
	struct buf want BUF_CLEANUP = { 0 };
	uint8_t head[HEAD_BYTES];
	struct stat st;
	int r = p ? encode_head(s, share, &want) : -ENOMEM;

	if (r == 0) {
		p->fd = fd;
		r = fstat(fd, &st) ? -errno : read_all(fd, head, sizeof(head), 0);
	}
	if (r == 0 && memcmp(head, want.data, sizeof(head)) != 0)
		r = -EBADMSG;
	if (r == 0)
		r = read_table(p, s, share, (uint64_t)st.st_size);
	if (r < 0)
		parcel_close(p);
	else
		*ret = p;
	return r;
}

uint64_t parcel_next(const struct parcel *p)
{
	return p->next < p->num ? p->table[p->next].number : UINT64_MAX;
}

int parcel_take(struct parcel *p, struct packed *ret)
{
	const struct entry *e = &p->table[p->next];
	int r;

	if (e->len > p->cap) {
		uint8_t *grown = realloc(p->bytes, e->len);

		if (!grown)
			return -ENOMEM;
		p->bytes = grown;
		p->cap = e->len;
	}
	r = read_all(p->fd, p->bytes, e->len, e->off);
	if (r < 0)
		return r == -EBADMSG ? -EIO : r;
	p->next++;
	*ret = (struct packed){ .number = e->number, .bytes = p->bytes, .len = e->len, .filter_mask = e->mask };
	return 0;
}

void parcel_close(struct parcel *p)
{
	if (!p)
		return;
	free(p->table);
	free(p->bytes);
	free(p);
}
