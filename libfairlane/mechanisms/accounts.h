/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * What a cgroup's flows have been given together, for schedulers whose flows have virtual times of their own.
 *
 * A flow that begins is at the system's virtual time: what it did not use it has lost. A tenant that
 * sends each request from another of its cgroups would begin there each time, whatever it has had. So each
 * cgroup with others below it has an account of what went to all of these and to itself, and who begins is
 * as far ahead as any above it owes:
 *
 *	tenant (weight 100)         owes 3 requests, as if it were one flow that had sent them,
 *	 ├─ a: 1 request, gone      until the system's virtual time has gone on by as much
 *	 ├─ b: 1 request, gone
 *	 ├─ c: 1 request, gone
 *	 └─ d: begins               there, where a fourth request of that flow would be
 *
 * Nobody owes less than nothing, so who uses less than its due gains nothing by that; only between two that
 * begin does one make up for the other. Who goes on has a virtual time that says the same, and the accounts above it
 * are not looked at. As with any virtual time, what is owed counts only while others want the drive: when nobody
 * else does, the system's goes on with whoever is served.
 *
 * A scheduler embeds a struct fl_account in what it keeps of each flow, and passes its offset from the fl_flow.
 * Uppermost cgroups with none below have none above that has an account, and pay nothing. Others pay an atomic
 * addition at each level for each request, on a line that all below that cgroup share.
 */
#ifndef FAIRLANE_ACCOUNTS_H
#define FAIRLANE_ACCOUNTS_H

#include "virtual-time.h"

struct fl_account {
	/* In virtual time: added to by every core that something below uses. What a stale read misses is owed later. */
	atomic64_t charged ____cacheline_aligned_in_smp;
	/* That of fl_flow_relative_part(); 0: none was active yet. Written under dev->lock; a stale read misprices a charge. */
	u64 reciprocal;
	/* Under dev->lock: what was owed when that was last asked, and what charged and the system's time were then. */
	u64 debt, charged_then, system_then;
};

static inline struct fl_account *__fl_account(const struct fl_flow *flow, size_t offset)
{
	return (struct fl_account *)((char *)flow + offset);
}

/* @flow, if it has one, and all above it that have accounts; the root has none. */
#define fl_for_each_account(flow)                          \
	for (; (flow)->parent; (flow) = (flow)->parent)    \
		if (!READ_ONCE((flow)->has_below))         \
			continue;                          \
		else

static inline u64 __fl_account_advance(const struct fl_flow *flow, size_t offset, u64 cost)
{
	u64 reciprocal = READ_ONCE(__fl_account(flow, offset)->reciprocal);

	if (unlikely(!reciprocal))
		reciprocal = fl_vt_reciprocal((u64)READ_ONCE(flow->weight) * FL_SHARE_ONE / FL_WEIGHT_MAX);
	return fl_vt_advance(cost, reciprocal);
}

/* A request of @flow costs that (below 2^31). An atomic addition for each cgroup that has an account. No lock. */
static inline void fl_accounts_charge(const struct fl_flow *flow, size_t offset, u64 cost)
{
	fl_for_each_account(flow)
		atomic64_add(__fl_account_advance(flow, offset, cost), &__fl_account(flow, offset)->charged);
}

/* It did not go after all. */
static inline void fl_accounts_give_back(const struct fl_flow *flow, size_t offset, u64 cost)
{
	fl_for_each_account(flow)
		atomic64_add(-(s64)__fl_account_advance(flow, offset, cost), &__fl_account(flow, offset)->charged);
}

/* After fl_flow_renew_share() of @flow, which is active. Under dev->lock. */
static inline void fl_accounts_weigh(const struct fl_flow *flow, size_t offset)
{
	fl_for_each_account(flow) {
		u64 reciprocal = fl_vt_reciprocal(fl_flow_relative_part(flow));

		if (__fl_account(flow, offset)->reciprocal != reciprocal) /* every charge reads that line */
			WRITE_ONCE(__fl_account(flow, offset)->reciprocal, reciprocal);
	}
}

/* @system may go back a bit; only the furthest counts. If it goes back by more, it has wrapped. */
static inline u64 __fl_account_debt(struct fl_account *account, u64 system)
{
	u64 charged = atomic64_read(&account->charged);
	s64 debt = account->debt + charged - account->charged_then, passed = system - account->system_then;

	account->charged_then = charged;
	if (passed > 0 || passed < -(s64)FL_VT_AHEAD) {
		account->system_then = system;
		debt -= passed > 0 ? passed : debt;
	}
	account->debt = clamp_t(s64, debt, 0, FL_VT_AHEAD / 2);
	return account->debt;
}

/* How far ahead @flow begins at least, at the virtual time @system (all 64 bits). Under dev->lock. */
static inline u64 fl_accounts_debt(const struct fl_flow *flow, size_t offset, u64 system)
{
	u64 most = 0;

	fl_for_each_account(flow)
		most = max_t(u64, most, __fl_account_debt(__fl_account(flow, offset), system));
	return most;
}

#endif
