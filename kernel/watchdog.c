// SPDX-License-Identifier: GPL-2.0-only
/*
 * fairlane.ko: the way out, should a scheduler fail.
 *
 * A request that a scheduler never gives out waits for ever, and so does everything that
 * freezes the queue, the switch to `none` among it. So the host watches each drive:
 *
 *   Overdue    A request, staged or not even made, has waited longer than watchdog_msec,
 *              while the drive was idle each of the last FL_IDLE_LOOKS times that
 *              somebody looked. Of what is staged, a work item looks, eight times in
 *              watchdog_msec; who sleeps in tags.c looks itself, once a second. Requests
 *              that the driver holds back (quiesced, stopped, busy) are not the
 *              scheduler's, and the drive is not idle meanwhile.
 *   Self-check dispatch() returns what was not staged, or a count is below zero.
 *
 * Then the host lets go of all, once, and for as long as this scheduler is chosen:
 *
 *   1. let_go is set: no operation of the scheduler is called any more.
 *   2. Those that run end. They are under a spinlock, in an interrupt, or in an RCU read-side
 *      section; not so complete() and release() of what is in the drive.
 *   3. What is staged is taken out without asking: each request has a tag, and a mark
 *      since it was inserted. It goes to the drive as it comes, as all that follows.
 *   4. freed is set: whoever sleeps goes on. The lists that he is on are never looked
 *      into again.
 *   5. The state is kept, for /proc/fairlane, and udev is told, whose rule writes none.
 *
 * This covers a scheduler that forgets a request or a waiter, or sorts them wrongly, also
 * if its lists and heaps are broken: none of them is read. It covers no scheduler that
 * keeps a lock, loops under one, or writes where it should not: a wild pointer, or the list
 * of requests in the drive's hands. The kernel's own detectors of lock-ups tell of those.
 */
#include <linux/kernel.h>
#include <linux/proc_fs.h>
#include <linux/sched/mm.h>
#include <linux/seq_file.h>
#include <linux/slab.h>
#include <linux/workqueue.h>

#include "policy.h"

/* ---- What is kept of those that failed -------------------------------------- */

struct fl_failure {
	struct list_head node; /* in fl_failures */
	char disk[DISK_NAME_LEN]; /* a later one of the same disk replaces it */
	size_t len;
	char text[];
};

static LIST_HEAD(fl_failures);
static DEFINE_MUTEX(fl_failures_lock);

static int fl_failures_show(struct seq_file *sf, void *v)
{
	struct fl_failure *failure;

	mutex_lock(&fl_failures_lock);
	list_for_each_entry(failure, &fl_failures, node)
		seq_write(sf, failure->text, failure->len);
	mutex_unlock(&fl_failures_lock);
	return 0;
}

static void fl_failure_keep(struct fl_failure *failure)
{
	struct fl_failure *old, *next;

	mutex_lock(&fl_failures_lock);
	list_for_each_entry_safe(old, next, &fl_failures, node) {
		if (!strcmp(old->disk, failure->disk)) {
			list_del(&old->node);
			kvfree(old);
		}
	}
	list_add_tail(&failure->node, &fl_failures);
	mutex_unlock(&fl_failures_lock);
}

int __init fl_failures_init(void)
{
	return proc_create_single("fairlane", 0400, NULL, fl_failures_show) ? 0 : -ENOMEM;
}

void fl_failures_exit(void)
{
	struct fl_failure *failure, *next;

	remove_proc_entry("fairlane", NULL);
	list_for_each_entry_safe(failure, next, &fl_failures, node)
		kvfree(failure);
}

/* The folder in which the scheduler is chosen, and none is to be. */
static const char *fl_place(const struct fl_kdev *kdev)
{
	return kdev->route ? FL_ROUTE_FOLDER : "queue";
}

