// SPDX-License-Identifier: GPL-2.0-only OR MIT
/*
 * Kyber-fairness: a drive's bandwidth shared by weight, with tokens.
 *
 * After "Kyber-fairness: A Scalable and Low-overhead Proportional-share I/O Scheduler" (Son, Oh, Ahn; JSTS 2020).
 * Section numbers below are the paper's.
 *
 * 1. The idea
 *
 * BFQ shares a drive exactly and loses most of it, because every dispatch goes through one queue. Kyber scales, and
 * shares nothing. So: keep Kyber, give every flow (cgroup) its own request queues on every hardware queue (IV-1),
 * and hand out the drive's bandwidth in advance, as tokens, in proportion to weight. Whoever has tokens dispatches,
 * without asking anyone; whoever has none is throttled, its requests staying in its queues, until the next refill.
 *
 *     hardware queue 0              hardware queue 1
 *     flow A [r][w][d][o]           flow A [r][w][d][o]  --+- tokens of A
 *     flow B [r][w][d][o]           flow B [r][w][d][o]  --+- tokens of B
 *          \   turns   /                 \   turns   /
 *       one place of the domain's depth for each request
 *                  \____________ the drive ___________/
 *
 * 2. Tokens (IV-2)
 *
 * A token is a unit of cost (prices.h: by default, one byte). Without a price list a write costs write_price
 * times as much: the ratio of the mean latencies, in the drive, of all writes and of all reads, 1 to 16, since a
 * flow that writes takes more of the drive than one that reads. (The authors take total latencies, in Kyber's
 * buckets.) Where writes are larger than reads, size counts twice. A list has the prices of writes.
 *
 * Refills come (1) when a period (100 ms) has passed or (2) as soon as every active flow has spent its tokens, and
 * asked for more. Each time, the predicted total is divided by share. What a flow has left it may keep, up to one
 * grant. We refill 16 times as often, with a 16th of the total each time: a round. Flows on different hardware
 * queues do not take turns, so they drift apart, but by no more than a round's tokens.
 *
 *     weights 1000:500:250:100, total 1850 pages:
 *     A gets 1000, B 500, C 250, D 100; when the last of them has spent its
 *     tokens they all get as much again.
 *
 * A refill only begins a new round. A flow gets its grant when it next runs out (tokens.h). A cgroup with cgroups
 * below it has tokens, too, for all of them together.
 *
 * A flow takes tokens a turn at a time (a quarter of its grant, divided by the hardware queues) into the balance of
 * one of its queues, and passes the turn on when the balance is used up. That does two things: the price of a
 * request is taken from a number that only this hardware queue touches, and within a round flows alternate in
 * proportion to weight, where first come first served would let a light flow spend its tokens early and then wait
 * out the round. A request may cost more than the flow has: it is in debt, and works that off with its next grants,
 * as many as it takes. A queue that was empty has its first turn before those that were not, and its place in the
 * drive: a tenant that waits for each request should not wait for the turns of all others, too. The root's own
 * requests (swapping, metadata, the kernel's threads) pay, but are never throttled.
 *
 * 3. The total (IV-3)
 *
 * The total must be a little less than the drive can do in a period: more, and rounds end with tokens unspent, so
 * that nobody is held back and shares are lost. It follows the last rounds (prediction.h):
 *
 *     the drive does 1600 pages a period: the total is 1500, and 16 rounds
 *     take 94 ms. The drive gets twice as fast: they take 47 ms; the totals
 *     are 2250, 2625, 2812, ... 3000.
 *
 * 4. Work conservation
 *
 * A flow that brought no request for a whole period becomes inactive and its share goes to the others (IV-2). The
 * paper stops there, and a heavy flow that does send requests but cannot use its tokens - it waits for each request
 * before it sends the next, its rate is capped, its hardware queue is full - would hold all others back in every
 * period. So refills come (3) when all that a hardware queue has is throttled and there is less in the drive than it
 * needs (work-conservation.h): some of the next round, in advance. The heavy flow keeps what it has, up to a grant.
 *
 * 5. Latency (Kyber's part)
 *
 * Each domain - read, write, discard, other - may have only so many requests in the drive, by their latencies
 * (kyber-depths.h): shares first, and within them Kyber's targets. Time spent throttled is not counted.
 *
 * When to use it: many tenants with deep queues on a fast drive, where exact shares and throughput matter more
 * than the last microseconds of latency. When not: a lone tenant (none is faster).
 */
