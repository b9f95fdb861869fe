/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * A session's life: create (options, libfuse's session), mount (and INIT, answered by the calling thread so that what
 * the kernel can do is known before the first request), start (loop.c), unmount or abort, destroy. libfuse parses
 * requests and formats replies; reading, sending (init.c) and threads are ours.
 *
 * Unmounting goes the kernel's way: umount(2) while the workers serve what it flushes. A busy mount is detached and
 * ends with its last user, or is severed.
 */
#include "fs/session/session.h"

#include <errno.h>
#include <fcntl.h>
#include <fuse_opt.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include "fs/session/new_mount.h"
#include "fs/session/private.h"
#include "fs/session/unmount.h"

#define ABORT_MSEC      20
#define INVALIDATE_USEC 300000u /* for the kernel to drop pages: reads of them may be under way */
/* Names: who changes the directory at this moment waits for the other nodes, too. */
#define NAME_USEC       20000u
#define NAME_EPOCH_USEC 2000u /* when there is another way */
#define ABORT_TRIES     250

/* ---- options */

/* libfuse refuses the flags that it does not know. FUSE keeps no atime of its own, so the atime family means nothing here. */
static bool is_mount_flag(const char *flag)
{
	static const char *const known[] = { "suid", "nosuid", "dev", "nodev", "exec", "noexec", "sync", "async",
		"dirsync", "noatime", "nodiratime" };

	for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
		if (strcmp(flag, known[i]) == 0)
			return true;
	return false;
}

static int add_mount_flags(char **opts, const char *flags)
{
	char *copy = strdup(flags), *save = NULL;
	int r = copy ? 0 : -1;

	for (char *f = copy ? strtok_r(copy, ",", &save) : NULL; f && r == 0; f = strtok_r(NULL, ",", &save))
		if (is_mount_flag(f))
			r = fuse_opt_add_opt(opts, f);
	free(copy);
	return r;
}

static int put_options(const struct session_options *opt, struct fuse_args *args)
{
	char *opts = NULL, *fsname = NULL;
	int r;

	if (asprintf(&fsname, "fsname=%s", opt->fsname) < 0)
		return -ENOMEM;
	r = fuse_opt_add_opt(&opts, "subtype=cistern,default_permissions");
	r = r ? r : fuse_opt_add_opt_escaped(&opts, fsname);
	r = r ? r : fuse_opt_add_opt(&opts, opt->read_only ? "ro" : "rw");
	if (opt->allow_other)
		r = r ? r : fuse_opt_add_opt(&opts, "allow_other");
	r = r ? r : add_mount_flags(&opts, opt->mount_flags);
	r = r ? r : fuse_opt_add_arg(args, "cistern");
	r = r ? r : fuse_opt_add_arg(args, "-o");
	r = r ? r : fuse_opt_add_arg(args, opts);
	free(fsname);
	free(opts);
	return r ? -ENOMEM : 0;
}

/* ---- create */

static int create_fuse(struct session *s, const struct session_options *opt, struct cistern_error *err)
{
	struct fuse_args args = FUSE_ARGS_INIT(0, NULL);
	char said[CISTERN_ERROR_TEXT_BYTES / 2] = "";
	int saved, fd, r = put_options(opt, &args);

	if (r) {
		fuse_opt_free_args(&args);
		return cistern_error_set(err, r, "out of memory");
	}
	fd = capture_begin(&saved);
	s->fuse = fuse_session_new(&args, opt->ops, sizeof(*opt->ops), s);
	capture_end(fd, saved, said, sizeof(said));
	fuse_opt_free_args(&args);
	if (!s->fuse)
		return cistern_error_set(err, -EINVAL, "libfuse does not take the mount options: %s", said);
	return 0;
}

static int create_keys(struct session *s)
{
	int r = -pthread_key_create(&s->worker_key, NULL);

	if (r)
		return r;
	r = -pthread_key_create(&s->way_key, NULL);
	if (r)
		pthread_key_delete(s->worker_key);
	s->has_keys = r == 0;
	return r;
}

