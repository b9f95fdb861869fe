/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Frames over a socket that never blocks. Input is collected in one buffer until a frame is whole; output waits in a list.
 */
#include "mpi-agent/comm/link.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "format/wire/frame.h"

#define FRAMES_AT_ONCE 64

struct frame {
	struct frame *next;
	size_t len, done;
	uint8_t bytes[];
};

struct link {
	int fd;
	struct frame *out, **out_tail;
	uint64_t unsent;
	bool unheard; /* the daemon takes no more: what it still says is read to its end */
	uint8_t head[WIRE_HEADER_BYTES];
	size_t head_len; /* of head, received */
	struct wire_header header;
	struct wire_msg in; /* body.len bytes of header.len received */
	size_t body_len;
};

int link_create(int fd, struct link **ret)
{
	struct link *l = calloc(1, sizeof(*l));

	if (!l) {
		close(fd);
		return -ENOMEM;
	}
	l->fd = fd;
	l->out_tail = &l->out;
	*ret = l;
	return 0;
}

static void drop_output(struct link *l)
{
	while (l->out) {
		struct frame *f = l->out;

		l->out = f->next;
		free(f);
	}
	l->out_tail = &l->out;
	l->unsent = 0;
}

void link_destroy(struct link *l)
{
	if (!l)
		return;
	drop_output(l);
	wire_msg_free(&l->in);
	close(l->fd);
	free(l);
}

int link_fd(const struct link *l)
{
	return l->fd;
}

int link_send(struct link *l, const struct wire_msg *m)
{
	struct frame *f;

	if (!buf_ok(&m->body))
		return -ENOMEM;
	if (m->body.len > WIRE_MAX_BYTES)
		return -E2BIG;
	if (l->unheard)
		return 0;
	f = malloc(sizeof(*f) + WIRE_HEADER_BYTES + m->body.len);
	if (!f)
		return -ENOMEM;
	f->next = NULL;
	f->done = 0;
	f->len = WIRE_HEADER_BYTES + m->body.len;
	wire_encode_header(m, f->bytes);
	if (m->body.len)
		memcpy(f->bytes + WIRE_HEADER_BYTES, m->body.data, m->body.len);
	*l->out_tail = f;
	l->out_tail = &f->next;
	l->unsent += f->len;
	return 0;
}

uint64_t link_unsent_bytes(const struct link *l)
{
	return l->unsent;
}

int link_flush(struct link *l)
{
	int any = 0;

	while (l->out) {
		struct frame *f = l->out;
		ssize_t n = send(l->fd, f->bytes + f->done, f->len - f->done, MSG_NOSIGNAL | MSG_DONTWAIT);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && (errno == EPIPE || errno == ECONNRESET)) {
			l->unheard = true;
			drop_output(l);
			return any;
		}
		if (n < 0)
			return errno == EAGAIN ? any : -errno;
		any = 1;
		f->done += (size_t)n;
		l->unsent -= (size_t)n;
		if (f->done < f->len)
			continue;
		l->out = f->next;
		if (!l->out)
			l->out_tail = &l->out;
		free(f);
	}
	return any;
}

/* Reads towards want bytes at p. 1: they are all there; 0: not yet. */
static int fill(int fd, uint8_t *p, size_t want, size_t *len)
{
	while (*len < want) {
		ssize_t n = recv(fd, p + *len, want - *len, MSG_DONTWAIT);

		if (n == 0)
			return -ECONNRESET;
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return errno == EAGAIN ? 0 : -errno;
		*len += (size_t)n;
	}
	return 1;
}

static int begin_body(struct link *l)
{
	int r = wire_decode_header(l->head, &l->header);

	if (r < 0)
		return r;
	l->in.type = l->header.type;
	l->body_len = 0;
	buf_reset(&l->in.body);
	buf_zeros(&l->in.body, l->header.len);
	return buf_ok(&l->in.body) ? 0 : -ENOMEM;
}

/* 1: l->in is a whole frame; 0: not yet. */
static int read_one(struct link *l)
{
	int r;

	if (l->head_len < WIRE_HEADER_BYTES) {
		r = fill(l->fd, l->head, WIRE_HEADER_BYTES, &l->head_len);
		if (r <= 0)
			return r;
		r = begin_body(l);
		if (r < 0)
			return r;
	}
	r = fill(l->fd, l->in.body.data, l->header.len, &l->body_len);
	if (r <= 0)
		return r;
	l->head_len = 0;
	r = wire_check_body(&l->header, l->in.body.data, l->in.body.len);
	return r < 0 ? r : 1;
}

int link_read(struct link *l, link_received received, void *arg)
{
	int num = 0, r;

	while (num < FRAMES_AT_ONCE) {
		r = read_one(l);
		if (r <= 0)
			return r < 0 ? r : num;
		num++;
		r = received(&l->in, arg);
		if (r < 0)
			return r;
	}
	return num;
}