#include "../mechanisms/kyber-depths.h"
#include "../mechanisms/paid.h"
#include "../mechanisms/prediction.h"
#include "../mechanisms/tokens.h"
#include "../mechanisms/traffic.h"

/* Requests dispatched in a row from one domain: Kyber's. */
static const unsigned int kf_batch[FL_NR_OPS] = { 16, 8, 1, 1 };
enum kf_cause { KF_PERIOD, KF_SPENT, KF_FLOOR, KF_CAUSES }; /* of refills, as the tracepoint has them */

#define KF_ROUNDS 16 /* in a period: the more, the more evenly its tokens are spent */
#define KF_TURNS 4 /* of each flow in a round, per hardware queue */
#define KF_LOOK_NS (2ull * NSEC_PER_MSEC) /* how often the drive is looked at: fl_floor_look() */

struct kf_queue {
	struct fl_queue q;
	/* All under hwq->lock. What a read touches is on one line. */
	s64 balance ____cacheline_aligned_in_smp; /* tokens drawn and not used; below zero: owed */
	bool in_advance; /* the tokens are of the next round */
	struct kf_domain {
		struct kf_queue *kq; /* that it is in; does not change */
		struct list_head rqs; /* staged */
		struct list_head ready; /* in kf_turns, when staged and not throttled */
	} domain[FL_NR_OPS];
	struct list_head throttled; /* in kf_hwq.throttled, since: */
	u64 throttled_since_ns;
	u64 unthrottled_ns; /* when it last was; completions read it without the lock */
};

struct kf_flow {
	struct fl_token_flow tokens;
	/* Written under dev->lock; a stale read miscounts a request that was let go. */
	u64 spent_round; /* the last one in which it had spent its tokens */
};

struct kf_hwq {
	struct fl_hwq hwq;
	/* Under hwq->lock. */
	struct kf_turns {
		struct list_head fresh; /* kf_domain.ready of queues that had nothing, here or in the drive: first turns */
		struct list_head ready; /* of the others, in order of turn */
		/* Places in the drive, and those of this hardware queue. Do not change. */
		struct fl_limit *depth;
		struct fl_room *room;
	} turns[FL_NR_OPS];
	struct list_head throttled;
	unsigned int domain; /* being dispatched from */
	unsigned int batching; /* in a row */
	/* Written under hwq->lock; read by refills and has_work(), which then run it once too often. */
	unsigned int nr_throttled;
	u64 throttled_ns; /* of its queues, up to their last unthrottling */
	u64 seen_refills;
	unsigned int refills; /* that this dispatch() has asked for */
	/* Shared with completions, and with other hardware queues that have no room. */
	struct fl_room room ____cacheline_aligned_in_smp; /* up to the floor */
	struct fl_traffic traffic;
	struct fl_kyber_queue kyber;
};

struct kf_dev {
	struct fl_dev dev;
	u64 refills; /* so far: a change unthrottles. Written under dev->lock, after all that there is new */
	struct fl_kyber kyber;
	struct fl_floor floor;

	/* The rest is under dev->lock. */
	struct fl_tokens tokens;
	struct fl_prediction predicted;
	u64 round, round_ns; /* its number, and when it began */
	unsigned int nr_spent; /* flows that spent their tokens in this round */
	unsigned int next_woken; /* hardware queue */
	u64 advanced; /* of what was handed out, about what belongs to the next round */
	u64 advance, advance_done; /* the last one; what was done then */
	u64 aged_ns; /* the last ageing of flows, and look at latencies */

	/* Tunables: written by the operator at any time, read with READ_ONCE(). */
	u64 period_nsec, read_lat_nsec, write_lat_nsec, prediction;
	/* Counters. */
	u64 throttled_nsec, refilled[KF_CAUSES], write_price_pct;
};

#define KF_TRAFFIC offsetof(struct kf_hwq, traffic)
#define to_kf_dev(_dev) container_of(_dev, struct kf_dev, dev)
#define to_kf_hwq(_hwq) container_of(_hwq, struct kf_hwq, hwq)
#define to_kf_flow(_flow) container_of(_flow, struct kf_flow, tokens.flow)
#define to_kf_queue(_queue) container_of(_queue, struct kf_queue, q)

