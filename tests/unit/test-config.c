/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "format/base/config.h"
#include "format/base/config_hints.h"
#include "format/base/hints.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/lib/tap.h"

static struct config *make(void)
{
	struct config *cfg = NULL;

	if (config_create(&cfg))
		abort();
	return cfg;
}

static void test_defaults(void)
{
	struct config *cfg = make();
	size_t num;
	const struct config_setting *table = config_table(&num);
	char text[64];
	unsigned int bad = 0;

	is_u64(num, CONFIG_NUM, "as many rows as settings");
	for (size_t i = 0; i < num; i++) {
		bad += !table[i].name || !table[i].help || !table[i].default_text;
		bad += (table[i].type == CONFIG_CHOICE) != (table[i].choices != NULL);
		bad += strcmp(config_origin(cfg, i), "default") != 0;
		bad += strcmp(config_text(cfg, i, text, sizeof(text)), table[i].default_text) != 0;
	}
	is_u64(bad, 0, "every row is whole, and its default is printed as it is written");
	is_u64(config_number(cfg, CONFIG_RESERVE), 67108864, "reserve");
	is_u64(config_number(cfg, CONFIG_HIGH_WATER), 70, "high_water");
	is_u64(config_number(cfg, CONFIG_DRAIN), 1, "drain");
	is_u64(config_number(cfg, CONFIG_IDLE_INTERVAL), 5000000, "idle_interval");
	is_u64(config_number(cfg, CONFIG_WRITE_OUT), 1, "write_out");
	is_u64(config_number(cfg, CONFIG_PRIVATE_MIN_FREE), 4294967296, "private_min_free");
	is_u64(config_number(cfg, CONFIG_NODES), 1, "nodes");
	is_u64(config_number(cfg, CONFIG_AGENT_TIMEOUT), 300000000, "agent_timeout");
	is_u64(config_number(cfg, CONFIG_NODE_TIMEOUT), 60000000, "node_timeout");
	is_u64(config_number(cfg, CONFIG_UNMOUNT_TIMEOUT), 1800000000, "unmount_timeout");
	is_str(config_string(cfg, CONFIG_JOB), "", "job");
	is_str(config_string(cfg, CONFIG_STORE), "", "store");
	is_str(config_mount_flags(cfg), "", "mount flags");
	config_destroy(cfg);
	config_destroy(NULL);
}

static void test_options(void)
{
	struct config *cfg = make();
	struct cistern_error err = { 0 };

	is_int(config_parse_options(cfg,
		       "store=/a\\,b\\\\c\\d,high-water=80%,,ro,verify=read,allow_other,idle_interval=0.5,"
		       "capacity=1.5G",
		       "-o", &err),
		0, "options");
	is_str(config_string(cfg, CONFIG_STORE), "/a,b\\c\\d", "escapes");
	is_u64(config_number(cfg, CONFIG_HIGH_WATER), 80, "percent, and '-' for '_'");
	is_u64(config_number(cfg, CONFIG_READ_ONLY), 1, "ro");
	is_u64(config_number(cfg, CONFIG_VERIFY), 2, "choice");
	is_u64(config_number(cfg, CONFIG_ALLOW_OTHER), 1, "a bare boolean");
	is_u64(config_number(cfg, CONFIG_CAPACITY), 1610612736, "size");
	is_u64(config_number(cfg, CONFIG_IDLE_INTERVAL), 500000, "time");
	is_str(config_origin(cfg, CONFIG_VERIFY), "-o", "origin");
	is_str(config_origin(cfg, CONFIG_LOW_WATER), "default", "origin of others");
	is_int(config_parse_options(cfg, "rw,store=", "-o", NULL), 0, "more options");
	is_u64(config_number(cfg, CONFIG_READ_ONLY), 0, "rw");
	is_str(config_string(cfg, CONFIG_STORE), "", "an empty text");
	is_int(config_parse_options(cfg, "", "-o", NULL), 0, "no options");
	config_destroy(cfg);
}

