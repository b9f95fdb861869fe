/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Files that are at home here, for any node: attributes, names, extended attributes. And what other nodes' kernels know of
 * them: each lookup that was counted for a node, so that all of them end when its daemon does.
 */
#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "fs/job/private.h"
#include "fs/job/quiet.h"
#include "fs/job/share.h"

#define HOME_BUCKETS 65536u

struct hold_of { /* lookups counted for a node */
	struct hold_of *next;
	uint64_t ino, count;
	uint32_t node;
};

struct home {
	pthread_mutex_t lock;
	struct hold_of *buckets[HOME_BUCKETS];
};

/* ---- lookups of other nodes */

static struct hold_of **bucket(struct home *h, uint64_t ino)
{
	return &h->buckets[ino * 0x9E3779B97F4A7C15ull >> 48];
}

static struct hold_of **find(struct home *h, uint32_t node, uint64_t ino)
{
	struct hold_of **at = bucket(h, ino);

	while (*at && ((*at)->ino != ino || (*at)->node != node))
		at = &(*at)->next;
	return at;
}

/* A lookup has been counted in core; it is that node's now. Our own kernel's are not listed. */
void home_hold(struct job *j, uint32_t node, uint64_t ino)
{
	if (node == peers_self(j->peers))
		return;
	pthread_mutex_lock(&j->home->lock);
	struct hold_of **at = find(j->home, node, ino);
	if (!*at && (*at = calloc(1, sizeof(**at)))) {
		(*at)->ino = ino;
		(*at)->node = node;
	}
	if (*at)
		(*at)->count++;
	pthread_mutex_unlock(&j->home->lock);
}

static void forget(struct job *j, uint32_t node, uint64_t ino, uint64_t count)
{
	pthread_mutex_lock(&j->home->lock);
	struct hold_of **at = find(j->home, node, ino), *gone = NULL;
	if (!*at || count > (*at)->count)
		count = *at ? (*at)->count : 0;
	if (*at && ((*at)->count -= count) == 0) {
		gone = *at;
		*at = gone->next;
	}
	pthread_mutex_unlock(&j->home->lock);
	free(gone);
	if (count)
		core_forget(j->core, ino, count);
}

static void forget_list(struct job *j, void *arg)
{
	for (struct hold_of *h = arg, *next; h; h = next) {
		next = h->next;
		core_forget(j->core, h->ino, h->count);
		free(h);
	}
}

static void home_event(struct job *j, enum peers_event event, uint32_t node)
{
	struct hold_of *list = NULL;

	if (event != PEERS_RESTARTED && event != PEERS_GONE)
		return;
	pthread_mutex_lock(&j->home->lock);
	for (size_t i = 0; i < HOME_BUCKETS; i++)
		for (struct hold_of **at = &j->home->buckets[i]; *at;) {
			struct hold_of *h = *at;

			if (h->node != node) {
				at = &h->next;
				continue;
			}
			*at = h->next;
			h->next = list;
			list = h;
		}
	pthread_mutex_unlock(&j->home->lock);
	if (list && workers_do(j->workers, forget_list, list) < 0)
		forget_list(j, list);
}

/* ---- names that files lose */

static void drop(struct job *j, uint64_t ino)
{
	if (j->opt.drop)
		j->opt.drop(ino, j->opt.arg);
}

void home_serve_lost(struct job *j, struct peers_request *rq)
{
	uint64_t ino = message_get(peers_msg(rq), MESSAGE_INO);

	remote_drop_spare(j, ino);
	drop(j, ino);
	peers_reply_status(rq, 0);
}

/* Nodes other than we whose kernels hold ino; *ret owned. */
static size_t holders(struct job *j, uint64_t ino, uint32_t **ret)
{
	size_t num = 0;

	*ret = calloc(peers_count(j->peers), sizeof(**ret));
	if (!*ret)
		return 0;
	pthread_mutex_lock(&j->home->lock);
	for (const struct hold_of *h = *bucket(j->home, ino); h; h = h->next)
		if (h->ino == ino)
			(*ret)[num++] = h->node;
	pthread_mutex_unlock(&j->home->lock);
	return num;
}

