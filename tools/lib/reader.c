/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "tools/lib/reader.h"

#include <errno.h>

#include "tools/lib/daemon.h"

static int ask_snapshot(int fd, const char *store, char *name, size_t cap, struct cistern_error *err)
{
	WIRE_MSG_CLEANUP struct wire_msg reply = { 0 };
	int r = daemon_ask(fd, WIRE_SNAPSHOT, &reply, err);

	if (r < 0)
		return r;
	return wire_get_str(&reply, WIRE_PATH, 0, name, cap)
		       ? 0
		       : cistern_error_set(err, -EPROTO, "%s: the daemon gave no snapshot", store);
}

int reader_open(const char *store, struct reader *ret, struct cistern_error *err)
{
	struct store_options opt = { .mode = STORE_READ_ONLY };
	struct reader rd = { .fd = wire_connect(store, err) };
	struct state_report report;
	char name[256];
	int r = 0;

	if (rd.fd >= 0) {
		r = ask_snapshot(rd.fd, store, name, sizeof(name), err);
		opt.snapshot = name;
	} else if (rd.fd != -ENOENT && rd.fd != -ECONNREFUSED) {
		return rd.fd;
	}
	if (r == 0)
		r = store_open(store, &opt, &rd.store, &report, err);
	if (r < 0)
		daemon_close(&rd.fd);
	else
		*ret = rd;
	return r;
}

void reader_close(struct reader *r)
{
	if (r->store)
		store_abandon(r->store);
	r->store = NULL;
	daemon_close(&r->fd);
}
