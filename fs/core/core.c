/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * The core's life: what it is made of, the root, and what it tells about itself.
 */
#include "fs/core/core.h"
#include "format/base/clock.h"
#include "fs/core/private.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PRIVATE_BYTES_USEC 500000u

static void read_settings(struct core *c, const struct config *cfg)
{
	c->backing_timeout_sec = (double)config_number(cfg, CONFIG_BACKING_TIMEOUT) / 1e6;
	c->small_file = config_number(cfg, CONFIG_SMALL_FILE);
	c->private_min_free = config_number(cfg, CONFIG_PRIVATE_MIN_FREE);
	c->full_timeout_usec = config_number(cfg, CONFIG_FULL_TIMEOUT);
	c->high_water_percent = (unsigned int)config_number(cfg, CONFIG_HIGH_WATER);
	c->read_only = config_number(cfg, CONFIG_READ_ONLY);
	c->write_out = config_number(cfg, CONFIG_WRITE_OUT);
	c->data_choice = (unsigned int)config_number(cfg, CONFIG_DATA);
}

/* The store knows the root from the first mount on. */
static int adopt_root(struct core *c, const struct stat *st)
{
	struct record rec = { .type = RECORD_ADOPT, .ino = STATE_ROOT_INO, .name = "." };
	struct inode in;

	if (state_inode(c->state, STATE_ROOT_INO, &in) == 0)
		return 0;
	record_set_attributes(&rec, st);
	return store_commit(c->store, &rec);
}

static int make_root(struct core *c, struct cistern_error *err)
{
	struct stat st;
	struct inode in;

	if (fstat(c->backing_fd, &st) < 0)
		return cistern_error_set(err, -errno, "backing directory: %s", strerror(errno));
	c->backing_dev = st.st_dev;
	int rc = adopt_root(c, &st);
	if (rc == 0)
		rc = state_inode(c->state, STATE_ROOT_INO, &in);
	if (rc == 0)
		rc = node_of_state(c, &in, &c->root);
	if (rc < 0)
		return cistern_error_set(err, rc, "cannot record the root directory in the store: %s", strerror(-rc));
	node_count_lookup(c, c->root);
	return 0;
}

/* Writers come one after the other: a session that begins must not wait for a gap between them. */
static void init_through(pthread_rwlock_t *lock)
{
	pthread_rwlockattr_t attr;

	pthread_rwlockattr_init(&attr);
	pthread_rwlockattr_setkind_np(&attr, PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP);
	pthread_rwlock_init(lock, &attr);
	pthread_rwlockattr_destroy(&attr);
}

int core_create(struct store *store, const struct config *cfg, int backing_fd, const struct core_hooks *hooks,
	struct core **ret, struct cistern_error *err)
{
	struct core *c = calloc(1, sizeof(*c));

	if (!c || !(c->buckets = calloc(CORE_BUCKETS, sizeof(struct node *)))) {
		free(c);
		return cistern_error_set(err, -ENOMEM, "out of memory");
	}
	c->store = store;
	c->state = store_state(store);
	c->segments = store_segments(store);
	c->cfg = cfg;
	c->hooks = *hooks;
	read_settings(c, cfg);
	pthread_mutex_init(&c->names, NULL);
	pthread_mutex_init(&c->table, NULL);
	pthread_mutex_init(&c->tick, NULL);
	pthread_mutex_init(&c->room, NULL);
	pthread_cond_init(&c->room_cond, NULL);
	pthread_mutex_init(&c->session, NULL);
	pthread_cond_init(&c->told_cond, NULL);
	struct state_totals totals;
	state_totals(c->state, &totals);
	c->through_before = totals.through_bytes > 0;
	init_through(&c->through);
	char uuid[37];
	store_uuid_text(store_superblock(store)->uuid, uuid);
	snprintf(c->through_prefix, sizeof(c->through_prefix), ".cistern-through-%.8s-", uuid);
	c->backing_fd = fcntl(backing_fd, F_DUPFD_CLOEXEC, 0);
	int rc = c->backing_fd < 0 ? cistern_error_set(err, -errno, "backing directory: %s", strerror(errno))
				   : drain_layout_rules_create(config_string(cfg, CONFIG_LAYOUT), &c->layouts, err);
	if (rc == 0)
		rc = make_root(c, err);
	c->max_bytes = rc == 0 && !c->read_only ? limit_of_files(c->backing_fd) : INT64_MAX;
	if (rc < 0) {
		core_destroy(c);
		return rc;
	}
	*ret = c;
	return 0;
}

void core_set_kernel(struct core *c, const struct core_kernel *k)
{
	c->kernel = *k;
	c->passthrough = k->passthrough;
	if (k->passthrough && c->data_choice != DATA_LOG)
		state_let_kernel_write(c->state);
}

uint64_t core_backing_timeout_usec(const struct core *c)
{
	return (uint64_t)(c->backing_timeout_sec * 1e6);
}

const struct core_kernel *core_kernel(const struct core *c)
{
	return &c->kernel;
}

