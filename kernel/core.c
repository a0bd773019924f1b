// SPDX-License-Identifier: GPL-2.0-only
/*
 * fairlane.ko: the cgroup side of the schedulers.
 *
 * One blkcg policy for all of them: a flow for each cgroup on each request
 * queue that has one of our schedulers, io.fairlane.weight and
 * io.fairlane.stat, and the rule by which cgroups share tags.
 */
#include <linux/backing-dev.h>
#include <linux/ctype.h>
#include <linux/kernel.h>
#include <linux/kthread.h>
#include <linux/module.h>
#include <linux/sched.h>
#include <linux/seq_file.h>
#include <linux/slab.h>

#include "core.h"
#define CREATE_TRACE_POINTS
#include "trace.h"

static LIST_HEAD(fl_kdevs);
static DEFINE_SPINLOCK(fl_kdevs_lock);

/* Flows that exist; the module's exit waits for none. */
static atomic_t fl_nr_kflows = ATOMIC_INIT(0);
static DECLARE_WAIT_QUEUE_HEAD(fl_no_kflows);

struct fl_blkcg {
	struct blkcg_policy_data cpd;
	u32 weight; /* the cgroup's default; under blkcg->lock */
};

static struct fl_blkcg *fl_blkcg_of(struct blkcg *blkcg)
{
	struct blkcg_policy_data *cpd = blkcg_to_cpd(blkcg, &fl_policy);

	return cpd ? container_of(cpd, struct fl_blkcg, cpd) : NULL;
}

static struct fl_kflow *fl_kflow_of(struct blkg_policy_data *pd)
{
	return pd ? container_of(pd, struct fl_kflow, pd) : NULL;
}

void fl_trace_refill(struct fl_dev *dev, bool period_over, u64 total, u64 used)
{
	trace_fairlane_refill(disk_devt(to_fl_kdev(dev)->q->disk), period_over, total, used);
}
EXPORT_SYMBOL_GPL(fl_trace_refill);

/* ---- Devices ---------------------------------------------------------- */

static void fl_kdev_free(struct kref *ref)
{
	struct fl_kdev *kdev = container_of(ref, struct fl_kdev, ref);
	unsigned int i;

	for (i = 0; kdev->dev.hwqs && i < kdev->dev.nr_hwqs; i++)
		if (kdev->dev.hwqs[i])
			kfree(container_of(kdev->dev.hwqs[i], struct fl_khwq, hwq));
	kfree(kdev->dev.hwqs);
	kfree(kdev->files.attrs);
	kfree(kdev->vars);
	kfree(kdev);
}

/*
 * Once a second: what part of the work did each flow get? Without dev->lock:
 * all queues of all flows are many. A flow that leaves meanwhile is freed later.
 */
static void fl_update_got(struct fl_kdev *kdev)
{
	struct fl_flow *flow;
	u64 total = 0;
	unsigned int i;

	if (time_before(jiffies, kdev->got_jiffies + HZ))
		return;
	WRITE_ONCE(kdev->got_jiffies, jiffies);
	rcu_read_lock();
	list_for_each_entry_rcu(flow, &kdev->dev.flows, node) {
		struct fl_kflow *kflow = to_fl_kflow(flow);
		u64 cost = 0;

		if (!READ_ONCE(flow->busy) && !kflow->got)
			continue;
		for (i = 0; i < kdev->dev.nr_hwqs; i++)
			cost += READ_ONCE(fl_flow_queue(kdev->dev.sched, flow, i)->cost);
		kflow->used = cost - kflow->used_before;
		kflow->used_before = cost;
		total += kflow->used;
	}
	list_for_each_entry_rcu(flow, &kdev->dev.flows, node) {
		struct fl_kflow *kflow = to_fl_kflow(flow);

		WRITE_ONCE(kflow->got,
			   total ? mul_u64_u64_div_u64(kflow->used, FL_SHARE_ONE, total) : 0);
		kflow->used = 0;
	}
	rcu_read_unlock();
}

static enum hrtimer_restart fl_timer_fn(struct hrtimer *timer)
{
	struct fl_kdev *kdev = container_of(timer, struct fl_kdev, timer);
	u64 next = kdev->dev.sched->tick(&kdev->dev);

	fl_update_got(kdev);
	if (next)
		hrtimer_start(timer, ns_to_ktime(next), HRTIMER_MODE_REL_SOFT);
	return HRTIMER_NORESTART; /* started anew above, or by a kick meanwhile */
}

static ssize_t fl_kvar_show(struct device *dev, struct device_attribute *attr, char *page);
static ssize_t fl_kvar_store(struct device *dev, struct device_attribute *attr, const char *page,
			     size_t count);

