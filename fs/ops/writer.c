/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Who writes. FUSE says which thread sent a request; the log wants the process, the thread's group, which stays the same over
 * all its threads. Asked once for each open file, at its first write: the thread waits for our answer then, so it is there to be
 * looked up. What was asked within the last second is remembered: no thread id is used again that soon.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "fs/ops/private.h"

#define REMEMBER_SEC 1
#define STATUS_BYTES 512 /* "Tgid:" is in the fourth line */

static int64_t now_sec(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC_COARSE, &ts);
	return ts.tv_sec;
}

/* 0: not known. */
static uint32_t look_up(pid_t tid)
{
	char path[64], text[STATUS_BYTES], *line;
	ssize_t n;
	int fd;

	snprintf(path, sizeof(path), "/proc/%d/status", (int)tid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return 0;
	n = read(fd, text, sizeof(text) - 1);
	close(fd);
	if (n <= 0)
		return 0;
	text[n] = '\0';
	line = strstr(text, "\nTgid:");
	return line ? (uint32_t)strtoul(line + strlen("\nTgid:"), NULL, 10) : 0;
}

uint32_t writer_of_thread(struct ops *o, pid_t tid)
{
	struct known_thread *k = &o->threads[(unsigned int)tid % OPS_THREADS];
	int64_t now = now_sec();
	uint32_t process = 0;

	if (tid <= 0)
		return 0; /* the kernel itself, or somebody of another name space */
	pthread_mutex_lock(&o->lock);
	if (k->tid == tid && now - k->asked_sec <= REMEMBER_SEC)
		process = k->process;
	pthread_mutex_unlock(&o->lock);
	if (process)
		return process;
	process = look_up(tid);
	pthread_mutex_lock(&o->lock);
	*k = (struct known_thread){ .tid = tid, .process = process, .asked_sec = now };
	pthread_mutex_unlock(&o->lock);
	return process;
}

void writer_note(fuse_req_t req, struct handle *h)
{
	if (!h || !h->file || h->writer_known)
		return;
	job_set_writer(h->file, writer_of_thread(ops_of(req), fuse_req_ctx(req)->pid));
	h->writer_known = true; /* last: nobody writes through h before it is */
}
