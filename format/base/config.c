/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * The table of settings and the values that one program has. Invariant: every value in a struct config is within the
 * limits of its row, so that readers need no checks. All parsing goes through config_set(); whoever sets several at
 * once works on a copy and swaps, so that a typing error changes nothing. How settings relate to one another (low
 * water below high water) is for the program that uses them: here every order of setting them is allowed.
 */
#include "format/base/config.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "format/base/config_hints.h"
#include "format/base/config_words.h"
#include "format/base/hints.h"
#include "format/base/units.h"

#define K          UINT64_C(1024)
#define M          (1024 * K)
#define G          (1024 * M)
#define T          (1024 * G)
#define BYTES_MAX  (UINT64_C(1) << 60)
#define MSEC       UINT64_C(1000)
#define SEC        (1000 * MSEC)
#define DAY        (24 * 3600 * SEC)
#define MILLION    UINT64_C(1000000)
#define STRING_MAX 4095 /* PATH_MAX without its NUL */

#define SYSTEM_FILE "/etc/cistern.conf"
#define USER_FILE   "cistern.conf"
#define LINE_BYTES  8192
#define LINES_MAX   10000
#define TEXT_BYTES  64 /* any number, or the longest choice */

#define UNITLESS_MAX 16 /* digits of a size that somebody may have meant with a unit */

#define NUM_OF(a)  (sizeof(a) / sizeof((a)[0]))
#define CLEANUP(f) __attribute__((cleanup(f)))

