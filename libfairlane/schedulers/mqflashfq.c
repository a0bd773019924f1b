// SPDX-License-Identifier: GPL-2.0-only OR MIT
/*
 * mqFlashFQ: a drive shared by cost, with virtual times that nobody locks.
 *
 * After "Accurate Calibration and Scalable Bandwidth Sharing of Multi-Queue SSDs" (Kang, Kim; JCSE 17(2), 2023).
 * Section numbers with Roman letters are the paper's.
 *
 * 1. The idea (III-A)
 *
 * Start-time fair queueing gives every flow a virtual time, its service divided by its weight, and serves the
 * flow that is furthest behind. To know which one that is, FlashFQ (flashfq.c) keeps all virtual times in one
 * list under one lock, and every request of every core goes through it. mqFlashFQ does not look for the
 * furthest behind. A flow compares itself with one other, chosen at random, by reading that one's virtual time:
 * not ahead of it, it may go on; ahead of it, it waits (sampled-times.h). No lock, and in the long run the same
 * shares: whoever is ahead finds most others behind itself.
 *
 *     hardware queue 0       hardware queue 1       hardware queue 2
 *        RQ    WQ               RQ    WQ               RQ    WQ      (a pair for each cgroup)
 *          \  /                   \  /                   \  /
 *           SQ  vt = 70            SQ  vt = 64            SQ  vt = 72
 *            `------- looks at ---->'  `---- looks at ---->'
 *             waits (70 > 64)           goes on (64 <= 72)
 *
 * What a request costs is not its bytes but what it takes from the drive (prices.h, III-B); a calibration says.
 *
 * 2. What a flow is
 *
 * The tunable `flow` says what has a virtual time: 1, a core - a hardware queue, as in the paper - or 0, a
 * cgroup; a change counts from when nothing is backlogged. A core has no weight: its virtual time advances by
 * each request's cost divided by the weight of the cgroup that the request is from, so that cores to which
 * tenants are pinned have their tenants' weights. (Not by its share: when others leave, who is ahead would owe
 * more than it got.) A cgroup's requests may be on many hardware queues at once. They all advance one virtual
 * time, with one atomic addition for a batch, which each hardware queue draws for itself and spends without
 * touching anything that is shared (but the accounts of those above, if it is nested). Among the cgroups of one
 * hardware queue no sampling is needed, since its lock is held: they are sorted, and the first one takes the
 * test.
 *
 * 3. The test and the batch
 *
 * The test is taken when a request arrives, when one is completed, and every 200 us; and, since a fast drive
 * may have nothing of a flow left by then, when the one advances that it was ahead of. Whoever passes it may
 * dispatch a batch, its cost up to the base batch size times the weight: its virtual time advances by the same
 * step whoever it is. (Weights relative to the average; the paper's are as they are.)
 *
 *     batch 48 KiB, weights 3 and 1: the step is 24 Ki, the batches are 72 and 24 KiB
 *
 * A cgroup's batch is divided by the number of hardware queues, up to four: with less than a few requests at a
 * time they would only wait for each other. A request that costs more is a batch. Everything is charged before
 * it is dispatched.
 *
 * One addition: who fails the test goes on comparing itself with the same flow until it is no longer ahead of
 * that one. With a new sample each time it would find one that is even further ahead sooner or later, and two
 * could overtake each other for ever while a third is left behind. So of two backlogged flows none is ever
 * further ahead (but for 6) than a step, or its dearest request on each hardware queue. Of more, whoever is
 * behind may not be sampled for a while, and others overtake each other meanwhile: with 6 flows the foremost is
 * 4 steps ahead on average, with 64 it is 9.
 *
 * 4. Backlogged and idle
 *
 * A flow is backlogged while it has queued or outstanding requests and for 1 ms (the tunable timeout_nsec)
 * more: whoever waits for a request before it sends the next is not idle in between (deceptive idleness). Only
 * backlogged flows are sampled. Who becomes backlogged has lost what it did not use (but the rest of a batch
 * that it has paid), and still owes what it owes; or what a cgroup above it owes, for all below it together (an
 * addition; accounts.h).
 *
 * 5. Reads and writes
 *
 * What a cgroup has on a hardware queue is a read queue and a write queue with weights of their own,
 * read_weight and write_weight, so that a read does not wait behind the cgroup's own writes for longer than its
 * part (reads-and-writes.h). The paper has one such pair for a core, and waits for whichever is idle for a
 * moment; here it is passed over at once.
 *
 * 6. Work conservation (an addition: the tunable `conserve`)
 *
 * The paper waits for a flow that is behind as long as it is backlogged, even if it cannot do more; then all go
 * at its pace. Here those that are held are let go, request by request, while the drive has less to do than it
 * needs (work-conservation.h). If several are held, the one that is furthest behind comes first, up to a batch
 * on each of its hardware queues. Who is let go is charged as ever. Flows that were waited for do not get back
 * what they did not use meanwhile: they are brought nearer, to within a floor's worth and a few steps, but not
 * nearer than that to any that waits. With conserve = 0 somebody is let go only while the drive has nothing at
 * all: one that is behind may wait for a tag, while those that have all tags are held for it.
 *
 * When to use it: many cores, requests of many kinds, a calibrated drive. When not: a lone tenant.
 */
