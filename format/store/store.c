/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * A store from its opening to its closing. What opening does, in this order, and why in this order:
 *
 *   the directory is looked at  before anything in it is touched, so that nothing of others is ever overwritten
 *   lock                        from here on nobody else writes
 *   superblock                  says whether the rest may be understood at all; a new store is one once it is there
 *   leftovers are synced        what a dead process left in the page cache must not be taken for durable
 *   staged payloads             what a dead process had acknowledged in shared memory is brought to its segments
 *   segments, then state        replaying the journal after a loss of power asks the segments for payloads
 *   a loss of power is noted    before the journal says which boot this is: nobody would see it behind that
 *   lost writes are made final  a second replay, after another crash, must not find them again
 *   sweep                       snapshots and segments that nobody refers to
 *
 * Closing goes the other way round.
 */
#include "format/store/internal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "format/base/clock.h"
#include "format/place/place.h"
#include "format/store/hosts.h"
#include "format/store/lock.h"
#include "format/store/superblock.h"

static bool writes(const struct store *s)
{
	return s->mode != STORE_READ_ONLY;
}

/* ---- the superblock ---- */

static int copy_text(char *to, size_t cap, const char *from, const char *what, struct cistern_error *err)
{
	if (strlen(from) >= cap)
		return cistern_error_set(err, -ENAMETOOLONG,
			"%s: longer than %zu bytes, which is too long for a store's %s", from, cap - 1, what);
	memset(to, 0, cap);
	strcpy(to, from);
	return 0;
}

static int save_superblock(struct store *s, struct cistern_error *err)
{
	int r = superblock_save(s->io, &s->sb);

	return r ? cistern_error_set(err, r, "%s/" SUPERBLOCK_FILE ": cannot be written: %s", s->path, strerror(-r))
		 : 0;
}

/* What may change from mount to mount. *ret_changed is set when something did. */
static int put_texts(
	struct superblock *sb, const struct store_options *opt, bool *ret_changed, struct cistern_error *err)
{
	int r = 0;

	*ret_changed = false;
	if (opt->mountpoint && strcmp(opt->mountpoint, sb->mountpoint) != 0) {
		*ret_changed = true;
		r = copy_text(sb->mountpoint, sizeof(sb->mountpoint), opt->mountpoint, "mount point", err);
	}
	if (!r && opt->job && *opt->job && strcmp(opt->job, sb->job) != 0) {
		*ret_changed = true;
		r = copy_text(sb->job, sizeof(sb->job), opt->job, "job id", err);
	}
	return r;
}

static int make_superblock(struct store *s, const struct store_options *opt, struct cistern_error *err)
{
	struct superblock *sb = &s->sb;
	bool changed;
	struct stat st;
	int r;

	if (!opt->backing || !opt->backing[0])
		return cistern_error_set(
			err, -EINVAL, "%s: a new store must know its backing directory: name it", s->path);
	*sb = (struct superblock){
		.version = STORE_FORMAT_VERSION, .num_nodes = 1, .created_ns = clock_wall_ns(), .uid = geteuid()
	};
	if (s->dirfd >= 0 && fstat(s->dirfd, &st) == 0)
		sb->uid = st.st_uid;
	if (getrandom(sb->uuid, sizeof(sb->uuid), 0) != (ssize_t)sizeof(sb->uuid))
		return cistern_error_set(err, -EIO, "the system gives no random numbers");
	sb->uuid[6] = (sb->uuid[6] & 0x0f) | 0x40; /* RFC 4122: version 4, ... */
	sb->uuid[8] = (sb->uuid[8] & 0x3f) | 0x80; /* ... its variant */
	r = copy_text(sb->backing, sizeof(sb->backing), opt->backing, "backing directory", err);
	r = r ? r : put_texts(sb, opt, &changed, err);
	return r ? r : save_superblock(s, err);
}