/* The scheduler's variables, and prices, as files for the drive's own folder. */
static int fl_kdev_init_vars(struct fl_kdev *kdev)
{
	const struct fl_var *var;
	unsigned int nr = 1, i;

	for (var = kdev->dev.sched->vars; var->name; var++)
		nr++;
	kdev->vars = kcalloc(nr, sizeof(kdev->vars[0]), GFP_KERNEL);
	kdev->files.attrs = kcalloc(nr + 1, sizeof(kdev->files.attrs[0]), GFP_KERNEL);
	if (!kdev->vars || !kdev->files.attrs)
		return -ENOMEM;
	kdev->files.name = FL_ROUTE_FOLDER;
	for (i = 0; i < nr; i++) {
		struct fl_kvar *kvar = &kdev->vars[i];

		kvar->kdev = kdev;
		kvar->var = i < nr - 1 ? &kdev->dev.sched->vars[i] : NULL;
		sysfs_attr_init(&kvar->attr.attr);
		kvar->attr.attr.name = kvar->var ? kvar->var->name : "prices";
		kvar->attr.attr.mode = !kvar->var || fl_var_tunable(kvar->var) ? 0644 : 0444;
		kvar->attr.show = fl_kvar_show;
		kvar->attr.store = fl_kvar_store;
		kdev->files.attrs[i] = &kvar->attr.attr;
	}
	return 0;
}

/*
 * Make the device for an elevator of @q, or if there is @route, for a scheduler
 * that routes. Process context; NULL when out of memory. The caller owns a
 * reference, which fl_kdev_exit() drops.
 */
struct fl_kdev *fl_kdev_create(struct request_queue *q, const struct fl_sched *sched,
			       struct fl_route *route)
{
	struct fl_kdev *kdev;
	const struct fl_var *var;
	struct blk_mq_hw_ctx *hctx;
	struct fl_khwq *khwq;
	unsigned long i;

	kdev = kzalloc_node(offsetof(struct fl_kdev, dev) + sched->dev_size, GFP_KERNEL, q->node);
	if (!kdev)
		return NULL;
	kref_init(&kdev->ref);
	kdev->q = q;
	kdev->route = route;
	INIT_LIST_HEAD(&kdev->node);
	hrtimer_init(&kdev->timer, CLOCK_MONOTONIC, HRTIMER_MODE_REL_SOFT);
	kdev->timer.function = fl_timer_fn;
	kdev->dev.sched = sched;
	kdev->dev.nr_hwqs = q->nr_hw_queues;
	spin_lock_init(&kdev->dev.lock);
	INIT_LIST_HEAD(&kdev->dev.flows);
	fl_cost_init(&kdev->dev.cost);

	kdev->dev.hwqs = kcalloc(q->nr_hw_queues, sizeof(kdev->dev.hwqs[0]), GFP_KERNEL);
	if (!kdev->dev.hwqs)
		goto err;
	queue_for_each_hw_ctx(q, hctx, i) {
		khwq = kzalloc_node(offsetof(struct fl_khwq, hwq) + sched->hwq_size, GFP_KERNEL,
				    hctx->numa_node);
		if (!khwq)
			goto err;
		khwq->hctx = hctx;
		khwq->hwq.dev = &kdev->dev;
		khwq->hwq.index = i;
		khwq->hwq.depth = q->tag_set->queue_depth;
		spin_lock_init(&khwq->hwq.lock);
		kdev->dev.hwqs[i] = &khwq->hwq;
	}

	if (route && fl_kdev_init_vars(kdev))
		goto err;
	for (var = sched->vars; var->name; var++)
		if (fl_var_tunable(var))
			*fl_var_ptr(&kdev->dev, var) = var->def;
	sched->init_dev(&kdev->dev);
	return kdev;
err:
	kref_put(&kdev->ref, fl_kdev_free);
	return NULL;
}
EXPORT_SYMBOL_GPL(fl_kdev_create);

/* The only scheduler of its queue? One that routes is not seen by who chooses an elevator. */
static bool fl_kdev_add(struct fl_kdev *kdev)
{
	struct fl_kdev *other;

	spin_lock_irq(&fl_kdevs_lock);
	list_for_each_entry(other, &fl_kdevs, node)
		if (other->q == kdev->q)
			break;
	if (list_entry_is_head(other, &fl_kdevs, node))
		list_add(&kdev->node, &fl_kdevs);
	spin_unlock_irq(&fl_kdevs_lock);
	if (!list_empty(&kdev->node))
		return true;
	pr_err("fairlane: %s: no %s while it has another of our schedulers: write none to %s/scheduler first\n",
	       kdev->q->disk->disk_name, kdev->dev.sched->name, kdev->route ? "queue" : FL_ROUTE_FOLDER);
	return false;
}

