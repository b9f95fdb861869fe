/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Frames over the store's socket. A frame is sent and received whole, before a deadline; after a failure in the middle
 * of one the connection is of no use and must be closed.
 *
 * A socket's address has room for 107 bytes of path, a store's path may be longer: then the socket is named through
 * the directory's descriptor in /proc. The socket's file lies in the store, whose lock decides who may replace it: call
 * wire_listen() only with the lock.
 */
#include "format/wire/wire.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "format/base/clock.h"
#include "format/wire/frame.h"

#define BACKLOG      64
#define CONNECT_USEC 10000000u

/* ---- frames ---- */

/* deadline 0: none. */
static int wait_for(int fd, short events, uint64_t deadline)
{
	struct pollfd p = { .fd = fd, .events = events };
	uint64_t now;
	int ms, r;

	for (;;) {
		ms = -1;
		if (deadline) {
			now = clock_usec();
			if (now >= deadline)
				return -ETIMEDOUT;
			ms = deadline - now >= 1000000000 ? 1000000 : (int)((deadline - now + 999) / 1000);
		}
		r = poll(&p, 1, ms);
		if (r > 0)
			return 0;
		if (r < 0 && errno != EINTR)
			return -errno;
	}
}

/* What is left of the two parts after n bytes have gone. */
static void advance(struct iovec iov[2], size_t n)
{
	for (int i = 0; i < 2; i++) {
		size_t part = n < iov[i].iov_len ? n : iov[i].iov_len;

		iov[i].iov_base = (uint8_t *)iov[i].iov_base + part;
		iov[i].iov_len -= part;
		n -= part;
	}
}

/* Room for one descriptor beside the bytes. */
union fd_control {
	struct cmsghdr align;
	char bytes[CMSG_SPACE(sizeof(int))];
};

static void attach_fd(struct msghdr *msg, union fd_control *control, int pass)
{
	struct cmsghdr *c;

	memset(control, 0, sizeof(*control));
	msg->msg_control = control->bytes;
	msg->msg_controllen = sizeof(control->bytes);
	c = CMSG_FIRSTHDR(msg);
	c->cmsg_level = SOL_SOCKET;
	c->cmsg_type = SCM_RIGHTS;
	c->cmsg_len = CMSG_LEN(sizeof(int));
	memcpy(CMSG_DATA(c), &pass, sizeof(int));
}

int wire_send_fd(int fd, const struct wire_msg *m, int pass)
{
	uint8_t header[WIRE_HEADER_BYTES], nothing = 0;
	struct iovec iov[2] = { { header, sizeof(header) }, { m->body.data ? m->body.data : &nothing, m->body.len } };
	struct msghdr msg = { .msg_iov = iov, .msg_iovlen = 2 };
	union fd_control control;
	ssize_t n;

	if (!buf_ok(&m->body))
		return -ENOMEM;
	if (m->body.len > WIRE_MAX_BYTES)
		return -E2BIG;
	wire_encode_header(m, header);
	if (pass >= 0)
		attach_fd(&msg, &control, pass);
	while (iov[0].iov_len + iov[1].iov_len) {
		n = sendmsg(fd, &msg, MSG_NOSIGNAL);
		if (n >= 0) {
			advance(iov, (size_t)n);
			msg.msg_control = NULL; /* it went with the first bytes */
			msg.msg_controllen = 0;
			continue;
		}
		if (errno != EINTR)
			return errno == EPIPE ? -ECONNRESET : errno == EAGAIN ? -ETIMEDOUT : -errno;
	}
	return 0;
}

int wire_send(int fd, const struct wire_msg *m)
{
	return wire_send_fd(fd, m, -1);
}