static void test_mount_flags(void)
{
	struct config *cfg = make();

	is_int(config_parse_options(cfg,
		       "rw,nodev,nosuid,noauto,nofail,_netdev,user,users,auto,defaults,user=joe,"
		       "x-systemd.automount,x-a=b,comment=hello there,relatime,noexec,nodev",
		       "-o", NULL),
		0, "what fstab may pass");
	is_str(config_mount_flags(cfg), "nosuid,relatime,noexec,nodev", "the kernel's flags, the last one last");
	is_int(config_parse_options(cfg, "dirsync,sync,noatime", "-o", NULL), 0, "more flags");
	is_str(config_mount_flags(cfg), "nosuid,relatime,noexec,nodev,dirsync,sync,noatime", "they add up");
	config_destroy(cfg);
}

static void fails(const char *options, int code, const char *text)
{
	struct config *cfg = make();
	struct cistern_error err = { 0 };

	is_int(config_parse_options(cfg, options, "-o", &err), code, options);
	is_str(err.text, text, "message");
	is_int(err.code, code, "code");
	is_u64(config_number(cfg, CONFIG_THREADS), 4, "nothing has changed");
	config_destroy(cfg);
}

static void test_errors(void)
{
	char path[5000] = "store=";

	fails("threads=8,hihg_water=3", -EINVAL, "-o: unknown setting 'hihg_water'; did you mean 'high_water'?");
	fails("threads=8,flush_bufer_size=3M", -EINVAL,
		"-o: unknown setting 'flush_bufer_size'; did you mean 'flush_buffer_size'?");
	fails("threads=8,nonsense", -EINVAL, "-o: unknown setting 'nonsense'; 'cistern config' lists all of them");
	fails("threads=8,capacity", -EINVAL, "-o: capacity needs a value, as in capacity=0");
	fails("threads=8,reserve=1K", -ERANGE, "-o: reserve=1K: give a size from 1M to 1024P");
	fails("threads=8,capacity=200", -ERANGE,
		"-o: capacity=200: give 0, or a size from 8M to 1024P; did you mean 200M or 200G?");
	fails("threads=8,segment_size=64", -ERANGE,
		"-o: segment_size=64: give a size from 1M to 1G; did you mean 64M?");
	fails("threads=8,reserve=0", -ERANGE, "-o: reserve=0: give a size from 1M to 1024P");
	fails("threads=8,drain_rate=100", -ERANGE,
		"-o: drain_rate=100: give 0, or a size from 4K to 1024P; did you mean 100K or 100M?");
	fails("threads=8,high_water=101", -ERANGE, "-o: high_water=101: give a percentage from 0 to 100");
	fails("threads=8,threads=65", -ERANGE, "-o: threads=65: give a number from 1 to 64");
	fails("threads=8,idle_interval=2d", -ERANGE, "-o: idle_interval=2d: give a time from 0s to 1d");
	fails("threads=8,drain=now", -EINVAL, "-o: drain=now: give one of idle|watermark|unmount");
	fails("threads=8,drain=idle|watermark", -EINVAL,
		"-o: drain=idle|watermark: give one of idle|watermark|unmount");
	fails("threads=8,write_out=maybe", -EINVAL, "-o: write_out=maybe: give yes or no");
	fails("threads=8,capacity=12\n", -EINVAL, "-o: capacity=12?: give 0, or a size from 8M to 1024P");
	memset(path + 6, 'a', 4096);
	fails(path, -ERANGE, "-o: store: the text is longer than 4095 bytes");
}

