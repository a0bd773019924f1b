// SPDX-License-Identifier: GPL-2.0-only
/*
 * A scheduler beside the elevator (route.h): what elevator.c is for the others, and made
 * a module in the same way.
 *
 * One that says who may send (admit()) is asked by tags.c, and needs nothing here.
 *
 * One that routes is behind the driver's hook. A request is charged to its bio's cgroup
 * from start to done; its bios, which end after that, pin the flow. rq->elv belongs to
 * tags.c, unless there is an elevator. Requests without a bio (flushes) and passthrough
 * requests go to high, and are charged to nobody.
 */
#include <linux/module.h>

#define FL_ROUTES
#include "device.h"
#include FL_SCHED_FILE

static enum fl_class fl_routed_start(struct fl_route *route, struct request *rq,
				     struct fl_route_rq *frq)
{
	struct fl_kdev *kdev = route->data;
	struct fl_queue *queue;
	enum fl_class class;

	frq->queue = NULL;
	if (unlikely(!rq->bio || blk_rq_is_passthrough(rq) || !fl_asks(kdev)))
		return FL_HIGH;
	queue = fl_kflow_use(fl_bio_kflow(kdev, rq->bio), fl_hctx_index(kdev, rq->mq_hctx));
	frq->queue = queue;
	frq->op = fl_opf_op(rq->cmd_flags);
	frq->bytes = blk_rq_bytes(rq);
	frq->held = !(rq->rq_flags & FL_RQF_COUNTED);
	if (frq->held) {
		atomic_inc(&queue->held);
		smp_mb__after_atomic(); /* against fl_flows_age() */
	}
	spin_lock(&queue->hwq->lock);
	class = fl_asks(kdev) ? FL_SCHED.route(queue, frq) : FL_HIGH;
	spin_unlock(&queue->hwq->lock);
	if (class != FL_LOW) /* where it waits */
		fl_tags_request_sent(rq);
	return class;
}

static void fl_routed_end(struct fl_route_rq *frq)
{
	if (frq->held)
		atomic_dec(&frq->queue->held);
}

static void fl_routed_done(struct fl_route_rq *frq)
{
	if (unlikely(!frq->queue))
		return;
	if (FL_SCHED.complete && fl_asks(to_fl_kdev(frq->queue->hwq->dev)))
		FL_SCHED.complete(frq->queue, frq, 0);
	fl_routed_end(frq);
}

static int fl_routed_attach(struct fl_route *route)
{
	struct request_queue *q = route->disk->queue;
	struct fl_kdev *kdev;
	int ret;

	if (FL_SCHED.admit && q->elevator) {
		pr_err("fairlane: %s: no %s while it has an elevator: write none to queue/scheduler first\n",
		       route->disk->disk_name, FL_SCHED.name);
		return -EBUSY;
	}
	kdev = fl_kdev_create(q, &FL_SCHED, route);
	if (!kdev)
		return -ENOMEM;
	ret = fl_kdev_activate(kdev);
	if (ret) {
		fl_kdev_exit(kdev);
		return ret;
	}
	fl_tags_attach(kdev);
	if (FL_SCHED.admit) /* one that routes sees them in the driver, and charges them */
		fl_tell_of_flushes(q);
	fl_wbt_off(q, NULL);
	route->data = kdev;
	if (FL_SCHED.route) {
		route->start = fl_routed_start;
		route->done = fl_routed_done;
	}
	return 0;
}

static void fl_routed_detach(struct fl_route *route)
{
	struct fl_kdev *kdev = route->data;
	struct request_queue *q = kdev->q;

	route->start = NULL;
	route->done = NULL;
	route->data = NULL;
	fl_tags_detach(kdev);
	fl_wbt_on(q, NULL);
	fl_kdev_exit(kdev);
}

static const struct attribute_group *fl_routed_files(struct fl_route *route)
{
	struct fl_kdev *kdev = route->data;

	return &kdev->files;
}

static struct fl_router fl_routed = {
	.owner = THIS_MODULE,
	.attach = fl_routed_attach,
	.detach = fl_routed_detach,
	.files = fl_routed_files,
};

static int __init fl_routed_init(void)
{
	/* Its row says so; see list.h. */
	if (WARN_ON(!FL_SCHED.route == !FL_SCHED.admit || strcmp(FL_SCHED.name, FL_SCHED_NAME)))
		return -EINVAL;
	fl_routed.name = FL_SCHED.name;
	fl_routed.wrr = FL_SCHED.route;
	fl_router_register(&fl_routed);
	return 0;
}

static void __exit fl_routed_module_exit(void)
{
	fl_router_unregister(&fl_routed);
}

module_init(fl_routed_init);
module_exit(fl_routed_module_exit);

MODULE_LICENSE("GPL");
MODULE_DESCRIPTION(FL_SCHED_ABOUT);
MODULE_ALIAS("fairlane-route-" FL_SCHED_NAME);
