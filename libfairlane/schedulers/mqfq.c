// SPDX-License-Identifier: GPL-2.0-only OR MIT
/*
 * MQFQ: fair queueing for drives with many queues. The baseline of D2FQ.
 *
 * After "Multi-Queue Fair Queueing" (Hedayati, Shen, Scott, Marty; USENIX ATC
 * 2019), from its published description and what the D2FQ paper says of its
 * own implementation; the authors' code was never public.
 *
 * 1. The idea
 *
 * Start-time fair queueing gives each request a start tag, the virtual time
 * at which its flow has been paid all that came before:
 *
 *     start  = max(global virtual time, finish of the flow's previous request)
 *     finish = start + cost / weight
 *
 * and dispatches in the order of start tags. The global virtual time is the
 * least start tag of all that wait, so a flow that was idle begins there, or where
 * its last request finished: it has no credit. With one queue for all that is exact, and slow.
 * (An addition: what a cgroup's flows have been given together, it owes as one; accounts.h.)
 *
 * With a queue for each core (hardware queue), each core dispatches its own
 * requests in the order of their start tags, without regard to what the others
 * have, except for two bounds:
 *
 *     throttling   a request whose start tag is T or more ahead of the global
 *                  virtual time waits. So flows are never further apart than
 *                  T and a request, whichever cores they are on.
 *     depth        all cores together have at most D requests in the drive,
 *                  or it would be the drive that decides who is next. Each
 *                  takes one of D slots.
 *
 * A large T lets cores run longer without regard to each other; a small one is
 * fair sooner. T is given in bytes for a flow of the mean weight of those that
 * are active.
 *
 * 2. The least start tag of all cores
 *
 * A Mindicator (minimum-tree.h): a tree of minima with a leaf for each core. A
 * core writes to nodes that others share only if it has the least tag below.
 *
 * 3. Slots
 *
 * A core whose request is done keeps the slot if it wants one. Else it goes to
 * the nearest core that does, in the order of a tree of cores: its neighbour,
 * then the two of the next pair, then the next four, ...; that core is told to
 * run. What nobody wants is in a pool. (The paper has a tree of counters for
 * that; since a word for each core says who wants a slot, none is kept here.)
 * Not in the paper, whose drive takes more than D on any queue: a core gets no
 * more slots than its queue takes requests.
 *
 * 4. Waking
 *
 * A core whose first request is throttled goes to sleep, and notes its tag. The
 * core that moves the global virtual time on compares it with the least of these
 * tags, and wakes the cores that may go on.
 *
 * When to use it: as a yardstick; or where bounds on short-term fairness matter
 * more than CPU time. When not: for tenants with too few requests outstanding to
 * have some staged at all times, since others wait only for what is staged.
 */
#include "../fairlane.h"
#include "../mechanisms/accounts.h"
#include "../mechanisms/minimum-tree.h"

struct mq_queue {
	struct fl_queue q;
	/* All under hwq->lock. */
	struct list_head rqs; /* staged; those of the first come first */
	s64 tag; /* start tag of the first, as a word of the Mindicator */
	u64 price; /* what was added to the flow's finish for it */
	u64 throttled_since_ns; /* 0: not throttled */
	/* In mq_hwq.heap while it has requests. */
	struct mq_queue *left, *right;
	unsigned int rank;
};

struct mq_flow {
	struct fl_flow flow;
	/* Added to by every core that the flow uses, with each request. */
	atomic64_t finish ____cacheline_aligned_in_smp;
	/* Written under dev->lock; a request is charged at the flow's last weight. */
	u64 reciprocal ____cacheline_aligned_in_smp;
	u64 owed; /* how far it was ahead when it became idle, or was last charged or brought up since; under dev->lock */
	struct fl_account account; /* of all below it, together */
};

