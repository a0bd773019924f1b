/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A device and what belongs to it, in the kernel: the contract's objects, each
 * with the kernel's part in front of it. For fairlane.ko and for the modules of
 * the schedulers.
 *
 *   fl_kdev    a request queue that has one of our schedulers: an elevator
 *              or one that routes (route.h), never both. Reference counted: the
 *              scheduler holds one reference, from fl_kdev_create() to
 *              fl_kdev_exit(), and each flow holds one, since a cgroup dies
 *              slowly and may outlive the scheduler.
 *   fl_khwq    a hardware context. Lives as long as its fl_kdev, so that
 *              a timer that fires late finds it.
 *   fl_kflow   a cgroup on a request queue: the blkcg policy's data of a blkg.
 *              The block layer makes and frees it with the blkg, or when the
 *              scheduler comes and goes. A flow is attached while it is on
 *              dev->flows, known to the scheduler. A request that holds a tag
 *              in its name pins its blkg, and so does one that is managed; of
 *              any other routed request the bios do that, which outlive it.
 *              Freed after an RCU grace period.
 *   module     a scheduler in use pins its module, which pins fairlane.ko.
 *              The exit of fairlane.ko waits until the last flow is freed.
 */
#ifndef FAIRLANE_DEVICE_H
#define FAIRLANE_DEVICE_H

#include <linux/hrtimer.h>
#include <linux/kref.h>
#include <linux/wait.h>
#include <linux/workqueue.h>

#include "compat.h"
#include "route.h"
#include "libfairlane/fairlane.h"
#include "libfairlane/mechanisms/weights.h"

struct fl_kdev {
	struct kref ref;
	struct request_queue *q;
	struct list_head node; /* in fl_kdevs; under fl_kdevs_lock */
	struct fl_kflow *root; /* set once, when the policy is activated */
	struct hrtimer timer; /* runs tick(), in softirq context: mqflashfq wants it every 200 us */
	int kicked; /* set by fl_dev_kick(), taken by the timer */
	unsigned long got_jiffies; /* when fl_kflow.got was last computed; timer only */
	bool dead; /* no flow may attach any more; under dev.lock */
	struct fl_rqos *rqos; /* the queue's; linked while the scheduler is chosen */
	/* Of watchdog.c, which says what they mean. The first two are set once, and read by every request. */
	bool let_go;
	bool freed;
	const char *fault; /* why; set once */
	u64 watchdog_msec; /* by an operator; a stale one counts until the next look */
	unsigned int idle_looks; /* the work's */
	struct delayed_work look;
	/* Only of a scheduler that routes. */
	struct fl_route *route; /* the disk's; NULL: an elevator. Set when made */
	struct fl_kvar *vars; /* files of the scheduler's variables */
	struct attribute_group files; /* the same, as a group */
	struct fl_dev dev ____cacheline_aligned_in_smp; /* followed by the scheduler's data */
};

/*
 * The block layer's hooks on a request queue: tags.c. Some who walk a queue's list of them
 * have no reference to it and none of its locks (SCSI's queue depth, wbt's files on 7.x), and may still
 * be at ours when it was taken off. So it stays, for the next scheduler of that queue, until
 * fairlane.ko goes.
 */
struct fl_rqos {
	struct rq_qos rqos;
	struct fl_kdev *kdev; /* whose it is; written when that is linked, with the queue frozen */
	struct request_queue *q; /* only compared: it may be gone, and another one be in its place */
	struct list_head node; /* in fl_all_rqos */
};

/* A variable of a scheduler that routes, as a file in the drive's fairlane folder. */
struct fl_kvar {
	struct device_attribute attr;
	struct fl_kdev *kdev;
	const struct fl_var *var; /* NULL: prices */
};

struct fl_khwq {
	struct blk_mq_hw_ctx *hctx;
	/* Of watchdog.c; under hwq.lock. */
	struct list_head passed; /* requests that go past the scheduler, in their order */
	unsigned int taken_out; /* requests that were staged when it failed */
	struct fl_hwq hwq; /* followed by the scheduler's data */
};

