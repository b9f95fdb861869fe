/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * The server: one thread accepts, one thread per connection answers, so that a slow or silent client holds up nobody
 * but itself, and an answer may take its time (a drain's step, a wait). The number of connections is bounded; one too
 * many is told so and closed.
 */
#include "fs/ctl/ctl.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include "fs/ctl/private.h"

#define SEND_TIMEOUT_SEC 30
#define LAST_TIMEOUT_SEC 5 /* for those that are being answered when all end */

/* ---- one connection */

static void set_send_timeout(int fd, time_t seconds)
{
	const struct timeval timeout = { .tv_sec = seconds };

	setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &timeout, sizeof(timeout));
}

/* False: it was the last one. Who waits for each answer before he asks again gets what he has asked for by the end. */
static bool send_answer(struct client *client, const struct wire_msg *reply)
{
	struct ctl *c = client->ctl;
	bool more;

	pthread_mutex_lock(&c->lock);
	client->sending = true;
	more = !c->stopping;
	pthread_mutex_unlock(&c->lock);
	more = wire_send(client->fd, reply) == 0 && more;
	pthread_mutex_lock(&c->lock);
	client->sending = false;
	pthread_cond_signal(&c->sent);
	pthread_mutex_unlock(&c->lock);
	return more;
}

static void *client_thread(void *arg)
{
	struct client *client = arg;
	struct wire_msg request = { 0 }, reply = { 0 };

	while (wire_recv(client->fd, &request, 0) == 0) {
		if (request.type == WIRE_AGENT_HELLO && client->ctl->opt.agent) {
			peer_agent_serve(client->ctl->opt.agent, client->fd, &request);
			break;
		}
		ctl_answer(client, &request, &reply);
		if (!send_answer(client, &reply))
			break;
	}
	ctl_client_gone(client);
	wire_msg_free(&request);
	wire_msg_free(&reply);
	record_scratch_free(&client->scratch);
	pthread_mutex_lock(&client->ctl->lock);
	shutdown(client->fd, SHUT_RDWR); /* the peer sees the end now; the descriptor goes when the slot is reused */
	client->done = true;
	pthread_mutex_unlock(&client->ctl->lock);
	return NULL;
}

/* ---- accepting; clients are started and joined by the accepting thread only */

static void reap(struct ctl *c, struct client *client)
{
	pthread_join(client->thread, NULL);
	pthread_mutex_lock(&c->lock);
	close(client->fd);
	*client = (struct client){ .ctl = c, .fd = -1 };
	pthread_mutex_unlock(&c->lock);
}

static void reap_done(struct ctl *c)
{
	for (size_t i = 0; i < CTL_CLIENTS_MAX; i++) {
		bool done;

		pthread_mutex_lock(&c->lock);
		done = c->clients[i].fd >= 0 && c->clients[i].done;
		pthread_mutex_unlock(&c->lock);
		if (done)
			reap(c, &c->clients[i]);
	}
}

static bool is_allowed(int fd)
{
	struct ucred cred;
	socklen_t len = sizeof(cred);

	return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &len) == 0 && (cred.uid == 0 || cred.uid == geteuid());
}

static void refuse(int fd, int code, const char *text)
{
	struct wire_msg reply = { 0 };
	struct cistern_error err = { 0 };

	cistern_error_set(&err, code, "%s", text);
	wire_reply_error(&reply, &err);
	(void)wire_send(fd, &reply); /* it may be gone already */
	wire_msg_free(&reply);
	close(fd);
}

static struct client *free_client(struct ctl *c)
{
	for (size_t i = 0; i < CTL_CLIENTS_MAX; i++)
		if (c->clients[i].fd < 0)
			return &c->clients[i];
	return NULL;
}

static void welcome(struct ctl *c, int fd)
{
	struct client *client;
	int r;

	if (!is_allowed(fd)) {
		refuse(fd, -EPERM, "this store belongs to another user");
		return;
	}
	client = free_client(c);
	if (!client) {
		refuse(fd, -EBUSY, "too many connections to this store; close some");
		return;
	}
	set_send_timeout(fd, SEND_TIMEOUT_SEC);
	pthread_mutex_lock(&c->lock);
	*client = (struct client){ .ctl = c, .fd = fd };
	r = pthread_create(&client->thread, NULL, client_thread, client);
	if (r)
		client->fd = -1;
	pthread_mutex_unlock(&c->lock);
	if (r)
		refuse(fd, -r, "cannot start a thread");
}