static const struct tell_kind lost_kind = { .outlives = false };

/*
 * It has lost a name. Kernels that have looked it up drop it, unless they use it: else they would keep it in mind until they look there
 * again or need memory, and a file without names would keep its bytes. The one that asked for the change knows.
 */
static void tell_lost(struct job *j, uint32_t asker, uint64_t ino)
{
	struct wire_msg m = { 0 };
	uint32_t *nodes;
	size_t num = holders(j, ino, &nodes);

	message_init(&m, MESSAGE_FILE_LOST);
	message_put(&m, MESSAGE_INO, ino);
	for (size_t i = 0; i < num; i++)
		if (nodes[i] != asker)
			job_tell(j, nodes[i], &m, &lost_kind);
	wire_msg_free(&m);
	free(nodes);
	if (asker != peers_self(j->peers))
		drop(j, ino);
}

/* ---- entries in messages */

static void put_time(struct buf *b, struct timespec t)
{
	buf_u64(b, (uint64_t)t.tv_sec);
	buf_u32(b, (uint32_t)t.tv_nsec);
}

static struct timespec get_time(struct cursor *c)
{
	struct timespec t = { .tv_sec = (time_t)cursor_u64(c) };

	t.tv_nsec = cursor_u32(c);
	return t;
}

void entry_put(struct wire_msg *m, const struct core_entry *e)
{
	const struct stat *st = &e->attr;
	struct buf b BUF_CLEANUP = { 0 };

	buf_u64(&b, e->ino);
	buf_u64(&b, e->gen);
	buf_u32(&b, st->st_mode);
	buf_u32(&b, (uint32_t)st->st_nlink);
	buf_u32(&b, st->st_uid);
	buf_u32(&b, st->st_gid);
	buf_u64(&b, (uint64_t)st->st_size);
	buf_u64(&b, (uint64_t)st->st_blocks);
	buf_u64(&b, (uint64_t)st->st_blksize);
	buf_u64(&b, st->st_rdev);
	put_time(&b, st->st_atim);
	put_time(&b, st->st_mtim);
	put_time(&b, st->st_ctim);
	buf_u64(&b, e->stamp);
	message_put_bytes(m, MESSAGE_ENTRY, b.data, b.len);
}

int entry_get(const struct wire_msg *m, struct core_entry *ret)
{
	return entry_get_nth(m, 0, ret);
}

int entry_get_nth(const struct wire_msg *m, unsigned int n, struct core_entry *ret)
{
	const uint8_t *bytes;
	size_t len;

	if (!message_get_bytes(m, MESSAGE_ENTRY, n, &bytes, &len))
		return -EBADMSG;
	struct cursor c = cursor_make(bytes, len);
	*ret = (struct core_entry){ .ino = cursor_u64(&c) };
	ret->gen = cursor_u64(&c);
	ret->attr.st_ino = ret->ino;
	ret->attr.st_mode = cursor_u32(&c);
	ret->attr.st_nlink = cursor_u32(&c);
	ret->attr.st_uid = cursor_u32(&c);
	ret->attr.st_gid = cursor_u32(&c);
	ret->attr.st_size = (off_t)cursor_u64(&c);
	ret->attr.st_blocks = (blkcnt_t)cursor_u64(&c);
	ret->attr.st_blksize = (blksize_t)cursor_u64(&c);
	ret->attr.st_rdev = cursor_u64(&c);
	ret->attr.st_atim = get_time(&c);
	ret->attr.st_mtim = get_time(&c);
	ret->attr.st_ctim = get_time(&c);
	ret->stamp = cursor_u64(&c);
	return cursor_ok(&c) ? 0 : -EBADMSG;
}