struct mq_hwq {
	struct fl_hwq hwq;
	/* Under hwq->lock. */
	struct mq_queue *heap; /* by start tag; written under hwq->lock, read by has_work() */
	/*
	 * Set under hwq->lock, taken back there or by whoever wakes this core, by
	 * xchg(). A core that is woken once too often looks in vain.
	 */
	int throttled ____cacheline_aligned_in_smp;
	s64 throttled_tag; /* written before throttled is set */
	int wants; /* a slot; set and cleared under hwq->lock */
	atomic_t slots; /* given to this core and not used yet */
	atomic_t in_drive; /* those with a slot; up under hwq->lock, down by any core */
	struct fl_mind_node nodes[FL_MIND_NODES];
};

#define MQ_ACCOUNT offsetof(struct mq_flow, account)

/* More than that nobody owes, however much metadata it had: words hold differences below 2^55. */
#define MQ_MOST_OWED ((s64)FL_VT_AHEAD)

/* In a request's word: it has a slot; and above that, what its flow's finish was advanced for it. */
#define MQ_HAS_SLOT 1ul
#define MQ_PRICE_SHIFT 1

struct mq_dev {
	struct fl_dev dev;
	struct fl_mind mind;
	s64 limit; /* T in virtual time; written under dev->lock: a stale one is the last one */
	/* Written by dispatches: the last tag, for when nobody waits. A stale one is a bit older. */
	s64 last_tag ____cacheline_aligned_in_smp;
	/* The least tag of the cores that are throttled, or idle; see 4 above. */
	atomic64_t wake_tag ____cacheline_aligned_in_smp;
	atomic_t pool ____cacheline_aligned_in_smp; /* slots; < 0: owed, since the depth was lowered */
	atomic_t wanted; /* cores that want a slot */

	/* Under dev->lock. */
	unsigned int nr_slots;
	u64 aged_ns, system; /* see mq_system() */

	/* Tunables. */
	u64 throttle_bytes, depth, grace_nsec;
	/* Counters. Those of events are written by any core, and may miss one now and then. */
	u64 throttlings, handed_over, active_flows;
};

static inline struct mq_dev *to_mq_dev(struct fl_dev *dev)
{
	return container_of(dev, struct mq_dev, dev);
}

static inline struct mq_hwq *to_mq_hwq(struct fl_hwq *hwq)
{
	return container_of(hwq, struct mq_hwq, hwq);
}

static inline struct mq_flow *to_mq_flow(struct fl_flow *flow)
{
	return container_of(flow, struct mq_flow, flow);
}

static inline struct mq_queue *to_mq_queue(struct fl_queue *queue)
{
	return container_of(queue, struct mq_queue, q);
}

/* ---- A core's queues, in the order of their start tags: a leftist heap ---- */

static bool mq_sooner(const struct mq_queue *a, const struct mq_queue *b)
{
	return fl_mind_before(a->tag, b->tag);
}

/* Merge two heaps: down their right spines, which are short, and back up through @path. */
static struct mq_queue *mq_merge(struct mq_queue *a, struct mq_queue *b)
{
	struct mq_queue *path = NULL, *next, *sub;

	while (a && b) {
		if (mq_sooner(b, a)) {
			next = a;
			a = b;
			b = next;
		}
		next = a->right;
		a->right = path;
		path = a;
		a = next;
	}
	for (sub = a ? a : b; path; sub = a) {
		a = path;
		path = a->right;
		a->right = sub;
		if (!a->left || a->left->rank < sub->rank) {
			a->right = a->left;
			a->left = sub;
		}
		a->rank = a->right ? a->right->rank + 1 : 1;
	}
	return sub;
}

static void mq_push(struct mq_hwq *mhq, struct mq_queue *mq)
{
	mq->left = NULL;
	mq->right = NULL;
	mq->rank = 1;
	WRITE_ONCE(mhq->heap, mq_merge(mhq->heap, mq));
}

static void mq_pop(struct mq_hwq *mhq)
{
	WRITE_ONCE(mhq->heap, mq_merge(mhq->heap->left, mhq->heap->right));
}

/* ---- Start tags and the global virtual time ----------------------------- */

static s64 mq_now(struct mq_dev *md)
{
	s64 least = fl_mind_least(&md->mind);

	return least & FL_MIND_IDLE ? READ_ONCE(md->last_tag) : least;
}

