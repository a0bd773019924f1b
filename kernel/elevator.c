// SPDX-License-Identifier: GPL-2.0-only
/*
 * A scheduler as a blk-mq elevator.
 *
 * Not compiled by itself: each scheduler that stages has a module, whose file
 * Kbuild makes from the scheduler's row in libfairlane/schedulers/list.h. It
 * defines FL_SCHED, the name of the struct fl_sched, and FL_SCHED_FILE,
 * FL_SCHED_NAME and FL_SCHED_ABOUT, and includes this file. The struct is
 * constant and in sight, so the calls below are direct, and inlined.
 *
 * elv.priv[0] of a request is the fl_queue that it is charged to, by its bio's
 * cgroup: from when it has a tag until it gives it back (tags.c). One that comes by
 * another way is not counted there: it is charged from insert to finish. Either pins the flow's blkg
 * meanwhile. elv.priv[1] is the scheduler's word.
 */
#include <linux/module.h>
#include <linux/sched/mm.h>
#include <trace/events/block.h>

#include "device.h"
#include FL_SCHED_FILE

/* Those that go past a scheduler that has failed (watchdog.c). Changed under hwq->lock. */
static struct list_head *fl_passed(struct fl_hwq *hwq)
{
	return &container_of(hwq, struct fl_khwq, hwq)->passed;
}

/* What insert() finds without a flow. Under hwq->lock. */
static struct fl_queue *fl_charge(struct request *rq, struct fl_hwq *hwq)
{
	struct fl_kflow *kflow = fl_bio_kflow(to_fl_kdev(hwq->dev), rq->bio);
	struct fl_queue *queue = fl_kflow_use(kflow, hwq->index);

	fl_hold(rq, queue);
	return queue;
}

/* The converse; what is counted as having a tag is charged until it gives that back. Any context. */
static void fl_uncharge(struct request *rq)
{
	if (unlikely(!(rq->rq_flags & FL_RQF_COUNTED) && fl_req_queue(rq)))
		fl_unhold(rq);
}

static void fl_prepare_request(struct request *rq)
{
	rq->elv.priv[0] = NULL;
	rq->elv.priv[1] = NULL;
}

/*
 * Dispatch here, in the context of the submitter, as happens without a
 * scheduler? Otherwise the block layer has a kernel thread do it after every
 * insert, which takes more CPU time than all else that an elevator does. Not
 * from within schedule(), nor if the driver may sleep. Not while the drive is
 * full: then completions run the queue. Nor while a plug is flushed: the block
 * layer runs the queue here itself after that.
 */
static bool fl_may_run_here(struct blk_mq_hw_ctx *hctx)
{
	return !current->plug && task_is_running(current) && !(hctx->flags & BLK_MQ_F_BLOCKING) &&
	       !blk_mq_sched_needs_restart(hctx);
}

static void fl_insert_requests(struct blk_mq_hw_ctx *hctx, struct list_head *list,
			       fl_insert_flags flags)
{
	struct fl_hwq *hwq = hctx->sched_data;
	struct fl_kdev *kdev = to_fl_kdev(hwq->dev);
	struct request *rq, *next;

	spin_lock(&hwq->lock);
	list_for_each_entry_safe(rq, next, list, queuelist) {
		struct fl_queue *queue;

		list_del_init(&rq->queuelist);
		trace_block_rq_insert(rq);
		if (unlikely(!fl_asks(kdev))) {
			list_add(&rq->queuelist, fl_insert_at_head(flags) ? fl_passed(hwq) :
									    fl_passed(hwq)->prev);
			continue;
		}
		fl_manage(rq);
		queue = fl_req_queue(rq) ?: fl_charge(rq, hwq);
		rq->rq_flags |= FL_RQF_STAGED;
		FL_SCHED.insert(queue, rq, fl_insert_at_head(flags));
	}
	spin_unlock(&hwq->lock);
	if (fl_may_run_here(hctx))
		blk_mq_run_hw_queue(hctx, false);
}

/* What the scheduler gives out, if that is a request that it has; or, once it has failed, the next one. */
static struct request *fl_next(struct fl_hwq *hwq)
{
	struct fl_kdev *kdev = to_fl_kdev(hwq->dev);
	struct request *rq;

	if (unlikely(!fl_asks(kdev))) {
		rq = list_first_entry_or_null(fl_passed(hwq), struct request, queuelist);
		if (rq)
			list_del_init(&rq->queuelist);
		return rq;
	}
	rq = FL_SCHED.dispatch(hwq);
	if (unlikely(rq && !(rq->rq_flags & FL_RQF_STAGED))) {
		fl_kdev_fault(kdev, "dispatch() has returned a request that is not staged");
		return NULL;
	}
	if (rq) {
		rq->rq_flags &= ~FL_RQF_STAGED;
		fl_tags_request_sent(rq);
	}
	return rq;
}

static struct request *fl_dispatch_request(struct blk_mq_hw_ctx *hctx)
{
	struct fl_hwq *hwq = hctx->sched_data;
	struct request *rq;

	spin_lock(&hwq->lock);
	rq = fl_next(hwq);
	spin_unlock(&hwq->lock);
	return rq;
}

static bool fl_has_work(struct blk_mq_hw_ctx *hctx)
{
	struct fl_hwq *hwq = hctx->sched_data;

	if (unlikely(!fl_asks(to_fl_kdev(hwq->dev))))
		return !list_empty_careful(fl_passed(hwq));
	return FL_SCHED.has_work(hwq);
}

