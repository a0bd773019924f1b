// SPDX-License-Identifier: GPL-2.0-only
/*
 * fairlane.ko: the cgroup policy. One blkcg policy for all schedulers: a flow
 * for each cgroup on each request queue that has one of them.
 */
#include <linux/kernel.h>
#include <linux/module.h>
#include <linux/mutex.h>
#include <linux/slab.h>
#include <linux/string.h>
#include <linux/wait.h>

#include "policy.h"
#include "libfairlane/mechanisms/tag-limits.h"

/*
 * Cgroups further below the root count as the one above them there. Schedulers go from a flow up to the root under locks,
 * some of them at each level; and whoever may make cgroups may nest them as deeply as he likes.
 */
#define FL_LEVELS_MAX 32
#define FL_EXIT_TELLS (5 * HZ) /* for so long the module's exit waits without a word */

/* Flows that exist. The module's exit waits until there are none. */
static atomic_t fl_nr_kflows = ATOMIC_INIT(0);
static DECLARE_WAIT_QUEUE_HEAD(fl_no_kflows);

/* The flow leaves the scheduler. Under dev->lock. */
void fl_kflow_detach(struct fl_kflow *kflow)
{
	const struct fl_sched *sched = kflow->kdev->dev.sched;

	lockdep_assert_held(&kflow->kdev->dev.lock);
	if (!kflow->attached)
		return;
	WRITE_ONCE(kflow->attached, false);
	if (sched->exit_flow && fl_asks(kflow->kdev))
		sched->exit_flow(&kflow->flow);
	fl_flow_set_busy(&kflow->flow, false);
	list_del_rcu(&kflow->flow.node);
}

static void fl_kflow_free(struct fl_kflow *kflow)
{
	unsigned int i;

	for (i = 0; kflow->flow.queues && i < kflow->kdev->dev.nr_hwqs; i++)
		kfree(kflow->flow.queues[i]);
	kfree(kflow->flow.queues);
	kfree(kflow);
}

/* A flow on @kdev, which may be NULL; NULL: out of memory. */
static struct fl_kflow *fl_kflow_alloc(struct fl_kdev *kdev, gfp_t gfp)
{
	size_t size = kdev ? kdev->dev.sched->flow_size : sizeof(struct fl_flow);
	struct fl_kflow *kflow = kzalloc(offsetof(struct fl_kflow, flow) + size, gfp);

	if (!kflow)
		return NULL;
	kflow->kdev = kdev;
	memset32(kflow->own, FL_NOT_SET, FL_NR_SETTINGS);
	INIT_LIST_HEAD(&kflow->flow.node);
	if (!kdev)
		return kflow;
	kflow->flow.dev = &kdev->dev;
	kflow->retry = jiffies;
	kflow->flow.queues = kcalloc(kdev->dev.nr_hwqs, sizeof(kflow->flow.queues[0]), gfp);
	if (kflow->flow.queues)
		return kflow;
	kfree(kflow);
	return NULL;
}

static void fl_kflow_free_rcu(struct rcu_head *rcu)
{
	struct fl_kflow *kflow = container_of(rcu, struct fl_kflow, rcu);
	struct fl_kdev *kdev = kflow->kdev;

	if (kflow->css)
		css_put(kflow->css);
	fl_kflow_free(kflow);
	if (kdev)
		fl_kdev_put(kdev);
	if (atomic_dec_and_test(&fl_nr_kflows))
		wake_up(&fl_no_kflows);
}

/* ---- A flow's queues: one for each hardware queue that it uses ------------- */

static struct fl_queue *fl_kqueue_alloc(struct fl_kflow *kflow, unsigned int index, gfp_t gfp)
{
	struct fl_hwq *hwq = kflow->kdev->dev.hwqs[index];
	struct fl_queue *queue =
		kzalloc_node(hwq->dev->sched->queue_size, gfp | __GFP_NOWARN,
			     container_of(hwq, struct fl_khwq, hwq)->hctx->numa_node);