/* clang-format off */
static const struct config_setting settings[CONFIG_NUM] = {
	[CONFIG_STORE] = { "store", CONFIG_STRING, 0, STRING_MAX, NULL, "",
		"The store: a directory on a disk of this node, where written data waits." },
	[CONFIG_MANIFEST] = { "manifest", CONFIG_STRING, 0, STRING_MAX, NULL, "",
		"Where a copy of the manifest goes besides the store; empty: nowhere." },
	[CONFIG_CAPACITY] = { "capacity", CONFIG_BYTES_OR_0, 8 * M, BYTES_MAX, NULL, "0",
		"The store may hold so much; 0: all that its file system has, less the reserve." },
	[CONFIG_RESERVE] = { "reserve", CONFIG_BYTES, M, BYTES_MAX, NULL, "64M",
		"Kept free on the store's file system." },
	[CONFIG_HIGH_WATER] = { "high_water", CONFIG_PERCENT, 0, 100, NULL, "70",
		"Percent of the capacity at which the background drain starts." },
	[CONFIG_LOW_WATER] = { "low_water", CONFIG_PERCENT, 0, 100, NULL, "40",
		"Percent of the capacity at which the background drain stops." },
	[CONFIG_DRAIN] = { "drain", CONFIG_CHOICE, 0, 2, "idle|watermark|unmount", "watermark",
		"When data moves to the backing directory by itself: as soon as writers pause, from the high-water mark "
		"on, or at unmount." },
	[CONFIG_IDLE_INTERVAL] = { "idle_interval", CONFIG_USEC, 0, DAY, NULL, "5s",
		"Time without writes before drain=idle begins." },
	[CONFIG_DRAIN_RATE] = { "drain_rate", CONFIG_BYTES_OR_0, 4 * K, BYTES_MAX, NULL, "0",
		"Bytes per second that the background drain may write; 0: no limit." },
	[CONFIG_DRAIN_SHARE] = { "drain_share", CONFIG_PERCENT, 1, 100, NULL, "50",
		"Percent of the time that a drain works while applications write; 100: it makes no way for them." },
	[CONFIG_FLUSH_BUFFER_SIZE] = { "flush_buffer_size", CONFIG_BYTES, M, T, NULL, "64M",
		"Memory that a drain uses for data." },
	[CONFIG_VERIFY] = { "verify", CONFIG_CHOICE, 0, 3, "none|size|read|format", "size",
		"How a drained file is checked: not at all, by its size, by reading all of it back, or so and that it opens as the netCDF or HDF5 file that it begins like." },
	[CONFIG_DATA] = { "data", CONFIG_CHOICE, 0, 2, "auto|log|private", "auto",
		"How written bytes reach the store: through the log, or into a segment of the file's own." },
	[CONFIG_PRIVATE_MIN_FREE] = { "private_min_free", CONFIG_BYTES_OR_0, M, BYTES_MAX, NULL, "4G",
		"Room that the store must have for private segments to be used." },
	[CONFIG_SMALL_FILE] = { "small_file", CONFIG_BYTES_OR_0, K, G, NULL, "64K",
		"Files up to this size are packed in the log when their directory shows a habit of small files." },
	[CONFIG_SEGMENT_SIZE] = { "segment_size", CONFIG_BYTES, M, G, NULL, "64M",
		"Size of one data segment." },
	[CONFIG_JOURNAL_SIZE] = { "journal_size", CONFIG_BYTES, 64 * K, 256 * M, NULL, "16M",
		"Size of one journal file." },
	[CONFIG_INDEX_MEMORY] = { "index_memory", CONFIG_BYTES, 8 * M, T, NULL, "256M",
		"Memory for the index." },
	[CONFIG_CHECKPOINT_INTERVAL] = { "checkpoint_interval", CONFIG_USEC, 10 * MSEC, DAY, NULL, "10s",
		"Time between checkpoints of the index while there are changes." },
	[CONFIG_STAGING] = { "staging", CONFIG_BYTES_OR_0, 4 * M, G, NULL, "32M",
		"Shared memory in which large writes to the log are acknowledged before the device has them; 0: none." },
	[CONFIG_WRITE_OUT] = { "write_out", CONFIG_BOOL, 0, 1, NULL, "yes",
		"Start writing the log to the device early, before anybody asks for it." },
	[CONFIG_THREADS] = { "threads", CONFIG_COUNT, 1, 64, NULL, "4",
		"Threads that answer requests of the kernel." },
	[CONFIG_BACKING_TIMEOUT] = { "backing_timeout", CONFIG_USEC, 0, DAY, NULL, "1s",
		"Changes that others make in the backing directory (names, attributes, bytes) are seen after this time at the "
		"latest. 0: reads ask the backing directory each time and do not use the page cache." },
	[CONFIG_FULL_TIMEOUT] = { "full_timeout", CONFIG_USEC, 0, DAY, NULL, "2s",
		"Time that a writer waits for room in a full store before it writes through." },
	[CONFIG_ALLOW_OTHER] = { "allow_other", CONFIG_BOOL, 0, 1, NULL, "no",
		"Other users may use the mount. Mounts of root: yes, unless this is set." },
	[CONFIG_ALLOW_ROOT] = { "allow_root", CONFIG_BOOL, 0, 1, NULL, "no",
		"Root may use the mount, besides its owner." },
	[CONFIG_READ_ONLY] = { "read_only", CONFIG_BOOL, 0, 1, NULL, "no",
		"No changes through the mount (also: ro)." },
	[CONFIG_NODES] = { "nodes", CONFIG_COUNT, 1, 65536, NULL, "1",
		"How many mounts make up the job, one on each of its nodes; 1: this one alone." },
	[CONFIG_JOB] = { "job", CONFIG_STRING, 0, 255, NULL, "",
		"The job's id, the same for all its mounts; it is kept in the stores." },
	[CONFIG_VISIBLE] = { "visible", CONFIG_CHOICE, 0, 2, "close|read|write", "read",
		"When a job's other nodes see what a node writes to a file that they have open: when it is closed or synced; that or, through what is open for reading and writing, when they read; at once." },
	[CONFIG_AGENT_TIMEOUT] = { "agent_timeout", CONFIG_USEC, 100 * MSEC, DAY, NULL, "5m",
		"Time that a call waits for the other nodes of the job." },
	[CONFIG_NODE_TIMEOUT] = { "node_timeout", CONFIG_USEC, 100 * MSEC, DAY, NULL, "1m",
		"Time after which a node whose daemon does not come back to the others is given up." },
	[CONFIG_UNMOUNT_TIMEOUT] = { "unmount_timeout", CONFIG_USEC, 0, DAY, NULL, "30m",
		"Time that an unmounted node of a job waits for the others to be unmounted." },
	[CONFIG_LOG_LEVEL] = { "log_level", CONFIG_CHOICE, 0, 3, "error|warning|info|debug", "info",
		"The least important messages that are logged." },
	[CONFIG_NC_BURST_BUF] = { "nc_burst_buf", CONFIG_CHOICE, 0, 1, "disable|enable", "disable",
		"A hint of PnetCDF, which may also stand in PNETCDF_HINTS, as the others below. A mount always buffers." },
	[CONFIG_NC_BURST_BUF_DIRNAME] = { "nc_burst_buf_dirname", CONFIG_STRING, 0, STRING_MAX, NULL, "./",
		"PnetCDF's directory for logs: when it is set, and store is not, the store is the folder cistern in it." },
	[CONFIG_NC_BURST_BUF_DEL_ON_CLOSE] = { "nc_burst_buf_del_on_close", CONFIG_CHOICE, 0, 1, "disable|enable", "enable",
		"Whether PnetCDF deletes its logs. What a mount has drained is always given back." },
	[CONFIG_NC_BURST_BUF_FLUSH_BUFFER_SIZE] = { "nc_burst_buf_flush_buffer_size", CONFIG_BYTES, 0, T, NULL, "0",
		"PnetCDF's limit of memory for a flush: becomes flush_buffer_size when that is not set; 0: no limit." },
	[CONFIG_NC_BURST_BUF_OVERWRITE] = { "nc_burst_buf_overwrite", CONFIG_CHOICE, 0, 1, "disable|enable", "disable",
		"Whether PnetCDF overwrites logs that it finds. A mount always continues a store that has data." },
	[CONFIG_NC_BURST_BUF_SHARED_LOGS] = { "nc_burst_buf_shared_logs", CONFIG_CHOICE, 0, 1, "disable|enable", "disable",
		"Whether PnetCDF has one log for all processes of a node. A mount always has one store for all." },
	[CONFIG_LAYOUT] = { "layout", CONFIG_STRING, 0, STRING_MAX, NULL, "canonical",
		"In which layout drained files lie: canonical, netcdf4, blob-variable or blob-process, or rules PATTERN=LAYOUT;... for some of them." },
	[CONFIG_NUM_SUBFILES] = { "num_subfiles", CONFIG_COUNT, 1, 65536, NULL, "1",
		"Into how many subfiles a file in blob layout is divided, each of some of its processes; in a job each node has at least one." },
	[CONFIG_CHUNK] = { "chunk", CONFIG_STRING, 0, STRING_MAX, NULL, "",
		"Lengths of chunks in netCDF-4 files: DIMENSION:NUMBER or VARIABLE:DIMENSION:NUMBER, with / between; "
		"empty: chosen for each variable." },
	[CONFIG_DEFLATE] = { "deflate", CONFIG_COUNT, 0, 9, NULL, "1",
		"How hard netCDF-4 files are compressed, 0 to 9." },
	[CONFIG_SHUFFLE] = { "shuffle", CONFIG_BOOL, 0, 1, NULL, "yes",
		"Shuffle the bytes of values in netCDF-4 files before they are compressed." },
	[CONFIG_CONVERT_THREADS] = { "convert_threads", CONFIG_COUNT, 0, 256, NULL, "0",
		"Threads of a drain that compress a file; 0: one for each processor." },
	[CONFIG_CONVERT_SHARE] = { "convert_share", CONFIG_BYTES_OR_0, 64 * K, BYTES_MAX, NULL, "64M",
		"Bytes of a file that is converted in a job for each node that works on it; 0: its home works alone." },
	[CONFIG_MDC_VERSION] = { "mdc.version", CONFIG_COUNT, 1, 1, NULL, "1",
		"HDF5's metadata cache: version of this list." },
	[CONFIG_MDC_RPT_FCN_ENABLED] = { "mdc.rpt_fcn_enabled", CONFIG_BOOL, 0, 1, NULL, "no",
		"HDF5's metadata cache: report its changes of size in the log." },
	[CONFIG_MDC_OPEN_TRACE_FILE] = { "mdc.open_trace_file", CONFIG_BOOL, 0, 1, NULL, "no",
		"HDF5's metadata cache: write a trace to mdc.trace_file_name." },
	[CONFIG_MDC_CLOSE_TRACE_FILE] = { "mdc.close_trace_file", CONFIG_BOOL, 0, 1, NULL, "no",
		"HDF5's metadata cache: end a trace that is being written." },
	[CONFIG_MDC_TRACE_FILE_NAME] = { "mdc.trace_file_name", CONFIG_STRING, 0, 1024, NULL, "",
		"HDF5's metadata cache: where a trace goes." },
	[CONFIG_MDC_EVICTIONS_ENABLED] = { "mdc.evictions_enabled", CONFIG_BOOL, 0, 1, NULL, "yes",
		"HDF5's metadata cache: entries may be evicted; no: only with all three modes off." },
	[CONFIG_MDC_SET_INITIAL_SIZE] = { "mdc.set_initial_size", CONFIG_BOOL, 0, 1, NULL, "yes",
		"HDF5's metadata cache: begin with mdc.initial_size." },
	[CONFIG_MDC_INITIAL_SIZE] = { "mdc.initial_size", CONFIG_BYTES, K, 128 * M, NULL, "2M",
		"HDF5's metadata cache: size at the beginning." },
	[CONFIG_MDC_MIN_CLEAN_FRACTION] = { "mdc.min_clean_fraction", CONFIG_REAL, 0, MILLION, NULL, "0.3",
		"HDF5's metadata cache: fraction that is kept clean or empty." },
	[CONFIG_MDC_MAX_SIZE] = { "mdc.max_size", CONFIG_BYTES, K, 128 * M, NULL, "32M",
		"HDF5's metadata cache: largest size." },
	[CONFIG_MDC_MIN_SIZE] = { "mdc.min_size", CONFIG_BYTES, K, 128 * M, NULL, "1M",
		"HDF5's metadata cache: smallest size." },
	[CONFIG_MDC_EPOCH_LENGTH] = { "mdc.epoch_length", CONFIG_COUNT, 100, 1000000, NULL, "50000",
		"HDF5's metadata cache: accesses between two looks at the size." },
	[CONFIG_MDC_INCR_MODE] = { "mdc.incr_mode", CONFIG_CHOICE, 0, 1, "off|threshold", "threshold",
		"HDF5's metadata cache: how it grows." },
	[CONFIG_MDC_LOWER_HR_THRESHOLD] = { "mdc.lower_hr_threshold", CONFIG_REAL, 0, MILLION, NULL, "0.9",
		"HDF5's metadata cache: hit rate below which it grows." },
	[CONFIG_MDC_INCREMENT] = { "mdc.increment", CONFIG_REAL, MILLION, 1000 * MILLION, NULL, "2",
		"HDF5's metadata cache: factor by which it grows." },
	[CONFIG_MDC_APPLY_MAX_INCREMENT] = { "mdc.apply_max_increment", CONFIG_BOOL, 0, 1, NULL, "yes",
		"HDF5's metadata cache: growth is limited by mdc.max_increment." },
	[CONFIG_MDC_MAX_INCREMENT] = { "mdc.max_increment", CONFIG_BYTES, 0, 128 * M, NULL, "4M",
		"HDF5's metadata cache: most that it grows at once." },
	[CONFIG_MDC_FLASH_INCR_MODE] = { "mdc.flash_incr_mode", CONFIG_CHOICE, 0, 1, "off|add_space", "add_space",
		"HDF5's metadata cache: how it grows at once for large entries." },
	[CONFIG_MDC_FLASH_MULTIPLE] = { "mdc.flash_multiple", CONFIG_REAL, MILLION / 10, 10 * MILLION, NULL, "1",
		"HDF5's metadata cache: factor from the entry's size to that growth." },
	[CONFIG_MDC_FLASH_THRESHOLD] = { "mdc.flash_threshold", CONFIG_REAL, MILLION / 10, MILLION, NULL, "0.25",
		"HDF5's metadata cache: fraction of the size from which an entry is large." },
	[CONFIG_MDC_DECR_MODE] = { "mdc.decr_mode", CONFIG_CHOICE, 0, 3, "off|threshold|age_out|age_out_with_threshold", "age_out_with_threshold",
		"HDF5's metadata cache: how it shrinks." },
	[CONFIG_MDC_UPPER_HR_THRESHOLD] = { "mdc.upper_hr_threshold", CONFIG_REAL, 0, MILLION, NULL, "0.999",
		"HDF5's metadata cache: hit rate above which it shrinks." },
	[CONFIG_MDC_DECREMENT] = { "mdc.decrement", CONFIG_REAL, 0, MILLION, NULL, "0.9",
		"HDF5's metadata cache: factor by which it shrinks." },
	[CONFIG_MDC_APPLY_MAX_DECREMENT] = { "mdc.apply_max_decrement", CONFIG_BOOL, 0, 1, NULL, "yes",
		"HDF5's metadata cache: shrinking is limited by mdc.max_decrement." },
	[CONFIG_MDC_MAX_DECREMENT] = { "mdc.max_decrement", CONFIG_BYTES, 0, 128 * M, NULL, "1M",
		"HDF5's metadata cache: most that it shrinks at once." },
	[CONFIG_MDC_EPOCHS_BEFORE_EVICTION] = { "mdc.epochs_before_eviction", CONFIG_COUNT, 1, 10, NULL, "3",
		"HDF5's metadata cache: epochs without access before an entry is old." },
	[CONFIG_MDC_APPLY_EMPTY_RESERVE] = { "mdc.apply_empty_reserve", CONFIG_BOOL, 0, 1, NULL, "yes",
		"HDF5's metadata cache: shrinking leaves mdc.empty_reserve." },
	[CONFIG_MDC_EMPTY_RESERVE] = { "mdc.empty_reserve", CONFIG_REAL, 0, MILLION, NULL, "0.1",
		"HDF5's metadata cache: fraction that is left empty." },
	[CONFIG_MDC_DIRTY_BYTES_THRESHOLD] = { "mdc.dirty_bytes_threshold", CONFIG_BYTES, 512, 32 * M, NULL, "256K",
		"HDF5's metadata cache: changes between two meetings of processes." },
	[CONFIG_MDC_METADATA_WRITE_STRATEGY] = { "mdc.metadata_write_strategy", CONFIG_CHOICE, 0, 1, "process_0_only|distributed", "distributed",
		"HDF5's metadata cache: who writes entries, of several processes." },
};
/* clang-format on */

