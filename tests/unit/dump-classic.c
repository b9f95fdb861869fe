/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * dump-classic FILE...: the header of each as CDL, as "ncdump -h" prints it but for attributes' values, of which it says type
 * and number; then whether the header encodes to the bytes that it had, and where variables begin. For comparison with other
 * programs. The exit status is 1 for a file that is refused; why is on stderr.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "format/codec/classic.h"

static ssize_t read_bytes(void *buf, size_t len, uint64_t off, void *arg)
{
	ssize_t n = pread(*(int *)arg, buf, len, (off_t)off);

	return n < 0 ? -errno : n;
}

static void print_dims(const struct classic *c)
{
	if (c->num_dims > 0)
		printf("dimensions:\n");
	for (uint32_t i = 0; i < c->num_dims; i++) {
		if (i == c->record_dim)
			printf("\t%s = UNLIMITED ; // (%" PRIu64 " currently)\n", c->dims[i].name, c->num_records);
		else
			printf("\t%s = %" PRIu64 " ;\n", c->dims[i].name, c->dims[i].len);
	}
}

static void print_var(const struct classic *c, const struct classic_var *v)
{
	printf("\t%s %s", classic_type_name(v->type), v->name);
	for (uint32_t i = 0; i < v->num_dims; i++)
		printf("%s%s", i > 0 ? ", " : "(", c->dims[v->dims[i]].name);
	printf("%s ;\n", v->num_dims > 0 ? ")" : "");
	for (uint32_t i = 0; i < v->num_atts; i++)
		printf("\t\t%s:%s // %s %" PRIu64 "\n", v->name, v->atts[i].name, classic_type_name(v->atts[i].type),
			v->atts[i].num);
}

static void print_header(const struct classic *c)
{
	print_dims(c);
	if (c->num_vars > 0)
		printf("variables:\n");
	for (uint32_t i = 0; i < c->num_vars; i++)
		print_var(c, &c->vars[i]);
	for (uint32_t i = 0; i < c->num_atts; i++)
		printf("\t\t:%s // %s %" PRIu64 "\n", c->atts[i].name, classic_type_name(c->atts[i].type),
			c->atts[i].num);
}

static int same_bytes(int fd, const struct buf *out)
{
	uint8_t block[4096];
	size_t at = 0;

	while (at < out->len) {
		size_t len = out->len - at < sizeof(block) ? out->len - at : sizeof(block);

		if (pread(fd, block, len, (off_t)at) != (ssize_t)len || memcmp(block, out->data + at, len) != 0)
			return 0;
		at += len;
	}
	return 1;
}

static void print_bytes(const struct classic *c, int fd)
{
	struct buf out = { 0 };
	struct stat st;

	if (classic_encode(c, &out) < 0 || out.len != c->header_bytes)
		printf("// encode: failed\n");
	else
		printf("// encode: %s\n", same_bytes(fd, &out) ? "same" : "differs");
	printf("// header %" PRIu64 " record %" PRIu64 " end %" PRIu64 "\n", c->header_bytes, c->record_bytes,
		classic_file_bytes(c));
	if (c->odd_padding > 0)
		printf("// padding at offset %" PRIu64 " is not zero\n", c->odd_padding);
	if (fstat(fd, &st) == 0 && (uint64_t)st.st_size > classic_file_bytes(c))
		printf("// end: more bytes than that\n");
	for (uint32_t i = 0; i < c->num_vars; i++)
		printf("// %s %" PRIu64 " %" PRIu64 "\n", c->vars[i].name, c->vars[i].begin, c->vars[i].bytes);
	buf_free(&out);
}

static int dump(const char *path)
{
	CLASSIC_CLEANUP struct classic c = { 0 };
	struct cistern_error err = { 0 };
	int fd = open(path, O_RDONLY | O_CLOEXEC), r;

	if (fd < 0) {
		fprintf(stderr, "%s: %s\n", path, strerror(errno));
		return 1;
	}
	r = classic_read(read_bytes, &fd, &c, &err);
	if (r < 0) {
		fprintf(stderr, "%s: %s\n", path, err.text);
	} else {
		print_header(&c);
		print_bytes(&c, fd);
	}
	close(fd);
	return r < 0;
}

int main(int argc, char **argv)
{
	int failed = 0;

	for (int i = 1; i < argc; i++)
		failed |= dump(argv[i]);
	return failed;
}
