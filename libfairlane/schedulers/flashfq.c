// SPDX-License-Identifier: GPL-2.0-only OR MIT
/*
 * FlashFQ: a drive shared by virtual time, with one list under one lock.
 *
 * The baseline that mqFlashFQ (mqflashfq.c) is compared with: "FlashFQ: A Fair
 * Queueing I/O Scheduler for Flash-Based SSDs" (Shen, Park; USENIX ATC 2013) as
 * Kang and Kim (JCSE 17(2), 2023, II-B and V) describe it and extend it to many
 * hardware queues, in the straightforward way: with a global lock.
 *
 * 1. SFQ(D)
 *
 * Each flow (cgroup) has a virtual time. Dispatching a request advances it by the
 * request's cost divided by the flow's share; the value before is the
 * request's start tag. Up to D requests (the tunable depth) are in service.
 * When there is room for another, it is the one with the smallest start tag,
 * wherever it is: the first request of the first flow on a list that is
 * sorted by virtual time.
 *
 *     D = 2, A and B of equal shares, costs of A 10, of B 30:
 *     tags of A 0 10 20 30 ..., of B 0 30 ...; the order is A0 B0 A10 A20 A30 B30
 *
 * 2. System virtual time
 *
 * A request that arrives at a flow that has nothing queued or in service has
 * the system virtual time as its start tag. The tunable `max` says which:
 * Min-SFQ(D), 0, takes the smallest start tag of all requests in service,
 * Max-SFQ(D), 1, the largest. Min advances slowly: a burst from a flow that
 * comes back is served before all others. Max is fast: who comes back has lost
 * up to what the others are apart.
 *
 * 3. Costs
 *
 * The cost of a request is the time that the drive takes for it when it has
 * nothing else to do: measured for 4 KiB and 128 KiB, reads and writes (four
 * tunables), linear in between and beyond; smaller ones cost as much as 4 KiB.
 * Such times say little about what a request takes from a drive that does many
 * things at once. That is why mqFlashFQ calibrates prices.
 *
 * 4. Many hardware queues
 *
 * A hardware queue dispatches only what was inserted there. If the first flow on
 * the list has nothing on the hardware queue that dispatches, another one where
 * it has something is asked to dispatch, and a place in service is kept for that.
 * Everything happens under dev->lock: arrival, dispatch, completion.
 *
 * When to use it: to compare. When not: on a fast drive with many cores.
 */
#include "../fairlane.h"
#include "../mechanisms/virtual-time.h"

#define FF_MAX_DEPTH 1024
#define FF_DEPTH 64

/* A flow that had nothing for one to two of these no longer counts in the others' shares. */
#define FF_AGE_NS (10ull * NSEC_PER_MSEC)

struct ff_queue {
	struct fl_queue q;
	struct list_head rqs; /* staged, in order of arrival; under hwq->lock */
	unsigned int staged; /* under dev->lock */
};

/* All under dev->lock. */
struct ff_flow {
	struct fl_flow flow;
	struct list_head node; /* in ff_dev.backlogged, while anything is staged */
	u64 vt;
	u64 reciprocal; /* of the share */
	unsigned int staged, in_service;
};

struct ff_hwq {
	struct fl_hwq hwq;
	/* Written under dev->lock; read by has_work(), which may then be asked once too often. */
	unsigned int staged;
	bool asked; /* to dispatch: a place in service is kept for it */
};