static const char *const yes_words[] = { "yes", "true", "on", "1" };
static const char *const no_words[] = { "no", "false", "off", "0" };

struct value {
	uint64_t number;
	char *string; /* owned; CONFIG_STRING only, else NULL */
	char *origin; /* owned; NULL: default */
};

struct config {
	struct value values[CONFIG_NUM];
	char *mount_flags; /* owned, NULL: none */
};

const struct config_setting *config_table(size_t *ret_num)
{
	if (ret_num)
		*ret_num = CONFIG_NUM;
	return settings;
}

static void free_cleanup(char **p)
{
	free(*p);
}

static void file_cleanup(FILE **f)
{
	if (*f)
		fclose(*f);
}

/* ---- one value: from text and to text ---- */

static bool among(const char *text, const char *const *words, size_t num)
{
	for (size_t i = 0; i < num; i++)
		if (strcmp(text, words[i]) == 0)
			return true;
	return false;
}

static int parse_bool(const char *text, uint64_t *ret)
{
	bool yes = among(text, yes_words, NUM_OF(yes_words));

	if (!yes && !among(text, no_words, NUM_OF(no_words)))
		return -EINVAL;
	*ret = yes;
	return 0;
}

/* The index of text in "a|b|c". */
static int parse_choice(const char *choices, const char *text, uint64_t *ret)
{
	size_t len = strlen(text);
	uint64_t i = 0;

	for (const char *p = choices; p; i++) {
		size_t n = strcspn(p, "|");

		if (n == len && memcmp(p, text, n) == 0) {
			*ret = i;
			return 0;
		}
		p = p[n] ? p + n + 1 : NULL;
	}
	return -EINVAL;
}

