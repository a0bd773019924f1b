/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * What one run simulates, read from JSON and checked in full. Times are in
 * ns, sizes in bytes. The text is an object:
 *
 *	scenario, version, knob, label   texts; knob is one of the schedulers'; label
 *	                          is what the results call it
 *	seed, repeat, cores, warmup_ns, run_ns
 *	point                     any object, given back in the results; or absent
 *	tunables                  {name: value} of the scheduler's
 *	cpu                       struct cpu_time, below
 *	prices                    a price list: read and write, each of 12 prices
 *	                          (libfairlane/mechanisms/prices.h); or absent
 *	tunables                  of the scheduler: whole numbers by name; or absent
 *	drive                     kind "ssd": the fields of struct ssd_profile,
 *	                          time_scale, precondition
 *	                          kind "null": size, latency_ns, interval_ps
 *	                          and for both: queues, queue_depth
 *	cgroups                   [{name, weight, latency_ns, parent}]; parent is a name or null,
 *	                          latency_ns may be absent
 *	tenants                   the same, the jobs, depth, cores and phases of struct
 *	                          tenant_config, below, and either the rest of it or
 *	                          trace   a file of recorded requests, see trace.h, dealt to the jobs
 *	                          block   the drive's, bytes: what requests are rounded to
 *	                          full_speed  a request arrives as soon as depth allows
 *	                          Each phase plays the trace from its beginning, and as
 *	                          often as it takes. A request that has to wait, because
 *	                          depth are outstanding, keeps its time of arrival.
 */
#ifndef SIM_CONFIG_H
#define SIM_CONFIG_H

#include <jansson.h>

#include "../libfairlane/fairlane.h"
#include "../ssd/profile.h"

#define MAX_CORES 1024
#define MAX_NODES 8192 /* tenants and cgroups */
#define MAX_PHASES 16
#define MAX_JOBS (1u << 20) /* of all tenants */
#define MAX_IO_BYTES (1u << 30)
#define MAX_TIME_NS 1209600000000000ull /* two weeks, half for warm-up: in ps it still fits 64 bit */

/* How much CPU time things take; measured by microbench/. */
struct cpu_time {
	u64 submit_ns, complete_ns; /* a request, everything but the scheduler */
	u64 wake_ns; /* to have a kernel thread run a hardware queue */
	u64 insert_ns, dispatch_ns, done_ns; /* the scheduler, for each request */
	/* Holding the lock of all cores: each time, and for each read of shared memory. */
	u64 lock_ns, lock_read_ps;
};

struct drive_config {
	bool null; /* no SSD, but what only takes latency_ns and interval_ps */
	struct ssd_profile profile;
	u64 time_scale; /* the SSD is so many times slower */
	bool precondition; /* it begins in its steady state */
	u64 size;
	u64 queues, queue_depth; /* hardware queues; requests that each takes */
	u64 latency_ns, interval_ps; /* of each request; between the ends of two */
};

struct node_config { /* a tenant or a cgroup */
	const char *name; /* lives in struct config's json */
	const char *parent; /* a cgroup's name, or NULL */
	u64 weight;
	u64 latency_ns; /* a target, 0: none */
	int parent_index; /* in cgroups, or -1 */
};

struct phase {
	u64 from_ns, to_ns; /* since the start of the run, warm-up included */
};

struct tenant_config {
	struct node_config node;
	unsigned int nr_cores, *cores; /* where its jobs are put, in turn; none: spread over all */
	unsigned int nr_phases;
	struct phase phases[MAX_PHASES]; /* in order of time */
	u64 jobs, depth;
	const char *trace; /* plays that file, or NULL; lives in struct config's json */
	u64 block;
	bool full_speed; /* whatever its times say */
	u64 bytes, read_percent; /* of this and what follows, nothing with a trace */
	u64 metadata_percent; /* of its requests: the root sends them, and it pays; may be absent */
	bool discards; /* instead of writes; they are no bytes in the totals. May be absent */
	bool random; /* else each job goes through its part of the drive in order */
	u64 think_ns; /* from a completion to the request that it allows */
	u64 interval_ps; /* between the arrivals at one job; 0: as fast as depth allows */
	bool poisson; /* the interval is the mean of an exponential distribution */
};

struct config {
	json_t *json;
	const char *scenario, *version, *knob, *label;
	const json_t *point, *tunables;
	u64 seed, repeat, cores, warmup_ns, run_ns;
	struct cpu_time cpu;
	bool priced; /* there is a price list: prices */
	struct fl_prices prices;
	struct drive_config drive;
	unsigned int nr_cgroups, nr_tenants;
	struct node_config *cgroups; /* parents before children */
	struct tenant_config *tenants;
};

/* Read a run from @file. False, with a sentence in @error and nothing to free, if it has none. */
bool config_read(struct config *config, FILE *file, char *error, size_t size);
void config_free(struct config *config);

#endif
