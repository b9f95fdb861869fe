/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * parity: the same random sequence of system calls on two directories, A (a mount) and B (a plain directory), compared after
 * every call. The sequence depends on the seed alone, so that a difference can be had again: no decision is made from what
 * side A says. Every --every operations the --hook command runs (a drain, say) and the trees are compared whole.
 */
#include "tests/parity/parity.h"

#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/vfs.h>
#include <unistd.h>

#define FUSE_MAGIC 0x65735546

struct settings {
	uint64_t seed, ops, every;
	const char *hook, *only, *without; /* names of operations, NULL: all, none */
};

void note(struct parity *p, const char *fmt, ...)
{
	char *line = p->log[p->op % LOG_LINES];
	size_t len = strlen(line);
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(line + len, LOG_BYTES - len, fmt, ap);
	va_end(ap);
}

bool differ(struct parity *p, const char *fmt, ...)
{
	va_list ap;

	p->failed = true;
	printf("DIFFERENCE at operation %" PRIu64 ": ", p->op);
	va_start(ap, fmt);
	vprintf(fmt, ap);
	va_end(ap);
	putchar('\n');
	return false;
}

struct outcome outcome_of(int64_t ret)
{
	return (struct outcome){ .ret = ret, .err = ret < 0 ? errno : 0 };
}

bool same_outcome(struct parity *p, const struct outcome o[SIDES], const char *what)
{
	note(p, " = %" PRId64 "%s%s", o[1].ret, o[1].err ? " " : "", o[1].err ? strerrorname_np(o[1].err) : "");
	if (o[0].ret == o[1].ret && o[0].err == o[1].err)
		return true;
	return differ(p, "%s: A returns %" PRId64 " (%s), B %" PRId64 " (%s)", what, o[0].ret, strerror(o[0].err),
		o[1].ret, strerror(o[1].err));
}

struct handle *any_handle(struct parity *p)
{
	size_t from = rng_below(&p->rng, HANDLES);

	for (size_t i = 0; i < HANDLES; i++) {
		struct handle *h = &p->handles[(from + i) % HANDLES];

		if (h->fd[0] >= 0)
			return h;
	}
	return NULL;
}

bool close_handle(struct parity *p, struct handle *h)
{
	struct outcome o[SIDES];

	for (int s = 0; s < SIDES; s++) {
		o[s] = outcome_of(close(h->fd[s]));
		h->fd[s] = -1;
	}
	note(p, " close %td", h - p->handles);
	return same_outcome(p, o, "close");
}

struct handle *free_handle(struct parity *p)
{
	struct handle *h;

	for (size_t i = 0; i < HANDLES; i++)
		if (p->handles[i].fd[0] < 0)
			return &p->handles[i];
	h = &p->handles[rng_below(&p->rng, HANDLES)];
	return close_handle(p, h) ? h : NULL;
}

/* ---- the run */

static const struct operation *const families[] = { file_operations, name_operations, lock_operations };
#define FAMILIES (sizeof(families) / sizeof(families[0]))

static bool is_among(const char *name, const char *list)
{
	size_t len = strlen(name);

	for (const char *p = list; p && *p; p += strcspn(p, ","), p += *p == ',')
		if (strcspn(p, ",") == len && memcmp(p, name, len) == 0)
			return true;
	return false;
}

static unsigned int weight_of(const struct operation *o, const struct settings *set)
{
	return (set->only && !is_among(o->name, set->only)) || is_among(o->name, set->without) ? 0 : o->weight;
}

static const struct operation *pick(struct parity *p, const struct settings *set)
{
	const struct operation *o;
	uint64_t total = 0, at;

	for (size_t f = 0; f < FAMILIES; f++)
		for (o = families[f]; o->name; o++)
			total += weight_of(o, set);
	at = rng_below(&p->rng, total);
	for (size_t f = 0; f < FAMILIES; f++)
		for (o = families[f]; o->name; o++) {
			if (at < weight_of(o, set))
				return o;
			at -= weight_of(o, set);
		}
	return NULL;
}

static void note_start(struct parity *p)
{
	struct timespec ts;
	int64_t now;

	clock_gettime(CLOCK_REALTIME_COARSE, &ts);
	now = nsec(&ts);
	if (now != p->op_start_ns)
		p->tick_start_ns = p->op_start_ns;
	p->op_start_ns = now;
}

/*
 * The next operation is done at a random node. What has been written is synced before, so that it may be seen there: the rule for
 * data of several nodes. Names need nothing of that.
 */
static void change_node(struct parity *p)
{
	unsigned int node = (unsigned int)rng_below(&p->node_rng, p->num_roots);

	for (size_t i = 0; p->num_roots > 1 && i < HANDLES; i++)
		if (p->handles[i].fd[0] >= 0)
			fsync(p->handles[i].fd[0]); /* one that cannot be synced has nothing to be seen */
	p->root[0] = p->roots[node];
	if (p->num_roots > 1)
		note(p, " at %u:", node);
}