static void test_round_trip(void)
{
	struct config *a = make(), *b = make();
	char *options, text_a[64], text_b[64];
	unsigned int bad = 0;

	is_int(config_parse_options(a,
		       "store=/x\\,y\\\\\\,z\\\\,verify=none,capacity=10000000,idle_interval=1.5,low_water=7,"
		       "nodev,log_level=debug,threads=9",
		       "-o", NULL),
		0, "some settings");
	options = config_to_options(a);
	is_int(config_parse_options(b, options, "-o", NULL), 0, options);
	for (size_t i = 0; i < CONFIG_NUM; i++)
		bad += strcmp(config_text(a, i, text_a, sizeof(text_a)), config_text(b, i, text_b, sizeof(text_b))) !=
		       0;
	is_u64(bad, 0, "all values are the same");
	is_str(config_string(a, CONFIG_STORE), config_string(b, CONFIG_STORE), "a text with commas and backslashes");
	is_str(config_mount_flags(b), "nodev", "mount flags are the same");
	free(options);
	config_destroy(a);
	config_destroy(b);
}

static void write_file(const char *path, const char *text, size_t len)
{
	FILE *f = fopen(path, "w");

	if (!f || fwrite(text, 1, len, f) != len || fclose(f))
		abort();
}

static void load_fails(const char *file, const char *text, size_t len, int code, const char *message)
{
	struct config *cfg = make();
	struct cistern_error err = { 0 };
	char expected[256];

	write_file(file, text, len);
	is_int(config_load(cfg, &err), code, message);
	snprintf(expected, sizeof(expected), "%s%s", file, message);
	is_str(err.text, expected, "message");
	config_destroy(cfg);
}

static void test_load(const char *dir)
{
	static const char user[] = "# mine\nhigh_water = 60\nlow_water=20 # twenty\n\n  store = /a#b  \nthreads=2\r\n";
	static const char named[] = "threads = 3\nlow_water = 10";
	struct config *cfg = make();
	struct cistern_error err = { 0 };
	char user_file[300], named_file[300], where[320];

	snprintf(user_file, sizeof(user_file), "%s/cistern.conf", dir);
	snprintf(named_file, sizeof(named_file), "%s/named", dir);
	setenv("XDG_CONFIG_HOME", dir, 1);
	setenv("CISTERN_CONFIG", named_file, 1);
	setenv("CISTERN_LOW_WATER", "5", 1);
	setenv("CISTERN_CAPACITY", "", 1);
	setenv("CISTERN_TEST_ANYTHING", "x", 1);
	write_file(user_file, user, strlen(user));
	is_int(config_load(cfg, &err), -ENOENT, "the named file is missing");
	is_u64(config_number(cfg, CONFIG_HIGH_WATER), 70, "so nothing has changed");
	write_file(named_file, named, strlen(named));
	if (!is_int(config_load(cfg, &err), 0, "load"))
		tap_diag("%s", err.text);
	is_u64(config_number(cfg, CONFIG_HIGH_WATER), 60, "from the user's file");
	snprintf(where, sizeof(where), "%s:2", user_file);
	is_str(config_origin(cfg, CONFIG_HIGH_WATER), where, "and its origin");
	is_str(config_string(cfg, CONFIG_STORE), "/a#b", "a path with a '#'");
	is_u64(config_number(cfg, CONFIG_THREADS), 3, "from the named file");
	is_u64(config_number(cfg, CONFIG_LOW_WATER), 5, "from the environment");
	is_str(config_origin(cfg, CONFIG_LOW_WATER), "CISTERN_LOW_WATER", "and its origin");
	config_destroy(cfg);

	load_fails(named_file, "\nthreads 3\n", 11, -EINVAL, ":2: 'threads 3' is not of the form 'name = value'");
	load_fails(named_file, "thread = 3\n", 11, -EINVAL, ":1: unknown setting 'thread'; did you mean 'threads'?");
	load_fails(named_file, "a\0b", 3, -EINVAL, ":1: longer than 8191 bytes, or not a text");
	unsetenv("CISTERN_CONFIG");
	setenv("CISTERN_HIGH_WATERS", "3", 1);
	cfg = make();
	is_int(config_load(cfg, &err), -EINVAL, "a misspelt variable");
	is_str(err.text, "CISTERN_HIGH_WATERS: no such variable; did you mean the setting 'high_water'?", "message");
	config_destroy(cfg);
	unlink(user_file);
	unlink(named_file);
}

