/* SPDX-License-Identifier: GPL-3.0-or-later */

/*
 * The main() of a fuzz target that is built without a fuzzing engine: it hands files to the target, one after the
 * other, and says so in TAP. Without arguments these are the files of the target's own corpus,
 * $top_srcdir/tests/fuzz/corpus/NAME for a program fuzz-NAME. A target fails by crashing, or under the sanitizers; what
 * it returns is of no interest. Inputs are copied to a buffer of exactly their size so that the sanitizers see a
 * read past the end.
 */

#include <dirent.h>
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define INPUT_LIMIT_BYTES (64L << 20)

/* The whole file in a malloc'd buffer of its size. 0 or -errno; -EFBIG past the limit. */
static int read_input(const char *path, uint8_t **ret_data, size_t *ret_size)
{
	struct stat st;
	uint8_t *data;
	FILE *in;

	in = fopen(path, "rb");
	if (!in)
		return -errno;
	if (fstat(fileno(in), &st) < 0 || st.st_size > INPUT_LIMIT_BYTES) {
		fclose(in);
		return -EFBIG;
	}
	data = malloc(st.st_size ? (size_t)st.st_size : 1);
	if (!data || fread(data, 1, (size_t)st.st_size, in) != (size_t)st.st_size) {
		free(data);
		fclose(in);
		return data ? -EIO : -ENOMEM;
	}
	fclose(in);
	*ret_data = data;
	*ret_size = (size_t)st.st_size;
	return 0;
}

/* One TAP line. The path goes out before the target runs, so that after a crash the log ends with its input. */
static int replay_file(const char *path, int number)
{
	uint8_t *data = NULL;
	size_t size = 0;
	const char *name = strrchr(path, '/');
	int r;

	name = name ? name + 1 : path;
	fprintf(stderr, "input %s\n", path);
	r = read_input(path, &data, &size);
	if (r < 0) {
		printf("not ok %d - %s: %s\n", number, name, strerror(-r));
		return 1;
	}
	LLVMFuzzerTestOneInput(data, size);
	free(data);
	printf("ok %d - %s\n", number, name);
	fflush(stdout);
	return 0;
}

static int visible(const struct dirent *entry)
{
	return entry->d_name[0] != '.';
}

/* Every file of a folder, in the order of names. Returns how many failed. */
static int replay_folder(const char *folder, int *number)
{
	struct dirent **entries;
	char path[4096];
	int i, n, failed = 0;

	n = scandir(folder, &entries, visible, alphasort);
	if (n < 0)
		return 0;
	for (i = 0; i < n; i++) {
		if (snprintf(path, sizeof path, "%s/%s", folder, entries[i]->d_name) < (int)sizeof path)
			failed += replay_file(path, ++*number);
		free(entries[i]);
	}
	free(entries);
	return failed;
}

static int replay_corpus(const char *program, int *number)
{
	const char *top = getenv("top_srcdir"), *base = strrchr(program, '/');
	char folder[4096];

	base = base ? base + 1 : program;
	if (strncmp(base, "fuzz-", 5) == 0)
		base += 5;
	if (snprintf(folder, sizeof folder, "%s/tests/fuzz/corpus/%s", top ? top : ".", base) >= (int)sizeof folder)
		return 1;
	return replay_folder(folder, number);
}

int main(int argc, char **argv)
{
	static const uint8_t nothing[1];
	int i, number = 0, failed = 0;

	LLVMFuzzerTestOneInput(nothing, 0);
	printf("ok %d - empty input\n", ++number);
	if (argc < 2)
		failed += replay_corpus(argv[0], &number);
	for (i = 1; i < argc; i++)
		failed += replay_file(argv[i], ++number);
	printf("1..%d\n", number);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
