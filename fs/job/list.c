/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Listings of directories over all nodes: directories of the tree, files of every node, and what is left of the backing
 * directory when all that some node has taken over is away. Taken whole, as core does it. Each name once: a name in the
 * store counts before what hides it, and that before the backing directory.
 *
 * Of directories node 0 says what there is, between two changes of the tree (sequence.c): so no listing knows of a change before all nodes have
 * it, and none that begins later is without it. A directory and a file that change places do so at the file's home, which may have been
 * asked before or after node 0: then all are asked again. Each answer says how far its node's tree was.
 * A name that goes from one home's file to another's is somebody's all the time, but both may be asked when they do not have it, or when
 * they do: each home says what it has handed over since the listing began (handover.c), and such a name is looked up.
 */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "fs/job/private.h"
#include "fs/job/walk.h"

#define LIST_PAGE_BYTES (512u << 10)
#define LIST_BATCH      256
#define LIST_TRIES      32
#define NUM_DOTS        2 /* "." and ".." come first, then all others by name */

enum list_rank {
	LIST_SHOWN,
	LIST_HANDED, /* somebody else has it, perhaps; and what several homes show */
	LIST_HIDDEN,
	LIST_BACKING
};

struct list_entry {
	uint64_t ino;
	uint32_t type;
	uint8_t rank;
	uint64_t name; /* offset in names */
};

struct listing {
	_Atomic(unsigned int) refs;
	struct list_entry *entries; /* owned */
	size_t num, cap;
	char *names; /* owned */
	size_t names_len, names_cap;
	uint64_t dir;
	int64_t begun;        /* the job's clock */
	bool is_unsure;       /* a home does not know all that it has handed over since then */
	pthread_mutex_t lock; /* while nodes answer */
	int rc;
	/* numbers of changes of the tree */
	uint64_t tree, moved;           /* node 0's: the last one, and the last that moved a directory */
	uint64_t least_tree, max_moved; /* of the others: in all answers, in any */
};

/* Room for need elements of size bytes: mem, or where it is now; NULL: out of memory, and mem is as it was. */
static void *grow(void *mem, size_t *cap, size_t need, size_t size)
{
	size_t more = *cap ? *cap * 2 : 256;

	if (need <= *cap)
		return mem;
	while (more < need)
		more *= 2;
	void *grown = reallocarray(mem, more, size);
	if (grown)
		*cap = more;
	return grown;
}

static int add(struct listing *l, const char *name, uint64_t ino, uint32_t type, enum list_rank rank)
{
	size_t len = strlen(name) + 1;
	struct list_entry *entries = grow(l->entries, &l->cap, l->num + 1, sizeof(*entries));
	char *names = grow(l->names, &l->names_cap, l->names_len + len, 1);

	l->entries = entries ? entries : l->entries;
	l->names = names ? names : l->names;
	if (!entries || !names)
		return -ENOMEM;
	memcpy(l->names + l->names_len, name, len);
	l->entries[l->num++] = (struct list_entry){ ino, type, (uint8_t)rank, l->names_len };
	l->names_len += len;
	return 0;
}

/* ---- what other nodes have */

enum phase { DOUBTED, OWNED, NAMES, PHASES }; /* what is told, in this order */

struct page { /* an answer as it is made */
	struct job *j;
	uint64_t dir;
	enum phase phase;
	bool dirs;
	char after[RECORD_NAME_MAX + 1];
	struct buf out;
	bool more;
};

static void put_name(struct page *p, enum list_rank rank, const struct state_name *name)
{
	buf_u8(&p->out, rank);
	buf_u64(&p->out, name->ino);
	buf_u32(&p->out, name->type);
	buf_str(&p->out, name->name);
}

static void put_rank(struct page *p, enum list_rank rank, const char *name)
{
	struct state_name n = { 0 };

	snprintf(n.name, sizeof(n.name), "%s", name);
	put_name(p, rank, &n);
}

