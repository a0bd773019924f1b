// SPDX-License-Identifier: GPL-2.0-only
/*
 * fairlane.ko: the devices, one for each request queue that has one of our
 * schedulers. Made when the scheduler is chosen, with its timer, which runs
 * tick(), and its hardware queues; see device.h for how long it lives.
 */
#include <linux/kernel.h>
#include <linux/sched.h>
#include <linux/slab.h>

#include "policy.h"
#define CREATE_TRACE_POINTS
#include "tracepoints.h"

#define FL_DETACHED_AT_ONCE 64 /* flows, with interrupts off */

static LIST_HEAD(fl_kdevs);
static DEFINE_SPINLOCK(fl_kdevs_lock);

void fl_trace_refill(struct fl_dev *dev, unsigned int cause, u64 tokens, u64 done)
{
	trace_fairlane_refill(disk_devt(to_fl_kdev(dev)->q->disk), cause, tokens, done);
}
EXPORT_SYMBOL_GPL(fl_trace_refill);

#ifndef fl_tell_of_flushes
/* The diskseq of each drive that was told of, by its number: a later drive of that number is another. */
static DEFINE_XARRAY(fl_told);

/* When a scheduler is chosen, once for each drive. May sleep. */
void fl_tell_of_flushes(struct request_queue *q)
{
	void *seq = xa_mk_value(q->disk->diskseq & LONG_MAX);

	if (!test_bit(QUEUE_FLAG_WC, &q->queue_flags) ||
	    xa_store(&fl_told, disk_devt(q->disk), seq, GFP_NOIO) == seq)
		return;
	pr_info("fairlane: %s: writes with FUA or a flush (O_DSYNC) pass no scheduler on Linux before 6.5, and have no share\n",
		q->disk->disk_name);
}
EXPORT_SYMBOL_GPL(fl_tell_of_flushes);

void fl_told_exit(void)
{
	xa_destroy(&fl_told);
}
#endif

static LIST_HEAD(fl_all_rqos);
static DEFINE_MUTEX(fl_rqos_mutex);

/* The hooks on @q, made if there are none. May sleep; NULL: out of memory. */
static struct fl_rqos *fl_rqos_of(struct request_queue *q)
{
	struct fl_rqos *each, *found = NULL;

	mutex_lock(&fl_rqos_mutex);
	list_for_each_entry(each, &fl_all_rqos, node)
		if (each->q == q)
			found = each;
	if (!found) /* not to wait for I/O: of a frozen queue, that of whoever waits for the mutex */
		found = kzalloc(sizeof(*found), GFP_NOIO);
	if (found && !found->q) {
		found->q = q;
		list_add(&found->node, &fl_all_rqos);
	}
	mutex_unlock(&fl_rqos_mutex);
	return found;
}

/* The module goes. */
void fl_rqos_exit(void)
{
	struct fl_rqos *each, *next;

	list_for_each_entry_safe(each, next, &fl_all_rqos, node)
		kfree(each);
}

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

void fl_kdev_put(struct fl_kdev *kdev)
{
	kref_put(&kdev->ref, fl_kdev_free);
}

/* The device of @q, referenced, or NULL. Any context. */
struct fl_kdev *fl_kdev_get(struct request_queue *q)
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

/*
 * Once a second, compute which part of the work each flow got. Walks all queues
 * of all flows, so not under dev->lock; RCU keeps a flow that leaves meanwhile.
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
		for (i = 0; i < kdev->dev.nr_hwqs; i++) {
			struct fl_queue *queue = fl_flow_queue(flow, i);

			cost += queue ? READ_ONCE(queue->cost) : 0;
		}
		kflow->used = cost - kflow->used_before;
		kflow->used_before = cost;
		total += kflow->used;
	}
	list_for_each_entry_rcu(flow, &kdev->dev.flows, node) {
		struct fl_kflow *kflow = to_fl_kflow(flow);

		if (!kflow->used && !kflow->got) /* most of many cgroups: leave their memory alone */
			continue;
		WRITE_ONCE(kflow->got,
			   total ? mul_u64_u64_div_u64(kflow->used, FL_SHARE_ONE, total) : 0);
		kflow->used = 0;
	}
	rcu_read_unlock();
}

static enum hrtimer_restart fl_timer_fn(struct hrtimer *timer)
{
	struct fl_kdev *kdev = container_of(timer, struct fl_kdev, timer);
	const struct fl_sched *sched = kdev->dev.sched;
	u64 next;

	if (!fl_asks(kdev))
		return HRTIMER_NORESTART;
	xchg(&kdev->kicked, 0); /* before the tick: it sees what was done before the kick */
	next = sched->tick ? sched->tick(&kdev->dev) : 0;
	fl_update_got(kdev);
	if (next)
		hrtimer_start(timer, ns_to_ktime(next), HRTIMER_MODE_REL_SOFT);
	/* The timer's own lock is between a kick's mark and this look, if its start came first. */
	if (next > FL_KICK_NS && READ_ONCE(kdev->kicked))
		hrtimer_start(timer, ns_to_ktime(FL_KICK_NS), HRTIMER_MODE_REL_SOFT);
	return HRTIMER_NORESTART; /* started again above, or by a kick meanwhile */
}

/*
 * Make the device of @sched on @q: of a scheduler that routes if @route is set,
 * else of an elevator. Process context; NULL when out of memory. The caller owns
 * a reference, which fl_kdev_exit() drops.
 */