/* Nothing to compare with: the sanitizers judge. */
static void test_noise(void)
{
	static const char letters[] = ",=\\-_. threads=highwater%9Mstore\xff\n";
	struct config *cfg = make();
	struct cistern_error err;
	unsigned int seed = 11;
	char text[80];

	for (int round = 0; round < 20000; round++) {
		size_t len = (size_t)rand_r(&seed) % (sizeof(text) - 1);

		for (size_t i = 0; i < len; i++)
			text[i] = letters[(size_t)rand_r(&seed) % (sizeof(letters) - 1)];
		text[len] = '\0';
		config_parse_options(cfg, text, "-o", &err);
	}
	ok(true, "noise is survived");
	config_destroy(cfg);
}

/* ---- PNETCDF_HINTS */

static char notes[2000];

static void keep_note(const char *text)
{
	strncat(notes, text, sizeof(notes) - strlen(notes) - 2);
	strcat(notes, "\n");
}

static struct config *hinted(const char *hints, const char *options)
{
	struct config *cfg = make();

	notes[0] = '\0';
	is_int(config_hints_load(cfg, hints, NULL), 0, "hints");
	is_int(config_parse_options(cfg, options, "-o", NULL), 0, "options");
	is_int(config_hints_apply(cfg, hints, keep_note, NULL), 0, "what they mean");
	return cfg;
}

static void test_hints(void)
{
	const char *all =
		"nc_burst_buf=Enable; nc_burst_buf_dirname = /bb ;cb_nodes=4;nc_burst_buf_flush_buffer_size=0x200000;"
		"nc_burst_buf_del_on_close=disable;nc_burst_buf_overwrite=enable;nc_burst_buf_shared_logs=disable;";
	struct config *cfg = hinted(all, "");
	char text[64];

	is_str(config_string(cfg, CONFIG_STORE), "/bb/cistern", "the log directory has the store");
	is_str(config_origin(cfg, CONFIG_STORE), "PNETCDF_HINTS: nc_burst_buf_dirname", "where it came from");
	is_u64(config_number(cfg, CONFIG_FLUSH_BUFFER_SIZE), 2097152, "memory of a flush");
	is_str(config_text(cfg, CONFIG_NC_BURST_BUF, text, sizeof(text)), "enable", "a word in any case");
	is_str(config_origin(cfg, CONFIG_NC_BURST_BUF), "PNETCDF_HINTS", "origin of a hint");
	ok(strstr(notes, "del_on_close: disable has no") && strstr(notes, "overwrite: enable has no") &&
			strstr(notes, "shared_logs: disable has no") && !strstr(notes, "nc_burst_buf:"),
		"what has no meaning is said: %s", notes);
	config_destroy(cfg);

	cfg = hinted("nc_burst_buf_dirname=/bb;nc_burst_buf_flush_buffer_size=5000000",
		"store=/mine,flush_buffer_size=3M,nc_burst_buf=disable");
	is_str(config_string(cfg, CONFIG_STORE), "/mine", "a setting of its own comes first");
	is_u64(config_number(cfg, CONFIG_FLUSH_BUFFER_SIZE), 3145728, "also for memory");
	ok(strstr(notes, "not used, since the setting store") && strstr(notes, "since flush_buffer_size") &&
			strstr(notes, "-o: nc_burst_buf: disable has no"),
		"and that is said: %s", notes);
	config_destroy(cfg);

	cfg = hinted(
		"x;nc_burst_buf_dirname=/a;nc_burst_buf_dirname=/b/;nc_burst_buf_overwrite=yes;nc_burst_buf_flush_buffer_size=-7",
		"");
	is_str(config_string(cfg, CONFIG_STORE), "/b/cistern", "the last one counts");
	is_u64(config_number(cfg, CONFIG_FLUSH_BUFFER_SIZE), 67108864, "no limit: ours");
	ok(strstr(notes, "'x' is not of the form") && strstr(notes, "overwrite=yes is neither") &&
			strstr(notes, "0 is no limit"),
		"what PnetCDF skips is said: %s", notes);
	config_destroy(cfg);

	cfg = hinted("nc_burst_buf_flush_buffer_size=1000", "");
	is_u64(config_number(cfg, CONFIG_FLUSH_BUFFER_SIZE), 1048576, "too little is raised");
	ok(strstr(notes, "raised") != NULL, "%s", notes);
	config_destroy(cfg);

	cfg = hinted("nc_burst_buf_dirnam=/bb; nc_bust_buf=enable;x=;NC_BURST_BUF_OVERWRITE=enable", "");
	is_str(config_string(cfg, CONFIG_STORE), "", "a misspelt hint sets nothing");
	ok(strstr(notes, "'nc_burst_buf_dirnam' is no hint") && strstr(notes, "'nc_bust_buf' is no hint") &&
			strstr(notes, "'NC_BURST_BUF_OVERWRITE' is no hint") &&
			strstr(notes, "these are: nc_burst_buf, nc_burst_buf_dirname, "),
		"and that is said: %s", notes);
	config_destroy(cfg);

	/* Hints of PnetCDF 1.14's manual and of ROMIO's are none of ours. */
	cfg = hinted(
		"nc_var_align_size=1;nc_header_align_size=512;nc_record_align_size=4;nc_header_read_chunk_size=8192;"
		"nc_in_place_swap=auto;nc_ibuf_size=1;pnetcdf_subfiling=disable;nc_num_subfiles=2;nc_hash_size_dim=1;"
		"nc_num_aggrs_per_node=2;cb_nodes=4;cb_buffer_size=1;romio_cb_write=enable;romio_ds_write=disable;"
		"striping_factor=4;striping_unit=1;ind_wr_buffer_size=1",
		"");
	is_str(notes, "", "hints of others are not told of");
	config_destroy(cfg);
	cfg = hinted(NULL, "");
	is_str(notes, "", "without hints nothing is said");
	is_str(config_string(cfg, CONFIG_STORE), "", "nor done");
	config_destroy(cfg);
}