#include "../mechanisms/accounts.h"
#include "../mechanisms/paid.h"
#include "../mechanisms/reads-and-writes.h"
#include "../mechanisms/sampled-times.h"
#include "../mechanisms/traffic.h"

/* The test's period, the paper's. */
#define MF_PERIOD_NS (200ull * NSEC_PER_USEC)

/* A cgroup's batch is divided among its hardware queues, but into no more parts than these. */
#define MF_PARTS 4

/* Flows that do not keep up while others are let go stay so many steps behind them. */
#define MF_KEPT_STEPS 8
#define MF_ACCOUNT offsetof(struct mf_flow, account)

/*
 * Each timeout_nsec so many flows are looked at: are they idle, and which weight have they? With 640 that
 * are backlogged, one that no longer is goes after ten of these.
 */
#define MF_AGED 64

enum { MF_CGROUP, MF_CORE }; /* the tunable flow */

/* SQ: what a cgroup has queued on a hardware queue. All under hwq->lock. */
struct mf_queue {
	struct fl_queue q;
	/* In mf_hwq.ready, when something is queued. Its virtual time has not become less than the key. */
	struct fl_sorted ready ____cacheline_aligned_in_smp;
	struct fl_sampled *time; /* the cgroup's or the core's */
	u64 budget; /* drawn and not spent, in virtual time */
	struct fl_rw rw; /* RQ and WQ */
	struct fl_slot *waits_for; /* the sample that it was ahead of; NULL: none */
	u64 held_since_ns; /* 0: not held */
};

struct mf_flow {
	struct fl_flow flow;
	struct fl_sampled time;
	u64 reciprocal; /* of the weight; written under dev->lock; a stale read misprices one request */
	struct fl_account account; /* of all below it, together */
};

struct mf_hwq {
	struct fl_hwq hwq;
	/* Under hwq->lock. */
	struct list_head ready; /* mf_queue.ready */
	struct mf_queue *root; /* the root cgroup's; does not change */
	u64 random;
	/* Written under hwq->lock; the tick reads it, old by a request: what was not sent is queued (NOQ). */
	u64 inserted;
	/*
	 * The first of the ready ones failed the test, with these. Written under
	 * hwq->lock, except that whoever finds that it would pass now clears held;
	 * a stale read costs a test, or waits for the tick.
	 */
	bool held;
	u64 held_vt;
	struct fl_slot *held_for;
	u64 held_paid; /* held_vt, less what it was charged that it has not paid yet: see mf_forget() */
	bool let_go; /* one was, though it failed, there (as above); the tick clears it */
	u64 let_go_paid;
	struct fl_sampled time; /* the core's */
	u64 seen; /* inserted, when the tick last found nothing queued or outstanding; under dev->lock */
	struct fl_room room;
	struct fl_traffic traffic ____cacheline_aligned_in_smp; /* what was sent and not done is outstanding (NOS) */
};

struct mf_dev {
	struct fl_dev dev;
	/* Read on the hot path, written under dev->lock: a stale read misjudges one batch. */
	u64 step; /* by which a batch advances virtual time, or the part of one hardware queue in it */
	u64 reciprocal; /* of the weights of all that are busy together */
	bool by_core; /* what has slots: the tunable flow, when nothing was backlogged */
	struct fl_floor floor;
	/* The rest is under dev->lock. */
	bool ticking; /* and will go on to */
	u64 front; /* see mf_forget() */
	u64 aged_ns; /* the last look for idle flows */
	/* Tunables: written by the operator at any time, read with READ_ONCE(). */
	u64 flow, batch, timeout_nsec, read_weight, write_weight, conserve;
	/* Counters. */
	u64 holds, outstanding, queued;
	struct fl_slots slots;
};

