/* SPDX-License-Identifier: GPL-3.0-or-later */
/* Dealings with HDF5 that are not about one file. It is the library for MPICH, used without MPI: by one process, by paths. */
#include "mpi-agent/nc4/file.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MILLION 1000000.0

int nc4_hdf5_begin(void)
{
	if (setenv("HDF5_USE_FILE_LOCKING", "FALSE", 1) || H5open() < 0 || H5Eset_auto2(H5E_DEFAULT, NULL, NULL) < 0)
		return -EIO;
	return 0;
}

struct why {
	char text[200];
};

/* The deepest one knows best, except for those that say only that something has failed below. */
static herr_t take_error(unsigned int n, const H5E_error2_t *e, void *arg)
{
	struct why *why = arg;

	(void)n;
	if (e->desc && *e->desc)
		snprintf(why->text, sizeof(why->text), "%s", e->desc);
	return 0;
}

int nc4_hdf5_error(struct cistern_error *err, const char *doing, const char *name)
{
	struct why why = { "no reason given" };
	int code = -EIO;

	H5Ewalk2(H5E_DEFAULT, H5E_WALK_DOWNWARD, take_error, &why);
	if (strstr(why.text, "No space left"))
		code = -ENOSPC;
	else if (strstr(why.text, "quota exceeded"))
		code = -EDQUOT;
	H5Eclear2(H5E_DEFAULT);
	return cistern_error_set(err, code, "HDF5: %s %.100s: %s", doing, name, why.text);
}

static double fraction(const struct config *cfg, enum config_id id)
{
	return (double)config_number(cfg, id) / MILLION;
}

static bool yes(const struct config *cfg, enum config_id id)
{
	return config_number(cfg, id) != 0;
}

static void take_sizes(const struct config *cfg, H5AC_cache_config_t *c)
{
	c->set_initial_size = yes(cfg, CONFIG_MDC_SET_INITIAL_SIZE);
	c->initial_size = config_number(cfg, CONFIG_MDC_INITIAL_SIZE);
	c->min_clean_fraction = fraction(cfg, CONFIG_MDC_MIN_CLEAN_FRACTION);
	c->max_size = config_number(cfg, CONFIG_MDC_MAX_SIZE);
	c->min_size = config_number(cfg, CONFIG_MDC_MIN_SIZE);
	c->epoch_length = (long int)config_number(cfg, CONFIG_MDC_EPOCH_LENGTH);
	c->dirty_bytes_threshold = config_number(cfg, CONFIG_MDC_DIRTY_BYTES_THRESHOLD);
	c->metadata_write_strategy = (int)config_number(cfg, CONFIG_MDC_METADATA_WRITE_STRATEGY);
}

static void take_increase(const struct config *cfg, H5AC_cache_config_t *c)
{
	c->incr_mode = (enum H5C_cache_incr_mode)config_number(cfg, CONFIG_MDC_INCR_MODE);
	c->lower_hr_threshold = fraction(cfg, CONFIG_MDC_LOWER_HR_THRESHOLD);
	c->increment = fraction(cfg, CONFIG_MDC_INCREMENT);
	c->apply_max_increment = yes(cfg, CONFIG_MDC_APPLY_MAX_INCREMENT);
	c->max_increment = config_number(cfg, CONFIG_MDC_MAX_INCREMENT);
	c->flash_incr_mode = (enum H5C_cache_flash_incr_mode)config_number(cfg, CONFIG_MDC_FLASH_INCR_MODE);
	c->flash_multiple = fraction(cfg, CONFIG_MDC_FLASH_MULTIPLE);
	c->flash_threshold = fraction(cfg, CONFIG_MDC_FLASH_THRESHOLD);
}

static void take_decrease(const struct config *cfg, H5AC_cache_config_t *c)
{
	c->decr_mode = (enum H5C_cache_decr_mode)config_number(cfg, CONFIG_MDC_DECR_MODE);
	c->upper_hr_threshold = fraction(cfg, CONFIG_MDC_UPPER_HR_THRESHOLD);
	c->decrement = fraction(cfg, CONFIG_MDC_DECREMENT);
	c->apply_max_decrement = yes(cfg, CONFIG_MDC_APPLY_MAX_DECREMENT);
	c->max_decrement = config_number(cfg, CONFIG_MDC_MAX_DECREMENT);
	c->epochs_before_eviction = (int)config_number(cfg, CONFIG_MDC_EPOCHS_BEFORE_EVICTION);
	c->apply_empty_reserve = yes(cfg, CONFIG_MDC_APPLY_EMPTY_RESERVE);
	c->empty_reserve = fraction(cfg, CONFIG_MDC_EMPTY_RESERVE);
}

