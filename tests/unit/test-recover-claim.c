/* SPDX-License-Identifier: GPL-3.0-or-later */
/* Who recovers what into a directory: one at a time, also where files cannot be locked. */
#include "mpi-agent/command/recover_claim.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/lib/no_locks.h"
#include "tests/lib/remove_tree.h"
#include "tests/lib/scratch.h"
#include "tests/lib/tap.h"

static const struct superblock ours = { .uuid = { 1, 2, 3, 4 }, .job_uuid = { 7 }, .num_nodes = 1 },
			       others = { .uuid = { 1, 2, 3, 4 }, .job_uuid = { 8 }, .num_nodes = 2 };
static char work[SCRATCH_PARENT_MAX + 32];
static int dirfd = -1;

static int claim(struct recover_claim *c, const struct superblock *sb, struct cistern_error *err)
{
	*err = (struct cistern_error){ 0 };
	recover_claim_init(c, sb);
	int r = recover_claim_take(c, dirfd, work, err);
	is_int(err->code, r, "nothing is said of what has gone well");
	return r;
}

static bool is_there(const struct recover_claim *c)
{
	return faccessat(dirfd, c->name, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

static void test_claims(void)
{
	struct recover_claim one, two, other;
	struct cistern_error err;
	struct stat before, after;

	fstat(dirfd, &before);
	is_int(claim(&one, &ours, &err), 0, "claimed");
	ok(is_there(&one) && recover_claim_is(&one, one.name), "a file says so");
	is_int(claim(&two, &ours, &err), -EBUSY, "not twice");
	ok(strstr(err.text, "in use by ") && strstr(err.text, work), "of whom it is said: %s", err.text);
	recover_claim_end(&two);
	ok(is_there(&one), "who was refused leaves it alone");
	is_int(claim(&other, &others, &err), 0, "other stores may be recovered there meanwhile");
	recover_claim_end(&other);
	recover_claim_end(&one);
	ok(!is_there(&one) && !is_there(&other), "nothing is left");
	fstat(dirfd, &after);
	ok(before.st_mtim.tv_sec == after.st_mtim.tv_sec && before.st_mtim.tv_nsec == after.st_mtim.tv_nsec,
		"the directory has the time that it had");
	is_int(claim(&two, &ours, &err), 0, "then another one may");
	recover_claim_end(&two);
}

/* A recovery that is killed: in a process of its own. */
static pid_t claim_and_wait(void)
{
	struct recover_claim c;
	struct cistern_error err;
	int said[2];
	char yes = 0;
	pid_t child;

	if (pipe(said))
		return -1;
	child = fork();
	if (child == 0) {
		recover_claim_init(&c, &ours);
		yes = recover_claim_take(&c, dirfd, work, &err) == 0;
		(void)!write(said[1], &yes, 1);
		pause();
		_exit(0);
	}
	close(said[1]);
	ok(child > 0 && read(said[0], &yes, 1) == 1 && yes, "claimed by another process");
	close(said[0]);
	return child;
}

static void test_killed(const char *where)
{
	struct recover_claim c;
	struct cistern_error err;
	pid_t child = claim_and_wait();

	ok(claim(&c, &ours, &err) == -EBUSY, "%s not while that lives: %s", where, err.text);
	kill(child, SIGKILL);
	waitpid(child, NULL, 0);
	ok(is_there(&c), "killed, it leaves its file");
	recover_claim_sweep(&ours, dirfd, work);
	ok(!is_there(&c), "which a drain removes");
	child = claim_and_wait();
	recover_claim_sweep(&ours, dirfd, work);
	ok(is_there(&c), "but not that of one which lives");
	kill(child, SIGKILL);
	waitpid(child, NULL, 0);
	ok(claim(&c, &ours, &err) == 0, "or another recovery takes over %s", err.text);
	recover_claim_end(&c);
	ok(!is_there(&c), "and goes");
}

static void put(const char *name, const char *text)
{
	int fd = openat(dirfd, name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);

	ok(fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text), "a claim of others");
	close(fd);
}

static void test_without_locks(int code)
{
	struct recover_claim c;
	struct cistern_error err;

	no_locks = code;
	test_claims();
	test_killed("without locks");
	recover_claim_init(&c, &ours);
	put(c.name, "pid 1\nhost elsewhere.example\n");
	is_int(claim(&c, &ours, &err), -EBUSY, "of one on another machine nobody knows");
	ok(strstr(err.text, "elsewhere.example") && strstr(err.text, c.name), "it is said what to do: %s", err.text);
	no_locks = 0;
	is_int(claim(&c, &ours, &err), 0, "where there are locks it has none");
	recover_claim_end(&c);
}

static void test_closed(void)
{
	struct recover_claim c;
	struct cistern_error err;

	if (geteuid() == 0 && seteuid(65534)) {
		tap_skip("another user's directory: cannot be another user");
		return;
	}
	is_int(fchmodat(AT_FDCWD, work, 0555, 0) == 0 || errno == EPERM ? 0 : -errno, 0,
		"a directory that we may not change");
	is_int(claim(&c, &ours, &err), 0, "nothing is claimed there");
	is_int(c.fd, -1, "nothing");
	recover_claim_end(&c);
	if (geteuid() != getuid() && seteuid(getuid()) == 0) {
		put(c.name, "");
		fchmodat(dirfd, c.name, 0600, 0);
		(void)!seteuid(65534);
		is_int(claim(&c, &ours, &err), -EBUSY, "another user's is one");
		ok(strstr(err.text, "another user's"), "of which it is said: %s", err.text);
		(void)!seteuid(getuid());
		unlinkat(dirfd, c.name, 0);
	}
	chmod(work, 0755);
}

int main(void)
{
	snprintf(work, sizeof(work), "%s/claim.XXXXXX", scratch_parent());
	if (!mkdtemp(work) || (dirfd = open(work, O_RDONLY | O_DIRECTORY | O_CLOEXEC)) < 0)
		return 99;
	chmod(work, 0755);
	test_claims();
	test_killed("with locks");
	test_without_locks(ENOSYS);
	test_without_locks(ENOLCK);
	test_closed();
	close(dirfd);
	remove_tree(work);
	return done_testing();
}
