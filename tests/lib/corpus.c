/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "tests/lib/corpus.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/lib/tap.h"

/* In memory that ends where the file does, so that sanitizers see what is read behind it. */
static bool is_taken(const char *dir, const char *name, corpus_take_fn take)
{
	static uint8_t whole[CORPUS_FILE_BYTES];
	char path[4096];
	uint8_t *bytes;
	size_t len = 0;
	bool taken = false;
	FILE *in;

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	in = fopen(path, "r");
	if (in) {
		len = fread(whole, 1, sizeof(whole), in);
		fclose(in);
	}
	bytes = malloc(len + !len);
	if (bytes && len > 0) {
		memcpy(bytes, whole, len);
		taken = take(name, bytes, len);
	}
	free(bytes);
	return taken;
}

void corpus_check(const char *folder, corpus_take_fn take, unsigned int least_bad, unsigned int least_good)
{
	const char *top = getenv("top_srcdir");
	unsigned int bad = 0, good = 0;
	struct dirent *e;
	char dir[3000];
	DIR *d;

	snprintf(dir, sizeof(dir), "%s/tests/fuzz/corpus/%s", top ? top : ".", folder);
	d = opendir(dir);
	while (d && (e = readdir(d))) {
		bool is_bad = strncmp(e->d_name, "bad-", 4) == 0;

		if (e->d_name[0] == '.')
			continue;
		ok(is_taken(dir, e->d_name, take) != is_bad, "%s", e->d_name);
		bad += is_bad;
		good += !is_bad;
	}
	ok(bad >= least_bad && good >= least_good, "the corpus was there");
	if (d)
		closedir(d);
}
