/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * fake-daemon --store DIR --commands FIFO [--backing B] [--job J] [--version V] [--refuse TEXT] [--mute MESSAGE]: a daemon's side of a serving
 * agent, and nothing else. What happens is printed, a line each; commands come in lines from the FIFO:
 *
 *   send NODE FIRST COUNT BYTES   messages to a node, numbered; what they hold follows from sender, number and length
 *   get ID FILE NODE SEGMENT OFF LEN [NODE SEGMENT OFF LEN]...   into the shared memory, one after the other, then into FILE
 *   bench NODE SEGMENT LEN COUNT DEPTH    COUNT gets one after the other, DEPTH under way; prints the speed
 *   latency NODE SEGMENT   one get of 4 KiB; prints its time
 *   deaf, hear             stop reading what the agent says; go on
 *   shut                   the same for good, and the agent cannot say anything any more
 *   mute hello, mute assembled   take the next one, and do not answer, as --mute
 *   end
 *
 * The store's numbers are kept in DIR/numbers, as the superblock would.
 */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <inttypes.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "format/wire/protocol.h"
#include "format/wire/wire.h"

#define MEMORY_BYTES (32u << 20)
#define UUID_BYTES   16
#define PENDING_MAX  256
#define RANGES_MAX   64

struct range {
	uint64_t node, segment, off, len;
};

struct pending {
	bool used;
	uint64_t id;
	char file[4096];
	uint64_t to, len;
};

struct fake {
	const char *store, *backing, *job, *version, *refuse;
	unsigned long protocol;
	uint8_t uuid[UUID_BYTES], job_uuid[UUID_BYTES];
	unsigned int node, nodes;
	uint64_t incarnation;
	int memfd, listening, agent, commands;
	bool deaf;
	uint16_t mute; /* the next message of that type is not answered; 0: none */
	uint8_t *memory;
	struct pending pending[PENDING_MAX];
	uint64_t next_to;
	struct wire_msg in, out;
	char line[65536];
	size_t line_len;
	uint64_t latency_began;
	/* bench */
	struct range bench;
	unsigned int bench_count, bench_sent, bench_done;
	uint64_t bench_began;
	uint64_t received[64]; /* next number of each node */
};

#define BENCH_ID   (1ull << 40)
#define LATENCY_ID (1ull << 41)

static uint64_t now_usec(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000;
}

static void die(const char *what)
{
	fprintf(stderr, "fake-daemon: %s: %s\n", what, strerror(errno));
	exit(1);
}

/* ---- numbers */

static void load_numbers(struct fake *f)
{
	char path[4200], hex[2][64];
	FILE *file;

	snprintf(path, sizeof(path), "%s/numbers", f->store);
	if (getrandom(f->uuid, UUID_BYTES, 0) != UUID_BYTES)
		die("getrandom");
	f->nodes = 1;
	file = fopen(path, "r");
	if (!file)
		return;
	if (fscanf(file, "%63s %63s %u %u", hex[0], hex[1], &f->node, &f->nodes) != 4)
		die(path);
	for (int i = 0; i < UUID_BYTES; i++) {
		sscanf(hex[0] + 2 * i, "%2hhx", &f->uuid[i]);
		sscanf(hex[1] + 2 * i, "%2hhx", &f->job_uuid[i]);
	}
	fclose(file);
}

static void save_numbers(const struct fake *f)
{
	char path[4200];
	FILE *file;

	snprintf(path, sizeof(path), "%s/numbers", f->store);
	file = fopen(path, "w");
	if (!file)
		die(path);
	for (int i = 0; i < UUID_BYTES; i++)
		fprintf(file, "%02x", f->uuid[i]);
	fputc(' ', file);
	for (int i = 0; i < UUID_BYTES; i++)
		fprintf(file, "%02x", f->job_uuid[i]);
	fprintf(file, " %u %u\n", f->node, f->nodes);
	fclose(file);
}

/* ---- messages */

