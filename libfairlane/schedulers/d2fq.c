// SPDX-License-Identifier: GPL-2.0-only OR MIT
/*
 * D2FQ: device-direct fair queueing. Nothing is staged; the drive schedules.
 *
 * After "D2FQ: Device-Direct Fair Queueing for NVMe SSDs" (Woo, Ahn, Lee, Jeong; FAST 2021).
 * Section numbers in brackets are the paper's.
 *
 * 1. The idea
 *
 * A scheduler submits, arbitrates, and dispatches, and on a fast drive the arbitration costs more than the
 * I/O. But an NVMe drive has an arbiter of its own: weighted round robin (WRR) among three classes of
 * submission queues. So each request goes to the drive at once, and all that is decided is the class:
 * whoever has had less than the others goes to the fast queues, whoever has had more goes to the slow ones
 * (3.1). The root's go to the fast ones always: everybody may depend on its swapping and metadata.
 *
 *     flow A (behind)     flow B (ahead)
 *          \                /
 *     [high: 8] [medium: 3] [low: 1]     commands per round
 *          \________|________/
 *               the drive
 *
 * 2. Who is ahead? (3.1)
 *
 * Each flow has a virtual time: the cost (prices.h: by default bytes) of what it
 * has sent to the drive, divided by its weight. (The paper charges what is done.
 * Then a burst is through before any of it counts.) Flows whose virtual times keep
 * pace are served by weight. The global virtual time (gvt) is the least of
 * those of active flows, and a request's class follows from the gap
 *
 *     gap = vt(flow) - gvt     below low_threshold / 2    high
 *                              below low_threshold        medium
 *                              from there on              low        (Eq. 1)
 *
 *     weights 3:1, both with many requests outstanding, high:low = 3:1. They
 *     begin in high and get as much; B's virtual time runs three times as
 *     fast; when it is low_threshold ahead, B goes on in low, gets a third of
 *     what A gets, and stays there. With high:low = 6:1 it would fall back
 *     and use high for three of every seven requests.
 *
 * A small threshold makes flows fair sooner, and has more of them wait in the low queues for no good
 * reason (3.3). It is given in bytes for a flow of the mean weight of those that are active: one of half
 * that weight may be half as many bytes ahead. (The paper's are fixed.)
 *
 * 3. How fast is high? (3.2)
 *
 * The ratio of the weights of high and low decides how far apart flows can be
 * kept. Too small, and nobody is fair; too large, and whoever goes to low
 * waits there longer than it must. So every period (1 s)
 *
 *     raise   if the flow furthest ahead is more than 2 * low_threshold ahead of
 *             the one furthest behind, of those that were active all period.
 *             In the last period virtual times ran apart as dvt(max) : dvt(min):
 *             ratio = ratio * dvt(max) / dvt(min) + 1                   (Eq. 2)
 *     lower   otherwise, to what would have done. Had a flow used high
 *             alone, it would have been faster by its virtual slowdown,
 *             (in high + in medium * high / medium + in low * high / low)
 *             / all of it; ratio = the greatest slowdown, rounded up    (Eq. 3)
 *
 * Medium is the square root of the ratio, low is 1. NVMe's weights go to 256,
 * which is where the ratio starts. It does not go below 3: the paper does not
 * say so, but its authors' code does, and its figures settle there.
 *
 * Until a period is over, all that is known is the weights. They say what is
 * enough: if the lightest flow is alone in low and all others are in high, it has
 * no more than its share at a ratio of
 *
 *     the sum of all weights / the least of them
 *
 * (which is Eq. 2's result for one of weight 1 against seven of 3: 22). So, and
 * this is not in the paper, a flow that becomes active raises the ratio to that,
 * and the first one after a silence sets it. The next adjustment does not go below
 * that, as its period is in part from before the flow came; the ones after trim it.
 * Without feed_forward the ratio is 256 in the first second, as in the paper, and
 * whoever is in low waits that much longer; and too small for a second when a
 * light flow comes later.
 *
 * With the ratio of Eq. 2 virtual times come together again, but slowly: what a flow got too much in a
 * second it would pay back for minutes, and never leave low. So, and this is not in the paper, what is
 * beyond low_threshold is dropped as soon as virtual times no longer run apart.
 *
 * Eq. 3 looks at one flow at a time, as if it alone were slow. Where several share medium, the ratio
 * that it gives is too small. A flow that then goes to low is alone there, and gets more than its share
 * until Eq. 2 corrects that, again every few seconds. So, and this is not in the paper, there is a lower
 * bound. Take the flows that were mostly in medium and low, and of these the one with the fewest
 * requests. The ratio is not lowered below the point where low, against high and medium, has that
 * flow's part of all requests:
 *
 *     weights 8:6:4:2; the last one has 1 of 10 requests, and ratio 7 gives
 *     low 1 of 7 + 3 + 1; Eq. 3 alone goes to 3, where it is 1 of 3 + 2 + 1
 *
 * 4. The least virtual time, without looking at all of them (3.4)
 *
 * gvt is a word: a virtual time, and the flow that holds it. Whoever sends a
 * request updates it by compare-and-swap, if
 *
 *     nobody holds it                     the flow becomes the holder
 *     the flow holds it                   and has moved on
 *     the flow is behind it               the flow becomes the holder
 *
 * The holder may overtake another without noticing, and then gvt is not the
 * least; until that other flow sends a request, finds itself behind, and
 * takes over. A flow that becomes idle lets go. So most requests read a word that
 * does not change much, and that is all.
 *
 * A flow is idle when it had no request, and none outstanding, for a grace
 * period (3.5; weights.h). When it returns it starts at gvt; or ahead of it by what it still owes, and
 * this is not in the paper.
 *
 * 5. Who does not want its share
 *
 * This is not in the paper. A flow that waits for each request before it sends the next, or is limited
 * elsewhere, falls behind for good. It holds gvt, so that all others are ahead and go to low, where they
 * share without regard to weight; and no ratio helps. But it shows: the low class gets more than its
 * weight only while the high queues are empty. When it does (and that is not little), nobody holds back
 * those that went to high all period long. If such a flow still moves at less than half the pace of the
 * foremost, it is limited: it does not hold gvt, is never behind it, and so takes what it can, in high. It
 * counts again once it is ahead of the others; and, since others may have kept it from getting there,
 * after 16, 32, 64, 64, ... periods in any case.
 *
 * That takes two whole periods. Who becomes idle within them, and comes back, again and again, is not found.
 *
 * When to use it: a drive with WRR (CAP.AMS; docs/nvme.md), and little CPU time
 * to spare. When not: where short-term fairness needs a bound, there is none.
 */