/*
 * That with the upper bits, which words lack. It goes back by T at most; if it seems to go back by more, it has
 * gone on by more than half of what words hold. Under dev->lock.
 */
static u64 mq_system(struct mq_dev *md)
{
	s64 passed = fl_mind_ahead(mq_now(md), fl_mind_word(md->system));

	md->system += passed < -MQ_MOST_OWED ? passed + (1ll << 56) : passed;
	return md->system;
}

/* How far is the next request of @mfl ahead? */
static s64 mq_ahead(struct mq_dev *md, struct mq_flow *mfl)
{
	s64 finish = fl_mind_word(atomic64_read(&mfl->finish));

	return fl_mind_ahead(finish, mq_now(md));
}

static bool mq_may_go(struct mq_dev *md, s64 tag)
{
	return fl_mind_ahead(tag, mq_now(md)) < READ_ONCE(md->limit);
}

static u64 mq_cost(struct mq_queue *mq, struct fl_req *rq)
{
	return fl_cost(&mq->q.hwq->dev->prices, fl_req_op(rq), fl_req_bytes(rq));
}

static u64 mq_price(struct mq_queue *mq, u64 cost)
{
	return fl_vt_advance(cost, READ_ONCE(to_mq_flow(mq->q.flow)->reciprocal));
}

/*
 * Give the first request of @mq its tag. The root's is not too far ahead to go, as others may depend on it; unless
 * the limit becomes less before it goes.
 */
static void mq_tag(struct mq_dev *md, struct mq_queue *mq)
{
	struct mq_flow *mfl = to_mq_flow(mq->q.flow);
	u64 now = fl_mind_vt(mq_now(md)), start;
	s64 old = atomic64_read(&mfl->finish);

	mq->price = mq_price(mq, mq_cost(mq, fl_req_of(mq->rqs.next)));
	do {
		/* As d2_ahead(): a word lacks the upper bits. */
		s64 ahead = fl_mind_ahead(fl_mind_word(old), fl_mind_word(now));

		start = ahead < 0 ? now : (u64)old;
		if (unlikely(!mq->q.flow->parent) && ahead >= (s64)READ_ONCE(md->limit))
			start = now + READ_ONCE(md->limit) - 1;
	} while (!atomic64_try_cmpxchg(&mfl->finish, &old, start + mq->price));
	mq->tag = fl_mind_word(start);
}

/* Tell the others what is first here. */
static void mq_set_leaf(struct mq_dev *md, struct mq_hwq *mhq)
{
	fl_mind_set(&md->mind, mhq->hwq.index, mhq->heap ? mhq->heap->tag : FL_MIND_IDLE);
}

/* ---- Throttling and waking ---------------------------------------------- */

static void mq_note_wake_tag(struct mq_dev *md, s64 tag)
{
	s64 old = atomic64_read(&md->wake_tag);

	do {
		if (!fl_mind_before(tag, old))
			return;
	} while (!atomic64_try_cmpxchg(&md->wake_tag, &old, tag));
}

/* Wake the cores whose first request is no longer too far ahead. */
static void mq_wake(struct mq_dev *md)
{
	s64 tag = atomic64_read(&md->wake_tag);
	unsigned int i;

	while (unlikely(!(tag & FL_MIND_IDLE) && mq_may_go(md, tag))) {
		atomic64_xchg(&md->wake_tag, FL_MIND_IDLE);
		for (i = 0; i < md->dev.nr_hwqs; i++) {
			struct mq_hwq *mhq = to_mq_hwq(md->dev.hwqs[i]);

			if (!READ_ONCE(mhq->throttled))
				continue;
			tag = READ_ONCE(mhq->throttled_tag);
			if (!mq_may_go(md, tag))
				mq_note_wake_tag(md, tag);
			else if (xchg(&mhq->throttled, 0))
				fl_hwq_run(&mhq->hwq);
		}
		/* Whoever moved the time on meanwhile found no tag, or we see the new time. */
		smp_mb();
		tag = atomic64_read(&md->wake_tag);
	}
}

