/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Scheduler tags, divided among flows.
 *
 * A request holds a scheduler tag from its allocation to its completion,
 * throttled or not. There are few (nr_requests per hardware queue), so that a
 * throttled flow with a deep queue would soon hold them all, and whoever is
 * entitled to the drive could not even get in.
 *
 * So on each hardware queue 7/8 of the tags are divided by share, and whoever
 * is below its part may take a tag; 1/8 stays for whoever comes next. While
 * more than 1/4 of the tags are free, anybody that is not throttled may go
 * beyond its part: what some do not use, others may. With 64 tags, 32 of which can be in flight:
 *
 *     shares 54:27:14:5 %, all greedy     30, 15, 7 and 3 tags, 9 free
 *     the first with one request only     1 for it, 47 for the others, 16 free
 *     a lone tenant                       56 tags, 8 free
 *
 * No total has to be kept for it: the host knows what is free.
 */
#ifndef FAIRLANE_TAG_LIMITS_H
#define FAIRLANE_TAG_LIMITS_H

#include "weights.h"

/* Whoever is not throttled may have so many, and saves counting what is free. */
#define FL_TAGS_MIN 4

/*
 * How many requests may @queue hold now, given that it holds @held? At least
 * one. There are @depth tags for each @queues hardware queues (1, unless all
 * share them), of which @used() are taken. Any context, no lock: an estimate.
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