#include "../fairlane.h"
#include "../mechanisms/virtual-time.h"

/* gvt: the upper 48 bits of a virtual time times 2^8, and 16 bits for its holder. */
#define D2_VT_SHIFT 8
#define D2_ID_MASK 0xffffull
#define D2_NO_HOLDER 0

/*
 * Nobody is left further ahead than that, 2^50 units of virtual time or 10 TiB at
 * weight 100; nor are thresholds larger than a quarter of it. That is far from
 * 2^55, where a difference would change its sign.
 */
#define D2_MAX_GAP (1ll << 50)
/* Of smaller steps 2^25 take a flow as far as that: more than a drive does in a period, of seconds. */
#define D2_LARGE (1ull << 25)

/* As in the authors' code. Only fixed_ratio goes below. */
#define D2_MIN_RATIO 3

/* For how many periods a flow counts as limited, at first and at most. */
#define D2_LIMITED_FOR 16
#define D2_MAX_LIMITED_FOR 64

/* The high queues ran dry if low got 2 times its weight, and 1 / 8 of all requests. */
#define D2_DRY_TIMES 2
#define D2_DRY_PART 8

/* What a flow sent to each class, so far. */
struct d2_use {
	u64 requests[FL_NR_CLASSES], cost[FL_NR_CLASSES];
};

struct d2_flow {
	struct fl_flow flow;
	/*
	 * Added to by each request that is sent, and by charges (metadata); set when the flow becomes active,
	 * and brought up or back. A stale read routes a request by a gap that is a few requests old.
	 */
	atomic64_t vt ____cacheline_aligned_in_smp;
	/* Written under dev->lock, read without: a request is charged at the flow's last weight. */
	u64 reciprocal ____cacheline_aligned_in_smp; /* of its weight; see d2_weigh() */
	bool limited; /* see 5 above */
	/* Under dev->lock. */
	u16 id; /* as the holder of gvt; D2_NO_HOLDER: all ids are taken, and it never holds it */
	bool joined; /* active, up to the last look at who still is */
	bool whole; /* since before the period began */
	bool unhindered; /* it was whole in the last period, and used nothing but high */
	unsigned int limited_periods, limited_for; /* so many more; how many the next time */
	u64 owed; /* how far it was ahead when it became idle, or was last charged since */
	u64 moved; /* its virtual time, in the last period */
	/* When the period or, later, its activity began. */
	u64 seen_vt;
	struct d2_use seen;
};