static uint64_t mix(uint64_t x)
{
	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
	x = (x ^ x >> 27) * 0x94d049bb133111ebu;
	return x ^ x >> 31;
}

static void fill(uint8_t *p, uint64_t from, uint64_t number, uint64_t bytes)
{
	memcpy(p, &number, 8);
	for (uint64_t i = 8; i < bytes; i++)
		p[i] = (uint8_t)mix(from << 56 ^ number << 32 ^ i);
}

static void send_messages(struct fake *f, unsigned int node, uint64_t first, uint64_t count, uint64_t bytes)
{
	uint8_t *p = malloc(bytes);

	for (uint64_t i = first; p && bytes >= 8 && i < first + count; i++) {
		fill(p, f->node, i, bytes);
		wire_msg_init(&f->out, WIRE_PEER_SEND);
		wire_put_u64(&f->out, WIRE_NODE, node);
		wire_put_bytes(&f->out, WIRE_PAYLOAD, p, bytes);
		if (wire_send(f->agent, &f->out) < 0)
			printf("send failed\n");
	}
	free(p);
}

static void on_received(struct fake *f)
{
	uint64_t node = 64, number = 0;
	const uint8_t *p = NULL;
	uint8_t *wanted;
	size_t len = 0;

	if (!wire_get_u64(&f->in, WIRE_NODE, &node) || !wire_get_bytes(&f->in, WIRE_PAYLOAD, 0, &p, &len) || len < 8 ||
		node >= 64) {
		printf("bad message\n");
		return;
	}
	memcpy(&number, p, 8);
	wanted = malloc(len);
	fill(wanted, node, number, len);
	printf("%s from=%" PRIu64 " number=%" PRIu64 " bytes=%zu\n",
		memcmp(p, wanted, len) != 0   ? "wrong"
		: number != f->received[node] ? "disorder"
					      : "received",
		node, number, len);
	f->received[node] = number + 1;
	free(wanted);
}

/* ---- gets */

static void put_le(uint8_t *p, uint64_t v, int bytes)
{
	for (int i = 0; i < bytes; i++)
		p[i] = (uint8_t)(v >> 8 * i);
}

static void send_get(struct fake *f, uint64_t id, const struct range *ranges, int num, uint64_t to)
{
	uint8_t bytes[RANGES_MAX * 32] = { 0 };

	for (int i = 0; i < num; i++) {
		uint8_t *p = bytes + (size_t)i * 32;

		put_le(p, ranges[i].node, 4);
		put_le(p + 4, ranges[i].segment, 4);
		put_le(p + 8, ranges[i].off, 8);
		put_le(p + 16, ranges[i].len, 4);
		put_le(p + 24, to, 8);
		to += ranges[i].len;
	}
	wire_msg_init(&f->out, WIRE_PEER_GET);
	wire_put_u64(&f->out, WIRE_SEQ, id);
	wire_put_bytes(&f->out, WIRE_PAYLOAD, bytes, (size_t)num * 32);
	if (wire_send(f->agent, &f->out) < 0)
		printf("send failed\n");
}

static void command_get(struct fake *f, const char *args)
{
	struct pending *p = f->pending;
	struct range ranges[RANGES_MAX];
	uint64_t id, len = 0;
	char file[4096];
	int num = 0, at = 0;

	if (sscanf(args, "%" SCNu64 " %4095s%n", &id, file, &at) < 2)
		return;
	for (args += at; num < RANGES_MAX; args += at, num++) {
		struct range *r = &ranges[num];

		if (sscanf(args, "%" SCNu64 " %" SCNu64 " %" SCNu64 " %" SCNu64 "%n", &r->node, &r->segment, &r->off,
			    &r->len, &at) < 4)
			break;
		len += r->len;
	}
	while (p < f->pending + PENDING_MAX && p->used)
		p++;
	if (p == f->pending + PENDING_MAX || len > MEMORY_BYTES) {
		printf("got id=%" PRIu64 " refused\n", id);
		return;
	}
	if (f->next_to + len > MEMORY_BYTES)
		f->next_to = 0;
	*p = (struct pending){ .used = true, .id = id, .to = f->next_to, .len = len };
	strcpy(p->file, file);
	f->next_to += len;
	send_get(f, id, ranges, num, p->to);
}