	if (!queue)
		return NULL;
	queue->flow = &kflow->flow;
	queue->hwq = hwq;
	return queue;
}

/* @kflow's queue for hardware queue @index, which its parent has already. */
static struct fl_queue *fl_kflow_make_one(struct fl_kflow *kflow, unsigned int index, gfp_t gfp)
{
	struct fl_dev *dev = &kflow->kdev->dev;
	struct fl_flow *parent = kflow->flow.parent;
	struct fl_queue *made = fl_kqueue_alloc(kflow, index, gfp | __GFP_ACCOUNT | __GFP_NORETRY);
	struct fl_queue *queue;
	unsigned long flags;

	if (!made)
		made = fl_kqueue_alloc(kflow, index, gfp | __GFP_NORETRY);
	if (!made)
		return NULL;
	fl_tags_init(made, parent ? fl_flow_queue(parent, index) : NULL);
	spin_lock_irqsave(&dev->lock, flags);
	queue = kflow->flow.queues[index];
	if (!queue) {
		queue = made;
		made = NULL;
		if (dev->sched->init_queue && fl_asks(kflow->kdev))
			dev->sched->init_queue(queue);
		smp_store_release(&kflow->flow.queues[index], queue);
	}
	spin_unlock_irqrestore(&dev->lock, flags);
	kfree(made);
	return queue;
}

/*
 * Make the flow's queue for hardware queue @index, and before it those of its
 * ancestors, where a request is counted, too (tags.c), unless somebody else does
 * just now; NULL when memory is short. Any context but under dev->lock.
 *
 * The memory is charged to the submitter: the tenant, or, for a kernel thread, nobody.
 * A tenant at its memory limit still gets its queue, uncharged and without an OOM kill.
 * Otherwise it could have its I/O charged to its parent by staying at that limit. There
 * are no more of them than it has cgroups.
 */
struct fl_queue *fl_kflow_make_queue(struct fl_kflow *kflow, unsigned int index, gfp_t gfp)
{
	for (;;) {
		struct fl_flow *flow = &kflow->flow;
		struct fl_queue *queue;

		while (flow->parent && !fl_flow_queue(flow->parent, index))
			flow = flow->parent;
		queue = fl_kflow_make_one(to_fl_kflow(flow), index, gfp);
		if (!queue || flow == &kflow->flow)
			return queue;
	}
}

/*
 * @kflow has no queue on that hardware queue. This is rare: the throttle hook (tags.c)
 * makes one before the request is allocated. Either that failed, which happens when all
 * memory is short, or the task has moved to another CPU since. If there is no memory now, the request, and what follows for a
 * tenth of a second, is charged to the nearest ancestor, with a message in the log.
 */
struct fl_queue *fl_kflow_use_slow(struct fl_kflow *kflow, unsigned int index)
{
	struct fl_flow *flow = &kflow->flow;
	struct fl_queue *queue = NULL;

	if (time_after_eq(jiffies, READ_ONCE(kflow->retry))) {
		queue = fl_kflow_make_queue(kflow, index, GFP_NOWAIT);
		if (likely(queue))
			return queue;
		WRITE_ONCE(kflow->retry, jiffies + HZ / 10);
		pr_warn_ratelimited("fairlane: %s: no memory for a cgroup's queue: what it sends is charged to its parent meanwhile\n",
				    kflow->kdev->q->disk->disk_name);
	}
	while (!queue) { /* the root has all */
		flow = flow->parent;
		queue = fl_flow_queue(flow, index);
	}
	return queue;
}
EXPORT_SYMBOL_GPL(fl_kflow_use_slow);

/* ---- What a cgroup's files set ---------------------------------------------- */

/*
 * What counts of a setting for @kflow, or, if that is NULL, for the cgroup on any drive.
 * Without locks, it may be what was written before.
 */
