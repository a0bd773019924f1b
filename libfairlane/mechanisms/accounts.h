/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * What a cgroup's flows have been given together, for schedulers whose flows have virtual times of their own.
 *
 * A flow that begins is at the system's virtual time: what it did not use it has lost. A tenant that
 * sends each request from another of its cgroups would begin there each time, whatever it has had. So each
 * cgroup has an account of what went to all below it, and who begins is as far ahead as any above it owes:
 *
 *	tenant (weight 100)         the account: 3 requests, as if the tenant had sent them itself;
 *	 ├─ a: 1 request, gone      it owes them until the system's virtual time
 *	 ├─ b: 1 request, gone      has gone on by as much
 *	 ├─ c: 1 request, gone
 *	 └─ d: begins               where b and c would have left the tenant, had it been one flow
 *
 * Nobody owes less than nothing, so who uses less than its due gains nothing by that. Flows that go on
 * have virtual times that say the same, and are not asked again.
 *
 * A scheduler embeds a struct fl_account in what it keeps of each flow, and passes its offset from the fl_flow.
 * Uppermost cgroups with none below, as most tenants are, have nobody above to charge.
 */
#ifndef FAIRLANE_ACCOUNTS_H
#define FAIRLANE_ACCOUNTS_H

#include "virtual-time.h"

struct fl_account {
	/* In virtual time: added to by every core that something below uses. What a stale read misses is owed later. */
	atomic64_t charged ____cacheline_aligned_in_smp;
	/* Under dev->lock: what it owed when that was last asked, and what charged and the system's time were then. */
	u64 debt ____cacheline_aligned_in_smp;
	u64 charged_then, system_then;
};

static inline struct fl_account *__fl_account(const struct fl_flow *flow, size_t offset)
{
	return (struct fl_account *)((char *)flow + offset);
}

/*
 * @flow has been given what brings it @advance further (below FL_VT_MOST; negative: gives it back). A division and
 * an atomic addition for each cgroup above it but the root. No lock.
 */
static inline void fl_accounts_charge(const struct fl_flow *flow, size_t offset, s64 advance)
{
	u32 own = FL_WEIGHT_DEFAULT, all;

	if (flow->parent && READ_ONCE(flow->active_weight) <= own) { /* there is nothing below it */
		own = READ_ONCE(flow->weight);
		flow = flow->parent;
	}
	for (; flow->parent; own = READ_ONCE(flow->weight), flow = flow->parent) {
		all = READ_ONCE(flow->active_weight);
		if (all > own)
			advance = div64_s64(advance * own, all);
		atomic64_add(advance, &__fl_account(flow, offset)->charged);
	}
}

/*
 * How far ahead @account is of @system, which may lack the upper byte and may have wrapped: in 2^55, the time passed
 * is then taken for too little, or for none. It may also have been a bit later before. Under dev->lock.
 */
static inline u64 __fl_account_debt(struct fl_account *account, u64 system)
{
	u64 charged = atomic64_read(&account->charged);
	s64 passed = (s64)((system - account->system_then) << 8) >> 8;
	s64 debt = account->debt + charged - account->charged_then;

	account->charged_then = charged;
	if (passed > 0 || passed < -(s64)FL_VT_MOST) {
		account->system_then = system;
		debt -= max_t(s64, passed, 0);
	}
	account->debt = max_t(s64, debt, 0);
	return account->debt;
}

/* How far ahead @flow begins at least, at the virtual time @system. Under dev->lock. */
static inline u64 fl_accounts_debt(struct fl_flow *flow, size_t offset, u64 system)
{
	u64 most = 0;

	for (; flow->parent; flow = flow->parent)
		most = max_t(u64, most, __fl_account_debt(__fl_account(flow, offset), system));
	return most;
}

#endif
