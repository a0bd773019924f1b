/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Kyber's control of latencies, by how much of each kind may be in the drive.
 *
 * As in the kernel's block/kyber-iosched.c (Sandoval, 2017). Each domain - read, write,
 * discard, other - may have only so many requests in the drive: its depth. Every period
 * the latencies of each domain are compared with its target. If the drive is slow (the
 * 90th percentile of the time in it is above the target of some domain), domains that
 * are well within their own target get less depth: in proportion, so that a 99th
 * percentile of 3/4 of the target leaves 3/4 of the depth. A domain that misses its target
 * gets more.
 *
 * One thing is added. If a depth is too small for a flow to spend its tokens, the flow
 * loses share. So if a flow waited for a place while others had already spent their tokens,
 * the depth is doubled and stays for ten periods.
 */
#ifndef FAIRLANE_KYBER_DEPTHS_H
#define FAIRLANE_KYBER_DEPTHS_H

#include "room.h"

/* Device-wide, and at most: Kyber's. */
static const unsigned int fl_kyber_max_depth[FL_NR_OPS] = { 256, 128, 64, 16 };

/* Histograms: quarters of the target; the first four buckets are good. OTHER has no target. */
#define FL_KYBER_TARGETS FL_OTHER
#define FL_KYBER_BUCKETS 8
#define FL_KYBER_GOOD 4
#define FL_KYBER_SAMPLES 500
enum { FL_KYBER_TOTAL, FL_KYBER_IO, FL_KYBER_LATENCIES };

/* A write costs at most 16 times a read: one slow flush must not stop all writers. */
#define FL_WRITE_PRICE_ONE 256u
#define FL_WRITE_PRICE_MAX (16 * FL_WRITE_PRICE_ONE)

/* Periods for which a depth that was doubled stays. */
#define FL_KYBER_KEEP 10

/* In the scheduler's struct for a hardware queue. A request touches two lines of its domain. */
struct fl_kyber_queue {
	struct {
		struct fl_room room;
		/* Added to by completions; read by the control, which keeps what it saw. */
		atomic64_t io_ns; /* time in the drive */
		/*
		 * Each counts two latencies, one in each half: as a rule both are in the same
		 * bucket. After 2^32 requests one is counted in the other half.
		 */
		atomic64_t buckets[FL_KYBER_BUCKETS];
	} domain[FL_NR_OPS] ____cacheline_aligned_in_smp;
};

struct fl_kyber_latency {
	unsigned int buckets[FL_KYBER_LATENCIES][FL_KYBER_BUCKETS]; /* since the last percentile */
	unsigned int seen[FL_KYBER_LATENCIES][FL_KYBER_BUCKETS]; /* summed up, the last time */
	u64 first_ns[FL_KYBER_LATENCIES]; /* when the collecting began; 0 before */
	int p99; /* bucket, kept for when the drive becomes slow; -1: none */
};

struct fl_kyber {
	struct fl_limit depth[FL_NR_OPS];
	/* Written by fl_kyber_set_target(): a stale read misplaces one sample. */
	u64 bucket_mul[FL_KYBER_TARGETS]; /* 2^32 / (target / 4) */
	u64 bucket_max_ns[FL_KYBER_TARGETS]; /* from here on it is the last bucket */
	/* In units of 1 / FL_WRITE_PRICE_ONE. Written by the control: a stale read misprices one request. */
	u32 write_price;
	/* The rest is the control's, one caller at a time. */
	size_t offset;
	struct fl_kyber_latency latency[FL_KYBER_TARGETS];
	unsigned int keep[FL_NR_OPS]; /* for so many more periods */
	/* Requests and time in the drive, at the last look at the ratio. */
	u64 ratio_ns[2];
	u32 ratio_requests[2];
};

static inline struct fl_kyber_queue *__fl_kyber_queue(struct fl_kyber *kyber, unsigned int i)
{
	return (struct fl_kyber_queue *)((char *)kyber->depth[0].dev->hwqs[i] + kyber->offset);
}

static inline void fl_kyber_set_target(struct fl_kyber *kyber, enum fl_op op, u64 target_ns)
{
	WRITE_ONCE(kyber->bucket_max_ns[op], 2 * target_ns);
	WRITE_ONCE(kyber->bucket_mul[op], div64_u64(4ull << 32, target_ns));
}

