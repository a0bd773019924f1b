/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Activity, for a scheduler that has no slow path of its own: flows become active
 * with their first request, and are looked at every 100 ms. For one that wants
 * shares (weights.h) only for its flows' tags (tag-limits.h), this is all.
 */
#ifndef FAIRLANE_ACTIVITY_H
#define FAIRLANE_ACTIVITY_H

#include "weights.h"

#define FL_AGE_NS (100ull * NSEC_PER_MSEC)

/*
 * For insert(), when fl_flow_touch() says so. Takes dev->lock. The shares of the
 * others are too large until the next tick.
 */
static inline void fl_flow_activate(struct fl_flow *flow)
{
	struct fl_dev *dev = flow->dev;
	unsigned long flags;
	bool kick = false;

	spin_lock_irqsave(&dev->lock, flags);
	if (!flow->busy) {
		fl_flow_set_busy(flow, true);
		fl_flow_update_share(flow);
		kick = !dev->ticking;
		dev->ticking = true;
	}
	spin_unlock_irqrestore(&dev->lock, flags);
	if (kick)
		fl_dev_kick(dev);
}

/* For tick(). */
static inline u64 fl_flows_tick(struct fl_dev *dev)
{
	unsigned long flags;
	bool ticking;

	fl_flows_age(dev);
	fl_flows_update_shares(dev);
	spin_lock_irqsave(&dev->lock, flags);
	ticking = dev->ticking = dev->nr_active;
	spin_unlock_irqrestore(&dev->lock, flags);
	return ticking ? FL_AGE_NS : 0;
}

#endif