int session_create(const struct session_options *opt, struct session **ret, struct cistern_error *err)
{
	struct session *s = calloc(1, sizeof(*s));
	int r = 0;

	if (!s)
		return cistern_error_set(err, -ENOMEM, "out of memory");
	turn_init(&s->turn);
	callers_init(&s->callers);
	s->opt = *opt;
	s->fd = s->mount_fd = -1;
	pthread_mutex_init(&s->grow, NULL);
	s->num_workers = opt->threads ? opt->threads : 1;
	s->max_workers = s->num_workers + SESSION_SPARE_WORKERS;
	s->mountpoint = strdup(opt->mountpoint);
	s->workers = calloc(s->max_workers, sizeof(*s->workers));
	s->end_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (!s->mountpoint || !s->workers || s->end_fd < 0)
		r = cistern_error_set(err, -ENOMEM, "cannot set up the session: %s", strerror(errno));
	if (!r) {
		r = create_keys(s);
		if (r)
			cistern_error_set(err, r, "cannot set up the session: %s", strerror(-r));
	}
	if (!r)
		r = create_fuse(s, opt, err);
	if (r) {
		session_destroy(s);
		return r;
	}
	*ret = s;
	return 0;
}

void session_join(struct session *s)
{
	callers_end(s);
	for (unsigned int i = 0; s->workers && i < s->num_workers; i++)
		if (s->workers[i].started) {
			pthread_join(s->workers[i].thread, NULL);
			s->workers[i].started = false;
		}
}

/* No attribute is asked for, so the kernel answers by itself, also while nobody serves requests. */
static uint32_t device_minor(const struct session *s)
{
	struct statx st;

	if (statx(AT_FDCWD, s->mountpoint, AT_STATX_DONT_SYNC | AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT, 0, &st) < 0)
		return 0;
	return st.stx_dev_major == 0 ? st.stx_dev_minor : 0;
}

/* After a detach the path may already show a successor's mount, which is not ours to take down. */
static bool is_attached(const struct session *s)
{
	return s->mounted && (s->dev_minor == 0 || device_minor(s) == s->dev_minor);
}

static bool has_ended(const struct session *s)
{
	struct pollfd p = { .fd = s->fd };

	return poll(&p, 1, 0) == 1 && p.revents & POLLERR;
}

/* Closes the connection, and what is still mounted then goes, or stays dead where that is what was there. */
static void take_down(struct session *s)
{
	if (!s->mounted)
		return;
	if (s->mount_fd >= 0)
		close(s->mount_fd);
	if (s->keep_dead)
		session_sever(s);
	else if (s->own_mount && !has_ended(s) && is_attached(s))
		unmount_path(s->mountpoint, true);
	fuse_session_unmount(
		s->fuse); /* of libfuse's mounts: closes the descriptor; unmounts unless that has happened */
}

void session_destroy(struct session *s)
{
	if (!s)
		return;
	session_join(s);
	callers_destroy(&s->callers);
	atomic_store(&s->connected, false);
	notify_destroy(s->notify);
	notify_destroy(s->names);
	for (unsigned int i = 0; s->workers && i < s->num_workers; i++)
		worker_free(&s->workers[i]);
	take_down(s);
	if (s->fuse)
		fuse_session_destroy(s->fuse);
	if (s->end_fd >= 0)
		close(s->end_fd);
	if (s->has_keys) {
		pthread_key_delete(s->worker_key);
		pthread_key_delete(s->way_key);
	}
	turn_destroy(&s->turn);
	pthread_mutex_destroy(&s->grow);
	free(s->workers);
	free(s->mountpoint);
	free(s);
}

/* ---- mount */