/* Give every cgroup on the queue its flow. The queue is frozen. */
int fl_kdev_activate(struct fl_kdev *kdev)
{
	int ret;

	if (!fl_kdev_add(kdev))
		return -EBUSY;
	ret = fl_activate_policy(kdev->q, &fl_policy);
	if (!ret && !kdev->root) {
		/* A cgroup that died in the middle of the last switch left the slot occupied. */
		fl_deactivate_policy(kdev->q, &fl_policy);
		ret = -EBUSY;
	}
	return ret;
}
EXPORT_SYMBOL_GPL(fl_kdev_activate);

static void fl_kflow_detach(struct fl_kflow *kflow)
{
	lockdep_assert_held(&kflow->kdev->dev.lock);
	if (!kflow->attached)
		return;
	kflow->attached = false;
	kflow->kdev->dev.sched->exit_flow(&kflow->flow);
	list_del_rcu(&kflow->flow.node);
}

/* The scheduler leaves the queue, which is frozen: no request is left, none comes. */
void fl_kdev_exit(struct fl_kdev *kdev)
{
	struct fl_flow *flow, *next;
	bool active = !list_empty(&kdev->node);

	spin_lock_irq(&fl_kdevs_lock);
	list_del_init(&kdev->node);
	spin_unlock_irq(&fl_kdevs_lock);
	hrtimer_cancel(&kdev->timer);

	/*
	 * Detach all flows before any is freed: a dying child may be freed
	 * after its parent here. Children come after parents on the list.
	 */
	spin_lock_irq(&kdev->dev.lock);
	kdev->dead = true;
	list_for_each_entry_safe_reverse(flow, next, &kdev->dev.flows, node)
		fl_kflow_detach(to_fl_kflow(flow));
	spin_unlock_irq(&kdev->dev.lock);

	if (active) /* or the flows are another's */
		fl_deactivate_policy(kdev->q, &fl_policy);
	kref_put(&kdev->ref, fl_kdev_free);
}
EXPORT_SYMBOL_GPL(fl_kdev_exit);

/* ---- Flows: the policy's data for each blkg ---------------------------- */

static struct fl_kdev *fl_kdev_get(struct request_queue *q)
{
	struct fl_kdev *kdev, *found = NULL;
	unsigned long flags;

	spin_lock_irqsave(&fl_kdevs_lock, flags);
	list_for_each_entry(kdev, &fl_kdevs, node) {
		if (kdev->q == q) {
			found = kdev;
			kref_get(&kdev->ref);
			break;
		}
	}
	spin_unlock_irqrestore(&fl_kdevs_lock, flags);
	return found;
}

static void fl_kflow_free_rcu(struct rcu_head *rcu)
{
	struct fl_kflow *kflow = container_of(rcu, struct fl_kflow, rcu);

	if (kflow->kdev)
		kref_put(&kflow->kdev->ref, fl_kdev_free);
	kfree(kflow->tags);
	kfree(kflow->flow.queues);
	kfree(kflow);
	if (atomic_dec_and_test(&fl_nr_kflows))
		wake_up(&fl_no_kflows);
}

/*
 * The block layer calls this when a cgroup issues its first I/O to the
 * device, possibly without the right to sleep; if it fails, the cgroup's I/O
 * goes to its nearest ancestor's flow.
 */
static struct blkg_policy_data *fl_pd_alloc(FL_PD_ALLOC_ARGS)
{
	struct fl_kdev *kdev = fl_kdev_get(fl_pd_alloc_queue);
	const struct fl_sched *sched = kdev ? kdev->dev.sched : NULL;
	unsigned int nr = kdev ? kdev->dev.nr_hwqs : 0, i;
	struct fl_kflow *kflow;

	kflow = kzalloc(offsetof(struct fl_kflow, flow) +
				(sched ? sched->flow_size : sizeof(struct fl_flow)),
			gfp);
	if (!kflow)
		goto err_put;
	kflow->kdev = kdev;
	INIT_LIST_HEAD(&kflow->flow.node);
	if (kdev) {
		kflow->flow.dev = &kdev->dev;
		kflow->tags = kcalloc(nr, sizeof(kflow->tags[0]), gfp);
		kflow->flow.queues = kcalloc(nr, sched->queue_size, gfp);
		if (!kflow->tags || !kflow->flow.queues)
			goto err_free;
		for (i = 0; i < nr; i++) {
			struct fl_queue *queue = fl_flow_queue(sched, &kflow->flow, i);

			init_waitqueue_head(&kflow->tags[i].wait);
			queue->flow = &kflow->flow;
			queue->hwq = kdev->dev.hwqs[i];
		}
	}
	atomic_inc(&fl_nr_kflows);
	return &kflow->pd;

err_free:
	kfree(kflow->tags);
	kfree(kflow->flow.queues);
	kfree(kflow);
err_put:
	if (kdev)
		kref_put(&kdev->ref, fl_kdev_free);
	return NULL;
}

