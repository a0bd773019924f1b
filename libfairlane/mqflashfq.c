// SPDX-License-Identifier: GPL-2.0-only OR MIT
/*
 * mqFlashFQ: a drive shared by cost, with virtual times that nobody locks.
 *
 * After "Accurate Calibration and Scalable Bandwidth Sharing of Multi-Queue
 * SSDs" (Kang, Kim; JCSE 17(2), 2023). Section numbers below are the paper's.
 *
 * 1. The idea
 *
 * Start-time fair queueing gives every flow a virtual time, its service
 * divided by its weight, and serves the flow that is furthest behind. To know
 * which one that is, FlashFQ (flashfq.c) keeps all virtual times in one list
 * under one lock, and every request of every core goes through it. mqFlashFQ
 * does not look for the furthest behind. A flow compares itself with one
 * other, chosen at random, by reading that one's virtual time (III-A): not
 * ahead of it, it may go on, ahead of it, it waits. No lock, and in the long
 * run the same shares: whoever is ahead finds most others behind itself.
 *
 *     hardware queue 0       hardware queue 1       hardware queue 2
 *        RQ    WQ               RQ    WQ               RQ    WQ
 *          \  /                   \  /                   \  /
 *           SQ  vt = 70            SQ  vt = 64            SQ  vt = 72
 *            `------- looks at ---->'  `---- looks at ---->'
 *             waits (70 > 64)           goes on (64 <= 72)
 *
 * What a request costs is not its bytes but what it takes from the drive
 * (cost.h, III-B); a calibration says.
 *
 * 2. What a flow is
 *
 * The tunable `flow` says what has a virtual time: 1, a core - a hardware
 * queue, as in the paper - or 0, a cgroup. A core has no weight of its own;
 * its virtual time advances by each request's cost divided by the share of
 * the cgroup that the request is from, so that cores to which tenants are
 * pinned have their tenants' weights. A cgroup's requests may be on many
 * hardware queues at once. They all advance one virtual time, with one atomic
 * addition for a whole batch, which each hardware queue draws for itself: what
 * it has drawn it spends on requests without touching anything that is shared.
 * Among the cgroups of one hardware queue no sampling is needed, since its lock
 * is held: they are sorted, and the first one takes the test.
 *
 * 3. The test and the batch
 *
 * The test is taken when a request arrives, when one is completed, and every
 * 200 us. A flow that fails it goes on comparing itself with the same one, until
 * it is no longer ahead: with a new sample each time it would only have to
 * try often enough to find one that is even further ahead, and any two could
 * overtake each other for ever while a third is left behind. So if n are
 * backlogged, in each batch it meets the furthest behind with probability
 * 1 / (n - 1), and then waits for it: to be k steps ahead has a probability
 * of less than (1 - 1 / (n - 1))^k.
 *
 * Whoever passes it may dispatch a batch, its cost up to the base
 * batch size times the weight; that is to say, its virtual time advances
 * by the same step whoever it is. The weight counts relative to the average:
 *
 *     batch 48 KiB, two flows, shares 3/4 and 1/4: the step is 96 Ki,
 *     the batches are 72 and 24 KiB
 *
 * A cgroup's batch is divided by the number of hardware queues. A request
 * that costs more than a batch is a batch. Everything is charged before it is
 * dispatched, so of two backlogged flows none is ever further ahead of the
 * other than a step, or its dearest request on each hardware queue.
 *
 * 4. Backlogged and idle
 *
 * A flow is backlogged while it has queued or outstanding requests and for
 * 1 ms (the tunable timeout_nsec) more: whoever waits for a request before it
 * sends the next is not idle in between (deceptive idleness). Only backlogged
 * flows are sampled. An idle flow that becomes backlogged starts at the
 * virtual time of a sample: it has lost what it did not use.
 *
 * The virtual times of backlogged flows are in an array of slots that belongs
 * to the device, so that whoever samples may do so from any context and finds,
 * when the flow has just gone, at worst an old number. Whoever comes when all
 * slots are taken is not sampled, but samples.
 *
 * 5. Reads and writes
 *
 * Each queue is a read queue and a write queue (WQ also has discards and the
 * like) with weights of their own, read_weight and write_weight, so that a
 * read does not wait behind a flow's own writes for longer than its part.
 *
 * 6. Work conservation
 *
 * The paper waits for a flow that is behind as long as it is backlogged, even
 * if it cannot do more: it has one request at a time, a limited rate, a
 * hardware queue that is full. Then all go at its pace. Waiting for it is
 * of use only if it is the others' requests that keep it back, in the drive.
 * If it is not, the drive runs dry: it does less, and has less in flight. (If it
 * does less with as much in flight, it has become slower; if it does as much
 * with less in flight, it is the queue in the drive that got shorter, as it
 * should.) So what the drive does and what it has in flight are compared with
 * what is usual. If both are clearly less in two windows running in
 * which somebody was held, the flow that is furthest behind is called
 * limited: nobody waits for it, until it is itself held while the drive is busy,
 * or for 32, 64, 128, 128, ... times the window in any case. Then the next one,
 * if that was not enough. The tunable `conserve` switches this off.
 *
 *     64 in flight, 640 done in 2 ms. A heavy tenant with one request at
 *     a time falls behind, the others wait: 1 in flight, 20 done. After 4 ms
 *     they no longer wait for it, for 64 ms and more.
 *
 * To know what is usual, in two windows of 64 nobody is held; of 128, 256, ...
 * 4096, as long as that does not show that the drive could have done clearly more.
 * Nothing is lost by that: what is dispatched is charged, and waited for later. Nor is
 * anybody limited for being behind in a drive that is busy. But what a limited
 * flow is behind it does not get back all at once: when it has nothing queued and
 * something arrives, and when it is no longer limited, it is brought up to a
 * few steps behind a sample.
 *
 * When to use it: many cores, requests of different kinds and a calibrated
 * drive. When not: a lone tenant (none is faster).
 */