/* ---- Refills: the slow path, under dev->lock ------------------------------ */

/* How fast is the drive? See 3 above. By what is done: what waited is sent at once after a refill. */
static void kf_predict(struct kf_dev *kf, u64 now, bool unspent)
{
	u64 period = READ_ONCE(kf->period_nsec);

	if (!fl_prediction_is_due(&kf->predicted, period, now))
		return;
	fl_predict(&kf->predicted, READ_ONCE(kf->prediction), period, now,
		   fl_traffic_all_done(&kf->dev, KF_TRAFFIC), unspent, !kf->advanced);
	kf->tokens.total = kf->predicted.total;
}

/* There are new tokens: throttled queues try again, each time another one first; @self, which dispatches, will. */
static void kf_wake(struct kf_dev *kf, struct kf_hwq *self)
{
	unsigned int i, nr = kf->dev.nr_hwqs, first = kf->next_woken++ % nr;

	smp_store_release(&kf->refills, kf->refills + 1);
	smp_mb(); /* against kf_throttle(): it sees the new tokens, or we see it throttled */
	for (i = 0; i < nr; i++) {
		struct kf_hwq *khq = to_kf_hwq(kf->dev.hwqs[(first + i) % nr]);

		if (khq != self && READ_ONCE(khq->nr_throttled))
			fl_hwq_run(&khq->hwq);
	}
}

/* For one of small share that owes much, more and more, or hwq->lock would be held for long. */
static void kf_hand_out(struct kf_dev *kf, struct kf_hwq *self, u64 tokens, enum kf_cause cause)
{
	u32 more = self && ++self->refills > KF_ROUNDS ? min_t(u32, self->refills - KF_ROUNDS, 30) : 0;

	tokens = min_t(u64, tokens, FL_TOKENS_MISSED >> more) << more;
	kf->refilled[cause]++;
	WRITE_ONCE(kf->tokens.handed_out, kf->tokens.handed_out + tokens);
	fl_trace_refill(&kf->dev, cause, tokens, kf->predicted.done);
	kf_wake(kf, self);
}

/*
 * The round ends, and the next one begins. If it took longer, since nobody looked, there is as
 * much more; what was handed out in advance is not handed out again, up to another round of it.
 */
static void kf_refill(struct kf_dev *kf, struct kf_hwq *self, enum kf_cause cause)
{
	u64 now = fl_now_ns(), period = READ_ONCE(kf->period_nsec), tokens, ahead;

	kf_predict(kf, now, cause == KF_PERIOD);
	tokens = max_t(u64, div64_u64(kf->tokens.total, KF_ROUNDS), FL_PREDICT_MIN);
	if (cause == KF_PERIOD)
		tokens = mul_u64_u64_div_u64(kf->tokens.total, min_t(u64, now - kf->round_ns, period), period);
	WRITE_ONCE(kf->round, kf->round + 1);
	kf->round_ns = now;
	kf->nr_spent = 0;
	ahead = min_t(u64, kf->advanced, tokens);
	kf->advanced = min_t(u64, kf->advanced - ahead, div64_u64(kf->tokens.total, KF_ROUNDS));
	kf_hand_out(kf, self, tokens - ahead, cause);
}

/*
 * The drive runs dry in the middle of a round: hand out some of the next one. If that
 * was all that the drive had to do since the last time, as much again and more.
 */
static void kf_advance(struct kf_dev *kf, struct kf_hwq *self)
{
	u64 done = fl_traffic_all_done(&kf->dev, KF_TRAFFIC);

	if (done - kf->advance_done <= 2 * kf->advance)
		kf->advance *= 2;
	else
		kf->advance = kf->floor.limit.level;
	kf->advance = min_t(u64, kf->advance, div64_u64(kf->tokens.total, KF_ROUNDS));
	kf->advance_done = done;
	kf->advanced += kf->advance;
	kf_predict(kf, fl_now_ns(), false);
	kf_hand_out(kf, self, kf->advance, KF_FLOOR);
}