/* @offset: of the fl_kyber_queue in the scheduler's struct for a hardware queue. */
static inline void fl_kyber_init(struct fl_kyber *kyber, struct fl_dev *dev, size_t offset)
{
	int op;

	kyber->offset = offset;
	kyber->write_price = FL_WRITE_PRICE_ONE;
	for (op = 0; op < FL_NR_OPS; op++)
		fl_limit_init(&kyber->depth[op], dev,
			      offset + offsetof(struct fl_kyber_queue, domain[op].room),
			      fl_kyber_max_depth[op]);
	for (op = 0; op < FL_KYBER_TARGETS; op++)
		kyber->latency[op].p99 = -1;
	fl_kyber_set_target(kyber, FL_DISCARD, 5ull * NSEC_PER_SEC);
}

static inline unsigned int __fl_kyber_bucket(struct fl_kyber *kyber, enum fl_op op, u64 ns)
{
	unsigned int bucket = (ns * READ_ONCE(kyber->bucket_mul[op])) >> 32, last = FL_KYBER_BUCKETS - 1;

	/* The mask is for when one of the two is stale. */
	return ns >= READ_ONCE(kyber->bucket_max_ns[op]) ? last : bucket & last;
}

/* So many of a latency in @bucket so far; the sum wraps. */
static inline u32 __fl_kyber_counted(const struct fl_kyber_queue *queue, enum fl_op op, int type,
				     unsigned int bucket)
{
	return (u64)atomic64_read(&queue->domain[op].buckets[bucket]) >> 32 * type;
}

/* A request took @total_ns, of which @io_ns in the drive. Any context, no lock. */
static inline void fl_kyber_sample(struct fl_kyber *kyber, struct fl_kyber_queue *queue,
				   enum fl_op op, u64 total_ns, u64 io_ns)
{
	unsigned int total, io;

	if (op >= FL_KYBER_TARGETS)
		return;
	total = __fl_kyber_bucket(kyber, op, total_ns);
	io = __fl_kyber_bucket(kyber, op, io_ns);
	atomic64_add(io_ns, &queue->domain[op].io_ns);
	atomic64_add(1 + ((u64)(total == io) << 32), &queue->domain[op].buckets[total]);
	if (unlikely(total != io))
		atomic64_add(1ull << 32, &queue->domain[op].buckets[io]);
}

/* Add what came since the last look to the histograms. */
static inline void __fl_kyber_collect(struct fl_kyber *kyber, enum fl_op op)
{
	struct fl_kyber_latency *latency = &kyber->latency[op];
	unsigned int i;
	int type, b;

	for (type = 0; type < FL_KYBER_LATENCIES; type++) {
		for (b = 0; b < FL_KYBER_BUCKETS; b++) {
			unsigned int sum = 0;

			for (i = 0; i < kyber->depth[0].dev->nr_hwqs; i++)
				sum += __fl_kyber_counted(__fl_kyber_queue(kyber, i), op, type, b);
			latency->buckets[type][b] += sum - latency->seen[type][b];
			latency->seen[type][b] = sum;
		}
	}
}

/*
 * The bucket that holds @percent of the samples, or -1 while there are fewer than 500 and
 * less than a second has passed. Starts the histogram anew.
 */
static inline int __fl_kyber_percentile(struct fl_kyber_latency *latency, int type,
					unsigned int percent, u64 now_ns)
{
	unsigned int *buckets = latency->buckets[type], samples = 0, b;

	for (b = 0; b < FL_KYBER_BUCKETS; b++)
		samples += buckets[b];
	if (!samples)
		return -1;
	if (!latency->first_ns[type])
		latency->first_ns[type] = now_ns;
	if (samples < FL_KYBER_SAMPLES && now_ns - latency->first_ns[type] < (u64)NSEC_PER_SEC)
		return -1;
	latency->first_ns[type] = 0;

	samples = div64_u64((u64)samples * percent + 99, 100);
	for (b = 0; b < FL_KYBER_BUCKETS - 1 && buckets[b] < samples; b++)
		samples -= buckets[b];
	memset(buckets, 0, sizeof(latency->buckets[type]));
	return b;
}

/* @to, but not beyond Kyber's; less than it is only if nothing keeps it. */
static inline void __fl_kyber_set_depth(struct fl_kyber *kyber, enum fl_op op, s64 to)
{
	to = clamp_t(s64, to, kyber->keep[op] ? kyber->depth[op].level : 1, fl_kyber_max_depth[op]);
	if (to != kyber->depth[op].level)
		fl_limit_set(&kyber->depth[op], to);
}

