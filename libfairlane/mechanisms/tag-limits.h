/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Scheduler tags, divided among flows, level by level.
 *
 * A request holds a scheduler tag from its allocation to its completion,
 * throttled or not. There are few of them (nr_requests per hardware queue). A
 * throttled flow with a deep queue would soon hold them all, and a flow that is
 * entitled to the drive could not even get in.
 *
 * So each hardware queue's tags are divided as the drive is. An eighth is kept
 * for flows that come next; of the rest every flow has its share for its own
 * requests, and its part for all that is below it. Before a request takes a tag,
 * it takes a place at its flow and one at each flow above, up to the root. Where
 * there is none, it waits for one, and keeps those that it has. So a tenant holds
 * no more than its part, however many cgroups it makes of itself. With 128 tags:
 *
 *	root ── one (weight 900)      100 places
 *	     └─ many (weight 100)      12 places ── 300 cgroups, each 1 place
 *
 * Of the 300, each has one request at most that waits for one of the 12 places.
 *
 *   Whole places   A flow is entitled to its part, rounded down to whole places.
 *                  While it has fewer at the level above, its requests go first,
 *                  and below a cgroup even if others have taken all that this
 *                  has. For one cgroup of 300 that rounds down to none.
 *   The rest       Taken in turn, in the order of virtual time: a place
 *                  brings a flow further by the price of the request, divided
 *                  by its weight. So neither many requests nor large ones gain.
 *
 * What others leave may be used: a flow that is not throttled goes beyond its
 * part while a flow above it has a seventh of its places free, or the hardware queue
 * a quarter of its tags.
 *
 * Counts are kept for each hardware queue, as tags are. A flow's own requests count in
 * `own` of the flow, and in `below` of each of its ancestors.
 */
#ifndef FAIRLANE_TAG_LIMITS_H
#define FAIRLANE_TAG_LIMITS_H

#include "weights.h"

/* A request that waits for places; the host's, until fl_tag_granted(). */
struct fl_tag_wait {
	struct list_head node;
	struct fl_queue *queue; /* the request's */
	struct fl_queue *at, *from; /* waits there, having come by that one; NULL: by none */
	u64 turn; /* virtual time, of those that wait in turn */
	u32 bytes;
	enum fl_op op;
};

/* A service of the host's: @wait has all its places. Any context, no lock. */
void fl_tag_granted(struct fl_tag_wait *wait);

static inline void fl_places_init(struct fl_places *places)
{
	spin_lock_init(&places->lock);
	INIT_LIST_HEAD(&places->due);
	INIT_LIST_HEAD(&places->turns);
}

/* @queue is new; @up is that of the nearest ancestor that has one there, NULL for the root. */
static inline void fl_tags_init(struct fl_queue *queue, struct fl_queue *up)
{
	fl_places_init(&queue->own);
	fl_places_init(&queue->below);
	queue->up = up;
}

static inline struct fl_places *__fl_places_at(struct fl_queue *at, const struct fl_queue *from)
{
	return from ? &at->below : &at->own;
}

/* The share of the tags that @at has for its own requests, or for all that is below it. */
static inline u64 __fl_places_share(const struct fl_queue *at, const struct fl_queue *from)
{
	u32 own = READ_ONCE(at->flow->share), part;

	if (unlikely(!READ_ONCE(at->flow->active_weight)))
		return fl_flow_part_if_active(at->flow);
	if (!from)
		return own;
	part = READ_ONCE(at->flow->part);
	return part > own ? part - own : 0;
}

/* The same in places, in units of 1 / FL_SHARE_ONE. */
static inline u64 __fl_places_part(const struct fl_queue *at, const struct fl_queue *from)
{
	u32 tags = READ_ONCE(at->hwq->tags);

	return (tags - tags / 8) * __fl_places_share(at, from);
}

/*
 * How many may be taken; at least one. Below a flow the last place may be less than a
 * whole one: else what is less than one would never have its turn there.
 */
static inline int __fl_places_limit(const struct fl_queue *at, const struct fl_queue *from)
{
	u64 part = __fl_places_part(at, from) + (from ? FL_SHARE_ONE - 1 : 0);

	return max_t(int, 1, part / FL_SHARE_ONE);
}

/* Do others above @at leave something? */
static inline bool __fl_places_spare(const struct fl_queue *at)
{
	const struct fl_queue *root = at;
	int tags;

	while (root->up) {
		int limit;

		root = root->up;
		limit = __fl_places_limit(root, at);
		if (atomic_read(&root->below.taken) < limit - limit / 7)
			return true;
	}
	tags = READ_ONCE(root->hwq->tags);
	return atomic_read(&root->below.taken) + atomic_read(&root->own.taken) < tags - tags / 4;
}

/* Is a place at wait->at due to the flow that @wait comes from? It has one of that flow's. */
static inline bool __fl_places_due(const struct fl_tag_wait *wait)
{
	struct fl_queue *via = wait->from == wait->queue ? NULL : wait->from;

	return (u64)atomic_read(&__fl_places_at(wait->from, via)->taken) * FL_SHARE_ONE <=
	       __fl_places_part(wait->from, via);
}

