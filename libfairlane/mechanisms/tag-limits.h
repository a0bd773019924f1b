/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Scheduler tags, divided among flows.
 *
 * A request holds a scheduler tag from its allocation to its completion,
 * throttled or not. There are few of them (nr_requests per hardware queue). A
 * throttled flow with a deep queue would soon hold them all, and a flow that is
 * entitled to the drive could not even get in.
 *
 * So on each hardware queue 7/8 of the tags are divided by share, and a flow
 * that is below its part may take a tag; 1/8 is kept for flows that come next.
 * While more than 1/4 of the tags are free, any flow that is not throttled may
 * go beyond its part, to use what others do not. With 64 tags, of which 32 can
 * be in flight:
 *
 *     shares 54:27:14:5 %, all greedy     30, 15, 7 and 3 tags, 9 free
 *     the first with one request only     1 for it, 47 for the others, 16 free
 *     a lone tenant                       56 tags, 8 free
 *
 * No total is kept for this: the host knows how many tags are free.
 */
#ifndef FAIRLANE_TAG_LIMITS_H
#define FAIRLANE_TAG_LIMITS_H

#include "weights.h"

/* A flow that is not throttled may have so many in any case, without counting the free ones. */
#define FL_TAGS_MIN 4

/*
 * How many requests @queue may hold now, given that it holds @held; at least one.
 * There are @depth tags for @queues hardware queues (1, unless all of them share
 * tags), of which @used() are taken. Any context, no lock: an estimate.
 */
static inline int fl_tags_may_hold(struct fl_queue *queue, int held, int depth, unsigned int queues,
				   int (*used)(struct fl_queue *queue))
{
	int part = ((u64)(depth - depth / 8) * READ_ONCE(queue->flow->share)) / FL_SHARE_ONE;

	part /= (int)queues;
	if (READ_ONCE(queue->throttled))
		return max_t(int, 1, part);
	part = max_t(int, FL_TAGS_MIN, part);
	if (held < part)
		return part;
	return max_t(int, part, held + depth - used(queue) - depth / 4);
}

#endif
