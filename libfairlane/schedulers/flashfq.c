// SPDX-License-Identifier: GPL-2.0-only OR MIT
/*
 * FlashFQ: a drive shared by virtual time, with one list under one lock.
 *
 * The baseline that mqFlashFQ (mqflashfq.c) is compared with: "FlashFQ: A Fair Queueing I/O
 * Scheduler for Flash-Based SSDs" (Shen, Park; USENIX ATC 2013) as Kang and Kim (JCSE 17(2), 2023)
 * describe it (II-B) and extend it to many hardware queues (IV-B), in the straightforward way: with
 * a global lock.
 *
 * 1. SFQ(D)
 *
 * Each flow (cgroup) has a virtual time. Dispatching a request advances it by the request's cost
 * divided by the flow's weight; the value before is the request's start tag. Up to D requests (the
 * tunable depth) are in service. When there is room for another, it is the one with the smallest
 * start tag, wherever it is: the first request of the first flow on a list that is sorted by
 * virtual time.
 *
 *     D = 2, A and B of equal shares, costs of A 10, of B 30:
 *     tags of A 0 10 20 30 ..., of B 0 30 ...; the order is A0 B0 A10 A20 B30 A30
 *
 * 2. System virtual time
 *
 * A request that arrives at an idle flow has the system virtual time as its start tag, or the
 * finish tag of the flow's last request if that is later. The tunable `max` says which system
 * virtual time: Min-SFQ(D), 0, takes the smallest start tag of all requests in service, Max-SFQ(D),
 * 1, the largest. Min advances slowly: a burst from a flow that comes back is served before all
 * others. Max is fast: who comes back has lost up to what the others are apart. With nothing in
 * service it is the least virtual time of the flows that have something queued or are waited for
 * (see 3); if there is none either, the largest finish tag so far, as in SFQ. So a new busy period owes nobody for the one before:
 *
 *     A alone has come to 1000, and all are idle; B comes, then A comes back.
 *     B begins at 1000, too. (At its own 0, B would be served alone up to 1000.)
 *
 * 3. Throttled dispatch, and anticipation
 *
 * Start tags decide only among requests that wait. On a drive that takes D at once, a flow with few
 * outstanding never waits, and so whoever has many takes all that the drive can do beside it,
 * however far ahead. FlashFQ throttles: a request whose start tag is throttle_nsec or more ahead of
 * the virtual time of the flow that is furthest behind, of all that are active, is held back, even
 * if that leaves the drive idle. And it anticipates: a flow that waits for each request before it
 * sends the next is idle in between, but only in appearance. It stays active for anticipate_nsec
 * after its last request.
 *
 * The time in which others wait for a flow that has no request is its own: when it sends one, it is
 * charged for that, as if the drive had worked for it alone, but no further than to the first of
 * those that wait. So whoever pauses holds others to its share of the drive's time, not to the
 * little that it asks for:
 *
 *     A of weight 1000 sends a request of 100 us each ms, B of weight 50 one
 *     of 100 us each 7 ms. Of each ms A has 0.1 and is charged 0.9, so B may
 *     have 50 us of it, and wants 14. (By requests alone it would get 5.)
 *
 * That is fair to flows with few requests at the price of the drive's parallelism: nobody gets more
 * than such a flow can take, in proportion to the shares. (docs/using.md has by how much. 0 turns
 * either off.) Of the original paper we had no more than the idea of both, so how far is too far,
 * how long to wait, and who pays for that are our choice. throttle_nsec is the drive's time, by the
 * costs below, for a flow of mean share: with 10 ms, ten flows that get a second of it together are
 * a tenth of their due apart.
 *
 * 4. Costs
 *
 * The cost of a request is the time that the drive takes for it when it has nothing else to do:
 * measured for 4 KiB and 128 KiB, reads and writes (four tunables), linear in between and beyond;
 * smaller ones cost as much as 4 KiB. Such times say little about what a request takes from a drive
 * that does many things at once. That is why mqFlashFQ calibrates prices.
 *
 * 5. Many hardware queues
 *
 * A hardware queue dispatches only what was inserted there. If the first flow on the list has
 * nothing on the hardware queue that dispatches, another one where it has something is asked to
 * dispatch, and a place in service is kept for that. Everything happens under dev->lock: arrival,
 * dispatch, completion.
 *
 * 6. The root
 *
 * It sends what others may wait for: metadata, swapping. Who does cannot be known. So its requests
 * go beside the D of the tenants, each hardware queue's in turn with theirs, and it has no virtual
 * time that anybody waits for, or begins at.
 *
 * When to use it: to compare. When not: on a fast drive with many cores.
 */