static int take_cache(const struct config *cfg, hid_t list)
{
	H5AC_cache_config_t c = { .version = H5AC__CURR_CACHE_CONFIG_VERSION };

	if (H5Pget_mdc_config(list, &c) < 0)
		return -1;
	c.version = (int)config_number(cfg, CONFIG_MDC_VERSION);
	c.rpt_fcn_enabled = yes(cfg, CONFIG_MDC_RPT_FCN_ENABLED);
	c.open_trace_file = yes(cfg, CONFIG_MDC_OPEN_TRACE_FILE);
	c.close_trace_file = yes(cfg, CONFIG_MDC_CLOSE_TRACE_FILE);
	snprintf(c.trace_file_name, sizeof(c.trace_file_name), "%s", config_string(cfg, CONFIG_MDC_TRACE_FILE_NAME));
	c.evictions_enabled = yes(cfg, CONFIG_MDC_EVICTIONS_ENABLED);
	take_sizes(cfg, &c);
	take_increase(cfg, &c);
	take_decrease(cfg, &c);
	return H5Pset_mdc_config(list, &c) < 0 ? -1 : 0;
}

hid_t nc4_access_list(const struct config *cfg)
{
	hid_t list = H5Pcreate(H5P_FILE_ACCESS);

	if (list >= 0 &&
		(H5Pset_libver_bounds(list, H5F_LIBVER_V18, H5F_LIBVER_V18) < 0 ||
			H5Pset_fclose_degree(list, H5F_CLOSE_SEMI) < 0 || (cfg && take_cache(cfg, list) < 0))) {
		H5Pclose(list);
		return -1;
	}
	return list;
}

int nc4_cache_report(hid_t file, struct nc4_cache_report *ret)
{
	return H5Fget_mdc_hit_rate(file, &ret->hit_rate) < 0 ||
			       H5Fget_mdc_size(
				       file, &ret->max_bytes, &ret->min_clean_bytes, &ret->now_bytes, &ret->entries) < 0
		       ? -EIO
		       : 0;
}

hid_t nc4_string_type(size_t bytes)
{
	hid_t t = H5Tcopy(H5T_C_S1);

	if (t >= 0 && (H5Tset_size(t, bytes) < 0 || H5Tset_strpad(t, H5T_STR_NULLTERM) < 0)) {
		H5Tclose(t);
		return -1;
	}
	return t;
}

hid_t nc4_type(enum classic_type type)
{
	switch (type) {
	case CLASSIC_CHAR: return nc4_string_type(1);
	case CLASSIC_BYTE: return H5Tcopy(H5T_NATIVE_INT8);
	case CLASSIC_SHORT: return H5Tcopy(H5T_NATIVE_INT16);
	case CLASSIC_INT: return H5Tcopy(H5T_NATIVE_INT32);
	case CLASSIC_FLOAT: return H5Tcopy(H5T_NATIVE_FLOAT);
	case CLASSIC_DOUBLE: return H5Tcopy(H5T_NATIVE_DOUBLE);
	case CLASSIC_UBYTE: return H5Tcopy(H5T_NATIVE_UINT8);
	case CLASSIC_USHORT: return H5Tcopy(H5T_NATIVE_UINT16);
	case CLASSIC_UINT: return H5Tcopy(H5T_NATIVE_UINT32);
	case CLASSIC_INT64: return H5Tcopy(H5T_NATIVE_INT64);
	case CLASSIC_UINT64: return H5Tcopy(H5T_NATIVE_UINT64);
	}
	return -1;
}

hid_t nc4_ref_type(void)
{
	hid_t t = H5Tcreate(H5T_COMPOUND, sizeof(struct nc4_ref));

	if (t >= 0 && (H5Tinsert(t, "dataset", offsetof(struct nc4_ref, dataset), H5T_STD_REF_OBJ) < 0 ||
			      H5Tinsert(t, "dimension", offsetof(struct nc4_ref, dimension), H5T_NATIVE_INT) < 0)) {
		H5Tclose(t);
		return -1;
	}
	return t;
}
