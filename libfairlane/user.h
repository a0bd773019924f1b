/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * The host in user space, with all that is inside open to view: for tests, the simulator,
 * and library.c, which has on top of it what programs link (libfairlane.h.in).
 *
 *	struct fl_dev *dev = fl_dev_create(&fl_kyber_fairness, 4, &host);
 *	struct fl_flow *web = fl_flow_create(dev, NULL, 300);
 *
 *	fl_submit(dev, 0, web, rq);              stage a request
 *	while ((rq = fl_next(dev, 0)))           on hardware queue 0:
 *		send(rq);                        to the drive
 *	fl_done(rq);                             when the drive is done
 *
 * With a scheduler that never stages (it has route()), instead:
 *
 *	send_to(fl_route(dev, 0, web, rq), rq);  to that class of the drive's queues
 *	fl_done(rq);                             when the drive is done
 *
 * And with one that only says who may send something now (it has admit()):
 *
 *	if (fl_admit(web, 0, &rq->admission))    else wait for host callback admitted()
 *		send(rq);                        to the drive
 *	fl_sent(&rq->admission)                  when it goes, if it waited; false: wait again
 *	fl_leave(&rq->admission, ns);            when the drive is done, after so long
 *
 * Any number of threads may call these at once, for any hardware queue. The
 * engine calls fl_tick() from a timer and obeys what the host callbacks ask.
 */
#ifndef FAIRLANE_USER_H
#define FAIRLANE_USER_H

#include "fairlane.h"
#include "mechanisms/tag-limits.h"
#include "schedulers/list.h"

#define FL_SCHED_DECLARE(id, name, host, role, about) extern const struct fl_sched fl_##id;
FL_SCHEDULERS(FL_SCHED_DECLARE)
#undef FL_SCHED_DECLARE

/* All of them, in the order of the list; ends with NULL. */
extern const struct fl_sched *const fl_schedulers[];
/* The scheduler of that name, or NULL. */
const struct fl_sched *fl_sched_find(const char *name);

/* What the library asks of its user. Called from any of the functions below, with locks held. */
struct fl_host {
	/* Have fl_next() called for hardware queue @index soon, from another context. */
	void (*run)(void *ctx, unsigned int index);
	/* Have fl_tick() called soon. */
	void (*kick)(void *ctx);
	/* Give the drive's classes these weights soon; only for schedulers that route. */
	void (*weights)(void *ctx, unsigned int high, unsigned int medium, unsigned int low);
	/* @wait, for which fl_tag_take() returned false, has its tag. Only if that is called. */
	void (*granted)(void *ctx, struct fl_tag_wait *wait);
	/* @admission, for which fl_admit() returned false, may go. Only if that is called. */
	void (*admitted)(void *ctx, struct fl_admission *admission);
	void *ctx;
};

/* A drive with @nr_hwqs (at least 1) hardware queues. NULL when out of memory. */
struct fl_dev *fl_dev_create(const struct fl_sched *sched, unsigned int nr_hwqs,
			     const struct fl_host *host);
/* No request may be left, and no thread in the library. Destroys remaining flows. */
void fl_dev_destroy(struct fl_dev *dev);

/*
 * A tenant below @parent (NULL: the root), @weight FL_WEIGHT_MIN..FL_WEIGHT_MAX.
 * NULL when the weight is out of range or memory is short.
 */
struct fl_flow *fl_flow_create(struct fl_dev *dev, struct fl_flow *parent, u32 weight);
/* The flow has no request and no child left. */
void fl_flow_destroy(struct fl_flow *flow);
/* Returns false when @weight is out of range; nothing changes then. */
bool fl_flow_weight(struct fl_flow *flow, u32 weight);
/* How long 99 of 100 of its requests, and of those below it, may take in the drive; 0: any time. */
void fl_flow_latency(struct fl_flow *flow, u64 ns);

/*
 * Where requests of @flow on hardware queue @index are charged: the flow's queue, made
 * at its first use; as long as memory is short, that of its nearest ancestor that has one.
 */
struct fl_queue *fl_flow_use(struct fl_flow *flow, unsigned int index);

