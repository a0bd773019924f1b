// SPDX-License-Identifier: GPL-2.0-only
/*
 * fairlane.ko: how cgroups share tags, by the rule in
 * libfairlane/mechanisms/tag-limits.h; and, of a scheduler that has admit(), who may
 * send a request to the drive.
 *
 * The block layer's rq_qos hooks tell of each bio before it gets a request, and
 * so before it takes a tag: the scheduler's or, with a scheduler that routes, the
 * driver's own. The bio's cgroup is known there, whoever submits it: a task, the
 * kernel's writeback, or a thread of dm-crypt, md or a loop device.
 *
 *   throttle  the bio is counted as one that has a tag, or its submitter sleeps until it
 *             is; and again until it is admitted
 *   track     the request, which has the tag now, takes over that, what it costs, and how
 *             long it has waited (elv.icq, of which only BFQ makes another use)
 *   merge     the bio became a part of a request that there is, and needs no tag; it
 *             is admitted without a wait
 *   cleanup   there was no tag after all (REQ_NOWAIT)
 *   done      the request gives back the tag, and leaves
 *
 * Between track and done it goes to the drive: fl_tags_request_sent(). What is to be
 * admitted has been sent, for our purposes, when it was, though it be in its thread's plug.
 *
 * From throttle to track, bio->bi_cookie says for which hardware queue the bio is
 * counted, and how long it slept (fl_bio_counted()). The request may turn out to be of another:
 * the submitter may have moved to another CPU, or has a request from its plug. Then the
 * count moves, too.
 *
 * The sleep is uninterruptible, like the wait for a tag, and for the same reason: it
 * waits only for requests in the drive, and these end, at the latest by the driver's timeout
 * (or in a plug, whose thread sends them once it has a CPU).
 * The sleeper holds no tag, and its plug is flushed before it sleeps. Nor does a fatal signal
 * end it: a bio cannot be given back here, and if it went, a tenant would gain a request with
 * each of its own processes that it kills.
 * These hooks cannot refuse a bio. So one that may not sleep (REQ_NOWAIT) sleeps, as
 * it does in those of wbt, io.cost and io.latency.
 *
 * The root's requests are counted at once, since others may wait for them. So are
 * metadata and swapping, which go as the root's, whoever submits them. Their own cgroup
 * pays for them with its next requests.
 *
 * Tags that all hardware queues share (BLK_MQ_F_TAG_HCTX_SHARED) are counted once, with
 * those of hardware queue 0.
 */
#include <linux/completion.h>

#include "policy.h"
#include "tracepoints.h"
#include "libfairlane/mechanisms/tag-limits.h"

/* On the stack of who sleeps: for a tag, or to be admitted. */
struct fl_sleeper {
	struct fl_tag_wait wait;
	struct completion granted;
};

struct fl_waiting_bio {
	struct fl_admission admission;
	struct completion admitted;
};

void fl_tag_granted(struct fl_tag_wait *wait)
{
	complete(&container_of(wait, struct fl_sleeper, wait)->granted);
}

void fl_admitted(struct fl_admission *admission)
{
	complete(&container_of(admission, struct fl_waiting_bio, admission)->admitted);
}
EXPORT_SYMBOL_GPL(fl_admitted);

/* nr_requests may change at any time. */
static void fl_tags_update(struct fl_hwq *hwq, struct blk_mq_hw_ctx *hctx)
{
	struct blk_mq_tags *tags = hctx->sched_tags ?: hctx->tags;
	unsigned int nr = tags->bitmap_tags.sb.depth;

	if (unlikely(READ_ONCE(hwq->tags) != nr))
		WRITE_ONCE(hwq->tags, nr);
}

/* Where those who send on hardware queue @index are counted: tags that all share are the first one's. */
static unsigned int fl_tags_index(struct fl_kdev *kdev, unsigned int index)
{
	return blk_mq_is_shared_tags(kdev->q->tag_set->flags) ? 0 : index;
}

/* What moves no data is no write. */
static enum fl_op fl_bio_op(struct bio *bio)
{
	return bio->bi_iter.bi_size ? fl_opf_op(bio->bi_opf) : FL_OTHER;
}