static int parse_percent(const char *text, uint64_t *ret)
{
	size_t len = strlen(text);
	char digits[TEXT_BYTES];

	if (len >= sizeof(digits))
		return -EINVAL;
	memcpy(digits, text, len + 1);
	if (len > 0 && digits[len - 1] == '%')
		digits[len - 1] = '\0';
	return units_parse_u64(digits, ret);
}

static int parse_number(const struct config_setting *s, const char *text, uint64_t *ret)
{
	uint64_t v = 0;
	int r = -EINVAL;

	switch (s->type) {
	case CONFIG_BYTES:
	case CONFIG_BYTES_OR_0: r = units_parse_bytes(text, &v); break;
	case CONFIG_USEC: r = units_parse_usec(text, &v); break;
	case CONFIG_COUNT: r = units_parse_u64(text, &v); break;
	case CONFIG_PERCENT: r = parse_percent(text, &v); break;
	case CONFIG_REAL: r = units_parse_millionths(text, &v); break;
	case CONFIG_BOOL: r = parse_bool(text, &v); break;
	case CONFIG_CHOICE: r = parse_choice(s->choices, text, &v); break;
	case CONFIG_STRING: break;
	}
	if (r)
		return r;
	if ((v < s->min && !(v == 0 && s->type == CONFIG_BYTES_OR_0)) || v > s->max)
		return -ERANGE;
	*ret = v;
	return 0;
}