/* A flow that was active all of a period. No pointer: it may have left meanwhile. */
struct d2_whole {
	u64 seen_vt, moved;
	s64 ahead;
};

/* What the active flows did in a period. */
struct d2_period {
	s64 gvt;
	bool any; /* of them were active all of it */
	struct d2_whole max, min; /* furthest ahead and behind of these */
	u64 slowdown; /* the greatest */
	u64 slow_requests; /* the fewest of a flow that was mostly in medium and low; or ~0 */
	s64 most; /* that a flow may stay ahead of min */
	u64 requests, in_low; /* of all flows */
};

struct d2_dev {
	struct fl_dev dev;
	/* Written by who sends, by compare-and-swap; read by all. Stale: see d2_flow.vt. */
	atomic64_t gvt ____cacheline_aligned_in_smp;
	/* Written under dev->lock, read without: a few requests go by the last threshold. */
	s64 threshold ____cacheline_aligned_in_smp; /* of low, in virtual time */

	/* The rest is under dev->lock. */
	u64 mean_reciprocal; /* of the active flows' mean weight */
	/* Of the active flows' relative weights, but for the root's; and since the last ageing. */
	u32 least, least_seen;
	u64 ids[(D2_ID_MASK + 1) / 64]; /* taken */
	unsigned int weight[FL_NR_CLASSES]; /* of the drive's classes */
	u64 fed; /* the ratio that flows which came since the last adjustment need; 0: none came */
	u64 aged_ns, adjusted_ns;

	struct d2_period period; /* of d2_tick() alone, of which there is one at a time */

	/* Tunables: written by the operator at any time, read with READ_ONCE(). */
	u64 low_threshold, period_nsec, grace_nsec, fixed_ratio, feed_forward;
	/* Counters. */
	u64 hl_ratio, medium_weight, max_gap, raised, lowered, active_flows, limited_flows;
};

static inline struct d2_dev *to_d2_dev(struct fl_dev *dev)
{
	return container_of(dev, struct d2_dev, dev);
}

static inline struct d2_flow *to_d2_flow(struct fl_flow *flow)
{
	return container_of(flow, struct d2_flow, flow);
}

/* ---- Global virtual time --------------------------------------------- */

static s64 d2_word(u64 vt, u16 id)
{
	return ((vt << D2_VT_SHIFT) & ~D2_ID_MASK) | id;
}

static u16 d2_holder(s64 word)
{
	return word & D2_ID_MASK;
}

/* The virtual time in @word; it lacks the upper bits, which no difference needs. */
static u64 d2_vt(s64 word)
{
	return ((u64)word & ~D2_ID_MASK) >> D2_VT_SHIFT;
}

/* How far @vt is ahead of that of @word; negative: behind. */
static s64 d2_ahead(u64 vt, s64 word)
{
	return (s64)((vt << D2_VT_SHIFT) - ((u64)word & ~D2_ID_MASK)) >> D2_VT_SHIFT;
}

static void d2_update_gvt(struct d2_dev *d2, u64 vt, u16 id)
{
	s64 old = atomic64_read(&d2->gvt), ahead;

	do {
		ahead = d2_ahead(vt, old);
		if (d2_holder(old) == id ? ahead <= 0 : d2_holder(old) != D2_NO_HOLDER && ahead >= 0)
			return;
	} while (!atomic64_try_cmpxchg(&d2->gvt, &old, d2_word(vt, id)));
}

static void d2_release_gvt(struct d2_dev *d2, u16 id)
{
	s64 old = atomic64_read(&d2->gvt);

	do {
		if (d2_holder(old) != id || id == D2_NO_HOLDER)
			return;
	} while (!atomic64_try_cmpxchg(&d2->gvt, &old, d2_word(d2_vt(old), D2_NO_HOLDER)));
}

/* ---- Submission: the hot path ------------------------------------------ */

/*
 * Bring a limited flow, which is never behind, up to gvt. If its virtual time
 * moves meanwhile, the next request does so. It does not hold gvt either; it may
 * do so here only if an update was under way when it became limited.
 */
static s64 d2_catch_up(struct d2_dev *d2, struct d2_flow *d2f, s64 vt, s64 ahead)
{
	d2_release_gvt(d2, d2f->id);
	if (ahead >= 0)
		return ahead;
	atomic64_try_cmpxchg(&d2f->vt, &vt, vt - ahead);
	return 0;
}

static enum fl_class d2_class(struct d2_dev *d2, struct d2_flow *d2f)
{
	s64 vt = atomic64_read(&d2f->vt), ahead = d2_ahead(vt, atomic64_read(&d2->gvt));
	s64 threshold = READ_ONCE(d2->threshold);

