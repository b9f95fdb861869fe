/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * answer MOUNTPOINT BYTES cached|direct: the least that a FUSE file system can do for a read. Every name below the mount point is a file of BYTES bytes,
 * and every read is answered at once from the same warm mebibyte: no file below, no other process, no checksum. What a reader gets is what the
 * kernel and the way to a daemon and back allow anybody; cached: through the kernel's page cache, read ahead by 4 MiB, as in our mounts;
 * direct: past it. In the foreground, until it is unmounted.
 */
#define FUSE_USE_VERSION 312
#include <fuse_lowlevel.h>
#include <stdbool.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include "tests/bench/bench.h"

#define ANSWER_BYTES (1u << 20)
#define READ_AHEAD   "4096"
#define FILE_INO     2
#define FOREVER      86400.0

static char bytes[ANSWER_BYTES];
static uint64_t size;
static bool direct;

static struct stat attr_of(fuse_ino_t ino)
{
	return (struct stat){ .st_ino = ino,
		.st_mode = ino == FUSE_ROOT_ID ? S_IFDIR | 0755 : S_IFREG | 0644,
		.st_nlink = 1,
		.st_size = ino == FUSE_ROOT_ID ? 0 : (off_t)size };
}

static void on_init(void *arg, struct fuse_conn_info *conn)
{
	(void)arg;
	conn->max_write = ANSWER_BYTES; /* from which libfuse makes the size of a request's buffer */
	conn->max_readahead = UINT32_MAX;
}

static void on_lookup(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	struct fuse_entry_param e = {
		.ino = FILE_INO, .attr = attr_of(FILE_INO), .attr_timeout = FOREVER, .entry_timeout = FOREVER
	};

	(void)parent, (void)name;
	fuse_reply_entry(req, &e);
}

static void on_getattr(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct stat st = attr_of(ino);

	(void)fi;
	fuse_reply_attr(req, &st, FOREVER);
}

static void on_open(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	(void)ino;
	fi->direct_io = direct;
	fuse_reply_open(req, fi);
}

static void on_read(fuse_req_t req, fuse_ino_t ino, size_t len, off_t off, struct fuse_file_info *fi)
{
	uint64_t left = (uint64_t)off < size ? size - (uint64_t)off : 0;

	(void)ino, (void)fi;
	if (len > left)
		len = left;
	fuse_reply_buf(req, bytes, len < ANSWER_BYTES ? len : ANSWER_BYTES);
}

static const struct fuse_lowlevel_ops ops = {
	.init = on_init, .lookup = on_lookup, .getattr = on_getattr, .open = on_open, .read = on_read
};

static void read_ahead(const char *mountpoint)
{
	char path[64];
	struct stat st;
	FILE *f;

	if (stat(mountpoint, &st))
		bench_die("stat", mountpoint);
	snprintf(path, sizeof(path), "/sys/class/bdi/%u:%u/read_ahead_kb", major(st.st_dev), minor(st.st_dev));
	f = fopen(path, "w");
	if (f)
		fputs(READ_AHEAD, f);
	if (!f || fclose(f))
		fprintf(stderr, "%s: %s: the kernel's own read-ahead stays\n", path, strerror(errno));
}

static int serve(struct fuse_session *se, const char *mountpoint)
{
	struct fuse_loop_config *config;
	int r;

	if (fuse_session_mount(se, mountpoint))
		bench_die("mount", mountpoint);
	if (fork() == 0) { /* stat is answered by the loop below */
		read_ahead(mountpoint);
		_exit(0);
	}
	config = fuse_loop_cfg_create();
	r = config ? fuse_session_loop_mt(se, config) : -1;
	fuse_loop_cfg_destroy(config);
	fuse_session_unmount(se);
	return r;
}

int main(int argc, char **argv)
{
	struct fuse_args args = FUSE_ARGS_INIT(0, NULL);
	struct fuse_session *se;
	int r;

	bench_usage(argc, 3, "answer MOUNTPOINT BYTES cached|direct");
	size = bench_number(argv[2], ANSWER_BYTES);
	direct = strcmp(argv[3], "direct") == 0;
	memset(bytes, 'x', sizeof(bytes));
	if (fuse_opt_add_arg(&args, argv[0]) < 0)
		bench_die("memory", argv[0]);
	se = fuse_session_new(&args, &ops, sizeof(ops), NULL);
	fuse_opt_free_args(&args);
	if (!se)
		return 1;
	r = serve(se, argv[1]);
	fuse_session_destroy(se);
	return r ? 1 : 0;
}