static const char *number_text(const struct config_setting *s, uint64_t v, char *out, size_t cap)
{
	char text[UNITS_TEXT];
	const char *p = s->choices;

	switch (s->type) {
	case CONFIG_BYTES:
	case CONFIG_BYTES_OR_0: snprintf(out, cap, "%s", units_exact_bytes(v, text)); break;
	case CONFIG_USEC: snprintf(out, cap, "%s", units_exact_usec(v, text)); break;
	case CONFIG_REAL: snprintf(out, cap, "%s", units_exact_millionths(v, text)); break;
	case CONFIG_BOOL: snprintf(out, cap, "%s", v ? "yes" : "no"); break;
	case CONFIG_CHOICE:
		for (; v > 0; v--)
			p += strcspn(p, "|") + 1;
		snprintf(out, cap, "%.*s", (int)strcspn(p, "|"), p);
		break;
	default: snprintf(out, cap, "%" PRIu64, v); break;
	}
	return out;
}

static bool is_size(const struct config_setting *s)
{
	return s->type == CONFIG_BYTES || s->type == CONFIG_BYTES_OR_0;
}

/* "; did you mean 200M or 200G?" when text is a size that lacks its unit; else "". */
static const char *missing_unit(const struct config_setting *s, const char *text, char *out, size_t cap)
{
	static const char units[] = "KMGT";
	size_t n = 0;
	unsigned int found = 0;

	*out = '\0';
	if (!is_size(s) || strlen(text) > UNITLESS_MAX || !*text || text[strspn(text, "0123456789")])
		return out;
	for (const char *unit = units; *unit && found < 2; unit++) {
		char with[UNITLESS_MAX + 2];
		uint64_t v;

		snprintf(with, sizeof(with), "%s%c", text, *unit);
		if (units_parse_bytes(with, &v) < 0 || v < s->min || v > s->max)
			continue;
		n += (size_t)snprintf(out + n, cap - n, "%s%s", found++ ? " or " : "; did you mean ", with);
	}
	if (found)
		snprintf(out + n, cap - n, "?");
	return out;
}