/* Under the queue's lock: parents are there before their children. */
static void fl_pd_init(struct blkg_policy_data *pd)
{
	struct fl_kflow *kflow = fl_kflow_of(pd), *parent = NULL;
	struct fl_kdev *kdev = kflow->kdev;
	struct blkcg_gq *blkg = pd_to_blkg(pd);
	unsigned long flags;

	if (!kdev)
		return;
	if (blkg->parent) {
		parent = fl_kflow_of(blkg_to_pd(blkg->parent, &fl_policy));
		if (!parent || parent->kdev != kdev)
			return;
		kflow->flow.parent = &parent->flow;
	}
	kflow->flow.weight = fl_blkcg_of(blkg->blkcg)->weight;

	spin_lock_irqsave(&kdev->dev.lock, flags);
	if (!kdev->dead && (!parent || parent->attached)) {
		kdev->dev.sched->init_flow(&kflow->flow);
		list_add_tail_rcu(&kflow->flow.node, &kdev->dev.flows);
		kflow->attached = true;
		if (!blkg->parent)
			kdev->root = kflow;
	}
	spin_unlock_irqrestore(&kdev->dev.lock, flags);
}

static void fl_apply_weight(struct fl_kflow *kflow, u32 weight)
{
	struct fl_dev *dev = &kflow->kdev->dev;
	unsigned long flags;

	spin_lock_irqsave(&dev->lock, flags);
	if (kflow->attached)
		fl_flow_set_weight(&kflow->flow, weight);
	spin_unlock_irqrestore(&dev->lock, flags);
}

/*
 * The blkg is on the cgroup's list, and blkcg->lock is held: a default weight
 * that was written after pd_init, which did not find the flow yet, is seen
 * here, and any later one finds it.
 */
static void fl_pd_online(struct blkg_policy_data *pd)
{
	struct fl_kflow *kflow = fl_kflow_of(pd);

	if (kflow->kdev)
		fl_apply_weight(kflow, fl_blkcg_of(pd_to_blkg(pd)->blkcg)->weight);
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
	/* Last, and nothing after it: the module's exit waits for the callback only. */
	call_rcu(&kflow->rcu, fl_kflow_free_rcu);
}

static struct blkcg_policy_data *fl_cpd_alloc(gfp_t gfp)
{
	struct fl_blkcg *fb = kzalloc(sizeof(*fb), gfp);

	if (!fb)
		return NULL;
	fb->weight = FL_WEIGHT_DEFAULT;
	return &fb->cpd;
}

static void fl_cpd_free(struct blkcg_policy_data *cpd)
{
	kfree(container_of(cpd, struct fl_blkcg, cpd));
}

/* ---- Tags --------------------------------------------------------------- */

/*
 * How many tags a cgroup may hold: libfairlane/tags.h.
 *
 * Over it, a task sleeps until its cgroup has released a request, as it would
 * for a tag. I/O that may not sleep (REQ_NOWAIT) is held to the smallest
 * shallow depth. What kernel threads submit is not known by cgroup at this
 * point: all of it is held to the depth of asynchronous I/O, and does not
 * count against the tasks of the cgroup in whose name it is. Metadata and
 * swapping, which others may wait for, are let in.
 *
 * A scheduler that routes has no scheduler tags: with it, the driver's own are
 * shared, by the same rule. There the bio is known, and so the cgroup, whoever
 * submits. What counts is what was sent to the drive, and what the submitter's
 * plug holds. Who may not sleep sleeps all the same, as with the kernel's own
 * users of this hook; it has no way to refuse.
 */

static struct blk_mq_tags *fl_tags_of(struct blk_mq_hw_ctx *hctx)
{
	return hctx->sched_tags ?: hctx->tags;
}

static atomic_t *fl_tags_held(struct fl_queue *queue)
{
	return to_fl_kdev(queue->hwq->dev)->route ? &queue->held : &fl_queue_tags(queue)->held;
}

static int fl_tags_used(struct fl_queue *queue)
{
	struct fl_khwq *khwq = container_of(queue->hwq, struct fl_khwq, hwq);

	return sbitmap_weight(&fl_tags_of(khwq->hctx)->bitmap_tags.sb);
}

