/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Reads and writes of one flow in turn, so that its reads do not wait behind all of its
 * writes: a read queue and a write queue, each with a weight. The write queue also has
 * discards and the like.
 *
 * Both are served by cost, in proportion to their weights. It is enough to keep how far
 * reads are ahead of writes: each request adds its cost times the weight of the other.
 *
 *	weights: reads 300, writes 100, all cost 1
 *	lead   0   100   -200   -100    0   100   -200 ...
 *	goes     R     W      R      R    R     W
 *
 * While one of them is empty, the other gets ahead by no more than one request. What
 * one owes the other it goes on paying.
 *
 * All under the caller's lock.
 */
#ifndef FAIRLANE_READS_AND_WRITES_H
#define FAIRLANE_READS_AND_WRITES_H

#include "../fairlane.h"

struct fl_rw {
	struct list_head rqs[2]; /* reads, and all others */
	s64 lead; /* of reads before the others, in cost times weight */
};

static inline void fl_rw_init(struct fl_rw *rw)
{
	INIT_LIST_HEAD(&rw->rqs[0]);
	INIT_LIST_HEAD(&rw->rqs[1]);
}

/* Where requests of @op are. */
static inline struct list_head *fl_rw_list(struct fl_rw *rw, enum fl_op op)
{
	return &rw->rqs[op != FL_READ];
}

static inline bool fl_rw_empty(const struct fl_rw *rw)
{
	return list_empty(&rw->rqs[0]) && list_empty(&rw->rqs[1]);
}

/* The request that has the turn; there is one. */
static inline struct fl_req *fl_rw_next(const struct fl_rw *rw)
{
	bool write = list_empty(&rw->rqs[0]) || (!list_empty(&rw->rqs[1]) && rw->lead > 0);

	return fl_req_of(rw->rqs[write].next);
}

/* A request of @op and @cost is about to leave its list; @other is the weight of the other one. */
static inline void fl_rw_account(struct fl_rw *rw, enum fl_op op, u64 cost, u64 other)
{
	s64 lead = rw->lead;

	if (op == FL_READ) {
		if (list_empty(&rw->rqs[1]))
			lead = min_t(s64, lead, 0);
		rw->lead = lead + cost * other;
	} else {
		if (list_empty(&rw->rqs[0]))
			lead = max_t(s64, lead, 0);
		rw->lead = lead - cost * other;
	}
}

#endif