#include "fairlane.h"
#include "vtime.h"

/* Backlogged flows that can be sampled. */
#define MF_SLOTS 256

/* The test's period, the paper's. */
#define MF_PERIOD_NS (200ull * NSEC_PER_USEC)

/*
 * What the drive does is looked at in windows of at least 2 ms and 64 requests,
 * except that 20 ms are enough. Clearly less is 7/8. Limited for 32 windows at first.
 */
#define MF_WINDOW_NS (2ull * NSEC_PER_MSEC)
#define MF_MAX_WINDOW_NS (20ull * NSEC_PER_MSEC)
#define MF_WINDOW_REQUESTS 64
#define MF_BAD_WINDOWS 2
#define MF_BELIEF 32
#define MF_MAX_DOUBLINGS 2
/* Of so many windows, in the first 2 nobody is held; the second of these shows what is usual. */
#define MF_OPEN_EVERY 64
#define MF_OPEN_SELDOM 4096
#define MF_OPEN 2
/* Then they may get ahead by so many windows' work, which they wait for later. */
#define MF_OPEN_AHEAD 16

/* Random tries before the next backlogged flow is good enough. */
#define MF_TRIES 4

/* How far behind a flow may be by its own doing, in steps or dear requests. */
#define MF_SLACK 8

/* Who is held sorts its list anew so often at most. */
#define MF_SORT_NS (10ull * NSEC_PER_MSEC)

/* Looking for idle flows is spread: so many queues for each timeout. */
#define MF_AGE_QUEUES 1024

enum { MF_RQ, MF_WQ, MF_NR_RQS };
enum { MF_CGROUP, MF_CORE }; /* the tunable flow */

/* A virtual time that others may sample. */
struct mf_slot {
	atomic64_t vt; /* charged; added to by any hardware queue */
	/* Written under dev->lock; a stale read samples a flow that just went, or is limited. */
	int used;
	int limited; /* nobody waits for it */
	int held; /* in this window it was; set by any dispatch */
	unsigned int doublings; /* of the time for which it is believed; dev->lock */
	u64 limited_until_ns; /* dev->lock */
} ____cacheline_aligned_in_smp;

/* What has a virtual time: embedded in a flow or in a hardware queue. */
struct mf_entity {
	/*
	 * In the device, or &own; written under dev->lock when the entity is
	 * idle. A stale read charges a batch to the wrong one.
	 */
	struct mf_slot *slot;
	bool in; /* backlogged; written under dev->lock, read by every insert */
	bool quiet; /* had nothing at the last look; dev->lock */
	struct mf_slot own; /* when idle, or all slots are taken */
};

/* SQ: what is queued on a hardware queue for one entity. Under hwq->lock. */
struct mf_stage {
	struct mf_entity *entity;
	struct fl_queue *queue; /* NULL: a core's */
	struct list_head rqs[MF_NR_RQS];
	struct list_head ready; /* in mf_hwq.ready, when something is queued */
	u64 key; /* its virtual time when it was sorted in: it has not become less */
	u64 budget; /* drawn and not spent, in virtual time */
	s64 lead; /* RQ's before WQ, in cost times the weight of the other */
	const struct mf_slot *waits_for; /* the sample that it was ahead of; NULL: none */
	u64 held_since_ns; /* 0: not held */
	/*
	 * NOQ and NOS. NOQ counts requests and not bytes: those grow by
	 * merges, which we are not told of. Read without lock: old by a request.
	 */
	u64 queued;
	atomic64_t outstanding; /* bytes; subtracted from by completions */
};

struct mf_queue {
	struct fl_queue q;
	struct mf_stage stage;
};

struct mf_flow {
	struct fl_flow flow;
	struct mf_entity entity;
	u64 reciprocal; /* of the share; written under dev->lock; a stale read charges one request wrongly */
};

struct mf_hwq {
	struct fl_hwq hwq;
	/* Under hwq->lock. */
	struct mf_stage stage; /* the core's */
	struct list_head ready; /* mf_stage.ready, by key */
	u64 random;
	u64 sorted_ns; /* the last mf_sort_anew() */
	u64 sent; /* requests; read by the tick */
	u64 inserted; /* into the core's queue; read by the tick */
	/*
	 * The first of the ready ones failed the test, with these. Written under
	 * hwq->lock, except that whoever finds that it would pass now clears held;
	 * a stale read costs a test, or waits for the tick.
	 */
	bool held;
	u64 held_ns; /* when it failed */
	u64 held_vt;
	const struct mf_slot *held_for;
	struct mf_entity core;
	u64 seen; /* inserted, at the last look for idle cores; tick only */
	/* Requests that the drive has given back; what they cost. Summed by the tick. */
	atomic64_t done ____cacheline_aligned_in_smp;
	atomic64_t done_cost;
};

/* What the drive does: cost and requests per second, and requests in flight, times 16. */
struct mf_load {
	u64 cost, requests, in_flight;
};

struct mf_dev {
	struct fl_dev dev;
	/* Read on the hot path, written on the slow one, under dev->lock. */
	u64 step; /* by which a batch advances virtual time */
	u64 queue_step; /* the part of it for each of a cgroup's queues */
	unsigned int nr_slots; /* from here on none is used; a stale read samples one more or less */
	bool open; /* nobody is held now up to open_vt, to see what the drive does then */
	u64 open_vt;
	u64 largest; /* recent advance; set by any draw, decays */
	/* The rest is under dev->lock. */
	bool ticking; /* and will go on to */
	unsigned int active; /* flows and cores at that look, or since */
	u64 aged_ns; /* the last look for idle flows */
	u64 window_ns, window_done, window_cost; /* where the window began */
	unsigned int window_ticks, window_held; /* in it; those at which somebody was held */
	u64 window_in_flight; /* requests, summed over its ticks */
	struct mf_load usual;
	unsigned int windows, open_every; /* since the last began that nobody is held in; of so many */
	struct mf_load before; /* in the window before that */
	unsigned int bad_windows; /* running */
	u64 random;
	/* Tunables: written by the operator at any time, read with READ_ONCE(). */
	u64 flow, batch, timeout_nsec, read_weight, write_weight, conserve;
	/* Counters. */
	u64 backlogged, holds, limits, outstanding_bytes, queued_requests;
	struct mf_slot slots[MF_SLOTS];
};

