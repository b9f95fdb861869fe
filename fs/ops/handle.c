/* SPDX-License-Identifier: GPL-3.0-or-later */
/* Handles: what the kernel's fh stands for. */
#include <stdlib.h>

#include "fs/ops/private.h"

struct handle *handle_new(struct ops *o, uint64_t ino)
{
	struct handle *h = calloc(1, sizeof(*h));

	if (!h)
		return NULL;
	h->ino = ino;
	h->refs = 1;
	pthread_mutex_init(&h->listing, NULL);
	pthread_mutex_lock(&o->lock);
	h->next = o->open.next;
	h->prev = &o->open;
	h->next->prev = h->prev->next = h;
	pthread_mutex_unlock(&o->lock);
	return h;
}

void handle_free(struct ops *o, struct handle *h)
{
	pthread_mutex_lock(&o->lock);
	h->next->prev = h->prev;
	h->prev->next = h->next;
	pthread_mutex_unlock(&o->lock);
	outside_close(o->outside, h->outside);
	if (h->file)
		job_release(o->opt.job, h->file);
	if (h->dir)
		job_closedir(o->opt.job, h->dir);
	pthread_mutex_destroy(&h->listing);
	free(h->owners);
	free(h);
}

void handle_put(struct ops *o, struct handle *h)
{
	if (atomic_fetch_sub(&h->refs, 1) == 1)
		handle_free(o, h);
}

struct handle_ref handle_hold(fuse_req_t req, const struct fuse_file_info *fi)
{
	struct handle *h = handle_of(fi);

	if (h)
		atomic_fetch_add(&h->refs, 1);
	return (struct handle_ref){ ops_of(req), h };
}

struct handle_ref handle_take(fuse_req_t req, const struct fuse_file_info *fi)
{
	struct handle_ref r = handle_hold(req, fi);

	session_answerable(session_of(req));
	return r;
}

void handle_ref_cleanup(struct handle_ref *r)
{
	if (r->h)
		handle_put(r->o, r->h);
}
