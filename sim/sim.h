/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * One run: a host with its tenants' load, a scheduler, and a drive, in
 * virtual time.
 *
 * Events happen in the order of their time, and those of the same time in the
 * order in which they were caused. Nothing depends on addresses, on real time,
 * or on floating point. So a run is the same on any machine.
 */
#ifndef SIM_H
#define SIM_H

#include <limits.h>

#include "../libfairlane/user.h"
#include "config.h"
#include "drive.h"
#include "heap.h"
#include "histogram.h"
#include "random.h"
#include "trace.h"

/* Something that a core has to do. */
enum work_kind {
	WORK_SUBMIT, /* a job submits its next request */
	WORK_COMPLETE, /* a request that the drive has done */
	WORK_RUN, /* a kernel thread dispatches from a hardware queue */
	WORK_TICK, /* the scheduler's timer */
};

struct work {
	enum work_kind kind;
	struct work *next;
};

struct work_list {
	struct work *first, **last;
};

/* Does one thing at a time; completions first, since they interrupt. */
struct core {
	struct work_list todo[2];
	struct work *now; /* NULL: idle */
	bool scheduled; /* the scheduler's part of it is done */
	struct request *out, **out_last; /* dispatched in it */
	bool starting; /* in sim.starting */
	struct core *starting_next;
};

struct request {
	struct fl_req rq;
	struct work work;
	struct job *job;
	struct hwq *hwq;
	struct fl_flow *flow; /* its tenant's, or of metadata the root's */
	struct fl_admission admission;
	struct fl_queue *tag_of; /* whose tag it has; see fl_tag_take() */
	u64 arrival_ns; /* when the tenant wanted it */
	u64 sent_ns; /* to the drive */
	struct request *next; /* in core.out, or free */
	struct ssd_cmd cmd;
};

#define REQUESTS_IN_CHUNK 256

struct request_chunk {
	struct request_chunk *next;
	struct request requests[REQUESTS_IN_CHUNK];
};

enum job_state {
	JOB_IDLE, /* has all that it may have outstanding, or nothing to do */
	JOB_SLEEPING, /* an event will wake it */
	JOB_READY, /* on its core */
	JOB_BLOCKED, /* waits for a tag */
};

/* A thread of a tenant. */
struct job {
	struct work work;
	enum job_state state;
	struct tenant *tenant;
	struct core *core;
	struct hwq *hwq;
	struct request *held; /* its next request, until it has a tag */
	struct fl_tag_wait wait; /* for its part of the tags */
	bool admitted; /* it has had that; what it may lack is a tag */
	bool granted; /* it has had its turn */
	bool woken; /* for a tag */
	struct job *waiting_next; /* in a wait_list */
	u64 random; /* generator */
	u64 first_byte, blocks, next_block; /* its part of the drive */
	u64 next_ps; /* its next arrival, if it has a rate */
	struct trace *trace; /* what it plays, or NULL */
	unsigned int outstanding; /* requests, and pauses after one */
	unsigned int phase;
};

/* Blocked jobs, in order. */
struct wait_list {
	struct job *first, *last;
};

struct hwq {
	struct work work; /* WORK_RUN */
	unsigned int index;
	struct core *core;
	bool run_wanted;
	unsigned int in_drive; /* requests: driver tags taken */
	unsigned int tags_used; /* scheduler tags; without a scheduler, the same as driver tags */
	struct wait_list waiting; /* because there was no tag at all */
};

struct tenant {
	const struct tenant_config *config;
	struct fl_flow *flow;
	/* Within the window. */
	u64 bytes[2], ios; /* read and written */
	u64 cost; /* of these, by the price list if there is one */
	u64 *bins; /* bytes */
	struct histogram latency_ns;
};

struct sim {
	struct config config;
	u64 now, begin_ns, end_ns; /* the window */
	struct heap heap;
	struct drive drive;
	struct fl_dev *dev;
	const struct fl_sched *sched;
	unsigned int tags; /* of each hardware queue */
	bool limit_tags; /* they are divided among tenants */
	struct core *cores;
	struct hwq *hwqs;
	struct fl_flow **cgroups;
	struct tenant *tenants;
	struct job *jobs;
	unsigned int nr_jobs;
	struct request *free_requests;
	struct request_chunk *chunks; /* where they are from */
	struct core *starting, **starting_last; /* idle ones that have something to do now */
	struct work tick;
	bool tick_wanted; /* a core is to do it */
	u64 tick_ns; /* when the timer is due, SSD_NEVER: it is not */
	u64 lock_free_ns; /* when who holds the shared lock will have released it */
	u64 note_ns; /* when writes are noted next: at the window's begin and end */
	u64 bin_ns;
	unsigned int nr_bins, bin; /* the one that now is in */
	u64 bin_end_ns;
	/* What the scheduler's variables were, once a second within the window: [variable][sample]. */
	u64 *samples, sample_ns;
	unsigned int nr_samples, max_samples;
	/* Figures. */
	u64 events, requests; /* handled; completed, warm-up and end included */
	struct drive_writes writes; /* within the window; before it ends: what to subtract */
	u64 busy_ns, lock_wait_ns, lock_held_ns; /* of all cores within the window; parts of it */
	/* Little's law, from the first arrival to the last completion. */
	u64 in_system, changed_ns;
	unsigned __int128 area; /* requests x ns in the system, as time went by */
	unsigned __int128 residence; /* the sum of their times in the system */
	char error[PATH_MAX + 200];
};

/* What the scheduler asks of its host, see struct fl_host; @ctx is the sim. */
void sim_run_hwq(void *ctx, unsigned int index);
void sim_kick(void *ctx);
void sim_tag_granted(void *ctx, struct fl_tag_wait *wait);
void sim_admitted(void *ctx, struct fl_admission *admission);
void sim_set_weights(void *ctx, unsigned int high, unsigned int medium, unsigned int low);

/*
 * Can sim->config be run? Reads its traces to their end. False with sim->error
 * set; free it with sim_exit() in any case.
 */
bool sim_check(struct sim *sim);
/* The same, and set up the run. */
bool sim_init(struct sim *sim);
/* Have schedulers see the clock of @sim, of which there is one at a time. */
void sim_set_clock(const struct sim *sim);
/*
 * Run to the end, until the last request is done. Calls @progress, if it is not
 * NULL, with 0..1000. False with sim->error when a request is lost.
 */
bool sim_run(struct sim *sim, void (*progress)(unsigned int permille));
void sim_exit(struct sim *sim);

/* Set sim->error: what trace->wrong says of the trace that a tenant of @c plays. */
void sim_trace_failed(struct sim *sim, const struct tenant_config *c, const struct trace *trace);
/* Write results.json; false when that does not work. */
bool sim_print(const struct sim *sim, FILE *file);

#endif
