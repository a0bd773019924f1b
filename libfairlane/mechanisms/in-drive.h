/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * What is in a drive, counted without a word that all write.
 *
 * Each hardware queue counts what it sent, and what of that is done. What is in the drive is the
 * difference. Cost and requests are in one word: sums wrap, but a difference is exact as long as it
 * has less than 16 million requests, and less than 2^40 of cost.
 */
#ifndef FAIRLANE_IN_DRIVE_H
#define FAIRLANE_IN_DRIVE_H

#include "../fairlane.h"

#define FL_COUNTED_SHIFT 24

#define fl_counted(cost) (((u64)(cost) << FL_COUNTED_SHIFT) + 1)
#define fl_counted_cost(counted) ((counted) >> FL_COUNTED_SHIFT)
#define fl_counted_requests(counted) ((counted) & ((1ull << FL_COUNTED_SHIFT) - 1))

struct fl_in_drive { /* of a hardware queue; a stale read of either lags by a request */
	u64 sent; /* at once; under hwq->lock */
	u64 let_go; /* sent after waiting; under dev->lock */
	atomic64_t done[2] ____cacheline_aligned_in_smp; /* reads, and all others; by completions */
};

/* Of all hardware queues. */
struct fl_in_drive_sums {
	u64 done[2], sent; /* since ever */
	u64 cost, requests, mean; /* in the drive, and the cost of one there */
};

/* @cost was sent at once. Under hwq->lock. @more: for a request that was sent before, and has grown. */
static inline void fl_in_drive_sent(struct fl_in_drive *in, u64 cost, bool more)
{
	WRITE_ONCE(in->sent, in->sent + fl_counted(cost) - more);
}

/* @cost was let go. Under dev->lock. */
static inline void fl_in_drive_let_go(struct fl_in_drive *in, u64 cost)
{
	WRITE_ONCE(in->let_go, in->let_go + fl_counted(cost));
}

/* @cost of @op is done. Any context, no lock. */
static inline void fl_in_drive_done(struct fl_in_drive *in, enum fl_op op, u64 cost)
{
	atomic64_add(fl_counted(cost), &in->done[op != FL_READ]);
}

/* About how much cost is in the drive from one hardware queue. Under its lock. What was let go may be seen late. */
static inline s64 fl_in_drive(const struct fl_in_drive *in)
{
	u64 sent = in->sent + READ_ONCE(in->let_go);

	return (s64)(sent - atomic64_read(&in->done[0]) - atomic64_read(&in->done[1])) >> FL_COUNTED_SHIFT;
}

/* Adds @in to @sums: whatever is seen to be done is seen to be sent. Under dev->lock. */
static inline void fl_in_drive_sum(const struct fl_in_drive *in, struct fl_in_drive_sums *sums)
{
	sums->done[0] += atomic64_read(&in->done[0]);
	sums->done[1] += atomic64_read(&in->done[1]);
	smp_mb();
	sums->sent += READ_ONCE(in->sent) + in->let_go;
}

/* All were added. */
static inline void fl_in_drive_summed(struct fl_in_drive_sums *sums)
{
	u64 counted = sums->sent - sums->done[0] - sums->done[1];

	sums->cost = fl_counted_cost(counted);
	sums->requests = fl_counted_requests(counted);
	sums->mean = sums->requests ? div64_u64(sums->cost, sums->requests) : 0;
}

#endif