int store_number(struct store *s, uint32_t node, uint32_t num, const uint8_t *job_uuid, struct cistern_error *err)
{
	struct superblock old = s->sb;
	char was[HOSTS_NODE_BYTES];
	int r;

	if (old.num_nodes > 1 && old.node_index == node && old.num_nodes == num &&
		memcmp(old.job_uuid, job_uuid, sizeof(old.job_uuid)) == 0)
		return 0;
	if (old.num_nodes > 1)
		return cistern_error_set(err, -EEXIST,
			"%s: this store is that of %s of %u in an earlier job, it cannot become node %u of %u of this one: "
			"drain it first (cistern recover), or name another store",
			s->path, hosts_node_text(s, old.node_index, was), old.num_nodes, node, num);
	if (num < 2 || node >= num)
		return cistern_error_set(err, -EINVAL, "%s: node %u of %u: impossible", s->path, node, num);
	s->sb.node_index = node;
	s->sb.num_nodes = num;
	memcpy(s->sb.job_uuid, job_uuid, sizeof(s->sb.job_uuid));
	r = save_superblock(s, err);
	if (r) {
		s->sb = old;
		return r;
	}
	state_reserve_inos(s->state, place_first_ino(node));
	state_join(s->state);
	return 0;
}

static int agree_on_job(struct store *s, const struct store_options *opt, struct cistern_error *err)
{
	const struct superblock *sb = &s->sb;
	char node[HOSTS_NODE_BYTES];

	if (sb->num_nodes == 1)
		return 0;
	if (opt->nodes && opt->nodes != sb->num_nodes)
		return cistern_error_set(err, -EINVAL,
			"%s: this store is that of %s of a job of %u: mount it with nodes=%u, as all of them, or run "
			"'cistern recover' on the stores of all its nodes",
			s->path, hosts_node_text(s, sb->node_index, node), sb->num_nodes, sb->num_nodes);
	if (opt->job && *opt->job && *sb->job && strcmp(opt->job, sb->job) != 0)
		return cistern_error_set(err, -EINVAL,
			"%s: this store is that of %s of the job %s, not of %s: mount it with job=%s, or run 'cistern "
			"recover' on the stores of all its nodes",
			s->path, hosts_node_text(s, sb->node_index, node), sb->job, opt->job, sb->job);
	return 0;
}

static int agree(struct store *s, const struct store_options *opt, struct cistern_error *err)
{
	if (opt->backing && strcmp(opt->backing, s->sb.backing) != 0)
		return cistern_error_set(err, -EINVAL,
			"%s: this store holds data of the backing directory %s, not of %s: mount that one, or name another store",
			s->path, s->sb.backing, opt->backing);
	return agree_on_job(s, opt, err);
}

/* *ret_new: there is none yet, and one may be made. */
static int load_superblock(struct store *s, const struct store_options *opt, bool *ret_new, struct cistern_error *err)
{
	int r = superblock_load(s->io, &s->sb, err);

	*ret_new = r == -ENOENT && s->mode == STORE_CREATE_OR_OPEN;
	if (*ret_new)
		return 0;
	if (r == -ENOENT)
		return cistern_error_set(
			err, r, "%s: not a store (no superblock in it): name a store's directory", s->path);
	if (r) {
		cistern_error_prefix(err, "%s", s->path);
		return r;
	}
	return agree(s, opt, err);
}

static int record_texts(struct store *s, const struct store_options *opt, struct cistern_error *err)
{
	bool changed = false;
	int r = writes(s) ? put_texts(&s->sb, opt, &changed, err) : 0;

	return r || !changed ? r : save_superblock(s, err);
}

/* ---- opening ---- */

/* Readers must not go on for ever before who gives space back: with the default kind of lock they could. */
static int init_gate(pthread_rwlock_t *gate)
{
	pthread_rwlockattr_t attr;
	int r = -pthread_rwlockattr_init(&attr);

	if (r)
		return r;
	(void)pthread_rwlockattr_setkind_np(&attr, PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP);
	r = -pthread_rwlock_init(gate, &attr);
	pthread_rwlockattr_destroy(&attr);
	return r;
}

