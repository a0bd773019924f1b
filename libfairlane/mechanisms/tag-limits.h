/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Scheduler tags, and who may have the next one.
 *
 * A request has a scheduler tag from its allocation to its completion. There are
 * few of them (nr_requests per hardware queue), and what a scheduler holds back
 * keeps its tag. A tenant that is held back and has a deep queue would soon have
 * them all, and one that is entitled to the drive could not even get in.
 *
 * So before a request takes a tag, somebody is asked here, for each hardware queue:
 *
 *   Limits   Those that are not sent yet are limited, level by level: a flow has
 *            its part of half of the tags, for its own requests and all that is
 *            below it; one at least. So a tenant keeps no more than its part
 *            waiting, however many cgroups it makes of itself. What was sent no
 *            longer counts, except in the drive's lowest class: there it waits, too.
 *
 *		root ── one (weight 900)       57 of 128 tags
 *		     └─ many (weight 100)       6         ── 300 cgroups, each 1
 *
 *   Turns    Whoever finds no tag, or is at a limit, waits. A tag that comes free
 *            goes down from the root: at each level to the child whose turn it is,
 *            of those that wait and are below their limits. Turns come by virtual
 *            time: a tag brings a flow further by the price of the request, divided
 *            by its weight (start-time fair queueing). So neither many requests nor
 *            large ones gain, and nobody is without a turn.
 *
 * With both, the scheduler finds something of those who are behind, and what it finds has come
 * in by weight.
 *
 * Who comes back to wait goes on from where it was, or from the last turn less what that was
 * worth, if that is later. A flow whose weight gives it ten turns for one of another's
 * seldom has ten waiting at a time: its submitters have to be woken up in between.
 */
#ifndef FAIRLANE_TAG_LIMITS_H
#define FAIRLANE_TAG_LIMITS_H

#include "heap.h"
#include "weights.h"

#define FL_TAGS_ANYWAY 8 /* below that it is not worth computing who else is active */

/* A request that waits for a tag; the host's, until fl_tag_granted(). */
struct fl_tag_wait {
	struct list_head node;
	struct fl_queue *queue; /* the request's */
	u32 bytes;
	enum fl_op op;
};

/* A service of the host's: @wait has its tag. Any context, any lock but tags_lock. */
void fl_tag_granted(struct fl_tag_wait *wait);

/* @queue is new; @up is that of the nearest ancestor that has one there, NULL for the root. */
static inline void fl_tags_init(struct fl_queue *queue, struct fl_queue *up)
{
	INIT_LIST_HEAD(&queue->waiting);
	queue->up = up;
}

/* ---- Counts and limits: no lock --------------------------------------------- */

/* How many of @queue's flow, with all below it, are not sent. */
static inline int __fl_tags_unsent(const struct fl_queue *queue)
{
	int own = atomic_read(&queue->unsent);

	return own + atomic_read(&queue->unsent_below);
}

/*
 * Has @queue's flow as many as it may? Not the root's. Its part may be an old one, of when others were not
 * active yet: in the time until that is noticed it could take the tags of all.
 */
static inline bool __fl_tags_full(const struct fl_queue *queue)
{
	u64 half = READ_ONCE(queue->hwq->tags) / 2;
	int part = half * READ_ONCE(queue->flow->part) / FL_SHARE_ONE, unsent = __fl_tags_unsent(queue);

	if (unsent >= max_t(int, part, 1))
		return true;
	return unsent >= FL_TAGS_ANYWAY && unsent >= (int)(half * fl_flow_part_if_active(queue->flow) / FL_SHARE_ONE);
}

static inline bool __fl_tags_free(const struct fl_hwq *hwq)
{
	int tags = READ_ONCE(hwq->tags);

	return atomic_read(&hwq->tags_taken) < tags;
}

/* May @queue's flow have a tag now? */
static inline bool __fl_tags_may_take(const struct fl_queue *queue)
{
	if (!__fl_tags_free(queue->hwq))
		return false;
	for (; queue->up; queue = queue->up)
		if (__fl_tags_full(queue))
			return false;
	return !READ_ONCE(queue->turns.first); /* nobody waits who may have one */
}

/*
 * For a request that must not wait, too. The root's have any number, of which some may still wait
 * for a tag; so they do not count among those that are taken.
 */
static inline void fl_tags_take_anyway(struct fl_queue *queue)
{
	if (queue->up)
		atomic_inc(&queue->hwq->tags_taken);
	atomic_inc(&queue->unsent);
	smp_mb__after_atomic(); /* against fl_flow_age() */
	while ((queue = queue->up))
		atomic_inc(&queue->unsent_below);
}

/* ---- Turns: under hwq->tags_lock ---------------------------------------------- */

/* Does the one whose @turn at @at that is wait, with a chance? */
static inline void __fl_turn_set(struct fl_queue *at, struct fl_heap_entry *turn, bool waits)
{
	if (waits == turn->in)
		return;
	if (!waits) {
		fl_heap_remove(&at->turns, turn);
		return;
	}
	at->turn_now++; /* of those that come as late, the first goes first */
	turn->key = at->turn_now + fl_vt_still_owed(turn->key - at->turn_now, FL_VT_AHEAD);
	fl_heap_add(&at->turns, turn);
}

