/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * A drive and its tenants in virtual time, for tests: hardware queues with a
 * fixed number of slots, a service time for reads and writes, and closed-loop
 * tenants that keep a number of requests outstanding. Everything happens in
 * the order of its time, so a test's outcome is the same on any machine.
 *
 * Under a scheduler that routes, requests wait in the drive, in a queue for
 * each class and hardware queue, and go by weighted round robin.
 */
#ifndef TEST_DRIVE_H
#define TEST_DRIVE_H

#include "user.h"

#define MAX_TENANTS 64
#define MAX_HWQS 8
#define MAX_CHIPS 8
#define MSEC NSEC_PER_MSEC

struct tenant {
	struct fl_flow *flow;
	unsigned int depth[MAX_HWQS]; /* requests kept outstanding on each hardware queue */
	u32 bytes;
	unsigned int writes_pct;
	u8 rank; /* of its requests, among its flow's */
	unsigned int requeues; /* so often the drive gives back each of its requests, undone */
	unsigned int ahead_pct; /* of its requests go as the root's, and are charged to it */
	struct fl_flow *below; /* each of its requests, one at a time, is of a new cgroup there, */
	struct fl_flow **pool; /* or of the next of these */
	unsigned int pooled;
	u64 wakes_ns; /* it takes so long to send one that was let go */
	u64 think_ns; /* between a completion and the request that it allows */
	u64 start_ns, stop_ns; /* stop 0: never */
	u64 done, done_bytes; /* so far */
	u64 mark, mark_bytes; /* at the last drive_mark() */
	u64 rng;
};

struct drive {
	struct fl_dev *dev;
	unsigned int nr_hwqs, slots; /* per hardware queue */
	unsigned int in_flight[MAX_HWQS], most_in_flight;
	u64 read_ns, write_ns; /* service times */
	uint64_t varies; /* they vary by half: the state of next_random(); 0: they do not */
	bool per_page; /* of each 4 KiB, not of a request */
	bool serial; /* one request after the other, in order of arrival: the queue is in the drive */
	unsigned int chips; /* of a serial drive, 1 unless a test says more: each does so, and a request is one's by chance */
	u64 free_ns[MAX_CHIPS], which; /* when they have done all that they have; which is next: the state of next_random() */
	struct tenant tenants[MAX_TENANTS];
	unsigned int nr_tenants;
	u64 mark_ns, marked_refills;
	void *events; /* heap */
	u64 tick_ns; /* when the next tick is due; 0: none is */
	struct list_head classes[FL_NR_CLASSES][MAX_HWQS]; /* requests that were routed there */
	unsigned int weight[FL_NR_CLASSES], credits[FL_NR_CLASSES], turn[FL_NR_CLASSES];
};

/* A drive under @sched, with the clock at 1 s. */
void drive_init(struct drive *d, const struct fl_sched *sched, unsigned int nr_hwqs,
		unsigned int slots, u64 service_ns);
/* A tenant below @parent (NULL: the root) with @depth outstanding on every hardware queue; 4 KiB reads. */
struct tenant *drive_tenant(struct drive *d, struct fl_flow *parent, u32 weight, unsigned int depth);
/* Three tenants below two cgroups, which are due a quarter, a half and a quarter. */
void drive_families(struct drive *d, struct tenant **t, unsigned int depth);
/* Start everybody; once, after the tenants have been set up. */
void drive_start(struct drive *d);
/* Let @ns pass. */
void drive_run(struct drive *d, u64 ns);
/* Begin measuring. */
void drive_mark(struct drive *d);
/* Since the mark: a tenant's part of all requests (0..1), and the total per second. */
double drive_share(struct drive *d, struct tenant *t);
double drive_iops(struct drive *d);
/* What the drive can do at most, requests per second. */
double drive_capacity(struct drive *d);
u64 drive_now(void);
u64 drive_var(struct drive *d, const char *name);
void drive_exit(struct drive *d);

#endif