static int value_error(
	const struct config_setting *s, const char *value, const char *where, int code, struct cistern_error *err)
{
	static const char *const kinds[] = {
		[CONFIG_BYTES] = "a size",
		[CONFIG_BYTES_OR_0] = "0, or a size",
		[CONFIG_USEC] = "a time",
		[CONFIG_COUNT] = "a number",
		[CONFIG_PERCENT] = "a percentage",
		[CONFIG_REAL] = "a decimal number",
	};
	char min[TEXT_BYTES], max[TEXT_BYTES], meant[2 * TEXT_BYTES];

	if (s->type == CONFIG_STRING)
		return cistern_error_set(
			err, code, "%s: %s: the text is longer than %" PRIu64 " bytes", where, s->name, s->max);
	if (s->type == CONFIG_BOOL)
		return cistern_error_set(err, code, "%s: %s=%s: give yes or no", where, s->name, value);
	if (s->type == CONFIG_CHOICE)
		return cistern_error_set(err, code, "%s: %s=%s: give one of %s", where, s->name, value, s->choices);
	return cistern_error_set(err, code, "%s: %s=%s: give %s from %s to %s%s", where, s->name, value, kinds[s->type],
		number_text(s, s->min, min, sizeof(min)), number_text(s, s->max, max, sizeof(max)),
		code == -ERANGE ? missing_unit(s, value, meant, sizeof(meant)) : "");
}

/* ---- the whole ---- */

int config_create(struct config **ret)
{
	struct config *cfg = calloc(1, sizeof(*cfg));

	if (!cfg)
		return -ENOMEM;
	for (size_t i = 0; i < CONFIG_NUM; i++) {
		struct value *v = &cfg->values[i];
		int r;

		if (settings[i].type == CONFIG_STRING)
			r = (v->string = strdup(settings[i].default_text)) ? 0 : -ENOMEM;
		else
			r = parse_number(&settings[i], settings[i].default_text, &v->number);
		if (r) {
			config_destroy(cfg);
			return r;
		}
	}
	*ret = cfg;
	return 0;
}

void config_destroy(struct config *cfg)
{
	if (!cfg)
		return;
	for (size_t i = 0; i < CONFIG_NUM; i++) {
		free(cfg->values[i].string);
		free(cfg->values[i].origin);
	}
	free(cfg->mount_flags);
	free(cfg);
}

static void config_cleanup(struct config **cfg)
{
	config_destroy(*cfg);
}

/* *ret = a copy of text; NULL stays NULL. */
static int copy_text(const char *text, char **ret)
{
	*ret = text ? strdup(text) : NULL;
	return text && !*ret ? -ENOMEM : 0;
}

static int config_copy(const struct config *from, struct config **ret)
{
	struct config *cfg = calloc(1, sizeof(*cfg));
	int r;

	if (!cfg)
		return -ENOMEM;
	r = copy_text(from->mount_flags, &cfg->mount_flags);
	for (size_t i = 0; i < CONFIG_NUM && !r; i++) {
		cfg->values[i].number = from->values[i].number;
		r = copy_text(from->values[i].string, &cfg->values[i].string);
		if (!r)
			r = copy_text(from->values[i].origin, &cfg->values[i].origin);
	}
	if (r) {
		config_destroy(cfg);
		return r;
	}
	*ret = cfg;
	return 0;
}

static void config_swap(struct config *a, struct config *b)
{
	struct config c = *a;

	*a = *b;
	*b = c;
}

uint64_t config_number(const struct config *cfg, enum config_id id)
{
	return cfg->values[id].number;
}

const char *config_string(const struct config *cfg, enum config_id id)
{
	return cfg->values[id].string ? cfg->values[id].string : "";
}

const char *config_text(const struct config *cfg, enum config_id id, char *out, size_t cap)
{
	if (settings[id].type != CONFIG_STRING)
		return number_text(&settings[id], cfg->values[id].number, out, cap);
	snprintf(out, cap, "%s", config_string(cfg, id));
	return out;
}

const char *config_origin(const struct config *cfg, enum config_id id)
{
	return cfg->values[id].origin ? cfg->values[id].origin : "default";
}

const char *config_mount_flags(const struct config *cfg)
{
	return cfg->mount_flags ? cfg->mount_flags : "";
}

/* ---- setting one ---- */

static int unknown_error(const char *name, const char *where, struct cistern_error *err)
{
	const char *nearest = config_words_nearest(name);

	if (nearest)
		return cistern_error_set(
			err, -EINVAL, "%s: unknown setting '%.100s'; did you mean '%s'?", where, name, nearest);
	return cistern_error_set(
		err, -EINVAL, "%s: unknown setting '%.100s'; 'cistern config' lists all of them", where, name);
}

int config_set(struct config *cfg, const char *name, const char *value, const char *where, struct cistern_error *err)
{
	CLEANUP(free_cleanup) char *string = NULL, *origin = NULL;
	int id = config_words_find(name);
	struct value *v;
	uint64_t number = 0;
	int r = 0;

	if (id < 0)
		return unknown_error(name, where, err);
	if (settings[id].type != CONFIG_STRING)
		r = parse_number(&settings[id], value, &number);
	else if (strlen(value) > settings[id].max)
		r = -ERANGE;
	if (r)
		return value_error(&settings[id], value, where, r, err);
	origin = strdup(where);
	if (settings[id].type == CONFIG_STRING)
		string = strdup(value);
	if (!origin || (settings[id].type == CONFIG_STRING && !string))
		return cistern_error_set(err, -ENOMEM, "%s: out of memory", where);
	v = &cfg->values[id];
	free(v->string);
	free(v->origin);
	*v = (struct value){ .number = number, .string = string, .origin = origin };
	string = origin = NULL;
	return 0;
}