#include "../fairlane.h"
#include "../mechanisms/accounts.h"

#define FF_MAX_DEPTH 1024
#define FF_DEPTH 64

/* A flow that had nothing for one to two of these no longer counts in the others' shares. */
#define FF_AGE_NS (10ull * NSEC_PER_MSEC)
#define FF_THROTTLE_NS (10ull * NSEC_PER_MSEC)
#define FF_ANTICIPATE_NS (2ull * NSEC_PER_MSEC)
#define FF_ACCOUNT offsetof(struct ff_flow, account)

/* A request's word: 1 and its place while it is in service, after that */
#define FF_CHARGED (~0ul)

struct ff_queue {
	struct fl_queue q;
	struct list_head rqs; /* staged, in order of arrival; under hwq->lock */
	unsigned int staged; /* under dev->lock; the root's under hwq->lock, and read by has_work() */
};

/* All under dev->lock. */
struct ff_flow {
	struct fl_flow flow;
	struct list_head node; /* in ff_dev.backlogged while anything is staged, or in waiting */
	u64 vt;
	u64 reciprocal; /* of the weight */
	unsigned int staged, in_service;
	u64 at; /* where it has something staged: a bit for each hardware queue, see ff_bit() */
	u64 idle_ns; /* when both became 0 */
	struct fl_account account; /* of all below it, together: an addition */
};

struct ff_hwq {
	struct fl_hwq hwq;
	/* Written under dev->lock; read by has_work(), which may then be asked once too often. */
	unsigned int staged;
	bool asked; /* to dispatch: a place in service is kept for it */
	bool root_went; /* the last one that it dispatched was the root's; under hwq->lock */
};

struct ff_dev {
	struct fl_dev dev;
	struct ff_flow *root; /* does not change */
	/* All under dev->lock, except that has_work() reads the first two. */
	u64 in_service; /* and counter */
	unsigned int kept; /* places in service */
	unsigned int askable; /* hardware queues with something staged that are not asked */
	u64 askable_at; /* a bit for each of them */
	/* ff_flow.node, by vt: with requests staged; with all in service, or anticipated to have some. */
	struct list_head backlogged, waiting;
	u64 finish; /* the largest finish tag of all that was served */
	u64 limit; /* throttle_nsec in virtual time; 0: none */
	bool throttled; /* the last look at backlogged ended at a flow too far ahead */
	u64 tags[FF_MAX_DEPTH]; /* start tags of requests in service */
	bool used[FF_MAX_DEPTH];
	unsigned int free[FF_MAX_DEPTH], nr_free; /* places */
	unsigned int next_hwq; /* where to look first for one to ask */
	u64 aged_ns;
	/* Tunables. */
	u64 depth, max, throttle_nsec, anticipate_nsec;
	u64 read_4k_nsec, read_128k_nsec, write_4k_nsec, write_128k_nsec;
	/* Counters. */
	u64 asks, throttlings;
};

static inline struct ff_dev *to_ff_dev(struct fl_dev *dev)
{
	return container_of(dev, struct ff_dev, dev);
}

static inline struct ff_hwq *to_ff_hwq(struct fl_hwq *hwq)
{
	return container_of(hwq, struct ff_hwq, hwq);
}

static inline struct ff_flow *to_ff_flow(struct fl_flow *flow)
{
	return container_of(flow, struct ff_flow, flow);
}

static inline struct ff_queue *to_ff_queue(struct fl_queue *queue)
{
	return container_of(queue, struct ff_queue, q);
}

/* NULL: nothing of @ffl is staged there, nor ever was. */
static inline struct ff_queue *ff_flow_queue(struct ff_flow *ffl, unsigned int index)
{
	struct fl_queue *queue = fl_flow_queue(&ffl->flow, index);

	return queue ? to_ff_queue(queue) : NULL;
}

static void ff_ask_on(struct ff_dev *ff);

/* In a set of hardware queues, which says nothing if there are more of them than bits. */
static inline u64 ff_bit(const struct fl_hwq *hwq)
{
	return 1ull << hwq->index % 64;
}

/* ---- Costs and virtual time ------------------------------------------------ */