/* @kfl has nothing left of this round. If nobody has, that is its end. */
static void kf_set_spent(struct kf_dev *kf, struct kf_flow *kfl, struct kf_hwq *self)
{
	if (kfl->spent_round == kf->round)
		return;
	WRITE_ONCE(kfl->spent_round, kf->round);
	if (++kf->nr_spent >= kf->dev.nr_active)
		kf_refill(kf, self, KF_SPENT);
}

/* The first request of an inactive flow. */
static noinline void kf_activate(struct kf_dev *kf, struct fl_flow *flow)
{
	unsigned long flags;
	u64 now = fl_now_ns();

	spin_lock_irqsave(&kf->dev.lock, flags);
	if (!flow->busy) {
		if (!kf->dev.nr_active) { /* the time in which there was no request does not count */
			kf->predicted.since_ns = kf->round_ns = kf->aged_ns = now;
			fl_dev_kick(&kf->dev);
		}
		fl_flow_set_busy(flow, true);
		fl_flow_update_share(flow);
	}
	spin_unlock_irqrestore(&kf->dev.lock, flags);
}

/* ---- Dispatch: the hot path ------------------------------------------ */

static bool kf_has_spent(const struct kf_dev *kf, struct fl_flow *flow)
{
	return READ_ONCE(to_kf_flow(flow)->spent_round) == READ_ONCE(kf->round);
}

/* @flow has none left of what it was granted. Does it get some? */
static noinline bool kf_grant(struct kf_dev *kf, struct kf_hwq *khq, struct fl_flow *flow)
{
	unsigned long flags;

	spin_lock_irqsave(&kf->dev.lock, flags);
	fl_tokens_grant(&kf->tokens, flow);
	if (!fl_tokens_left(flow)) {
		kf_set_spent(kf, to_kf_flow(flow), khq);
		fl_tokens_grant(&kf->tokens, flow); /* of the next round, if that has begun */
	}
	spin_unlock_irqrestore(&kf->dev.lock, flags);
	return fl_tokens_left(flow);
}

/* May @kq draw a turn's worth of its flow's tokens? */
static bool kf_may_draw(struct kf_dev *kf, struct kf_hwq *khq, struct kf_queue *kq)
{
	struct fl_flow *flow = kq->q.flow;

	/* All that was handed out it has had, and spent: then there is none under the lock either. */
	if (!fl_tokens_left(flow) && ((!fl_tokens_due(&kf->tokens, flow) && kf_has_spent(kf, flow)) ||
				      !kf_grant(kf, khq, flow)))
		return false;
	kq->in_advance = kf_has_spent(kf, flow);
	return true;
}

static noinline void kf_throttle(struct kf_hwq *khq, struct kf_queue *kq)
{
	int op;

	for (op = 0; op < FL_NR_OPS; op++)
		if (!list_empty(&kq->domain[op].ready))
			list_del_init(&kq->domain[op].ready);
	list_add_tail(&kq->throttled, &khq->throttled);
	kq->throttled_since_ns = fl_now_ns();
	WRITE_ONCE(khq->nr_throttled, khq->nr_throttled + 1);
	smp_mb(); /* against kf_wake() */
}

/* There were new tokens since the last look: everybody may try again. */
static noinline void kf_try_again(struct kf_hwq *khq)
{
	struct kf_queue *kq, *next;
	u64 now = fl_now_ns(), ns;
	int op;

	list_for_each_entry_safe(kq, next, &khq->throttled, throttled) {
		list_del_init(&kq->throttled);
		for (op = 0; op < FL_NR_OPS; op++)
			if (!list_empty(&kq->domain[op].rqs))
				list_add_tail(&kq->domain[op].ready, &khq->turns[op].ready);
		ns = now - kq->throttled_since_ns;
		WRITE_ONCE(kq->q.throttled_ns, kq->q.throttled_ns + ns);
		WRITE_ONCE(khq->throttled_ns, khq->throttled_ns + ns);
		WRITE_ONCE(kq->unthrottled_ns, now);
	}
	WRITE_ONCE(khq->nr_throttled, 0);
}