static struct fl_queue *fl_tags_queue(struct fl_queue *queue)
{
	struct fl_dev *dev = queue->hwq->dev;

	return fl_flow_queue(queue->flow, fl_tags_index(to_fl_kdev(dev), queue->hwq->index));
}

/* Poll until @granted, for requests of the submitter's own: they may be on any queue that is polled. */
static void fl_tags_poll(struct fl_kdev *kdev, struct completion *granted, struct fl_long_wait *wait)
{
	struct blk_mq_hw_ctx *hctx;
	unsigned long i;

	if (wait_for_completion_io_timeout(granted, 1)) /* flushes the plug, which may hold some of them */
		return;
	while (!try_wait_for_completion(granted) && !fl_wait_over(kdev, wait)) {
		queue_for_each_hw_ctx(kdev->q, hctx, i)
			if (hctx->type == HCTX_TYPE_POLL)
				kdev->q->mq_ops->poll(hctx, NULL);
		cond_resched();
	}
}

/*
 * Sleep until @granted, or until the scheduler has failed (watchdog.c). It may wait for
 * requests that the submitter itself has to poll for. Returns ns.
 */
static u64 fl_tags_wait(struct fl_kdev *kdev, struct blk_mq_hw_ctx *hctx,
			struct completion *granted)
{
	struct fl_long_wait wait = { .since = ktime_get_ns() };

	if (hctx->type == HCTX_TYPE_POLL)
		fl_tags_poll(kdev, granted, &wait);
	else /* by and by, so that a low weight is not taken for a hung task */
		while (!wait_for_completion_io_timeout(granted, HZ) && !fl_wait_over(kdev, &wait))
			;
	return ktime_get_ns() - wait.since;
}

/* A scheduler that has failed admits everything. */
static bool fl_tags_ask(struct fl_queue *queue, struct fl_admission *admission, u32 grown)
{
	bool now;

	rcu_read_lock();
	now = !fl_asks(to_fl_kdev(queue->hwq->dev)) || fl_queue_admit(queue, admission, grown);
	rcu_read_unlock();
	return now;
}

/*
 * @queue gives back a tag, which is that of a request that was @sent, or not. Once the scheduler
 * has failed nobody waits for one any more.
 */
static void fl_tags_back(struct fl_queue *queue, bool sent)
{
	if (!sent)
		fl_tags_sent(queue);
	fl_tags_give(queue);
}

/* A request of @queue is done, or there is none after all. */
static void fl_tags_leave(struct fl_queue *queue, enum fl_op op, u64 cost, u64 ns, bool sent)
{
	struct fl_kdev *kdev = to_fl_kdev(queue->hwq->dev);

	rcu_read_lock();
	if (fl_asks(kdev)) {
		if (kdev->dev.sched->leave)
			kdev->dev.sched->leave(queue, op, cost, ns);
		fl_tags_back(fl_tags_queue(queue), sent);
	}
	rcu_read_unlock();
}

/* What @queue is counted for goes to the drive. */
static void fl_tags_go(struct fl_queue *queue)
{
	rcu_read_lock();
	if (fl_asks(to_fl_kdev(queue->hwq->dev)))
		fl_tags_sent(queue);
	rcu_read_unlock();
}

/* @rq does. It may do so again, and counts once. Under its hwq->lock, or by its driver. */
void fl_tags_request_sent(struct request *rq)
{
	if (!(rq->rq_flags & FL_RQF_UNSENT))
		return;
	rq->rq_flags &= ~FL_RQF_UNSENT;
	fl_tags_go(fl_tags_queue(rq->elv.priv[0]));
}
EXPORT_SYMBOL_GPL(fl_tags_request_sent);

