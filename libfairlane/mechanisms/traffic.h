/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * What went to the drive from each hardware queue, and what it has done, so far: a counter for
 * each, which only that hardware queue's requests touch. Whoever wants the sums adds them up.
 */
#ifndef FAIRLANE_TRAFFIC_H
#define FAIRLANE_TRAFFIC_H

#include "work-conservation.h"

/* In the scheduler's struct for a hardware queue. */
struct fl_traffic {
	u64 sent, sent_cost; /* requests: written under hwq->lock; a stale read is old by one */
	atomic64_t done[2]; /* the cost of reads, and of all others; added to by completions */
};

static inline struct fl_traffic *__fl_traffic(struct fl_dev *dev, size_t offset, unsigned int i)
{
	return (struct fl_traffic *)((char *)dev->hwqs[i] + offset);
}

/* A request of @cost goes to the drive. Under hwq->lock. */
static inline void fl_traffic_sent(struct fl_traffic *traffic, u64 cost)
{
	WRITE_ONCE(traffic->sent, traffic->sent + 1);
	WRITE_ONCE(traffic->sent_cost, traffic->sent_cost + cost);
}

/* The drive has done it. Any context, no lock. */
static inline void fl_traffic_done(struct fl_traffic *traffic, enum fl_op op, u64 cost)
{
	atomic64_add(cost, &traffic->done[op != FL_READ]);
}

/* The cost of all that the drive has done. @offset: of the fl_traffic in each hardware queue. */
static inline u64 fl_traffic_all_done(struct fl_dev *dev, size_t offset)
{
	u64 done = 0;
	unsigned int i;

	for (i = 0; i < dev->nr_hwqs; i++) {
		struct fl_traffic *traffic = __fl_traffic(dev, offset, i);

		done += atomic64_read(&traffic->done[0]) + atomic64_read(&traffic->done[1]);
	}
	return done;
}

/* Look at the drive: see fl_floor_look(). */
static inline void fl_traffic_look(struct fl_dev *dev, size_t offset, struct fl_floor *floor,
				   u64 now_ns)
{
	u64 sent = 0, sent_cost = 0, done[2] = { 0 };
	unsigned int i;

	for (i = 0; i < dev->nr_hwqs; i++) {
		struct fl_traffic *traffic = __fl_traffic(dev, offset, i);

		sent += READ_ONCE(traffic->sent);
		sent_cost += READ_ONCE(traffic->sent_cost);
		done[0] += atomic64_read(&traffic->done[0]);
		done[1] += atomic64_read(&traffic->done[1]);
	}
	fl_floor_look(floor, now_ns, done, sent, sent_cost);
}

#endif