static int exchange_init(struct session *s, struct cistern_error *err)
{
	struct worker *w = &s->workers[0];
	const struct fuse_in_header *in = (const struct fuse_in_header *)w->request;
	ssize_t n = worker_receive(w);

	if (n <= 0 || in->opcode != FUSE_INIT)
		return cistern_error_set(
			err, -EPROTO, "%s: the kernel did not begin with INIT (%zd)", s->mountpoint, n);
	session_note_init(s, in, (size_t)n);
	pthread_setspecific(s->worker_key, w);
	worker_process(w, (size_t)n);
	pthread_setspecific(s->worker_key, NULL);
	if (s->init_unique)
		return cistern_error_set(
			err, -EPROTO, "%s: libfuse refused the kernel's INIT; its version does not fit", s->mountpoint);
	return 0;
}

/* The connection is told by its number; libfuse leaves mounting and unmounting to us then. */
static int take_connection(struct session *s, int device, struct cistern_error *err)
{
	char path[32];

	snprintf(path, sizeof(path), "/dev/fd/%d", device);
	if (fuse_session_mount(s->fuse, path) == 0) {
		s->own_mount = true;
		return 0;
	}
	close(device);
	close(s->mount_fd);
	s->mount_fd = -1;
	return cistern_error_set(err, -EINVAL, "libfuse does not take the connection that was made for it");
}

static int mount_by_libfuse(struct session *s, struct cistern_error *err)
{
	char said[CISTERN_ERROR_TEXT_BYTES / 2] = "";
	int saved, fd, r = place_free(s->opt.place, err);

	if (r)
		return r;
	fd = capture_begin(&saved);
	r = fuse_session_mount(s->fuse, s->mountpoint);
	capture_end(fd, saved, said, sizeof(said));
	if (r)
		return cistern_error_set(err, -EACCES, "cannot mount on %s: %s", s->mountpoint,
			*said ? said : "is it an existing directory that you own, and is /dev/fuse there?");
	return 0;
}

/* Where a dead mount is, the new one is made apart from it if that can be. */
static int mount_fuse(struct session *s, struct cistern_error *err)
{
	const struct place *place = s->opt.place;
	int device, r;

	if (place->dead && !place->freed && new_mount_create(&s->opt, &device, &s->mount_fd) == 0)
		r = take_connection(s, device, err);
	else
		r = mount_by_libfuse(s, err);
	if (r)
		return r;
	s->mounted = true;
	s->fd = fuse_session_fd(s->fuse);
	fcntl(s->fd, F_SETFD, FD_CLOEXEC);
	r = fuse_session_custom_io(s->fuse, &session_custom_io, s->fd);
	if (r)
		return cistern_error_set(
			err, r < -1 ? r : -EINVAL, "libfuse does not take our read and write functions");
	return 0;
}

/* What was made apart gets its place, as the last of all that can fail. */
static int put_in_place(struct session *s, struct cistern_error *err)
{
	struct place *place = s->opt.place;
	int r = 0;

	if (s->mount_fd >= 0) {
		r = new_mount_replace(s->mount_fd, s->mountpoint);
		if (r == -EINVAL) {
			r = place_free(place, err);
			if (r)
				return r;
			r = new_mount_put(s->mount_fd, s->mountpoint);
		}
		close(s->mount_fd); /* it would keep the connection alive */
		s->mount_fd = -1;
	}
	place_filled(place);
	return r ? cistern_error_set(err, r, "cannot mount on %s: %s", s->mountpoint, strerror(-r)) : 0;
}

int session_mount(struct session *s, struct cistern_error *err)
{
	int r;

	s->keep_dead = s->opt.place->dead;
	r = mount_fuse(s, err);
	for (unsigned int i = 0; i < s->num_workers && !r; i++) {
		r = worker_init(&s->workers[i], s);
		if (r)
			cistern_error_set(err, r, "no memory for %u threads", s->num_workers);
	}
	if (!r)
		r = exchange_init(s, err);
	if (!r) {
		r = notify_create(s->fuse, &s->notify);
		if (!r)
			r = notify_create(s->fuse, &s->names);
		if (r)
			cistern_error_set(err, r, "cannot start a thread: %s", strerror(-r));
	}
	if (!r)
		r = put_in_place(s, err);
	if (r) {
		session_abort(s);
		return r;
	}
	atomic_store(&s->connected, true);
	s->dev_minor = device_minor(s);
	if (s->dev_minor)
		session_widen_readahead(s->dev_minor);
	return 0;
}

