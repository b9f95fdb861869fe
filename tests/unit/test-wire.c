/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * The wire: fields and frames, what is refused, time-outs, and the socket's file in all the places where a store may be.
 */
#include "format/wire/wire.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <unistd.h>

#include "format/base/crc32c.h"
#include "format/manifest/manifest.h"
#include "format/wire/frame.h"
#include "format/wire/shared.h"
#include "tests/lib/corpus.h"
#include "tests/lib/tap.h"

static bool append(const uint8_t *p, size_t len, void *arg)
{
	char *all = arg;

	snprintf(all + strlen(all), 16, "<%.*s>", (int)len, (const char *)p);
	return len > 0;
}

static void test_fields(void)
{
	char all[32] = "";
	struct wire_msg m = { 0 };
	const uint8_t *p;
	size_t len;
	uint64_t u = 0;
	int64_t i = 0;
	char text[8], *copy = NULL;

	wire_msg_init(&m, WIRE_FLUSH);
	wire_put_u64(&m, WIRE_SESSION, UINT64_MAX);
	wire_put_i64(&m, WIRE_STATUS, -5);
	wire_put_str(&m, WIRE_PATH, "a/b");
	wire_put_str(&m, WIRE_PATH, "");
	wire_put_bytes(&m, WIRE_RECORD, "x\0y", 3);
	ok(wire_get_u64(&m, WIRE_SESSION, &u) && u == UINT64_MAX, "u64");
	ok(wire_get_i64(&m, WIRE_STATUS, &i) && i == -5, "i64");
	ok(wire_get_str(&m, WIRE_PATH, 0, text, sizeof(text)) && !strcmp(text, "a/b"), "the first string");
	ok(wire_get_str(&m, WIRE_PATH, 1, text, sizeof(text)) && !text[0], "the second, empty");
	ok(!wire_get_str(&m, WIRE_PATH, 2, text, sizeof(text)), "no third");
	ok(!wire_get_str(&m, WIRE_PATH, 0, text, 3), "no room: nothing");
	ok(wire_get_bytes(&m, WIRE_RECORD, 0, &p, &len) && len == 3 && !memcmp(p, "x\0y", 3), "bytes with a NUL");
	ok(!wire_get_str(&m, WIRE_RECORD, 0, text, sizeof(text)), "are no string");
	ok(!wire_get_u64(&m, WIRE_STATUS, &u) && !wire_get_u64(&m, WIRE_PATH, &u), "another kind is not the field");
	ok(!wire_get_u64(&m, WIRE_RATE, &u), "absent");
	ok(!wire_each_bytes(&m, WIRE_PATH, append, all), "all of a kind, until it is enough");
	is_str(all, "<a/b><>", "in order");
	ok(wire_each_bytes(&m, WIRE_RECORD, append, all) && strlen(all) > 7, "to the end");
	ok(!wire_each_bytes(&m, WIRE_SESSION, append, all), "not of another kind");
	ok(wire_each_bytes(&m, WIRE_RATE, append, all), "none is all right");
	is_int(wire_copy_str(&m, WIRE_PATH, 0, 3, &copy), 0, "a copy");
	is_str(copy, "a/b", "of the first string");
	free(copy);
	is_int(wire_copy_str(&m, WIRE_PATH, 1, 0, &copy), 0, "and of the empty one");
	is_str(copy, "", "is empty");
	free(copy);
	is_int(wire_copy_str(&m, WIRE_PATH, 2, 3, &copy), -ENOENT, "there is no third");
	is_int(wire_copy_str(&m, WIRE_PATH, 0, 2, &copy), -EBADMSG, "one that is too long is an error");
	is_int(wire_copy_str(&m, WIRE_RECORD, 0, 9, &copy), -EBADMSG, "so are bytes with a NUL");
	is_int(wire_copy_str(&m, WIRE_STATUS, 0, 9, &copy), -EBADMSG, "and a number");
	wire_msg_init(&m, WIRE_WAIT);
	ok(m.type == WIRE_WAIT && m.body.len == 0, "init empties");
	wire_msg_free(&m);
}