u32 fl_setting_of(const struct fl_blkcg *fb, const struct fl_kflow *kflow, enum fl_setting setting)
{
	u32 value = kflow ? READ_ONCE(kflow->own[setting]) : FL_NOT_SET;

	if (value == FL_NOT_SET)
		value = READ_ONCE(fb->defaults[setting]);
	if (value != FL_NOT_SET)
		return value;
	if (setting == FL_WEIGHT)
		return fl_setting_of(fb, kflow, FL_FALLBACK);
	if (setting == FL_FALLBACK)
		return fl_setting_of(fb, kflow, FL_IO_WEIGHT);
	return fl_ranges[setting].def;
}

static void fl_drop_kept(struct fl_kept *kept)
{
	list_del(&kept->node);
	kfree(kept);
}

static struct fl_kept *fl_find_kept(struct fl_blkcg *fb, u64 diskseq)
{
	struct fl_kept *kept;

	list_for_each_entry(kept, &fb->kept, node)
		if (kept->diskseq == diskseq)
			return kept;
	return NULL;
}

/* Keep what was set for a disk, while anything is. @spare is used, and then NULL, if nothing was. */
void fl_keep(struct fl_blkcg *fb, u64 diskseq, enum fl_setting setting, u32 value,
	     struct fl_kept **spare)
{
	struct fl_kept *kept;
	unsigned long flags;

	spin_lock_irqsave(&fb->lock, flags);
	kept = fl_find_kept(fb, diskseq);
	if (!kept && value != FL_NOT_SET) {
		kept = *spare;
		*spare = NULL;
		kept->diskseq = diskseq;
		memset32(kept->own, FL_NOT_SET, FL_NR_SETTINGS);
		list_add(&kept->node, &fb->kept);
	}
	if (kept) {
		kept->gone = false;
		kept->own[setting] = value;
		if (!memchr_inv(kept->own, 0xff, sizeof(kept->own)))
			fl_drop_kept(kept);
	}
	spin_unlock_irqrestore(&fb->lock, flags);
}

/*
 * Drop what is kept for disks that are gone. Called when something is kept for another one,
 * @disk: so there is never more than there are disks, and that. The caller has a reference
 * to it. May sleep.
 */
void fl_forget_gone(struct fl_blkcg *fb, struct gendisk *disk)
{
	static DEFINE_MUTEX(lock); /* two at once would mark for each other */
	struct class_dev_iter disks;
	struct fl_kept *kept, *next;
	struct device *dev;

	mutex_lock(&lock);
	spin_lock_irq(&fb->lock);
	list_for_each_entry(kept, &fb->kept, node)
		kept->gone = true;
	spin_unlock_irq(&fb->lock);
	class_dev_iter_init(&disks, disk_to_dev(disk)->class, NULL, NULL);
	while ((dev = class_dev_iter_next(&disks))) {
		spin_lock_irq(&fb->lock);
		kept = fl_find_kept(fb, dev_to_disk(dev)->diskseq);
		if (kept)
			kept->gone = false;
		spin_unlock_irq(&fb->lock);
	}
	class_dev_iter_exit(&disks);
	spin_lock_irq(&fb->lock);
	list_for_each_entry_safe(kept, next, &fb->kept, node)
		if (kept->gone)
			fl_drop_kept(kept);
	spin_unlock_irq(&fb->lock);
	mutex_unlock(&lock);
}

/* The disk has a scheduler of ours again: what was set for it counts again. */
static void fl_recall(struct fl_blkcg *fb, const struct gendisk *disk, struct fl_kflow *kflow)
{
	struct fl_kept *kept;
	unsigned long flags;

	spin_lock_irqsave(&fb->lock, flags);
	kept = disk ? fl_find_kept(fb, disk->diskseq) : NULL;
	if (kept)
		memcpy(kflow->own, kept->own, sizeof(kflow->own));
	spin_unlock_irqrestore(&fb->lock, flags);
}

