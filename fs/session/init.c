/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * What libfuse cannot say. Its writev callback gets every reply; the one to INIT is completed here with the flags that
 * libfuse is too old to know: kernel passthrough, direct I/O that is coherent with mmap, and that we kill setuid bits
 * ourselves (without which the kernel asks for security.capability before every single write); and with one that it knows and
 * forgets (up to 3.16.1): lookups and listings of one directory need not wait for each other. Only what the kernel has offered is agreed to.
 *
 * The callback also sends each reply through the descriptor that its request was read from: the workers' are clones.
 */
#include <errno.h>
#include <linux/capability.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "fs/session/private.h"

void session_want_capabilities(struct fuse_conn_info *conn)
{
	/* AUTO_INVAL_DATA would drop pages when a drain changes times; EXPLICIT: we say what is stale. */
	const unsigned int on = FUSE_CAP_ASYNC_READ | FUSE_CAP_ATOMIC_O_TRUNC | FUSE_CAP_READDIRPLUS |
				FUSE_CAP_READDIRPLUS_AUTO | FUSE_CAP_ASYNC_DIO | FUSE_CAP_PARALLEL_DIROPS |
				FUSE_CAP_CACHE_SYMLINKS | FUSE_CAP_EXPLICIT_INVAL_DATA;

	conn->want = conn->capable & on;
	conn->max_write = SESSION_DATA_BYTES;
	conn->max_background = 64;
	conn->congestion_threshold = 48;
	conn->time_gran = 1;
}

void session_note_init(struct session *s, const struct fuse_in_header *in, size_t len)
{
	const struct kernel_init_in *arg = (const void *)(in + 1);
	bool has_minor = len >= sizeof(*in) + 2 * sizeof(uint32_t) && arg->major == 7;

	s->init_unique = in->unique;
	s->has_epochs = has_minor && arg->minor >= KERNEL_MINOR_EPOCHS;
	s->has_prune = has_minor && arg->minor >= KERNEL_MINOR_PRUNE;
	if (len >= sizeof(*in) + 4 * sizeof(uint32_t))
		s->offered = arg->flags;
	if (s->offered & FUSE_INIT_EXT && len >= sizeof(*in) + 5 * sizeof(uint32_t))
		s->offered2 = arg->flags2;
}

bool session_is_admin(void)
{
	struct __user_cap_header_struct header = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct data[2];

	return syscall(SYS_capget, &header, data) == 0 && data[0].effective & 1u << CAP_SYS_ADMIN;
}

static void complete_init(struct session *s, struct kernel_init_out *out)
{
	if (s->offered & FUSE_HANDLE_KILLPRIV_V2)
		out->flags |= FUSE_HANDLE_KILLPRIV_V2;
	if (s->offered & FUSE_PARALLEL_DIROPS)
		out->flags |= FUSE_PARALLEL_DIROPS;
	if (!(s->offered & FUSE_INIT_EXT))
		return;
	out->flags |= FUSE_INIT_EXT;
	if (s->offered2 & KERNEL_FLAG2_DIRECT_IO_ALLOW_MMAP) {
		out->flags2 |= KERNEL_FLAG2_DIRECT_IO_ALLOW_MMAP;
		s->kernel.direct_mmap = true;
	}
	/* The kernel wants that of who registers a backing file, in the initial user namespace. */
	if (s->offered2 & KERNEL_FLAG2_PASSTHROUGH && session_is_admin()) {
		out->flags2 |= KERNEL_FLAG2_PASSTHROUGH;
		out->max_stack_depth = 1;
		s->kernel.passthrough = true;
	}
}

static ssize_t send_init(struct session *s, int fd, const struct iovec *iov)
{
	struct kernel_init_out out;
	struct iovec patched[2] = { iov[0], { &out, sizeof(out) } };

	memcpy(&out, iov[1].iov_base, sizeof(out));
	complete_init(s, &out);
	return writev(fd, patched, 2);
}

static bool is_init_reply(const struct session *s, const struct iovec *iov, int count)
{
	const struct fuse_out_header *header = iov[0].iov_base;

	return s->init_unique && header->unique == s->init_unique && header->error == 0 && count == 2 &&
	       iov[1].iov_len == sizeof(struct kernel_init_out);
}

static ssize_t session_writev(int fd, struct iovec *iov, int count, void *userdata)
{
	struct session *s = userdata;
	const struct worker *w = pthread_getspecific(s->worker_key), *way = pthread_getspecific(s->way_key);
	ssize_t n;

	if (way)
		fd = way->fd;
	else if (w)
		fd = w->reply_fd < 0 ? w->fd : w->reply_fd;
	if (is_init_reply(s, iov, count)) {
		n = send_init(s, fd, iov);
		s->init_unique = 0;
	} else {
		n = writev(fd, iov, count);
	}
	/* libfuse takes ENOENT as "the caller is gone" and anything else as worth a complaint; a severed connection is not. */
	if (n < 0 && (errno == ENODEV || errno == ECONNABORTED || errno == ENOTCONN || errno == EPIPE))
		errno = ENOENT;
	return n;
}

static ssize_t session_read(int fd, void *buf, size_t len, void *userdata)
{
	return read(fd, buf, len);
}

const struct fuse_custom_io session_custom_io = { .writev = session_writev, .read = session_read };