static void fl_print_failure(struct seq_file *sf, struct fl_kdev *kdev)
{
	const struct fl_sched *sched = kdev->dev.sched;
	struct gendisk *disk = kdev->q->disk;
	const struct fl_var *var;
	struct fl_flow *flow;
	unsigned int i;

	seq_printf(sf, "drive %s number %u:%u diskseq %llu place %s scheduler %s at %lld\n",
		   disk->disk_name, disk->major, disk->first_minor, disk->diskseq,
		   fl_place(kdev), sched->name, ktime_get_real_seconds());
	seq_printf(sf, "reason %s\n", kdev->fault);
	seq_printf(sf, "variable watchdog_msec %llu\n", READ_ONCE(kdev->watchdog_msec));
	for (var = sched->vars; var->name; var++)
		seq_printf(sf, "variable %s %llu\n", var->name,
			   READ_ONCE(*fl_var_ptr(&kdev->dev, var)));
	for (i = 0; i < kdev->dev.nr_hwqs; i++) {
		struct fl_hwq *hwq = kdev->dev.hwqs[i];

		seq_printf(sf, "hwq %u depth %u tags %u taken_out %u\n", i, hwq->depth,
			   READ_ONCE(hwq->tags), container_of(hwq, struct fl_khwq, hwq)->taken_out);
	}
	/* The lock pins them. Once in the scheduler's life, it may be held for long. */
	spin_lock_irq(&kdev->dev.lock);
	list_for_each_entry(flow, &kdev->dev.flows, node) {
		char path[256];

		cgroup_path(to_fl_kflow(flow)->css->cgroup, path, sizeof(path));
		seq_printf(sf, "cgroup %s weight %u", path, READ_ONCE(flow->weight));
		fl_print_stat(sf, to_fl_kflow(flow));
		seq_putc(sf, '\n');
	}
	spin_unlock_irq(&kdev->dev.lock);
}

#define FL_FAILURE_LINE 512 /* bytes; of most, much less */

static void fl_keep_state(struct fl_kdev *kdev)
{
	/* Whoever frees memory may have to wait for this drive. */
	const gfp_t gfp = GFP_NOIO | __GFP_NORETRY | __GFP_NOWARN;
	size_t size = SZ_4K + kdev->dev.nr_hwqs * 64;
	struct fl_failure *failure;
	struct seq_file sf = {};
	struct fl_flow *flow;

	rcu_read_lock();
	list_for_each_entry_rcu(flow, &kdev->dev.flows, node)
		size += FL_FAILURE_LINE;
	rcu_read_unlock();
	failure = kvzalloc(struct_size(failure, text, size), gfp);
	if (!failure) {
		pr_err("fairlane: %s: no memory to keep the scheduler's state for a report\n",
		       kdev->q->disk->disk_name);
		return;
	}
	strscpy(failure->disk, kdev->q->disk->disk_name, sizeof(failure->disk));
	sf.buf = failure->text;
	sf.size = size;
	fl_print_failure(&sf, kdev);
	failure->len = strnlen(failure->text, size);
	fl_failure_keep(failure);
}

/* ---- Letting go ------------------------------------------------------------ */

/* What is staged on @khwq goes to the drive in any order: the block layer promises none. Under hwq->lock. */
static void fl_take_out(struct fl_khwq *khwq)
{
	const struct blk_mq_tags *tags = khwq->hctx->sched_tags;
	unsigned int i;

	for (i = 0; tags && i < tags->nr_tags; i++) {
		struct request *rq = tags->static_rqs[i];

		if (!fl_staged_on(rq, khwq->hctx))
			continue;
		rq->rq_flags &= ~FL_RQF_STAGED;
		list_add_tail(&rq->queuelist, &khwq->passed); /* never mind where it was */
		khwq->taken_out++;
	}
}

static void fl_tell_udev(struct fl_kdev *kdev)
{
	struct gendisk *disk = kdev->q->disk;
	unsigned int noio = memalloc_noio_save();
	char place[32];
	char *env[] = { place, NULL };

	snprintf(place, sizeof(place), "FAIRLANE_LET_GO=%s", fl_place(kdev));
	if (disk_live(disk)) /* else it is just being removed */
		kobject_uevent_env(&disk_to_dev(disk)->kobj, KOBJ_CHANGE, env);
	memalloc_noio_restore(noio);
}