/* How many requests may @queue hold now, given that it holds @held? At least one. */
static int fl_tags_limit_of(struct fl_queue *queue, int held)
{
	struct blk_mq_hw_ctx *hctx = container_of(queue->hwq, struct fl_khwq, hwq)->hctx;
	/* Shared ones are the tags of all hardware queues. */
	unsigned int queues = blk_mq_is_shared_tags(hctx->flags) ? queue->hwq->dev->nr_hwqs : 1;

	return fl_tags_may_hold(queue, held, fl_tags_of(hctx)->bitmap_tags.sb.depth, queues,
				fl_tags_used);
}

static struct fl_kflow *fl_current_kflow(struct fl_kdev *kdev)
{
	struct blkcg_gq *blkg;
	struct fl_kflow *kflow;

	if (current->flags & PF_KTHREAD)
		return NULL;
	blkg = blkg_lookup(css_to_blkcg(task_css(current, io_cgrp_id)), kdev->q);
	kflow = blkg ? fl_kflow_of(blkg_to_pd(blkg, &fl_policy)) : NULL;
	return kflow && kflow->kdev == kdev && kflow->attached ? kflow : NULL;
}

/* How long a wake-up that went to a task that moved away is missed at most. */
#define FL_TAGS_WAIT msecs_to_jiffies(20)

static void fl_tags_wait(struct fl_queue *queue)
{
	struct fl_tags *tags = fl_queue_tags(queue);
	DEFINE_WAIT(wait);

	for (;;) {
		int held;

		prepare_to_wait_exclusive(&tags->wait, &wait, TASK_UNINTERRUPTIBLE);
		/*
		 * Over the limit means holding something, whose release will
		 * wake us; unless a task that it woke was charged elsewhere
		 * after all, having been moved to another cgroup or hardware
		 * queue, so that no release follows. Hence the timeout.
		 */
		held = atomic_read(fl_tags_held(queue));
		if (held < fl_tags_limit_of(queue, held))
			break;
		io_schedule_timeout(FL_TAGS_WAIT);
	}
	finish_wait(&tags->wait, &wait);
}

/*
 * Before a request of the current task is allocated: hold the task back
 * while its cgroup has too many. May sleep, unless the request may not.
 */
void fl_tags_limit(struct fl_kdev *kdev, struct blk_mq_alloc_data *data)
{
	struct fl_queue *queue = NULL;
	struct fl_kflow *kflow;
	struct blkcg_gq *blkg;
	int held = 0, limit = 0;

	rcu_read_lock();
	kflow = fl_current_kflow(kdev);
	if (kflow) {
		queue = fl_flow_queue(kdev->dev.sched, &kflow->flow, data->hctx->queue_num);
		held = atomic_read(&fl_queue_tags(queue)->held);
		limit = fl_tags_limit_of(queue, held);
	}
	if (held < limit || !kflow) {
		if (kflow && data->nr_tags > limit - held)
			data->nr_tags = limit - held;
		rcu_read_unlock();
		return;
	}
	if (data->flags & BLK_MQ_REQ_NOWAIT) {
		data->shallow_depth = 1;
		rcu_read_unlock();
		return;
	}
	blkg = pd_to_blkg(&kflow->pd);
	if (!blkg_tryget(blkg))
		blkg = NULL;
	rcu_read_unlock();
	if (!blkg)
		return;
	trace_fairlane_tag_wait(disk_devt(kdev->q->disk), data->hctx->queue_num, held);
	fl_tags_wait(queue);
	data->nr_tags = 1;
	blkg_put(blkg);
}
EXPORT_SYMBOL_GPL(fl_tags_limit);

/*
 * Before a request of @queue's flow, which is pinned, takes a driver tag, or as
 * many as the plug has asked for. May sleep, which flushes the plug.
 */
void fl_tags_hold_back(struct fl_queue *queue)
{
	struct blk_plug *plug = current->plug;
	int held = atomic_read(&queue->held) + (plug ? plug->rq_count : 0);
	int limit = fl_tags_limit_of(queue, held);

	if (held < limit) {
		if (plug && plug->nr_ios > limit - held)
			plug->nr_ios = limit - held;
		return;
	}
	if (plug && plug->rq_count) { /* what is in it is charged once it is sent */
		blk_finish_plug(plug);
		blk_start_plug(plug);
	}
	trace_fairlane_tag_wait(disk_devt(to_fl_kdev(queue->hwq->dev)->q->disk), queue->hwq->index,
				held);
	fl_tags_wait(queue);
}
EXPORT_SYMBOL_GPL(fl_tags_hold_back);