/* ---- -o options ---- */

/* Cuts the first option off *rest, in place: up to a comma that no backslash protects, the escapes undone. */
static char *next_option(char **rest)
{
	char *begin = *rest, *from = begin, *to = begin;

	if (!begin)
		return NULL;
	for (; *from && *from != ','; from++) {
		if (*from == '\\' && (from[1] == ',' || from[1] == '\\'))
			from++;
		*to++ = *from;
	}
	*rest = *from ? from + 1 : NULL;
	*to = '\0';
	return begin;
}

/* The last word counts for the kernel, so a flag given again moves to the end. */
static int add_mount_flag(struct config *cfg, const char *flag)
{
	CLEANUP(free_cleanup) char *old = strdup(config_mount_flags(cfg));
	char *save = NULL, *text;
	size_t cap;

	if (!old)
		return -ENOMEM;
	cap = strlen(old) + strlen(flag) + 2;
	text = calloc(1, cap);
	if (!text)
		return -ENOMEM;
	for (char *f = strtok_r(old, ",", &save); f; f = strtok_r(NULL, ",", &save)) {
		if (strcmp(f, flag) == 0)
			continue;
		strcat(text, f);
		strcat(text, ",");
	}
	strcat(text, flag);
	free(cfg->mount_flags);
	cfg->mount_flags = text;
	return 0;
}

static int apply_option(struct config *cfg, char *option, const char *where, struct cistern_error *err)
{
	char *value = strchr(option, '=');
	int id;

	if (!*option || config_words_is_ignored(option))
		return 0;
	if (strcmp(option, "ro") == 0 || strcmp(option, "rw") == 0)
		return config_set(cfg, "read_only", option[1] == 'o' ? "yes" : "no", where, err);
	if (config_words_is_mount_flag(option)) {
		int r = add_mount_flag(cfg, option);

		return r ? cistern_error_set(err, r, "%s: out of memory", where) : 0;
	}
	if (value) {
		*value = '\0';
		return config_set(cfg, option, value + 1, where, err);
	}
	id = config_words_find(option);
	if (id < 0)
		return unknown_error(option, where, err);
	if (settings[id].type == CONFIG_BOOL)
		return config_set(cfg, option, "yes", where, err);
	return cistern_error_set(err, -EINVAL, "%s: %s needs a value, as in %s=%s", where, option, option,
		*settings[id].default_text ? settings[id].default_text : "...");
}

int config_parse_options(struct config *cfg, const char *options, const char *where, struct cistern_error *err)
{
	CLEANUP(free_cleanup) char *text = strdup(options);
	CLEANUP(config_cleanup) struct config *work = NULL;
	char *rest = text, *option;
	int r = text ? config_copy(cfg, &work) : -ENOMEM;

	if (r)
		return cistern_error_set(err, r, "%s: out of memory", where);
	while ((option = next_option(&rest))) {
		r = apply_option(work, option, where, err);
		if (r)
			return r;
	}
	config_swap(cfg, work);
	return 0;
}

/* A growing string. Each piece is escaped so that next_option() undoes it. */
static void put_escaped(FILE *out, const char *text)
{
	for (; *text; text++) {
		if (*text == ',' || *text == '\\')
			putc('\\', out);
		putc(*text, out);
	}
}

char *config_to_options(const struct config *cfg)
{
	char text[TEXT_BYTES], *options = NULL;
	size_t len = 0;
	FILE *out = open_memstream(&options, &len);
	bool bad;

	if (!out)
		return NULL;
	for (size_t i = 0; i < CONFIG_NUM; i++) {
		fprintf(out, "%s%s=", i ? "," : "", settings[i].name);
		if (settings[i].type == CONFIG_STRING)
			put_escaped(out, config_string(cfg, i));
		else
			fputs(config_text(cfg, i, text, sizeof(text)), out);
	}
	if (cfg->mount_flags)
		fprintf(out, ",%s", cfg->mount_flags);
	bad = ferror(out);
	if (fclose(out) || bad) {
		free(options);
		return NULL;
	}
	return options;
}

/* ---- files and the environment ---- */

static char *strip(char *text)
{
	size_t len;

	text += strspn(text, " \t\r\n");
	len = strlen(text);
	while (len > 0 && strchr(" \t\r\n", text[len - 1]))
		len--;
	text[len] = '\0';
	return text;
}