/* ---- requests */

struct call {
	struct job *j;
	uint32_t from;
	uint64_t ino, dir, from_dir;
	char name[XATTR_NAME_MAX > RECORD_NAME_MAX ? XATTR_NAME_MAX + 1 : RECORD_NAME_MAX + 1];
	char old[RECORD_NAME_MAX + 1];
	const struct wire_msg *rq;
	struct wire_msg *reply;
};

bool home_is_open(struct job *j, uint64_t ino)
{
	struct shared *s = shared_find(j, ino);

	shared_put(j, s);
	return s != NULL;
}

/* First, so that whatever changes behind that is recalled. What is untouched may change without a word to us, and what is open, too. */
static uint64_t give_word(struct call *c)
{
	bool ours = c->from != peers_self(c->j->peers) && !(c->ino & STATE_BACKING_INO_BIT);
	uint64_t usec = ours ? quiet_give(c->j, c->from) : 0;

	return usec && !home_is_open(c->j, c->ino) ? usec : 0;
}

static int do_get(struct call *c)
{
	struct core_entry e;
	struct state_name there;
	uint64_t word_usec = give_word(c);
	int rc = c->name[0] ? state_lookup(c->j->state, c->dir, c->name, &there) : 0;

	if (rc == 0 && c->name[0] && there.ino != c->ino)
		rc = -ENOENT;
	if (rc == 0)
		rc = core_getattr(c->j->core, c->ino, NULL, &e);
	if (rc == 0 && message_get(c->rq, MESSAGE_COUNT) && (rc = core_hold(c->j->core, c->ino)) == 0)
		home_hold(c->j, c->from, c->ino);
	if (rc < 0)
		return rc;
	entry_put(c->reply, &e);
	message_put(c->reply, MESSAGE_QUIET, word_usec);
	message_put(c->reply, MESSAGE_BARE, word_usec && core_is_bare(c->j->core, c->ino));
	return 0;
}

static int do_set(struct call *c)
{
	struct core_entry e, now;
	int rc = entry_get(c->rq, &e);

	unsigned int mask = (unsigned int)message_get(c->rq, MESSAGE_MASK);
	if (rc == 0)
		rc = core_setattr(c->j->core, c->ino, &e.attr, mask, NULL, &now);
	if (rc == 0)
		entry_put(c->reply, &now);
	return rc;
}

static int do_readlink(struct call *c)
{
	char target[PATH_MAX];
	int rc = core_readlink(c->j->core, c->ino, target, sizeof(target));

	if (rc == 0)
		message_put_str(c->reply, MESSAGE_TARGET, target);
	return rc;
}

/* Who has done it: whoever needs it durable asks the same daemon. */
static int say_life(struct call *c, int rc)
{
	if (rc == 0)
		message_put(c->reply, MESSAGE_LIFE, power_life(c->j));
	return rc;
}

/* It has lost a name: are there others? */
static void say_left(struct call *c, uint64_t ino)
{
	struct inode in = { .nlink = 1 }; /* if it cannot be read */

	if (ino && state_inode(c->j->state, ino, &in) != -ENOENT && in.nlink > 0)
		message_put(c->reply, MESSAGE_LEFT, 1);
}

static int do_adopt(struct call *c)
{
	return say_life(c, core_adopt_name(c->j->core, c->dir, c->name, c->ino, message_get(c->rq, MESSAGE_STAMP)));
}

static int do_link(struct call *c)
{
	struct core_how how = { .stamp = message_get(c->rq, MESSAGE_STAMP), .free = true };
	struct core_entry e;
	int rc = core_link_at(c->j->core, c->ino, c->dir, c->name, &how, &e);

	if (rc == 0) {
		home_hold(c->j, c->from, c->ino);
		entry_put(c->reply, &e);
		times_changed(c->j, c->dir);
	}
	return say_life(c, rc);
}