/* @queue released a request and has waiters. Any context; its flow is pinned. */
void fl_tags_wake(struct fl_queue *queue)
{
	struct fl_tags *tags = fl_queue_tags(queue);
	int held = atomic_read(fl_tags_held(queue));
	int room = fl_tags_limit_of(queue, held) - held;

	if (room > 0)
		wake_up_nr(&tags->wait, room);
}
EXPORT_SYMBOL_GPL(fl_tags_wake);

/* ---- io.fairlane.weight -------------------------------------------------- */

static int fl_set_default_weight(struct blkcg *blkcg, u64 weight)
{
	struct blkcg_gq *blkg;

	if (weight < FL_WEIGHT_MIN || weight > FL_WEIGHT_MAX)
		return -ERANGE;
	spin_lock_irq(&blkcg->lock);
	fl_blkcg_of(blkcg)->weight = weight;
	hlist_for_each_entry(blkg, &blkcg->blkg_list, blkcg_node) {
		struct fl_kflow *kflow = fl_kflow_of(blkg_to_pd(blkg, &fl_policy));

		if (kflow && kflow->kdev && !kflow->weight)
			fl_apply_weight(kflow, weight);
	}
	spin_unlock_irq(&blkcg->lock);
	return 0;
}

/* "MAJ:MIN N" and "MAJ:MIN default" */
static int fl_set_device_weight(struct blkcg *blkcg, char *buf)
{
	struct blkg_conf_ctx ctx;
	struct fl_kflow *kflow;
	bool prepared;
	u64 weight;
	int ret;

	fl_conf_init(&ctx, buf);
	ret = fl_conf_prep(blkcg, &fl_policy, buf, &ctx);
	prepared = !ret;
	if (ret)
		goto out;
	if (!strcmp(strim(ctx.body), "default")) {
		weight = 0;
	} else {
		ret = kstrtou64(strim(ctx.body), 10, &weight);
		if (ret)
			goto out;
		ret = -ERANGE;
		if (weight < FL_WEIGHT_MIN || weight > FL_WEIGHT_MAX)
			goto out;
	}
	ret = -ENODEV;
	kflow = fl_kflow_of(blkg_to_pd(ctx.blkg, &fl_policy));
	if (!kflow || !kflow->kdev)
		goto out;
	/* conf_prep holds the queue's lock, with interrupts off. */
	spin_lock(&blkcg->lock);
	kflow->weight = weight;
	fl_apply_weight(kflow, weight ? weight : fl_blkcg_of(blkcg)->weight);
	spin_unlock(&blkcg->lock);
	ret = 0;
out:
	fl_conf_exit(&ctx, prepared);
	return ret;
}

static ssize_t fl_weight_write(struct kernfs_open_file *of, char *buf, size_t nbytes, loff_t off)
{
	struct blkcg *blkcg = css_to_blkcg(of_css(of));
	u64 weight;
	char *p;
	int ret;

	buf = strim(buf);
	p = buf;
	if (!strncmp(p, "default", 7) && isspace(p[7]))
		p = skip_spaces(p + 7);
	if (p != buf || !strchr(p, ':')) {
		ret = kstrtou64(p, 10, &weight);
		if (!ret)
			ret = fl_set_default_weight(blkcg, weight);
	} else {
		ret = fl_set_device_weight(blkcg, buf);
	}
	return ret ?: nbytes;
}

static const char *fl_dev_name(struct blkcg_gq *blkg)
{
	return blkg->q->disk ? bdi_dev_name(blkg->q->disk->bdi) : NULL;
}

static u64 fl_prfill_weight(struct seq_file *sf, struct blkg_policy_data *pd, int off)
{
	struct fl_kflow *kflow = fl_kflow_of(pd);
	const char *name = fl_dev_name(pd_to_blkg(pd));

	if (name && kflow->weight)
		seq_printf(sf, "%s %u\n", name, kflow->weight);
	return 0;
}

static int fl_weight_show(struct seq_file *sf, void *v)
{
	struct blkcg *blkcg = css_to_blkcg(seq_css(sf));

	seq_printf(sf, "default %u\n", fl_blkcg_of(blkcg)->weight);
	blkcg_print_blkgs(sf, blkcg, fl_prfill_weight, &fl_policy, 0, false);
	return 0;
}

/* ---- io.fairlane.stat ---------------------------------------------------- */

static void fl_print_share(struct seq_file *sf, const char *name, u64 share)
{
	u64 percent = (share * 10000 + FL_SHARE_ONE / 2) / FL_SHARE_ONE;

	seq_printf(sf, " %s=%llu.%02llu", name, percent / 100, percent % 100);
}