/* This and fl_tags_admit() return for how long the bio's submitter slept, ns. */
static u64 fl_tags_sleep(struct fl_queue *queue, struct bio *bio, struct blk_mq_hw_ctx *hctx)
{
	struct fl_sleeper sleeper = {
		.wait = {
			.queue = queue,
			.op = fl_bio_op(bio),
			.bytes = bio->bi_iter.bi_size,
		},
		.granted = COMPLETION_INITIALIZER_ONSTACK(sleeper.granted),
	};
	struct fl_kdev *kdev = to_fl_kdev(queue->hwq->dev);
	bool taken;

	rcu_read_lock();
	taken = !fl_asks(kdev) || fl_tags_take(&sleeper.wait);
	rcu_read_unlock();
	if (likely(taken) || try_wait_for_completion(&sleeper.granted))
		return 0;
	trace_fairlane_tag_wait(disk_devt(kdev->q->disk), queue->hwq->index,
				atomic_read(&queue->unsent));
	return fl_tags_wait(kdev, hctx, &sleeper.granted);
}

/* @admission, for which fl_admitted() came, may go now; so may everything if the scheduler has failed. */
static bool fl_tags_in_time(struct fl_kdev *kdev, struct fl_admission *admission)
{
	bool in_time;

	rcu_read_lock();
	in_time = !fl_asks(kdev) || fl_queue_sent(admission);
	rcu_read_unlock();
	return in_time;
}

static u64 fl_tags_admit(struct fl_queue *queue, struct bio *bio, struct blk_mq_hw_ctx *hctx)
{
	struct fl_waiting_bio waiting = {
		.admission = {
			.op = fl_bio_op(bio),
			.bytes = bio->bi_iter.bi_size,
			.rank = fl_rank(bio->bi_ioprio),
		},
		.admitted = COMPLETION_INITIALIZER_ONSTACK(waiting.admitted),
	};
	struct fl_kdev *kdev = to_fl_kdev(queue->hwq->dev);
	u64 waited = 0;

	if (!fl_tags_ask(queue, &waiting.admission, 0))
		do
			waited += fl_tags_wait(kdev, hctx, &waiting.admitted);
		while (!fl_tags_in_time(kdev, &waiting.admission));
	fl_tags_go(queue);
	return waited;
}

/* What @bio was admitted at. */
static u64 fl_bio_cost(struct fl_kdev *kdev, struct bio *bio)
{
	return fl_cost(&kdev->dev.prices, fl_bio_op(bio), bio->bi_iter.bi_size);
}

/* Somebody else's elevator, above a scheduler that routes, decides who has a tag. */
static bool fl_tags_are_others(struct fl_kdev *kdev)
{
	return kdev->route && kdev->q->elevator;
}

/* That of @bio's own cgroup, made if there is none, with those above; NULL: out of memory. */
static struct fl_queue *fl_bio_queue(struct fl_kdev *kdev, struct bio *bio, unsigned int index)
{
	struct fl_kflow *kflow = fl_bio_kflow(kdev, bio);
	struct fl_queue *queue = fl_flow_queue(&kflow->flow, index);

	/* Not to wait for I/O, which may have to pass here itself. */
	return likely(queue) ? queue : fl_kflow_make_queue(kflow, index, GFP_NOIO);
}

/*
 * @bio is counted on hardware queue @index, for which it waited. In bi_cookie, as its
 * neighbours in a bio are those of io.latency and io.cost, which may be used beside us. Nobody
 * polls a bio, which is what that field is for, before its submission has returned.
 */
static void fl_bio_counted(struct bio *bio, unsigned int index, u64 waited)
{
	bio->bi_cookie = index << FL_SHORT_NS_BITS | fl_short_ns(waited);
}

static u64 fl_bio_waited(const struct bio *bio)
{
	return fl_short_ns_value(bio->bi_cookie & ((1u << FL_SHORT_NS_BITS) - 1));
}

static struct fl_kdev *fl_rqos_kdev(struct rq_qos *rqos)
{
	return container_of(rqos, struct fl_rqos, rqos)->kdev;
}