static inline struct mf_dev *to_mf_dev(struct fl_dev *dev)
{
	return container_of(dev, struct mf_dev, dev);
}

static inline struct mf_hwq *to_mf_hwq(struct fl_hwq *hwq)
{
	return container_of(hwq, struct mf_hwq, hwq);
}

static inline struct mf_flow *to_mf_flow(struct fl_flow *flow)
{
	return container_of(flow, struct mf_flow, flow);
}

static inline struct mf_queue *to_mf_queue(struct fl_queue *queue)
{
	return container_of(queue, struct mf_queue, q);
}

/* ---- System virtual time: a random sample ------------------------------ */

/* 0..n-1. Vigna's xorshift64*. */
static unsigned int mf_random(u64 *state, unsigned int n)
{
	u64 x = *state;

	x ^= x >> 12;
	x ^= x << 25;
	x ^= x >> 27;
	*state = x;
	return (u64)(u32)((x * 0x2545f4914f6cdd1dull) >> 32) * n >> 32;
}

/* A random backlogged flow other than @self that may be waited for; NULL when there is none. */
static const struct mf_slot *mf_sample(struct mf_dev *mf, const struct mf_slot *self, u64 *random)
{
	unsigned int nr = READ_ONCE(mf->nr_slots), i = 0, n;

	if (!nr)
		return NULL;
	for (n = 0; n < MF_TRIES + nr; n++) {
		const struct mf_slot *slot;

		i = n < MF_TRIES ? mf_random(random, nr) : i + 1 < nr ? i + 1 : 0;
		slot = &mf->slots[i];
		if (slot != self && READ_ONCE(slot->used) && !READ_ONCE(slot->limited))
			return slot;
	}
	return NULL;
}

/* How far behind a flow may be by its own doing. */
static u64 mf_slack(struct mf_dev *mf)
{
	return MF_SLACK * max_t(u64, READ_ONCE(mf->step), READ_ONCE(mf->largest));
}

/* Must whoever is at @vt wait for @other? */
static bool mf_must_wait(struct mf_dev *mf, const struct mf_slot *other, u64 vt)
{
	u64 other_vt = atomic64_read(&other->vt);

	if (unlikely(READ_ONCE(mf->open) && READ_ONCE(mf->conserve)))
		return fl_vt_before(READ_ONCE(mf->open_vt), vt);
	return READ_ONCE(other->used) && !READ_ONCE(other->limited) && fl_vt_before(other_vt, vt);
}

/* ---- Backlogged and idle: the slow path --------------------------------- */

/* Shares have changed, or a flow has come or gone. Under dev->lock. */
static void mf_update_shares(struct mf_dev *mf)
{
	struct fl_flow *flow;
	u64 step;

	fl_flows_update_shares(&mf->dev);
	list_for_each_entry(flow, &mf->dev.flows, node)
		if (flow->busy)
			WRITE_ONCE(to_mf_flow(flow)->reciprocal, fl_vt_reciprocal(flow->share));
	step = READ_ONCE(mf->batch) * max_t(u64, mf->backlogged, 1);
	WRITE_ONCE(mf->step, step);
	WRITE_ONCE(mf->queue_step, div64_u64(step, mf->dev.nr_hwqs));
}

/* @entity becomes backlogged, at the system virtual time. Under dev->lock. */
static void mf_enter(struct mf_dev *mf, struct mf_entity *entity, u64 *random)
{
	const struct mf_slot *sample = mf_sample(mf, NULL, random);
	struct mf_slot *slot = &entity->own;
	unsigned int i;
	u64 vt = atomic64_read(sample ? &sample->vt : &slot->vt);

	for (i = 0; i < MF_SLOTS; i++)
		if (!mf->slots[i].used) {
			slot = &mf->slots[i];
			break;
		}
	atomic64_set(&slot->vt, vt);
	WRITE_ONCE(slot->limited, 0);
	slot->doublings = 0;
	if (slot != &entity->own)
		WRITE_ONCE(slot->used, 1);
	if (i < MF_SLOTS && i >= mf->nr_slots)
		WRITE_ONCE(mf->nr_slots, i + 1);
	WRITE_ONCE(entity->slot, slot);
	WRITE_ONCE(entity->in, true);
	mf->backlogged++;
	mf->active++;
	entity->quiet = false;
}

static void mf_leave(struct mf_dev *mf, struct mf_entity *entity)
{
	struct mf_slot *slot = entity->slot;

	if (!entity->in)
		return;
	WRITE_ONCE(entity->in, false);
	mf->backlogged--;
	if (slot == &entity->own)
		return;
	atomic64_set(&entity->own.vt, atomic64_read(&slot->vt));
	WRITE_ONCE(entity->slot, &entity->own);
	WRITE_ONCE(slot->used, 0);
	while (mf->nr_slots && !mf->slots[mf->nr_slots - 1].used)
		WRITE_ONCE(mf->nr_slots, mf->nr_slots - 1);
}

/* The first request of an idle flow or core, under hwq->lock. */
static void mf_activate(struct mf_dev *mf, struct mf_hwq *mhq, struct fl_flow *flow,
			struct mf_entity *entity)
{
	unsigned long flags;
	bool kick;