static int init_locks(struct store *s)
{
	int r = init_gate(&s->gate);

	if (r)
		return r;
	r = freed_init(&s->freed);
	if (r)
		goto gate;
	r = sync_init(&s->sync);
	if (r)
		goto freed;
	r = -pthread_mutex_init(&s->space.mutex, NULL);
	if (r)
		goto sync;
	r = -pthread_mutex_init(&s->ballast.mutex, NULL);
	if (r)
		goto space;
	r = straggler_init(&s->stragglers);
	if (r)
		goto ballast;
	return 0;
ballast:
	pthread_mutex_destroy(&s->ballast.mutex);
space:
	pthread_mutex_destroy(&s->space.mutex);
sync:
	sync_destroy(&s->sync);
freed:
	freed_destroy(&s->freed);
gate:
	pthread_rwlock_destroy(&s->gate);
	return r;
}

static struct store *allocate(enum store_mode mode)
{
	struct store *s = calloc(1, sizeof(*s));

	if (s && init_locks(s)) {
		free(s);
		return NULL;
	}
	if (s) {
		s->mode = mode;
		s->dirfd = s->lock_fd = -1;
	}
	return s;
}

/* Memory and descriptors, nothing else; segments and state are gone already. */
static void release(struct store *s)
{
	if (s->own_io)
		io_destroy(s->io);
	lock_release(s->lock_fd);
	if (s->dirfd >= 0)
		close(s->dirfd);
	straggler_destroy(&s->stragglers);
	pthread_mutex_destroy(&s->ballast.mutex);
	pthread_mutex_destroy(&s->space.mutex);
	sync_destroy(&s->sync);
	freed_destroy(&s->freed);
	pthread_rwlock_destroy(&s->gate);
	free(s->path);
	free(s);
}

/* Who holds the lock itself must not ask: that takes its process lock away. */
static int refuse_live(const struct store *s, const struct store_options *opt, struct cistern_error *err)
{
	bool recovers = false;
	pid_t pid = 0;
	int r = opt->snapshot || opt->held ? 0 : lock_holder(s->dirfd, &pid, &recovers);

	if (recovers || (r == 0 && pid == 0))
		return 0;
	if (r && r != -EBUSY)
		return cistern_error_set(err, r, "%s/" LOCK_FILE ": %s", s->path, strerror(-r));
	return cistern_error_set(err, -EBUSY,
		"%s: in use by process %ld: ask its daemon, or unmount it first (cistern umount)", s->path, (long)pid);
}

/* The directory, its lock and the I/O seam over it. */
static int open_directory(struct store *s, const char *path, const struct store_options *opt, struct cistern_error *err)
{
	bool is_new = false;
	int r;

	if (opt->io) {
		s->io = opt->io;
		s->path = strdup(path ? path : "simulated store");
		return s->path ? 0 : cistern_error_set(err, -ENOMEM, "out of memory");
	}
	r = directory_open(path, s->mode, &s->path, &s->dirfd, &is_new, err);
	if (!r)
		r = writes(s) ? lock_take(s->dirfd, s->path, false, &s->lock_fd, err) : refuse_live(s, opt, err);
	if (r)
		return r;
	r = io_posix_create(s->dirfd, &s->io);
	if (r)
		return cistern_error_set(err, r, "%s: %s", s->path, strerror(-r));
	s->own_io = true;
	return 0;
}

/* Its parts know names below it. Returns r. */
static int in_store(const struct store *s, int r, struct cistern_error *err)
{
	if (err && !strstr(err->text, s->path))
		cistern_error_prefix(err, "%s", s->path);
	return r;
}

/* The end of the opening, step by step. Returns r. */
static int unfinished(const struct store *s, int r, const char *what, struct cistern_error *err)
{
	return r ? cistern_error_set(err, r, "%s: %s: %s", s->path, what, strerror(-r)) : 0;
}