static bool fl_bio_merge(struct request_queue *q, struct bio *bio, unsigned int nr_segs)
{
	struct blk_mq_hw_ctx *hctx = fl_map_queue(q, bio->bi_opf);
	struct fl_hwq *hwq = hctx->sched_data;
	struct fl_kflow *kflow = fl_bio_kflow(to_fl_kdev(hwq->dev), bio);
	struct fl_queue *queue = fl_flow_queue(&kflow->flow, hwq->index);
	struct list_head *staged;
	bool merged;

	if (!FL_SCHED.merge_list || !queue)
		return false;
	staged = FL_SCHED.merge_list(queue, fl_opf_op(bio->bi_opf));
	if (list_empty(staged)) /* mostly; one that comes just now is missed */
		return false;
	spin_lock(&hwq->lock);
	merged = fl_asks(to_fl_kdev(hwq->dev)) && blk_bio_list_merge(q, staged, bio, nr_segs);
	spin_unlock(&hwq->lock);
	return merged;
}

static void fl_completed_request(struct request *rq, u64 now)
{
	struct fl_queue *queue = fl_req_queue(rq);

	if (FL_SCHED.complete && (rq->rq_flags & FL_RQF_MANAGED) && queue &&
	    fl_asks(to_fl_kdev(queue->hwq->dev)))
		FL_SCHED.complete(queue, rq, now);
}

static void fl_release(struct request *rq)
{
	struct fl_queue *queue = fl_req_queue(rq);

	if (FL_SCHED.release && queue && fl_asks(to_fl_kdev(queue->hwq->dev)))
		FL_SCHED.release(queue, rq);
}

/*
 * It will be inserted again: it stays charged, and gives back its place in the drive.
 * One that the driver has prepared is sent again past the elevator, and keeps its place.
 */
static void fl_requeue_request(struct request *rq)
{
	if (!(rq->rq_flags & RQF_DONTPREP))
		fl_release(rq);
}

static void fl_finish_request(struct request *rq)
{
	fl_release(rq);
	fl_uncharge(rq);
}

static int fl_init_hctx(struct blk_mq_hw_ctx *hctx, unsigned int index)
{
	struct fl_kdev *kdev = hctx->queue->elevator->elevator_data;

	hctx->sched_data = kdev->dev.hwqs[index];
	return 0;
}

/* The hwqs go with this elevator; the next one must not find them. */
static void fl_exit_hctx(struct blk_mq_hw_ctx *hctx, unsigned int index)
{
	hctx->sched_data = NULL;
}

static int fl_init_sched(FL_INIT_SCHED_ARGS)
{
	/* The queue is frozen: allocations must not wait for writeback to it. */
	unsigned int noio = memalloc_noio_save();
	struct elevator_queue *made = fl_elevator_queue(q);
	struct fl_kdev *kdev;
	int ret = -ENOMEM;

	if (!made)
		goto err;
	kdev = fl_kdev_create(q, &FL_SCHED, NULL);
	if (!kdev)
		goto err_eq;
	made->elevator_data = kdev;
	q->elevator = made;
	ret = fl_kdev_activate(kdev);
	if (ret)
		goto err_kdev;
	fl_rqos_lock(q);
	fl_tags_attach(kdev);
	fl_rqos_unlock(q);
	fl_wbt_off(q, made);
	fl_tell_of_flushes(q);
	blk_stat_enable_accounting(q); /* for io_start_time_ns */
	blk_queue_flag_clear(QUEUE_FLAG_SQ_SCHED, q);
	memalloc_noio_restore(noio);
	return 0;

err_kdev:
	q->elevator = NULL;
	fl_kdev_exit(kdev);
err_eq:
	fl_elevator_queue_put(made);
err:
	memalloc_noio_restore(noio);
	return ret;
}

static void fl_exit_sched(struct elevator_queue *e)
{
	struct fl_kdev *kdev = e->elevator_data;
	struct request_queue *q = kdev->q;

	blk_stat_disable_accounting(q);
	fl_rqos_lock(q);
	fl_tags_detach(kdev);
	fl_rqos_unlock(q);
	fl_kdev_exit(kdev);
	fl_wbt_on(q, e);
}

static struct elv_fs_entry fl_attrs[FL_NR_ATTRS];

static struct elevator_type fl_elevator = {
	.ops = {
		.init_sched = fl_init_sched,
		.exit_sched = fl_exit_sched,
		.init_hctx = fl_init_hctx,
		.exit_hctx = fl_exit_hctx,
		.prepare_request = fl_prepare_request,
		.bio_merge = fl_bio_merge,
		.insert_requests = fl_insert_requests,
		.dispatch_request = fl_dispatch_request,
		.has_work = fl_has_work,
		.completed_request = fl_completed_request,
		.requeue_request = fl_requeue_request,
		.finish_request = fl_finish_request,
	},
	.elevator_attrs = fl_attrs,
	.elevator_owner = THIS_MODULE,
};

static int __init fl_elevator_init(void)
{
	int ret;

	/* Its row says that it stages; see list.h. */
	if (WARN_ON(!FL_SCHED.insert || !FL_SCHED.dispatch || !FL_SCHED.has_work ||
		    strcmp(FL_SCHED.name, FL_SCHED_NAME)))
		return -EINVAL;
	ret = fl_attrs_init(fl_attrs, &FL_SCHED);
	if (ret)
		return ret;
	fl_elevator.elevator_name = FL_SCHED.name;
	return elv_register(&fl_elevator);
}

static void __exit fl_elevator_exit(void)
{
	elv_unregister(&fl_elevator);
}

module_init(fl_elevator_init);
module_exit(fl_elevator_exit);

MODULE_LICENSE("GPL");
MODULE_DESCRIPTION(FL_SCHED_ABOUT);
MODULE_ALIAS(FL_SCHED_NAME "-iosched");
