/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * The table of operations. What is missing in it is meant so: without access the kernel checks permissions itself
 * (default_permissions); without lock operations, when the mount is alone, it gives node-local flock and fcntl locks. There is none for
 * syncfs(2): the kernel asks virtiofs and fuseblk alone.
 */
#include "fs/ops/ops.h"

#include <stdlib.h>
#include <string.h>

#include "fs/ops/private.h"

static void ops_init(void *userdata, struct fuse_conn_info *conn)
{
	const struct ops *o = session_context_of(userdata);

	session_want_capabilities(conn);
	if (o->table.setlk)
		conn->want |= conn->capable & (FUSE_CAP_POSIX_LOCKS | FUSE_CAP_FLOCK_LOCKS);
	/*
	 * What READDIRPLUS says of files of other nodes is out of date at once. And the kernel takes the names of directories in it for as new as the
	 * moment in which it reads the answer: behind a session_invalidate_names that came in between.
	 */
	if (!o->table.readdirplus)
		conn->want &= ~(unsigned int)(FUSE_CAP_READDIRPLUS | FUSE_CAP_READDIRPLUS_AUTO);
}

static void make_table(struct ops *o)
{
	o->table = (struct fuse_lowlevel_ops){
		.init = ops_init,
		.lookup = ops_lookup,
		.forget = ops_forget,
		.forget_multi = ops_forget_multi,
		.getattr = ops_getattr,
		.setattr = ops_setattr,
		.readlink = ops_readlink,
		.mknod = ops_mknod,
		.mkdir = ops_mkdir,
		.unlink = ops_unlink,
		.rmdir = ops_rmdir,
		.symlink = ops_symlink,
		.rename = ops_rename,
		.link = ops_link,
		.open = ops_open,
		.create = ops_create_file,
		.release = ops_release,
		.read = ops_read,
		.write = ops_write,
		.flush = ops_flush,
		.fsync = ops_fsync,
		.fallocate = ops_fallocate,
		.lseek = ops_lseek,
		.copy_file_range = ops_copy_file_range,
		.ioctl = ops_ioctl,
		.opendir = ops_opendir,
		.readdir = ops_readdir,
		.readdirplus = ops_readdirplus,
		.releasedir = ops_releasedir,
		.fsyncdir = ops_fsyncdir,
		.statfs = ops_statfs,
		.setxattr = ops_setxattr,
		.getxattr = ops_getxattr,
		.listxattr = ops_listxattr,
		.removexattr = ops_removexattr,
	};
	if (job_is_alone(o->opt.job))
		return;
	o->table.readdirplus = NULL;
	o->table.getlk = ops_getlk;
	o->table.setlk = ops_setlk;
	o->table.flock = ops_flock;
}

const struct fuse_lowlevel_ops *ops_table(const struct ops *o)
{
	return &o->table;
}

int ops_create(const struct ops_options *opt, struct ops **ret)
{
	struct ops *o = calloc(1, sizeof(*o));

	if (!o)
		return -ENOMEM;
	o->opt = *opt;
	o->open.next = o->open.prev = &o->open;
	pthread_mutex_init(&o->lock, NULL);
	int r = outside_create(opt->job, &o->outside);
	if (r) {
		ops_destroy(o);
		return r;
	}
	make_table(o);
	*ret = o;
	return 0;
}

void ops_destroy(struct ops *o)
{
	if (!o)
		return;
	if (o->outside)
		ops_release_all(o);
	outside_destroy(o->outside);
	pthread_mutex_destroy(&o->lock);
	free(o);
}

void ops_release_all(struct ops *o)
{
	outside_stop(o->outside);
	while (o->open.next != &o->open)
		handle_free(o, o->open.next);
}
