/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * A stream gives the same bytes whether its source shows them or reads them, gives back each view once, and reads what cannot be shown.
 */
#include "format/codec/bbstream.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "tests/lib/tap.h"

#define SIZE      (UINT64_C(20) << 20)
#define BLIND_OFF (UINT64_C(3) << 20) /* from here on nothing is shown */
#define BLIND_END (UINT64_C(4) << 20)

struct memory {
	uint8_t *at;
	const uint8_t *shown; /* what is not given back yet */
	size_t shown_len;
	unsigned int views, reads;
};

static int read_memory(void *arg, uint64_t off, void *buf, size_t len)
{
	struct memory *m = arg;

	if (off > SIZE || len > SIZE - off)
		abort(); /* the source is never asked for what it has not */
	memcpy(buf, m->at + off, len);
	m->reads++;
	return 0;
}

static const uint8_t *view_memory(void *arg, uint64_t off, size_t len)
{
	struct memory *m = arg;

	if (off > SIZE || len > SIZE - off || m->shown)
		abort(); /* nor for two views at once */
	if (off < BLIND_END && off + len > BLIND_OFF)
		return NULL;
	m->views++;
	m->shown_len = len;
	return m->shown = m->at + off;
}

static void end_view(void *arg, const uint8_t *bytes, size_t len)
{
	struct memory *m = arg;

	if (bytes != m->shown || len != m->shown_len)
		abort();
	m->shown = NULL;
}

/* Everything from the beginning to the end, in pieces of least to most bytes. */
static bool goes_through(struct bbstream *s, const struct memory *m, uint64_t least, uint64_t most)
{
	uint64_t off = 0, got = 0;
	const uint8_t *p;

	for (; off < SIZE; off += got) {
		uint64_t left = SIZE - off;

		if (bbstream_some(s, off, left < least ? left : least, left < most ? left : most, &p, &got) != 0 ||
			got == 0 || memcmp(p, m->at + off, got) != 0)
			return false;
	}
	return off == SIZE;
}

static void test_one_channel(struct memory *m, const struct bblog_source *src)
{
	struct bbstream s;
	const uint8_t *p;

	bbstream_init(&s, src, 0, 1);
	ok(goes_through(&s, m, 5, 1000) && m->views > 0 && m->reads > 0, "small pieces: %u views, %u reads", m->views,
		m->reads);
	bbstream_follow(&s, src, 0, 1);
	ok(!m->shown, "a stream that follows another has given its view back");
	bbstream_expect(&s, SIZE);
	ok(goes_through(&s, m, 4096, 1 << 20), "large ones");
	bbstream_follow(&s, src, 0, 1);
	m->views = 0;
	bbstream_expect(&s, BLIND_OFF / 2);
	ok(bbstream_look(&s, 100, 100, &p) == 0 && m->shown == m->at + 100 && m->shown_len == BLIND_OFF / 2 - 100,
		"what will be asked for is shown at once");
	ok(bbstream_is_expected(&s, BLIND_OFF / 2 - 1) && !bbstream_is_expected(&s, BLIND_OFF / 2),
		"and no more than that");
	bbstream_follow(&s, src, 0, 1);
	m->views = 0;
	for (uint64_t off = 0; off < SIZE; off += 1 << 20)
		if (bbstream_look(&s, off, 100, &p) != 0 || memcmp(p, m->at + off, 100) != 0)
			ok(false, "at %llu", (unsigned long long)off);
	for (uint64_t off = SIZE; off > 0; off -= 1 << 20)
		if (bbstream_look(&s, off - 100, 100, &p) != 0 || memcmp(p, m->at + off - 100, 100) != 0)
			ok(false, "before %llu", (unsigned long long)off);
	ok(m->views == 0, "few bytes here and there are read");
	ok(bbstream_look(&s, BLIND_END, 1 << 20, &p) == 0 && m->shown && bbstream_look(&s, SIZE - 1, 2, &p) == -ENODATA,
		"nothing behind the end");
	bbstream_free(&s);
	ok(!m->shown, "freed: the view was given back");
}

static void test_shared_file(struct memory *m, const struct bblog_source *src)
{
	struct bbstream s;
	const uint8_t *p;

	m->views = 0;
	bbstream_init(&s, src, 1, 2);
	ok(bbstream_look(&s, 0, 1 << 20, &p) == 0 && memcmp(p, m->at + BBLOG_BLOCK_BYTES, 1 << 20) == 0 &&
			m->views == 0,
		"blocks of a shared file are put together, and not shown");
	bbstream_free(&s);
}

int main(void)
{
	struct memory m = { .at = malloc(SIZE) };
	struct bblog_source src = {
		.read = read_memory, .view = view_memory, .end_view = end_view, .arg = &m, .size = SIZE
	};

	if (!m.at)
		abort();
	for (uint64_t i = 0; i < SIZE; i++)
		m.at[i] = (uint8_t)(i * 2654435761u >> 13);
	test_one_channel(&m, &src);
	test_shared_file(&m, &src);
	free(m.at);
	return done_testing();
}