/* ns of the drive's time, 1 to FL_COST_MAX: two seconds. */
static u64 ff_cost(struct ff_dev *ff, enum fl_op op, u32 bytes)
{
	u64 small = READ_ONCE(ff->read_4k_nsec), large = READ_ONCE(ff->read_128k_nsec);

	if (op != FL_READ) {
		small = READ_ONCE(ff->write_4k_nsec);
		large = READ_ONCE(ff->write_128k_nsec);
	}
	if (op == FL_DISCARD) /* as in prices.h */
		bytes /= FL_DISCARD_PART;
	if (op == FL_OTHER || bytes <= 4096 || large <= small)
		return small;
	small += div64_u64((large - small) * (bytes - 4096), 124 << 10);
	return min_t(u64, small, FL_COST_MAX);
}

/* Without requests, and no longer anticipated to have any. */
static bool ff_expired(struct ff_dev *ff, struct ff_flow *ffl)
{
	return !ffl->staged && !ffl->in_service &&
	       fl_now_ns() - ffl->idle_ns >= READ_ONCE(ff->anticipate_nsec);
}

static struct ff_flow *ff_first(struct list_head *flows)
{
	return list_empty(flows) ? NULL : list_entry(flows->next, struct ff_flow, node);
}

/* The active tenant that is furthest behind; NULL: none is. Under dev->lock. */
static struct ff_flow *ff_last(struct ff_dev *ff)
{
	struct ff_flow *staged = ff_first(&ff->backlogged), *waiting;

	while ((waiting = ff_first(&ff->waiting)) && ff_expired(ff, waiting))
		list_del_init(&waiting->node);
	if (!staged || !waiting)
		return staged ? staged : waiting;
	return fl_vt_before(waiting->vt, staged->vt) ? waiting : staged;
}

/* Min- or Max-SFQ(D)'s; see 2 above. Under dev->lock. */
static u64 ff_system_vt(struct ff_dev *ff)
{
	bool max = READ_ONCE(ff->max), found = false;
	struct ff_flow *last;
	u64 vt = ff->finish;
	unsigned int i;

	for (i = 0; ff->in_service && i < FF_MAX_DEPTH; i++) {
		if (!ff->used[i])
			continue;
		if (!found || (max ? fl_vt_before(vt, ff->tags[i]) : fl_vt_before(ff->tags[i], vt)))
			vt = ff->tags[i];
		found = true;
	}
	last = found ? NULL : ff_last(ff);
	return last ? last->vt : vt;
}

/* Put @ffl, which is on no list, where it belongs: it has just advanced, or just come. */
static void ff_sort_in(struct ff_dev *ff, struct ff_flow *ffl)
{
	struct list_head *list = ffl->staged ? &ff->backlogged : &ff->waiting, *pos = list->prev;

	while (pos != list && fl_vt_before(ffl->vt, list_entry(pos, struct ff_flow, node)->vt))
		pos = pos->prev;
	list_add(&ffl->node, pos);
}

/* Is @ffl too far ahead of @last to go on? */
static bool ff_is_ahead(struct ff_dev *ff, struct ff_flow *ffl, struct ff_flow *last)
{
	return ff->limit && ffl->vt - last->vt >= ff->limit;
}

static bool ff_throttle(struct ff_dev *ff, struct ff_flow *ffl, struct ff_flow *last)
{
	if (!ff_is_ahead(ff, ffl, last))
		return false;
	ff->throttled = true;
	return true;
}

static void ff_update_weight(struct fl_flow *flow)
{
	fl_flow_renew_share(flow);
	to_ff_flow(flow)->reciprocal = fl_vt_reciprocal(fl_flow_relative_weight(flow));
	fl_accounts_weigh(flow, FF_ACCOUNT);
}

static void ff_update_limit(struct ff_dev *ff)
{
	u64 throttle = READ_ONCE(ff->throttle_nsec);

	ff->limit = throttle ? fl_vt_advance(throttle, fl_vt_reciprocal(fl_flows_mean_weight(&ff->dev))) : 0;
}

/* The first request of a flow that is idle. The others' shares are computed by the tick. */
static void ff_activate(struct ff_dev *ff, struct fl_flow *flow)
{
	fl_flow_set_busy(flow, true);
	fl_flow_update_share(flow);
	ff_update_weight(flow);
	ff_update_limit(ff);
}

