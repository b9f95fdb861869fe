/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * The workers. Each has its own clone of the /dev/fuse descriptor (its own queue of requests in flight, so replies do
 * not contend) and its own memory, in which a request lies so that a WRITE's payload begins on a page: it can go to the
 * store by direct I/O as it is. Where the store offers slots in shared memory, a worker receives into one of these: a large
 * WRITE's payload is then acknowledged where it lies, the store takes the slot, and the worker gets another one, for which it
 * waits when all are on their way to the device. While workers wait for room in a full store others are started in their place; these
 * stay, and rest, when that is over. An idle worker is blocked in read() or rests (turn.c) and costs nothing. All end when
 * the kernel says ENODEV: unmounted or aborted.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

#include "format/segment/segment.h"
#include "fs/session/private.h"

#define PAGE             4096u
#define LARGE_READ_BYTES (64u << 10)
#define FREE_WORKERS     2u /* that do not wait for long, at least */

static_assert(SESSION_HEADER_BYTES == 80, "what the kernel puts before a WRITE's payload");
static_assert(
	SESSION_HEADER_BYTES <= SEGMENT_SLOT_LEAD && SESSION_DATA_BYTES <= SEGMENT_SLOT_BYTES, "a request fits a slot");

static int clone_device(int fd)
{
	uint32_t source = (uint32_t)fd;
	int clone = open("/dev/fuse", O_RDWR | O_CLOEXEC);

	if (clone < 0)
		return -errno;
	if (ioctl(clone, KERNEL_IOC_CLONE, &source) < 0) {
		int r = -errno;

		close(clone);
		return r;
	}
	return clone;
}