/* The first request here is too far ahead: throttle it. False if it no longer is. */
static bool mq_throttle(struct mq_dev *md, struct mq_hwq *mhq)
{
	struct mq_queue *mq = mhq->heap;

	if (!mq->throttled_since_ns) {
		mq->throttled_since_ns = fl_now_ns();
		WRITE_ONCE(md->throttlings, READ_ONCE(md->throttlings) + 1);
	}
	WRITE_ONCE(mhq->throttled_tag, mq->tag);
	xchg(&mhq->throttled, 1);
	mq_note_wake_tag(md, mq->tag);
	smp_mb(); /* whoever moves the global virtual time on sees the tag, or we see the new time */
	return !mq_may_go(md, mq->tag);
}

/* ---- Slots ---------------------------------------------------------------- */

/* The drive takes no more on the core's queue. If this is stale, the core is passed over once. */
static bool mq_full(struct mq_hwq *mhq)
{
	return mhq->hwq.depth && atomic_read(&mhq->in_drive) >= (int)mhq->hwq.depth;
}

/* The core nearest to @mhq, itself first, that wants a slot and could use it; NULL: none. */
static struct mq_hwq *mq_nearest(struct mq_dev *md, struct mq_hwq *mhq)
{
	unsigned int i, most = 1;

	while (most < md->dev.nr_hwqs)
		most *= 2;
	for (i = 0; i < most && atomic_read(&md->wanted); i++) {
		unsigned int index = mhq->hwq.index ^ i;
		struct mq_hwq *other;

		if (index >= md->dev.nr_hwqs)
			continue;
		other = to_mq_hwq(md->dev.hwqs[index]);
		if (READ_ONCE(other->wants) && !mq_full(other))
			return other;
	}
	return NULL;
}

/* A slot is free: it goes to a core that can use it, or to the pool. */
static void mq_put_slot(struct mq_dev *md, struct mq_hwq *mhq)
{
	struct mq_hwq *other;

	do {
		other = mq_nearest(md, mhq);
		if (other && atomic_read(&md->pool) >= 0) {
			atomic_inc(&other->slots);
			if (other != mhq)
				WRITE_ONCE(md->handed_over, READ_ONCE(md->handed_over) + 1);
			fl_hwq_run(&other->hwq);
			return;
		}
		atomic_inc(&md->pool);
		smp_mb__after_atomic(); /* see mq_take_slot() */
	} while (mq_nearest(md, mhq) && atomic_dec_if_positive(&md->pool) >= 0);
}

static bool mq_try_slot(struct mq_dev *md, struct mq_hwq *mhq)
{
	return atomic_dec_if_positive(&mhq->slots) >= 0 || atomic_dec_if_positive(&md->pool) >= 0;
}

static bool mq_take_slot(struct mq_dev *md, struct mq_hwq *mhq)
{
	if (!mq_full(mhq) && mq_try_slot(md, mhq))
		return true;
	if (!mhq->wants) {
		xchg(&mhq->wants, 1);
		atomic_inc(&md->wanted);
		/* Whoever gives a slot to the pool, or makes room here, sees this; or we see that. */
		smp_mb__after_atomic();
	}
	while (mq_full(mhq) && atomic_dec_if_positive(&mhq->slots) >= 0)
		mq_put_slot(md, mhq);
	return !mq_full(mhq) && mq_try_slot(md, mhq);
}

/* Nothing here may go now: give the slots that this core has to others. */
static void mq_let_go(struct mq_dev *md, struct mq_hwq *mhq)
{
	if (mhq->wants) {
		xchg(&mhq->wants, 0);
		atomic_dec(&md->wanted);
	}
	while (atomic_dec_if_positive(&mhq->slots) >= 0)
		mq_put_slot(md, mhq);
}

/* ---- The hot path --------------------------------------------------------- */

static void mq_activate(struct mq_dev *md, struct fl_flow *flow);

