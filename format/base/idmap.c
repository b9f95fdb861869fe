/* SPDX-License-Identifier: GPL-3.0-or-later */
/* Open addressing with linear probing, at most half full; keys are never taken out. */
#include "format/base/idmap.h"

#include <errno.h>
#include <stdlib.h>

#define FIRST_CAP 64

void idmap_free(struct idmap *m)
{
	free(m->slots);
	*m = (struct idmap){ 0 };
}

static struct idmap_slot *slot_of(struct idmap_slot *slots, size_t cap, uint64_t key)
{
	size_t i = (size_t)((key * 0x9e3779b97f4a7c15ull) >> 20) & (cap - 1);

	while (slots[i].key != 0 && slots[i].key != key)
		i = (i + 1) & (cap - 1);
	return &slots[i];
}

uint64_t idmap_get(const struct idmap *m, uint64_t key)
{
	return m->cap ? slot_of(m->slots, m->cap, key)->value : 0;
}

static int grow(struct idmap *m)
{
	size_t cap = m->cap ? 2 * m->cap : FIRST_CAP;
	struct idmap_slot *slots = calloc(cap, sizeof(*slots));

	if (!slots)
		return -ENOMEM;
	for (size_t i = 0; i < m->cap; i++)
		if (m->slots[i].key)
			*slot_of(slots, cap, m->slots[i].key) = m->slots[i];
	free(m->slots);
	m->slots = slots;
	m->cap = cap;
	return 0;
}

int idmap_set(struct idmap *m, uint64_t key, uint64_t value)
{
	struct idmap_slot *slot;

	if (2 * (m->num + 1) > m->cap && grow(m) < 0)
		return -ENOMEM;
	slot = slot_of(m->slots, m->cap, key);
	if (slot->key == 0)
		m->num++;
	*slot = (struct idmap_slot){ key, value };
	return 0;
}

size_t idmap_keys(const struct idmap *m, uint64_t *out, size_t cap)
{
	size_t num = 0;

	for (size_t i = 0; i < m->cap && num < cap; i++)
		if (m->slots[i].key)
			out[num++] = m->slots[i].key;
	return m->num;
}