static struct node *get_orphan(struct core *c, size_t bucket)
{
	pthread_mutex_lock(&c->table);
	struct node *n = c->buckets[bucket];
	while (n && !(n->orphan && n->known))
		n = n->hash_next;
	if (n)
		n->refs++;
	pthread_mutex_unlock(&c->table);
	return n;
}

/* Other nodes of a job go on meanwhile. */
void core_unmounted(struct core *c)
{
	c->unmounted = true;
	straggler_end(c);
	if (c->read_only)
		return;
	for (size_t i = 0; i < CORE_BUCKETS; i++)
		for (struct node *n; (n = get_orphan(c, i)); node_put(c, n)) {
			struct record rec = { .type = RECORD_FREE, .ino = n->ino };
			(void)store_commit(c->store, &rec); /* what fails is freed at the next mount */
			n->known = false;
		}
}

/* What the kernel still remembers at the end goes with the mount. */
static void free_nodes(struct core *c)
{
	for (size_t i = 0; i < CORE_BUCKETS; i++)
		while (c->buckets[i]) {
			struct node *n = c->buckets[i];
			n->refs = n->refs ? n->refs : 1;
			c->buckets[i] = n->hash_next;
			if (n->private_fd >= 0)
				close(n->private_fd);
			if (n->backing_fd >= 0)
				close(n->backing_fd);
			node_discard(n);
		}
}

uint64_t core_max_bytes(const struct core *c)
{
	return c->max_bytes;
}

/* A descriptor from beneath a dead mount (format/base/dead_mount.h) knows the end of its path alone. */
static bool is_end_of(const char *end, const char *path)
{
	size_t len = strlen(end), whole = strlen(path);

	return len <= whole && strcmp(path + whole - len, end) == 0;
}

void core_backing_path(struct core *c, char out[PATH_MAX])
{
	const char *known = store_superblock(c->store)->backing;
	char link[32];
	ssize_t n;

	snprintf(link, sizeof(link), "/proc/self/fd/%d", c->backing_fd);
	n = readlink(link, out, PATH_MAX - 1);
	out[n > 0 ? n : 0] = '\0';
	if (out[0] != '/' || is_end_of(out, known))
		snprintf(out, PATH_MAX, "%s", known);
}

void core_destroy(struct core *c)
{
	if (!c)
		return;
	free_nodes(c);
	free(c->buckets);
	idmap_free(&c->busy);
	idmap_free(&c->left_alone);
	drain_layout_rules_destroy(c->layouts);
	if (c->backing_fd >= 0)
		close(c->backing_fd);
	pthread_mutex_destroy(&c->names);
	pthread_mutex_destroy(&c->table);
	pthread_mutex_destroy(&c->tick);
	pthread_mutex_destroy(&c->room);
	pthread_cond_destroy(&c->room_cond);
	pthread_cond_destroy(&c->told_cond);
	pthread_mutex_destroy(&c->session);
	pthread_rwlock_destroy(&c->through);
	free(c);
}

static int add_private(uint32_t segment, uint64_t live_bytes, void *arg)
{
	struct core *c = arg;
	uint64_t size, allocated;
	int64_t mtime_ns;

	if (live_bytes == STATE_SEGMENT_PRIVATE &&
		segment_private_size(c->segments, segment, &size, &allocated, &mtime_ns) == 0)
		c->private_sum += allocated;
	return 0;
}

/* What the private files occupy. Their sizes are the file system's to know, so each is asked; that may take a tenth of the time at most. */
static uint64_t private_bytes(struct core *c)
{
	uint64_t now = clock_usec();

	pthread_mutex_lock(&c->room);
	if (c->unmounted || now >= c->private_usec) {
		c->private_sum = 0;
		(void)state_each_segment(c->state, add_private, c);
		c->private_bytes = c->private_sum;
		c->private_usec = clock_usec() + PRIVATE_BYTES_USEC + 10 * (clock_usec() - now);
	}
	pthread_mutex_unlock(&c->room);
	return c->private_bytes;
}

/* What df shows: the backing directory's file system, less what is still on its way there. */
int core_statfs(struct core *c, struct statvfs *ret)
{
	struct state_totals totals;

	if (fstatvfs(c->backing_fd, ret) < 0)
		return -errno;
	state_totals(c->state, &totals);
	uint64_t unit = ret->f_frsize ? ret->f_frsize : 4096;
	uint64_t owed = (totals.log_bytes + private_bytes(c) + unit - 1) / unit;
	ret->f_bfree -= owed < ret->f_bfree ? owed : ret->f_bfree;
	ret->f_bavail -= owed < ret->f_bavail ? owed : ret->f_bavail;
	ret->f_namemax = RECORD_NAME_MAX;
	return 0;
}

void core_activity(struct core *c, struct core_activity *ret)
{
	*ret = (struct core_activity){
		.bytes = c->written_bytes + c->private_written_bytes,
		.syncs = c->syncs,
		.syncing = c->syncing > 0,
	};
}

void core_stats(struct core *c, struct core_stats *ret)
{
	*ret = (struct core_stats){
		.open_files = c->open_files,
		.written_bytes = c->written_bytes,
		.read_bytes = c->read_bytes,
		.through_bytes = c->through_bytes,
		.private_bytes = private_bytes(c),
		.last_write_usec = c->last_write_usec,
	};
}