/* recv(2); a descriptor that comes along goes to *ret_fd, an earlier one is closed. ret_fd NULL: the kernel drops it. */
static ssize_t recv_some(int fd, uint8_t *buf, size_t len, int *ret_fd)
{
	struct iovec iov = { buf, len };
	union fd_control control;
	struct msghdr msg = {
		.msg_iov = &iov, .msg_iovlen = 1, .msg_control = control.bytes, .msg_controllen = sizeof(control.bytes)
	};
	struct cmsghdr *c;
	ssize_t n;

	if (!ret_fd)
		return recv(fd, buf, len, MSG_DONTWAIT);
	n = recvmsg(fd, &msg, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
	c = n > 0 ? CMSG_FIRSTHDR(&msg) : NULL;
	if (c && c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS && c->cmsg_len == CMSG_LEN(sizeof(int))) {
		if (*ret_fd >= 0)
			close(*ret_fd);
		memcpy(ret_fd, CMSG_DATA(c), sizeof(int));
	}
	return n;
}

static int recv_exact(int fd, uint8_t *buf, size_t len, uint64_t deadline, int *ret_fd)
{
	ssize_t n;
	int r;

	while (len) {
		r = wait_for(fd, POLLIN, deadline);
		if (r)
			return r;
		n = recv_some(fd, buf, len, ret_fd);
		if (n == 0)
			return -ECONNRESET;
		if (n < 0 && errno != EINTR && errno != EAGAIN)
			return -errno;
		if (n > 0) {
			buf += n;
			len -= (size_t)n;
		}
	}
	return 0;
}

static int recv_frame(int fd, struct wire_msg *m, uint64_t timeout_usec, int *ret_fd)
{
	uint64_t deadline = timeout_usec ? clock_usec() + timeout_usec : 0;
	uint8_t bytes[WIRE_HEADER_BYTES];
	struct wire_header h;
	int r = recv_exact(fd, bytes, sizeof(bytes), deadline, ret_fd);

	if (!r)
		r = wire_decode_header(bytes, &h);
	if (r)
		return r;
	buf_reset(&m->body);
	buf_zeros(&m->body, h.len);
	if (!buf_ok(&m->body))
		return -ENOMEM;
	r = recv_exact(fd, m->body.data, h.len, deadline, NULL);
	if (!r)
		r = wire_check_body(&h, m->body.data, m->body.len);
	if (r) {
		buf_reset(&m->body);
		return r;
	}
	m->type = h.type;
	return 0;
}

int wire_recv(int fd, struct wire_msg *m, uint64_t timeout_usec)
{
	return recv_frame(fd, m, timeout_usec, NULL);
}

int wire_recv_fd(int fd, struct wire_msg *m, uint64_t timeout_usec, int *ret_fd)
{
	int passed = -1, r = recv_frame(fd, m, timeout_usec, &passed);

	if (r == 0)
		*ret_fd = passed;
	else if (passed >= 0)
		close(passed);
	return r;
}

static int say(struct cistern_error *err, int code)
{
	const char *why = code == -ETIMEDOUT         ? "it did not answer in time; it may still be at it"
			  : code == -ECONNRESET      ? "it closed the connection: it has ended, see its log"
			  : code == -EPROTONOSUPPORT ? "it is of a newer version: use the tools of that version"
			  : code == -EBADMSG ? "its answer makes no sense: are tool and daemon of the same version?"
					     : strerror(-code);

	return cistern_error_set(err, code, "daemon: %s", why);
}

int wire_reply_check(const struct wire_msg *reply, struct cistern_error *err)
{
	char text[CISTERN_ERROR_TEXT_BYTES];
	int64_t status = 0;

	if (reply->type != WIRE_REPLY || !wire_get_i64(reply, WIRE_STATUS, &status) || status > 0 || status < -4095)
		return say(err, -EBADMSG);
	if (status == 0)
		return 0;
	if (!wire_get_str(reply, WIRE_TEXT, 0, text, sizeof(text)) || !text[0])
		return cistern_error_set(err, (int)status, "daemon: %s", strerror((int)-status));
	return cistern_error_set(err, (int)status, "%s", text);
}

int wire_call_fd(int fd, const struct wire_msg *request, struct wire_msg *reply, uint64_t timeout_usec, int *ret_fd,
	struct cistern_error *err)
{
	int passed = -1, r = wire_send(fd, request);

	if (!r)
		r = wire_recv_fd(fd, reply, timeout_usec, &passed);
	r = r ? say(err, r) : wire_reply_check(reply, err);
	if (r == 0 && ret_fd)
		*ret_fd = passed;
	else if (passed >= 0)
		close(passed);
	return r;
}

int wire_call(int fd, const struct wire_msg *request, struct wire_msg *reply, uint64_t timeout_usec,
	struct cistern_error *err)
{
	return wire_call_fd(fd, request, reply, timeout_usec, NULL, err);
}

/* ---- the socket's file ---- */

/*
 * The address of the store's socket. *ret_dirfd: keep it open while the address is in use, then close it; it names the
 * directory when its path is too long.
 */
static int make_address(const char *store_path, struct sockaddr_un *ret, int *ret_dirfd)
{
	int n, fd = open(store_path, O_PATH | O_DIRECTORY | O_CLOEXEC);

	if (fd < 0)
		return -errno;
	*ret = (struct sockaddr_un){ .sun_family = AF_UNIX };
	n = snprintf(ret->sun_path, sizeof(ret->sun_path), "%s/" WIRE_SOCKET, store_path);
	if (n < 0 || (size_t)n >= sizeof(ret->sun_path))
		n = snprintf(ret->sun_path, sizeof(ret->sun_path), "/proc/self/fd/%d/" WIRE_SOCKET, fd);
	if (n < 0 || (size_t)n >= sizeof(ret->sun_path)) {
		close(fd);
		return -ENAMETOOLONG;
	}
	*ret_dirfd = fd;
	return 0;
}

static int new_socket(void)
{
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	return fd < 0 ? -errno : fd;
}

/* So long a send, or a connect, waits; 0: without end. */
static int limit_sending(int fd, uint64_t usec)
{
	struct timeval limit = { .tv_sec = (time_t)(usec / 1000000), .tv_usec = (suseconds_t)(usec % 1000000) };

	return setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit)) < 0 ? -errno : 0;
}