static int open_segments(struct store *s, const struct store_options *opt, struct cistern_error *err)
{
	struct segment_options so = {
		.segment_bytes = opt->segment_size,
		.write_out = opt->write_out,
		.read_only = !writes(s),
		/* A snapshot's payloads are in their segments: see store_snapshot. */
		.staging = { .uuid = opt->snapshot ? NULL : s->sb.uuid,
			.owner = s->sb.uid,
			.bytes = opt->staging,
			.dir = opt->staging_dir },
	};
	int r = writes(s) ? sync_leftovers(s->io, err) : 0;

	/*
	 * What a replay frees may have been given back before, which does no harm, since no place is used twice. A rebuild
	 * replays a whole life; there it would only be a burden.
	 */
	s->freed.open = writes(s) && s->mode != STORE_REBUILD;
	if (opt->freed_max)
		s->freed.max = opt->freed_max;
	if (s->sb.num_nodes > 1)
		store_set_grace(s, PLACE_GRACE_USEC);
	r = r ? r : segment_set_open(s->io, &so, &s->segments, err);
	return r ? in_store(s, r, err) : 0;
}

/* state_options.check_payload. */
static int check_payload(const struct record *rec, void *arg)
{
	struct store *s = arg;

	/* A segment that was lost with its last records must not get a namesake: the journal still tells of it. */
	if (rec->segment > atomic_load(&s->max_segment))
		atomic_store(&s->max_segment, rec->segment);
	return store_check_payload(s->segments, rec);
}

/*
 * state_options.find_private. Who syncs such a file makes the segment's name durable, and then has its record covered by a RECORD_SYNC: in
 * what has no name, and behind the end of a shorter one, was nothing that had been promised.
 */
static int find_private(const struct record *rec, uint64_t *ret_bytes, void *arg)
{
	bool seal = rec->type == RECORD_SEAL;
	struct store *s = arg;
	int r = seal && writes(s) ? sync_note_sealed(&s->sync, rec->segment) : 0;

	return r ? r : segment_restore_private(s->segments, rec->segment, seal ? rec->size : 0, ret_bytes);
}

static int any_segment(uint32_t segment, bool is_private, uint64_t bytes, void *arg)
{
	(void)segment;
	(void)is_private;
	(void)bytes;
	(void)arg;
	return 1;
}

/* state_options.has_segments. */
static int has_segments(void *arg)
{
	struct store *s = arg;

	return segment_list(s->segments, any_segment, NULL);
}

static enum state_mode state_mode_of(const struct store *s, const struct store_options *opt)
{
	if (opt->snapshot)
		return STATE_SNAPSHOT;
	switch (s->mode) {
	case STORE_READ_ONLY: return STATE_READ_ONLY;
	case STORE_REBUILD: return STATE_REBUILD;
	case STORE_INDEX_ALONE: return STATE_INDEX_ALONE;
	default: return STATE_READ_WRITE;
	}
}

static char *index_path_of(const struct store *s, const struct store_options *opt)
{
	char *path = NULL;

	if (opt->index_path && !opt->snapshot)
		return strdup(opt->index_path);
	return asprintf(&path, "%s/%s", s->path, opt->snapshot ? opt->snapshot : "index") < 0 ? NULL : path;
}

static int open_state(
	struct store *s, const struct store_options *opt, struct state_report *report, struct cistern_error *err)
{
	char *index = index_path_of(s, opt);
	struct state_options so = {
		.io = s->io,
		.index_path = index,
		.mode = state_mode_of(s, opt),
		.index_memory = opt->index_memory,
		.journal_size = opt->journal_size,
		.job = s->sb.num_nodes > 1,
		.version = opt->version,
		.check_payload = check_payload,
		.find_private = find_private,
		.sync_payloads = sync_payloads,
		.has_segments = has_segments,
		.before_mount = lost_power_found,
		.make_room = ballast_make_room,
		.arg = s,
		.freed = freed_push,
		.freed_arg = s,
		.boot_id = opt->boot_id,
	};
	int r;

	if (!index)
		return cistern_error_set(err, -ENOMEM, "out of memory");
	r = state_open(&so, &s->state, report, err);
	free(index);
	return r ? in_store(s, r, err) : 0;
}