struct ff_dev {
	struct fl_dev dev;
	/* All under dev->lock, except that has_work() reads the first two. */
	u64 in_service; /* and counter */
	unsigned int kept; /* places in service */
	struct list_head backlogged; /* ff_flow.node, by vt */
	u64 tags[FF_MAX_DEPTH]; /* start tags of requests in service */
	bool used[FF_MAX_DEPTH];
	unsigned int free[FF_MAX_DEPTH], nr_free; /* places */
	unsigned int next_hwq; /* where to look first for one to ask */
	bool ticking;
	/* Tunables. */
	u64 depth, max, read_4k_nsec, read_128k_nsec, write_4k_nsec, write_128k_nsec;
	/* Counters. */
	u64 asks;
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

static inline struct ff_queue *ff_flow_queue(struct ff_flow *ffl, unsigned int index)
{
	return (struct ff_queue *)ffl->flow.queues + index;
}

/* ---- Costs and virtual time ------------------------------------------------ */

/* ns of the drive's time, and not less than 1. */
static u64 ff_cost(struct ff_dev *ff, enum fl_op op, u32 bytes)
{
	u64 small = READ_ONCE(ff->read_4k_nsec), large = READ_ONCE(ff->read_128k_nsec);

	if (op != FL_READ) {
		small = READ_ONCE(ff->write_4k_nsec);
		large = READ_ONCE(ff->write_128k_nsec);
	}
	if (op > FL_WRITE || bytes <= 4096 || large <= small)
		return small;
	return small + div64_u64((large - small) * (bytes - 4096), 124 << 10);
}

/* Min- or Max-SFQ(D)'s; false when nothing is in service. Under dev->lock. */
static bool ff_system_vt(struct ff_dev *ff, u64 *vt)
{
	bool max = READ_ONCE(ff->max), found = false;
	unsigned int i;

	for (i = 0; i < FF_MAX_DEPTH; i++) {
		if (!ff->used[i])
			continue;
		if (!found || (max ? fl_vt_before(*vt, ff->tags[i]) : fl_vt_before(ff->tags[i], *vt)))
			*vt = ff->tags[i];
		found = true;
	}
	return found;
}

/* Put @ffl where it belongs on the list: it has just advanced, or just come. */
static void ff_sort_in(struct ff_dev *ff, struct ff_flow *ffl)
{
	struct list_head *pos = ff->backlogged.prev;

	while (pos != &ff->backlogged &&
	       fl_vt_before(ffl->vt, list_entry(pos, struct ff_flow, node)->vt))
		pos = pos->prev;
	list_add(&ffl->node, pos);
}

static void ff_update_shares(struct ff_dev *ff)
{
	struct fl_flow *flow;

	fl_flows_update_shares(&ff->dev);
	list_for_each_entry(flow, &ff->dev.flows, node)
		if (flow->busy)
			to_ff_flow(flow)->reciprocal = fl_vt_reciprocal(flow->share);
}

/* ---- Arrival ------------------------------------------------------------------ */

static void ff_insert(struct fl_queue *queue, struct fl_req *rq, bool at_head)
{
	struct ff_dev *ff = to_ff_dev(queue->hwq->dev);
	struct ff_hwq *fhq = to_ff_hwq(queue->hwq);
	struct ff_queue *fq = to_ff_queue(queue);
	struct ff_flow *ffl = to_ff_flow(queue->flow);
	bool activate = fl_flow_touch(queue), kick = false;
	unsigned long flags;

	if (at_head)
		list_add(fl_req_node(rq), &fq->rqs);
	else
		list_add_tail(fl_req_node(rq), &fq->rqs);
	spin_lock_irqsave(&ff->dev.lock, flags);
	if (activate) {
		fl_flow_set_busy(queue->flow, true);
		ff_update_shares(ff);
		kick = !ff->ticking;
		ff->ticking = true;
	}
	if (!ffl->staged) {
		u64 now = ffl->vt;

		/* SFQ's start tag: not before its own last one ended. */
		if (!ffl->in_service && ff_system_vt(ff, &now) && fl_vt_before(ffl->vt, now))
			ffl->vt = now;
		ff_sort_in(ff, ffl);
	}
	ffl->staged++;
	fq->staged++;
	WRITE_ONCE(fhq->staged, fhq->staged + 1);
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
	unsigned int nr = ff->dev.nr_hwqs, i, index = ff->next_hwq;

	for (i = 0; i < nr; i++, index = index + 1 < nr ? index + 1 : 0) {
		struct ff_hwq *fhq = to_ff_hwq(ff->dev.hwqs[index]);

		if (!ff_flow_queue(ffl, index)->staged || fhq->asked)
			continue;
		WRITE_ONCE(fhq->asked, true);
		WRITE_ONCE(ff->kept, ff->kept + 1);
		ff->next_hwq = index + 1 < nr ? index + 1 : 0;
		ff->asks++;
		fl_hwq_run(&fhq->hwq);
		return true;
	}
	return false;
}

/*
 * The first flow in order that has something on @fhq, if there is room for it. For
 * each one before it, a hardware queue that has its requests is asked. Under
 * dev->lock.
 */
static struct ff_queue *ff_next(struct ff_dev *ff, struct ff_hwq *fhq)
{
	struct ff_flow *ffl;

