/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Power lost (docs/design/power-loss.md): what is on a device elsewhere, for those whose promise depends on it.
 */
#include "fs/job/share.h"

#include <errno.h>
#include <stdlib.h>

void power_serve_sync(struct job *j, struct peers_request *rq)
{
	peers_reply_status(rq, store_sync(j->opt.store));
}

int power_sync(struct job *j, uint32_t node)
{
	struct wire_msg m = { 0 };

	message_init(&m, MESSAGE_SYNC);
	int rc = share_call(j, node, &m, NULL);
	wire_msg_free(&m);
	return rc == -EHOSTDOWN ? 0 : rc;
}

int power_sync_all(struct job *j)
{
	uint32_t num = peers_count(j->peers);
	int *status = calloc(num, sizeof(*status)), rc = 0;
	struct wire_msg m = { 0 };

	if (!status)
		return -ENOMEM;
	message_init(&m, MESSAGE_SYNC);
	(void)peers_call_all(j->peers, &m, status, NULL, NULL);
	for (uint32_t i = 0; i < num && rc == 0; i++)
		rc = status[i] == -ECONNRESET ? power_sync(j, i) : status[i] == -EHOSTDOWN ? 0 : status[i];
	wire_msg_free(&m);
	free(status);
	return rc;
}