static inline bool __fl_places_free(const struct fl_tag_wait *wait)
{
	if (atomic_read(&__fl_places_at(wait->at, wait->from)->taken) <
	    __fl_places_limit(wait->at, wait->from))
		return true;
	if (wait->from && wait->at->up && __fl_places_due(wait))
		return true;
	return !READ_ONCE(wait->queue->throttled) && __fl_places_spare(wait->at);
}

/* Have @wait, which finds no place, wait for one. Under the places' lock. */
static inline void __fl_places_queue(struct fl_places *places, struct fl_tag_wait *wait, bool due)
{
	struct list_head *at = &places->turns;

	if (due) {
		list_add_tail(&wait->node, &places->due);
		return;
	}
	wait->turn = places->turn;
	if (wait->from) {
		struct fl_queue *from = wait->from;
		u64 cost = fl_cost(&from->hwq->dev->prices, wait->op, wait->bytes);

		if ((s64)(from->turn - wait->turn) > 0)
			wait->turn = from->turn;
		from->turn = wait->turn + div64_u64(cost * FL_WEIGHT_MAX, READ_ONCE(from->flow->weight));
	}
	while (at->prev != &places->turns &&
	       (s64)(list_entry(at->prev, struct fl_tag_wait, node)->turn - wait->turn) > 0)
		at = at->prev;
	list_add_tail(&wait->node, at);
}

/* Give free places to whoever waits for them, and move these to @ready. Under the lock. */
static inline void __fl_places_hand_over(struct fl_places *places, struct list_head *ready)
{
	for (;;) {
		bool due = !list_empty(&places->due);
		struct list_head *line = due ? &places->due : &places->turns;
		struct fl_tag_wait *wait;

		if (list_empty(line))
			return;
		wait = list_first_entry(line, struct fl_tag_wait, node);
		if (!__fl_places_free(wait))
			return;
		if (!due)
			places->turn = wait->turn;
		atomic_inc(&places->taken);
		list_move_tail(&wait->node, ready);
	}
}

/*
 * Take a place at wait->at. If there is none, or others wait, @wait does, too: false.
 * It may have had its place meanwhile, and be on @ready.
 */
static inline bool __fl_places_take(struct fl_tag_wait *wait, struct list_head *ready)
{
	struct fl_places *places = __fl_places_at(wait->at, wait->from);
	bool due = wait->from && __fl_places_due(wait);
	unsigned long flags;

	/* Two at once may take one more than there is; that costs others a place for a while. */
	if (likely(list_empty(&places->due) && (due || list_empty(&places->turns)) &&
		   __fl_places_free(wait))) {
		atomic_inc(&places->taken);
		smp_mb__after_atomic(); /* against fl_flows_age() */
		return true;
	}
	spin_lock_irqsave(&places->lock, flags);
	__fl_places_queue(places, wait, due);
	/* Who gives a place back sees us waiting, or we see it free. */
	smp_mb();
	__fl_places_hand_over(places, ready);
	spin_unlock_irqrestore(&places->lock, flags);
	return false;
}

/* Go up from a place that @wait has. False at the root: there is no further. */
static inline bool __fl_places_climb(struct fl_tag_wait *wait)
{
	wait->from = wait->at;
	wait->at = wait->at->up;
	return wait->at;
}

/* Each of @ready has been given a place: let it take those above that. */
static inline void __fl_places_go_on(struct list_head *ready)
{
	while (!list_empty(ready)) {
		struct fl_tag_wait *wait = list_first_entry(ready, struct fl_tag_wait, node);

		list_del_init(&wait->node);
		do {
			if (!__fl_places_climb(wait)) {
				fl_tag_granted(wait);
				break;
			}
		} while (__fl_places_take(wait, ready));
	}
}

/*
 * Take places for a request of wait->queue; op and bytes are filled in. If false is
 * returned, it has to wait: fl_tag_granted() is called, maybe before this returns.
 */
static inline bool fl_tags_take(struct fl_tag_wait *wait)
{
	LIST_HEAD(ready);

	wait->at = wait->queue;
	wait->from = NULL;
	do {
		if (unlikely(!__fl_places_take(wait, &ready))) {
			__fl_places_go_on(&ready);
			return false;
		}
	} while (__fl_places_climb(wait));
	return true;
}

/* The same for a request that must not wait: its flow pays for it with the next ones. */
static inline void fl_tags_take_anyway(struct fl_queue *queue)
{
	atomic_inc(&queue->own.taken);
	smp_mb__after_atomic(); /* against fl_flows_age() */
	for (queue = queue->up; queue; queue = queue->up)
		atomic_inc(&queue->below.taken);
}

static inline void __fl_places_give(struct fl_places *places, struct list_head *ready)
{
	unsigned long flags;

	/* A full barrier: see __fl_places_take(). */
	atomic_add_return(-1, &places->taken);
	if (likely(list_empty(&places->due) && list_empty(&places->turns)))
		return;
	spin_lock_irqsave(&places->lock, flags);
	__fl_places_hand_over(places, ready);
	spin_unlock_irqrestore(&places->lock, flags);
}

/* A request of @queue gives back its places. Any context. */
static inline void fl_tags_give(struct fl_queue *queue)
{
	LIST_HEAD(ready);

	__fl_places_give(&queue->own, &ready);
	for (queue = queue->up; queue; queue = queue->up)
		__fl_places_give(&queue->below, &ready);
	__fl_places_go_on(&ready);
}

#endif