/* @fhq has so many staged, and is asked to dispatch, or not. Under dev->lock. */
static void ff_set(struct ff_dev *ff, struct ff_hwq *fhq, unsigned int staged, bool asked)
{
	ff->askable -= fhq->staged && !fhq->asked;
	ff->askable += staged && !asked;
	if (staged && !asked)
		ff->askable_at |= ff_bit(&fhq->hwq);
	else
		ff->askable_at &= ~ff_bit(&fhq->hwq);
	WRITE_ONCE(ff->kept, ff->kept + asked - fhq->asked);
	WRITE_ONCE(fhq->staged, staged);
	WRITE_ONCE(fhq->asked, asked);
}

/* ---- Arrival ------------------------------------------------------------------ */

/* @ffl is at @vt now. Under dev->lock. */
static void ff_move(struct ff_dev *ff, struct ff_flow *ffl, u64 vt)
{
	ffl->vt = vt;
	if (!list_empty(&ffl->node)) {
		list_del_init(&ffl->node);
		ff_sort_in(ff, ffl);
	}
}

/* The drive would not take @rq after all: it is charged when it goes again. Under dev->lock. */
static void ff_give_back(struct ff_dev *ff, struct ff_flow *ffl, struct fl_req *rq)
{
	u64 cost = ff_cost(ff, fl_req_op(rq), fl_req_bytes(rq));

	*fl_req_priv(rq) = 0;
	fl_accounts_give_back(&ffl->flow, FF_ACCOUNT, cost);
	ff_move(ff, ffl, ffl->vt - fl_vt_advance(cost, ffl->reciprocal));
}

static void ff_charge(struct fl_queue *queue, enum fl_op op, u32 bytes)
{
	struct ff_dev *ff = to_ff_dev(queue->hwq->dev);
	struct ff_flow *ffl = to_ff_flow(queue->flow);
	u64 cost = ff_cost(ff, op, bytes);
	unsigned long flags;

	spin_lock_irqsave(&ff->dev.lock, flags);
	fl_accounts_charge(&ffl->flow, FF_ACCOUNT, cost);
	if (fl_vt_before(ffl->vt, ff->finish + FL_VT_AHEAD / 2))
		ff_move(ff, ffl, ffl->vt + fl_vt_charge(queue->flow, cost, ffl->reciprocal));
	spin_unlock_irqrestore(&ff->dev.lock, flags);
}

/* Where @ffl, which was anticipated, goes on: see 3 above. */
static u64 ff_anticipated_vt(struct ff_dev *ff, struct ff_flow *ffl)
{
	struct ff_flow *first = ff_first(&ff->backlogged);
	u64 vt = ffl->vt;

	if (!first || ffl->in_service)
		return vt;
	vt += fl_vt_advance(fl_now_ns() - ffl->idle_ns, ffl->reciprocal);
	return fl_vt_before(vt, first->vt) ? vt : first->vt;
}

/* @ffl has its first request to be staged. Under dev->lock. */
static void ff_come(struct ff_dev *ff, struct ff_flow *ffl)
{
	bool away = list_empty(&ffl->node) || ff_expired(ff, ffl);
	u64 vt = away ? ff_system_vt(ff) : ff_anticipated_vt(ff, ffl);

	list_del_init(&ffl->node);
	vt += away ? fl_accounts_debt(&ffl->flow, FF_ACCOUNT, vt) : 0;
	ffl->vt = fl_vt_later(ffl->vt, vt);
	ffl->staged = 1;
	ff_sort_in(ff, ffl);
}

static void ff_insert(struct fl_queue *queue, struct fl_req *rq, bool at_head)
{
	struct ff_dev *ff = to_ff_dev(queue->hwq->dev);
	struct ff_hwq *fhq = to_ff_hwq(queue->hwq);
	struct ff_queue *fq = to_ff_queue(queue);
	struct ff_flow *ffl = to_ff_flow(queue->flow);
	bool activate = fl_flow_touch(queue), kick = false;
	unsigned long flags;

	fl_stage(rq, &fq->rqs, at_head);
	spin_lock_irqsave(&ff->dev.lock, flags);
	if (activate) {
		kick = !ff->dev.nr_active;
		ff_activate(ff, queue->flow);
	}
	if (ffl == ff->root) {
		WRITE_ONCE(fq->staged, fq->staged + 1);
		goto out;
	}
	if (unlikely(*fl_req_priv(rq) == FF_CHARGED))
		ff_give_back(ff, ffl, rq);
	if (!ffl->staged)
		ff_come(ff, ffl);
	else
		ffl->staged++;
	fq->staged++;
	ffl->at |= ff_bit(queue->hwq);
	ff_set(ff, fhq, fhq->staged + 1, fhq->asked);
	if (ff->throttled && ffl->staged == 1) /* all may have waited for it */
		ff_ask_on(ff);
out:
	spin_unlock_irqrestore(&ff->dev.lock, flags);
	if (kick)
		fl_dev_kick(&ff->dev);
}

