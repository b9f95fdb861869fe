/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Maintenance runs when core asks for it, every BUSY_USEC while records are written, and every QUIET_USEC otherwise: a
 * wake-up in two seconds is no measurable load, and nothing that it does is more urgent on a quiet mount. Core's hook
 * ends a quiet sleep at once, and a writer who waits for room any.
 */
#include "fs/drain/maintain.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "fs/drain/private.h"

#define LEAST_USEC  INT64_C(20000)
#define BUSY_USEC   INT64_C(250000)
#define QUIET_USEC  INT64_C(2000000)
#define SETTLE_USEC INT64_C(2000000) /* stay awake so long after the last change */

struct rate {
	int64_t at_usec;
	uint64_t total, per_sec;
};

struct maintain {
	struct maintain_options opt;
	pthread_t thread;
	int wake_fd;          /* owned */
	atomic_bool sleeping; /* long */
	atomic_bool stop;
	/* the thread's own */
	uint64_t seq; /* of the state when last looked at */
	int64_t changed_usec;
	int last_error;
	uint64_t idle_write_usec, idle_open; /* the pause that was reported */
	pthread_mutex_t lock;
	struct rate written, drained; /* under lock */
};

/* ---- rates */

static void rate_note(struct rate *r, uint64_t total)
{
	int64_t now = drain_now_usec();

	if (now - r->at_usec < 4 * BUSY_USEC)
		return;
	r->per_sec = r->at_usec && total > r->total
			     ? (uint64_t)((double)(total - r->total) * 1e6 / (double)(now - r->at_usec))
			     : 0;
	r->at_usec = now;
	r->total = total;
}

static void note_rates(struct maintain *m, const struct core_stats *stats)
{
	struct state_totals totals;

	state_totals(store_state(m->opt.store), &totals);
	pthread_mutex_lock(&m->lock);
	rate_note(&m->written, stats->written_bytes + stats->through_bytes + stats->private_bytes);
	rate_note(&m->drained, totals.drained_bytes);
	pthread_mutex_unlock(&m->lock);
}

void maintain_rates(struct maintain *m, uint64_t *ret_write, uint64_t *ret_drain)
{
	pthread_mutex_lock(&m->lock);
	*ret_write = m->written.per_sec;
	*ret_drain = m->drained.per_sec;
	pthread_mutex_unlock(&m->lock);
}

/* ---- rounds */

/* drain=idle: each pause is reported once. Files that were open (and so left alone) and are closed now make a new one. */
static void note_pause(struct maintain *m, const struct core_stats *stats)
{
	uint64_t now = (uint64_t)drain_now_usec();

	if (config_number(m->opt.cfg, CONFIG_DRAIN) != 0 /* idle */ || stats->last_write_usec == 0)
		return;
	if (stats->last_write_usec == m->idle_write_usec && stats->open_files == m->idle_open)
		return;
	if (now < stats->last_write_usec ||
		now - stats->last_write_usec < config_number(m->opt.cfg, CONFIG_IDLE_INTERVAL))
		return;
	m->idle_write_usec = stats->last_write_usec;
	m->idle_open = stats->open_files;
	if (drain_is_needed(m->opt.store))
		drain_note_idle(m->opt.drain);
}

/* Returns after how many usec the next one is due. */
static int64_t run_round(struct maintain *m)
{
	uint64_t seq, asked = core_tick(m->opt.core);
	struct core_stats stats;
	int64_t usec;
	int r;

	r = store_maintain(m->opt.store, false);
	if (r != m->last_error && r)
		log_event(m->opt.log, LOG_LEVEL_ERROR, "maintain", "errno=%d text=\"%s\"", -r, strerror(-r));
	m->last_error = r;
	core_stats(m->opt.core, &stats);
	note_rates(m, &stats);
	note_pause(m, &stats);
	seq = state_seq(store_state(m->opt.store));
	if (seq != m->seq)
		m->changed_usec = drain_now_usec();
	m->seq = seq;
	usec = drain_now_usec() - m->changed_usec < SETTLE_USEC ? BUSY_USEC : QUIET_USEC;
	if (asked > 0 && asked < (uint64_t)usec)
		usec = asked < LEAST_USEC ? LEAST_USEC : (int64_t)asked;
	return usec;
}

static void *maintain_thread(void *arg)
{
	struct maintain *m = arg;
	struct pollfd p = { .fd = m->wake_fd, .events = POLLIN };

	while (!atomic_load(&m->stop)) {
		int64_t usec = run_round(m), end = drain_now_usec();
		eventfd_t value;

		atomic_store(&m->sleeping, usec > BUSY_USEC);
		if (poll(&p, 1, (int)(usec / 1000)) > 0)
			eventfd_read(m->wake_fd, &value);
		/* A full store's writers all hurry us. */
		if (!atomic_load(&m->stop) && drain_now_usec() - end < LEAST_USEC)
			poll(NULL, 0, (int)(LEAST_USEC / 1000));
	}
	return NULL;
}

void maintain_hurry(struct maintain *m)
{
	eventfd_write(m->wake_fd, 1);
}

void maintain_poke(struct maintain *m)
{
	if (atomic_load_explicit(&m->sleeping, memory_order_relaxed) && atomic_exchange(&m->sleeping, false))
		eventfd_write(m->wake_fd, 1);
}

int maintain_create(const struct maintain_options *opt, struct maintain **ret, struct cistern_error *err)
{
	struct maintain *m = calloc(1, sizeof(*m));
	int r;

	if (!m)
		return cistern_error_set(err, -ENOMEM, "out of memory");
	m->opt = *opt;
	pthread_mutex_init(&m->lock, NULL);
	m->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	r = m->wake_fd < 0 ? -errno : -pthread_create(&m->thread, NULL, maintain_thread, m);
	if (r) {
		if (m->wake_fd >= 0)
			close(m->wake_fd);
		pthread_mutex_destroy(&m->lock);
		free(m);
		return cistern_error_set(err, r, "cannot start the maintenance thread: %s", strerror(-r));
	}
	*ret = m;
	return 0;
}

void maintain_destroy(struct maintain *m)
{
	if (!m)
		return;
	atomic_store(&m->stop, true);
	eventfd_write(m->wake_fd, 1);
	pthread_join(m->thread, NULL);
	close(m->wake_fd);
	pthread_mutex_destroy(&m->lock);
	free(m);
}