static void mq_insert(struct fl_queue *queue, struct fl_req *rq, bool at_head)
{
	struct mq_dev *md = to_mq_dev(queue->hwq->dev);
	struct mq_hwq *mhq = to_mq_hwq(queue->hwq);
	struct mq_queue *mq = to_mq_queue(queue);
	bool first = list_empty(&mq->rqs);

	if (fl_flow_touch(queue))
		mq_activate(md, queue->flow);
	/* The drive did not take it after all: it pays when it goes again. */
	if (unlikely(*fl_req_priv(rq))) {
		atomic64_add(-(s64)(*fl_req_priv(rq) >> MQ_PRICE_SHIFT),
			     &to_mq_flow(queue->flow)->finish);
		fl_accounts_give_back(queue->flow, MQ_ACCOUNT, mq_cost(mq, rq));
		*fl_req_priv(rq) = 0;
	}
	fl_stage(rq, &mq->rqs, at_head);
	if (!first)
		return;
	mq_tag(md, mq);
	mq_push(mhq, mq);
	if (mhq->heap != mq)
		return;
	xchg(&mhq->throttled, 0);
	mq_set_leaf(md, mhq);
}

static void mq_bring_up(struct mq_dev *md, struct mq_flow *mfl, u64 by);

static void mq_charge(struct fl_queue *queue, enum fl_op op, u32 bytes)
{
	struct mq_flow *mfl = to_mq_flow(queue->flow);
	struct fl_dev *dev = queue->hwq->dev;
	struct mq_dev *md = to_mq_dev(dev);
	u64 cost = fl_cost(&dev->prices, op, bytes);
	u64 by = fl_vt_charge(queue->flow, cost, READ_ONCE(mfl->reciprocal));
	unsigned long flags;

	if (unlikely(!READ_ONCE(queue->flow->busy))) {
		spin_lock_irqsave(&dev->lock, flags);
		if (!queue->flow->busy) {
			mq_bring_up(md, mfl, by);
			by = 0;
		}
		spin_unlock_irqrestore(&dev->lock, flags);
	}
	if (mq_ahead(md, mfl) < MQ_MOST_OWED)
		atomic64_add(by, &mfl->finish);
	fl_accounts_charge(queue->flow, MQ_ACCOUNT, cost);
}

static void mq_unthrottle(struct mq_queue *mq)
{
	WRITE_ONCE(mq->q.throttled_ns, mq->q.throttled_ns + fl_now_ns() - mq->throttled_since_ns);
	mq->throttled_since_ns = 0;
}

/* The first request of @mq, which is the first here, goes to the drive. */
static struct fl_req *mq_take(struct mq_dev *md, struct mq_hwq *mhq, struct mq_queue *mq)
{
	struct fl_req *rq = fl_req_of(mq->rqs.next);
	u64 cost = mq_cost(mq, rq), price = mq_price(mq, cost);

	if (mq->throttled_since_ns)
		mq_unthrottle(mq);
	/* Something was merged with it, or it came before the one that was priced. */
	if (unlikely(price != mq->price))
		atomic64_add((s64)(price - mq->price), &to_mq_flow(mq->q.flow)->finish);
	fl_accounts_charge(mq->q.flow, MQ_ACCOUNT, cost);
	list_del_init(fl_req_node(rq));
	*fl_req_priv(rq) = price << MQ_PRICE_SHIFT | MQ_HAS_SLOT;
	atomic_inc(&mhq->in_drive);
	fl_queue_account(&mq->q, rq, cost);
	WRITE_ONCE(md->last_tag, mq->tag);
	mq_pop(mhq);
	if (!list_empty(&mq->rqs)) {
		mq_tag(md, mq);
		mq_push(mhq, mq);
	}
	mq_set_leaf(md, mhq);
	mq_wake(md);
	return rq;
}

static struct fl_req *mq_dispatch(struct fl_hwq *hwq)
{
	struct mq_dev *md = to_mq_dev(hwq->dev);
	struct mq_hwq *mhq = to_mq_hwq(hwq);
	struct mq_queue *mq = mhq->heap;