static void bench_more(struct fake *f)
{
	uint64_t per = f->bench.len, i;

	if (f->bench_sent == f->bench_count)
		return;
	i = f->bench_sent++;
	send_get(f, BENCH_ID + i, &(struct range){ f->bench.node, f->bench.segment, i * per, per }, 1,
		i * per % (MEMORY_BYTES - MEMORY_BYTES % per));
}

static void command_bench(struct fake *f, const char *args)
{
	unsigned int depth;

	if (sscanf(args, "%" SCNu64 " %" SCNu64 " %" SCNu64 " %u %u", &f->bench.node, &f->bench.segment, &f->bench.len,
		    &f->bench_count, &depth) < 5)
		return;
	f->bench_sent = f->bench_done = 0;
	f->bench_began = now_usec();
	while (depth--)
		bench_more(f);
}

static void bench_got(struct fake *f, int64_t status)
{
	uint64_t usec = now_usec() - f->bench_began;

	if (status)
		printf("bench failed status=%" PRId64 "\n", status);
	bench_more(f);
	if (++f->bench_done == f->bench_count)
		printf("bench MiB/s=%.0f usec=%" PRIu64 "\n",
			(double)f->bench.len * f->bench_count / 1048576 / ((double)usec / 1e6), usec);
}

static void on_got(struct fake *f)
{
	uint64_t id = 0;
	int64_t status = 1;

	(void)wire_get_u64(&f->in, WIRE_SEQ, &id);
	(void)wire_get_i64(&f->in, WIRE_STATUS, &status);
	if (id == LATENCY_ID)
		printf("latency usec=%" PRIu64 " status=%" PRId64 "\n", now_usec() - f->latency_began, status);
	else if (id >= BENCH_ID)
		bench_got(f, status);
	for (struct pending *p = f->pending; p < f->pending + PENDING_MAX; p++) {
		FILE *file;

		if (!p->used || p->id != id)
			continue;
		p->used = false;
		file = fopen(p->file, "w");
		if (!file || (status == 0 && fwrite(f->memory + p->to, 1, p->len, file) != p->len) || fclose(file) != 0)
			die(p->file);
		printf("got id=%" PRIu64 " status=%" PRId64 "\n", id, status);
	}
}

/* ---- the agent's connection */

static uint16_t mute_type(const char *message)
{
	return strcmp(message, "hello") == 0 ? WIRE_AGENT_HELLO : WIRE_AGENT_ASSEMBLED;
}

static void answer(struct fake *f, int fd)
{
	if (f->mute != f->in.type) {
		(void)wire_send_fd(f->agent, &f->out, fd);
		return;
	}
	f->mute = 0;
	printf("mute\n");
}

static void on_hello(struct fake *f)
{
	struct wire_msg *m = &f->out;

	wire_msg_init(m, WIRE_REPLY);
	wire_put_i64(m, WIRE_STATUS, 0);
	wire_put_bytes(m, WIRE_UUID, f->uuid, UUID_BYTES);
	wire_put_str(m, WIRE_JOB, f->job);
	wire_put_bytes(m, WIRE_JOB_UUID, f->job_uuid, UUID_BYTES);
	wire_put_u64(m, WIRE_NODE, f->node);
	wire_put_u64(m, WIRE_NODES, f->nodes);
	wire_put_str(m, WIRE_BACKING, f->backing);
	wire_put_u64(m, WIRE_INCARNATION, f->incarnation);
	wire_put_str(m, WIRE_STORE, f->store);
	wire_put_str(m, WIRE_VERSION_TEXT, f->version);
	wire_put_u64(m, WIRE_PROTOCOL_OLDEST, f->protocol ? f->protocol : PROTOCOL_OLDEST);
	wire_put_u64(m, WIRE_PROTOCOL_NEWEST, f->protocol ? f->protocol : PROTOCOL_NEWEST);
	wire_put_u64(m, WIRE_MEMORY, MEMORY_BYTES);
	answer(f, f->memfd);
}