/* The bytes of a frame, by hand. */
static void test_frame(void)
{
	static const uint8_t body[] = { 4, 0, 1, 7, 0, 0, 0, 0, 0, 0, 0 };
	uint8_t head[WIRE_HEADER_BYTES];
	struct wire_msg m = { 0 };
	struct wire_header h;
	uint32_t crc = crc32c(0, body, sizeof(body));

	wire_msg_init(&m, WIRE_WAIT);
	wire_put_u64(&m, WIRE_SESSION, 7);
	ok(m.body.len == sizeof(body) && !memcmp(m.body.data, body, sizeof(body)), "a field is tag, kind, value");
	wire_encode_header(&m, head);
	ok(!memcmp(head, "CWR1\1\0\4\0\13\0\0\0", 12), "mark, version 1, type 4, 11 bytes");
	ok(head[12] == (uint8_t)crc && head[15] == (uint8_t)(crc >> 24), "CRC, little-endian");
	is_int(wire_decode_header(head, &h), 0, "reads back");
	is_int(wire_check_body(&h, body, sizeof(body)), 0, "with its body");
	is_int(wire_check_body(&h, body, sizeof(body) - 1), -EBADMSG, "not with half of it");
	head[4] = 2;
	is_int(wire_decode_header(head, &h), -EPROTONOSUPPORT, "a newer version");
	head[4] = 1;
	head[11] = 1;
	is_int(wire_decode_header(head, &h), -E2BIG, "a body too long");
	head[0] = 'X';
	is_int(wire_decode_header(head, &h), -EBADMSG, "not our mark");
	wire_msg_free(&m);
}

static void test_unknown(void)
{
	/* tag 999, kind 77: a length and bytes; then a SESSION */
	static const uint8_t body[] = { 0xe7, 3, 77, 2, 0, 0, 0, 1, 2, 4, 0, 1, 9, 0, 0, 0, 0, 0, 0, 0 };
	struct wire_header h = { WIRE_WAIT, sizeof(body), crc32c(0, body, sizeof(body)) };
	struct wire_msg m = { 0 };
	uint64_t v = 0;

	is_int(wire_check_body(&h, body, sizeof(body)), 0, "an unknown kind is stepped over");
	buf_bytes(&m.body, body, sizeof(body));
	ok(wire_get_u64(&m, WIRE_SESSION, &v) && v == 9, "and what follows is found");
	wire_msg_free(&m);
}

static void test_pair(void)
{
	struct wire_msg m = { 0 }, back = { 0 };
	int fd[2];

	if (!ok(socketpair(AF_UNIX, SOCK_STREAM, 0, fd) == 0, "two ends"))
		return;
	wire_msg_init(&m, WIRE_PAUSE);
	is_int(wire_send(fd[0], &m), 0, "an empty message goes");
	is_int(wire_recv(fd[1], &back, 1000000), 0, "and comes");
	is_int(back.type, WIRE_PAUSE, "as it was");
	is_int(wire_recv(fd[1], &back, 1000), -ETIMEDOUT, "nothing in time");
	ok(write(fd[0], "CWR", 3) == 3, "a part of a frame");
	is_int(wire_recv(fd[1], &back, 1000), -ETIMEDOUT, "is none");
	close(fd[0]);
	is_int(wire_recv(fd[1], &back, 0), -ECONNRESET, "the other end has gone");
	is_int(wire_send(fd[1], &m), -ECONNRESET, "sending says so too, without a signal");
	close(fd[1]);
	wire_put_bytes(&m, WIRE_TEXT, "", WIRE_MAX_BYTES + 1u);
	is_int(wire_send(fd[1], &m), -ENOMEM, "what is too long was never put");
	wire_msg_free(&m);
	wire_msg_free(&back);
}