struct session_kernel session_kernel(const struct session *s)
{
	return s->kernel;
}

int session_end_fd(const struct session *s)
{
	return s->end_fd;
}

/* ---- the end */

int session_unmount(struct session *s)
{
	int r;

	if (atomic_load(&s->running) == 0 || !is_attached(s))
		return 0;
	r = unmount_path(s->mountpoint, false);
	if (r != -EBUSY)
		return r;
	r = unmount_path(s->mountpoint, true);
	return r ? r : 1;
}

/*
 * While the mount can be found, MNT_FORCE severs the connection, and the workers are told so by the kernel. A detached one
 * is severed by closing the device, which needs the workers out of their read(): a signal interrupts it, and since it
 * may come just before one, again until all have ended. That is also the way where a dead mount was: the path stays dead.
 */
void session_abort(struct session *s)
{
	struct pollfd end = { .fd = s->end_fd, .events = POLLIN };
	int r = -1;

	atomic_store(&s->aborting, true);
	if (!s->keep_dead && is_attached(s))
		r = unmount_forced(s->mountpoint);
	for (int tries = 0; r < 0 && tries < ABORT_TRIES && atomic_load(&s->running) > 0; tries++) {
		for (unsigned int i = 0; i < s->num_workers; i++)
			if (s->workers[i].started)
				pthread_kill(s->workers[i].thread, SESSION_SIGNAL);
		turn_end(&s->turn);
		poll(&end, 1, ABORT_MSEC);
	}
}

/*
 * Closes the device under whoever still has its number: requests that wait in the kernel fail. What takes its place polls
 * as an error, as the device of a severed connection does: libfuse then knows that there is nothing to unmount.
 */
void session_sever(struct session *s)
{
	int fds[2];

	if (pipe2(fds, O_CLOEXEC) < 0)
		return;
	close(fds[0]);
	for (unsigned int i = 0; i < s->num_workers; i++)
		if (s->workers[i].owns_fd)
			dup3(fds[1], s->workers[i].fd, O_CLOEXEC);
	if (s->fd >= 0)
		dup3(fds[1], s->fd, O_CLOEXEC);
	close(fds[1]);
}

/* ---- for operations and hooks */

struct session *session_of(fuse_req_t req)
{
	return fuse_req_userdata(req);
}

void *session_way(const struct session *s)
{
	return pthread_getspecific(s->worker_key);
}

void *session_take_way(struct session *s, void *way)
{
	void *own = pthread_getspecific(s->way_key);

	pthread_setspecific(s->way_key, way);
	return own;
}

void *session_context(fuse_req_t req)
{
	return session_of(req)->opt.context;
}

void *session_context_of(const struct session *s)
{
	return s->opt.context;
}

const struct fuse_in_header *session_request(const struct session *s)
{
	const struct worker *w = pthread_getspecific(s->worker_key);

	return w && w->request_len ? (const struct fuse_in_header *)w->request : NULL;
}

void *session_reply_buffer(const struct session *s)
{
	struct worker *w = pthread_getspecific(s->worker_key);

	return w->request + SESSION_HEADER_BYTES;
}

int session_reply_raw(struct session *s, uint64_t unique, int error, const void *body, size_t len)
{
	const struct worker *w = pthread_getspecific(s->worker_key);
	struct fuse_out_header out = { .error = error, .unique = unique };
	struct iovec iov[2] = { { &out, sizeof(out) }, { (void *)body, error ? 0 : len } };

	out.len = (uint32_t)(iov[0].iov_len + iov[1].iov_len);
	return writev(w->reply_fd, iov, 2) < 0 ? -errno : 0;
}