static int settle(struct store *s, const struct state_report *report, struct cistern_error *err)
{
	int r = unfinished(s, store_sync(s), "what was found in it cannot be synced", err);

	if (!r && report->dropped_writes)
		r = unfinished(s, state_checkpoint(s->state), "its index cannot be written", err);
	if (!r && report->dropped_writes)
		r = unfinished(s, state_compact(s->state), "its journal cannot be written anew", err);
	if (!r && s->dirfd >= 0)
		r = snapshot_remove_all(s->dirfd, s->path, err);
	return r ? r : freed_sweep_segments(s, err);
}

static int open_parts(struct store *s, const char *path, struct store_options *opt, struct state_report *report,
	struct cistern_error *err)
{
	bool is_new = false;
	int r = open_directory(s, path, opt, err);

	if (!r)
		r = load_superblock(s, opt, &is_new, err);
	if (!r)
		r = space_choose_sizes(s->io, opt, is_new, s->path, err);
	if (!r)
		r = is_new ? make_superblock(s, opt, err) : record_texts(s, opt, err);
	if (!r && writes(s))
		ballast_end(s); /* a dead daemon's: its room may be what is needed now */
	if (!r)
		r = open_segments(s, opt, err);
	if (!r && !opt->snapshot)
		r = unfinished(s, straggler_look_early(s), "its private segments cannot be looked at", err);
	if (!r)
		r = open_state(s, opt, report, err);
	if (!r && !opt->snapshot)
		r = unfinished(s, straggler_settle(s, report), "its files cannot be listed", err);
	if (r)
		return r;
	if (s->sb.num_nodes > 1)
		state_reserve_inos(s->state, place_first_ino(s->sb.node_index));
	s->freed.open = writes(s);
	r = writes(s) ? settle(s, report, err) : 0;
	if (!r && writes(s) && s->sb.num_nodes > 1)
		r = unfinished(s, lost_power_settle(s), "what it tells the other nodes cannot be written", err);
	else if (!r && !opt->snapshot && s->sb.num_nodes > 1)
		lost_power_look(s, report);
	return r ? r : unfinished(s, space_init(s, opt), "what it occupies cannot be found out", err);
}

int store_open(const char *path, const struct store_options *options, struct store **ret,
	struct state_report *ret_report, struct cistern_error *err)
{
	struct store_options opt = *options;
	struct state_report report = { 0 };
	struct store *s;
	int r;

	if ((!path && !opt.io) || (opt.snapshot && (opt.mode != STORE_READ_ONLY || !snapshot_name_valid(opt.snapshot))))
		return cistern_error_set(
			err, -EINVAL, "%s: not the name of a snapshot", opt.snapshot ? opt.snapshot : "(none)");
	s = allocate(opt.mode);
	if (!s)
		return cistern_error_set(err, -ENOMEM, "out of memory");
	r = open_parts(s, path, &opt, &report, err);
	if (r) {
		store_abandon(s);
		return r;
	}
	if (ret_report)
		*ret_report = report;
	*ret = s;
	return 0;
}

/* ---- closing ---- */

void store_abandon(struct store *s)
{
	if (!s)
		return;
	state_destroy(s->state);
	segment_set_destroy(s->segments);
	release(s);
}

static int sync_if_private(uint32_t segment, bool is_private, uint64_t bytes, void *arg)
{
	struct store *s = arg;

	(void)bytes;
	return is_private ? segment_sync_private(s->segments, segment) : 0;
}

static int make_durable(struct store *s)
{
	int r = segment_list(s->segments, sync_if_private, s), e;

	e = store_sync(s);
	r = r ? r : e;
	while (s->freed.pins)
		store_unpin(s);
	e = freed_execute(s);
	return r ? r : e;
}

int store_close(struct store *s)
{
	int r = 0, e;

	if (!s)
		return 0;
	if (!writes(s)) {
		store_abandon(s);
		return 0;
	}
	ballast_end(s);
	r = make_durable(s);
	if (r) {
		store_abandon(s); /* not in good order, and the journal must not say so */
		return r;
	}
	e = state_close(s->state);
	segment_set_destroy(s->segments);
	release(s);
	return e;
}