#define to_mf_dev(_dev) container_of(_dev, struct mf_dev, dev)
#define to_mf_hwq(_hwq) container_of(_hwq, struct mf_hwq, hwq)
#define to_mf_flow(_flow) container_of(_flow, struct mf_flow, flow)
#define to_mf_queue(_queue) container_of(_queue, struct mf_queue, q)

/* ---- Backlogged and idle: the slow path, under dev->lock ---------------- */

static void mf_update_weight(struct fl_flow *flow)
{
	fl_flow_update_share(flow);
	WRITE_ONCE(to_mf_flow(flow)->reciprocal, fl_vt_reciprocal(fl_flow_relative_weight(flow)));
	fl_accounts_weigh(flow, MF_ACCOUNT);
}

/* Flows have come or gone, or have other weights. */
static void mf_update_step(struct mf_dev *mf)
{
	u64 mean = fl_vt_reciprocal(fl_flows_mean_weight(&mf->dev));

	WRITE_ONCE(mf->reciprocal, div64_u64(mean, max_t(u32, mf->dev.nr_active, 1)));
	WRITE_ONCE(mf->step, div64_u64(fl_vt_advance(READ_ONCE(mf->batch), mean),
				       mf->by_core ? 1 : min_t(u32, mf->dev.nr_hwqs, MF_PARTS)));
}

/* The first request of an idle flow or core. Takes dev->lock, under hwq->lock. */
static noinline void mf_activate(struct mf_dev *mf, struct mf_hwq *mhq, struct fl_flow *flow)
{
	unsigned long flags;
	u64 system;
	bool kick;

	spin_lock_irqsave(&mf->dev.lock, flags);
	system = fl_slots_system(&mf->slots);
	if (!mf->slots.backlogged && !mf->dev.nr_active)
		WRITE_ONCE(mf->by_core, READ_ONCE(mf->flow) == MF_CORE);
	fl_flow_set_busy(flow, true);
	mf_update_weight(flow); /* the others' in mf_age() */
	mf_update_step(mf);
	fl_sampled_enter(&mf->slots, mf->by_core ? &mhq->time : &to_mf_flow(flow)->time, system,
			 fl_accounts_debt(flow, MF_ACCOUNT, system));
	kick = !mf->ticking;
	mf->ticking = true;
	spin_unlock_irqrestore(&mf->dev.lock, flags);
	if (kick)
		fl_dev_kick(&mf->dev);
}

/* A request that comes just now may find the core still in: it is sampled from its next on. */
static void mf_age_core(struct mf_dev *mf, struct mf_hwq *mhq)
{
	u64 done = atomic64_read(&mhq->traffic.done[0]) + atomic64_read(&mhq->traffic.done[1]);
	u64 outstanding = READ_ONCE(mhq->traffic.sent_cost) - done, sent = READ_ONCE(mhq->traffic.sent);
	u64 inserted = READ_ONCE(mhq->inserted), queued = inserted - sent; /* the later is read first */

	fl_sampled_stays(&mf->slots, &mhq->time);
	mf->queued += queued;
	mf->outstanding += outstanding;
	if (queued || outstanding)
		return;
	if (inserted == mhq->seen)
		fl_sampled_leave(&mf->slots, &mhq->time);
	mhq->seen = inserted;
}

static void mf_age(struct mf_dev *mf)
{
	struct fl_flow *flow;
	unsigned int i;

	fl_for_some_active(flow, &mf->dev, MF_AGED)
		if (fl_flow_age(flow)) {
			mf_update_weight(flow);
			fl_sampled_stays(&mf->slots, &to_mf_flow(flow)->time);
		} else {
			fl_sampled_leave(&mf->slots, &to_mf_flow(flow)->time);
		}
	mf->queued = 0;
	mf->outstanding = 0;
	for (i = 0; i < mf->dev.nr_hwqs; i++)
		mf_age_core(mf, to_mf_hwq(mf->dev.hwqs[i]));
	mf_update_step(mf);
}

static void mf_least(u64 vt, u64 *front, bool *found)
{
	if (!*found || fl_vt_before(vt, *front))
		*front = vt;
	*found = true;
}