/* Of a flow whose scheduler routes: how far it has come, and where its requests went. */
static void fl_print_routed(struct seq_file *sf, struct fl_kflow *kflow)
{
	static const char *const classes[FL_NR_CLASSES] = { "high", "medium", "low" };
	struct fl_dev *dev = &kflow->kdev->dev;
	unsigned long flags;
	u64 vt = 0, routed;
	unsigned int i;
	s64 gap = 0;
	int c;

	if (!kflow->kdev->route)
		return;
	spin_lock_irqsave(&dev->lock, flags);
	if (kflow->attached)
		dev->sched->virtual_time(&kflow->flow, &vt, &gap);
	spin_unlock_irqrestore(&dev->lock, flags);
	seq_printf(sf, " vtime=%llu gap=%lld", vt, gap);
	for (c = 0; c < FL_NR_CLASSES; c++) {
		for (routed = 0, i = 0; i < dev->nr_hwqs; i++)
			routed += READ_ONCE(fl_flow_queue(dev->sched, &kflow->flow, i)->routed[c]);
		seq_printf(sf, " %sios=%llu", classes[c], routed);
	}
}

static u64 fl_prfill_stat(struct seq_file *sf, struct blkg_policy_data *pd, int off)
{
	static const char *const ops[FL_NR_OPS] = { "r", "w", "d", "o" };
	struct fl_kflow *kflow = fl_kflow_of(pd);
	const char *name = fl_dev_name(pd_to_blkg(pd));
	u64 ios[FL_NR_OPS] = {}, bytes[FL_NR_OPS] = {}, cost = 0, throttled = 0;
	unsigned int i;
	int op;

	if (!name || !kflow->attached)
		return 0;
	for (i = 0; i < kflow->kdev->dev.nr_hwqs; i++) {
		struct fl_queue *q = fl_flow_queue(kflow->kdev->dev.sched, &kflow->flow, i);

		for (op = 0; op < FL_NR_OPS; op++) {
			ios[op] += READ_ONCE(q->requests[op]);
			bytes[op] += READ_ONCE(q->bytes[op]);
		}
		cost += READ_ONCE(q->cost);
		throttled += READ_ONCE(q->throttled_ns);
	}
	seq_printf(sf, "%s", name);
	fl_print_share(sf, "wanted_pct", READ_ONCE(kflow->flow.share));
	/* Computed while somebody is active: afterwards nobody gets anything. */
	fl_print_share(sf, "got_pct", time_before(jiffies, READ_ONCE(kflow->kdev->got_jiffies) + 2 * HZ) ?
					      READ_ONCE(kflow->got) :
					      0);
	for (op = 0; op < FL_NR_OPS; op++)
		seq_printf(sf, " %sios=%llu", ops[op], ios[op]);
	for (op = 0; op < FL_OTHER; op++)
		seq_printf(sf, " %sbytes=%llu", ops[op], bytes[op]);
	seq_printf(sf, " cost=%llu throttled_usec=%llu", cost, div_u64(throttled, NSEC_PER_USEC));
	fl_print_routed(sf, kflow);
	seq_putc(sf, '\n');
	return 0;
}

static int fl_stat_show(struct seq_file *sf, void *v)
{
	blkcg_print_blkgs(sf, css_to_blkcg(seq_css(sf)), fl_prfill_stat, &fl_policy, 0, false);
	return 0;
}

static struct cftype fl_cftypes[] = {
	{
		.name = "fairlane.weight",
		.flags = CFTYPE_NOT_ON_ROOT,
		.seq_show = fl_weight_show,
		.write = fl_weight_write,
	},
	{
		.name = "fairlane.stat",
		.seq_show = fl_stat_show,
	},
	{}
};

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

/* ---- queue/iosched/ or fairlane/: the scheduler's variables ---------------- */

static ssize_t fl_var_show(struct fl_kdev *kdev, const struct fl_var *var, char *page)
{
	return sysfs_emit(page, "%llu\n", READ_ONCE(*fl_var_ptr(&kdev->dev, var)));
}

static ssize_t fl_var_store(struct fl_kdev *kdev, const struct fl_var *var, const char *page,
			    size_t count)
{
	u64 value;
	int ret;

	ret = kstrtou64(page, 10, &value);
	if (ret)
		return ret;
	if (value < var->min || value > var->max)
		return -ERANGE;
	WRITE_ONCE(*fl_var_ptr(&kdev->dev, var), value);
	return count;
}

/*
 * prices: the price list, as fl_cost_parse() takes it. The queue is frozen
 * while it is replaced: requests in flight are waited for, and new ones wait,
 * so none is charged one price and given back another.
 */
