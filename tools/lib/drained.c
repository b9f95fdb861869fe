/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * The verdict on a store that nobody has open. The daemon's own word (result.json) explains; what counts is the state of
 * the store, whatever the daemon said.
 */
#include "tools/lib/drained.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "format/base/units.h"
#include "format/store/store.h"
#include "tools/lib/daemon.h"
#include "tools/lib/say.h"

static size_t append(char *out, size_t cap, size_t len, const char *text)
{
	int n = snprintf(out + len, cap - len, "%s%s", len ? ", " : "", text);

	return n < 0 || (size_t)n >= cap - len ? len : len + (size_t)n;
}

const char *drained_left_text(const struct state_left *left, char *out, size_t cap)
{
	char text[2 * UNITS_COUNT + 64], count[UNITS_COUNT], bytes[UNITS_TEXT];
	size_t len = 0;

	snprintf(out, cap, "nothing");
	if (left->files) {
		snprintf(
			text, sizeof(text), "%s (directories counted)", units_format_count(left->files, "file", count));
		len = append(out, cap, len, text);
	}
	if (left->names) {
		snprintf(text, sizeof(text), "%s deleted or moved", units_format_count(left->names, "name", count));
		len = append(out, cap, len, text);
	}
	if (left->layers) {
		snprintf(text, sizeof(text), "%s in %s of other nodes", units_format_bytes(left->layer_bytes, bytes),
			units_format_count(left->layers, "file", count));
		len = append(out, cap, len, text);
	}
	if (left->shares) {
		snprintf(text, sizeof(text), "the order of %s that several nodes wrote",
			units_format_count(left->shares, "range", count));
		append(out, cap, len, text);
	}
	return out;
}

struct special_names {
	struct state *st;
	char text[256]; /* the first few: "a, b, c" */
	unsigned int num;
};

static int note_special(uint64_t parent, const char *name, uint64_t ino, void *arg)
{
	struct special_names *n = arg;
	struct inode in;
	size_t len = strlen(n->text);

	(void)parent;
	if (state_inode(n->st, ino, &in) < 0 || !inode_is_special(in.mode))
		return 0;
	if (n->num++ == 3)
		snprintf(n->text + len, sizeof(n->text) - len, ", ...");
	else
		snprintf(n->text + len, sizeof(n->text) - len, "%s%.60s", len ? ", " : "", name);
	return n->num > 3;
}

/* They are no data, and nothing is lost: but who deletes the store deletes them. */
static void say_special(struct state *st, uint64_t num)
{
	struct special_names n = { .st = st };

	if (num == 0)
		return;
	(void)state_each_name(st, note_special, &n);
	say("FIFOs, sockets and device nodes are kept in the store alone, and not drained: %" PRIu64 " (%s)", num,
		n.text);
}

void drained_settle(struct state_left *left, const struct daemon_result *result)
{
	if (result && cistern_exit_is_out((int)result->result))
		left->layers = left->layer_bytes = left->shares = 0;
}

/* *ret_of_many: it is one of several nodes' of a job. */
static int look_into(const char *store, struct state_left *ret, char *backing, size_t cap, bool *ret_of_many,
	struct cistern_error *err)
{
	struct store_options opt = { .mode = STORE_READ_ONLY };
	struct state_report report;
	struct store *s;
	int r = store_open(store, &opt, &s, &report, err);

	if (r < 0)
		return r;
	snprintf(backing, cap, "%s", store_superblock(s)->backing);
	*ret_of_many = store_superblock(s)->num_nodes > 1;
	r = state_left(store_state(s), ret);
	if (r == 0)
		say_special(store_state(s), ret->special);
	store_abandon(s);
	return r < 0 ? cistern_error_set(err, r, "%s: the index cannot be read", store) : 0;
}

static void say_result(const struct daemon_result *result)
{
	if (result->text[0])
		say("%s", result->text);
	for (size_t i = 0; i < result->num_errors; i++)
		say("  %s: %s", result->errors[i].path, result->errors[i].text);
}

int drained_verdict(const char *store, const char *backing, const char *noted)
{
	char recorded[STORE_PATH_MAX] = "";
	struct state_left left = { 0 };
	char text[DRAINED_LEFT_TEXT];
	struct cistern_error err = { 0 };
	struct daemon_result result;
	int said = daemon_read_result(store, &result, &err);
	bool of_many = false;

	if (said < 0 && said != -ENOENT)
		say("%s", err.text);
	if (said == 0 && !cistern_exit_is_out((int)result.result))
		say_result(&result);
	else if (said == 0 && result.text[0])
		say("%s", result.text);
	else if (noted && noted[0])
		say("%s", noted);
	if (look_into(store, &left, recorded, sizeof(recorded), &of_many, &err) < 0)
		return say_error(&err);
	drained_settle(&left, said == 0 ? &result : NULL);
	if (!state_left_nothing(&left)) {
		if (said < 0 || result.result == CISTERN_EXIT_OK || !result.text[0])
			say("not on the backing directory yet: %s; "
			    "'cistern recover %s%s --to %s' drains it, 'cistern inspect %s' lists the files",
				drained_left_text(&left, text, sizeof(text)), store, of_many ? " OTHERS..." : "",
				backing ? backing : recorded, store);
		return CISTERN_EXIT_INCOMPLETE;
	}
	if (said == -ENOENT && of_many) { /* what it has of other nodes' files is no file of its own */
		say("the daemon has died before it could say how the drain of its job ended; mount all nodes again, or 'cistern "
		    "recover' all stores");
		return CISTERN_EXIT_INCOMPLETE;
	}
	if (said == 0 && !cistern_exit_is_out((int)result.result))
		return result.result > 0 && result.result <= CISTERN_EXIT_LAST ? (int)result.result
									       : CISTERN_EXIT_FAILED;
	if (left.beside == 0 && !(said == 0 && result.result == CISTERN_EXIT_BESIDE))
		return CISTERN_EXIT_OK;
	if (left.beside > 0 && !(said == 0 && result.text[0]) && !(noted && noted[0]))
		say("on the backing directory, but under another name, since somebody else has put something where it is: %s; the manifest in %s "
		    "lists them",
			units_format_count(left.beside, "name", text), store);
	return CISTERN_EXIT_BESIDE;
}
