/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * For a block driver: let a scheduler choose the class of submission queue.
 *
 * D2FQ holds no request back. When the driver sends a request to the drive, D2FQ
 * says which of three classes of submission queues it goes to: high, medium or
 * low of NVMe's weighted round robin (WRR) arbitration. There is no elevator in
 * the path. A driver makes four calls, of which two are per request:
 *
 *	struct drive { struct fl_route_offer route; ... };
 *	struct command { struct fl_route_rq route; ... };     // a request's pdu
 *
 *	drive->route = (struct fl_route_offer){ .tags = &drive->tag_set, .set_weights = ...,
 *						.clear_weights = ... };
 *	fl_route_offer(&drive->route);                   before its first disk
 *
 *	class = fl_route_start(&drive->route, rq, &cmd->route);    in queue_rq()
 *	fl_route_done(&cmd->route);                      in complete()
 *
 *	fl_route_withdraw(&drive->route);                after its last disk
 *
 * While no scheduler is chosen, these two are a predictable branch each, and all
 * requests go to high. The operator chooses one with
 * `echo d2fq > /sys/block/DISK/fairlane/scheduler`. A drive with several disks, such as
 * an NVMe controller with several namespaces, has its classes' weights once: one of
 * them may have such a scheduler, and the requests of the others go to high.
 *
 * Lives:
 *   fl_route_offer  the driver's, zeroed at first. From offer to withdraw.
 *   fl_route        a disk's: from when it is registered until it is removed, and a
 *                   grace period of RCU longer, as fl_route_start() looks at that of
 *                   another disk of the drive.
 *   fl_route_rq     the request's, from start to done.
 *   scheduler       it changes only while the disk's queue is frozen: no request sees
 *                   two of them.
 *   modules         a driver pins fairlane-route.ko, which implements this header
 *                   and no more; a chosen scheduler pins its own module.
 */
#ifndef FAIRLANE_ROUTE_H
#define FAIRLANE_ROUTE_H

#include <linux/blk-mq.h>
#include <linux/device.h>
#include <linux/mutex.h>

#include "libfairlane/queue-class.h"

struct fl_queue;
struct fl_route;
struct fl_router;

/* What a scheduler knows of a request between start and done. */
struct fl_route_rq {
	struct fl_route *route; /* whose scheduler was asked; NULL: none was */
	struct fl_queue *queue; /* that it is charged to; NULL: to none */
	unsigned long priv; /* the scheduler's */
	u32 bytes;
	u8 op; /* enum fl_op */
	bool held; /* counted in queue->held */
};

/* A drive whose driver takes classes. */
struct fl_route_offer {
	struct blk_mq_tag_set *tags; /* that its disks, and no others, use */
	/*
	 * Give the drive's classes these weights, soon: any context, with
	 * interrupts off. A driver that needs a command for it has a work item
	 * send that.
	 */
	void (*set_weights)(struct fl_route_offer *offer, unsigned int high, unsigned int medium,
			    unsigned int low);
	/*
	 * Soon, give them back those that they had before the first set_weights(), or the
	 * first since this was last called; there may have been none. Nobody sets any
	 * meanwhile. May sleep, but wait for no request: a disk's queue is frozen.
	 */
	void (*clear_weights)(struct fl_route_offer *offer);
	/* Of the disk that has a scheduler which routes. Written while that one's queue is frozen. */
	struct fl_route __rcu *chosen;
	struct list_head node; /* in fl_offers */
};

/* Of every disk with hardware queues. */
struct fl_route {
	/* The scheduler's; written while the queue is frozen. */
	enum fl_class (*start)(struct fl_route *route, struct request *rq, struct fl_route_rq *frq);
	void (*done)(struct fl_route_rq *frq);
	void *data;

	struct gendisk *disk;
	struct request_queue *q; /* the disk's */
	struct fl_route_offer *offer; /* NULL: its driver takes no classes */
	struct mutex lock; /* for what follows */
	const struct fl_router *router; /* NULL: none. Also read without, to be shown */
	bool gone; /* the disk is being removed */

	struct device_attribute file; /* scheduler, */
	struct attribute *files[2]; /* alone */
	struct attribute_group folder; /* in its folder */
	struct list_head node; /* in fl_routes */
	struct rcu_head rcu;
};

#define FL_ROUTE_FOLDER "fairlane" /* in /sys/block/DISK */

/*
 * Once, before the first disk that uses these tags is added: those that are there do not hear
 * of it. May sleep. If the driver gets more hardware queues while a scheduler is chosen, they
 * are charged as those that it had.
 */
void fl_route_offer(struct fl_route_offer *offer);
/* After the last of them was removed, or if there never was one, or no offer. May sleep. */
void fl_route_withdraw(struct fl_route_offer *offer);

/*
 * The class that @rq goes to. In queue_rq() or queue_rqs(), once nothing should keep it
 * from being sent: each start needs one done, also if @rq is to be sent again. If a
 * request may be done without a start, its @frq->route has to be NULL.
 */
static inline enum fl_class fl_route_start(struct fl_route_offer *offer, struct request *rq,
					   struct fl_route_rq *frq)
{
	struct fl_route *route;

	frq->route = NULL;
	if (likely(!rcu_access_pointer(offer->chosen)))
		return FL_HIGH;
	rcu_read_lock();
	route = rcu_dereference(offer->chosen);
	if (route && route->q == rq->q)
		frq->route = route; /* it stays until its queue is frozen, which waits for @rq */
	rcu_read_unlock();
	return frq->route ? frq->route->start(frq->route, rq, frq) : FL_HIGH;
}

/* The drive is done with it. Any context; before the request is ended or requeued. */
static inline void fl_route_done(struct fl_route_rq *frq)
{
	if (unlikely(frq->route))
		frq->route->done(frq);
}

/* ---- For a scheduler: see router.c ------------------------------------ */

struct fl_router {
	const char *name;
	bool wrr; /* it chooses classes, so the drive has to have them */
	struct module *owner;
	struct list_head node; /* in fl_routers */
	/*
	 * Set start, done and data of @route; the queue is frozen, and
	 * q->sysfs_lock and fl_rqos_lock() are held. On an error nothing is set.
	 */
	int (*attach)(struct fl_route *route);
	/* The converse, under the same conditions. */
	void (*detach)(struct fl_route *route);
	/* Files beside scheduler, as a group to merge; after attach and before detach. */
	const struct attribute_group *(*files)(struct fl_route *route);
};

void fl_router_register(struct fl_router *router);
void fl_router_unregister(struct fl_router *router);

#endif