static void *accept_thread(void *arg)
{
	struct ctl *c = arg;
	struct pollfd p[2] = { { .fd = c->listen_fd, .events = POLLIN }, { .fd = c->stop_fd, .events = POLLIN } };

	for (;;) {
		int fd;

		if (poll(p, 2, -1) < 0 && errno != EINTR)
			break;
		if (p[1].revents)
			break;
		fd = accept4(c->listen_fd, NULL, NULL, SOCK_CLOEXEC);
		reap_done(c);
		if (fd >= 0) {
			welcome(c, fd);
		} else if (errno != EAGAIN && errno != EINTR && errno != ECONNABORTED) {
			log_event(c->opt.log, LOG_LEVEL_ERROR, "ctl-accept", "errno=%d", errno);
			if (poll(&p[1], 1, 1000) > 0) /* out of descriptors: not again at once */
				break;
		}
	}
	return NULL;
}

/* ---- life */

int ctl_create(const struct ctl_options *opt, struct ctl **ret, struct cistern_error *err)
{
	struct ctl *c = calloc(1, sizeof(*c));
	int r;

	if (!c)
		return cistern_error_set(err, -ENOMEM, "out of memory");
	c->opt = *opt;
	c->started_usec = drain_now_usec();
	for (size_t i = 0; i < CTL_CLIENTS_MAX; i++)
		c->clients[i] = (struct client){ .ctl = c, .fd = -1 };
	c->listen_fd = wire_listen(store_path(opt->store), err);
	if (c->listen_fd < 0) {
		r = c->listen_fd;
		free(c);
		return r;
	}
	pthread_mutex_init(&c->lock, NULL);
	pthread_cond_init(&c->sent, NULL);
	c->stop_fd = eventfd(0, EFD_CLOEXEC);
	r = c->stop_fd < 0 ? -errno : -pthread_create(&c->thread, NULL, accept_thread, c);
	if (r) {
		close(c->listen_fd);
		if (c->stop_fd >= 0)
			close(c->stop_fd);
		pthread_cond_destroy(&c->sent);
		pthread_mutex_destroy(&c->lock);
		free(c);
		return cistern_error_set(err, r, "cannot serve the store's socket: %s", strerror(-r));
	}
	*ret = c;
	return 0;
}

void ctl_set_state(struct ctl *c, enum ctl_state state)
{
	atomic_store(&c->state, state);
}

static bool any_sending(const struct ctl *c)
{
	for (size_t i = 0; i < CTL_CLIENTS_MAX; i++)
		if (c->clients[i].sending)
			return true;
	return false;
}

/* No more requests are taken, of those in the sockets one each; what is being answered goes out, to those who take it. */
static void shut_clients(struct ctl *c)
{
	struct timespec until;

	clock_gettime(CLOCK_MONOTONIC, &until);
	until.tv_sec += LAST_TIMEOUT_SEC;
	pthread_mutex_lock(&c->lock);
	c->stopping = true;
	for (size_t i = 0; i < CTL_CLIENTS_MAX; i++)
		if (c->clients[i].fd >= 0) {
			set_send_timeout(c->clients[i].fd, LAST_TIMEOUT_SEC);
			shutdown(c->clients[i].fd, SHUT_RD);
		}
	while (any_sending(c) && pthread_cond_clockwait(&c->sent, &c->lock, CLOCK_MONOTONIC, &until) == 0)
		continue;
	for (size_t i = 0; i < CTL_CLIENTS_MAX; i++)
		if (c->clients[i].sending)
			shutdown(c->clients[i].fd, SHUT_RDWR);
	pthread_mutex_unlock(&c->lock);
}

void ctl_destroy(struct ctl *c)
{
	char path[STORE_PATH_MAX + sizeof(WIRE_SOCKET) + 1];

	if (!c)
		return;
	eventfd_write(c->stop_fd, 1);
	pthread_join(c->thread, NULL);
	shut_clients(c);
	for (size_t i = 0; i < CTL_CLIENTS_MAX; i++)
		if (c->clients[i].fd >= 0)
			reap(c, &c->clients[i]);
	snprintf(path, sizeof(path), "%s/%s", store_path(c->opt.store), WIRE_SOCKET);
	unlink(path);
	close(c->listen_fd);
	close(c->stop_fd);
	pthread_cond_destroy(&c->sent);
	pthread_mutex_destroy(&c->lock);
	free(c);
}
