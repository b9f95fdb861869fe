/* SPDX-License-Identifier: GPL-3.0-or-later */
/* Names beside those that are taken: made, and known again. */
#include "format/index/beside.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "format/base/crc32c.h"

#define MARK       ".cistern-"
#define JOB_MAX    24
#define CUT_BYTES  9 /* "~" and eight digits stand for what is cut off */
#define LIST_NAMES 64

static bool is_plain(const char *job)
{
	size_t len = strlen(job);

	return len > 0 && len <= JOB_MAX &&
	       strspn(job, "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_") == len;
}

void beside_tag(const char *job, const char *uuid, char out[BESIDE_TAG_BYTES])
{
	bool plain = is_plain(job);

	snprintf(out, BESIDE_TAG_BYTES, "%s%s%.8s", plain ? job : "", plain ? "-" : "", uuid);
}

/* What stands before the mark of name: all of it, or its beginning with the number. */
static void stem_of(const char *name, size_t room, char out[RECORD_NAME_MAX + 1])
{
	size_t len = strlen(name);

	if (len <= room)
		memcpy(out, name, len + 1);
	else
		snprintf(out, RECORD_NAME_MAX + 1, "%.*s~%08" PRIx32, (int)(room - CUT_BYTES), name,
			crc32c(0, name, len));
}

void beside_name(const char *name, const char *tag, uint64_t ino, char out[RECORD_NAME_MAX + 1])
{
	char end[BESIDE_TAG_BYTES + 40];
	int n = snprintf(end, sizeof(end), MARK "%s-%" PRIu64, tag, ino);

	stem_of(name, RECORD_NAME_MAX - (size_t)n, out);
	memcpy(out + strlen(out), end, (size_t)n + 1);
}

/* Where the mark of such a name of ino begins; NULL: it is none. */
static const char *mark_of(const char *backing, uint64_t ino)
{
	const char *mark = NULL, *dash = strrchr(backing, '-');
	char number[32];

	for (const char *p = backing; (p = strstr(p, MARK)); p++)
		mark = p;
	snprintf(number, sizeof(number), "-%" PRIu64, ino);
	return mark && mark > backing && dash > mark + sizeof(MARK) - 2 && strcmp(dash, number) == 0 ? mark : NULL;
}

bool beside_is_of(const char *backing, const char *name, uint64_t ino)
{
	const char *mark = mark_of(backing, ino);
	char stem[RECORD_NAME_MAX + 1];

	if (!mark)
		return false;
	stem_of(name, RECORD_NAME_MAX - strlen(mark), stem);
	return strlen(stem) == (size_t)(mark - backing) && memcmp(stem, backing, strlen(stem)) == 0;
}

void beside_to_shown(char *path, uint64_t ino)
{
	char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
	const char *mark = mark_of(name, ino);

	if (mark && !(mark - name > CUT_BYTES && mark[-CUT_BYTES] == '~'))
		name[mark - name] = '\0';
}

/* Has (parent, name) in the mount ino, and is that name not its own in the backing directory? */
static bool lacks_place(struct state *st, uint64_t parent, const char *name, uint64_t ino)
{
	struct state_name at;
	uint64_t owner;

	return state_lookup(st, parent, name, &at) == 0 && at.ino == ino &&
	       (state_backing_owner(st, parent, name, &owner) < 0 || owner != ino);
}

/* One of a shortened name: the names of the directory are looked through. */
static bool find_cut(struct state *st, uint64_t parent, const char *backing, uint64_t ino, char *ret_name)
{
	struct state_name at[LIST_NAMES];
	char after[RECORD_NAME_MAX + 1] = "";
	size_t num = LIST_NAMES;

	while (num == LIST_NAMES && state_list_names(st, parent, after, at, LIST_NAMES, &num) == 0) {
		for (size_t i = 0; i < num; i++)
			if (at[i].ino == ino && beside_is_of(backing, at[i].name, ino) &&
				lacks_place(st, parent, at[i].name, ino)) {
				memcpy(ret_name, at[i].name, sizeof(at[i].name));
				return true;
			}
		if (num > 0)
			memcpy(after, at[num - 1].name, sizeof(after));
	}
	return false;
}

bool state_is_beside(struct state *st, uint64_t parent, const char *backing, uint64_t ino, char *ret_name)
{
	const char *mark = mark_of(backing, ino);
	char name[RECORD_NAME_MAX + 1];
	size_t len = mark ? (size_t)(mark - backing) : 0;
	bool is = false;

	if (!mark)
		return false;
	memcpy(name, backing, len);
	name[len] = '\0';
	is = lacks_place(st, parent, name, ino) ||
	     (len > CUT_BYTES && name[len - CUT_BYTES] == '~' && find_cut(st, parent, backing, ino, name));
	if (is && ret_name)
		memcpy(ret_name, name, strlen(name) + 1);
	return is;
}

bool state_has_beside(struct state *st, uint64_t dir, const char *name, const struct inode *in, const char *tag,
	char out[RECORD_NAME_MAX + 1])
{
	uint64_t owner;

	beside_name(name, tag, in->ino, out);
	if (state_backing_owner(st, dir, out, &owner) == 0 && owner == in->ino)
		return true;
	if (in->origin_parent != dir || !beside_is_of(in->origin_name, name, in->ino))
		return false;
	memcpy(out, in->origin_name, sizeof(in->origin_name));
	return true;
}