static void on_assembled(struct fake *f)
{
	struct cistern_error err = { 0 };
	uint64_t node = 0, nodes = 0;
	const uint8_t *p;
	size_t len = 0;
	char host[256];

	(void)wire_get_u64(&f->in, WIRE_NODE, &node);
	(void)wire_get_u64(&f->in, WIRE_NODES, &nodes);
	if (f->refuse)
		cistern_error_set(&err, -EINVAL, "%s", f->refuse);
	wire_reply_error(&f->out, f->refuse ? &err : NULL);
	answer(f, -1);
	if (f->refuse)
		return;
	f->node = (unsigned int)node;
	f->nodes = (unsigned int)nodes;
	if (wire_get_bytes(&f->in, WIRE_JOB_UUID, 0, &p, &len) && len == UUID_BYTES)
		memcpy(f->job_uuid, p, len);
	save_numbers(f);
	printf("assembled node=%u nodes=%u", f->node, f->nodes);
	for (unsigned int i = 0; wire_get_str(&f->in, WIRE_NODE_NAME, i, host, sizeof(host)); i++)
		printf(" %s", host);
	if (wire_get_bytes(&f->in, WIRE_INCARNATIONS, 0, &p, &len))
		printf(" incarnations=%zu", len / 8);
	printf("\n");
}

static void on_other(struct fake *f)
{
	uint64_t node = 0, incarnation = 0;
	char text[2000] = "";

	(void)wire_get_u64(&f->in, WIRE_NODE, &node);
	(void)wire_get_u64(&f->in, WIRE_INCARNATION, &incarnation);
	(void)wire_get_str(&f->in, WIRE_TEXT, 0, text, sizeof(text));
	if (f->in.type == WIRE_AGENT_REFUSED)
		printf("refused %s\n", text);
	else if (f->in.type == WIRE_PEER_LEFT)
		printf("left node=%" PRIu64 "\n", node);
	else if (f->in.type == WIRE_PEER_JOINED)
		printf("joined node=%" PRIu64 " anew=%d\n", node, incarnation != 0);
	else
		printf("unknown type=%d\n", f->in.type);
}

static void on_agent(struct fake *f)
{
	if (wire_recv(f->agent, &f->in, 0) < 0) {
		printf("lost\n");
		close(f->agent);
		f->agent = -1;
		return;
	}
	switch (f->in.type) {
	case WIRE_AGENT_HELLO: on_hello(f); break;
	case WIRE_AGENT_ASSEMBLED: on_assembled(f); break;
	case WIRE_PEER_RECEIVED: on_received(f); break;
	case WIRE_PEER_GOT: on_got(f); break;
	default: on_other(f); break;
	}
}

/* A second agent at the same time. */
static void turn_away(struct fake *f)
{
	struct cistern_error err = { 0 };
	int fd = accept4(f->listening, NULL, NULL, SOCK_CLOEXEC);

	cistern_error_set(&err, -EBUSY, "an agent serves this store already");
	wire_reply_error(&f->out, &err);
	if (fd >= 0 && wire_recv(fd, &f->in, 1000000) == 0)
		(void)wire_send(fd, &f->out);
	close(fd);
}

/* ---- commands */