static void put_handed(const char *name, void *arg)
{
	put_rank(arg, LIST_HANDED, name);
}

struct doubted {
	struct page *p;
	bool more; /* than fit the page */
};

static void put_doubted(const char *name, void *arg)
{
	struct doubted *d = arg;
	struct page *p = d->p;

	if (d->more || strcmp(name, p->after) <= 0)
		return;
	d->more = p->out.len >= LIST_PAGE_BYTES;
	if (d->more)
		return;
	put_rank(p, LIST_HIDDEN, name);
	snprintf(p->after, sizeof(p->after), "%s", name);
}

/* 1; 0: there are no more. */
static int put_batch(struct page *p)
{
	struct doubted d = { .p = p };

	if (p->phase == DOUBTED) {
		core_each_doubt(p->j->core, p->dir, put_doubted, &d);
		return d.more;
	}
	struct state_name *names = calloc(LIST_BATCH, sizeof(*names));
	size_t num = 0;
	int rc = names ? (p->phase == OWNED ? state_list_backing_names : state_list_names)(
				 p->j->state, p->dir, p->after, names, LIST_BATCH, &num)
		       : -ENOMEM;

	for (size_t i = 0; i < num; i++)
		if (names[i].type != S_IFDIR || p->dirs)
			put_name(p, p->phase == OWNED ? LIST_HIDDEN : LIST_SHOWN, &names[i]);
	if (num > 0)
		memcpy(p->after, names[num - 1].name, sizeof(p->after));
	free(names);
	return rc < 0 ? rc : num == LIST_BATCH;
}

/*
 * What is hidden comes first: a name that is taken over meanwhile is then among the shown ones; and last, what was lost to others. Of what is hidden
 * names in doubt come first: one that is in doubt no more is known to the state.
 */
void list_answer(struct job *j, struct peers_request *rq)
{
	const struct wire_msg *m = peers_msg(rq);
	struct page p = { .j = j,
		.dir = message_get(m, MESSAGE_DIR),
		.phase = (enum phase)message_get(m, MESSAGE_FLAGS),
		.dirs = peers_self(j->peers) == 0 };
	uint64_t tree = state_tree_stamp(j->state); /* at least that */
	struct wire_msg reply = { 0 };

	(void)message_get_str(m, MESSAGE_NAME, p.after, sizeof(p.after));
	int rc = p.phase < PHASES ? 0 : -EBADMSG;
	p.more = true;
	while (p.more && p.out.len < LIST_PAGE_BYTES && rc >= 0) {
		rc = put_batch(&p);
		if (rc != 0)
			continue;
		p.more = p.phase < NAMES;
		p.phase += p.more;
		p.after[0] = '\0';
	}
	bool is_sure = p.more || handover_each(j, p.dir, (int64_t)message_get(m, MESSAGE_TIME), put_handed, &p);
	wire_msg_init(&reply, WIRE_REPLY);
	wire_put_i64(&reply, WIRE_STATUS, rc < 0 ? rc : buf_ok(&p.out) ? 0 : -ENOMEM);
	message_put_bytes(&reply, MESSAGE_NAMES, p.out.data, p.out.len);
	message_put(&reply, MESSAGE_HANDED, !is_sure);
	message_put(&reply, MESSAGE_COUNT, p.more);
	message_put(&reply, MESSAGE_FLAGS, p.phase);
	message_put_str(&reply, MESSAGE_FROM, p.after);
	message_put(&reply, MESSAGE_STAMP, tree);
	message_put(&reply, MESSAGE_OTHER, j->moved); /* at most that */
	peers_reply(rq, &reply);
	wire_msg_free(&reply);
	buf_free(&p.out);
}

void list_serve(struct job *j, struct peers_request *rq)
{
	if (peers_self(j->peers) == 0 && !sequence_look_begin(j, rq))
		return;
	list_answer(j, rq);
	if (peers_self(j->peers) == 0)
		sequence_look_end(j);
}

struct asking {
	struct job *j;
	struct listing *l;
	bool without_0; /* node 0 was given up */
};

