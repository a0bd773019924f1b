/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * vssd.ko: the SSD model of ssd/ as a block device. Three parts:
 *
 *   config.c   configfs: a drive is a folder, its values are files
 *   disk.c     blk-mq, the model's clock, completions, sysfs
 *   store.c    the data: a sparse array of pages
 *
 * The objects and their lives:
 *
 *   vssd_config    a folder in configfs, from mkdir to rmdir. Owns at most one
 *                  vssd, from `echo 1 > power` to `echo 0 > power` or rmdir.
 *   vssd           a drive. Only its vssd_config makes and frees it. It outlives
 *                  everything that can find it: the timer is stopped first, and
 *                  sysfs files, requests and the calls to other CPUs that
 *                  complete them end in del_gendisk(). An open file of the removed
 *                  disk holds the gendisk, and asks nothing of the vssd.
 *   vssd_cmd       a request's own part (its pdu), as long as its tag set. The
 *                  model has it from vssd_run() until the model returns it.
 *   pages          see store.c.
 */
#ifndef FAIRLANE_VSSD_H
#define FAIRLANE_VSSD_H

#include <linux/blk-mq.h>
#include <linux/xarray.h>

#include "ssd/profile.h"
#include "ssd/ssd.h"

/* ---- store.c ---- */

struct vssd_store {
	struct xarray pages; /* by offset / PAGE_SIZE; a page that is not there reads as zeroes */
	unsigned long nr_pages; /* in it; written under its lock; sysfs may show an old one */
	unsigned long max_pages;
};

void vssd_store_init(struct vssd_store *store, u64 max_bytes);
void vssd_store_free(struct vssd_store *store);
int vssd_store_reserve(struct vssd_store *store, u64 offset, unsigned int bytes);
void vssd_store_copy(struct vssd_store *store, struct request *rq);
void vssd_store_discard(struct vssd_store *store, u64 offset, unsigned int bytes);

/* ---- disk.c ---- */

/* How a drive is played here; as SSD_PROFILE: F(name, unit, min, max, default, help). */
#define VSSD_PARAMS(F)                                                                             \
	F(memory, "bytes", 0, 1ull << 50, 0,                                                       \
	  "most data that are kept, beyond which writes fail; 0: half of the machine's memory")    \
	F(time_scale, "", 1, 1000000, 1,                                                           \
	  "how many times slower than real the whole drive is")                                    \
	F(queue_depth, "commands", 1, 10240, 1023,                                                 \
	  "commands in flight per hardware queue")                                                 \
	F(block_size, "bytes", 512, 4096, 512,                                                     \
	  "smallest I/O; a power of two")                                                          \
	F(seed, "", 0, 1ull << 62, 1,                                                                \
	  "decides what is random in the model")                                                   \
	F(precondition, "", 0, 1, 1,                                                               \
	  "1: begin in the steady state that the profile describes; 0: fresh")

/* What a drive is made from. */
struct vssd_params {
	struct ssd_profile profile;
#define VSSD_PARAM_MEMBER(name, unit, min, max, def, help) u64 name;
	VSSD_PARAMS(VSSD_PARAM_MEMBER)
#undef VSSD_PARAM_MEMBER
};

struct vssd;

struct vssd *vssd_create(const struct vssd_params *params);
void vssd_destroy(struct vssd *vssd);
const char *vssd_name(const struct vssd *vssd);

#endif