	spin_lock_irqsave(&mf->dev.lock, flags);
	fl_flow_set_busy(flow, true);
	if (!entity->in)
		mf_enter(mf, entity, &mhq->random);
	mf_update_shares(mf);
	kick = !mf->ticking;
	mf->ticking = true;
	spin_unlock_irqrestore(&mf->dev.lock, flags);
	if (kick)
		fl_dev_kick(&mf->dev);
}

/*
 * Has @entity had nothing for the timeout? It has nothing now (@quiet), and had
 * nothing at the last look, since when nothing came.
 */
static bool mf_is_idle(struct mf_entity *entity, bool quiet)
{
	bool idle = quiet && entity->quiet;

	entity->quiet = quiet;
	return idle;
}

static bool mf_has_requests(const struct mf_stage *st)
{
	return READ_ONCE(st->queued) || atomic64_read(&st->outstanding);
}

/* Not what is queued for a core, from before the tunable flow was changed. */
static bool mf_flow_has_requests(struct fl_flow *flow)
{
	unsigned int i;

	for (i = 0; i < flow->dev->nr_hwqs; i++)
		if (mf_has_requests(&((struct mf_queue *)flow->queues + i)->stage))
			return true;
	return false;
}

/* Idle: nobody waits for it. Not busy: it no longer counts in the others' shares, either. */
static void mf_age_flow(struct mf_dev *mf, struct fl_flow *flow)
{
	struct mf_entity *entity = &to_mf_flow(flow)->entity;
	bool held, idle;
	u64 inserted = fl_flow_inserted(flow, mf->dev.sched, &held);

	idle = mf_is_idle(entity, inserted == flow->seen && !mf_flow_has_requests(flow));
	if (idle && !held) {
		fl_flow_set_busy(flow, false);
		/* A request that came just before saw the flow active: look again. */
		smp_mb();
		fl_flow_inserted(flow, mf->dev.sched, &held);
		fl_flow_set_busy(flow, held);
	}
	flow->seen = inserted;
	mf->active += flow->busy;
	if (idle && !mf_flow_has_requests(flow))
		mf_leave(mf, entity);
}

/* A request that comes just now may find the core still in: it is not sampled until its next. */
static void mf_age_core(struct mf_dev *mf, struct mf_hwq *mhq)
{
	u64 inserted = READ_ONCE(mhq->inserted);

	if (mf_is_idle(&mhq->core, inserted == mhq->seen && !mf_has_requests(&mhq->stage)))
		mf_leave(mf, &mhq->core);
	mhq->seen = inserted;
	mf->active += mhq->core.in;
}

/* Whoever has been idle for the timeout is so now. Under dev->lock. */
static void mf_age(struct mf_dev *mf)
{
	struct fl_flow *flow;
	unsigned int i;
	u64 largest;

	mf->active = 0;
	list_for_each_entry(flow, &mf->dev.flows, node)
		if (flow->busy)
			mf_age_flow(mf, flow);
	for (i = 0; i < mf->dev.nr_hwqs; i++)
		mf_age_core(mf, to_mf_hwq(mf->dev.hwqs[i]));
	mf_update_shares(mf);
	largest = READ_ONCE(mf->largest);
	WRITE_ONCE(mf->largest, largest - (largest >> 8));
}

/* ---- Work conservation: see 6 above ------------------------------------- */

/* The flow that is furthest behind is limited. @window: ns that it took to find out. Under dev->lock. */
static void mf_limit_last(struct mf_dev *mf, u64 now, u64 window)
{
	struct mf_slot *slot, *last = NULL;
	u64 least = 0;

	for (slot = mf->slots; slot < mf->slots + mf->nr_slots; slot++) {
		u64 vt = atomic64_read(&slot->vt);

		if (!slot->used || slot->limited || (last && !fl_vt_before(vt, least)))
			continue;
		last = slot;
		least = vt;
	}
	if (!last)
		return;
	last->limited_until_ns = now + (MF_BELIEF << last->doublings) * window;
	last->doublings = min_t(unsigned int, last->doublings + 1, MF_MAX_DOUBLINGS);
	WRITE_ONCE(last->limited, 1);
	mf->limits++;
}

/* What the limited flow with @slot is behind without need, it is not given back. */
static void mf_catch_up(struct mf_dev *mf, struct mf_slot *slot, u64 *random)
{
	const struct mf_slot *sample = mf_sample(mf, slot, random);
	s64 vt = atomic64_read(&slot->vt);
	u64 least;

	if (!sample)
		return;
	least = atomic64_read(&sample->vt) - mf_slack(mf);
	while (fl_vt_before(vt, least) && !atomic64_try_cmpxchg(&slot->vt, &vt, least))
		;
}

/* A window is over, in which the drive was busy if @good: who is no longer limited? */
static void mf_end_limits(struct mf_dev *mf, u64 now, bool good)
{
	struct mf_slot *slot;

	for (slot = mf->slots; slot < mf->slots + mf->nr_slots; slot++) {
		/* Who was itself held, and not because all were for somebody who is limited, could do more. */
		if (slot->limited &&
		    (now >= slot->limited_until_ns || (good && READ_ONCE(slot->held)))) {
			mf_catch_up(mf, slot, &mf->random);
			WRITE_ONCE(slot->limited, 0);
		}
		WRITE_ONCE(slot->held, 0);
	}
}

static bool mf_clearly_less(u64 now, u64 usual)
{
	return 8 * now <= 7 * usual;
}

/* Has the drive run dry for want of requests? The price list may be wrong, so both rates count. */
static bool mf_is_dry(const struct mf_dev *mf, const struct mf_load *now)
{
	return mf_clearly_less(now->cost, mf->usual.cost) &&
	       mf_clearly_less(now->requests, mf->usual.requests) &&
	       mf_clearly_less(now->in_flight, mf->usual.in_flight);
}