static void take_stamps(struct listing *l, uint32_t node, const struct wire_msg *reply)
{
	uint64_t tree = message_get(reply, MESSAGE_STAMP), moved = message_get(reply, MESSAGE_OTHER);

	if (node == 0) {
		l->tree = tree;
		l->moved = moved;
	} else {
		l->least_tree = tree < l->least_tree ? tree : l->least_tree;
		l->max_moved = moved > l->max_moved ? moved : l->max_moved;
	}
}

static int take_page(struct listing *l, uint32_t node, const struct wire_msg *reply)
{
	char name[RECORD_NAME_MAX + 1];
	const uint8_t *bytes;
	size_t len;
	int rc = 0;

	if (!message_get_bytes(reply, MESSAGE_NAMES, 0, &bytes, &len))
		return -EBADMSG;
	take_stamps(l, node, reply);
	l->is_unsure |= message_get(reply, MESSAGE_HANDED);
	struct cursor c = cursor_make(bytes, len);
	while (rc == 0 && cursor_left(&c) > 0) {
		uint8_t rank = cursor_u8(&c);
		uint64_t ino = cursor_u64(&c);
		uint32_t type = cursor_u32(&c);

		cursor_str(&c, name, sizeof(name));
		rc = cursor_ok(&c) ? add(l, name, ino, type, rank) : -EBADMSG;
	}
	return rc;
}

static void init_ask(struct wire_msg *m, const struct listing *l, uint64_t phase, const char *after)
{
	message_init(m, MESSAGE_NAME_LIST);
	message_put(m, MESSAGE_DIR, l->dir);
	message_put(m, MESSAGE_TIME, (uint64_t)l->begun);
	message_put_str(m, MESSAGE_NAME, after);
	message_put(m, MESSAGE_FLAGS, phase);
}

struct rest {                  /* of nodes with more than a page */
	struct wire_msg *next; /* for each node; type 0: none */
	struct asking *a;
};

static void take_first(uint32_t node, const struct wire_msg *reply, void *arg)
{
	struct rest *r = arg;
	char after[RECORD_NAME_MAX + 1] = "";
	struct listing *l = r->a->l;
	int64_t status;

	if (!reply || !wire_get_i64(reply, WIRE_STATUS, &status) || status < 0)
		return;
	pthread_mutex_lock(&l->lock);
	int rc = take_page(l, node, reply);
	if (rc < 0)
		l->rc = rc;
	pthread_mutex_unlock(&l->lock);
	if (rc < 0 || !message_get(reply, MESSAGE_COUNT))
		return;
	(void)message_get_str(reply, MESSAGE_FROM, after, sizeof(after));
	init_ask(&r->next[node], l, message_get(reply, MESSAGE_FLAGS), after);
}

static int ask_rest(struct asking *a, uint32_t node, struct wire_msg *m)
{
	struct wire_msg reply = { 0 };
	char after[RECORD_NAME_MAX + 1];
	int rc = 0;

	while (rc == 0 && m->type) {
		rc = peers_call(a->j->peers, node, m, &reply);
		if (rc == 0)
			rc = take_page(a->l, node, &reply);
		m->type = 0;
		after[0] = '\0';
		if (rc == 0 && message_get(&reply, MESSAGE_COUNT)) {
			(void)message_get_str(&reply, MESSAGE_FROM, after, sizeof(after));
			init_ask(m, a->l, message_get(&reply, MESSAGE_FLAGS), after);
		}
	}
	wire_msg_free(&reply);
	return rc;
}

