/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Virtual time: what a flow has been given, divided by its share.
 *
 *	vt += cost / share
 *
 * Flows whose virtual times keep pace have been served in proportion to their
 * shares. With all of the drive (share 1) one unit is one unit of cost
 * (prices.h), so that by the default prices a drive that does 10 GB/s brings
 * its flows 10^10 further each second: 2^63 are 29 years. With a lone flow of next
 * to no weight they are a minute. So nothing depends on that: times are compared by their
 * difference, which is right as long as it is below 2^63, however often both have
 * wrapped; and nobody is believed to be further ahead than FL_VT_AHEAD.
 *
 * Instead of dividing, a request multiplies by the flow's reciprocal, which
 * is kept with FL_VT_SHIFT bits after the point: exact to 1 in 16384 for a
 * flow that has the drive alone, and better for all others.
 */
#ifndef FAIRLANE_VIRTUAL_TIME_H
#define FAIRLANE_VIRTUAL_TIME_H

#include "weights.h"

#define FL_VT_SHIFT 14

/*
 * No request brings a flow further: it is reached by 1 MiB in a cgroup that has 1 / 100 of the weight of one
 * of weight 1. Words that have something else in their other bits hold differences below 2^55, which is 32768 of
 * these; who keeps such words sees to that.
 */
#define FL_VT_MOST (1ull << 40)

/*
 * Nobody is further ahead of the system's virtual time: what is charged without a dispatch (metadata) ends
 * there, and a flow that seems to be was left behind until the times wrapped.
 */
#define FL_VT_AHEAD (1ull << 50)

/* Is @a before @b? They are less than 2^63 apart. */
static inline bool fl_vt_before(u64 a, u64 b)
{
	return (s64)(a - b) < 0;
}

/*
 * The reciprocal of @share (of FL_SHARE_ONE; 0 counts as 1): 1 << FL_VT_SHIFT .. 1 << 44. However small
 * the share: if a part of it were for free, many small cgroups would have many of these parts. Divides: slow path.
 */
static inline u64 fl_vt_reciprocal(u32 share)
{
	u64 one = (u64)FL_SHARE_ONE << FL_VT_SHIFT;

	share = max_t(u32, share, 1);
	return div64_u64(one + share / 2, share);
}

/* Where a flow that was idle at @vt begins: not before @start. */
static inline u64 fl_vt_later(u64 vt, u64 start)
{
	return vt - start <= FL_VT_AHEAD ? vt : start;
}

/*
 * From where a flow goes on that was at @vt: it may be at most @most behind @start. If it seems to be further ahead
 * than anybody can be, it was idle until the times had wrapped.
 */
static inline u64 fl_vt_caught_up(u64 vt, u64 start, u64 most)
{
	s64 ahead = vt - start;

	return ahead < -(s64)most || ahead > (s64)FL_VT_AHEAD ? start - most : vt;
}

/*
 * What a flow that was idle still owes, if it is @ahead of the system's virtual time now: that, but
 * nothing if it is behind. It is nothing, too, if that is more than @most, which it can have owed: then
 * the times have wrapped meanwhile.
 */
static inline u64 fl_vt_still_owed(s64 ahead, u64 most)
{
	return ahead >= 0 && (u64)ahead <= most ? ahead : 0;
}

/* How far @cost, which may be as large as an operator likes, brings a flow of that reciprocal: 1 .. @most. */
static inline u64 fl_vt_limit(u64 cost, u64 reciprocal, u64 most)
{
	return clamp_t(u64, mul_u64_u64_shr(cost, reciprocal, FL_VT_SHIFT), 1, most);
}

/* The same of a request, whose cost is below 2^31: 1 .. FL_VT_MOST. */
static inline u64 fl_vt_advance(u64 cost, u64 reciprocal)
{
	return fl_vt_limit(cost, reciprocal, FL_VT_MOST);
}

/* The same of a charge to @flow, which may be idle: @reciprocal is that of when it was last active, if ever it was. */
static inline u64 fl_vt_charge(const struct fl_flow *flow, u64 cost, u64 reciprocal)
{
	if (!READ_ONCE(flow->busy))
		reciprocal = fl_vt_reciprocal(fl_flow_relative_weight_if_active(flow));
	return fl_vt_advance(cost, reciprocal);
}

#endif