	/* No flow is compared with the root. */
	if (unlikely(!d2f->flow.parent))
		return FL_HIGH;
	if (unlikely(READ_ONCE(d2f->limited)))
		ahead = d2_catch_up(d2, d2f, vt, ahead);
	if (ahead < threshold / 2)
		return FL_HIGH;
	return ahead < threshold ? FL_MEDIUM : FL_LOW;
}

/* A flow of next to no weight that is too far ahead already, in low, gets no further. */
static u64 d2_bounded(struct d2_dev *d2, struct d2_flow *d2f, u64 by)
{
	u64 vt;

	if (likely(by < D2_LARGE))
		return by;
	vt = atomic64_read(&d2f->vt);
	return d2_ahead(vt, atomic64_read(&d2->gvt)) < D2_MAX_GAP ? by : 0;
}

static void d2_activate(struct d2_dev *d2, struct d2_flow *d2f);

static enum fl_class d2_route(struct fl_queue *queue, struct fl_req *rq)
{
	struct d2_dev *d2 = to_d2_dev(queue->hwq->dev);
	struct d2_flow *d2f = to_d2_flow(queue->flow);
	u64 cost = fl_cost(&d2->dev.prices, fl_req_op(rq), fl_req_bytes(rq)), vt;
	enum fl_class class;

	if (fl_flow_touch(queue))
		d2_activate(d2, d2f);
	class = d2_class(d2, d2f);
	*fl_req_priv(rq) = d2_bounded(d2, d2f, fl_vt_advance(cost, READ_ONCE(d2f->reciprocal)));
	vt = atomic64_add_return(*fl_req_priv(rq), &d2f->vt);
	if (likely(d2f->id != D2_NO_HOLDER && !READ_ONCE(d2f->limited)))
		d2_update_gvt(d2, vt, d2f->id);
	fl_queue_account(queue, rq, cost);
	WRITE_ONCE(queue->routed[class], queue->routed[class] + 1);
	WRITE_ONCE(queue->routed_cost[class], queue->routed_cost[class] + cost);
	return class;
}

static void d2_bring_up(struct d2_dev *d2, struct d2_flow *d2f, u64 by);

static void d2_charge(struct fl_queue *queue, enum fl_op op, u32 bytes)
{
	struct d2_flow *d2f = to_d2_flow(queue->flow);
	struct fl_dev *dev = queue->hwq->dev;
	struct d2_dev *d2 = to_d2_dev(dev);
	u64 by = fl_vt_charge(queue->flow, fl_cost(&dev->prices, op, bytes), READ_ONCE(d2f->reciprocal));
	unsigned long flags;

	if (unlikely(!READ_ONCE(queue->flow->busy))) {
		spin_lock_irqsave(&dev->lock, flags);
		if (!queue->flow->busy) {
			d2_bring_up(d2, d2f, by);
			by = 0;
		}
		spin_unlock_irqrestore(&dev->lock, flags);
	}
	atomic64_add(d2_bounded(d2, d2f, by), &d2f->vt);
}

/* The drive did not take @rq after all. If its flow holds gvt, the next request sets that right. */
static void d2_unroute(struct fl_queue *queue, struct fl_req *rq)
{
	atomic64_add(-(s64)*fl_req_priv(rq), &to_d2_flow(queue->flow)->vt);
}

/* ---- The H/L ratio; under dev->lock ------------------------------------- */

/* The square root of @ratio, rounded to the nearest. */
static unsigned int d2_root(unsigned int ratio)
{
	unsigned int root = 1;

	while (root * (root + 1) < ratio)
		root++;
	return root;
}

/* Also if it is the same: a reset, or someone else, may have changed the weights in the drive. */
static void d2_set_ratio(struct d2_dev *d2, u64 ratio)
{
	ratio = clamp_t(u64, ratio, 1, FL_CLASS_WEIGHT_MAX);
	if (ratio > d2->weight[FL_HIGH])
		d2->raised++;
	else if (ratio < d2->weight[FL_HIGH])
		d2->lowered++;
	d2->weight[FL_HIGH] = ratio;
	d2->weight[FL_MEDIUM] = d2_root(ratio);
	d2->weight[FL_LOW] = 1;
	d2->hl_ratio = ratio;
	d2->medium_weight = d2->weight[FL_MEDIUM];
	fl_dev_weights(&d2->dev, d2->weight[FL_HIGH], d2->weight[FL_MEDIUM], d2->weight[FL_LOW]);
}