/* @queue's flow has more or fewer that wait, or are not sent. */
static inline void __fl_turns_update(struct fl_queue *queue)
{
	__fl_turn_set(queue, &queue->own_turn, !list_empty(&queue->waiting));
	for (; queue->up; queue = queue->up)
		__fl_turn_set(queue->up, &queue->turn, queue->turns.first && !__fl_tags_full(queue));
}

/* Whose turn it is; NULL: nobody's. */
static inline struct fl_tag_wait *__fl_turns_first(struct fl_queue *at)
{
	struct fl_heap_entry *first;

	while ((first = at->turns.first) && first != &at->own_turn)
		at = container_of(first, struct fl_queue, turn);
	return first ? list_first_entry(&at->waiting, struct fl_tag_wait, node) : NULL;
}

/* @turn at @at has had a tag, for a request of @cost; __fl_turns_update() comes next. */
static inline void __fl_turn_over(struct fl_queue *at, struct fl_heap_entry *turn, u64 cost, u32 weight)
{
	u64 advance = min_t(u64, div64_u64(cost * FL_WEIGHT_MAX, weight), FL_VT_AHEAD);

	fl_heap_remove(&at->turns, turn);
	if (fl_vt_before(at->turn_now, turn->key - advance))
		at->turn_now = turn->key - advance;
	turn->key += advance;
}

/* It is @wait's turn: it has its tag, and goes to @ready. */
static inline void __fl_tags_grant(struct fl_tag_wait *wait, struct list_head *ready)
{
	struct fl_queue *queue = wait->queue;
	struct fl_hwq *hwq = queue->hwq;
	u64 cost = fl_cost(&hwq->dev->prices, wait->op, wait->bytes);

	fl_tags_take_anyway(queue);
	list_move_tail(&wait->node, ready);
	WRITE_ONCE(hwq->tags_wanted, hwq->tags_wanted - 1);
	__fl_turn_over(queue, &queue->own_turn, cost, FL_WEIGHT_DEFAULT);
	for (; queue->up; queue = queue->up)
		__fl_turn_over(queue->up, &queue->turn, cost, READ_ONCE(queue->flow->weight));
	__fl_turns_update(wait->queue);
}

/*
 * Something has changed for @queue's flow: tags may be free, and others may have them. @new waits from now
 * on; NULL: nobody new.
 */
static inline void __fl_tags_go_on(struct fl_queue *queue, struct fl_tag_wait *new)
{
	struct fl_hwq *hwq = queue->hwq;
	struct fl_queue *root = queue;
	struct fl_tag_wait *wait;
	unsigned long flags;
	LIST_HEAD(ready);

	while (root->up)
		root = root->up;
	spin_lock_irqsave(&hwq->tags_lock, flags);
	if (new) {
		list_add_tail(&new->node, &queue->waiting);
		WRITE_ONCE(hwq->tags_wanted, hwq->tags_wanted + 1);
		/* Whoever sends a request or gives a tag back sees us waiting, or we see that. */
		smp_mb();
	}
	__fl_turns_update(queue);
	while (__fl_tags_free(hwq) && (wait = __fl_turns_first(root)))
		__fl_tags_grant(wait, &ready);
	spin_unlock_irqrestore(&hwq->tags_lock, flags);
	while (!list_empty(&ready)) {
		wait = list_first_entry(&ready, struct fl_tag_wait, node);
		list_del_init(&wait->node);
		fl_tag_granted(wait);
	}
}

/* ---- For the host ---------------------------------------------------------------- */

/*
 * Take a tag for a request of wait->queue; op and bytes are filled in. If false is
 * returned, it has to wait: fl_tag_granted() is called, maybe before this returns.
 */
static inline bool fl_tags_take(struct fl_tag_wait *wait)
{
	/* Two at once may take one more than there is; that costs others a tag for a while. */
	if (unlikely(!__fl_tags_may_take(wait->queue))) {
		__fl_tags_go_on(wait->queue, wait);
		return false;
	}
	fl_tags_take_anyway(wait->queue);
	return true;
}

/* After a change of counts: does anybody wait? */
static inline void __fl_tags_changed(struct fl_queue *queue)
{
	smp_mb__after_atomic(); /* see __fl_tags_go_on() */
	if (unlikely(READ_ONCE(queue->hwq->tags_wanted)))
		__fl_tags_go_on(queue, NULL);
}

/* A request of @queue goes to the drive: once for each tag. Any context. */
static inline void fl_tags_sent(struct fl_queue *queue)
{
	struct fl_queue *up = queue;

	atomic_dec(&queue->unsent);
	while ((up = up->up))
		atomic_dec(&up->unsent_below);
	__fl_tags_changed(queue);
}

/* A request of @queue gives back its tag, after fl_tags_sent(). Any context. */
static inline void fl_tags_give(struct fl_queue *queue)
{
	if (queue->up)
		atomic_dec(&queue->hwq->tags_taken);
	__fl_tags_changed(queue);
}

#endif