static int ask_all(struct asking *a)
{
	uint32_t num = peers_count(a->j->peers);
	struct wire_msg m = { 0 }, *next = calloc(num, sizeof(*next));
	int *status = calloc(num, sizeof(*status)), rc = next && status ? 0 : -ENOMEM;
	struct rest rest = { next, a };

	if (rc == 0) {
		init_ask(&m, a->l, DOUBTED, "");
		(void)peers_call_all(a->j->peers, &m, status, take_first, &rest);
		rc = a->l->rc;
	}
	a->without_0 = rc == 0 && status[0] == -EHOSTDOWN;
	for (uint32_t i = 0; rc == 0 && i < num; i++)
		rc = status[i] == -EHOSTDOWN ? 0 : status[i] ? status[i] : ask_rest(a, i, &next[i]);
	for (uint32_t i = 0; next && i < num; i++)
		wire_msg_free(&next[i]);
	wire_msg_free(&m);
	free(next);
	free(status);
	return rc;
}

/* ---- putting it together */

static int add_backing(const char *name, uint64_t ino, uint32_t type, void *arg)
{
	return add(arg, name, ino, type, LIST_BACKING);
}

static int add_owned(const char *name, uint64_t ino, uint32_t type, void *arg)
{
	return type == S_IFDIR ? add(arg, name, ino, type, LIST_HIDDEN) : 0;
}

static int add_dir(const char *name, uint64_t ino, uint32_t type, void *arg)
{
	return type == S_IFDIR ? add(arg, name, ino, type, LIST_SHOWN) : 0;
}

static int compare(const void *a, const void *b, void *arg)
{
	const struct list_entry *x = a, *y = b;
	const char *names = arg;
	int order = strcmp(names + x->name, names + y->name);

	return order ? order : (int)x->rank - (int)y->rank;
}

/* What the name is now; *left: nothing. */
static int look_up(struct job *j, uint64_t dir, const char *name, struct list_entry *e, bool *left)
{
	struct core_entry now;
	int rc = job_lookup(j, dir, name, &now);

	*left = rc == -ENOENT || rc == -ESTALE;
	if (rc < 0)
		return *left ? 0 : rc;
	e->ino = now.ino;
	e->type = now.attr.st_mode & S_IFMT;
	e->rank = LIST_SHOWN;
	job_forget(j, now.ino, 1);
	return 0;
}

static int look_up_handed(struct job *j, struct listing *l)
{
	size_t to = 0;
	int rc = 0;

	for (size_t i = 0; i < l->num; i++) {
		struct list_entry e = l->entries[i];
		bool left = false;

		if (rc == 0 && e.rank == LIST_HANDED)
			rc = look_up(j, l->dir, l->names + e.name, &e, &left);
		if (!left)
			l->entries[to++] = e;
	}
	l->num = to;
	return rc;
}

/* Of each name the first; nothing, if that hides it. */
static void settle(struct listing *l, size_t from)
{
	const char *last = NULL;
	size_t to = from;

	qsort_r(l->entries + from, l->num - from, sizeof(*l->entries), compare, l->names);
	for (size_t i = from; i < l->num; i++) {
		const struct list_entry e = l->entries[i];
		bool again = last && strcmp(last, l->names + e.name) == 0;

		last = l->names + e.name;
		if (!again && e.rank != LIST_HIDDEN)
			l->entries[to++] = e;
		else if (again && e.rank == LIST_SHOWN && e.ino != l->entries[to - 1].ino)
			l->entries[to - 1].rank = LIST_HANDED;
	}
	l->num = to;
}

/*
 * What only the backing directory shows was there before the homes were asked. A drain may have taken it away or moved it since, and its home,
 * whom it was hidden by, forgotten it by the time that it was asked. So it counts only if it is still there.
 */
static int look_again(struct job *j, struct listing *l, size_t from)
{
	struct listing now = { 0 };
	size_t num = 0, to = from, at = 0;

	for (size_t i = from; i < l->num; i++)
		num += l->entries[i].rank == LIST_BACKING;
	if (num == 0)
		return 0;
	int rc = core_each_backing(j->core, l->dir, add_backing, &now);
	if (rc == 0 && now.num > 0)
		qsort_r(now.entries, now.num, sizeof(*now.entries), compare, now.names);
	for (size_t i = from; rc == 0 && i < l->num; i++) {
		struct list_entry e = l->entries[i];
		int order = -1;

		while (e.rank == LIST_BACKING && at < now.num &&
			(order = strcmp(now.names + now.entries[at].name, l->names + e.name)) < 0)
			at++;
		if (order == 0 && now.entries[at].ino != e.ino)
			e.rank = LIST_HANDED;
		if (e.rank != LIST_BACKING || order == 0)
			l->entries[to++] = e;
	}
	l->num = rc == 0 ? to : l->num;
	free(now.entries);
	free(now.names);
	return rc;
}