static struct list_head *ff_merge_list(struct fl_queue *queue, enum fl_op op)
{
	(void)op;
	return &to_ff_queue(queue)->rqs;
}

/* ---- Dispatch -------------------------------------------------------------------- */

static bool ff_room(struct ff_dev *ff)
{
	return READ_ONCE(ff->in_service) + READ_ONCE(ff->kept) < READ_ONCE(ff->depth);
}

/* Ask a hardware queue to dispatch that has requests of @ffl and was not asked yet. False: none. */
static bool ff_ask(struct ff_dev *ff, struct ff_flow *ffl)
{
	unsigned int nr = ff->dev.nr_hwqs, index = ff->next_hwq, left;

	/* With many flows most have nothing there: each would be looked for everywhere. */
	if (nr <= 64 && !(ff->askable_at & ffl->at))
		return false;
	for (left = ff->askable; left; index = index + 1 < nr ? index + 1 : 0) {
		struct ff_hwq *fhq = to_ff_hwq(ff->dev.hwqs[index]);
		struct ff_queue *fq;

		if (fhq->asked || !fhq->staged)
			continue;
		left--;
		fq = ff_flow_queue(ffl, index);
		if (!fq || !fq->staged)
			continue;
		ff_set(ff, fhq, fhq->staged, true);
		ff->next_hwq = index + 1 < nr ? index + 1 : 0;
		ff->asks++;
		fl_hwq_run(&fhq->hwq);
		return true;
	}
	return false;
}

/*
 * The first flow in order that has something on @fhq, if it may go. For each one
 * before it, a hardware queue that has its requests is asked. Under dev->lock.
 */
static struct ff_queue *ff_next(struct ff_dev *ff, struct ff_hwq *fhq)
{
	struct ff_flow *last = ff_last(ff), *ffl;
	bool self = fhq->staged; /* it counts as askable */

	list_for_each_entry(ffl, &ff->backlogged, node) {
		struct ff_queue *fq = ff_flow_queue(ffl, fhq->hwq.index);

		if (!ff_room(ff) || ff_throttle(ff, ffl, last))
			return NULL;
		if (fq && fq->staged)
			return fq;
		if (ff->askable > self)
			ff_ask(ff, ffl);
	}
	return NULL;
}

/*
 * Places in service are free, or the flow that is furthest behind moved on: ask
 * where the first flows in order have requests. Under dev->lock.
 */
static void ff_ask_on(struct ff_dev *ff)
{
	struct ff_flow *last = ff_last(ff), *ffl;

	ff->throttled = false;
	list_for_each_entry(ffl, &ff->backlogged, node) {
		if (!ff->askable) { /* is the one that is furthest ahead too far? */
			if (ff_room(ff))
				ff_throttle(ff, list_entry(ff->backlogged.prev, struct ff_flow, node), last);
			return;
		}
		do
			if (!ff_room(ff) || ff_throttle(ff, ffl, last))
				return;
		while (ff_ask(ff, ffl));
	}
}

/* All that is queued is held back, and nothing is done that could change that: only time can. */
static void ff_await(struct ff_dev *ff)
{
	if (!ff->throttled || ff->in_service || ff->kept)
		return;
	ff->throttlings++;
	fl_dev_kick(&ff->dev);
}

/* @rq goes into service. Under dev->lock. */
static void ff_start(struct ff_dev *ff, struct ff_hwq *fhq, struct ff_queue *fq, struct fl_req *rq)
{
	struct ff_flow *ffl = to_ff_flow(fq->q.flow);
	u64 cost = ff_cost(ff, fl_req_op(rq), fl_req_bytes(rq));
	unsigned int place = ff->free[--ff->nr_free];

	ff->used[place] = true;
	ff->tags[place] = ffl->vt;
	*fl_req_priv(rq) = place + 1;
	ffl->staged--;
	fl_accounts_charge(&ffl->flow, FF_ACCOUNT, cost);
	ff_move(ff, ffl, ffl->vt + fl_vt_advance(cost, ffl->reciprocal));
	if (fl_vt_before(ff->finish, ffl->vt))
		ff->finish = ffl->vt;
	if (!--fq->staged)
		ffl->at &= ~ff_bit(&fhq->hwq);
	ff_set(ff, fhq, fhq->staged - 1, fhq->asked);
	ffl->in_service++;
	WRITE_ONCE(ff->in_service, ff->in_service + 1);
}