	list_for_each_entry(ffl, &ff->backlogged, node) {
		struct ff_queue *fq = ff_flow_queue(ffl, fhq->hwq.index);

		if (!ff_room(ff))
			return NULL;
		if (fq->staged)
			return fq;
		ff_ask(ff, ffl);
	}
	return NULL;
}

/* @rq goes into service. Returns what it costs. Under dev->lock. */
static u64 ff_start(struct ff_dev *ff, struct ff_hwq *fhq, struct ff_queue *fq, struct fl_req *rq)
{
	struct ff_flow *ffl = to_ff_flow(fq->q.flow);
	u64 cost = ff_cost(ff, fl_req_op(rq), fl_req_bytes(rq));
	unsigned int place = ff->free[--ff->nr_free];

	ff->used[place] = true;
	ff->tags[place] = ffl->vt;
	*fl_req_priv(rq) = place + 1;
	ffl->vt += fl_vt_advance(cost, ffl->reciprocal);
	list_del_init(&ffl->node);
	fq->staged--;
	WRITE_ONCE(fhq->staged, fhq->staged - 1);
	if (--ffl->staged)
		ff_sort_in(ff, ffl);
	ffl->in_service++;
	WRITE_ONCE(ff->in_service, ff->in_service + 1);
	return cost;
}

static struct fl_req *ff_dispatch(struct fl_hwq *hwq)
{
	struct ff_dev *ff = to_ff_dev(hwq->dev);
	struct ff_hwq *fhq = to_ff_hwq(hwq);
	struct fl_req *rq = NULL;
	struct ff_queue *fq;
	unsigned long flags;
	u64 cost = 0;