/* The virtual time of whoever is furthest ahead. */
static u64 mf_last_vt(struct mf_dev *mf)
{
	struct mf_slot *slot;
	bool found = false;
	u64 last = 0;

	for (slot = mf->slots; slot < mf->slots + mf->nr_slots; slot++) {
		u64 vt = atomic64_read(&slot->vt);

		if (slot->used && (!found || fl_vt_before(last, vt)))
			last = vt;
		found |= slot->used;
	}
	return last;
}

/* Is the next window one that nobody is held in? Returns false if this one was. */
static bool mf_open_windows(struct mf_dev *mf, const struct mf_load *load, u64 window_cost)
{
	unsigned int window = mf->windows++;

	if (window == MF_OPEN - 1)
		mf->open_every = mf_clearly_less(mf->before.cost, load->cost) &&
						 mf_clearly_less(mf->before.requests, load->requests) ?
					 MF_OPEN_EVERY :
					 min_t(unsigned int, 2 * mf->open_every, MF_OPEN_SELDOM);
	if (mf->windows >= mf->open_every) {
		mf->windows = 0;
		mf->before = *load;
		WRITE_ONCE(mf->open_vt, mf_last_vt(mf) + MF_OPEN_AHEAD * window_cost);
	}
	WRITE_ONCE(mf->open, mf->windows < MF_OPEN);
	if (window == MF_OPEN - 1)
		mf->usual = *load;
	return window >= MF_OPEN;
}

/* A window is over, with the load @load. Under dev->lock. */
static void mf_judge(struct mf_dev *mf, u64 now, const struct mf_load *load, u64 window_cost)
{
	bool held = 8 * mf->window_held > mf->window_ticks, dry = held && mf_is_dry(mf, load);
	/* Up fast, down slowly; what is done while nobody is held is usual, whatever it is. */
	unsigned int shift = !held || load->cost > mf->usual.cost ? 1 : 5;

	if (!mf_open_windows(mf, load, window_cost))
		return;
	mf_end_limits(mf, now, !dry);
	if (dry) {
		if (++mf->bad_windows >= MF_BAD_WINDOWS)
			mf_limit_last(mf, now, now - mf->window_ns);
		return;
	}
	mf->bad_windows = 0;
	mf->usual.cost += (s64)(load->cost - mf->usual.cost) >> shift;
	mf->usual.requests += (s64)(load->requests - mf->usual.requests) >> shift;
	mf->usual.in_flight += (s64)(load->in_flight - mf->usual.in_flight) >> shift;
}

/* On every tick, under dev->lock. @held: somebody is. */
static void mf_look_at_drive(struct mf_dev *mf, u64 now, bool held)
{
	u64 sent = 0, done = 0, cost = 0, window = now - mf->window_ns;
	struct mf_load load;
	unsigned int i;

	for (i = 0; i < mf->dev.nr_hwqs; i++) {
		struct mf_hwq *mhq = to_mf_hwq(mf->dev.hwqs[i]);

		done += atomic64_read(&mhq->done); /* first: never more than sent */
		sent += READ_ONCE(mhq->sent);
		cost += atomic64_read(&mhq->done_cost);
	}
	mf->window_ticks++;
	mf->window_held += held;
	mf->window_in_flight += sent - min_t(u64, done, sent);
	if (window < MF_WINDOW_NS ||
	    (done - mf->window_done < MF_WINDOW_REQUESTS && window < MF_MAX_WINDOW_NS))
		return;
	load.cost = mul_u64_u64_div_u64(cost - mf->window_cost, NSEC_PER_SEC, window);
	load.requests = mul_u64_u64_div_u64(done - mf->window_done, NSEC_PER_SEC, window);
	load.in_flight = div64_u64(16 * mf->window_in_flight, mf->window_ticks);
	if (READ_ONCE(mf->conserve))
		mf_judge(mf, now, &load, cost - mf->window_cost);
	mf->window_ns = now;
	mf->window_done = done;
	mf->window_cost = cost;
	mf->window_ticks = 0;
	mf->window_held = 0;
	mf->window_in_flight = 0;
}

/* ---- Dispatch: the hot path ------------------------------------------------ */

static u64 mf_vt(const struct mf_stage *st)
{
	return atomic64_read(&READ_ONCE(st->entity->slot)->vt);
}

static struct mf_stage *mf_stage_of(struct list_head *ready)
{
	return list_entry(ready, struct mf_stage, ready);
}

/* Sort @st in: mostly it has just advanced and goes to the end, or is new and goes to the front. */
static void mf_sort_in(struct mf_hwq *mhq, struct mf_stage *st)
{
	struct list_head *pos = mhq->ready.prev;

	st->key = mf_vt(st);
	if (!list_empty(&mhq->ready) && fl_vt_before(st->key, mf_stage_of(mhq->ready.next)->key))
		pos = &mhq->ready;
	while (pos != &mhq->ready && fl_vt_before(st->key, mf_stage_of(pos)->key))
		pos = pos->prev;
	list_add(&st->ready, pos);
}

/*
 * Is @st, the first, still the one with the least virtual time? Other hardware
 * queues may have advanced it, and others. They only advance, so that when the
 * first is where it was, nobody else has become less.
 */
static bool mf_still_first(struct mf_hwq *mhq, struct mf_stage *st)
{
	u64 vt = mf_vt(st);

	if (vt == st->key || st->ready.next == &mhq->ready ||
	    !fl_vt_before(mf_stage_of(st->ready.next)->key, vt)) {
		st->key = vt;
		return true;
	}
	list_del_init(&st->ready);
	mf_sort_in(mhq, st);
	return false;
}

/*
 * Virtual times only advance, except where a flow becomes backlogged that still has
 * something queued, from before the tunable flow was changed. It would wait
 * behind others that wait for it.
 */
static void mf_sort_anew(struct mf_hwq *mhq)
{
	LIST_HEAD(old);

	while (!list_empty(&mhq->ready))
		list_move_tail(mhq->ready.next, &old);
	while (!list_empty(&old)) {
		struct mf_stage *st = mf_stage_of(old.next);

		list_del_init(&st->ready);
		mf_sort_in(mhq, st);
	}
}