/* What the weights say is enough; see 3 above. @flow is active. */
static u64 d2_enough(const struct d2_dev *d2, const struct fl_flow *flow)
{
	u64 sum;

	while (flow->parent)
		flow = flow->parent;
	sum = div64_u64((u64)flow->active_weight * FL_SHARE_ONE, FL_WEIGHT_MAX);
	return max_t(u64, div64_u64(sum + d2->least / 2, d2->least), D2_MIN_RATIO);
}

/* @flow has just become active. */
static void d2_feed_forward(struct d2_dev *d2, const struct fl_flow *flow)
{
	u64 fixed = READ_ONCE(d2->fixed_ratio), ratio = fixed ? fixed : d2_enough(d2, flow);

	if (!fixed && !READ_ONCE(d2->feed_forward))
		return;
	d2->fed = ratio;
	if (d2->dev.nr_active == 1 || ratio > d2->weight[FL_HIGH])
		d2_set_ratio(d2, ratio);
}

/* ---- Activity and weights; under dev->lock ---------------------------- */

static void d2_weigh(struct fl_flow *flow)
{
	struct d2_dev *d2 = to_d2_dev(flow->dev);
	u32 weight;

	fl_flow_renew_share(flow);
	weight = fl_flow_relative_weight(flow);
	WRITE_ONCE(to_d2_flow(flow)->reciprocal, fl_vt_reciprocal(weight));
	if (flow->parent)
		d2->least_seen = min_t(u32, d2->least_seen, weight);
}

static void d2_update_threshold(struct d2_dev *d2)
{
	d2->mean_reciprocal = fl_vt_reciprocal(fl_flows_mean_weight(&d2->dev));
	WRITE_ONCE(d2->threshold, fl_vt_limit(READ_ONCE(d2->low_threshold), d2->mean_reciprocal, D2_MAX_GAP / 4));
}

static struct d2_use d2_use(struct d2_flow *d2f)
{
	const struct fl_dev *dev = d2f->flow.dev;
	struct d2_use use = {};
	unsigned int i;
	int c;

	for (i = 0; i < dev->nr_hwqs; i++) {
		struct fl_queue *queue = fl_flow_queue(&d2f->flow, i);

		for (c = 0; queue && c < FL_NR_CLASSES; c++) {
			use.requests[c] += READ_ONCE(queue->routed[c]);
			use.cost[c] += READ_ONCE(queue->routed_cost[c]);
		}
	}
	return use;
}

/* An idle flow is as far ahead of gvt as it still owes, and by @by more. */
static void d2_bring_up(struct d2_dev *d2, struct d2_flow *d2f, u64 by)
{
	s64 gvt = atomic64_read(&d2->gvt), ahead = d2_ahead(atomic64_read(&d2f->vt), gvt);

	/* gvt goes back when a slower flow takes it over, by about a threshold. */
	d2f->owed = fl_vt_still_owed(ahead, d2f->owed + 2 * d2->threshold) + by;
	d2f->owed = min_t(u64, d2f->owed, D2_MAX_GAP);
	atomic64_set(&d2f->vt, d2_vt(gvt) + d2f->owed);
}

static void d2_activate(struct d2_dev *d2, struct d2_flow *d2f)
{
	unsigned long flags;
	bool first;

	spin_lock_irqsave(&d2->dev.lock, flags);
	first = !d2->dev.nr_active;
	if (d2f->flow.busy)
		goto out;
	if (first) { /* the time without any request does not count */
		d2->aged_ns = fl_now_ns();
		d2->adjusted_ns = d2->aged_ns;
		fl_dev_kick(&d2->dev);
	}
	/* It has nothing in flight: nobody else writes vt but a charge that may be lost, or reads it before busy is set. */
	d2_bring_up(d2, d2f, 0);
	d2f->joined = d2f->flow.parent;
	d2f->limited_for = D2_LIMITED_FOR;
	d2f->whole = false;
	d2f->unhindered = false;
	d2f->seen_vt = atomic64_read(&d2f->vt);
	d2f->seen = d2_use(d2f);
	fl_flow_set_busy(&d2f->flow, true);
	if (first) {
		d2_update_threshold(d2);
		d2->least = d2->least_seen = FL_SHARE_ONE;
	}
	fl_flow_update_share(&d2f->flow); /* the others' in the next d2_age() */
	d2_weigh(&d2f->flow);
	d2->least = min_t(u32, d2->least, d2->least_seen);
	d2_feed_forward(d2, &d2f->flow);
out:
	spin_unlock_irqrestore(&d2->dev.lock, flags);
}