/* False: there are no new tokens, or nobody waits for them. */
static bool kf_unthrottle(struct kf_dev *kf, struct kf_hwq *khq)
{
	u64 refills = smp_load_acquire(&kf->refills); /* what is there of the refill is seen, too */

	if (likely(khq->seen_refills == refills))
		return false;
	WRITE_ONCE(khq->seen_refills, refills);
	if (!khq->nr_throttled)
		return false;
	kf_try_again(khq);
	return true;
}

/* All that @khq has is throttled. If the drive has too little to do, there are more tokens. */
static bool kf_drive_runs_dry(struct kf_dev *kf, struct kf_hwq *khq)
{
	unsigned long flags;

	if (likely(!khq->nr_throttled) || !fl_limit_has_room(&kf->floor.limit, &khq->room))
		return false;
	spin_lock_irqsave(&kf->dev.lock, flags);
	if (khq->seen_refills == kf->refills)
		kf_advance(kf, khq);
	spin_unlock_irqrestore(&kf->dev.lock, flags);
	kf_unthrottle(kf, khq);
	return true;
}

static u64 kf_price(struct kf_dev *kf, enum fl_op op, u32 bytes)
{
	return fl_kyber_price(&kf->kyber, op, fl_cost(&kf->dev.prices, op, bytes));
}

static bool kf_is_empty(const struct kf_turns *turns)
{
	return list_empty(&turns->ready) && list_empty(&turns->fresh);
}

/* The first request of @kd goes to the drive. @draw: its queue draws a turn's worth for it. */
static struct fl_req *kf_send(struct kf_dev *kf, struct kf_hwq *khq, struct kf_turns *turns,
			      struct kf_domain *kd, bool draw)
{
	struct fl_req *rq = fl_req_of(kd->rqs.next);
	struct kf_queue *kq = kd->kq;
	u64 cost = kf_price(kf, fl_req_op(rq), fl_req_bytes(rq));

	list_del_init(fl_req_node(rq));
	fl_tokens_pay(kq->q.flow, &kq->balance, fl_has_paid(rq) ? 0 : cost, draw);
	fl_paid_goes(rq, cost);
	fl_limit_sent(turns->depth, turns->room, 1);
	fl_limit_sent(&kf->floor.limit, &khq->room, cost);
	if (unlikely(kq->in_advance))
		fl_floor_release(&kf->floor);
	fl_queue_account(&kq->q, rq, cost);
	if (list_empty(&kd->rqs))
		list_del_init(&kd->ready);
	else if (kq->balance <= 0)
		list_move_tail(&kd->ready, &turns->ready);
	khq->batching++;
	fl_traffic_sent(&khq->traffic, cost);
	return rq;
}

static __always_inline struct fl_req *kf_dispatch_domain(struct kf_dev *kf, struct kf_hwq *khq, struct kf_turns *turns)
{
	while (!kf_is_empty(turns)) {
		bool fresh = !list_empty(&turns->fresh);
		struct kf_domain *kd = list_first_entry(fresh ? &turns->fresh : &turns->ready,
							struct kf_domain, ready);
		struct kf_queue *kq = kd->kq;
		bool draw = kq->balance <= 0;

		if (draw && !kf_may_draw(kf, khq, kq)) {
			/* The root goes on, in debt: everybody may depend on its swapping and metadata. */
			draw = false;
			if (kq->q.flow->parent) {
				kf_throttle(khq, kq);
				kf_unthrottle(kf, khq);
				continue;
			}
		}
		if (likely(fl_limit_ask(turns->depth, turns->room, !fresh)))
			return kf_send(kf, khq, turns, kd, draw);
		if (draw) /* now, so that it goes in any case as soon as there is a place */
			fl_tokens_draw(kq->q.flow, &kq->balance);
		return NULL;
	}
	fl_limit_pass_on(turns->depth, turns->room);
	return NULL;
}

static void kf_next_domain(struct kf_hwq *khq, unsigned int *tried)
{
	khq->batching = 0;
	khq->domain = (khq->domain + 1) % FL_NR_OPS;
	++*tried;
}

/* As Kyber: a batch from one domain, then the next domain that has something. */
static struct fl_req *kf_dispatch(struct fl_hwq *hwq)
{
	struct kf_dev *kf = to_kf_dev(hwq->dev);
	struct kf_hwq *khq = to_kf_hwq(hwq);
	unsigned int tried = 0; /* domains, other than that of the batch */
	bool ready = false;