/*
 * Once a period. @spent: some flow has spent what is its own, so that whoever waits for
 * a place in the drive now may lose its share.
 */
static inline void fl_kyber_control(struct fl_kyber *kyber, u64 now_ns, bool spent)
{
	bool slow = false;
	int op;

	for (op = 0; op < FL_KYBER_TARGETS; op++) {
		__fl_kyber_collect(kyber, op);
		if (__fl_kyber_percentile(&kyber->latency[op], FL_KYBER_IO, 90, now_ns) >=
		    FL_KYBER_GOOD)
			slow = true;
	}
	for (op = 0; op < FL_KYBER_TARGETS; op++) {
		struct fl_kyber_latency *latency = &kyber->latency[op];
		int p99 = __fl_kyber_percentile(latency, FL_KYBER_TOTAL, 99, now_ns);

		kyber->keep[op] -= !!kyber->keep[op];
		if (spent && atomic_read(&kyber->depth[op].nr_waiting)) {
			kyber->keep[op] = FL_KYBER_KEEP;
			__fl_kyber_set_depth(kyber, op, 2 * kyber->depth[op].level);
		}
		/*
		 * Domains rarely have enough samples in the same period: keep a
		 * percentile for when the drive gets slow, and use it once.
		 */
		if (slow) {
			if (p99 < 0)
				p99 = latency->p99;
			latency->p99 = -1;
		} else if (p99 >= 0) {
			latency->p99 = p99;
		}
		if (p99 >= 0 && (slow || p99 >= FL_KYBER_GOOD))
			__fl_kyber_set_depth(kyber, op,
					     kyber->depth[op].level * (p99 + 1) / FL_KYBER_GOOD);
	}
}

/*
 * How many times as long as a read, of whatever size, is a write in the drive, on average since the
 * last time? In units of 1 / FL_WRITE_PRICE_ONE; 0: there were too few to tell.
 */
static inline u32 __fl_kyber_write_ratio(struct fl_kyber *kyber)
{
	u64 ns[2] = { 0 }, mean[2];
	u32 requests[2] = { 0 };
	unsigned int i;
	int op, b;

	for (op = FL_READ; op <= FL_WRITE; op++) {
		for (i = 0; i < kyber->depth[0].dev->nr_hwqs; i++) {
			struct fl_kyber_queue *queue = __fl_kyber_queue(kyber, i);

			ns[op] += atomic64_read(&queue->domain[op].io_ns);
			for (b = 0; b < FL_KYBER_BUCKETS; b++)
				requests[op] += __fl_kyber_counted(queue, op, FL_KYBER_IO, b);
		}
		if (requests[op] - kyber->ratio_requests[op] < 32)
			return 0;
		mean[op] = div64_u64(ns[op] - kyber->ratio_ns[op],
				     requests[op] - kyber->ratio_requests[op]);
	}
	memcpy(kyber->ratio_ns, ns, sizeof(ns));
	memcpy(kyber->ratio_requests, requests, sizeof(requests));
	return min_t(u64, FL_WRITE_PRICE_MAX,
		     div64_u64(mean[FL_WRITE] * FL_WRITE_PRICE_ONE, max_t(u64, mean[FL_READ], 1)));
}

/*
 * Once a period: the price of a byte written against one read, a moving average of that ratio,
 * or of 1 where it is less. With prices that are not @by_bytes it is 1, as they have it.
 */
static inline void fl_kyber_update_price(struct fl_kyber *kyber, bool by_bytes)
{
	u32 ratio = by_bytes ? __fl_kyber_write_ratio(kyber) : 0, price = kyber->write_price;

	if (ratio)
		price = (3 * price + max_t(u32, ratio, FL_WRITE_PRICE_ONE)) / 4;
	WRITE_ONCE(kyber->write_price, by_bytes ? price : FL_WRITE_PRICE_ONE);
}

/* What a request of @op at @cost costs with that price. */
static inline u64 fl_kyber_price(const struct fl_kyber *kyber, enum fl_op op, u64 cost)
{
	return op == FL_WRITE ? cost * READ_ONCE(kyber->write_price) / FL_WRITE_PRICE_ONE : cost;
}

#endif