static void fl_tags_throttle(struct rq_qos *rqos, struct bio *bio)
{
	struct fl_kdev *kdev = fl_rqos_kdev(rqos);
	struct request_queue *q = kdev->q;
	struct blk_mq_hw_ctx *hctx;
	struct fl_queue *queue;
	unsigned int index;
	u64 waited = 0;

	bio->bi_cookie = BLK_QC_T_NONE;
	if (fl_tags_are_others(kdev) || !fl_has_elv(bio->bi_opf) || unlikely(!fl_asks(kdev)))
		return;
	if (current->plug)
		current->plug->nr_ios = 1; /* no tag that is not counted */
	hctx = fl_map_queue(q, bio->bi_opf);
	index = fl_tags_index(kdev, fl_hctx_index(kdev, hctx));
	queue = fl_bio_queue(kdev, bio, index);
	if (unlikely(!queue))
		return;
	fl_tags_update(queue->hwq, hctx);
	if (!queue->up) /* the root's, metadata and swapping among them */
		fl_tags_take_anyway(queue);
	else
		waited = fl_tags_sleep(queue, bio, hctx);
	if (kdev->dev.sched->admit)
		waited += fl_tags_admit(queue, bio, hctx);
	fl_bio_counted(bio, index, waited);
}

/* The queue at which @bio is counted, and is no longer; NULL: it is not. */
static struct fl_queue *fl_tags_counted(struct fl_kdev *kdev, struct bio *bio)
{
	blk_qc_t counted = bio->bi_cookie;

	bio->bi_cookie = BLK_QC_T_NONE;
	if (counted == BLK_QC_T_NONE)
		return NULL;
	return fl_bio_queue(kdev, bio, counted >> FL_SHORT_NS_BITS);
}

/* If the root sends @bio, as a part of @rq, its own cgroup pays. */
static void fl_charge_ahead(struct fl_kdev *kdev, struct request *rq, struct bio *bio)
{
	struct fl_kflow *payer;

	if (likely(!bio_issue_as_root_blkg(bio)))
		return;
	payer = fl_bio_payer(kdev, bio);
	rcu_read_lock();
	if (payer != kdev->root && fl_asks(kdev))
		fl_queue_charge(fl_kflow_use(payer, fl_hctx_index(kdev, rq->mq_hctx)),
				fl_opf_op(bio->bi_opf), bio->bi_iter.bi_size);
	rcu_read_unlock();
}

/* What @from is counted for is @to's. */
static void fl_tags_move(struct fl_kdev *kdev, struct fl_queue *from, struct fl_queue *to, bool sent)
{
	fl_tags_take_anyway(to);
	if (sent)
		fl_tags_go(to);
	rcu_read_lock();
	if (fl_asks(kdev))
		fl_tags_back(from, sent);
	rcu_read_unlock();
}

static void fl_tags_track(struct rq_qos *rqos, struct request *rq, struct bio *bio)
{
	struct fl_kdev *kdev = fl_rqos_kdev(rqos);
	bool admits = kdev->dev.sched->admit;
	u64 waited = fl_bio_waited(bio);
	struct fl_queue *counted = fl_tags_counted(kdev, bio), *queue, *at;

	if (!counted)
		return;
	queue = fl_kflow_use(fl_bio_kflow(kdev, bio), fl_hctx_index(kdev, rq->mq_hctx));
	at = fl_tags_queue(queue);
	if (unlikely(at != counted))
		fl_tags_move(kdev, counted, at, admits);
	fl_charge_ahead(kdev, rq, bio);
	fl_hold(rq, queue); /* the bios end before the request does */
	if (admits)
		rq->elv.priv[1] = (void *)(uintptr_t)fl_bio_cost(kdev, bio);
	rq->elv.icq = (void *)(uintptr_t)waited;
	rq->rq_flags |= admits ? FL_RQF_COUNTED : FL_RQF_COUNTED | FL_RQF_UNSENT;
	if (!bio->bi_iter.bi_size) /* a flush, of which no scheduler hears */
		fl_tags_request_sent(rq);
}

