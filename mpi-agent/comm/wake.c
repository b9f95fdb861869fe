/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Datagrams to agents that may be asleep. Which of a host's addresses the others can reach nobody knows for sure: a wake-up goes to
 * all of them. What a datagram holds does not matter, and who sends it neither: all that it does is one look at MPI.
 */
#include "mpi-agent/comm/wake.h"

#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "format/base/crc32c.h"

struct reach {
	struct identity_place place;
	uint64_t heard_usec, woken_usec;
};

struct wake {
	int fd;
	uint64_t host_id;
	struct reach *peers; /* owned, per rank */
	uint32_t num;
};

/* The same for all processes that reach each other by loopback: one kernel, one network namespace. */
static uint64_t make_host_id(void)
{
	char boot[64] = "";
	struct stat st = { 0 };
	FILE *f = fopen("/proc/sys/kernel/random/boot_id", "re");

	if (f) {
		if (!fgets(boot, sizeof(boot), f))
			boot[0] = '\0';
		fclose(f);
	}
	if (!boot[0] || stat("/proc/self/ns/net", &st) < 0)
		return 0;
	return (uint64_t)crc32c(0, boot, strlen(boot)) << 32 | (uint32_t)st.st_ino;
}

static void list_addresses(uint32_t out[IDENTITY_ADDRESSES])
{
	struct ifaddrs *list = NULL;
	int num = 0;

	if (getifaddrs(&list) < 0)
		return;
	for (const struct ifaddrs *i = list; i && num < IDENTITY_ADDRESSES; i = i->ifa_next) {
		struct sockaddr_in in;

		if (!i->ifa_addr || i->ifa_addr->sa_family != AF_INET || !(i->ifa_flags & IFF_UP) ||
			(i->ifa_flags & IFF_LOOPBACK))
			continue;
		memcpy(&in, i->ifa_addr, sizeof(in));
		out[num++] = in.sin_addr.s_addr;
	}
	freeifaddrs(list);
}

int wake_create(struct identity_place *ret_place, struct wake **ret, struct cistern_error *err)
{
	struct sockaddr_in address = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_ANY) };
	socklen_t len = sizeof(address);
	struct wake *w = calloc(1, sizeof(*w));
	void *generic = &address;

	if (!w)
		return cistern_error_set(err, -ENOMEM, "out of memory");
	w->fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (w->fd < 0 || bind(w->fd, generic, len) < 0 || getsockname(w->fd, generic, &len) < 0) {
		int r = -errno;

		wake_destroy(w);
		return cistern_error_set(err, r, "cannot make a socket for wake-ups: %s", strerror(-r));
	}
	*ret_place = (struct identity_place){ .port = ntohs(address.sin_port), .host_id = make_host_id() };
	w->host_id = ret_place->host_id;
	list_addresses(ret_place->addresses);
	*ret = w;
	return 0;
}

void wake_destroy(struct wake *w)
{
	if (!w)
		return;
	if (w->fd >= 0)
		close(w->fd);
	free(w->peers);
	free(w);
}

int wake_set_peers(struct wake *w, const struct identity_place *places, uint32_t num)
{
	w->peers = calloc(num, sizeof(*w->peers));
	if (!w->peers)
		return -ENOMEM;
	w->num = num;
	for (uint32_t i = 0; i < num; i++) {
		struct identity_place *place = &w->peers[i].place;

		*place = places[i];
		if (place->host_id == w->host_id && w->host_id) {
			place->addresses[0] = htonl(INADDR_LOOPBACK);
			place->addresses[1] = 0;
		}
	}
	return 0;
}

int wake_fd(const struct wake *w)
{
	return w->fd;
}

bool wake_drain(struct wake *w)
{
	bool any = false;
	char byte;

	while (recv(w->fd, &byte, 1, MSG_DONTWAIT) >= 0)
		any = true;
	return any;
}

void wake_heard(struct wake *w, uint32_t rank, uint64_t now_usec)
{
	w->peers[rank].heard_usec = now_usec;
}

static void send_to(struct wake *w, struct reach *peer, uint64_t now_usec)
{
	peer->woken_usec = now_usec;
	for (int i = 0; i < IDENTITY_ADDRESSES && peer->place.addresses[i]; i++) {
		struct sockaddr_in to = { .sin_family = AF_INET,
			.sin_port = htons(peer->place.port),
			.sin_addr.s_addr = peer->place.addresses[i] };
		const void *generic = &to;

		(void)!sendto(w->fd, "w", 1, MSG_DONTWAIT, generic, sizeof(to)); /* may be lost anyway */
	}
}

void wake_up(struct wake *w, uint32_t rank, uint64_t now_usec)
{
	struct reach *peer = &w->peers[rank];

	if (now_usec - peer->heard_usec >= WAKE_HEARD_USEC && now_usec - peer->woken_usec >= WAKE_HEARD_USEC)
		send_to(w, peer, now_usec);
}

void wake_hurry(struct wake *w, uint32_t rank, uint64_t now_usec)
{
	struct reach *peer = &w->peers[rank];

	if (now_usec - peer->woken_usec >= WAKE_HEARD_USEC)
		send_to(w, peer, now_usec);
}
