/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * What is in a drive, counted without a word that all write.
 *
 * Each hardware queue counts what it sent, and what is done. What is in the drive is the difference of
 * the sums: a request may be done at another one than it was sent at. Cost and requests are in one word. Sums
 * wrap, but a difference is exact as long as it has less than a million requests, and less than 2^43 of cost.
 *
 * Who waited until it was let go has to wake up before it sends anything, and may have no CPU for that: a tenant can
 * choose so, with a limit on its own CPU time. So what was let go has its place for one to two ticks. Who wakes up
 * later finds it taken.
 */
#ifndef FAIRLANE_IN_DRIVE_H
#define FAIRLANE_IN_DRIVE_H

#include "../fairlane.h"

#define FL_COUNTED_SHIFT 20
#define FL_IN_DRIVE_MOST ((1ll << 43) - 1)
#define FL_IN_DRIVE_CHEAP (256 * FL_COST_ONE) /* for each request, at most */
#define FL_IN_DRIVE_SPARE 16 /* of the tags one of so many is to be left */

#define fl_counted(cost) (((u64)(cost) << FL_COUNTED_SHIFT) + 1)
#define fl_counted_cost(counted) ((counted) >> FL_COUNTED_SHIFT)
#define fl_counted_requests(counted) ((counted) & ((1ull << FL_COUNTED_SHIFT) - 1))

struct fl_in_drive { /* of a hardware queue */
	u64 sent; /* at once; under hwq->lock. A stale read lags by a request */
	u64 looked; /* what was sent when fl_in_drive_look() was last true; under hwq->lock */
	u64 woken; /* sent after waiting; under dev->lock */
	atomic64_t done[2] ____cacheline_aligned_in_smp; /* reads, and all others; by completions */
	atomic64_t judged; /* by completions, too: in time, and late << 32; of flows with a latency target */
};

/* What was let go, and is not sent yet. Under dev->lock. */
struct fl_waking {
	u64 ticks;
	s64 recent, before; /* cost let go since the last tick, and between the last two */
};

/* Of all hardware queues. */
struct fl_in_drive_sums {
	u64 done[2], sent; /* since ever */
	u64 judged; /* as above */
	u64 cost, requests, mean; /* in the drive, and the cost of one there */
	u64 tags; /* of the hardware queues in use */
};

/* @cost was sent at once. Under hwq->lock. @more: for a request that was sent before, and has grown. */
static inline void fl_in_drive_sent(struct fl_in_drive *in, u64 cost, bool more)
{
	WRITE_ONCE(in->sent, in->sent + fl_counted(cost) - more);
}

/* The same after waiting. Under dev->lock. */
static inline void fl_in_drive_woken(struct fl_in_drive *in, u64 cost)
{
	in->woken += fl_counted(cost);
}

/*
 * What a request of @cost counts for there. A discard: one, whatever it costs. It may be of GiB, and done in a moment.
 * @more: of one that was sent before, and has grown.
 */
static inline u64 fl_in_drive_cost(enum fl_op op, u64 cost, bool more)
{
	return likely(op != FL_DISCARD) ? cost : more ? 0 : FL_COST_ONE;
}

/* The same, of @a. */
static inline u64 fl_in_drive_counts(const struct fl_admission *a)
{
	return fl_in_drive_cost(a->op, a->cost, a->more);
}

/* @cost was let go. Returns when, for fl_waking_sent(); not 0. */
static inline u64 fl_waking_let_go(struct fl_waking *waking, u64 cost)
{
	waking->recent += cost;
	return waking->ticks + 1;
}

/* @cost that was let go @when is about to be sent. False: it has no place any more. */
static inline bool fl_waking_sent(struct fl_waking *waking, u64 when, u64 cost)
{
	u64 ticks = waking->ticks + 1 - when;

	if (ticks > 1)
		return false;
	*(ticks ? &waking->before : &waking->recent) -= cost;
	return true;
}

/* At a tick: the cost of those that have their places. */
static inline s64 fl_waking_tick(struct fl_waking *waking)
{
	waking->ticks++;
	waking->before = waking->recent;
	waking->recent = 0;
	return waking->before;
}

/* @cost of @op is done. Any context, no lock. */
static inline void fl_in_drive_done(struct fl_in_drive *in, enum fl_op op, u64 cost)
{
	atomic64_add(fl_counted(cost), &in->done[op != FL_READ]);
}

static inline void fl_in_drive_judge(struct fl_in_drive *in, bool in_time)
{
	atomic64_add(in_time ? 1 : 1ull << 32, &in->judged);
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
		sums->judged += atomic64_read(&in->judged);
		sums->tags += READ_ONCE(dev->hwqs[i]->tags);
	}
	smp_mb();
	for (i = 0; i < dev->nr_hwqs; i++) {
		const struct fl_in_drive *in = __fl_in_drive(dev, offset, i);

		sums->sent += READ_ONCE(in->sent) + in->woken;
	}
	counted = max_t(s64, sums->sent - sums->done[0] - sums->done[1], 0);
	sums->cost = fl_counted_cost(counted);
	sums->requests = fl_counted_requests(counted);
	sums->mean = sums->requests ? div64_u64(sums->cost, sums->requests) : 0;
}

/* A few that are very expensive, as zeroes of a GiB, may be done soon: what do those there cost? */
static inline u64 fl_in_drive_cheap(const struct fl_in_drive_sums *sums)
{
	return min_t(u64, sums->cost, sums->requests * FL_IN_DRIVE_CHEAP);
}

/* What it would have, if but one in FL_IN_DRIVE_SPARE tags were taken, for requests like those that it has. */
static inline s64 fl_in_drive_all_tags(const struct fl_in_drive_sums *sums)
{
	u64 tags = max_t(u64, sums->tags - sums->tags / FL_IN_DRIVE_SPARE, 1);

	if (!sums->requests || !sums->tags)
		return FL_IN_DRIVE_MOST;
	return mul_u64_u64_div_u64(sums->cost, tags, sums->requests);
}

#endif