/* It waits while more than BACKLOG others wait to be accepted. */
static int connect_to(int fd, const struct sockaddr_un *address, uint64_t timeout_usec)
{
	uint64_t deadline = clock_usec() + timeout_usec, now;
	int r = limit_sending(fd, timeout_usec);

	if (r < 0)
		return r;
	while (connect(fd, (const struct sockaddr *)address, sizeof(*address)) < 0) {
		if (errno != EINTR)
			return errno == EAGAIN ? -ETIMEDOUT : -errno;
		now = clock_usec();
		r = now < deadline ? limit_sending(fd, deadline - now) : -ETIMEDOUT;
		if (r < 0)
			return r;
	}
	return limit_sending(fd, 0);
}

int wire_connect_within(const char *store_path, uint64_t timeout_usec, struct cistern_error *err)
{
	struct sockaddr_un address;
	int dirfd = -1, fd, r = make_address(store_path, &address, &dirfd);

	if (r)
		return cistern_error_set(err, r, "%s: %s", store_path, strerror(-r));
	fd = new_socket();
	r = fd < 0 ? fd : connect_to(fd, &address, timeout_usec);
	close(dirfd);
	if (!r)
		return fd;
	if (fd >= 0)
		close(fd);
	if (r == -ENOENT || r == -ECONNREFUSED)
		return cistern_error_set(err, r, "%s: no daemon serves this store: mount it first", store_path);
	if (r == -ETIMEDOUT)
		return cistern_error_set(err, r, "%s: its daemon does not answer", store_path);
	return cistern_error_set(err, r, "%s/" WIRE_SOCKET ": cannot be connected to: %s", store_path, strerror(-r));
}

int wire_connect(const char *store_path, struct cistern_error *err)
{
	return wire_connect_within(store_path, CONNECT_USEC, err);
}

/* A dead daemon's socket goes; anything else of that name stays, and is in the way. */
static int remove_old(int dirfd)
{
	struct stat st;

	if (fstatat(dirfd, WIRE_SOCKET, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return errno == ENOENT ? 0 : -errno;
	if (!S_ISSOCK(st.st_mode))
		return -EEXIST;
	return unlinkat(dirfd, WIRE_SOCKET, 0) == 0 || errno == ENOENT ? 0 : -errno;
}

int wire_listen(const char *store_path, struct cistern_error *err)
{
	struct sockaddr_un address;
	const struct sockaddr *generic = (const void *)&address;
	int dirfd = -1, fd = -1, r = make_address(store_path, &address, &dirfd);

	if (!r)
		r = remove_old(dirfd);
	if (!r) {
		fd = new_socket();
		r = fd < 0 ? fd : 0;
	}
	/* The mode of the socket becomes that of its file, less the umask: it is never open to others, not for a moment. */
	if (!r && (fchmod(fd, 0600) < 0 || bind(fd, generic, sizeof(address)) < 0 || listen(fd, BACKLOG) < 0))
		r = -errno;
	if (dirfd >= 0)
		close(dirfd);
	if (!r)
		return fd;
	if (fd >= 0)
		close(fd);
	return cistern_error_set(err, r, "%s/" WIRE_SOCKET ": cannot be listened on: %s", store_path, strerror(-r));
}
