/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * What is in a drive, counted without a word that all write.
 *
 * Each hardware queue counts what it sent, and what is done. What is in the drive is the difference of
 * the sums: a request may be done at another one than it was sent at. Cost and requests are in one word. Sums
 * wrap, but a difference is exact as long as it has less than 16 million requests, and less than 2^39 of cost.
 */
#ifndef FAIRLANE_IN_DRIVE_H
#define FAIRLANE_IN_DRIVE_H

#include "../fairlane.h"

#define FL_COUNTED_SHIFT 24

#define fl_counted(cost) (((u64)(cost) << FL_COUNTED_SHIFT) + 1)
#define fl_counted_cost(counted) ((counted) >> FL_COUNTED_SHIFT)
#define fl_counted_requests(counted) ((counted) & ((1ull << FL_COUNTED_SHIFT) - 1))

struct fl_in_drive { /* of a hardware queue */
	u64 sent; /* at once; under hwq->lock. A stale read lags by a request */
	u64 looked; /* what was sent when fl_in_drive_look() was last true; under hwq->lock */
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
	in->let_go += fl_counted(cost);
}

/* @cost of @op is done. Any context, no lock. */
static inline void fl_in_drive_done(struct fl_in_drive *in, enum fl_op op, u64 cost)
{
	atomic64_add(fl_counted(cost), &in->done[op != FL_READ]);
}

/* Was more than @cost sent at once since it was last? Under hwq->lock. */
static inline bool fl_in_drive_look(struct fl_in_drive *in, u64 cost)
{
	if (likely(fl_counted_cost(in->sent - in->looked) <= cost))
		return false;
	in->looked = in->sent;
	return true;
}

static inline struct fl_in_drive *__fl_in_drive(struct fl_dev *dev, size_t offset, unsigned int i)
{
	return (struct fl_in_drive *)((char *)dev->hwqs[i] + offset);
}

/* Of @dev's hardware queues, @offset into each. What is seen to be done is seen to be sent. Under dev->lock. */
static inline void fl_in_drive_sum(struct fl_dev *dev, size_t offset, struct fl_in_drive_sums *sums)
{
	unsigned int i;
	s64 counted;

	*sums = (struct fl_in_drive_sums){};
	for (i = 0; i < dev->nr_hwqs; i++) {
		const struct fl_in_drive *in = __fl_in_drive(dev, offset, i);

		sums->done[0] += atomic64_read(&in->done[0]);
		sums->done[1] += atomic64_read(&in->done[1]);
	}
	smp_mb();
	for (i = 0; i < dev->nr_hwqs; i++) {
		const struct fl_in_drive *in = __fl_in_drive(dev, offset, i);

		sums->sent += READ_ONCE(in->sent) + in->let_go;
	}
	counted = max_t(s64, sums->sent - sums->done[0] - sums->done[1], 0);
	sums->cost = fl_counted_cost(counted);
	sums->requests = fl_counted_requests(counted);
	sums->mean = sums->requests ? div64_u64(sums->cost, sums->requests) : 0;
}

#endif
