/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Weights and active flows.
 *
 * A weight (1..10000, default 100) is a share among siblings, in the sense of
 * cgroup v2, and counts only against siblings that are active. A flow's share
 * of the drive is the product along its path:
 *
 *	root ── a (weight 200) ── a1 (100)       1/2 of a, 1/3 of the drive
 *	     │                 └─ a2 (100)       1/2 of a, 1/3 of the drive
 *	     └─ b (weight 100)                              1/3 of the drive
 *
 * When a2 falls silent, a1 has all of a: 2/3 of the drive. Requests that an
 * inner flow issues itself (the root's, mostly) compete with its children at
 * the default weight.
 *
 * A flow is active while it has requests, staged or in flight, and after that
 * until a whole ageing period has passed in which it had none. An empty queue is
 * not enough: a tenant that waits for each request before it sends the next has
 * an empty queue most of the time (deceptive idleness).
 *
 * Everything here runs under dev->lock except fl_flow_touch() and what says that it takes it.
 */
#ifndef FAIRLANE_WEIGHTS_H
#define FAIRLANE_WEIGHTS_H

#include "../fairlane.h"

#define FL_SHARE_ONE (1u << 30) /* all of the drive */

/*
 * For @n active flows at most, in turn: the next loop goes on where this one ends. Under dev->lock. In the loop
 * @flow may become inactive, but no other.
 */
#define fl_for_some_active(flow, dev, n)                                                           \
	for (unsigned int __left = min_t(unsigned int, n, (dev)->nr_active);                        \
	     __left && (flow = list_first_entry(&(dev)->active, struct fl_flow, active_node),      \
			list_move_tail(&flow->active_node, &(dev)->active), true);                  \
	     __left--)

#define FL_QUEUES_AT_A_TIME 256

/*
 * look() at every active flow, which may become inactive by that. For tick() alone. Gives dev->lock up after flows
 * with FL_QUEUES_AT_A_TIME queues, or one flow: interrupts are off no longer than these take, however many are
 * active. If others go in between, some may be passed over, until the next time; none that stays active is looked
 * at twice.
 */
static inline void fl_flows_walk(struct fl_dev *dev, void (*look)(struct fl_flow *flow))
{
	int most = max_t(int, FL_QUEUES_AT_A_TIME / dev->nr_hwqs, 1), left, n, nr;
	struct fl_flow *flow;
	unsigned long flags;

	spin_lock_irqsave(&dev->lock, flags);
	left = dev->nr_active;
	while (left > 0) {
		n = min_t(int, left, most);
		fl_for_some_active(flow, dev, n)
			look(flow);
		left -= n;
		nr = dev->nr_active;
		spin_unlock_irqrestore(&dev->lock, flags);
		spin_lock_irqsave(&dev->lock, flags);
		left += (int)dev->nr_active - nr; /* who comes is the first in turn */
	}
	spin_unlock_irqrestore(&dev->lock, flags);
}

/*
 * Is it @every ns since *@last_ns? Then that is now. For tick() alone. Takes dev->lock, so that no time that is kept
 * under it is later.
 */
static inline bool fl_is_due(struct fl_dev *dev, u64 *last_ns, u64 every)
{
	unsigned long flags;
	bool due;
	u64 now;

	spin_lock_irqsave(&dev->lock, flags);
	now = fl_now_ns();
	due = now - *last_ns >= every;
	if (due)
		*last_ns = now;
	spin_unlock_irqrestore(&dev->lock, flags);
	return due;
}

/* What tick() returns, to be called at @at_ns or soon, or 0: nobody is active. Under dev->lock. */
static inline u64 fl_until(u64 at_ns, const struct fl_dev *dev)
{
	return dev->nr_active ? max_t(s64, at_ns - fl_now_ns(), NSEC_PER_MSEC) : 0;
}

/* Activity flows up: an inner flow is active while anything below it is. */
static inline void __fl_flow_add_active(struct fl_flow *flow, u32 own)
{
	for (; flow; own = flow->weight, flow = flow->parent) {
		bool was_active = flow->active_weight;

		WRITE_ONCE(flow->active_weight, flow->active_weight + own);
		if (was_active)
			break;
	}
}

static inline void __fl_flow_sub_active(struct fl_flow *flow, u32 own)
{
	for (; flow; own = flow->weight, flow = flow->parent) {
		WRITE_ONCE(flow->active_weight, flow->active_weight - own);
		if (flow->active_weight)
			break;
	}
}

/* The share of @flow and all below it, if it is active. */
static inline u32 fl_flow_part(const struct fl_flow *flow)
{
	u64 part = FL_SHARE_ONE;

	for (; flow->parent; flow = flow->parent)
		if (flow->parent->active_weight)
			part = div64_u64(part * flow->weight, flow->parent->active_weight);
	return part;
}

/* The part that @flow has, or would have if it is idle. No lock: a stale read misprices a charge, or grants a tag. */
static inline u32 fl_flow_part_if_active(const struct fl_flow *flow)
{
	u64 part = FL_SHARE_ONE;

	for (; flow->parent; flow = flow->parent) {
		u32 weight = READ_ONCE(flow->weight), all = READ_ONCE(flow->parent->active_weight);

		if (!READ_ONCE(flow->active_weight))
			all += weight;
		part = div64_u64(part * weight, max_t(u32, all, weight));
	}
	return part;
}

/* That of its own requests. */
static inline u32 fl_flow_share(const struct fl_flow *flow)
{
	u64 part = fl_flow_part(flow);

	return flow->active_weight ? div64_u64(part * FL_WEIGHT_DEFAULT, flow->active_weight) : part;
}

/* Compute the part of @flow. */
static inline u32 fl_flow_update_part(struct fl_flow *flow)
{
	u32 part = fl_flow_part(flow);

	if (flow->part != part) /* every request below reads that line */
		WRITE_ONCE(flow->part, part);
	return part;
}

/* The same of each flow above it, too, but for those that this was done for. */
static inline void __fl_flow_update_parts(struct fl_flow *flow)
{
	for (; flow && flow->part_at != flow->dev->shares_at; flow = flow->parent) {
		fl_flow_update_part(flow);
		flow->part_at = flow->dev->shares_at;
	}
}

static inline u32 __fl_flow_relative(const struct fl_flow *root, u32 share)
{
	while (root->parent)
		root = root->parent;
	return max_t(u64, div64_u64((u64)share * root->active_weight + FL_WEIGHT_MAX / 2, FL_WEIGHT_MAX), 1);
}

/*
 * The weight of an active flow as a fraction of FL_WEIGHT_MAX, in units of
 * FL_SHARE_ONE, as a share is. Unlike a share it does not change with every flow
 * that comes and goes. Of a nested flow it is its part of the weight of its
 * uppermost cgroup; at least 1, and off by half of that at most.
 */
static inline u32 fl_flow_relative_weight(const struct fl_flow *flow)
{
	return __fl_flow_relative(flow, flow->share);
}

/* The same of the flow with all below it, as of fl_flow_update_part(). */
static inline u32 fl_flow_relative_part(const struct fl_flow *flow)
{
	return __fl_flow_relative(flow, flow->part);
}

/*
 * The same of a flow that is idle, as if it alone were active of those that are not. No lock: a stale read
 * misprices one charge.
 */
static inline u32 fl_flow_relative_weight_if_active(const struct fl_flow *flow)
{
	u64 part = fl_flow_part_if_active(flow), all = FL_WEIGHT_DEFAULT; /* the root's own */
	u32 below = READ_ONCE(flow->active_weight);

	if (flow->parent && below) /* of which its own requests would have theirs */
		part = div64_u64(part * FL_WEIGHT_DEFAULT, (u64)below + FL_WEIGHT_DEFAULT);
	for (; flow->parent; flow = flow->parent)
		all = READ_ONCE(flow->parent->active_weight) +
		      (READ_ONCE(flow->active_weight) ? 0 : READ_ONCE(flow->weight));
	return max_t(u64, div64_u64(part * all + FL_WEIGHT_MAX / 2, FL_WEIGHT_MAX), 1);
}

/*
 * The mean of that over the active flows; FL_SHARE_ONE when there are none. Together they have the weights of
 * all uppermost cgroups in which something is active.
 */
static inline u32 fl_flows_mean_weight(const struct fl_dev *dev)
{
	const struct fl_flow *root;

	if (!dev->nr_active)
		return FL_SHARE_ONE;
	root = list_first_entry(&dev->active, struct fl_flow, active_node);
	while (root->parent)
		root = root->parent;
	return max_t(u64, div64_u64((u64)FL_SHARE_ONE * root->active_weight, (u64)FL_WEIGHT_MAX * dev->nr_active), 1);
}

/* The same of the share of @flow, which is active; see fl_flows_begin_shares(). */
static inline void fl_flow_renew_share(struct fl_flow *flow)
{
	u32 share = fl_flow_share(flow);

	__fl_flow_update_parts(flow);
	if (flow->share != share) /* every request reads that line */
		WRITE_ONCE(flow->share, share);
}

/* A walk that renews every share comes next. Takes dev->lock. */
static inline void fl_flows_begin_shares(struct fl_dev *dev)
{
	unsigned long flags;

	spin_lock_irqsave(&dev->lock, flags);
	dev->shares_at++;
	spin_unlock_irqrestore(&dev->lock, flags);
}

/*
 * Renew every share; that of an inactive flow is 0. The scheduler calls this in its tick(), when shares matter:
 * activity and weights may change many times in between. Takes dev->lock.
 */
static inline void fl_flows_update_shares(struct fl_dev *dev)
{
	fl_flows_begin_shares(dev);
	fl_flows_walk(dev, fl_flow_renew_share);
}

/*
 * Compute the share of a flow that has just become active. Those of the others
 * are too large until the next fl_flows_update_shares(): where many flows come
 * and go, recomputing all for each of them would be most of the work.
 */
static inline void fl_flow_update_share(struct fl_flow *flow)
{
	flow->dev->shares_at++;
	fl_flow_renew_share(flow);
}

/* Set @weight (FL_WEIGHT_MIN..FL_WEIGHT_MAX). */
static inline void fl_flow_set_weight(struct fl_flow *flow, u32 weight)
{
	if (flow->active_weight && flow->parent)
		WRITE_ONCE(flow->parent->active_weight,
			   flow->parent->active_weight + weight - flow->weight);
	WRITE_ONCE(flow->weight, weight);
}

/* @flow, no longer busy, leaves the active ones. */
static inline void __fl_flow_leave(struct fl_flow *flow)
{
	WRITE_ONCE(flow->share, 0);
	flow->dev->shares_at++; /* parts are of fewer */
	list_del_init(&flow->active_node);
	flow->dev->nr_active--;
	__fl_flow_sub_active(flow, FL_WEIGHT_DEFAULT);
}

static inline void fl_flow_set_busy(struct fl_flow *flow, bool busy)
{
	if (flow->busy == busy)
		return;
	WRITE_ONCE(flow->busy, busy);
	if (!busy) {
		__fl_flow_leave(flow);
		return;
	}
	list_add(&flow->active_node, &flow->dev->active);
	flow->dev->nr_active++;
	__fl_flow_add_active(flow, FL_WEIGHT_DEFAULT);
}

/*
 * Does this flow need activating? On every insert, so only a read: a flow
 * that ages out just now is activated by its next request.
 */
static inline bool fl_flow_touch(struct fl_queue *queue)
{
	WRITE_ONCE(queue->inserted, queue->inserted + 1);
	return unlikely(!READ_ONCE(queue->flow->busy));
}

static inline bool __fl_queue_has(struct fl_queue *q)
{
	return atomic_read(&q->held) || atomic_read(&q->unsent) || !list_empty(&q->waiting);
}

/* Has the flow of @a, which asks to be admitted, another request? As of just now; looks at all its queues. */
static inline bool fl_flow_has_others(const struct fl_admission *a)
{
	struct fl_queue *own = a->queue;
	unsigned int i;

	for (i = 0; i < own->flow->dev->nr_hwqs; i++) {
		struct fl_queue *q = fl_flow_queue(own->flow, i);

		if (q && q != own && __fl_queue_has(q))
			return true;
	}
	/* @a may have its tag */
	return atomic_read(&own->held) > a->held || atomic_read(&own->unsent) > 1 || !list_empty(&own->waiting);
}

/*
 * Has @flow a request now, or brought one since the last time? Looks at its
 * queues up to the first that has some, beginning with the one that had some the
 * last time. So a flow that almost always has some takes a look or two, not one
 * for each hardware queue.
 */
static inline bool fl_flow_wants(struct fl_flow *flow)
{
	unsigned int nr = flow->dev->nr_hwqs, at = flow->seen_at, i;
	u64 sum = 0;

	for (i = 0; i < nr; i++, at = at + 1 < nr ? at + 1 : 0) {
		struct fl_queue *q = fl_flow_queue(flow, at);

		if (!q)
			continue;
		if (__fl_queue_has(q)) {
			flow->seen_at = at;
			return true;
		}
		sum += READ_ONCE(q->inserted);
	}
	if (sum == flow->seen)
		return false;
	flow->seen = sum;
	return true;
}

/*
 * End an ageing period of an active flow: if it brought nothing in it and has
 * nothing, it becomes inactive, and false is returned.
 */
static inline bool fl_flow_age(struct fl_flow *flow)
{
	if (fl_flow_wants(flow))
		return true;
	WRITE_ONCE(flow->busy, false);
	/* A request that came just before saw the flow active: look again. */
	smp_mb();
	if (fl_flow_wants(flow))
		WRITE_ONCE(flow->busy, true);
	else
		__fl_flow_leave(flow);
	return flow->busy;
}

static inline void __fl_flow_look_at_age(struct fl_flow *flow)
{
	fl_flow_age(flow);
}

/* The same for all. For tick() alone; takes dev->lock. */
static inline void fl_flows_age(struct fl_dev *dev)
{
	fl_flows_walk(dev, __fl_flow_look_at_age);
}

#endif