/* Are all answers from between the same two moves of directories? */
static bool is_of_one_time(const struct listing *l)
{
	return l->max_moved <= l->tree && l->moved <= l->least_tree;
}

static int build_once(struct job *j, uint64_t ino, struct listing *l)
{
	struct asking a = { .j = j, .l = l };
	int rc;

	l->num = l->names_len = 0;
	l->dir = ino;
	l->begun = clock_now(state_clock(j->state));
	l->is_unsure = false;
	l->tree = l->moved = l->max_moved = 0;
	l->least_tree = UINT64_MAX;
	rc = add(l, ".", ino, S_IFDIR, LIST_SHOWN);

	if (rc == 0)
		rc = add(l, "..", ino, S_IFDIR, LIST_SHOWN);
	/* In this order: what is taken over in between is then hidden, or shown by its home. */
	if (rc == 0)
		rc = core_each_backing(j->core, ino, add_backing, l);
	if (rc == 0)
		rc = ask_all(&a);
	if (rc == 0 && a.without_0)
		rc = core_each_backing_owned(j->core, ino, add_owned, l);
	if (rc == 0 && a.without_0)
		rc = core_each_name(j->core, ino, add_dir, l);
	bool again = l->is_unsure || (!a.without_0 && !is_of_one_time(l));
	return rc == 0 && again ? -EAGAIN : rc;
}

static int build(struct job *j, uint64_t ino, struct listing *l)
{
	int rc = -EAGAIN;

	for (int tries = 0; rc == -EAGAIN && tries < LIST_TRIES; tries++)
		rc = build_once(j, ino, l);
	if (rc == -EAGAIN) /* without an end to the moves: as it is */
		rc = 0;
	if (rc < 0)
		return rc;
	settle(l, NUM_DOTS);
	rc = look_again(j, l, NUM_DOTS);
	return rc < 0 ? rc : look_up_handed(j, l);
}

int list_open(struct job *j, uint64_t ino, struct listing **ret)
{
	struct listing *l = calloc(1, sizeof(*l));

	if (!l)
		return -ENOMEM;
	pthread_mutex_init(&l->lock, NULL);
	l->refs = 1;
	int rc = build(j, ino, l);
	if (rc < 0) {
		list_close(l);
		return rc;
	}
	walk_listed(j, ino, l);
	*ret = l;
	return 0;
}

struct listing *list_ref(struct listing *l)
{
	l->refs++;
	return l;
}

size_t list_size(const struct listing *l)
{
	return l->num;
}

uint64_t list_find(const struct listing *l, const char *name)
{
	size_t low = NUM_DOTS, high = l->num;

	while (low < high) {
		size_t mid = (low + high) / 2;
		int order = strcmp(l->names + l->entries[mid].name, name);

		if (order == 0)
			return mid;
		if (order < 0)
			low = mid + 1;
		else
			high = mid;
	}
	return UINT64_MAX;
}

void list_close(struct listing *l)
{
	if (!l || --l->refs > 0)
		return;
	pthread_mutex_destroy(&l->lock);
	free(l->entries);
	free(l->names);
	free(l);
}

int list_get(struct listing *l, uint64_t index, const char **ret_name, uint64_t *ret_ino, uint32_t *ret_type)
{
	if (index >= l->num)
		return -ENOENT;
	*ret_name = l->names + l->entries[index].name;
	*ret_ino = l->entries[index].ino;
	*ret_type = l->entries[index].type;
	return 0;
}