/* ---- The policy ------------------------------------------------------------ */

/*
 * The block layer calls this when a cgroup issues its first I/O to the device,
 * maybe from where it may not sleep. If it fails, the cgroup's I/O goes to the
 * flow of its nearest ancestor, and the block layer tries again with the next one.
 * So it is small: a flow's queues are made when they are used. It is charged as they are,
 * and for the same reason made uncharged if need be.
 */
static struct blkg_policy_data *fl_pd_alloc(FL_PD_ALLOC_ARGS)
{
	struct fl_kdev *kdev = fl_kdev_get(fl_pd_alloc_queue);
	struct fl_kflow *kflow = fl_kflow_alloc(kdev, gfp | __GFP_ACCOUNT | __GFP_NORETRY | __GFP_NOWARN);

	if (!kflow)
		kflow = fl_kflow_alloc(kdev, gfp);
	if (kflow) {
		atomic_inc(&fl_nr_kflows);
		return &kflow->pd;
	}
	if (kdev)
		fl_kdev_put(kdev);
	return NULL;
}

/* Under the queue's lock: parents are there before their children. */
static void fl_pd_init(struct blkg_policy_data *pd)
{
	struct fl_kflow *kflow = fl_kflow_of(pd), *parent = NULL;
	struct fl_kdev *kdev = kflow->kdev;
	struct blkcg_gq *blkg = pd_to_blkg(pd);
	struct fl_blkcg *fb = fl_blkcg_of(blkg->blkcg);
	unsigned long flags;

	if (!kdev)
		return;
	fl_recall(fb, blkg->q->disk, kflow);
	if (blkg->parent) {
		parent = fl_kflow_of(blkg_to_pd(blkg->parent, &fl_policy));
		if (!parent || parent->kdev != kdev)
			return;
		kflow->flow.parent = &parent->flow;
	}
	/* What is written meanwhile is applied by pd_online. */
	kflow->flow.weight = fl_setting_of(fb, kflow, FL_WEIGHT);
	kflow->flow.latency_ns = (u64)fl_setting_of(fb, kflow, FL_LATENCY) * NSEC_PER_USEC;

	spin_lock_irqsave(&kdev->dev.lock, flags);
	if (!kdev->dead && fl_asks(kdev) && (!parent || parent->attached) &&
	    blkg->blkcg->css.cgroup->level <= FL_LEVELS_MAX) {
		if (kdev->dev.sched->init_flow)
			kdev->dev.sched->init_flow(&kflow->flow);
		if (parent)
			WRITE_ONCE(parent->flow.has_below, true);
		kflow->css = &blkg->blkcg->css;
		css_get(kflow->css);
		list_add_tail_rcu(&kflow->flow.node, &kdev->dev.flows);
		WRITE_ONCE(kflow->attached, true);
		if (!blkg->parent)
			kdev->root = kflow;
	}
	spin_unlock_irqrestore(&kdev->dev.lock, flags);
}

/*
 * Apply what the cgroup's files say to the flow. It is looked at under dev->lock: of
 * two who come here at once, the later one has what either wrote. Any context but
 * under dev->lock.
 */
void fl_kflow_update(struct fl_kflow *kflow)
{
	const struct blkcg_gq *blkg = pd_to_blkg(&kflow->pd);
	struct fl_dev *dev = &kflow->kdev->dev;
	const struct fl_blkcg *fb;
	unsigned long flags;
	u32 weight;

	if (!blkg) /* some kernels publish it before it is complete; it is updated when it is */
		return;
	fb = fl_blkcg_of(blkg->blkcg);
	spin_lock_irqsave(&dev->lock, flags);
	weight = fl_setting_of(fb, kflow, FL_WEIGHT);
	if (kflow->attached && kflow->flow.weight != weight)
		fl_flow_set_weight(&kflow->flow, weight);
	if (kflow->attached)
		WRITE_ONCE(kflow->flow.latency_ns,
			   (u64)fl_setting_of(fb, kflow, FL_LATENCY) * NSEC_PER_USEC);
	spin_unlock_irqrestore(&dev->lock, flags);
}