struct fl_kdev *fl_kdev_create(struct request_queue *q, const struct fl_sched *sched,
			       struct fl_route *route)
{
	struct fl_kdev *kdev;
	const struct fl_var *var;
	struct blk_mq_hw_ctx *hctx;
	struct fl_khwq *khwq;
	unsigned long i;

	if (WARN_ON_ONCE(q->nr_hw_queues > FL_MAX_HWQS))
		return NULL;
	kdev = kzalloc_node(offsetof(struct fl_kdev, dev) + sched->dev_size, GFP_KERNEL, q->node);
	if (!kdev)
		return NULL;
	kref_init(&kdev->ref);
	kdev->q = q;
	kdev->route = route;
	INIT_LIST_HEAD(&kdev->node);
	fl_watch_init(kdev);
	fl_hrtimer_setup(&kdev->timer, fl_timer_fn, HRTIMER_MODE_REL_SOFT);
	kdev->dev.sched = sched;
	kdev->dev.nr_hwqs = q->nr_hw_queues;
	spin_lock_init(&kdev->dev.lock);
	INIT_LIST_HEAD(&kdev->dev.flows);
	INIT_LIST_HEAD(&kdev->dev.active);
	fl_prices_init(&kdev->dev.prices);

	kdev->rqos = fl_rqos_of(q);
	if (!kdev->rqos)
		goto err;
	kdev->dev.hwqs = kcalloc(q->nr_hw_queues, sizeof(kdev->dev.hwqs[0]), GFP_KERNEL);
	if (!kdev->dev.hwqs)
		goto err;
	queue_for_each_hw_ctx(q, hctx, i) {
		khwq = kzalloc_node(offsetof(struct fl_khwq, hwq) + sched->hwq_size, GFP_KERNEL,
				    hctx->numa_node);
		if (!khwq)
			goto err;
		khwq->hctx = hctx;
		INIT_LIST_HEAD(&khwq->passed);
		khwq->hwq.dev = &kdev->dev;
		khwq->hwq.index = i;
		khwq->hwq.depth = q->tag_set->queue_depth;
		spin_lock_init(&khwq->hwq.lock);
		spin_lock_init(&khwq->hwq.tags_lock);
		kdev->dev.hwqs[i] = &khwq->hwq;
	}

	if (route && fl_kdev_init_vars(kdev))
		goto err;
	for (var = sched->vars; var->name; var++)
		if (fl_var_tunable(var))
			*fl_var_ptr(&kdev->dev, var) = var->def;
	if (sched->init_dev)
		sched->init_dev(&kdev->dev);
	return kdev;
err:
	fl_kdev_put(kdev);
	return NULL;
}
EXPORT_SYMBOL_GPL(fl_kdev_create);

/*
 * False if the queue already has one of our schedulers. The block layer cannot
 * know: it has never heard of those that route.
 */
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
	       kdev->q->disk->disk_name, kdev->dev.sched->name,
	       kdev->route ? "queue" : FL_ROUTE_FOLDER);
	return false;
}

/* Give every cgroup on the queue its flow. The queue is frozen. */
int fl_kdev_activate(struct fl_kdev *kdev)
{
	unsigned int i;
	int ret;

	if (!fl_kdev_add(kdev))
		return -EBUSY;
	ret = fl_activate_policy(kdev->q, &fl_policy);
	if (!ret && !kdev->root) {
		/* A cgroup that died during the last switch of schedulers left its policy data. */
		fl_deactivate_policy(kdev->q, &fl_policy);
		ret = -EBUSY;
	}
	/* The root's queues are there from the start: what has no other is charged to them. */
	for (i = 0; !ret && i < kdev->dev.nr_hwqs; i++)
		if (!fl_kflow_make_queue(kdev->root, i, GFP_KERNEL))
			ret = -ENOMEM;
	if (!ret)
		fl_watch_begin(kdev);
	return ret;
}
EXPORT_SYMBOL_GPL(fl_kdev_activate);

/* The scheduler leaves the queue, which is frozen: no request is left, none comes. */
void fl_kdev_exit(struct fl_kdev *kdev)
{
	bool active = !list_empty(&kdev->node), more;
	unsigned int i;

	spin_lock_irq(&fl_kdevs_lock);
	list_del_init(&kdev->node);
	spin_unlock_irq(&fl_kdevs_lock);
	fl_watch_end(kdev);
	hrtimer_cancel(&kdev->timer);

	/*
	 * Detach all flows before any is freed: a dying child may be freed
	 * after its parent here. Children come after parents on the list.
	 */
	do {
		spin_lock_irq(&kdev->dev.lock);
		kdev->dead = true;
		for (i = 0; i < FL_DETACHED_AT_ONCE && !list_empty(&kdev->dev.flows); i++)
			fl_kflow_detach(to_fl_kflow(list_last_entry(&kdev->dev.flows, struct fl_flow, node)));
		more = !list_empty(&kdev->dev.flows);
		spin_unlock_irq(&kdev->dev.lock);
		cond_resched();
	} while (more);

	if (active) /* else the flows are another scheduler's */
		fl_deactivate_policy(kdev->q, &fl_policy);
	fl_kdev_put(kdev);
}
EXPORT_SYMBOL_GPL(fl_kdev_exit);