/* By PnetCDF's own rule: words between blanks and '=', two of them. */
static void test_hint_words(void)
{
	char out[16] = "unchanged";

	ok(hints_find("a=1;b = 2 ;;a=3", "a", out, sizeof(out)) && strcmp(out, "3") == 0, "the last one");
	ok(hints_find("a=1;b = 2 ;;a=3", "b", out, sizeof(out)) && strcmp(out, "2") == 0, "blanks");
	ok(!hints_find("ab=1", "a", out, sizeof(out)) && !hints_find("a b=1", "a", out, sizeof(out)) &&
			!hints_find("a=1=2", "a", out, sizeof(out)) && !hints_find("a", "a", out, sizeof(out)) &&
			!hints_find("a=", "a", out, sizeof(out)) && !hints_find("=a", "a", out, sizeof(out)) &&
			!hints_find("", "a", out, sizeof(out)) && !hints_find(NULL, "a", out, sizeof(out)),
		"what is not of the form");
	ok(!hints_malformed("a=1; ;b=2", out, sizeof(out)) && hints_malformed("a=1;b;", out, sizeof(out)) &&
			strcmp(out, "b") == 0,
		"is found");
	ok(hints_find("a=12345678901234567890", "a", out, sizeof(out)) && strlen(out) == 15, "long values are cut");
}

int main(void)
{
	char dir[] = "/tmp/test-config-XXXXXX";

	test_defaults();
	test_options();
	test_mount_flags();
	test_errors();
	test_round_trip();
	test_hints();
	test_hint_words();
	if (!mkdtemp(dir))
		return 1;
	test_load(dir);
	rmdir(dir);
	test_noise();
	return done_testing();
}