	if (!mq || (!mq_may_go(md, mq->tag) && mq_throttle(md, mhq))) {
		mq_let_go(md, mhq);
		return NULL;
	}
	if (READ_ONCE(mhq->throttled))
		xchg(&mhq->throttled, 0);
	if (!mq_take_slot(md, mhq))
		return NULL;
	return mq_take(md, mhq, mq);
}

static bool mq_has_work(struct fl_hwq *hwq)
{
	struct mq_hwq *mhq = to_mq_hwq(hwq);

	if (atomic_read(&mhq->slots) > 0)
		return true; /* to use a slot or to pass it on */
	return READ_ONCE(mhq->heap) && !READ_ONCE(mhq->throttled) &&
	       (!READ_ONCE(mhq->wants) ||
		(atomic_read(&to_mq_dev(hwq->dev)->pool) > 0 && !mq_full(mhq)));
}

static struct list_head *mq_merge_list(struct fl_queue *queue, enum fl_op op)
{
	(void)op;
	return &to_mq_queue(queue)->rqs;
}

/* What it paid stays noted: it may be inserted again. */
static void mq_release(struct fl_queue *queue, struct fl_req *rq)
{
	if (!(*fl_req_priv(rq) & MQ_HAS_SLOT))
		return;
	*fl_req_priv(rq) &= ~MQ_HAS_SLOT;
	/* A full barrier: see mq_take_slot(). */
	atomic_add_return(-1, &to_mq_hwq(queue->hwq)->in_drive);
	mq_put_slot(to_mq_dev(queue->hwq->dev), to_mq_hwq(queue->hwq));
}

/* ---- The slow path -------------------------------------------------------- */

/* An idle flow is as far ahead as it still owes, or those above it do, and by @by more. Under dev->lock. */
static void mq_bring_up(struct mq_dev *md, struct mq_flow *mfl, u64 by)
{
	/* A request may have been charged between that it became idle and that what it owes was noted. */
	u64 owed = fl_vt_still_owed(mq_ahead(md, mfl), mfl->owed + READ_ONCE(md->limit));
	u64 above = fl_accounts_debt(&mfl->flow, MQ_ACCOUNT, mq_system(md));

	mfl->owed = min_t(u64, max_t(u64, owed, above) + by, MQ_MOST_OWED);
	atomic64_set(&mfl->finish, fl_mind_vt(mq_now(md)) + mfl->owed);
}

/* Who has become idle keeps what it owes. Under dev->lock. */
static void mq_age(struct fl_flow *flow)
{
	s64 ahead = mq_ahead(to_mq_dev(flow->dev), to_mq_flow(flow));

	if (!fl_flow_age(flow))
		to_mq_flow(flow)->owed = max_t(s64, ahead, 0);
}

/* Under dev->lock. */
static void mq_update_weight(struct fl_flow *flow)
{
	fl_flow_renew_share(flow);
	WRITE_ONCE(to_mq_flow(flow)->reciprocal, fl_vt_reciprocal(fl_flow_relative_weight(flow)));
	fl_accounts_weigh(flow, MQ_ACCOUNT);
}

/* Under dev->lock. */
static void mq_update_limit(struct mq_dev *md)
{
	u64 mean = fl_vt_reciprocal(fl_flows_mean_weight(&md->dev));

	WRITE_ONCE(md->limit, fl_vt_limit(READ_ONCE(md->throttle_bytes), mean, MQ_MOST_OWED / 4));
}

static void mq_activate(struct mq_dev *md, struct fl_flow *flow)
{
	unsigned long flags;

	spin_lock_irqsave(&md->dev.lock, flags);
	if (!flow->busy) {
		bool first = !md->dev.nr_active;

		if (first) {
			md->aged_ns = fl_now_ns();
			fl_dev_kick(&md->dev);
		}
		mq_bring_up(md, to_mq_flow(flow), 0);
		fl_flow_set_busy(flow, true);
		if (first)
			mq_update_limit(md);
		fl_flow_update_share(flow); /* the others' in the next mq_tick() */
		mq_update_weight(flow);
	}
	spin_unlock_irqrestore(&md->dev.lock, flags);
}