/* What a cgroup's files set of its flows. */
enum fl_setting {
	FL_WEIGHT,
	FL_LATENCY, /* us */
	FL_FALLBACK, /* the weight where FL_WEIGHT is not set: what others' files say */
	FL_IO_WEIGHT, /* the weight where neither is: io.weight, if the kernel leaves that to us */
	FL_NR_SETTINGS
};

#define FL_NOT_SET U32_MAX

struct fl_kflow {
	struct blkg_policy_data pd;
	struct fl_kdev *kdev; /* NULL: made for a queue that just lost its elevator */
	/* Written under dev.lock; I/O reads it, which excludes detaching (frozen queue). Of what is shown,
	 * a stale one adds a line, or leaves one out. */
	bool attached;
	u32 own[FL_NR_SETTINGS]; /* MAJ:MIN N, or FL_NOT_SET. Written under blkcg->lock */
	unsigned long retry; /* jiffies: when to try again for a queue; a stale one tries once more */
	u64 used_before, used; /* cost at the last look, and since the one before; timer only */
	u64 got; /* share of the last second; written by the timer */
	struct cgroup_subsys_state *css; /* its cgroup's, referenced once it was attached: a blkg may outlive that */
	struct rcu_head rcu;
	struct fl_flow flow ____cacheline_aligned_in_smp; /* followed by the scheduler's data */
};

static inline struct fl_kdev *to_fl_kdev(struct fl_dev *dev)
{
	return container_of(dev, struct fl_kdev, dev);
}

static inline struct fl_kflow *to_fl_kflow(struct fl_flow *flow)
{
	return container_of(flow, struct fl_kflow, flow);
}

extern struct blkcg_policy fl_policy;

struct fl_kdev *fl_kdev_create(struct request_queue *q, const struct fl_sched *sched,
			       struct fl_route *route);
int fl_kdev_activate(struct fl_kdev *kdev);
void fl_kdev_exit(struct fl_kdev *kdev);

struct fl_queue *fl_kflow_use_slow(struct fl_kflow *kflow, unsigned int index);

/*
 * Where to charge what @kflow, which is pinned, sends on hardware queue @index: to its
 * queue, made if there is none, or else to that of an ancestor, which is pinned with it.
 */
static inline struct fl_queue *fl_kflow_use(struct fl_kflow *kflow, unsigned int index)
{
	struct fl_queue *queue = fl_flow_queue(&kflow->flow, index);

	return likely(queue) ? queue : fl_kflow_use_slow(kflow, index);
}

/*
 * That of @hctx among ours. A driver may get more hardware queues while a scheduler beside the
 * elevator is chosen (a reset, a reconnection): they share ours.
 */
static inline unsigned int fl_hctx_index(const struct fl_kdev *kdev,
					 const struct blk_mq_hw_ctx *hctx)
{
	unsigned int index = hctx->queue_num, nr = kdev->dev.nr_hwqs;

	return likely(index < nr) ? index : index % nr;
}

/* @rq is charged to @queue, whose flow is pinned meanwhile. */
static inline void fl_hold(struct request *rq, struct fl_queue *queue)
{
	blkg_get(pd_to_blkg(&to_fl_kflow(queue->flow)->pd));
	rq->elv.priv[0] = queue;
	atomic_inc(&queue->held);
	smp_mb__after_atomic(); /* against fl_flow_age() */
}

/* The converse. Any context. */
static inline void fl_unhold(struct request *rq)
{
	struct fl_queue *queue = rq->elv.priv[0];

	rq->elv.priv[0] = NULL;
	atomic_dec(&queue->held);
	blkg_put(pd_to_blkg(&to_fl_kflow(queue->flow)->pd));
}