static bool step(struct parity *p, const struct settings *set)
{
	const struct operation *o = pick(p, set);

	if (!o)
		return differ(p, "there is no such operation");
	snprintf(p->log[p->op % LOG_LINES], LOG_BYTES, "%" PRIu64 " %s", p->op, o->name);
	change_node(p);
	note_start(p);
	return o->run(p);
}

static bool run_hook(struct parity *p, const struct settings *set)
{
	int status;

	if (!set->hook)
		return true;
	note(p, " [hook]");
	fflush(NULL);
	status = system(set->hook);
	return status == 0 ? true : differ(p, "'%s' ended with status %d", set->hook, status);
}

static bool run(struct parity *p, const struct settings *set)
{
	for (p->op = 1; p->op <= set->ops; p->op++) {
		if (!step(p, set))
			return false;
		if (p->op % set->every == 0 && !(run_hook(p, set) && same_tree(p)))
			return false;
	}
	p->op--;
	if (!same_tree(p))
		return false;
	for (size_t i = 0; i < HANDLES; i++)
		if (p->handles[i].fd[0] >= 0 && !close_handle(p, &p->handles[i]))
			return false;
	return run_hook(p, set) && same_tree(p);
}

static void print_log(const struct parity *p)
{
	uint64_t from = p->op >= LOG_LINES ? p->op - LOG_LINES + 1 : 1;

	printf("the last operations:\n");
	for (uint64_t i = from; i <= p->op; i++)
		printf("  %s\n", p->log[i % LOG_LINES]);
}

static int usage(void)
{
	fprintf(stderr,
		"usage: parity [--seed N] [--ops N] [--hook COMMAND] [--every N] [--only NAME,...]\n"
		"              [--without NAME,...] [--also A2]... [--since SECONDS] A B\n"
		"A and B are empty directories; --hook runs every N operations; A2 is A by another node's mount; what an\n"
		"earlier run has left in both: --since its begin, as date +%%s has it\n");
	return 2;
}

static bool parse(int argc, char **argv, struct settings *set, struct parity *p)
{
	static const struct option options[] = {
		{ "seed", required_argument, NULL, 's' },
		{ "ops", required_argument, NULL, 'n' },
		{ "hook", required_argument, NULL, 'h' },
		{ "every", required_argument, NULL, 'e' },
		{ "only", required_argument, NULL, 'o' },
		{ "without", required_argument, NULL, 'w' },
		{ "also", required_argument, NULL, 'a' },
		{ "since", required_argument, NULL, 'b' },
		{ NULL, 0, NULL, 0 },
	};
	int key;

	while ((key = getopt_long(argc, argv, "", options, NULL)) >= 0)
		switch (key) {
		case 's': set->seed = strtoull(optarg, NULL, 0); break;
		case 'n': set->ops = strtoull(optarg, NULL, 0); break;
		case 'h': set->hook = optarg; break;
		case 'e': set->every = strtoull(optarg, NULL, 0); break;
		case 'o': set->only = optarg; break;
		case 'w': set->without = optarg; break;
		case 'b': p->run_start_sec = strtoll(optarg, NULL, 0); break;
		case 'a':
			if (p->num_roots == NODES_MAX - 1)
				return false;
			p->roots[p->num_roots++] = optarg;
			break;
		default: return false;
		}
	return argc - optind == SIDES && set->every > 0;
}

static bool prepare(struct parity *p, char **roots)
{
	struct statfs fs;

	for (int s = 0; s < SIDES; s++) {
		p->root[s] = roots[s];
		p->buf[s] = malloc(FILE_MAX + BUFFER_MAX);
		if (!p->buf[s])
			return false;
	}
	p->roots[p->num_roots++] = p->root[0];
	for (size_t i = 0; i < HANDLES; i++)
		p->handles[i].fd[0] = p->handles[i].fd[1] = -1;
	if (statfs(p->root[0], &fs) < 0)
		return false;
	p->fuse = fs.f_type == FUSE_MAGIC;
	if (!p->run_start_sec)
		p->run_start_sec = time(NULL) - 2;
	umask(022);
	p->locker = locker_start();
	return p->locker != NULL;
}

static void release(struct parity *p)
{
	for (int s = 0; s < SIDES; s++)
		free(p->buf[s]);
	locker_stop(p->locker);
	free(p);
}

int main(int argc, char **argv)
{
	struct settings set = { .seed = 1, .ops = 2000, .every = 500 };
	struct parity *p = calloc(1, sizeof(*p));
	bool good;

	if (!p || !parse(argc, argv, &set, p)) {
		free(p);
		return usage();
	}
	p->rng.state = set.seed;
	p->node_rng.state = set.seed + 1000;
	printf("parity --seed %" PRIu64 " --ops %" PRIu64 " --every %" PRIu64 "\n", set.seed, set.ops, set.every);
	if (!prepare(p, argv + optind)) {
		perror("parity");
		release(p);
		return 2;
	}
	good = run(p, &set);
	if (!good)
		print_log(p);
	printf("%s after %" PRIu64 " operations (seed %" PRIu64 ")\n", good ? "no difference" : "FAILED", p->op,
		set.seed);
	release(p);
	return good ? 0 : 1;
}