static void on_command(struct fake *f, const char *line)
{
	uint64_t n[4];

	if (strcmp(line, "end") == 0)
		exit(0);
	if (strcmp(line, "deaf") == 0 || strcmp(line, "hear") == 0)
		f->deaf = line[0] == 'd';
	else if (strncmp(line, "mute ", 5) == 0)
		f->mute = mute_type(line + 5);
	else if (f->agent < 0)
		printf("no agent\n");
	else if (strcmp(line, "shut") == 0)
		f->deaf = shutdown(f->agent, SHUT_RD) == 0;
	else if (sscanf(line, "send %" SCNu64 " %" SCNu64 " %" SCNu64 " %" SCNu64, &n[0], &n[1], &n[2], &n[3]) == 4)
		send_messages(f, (unsigned int)n[0], n[1], n[2], n[3]);
	else if (strncmp(line, "get ", 4) == 0)
		command_get(f, line + 4);
	else if (strncmp(line, "bench ", 6) == 0)
		command_bench(f, line + 6);
	else if (sscanf(line, "latency %" SCNu64 " %" SCNu64, &n[0], &n[1]) == 2) {
		f->latency_began = now_usec();
		send_get(f, LATENCY_ID, &(struct range){ n[0], n[1], 0, 4096 }, 1, 0);
	} else
		printf("what is '%s'?\n", line);
}

static void read_commands(struct fake *f)
{
	ssize_t n = read(f->commands, f->line + f->line_len, sizeof(f->line) - f->line_len - 1);
	char *end;

	if (n <= 0)
		return;
	f->line_len += (size_t)n;
	f->line[f->line_len] = '\0';
	while ((end = strchr(f->line, '\n'))) {
		*end = '\0';
		on_command(f, f->line);
		f->line_len -= (size_t)(end + 1 - f->line);
		memmove(f->line, end + 1, f->line_len + 1);
	}
}

static void run(struct fake *f)
{
	for (;;) {
		struct pollfd fds[] = { { f->listening, POLLIN, 0 }, { f->commands, POLLIN, 0 },
			{ f->deaf ? -1 : f->agent, POLLIN, 0 } };

		if (poll(fds, 3, -1) < 0)
			die("poll");
		if (fds[2].revents)
			on_agent(f);
		if (fds[1].revents)
			read_commands(f);
		if (fds[0].revents && f->agent < 0)
			f->agent = accept4(f->listening, NULL, NULL, SOCK_CLOEXEC);
		else if (fds[0].revents)
			turn_away(f);
	}
}

static void parse(struct fake *f, int argc, char **argv)
{
	static const struct option longs[] = { { "store", 1, NULL, 's' }, { "commands", 1, NULL, 'c' },
		{ "backing", 1, NULL, 'b' }, { "job", 1, NULL, 'j' }, { "version", 1, NULL, 'v' },
		{ "protocol", 1, NULL, 'p' }, { "refuse", 1, NULL, 'r' }, { "mute", 1, NULL, 'm' }, { 0 } };
	int key;

	while ((key = getopt_long(argc, argv, "", longs, NULL)) >= 0) {
		switch (key) {
		case 's': f->store = optarg; break;
		case 'c': f->commands = open(optarg, O_RDWR | O_CLOEXEC); break;
		case 'b': f->backing = optarg; break;
		case 'j': f->job = optarg; break;
		case 'v': f->version = optarg; break;
		case 'p': f->protocol = strtoul(optarg, NULL, 10); break;
		case 'r': f->refuse = optarg; break;
		case 'm': f->mute = mute_type(optarg); break;
		default: exit(2);
		}
	}
	if (!f->store || f->commands < 0)
		exit(2);
}

int main(int argc, char **argv)
{
	static struct fake f = {
		.backing = "/backing", .job = "", .version = PACKAGE_VERSION, .agent = -1, .commands = -1
	};
	struct cistern_error err = { 0 };

	setvbuf(stdout, NULL, _IOLBF, 0);
	parse(&f, argc, argv);
	load_numbers(&f);
	f.incarnation = now_usec();
	f.memfd = memfd_create("fake", MFD_CLOEXEC);
	if (f.memfd < 0 || ftruncate(f.memfd, MEMORY_BYTES) < 0)
		die("memfd");
	f.memory = mmap(NULL, MEMORY_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, f.memfd, 0);
	if (f.memory == MAP_FAILED)
		die("mmap");
	f.listening = wire_listen(f.store, &err);
	if (f.listening < 0)
		die(err.text);
	printf("ready\n");
	run(&f);
}