static bool ff_root_has(struct ff_dev *ff, const struct fl_hwq *hwq)
{
	struct ff_queue *fq = ff_flow_queue(ff->root, hwq->index);

	return fq && READ_ONCE(fq->staged);
}

/* The root's and a tenant's in turn, if both may go; see 6 above. */
static struct fl_req *ff_dispatch(struct fl_hwq *hwq)
{
	struct ff_dev *ff = to_ff_dev(hwq->dev);
	struct ff_hwq *fhq = to_ff_hwq(hwq);
	struct ff_queue *fq = NULL;
	struct fl_req *rq;
	unsigned long flags;

	if (!ff_root_has(ff, hwq) || fhq->root_went) {
		spin_lock_irqsave(&ff->dev.lock, flags);
		if (fhq->asked)
			ff_set(ff, fhq, fhq->staged, false);
		fq = ff_next(ff, fhq);
		if (fq) {
			ff_start(ff, fhq, fq, fl_req_of(fq->rqs.next));
			if (ff->throttled)
				ff_ask_on(ff);
		}
		ff_await(ff);
		spin_unlock_irqrestore(&ff->dev.lock, flags);
	}
	fhq->root_went = !fq && ff_root_has(ff, hwq);
	if (fhq->root_went) {
		fq = ff_flow_queue(ff->root, hwq->index);
		WRITE_ONCE(fq->staged, fq->staged - 1);
	}
	if (!fq)
		return NULL;
	rq = fl_req_of(fq->rqs.next);
	list_del_init(fl_req_node(rq));
	fl_queue_account(&fq->q, rq, ff_cost(ff, fl_req_op(rq), fl_req_bytes(rq)));
	return rq;
}

static bool ff_has_work(struct fl_hwq *hwq)
{
	struct ff_hwq *fhq = to_ff_hwq(hwq);
	struct ff_dev *ff = to_ff_dev(hwq->dev);

	return READ_ONCE(fhq->asked) || (READ_ONCE(fhq->staged) && ff_room(ff)) || ff_root_has(ff, hwq);
}

/* ---- Completion --------------------------------------------------------------------- */

static void ff_release(struct fl_queue *queue, struct fl_req *rq)
{
	struct ff_dev *ff = to_ff_dev(queue->hwq->dev);
	struct ff_flow *ffl = to_ff_flow(queue->flow);
	unsigned long place = *fl_req_priv(rq), flags;

	if (!place || place == FF_CHARGED)
		return;
	*fl_req_priv(rq) = FF_CHARGED;
	spin_lock_irqsave(&ff->dev.lock, flags);
	ff->used[--place] = false;
	ff->free[ff->nr_free++] = place;
	if (!--ffl->in_service && !ffl->staged)
		ffl->idle_ns = fl_now_ns();
	WRITE_ONCE(ff->in_service, ff->in_service - 1);
	ff_ask_on(ff);
	ff_await(ff);
	spin_unlock_irqrestore(&ff->dev.lock, flags);
}

/* ---- Setting up ------------------------------------------------------------------------ */

/* Forget those that are no longer anticipated. */
static void ff_prune(struct ff_dev *ff)
{
	struct ff_flow *ffl, *next;

	list_for_each_entry_safe(ffl, next, &ff->waiting, node)
		if (ff_expired(ff, ffl))
			list_del_init(&ffl->node);
}

static u64 ff_tick(struct fl_dev *dev)
{
	struct ff_dev *ff = to_ff_dev(dev);
	u64 now, next, anticipated;
	struct ff_flow *last;
	unsigned long flags;

	if (fl_is_due(dev, &ff->aged_ns, FF_AGE_NS)) {
		fl_flows_age(dev);
		fl_flows_begin_shares(dev);
		fl_flows_walk(dev, ff_update_weight);
	}
	spin_lock_irqsave(&dev->lock, flags);
	now = fl_now_ns();
	ff_update_limit(ff);
	ff_prune(ff);
	ff_ask_on(ff);
	next = fl_until(ff->aged_ns + FF_AGE_NS, dev);
	last = ff_last(ff);
	if (ff->throttled && !last->staged && !last->in_service) {
		anticipated = last->idle_ns + READ_ONCE(ff->anticipate_nsec) - now;
		next = min_t(u64, next, anticipated);
	}
	spin_unlock_irqrestore(&dev->lock, flags);
	return next;
}