/*
 * Was anybody let go since the last look? Stores where the furthest behind was of those, and of those
 * that wait: whoever waits uses all that it is given.
 */
static bool mf_was_let_go(struct mf_dev *mf, u64 *front)
{
	bool found = false, let_go = false;
	unsigned int i;

	for (i = 0; i < mf->dev.nr_hwqs; i++) {
		struct mf_hwq *mhq = to_mf_hwq(mf->dev.hwqs[i]);

		if (READ_ONCE(mhq->held))
			mf_least(READ_ONCE(mhq->held_paid), front, &found);
		if (!READ_ONCE(mhq->let_go))
			continue;
		mf_least(READ_ONCE(mhq->let_go_paid), front, &found);
		WRITE_ONCE(mhq->let_go, false);
		let_go = true;
	}
	return let_go;
}

/*
 * Flows were let go, since others do not keep the drive busy. What those did not use meanwhile they lose, except
 * for a floor's worth and a few steps. Their order does not change. In a trial they lose nothing.
 *
 * What a flow was charged (for metadata) took it further, but was not theirs to use: it does not count until the
 * flow is no longer ahead.
 */
static void mf_forget(struct mf_dev *mf)
{
	u64 front = 0, advanced, kept;

	if (!mf_was_let_go(mf, &front))
		return;
	advanced = front - mf->front;
	if ((s64)advanced <= 0)
		return;
	mf->front = front;
	kept = fl_vt_advance(mf->floor.limit.level, mf->reciprocal) + MF_KEPT_STEPS * mf->step;
	if (!mf->floor.trials)
		fl_slots_bring_nearer(&mf->slots, front - kept, kept, advanced);
}

/* ---- Dispatch: the hot path ------------------------------------------------ */

/* Whose virtual time is that of @mq? While it has requests that does not change. */
static struct fl_sampled *mf_time(const struct mf_queue *mq)
{
	return READ_ONCE(to_mf_dev(mq->q.hwq->dev)->by_core) ? &to_mf_hwq(mq->q.hwq)->time :
							     &to_mf_flow(mq->q.flow)->time;
}

static u64 mf_reciprocal(const struct mf_queue *mq)
{
	return READ_ONCE(to_mf_flow(mq->q.flow)->reciprocal);
}

static struct mf_queue *mf_queue_of(struct list_head *ready)
{
	return list_entry(ready, struct mf_queue, ready.node);
}

/* By its virtual time: it has just advanced, or is new. */
static void mf_sort_in(struct mf_hwq *mhq, struct mf_queue *mq, u64 vt)
{
	mq->ready.key = vt;
	fl_sorted_add(&mhq->ready, &mq->ready);
}

/*
 * The one with the least virtual time; there is one. Other hardware queues may have
 * advanced some of them. Virtual times only advance: if the first one's is what
 * it was, it is still the least.
 */
static struct mf_queue *mf_first(struct mf_hwq *mhq)
{
	for (;;) {
		struct mf_queue *mq = mf_queue_of(mhq->ready.next);
		u64 vt = fl_sampled_vt(mq->time);

		if (vt == mq->ready.key || mq->ready.node.next == &mhq->ready ||
		    !fl_vt_before(mf_queue_of(mq->ready.node.next)->ready.key, vt)) {
			mq->ready.key = vt;
			return mq;
		}
		list_del_init(&mq->ready.node);
		mf_sort_in(mhq, mq, vt);
	}
}

/* If the flow that is held on @mhq would pass the test now, run the queue. No lock, any context. */
static bool mf_test_held(struct mf_hwq *mhq)
{
	const struct fl_slot *other = READ_ONCE(mhq->held_for);
	u64 vt = READ_ONCE(mhq->held_vt);

	if (!READ_ONCE(mhq->held))
		return true;
	/* One that does not wait for room either, as it was too far ahead in a trial, asks again. */
	if (fl_slot_is_behind(other, vt) && READ_ONCE(mhq->room.waiting))
		return false;
	WRITE_ONCE(mhq->held, false);
	fl_hwq_run(&mhq->hwq);
	return true;
}

/* @slot has advanced. Does @hwq no longer wait for it? */
static bool mf_wake(struct fl_hwq *hwq, const struct fl_slot *slot)
{
	struct mf_hwq *mhq = to_mf_hwq(hwq);

	return READ_ONCE(mhq->held_for) != slot || mf_test_held(mhq);
}

