/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Images reserve address space (PROT_NONE, no swap accounted) and open it in steps. Huge pages are declined: a test
 * that writes one byte here and there must not cost 2 MiB each time.
 */
#include "tests/lib/sim_image.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define GROW_BYTES      ((size_t)1 << 20)
#define PAGE_BYTES      ((size_t)4096)
#define GIVE_BACK_BYTES ((size_t)1 << 16) /* below this, clearing is cheaper than a system call */
#define WORD_BITS       64

int image_create(struct image *image, size_t limit)
{
	void *base = mmap(NULL, limit, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (base == MAP_FAILED)
		return -ENOMEM;
	(void)madvise(base, limit, MADV_NOHUGEPAGE); /* a kernel without huge pages refuses: fine */
	*image = (struct image){ .base = base, .limit = limit };
	return 0;
}

void image_destroy(struct image *image)
{
	if (image->base)
		munmap(image->base, image->limit);
	*image = (struct image){ 0 };
}

int image_grow(struct image *image, size_t bytes)
{
	size_t usable;

	if (bytes <= image->usable)
		return 0;
	if (bytes > image->limit)
		return -EFBIG;
	usable = (bytes + GROW_BYTES - 1) / GROW_BYTES * GROW_BYTES;
	if (usable > image->limit)
		usable = image->limit;
	if (mprotect(image->base, usable, PROT_READ | PROT_WRITE))
		return -ENOMEM;
	image->usable = usable;
	return 0;
}

void image_zero(struct image *image, size_t from, size_t to)
{
	size_t first = (from + PAGE_BYTES - 1) / PAGE_BYTES * PAGE_BYTES, last = to / PAGE_BYTES * PAGE_BYTES;

	if (to <= from)
		return;
	if (last <= first || last - first < GIVE_BACK_BYTES ||
		madvise(image->base + first, last - first, MADV_DONTNEED)) {
		memset(image->base + from, 0, to - from);
		return;
	}
	memset(image->base + from, 0, first - from);
	memset(image->base + last, 0, to - last);
}

void bits_destroy(struct bits *bits)
{
	free(bits->words);
	*bits = (struct bits){ 0 };
}

int bits_grow(struct bits *bits, size_t num)
{
	size_t need = (num + WORD_BITS - 1) / WORD_BITS;
	size_t num_words = bits->num_words ? bits->num_words : 8;
	uint64_t *words;

	if (need <= bits->num_words)
		return 0;
	while (num_words < need)
		num_words *= 2;
	words = realloc(bits->words, num_words * sizeof(*words));
	if (!words)
		return -ENOMEM;
	memset(words + bits->num_words, 0, (num_words - bits->num_words) * sizeof(*words));
	bits->words = words;
	bits->num_words = num_words;
	return 0;
}

bool bits_test(const struct bits *bits, size_t i)
{
	return i / WORD_BITS < bits->num_words && (bits->words[i / WORD_BITS] >> (i % WORD_BITS) & 1);
}

void bits_set(struct bits *bits, size_t i)
{
	bits->num_set += !bits_test(bits, i);
	bits->words[i / WORD_BITS] |= UINT64_C(1) << (i % WORD_BITS);
}

void bits_set_range(struct bits *bits, size_t from, size_t to)
{
	for (size_t i = from; i < to; i++)
		bits_set(bits, i);
}

void bits_clear_range(struct bits *bits, size_t from, size_t to)
{
	for (size_t i = bits_next(bits, from); i < to; i = bits_next(bits, i + 1)) {
		bits->words[i / WORD_BITS] &= ~(UINT64_C(1) << (i % WORD_BITS));
		bits->num_set--;
	}
}

size_t bits_next(const struct bits *bits, size_t i)
{
	size_t w = i / WORD_BITS;
	uint64_t word;

	if (bits->num_set == 0 || w >= bits->num_words)
		return SIZE_MAX;
	word = bits->words[w] & UINT64_MAX << (i % WORD_BITS);
	while (!word) {
		if (++w >= bits->num_words)
			return SIZE_MAX;
		word = bits->words[w];
	}
	return w * WORD_BITS + (size_t)__builtin_ctzll(word);
}