static void d2_set_limited(struct d2_dev *d2, struct d2_flow *d2f, bool limited)
{
	if (d2f->limited == limited)
		return;
	WRITE_ONCE(d2f->limited, limited);
	d2->limited_flows += limited ? 1 : -1;
}

static void d2_leave(struct d2_dev *d2, struct d2_flow *d2f)
{
	u64 vt = atomic64_read(&d2f->vt);
	s64 ahead = d2_ahead(vt, atomic64_read(&d2->gvt));

	d2f->owed = max_t(s64, ahead, 0);
	d2f->joined = false;
	d2_set_limited(d2, d2f, false);
	d2_release_gvt(d2, d2f->id); /* it has nothing in flight, so no update is under way */
}

static void d2_age_one(struct fl_flow *flow)
{
	if (!fl_flow_age(flow) && to_d2_flow(flow)->joined)
		d2_leave(to_d2_dev(flow->dev), to_d2_flow(flow));
}

/* Takes dev->lock. */
static void d2_age(struct d2_dev *d2)
{
	unsigned long flags;

	fl_flows_walk(&d2->dev, d2_age_one);
	fl_flows_begin_shares(&d2->dev);
	fl_flows_walk(&d2->dev, d2_weigh);
	spin_lock_irqsave(&d2->dev.lock, flags);
	d2_update_threshold(d2);
	d2->least = d2->least_seen;
	d2->least_seen = FL_SHARE_ONE;
	d2->active_flows = d2->dev.nr_active;
	spin_unlock_irqrestore(&d2->dev.lock, flags);
}

/* ---- What the ratio should be; once a period ----------------------------- */

/* Eq. 3, rounded up. */
static u64 d2_slowdown(const struct d2_dev *d2, const u64 cost[FL_NR_CLASSES])
{
	u64 all = cost[FL_HIGH] + cost[FL_MEDIUM] + cost[FL_LOW], fast = 0;
	int c;

	if (!all)
		return 1;
	for (c = 0; c < FL_NR_CLASSES; c++)
		fast += mul_u64_u64_div_u64(cost[c], d2->weight[FL_HIGH], d2->weight[c]);
	return div64_u64(fast + all - 1, all);
}

/* Add what @flow did, and begin its next period. */
static void d2_add(struct fl_flow *flow)
{
	struct d2_dev *d2 = to_d2_dev(flow->dev);
	struct d2_flow *d2f = to_d2_flow(flow);
	struct d2_period *p = &d2->period;
	u64 vt = atomic64_read(&d2f->vt), cost[FL_NR_CLASSES], requests = 0, slow;
	s64 ahead = d2_ahead(vt, p->gvt);
	struct d2_use use = d2_use(d2f);
	int c;

	if (!d2f->joined)
		return;
	for (c = 0; c < FL_NR_CLASSES; c++) {
		requests += use.requests[c] - d2f->seen.requests[c];
		cost[c] = use.cost[c] - d2f->seen.cost[c];
	}
	slow = cost[FL_MEDIUM] + cost[FL_LOW];
	p->in_low += use.requests[FL_LOW] - d2f->seen.requests[FL_LOW];
	p->requests += requests;
	p->slowdown = max_t(u64, p->slowdown, d2_slowdown(d2, cost));
	if (slow > cost[FL_HIGH])
		p->slow_requests = min_t(u64, p->slow_requests, requests);
	if (slow)
		d2f->limited_for = D2_LIMITED_FOR;
	if (d2f->limited && (slow || !--d2f->limited_periods))
		d2_set_limited(d2, d2f, false);
	d2f->moved = max_t(s64, vt - d2f->seen_vt, 0); /* less: what it had sent before was not taken */
	d2f->unhindered = d2f->whole && !slow;
	if (d2f->whole && !d2f->limited) {
		struct d2_whole it = { .seen_vt = vt, .moved = d2f->moved, .ahead = ahead };

		if (!p->any || ahead > p->max.ahead)
			p->max = it;
		if (!p->any || ahead < p->min.ahead)
			p->min = it;
		p->any = true;
	}
	d2f->whole = true;
	d2f->seen_vt = vt;
	d2f->seen = use;
}

/* See 5 above: did the high queues run dry, so that low got more than its weight? */
static bool d2_high_is_dry(const struct d2_dev *d2, const struct d2_period *p)
{
	return p->in_low * D2_DRY_PART > p->requests &&
	       p->in_low * (d2->weight[FL_HIGH] + 1) > p->requests * D2_DRY_TIMES;
}