	khq->refills = 0;
	kf_unthrottle(kf, khq);
	if (khq->batching >= kf_batch[khq->domain])
		kf_next_domain(khq, &tried);
	for (;; kf_next_domain(khq, &tried)) {
		struct kf_turns *turns = &khq->turns[khq->domain];
		struct fl_req *rq = kf_dispatch_domain(kf, khq, turns);

		if (rq)
			return rq;
		ready |= tried && !kf_is_empty(turns);
		if (tried == FL_NR_OPS && !kf_unthrottle(kf, khq) && (ready || !kf_drive_runs_dry(kf, khq)))
			break;
		tried %= FL_NR_OPS; /* there are more tokens: all of them again */
	}
	fl_limit_pass_on(&kf->floor.limit, &khq->room);
	return NULL;
}

static bool kf_has_work(struct fl_hwq *hwq)
{
	struct kf_hwq *khq = to_kf_hwq(hwq);
	int op;

	for (op = 0; op < FL_NR_OPS; op++)
		if (!kf_is_empty(&khq->turns[op]) || READ_ONCE(khq->kyber.domain[op].room.woken))
			return true;
	/* It was handed room. Or all is throttled: there are new tokens, or it has not yet asked. */
	return READ_ONCE(khq->room.woken) || (READ_ONCE(khq->nr_throttled) &&
	       (!READ_ONCE(khq->room.waiting) ||
		READ_ONCE(khq->seen_refills) != READ_ONCE(to_kf_dev(hwq->dev)->refills)));
}

static void kf_insert(struct fl_queue *queue, struct fl_req *rq, bool at_head)
{
	struct kf_hwq *khq = to_kf_hwq(queue->hwq);
	enum fl_op op = fl_req_op(rq);
	struct kf_queue *kq = to_kf_queue(queue);
	struct kf_domain *kd = &kq->domain[op];

	fl_stage(rq, &kd->rqs, at_head);
	if (list_empty(&kd->ready) && list_empty(&kq->throttled))
		list_add_tail(&kd->ready, atomic_read(&queue->held) <= 1 ? &khq->turns[op].fresh :
									     &khq->turns[op].ready);
	if (fl_flow_touch(queue)) /* the last: a call in the midst of it would cost every request */
		kf_activate(to_kf_dev(queue->hwq->dev), queue->flow);
}

/* Debt, if it has no tokens. */
static void kf_charge(struct fl_queue *queue, enum fl_op op, u32 bytes)
{
	fl_tokens_spend(queue->flow, kf_price(to_kf_dev(queue->hwq->dev), op, bytes));
}

static struct list_head *kf_merge_list(struct fl_queue *queue, enum fl_op op)
{
	return &to_kf_queue(queue)->domain[op].rqs;
}

/* ---- Completion ------------------------------------------------------- */

static __always_inline void kf_give_back(struct kf_dev *kf, struct kf_hwq *khq, enum fl_op op, u64 cost)
{
	fl_limit_done(&kf->kyber.depth[op], &khq->kyber.domain[op].room, 1);
	fl_limit_done(&kf->floor.limit, &khq->room, cost);
}

/* Gives back as well: kf_release() then has nothing to do. */
static void kf_complete(struct fl_queue *queue, struct fl_req *rq, u64 now_ns)
{
	struct kf_hwq *khq = to_kf_hwq(queue->hwq);
	struct kf_dev *kf = to_kf_dev(khq->hwq.dev);
	u64 from = max_t(u64, fl_req_arrival_ns(rq), READ_ONCE(to_kf_queue(queue)->unthrottled_ns));
	u64 dispatched = fl_req_dispatch_ns(rq), io = now_ns - dispatched, cost;
	enum fl_op op = fl_req_op(rq);

	if (!dispatched) /* it failed on its way to the drive */
		return;
	cost = fl_paid_leaves(rq);
	if (!cost)
		return;
	fl_traffic_done(&khq->traffic, op, cost);
	/* A time of throttling that ended after the dispatch was not this request's. */
	fl_kyber_sample(&kf->kyber, &khq->kyber, op, from < dispatched ? now_ns - from : io, io);
	kf_give_back(kf, khq, op, cost);
}