/*
 * From here on the blkg is on the cgroup's list. Whoever wrote a default since pd_init
 * did not find the flow, so it is applied here.
 */
static void fl_pd_online(struct blkg_policy_data *pd)
{
	struct fl_kflow *kflow = fl_kflow_of(pd);

	if (kflow->kdev)
		fl_kflow_update(kflow);
}

static void fl_pd_free(struct blkg_policy_data *pd)
{
	struct fl_kflow *kflow = fl_kflow_of(pd);
	unsigned long flags;

	if (kflow->kdev) {
		spin_lock_irqsave(&kflow->kdev->dev.lock, flags);
		fl_kflow_detach(kflow);
		spin_unlock_irqrestore(&kflow->kdev->dev.lock, flags);
	}
	/* Nothing may follow this: the module's exit waits only for the callback. */
	call_rcu(&kflow->rcu, fl_kflow_free_rcu);
}

static struct blkcg_policy_data *fl_cpd_alloc(gfp_t gfp)
{
	struct fl_blkcg *fb = kzalloc(sizeof(*fb), gfp);

	if (!fb)
		return NULL;
	memset32(fb->defaults, FL_NOT_SET, FL_NR_SETTINGS);
	spin_lock_init(&fb->lock);
	INIT_LIST_HEAD(&fb->kept);
	return &fb->cpd;
}

static void fl_cpd_free(struct blkcg_policy_data *cpd)
{
	struct fl_blkcg *fb = container_of(cpd, struct fl_blkcg, cpd);
	struct fl_kept *kept, *next;

	list_for_each_entry_safe(kept, next, &fb->kept, node)
		fl_drop_kept(kept);
	kfree(fb);
}

struct blkcg_policy fl_policy = {
	.dfl_cftypes = fl_cftypes,
	.cpd_alloc_fn = fl_cpd_alloc,
	.cpd_free_fn = fl_cpd_free,
	.pd_alloc_fn = fl_pd_alloc,
	.pd_init_fn = fl_pd_init,
	.pd_online_fn = fl_pd_online,
	.pd_free_fn = fl_pd_free,
};
EXPORT_SYMBOL_GPL(fl_policy);

static int __init fl_init(void)
{
	int ret = fl_failures_init();

	if (ret)
		return ret;
	ret = blkcg_policy_register(&fl_policy);
	if (ret)
		fl_failures_exit();
	return ret;
}

/*
 * No scheduler of ours is in use, or this module would be pinned. But a cgroup that was removed
 * may still have a flow, which the first versions of 6.1 free later, through the policy's table:
 * with the last bio in its name, which may be held above the drive (dm-delay, io.max) for as long
 * as that likes. On others it takes a moment.
 *
 * Nothing interrupts this: an exit cannot be refused, and after it the flow's callback would run
 * into code that is gone. It looks again and again, so as not to be taken for a hung task.
 */
static void __exit fl_wait_for_kflows(void)
{
	if (wait_event_timeout(fl_no_kflows, !atomic_read(&fl_nr_kflows), FL_EXIT_TELLS))
		return;
	pr_info("fairlane: the module goes as soon as the I/O of removed cgroups is done, which something above the drive holds: %d flows are left\n",
		atomic_read(&fl_nr_kflows));
	while (!wait_event_timeout(fl_no_kflows, !atomic_read(&fl_nr_kflows), FL_EXIT_TELLS))
		;
}

static void __exit fl_exit(void)
{
	fl_wait_for_kflows();
	rcu_barrier();
	blkcg_policy_unregister(&fl_policy);
	fl_failures_exit();
	fl_told_exit();
	fl_rqos_exit();
}

module_init(fl_init);
module_exit(fl_exit);

MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("fairlane: fair-share I/O schedulers, cgroup policy");