static void d2_find_limited(struct fl_flow *flow)
{
	struct d2_dev *d2 = to_d2_dev(flow->dev);
	struct d2_flow *d2f = to_d2_flow(flow);

	if (!d2f->joined || !d2f->unhindered || d2f->limited || 2 * d2f->moved >= d2->period.max.moved)
		return;
	d2_set_limited(d2, d2f, true);
	d2f->limited_periods = d2f->limited_for;
	d2f->limited_for = min_t(unsigned int, 2 * d2f->limited_for, D2_MAX_LIMITED_FOR);
	d2_release_gvt(d2, d2f->id); /* see d2_catch_up() */
}

/* No flow stays further ahead of the one furthest behind than is allowed. */
static void d2_bound_gap(struct fl_flow *flow)
{
	const struct d2_period *p = &to_d2_dev(flow->dev)->period;
	struct d2_flow *d2f = to_d2_flow(flow);
	s64 ahead = d2_ahead(d2f->seen_vt, d2_word(p->min.seen_vt, D2_NO_HOLDER));

	if (!d2f->joined || ahead <= p->most)
		return;
	d2f->seen_vt -= ahead - p->most;
	atomic64_add(p->most - ahead, &d2f->vt);
}

/* Eq. 2. */
static u64 d2_raised_ratio(const struct d2_dev *d2, const struct d2_period *p)
{
	if (!p->min.moved)
		return FL_CLASS_WEIGHT_MAX;
	return mul_u64_u64_div_u64(p->max.moved, d2->weight[FL_HIGH], p->min.moved) + 1;
}

/* Eq. 3, but not below the ratio at which low has no more than a slow flow had, or that newcomers need; see 3 above. */
static u64 d2_lowered_ratio(const struct d2_dev *d2, const struct d2_period *p)
{
	u64 ratio = max_t(u64, max_t(u64, p->slowdown, d2->fed), D2_MIN_RATIO);

	while (ratio < d2->weight[FL_HIGH] && p->slow_requests < p->requests &&
	       (ratio + d2_root(ratio) + 1) * p->slow_requests < p->requests)
		ratio++;
	return ratio;
}

/* Takes dev->lock. Only here and where a flow becomes active is the ratio, or what it comes from, written. */
static void d2_adjust(struct d2_dev *d2)
{
	struct d2_period *p = &d2->period;
	u64 fixed = READ_ONCE(d2->fixed_ratio), gap, ratio;
	unsigned long flags;
	bool unfair, apart, dry;

	*p = (struct d2_period){ .gvt = atomic64_read(&d2->gvt), .slowdown = 1, .slow_requests = ~0ull };
	fl_flows_walk(&d2->dev, d2_add);
	gap = p->any ? p->max.ahead - p->min.ahead : 0;
	unfair = gap > 2 * (u64)READ_ONCE(d2->threshold);
	apart = p->max.moved > p->min.moved;
	p->most = apart ? D2_MAX_GAP : READ_ONCE(d2->threshold);
	if (unfair)
		fl_flows_walk(&d2->dev, d2_bound_gap);

	spin_lock_irqsave(&d2->dev.lock, flags);
	d2->max_gap = mul_u64_u64_div_u64(gap, 1u << FL_VT_SHIFT, d2->mean_reciprocal);
	dry = unfair && d2_high_is_dry(d2, p);
	ratio = d2->weight[FL_HIGH];
	if (!dry && p->requests)
		ratio = unfair && apart ? d2_raised_ratio(d2, p) : d2_lowered_ratio(d2, p);
	d2->fed = 0;
	d2_set_ratio(d2, fixed ? fixed : ratio);
	spin_unlock_irqrestore(&d2->dev.lock, flags);
	if (dry)
		fl_flows_walk(&d2->dev, d2_find_limited);
}

static u64 d2_tick(struct fl_dev *dev)
{
	struct d2_dev *d2 = to_d2_dev(dev);
	u64 grace = READ_ONCE(d2->grace_nsec), period = READ_ONCE(d2->period_nsec), next;
	unsigned long flags;

	if (fl_is_due(dev, &d2->aged_ns, grace))
		d2_age(d2);
	if (fl_is_due(dev, &d2->adjusted_ns, period))
		d2_adjust(d2);
	spin_lock_irqsave(&dev->lock, flags);
	next = fl_until(min_t(u64, d2->aged_ns + grace, d2->adjusted_ns + period), dev);
	spin_unlock_irqrestore(&dev->lock, flags);
	return next;
}

/* ---- Setting up -------------------------------------------------------- */