/* @st, the first, has to wait. */
static void mf_hold(struct mf_hwq *mhq, struct mf_stage *st)
{
	u64 now = fl_now_ns();
	struct mf_slot *slot = READ_ONCE(st->entity->slot);

	if (!READ_ONCE(slot->held))
		WRITE_ONCE(slot->held, 1);
	WRITE_ONCE(mhq->held_for, st->waits_for);
	WRITE_ONCE(mhq->held_vt, st->key);
	WRITE_ONCE(mhq->held_ns, now);
	WRITE_ONCE(mhq->held, true);
	if (now - mhq->sorted_ns >= MF_SORT_NS) {
		mhq->sorted_ns = now;
		mf_sort_anew(mhq);
		if (mhq->ready.next != &st->ready) {
			WRITE_ONCE(mhq->held, false);
			fl_hwq_run(&mhq->hwq);
		}
	}
	if (st->held_since_ns)
		return;
	st->held_since_ns = now;
	if (st->queue)
		WRITE_ONCE(st->queue->throttled, true);
}

static void mf_not_held(struct mf_stage *st)
{
	u64 ns;

	if (likely(!st->held_since_ns))
		return;
	ns = fl_now_ns() - st->held_since_ns;
	st->held_since_ns = 0;
	if (!st->queue)
		return;
	WRITE_ONCE(st->queue->throttled_ns, st->queue->throttled_ns + ns);
	WRITE_ONCE(st->queue->throttled, false);
}

/* The test, see 3 above. */
static bool mf_held_back(struct mf_dev *mf, struct mf_hwq *mhq, struct mf_stage *st,
			 const struct mf_slot *self)
{
	if (!st->waits_for)
		st->waits_for = mf_sample(mf, self, &mhq->random);
	if (st->waits_for && mf_must_wait(mf, st->waits_for, st->key))
		return true;
	st->waits_for = NULL;
	return false;
}

/* Take the test for the next batch, which has to pay @advance at least. */
static bool mf_draw(struct mf_dev *mf, struct mf_hwq *mhq, struct mf_stage *st, u64 advance)
{
	struct mf_slot *slot = READ_ONCE(st->entity->slot);
	u64 step = st->queue ? READ_ONCE(mf->queue_step) : READ_ONCE(mf->step);
	bool root = st->queue && !st->queue->flow->parent;

	/* The root's go on, ahead or not: swapping and metadata are in everybody's way. */
	if (!root && mf_held_back(mf, mhq, st, slot))
		return false;
	step = max_t(u64, step, advance - st->budget);
	if (step > READ_ONCE(mf->largest))
		WRITE_ONCE(mf->largest, step);
	atomic64_add(step, &slot->vt);
	st->budget += step;
	return true;
}

/* RQ or WQ? Whichever is not before its turn. */
static struct fl_req *mf_next(const struct mf_stage *st)
{
	int which = list_empty(&st->rqs[MF_RQ]) || (!list_empty(&st->rqs[MF_WQ]) && st->lead > 0) ?
			    MF_WQ :
			    MF_RQ;

	return fl_req_of(st->rqs[which].next);
}

static int mf_which(struct fl_req *rq)
{
	return fl_req_op(rq) == FL_READ ? MF_RQ : MF_WQ;
}

/* Marks a request's word: its bytes, whether it was a core's, and that it was dispatched. */
#define MF_SENT 1ul
#define MF_BY_CORE 2ul
#define MF_BYTES_SHIFT 2

/*
 * Whichever of RQ and WQ goes while the other is empty gives it no credit for
 * more than one request; what it owes the other it goes on paying.
 */
static void mf_take_turn(struct mf_dev *mf, struct mf_stage *st, int which, u64 cost)
{
	s64 lead = st->lead;

	if (which == MF_RQ) {
		if (list_empty(&st->rqs[MF_WQ]))
			lead = min_t(s64, lead, 0);
		st->lead = lead + cost * READ_ONCE(mf->write_weight);
	} else {
		if (list_empty(&st->rqs[MF_RQ]))
			lead = max_t(s64, lead, 0);
		st->lead = lead - cost * READ_ONCE(mf->read_weight);
	}
}

static void mf_send(struct mf_hwq *mhq, struct mf_stage *st, struct fl_req *rq)
{
	u64 bytes = fl_req_bytes(rq);

	list_del_init(fl_req_node(rq));
	WRITE_ONCE(st->queued, st->queued - 1);
	WRITE_ONCE(mhq->sent, mhq->sent + 1);
	atomic64_add(bytes, &st->outstanding);
	*fl_req_priv(rq) = bytes << MF_BYTES_SHIFT | (st->queue ? 0 : MF_BY_CORE) | MF_SENT;
	if (list_empty(&st->rqs[MF_RQ]) && list_empty(&st->rqs[MF_WQ]))
		list_del_init(&st->ready);
	mf_not_held(st);
	if (READ_ONCE(mhq->held))
		WRITE_ONCE(mhq->held, false);
}

/* The next request of @st, if it has the budget for it or passes the test for more. */
static struct fl_req *mf_try(struct mf_dev *mf, struct mf_hwq *mhq, struct mf_stage *st)
{
	struct fl_req *rq = mf_next(st);
	struct fl_queue *queue = fl_req_queue(rq);
	u64 cost = fl_cost(&mf->dev.cost, fl_req_op(rq), fl_req_bytes(rq));
	u64 advance = fl_vt_advance(cost, READ_ONCE(to_mf_flow(queue->flow)->reciprocal));

	if (st->budget < advance && !mf_draw(mf, mhq, st, advance))
		return NULL;
	st->budget -= advance;
	mf_take_turn(mf, st, mf_which(rq), cost);
	mf_send(mhq, st, rq);
	fl_queue_account(queue, rq, cost);
	return rq;
}

