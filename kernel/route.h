/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * For a block driver: let a scheduler choose the class of submission queue.
 *
 * D2FQ holds no request back. When the driver sends a request to the drive, D2FQ
 * says which of three classes of submission queues it goes to: high, medium or
 * low of NVMe's weighted round robin (WRR) arbitration. There is no elevator in
 * the path. A driver makes four calls, of which two are per request (a fifth,
 * fl_route_undo(), is for a queue that turns out to be full):
 *
 *	struct drive { struct fl_route route; ... };
 *	struct command { struct fl_route_rq route; ... };     // a request's pdu
 *
 *	device_add_disk(...);
 *	fl_route_register(&drive->route, disk, &ops);
 *
 *	class = fl_route_start(&drive->route, rq, &cmd->route);    in queue_rq()
 *	fl_route_done(&drive->route, &cmd->route);                 in complete()
 *
 *	fl_route_unregister(&drive->route);
 *	del_gendisk(disk);
 *
 * While no scheduler is chosen, these two are a predictable branch each, and all
 * requests go to high. The operator chooses one with
 * `echo d2fq > /sys/block/DISK/fairlane/scheduler`.
 *
 * Lives:
 *   fl_route      the driver's, zeroed at first. In use from register to
 *                 unregister, which takes the scheduler away.
 *   fl_route_rq   the request's, from start to done or undo. A request without a start
 *                 has no done either.
 *   scheduler     start, done and undo change only while the queue is frozen: no
 *                 request sees two of them.
 *   modules       a driver pins fairlane-route.ko, which implements this header
 *                 and no more; a chosen scheduler pins its own module.
 */
#ifndef FAIRLANE_ROUTE_H
#define FAIRLANE_ROUTE_H

#include <linux/blk-mq.h>
#include <linux/device.h>
#include <linux/mutex.h>

#include "libfairlane/queue-class.h"

struct fl_queue;
struct fl_router;

/* What a scheduler knows of a request between start and done. */
struct fl_route_rq {
	struct fl_queue *queue; /* that it is charged to; NULL: to none */
	unsigned long priv; /* the scheduler's */
	u32 bytes;
	u8 op; /* enum fl_op */
	bool held; /* counted in queue->held */
};

struct fl_route_ops {
	/*
	 * Give the drive's classes these weights, soon: any context, with
	 * interrupts off. A driver that needs a command for it has a work item
	 * send that. NULL: the drive knows no WRR, and gets no scheduler that chooses classes.
	 */
	void (*set_weights)(struct gendisk *disk, unsigned int high, unsigned int medium,
			    unsigned int low);
};

struct fl_route {
	/* The scheduler's; written while the queue is frozen. A driver may ask, at any time, whether there is a start. */
	enum fl_class (*start)(struct fl_route *route, struct request *rq, struct fl_route_rq *frq);
	void (*done)(struct fl_route_rq *frq);
	void (*undo)(struct fl_route_rq *frq);
	void *data;

	struct gendisk *disk;
	const struct fl_route_ops *ops;
	struct mutex lock; /* for what follows */
	const struct fl_router *router; /* NULL: none. Also read without, to be shown */
	bool gone; /* unregistered */

	struct device_attribute file; /* scheduler, */
	struct attribute *files[2]; /* alone */
	struct attribute_group folder; /* in its folder */
};

#define FL_ROUTE_FOLDER "fairlane" /* in /sys/block/DISK */

/*
 * After device_add_disk(). May sleep; an errno when out of memory. If the driver gets
 * more hardware queues while a scheduler is chosen, they are charged as those that it had.
 */
int fl_route_register(struct fl_route *route, struct gendisk *disk, const struct fl_route_ops *ops);
/* Before del_gendisk(). Waits for requests in flight while a scheduler is there. */
void fl_route_unregister(struct fl_route *route);

/*
 * The class that @rq goes to. In queue_rq(), once nothing should keep it from being
 * sent: each start needs one done, or one undo, also if @rq is to be sent again.
 */
static inline enum fl_class fl_route_start(struct fl_route *route, struct request *rq,
					   struct fl_route_rq *frq)
{
	return unlikely(route->start) ? route->start(route, rq, frq) : FL_HIGH;
}

/* The drive is done with it. Any context; before the request is ended or requeued. */
static inline void fl_route_done(struct fl_route *route, struct fl_route_rq *frq)
{
	if (unlikely(route->done))
		route->done(frq);
}

/* The drive never had it: its queue was full. In queue_rq(), instead of done. */
static inline void fl_route_undo(struct fl_route *route, struct fl_route_rq *frq)
{
	if (unlikely(route->undo))
		route->undo(frq);
}

/* ---- For a scheduler: see router.c ------------------------------------ */

struct fl_router {
	const char *name;
	bool wrr; /* it chooses classes, so the drive has to have them */
	struct module *owner;
	struct list_head node; /* in fl_routers */
	/*
	 * Set start, done, undo and data of @route; the queue is frozen, and
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
