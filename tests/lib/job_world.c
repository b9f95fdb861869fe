/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "tests/lib/job_world.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "format/store/store.h"
#include "fs/job/message.h"
#include "tests/lib/scratch.h"
#include "tests/lib/sim.h"

struct daemon { /* of one node */
	struct job_world *w;
	uint32_t index;
	struct io *io; /* owned; NULL: the store's own */
	struct store *store;
	struct core *core;
	struct job *job; /* NULL: dead */
	int kernel_fd;   /* owned; -1 */
	struct sim *sim; /* owned; NULL: real files */
	uint8_t boot[16];
};

struct job_world {
	struct job_world_options opt;
	char dir[64], backing[96];
	struct config *cfg;
	struct loopback *loopback;
	struct daemon *daemons;
	bool closed;
};

static _Noreturn void bail_out(const char *why)
{
	printf("Bail out! %s\n", why);
	exit(1);
}

/* ---- hooks that core and job want; there is no kernel */

static int backing_open(int fd, void *arg)
{
	struct daemon *d = arg;

	if (!d->w->opt.passthrough)
		return -ENOTSUP;
	if (d->kernel_fd >= 0)
		close(d->kernel_fd);
	d->kernel_fd = fcntl(fd, F_DUPFD_CLOEXEC, 0);
	return 1;
}

static void backing_close(int id, void *arg)
{
	(void)id, (void)arg;
}

static void want_drain(bool urgent, void *arg)
{
	(void)urgent, (void)arg;
}

static void waits(bool begins, void *arg)
{
}

static void wake(void *arg)
{
	(void)arg;
}

static void invalidate(uint64_t ino, bool data, void *arg)
{
	struct daemon *d = arg;

	if (d->w->opt.invalidate)
		d->w->opt.invalidate(d->index, ino, data, d->w->opt.arg);
}

static void unreadable(const char *text, void *arg)
{
	(void)text, (void)arg;
}

static void invalidate_name(uint64_t parent, const char *name, void *arg)
{
	struct daemon *d = arg;

	if (d->w->opt.invalidate_name)
		d->w->opt.invalidate_name(d->index, parent, name, d->w->opt.arg);
}

static void invalidate_names(void *arg)
{
	struct daemon *d = arg;

	if (d->w->opt.invalidate_names)
		d->w->opt.invalidate_names(d->index, d->w->opt.arg);
}

static void drop(uint64_t ino, void *arg)
{
	struct daemon *d = arg;

	if (d->w->opt.drop)
		d->w->opt.drop(d->index, ino, d->w->opt.arg);
}

/* What a daemon would write to its log as an error is worth a line here. */
static void say(bool error, const char *event, const char *text, void *arg)
{
	struct daemon *d = arg;

	if (error)
		printf("# node %u: %s %s\n", d->index, event, text);
}

/* ---- a daemon */

/* As job_world_options.store_io has it. */
static void put_between(struct daemon *d, const char *path, struct store_options *opt)
{
	static char index[160]; /* until the store is open */
	struct io *real = NULL;

	if (!d->w->opt.store_io)
		return;
	if (mkdir(path, 0700) && errno != EEXIST)
		bail_out("mkdir");
	int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0 || io_posix_create(fd, &real))
		bail_out("a store's directory");
	close(fd);
	snprintf(index, sizeof(index), "%s/index", path);
	io_destroy(d->io);
	opt->io = d->io = d->w->opt.store_io(d->index, real, d->w->opt.arg);
	opt->index_path = index;
}

static void open_store(struct daemon *d, struct cistern_error *err)
{
	static const uint8_t job_uuid[STORE_UUID_BYTES] = { 0x10, 0xb0 };
	struct job_world *w = d->w;
	struct store_options opt = {
		.mode = STORE_CREATE_OR_OPEN,
		.backing = w->backing,
		.capacity = config_number(w->cfg, CONFIG_CAPACITY),
		.reserve = config_number(w->cfg, CONFIG_RESERVE),
		.io = d->io,
	};
	struct state_report report;
	char path[128], index[160];

	snprintf(path, sizeof(path), "%s/store%u", w->dir, d->index);
	put_between(d, path, &opt);
	if (d->sim) {
		snprintf(index, sizeof(index), "%s/index", path);
		(void)mkdir(path, 0700);
		opt.index_path = index;
	}
	if (d->sim || d->boot[0] > 1)
		opt.boot_id = d->boot;
	if (store_open(path, &opt, &d->store, &report, err) ||
		store_number(d->store, d->index, w->opt.num, job_uuid, err))
		bail_out(err->text);
}