void fl_tags_attach(struct fl_kdev *kdev);
void fl_tags_detach(struct fl_kdev *kdev);
void fl_tags_request_sent(struct request *rq);

int fl_attrs_init(struct elv_fs_entry *attrs, const struct fl_sched *sched);
#define FL_MAX_HWQS ((1u << (32 - FL_SHORT_NS_BITS)) - 1) /* their numbers, without the last: tags.c */
#define FL_MAX_VARS 24
#define FL_NR_ATTRS (FL_MAX_VARS + 3) /* with watchdog_msec, prices and a terminator */

void fl_kdev_fault(struct fl_kdev *kdev, const char *why);

/*
 * May an operation of the scheduler be called? Under hwq->lock, dev->lock or
 * rcu_read_lock(), or from the timer.
 */
static inline bool fl_asks(const struct fl_kdev *kdev)
{
	return likely(!READ_ONCE(kdev->let_go));
}

/* Is @rq, of a tag that may be free, staged there? Under the lock of that hardware queue. */
static inline bool fl_staged_on(const struct request *rq, const struct blk_mq_hw_ctx *hctx)
{
	return rq && (READ_ONCE(rq->rq_flags) & FL_RQF_STAGED) && READ_ONCE(rq->mq_hctx) == hctx;
}

/*
 * The flow of @bio's cgroup, or of the nearest above it that has one; it stays while the bio or the scheduler does.
 */
static inline struct fl_kflow *fl_bio_payer(struct fl_kdev *kdev, struct bio *bio)
{
	struct blkcg_gq *blkg;

	for (blkg = bio ? bio->bi_blkg : NULL; blkg; blkg = blkg->parent) {
		struct blkg_policy_data *pd = blkg_to_pd(blkg, &fl_policy);
		struct fl_kflow *kflow = container_of(pd, struct fl_kflow, pd);

		if (pd && kflow->kdev == kdev && kflow->attached)
			return kflow;
	}
	return kdev->root;
}

/* The one that sends @bio: the root, if others may wait for it (metadata, swapping). */
static inline struct fl_kflow *fl_bio_kflow(struct fl_kdev *kdev, struct bio *bio)
{
	return bio && bio_issue_as_root_blkg(bio) ? kdev->root : fl_bio_payer(kdev, bio);
}

/* ---- The services of env.h ---- */

/*
 * Not blk_mq_run_hw_queue(): that takes the queue's lock (6.12), under which
 * flows are made, which takes dev->lock, under which refills come here.
 */
static inline void fl_hwq_run(struct fl_hwq *hwq)
{
	blk_mq_delay_run_hw_queue(container_of(hwq, struct fl_khwq, hwq)->hctx, 0);
}

/* How soon a tick comes that was asked for. */
#define FL_KICK_NS (100 * NSEC_PER_USEC)

/*
 * Leaves a timer that fires sooner anyway. A tick that runs just now may be past what we
 * ask it for, and set the timer after us, to when it wants to run next: see fl_timer_fn().
 */
static inline void fl_dev_kick(struct fl_dev *dev)
{
	struct fl_kdev *kdev = to_fl_kdev(dev);
	struct hrtimer *timer = &kdev->timer;

	if (hrtimer_is_queued(timer) && ktime_to_ns(hrtimer_get_remaining(timer)) <= FL_KICK_NS)
		return;
	smp_store_release(&kdev->kicked, 1);
	hrtimer_start(timer, ns_to_ktime(FL_KICK_NS), HRTIMER_MODE_REL_SOFT);
}

/* Only for a scheduler that routes. */
static inline void fl_dev_weights(struct fl_dev *dev, unsigned int high, unsigned int medium,
				  unsigned int low)
{
	struct fl_route *route = to_fl_kdev(dev)->route;

	route->offer->set_weights(route->offer, high, medium, low);
}

void fl_trace_refill(struct fl_dev *dev, unsigned int cause, u64 tokens, u64 done);

#endif
