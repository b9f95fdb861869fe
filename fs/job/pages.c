/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Pages that this node's kernel was given of a file that it may write through mappings. A page that was changed comes back whole,
 * and what it has of other nodes' bytes is as old as the page: compared with what we see by then, bytes that others have
 * committed since would seem to have been changed back here. So what was given is kept, and is what a page is compared with.
 * There is an end to that memory; of a page that is not kept the file as we see it has to do.
 */
#include "fs/job/share.h"

#include <stdlib.h>
#include <string.h>

#define PAGE_BYTES 4096u
#define SLOTS      8192u         /* of a file */
#define ALL_BYTES  (64ull << 20) /* of a mount */

struct page {
	uint64_t number;
	uint8_t bytes[PAGE_BYTES];
};

struct pages {
	struct share *share;
	pthread_mutex_t lock;
	struct page *slots[SLOTS]; /* owned; page number % SLOTS */
};

static struct page **slot_of(struct pages *p, uint64_t number)
{
	return &p->slots[number % SLOTS];
}

static void drop(struct pages *p, struct page **slot)
{
	if (*slot)
		p->share->page_bytes -= PAGE_BYTES;
	free(*slot);
	*slot = NULL;
}

/* What was kept of a page must not stay when what is new cannot be kept. */
static void keep(struct pages *p, uint64_t number, const uint8_t *bytes, size_t len)
{
	struct page **slot = slot_of(p, number);

	if (!*slot && p->share->page_bytes < ALL_BYTES) {
		*slot = malloc(sizeof(**slot));
		if (*slot)
			p->share->page_bytes += PAGE_BYTES;
	}
	if (!*slot)
		return;
	(*slot)->number = number;
	if (len)
		memcpy((*slot)->bytes, bytes, len);
	memset((*slot)->bytes + len, 0, PAGE_BYTES - len);
}

static struct pages *pages_of(struct job *j, struct shared *s, bool make)
{
	pthread_mutex_lock(&s->mutex);
	if (!s->pages && make) {
		s->pages = calloc(1, sizeof(*s->pages));
		if (s->pages) {
			s->pages->share = j->share;
			pthread_mutex_init(&s->pages->lock, NULL);
		}
	}
	struct pages *p = s->pages;
	pthread_mutex_unlock(&s->mutex);
	return p;
}

void pages_given(
	struct job *j, struct shared *s, bool may_write, const uint8_t *buf, size_t got, size_t len, uint64_t off)
{
	struct pages *p = off % PAGE_BYTES == 0 ? pages_of(j, s, may_write) : NULL;

	if (!p)
		return;
	pthread_mutex_lock(&p->lock);
	for (size_t at = 0; at < len; at += PAGE_BYTES) {
		size_t left = got > at ? got - at : 0;

		keep(p, (off + at) / PAGE_BYTES, left ? buf + at : NULL, left < PAGE_BYTES ? left : PAGE_BYTES);
	}
	pthread_mutex_unlock(&p->lock);
}

bool pages_were(struct job *j, struct shared *s, size_t len, uint64_t off, uint8_t *was)
{
	struct pages *p = off % PAGE_BYTES == 0 ? pages_of(j, s, false) : NULL;
	bool all = p;

	if (!p)
		return false;
	pthread_mutex_lock(&p->lock);
	for (size_t at = 0; at < len; at += PAGE_BYTES) {
		size_t part = len - at < PAGE_BYTES ? len - at : PAGE_BYTES;
		uint64_t number = (off + at) / PAGE_BYTES;
		struct page *page = *slot_of(p, number);

		if (page && page->number == number)
			memcpy(was + at, page->bytes, part);
		else
			all = false;
	}
	pthread_mutex_unlock(&p->lock);
	return all;
}

void pages_destroy(struct pages *p)
{
	if (!p)
		return;
	for (size_t i = 0; i < SLOTS; i++)
		drop(p, &p->slots[i]);
	pthread_mutex_destroy(&p->lock);
	free(p);
}