static void d2_init_dev(struct fl_dev *dev)
{
	struct d2_dev *d2 = to_d2_dev(dev);

	d2->ids[0] = 1ull << D2_NO_HOLDER;
	d2->aged_ns = fl_now_ns();
	d2->adjusted_ns = d2->aged_ns;
	d2_update_threshold(d2);
	d2->least = d2->least_seen = FL_SHARE_ONE;
	d2_set_ratio(d2, FL_CLASS_WEIGHT_MAX);
}

static void d2_init_flow(struct fl_flow *flow)
{
	struct d2_dev *d2 = to_d2_dev(flow->dev);
	unsigned int i, bit;

	for (i = 0; flow->parent && i < ARRAY_SIZE(d2->ids); i++) {
		if (d2->ids[i] == ~0ull)
			continue;
		bit = fls64(~d2->ids[i] & -~d2->ids[i]) - 1;
		d2->ids[i] |= 1ull << bit;
		to_d2_flow(flow)->id = i * 64 + bit;
		return;
	}
}

static void d2_exit_flow(struct fl_flow *flow)
{
	struct d2_dev *d2 = to_d2_dev(flow->dev);
	struct d2_flow *d2f = to_d2_flow(flow);

	if (d2f->joined)
		d2_leave(d2, d2f);
	if (d2f->id != D2_NO_HOLDER)
		d2->ids[d2f->id / 64] &= ~(1ull << d2f->id % 64);
}

/* The gap as low_threshold is given: for a flow of mean weight. */
static void d2_virtual_time(struct fl_flow *flow, u64 *vt, s64 *gap)
{
	struct d2_dev *d2 = to_d2_dev(flow->dev);
	s64 ahead;

	*vt = atomic64_read(&to_d2_flow(flow)->vt);
	ahead = flow->busy ? d2_ahead(*vt, atomic64_read(&d2->gvt)) : 0;
	*gap = mul_u64_u64_div_u64(ahead < 0 ? -ahead : ahead, 1u << FL_VT_SHIFT, d2->mean_reciprocal);
	if (ahead < 0)
		*gap = -*gap;
}

#define D2_TUNABLE(...) FL_TUNABLE(struct d2_dev, __VA_ARGS__)
#define D2_COUNTER(_name, ...) FL_COUNTER(struct d2_dev, _name, _name, __VA_ARGS__)

static const struct fl_var d2_vars[] = {
	D2_TUNABLE(low_threshold, "bytes", 4096, 1ull << 32, 8ull << 20,
		   "a flow of mean weight that is so far ahead goes to the low queues"),
	D2_TUNABLE(period_nsec, "ns", NSEC_PER_MSEC, 100ull * NSEC_PER_SEC, NSEC_PER_SEC,
		   "between two adjustments of the H/L ratio"),
	D2_TUNABLE(grace_nsec, "ns", NSEC_PER_MSEC, 10ull * NSEC_PER_SEC, 100ull * NSEC_PER_MSEC,
		   "a flow that brought nothing for so long is idle; weights and thresholds are looked at as often"),
	D2_TUNABLE(fixed_ratio, "", 0, FL_CLASS_WEIGHT_MAX, 0,
		   "the H/L ratio; 0: it follows what is needed"),
	D2_TUNABLE(feed_forward, "bool", 0, 1, 1,
		   "a flow that becomes active raises the H/L ratio to what the weights say is enough"),
	D2_COUNTER(hl_ratio, "", "weight of the high queues; that of the low ones is 1"),
	D2_COUNTER(medium_weight, "", "weight of the medium queues"),
	D2_COUNTER(max_gap, "bytes", "between the flows furthest ahead and behind, for one of mean weight"),
	D2_COUNTER(raised, "times", "the H/L ratio"),
	D2_COUNTER(lowered, "times", "the H/L ratio"),
	D2_COUNTER(active_flows, "flows", "that are not idle"),
	D2_COUNTER(limited_flows, "flows", "that do not use their share"),
	{}
};

const struct fl_sched fl_d2fq = {
	.name = "d2fq",
	.dev_size = sizeof(struct d2_dev),
	.hwq_size = sizeof(struct fl_hwq),
	.flow_size = sizeof(struct d2_flow),
	.queue_size = sizeof(struct fl_queue),
	.init_dev = d2_init_dev,
	.init_flow = d2_init_flow,
	.exit_flow = d2_exit_flow,
	.route = d2_route,
	.unroute = d2_unroute,
	.charge = d2_charge,
	.tick = d2_tick,
	.virtual_time = d2_virtual_time,
	.vars = d2_vars,
};