static void begin(struct daemon *d)
{
	struct core_hooks hooks = { backing_open, backing_close, want_drain, waits, wake, invalidate, unreadable, NULL,
		NULL, d };
	struct job_world *w = d->w;
	struct cistern_error err = { 0 };
	int fd = open(w->backing, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	open_store(d, &err);
	if (fd < 0 || core_create(d->store, w->cfg, fd, &hooks, &d->core, &err))
		bail_out(err.text);
	close(fd);
	core_set_kernel(d->core, &(struct core_kernel){ .passthrough = w->opt.passthrough, .direct_mmap = true });
	loopback_set_segments(w->loopback, d->index, store_segments(d->store));
	if (job_create(&(struct job_options){ .core = d->core,
			       .store = d->store,
			       .cfg = w->cfg,
			       .peers = loopback_peers(w->loopback, d->index),
			       .invalidate = invalidate,
			       .invalidate_name = invalidate_name,
			       .invalidate_names = invalidate_names,
			       .drop = drop,
			       .log = say,
			       .arg = d },
		    &d->job, &err))
		bail_out(err.text);
	if (w->opt.begun)
		w->opt.begun(d->index, d->job, w->opt.arg);
}

/* Job and core; the store is left. */
static void end(struct daemon *d)
{
	if (!d->job)
		return;
	job_shut_down(d->job);
	peers_shut_down(loopback_peers(d->w->loopback, d->index));
	loopback_set_segments(d->w->loopback, d->index, NULL);
	job_destroy(d->job);
	core_destroy(d->core);
	d->job = NULL;
	d->core = NULL;
}

void job_world_kill(struct job_world *w, uint32_t node)
{
	struct daemon *d = &w->daemons[node];

	loopback_kill(w->loopback, node);
	end(d);
	store_abandon(d->store);
	d->store = NULL;
}

void job_world_lose_power(struct job_world *w, uint32_t node, uint64_t seed)
{
	struct daemon *d = &w->daemons[node];

	if (d->job)
		job_world_kill(w, node);
	if (d->sim && sim_power_cut(d->sim, seed))
		bail_out("out of memory");
	d->boot[0]++;
}

void job_world_revive(struct job_world *w, uint32_t node)
{
	loopback_restart(w->loopback, node);
	begin(&w->daemons[node]);
	loopback_assemble(w->loopback);
	loopback_settle(w->loopback);
}

void job_world_restart(struct job_world *w, uint32_t node)
{
	job_world_kill(w, node);
	job_world_revive(w, node);
}

/* ---- the world */

static void make_place(struct job_world *w)
{
	snprintf(w->dir, sizeof(w->dir), "%s/job-world.XXXXXX", scratch_parent());
	if (!mkdtemp(w->dir))
		bail_out("mkdtemp");
	snprintf(w->backing, sizeof(w->backing), "%s/backing", w->dir);
	if (mkdir(w->backing, 0755))
		bail_out("mkdir");
}

struct job_world *job_world_start_with(const struct job_world_options *opt)
{
	struct job_world *w = calloc(1, sizeof(*w));
	struct cistern_error err = { 0 };

	if (!w)
		bail_out("out of memory");
	w->opt = *opt;
	make_place(w);
	if (config_create(&w->cfg) ||
		config_parse_options(w->cfg, opt->settings ? opt->settings : "data=log", "test", &err))
		bail_out(err.text);
	w->loopback = loopback_create(&(struct loopback_options){
		.num = opt->num, .timeout_usec = opt->timeout_usec, .node_timeout_usec = opt->node_timeout_usec });
	w->daemons = calloc(opt->num, sizeof(*w->daemons));
	if (!w->loopback || !w->daemons)
		bail_out("out of memory");
	for (uint32_t i = 0; i < opt->num; i++) {
		w->daemons[i] = (struct daemon){ .w = w, .index = i, .kernel_fd = -1, .boot = { 1 } };
		if (opt->simulated && sim_create(&w->daemons[i].sim, &w->daemons[i].io))
			bail_out("out of memory");
		begin(&w->daemons[i]);
	}
	loopback_assemble(w->loopback);
	loopback_settle(w->loopback);
	return w;
}

struct job_world *job_world_start(uint32_t num)
{
	return job_world_start_with(&(struct job_world_options){ .num = num });
}

void job_world_close(struct job_world *w)
{
	for (uint32_t i = 0; i < w->opt.num; i++)
		if (w->daemons[i].job)
			job_shut_down(w->daemons[i].job);
	for (uint32_t i = 0; i < w->opt.num; i++)
		end(&w->daemons[i]);
	loopback_destroy(w->loopback);
	for (uint32_t i = 0; i < w->opt.num; i++)
		if (w->daemons[i].kernel_fd >= 0)
			close(w->daemons[i].kernel_fd);
	for (uint32_t i = 0; i < w->opt.num; i++)
		if (store_close(w->daemons[i].store))
			bail_out("a store does not close in good order");
		else
			w->daemons[i].store = NULL;
	w->closed = true;
}

void job_world_stop(struct job_world *w)
{
	char cmd[128];

	if (!w->closed)
		job_world_close(w);
	for (uint32_t i = 0; i < w->opt.num; i++) {
		io_destroy(w->daemons[i].io);
		sim_destroy(w->daemons[i].sim);
	}
	config_destroy(w->cfg);
	snprintf(cmd, sizeof(cmd), "rm -rf '%s'", w->dir);
	if (system(cmd) != 0)
		printf("# cannot remove %s\n", w->dir);
	free(w->daemons);
	free(w);
}

/* ---- simulated stores, copied */

struct copying {
	struct io *io;
	const char *from; /* a directory in it */
	char to[200];
};

static int copy_entry(const char *name, void *arg);

static void copy_dir(struct io *io, const char *from, const char *to)
{
	struct copying c = { .io = io, .from = from };

	snprintf(c.to, sizeof(c.to), "%s", to);
	if (mkdir(to, 0700) || io->ops->list(io, from, copy_entry, &c))
		bail_out("a store cannot be copied");
}

static void copy_file(struct io_file *file, const char *to)
{
	static const size_t step = 1u << 20;
	uint8_t *buf = malloc(step);
	uint64_t size = 0;
	int fd = open(to, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);

	if (!buf || fd < 0 || file->ops->size(file, &size) || ftruncate(fd, (off_t)size))
		bail_out("a store cannot be copied");
	for (uint64_t off = 0; off < size; off += step) {
		ssize_t n = file->ops->pread(file, buf, step, off);

		if (n < 0 || pwrite(fd, buf, (size_t)n, (off_t)off) != n)
			bail_out("a store cannot be copied");
	}
	close(fd);
	free(buf);
}

static int copy_entry(const char *name, void *arg)
{
	const struct copying *c = arg;
	struct io_file *file = NULL;
	char from[300], to[500];

	snprintf(from, sizeof(from), "%s%s%s", c->from, *c->from ? "/" : "", name);
	snprintf(to, sizeof(to), "%s/%s", c->to, name);
	if (io_open(c->io, from, IO_READ, &file) == 0) {
		copy_file(file, to);
		io_close(file);
	} else {
		copy_dir(c->io, from, to);
	}
	return 0;
}

void job_world_copy_stores(struct job_world *w, const char *path)
{
	for (uint32_t i = 0; i < w->opt.num; i++) {
		char to[200];

		snprintf(to, sizeof(to), "%s/store%u", path, i);
		copy_dir(w->daemons[i].io, "", to);
	}
}

struct job *job_world_job(struct job_world *w, uint32_t node)
{
	return w->daemons[node].job;
}

struct core *job_world_core(struct job_world *w, uint32_t node)
{
	return w->daemons[node].core;
}

struct sim *job_world_sim(const struct job_world *w, uint32_t node)
{
	return w->daemons[node].sim;
}

struct store *job_world_store(struct job_world *w, uint32_t node)
{
	return w->daemons[node].store;
}

struct loopback *job_world_loopback(struct job_world *w)
{
	return w->loopback;
}

struct peers *job_world_peers(struct job_world *w, uint32_t node)
{
	return loopback_peers(w->loopback, node);
}

static void fill_with(struct job_world *w, uint32_t from, uint32_t to, size_t len)
{
	void *bytes = calloc(1, len + 1);
	struct wire_msg m = { 0 };
	int rc;

	if (!bytes)
		bail_out("out of memory");
	message_init(&m, MESSAGE_FILE_LOST);
	if (len > 0)
		message_put_bytes(&m, MESSAGE_SHARE_PIECES, bytes, len);
	while ((rc = peers_tell(job_world_peers(w, from), to, &m)) == 0)
		;
	if (rc != -EAGAIN)
		bail_out("a node cannot be filled");
	wire_msg_free(&m);
	free(bytes);
}

void job_world_fill(struct job_world *w, uint32_t from, uint32_t to, size_t len)
{
	for (size_t more = 1u << 20; len > 0 && more > len; more /= 16)
		fill_with(w, from, to, more);
	fill_with(w, from, to, len);
}

const char *job_world_backing(const struct job_world *w)
{
	return w->backing;
}

int job_world_kernel_fd(const struct job_world *w, uint32_t node)
{
	return w->daemons[node].kernel_fd;
}