/* Everybody is held; the root is not. */
static struct fl_req *mf_try_root(struct mf_dev *mf, struct mf_hwq *mhq)
{
	struct mf_stage *st;

	list_for_each_entry(st, &mhq->ready, ready)
		if (st->queue && !st->queue->flow->parent)
			return mf_try(mf, mhq, st);
	return NULL;
}

static struct fl_req *mf_dispatch(struct fl_hwq *hwq)
{
	struct mf_dev *mf = to_mf_dev(hwq->dev);
	struct mf_hwq *mhq = to_mf_hwq(hwq);
	struct mf_stage *st;
	struct fl_req *rq;

	do {
		if (list_empty(&mhq->ready))
			return NULL;
		st = mf_stage_of(mhq->ready.next);
	} while (!mf_still_first(mhq, st));
	rq = mf_try(mf, mhq, st);
	if (!rq)
		rq = mf_try_root(mf, mhq);
	if (!rq)
		mf_hold(mhq, st);
	return rq;
}

static bool mf_has_work(struct fl_hwq *hwq)
{
	struct mf_hwq *mhq = to_mf_hwq(hwq);

	return !list_empty(&mhq->ready) && !READ_ONCE(mhq->held);
}

/* ---- Arrival ----------------------------------------------------------------- */

static struct mf_stage *mf_stage_for(struct mf_dev *mf, struct fl_queue *queue)
{
	if (READ_ONCE(mf->flow) == MF_CORE)
		return &to_mf_hwq(queue->hwq)->stage;
	return &to_mf_queue(queue)->stage;
}

static void mf_insert(struct fl_queue *queue, struct fl_req *rq, bool at_head)
{
	struct mf_dev *mf = to_mf_dev(queue->hwq->dev);
	struct mf_hwq *mhq = to_mf_hwq(queue->hwq);
	struct mf_stage *st = mf_stage_for(mf, queue);
	struct list_head *rqs = &st->rqs[mf_which(rq)];

	if (!st->queue)
		WRITE_ONCE(mhq->inserted, mhq->inserted + 1);
	if (fl_flow_touch(queue) || unlikely(!READ_ONCE(st->entity->in)))
		mf_activate(mf, mhq, queue->flow, st->entity);
	if (at_head)
		list_add(fl_req_node(rq), rqs);
	else
		list_add_tail(fl_req_node(rq), rqs);
	WRITE_ONCE(st->queued, st->queued + 1);
	if (list_empty(&st->ready)) {
		if (unlikely(READ_ONCE(READ_ONCE(st->entity->slot)->limited)))
			mf_catch_up(mf, READ_ONCE(st->entity->slot), &mhq->random);
		mf_sort_in(mhq, st);
	}
	if (READ_ONCE(mhq->held))
		WRITE_ONCE(mhq->held, false); /* test again */
}

static struct list_head *mf_merge_list(struct fl_queue *queue, enum fl_op op)
{
	return &mf_stage_for(to_mf_dev(queue->hwq->dev), queue)->rqs[op == FL_READ ? MF_RQ : MF_WQ];
}

/* ---- Completion ---------------------------------------------------------------- */

/* Have @mhq dispatch, or find out that it may not. */
static void mf_let_go(struct mf_hwq *mhq)
{
	WRITE_ONCE(mhq->held, false);
	fl_hwq_run(&mhq->hwq);
}

/* If whoever is held on @mhq would pass the test now, let it take it. No lock, any context. */
static void mf_test_held(struct mf_hwq *mhq)
{
	struct mf_dev *mf = to_mf_dev(mhq->hwq.dev);
	const struct mf_slot *other = READ_ONCE(mhq->held_for);
	u64 vt = READ_ONCE(mhq->held_vt);

	if (!READ_ONCE(mhq->held) || (other && mf_must_wait(mf, other, vt)))
		return;
	mf_let_go(mhq);
}

static void mf_complete(struct fl_queue *queue, struct fl_req *rq, u64 now_ns)
{
	struct mf_dev *mf = to_mf_dev(queue->hwq->dev);
	struct mf_hwq *mhq = to_mf_hwq(queue->hwq);

	(void)now_ns;
	atomic64_add(fl_cost(&mf->dev.cost, fl_req_op(rq), *fl_req_priv(rq) >> MF_BYTES_SHIFT),
		     &mhq->done_cost);
	mf_test_held(mhq);
}

static void mf_release(struct fl_queue *queue, struct fl_req *rq)
{
	struct mf_hwq *mhq = to_mf_hwq(queue->hwq);
	unsigned long sent = *fl_req_priv(rq);
	struct mf_stage *st = sent & MF_BY_CORE ? &mhq->stage : &to_mf_queue(queue)->stage;

	if (!sent)
		return;
	*fl_req_priv(rq) = 0;
	atomic64_add(-(s64)(sent >> MF_BYTES_SHIFT), &st->outstanding);
	atomic64_inc(&mhq->done);
}

/* ---- Every 200 us ----------------------------------------------------------------- */

static void mf_count(struct mf_dev *mf, const struct mf_stage *st)
{
	mf->outstanding_bytes += atomic64_read(&st->outstanding);
	mf->queued_requests += READ_ONCE(st->queued);
}

static void mf_count_all(struct mf_dev *mf)
{
	struct fl_flow *flow;
	unsigned int i;

	mf->outstanding_bytes = 0;
	mf->queued_requests = 0;
	for (i = 0; i < mf->dev.nr_hwqs; i++) {
		mf_count(mf, &to_mf_hwq(mf->dev.hwqs[i])->stage);
		list_for_each_entry(flow, &mf->dev.flows, node)
			if (flow->busy)
				mf_count(mf, &((struct mf_queue *)flow->queues + i)->stage);
	}
}