int store_maintain(struct store *s, bool force_checkpoint)
{
	int r = freed_execute(s), e = 0;

	if (force_checkpoint || state_wants_checkpoint(s->state)) {
		e = store_sync(s);
		if (!e)
			e = state_checkpoint(s->state);
	}
	r = r ? r : e;
	e = state_wants_compaction(s->state) ? state_compact(s->state) : 0;
	ballast_fill(s);
	return r ? r : e;
}

/* ---- looking at it ---- */

const struct superblock *store_superblock(const struct store *s)
{
	return &s->sb;
}

const char *store_path(const struct store *s)
{
	return s->path;
}

struct state *store_state(struct store *s)
{
	return s->state;
}

struct segment_set *store_segments(struct store *s)
{
	return s->segments;
}

struct io *store_io(struct store *s)
{
	return s->io;
}

int store_read_superblock(const char *path, struct superblock *ret, struct cistern_error *err)
{
	struct io *io = NULL;
	int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC), r;

	if (fd < 0 && errno == ENOTDIR)
		return cistern_error_set(err, -ENOTDIR, "%s: not a directory: a store is a directory", path);
	if (fd < 0)
		return cistern_error_set(err, -errno, "%s: cannot be opened: %s", path, strerror(errno));
	r = io_posix_create(fd, &io);
	close(fd);
	if (r)
		return cistern_error_set(err, r, "%s: %s", path, strerror(-r));
	r = superblock_load(io, ret, err);
	io_destroy(io);
	if (r == -ENOENT)
		return cistern_error_set(
			err, r, "%s: not a store (no superblock in it): name a store's directory", path);
	if (r)
		cistern_error_prefix(err, "%s", path);
	return r;
}

int store_holder(const char *path, pid_t *ret_pid, bool *ret_recovers)
{
	int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC), r;

	*ret_recovers = false;
	if (fd < 0)
		return -errno;
	r = lock_holder(fd, ret_pid, ret_recovers);
	close(fd);
	return r;
}

static int refuse_held(int dirfd, const char *path, struct cistern_error *err)
{
	bool recovers = false;
	pid_t pid = 0;
	int r = lock_holder(dirfd, &pid, &recovers);

	if (r == 0 && pid == 0)
		return 0;
	if (recovers)
		return cistern_error_set(err, -EBUSY, "%s: in use by a recovery (process %ld): wait until it has ended",
			path, (long)pid);
	if (pid)
		return cistern_error_set(
			err, -EBUSY, "%s: in use by process %ld: wait until it has ended", path, (long)pid);
	return cistern_error_set(err, r, "%s/" LOCK_FILE ": %s", path, strerror(-r));
}

/* A lock that was made here is the store's owner's. */
static void give_to_owner(int fd, int dirfd)
{
	struct stat dir, lock;

	if (fstat(dirfd, &dir) == 0 && fstat(fd, &lock) == 0 && lock.st_uid != dir.st_uid)
		(void)!fchown(fd, dir.st_uid, dir.st_gid);
}

int store_hold(const char *path, int *ret_fd, struct cistern_error *err)
{
	int dirfd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC), fd = -1, r = 0;

	*ret_fd = -1;
	if (dirfd < 0)
		return cistern_error_set(err, -errno, "%s: cannot be opened: %s", path, strerror(errno));
	if (faccessat(dirfd, SUPERBLOCK_FILE, F_OK, 0) == 0)
		r = lock_take(dirfd, path, true, &fd, err);
	if (fd >= 0)
		give_to_owner(fd, dirfd);
	else if (r != -EBUSY)
		r = refuse_held(dirfd, path, err);
	close(dirfd);
	*ret_fd = fd;
	return r;
}

void store_uuid_text(const uint8_t uuid[STORE_UUID_BYTES], char out[37])
{
	size_t i;
	char *at = out;

	for (i = 0; i < STORE_UUID_BYTES; i++)
		at += sprintf(at, i == 4 || i == 6 || i == 8 || i == 10 ? "-%02x" : "%02x", uuid[i]);
}