/* Under dev->lock. */
static void mq_set_depth(struct mq_dev *md, unsigned int depth)
{
	int more = (int)depth - (int)md->nr_slots;
	unsigned int i;

	if (!more)
		return;
	md->nr_slots = depth;
	atomic_add(more, &md->pool);
	smp_mb__after_atomic(); /* see mq_take_slot() */
	for (i = 0; i < md->dev.nr_hwqs; i++)
		if (READ_ONCE(to_mq_hwq(md->dev.hwqs[i])->wants))
			fl_hwq_run(md->dev.hwqs[i]);
}

static u64 mq_tick(struct fl_dev *dev)
{
	struct mq_dev *md = to_mq_dev(dev);
	u64 grace = READ_ONCE(md->grace_nsec), next;
	bool due = fl_is_due(dev, &md->aged_ns, grace);
	unsigned long flags;

	if (due) {
		fl_flows_walk(dev, mq_age);
		fl_flows_begin_shares(dev);
		fl_flows_walk(dev, mq_update_weight);
	}
	spin_lock_irqsave(&dev->lock, flags);
	if (due) {
		mq_system(md);
		mq_update_limit(md);
		mq_set_depth(md, READ_ONCE(md->depth));
		mq_wake(md); /* the limit may be larger now */
	}
	md->active_flows = dev->nr_active;
	next = fl_until(md->aged_ns + grace, dev);
	spin_unlock_irqrestore(&dev->lock, flags);
	return next;
}

static void mq_init_dev(struct fl_dev *dev)
{
	struct mq_dev *md = to_mq_dev(dev);

	fl_mind_init(&md->mind, (void **)dev->hwqs, dev->nr_hwqs, offsetof(struct mq_hwq, nodes));
	atomic64_set(&md->wake_tag, FL_MIND_IDLE);
	mq_update_limit(md);
	md->nr_slots = md->depth;
	atomic_set(&md->pool, (int)md->depth);
	md->aged_ns = fl_now_ns();
}

static void mq_init_queue(struct fl_queue *queue)
{
	INIT_LIST_HEAD(&to_mq_queue(queue)->rqs);
}

#define MQ_TUNABLE(...) FL_TUNABLE(struct mq_dev, __VA_ARGS__)
#define MQ_COUNTER(_name, ...) FL_COUNTER(struct mq_dev, _name, _name, __VA_ARGS__)

/* T and D as the D2FQ paper set them. */
static const struct fl_var mq_vars[] = {
	MQ_TUNABLE(throttle_bytes, "bytes", 512, 1ull << 32, 45 << 10,
		   "a flow of mean weight may be so far ahead of the others (T)"),
	MQ_TUNABLE(depth, "requests", 1, 1 << 20, 64, "that may be in the drive (D)"),
	MQ_TUNABLE(grace_nsec, "ns", NSEC_PER_MSEC, 10ull * NSEC_PER_SEC, 100ull * NSEC_PER_MSEC,
		   "a flow that brought nothing for so long is idle; weights and limits are looked at as often"),
	MQ_COUNTER(throttlings, "times", "a request was too far ahead to go"),
	MQ_COUNTER(handed_over, "slots", "from one hardware queue to another"),
	MQ_COUNTER(active_flows, "flows", "that are not idle"),
	{}
};

const struct fl_sched fl_mqfq = {
	.name = "mqfq",
	.dev_size = sizeof(struct mq_dev),
	.hwq_size = sizeof(struct mq_hwq),
	.flow_size = sizeof(struct mq_flow),
	.queue_size = sizeof(struct mq_queue),
	.init_dev = mq_init_dev,
	.init_queue = mq_init_queue,
	.insert = mq_insert,
	.dispatch = mq_dispatch,
	.charge = mq_charge,
	.has_work = mq_has_work,
	.merge_list = mq_merge_list,
	.release = mq_release,
	.tick = mq_tick,
	.vars = mq_vars,
};
