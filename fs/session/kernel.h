/* SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef FS_SESSION_KERNEL_H
#define FS_SESSION_KERNEL_H

/*
 * FUSE's kernel interface where it is newer than the headers that we may be built with. Layouts and numbers are those
 * of <linux/fuse.h>, version 7.40; a kernel that does not know them never offers the flags in its INIT request, and
 * what is not offered is not used.
 */

#include <assert.h>
#include <linux/fuse.h>
#include <stdint.h>
#include <sys/ioctl.h>

/* INIT, bits 32..63 of the flags, as they stand in flags2 */
#define KERNEL_FLAG2_DIRECT_IO_ALLOW_MMAP (1u << 4)
#define KERNEL_FLAG2_PASSTHROUGH          (1u << 5)

#ifndef FUSE_INIT_EXT
#define FUSE_INIT_EXT (1u << 30)
#endif
#ifndef FUSE_HANDLE_KILLPRIV_V2
#define FUSE_HANDLE_KILLPRIV_V2 (1u << 28)
#endif
#ifndef FUSE_WRITE_KILL_SUIDGID
#define FUSE_WRITE_KILL_SUIDGID (1u << 2)
#endif
#ifndef FUSE_OPEN_KILL_SUIDGID
#define FUSE_OPEN_KILL_SUIDGID (1u << 0)
#endif
#ifndef FATTR_KILL_SUIDGID
#define FATTR_KILL_SUIDGID (1u << 11)
#endif
#ifndef FOPEN_NOFLUSH
#define FOPEN_NOFLUSH (1u << 5)
#endif
#ifndef FOPEN_PARALLEL_DIRECT_WRITES
#define FOPEN_PARALLEL_DIRECT_WRITES (1u << 6)
#endif
#ifndef FOPEN_PASSTHROUGH
#define FOPEN_PASSTHROUGH (1u << 7)
#endif

#define KERNEL_OP_TMPFILE 51u

/* A notification without a body: what was looked up before is looked up again. Since 7.44; the kernel's minor version tells. */
#define KERNEL_NOTIFY_INC_EPOCH 8
#define KERNEL_MINOR_EPOCHS     44u

/* With this body: of these inodes the names that nobody uses are dropped. Takes no lock that an operation may hold. Since 7.45. */
#define KERNEL_NOTIFY_PRUNE 9
#define KERNEL_MINOR_PRUNE  45u
struct kernel_notify_prune {
	uint32_t count;
	uint32_t unused[3];
	uint64_t ino[1]; /* count of them */
};

/* Our own names for the layouts that grew: the build's header may have either the old or the new one. */
struct kernel_init_in {
	uint32_t major, minor;
	uint32_t max_readahead;
	uint32_t flags, flags2;
	uint32_t unused[11];
};

struct kernel_init_out {
	uint32_t major, minor;
	uint32_t max_readahead;
	uint32_t flags;
	uint16_t max_background, congestion_threshold;
	uint32_t max_write;
	uint32_t time_gran;
	uint16_t max_pages, map_alignment;
	uint32_t flags2;
	uint32_t max_stack_depth;
	uint32_t unused[6];
};
static_assert(sizeof(struct kernel_init_out) == 64, "as the kernel has it");

struct kernel_open_out {
	uint64_t fh;
	uint32_t open_flags;
	int32_t backing_id;
};
static_assert(sizeof(struct kernel_open_out) == 16, "as the kernel has it");

struct kernel_open_in {
	uint32_t flags;
	uint32_t open_flags; /* FUSE_OPEN_KILL_SUIDGID */
};

struct kernel_backing_map {
	int32_t fd;
	uint32_t flags;
	uint64_t padding;
};

#define KERNEL_IOC_MAGIC         229
#define KERNEL_IOC_CLONE         _IOR(KERNEL_IOC_MAGIC, 0, uint32_t)
#define KERNEL_IOC_BACKING_OPEN  _IOW(KERNEL_IOC_MAGIC, 1, struct kernel_backing_map)
#define KERNEL_IOC_BACKING_CLOSE _IOW(KERNEL_IOC_MAGIC, 2, uint32_t)

#endif