int worker_init(struct worker *w, struct session *s)
{
	void *memory =
		mmap(NULL, PAGE + SESSION_DATA_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	int clone;

	if (memory == MAP_FAILED)
		return -errno;
	*w = (struct worker){ .session = s, .fd = s->fd, .reply_fd = -1, .memory = memory };
	w->request = w->memory + PAGE - SESSION_HEADER_BYTES;
	/* An ordinary user cannot always open the device again: one descriptor for all is slower, not wrong. */
	clone = clone_device(s->fd);
	if (clone >= 0) {
		w->fd = clone;
		w->owns_fd = true;
	}
	return 0;
}

void worker_free(struct worker *w)
{
	if (!w->memory)
		return;
	if (w->slot)
		segment_slot_put(w->session->opt.segments, w->slot);
	munmap(w->memory, PAGE + SESSION_DATA_BYTES);
	if (w->owns_fd)
		close(w->fd);
	*w = (struct worker){ .fd = -1 };
}

/*
 * Only so many that slots are never scarce: one that was taken goes back when its worker comes here again, which may be late. The
 * others, added while many wait, receive into memory of their own, and what they receive is copied.
 */
static bool may_have_slot(const struct worker *w)
{
	const struct session *s = w->session;
	size_t index = (size_t)(w - s->workers);

	return s->opt.segments && index < s->opt.threads + 1u && index < segment_slots(s->opt.segments) / 2;
}

void worker_prepare(struct worker *w)
{
	struct segment_set *segments = w->session->opt.segments;

	if (!may_have_slot(w) || (w->slot && !segment_slot_taken(segments, w->slot)))
		return;
	if (w->slot)
		segment_slot_put(segments, w->slot);
	w->slot = segment_slot_get(segments, false);
	if (!w->slot) {
		turn_will_block(&w->session->turn);
		w->slot = segment_slot_get(segments, true);
	}
	w->request = (w->slot ? w->slot : w->memory + PAGE) - SESSION_HEADER_BYTES;
}

ssize_t worker_receive(struct worker *w)
{
	for (;;) {
		ssize_t n = read(w->fd, w->request, SESSION_REQUEST_BYTES);

		if (n >= (ssize_t)sizeof(struct fuse_in_header))
			return n;
		if (n >= 0)
			return -EIO;
		if (errno == ENODEV || (errno == EINTR && atomic_load(&w->session->aborting)))
			return 0;
		if (errno != ENOENT && errno != EINTR && errno != EAGAIN) /* ENOENT: interrupted before we saw it */
			return -errno;
	}
}

void worker_process(struct worker *w, size_t len)
{
	struct session *s = w->session;
	struct fuse_buf buf = { .mem = w->request, .size = len };

	w->request_len = len;
	w->reply_fd = w->reply_fd < 0 ? w->fd : w->reply_fd;
	if (!s->opt.raw || !s->opt.raw(s, (const struct fuse_in_header *)w->request, len, s->opt.context))
		fuse_session_process_buf(s->fuse, &buf);
	w->request_len = 0;
	w->reply_fd = -1;
}

static void worker_ended(struct session *s)
{
	const eventfd_t one = 1;

	if (atomic_fetch_sub(&s->running, 1) != 1)
		return;
	atomic_store(&s->connected, false);
	if (atomic_load(&s->aborting))
		session_sever(s);
	if (write(s->end_fd, &one, sizeof(one)) < 0)
		log_event(s->opt.log, LOG_LEVEL_ERROR, "session-end", "errno=%d", errno);
}

/* Requests that wait for a device or for much work. */
static bool is_slow(const struct worker *w)
{
	const struct fuse_in_header *in = (const void *)w->request;

	switch (in->opcode) {
	case FUSE_READ:
		return ((const struct fuse_read_in *)(in + 1))->size >
		       LARGE_READ_BYTES; /* may have to come from the device */
	case FUSE_FSYNC:
	case FUSE_FSYNCDIR:
	case FUSE_FALLOCATE:
	case FUSE_COPY_FILE_RANGE:
	case FUSE_OPENDIR:
	case FUSE_READDIR:
	case FUSE_READDIRPLUS: return true;
	default: return false;
	}
}

/* Of a mount of many: what may wait for other nodes. Writes do not for long (fs/job/lease.c), and what is forgotten nobody waits for. */
static bool asks_nodes(const struct worker *w)
{
	const struct fuse_in_header *in = (const void *)w->request;

	return w->session->opt.of_many && in->opcode != FUSE_WRITE && in->opcode != FUSE_FORGET &&
	       in->opcode != FUSE_BATCH_FORGET;
}

/* However many requests wait for other nodes, there is a worker for those that need none. */
static void process(struct worker *w, size_t len)
{
	const struct fuse_in_header *in = (const void *)w->request;
	bool asks = asks_nodes(w);

	if (in->opcode == FUSE_INTERRUPT)
		callers_interrupted(w->session);
	callers_begin(w, in);
	if (asks)
		session_will_block(w->session);
	worker_process(w, len);
	if (asks)
		session_has_blocked(w->session);
	callers_finish(w);
}

/* The next request's length; 0: ended, or -errno. */
static ssize_t next_request(struct worker *w, struct turn_mark *mark)
{
	struct session *s = w->session;
	ssize_t n;

	for (;;) {
		worker_prepare(w);
		n = (ssize_t)callers_take_aside(w);
		if (n > 0)
			return n;
		turn_before(&s->turn, mark);
		n = worker_receive(w);
		turn_after(&s->turn, mark, n > 0, n > 0 && is_slow(w));
		if (n <= 0 || !callers_put_aside(w, (size_t)n))
			return n;
	}
}

static void *worker_thread(void *arg)
{
	struct worker *w = arg;
	struct session *s = w->session;
	struct turn_mark mark = { 0 };
	ssize_t n;

	pthread_setspecific(s->worker_key, w);
	while ((n = next_request(w, &mark)) > 0) {
		process(w, (size_t)n);
		if (atomic_load(&s->callers.num_aside) == 0) /* else nobody may take what is aside */
			turn_rest(&s->turn, &mark);
	}
	turn_end(&s->turn);
	if (n < 0)
		log_event(s->opt.log, LOG_LEVEL_ERROR, "session-read", "errno=%d", (int)-n);
	worker_ended(s);
	return NULL;
}

static void interrupted(int signal)
{
}

/* The caller is a worker, or workers have not all ended as long as it runs. */
bool session_grow(struct session *s, unsigned int num)
{
	bool added = false;
	unsigned int n;
	int r = 0;

	pthread_mutex_lock(&s->grow);
	n = atomic_load(&s->num_workers);
	if (n < s->max_workers && n < num && atomic_load(&s->running) > 0 && !atomic_load(&s->aborting)) {
		struct worker *w = &s->workers[n];

		r = worker_init(w, s);
		atomic_fetch_add(&s->running, 1);
		r = r ? r : -pthread_create(&w->thread, NULL, worker_thread, w);
		if (r) {
			atomic_fetch_sub(&s->running, 1);
			worker_free(w);
		} else {
			w->started = added = true;
			atomic_store(&s->num_workers, n + 1);
		}
	}
	pthread_mutex_unlock(&s->grow);
	if (r)
		log_event(s->opt.log, LOG_LEVEL_WARNING, "worker-not-added", "errno=%d", -r);
	return added;
}

void session_will_block(struct session *s)
{
	unsigned int blocked = atomic_fetch_add(&s->blocked, 1) + 1;

	if (atomic_load(&s->num_workers) < blocked + FREE_WORKERS)
		session_grow(s, blocked + FREE_WORKERS);
	turn_will_block(&s->turn);
}

void session_has_blocked(struct session *s)
{
	atomic_fetch_sub(&s->blocked, 1);
}

/* Those that run when one cannot be started are ended by the abort that the caller answers the error with. */
int session_start(struct session *s, struct cistern_error *err)
{
	int r;

	sigaction(SESSION_SIGNAL, &(struct sigaction){ .sa_handler = interrupted }, NULL); /* no SA_RESTART */
	atomic_store(&s->running, s->num_workers);
	for (unsigned int i = 0; i < s->num_workers; i++) {
		struct worker *w = &s->workers[i];

		r = pthread_create(&w->thread, NULL, worker_thread, w);
		if (r) {
			atomic_fetch_sub(&s->running, s->num_workers - i);
			session_abort(s);
			return cistern_error_set(err, -r, "cannot start thread %u of %u: %s; lower the setting threads",
				i + 1, s->num_workers, strerror(r));
		}
		w->started = true;
	}
	r = callers_start(s);
	if (r) {
		session_abort(s);
		return cistern_error_set(err, r, "cannot start a thread: %s", strerror(-r));
	}
	s->keep_dead = false;
	return 0;
}
