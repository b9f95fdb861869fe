/* SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef TOOLS_LIB_DAEMON_H
#define TOOLS_LIB_DAEMON_H

/* What the tools ask of a running daemon, over the store's socket, and what it leaves in the store at its end. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "cistern/error.h"
#include "format/wire/wire.h"

#define DAEMON_CALL_USEC   30000000u /* an answer that takes longer means a daemon that hangs */
#define DAEMON_RESULT_FILE "result.json"

#define WIRE_MSG_CLEANUP  __attribute__((cleanup(wire_msg_free)))
#define DAEMON_FD_CLEANUP __attribute__((cleanup(daemon_close)))

void daemon_close(int *fd); /* closes it unless negative */
/*
 * Whoever has a deadline (clock_usec()) waits for a daemon that does not answer until then, and at most half a second longer; nobody longer than
 * DAEMON_CALL_USEC. -ETIMEDOUT then.
 */
int daemon_connect(const char *store, uint64_t deadline, struct cistern_error *err); /* as wire_connect() */
/* A request without fields, and its reply. */
int daemon_ask_until(int fd, enum wire_type type, uint64_t deadline, struct wire_msg *reply, struct cistern_error *err);
int daemon_ask(int fd, enum wire_type type, struct wire_msg *reply, struct cistern_error *err); /* no deadline */
uint64_t daemon_u64(const struct wire_msg *reply, enum wire_tag tag); /* 0 when it is not there */

/* Begin to drain: all, or num paths relative to the mount's root. */
int daemon_flush(
	int fd, char *const *paths, size_t num, uint64_t deadline, uint64_t *ret_session, struct cistern_error *err);
/*
 * Until the session (0: whichever is on) has ended, with progress on standard error: 0 and the reply with WIRE_RESULT
 * and WIRE_TEXT. -ETIMEDOUT at the deadline, or when it does not answer. -ECONNRESET: the daemon ended meanwhile.
 */
int daemon_wait_drain(int fd, uint64_t session, uint64_t deadline, struct wire_msg *reply, struct cistern_error *err);
/* The WIRE_RESULT of a reply as exit status; CISTERN_EXIT_FAILED, which is said, when it has none. */
int daemon_result_of(const struct wire_msg *reply);
/* Says all WIRE_TEXT of a reply, and returns its WIRE_RESULT as exit status (CISTERN_EXIT_FAILED when it has none). */
int daemon_say_result(const struct wire_msg *reply);

/*
 * Until no daemon holds the store any more. pidfd: of the daemon, or -1. With progress while it still answers.
 * -ETIMEDOUT at the deadline.
 */
int daemon_wait_end(const char *store, int pidfd, uint64_t deadline, struct cistern_error *err);
int daemon_pidfd(pid_t pid); /* -errno: gone, or an old kernel */

#define DAEMON_ERRORS_MAX 10

struct daemon_error {
	char path[512];
	char text[512];
};

/* STORE/result.json: {"result": N, "text": "...", "dirty_files": N, "errors": [{"path": "...", "text": "..."}]} */
struct daemon_result {
	int64_t result; /* enum cistern_exit */
	int64_t dirty_files;
	char text[CISTERN_ERROR_TEXT_BYTES];
	struct daemon_error errors[DAEMON_ERRORS_MAX]; /* the first of them */
	size_t num_errors;
};

/* -ENOENT: the last daemon came to no end of its own. -EBADMSG: not understood. */
int daemon_read_result(const char *store, struct daemon_result *ret, struct cistern_error *err);
bool daemon_parse_result(const char *json, struct daemon_result *ret); /* the text of that file */

#endif