/* '#' begins a comment at the begin of a line and after a blank; "/a#b" is a path. */
static void cut_comment(char *line)
{
	for (char *p = line; *p; p++)
		if (*p == '#' && (p == line || p[-1] == ' ' || p[-1] == '\t')) {
			*p = '\0';
			return;
		}
}

static int apply_line(struct config *cfg, char *line, const char *where, struct cistern_error *err)
{
	char *value;

	cut_comment(line);
	line = strip(line);
	if (!*line)
		return 0;
	value = strchr(line, '=');
	if (!value)
		return cistern_error_set(err, -EINVAL, "%s: '%.100s' is not of the form 'name = value'", where, line);
	*value = '\0';
	return config_set(cfg, strip(line), strip(value + 1), where, err);
}

/* One line without its newline, NUL-terminated. 1 when there was one, 0 at the end, -EINVAL: too long or with NULs. */
static int read_line(FILE *in, char line[LINE_BYTES])
{
	size_t len = 0;
	int c;

	while ((c = getc(in)) != EOF && c != '\n') {
		if (c == '\0' || len + 1 >= LINE_BYTES)
			return -EINVAL;
		line[len++] = (char)c;
	}
	line[len] = '\0';
	if (ferror(in))
		return -EIO;
	return c != EOF || len > 0;
}

static int load_lines(struct config *cfg, FILE *in, const char *path, struct cistern_error *err)
{
	char line[LINE_BYTES], where[STRING_MAX + 32];
	int r;

	for (int num = 1; num <= LINES_MAX; num++) {
		snprintf(where, sizeof(where), "%s:%d", path, num);
		r = read_line(in, line);
		if (r == 0)
			return 0;
		if (r == -EINVAL)
			return cistern_error_set(
				err, r, "%s: longer than %d bytes, or not a text", where, LINE_BYTES - 1);
		if (r < 0)
			return cistern_error_set(err, r, "%s: cannot read: %s", where, strerror(-r));
		r = apply_line(cfg, line, where, err);
		if (r)
			return r;
	}
	return cistern_error_set(err, -EFBIG, "%s: more than %d lines", path, LINES_MAX);
}

static int load_file(struct config *cfg, const char *path, bool must_exist, struct cistern_error *err)
{
	CLEANUP(file_cleanup) FILE *in = fopen(path, "re");

	if (!in && !must_exist && (errno == ENOENT || errno == ENOTDIR))
		return 0;
	if (!in) {
		int r = -errno;

		return cistern_error_set(err, r, "%s: cannot open the settings: %s", path, strerror(-r));
	}
	return load_lines(cfg, in, path, err);
}

/* $XDG_CONFIG_HOME when it is absolute, as its specification wants, else ~/.config */
static int load_user_file(struct config *cfg, struct cistern_error *err)
{
	CLEANUP(free_cleanup) char *path = NULL;
	const char *dir = secure_getenv("XDG_CONFIG_HOME"), *home = secure_getenv("HOME");
	bool xdg = dir && dir[0] == '/';
	int n;

	if (!xdg && (!home || home[0] != '/'))
		return 0;
	n = xdg ? asprintf(&path, "%s/" USER_FILE, dir) : asprintf(&path, "%s/.config/" USER_FILE, home);
	if (n < 0) {
		path = NULL;
		return cistern_error_set(err, -ENOMEM, "out of memory");
	}
	return load_file(cfg, path, false, err);
}

static int load_environment(struct config *cfg, struct cistern_error *err)
{
	for (char **p = environ; p && *p; p++) {
		char name[CONFIG_WORD_BYTES], where[sizeof(CONFIG_ENV_PREFIX) + CONFIG_WORD_BYTES];
		const char *value = config_words_from_env(*p, name);
		const char *nearest;
		int r = 0;

		if (!value || !*value)
			continue;
		snprintf(where, sizeof(where), "%.*s", (int)(value - 1 - *p), *p);
		if (config_words_find(name) >= 0)
			r = config_set(cfg, name, value, where, err);
		else if ((nearest = config_words_nearest(name)))
			r = cistern_error_set(
				err, -EINVAL, "%s: no such variable; did you mean the setting '%s'?", where, nearest);
		if (r)
			return r;
	}
	return 0;
}

int config_load(struct config *cfg, struct cistern_error *err)
{
	CLEANUP(config_cleanup) struct config *work = NULL;
	const char *named = secure_getenv(CONFIG_ENV_PREFIX "CONFIG");
	int r = config_copy(cfg, &work);

	if (r)
		return cistern_error_set(err, r, "out of memory");
	r = load_file(work, SYSTEM_FILE, false, err);
	if (!r)
		r = load_user_file(work, err);
	if (!r && named && *named)
		r = load_file(work, named, true, err);
	if (!r)
		r = config_hints_load(work, secure_getenv(HINTS_ENV), err);
	if (!r)
		r = load_environment(work, err);
	if (!r)
		config_swap(cfg, work);
	return r;
}