static void fl_let_go(struct fl_kdev *kdev)
{
	unsigned int i, nr = 0;

	WRITE_ONCE(kdev->let_go, true);
	synchronize_rcu();
	for (i = 0; i < kdev->dev.nr_hwqs; i++) {
		struct fl_hwq *hwq = kdev->dev.hwqs[i];
		struct fl_khwq *khwq = container_of(hwq, struct fl_khwq, hwq);

		spin_lock(&hwq->lock);
		fl_take_out(khwq);
		spin_unlock(&hwq->lock);
		nr += khwq->taken_out;
	}
	smp_store_release(&kdev->freed, true);
	blk_mq_run_hw_queues(kdev->q, true);
	pr_err("fairlane: %s: %s has failed: %s; it is asked no more, as with none, and %u requests were taken out of it: run `fairlane report-bug`\n",
	       kdev->q->disk->disk_name, kdev->dev.sched->name, kdev->fault, nr);
	fl_keep_state(kdev);
	fl_tell_udev(kdev);
}

/* The scheduler has failed: @why, a constant. The first counts. Any context. */
void fl_kdev_fault(struct fl_kdev *kdev, const char *why)
{
	if (!cmpxchg(&kdev->fault, NULL, why))
		kblockd_mod_delayed_work_on(WORK_CPU_UNBOUND, &kdev->look, 0);
}
EXPORT_SYMBOL_GPL(fl_kdev_fault);

/* ---- Looking --------------------------------------------------------------- */

/*
 * Has a request a tag of the drive's? Without an elevator it has one before it is sent: in the plug of a thread that may
 * have no CPU just now. Of tags that other drives have a part of, nobody knows.
 */
static bool fl_tags_in_use(const struct blk_mq_hw_ctx *hctx)
{
	return !hctx->queue->elevator && !(hctx->flags & BLK_MQ_F_TAG_QUEUE_SHARED) &&
	       hctx->tags && /* of a hardware queue that no CPU uses there are none */
	       sbitmap_any_bit_set(&hctx->tags->bitmap_tags.sb);
}

/* The drive has nothing to do, and would take what it is given. The caller has a reference to @q. */
static bool fl_drive_idle(struct request_queue *q)
{
	struct blk_mq_hw_ctx *hctx;
	unsigned long i;

	if (blk_queue_quiesced(q) || blk_queue_pm_only(q) || blk_mq_queue_inflight(q) ||
	    !list_empty_careful(&q->requeue_list))
		return false;
	queue_for_each_hw_ctx(q, hctx, i)
		if (blk_mq_hctx_stopped(hctx) || !list_empty_careful(&hctx->dispatch) || fl_tags_in_use(hctx))
			return false;
	return true;
}

static u64 fl_bound_ns(const struct fl_kdev *kdev)
{
	return READ_ONCE(kdev->watchdog_msec) * NSEC_PER_MSEC ?: U64_MAX;
}

/* Of what is overdue: once more the drive was found idle, or not. */
static void fl_overdue(struct fl_kdev *kdev, unsigned int *idle)
{
	*idle = fl_drive_idle(kdev->q) ? *idle + 1 : 0;
	if (*idle >= FL_IDLE_LOOKS)
		fl_kdev_fault(kdev, "a request has waited longer than watchdog_msec while the drive was idle");
}

/*
 * For who sleeps in tags.c, from time to time: may he go on, whatever the scheduler says?
 * Process context.
 */
bool fl_wait_over(struct fl_kdev *kdev, struct fl_long_wait *wait)
{
	u64 now = ktime_get_ns();

	if (now - wait->since > fl_bound_ns(kdev) && now - wait->looked > NSEC_PER_SEC / 2) {
		wait->looked = now;
		fl_overdue(kdev, &wait->idle);
	}
	return smp_load_acquire(&kdev->freed);
}

