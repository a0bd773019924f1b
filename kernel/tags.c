// SPDX-License-Identifier: GPL-2.0-only
/*
 * fairlane.ko: how cgroups share tags: leaf by leaf, not yet by the rule in
 * libfairlane/mechanisms/tag-limits.h. On each hardware queue 7/8 of the tags are
 * divided by share, and a flow that is below its part may take a tag. While more
 * than 1/4 of them are free, any flow that is not throttled may go beyond its part.
 *
 * A task whose cgroup is over its limit sleeps until the cgroup releases a
 * request, as it would for a tag. I/O that may not sleep (REQ_NOWAIT) gets the
 * smallest shallow depth instead. The cgroup of what a kernel thread submits is
 * not known at this point: all of it is held to the depth of asynchronous I/O,
 * and does not count against the tasks of the cgroup that it is done for.
 * Metadata and swapping are let through, since others may wait for them.
 *
 * A scheduler that routes has no scheduler tags. With it the driver's own tags
 * are shared, by the same rule. There the bio is known, and with it the cgroup,
 * whoever submits. What counts is what was sent to the drive, and what the
 * submitter's plug holds. This hook cannot refuse a request, so I/O that may not
 * sleep sleeps as well, as it does for the kernel's own users of the hook.
 */
#include <linux/kthread.h>
#include <linux/sched.h>

#include "policy.h"
#include "tracepoints.h"

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

/* How many requests @queue may hold now, given that it holds @held; at least one. */
static int fl_tags_limit_of(struct fl_queue *queue, int held)
{
	struct blk_mq_hw_ctx *hctx = container_of(queue->hwq, struct fl_khwq, hwq)->hctx;
	/* Shared ones are the tags of all hardware queues. */
	unsigned int queues = blk_mq_is_shared_tags(hctx->flags) ? queue->hwq->dev->nr_hwqs : 1;

	int depth = fl_tags_of(hctx)->bitmap_tags.sb.depth;
	int part = ((u64)(depth - depth / 8) * READ_ONCE(queue->flow->share)) / FL_SHARE_ONE;

	part /= (int)queues;
	if (READ_ONCE(queue->throttled))
		return max_t(int, 1, part);
	part = max_t(int, FL_TAGS_MIN, part);
	if (held < part)
		return part;
	return max_t(int, part, held + depth - fl_tags_used(queue) - depth / 4);
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

/* How long to sleep at most after a wake-up was lost: see fl_tags_wait(). */
#define FL_TAGS_WAIT msecs_to_jiffies(20)

static void fl_tags_wait(struct fl_queue *queue)
{
	struct fl_tags *tags = fl_queue_tags(queue);
	DEFINE_WAIT(wait);

	for (;;) {
		int held;

		prepare_to_wait_exclusive(&tags->wait, &wait, TASK_UNINTERRUPTIBLE);
		/*
		 * A cgroup over its limit holds requests, and the release of
		 * one wakes us. But the wake-up may go to a task that was
		 * moved to another cgroup or hardware queue meanwhile: its
		 * request is charged there, and no release follows here.
		 * Hence the timeout.
		 */
		held = atomic_read(fl_tags_held(queue));
		if (held < fl_tags_limit_of(queue, held))
			break;
		io_schedule_timeout(FL_TAGS_WAIT);
	}
	finish_wait(&tags->wait, &wait);
}

/* The flow's first request there. Leaves the RCU section that it is called in. */
static void fl_tags_first_use(struct fl_kflow *kflow, struct blk_mq_alloc_data *data)
{
	struct blkcg_gq *blkg = pd_to_blkg(&kflow->pd);
	bool got = blkg_tryget(blkg);

	rcu_read_unlock();
	if (!got)
		return;
	fl_kflow_use(kflow, fl_alloc_hctx(data)->queue_num, !(data->flags & BLK_MQ_REQ_NOWAIT));
	data->nr_tags = 1;
	blkg_put(blkg);
}

/*
 * Called before a request of the current task is allocated: the task waits
 * while its cgroup holds too many tags. May sleep, unless the request may not.
 */
void fl_tags_limit(struct fl_kdev *kdev, struct blk_mq_alloc_data *data)
{
	struct fl_queue *queue = NULL;
	struct fl_kflow *kflow;
	struct blkcg_gq *blkg;
	int held = 0, limit = 0;

	rcu_read_lock();
	kflow = fl_current_kflow(kdev);
	if (kflow && !fl_flow_queue(kdev->dev.sched, &kflow->flow, fl_alloc_hctx(data)->queue_num)) {
		fl_tags_first_use(kflow, data);
		return; /* it holds nothing there yet */
	}
	if (kflow) {
		queue = fl_flow_queue(kdev->dev.sched, &kflow->flow, fl_alloc_hctx(data)->queue_num);
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
	trace_fairlane_tag_wait(disk_devt(kdev->q->disk), fl_alloc_hctx(data)->queue_num, held);
	fl_tags_wait(queue);
	data->nr_tags = 1;
	blkg_put(blkg);
}
EXPORT_SYMBOL_GPL(fl_tags_limit);

/*
 * Called before a request of @queue's flow, which is pinned, takes a driver tag,
 * or the plug takes several: the task waits while the flow holds too many. May
 * sleep; the plug is flushed first.
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