static void kf_release(struct fl_queue *queue, struct fl_req *rq)
{
	struct kf_hwq *khq = to_kf_hwq(queue->hwq);
	u64 cost = fl_paid_leaves(rq);

	if (unlikely(cost))
		kf_give_back(to_kf_dev(khq->hwq.dev), khq, fl_req_op(rq), cost);
}

/* ---- Every 2 ms; every period ------------------------------------------- */

/* A cgroup is idle, or removed: the round does not wait for it. */
static void kf_leave(struct fl_flow *flow)
{
	struct kf_dev *kf = to_kf_dev(flow->dev);

	if (!kf_has_spent(kf, flow))
		return;
	kf->nr_spent--;
	WRITE_ONCE(to_kf_flow(flow)->spent_round, 0);
}

static void kf_age(struct fl_flow *flow)
{
	if (!fl_flow_age(flow))
		kf_leave(flow);
}

static void kf_end_period(struct kf_dev *kf)
{
	unsigned long flags;
	unsigned int i;

	fl_flows_walk(&kf->dev, kf_age);
	spin_lock_irqsave(&kf->dev.lock, flags);
	fl_kyber_set_target(&kf->kyber, FL_READ, READ_ONCE(kf->read_lat_nsec));
	fl_kyber_set_target(&kf->kyber, FL_WRITE, READ_ONCE(kf->write_lat_nsec));
	fl_kyber_control(&kf->kyber, kf->aged_ns, kf->nr_spent);
	fl_kyber_update_price(&kf->kyber, fl_prices_are_bytes(&kf->dev.prices));
	kf->write_price_pct = kf->kyber.write_price * 100 / FL_WRITE_PRICE_ONE;

	kf->throttled_nsec = 0;
	for (i = 0; i < kf->dev.nr_hwqs; i++)
		kf->throttled_nsec += READ_ONCE(to_kf_hwq(kf->dev.hwqs[i])->throttled_ns);
	spin_unlock_irqrestore(&kf->dev.lock, flags);
}

static u64 kf_tick(struct fl_dev *dev)
{
	struct kf_dev *kf = to_kf_dev(dev);
	u64 period = READ_ONCE(kf->period_nsec), now;
	unsigned long flags;

	if (fl_is_due(dev, &kf->aged_ns, period))
		kf_end_period(kf);
	spin_lock_irqsave(&dev->lock, flags);
	now = fl_now_ns(); /* under the lock: no time that is kept is later */
	fl_traffic_look(dev, KF_TRAFFIC, &kf->floor, now);
	if (kf->dev.nr_active && kf->nr_spent >= kf->dev.nr_active) /* the others left */
		kf_refill(kf, NULL, KF_SPENT);
	else if (now - kf->round_ns >= div64_u64(period, KF_ROUNDS))
		kf_refill(kf, NULL, KF_PERIOD);
	now = kf->dev.nr_active ? min_t(u64, KF_LOOK_NS, period) : 0;
	spin_unlock_irqrestore(&dev->lock, flags);
	return now;
}

/* ---- Setting up -------------------------------------------------------- */

static void kf_init_dev(struct fl_dev *dev)
{
	struct kf_dev *kf = to_kf_dev(dev);
	u64 now = fl_now_ns();
	unsigned int i;
	int op;

	fl_kyber_init(&kf->kyber, dev, offsetof(struct kf_hwq, kyber));
	fl_kyber_set_target(&kf->kyber, FL_READ, kf->read_lat_nsec);
	fl_kyber_set_target(&kf->kyber, FL_WRITE, kf->write_lat_nsec);
	fl_floor_init(&kf->floor, dev, offsetof(struct kf_hwq, room), now);
	kf->write_price_pct = 100;
	kf->round = 1;
	kf->advance = FL_COST_ONE;
	fl_prediction_init(&kf->predicted, now);
	kf->tokens.turns = KF_ROUNDS * KF_TURNS * dev->nr_hwqs;
	kf->tokens.handed_out = kf->tokens.total = kf->predicted.total;
	kf->round_ns = kf->aged_ns = now;

	for (i = 0; i < dev->nr_hwqs; i++) {
		struct kf_hwq *khq = to_kf_hwq(dev->hwqs[i]);

		INIT_LIST_HEAD(&khq->throttled);
		for (op = 0; op < FL_NR_OPS; op++) {
			INIT_LIST_HEAD(&khq->turns[op].fresh);
			INIT_LIST_HEAD(&khq->turns[op].ready);
			khq->turns[op].depth = &kf->kyber.depth[op];
			khq->turns[op].room = &khq->kyber.domain[op].room;
		}
	}
}