static bool fl_staged_overdue(struct fl_khwq *khwq, u64 before)
{
	const struct blk_mq_tags *tags = khwq->hctx->sched_tags;
	bool found = false;
	unsigned int i;

	spin_lock(&khwq->hwq.lock);
	for (i = 0; tags && i < tags->nr_tags && !found; i++) {
		const struct request *rq = tags->static_rqs[i];

		/* Of a passthrough request, 6.12 does not know when it came. */
		found = fl_staged_on(rq, khwq->hctx) && rq->start_time_ns &&
			rq->start_time_ns < before;
	}
	spin_unlock(&khwq->hwq.lock);
	return found;
}

static bool fl_counts_wrong(struct fl_kdev *kdev)
{
	struct fl_flow *flow;
	bool wrong = false;
	unsigned int i;

	rcu_read_lock();
	list_for_each_entry_rcu(flow, &kdev->dev.flows, node) {
		for (i = 0; i < kdev->dev.nr_hwqs; i++) {
			struct fl_queue *queue = fl_flow_queue(flow, i);

			wrong |= queue && (atomic_read(&queue->held) < 0 ||
					   atomic_read(&queue->unsent) < 0 ||
					   atomic_read(&queue->unsent_below) < 0);
		}
	}
	rcu_read_unlock();
	return wrong;
}

static void fl_look(struct fl_kdev *kdev)
{
	u64 bound = fl_bound_ns(kdev), now = ktime_get_ns();
	bool overdue = false;
	unsigned int i;

	if (fl_counts_wrong(kdev))
		fl_kdev_fault(kdev, "a count of requests is below zero");
	for (i = 0; bound < now && i < kdev->dev.nr_hwqs && !overdue; i++)
		overdue = fl_staged_overdue(container_of(kdev->dev.hwqs[i], struct fl_khwq, hwq),
					    now - bound);
	if (overdue)
		fl_overdue(kdev, &kdev->idle_looks);
	else
		kdev->idle_looks = 0;
}

/* Never later than the default's, in case that the bound is changed. */
static unsigned long fl_look_again(const struct fl_kdev *kdev)
{
	u64 msec = READ_ONCE(kdev->watchdog_msec) ?: FL_WATCHDOG_MSEC;

	return msecs_to_jiffies(min_t(u64, msec, FL_WATCHDOG_MSEC) / 8) ?: 1;
}

static void fl_look_fn(struct work_struct *work)
{
	struct fl_kdev *kdev = container_of(to_delayed_work(work), struct fl_kdev, look);
	struct percpu_ref *users = &kdev->q->q_usage_counter;

	if (kdev->let_go)
		return;
	/* With a reference, no scheduler or tag goes meanwhile, even if somebody freezes the queue. */
	if (percpu_ref_tryget(users)) {
		if (!READ_ONCE(kdev->fault))
			fl_look(kdev);
		if (READ_ONCE(kdev->fault))
			fl_let_go(kdev);
		percpu_ref_put(users);
	}
	if (!kdev->let_go)
		kblockd_mod_delayed_work_on(WORK_CPU_UNBOUND, &kdev->look, fl_look_again(kdev));
}

void fl_watch_init(struct fl_kdev *kdev)
{
	kdev->watchdog_msec = FL_WATCHDOG_MSEC;
	INIT_DELAYED_WORK(&kdev->look, fl_look_fn);
}

/* From the time that flows are there to fl_watch_end(). */
void fl_watch_begin(struct fl_kdev *kdev)
{
	kblockd_mod_delayed_work_on(WORK_CPU_UNBOUND, &kdev->look, fl_look_again(kdev));
}

/* May sleep. The queue is frozen, so nobody asks for another look. */
void fl_watch_end(struct fl_kdev *kdev)
{
	cancel_delayed_work_sync(&kdev->look);
}
