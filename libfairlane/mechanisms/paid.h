/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * What a request costs while it is in the drive, in its word (fl_req_priv()), and then that it has paid. A
 * drive may give a request back, undone; when that goes again, it does not pay again. A request's
 * word is its owner's: whoever dispatches it, or completes it.
 */
#ifndef FAIRLANE_PAID_H
#define FAIRLANE_PAID_H

#include "../fairlane.h"

#define FL_PAID (~0ul) /* more than anything costs */

static inline bool fl_has_paid(struct fl_req *rq)
{
	return *fl_req_priv(rq) == FL_PAID;
}

/* @rq, which has paid @cost by now, goes to the drive. */
static inline void fl_paid_goes(struct fl_req *rq, u64 cost)
{
	*fl_req_priv(rq) = cost;
}

/* @rq is in the drive no longer. Returns its cost; 0 if it was not there. */
static inline u64 fl_paid_leaves(struct fl_req *rq)
{
	u64 cost = *fl_req_priv(rq);

	if ((long)cost <= 0) /* FL_PAID, too */
		return 0;
	*fl_req_priv(rq) = FL_PAID;
	return cost;
}

#endif
