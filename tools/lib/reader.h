/* SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef TOOLS_LIB_READER_H
#define TOOLS_LIB_READER_H

/* A store to look into, with or without a daemon: of a running one a snapshot is read. Nothing is changed. */

#include "cistern/error.h"
#include "format/store/store.h"

struct reader {              /* reader_close */
	struct store *store; /* owned */
	int fd;              /* the daemon: the snapshot lives as long as this connection; -1: there is none */
};

/* store: its directory. On failure there is nothing to close. */
int reader_open(const char *store, struct reader *ret, struct cistern_error *err);
void reader_close(struct reader *r);

#endif
