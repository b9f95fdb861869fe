/* SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef TESTS_LIB_SIM_IMAGE_H
#define TESTS_LIB_SIM_IMAGE_H

/*
 * Pieces of the simulated disk that know nothing of names: an image is bytes that never move in memory, because
 * somebody may have them mapped; bits is a bitmap that grows.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct image {
	uint8_t *base; /* reserved address space of limit bytes, owned */
	size_t limit;
	size_t usable; /* of these the first so many can be read and written */
};

int image_create(struct image *image, size_t limit);
void image_destroy(struct image *image);           /* a zeroed image is fine */
int image_grow(struct image *image, size_t bytes); /* at least so many usable; -EFBIG past the limit, -ENOMEM */
/* Bytes [from, to) become zero; whole pages are given back to the system. Within usable. */
void image_zero(struct image *image, size_t from, size_t to);

struct bits {
	uint64_t *words; /* owned */
	size_t num_words;
	size_t num_set;
};

void bits_destroy(struct bits *bits);
int bits_grow(struct bits *bits, size_t num);      /* bits 0 .. num - 1 can be used */
bool bits_test(const struct bits *bits, size_t i); /* false past the end */
void bits_set(struct bits *bits, size_t i);
void bits_set_range(struct bits *bits, size_t from, size_t to);   /* [from, to) */
void bits_clear_range(struct bits *bits, size_t from, size_t to); /* [from, to); past the end is fine */
/* The first bit set at or after i, or SIZE_MAX. */
size_t bits_next(const struct bits *bits, size_t i);

#endif