static void ff_init_dev(struct fl_dev *dev)
{
	struct ff_dev *ff = to_ff_dev(dev);

	INIT_LIST_HEAD(&ff->backlogged);
	INIT_LIST_HEAD(&ff->waiting);
	for (ff->nr_free = 0; ff->nr_free < FF_MAX_DEPTH; ff->nr_free++)
		ff->free[ff->nr_free] = FF_MAX_DEPTH - 1 - ff->nr_free;
}

static void ff_init_flow(struct fl_flow *flow)
{
	struct ff_flow *ffl = to_ff_flow(flow);

	if (!flow->parent)
		to_ff_dev(flow->dev)->root = ffl;
	INIT_LIST_HEAD(&ffl->node);
	ffl->reciprocal = fl_vt_reciprocal(FL_SHARE_ONE);
}

static void ff_init_queue(struct fl_queue *queue)
{
	INIT_LIST_HEAD(&to_ff_queue(queue)->rqs);
}

/* It has no requests left, but may still be anticipated to bring more. */
static void ff_exit_flow(struct fl_flow *flow)
{
	list_del_init(&to_ff_flow(flow)->node);
}

#define FF_TUNABLE(...) FL_TUNABLE(struct ff_dev, __VA_ARGS__)
#define FF_COUNTER(_name, ...) FL_COUNTER(struct ff_dev, _name, _name, __VA_ARGS__)

static const struct fl_var ff_vars[] = {
	FF_TUNABLE(depth, "requests", 1, FF_MAX_DEPTH, FF_DEPTH, "D: requests in service"),
	FF_TUNABLE(max, "bool", 0, 1, 0, "0: Min-SFQ(D); 1: Max-SFQ(D)"),
	FF_TUNABLE(throttle_nsec, "ns", 0, 10 * NSEC_PER_SEC, FF_THROTTLE_NS,
		   "a flow of mean share may be so far ahead of the last one; 0: any"),
	FF_TUNABLE(anticipate_nsec, "ns", 0, NSEC_PER_SEC, FF_ANTICIPATE_NS,
		   "a flow without requests counts as active for so long"),
	/* What datasheets of the paper's time say; to be set from a measurement. */
	FF_TUNABLE(read_4k_nsec, "ns", 1, NSEC_PER_SEC, 90 * NSEC_PER_USEC, "a 4 KiB read takes, alone"),
	FF_TUNABLE(read_128k_nsec, "ns", 1, NSEC_PER_SEC, 220 * NSEC_PER_USEC, "a 128 KiB read takes, alone"),
	FF_TUNABLE(write_4k_nsec, "ns", 1, NSEC_PER_SEC, 25 * NSEC_PER_USEC, "a 4 KiB write takes, alone"),
	FF_TUNABLE(write_128k_nsec, "ns", 1, NSEC_PER_SEC, 120 * NSEC_PER_USEC, "a 128 KiB write takes, alone"),
	FF_COUNTER(in_service, "requests", "now"),
	FF_COUNTER(asks, "times", "that another hardware queue was asked to dispatch"),
	FF_COUNTER(throttlings, "times", "that the drive was idle while all waited for the last flow"),
	{}
};

const struct fl_sched fl_flashfq = {
	.name = "flashfq",
	.dev_size = sizeof(struct ff_dev),
	.hwq_size = sizeof(struct ff_hwq),
	.flow_size = sizeof(struct ff_flow),
	.queue_size = sizeof(struct ff_queue),
	.init_dev = ff_init_dev,
	.init_flow = ff_init_flow,
	.exit_flow = ff_exit_flow,
	.init_queue = ff_init_queue,
	.insert = ff_insert,
	.dispatch = ff_dispatch,
	.has_work = ff_has_work,
	.charge = ff_charge,
	.merge_list = ff_merge_list,
	.release = ff_release,
	.tick = ff_tick,
	.vars = ff_vars,
};