static int do_unlink(struct call *c)
{
	struct core_how how = { .ino = c->ino };

	if (message_get(c->rq, MESSAGE_HANDED))
		handover_note(c->j, c->dir, c->name);
	int rc = core_remove_at(c->j->core, c->dir, c->name, false, &how);
	if (rc < 0)
		return rc;
	tell_lost(c->j, c->from, c->ino);
	message_put(c->reply, MESSAGE_POINTER, core_hides_backing(c->j->core, c->dir, c->name) != 0);
	say_left(c, c->ino);
	times_changed(c->j, c->dir);
	return say_life(c, 0);
}

static int do_rename(struct call *c)
{
	struct core_how how = { .stamp = message_get(c->rq, MESSAGE_STAMP), .ino = c->ino };
	unsigned int flags = (unsigned int)message_get(c->rq, MESSAGE_FLAGS);
	uint64_t other = message_get(c->rq, MESSAGE_OTHER);

	how.free = other == 0;
	if (message_get(c->rq, MESSAGE_HANDED))
		handover_note(c->j, c->from_dir, c->old);
	int rc = core_rename_at(c->j->core, c->from_dir, c->old, c->dir, c->name, flags, &how);
	if (rc < 0)
		return rc;
	tell_lost(c->j, c->from, c->ino);
	if (other)
		tell_lost(c->j, c->from, other);
	if (!(flags & RENAME_EXCHANGE))
		say_left(c, other);
	message_put(c->reply, MESSAGE_POINTER, core_hides_backing(c->j->core, c->from_dir, c->old) != 0);
	times_changed(c->j, c->dir);
	if (c->from_dir != c->dir)
		times_changed(c->j, c->from_dir);
	return say_life(c, 0);
}

static int get_value(struct call *c, bool names)
{
	size_t cap = message_get(c->rq, MESSAGE_SIZE);
	char *value = NULL;
	ssize_t len;

	if (cap > RECORD_VALUE_MAX + 1u)
		cap = RECORD_VALUE_MAX + 1u;
	if (cap && !(value = malloc(cap)))
		return -ENOMEM;
	len = names ? core_listxattr(c->j->core, c->ino, value, cap)
		    : core_getxattr(c->j->core, c->ino, c->name, value, cap);
	if (len >= 0) {
		message_put(c->reply, MESSAGE_COUNT, (uint64_t)len);
		if (cap)
			message_put_bytes(c->reply, MESSAGE_VALUE, value, (size_t)len);
	}
	free(value);
	return len < 0 ? (int)len : 0;
}

static int do_getxattr(struct call *c)
{
	return get_value(c, false);
}

static int do_listxattr(struct call *c)
{
	return get_value(c, true);
}

static int do_setxattr(struct call *c)
{
	const uint8_t *value = NULL;
	size_t len = 0;

	(void)message_get_bytes(c->rq, MESSAGE_VALUE, 0, &value, &len);
	return core_setxattr(c->j->core, c->ino, c->name, value, len, (int)message_get(c->rq, MESSAGE_FLAGS));
}

static int do_removexattr(struct call *c)
{
	return core_removexattr(c->j->core, c->ino, c->name);
}

static bool changes(unsigned int type)
{
	return type != (unsigned int)MESSAGE_FILE_GET && type != (unsigned int)MESSAGE_FILE_READLINK &&
	       type != (unsigned int)MESSAGE_FILE_GETXATTR && type != (unsigned int)MESSAGE_FILE_LISTXATTR;
}