static u64 mf_tick(struct fl_dev *dev)
{
	struct mf_dev *mf = to_mf_dev(dev);
	unsigned long flags;
	unsigned int i, held = 0;
	u64 now, next;

	spin_lock_irqsave(&dev->lock, flags);
	now = fl_now_ns();
	if (now - mf->aged_ns >= READ_ONCE(mf->timeout_nsec) *
					 (1 + mf->backlogged * dev->nr_hwqs / MF_AGE_QUEUES)) {
		mf->aged_ns = now;
		mf_age(mf);
		mf_count_all(mf);
	}
	for (i = 0; i < dev->nr_hwqs; i++) {
		struct mf_hwq *mhq = to_mf_hwq(dev->hwqs[i]);

		held += READ_ONCE(mhq->held);
		mf_test_held(mhq);
		if (READ_ONCE(mhq->held) && (s64)(now - READ_ONCE(mhq->held_ns)) >= (s64)MF_SORT_NS)
			mf_let_go(mhq); /* to sort its list anew */
	}
	mf->holds += held;
	mf_look_at_drive(mf, now, held);
	mf->ticking = mf->active;
	next = mf->active ? MF_PERIOD_NS : 0;
	spin_unlock_irqrestore(&dev->lock, flags);
	return next;
}

/* ---- Setting up --------------------------------------------------------------------- */

static void mf_init_entity(struct mf_entity *entity)
{
	entity->slot = &entity->own;
}

static void mf_init_stage(struct mf_stage *st, struct mf_entity *entity, struct fl_queue *queue)
{
	st->entity = entity;
	st->queue = queue;
	INIT_LIST_HEAD(&st->rqs[MF_RQ]);
	INIT_LIST_HEAD(&st->rqs[MF_WQ]);
	INIT_LIST_HEAD(&st->ready);
}

static void mf_init_dev(struct fl_dev *dev)
{
	struct mf_dev *mf = to_mf_dev(dev);
	unsigned int i;

	for (i = 0; i < dev->nr_hwqs; i++) {
		struct mf_hwq *mhq = to_mf_hwq(dev->hwqs[i]);

		mf_init_entity(&mhq->core);
		mf_init_stage(&mhq->stage, &mhq->core, NULL);
		INIT_LIST_HEAD(&mhq->ready);
		mhq->random = 2 * i + 1; /* anything but 0 */
	}
	mf->random = 1;
	mf->open_every = MF_OPEN_EVERY;
	mf->windows = MF_OPEN_EVERY - 2;
	mf->aged_ns = fl_now_ns();
	mf->window_ns = mf->aged_ns;
	mf_update_shares(mf);
}

static void mf_init_flow(struct fl_flow *flow)
{
	struct mf_flow *mfl = to_mf_flow(flow);
	unsigned int i;

	mf_init_entity(&mfl->entity);
	mfl->reciprocal = fl_vt_reciprocal(FL_SHARE_ONE);
	for (i = 0; i < flow->dev->nr_hwqs; i++) {
		struct mf_queue *mq = (struct mf_queue *)flow->queues + i;

		mf_init_stage(&mq->stage, &mfl->entity, &mq->q);
	}
}

static void mf_exit_flow(struct fl_flow *flow)
{
	mf_leave(to_mf_dev(flow->dev), &to_mf_flow(flow)->entity);
	fl_flow_set_busy(flow, false);
}

#define MF_TUNABLE(_name, _unit, _min, _max, _def, _help)                                          \
	{ .name = #_name, .unit = _unit, .help = _help, .offset = offsetof(struct mf_dev, _name),  \
	  .min = _min, .max = _max, .def = _def }
#define MF_COUNTER(_name, _unit, _help)                                                            \
	{ .name = #_name, .unit = _unit, .help = _help, .offset = offsetof(struct mf_dev, _name) }

static const struct fl_var mf_vars[] = {
	MF_TUNABLE(flow, "choice", MF_CGROUP, MF_CORE, MF_CGROUP,
		   "what a flow is: 0: a cgroup; 1: a core (hardware queue), as in the paper"),
	MF_TUNABLE(batch, "cost", FL_COST_ONE, 1024ull * FL_COST_ONE, 12ull * FL_COST_ONE,
		   "base batch size, 4096 for a reference request"),
	MF_TUNABLE(timeout_nsec, "ns", 10 * NSEC_PER_USEC, NSEC_PER_SEC, NSEC_PER_MSEC,
		   "a flow that has had nothing for so long is idle"),
	MF_TUNABLE(read_weight, "weight", 1, 10000, 100, "of each flow's reads"),
	MF_TUNABLE(write_weight, "weight", 1, 10000, 100, "of each flow's writes"),
	MF_TUNABLE(conserve, "bool", 0, 1, 1,
		   "1: nobody waits for a flow that is behind by its own doing; 0: as in the paper"),
	MF_COUNTER(backlogged, "flows", "that have requests, or had some within the timeout"),
	MF_COUNTER(holds, "queues", "hardware queues found waiting, each 200 us, summed"),
	MF_COUNTER(limits, "flows", "found to be behind by their own doing, so far"),
	MF_COUNTER(outstanding_bytes, "bytes", "in the drive, at the last look"),
	MF_COUNTER(queued_requests, "requests", "queued, at the last look"),
	{}
};

const struct fl_sched fl_mqflashfq = {
	.name = "mqflashfq",
	.dev_size = sizeof(struct mf_dev),
	.hwq_size = sizeof(struct mf_hwq),
	.flow_size = sizeof(struct mf_flow),
	.queue_size = sizeof(struct mf_queue),
	.init_dev = mf_init_dev,
	.init_flow = mf_init_flow,
	.exit_flow = mf_exit_flow,
	.insert = mf_insert,
	.dispatch = mf_dispatch,
	.has_work = mf_has_work,
	.merge_list = mf_merge_list,
	.complete = mf_complete,
	.release = mf_release,
	.tick = mf_tick,
	.vars = mf_vars,
};