static ssize_t fl_prices_show(struct fl_kdev *kdev, char *page)
{
	int op, i, len = 0;

	for (op = FL_READ; op <= FL_WRITE; op++) {
		len += sysfs_emit_at(page, len, "%s", op == FL_READ ? "read" : "write");
		for (i = 0; i < FL_COST_SIZES; i++)
			len += sysfs_emit_at(page, len, " %u", kdev->dev.cost.price[op][i]);
		len += sysfs_emit_at(page, len, "\n");
	}
	return len;
}

static ssize_t fl_prices_store(struct fl_kdev *kdev, const char *page, size_t count)
{
	struct fl_cost cost;

	if (!fl_cost_parse(&cost, page))
		return -EINVAL;
	blk_mq_freeze_queue(kdev->q);
	kdev->dev.cost = cost;
	blk_mq_unfreeze_queue(kdev->q);
	return count;
}

static ssize_t fl_kvar_show(struct device *dev, struct device_attribute *attr, char *page)
{
	struct fl_kvar *kvar = container_of(attr, struct fl_kvar, attr);

	return kvar->var ? fl_var_show(kvar->kdev, kvar->var, page) :
			   fl_prices_show(kvar->kdev, page);
}

static ssize_t fl_kvar_store(struct device *dev, struct device_attribute *attr, const char *page,
			     size_t count)
{
	struct fl_kvar *kvar = container_of(attr, struct fl_kvar, attr);

	return kvar->var ? fl_var_store(kvar->kdev, kvar->var, page, count) :
			   fl_prices_store(kvar->kdev, page, count);
}

static ssize_t fl_elv_prices_show(struct elevator_queue *e, char *page)
{
	return fl_prices_show(e->elevator_data, page);
}

static ssize_t fl_elv_prices_store(struct elevator_queue *e, const char *page, size_t count)
{
	return fl_prices_store(e->elevator_data, page, count);
}

static ssize_t fl_elv_var_show(struct elevator_queue *e, unsigned int i, char *page)
{
	struct fl_kdev *kdev = e->elevator_data;

	return fl_var_show(kdev, &kdev->dev.sched->vars[i], page);
}

static ssize_t fl_elv_var_store(struct elevator_queue *e, unsigned int i, const char *page,
				size_t count)
{
	struct fl_kdev *kdev = e->elevator_data;

	return fl_var_store(kdev, &kdev->dev.sched->vars[i], page, count);
}

/* An elevator's attributes are not told which one is meant: one pair of functions for each. */
#define FL_VAR(i)                                                                                 \
	static ssize_t fl_show_##i(struct elevator_queue *e, char *page)                          \
	{                                                                                         \
		return fl_elv_var_show(e, i, page);                                               \
	}                                                                                         \
	static ssize_t fl_store_##i(struct elevator_queue *e, const char *page, size_t count)     \
	{                                                                                         \
		return fl_elv_var_store(e, i, page, count);                                       \
	}
#define FL_VARS(X)                                                                                \
	X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(10) X(11) X(12) X(13) X(14) X(15)     \
	X(16) X(17) X(18) X(19) X(20) X(21) X(22) X(23)
FL_VARS(FL_VAR)

#define FL_VAR_OPS(i) { .show = fl_show_##i, .store = fl_store_##i },
static const struct elv_fs_entry fl_var_ops[FL_MAX_VARS] = { FL_VARS(FL_VAR_OPS) };

/* Fill @attrs, of which there are FL_NR_ATTRS: prices, and the table of @sched. */
int fl_attrs_init(struct elv_fs_entry *attrs, const struct fl_sched *sched)
{
	const struct fl_var *var;
	unsigned int i = 0;

	for (var = sched->vars; var->name; var++, i++) {
		if (WARN_ON_ONCE(i == FL_MAX_VARS))
			return -E2BIG;
		attrs[i] = fl_var_ops[i];
		attrs[i].attr.name = var->name;
		attrs[i].attr.mode = fl_var_tunable(var) ? 0644 : 0444;
	}
	attrs[i] = (struct elv_fs_entry)__ATTR(prices, 0644, fl_elv_prices_show,
						fl_elv_prices_store);
	return 0;
}
EXPORT_SYMBOL_GPL(fl_attrs_init);

static int __init fl_init(void)
{
	return blkcg_policy_register(&fl_policy);
}

static void __exit fl_exit(void)
{
	/*
	 * No elevator of ours is left, or this module would be pinned; but
	 * cgroups that are dying may still have a flow, which 6.1 frees
	 * through the policy's table at its leisure.
	 */
	wait_event(fl_no_kflows, !atomic_read(&fl_nr_kflows));
	rcu_barrier();
	blkcg_policy_unregister(&fl_policy);
}

module_init(fl_init);
module_exit(fl_exit);

MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("fairlane: fair-share I/O schedulers, cgroup policy");
