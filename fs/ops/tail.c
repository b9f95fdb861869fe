/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * The last page of a mapped file can be stored into behind the file's end. Such bytes belong to
 * nobody: when the file grows, zeros are there. The kernel cuts a page that it writes back at the
 * size of that moment. So a page that is still dirty when the file grows would bring them along.
 *
 * Each READ that ends within a page tells where the kernel's last page ends. When the file grows
 * past that page, or without bytes, the kernel is made to write the page back and drop it first.
 * It does that by itself for a write into the page. A SETATTR cannot wait for write-back: the
 * kernel holds that up until the answer, and then writes back and drops all pages, by the new
 * size. So that write-back is cut here, until the page is read anew. docs/design/one-node.md, 9.
 */
#include "fs/ops/tail.h"

#define PAGE_BYTES 4096u

static uint64_t page_of(uint64_t off)
{
	return off & ~(uint64_t)(PAGE_BYTES - 1);
}

/* Is the page that at lies in within [off, end), or a part of it? */
static bool touches(uint64_t at, uint64_t off, uint64_t end)
{
	return at && off < page_of(at) + PAGE_BYTES && end > page_of(at);
}

void tail_read(struct tail *t, ssize_t got, size_t len, uint64_t off)
{
	uint64_t stop = off + (got > 0 ? (uint64_t)got : 0);

	if (got < 0)
		return;
	if (touches(atomic_load(&t->cut), off, off + len))
		atomic_store(&t->cut, 0);
	if (stop < off + len && stop % PAGE_BYTES)
		atomic_store(&t->end, stop);
	else if (touches(atomic_load(&t->end), off, off + len))
		atomic_store(&t->end, 0);
}

bool tail_leaves(struct tail *t, uint64_t off, uint64_t end, uint64_t *ret_page)
{
	uint64_t was = atomic_load(&t->end);

	if (!was || end <= was || off < page_of(was) + PAGE_BYTES)
		return false;
	*ret_page = page_of(was);
	return atomic_compare_exchange_strong(&t->end, &was, 0);
}

void tail_written(struct tail *t, uint64_t off, uint64_t end)
{
	uint64_t was = atomic_load(&t->end);

	if (touches(atomic_load(&t->cut), off, end))
		atomic_store(&t->cut, 0);
	if (end > was && touches(was, off, end))
		atomic_compare_exchange_strong(&t->end, &was, end < page_of(was) + PAGE_BYTES ? end : 0);
}

void tail_sized(struct tail *t, uint64_t size)
{
	uint64_t was = atomic_exchange(&t->end, 0), cut = atomic_load(&t->cut);

	if (was && size > was && !(cut < was && touches(cut, was, was + 1)))
		atomic_store(&t->cut, was);
}

size_t tail_cut(struct tail *t, size_t len, uint64_t off, size_t *ret_after)
{
	uint64_t cut = atomic_load(&t->cut), next = page_of(cut) + PAGE_BYTES;

	*ret_after = len;
	if (cut <= off || cut >= off + len)
		return len;
	if (next < off + len)
		*ret_after = (size_t)(next - off);
	return (size_t)(cut - off);
}
