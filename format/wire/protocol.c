/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "format/wire/protocol.h"

#include <errno.h>
#include <stdio.h>

#define TEXT_BYTES 64

const struct protocols protocols_own = { PROTOCOL_OLDEST, PROTOCOL_NEWEST };

void protocols_put(struct wire_msg *m)
{
	wire_put_u64(m, WIRE_PROTOCOL_OLDEST, protocols_own.oldest);
	wire_put_u64(m, WIRE_PROTOCOL_NEWEST, protocols_own.newest);
}

struct protocols protocols_get(const struct wire_msg *m)
{
	uint64_t oldest = 0, newest = 0;

	if (!wire_get_u64(m, WIRE_PROTOCOL_OLDEST, &oldest) || !wire_get_u64(m, WIRE_PROTOCOL_NEWEST, &newest) ||
		oldest == 0 || newest < oldest || newest > UINT32_MAX)
		return (struct protocols){ 0 };
	return (struct protocols){ (uint32_t)oldest, (uint32_t)newest };
}

bool protocols_meet(struct protocols a, struct protocols b, struct protocols *ret)
{
	struct protocols both = { a.oldest > b.oldest ? a.oldest : b.oldest,
		a.newest < b.newest ? a.newest : b.newest };

	if (both.newest < both.oldest || both.newest == 0)
		return false;
	if (ret)
		*ret = both;
	return true;
}

static const char *text_of(struct protocols p, char text[TEXT_BYTES])
{
	if (p.newest == 0)
		snprintf(text, TEXT_BYTES, "none that has a number");
	else if (p.oldest == p.newest)
		snprintf(text, TEXT_BYTES, "protocol %u", p.newest);
	else
		snprintf(text, TEXT_BYTES, "protocols %u to %u", p.oldest, p.newest);
	return text;
}

int protocols_refuse(struct cistern_error *err, const char *a, struct protocols of_a, const char *b,
	struct protocols of_b, const char *remedy)
{
	char text_a[TEXT_BYTES], text_b[TEXT_BYTES];

	return cistern_error_set(err, -EPROTONOSUPPORT, "%s speaks %s, %s speaks %s, and %s is the older one: %s", a,
		text_of(of_a, text_a), b, text_of(of_b, text_b), of_a.newest < of_b.newest ? a : b, remedy);
}