/* Who does not read holds up a sender for no longer than its socket says. */
static void test_unread(void)
{
	const struct timeval limit = { .tv_usec = 100000 };
	struct wire_msg m = { 0 };
	uint8_t *bytes = calloc(1, WIRE_MAX_BYTES);
	int fd[2];

	if (!ok(bytes && socketpair(AF_UNIX, SOCK_STREAM, 0, fd) == 0, "two ends"))
		return;
	setsockopt(fd[0], SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
	wire_msg_init(&m, WIRE_REPLY);
	wire_put_bytes(&m, WIRE_PAYLOAD, bytes, WIRE_MAX_BYTES - 100);
	alarm(60);
	is_int(wire_send(fd[0], &m), -ETIMEDOUT, "nobody reads a large frame");
	alarm(0);
	close(fd[0]);
	close(fd[1]);
	wire_msg_free(&m);
	free(bytes);
}

/* A daemon that stands still: the others do not wait for it without end. */
static void test_backlog(const char *dir)
{
	struct cistern_error err = { 0 };
	char path[200], said[CISTERN_ERROR_TEXT_BYTES + 300];
	int fds[80], num = 0, listening = wire_listen(dir, NULL);

	alarm(60);
	while (num < 80 && (fds[num] = wire_connect_within(dir, 100000, &err)) >= 0)
		num++;
	alarm(0);
	ok(num >= 64 && num < 80, "%d wait to be accepted", num);
	is_int(err.code, -ETIMEDOUT, "the next one is told");
	snprintf(said, sizeof(said), "%s: its daemon does not answer", dir);
	is_str(err.text, said, "by this text");
	while (num)
		close(fds[--num]);
	close(listening);
	snprintf(path, sizeof(path), "%s/" WIRE_SOCKET, dir);
	unlink(path);
}

/* A descriptor travels beside a frame, and only beside the one it was sent with. */
static void test_descriptor(void)
{
	struct wire_msg m = { 0 }, back = { 0 };
	int fd[2], ends[2], passed = -2;
	char byte = 0;

	if (!ok(socketpair(AF_UNIX, SOCK_STREAM, 0, fd) == 0 && pipe(ends) == 0, "two ends and a pipe"))
		return;
	wire_msg_init(&m, WIRE_PAUSE);
	is_int(wire_send(fd[0], &m), 0, "a frame without a descriptor");
	is_int(wire_send_fd(fd[0], &m, ends[1]), 0, "a frame with one");
	is_int(wire_send_fd(fd[0], &m, ends[1]), 0, "and another");
	is_int(wire_recv_fd(fd[1], &back, 1000000, &passed), 0, "the first comes");
	is_int(passed, -1, "without");
	is_int(wire_recv_fd(fd[1], &back, 1000000, &passed), 0, "the second comes");
	ok(passed >= 0 && passed != ends[1] && fcntl(passed, F_GETFD) == FD_CLOEXEC, "with a descriptor of ours");
	close(ends[1]);
	ok(write(passed, "x", 1) == 1 && read(ends[0], &byte, 1) == 1 && byte == 'x', "of the same pipe");
	close(passed);
	is_int(wire_recv(fd[1], &back, 1000000), 0, "who does not ask for descriptors gets the frame");
	close(fd[0]);
	close(fd[1]);
	is_int(read(ends[0], &byte, 1), 0, "and no descriptor");
	close(ends[0]);
	wire_msg_free(&m);
	wire_msg_free(&back);
}

/* A daemon that answers one request: the largest message, then an error. */
static void *serve(void *arg)
{
	int listening = *(int *)arg, fd = accept(listening, NULL, NULL);
	struct cistern_error err = { .code = -ENOSPC, .text = "the store is full" };
	struct wire_msg m = { 0 }, reply = { 0 };
	uint8_t *large = calloc(1, WIRE_MAX_BYTES - 100);

	if (large && wire_recv(fd, &m, 10000000) == 0) {
		wire_msg_init(&reply, WIRE_REPLY);
		wire_put_i64(&reply, WIRE_STATUS, 0);
		wire_put_bytes(&reply, WIRE_TEXT, large, WIRE_MAX_BYTES - 100);
		(void)wire_send(fd, &reply);
	}
	if (wire_recv(fd, &m, 10000000) == 0) {
		wire_reply_error(&reply, &err);
		(void)wire_send(fd, &reply);
	}
	free(large);
	close(fd);
	wire_msg_free(&m);
	wire_msg_free(&reply);
	return NULL;
}

static void test_calls(const char *dir, const char *what)
{
	struct cistern_error err = { 0 };
	struct wire_msg m = { 0 }, reply = { 0 };
	int listening = wire_listen(dir, &err), fd;
	const uint8_t *p;
	size_t len = 0;
	pthread_t thread;

	if (!ok(listening >= 0, "%s: listens %s", what, err.text))
		return;
	if (!ok(pthread_create(&thread, NULL, serve, &listening) == 0, "a daemon"))
		return;
	fd = wire_connect(dir, &err);
	ok(fd >= 0, "%s: connects %s", what, err.text);
	wire_msg_init(&m, WIRE_STATUS_GET);
	is_int(wire_call(fd, &m, &reply, 10000000, &err), 0, "a call");
	ok(wire_get_bytes(&reply, WIRE_TEXT, 0, &p, &len) && len == WIRE_MAX_BYTES - 100, "with a large reply");
	is_int(wire_call(fd, &m, &reply, 10000000, &err), -ENOSPC, "a call that fails there fails here");
	is_str(err.text, "the store is full", "with the same text");
	is_int(wire_call(fd, &m, &reply, 10000000, &err), -ECONNRESET, "a daemon that has ended");
	pthread_join(thread, NULL);
	close(fd);
	close(listening);
	wire_msg_free(&m);
	wire_msg_free(&reply);
}

static void test_socket(const char *dir)
{
	struct cistern_error err = { 0 };
	char path[1024], deep[512];
	struct stat st;
	mode_t old;
	int fd;

	is_int(wire_connect(dir, &err), -ENOENT, "no socket: no daemon");
	ok(strstr(err.text, dir) != NULL, "the text names the store");
	test_calls(dir, "short path");
	is_int(wire_connect(dir, NULL), -ECONNREFUSED, "a dead daemon's socket");
	old = umask(0);
	fd = wire_listen(dir, NULL);
	umask(old);
	ok(fd >= 0, "is replaced");
	close(fd);
	snprintf(path, sizeof(path), "%s/ctl.sock", dir);
	ok(stat(path, &st) == 0 && (st.st_mode & 07777) == 0600, "only its owner may connect");
	unlink(path);
	snprintf(deep, sizeof(deep), "%s/%0150d", dir, 1);
	ok(mkdir(deep, 0700) == 0, "a long path");
	test_calls(deep, "long path");
	snprintf(path, sizeof(path), "%s/ctl.sock", deep);
	unlink(path);
	fd = open(path, O_CREAT | O_WRONLY, 0600);
	close(fd);
	is_int(wire_listen(deep, &err), -EEXIST, "a file of that name is not touched");
	unlink(path);
	rmdir(deep);
}

/* ---- the corpus of fuzz-wire-shared: its bad- files must be refused, the others are lists of files, or totals */

static bool is_taken(const char *name, uint8_t *bytes, size_t len)
{
	struct wire_shared_list list = { 0 };
	struct manifest_totals totals;
	int r;

	if (strstr(name, "totals"))
		r = manifest_totals_decode(bytes, len, &totals);
	else
		r = wire_shared_decode(bytes, len, &list);
	wire_shared_free(&list);
	return r == 0;
}

int main(void)
{
	char dir[] = "/tmp/cistern-test-wire-XXXXXX";

	test_fields();
	test_frame();
	test_unknown();
	test_pair();
	test_unread();
	test_descriptor();
	corpus_check("wire-shared", is_taken, 11, 6);
	if (ok(mkdtemp(dir) != NULL, "a directory")) {
		test_socket(dir);
		test_backlog(dir);
		rmdir(dir);
	}
	return done_testing();
}