/* @mq, the first, has to wait. False: no longer. */
static noinline bool mf_hold(struct mf_hwq *mhq, struct mf_queue *mq)
{
	WRITE_ONCE(mhq->held_for, mq->waits_for);
	WRITE_ONCE(mhq->held_vt, mq->ready.key);
	WRITE_ONCE(mhq->held_paid, mq->ready.key - atomic64_read(&mq->time->unpaid));
	WRITE_ONCE(mhq->held, true);
	if (!fl_slot_wait(mq->waits_for, mhq->hwq.index, mq->ready.key)) {
		WRITE_ONCE(mhq->held, false);
		return false;
	}
	if (!mq->held_since_ns)
		mq->held_since_ns = fl_now_ns();
	return true;
}

static void mf_not_held(struct mf_queue *mq)
{
	if (likely(!mq->held_since_ns))
		return;
	WRITE_ONCE(mq->q.throttled_ns, mq->q.throttled_ns + fl_now_ns() - mq->held_since_ns);
	mq->held_since_ns = 0;
}

/* The root cgroup never waits: everybody may depend on its swapping and metadata. */
static bool mf_is_exempt(const struct mf_queue *mq)
{
	return !mq->q.flow->parent && !READ_ONCE(to_mf_dev(mq->q.hwq->dev)->by_core);
}

/* A small share is far ahead by the request itself, which needs @advance. */
static bool mf_may_be_let_go(const struct mf_dev *mf, const struct mf_queue *mq, u64 advance)
{
	u64 ahead = mq->ready.key - atomic64_read(&mq->waits_for->vt), most = READ_ONCE(mf->floor.ahead);

	most = fl_vt_advance(most, READ_ONCE(mf->reciprocal)) + advance;
	return !READ_ONCE(mf->floor.trials) || ahead < most;
}

/* The drive is short of work, so that a request of @mq goes before the flow that it waits for. */
static void mf_let_go(struct mf_dev *mf, struct mf_hwq *mhq, struct mf_queue *mq)
{
	fl_floor_release(&mf->floor);
	mq->waits_for = NULL;
	WRITE_ONCE(mhq->let_go_paid, mq->ready.key - atomic64_read(&mq->time->unpaid));
	WRITE_ONCE(mhq->let_go, true);
}

/* The test, see 3 above. */
static bool mf_passes(struct mf_dev *mf, struct mf_hwq *mhq, struct mf_queue *mq,
		      const struct fl_slot *self)
{
	if (mf_is_exempt(mq))
		return true;
	if (!mq->waits_for)
		mq->waits_for = fl_slots_sample(&mf->slots, self, &mhq->random);
	if (mq->waits_for && fl_slot_is_behind(mq->waits_for, mq->ready.key))
		return false;
	mq->waits_for = NULL;
	return true;
}

/* Is there room for @mq, though it is held? It has a use for a batch. */
static bool mf_ask(struct mf_dev *mf, struct mf_hwq *mhq, struct mf_queue *mq)
{
	u64 one = fl_vt_advance(FL_COST_ONE, mf_reciprocal(mq));

	WRITE_ONCE(mhq->room.want, div64_u64(READ_ONCE(mf->step) * FL_COST_ONE, max_t(u64, one, 1)));
	return fl_limit_ask(&mf->floor.limit, &mhq->room, mq->ready.key);
}

/* Draw a batch, if the test is passed, or one request that needs @advance, if there is room. */
static bool mf_draw(struct mf_dev *mf, struct mf_hwq *mhq, struct mf_queue *mq, u64 advance)
{
	struct fl_slot *slot = READ_ONCE(mq->time->slot);
	u64 step = advance - mq->budget;

	if (mf_passes(mf, mhq, mq, slot)) {
		step = max_t(u64, step, READ_ONCE(mf->step));
		fl_sampled_paid(mq->time);
	} else if (mf_may_be_let_go(mf, mq, advance) && mf_ask(mf, mhq, mq)) {
		mf_let_go(mf, mhq, mq);
	} else {
		return false;
	}
	mq->budget += step;
	if (fl_slot_advance(slot, step))
		fl_slot_wake(slot, &mf->dev, mf_wake);
	return true;
}

static void mf_send(struct mf_hwq *mhq, struct mf_queue *mq, struct fl_req *rq, u64 cost)
{
	list_del_init(fl_req_node(rq));
	fl_traffic_sent(&mhq->traffic, cost);
	fl_paid_goes(rq, cost);
	if (fl_rw_empty(&mq->rw))
		list_del_init(&mq->ready.node);
	mf_not_held(mq);
	if (READ_ONCE(mhq->held))
		WRITE_ONCE(mhq->held, false);
}

