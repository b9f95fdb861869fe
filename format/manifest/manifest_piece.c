/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * What another node tells is in the log once, though it was told again because the answer was lost, whoever was killed meanwhile: a move that
 * stood there again behind what has come to its old name since would take that away. So a piece has its head in the log, too, and a torn one, of which no
 * answer can have said that it was taken, is cut off by who opens the log next.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "format/base/array.h"
#include "format/manifest/manifest_private.h"

#define HEAD_PREFIX "{\"state\":\"lines\",\"store\":\""

size_t manifest_piece_head(const struct manifest_piece *p, char out[MANIFEST_HEAD_BYTES])
{
	return (size_t)snprintf(out, MANIFEST_HEAD_BYTES,
		HEAD_PREFIX "%s\",\"part\":\"%016" PRIx64 "\",\"from\":%" PRIu64 ",\"bytes\":%" PRIu64 "}\n", p->store,
		p->part, p->from, p->bytes);
}

/* How long the head is with which text begins; 0: with none. */
static size_t read_head(const char *text, size_t len, struct manifest_piece *ret)
{
	char line[MANIFEST_HEAD_BYTES] = "", again[MANIFEST_HEAD_BYTES];
	size_t head;

	memcpy(line, text, len < sizeof(line) - 1 ? len : sizeof(line) - 1);
	if (sscanf(line,
		    HEAD_PREFIX "%36[0-9a-f-]\",\"part\":\"%16" SCNx64 "\",\"from\":%" SCNu64 ",\"bytes\":%" SCNu64 "}",
		    ret->store, &ret->part, &ret->from, &ret->bytes) != 4)
		return 0;
	head = manifest_piece_head(ret, again);
	return head <= len && memcmp(text, again, head) == 0 && ret->bytes <= UINT64_MAX - ret->from ? head : 0;
}

/* What the log has last of that store; with room for it, if that is nothing. NULL: out of memory */
static struct manifest_piece *last_of(struct manifest *m, const struct manifest_piece *p)
{
	size_t i = 0;

	while (i < m->num_stores && strcmp(m->stores[i].store, p->store) != 0)
		i++;
	if (i == m->num_stores) {
		if (array_room(&m->stores, &m->cap_stores, m->num_stores, sizeof(*m->stores)) < 0)
			return NULL;
		m->stores[m->num_stores++] = *p;
		m->stores[i].bytes = 0;
	}
	return &m->stores[i];
}

/* *ret_whole: how much of text are lines and whole pieces. */
static int look_through(struct manifest *m, const char *text, size_t len, size_t *ret_whole)
{
	size_t at = 0;

	while (at < len) {
		const char *newline = memchr(text + at, '\n', len - at);
		size_t next = newline ? (size_t)(newline + 1 - text) : len;
		struct manifest_piece p, *last;

		if (read_head(text + at, len - at, &p) > 0) {
			if (p.bytes > len - next)
				break;
			last = last_of(m, &p);
			if (!last)
				return -ENOMEM;
			*last = p;
			next += (size_t)p.bytes;
		}
		at = next;
	}
	*ret_whole = at;
	return 0;
}

int manifest_find_pieces(struct manifest *m)
{
	size_t len = (size_t)manifest_mark(m), whole = len;
	char *text;
	int r;

	if (len == 0)
		return 0;
	text = mmap(NULL, len, PROT_READ, MAP_SHARED, fileno(m->log), 0);
	if (text == MAP_FAILED)
		return -errno;
	r = look_through(m, text, len, &whole);
	munmap(text, len);
	return r == 0 && whole < len && ftruncate(fileno(m->log), (off_t)whole) ? -errno : r;
}

static int append_rest(
	struct manifest *m, struct manifest_piece *last, const struct manifest_piece *rest, const char *lines)
{
	char head[MANIFEST_HEAD_BYTES];
	struct buf BUF_CLEANUP piece = { 0 };
	int r;

	buf_bytes(&piece, head, manifest_piece_head(rest, head));
	buf_bytes(&piece, lines, (size_t)rest->bytes);
	r = buf_ok(&piece) ? manifest_append(m, piece.data, piece.len) : -ENOMEM;
	if (r == 0)
		*last = *rest;
	return r;
}

int manifest_append_piece(struct manifest *m, const void *piece, size_t len)
{
	struct manifest_piece p, *last;
	size_t head = read_head(piece, len, &p);
	uint64_t end = head ? p.from + p.bytes : 0;

	if (head == 0) /* of a node whose version is older */
		return manifest_append(m, piece, len);
	if (p.bytes != len - head)
		return -EINVAL;
	last = last_of(m, &p);
	if (!last)
		return -ENOMEM;
	if (last->part == p.part && last->from + last->bytes > p.from) {
		uint64_t known = last->from + last->bytes;

		p.from = known < end ? known : end;
		p.bytes = end - p.from;
	}
	return p.bytes > 0 ? append_rest(m, last, &p, (const char *)piece + len - p.bytes) : 0;
}
