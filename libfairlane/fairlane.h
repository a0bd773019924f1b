/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * The contract between a scheduler and its host.
 *
 * A scheduler is one C file. It sees five things and nothing else:
 *
 *   fl_dev    a drive
 *   fl_hwq    one of its hardware queues (the kernel's hctx)
 *   fl_flow   a tenant (a cgroup)
 *   fl_queue  the requests of one flow on one hardware queue
 *   fl_req    a request, opaque; accessors in env.h
 *
 * and gives the host a struct fl_sched: what it does when a request comes,
 * may go, and is done. The host - the kernel (kernel/elevator.c, kernel/router.c), the C
 * library (user.c), a simulator - owns all memory and all threads:
 *
 *   fl_dev    lives from init_dev() to exit_dev(). No operation runs before
 *             or after.
 *   fl_hwq    lives as long as its device.
 *   fl_flow   is on dev->flows from init_flow() to exit_flow(), and while it is
 *             active on dev->active as well. exit_flow() is called when the flow
 *             has no request left. A flow outlives its children.
 *   fl_queue  lives from the flow's first request on that hardware queue to the
 *             flow's end. The root has one for each hardware queue from the
 *             start. When memory for one is short, the host charges the request
 *             to the nearest ancestor that has one there, and tries again with a
 *             later request.
 *   fl_req    belongs to the scheduler from insert() until dispatch()
 *             returns it. A scheduler with route() never has one: it says
 *             where a request is to go, and the host sends it there. One with
 *             admit() does not even see one: it says who may make one.
 *
 * A scheduler's own data follow the contract's struct: it embeds struct
 * fl_dev (fl_hwq, fl_flow, fl_queue) as the first member of its own, and
 * says in fl_sched how large that is. The host hands it out zeroed.
 *
 * Locking
 *   hwq->lock  held by the host around insert(), dispatch(), route() and admit(): what
 *              belongs to one hardware queue needs no other protection.
 *              Not irq-safe: process context only.
 *   dev->lock  the slow path: the flow list, weights, activation, refills.
 *              Irq-safe. May be taken with one hwq->lock held, never the
 *              other way round.
 *   complete(), leave(), sent() and tick() run with no lock held, in any context.
 */
#ifndef FAIRLANE_H
#define FAIRLANE_H

#include "env.h"
#include "queue-class.h"
#include "mechanisms/prices.h"
#include "mechanisms/times.h"

#define FL_WEIGHT_MIN 1
#define FL_WEIGHT_MAX 10000
#define FL_WEIGHT_DEFAULT 100

struct fl_sched;

struct fl_dev {
	/* Read by every request. */
	const struct fl_sched *sched;
	unsigned int nr_hwqs;
	struct fl_hwq **hwqs; /* nr_hwqs of them */
	/* May change while no request exists, under lock: do not cache costs. */
	struct fl_prices prices;
	/* Written by the slow path. */
	spinlock_t lock ____cacheline_aligned_in_smp;
	struct list_head flows; /* fl_flow.node; parents come first; under lock */
	struct list_head active; /* fl_flow.active_node of those that are busy; under lock */
	unsigned int nr_active; /* of them; under lock */
	u64 shares_at; /* how often shares were computed; under lock */
	bool ticking; /* of fl_flows_tick(): it will be called again; under lock */
};

struct fl_hwq {
	struct fl_dev *dev;
	unsigned int index; /* in dev->hwqs */
	unsigned int depth; /* requests that the drive takes on it at once; 0: any number */
	unsigned int tags; /* scheduler tags; the host's, read locklessly (tag-limits.h) */
	spinlock_t lock;
	/* Of tag-limits.h. By requests, sent or not, but for the root's; written as fl_queue.unsent is: no lock. */
	atomic_t tags_taken ____cacheline_aligned_in_smp;
	unsigned int tags_wanted; /* by how many that wait; under tags_lock, also read without */
	spinlock_t tags_lock; /* irq-safe; taken with any other held */
} ____cacheline_aligned_in_smp;

struct fl_flow {
	struct fl_dev *dev;
	struct fl_flow *parent; /* NULL for the root; does not change */
	struct fl_queue **queues; /* nr_hwqs of them, see fl_flow_queue() */

	/* See weights.h. Written under dev->lock; those of this line seldom, and read by every request. */
	bool busy; /* its own requests make it active; read locklessly by fl_flow_touch() */
	bool has_below; /* other flows, or had some */
	u32 share; /* read locklessly: a stale share is off in one stat line */
	u32 part; /* the same with all that is below; of an inactive flow it is an old one; sizes tag limits, weighs accounts */
	u64 part_at; /* dev->shares_at, when that was computed */
	u32 weight; /* read locklessly by schedulers that divide by it: a stale one is off for a request */
	/* How long 99 of 100 of its requests may take in the drive; 0: any time. Set by the
	 * host; read locklessly: by a stale one a request is judged wrongly. */
	u64 latency_ns;
	struct list_head node ____cacheline_aligned_in_smp; /* in dev->flows */
	struct list_head active_node; /* in dev->active, while busy */
	u64 seen; /* requests inserted, when fl_flows_age() last found none held */
	unsigned int seen_at; /* the hardware queue where it last found some */
	u32 active_weight; /* sum over the active children, and this flow's own requests; read as weight is */
};

/* See heap.h. */
struct fl_heap_entry {
	struct fl_heap_entry *left, *right, *up;
	u64 key; /* virtual time; the caller's while the entry is in no heap */
	bool in; /* a heap */
};

struct fl_heap {
	struct fl_heap_entry *first; /* the least; NULL: it is empty, which is also asked without the lock */
};

struct fl_queue {
	/* On this line is what each request touches. */
	struct fl_flow *flow;
	struct fl_hwq *hwq;
	struct fl_queue *up; /* the nearest ancestor's; NULL for the root. Does not change */
	/*
	 * Requests that exist, staged or in flight. Written by the host, with a full barrier between
	 * counting a request and inserting it (see fl_flows_age()).
	 */
	atomic_t held;
	/* See tag-limits.h. Written by whoever takes, uses and gives back a tag; a stale read costs one more or less. */
	atomic_t unsent, unsent_below; /* of its own, and of all below it: tags whose requests are not sent */
	/* Those that wait for one: under hwq->tags_lock; that there are none is also read without. */
	struct list_head waiting; /* fl_tag_wait.node, for its own requests */
	struct fl_heap turns; /* of those, and of the queues right below it, that may have one */
	struct fl_heap_entry own_turn, turn; /* in turns; in up->turns */
	u64 turn_now; /* virtual time, of turns */
	/* Written under hwq->lock, summed by anyone: a stale read lags by a request. */
	u64 inserted ____cacheline_aligned_in_smp;
	u64 cost; /* charged */
	u64 requests[FL_NR_OPS]; /* dispatched */
	u64 bytes[FL_NR_OPS]; /* of reads and writes on the same cache line */
	atomic64_t ahead_bytes; /* of requests that the root sent for it, see charge() */
	/* By the class that route() chose. */
	u64 routed[FL_NR_CLASSES], routed_cost[FL_NR_CLASSES];
	u64 throttled_ns; /* time with requests staged and no right to send them */
	struct fl_times times; /* of requests that are done; the host's */
};

#define FL_NR_RANKS 4 /* ionice's classes, from none to idle */
#define FL_RANK_NS NSEC_PER_SEC /* so long one waits for those of the rank before it */

/* What somebody wants to send, before there is a request for it: see admit(). The host's. */
struct fl_admission {
	struct list_head node; /* the scheduler's, while it waits */
	struct fl_queue *queue; /* that it is charged to */
	u64 cost; /* what it takes from the drive */
	u64 since_ns; /* when it began to wait; set by admit() */
	u64 waited_ns; /* 0: it went at once; the library's */
	u32 bytes;
	enum fl_op op;
	u8 rank; /* ionice's class, below FL_NR_RANKS; of its flow's that wait, the least goes first; see fl_first_waiting() */
	bool must; /* it cannot wait */
	bool held; /* it is counted in queue->held; set by the host */
	bool more; /* for a request that was admitted before, and has grown; set by fl_queue_admit() */
	u64 let_go; /* not 0: fl_admitted() came, and it is not sent yet. The scheduler's, but for the beginning */
};

/* Does anybody of a flow's wait with a rank of up to @rank? Without the lock it may be no longer so. */
static inline bool fl_waits_before(const struct list_head waiting[FL_NR_RANKS], int rank)
{
	for (int i = 0; i <= rank; i++)
		if (!list_empty(&waiting[i]))
			return true;
	return false;
}

/*
 * The first of a flow's that wait, in a list for each rank; NULL if there is none. It is of the least rank, unless
 * another waits for FL_RANK_NS longer: it may sleep with a lock that others need. Under the lock of the lists.
 */
static inline struct fl_admission *fl_first_waiting(const struct list_head waiting[FL_NR_RANKS])
{
	struct fl_admission *first = NULL;

	for (int i = 0; i < FL_NR_RANKS; i++) {
		struct fl_admission *a;

		if (list_empty(&waiting[i]))
			continue;
		a = list_first_entry(&waiting[i], struct fl_admission, node);
		if (!first || (s64)(first->since_ns - a->since_ns) > (s64)((i - first->rank) * FL_RANK_NS))
			first = a;
	}
	return first;
}

/*
 * A service of the host's: @admission, for which admit() returned false, may go. Any
 * context, any lock.
 */
void fl_admitted(struct fl_admission *admission);

/*
 * A named number that an operator sees: a tunable when min < max, written at any time by
 * WRITE_ONCE(), else a counter, written under dev->lock, or by WRITE_ONCE().
 */
struct fl_var {
	const char *name, *unit, *help;
	size_t offset; /* of a u64 in the scheduler's device data */
	u64 min, max, def;
};

/* Rows of a scheduler's table of them, with its struct for a device: tunable @_name, and a counter that is @_field. */
#define FL_TUNABLE(_dev, _name, _unit, _min, _max, _def, _help)                                    \
	{ .name = #_name, .unit = _unit, .help = _help, .offset = offsetof(_dev, _name),           \
	  .min = _min, .max = _max, .def = _def }
#define FL_COUNTER(_dev, _name, _field, _unit, _help)                                              \
	{ .name = #_name, .unit = _unit, .help = _help, .offset = offsetof(_dev, _field) }

/*
 * init_dev, init_flow, exit_flow, init_queue, merge_list, release, complete, charge, tick
 * and virtual_time may be NULL: the scheduler has nothing to do there. After
 * exit_flow() the host makes the flow inactive.
 */
struct fl_sched {
	const char *name;
	size_t dev_size, hwq_size, flow_size, queue_size;

	/* Process context. Device, hardware queues and dev->prices are set up; no flow is. */
	void (*init_dev)(struct fl_dev *dev);
	/* Under dev->lock, before the flow's first request and after its last. */
	void (*init_flow)(struct fl_flow *flow);
	void (*exit_flow)(struct fl_flow *flow);
	/*
	 * Under dev->lock, after init_flow() and before fl_flow_queue() returns
	 * @queue, whose flow and hwq are set. May come late: while others of the
	 * flow's queues are in use. The queue goes with the flow.
	 */
	void (*init_queue)(struct fl_queue *queue);

	/*
	 * May @admission go to the drive now? If not, its submitter waits, and
	 * fl_admitted() comes, maybe before this returns. Under hwq->lock. A scheduler has
	 * this and leave(), or what follows after them.
	 */
	bool (*admit)(struct fl_queue *queue, struct fl_admission *admission);
	/*
	 * @admission, for which fl_admitted() came, is about to go to the drive: its submitter has woken up.
	 * False: too late, it waits again; fl_admitted() comes, maybe before this returns. No lock. NULL: it
	 * is never too late.
	 */
	bool (*sent)(struct fl_admission *admission);
	/*
	 * What was admitted at @cost is done, @ns after it was sent; 0: that is not known, or
	 * it was not sent after all. No lock, any context.
	 */
	void (*leave)(struct fl_queue *queue, enum fl_op op, u64 cost, u64 ns);

	/*
	 * The class of submission queue that @rq goes to, at once. A scheduler
	 * either has this and unroute(), or stages: the five below. Under hwq->lock.
	 */
	enum fl_class (*route)(struct fl_queue *queue, struct fl_req *rq);
	/*
	 * The drive does not take @rq after all, and it may be routed again: give
	 * back what it was charged. Instead of complete(). No lock, any context.
	 */
	void (*unroute)(struct fl_queue *queue, struct fl_req *rq);

	/* Stage @rq, at the head if it was there before. Under hwq->lock. */
	void (*insert)(struct fl_queue *queue, struct fl_req *rq, bool at_head);
	/* The next request that may go to the drive now, or NULL. Under hwq->lock. */
	struct fl_req *(*dispatch)(struct fl_hwq *hwq);
	/* May dispatch() return a request? Any context, no lock: a hint. */
	bool (*has_work)(struct fl_hwq *hwq);
	/*
	 * The list on which requests of @op are staged, with one of which a new one may be
	 * merged: always the same. No lock; who looks into it takes hwq->lock.
	 */
	struct list_head *(*merge_list)(struct fl_queue *queue, enum fl_op op);

	/*
	 * @rq gives back what dispatch() took for it: after complete() or, when the
	 * drive would not take it, before it is inserted again. If it has nothing
	 * to give back, nothing happens. No lock, any context.
	 */
	void (*release)(struct fl_queue *queue, struct fl_req *rq);

	/*
	 * The drive finished @rq at @now_ns (0 from a host that sends by route());
	 * before release().
	 */
	void (*complete)(struct fl_queue *queue, struct fl_req *rq, u64 now_ns);

	/*
	 * The root sends, without waiting, what the flow should pay for: metadata that
	 * others may need, or what the flow swaps. The flow pays with its next requests, and
	 * need not be active. NULL: that is free. Any context, with or without hwq->lock.
	 */
	void (*charge)(struct fl_queue *queue, enum fl_op op, u32 bytes);

	/* Periodic work. Returns ns until it wants to be called again, 0 when idle. */
	u64 (*tick)(struct fl_dev *dev);

	/*
	 * The virtual time of @flow, and how far that is ahead of the least, to be
	 * shown. Under dev->lock.
	 */
	void (*virtual_time)(struct fl_flow *flow, u64 *vt, s64 *gap);

	const struct fl_var *vars; /* never NULL; ends with a NULL name */
};

/*
 * The flow's queue for hardware queue @index, 0..nr_hwqs-1; NULL: it has never had
 * a request there. Any context, no lock: a queue that is just being made is missed.
 */
static inline struct fl_queue *fl_flow_queue(struct fl_flow *flow, unsigned int index)
{
	return smp_load_acquire(&flow->queues[index]);
}

/*
 * The latency target of @flow, ns; 0: it has none. It is never shorter than that of a flow above
 * it that has one: who may set those below cannot ask for more than was granted. Any context.
 */
static inline u64 fl_flow_target_ns(const struct fl_flow *flow)
{
	u64 ns = 0;

	for (; flow; flow = flow->parent)
		ns = max_t(u64, ns, READ_ONCE(flow->latency_ns));
	return ns;
}

#ifdef fl_req_node /* a scheduler that stages */
/*
 * For insert(): add @rq to those of the same flow that are staged in @list, behind those of its
 * rank and before those that are to go after it. So a rank (ionice's class) counts among a flow's
 * own requests, and for nobody else. Who comes before others walks past them: past no more than
 * the flow has tags.
 */
static inline void fl_stage(struct fl_req *rq, struct list_head *list, bool at_head)
{
	struct list_head *after = list->prev;

	if (at_head)
		after = list;
	while (after != list && fl_req_rank(fl_req_of(after)) > fl_req_rank(rq))
		after = after->prev;
	list_add(fl_req_node(rq), after);
}
#endif

static inline void __fl_queue_account(struct fl_queue *queue, enum fl_op op, u32 bytes, u64 cost)
{
	WRITE_ONCE(queue->bytes[op], queue->bytes[op] + bytes);
	WRITE_ONCE(queue->cost, queue->cost + cost);
}

/* Count @rq, sent to the drive at the price of @cost. Under hwq->lock. */
static inline void fl_queue_account(struct fl_queue *queue, struct fl_req *rq, u64 cost)
{
	enum fl_op op = fl_req_op(rq);

	WRITE_ONCE(queue->requests[op], queue->requests[op] + 1);
	__fl_queue_account(queue, op, fl_req_bytes(rq), cost);
}

/*
 * For the host of a scheduler with admit(): ask it for @a, whose op, bytes, rank and must are set.
 * @grown: the first so many bytes of that are a request which was admitted before; 0: it is
 * a new one. The root's must not wait. Process context; takes hwq->lock.
 */
static inline bool fl_queue_admit(struct fl_queue *queue, struct fl_admission *a, u32 grown)
{
	struct fl_hwq *hwq = queue->hwq;
	const struct fl_prices *prices = &hwq->dev->prices;
	u64 before = grown ? fl_cost(prices, a->op, grown) : 0;
	bool now;

	a->queue = queue;
	a->cost = fl_cost(prices, a->op, a->bytes);
	a->cost -= min_t(u64, a->cost, before);
	a->must = a->must || !queue->up;
	a->rank = min_t(u8, a->rank, FL_NR_RANKS - 1);
	a->more = grown;
	a->let_go = 0;
	spin_lock(&hwq->lock);
	WRITE_ONCE(queue->requests[a->op], queue->requests[a->op] + !grown);
	__fl_queue_account(queue, a->op, a->bytes - grown, a->cost);
	now = hwq->dev->sched->admit(queue, a);
	spin_unlock(&hwq->lock);
	return now;
}

/* @a, for which fl_admitted() came, may go now. False: it waits again. */
static inline bool fl_queue_sent(struct fl_admission *a)
{
	const struct fl_sched *sched = a->queue->hwq->dev->sched;

	return !a->let_go || !sched->sent || sched->sent(a);
}

/* The root sends @bytes for @queue's flow: see charge(). For the host, once for each such request. */
static inline void fl_queue_charge(struct fl_queue *queue, enum fl_op op, u32 bytes)
{
	const struct fl_sched *sched = queue->hwq->dev->sched;

	atomic64_add(bytes, &queue->ahead_bytes);
	if (sched->charge)
		sched->charge(queue, op, bytes);
}

static inline u64 *fl_var_ptr(struct fl_dev *dev, const struct fl_var *var)
{
	return (u64 *)((char *)dev + var->offset);
}

static inline bool fl_var_tunable(const struct fl_var *var)
{
	return var->min < var->max;
}

#endif