/* The next request of @mq, if it has the budget for it or passes the test for more. */
static struct fl_req *mf_try(struct mf_dev *mf, struct mf_hwq *mhq, struct mf_queue *mq)
{
	struct fl_req *rq = fl_rw_next(&mq->rw);
	enum fl_op op = fl_req_op(rq);
	u64 cost = fl_cost(&mf->dev.prices, op, fl_req_bytes(rq));
	u64 advance = fl_has_paid(rq) ? 0 : fl_vt_advance(cost, mf_reciprocal(mq));

	if (mq->budget < advance && !mf_draw(mf, mhq, mq, advance))
		return NULL;
	mq->budget -= advance;
	if (advance && !READ_ONCE(mf->by_core)) /* cores have no parents */
		fl_accounts_charge(mq->q.flow, MF_ACCOUNT, cost);
	fl_rw_account(&mq->rw, op, cost,
		      op == FL_READ ? READ_ONCE(mf->write_weight) : READ_ONCE(mf->read_weight));
	mf_send(mhq, mq, rq, cost);
	fl_limit_sent(&mf->floor.limit, &mhq->room, cost);
	fl_queue_account(&mq->q, rq, cost);
	return rq;
}

static struct fl_req *mf_dispatch(struct fl_hwq *hwq)
{
	struct mf_dev *mf = to_mf_dev(hwq->dev);
	struct mf_hwq *mhq = to_mf_hwq(hwq);
	struct mf_queue *first;
	struct fl_req *rq;

	if (list_empty(&mhq->ready))
		goto none;
	first = mf_first(mhq);
	do {
		rq = mf_try(mf, mhq, first);
		if (rq)
			return rq;
		/* All have to wait, except the root. */
		if (mf_is_exempt(mhq->root) && !list_empty(&mhq->root->ready.node))
			return mf_try(mf, mhq, mhq->root);
	} while (!mf_hold(mhq, first));
none:
	fl_limit_pass_on(&mf->floor.limit, &mhq->room);
	return NULL;
}

static bool mf_has_work(struct fl_hwq *hwq)
{
	struct mf_hwq *mhq = to_mf_hwq(hwq);

	return (!list_empty(&mhq->ready) && !READ_ONCE(mhq->held)) ||
	       READ_ONCE(mhq->room.woken);
}

/* ---- Arrival ----------------------------------------------------------------- */

static void mf_insert(struct fl_queue *queue, struct fl_req *rq, bool at_head)
{
	struct mf_dev *mf = to_mf_dev(queue->hwq->dev);
	struct mf_hwq *mhq = to_mf_hwq(queue->hwq);
	struct mf_queue *mq = to_mf_queue(queue);
	struct list_head *rqs = fl_rw_list(&mq->rw, fl_req_op(rq));

	WRITE_ONCE(mhq->inserted, mhq->inserted + 1);
	if (fl_flow_touch(queue) || unlikely(!READ_ONCE(mf_time(mq)->in)))
		mf_activate(mf, mhq, queue->flow);
	fl_stage(rq, rqs, at_head);
	if (list_empty(&mq->ready.node)) {
		mq->time = mf_time(mq);
		mf_sort_in(mhq, mq, fl_sampled_vt(mq->time));
	}
	if (READ_ONCE(mhq->held))
		WRITE_ONCE(mhq->held, false); /* test again */
}

static void mf_charge(struct fl_queue *queue, enum fl_op op, u32 bytes)
{
	struct mf_dev *mf = to_mf_dev(queue->hwq->dev);
	struct mf_queue *mq = to_mf_queue(queue);
	u64 cost = fl_cost(&mf->dev.prices, op, bytes);

	fl_sampled_charge(&mf->slots, &mf->dev, mf_time(mq), fl_vt_charge(queue->flow, cost, mf_reciprocal(mq)));
	if (!READ_ONCE(mf->by_core))
		fl_accounts_charge(queue->flow, MF_ACCOUNT, cost);
}

static struct list_head *mf_merge_list(struct fl_queue *queue, enum fl_op op)
{
	return fl_rw_list(&to_mf_queue(queue)->rw, op);
}

/* ---- Completion ---------------------------------------------------------------- */

