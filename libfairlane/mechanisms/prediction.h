/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * How much can the drive do in a period? After Kyber-fairness (IV-3).
 *
 * The answer, the total, is handed out in the next period. It must be a little less than the
 * drive can do. More, and periods end with something unspent: nobody is held back, and shares
 * are lost. Much less, and one refill follows the other. The paper's text says that it goes by
 * the average number of tokens used, and falls when flows were throttled for longer than a period.
 * Its Algorithm 1 is not in the printed paper. This is ours, in which a round that ends with tokens
 * unspent takes the place of throttled times; a few times in a period:
 *
 *     rate   what the drive did since the last time, scaled to a period, and averaged with
 *            the previous rate. If not all was spent, there are two exceptions. A lower
 *            rate is taken over at once: too high a total costs shares. And if the drive
 *            did all that was handed out, the total was too low: an eighth more
 *     total  15/16 of the rate; at most twice and at least half of what it was
 *
 * Without the margin of 1/16, all would never be spent before the period is over.
 *
 *     the drive does 1600 pages a period, the total is 3000: after a period,
 *     1600 have been used; the totals are 1500, 1500, ..., each spent in 94 ms.
 *     The drive gets twice as fast: 1500 pages are spent in 47 ms, or
 *     3200 a period; the totals are 2250, 2625, 2812, ... 3000.
 *
 * The authors' released code does otherwise: the total is the mean of what was used the last ten
 * times, each times the whole number of such times that fit into a period. It follows ten times late,
 * and one of 51 ms counts as one of 100. (They look when a period is over or the total is used up;
 * here it is looked at as often as for our rule, so that it follows sooner.)
 *
 * All under dev->lock. Costs are in units of prices.h.
 */
#ifndef FAIRLANE_PREDICTION_H
#define FAIRLANE_PREDICTION_H

#include "../fairlane.h"

/* The first total. */
#define FL_PREDICT_FIRST (64ull * FL_COST_ONE)

/*
 * The smallest: four pages written per period, or what costs as much. More than a drive does, and nobody would
 * be held back; where reads are cheap, a slow drive does no more than tens of pages.
 */
#define FL_PREDICT_MIN (4ull * FL_COST_ONE)

/* A time shorter than period / this does not tell how fast the drive is. */
#define FL_PREDICT_WINDOW 4

/* The part of the rate that is not handed out is 1 / this. */
#define FL_PREDICT_MARGIN 16

/* What the authors' code averages. */
#define FL_PREDICT_AVERAGED 10

enum fl_prediction_rule { FL_PREDICT_FIXED, FL_PREDICT_FOLLOWS, FL_PREDICT_AUTHORS };

struct fl_prediction {
	u64 total; /* for a period, from now on */
	u64 rate; /* per period */
	u64 since_ns, done; /* the last prediction, and what the drive had done then */
	u64 averaged[FL_PREDICT_AVERAGED]; /* by the authors' code */
	unsigned int next;
};

static inline void fl_prediction_init(struct fl_prediction *p, u64 now_ns)
{
	p->total = p->rate = FL_PREDICT_FIRST;
	p->since_ns = now_ns;
}

static inline u64 __fl_prediction_authors(struct fl_prediction *p, u64 used, u64 times)
{
	u64 sum = 0;
	unsigned int i;

	if (!used)
		return p->total;
	used *= max_t(u64, times, 1);
	for (i = 0; i < FL_PREDICT_AVERAGED; i++) {
		if (i == p->next || !p->averaged[i])
			p->averaged[i] = used;
		sum += p->averaged[i];
	}
	p->next = (p->next + 1) % FL_PREDICT_AVERAGED;
	return div64_u64(sum, FL_PREDICT_AVERAGED);
}

/* Has enough time passed since the last time? */
static inline bool fl_prediction_is_due(const struct fl_prediction *p, u64 period_ns, u64 now_ns)
{
	return now_ns - p->since_ns >= div64_u64(period_ns, FL_PREDICT_WINDOW);
}

/*
 * The drive has done @done so far. @unspent: time was up before all was spent; @only: nothing
 * was handed out beyond the total. When it is due.
 */
static inline void fl_predict(struct fl_prediction *p, enum fl_prediction_rule rule,
			      u64 period_ns, u64 now_ns, u64 done, bool unspent, bool only)
{
	u64 ns = now_ns - p->since_ns, used = done - p->done, total = p->total;
	u64 rate = mul_u64_u64_div_u64(used, period_ns, ns);

	p->since_ns = now_ns;
	p->done = done;
	if (unspent && only && rate >= total - total / (2 * FL_PREDICT_MARGIN))
		rate = total + total / 8; /* it did all that it was allowed to */
	else if (!unspent || rate > p->rate)
		rate = (p->rate + rate) / 2;
	p->rate = rate;
	if (rule == FL_PREDICT_FOLLOWS)
		total = clamp_t(u64, rate - rate / FL_PREDICT_MARGIN, total / 2, total * 2);
	else if (rule == FL_PREDICT_AUTHORS)
		total = __fl_prediction_authors(p, used, div64_u64(period_ns, ns));
	p->total = max_t(u64, FL_PREDICT_MIN, total);
}

#endif