/* @bio needs no tag, as it became a part of @rq. Maybe under hwq->lock. */
static void fl_tags_merge(struct rq_qos *rqos, struct request *rq, struct bio *bio)
{
	struct fl_kdev *kdev = fl_rqos_kdev(rqos);

	if (fl_tags_are_others(kdev))
		return;
	fl_charge_ahead(kdev, rq, bio);
	if (kdev->dev.sched->admit && (rq->rq_flags & FL_RQF_COUNTED)) {
		struct fl_admission grown = {
			.op = fl_opf_op(rq->cmd_flags),
			.bytes = blk_rq_bytes(rq) + bio->bi_iter.bi_size,
			.must = true,
		};

		fl_tags_ask(rq->elv.priv[0], &grown, blk_rq_bytes(rq));
		rq->elv.priv[1] = (void *)((uintptr_t)rq->elv.priv[1] + (uintptr_t)grown.cost);
	}
}

static void fl_tags_cleanup(struct rq_qos *rqos, struct bio *bio)
{
	struct fl_kdev *kdev = fl_rqos_kdev(rqos);
	struct fl_queue *counted = fl_tags_counted(kdev, bio);

	if (counted)
		fl_tags_leave(counted, fl_bio_op(bio), fl_bio_cost(kdev, bio), 0, kdev->dev.sched->admit);
}

/*
 * How long @rq was in the drive; 0: that is not known. The kernel keeps when a request was sent
 * only while somebody collects statistics (our elevators, Kyber, io.cost). While queue/iostats is
 * on, as it is by default, it keeps when the request was made. Without an elevator that is just
 * before, as nothing stages it: its submitter's plug may hold it meanwhile, and a driver that
 * is short of its own. If iostats is off, start_time_ns may be an older request's (7.3).
 *
 * Also counts how long it took in all (times.h), if it is known when it was made.
 */
static u64 fl_tags_time(struct request *rq, struct fl_queue *queue)
{
	u64 made = rq->rq_flags & RQF_IO_STAT ? rq->start_time_ns : 0;
	u64 sent = rq->io_start_time_ns ?: made;
	u64 waited = (uintptr_t)rq->elv.icq, now;

	if (!sent)
		return 0;
	now = ktime_get_ns();
	if (made) {
		waited += max_t(s64, sent - made, 0);
		fl_times_add(&queue->times, waited, waited + max_t(s64, now - sent, 0));
	}
	return max_t(s64, now - sent, 1);
}

/* Any context. May come twice for a request that flushes. */
static void fl_tags_done(struct rq_qos *rqos, struct request *rq)
{
	struct fl_queue *queue = rq->elv.priv[0];
	bool sent = !(rq->rq_flags & FL_RQF_UNSENT);
	u64 ns;

	if (!(rq->rq_flags & FL_RQF_COUNTED))
		return;
	rq->rq_flags &= ~(FL_RQF_COUNTED | FL_RQF_UNSENT);
	ns = fl_tags_time(rq, queue);
	rq->elv.icq = NULL;
	fl_tags_leave(queue, fl_opf_op(rq->cmd_flags), (uintptr_t)rq->elv.priv[1], ns, sent);
	fl_unhold(rq);
}

/* The scheduler leaves before its disk goes, so the block layer finds nothing to end here. */
static void fl_tags_exit(struct rq_qos *rqos)
{
	WARN_ON_ONCE(1);
}

static fl_rqos_ops fl_tags_ops = {
	.throttle = fl_tags_throttle,
	.track = fl_tags_track,
	.merge = fl_tags_merge,
	.cleanup = fl_tags_cleanup,
	.done = fl_tags_done,
	.exit = fl_tags_exit,
};

/* From now on @kdev's cgroups share tags. The queue is frozen; see fl_rqos_add() for the lock. */
void fl_tags_attach(struct fl_kdev *kdev)
{
	kdev->rqos->kdev = kdev;
	fl_rqos_add(&kdev->rqos->rqos, kdev->q, &fl_tags_ops);
}
EXPORT_SYMBOL_GPL(fl_tags_attach);

/* The converse, under the same conditions. */
void fl_tags_detach(struct fl_kdev *kdev)
{
	fl_rqos_del(&kdev->rqos->rqos, kdev->q);
}
EXPORT_SYMBOL_GPL(fl_tags_detach);