/* Requests of nobody's, or that must not wait since others wait for them: never held back. */
struct fl_flow *fl_root(struct fl_dev *dev);
/*
 * A request of @bytes goes to hardware queue @index as the root's, but for @flow's sake, which
 * is to pay for it with its own next ones: metadata, say.
 */
void fl_charge(struct fl_flow *flow, unsigned int index, enum fl_op op, u32 bytes);

/* Stage @rq of @flow on hardware queue @index; op, bytes and arrival_ns are filled in. */
void fl_submit(struct fl_dev *dev, unsigned int index, struct fl_flow *flow, struct fl_req *rq);
/*
 * The class of submission queue of hardware queue @index to which @rq of @flow goes, now; filled in
 * as for fl_submit(). Sets dispatch_ns.
 */
enum fl_class fl_route(struct fl_dev *dev, unsigned int index, struct fl_flow *flow,
		       struct fl_req *rq);
/* The next request that hardware queue @index may send now, or NULL; sets dispatch_ns. */
struct fl_req *fl_next(struct fl_dev *dev, unsigned int index);
/* The drive finished @rq, which is the caller's again. */
void fl_done(struct fl_req *rq);
/*
 * The drive would not take @rq now. From fl_next(): back to the head of its queue. From fl_route():
 * it is the caller's again.
 */
void fl_requeue(struct fl_req *rq);
/*
 * With a scheduler that has admit(): may @flow send @admission, with op, bytes, rank and must
 * filled in, on hardware queue @index? It is the engine's, and stays until fl_leave(). False: it has to
 * wait, and host callback admitted() comes, maybe before this returns.
 */
bool fl_admit(struct fl_flow *flow, unsigned int index, struct fl_admission *admission);
/*
 * @admission, for which callback admitted() came, is about to go to the drive. False: that took too long, it waits
 * again, and admitted() comes, maybe before this returns. Before fl_leave(), and not from a callback. True, and
 * without effect, for one that may go anyway.
 */
bool fl_sent(struct fl_admission *admission);
/*
 * The drive is done with what was admitted, @ns after it was sent; or, with 0, it does not get it
 * after all, or the engine does not know how long that took.
 */
void fl_leave(struct fl_admission *admission, u64 ns);

/*
 * How long the requests of @flow took that are done, sums over all hardware queues: from arrival_ns,
 * or from when fl_admit() had it wait, to fl_done() or fl_leave(). What left with 0 is not counted.
 */
void fl_flow_times(struct fl_flow *flow, struct fl_times *times);

/* Periodic work. Returns ns until the next call, 0: not before the next kick(). */
u64 fl_tick(struct fl_dev *dev);

/*
 * An engine that has only so many requests for each hardware queue has them divided
 * as the drive is (tag-limits.h), so that a tenant that is held back does not keep
 * others out: it takes a tag before fl_submit(), fl_route() or fl_admit(), says so
 * when fl_next() has returned the request, it may go, or it was routed to a class
 * above FL_LOW, and else when it is done, and gives the tag back after fl_done() or
 * fl_leave(). All of this is up to the engine.
 */
void fl_set_tags(struct fl_dev *dev, unsigned int tags); /* for each; before the first is taken */
/*
 * @wait is the engine's, with op and bytes filled in. False: it has to wait, and host
 * callback granted() comes, maybe before this returns; until then @wait stays.
 */
bool fl_tag_take(struct fl_flow *flow, unsigned int index, struct fl_tag_wait *wait);
/* Both with wait->queue. */
void fl_tag_sent(struct fl_queue *queue);
void fl_tag_give(struct fl_queue *queue);

/* Tunables and counters by name; false when there is none such or the value is out of range. */
bool fl_get(struct fl_dev *dev, const char *name, u64 *value);
bool fl_set(struct fl_dev *dev, const char *name, u64 value);

/*
 * Price requests by @text: a price list as `fairlane calibrate` prints it, see
 * fl_prices_parse(). Returns false, and changes nothing, when it is not one.
 * The caller makes sure that no request exists meanwhile.
 */
bool fl_set_prices(struct fl_dev *dev, const char *text);

/* Replace the clock, for simulation and tests; NULL: the monotonic clock. */
void fl_set_clock(u64 (*clock_ns)(void));

#endif
