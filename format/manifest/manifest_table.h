/* SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef FORMAT_MANIFEST_MANIFEST_TABLE_H
#define FORMAT_MANIFEST_MANIFEST_TABLE_H

/*
 * What a manifest's log says of each path, when all its lines are taken. It does not parse JSON: the escaped path, as it stands in a line, is
 * the key, and the last line of a key is its entry. Of overlaps and missing bytes all that a path has ever had are put into its entry. What a line says is
 * so of the file, and is kept with each name that the file is said to have or to have got.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define KEY_PREFIX "{\"path\":"
#define SUM_PREFIX "{\"state\":\"summary\"," /* a line of no file: up to here a process has made a summary */
#define SUM_BYTES  96

struct text { /* borrowed from the mapped log */
	const char *at;
	size_t len;
};

enum entry_as { AS_TOLD, AS_MOVED, AS_LINKED }; /* in the order in which names of one file list it */

struct entry {
	struct text key,
		line; /* line.len 0: it has none; extras may be known, or its directory has moved here in that line */
	struct text said; /* of the file, by its line or by that of another name: what follows the path */
	size_t file;      /* names of one file have the same number; 0: nothing has been said of it */
	size_t teller;    /* the entry whose line said is of */
	enum entry_as as;
	struct text from;   /* moved or linked: with its quotes */
	struct text kept;   /* of a line of that state behind it: what follows the state */
	struct text beside; /* of a line of that state behind it: what follows the path; len 0: it has its own name */
	bool gone;
	const char *taken_by; /* gone: the line of the move that has taken it away; NULL: none has */
	size_t extras_from,
		extras_were; /* those before are of a file that had this name once; the same before it was gone */
};

enum extra_kind { EXTRA_OVERLAP, EXTRA_MISSING };

struct extra { /* what a line of its own says of a file */
	enum extra_kind kind;
	size_t entry, seq;
	uint64_t off;
	struct text text; /* of its line, what stands behind the state, and the closing brace */
};

/* The numbers of entries and folders are their places in the table, and one more: 0 is none. */
struct folder {
	struct text
		path; /* with the quote at its beginning, without the slash behind it; borrowed from the key of something in it */
	size_t entry, folder; /* the first of those in it */
	size_t next;          /* in the folder that it is in */
};

struct hash {          /* of numbers */
	size_t *slots; /* owned; a power of two of them */
	size_t num;
};

struct table {
	struct entry *entries; /* owned, in the order of their first line */
	size_t *next;          /* owned: of each entry, the next one in its folder */
	size_t num, cap;
	struct folder *folders; /* owned */
	size_t num_folders, cap_folders;
	struct hash by_key, by_path; /* of entries; of folders */
	size_t *found;               /* owned: what was looked for last */
	size_t num_found, cap_found;
	size_t num_files;
	char **made; /* owned, each too: paths that no line has */
	size_t num_made, cap_made;
	struct extra *extras; /* owned */
	size_t num_extras, cap_extras;
	char sum[SUM_BYTES]; /* the line of whose summary it is */
	const char *others;  /* where what others have summed up ends */
};

/* t->sum is set. -ENOMEM */
int table_make(struct table *t, const char *text, size_t len);
void table_free(struct table *t);
struct entry *table_find(const struct table *t, const struct text *key); /* NULL: nothing is said of it */
void table_drop(const struct table *t, struct entry *e);                 /* it is gone */
struct text entry_rest(const struct entry *e);                           /* what follows the path in its line */
bool text_has_state(const struct text *said, const char *state);
/* The string (with its quotes) that begins at p. */
bool text_take_string(const char *p, const char *end, struct text *ret);

#endif