static void kf_init_flow(struct fl_flow *flow)
{
	fl_tokens_init_flow(&to_kf_dev(flow->dev)->tokens, flow);
}

static void kf_init_queue(struct fl_queue *queue)
{
	struct kf_queue *kq = to_kf_queue(queue);
	int op;

	INIT_LIST_HEAD(&kq->throttled);
	for (op = 0; op < FL_NR_OPS; op++) {
		kq->domain[op].kq = kq;
		INIT_LIST_HEAD(&kq->domain[op].rqs);
		INIT_LIST_HEAD(&kq->domain[op].ready);
	}
}

#define KF_TUNABLE(...) FL_TUNABLE(struct kf_dev, __VA_ARGS__)
#define KF_COUNTER(...) FL_COUNTER(struct kf_dev, __VA_ARGS__)

static const struct fl_var kf_vars[] = {
	KF_TUNABLE(period_nsec, "ns", NSEC_PER_MSEC, 10ull * NSEC_PER_SEC, 100ull * NSEC_PER_MSEC,
		   "for which tokens are predicted; they are handed out in 16 rounds"),
	KF_TUNABLE(read_lat_nsec, "ns", NSEC_PER_USEC, 10ull * NSEC_PER_SEC, 2ull * NSEC_PER_MSEC,
		   "target latency of reads"),
	KF_TUNABLE(write_lat_nsec, "ns", NSEC_PER_USEC, 10ull * NSEC_PER_SEC, 10ull * NSEC_PER_MSEC,
		   "target latency of writes"),
	KF_TUNABLE(prediction, "choice", FL_PREDICT_FIXED, FL_PREDICT_AUTHORS, FL_PREDICT_FOLLOWS,
		   "0: the total stays as it is; 1: it follows the drive; 2: by the authors' averages"),
	KF_COUNTER(predicted_total, predicted.total, "tokens",
		   "what the drive is expected to do in a period"),
	KF_COUNTER(tokens_granted, tokens.handed_out, "tokens", "handed out so far, at every level"),
	KF_COUNTER(tokens_used, predicted.done, "tokens",
		   "cost of what was completed, up to the last prediction"),
	KF_COUNTER(throttled_nsec, throttled_nsec, "ns", "time that queues waited for tokens, summed"),
	KF_COUNTER(refills_period, refilled[KF_PERIOD], "refills", "because a round's time had passed"),
	KF_COUNTER(refills_spent, refilled[KF_SPENT], "refills", "because every active flow had spent its tokens"),
	KF_COUNTER(refills_floor, refilled[KF_FLOOR], "refills", "because the drive had too little to do"),
	KF_COUNTER(write_price_pct, write_price_pct, "percent",
		   "price of a byte written against one read"),
	KF_COUNTER(read_depth, kyber.depth[FL_READ].level, "requests", "reads that may be in flight"),
	KF_COUNTER(write_depth, kyber.depth[FL_WRITE].level, "requests", "writes that may be in flight"),
	KF_COUNTER(floor_cost, floor.limit.level, "cost",
		   "in the drive, below which nobody is held back"),
	{}
};

const struct fl_sched fl_kyber_fairness = {
	.name = "kyber-fairness",
	.dev_size = sizeof(struct kf_dev),
	.hwq_size = sizeof(struct kf_hwq),
	.flow_size = sizeof(struct kf_flow),
	.queue_size = sizeof(struct kf_queue),
	.init_dev = kf_init_dev,
	.init_flow = kf_init_flow,
	.exit_flow = kf_leave,
	.init_queue = kf_init_queue,
	.insert = kf_insert,
	.dispatch = kf_dispatch,
	.has_work = kf_has_work,
	.charge = kf_charge,
	.merge_list = kf_merge_list,
	.complete = kf_complete,
	.release = kf_release,
	.tick = kf_tick,
	.vars = kf_vars,
};
