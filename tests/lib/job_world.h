/* SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef TESTS_LIB_JOB_WORLD_H
#define TESTS_LIB_JOB_WORLD_H

/*
 * A job in one process, without mounts: stores, cores and jobs (fs/job) of several nodes over one backing directory, joined
 * by the loopback, numbered and assembled. What cannot be made ends the program.
 */

#include "format/base/config.h"
#include "fs/core/core.h"
#include "fs/job/job.h"
#include "tests/lib/loopback.h"

struct job_world;
struct sim;

struct job_world_options {
	uint32_t num;
	const char *settings;       /* as -o has them; NULL: "data=log" */
	uint64_t timeout_usec;      /* agent_timeout; 0: 60 s */
	uint64_t node_timeout_usec; /* 0: 60 s */
	/* What is between a node's store and its directory, from io_posix_create; it owns that. arg comes last. NULL: nothing. */
	struct io *(*store_io)(uint32_t node, struct io *real, void *arg);
	bool simulated;   /* stores on simulated disks (sim.h), for job_world_lose_power */
	bool passthrough; /* kernels reach private segments, or would: job_world_kernel_fd */
	/* As job_options; node and hook_arg come first. NULL: nothing. */
	void (*invalidate)(uint32_t node, uint64_t ino, bool data, void *arg);
	void (*invalidate_name)(uint32_t node, uint64_t parent, const char *name, void *arg);
	void (*invalidate_names)(uint32_t node, void *arg);
	void (*drop)(uint32_t node, uint64_t ino, void *arg);
	void (*begun)(uint32_t node, struct job *j, void *arg); /* a daemon has, and has not met the others */
	void *arg;
};

struct job_world *job_world_start(uint32_t num);
struct job_world *job_world_start_with(const struct job_world_options *opt);
void job_world_close(
	struct job_world *w);             /* all daemons end and close their stores in good order; nothing is removed */
void job_world_stop(struct job_world *w); /* the same, unless that was done, and removes everything */

struct job *job_world_job(struct job_world *w, uint32_t node);
struct core *job_world_core(struct job_world *w, uint32_t node);
struct store *job_world_store(struct job_world *w, uint32_t node);
struct loopback *job_world_loopback(struct job_world *w);
struct peers *job_world_peers(struct job_world *w, uint32_t node);
/* What a node's kernel has been given last to read and write without the daemon; -1: nothing. Lives until the next one, or the end. */
int job_world_kernel_fd(const struct job_world *w, uint32_t node);
/*
 * So much waits at from for a node that hangs, or is deaf, that it takes no more of len bytes or longer; 0: of anything. What it is does
 * nothing there.
 */
void job_world_fill(struct job_world *w, uint32_t from, uint32_t to, size_t len);
const char *job_world_backing(const struct job_world *w);

/*
 * The daemon of a node dies as by a signal, without a word to the others (its agent lives on). No call of its job may run and no
 * file of it be open: release them first.
 */
void job_world_kill(struct job_world *w, uint32_t node);
/* Another daemon opens its store, and the agents assemble. */
void job_world_revive(struct job_world *w, uint32_t node);
void job_world_restart(struct job_world *w, uint32_t node); /* both */
/*
 * A daemon dies, and the next one is told that the machine was started again. Of simulated stores what was not synced is lost, some of it
 * (sim_power_cut, which the seed is for); real ones happen to have it all.
 */
void job_world_lose_power(struct job_world *w, uint32_t node, uint64_t seed);
struct sim *job_world_sim(const struct job_world *w, uint32_t node); /* a simulated store's disk */
/* The stores as they are in simulated disks, after job_world_close, as real ones: path/store0 and so on. */
void job_world_copy_stores(struct job_world *w, const char *path);

#endif