static void mf_release(struct fl_queue *queue, struct fl_req *rq)
{
	struct mf_hwq *mhq = to_mf_hwq(queue->hwq);
	u64 cost = fl_paid_leaves(rq);

	if (!cost)
		return; /* it never was in the drive, or has been released */
	mf_test_held(mhq);
	fl_traffic_done(&mhq->traffic, fl_req_op(rq), cost);
	fl_limit_done(&to_mf_dev(queue->hwq->dev)->floor.limit, &mhq->room, cost);
}

/* ---- Every 200 us ----------------------------------------------------------------- */

static u64 mf_tick(struct fl_dev *dev)
{
	struct mf_dev *mf = to_mf_dev(dev);
	unsigned long flags;
	unsigned int i, held = 0;
	u64 now, next;

	spin_lock_irqsave(&dev->lock, flags);
	now = fl_now_ns();
	if (now - mf->aged_ns >= READ_ONCE(mf->timeout_nsec)) {
		mf->aged_ns = now;
		mf_age(mf);
	}
	for (i = 0; i < dev->nr_hwqs; i++) {
		struct mf_hwq *mhq = to_mf_hwq(dev->hwqs[i]);

		held += READ_ONCE(mhq->held);
		mf_test_held(mhq);
	}
	mf->holds += held;
	if (READ_ONCE(mf->conserve))
		fl_traffic_look(dev, offsetof(struct mf_hwq, traffic), &mf->floor, now);
	else
		fl_floor_set_least(&mf->floor);
	mf_forget(mf);
	mf->ticking = mf->dev.nr_active || mf->slots.backlogged;
	next = mf->ticking ? MF_PERIOD_NS : 0;
	spin_unlock_irqrestore(&dev->lock, flags);
	return next;
}

/* ---- Setting up --------------------------------------------------------------------- */

static void mf_init_dev(struct fl_dev *dev)
{
	struct mf_dev *mf = to_mf_dev(dev);
	unsigned int i;

	for (i = 0; i < dev->nr_hwqs; i++) {
		struct mf_hwq *mhq = to_mf_hwq(dev->hwqs[i]);

		fl_sampled_init(&mhq->time);
		INIT_LIST_HEAD(&mhq->ready);
		/* They may be read just before it is held for the first time. */
		mhq->held_for = mf->slots.slot;
		mhq->random = i + 1;
	}
	fl_floor_init(&mf->floor, dev, offsetof(struct mf_hwq, room), fl_now_ns());
}

static void mf_init_flow(struct fl_flow *flow)
{
	struct mf_flow *mfl = to_mf_flow(flow);

	fl_sampled_init(&mfl->time);
	mfl->reciprocal = fl_vt_reciprocal(FL_SHARE_ONE);
}

static void mf_init_queue(struct fl_queue *queue)
{
	struct mf_queue *mq = to_mf_queue(queue);

	if (!queue->flow->parent)
		to_mf_hwq(queue->hwq)->root = mq;
	fl_rw_init(&mq->rw);
	INIT_LIST_HEAD(&mq->ready.node);
}

static void mf_exit_flow(struct fl_flow *flow)
{
	fl_sampled_leave(&to_mf_dev(flow->dev)->slots, &to_mf_flow(flow)->time);
}

#define MF_TUNABLE(...) FL_TUNABLE(struct mf_dev, __VA_ARGS__)
#define MF_COUNTER(_name, ...) FL_COUNTER(struct mf_dev, _name, _name, __VA_ARGS__)

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
		   "1: nobody is held while the drive has too little to do; 0: while it has nothing"),
	{ .name = "backlogged", .unit = "flows", .help = "that have requests, or had some within the timeout",
	  .offset = offsetof(struct mf_dev, slots.backlogged) },
	MF_COUNTER(holds, "queues", "hardware queues found waiting, each 200 us, summed"),
	FL_COUNTER(struct mf_dev, floor, floor.limit.level, "cost", "with less nobody is held"),
	MF_COUNTER(outstanding, "cost", "in the drive, at the last look"),
	MF_COUNTER(queued, "requests", "queued, at the last look"),
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
	.init_queue = mf_init_queue,
	.insert = mf_insert,
	.dispatch = mf_dispatch,
	.has_work = mf_has_work,
	.charge = mf_charge,
	.merge_list = mf_merge_list,
	.release = mf_release,
	.tick = mf_tick,
	.vars = mf_vars,
};