static int (*const home_table[])(struct call *c) = {
	[MESSAGE_FILE_GET - MESSAGE_FILE_GET] = do_get,
	[MESSAGE_FILE_SET - MESSAGE_FILE_GET] = do_set,
	[MESSAGE_FILE_READLINK - MESSAGE_FILE_GET] = do_readlink,
	[MESSAGE_FILE_ADOPT - MESSAGE_FILE_GET] = do_adopt,
	[MESSAGE_FILE_LINK - MESSAGE_FILE_GET] = do_link,
	[MESSAGE_FILE_UNLINK - MESSAGE_FILE_GET] = do_unlink,
	[MESSAGE_FILE_RENAME - MESSAGE_FILE_GET] = do_rename,
	[MESSAGE_FILE_GETXATTR - MESSAGE_FILE_GET] = do_getxattr,
	[MESSAGE_FILE_LISTXATTR - MESSAGE_FILE_GET] = do_listxattr,
	[MESSAGE_FILE_SETXATTR - MESSAGE_FILE_GET] = do_setxattr,
	[MESSAGE_FILE_REMOVEXATTR - MESSAGE_FILE_GET] = do_removexattr,
};

/* The file is held by a lookup of its own meanwhile. */
static int do_held(struct call *c)
{
	unsigned int index = c->rq->type - (unsigned int)MESSAGE_FILE_GET;
	struct hint hint;

	if (index >= sizeof(home_table) / sizeof(home_table[0]))
		return -EOPNOTSUPP;
	hint_get(c->rq, &hint);
	int rc = core_find(c->j->core, c->ino, hint.dir, hint.path);
	if (rc < 0)
		return rc;
	rc = home_table[index](c);
	core_forget(c->j->core, c->ino, 1);
	return rc;
}

int home_do(struct job *j, uint32_t from, const struct wire_msg *rq, struct wire_msg *reply)
{
	struct wire_msg fields = { 0 };
	struct call c = { .j = j,
		.from = from,
		.ino = message_get(rq, MESSAGE_INO),
		.dir = message_get(rq, MESSAGE_DIR),
		.from_dir = message_get(rq, MESSAGE_FROM_DIR),
		.rq = rq,
		.reply = &fields };

	(void)message_get_str(rq, MESSAGE_NAME, c.name, sizeof(c.name));
	(void)message_get_str(rq, MESSAGE_FROM, c.old, sizeof(c.old));
	wire_msg_init(&fields, WIRE_REPLY);
	if (changes(rq->type))
		quiet_begin_change(j);
	int rc = late_is_over(j, rq) ? -ETIME : do_held(&c);
	if (changes(rq->type))
		quiet_end_change(j);
	if ((rc == -ENOENT || rc == -ESTALE) && lag_is(j))
		rc = -EIO; /* others may know better */
	wire_msg_init(reply, WIRE_REPLY);
	wire_put_i64(reply, WIRE_STATUS, rc);
	buf_bytes(&reply->body, fields.body.data, fields.body.len);
	wire_msg_free(&fields);
	return rc;
}

void home_serve(struct job *j, struct peers_request *rq)
{
	const struct wire_msg *m = peers_msg(rq);
	struct wire_msg reply = { 0 };

	if (m->type == (uint16_t)MESSAGE_FILE_FORGET) {
		forget(j, peers_from(rq), message_get(m, MESSAGE_INO), message_get(m, MESSAGE_COUNT));
		peers_reply_status(rq, 0);
		return;
	}
	(void)home_do(j, peers_from(rq), m, &reply);
	peers_reply(rq, &reply);
	wire_msg_free(&reply);
}

/* ---- life */

static int home_create(struct job *j, struct cistern_error *err)
{
	j->home = calloc(1, sizeof(*j->home));
	if (!j->home)
		return cistern_error_set(err, -ENOMEM, "out of memory");
	pthread_mutex_init(&j->home->lock, NULL);
	return 0;
}

static void home_destroy(struct job *j)
{
	if (!j->home)
		return;
	for (size_t i = 0; i < HOME_BUCKETS; i++)
		for (struct hold_of *h = j->home->buckets[i], *next; h; h = next) {
			next = h->next;
			free(h);
		}
	pthread_mutex_destroy(&j->home->lock);
	free(j->home);
	j->home = NULL;
}

const struct part home_part = { .create = home_create, .destroy = home_destroy, .event = home_event };