/*
 * The kernel keeps what it is given for as long as the connection exists, dead or not, and opens the
 * file anew for each opener. A descriptor for writing would be taken for a writer until then
 * (format/base/lease.h); one for reading does as well.
 */
int session_backing_open(struct session *s, int fd)
{
	char path[32];
	int id;

	if (!atomic_load(&s->connected))
		return -ENOTCONN;
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	struct kernel_backing_map map = { .fd = open(path, O_RDONLY | O_CLOEXEC) };
	if (map.fd < 0)
		return -errno;
	id = ioctl(s->fd, KERNEL_IOC_BACKING_OPEN, &map);
	id = id < 0 ? -errno : id > 0 ? id : -EINVAL;
	close(map.fd);
	return id;
}

void session_backing_close(struct session *s, int backing_id)
{
	uint32_t id = (uint32_t)backing_id;

	/* Also when the mount has gone: the kernel holds the file, and with it its space, as long as the connection exists. */
	if (s->fd >= 0 && ioctl(s->fd, KERNEL_IOC_BACKING_CLOSE, &id) < 0 && !atomic_load(&s->aborting))
		log_event(s->opt.log, LOG_LEVEL_WARNING, "backing-close", "id=%u errno=%d", id, errno);
}

void session_invalidate(struct session *s, uint64_t ino, bool data)
{
	if (atomic_load(&s->connected))
		notify_inode(s->notify, ino, data);
}

void session_invalidate_now(struct session *s, uint64_t ino, bool data)
{
	if (atomic_load(&s->connected))
		notify_wait(s->notify, notify_inode(s->notify, ino, data), INVALIDATE_USEC);
}

void session_drop_pages(struct session *s, uint64_t ino, uint64_t off, uint64_t len)
{
	if (atomic_load(&s->connected))
		(void)fuse_lowlevel_notify_inval_inode(s->fuse, ino, (off_t)off, (off_t)len); /* -ENOENT: none */
}

void session_put_byte(struct session *s, uint64_t ino, uint64_t off, uint8_t byte)
{
	struct fuse_bufvec vec = FUSE_BUFVEC_INIT(1);

	vec.buf[0].mem = &byte;
	if (atomic_load(&s->connected))
		(void)fuse_lowlevel_notify_store(s->fuse, ino, (off_t)off, &vec, FUSE_BUF_NO_SPLICE);
}

/*
 * All names at once, without a lock: whatever the kernel has looked up until now, it looks up again. A directory that is somebody's
 * working directory has no path until then, so this is for when a single name cannot be dropped in time.
 */
void session_invalidate_names(struct session *s)
{
	struct fuse_out_header out = { .len = sizeof(out), .error = KERNEL_NOTIFY_INC_EPOCH };

	if (!s->has_epochs || !atomic_load(&s->connected))
		return;
	uint64_t ticket = notify_ticket(s->names);
	if (write(s->fd, &out, sizeof(out)) == (ssize_t)sizeof(out))
		notify_cover(s->names, ticket);
	else if (!atomic_load(&s->aborting))
		log_event(s->opt.log, LOG_LEVEL_WARNING, "epoch", "errno=%d", errno);
}

void session_invalidate_name(struct session *s, uint64_t parent, const char *name)
{
	if (!atomic_load(&s->connected))
		return;
	if (!notify_wait(s->names, notify_name(s->names, parent, name), s->has_epochs ? NAME_EPOCH_USEC : NAME_USEC))
		session_invalidate_names(s);
}

void session_drop(struct session *s, uint64_t ino)
{
	struct {
		struct fuse_out_header out;
		struct kernel_notify_prune prune;
	} m = { .out = { .len = sizeof(m), .error = KERNEL_NOTIFY_PRUNE }, .prune = { .count = 1, .ino = { ino } } };

	if (s->has_prune && atomic_load(&s->connected) && write(s->fd, &m, sizeof(m)) < 0 && !atomic_load(&s->aborting))
		log_event(s->opt.log, LOG_LEVEL_WARNING, "prune", "errno=%d", errno);
}