	spin_lock_irqsave(&ff->dev.lock, flags);
	if (fhq->asked) {
		WRITE_ONCE(fhq->asked, false);
		WRITE_ONCE(ff->kept, ff->kept - 1);
	}
	fq = ff_next(ff, fhq);
	if (fq) {
		rq = fl_req_of(fq->rqs.next);
		cost = ff_start(ff, fhq, fq, rq);
	}
	spin_unlock_irqrestore(&ff->dev.lock, flags);
	if (!rq)
		return NULL;
	list_del_init(fl_req_node(rq));
	fl_queue_account(&fq->q, rq, cost);
	return rq;
}

static bool ff_has_work(struct fl_hwq *hwq)
{
	struct ff_hwq *fhq = to_ff_hwq(hwq);

	return READ_ONCE(fhq->asked) ||
	       (READ_ONCE(fhq->staged) && ff_room(to_ff_dev(hwq->dev)));
}

/* ---- Completion --------------------------------------------------------------------- */

/* A place in service is free: ask where the first flow of the list has requests. */
static void ff_release(struct fl_queue *queue, struct fl_req *rq)
{
	struct ff_dev *ff = to_ff_dev(queue->hwq->dev);
	unsigned long place = *fl_req_priv(rq), flags;
	struct ff_flow *ffl;

	if (!place)
		return;
	*fl_req_priv(rq) = 0;
	spin_lock_irqsave(&ff->dev.lock, flags);
	ff->used[--place] = false;
	ff->free[ff->nr_free++] = place;
	to_ff_flow(queue->flow)->in_service--;
	WRITE_ONCE(ff->in_service, ff->in_service - 1);
	list_for_each_entry(ffl, &ff->backlogged, node)
		if (!ff_room(ff) || ff_ask(ff, ffl))
			break;
	spin_unlock_irqrestore(&ff->dev.lock, flags);
}

/* ---- Setting up ------------------------------------------------------------------------ */

static u64 ff_tick(struct fl_dev *dev)
{
	struct ff_dev *ff = to_ff_dev(dev);
	unsigned long flags;
	bool active;

	spin_lock_irqsave(&dev->lock, flags);
	active = fl_flows_age(dev, dev->sched);
	ff->ticking = active;
	ff_update_shares(ff);
	spin_unlock_irqrestore(&dev->lock, flags);
	return active ? FF_AGE_NS : 0;
}

static void ff_init_dev(struct fl_dev *dev)
{
	struct ff_dev *ff = to_ff_dev(dev);

	INIT_LIST_HEAD(&ff->backlogged);
	for (ff->nr_free = 0; ff->nr_free < FF_MAX_DEPTH; ff->nr_free++)
		ff->free[ff->nr_free] = FF_MAX_DEPTH - 1 - ff->nr_free;
}

static void ff_init_flow(struct fl_flow *flow)
{
	struct ff_flow *ffl = to_ff_flow(flow);
	unsigned int i;

	INIT_LIST_HEAD(&ffl->node);
	ffl->reciprocal = fl_vt_reciprocal(FL_SHARE_ONE);
	for (i = 0; i < flow->dev->nr_hwqs; i++)
		INIT_LIST_HEAD(&ff_flow_queue(ffl, i)->rqs);
}

#define FF_TUNABLE(_name, _unit, _min, _max, _def, _help)                                          \
	{ .name = #_name, .unit = _unit, .help = _help, .offset = offsetof(struct ff_dev, _name),  \
	  .min = _min, .max = _max, .def = _def }
#define FF_COUNTER(_name, _unit, _help)                                                            \
	{ .name = #_name, .unit = _unit, .help = _help, .offset = offsetof(struct ff_dev, _name) }

static const struct fl_var ff_vars[] = {
	FF_TUNABLE(depth, "requests", 1, FF_MAX_DEPTH, FF_DEPTH, "D: requests in service"),
	FF_TUNABLE(max, "bool", 0, 1, 0, "0: Min-SFQ(D); 1: Max-SFQ(D)"),
	/* What datasheets of the paper's time say; to be set from a measurement. */
	FF_TUNABLE(read_4k_nsec, "ns", 1, NSEC_PER_SEC, 90 * NSEC_PER_USEC, "a 4 KiB read takes, alone"),
	FF_TUNABLE(read_128k_nsec, "ns", 1, NSEC_PER_SEC, 220 * NSEC_PER_USEC,
		   "a 128 KiB read takes, alone"),
	FF_TUNABLE(write_4k_nsec, "ns", 1, NSEC_PER_SEC, 25 * NSEC_PER_USEC,
		   "a 4 KiB write takes, alone"),
	FF_TUNABLE(write_128k_nsec, "ns", 1, NSEC_PER_SEC, 120 * NSEC_PER_USEC,
		   "a 128 KiB write takes, alone"),
	FF_COUNTER(in_service, "requests", "now"),
	FF_COUNTER(asks, "times", "that another hardware queue was asked to dispatch"),
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
	.insert = ff_insert,
	.dispatch = ff_dispatch,
	.has_work = ff_has_work,
	.merge_list = ff_merge_list,
	.release = ff_release,
	.tick = ff_tick,
	.vars = ff_vars,
};
